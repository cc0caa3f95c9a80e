//! Loops over a subscriber: they give every record, end when the stream does, and keep other events apart.

use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Error, Event, Overflow, Publisher, ReceivedRecord, Records, Subscriber, Transport};
use crossdock_runtime::{ContextConfig, ContextHandle};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const TRANSPORTS: [Transport; 2] = [Transport::Shm, Transport::Udp];

fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = ContextConfig { listen, ..ContextConfig::default() };
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    (context, addr)
}

fn numbers() -> Format {
    Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new("name", FieldType::String)]).unwrap()
}

fn publisher(addr: &str, way: Transport) -> Publisher {
    Publisher::builder(addr).transport(way).stream("N").format(&numbers()).connect().unwrap()
}

fn subscriber(addr: &str, way: Transport) -> Subscriber {
    Subscriber::builder(addr).transport(way).sql("SELECT * FROM N").wait_for_stream(PATIENCE).connect().unwrap()
}

/// Publishes these numbers, and has them sent.
fn publish(publisher: &mut Publisher, numbers: std::ops::Range<u64>) {
    let mut row = RecordBuilder::new(publisher.format());
    for number in numbers {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Text(b"a name of some length")).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
    publisher.flush().unwrap();
}

fn number(record: &ReceivedRecord) -> u64 {
    match record.field("number") {
        Some(Value::Uint(number)) => number,
        other => panic!("{other:?}"),
    }
}

/// The result of `act` on a thread of its own: one that waits without end fails the test.
fn within<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (give, take) = mpsc::channel();
    std::thread::spawn(move || give.send(act()));
    take.recv_timeout(PATIENCE).expect("an end within 20 s")
}

#[test]
fn a_loop_gives_the_records_of_all_publishers_and_ends_with_the_last() {
    let (_context, addr) = start(|_| {});
    for way in TRANSPORTS {
        let (mut first, mut second) = (publisher(&addr, way), publisher(&addr, way));
        let subscribers = [(); 3].map(|()| subscriber(&addr, way));
        publish(&mut first, 0..1);
        publish(&mut second, 1..2);
        first.finish().unwrap();
        publish(&mut second, 2..6);
        second.finish().unwrap();
        let [owned, mut by_reference, mut batches] = subscribers;
        let found = within(move || {
            let mut found = [Vec::new(), Vec::new(), Vec::new()];
            for record in owned {
                found[0].push(number(&record.unwrap()));
            }
            for record in &mut by_reference {
                found[1].push(number(&record.unwrap()));
            }
            for records in batches.batches() {
                found[2].extend(records.unwrap().into_iter().map(|record| number(&record)));
            }
            found
        });
        for mut numbers in found {
            numbers.sort_unstable();
            assert_eq!(numbers, [0, 1, 2, 3, 4, 5], "{way}");
        }
    }
}

#[test]
fn after_the_end_nothing_waits_without_end_and_another_publisher_is_heard() {
    let (_context, addr) = start(|_| {});
    for way in TRANSPORTS {
        let mut first = publisher(&addr, way);
        let mut subscriber = subscriber(&addr, way);
        publish(&mut first, 0..3);
        first.finish().unwrap();
        let mut subscriber = within(move || {
            let mut records = 0;
            while let Some(event) = subscriber.next_event(None).unwrap() {
                if let Event::Records(batch) = event {
                    records += batch.len();
                }
            }
            assert_eq!(records, 3);
            assert!(subscriber.next_event(None).unwrap().is_none(), "the stream has ended");
            assert!(subscriber.next_record().unwrap().is_none(), "the stream has ended");
            subscriber
        });
        let mut second = publisher(&addr, way);
        publish(&mut second, 3..4);
        let Some(Event::Records(records)) = subscriber.next_event(Some(PATIENCE)).unwrap() else {
            panic!("no records")
        };
        assert_eq!(records.len(), 1);
        // The stream goes on, and so does a loop.
        publish(&mut second, 4..6);
        second.finish().unwrap();
        let rest = within(move || subscriber.into_iter().map(|record| number(&record.unwrap())).collect::<Vec<_>>());
        assert_eq!(rest, [4, 5], "{way}");
    }
}

#[test]
fn a_loop_that_is_left_early_loses_nothing() {
    let (_context, addr) = start(|_| {});
    for way in TRANSPORTS {
        let mut publisher = publisher(&addr, way);
        let mut subscriber = subscriber(&addr, way);
        publish(&mut publisher, 0..100);
        publisher.finish().unwrap();
        let held = subscriber.next_record().unwrap().unwrap();
        let mut found = vec![number(&held)];
        for record in &mut subscriber {
            found.push(number(&record.unwrap()));
            if found.len() == 5 {
                break;
            }
        }
        let rest: Records = subscriber.next_batch().unwrap().unwrap();
        assert!(rest.len() <= 95 && rest.iter().count() == rest.len());
        found.extend(rest.into_iter().map(|record| number(&record)));
        for batch in subscriber.batches() {
            found.extend(batch.unwrap().into_iter().map(|record| number(&record)));
        }
        assert_eq!(found, (0..100).collect::<Vec<_>>(), "{way}");
        // A record stays as it is after its subscriber.
        drop(subscriber);
        assert_eq!(format!("{held:?}"), "{\"number\": Uint(0), \"name\": Text(\"a name of some length\")}");
        assert_eq!(held.field("nothing"), None);
    }
}

#[test]
fn events_that_a_loop_passes_over_are_given_apart_and_drops_are_counted() {
    let (_context, addr) = start(|config| config.queue_bytes = 1 << 20);
    let mut publisher = publisher(&addr, Transport::Udp);
    let builder = Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM N");
    let mut slow = builder.overflow(Overflow::DropOldest).connect().unwrap();
    const COUNT: u64 = 150_000;
    publish(&mut publisher, 0..COUNT);
    publisher.finish().unwrap();
    let (give, apart) = mpsc::channel();
    slow.on_event(move |event| give.send(event).unwrap());
    let found = slow.batches().map(|batch| batch.unwrap().len() as u64).sum::<u64>();
    assert!(slow.dropped() > 0);
    assert_eq!(found + slow.dropped(), COUNT);
    drop(slow);
    let apart: Vec<Event> = apart.into_iter().collect();
    let dropped = apart.iter().map(|event| if let Event::Dropped { records, .. } = event { *records } else { 0 });
    assert_eq!(dropped.sum::<u64>(), COUNT - found);
    assert!(matches!(apart.last(), Some(Event::StreamEnded { publishers_left: 0, .. })), "{apart:?}");
}

#[test]
fn the_error_that_ends_a_loop_is_its_last_item() {
    let (context, addr) = start(|_| {});
    let _publisher = publisher(&addr, Transport::Udp);
    let builder = Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM N").reconnect(false);
    let mut subscriber = builder.connect().unwrap();
    context.stop().unwrap();
    let items = within(move || {
        let items = subscriber.batches().map(|batch| batch.map(drop)).collect::<Vec<_>>();
        (items, subscriber.next_batch().is_err())
    });
    assert!(
        matches!(items, (ref items, true) if matches!(items[..], [Err(Error::Closed(_) | Error::Lost { .. })])),
        "{items:?}"
    );
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Flight {
    carrier: String,
    #[serde(rename = "flight no")]
    number: u32,
    delay: Option<f64>,
    legs: Vec<Leg>,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Leg {
    to: String,
    km: Option<u16>,
}

#[test]
fn values_of_a_type_are_published_and_come_back_by_their_names() {
    #[derive(Deserialize, Debug, PartialEq)]
    struct Few {
        #[serde(rename = "flight no")]
        number: u8,
        delay: Option<i32>,
        #[serde(default)]
        gate: String,
    }
    let (_context, addr) = start(|_| {});
    let leg = |km| Leg { to: "LAX".to_owned(), km };
    let flight = |number| Flight {
        carrier: "B6".to_owned(),
        number,
        delay: (number > 1).then_some(1.5),
        legs: vec![leg(Some(3983)), leg(None)],
    };
    let flights: Vec<Flight> = [1, 2, 300].map(flight).to_vec();
    for way in TRANSPORTS {
        let mut publisher = Publisher::builder(&addr).transport(way).stream("T").typed::<Flight>().connect().unwrap();
        let connect = |sql: &str| Subscriber::builder(&addr).transport(way).sql(sql).connect().unwrap();
        let mut whole = connect("SELECT * FROM T");
        let mut few = connect("SELECT \"flight no\", CASE WHEN delay > 1 THEN 7 END AS delay FROM T");
        flights.iter().for_each(|flight| publisher.send(flight).unwrap());
        let refused = publisher.send(&leg(None)).unwrap_err().to_string();
        assert_eq!(refused, "field `to`: the format has no such field");
        assert_eq!(publisher.finish().unwrap().records, 3);
        let found = within(move || whole.typed::<Flight>().collect::<Result<Vec<_>, _>>().unwrap());
        assert_eq!(found, flights, "{way}");
        // A record that does not go with the type is an item of its own.
        let found = within(move || few.typed::<Few>().map(|few| few.map_err(|e| e.to_string())).collect::<Vec<_>>());
        let few = |number, delay| Few { number, delay, gate: String::new() };
        let refused = "field `flight no`: invalid value: integer `300`, expected u8".to_owned();
        assert_eq!(found, [Ok(few(1, None)), Ok(few(2, Some(7))), Err(refused)], "{way}");
    }
    let error = Publisher::builder(&addr).stream("T").typed::<Vec<Leg>>().connect().map(drop).unwrap_err();
    assert!(error.to_string().contains("a struct with named fields"), "{error}");
}

#[test]
fn an_end_that_no_publisher_has_said_is_an_error() {
    let (_context, addr) = start(|_| {});
    for way in TRANSPORTS {
        let (mut lost, mut finished) = (publisher(&addr, way), publisher(&addr, way));
        let mut reader = subscriber(&addr, way);
        publish(&mut lost, 0..3);
        drop(lost);
        publish(&mut finished, 3..4);
        finished.finish().unwrap();
        let found = within(move || {
            let found: Vec<_> = (&mut reader).into_iter().collect();
            // Once: the next loop ends.
            (found, (&mut reader).into_iter().count())
        });
        let (records, last) = (&found.0[..4], &found.0[4..]);
        assert!(records.iter().all(Result::is_ok), "{records:?}");
        assert!(matches!(last, [Err(Error::Unfinished)]), "{last:?}");
        assert_eq!(found.1, 0);
    }
}
