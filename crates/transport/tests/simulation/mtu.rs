//! The packet size that a session finds, over paths that take more than was agreed, or less, or change.

use crate::datagrams::DatagramPlan;
use crate::host::HostPlan;
use crate::traffic::{SinkPlan, SourcePlan};
use crate::world::World;
use crate::{MS, SECOND};
use crossdock_sim::{Link, check};

const AGREED: usize = 1472;
const MOST: u32 = 65_472;

fn host(source: SourcePlan) -> HostPlan {
    let mut plan = HostPlan::new(source, SinkPlan::default());
    plan.limits.max_packet_bytes = MOST;
    plan
}

/// Records in full packets, for that many seconds: nine of them are exactly the agreed size.
fn steady(seconds: u64) -> SourcePlan {
    let plan = SourcePlan::bulk(seconds * 10 * 200);
    SourcePlan { interval_ns: 100 * MS, unit_records: 200..=200, record_words: 20..=20, ..plan }
}

fn link(mtu_bytes: usize) -> Link {
    Link::new(10 * MS).with_bandwidth(20_000_000, 1 << 20).with_mtu(mtu_bytes)
}

fn world(seed: u64, source: SourcePlan, link: &Link) -> World {
    World::new(seed, host(source), host(SourcePlan::nothing()), link.clone(), link.clone())
}

/// The size that the client has found.
fn found(world: &World) -> usize {
    world.client.peer().session.packet_bytes()
}

#[test]
fn a_session_finds_what_its_path_takes() {
    for (mtu_bytes, least) in [(MOST as usize, MOST as usize), (8972, 8940), (AGREED, 1440), (1300, 1268)] {
        check("a_session_finds_what_its_path_takes", 5, |seed| {
            let mut world = world(seed, steady(12), &link(mtu_bytes));
            world.finish(600 * SECOND);
            let found = found(&world);
            assert!((least..=mtu_bytes).contains(&found), "{found} of {mtu_bytes}: {}", world.report());
            assert_eq!(world.server.peer().session.packet_bytes(), AGREED, "one that sends nothing probes nothing");
        });
    }
}

#[test]
fn a_session_goes_on_through_a_fall_of_the_mtu_and_finds_the_larger_size_again() {
    check("a_session_goes_on_through_a_fall_of_the_mtu", 5, |seed| {
        let (wide, narrow) = (link(8972), link(1300));
        let mut world = world(seed, steady(120), &wide);
        world.run(5 * SECOND, |_| false);
        assert!(found(&world) > 8900, "{}", world.report());
        let before = world.server.peer().sink.messages;
        world.network.link(world.client.address, world.server.address, narrow);
        world.run(15 * SECOND, |_| false);
        let size = found(&world);
        assert!((1268..=1300).contains(&size), "{size}: {}", world.report());
        let stats = world.client.peer().session.sender.mtu_stats();
        assert_eq!(stats.black_holes, 1, "{}", world.report());
        let meanwhile = world.server.peer().sink.messages;
        assert!(meanwhile > before, "nothing came any more: {}", world.report());
        world.network.link(world.client.address, world.server.address, wide);
        world.finish(600 * SECOND);
        assert!(found(&world) > 8900, "{}", world.report());
    });
}

#[test]
fn packets_numbered_for_a_wide_path_cross_a_narrow_one() {
    check("packets_numbered_for_a_wide_path_cross_a_narrow_one", 5, |seed| {
        // As much as the path holds is on the way when it becomes narrow, and goes again in parts. Some parts are lost.
        let wide = link(usize::MAX);
        let mut world = world(seed, SourcePlan::bulk(100_000), &wide);
        world.run(2 * SECOND, |world| world.client.peers.values().any(|peer| peer.session.packet_bytes() > AGREED));
        world.run(world.network.now_ns() + 200 * MS, |_| false);
        world.network.link(world.client.address, world.server.address, link(1200).with_loss(0.002));
        world.finish(600 * SECOND);
        assert_eq!(found(&world), 1200, "{}", world.report());
    });
}

#[test]
fn datagrams_find_a_black_hole_too() {
    check("datagrams_find_a_black_hole_too", 10, |seed| {
        let datagrams = DatagramPlan { count: 2000, at_once: 1, interval_ns: 10 * MS };
        let client = HostPlan { datagrams, ..host(SourcePlan::nothing()) };
        let path = link(1300);
        let mut world = World::new(seed, client, host(SourcePlan::nothing()), path.clone(), path);
        world.run(30 * SECOND, |_| false);
        assert!((1200..=1300).contains(&found(&world)), "{}", world.report());
        let came = world.server.peer().session.receiver.datagrams();
        assert!(came.arrived > 1000, "{came:?}: {}", world.report());
    });
}

#[test]
fn a_partition_lowers_the_size_for_a_while_only() {
    check("a_partition_lowers_the_size_for_a_while_only", 5, |seed| {
        let mut world = world(seed, steady(90), &link(8972));
        world.run(2 * SECOND, |_| false);
        world.network.cut(world.client.address, world.server.address, 5 * SECOND);
        world.finish(600 * SECOND);
        assert!(found(&world) > 8900, "{}", world.report());
    });
}
