//! Panics outside of handlers: what was in work is lost, and everything else goes on.

use super::*;
use crate::platform::overlay::NotDone;
use std::panic::resume_unwind;

impl World {
    /// A step of a context panics between two runs, while it has a node and a port in hand.
    pub(super) fn panic_at(&mut self, at: usize) {
        let (graph, ws) = &mut self.graphs[at];
        let (here, sessions) = (graph.here.clone(), graph.sessions.iter().flatten().map(|node| node.id));
        let nodes: Vec<NodeId> = here.into_iter().chain(sessions).collect();
        let streams: Vec<u32> = graph.ports.iter().flatten().map(|port| port.stream).collect();
        let node = nodes.get(self.rng.usize(0..=nodes.len())).copied();
        let stream = streams.get(self.rng.usize(0..=streams.len())).copied();
        let done: Option<()> = graph.guarded(ws, |graph, _| {
            let _lists = (std::mem::take(&mut graph.waiting), std::mem::take(&mut graph.listed));
            let _node = node.and_then(|id| graph.lift(id));
            let _port = stream.and_then(|stream| graph.lift_port(stream));
            // Without a message.
            resume_unwind(Box::new("as the test wants"))
        });
        assert_eq!(done, None);
        let is_back = |id: &NodeId| graph.node(*id).is_some();
        assert!(nodes.iter().all(is_back) && streams.iter().all(|stream| graph.port(*stream).is_some()));
    }
}

#[test]
fn a_panic_between_two_runs_takes_nothing() {
    for seed in 0..40 {
        random_changes(seed / 2, 60, (seed % 2 == 0, true));
    }
}

/// Panics where it is asked for its counters, once it has seen enough.
struct Unsound {
    seen: u64,
    at: u64,
}

impl Handler for Unsound {
    fn process(&mut self, _: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
        self.seen += selection.len() as u64;
        Verdict::Forward
    }

    fn counters(&self) -> HandlerCounters {
        if self.seen >= self.at {
            resume_unwind(Box::new("as the test wants"));
        }
        HandlerCounters::default()
    }
}

fn unsound(at: u64) -> Vec<Instance> {
    vec![Instance { stream: None, format: FORMAT, handler: Some(Box::new(Unsound { seen: 0, at })), output: FORMAT }]
}

#[test]
fn a_panic_in_a_run_takes_its_batch_and_its_handlers_state() {
    for (restarts, at) in [(true, 0), (true, 1), (false, 1)] {
        let policy = SchedulingPolicy { restarts, ..SchedulingPolicy::default() };
        let (mut world, mut overlay, other) = world_with(2, 64, (at, &[0]), SchedulingPolicy::default());
        world.settle();
        let bad = added(overlay.next_id(&[]), unsound(100), (&[0], 10), policy);
        let (id, of_bad) = (bad.id, Arc::clone(&bad.gauges));
        world.subscribe(10);
        let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
        overlay.change(add(bad, at).into(), &mut wait).unwrap();
        let context = Arc::clone(&world.graphs[usize::from(at)].0.gauges);
        while context.panics.get() == 0 {
            world.step();
        }
        // Its faults have the managers give it a new handler.
        assert_eq!((of_bad.faults.get(), context.running.get()), (1, 0));
        let lost = of_bad.lost(gauges::Loss::Failed);
        assert!(lost > 0 && context.panics.get() == 1);
        let order = overlay.restart(id, unsound(u64::MAX)).unwrap();
        let mut is_done = false;
        while !is_done {
            world.step();
            is_done = overlay.done().iter().any(|(done, _)| *done == order);
        }
        // Changes of both go on.
        for (node, to) in [(id, 1 - at), (other, 1 - at)] {
            let edit =
                Edit::Change { id: node, instances: None, policy: None, reads: None, at: Some(ContextIndex(to)) };
            let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
            let changed = overlay.change(vec![edit], &mut wait).unwrap();
            assert_eq!(changed, Changed::default());
        }
        world.offer(0);
        world.settle();
        let losses: u64 = of_bad.losses().iter().map(|(_, records)| records).sum();
        assert_eq!(of_bad.records_in.get(), of_bad.records_out.get() + losses);
        assert!(restarts == (losses == lost), "what comes is dropped and counted until it has another handler");
        let gauges = &overlay.node(other).unwrap().gauges;
        assert_eq!((gauges.losses(), gauges.records_in.get()), (vec![], gauges.records_out.get()));
        let (next, count) = world.sessions.delivered[&9];
        // The lost batch leaves the only gap, in the other stream.
        assert_eq!((next, count, world.sessions.wrong), (world.next[0], gauges.records_out.get(), 1));
        assert_eq!(world.graphs.iter().map(|(_, ws)| ws.buffers_in_use()).sum::<u64>(), 0);
    }
}

/// A port changes all the same; a node fails with its change, which is answered. Other changes go on.
#[test]
fn a_panic_in_a_change_delays_it_no_longer() {
    // At the context of the node, and at that of the stream that it reads.
    for (at, (ports, nodes), to) in
        [(1, (0, 1), 1), (1, (0, 1), 0), (1, (2, 1), 0), (1, (1, 0), 1), (0, (1, 0), 1), (0, (1, 0), 0), (0, (2, 0), 2)]
    {
        let (mut world, mut overlay, id) = world_with(3, 64, (1, &[0]), SchedulingPolicy::default());
        world.settle();
        let next = || vec![InOrder::instance(false, &Arc::default())];
        let version = Edit::Change {
            id,
            instances: Some((next(), false)),
            policy: None,
            reads: None,
            at: Some(ContextIndex(to)),
        };
        world.graphs[at].0.panic_in_changes(ports, nodes);
        let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
        let changed = overlay.change(vec![version], &mut wait).unwrap();
        let failed = (nodes > 0).then_some(ContextIndex(at as u8));
        let case = format!("{ports} ports, {nodes} nodes at {at}, to {to}");
        assert_eq!((changed.unfinished, changed.failed), (None, failed), "{case}");
        assert_eq!(world.graphs[at].0.gauges.panics.get(), u64::from(ports + nodes), "{case}");
        let gauges = Arc::clone(&overlay.node(id).unwrap().gauges);
        assert_eq!(gauges.faults.get(), u64::from(nodes), "{case}");
        // The managers give one that has failed another handler.
        overlay.restart(id, next()).unwrap();
        world.settle();
        let (before, next) = (gauges.records_out.get(), world.next[0]);
        (0..10).for_each(|_| world.offer(0));
        world.settle();
        assert_eq!(gauges.records_out.get() - before, world.next[0] - next, "{case}");
        let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
        let changed = overlay.change(vec![Edit::Remove { id }], &mut wait).unwrap();
        assert_eq!((changed.unfinished, changed.failed), (None, None), "{case}");
    }
}

/// A small order at which a context panics is not reported as carried out.
#[test]
fn a_panic_at_a_small_order_is_reported() {
    let (mut world, mut overlay, id) = world_with(1, 64, (0, &[0]), SchedulingPolicy::default());
    world.settle();
    let (graph, ws) = &mut world.graphs[0];
    let order = overlay.fail(id).unwrap();
    while graph.orders.fetched.is_none() {
        graph.take_orders(ws);
    }
    let number = graph.orders.fetched.as_ref().unwrap().0;
    let panicked: Option<()> = graph.guarded(ws, |graph, _| {
        let (_, fetched) = graph.orders.fetched.take().unwrap();
        graph.orders.owed = fetched.report_at_least().map(|report| (number, report));
        resume_unwind(Box::new("as the test wants"))
    });
    assert_eq!((panicked, overlay.done()), (None, vec![(order, Err(NotDone::Panicked(FIRST)))]));
}

#[test]
fn a_context_that_does_nothing_but_panic_is_given_up() {
    let (mut world, _overlay, _) = world_with(1, 64, (0, &[0]), SchedulingPolicy::default());
    for _ in 0..16 {
        world.panic_at(0);
    }
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.panic_at(0)));
    assert!(ended.is_err());
}

/// Another thread goes on with all that waits there.
#[test]
fn a_graph_whose_thread_has_ended_has_all_of_its_records() {
    let (mut world, overlay, id) = world_with(2, 64, (1, &[0]), SchedulingPolicy::default());
    world.settle();
    let gauges = Arc::clone(&overlay.node(id).unwrap().gauges);
    let (before, next) = (gauges.records_in.get(), world.next[0]);
    for _ in 0..20 {
        (0..10).for_each(|_| world.offer(0));
        for _ in 0..16 {
            world.panic_at(1);
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.panic_at(1)));
        assert!(ended.is_err());
    }
    world.settle();
    assert_eq!((gauges.records_in.get() - before, gauges.losses()), (world.next[0] - next, vec![]));
    assert_eq!(gauges.records_out.get(), gauges.records_in.get());
}
