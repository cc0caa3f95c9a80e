//! Control messages, records and mailbox messages that are longer than a packet, over both carriers and between them.

use crossdock_format::{FieldSpec, FieldType, Format, MAX_FIELDS, Record, RecordBuilder, Value};
use crossdock_nectarine::{
    Error, Event, MailboxOptions, Node, Overflow, Publisher, Subscriber, SubscriberBuilder, Transport,
};
use crossdock_runtime::{ChangeRequest, ContextConfig, ContextHandle, HandlerSpec};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The longest payload of a packet, in bytes.
const PACKET: usize = 65_440;

fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

fn subscriber(addr: &str, way: Transport, sql: &str) -> SubscriberBuilder {
    Subscriber::builder(addr).transport(way).sql(sql)
}

/// As many columns as a format can have, with long names: about 900 KB of description.
fn wide() -> Format {
    let fields = (0..MAX_FIELDS).map(|at| FieldSpec::new(format!("{}_{at}", "c".repeat(200)), FieldType::U8));
    Format::natural(fields).unwrap()
}

fn numbers() -> Format {
    Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new("name", FieldType::String)]).unwrap()
}

/// A record of exactly `bytes` bytes, a multiple of 8.
fn record(format: &Format, number: u64, bytes: usize) -> Vec<u8> {
    let mut row = RecordBuilder::new(format);
    let mut build = |text: &str| {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Text(text.as_bytes())).unwrap();
        row.finish().unwrap().to_vec()
    };
    let least = build("").len();
    let text: String = (0..bytes - least).map(|at| char::from(b'a' + ((at as u64 + number) % 26) as u8)).collect();
    let record = build(&text);
    assert_eq!(record.len(), bytes);
    record
}

/// The records up to the stream's end, and how many were said to be dropped.
fn collect(mut subscriber: Subscriber) -> (Vec<Vec<u8>>, u64) {
    let (mut found, mut dropped) = (Vec::new(), 0);
    loop {
        match subscriber.next_event(Some(Duration::from_secs(60))).unwrap().expect("something within 60 s") {
            Event::Records(records) => found.extend(records.bytes().map(<[u8]>::to_vec)),
            Event::StreamEnded { publishers_left: 0, .. } => return (found, dropped),
            Event::Dropped { records, .. } => dropped += records,
            Event::StreamEnded { .. } | Event::Format(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn a_format_of_as_many_columns_as_there_may_be_passes(from: Transport, to: Transport) {
    let (context, addr) = start(|_| {});
    let wide = wide();
    assert!(wide.describe().len() > 10 * PACKET);
    let mut publisher = Publisher::builder(&addr).transport(from).stream("W").format(&wide).connect().unwrap();
    let all = subscriber(&addr, to, "SELECT * FROM W").connect().unwrap();
    assert_eq!(all.format(), Some(&wide));
    let last = &wide.fields()[MAX_FIELDS - 1].name;
    let one = subscriber(&addr, to, &format!("SELECT {last} FROM W")).connect().unwrap();
    let readers = [all, one].map(|reader| std::thread::spawn(move || collect(reader)));
    let mut row = RecordBuilder::new(&wide);
    for at in 0..MAX_FIELDS {
        row.set(at, Value::Uint(at as u64 % 256)).unwrap();
    }
    let record = row.finish().unwrap().to_vec();
    publisher.publish(&record).unwrap();
    publisher.finish().unwrap();
    let [all, one] = readers.map(|reader| reader.join().unwrap());
    assert_eq!(all, (vec![record], 0));
    assert_eq!(one.0.len(), 1);
    context.stop().unwrap();
}

fn a_query_as_long_as_it_may_be_passes_and_what_is_longer_is_refused(way: Transport) {
    let (context, addr) = start(|_| {});
    let publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let query = |bytes: usize| {
        let start = "SELECT number FROM N WHERE name = '";
        format!("{start}{}'", "x".repeat(bytes - start.len() - 1))
    };
    let _longest = subscriber(&addr, way, &query(64 << 10)).connect().unwrap();
    let refused = subscriber(&addr, way, &query((64 << 10) + 1)).connect().unwrap_err().to_string();
    assert!(refused.contains("65537") && refused.contains("65536"), "{refused}");
    let refused = subscriber(&addr, way, &query(9 << 20)).connect().unwrap_err().to_string();
    assert!(refused.contains("the daemon takes at most 8388608"), "{refused}");
    drop(publisher);
    context.stop().unwrap();
}

/// Lengths around those at which something changes, up to the longest.
fn lengths() -> Vec<usize> {
    let around = [8192, PACKET, 2 * PACKET, 256 << 10, 1 << 20].into_iter().flat_map(|at| [at - 8, at, at + 8]);
    around.flat_map(|bytes| [40, bytes, 48]).chain([16 << 20, 64, 5 << 20, 80]).collect()
}

fn records_of_all_lengths_pass_in_order(from: Transport, to: Transport) {
    let (context, addr) = start(|_| {});
    let format = numbers();
    let mut publisher = Publisher::builder(&addr).transport(from).stream("N").format(&format).connect().unwrap();
    let sql = Some("SELECT number + 1 AS next, name FROM N".to_owned());
    let spec = HandlerSpec { name: "made".to_owned(), sql, peak_msgs_per_s: Some(100), ..HandlerSpec::default() };
    context.manager().change(ChangeRequest::Deploy(spec), false).unwrap().unwrap();
    let queries = [
        "SELECT * FROM N",
        "SELECT number, name FROM N WHERE number % 2 = 1",
        "SELECT name || '12345678' AS name, number FROM N",
        "SELECT number FROM N",
        "SELECT * FROM made",
    ];
    let connect = |sql: &&str| subscriber(&addr, to, sql).overflow(Overflow::Block).connect().unwrap();
    let turned = Format::parse_schema("name string\nnumber u64").unwrap();
    publisher.register_conversion(&format, &turned, &"".parse().unwrap()).unwrap();
    let converted =
        subscriber(&addr, to, "SELECT * FROM N").overflow(Overflow::Block).accept(&turned).connect().unwrap();
    let readers: Vec<_> = queries.iter().map(connect).chain([converted]).collect();
    let formats: Vec<Format> = readers.iter().map(|reader| reader.format().unwrap().clone()).collect();
    let readers: Vec<_> = readers.into_iter().map(|reader| std::thread::spawn(move || collect(reader))).collect();
    let sent: Vec<Vec<u8>> = (0..).zip(lengths()).map(|(number, bytes)| record(&format, number, bytes)).collect();
    sent.iter().for_each(|record| publisher.publish(record).unwrap());
    publisher.finish().unwrap();
    let found: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    let lost: Vec<u64> = found.iter().map(|(_, dropped)| *dropped).collect();
    // A text that a query makes may have 1 MiB.
    let lasting: Vec<_> = sent.iter().filter(|record| record.len() < 2 << 20).collect();
    let too_long = (sent.len() - lasting.len()) as u64;
    assert_eq!(
        lost,
        [0, 0, too_long, 0, 0, 0],
        "{:?} {:?}",
        context.context().unwrap().dropped,
        context.paths().unwrap()
    );
    assert!(found[0].0 == sent, "{} of {}", found[0].0.len(), sent.len());
    let odd: Vec<&Vec<u8>> = sent.iter().skip(1).step_by(2).collect();
    assert!(found[1].0.iter().eq(odd));
    let text = |record: &[u8], format: &Format, field: usize| match Record::assume_checked(format, record).get(field) {
        Value::Text(text) => text.to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(found[2].0.len(), lasting.len());
    for (record, found) in lasting.iter().zip(&found[2].0) {
        assert!([text(record, &format, 1), b"12345678".to_vec()].concat() == text(found, &formats[2], 0));
    }
    assert_eq!(found[3].0.len(), sent.len());
    assert_eq!(found[4].0.len(), sent.len());
    for (record, found) in sent.iter().zip(&found[4].0) {
        assert!(text(record, &format, 1) == text(found, &formats[4], 1));
    }
    let sizes = |records: &[Vec<u8>]| records.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(found[5].0.len(), sent.len(), "{:?} of {:?}", sizes(&found[5].0), sizes(&sent));
    for (record, found) in sent.iter().zip(&found[5].0) {
        assert!(text(record, &format, 1) == text(found, &turned, 0));
    }
    context.stop().unwrap();
}

fn a_record_that_is_too_long_is_refused_with_the_bound_and_others_pass(way: Transport) {
    let (context, addr) = start(|config| config.buffer_bytes = 8 << 20);
    let format = numbers();
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&format).connect().unwrap();
    let reader = subscriber(&addr, way, "SELECT * FROM N").connect().unwrap();
    let reader = std::thread::spawn(move || collect(reader));
    let sent = [record(&format, 1, 2 << 20), record(&format, 2, 40)];
    publisher.publish(&sent[0]).unwrap();
    let refused = publisher.publish(&record(&format, 3, (2 << 20) + 8)).unwrap_err();
    assert!(matches!(refused, Error::TooLong { bytes: 2_097_160, most: 2_097_152 }), "{refused}");
    publisher.publish(&sent[1]).unwrap();
    publisher.finish().unwrap();
    assert!(reader.join().unwrap().0 == sent);
    context.stop().unwrap();
}

fn a_reader_that_drops_the_oldest_gets_long_records_whole(way: Transport) {
    let (context, addr) = start(|config| config.queue_bytes = 1 << 20);
    let format = numbers();
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&format).connect().unwrap();
    let reader = subscriber(&addr, way, "SELECT * FROM N").overflow(Overflow::DropOldest).connect().unwrap();
    const COUNT: u64 = 600;
    let length = |number: u64| if number.is_multiple_of(3) { 300_000 } else { 400 };
    (0..COUNT).for_each(|number| publisher.publish(&record(&format, number, length(number))).unwrap());
    publisher.finish().unwrap();
    let (found, dropped) = collect(reader);
    assert_eq!(found.len() as u64 + dropped, COUNT);
    let numbers = found.iter().map(|record| u64::from_le_bytes(record[8..16].try_into().unwrap()));
    let mut last = None;
    for (number, found) in numbers.zip(&found) {
        assert!(last < Some(number));
        assert!(*found == record(&format, number, length(number)), "{number}");
        last = Some(number);
    }
    assert_eq!(last, Some(COUNT - 1), "the newest is the last to be dropped");
    context.stop().unwrap();
}

macro_rules! ways {
    ($($check:ident($($way:ident),+)),* $(,)?) => {
        mod udp { use super::Transport::Udp; $(#[test] fn $check() { super::$check($(ways!(@ $way Udp)),+) })* }
        mod shm { use super::Transport::Shm; $(#[test] fn $check() { super::$check($(ways!(@ $way Shm)),+) })* }
    };
    (@ $way:ident $is:ident) => { $is };
}

ways!(
    a_format_of_as_many_columns_as_there_may_be_passes(from, to),
    a_query_as_long_as_it_may_be_passes_and_what_is_longer_is_refused(way),
    records_of_all_lengths_pass_in_order(from, to),
    a_record_that_is_too_long_is_refused_with_the_bound_and_others_pass(way),
    a_reader_that_drops_the_oldest_gets_long_records_whole(way),
);

#[test]
fn records_of_all_lengths_pass_between_the_carriers() {
    records_of_all_lengths_pass_in_order(Transport::Shm, Transport::Udp);
    records_of_all_lengths_pass_in_order(Transport::Udp, Transport::Shm);
}

#[test]
fn a_reader_on_another_machine_gets_messages_of_any_length() {
    let (context, addr) = start(|_| {});
    let node = |way: Transport| Node::builder(&addr).transport(way).connect().unwrap();
    let (here, there) = (node(Transport::Shm), node(Transport::Udp));
    here.create_mailbox("m", MailboxOptions::default()).unwrap();
    let (mut writer, mut reader) = (here.writer("m").unwrap(), there.reader("m").unwrap());
    for bytes in [10, PACKET - 1, PACKET + 1, 300_000, 5 << 20, 0] {
        let message: Vec<u8> = (0..bytes).map(|at| (at >> 4) as u8).collect();
        writer.put(&message).unwrap();
        let got = reader.begin_get_timeout(Duration::from_secs(60)).unwrap().unwrap();
        assert!(*got == message[..], "{bytes}");
        reader.end_get(got);
    }
    context.stop().unwrap();
}
