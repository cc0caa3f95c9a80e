//! The interface of every handler: batches in, one verdict out; and how its state and its parameters' values change hands.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crossdock_mailbox::{Batch, Selection};

use crate::row_error::RowErrorCounts;
use crate::saved::SavedStateError;
use crate::warm::WarmPiece;

/// The result of a handler for a batch; the service path goes on from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The records that are still selected leave as they came: the same bytes, or the whole batch if all are selected.
    /// A [`SelectHandler`](crate::SelectHandler) of `SELECT *` gives it.
    Forward,
    /// This number of new records went to the sink; the batch itself goes no further. A
    /// [`SelectHandler`](crate::SelectHandler) with a select list gives it, with one or more.
    Emit(usize),
    /// The handler keeps what it needs of the batch and will emit later: joins and merges do. The caller keeps nothing.
    Hold,
    /// Nothing leaves. Every handler gives it when no record passed.
    Drop,
    /// The selected records are to go on to another place, a g-core or an application, unchanged.
    HandOn,
}

impl Verdict {
    /// The verdict of a handler that narrows the selection: [`Verdict::Forward`], or [`Verdict::Drop`] if nothing is left.
    pub fn forward(selection: &Selection) -> Verdict {
        if selection.is_empty() { Verdict::Drop } else { Verdict::Forward }
    }

    /// The verdict of a handler that made `made` new records: [`Verdict::Emit`], or [`Verdict::Drop`] if there are
    /// none.
    pub fn emit(made: usize) -> Verdict {
        if made == 0 { Verdict::Drop } else { Verdict::Emit(made) }
    }
}

/// Where a handler's new records go, one by one.
pub trait Sink {
    /// Takes a copy of one record of the handler's output format.
    fn push(&mut self, record: &[u8]);

    /// Takes copies of records of that format which lie back to back and have this length each, in bytes.
    fn push_rows(&mut self, records: &[u8], length: usize) {
        records.chunks_exact(length.max(1)).for_each(|record| self.push(record));
    }
}

impl Sink for Vec<Vec<u8>> {
    fn push(&mut self, record: &[u8]) {
        Vec::push(self, record.to_vec());
    }
}

/// A step of a service path: works on the records of a batch that a selection means.
///
/// One handler belongs to one core at a time, so its state needs no lock.
pub trait Handler: Send {
    /// Works on the selected records of `batch`, which were checked where they came in. It may narrow the selection,
    /// and does so to what passed for [`Verdict::Forward`] and [`Verdict::HandOn`]; new records go to `out`, in order.
    ///
    /// `batch.selection` is ignored: `selection` says which records this one of the batch's handlers sees. Iterating over it, or
    /// narrowing it, also shows that the handler gets on: on a g-core one that goes on to no further record for long is given up.
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict;

    /// Its counts so far.
    fn counters(&self) -> HandlerCounters;

    /// Why a record was a row error, in words, for handlers that know: the latest one, or the handler's first. `None` by default.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// The row errors since this was last asked, by why, for handlers that know; none by default.
    fn take_row_errors(&mut self) -> RowErrorCounts {
        RowErrorCounts::default()
    }

    /// Reads through what it runs with, and writes what it writes as it is, so that this core has both at hand when the
    /// first batch comes: it was made on another. All of it is touched with `piece`, which does so for a few cache lines and counts
    /// the others. Nothing changes.
    fn warm(&mut self, _piece: &mut WarmPiece) {}

    /// The most bytes that it makes of one record, if that is known: a run is given no more records than its output has room for.
    fn most_out_bytes(&self) -> Option<usize> {
        None
    }

    /// The kind of its state, if it keeps any between batches: a name and a version of the layout, and what else the layout
    /// depends on, such as `tally/1 carrier char[2]`. The same before and after state was handed over.
    fn state_kind(&self) -> Option<&str> {
        None
    }

    /// Whether it can take over state of this kind: its own, or one that an older version of it had.
    fn takes_state(&self, kind: &str) -> bool {
        self.state_kind() == Some(kind)
    }

    /// Gives its state up, in constant time; `None` if it keeps none. Should it be run again, it starts anew (and then
    /// allocates), unless it is given the state back before.
    fn hand_over(&mut self) -> Option<HandlerState> {
        None
    }

    /// Takes the state of the handler before it, in constant time if the layout is the same. The state that it had
    /// until then is gone, so it is asked before its first batch.
    ///
    /// # Errors
    /// The state, if it is of no kind that it [takes](Handler::takes_state); nothing has changed then.
    fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        Err(state)
    }

    /// Appends its state to `out`, as bytes from which a handler with state of the same kind can make it again, once they are
    /// [sealed](crate::seal_state); whether it has a state that can be written so. It takes about as long as copying the bytes of the state.
    fn save(&self, out: &mut Vec<u8>) -> bool {
        let _ = out;
        false
    }

    /// Takes the state that was saved, in the place of its own, before its first batch. Off the core: all of it is entered again.
    ///
    /// # Errors
    /// It is damaged, or no state of this handler's kind; nothing has changed then.
    fn restore(&mut self, saved: &[u8]) -> Result<(), SavedStateError> {
        let _ = saved;
        Err(SavedStateError::OtherKind)
    }

    /// Whether it is one of several handlers with one state, such as those of a query for each stream and format that it reads: the
    /// caller moves the state from the one that ran last to the one that runs next.
    fn shares_state(&self) -> bool {
        false
    }

    /// Whether it goes by the wall clock: [`Handler::advance`] is then to be called before each batch, and when it is
    /// [due](Handler::due_ns).
    fn wants_time(&self) -> bool {
        false
    }

    /// Does what is due at this time of the wall clock, in ns since 1970-01-01 UTC, and returns how many rows went to `out`. A time
    /// before the last one counts as that one.
    fn advance(&mut self, now_ns: u64, out: &mut dyn Sink) -> usize {
        let _ = (now_ns, out);
        0
    }

    /// The stream whose records it takes has ended, since its publishers have finished: it is due with what waited for more of
    /// them. Others may publish the stream again later.
    fn end_stream(&mut self) {}

    /// When it wants [`Handler::advance`] to be called next, in ns since 1970-01-01 UTC, if it does.
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// Whether it has work that can wait for all else: [`Handler::walk`] does a step of it where its output has ample room.
    fn has_walk(&self) -> bool {
        false
    }

    /// Does a step of such work, and returns how many rows went to `out`.
    fn walk(&mut self, out: &mut dyn Sink) -> usize {
        let _ = out;
        0
    }

    /// Whether its reader is not to hear of the end of the stream yet: it is to get more than what comes.
    fn holds_end(&self) -> bool {
        false
    }

    /// Whether it makes no more, whatever comes.
    fn is_over(&self) -> bool {
        false
    }

    /// Whether it makes no more because what it has made does not hold any longer.
    fn is_lost(&self) -> bool {
        false
    }

    /// The state that it reads is gone, so that it is to make no more, whatever comes: it [is lost](Handler::is_lost) from now on.
    fn lose(&mut self) {}

    /// Why it makes no more, where its reader is to learn that; `None` by default.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Reports the counts of each operator of its query, by its place: first the sources of the [plan](crossdock_query::StatefulProgram),
    /// then its stages with their first outputs, then the rows that left by their further outputs. Only for a query with state; nothing by default.
    fn operator_counters(&self, report: &mut dyn FnMut(usize, OperatorCounters)) {
        let _ = report;
    }

    /// How many bytes the state takes that it has now, where they are counted; 0 by default.
    fn state_bytes(&self) -> usize {
        0
    }

    /// How many bytes its state may take, of a query with state; 0 by default.
    fn max_state_bytes(&self) -> usize {
        0
    }

    /// Exchanges its parameters' values, in constant time: it goes on with the given ones, and those that it had are left
    /// in `values`, to be dropped off the core, or to be set again. Its state stays. Returns whether the values were made
    /// for a handler like this; if not, nothing has changed.
    #[must_use]
    fn set_parameters(&mut self, values: &mut ParameterValues) -> bool {
        let _ = values;
        false
    }
}

/// A handler's state on its way to the next version of it. It is moved, never copied.
pub struct HandlerState {
    kind: Arc<str>,
    value: Box<dyn Any + Send>,
}

impl HandlerState {
    /// State of this [kind](Handler::state_kind).
    pub fn new(kind: Arc<str>, value: Box<dyn Any + Send>) -> HandlerState {
        HandlerState { kind, value }
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The state itself, which is a `T` if it is of this kind.
    ///
    /// # Errors
    /// The state as it was, if it is not.
    pub fn of_kind<T: Any>(self, expected: &str) -> Result<Box<T>, HandlerState> {
        if *self.kind != *expected {
            return Err(self);
        }
        let HandlerState { kind, value } = self;
        value.downcast().map_err(|value| HandlerState { kind, value })
    }
}

impl fmt::Debug for HandlerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerState").field(&self.kind).finish()
    }
}

/// Values of a handler's parameters, checked and made ready off the core, so that the handler only has to exchange them
/// for those that it has.
pub struct ParameterValues(Box<dyn Any + Send>);

impl ParameterValues {
    /// Values in the form that a handler takes; each kind of handler has a type of its own for them.
    pub fn new(values: impl Any + Send) -> ParameterValues {
        ParameterValues(Box::new(values))
    }

    /// The values, to be exchanged; `None` if they are not a `T`, so made for another kind of handler.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.downcast_mut()
    }
}

impl fmt::Debug for ParameterValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ParameterValues")
    }
}

/// The counts of a handler since it was made. Every record that came in either passed, was taken into state, was filtered out (the
/// difference), or was dropped for a row error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandlerCounters {
    /// Records that came in: those selected when `process` was called.
    pub records_in: u64,
    /// Records that passed on, as they were or as new ones.
    pub passed: u64,
    /// Those of them that were made beside the first of a record that came in.
    pub surplus: u64,
    /// Records dropped for a row error: overflow, division by zero, a CAST that cannot be done.
    pub row_errors: u64,
    /// Records that went to a state, from which rows may come later; those that were [late](HandlerCounters::late) for it too. They
    /// are neither passed nor filtered out.
    pub taken: u64,
    /// Keys, rows and parts of windows that a handler with bounded state had to forget for others.
    pub forgotten: u64,
    /// Rows that were dropped because they were from before what had been closed, or had no time: of records that were taken, and
    /// of those that a query's stages made.
    pub late: u64,
    /// Rows that a query's stages made, and that could not be computed further: no records that came in.
    pub stage_errors: u64,
}

/// The counts of one operator of a query with state, since its state began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperatorCounters {
    /// Rows, of a source records, that came to it.
    pub rows_in: u64,
    /// Rows that left it, behind the conditions and columns that follow.
    pub rows_out: u64,
    /// Rows that came after what they belong to was closed.
    pub late: u64,
    /// Rows, keys and groups that it forgot for others.
    pub forgotten: u64,
    /// Rows, keys or groups that it keeps.
    pub kept_rows: u64,
    /// The bytes of these.
    pub kept_bytes: u64,
}

impl HandlerCounters {
    /// Records that were filtered out since these were the counts.
    #[must_use]
    pub fn filtered_since(&self, before: &HandlerCounters) -> u64 {
        let came = self.records_in.wrapping_sub(before.records_in);
        let passed = self.passed.wrapping_sub(before.passed).saturating_sub(self.surplus.wrapping_sub(before.surplus));
        let taken = self.taken.wrapping_sub(before.taken);
        came.saturating_sub(passed)
            .saturating_sub(taken)
            .saturating_sub(self.row_errors.wrapping_sub(before.row_errors))
    }
}
