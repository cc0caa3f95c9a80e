//! The beginning, the interruptions and the end of a session.

use crate::host::HostPlan;
use crate::traffic::{SinkPlan, SourcePlan};
use crate::world::World;
use crate::{MS, SECOND};
use crossdock_sim::{Link, Rng, check};
use crossdock_transport::handshake::Close;
use crossdock_transport::{Hello, Limits};

const IDLE_TIMEOUT_NS: u64 = 3 * SECOND;

/// Traffic in both directions over `link`: as fast as it goes, a little, or none.
fn world(seed: u64, rng: &mut Rng, link: &Link) -> World {
    let mut plan = || {
        let source = match rng.u8(..3) {
            0 => SourcePlan::bulk(1_000_000),
            1 => SourcePlan { interval_ns: 7 * MS, unit_records: 1..=3, control: 0.1, ..SourcePlan::bulk(1_000_000) },
            _ => SourcePlan::nothing(),
        };
        let mut plan = HostPlan::new(source, SinkPlan::default());
        plan.limits = Limits::new(plan.limits.window_bytes, IDLE_TIMEOUT_NS);
        plan
    };
    let (client, server) = (plan(), plan());
    World::new(seed, client, server, link.clone(), link.clone())
}

fn slow_link(rng: &mut Rng) -> Link {
    Link::new(rng.u64(50_000..20 * MS)).with_bandwidth(2_000_000, 200_000)
}

/// How much each side has taken.
fn taken(world: &World) -> [u64; 2] {
    [&world.client, &world.server].map(|host| host.peer().sink.messages)
}

#[test]
fn a_short_partition_heals() {
    check("a_short_partition_repairs_itself", 25, |seed| {
        let mut rng = Rng::with_seed(seed);
        let link = slow_link(&mut rng);
        let mut world = world(seed, &mut rng, &link);
        let cut_ns = SECOND + rng.u64(..2 * SECOND);
        world.run(cut_ns, |_| false);
        // An idle session may have been silent for a third of its time-out before; the rest is for the cut, and for the pings
        // that come a twelfth apart, with a round trip.
        let longest_ns = IDLE_TIMEOUT_NS * 2 / 3 - IDLE_TIMEOUT_NS / 12 - 100 * MS;
        let heals_ns = cut_ns + rng.u64(..longest_ns);
        match rng.u8(..3) {
            0 => world.network.cut_one_way(world.client.address, world.server.address, heals_ns),
            1 => world.network.cut_one_way(world.server.address, world.client.address, heals_ns),
            _ => world.network.cut(world.client.address, world.server.address, heals_ns),
        }
        world.run(heals_ns, |_| false);
        let before = taken(&world);
        world.run(heals_ns + 10 * SECOND, |_| false);
        for (host, (before, after)) in
            [&world.server, &world.client].into_iter().zip(before.into_iter().zip(taken(&world)))
        {
            assert_eq!(host.peer().dead_ns, None, "{}", world.report());
            assert!(after > before || host.plan.source.messages == 0, "nothing came any more: {}", world.report());
        }
    });
}

#[test]
fn a_long_partition_is_noticed_by_both_sides() {
    check("a_long_partition_is_noticed_by_both_sides", 30, |seed| {
        let mut rng = Rng::with_seed(seed);
        let link = slow_link(&mut rng);
        let mut world = world(seed, &mut rng, &link);
        let cut_ns = SECOND + rng.u64(..2 * SECOND);
        world.run(cut_ns, |_| false);
        world.network.cut(world.client.address, world.server.address, cut_ns + 2 * IDLE_TIMEOUT_NS);
        world.run(cut_ns + 4 * IDLE_TIMEOUT_NS, |_| false);
        for host in [&world.client, &world.server] {
            let dead_ns = host.peer().dead_ns.expect("noticed");
            // The queue of the path empties after the cut: 100 ms at 2 MB/s.
            let noticed = cut_ns + IDLE_TIMEOUT_NS * 2 / 3 - 100 * MS..=cut_ns + IDLE_TIMEOUT_NS + 200 * MS;
            assert!(noticed.contains(&dead_ns), "{dead_ns} is not in {noticed:?}: {}", world.report());
        }
    });
}

#[test]
fn an_idle_session_lives_on_a_lossy_path() {
    check("an_idle_session_lives_on_a_lossy_path", 20, |seed| {
        let plan = || {
            let mut plan = HostPlan::new(SourcePlan::nothing(), SinkPlan::default());
            plan.limits = Limits::new(plan.limits.window_bytes, IDLE_TIMEOUT_NS);
            plan
        };
        let link = Link::new(10 * MS).with_loss(0.1);
        let mut world = World::new(seed, plan(), plan(), link.clone(), link);
        world.run(300 * SECOND, |_| false);
        for host in [&world.client, &world.server] {
            assert_eq!(host.peer().dead_ns, None, "{}", world.report());
            // Three pings in a time-out when nothing is lost.
            assert!(host.counters.pings_sent < 3 * 300, "{}", world.report());
        }
    });
}

#[test]
fn repeated_and_late_hellos_make_one_session() {
    check("repeated_and_late_hellos_make_one_session", 100, |seed| {
        let mut rng = Rng::with_seed(seed);
        let link = Link {
            duplication: 0.9,
            loss: 0.3,
            reordering: 0.5,
            reordering_ns: 300 * MS,
            ..Link::new(rng.u64(50_000..80 * MS))
        };
        let client = HostPlan::new(SourcePlan::bulk(300), SinkPlan::default());
        let server = HostPlan::new(SourcePlan::bulk(300), SinkPlan::default());
        let mut world = World::new(seed, client, server, link.clone(), link);
        let (dialler, to, _) = world.client.dialler.clone().expect("it has not been answered");
        let mut late = dialler;
        let hello = late.poll(0).expect("the first hello");
        world.run(600 * SECOND, |world| !world.client.peers.is_empty());
        world.network.send(world.client.address, to, &hello);
        world.finish(600 * SECOND);
        world.network.send(world.client.address, to, &hello);
        world.settle();
        let made = [&world.client, &world.server].map(|host| host.counters.sessions_made);
        assert_eq!(made, [1, 1], "{}", world.report());
        assert!(Hello::decode(&hello[32..]).is_ok());
    });
}

#[test]
fn a_close_is_the_last_word() {
    let link = Link::new(MS);
    let client = HostPlan::new(SourcePlan::bulk(1_000_000), SinkPlan::default());
    let server = HostPlan::new(SourcePlan::nothing(), SinkPlan::default());
    let mut world = World::new(1, client, server, link.clone(), link);
    world.run(50 * MS, |_| false);
    let close = Close { again: false, reason: "the table of streams is full".into() };
    let to = world.server.peer().session.peer_session();
    world.network.send(world.server.address, world.client.address, &close.packet(to));
    world.run(60 * MS, |_| false);
    assert_eq!(world.client.peer().closed.as_deref(), Some("the table of streams is full"));
}
