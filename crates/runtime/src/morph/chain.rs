//! Runs a conversion chain: batches in, batches of the accepted format out. Fixed costs are per batch; once warm,
//! nothing is allocated.

use crate::graph::build::PIECE_BYTES;
use crate::graph::run::{Outcome, process};
use crate::morph::compile::Part;
use crossdock_control::conversions::Step;
use crossdock_engine::{Handler, SelectHandler, Sink};
use crossdock_format::Format;
use crossdock_format::convert::{ConvertError, ConvertProblem, InPlace, Plan};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use std::ops::AddAssign;

/// Records that a plan is given at a time.
const CHUNK_RECORDS: usize = 64;
/// Bytes of converted records from which on a part's output goes on to the next part.
const ENOUGH_BYTES: usize = PIECE_BYTES / 2;
/// Buffers between the parts: each has one at a time, and a chain of as many steps as it can have, each a query with a
/// plan behind it, has half of these.
const BUFFERS: usize = 32;

/// The memory that lies between the parts of the chain that runs.
///
/// # Errors
/// The system's.
pub(crate) fn pool() -> std::io::Result<Pool> {
    Pool::new(PoolConfig { classes: vec![(64 << 10, BUFFERS)] })
}

/// One chain of a stream, compiled.
pub(crate) struct ChainRun {
    /// The format that comes in.
    pub(crate) from: Format,
    /// The accepted format.
    pub(crate) to: Format,
    /// The format of the records that it makes: the accepted one without the fields that no query reads.
    pub(crate) made: Format,
    /// A flag for each field of the accepted format: whether a query reads it; empty where all are made.
    pub(crate) reads: Box<[bool]>,
    /// The route, as it was planned.
    pub(crate) steps: Vec<Step>,
    /// Its estimated cost for a record, moved bytes included, in ps.
    pub(crate) weight: u64,
    /// Its compiled parts.
    pub(crate) parts: Vec<Part>,
    stages: Vec<Stage>,
    /// Its counters.
    pub(crate) tally: Tally,
}

/// The counters of a chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Records that came in.
    pub(crate) records_in: u64,
    /// Records that went out.
    pub(crate) records_out: u64,
    /// Records that could not be made: a value has no place in the next format, or an expression failed.
    pub(crate) refused: u64,
    /// Records that grew longer than a packet can be.
    pub(crate) too_long: u64,
    /// Why the latest of them was refused, where a plan did.
    pub(crate) why: Option<ConvertError>,
}

impl Tally {
    fn refuse(&mut self, error: ConvertError) {
        match error.problem {
            ConvertProblem::RecordTooLong => self.too_long += 1,
            _ => self.refused += 1,
        }
        self.why = Some(error);
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.why = other.why.or(self.why.take());
        self.records_in += other.records_in;
        self.records_out += other.records_out;
        self.refused += other.refused;
        self.too_long += other.too_long;
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
    Plan(Plan),
    Handler(Box<dyn Handler + Send>),
    /// Its handler has panicked.
    Failed,
}

impl ChainRun {
    /// A chain of parts, each of which makes what the next one reads.
    pub(crate) fn new(from: &Format, to: &Format, steps: Vec<Step>, weight: u64, parts: Vec<Part>) -> Option<ChainRun> {
        let mut stages: Vec<Stage> = Vec::with_capacity(parts.len());
        for part in &parts {
            // A query's rows are its own: what has room there needs no stage and no other memory.
            if let Part::Plan(plan) = part
                && let Some(Stage { work: Work::Handler(_), then: then @ None, to, .. }) = stages.last_mut()
                && let Some(in_place) = plan.in_place()
            {
                (*then, *to) = (Some(in_place), plan.to().clone());
                continue;
            }
            let work = match part {
                Part::Plan(plan) => Work::Plan(plan.within(PIECE_BYTES)),
                Part::Select(program) => Work::Handler(Box::new(SelectHandler::new((**program).clone()))),
                // Made once before, when the conversion was registered: it can be.
                Part::Messages(messages) => Work::Handler(messages.handler().ok()?),
            };
            let (to, out, made, selection) = (part.to().clone(), Vec::new(), Batch::new(), Selection::default());
            stages.push(Stage { work, then: None, to, out, made, selection });
        }
        let made = parts.last().map_or(to, Part::to).clone();
        let (from, to, tally) = (from.clone(), to.clone(), Tally::default());
        let reads = Box::default();
        Some(ChainRun { from, to, made, reads, steps, weight, parts, stages, tally })
    }

    /// Whether it is the chain of these steps that makes these fields.
    pub(crate) fn is_as(&self, from: &Format, steps: &[Step], reads: &[bool]) -> bool {
        self.from == *from && self.steps == steps && *self.reads == *reads
    }

    /// Converts all records of a batch, and delivers them in one batch or several. Returns the counts.
    pub(crate) fn run(&mut self, pool: &mut Pool, batch: &Batch, deliver: &mut dyn FnMut(&Batch)) -> Tally {
        let mut tally = Tally { records_in: batch.len() as u64, ..Tally::default() };
        let mut counted = |batch: &Batch, tally: &mut Tally| {
            tally.records_out += batch.len() as u64;
            deliver(batch);
        };
        run(&mut self.stages, pool, batch, &mut tally, &mut counted);
        self.tally += tally.clone();
        tally
    }
}

/// The consumer of the chain's batches.
type Deliver<'a> = &'a mut dyn FnMut(&Batch, &mut Tally);

/// Runs a batch through the remaining stages, and delivers the result.
fn run(stages: &mut [Stage], pool: &mut Pool, batch: &Batch, tally: &mut Tally, deliver: Deliver<'_>) {
    let Some((stage, rest)) = stages.split_first_mut() else { return deliver(batch, tally) };
    let Stage { work, then, to, out, made, selection } = stage;
    let mut hand_on = HandOn { to, made, rest, pool, tally, deliver };
    out.clear();
    match work {
        Work::Plan(plan) => {
            // Records that fit a piece are checked in chunks; records of a foreign layout may be longer and are checked
            // one by one.
            let records = if plan.to().is_foreign() { 1 } else { CHUNK_RECORDS };
            for start in (0..batch.len()).step_by(records) {
                let chunk = start..(start + records).min(batch.len());
                let tally = &mut *hand_on.tally;
                plan.run_all(chunk.map(|index| batch.record(index)), out, |_, error| tally.refuse(error));
                if out.len() >= ENOUGH_BYTES {
                    hand_on.all(out);
                }
            }
        }
        Work::Handler(handler) => {
            let errors = handler.counters().row_errors;
            selection.select_all(batch.len());
            let mut rows = Rows { out, then: then.as_ref(), hand_on: &mut hand_on };
            match process(&mut **handler, batch, selection, &mut rows) {
                Outcome::Whole | Outcome::Made => {
                    hand_on.tally.refused += handler.counters().row_errors - errors;
                }
                Outcome::Panicked => {
                    // A flaw of the daemon: nothing more is converted by it, and nobody else notices.
                    hand_on.tally.refused += batch.len() as u64;
                    out.clear();
                    *work = Work::Failed;
                }
            }
        }
        Work::Failed => hand_on.tally.refused += batch.len() as u64,
    }
    hand_on.all(out);
}

/// The rows of a query, gathered until there are enough to hand on.
struct Rows<'a, 'b> {
    out: &'a mut Vec<u8>,
    then: Option<&'a InPlace>,
    hand_on: &'a mut HandOn<'b>,
}

impl Sink for Rows<'_, '_> {
    #[inline]
    fn push(&mut self, record: &[u8]) {
        if self.out.len() + record.len() > PIECE_BYTES {
            self.hand_on.all(self.out);
        }
        let start = self.out.len();
        self.out.extend_from_slice(record);
        let (Some(then), Some(row)) = (self.then, self.out.get_mut(start..)) else { return };
        match then.run(row) {
            Ok(len) => self.out.truncate(start + len),
            Err(error) => {
                self.out.truncate(start);
                self.hand_on.tally.refuse(error);
            }
        }
    }
}

/// Hands records from one stage on to the following ones.
struct HandOn<'a> {
    to: &'a Format,
    made: &'a mut Batch,
    rest: &'a mut [Stage],
    pool: &'a mut Pool,
    tally: &'a mut Tally,
    deliver: Deliver<'a>,
}

impl HandOn<'_> {
    /// Hands on all that was made so far.
    fn all(&mut self, out: &mut Vec<u8>) {
        let mut left = &out[..];
        while let Some(first) = self.to.record_len(left) {
            if first > PIECE_BYTES {
                self.tally.too_long += 1;
                left = left.get(first..).unwrap_or_default();
                continue;
            }
            let taken = fill(self.made, self.pool, left, self.to.id().0, |rows| self.to.record_len(rows));
            if taken == 0 {
                // No buffer: there are as many as a chain has stages, so this does not happen; it would be counted.
                self.tally.refused += 1;
                left = left.get(first..).unwrap_or_default();
                continue;
            }
            run(self.rest, self.pool, self.made, self.tally, self.deliver);
            self.made.clear();
            left = left.get(taken..).unwrap_or_default();
        }
        out.clear();
    }
}

/// Makes a batch of whole records at the beginning of `rows`, as many as fit one piece; how many bytes they take. How
/// long a record is, `len_of` tells.
pub(crate) fn fill(
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
        && end + len <= PIECE_BYTES.min(rows.len())
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
