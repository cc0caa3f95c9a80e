//! The daemon's side of the host interface, driven by raw clients: every operation, every bound, every violation, and that
//! nothing is ever lost of what a client held.

#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod bursts;
mod direct;
mod fairness;
mod hostile;
mod lane;
mod sent;

use crossdock_mailbox::host::raw::{RawClient, RawDescriptor};
use crossdock_mailbox::host::{
    Arrival, ClientKey, DomainSegments, Hold, HostConfig, HostError, HostInterface, Implementation, MailboxOptions,
    MessageLoss, Owner, PortOptions, Side,
};
use crossdock_mailbox::{DoorbellPage, HugePages, Reason};
use std::sync::Arc;

const PUT: u8 = 1;
const FREE: u8 = 2;
const ENQUEUE: u8 = 3;
const REQUEST: u8 = 4;
const WITHDRAW: u8 = 9;
const ALLOC: u8 = 16;
const SIGNAL_PUT: u8 = 17;
const GET: u8 = 18;
const SIGNAL_FREE: u8 = 19;
const SIGNAL_ENQUEUE: u8 = 20;
const CANCEL: u8 = 21;
const SYNC_WRITE: u8 = 22;
const SIGNAL: u8 = 23;
const CALL: u8 = 24;
const LISTEN: u8 = 25;
const GRANT: u8 = 1;
const MESSAGE: u8 = 2;
const REFUSED: u8 = 3;
const CLOSED: u8 = 4;
const UPCALL: u8 = 26;

const SHARED_BYTES: u64 = 8 << 20;

struct World {
    host: HostInterface,
    bell: DoorbellPage,
    domains: Vec<Arc<DomainSegments>>,
}

fn config() -> HostConfig {
    HostConfig {
        max_clients: 4,
        max_mailboxes: 4,
        shared_bytes: SHARED_BYTES,
        inbox_bytes: 4 << 20,
        client_bytes: 4 << 20,
        bound_messages: 8,
        bound_bytes: 1 << 20,
        max_message_bytes: 1 << 20,
        direct_rings: false,
    }
}

fn domain(name: &str) -> Arc<DomainSegments> {
    Arc::new(DomainSegments::new(name, SHARED_BYTES, 4 << 20, HugePages::None).unwrap())
}

impl World {
    fn new(domains: usize) -> World {
        World::with(config(), domains)
    }

    fn with(config: HostConfig, domains: usize) -> World {
        let host = HostInterface::new(config, DoorbellPage::new().unwrap()).unwrap();
        let domains = (0..domains).map(|n| domain(&format!("domain {n}"))).collect();
        World { host, bell: DoorbellPage::new().unwrap(), domains }
    }

    fn attach(&mut self, domain: usize) -> (RawClient, ClientKey) {
        let (client, prepared) = RawClient::new(&self.domains[domain], &self.bell).unwrap();
        let key = self.host.admit(prepared, 0).unwrap();
        (client, key)
    }

    /// Lets the core work until nothing is left; what was for the context.
    fn turn(&mut self) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        while !self.host.is_quiet() {
            arrivals.extend(std::iter::from_fn(|| self.host.poll()));
        }
        arrivals.extend(self.host.poll());
        self.host.end_turn();
        arrivals
    }

    /// A turn in which nothing may be for the context.
    fn quiet_turn(&mut self) {
        let arrivals = self.turn();
        assert!(arrivals.is_empty(), "{arrivals:?}");
    }

    /// Opens a side; the port it was given.
    fn open(&mut self, client: &mut RawClient, key: ClientKey, name: &str, side: Side) -> (u16, u16) {
        let opened = self.host.open(key, name, side, PortOptions::default()).unwrap();
        let port = opened.port.unwrap_or(u16::MAX);
        if opened.port.is_some() {
            client.begin_port(port);
        }
        (opened.number, port)
    }

    fn create(&mut self, name: &str, implementation: Implementation, bound: u32) {
        let options = MailboxOptions { implementation, bound_messages: Some(bound), bound_bytes: None };
        self.host.create(Owner::Daemon, name, options).unwrap();
    }

    /// Buffers in use in all domains of clients.
    fn in_use(&self) -> (u32, u64) {
        self.host
            .domains()
            .iter()
            .map(|d| (d.shared.0 + d.inbox.0, d.shared.1 + d.inbox.1))
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }
}

fn grants(client: &mut RawClient, port: u16) -> Vec<RawDescriptor> {
    let entries: Vec<_> = std::iter::from_fn(|| client.pop(port)).collect();
    assert!(entries.iter().all(|entry| entry.0 == GRANT), "{entries:?}");
    entries
}

/// Writes a message into a granted slot and puts it.
fn put(client: &mut RawClient, port: u16, grant: RawDescriptor, text: &[u8]) {
    let (_, slot, generation, _, offset, len) = grant;
    assert!(text.len() as u32 <= len);
    assert!(client.write(offset, text));
    client.push(port, (PUT, slot, generation, 0, offset, text.len() as u32));
}

fn text(client: &RawClient, message: RawDescriptor) -> Vec<u8> {
    let (op, _, _, target, offset, len) = message;
    assert_eq!(op, MESSAGE);
    let mut bytes = vec![0; len as usize];
    assert!(client.read(target & 1 == 1, offset, &mut bytes));
    bytes
}

#[test]
fn a_session_carries_packets_both_ways_and_grants_come_back() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    let granted = grants(&mut client, 0);
    assert_eq!(granted.len(), 8);
    put(&mut client, 0, granted[3], b"hello");
    let arrivals = world.turn();
    let [Arrival::Session { client: from, .. }] = &arrivals[..] else { panic!("{arrivals:?}") };
    assert_eq!(*from, key);
    let Some(Arrival::Session { message, .. }) = arrivals.into_iter().next() else { unreachable!() };
    let mut bytes = [0; 5];
    assert!(world.host.read(&message, 0, &mut bytes) && !world.host.read(&message, 1, &mut bytes));
    assert_eq!(&bytes, b"hello");
    world.host.free(message);
    for grant in &granted[4..7] {
        put(&mut client, 0, *grant, b"more");
    }
    for arrival in world.turn() {
        let Arrival::Session { message, .. } = arrival else { panic!() };
        world.host.free(message);
    }
    assert_eq!(grants(&mut client, 0).len(), 4, "granted anew, half of them together, in the turn of the put");

    let mut draft = world.host.begin_send(key, 100).unwrap();
    draft[..3].copy_from_slice(b"abc");
    let mut answer = draft.finish(3);
    answer.label(7, 2, true);
    world.host.send(key, answer);
    assert_eq!(world.host.backlog_bytes(key), 3);
    let message = client.pop(1).unwrap();
    assert_eq!((text(&client, message), message.3 >> 1), (b"abc".to_vec(), 7));
    client.push(1, (FREE, message.1, message.2, 0, 0, 0));
    world.quiet_turn();
    assert_eq!(world.host.backlog_bytes(key), 0);
    assert!(world.host.detach(key) && !world.host.detach(key));
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn a_message_passes_in_place_within_a_domain_and_is_copied_between_two() {
    let mut world = World::new(2);
    let (mut writer, writer_key) = world.attach(0);
    for (domain, name) in [(0, "near"), (1, "far")] {
        let (mut reader, reader_key) = world.attach(domain);
        world.create(name, Implementation::Rings, 8);
        let (_, put_port) = world.open(&mut writer, writer_key, name, Side::Write);
        let (_, get_port) = world.open(&mut reader, reader_key, name, Side::Read);
        let grant = grants(&mut writer, put_port)[0];
        put(&mut writer, put_port, grant, b"in transit");
        world.quiet_turn();
        let message = reader.pop(get_port).unwrap();
        assert_eq!(text(&reader, message), b"in transit");
        assert_eq!(message.3 & 1 == 0, domain == 0, "in the shared segment only within the domain");
        assert_eq!(message.4 == grant.4, domain == 0);
        // Ended, with its prefix cut off, into nothing: a free takes no range.
        reader.push(get_port, (FREE, message.1, message.2, 0, u32::MAX, u32::MAX));
        world.quiet_turn();
    }
    assert_eq!(world.host.counters().crossed, 1);
    world.host.detach(writer_key);
    for client in world.host.clients() {
        world.host.detach(client.key);
    }
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn a_full_mailbox_withholds_grants_until_its_reader_ends_messages() {
    let mut world = World::new(1);
    let (mut writer, writer_key) = world.attach(0);
    let (mut reader, reader_key) = world.attach(0);
    world.create("bounded", Implementation::Rings, 4);
    let (_, put_port) = world.open(&mut writer, writer_key, "bounded", Side::Write);
    let (_, get_port) = world.open(&mut reader, reader_key, "bounded", Side::Read);
    let granted = grants(&mut writer, put_port);
    let ahead = granted.len() as u32;
    for grant in granted {
        put(&mut writer, put_port, grant, b"x");
        world.quiet_turn();
    }
    // Those granted ahead come on top of the bound; none is granted anew while it is full.
    assert!(grants(&mut writer, put_port).is_empty());
    let info = &world.host.mailboxes()[0];
    assert_eq!((info.depth, info.waits), (ahead, 1));
    assert_eq!(world.host.client_info(writer_key).unwrap().waits, 1);
    // The reader ends all but three: the writer is due buffers again.
    let messages: Vec<_> = std::iter::from_fn(|| reader.pop(get_port)).collect();
    assert_eq!(messages.len() as u32, ahead);
    for message in &messages[..messages.len() - 3] {
        reader.push(get_port, (FREE, message.1, message.2, 0, 0, 0));
    }
    world.quiet_turn();
    assert_eq!(grants(&mut writer, put_port).len() as u32, ahead);
    assert_eq!(world.host.mailboxes()[0].depth, 3);
    world.host.detach(reader_key);
    assert_eq!(world.host.mailboxes()[0].depth, 0);
    world.host.detach(writer_key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn enqueue_moves_a_message_and_keeps_its_adjusted_range() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    world.create("first", Implementation::Rings, 8);
    world.create("second", Implementation::Rings, 8);
    let (_, put_port) = world.open(&mut client, key, "first", Side::Write);
    let (_, get_first) = world.open(&mut client, key, "first", Side::Read);
    let (to_second, _) = world.open(&mut client, key, "second", Side::Write);
    let (_, get_second) = world.open(&mut client, key, "second", Side::Read);
    let grant = grants(&mut client, put_port)[0];
    put(&mut client, put_port, grant, b"header:payload");
    world.quiet_turn();
    let (_, slot, generation, _, offset, len) = client.pop(get_first).unwrap();
    client.push(get_first, (ENQUEUE, slot, generation, to_second, offset + 7, len - 7));
    world.quiet_turn();
    let moved = client.pop(get_second).unwrap();
    assert_eq!((text(&client, moved), moved.4), (b"payload".to_vec(), grant.4 + 7));
    let [first, second] = &world.host.mailboxes()[..] else { panic!() };
    assert_eq!((first.depth, first.bytes, second.depth, second.bytes), (0, 0, 1, 7));
    world.host.detach(key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn an_upcall_takes_messages_in_place_of_a_reader() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    world.create("requests", Implementation::Rings, 8);
    world.create("replies", Implementation::Rings, 8);
    let requests = world.host.find("requests").unwrap();
    let replies = world.host.find("replies").unwrap();
    world.host.attach_upcall(requests, 42).unwrap();
    assert!(matches!(world.host.attach_upcall(requests, 1), Err(HostError::HasReader(_))));
    let (_, put_port) = world.open(&mut client, key, "requests", Side::Write);
    assert!(matches!(
        world.host.open(key, "requests", Side::Read, PortOptions::default()),
        Err(HostError::HasReader(_))
    ));
    let (_, get_port) = world.open(&mut client, key, "replies", Side::Read);
    let granted = grants(&mut client, put_port);
    let grant = granted[0];
    put(&mut client, put_port, grant, b"ping");
    let Some(Arrival::Upcall { upcall: 42, message, .. }) = world.host.poll() else { panic!() };
    world.host.put(replies, message);
    world.quiet_turn();
    let reply = client.pop(get_port).unwrap();
    assert_eq!((text(&client, reply), reply.4), (b"ping".to_vec(), grant.4), "not copied");
    // Without the upcall messages wait, and go to the next one first.
    assert_eq!(world.host.detach_upcall(requests), Some(42));
    put(&mut client, put_port, granted[1], b"pong");
    world.quiet_turn();
    world.host.attach_upcall(requests, 43).unwrap();
    let Some(Arrival::Upcall { upcall: 43, message, .. }) = world.host.poll() else { panic!() };
    world.host.free(message);
    world.host.detach(key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn the_signal_queue_serves_many_writers_and_readers() {
    let mut world = World::new(2);
    let (mut a, a_key) = world.attach(0);
    let (mut b, b_key) = world.attach(0);
    let (mut far, far_key) = world.attach(1);
    world.create("shared", Implementation::SignalQueue, 2);
    let (a_writes, _) = world.open(&mut a, a_key, "shared", Side::Write);
    let (b_writes, _) = world.open(&mut b, b_key, "shared", Side::Write);
    let (b_reads, _) = world.open(&mut b, b_key, "shared", Side::Read);
    let (far_reads, _) = world.open(&mut far, far_key, "shared", Side::Read);
    let granted = |world: &mut World, client: &mut RawClient, number, tag| {
        client.push_signal((ALLOC, 0, 0, number, 0, 100), tag, 0);
        world.quiet_turn();
        let (head, answered, _) = client.pop_signal().unwrap();
        assert_eq!((head.0, answered), (GRANT, tag));
        head
    };
    let one = granted(&mut world, &mut a, a_writes, 1);
    let two = granted(&mut world, &mut b, b_writes, 2);
    for (client, number, grant, text) in [(&mut a, a_writes, one, b"one"), (&mut b, b_writes, two, b"two")] {
        client.write(grant.4, text);
        client.push_signal((SIGNAL_PUT, grant.1, grant.2, number, grant.4, 3), 0, 0);
        world.quiet_turn();
    }
    // It is full: a try is refused, who waits gets a buffer when a message has been ended.
    a.push_signal((ALLOC, 0, 0, a_writes, 0, 100), 3, 1);
    a.push_signal((ALLOC, 0, 0, a_writes, 0, 100), 4, 0);
    world.quiet_turn();
    let (head, tag, _) = a.pop_signal().unwrap();
    assert_eq!((head.0, head.3, tag), (REFUSED, Reason::Full as u16, 3));
    assert!(a.pop_signal().is_none());
    far.push_signal((GET, 0, 0, far_reads, 0, 0), 5, 0);
    world.quiet_turn();
    let (head, tag, _) = far.pop_signal().unwrap();
    assert_eq!((text(&far, head), tag), (b"one".to_vec(), 5));
    assert!(a.pop_signal().is_none());
    far.push_signal((SIGNAL_FREE, head.1, head.2, 0, 0, 0), 0, 0);
    world.quiet_turn();
    assert_eq!(a.pop_signal().map(|(head, tag, _)| (head.0, tag)), Some((GRANT, 4)));
    // The next reader takes the next message; then there is none.
    b.push_signal((GET, 0, 0, b_reads, 0, 0), 6, 1);
    b.push_signal((GET, 0, 0, b_reads, 0, 0), 7, 1);
    b.push_signal((GET, 0, 0, b_reads, 0, 0), 8, 0);
    world.quiet_turn();
    let (two, tag, _) = b.pop_signal().unwrap();
    assert_eq!((text(&b, two), tag), (b"two".to_vec(), 6));
    assert_eq!(b.pop_signal().map(|(head, tag, _)| (head.0, head.3, tag)), Some((REFUSED, Reason::Empty as u16, 7)));
    assert!(b.pop_signal().is_none());
    // Moved back in, it goes to who waits first; the client that cancelled is notified, and gets none.
    b.push_signal((CANCEL, 0, 0, 0, 0, 0), 8, 0);
    b.push_signal((CANCEL, 0, 0, 0, 0, 0), 99, 0);
    far.push_signal((GET, 0, 0, far_reads, 0, 0), 9, 0);
    b.push_signal((SIGNAL_ENQUEUE, two.1, two.2, b_writes, two.4, two.5), 0, 0);
    world.quiet_turn();
    assert_eq!(
        b.pop_signal().map(|(head, tag, _)| (head.0, head.3, tag)),
        Some((REFUSED, Reason::Cancelled as u16, 8))
    );
    assert!(b.pop_signal().is_none());
    let (head, tag, _) = far.pop_signal().unwrap();
    assert_eq!((text(&far, head), tag), (b"two".to_vec(), 9));
    for key in [a_key, b_key, far_key] {
        world.host.detach(key);
    }
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn a_client_that_waits_for_a_mailbox_delays_no_other() {
    let mut world = World::new(1);
    let (mut a, a_key) = world.attach(0);
    let (mut b, b_key) = world.attach(0);
    world.create("full", Implementation::SignalQueue, 1);
    world.create("open", Implementation::SignalQueue, 1000);
    let (full, _) = world.open(&mut a, a_key, "full", Side::Write);
    let (open, _) = world.open(&mut a, a_key, "open", Side::Write);
    let mut granted = |world: &mut World, number| {
        a.push_signal((ALLOC, 0, 0, number, 0, 10), u64::from(number), 0);
        world.quiet_turn();
        let granted = a.pop_signal().map(|(head, tag, _)| (head, tag));
        granted.inspect(|(head, tag)| {
            assert_eq!((head.0, *tag), (GRANT, u64::from(number)));
            a.push_signal((SIGNAL_PUT, head.1, head.2, number, head.4, 1), 0, 0);
            world.quiet_turn();
        })
    };
    assert!(granted(&mut world, full).is_some());
    assert!(granted(&mut world, full).is_none(), "it waits");
    // As many as a client can hold, and one more.
    for _ in 0..257 {
        assert!(granted(&mut world, open).is_some());
    }
    let (a_reads, _) = world.open(&mut a, a_key, "open", Side::Read);
    let (b_reads, _) = world.open(&mut b, b_key, "open", Side::Read);
    for tag in 0..256 {
        a.push_signal((GET, 0, 0, a_reads, 0, 0), tag, 0);
        world.quiet_turn();
        assert_eq!(a.pop_signal().map(|(head, ..)| head.0), Some(MESSAGE));
    }
    b.push_signal((GET, 0, 0, b_reads, 0, 0), 7, 0);
    world.quiet_turn();
    assert_eq!(b.pop_signal().map(|(head, ..)| head.0), Some(MESSAGE));
    a.push_signal((GET, 0, 0, a_reads, 0, 0), 8, 0);
    world.quiet_turn();
    b.push_signal((GET, 0, 0, b_reads, 0, 0), 9, 0);
    world.quiet_turn();
    let mut draft = world.host.begin_put(world.host.find("open").unwrap(), 1).unwrap();
    draft[0] = 1;
    world.host.put(world.host.find("open").unwrap(), draft.finish(1));
    world.quiet_turn();
    assert_eq!(a.pop_signal().map(|(head, tag, _)| (head.0, head.3, tag)), Some((REFUSED, Reason::Quota as u16, 8)));
    assert_eq!(b.pop_signal().map(|(head, tag, _)| (head.0, tag)), Some((MESSAGE, 9)));
    world.host.detach(a_key);
    world.host.detach(b_key);
    for name in ["full", "open"] {
        world.host.delete(Owner::Daemon, name).unwrap();
    }
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn syncs_conditions_and_calls_reach_their_domain_and_nobody_elses() {
    let mut world = World::new(2);
    let (mut a, a_key) = world.attach(0);
    let (mut b, b_key) = world.attach(0);
    let (mut far, far_key) = world.attach(1);
    let sync = a.alloc_sync(a_key, 3, 1).unwrap();
    far.push_signal((SYNC_WRITE, 0, 0, 0, 0, 0), sync, 66);
    world.quiet_turn();
    assert_eq!(a.read_sync(3, 1), None);
    b.push_signal((SYNC_WRITE, 0, 0, 0, 0, 0), sync, 77);
    far.push_signal((SIGNAL, 0, 0, 0, 0, 0), u64::from(a_key.number()) | 5 << 32, 0);
    b.push_signal((SIGNAL, 0, 0, 0, 0, 0), u64::from(a_key.number()) | 5 << 32, 0);
    world.quiet_turn();
    assert_eq!(a.read_sync(3, 1), Some(77));
    assert_eq!(world.host.counters().foreign, 2);
    // A call's result goes to a sync of the caller's own.
    let sync = a.alloc_sync(a_key, 4, 9).unwrap();
    a.push_signal((CALL, 0, 0, 12, 0, 0), sync, 500);
    let Some(Arrival::Call { client, procedure: 12, argument: 500, result }) = world.host.poll() else { panic!() };
    assert_eq!(client, a_key);
    world.host.write_sync(result, 501);
    assert_eq!(a.read_sync(4, 9), Some(501));
    b.push_signal((CALL, 0, 0, 12, 0, 0), sync, 500);
    assert!(matches!(world.turn()[..], [Arrival::Violation { client, .. }] if client == b_key));
    // An upcall into a client needs its leave; its result comes back, or word that it has gone.
    assert!(!world.host.upcall(a_key, 1, 2, 3));
    // Bit 0 of the second word is for errors.
    for kinds in [1, 2, 3] {
        a.push_signal((LISTEN, 0, 0, 0, 0, 0), 0, kinds);
    }
    world.quiet_turn();
    assert!(
        world.host.upcall(a_key, 1, 2, 3) && world.host.upcall(a_key, 1, 2, 4) && !world.host.upcall(a_key, 1, 2, 5)
    );
    let (head, argument, result) = a.pop_signal().unwrap();
    assert_eq!((head.0, head.3, argument), (UPCALL, 1, 2));
    a.push_signal((SYNC_WRITE, 0, 0, 0, 0, 0), result, 1000);
    a.push_signal((SYNC_WRITE, 0, 0, 0, 0, 0), result, 2000);
    assert!(matches!(world.turn()[..], [Arrival::Returned { ticket: 3, value: Some(1000) }]));
    world.host.detach(a_key);
    assert!(matches!(world.turn()[..], [Arrival::Returned { ticket: 4, value: None }]));
    let _ = far_key;
}

#[test]
fn every_table_says_which_of_it_is_full() {
    let mut world = World::new(1);
    let clients: Vec<_> = (0..4).map(|_| world.attach(0)).collect();
    let (_fifth, prepared) = RawClient::new(&world.domains[0], &world.bell).unwrap();
    let refused = world.host.admit(prepared, 0).unwrap_err().to_string();
    assert!(refused.contains("4 attached clients") && refused.contains("max_clients"), "{refused}");
    for name in ["a", "b", "c", "d"] {
        world.create(name, Implementation::Rings, 8);
    }
    let refused = world.host.create(Owner::Daemon, "e", MailboxOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("4 mailboxes") && refused.contains("max_mailboxes"), "{refused}");
    for (name, wrong) in [("a", "already"), ("", "name"), ("x/y", "name"), ("x\n", "name")] {
        let refused = world.host.create(Owner::Daemon, name, MailboxOptions::default()).unwrap_err().to_string();
        assert!(refused.contains(wrong), "{name}: {refused}");
    }
    assert!(world.host.find("z").unwrap_err().to_string().contains("no mailbox `z`"));
    let (first, second) = (clients[0].1, clients[1].1);
    world.host.open(first, "a", Side::Write, PortOptions::default()).unwrap();
    let refused = world.host.open(second, "a", Side::Write, PortOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("write side") && refused.contains("signal_queue"), "{refused}");
    world.host.create(Owner::Client(first.number()), "mine", MailboxOptions::default()).unwrap_err();
    world.host.delete(Owner::Daemon, "b").unwrap();
    world.host.create(Owner::Client(first.number()), "mine", MailboxOptions::default()).unwrap();
    let refused = world.host.delete(Owner::Client(second.number()), "mine").unwrap_err().to_string();
    assert!(refused.contains("belongs to another"), "{refused}");
    world.host.detach(first);
    assert!(world.host.find("mine").is_err(), "it goes with its owner");
    let long = world.host.begin_send(second, (1 << 20) + 1).unwrap_err().to_string();
    assert!(long.contains("longer than the daemon takes"), "{long}");
    let drafts: Vec<_> = std::iter::from_fn(|| world.host.begin_send(second, 1 << 20).ok()).collect();
    assert_eq!(drafts.len(), 4);
    let full = world.host.begin_send(second, 1 << 20).unwrap_err().to_string();
    assert!(full.contains("inbox_bytes"), "{full}");
    drop(drafts);
    world.turn();
    let message = world.host.begin_send(second, 10).unwrap().finish(10);
    world.host.send(second, message);
    for (_, key) in clients {
        world.host.detach(key);
    }
    world.turn();
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn large_buffers_are_asked_for_and_refused_with_a_reason() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    world.create("large", Implementation::Rings, 8);
    let (_, port) = world.open(&mut client, key, "large", Side::Write);
    grants(&mut client, port);
    let request = |world: &mut World, client: &mut RawClient, bytes: u32, tries: u16| {
        client.push(port, (REQUEST, 0, 0, tries, 0, bytes));
        world.quiet_turn();
        client.pop(port)
    };
    let grant = request(&mut world, &mut client, 1 << 20, 0).unwrap();
    assert_eq!((grant.0, grant.5), (GRANT, 1 << 20));
    let refused = request(&mut world, &mut client, (1 << 20) + 1, 0).unwrap();
    assert_eq!((refused.0, refused.3, refused.5), (REFUSED, Reason::TooLong as u16, 1 << 20));
    // The quota is 4 MiB; the session and the small grants hold a part of it.
    let grants: Vec<_> =
        std::iter::from_fn(|| request(&mut world, &mut client, 1 << 20, 1).filter(|e| e.0 == GRANT)).collect();
    assert_eq!(grants.len(), 2);
    let refused = request(&mut world, &mut client, 1 << 20, 1).unwrap();
    assert_eq!((refused.0, refused.3), (REFUSED, Reason::Quota as u16));
    // A waiting client gets it once another is given back.
    assert!(request(&mut world, &mut client, 1 << 20, 0).is_none());
    client.push(port, (FREE, grant.1, grant.2, 0, 0, 0));
    world.quiet_turn();
    assert_eq!(client.pop(port).unwrap().0, GRANT);
    world.host.detach(key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn a_deleted_mailbox_notifies_all_who_have_it_open() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    world.create("rings", Implementation::Rings, 8);
    world.create("queue", Implementation::SignalQueue, 8);
    let (_, put_port) = world.open(&mut client, key, "rings", Side::Write);
    let (reads, _) = world.open(&mut client, key, "queue", Side::Read);
    let grant = grants(&mut client, put_port)[0];
    put(&mut client, put_port, grant, b"lost");
    client.push_signal((GET, 0, 0, reads, 0, 0), 1, 0);
    world.quiet_turn();
    grants(&mut client, put_port);
    world.host.delete(Owner::Daemon, "rings").unwrap();
    world.host.delete(Owner::Daemon, "queue").unwrap();
    assert_eq!(client.pop(put_port).unwrap().0, CLOSED);
    assert_eq!(
        client.pop_signal().map(|(head, tag, _)| (head.0, head.3, tag)),
        Some((REFUSED, Reason::Closed as u16, 1))
    );
    assert_eq!(world.host.counters().losses.of(MessageLoss::Undeliverable), 1);
    let deleted = |world: &World| -> Vec<(String, u64)> {
        let losses = world.host.deleted_mailboxes();
        losses.into_iter().map(|(name, losses)| (name, losses.of(MessageLoss::Undeliverable))).collect()
    };
    assert_eq!(deleted(&world), [("rings".to_owned(), 1)]);
    // One of the same name goes on with its losses.
    world.create("rings", Implementation::Rings, 8);
    assert_eq!(deleted(&world), []);
    let again = &world.host.mailboxes()[0];
    assert_eq!((again.name.as_str(), again.losses.of(MessageLoss::Undeliverable)), ("rings", 1));
    // A message that it still held can be given back, and a put into nothing is counted.
    world.quiet_turn();
    world.host.detach(key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn a_closed_side_can_be_opened_by_another() {
    let mut world = World::new(1);
    let (mut a, a_key) = world.attach(0);
    let (mut b, b_key) = world.attach(0);
    world.create("m", Implementation::Rings, 8);
    let (number, port) = world.open(&mut a, a_key, "m", Side::Write);
    let grant = grants(&mut a, port)[0];
    put(&mut a, port, grant, b"1");
    world.quiet_turn();
    world.host.close(a_key, number).unwrap();
    assert!(world.host.close(a_key, number).is_err());
    let (_, port) = world.open(&mut b, b_key, "m", Side::Write);
    let granted = grants(&mut b, port);
    put(&mut b, port, granted[0], b"2");
    let (number, reads) = world.open(&mut a, a_key, "m", Side::Read);
    world.quiet_turn();
    let first = a.pop(reads).unwrap();
    assert_eq!(text(&a, first), b"1");
    // The reader closes without having ended anything: all of it is for the next reader, in its order and before what comes later.
    world.host.close(a_key, number).unwrap();
    put(&mut b, port, granted[1], b"3");
    world.quiet_turn();
    let (_, reads) = world.open(&mut b, b_key, "m", Side::Read);
    for expected in [b"1", b"2", b"3"] {
        assert_eq!(b.pop(reads).map(|message| text(&b, message)), Some(expected.to_vec()));
    }
    assert_eq!(world.host.mailboxes()[0].losses.iter().count(), 0);
    world.host.detach(a_key);
    world.host.detach(b_key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn every_violation_detaches_and_returns_all() {
    let violations: [(u16, RawDescriptor, &str); 8] = [
        (0, (PUT, 999, 1, 0, 0, 0), "slot 999"),
        (0, (PUT, 200, 1, 0, 0, 0), "not the client's"),
        (0, (PUT, 0, 9, 0, 0, 0), "another of its lives"),
        (0, (PUT, 0, 1, 0, 0, u32::MAX), "do not lie in the buffer"),
        (0, (77, 0, 1, 0, 0, 0), "operation 77"),
        (1, (PUT, 0, 1, 0, 0, 0), "operation 1"),
        (1, (REQUEST, 0, 0, 0, 0, 1), "operation 4"),
        (0, (ENQUEUE, 0, 1, 500, 0, 0), "mailbox number 500"),
    ];
    let mut world = World::new(1);
    let (mut witness, witness_key) = world.attach(0);
    for (port, entry, reason) in violations {
        let (mut client, key) = world.attach(0);
        client.push(port, entry);
        let arrivals = world.turn();
        let [Arrival::Violation { client: who, reason: why }] = &arrivals[..] else {
            panic!("{entry:?}: {arrivals:?}")
        };
        assert!(*who == key && why.contains(reason), "{entry:?}: {why}");
        assert!(world.host.client_info(key).is_none());
        // The other one notices nothing.
        let grant = witness.pop(0).unwrap();
        put(&mut witness, 0, grant, b"still here");
        let Some(Arrival::Session { message, .. }) = world.host.poll() else { panic!() };
        world.host.free(message);
        world.quiet_turn();
    }
    assert_eq!(world.host.counters().violations, 8);
    world.host.detach(witness_key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn a_held_session_gets_no_new_buffers() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    world.host.hold(key, Hold::All);
    for grant in grants(&mut client, 0) {
        put(&mut client, 0, grant, b"x");
    }
    for arrival in world.turn() {
        let Arrival::Session { message, .. } = arrival else { panic!() };
        world.host.free(message);
    }
    assert!(client.pop(0).is_none());
    world.host.hold(key, Hold::Nothing);
    world.quiet_turn();
    assert_eq!(grants(&mut client, 0).len(), 8);
}

#[test]
fn the_oldest_undelivered_message_can_be_dropped() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    // More than a reader is given at a time.
    for n in 0..6u16 {
        let mut message = world.host.begin_send(key, 600 << 10).unwrap().finish(600 << 10);
        message.label(n, u32::from(n), n > 0);
        world.host.send(key, message);
    }
    let bytes = world.host.backlog_bytes(key);
    let delivered: Vec<u16> = std::iter::from_fn(|| client.pop(1)).map(|m| m.3 >> 1).collect();
    assert!(delivered.len() < 6 || world.host.drop_oldest(key).is_none());
    if let Some((oldest, records)) = world.host.drop_oldest(key) {
        assert_eq!((usize::from(oldest), records), (delivered.len(), u32::from(oldest)));
        assert_eq!(world.host.backlog_bytes(key), bytes - (600 << 10));
    }
    world.host.detach(key);
    assert_eq!(world.in_use(), (0, 0));
}
