//! Publishers whose records go as datagrams.

use crate::hostile::raw::{Raw, subscribe};
use crate::hostile::{await_dropped, dropped, format, start, start_with};
use crossdock_format::{RecordBuilder, Value};
use crossdock_nectarine::{DeliveryClass, Error, Event, Publisher, Subscriber, Transport};
use crossdock_transport::{PacketKind, Reply, Request};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn record(number: u64, text: &[u8]) -> Vec<u8> {
    let format = format();
    let mut row = RecordBuilder::new(&format);
    row.set(0, Value::Uint(number)).unwrap();
    row.set(1, Value::Text(text)).unwrap();
    row.finish().unwrap().to_vec()
}

/// The numbers of the next records.
fn numbers(subscriber: &mut Subscriber) -> Vec<u64> {
    match subscriber.next_event(Some(PATIENCE)).unwrap() {
        Some(Event::Records(records)) => {
            let number = |value: Value| if let Value::Uint(number) = value { number } else { panic!("{value:?}") };
            records.iter().map(|record| number(record.get(0))).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_that_go_as_datagrams_come_to_subscribers() {
    for transport in [Transport::Udp, Transport::Shm] {
        let (context, addr) = start();
        let builder = Publisher::builder(&addr).transport(transport).stream("A").format(&format());
        let mut publisher = builder.class(DeliveryClass::Datagram).connect().unwrap();
        let mut subscriber =
            Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM A").connect().unwrap();
        // One at a time: none is lost over loopback then.
        for number in 0..100 {
            publisher.publish(&record(number, b"text")).unwrap();
            publisher.flush().unwrap();
            assert_eq!(numbers(&mut subscriber), [number]);
        }
        let long = record(7, &[b'x'; 70_000]);
        let taken = publisher.publish(&long);
        assert!(matches!(taken, Err(Error::DatagramTooLong { .. })), "{taken:?}");
        let summary = publisher.finish().unwrap();
        assert_eq!((summary.records, summary.resent_packets, summary.dropped_records), (100, 0, 0));
        match subscriber.next_event(Some(PATIENCE)).unwrap() {
            Some(Event::StreamEnded { publishers_left: 0, .. }) => {}
            other => panic!("{other:?}"),
        }
        let info = context.context().unwrap();
        let in_packets = if transport == Transport::Udp { 100 } else { 0 };
        assert_eq!((info.datagrams_in, info.datagrams_missing, info.records_in), (in_packets, 0, 100));
    }
}

#[test]
fn datagrams_come_once_in_any_order_and_those_that_are_missing_are_counted() {
    let (context, addr) = start();
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    let id = format().id().0;
    // Before they are announced they are nobody's.
    raw.send(PacketKind::Datagram, 1, id, 1, &record(0, b"early"));
    await_dropped(&context, "packet_unannounced_stream", 1);
    let announce = Request::Announce {
        id: 1,
        stream: 1,
        name: "A".to_owned(),
        format: format().describe(),
        publication: None,
        key: Vec::new(),
    };
    assert!(matches!(raw.ask(announce), Reply::Announced { .. }));
    let mut subscriber = Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT n FROM A").connect().unwrap();
    let control = raw.seq;
    for (seq, comes) in [(3, true), (1, true), (3, false), (1, false), (9, true), (0, false)] {
        raw.seq = seq;
        raw.send(PacketKind::Datagram, 1, id, 1, &record(seq, b"text"));
        if comes {
            assert_eq!(numbers(&mut subscriber), [seq]);
        }
    }
    await_dropped(&context, "packet_duplicate", 3);
    let info = context.context().unwrap();
    // Of ten, 0 came before the announcement.
    assert_eq!((info.datagrams_in, info.datagrams_missing), (4, 6));
    // The session goes on, in its own sequence.
    raw.seq = control;
    assert!(matches!(raw.ask(subscribe(2, "SELECT * FROM A")), Reply::Subscribed { .. }));
}

#[test]
fn datagrams_of_a_stream_that_is_held_back_are_dropped_and_the_publisher_does_not_wait() {
    // A subscriber that takes nothing, and whose policy is to block.
    let (context, addr) = start_with(|config| config.queue_bytes = 64 << 10);
    let builder = Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format());
    let mut publisher = builder.class(DeliveryClass::Datagram).connect().unwrap();
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    assert!(matches!(raw.ask(subscribe(2, "SELECT * FROM A")), Reply::Subscribed { .. }));
    let text = [b'x'; 8000];
    let until = Instant::now() + PATIENCE;
    for number in 0.. {
        publisher.publish(&record(number, &text)).unwrap();
        if number % 100 == 0 && dropped(&context, "packet_datagram_refused") > 0 {
            break;
        }
        assert!(Instant::now() < until, "no datagram was dropped");
    }
    let published = publisher.finish().unwrap().records;
    let info = context.context().unwrap();
    // The backlog is bounded: the subscriber's queue, and what was on its way into it.
    let [subscription] = &context.subscriptions().unwrap()[..] else { panic!("one subscription") };
    assert!(info.records_in < published);
    assert!(subscription.backlog_bytes <= 4 * subscription.queue_bytes, "{subscription:?}");
}

#[test]
fn a_subscriber_of_datagrams_gets_each_record_once_by_either_way() {
    for transport in [Transport::Udp, Transport::Shm] {
        let (context, addr) = start();
        let builder = Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format());
        let mut publisher = builder.connect().unwrap();
        let builder = Subscriber::builder(&addr).transport(transport).sql("SELECT * FROM A");
        let mut subscriber = builder.class(DeliveryClass::Datagram).connect().unwrap();
        // One at a time: none is lost over loopback then.
        for number in 0..100 {
            publisher.publish(&record(number, &[b'x'; 20_000])).unwrap();
            publisher.flush().unwrap();
            assert_eq!(numbers(&mut subscriber), [number]);
        }
        assert_eq!(subscriber.unread_datagrams(), 0);
        publisher.finish().unwrap();
        let [subscription] = &context.subscriptions().unwrap()[..] else { panic!("one subscription") };
        assert_eq!((subscription.published, subscription.dropped), (100, 0), "{subscription:?}");
    }
}

#[test]
fn a_subscriber_of_datagrams_holds_nobody_back_and_its_losses_are_counted() {
    // Its policy is to block, it takes nothing, and acknowledges nothing.
    let (context, addr) = start_with(|config| config.queue_bytes = 64 << 10);
    let builder = Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format());
    let mut publisher = builder.connect().unwrap();
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    assert!(matches!(raw.ask(Request::UseDatagrams { id: 1 }), Reply::Done { id: 1 }));
    assert!(matches!(raw.ask(subscribe(2, "SELECT * FROM A")), Reply::Subscribed { .. }));
    for number in 0..2000 {
        publisher.publish(&record(number, &[b'x'; 8000])).unwrap();
    }
    // Longer than a datagram.
    publisher.publish(&record(2000, &[b'x'; 100_000])).unwrap();
    publisher.finish().unwrap();
    let [subscription] = &context.subscriptions().unwrap()[..] else { panic!("one subscription") };
    assert_eq!(subscription.published, 2001, "{subscription:?}");
    assert!(subscription.dropped > 1000, "{subscription:?}");
}
