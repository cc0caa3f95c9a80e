//! Mailboxes and tasks of a node that is reached by packets, beside attached clients.

use crossdock_nectarine::{Error, Implementation, MailboxOptions, Node, ReaderOptions, Transport, WriterOptions};
use crossdock_runtime::{ContextConfig, ContextHandle};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, Node) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.node = "here".to_owned();
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    let context = ContextHandle::start(config).unwrap();
    let node = connect(&context);
    (context, node)
}

fn connect(context: &ContextHandle) -> Node {
    Node::builder(context.local_addr().to_string()).transport(Transport::Udp).connect().unwrap()
}

fn get(reader: &mut crossdock_nectarine::Reader) -> Vec<u8> {
    let message = reader.begin_get_timeout(PATIENCE).unwrap().expect("a message within 20 s");
    let bytes = message.to_vec();
    reader.end_get(message);
    bytes
}

#[test]
fn messages_of_a_packet_go_through_either_implementation_in_order() {
    let (context, node) = start(|_| {});
    let other = connect(&context);
    for (name, implementation) in [("a", Implementation::Rings), ("b", Implementation::SignalQueue)] {
        node.create_mailbox(name, MailboxOptions { implementation, ..MailboxOptions::default() }).unwrap();
        let (mut writer, mut reader) = (other.writer(name).unwrap(), node.reader(name).unwrap());
        let long = vec![7; 65_000];
        for number in 0..2000u32 {
            writer.put(&number.to_le_bytes()).unwrap();
            if number % 100 == 0 {
                writer.put(&long).unwrap();
                writer.put(b"").unwrap();
            }
            assert_eq!(get(&mut reader), number.to_le_bytes());
            if number % 100 == 0 {
                assert_eq!(get(&mut reader), long);
                assert_eq!(get(&mut reader), b"");
            }
        }
        let info = context.mailboxes().unwrap().into_iter().find(|info| info.name == name).unwrap();
        assert_eq!((info.puts, info.gets, info.writers, info.readers), (2040, 2040, 1, 1));
        assert!(info.owner.starts_with("session 127.0.0.1:"), "{}", info.owner);
        drop((writer, reader));
    }
}

#[test]
fn tasks_run_for_messages_of_packets() {
    let (context, node) = start(|_| {});
    node.create_mailbox("requests", MailboxOptions::default()).unwrap();
    node.create_mailbox("replies", MailboxOptions::default()).unwrap();
    node.create_task("copy", "requests", [("to", "replies")]).unwrap();
    let (mut writer, mut reader) = (node.writer("requests").unwrap(), node.reader("replies").unwrap());
    for length in [0, 1, 1000, 60_000] {
        let message = vec![length as u8; length];
        writer.put(&message).unwrap();
        assert_eq!(get(&mut reader), message);
    }
    assert_eq!(context.mailboxes().unwrap()[1].upcall.as_deref(), Some("copy"));
    assert!(matches!(node.create_task("discard", "replies", [("", ""); 0]).unwrap_err(), Error::Busy(_)));
    node.create_mailbox("calls", MailboxOptions::default()).unwrap();
    assert!(matches!(node.create_task("call", "calls", [("procedure", "1")]).unwrap_err(), Error::Refused(_)));
    node.end_task("requests").unwrap();
    assert_eq!(node.name().unwrap(), "here");
}

#[test]
fn a_full_mailbox_holds_its_writer_and_nothing_else_of_its_session() {
    let (context, node) = start(|_| {});
    let options = MailboxOptions { bound_messages: Some(8), ..MailboxOptions::default() };
    node.create_mailbox("small", options).unwrap();
    node.create_mailbox("other", MailboxOptions::default()).unwrap();
    let mut writer = node.writer_with("small", WriterOptions { ahead: Some(4), ..WriterOptions::default() }).unwrap();
    let mut put = 0u32;
    // Its credit, and again while there is room; no more.
    while writer.begin_put_timeout(4, Duration::from_millis(50)).unwrap().is_some_and(|mut message| {
        message.copy_from_slice(&put.to_le_bytes());
        writer.end_put(message).is_ok()
    }) {
        put += 1;
        assert!(put < 100, "no bound holds");
    }
    assert!(put >= 8);
    let (mut of_other, mut from_other) = (node.writer("other").unwrap(), node.reader("other").unwrap());
    of_other.put(b"x").unwrap();
    assert_eq!(get(&mut from_other), b"x");
    let second = connect(&context);
    let mut reader = second.reader_with("small", ReaderOptions { ahead: Some(2) }).unwrap();
    let filled = put;
    let rest = std::thread::spawn(move || {
        for number in filled..filled + 500 {
            writer.put(&number.to_le_bytes()).unwrap();
        }
        writer.flush().unwrap();
        writer
    });
    for number in 0..filled + 500 {
        assert_eq!(get(&mut reader), number.to_le_bytes());
    }
    drop(rest.join().unwrap());
}

#[test]
fn clients_with_an_open_mailbox_are_notified_of_its_end() {
    let (context, node) = start(|_| {});
    let other = connect(&context);
    node.create_mailbox("a", MailboxOptions::default()).unwrap();
    let (mut writer, mut reader) = (other.writer("a").unwrap(), other.reader("a").unwrap());
    // The read side of `rings` is taken, for sessions and tasks alike.
    assert!(matches!(node.reader("a").map(drop).unwrap_err(), Error::Busy(_)));
    assert!(node.create_task("discard", "a", [("", ""); 0]).is_err());
    assert!(matches!(other.delete_mailbox("a").unwrap_err(), Error::Refused(_)), "it is another session's");
    node.delete_mailbox("a").unwrap();
    let error = reader.begin_get_timeout(PATIENCE).map(drop).unwrap_err();
    assert!(matches!(error, Error::MailboxClosed { .. }), "{error}");
    while writer.put(b"x").is_ok() {}
    // The objects that a session made go with it.
    node.create_mailbox("b", MailboxOptions::default()).unwrap();
    node.create_task("discard", "b", [("", ""); 0]).unwrap();
    let mut writer = other.writer("b").unwrap();
    drop(node);
    while writer.put(b"x").is_ok() {}
    assert!(context.mailboxes().unwrap().is_empty());
    assert!(matches!(other.writer("b").map(drop).unwrap_err(), Error::UnknownMailbox(_)));
}
