//! Messages of mailboxes that no reader gets: counted by mailbox and reason, and reported to the writers, near and far.

use crossdock_nectarine::{Implementation, MailboxOptions, Node, Transport, Writer, WriterOptions};
use crossdock_runtime::{ContextConfig, ContextHandle};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, [Node; 2]) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    let nodes = [Transport::Shm, Transport::Udp].map(|way| Node::builder(&addr).transport(way).connect().unwrap());
    (handle, nodes)
}

fn create(node: &Node, name: &str, bound_messages: u32) {
    let implementation = Implementation::SignalQueue;
    let options = MailboxOptions { implementation, bound_messages: Some(bound_messages), bound_bytes: None };
    node.create_mailbox(name, options).unwrap();
}

/// The drops of a mailbox, by reason.
fn dropped(context: &ContextHandle, name: &str) -> Vec<(String, u64)> {
    context.mailboxes().unwrap().into_iter().find(|mailbox| mailbox.name == name).unwrap().dropped
}

fn of(reason: &str, messages: u64) -> Vec<(String, u64)> {
    vec![(reason.to_owned(), messages)]
}

/// Waits until a writer was notified of `messages` messages that were dropped for a reason.
fn notified(writer: &mut Writer, reason: &str, messages: u64) {
    let mut found = 0;
    while found < messages {
        let dropped = writer.next_dropped(Some(Duration::from_secs(60))).unwrap().expect("a report within 60 s");
        assert!(dropped.reason.ends_with(&format!("({reason})")), "{dropped:?}");
        found += dropped.messages;
    }
    assert_eq!(found, messages);
}

#[test]
fn a_message_that_is_too_long_for_a_remote_reader_is_reported_to_all_writers() {
    let (context, [here, there]) = start(|config| config.buffer_bytes = 8 << 20);
    create(&here, "m", 100);
    let (mut near, mut far) = (here.writer("m").unwrap(), there.writer("m").unwrap());
    let mut reader = there.reader("m").unwrap();
    near.put(&vec![1; 3 << 20]).unwrap();
    near.put(b"short").unwrap();
    assert_eq!(*reader.begin_get().unwrap(), *b"short");
    notified(&mut near, "too_long", 1);
    notified(&mut far, "too_long", 1);
    assert_eq!(dropped(&context, "m"), of("too_long", 1));
    let in_all = context.context().unwrap().dropped;
    assert!(in_all.contains(&("message_too_long".to_owned(), 1)), "{in_all:?}");
    assert_eq!(near.next_dropped(Some(Duration::ZERO)).unwrap(), None);
    context.stop().unwrap();
}

#[test]
fn messages_that_a_remote_reader_had_not_ended_are_for_the_next_one_when_it_goes() {
    let (context, [here, there]) = start(|_| {});
    create(&here, "m", 100);
    let (mut writer, mut reader) = (there.writer("m").unwrap(), there.reader("m").unwrap());
    for number in 0..5u8 {
        writer.put(&[number]).unwrap();
    }
    let got: Vec<_> = (0..5).map(|_| reader.begin_get().unwrap()).collect();
    let (ended, held): (Vec<_>, Vec<_>) = got.into_iter().partition(|message| [1, 3].contains(&message[0]));
    ended.into_iter().for_each(|message| reader.end_get(message));
    drop(reader);
    // By either way, before what comes later.
    writer.put(&[5]).unwrap();
    let mut next = there.reader("m").unwrap();
    assert_eq!(*next.begin_get().unwrap(), [0]);
    drop(next);
    let mut next = here.reader("m").unwrap();
    let rest: Vec<u8> = (0..3).map(|_| next.begin_get().unwrap()[0]).collect();
    assert_eq!(rest, [2, 4, 5]);
    drop(held);
    assert_eq!(next.try_begin_get().unwrap().as_deref(), None);
    assert_eq!(dropped(&context, "m"), []);
    context.stop().unwrap();
}

#[test]
fn messages_that_wait_for_memory_when_their_writer_goes_are_counted() {
    let (context, [_here, there]) = start(|config| config.host.inbox_bytes = 1 << 20);
    create(&there, "m", 1000);
    let options = WriterOptions { ahead: Some(64), ..WriterOptions::default() };
    let mut writer = there.writer_with("m", options).unwrap();
    for _ in 0..64 {
        writer.put(&[7; 60_000]).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    // The answer comes after the writer's side is closed.
    create(&there, "later", 1);
    let mailboxes = context.mailboxes().unwrap();
    let info = mailboxes.iter().find(|mailbox| mailbox.name == "m").unwrap();
    assert!((1..64).contains(&info.depth), "{}", info.depth);
    assert_eq!(info.dropped, of("writer_gone", 64 - u64::from(info.depth)));
    context.stop().unwrap();
}

#[test]
fn drops_of_a_task_are_reported_to_the_writers_of_its_mailbox() {
    let (context, [here, there]) = start(|_| {});
    create(&here, "in", 100);
    create(&here, "out", 1);
    here.create_task("echo", "in", [("to", "out")]).unwrap();
    let (mut near, mut far) = (here.writer("in").unwrap(), there.writer("in").unwrap());
    for _ in 0..3 {
        far.put(b"x").unwrap();
    }
    notified(&mut far, "full", 2);
    notified(&mut near, "full", 2);
    assert_eq!((dropped(&context, "in"), dropped(&context, "out")), (of("full", 2), Vec::new()));
    context.stop().unwrap();
}

#[test]
fn a_deleted_mailbox_that_lost_messages_stays_in_the_list() {
    let (context, [here, there]) = start(|_| {});
    create(&here, "m", 100);
    create(&here, "empty", 100);
    let mut writer = there.writer("m").unwrap();
    for _ in 0..3 {
        writer.put(b"x").unwrap();
    }
    writer.flush().unwrap();
    here.delete_mailbox("m").unwrap();
    here.delete_mailbox("empty").unwrap();
    let mailboxes = context.mailboxes().unwrap();
    let rows: Vec<_> = mailboxes.iter().map(|m| (m.name.as_str(), m.owner.as_str())).collect();
    assert_eq!(rows, [("m", "deleted")]);
    assert_eq!(mailboxes[0].dropped, of("undeliverable", 3));
    context.stop().unwrap();
}
