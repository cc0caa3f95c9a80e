//! The order in which nodes are served, and what a context does that is behind.

use super::*;

/// Puts a node at the first context that reads stream 0.
fn put(world: &mut World, overlay: &mut Overlay, policy: SchedulingPolicy) -> Arc<gauges::NodeGauges> {
    let id = overlay.next_id(&[]);
    let node = added(id, vec![InOrder::instance(false, &Arc::default())], (&[0], 9 + id.0), policy);
    let gauges = Arc::clone(&node.gauges);
    overlay
        .change(vec![Edit::Add { node, at: ContextIndex(0) }], &mut Steps { world, tries: 0, patience: 100_000 })
        .unwrap();
    gauges
}

/// A node is taken to cost this for a record, whatever it does.
fn take(node: &mut Node, ns_per_record: f32) {
    (node.ns_per_record, node.measured_records, node.until_timed) = (ns_per_record, u64::MAX, 1_000_000);
    node.may_be_long = false;
}

/// A node waits for room while its queue is full, and so is the edge that leads to it.
#[test]
fn batches_waiting_for_a_node_or_on_their_way_are_within_its_bound() {
    const QUEUE: usize = 4;
    let (mut world, mut overlay) = World::new(3, 1, QUEUE);
    let mut nodes = Vec::new();
    for makes in [9, 10] {
        let id = overlay.next_id(&[]);
        let node =
            added(id, vec![InOrder::instance(false, &Arc::default())], (&[0], makes), SchedulingPolicy::default());
        world.subscribe(makes);
        overlay.change(add(node, 1).into(), &mut Steps { world: &mut world, tries: 0, patience: 100_000 }).unwrap();
        nodes.push(id);
    }
    world.settle();
    world.sessions.is_held = true;
    for at in (0..1000).map(|turn| turn % 2) {
        world.offer(0);
        world.turn(at);
    }
    assert!(world.blocked[0]);
    let graph = &mut world.graphs[1].0;
    graph.note_queues(0);
    for id in nodes {
        let placed = overlay.node(id).unwrap();
        let (queued, bound) = (placed.gauges.queued.get(), overlay.queue_bound(placed, &EdgeCounts::default()));
        assert!(queued > QUEUE as u64 && queued <= bound, "{queued} of {bound}");
    }
    // Two queues and one edge.
    assert!(graph.gauges.queued.get() <= 3 * QUEUE as u64, "{}", graph.gauges.queued.get());
    world.sessions.is_held = false;
    world.settle();
}

/// How a full queue is treated may change while it is there.
#[test]
fn a_queue_that_is_there_blocks_or_drops_by_its_policy() {
    let (mut world, mut overlay, id) = world_with(2, 2, (1, &[0]), SchedulingPolicy::default());
    let gauges = Arc::clone(&overlay.node(id).unwrap().gauges);
    for drops in [false, true, false] {
        assert!(overlay.set_policy(id, SchedulingPolicy { drops, ..SchedulingPolicy::default() }));
        world.settle();
        let lost = || gauges.losses().iter().filter(|(why, _)| why == "queue_full").map(|(_, lost)| lost).sum::<u64>();
        let before = lost();
        // Nobody takes anything out.
        for _ in 0..10 {
            world.offer(0);
            world.turn(0);
        }
        assert_eq!((world.blocked[0], lost() > before), (!drops, drops));
        world.settle();
    }
}

/// Nodes whose queues are full are served in turn, each as many batches as its weight says.
#[test]
fn full_queues_are_served_in_turn_by_their_weights() {
    const WEIGHTS: [u32; 3] = [1, 2, 5];
    const ROUNDS: u32 = 3;
    let (mut world, mut overlay) = World::new(1, 1, 64);
    let gauges =
        WEIGHTS.map(|weight| put(&mut world, &mut overlay, SchedulingPolicy { weight, ..SchedulingPolicy::default() }));
    // A node begins with a few records.
    (0..8).for_each(|_| world.offer(0));
    world.settle();
    let served = || gauges.each_ref().map(|gauges| gauges.batches_in.get() as u32);
    let before = served();
    (0..20).for_each(|_| world.offer(0));
    let mut turns = Vec::new();
    while turns.len() < (ROUNDS * WEIGHTS.iter().sum::<u32>()) as usize {
        let so_far = served();
        // No time for more than one.
        let (graph, ws) = &mut world.graphs[0];
        graph.begin_turn(world.now_ns, ws);
        let mut job = graph.next_job(RunTime::Long, ws).unwrap();
        let ran = job.run(ws);
        graph.finish(job, ran, ws);
        let now = served();
        turns.push((0..3).find(|&at| now[at] > so_far[at]).expect("one was served"));
    }
    let shares: [u32; 3] = std::array::from_fn(|at| served()[at] - before[at]);
    assert_eq!(shares, WEIGHTS.map(|weight| ROUNDS * weight), "{turns:?}");
    // Whoever it is that begins, each has its turn in one go.
    let changes = turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!((ROUNDS * 3 - 1..=ROUNDS * 3).contains(&(changes as u32)), "{turns:?}");
}

/// One that has let batches wait gives those that allow it fewer records, until none waits as long.
#[test]
fn a_context_that_is_behind_samples_what_allows_it_at_once() {
    let (mut world, mut overlay) = World::new(1, 1, 64);
    let [whole, sampled] = [1, 4].map(|max_sampling| {
        put(&mut world, &mut overlay, SchedulingPolicy { max_sampling, ..SchedulingPolicy::default() })
    });
    // A node begins with a few records.
    (0..8).for_each(|_| world.offer(0));
    world.settle();
    let let_through = |gauges: &gauges::NodeGauges| gauges.records_out.get();
    for (waited_us, one_in) in [(0, 1), (200, 1), (400, 2), (600, 4), (90_000, 4), (0, 1)] {
        let before = (let_through(&whole), let_through(&sampled), world.next[0], sampled.batches_shed.get());
        world.offer(0);
        world.now_ns += waited_us * 1000;
        world.serve(0);
        world.now_ns += 10_000_000;
        let records = world.next[0] - before.2;
        assert_eq!(let_through(&whole) - before.0, records, "one that does not allow it sees all");
        let seen = let_through(&sampled) - before.1;
        assert!((seen * one_in).abs_diff(records) < one_in, "{seen} of {records} records, after {waited_us} us");
        let noted = sampled.batches_shed.get() - before.3;
        assert_eq!((noted > 0, whole.batches_shed.get()), (one_in > 1, 0), "after {waited_us} us");
    }
}

/// A batch that waits since nobody takes its output does not make its context behind.
#[test]
fn a_context_is_not_behind_where_its_output_is_full() {
    let (mut world, mut overlay) = World::new(2, 1, 4);
    let mut change = |edits: Vec<Edit>| {
        let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
        overlay.change(edits, &mut wait).unwrap();
    };
    for at in [0, 1] {
        let (reads, makes) = ([[0], [9]][usize::from(at)], 9 + u32::from(at));
        let instances = vec![InOrder::instance(false, &Arc::default())];
        let node = added(NodeId(at.into()), instances, (&reads, makes), SchedulingPolicy::default());
        change(vec![Edit::Add { node, at: ContextIndex(at) }]);
    }
    let policy = SchedulingPolicy { max_sampling: 4, ..SchedulingPolicy::default() };
    let sampled = added(NodeId(2), vec![InOrder::instance(false, &Arc::default())], (&[0], 11), policy);
    let gauges = Arc::clone(&sampled.gauges);
    change(vec![Edit::Add { node: sampled, at: ContextIndex(0) }]);
    world.settle();
    let (before, lost) = (world.next[0], gauges.losses());
    // The second context does not take what the first makes, until some wait for a millisecond.
    for _ in 0..20 {
        world.offer(0);
        world.now_ns += 100_000;
        world.serve(0);
    }
    for _ in 0..100 {
        world.serve(1);
        world.serve(0);
        world.offer(0);
        world.serve(0);
    }
    assert_eq!(gauges.records_in.get(), world.next[0] - before);
    let sampled = |losses: &[(String, u64)]| losses.iter().any(|(why, _)| why == "sampled");
    assert!(!sampled(&gauges.losses()) && !sampled(&lost), "none was left out");
}

/// A node at a limit is served for its share of the time and no more, and what comes for it waits.
#[test]
fn a_node_under_a_limit_gets_its_share_of_the_time() {
    let (mut world, mut overlay) = World::new(1, 1, 64);
    let policy = SchedulingPolicy { limit_ns_per_s: 100_000_000, max_sampling: 8, ..SchedulingPolicy::default() };
    let mut node = added(NodeId(0), vec![InOrder::instance(false, &Arc::default())], (&[0], 9), policy);
    // So much it is taken to cost: 50,000 records of it would be 20 s a second.
    take(&mut node, 4000.0);
    let gauges = Arc::clone(&node.gauges);
    let free =
        added(NodeId(1), vec![InOrder::instance(false, &Arc::default())], (&[1], 10), SchedulingPolicy::default());
    let of_free = Arc::clone(&free.gauges);
    let mut change = |world: &mut World, edits: Vec<Edit>| {
        let mut wait = Steps { world, tries: 0, patience: 100_000 };
        overlay.change(edits, &mut wait).unwrap();
    };
    for node in [node, free] {
        change(&mut world, vec![Edit::Add { node, at: ContextIndex(0) }]);
    }
    let (before, sent) = (gauges.records_in.get(), world.next[0]);
    let pass = |world: &mut World, ms: u64| {
        for _ in 0..10 * ms {
            world.offer(0);
            world.offer(1);
            world.now_ns += 100_000;
            let (graph, ws) = &mut world.graphs[0];
            graph.serve(u32::MAX, world.now_ns, ws);
            graph.turned.drain(..).for_each(|(stream, is_blocked)| world.blocked[stream as usize] = is_blocked);
        }
    };
    pass(&mut world, 1000);
    // 100 ms of 4 us each, and what it may have saved.
    let taken = gauges.records_in.get() - before;
    assert!((24_000..=29_000).contains(&taken), "{taken}");
    assert!(world.blocked[0] && world.next[0] - sent <= taken + 65 * 20, "its publisher waits");
    assert_eq!(of_free.records_in.get(), world.next[1], "others do not");
    // To wait for its limit is not to wait for its context.
    assert_eq!((gauges.lost(gauges::Loss::Sampled), world.graphs[0].0.gauges.delayed.get()), (0, 0));
    let unlimited = SchedulingPolicy { limit_ns_per_s: u64::MAX, ..policy };
    let edit = Edit::Change { id: NodeId(0), instances: None, policy: Some(unlimited), reads: None, at: None };
    change(&mut world, vec![edit]);
    let before = gauges.records_in.get();
    pass(&mut world, 1000);
    assert!(gauges.records_in.get() - before > 50_000);
}

/// The output for subscriptions leaves soon, however long the context may work before the next has its turn.
#[test]
fn a_turn_ends_early_where_something_is_to_be_delivered() {
    let (mut world, mut overlay) = World::new(1, 1, 64);
    let mut node =
        added(NodeId(0), vec![InOrder::instance(false, &Arc::default())], (&[0], 9), SchedulingPolicy::default());
    // So much it is taken to cost, whatever it does: all in all less than a turn, and more than deliveries wait.
    take(&mut node, 4000.0);
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    overlay.change(vec![Edit::Add { node, at: ContextIndex(0) }], &mut wait).unwrap();
    world.settle();
    let batches = |world: &World| world.graphs[0].0.gauges.batches.get();
    let serve = |world: &mut World| {
        (0..40).for_each(|_| world.offer(0));
        let before = batches(world);
        let (graph, ws) = &mut world.graphs[0];
        let more = graph.serve(10_000_000, 0, ws);
        (more, batches(world) - before)
    };
    assert_eq!(serve(&mut world), (false, 40), "nobody waits for what it makes");
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    overlay.change(vec![Edit::Deliver { stream: 9, at: FIRST, is_delivered: true }], &mut wait).unwrap();
    world.settle();
    let (more, served) = serve(&mut world);
    assert!(more && served < 40, "{served} batches of 40");
}
