//! A daemon that crashes and is started again in the middle of traffic, with nothing on disk. It knows nothing of what was before: what
//! publishers were not acknowledged is sent again, perhaps twice; what was within the daemon is lost, though it was acknowledged; and all
//! else holds as without crashes.

use super::world::{MS, SECOND, World};
use super::{any_fault, any_world, finish, heal, leave};
use crate::failpoint::simulated::Moment;
use crossdock_sim::{Rng, check};

/// Turns of the daemon's parts within which it crashes.
const TURNS: u32 = 300;

/// Has the daemon crash now or soon; until when it is started again, at least, in ns.
pub(super) fn crash(world: &mut World, rng: &mut Rng) -> u64 {
    // With sessions that clients have not missed yet, and with others.
    let longest = if rng.bool() { 100 * MS } else { 5 * SECOND };
    let down_ns = rng.u64(MS..longest);
    match rng.bool() {
        true => world.crash_later((Moment::Turn, rng.u32(..TURNS)), down_ns),
        false => world.crash(0, down_ns),
    }
    world.network.now_ns() + down_ns + rng.u64(..SECOND)
}

/// A run from a seed; returns its digest and the number of crashes.
fn run(seed: u64) -> (u64, u64) {
    let mut rng = Rng::with_seed(seed);
    let mut world = any_world(seed, &mut rng);
    for _ in 0..rng.usize(1..=2) {
        let limit_ns = world.network.now_ns() + rng.u64(100 * MS..SECOND);
        world.run(limit_ns, |_| false);
        let mut until_ns = world.network.now_ns();
        if rng.bool() {
            until_ns = any_fault(&mut world, &mut rng);
        }
        for _ in 0..rng.usize(1..=2) {
            until_ns = until_ns.max(crash(&mut world, &mut rng));
            let limit_ns = world.network.now_ns() + rng.u64(..SECOND);
            world.run(limit_ns, |_| false);
        }
        world.run(until_ns, |_| false);
        heal(&mut world);
    }
    finish(&mut world);
    leave(&mut world, &mut rng);
    (world.network.fingerprint(), world.crashes)
}

#[test]
fn clients_of_a_daemon_that_crashes_go_on_in_order_and_with_nothing_that_was_not_sent() {
    check("clients_of_a_daemon_that_crashes_go_on_in_order_and_with_nothing_that_was_not_sent", 40, |seed| {
        run(seed);
    });
}

#[test]
fn a_seed_makes_the_same_run_with_crashes() {
    let runs: Vec<(u64, u64)> = (0..3).map(run).collect();
    assert_eq!(runs, (0..3).map(run).collect::<Vec<_>>());
    assert!(runs.iter().any(|(_, crashes)| *crashes > 0), "one of them crashes");
}
