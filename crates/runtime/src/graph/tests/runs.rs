//! How many records a handler gets at a time, by what its records took before.

use super::*;
use crate::graph::gauges::Loss;
use crate::graph::node::Condition;
use crossdock_device::thread_time_ns;
use std::sync::Mutex;

const BATCH: usize = 4000;
const SLICE_NS: u32 = 200_000;

/// Takes this processor time for each record, and notes how many it had in each run.
struct Slow {
    ns: u64,
    runs: Arc<Mutex<Vec<usize>>>,
}

impl Slow {
    fn instance(ns: u64) -> (Instance, Arc<Mutex<Vec<usize>>>) {
        let runs: Arc<Mutex<Vec<usize>>> = Arc::default();
        let handler = Box::new(Slow { ns, runs: Arc::clone(&runs) });
        (Instance { stream: None, format: FORMAT, handler: Some(handler), output: FORMAT }, runs)
    }
}

impl Handler for Slow {
    fn process(&mut self, _: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
        let until_ns = thread_time_ns() + self.ns * selection.len() as u64;
        while thread_time_ns() < until_ns {
            std::hint::spin_loop();
        }
        self.runs.lock().unwrap().push(selection.len());
        Verdict::Forward
    }

    fn counters(&self) -> HandlerCounters {
        HandlerCounters::default()
    }
}

/// A batch of `BATCH` records.
fn long_batch() -> Batch {
    let mut pool = Pool::new(PoolConfig { classes: vec![(8 * BATCH, 1)] }).unwrap();
    let mut batch = Batch::new();
    batch.format = FORMAT;
    batch.records.extend((0..BATCH as u32).map(|at| Span { slice: 0, start: 8 * at, len: 8 }));
    batch.push_buffer(pool.alloc(8 * BATCH).unwrap().freeze()).unwrap();
    batch.push_slice(Slice { buffer: 0, start: 0, len: 8 * BATCH as u32, records: BATCH as u32 }).unwrap();
    batch.select_all();
    batch
}

/// A context with a handler of this cost, for which a long batch waits.
fn slow(ns: u64, policy: SchedulingPolicy) -> (World, Overlay, Arc<gauges::NodeGauges>, Arc<Mutex<Vec<usize>>>) {
    let (mut world, mut overlay) = World::new(1, 1, 64);
    let (instance, runs) = Slow::instance(ns);
    let node = added(NodeId(0), vec![instance], (&[0], 9), policy);
    let gauges = Arc::clone(&node.gauges);
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    overlay.change(vec![Edit::Add { node, at: FIRST }], &mut wait).unwrap();
    world.settle();
    runs.lock().unwrap().clear();
    world.now_ns = 1_000_000_000;
    let (graph, ws) = &mut world.graphs[0];
    // Also what came while it was added is done.
    graph.node_mut(NodeId(0)).unwrap().measured_records = 0;
    graph.arrive(0, long_batch(), world.now_ns, ws);
    (world, overlay, gauges, runs)
}

/// The next runs at a context where one may take this time.
fn run(world: &mut World, most: RunTime, times: usize) {
    let (graph, ws) = &mut world.graphs[0];
    for _ in 0..times {
        graph.begin_turn(world.now_ns, ws);
        let mut job = graph.next_job(most, ws).unwrap();
        let ran = job.run(ws);
        graph.finish(job, ran, ws);
    }
}

#[test]
fn a_run_on_a_g_core_begins_with_one_record_and_takes_no_longer_than_50_ms() {
    let (mut world, _overlay, gauges, runs) = slow(1_000_000, SchedulingPolicy::default());
    run(&mut world, RunTime::Long, 6);
    let runs = runs.lock().unwrap();
    assert_eq!(runs[..3], [1, 4, 16], "no more than a few times as many as are known");
    assert!(runs.iter().all(|records| *records <= 50), "{runs:?}");
    assert_eq!(gauges.timed_batches.get(), 6, "each took long, and was measured");
}

#[test]
fn a_run_on_a_c_core_takes_no_longer_than_a_slice_or_one_record() {
    for (ns, most) in [(1_000_000, 1), (50_000, 4), (10_000, 20)] {
        let (mut world, _overlay, _, runs) = slow(ns, SchedulingPolicy::default());
        for turn in 0..10 {
            let before = runs.lock().unwrap().len();
            let (graph, ws) = &mut world.graphs[0];
            assert!(graph.serve(SLICE_NS, world.now_ns, ws), "there is more to do");
            let records: usize = runs.lock().unwrap()[before..].iter().sum();
            assert!(records <= 2 * most, "{records} records of {ns} ns in turn {turn}");
        }
        let runs = runs.lock().unwrap();
        assert!(runs[0] == 1 && runs.iter().all(|records| *records <= most), "{ns} ns: {runs:?}");
    }
}

/// The next version of a handler may take longer than the one before.
#[test]
fn the_time_of_a_record_is_not_known_after_a_swap() {
    let (mut world, mut overlay, _, runs) = slow(0, SchedulingPolicy::default());
    while runs.lock().unwrap().iter().sum::<usize>() < BATCH {
        run(&mut world, RunTime::Slice(SLICE_NS), 1);
    }
    let (instance, runs) = Slow::instance(1_000_000);
    let instances = Some((vec![instance], false));
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    let edit = Edit::Change { id: NodeId(0), instances, policy: None, reads: None, at: None };
    overlay.change(vec![edit], &mut wait).unwrap();
    let (graph, ws) = &mut world.graphs[0];
    graph.arrive(0, long_batch(), world.now_ns, ws);
    run(&mut world, RunTime::Slice(SLICE_NS), 3);
    // Also of what came during the change.
    let runs = runs.lock().unwrap();
    assert!(runs.len() >= 3 && runs.iter().all(|records| *records == 1), "{runs:?}");
}

/// The finished part of a batch counts before the rest of it is done.
#[test]
fn a_batch_in_work_counts_towards_the_budget_and_the_limit() {
    let budget = |budget_ns| SchedulingPolicy { budget_ns, ..SchedulingPolicy::default() };
    // At a c-core a slice for a record is the most.
    for (policy, most, over) in [
        (budget(100_000), RunTime::Long, 3),
        (budget(100_000_000), RunTime::Long, 0),
        (budget(100_000_000), RunTime::Slice(SLICE_NS), 3),
    ] {
        let (mut world, _overlay, gauges, _) = slow(1_000_000, policy);
        let before = gauges.busy_ns.get();
        run(&mut world, most, 3);
        assert_eq!(gauges.overruns.get(), over, "{policy:?} {most:?}");
        assert!(gauges.busy_ns.get() - before >= 2_900_000, "{} ns", gauges.busy_ns.get() - before);
    }
    // 10 ms of the context's time, which it has not used before.
    let policy = SchedulingPolicy { limit_ns_per_s: 1_000_000_000, ..SchedulingPolicy::default() };
    let (mut world, _overlay, _, runs) = slow(1_000_000, policy);
    let (graph, ws) = &mut world.graphs[0];
    for _ in 0..20 {
        graph.serve(SLICE_NS, world.now_ns, ws);
    }
    let records: usize = runs.lock().unwrap().iter().sum();
    assert!((1..=11).contains(&records), "{records}");
}

#[test]
fn records_that_wait_as_a_node_ends_are_removed_and_have_not_come_in() {
    let (mut world, _overlay, gauges, runs) = slow(0, SchedulingPolicy::default());
    let (before, of_context) = (gauges.records_in.get(), world.graphs[0].0.gauges.records_in.get());
    let (graph, ws) = &mut world.graphs[0];
    graph.node_mut(NodeId(0)).unwrap().condition = Condition::Ending;
    graph.begin_turn(world.now_ns, ws);
    assert!(graph.next_job(RunTime::Long, ws).is_none() && runs.lock().unwrap().is_empty());
    assert_eq!((gauges.records_in.get() - before, gauges.lost(Loss::Removed)), (0, BATCH as u64));
    assert_eq!(world.graphs[0].0.gauges.records_in.get(), of_context);
}
