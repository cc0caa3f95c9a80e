//! The handler of a query with `SNAPSHOT`: takes a reader's part of what the state of its stream makes, and runs the query on it.

mod change;
mod merge;
mod top_n;

use crossdock_format::{FormatId, MAX_RECORD_BYTES, Record, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Selection};
use crossdock_query::{
    DeltaProgram, EvalError, Interpreter, MAX_ORDERED_ROW_BYTES, Program, Projection, Snapshot, SnapshotProgram,
};

use crate::filter::Filter;
use crate::handler::{Handler, HandlerCounters, HandlerState, Sink, Verdict};
use crate::kernel::{FieldPosition, Records};
use crate::project::RowPlan;
use crate::row_error::RowErrorCounts;
use crate::select::Errors;
use crate::stateful::Ranked;
use crate::warm::WarmPiece;
use change::FormerRows;
pub use merge::ChangeMerger;
use top_n::TopN;
pub(crate) use top_n::append as append_ordered;

/// The subject of a row of a state, in its last column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum StateStep {
    /// A walk over all rows begins.
    Begin = 1,
    /// The same, and the state is a new one: what was known of another before does not hold.
    BeginOfNew = 2,
    /// A row that the walk came to.
    Row = 3,
    /// The last row of a key that has another now, which follows.
    Before = 4,
    /// The row that a key has now; without one before it the key is new.
    After = 5,
    /// The last row of a key that is no more.
    Gone = 6,
    /// The walk is over.
    End = 7,
}

/// Beside the step of a change: the walk has not come to its key yet.
pub(crate) const UNWALKED: u8 = 0x80;

impl StateStep {
    fn of(byte: u8) -> Option<StateStep> {
        use StateStep::{After, Before, Begin, BeginOfNew, End, Gone, Row};
        [Begin, BeginOfNew, Row, Before, After, Gone, End].into_iter().find(|step| *step as u8 == byte & !UNWALKED)
    }
}

/// How far a reader has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No walk has begun since it is there.
    Waiting,
    Walking,
    /// It has all that was there, and gets what changes.
    Live,
    /// The same, by the query before: the walk that gives the difference to the present one is yet to begin.
    Changing,
    /// The walk gives that difference.
    Comparing,
    /// It has got all that it is to get.
    Over,
    /// The state was lost, and so what it has got does not hold.
    Lost,
}

impl Phase {
    /// The phase behind a row.
    fn behind(self, step: Option<StateStep>, snapshot: Snapshot) -> Phase {
        match (self, step) {
            (Phase::Waiting, Some(StateStep::Begin | StateStep::BeginOfNew)) => Phase::Walking,
            (Phase::Changing, Some(StateStep::Begin)) => Phase::Comparing,
            (Phase::Walking | Phase::Live | Phase::Changing | Phase::Comparing, Some(StateStep::BeginOfNew)) => {
                Phase::Lost
            }
            (Phase::Comparing, Some(StateStep::End)) => Phase::Live,
            (Phase::Walking, Some(StateStep::End)) if snapshot == Snapshot::Once => Phase::Over,
            (Phase::Walking, Some(StateStep::End)) => Phase::Live,
            (phase, _) => phase,
        }
    }

    /// Whether a row is one of the reader's.
    fn takes(self, step: Option<StateStep>, is_unwalked: bool, snapshot: Snapshot) -> bool {
        match (self, step) {
            (Phase::Walking | Phase::Comparing, Some(StateStep::Row)) => true,
            (Phase::Walking | Phase::Comparing, Some(StateStep::Before | StateStep::After | StateStep::Gone)) => {
                snapshot != Snapshot::Once && !is_unwalked
            }
            (Phase::Live, Some(StateStep::Before | StateStep::After | StateStep::Gone)) => true,
            _ => false,
        }
    }
}

/// The kind of a reader's progress, which the handlers of a subscription share.
const PROGRESS: &str = "snapshot/1";

/// How far a reader has come, on its way from the handler for rows of one format to that for rows of another.
struct Progress {
    phase: Phase,
    /// The row before a change, if there is one, and its format.
    before: Option<Vec<u8>>,
    rows: FormatId,
    /// With `ORDER BY`: the rows in order.
    ranked: Ranked,
    /// The last change of the query that it knows, by its number, and the same of the query before while the difference is not given.
    change: u64,
    former: Option<FormerRows>,
    failure: Option<String>,
}

/// Runs a query with `SNAPSHOT` over the rows of its stream's state.
///
/// A subscription has one for each format of the rows, which share the reader's progress. Rows have another format only where the state
/// is another one too: so a reader that has begun does not take them for those that it knows.
///
/// Verdicts: [`Verdict::Emit`], or [`Verdict::Drop`] if nothing leaves.
#[derive(Debug)]
pub struct SnapshotHandler {
    program: SnapshotProgram,
    filter: Filter,
    enter: RowPlan,
    update: RowPlan,
    leave: RowPlan,
    deltas: Option<Box<Deltas>>,
    /// With `ORDER BY`: the rows in order. The plans above are then those of what is kept of a row.
    top: Option<Box<TopN>>,
    /// The query before, until the difference to this one is given, and the number of that change.
    former: Option<Box<SnapshotHandler>>,
    change: u64,
    /// Whether some row cannot be made though the condition holds.
    is_fallible: bool,
    step: FieldPosition,
    phase: Phase,
    /// The row before a change whose other row is in the next batch, and whether there is one that the reader has.
    before: Vec<u8>,
    has_before: bool,
    /// Of a batch, the reader's rows for which the condition holds.
    passes: Selection,
    interpreter: Interpreter,
    counters: HandlerCounters,
    errors: Errors,
    /// Why it makes no more.
    failure: Option<String>,
}

/// The step of a row.
#[inline]
fn step_of(row: &[u8], step: FieldPosition) -> (Option<StateStep>, bool) {
    let byte = row.get(step.at).copied().unwrap_or(0);
    (StateStep::of(byte), byte & UNWALKED != 0)
}

fn plan_of(program: &Program) -> RowPlan {
    let outputs = match &program.projection {
        Projection::Fields(outputs) => &outputs[..],
        Projection::All => &[],
    };
    RowPlan::of(outputs, &program.input, &program.output)
}

impl SnapshotHandler {
    /// A handler for one subscription.
    pub fn new(program: SnapshotProgram) -> SnapshotHandler {
        let Program { input, filter, .. } = program.source();
        let is_fallible = match &program.enter.projection {
            Projection::Fields(outputs) => outputs.iter().any(|output| output.expr.is_fallible()),
            Projection::All => false,
        };
        let step = input.fields().last().map(FieldPosition::of);
        debug_assert!(step.is_some(), "a state's rows have a column for their step");
        SnapshotHandler {
            filter: Filter::of(filter, input),
            enter: plan_of(&program.enter),
            update: plan_of(&program.update),
            leave: plan_of(&program.leave),
            deltas: program.deltas.as_ref().map(|deltas| Box::new(Deltas::of(deltas))),
            top: program.top.as_ref().map(|top| Box::new(TopN::of(top))),
            former: None,
            change: 0,
            is_fallible,
            step: step.unwrap_or(FieldPosition { at: usize::MAX, null_byte: 0, null_mask: 0 }),
            phase: Phase::Waiting,
            before: Vec::new(),
            has_before: false,
            passes: Selection::default(),
            interpreter: Interpreter::new(),
            counters: HandlerCounters::default(),
            errors: Errors::default(),
            failure: None,
            program,
        }
    }

    /// Finds the rows that are the reader's and for which the condition holds, by this query and by the one before.
    fn narrow(&mut self, batch: &Batch, selection: &Selection) {
        let (phase, snapshot) = (self.phase, self.program.snapshot);
        if let Some(former) = &mut self.former {
            let is_ordered = former.top.is_some();
            former.narrow_to(batch, selection, (phase, false), |phase, step, is_unwalked| {
                phase.asks_former(step, is_unwalked, is_ordered)
            });
        }
        self.narrow_to(batch, selection, (phase, true), |phase, step, is_unwalked| {
            phase.takes(step, is_unwalked, snapshot)
        });
    }

    /// The same, of those that it `takes`. With `counts_rows` those of a walk that have a row error are counted.
    fn narrow_to(
        &mut self,
        batch: &Batch,
        selection: &Selection,
        (mut phase, counts_rows): (Phase, bool),
        takes: impl Fn(Phase, Option<StateStep>, bool) -> bool,
    ) {
        let SnapshotHandler { program, filter, step, passes, interpreter, counters, errors, .. } = self;
        let (mut records, snapshot) = (Records::of(batch), program.snapshot);
        passes.clone_from(selection);
        passes.narrow(|index| {
            let (step, is_unwalked) = step_of(records.record(index), *step);
            let is_taken = takes(phase, step, is_unwalked);
            phase = phase.behind(step, snapshot);
            is_taken
        });
        let program = program.source();
        filter.narrow(&program.filter, &program.input, interpreter, batch, passes, |error, record| {
            let is_counted = match step_of(record.bytes(), *step).0 {
                // The row before a change was counted when it came.
                Some(StateStep::Before | StateStep::Gone) => false,
                Some(StateStep::Row) => counts_rows,
                _ => true,
            };
            if is_counted {
                counters.row_errors += 1;
                errors.note(error, program, record);
            }
        });
    }

    /// Whether the reader has the row of a record for which the condition holds; with `ORDER BY` that is found out where it is taken out.
    fn has(&mut self, record: &[u8]) -> bool {
        let SnapshotHandler { program, leave, top, interpreter, is_fallible, .. } = self;
        !*is_fallible || top.is_some() || leave.make(record, &program.leave.input, interpreter).is_ok()
    }

    /// Gives a row that is no more.
    fn leave(&mut self, record: &[u8], out: &mut dyn Sink) -> usize {
        let SnapshotHandler { program, leave, deltas, interpreter, .. } = self;
        if let Some(deltas) = deltas {
            let made = deltas.make(Change::Leave, (record, None), interpreter);
            return usize::from(made.is_ok_and(|row| row.is_some_and(|row| pushed(row, out))));
        }
        // Without a row the reader has had none.
        let Ok(row) = leave.make(record, &program.leave.input, interpreter) else { return 0 };
        out.push(row);
        1
    }

    /// Gives a row that there is now, in the place of the one that the reader has; how many records that takes, or nothing if the row
    /// cannot be computed.
    fn give(&mut self, record: &[u8], before: Option<&[u8]>, out: &mut dyn Sink) -> Option<usize> {
        let SnapshotHandler { program, enter, update, deltas, interpreter, counters, errors, .. } = self;
        let is_known = before.is_some();
        let made = match deltas {
            Some(deltas) => {
                let change = if is_known { Change::Update } else { Change::Enter };
                deltas.make(change, (record, before), interpreter)
            }
            None if is_known => update.make(record, &program.update.input, interpreter).map(Some),
            None => enter.make(record, &program.enter.input, interpreter).map(Some),
        };
        match made {
            Ok(row) => Some(usize::from(row.is_some_and(|row| pushed(row, out)))),
            Err(error) => {
                note(error, &program.enter, record, counters, errors);
                None
            }
        }
    }

    /// Takes the row that a key has now, if it has one for which the condition holds; `before` is the one that it had.
    fn change(&mut self, now: Option<&[u8]>, before: Option<&[u8]>, out: &mut dyn Sink) -> usize {
        if let Some(mut top) = self.top.take() {
            let made = self.rank(&mut top, now, before, out);
            self.top = Some(top);
            return made;
        }
        if let Some(now) = now
            && let Some(made) = self.give(now, before, out)
        {
            return made;
        }
        before.map_or(0, |before| self.leave(before, out))
    }

    /// Puts the row that a key has now in its place, and gives what that changes among the first rows.
    fn rank(&mut self, top: &mut TopN, now: Option<&[u8]>, before: Option<&[u8]>, out: &mut dyn Sink) -> usize {
        let was = before.and_then(|before| top.remove(before, &mut self.interpreter));
        let is = now.and_then(|now| self.put(top, now));
        if self.program.snapshot == Snapshot::Once {
            top.keep_first();
        }
        if top.is_too_large() {
            self.fail(top);
        }
        if self.phase != Phase::Live {
            return 0;
        }
        let limit = top.limit();
        match (was.is_some_and(|rank| rank < limit), is.is_some_and(|rank| rank < limit)) {
            // No column of the list has changed.
            (true, true) if top.row == top.gone => 0,
            (true, true) => self.give(&top.row, Some(&top.gone), out).unwrap_or(0),
            (true, false) => {
                let left = self.leave(&top.gone, out);
                left + top.at(limit - 1).and_then(|next| self.give(next, None, out)).unwrap_or(0)
            }
            (false, true) => {
                let left = top.at(limit).map_or(0, |last| self.leave(last, out));
                left + self.give(&top.row, None, out).unwrap_or(0)
            }
            (false, false) => 0,
        }
    }

    /// Puts a row in order; its rank. A row that cannot be computed is none.
    fn put(&mut self, top: &mut TopN, record: &[u8]) -> Option<usize> {
        let SnapshotHandler { program, enter, interpreter, counters, errors, .. } = self;
        if let Err(error) = top.read(record, interpreter) {
            note(error, &top.program.order, record, counters, errors);
            return None;
        }
        let made = enter.make(&top.row, &program.enter.input, interpreter).map(<[u8]>::len);
        let made = made.and_then(|bytes| match bytes > MAX_ORDERED_ROW_BYTES {
            true => Err(EvalError::RecordTooLong),
            false => Ok(()),
        });
        if let Err(error) = made {
            note(error, &program.enter, &top.row, counters, errors);
            return None;
        }
        top.insert()
    }

    /// Gives the first rows: the walk has come to all.
    fn give_first(&mut self, out: &mut dyn Sink) -> usize {
        let Some(mut top) = self.top.take() else { return 0 };
        let mut made = 0;
        for row in (0..top.limit()).map_while(|rank| top.at(rank)) {
            made += self.give(row, None, out).unwrap_or(0);
        }
        if self.phase == Phase::Over {
            top.clear();
        }
        self.top = Some(top);
        made
    }

    /// There is no room for all rows: what it would give would not be the first of them.
    #[cold]
    fn fail(&mut self, top: &mut TopN) {
        self.failure = Some(format!(
            "the rows for which the condition holds take more than the {} bytes that ORDER BY may keep of the stream's state: \
             have fewer columns in the list or a narrower condition, or declare the key with more (--max-bytes)",
            top.program.max_bytes
        ));
        self.phase = Phase::Lost;
        top.clear();
    }

    /// Goes through the rows of a batch.
    fn take_all(&mut self, batch: &Batch, selection: &Selection, out: &mut dyn Sink) -> usize {
        let (mut records, mut made, snapshot) = (Records::of(batch), 0, self.program.snapshot);
        let mut part = self.begin_part();
        let mut former = self.former.take();
        let mut part_of_former = former.as_mut().map(|former| former.begin_part());
        for index in selection {
            let (step, is_unwalked) = step_of(records.record(index), self.step);
            let behind = self.phase.behind(step, snapshot);
            let (was, mut of_one) = (std::mem::replace(&mut self.phase, behind), 0);
            if was == Phase::Walking && matches!(behind, Phase::Live | Phase::Over) {
                of_one += self.give_first(out);
            }
            if let (Some(of), Some(part_of_former)) = (&mut former, &mut part_of_former)
                && was.is_changing()
            {
                let both = (&mut part, part_of_former);
                of_one += self.take_changing(of, both, &mut records, (index, was, step, is_unwalked), out);
            } else if was.takes(step, is_unwalked, snapshot) {
                of_one += self.take(&mut part, &mut records, (index, step), out);
            }
            made += of_one;
            self.counters.surplus += of_one.saturating_sub(1) as u64;
        }
        self.end_part(part, &mut records);
        if let (Some(mut of), Some(part)) = (former, part_of_former) {
            of.end_part(part, &mut records);
            self.former = Some(of);
        }
        made
    }

    /// Takes a row of the reader's.
    #[inline]
    fn take(
        &mut self,
        part: &mut BatchPart,
        records: &mut Records<'_>,
        (index, step): (usize, Option<StateStep>),
        out: &mut dyn Sink,
    ) -> usize {
        let (record, passed) = (records.record(index), part.passes.contains(index));
        match step {
            Some(StateStep::Before) if passed && self.has(record) => {
                part.before = Before::At(index);
                0
            }
            Some(StateStep::Row) if passed => self.change(Some(record), None, out),
            Some(StateStep::After) => {
                let before = match std::mem::replace(&mut part.before, Before::None) {
                    Before::None => None,
                    Before::Kept => Some(&part.kept[..]),
                    Before::At(index) => Some(records.record(index)),
                };
                self.change(Some(record).filter(|_| passed), before, out)
            }
            Some(StateStep::Gone) if passed => self.change(None, Some(record), out),
            _ => 0,
        }
    }

    fn begin_part(&mut self) -> BatchPart {
        BatchPart {
            passes: std::mem::take(&mut self.passes),
            kept: std::mem::take(&mut self.before),
            before: if self.has_before { Before::Kept } else { Before::None },
        }
    }

    fn end_part(&mut self, part: BatchPart, records: &mut Records<'_>) {
        let BatchPart { passes, mut kept, before } = part;
        self.has_before = before != Before::None;
        if let Before::At(index) = before {
            kept.clear();
            kept.extend_from_slice(records.record(index));
        }
        (self.before, self.passes) = (kept, passes);
    }
}

/// A batch, as a query goes through it.
struct BatchPart {
    /// The rows for which the condition holds.
    passes: Selection,
    /// The row before a change whose other row comes with this batch.
    kept: Vec<u8>,
    before: Before,
}

/// The row before a change, whose row of now comes next: one that the reader has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    None,
    /// It came with the batch before.
    Kept,
    /// The record of the batch.
    At(usize),
}

/// The kinds of changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Enter,
    Update,
    Leave,
}

/// Makes the records of a query with `DELTA`.
#[derive(Debug)]
struct Deltas {
    program: DeltaProgram,
    rows: RowPlan,
    /// The row before, whole.
    before: Vec<u8>,
    builder: RecordBuilder,
    changed: Vec<u8>,
}

impl Deltas {
    fn of(program: &DeltaProgram) -> Deltas {
        let DeltaProgram { rows, output, key } = program;
        Deltas {
            rows: plan_of(rows),
            before: Vec::new(),
            builder: RecordBuilder::new(output),
            changed: vec![0; key.len().div_ceil(8)],
            program: program.clone(),
        }
    }

    /// The record of a change from one row to another; none if no column has changed.
    fn make(
        &mut self,
        change: Change,
        (record, before): (&[u8], Option<&[u8]>),
        interpreter: &mut Interpreter,
    ) -> Result<Option<&[u8]>, EvalError> {
        let Deltas { program, rows, before: had, .. } = self;
        had.clear();
        if let Some(before) = before {
            had.extend_from_slice(rows.make(before, &program.rows.input, interpreter)?);
        }
        self.make_over((change, before.is_some()), record, interpreter)
    }

    /// The same, where the row from which it changes is in `before`, if there `is_one`.
    fn make_over(
        &mut self,
        (change, is_one): (Change, bool),
        record: &[u8],
        interpreter: &mut Interpreter,
    ) -> Result<Option<&[u8]>, EvalError> {
        let Deltas { program, rows, before: had, builder, changed } = self;
        let (input, format) = (&program.rows.input, &program.rows.output);
        let had = is_one.then(|| Record::assume_checked(format, had));
        let now = Record::assume_checked(format, rows.make(record, input, interpreter)?);
        builder.clear();
        changed.fill(0);
        for (column, is_of_key) in program.key.iter().enumerate() {
            let value = now.get(column);
            let is_changed =
                change != Change::Leave && had.as_ref().is_none_or(|had| differs(&had.get(column), &value));
            if let Some(byte) = changed.get_mut(column / 8).filter(|_| is_changed) {
                *byte |= 1 << (column % 8);
            }
            if (is_changed || *is_of_key) && value != Value::Null {
                builder.set(column, value).map_err(|_| EvalError::RecordTooLong)?;
            }
        }
        if change == Change::Update && changed.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let (word, columns) = (word(change), program.key.len());
        let set = builder.set_text(columns, word).and_then(|()| builder.set_bytes(columns + 1, changed));
        set.map_err(|_| EvalError::RecordTooLong)?;
        builder.finish().map(Some).map_err(|_| EvalError::RecordTooLong)
    }
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Enter => "enter",
        Change::Update => "update",
        Change::Leave => "leave",
    }
}

/// Whether two values of a column differ. Lists are not compared.
fn differs(one: &Value<'_>, other: &Value<'_>) -> bool {
    match (one, other) {
        (Value::Float(one), Value::Float(other)) => one.to_bits() != other.to_bits(),
        (Value::List(_), _) | (_, Value::List(_)) => true,
        (one, other) => one != other,
    }
}

fn pushed(row: &[u8], out: &mut dyn Sink) -> bool {
    out.push(row);
    true
}

#[cold]
fn note(error: EvalError, program: &Program, record: &[u8], counters: &mut HandlerCounters, errors: &mut Errors) {
    counters.row_errors += 1;
    errors.note(error, program, &Record::assume_checked(&program.input, record));
}

impl Handler for SnapshotHandler {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        if self.is_over() {
            return Verdict::Drop;
        }
        self.narrow(batch, selection);
        let made = self.take_all(batch, selection, out);
        self.end_former();
        self.counters.passed += made as u64;
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
        let output = self.program.output();
        let is_variable = output.fields().iter().any(|field| field.ty.is_variable());
        match &self.top {
            // A change gives two rows, and the end of a walk up to a thousand: as much again.
            Some(_) if is_variable => Some(4 * (MAX_ORDERED_ROW_BYTES + 64)),
            Some(_) => Some(4 * output.fixed_bytes()),
            None => Some(if is_variable { MAX_RECORD_BYTES } else { output.fixed_bytes() }),
        }
    }

    fn holds_end(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Walking | Phase::Changing | Phase::Comparing)
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over | Phase::Lost)
    }

    fn is_lost(&self) -> bool {
        self.phase == Phase::Lost
    }

    fn lose(&mut self) {
        self.phase = Phase::Lost;
        self.top.iter_mut().for_each(|top| top.clear());
        (self.has_before, self.before, self.former) = (false, Vec::new(), None);
    }

    fn state_kind(&self) -> Option<&str> {
        Some(PROGRESS)
    }

    fn shares_state(&self) -> bool {
        true
    }

    fn hand_over(&mut self) -> Option<HandlerState> {
        let phase = std::mem::replace(&mut self.phase, Phase::Waiting);
        let (before, ranked) = self.give_up_rows();
        let former = self.former.as_mut().filter(|_| phase.is_changing()).map(|former| former.give_up_rows());
        let (rows, failure) = (self.program.source().input.id(), self.failure.take());
        let progress = Progress { phase, before, rows, ranked, change: self.change, former, failure };
        Some(HandlerState::new(PROGRESS.into(), Box::new(progress)))
    }

    fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        let Progress { phase, before, rows, ranked, change, former, failure } = *state.of_kind::<Progress>(PROGRESS)?;
        (self.phase, self.failure) = (phase, failure);
        // The row before a change has the format of the row that follows.
        let is_same = rows == self.program.source().input.id();
        let of_before = Some((before, ranked)).filter(|_| is_same).unwrap_or_default();
        match &mut self.former {
            Some(former) if phase == Phase::Live && change < self.change => {
                former.set_rows(of_before);
                (former.phase, self.phase) = (Phase::Live, Phase::Changing);
                self.set_rows(FormerRows::default());
                return Ok(());
            }
            Some(of) if phase.is_changing() => {
                of.set_rows(former.filter(|_| is_same).unwrap_or_default());
                of.phase = Phase::Live;
            }
            // Rows of this format come of another state only.
            None if phase.is_changing() => self.phase = Phase::Lost,
            _ => self.former = None,
        }
        self.change = self.change.max(change);
        self.set_rows(of_before);
        Ok(())
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    fn state_bytes(&self) -> usize {
        let own = self.top.as_ref().map_or(0, |top| top.used());
        own + self.former.as_ref().map_or(0, |former| former.state_bytes())
    }

    fn warm(&mut self, piece: &mut WarmPiece) {
        piece.touch_fields(&self.program.source().input);
        self.top.iter_mut().for_each(|top| top.warm(piece));
        self.former.iter_mut().for_each(|former| former.warm(piece));
        self.filter.warm(piece);
        [&mut self.enter, &mut self.update, &mut self.leave].into_iter().for_each(|rows| rows.warm(piece));
        piece.own(std::slice::from_mut(&mut self.counters));
    }
}
