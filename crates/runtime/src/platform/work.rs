//! A stage's handler at work: on the context's own thread, or, on a g-core, outside of the table's lock.

use crate::platform::gauges::Loss;
use crate::platform::making::{BatchSink, Rows};
use crate::platform::stage::{Stage, Work};
use crate::platform::table::Table;
use crate::platform::{END, StageId};
use crossdock_control::load::HANDING_NS_PER_BATCH;
use crossdock_engine::{Handler, Sink, Verdict};
use crossdock_mailbox::{Batch, Selection};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// One batch in `TIMED_EVERY` is timed, and every batch of at least `TIMED_RECORDS` records.
const TIMED_EVERY: u32 = 8;
const TIMED_RECORDS: usize = 64;
/// The cost of serving a batch beside its handler, in ns; for the slice, which need not be exact.
const BATCH_NS: f32 = HANDING_NS_PER_BATCH as f32;
/// The weight of a new measurement in the mean.
const NEWER: f32 = 0.25;
/// Time that a batch may take beyond its budget, in ns: for an interrupt or a page fault.
const GRACE_NS: f32 = 20_000.0;

/// The outcome of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It goes on as it is.
    Whole,
    /// The records that go on were made by the handler.
    Made,
    /// The handler panicked.
    Panicked,
}

/// A batch and the handler that is to work on it, taken out of the table meanwhile.
pub(crate) struct Job {
    pub(crate) stage: StageId,
    pub(crate) batch: Batch,
    handler: Box<dyn Handler>,
    input: Option<usize>,
    selection: Selection,
    row_errors: u64,
}

impl Job {
    /// Runs the job; its output goes into `rows`. Returns the outcome and the time that it took, in ns.
    pub(crate) fn run(&mut self, rows: &mut Rows) -> (Outcome, f32) {
        rows.clear();
        let before = self.handler.counters().row_errors;
        let start = Instant::now();
        let outcome = process(&mut *self.handler, &self.batch, &mut self.selection, rows);
        let ns = start.elapsed().as_nanos() as f32;
        if outcome != Outcome::Panicked {
            self.row_errors = self.handler.counters().row_errors.wrapping_sub(before);
        }
        (outcome, ns)
    }
}

impl Table {
    /// Runs a batch through one stage at once; returns the approximate time that it took, in ns.
    pub(super) fn run(&mut self, id: StageId, batch: Batch, input: Option<usize>) -> f32 {
        let Some(mut stage) = self.lift(id) else {
            self.making.keep(batch);
            return 0.0;
        };
        if !stage.knows(batch.format) {
            // The batch waits until there is an instance for its format, and so does the stage that sent it.
            stage.calls.push_back(batch);
            self.put_back(stage);
            return 0.0;
        }
        if batch.format == END && matches!(stage.work, Work::Handler(_)) {
            self.end(&mut stage, batch, input);
            self.put_back(stage);
            return 0.0;
        }
        self.note_arrival(&mut stage, &batch);
        let ns = match stage.work {
            Work::Deliver => self.deliver(&mut stage, batch, input),
            Work::Handler(_) => self.work(&mut stage, batch, input),
        };
        self.put_back(stage);
        ns
    }

    /// A stream has ended: with the last of those that it reads, so has the one that the stage makes.
    #[cold]
    fn end(&mut self, stage: &mut Stage, mut batch: Batch, input: Option<usize>) {
        if !stage.note_end(batch.stream) {
            return self.spend(stage, batch, input);
        }
        batch.stream = stage.makes;
        self.hand_on(stage, batch);
    }

    fn note_arrival(&self, stage: &mut Stage, batch: &Batch) {
        if !stage.ended.is_empty() {
            stage.ended.retain(|ended| *ended != batch.stream);
        }
        let (records, bytes) = (batch.len() as u64, batch.payload_bytes() as u64);
        stage.gauges.records_in.add(records);
        stage.gauges.batches_in.add(1);
        stage.gauges.bytes_in.add(bytes);
        self.gauges.batches.add(1);
        self.gauges.records_in.add(records);
        self.gauges.bytes_in.add(bytes);
    }

    /// A batch for the subscriptions of its stream.
    fn deliver(&mut self, stage: &mut Stage, mut batch: Batch, input: Option<usize>) -> f32 {
        batch.stream = stage.makes;
        stage.gauges.records_out.add(batch.len() as u64);
        // The descriptor stays here; another goes back in its place.
        if let Some(receiver) = input.and_then(|input| stage.inputs.get_mut(input)) {
            receiver.give_back(self.making.spare());
        }
        self.delivered.push_back(batch);
        BATCH_NS
    }

    /// Runs a stage's handler on a batch, and sends the result on.
    fn work(&mut self, stage: &mut Stage, batch: Batch, input: Option<usize>) -> f32 {
        let id = stage.id;
        if stage.has_failed {
            return self.lose(stage, batch, input, Loss::Failed);
        }
        choose(stage, self.behind.one_in(), &batch, &mut self.selection);
        let gauges = Arc::clone(&stage.gauges);
        let times = times_this(stage, batch.len());
        let mut ns = stage.ns_per_record * batch.len() as f32;
        let instance = stage.instance(batch.format);
        let Some((handler, output)) = instance.and_then(|i| i.handler.as_mut().map(|handler| (handler, i.output)))
        else {
            return self.lose(stage, batch, input, Loss::Unreadable);
        };
        self.gauges.running.set(u64::from(id.0) + 1);
        self.making.begin(batch.payload_bytes());
        let before = handler.counters().row_errors;
        let start = times.then(Instant::now);
        let mut maker = BatchSink { making: &mut self.making, pool: &mut self.pool };
        let outcome = process(&mut **handler, &batch, &mut self.selection, &mut maker);
        if let Some(start) = start {
            ns = start.elapsed().as_nanos() as f32;
        }
        self.gauges.running.set(0);
        if outcome == Outcome::Panicked {
            return self.fail(stage, batch, input);
        }
        gauges.row_errors.add(handler.counters().row_errors.wrapping_sub(before));
        if times {
            note_time(stage, batch.len() as u64, ns);
        }
        self.gauges.handler_ns.add(ns as u64 + HANDING_NS_PER_BATCH);
        self.send_on(stage, batch, input, outcome == Outcome::Whole, output);
        ns + BATCH_NS
    }

    /// A handler panicked. Its output from this batch is not handed on, since it may be incomplete. The handler is
    /// taken out, since its state is undefined.
    #[cold]
    fn fail(&mut self, stage: &mut Stage, batch: Batch, input: Option<usize>) -> f32 {
        self.making.close();
        let made = std::mem::take(&mut self.making.made);
        made.into_iter().for_each(|batch| self.making.keep(batch));
        if let Some(instance) = stage.instance(batch.format) {
            instance.handler = None;
        }
        stage.note_fault();
        self.lose(stage, batch, input, Loss::Failed)
    }

    /// A batch without results.
    #[cold]
    fn lose(&mut self, stage: &mut Stage, batch: Batch, input: Option<usize>, why: Loss) -> f32 {
        stage.gauges.lose(why, batch.len() as u64);
        self.spend(stage, batch, input);
        BATCH_NS
    }

    /// The descriptor of a batch that is done with goes back to where it came from.
    #[inline]
    fn spend(&mut self, stage: &mut Stage, mut batch: Batch, input: Option<usize>) {
        match input.and_then(|input| stage.inputs.get_mut(input)) {
            Some(receiver) => {
                batch.clear();
                receiver.give_back(batch);
            }
            None => self.making.keep(batch),
        }
    }

    /// Sends on the result of a batch: the batch itself, or the records that were made.
    fn send_on(&mut self, stage: &mut Stage, mut batch: Batch, input: Option<usize>, is_whole: bool, output: u64) {
        self.making.close();
        if stage.left_out > 0 {
            // Now that the others were worked on: where that fails all of the batch is lost by that.
            stage.gauges.lose(Loss::Sampled, std::mem::take(&mut stage.left_out).into());
        }
        if self.making.no_buffer + self.making.too_long > 0 {
            stage.gauges.lose(Loss::NoBuffer, self.making.no_buffer);
            stage.gauges.lose(Loss::TooLong, self.making.too_long);
        }
        if is_whole {
            batch.select_all();
            (batch.stream, batch.format) = (stage.makes, output);
            if let Some(receiver) = input.and_then(|input| stage.inputs.get_mut(input)) {
                receiver.give_back(self.making.spare());
            }
            return self.hand_on(stage, batch);
        }
        self.spend(stage, batch, input);
        let mut made = std::mem::take(&mut self.making.made);
        for mut batch in made.drain(..) {
            (batch.stream, batch.format) = (stage.makes, output);
            self.hand_on(stage, batch);
        }
        self.making.made = made;
    }

    /// The next thing to do, to be done outside of the table's lock and then brought to [`Table::finish`]. Now it is
    /// `now_ns`.
    pub(crate) fn begin(&mut self, now_ns: u64) -> Option<Job> {
        self.now_ns = now_ns;
        loop {
            let (id, batch, input) = match self.ready.pop_front() {
                Some((id, batch)) => (id, batch, None),
                // Here handlers may take long, and to wait for one is ordinary: the balance sees whether a g-core is
                // near its limit.
                None => self.next_waiting()?,
            };
            let Some(mut stage) = self.lift(id) else {
                self.making.keep(batch);
                continue;
            };
            if !stage.knows(batch.format) {
                stage.calls.push_back(batch);
                self.put_back(stage);
                continue;
            }
            if batch.format == END {
                self.end(&mut stage, batch, input);
                self.put_back(stage);
                continue;
            }
            self.note_arrival(&mut stage, &batch);
            let why = if stage.has_failed { Loss::Failed } else { Loss::Unreadable };
            let takes = !stage.has_failed;
            let instance = stage.instance(batch.format).filter(|_| takes);
            let handler = instance.and_then(|instance| instance.handler.take());
            let job = match handler {
                Some(handler) => {
                    let mut selection = std::mem::take(&mut self.selection);
                    choose(&mut stage, self.behind.one_in(), &batch, &mut selection);
                    self.gauges.running.set(u64::from(id.0) + 1);
                    Some(Job { stage: id, batch, handler, input, selection, row_errors: 0 })
                }
                None => {
                    self.lose(&mut stage, batch, input, why);
                    None
                }
            };
            self.put_back(stage);
            if job.is_some() {
                return job;
            }
        }
    }

    /// Takes in the outcome of a job that took `ns`, at the time `now_ns`.
    pub(crate) fn finish(&mut self, job: Job, (outcome, ns): (Outcome, f32), rows: &Rows, now_ns: u64) {
        self.now_ns = now_ns;
        let Job { stage: id, batch, handler, input, selection, row_errors } = job;
        self.selection = selection;
        self.gauges.running.set(0);
        let Some(mut stage) = self.lift(id) else { return self.making.keep(batch) };
        if outcome == Outcome::Panicked {
            self.making.begin(0);
            self.fail(&mut stage, batch, input);
            return self.put_back(stage);
        }
        stage.gauges.row_errors.add(row_errors);
        note_time(&mut stage, batch.len() as u64, ns);
        self.gauges.handler_ns.add(ns as u64 + HANDING_NS_PER_BATCH);
        let mut output = 0;
        if let Some(instance) = stage.instance(batch.format) {
            output = instance.output;
            instance.handler = Some(handler);
        }
        self.making.begin(batch.payload_bytes());
        let mut maker = BatchSink { making: &mut self.making, pool: &mut self.pool };
        rows.iter().for_each(|row| maker.push(row));
        self.making.no_buffer += rows.refused;
        self.send_on(&mut stage, batch, input, outcome == Outcome::Whole, output);
        self.put_back(stage);
    }

    /// A handler did not return from a batch of `records` records: the batch, the handler and its state are lost.
    pub(crate) fn give_up(&mut self, id: StageId, records: u64) {
        self.gauges.running.set(0);
        if let Some(stage) = self.stage_mut(id) {
            stage.note_fault();
            stage.gauges.lose(Loss::Failed, records);
        }
    }
}

/// Runs a handler on the selected records of a batch.
#[inline]
fn process(handler: &mut dyn Handler, batch: &Batch, selection: &mut Selection, sink: &mut impl Sink) -> Outcome {
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

/// Selects the records of a batch that a stage's handler sees: all, or one in `n`. `n` is the stage's own sampling, or
/// that of a context that is behind (one in `behind`), as far as the stage's policy allows it.
#[inline]
fn choose(stage: &mut Stage, behind: u32, batch: &Batch, selection: &mut Selection) {
    selection.select_all(batch.len());
    stage.left_out = 0;
    let one_in = stage.terms.one_in.max(behind.min(stage.terms.max_sampling));
    if one_in > 1 {
        let from = stage.chosen_from;
        selection.narrow(|index| (from as usize + index).is_multiple_of(one_in as usize));
        stage.chosen_from = ((from as usize + batch.len()) % one_in as usize) as u32;
        stage.left_out = (batch.len() - selection.len()) as u32;
        if one_in > stage.terms.one_in {
            stage.gauges.thinned.add(1);
        }
    }
}

/// Whether this batch is timed.
#[inline]
fn times_this(stage: &mut Stage, records: usize) -> bool {
    if records >= TIMED_RECORDS {
        return true;
    }
    let times = stage.until_timed == 0;
    stage.until_timed = if times { TIMED_EVERY - 1 } else { stage.until_timed - 1 };
    times
}

fn note_time(stage: &mut Stage, records: u64, ns: f32) {
    stage.gauges.time(records, ns as u64);
    let per_record = ns / records.max(1) as f32;
    stage.ns_per_record += NEWER * (per_record - stage.ns_per_record);
    if ns > stage.terms.budget_ns as f32 * records as f32 + GRACE_NS {
        stage.gauges.overruns.add(1);
    }
}
