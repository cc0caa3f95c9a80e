//! Handlers that keep what comes until its stream ends, and that move as it does.

use super::*;
use crate::graph::tests::last_rows::{COLLECTING_EPOCH_NS, Collecting};

/// A handler that keeps records moves while all publishers stop. It makes records of them if all publishers finish; where the only one
/// is lost, it waits for that to come back and to finish.
fn end_while_moving(seed: u64, finishes: bool) {
    let (mut world, mut overlay) = Contexts::new(2 + seed as usize % 3, seed);
    let contexts = world.graphs.len();
    world.graphs.iter_mut().for_each(|(graph, _)| graph.set_epoch(COLLECTING_EPOCH_NS));
    (world.stops_one_in, world.finishes) = (u32::MAX, Some(finishes));
    // At one context there is none, which may be the next one of the handler.
    let publishers = if finishes { world.rng.usize(1..contexts) } else { 1 };
    (0..publishers).for_each(|at| world.publish(&mut overlay, 0, at));
    let (id, place) = (overlay.next_id(&[]), |world: &mut Contexts| ContextIndex(world.rng.u8(0..contexts as u8)));
    let node = added(id, vec![Collecting::instance(8, false)], (&[0], STREAMS), SchedulingPolicy::default());
    let edit = Edit::Add { node, at: place(&mut world) };
    overlay.change(vec![edit], &mut world).unwrap();
    (0..contexts).for_each(|at| world.subscribe(&mut overlay, (STREAMS, 0), at));
    (0..world.rng.u32(0..300)).for_each(|_| world.step());
    world.stops_one_in = world.rng.u32(2..20);
    for _ in 0..world.rng.usize(1..4) {
        let edit = Edit::Change { id, instances: None, policy: None, reads: None, at: Some(place(&mut world)) };
        overlay.change(vec![edit], &mut world).unwrap();
    }
    end_all(&mut world);
    let about = |key: &usize| format!("seed {seed}: subscription {key}, all finish: {finishes}");
    for (key, got) in &world.taken.of {
        assert_eq!((got.zeros, got.left), (1, Some(0)), "{}", about(key));
        assert!(finishes || got.next.is_empty(), "{}", about(key));
    }
    if !finishes {
        world.finishes = Some(true);
        world.publish(&mut overlay, 0, 0);
        end_all(&mut world);
        world.taken.of.iter().for_each(|(key, got)| assert_eq!((got.zeros, got.left), (2, Some(0)), "{}", about(key)));
    }
    check(&world, seed);
}

/// The publishers stop one after the other.
fn end_all(world: &mut Contexts) {
    while let Some(publisher) = world.one_publishing() {
        world.step();
        world.end(publisher);
    }
    world.settle();
}

#[test]
fn rows_that_a_handler_keeps_for_the_end_of_its_stream_are_made_wherever_it_is_by_then() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let all = if std::env::var_os("CROSSDOCK_THOROUGH").is_some() { 1000 } else { 100 };
    for seed in seed.map_or(0..all, |seed: u64| seed..seed + 1) {
        [true, false].into_iter().for_each(|finishes| end_while_moving(seed, finishes));
    }
}
