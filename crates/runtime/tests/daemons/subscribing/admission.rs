//! A query that does not fit in the time that the core has left is refused by its figures.

use super::{await_that, start};
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{DropCause, Error, Event, Publisher, Subscriber};
use crossdock_runtime::{ChangeRequest, ContextHandle, HandlerSpec, StateSpec};
use std::time::Duration;

/// A query that searches a record's text this number of times, for texts that no record has.
fn looking(times: u64) -> String {
    let looks: Vec<String> = (0..times).map(|number| format!("text LIKE '%a{number}b%c%'")).collect();
    format!("SELECT number FROM N WHERE {}", looks.join(" OR "))
}

/// One that takes far longer than there is time for anywhere.
fn dear() -> String {
    looking(400)
}

fn format() -> Format {
    Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new("text", FieldType::String)]).unwrap()
}

fn publish(publisher: &mut Publisher, numbers: std::ops::Range<u64>, text: &str) {
    let format = format();
    let mut row = RecordBuilder::new(&format);
    for number in numbers {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Text(text.as_bytes())).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
    publisher.flush().unwrap();
}

/// A context on which a stream came at full speed. Its publisher is still there.
fn after_a_burst(admits: bool) -> (ContextHandle, String, Publisher) {
    let context = start(|config| config.platform.admit_subscriptions = admits);
    let (addr, publisher) = burst(&context);
    (context, addr, publisher)
}

/// A stream comes at full speed: so few records that one search of a text takes a small part of a core at that rate.
fn burst(context: &ContextHandle) -> (String, Publisher) {
    let addr = context.local_addr().to_string();
    let mut publisher = Publisher::builder(&addr).stream("N").format(&format()).connect().unwrap();
    publish(&mut publisher, 0..5_000, "a b c a b c ");
    await_that("all have come", || {
        context.streams().unwrap().iter().any(|stream| stream.name == "N" && stream.records_in == 5_000)
    });
    // The managers have looked, since they answer.
    context.manager().contexts().unwrap();
    (addr, publisher)
}

#[test]
fn a_query_that_does_not_fit_is_refused_by_its_figures() {
    let (context, addr, _publisher) = after_a_burst(true);
    let refused = Subscriber::builder(&addr).sql(dear()).connect().err().unwrap();
    let Error::Refused(text) = &refused else { panic!("{refused:?}") };
    let (needs, rest) = text.strip_prefix("the query needs ").unwrap().split_once(" at ").unwrap();
    let (rate, rest) = rest.split_once(", ").unwrap();
    let (place, rest) = rest.split_once(" has ").unwrap();
    assert!(place.starts_with("c-core-"), "{text}");
    let (has, elsewhere) = rest.split_once("; elsewhere: ").unwrap();
    assert!(needs.ends_with(" ms/s") && rate.ends_with(" msgs/s") && has.ends_with(" ms/s"), "{text}");
    assert!(elsewhere.contains(", g-core-0 has "), "{text}");
    assert_eq!(context.context().unwrap().subscriptions_refused, 1);
    assert!(context.subscriptions().unwrap().is_empty());
    // The event names the stream.
    let refusal = format!("a subscription to stream `N`: {text}");
    await_that("the refusal's event", || {
        let events = context.manager().events(0).unwrap();
        events
            .iter()
            .any(|event| (&*event.kind, event.context.as_deref(), &event.text) == ("refused", Some(place), &refusal))
    });
    assert!(context.manager().handlers().unwrap().is_empty());
    // As it was said before it was tried.
    let explained = context.explain(&dear(), &[]).unwrap().unwrap();
    assert!(explained.load_ns_per_s > explained.headroom_ns_per_s, "{explained:?}");
    // Others are let in.
    let _all = Subscriber::builder(&addr).sql("SELECT * FROM N").connect().unwrap();
    let _few = Subscriber::builder(&addr).sql("SELECT number FROM N WHERE number = 7").connect().unwrap();
    assert_eq!(context.subscriptions().unwrap().len(), 2);
}

#[test]
fn queries_are_let_in_unmeasured_where_that_is_wanted_and_where_nothing_has_come() {
    let (context, addr, _publisher) = after_a_burst(false);
    let _dear = Subscriber::builder(&addr).sql(dear()).connect().unwrap();
    assert_eq!(context.explain(&dear(), &[]).unwrap().unwrap().headroom_ns_per_s, None);
    drop(context);

    let context = start(|_| {});
    let addr = context.local_addr().to_string();
    context.declare_stream("N", &format()).unwrap().unwrap();
    let _dear = Subscriber::builder(&addr).sql(dear()).connect().unwrap();
    assert_eq!(context.context().unwrap().subscriptions_refused, 0);
}

#[test]
fn a_query_that_the_core_has_no_time_for_runs_elsewhere_as_long_as_its_subscription() {
    let context = start(|_| {});
    let headroom = context.manager().contexts().unwrap()[0].headroom_ns_per_s;
    let busy = HandlerSpec {
        name: "busy".to_owned(),
        sql: Some("SELECT * FROM other".to_owned()),
        place: Some("c-core-0".to_owned()),
        reserve_ns_per_s: Some(headroom / 10 * 9),
        ..HandlerSpec::default()
    };
    context.manager().change(ChangeRequest::Deploy(busy.clone()), false).unwrap().unwrap();
    let (addr, mut publisher) = burst(&context);
    // One that takes about a thirtieth of a core, however fast this machine is; some of these are enough. Ten times as much
    // would still fit elsewhere: what is measured beside other tests may be that far off.
    let load = context.explain(&looking(50), &[]).unwrap().unwrap().load_ns_per_s.unwrap();
    let sql = looking((50 * 30_000_000 / load.max(1)).clamp(1, 1000)).replace("WHERE ", "WHERE (");
    let sql = sql + ") AND 100 / (number - 8) <> 0";
    let elsewhere = |context: &ContextHandle| {
        context.subscriptions().unwrap().into_iter().find(|subscription| subscription.handler.is_some())
    };
    let mut here = Vec::new();
    let mut subscriber = loop {
        let subscriber = Subscriber::builder(&addr).sql(&sql).connect().unwrap();
        if elsewhere(&context).is_some() {
            break subscriber;
        }
        here.push(subscriber);
        assert!(here.len() < 200, "all of them are let in at the core");
    };
    let shown = elsewhere(&context).unwrap();
    assert_eq!((&*shown.stream, &shown.sql), ("N", &sql));
    // It is there like any handler, but at nobody's request: it is not listed as one, and one for all that is to be leaves it.
    let manager = context.manager();
    let name = shown.handler.unwrap();
    let handlers = || manager.handlers().unwrap();
    assert!(
        handlers().iter().any(|handler| handler.name == name && handler.context.as_deref() == Some("g-core-0")),
        "{:?}",
        handlers()
    );
    assert_eq!(manager.specs().unwrap(), [busy]);
    manager.change(ChangeRequest::All(Vec::new()), false).unwrap().unwrap();
    assert_eq!(handlers().iter().map(|handler| &handler.name).collect::<Vec<_>>(), [&name]);
    // Its subscriber sees no difference.
    publish(&mut publisher, 7..10, "a0b and c");
    publish(&mut publisher, 10..20, "nothing");
    publisher.finish().unwrap();
    let (mut got, mut dropped) = (Vec::new(), Vec::new());
    loop {
        match subscriber.next_event(Some(Duration::from_secs(20))).unwrap().expect("something within 20 s") {
            Event::Records(records) => got.extend(records.iter().map(|record| match record.get(0) {
                Value::Uint(number) => number,
                other => panic!("{other:?}"),
            })),
            Event::Dropped { records, cause, .. } => dropped.push((records, cause)),
            Event::StreamEnded { publishers_left: 0, .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got, [7, 9]);
    assert_eq!(dropped, [(1, DropCause::DivisionByZero)]);
    let of = elsewhere(&context).unwrap();
    assert_eq!((of.published, of.filtered, of.records_out, of.row_errors), (13, 10, 2, 1), "{of:?}");
    assert_eq!((of.taken, of.rows_made, of.dropped, of.in_flight), (0, 0, 0, 0), "{of:?}");
    // It goes with its subscription.
    drop(subscriber);
    await_that("the handler gone", || handlers().is_empty());
}

/// It ends with what is there: how fast the stream comes makes no difference. One that goes on with changes is another matter.
#[test]
fn a_snapshot_is_admitted_however_fast_its_stream_comes() {
    let (context, addr, _publisher) = after_a_burst(true);
    let key = StateSpec { key: vec!["number".to_owned()], ..StateSpec::default() };
    let state = HandlerSpec { place: Some("g-core-0".into()), ..HandlerSpec::of_state("N", key) };
    context.manager().change(ChangeRequest::Deploy(state), false).unwrap().unwrap();
    let _reader = Subscriber::builder(&addr).sql("SELECT number FROM N SNAPSHOT THEN CHANGES").connect().unwrap();
    let mut publisher = Publisher::builder(&addr).stream("N").format(&format()).connect().unwrap();
    publish(&mut publisher, 0..5_000, "a b c a b c ");
    await_that("all changes have come", || {
        context.streams().unwrap().iter().any(|stream| stream.name == "state of N" && stream.records_in >= 5_000)
    });
    let of_state = |clause: &str| dear().replacen(" WHERE ", &format!(" {clause} WHERE "), 1);
    let refused = Subscriber::builder(&addr).sql(of_state("SNAPSHOT THEN CHANGES")).connect().err().unwrap();
    assert!(matches!(&refused, Error::Refused(text) if text.starts_with("the query needs ")), "{refused:?}");
    Subscriber::builder(&addr).sql(of_state("SNAPSHOT")).connect().unwrap();
    context.stop().unwrap();
}
