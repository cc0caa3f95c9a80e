//! Rows in the order of their keys' bytes, which are found by key and, those at the front, by rank.

use std::cmp::Ordering;

use super::arena::{Arena, Block};

/// The most rows of a piece: to put one in moves no more places than that.
const PIECE_ROWS: usize = 256;
/// The bytes that a row takes beside its block: a place in a piece that may be half full.
const PLACE_BYTES: usize = 2 * size_of::<Block>();
/// The bytes of a length behind a row and its key.
const LENGTH_BYTES: usize = 4;

/// The rows. Keys are compared as bytes, and each is there once.
#[derive(Debug, Default)]
pub(crate) struct Ranked {
    arena: Arena,
    /// The blocks in order, in pieces that are not empty. A block has a row, its key behind it, and the row's length.
    pieces: Vec<Vec<Block>>,
    rows: usize,
}

impl Ranked {
    /// Without rows; with room for about as many bytes of them.
    pub(crate) fn bounded(max_bytes: usize) -> Ranked {
        let mut ranked = Ranked::default();
        ranked.arena.bound(max_bytes);
        ranked
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// How many bytes they take.
    pub(crate) fn used(&self) -> usize {
        self.arena.used() + self.rows * PLACE_BYTES + self.pieces.len() * size_of::<Vec<Block>>()
    }

    /// Puts a row in, in the place of the one of this key if it is there. Returns how many stand before it, or `most` if those are
    /// more; nothing if there is no room for it.
    pub(crate) fn insert(&mut self, key: &[u8], row: &[u8], most: usize) -> Option<usize> {
        let block = self.put(key, row)?;
        let (piece, place) = match self.find(key) {
            (piece, Ok(place)) => {
                let there = self.pieces.get_mut(piece).and_then(|blocks| blocks.get_mut(place));
                let before = there.map(|there| std::mem::replace(there, block)).unwrap_or_default();
                self.arena.free(before);
                return Some(self.rank(piece, place, most));
            }
            // Behind all others.
            (piece, Err(_)) if piece == self.pieces.len() => {
                if piece == 0 {
                    self.pieces.push(Vec::new());
                }
                let last = self.pieces.len() - 1;
                (last, self.pieces[last].len())
            }
            (piece, Err(place)) => (piece, place),
        };
        let blocks = &mut self.pieces[piece];
        blocks.insert(place, block);
        self.rows += 1;
        if blocks.len() > PIECE_ROWS {
            let behind = blocks.split_off(PIECE_ROWS / 2);
            self.pieces.insert(piece + 1, behind);
            if place >= PIECE_ROWS / 2 {
                return Some(self.rank(piece + 1, place - PIECE_ROWS / 2, most));
            }
        }
        Some(self.rank(piece, place, most))
    }

    /// The row of this key, to be written.
    pub(crate) fn row_mut(&mut self, key: &[u8]) -> Option<&mut [u8]> {
        let (piece, Ok(place)) = self.find(key) else { return None };
        let block = *self.pieces.get(piece)?.get(place)?;
        let length = self.row(block).len();
        self.arena.get_mut(block)?.get_mut(..length)
    }

    /// The first key that is not less than this one.
    pub(crate) fn first_from(&self, key: &[u8]) -> Option<&[u8]> {
        self.entry_from(key).map(|(key, _)| key)
    }

    /// The same with its row.
    pub(crate) fn entry_from(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let (piece, Ok(place) | Err(place)) = self.find(key);
        self.pieces.get(piece)?.get(place).map(|block| (self.key(*block), self.row(*block)))
    }

    /// The last key that is less than this one.
    pub(crate) fn last_before(&self, key: &[u8]) -> Option<&[u8]> {
        let (piece, Ok(place) | Err(place)) = self.find(key);
        let block = match place.checked_sub(1) {
            Some(before) => self.pieces.get(piece)?.get(before),
            None => self.pieces.get(piece.checked_sub(1)?)?.last(),
        };
        block.map(|block| self.key(*block))
    }

    /// Takes the row of this key out, into `row`. Returns how many stand before it, or `most` if those are more; nothing if there is
    /// no such row.
    pub(crate) fn remove(&mut self, key: &[u8], row: &mut Vec<u8>, most: usize) -> Option<usize> {
        let (piece, Ok(place)) = self.find(key) else { return None };
        let rank = self.rank(piece, place, most);
        let block = self.take(piece, place);
        row.clear();
        row.extend_from_slice(self.row(block));
        self.arena.free(block);
        Some(rank)
    }

    /// Lets the last row go.
    pub(crate) fn remove_last(&mut self) {
        let Some(last) = self.pieces.len().checked_sub(1) else { return };
        let Some(place) = self.pieces[last].len().checked_sub(1) else { return };
        let block = self.take(last, place);
        self.arena.free(block);
    }

    /// The row behind this number of others.
    pub(crate) fn at(&self, rank: usize) -> Option<&[u8]> {
        let mut before = rank;
        for blocks in &self.pieces {
            match blocks.get(before) {
                Some(block) => return Some(self.row(*block)),
                None => before -= blocks.len(),
            }
        }
        None
    }

    /// Takes a block out of its piece, which joins one beside it where both are short: so two pieces beside each other are never so.
    fn take(&mut self, piece: usize, place: usize) -> Block {
        let block = self.pieces[piece].remove(place);
        self.rows -= 1;
        let (len, next) = (self.pieces[piece].len(), self.pieces.get(piece + 1).map_or(0, Vec::len));
        if len == 0 {
            self.pieces.remove(piece);
        } else if next > 0 && len + next <= PIECE_ROWS / 2 {
            let behind = self.pieces.remove(piece + 1);
            self.pieces[piece].extend_from_slice(&behind);
        } else if piece > 0 && self.pieces[piece - 1].len() + len <= PIECE_ROWS / 2 {
            let behind = self.pieces.remove(piece);
            self.pieces[piece - 1].extend_from_slice(&behind);
        }
        block
    }

    /// The piece of a key, and its place there or the one where it would be.
    fn find(&self, key: &[u8]) -> (usize, Result<usize, usize>) {
        let ends_before = |blocks: &Vec<Block>| blocks.last().is_some_and(|last| self.key(*last) < key);
        let piece = self.pieces.partition_point(ends_before);
        let order = |block: &Block| -> Ordering { self.key(*block).cmp(key) };
        (piece, self.pieces.get(piece).map_or(Err(0), |blocks| blocks.binary_search_by(order)))
    }

    fn rank(&self, piece: usize, place: usize, most: usize) -> usize {
        let mut rank = place;
        for blocks in self.pieces.iter().take(piece) {
            rank += blocks.len();
            if rank >= most {
                break;
            }
        }
        rank.min(most)
    }

    fn put(&mut self, key: &[u8], row: &[u8]) -> Option<Block> {
        let block = self.arena.alloc(row.len() + key.len() + LENGTH_BYTES);
        // An empty block where there is no room.
        let (of_row, rest) = self.arena.get_mut(block)?.split_at_mut_checked(row.len())?;
        let (of_key, of_length) = rest.split_at_mut_checked(key.len())?;
        of_row.copy_from_slice(row);
        of_key.copy_from_slice(key);
        of_length.first_chunk_mut::<LENGTH_BYTES>()?.copy_from_slice(&(row.len() as u32).to_le_bytes());
        Some(block)
    }

    fn parts(&self, block: Block) -> (&[u8], &[u8]) {
        let Some((bytes, length)) = self.arena.get(block).split_last_chunk::<LENGTH_BYTES>() else { return (&[], &[]) };
        bytes.split_at_checked(u32::from_le_bytes(*length) as usize).unwrap_or_default()
    }

    fn row(&self, block: Block) -> &[u8] {
        self.parts(block).0
    }

    fn key(&self, block: Block) -> &[u8] {
        self.parts(block).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn rows_have_the_ranks_of_a_sorted_list(
            steps in prop::collection::vec((any::<bool>(), 0..2000u32, 0..40usize), 1..3000), most in 1..600usize,
        ) {
            let (mut ranked, mut model) = (Ranked::default(), BTreeMap::new());
            let mut row = Vec::new();
            for (inserts, number, length) in steps {
                // Keys of several lengths: some are the beginnings of others.
                let key = number.to_string().into_bytes();
                let rank = model.range(..key.clone()).count().min(most);
                if inserts {
                    let row = vec![number as u8; length];
                    prop_assert_eq!(ranked.insert(&key, &row, most), Some(rank));
                    model.insert(key, row);
                } else {
                    let there = model.remove(&key);
                    prop_assert_eq!(ranked.remove(&key, &mut row, most), there.as_ref().map(|_| rank));
                    there.iter().for_each(|there| assert_eq!(&row, there));
                }
                prop_assert_eq!(ranked.len(), model.len());
            }
            for key in [&b"0"[..], b"1000", b"42", b"9", b"z"] {
                let (from, before) = (model.range(key.to_vec()..).next(), model.range(..key.to_vec()).next_back());
                prop_assert_eq!(ranked.first_from(key), from.map(|(key, _)| key.as_slice()));
                prop_assert_eq!(ranked.last_before(key), before.map(|(key, _)| key.as_slice()));
                prop_assert_eq!(ranked.row_mut(key).map(|row| row.to_vec()), model.get(key).cloned());
            }
            let rows: Vec<&[u8]> = (0..).map_while(|rank| ranked.at(rank)).collect();
            prop_assert_eq!(rows, model.values().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert!(ranked.pieces.iter().all(|blocks| !blocks.is_empty() && blocks.len() <= PIECE_ROWS));
            let short = |two: &[Vec<Block>]| two[0].len() + two[1].len() <= PIECE_ROWS / 2;
            prop_assert!(!ranked.pieces.windows(2).any(short));
            while ranked.len() > 0 {
                ranked.remove_last();
            }
            prop_assert_eq!(ranked.used(), 0);
        }
    }
}
