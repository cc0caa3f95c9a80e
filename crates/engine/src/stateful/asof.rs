//! Joins of each row with the latest one of another input.

use crossdock_format::{Format, Record};
use crossdock_mailbox::MappedVec;
use crossdock_query::{AsofJoin, JoinKind, RowTime};

use super::arena::{Arena, Block};
use super::keys::{ENTRY_BYTES, KeyColumns, Keys, NONE};
use super::moment::{Budget, Emit, Lost, Made, Pair, TimedRows};
use super::pair::{CHUNK, emit_alone};
use super::rows::{Kept, List, ROW_BYTES, Rows};
use super::time_queue::TimeQueue;
use crate::saved::{SavedBytes, put_bytes, put_flag, put_i64};

/// The memory of left rows that have left which is kept for others: as much as waits where one stream comes a few packets behind the other.
const MOST_SPARE: usize = 1 << 20;

/// The state of such a join: by key, the right rows that left rows may need, and left rows that wait.
#[derive(Debug)]
pub(super) struct Asof {
    is_left: bool,
    is_strict: bool,
    waits: bool,
    formats: [Format; 2],
    columns: [KeyColumns; 2],
    keys: Keys,
    arena: Arena,
    /// Blocks of left rows that have left, for those that come, and the bytes that they take.
    spare: Vec<Block>,
    spare_bytes: usize,
    rows: Rows,
    /// By a key's number.
    of_key: MappedVec<OfKey>,
    /// The left rows that wait, by their times.
    waiting: TimeQueue<u32>,
    /// Of the rows that are taken, the left ones that have their partners and leave together, in order.
    paired: Vec<Paired>,
    key: Vec<u8>,
    pub(super) lost: Lost,
}

/// A left row that has its partner.
#[derive(Clone, Copy, Debug)]
struct Paired {
    /// Its place among the rows that are taken.
    place: usize,
    key: u32,
    /// Its right row.
    right: Block,
}

#[derive(Clone, Copy, Debug)]
struct OfKey {
    /// The right rows. A key that has some is linked among those in use.
    right: List,
    /// How many left rows wait.
    waiting: u32,
    /// Whether right rows are gone that came before those that are there.
    had_older: bool,
}

impl OfKey {
    const EMPTY: OfKey = OfKey { right: List::EMPTY, waiting: 0, had_older: false };
}

impl Asof {
    /// The state of a join of rows of two formats.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(join: &AsofJoin, formats: [&Format; 2]) -> Result<Asof, String> {
        let (left, right): (Vec<usize>, Vec<usize>) = join.keys.iter().copied().unzip();
        Ok(Asof {
            is_left: join.kind != JoinKind::Inner,
            is_strict: join.is_strict,
            waits: join.waits,
            formats: formats.map(Clone::clone),
            columns: [KeyColumns::of(formats[0], &left, true)?, KeyColumns::of(formats[1], &right, true)?],
            keys: Keys::default(),
            arena: Arena::default(),
            spare: Vec::new(),
            spare_bytes: 0,
            rows: Rows::default(),
            of_key: MappedVec::default(),
            waiting: TimeQueue::default(),
            paired: Vec::with_capacity(CHUNK),
            key: Vec::new(),
            lost: Lost::default(),
        })
    }

    /// Rows that it keeps.
    pub(super) fn kept(&self) -> usize {
        self.rows.len()
    }

    /// How many bytes are in use.
    pub(super) fn used(&self) -> usize {
        self.arena.used_but(self.spare_bytes)
            + self.rows.len() * ROW_BYTES
            + self.keys.len() * (ENTRY_BYTES + size_of::<OfKey>())
    }

    /// The least time of the left rows in the rows that it is yet to make. Where they do not wait, any may come.
    pub(super) fn given(&self, time: RowTime, [left, right]: [i64; 2]) -> i64 {
        if self.waits && time == RowTime::Left { left.min(right).min(self.first_waiting()) } else { i64::MIN }
    }

    /// The least time of the left rows that wait.
    fn first_waiting(&self) -> i64 {
        self.waiting.peek().map_or(i64::MAX, |(time, _)| time)
    }

    /// Whether a right row of this time is one for a left row.
    fn fits(&self, right: i64, left: i64) -> bool {
        right < left || (right == left && !self.is_strict)
    }

    /// Whether a row of a side leaves without a partner, where it finds none.
    pub(super) fn leaves_alone(&self, side: usize) -> bool {
        side == 0 && self.is_left
    }

    /// Takes rows of a side, at most a chunk, with their times; these are the marks before each of them.
    #[inline]
    pub(super) fn take(&mut self, side: usize, (rows, times): TimedRows<'_>, marks: [i64; 2], emit: Emit<'_>) {
        let own = usize::from(side != 0);
        let mut key = std::mem::take(&mut self.key);
        for (place, (bytes, time)) in rows.iter().zip(times).enumerate() {
            if self.waits && *time < marks[own] {
                self.lost.late += 1;
                continue;
            }
            let has_null = self.columns[own].read(&Record::assume_checked(&self.formats[own], bytes), &mut key);
            match (side, has_null) {
                (0, true) if self.is_left => {
                    self.emit_paired(rows, marks, emit);
                    emit_alone(0, bytes, emit);
                }
                (_, true) => {}
                (0, false) if self.waits && !is_ready(*time, marks[1], self.is_strict) => self.wait(bytes, &key, *time),
                (0, false) => self.take_left((rows, place), &key, (*time, marks), emit),
                (_, false) => self.take_right(bytes, &key, (*time, marks)),
            }
        }
        self.key = key;
        self.emit_paired(rows, marks, emit);
    }

    /// Keeps a left row until all right rows have come that it may need.
    fn wait(&mut self, bytes: &[u8], key: &[u8], time: i64) {
        let number = self.enter(key);
        let spare = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= spare.taken();
        // Rows of one length follow each other in the same blocks.
        let block = self.arena.replace(spare, bytes);
        let row = self.keep(block, number, time);
        self.of_key.get_mut(number as usize).into_iter().for_each(|of_key| of_key.waiting += 1);
        self.waiting.push(time, row);
    }

    /// Takes a left row that waits for none.
    #[inline]
    fn take_left(
        &mut self,
        (rows, place): (&[&[u8]], usize),
        key: &[u8],
        (time, marks): (i64, [i64; 2]),
        emit: Emit<'_>,
    ) {
        let number = self.keys.find(key, &self.arena).unwrap_or(NONE);
        if self.of_key.get(number as usize).is_some_and(|of_key| of_key.right != List::EMPTY) {
            self.keys.used(number, false);
        }
        if time < self.least_needed(marks) {
            // Those before it let go of a right row that it would find.
            self.emit_paired(rows, marks, emit);
        }
        if let Some(Kept { block: right, .. }) = self.latest(number, time) {
            return self.paired.push(Paired { place, key: number, right });
        }
        self.emit_paired(rows, marks, emit);
        self.leave_alone(number, rows.get(place).copied().unwrap_or_default(), emit);
        self.trim(number, self.least_needed(marks));
    }

    /// Keeps a row, in no list yet.
    #[inline]
    fn keep(&mut self, block: Block, key: u32, time: i64) -> u32 {
        self.rows.add(Kept { time, block, key, older: NONE, newer: NONE, is_matched: false })
    }

    fn enter(&mut self, key: &[u8]) -> u32 {
        let (number, is_new) = self.keys.enter(key, &mut self.arena);
        if is_new {
            if self.of_key.len() <= number as usize {
                self.of_key.resize(number as usize + 1, OfKey::EMPTY);
            }
            self.of_key[number as usize] = OfKey::EMPTY;
        }
        number
    }

    /// Emits a left row that has no partner, if such rows leave. It counts as late if that may be gone, because the row comes late.
    fn leave_alone(&mut self, number: u32, bytes: &[u8], emit: Emit<'_>) {
        let is_late = self.of_key.get(number as usize).is_some_and(|of_key| of_key.had_older);
        self.lost.late += u64::from(is_late);
        if self.is_left {
            emit_alone(0, bytes, emit);
        }
    }

    fn latest(&self, number: u32, time: i64) -> Option<Kept> {
        let list = self.of_key.get(number as usize)?.right;
        let until = if self.is_strict { time.checked_sub(1)? } else { time };
        self.rows.get(self.rows.last_until(list, until)).copied()
    }

    /// The least time of the left rows that are yet to be joined.
    fn least_needed(&self, [left_mark, right_mark]: [i64; 2]) -> i64 {
        if self.waits { left_mark.min(right_mark).min(self.first_waiting()) } else { left_mark }
    }

    /// Lets go of the right rows of a key that no left row from this time on can need.
    fn trim(&mut self, number: u32, least: i64) {
        let Some(mut list) = self.of_key.get(number as usize).map(|of_key| of_key.right) else { return };
        let mut had_older = false;
        while let Some(oldest) = self.rows.get(list.oldest)
            && self.rows.get(oldest.newer).is_some_and(|next| self.fits(next.time, least))
        {
            let gone = list.oldest;
            self.rows.unlink(&mut list, gone);
            self.rows.free(gone, &mut self.arena);
            had_older = true;
        }
        if let Some(of_key) = self.of_key.get_mut(number as usize).filter(|_| had_older) {
            (of_key.right, of_key.had_older) = (list, true);
        }
    }

    fn take_right(&mut self, bytes: &[u8], key: &[u8], (time, marks): (i64, [i64; 2])) {
        let number = self.enter(key);
        let block = self.arena.put(bytes);
        let row = self.keep(block, number, time);
        let Some(mut list) = self.of_key.get(number as usize).map(|of_key| of_key.right) else { return };
        self.keys.used(number, list == List::EMPTY);
        // Of rows of one time the last one counts; where the order of arrival must not, that with the greater bytes.
        let mut before = self.rows.last_until(list, time);
        while self.waits
            && let Some(other) = self.rows.get(before)
            && other.time == time
            && self.arena.get(other.block) > bytes
        {
            before = other.older;
        }
        self.rows.link(&mut list, row, before);
        if let Some(of_key) = self.of_key.get_mut(number as usize) {
            of_key.right = list;
        }
        self.trim(number, self.least_needed(marks));
    }

    /// Joins the left rows that have waited long enough, as far as the budget goes; returns whether there are more.
    #[inline]
    pub(super) fn release(&mut self, marks: [i64; 2], budget: &Budget, emit: Emit<'_>) -> bool {
        while self.is_due(marks) && !budget.is_spent() {
            let (mut due, mut count) = ([NONE; CHUNK], 0);
            let (is_strict, right_mark) = (self.is_strict, marks[1]);
            for place in &mut due {
                if budget.is_spent() {
                    break;
                }
                let Some(row) = self.waiting.pop_if(|time| is_ready(time, right_mark, is_strict)) else { break };
                budget.spend(1);
                *place = row;
                count += 1;
            }
            self.join_kept(due.get(..count).unwrap_or_default(), marks, emit);
        }
        self.is_due(marks)
    }

    /// Emits the left rows that have their partners, of those that are taken, and lets go of the right rows that no other one needs.
    #[inline]
    fn emit_paired(&mut self, rows: &[&[u8]], marks: [i64; 2], emit: Emit<'_>) {
        if self.paired.is_empty() {
            return;
        }
        let mut pairs: [Pair<'_>; CHUNK] = [[None; 2]; CHUNK];
        for (pair, Paired { place, right, .. }) in pairs.iter_mut().zip(&self.paired) {
            *pair = [rows.get(*place).copied(), Some(self.arena.get(*right))];
        }
        emit(Ok(Made::Pairs(pairs.get(..self.paired.len()).unwrap_or_default())));
        let (mut paired, least, mut last) = (std::mem::take(&mut self.paired), self.least_needed(marks), NONE);
        for Paired { key, .. } in paired.drain(..) {
            if std::mem::replace(&mut last, key) != key {
                self.trim(key, least);
            }
        }
        self.paired = paired;
    }

    /// Joins left rows that are kept, and lets go of them and of what no other one needs.
    fn join_kept(&mut self, rows: &[u32], marks: [i64; 2], emit: Emit<'_>) {
        self.emit_joined(rows, emit);
        let least = self.least_needed(marks);
        for row in rows {
            let Some(&Kept { key, .. }) = self.rows.get(*row) else { continue };
            self.trim(key, least);
            self.remove_left(*row, key);
        }
    }

    /// Whether the left row that waits for the least time has waited long enough.
    #[inline]
    fn is_due(&self, marks: [i64; 2]) -> bool {
        self.waiting.peek().is_some_and(|(time, _)| is_ready(time, marks[1], self.is_strict))
    }

    /// Emits left rows that are kept, at most a chunk of them, with their right ones.
    fn emit_joined(&self, due: &[u32], emit: Emit<'_>) {
        let (mut pairs, mut count): ([Pair<'_>; CHUNK], _) = ([[None; 2]; CHUNK], 0);
        for Kept { time, block, key, .. } in due.iter().filter_map(|row| self.rows.get(*row)) {
            let right = self.latest(*key, *time).map(|right| self.arena.get(right.block));
            if let Some(place) = pairs.get_mut(count)
                && (self.is_left || right.is_some())
            {
                *place = [Some(self.arena.get(*block)), right];
                count += 1;
            }
        }
        if count > 0 {
            emit(Ok(Made::Pairs(pairs.get(..count).unwrap_or_default())));
        }
    }

    fn remove_left(&mut self, row: u32, key: u32) {
        let block = self.rows.take_out(row);
        if self.spare_bytes + block.taken() <= MOST_SPARE {
            self.spare_bytes += block.taken();
            self.spare.push(block);
        } else {
            self.arena.free(block);
        }
        if let Some(of_key) = self.of_key.get_mut(key as usize) {
            of_key.waiting -= 1;
            if of_key.waiting == 0 && of_key.right == List::EMPTY {
                self.keys.remove(key, &mut self.arena);
            }
        }
    }

    /// Writes the right rows, key by key in the order in which the keys were used, and the left rows that wait.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        let of_key = |number: u32| self.of_key.get(number as usize).copied().unwrap_or(OfKey::EMPTY);
        for OfKey { right, had_older, .. } in self.keys.in_order_of_use().map(of_key) {
            let mut at = right.oldest;
            while let Some(kept) = self.rows.get(at) {
                put_flag(out, true);
                put_flag(out, had_older);
                put_i64(out, kept.time);
                put_bytes(out, self.arena.get(kept.block));
                at = kept.newer;
            }
        }
        put_flag(out, false);
        for (time, row) in self.waiting.iter() {
            let Some(kept) = self.rows.get(row) else { continue };
            put_flag(out, true);
            put_flag(out, of_key(kept.key).had_older);
            put_i64(out, time);
            put_i64(out, row.into());
            put_bytes(out, self.arena.get(kept.block));
        }
        put_flag(out, false);
    }

    /// Takes the rows that were written, into a join without any.
    ///
    /// # Errors
    /// They were not written by a join like this. It is of no use then.
    pub(super) fn restore(&mut self, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        while from.flag()? {
            let (had_older, time) = (from.flag()?, from.i64()?);
            let (number, row) = self.restore_row(1, (had_older, time), from)?;
            let Some(mut list) = self.of_key.get(number as usize).map(|of_key| of_key.right) else { continue };
            self.keys.used(number, list == List::EMPTY);
            let before = self.rows.last_until(list, time);
            self.rows.link(&mut list, row, before);
            self.of_key.get_mut(number as usize).into_iter().for_each(|of_key| of_key.right = list);
        }
        let mut waiting = Vec::new();
        while from.flag()? {
            let (had_older, time, place) = (from.flag()?, from.i64()?, from.i64()?);
            let (number, row) = self.restore_row(0, (had_older, time), from)?;
            self.of_key.get_mut(number as usize).into_iter().for_each(|of_key| of_key.waiting += 1);
            waiting.push((time, place, row));
        }
        // Those of one time leave in the order of their places.
        waiting.sort_unstable();
        waiting.into_iter().for_each(|(time, _, row)| self.waiting.push(time, row));
        Ok(())
    }

    /// Keeps a row of a side, in no list yet: the numbers of its key and of itself.
    fn restore_row(
        &mut self,
        side: usize,
        (had_older, time): (bool, i64),
        from: &mut SavedBytes<'_>,
    ) -> Result<(u32, u32), &'static str> {
        let format = &self.formats[side];
        let (bytes, mut key) = (from.row(format)?, Vec::new());
        if self.columns[side].read(&Record::assume_checked(format, bytes), &mut key) {
            return Err("a row of a join has no key");
        }
        let number = self.enter(&key);
        self.of_key.get_mut(number as usize).into_iter().for_each(|of_key| of_key.had_older |= had_older);
        let block = self.arena.put(bytes);
        Ok((number, self.keep(block, number, time)))
    }

    /// Forgets the oldest right row of the key that was not used for the longest, and the key with its last one; where there are no
    /// right rows, the left row that waits for the least time. Returns whether there was one.
    pub(super) fn forget(&mut self) -> bool {
        if let Some(number) = self.keys.oldest()
            && let Some(of_key) = self.of_key.get_mut(number as usize)
        {
            let row = of_key.right.oldest;
            self.rows.unlink(&mut of_key.right, row);
            self.rows.free(row, &mut self.arena);
            if of_key.right == List::EMPTY {
                self.keys.unlink(number);
                if of_key.waiting == 0 {
                    self.keys.remove(number, &mut self.arena);
                }
            }
        } else if let Some((_, row)) = self.waiting.pop() {
            if let Some(&Kept { key, .. }) = self.rows.get(row) {
                self.remove_left(row, key);
            }
        } else {
            return false;
        }
        self.lost.forgotten += 1;
        true
    }
}

/// Whether all right rows have come that a left row of this time may need.
#[inline]
fn is_ready(time: i64, right_mark: i64, is_strict: bool) -> bool {
    right_mark > time || (right_mark == time && is_strict)
}
