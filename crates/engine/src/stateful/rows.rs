//! Rows that a join keeps, in lists by key that are in order of time.

use crossdock_mailbox::MappedVec;

use super::arena::{Arena, Block};
use super::keys::NONE;

/// Rows by numbers that are used again once a row is gone.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: MappedVec<Kept>,
    first_vacant: Option<u32>,
    there: usize,
}

/// A row that is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) time: i64,
    pub(super) block: Block,
    /// The number of its key; of a row without one, none.
    pub(super) key: u32,
    /// The rows of its list before and behind it.
    pub(super) older: u32,
    pub(super) newer: u32,
    /// Whether a partner was found.
    pub(super) is_matched: bool,
}

/// The ends of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct List {
    pub(super) oldest: u32,
    pub(super) newest: u32,
}

impl List {
    /// A list of no rows.
    pub(super) const EMPTY: List = List { oldest: NONE, newest: NONE };
}

/// The bytes that a row takes besides its own, with a place in a heap.
pub(super) const ROW_BYTES: usize = size_of::<Kept>() + 16;

impl Rows {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.there
    }

    /// A row.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Kept> {
        self.rows.get(number as usize)
    }

    /// Asks for the memory of a row.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        self.rows.prefetch(number as usize);
    }

    /// Notes that a row has a partner.
    pub(super) fn set_matched(&mut self, number: u32) {
        if let Some(row) = self.rows.get_mut(number as usize) {
            row.is_matched = true;
        }
    }

    /// Keeps a row, in no list yet.
    pub(super) fn add(&mut self, row: Kept) -> u32 {
        self.there += 1;
        if let Some(number) = self.first_vacant
            && let Some(vacant) = self.rows.get_mut(number as usize)
        {
            self.first_vacant = Some(vacant.newer).filter(|next| *next != NONE);
            *vacant = row;
            return number;
        }
        self.rows.push(row);
        self.rows.len() as u32 - 1
    }

    /// Puts a row into a list, behind this one (or first).
    pub(super) fn link(&mut self, list: &mut List, number: u32, older: u32) {
        let newer = match self.rows.get_mut(older as usize) {
            Some(older) => std::mem::replace(&mut older.newer, number),
            None => std::mem::replace(&mut list.oldest, number),
        };
        match self.rows.get_mut(newer as usize) {
            Some(newer) => newer.older = number,
            None => list.newest = number,
        }
        if let Some(row) = self.rows.get_mut(number as usize) {
            (row.older, row.newer) = (older, newer);
        }
    }

    /// The newest row of a list that is not after this time. Looked for from both ends: its place is near the newest where the streams run
    /// beside each other, and near the oldest where this list's stream runs ahead.
    #[inline]
    pub(super) fn last_until(&self, list: List, time: i64) -> u32 {
        let (mut oldest, mut newest) = (list.oldest, list.newest);
        loop {
            match self.get(newest) {
                Some(row) if row.time > time => newest = row.older,
                Some(_) => return newest,
                None => return NONE,
            }
            match self.get(oldest) {
                Some(row) if row.time <= time => oldest = row.newer,
                Some(row) => return row.older,
                None => return NONE,
            }
        }
    }

    /// Takes a row out of its list.
    pub(super) fn unlink(&mut self, list: &mut List, number: u32) {
        let Some(&Kept { older, newer, .. }) = self.rows.get(number as usize) else { return };
        match self.rows.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => list.oldest = newer,
        }
        match self.rows.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => list.newest = older,
        }
    }

    /// Lets go of a row that is in no list.
    pub(super) fn free(&mut self, number: u32, arena: &mut Arena) {
        arena.free(self.take_out(number));
    }

    /// The same, but for its bytes: the block of these.
    #[inline]
    pub(super) fn take_out(&mut self, number: u32) -> Block {
        let Some(row) = self.rows.get_mut(number as usize) else { return Block::default() };
        row.time = i64::MIN;
        row.newer = self.first_vacant.replace(number).unwrap_or(NONE);
        self.there -= 1;
        std::mem::take(&mut row.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_until_a_time_is_found_from_both_ends() {
        let (mut rows, mut list) = (Rows::default(), List::EMPTY);
        assert_eq!(rows.last_until(list, 5), NONE);
        for time in [1, 3, 3, 4, 9, 12] {
            let block = Block::default();
            let row = rows.add(Kept { time, block, key: 0, older: NONE, newer: NONE, is_matched: false });
            let before = rows.last_until(list, time);
            rows.link(&mut list, row, before);
        }
        let found: Vec<u32> = (0..14).map(|time| rows.last_until(list, time)).collect();
        assert_eq!(found, [NONE, 0, 0, 2, 3, 3, 3, 3, 3, 4, 4, 4, 5, 5]);
    }
}
