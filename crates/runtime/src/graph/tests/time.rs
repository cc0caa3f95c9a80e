//! Handlers that several streams share a state in, and that run because of the time.

use super::*;
use std::sync::Mutex;

/// One instance of a handler whose state is what has come by all streams. It makes a record of what came, at a time.
struct Shared {
    /// The number that is added to what comes, so that its instances differ.
    mark: u64,
    state: Option<Box<State>>,
    kind: Arc<str>,
    seen: Arc<Mutex<Seen>>,
    counters: HandlerCounters,
}

#[derive(Default)]
struct State {
    records: Vec<u64>,
    due_ns: Option<u64>,
}

/// The calls of all instances, as far as the test compares them.
#[derive(Default)]
struct Seen {
    /// The records of the state, whenever it has grown.
    states: Vec<Vec<u64>>,
    /// When it was advanced.
    times: Vec<u64>,
}

/// The time from the first record until the output is due, in ns.
const LATER_NS: u64 = 5_000_000;

impl Shared {
    fn new(mark: u64, seen: &Arc<Mutex<Seen>>) -> Box<Shared> {
        let (seen, kind) = (Arc::clone(seen), Arc::from("shared/1"));
        Box::new(Shared { mark, state: None, kind, seen, counters: HandlerCounters::default() })
    }

    fn instance(stream: u32, format: u64, seen: &Arc<Mutex<Seen>>) -> Instance {
        let handler = Shared::new(u64::from(stream) * 1000 + format * 100, seen);
        Instance { stream: Some(stream), format, handler: Some(handler), output: FORMAT }
    }
}

impl Handler for Shared {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
        let state = self.state.get_or_insert_default();
        for index in &*selection {
            let number = u64::from_le_bytes(batch.record(index).try_into().unwrap());
            assert!(number < 1000, "the instance of its stream and its format gets a record");
            state.records.push(self.mark + number);
        }
        let mut seen = self.seen.lock().unwrap();
        let now_ns = seen.times.last().copied().unwrap();
        state.due_ns.get_or_insert(now_ns + LATER_NS);
        seen.states.push(state.records.clone());
        self.counters.records_in += selection.len() as u64;
        self.counters.taken += selection.len() as u64;
        Verdict::Hold
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn state_kind(&self) -> Option<&str> {
        Some(&self.kind)
    }

    fn hand_over(&mut self) -> Option<HandlerState> {
        self.state.take().map(|state| HandlerState::new(Arc::clone(&self.kind), state))
    }

    fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        self.state = Some(state.of_kind(&self.kind)?);
        Ok(())
    }

    fn shares_state(&self) -> bool {
        true
    }

    fn wants_time(&self) -> bool {
        true
    }

    fn advance(&mut self, now_ns: u64, out: &mut dyn Sink) -> usize {
        self.seen.lock().unwrap().times.push(now_ns);
        let Some(state) = self.state.as_mut().filter(|state| state.due_ns.is_some_and(|due_ns| due_ns <= now_ns))
        else {
            return 0;
        };
        state.due_ns = None;
        state.records.iter().for_each(|record| out.push(&record.to_le_bytes()));
        std::mem::take(&mut state.records).len()
    }

    fn due_ns(&self) -> Option<u64> {
        self.state.as_ref()?.due_ns
    }
}

const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

/// A context at which such a handler reads streams 0 and 1, which have the same format, and makes stream 9.
fn shared(contexts: usize) -> (World, Overlay, Arc<gauges::NodeGauges>, Arc<Mutex<Seen>>) {
    let (mut world, mut overlay) = World::new(contexts, 1, 4);
    world.graphs.iter_mut().for_each(|(graph, _)| graph.set_epoch(EPOCH_NS));
    let seen = Arc::default();
    let instances = vec![Shared::instance(0, FORMAT, &seen), Shared::instance(1, FORMAT, &seen)];
    let node = added(NodeId(0), instances, (&[0, 1], 9), SchedulingPolicy::default());
    let gauges = Arc::clone(&node.gauges);
    change(&mut world, &mut overlay, add(node, contexts as u8 - 1).into());
    (world, overlay, gauges, seen)
}

/// A change while nothing comes.
fn change(world: &mut World, overlay: &mut Overlay, edits: Vec<Edit>) -> Changed {
    struct Quiet<'a>(&'a mut World);
    impl Waiting for Quiet<'_> {
        fn begin(&mut self) {}
        fn wait(&mut self) -> bool {
            (0..self.0.graphs.len()).for_each(|at| {
                let _ = self.0.turn(at);
            });
            true
        }
    }
    overlay.change(edits, &mut Quiet(world)).unwrap()
}

/// One record with this number comes by a stream.
fn come(world: &mut World, stream: u32, format: u64, number: u64) {
    let mut batch = Batch::new();
    (batch.stream, batch.format) = (stream, format);
    let mut buffer = world.pool.alloc(512).unwrap();
    buffer[..8].copy_from_slice(&number.to_le_bytes());
    batch.records.push(Span { slice: 0, start: 0, len: 8 });
    batch.push_buffer(buffer.freeze()).unwrap();
    batch.push_slice(Slice { buffer: 0, start: 0, len: 8, records: 1 }).unwrap();
    batch.select_all();
    let (graph, ws) = &mut world.graphs[0];
    graph.arrive(stream, batch, world.now_ns, ws);
    world.settle();
}

#[test]
fn the_state_follows_the_instance_that_runs_whichever_stream_brings_the_record() {
    let (mut world, mut overlay, gauges, seen) = shared(2);
    let states = || std::mem::take(&mut seen.lock().unwrap().states);
    come(&mut world, 0, FORMAT, 1);
    come(&mut world, 1, FORMAT, 2);
    come(&mut world, 1, FORMAT, 3);
    come(&mut world, 0, FORMAT, 4);
    assert_eq!(states(), [vec![701], vec![701, 1702], vec![701, 1702, 1703], vec![701, 1702, 1703, 704]]);
    assert_eq!((gauges.taken.get(), gauges.filtered.get(), gauges.faults.get()), (4, 0, 0));
    // A format more; then another version, at another context.
    let order = overlay.add_instance(NodeId(0), Shared::instance(1, FORMAT + 1, &seen)).unwrap();
    world.settle();
    assert!(overlay.done().iter().any(|(done, outcome)| *done == order && outcome.is_ok()));
    come(&mut world, 1, FORMAT + 1, 5);
    assert_eq!(states(), [vec![701, 1702, 1703, 704, 1805]]);
    let next =
        [(0, FORMAT), (1, FORMAT), (1, FORMAT + 1)].map(|(stream, format)| Shared::instance(stream, format, &seen));
    let swap = |instances, keeps, at| Edit::Change {
        id: NodeId(0),
        instances: Some((instances, keeps)),
        policy: None,
        reads: None,
        at,
    };
    let changed = change(&mut world, &mut overlay, vec![swap(next.into(), true, Some(ContextIndex(0)))]);
    assert_eq!(changed, Changed::default());
    come(&mut world, 0, FORMAT, 6);
    assert_eq!(states(), [vec![701, 1702, 1703, 704, 1805, 706]]);
    // Where the version does not keep it, or nobody takes it over, it begins anew.
    let next = vec![Shared::instance(0, FORMAT, &seen), Shared::instance(1, FORMAT, &seen)];
    assert_eq!(change(&mut world, &mut overlay, vec![swap(next, false, None)]).lost_states, 0);
    come(&mut world, 1, FORMAT, 7);
    assert_eq!(states(), [vec![1707]]);
    assert_eq!(
        change(&mut world, &mut overlay, vec![swap(vec![InOrder::instance(true, &Arc::default())], true, None)])
            .lost_states,
        1
    );
}

#[test]
fn an_instance_that_refuses_the_state_is_a_fault_of_its_node() {
    let (mut world, mut overlay, gauges, seen) = shared(1);
    let mut other = Shared::new(0, &seen);
    other.kind = Arc::from("shared/2");
    let instance = Instance { stream: Some(1), format: FORMAT + 1, handler: Some(other), output: FORMAT };
    overlay.add_instance(NodeId(0), instance).unwrap();
    world.settle();
    come(&mut world, 0, FORMAT, 1);
    come(&mut world, 1, FORMAT + 1, 2);
    assert_eq!((gauges.faults.get(), gauges.losses()), (1, vec![("failed".to_owned(), 1)]));
}

#[test]
fn a_node_runs_when_it_is_due_though_nothing_comes() {
    let (mut world, _overlay, gauges, seen) = shared(1);
    world.subscribe(9);
    world.now_ns = 7_000_000;
    come(&mut world, 0, FORMAT, 1);
    assert_eq!(seen.lock().unwrap().times, [EPOCH_NS + 7_000_000]);
    assert_eq!(world.graphs[0].0.due_ns(), 12_000_000);
    world.now_ns = 11_999_999;
    world.settle();
    assert_eq!((seen.lock().unwrap().times.len(), gauges.records_out.get()), (1, 0));
    world.now_ns += 1;
    world.settle();
    assert_eq!(seen.lock().unwrap().times[1..], [EPOCH_NS + 12_000_000]);
    assert_eq!((gauges.records_out.get(), world.graphs[0].0.due_ns()), (1, u64::MAX));
    // Before a batch it is advanced too: what was made goes before.
    come(&mut world, 0, FORMAT, 2);
    world.now_ns += 60_000_000;
    come(&mut world, 1, FORMAT, 3);
    assert_eq!(gauges.records_out.get(), 2);
    assert_eq!(seen.lock().unwrap().states, [vec![701], vec![702], vec![1703]]);
}

#[test]
fn of_many_times_that_a_node_was_due_at_few_are_kept() {
    let (mut world, _overlay, _, _) = shared(1);
    for turn in 0..10_000 {
        world.now_ns += LATER_NS / 2;
        come(&mut world, turn % 2, FORMAT, 1);
        assert!(world.graphs[0].0.due_entries() <= 66);
    }
}

#[test]
fn due_output_waits_for_buffers_and_nothing_of_it_is_lost() {
    let (mut world, _overlay, gauges, _) = shared(1);
    world.subscribe(9);
    for number in 0..200 {
        come(&mut world, number % 2, FORMAT, number.into());
    }
    // Others have all of its buffers.
    let ws = &mut world.graphs[0].1;
    let mut taken = Vec::new();
    while let Some(buffer) = ws.pool.alloc(1) {
        taken.push(buffer);
    }
    world.now_ns += 2 * LATER_NS;
    world.settle();
    assert_eq!((gauges.records_out.get(), gauges.losses()), (0, vec![]));
    drop(taken);
    world.now_ns += LATER_NS;
    world.settle();
    assert_eq!((gauges.records_out.get(), gauges.losses()), (200, vec![]));
    assert_eq!(gauges.taken.get(), 200);
}

#[test]
fn a_stream_does_not_end_before_what_is_due_was_made() {
    let (mut world, _overlay, _, _) = shared(1);
    world.subscribe(9);
    come(&mut world, 0, FORMAT, 1);
    [0, 1].into_iter().for_each(|stream| world.graphs[0].0.arrive_end(stream, 0, true));
    world.settle();
    assert!(world.sessions.ended.is_empty(), "a record is to come");
    world.now_ns += LATER_NS;
    world.settle();
    assert_eq!(world.sessions.ends, [(9, 1)]);
}
