//! ORDER BY … LIMIT of windows: the first rows of each, in order.
//!
//! The rows of windows come window by window, in order of their ends. Of the window whose rows come as many are kept as leave, and they
//! do so once all of its rows have come: when a row of another window does, or when the stage before shows that the window is closed.

use crossdock_format::{Format, Record};
use crossdock_query::{EvalError, FirstRows as Plan, RowTime};

use super::moment::{Budget, Emit, Lost, Made, Moment};
use super::ranked::Ranked;
use crate::saved::{SavedBytes, put_bytes, put_flag, put_i64};
use crate::snapshot::append_ordered;

/// The first rows of a window.
#[derive(Debug)]
pub(super) struct FirstRows {
    plan: Plan,
    input: Format,
    ranked: Ranked,
    /// The start of the window that they are of.
    start: i64,
    /// The values that a row is put in order by, as bytes.
    key: Vec<u8>,
    pub(super) lost: Lost,
}

impl FirstRows {
    /// The state for rows of this format.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(plan: &Plan, input: &Format) -> Result<FirstRows, String> {
        let (start, end) = plan.window;
        let columns = plan.order.iter().map(|(column, _)| *column).chain([start, end]);
        if columns.max().is_some_and(|column| column >= input.fields().len()) || plan.limit == 0 {
            return Err("rows are put in order by columns that they have".to_owned());
        }
        let (ranked, key, lost) = (Ranked::default(), Vec::new(), Lost::default());
        Ok(FirstRows { plan: plan.clone(), input: input.clone(), ranked, start: i64::MIN, key, lost })
    }

    /// Takes a row, whose time is the start of its window.
    pub(super) fn take(&mut self, row: &[u8], moment: Moment, emit: Emit<'_>) {
        if moment.time != self.start {
            self.give(emit);
        }
        self.start = moment.time;
        if !self.put(row) {
            emit(Err(EvalError::RecordTooLong));
        }
        while self.ranked.len() > self.plan.limit as usize {
            self.ranked.remove_last();
        }
    }

    /// Puts a row in; whether there is room for it.
    fn put(&mut self, row: &[u8]) -> bool {
        let record = Record::assume_checked(&self.input, row);
        self.key.clear();
        for (column, direction) in &self.plan.order {
            append_ordered(&record.get(*column), *direction, &mut self.key);
        }
        self.ranked.insert(&self.key, row, self.plan.limit as usize).is_some()
    }

    /// Writes the rows of the window.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        put_i64(out, self.start);
        for row in (0..self.ranked.len()).filter_map(|rank| self.ranked.at(rank)) {
            put_flag(out, true);
            put_bytes(out, row);
        }
        put_flag(out, false);
    }

    /// Takes the rows that were written, before its first one.
    ///
    /// # Errors
    /// They were not written by such rows. These are of no use then.
    pub(super) fn restore(&mut self, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        self.start = from.i64()?;
        while from.flag()? {
            let row = from.row(&self.input)?;
            if self.ranked.len() == self.plan.limit as usize || !self.put(row) {
                return Err("a window has more first rows than leave");
            }
        }
        Ok(())
    }

    /// Lets the rows of a window leave that is closed. They are few, so this is done at once.
    pub(super) fn release(&mut self, watermark: i64, budget: &Budget, emit: Emit<'_>) -> bool {
        if self.start < watermark {
            budget.spend(self.ranked.len());
            self.give(emit);
        }
        false
    }

    fn give(&mut self, emit: Emit<'_>) {
        (0..self.ranked.len()).filter_map(|rank| self.ranked.at(rank)).for_each(|row| emit(Ok(Made::row(row))));
        while self.ranked.len() > 0 {
            self.ranked.remove_last();
        }
    }

    /// The least that this time of the rows may be that are yet to leave.
    pub(super) fn given(&self, time: RowTime, moment: Moment) -> i64 {
        let start = if self.ranked.len() > 0 { self.start.min(moment.watermark) } else { moment.watermark };
        match time {
            RowTime::WindowStart => start,
            RowTime::WindowEnd => start.saturating_add(i64::try_from(self.plan.size_ns).unwrap_or(i64::MAX)),
            RowTime::Closed | RowTime::Left | RowTime::Right => i64::MIN,
        }
    }

    /// Rows that it keeps.
    pub(super) fn kept(&self) -> usize {
        self.ranked.len()
    }

    /// How many bytes are in use.
    pub(super) fn used(&self) -> usize {
        self.ranked.used()
    }

    /// Forgets the last of the rows; returns whether there was one.
    pub(super) fn forget(&mut self) -> bool {
        let is_there = self.ranked.len() > 0;
        if is_there {
            self.ranked.remove_last();
            self.lost.forgotten += 1;
        }
        is_there
    }
}
