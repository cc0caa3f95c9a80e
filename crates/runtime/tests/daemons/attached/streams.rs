//! Publishing and subscribing over shared memory, beside packets.

use super::session::{Came, Session, await_that, numbers, payloads, start};
use crossdock_format::{Format, Record, Value};
use crossdock_nectarine::{Event, Publisher, Records, Subscriber, Transport};
use crossdock_transport::control::{Implementation, Overflow};
use crossdock_transport::{Header, PacketKind};
use std::time::Duration;

/// The numbers in records.
fn numbers_of(records: &Records) -> Vec<u64> {
    let number = |record: Record<'_>| match record.get(0) {
        Value::Uint(number) => number,
        Value::Int(number) => number as u64,
        other => panic!("{other:?}"),
    };
    records.iter().map(number).collect()
}

/// All numbers of a subscriber over packets, up to its stream's end.
fn collect_packets(subscriber: &mut Subscriber) -> Vec<u64> {
    let mut found = Vec::new();
    loop {
        match subscriber.next_event(Some(Duration::from_secs(20))).unwrap().expect("something within 20 s") {
            Event::Records(records) => found.extend(numbers_of(&records)),
            Event::StreamEnded { publishers_left: 0, .. } => return found,
            _ => {}
        }
    }
}

/// A query, and the numbers that it selects.
type Query = (&'static str, fn(u64) -> bool);

const QUERIES: [Query; 5] = [
    ("SELECT * FROM N", |_| true),
    ("SELECT * FROM N WHERE grp < 5", |n| n % 10 < 5),
    ("SELECT number FROM N WHERE grp = 3", |n| n % 10 == 3),
    ("SELECT number + 0 AS n, name || '!' FROM N WHERE name LIKE 'abc%' AND number >= 100", |n| n >= 100),
    ("SELECT * FROM N", |_| true),
];

const COUNT: u64 = 100_000;

#[test]
fn attached_publishers_reach_everybody_in_order() {
    let (context, addr) = start(|_| {});
    let mut publisher = Session::attach(&context);
    publisher.announce(1, "N");
    let attached: Vec<_> = QUERIES
        .iter()
        .map(|(sql, _)| {
            let mut session = Session::attach(&context);
            let format = session.subscribe(5, sql, None);
            std::thread::spawn(move || session.collect(5, &format).0)
        })
        .collect();
    let packets: Vec<_> = QUERIES
        .iter()
        .map(|(sql, _)| {
            let builder = Subscriber::builder(&addr).sql(*sql).transport(Transport::Udp);
            let mut subscriber = builder.connect().unwrap();
            std::thread::spawn(move || collect_packets(&mut subscriber))
        })
        .collect();
    publisher.publish(1, 0, COUNT).unwrap();
    publisher.finish(1);
    for (reader, (sql, selects)) in attached.into_iter().chain(packets).zip(QUERIES.iter().chain(&QUERIES)) {
        let wanted: Vec<u64> = (0..COUNT).filter(|n| selects(*n)).collect();
        assert!(reader.join().unwrap() == wanted, "{sql}");
    }
    await_that("the subscribers' ends", || context.clients().unwrap().len() == 1);
    let info = context.context().unwrap();
    assert_eq!(info.records_in, COUNT);
    assert!(info.batches_whole > 0);
    let client = &context.clients().unwrap()[0];
    assert_eq!((client.pid, client.publishes.len(), client.subscriptions), (std::process::id(), 0, 0));
}

#[test]
fn publishers_over_packets_reach_attached_subscribers() {
    let (context, addr) = start(|_| {});
    let builder = Publisher::builder(&addr).stream("N").format(&numbers()).transport(Transport::Udp);
    let mut publisher = builder.connect().unwrap();
    let attached: Vec<_> = QUERIES
        .iter()
        .map(|(sql, _)| {
            let mut session = Session::attach(&context);
            let format = session.subscribe(5, sql, None);
            std::thread::spawn(move || session.collect(5, &format).0)
        })
        .collect();
    let format = numbers();
    for (payload, _) in super::session::payloads(0, COUNT, 60_000) {
        let mut at = Vec::new();
        format.check_records(&payload, |start, len| at.push(start as usize..(start + len) as usize)).unwrap();
        for range in at {
            publisher.publish(&payload[range]).unwrap();
        }
    }
    publisher.finish().unwrap();
    for (reader, (sql, selects)) in attached.into_iter().zip(&QUERIES) {
        assert!(reader.join().unwrap() == (0..COUNT).filter(|n| selects(*n)).collect::<Vec<_>>(), "{sql}");
    }
}

#[test]
fn a_stream_that_all_take_as_it_is_passes_without_a_copy() {
    let (context, _) = start(|_| {});
    let mut publisher = Session::attach(&context);
    publisher.announce(3, "N");
    let mut sessions: Vec<Session> = (0..3).map(|_| Session::attach(&context)).collect();
    let format = sessions.iter_mut().map(|session| session.subscribe(9, "SELECT * FROM N", None)).last().unwrap();
    // The first packet is copied for the sample that `explain` measures on; none after it, within a second.
    publisher.publish(3, 0, 20_000).unwrap();
    publisher.finish(3);
    for mut session in sessions {
        let mut found = Vec::new();
        while let Came::Data(label, header, message) = session.next().unwrap() {
            // The publisher's own header: it was not touched.
            assert_eq!((label, header.stream), (9, 3));
            let payload = &message[crossdock_transport::HEADER_BYTES..][..header.payload_bytes.into()];
            found.extend(super::session::numbers_in(&format, payload));
            session.reader.end_get(message);
        }
        assert_eq!(found, (0..20_000).collect::<Vec<_>>());
    }
    let info = context.context().unwrap();
    assert_eq!(info.batches_whole % 3, 0);
    assert_eq!(context.explain("SELECT * FROM N WHERE grp = 1", &[]).unwrap().unwrap().stream, "N");
}

#[test]
fn a_slow_attached_subscriber_that_blocks_holds_attached_publishers_and_loses_nothing() {
    // Of any query more than its queue and its session hold together, so that the publisher is held back until it reads.
    const MANY: u64 = 4 * COUNT;
    for sql in ["SELECT * FROM N", "SELECT number FROM N", "SELECT * FROM N WHERE grp < 9"] {
        let (context, _) = start(|c| c.queue_bytes = 1 << 20);
        let mut publisher = Session::attach(&context);
        publisher.announce(1, "N");
        let mut slow = Session::attach(&context);
        let format = slow.subscribe(1, sql, Some(Overflow::Block));
        let publishing = std::thread::spawn(move || {
            publisher.publish(1, 0, MANY).unwrap();
            publisher.finish(1);
        });
        await_that("a publisher that is held back", || context.streams().unwrap()[0].blocked > 0);
        let backlog = context.subscriptions().unwrap()[0].backlog_bytes;
        // The credit that it had been granted before comes on top: eight super-packets.
        assert!(backlog < (2 << 20), "{backlog}");
        let (found, dropped) = slow.collect(1, &format);
        let wanted = (0..MANY).filter(|n| !sql.contains("WHERE") || n % 10 < 9).collect::<Vec<_>>();
        assert!(found == wanted && dropped == 0, "{sql}: {} of {}, {dropped}", found.len(), wanted.len());
        publishing.join().unwrap();
        assert_eq!(context.streams().unwrap()[0].blocked, 0);
    }
}

#[test]
fn drop_oldest_holds_no_attached_publisher_and_says_what_is_lost() {
    for sql in ["SELECT * FROM N", "SELECT number, name FROM N"] {
        let (context, _) = start(|c| c.queue_bytes = 1 << 20);
        let mut publisher = Session::attach(&context);
        publisher.announce(1, "N");
        let mut slow = Session::attach(&context);
        let format = slow.subscribe(1, sql, Some(Overflow::DropOldest));
        publisher.publish(1, 0, COUNT).unwrap();
        publisher.finish(1);
        let (found, dropped) = slow.collect(1, &format);
        assert!(dropped > 0, "{sql}");
        assert_eq!(found.len() as u64 + dropped, COUNT, "{sql}");
        assert!(found.is_sorted());
        assert_eq!(found.last(), Some(&(COUNT - 1)));
        assert_eq!(context.subscriptions().unwrap()[0].dropped, dropped);
    }
}

#[test]
fn a_subscriber_that_takes_no_records_is_answered_and_loses_none() {
    for sql in ["SELECT * FROM N", "SELECT number, name FROM N"] {
        let (context, _) = start(|c| c.queue_bytes = 1 << 20);
        let mut publisher = Session::attach(&context);
        publisher.announce(1, "N");
        let mut slow = Session::attach(&context);
        let format = slow.subscribe(1, sql, Some(Overflow::Block));
        let publishing = std::thread::spawn(move || {
            publisher.publish(1, 0, COUNT).unwrap();
            publisher.finish(1);
        });
        await_that("the publisher is held back", || context.streams().unwrap()[0].blocked > 0);
        // A delivered record stays in its hands; more records wait in the daemon, and the answers pass them.
        for number in 0..100 {
            slow.announce(7 + number, &format!("other{number}"));
        }
        assert_eq!(slow.collect(1, &format), ((0..COUNT).collect(), 0), "{sql}");
        publishing.join().unwrap();
    }
}

#[test]
fn disconnect_ends_the_slow_attached_one_with_a_reason() {
    let (context, _) = start(|c| c.queue_bytes = 1 << 20);
    let mut publisher = Session::attach(&context);
    publisher.announce(1, "N");
    let mut slow = Session::attach(&context);
    slow.subscribe(1, "SELECT * FROM N", Some(Overflow::Disconnect));
    publisher.publish(1, 0, COUNT).unwrap();
    publisher.finish(1);
    await_that("the end", || slow.attachment.is_gone());
    let reason = slow.attachment.gone().unwrap().to_string();
    assert!(reason.contains("policy is disconnect"), "{reason}");
    let info = context.context().unwrap();
    assert_eq!((info.clients, info.detached), (1, vec![("queue_full".to_owned(), 1)]));
    assert!(context.subscriptions().unwrap().is_empty());
    // Nothing of it is left: who subscribes next gets every record once.
    let mut next = Session::attach(&context);
    publisher.announce(2, "N");
    let format = next.subscribe(1, "SELECT * FROM N", None);
    publisher.publish(2, 0, 100).unwrap();
    publisher.finish(2);
    assert_eq!(next.collect(1, &format).0, (0..100).collect::<Vec<_>>());
}

#[test]
fn an_attached_publisher_whose_records_are_none_is_disconnected() {
    let (context, addr) = start(|_| {});
    let mut good = Session::attach(&context);
    good.announce(1, "N");
    let mut reader = Session::attach(&context);
    let format = reader.subscribe(1, "SELECT * FROM N WHERE number >= 0", None);
    let away = |session: Session| {
        await_that("the end", || session.attachment.is_gone());
        session.attachment.gone().unwrap().to_string()
    };
    let mut liar = Session::attach(&context);
    liar.announce(1, "N");
    liar.send(
        Header { stream: 1, format: numbers().id().0, records: 3, ..Header::new(PacketKind::Data, 0) },
        &[0xff; 64],
    )
    .unwrap();
    assert!(away(liar).contains("an invalid record"));
    // A header that claims more than there is.
    let mut liar = Session::attach(&context);
    let mut put = liar.writer.begin_put(40, super::session::patience()).unwrap();
    let header = Header { payload_bytes: 9, ..Header::new(PacketKind::Control, 0) };
    put[..32].copy_from_slice(&header.to_bytes());
    liar.writer.end_put(put).unwrap();
    assert!(away(liar).contains("claims 9 payload bytes"));
    // A stream that was not announced, and what is no request, is counted.
    let mut odd = Session::attach(&context);
    odd.send(Header { stream: 7, ..Header::new(PacketKind::Data, 0) }, &[0; 8]).unwrap();
    odd.send(Header::new(PacketKind::Control, 0), b"{\"request\":\"dance\"}").unwrap();
    odd.send(Header::new(PacketKind::Hello, 0), b"").unwrap();
    await_that("the counts", || {
        let dropped = context.context().unwrap().dropped;
        ["packet_unannounced_stream", "control_malformed", "packet_unexpected"]
            .iter()
            .all(|reason| dropped.iter().any(|(name, count)| name == reason && *count == 1))
    });
    assert!(!odd.attachment.is_gone());
    // Subscription numbers must fit into a descriptor.
    for subscription in [0, 1 << 15] {
        let sql = "SELECT * FROM N".to_owned();
        let (_, words) = odd.refused(|id| crossdock_transport::Request::Subscribe {
            id,
            subscription,
            sql,
            overflow: None,
            wait: false,
            accept: Vec::new(),
            unreadable: None,
            row_errors: Default::default(),
            positions: false,
            one_format: false,
        });
        assert!(words.contains("32767"), "{words}");
    }
    // Nobody else noticed.
    let mut beside = Subscriber::builder(&addr).sql("SELECT * FROM N").transport(Transport::Udp).connect().unwrap();
    good.publish(1, 0, 100).unwrap();
    good.finish(1);
    assert_eq!(reader.collect(1, &format).0, (0..100).collect::<Vec<_>>());
    assert_eq!(collect_packets(&mut beside), (0..100).collect::<Vec<_>>());
}

#[test]
fn an_attached_publisher_of_invalid_records_is_disconnected_and_its_readers_are_not() {
    let (context, addr) = start(|_| {});
    let mut good = Session::attach(&context);
    good.announce(1, "N");
    // With only such a reader no packet is read in the daemon.
    let builder = Subscriber::builder(&addr).sql("SELECT * FROM N").transport(Transport::Shm);
    let mut reader = builder.connect().unwrap();
    let numbered = Header { stream: 1, format: numbers().id().0, ..Header::new(PacketKind::Data, 0) };
    // A header that names other records than there are, and bytes that are no record.
    let (one, _) = payloads(0, 1, 1 << 10).remove(0);
    let (mut sent, mut found) = (0, Vec::new());
    for (records, payload, words) in [(2, &one[..], "names 2 records"), (3, &[0xff; 64][..], "invalid record")] {
        loop {
            good.publish(1, sent, sent + 1).unwrap();
            sent += 1;
            let mut faulty = Session::attach(&context);
            faulty.announce(1, "N");
            let mut reasons = Vec::new();
            await_that("the end", || {
                while let Some(event) = reader.next_event(Some(Duration::ZERO)).unwrap() {
                    match event {
                        Event::Records(records) => found.extend(numbers_of(&records)),
                        Event::Dropped { records: lost, reason, .. } => {
                            assert_eq!(lost, u64::from(records));
                            reasons.push(reason);
                        }
                        _ => {}
                    }
                }
                faulty.send(Header { records, ..numbered }, payload).is_err()
            });
            assert!(faulty.attachment.gone().unwrap().to_string().contains("an invalid record"));
            assert!(reasons.iter().all(|reason| reason.contains(words)), "{reasons:?}");
            // The context checks each packet that it samples, and each that goes to another context.
            if !reasons.is_empty() || crate::contexts::further().next().is_some() {
                break;
            }
        }
    }
    good.finish(1);
    found.extend(collect_packets(&mut reader));
    assert_eq!(found, (0..sent).collect::<Vec<_>>());
}

#[test]
fn an_inbox_that_is_full_loses_nothing_of_what_was_let_in() {
    // Room for a few drafts: what was let in beyond that waits in the daemon's own memory.
    let (context, _) = start(|c| c.host.inbox_bytes = 256 << 10);
    let mut publisher = Session::attach(&context);
    publisher.announce(1, "N");
    let mut subscribers: Vec<(Session, Format)> = ["SELECT number, name FROM N", "SELECT number FROM N WHERE grp < 5"]
        .into_iter()
        .map(|sql| {
            let mut session = Session::attach(&context);
            let format = session.subscribe(1, sql, Some(Overflow::Block));
            (session, format)
        })
        .collect();
    let publishing = std::thread::spawn(move || {
        publisher.publish(1, 0, COUNT).unwrap();
        publisher.finish(1);
    });
    await_that("a full inbox", || context.context().unwrap().domains.iter().any(|d| d.inbox_bytes > 128 << 10));
    await_that("a publisher that is held back", || context.streams().unwrap()[0].blocked > 0);
    let reading = subscribers.drain(..).map(|(mut session, format)| {
        std::thread::spawn(move || {
            let collected = session.collect(1, &format);
            // Requests are answered too, once there is room.
            session.create(&format!("box {}", session.attachment.client_number()), Implementation::Rings);
            collected
        })
    });
    let found: Vec<_> = reading.collect::<Vec<_>>().into_iter().map(|reader| reader.join().unwrap()).collect();
    assert!(found[0] == ((0..COUNT).collect::<Vec<_>>(), 0));
    assert!(found[1] == ((0..COUNT).filter(|n| n % 10 < 5).collect::<Vec<_>>(), 0));
    publishing.join().unwrap();
}

#[test]
fn an_attached_publisher_waits_while_the_context_is_short_of_buffers() {
    let (context, addr) = start(|c| c.buffer_bytes = 4 << 20);
    let mut publisher = Session::attach(&context);
    publisher.announce(1, "N");
    let readers: Vec<_> = (0..6)
        .map(|number| {
            let sql = if number % 2 == 0 { "SELECT * FROM N" } else { "SELECT * FROM N WHERE number >= 0" };
            let mut subscriber = Subscriber::builder(&addr).sql(sql).transport(Transport::Udp).connect().unwrap();
            std::thread::spawn(move || collect_packets(&mut subscriber))
        })
        .collect();
    publisher.publish(1, 0, COUNT).unwrap();
    publisher.finish(1);
    for reader in readers {
        let found = reader.join().unwrap();
        assert!(
            found == (0..COUNT).collect::<Vec<_>>(),
            "{} of {COUNT}, {:?}",
            found.len(),
            context.context().unwrap()
        );
    }
}
