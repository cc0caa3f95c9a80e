//! Random changes under traffic, in virtual time, from a seed: every node sees every record of what it reads, once and in
//! order, from the first that it saw on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::*;
use crate::graph::bounds::MAX_SPILL_BYTES;
use crate::graph::build::Workspace;
use crate::graph::change::signal_queue;
use crate::graph::node::{Instance, Node, RunTime, SchedulingPolicy, StateLoss};
use crate::graph::run::Outcome;
use crate::graph::session::{Egress, Room, Sent, SessionRun, SessionStep};
use crate::graph::spill::Spill;
use crate::platform::overlay::{Changed, EdgeCounts, Edit, NotChanged, Overlay, Port, Waiting};
use crossdock_engine::{Handler, HandlerCounters, HandlerState, Sink, Verdict};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod accounts;
mod changes;
mod converts;
mod ends;
mod last_rows;
mod ledger;
mod many_io;
mod moves;
mod panics;
mod runs;
mod serving;
mod sessions;
mod time;

/// The context with the sessions.
const FIRST: ContextIndex = ContextIndex(0);
const FORMAT: u64 = 7;
const STREAMS: u32 = 2;
/// Numbers from a multiple of it on are in order among themselves.
const LANE: u64 = 1 << 48;

/// Sees whether records come in order, whoever brought it here; its state is the number that comes next.
struct InOrder {
    next: Option<Box<u64>>,
    /// Whether it makes new records, rather than handing on.
    emits: bool,
    kind: Arc<str>,
    wrong: Arc<AtomicU64>,
    counters: HandlerCounters,
}

impl InOrder {
    fn instance(emits: bool, wrong: &Arc<AtomicU64>) -> Instance {
        let (wrong, kind) = (Arc::clone(wrong), Arc::from("next/1"));
        let handler = InOrder { next: None, emits, kind, wrong, counters: HandlerCounters::default() };
        Instance { stream: None, format: FORMAT, handler: Some(Box::new(handler)), output: FORMAT }
    }
}

impl Handler for InOrder {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        for index in &*selection {
            let number = u64::from_le_bytes(batch.record(index).try_into().unwrap());
            match &mut self.next {
                Some(next) => {
                    self.wrong.fetch_add(u64::from(**next != number), Ordering::Relaxed);
                    **next = number + 1;
                }
                none => *none = Some(Box::new(number + 1)),
            }
            if self.emits {
                out.push(batch.record(index));
            }
        }
        if self.emits { Verdict::Emit(selection.len()) } else { Verdict::Forward }
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn state_kind(&self) -> Option<&str> {
        Some(&self.kind)
    }

    fn hand_over(&mut self) -> Option<HandlerState> {
        self.next.take().map(|next| HandlerState::new(Arc::clone(&self.kind), next))
    }

    fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        self.next = Some(state.of_kind(&self.kind)?);
        Ok(())
    }
}

/// Sessions, each with a subscription whose key is the number of its stream.
#[derive(Default)]
struct Sessions {
    keys: Vec<usize>,
    /// The number that comes next of each stream, and how many came; of the numbers from `LANE` on apart.
    delivered: BTreeMap<u32, (u64, u64)>,
    /// Records that did not come in order.
    wrong: u64,
    /// Streams that have ended, and how many records of all had come to the session by then.
    ended: Vec<u32>,
    ends: Vec<(u32, u64)>,
    /// Subscriptions whose queries have panicked.
    failed: Vec<usize>,
    /// Subscriptions to states that are gone.
    lost: Vec<(usize, StateLoss)>,
    /// Whether all take nothing now, and which of them take nothing.
    is_held: bool,
    held: Vec<usize>,
    /// With a generator, they have room and buffers for a few records at times.
    tight: Option<Rng>,
}

impl Sessions {
    /// Records that have come to a session.
    fn count(&self, key: u32) -> u64 {
        self.delivered.iter().filter(|(of, _)| **of & 0xffff == key).map(|(_, (_, count))| *count).sum()
    }

    /// Takes rows as far as there are buffers; the others go into the spill.
    fn take(&mut self, key: usize, rows: &[Vec<u8>], spill: &mut Spill) -> Sent {
        let most = self.tight.as_mut().map_or(usize::MAX, |rng| rng.usize(1..40)).min(rows.len());
        let (taken, left) = rows.split_at(most);
        assert!(left.iter().all(|row| spill.push(row)), "what a run makes beyond its room is bounded");
        for row in taken {
            let number = u64::from_le_bytes(row[..8].try_into().unwrap());
            let lane = (number / LANE) as u32;
            let (next, count) = self.delivered.entry(key as u32 | lane << 16).or_insert((number, 0));
            self.wrong += u64::from(*next != number);
            (*next, *count) = (number + 1, *count + 1);
        }
        let bytes = taken.iter().map(Vec::len).sum();
        Sent { outcome: Outcome::Made, records: taken.len() as u64, bytes, no_buffer: 0, too_long: 0 }
    }
}

impl Egress for Sessions {
    fn room(&mut self, key: usize, _bytes: usize) -> Room {
        if self.is_held || self.held.contains(&key) {
            return Room::Full;
        }
        match self.tight.as_mut().map(|rng| (rng.u8(0..4), rng.usize(1..3))) {
            None => Room::Packets(16),
            Some((0, _)) => Room::Full,
            Some((1, _)) => Room::NoBuffers,
            Some((_, packets)) => Room::Packets(packets),
        }
    }

    fn run(&mut self, key: usize, run: SessionRun<'_>, spill: &mut Spill) -> Sent {
        assert_eq!(spill.most, MAX_SPILL_BYTES, "the bound of a query");
        let (batch, mut rows) = (run.batch, Vec::<Vec<u8>>::new());
        let outcome = run.into_sink(&mut rows);
        if outcome == Outcome::Whole {
            rows.extend(batch.selected().map(<[u8]>::to_vec));
        }
        Sent { outcome, ..self.take(key, &rows, spill) }
    }

    fn resend(&mut self, key: usize, rows: &Spill, again: &mut Spill) -> Sent {
        let rows: Vec<Vec<u8>> = rows.rows().map(<[u8]>::to_vec).collect();
        self.take(key, &rows, again)
    }
}

/// Lets all pass.
struct All;

impl Handler for All {
    fn process(&mut self, _: &Batch, _: &mut Selection, _: &mut dyn Sink) -> Verdict {
        Verdict::Forward
    }

    fn counters(&self) -> HandlerCounters {
        HandlerCounters::default()
    }
}

/// Makes many records of each.
#[derive(Default)]
struct Many {
    times: usize,
    max_state_bytes: usize,
    counters: HandlerCounters,
}

impl Handler for Many {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        let mut row = [0; 4000];
        for index in &*selection {
            for _ in 0..self.times {
                row[..8].copy_from_slice(&self.counters.passed.to_le_bytes());
                out.push(&row);
                self.counters.passed += 1;
            }
            let _ = batch.record(index);
        }
        Verdict::Emit(selection.len() * self.times)
    }

    fn max_state_bytes(&self) -> usize {
        self.max_state_bytes
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }
}

/// The contexts and what passes through them.
struct World {
    graphs: Vec<(Graph, Workspace)>,
    pool: Pool,
    next: Vec<u64>,
    blocked: Vec<bool>,
    /// The sessions of the first context.
    sessions: Sessions,
    rng: Rng,
    /// By the clock of all contexts.
    now_ns: u64,
    /// Whether steps panic now and then.
    panics: bool,
}

impl World {
    fn new(contexts: usize, seed: u64, queue: usize) -> (World, Overlay) {
        World::with_buffers(contexts, seed, queue, 256)
    }

    /// Contexts with this many large buffers; three quarters may be in queues.
    fn with_buffers(contexts: usize, seed: u64, queue: usize, large: usize) -> (World, Overlay) {
        let (mut graphs, mut ports) = (Vec::new(), Vec::new());
        for index in 0..contexts {
            let (orders, control) = signal_queue();
            let pool = Pool::new(PoolConfig { classes: vec![(64 << 10, large)] }).unwrap();
            let mut graph = Graph::new(ContextIndex(index as u8), orders, Vec::new());
            // Each stream that is published has a publisher at the first context.
            (0..if index == 0 { STREAMS } else { 0 }).for_each(|stream| graph.note_publishers(stream, 1));
            ports.push(Port::new(control, None, Arc::clone(&graph.gauges)));
            graphs.push((graph, Workspace::new(pool)));
        }
        let pool = Pool::new(PoolConfig { classes: vec![(512, 8192)] }).unwrap();
        let streams = STREAMS as usize;
        let (next, blocked) = (vec![0; streams], vec![false; streams]);
        let rng = Rng::with_seed(seed);
        let world = World { graphs, pool, next, blocked, sessions: Sessions::default(), rng, now_ns: 0, panics: false };
        (world, Overlay::new(ports, vec![FIRST], queue, bounds::queued_buffers(large, usize::MAX)))
    }

    /// A session at the first context takes all of a stream.
    fn subscribe(&mut self, stream: u32) {
        let instance = |format| Instance { stream: None, format, handler: Some(Box::new(All)), output: format };
        self.subscribe_with([FORMAT, FORMAT + 1].map(instance).into(), stream, stream, SchedulingPolicy::default());
    }

    /// A session at the first context takes what a query makes of a stream.
    fn subscribe_with(
        &mut self,
        instances: Vec<Instance>,
        key: u32,
        stream: u32,
        policy: SchedulingPolicy,
    ) -> Arc<gauges::NodeGauges> {
        let gauges = Arc::default();
        self.sessions.keys.push(key as usize);
        self.graphs[0].0.add_session(key as usize, stream, instances, (policy, false), Arc::clone(&gauges));
        gauges
    }

    fn offer(&mut self, stream: u32) {
        self.offer_as(stream, FORMAT);
    }

    fn offer_as(&mut self, stream: u32, format: u64) {
        if self.blocked[stream as usize] {
            return;
        }
        let mut next = self.next[stream as usize];
        self.offer_from(stream, format, &mut next);
        self.next[stream as usize] = next;
    }

    /// Offers a batch of records with numbers from `next` on.
    fn offer_from(&mut self, stream: u32, format: u64, next: &mut u64) {
        let records = self.rng.u64(1..20);
        let Some(mut buffer) = self.pool.alloc(512) else { return };
        let mut batch = Batch::new();
        (batch.stream, batch.format) = (stream, format);
        for at in 0..records as usize {
            buffer[8 * at..8 * at + 8].copy_from_slice(&next.to_le_bytes());
            *next += 1;
            batch.records.push(Span { slice: 0, start: 8 * at as u32, len: 8 });
        }
        batch.push_buffer(buffer.freeze()).unwrap();
        batch.push_slice(Slice { buffer: 0, start: 0, len: 8 * records as u32, records: records as u32 }).unwrap();
        batch.select_all();
        let (graph, ws) = &mut self.graphs[0];
        graph.arrive(stream, batch, self.now_ns, ws);
        graph.check_publishers(stream);
    }

    /// Lets something happen: records come, or a context has a turn.
    fn step(&mut self) {
        if self.rng.u32(0..3) == 0 {
            let stream = self.rng.u32(0..STREAMS);
            self.offer(stream);
        }
        let at = self.rng.usize(0..self.graphs.len());
        self.turn(at);
    }

    fn turn(&mut self, at: usize) -> bool {
        if self.panics && self.rng.u8(0..8) == 0 {
            self.panic_at(at);
        }
        let (graph, ws) = &mut self.graphs[at];
        let changed = graph.guarded(ws, Graph::take_orders).unwrap_or(true);
        let before = graph.gauges.records_in.get();
        if at.is_multiple_of(2) {
            // A slice of next to nothing would be one record a turn, and changes wait for all that came before.
            let (slice_ns, now_ns) = (if self.rng.bool() { 20_000 } else { 100_000 }, self.now_ns);
            graph.guarded(ws, |graph, ws| graph.serve(slice_ns, now_ns, ws));
        } else {
            // As a g-core does: one handler after the other, with a look for changes between any two.
            let now_ns = self.now_ns;
            graph.guarded(ws, |graph, ws| {
                graph.begin_turn(now_ns, ws);
                if let Some(mut job) = graph.next_job(RunTime::Slice(u32::MAX), ws) {
                    let ran = job.run(ws);
                    graph.finish(job, ran, ws);
                }
            });
        }
        graph.gauges.turns.add(1);
        let mut worked = changed || graph.is_changing() || graph.gauges.records_in.get() != before;
        graph.arrived.clear();
        graph.events.clear();
        self.sessions.keys.iter().for_each(|key| graph.wake_session(*key));
        while let Some(step) = graph.next_session(self.now_ns, &mut self.sessions, ws) {
            worked = true;
            match step {
                SessionStep::Ran(_) | SessionStep::Converted { .. } => {}
                SessionStep::Failed(key) => self.sessions.failed.push(key),
                SessionStep::StateLost(key, loss) => self.sessions.lost.push((key, loss)),
                SessionStep::Ended(key, publishers, lost) => {
                    assert_eq!((publishers, lost), (0, 0));
                    self.sessions.ended.push(key as u32);
                    let count = self.sessions.count(key as u32);
                    self.sessions.ends.push((key as u32, count));
                }
            }
        }
        // Of those that have no buffers or no room now, some have in a moment.
        worked |= at == 0
            && self.sessions.tight.is_some()
            && self.sessions.keys.iter().any(|key| !graph.is_session_idle(*key));
        for (stream, is_blocked) in std::mem::take(&mut graph.turned) {
            if let Some(blocked) = self.blocked.get_mut(stream as usize) {
                *blocked = is_blocked;
            }
        }
        worked
    }

    /// A turn of a context in which its work takes no time.
    fn serve(&mut self, at: usize) {
        let (graph, ws) = &mut self.graphs[at];
        graph.begin_turn(self.now_ns, ws);
        while let Some(mut job) = graph.next_job(RunTime::Long, ws) {
            let ran = job.run(ws);
            graph.finish(job, ran, ws);
        }
        for (stream, is_blocked) in std::mem::take(&mut graph.turned) {
            self.blocked[stream as usize] = is_blocked;
        }
    }

    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 20 {
            let worked = (0..self.graphs.len()).map(|at| self.turn(at)).fold(false, |any, one| any | one);
            quiet = if worked { 0 } else { quiet + 1 };
        }
    }
}

/// Lets the world go on while something is waited for.
struct Steps<'a> {
    world: &'a mut World,
    tries: u32,
    /// How often it waits for a context.
    patience: u32,
}

impl Waiting for Steps<'_> {
    fn begin(&mut self) {
        self.tries = 0;
    }

    fn wait(&mut self) -> bool {
        self.tries += 1;
        self.world.step();
        self.tries < self.patience
    }
}

/// A handler that is there.
#[derive(Clone)]
struct Known {
    id: NodeId,
    source: u32,
    makes: u32,
    from: u32,
}

/// A node with a handler, delivered to subscriptions.
fn added(id: NodeId, instances: Vec<Instance>, (reads, makes): (&[u32], u32), policy: SchedulingPolicy) -> Box<Node> {
    let mut node = Box::new(Node::new(id, instances, makes, reads));
    node.policy = policy;
    node
}

fn add(node: Box<Node>, at: u8) -> [Edit; 2] {
    let stream = node.makes().unwrap();
    [Edit::Add { node, at: ContextIndex(at) }, Edit::Deliver { stream, at: FIRST, is_delivered: true }]
}

/// A change of a node: its next version, and its next place.
type Next = (Option<(Vec<Instance>, bool)>, Option<ContextIndex>);

/// Several edits at random, and what is there afterwards.
fn edits(
    overlay: &Overlay,
    known: &[Known],
    rng: &mut Rng,
    next_stream: &mut u32,
    contexts: u8,
    wrong: &Arc<AtomicU64>,
) -> (Vec<Edit>, Vec<Known>) {
    let (mut edits, mut after, mut new) = (Vec::new(), known.to_vec(), Vec::new());
    let mut changes: BTreeMap<NodeId, Next> = BTreeMap::new();
    for _ in 0..rng.usize(1..4) {
        let at = rng.u8(0..contexts);
        match rng.u32(0..10) {
            0..3 if after.len() < 12 => {
                // New ones read what is there, also what comes in the same change.
                let before = after.iter().filter(|_| rng.bool()).last();
                let (from, source) = before.map_or_else(
                    || {
                        let s = rng.u32(0..STREAMS);
                        (s, s)
                    },
                    |b| (b.makes, b.source),
                );
                let (id, makes) = (overlay.next_id(&new), *next_stream);
                *next_stream += 1;
                let policy = SchedulingPolicy { weight: rng.u32(1..4), ..SchedulingPolicy::default() };
                let instances = vec![InOrder::instance(rng.bool(), wrong)];
                edits.extend(add(added(id, instances, (&[from], makes), policy), at));
                new.push(id);
                after.push(Known { id, source, makes, from });
            }
            3..7 if !known.is_empty() => {
                let id = known[rng.usize(0..known.len())].id;
                changes.entry(id).or_default().1 = Some(ContextIndex(at));
            }
            7..9 if !known.is_empty() => {
                let id = known[rng.usize(0..known.len())].id;
                let instances = vec![InOrder::instance(rng.bool(), wrong)];
                changes.entry(id).or_default().0 = Some((instances, true));
            }
            9 if !known.is_empty() => {
                let gone = known[rng.usize(0..known.len())].clone();
                let is_read = after.iter().any(|other| other.from == gone.makes);
                if !is_read && after.iter().any(|other| other.id == gone.id) && rng.bool() {
                    after.retain(|other| other.id != gone.id);
                    edits.push(Edit::Remove { id: gone.id });
                    edits.push(Edit::Deliver { stream: gone.makes, at: FIRST, is_delivered: false });
                }
            }
            _ => {}
        }
    }
    changes.retain(|id, _| after.iter().any(|other| other.id == *id));
    let change = |(id, (instances, at)): (NodeId, Next)| Edit::Change { id, instances, policy: None, reads: None, at };
    edits.extend(changes.into_iter().map(change));
    (edits, after)
}

/// Lets the world go on until no change is unfinished.
fn finish(world: &mut World, overlay: &mut Overlay, seed: u64) {
    for _ in 0..100_000 {
        overlay.resume();
        if overlay.unanswered().is_none() {
            return;
        }
        world.step();
    }
    panic!("it is never finished; seed {seed}");
}

/// Random changes; if not `patient`, contexts are often not waited for long enough, and what is unfinished then is finished later.
fn random_changes(seed: u64, changes: usize, (patient, panics): (bool, bool)) {
    let contexts = 1 + seed as usize % 5;
    let (queue, large) = ([2, 4, 64][seed as usize % 3], [64, 256][seed as usize / 3 % 2]);
    let (mut world, mut overlay) = World::with_buffers(contexts, seed, queue, large);
    world.panics = panics;
    let wrong = Arc::new(AtomicU64::new(0));
    let (mut known, mut rng, mut next_stream) = (Vec::new(), Rng::with_seed(!seed), STREAMS);
    for _ in 0..changes {
        (0..rng.u32(0..30)).for_each(|_| world.step());
        // At times subscribers hold all back.
        world.sessions.is_held = rng.u8(0..8) == 0;
        let patience = if patient { 100_000 } else { rng.u32(0..12) };
        let (edits, after) = edits(&overlay, &known, &mut rng, &mut next_stream, contexts as u8, &wrong);
        let ends = edits.iter().any(|edit| matches!(edit, Edit::Remove { .. }));
        if ends {
            world.sessions.is_held = false;
        }
        for edit in &edits {
            if let Edit::Add { node, .. } = edit {
                world.subscribe(node.makes().unwrap());
            }
        }
        let mut wait = Steps { world: &mut world, tries: 0, patience };
        match overlay.change(edits, &mut wait) {
            Ok(changed) => {
                let unfinished = changed.unfinished.filter(|_| !patient);
                assert_eq!(changed, Changed { unfinished, ..Changed::default() }, "seed {seed}");
                known = after;
            }
            Err(NotChanged::Unanswered { .. }) => assert!(!patient, "seed {seed}: a context does not answer"),
            Err(refused) => panic!("seed {seed}: {refused:?}"),
        }
        // An unfinished change may be so while others change.
        if rng.bool() {
            finish(&mut world, &mut overlay, seed);
        }
    }
    finish(&mut world, &mut overlay, seed);
    (world.sessions.is_held, world.panics) = (false, false);
    world.settle();
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "a handler saw records out of order; seed {seed}");
    assert_eq!(world.sessions.wrong, 0, "records were delivered out of order; seed {seed}");
    for known in &known {
        let node = overlay.node(known.id).unwrap();
        assert!(node.gauges.losses().is_empty(), "seed {seed}: {:?}", node.gauges.losses());
        assert_eq!(node.gauges.records_in.get(), node.gauges.records_out.get(), "seed {seed}");
        // All that came until the end has come through.
        let last = world.next[known.source as usize];
        if node.gauges.records_in.get() > 0 {
            let (next, count) = world.sessions.delivered[&known.makes];
            assert_eq!(next, last, "seed {seed}: the last records were not delivered");
            assert_eq!(count, node.gauges.records_out.get(), "seed {seed}");
        }
    }
}

#[test]
fn random_changes_under_traffic_lose_double_and_reorder_nothing() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    match seed {
        Some(seed) => [true, false].into_iter().for_each(|patient| random_changes(seed, 300, (patient, false))),
        None => (0..120).for_each(|seed| random_changes(seed / 2, 120, (seed % 2 == 0, false))),
    }
}

/// A world with one node at a context, which reads these streams.
fn world_with(
    contexts: usize,
    queue: usize,
    (at, reads): (u8, &[u32]),
    policy: SchedulingPolicy,
) -> (World, Overlay, NodeId) {
    let (mut world, mut overlay) = World::new(contexts, 1, queue);
    let instances = vec![InOrder::instance(false, &Arc::default())];
    let node = added(NodeId(0), instances, (reads, 9), policy);
    world.subscribe(9);
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    overlay.change(add(node, at).into(), &mut wait).unwrap();
    (world, overlay, NodeId(0))
}

/// A stream of one that reads two ends with both, however often one of them does.
#[test]
fn a_node_of_two_streams_ends_when_both_have_ended() {
    let (mut world, _overlay, _) = world_with(2, 64, (1, &[0, 1]), SchedulingPolicy::default());
    let mut ends = |end: Option<u32>, records: Option<u32>| {
        end.into_iter().for_each(|stream| world.graphs[0].0.arrive_end(stream, 0, true));
        records.into_iter().for_each(|stream| {
            world.graphs[0].0.note_publishers(stream, 1);
            world.offer(stream);
        });
        world.sessions.ended.clear();
        world.settle();
        world.sessions.ended == [9]
    };
    assert!(!ends(Some(0), None));
    assert!(!ends(Some(0), None), "one that ends twice is one");
    assert!(ends(Some(1), None));
    assert!(!ends(None, Some(0)));
    assert!(!ends(Some(1), None), "the other one goes on again");
    assert!(ends(Some(0), None));
}

/// Output that is many times as long as the input waits for buffers, and nothing of it is lost.
#[test]
fn a_node_stops_within_a_batch_where_its_output_has_no_room() {
    for (times, large) in [(1, 16), (40, 16), (100, 16), (1000, 24)] {
        let (mut world, mut overlay) = World::with_buffers(2, 1, 4, large);
        let handler = Box::new(Many { times, ..Many::default() });
        let instance = Instance { stream: None, format: FORMAT, handler: Some(handler), output: FORMAT };
        let node = added(NodeId(0), vec![instance], (&[0], 9), SchedulingPolicy::default());
        let gauges = Arc::clone(&node.gauges);
        world.subscribe(9);
        let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
        overlay.change(add(node, 1).into(), &mut wait).unwrap();
        world.settle();
        let before = world.next[0] - gauges.records_in.get();
        for round in 0..200 {
            // Subscribers take something now and then.
            world.sessions.is_held = round % 3 > 0;
            world.offer(0);
            for at in 0..4 {
                world.turn(at % 2);
            }
        }
        world.sessions.is_held = false;
        world.settle();
        assert_eq!(gauges.losses(), [], "{times} records of each, {large} buffers");
        assert_eq!(world.sessions.wrong, 0);
        assert_eq!(gauges.records_in.get(), world.next[0] - before);
        assert_eq!(world.sessions.delivered[&9].1, gauges.records_in.get() * times as u64);
        assert_eq!(world.graphs[1].1.buffers_in_use(), 0);
    }
}
