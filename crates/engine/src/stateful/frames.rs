//! Aggregates of frames that rows leave, where a row cannot be taken out of the aggregate again.
//!
//! Those of numbers are made of two parts. The rows of a frame up to a *split* have each the aggregate of the rows from it up to the
//! split; the rows behind it are added up as they come. So the aggregate of a frame is that of its first row together with the
//! one behind the split. Once the first row is behind the split, it is moved behind the last row, and each row gets its aggregate: as many
//! steps as the frame has rows, once for as many rows. Others (of texts, and approximate ones) are made anew for each row.

use crossdock_format::Value;
use crossdock_query::{EvalError, RowFrame};

use super::accumulate::{Slots, Stores};
use super::cell::{load, store};
use super::past_rows::{Past, PastRows};

/// The arguments of an aggregate, and its condition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameColumns {
    pub(super) arguments: [Option<usize>; 2],
    pub(super) filter: Option<usize>,
}

impl FrameColumns {
    /// The arguments of a row that counts.
    #[inline]
    pub(super) fn read<'v>(&self, value: impl Fn(usize) -> Value<'v>) -> Option<[Option<Value<'v>>; 2]> {
        match self.filter {
            Some(filter) if value(filter) != Value::Bool(true) => None,
            _ => Some(self.arguments.map(|argument| argument.map(&value))),
        }
    }
}

/// The memory in which aggregates of frames are made.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    group: Vec<u8>,
    suffix: Vec<u8>,
    pub(super) stores: Stores,
}

/// The aggregate of a frame.
#[derive(Debug)]
pub(super) struct FrameWork {
    slots: Slots,
    columns: FrameColumns,
    from: u32,
    until: u32,
    /// For one in two parts, the number of the bytes beside each row.
    beside: Option<usize>,
    /// The place of the split and of the part behind it in the sums of a key.
    pub(super) at: usize,
}

/// The sink of a value.
pub(super) type EachValue<'e> = &'e mut dyn FnMut(Value<'_>) -> Result<(), EvalError>;

impl FrameWork {
    /// The aggregate of one slot over a frame that begins with the row at a distance.
    pub(super) fn new(slots: Slots, columns: FrameColumns, frame: (u32, RowFrame), rows: &mut PastRows) -> FrameWork {
        let beside = slots.are_plain().then(|| rows.add_beside(slots.bytes()));
        let (from, RowFrame { until, .. }) = frame;
        FrameWork { slots, columns, from, until, beside, at: 0 }
    }

    /// The bytes that it needs in the sums of a key: the number of the row at the split, and the part behind it.
    pub(super) fn sum_bytes(&self) -> usize {
        if self.beside.is_some() { 8 + self.slots.bytes() } else { 0 }
    }

    /// The numbers of the first and the last row of the frame of the present row.
    fn ends(&self, past: &Past) -> Option<(u64, u64)> {
        let present = past.count().checked_sub(1)?;
        let last = present.checked_sub(self.until.into())?;
        Some((present.saturating_sub(self.from.into()), last))
    }

    /// The frame goes on by a row, which is there.
    #[inline]
    pub(super) fn slide(&self, rows: &mut PastRows, past: &Past, sums: &mut [u8], scratch: &mut Scratch) {
        let (Some(beside), Some((first, last))) = (self.beside, self.ends(past)) else { return };
        if first > u64::from_le_bytes(load(sums, self.at)) {
            return self.split(rows, past, sums, scratch, beside);
        }
        let Some(behind) = sums.get_mut(self.at + 8..self.at + 8 + self.slots.bytes()) else { return };
        if let Some(row) = rows.row(past, self.until)
            && let Some(arguments) = self.columns.read(|column| row.value(column))
        {
            self.slots.add(0, behind, &mut scratch.stores, &arguments, last as i64);
        }
    }

    /// Moves the split behind the last row of the frame.
    fn split(&self, rows: &mut PastRows, past: &Past, sums: &mut [u8], scratch: &mut Scratch, beside: usize) {
        let Some((first, last)) = self.ends(past) else { return };
        let Scratch { group, suffix, stores } = scratch;
        suffix.clear();
        suffix.resize(self.slots.bytes(), 0);
        // The distances of its rows, from the last to the first.
        let farthest = (past.count() - 1 - first).min(self.from.into()) as u32;
        for distance in self.until..=farthest {
            group.clear();
            group.resize(self.slots.bytes(), 0);
            if let Some(row) = rows.row(past, distance)
                && let Some(arguments) = self.columns.read(|column| row.value(column))
            {
                let number = (past.count() - 1).saturating_sub(distance.into());
                self.slots.add(0, group, stores, &arguments, number as i64);
            }
            self.slots.merge(group, 0, suffix, stores);
            std::mem::swap(group, suffix);
            if let Some(place) = rows.beside_mut(past, distance, beside) {
                place.copy_from_slice(suffix);
            }
        }
        store(sums, self.at, (last + 1).to_le_bytes());
        sums.iter_mut().skip(self.at + 8).take(self.slots.bytes()).for_each(|byte| *byte = 0);
    }

    /// Makes the parts of a key's frame anew from its rows, which came back: their sums are the same, but for the last bits of floats.
    pub(super) fn rebuild(&self, rows: &mut PastRows, past: &Past, sums: &mut [u8], scratch: &mut Scratch) {
        if let Some(beside) = self.beside {
            self.split(rows, past, sums, scratch, beside);
        }
    }

    /// Hands over the aggregate of the frame of the present row.
    pub(super) fn make(
        &self,
        rows: &PastRows,
        past: &Past,
        sums: &[u8],
        scratch: &mut Scratch,
        each: EachValue<'_>,
    ) -> Result<(), EvalError> {
        let Scratch { group, stores, .. } = scratch;
        group.clear();
        group.resize(self.slots.bytes(), 0);
        match (self.beside, self.ends(past)) {
            (Some(beside), Some((first, _))) => {
                let farthest = (past.count() - 1 - first) as u32;
                if first < u64::from_le_bytes(load(sums, self.at))
                    && let Some(before) = rows.beside(past, farthest, beside)
                {
                    group.copy_from_slice(before);
                }
                let behind = sums.get(self.at + 8..self.at + 8 + self.slots.bytes()).unwrap_or_default();
                self.slots.merge(group, 0, behind, stores);
            }
            _ => rows.each(past, (self.from, self.until), |row, number| {
                if let Some(arguments) = self.columns.read(|column| row.value(column)) {
                    self.slots.add(0, group, stores, &arguments, number as i64);
                }
            }),
        }
        let made = self.slots.result(0, group, stores).and_then(each);
        self.slots.clear(group, stores);
        made
    }
}
