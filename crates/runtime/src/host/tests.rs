//! Which of the sides that sessions over packets have open are looked at, and when.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use super::services::Services;
use super::*;
use crossdock_mailbox::DoorbellPage;
use crossdock_mailbox::host::{HostConfig, Implementation};
use crossdock_transport::Reply;
use crossdock_transport::control::Side;

const DAEMON: Owner = Owner::Daemon;

fn host() -> Host {
    Host::new(HostInterface::new(HostConfig::default(), DoorbellPage::new().unwrap()).unwrap(), Services::absent())
}

fn create(host: &mut Host, name: &str, bound_messages: u32) -> MailboxKey {
    let implementation = Implementation::SignalQueue;
    let options = MailboxOptions { implementation, bound_messages: Some(bound_messages), bound_bytes: None };
    host.create_mailbox(DAEMON, name, options).unwrap();
    host.interface.find(name).unwrap()
}

fn open(host: &mut Host, peer: usize, name: &str, side: Side, ahead: u32) -> u16 {
    match host.open_remote(peer, 0, name, side, Some(ahead)).unwrap() {
        Reply::MailboxOpened { number, .. } => number,
        other => panic!("{other:?}"),
    }
}

/// Serves the sides that are due; the peers of the readers that were looked at, each with how many messages it got.
fn serve(host: &mut Host) -> Vec<(usize, usize)> {
    let mut looked_at = Vec::new();
    host.serve_sides(|side, interface| {
        let mut got = 0;
        while side.takes_messages()
            && let Some(message) = interface.get(side.mailbox)
        {
            side.sent(message);
            got += 1;
        }
        looked_at.push((side.peer, got));
    });
    looked_at
}

fn put(host: &mut Host, mailbox: MailboxKey, messages: usize) {
    (0..messages).for_each(|_| host.interface.put_bytes(mailbox, b"message").unwrap());
}

fn replenished(host: &mut Host) -> Vec<(usize, u32)> {
    let next = || match host.next_replenished() {
        Some((peer, Notice::MayPut { messages, .. })) => Some((peer, messages)),
        other => other.map(|other| panic!("{other:?}")),
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn readers_are_looked_at_when_there_is_something_for_them_and_one_after_the_other() {
    let mut host = host();
    let (mailbox, other) = (create(&mut host, "m", 100), create(&mut host, "other", 100));
    for peer in 0..50 {
        open(&mut host, 1000 + peer, "other", Side::Read, 8);
    }
    let first = open(&mut host, 1, "m", Side::Read, 2);
    open(&mut host, 2, "m", Side::Read, 2);
    assert_eq!(serve(&mut host).len(), 52, "each is looked at once, when it was opened");
    assert_eq!(serve(&mut host), []);
    put(&mut host, mailbox, 1);
    assert_eq!(serve(&mut host), [(1, 1)]);
    // The one that was served is behind the other now. The rest is for the first, as far as it takes it.
    put(&mut host, mailbox, 5);
    assert_eq!(serve(&mut host), [(2, 2), (1, 1)]);
    assert_eq!(serve(&mut host), []);
    host.get_messages(1, first, 1, &[]);
    assert_eq!(serve(&mut host), [(1, 1)]);
    host.get_messages(1, first, 2, &[]);
    assert_eq!(serve(&mut host), [(1, 1)]);
    assert_eq!(serve(&mut host), []);
    put(&mut host, other, 1);
    assert_eq!(serve(&mut host), [(1000, 1)]);
}

#[test]
fn messages_that_wait_for_a_closing_reader_are_for_the_next() {
    let mut host = host();
    let mailbox = create(&mut host, "m", 100);
    open(&mut host, 1, "m", Side::Read, 4);
    open(&mut host, 2, "m", Side::Read, 4);
    serve(&mut host);
    put(&mut host, mailbox, 1);
    // It is called, and is gone before it is looked at.
    assert!(host.next_closed_side().is_none());
    host.close_all_remote(1);
    assert_eq!(serve(&mut host), [(2, 1)]);
    host.delete_mailbox(DAEMON, "m").unwrap();
    assert!(matches!(host.next_closed_side(), Some((2, Notice::MailboxClosed { number: 0, .. }))));
    assert!(host.next_closed_side().is_none() && host.has_no_sides());
    assert_eq!(serve(&mut host), []);
}

/// The messages in a mailbox, in order.
fn drain(host: &mut Host, mailbox: MailboxKey) -> Vec<u8> {
    let next = || {
        let message = host.interface.get(mailbox)?;
        let mut byte = [0];
        assert!(host.interface.read(&message, 0, &mut byte));
        host.interface.free(message);
        Some(byte[0])
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn messages_that_a_reader_has_not_ended_are_the_first_in_the_mailbox_again() {
    let mut host = host();
    let mailbox = create(&mut host, "m", 100);
    // The messages that it has ended, and those that it holds among the oldest; what comes to the next one.
    let cases: [(u32, &[u32], &[u8]); 6] = [
        (0, &[], &[0, 1, 2, 3, 4, 5]),
        (3, &[], &[3, 4, 5]),
        (2, &[0], &[0, 3, 4, 5]),
        (2, &[0, 2], &[0, 2, 4, 5]),
        // Not in ascending order: only what is, is heeded.
        (2, &[2, 1, 0, 900], &[2, 3, 4, 5]),
        (9, &[1], &[1, 4, 5]),
    ];
    for (ended, held, expected) in cases {
        let number = open(&mut host, 1, "m", Side::Read, 4);
        (0..6).for_each(|byte| host.interface.put_bytes(mailbox, &[byte]).unwrap());
        assert_eq!(serve(&mut host), [(1, 4)]);
        host.get_messages(1, number, ended, held);
        assert!(host.close_remote(1, number));
        assert_eq!(drain(&mut host, mailbox), expected);
    }
    let status = host.interface.mailboxes().remove(0);
    assert_eq!((status.depth, status.bytes, status.losses.iter().count()), (0, 0, 0));
    assert_eq!(status.puts, status.gets);
}

#[test]
fn a_reader_is_sent_a_bounded_number_of_bytes_that_it_has_not_ended() {
    let mut host = host();
    let mailbox = create(&mut host, "m", 100);
    let number = open(&mut host, 1, "m", Side::Read, 100);
    (0..8).for_each(|_| host.interface.put_bytes(mailbox, &vec![0; 1 << 20]).unwrap());
    assert_eq!(serve(&mut host), [(1, 4)]);
    assert_eq!(serve(&mut host), []);
    host.get_messages(1, number, 2, &[]);
    assert_eq!(serve(&mut host), [(1, 2)]);
}

#[test]
fn writers_of_a_full_mailbox_get_credit_when_it_has_room() {
    let mut host = host();
    let mailbox = create(&mut host, "m", 4);
    let writers: Vec<u16> = (1..4).map(|peer| open(&mut host, peer, "m", Side::Write, 4)).collect();
    for peer in 1..4 {
        for _ in 0..2 {
            let number = u32::from(writers[peer - 1]);
            assert_eq!(host.put_message(peer, number, b"message"), MessagePut::Done);
        }
    }
    // The first had room; the second has filled it.
    assert_eq!(replenished(&mut host), [(1, 2)]);
    serve(&mut host);
    assert_eq!(replenished(&mut host), []);
    let message = host.interface.get(mailbox).unwrap();
    host.interface.free(message);
    serve(&mut host);
    assert_eq!(replenished(&mut host), [], "of the six there are five left");
    open(&mut host, 9, "m", Side::Read, 2);
    assert_eq!(serve(&mut host), [(9, 2)]);
    assert_eq!(replenished(&mut host), [(2, 2), (3, 2)]);
    assert_eq!((serve(&mut host), replenished(&mut host)), (vec![], vec![]));
}
