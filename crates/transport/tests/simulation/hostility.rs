//! The packets of others: packets of other sessions, acks for what was never sent, anything at all.

use crate::host::HostPlan;
use crate::traffic::{SinkPlan, SourcePlan};
use crate::world::World;
use crate::{MS, SECOND};
use crossdock_sim::{Link, Rng, check};
use crossdock_transport::receiver::{Ack, MAX_ACK_BYTES};
use crossdock_transport::{Header, PacketKind};

/// Two sides with much to send, on a path without faults.
fn world(seed: u64, rng: &mut Rng) -> World {
    let mut plan = || HostPlan::new(SourcePlan::any(rng, 2000), SinkPlan::default());
    let (client, server) = (plan(), plan());
    // The queue holds more than the credit: the path drops nothing.
    let link = Link::new(MS).with_bandwidth(1 << 20, 4 << 20);
    World::new(seed, client, server, link.clone(), link)
}

fn ack_packet(session: u32, ack: &Ack) -> Vec<u8> {
    let mut payload = [0; MAX_ACK_BYTES];
    let len = ack.encode(&mut payload);
    Header::new(PacketKind::Ack, session).packet(&payload[..len]).expect("short")
}

/// A packet of a session that does not exist, or that comes from the wrong side.
fn stray(rng: &mut Rng, session: u32) -> Vec<u8> {
    let kind = [
        PacketKind::Data,
        PacketKind::Control,
        PacketKind::Ack,
        PacketKind::Ping,
        PacketKind::Close,
        PacketKind::Welcome,
    ][rng.usize(..6)];
    let header = Header { seq: rng.u64(..50), records: 1, ..Header::new(kind, session.wrapping_add(rng.u32(1..))) };
    if kind == PacketKind::Ack {
        return ack_packet(header.session, &Ack::new(rng.u64(..50), 1 << 40));
    }
    header.packet(&vec![7; rng.usize(..100)]).expect("short")
}

#[test]
fn packets_of_other_sessions_are_counted_and_ignored() {
    check("packets_of_other_sessions_are_counted_and_ignored", 50, |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut world = world(seed, &mut rng);
        let mut sent = 0;
        world.run(10 * SECOND, |world| !world.client.peers.is_empty());
        while !world.run(world.network.now_ns() + MS, World::is_finished) {
            let session = world.client.peer().session.peer_session();
            let packet = stray(&mut rng, session);
            world.network.send(world.client.address, world.server.address, &packet);
            sent += 1;
            assert!(world.network.now_ns() < 900 * SECOND, "{}", world.report());
        }
        world.settle();
        assert_eq!(world.server.counters.strays, sent, "{}", world.report());
        assert_eq!(world.server.peers.len(), 1);
    });
}

#[test]
fn acks_for_what_was_never_sent_change_nothing() {
    check("acks_for_what_was_never_sent_change_nothing", 30, |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut world = world(seed, &mut rng);
        world.run(10 * SECOND, |world| !world.client.peers.is_empty());
        let mut sent = 0;
        while !world.run(world.network.now_ns() + MS, World::is_finished) {
            // In the name of the server, to the client's session; a million packets were never sent.
            let to = world.server.peer().session.peer_session();
            let bogus = match rng.u8(..4) {
                0 => Ack::new(rng.u64(1_000_000..), rng.u64(..)),
                1 => Ack::new(0, rng.u64(..)).with_ranges([rng.u64(..5)..5, 1_000_000..1_000_000 + rng.u64(1..100)]),
                2 => Ack::new(u64::MAX, u64::MAX),
                _ => Ack::new(rng.u64(u64::MAX - 5..), 0).with_ranges([u64::MAX - 2..u64::MAX]),
            };
            world.network.send(world.server.address, world.client.address, &ack_packet(to, &bogus));
            sent += 1;
            assert!(world.network.now_ns() < 900 * SECOND, "{}", world.report());
        }
        world.settle();
        assert_eq!(world.client.counters.senseless, sent, "{}", world.report());
        assert_eq!(world.server.counters.beyond, 0, "{}", world.report());
    });
}

#[test]
fn flips_and_cuts_anywhere_neither_panic_nor_grow() {
    check("flips_and_cuts_anywhere_neither_panic_nor_grow", 30, |seed| {
        let mut rng = Rng::with_seed(seed);
        let unchecked = || SinkPlan { unchecked: true, ..SinkPlan::default() };
        let mut plan = || {
            let mut plan = HostPlan::new(SourcePlan::any(&mut rng, 1_000_000), unchecked());
            plan.limits.window_bytes = rng.u32(1..300) * 1472;
            plan
        };
        let (client, server) = (plan(), plan());
        let link = Link { corruption: 0.05, duplication: 0.1, ..Link::new(MS).with_bandwidth(4 << 20, 1 << 20) };
        let mut world = World::new(seed, client, server, link.clone(), link);
        // The hosts check in each turn that what waits and what is held stays within the window.
        world.run(SECOND, |_| false);
        for host in [&world.client, &world.server] {
            for peer in host.peers.values() {
                let bound = host.plan.source.most_backlog_bytes(peer.most_packet_bytes);
                assert!(peer.most_backlog_bytes <= bound, "{}", world.report());
            }
        }
    });
}
