//! The rate that a sender finds: the line's on a path that loses nothing, RFC 9438's on one that does, a fair share beside
//! another; and what a silence or a path that mixes packets up does to it.

use crate::host::HostPlan;
use crate::traffic::{SinkPlan, SourcePlan};
use crate::world::World;
use crate::{MS, SECOND};
use crossdock_sim::{Link, Rng, check};
use crossdock_transport::credit::{MAX_WINDOW_BYTES, WINDOW_BYTES};

/// Bytes of a packet on the way, and of the one record in it.
pub(crate) const PACKET_BYTES: u64 = 1464;
const RECORD_BYTES: u64 = 1432;

/// One side sends as fast as it may, over `link`, with `pace_bytes_per_s`; the other takes `window_bytes` ahead.
pub(crate) fn flow(seed: u64, window_bytes: u32, pace_bytes_per_s: u64, link: &Link) -> World {
    let words = RECORD_BYTES as usize / 8;
    let source = SourcePlan { record_words: words..=words, backlog_bytes: 16 << 20, ..SourcePlan::bulk(u64::MAX) };
    let mut client = HostPlan::new(source, SinkPlan::default());
    let mut server = HostPlan::new(SourcePlan::nothing(), SinkPlan::default());
    client.limits.pace_bytes_per_s = pace_bytes_per_s;
    (client.limits.idle_timeout_ns, server.limits.idle_timeout_ns) = (60 * SECOND, 60 * SECOND);
    server.limits.window_bytes = window_bytes;
    World::new(seed, client, server, link.clone(), Link { loss: 0.0, ..link.clone() })
}

/// Records that each session of the server has taken.
fn taken(world: &World) -> Vec<u64> {
    world.server.peers.values().map(|peer| peer.sink.messages).collect()
}

/// Packets a second that the first session brings between two moments.
pub(crate) fn packets_per_s(world: &mut World, from_ns: u64, to_ns: u64) -> f64 {
    world.run(from_ns, |_| false);
    let first = |world: &World| taken(world).first().copied().unwrap_or(0);
    let before = first(world);
    world.run(to_ns, |_| false);
    (first(world) - before) as f64 / ((to_ns - from_ns) as f64 / 1e9)
}

/// The packets a second by RFC 9438: its average window at this loss (section 5), or Reno's where that is larger.
fn model(loss: f64, rtt_s: f64) -> f64 {
    const BETA: f64 = 0.7;
    let cubic = (0.4 * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25) * rtt_s.powf(0.75) / loss.powf(0.75);
    let reno = (1.5 / loss).sqrt();
    cubic.max(reno) / rtt_s
}

#[test]
fn a_line_of_100_mb_a_second_over_50_ms_is_filled() {
    check("a_line_of_100_mb_a_second_over_50_ms_is_filled", 2, |seed| {
        let mut rng = Rng::with_seed(seed);
        // 5 MB are on the way at this rate; the queue takes as many, or a quarter of it.
        for queue_bytes in [5_000_000, 1_250_000] {
            let link = Link { jitter_ns: rng.u64(..MS / 10), ..Link::new(25 * MS) };
            let mut world = flow(seed, 16 << 20, 0, &link.with_bandwidth(100_000_000, queue_bytes));
            // The first second is for slow start, and for what it loses when it ends.
            let used = packets_per_s(&mut world, SECOND, 5 * SECOND) * PACKET_BYTES as f64 / 1e8;
            assert!(used >= 0.9, "{used} of the line: {}", world.report());
            let (stats, overflowed) = (world.client.peer().session.sender.stats(), world.links().0.overflowed);
            assert!(stats.resent <= stats.packets / 50 && stats.timeouts == 0, "{}", world.report());
            // Each lost packet is sent again once.
            assert!(stats.resent <= overflowed + overflowed / 20, "{}", world.report());
        }
    });
}

#[test]
fn a_window_grows_to_fill_the_line_with_the_default_settings() {
    check("a_window_grows_to_fill_the_line_with_the_default_settings", 2, |seed| {
        let mut rng = Rng::with_seed(seed);
        let link = Link { jitter_ns: rng.u64(..MS / 10), ..Link::new(25 * MS) };
        let mut world = flow(seed, WINDOW_BYTES, 0, &link.with_bandwidth(100_000_000, 5_000_000));
        world.server.plan.limits.max_window_bytes = MAX_WINDOW_BYTES;
        // One record, from which the receiver knows the round trip; a daemon has sent its reply to the announcement.
        world.server.plan.source = SourcePlan::bulk(1);
        let used = packets_per_s(&mut world, SECOND, 5 * SECOND) * PACKET_BYTES as f64 / 1e8;
        assert!(used >= 0.9, "{used} of the line: {}", world.report());
        assert!(world.server.peer().session.grown_bytes() > 0);
    });
}

#[test]
fn a_window_that_is_not_what_holds_the_sender_back_stays_as_it_is() {
    check("a_window_that_is_not_what_holds_the_sender_back_stays_as_it_is", 5, |seed| {
        // The line, or the application that takes what comes.
        for (bytes_per_s, packet_ns) in [(5_000_000, 0), (100_000_000, 300_000)] {
            let mut world = flow(seed, WINDOW_BYTES, 0, &Link::new(25 * MS).with_bandwidth(bytes_per_s, 200_000));
            world.server.plan.limits.max_window_bytes = MAX_WINDOW_BYTES;
            world.server.plan.source = SourcePlan::bulk(1);
            world.server.plan.sink.packet_ns = packet_ns;
            world.run(10 * SECOND, |_| false);
            assert_eq!(world.server.peer().session.grown_bytes(), 0, "{}", world.report());
        }
    });
}

#[test]
fn a_lossy_path_gives_the_rate_of_the_model() {
    // The share of packets that is lost, seeds, and how long each runs: some tens of losses.
    for (loss, seeds, seconds) in [(0.01, 10, 60), (0.001, 10, 60), (0.0001, 3, 60), (0.00001, 1, 60)] {
        let (mut sum, mut runs) = (0.0, 0);
        check("a_lossy_path_gives_the_rate_of_the_model", seeds, |seed| {
            let link = Link::new(25 * MS).with_bandwidth(100_000_000, 5_000_000).with_loss(loss);
            let mut world = flow(seed, 16 << 20, 0, &link);
            // Slow start, and the first losses.
            sum += packets_per_s(&mut world, 20 * SECOND, (20 + seconds) * SECOND);
            runs += 1;
            assert!(world.client.peer().session.sender.stats().timeouts <= 2, "{}", world.report());
        });
        let share = sum / f64::from(runs) / model(loss, 0.05);
        assert!((0.8..1.5).contains(&share), "{share} of what RFC 9438 gives at a loss of {loss}");
    }
}

#[test]
fn two_flows_share_a_bottleneck() {
    check("two_flows_share_a_bottleneck", 5, |seed| {
        let mut rng = Rng::with_seed(seed);
        let delay_ns = rng.u64(5 * MS..25 * MS);
        let bytes_per_s = 2_000_000;
        let queue_bytes = bytes_per_s * 2 * delay_ns / SECOND;
        let link =
            Link { jitter_ns: MS / 5, ..Link::new(delay_ns) }.with_bandwidth(bytes_per_s, queue_bytes.max(64 << 10));
        let mut world = flow(seed, 16 << 20, 0, &link);
        // The second comes when the first has all of it.
        let joins_ns = 5 * SECOND + rng.u64(..SECOND);
        world.run(joins_ns, |_| false);
        world.client.dial(world.server.address, joins_ns);
        world.network.wake_at(world.client.address, joins_ns);
        world.run(joins_ns + 20 * SECOND, |_| false);
        let before = taken(&world);
        world.run(joins_ns + 80 * SECOND, |_| false);
        let shares: Vec<u64> = taken(&world).iter().zip(before).map(|(after, before)| after - before).collect();
        assert!(
            shares.len() == 2 && shares[0] <= 2 * shares[1] && shares[1] <= 2 * shares[0],
            "{shares:?}: {}",
            world.report()
        );
        let used_percent = shares.iter().sum::<u64>() * PACKET_BYTES * 100 / (60 * bytes_per_s);
        assert!(used_percent >= 90, "{used_percent} % of the line: {}", world.report());
    });
}

#[test]
fn a_partition_of_ten_seconds_leaves_no_trace() {
    check("a_partition_of_ten_seconds_leaves_no_trace", 20, |seed| {
        let mut rng = Rng::with_seed(seed);
        let delay_ns = rng.u64(100_000..50 * MS);
        let link = Link::new(delay_ns).with_bandwidth(10_000_000, 1_000_000);
        let mut world = flow(seed, 16 << 20, 0, &link);
        let cut_ns = 3 * SECOND + rng.u64(..SECOND);
        let before = packets_per_s(&mut world, SECOND, cut_ns);
        let heals_ns = cut_ns + 10 * SECOND;
        world.network.cut(world.client.address, world.server.address, heals_ns);
        world.run(heals_ns, |_| false);
        let had = taken(&world)[0];
        let goes_on = world.run(heals_ns + 2 * SECOND, |world| taken(world)[0] > had);
        let waited_ns = world.network.now_ns() - heals_ns;
        // A probe comes every half a second by then; its answer shows what is lost.
        assert!(goes_on && waited_ns <= 500 * MS + 6 * delay_ns, "{} ms: {}", waited_ns / MS, world.report());
        let rate = packets_per_s(&mut world, heals_ns + 2 * SECOND, heals_ns + 4 * SECOND);
        assert!(rate >= 0.8 * before, "{rate} after {before} packets a second: {}", world.report());
        let stats = world.client.peer().session.sender.stats();
        assert!(stats.timeouts <= 25, "two probes each half a second: {}", world.report());
    });
}

#[test]
fn neighbours_that_change_places_are_not_taken_for_lost() {
    check("neighbours_that_change_places_are_not_taken_for_lost", 20, |seed| {
        let mut rng = Rng::with_seed(seed);
        // A packet takes 146.4 µs, so one that is late is overtaken by two at most: three neighbours come in any order.
        let link = Link { reordering: rng.f64() * 0.5, reordering_ns: 439_000, ..Link::new(rng.u64(MS..20 * MS)) };
        let mut world = flow(seed, 16 << 20, 0, &link.with_bandwidth(10_000_000, 4 << 20));
        // The burst with which a session begins makes round trips of very different lengths.
        world.run(SECOND, |_| false);
        let start = world.client.peer().session.sender.stats();
        assert!(start.resent <= 2 && start.timeouts == 0, "{}", world.report());
        world.run(5 * SECOND, |_| false);
        let (stats, path) = (world.client.peer().session.sender.stats(), world.links().0);
        assert_eq!((stats.resent - start.resent, path.overflowed, stats.timeouts), (0, 0, 0), "{}", world.report());
    });
}

#[test]
fn a_stated_pace_is_kept_whatever_is_lost() {
    check("a_stated_pace_is_kept_whatever_is_lost", 20, |seed| {
        let mut rng = Rng::with_seed(seed);
        let (delay_ns, loss) = (rng.u64(20_000..25 * MS), rng.f64() * 0.1);
        let pace = 20_000_000;
        let mut world = flow(seed, 16 << 20, pace, &Link::new(delay_ns).with_loss(loss));
        let rate = packets_per_s(&mut world, SECOND, 5 * SECOND) * PACKET_BYTES as f64 / pace as f64;
        assert!(rate >= 0.95 * (1.0 - loss), "{rate} of the pace at a loss of {loss}: {}", world.report());
        let sent = world.links().0.sent_bytes as f64 / (pace * world.network.now_ns() / SECOND) as f64;
        assert!(sent <= 1.001, "{sent} of the pace: {}", world.report());
    });
}
