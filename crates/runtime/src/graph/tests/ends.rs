//! Random graphs with the tightest bounds run to the end of their streams: queues of a batch or a few, hardly more buffers
//! than queues, handlers that make much more than they get, several contexts, subscribers that take nothing for a while.

use super::moves::Turns;
use super::*;
use crate::graph::bounds::TooManyQueues;

/// The part of a stream that a handler makes.
struct Made {
    id: NodeId,
    reads: Vec<u32>,
    makes: u32,
    times: usize,
}

/// A handler that makes `times` records of each, long ones.
fn instance(times: usize) -> Instance {
    let handler = Box::new(Many { times, ..Many::default() });
    Instance { stream: None, format: FORMAT, handler: Some(handler), output: FORMAT }
}

/// Puts random handlers in until no more have room; whether one was refused.
fn build(world: &mut World, overlay: &mut Overlay, rng: &mut Rng, seed: u64) -> (Vec<Made>, bool) {
    let mut made: Vec<Made> = Vec::new();
    let wanted = rng.u32(1..10);
    for number in 0..wanted {
        let streams: Vec<u32> = (0..STREAMS).chain(made.iter().map(|made| made.makes)).collect();
        let mut reads: Vec<u32> = (0..rng.usize(1..3)).map(|_| streams[rng.usize(0..streams.len())]).collect();
        reads.sort_unstable();
        reads.dedup();
        // Much of it would only take long.
        let grows = made.iter().filter(|made| made.times > 1).count() < 2;
        let times = if grows { [1, 3, 20][rng.usize(0..3)] } else { rng.usize(0..2) };
        let (id, makes) = (overlay.next_id(&[]), STREAMS + number);
        let node = added(id, vec![instance(times)], (&reads, makes), SchedulingPolicy::default());
        let edits = add(node, rng.u8(0..world.graphs.len() as u8)).into();
        match overlay.change(edits, &mut Turns { world, left: 100_000 }) {
            Ok(_) => {
                world.subscribe(makes);
                made.push(Made { id, reads, makes, times });
            }
            Err(NotChanged::NoBuffers(TooManyQueues { queues, buffers })) => {
                assert!(queues > buffers, "seed {seed}");
                return (made, true);
            }
            Err(error) => panic!("seed {seed}: {error:?}"),
        }
    }
    (made, false)
}

/// Runs one graph to the ends of its streams; whether a handler was refused since there was no buffer for its queues.
fn run(seed: u64) -> bool {
    let mut rng = Rng::with_seed(seed);
    let (contexts, queue, large) = (rng.usize(1..5), rng.usize(1..4), rng.usize(8..32));
    let (mut world, mut overlay) = World::with_buffers(contexts, seed, queue, large);
    let (made, is_refused) = build(&mut world, &mut overlay, &mut rng, seed);
    let mut left = [30; STREAMS as usize];
    while left.iter().any(|left| *left > 0) {
        let stream = rng.usize(0..left.len());
        world.sessions.is_held = rng.u8(0..3) == 0;
        if left[stream] > 0 && !world.blocked[stream] {
            left[stream] -= 1;
            world.offer(stream as u32);
        }
        for _ in 0..rng.usize(0..4) {
            world.turn(rng.usize(0..contexts));
        }
        if left.iter().zip(&world.blocked).all(|(left, is_blocked)| *left == 0 || *is_blocked) {
            world.sessions.is_held = false;
            world.settle();
            let goes_on = left.iter().zip(&world.blocked).all(|(left, is_blocked)| *left == 0 || !*is_blocked);
            assert!(goes_on, "seed {seed}: publishers wait, and nothing else does");
        }
    }
    (0..STREAMS).for_each(|stream| world.graphs[0].0.arrive_end(stream, 0, true));
    world.sessions.is_held = false;
    world.settle();
    let about = format!("seed {seed}: {contexts} contexts, queues of {queue}, {large} buffers");
    for node in &made {
        let gauges = Arc::clone(&overlay.node(node.id).unwrap().gauges);
        let came = |stream: &u32| match made.iter().find(|other| other.makes == *stream) {
            Some(other) => overlay.node(other.id).unwrap().gauges.records_out.get(),
            None => world.next[*stream as usize],
        };
        assert_eq!(gauges.losses(), [], "{about}");
        assert_eq!(gauges.records_in.get(), node.reads.iter().map(came).sum::<u64>(), "{about}");
        assert_eq!(gauges.records_out.get(), gauges.records_in.get() * node.times as u64, "{about}");
        let delivered = world.sessions.delivered.get(&node.makes).map_or(0, |(_, count)| *count);
        assert_eq!(delivered, gauges.records_out.get(), "{about}");
        assert!(world.sessions.ended.contains(&node.makes), "{about}: a stream has not ended");
    }
    for (_, ws) in &world.graphs {
        assert_eq!(ws.buffers_in_use(), 0, "{about}");
    }
    is_refused
}

#[test]
fn random_graphs_with_the_tightest_bounds_run_to_the_end_of_their_streams() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    if let Some(seed) = seed {
        run(seed);
        return;
    }
    let all = if std::env::var_os("CROSSDOCK_THOROUGH").is_some() { 250 } else { 50 };
    let refused = (0..all).filter(|seed| run(*seed)).count();
    assert!(refused > 0 && refused < all as usize, "{refused} graphs needed more buffers than there were");
}
