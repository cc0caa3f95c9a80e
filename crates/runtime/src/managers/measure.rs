//! Estimates a handler's cost on records of its stream before it is admitted, and collects the records that it makes.
//! The managers do not wait for that: a request whose handlers are not known yet is answered once they are measured.

use crate::estimate::estimate;
use crate::graph::run::{self, process};
use crate::managers::watch::MAX_ABANDONED;
use crossdock_control::load::Cost;
use crossdock_device::{BackgroundThread, thread_time_ns};
use crossdock_engine::{Handler, HandlerProgram, Natives, Sink, Verdict};
use crossdock_format::{Format, FormatId, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lifetime of an estimate, for the same program on the same format in batches of about the same length: the contents
/// of the records may change.
const FRESH: Duration = Duration::from_secs(10);
/// An estimate also expires when the records' mean length has changed by more than this part of it.
const CHANGED: f64 = 0.25;
/// Estimates that are remembered.
const MAX_REMEMBERED: usize = 1024;
/// Bytes of a handler's output that are kept, as a sample for the handlers that read it, and the processor time
/// that a handler gets for that, in ns.
const MADE_BYTES: usize = 16 << 10;
const MADE_WITHIN_NS: u64 = 5_000_000;

/// The estimate of a handler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) cost: Cost,
    /// Records that it makes of the sample.
    pub(crate) made: Vec<u8>,
}

/// The key of an estimate: a program, a format, and the number of records in a batch, rounded to a power of two.
type Key = (String, FormatId, u32);

/// What was measured for one request: each program for each format, or why it could not be.
pub(crate) type Outcomes = BTreeMap<(String, FormatId), Result<Outcome, String>>;

/// The estimate of a handler, or why there is none.
#[derive(Debug)]
pub(crate) struct Measured {
    key: Key,
    outcome: Result<Outcome, String>,
}

/// Estimates handlers, and keeps the results for a while: a handler that is swapped repeatedly need not be run each
/// time.
#[derive(Debug)]
pub(crate) struct CostModel {
    remembered: BTreeMap<Key, (Outcome, Instant)>,
    /// How long a handler may take for the sample that has no setting of its own.
    patience: Duration,
    abandoned: Abandoned,
    /// What was measured for the request that is being answered.
    outcomes: Outcomes,
    /// What is to be measured for it.
    missing: Vec<Measurement>,
}

/// Threads that were left behind in handlers that do not return.
#[derive(Clone, Debug, Default)]
struct Abandoned(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Abandoned {
    /// Those that have not returned.
    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads
    }
}

impl CostModel {
    pub(crate) fn new(patience: Duration) -> CostModel {
        CostModel {
            remembered: BTreeMap::new(),
            patience,
            abandoned: Abandoned::default(),
            outcomes: Outcomes::new(),
            missing: Vec::new(),
        }
    }

    /// A request is answered, for which this was measured already.
    pub(crate) fn begin(&mut self, outcomes: Outcomes) {
        self.outcomes = outcomes;
        self.missing.clear();
    }

    /// Whether the request can only be answered once something more is measured.
    pub(crate) fn is_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    /// What was measured for the request, and what is to be measured.
    pub(crate) fn end(&mut self) -> (Outcomes, Measurements) {
        let (list, abandoned) = (std::mem::take(&mut self.missing), self.abandoned.clone());
        (std::mem::take(&mut self.outcomes), Measurements { list, abandoned })
    }

    /// Remembers what was measured, and adds it to what a request has.
    pub(crate) fn take(&mut self, measured: Vec<Measured>, outcomes: &mut Outcomes) {
        for Measured { key, outcome } in measured {
            outcomes.insert((key.0.clone(), key.1), outcome.clone());
            if self.remembered.len() >= MAX_REMEMBERED {
                self.remembered.retain(|_, (_, at)| at.elapsed() < FRESH);
            }
            if let (Ok(outcome), true) = (outcome, self.remembered.len() < MAX_REMEMBERED) {
                self.remembered.insert(key, (outcome, Instant::now()));
            }
        }
    }

    /// The cost of a program for records of a format, estimated on a sample; made-up records are used if it is empty.
    /// The program may take as long for it as its handler may be without progress.
    ///
    /// # Errors
    /// It panicked, or did not return; or it [is missing](CostModel::is_missing).
    pub(crate) fn measure(
        &mut self,
        (program, stuck_after_ms): (&HandlerProgram, Option<u64>),
        natives: &Natives,
        format: &Format,
        sample: &[u8],
        records_per_batch: f64,
    ) -> Result<Outcome, String> {
        let key = (format!("{program:?}"), format.id(), records_per_batch.max(1.0).log2().round() as u32);
        if let Some(outcome) = self.outcomes.get(&(key.0.clone(), key.1)) {
            return outcome.clone();
        }
        if let Some((outcome, at)) = self.remembered.get(&key)
            && at.elapsed() < FRESH
            && outcome.cost.is_provisional == sample.is_empty()
            && (sample.is_empty() || is_alike(outcome.cost.bytes_in_per_message, mean_bytes(format, sample)))
        {
            return Ok(outcome.clone());
        }
        if self.missing.iter().all(|missing| missing.key != key) {
            self.missing.push(Measurement {
                key,
                program: program.clone(),
                natives: natives.clone(),
                format: format.clone(),
                sample: if sample.is_empty() { made_up(format) } else { sample.to_vec() },
                records_per_batch,
                is_provisional: sample.is_empty(),
                patience: stuck_after_ms.map_or(self.patience, Duration::from_millis),
            });
        }
        Err("it is not measured yet".to_owned())
    }
}

/// What is to be measured for one request.
#[derive(Debug)]
pub(crate) struct Measurements {
    list: Vec<Measurement>,
    abandoned: Abandoned,
}

impl Measurements {
    /// Measures one after the other, on this thread's time.
    pub(crate) fn run(self) -> Vec<Measured> {
        let Measurements { list, abandoned } = self;
        let measured = |measurement: Measurement| {
            let key = measurement.key.clone();
            Measured { key, outcome: measurement.aside(&abandoned) }
        };
        list.into_iter().map(measured).collect()
    }

    /// Says of all that they cannot be measured.
    pub(crate) fn refuse(self, why: &str) -> Vec<Measured> {
        self.list.into_iter().map(|of| Measured { key: of.key, outcome: Err(why.to_owned()) }).collect()
    }
}

/// Waits for what a thread that gives way has found out, and sees that it gets on. The time in which others leave it no
/// processor is not its own.
fn waited<T>(
    wait: &oneshot::Receiver<T>,
    gives_way: oneshot::Receiver<BackgroundThread>,
    patience: Duration,
) -> Option<T> {
    let mut gives_way = gives_way.recv().ok()?;
    let mut left = patience;
    loop {
        match wait.recv_timeout(gives_way.look_every()) {
            Ok(outcome) => return Some(outcome),
            Err(oneshot::RecvTimeoutError::Disconnected) => return None,
            Err(oneshot::RecvTimeoutError::Timeout) => left = left.checked_sub(gives_way.look())?,
        }
    }
}

/// Bytes of a sample's records, on average.
fn mean_bytes(format: &Format, sample: &[u8]) -> f64 {
    let records = format.check_records(sample, |_, _| ()).unwrap_or(0);
    sample.len() as f64 / records.max(1) as f64
}

/// Whether the mean length of records is about unchanged.
fn is_alike(before: f64, now: f64) -> bool {
    (now - before).abs() <= CHANGED * before
}

/// Runs a function; the state that a panic leaves behind is discarded.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|_| "it panicked at records of the stream, on which it was measured".to_owned())
}

/// A handler that is to be measured.
#[derive(Debug)]
struct Measurement {
    key: Key,
    program: HandlerProgram,
    natives: Natives,
    format: Format,
    sample: Vec<u8>,
    records_per_batch: f64,
    is_provisional: bool,
    /// How long it may take.
    patience: Duration,
}

impl Measurement {
    /// Runs it on a thread of its own, which gives way to contexts and is left behind if it does not come back.
    fn aside(self, abandoned: &Abandoned) -> Result<Outcome, String> {
        if abandoned.threads().len() >= MAX_ABANDONED {
            return Err(format!(
                "it cannot be measured: {MAX_ABANDONED} handlers have not returned from being measured, and no more are tried \
                 until one does"
            ));
        }
        let patience = self.patience;
        let (done, wait) = oneshot::channel();
        let (begun, gives_way) = oneshot::channel();
        let run = move || {
            let _ = begun.send(BackgroundThread::begin());
            drop(done.send(caught(|| self.run())));
        };
        let thread = std::thread::Builder::new().name("measuring".into()).spawn(run);
        let thread = thread.map_err(|error| format!("it cannot be measured: {error}"))?;
        match waited(&wait, gives_way, patience) {
            Some(outcome) => {
                // It has nothing more to do.
                let _ = thread.join();
                outcome
            }
            None => {
                abandoned.threads().push(thread);
                let ms = patience.as_millis();
                Err(format!(
                    "it did not return within {ms} ms (`stuck_after_ms`) from records of the stream, on which it was measured"
                ))
            }
        }
    }

    fn run(&self) -> Outcome {
        let unknown = Cost {
            messages_per_batch: self.records_per_batch,
            messages_out_per_message: 1.0,
            is_provisional: true,
            ..Cost::default()
        };
        let handler = || self.program.make(&self.natives, &self.format).map(|made| made.handler);
        let (Some(batch), Ok(mut first)) = (batch(&self.format, &self.sample), handler()) else {
            return Outcome { cost: unknown, made: Vec::new() };
        };
        let made = made_of(&mut *first, &batch);
        // It was made before, so it can be again.
        let mut again = || handler().unwrap_or_else(|_| Box::new(Nothing));
        let cost = estimate(&mut again, &self.format, &self.sample, self.records_per_batch);
        let Some(mut cost) = cost else { return Outcome { cost: unknown, made } };
        if self.is_provisional {
            (cost.is_provisional, cost.sample_messages) = (true, 0);
        }
        Outcome { cost, made }
    }
}

/// A handler that does nothing.
struct Nothing;

impl Handler for Nothing {
    fn process(&mut self, _: &Batch, _: &mut Selection, _: &mut dyn Sink) -> Verdict {
        Verdict::Drop
    }

    fn counters(&self) -> crossdock_engine::HandlerCounters {
        crossdock_engine::HandlerCounters::default()
    }
}

/// The records that a handler makes of a batch, run piece by piece for a while: of a slow one a few are enough.
fn made_of(handler: &mut dyn Handler, batch: &Batch) -> Vec<u8> {
    let began_ns = thread_time_ns();
    let is_over = || thread_time_ns() - began_ns > MADE_WITHIN_NS;
    let (mut gathered, mut rows) = (Vec::new(), Vec::<Vec<u8>>::new());
    let (mut from, mut piece) = (0, 1);
    while from < batch.len() && gathered.len() < MADE_BYTES && !is_over() {
        let mut selection = Selection::all(batch.len());
        selection.narrow(|index| (from..from + piece).contains(&index));
        match process(handler, batch, &mut selection, &mut rows) {
            run::Outcome::Whole => rows.extend(selection.iter().map(|index| batch.record(index).to_vec())),
            run::Outcome::Made => {}
            // The measurement ends with it.
            run::Outcome::Panicked => std::panic::resume_unwind(Box::new("a handler that is measured")),
        }
        for row in rows.drain(..) {
            if gathered.len() + row.len() <= MADE_BYTES {
                gathered.extend_from_slice(&row);
            }
        }
        (from, piece) = (from + piece, piece * 2);
    }
    gathered
}

/// A record of a format with some value in each field that must have one; nothing if none can be made.
fn made_up(format: &Format) -> Vec<u8> {
    let mut builder = RecordBuilder::new(format);
    builder.clear();
    for (index, field) in format.fields().iter().enumerate() {
        let values = [
            Value::Uint(1),
            Value::Int(1),
            Value::Float(1.0),
            Value::Bool(true),
            Value::Text(b"x"),
            Value::Bytes(b"x"),
            Value::Timestamp(1),
            Value::Decimal { unscaled: 1, scale: 0 },
            Value::Enum { number: 0, symbol: None },
        ];
        if !field.nullable {
            // The first that the field takes.
            let is_set = values.into_iter().any(|value| builder.set(index, value).is_ok());
            if !is_set && builder.begin_list(index).is_ok() {
                let _ = builder.end_list();
            }
        }
    }
    builder.finish().map(<[u8]>::to_vec).unwrap_or_default()
}

/// A batch of records that lie one behind the other.
fn batch(format: &Format, records: &[u8]) -> Option<Batch> {
    let mut pool = Pool::new(PoolConfig { classes: vec![(records.len().max(1), 1)] }).ok()?;
    let mut buffer = pool.alloc(records.len())?;
    buffer.get_mut(..records.len())?.copy_from_slice(records);
    let mut batch = Batch::new();
    batch.format = format.id().0;
    batch.push_buffer(buffer.freeze()).ok()?;
    let spans = &mut batch.records;
    let found = format.check_records(records, |start, len| spans.push(Span { slice: 0, start, len })).ok()?;
    let slice = Slice { buffer: 0, start: 0, len: records.len() as u32, records: found as u32 };
    batch.push_slice(slice).ok()?;
    batch.select_all();
    (found > 0).then_some(batch)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crossdock_engine::NativeKind;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// What a request learns that has been answered when all is measured.
    fn measured(
        costs: &mut CostModel,
        program: (&HandlerProgram, Option<u64>),
        natives: &Natives,
        (format, sample): (&Format, &[u8]),
        records_per_batch: f64,
    ) -> Result<Outcome, String> {
        let mut outcomes = Outcomes::new();
        loop {
            costs.begin(outcomes);
            let outcome = costs.measure(program, natives, format, sample, records_per_batch);
            if !costs.is_missing() {
                return outcome;
            }
            let (known, missing) = costs.end();
            outcomes = known;
            costs.take(missing.run(), &mut outcomes);
        }
    }

    #[test]
    fn handlers_that_do_not_return_are_measured_up_to_a_bound_until_they_return() {
        let let_go = Arc::new(AtomicBool::new(false));
        let mut natives = Natives::built_in();
        let seen = Arc::clone(&let_go);
        natives.add(NativeKind::new("stuck", "does not return", &[], move |format, _| {
            while !seen.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            Ok((Box::new(Nothing), format.clone()))
        }));
        let mut costs = CostModel::new(Duration::ZERO);
        let (program, format) = (HandlerProgram::native("stuck"), Format::parse_schema("n i64").unwrap());
        let of = |limit_ms| (&program, limit_ms);
        for _ in 0..MAX_ABANDONED {
            let error = measured(&mut costs, of(None), &natives, (&format, &[]), 1.0).unwrap_err();
            assert!(error.contains("did not return within 0 ms"), "{error}");
        }
        let error = measured(&mut costs, of(None), &natives, (&format, &[]), 1.0).unwrap_err();
        assert!(error.contains("16 handlers have not returned"), "{error}");
        let_go.store(true, Ordering::Release);
        while !costs.abandoned.threads().is_empty() {
            std::thread::yield_now();
        }
        // A handler's own limit goes before that of all.
        assert!(measured(&mut costs, of(Some(60_000)), &natives, (&format, &[]), 1.0).is_ok());
    }

    #[test]
    fn of_a_slow_handler_a_few_records_are_run() {
        let mut costs = CostModel::new(Duration::from_secs(60));
        let format = Format::parse_schema("n i64").unwrap();
        let record = made_up(&format);
        let sample = record.repeat((48 << 10) / record.len());
        let program = HandlerProgram::native("work").with("ns", "1000000");
        let outcome = measured(&mut costs, (&program, None), &Natives::built_in(), (&format, &sample), 1000.0).unwrap();
        assert!(outcome.cost.ns_per_message > 100_000.0, "{outcome:?}");
        let records = outcome.made.len() / record.len();
        assert!((1..200).contains(&records), "{records}");
        // All of what a fast one makes is there, up to the bound.
        let pass = HandlerProgram::native("pass");
        let made = measured(&mut costs, (&pass, None), &Natives::built_in(), (&format, &sample), 1000.0).unwrap().made;
        assert_eq!(made.len(), MADE_BYTES / record.len() * record.len());
    }

    #[test]
    fn what_was_measured_counts_for_batches_and_records_of_about_the_same_length() {
        let mut costs = CostModel::new(Duration::from_secs(60));
        let format = Format::parse_schema("t string").unwrap();
        let sample = |len: usize| {
            let mut builder = RecordBuilder::new(&format);
            (0..50)
                .flat_map(|_| {
                    builder.clear();
                    builder.set_text(0, "x".repeat(len)).unwrap();
                    builder.finish().unwrap().to_vec()
                })
                .collect::<Vec<u8>>()
        };
        let (program, natives) = (HandlerProgram::native("pass"), Natives::built_in());
        let mut counts = [(100, 8.0), (110, 10.0), (100, 64.0), (400, 8.0), (110, 8.0)]
            .map(|(len, batch)| {
                let before = costs.remembered.values().map(|(_, at)| *at).collect::<Vec<_>>();
                measured(&mut costs, (&program, None), &natives, (&format, &sample(len)), batch).unwrap();
                // Whether it was measured.
                costs.remembered.values().map(|(_, at)| *at).collect::<Vec<_>>() != before
            })
            .into_iter();
        let mut is_measured = || counts.next().unwrap();
        assert!(is_measured() && !is_measured(), "a little longer is the same");
        assert!(is_measured(), "batches eight times as long");
        assert!(is_measured() && is_measured(), "records four times as long, and back");
    }
}
