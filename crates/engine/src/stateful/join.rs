//! Joins of rows whose times are near each other; [without bounds](unbounded) of all rows that are kept.

mod unbounded;

use crossdock_format::{Format, Record};
use crossdock_mailbox::MappedVec;
use crossdock_query::{IntervalJoin, JoinKind, RowTime};

use super::arena::Arena;
use super::gathered::Gathered;
use super::keys::{ENTRY_BYTES, KeyColumns, Keys, NONE};
use super::moment::{Budget, Emit, Lost, Moment, Pair};
use super::pair::{PairCondition, Sides, emit_alone};
use super::rows::{Kept, List, ROW_BYTES, Rows};
use super::time_queue::TimeQueue;
use crate::saved::{SavedBytes, counted, put_bytes, put_flag, put_i64};

/// No row has a later time: the mark of a stream that has ended is behind it.
const LAST: i64 = i64::MAX - 1;
/// Groups of rows that are gathered: of the second one the entries and lists of keys are prefetched, of the third one the newest rows in
/// these, of the fourth one their blocks.
const DEPTH: usize = 5;

/// A range without a time in it.
const NO_TIMES: (i64, i64) = (i64::MAX, i64::MIN);

/// The state of such a join. Pairs leave when the second row comes, so their order is that of arrival; which pairs there are does
/// not depend on it.
#[derive(Debug)]
pub(super) struct Join {
    kind: JoinKind,
    /// The least and the greatest time of the right row less the left one's.
    within: (i64, i64),
    formats: [Format; 2],
    columns: [KeyColumns; 2],
    keys: Keys,
    arena: Arena,
    rows: Rows,
    /// By a key's number: the rows of both sides.
    lists: MappedVec<[List; 2]>,
    /// The rows of both sides by their times.
    by_time: [TimeQueue<u32>; 2],
    condition: PairCondition,
    key: Vec<u8>,
    /// Without bounds: rows are numbered as they come, and their numbers are their times.
    pub(super) is_bounded: bool,
    arrived: i64,
    /// Of a join without bounds, the rows that are yet to be put in, with their sides.
    gathered: Gathered<usize, DEPTH>,
    pub(super) lost: Lost,
}

/// A row and its partner, which is of this side.
#[inline]
fn pair_of<'r>(row: &'r [u8], partner: &'r [u8], others: usize) -> Pair<'r> {
    if others == 1 { [Some(row), Some(partner)] } else { [Some(partner), Some(row)] }
}

impl Join {
    /// The state of a join of rows of two formats.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(join: &IntervalJoin, formats: [&Format; 2], rows: &Format) -> Result<Join, String> {
        let (left, right): (Vec<usize>, Vec<usize>) = join.keys.iter().copied().unzip();
        let sides = Sides::new(formats, (0..formats[1].fields().len()).collect(), rows)?;
        Ok(Join {
            kind: join.kind,
            within: join.within_ns,
            formats: formats.map(Clone::clone),
            columns: [KeyColumns::of(formats[0], &left, true)?, KeyColumns::of(formats[1], &right, true)?],
            keys: Keys::default(),
            arena: Arena::default(),
            rows: Rows::default(),
            lists: MappedVec::default(),
            by_time: Default::default(),
            condition: PairCondition::of(join.condition.as_ref(), &sides),
            key: Vec::new(),
            is_bounded: join.is_bounded(),
            arrived: 0,
            gathered: Gathered::default(),
            lost: Lost::default(),
        })
    }

    /// Rows that it keeps.
    pub(super) fn kept(&self) -> usize {
        self.rows.len()
    }

    /// Whether rows were put in since this was last asked; those of a join with bounds are at once.
    #[inline]
    pub(super) fn has_put_since(&mut self) -> bool {
        self.is_bounded || self.gathered.has_put_since()
    }

    /// How many bytes are in use.
    pub(super) fn used(&self) -> usize {
        self.arena.used() + self.rows.len() * ROW_BYTES + self.keys.len() * (ENTRY_BYTES + size_of::<[List; 2]>())
    }

    /// The least time of a side's rows in the rows that it is yet to make: in a pair one is new, and the other its partner; a row without
    /// one is new, or its last partner's time is not past.
    pub(super) fn given(&self, time: RowTime, marks: [i64; 2]) -> i64 {
        let ((least, most), [left, right]) = (self.within, marks);
        let due = |side| self.expired(side, marks).map_or(i64::MAX, |(time, _)| time);
        match time {
            RowTime::Left => left.min(right.saturating_sub(most)).min(due(0)),
            RowTime::Right => right.min(left.saturating_add(least)).min(due(1)),
            RowTime::WindowStart | RowTime::WindowEnd | RowTime::Closed => i64::MIN,
        }
    }

    /// The least and the greatest time of the partners of a row of a side; the greatest is less where they would all be beyond the times.
    /// It is before the mark of a stream that has ended, so that the row leaves then.
    #[inline]
    fn partners(&self, side: usize, time: i64) -> (i64, i64) {
        let (least, most) = self.within;
        let (least, most) = if side == 0 { (least, most) } else { (most.saturating_neg(), least.saturating_neg()) };
        match (time.checked_add(least), time.checked_add(most)) {
            (Some(first), Some(last)) => (first, last.min(LAST)),
            (None, _) if least > 0 => NO_TIMES,
            (_, None) if most < 0 => NO_TIMES,
            _ => (time.saturating_add(least), time.saturating_add(most).min(LAST)),
        }
    }

    /// Whether a row of a side leaves without a partner, where it finds none.
    pub(super) fn leaves_alone(&self, side: usize) -> bool {
        self.kind == JoinKind::Full || (side == 0 && self.kind == JoinKind::Left)
    }

    /// Takes a row of a side.
    pub(super) fn take(&mut self, side: usize, bytes: &[u8], moment: Moment, emit: Emit<'_>) {
        let (own, others) = if side == 0 { (0, 1) } else { (1, 0) };
        if moment.time < moment.marks[own] {
            self.lost.late += 1;
            return;
        }
        let mut key = std::mem::take(&mut self.key);
        let has_null = self.columns[own].read(&Record::assume_checked(&self.formats[own], bytes), &mut key);
        if has_null {
            self.key = key;
            if self.leaves_alone(own) {
                emit_alone(own, bytes, emit);
            }
            return;
        }
        let (number, is_new) = self.keys.enter(&key, &mut self.arena);
        self.key = key;
        if self.lists.len() <= number as usize {
            self.lists.resize(number as usize + 1, [List::EMPTY; 2]);
        }
        let (least, most) = self.partners(own, moment.time);
        let is_matched = !is_new && self.match_with(others, number, (least, most), (bytes, true), emit);
        if most < moment.marks[others] || most < least {
            // No partner can come any more.
            if !is_matched && self.leaves_alone(own) {
                emit_alone(own, bytes, emit);
            }
            return self.remove_key(number);
        }
        self.keep(own, number, (moment.time, is_matched), bytes);
    }

    /// Keeps a row under its key, behind those that are not later.
    fn keep(&mut self, own: usize, key: u32, (time, is_matched): (i64, bool), bytes: &[u8]) {
        let block = self.arena.put(bytes);
        let row = self.rows.add(Kept { time, block, key, older: NONE, newer: NONE, is_matched });
        if let Some(lists) = self.lists.get_mut(key as usize) {
            let before = self.rows.last_until(lists[own], time);
            self.rows.link(&mut lists[own], row, before);
        }
        self.by_time[own].push(time, row);
    }

    /// Emits the pairs of a row with those of a key on the other side, as ones that come or, if the row does not come, ones that go;
    /// returns whether there is one.
    fn match_with(
        &mut self,
        others: usize,
        number: u32,
        (least, most): (i64, i64),
        (bytes, comes): (&[u8], bool),
        emit: Emit<'_>,
    ) -> bool {
        let Join { arena, rows, lists, condition, .. } = self;
        let mut at = lists.get(number as usize).map_or(NONE, |lists| rows.last_until(lists[others], most));
        let mut is_matched = false;
        while let Some(&Kept { time, block, older, .. }) = rows.get(at) {
            if time < least {
                break;
            }
            let partner = arena.get(block);
            if condition.emit(pair_of(bytes, partner, others), comes, emit) {
                rows.set_matched(at);
                is_matched = true;
            }
            at = older;
        }
        is_matched
    }

    fn remove_key(&mut self, number: u32) {
        if self.lists.get(number as usize) == Some(&[List::EMPTY; 2]) {
            self.keys.remove(number, &mut self.arena);
        }
    }

    /// The next row of a side, if no partner can come any more for it.
    fn expired(&self, side: usize, marks: [i64; 2]) -> Option<(i64, u32)> {
        let (time, row) = self.by_time[side].peek()?;
        (self.partners(side, time).1 < marks[1 - side]).then_some((time, row))
    }

    /// Lets go of the rows for which no partner can come any more, as far as the budget goes; returns whether there are more. They leave
    /// alone if they found none and are to.
    #[inline]
    pub(super) fn expire(&mut self, marks: [i64; 2], budget: &Budget, emit: Emit<'_>) -> bool {
        if !self.is_bounded {
            return false;
        }
        for side in [0, 1] {
            while let Some((_, row)) = self.expired(side, marks) {
                if budget.is_spent() {
                    return true;
                }
                budget.spend(1);
                self.by_time[side].pop();
                if self.leaves_alone(side)
                    && let Some(kept) = self.rows.get(row).filter(|kept| !kept.is_matched)
                {
                    emit_alone(side, self.arena.get(kept.block), emit);
                }
                self.remove(side, row);
            }
        }
        false
    }

    fn remove(&mut self, side: usize, row: u32) {
        let Some(&Kept { key, .. }) = self.rows.get(row) else { return };
        if let Some(lists) = self.lists.get_mut(key as usize) {
            self.rows.unlink(&mut lists[side], row);
        }
        self.rows.free(row, &mut self.arena);
        self.remove_key(key);
    }

    /// Writes the rows of both sides, key by key.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        for (side, list) in self.lists.iter().flat_map(|lists| lists.iter().enumerate()) {
            let mut at = list.oldest;
            while let Some(kept) = self.rows.get(at) {
                put_flag(out, true);
                put_flag(out, side != 0);
                put_flag(out, kept.is_matched);
                put_i64(out, kept.time);
                put_bytes(out, self.arena.get(kept.block));
                at = kept.newer;
            }
        }
        put_flag(out, false);
    }

    /// Takes the rows that were written, into a join without any.
    ///
    /// # Errors
    /// They were not written by a join like this. It is of no use then.
    pub(super) fn restore(&mut self, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        let (mut by_time, mut key) = ([Vec::new(), Vec::new()], Vec::new());
        while from.flag()? {
            let (side, is_matched) = (usize::from(from.flag()?), from.flag()?);
            let (time, bytes) = (from.i64()?, from.row(&self.formats[side])?);
            if !self.is_bounded {
                self.arrived = self.arrived.max(counted(time as u64)? as i64);
            }
            if self.columns[side].read(&Record::assume_checked(&self.formats[side], bytes), &mut key) {
                return Err("a row of a join has no key");
            }
            let (number, _) = self.keys.enter(&key, &mut self.arena);
            if self.lists.len() <= number as usize {
                self.lists.resize(number as usize + 1, [List::EMPTY; 2]);
            }
            let block = self.arena.put(bytes);
            let row = self.rows.add(Kept { time, block, key: number, older: NONE, newer: NONE, is_matched });
            if let Some(lists) = self.lists.get_mut(number as usize) {
                let before = self.rows.last_until(lists[side], time);
                self.rows.link(&mut lists[side], row, before);
            }
            by_time[side].push((time, row));
        }
        for (queue, mut rows) in self.by_time.iter_mut().zip(by_time) {
            rows.sort_unstable();
            rows.into_iter().for_each(|(time, row)| queue.push(time, row));
        }
        Ok(())
    }

    /// Forgets the row of the least time; returns whether there was one.
    pub(super) fn forget(&mut self) -> bool {
        loop {
            let time = |side: usize| self.by_time[side].peek().map(|(time, _)| time);
            let side = match (time(0), time(1)) {
                (Some(left), Some(right)) => usize::from(right < left),
                (left, _) => usize::from(left.is_none()),
            };
            let Some((time, row)) = self.by_time[side].pop() else { return false };
            // One that was taken back has left its place in the queue.
            if self.rows.get(row).is_some_and(|kept| kept.time == time) {
                self.remove(side, row);
                self.lost.forgotten += 1;
                return true;
            }
        }
    }
}
