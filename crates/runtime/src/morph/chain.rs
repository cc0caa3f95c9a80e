//! Runs a conversion chain as a handler: batches in, records of the accepted format out. Fixed costs are per batch; once
//! warm, nothing is allocated.

use crate::graph::bounds::PIECE_BYTES;
use crate::graph::build::{Workspace, longest_made};
use crate::graph::gauges::Gauge;
use crate::graph::node::Instance;
use crate::graph::run::{Outcome, process};
use crate::morph::compile::Part;
use crossdock_control::conversions::ConversionStep;
use crossdock_engine::{Handler, HandlerCounters, RowErrorCounts, SelectHandler, Sink, Verdict};
use crossdock_format::Format;
use crossdock_format::convert::{ConvertError, ConvertProblem, InPlace, Plan};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use crossdock_transport::MAX_MESSAGE_BYTES;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Records that a plan is given at a time.
const CHUNK_RECORDS: usize = 64;
/// Bytes of converted records from which on a part's output goes on to the next part.
const ENOUGH_BYTES: usize = PIECE_BYTES / 2;
/// Buffers between the parts, for batches and for records that are longer than a packet: each part has one at a time, and a chain of
/// as many steps as it can have, each a query with a plan behind it, has half of these. Only what is used is ever touched.
const BUFFERS: usize = 32;

/// The memory between the parts of the chain that runs. All chains of a context have the same; no two of them run at
/// once, so none waits for the lock.
pub(crate) type Between = Arc<Mutex<Pool>>;

/// The memory that lies between the parts of the chain that runs.
///
/// # Errors
/// The system's.
pub(crate) fn pool() -> std::io::Result<Pool> {
    Pool::new(PoolConfig { classes: vec![(64 << 10, BUFFERS), (MAX_MESSAGE_BYTES, BUFFERS)] })
}

/// One chain of a stream, compiled: what its handlers are made from, and what they count together.
pub(crate) struct ConversionChain {
    /// Its number among those of the stream, which nodes know it by.
    pub(crate) number: u64,
    /// The format that comes in.
    pub(crate) from: Format,
    /// The accepted format.
    pub(crate) to: Format,
    /// The format of the records that it makes: the accepted one without the fields that no query reads.
    pub(crate) made: Format,
    /// A flag for each field of the accepted format: whether a query reads it; empty where all are made.
    pub(crate) reads: Box<[bool]>,
    /// The route, as it was planned.
    pub(crate) steps: Vec<ConversionStep>,
    /// Its estimated cost for a record, moved bytes included, in ps.
    pub(crate) weight: u64,
    /// Its compiled parts.
    pub(crate) parts: Vec<Part>,
    /// Its counters. A chain that makes other fields by the same steps goes on with them.
    pub(crate) tally: Arc<Tally>,
}

/// The counters of a chain.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Records that came in.
    pub(crate) records_in: Gauge,
    /// Records that went out.
    pub(crate) records_out: Gauge,
    /// Records that could not be made: a value has no place in the next format, or an expression failed.
    pub(crate) refused: Gauge,
    /// Records that grew longer than a packet can be.
    pub(crate) too_long: Gauge,
    /// Those of both that the context has counted.
    counted: [Gauge; 2],
    /// Why the latest of them was refused, where that is known.
    why: Mutex<Option<Why>>,
}

/// Why a record was refused.
#[derive(Debug)]
enum Why {
    /// By a plan.
    Plan(ConvertError),
    /// By a handler, which says it in words.
    Handler(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Plan(error) => error.fmt(f),
            Why::Handler(text) => f.write_str(text),
        }
    }
}

impl Tally {
    fn lost(&self) -> u64 {
        self.refused.get() + self.too_long.get()
    }

    /// Records refused, and those that were too long, since the context has asked last.
    pub(crate) fn count(&self) -> [u64; 2] {
        let now = [self.refused.get(), self.too_long.get()];
        std::array::from_fn(|at| {
            let more = now[at] - self.counted[at].get();
            self.counted[at].set(now[at]);
            more
        })
    }

    /// Why the latest record was refused, in words.
    pub(crate) fn why(&self) -> Option<String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ToString::to_string)
    }
}

impl ConversionChain {
    /// A handler that runs it; with parts of no encoding there is always one.
    pub(crate) fn instance(&self, between: &Between) -> Option<Instance> {
        let handler = Converter::new(&self.parts, Arc::clone(&self.tally), Arc::clone(between))?;
        Some(Instance {
            stream: None,
            format: self.from.id().0,
            handler: Some(Box::new(handler)),
            output: self.made.id().0,
        })
    }

    /// Whether it is the chain of these steps that makes these fields.
    pub(crate) fn is_as(&self, from: &Format, steps: &[ConversionStep], reads: &[bool]) -> bool {
        self.is_alike(from, steps) && *self.reads == *reads
    }

    /// Whether it is a chain of these steps, whatever fields it makes.
    pub(crate) fn is_alike(&self, from: &Format, steps: &[ConversionStep]) -> bool {
        self.from == *from && self.steps == steps
    }
}

/// A part at work.
struct Stage {
    work: Work,
    /// The conversion of a query's rows in place.
    then: Option<InPlace>,
    /// The format that it makes.
    to: Format,
    /// Rows that it made and that have not gone on.
    out: Vec<u8>,
    /// The same as they go on.
    made: Batch,
    selection: Selection,
}

enum Work {
    /// The plan for records that stay within a packet, and for those that are made of long ones.
    Plan([Plan; 2]),
    Handler(Box<dyn Handler>),
}

/// A chain at work.
struct Converter {
    stages: Vec<Stage>,
    /// Whether no stage makes several records of one.
    makes_one_of_one: bool,
    tally: Arc<Tally>,
    between: Between,
    counters: HandlerCounters,
    errors: Errors,
}

/// The records for which an expression of a query failed.
#[derive(Default)]
struct Errors {
    /// Since they were last asked for, by why.
    counts: RowErrorCounts,
    /// The first of all, in words.
    first: Option<String>,
}

impl Errors {
    /// Takes in what a part's handler has counted since the last time.
    #[cold]
    fn take(&mut self, handler: &mut dyn Handler) {
        let counts = handler.take_row_errors();
        if self.first.is_none() && counts.iter().any(|count| *count > 0) {
            self.first = handler.refusal();
        }
        self.counts.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
    }
}

impl Converter {
    /// A chain of parts; each makes what the next one reads.
    fn new(parts: &[Part], tally: Arc<Tally>, between: Between) -> Option<Converter> {
        let mut stages: Vec<Stage> = Vec::with_capacity(parts.len());
        let makes_one_of_one = !parts.iter().any(|part| matches!(part, Part::Messages(_)));
        for part in parts {
            // A query's rows are its own: what has room there needs no stage and no other memory.
            if let Part::Plan(plan) = part
                && let Some(Stage { work: Work::Handler(_), then: then @ None, to, .. }) = stages.last_mut()
                && let Some(in_place) = plan.in_place()
            {
                (*then, *to) = (Some(in_place), plan.to().clone());
                continue;
            }
            let work = match part {
                // A plan refuses what comes within 8 bytes of its bound.
                Part::Plan(plan) => Work::Plan([plan.within(PIECE_BYTES), plan.within(MAX_MESSAGE_BYTES + 8)]),
                Part::Select(program) => Work::Handler(Box::new(SelectHandler::new((**program).clone()))),
                // Made once before, when the conversion was registered: it can be.
                Part::Messages(messages) => Work::Handler(messages.handler().ok()?),
            };
            let (to, out, made, selection) = (part.to().clone(), Vec::new(), Batch::new(), Selection::default());
            stages.push(Stage { work, then: None, to, out, made, selection });
        }
        let (counters, errors) = (HandlerCounters::default(), Errors::default());
        Some(Converter { stages, makes_one_of_one, tally, between, counters, errors })
    }
}

impl Handler for Converter {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        let records = selection.len() as u64;
        self.tally.records_in.add(records);
        let lost = self.tally.lost();
        let (tally, between, errors) = (&self.tally, &self.between, &mut self.errors);
        let mut output = Output { tally, between, errors, sink: out, made: 0, why: None };
        run(&mut self.stages, batch, selection, &mut output);
        let Output { made, why, .. } = output;
        if why.is_some() {
            *self.tally.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
        }
        self.tally.records_out.add(made as u64);
        self.counters.records_in += records;
        self.counters.passed += made as u64;
        self.counters.row_errors += self.tally.lost() - lost;
        Verdict::emit(made)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn refusal(&self) -> Option<String> {
        self.errors.first.clone()
    }

    fn take_row_errors(&mut self) -> RowErrorCounts {
        std::mem::take(&mut self.errors.counts)
    }

    fn most_out_bytes(&self) -> Option<usize> {
        // One record becomes one, but that a message may hold several. A long one may become as long.
        self.makes_one_of_one.then_some(MAX_MESSAGE_BYTES)
    }
}

/// The common parts of all stages of a chain.
struct Output<'a> {
    tally: &'a Tally,
    between: &'a Mutex<Pool>,
    errors: &'a mut Errors,
    sink: &'a mut dyn Sink,
    /// Records that went out.
    made: usize,
    /// Why the latest record was refused, if that is known.
    why: Option<Why>,
}

impl Output<'_> {
    fn refuse(&mut self, error: ConvertError) {
        match error.problem {
            ConvertProblem::RecordTooLong => self.tally.too_long.add(1),
            _ => self.tally.refused.add(1),
        }
        self.why = Some(Why::Plan(error));
    }
}

/// Runs records of a batch through the remaining stages, and gives the result to the sink.
fn run(stages: &mut [Stage], batch: &Batch, selection: &mut Selection, output: &mut Output<'_>) {
    let Some((stage, rest)) = stages.split_first_mut() else { return debug_assert!(false, "a chain has a part") };
    let Stage { work, then, to, out, made, selection: next } = stage;
    let longest = longest_made(batch);
    let mut hand_on = HandOn { to, made, next, longest, rest, output };
    out.clear();
    match work {
        Work::Plan([short, long]) => {
            // Records that fit a piece are checked in chunks; records of a foreign layout may be longer, and so may those that are
            // made of long ones: they are checked one by one.
            let plan = if longest > PIECE_BYTES { long } else { short };
            let is_checked_alone = plan.to().is_foreign() || longest > PIECE_BYTES;
            let records = if is_checked_alone { 1 } else { CHUNK_RECORDS };
            let mut indexes = selection.iter();
            for _ in 0..selection.len().div_ceil(records) {
                let chunk = indexes.by_ref().take(records).map(|index| batch.record(index));
                plan.run_all(chunk, out, |_, error| hand_on.output.refuse(error));
                if out.len() >= ENOUGH_BYTES {
                    hand_on.all(out);
                }
            }
        }
        Work::Handler(handler) => {
            let errors = handler.counters().row_errors;
            let mut rows = Rows { out, then: then.as_ref(), hand_on: &mut hand_on };
            match process(&mut **handler, batch, selection, &mut rows) {
                Outcome::Made => {}
                Outcome::Whole => (0..batch.len()).for_each(|index| rows.push(batch.record(index))),
                // A flaw of the daemon. The node is to fail, whose batch it is.
                Outcome::Panicked => std::panic::resume_unwind(Box::new("a part of a chain has panicked")),
            }
            let errors = handler.counters().row_errors - errors;
            hand_on.output.tally.refused.add(errors);
            if errors > 0 {
                hand_on.output.errors.take(&mut **handler);
                if let Some(text) = handler.refusal() {
                    hand_on.output.why = Some(Why::Handler(text));
                }
            }
        }
    }
    hand_on.all(out);
}

/// The rows of a query, gathered until there are enough to hand on.
struct Rows<'a, 'b, 'c> {
    out: &'a mut Vec<u8>,
    then: Option<&'a InPlace>,
    hand_on: &'a mut HandOn<'b, 'c>,
}

impl Sink for Rows<'_, '_, '_> {
    #[inline]
    fn push(&mut self, record: &[u8]) {
        if self.out.len() + record.len() > PIECE_BYTES {
            self.hand_on.all(self.out);
        }
        let start = self.out.len();
        self.out.extend_from_slice(record);
        // The row is as it is to be.
        let (Some(then), Some(row)) = (self.then, self.out.get_mut(start..)) else { return };
        match then.run(row) {
            Ok(len) => self.out.truncate(start + len),
            Err(error) => {
                self.out.truncate(start);
                self.hand_on.output.refuse(error);
            }
        }
    }
}

/// Hands records from one stage on to the following ones, or out.
struct HandOn<'a, 'b> {
    to: &'a Format,
    made: &'a mut Batch,
    next: &'a mut Selection,
    /// The longest record that goes on, in bytes: one that is longer than a packet is made of such a one only.
    longest: usize,
    rest: &'a mut [Stage],
    output: &'a mut Output<'b>,
}

impl HandOn<'_, '_> {
    /// Hands on all that was made so far.
    fn all(&mut self, out: &mut Vec<u8>) {
        let mut left = &out[..];
        while let Some(first) = self.to.record_len(left) {
            if first > self.longest {
                self.output.tally.too_long.add(1);
                left = left.get(first..).unwrap_or_default();
                continue;
            }
            if self.rest.is_empty() {
                self.output.sink.push(left.get(..first).unwrap_or_default());
                self.output.made += 1;
                left = left.get(first..).unwrap_or_default();
                continue;
            }
            let mut pool = self.output.between.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = fill(self.made, &mut pool, left, self.to.id().0, |rows| self.to.record_len(rows));
            drop(pool);
            if taken == 0 {
                // There are as many buffers as a chain can have stages.
                debug_assert!(false, "a stage has a buffer");
                self.output.tally.refused.add(1);
                left = left.get(first..).unwrap_or_default();
                continue;
            }
            self.next.select_all(self.made.len());
            run(self.rest, self.made, self.next, self.output);
            self.made.clear();
            left = left.get(taken..).unwrap_or_default();
        }
        out.clear();
    }
}

/// A chain run beside the core, to see what it takes and what comes of it.
pub(crate) struct Trial {
    handler: Box<dyn Handler>,
    workspace: Workspace,
    selection: Selection,
}

impl Trial {
    /// `None` where there is no memory for it.
    pub(crate) fn new(chain: &ConversionChain) -> Option<Trial> {
        let handler = chain.instance(&Arc::new(Mutex::new(pool().ok()?)))?.handler?;
        let workspace = Workspace::new(Pool::new(PoolConfig { classes: vec![(64 << 10, 2 * BUFFERS)] }).ok()?);
        Some(Trial { handler, workspace, selection: Selection::default() })
    }

    /// A batch of records, as many of them as fit one.
    pub(crate) fn batch(&mut self, records: &[u8], format: &Format) -> Batch {
        let mut batch = Batch::new();
        let len_of = |bytes: &[u8]| format.record_len(bytes);
        fill(&mut batch, &mut self.workspace.pool, records, format.id().0, len_of);
        batch
    }

    /// Runs it on all records of a batch, into batches.
    pub(crate) fn run(&mut self, batch: &Batch) {
        let Trial { handler, workspace, selection } = self;
        workspace.discard();
        workspace.builder.begin(batch.payload_bytes(), BUFFERS, PIECE_BYTES);
        selection.select_all(batch.len());
        process(&mut **handler, batch, selection, &mut workspace.sink());
        workspace.close();
    }

    /// The output of the last run, back to back.
    pub(crate) fn made(&self) -> Vec<u8> {
        let batches = self.workspace.builder.made.iter();
        batches.flat_map(|batch| (0..batch.slices.len()).flat_map(|at| batch.slice(at))).copied().collect()
    }
}

/// Makes a batch of whole records at the beginning of `rows`, as many as fit one piece, or a longer one; how many bytes they take. How
/// long a record is, `len_of` says.
fn fill(
    batch: &mut Batch,
    pool: &mut Pool,
    rows: &[u8],
    format: u64,
    len_of: impl Fn(&[u8]) -> Option<usize>,
) -> usize {
    batch.clear();
    batch.format = format;
    let mut end = 0;
    while let Some(len) = rows.get(end..).and_then(&len_of)
        && (end == 0 || end + len <= PIECE_BYTES)
        && end + len <= rows.len()
    {
        batch.records.push(Span { slice: 0, start: end as u32, len: len as u32 });
        end += len;
    }
    let slice = Slice { buffer: 0, start: 0, len: end as u32, records: batch.records.len() as u32 };
    let filled = pool.alloc(end).is_some_and(|mut buffer| {
        buffer[..end].copy_from_slice(&rows[..end]);
        batch.push_buffer(buffer.freeze()).is_ok() && batch.push_slice(slice).is_ok()
    });
    if !filled {
        // No record without its bytes.
        batch.clear();
        return 0;
    }
    batch.select_all();
    end
}
