//! Handlers that several streams share a state in, and that run because of the time.

use super::*;
use crate::graph::run::STATE_RECORDS;
use crate::graph::save::{SaveState, Saved};
use crossdock_engine::ParameterValues;
use std::panic::resume_unwind;
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
    /// Whether it panics when it is due.
    panics: bool,
    /// How often it heard of a stream's end.
    ends: u64,
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

    fn save(&self, out: &mut Vec<u8>) -> bool {
        let records = self.state.iter().flat_map(|state| &state.records);
        records.for_each(|record| out.extend_from_slice(&record.to_le_bytes()));
        true
    }

    fn shares_state(&self) -> bool {
        true
    }

    fn wants_time(&self) -> bool {
        true
    }

    fn advance(&mut self, now_ns: u64, out: &mut dyn Sink) -> usize {
        let panics = {
            let mut seen = self.seen.lock().unwrap();
            seen.times.push(now_ns);
            seen.panics
        };
        let Some(state) = self.state.as_mut().filter(|state| state.due_ns.is_some_and(|due_ns| due_ns <= now_ns))
        else {
            return 0;
        };
        if panics {
            resume_unwind(Box::new("as the test wants"));
        }
        state.due_ns = None;
        state.records.iter().for_each(|record| out.push(&record.to_le_bytes()));
        std::mem::take(&mut state.records).len()
    }

    fn end_stream(&mut self) {
        self.seen.lock().unwrap().ends += 1;
    }

    fn due_ns(&self) -> Option<u64> {
        self.state.as_ref()?.due_ns
    }

    fn state_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| 8 * state.records.len())
    }

    fn set_parameters(&mut self, values: &mut ParameterValues) -> bool {
        let due_ns = values.get_mut::<u64>().copied();
        self.state.iter_mut().for_each(|state| state.due_ns = due_ns);
        due_ns.is_some()
    }
}

const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

/// A context at which such a handler reads streams 0 and 1, which have the same format, and makes stream 9.
fn shared(contexts: usize) -> (World, Overlay, Arc<gauges::NodeGauges>, Arc<Mutex<Seen>>) {
    shared_with(contexts, SchedulingPolicy::default())
}

fn shared_with(
    contexts: usize,
    policy: SchedulingPolicy,
) -> (World, Overlay, Arc<gauges::NodeGauges>, Arc<Mutex<Seen>>) {
    let seen = Arc::default();
    let (world, overlay, gauges) = shared_of(contexts, policy, next(&seen));
    (world, overlay, gauges, seen)
}

/// The same with other instances.
fn shared_of(
    contexts: usize,
    policy: SchedulingPolicy,
    instances: Vec<Instance>,
) -> (World, Overlay, Arc<gauges::NodeGauges>) {
    let (mut world, mut overlay) = World::new(contexts, 1, 4);
    world.graphs.iter_mut().for_each(|(graph, _)| graph.set_epoch(EPOCH_NS));
    let node = added(NodeId(0), instances, (&[0, 1], 9), policy);
    let gauges = Arc::clone(&node.gauges);
    change(&mut world, &mut overlay, add(node, contexts as u8 - 1).into());
    (world, overlay, gauges)
}

/// One whose first instance begins with the state of a checkpoint.
fn restored() -> (World, Overlay, Arc<Mutex<Seen>>) {
    let seen = Arc::default();
    let mut first = Shared::new(FORMAT * 100, &seen);
    first.state = Some(Box::new(State { records: vec![42], due_ns: None }));
    let mut instances = next(&seen);
    instances[0].handler = Some(first);
    let (world, overlay, _) = shared_of(1, SchedulingPolicy::default(), instances);
    (world, overlay, seen)
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

/// Another version of it.
fn swap(instances: Vec<Instance>, keeps_state: bool, at: Option<ContextIndex>) -> Edit {
    Edit::Change { id: NodeId(0), instances: Some((instances, keeps_state)), policy: None, reads: None, at }
}

/// Its instances anew.
fn next(seen: &Arc<Mutex<Seen>>) -> Vec<Instance> {
    [0, 1].map(|stream| Shared::instance(stream, FORMAT, seen)).into()
}

/// One record with this number comes by a stream.
fn come(world: &mut World, stream: u32, format: u64, number: u64) {
    come_often(world, stream, (format, 1), number);
}

/// Such records come, in one batch.
fn come_often(world: &mut World, stream: u32, (format, records): (u64, u32), number: u64) {
    let mut batch = Batch::new();
    (batch.stream, batch.format) = (stream, format);
    let mut buffer = world.pool.alloc(512).unwrap();
    buffer[..8].copy_from_slice(&number.to_le_bytes());
    batch.records.extend((0..records).map(|_| Span { slice: 0, start: 0, len: 8 }));
    batch.push_buffer(buffer.freeze()).unwrap();
    batch.push_slice(Slice { buffer: 0, start: 0, len: 8, records }).unwrap();
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
    let more =
        [(0, FORMAT), (1, FORMAT), (1, FORMAT + 1)].map(|(stream, format)| Shared::instance(stream, format, &seen));
    let changed = change(&mut world, &mut overlay, vec![swap(more.into(), true, Some(ContextIndex(0)))]);
    assert_eq!(changed, Changed::default());
    come(&mut world, 0, FORMAT, 6);
    assert_eq!(states(), [vec![701, 1702, 1703, 704, 1805, 706]]);
    assert_eq!(gauges.state_bytes.get(), 48);
    // Where the version does not keep it, or nobody takes it over, it begins anew.
    assert_eq!(change(&mut world, &mut overlay, vec![swap(next(&seen), false, None)]).lost_states, 0);
    assert_eq!(gauges.state_bytes.get(), 0);
    come(&mut world, 1, FORMAT, 7);
    assert_eq!(states(), [vec![1707]]);
    assert_eq!(
        change(&mut world, &mut overlay, vec![swap(vec![InOrder::instance(true, &Arc::default())], true, None)])
            .lost_states,
        1
    );
}

#[test]
fn a_state_of_a_checkpoint_is_that_of_whichever_instance_runs_first() {
    for stream in [0, 1] {
        let (mut world, _overlay, seen) = restored();
        come(&mut world, stream, FORMAT, 1);
        let mark = u64::from(stream) * 1000 + FORMAT * 100;
        assert_eq!(seen.lock().unwrap().states, [vec![42, mark + 1]], "stream {stream}");
    }
}

#[test]
fn a_state_of_a_checkpoint_goes_to_the_next_version_and_to_the_next_checkpoint_before_any_record() {
    let (mut world, mut overlay, seen) = restored();
    let order = || SaveState { most_bytes: 100, ..SaveState::default() };
    for is_swapped in [false, true] {
        if is_swapped {
            assert_eq!(change(&mut world, &mut overlay, vec![swap(next(&seen), true, None)]).lost_states, 0);
        }
        overlay.save_state(NodeId(0), order()).unwrap();
        world.settle();
        drop(overlay.done());
        let saved: Vec<SaveState> = overlay.take_saved().into_iter().map(|(_, order)| order).collect();
        let [SaveState { bytes, saved, .. }] = &saved[..] else { panic!("{saved:?}") };
        assert_eq!((&bytes[..], *saved), (&42_u64.to_le_bytes()[..], Saved::Whole { records_in: 0 }), "{is_swapped}");
    }
    come(&mut world, 1, FORMAT, 1);
    assert_eq!(seen.lock().unwrap().states, [vec![42, 1701]]);
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
    // The one that had it has it still, and gives it to the next version.
    assert_eq!(change(&mut world, &mut overlay, vec![swap(next(&seen), true, None)]).lost_states, 0);
    seen.lock().unwrap().states.clear();
    come(&mut world, 1, FORMAT, 3);
    assert_eq!(seen.lock().unwrap().states, [vec![701, 1703]]);
}

#[test]
fn the_state_is_kept_by_the_others_when_an_instance_no_longer_fits() {
    let (mut world, mut overlay, gauges, seen) = shared(1);
    come(&mut world, 0, FORMAT, 1);
    come(&mut world, 1, FORMAT, 2);
    let unfit = Instance { stream: Some(1), format: FORMAT, handler: None, output: FORMAT };
    overlay.add_instance(NodeId(0), unfit).unwrap();
    world.settle();
    come(&mut world, 0, FORMAT, 3);
    assert_eq!(seen.lock().unwrap().states.last().unwrap(), &[701, 1702, 703]);
    assert_eq!(gauges.faults.get(), 0);
}

#[test]
fn the_stream_of_a_node_that_fails_while_it_is_due_ends() {
    for (restarts, panics) in [(false, true), (true, true), (false, false)] {
        let policy = SchedulingPolicy { restarts, ..SchedulingPolicy::default() };
        let (mut world, mut overlay, gauges, seen) = shared_with(1, policy);
        world.subscribe(9);
        come(&mut world, 0, FORMAT, 1);
        [0, 1].into_iter().for_each(|stream| world.graphs[0].0.arrive_end(stream, 0, true));
        world.settle();
        assert_eq!((world.sessions.ended.len(), gauges.state_bytes.get()), (0, 8));
        if panics {
            seen.lock().unwrap().panics = true;
            world.now_ns += LATER_NS;
        } else {
            overlay.fail(NodeId(0)).unwrap();
        }
        world.settle();
        assert_eq!(gauges.state_bytes.get(), if panics { 0 } else { 8 });
        if restarts {
            overlay.restart(NodeId(0), next(&seen)).unwrap();
            world.settle();
        }
        assert_eq!(world.sessions.ends, [(9, 0)], "restarts: {restarts}, panics: {panics}");
    }
}

/// A change during which, after some turns, the only publisher of stream 0 is lost.
struct Losing<'a> {
    world: &'a mut World,
    turns_left: usize,
}

impl Losing<'_> {
    fn step(&mut self) {
        if self.turns_left == 0 {
            self.world.graphs[0].0.arrive_end(0, 0, false);
        }
        self.turns_left = self.turns_left.wrapping_sub(1);
        let _ = self.world.turn(self.turns_left % 2);
    }
}

impl Waiting for Losing<'_> {
    fn begin(&mut self) {}

    fn wait(&mut self) -> bool {
        self.step();
        true
    }
}

#[test]
fn a_publisher_that_is_lost_before_or_during_a_change_may_come_back_and_its_stream_has_not_ended() {
    for turns in 0..40 {
        let (mut world, mut overlay, _, seen) = shared(2);
        come(&mut world, 0, FORMAT, 1);
        let further = added(NodeId(1), next(&seen), (&[0, 1], 8), SchedulingPolicy::default());
        let mut losing = Losing { world: &mut world, turns_left: turns };
        overlay.change(add(further, 1).into(), &mut losing).unwrap();
        while losing.turns_left < usize::MAX / 2 {
            losing.step();
        }
        world.settle();
        assert_eq!(seen.lock().unwrap().ends, 0, "lost after {turns} turns");
        // It comes back, and finishes.
        world.graphs[0].0.note_publishers(0, 1);
        world.graphs[0].0.arrive_end(0, 0, true);
        world.settle();
        assert_eq!(seen.lock().unwrap().ends, 2, "lost after {turns} turns, and finished");
    }
}

#[test]
fn a_node_is_due_when_its_parameters_say_so() {
    let (mut world, mut overlay, gauges, _) = shared(1);
    come(&mut world, 0, FORMAT, 1);
    assert_eq!(world.graphs[0].0.due_ns(), LATER_NS);
    let values = ParameterValues::new(EPOCH_NS + LATER_NS / 2);
    overlay.set_parameters(NodeId(0), vec![((Some(0), FORMAT), values)]).unwrap();
    world.settle();
    assert_eq!(world.graphs[0].0.due_ns(), LATER_NS / 2);
    world.now_ns = LATER_NS / 2;
    world.settle();
    assert_eq!(gauges.records_out.get(), 1);
}

/// Makes a long record at each of some times, from the first record that comes on.
struct Ticking {
    times: Vec<u64>,
    seen: Arc<Mutex<Seen>>,
    made: u64,
}

/// The time between two of them.
const TICK_NS: u64 = 1_000_000;

impl Handler for Ticking {
    fn process(&mut self, _: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
        let mut seen = self.seen.lock().unwrap();
        let now_ns = seen.times.last().copied().unwrap();
        self.times.extend((1..=50).rev().map(|tick| now_ns + tick * TICK_NS));
        seen.states.push(vec![selection.len() as u64]);
        Verdict::Hold
    }

    fn counters(&self) -> HandlerCounters {
        HandlerCounters::default()
    }

    fn wants_time(&self) -> bool {
        true
    }

    fn advance(&mut self, now_ns: u64, out: &mut dyn Sink) -> usize {
        self.seen.lock().unwrap().times.push(now_ns);
        let before = self.made;
        while self.times.pop_if(|time| *time <= now_ns).is_some() {
            let mut row = vec![0; 60_000];
            row[..8].copy_from_slice(&self.made.to_le_bytes());
            out.push(&row);
            self.made += 1;
        }
        (self.made - before) as usize
    }

    fn due_ns(&self) -> Option<u64> {
        self.times.last().copied()
    }
}

#[test]
fn due_work_is_done_one_time_after_the_other_as_far_as_there_is_room() {
    let (mut world, mut overlay) = World::new(1, 1, 4);
    world.graphs[0].0.set_epoch(EPOCH_NS);
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let handler = Box::new(Ticking { times: Vec::new(), seen: Arc::clone(&seen), made: 0 });
    let instance = Instance { stream: None, format: FORMAT, handler: Some(handler), output: FORMAT };
    let node = added(NodeId(0), vec![instance], (&[0], 9), SchedulingPolicy::default());
    let gauges = Arc::clone(&node.gauges);
    change(&mut world, &mut overlay, add(node, 0).into());
    world.subscribe(9);
    come(&mut world, 0, FORMAT, 1);
    world.sessions.is_held = true;
    world.now_ns = 100 * TICK_NS;
    come(&mut world, 0, FORMAT, 2);
    let made = gauges.records_out.get();
    assert!(made <= 4, "{made} of 50 records were made for a queue with 4 places");
    assert_eq!(seen.lock().unwrap().states.len(), 1, "what is due goes before what comes");
    world.sessions.is_held = false;
    world.settle();
    assert_eq!((gauges.records_out.get(), world.sessions.wrong, gauges.losses()), (50, 0, vec![]));
    let seen = seen.lock().unwrap();
    let ticks: Vec<u64> = (1..=50).map(|tick| EPOCH_NS + tick * TICK_NS).collect();
    assert_eq!(seen.times.iter().copied().filter(|time| ticks.contains(time)).collect::<Vec<_>>(), ticks);
    assert_eq!(seen.states.len(), 2);
}

/// The output of a handler with state has no bound that is known: it gets few records at a time.
#[test]
fn a_handler_with_state_gets_few_records_at_a_time() {
    let (mut world, _overlay, gauges, seen) = shared(1);
    for _ in 0..20 {
        come_often(&mut world, 0, (FORMAT, 1000), 1);
    }
    assert_eq!(gauges.taken.get(), 20_000);
    let sizes: Vec<usize> = seen.lock().unwrap().states.iter().map(Vec::len).collect();
    let most = sizes.windows(2).map(|both| both[1].saturating_sub(both[0])).max().unwrap();
    assert!((2..=STATE_RECORDS).contains(&most), "{most}");
}

/// Output of one record that has no end is dropped beyond a bound, and counted: with state, beyond what that may take.
#[test]
fn output_without_an_end_is_counted_where_it_is_dropped() {
    for (max_state_bytes, least, most) in
        [(0, 4000, 5000), (1 << 20, 4000, 5000), (32 << 20, 8000, 9000), (64 << 20, 10_000, 10_000)]
    {
        let (mut world, mut overlay) = World::new(1, 1, 4);
        let handler = Box::new(Many { times: 10_000, max_state_bytes, ..Many::default() });
        let instance = Instance { stream: None, format: FORMAT, handler: Some(handler), output: FORMAT };
        let node = added(NodeId(0), vec![instance], (&[0], 9), SchedulingPolicy::default());
        let gauges = Arc::clone(&node.gauges);
        change(&mut world, &mut overlay, add(node, 0).into());
        world.subscribe(9);
        come(&mut world, 0, FORMAT, 1);
        let left = gauges.records_out.get();
        assert!((least..=most).contains(&left), "{max_state_bytes}: {left}");
        let lost = (left < 10_000).then(|| ("no_buffer".to_owned(), 10_000 - left));
        assert_eq!(gauges.losses(), Vec::from_iter(lost));
        assert_eq!(world.sessions.count(9), left);
    }
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
fn a_node_that_is_settled_again_for_the_same_time_has_one_entry() {
    let (mut world, _overlay, _, _) = shared(1);
    come(&mut world, 0, FORMAT, 1);
    let graph = &mut world.graphs[0].0;
    let (before, due_ns, node) = (graph.due_entries(), graph.due_ns(), graph.here[0]);
    for _ in 0..10 {
        graph.settle_due(node);
    }
    assert_eq!((graph.due_entries(), graph.due_ns()), (before, due_ns));
    assert!(before == 1 && due_ns < u64::MAX);
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
    // The context sleeps as long as one that waits for buffers does.
    let graph = &mut world.graphs[0].0;
    assert!(graph.due_ns() > world.now_ns && graph.is_full());
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
