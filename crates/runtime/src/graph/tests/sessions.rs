//! Nodes that end in sessions: what waits for a session, whom that holds back, and what a panic takes along.

use super::*;
use crate::graph::gauges::{Loss, NodeGauges};

fn many(times: usize) -> Vec<Instance> {
    let handler = Box::new(Many { times, ..Many::default() });
    vec![Instance { stream: None, format: FORMAT, handler: Some(handler), output: FORMAT }]
}

/// Offers batches of both streams, with a turn of the context after each.
fn pass(world: &mut World, rounds: u32) {
    for _ in 0..rounds {
        (0..STREAMS).for_each(|stream| world.offer(stream));
        world.turn(0);
    }
}

/// Output that is many times as long as the input waits for room and buffers, and for the end of the stream after it.
#[test]
fn a_session_that_blocks_loses_nothing_however_long_its_output_is() {
    for (seed, times) in [(1, 1), (2, 40), (3, 100)] {
        let (mut world, _overlay) = World::new(1, seed, 4);
        world.sessions.tight = Some(Rng::with_seed(seed));
        world.graphs[0].0.limit_sessions(4);
        let gauges = world.subscribe_with(many(times), 0, 0, SchedulingPolicy::default());
        let mut was_blocked = false;
        for _ in 0..100 {
            pass(&mut world, 1);
            was_blocked |= world.blocked[0];
        }
        world.graphs[0].0.arrive_end(0, 0, true);
        world.settle();
        assert_eq!((gauges.losses(), world.sessions.wrong), (Vec::new(), 0), "{times} records of each");
        assert_eq!(gauges.records_in.get(), world.next[0]);
        assert_eq!(world.sessions.delivered[&0].1, world.next[0] * times as u64);
        assert_eq!((was_blocked, world.blocked[0]), (true, false), "{times} records of each");
        assert_eq!(world.sessions.ended, [0], "once, after all records");
        assert_eq!(world.graphs[0].1.buffers_in_use(), 0);
    }
}

/// A session that takes nothing holds back the publishers of its stream and nobody else, unless it drops.
#[test]
fn a_slow_session_holds_back_its_own_publishers_only() {
    for drops in [false, true] {
        let (mut world, mut overlay) = World::new(2, 1, 64);
        let policy = SchedulingPolicy { drops, ..SchedulingPolicy::default() };
        // One stream is published, the other one is derived from the second.
        let slow = world.subscribe_with(many(1), 0, 0, policy);
        world.subscribe(1);
        world.subscribe(9);
        let node =
            added(NodeId(0), vec![InOrder::instance(false, &Arc::default())], (&[1], 9), SchedulingPolicy::default());
        let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
        overlay.change(add(node, 1).into(), &mut wait).unwrap();
        world.sessions.held = vec![0];
        for _ in 0..200 {
            pass(&mut world, 1);
            world.turn(1);
        }
        assert_eq!((world.blocked[0], world.blocked[1]), (!drops, false));
        assert_eq!(slow.lost(Loss::QueueFull) > 0, drops);
        world.settle();
        assert_eq!(world.sessions.delivered[&1].1, world.next[1]);
        let queued: u64 = world.next[0] - slow.records_in.get() - slow.lost(Loss::QueueFull);
        world.sessions.held.clear();
        world.settle();
        assert_eq!(slow.records_in.get() + slow.lost(Loss::QueueFull), world.next[0], "{queued} had waited");
        assert!(queued > 0 && !world.blocked[0]);
    }
}

/// Panics at its first batch.
pub(super) struct Panics;

impl Handler for Panics {
    fn process(&mut self, batch: &Batch, _: &mut Selection, out: &mut dyn Sink) -> Verdict {
        out.push(batch.record(0));
        // Without what a panic prints.
        std::panic::resume_unwind(Box::new("as the test wants"))
    }

    fn counters(&self) -> HandlerCounters {
        HandlerCounters::default()
    }
}

/// The query whose handler panics sees no more; what it had made before goes out, and others see all.
#[test]
fn a_panic_in_a_query_takes_its_node_only() {
    let (mut world, _overlay) = World::new(1, 1, 64);
    let instance = |handler: Box<dyn Handler>| {
        vec![Instance { stream: None, format: FORMAT, handler: Some(handler), output: FORMAT }]
    };
    let policy = SchedulingPolicy::default();
    let before = world.subscribe_with(instance(Box::new(All)), 5, 0, policy);
    let failing = world.subscribe_with(instance(Box::new(Panics)), 6, 0, policy);
    let after = world.subscribe_with(instance(Box::new(All)), 7, 0, policy);
    pass(&mut world, 20);
    world.settle();
    let all = world.next[0];
    for gauges in [before, after] {
        assert_eq!((gauges.records_out.get(), gauges.losses()), (all, Vec::new()));
    }
    assert_eq!(world.sessions.failed, [6]);
    let counts = |of: &NodeGauges| (of.records_in.get(), of.records_out.get(), of.lost(Loss::Failed), of.faults.get());
    assert_eq!(counts(&failing), (all, 1, all - 1, 1));
    assert!(!world.blocked[0]);
}

/// A record that waits for a session that goes is given back, and its publishers go on.
#[test]
fn a_session_that_goes_leaves_nothing_behind() {
    let (mut world, _overlay) = World::new(1, 1, 64);
    world.subscribe(0);
    world.subscribe(1);
    world.sessions.held = vec![0];
    pass(&mut world, 300);
    assert!(world.blocked[0] && !world.graphs[0].0.is_session_idle(0));
    let (graph, ws) = &mut world.graphs[0];
    graph.remove_session(0, ws);
    world.sessions.keys.retain(|key| *key != 0);
    world.settle();
    assert!(!world.blocked[0]);
    let in_use = |pool: &Pool| pool.stats().classes.iter().map(crossdock_mailbox::ClassStats::in_use).sum::<usize>();
    assert_eq!(in_use(&world.pool), 0);
    assert_eq!(world.sessions.delivered[&1].1, world.next[1]);
}

/// A few records in a large buffer that have to wait go into a small one, and come out as they were.
#[test]
fn records_that_wait_for_a_session_hold_no_more_memory_than_their_bytes() {
    let (mut world, _overlay) = World::new(1, 1, 64);
    world.graphs[0].1 = Workspace::new(Pool::new(PoolConfig { classes: vec![(512, 64), (64 << 10, 8)] }).unwrap());
    world.pool = Pool::new(PoolConfig { classes: vec![(64 << 10, 64)] }).unwrap();
    world.subscribe(0);
    world.sessions.held = vec![0];
    pass(&mut world, 20);
    let large = |pool: &Pool| pool.stats().classes.last().map_or(0, crossdock_mailbox::ClassStats::in_use);
    assert!(large(&world.pool) <= 2, "the first one did not know that it would wait");
    assert_eq!(large(&world.graphs[0].1.pool), 0);
    assert!(world.graphs[0].1.buffers_in_use() > 10);
    world.sessions.held.clear();
    world.settle();
    assert_eq!((world.sessions.delivered[&0], world.sessions.wrong), ((world.next[0], world.next[0]), 0));
    assert_eq!((large(&world.pool), world.graphs[0].1.buffers_in_use()), (0, 0));
}

/// Of records longer than a packet few wait for a session that stops: it is dropped for, or its publishers are held back.
#[test]
fn a_session_that_stops_holds_few_long_records() {
    for drops in [false, true] {
        let (mut world, _overlay) = World::new(1, 1, 64);
        let bytes = bounds::PIECE_BYTES + 8;
        let mut pool = Pool::new(PoolConfig { classes: vec![(bytes, 64)] }).unwrap();
        let policy = SchedulingPolicy { drops, ..SchedulingPolicy::default() };
        let gauges = world.subscribe_with(many(0), 0, 0, policy);
        world.sessions.held = vec![0];
        let in_use = |pool: &Pool| pool.stats().classes[0].in_use();
        let mut offered = 0;
        while offered < 40 && !world.blocked[0] {
            let batch = crate::graph::build::alone(pool.alloc(bytes).unwrap().freeze(), bytes, FORMAT);
            let (graph, ws) = &mut world.graphs[0];
            graph.arrive(0, batch, 0, ws);
            graph.check_publishers(0);
            offered += 1;
            // A short one waits behind it.
            world.offer(0);
            world.turn(0);
        }
        assert_eq!((offered < 40, world.blocked[0]), (!drops, !drops));
        assert!((1..=bounds::MOST_LONG).contains(&in_use(&pool)), "{} of {offered} wait", in_use(&pool));
        world.sessions.held.clear();
        world.settle();
        assert_eq!((in_use(&pool), world.blocked[0]), (0, false));
        // Short records stay beside them as long as there are places.
        let lost = if drops { offered - bounds::MOST_LONG as u64 } else { 0 };
        assert_eq!((gauges.lost(Loss::QueueFull), gauges.records_in.get()), (lost, world.next[0] + offered - lost));
    }
}

/// A record for which there can be no buffer is counted, rather than waiting for one; what comes behind it passes.
#[test]
fn output_longer_than_any_buffer_delays_nothing_behind_it() {
    let mut ws = Workspace::new(Pool::new(PoolConfig { classes: vec![(64 << 10, 8)] }).unwrap());
    ws.builder.begin(512, 4, 16 << 20);
    let mut sink = ws.sink();
    sink.push(&vec![0; (64 << 10) + 8]);
    sink.push(&[1; 8]);
    ws.close();
    assert_eq!((ws.builder.too_long, ws.builder.no_buffer, ws.builder.spill.is_empty()), (1, 0, true));
    assert_eq!(ws.builder.made.iter().map(Batch::len).sum::<usize>(), 1);
}

/// Takes all up to a record, as one does that begins with a snapshot, and then what comes.
#[derive(Default)]
struct FromSnapshot {
    phase: Box<SnapshotPhase>,
    counters: HandlerCounters,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum SnapshotPhase {
    #[default]
    Waits,
    Live,
    Lost,
}

impl FromSnapshot {
    fn instance(format: u64) -> Instance {
        Instance { stream: None, format, handler: Some(Box::new(FromSnapshot::default())), output: format }
    }
}

impl Handler for FromSnapshot {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        if self.is_over() {
            return Verdict::Drop;
        }
        *self.phase = SnapshotPhase::Live;
        selection.iter().for_each(|index| out.push(batch.record(index)));
        self.counters.passed += selection.len() as u64;
        Verdict::Emit(selection.len())
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn holds_end(&self) -> bool {
        *self.phase == SnapshotPhase::Waits
    }

    fn is_over(&self) -> bool {
        self.is_lost()
    }

    fn is_lost(&self) -> bool {
        *self.phase == SnapshotPhase::Lost
    }

    fn lose(&mut self) {
        *self.phase = SnapshotPhase::Lost;
    }

    fn state_kind(&self) -> Option<&str> {
        Some("from")
    }

    fn shares_state(&self) -> bool {
        true
    }

    fn hand_over(&mut self) -> Option<HandlerState> {
        let phase = std::mem::take(&mut self.phase);
        Some(HandlerState::new("from".into(), phase))
    }

    fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        self.phase = state.of_kind("from")?;
        Ok(())
    }
}

/// The end of a stream waits for a snapshot only as long as there is a state that could give it.
#[test]
fn a_reader_of_a_state_that_goes_before_its_snapshot_ends_at_once() {
    for has_begun in [false, true] {
        let (mut world, _overlay) = World::new(1, 1, 64);
        world.subscribe_with(vec![FromSnapshot::instance(FORMAT)], 0, 0, SchedulingPolicy::default());
        world.graphs[0].0.read_state(0);
        if has_begun {
            world.offer(0);
        }
        world.graphs[0].0.arrive_end(0, 0, true);
        world.settle();
        assert_eq!(world.sessions.ended, if has_begun { vec![0] } else { vec![] });
        // Behind what waits for it.
        world.sessions.held = vec![0];
        world.offer(0);
        world.graphs[0].0.lose_state(0, StateLoss::Withdrawn);
        world.graphs[0].0.lose_state(0, StateLoss::Withdrawn);
        world.settle();
        assert_eq!(world.sessions.lost, []);
        world.sessions.held.clear();
        world.settle();
        assert_eq!(world.sessions.lost, [(0, StateLoss::Withdrawn)]);
        let delivered = world.sessions.count(0);
        assert_eq!(delivered, world.next[0]);
        // Nothing of another state in its place.
        world.offer(0);
        world.settle();
        assert_eq!((world.sessions.count(0), world.sessions.lost.len()), (delivered, 1));
    }
}

/// The instances for several formats are one reader, whichever of them is replaced or goes.
#[test]
fn a_reader_of_a_state_has_come_as_far_in_one_format_as_in_the_others() {
    let (mut world, _overlay) = World::new(1, 1, 64);
    world.subscribe_with(vec![FromSnapshot::instance(FORMAT)], 0, 0, SchedulingPolicy::default());
    world.graphs[0].0.read_state(0);
    world.offer(0);
    world.settle();
    let graph = &mut world.graphs[0].0;
    graph.update_session(0, &mut vec![FromSnapshot::instance(FORMAT + 1), FromSnapshot::instance(FORMAT)], |_| true);
    graph.update_session(0, &mut Vec::new(), |format| format != FORMAT);
    graph.arrive_end(0, 0, true);
    world.settle();
    assert_eq!(world.sessions.ended, [0], "it waits for no snapshot in another format");
    world.sessions.ended.clear();
    world.offer_as(0, FORMAT + 1);
    world.graphs[0].0.arrive_end(0, 0, true);
    world.settle();
    assert_eq!((world.sessions.ended.len(), world.sessions.count(0)), (1, world.next[0]));
}
