//! Records of other formats than those that a subscriber accepts: chains, waiting, asking, and what is never gone round.

use crossdock_format::registry::Policy;
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_nectarine::{
    Conversion, Converter, Error, Event, FormatRef, Publisher, Subscriber, SubscriberBuilder, Transport, Unreadable,
};
use crossdock_runtime::{ByName, ContextConfig, ContextHandle};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::Shm];
const SOON: Option<Duration> = Some(Duration::from_secs(20));
const ALL: &str = "SELECT * FROM F";

fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

/// A flight with its passengers' names, as the first version has it.
fn v1() -> Format {
    Format::parse_schema("flight u32\npassengers string\ndelay i16").unwrap()
}

/// Without the names.
fn v2() -> Format {
    Format::parse_schema("flight u32\ndelay i16").unwrap()
}

/// In seconds, and wider. It could hold names, and must not get them.
fn v3() -> Format {
    Format::parse_schema("flight u64\ndelay_s i32\npassengers string null").unwrap()
}

fn strip() -> Conversion {
    "".parse().unwrap()
}

fn to_seconds() -> Conversion {
    "SELECT flight, delay * 60 AS delay_s, CAST(NULL AS text) AS passengers FROM x".parse().unwrap()
}

fn publisher(addr: &str, way: Transport, format: &Format) -> Publisher {
    Publisher::builder(addr).transport(way).stream("F").format(format).connect().unwrap()
}

fn publish(publisher: &mut Publisher, flights: std::ops::Range<u64>) {
    let format = publisher.format().clone();
    let mut row = RecordBuilder::new(&format);
    for flight in flights {
        row.clear();
        for (index, field) in format.fields().iter().enumerate() {
            match &*field.name {
                "flight" => row.set(index, Value::Uint(flight)).unwrap(),
                "passengers" => row.set(index, Value::Text(format!("Ada {flight}, Bob").as_bytes())).unwrap(),
                _ => row.set(index, Value::Int((flight % 100) as i64)).unwrap(),
            }
        }
        publisher.publish(row.finish().unwrap()).unwrap();
    }
    publisher.flush().unwrap();
}

fn subscriber(addr: &str, way: Transport) -> SubscriberBuilder {
    Subscriber::builder(addr).transport(way).sql(ALL)
}

fn next(subscriber: &mut Subscriber) -> Event {
    subscriber.next_event(SOON).unwrap().expect("something within 20 s")
}

/// The events up to the stream's end, or up to a number of records: (flight, seconds) in order, the records dropped,
/// other events.
#[derive(Debug, Default)]
struct Came {
    flights: Vec<u64>,
    dropped: u64,
    events: Vec<String>,
}

fn collect(subscriber: &mut Subscriber, until: usize) -> Came {
    let mut came = Came::default();
    while came.flights.len() < until {
        match next(subscriber) {
            Event::Records(records) => {
                for record in records.iter() {
                    let Value::Uint(flight) = record.get(0) else { panic!("{:?}", record.get(0)) };
                    assert_eq!(record.get(1), Value::Int((flight % 100) as i64 * 60), "flight {flight}");
                    assert_eq!(record.get(2), Value::Null, "names must not come this far");
                    came.flights.push(flight);
                }
            }
            Event::StreamEnded { publishers_left: 0, .. } => break,
            Event::Dropped { records, .. } => came.dropped += records,
            Event::Held { .. } => came.events.push("held".to_owned()),
            Event::Readable { chain, .. } => came.events.push(format!("readable by {}", chain.len())),
            other => came.events.push(format!("{other:?}")),
        }
    }
    came
}

fn dropped(context: &ContextHandle, reason: &str) -> u64 {
    let dropped = context.context().unwrap().dropped;
    dropped.iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
}

#[test]
fn records_come_through_the_chain_that_was_registered_and_lose_their_names_in_its_first_step() {
    for way in TRANSPORTS {
        let (context, addr) = start(|_| {});
        let mut publisher = publisher(&addr, way, &v1());
        let mut converter = Converter::builder(&addr).transport(way).stream("F").connect().unwrap();
        converter.register(v1(), v2(), &strip()).unwrap();
        converter.register(v2(), v3(), &to_seconds()).unwrap();
        let mut all = subscriber(&addr, way).accept(v3()).connect().unwrap();
        assert_eq!(all.format(), Some(&v3()));
        // The query is of the accepted format, and one batch is converted for both.
        let sql = "SELECT delay_s FROM F WHERE delay_s > 5900";
        let mut late = Subscriber::builder(&addr).transport(way).sql(sql).accept(v3()).connect().unwrap();
        let mut plain = Subscriber::builder(&addr).transport(way).sql("SELECT passengers FROM F").connect().unwrap();
        publish(&mut publisher, 0..10_000);
        publisher.finish().unwrap();
        let came = collect(&mut all, usize::MAX);
        assert_eq!(came.flights, (0..10_000).collect::<Vec<_>>());
        assert_eq!((came.dropped, came.events.len()), (0, 0), "{:?}", came.events);
        let count = |subscriber: &mut Subscriber| {
            let mut count = 0;
            loop {
                match next(subscriber) {
                    Event::Records(records) => count += records.len(),
                    Event::StreamEnded { .. } => return count,
                    other => panic!("{other:?}"),
                }
            }
        };
        assert_eq!((count(&mut late), count(&mut plain)), (100, 10_000));
        context.stop().unwrap();
    }
}

#[test]
fn a_chain_leads_from_one_foreign_layout_through_lists_to_another() {
    let feed = "layout foreign big packed length n\nn u16\nflight u32\nc u8\nlegs record { km u16 }[] count c";
    let packed =
        "layout foreign little packed length size\nsize u32\nn u8\nflight u64\nlegs record { metres u32 }[] count n";
    let formats = [feed, "flight u64\nlegs record { metres i64; to string null }[]", packed];
    let [feed, natural, packed] = formats.map(|schema| Format::parse_schema(schema).unwrap());
    for way in TRANSPORTS {
        let (context, addr) = start(|_| {});
        let mut publisher = publisher(&addr, way, &feed);
        let rules = "rename legs[].km legs[].metres";
        publisher.register_conversion(&feed, &natural, &rules.parse().unwrap()).unwrap();
        publisher.register_conversion(&natural, &packed, &strip()).unwrap();
        let mut all = subscriber(&addr, way).accept(&packed).connect().unwrap();
        let mut row = RecordBuilder::new(&feed);
        for flight in 0..1000 {
            row.clear();
            row.set(1, Value::Uint(flight)).unwrap();
            row.begin_list(3).unwrap();
            for km in 0..flight % 4 {
                row.begin_element().unwrap();
                row.set(0, Value::Uint(km)).unwrap();
                row.end_element().unwrap();
            }
            row.end_list().unwrap();
            publisher.publish(row.finish().unwrap()).unwrap();
        }
        publisher.finish().unwrap();
        let mut flight = 0;
        loop {
            match next(&mut all) {
                Event::Records(records) => {
                    for record in records.iter() {
                        let count = flight % 4;
                        assert_eq!((record.get(1), record.get(2)), (Value::Uint(count), Value::Uint(flight)));
                        let Value::List(legs) = record.get(3) else { panic!("{:?}", record.get(3)) };
                        let metres = legs.iter().map(|leg| match leg {
                            Value::Record(leg) => leg.get(0),
                            other => other,
                        });
                        assert!(metres.eq((0..count).map(Value::Uint)));
                        flight += 1;
                    }
                }
                Event::StreamEnded { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(flight, 1000);
        context.stop().unwrap();
    }
}

#[test]
fn a_chain_makes_only_what_is_read_and_refuses_what_it_refused_before() {
    let (context, addr) = start(|_| {});
    let middle = Format::parse_schema("flight u32\ndelay i16\nminutes i64\ntext string").unwrap();
    let last = Format::parse_schema("flight u8\ndelay_s i64\nminutes i64\ntext string").unwrap();
    let mut publisher = publisher(&addr, Transport::Udp, &v2());
    let computed = "SELECT flight, delay, delay * 1 AS minutes, 'a' || 'text' AS text FROM x";
    let mut converter = Converter::builder(&addr).stream("F").connect().unwrap();
    converter.register(v2(), &middle, &computed.parse().unwrap()).unwrap();
    let rules = "SELECT flight, delay * 60 AS delay_s, minutes, text FROM x";
    converter.register(&middle, &last, &rules.parse().unwrap()).unwrap();
    let connect = |sql: &str| Subscriber::builder(&addr).sql(sql).accept(&last).connect().unwrap();
    let mut few = connect("SELECT delay_s FROM F WHERE delay_s > 0");
    let made = || context.paths().unwrap().into_iter().map(|path| path.parts).collect::<Vec<_>>();
    // The first part makes neither the text nor the minutes, the last one the flight only for what it refuses.
    let narrow = made();
    assert!(narrow.iter().flatten().all(|part| !part.contains("text") && !part.contains("minutes")), "{narrow:?}");
    publish(&mut publisher, 0..100);
    let mut all = connect("SELECT * FROM F");
    let wide = made();
    assert!(wide.iter().flatten().any(|part| part.contains("text")), "{wide:?}");
    publish(&mut publisher, 100..300);
    publisher.finish().unwrap();
    let came = |subscriber: &mut Subscriber| {
        let (mut records, mut dropped) = (0, 0);
        loop {
            match next(subscriber) {
                Event::Records(batch) => records += batch.len(),
                Event::Dropped { records, .. } => dropped += records,
                Event::StreamEnded { .. } => return (records, dropped),
                other => panic!("{other:?}"),
            }
        }
    };
    // Of every hundred flights one is on time; flights from 256 on have no number in a byte.
    assert_eq!(came(&mut few), (256 - 3, 44));
    assert_eq!(came(&mut all), (156, 44));
    // Subscriptions at different contexts have chains of their own.
    let paths = context.paths().unwrap();
    assert!(paths.iter().any(|path| (path.records_in, path.refused) == (300, 44)), "{paths:?}");
    context.stop().unwrap();
}

#[test]
fn only_read_fields_are_produced_before_a_part_that_cannot_produce_fewer() {
    let (context, addr) = start(|_| {});
    let middle = Format::parse_schema("flight u32\ndelay i16\ntext string").unwrap();
    let feed = Format::parse_schema("layout foreign big packed\nflight u32\ndelay i16").unwrap();
    let mut publisher = publisher(&addr, Transport::Udp, &v2());
    let computed = "SELECT flight, delay, 'a' || 'text' AS text FROM x";
    publisher.register_conversion(v2(), &middle, &computed.parse().unwrap()).unwrap();
    publisher.register_conversion(&middle, &feed, &"".parse().unwrap()).unwrap();
    let sql = "SELECT 1 AS one FROM F";
    let mut subscriber = Subscriber::builder(&addr).sql(sql).accept(&feed).connect().unwrap();
    let parts: Vec<String> = context.paths().unwrap().into_iter().flat_map(|path| path.parts).collect();
    assert!(parts.len() > 1 && parts.iter().all(|part| !part.contains("text")), "{parts:?}");
    publish(&mut publisher, 0..10);
    publisher.finish().unwrap();
    let mut records = 0;
    while let Event::Records(batch) = next(&mut subscriber) {
        records += batch.len();
    }
    assert_eq!(records, 10);
    context.stop().unwrap();
}

#[test]
fn records_that_no_packet_holds_take_no_memory() {
    let (context, addr) = start(|_| {});
    let few = Format::parse_schema("n record { a u8 }[]").unwrap();
    let many = Format::parse_schema("n record { a u8; pad u64[100000] null }[]").unwrap();
    let mut publisher = publisher(&addr, Transport::Udp, &few);
    let mut converter = Converter::builder(&addr).stream("F").connect().unwrap();
    converter.register(&few, &many, &strip()).unwrap();
    let mut subscriber = subscriber(&addr, Transport::Udp).accept(&many).connect().unwrap();
    let mut row = RecordBuilder::new(&few);
    for _ in 0..64 {
        row.clear();
        row.begin_list(0).unwrap();
        for _ in 0..80 {
            row.begin_element().unwrap();
            row.set(0, Value::Uint(1)).unwrap();
            row.end_element().unwrap();
        }
        row.end_list().unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
    publisher.finish().unwrap();
    let mut lost = 0;
    loop {
        match next(&mut subscriber) {
            Event::Dropped { records, .. } => lost += records,
            Event::StreamEnded { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((lost, dropped(&context, "record_too_long")), (64, 64));
    let path = context.paths().unwrap().remove(0);
    assert!(path.refusal.is_some_and(|refusal| refusal.contains("longer")));
    context.stop().unwrap();
}

#[test]
fn messages_are_decoded_and_encoded_on_the_way() {
    let (context, addr) = start(|_| {});
    let messages = Format::parse_schema("topic string\nbody bytes").unwrap();
    let text = Format::parse_schema("line string").unwrap();
    let mut publisher = publisher(&addr, Transport::Udp, &messages);
    let wrong = |conversion: &str, to: &Format| {
        let mut converter = Converter::builder(&addr).stream("F").connect().unwrap();
        let refused = converter.register(&messages, to, &conversion.parse().unwrap());
        assert!(refused.is_err(), "{conversion}");
    };
    wrong("decode json nothing", &v2());
    wrong("decode parquet body", &v2());
    wrong("encode json nothing", &text);
    publisher.register_conversion(&messages, v2(), &"decode json body\nignore-unknown".parse().unwrap()).unwrap();
    publisher.register_conversion(v2(), &text, &"encode csv line".parse().unwrap()).unwrap();
    let connect = |format: &Format| Subscriber::builder(&addr).sql(ALL).accept(format).connect().unwrap();
    let (mut records, mut lines) = (connect(&v2()), connect(&text));
    let mut row = RecordBuilder::new(&messages);
    for body in ["{\"flight\":7,\"delay\":-1,\"gate\":3}", "{\"flight\":", "{\"flight\":8,\"delay\":2}"] {
        row.clear();
        row.set(0, Value::Text(b"gates")).unwrap();
        row.set(1, Value::Bytes(body.as_bytes())).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
    publisher.finish().unwrap();
    let came = |subscriber: &mut Subscriber| {
        let (mut came, mut dropped) = (Vec::new(), 0);
        loop {
            match next(subscriber) {
                Event::Records(batch) => came.extend(batch.iter().map(|record| format!("{record:?}"))),
                Event::Dropped { records, .. } => dropped += records,
                Event::StreamEnded { .. } => return (came, dropped),
                other => panic!("{other:?}"),
            }
        }
    };
    let (rows, dropped_rows) = came(&mut records);
    assert_eq!((rows.len(), dropped_rows), (2, 1), "{rows:?}");
    assert!(rows[0].contains("Uint(7)") && rows[1].contains("Int(2)"), "{rows:?}");
    let (rows, dropped_rows) = came(&mut lines);
    assert_eq!((rows.len(), dropped_rows), (2, 1), "{rows:?}");
    context.stop().unwrap();
}

#[test]
fn accepted_and_converted_records_arrive_in_order() {
    let (context, addr) = start(|_| {});
    let (mut old, mut new) = (publisher(&addr, Transport::Udp, &v2()), publisher(&addr, Transport::Udp, &v3()));
    let mut subscriber = subscriber(&addr, Transport::Udp).accept(FormatRef::Version(2)).connect().unwrap();
    old.register_conversion(FormatRef::Version(1), v3().id(), &to_seconds()).unwrap();
    let mut row = RecordBuilder::new(new.format());
    row.set(0, Value::Uint(7)).unwrap();
    row.set(1, Value::Int(420)).unwrap();
    new.publish(row.finish().unwrap()).unwrap();
    new.finish().unwrap();
    publish(&mut old, 0..100);
    old.finish().unwrap();
    let mut flights = collect(&mut subscriber, 101).flights;
    flights.sort_unstable();
    assert_eq!((flights.len(), flights[7], flights[8]), (101, 7, 7));
    context.stop().unwrap();
}

#[test]
fn a_converter_that_comes_while_traffic_flows_loses_nothing() {
    for way in TRANSPORTS {
        let (context, addr) = start(|_| {});
        let mut publisher = publisher(&addr, way, &v1());
        let mut subscriber = subscriber(&addr, way).accept(v3()).connect().unwrap();
        let mut converter = Converter::builder(&addr).transport(way).stream("F").connect().unwrap();
        publish(&mut publisher, 0..50_000);
        // The subscriber gets a notice, and the converter a request.
        let Event::Held { format, message } = next(&mut subscriber) else { panic!("not held") };
        assert_eq!(format, v1().id());
        assert!(message.contains("stream `F`") && message.contains(&v3().id().to_string()), "{message}");
        let wanted = converter.next_wanted(SOON).unwrap().unwrap();
        assert_eq!((&*wanted.stream, &wanted.from, &wanted.to), ("F", &v1(), &v3()));
        let publishing = std::thread::spawn(move || {
            publish(&mut publisher, 50_000..200_000);
            publisher.finish().unwrap()
        });
        converter.register(v1(), v2(), &strip()).unwrap();
        converter.register(v2(), &wanted.to, &to_seconds()).unwrap();
        let came = collect(&mut subscriber, usize::MAX);
        publishing.join().unwrap();
        assert_eq!((came.flights.len(), came.dropped), (200_000, 0), "{:?}", came.events);
        assert!(came.flights.is_sorted(), "what waited comes first, and in order");
        assert_eq!(came.events, ["readable by 2"]);
        assert_eq!(dropped(&context, "record_hold_full") + dropped(&context, "record_hold_expired"), 0);
        context.stop().unwrap();
    }
}

#[test]
fn waiting_records_arrive_before_their_streams_end() {
    let (context, addr) = start(|_| {});
    let mut publisher = publisher(&addr, Transport::Udp, &v1());
    let mut subscriber = subscriber(&addr, Transport::Udp).accept(v3()).connect().unwrap();
    publish(&mut publisher, 0..1000);
    publisher.finish().unwrap();
    assert!(matches!(next(&mut subscriber), Event::Held { .. }));
    assert!(subscriber.next_event(Some(Duration::ZERO)).unwrap().is_none());
    // A converter that begins to listen later gets the same request.
    let mut converter = Converter::builder(&addr).stream("F").connect().unwrap();
    let wanted = converter.next_wanted(SOON).unwrap().unwrap();
    converter.keep(&wanted.from, &wanted.to, &direct()).unwrap();
    let came = collect(&mut subscriber, usize::MAX);
    assert_eq!((came.flights.len(), came.dropped), (1000, 0));
    context.stop().unwrap();
}

/// From the first version to the third in one step.
fn direct() -> Conversion {
    "SELECT flight, delay * 60 AS delay_s, CAST(NULL AS text) AS passengers FROM v1".parse().unwrap()
}

#[test]
fn records_without_a_conversion_are_dropped_and_counted_where_that_is_the_policy() {
    let (context, addr) = start(|_| {});
    let mut publisher = publisher(&addr, Transport::Udp, &v1());
    let builder = subscriber(&addr, Transport::Udp).accept(v3()).unreadable(Unreadable::Drop);
    let mut subscriber = builder.connect().unwrap();
    publish(&mut publisher, 0..500);
    publisher.finish().unwrap();
    let Event::Unreadable { message } = next(&mut subscriber) else { panic!("no notice") };
    assert!(message.contains("no conversion"), "{message}");
    let came = collect(&mut subscriber, usize::MAX);
    assert_eq!((came.flights.len(), came.dropped), (0, 500));
    assert_eq!(dropped(&context, "record_unreadable"), 500);
    context.stop().unwrap();
}

#[test]
fn no_more_waits_than_the_bound_and_the_oldest_goes_first() {
    let (context, addr) = start(|config| config.morph.hold_bytes = 256 << 10);
    let mut publisher = publisher(&addr, Transport::Udp, &v1());
    let mut subscriber = subscriber(&addr, Transport::Udp).accept(v3()).connect().unwrap();
    publish(&mut publisher, 0..20_000);
    publisher.finish().unwrap();
    assert!(matches!(next(&mut subscriber), Event::Held { .. }));
    let mut converter = Converter::builder(&addr).stream("F").connect().unwrap();
    converter.register(v1(), v3(), &direct()).unwrap();
    let came = collect(&mut subscriber, usize::MAX);
    assert!(came.dropped > 0 && !came.flights.is_empty());
    let kept = (20_000 - came.flights.len() as u64)..20_000;
    assert_eq!(came.flights, kept.collect::<Vec<_>>(), "the newest are there, without a hole");
    assert_eq!(came.dropped + came.flights.len() as u64, 20_000);
    assert_eq!(dropped(&context, "record_hold_full"), came.dropped);
    context.stop().unwrap();
}

#[test]
fn expired_records_are_dropped_and_reported_before_the_streams_end() {
    let (context, addr) = start(|config| config.morph.hold_ms = 0);
    let mut publisher = publisher(&addr, Transport::Udp, &v1());
    let mut subscriber = subscriber(&addr, Transport::Udp).accept(v3()).connect().unwrap();
    publish(&mut publisher, 0..100);
    publisher.finish().unwrap();
    let came = collect(&mut subscriber, usize::MAX);
    assert_eq!((came.flights.len(), came.dropped, &came.events[..]), (0, 100, &["held".to_owned()][..]));
    assert_eq!(dropped(&context, "record_hold_expired"), 100);
    context.stop().unwrap();
}

#[test]
fn a_conversion_that_is_refused_changes_nothing() {
    let (context, addr) = start(|_| {});
    let mut publisher = publisher(&addr, Transport::Udp, &v1());
    let mut converter = Converter::builder(&addr).stream("F").connect().unwrap();
    converter.register(v1(), v3(), &direct()).unwrap();
    for (from, to, text, words) in [
        (v1(), v3(), "SELECT flight FROM x", "delay_s"),
        (v1(), v3(), "SELECT nonsense FROM x", "nonsense"),
        (v1(), v3(), "SELECT flight, 1 AS delay_s, '' AS passengers FROM x WHERE delay > 0", "WHERE"),
        (v1(), v3(), "rename delay", "`rename OLD NEW`"),
        (v1(), v3(), "", "delay_s"),
        (v1(), v1(), "", "changes nothing"),
    ] {
        let error = converter.register(from, to, &conversion(text)).unwrap_err();
        assert!(matches!(error, Error::Conversion(_)) && error.is_usage(), "{error:?}");
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
    let unknown = converter.register(FormatRef::Version(9), v3(), &strip()).unwrap_err();
    assert!(matches!(&unknown, Error::UnknownFormat(words) if words.contains("it has v1 only")), "{unknown}");
    let none = converter.unregister(v1(), v2()).unwrap_err();
    assert!(matches!(&none, Error::Conversion(words) if words.contains("of this session")), "{none}");
    // The one that was right is there still.
    let mut subscriber = subscriber(&addr, Transport::Udp).accept(v3()).connect().unwrap();
    publish(&mut publisher, 0..100);
    publisher.finish().unwrap();
    assert_eq!(collect(&mut subscriber, usize::MAX).flights.len(), 100);
    context.stop().unwrap();
}

/// The planner compiles them: an I/O context that did would end with an assertion.
#[test]
fn conversions_of_a_session_are_compiled_by_the_planner() {
    let (context, addr) = start(|_| {});
    let messages = Format::parse_schema("body bytes").unwrap();
    let mut converter = Converter::builder(&addr).stream("F").connect().unwrap();
    converter.register(&messages, v2(), &conversion("decode json body")).unwrap();
    let deep = format!("SELECT {}1{} AS flight FROM x", "(".repeat(2000), ")".repeat(2000));
    let error = converter.register(v1(), v2(), &conversion(&deep)).unwrap_err();
    assert!(error.to_string().contains("48 levels"), "{error}");
    converter.unregister(&messages, v2()).unwrap();
    context.stop().unwrap();
}

/// A conversion that the library would not read, so that the daemon has to refuse it, as it is.
fn conversion(text: &str) -> Conversion {
    text.parse().unwrap_or_else(|_| Conversion::Sql(text.to_owned()))
}

#[test]
fn a_conversion_goes_with_its_session_and_uncovers_the_kept_one() {
    let (context, addr) = start(|_| {});
    let mut publisher = publisher(&addr, Transport::Udp, &v2());
    let mut keeper = Converter::builder(&addr).stream("F").connect().unwrap();
    keeper.keep(v2(), v3(), &to_seconds()).unwrap();
    let other = "SELECT flight, -1 AS delay_s, CAST(NULL AS text) AS passengers FROM x".parse().unwrap();
    let mut passing = Converter::builder(&addr).stream("F").connect().unwrap();
    passing.register(v2(), v3(), &other).unwrap();
    drop(keeper);
    let mut subscriber = Subscriber::builder(&addr)
        .transport(Transport::Udp)
        .sql("SELECT delay_s FROM F")
        .accept(v3())
        .connect()
        .unwrap();
    let mut one = |publisher: &mut Publisher| {
        publish(publisher, 7..8);
        match next(&mut subscriber) {
            Event::Records(records) => match records.iter().next().unwrap().get(0) {
                Value::Int(seconds) => seconds,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(one(&mut publisher), -1);
    passing.unregister(v2(), v3()).unwrap();
    assert_eq!(one(&mut publisher), 420);
    passing.register(v2(), v3(), &other).unwrap();
    assert_eq!(one(&mut publisher), -1);
    drop(passing);
    while context.conversions().unwrap().len() > 1 {
        std::thread::yield_now();
    }
    // Nobody waits for it that it could be confirmed to: the contexts hear of it one after the other.
    let seconds = std::iter::repeat_with(|| one(&mut publisher)).find(|seconds| *seconds != -1);
    assert_eq!(seconds, Some(420));
    Converter::builder(&addr).stream("F").connect().unwrap().discard(v2(), v3()).unwrap();
    publish(&mut publisher, 7..8);
    assert!(matches!(next(&mut subscriber), Event::Held { .. }));
    context.stop().unwrap();
}

#[test]
fn an_accepted_version_may_come_later() {
    let (context, addr) = start(|_| {});
    let mut old = publisher(&addr, Transport::Udp, &v1());
    let refused = subscriber(&addr, Transport::Udp).accept(FormatRef::Version(2)).connect().unwrap_err();
    assert!(matches!(&refused, Error::UnknownFormat(words) if words.contains("has v1 only")), "{refused}");
    // Accepting the first version too, it stands at once; records of the second come unchanged from its announcement on.
    let both = subscriber(&addr, Transport::Udp).accept(FormatRef::Version(1)).accept(FormatRef::Version(2));
    let mut both = both.connect().unwrap();
    let waits = std::thread::spawn({
        let addr = addr.clone();
        move || {
            let builder = subscriber(&addr, Transport::Udp).accept(FormatRef::Version(2));
            builder.wait_for_stream(Duration::from_secs(20)).connect().unwrap()
        }
    });
    while context.subscriptions().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    old.register_conversion(v1(), v3(), &direct()).unwrap();
    publish(&mut old, 0..10);
    let mut new = publisher(&addr, Transport::Udp, &v3());
    let mut waited = waits.join().unwrap();
    assert_eq!(waited.format(), Some(&v3()));
    old.finish().unwrap();
    publish_v3(&mut new, 10..20);
    new.finish().unwrap();
    let came = collect(&mut waited, usize::MAX);
    assert_eq!(came.flights, (0..20).collect::<Vec<_>>(), "also what came before the version did: {:?}", came.events);
    let mut formats = Vec::new();
    let mut count = 0;
    loop {
        match next(&mut both) {
            Event::Records(records) => {
                formats.push(records.format().clone());
                count += records.len();
            }
            Event::StreamEnded { publishers_left: 0, .. } => break,
            Event::Format(format) => assert_eq!(format, v3()),
            Event::StreamEnded { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((count, formats.first(), formats.last()), (20, Some(&v1()), Some(&v3())));
    context.stop().unwrap();
}

fn publish_v3(publisher: &mut Publisher, flights: std::ops::Range<u64>) {
    let mut row = RecordBuilder::new(publisher.format());
    for flight in flights {
        row.clear();
        row.set(0, Value::Uint(flight)).unwrap();
        row.set(1, Value::Int((flight % 100) as i64 * 60)).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
}

#[test]
fn by_name_alone_converts_only_where_allowed_and_never_round_what_was_registered() {
    let wider = Format::parse_schema("flight u64\npassengers string null\ndelay i32").unwrap();
    let run = |by_name: ByName, guard: bool| {
        let (context, addr) = start(|config| config.morph.by_name = by_name);
        let mut old = publisher(&addr, Transport::Udp, &v1());
        let new = publisher(&addr, Transport::Udp, &wider);
        if guard {
            // The session that knew the names to be private has ended; that they are has not.
            let mut converter = Converter::builder(&addr).stream("F").connect().unwrap();
            converter.register(v1(), v2(), &strip()).unwrap();
            converter.unregister(v1(), v2()).unwrap();
        }
        let mut subscriber = subscriber(&addr, Transport::Udp).accept(FormatRef::Version(2)).connect().unwrap();
        publish(&mut old, 5..6);
        let event = next(&mut subscriber);
        let name = match &event {
            Event::Records(records) => format!("{:?}", records.iter().next().unwrap().get(1)),
            Event::Held { .. } => "held".to_owned(),
            other => panic!("{other:?}"),
        };
        drop((old, new));
        context.stop().unwrap();
        name
    };
    assert_eq!(run(ByName::Off, false), "held");
    assert!(run(ByName::VersionsOfStream, false).starts_with("Text("));
    assert_eq!(run(ByName::VersionsOfStream, true), "held");
}

#[test]
fn versions_that_a_policy_says_are_readable_are_converted_by_name() {
    let wider = Format::parse_schema("flight u64\npassengers string null\ndelay i32").unwrap();
    let (context, addr) = start(|_| {});
    let mut old = publisher(&addr, Transport::Udp, &v1());
    let mut new = publisher(&addr, Transport::Udp, &wider);
    let accept = |version| subscriber(&addr, Transport::Udp).accept(FormatRef::Version(version)).connect().unwrap();
    let [mut of_new, mut of_old] = [2, 1].map(accept);
    publish(&mut old, 0..10);
    assert!(matches!(next(&mut of_new), Event::Held { .. }));
    // It holds for what waits, and for who subscribes later.
    context.set_policy("F", Policy::BackwardTransitive).unwrap().unwrap();
    let mut later = accept(2);
    publish(&mut old, 10..20);
    for (subscriber, wanted) in [(&mut of_new, 0..20), (&mut later, 10..20)] {
        let mut flights = Vec::new();
        while flights.len() < wanted.clone().count() {
            if let Event::Records(records) = next(subscriber) {
                flights.extend(records.iter().map(|record| format!("{:?}", record.get(0))));
            }
        }
        assert_eq!(flights, wanted.map(|flight| format!("Uint({flight})")).collect::<Vec<_>>());
    }
    // The other way round is not what it says: a record that the old version has room for waits too.
    let mut row = RecordBuilder::new(&wider);
    row.set(0, Value::Uint(7)).unwrap();
    row.set(2, Value::Int(1)).unwrap();
    new.publish(row.finish().unwrap()).unwrap();
    while !matches!(next(&mut of_old), Event::Held { .. }) {}
    context.stop().unwrap();
}

#[test]
fn records_that_a_conversion_cannot_make_are_dropped_and_counted() {
    let narrow = Format::parse_schema("flight u8\ndelay i16").unwrap();
    let (context, addr) = start(|_| {});
    let mut publisher = publisher(&addr, Transport::Udp, &v2());
    publisher.register_conversion(v2(), &narrow, &strip()).unwrap();
    let mut subscriber = subscriber(&addr, Transport::Udp).accept(&narrow).connect().unwrap();
    publish(&mut publisher, 250..262);
    publisher.finish().unwrap();
    let (mut flights, mut dropped_records) = (Vec::new(), 0);
    loop {
        match next(&mut subscriber) {
            Event::Records(records) => flights.extend(records.iter().map(|record| format!("{:?}", record.get(0)))),
            Event::Dropped { records, .. } => dropped_records += records,
            Event::StreamEnded { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((flights.len(), dropped_records, flights.last().map(String::as_str)), (6, 6, Some("Uint(255)")));
    assert_eq!(dropped(&context, "record_not_convertible"), 6);
    context.stop().unwrap();
}

#[test]
fn a_publisher_that_listens_answers_for_its_own_records() {
    let (context, addr) = start(|_| {});
    let mut publisher = publisher(&addr, Transport::Udp, &v1());
    publisher.listen_for_converters().unwrap();
    assert!(publisher.converter_wanted(Some(Duration::ZERO)).unwrap().is_none());
    let mut subscriber = subscriber(&addr, Transport::Udp).accept(v3()).connect().unwrap();
    publish(&mut publisher, 0..100);
    let wanted = publisher.converter_wanted(SOON).unwrap().unwrap();
    publisher.register_conversion(&wanted.from, &wanted.to, &direct()).unwrap();
    publish(&mut publisher, 100..200);
    publisher.finish().unwrap();
    assert_eq!(collect(&mut subscriber, usize::MAX).flights, (0..200).collect::<Vec<_>>());
    context.stop().unwrap();
}
