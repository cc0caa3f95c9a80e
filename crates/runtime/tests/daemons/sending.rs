//! Records that a program sends out of mailboxes, and messages of protocols that go into mailboxes.

use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{
    ArrivedData, DataPlace, DeliveryClass, Direct, Error, Event, HeaderTemplate, Implementation, MailboxOptions, Node,
    Protocol, StartOfData, Subscriber, Transport, Writer,
};
use crossdock_runtime::{ContextConfig, ContextHandle};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn start() -> (ContextHandle, String) {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = ContextConfig { listen, ..ContextConfig::default() };
    config.platform.contexts.extend(crate::contexts::further());
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    (context, addr)
}

fn format() -> Format {
    Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new("name", FieldType::String)]).unwrap()
}

/// A record with a name of that length.
fn record(number: u64, name_bytes: usize) -> Vec<u8> {
    let format = format();
    let mut row = RecordBuilder::new(&format);
    row.set(0, Value::Uint(number)).unwrap();
    row.set(1, Value::Text(&vec![b'a' + (number % 26) as u8; name_bytes])).unwrap();
    row.finish().unwrap().to_vec()
}

fn node(addr: &str, way: Transport) -> Node {
    Node::builder(addr).transport(way).connect().unwrap()
}

fn create(node: &Node, name: &str, implementation: Implementation) {
    node.create_mailbox(name, MailboxOptions { implementation, ..MailboxOptions::default() }).unwrap();
}

/// The records of a subscription, as their bytes, up to the stream's end.
fn collect(mut subscriber: Subscriber) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    loop {
        match subscriber.next_event(Some(PATIENCE)).unwrap().unwrap_or_else(|| panic!("{} came", found.len())) {
            Event::Records(records) => found.extend(records.bytes().map(<[u8]>::to_vec)),
            Event::StreamEnded { .. } => return found,
            Event::Format(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn records_are_sent_out_of_mailboxes_whichever_way_they_came_there() {
    for (way, implementation) in [
        (Transport::Shm, Implementation::Rings),
        (Transport::Shm, Implementation::SignalQueue),
        (Transport::Udp, Implementation::Rings),
    ] {
        let (_context, addr) = start();
        let (reads, writes) = (node(&addr, way), node(&addr, Transport::Shm));
        create(&reads, "in", implementation);
        let (mut writer, mut reader) = (writes.writer("in").unwrap(), reads.reader("in").unwrap());
        let mut sender = reads.record_sender("N", &format()).unwrap();
        let subscriber = Subscriber::builder(&addr).sql("SELECT * FROM N").connect().unwrap();
        let collecting = std::thread::spawn(move || collect(subscriber));
        let longest = if way == Transport::Shm { 300_000 } else { 60_000 };
        let sent: Vec<Vec<u8>> = (0..600u64)
            .map(|number| record(number, if number % 100 == 7 { longest } else { number as usize % 3000 }))
            .collect();
        // Many times what the mailbox and the domain hold, so all is given back.
        for record in &sent {
            writer.put(record).unwrap();
            let message = reader.begin_get().unwrap();
            sender.send(&mut reader, message).unwrap();
        }
        sender.finish().unwrap();
        let found = collecting.join().unwrap();
        assert!(found == sent, "{way:?} {implementation:?}: {} of {}", found.len(), sent.len());
    }
}

#[test]
fn a_message_that_is_no_record_is_refused_and_one_of_another_node_is_copied() {
    let (_context, addr) = start();
    let (one, other) = (node(&addr, Transport::Shm), node(&addr, Transport::Shm));
    create(&one, "one", Implementation::Rings);
    create(&one, "two", Implementation::Rings);
    let (mut writer, mut reader) = (one.writer("one").unwrap(), other.reader("one").unwrap());
    let mut sender = one.record_sender("N", &format()).unwrap();
    let subscriber = Subscriber::builder(&addr).sql("SELECT * FROM N").connect().unwrap();
    let collecting = std::thread::spawn(move || collect(subscriber));
    writer.put(b"no record of that format").unwrap();
    let message = reader.begin_get().unwrap();
    assert!(matches!(sender.send(&mut reader, message), Err(Error::Record(_))));
    // A reader of another node.
    writer.put(&record(1, 100)).unwrap();
    let message = reader.begin_get().unwrap();
    sender.send(&mut reader, message).unwrap();
    drop(reader);
    // A message of another reader.
    let (mut wrong, mut right) = (one.reader("two").unwrap(), one.reader("one").unwrap());
    writer.put(&record(2, 100)).unwrap();
    let message = right.begin_get().unwrap();
    assert!(matches!(sender.send(&mut wrong, message), Err(Error::Foreign)));
    writer.put(&record(3, 100)).unwrap();
    let message = right.begin_get().unwrap();
    sender.send(&mut right, message).unwrap();
    sender.finish().unwrap();
    assert_eq!(collecting.join().unwrap(), [record(1, 100), record(3, 100)]);
}

/// A protocol whose messages go into a mailbox, but for those that find no room.
struct IntoMailbox(Writer);

impl Protocol for IntoMailbox {
    fn template(&self) -> HeaderTemplate {
        HeaderTemplate::new(DeliveryClass::Reliable, *b"mail")
    }

    fn start_of_data(&mut self, start: &StartOfData<'_>) -> DataPlace {
        match self.0.try_begin_put(start.data_bytes) {
            Ok(Some(put)) if start.header == b"mail" => DataPlace::Mailbox(put),
            _ => DataPlace::Refused,
        }
    }

    fn end_of_data(&mut self, _: &StartOfData<'_>, data: ArrivedData<'_>) {
        let ArrivedData::Placed(put) = data else { panic!("it was to be placed") };
        self.0.end_put(put).unwrap();
    }
}

#[test]
fn messages_of_a_protocol_are_received_into_a_mailbox() {
    let (_context, addr) = start();
    let node = node(&addr, Transport::Shm);
    create(&node, "input", Implementation::Rings);
    let mut reader = node.reader("input").unwrap();
    let mut here = Direct::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    here.register(9, IntoMailbox(node.writer("input").unwrap())).unwrap();
    let addr = here.local_addr();
    let dialling = std::thread::spawn(move || Direct::connect(addr, PATIENCE).unwrap());
    let until = Instant::now() + PATIENCE;
    while !here.is_up() {
        here.turn().unwrap();
        assert!(Instant::now() < until);
    }
    let mut there = dialling.join().unwrap();
    there.register(9, IntoMailbox(node.writer("input").unwrap())).unwrap();
    for (bytes, fill) in [(0, 0), (10, 1), (65_000, 2), (70_000, 3), (700_000, 4)] {
        let sent = vec![fill; bytes];
        while !there.send_by(9, &sent).unwrap() {
            there.turn().unwrap();
        }
        let message = loop {
            there.turn().unwrap();
            here.turn().unwrap();
            if let Some(message) = reader.try_begin_get().unwrap() {
                break message;
            }
            assert!(Instant::now() < until, "{bytes} bytes: {:?}", here.protocol_counts(9));
        };
        assert!(*message == *sent, "{bytes}");
    }
    assert_eq!(here.protocol_counts(9).unwrap().received, 5);
}
