//! Compiles handlers, estimates their cost on records of their streams before they are admitted, and collects the records that
//! they make. The managers do not wait for that: a request whose handlers are not known yet is answered once they are.

use crate::estimate::estimate;
use crate::graph::run::{self, process};
use crate::managers::deployed::Decided;
use crate::managers::watch::MAX_ABANDONED;
use crossdock_control::load::Cost;
use crossdock_device::{BackgroundThread, CpuTime, ThreadNumber, thread_time_ns};
use crossdock_engine::{
    Handler, HandlerForm, HandlerProgram, HandlerSource, Made, MakeError, Natives, Parameters, Sink, Verdict,
};
use crossdock_format::{Format, FormatId, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use std::collections::BTreeMap;
use std::fmt;
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
/// How often it is seen whether a program that is being compiled has used up its time.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// The estimate of a handler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) cost: Cost,
    /// Records that it makes of the sample.
    pub(crate) made: Vec<u8>,
}

/// The key of an estimate: a program, a format, and the number of records in a batch, rounded to a power of two.
type Key = (String, FormatId, u32);

/// The findings for one request.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// The estimate of each program for each format, or why there is none.
    costs: BTreeMap<(String, FormatId), Result<Outcome, String>>,
    /// The handlers that were made of them, each for the handler of a name; or why the program does not fit the format.
    made: BTreeMap<(String, String, FormatId), Result<MadeHandler, String>>,
}

/// A handler that was made, until it is taken.
struct MadeHandler {
    facts: Facts,
    handler: Box<dyn Handler>,
}

impl fmt::Debug for MadeHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(f)
    }
}

/// The managers' facts of a handler that was made.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) output: Format,
    pub(crate) form: HandlerForm,
    pub(crate) is_metered: bool,
    pub(crate) parameters: Parameters,
    /// The kind of its state, if it has one.
    pub(crate) state: Option<String>,
}

/// A handler's program for a format, and what it is measured on.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) program: &'a HandlerProgram,
    /// How long it may take for that, where its handler has a setting of its own.
    pub(crate) stuck_after_ms: Option<u64>,
    pub(crate) natives: &'a Natives,
    /// For a query with state: the formats that decide its rows.
    pub(crate) decided: Option<&'a Decided>,
    /// The stream, and the format of its records.
    pub(crate) stream: &'a str,
    pub(crate) format: &'a Format,
    /// Records of its stream; made-up ones are used if there are none.
    pub(crate) sample: &'a [u8],
    pub(crate) records_per_batch: f64,
}

impl Job<'_> {
    fn key(&self) -> Key {
        let batch = self.records_per_batch.max(1.0).log2().round() as u32;
        (self.program_text(), self.format.id(), batch)
    }

    /// A text that is the same for what does the same.
    fn program_text(&self) -> String {
        let mut text = format!("{:?}", self.program);
        if let Some(decided) = self.decided {
            text.push_str(&format!(" of {:?}", self.stream));
            decided.iter().for_each(|(stream, format)| text.push_str(&format!(" {stream:?} {}", format.id())));
        }
        text
    }
}

/// The findings of a thread for a program and a format.
#[derive(Debug)]
pub(crate) struct Measured {
    key: Key,
    /// A handler for each of these names.
    made: Vec<(String, Result<MadeHandler, String>)>,
    /// The estimate, or why nothing could be found out; not present if only handlers were wanted, or the program does not fit.
    outcome: Option<Result<Outcome, String>>,
}

/// Compiles and estimates handlers, and keeps the estimates for a while: a handler that is swapped repeatedly need not be run
/// each time.
#[derive(Debug)]
pub(crate) struct CostModel {
    remembered: BTreeMap<Key, (Outcome, Instant)>,
    /// How long a handler may take for the sample that has no setting of its own.
    patience: Duration,
    abandoned: Abandoned,
    /// The findings for the request that is being answered.
    outcomes: Outcomes,
    /// The missing findings for it.
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
            outcomes: Outcomes::default(),
            missing: Vec::new(),
        }
    }

    /// A request is answered, for which this was found out already.
    pub(crate) fn begin(&mut self, outcomes: Outcomes) {
        self.outcomes = outcomes;
        self.missing.clear();
    }

    /// Whether the request can only be answered once something more is compiled or measured.
    pub(crate) fn is_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    /// The findings for the request, and the missing ones.
    pub(crate) fn end(&mut self) -> (Outcomes, Measurements) {
        let (list, abandoned) = (std::mem::take(&mut self.missing), self.abandoned.clone());
        (std::mem::take(&mut self.outcomes), Measurements { list, abandoned })
    }

    /// Remembers what was measured, and adds all that was found out to what a request has.
    pub(crate) fn take(&mut self, measured: Vec<Measured>, outcomes: &mut Outcomes) {
        for Measured { key, made, outcome } in measured {
            for (name, made) in made {
                outcomes.made.insert((name, key.0.clone(), key.1), made);
            }
            // It was only made.
            let Some(outcome) = outcome else { continue };
            outcomes.costs.insert((key.0.clone(), key.1), outcome.clone());
            if self.remembered.len() >= MAX_REMEMBERED {
                self.remembered.retain(|_, (_, at)| crossdock_device::elapsed(*at) < FRESH);
            }
            if let (Ok(outcome), true) = (outcome, self.remembered.len() < MAX_REMEMBERED) {
                self.remembered.insert(key, (outcome, crossdock_device::now()));
            }
        }
    }

    /// A handler of a program for the handler `name`, and the cost of a record; or why the program does not fit the format.
    ///
    /// # Errors
    /// It panicked, or did not return; or it [is missing](CostModel::is_missing).
    pub(crate) fn compile(&mut self, name: &str, job: Job<'_>) -> Result<Result<(Facts, Outcome), String>, String> {
        let facts = match self.made(name, job) {
            Ok(Err(why)) => return Ok(Err(why)),
            Ok(Ok(facts)) => Ok(facts),
            Err(why) => Err(why),
        };
        // If both are missing, both are found out by one thread.
        let outcome = self.measure(job);
        Ok(Ok((facts?, outcome?)))
    }

    /// A handler of a program for the handler `name`; or why the program does not fit the format.
    ///
    /// # Errors
    /// As [`CostModel::compile`].
    pub(crate) fn made(&mut self, name: &str, job: Job<'_>) -> Result<Result<Facts, String>, String> {
        let key = job.key();
        let known = self.outcomes.made.get(&(name.to_owned(), key.0.clone(), key.1));
        if let Some(known) = known {
            return Ok(known.as_ref().map(|made| made.facts.clone()).map_err(String::clone));
        }
        // One that did not return is not tried again.
        if let Some(Err(why)) = self.outcomes.costs.get(&(key.0.clone(), key.1)) {
            return Err(why.clone());
        }
        let missing = self.missing(key, job);
        if !missing.names.iter().any(|known| known == name) {
            missing.names.push(name.to_owned());
        }
        Err("it is not compiled yet".to_owned())
    }

    /// Takes a handler that [was made](CostModel::made) for the handler `name`.
    pub(crate) fn take_handler(&mut self, name: &str, job: &Job<'_>) -> Option<Box<dyn Handler>> {
        let made = self.outcomes.made.remove(&(name.to_owned(), job.program_text(), job.format.id()));
        debug_assert!(made.is_some(), "a handler is made before it is taken, and taken once");
        made?.ok().map(|made| made.handler)
    }

    /// Whether a handler that was made for the handler `name` takes over state of a kind.
    pub(crate) fn takes_state(&self, name: &str, job: &Job<'_>, kind: &str) -> bool {
        let made = self.outcomes.made.get(&(name.to_owned(), job.program_text(), job.format.id()));
        matches!(made, Some(Ok(made)) if made.handler.takes_state(kind))
    }

    /// The cost of a program for records of a format, estimated on a sample. The program may take as long for it as its handler
    /// may be without progress.
    ///
    /// # Errors
    /// It panicked, or did not return; or it [is missing](CostModel::is_missing).
    pub(crate) fn measure(&mut self, job: Job<'_>) -> Result<Outcome, String> {
        let (key, Job { format, sample, .. }) = (job.key(), job);
        if let Some(outcome) = self.outcomes.costs.get(&(key.0.clone(), key.1)) {
            return outcome.clone();
        }
        if let Some((outcome, at)) = self.remembered.get(&key)
            && crossdock_device::elapsed(*at) < FRESH
            && outcome.cost.is_provisional == sample.is_empty()
            && (sample.is_empty() || is_alike(outcome.cost.bytes_in_per_message, mean_bytes(format, sample)))
        {
            return Ok(outcome.clone());
        }
        let missing = self.missing(key, job);
        missing.on.get_or_insert_with(|| if sample.is_empty() { made_up(format) } else { sample.to_vec() });
        Err("it is not measured yet".to_owned())
    }

    /// The missing finding for a program and a format.
    fn missing(&mut self, key: Key, job: Job<'_>) -> &mut Measurement {
        let at = self.missing.iter().position(|missing| missing.key == key).unwrap_or(self.missing.len());
        if at == self.missing.len() {
            self.missing.push(Measurement {
                key,
                program: job.program.clone(),
                natives: job.natives.clone(),
                of: job.decided.map(|decided| (decided.clone(), job.stream.to_owned())),
                format: job.format.clone(),
                names: Vec::new(),
                on: None,
                records_per_batch: job.records_per_batch,
                is_provisional: job.sample.is_empty(),
                patience: job.stuck_after_ms.map_or(self.patience, Duration::from_millis),
            });
        }
        &mut self.missing[at]
    }
}

/// The programs to be compiled and measured for one request.
#[derive(Debug)]
pub(crate) struct Measurements {
    list: Vec<Measurement>,
    abandoned: Abandoned,
}

impl Measurements {
    /// Compiles and measures one after the other, on this thread's time.
    pub(crate) fn run(self) -> Vec<Measured> {
        let Measurements { list, abandoned } = self;
        list.into_iter().map(|measurement| measurement.aside(&abandoned)).collect()
    }

    /// Says of all that they cannot be compiled or measured.
    pub(crate) fn refuse(self, why: &str) -> Vec<Measured> {
        self.list.into_iter().map(|of| Measured::failed(of.key, why.to_owned())).collect()
    }
}

impl Measured {
    fn failed(key: Key, why: String) -> Measured {
        Measured { key, made: Vec::new(), outcome: Some(Err(why)) }
    }
}

/// Waits for what a thread finds out, for at most `patience` of the time that `look` reports: that of the thread since it was last
/// asked. The time in which others leave it no processor is not its own.
fn waited<T>(
    wait: &oneshot::Receiver<T>,
    patience: &mut Duration,
    look_every: Duration,
    mut look: impl FnMut() -> Duration,
) -> Option<T> {
    loop {
        match wait.recv_timeout(look_every) {
            Ok(outcome) => return Some(outcome),
            Err(oneshot::RecvTimeoutError::Disconnected) => return None,
            Err(oneshot::RecvTimeoutError::Timeout) => *patience = patience.checked_sub(look())?,
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
        .map_err(|_| "it panicked while it was measured on records of the stream".to_owned())
}

/// A program that is to be compiled for a format, or measured, or both.
#[derive(Debug)]
struct Measurement {
    key: Key,
    program: HandlerProgram,
    natives: Natives,
    /// For a query with state: the formats that decide its rows, and the stream of the records.
    of: Option<(Decided, String)>,
    format: Format,
    /// The handlers that it is to be made for, once for each.
    names: Vec<String>,
    /// The records that it is to be measured on, if it is.
    on: Option<Vec<u8>>,
    records_per_batch: f64,
    is_provisional: bool,
    /// How long it may take.
    patience: Duration,
}

impl Measurement {
    /// Runs it on a thread of its own, which is left behind if it does not come back; it gives way to contexts while it measures.
    fn aside(self, abandoned: &Abandoned) -> Measured {
        let (key, patience) = (self.key.clone(), self.patience);
        if self.on.is_none() && matches!(self.program.source, HandlerSource::Sql(_)) {
            // The compilation of a query returns.
            return Measured { key, made: self.make_all(), outcome: None };
        }
        #[cfg(test)]
        if crossdock_device::simulated::is_active() {
            let made = self.make_all();
            let on = self.on.as_deref().filter(|_| !made.iter().any(|(_, made)| made.is_err()));
            let outcome = on.map(|on| caught(|| self.run(on)));
            return Measured { key, made, outcome };
        }
        // A program that is only compiled has returned before.
        if self.on.is_some() && abandoned.threads().len() >= MAX_ABANDONED {
            let why = format!(
                "it cannot be measured: {MAX_ABANDONED} handlers have not returned from their measurement, and no \
                 other is measured until one returns"
            );
            return Measured::failed(key, why);
        }
        let (begun, thread_number) = oneshot::channel();
        let (compiled, wait_compiled) = oneshot::channel();
        let (measuring, gives_way) = oneshot::channel();
        let (done, wait_done) = oneshot::channel();
        let run = move || {
            drop(begun.send(ThreadNumber::of_this_thread()));
            let made = self.make_all();
            let on = self.on.as_deref().filter(|_| !made.iter().any(|(_, made)| made.is_err()));
            drop(compiled.send((made, on.is_some())));
            if let Some(on) = on {
                drop(measuring.send(BackgroundThread::begin()));
                drop(done.send(caught(|| self.run(on))));
            }
        };
        let thread = match std::thread::Builder::new().name("measuring".into()).spawn(run) {
            Ok(thread) => thread,
            Err(error) => return Measured::failed(key, format!("it cannot be measured: {error}")),
        };
        let mut left = patience;
        let found = || {
            let mut time = CpuTime::of(thread_number.recv().ok()?);
            let (made, is_measured) = waited(&wait_compiled, &mut left, LOOK_EVERY, || time.since_last())?;
            if !is_measured {
                return Some((made, None));
            }
            let mut gives_way = gives_way.recv().ok()?;
            let look_every = gives_way.look_every();
            Some((made, Some(waited(&wait_done, &mut left, look_every, || gives_way.look())?)))
        };
        match found() {
            Some((made, outcome)) => {
                // It has nothing more to do.
                let _ = thread.join();
                Measured { key, made, outcome }
            }
            None => {
                abandoned.threads().push(thread);
                let ms = patience.as_millis();
                let why = format!(
                    "it did not return within {ms} ms (`stuck_after_ms`) when it was compiled and measured on records of the stream"
                );
                Measured::failed(key, why)
            }
        }
    }

    /// Makes a handler for each name that wants one.
    fn make_all(&self) -> Vec<(String, Result<MadeHandler, String>)> {
        self.names.iter().map(|name| (name.clone(), self.make())).collect()
    }

    fn made(&self) -> Result<Made, MakeError> {
        match &self.of {
            Some((decided, stream)) => {
                self.program.make_stateful((decided, self.natives.tables()), stream, &self.format)
            }
            None => self.program.make(&self.natives, &self.format),
        }
    }

    /// Makes a handler. A panic in a user's own kind is caught.
    fn make(&self) -> Result<MadeHandler, String> {
        let made = catch_unwind(AssertUnwindSafe(|| {
            let made = self.made()?;
            let state = made.handler.state_kind().map(str::to_owned);
            Ok((made, state))
        }));
        let made = made.map_err(|_| "it panicked when it was created".to_owned())?;
        let (made, state) = made.map_err(|error: MakeError| error.to_string())?;
        let Made { handler, output, form, is_metered, parameters } = made;
        Ok(MadeHandler { facts: Facts { output, form, is_metered, parameters, state }, handler })
    }

    fn run(&self, sample: &[u8]) -> Outcome {
        let unknown = Cost {
            messages_per_batch: self.records_per_batch,
            messages_out_per_message: 1.0,
            is_provisional: true,
            ..Cost::default()
        };
        let handler = || self.made().map(|made| made.handler);
        // There are no records, or no handler for this format.
        let (Some(batch), Ok(mut first)) = (batch(&self.format, sample), handler()) else {
            return Outcome { cost: unknown, made: Vec::new() };
        };
        let made = made_of(&mut *first, &batch);
        // It was made before, so it can be again.
        let mut again = || handler().unwrap_or_else(|_| Box::new(Nothing));
        let cost = estimate(&mut again, &self.format, sample, self.records_per_batch);
        // It panicked, or the sample has no records.
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
        let mut selection = Selection::default();
        selection.select_range(from..from + piece, batch.len());
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

    /// The answer to a request when all is measured.
    fn measured(
        costs: &mut CostModel,
        program: (&HandlerProgram, Option<u64>),
        natives: &Natives,
        (format, sample): (&Format, &[u8]),
        records_per_batch: f64,
    ) -> Result<Outcome, String> {
        let mut outcomes = Outcomes::default();
        let (program, stuck_after_ms) = program;
        let (decided, stream) = (None, "s");
        let job = Job { program, stuck_after_ms, natives, decided, stream, format, sample, records_per_batch };
        loop {
            costs.begin(outcomes);
            let outcome = costs.measure(job);
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
    fn measurements_count_for_batches_and_records_of_about_the_same_length() {
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
