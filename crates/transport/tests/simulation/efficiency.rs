//! The cost of reliability: nothing is sent again for nothing, acks are few, and a path is used.

use crate::host::HostPlan;
use crate::traffic::{SinkPlan, SourcePlan};
use crate::world::World;
use crate::{MS, SECOND};
use crossdock_sim::{Link, Rng, check};

/// One side sends `source` over `link`, until all of it is there.
fn send(seed: u64, source: SourcePlan, window: u32, link: &Link) -> World {
    let client = HostPlan::new(source, SinkPlan::default());
    let mut server = HostPlan::new(SourcePlan::nothing(), SinkPlan::default());
    server.limits.window_bytes = window * 1472;
    let mut world = World::new(seed, client, server, link.clone(), link.clone());
    world.finish(600 * SECOND);
    world
}

fn bulk(messages: u64) -> SourcePlan {
    SourcePlan { backlog_bytes: 8 << 20, ..SourcePlan::bulk(messages) }
}

#[test]
fn without_loss_nothing_is_sent_twice() {
    check("without_loss_nothing_is_sent_twice", 100, |seed| {
        let mut rng = Rng::with_seed(seed);
        let delay_ns = rng.u64(20_000..100 * MS);
        let link = Link { jitter_ns: rng.u64(..=delay_ns / 10), ..Link::new(delay_ns) };
        let source = match rng.u8(..3) {
            0 => bulk(5000),
            // One at a time, when the one before has been acknowledged.
            1 => SourcePlan { backlog_bytes: 1, unit_records: 1..=1, ..bulk(50) },
            _ => SourcePlan { interval_ns: rng.u64(1..20 * MS), unit_records: 1..=8, control: 0.1, ..bulk(500) },
        };
        let bulk = source.unit_records == (1000..=1000);
        let world = send(seed, source, rng.u32(64..2000), &link);
        let stats = world.client.peer().session.sender.stats();
        assert_eq!((stats.resent, stats.timeouts), (0, 0), "{}", world.report());
        assert_eq!(world.server.counters.duplicates, 0, "{}", world.report());
        // On a long path where credit keeps the window small, bursts of four packets and the ends of units have an ack each.
        let acks = world.server.counters.acks_sent;
        let most = if delay_ns < 2 * MS { stats.packets / 8 } else { stats.packets / 3 };
        assert!(!bulk || acks <= 2 + most, "{}", world.report());
    });
}

#[test]
fn lost_packets_are_sent_again_and_hardly_any_other() {
    check("lost_packets_are_sent_again_and_hardly_any_other", 20, |seed| {
        let mut rng = Rng::with_seed(seed);
        let loss = [0.001, 0.01, 0.1, 0.3][rng.usize(..4)];
        let source = if loss < 0.2 { bulk(40_000) } else { bulk(10_000) };
        let world = send(seed, source, 1024, &Link::new(rng.u64(5 * MS..20 * MS)).with_loss(loss));
        let (stats, lost) = (world.client.peer().session.sender.stats(), world.links().0.lost);
        // A few for the first burst, when its one ack is lost.
        assert!(stats.resent <= lost + lost / 10 + 50, "{} sent again: {}", stats.resent, world.report());
        // On a path so short that it is not paced, a lost ack can stand for all that was on the way.
        let world = send(seed, bulk(40_000), 1024, &Link::new(100_000).with_loss(0.01));
        let (stats, lost) = (world.client.peer().session.sender.stats(), world.links().0.lost);
        assert!(stats.resent <= 2 * lost + 20, "{} sent again: {}", stats.resent, world.report());
    });
}

#[test]
fn a_path_that_mixes_packets_up_is_not_taken_for_a_lossy_one() {
    check("a_path_that_mixes_packets_up_is_not_taken_for_a_lossy_one", 10, |seed| {
        let link = Link { reordering: 0.05, reordering_ns: 2 * MS, ..Link::new(10 * MS) };
        let world = send(seed, bulk(40_000), 1024, &link);
        let stats = world.client.peer().session.sender.stats();
        assert!(stats.resent <= stats.packets / 100, "{}", world.report());
        assert!(world.network.now_ns() < 3 * SECOND, "{}", world.report());
    });
}

#[test]
fn a_bottleneck_is_used_and_not_flooded() {
    // Bytes a second, delay in one direction, bytes of the queue; the least that must be used, in percent. The last is so
    // long and fat that most of the run is the start, which ends by filling the queue.
    let paths = [
        (10_000_000, 10 * MS, 32 << 10, 60),
        (10_000_000, 10 * MS, 64 << 10, 85),
        (10_000_000, 10 * MS, 256 << 10, 90),
        (10_000_000, 10 * MS, 1 << 20, 90),
        (1_000_000, 50 * MS, 32 << 10, 85),
        (125_000_000, 100_000, 256 << 10, 90),
        (100_000_000, 25 * MS, 1 << 20, 50),
    ];
    for (bytes_per_s, delay_ns, queue_bytes, least_percent) in paths {
        let link = Link::new(delay_ns).with_bandwidth(bytes_per_s, queue_bytes);
        // Ten seconds of the path, or what 100,000 records take.
        let messages = (bytes_per_s * 10 / 304).min(100_000);
        let world = send(1, SourcePlan { backlog_bytes: 16 << 20, ..bulk(messages) }, 16_384, &link);
        let took_ns = world.network.now_ns();
        let used_percent = world.links().0.sent_bytes * 100 / (bytes_per_s * took_ns / SECOND);
        let stats = world.client.peer().session.sender.stats();
        assert!(used_percent >= least_percent, "{used_percent} % of {link:?}: {}", world.report());
        let useful = stats.packets * 100 / (stats.packets + stats.resent);
        assert!(useful >= 80, "{useful} % of what was sent: {}", world.report());
        assert!(stats.timeouts <= 1, "{}", world.report());
    }
}

#[test]
fn a_window_in_bytes_fills_a_long_path_with_packets_of_any_size() {
    // A window for each round trip, whether the path takes packets of 1472 bytes or of 8184.
    for packet_bytes in [1472, 8184] {
        let link = Link::new(25 * MS);
        let source = bulk(400_000);
        let mut client = HostPlan::new(source, SinkPlan::default());
        let mut server = HostPlan::new(SourcePlan::nothing(), SinkPlan::default());
        (client.packet_bytes, server.packet_bytes) = (packet_bytes, packet_bytes);
        server.limits.window_bytes = 2 << 20;
        let mut world = World::new(1, client, server, link.clone(), link);
        world.finish(600 * SECOND);
        let round_trips = world.network.now_ns() / (50 * MS);
        let windows = world.links().0.sent_bytes / (2 << 20);
        // The start takes some round trips: the congestion window grows from ten packets.
        assert!(
            round_trips <= windows * 5 / 4 + 12,
            "{round_trips} round trips for {windows} windows: {}",
            world.report()
        );
    }
}

#[test]
fn the_loss_of_the_last_packet_is_repaired_in_one_time_out() {
    check("the_loss_of_the_last_packet_is_repaired_in_one_time_out", 30, |seed| {
        let mut rng = Rng::with_seed(seed);
        let delay_ns = rng.u64(50_000..100 * MS);
        // One record every half a second; the last is lost.
        let source = SourcePlan { interval_ns: 500 * MS, unit_records: 1..=1, ..bulk(20) };
        let client = HostPlan::new(source, SinkPlan::default());
        let server = HostPlan::new(SourcePlan::nothing(), SinkPlan::default());
        let link = Link::new(delay_ns);
        let mut world = World::new(seed, client, server, link.clone(), link);
        let sent = |world: &World| world.client.peers.values().map(|p| p.session.sender.stats().packets).sum::<u64>();
        world.run(60 * SECOND, |world| sent(world) == 19);
        let sent_ns = world.network.now_ns();
        world.run(sent_ns + 450 * MS, |_| false);
        world.network.cut(world.client.address, world.server.address, sent_ns + 501 * MS);
        world.run(60 * SECOND, |world| sent(world) == 20);
        let lost_ns = world.network.now_ns();
        world.finish(60 * SECOND);
        let took_ns = world.network.now_ns() - lost_ns;
        // The time-out, and the round trip of what it sends. The variation has gone down by then, to the least that counts.
        let time_out_ns = (2 * delay_ns + 15 * MS).max(31 * MS);
        assert!(took_ns <= time_out_ns + 2 * delay_ns + 5 * MS, "{} µs: {}", took_ns / 1000, world.report());
    });
}
