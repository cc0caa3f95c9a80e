//! A node at work: on the context's own thread, or, on a g-core, outside of the graph's lock.

use crate::graph::NodeId;
use crate::graph::arrive::Origin;
use crate::graph::at_work::AtWork;
use crate::graph::bounds::{MAX_SPILL_BYTES, MOST_MADE, PIECE_BYTES};
use crate::graph::build::{Workspace, longest_made};
use crate::graph::edge::{Item, Queued};
use crate::graph::gauges::Loss;
use crate::graph::node::{Condition, Destination, Input, NEWER, Node, RunTime};
use crate::graph::serve::{Graph, Next};
use crate::graph::session::{Egress, Sent, SessionRun};
use crate::graph::spill::Spill;
use crossdock_control::load::HANDING_NS_PER_BATCH;
use crossdock_device::thread_time_ns;
use crossdock_engine::{Handler, HandlerCounters, Sink, Verdict};
use crossdock_format::MAX_FIXED_BYTES;
use crossdock_mailbox::{Batch, Selection};
use crossdock_transport::MAX_MESSAGE_BYTES;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The time of one batch in `MEASURED_EVERY` is measured, and that of every batch that is expected to take at least `LONG_NS`. Of the
/// long ones it is the processor time; the others are hardly ever interrupted, and a system call would take as long as they.
const MEASURED_EVERY: u32 = 8;
const LONG_NS: f32 = 100_000.0;
/// For the context's slice, the handler is also timed for every batch of at least `TIMED_RECORDS` records.
const TIMED_RECORDS: usize = 64;
/// The cost of serving a batch beside its handler, in ns; for the slice, which need not be exact.
const BATCH_NS: f32 = HANDING_NS_PER_BATCH as f32;
/// Processor time that a batch may take beyond its budget, in ns: for an interrupt or a page fault.
const GRACE_NS: f32 = 20_000.0;
/// Records with which a node begins, as long as it is not known what it makes of one, or what one takes.
const FIRST_RECORDS: usize = 1;
/// A handler's run has at most this many times the records of the longest one that was measured: the first records may be
/// no measure of the others.
const GROWTH: usize = 4;
/// Steps after which the longest one counts for about a third.
const STEPS: u64 = 16;
/// Records of a run of a handler with state, where it is not known how much it may make of one: what is made beyond the room of its
/// output is kept, up to a bound.
pub(super) const STATE_RECORDS: usize = 256;

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The batch goes on as it is.
    Whole,
    /// The records that go on were made by the handler.
    Made,
    /// The handler panicked.
    Panicked,
}

/// A batch and the handler that is to work on it, taken out of the graph meanwhile.
pub(crate) struct Job {
    pub(crate) node: NodeId,
    batch: Queued,
    /// The records of the batch that it is about: from the first to before the second.
    part: (usize, usize),
    /// Records among them that sampling leaves out.
    left_out: u64,
    handler: Box<dyn Handler>,
    /// The place of its instance, and the format of the records that it makes, by id.
    at: usize,
    output: u64,
    /// The batch's input; of no meaning where it runs because it is due.
    input: usize,
    /// The time, in ns since 1970, where the handler wants it; then the records that it made of that, and their bytes.
    time_ns: Option<u64>,
    made_by_time: (usize, usize),
    /// Whether it goes a step on with a walk over its state.
    walks: bool,
    /// The batches that its output has room for, and the longest record that it may make, in bytes.
    room: usize,
    longest: usize,
    /// How long it may take.
    most: RunTime,
    is_timed: bool,
    /// When it was begun, if what it takes is measured.
    began: Option<Began>,
    /// The counts of the handler before.
    before: HandlerCounters,
    /// The records that joined the session's queue, where the node ends in one.
    sent: Option<Sent>,
}

/// When a job was begun.
struct Began {
    at: Instant,
    /// The thread's processor time then, where it may take long.
    thread_ns: Option<u64>,
}

impl Began {
    fn now(is_long: bool) -> Began {
        Began { at: crossdock_device::now(), thread_ns: is_long.then(thread_time_ns) }
    }

    /// The processor time since, in ns, without the `clock_ns` that asking for it takes; `None` if that is not known, since
    /// it took longer than was expected: others may have had the processor.
    fn took_ns(&self, clock_ns: u64) -> Option<u64> {
        match self.thread_ns {
            Some(began_ns) => Some(thread_time_ns().saturating_sub(began_ns).saturating_sub(clock_ns)),
            None => Some(crossdock_device::elapsed(self.at).as_nanos() as u64).filter(|ns| (*ns as f32) < LONG_NS),
        }
    }
}

impl Job {
    /// Records that it works on.
    pub(crate) fn records(&self) -> u64 {
        (self.part.1 - self.part.0) as u64
    }

    /// Records of the batch that come after them.
    pub(crate) fn records_after(&self) -> u64 {
        (self.batch.len() - self.part.1) as u64
    }

    /// Runs the handler; its output is in the workspace then. Returns the outcome and the time that it took, in ns,
    /// where that was taken.
    pub(crate) fn run(&mut self, ws: &mut Workspace) -> (Outcome, Option<f32>) {
        let share = self.records() as usize * self.batch.payload_bytes() / self.batch.len().max(1);
        ws.builder.begin(share, self.room, self.longest);
        // The end of one window may make all of the state due at once.
        ws.builder.spill.most = MAX_SPILL_BYTES.max(self.handler.max_state_bytes());
        self.measured(ws, |job, selection, ws| match job.time_ns {
            None => process(&mut *job.handler, &job.batch, selection, &mut ws.sink()),
            Some(_) if job.walks => job.walk(ws),
            Some(time_ns) if job.batch.is_empty() => job.make_due(time_ns, ws),
            Some(time_ns) => job.process_at(time_ns, selection, ws),
        })
    }

    /// Has the handler make what is due, one time after the other: as far as its output has room, and within the time of a run.
    fn make_due(&mut self, time_ns: u64, ws: &mut Workspace) -> Outcome {
        let (began, most) = (crossdock_device::now(), Duration::from_nanos(self.most.ns() as u64));
        let (handler, mut at_ns) = (&mut *self.handler, 0);
        while at_ns < time_ns && ws.builder.spill.is_empty() && (at_ns == 0 || crossdock_device::elapsed(began) < most)
        {
            let sink = &mut ws.sink();
            let step = || {
                let next_ns = handler.due_ns().filter(|due_ns| *due_ns > at_ns).unwrap_or(time_ns).min(time_ns);
                (next_ns, handler.advance(next_ns, sink))
            };
            let Ok((next_ns, made)) = catch_unwind(AssertUnwindSafe(step)) else { return Outcome::Panicked };
            at_ns = next_ns;
            self.made_by_time.0 += made;
        }
        self.made_by_time.1 = ws.builder.out_bytes;
        Outcome::Made
    }

    /// Has the handler go a step on with a walk over its state.
    fn walk(&mut self, ws: &mut Workspace) -> Outcome {
        let (handler, sink) = (&mut *self.handler, &mut ws.sink());
        let Ok(made) = catch_unwind(AssertUnwindSafe(|| handler.walk(sink))) else { return Outcome::Panicked };
        self.made_by_time = (made, ws.builder.out_bytes);
        Outcome::Made
    }

    /// Gives the handler the time, and has it work on the batch.
    fn process_at(&mut self, time_ns: u64, selection: &mut Selection, ws: &mut Workspace) -> Outcome {
        let (handler, sink) = (&mut *self.handler, &mut ws.sink());
        let Ok(made) = catch_unwind(AssertUnwindSafe(|| handler.advance(time_ns, sink))) else {
            return Outcome::Panicked;
        };
        self.made_by_time = (made, ws.builder.out_bytes);
        let mut sink = ws.sink();
        match process(handler, &self.batch, selection, &mut sink) {
            // Work that was due goes before it.
            Outcome::Whole if made > 0 => {
                selection.iter().for_each(|index| sink.push(self.batch.record(index)));
                Outcome::Made
            }
            outcome => outcome,
        }
    }

    /// The same for a subscription's query whose output is kept: all of it comes back, and nothing counts as sent.
    pub(super) fn run_aside(&mut self, ws: &mut Workspace) -> ((Outcome, Option<f32>), Spill) {
        // Without room none of it finds a buffer.
        self.room = 0;
        let ran = self.run(ws);
        let mut rows = std::mem::take(&mut ws.builder.spill);
        rows.format = self.output;
        let (no_buffer, too_long) = (ws.builder.no_buffer, ws.builder.too_long);
        self.sent = Some(Sent { outcome: ran.0, records: 0, bytes: rows.bytes.len(), no_buffer, too_long });
        (ran, rows)
    }

    /// The same for a subscription's query; its output is in the session's queue then.
    #[inline]
    pub(super) fn run_to(
        &mut self,
        key: usize,
        egress: &mut impl Egress,
        ws: &mut Workspace,
    ) -> (Outcome, Option<f32>) {
        ws.builder.begin(0, 0, 0);
        self.measured(ws, |job, selection, ws| {
            let Job { handler, batch, output, longest, .. } = job;
            let run = SessionRun { handler: &mut **handler, batch, selection, format: *output, longest: *longest };
            let sent = egress.run(key, run, &mut ws.builder.spill);
            job.sent = Some(sent);
            sent.outcome
        })
    }

    #[inline]
    fn measured(
        &mut self,
        ws: &mut Workspace,
        run: impl FnOnce(&mut Job, &mut Selection, &mut Workspace) -> Outcome,
    ) -> (Outcome, Option<f32>) {
        let before = self.handler.counters();
        let start = self.is_timed.then(crossdock_device::now);
        let mut selection = std::mem::take(&mut ws.selection);
        let outcome = run(self, &mut selection, ws);
        ws.selection = selection;
        let ns = start.map(|start| crossdock_device::elapsed(start).as_nanos() as f32);
        if outcome != Outcome::Panicked {
            self.before = before;
        }
        (outcome, ns)
    }
}

impl Graph {
    /// The next thing to do, for about as long as one run may take. Ends and markers are seen to on the way.
    pub(crate) fn next_job(&mut self, most: RunTime, ws: &mut Workspace) -> Option<Job> {
        loop {
            if let Some((id, mut batch)) = self.ready.pop_front() {
                let stream = batch.stream;
                let at =
                    self.present_node(id).and_then(|node| node.inputs.iter().position(|input| input.stream == stream));
                let is_open = |graph: &Graph, at: usize| {
                    graph.node(id).is_some_and(|node| {
                        let input = &node.inputs[at];
                        let is_next = input.queue.is_empty() && !node.due.has_come(graph.now_ns);
                        is_next && !input.is_held && node.knows(stream, batch.format)
                    })
                };
                match at {
                    Some(at) if is_open(self, at) && !self.is_stalled(id, ws) => {
                        let room = self.room_of(id);
                        if let Some(job) = self.begin(id, (at, Queued::Own(batch), 0), (room, most), ws) {
                            return Some(job);
                        }
                    }
                    _ => {
                        batch.since_ns = self.now_ns;
                        self.enqueue(id, batch, ws);
                    }
                }
                continue;
            }
            let due_goes_first = self.due_goes_first();
            if due_goes_first && let Some(job) = self.next_due(most, ws) {
                return Some(job);
            }
            if let Some(job) = self.next_walk(most, ws) {
                return Some(job);
            }
            let Next { node: id, input, item, done } = match self.next_waiting(ws) {
                Some(next) => next,
                None if self.ready.is_empty() => return if due_goes_first { None } else { self.next_due(most, ws) },
                None => continue,
            };
            match item {
                // With the last of those that it reads, its own stream has ended.
                Item::End(publishers) => {
                    self.end_input(id, input, publishers);
                    let makes = self.present_node(id).and_then(Node::makes);
                    makes.into_iter().for_each(|makes| self.settle_made(makes));
                }
                Item::Publishers(_) => debug_assert!(false, "only edges bring these"),
                Item::Marker(change) => self.take_marker(id, input, change),
                Item::Held(_) => debug_assert!(false, "only what converts for sessions has these"),
                Item::Batch(batch) => {
                    // The rest of one that was begun has waited for its own handler.
                    if done == 0 {
                        self.note_wait(id, batch.since_ns, most);
                    }
                    let room = self.room_of(id);
                    if let Some(job) = self.begin(id, (input, batch, done), (room, most), ws) {
                        return Some(job);
                    }
                }
            }
        }
    }

    /// The context begins to work on a batch that waited for it since then (0: not known).
    #[inline]
    fn note_wait(&mut self, id: NodeId, since_ns: u64, most: RunTime) {
        if since_ns > 0 {
            self.gauges.batch_wait.note(self.now_ns.saturating_sub(since_ns), 1);
        }
        let round_ns = if most == RunTime::Long { self.step_ns * self.here.len() as u64 } else { 0 };
        let waited = (since_ns, self.stalled_ns(id), round_ns);
        self.gauges.delayed.add(u64::from(self.shedder.takes(self.now_ns, waited)));
    }

    /// Batches for which there is room where a node's output goes: in the stream that it makes, or in the queues of the
    /// sessions' nodes for which it converts.
    #[inline]
    pub(super) fn room_of(&mut self, id: NodeId) -> usize {
        match self.present_node(id).map(|node| &node.destination) {
            Some(Destination::Stream(makes)) => {
                let makes = *makes;
                self.room_to_make(id, makes)
            }
            Some(Destination::Convert(end)) => self.room_of_readers(end),
            Some(Destination::Session(_)) | None => 0,
        }
    }

    /// Takes out what is needed to run a node on a batch of an input, or on the part of it that its output has room
    /// for; a handler also on no more than what it has done within the time of a run.
    pub(super) fn begin(
        &mut self,
        id: NodeId,
        (input, batch, done): (usize, Queued, usize),
        (room, most): (usize, RunTime),
        ws: &mut Workspace,
    ) -> Option<Job> {
        let (one_in, room) = (self.shedder.one_in(), room.min(MOST_MADE));
        let mut node = self.lift(id)?;
        self.at_work = Some(AtWork { node: id, records: 0, after: (batch.len() - done) as u64 });
        let runs = match (node.condition, node.inputs.get(input)) {
            (Condition::Failed | Condition::Ending, _) | (_, None) => None,
            (_, Some(Input { stream, .. })) => node.take_handler(*stream, batch.format),
        };
        let longest = runs.as_ref().map_or(0, |(handler, ..)| longest(&**handler, &batch));
        let upto = match &runs {
            Some((handler, ..)) => {
                // Longer records are not taken.
                let fitting = |bytes: usize| Spill::fitting(bytes.min(longest));
                let unknown = if handler.shares_state() { STATE_RECORDS } else { usize::MAX };
                let fitting = handler.most_out_bytes().map_or(unknown, fitting);
                let soon = soon_done(&node, most);
                portion(&node, &batch, done, room, ws).min(done.saturating_add(fitting.min(soon)))
            }
            None => batch.len(),
        };
        self.at_work = Some(AtWork { node: id, records: (upto - done) as u64, after: (batch.len() - upto) as u64 });
        let Some((handler, at, output)) = runs else {
            self.lose_without_handler(node, (batch, done), ws);
            return None;
        };
        self.note_arrival(&node, &batch, (done, upto));
        let left_out = choose(&mut node, one_in, (done, upto), batch.len(), &mut ws.selection);
        let began = begun(&mut node, upto - done);
        let (mut is_timed, mut time_ns) = (began.is_some(), None);
        // Queries and conversions run where the network is served, outside of the slice, and depend on no time.
        if node.makes().is_some() {
            time_ns = handler.wants_time().then(|| self.time_ns());
            is_timed |= upto - done >= TIMED_RECORDS;
            self.gauges.stuck_after_ns.set(node.policy.stuck_after_ns);
            self.gauges.running.set(u64::from(id.0) + 1);
        }
        self.set_node(node);
        let (part, before, sent) = ((done, upto), HandlerCounters::default(), None);
        Some(Job {
            node: id,
            batch,
            part,
            left_out,
            handler,
            at,
            output,
            input,
            time_ns,
            made_by_time: (0, 0),
            walks: false,
            room,
            longest,
            most,
            is_timed,
            began,
            before,
            sent,
        })
    }

    /// The records of a batch from one on are lost at a node that has no handler to run.
    fn lose_without_handler(&mut self, node: Box<Node>, (batch, done): (Queued, usize), ws: &mut Workspace) {
        let (id, why) = (node.id, loss_without_handler(node.condition));
        // Those that still wait as a node ends have not come in.
        if why != Loss::Removed {
            self.note_arrival(&node, &batch, (done, batch.len()));
        }
        node.gauges.lose(why, (batch.len() - done) as u64);
        ws.spares.keep_queued(batch);
        self.set_node(node);
        self.at_work = None;
        // It may have failed just now.
        self.settle_node(id);
    }

    /// Takes out what is needed to run an instance of a node because it is due, or to go a step on with its walk.
    pub(super) fn begin_due(
        &mut self,
        id: NodeId,
        (place, walks): (Option<usize>, bool),
        most: RunTime,
        ws: &mut Workspace,
    ) -> Option<Job> {
        let (time_ns, room) = (self.time_ns(), self.room_of(id).min(MOST_MADE));
        let mut node = self.lift(id)?;
        let taken = place.and_then(|at| {
            let instance = node.instances.get_mut(at)?;
            Some((at, instance.handler.take()?, instance.output))
        });
        if taken.is_some() {
            self.at_work = Some(AtWork { node: id, records: 0, after: 0 });
            self.gauges.stuck_after_ns.set(node.policy.stuck_after_ns);
            self.gauges.running.set(u64::from(id.0) + 1);
        }
        self.set_node(node);
        let (at, handler, output) = taken?;
        let batch = Queued::Own(ws.spares.take());
        let longest = longest(&*handler, &batch);
        ws.selection.select_all(0);
        Some(Job {
            node: id,
            batch,
            part: (0, 0),
            left_out: 0,
            handler,
            at,
            output,
            input: usize::MAX,
            time_ns: Some(time_ns),
            made_by_time: (0, 0),
            walks,
            room,
            longest,
            most,
            is_timed: true,
            began: Some(Began::now(true)),
            before: HandlerCounters::default(),
            sent: None,
        })
    }

    fn note_arrival(&self, node: &Node, batch: &Batch, (from, upto): (usize, usize)) {
        let records = (upto - from) as u64;
        let bytes = if from == 0 { batch.payload_bytes() as u64 } else { 0 };
        node.gauges.records_in.add(records);
        node.gauges.bytes_in.add(bytes);
        if node.makes().is_none() {
            // The time of queries and conversions counts as the network's work at its context: their load is booked at
            // admission.
            return node.gauges.batches_in.add(u64::from(from == 0));
        }
        self.gauges.records_in.add(records);
        self.gauges.bytes_in.add(bytes);
        if from == 0 {
            node.gauges.batches_in.add(1);
            self.gauges.batches.add(1);
        }
    }

    /// Takes in the outcome of a job; returns about how long it took, in ns.
    pub(crate) fn finish(&mut self, mut job: Job, (outcome, ns): (Outcome, Option<f32>), ws: &mut Workspace) -> f32 {
        let Some(mut node) = self.lift(job.node) else {
            ws.discard();
            self.at_work = None;
            return BATCH_NS;
        };
        let is_handler = node.makes().is_some();
        if is_handler {
            self.gauges.running.set(0);
        }
        let records = job.records();
        let expected = node.ns_per_record * records as f32;
        // If it took far longer than it is known to, others may have had the processor meanwhile.
        let mut took = ns.unwrap_or(expected).min(expected.max(LONG_NS));
        if outcome == Outcome::Panicked {
            let id = node.id;
            note_panic(&mut node, job, ws);
            self.set_node(node);
            self.at_work = None;
            self.settle_node(id);
            return took + BATCH_NS;
        }
        let row_errors = node.gauges.note_counts(&job.before, &job.handler.counters());
        if is_handler {
            node.gauges.note_state(&*job.handler);
        }
        if row_errors > 0 {
            node.gauges.note_row_errors(row_errors, &mut *job.handler);
        }
        if job.left_out > 0 {
            node.gauges.lose(Loss::Sampled, job.left_out);
        }
        let (began, most, id, walks) = (job.began.take(), job.most, job.node, job.walks);
        // Whether it ran for its time only, and whether it made nothing then.
        let (wants_time, is_due, made) = (job.time_ns.is_some(), records == 0, job.made_by_time.0 as u64);
        if is_handler && job.part.1 == job.batch.len() && job.batch.since_ns > 0 {
            let since_ns = job.batch.since_ns;
            self.gauges.batch_latency.note((self.now_ns + took as u64).saturating_sub(since_ns), 1);
        }
        self.settle(&mut node, job, outcome == Outcome::Whole, ws);
        let measured_ns = began.as_ref().and_then(|began| began.took_ns(self.clock_ns));
        if !is_due {
            // One that took longer than was expected is measured again, in processor time.
            node.may_be_long = began.is_some() && measured_ns.is_none();
        }
        if let Some(ns) = measured_ns {
            took = took.max(ns as f32 - BATCH_NS);
            if !is_due {
                note_time(&mut node, records, ns, most);
            }
        }
        let took_ns = measured_ns.unwrap_or(expected as u64);
        node.gauges.busy_ns.add(took_ns);
        if is_handler {
            self.gauges.handler_ns.add(took_ns);
            self.step_ns = took_ns.max(self.step_ns - self.step_ns / STEPS);
        }
        if node.policy.limit_ns_per_s < u64::MAX {
            node.use_up(took_ns, self.now_ns);
        }
        self.set_node(node);
        self.at_work = None;
        if wants_time {
            self.note_due(id, records + made == 0 && !walks);
        }
        if walks {
            self.note_walked(id, took as u64);
        }
        took + BATCH_NS
    }

    /// Sends on the result of a run: the batch itself, or the records that were made; what is left of the batch goes
    /// back to its queue.
    fn settle(&mut self, node: &mut Node, job: Job, is_whole: bool, ws: &mut Workspace) {
        let Job { batch, part, handler, at, output, input, made_by_time, sent, .. } = job;
        let records = (part.1 - part.0).max(1);
        let instance = node.instances.get_mut(at).filter(|instance| instance.handler.is_none());
        debug_assert!(instance.is_some(), "a node keeps the instance that it works with");
        if let Some(instance) = instance {
            instance.handler = Some(handler);
        }
        if let Some(sent) = sent {
            node.note_sent(&sent);
            node.note_output((sent.bytes + ws.builder.spill.bytes.len()) as f32 / records as f32);
            keep_spill(node, output, ws);
        } else {
            ws.close();
            if ws.builder.no_buffer + ws.builder.too_long > 0 {
                node.gauges.lose(Loss::NoBuffer, ws.builder.no_buffer);
                node.gauges.lose(Loss::TooLong, ws.builder.too_long);
            }
            if is_whole {
                // From here on a panic is none of the node's: it takes what is handed on.
                self.at_work = None;
                node.note_output(0.0);
                let mut batch = ws.spares.own(batch);
                batch.select_all();
                batch.format = output;
                return self.hand_on(node, batch, ws);
            }
            if part.0 < part.1 {
                let out_bytes = ws.builder.out_bytes - made_by_time.1.min(ws.builder.out_bytes);
                node.note_output(out_bytes as f32 / records as f32);
            }
        }
        self.at_work = None;
        let since_ns = batch.since_ns;
        match part.1 < batch.len() {
            true => node.put_back(input, batch, part.1),
            false => ws.spares.keep_queued(batch),
        }
        if sent.is_none() {
            self.take_made(node, output, since_ns, ws);
        }
    }

    /// Hands on what was made of a batch that arrived at `since_ns`; what found no room waits in the node.
    fn take_made(&mut self, node: &mut Node, output: u64, since_ns: u64, ws: &mut Workspace) {
        let mut made = std::mem::take(&mut ws.builder.made);
        for mut batch in made.drain(..) {
            (batch.format, batch.since_ns) = (output, since_ns);
            self.hand_on(node, batch, ws);
        }
        ws.builder.made = made;
        keep_spill(node, output, ws);
    }

    /// Gives a batch to the readers of the node's stream, or to the sessions' nodes for which it converts.
    fn hand_on(&mut self, node: &mut Node, batch: Batch, ws: &mut Workspace) {
        let (records, bytes) = (batch.len() as u64, batch.payload_bytes() as u64);
        node.gauges.records_out.add(records);
        node.gauges.bytes_out.add(bytes);
        let is_taken = match &node.destination {
            Destination::Stream(makes) => {
                self.gauges.bytes_out.add(bytes);
                self.deliver(*makes, batch, Origin::Node, ws)
            }
            Destination::Convert(end) => {
                self.hand_to_sessions(&end.readers, batch, ws);
                true
            }
            Destination::Session(_) => {
                debug_assert!(false, "a session's node makes no batches");
                false
            }
        };
        if !is_taken {
            node.gauges.lose(Loss::Unclaimed, records);
        }
    }

    /// Sends on output that had found no buffer; whether all of it went.
    #[cold]
    pub(super) fn unspill(&mut self, id: NodeId, ws: &mut Workspace) -> bool {
        let room = self.room_of(id);
        let Some(mut node) = self.lift(id) else { return true };
        if !ws.pool.has_free(node.spill.first_bytes(), 1) {
            self.set_node(node);
            return false;
        }
        ws.builder.begin(PIECE_BYTES, room, MAX_MESSAGE_BYTES);
        while let Some(row) = node.spill.first() {
            ws.sink().push(row);
            if !ws.builder.spill.is_empty() {
                // It found no buffer again.
                ws.builder.spill.clear();
                break;
            }
            node.spill.note_left();
        }
        ws.close();
        let format = match node.spill.is_empty() {
            true => std::mem::take(&mut node.spill.format),
            false => node.spill.format,
        };
        self.take_made(&mut node, format, 0, ws);
        let (is_done, makes) = (node.spill.is_empty(), node.makes());
        self.set_node(node);
        if let Some(makes) = makes.filter(|_| is_done) {
            // It may have been the last of its stream.
            self.settle_made(makes);
        }
        is_done
    }
}

/// The longest record that a handler may make of one of a batch, in bytes; the longest that it can make, where that is known and has
/// a bound.
fn longest(handler: &dyn Handler, batch: &Batch) -> usize {
    let known = handler.most_out_bytes().filter(|bytes| *bytes <= MAX_FIXED_BYTES);
    longest_made(batch).max(known.unwrap_or(0))
}

/// A record that found no buffer waits in the node.
#[inline]
fn keep_spill(node: &mut Node, output: u64, ws: &mut Workspace) {
    if !ws.builder.spill.is_empty() {
        std::mem::swap(&mut node.spill, &mut ws.builder.spill);
        node.spill.format = output;
        ws.builder.spill.clear();
    }
}

/// A handler has panicked. Its output is not handed on, since it may be incomplete; its state is undefined, and goes
/// with it.
#[cold]
fn note_panic(node: &mut Node, job: Job, ws: &mut Workspace) {
    ws.discard();
    let (records, after) = (job.records(), job.records_after());
    let sent = job.sent.map_or(0, |sent| {
        node.gauges.records_out.add(sent.records);
        sent.records
    });
    node.gauges.lose(Loss::Failed, (records + after).saturating_sub(sent));
    node.gauges.records_in.add(after);
    ws.spares.keep_queued(job.batch);
    node.fail();
}

/// Runs a handler on the selected records of a batch: the one place where the product does. The records that pass
/// unchanged go to the sink too, unless all of the batch does.
#[inline]
pub(crate) fn process(
    handler: &mut dyn Handler,
    batch: &Batch,
    selection: &mut Selection,
    sink: &mut impl Sink,
) -> Outcome {
    // The state that a handler leaves behind when it panics is discarded with it.
    match catch_unwind(AssertUnwindSafe(|| handler.process(batch, selection, sink))) {
        Ok(Verdict::Forward | Verdict::HandOn) if selection.is_all() => Outcome::Whole,
        Ok(Verdict::Forward | Verdict::HandOn) => {
            selection.iter().for_each(|index| sink.push(batch.record(index)));
            Outcome::Made
        }
        Ok(Verdict::Emit(_) | Verdict::Hold | Verdict::Drop) => Outcome::Made,
        Err(_) => Outcome::Panicked,
    }
}

/// Up to which record of a batch a node may work now: as far as its output has room and buffers, by what its records
/// made before, and one record at least.
#[inline]
fn portion(node: &Node, batch: &Batch, done: usize, room: usize, ws: &mut Workspace) -> usize {
    let records = batch.len() - done;
    // Not before it has run.
    let Some(out_bytes) = node.out_bytes_per_record else { return done + records.min(FIRST_RECORDS) };
    let batches = (out_bytes * records as f32 / PIECE_BYTES as f32) as usize + 1;
    // The room of a session is also that of its buffers.
    let has_buffers = batches == 1 || node.session().is_some() || ws.pool.has_free(PIECE_BYTES, batches);
    if batches <= room && has_buffers {
        return batch.len();
    }
    let some = (room as f32 * PIECE_BYTES as f32 / out_bytes.max(1.0) / 2.0) as usize;
    done + some.clamp(1, records)
}

/// Records that a handler has done within the time of a run, one at least, and not many more than it was measured on.
/// The time that queries and conversions may take was settled when they were admitted.
#[inline]
fn soon_done(node: &Node, most: RunTime) -> usize {
    if node.makes().is_none() {
        return usize::MAX;
    }
    let known = (node.measured_records as usize).saturating_mul(GROWTH).max(FIRST_RECORDS);
    known.min(((most.ns() / node.ns_per_record.max(f32::MIN_POSITIVE)) as usize).max(1))
}

/// Selects the records of a batch's part that a node's handler sees: all, or one in `n` where the context is behind, as far
/// as the node's policy allows it. Returns how many are left out.
#[inline]
fn choose(node: &mut Node, behind: u32, part: (usize, usize), records: usize, selection: &mut Selection) -> u64 {
    selection.select_range(part.0..part.1, records);
    let one_in = behind.min(node.policy.max_sampling).max(1);
    node.gauges.one_in.set(one_in.into());
    if one_in <= 1 {
        return 0;
    }
    let (from, wanted) = (node.sampled_from as usize, selection.len());
    selection.narrow(|index| (from + index - part.0).is_multiple_of(one_in as usize));
    node.sampled_from = ((from + wanted) % one_in as usize) as u32;
    node.gauges.batches_shed.add(1);
    (wanted - selection.len()) as u64
}

/// Whether what this batch takes is measured: when it is begun, then.
#[inline]
fn begun(node: &mut Node, records: usize) -> Option<Began> {
    let is_long = node.may_be_long || node.ns_per_record * records as f32 >= LONG_NS;
    let is_due = node.until_timed == 0 || records as u64 > node.measured_records;
    // More often at first, when it is not known yet.
    let before_next = || node.gauges.timed_batches.get().min(u64::from(MEASURED_EVERY) - 1) as u32;
    node.until_timed = if is_due { before_next() } else { node.until_timed - 1 };
    (is_due || is_long).then(|| Began::now(is_long))
}

fn note_time(node: &mut Node, records: u64, ns: u64, most: RunTime) {
    node.gauges.time(records, ns);
    let per_record = ns as f32 / records.max(1) as f32;
    // The longest run so far says more than those before.
    let newer = if records > node.measured_records { 1.0 } else { NEWER };
    node.ns_per_record += newer * (per_record - node.ns_per_record);
    node.measured_records = node.measured_records.max(records);
    // On a c-core no record may take longer than a slice.
    let budget_ns = match most {
        RunTime::Slice(slice_ns) => node.policy.budget_ns.min(slice_ns.into()),
        RunTime::Long => node.policy.budget_ns,
    };
    if ns as f32 > budget_ns as f32 * records as f32 + GRACE_NS {
        node.gauges.overruns.add(1);
    }
}

/// Why a node in this condition loses a batch that none of its handlers takes.
fn loss_without_handler(condition: Condition) -> Loss {
    match condition {
        Condition::Failed | Condition::Restarting => Loss::Failed,
        Condition::Ending => Loss::Removed,
        _ => Loss::Unreadable,
    }
}
