//! Datagrams: each number comes once at most, whatever the path does, both sides count what is missing, and no sender waits.

use crate::host::HostPlan;
use crate::traffic::{Outgoing, Packets, SinkPlan, SourcePlan, record};
use crate::world::World;
use crate::{MS, SECOND};
use crossdock_sim::{Link, Rng, check};
use crossdock_transport::receiver::Receiver;
use crossdock_transport::{Session, SuperPacket};
use std::collections::BTreeSet;

/// The datagrams that a host sends.
#[derive(Clone, Debug, Default)]
pub(crate) struct DatagramPlan {
    /// In all.
    pub(crate) count: u64,
    /// That leave together, each in a packet of its own.
    pub(crate) at_once: u64,
    /// The time between, in ns.
    pub(crate) interval_ns: u64,
}

/// The datagrams of a session: those that were sent, and those that came.
pub(crate) struct Datagrams {
    plan: DatagramPlan,
    next: u64,
    next_ns: u64,
    /// Packets that were dropped before they left.
    dropped: u64,
    came: BTreeSet<u64>,
}

impl Datagrams {
    pub(crate) fn new(plan: DatagramPlan) -> Datagrams {
        Datagrams { plan, next: 0, next_ns: 0, dropped: 0, came: BTreeSet::new() }
    }

    fn is_done(&self) -> bool {
        self.next >= self.plan.count
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        (!self.is_done()).then_some(self.next_ns)
    }

    /// Queues what is due.
    pub(crate) fn fill(&mut self, session: &mut Session<Outgoing, Packets>, now_ns: u64) {
        if self.is_done() || now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + self.plan.interval_ns;
        let packet_bytes = session.packet_bytes();
        let mut packed = SuperPacket::new(vec![0; 64 * packet_bytes], packet_bytes);
        for _ in 0..self.plan.at_once.min(self.plan.count - self.next) {
            assert!(packed.push(&record(self.next, packet_bytes / 8 - 8)));
            self.next += 1;
        }
        let (packets, bytes) = (packed.packets().len() as u32, packed.len() as u64);
        let dropped = &mut self.dropped;
        session.sender.enqueue_datagrams(Outgoing::Datagrams(packed), packets, bytes, |_, packets| {
            *dropped += packets.len() as u64;
        });
    }

    /// Takes what came.
    pub(crate) fn take(&mut self, packets: &Packets, receiver: &mut Receiver<Packets>, now_ns: u64) {
        let fresh = receiver.take_datagrams(packets.header.seq, packets.spans.len() as u32, now_ns);
        for (at, span) in packets.spans.iter().enumerate().filter(|(at, _)| fresh >> at & 1 == 1) {
            let payload = &packets.frame[span.range()];
            let number = u64::from_le_bytes(payload[8..16].try_into().unwrap());
            assert_eq!(payload, record(number, payload.len() / 8), "packet {at} is spoilt");
            assert!(self.came.insert(number), "datagram {number} came twice");
        }
    }
}

/// The side that sends datagrams, and some records beside them.
fn client(plan: DatagramPlan, records: u64) -> HostPlan {
    let source = SourcePlan { interval_ns: 5 * MS, unit_records: 1..=4, ..SourcePlan::bulk(records) };
    HostPlan { datagrams: plan, ..HostPlan::new(source, SinkPlan::default()) }
}

fn server() -> HostPlan {
    HostPlan::new(SourcePlan::nothing(), SinkPlan::default())
}

/// One side sends datagrams, and some records beside them, over `link`; both have all that came in the end.
fn send(seed: u64, plan: DatagramPlan, records: u64, link: &Link) -> World {
    let mut world = World::new(seed, client(plan, records), server(), link.clone(), link.clone());
    world.run(600 * SECOND, |world| {
        let peer = world.client.peers.values().next();
        peer.is_some_and(|peer| peer.datagrams.is_done() && peer.session.sender.queued_datagrams() == 0)
            && world.is_finished()
    });
    world.settle();
    let (client, server) = (world.client.peer(), world.server.peer());
    let (stats, report) = (client.session.sender.datagram_stats(), server.session.receiver.datagrams());
    assert_eq!(stats.sent + stats.dropped, client.datagrams.plan.count, "{}", world.report());
    assert_eq!(stats.dropped, client.datagrams.dropped);
    assert_eq!(report.arrived, server.datagrams.came.len() as u64);
    assert!(report.end <= stats.sent && client.session.sender.is_idle(), "{}", world.report());
    world
}

fn plan(count: u64, at_once: u64, interval_ns: u64) -> DatagramPlan {
    DatagramPlan { count, at_once, interval_ns }
}

#[test]
fn on_a_good_path_all_come_and_none_is_sent_again() {
    check("on_a_good_path_all_come_and_none_is_sent_again", 30, |seed| {
        let mut rng = Rng::with_seed(seed);
        let link = Link::new(rng.u64(20_000..50 * MS));
        // Fewer than the window at the start has room for in a round trip.
        let world = send(seed, plan(2000, 1, rng.u64(4 * MS..8 * MS)), 100, &link);
        let client = world.client.peer();
        assert_eq!(world.server.peer().datagrams.came.len(), 2000, "{}", world.report());
        let (stats, sender) = (client.session.sender.datagram_stats(), client.session.sender.stats());
        assert_eq!((stats.dropped, stats.missing, sender.resent), (0, 0, 0), "{}", world.report());
    });
}

#[test]
fn whatever_the_path_does_none_comes_twice_and_what_is_missing_is_known() {
    check("whatever_the_path_does_none_comes_twice_and_what_is_missing_is_known", 100, |seed| {
        let mut rng = Rng::with_seed(seed);
        let link = Link {
            duplication: rng.f64() * 0.3,
            reordering: rng.f64() * 0.3,
            reordering_ns: rng.u64(..20 * MS),
            ..Link::new(rng.u64(20_000..30 * MS))
        };
        let world = send(seed, plan(3000, rng.u64(1..8), MS), 200, &link.with_loss(rng.f64() * 0.2));
        let (client, server) = (world.client.peer(), world.server.peer());
        let (stats, report) = (client.session.sender.datagram_stats(), server.session.receiver.datagrams());
        // One that came so late that it may have come before counts as missing.
        assert!(report.missing() >= report.end - server.datagrams.came.len() as u64);
        assert_eq!(stats.missing, report.missing(), "the last ack says it: {}", world.report());
        assert!(server.datagrams.came.len() as u64 * 10 >= stats.sent * 7, "{}", world.report());
    });
}

#[test]
fn datagrams_that_the_path_cannot_take_are_dropped_at_their_sender() {
    check("datagrams_that_the_path_cannot_take_are_dropped_at_their_sender", 10, |seed| {
        let mut rng = Rng::with_seed(seed);
        // Ten times what the path takes, for about four seconds; beside it records, which pass all the same.
        let link = Link::new(rng.u64(5 * MS..25 * MS)).with_bandwidth(1_000_000, 200_000);
        let overload = if rng.bool() { plan(30_000, 7, MS) } else { plan(30_000, 1, MS / 7) };
        let world = send(seed, overload, 200, &link);
        let (client, server) = (world.client.peer(), world.server.peer());
        let stats = client.session.sender.datagram_stats();
        let came = server.datagrams.came.len() as u64;
        assert!(stats.dropped >= 20_000, "{stats:?}: {}", world.report());
        assert!(came * 10 >= stats.sent * 9, "{came} of {stats:?}: {}", world.report());
        let used = world.links().0.sent_bytes;
        assert!(used >= 2_500_000, "{used} bytes in four seconds: {}", world.report());
        assert_eq!(server.sink.messages, 200, "{}", world.report());
    });
}

#[test]
fn records_arrive_while_more_datagrams_wait_than_the_path_takes() {
    check("records_arrive_while_more_datagrams_wait_than_the_path_takes", 20, |seed| {
        let mut rng = Rng::with_seed(seed);
        let link = Link::new(rng.u64(20_000..25 * MS)).with_bandwidth(1_000_000, 200_000);
        let overload = if rng.bool() { plan(30_000, 7, MS) } else { plan(30_000, 1, MS / 7) };
        let mut world =
            World::new(seed, client(overload, 200), server(), link.clone().with_loss(rng.f64() * 0.01), link);
        let is_over = |world: &World| world.client.peers.values().next().is_some_and(|peer| peer.datagrams.is_done());
        assert!(world.run(600 * SECOND, is_over));
        assert_eq!(world.server.peer().sink.messages, 200, "{}", world.report());
        assert!(!world.server.peer().datagrams.came.is_empty(), "{}", world.report());
    });
}
