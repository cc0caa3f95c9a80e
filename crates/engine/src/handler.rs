//! What every handler is: batches in, one verdict out.

use crossdock_mailbox::{Batch, Selection};

/// What a handler did with a batch; the service path goes on from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The records that are still selected leave as they came: the same bytes, or the whole batch if all are selected.
    /// A [`SelectHandler`](crate::SelectHandler) of `SELECT *` gives it.
    Forward,
    /// So many new records went to the sink; the batch itself goes no further. A
    /// [`SelectHandler`](crate::SelectHandler) with a select list gives it, with one or more.
    Emit(usize),
    /// The handler keeps what it needs of the batch and will emit later: joins and merges do. The caller keeps nothing.
    Hold,
    /// Nothing leaves. Every handler gives it when no record passed.
    Drop,
    /// The selected records are to go on to another place, a g-core or an application, as they are.
    HandOn,
}

/// Where a handler's new records go, one by one.
pub trait Sink {
    /// Takes a copy of one record of the handler's output format.
    fn push(&mut self, record: &[u8]);
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
    /// `batch.selection` is not looked at: what one of several handlers of a batch is to see is told by `selection`.
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict;

    /// What it has done so far.
    fn counters(&self) -> HandlerCounters;
}

/// What a handler has done since it was made. Every record that came in either passed, was filtered out (the
/// difference), or was dropped for a row error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandlerCounters {
    /// Records that came in: those selected when `process` was called.
    pub records_in: u64,
    /// Records that passed on, as they were or as new ones.
    pub passed: u64,
    /// Records dropped for a row error: overflow, division by zero, a CAST that cannot be done.
    pub row_errors: u64,
}
