//! Handlers deployed in a running daemon: derived streams, hot-swap, moves, faults; over the real wire, in one process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crossdock_engine::{Handler, HandlerCounters, NativeKind, Sink, Verdict};
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Selection};
use crossdock_nectarine::{Event, Publisher, Subscriber, Transport};
use crossdock_runtime::{ContextConfig, ContextHandle, ContextKind, ContextSpec, HandlerSpec, OnFault, Wish};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const WAYS: [Transport; 2] = [Transport::Udp, Transport::Shm];

fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    let context = |kind| ContextSpec { name: None, kind, cpu: None };
    config.platform.contexts =
        vec![context(ContextKind::GCore), context(ContextKind::CCore), context(ContextKind::GCore)];
    change(&mut config);
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

const PLACES: [&str; 4] = ["c-core-0", "g-core-0", "c-core-1", "g-core-1"];

fn numbers() -> Format {
    Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new("grp", FieldType::I32)]).unwrap()
}

fn publish(publisher: &mut Publisher, from: u64, to: u64) {
    let mut row = RecordBuilder::new(publisher.format());
    for number in from..to {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Int((number % 10) as i64)).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
}

/// The first field of all records up to the stream's end.
fn collect(subscriber: &mut Subscriber) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        match subscriber.next_event(Some(Duration::from_secs(20))).unwrap().expect("something within 20 s") {
            Event::Records(records) => numbers.extend(records.iter().map(|record| match record.get(0) {
                Value::Uint(number) => number,
                Value::Int(number) => number as u64,
                other => panic!("{other:?}"),
            })),
            Event::StreamEnded { publishers_left: 0 } => return numbers,
            Event::Dropped { records, .. } => panic!("{records} were dropped"),
            _ => {}
        }
    }
}

fn sql(name: &str, sql: &str) -> HandlerSpec {
    HandlerSpec { name: name.into(), sql: Some(sql.into()), ..HandlerSpec::default() }
}

fn native(name: &str, native: &str, on: &str, parameters: &[(&str, &str)]) -> HandlerSpec {
    let parameters: BTreeMap<String, String> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (native, on) = (Some(native.to_owned()), vec![on.to_owned()]);
    HandlerSpec { name: name.into(), native, on, parameters, ..HandlerSpec::default() }
}

fn change(context: &ContextHandle, wish: Wish) {
    let applied = context.manager().change(wish, false).unwrap();
    applied.unwrap_or_else(|plan| panic!("{plan:?}"));
}

#[test]
fn what_a_chain_of_handlers_makes_is_subscribed_to_wherever_they_run() {
    for way in WAYS {
        for place in PLACES {
            let (context, addr) = start(|_| {});
            let mut publisher =
                Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
            let first = HandlerSpec { place: Some(place.into()), ..sql("small", "SELECT * FROM N WHERE grp < 5") };
            change(&context, Wish::Deploy(first));
            change(&context, Wish::Deploy(sql("threes", "SELECT number + 1 AS n FROM small WHERE grp = 3")));
            let mut small = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM small").connect().unwrap();
            let mut threes =
                Subscriber::builder(&addr).transport(way).sql("SELECT n FROM threes WHERE n > 100").connect().unwrap();
            let reader = std::thread::spawn(move || collect(&mut threes));
            let other = std::thread::spawn(move || collect(&mut small));
            publish(&mut publisher, 0, 100_000);
            publisher.finish().unwrap();
            let wanted: Vec<u64> = (0..100_000).filter(|n| n % 10 == 3 && *n >= 100).map(|n| n + 1).collect();
            assert_eq!(reader.join().unwrap(), wanted, "{place} {way:?}");
            assert_eq!(other.join().unwrap(), (0..100_000).filter(|n| n % 10 < 5).collect::<Vec<_>>());
            let handlers = context.manager().handlers().unwrap();
            assert_eq!(handlers[0].context.as_deref(), Some(place));
            assert_eq!((handlers[0].records_in, handlers[0].records_out), (100_000, 50_000), "{handlers:?}");
            assert!(handlers.iter().all(|handler| handler.dropped.is_empty()), "{handlers:?}");
            context.stop();
        }
    }
}
