//! Random changes under traffic, in virtual time, from a seed: every stage sees every record of what it reads, once and in
//! order, from the first that it saw on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::*;
use crate::platform::making::Rows;
use crate::platform::overlay::{Overlay, Port, Wait, Waiting, signal_queue};
use crate::platform::stage::{Instance, SchedulingPolicy, Work};
use crate::platform::table::Table;
use crossdock_engine::{Handler, HandlerCounters, HandlerState, Sink, Verdict};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod accounts;

const FORMAT: u64 = 7;
const STREAMS: u32 = 2;

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
        Instance { format: FORMAT, handler: Some(Box::new(handler)), output: FORMAT }
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

/// The contexts and what passes through them.
struct World {
    tables: Vec<Table>,
    pool: Pool,
    next: Vec<u64>,
    blocked: Vec<bool>,
    /// The number that comes next of each delivered stream, and how many came.
    delivered: BTreeMap<u32, (u64, u64)>,
    /// Delivered streams that have ended.
    ended: Vec<u32>,
    wrong: u64,
    rows: Rows,
    rng: Rng,
    /// By the clock of all contexts.
    now_ns: u64,
}

impl World {
    fn new(contexts: usize, seed: u64, queue: usize) -> (World, Overlay) {
        let (mut tables, mut ports) = (Vec::new(), Vec::new());
        for index in 0..contexts {
            let (signals, ends) = signal_queue();
            let pool = Pool::new(PoolConfig { classes: vec![(512, 4096), (64 << 10, 64)] }).unwrap();
            let table = Table::new(ContextIndex(index as u8), pool, signals, Vec::new());
            ports.push(Port::new(ends, None, Arc::clone(&table.gauges)));
            tables.push(table);
        }
        let pool = Pool::new(PoolConfig { classes: vec![(512, 8192)] }).unwrap();
        let streams = STREAMS as usize;
        let (next, blocked) = (vec![0; streams], vec![false; streams]);
        let rng = Rng::with_seed(seed);
        let (delivered, ended, rows) = (BTreeMap::new(), Vec::new(), Rows::default());
        let world = World { tables, pool, next, blocked, delivered, ended, wrong: 0, rows, rng, now_ns: 0 };
        (world, Overlay::new(ports, queue, 4 * queue))
    }

    fn offer(&mut self, stream: u32) {
        self.offer_as(stream, FORMAT);
    }

    fn offer_as(&mut self, stream: u32, format: u64) {
        if self.blocked[stream as usize] {
            return;
        }
        let records = self.rng.u64(1..20);
        let Some(mut buffer) = self.pool.alloc(512) else { return };
        let mut batch = Batch::new();
        (batch.stream, batch.format) = (stream, format);
        for at in 0..records as usize {
            let number = &mut self.next[stream as usize];
            buffer[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
            *number += 1;
            batch.records.push(Span { slice: 0, start: 8 * at as u32, len: 8 });
        }
        batch.push_buffer(buffer.freeze()).unwrap();
        batch.push_slice(Slice { buffer: 0, start: 0, len: 8 * records as u32, records: records as u32 }).unwrap();
        batch.select_all();
        self.tables[0].offer(stream, &batch, self.now_ns);
    }

    /// Lets something happen: records come, or a context has a turn.
    fn step(&mut self) {
        if self.rng.u32(0..3) == 0 {
            let stream = self.rng.u32(0..STREAMS);
            self.offer(stream);
        }
        let at = self.rng.usize(0..self.tables.len());
        self.turn(at);
    }

    fn turn(&mut self, at: usize) -> bool {
        let table = &mut self.tables[at];
        let changed = table.take_changes();
        let before = table.gauges.batches.get();
        if at.is_multiple_of(2) {
            table.serve(if self.rng.bool() { 1 } else { 5_000 }, self.now_ns);
        } else if let Some(mut job) = {
            table.tidy_queues();
            table.begin(self.now_ns)
        } {
            // As a g-core does: one handler after the other, with a look for changes between any two.
            let ran = job.run(&mut self.rows);
            table.finish(job, ran, &self.rows, self.now_ns);
        }
        let worked = changed || table.gauges.batches.get() != before;
        for (stream, is_blocked) in std::mem::take(&mut table.turned) {
            self.blocked[stream as usize] = is_blocked;
        }
        for batch in std::mem::take(&mut table.delivered) {
            if batch.format == END {
                self.ended.push(batch.stream);
            }
            for record in batch.selected() {
                let number = u64::from_le_bytes(record.try_into().unwrap());
                let (next, count) = self.delivered.entry(batch.stream).or_insert((number, 0));
                self.wrong += u64::from(*next != number);
                (*next, *count) = (number + 1, *count + 1);
            }
        }
        worked
    }

    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 20 {
            let worked = (0..self.tables.len()).map(|at| self.turn(at)).fold(false, |any, one| any | one);
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

/// A handler that is there, and its delivery.
struct Known {
    id: StageId,
    delivery: StageId,
    source: u32,
    makes: u32,
    readers: u32,
    from: Origin,
}

/// Puts a handler in behind a stream or another handler, and a delivery behind it.
fn deploy(
    overlay: &mut Overlay,
    known: &mut Vec<Known>,
    rng: &mut Rng,
    (next_stream, context): (u32, ContextIndex),
    wrong: &Arc<AtomicU64>,
    wait: Wait<'_>,
) {
    let behind = known.iter_mut().filter(|_| rng.bool()).last();
    let (from, source) = match behind {
        Some(before) => {
            before.readers += 1;
            (Origin::Stage(before.id), before.source)
        }
        None => {
            let stream = rng.u32(0..STREAMS);
            (Origin::Stream(stream), stream)
        }
    };
    let terms = SchedulingPolicy { weight: rng.u32(1..4), ..SchedulingPolicy::default() };
    let instance = InOrder::instance(rng.bool(), wrong);
    let stage = overlay.make_stage(Work::Handler(vec![instance]), next_stream, terms);
    let id = stage.id;
    let _ = overlay.put(stage, context, &BTreeSet::new(), wait);
    let delivery = overlay.make_stage(Work::Deliver, next_stream, SchedulingPolicy::default());
    let delivery_id = delivery.id;
    let reads = BTreeSet::from([Origin::Stage(id)]);
    let _ = overlay.put(delivery, ContextIndex(0), &reads, wait);
    // The way on before the way in: nothing is unclaimed.
    let _ = overlay.rewire(id, &BTreeSet::from([from]), wait);
    known.push(Known { id, delivery: delivery_id, source, makes: next_stream, readers: 0, from });
}

/// Random changes; if not `patient`, contexts are often not waited for long enough, and what is unfinished then is finished later.
fn random_changes(seed: u64, changes: usize, patient: bool) {
    let contexts = 1 + seed as usize % 5;
    let (mut world, mut overlay) = World::new(contexts, seed, [2, 4, 64][seed as usize % 3]);
    let wrong = Arc::new(AtomicU64::new(0));
    let mut known: Vec<Known> = Vec::new();
    let mut rng = Rng::with_seed(!seed);
    let mut next_stream = STREAMS;
    for _ in 0..changes {
        (0..rng.u32(0..30)).for_each(|_| world.step());
        let patience = if patient { 100_000 } else { rng.u32(0..12) };
        let mut wait = Steps { world: &mut world, tries: 0, patience };
        let context = ContextIndex(rng.u8(0..contexts as u8));
        match rng.u32(0..10) {
            0..3 if known.len() < 12 => {
                deploy(&mut overlay, &mut known, &mut rng, (next_stream, context), &wrong, &mut wait);
                next_stream += 1;
            }
            3..7 if !known.is_empty() => {
                let at = rng.usize(0..known.len());
                let moved = overlay.move_to(known[at].id, context, &mut wait);
                assert!(moved.is_ok() || !patient);
            }
            7..9 if !known.is_empty() => {
                let at = rng.usize(0..known.len());
                let lost = overlay.swap(known[at].id, vec![InOrder::instance(rng.bool(), &wrong)], true, &mut wait);
                assert!(lost == Ok(0) || (lost.is_err() && !patient), "{lost:?}");
            }
            9 if !known.is_empty() => {
                let at = rng.usize(0..known.len());
                if known[at].readers == 0 && rng.bool() {
                    let gone = known.swap_remove(at);
                    for stage in [gone.id, gone.delivery] {
                        let taken = overlay.take(stage, &mut wait);
                        assert!(matches!(taken, Ok(Some(_))) || (taken.is_err() && !patient));
                    }
                    if let Some(before) = known.iter_mut().find(|before| Origin::Stage(before.id) == gone.from) {
                        before.readers -= 1;
                    }
                }
            }
            _ => {}
        }
        let mut rounds = 0;
        while !overlay.resume(&mut Steps { world: &mut world, tries: 0, patience }) {
            world.step();
            rounds += 1;
            assert!(rounds < 100_000, "it is never finished; seed {seed}");
        }
    }
    world.settle();
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "a handler saw records out of order; seed {seed}");
    assert_eq!(world.wrong, 0, "records were delivered out of order; seed {seed}");
    for known in &known {
        let gauges = Arc::clone(&overlay.stage(known.delivery).unwrap().gauges);
        assert!(gauges.losses().is_empty(), "seed {seed}: {:?}", gauges.losses());
        let stage = overlay.stage(known.id).unwrap();
        assert_eq!(stage.gauges.records_in.get(), stage.gauges.records_out.get(), "seed {seed}");
        // All that came until the end has come through.
        let last = world.next[known.source as usize];
        if stage.gauges.records_in.get() > 0 {
            let (next, count) = world.delivered[&known.makes];
            assert_eq!(next, last, "seed {seed}: the last records were not delivered");
            assert_eq!(count, stage.gauges.records_out.get(), "seed {seed}");
        }
    }
}

#[test]
fn random_changes_under_traffic_lose_double_and_reorder_nothing() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    match seed {
        Some(seed) => [true, false].into_iter().for_each(|patient| random_changes(seed, 300, patient)),
        None => (0..120).for_each(|seed| random_changes(seed / 2, 120, seed % 2 == 0)),
    }
}

/// A stream of one that reads two ends with both, however often one of them does.
#[test]
fn what_reads_two_streams_ends_when_both_have_ended() {
    let (mut world, mut overlay) = World::new(2, 1, 64);
    let wrong = Arc::new(AtomicU64::new(0));
    let mut stage =
        overlay.make_stage(Work::Handler(vec![InOrder::instance(false, &wrong)]), 9, SchedulingPolicy::default());
    let id = stage.id;
    stage.reads = vec![0, 1];
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    overlay.put(stage, ContextIndex(1), &BTreeSet::from([0, 1].map(Origin::Stream)), &mut wait).unwrap();
    let delivery = overlay.make_stage(Work::Deliver, 9, SchedulingPolicy::default());
    overlay.put(delivery, ContextIndex(0), &BTreeSet::from([Origin::Stage(id)]), &mut wait).unwrap();
    let mut ends = |end: Option<u32>, records: Option<u32>| {
        if let Some(stream) = end {
            let mut batch = Batch::new();
            (batch.stream, batch.format) = (stream, END);
            world.tables[0].offer(stream, &batch, 0);
        }
        records.into_iter().for_each(|stream| world.offer(stream));
        world.ended.clear();
        world.settle();
        world.ended == [9]
    };
    assert!(!ends(Some(0), None));
    assert!(!ends(Some(0), None), "one that ends twice is one");
    assert!(ends(Some(1), None));
    assert!(!ends(None, Some(0)));
    assert!(!ends(Some(1), None), "the other one goes on again");
    assert!(ends(Some(0), None));
}

/// How a full queue is treated may change while it is there.
#[test]
fn a_queue_that_is_there_blocks_or_drops_as_it_is_told() {
    let (mut world, mut overlay) = World::new(2, 1, 2);
    let wrong = Arc::new(AtomicU64::new(0));
    let stage =
        overlay.make_stage(Work::Handler(vec![InOrder::instance(false, &wrong)]), 9, SchedulingPolicy::default());
    let id = stage.id;
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    overlay.put(stage, ContextIndex(1), &BTreeSet::from([Origin::Stream(0)]), &mut wait).unwrap();
    let gauges = Arc::clone(&overlay.stage(id).unwrap().gauges);
    for drops in [false, true, false] {
        let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
        overlay.set_terms(id, SchedulingPolicy { drops, ..SchedulingPolicy::default() }, None, &mut wait).unwrap();
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

/// Stages whose queues are full are served in turn, each as many batches as its weight says.
#[test]
fn full_queues_are_served_in_turn_by_their_weights() {
    const WEIGHTS: [u32; 3] = [1, 2, 5];
    const ROUNDS: u32 = 3;
    let (mut world, mut overlay) = World::new(1, 1, 64);
    let wrong = Arc::new(AtomicU64::new(0));
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    let stages = WEIGHTS.map(|weight| {
        let terms = SchedulingPolicy { weight, ..SchedulingPolicy::default() };
        let stage = overlay.make_stage(Work::Handler(vec![InOrder::instance(false, &wrong)]), 9, terms);
        let (id, from) = (stage.id, BTreeSet::from([Origin::Stream(0)]));
        overlay.put(stage, ContextIndex(0), &from, &mut wait).unwrap();
        Arc::clone(&overlay.stage(id).unwrap().gauges)
    });
    world.settle();
    let served = || stages.each_ref().map(|gauges| gauges.batches_in.get() as u32);
    let before = served();
    (0..20).for_each(|_| world.offer(0));
    let mut turns = Vec::new();
    while turns.len() < (ROUNDS * WEIGHTS.iter().sum::<u32>()) as usize {
        let so_far = served();
        // No time for more than one.
        world.tables[0].serve(1, world.now_ns);
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
    let wrong = Arc::new(AtomicU64::new(0));
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    let mut put = |max_sampling: u32| {
        let terms = SchedulingPolicy { max_sampling, ..SchedulingPolicy::default() };
        let stage = overlay.make_stage(Work::Handler(vec![InOrder::instance(false, &wrong)]), 9, terms);
        let (id, from) = (stage.id, BTreeSet::from([Origin::Stream(0)]));
        overlay.put(stage, ContextIndex(0), &from, &mut wait).unwrap();
        Arc::clone(&overlay.stage(id).unwrap().gauges)
    };
    let (whole, sampled) = (put(1), put(4));
    world.settle();
    let let_through = |gauges: &gauges::StageGauges| gauges.records_out.get();
    for (waited_us, one_in) in [(0, 1), (200, 1), (400, 2), (600, 4), (90_000, 4), (0, 1)] {
        let before = (let_through(&whole), let_through(&sampled), world.next[0], sampled.thinned.get());
        world.offer(0);
        world.now_ns += waited_us * 1000;
        world.tables[0].serve(1_000_000, world.now_ns);
        world.now_ns += 10_000_000;
        let records = world.next[0] - before.2;
        assert_eq!(let_through(&whole) - before.0, records, "one that does not allow it sees all");
        let seen = let_through(&sampled) - before.1;
        assert!((seen * one_in).abs_diff(records) < one_in, "{seen} of {records} records, after {waited_us} us");
        let noted = sampled.thinned.get() - before.3;
        assert_eq!((noted > 0, whole.thinned.get()), (one_in > 1, 0), "after {waited_us} us");
    }
}

/// What waits since nobody takes what is made of it does not make its context behind.
#[test]
fn a_context_is_not_behind_where_the_way_on_is_full() {
    let (mut world, mut overlay) = World::new(2, 1, 4);
    let wrong = Arc::new(AtomicU64::new(0));
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    let mut from = Origin::Stream(0);
    for at in [0, 1] {
        let stage =
            overlay.make_stage(Work::Handler(vec![InOrder::instance(false, &wrong)]), 9, SchedulingPolicy::default());
        let id = stage.id;
        overlay.put(stage, ContextIndex(at), &BTreeSet::from([from]), &mut wait).unwrap();
        from = Origin::Stage(id);
    }
    let terms = SchedulingPolicy { max_sampling: 4, ..SchedulingPolicy::default() };
    let sampled = overlay.make_stage(Work::Handler(vec![InOrder::instance(false, &wrong)]), 9, terms);
    let gauges = Arc::clone(&sampled.gauges);
    overlay.put(sampled, ContextIndex(0), &BTreeSet::from([Origin::Stream(0)]), &mut wait).unwrap();
    world.settle();
    let before = world.next[0];
    // The second context does not take what the first makes, until some wait for a millisecond.
    for _ in 0..20 {
        world.offer(0);
        world.now_ns += 100_000;
        world.tables[0].serve(1_000_000, world.now_ns);
    }
    for _ in 0..100 {
        world.tables[1].serve(1_000_000, world.now_ns);
        world.tables[0].serve(1_000_000, world.now_ns);
        world.offer(0);
        world.tables[0].serve(1_000_000, world.now_ns);
    }
    assert_eq!(gauges.records_out.get(), world.next[0] - before, "none was left out");
}

/// What was made for subscriptions leaves soon, however long the context may work before the next has its turn.
#[test]
fn a_turn_ends_early_where_something_is_to_be_delivered() {
    let (mut world, mut overlay) = World::new(1, 1, 64);
    let wrong = Arc::new(AtomicU64::new(0));
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    let mut stage =
        overlay.make_stage(Work::Handler(vec![InOrder::instance(false, &wrong)]), 9, SchedulingPolicy::default());
    // So much it is taken to cost, whatever it does: all in all less than a turn, and more than deliveries wait.
    stage.ns_per_record = 10_000.0;
    let id = stage.id;
    overlay.put(stage, ContextIndex(0), &BTreeSet::from([Origin::Stream(0)]), &mut wait).unwrap();
    world.settle();
    let batches = |world: &World| world.tables[0].gauges.batches.get();
    let serve = |world: &mut World| {
        (0..40).for_each(|_| world.offer(0));
        let before = batches(world);
        let more = world.tables[0].serve(10_000_000, 0);
        (more, batches(world) - before)
    };
    assert_eq!(serve(&mut world), (false, 40), "nobody waits for what it makes");
    let delivery = overlay.make_stage(Work::Deliver, 9, SchedulingPolicy::default());
    let mut wait = Steps { world: &mut world, tries: 0, patience: 100_000 };
    overlay.put(delivery, ContextIndex(0), &BTreeSet::from([Origin::Stage(id)]), &mut wait).unwrap();
    world.settle();
    let (more, served) = serve(&mut world);
    assert!(more && served < 80, "{served} batches, of 40 and the 40 that came of them");
}
