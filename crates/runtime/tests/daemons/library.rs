//! The application's library against a context: which way it takes, by both ways alike, and back again.

use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{
    Error, Event, Implementation, MailboxOptions, Node, Publisher, Reader, Subscriber, Transport, Wait, Writer,
};
use crossdock_runtime::{Allowed, ContextConfig, ContextHandle, NodeAddress};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const TRANSPORTS: [Transport; 2] = [Transport::Shm, Transport::Udp];

fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = ContextConfig { listen, node: "here".to_owned(), ..ContextConfig::default() };
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    (context, addr)
}

fn numbers() -> Format {
    Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new("name", FieldType::String)]).unwrap()
}

fn publish(publisher: &mut Publisher, numbers: std::ops::Range<u64>) {
    let mut row = RecordBuilder::new(publisher.format());
    for number in numbers {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Text(b"a name of some length")).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
}

fn publisher(addr: &str, way: Transport) -> Publisher {
    Publisher::builder(addr).transport(way).stream("N").format(&numbers()).connect().unwrap()
}

fn subscriber(addr: &str, way: Transport) -> Subscriber {
    Subscriber::builder(addr).transport(way).sql("SELECT * FROM N").wait_for_stream(PATIENCE).connect().unwrap()
}

/// The next numbers, at least `count` of them.
fn take(subscriber: &mut Subscriber, count: usize) -> Vec<u64> {
    let mut found = Vec::new();
    while found.len() < count {
        match subscriber
            .next_event(Some(PATIENCE))
            .unwrap()
            .unwrap_or_else(|| panic!("{} by {} within 20 s", found.len(), subscriber.transport()))
        {
            Event::Records(records) => found.extend(records.iter().map(|record| match record.get(0) {
                Value::Uint(number) => number,
                other => panic!("{other:?}"),
            })),
            Event::StreamEnded { .. } | Event::Format(_) | Event::Reconnected => {}
            other => panic!("{other:?}"),
        }
    }
    found
}

#[test]
fn subscribers_of_one_query_know_their_numbers_in_the_daemons_list() {
    for way in TRANSPORTS {
        let (context, addr) = start(|_| {});
        let _publisher = publisher(&addr, way);
        let [first, second] = [subscriber(&addr, way), subscriber(&addr, way)];
        let [one, other] = [&first, &second].map(|subscriber| subscriber.number().unwrap());
        let listed = || {
            let mut listed: Vec<u64> = context.subscriptions().unwrap().iter().map(|known| known.id).collect();
            listed.sort_unstable();
            listed
        };
        assert_eq!(listed(), [one.min(other), one.max(other)]);
        assert!(
            context.analyze_subscription(other).unwrap().is_some_and(|of| of.of == format!("subscription {other}"))
        );
        drop(first);
        let deadline = Instant::now() + PATIENCE;
        while listed() != [other] {
            assert!(Instant::now() < deadline, "the first one leaves the list");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_daemon_on_this_machine_is_attached_to_unless_it_says_no() {
    let (context, addr) = start(|_| {});
    assert_eq!(publisher(&addr, Transport::Auto).transport(), Transport::Shm);
    assert_eq!(publisher(&format!("udp://{addr}"), Transport::Auto).transport(), Transport::Udp);
    assert_eq!(Node::connect(&addr).unwrap().transport(), Transport::Shm);
    let unix = context.attach_addr().unwrap().to_string();
    assert_eq!(Node::connect(unix).unwrap().transport(), Transport::Shm);
    context.stop().unwrap();

    let (_context, addr) = start(|config| config.attach.enabled = false);
    assert_eq!(publisher(&addr, Transport::Auto).transport(), Transport::Udp);
    let error = Node::builder(&addr).transport(Transport::Shm).connect().map(drop).unwrap_err();
    assert!(matches!(error, Error::NotAttached { .. }) && error.to_string().contains("[attach]"), "{error}");

    let (_context, addr) = start(|config| config.attach.uids = Allowed::List(vec![u32::MAX - 1]));
    assert_eq!(publisher(&addr, Transport::Auto).transport(), Transport::Udp);
    let error = Node::builder(&addr).transport(Transport::Shm).connect().map(drop).unwrap_err();
    assert!(matches!(error, Error::NotAttached { .. }) && error.to_string().contains("refused"), "{error}");
}

#[test]
fn records_leave_by_themselves_and_each_way_reaches_the_other() {
    let (_context, addr) = start(|_| {});
    for from in TRANSPORTS {
        for to in TRANSPORTS {
            let mut publisher = publisher(&addr, from);
            let mut subscriber = subscriber(&addr, to);
            publish(&mut publisher, 0..3);
            // Nobody flushes: the keeper sends what has lingered.
            assert_eq!(take(&mut subscriber, 3), [0, 1, 2], "{from} to {to}");
            publish(&mut publisher, 3..5000);
            // Nor does anybody finish.
            drop(publisher);
            assert_eq!(take(&mut subscriber, 4997), (3..5000).collect::<Vec<_>>(), "{from} to {to}");
        }
    }
}

#[test]
fn records_in_hand_stay_unchanged_after_their_subscriber_and_its_daemon() {
    let (context, addr) = start(|_| {});
    let mut held = Vec::new();
    for (at, way) in TRANSPORTS.into_iter().enumerate() {
        let mut publisher = publisher(&addr, Transport::Shm);
        let mut subscriber = subscriber(&addr, way);
        let from = at as u64 * 100;
        publish(&mut publisher, from..from + 100);
        publisher.flush().unwrap();
        match subscriber.next_event(Some(PATIENCE)).unwrap() {
            Some(Event::Records(records)) => held.push((from, records)),
            other => panic!("{other:?}"),
        }
    }
    // Others use the daemon's memory meanwhile.
    let (mut publisher, mut subscriber) = (publisher(&addr, Transport::Shm), subscriber(&addr, Transport::Shm));
    publish(&mut publisher, 1000..50_000);
    publisher.finish().unwrap();
    take(&mut subscriber, 49_000);
    context.stop().unwrap();
    for (from, records) in held {
        let found: Vec<Value<'_>> = records.iter().map(|record| record.get(0)).collect();
        assert_eq!(found, (from..from + records.len() as u64).map(Value::Uint).collect::<Vec<_>>());
    }
}

#[test]
fn a_publisher_comes_back_by_the_way_there_is_and_loses_nothing() {
    let (context, addr) = start(|_| {});
    let listen: SocketAddr = addr.parse().unwrap();
    let mut publisher = publisher(&addr, Transport::Auto);
    assert_eq!(publisher.transport(), Transport::Shm);
    publish(&mut publisher, 0..10);
    publisher.flush().unwrap();
    context.stop().unwrap();
    for (attach, way, from) in [(false, Transport::Udp, 10), (true, Transport::Shm, 30)] {
        // A record that is published while nobody is there waits, in the library or in the call.
        let publishing = std::thread::spawn(move || {
            publish(&mut publisher, from..from + 10);
            publisher.flush().unwrap();
            publisher
        });
        let mut config = ContextConfig { listen, ..ContextConfig::default() };
        config.attach.enabled = attach;
        let context = ContextHandle::start(config).unwrap();
        let mut subscriber = subscriber(&addr, Transport::Auto);
        assert_eq!(subscriber.transport(), way);
        publisher = publishing.join().unwrap();
        publish(&mut publisher, from + 10..from + 20);
        publisher.flush().unwrap();
        let mut found = take(&mut subscriber, 1);
        while !found.contains(&(from + 19)) {
            found.append(&mut take(&mut subscriber, 1));
        }
        // The first few may have come before anybody subscribed.
        assert_eq!(found, (from + 20 - found.len() as u64..from + 20).collect::<Vec<_>>());
        // To the one that can be attached to it may have come before that was so fast enough.
        assert!(publisher.transport() == way || attach);
        context.stop().unwrap();
    }
}

#[test]
fn waiting_calls_are_interrupted_by_either_way() {
    let (_context, addr) = start(|_| {});
    for way in TRANSPORTS {
        let _publisher = publisher(&addr, way);
        let mut subscriber = subscriber(&addr, way);
        let interrupter = subscriber.interrupter();
        let waiting = std::thread::spawn(move || subscriber.next_event(None).map(drop));
        interrupter.interrupt();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Interrupted)), "{way}");
        let node = Node::builder(&addr).transport(way).connect().unwrap();
        node.create_mailbox("m", MailboxOptions::default()).unwrap();
        let mut reader = node.reader("m").unwrap();
        let interrupter = reader.interrupter();
        let waiting = std::thread::spawn(move || reader.begin_get().map(drop));
        interrupter.interrupt();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Interrupted)), "{way}");
    }
}

fn get(reader: &mut Reader) -> Vec<u8> {
    let message = reader.begin_get_timeout(PATIENCE).unwrap().expect("a message within 20 s");
    let bytes = message.to_vec();
    reader.end_get(message);
    bytes
}

/// Many messages with one call, more than the mailbox holds; 8 are in it, the last of them 2999.
fn put_and_get_many(writer: &mut Writer, reader: &mut Reader) {
    let numbers = 3000..5000u32;
    std::thread::scope(|scope| {
        let put = scope.spawn(|| {
            let copied = writer.put_many(numbers.clone().take(1000).map(u32::to_le_bytes)).unwrap();
            let written = writer.put_many_with(1000, 4, |at, place| {
                place.copy_from_slice(&(4000 + at as u32).to_le_bytes());
            });
            (copied, written.unwrap())
        });
        let mut got: Vec<u32> = Vec::new();
        while got.len() < 2008 {
            let burst = reader.get_many(16).unwrap();
            assert!((1..=16).contains(&burst.len()) && burst.iter().len() == burst.len());
            got.extend(burst.iter().map(|bytes| u32::from_le_bytes(*bytes.first_chunk().unwrap())));
        }
        assert_eq!(got, Vec::from_iter(2992..5000));
        assert_eq!(put.join().unwrap(), (1000, 1000));
    });
    assert!(reader.get_many_by(16, Wait::at_most(Duration::ZERO)).unwrap().is_none());
    // A panic of the application's takes one message at most, and no buffer.
    for _ in 0..200 {
        let fill = |at: usize, place: &mut [u8]| match at {
            0 => place.fill(1),
            _ => std::panic::resume_unwind(Box::new("the application's")),
        };
        let put = std::panic::AssertUnwindSafe(|| writer.put_many_with(2, 4, fill));
        assert!(std::panic::catch_unwind(put).is_err());
        assert_eq!(get(reader), [1; 4]);
    }
}

#[test]
fn mailboxes_are_the_same_by_either_way() {
    let (_context, addr) = start(|_| {});
    for implementation in [Implementation::Rings, Implementation::SignalQueue] {
        for (from, to) in TRANSPORTS.into_iter().flat_map(|from| TRANSPORTS.map(|to| (from, to))) {
            let node = |way| Node::builder(&addr).transport(way).connect().unwrap();
            let (writes, reads) = (node(from), node(to));
            let options = MailboxOptions { implementation, ..MailboxOptions::default() };
            // Those of the last round go when the daemon notices that their node is gone.
            let names = ["in", "out"].map(|name| format!("{name} {implementation} {from} {to}"));
            for name in &names {
                reads.create_mailbox(name, options).unwrap();
            }
            let [into, out] = &names;
            let (mut writer, mut reader) = (writes.writer(into).unwrap(), reads.reader(into).unwrap());
            let (mut onward, mut end) = (reads.writer(out).unwrap(), reads.reader(out).unwrap());
            assert!(reader.try_begin_get().unwrap().is_none());
            // Begun in one order, ended in another: that is the one in which they are read.
            let (mut first, mut second) = (writer.begin_put(8).unwrap(), writer.try_begin_put(8).unwrap().unwrap());
            first.copy_from_slice(b"-second-");
            second.copy_from_slice(b"--first-");
            second.adjust(2, 1).unwrap();
            assert!(matches!(second.adjust(6, 0), Err(Error::TooShort { bytes: 5 })));
            drop(writer.begin_put_by(100, Wait::at_most(PATIENCE)).unwrap().unwrap());
            writer.end_put(second).unwrap();
            writer.end_put(first).unwrap();
            writer.flush().unwrap();
            let mut message = reader.begin_get_timeout(PATIENCE).unwrap().unwrap();
            assert_eq!(&*message, b"first", "{from} to {to}");
            message.adjust(1, 1).unwrap();
            reader.enqueue(message, &mut onward).unwrap();
            assert_eq!(get(&mut end), b"irs");
            assert_eq!(get(&mut reader), b"-second-");
            assert!(reader.begin_get_timeout(Duration::from_millis(1)).unwrap().is_none());
            // A message that is not of this writer is none of its messages.
            let foreign = onward.begin_put(1).unwrap();
            assert!(matches!(writer.end_put(foreign), Err(Error::Foreign)));
            // Sides are closed when they are dropped, and can be opened again.
            drop((writer, reader));
            let (mut writer, mut reader) = (writes.writer(into).unwrap(), reads.reader(into).unwrap());
            for number in 0..3000u32 {
                writer.put(&number.to_le_bytes()).unwrap();
                if number >= 8 {
                    assert_eq!(get(&mut reader), (number - 8).to_le_bytes());
                }
            }
            put_and_get_many(&mut writer, &mut reader);
        }
    }
}

#[test]
fn a_thread_waits_for_several_mailboxes_at_once_and_can_be_woken() {
    let (_context, addr) = start(|_| {});
    let node = Node::builder(&addr).transport(Transport::Shm).connect().unwrap();
    let attachment = node.attachment().unwrap();
    let names = ["a", "b"];
    names.iter().for_each(|name| node.create_mailbox(name, MailboxOptions::default()).unwrap());
    let mut readers = names.map(|name| node.reader(name).unwrap());
    let mut writers = names.map(|name| node.writer(name).unwrap());
    let is_over = AtomicBool::new(false);
    let (found, finds) = mpsc::channel();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let look = || {
                let from = readers.iter_mut().position(|reader| reader.try_begin_get().unwrap().is_some());
                from.into_iter().for_each(|from| found.send(from).unwrap());
                is_over.load(Ordering::SeqCst).then_some("over")
            };
            attachment.wait_until(Wait::at_most(PATIENCE), look)
        });
        for to in [1, 0, 1] {
            writers[to].put(b"x").unwrap();
            assert_eq!(finds.recv_timeout(PATIENCE), Ok(to));
        }
        is_over.store(true, Ordering::SeqCst);
        attachment.wake();
        assert_eq!(waiting.join().unwrap(), Ok("over"));
    });
    assert!(attachment.wait_until(Wait::at_most(Duration::ZERO), || None::<()>).is_err());
}

#[test]
fn a_writer_knows_without_a_put_that_its_mailbox_is_gone() {
    let (_context, addr) = start(|_| {});
    for way in TRANSPORTS {
        let node = Node::builder(&addr).transport(way).connect().unwrap();
        node.create_mailbox("m", MailboxOptions::default()).unwrap();
        let mut writer = node.writer("m").unwrap();
        writer.check().unwrap();
        node.delete_mailbox("m").unwrap();
        let end = Instant::now() + PATIENCE;
        while writer.check().is_ok() {
            assert!(Instant::now() < end, "{way}: it is not known within 20 s");
            std::thread::yield_now();
        }
    }
}

#[test]
fn nodes_are_known_by_name_and_only_what_is_local_shares_memory() {
    let (_there, far) = start(|config| config.node = "there".to_owned());
    let (_here, addr) = start(|config| {
        config.nodes = vec![NodeAddress { name: "there".to_owned(), address: far.parse().unwrap(), key: None }];
    });
    for way in TRANSPORTS {
        let node = Node::builder(&addr).transport(way).connect().unwrap();
        assert_eq!(node.name().unwrap(), "here");
        assert_eq!(node.named("here").unwrap().name().unwrap(), "here");
        let other = node.named("there").unwrap();
        assert_eq!((other.name().unwrap(), other.transport()), ("there", way));
        let error = node.named("nowhere").map(drop).unwrap_err();
        assert!(matches!(error, Error::UnknownNode(_)) && error.is_usage(), "{error}");
        other.create_mailbox("m", MailboxOptions::default()).unwrap();
        assert!(matches!(node.writer("m").map(drop), Err(Error::UnknownMailbox(_))));
        other.writer("m").unwrap().put(b"x").unwrap();
        assert_eq!(get(&mut other.reader("m").unwrap()), b"x");
        match node.sync() {
            Ok(mut sync) => {
                node.write_sync(sync.address(), 77).unwrap();
                assert_eq!(sync.read(Wait::at_most(PATIENCE)).unwrap(), 77);
                let condition = node.condition().unwrap();
                let seen = condition.value();
                node.signal(condition.address()).unwrap();
                assert_ne!(condition.wait(seen, Wait::at_most(PATIENCE)).unwrap(), seen);
                assert_eq!(way, Transport::Shm);
            }
            Err(error) => assert!(matches!((error, way), (Error::NotLocal { .. }, Transport::Udp))),
        }
    }
}

#[test]
fn a_node_can_be_used_again_when_its_daemon_is_back() {
    for way in TRANSPORTS {
        let (context, addr) = start(|_| {});
        let node = Node::builder(&addr).transport(way).connect().unwrap();
        node.create_mailbox("m", MailboxOptions::default()).unwrap();
        let (mut writer, mut reader) = (node.writer("m").unwrap(), node.reader("m").unwrap());
        writer.put(b"before").unwrap();
        assert_eq!(get(&mut reader), b"before");
        let listen: SocketAddr = addr.parse().unwrap();
        context.stop().unwrap();
        let gone = reader.begin_get().map(drop).unwrap_err();
        assert!(matches!(gone, Error::Lost { .. } | Error::MailboxClosed { .. }), "{way}: {gone}");
        let _again = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() }).unwrap();
        node.create_mailbox("m", MailboxOptions::default()).unwrap();
        let (mut new_writer, mut new_reader) = (node.writer("m").unwrap(), node.reader("m").unwrap());
        new_writer.put(b"after").unwrap();
        assert_eq!(get(&mut new_reader), b"after");
        assert!(writer.put(b"late").is_err(), "{way}: its mailbox went with the daemon");
        drop((writer, reader));
        new_writer.put(b"still open").unwrap();
        assert_eq!(get(&mut new_reader), b"still open");
    }
}
