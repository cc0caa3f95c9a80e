//! Several contexts with sessions, in virtual time, from a seed: publishers and subscribers of a stream are at different ones,
//! come and go, and handlers are put in, moved, exchanged and replicated meanwhile. Every subscriber gets every record of every
//! publisher, once and in the publisher's order, from its subscription on; and hears of the stream's end after the last record, once.

use super::*;
use crate::graph::bounds::QUEUE_BATCHES;
use crate::graph::edge::{Item, Overflow, edge};
use crate::graph::gauges::Loss;
use crate::graph::node::Condition;

mod moving;

/// The position of the publisher's context in a record's number.
const SOURCE: u32 = 40;

/// The next number of each publisher, by its context.
type NextOf = BTreeMap<u64, u64>;

/// Notes a record; whether it is the one that had to come. The first of a publisher may be any.
fn note(next: &mut NextOf, record: &[u8]) -> bool {
    let number = u64::from_le_bytes(record.try_into().unwrap());
    let (source, at) = (number >> SOURCE, number & ((1 << SOURCE) - 1));
    next.insert(source, at + 1).is_none_or(|wanted| wanted == at)
}

/// Checks each publisher's order, and hands all on; its state is what comes next.
struct PerSource {
    next: Option<Box<NextOf>>,
    emits: bool,
    kind: Arc<str>,
    wrong: Arc<AtomicU64>,
}

fn instance(emits: bool, wrong: &Arc<AtomicU64>) -> Instance {
    let (wrong, kind) = (Arc::clone(wrong), Arc::from("next/1"));
    let handler = PerSource { next: Some(Box::default()), emits, kind, wrong };
    Instance { stream: None, format: FORMAT, handler: Some(Box::new(handler)), output: FORMAT }
}

impl Handler for PerSource {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        for index in &*selection {
            let is_next = note(self.next.as_mut().unwrap(), batch.record(index));
            self.wrong.fetch_add(u64::from(!is_next), Ordering::Relaxed);
            if self.emits {
                out.push(batch.record(index));
            }
        }
        if self.emits { Verdict::Emit(selection.len()) } else { Verdict::Forward }
    }

    fn counters(&self) -> HandlerCounters {
        HandlerCounters::default()
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

/// A subscription, by its key.
#[derive(Default)]
struct Got {
    stream: u32,
    source: u32,
    at: usize,
    /// The first record of each publisher that came, and the one that comes next.
    first: NextOf,
    next: NextOf,
    wrong: u64,
    /// The next record of each publisher when it began: all from there on are for it.
    since: NextOf,
    /// How often it heard that the stream had ended, while changes were made; and how often it had before it began.
    zeros: u32,
    zeros_before: u32,
    /// How often it heard that a publisher stopped, and how many publishers there were then at the last, and had been lost.
    ends: u32,
    left: Option<u32>,
    lost: u32,
    /// How many its source had lost at its context when it began.
    lost_before: u32,
}

/// The subscriptions of all contexts, with room and buffers for a few records at times.
struct Taken {
    of: BTreeMap<usize, Got>,
    rng: Rng,
    is_held: bool,
}

impl Taken {
    fn take(&mut self, key: usize, rows: &[Vec<u8>], spill: &mut Spill) -> Sent {
        let most = if self.is_held { self.rng.usize(1..40) } else { usize::MAX }.min(rows.len());
        let (taken, left) = rows.split_at(most);
        assert!(left.iter().all(|row| spill.push(row)), "what a run makes beyond its room is bounded");
        let got = self.of.get_mut(&key).unwrap();
        for row in taken {
            got.wrong += u64::from(!note(&mut got.next, row));
            let number = u64::from_le_bytes(row[..].try_into().unwrap());
            got.first.entry(number >> SOURCE).or_insert(number & ((1 << SOURCE) - 1));
        }
        let bytes = taken.iter().map(Vec::len).sum();
        Sent { outcome: Outcome::Made, records: taken.len() as u64, bytes, no_buffer: 0, too_long: 0 }
    }
}

impl Egress for Taken {
    fn room(&mut self, _: usize, _: usize) -> Room {
        match self.is_held.then(|| self.rng.u8(0..4)) {
            Some(0) => Room::Full,
            Some(1) => Room::NoBuffers,
            Some(_) => Room::Packets(self.rng.usize(1..3)),
            None => Room::Packets(16),
        }
    }

    fn run(&mut self, key: usize, run: SessionRun<'_>, spill: &mut Spill) -> Sent {
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

struct Contexts {
    graphs: Vec<(Graph, Workspace)>,
    pool: Pool,
    /// Publishers of a stream at a context, and the number of the next record.
    publishers: BTreeMap<(u32, usize), u32>,
    next: BTreeMap<(u32, usize), u64>,
    blocked: BTreeMap<(u32, usize), bool>,
    /// How often a publisher of each stream has stopped, and how often that was the last.
    stopped: BTreeMap<u32, u32>,
    /// How many publishers of each stream have stopped that had not finished.
    lost: BTreeMap<(u32, usize), u32>,
    zeros: BTreeMap<u32, u32>,
    taken: Taken,
    rng: Rng,
    /// Subscriptions and streams of handlers that there ever were.
    keys: usize,
    made: u32,
    /// In one of this many steps of a change a publisher stops.
    stops_one_in: u32,
    /// Whether publishers that stop have finished: at random, if it is not set.
    finishes: Option<bool>,
}

impl Contexts {
    fn new(contexts: usize, seed: u64) -> (Contexts, Overlay) {
        let (mut graphs, mut ports, large) = (Vec::new(), Vec::new(), 256);
        for index in 0..contexts {
            let (orders, control) = signal_queue();
            let pool = Pool::new(PoolConfig { classes: vec![(64 << 10, large)] }).unwrap();
            let graph = Graph::new(ContextIndex(index as u8), orders, Vec::new());
            ports.push(Port::new(control, None, Arc::clone(&graph.gauges)));
            graphs.push((graph, Workspace::new(pool)));
        }
        let pool = Pool::new(PoolConfig { classes: vec![(512, 8192)] }).unwrap();
        let io = (0..contexts).map(|index| ContextIndex(index as u8)).collect();
        let queue = [1, 4, 64][seed as usize % 3];
        let overlay = Overlay::new(ports, io, queue, bounds::queued_buffers(large, usize::MAX));
        let taken = Taken { of: BTreeMap::new(), rng: Rng::with_seed(seed ^ 1), is_held: false };
        let (publishers, next, blocked) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let rng = Rng::with_seed(seed);
        let (stopped, zeros) = (BTreeMap::new(), BTreeMap::new());
        (
            Contexts {
                graphs,
                pool,
                publishers,
                next,
                blocked,
                stopped,
                lost: BTreeMap::new(),
                zeros,
                taken,
                rng,
                keys: 0,
                made: 0,
                stops_one_in: 40,
                finishes: None,
            },
            overlay,
        )
    }

    /// A publisher puts some records in, if it has credit: it may have some still that it got before it was held back.
    fn offer(&mut self, stream: u32, at: usize) {
        let is_blocked = self.blocked.get(&(stream, at)).copied().unwrap_or_default();
        if is_blocked && self.rng.u8(0..4) > 0 {
            return;
        }
        let Some(mut buffer) = self.pool.alloc(512) else { return };
        let mut batch = self.graphs[at].1.spares.take();
        (batch.stream, batch.format) = (stream, FORMAT);
        let records = self.rng.usize(1..20);
        let next = self.next.entry((stream, at)).or_default();
        for place in 0..records {
            let number = (at as u64) << SOURCE | *next;
            buffer[8 * place..8 * place + 8].copy_from_slice(&number.to_le_bytes());
            *next += 1;
            batch.records.push(Span { slice: 0, start: 8 * place as u32, len: 8 });
        }
        batch.push_buffer(buffer.freeze()).unwrap();
        batch.push_slice(Slice { buffer: 0, start: 0, len: 8 * records as u32, records: records as u32 }).unwrap();
        let (graph, ws) = &mut self.graphs[at];
        graph.arrive(stream, batch, 0, ws);
        graph.check_publishers(stream);
    }

    fn step(&mut self) {
        if self.rng.u32(0..3) == 0
            && let Some((stream, at)) = self.one_publishing()
        {
            self.offer(stream, at);
        }
        let at = self.rng.usize(0..self.graphs.len());
        self.turn(at);
    }

    fn turn(&mut self, at: usize) -> bool {
        let (graph, ws) = &mut self.graphs[at];
        let changed = graph.take_orders(ws);
        let before = graph.gauges.records_in.get();
        // As an I/O context does, which leaves a graph alone that has nothing to do.
        let is_left_alone = graph.is_empty() && !changed && !graph.has_turned();
        let more = !is_left_alone && graph.serve(if self.rng.bool() { 1 } else { 5_000 }, 0, ws);
        let mut worked = more || changed || graph.is_changing() || graph.gauges.records_in.get() != before;
        worked |= !std::mem::take(&mut graph.arrived).is_empty();
        self.taken.of.iter().filter(|(_, got)| got.at == at).for_each(|(key, _)| graph.wake_session(*key));
        while let Some(step) = graph.next_session(0, &mut self.taken, ws) {
            worked = true;
            if let SessionStep::Ended(key, publishers, lost) = step {
                let got = self.taken.of.get_mut(&key).unwrap();
                (got.ends, got.left, got.lost) = (got.ends + 1, Some(publishers), lost);
                got.zeros += u32::from(publishers == 0);
                let zeros = self.zeros.get(&got.source).copied().unwrap_or_default();
                assert!(got.zeros <= zeros, "the end of stream {} is reported before it is reached", got.stream);
            }
        }
        let waits = |(key, got): (&usize, &Got)| got.at == at && !graph.is_session_idle(*key);
        worked |= self.taken.is_held && self.taken.of.iter().any(waits);
        for (stream, is_blocked) in std::mem::take(&mut graph.turned) {
            self.blocked.insert((stream, at), is_blocked);
        }
        worked
    }

    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 20 {
            let worked = (0..self.graphs.len()).map(|at| self.turn(at)).fold(false, |any, one| any | one);
            quiet = if worked { 0 } else { quiet + 1 };
        }
    }

    /// A publisher comes to a stream.
    fn publish(&mut self, overlay: &mut Overlay, stream: u32, at: usize) {
        let edit = Edit::Publish { stream, at: ContextIndex(at as u8), is_published: true };
        overlay.change(vec![edit], self).unwrap();
        let count = self.publishers.entry((stream, at)).or_default();
        *count += 1;
        self.graphs[at].0.note_publishers(stream, *count);
    }

    /// One of the publishers that there are, by its stream and context.
    fn one_publishing(&mut self) -> Option<(u32, usize)> {
        let publishing: Vec<_> = self.publishers.iter().filter(|(_, count)| **count > 0).map(|(at, _)| *at).collect();
        (!publishing.is_empty()).then(|| publishing[self.rng.usize(0..publishing.len())])
    }

    /// A publisher of a stream stops; whether it was the last of its context.
    fn end(&mut self, (stream, at): (u32, usize)) -> bool {
        let count = self.publishers.get_mut(&(stream, at)).unwrap();
        *count -= 1;
        let count = *count;
        *self.stopped.entry(stream).or_default() += 1;
        *self.zeros.entry(stream).or_default() += u32::from(!self.is_published(stream));
        let is_finished = self.finishes.unwrap_or_else(|| self.rng.u8(0..8) > 0);
        if !is_finished {
            *self.lost.entry((stream, at)).or_default() += 1;
        }
        self.graphs[at].0.arrive_end(stream, count, is_finished);
        count == 0
    }

    fn is_published(&self, stream: u32) -> bool {
        self.publishers.iter().any(|((of, _), count)| *of == stream && *count > 0)
    }

    /// A publisher of a stream stops; the last of a context may take its edges along.
    fn stop(&mut self, overlay: &mut Overlay, stream: u32, at: usize) {
        if self.end((stream, at)) && self.rng.bool() {
            let edit = Edit::Publish { stream, at: ContextIndex(at as u8), is_published: false };
            overlay.change(vec![edit], self).unwrap();
        }
    }

    /// A subscription to a stream that is, or is made of, what comes of `source`.
    fn subscribe(&mut self, overlay: &mut Overlay, (stream, source): (u32, u32), at: usize) {
        let edit = Edit::Deliver { stream, at: ContextIndex(at as u8), is_delivered: true };
        overlay.change(vec![edit], self).unwrap();
        let instance = Instance { stream: None, format: FORMAT, handler: Some(Box::new(All)), output: FORMAT };
        let policy = (SchedulingPolicy::default(), false);
        self.graphs[at].0.add_session(self.keys, stream, vec![instance], policy, Arc::default());
        let of_source = self.next.iter().filter(|((of, _), _)| *of == source);
        let since = of_source.map(|((_, at), next)| (*at as u64, *next)).collect();
        let zeros_before = self.zeros.get(&source).copied().unwrap_or_default();
        // The ends of publishers at other contexts may be on their way, behind records that it gets too; so may all that a handler
        // passes on.
        let lost_here = self.lost.get(&(source, at)).filter(|_| stream == source);
        let lost_before = lost_here.copied().unwrap_or_default();
        self.taken.of.insert(self.keys, Got { stream, source, at, since, zeros_before, lost_before, ..Got::default() });
        self.keys += 1;
    }

    fn unsubscribe(&mut self, overlay: &mut Overlay, key: usize) {
        let Got { stream, at, .. } = self.taken.of.remove(&key).unwrap();
        let (graph, ws) = &mut self.graphs[at];
        graph.remove_session(key, ws);
        if !self.taken.of.values().any(|got| (got.stream, got.at) == (stream, at)) {
            let edit = Edit::Deliver { stream, at: ContextIndex(at as u8), is_delivered: false };
            overlay.change(vec![edit], self).unwrap();
        }
    }
}

impl Waiting for Contexts {
    fn begin(&mut self) {}

    /// Publishers stop also while a change is made.
    fn wait(&mut self) -> bool {
        self.step();
        if self.rng.u32(0..self.stops_one_in) == 0
            && let Some(publisher) = self.one_publishing()
        {
            self.end(publisher);
        }
        true
    }
}

/// A handler that is there.
#[derive(Clone)]
struct There {
    /// Its node, or those of its replicas.
    ids: Vec<NodeId>,
    reads: u32,
    makes: u32,
    /// The published stream that its stream is made of.
    source: u32,
    is_replicated: bool,
}

/// The handlers that are there, and what changes them.
struct Handlers {
    there: Vec<There>,
    rng: Rng,
    wrong: Arc<AtomicU64>,
}

impl Handlers {
    fn instances(&mut self) -> Vec<Instance> {
        vec![instance(self.rng.bool(), &self.wrong)]
    }

    /// One of those that are there.
    fn one(&mut self) -> Option<usize> {
        (!self.there.is_empty()).then(|| self.rng.usize(0..self.there.len()))
    }

    /// Nodes that make a stream: one somewhere, or a replica at each context.
    fn nodes(&mut self, (world, overlay): (&Contexts, &Overlay), of: &mut There) -> Vec<Edit> {
        of.ids.clear();
        let all = 0..world.graphs.len();
        let one = self.rng.usize(all.clone());
        let places = if of.is_replicated { all } else { one..one + 1 };
        let mut edits = Vec::new();
        for at in places {
            let id = overlay.next_id(&of.ids);
            let mut node = added(id, self.instances(), (&[of.reads], of.makes), SchedulingPolicy::default());
            node.reads_own = of.is_replicated;
            of.ids.push(id);
            edits.push(Edit::Add { node, at: ContextIndex(at as u8) });
        }
        edits
    }

    /// Whether a handler may be replicated, or not, for what it reads and for those that read its stream.
    fn may_be(&self, of: &There, is_replicated: bool) -> bool {
        let mut reads = self.there.iter().filter(|other| other.makes == of.reads);
        let mut readers = self.there.iter().filter(|other| other.reads == of.makes);
        if is_replicated { reads.all(|other| other.is_replicated) } else { readers.all(|other| !other.is_replicated) }
    }

    fn deploy(&mut self, world: &mut Contexts, overlay: &mut Overlay, stream: u32) {
        let before = self.one().filter(|_| self.rng.bool()).map(|one| self.there[one].clone());
        let (reads, source) = before.map_or((stream, stream), |before| (before.makes, before.source));
        let mut new =
            There { ids: Vec::new(), reads, makes: STREAMS + world.made, source, is_replicated: self.rng.bool() };
        new.is_replicated &= self.may_be(&new, true);
        world.made += 1;
        let edits = self.nodes((world, overlay), &mut new);
        overlay.change(edits, world).unwrap();
        self.there.push(new);
    }

    /// A handler gets replicas, or is one again.
    fn replicate(&mut self, world: &mut Contexts, overlay: &mut Overlay, one: usize) {
        let mut next = self.there[one].clone();
        next.is_replicated = !next.is_replicated;
        if self.may_be(&next, next.is_replicated) {
            let gone: Vec<Edit> = next.ids.iter().map(|id| Edit::Remove { id: *id }).collect();
            let edits = gone.into_iter().chain(self.nodes((world, overlay), &mut next)).collect();
            assert_eq!(overlay.change(edits, world).unwrap(), Changed::default());
            self.there[one] = next;
        }
    }

    /// Another version, of all replicas at once; another place for one that has none.
    fn swap(&mut self, world: &mut Contexts, overlay: &mut Overlay, (one, at): (usize, Option<ContextIndex>)) {
        let there = self.there[one].clone();
        let at = at.filter(|_| !there.is_replicated);
        let edit = |id: &NodeId| {
            let instances = Some((self.instances(), true));
            Edit::Change { id: *id, instances, policy: None, reads: None, at }
        };
        let edits = there.ids.iter().map(edit).collect();
        assert_eq!(overlay.change(edits, world).unwrap(), Changed::default());
    }

    fn remove(&mut self, world: &mut Contexts, overlay: &mut Overlay, one: usize) {
        let gone = &self.there[one];
        let is_read = self.there.iter().any(|other| other.reads == gone.makes);
        if !is_read && !world.taken.of.values().any(|got| got.stream == gone.makes) {
            let edits = self.there.swap_remove(one).ids.iter().map(|id| Edit::Remove { id: *id }).collect();
            overlay.change(edits, world).unwrap();
        }
    }
}

/// Changes something.
fn change(world: &mut Contexts, overlay: &mut Overlay, handlers: &mut Handlers) {
    let rng = &mut handlers.rng;
    let (stream, at, kind) = (rng.u32(0..STREAMS), rng.usize(0..world.graphs.len()), rng.u32(0..14));
    let (context, moves, of_handler) = (ContextIndex(at as u8), rng.bool(), rng.bool());
    match (kind, handlers.one()) {
        (0..2, _) => world.publish(overlay, stream, at),
        (2, _) => {
            if let Some((stream, at)) = world.one_publishing() {
                world.stop(overlay, stream, at);
            }
        }
        (3..5, Some(one)) if of_handler => {
            let There { makes, source, .. } = handlers.there[one];
            world.subscribe(overlay, (makes, source), at);
        }
        (3..5, _) => world.subscribe(overlay, (stream, stream), at),
        (5, _) => {
            let keys: Vec<usize> = world.taken.of.keys().copied().collect();
            if !keys.is_empty() {
                world.unsubscribe(overlay, keys[handlers.rng.usize(0..keys.len())]);
            }
        }
        (6..8, _) if handlers.there.len() < 5 => handlers.deploy(world, overlay, stream),
        (8..10, Some(one)) if !handlers.there[one].is_replicated => {
            let id = handlers.there[one].ids[0];
            let edit = Edit::Change { id, instances: None, policy: None, reads: None, at: Some(context) };
            overlay.change(vec![edit], world).unwrap();
        }
        (8..11, Some(one)) => handlers.swap(world, overlay, (one, moves.then_some(context))),
        (11, Some(one)) => handlers.remove(world, overlay, one),
        (12..14, Some(one)) => handlers.replicate(world, overlay, one),
        _ => {}
    }
}

/// Holds what subscriptions got against what was published.
fn check(world: &Contexts, seed: u64) {
    for (key, got) in &world.taken.of {
        let about = format!("seed {seed}: subscription {key} to stream {} at {}", got.stream, got.at);
        assert_eq!(got.wrong, 0, "{about}: records out of order");
        for ((_, at), next) in world.next.iter().filter(|((of, _), _)| *of == got.source) {
            let (at, next) = (*at as u64, *next);
            let since = got.since.get(&at).copied().unwrap_or_default();
            if next > since {
                assert_eq!(got.next.get(&at).copied(), Some(next), "{about}: the last of publisher {at}");
                assert!(
                    got.first[&at] <= since,
                    "{about}: {} of publisher {at} came first, not {since}",
                    got.first[&at]
                );
            }
        }
    }
}

fn run(seed: u64, changes: usize) {
    let (mut world, mut overlay) = Contexts::new(2 + seed as usize % 3, seed);
    let wrong = Arc::new(AtomicU64::new(0));
    let mut handlers = Handlers { there: Vec::new(), rng: Rng::with_seed(!seed), wrong: Arc::clone(&wrong) };
    for _ in 0..changes {
        (0..handlers.rng.u32(0..40)).for_each(|_| world.step());
        world.taken.is_held = handlers.rng.u8(0..3) == 0;
        change(&mut world, &mut overlay, &mut handlers);
    }
    world.taken.is_held = false;
    world.settle();
    check(&world, seed);
    for (key, got) in &world.taken.of {
        let zeros = world.zeros.get(&got.source).copied().unwrap_or_default();
        if zeros > got.zeros_before && !world.is_published(got.source) {
            let about = format!("seed {seed}: subscription {key} to stream {} of {}", got.stream, got.source);
            assert_eq!(got.left, Some(0), "{about}: the end");
        }
    }
    world.taken.of.values_mut().for_each(|got| (got.ends, got.left) = (0, None));
    world.stopped.clear();
    let lost_before = world.lost.clone();
    for (stream, at) in world.publishers.keys().copied().collect::<Vec<_>>() {
        while world.publishers[&(stream, at)] > 0 {
            world.stop(&mut overlay, stream, at);
        }
    }
    world.settle();
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "seed {seed}");
    check(&world, seed);
    for (key, got) in &world.taken.of {
        let ends = world.stopped.get(&got.source).copied().unwrap_or_default();
        let is_derived = got.stream != got.source;
        let (wanted, last) = (if is_derived { ends.min(1) } else { ends }, (ends > 0).then_some(0));
        let about = format!("seed {seed}: subscription {key} to stream {} of {}", got.stream, got.source);
        assert_eq!((got.ends, got.left), (wanted, last), "{about}");
        let lost = |of: &BTreeMap<(u32, usize), u32>| -> u32 {
            of.iter().filter(|((stream, _), _)| *stream == got.source).map(|(_, count)| count).sum()
        };
        let (at_last, ever) = (lost(&world.lost) - lost(&lost_before), lost(&world.lost) - got.lost_before);
        assert!((at_last..=ever).contains(&got.lost) || ends == 0, "{about}: {} of {at_last} to {ever} lost", got.lost);
    }
    let in_use = world.pool.stats().classes.iter().map(crossdock_mailbox::ClassStats::in_use).sum::<usize>();
    assert_eq!(in_use, 0, "seed {seed}");
    for (_, ws) in &world.graphs {
        assert_eq!(ws.buffers_in_use(), 0, "seed {seed}");
    }
}

#[test]
fn records_reach_all_subscribers_at_all_contexts_once_and_in_order() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let all = if std::env::var_os("CROSSDOCK_THOROUGH").is_some() { 400 } else { 40 };
    for seed in seed.map_or(0..all, |seed: u64| seed..seed + 1) {
        run(seed, 60);
    }
}

#[test]
fn the_memory_of_a_batch_that_crosses_comes_back_for_the_next() {
    let (mut world, mut overlay) = Contexts::new(2, 1);
    world.publish(&mut overlay, 0, 0);
    world.subscribe(&mut overlay, (0, 0), 1);
    for number in 0..50 {
        let spare = world.graphs[0].1.spares.take();
        assert!(number < 8 || spare.records.capacity() > 0, "batch {number} allocates");
        world.graphs[0].1.spares.keep(spare);
        world.offer(0, 0);
        world.settle();
    }
    let got = &world.taken.of[&0];
    assert_eq!((got.wrong, got.next[&0]), (0, world.next[&(0, 0)]));
}

/// One context works for a number of turns while a change is made; the others are at work.
struct Only<'a>(&'a mut Contexts, usize, u32);

impl Waiting for Only<'_> {
    fn begin(&mut self) {}

    fn wait(&mut self) -> bool {
        self.0.turn(self.1);
        self.2 -= 1;
        self.2 > 0
    }

    fn is_at_work(&self, at: ContextIndex) -> bool {
        usize::from(at.0) != self.1
    }
}

#[test]
fn records_leave_a_context_at_which_nothing_else_is_left() {
    let (mut world, mut overlay) = Contexts::new(2, 0);
    world.publish(&mut overlay, 0, 1);
    world.subscribe(&mut overlay, (0, 0), 0);
    world.settle();
    // More than the edge takes, while the other context does not come to it.
    (0..20).for_each(|_| world.offer(0, 1));
    assert!(!world.graphs[1].0.has_crossed(0));
    world.end((0, 1));
    let edit = Edit::Publish { stream: 0, at: ContextIndex(1), is_published: false };
    let changed = overlay.change(vec![edit], &mut Only(&mut world, 1, 50)).unwrap();
    assert!(changed.unfinished.is_some() && !world.graphs[1].0.has_crossed(0));
    world.settle();
    assert_eq!(overlay.resume().len(), 1);
    assert!(world.graphs[1].0.has_crossed(0));
    check(&world, 0);
    assert_eq!((world.taken.of[&0].ends, world.taken.of[&0].left), (1, Some(0)));
}

#[test]
fn a_subscriber_beside_a_handler_that_drops_misses_nothing() {
    for seed in 0..10 {
        let (mut world, mut overlay) = Contexts::new(2, seed);
        let at = ContextIndex(1);
        let drops = SchedulingPolicy { drops: true, ..SchedulingPolicy::default() };
        let instances = vec![instance(true, &Arc::default())];
        let mut node = added(overlay.next_id(&[]), instances, (&[0], STREAMS), drops);
        node.condition = Condition::Waiting;
        let gauges = Arc::clone(&node.gauges);
        world.publish(&mut overlay, 0, 0);
        overlay.change(vec![Edit::Add { node, at }], &mut world).unwrap();
        world.subscribe(&mut overlay, (0, 0), 1);
        for _ in 0..2 * QUEUE_BATCHES {
            world.offer(0, 0);
            if world.rng.u32(0..4) == 0 {
                world.step();
            }
        }
        world.settle();
        check(&world, seed);
        assert!(gauges.lost(Loss::QueueFull) > 0, "seed {seed}: the handler's queue is full");
        // Behind the last subscriber it is as before: a handler that drops holds nobody back.
        world.unsubscribe(&mut overlay, 0);
        let published = world.next[&(0, 0)];
        (0..2 * QUEUE_BATCHES).for_each(|_| world.offer(0, 0));
        assert!(world.next[&(0, 0)] - published >= 2 * QUEUE_BATCHES as u64, "seed {seed}: a publisher is held back");
    }
}

/// Publishers all stop while a handler behind replicas gets replicas, or is one again; and is read by one elsewhere.
fn end_in_exchange(seed: u64) {
    let (mut world, mut overlay) = Contexts::new(2 + seed as usize % 3, seed);
    let wrong = Arc::new(AtomicU64::new(0));
    let mut handlers = Handlers { there: Vec::new(), rng: Rng::with_seed(!seed), wrong: Arc::clone(&wrong) };
    let contexts = world.graphs.len();
    world.stops_one_in = u32::MAX;
    for at in 0..contexts {
        world.publish(&mut overlay, 0, at);
    }
    let chain = [(0, STREAMS, true), (STREAMS, STREAMS + 1, seed.is_multiple_of(2)), (STREAMS + 1, STREAMS + 2, false)];
    for (reads, makes, is_replicated) in chain {
        let mut new = There { ids: Vec::new(), reads, makes, source: 0, is_replicated };
        let edits = handlers.nodes((&world, &overlay), &mut new);
        overlay.change(edits, &mut world).unwrap();
        handlers.there.push(new);
    }
    for stream in [0, STREAMS, STREAMS + 1, STREAMS + 2] {
        (0..contexts).for_each(|at| world.subscribe(&mut overlay, (stream, 0), at));
    }
    (0..handlers.rng.u32(0..300)).for_each(|_| world.step());
    world.stops_one_in = handlers.rng.u32(2..40);
    handlers.replicate(&mut world, &mut overlay, 1);
    if handlers.rng.bool() {
        handlers.swap(&mut world, &mut overlay, (0, None));
    }
    while let Some(publisher) = world.one_publishing() {
        world.step();
        world.end(publisher);
    }
    world.settle();
    check(&world, seed);
    for (key, got) in &world.taken.of {
        let about = format!("seed {seed}: subscription {key} to stream {} at {}", got.stream, got.at);
        assert_eq!((got.zeros, got.left), (1, Some(0)), "{about}");
    }
}

#[test]
fn the_end_of_a_stream_is_reported_once_also_while_its_handler_gets_replicas() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let all = if std::env::var_os("CROSSDOCK_THOROUGH").is_some() { 1000 } else { 100 };
    for seed in seed.map_or(0..all, |seed: u64| seed..seed + 1) {
        end_in_exchange(seed);
    }
}

#[test]
fn an_edge_is_not_drained_while_its_ring_has_no_room_for_more() {
    let (mut sender, mut receiver) = edge((1, 1), ContextIndex(1), Overflow::Block);
    assert!(receiver.is_drained());
    (0..3).for_each(|change| sender.push_control(Item::Marker(change)));
    for _ in 0..3 {
        assert!(!receiver.is_drained());
        assert!(receiver.pop().is_some());
        assert_eq!(receiver.waiting(), 0);
        sender.flush();
    }
    assert!(receiver.is_drained());
}
