//! Joins without bounds of time: the rows of both sides stay, by key, until the state has reached its bound; the oldest goes first.

use crossdock_format::Record;

use super::super::arena::Block;
use super::super::moment::{Change, Emit, Made, Pair};
use super::super::pair::{CHUNK, PairCondition};
use super::{Join, Kept, LAST, List, pair_of};

/// All times.
const ALL: (i64, i64) = (i64::MIN, LAST);

/// The places in the queue of rows that were taken back, beside as many as there are rows, before they are removed.
const MOST_STALE: usize = 64;

/// Pairs of rows that were gathered with rows that are kept on a side: they leave together.
struct FoundPairs<'r> {
    pairs: [(&'r [u8], Block, usize); CHUNK],
    count: usize,
}

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
            self.put_last(emit);
        }
    }

    /// Puts the rows in that were gathered.
    pub(in super::super) fn settle(&mut self, emit: Emit<'_>) {
        while !self.gathered.is_empty() {
            self.put_last(emit);
        }
    }

    /// Puts the rows of the last group in.
    fn put_last(&mut self, emit: Emit<'_>) {
        let (last, most) = self.gathered.take_last();
        let mut found = FoundPairs { pairs: [(&[], Block::default(), 0); CHUNK], count: 0 };
        let mut rows = last.iter();
        for place in 0..most {
            self.prefetch_ahead(place);
            if let Some((row, key, hash, side)) = rows.next() {
                self.put(*side, row, (key, hash), &mut found, emit);
            }
        }
        self.emit_found(&mut found, emit);
        drop(rows);
        self.gathered.move_on(last);
    }

    #[inline]
    fn prefetch_ahead(&mut self, place: usize) {
        let Join { keys, lists, rows, arena, gathered, .. } = self;
        let newest =
            |number: u32| lists.get(number as usize).copied().unwrap_or([List::EMPTY; 2]).map(|list| list.newest);
        if let Some(number) = gathered.found(3, place) {
            let blocks = newest(number).into_iter().filter_map(|row| rows.get(row)).map(|row| row.block);
            blocks.for_each(|block| arena.prefetch(block.place(), block.len()));
        }
        if let Some(number) = gathered.found(2, place) {
            newest(number).into_iter().for_each(|row| rows.prefetch(row));
        }
        if let Some(number) = gathered.find(place, keys) {
            keys.prefetch_entry(number);
            lists.prefetch(number as usize);
        }
    }

    fn put<'r>(
        &mut self,
        side: usize,
        row: &'r [u8],
        (key, hash): (&[u8], u32),
        found: &mut FoundPairs<'r>,
        emit: Emit<'_>,
    ) {
        let Some((number, is_new)) = self.keys.enter_hashed(key, hash, &mut self.arena) else {
            self.lost.forgotten += 1;
            return;
        };
        if self.lists.len() <= number as usize {
            self.lists.resize(number as usize + 1, [List::EMPTY; 2]);
        }
        if !is_new {
            let mut newest = self.lists.get(number as usize).map_or(List::EMPTY, |lists| lists[1 - side]).newest;
            while let Some(&Kept { block, older, .. }) = self.rows.get(newest) {
                self.find((row, block, 1 - side), found, emit);
                newest = older;
            }
        }
        self.arrived += 1;
        self.keep(side, number, (self.arrived, false), row);
    }

    /// Notes the pair of a row and one that is kept on a side, if the conditions hold for it.
    #[inline]
    fn find<'r>(&mut self, (row, block, others): (&'r [u8], Block, usize), found: &mut FoundPairs<'r>, emit: Emit<'_>) {
        let pair = pair_of(row, self.arena.get(block), others);
        let PairCondition::Tests(tests) = &self.condition else {
            self.condition.emit(pair, true, emit);
            return;
        };
        if tests.hold_pair(pair)
            && let Some(place) = found.pairs.get_mut(found.count)
        {
            *place = (row, block, others);
            found.count += 1;
            if found.count == CHUNK {
                self.emit_found(found, emit);
            }
        }
    }

    fn emit_found(&self, found: &mut FoundPairs<'_>, emit: Emit<'_>) {
        let mut pairs: [Pair<'_>; CHUNK] = [[None; 2]; CHUNK];
        for (pair, (row, block, others)) in pairs.iter_mut().zip(found.pairs.iter().take(found.count)) {
            *pair = pair_of(row, self.arena.get(*block), *others);
        }
        if found.count > 0 {
            emit(Ok(Made::Pairs(pairs.get(..found.count).unwrap_or_default())));
        }
        found.count = 0;
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
