//! Joins without bounds of time: the rows of both sides stay, by key, until the state has reached its bound; the oldest goes first.

use std::hint::black_box;

use crossdock_format::Record;

use super::super::arena::Block;
use super::super::moment::{Change, Emit};
use super::{Join, LAST, List};

/// All times.
const ALL: (i64, i64) = (i64::MIN, LAST);

/// The places in the queue of rows that were taken back, beside as many as there are rows, before they are removed.
const MOST_STALE: usize = 64;

impl Join {
    /// Takes a change of a side's rows.
    pub(in super::super) fn change(&mut self, side: usize, Change { before, after }: Change<'_>, emit: Emit<'_>) {
        let side = usize::from(side != 0);
        if let Some(row) = before {
            self.settle(emit);
            self.withdraw(side, row, emit);
        }
        let Some(row) = after else { return };
        let mut key = std::mem::take(&mut self.key);
        let has_null = self.columns[side].read(&Record::assume_checked(&self.formats[side], row), &mut key);
        let are_many = !has_null && self.gathered.push(row, &key, &self.keys, side);
        self.key = key;
        if are_many {
            self.settle(emit);
        }
    }

    /// Puts the rows in that were gathered.
    pub(in super::super) fn settle(&mut self, emit: Emit<'_>) {
        if self.gathered.is_empty() {
            return;
        }
        self.gathered.find(&self.keys);
        self.look_up();
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.drain(|row, key, hash, side| self.put(side, row, (key, hash), emit));
        self.gathered = gathered;
    }

    /// Looks at the newest rows of the keys of the gathered rows, step by step for all of them.
    fn look_up(&self) {
        let newest = |number: u32| {
            let lists = self.lists.get(number as usize).copied().unwrap_or([List::EMPTY; 2]);
            lists.map(|list| self.rows.get(list.newest).map(|row| row.block))
        };
        let known = || self.gathered.known();
        let mut sum: usize = known().flat_map(newest).flatten().map(Block::len).sum();
        for block in known().flat_map(newest).flatten() {
            sum += usize::from(self.arena.get(block).first().copied().unwrap_or(0));
        }
        black_box(sum);
    }

    fn put(&mut self, side: usize, row: &[u8], (key, hash): (&[u8], u32), emit: Emit<'_>) {
        let Some((number, is_new)) = self.keys.enter_hashed(key, hash, &mut self.arena) else {
            self.lost.forgotten += 1;
            return;
        };
        if self.lists.len() <= number as usize {
            self.lists.resize(number as usize + 1, [List::EMPTY; 2]);
        }
        if !is_new {
            self.match_with(1 - side, number, ALL, (row, true), emit);
        }
        self.arrived += 1;
        self.keep(side, number, (self.arrived, false), row);
    }

    /// Lets a row of a side go, and its pairs. It may have been forgotten.
    fn withdraw(&mut self, side: usize, row: &[u8], emit: Emit<'_>) {
        let mut key = std::mem::take(&mut self.key);
        let has_null = self.columns[side].read(&Record::assume_checked(&self.formats[side], row), &mut key);
        let found = if has_null { None } else { self.keys.find(&key, &self.arena) };
        self.key = key;
        let Some(number) = found else { return };
        let Some(mut at) = self.lists.get(number as usize).map(|lists| lists[side].newest) else { return };
        while let Some(kept) = self.rows.get(at) {
            if self.arena.get(kept.block) == row {
                self.match_with(1 - side, number, ALL, (row, false), emit);
                self.remove(side, at);
                break;
            }
            at = kept.older;
        }
        let [left, right] = self.by_time.each_ref().map(super::TimeQueue::len);
        if left + right > 2 * self.rows.len() + MOST_STALE {
            let rows = &self.rows;
            let is_there = |time: i64, row: &u32| rows.get(*row).is_some_and(|kept| kept.time == time);
            self.by_time.iter_mut().for_each(|queue| queue.retain(is_there));
        }
    }
}
