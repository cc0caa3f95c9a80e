//! The duties of every carrier, checked over a session on a real device pair and over an attached client whose rings
//! the test works by hand.

mod order;

use crate::counters::Counters;
use crate::graph::run::{Outcome, process};
use crate::graph::spill::Spill;
use crate::net::carrier::{Carrier, Recipient, Wire};
use crate::net::memory::Attached;
use crate::net::packets::Link;
use crate::net::payload::{Arrived, Content, Deferred, Payload};
use crate::net::sink::{Output, SessionSink};
use crossdock_device::{Device, MemoryDevice, MemoryOptions, Poller, Sent};
use crossdock_engine::{Handler, HandlerCounters, Sink, Verdict};
use crossdock_mailbox::host::raw::RawClient;
use crossdock_mailbox::host::{Arrival, DomainSegments, HostConfig, HostInterface, PortOptions, Side};
use crossdock_mailbox::{
    Batch, DoorbellPage, HugePages, Pool, PoolConfig, SESSION_GRANT_BYTES, Selection, Slice, Span,
};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::walk;
use crossdock_transport::receiver::{self, Arriving};
use crossdock_transport::{
    Follows, HEADER_BYTES, Header, Joiner, Limits, MAX_MESSAGE_BYTES, MAX_SUPER_BYTES, Origin, PacketKind, Piece,
    Session, Traffic, TrafficClass,
};
use order::{
    control_leaves_before_waiting_records_unless_it_follows_them, name_of,
    replies_leave_in_order_and_notices_do_not_wait_for_them,
};
use std::sync::Arc;

mod one_carrier;

/// Operations of a client's port: it puts a message, it returns one, it asks for a longer buffer.
const PUT: u8 = 1;
const FREE: u8 = 2;
const REQUEST: u8 = 4;
/// The port of a client's own packets, and that of packets to it.
const UP: u16 = 0;
const DOWN: u16 = 1;

/// The parts of a context that carriers work on.
struct World {
    pool: Pool,
    host: HostInterface,
    poller: Poller,
    device: MemoryDevice,
    counters: Counters,
}

impl World {
    fn new(device: MemoryDevice) -> World {
        let classes = vec![(512, 64), (2 << 10, 16), (8 << 10, 8), (16 << 10, 4), (64 << 10, 8)];
        let config = HostConfig { inbox_bytes: 2 << 20, ..HostConfig::default() };
        World {
            pool: Pool::new(PoolConfig { classes }).unwrap(),
            host: HostInterface::new(config, DoorbellPage::new().unwrap()).unwrap(),
            poller: Poller::new().unwrap(),
            device,
            counters: Counters::default(),
        }
    }

    fn wire(&mut self) -> Wire<'_> {
        let World { pool, host, poller, device, counters } = self;
        Wire { pool, host, poller, device, counters, now_ns: 7 }
    }

    fn pooled_bytes(&self) -> u64 {
        self.pool.stats().classes.iter().map(|class| (class.in_use() * class.bytes) as u64).sum()
    }

    fn inbox_bytes(&self) -> u64 {
        self.host.domains().iter().map(|domain| domain.inbox.1).sum()
    }

    fn dropped(&self, name: &str) -> u64 {
        self.counters.dropped().iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
    }
}

/// A packet at the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Received {
    kind: PacketKind,
    subscription: u32,
    format: u64,
    records: u16,
    piece: Piece,
    payload: Vec<u8>,
}

impl Received {
    fn new(header: &Header, payload: &[u8]) -> Received {
        let Header { kind, stream: subscription, format, records, piece, .. } = *header;
        Received { kind, subscription, format, records, piece, payload: payload.to_vec() }
    }
}

/// The arrivals, with each message in pieces as one packet.
fn joined(received: Vec<Received>) -> Vec<Received> {
    let (mut control, mut data) = (Joiner::default(), Joiner::default());
    let join = |packet: Received| {
        let joiner = if packet.kind == PacketKind::Control { &mut control } else { &mut data };
        let joined =
            joiner.take(packet.piece, &packet.payload, MAX_MESSAGE_BYTES).unwrap().map(|joined| joined.to_vec());
        joined.map(|payload| Received { piece: Piece::Whole, payload, ..packet.clone() })
    };
    received.into_iter().filter_map(join).collect()
}

/// A carrier with its peer.
trait Rig {
    fn new() -> Self;

    fn parts(&mut self) -> (&mut dyn Carrier, Wire<'_>);

    fn world(&self) -> &World;

    /// The peer takes all that comes, in order.
    fn receive(&mut self) -> Vec<Received>;

    /// The peer publishes as many packets as it has credit for, which the context takes at once; how many.
    fn publish(&mut self) -> usize;

    /// The peer, which has published all that it may, sends a control message; whether it could.
    fn send_request(&mut self) -> bool;

    /// A packet of the peer waits to be taken, or is taken.
    fn defer(&mut self, waits: bool);

    /// Bytes of the memory that holds what was packed for the peer.
    fn held_bytes(&self) -> u64;

    /// The same once the carrier is gone, which has ended.
    fn held_after_end(self) -> u64;
}

/// A session over packets, and the program at its other end.
struct Packets {
    world: World,
    link: Link,
    far: MemoryDevice,
    far_pool: Pool,
    peer: Session<(), ()>,
    published: u64,
}

/// A short packet.
fn one(traffic: Traffic, first_seq: u64) -> Arriving {
    Arriving { traffic, first_seq, packets: 1, longest_bytes: 100, last_bytes: 100 }
}

impl Rig for Packets {
    fn new() -> Packets {
        let (near, far) = MemoryDevice::pair(MemoryOptions::default()).unwrap();
        let limits = Limits::new(64 * 8192, 1_000_000_000);
        let session = Session::new(3, 8192, 1 << 30, limits, 0);
        let peer_limits = Limits { window_bytes: 1 << 30, ..limits };
        Packets {
            world: World::new(near),
            link: Link::new(far.local_addr(), 0, 5, session),
            far,
            far_pool: Pool::new(PoolConfig::default()).unwrap(),
            peer: Session::new(5, 8192, 64 * 8192, peer_limits, 0),
            published: 0,
        }
    }

    fn parts(&mut self) -> (&mut dyn Carrier, Wire<'_>) {
        (&mut self.link, self.world.wire())
    }

    fn world(&self) -> &World {
        &self.world
    }

    fn receive(&mut self) -> Vec<Received> {
        let mut received = Vec::new();
        loop {
            let link = &mut self.link;
            while let Some(transmit) = link.session.sender.poll() {
                let (seq, packets) = (transmit.first_seq, transmit.packets);
                let sent = transmit.payload.transmit(&mut self.world.device, link.addr, 3, seq, packets).unwrap();
                assert_eq!(sent, Sent::Done);
                link.session.sender.transmitted(0);
            }
            let mut frames = Vec::new();
            if self.far.receive(&mut self.far_pool, &mut frames, 64).unwrap() == 0 {
                return received;
            }
            for frame in frames {
                let (mut spans, mut runs) = (Vec::new(), Vec::new());
                walk(&frame.buffer[..frame.len], frame.stride, &mut spans, &mut runs, |error| panic!("{error}"));
                for run in &runs {
                    let packets = spans[run.first..].iter().take(run.packets as usize);
                    received.extend(packets.map(|span| {
                        let header = Header { records: span.records, ..run.header };
                        Received::new(&header, &frame.buffer[span.range()])
                    }));
                    self.peer.receiver.arrive_alone(run, (), 0, |(), _| {});
                }
            }
            self.peer.receiver.control_consumed();
            self.peer.receiver.consumed_to(u64::MAX);
            self.peer.receiver.ack_soon();
            let ack = self.peer.poll_short(1_000_000_000).unwrap();
            let mut taken = 0;
            let release = |payload| {
                if let Payload::Message { content: Content::Control(message, _), from: 0, .. } = payload {
                    taken += message.len();
                }
            };
            self.link.session.on_ack(&ack.bytes()[HEADER_BYTES..], 0, release).unwrap();
            self.link.control_taken(taken);
        }
    }

    fn publish(&mut self) -> usize {
        let mut count = 0;
        let receiver = &mut self.link.session.receiver;
        while receiver.credit() > 0 {
            receiver.arrive_alone(one(Traffic::Data, self.published), Arrived::Here, 0, |_, _| {});
            self.published += 1;
            count += 1;
        }
        count
    }

    fn send_request(&mut self) -> bool {
        let receiver = &mut self.link.session.receiver;
        let arrival = receiver.arrive_alone(one(Traffic::Control, self.published), Arrived::Here, 0, |_, _| {});
        let is_taken = arrival == receiver::Arrival::Delivered;
        self.published += u64::from(is_taken);
        is_taken
    }

    fn defer(&mut self, waits: bool) {
        self.link.deferred.clear();
        self.link.deferred.extend(waits.then_some(Deferred::End("closed")));
    }

    fn held_bytes(&self) -> u64 {
        self.world.pooled_bytes()
    }

    fn held_after_end(self) -> u64 {
        drop(self.link);
        self.world.pooled_bytes()
    }
}

/// An attached client, and its rings.
struct Memory {
    world: World,
    attached: Attached,
    client: RawClient,
}

impl Rig for Memory {
    fn new() -> Memory {
        let mut world = World::new(MemoryDevice::pair(MemoryOptions::default()).unwrap().0);
        let domain = Arc::new(DomainSegments::new("test", 4 << 20, 2 << 20, HugePages::None).unwrap());
        let (client, prepared) = RawClient::new(&domain, &DoorbellPage::new().unwrap()).unwrap();
        let key = world.host.admit(prepared, 0).unwrap();
        let attached = Attached::new(&world.host, key, &mut world.poller).unwrap();
        Memory { world, attached, client }
    }

    fn parts(&mut self) -> (&mut dyn Carrier, Wire<'_>) {
        (&mut self.attached, self.world.wire())
    }

    fn world(&self) -> &World {
        &self.world
    }

    fn receive(&mut self) -> Vec<Received> {
        let mut received = Vec::new();
        loop {
            self.attached.retry(&mut self.world.host);
            let before = received.len();
            while let Some((_, slot, generation, target, offset, len)) = self.client.next(DOWN) {
                let mut bytes = vec![0; len as usize];
                assert!(self.client.read(target & 1 == 1, offset, &mut bytes));
                let (head, payload) = bytes.split_first_chunk().unwrap();
                let header = Header::parse(head, bytes.len()).unwrap();
                assert_eq!(u32::from(target >> 1), header.stream, "the label says whose it is");
                received.push(Received::new(&header, payload));
                self.client.push(DOWN, (FREE, slot, generation, 0, 0, 0));
            }
            assert!(self.take().is_empty());
            if received.len() == before && !self.attached.is_behind() {
                return received;
            }
        }
    }

    fn publish(&mut self) -> usize {
        let mut count = 0;
        for (_, slot, generation, _, offset, _) in std::iter::from_fn(|| self.client.next(UP)).collect::<Vec<_>>() {
            self.client.push(UP, (PUT, slot, generation, 0, offset, 1));
            count += 1;
        }
        for arrival in self.take() {
            let Arrival::Session { message, .. } = arrival else { panic!("{arrival:?}") };
            self.world.host.free(message);
        }
        self.world.host.end_turn();
        count
    }

    /// In a buffer longer than those that are granted ahead.
    fn send_request(&mut self) -> bool {
        assert!(self.client.next(UP).is_none());
        self.client.push(UP, (REQUEST, 0, 0, 0, 0, SESSION_GRANT_BYTES as u32 + 1));
        assert!(self.take().is_empty());
        let Some((_, slot, generation, _, offset, _)) = self.client.next(UP) else { return false };
        self.client.push(UP, (PUT, slot, generation, 0, offset, 1));
        for arrival in self.take() {
            let Arrival::Session { message, .. } = arrival else { panic!("{arrival:?}") };
            self.world.host.free(message);
        }
        true
    }

    fn defer(&mut self, waits: bool) {
        for message in self.attached.deferred.drain(..) {
            self.world.host.free(message);
        }
        if waits {
            let message = self.world.host.begin_send(self.attached.client, 64).unwrap().finish(64);
            self.attached.deferred.push_back(message);
        }
    }

    fn held_bytes(&self) -> u64 {
        self.world.inbox_bytes()
    }

    fn held_after_end(mut self) -> u64 {
        drop(self.attached);
        self.world.host.collect_dropped();
        self.world.inbox_bytes()
    }
}

impl Memory {
    /// A turn of the host interface: what it has for the context.
    fn take(&mut self) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        while !self.world.host.is_quiet() {
            arrivals.extend(std::iter::from_fn(|| self.world.host.poll()));
        }
        self.world.host.collect_dropped();
        self.world.host.end_turn();
        arrivals
    }
}

/// Control that overtakes nothing.
const IN_PLACE: TrafficClass = TrafficClass::Exchange(Follows::Everything);
const KEPT: Recipient = Recipient { subscription: 1, droppable: false };
const DROPPABLE: Recipient = Recipient { subscription: 2, droppable: true };

/// Pushes records of a format; how many were taken, and how many lost. None have to wait.
fn push(rig: &mut impl Rig, output: &mut Output, to: Recipient, format: u64, records: &[Vec<u8>]) -> (u64, u64) {
    let mut spill = Spill::default();
    let pushed = push_all(rig, output, (to, format), records.iter().map(Vec::as_slice), &mut spill);
    assert!(spill.is_empty());
    pushed
}

/// The same for records that may have to wait for buffers.
fn push_all<'r>(
    rig: &mut impl Rig,
    output: &mut Output,
    (to, format): (Recipient, u64),
    records: impl Iterator<Item = &'r [u8]>,
    spill: &mut Spill,
) -> (u64, u64) {
    let (carrier, wire) = rig.parts();
    let mut sink = SessionSink::new(output, carrier, wire, to, (format, MAX_MESSAGE_BYTES), spill);
    records.for_each(|record| sink.push(record));
    (sink.taken, sink.no_buffer + sink.too_long)
}

fn flush(rig: &mut impl Rig, output: &mut Output, to: Recipient) -> bool {
    let (carrier, mut wire) = rig.parts();
    output.flush(carrier, &mut wire, to)
}

/// Sends some records in a packet of their own.
fn send(rig: &mut impl Rig, to: Recipient, records: &[Vec<u8>]) {
    let mut output = Output::default();
    assert_eq!(push(rig, &mut output, to, 9, records), (records.len() as u64, 0));
    assert!(flush(rig, &mut output, to));
}

fn records(count: usize, bytes: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| vec![n as u8; bytes]).collect()
}

/// The records' bytes, one behind the other, as the peer has them.
fn bytes_of(received: &[Received]) -> Vec<u8> {
    received.iter().flat_map(|packet| packet.payload.clone()).collect()
}

fn counted(received: &[Received]) -> usize {
    received.iter().map(|packet| usize::from(packet.records)).sum()
}

fn backlog<R: Rig>(rig: &mut R) -> u64 {
    let (carrier, wire) = rig.parts();
    carrier.backlog_bytes(wire.host)
}

fn batch(count: usize, bytes: usize, packets: usize) -> Batch {
    let mut pool = Pool::new(PoolConfig::default()).unwrap();
    let (mut batch, stride) = (Batch::new(), HEADER_BYTES + count * bytes);
    batch.stride = stride;
    let mut buffer = pool.alloc(packets * stride).unwrap();
    for packet in 0..packets {
        for record in 0..count {
            let start = packet * stride + HEADER_BYTES + record * bytes;
            buffer[start..start + bytes].fill((packet * count + record) as u8);
        }
    }
    batch.push_buffer(buffer.freeze()).unwrap();
    for packet in 0..packets {
        let start = (packet * stride + HEADER_BYTES) as u32;
        let slice = Slice { buffer: 0, start, len: (count * bytes) as u32, records: count as u32 };
        batch.push_slice(slice).unwrap();
        let span = |record| Span { slice: packet as u16, start: start + (record * bytes) as u32, len: bytes as u32 };
        batch.records.extend((0..count).map(span));
    }
    batch
}

fn records_arrive_once_in_order_under_their_subscription_and_format<R: Rig>() {
    let (mut rig, mut output) = (R::new(), Output::default());
    // More than a packet takes, in two formats.
    let (first, second) = (records(900, 160), records(3, 8));
    assert_eq!(output.opened_ns(), None);
    assert_eq!(push(&mut rig, &mut output, KEPT, 7, &first), (900, 0));
    assert_eq!(output.opened_ns(), Some(7));
    assert_eq!(push(&mut rig, &mut output, KEPT, 8, &second), (3, 0));
    assert!(flush(&mut rig, &mut output, KEPT) && !flush(&mut rig, &mut output, KEPT));
    assert!(backlog(&mut rig) >= 900 * 160);
    let received = rig.receive();
    assert!(received.iter().all(|packet| packet.kind == PacketKind::Data && packet.subscription == 1));
    let (of_first, of_second): (Vec<_>, Vec<_>) = received.into_iter().partition(|packet| packet.format == 7);
    assert_eq!((counted(&of_first), bytes_of(&of_first)), (900, first.concat()));
    assert_eq!((counted(&of_second), bytes_of(&of_second)), (3, second.concat()));
    assert_eq!((backlog(&mut rig), rig.held_bytes()), (0, 0));
}

fn a_record_longer_than_a_packet_passes_in_pieces_in_its_place<R: Rig>() {
    let (mut rig, mut output) = (R::new(), Output::default());
    let longest = MAX_SUPER_BYTES - HEADER_BYTES;
    let sent = [vec![1; 8], vec![2; longest + 8], vec![3; longest], vec![4; longest + 40], vec![5; 8]];
    assert_eq!(push(&mut rig, &mut output, DROPPABLE, 7, &sent), (5, 0));
    assert!(backlog(&mut rig) >= 3 * longest as u64);
    // Only records that are not longer may be dropped, so what is begun is sent whole.
    flush(&mut rig, &mut output, DROPPABLE);
    let received = joined(rig.receive());
    assert!(
        received.iter().all(|packet| (packet.kind, packet.format, packet.piece) == (PacketKind::Data, 7, Piece::Whole))
    );
    assert_eq!((counted(&received), bytes_of(&received)), (5, sent.concat()));
    assert_eq!((backlog(&mut rig), rig.held_bytes()), (0, 0));
}

fn a_record_that_is_too_long_is_counted_and_others_pass<R: Rig>() {
    let (mut rig, mut output) = (R::new(), Output::default());
    let sent = [vec![1; 8], vec![2; MAX_MESSAGE_BYTES + 8], vec![4; 8]];
    assert_eq!(push(&mut rig, &mut output, KEPT, 7, &sent), (2, 1));
    assert_eq!(rig.world().dropped("record_too_long"), 1);
    flush(&mut rig, &mut output, KEPT);
    assert_eq!(bytes_of(&rig.receive()), [vec![1; 8], vec![4; 8]].concat());
}

fn a_control_message_longer_than_a_packet_passes_in_pieces<R: Rig>() {
    let mut rig = R::new();
    let long: Vec<u8> = (0..300_000u32).map(|at| (at >> 8) as u8).collect();
    for message in [&b"before"[..], &long, b"after"] {
        let (carrier, mut wire) = rig.parts();
        carrier.send_control(&mut wire, message, IN_PLACE);
    }
    let mut received = Vec::new();
    while received.len() < 3 {
        received.extend(rig.receive());
        let whole = joined(received.clone());
        if whole.len() == 3 {
            received = whole;
        }
    }
    let payloads: Vec<&[u8]> = received.iter().map(|packet| &packet.payload[..]).collect();
    assert_eq!(payloads, [&b"before"[..], &long, b"after"]);
    let (carrier, wire) = rig.parts();
    assert_eq!(carrier.untaken_control_bytes(wire.host), 0);
}

fn control_messages_keep_their_place_and_count_until_they_are_taken<R: Rig>() {
    let mut rig = R::new();
    let untaken = |rig: &mut R| {
        let (carrier, wire) = rig.parts();
        carrier.untaken_control_bytes(wire.host)
    };
    for turn in 0..3u8 {
        for kind in [PacketKind::Control, PacketKind::Data, PacketKind::Control] {
            let (carrier, mut wire) = rig.parts();
            match kind {
                PacketKind::Control => carrier.send_control(&mut wire, &[turn; 24], IN_PLACE),
                _ => send(&mut rig, DROPPABLE, &[vec![turn; 8]]),
            }
        }
        assert!(untaken(&mut rig) >= 48);
        let received = rig.receive();
        let kinds: Vec<PacketKind> = received.iter().map(|packet| packet.kind).collect();
        assert_eq!(kinds, [PacketKind::Control, PacketKind::Data, PacketKind::Control]);
        assert!(received.iter().all(|packet| packet.payload.iter().all(|byte| *byte == turn)));
        assert_eq!(untaken(&mut rig), 0);
    }
}

fn the_oldest_droppable_unit_goes_first_and_nothing_else_does<R: Rig>() {
    let mut rig = R::new();
    let (carrier, mut wire) = rig.parts();
    carrier.bound_queue(&mut wire, 64);
    // The first may be with the peer at once.
    send(&mut rig, KEPT, &records(1, 8));
    send(&mut rig, DROPPABLE, &records(2, 8));
    let (carrier, mut wire) = rig.parts();
    carrier.send_control(&mut wire, b"stays", IN_PLACE);
    send(&mut rig, KEPT, &records(3, 8));
    send(&mut rig, DROPPABLE, &records(4, 8));
    let before = backlog(&mut rig);
    let (carrier, mut wire) = rig.parts();
    assert_eq!(carrier.drop_oldest(&mut wire), Some((2, 2)));
    assert!(carrier.backlog_bytes(wire.host) < before);
    assert_eq!(carrier.drop_oldest(&mut wire), Some((2, 4)));
    assert_eq!(carrier.drop_oldest(&mut wire), None);
    let kept: Vec<(u32, u16)> = rig.receive().iter().map(|packet| (packet.subscription, packet.records)).collect();
    assert_eq!(kept, [(1, 1), (0, 0), (1, 3)]);
    assert_eq!((backlog(&mut rig), rig.held_bytes()), (0, 0));
}

fn a_whole_batch_leaves_behind_what_was_pushed_before<R: Rig>() {
    for (count, bytes, packets) in [(3, 8, 1), (3, 8, 2), (100, 72, 4)] {
        let (mut rig, mut output) = (R::new(), Output::default());
        let batch = batch(count, bytes, packets);
        push(&mut rig, &mut output, KEPT, batch.format, &records(2, 8));
        let (carrier, wire) = rig.parts();
        let mut spill = Spill::default();
        let mut sink =
            SessionSink::new(&mut output, carrier, wire, KEPT, (batch.format, MAX_MESSAGE_BYTES), &mut spill);
        let is_referred_to = sink.take_whole(&batch);
        let all = (count * packets) as u64;
        assert_eq!(sink.taken, if is_referred_to { 0 } else { all });
        assert!(spill.is_empty());
        assert!(!is_referred_to || output.opened_ns().is_none(), "what was open must leave first");
        flush(&mut rig, &mut output, KEPT);
        let whole = (0..batch.len()).flat_map(|index| batch.record(index).to_vec()).collect();
        let expected = [records(2, 8).concat(), if is_referred_to { Vec::new() } else { whole }].concat();
        assert_eq!(bytes_of(&rig.receive()), expected);
    }
}

fn a_few_records_do_not_hold_large_memory<R: Rig>() {
    let (mut rig, mut output) = (R::new(), Output::default());
    // A burst first, after which packets are as large as they get.
    push(&mut rig, &mut output, KEPT, 7, &records(2000, 160));
    flush(&mut rig, &mut output, KEPT);
    rig.receive();
    for _ in 0..4 {
        push(&mut rig, &mut output, KEPT, 7, &records(1, 8));
        flush(&mut rig, &mut output, KEPT);
    }
    rig.receive();
    for _ in 0..8 {
        push(&mut rig, &mut output, KEPT, 7, &records(1, 8));
        flush(&mut rig, &mut output, KEPT);
    }
    assert!(rig.held_bytes() <= 8 * (8 << 10), "{}", rig.held_bytes());
}

fn when_memory_runs_out_records_wait_and_those_beyond_the_bound_are_counted<R: Rig>() {
    let (mut rig, mut output) = (R::new(), Output::default());
    let sent = records(40_000, 160);
    let mut spill = Spill::default();
    let mut rows = sent.iter().map(Vec::as_slice);
    let (taken, lost) = push_all(&mut rig, &mut output, (KEPT, 7), &mut rows, &mut spill);
    assert_eq!((taken as usize + spill.ends.len(), lost), (40_000, 0));
    let (carrier, _) = rig.parts();
    assert!(!spill.is_empty() || carrier.is_behind(), "memory did not run out");
    flush(&mut rig, &mut output, KEPT);
    let mut received = rig.receive();
    // A packet that has to wait stays in order, whatever comes when there is memory again.
    while !spill.is_empty() {
        let waiting = std::mem::take(&mut spill);
        assert_eq!(push_all(&mut rig, &mut output, (KEPT, 7), waiting.rows(), &mut spill).1, 0);
        flush(&mut rig, &mut output, KEPT);
        received.extend(rig.receive());
    }
    assert_eq!((counted(&received), bytes_of(&received) == sent.concat()), (40_000, true));
    // No more waits than its bound; the rest is counted.
    let row = vec![1; 60_000];
    let (taken, lost) = push_all(&mut rig, &mut output, (KEPT, 7), (0..600).map(|_| &row[..]), &mut spill);
    assert_eq!((taken as usize + spill.ends.len()) as u64 + lost, 600);
    assert_eq!(rig.world().dropped("packet_no_buffer"), lost);
    let (carrier, _) = rig.parts();
    assert!(lost > 0 || carrier.is_behind());
    flush(&mut rig, &mut output, KEPT);
    assert_eq!(counted(&rig.receive()), taken as usize);
    // With memory again all goes on.
    assert_eq!(push(&mut rig, &mut output, KEPT, 7, &records(5, 8)), (5, 0));
    flush(&mut rig, &mut output, KEPT);
    assert_eq!(counted(&rig.receive()), 5);
    let (carrier, _) = rig.parts();
    assert!(!carrier.is_behind());
    assert_eq!((backlog(&mut rig), rig.held_bytes()), (0, 0));
}

fn credit_is_withheld_while_a_stream_is_blocked_or_packets_wait<R: Rig>() {
    let mut rig = R::new();
    let grant = |rig: &mut R, is_blocked: bool| {
        let (carrier, mut wire) = rig.parts();
        carrier.grant_credit(&mut wire, is_blocked);
        rig.receive();
    };
    grant(&mut rig, true);
    rig.publish();
    assert_eq!(rig.publish(), 0, "only what was granted before");
    grant(&mut rig, true);
    assert_eq!(rig.publish(), 0);
    grant(&mut rig, false);
    assert!(rig.publish() > 0);
    rig.defer(true);
    grant(&mut rig, false);
    rig.publish();
    assert_eq!(rig.publish(), 0);
    rig.defer(false);
    grant(&mut rig, false);
    assert!(rig.publish() > 0);
}

fn credit_for_control_is_withheld_only_while_packets_wait<R: Rig>() {
    let mut rig = R::new();
    let grant = |rig: &mut R, is_blocked: bool| {
        let (carrier, mut wire) = rig.parts();
        carrier.grant_credit(&mut wire, is_blocked);
        rig.receive();
    };
    // More than any window holds.
    const MANY: usize = 200;
    grant(&mut rig, true);
    rig.publish();
    for sent in 0..MANY {
        assert!(rig.send_request(), "{sent} were sent");
        grant(&mut rig, true);
    }
    assert_eq!(rig.publish(), 0);
    rig.defer(true);
    grant(&mut rig, true);
    let is_withheld = |_| {
        let is_sent = rig.send_request();
        grant(&mut rig, true);
        !is_sent
    };
    assert!((0..MANY).any(is_withheld));
}

fn an_ended_session_holds_nothing<R: Rig>() {
    let (mut rig, mut output) = (R::new(), Output::default());
    let mut spill = Spill::default();
    let (many, one) = (records(20_000, 160), records(1, 8));
    for some in [many, one] {
        push_all(&mut rig, &mut output, (KEPT, 7), some.iter().map(Vec::as_slice), &mut spill);
        flush(&mut rig, &mut output, KEPT);
    }
    push_all(&mut rig, &mut output, (KEPT, 7), std::iter::once(&[1; 8][..]), &mut spill);
    rig.defer(true);
    assert!(rig.held_bytes() > 1 << 19);
    let (carrier, mut wire) = rig.parts();
    carrier.end(&mut wire, "closed", Some(Close { again: false, reason: "the test ends".to_owned() }));
    assert!(!carrier.is_behind());
    drop(output);
    assert_eq!(rig.held_after_end(), 0);
}

/// Gives the verdict that it is made for, or panics at its second record.
struct Passing {
    verdict: Option<Verdict>,
}

impl Handler for Passing {
    fn process(&mut self, batch: &Batch, _: &mut Selection, out: &mut dyn Sink) -> Verdict {
        let Some(verdict) = self.verdict else {
            out.push(batch.record(0));
            // Without what a panic prints.
            std::panic::resume_unwind(Box::new("as the test wants"))
        };
        verdict
    }

    fn counters(&self) -> HandlerCounters {
        HandlerCounters::default()
    }
}

fn a_query_that_panics_ends_nothing_else<R: Rig>() {
    let (mut rig, mut output) = (R::new(), Output::default());
    let batch = batch(2, 8, 1);
    for (verdict, expected, taken) in [
        (Some(Verdict::Forward), "whole", 0),
        (Some(Verdict::Drop), "made", 0),
        (None, "panicked", 1),
        (Some(Verdict::Forward), "whole", 0),
    ] {
        let (carrier, wire) = rig.parts();
        let mut spill = Spill::default();
        let mut sink = SessionSink::new(&mut output, carrier, wire, KEPT, (7, MAX_MESSAGE_BYTES), &mut spill);
        let mut selection = Selection::default();
        selection.select_all(batch.len());
        let outcome = match process(&mut Passing { verdict }, &batch, &mut selection, &mut sink) {
            Outcome::Whole => "whole",
            Outcome::Made => "made",
            Outcome::Panicked => "panicked",
        };
        assert_eq!((outcome, sink.taken), (expected, taken));
    }
    push(&mut rig, &mut output, KEPT, 7, &records(1, 8));
    flush(&mut rig, &mut output, KEPT);
    assert_eq!(counted(&rig.receive()), 2, "what it made before, and what comes after");
}

macro_rules! conformance {
    ($rig:ident, $name:ident: $($test:ident),+ $(,)?) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    super::$test::<super::$rig>();
                }
            )+
        }
    };
    ($($test:ident),+ $(,)?) => {
        conformance!(Packets, packets: $($test),+);
        conformance!(Memory, memory: $($test),+);
    };
}

conformance!(
    records_arrive_once_in_order_under_their_subscription_and_format,
    a_record_longer_than_a_packet_passes_in_pieces_in_its_place,
    a_record_that_is_too_long_is_counted_and_others_pass,
    a_control_message_longer_than_a_packet_passes_in_pieces,
    control_messages_keep_their_place_and_count_until_they_are_taken,
    control_leaves_before_waiting_records_unless_it_follows_them,
    replies_leave_in_order_and_notices_do_not_wait_for_them,
    the_oldest_droppable_unit_goes_first_and_nothing_else_does,
    a_whole_batch_leaves_behind_what_was_pushed_before,
    a_few_records_do_not_hold_large_memory,
    when_memory_runs_out_records_wait_and_those_beyond_the_bound_are_counted,
    credit_is_withheld_while_a_stream_is_blocked_or_packets_wait,
    credit_for_control_is_withheld_only_while_packets_wait,
    an_ended_session_holds_nothing,
    a_query_that_panics_ends_nothing_else,
);
