//! A context and its clients over the real wire, in one process.

use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Error, Event, Overflow, Publisher, Subscriber, Transport};
use crossdock_runtime::{ContextConfig, ContextHandle};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

/// number, group (number % 10), name (of growing length)
fn numbers() -> Format {
    Format::natural([
        FieldSpec::new("number", FieldType::U64),
        FieldSpec::new("grp", FieldType::I32),
        FieldSpec::new("name", FieldType::String),
    ])
    .unwrap()
}

fn publish(publisher: &mut Publisher, from: u64, to: u64) {
    let mut row = RecordBuilder::new(publisher.format());
    for number in from..to {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Int((number % 10) as i64)).unwrap();
        row.set(2, Value::Text("abcdefghij".repeat(1 + (number % 30) as usize).as_bytes())).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
}

/// All numbers up to the stream's end, and how many records were said to be dropped.
fn collect(subscriber: &mut Subscriber) -> (Vec<u64>, u64) {
    let (mut numbers, mut dropped) = (Vec::new(), 0);
    loop {
        match subscriber.next_event(Some(Duration::from_secs(20))).unwrap().expect("something within 20 s") {
            Event::Records(records) => numbers.extend(records.iter().map(|record| match record.get(0) {
                Value::Uint(number) => number,
                other => panic!("{other:?}"),
            })),
            Event::StreamEnded { publishers_left: 0, .. } => return (numbers, dropped),
            Event::Dropped { records, .. } => dropped += records,
            Event::StreamEnded { .. } | Event::Format(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Whether a subscriber that takes all of the stream is at the I/O context of the attached publisher.
fn takes_all_at_the_publishers_context(context: &ContextHandle) -> bool {
    let clients = context.clients().unwrap();
    let publisher = clients.iter().find(|client| client.publishes == ["N"]).unwrap();
    let subscriptions = context.subscriptions().unwrap();
    subscriptions.iter().any(|of| of.sql == "SELECT * FROM N" && of.context == publisher.context)
}

fn everybody_gets_what_they_asked_for_in_order(way: Transport) {
    let (context, addr) = start(|_| {});
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let queries = [
        "SELECT * FROM N",
        "SELECT * FROM N WHERE grp < 5",
        "SELECT number FROM N WHERE grp = 3",
        "SELECT number + 0 AS n, name || '!' FROM N WHERE name LIKE 'abc%' AND number >= 100",
        "SELECT * FROM N",
    ];
    let connect = |sql: &str| Subscriber::builder(&addr).transport(way).sql(sql).connect().unwrap();
    let mut subscribers: Vec<Subscriber> = queries.iter().map(|sql| connect(sql)).collect();
    // An attached client takes by reference what a client of its domain publishes at the same context.
    while way == Transport::Shm && !takes_all_at_the_publishers_context(&context) {
        subscribers.push(connect("SELECT * FROM N"));
        assert!(subscribers.len() < 100, "{:?}", context.subscriptions().unwrap());
    }
    const COUNT: u64 = 200_000;
    let reader = std::thread::spawn(move || {
        let mut readers = Vec::new();
        for mut subscriber in subscribers.drain(..) {
            readers.push(std::thread::spawn(move || collect_any(&mut subscriber)));
        }
        readers.into_iter().map(|r| r.join().unwrap()).collect::<Vec<_>>()
    });
    publish(&mut publisher, 0, COUNT);
    let summary = publisher.finish().unwrap();
    assert_eq!(summary.records, COUNT);
    let found = reader.join().unwrap();
    let all: Vec<u64> = (0..COUNT).collect();
    assert_eq!(found[0], all);
    assert_eq!(found[1], all.iter().copied().filter(|n| n % 10 < 5).collect::<Vec<_>>());
    assert_eq!(found[2], all.iter().copied().filter(|n| n % 10 == 3).collect::<Vec<_>>());
    assert_eq!(found[3], all.iter().copied().filter(|n| *n >= 100).collect::<Vec<_>>());
    assert!(found[4..].iter().all(|numbers| *numbers == all));
    let info = context.context().unwrap();
    assert!(info.batches_whole > 0, "{info:?}");
    assert_eq!(info.records_in, COUNT);
    context.stop().unwrap();
}

/// As [`collect`], the first field being a whole number of any type.
fn collect_any(subscriber: &mut Subscriber) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        match subscriber.next_event(Some(Duration::from_secs(20))).unwrap().expect("something within 20 s") {
            Event::Records(records) => numbers.extend(records.iter().map(|record| match record.get(0) {
                Value::Uint(number) => number,
                Value::Int(number) => number as u64,
                other => panic!("{other:?}"),
            })),
            Event::StreamEnded { publishers_left: 0, .. } => return numbers,
            _ => {}
        }
    }
}

fn a_slow_subscriber_that_blocks_holds_the_publisher_and_loses_nothing(way: Transport) {
    let (context, addr) = start(|c| c.queue_bytes = 1 << 20);
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let mut slow = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N").connect().unwrap();
    const COUNT: u64 = 150_000;
    let publishing = std::thread::spawn(move || {
        publish(&mut publisher, 0, COUNT);
        publisher.finish().unwrap()
    });
    // It does not read until the daemon says that the publisher is held back.
    while context.streams().unwrap()[0].blocked == 0 {
        std::thread::yield_now();
    }
    let (found, dropped) = collect(&mut slow);
    assert_eq!((found.len() as u64, dropped), (COUNT, 0));
    assert!(found.iter().enumerate().all(|(i, n)| i as u64 == *n));
    publishing.join().unwrap();
}

/// Records that a query makes many times as long wait for buffers and room, and there is little.
fn output_much_longer_than_its_input_is_not_lost_where_that_blocks(way: Transport) {
    let (context, addr) = start(|c| (c.buffer_bytes, c.queue_bytes) = (4 << 20, 1 << 20));
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let long = ["name"; 16].join(" || ");
    let sql = format!("SELECT number, {long} AS long FROM N");
    let mut slow = Subscriber::builder(&addr).transport(way).sql(sql).connect().unwrap();
    const COUNT: u64 = 60_000;
    let publishing = std::thread::spawn(move || {
        publish(&mut publisher, 0, COUNT);
        publisher.finish().unwrap()
    });
    while context.streams().unwrap()[0].blocked == 0 {
        std::thread::yield_now();
    }
    let (found, dropped) = collect(&mut slow);
    assert_eq!((found.len() as u64, dropped), (COUNT, 0));
    assert!(found.iter().enumerate().all(|(i, n)| i as u64 == *n));
    publishing.join().unwrap();
    let dropped = context.context().unwrap().dropped;
    assert!(dropped.iter().all(|(why, _)| !why.starts_with("record_")), "{dropped:?}");
}

/// Rows that are suddenly so long that those of one batch do not fit into all memory for output.
fn output_that_grows_without_notice_is_not_lost_where_that_blocks(way: Transport) {
    let (context, addr) = start(|c| (c.buffer_bytes, c.queue_bytes) = (4 << 20, 1 << 20));
    let format = Format::natural([FieldSpec::new("number", FieldType::U64)]).unwrap();
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&format).connect().unwrap();
    const SHORT: u64 = 5000;
    const COUNT: u64 = 6000;
    let long = "x".repeat(60_000);
    let sql = format!("SELECT number, CASE WHEN number < {SHORT} THEN '' ELSE '{long}' END AS long FROM N");
    let mut slow = Subscriber::builder(&addr).transport(way).sql(sql).connect().unwrap();
    let publishing = std::thread::spawn(move || {
        let mut row = RecordBuilder::new(publisher.format());
        for number in 0..COUNT {
            row.clear();
            row.set(0, Value::Uint(number)).unwrap();
            publisher.publish(row.finish().unwrap()).unwrap();
        }
        publisher.finish().unwrap()
    });
    let (found, dropped) = collect(&mut slow);
    assert_eq!((found.len() as u64, dropped), (COUNT, 0));
    assert!(found.iter().enumerate().all(|(i, n)| i as u64 == *n));
    publishing.join().unwrap();
    let dropped = context.context().unwrap().dropped;
    assert!(dropped.iter().all(|(why, _)| !why.starts_with("record_")), "{dropped:?}");
}

/// A reader that takes nothing holds the publisher of its stream, and that of another stream goes on.
fn a_slow_reader_stops_its_own_publishers_only(way: Transport) {
    let (context, addr) = start(|c| (c.buffer_bytes, c.queue_bytes) = (16 << 20, 1 << 20));
    let publisher =
        |stream: &str| Publisher::builder(&addr).transport(way).stream(stream).format(&numbers()).connect().unwrap();
    let (mut held, mut free) = (publisher("N"), publisher("M"));
    let reader = |sql: &str| Subscriber::builder(&addr).transport(way).sql(sql).connect().unwrap();
    let (mut slow, mut other, mut reads) =
        (reader("SELECT * FROM N"), reader("SELECT number FROM N WHERE grp = 3"), reader("SELECT * FROM M"));
    // More than all buffers hold.
    const HELD: u64 = 1_000_000;
    const COUNT: u64 = 150_000;
    let publishing = std::thread::spawn(move || {
        publish(&mut held, 0, HELD);
        held.finish().unwrap()
    });
    let blocked = |context: &ContextHandle| {
        let streams = context.streams().unwrap();
        streams.into_iter().filter(|stream| stream.blocked > 0).map(|stream| stream.name).collect::<Vec<_>>()
    };
    while blocked(&context).is_empty() {
        std::thread::yield_now();
    }
    let reading = std::thread::spawn(move || collect(&mut reads));
    publish(&mut free, 0, COUNT);
    free.finish().unwrap();
    let (found, dropped) = reading.join().unwrap();
    assert_eq!((found.len() as u64, dropped), (COUNT, 0));
    while blocked(&context) != ["N"] {
        std::thread::yield_now();
    }
    assert!(!publishing.is_finished(), "it waits for its reader");
    let reading = std::thread::spawn(move || collect(&mut other));
    let (found, dropped) = collect(&mut slow);
    assert_eq!((found.len() as u64, dropped), (HELD, 0));
    assert_eq!(reading.join().unwrap(), ((0..HELD).filter(|n| n % 10 == 3).collect::<Vec<_>>(), 0));
    publishing.join().unwrap();
}

fn drop_oldest_blocks_no_publisher_and_reports_what_is_lost(way: Transport) {
    let (context, addr) = start(|c| c.queue_bytes = 1 << 20);
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let builder = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N");
    let mut slow = builder.overflow(Overflow::DropOldest).connect().unwrap();
    const COUNT: u64 = 150_000;
    publish(&mut publisher, 0, COUNT);
    publisher.finish().unwrap();
    let (found, dropped) = collect(&mut slow);
    assert!(dropped > 0);
    assert_eq!(found.len() as u64 + dropped, COUNT);
    assert!(found.is_sorted());
    assert_eq!(found.last(), Some(&(COUNT - 1)));
    assert_eq!(context.subscriptions().unwrap()[0].dropped, dropped);
}

fn disconnect_ends_the_slow_one_with_a_reason(way: Transport) {
    let (context, addr) = start(|c| c.queue_bytes = 1 << 20);
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let builder = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N");
    let mut slow = builder.overflow(Overflow::Disconnect).connect().unwrap();
    publish(&mut publisher, 0, 150_000);
    publisher.finish().unwrap();
    let error = loop {
        match slow.next_event(Some(Duration::from_secs(20))) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::Closed(reason) if reason.contains("policy is disconnect")), "{error}");

    // Nothing of it is left: who subscribes next gets every record once.
    assert!(context.subscriptions().unwrap().is_empty());
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let mut next = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N").connect().unwrap();
    assert_eq!(context.subscriptions().unwrap().len(), 1);
    publish(&mut publisher, 0, 100);
    publisher.finish().unwrap();
    assert_eq!(collect(&mut next).0, (0..100).collect::<Vec<_>>());
}

fn notices_take_no_credit_for_good(way: Transport) {
    let (_context, addr) = start(|_| {});
    let connect = || Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let mut first = connect();
    publish(&mut first, 0, 1);
    first.finish().unwrap();
    let mut subscriber =
        Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N WHERE grp = 7").connect().unwrap();
    // More publishers come and go than the subscriber's credit has packets; each end is a notice.
    for _ in 0..600 {
        let mut publisher = connect();
        publish(&mut publisher, 1, 2);
        publisher.finish().unwrap();
    }
    let mut publisher = connect();
    publish(&mut publisher, 7, 8);
    publisher.finish().unwrap();
    let records = subscriber.events().find_map(|event| match event.unwrap() {
        Event::Records(records) => Some(records),
        Event::StreamEnded { .. } => None,
        other => panic!("{other:?}"),
    });
    assert_eq!(records.unwrap().len(), 1);
}

fn requests_that_cannot_be_are_refused_in_words(way: Transport) {
    let (_context, addr) = start(|_| {});
    let ask = |sql: &str| Subscriber::builder(&addr).transport(way).sql(sql).connect().map(drop).unwrap_err();
    let error = ask("SELECT * FROM nowhere");
    assert!(matches!(error, Error::UnknownStream(_)), "{error}");
    let _publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let error = ask("SELECT nmber FROM N");
    assert!(error.is_usage() && error.to_string().contains("did you mean `number`"), "{error}");
    assert!(ask("SELECT * FROM N WHERE number = 'x'").is_usage());
    let error = ask("SELECT * FROM n2");
    assert!(error.to_string().contains('N'), "{error}");
    let error = Subscriber::builder("127.0.0.1:1").sql("SELECT * FROM N").connect().map(drop).unwrap_err();
    assert!(matches!(error, Error::NoDaemon { .. }), "{error}");
    let error = Subscriber::builder("no port").sql("SELECT * FROM N").connect().map(drop).unwrap_err();
    assert!(matches!(error, Error::Address { .. }), "{error}");
}

fn a_restarted_daemon_is_found_again(way: Transport) {
    let (context, addr) = start(|_| {});
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let mut subscriber = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N").connect().unwrap();
    publish(&mut publisher, 0, 10);
    publisher.flush().unwrap();
    let mut found = Vec::new();
    while found.len() < 10 {
        if let Some(Event::Records(records)) = subscriber.next_event(Some(Duration::from_secs(20))).unwrap() {
            found.extend(records.iter().map(|r| r.get(0) == Value::Uint(0)));
        }
    }
    context.stop().unwrap();
    let listen = addr.parse().unwrap();
    let again = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() }).unwrap();
    while !matches!(subscriber.next_event(Some(Duration::from_secs(20))).unwrap(), Some(Event::Reconnected)) {}
    while again.subscriptions().unwrap().is_empty() {
        std::thread::yield_now();
    }
    publish(&mut publisher, 10, 20);
    publisher.finish().unwrap();
    let (numbers, _) = collect(&mut subscriber);
    assert!(numbers.ends_with(&(10..20).collect::<Vec<_>>()), "{numbers:?}");
}

fn a_subscriber_that_waits_for_a_stream_misses_no_record(way: Transport) {
    let (context, addr) = start(|_| {});
    let waiting = std::thread::spawn({
        let addr = addr.clone();
        move || {
            let builder = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N WHERE grp < 5");
            collect(&mut builder.wait_for_stream(Duration::from_secs(20)).connect().unwrap()).0
        }
    });
    let misfit = std::thread::spawn({
        let addr = addr.clone();
        move || {
            let builder = Subscriber::builder(&addr).transport(way).sql("SELECT nothing FROM N");
            builder.wait_for_stream(Duration::from_secs(20)).connect().map(drop).unwrap_err()
        }
    });
    while context.subscriptions().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    // A stream that is only waited for is none yet.
    let error = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N").connect().map(drop).unwrap_err();
    assert!(matches!(error, Error::UnknownStream(_)), "{error}");
    let wait = Duration::from_millis(1);
    let error =
        Subscriber::builder(&addr).transport(way).sql("SELECT * FROM M").wait_for_stream(wait).connect().map(drop);
    assert!(matches!(error, Err(Error::UnknownStream(_))));

    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    publish(&mut publisher, 0, 1000);
    publisher.finish().unwrap();
    assert_eq!(waiting.join().unwrap(), (0..1000).filter(|n| n % 10 < 5).collect::<Vec<_>>());
    assert!(matches!(misfit.join().unwrap(), Error::Query(_)));
}

fn requests_are_answered_while_records_wait(way: Transport) {
    let (context, addr) = start(|c| c.queue_bytes = 1 << 20);
    let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
    let mut slow = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N").connect().unwrap();
    // Until the daemon holds the publisher back, and no credit is left that it gave before: its turns change nothing any more.
    let (mut count, mut refused) = (0, 0);
    let record = |number: u64| {
        let format = numbers();
        let mut row = RecordBuilder::new(&format);
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Int(0)).unwrap();
        row.set(2, Value::Text(&[b'x'; 4000])).unwrap();
        row.finish().unwrap().to_vec()
    };
    while refused < 200 {
        if publisher.try_publish(&record(count)).unwrap() {
            (count, refused) = (count + 1, 0);
        } else if context.streams().unwrap()[0].blocked > 0 {
            refused += 1;
        }
    }
    let taken = context.streams().unwrap()[0].records_in;
    // A record in shared memory is taken up to the last buffer.
    assert!(taken < count || way == Transport::Shm, "nothing waits");
    let (done, answered) = std::sync::mpsc::channel();
    let asking = std::thread::spawn(move || {
        for _ in 0..100 {
            publisher.listen_for_converters().unwrap();
        }
        done.send(()).unwrap();
        publisher.finish().unwrap()
    });
    answered.recv_timeout(Duration::from_secs(20)).expect("requests wait for the records' credit");
    assert_eq!(context.streams().unwrap()[0].records_in, taken);
    let (found, dropped) = collect(&mut slow);
    assert_eq!((found.len() as u64, dropped), (count, 0));
    assert!(found.iter().enumerate().all(|(i, n)| i as u64 == *n));
    asking.join().unwrap();
}

/// Each test, once by each way that messages can go.
macro_rules! by_either_way {
    ($($test:ident),* $(,)?) => {
        mod packets {
            $(#[test] fn $test() { super::$test(super::Transport::Udp); })*
        }
        mod memory {
            $(#[test] fn $test() { super::$test(super::Transport::Shm); })*
        }
    };
}

by_either_way!(
    everybody_gets_what_they_asked_for_in_order,
    a_slow_subscriber_that_blocks_holds_the_publisher_and_loses_nothing,
    output_much_longer_than_its_input_is_not_lost_where_that_blocks,
    output_that_grows_without_notice_is_not_lost_where_that_blocks,
    a_slow_reader_stops_its_own_publishers_only,
    drop_oldest_blocks_no_publisher_and_reports_what_is_lost,
    disconnect_ends_the_slow_one_with_a_reason,
    notices_take_no_credit_for_good,
    requests_are_answered_while_records_wait,
    requests_that_cannot_be_are_refused_in_words,
    a_restarted_daemon_is_found_again,
    a_subscriber_that_waits_for_a_stream_misses_no_record,
);
