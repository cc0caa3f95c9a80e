//! A query with `SNAPSHOT THEN CHANGES` that takes the place of another one while it runs.
//!
//! Nothing is kept of what a reader has got. The difference comes of one more walk over the state: for each row that the walk comes to,
//! both queries say whether the reader had it and whether it is to have it. A change that comes meanwhile at a key that the walk has not
//! come to is given by the query before, at all others by the present one. With `ORDER BY` the query before goes on with all changes, while
//! the walk fills the rows of the present one; at its end the two lists are compared by the key of their rows.

use std::collections::{BTreeMap, BTreeSet};

use crossdock_format::{Format, Record};
use crossdock_query::SnapshotProgram;

use crate::handler::Sink;
use crate::kernel::Records;
use crate::stateful::Ranked;

use super::{BatchPart, Change, Phase, SnapshotHandler, StateStep, differs, note, pushed};

/// The rows that a query has of its reader: the one before a change, if there is one, and, with `ORDER BY`, those in order.
pub(super) type FormerRows = (Option<Vec<u8>>, Ranked);

impl Phase {
    /// Whether the query before is still at work.
    pub(super) fn is_changing(self) -> bool {
        matches!(self, Phase::Changing | Phase::Comparing)
    }

    /// Whether a row is one for the query before. If that `is_ordered`, it has all its rows, and a walk brings it none.
    pub(super) fn asks_former(self, step: Option<StateStep>, is_unwalked: bool, is_ordered: bool) -> bool {
        match (self, step) {
            (Phase::Changing, Some(StateStep::Before | StateStep::After | StateStep::Gone)) => true,
            (Phase::Comparing, Some(StateStep::Before | StateStep::After | StateStep::Gone)) => {
                is_unwalked || is_ordered
            }
            (Phase::Comparing, Some(StateStep::Row)) => !is_ordered,
            _ => false,
        }
    }
}

impl SnapshotHandler {
    /// A handler for a subscription whose query was another one before, for rows of the same format; `change` is the number of this
    /// change, greater than those of all before it. It begins with the progress that the handler before hands over, and gives the
    /// difference with the next walk.
    pub fn changing(program: SnapshotProgram, before: SnapshotProgram, change: u64) -> SnapshotHandler {
        let former = Some(Box::new(SnapshotHandler::new(before)));
        SnapshotHandler { former, change, ..SnapshotHandler::new(program) }
    }

    /// Takes a row while the query before is still at work; the reader's phase was the given one in front of it.
    pub(super) fn take_changing(
        &mut self,
        former: &mut SnapshotHandler,
        (part, part_of_former): (&mut BatchPart, &mut BatchPart),
        records: &mut Records<'_>,
        (index, was, step, is_unwalked): (usize, Phase, Option<StateStep>, bool),
        out: &mut dyn Sink,
    ) -> usize {
        let is_ordered = former.top.is_some();
        if was == Phase::Comparing && step == Some(StateStep::Row) && !is_ordered {
            let record = records.record(index);
            let had = part_of_former.passes.contains(index) && former.has(record);
            let has = part.passes.contains(index);
            return self.compare(former, (Some(record).filter(|_| has), Some(record).filter(|_| had)), out);
        }
        let mut made = 0;
        if was.asks_former(step, is_unwalked, is_ordered) {
            made += former.take(part_of_former, records, (index, step), out);
        }
        if was.takes(step, is_unwalked, self.program.snapshot) {
            made += self.take(part, records, (index, step), out);
        }
        if former.phase == Phase::Lost {
            (self.phase, self.failure) = (Phase::Lost, former.failure.take());
            self.top.iter_mut().for_each(|top| top.clear());
        }
        if was == Phase::Comparing && self.phase == Phase::Live {
            made += self.compare_first(former, out);
        }
        made
    }

    /// Gives the difference of a row, which the reader has by the query before, if there is one, and is to have by this one.
    fn compare(
        &mut self,
        former: &mut SnapshotHandler,
        (now, before): (Option<&[u8]>, Option<&[u8]>),
        out: &mut dyn Sink,
    ) -> usize {
        match (now, before) {
            (Some(now), Some(before)) => match self.update_over(former, now, before, out) {
                Some(made) => made,
                None => former.leave(before, out),
            },
            (Some(now), None) => self.give(now, None, out).unwrap_or(0),
            (None, Some(before)) => former.leave(before, out),
            (None, None) => 0,
        }
    }

    /// Gives a row in the place of the one that the query before has given, if they differ; nothing if it cannot be computed.
    fn update_over(
        &mut self,
        former: &mut SnapshotHandler,
        now: &[u8],
        before: &[u8],
        out: &mut dyn Sink,
    ) -> Option<usize> {
        let SnapshotHandler { program, update, deltas, interpreter, counters, errors, .. } = self;
        let SnapshotHandler { program: of, update: had, deltas: had_deltas, interpreter: by, .. } = former;
        let made = match (deltas, had_deltas) {
            (Some(deltas), Some(had)) => {
                let had = had.rows.make(before, &had.program.rows.input, by).ok();
                deltas.before.clear();
                deltas.before.extend_from_slice(had.unwrap_or_default());
                deltas.make_over((Change::Update, had.is_some()), now, interpreter)
            }
            _ => {
                let had = had.make(before, &of.update.input, by).ok();
                let is_new = |row: &&[u8]| had.is_none_or(|had| are_different(had, row, &program.update.output));
                update.make(now, &program.update.input, interpreter).map(|row| Some(row).filter(is_new))
            }
        };
        match made {
            Ok(row) => Some(usize::from(row.is_some_and(|row| pushed(row, out)))),
            Err(error) => {
                note(error, &program.enter, now, counters, errors);
                None
            }
        }
    }

    /// Gives the difference of the first rows in order: the walk has come to all.
    fn compare_first(&mut self, former: &mut SnapshotHandler, out: &mut dyn Sink) -> usize {
        let (Some(top), Some(of)) = (self.top.take(), former.top.take()) else { return 0 };
        let (now, before) = (top.first_keys(), of.first_keys());
        let stays: BTreeSet<&[u8]> = now.iter().map(Vec::as_slice).collect();
        let had: BTreeMap<&[u8], usize> = before.iter().enumerate().map(|(rank, key)| (key.as_slice(), rank)).collect();
        let mut made = 0;
        for (rank, key) in before.iter().enumerate() {
            if let Some(row) = of.at(rank).filter(|_| !stays.contains(key.as_slice())) {
                made += former.leave(row, out);
            }
        }
        for (rank, key) in now.iter().enumerate() {
            let before = had.get(key.as_slice()).and_then(|rank| of.at(*rank));
            made += self.compare(former, (top.at(rank), before), out);
        }
        self.top = Some(top);
        made
    }

    /// Takes in what the query before has counted, and lets it go once it has no more to do.
    pub(super) fn end_former(&mut self) {
        let Some(former) = &mut self.former else { return };
        self.counters.row_errors += std::mem::take(&mut former.counters).row_errors;
        let errors = std::mem::take(&mut former.errors);
        self.errors.counts.iter_mut().zip(errors.counts).for_each(|(count, more)| *count += more);
        if let (None, Some(first)) = (&self.errors.first, errors.first) {
            self.errors.first = Some(first);
        }
        if !self.phase.is_changing() {
            self.former = None;
        }
    }

    /// Gives up the rows that it has of its reader.
    pub(super) fn give_up_rows(&mut self) -> FormerRows {
        let before = std::mem::take(&mut self.has_before).then(|| std::mem::take(&mut self.before));
        (before, self.top.as_mut().map(|top| top.take_rows()).unwrap_or_default())
    }

    /// Has these rows of its reader from now on.
    pub(super) fn set_rows(&mut self, (before, ranked): FormerRows) {
        if let Some(top) = &mut self.top {
            top.clear();
            if ranked.len() > 0 {
                top.set_rows(ranked);
            }
        }
        self.has_before = before.is_some();
        self.before = before.unwrap_or_default();
    }
}

/// Whether two rows of a format have different values.
fn are_different(one: &[u8], other: &[u8], format: &Format) -> bool {
    if one == other {
        return false;
    }
    let (one, other) = (Record::assume_checked(format, one), Record::assume_checked(format, other));
    (0..format.fields().len()).any(|column| differs(&one.get(column), &other.get(column)))
}
