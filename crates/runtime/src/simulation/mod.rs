//! A whole daemon and its clients in virtual time, from one seed.
//!
//! The real code runs: the contexts with their loop (maintain, ingress, work, egress), the catalog, the planner and the managers
//! ([`crate::starting::simulated`]), and the library's publishers and subscribers. Only devices, clocks and random bytes are simulated
//! (`crossdock_sim`, `crossdock_device::simulated`), and all of it takes turns on one thread. The cost of a query is not measured but
//! taken to be small ([`crate::estimate`]). So a run follows from its seed alone.
//!
//! The invariants ([`model`], [`world`]): a record that was acknowledged is delivered exactly once and in order to each subscription that stands,
//! by the query's meaning; nothing is delivered that was not sent; no bound is passed; after each fault all that was handed over is
//! acknowledged and delivered within a time; once all clients have gone the daemon holds nothing.
//!
//! Scenarios of their own: a daemon that crashes ([`restarts`]), a durable one that crashes ([`durable`]), tables of a state ([`tables`]), two daemons ([`routes`]), an
//! attacker ([`attack`]), and what a daemon sends in a turn where nothing is wrong ([`sending`]).

mod attack;
mod clients;
mod durable;
mod model;
mod restarts;
mod routes;
mod sending;
mod socket;
mod tables;
mod world;

use clients::{PublisherApp, Stage};
use crossdock_sim::{EcnPath, Link, Rng, check, flip_or_truncate};
use model::Query;
use std::net::SocketAddr;
use world::{MS, SECOND, World, WorldPlan};

/// How long it may take after a fault until all is delivered that was handed over.
const PATIENCE_NS: u64 = 90 * SECOND;
/// Kinds of faults; the first are those of the network and the clocks.
const FAULTS: u8 = 10;
const NETWORK_FAULTS: u8 = 8;

/// Spoils a datagram where its header shows it: what is deeper in a packet that is in no envelope is for UDP's checksum to find.
fn spoil_header(rng: &mut Rng, bytes: &mut Vec<u8>) {
    match rng.u8(..4) {
        0 => bytes[0] ^= 1 << rng.u8(..8),
        // An unknown kind, and a length that no packet has.
        1 if bytes.len() > 1 => bytes[1] ^= 16 << rng.u8(..4),
        2 if bytes.len() > 3 => bytes[2..4].fill(0xff),
        _ => bytes.truncate(rng.usize(..bytes.len().min(32))),
    }
}

/// Any path on which sessions stand.
fn any_link(rng: &mut Rng, is_secure: bool) -> Link {
    let rarely = |rng: &mut Rng, most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
    let delay_ns = [20_000, 300_000, 5 * MS, 40 * MS][rng.usize(..4)];
    let link = Link {
        jitter_ns: rng.u64(..=delay_ns / 2),
        loss: rarely(rng, 0.02),
        duplication: rarely(rng, 0.05),
        reordering: rarely(rng, 0.05),
        reordering_ns: 2 * delay_ns,
        corruption: rarely(rng, 0.02),
        corrupt: if is_secure { flip_or_truncate } else { spoil_header },
        mtu_bytes: [1472, 1472, 4000, usize::MAX][rng.usize(..4)],
        ecn: [EcnPath::Kept, EcnPath::Kept, EcnPath::Cleared, EcnPath::Marked][rng.usize(..4)],
        ..Link::new(delay_ns)
    };
    if rng.bool() { link.with_bandwidth(rng.u64(1 << 20..16 << 20), rng.u64(128 << 10..1 << 20)) } else { link }
}

/// Any world.
fn any_plan(rng: &mut Rng) -> WorldPlan {
    let is_secure = rng.bool();
    WorldPlan {
        contexts: rng.usize(1..=2),
        is_secure,
        link: any_link(rng, is_secure),
        rounds: [4, 8, 64][rng.usize(..3)],
        is_durable: false,
        is_routed: false,
        strays: [0, 0, 20][rng.usize(..3)],
    }
}

/// A world with clients: publishers of two streams, the second with one of them, and subscribers of all kinds.
fn any_world(seed: u64, rng: &mut Rng) -> World {
    let plan = any_plan(rng);
    any_world_of(World::new(seed, plan), rng)
}

/// The same, in this world.
fn any_world_of(mut world: World, rng: &mut Rng) -> World {
    let publishers = rng.usize(1..=3);
    let mut joining: Vec<usize> = (0..publishers + rng.usize(2..=4)).collect();
    rng.shuffle(&mut joining);
    let mut published = 0;
    for client in joining {
        match client < publishers {
            true => {
                world.publish(published % 2, any_burst(rng));
                published += 1;
            }
            false => subscribe_any(&mut world, rng, publishers.min(2)),
        }
        if rng.bool() {
            let limit_ns = world.network.now_ns() + rng.u64(..200 * MS);
            world.run(limit_ns, |_| false);
        }
    }
    world
}

fn any_burst(rng: &mut Rng) -> (usize, u64) {
    (rng.usize(1..=20), [5 * MS, 20 * MS, 100 * MS][rng.usize(..3)])
}

fn subscribe_any(world: &mut World, rng: &mut Rng, streams: usize) {
    let stream = rng.usize(..streams);
    let query = match rng.u8(..5) {
        0 | 1 => Query::All,
        2 => Query::AtLeast(rng.i64(..1000)),
        3 => Query::EvenBelow(rng.i64(..1000)),
        // Only where one publisher decides which window is the next.
        _ if stream == 1 => Query::Windows,
        _ => Query::AtLeast(500),
    };
    let pace = ([4, 16, 1000][rng.usize(..3)], [MS, 10 * MS, 50 * MS][rng.usize(..3)]);
    world.subscribe(stream, query, pace);
}

/// Has something go wrong; until when it does, in ns.
fn any_fault(world: &mut World, rng: &mut Rng) -> u64 {
    fault(world, rng, FAULTS)
}

/// The same of the network and the clocks: all clients stay, and none comes.
fn network_fault(world: &mut World, rng: &mut Rng) -> u64 {
    fault(world, rng, NETWORK_FAULTS)
}

/// One of the first `kinds` faults.
fn fault(world: &mut World, rng: &mut Rng, kinds: u8) -> u64 {
    let now_ns = world.network.now_ns();
    let clients: Vec<SocketAddr> = world.clients.keys().copied().collect();
    let client = clients[rng.usize(..clients.len())];
    let daemon = world.clients[&client].over;
    // A few take so long that sessions are lost by them.
    let longest = if rng.u8(..4) == 0 { 9 * SECOND } else { 2 * SECOND };
    let until_ns = now_ns + rng.u64(20 * MS..longest);
    let node = if rng.bool() { client } else { daemon };
    let worse = |world: &World, rng: &mut Rng| match rng.u8(..4) {
        0 => Link { loss: 0.1 + 0.4 * rng.f64(), ..world.plan.link.clone() },
        1 => Link { mtu_bytes: rng.usize(1264..1472), ..world.plan.link.clone() },
        2 => Link {
            duplication: 0.5,
            reordering: 0.3,
            reordering_ns: 50 * MS,
            corruption: 0.2,
            ..world.plan.link.clone()
        },
        _ => Link { delay_ns: rng.u64(..200 * MS), ..world.plan.link.clone() },
    };
    match rng.u8(..kinds) {
        0 => world.network.cut(client, daemon, until_ns),
        1 => world.network.cut_one_way(client, daemon, until_ns),
        2 => world.network.cut_one_way(daemon, client, until_ns),
        3 => {
            let links: Vec<_> = world.clients.iter().map(|(address, client)| (*address, client.over)).collect();
            links.into_iter().for_each(|(client, daemon)| world.network.cut(client, daemon, until_ns));
        }
        4 => world.network.pause(node, until_ns),
        5 => world.jump(node, until_ns - now_ns),
        6 | 7 => {
            let (up, down) = (worse(world, rng), worse(world, rng));
            world.network.link_one_way(client, daemon, up);
            world.network.link_one_way(daemon, client, down);
        }
        8 => {
            let is_announced = !world.publishers().any(|publisher| publisher.stage == Stage::Announcing);
            if is_announced && clients.len() > 2 {
                world.remove(client, rng.bool());
            }
        }
        _ => match rng.bool() {
            true => drop(world.publish(0, any_burst(rng))),
            false => subscribe_any(world, rng, 1),
        },
    }
    until_ns
}

/// Whether all that was handed over is acknowledged, and delivered where it has to be.
fn is_caught_up(world: &World) -> bool {
    world.is_up()
        && world.publishers().all(|publisher| publisher.is_settled(&world.model))
        && world.subscribers().all(|of| !of.is_changing() && of.judge.missing(&world.model, false).is_none())
}

/// Nothing is wrong any more: all is delivered within a time.
fn heal(world: &mut World) {
    world.repair();
    world.publishers_mut().for_each(|publisher| publisher.rests = true);
    let limit_ns = world.network.now_ns() + PATIENCE_NS;
    assert!(world.run(limit_ns, is_caught_up), "no progress after a fault: {}", world.report());
    world.model.settle();
    world.publishers_mut().for_each(|publisher| publisher.rests = false);
}

/// A run from a seed; returns its digest.
fn run(seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let mut world = any_world(seed, &mut rng);
    for _ in 0..rng.usize(1..=2) {
        let limit_ns = world.network.now_ns() + rng.u64(100 * MS..SECOND);
        world.run(limit_ns, |_| false);
        let mut until_ns = world.network.now_ns();
        for _ in 0..rng.usize(1..=2) {
            until_ns = until_ns.max(any_fault(&mut world, &mut rng));
        }
        world.run(until_ns, |_| false);
        heal(&mut world);
    }
    finish(&mut world);
    leave(&mut world, &mut rng);
    world.network.fingerprint()
}

/// All publishers finish, and each subscription has all that it must have.
fn finish(world: &mut World) {
    world.publishers_mut().for_each(PublisherApp::finish);
    let limit_ns = world.network.now_ns() + PATIENCE_NS;
    let is_over = |world: &World| {
        let is_finished = world.publishers().all(|publisher| publisher.stage == Stage::Finished);
        is_finished && world.subscribers().all(|of| of.judge.missing(&world.model, true).is_none())
    };
    assert!(world.run(limit_ns, is_over), "not finished: {}", world.report());
    // Should something come once more, it comes now.
    world.run(world.network.now_ns() + 2 * SECOND, |_| false);
    for subscriber in world.subscribers().filter(|subscriber| subscriber.query == Query::All) {
        // After a crash it is not known whose records the last ones were: then it is the least that can have been missed.
        if world.crashes > 0 && world.model.of(subscriber.stream).count() > 1 {
            continue;
        }
        let (missed, reported) = (subscriber.judge.missed, subscriber.reported_missed());
        assert!(
            reported.is_none_or(|reported| reported >= missed),
            "subscriber {} missed {missed}, and the library reports {reported:?}: {}",
            subscriber.id,
            world.report()
        );
    }
}

/// All clients go, and the daemon holds nothing more.
fn leave(world: &mut World, rng: &mut Rng) {
    let clients: Vec<SocketAddr> = world.clients.keys().copied().collect();
    clients.into_iter().for_each(|client| world.remove(client, rng.bool()));
    let is_empty = |world: &World| world.sum(|context| context.net.sessions() as u64 + context.net.buffers().0) == 0;
    let limit_ns = world.network.now_ns() + PATIENCE_NS;
    assert!(world.run(limit_ns, is_empty), "the daemon holds something of clients that have gone: {}", world.report());
}

#[test]
fn records_that_a_simulated_daemon_acknowledges_arrive_once_and_in_order() {
    check("records_that_a_simulated_daemon_acknowledges_arrive_once_and_in_order", 200, |seed| {
        run(seed);
    });
}

#[test]
fn a_seed_makes_the_same_run_of_daemon_and_clients() {
    for seed in 0..3 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
