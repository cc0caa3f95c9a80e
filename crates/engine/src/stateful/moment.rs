//! Things that every operator gets with a row, and gives.

use std::cell::Cell;

use crossdock_format::{ValueError, ValueProblem};
use crossdock_query::EvalError;

/// A left row and a right one; none in place of one that is not there.
pub(super) type Pair<'r> = [Option<&'r [u8]>; 2];

/// A row, and the one in whose place it comes. Most rows come in the place of none; one that is taken back has none in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'r> {
    pub(super) before: Option<&'r [u8]>,
    pub(super) after: Option<&'r [u8]>,
}

impl<'r> Change<'r> {
    /// A row that comes in the place of none.
    #[inline]
    pub(super) fn row(row: &'r [u8]) -> Change<'r> {
        Change { before: None, after: Some(row) }
    }

    /// A row that is taken back.
    #[inline]
    pub(super) fn gone(row: &'r [u8]) -> Change<'r> {
        Change { before: Some(row), after: None }
    }
}

/// Rows, and the time of each.
pub(super) type TimedRows<'r> = (&'r [&'r [u8]], &'r [i64]);

/// Something that an operator gives to the program behind it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Made<'r> {
    Change(Change<'r>),
    /// The row of a join in the form of its two sides: one that comes, or one that is taken back.
    Pair {
        pair: Pair<'r>,
        comes: bool,
    },
    /// Such rows that come, one after the other.
    Pairs(&'r [Pair<'r>]),
}

impl<'r> Made<'r> {
    /// A row that comes in the place of none.
    #[inline]
    pub(super) fn row(row: &'r [u8]) -> Made<'r> {
        Made::Change(Change::row(row))
    }

    /// The row of a join that comes in the place of none.
    #[inline]
    pub(super) fn pair(pair: Pair<'r>) -> Made<'r> {
        Made::Pair { pair, comes: true }
    }
}

/// Where a stage's rows go, or why one could not be made.
pub(super) type Emit<'e> = &'e mut dyn FnMut(Result<Made<'_>, EvalError>);

/// The time of a row, and how far its stage has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The row's.
    pub(super) time: i64,
    /// The stage's watermark: the least of its inputs'.
    pub(super) watermark: i64,
    /// Those of its inputs; of an input without time, and of one that is not there, the greatest.
    pub(super) marks: [i64; 2],
}

/// How much due work a call may still do: the rest waits for the next one. All stages of a query share it.
#[derive(Debug, Default)]
pub(super) struct Budget(Cell<usize>);

impl Budget {
    /// The rows and parts of windows that one row, or one look at the clock, lets leave at most.
    const MOST: usize = 4096;

    /// Another call begins, with this many rows.
    pub(super) fn renew(&self, rows: usize) {
        self.0.set(Budget::MOST * rows);
    }

    /// Whether nothing is left of it.
    pub(super) fn is_spent(&self) -> bool {
        self.0.get() == 0
    }

    /// Takes some of it.
    pub(super) fn spend(&self, some: usize) {
        self.0.set(self.0.get().saturating_sub(some));
    }
}

/// Rows that were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lost {
    pub(super) late: u64,
    pub(super) forgotten: u64,
}

/// The row error of a value that a row did not take.
pub(super) fn refused(error: &ValueError) -> EvalError {
    match error.problem {
        ValueProblem::IntegerRange { .. } | ValueProblem::FloatRange { .. } => EvalError::OutOfRange,
        ValueProblem::WrongType { .. } | ValueProblem::NoSuchField { .. } | ValueProblem::NotNullable => {
            EvalError::IllTyped
        }
        // A decimal with more digits than its column has, and a text that is longer.
        ValueProblem::TextTooLong { .. } | ValueProblem::RecordTooLong { .. } => EvalError::RecordTooLong,
        _ => EvalError::OutOfRange,
    }
}
