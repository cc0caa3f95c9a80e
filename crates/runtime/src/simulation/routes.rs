//! Two daemons that are neighbours: some clients reach the first, which has the streams, by the second, with source routes over packets
//! of the same faulty network. The second may stand still, crash, or lose its link to the first; all that holds without routes holds.

use super::restarts::crash;
use super::world::{MS, SECOND, World, WorldPlan};
use super::{any_fault, any_link, any_world_of, finish, heal, leave};
use crossdock_sim::{Link, Rng, check};

/// Any world with a gate.
fn routed_world(seed: u64, rng: &mut Rng) -> World {
    let plan = WorldPlan {
        contexts: rng.usize(1..=2),
        is_secure: true,
        link: any_link(rng, true),
        rounds: [4, 8, 64][rng.usize(..3)],
        is_durable: false,
        is_routed: true,
        strays: 0,
    };
    any_world_of(World::new(seed, plan), rng)
}

/// Has something go wrong with the gate or between both daemons; until when it does, in ns.
fn any_fault_of_gate(world: &mut World, rng: &mut Rng) -> u64 {
    let nodes = world.nodes();
    let (daemon, gate) = (nodes[0], nodes[1]);
    let longest = if rng.u8(..4) == 0 { 9 * SECOND } else { 2 * SECOND };
    let for_ns = rng.u64(20 * MS..longest);
    let until_ns = world.network.now_ns() + for_ns;
    let worse = Link { loss: 0.1 + 0.4 * rng.f64(), delay_ns: rng.u64(..50 * MS), ..world.plan.link.clone() };
    match rng.u8(..8) {
        0 | 1 => world.network.cut(daemon, gate, until_ns),
        2 => world.network.cut_one_way(daemon, gate, until_ns),
        3 => world.network.cut_one_way(gate, daemon, until_ns),
        4 => world.network.link(daemon, gate, worse),
        5 => world.network.pause(gate, until_ns),
        6 => world.jump(gate, for_ns),
        _ => world.crash(1, for_ns),
    }
    until_ns
}

/// A run from a seed; returns its digest.
fn run(seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let mut world = routed_world(seed, &mut rng);
    for _ in 0..rng.usize(1..=2) {
        let limit_ns = world.network.now_ns() + rng.u64(100 * MS..SECOND);
        world.run(limit_ns, |_| false);
        let mut until_ns = any_fault_of_gate(&mut world, &mut rng);
        until_ns = until_ns.max(match rng.u8(..6) {
            0..=2 => any_fault(&mut world, &mut rng),
            3 => crash(&mut world, &mut rng),
            _ => until_ns,
        });
        world.run(until_ns, |_| false);
        heal(&mut world);
    }
    let routed = world.sum(|context| context.net.counters().packets_routed);
    assert!(routed > 0 || !world.has_routed_clients(), "packets take routes: {}", world.report());
    finish(&mut world);
    leave(&mut world, &mut rng);
    world.network.fingerprint()
}

#[test]
fn records_that_take_a_route_over_another_daemon_arrive_once_and_in_order() {
    check("records_that_take_a_route_over_another_daemon_arrive_once_and_in_order", 40, |seed| {
        run(seed);
    });
}

#[test]
fn a_seed_makes_the_same_run_over_a_route() {
    for seed in 0..2 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
