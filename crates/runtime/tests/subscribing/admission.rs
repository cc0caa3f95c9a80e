//! What does not fit in the time that the core has left is refused by its figures.

use crate::start;
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Error, Publisher, Subscriber};
use crossdock_runtime::ContextHandle;

/// A query that takes far longer for a record than anything else: a hundred looks through a text that is in none of them.
fn dear() -> String {
    let looks: Vec<String> = (0..100).map(|number| format!("text LIKE '%a{number}b%c%'")).collect();
    format!("SELECT number FROM N WHERE {}", looks.join(" OR "))
}

/// A context on which a stream came at full speed. Its publisher is still there.
fn after_a_burst(admits: bool) -> (ContextHandle, String, Publisher) {
    let context = start(|config| config.platform.admit_subscriptions = admits);
    let addr = context.local_addr().to_string();
    let format =
        Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new("text", FieldType::String)]).unwrap();
    let mut publisher = Publisher::builder(&addr).stream("N").format(&format).connect().unwrap();
    let mut row = RecordBuilder::new(&format);
    for number in 0..50_000u64 {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Text("a b c ".repeat(50).as_bytes())).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
    publisher.flush().unwrap();
    while context.streams().unwrap()[0].records_in < 50_000 {
        std::thread::yield_now();
    }
    // The managers have looked, since they answer.
    context.manager().contexts().unwrap();
    (context, addr, publisher)
}

#[test]
fn a_query_that_does_not_fit_is_refused_by_its_figures() {
    let (context, addr, _publisher) = after_a_burst(true);
    let refused = Subscriber::builder(&addr).sql(dear()).connect().err().unwrap();
    let Error::Refused(text) = &refused else { panic!("{refused:?}") };
    let (needs, rest) = text.strip_prefix("the query needs ").unwrap().split_once(" at ").unwrap();
    let (rate, rest) = rest.split_once(", c-core-0 has ").unwrap();
    let (has, advice) = rest.split_once(": ").unwrap();
    assert!(needs.ends_with(" ms/s") && rate.ends_with(" msgs/s") && has.ends_with(" ms/s"), "{text}");
    assert!(advice.contains("crossdock handler deploy"), "{text}");
    assert_eq!(context.context().unwrap().subscriptions_refused, 1);
    assert!(context.subscriptions().unwrap().is_empty());
    // What has happened is told with the stream.
    let told = || {
        let events = context.manager().events(0).unwrap();
        events.into_iter().find(|event| event.kind == "refused" && event.context.as_deref() == Some("c-core-0"))
    };
    assert_eq!(told().unwrap().text, format!("a subscription to stream `N`: {text}"));
    // As it was said before it was tried.
    let explained = context.explain(&dear(), &[]).unwrap().unwrap();
    assert!(explained.load_ns_per_s > explained.headroom_ns_per_s, "{explained:?}");
    // Others are let in, and the one that was refused as soon as it may be.
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
    let format =
        Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new("text", FieldType::String)]).unwrap();
    context.declare_stream("N", &format).unwrap().unwrap();
    let _dear = Subscriber::builder(&addr).sql(dear()).connect().unwrap();
    assert_eq!(context.context().unwrap().subscriptions_refused, 0);
}
