//! Blocks of bytes of any length, in one piece of memory that is used again.

use crossdock_mailbox::MappedVec;

/// Blocks begin at multiples of this many bytes.
const UNIT: usize = 16;

/// A line of the cache.
const LINE: usize = 64;

/// The most bytes of a block that are prefetched: the processor fetches the next ones of a long block itself once they are read in turn.
const MOST_AHEAD: usize = 1024;

/// The memory that free blocks take, beside as much as those in use, before it counts as in use.
pub(super) const MOST_LOOSE: usize = 1 << 15;

/// No block follows in a list of free ones.
const NONE: u32 = u32::MAX;

/// The units that there may be: each has a number, and none that of [`NONE`].
const MOST_UNITS: usize = NONE as usize;

/// Where a block is. Its default is an empty one, which takes no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Block {
    /// In units from the start.
    at: u32,
    /// Its length in bytes.
    len: u32,
}

impl Block {
    /// Its place and its length, in the form that a cell keeps.
    pub(super) fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.at) | u64::from(self.len) << 32).to_le_bytes()
    }

    /// The block of these bytes.
    pub(super) fn from_bytes(bytes: [u8; 8]) -> Block {
        let word = u64::from_le_bytes(bytes);
        Block { at: word as u32, len: (word >> 32) as u32 }
    }

    /// The block at a [place](Block::place).
    #[inline]
    pub(super) fn of(place: u32, len: u32) -> Block {
        Block { at: place, len }
    }

    /// Its place; no block is at that of an empty one.
    #[inline]
    pub(super) fn place(self) -> u32 {
        if self.len == 0 { NONE } else { self.at }
    }

    /// Its length in bytes.
    pub(super) fn len(self) -> usize {
        self.len as usize
    }

    /// The bytes that it takes.
    pub(super) fn taken(self) -> usize {
        rounded(self.len()) * UNIT
    }
}

/// Memory for blocks. Lengths are rounded up by a quarter at most. Free blocks that lie beside each other are one, and a block may be cut
/// from a longer free one, so that memory of long blocks serves short ones and the other way around.
#[derive(Debug)]
pub(super) struct Arena {
    bytes: MappedVec<u8>,
    /// By [class](floor_class) of length: the first free block. A free block has the numbers of the next and the previous one, and its
    /// length in units; the length stands at its end too.
    free: Vec<u32>,
    /// A bit for each class that has a free block.
    classes: u128,
    /// A bit for each unit that is the first or the last of a free block.
    ends: Vec<u64>,
    used: usize,
    /// It takes no memory beyond this many units.
    most: usize,
}

impl Default for Arena {
    fn default() -> Arena {
        let (bytes, free, ends) = (MappedVec::default(), Vec::new(), Vec::new());
        Arena { bytes, free, classes: 0, ends, used: 0, most: MOST_UNITS }
    }
}

impl Arena {
    /// How many bytes the blocks take that are in use; beyond [`MOST_LOOSE`] bytes at least half of the memory that is taken.
    pub(super) fn used(&self) -> usize {
        self.used_but(0)
    }

    /// The same without that many bytes of blocks that are free for their owner.
    pub(super) fn used_but(&self, spare: usize) -> usize {
        (self.used - spare).max((self.bytes.len() / 2).saturating_sub(MOST_LOOSE))
    }

    /// How many bytes the blocks take that are in use, whatever is free between them.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.used
    }

    /// Takes no more memory than blocks of that many bytes need together with the free ones between them: twice that, and
    /// [`MOST_LOOSE`] bytes. Memory that it has already stays.
    pub(super) fn bound(&mut self, bytes: usize) {
        self.most = (bytes.saturating_add(MOST_LOOSE).saturating_mul(2) / UNIT).min(MOST_UNITS);
    }

    /// Whether there is room for a block of this length.
    pub(super) fn has_room(&self, len: usize) -> bool {
        let units = rounded(len);
        self.fitting(units).is_some() || self.end().0 + units <= self.most
    }

    /// A block with a copy of these bytes. An empty one if there is [no room](Arena::has_room).
    pub(super) fn put(&mut self, data: &[u8]) -> Block {
        let block = self.alloc(data.len());
        if let Some(place) = self.get_mut(block).filter(|place| place.len() == data.len()) {
            place.copy_from_slice(data);
        }
        block
    }

    /// A block of this length, whose bytes may be anything. An empty one if there is [no room](Arena::has_room).
    pub(super) fn alloc(&mut self, len: usize) -> Block {
        if len == 0 {
            return Block::default();
        }
        let units = rounded(len);
        if u32::try_from(len).is_err() {
            return Block::default();
        }
        let Some(at) = self.take_free(units).or_else(|| self.extend(units)) else { return Block::default() };
        self.used += units * UNIT;
        Block { at, len: len as u32 }
    }

    /// The first free block of the shortest class in which all are long enough.
    fn fitting(&self, units: usize) -> Option<u32> {
        let class = class_of(units);
        let others = self.classes.checked_shr(class as u32).filter(|classes| *classes != 0)?;
        self.free.get(class + others.trailing_zeros() as usize).copied()
    }

    /// Cuts a block from the shortest class of free ones that are long enough.
    fn take_free(&mut self, units: usize) -> Option<u32> {
        let at = self.fitting(units)?;
        let there = self.unlink(at);
        if there > units {
            self.link(at + units as u32, there - units);
        }
        Some(at)
    }

    /// Where a block at the end begins, and whether a free one is there.
    fn end(&self) -> (usize, bool) {
        let end = self.bytes.len() / UNIT;
        match end > 0 && self.is_end(end - 1) {
            true => (end - self.word(end * UNIT - 4) as usize, true),
            false => (end, false),
        }
    }

    /// A block at the end. It begins with the last free one if that is there.
    fn extend(&mut self, units: usize) -> Option<u32> {
        let (at, is_free) = self.end();
        let start = u32::try_from(at).ok().filter(|_| at + units <= self.most)?;
        if is_free {
            self.unlink(start);
        }
        self.bytes.resize((at + units) * UNIT, 0);
        self.ends.resize((at + units).div_ceil(64), 0);
        Some(start)
    }

    /// Lets go of a block.
    pub(super) fn free(&mut self, block: Block) {
        if block.len == 0 {
            return;
        }
        let mut units = rounded(block.len as usize);
        self.used -= units * UNIT;
        let mut at = block.at as usize;
        let behind = at + units;
        if behind * UNIT < self.bytes.len() && self.is_end(behind) {
            units += self.unlink(behind as u32);
        }
        if at > 0 && self.is_end(at - 1) {
            let before = self.word(at * UNIT - 4) as usize;
            at -= before;
            self.unlink(at as u32);
            units += before;
        }
        if (at + units) * UNIT == self.bytes.len() {
            self.bytes.truncate(at * UNIT);
        } else {
            self.link(at as u32, units);
        }
    }

    /// Puts a free block before the others of its class.
    fn link(&mut self, at: u32, units: usize) {
        let class = floor_class(units);
        if self.free.len() <= class {
            self.free.resize(class + 1, NONE);
        }
        let next = std::mem::replace(&mut self.free[class], at);
        self.classes |= 1 << class;
        let start = at as usize * UNIT;
        self.set_word(start, next);
        self.set_word(start + 4, NONE);
        self.set_word(start + 8, units as u32);
        self.set_word(start + units * UNIT - 4, units as u32);
        if next != NONE {
            self.set_word(next as usize * UNIT + 4, at);
        }
        self.mark_ends(at as usize, units, true);
    }

    /// Takes a free block out; its length in units.
    fn unlink(&mut self, at: u32) -> usize {
        let start = at as usize * UNIT;
        let (next, before, units) = (self.word(start), self.word(start + 4), self.word(start + 8) as usize);
        if next != NONE {
            self.set_word(next as usize * UNIT + 4, before);
        }
        if before == NONE {
            let class = floor_class(units);
            self.free[class] = next;
            if next == NONE {
                self.classes &= !(1 << class);
            }
        } else {
            self.set_word(before as usize * UNIT, next);
        }
        self.mark_ends(at as usize, units, false);
        units
    }

    fn is_end(&self, unit: usize) -> bool {
        self.ends.get(unit / 64).is_some_and(|word| word >> (unit % 64) & 1 != 0)
    }

    fn mark_ends(&mut self, at: usize, units: usize, is_free: bool) {
        for unit in [at, at + units - 1] {
            if let Some(word) = self.ends.get_mut(unit / 64) {
                *word = *word & !(1 << (unit % 64)) | u64::from(is_free) << (unit % 64);
            }
        }
    }

    fn word(&self, at: usize) -> u32 {
        self.bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(NONE, |word| u32::from_le_bytes(*word))
    }

    fn set_word(&mut self, at: usize, word: u32) {
        if let Some(place) = self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *place = word.to_le_bytes();
        }
    }

    /// A block's bytes.
    #[inline]
    pub(super) fn get(&self, block: Block) -> &[u8] {
        let start = block.at as usize * UNIT;
        self.bytes.get(start..start + block.len as usize).unwrap_or_default()
    }

    /// A block's bytes, to be written.
    #[inline]
    pub(super) fn get_mut(&mut self, block: Block) -> Option<&mut [u8]> {
        let start = block.at as usize * UNIT;
        self.bytes.get_mut(start..start + block.len as usize)
    }

    /// The first bytes of the block at a place.
    #[inline]
    pub(super) fn first_bytes<const N: usize>(&self, place: u32) -> Option<[u8; N]> {
        self.bytes.get(place as usize * UNIT..)?.first_chunk().copied()
    }

    /// Asks for the cache lines of the first bytes of the block at a place: of a long one only the first lines.
    #[inline]
    pub(super) fn prefetch(&self, place: u32, bytes: usize) {
        let first = place as usize * UNIT;
        (first & !(LINE - 1)..first + bytes.min(MOST_AHEAD)).step_by(LINE).for_each(|at| self.bytes.prefetch(at));
    }

    /// A block of this length in place of this one: the same if it fits. Its bytes may be anything. An empty one if there is no room.
    #[inline]
    pub(super) fn renew(&mut self, block: Block, len: usize) -> Block {
        if block.len > 0 && len > 0 && rounded(block.len()) == rounded(len) {
            return Block { at: block.at, len: len as u32 };
        }
        self.free(block);
        self.alloc(len)
    }

    /// The same block with these bytes in place of its own, or another one if they do not fit.
    pub(super) fn replace(&mut self, block: Block, data: &[u8]) -> Block {
        let block = self.renew(block, data.len());
        if let Some(place) = self.get_mut(block).filter(|place| place.len() == data.len()) {
            place.copy_from_slice(data);
        }
        block
    }

    /// A block with the first bytes of this one and room for at least `len`; this one is gone. An empty one if there is no room.
    pub(super) fn grow(&mut self, block: Block, len: usize) -> Block {
        let grown = self.alloc(len);
        let (from, to) = (block.at as usize * UNIT, grown.at as usize * UNIT);
        let kept = block.len().min(grown.len());
        if from + kept <= self.bytes.len() && to + kept <= self.bytes.len() {
            self.bytes.copy_within(from..from + kept, to);
        }
        self.free(block);
        grown
    }
}

/// A length in units, rounded up to one of four between a power of two and the next.
#[inline]
fn rounded(len: usize) -> usize {
    let units = len.div_ceil(UNIT);
    if units <= 8 { units } else { units.next_multiple_of(1 << ((units - 1).ilog2() - 2)) }
}

/// The number of a rounded length: 1 unit has 0.
#[inline]
fn class_of(units: usize) -> usize {
    if units <= 8 {
        return units.saturating_sub(1);
    }
    let log = (units - 1).ilog2();
    8 + (log as usize - 3) * 4 + (units >> (log - 2)) - 5
}

/// The number of the longest rounded length that is not more than this.
fn floor_class(units: usize) -> usize {
    let step = units.ilog2().saturating_sub(2);
    class_of(if units <= 8 { units } else { units >> step << step })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_have_numbers_of_their_own() {
        let mut last = (0, 0);
        for len in 1..100_000 {
            let units = rounded(len);
            assert!(units * UNIT >= len && units * UNIT <= (len + UNIT) * 5 / 4 + UNIT, "{len}");
            let class = class_of(units);
            assert!((units, class) == last || (units > last.0 && (class == last.1 + 1 || last == (0, 0))), "{len}");
            last = (units, class);
            assert_eq!(floor_class(units), class, "{len}");
        }
        for units in 1..100_000 {
            let floor = floor_class(units);
            assert!(class_of(rounded(units * UNIT)) - floor <= 1, "{units}");
            assert_eq!(class_of(rounded(units * UNIT)) == floor, rounded(units * UNIT) == units, "{units}");
        }
    }

    /// First many short blocks, then, in their place, long ones, and short ones again.
    #[test]
    fn memory_of_one_length_serves_another() {
        let mut arena = Arena::default();
        let mut most = 0;
        let mut last = Vec::new();
        for len in [16, 1000, 40_000, 24, 5000] {
            let blocks: Vec<Block> = (0..2_000_000 / len).map(|_| arena.alloc(len)).collect();
            most = most.max(arena.bytes.len());
            // One behind them stays.
            last.push(arena.alloc(16));
            // Every second one first, so that free blocks have to be joined.
            blocks.iter().step_by(2).for_each(|block| arena.free(*block));
            blocks.iter().skip(1).step_by(2).for_each(|block| arena.free(*block));
        }
        assert!(most < 2_800_000, "{most}");
        last.into_iter().for_each(|block| arena.free(block));
        assert_eq!((arena.used(), arena.classes), (0, 0));
    }

    /// At its bound it refuses, and what it has keeps its bytes and its places.
    #[test]
    fn at_its_bound_it_has_no_room_and_is_whole() {
        let mut arena = Arena::default();
        arena.bound(0);
        let units = 2 * MOST_LOOSE / UNIT;
        let mut blocks: Vec<Block> = (0..units / 4).map(|number| arena.put(&[number as u8; 64])).collect();
        assert!(!arena.has_room(1) && arena.put(&[1]).len() == 0);
        // A free one at the end is too short, in whatever order it is asked.
        blocks.drain(units / 4 - 2..).for_each(|block| arena.free(block));
        blocks.push(arena.put(&[7; 16]));
        let last = arena.put(&[8; 96]);
        arena.free(last);
        for _ in 0..3 {
            assert!(arena.has_room(112) && !arena.has_room(128));
            assert_eq!(arena.alloc(128), Block::default());
            assert_eq!(arena.grow(Block::default(), 1000), Block::default());
        }
        let rest = arena.put(&[9; 112]);
        assert_eq!((arena.get(rest), arena.has_room(1)), (&[9; 112][..], false));
        for (number, block) in blocks.iter().enumerate().take(units / 4 - 2) {
            assert_eq!(arena.get(*block), [number as u8; 64]);
        }
        blocks.into_iter().chain([rest]).for_each(|block| arena.free(block));
        assert_eq!((arena.live(), arena.used(), arena.classes), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn blocks_keep_their_bytes(steps in prop::collection::vec((0..6usize, 0..300usize), 0..300)) {
            let mut arena = Arena::default();
            let mut kept: Vec<(Block, Vec<u8>)> = Vec::new();
            for (number, (what, len)) in steps.into_iter().enumerate() {
                let data = vec![number as u8; len];
                match what {
                    0..3 => kept.push((arena.put(&data), data)),
                    3 if !kept.is_empty() => arena.free(kept.swap_remove(len % kept.len()).0),
                    4 if !kept.is_empty() => {
                        let at = len % kept.len();
                        kept[at] = (arena.replace(kept[at].0, &data), data);
                    }
                    _ if !kept.is_empty() => {
                        let at = len % kept.len();
                        let longer = kept[at].1.len() + len;
                        kept[at].0 = arena.grow(kept[at].0, longer);
                        kept[at].1.resize(longer, 7);
                        let from = longer - len;
                        arena.get_mut(kept[at].0).unwrap()[from..].fill(7);
                    }
                    _ => {}
                }
                for (block, data) in &kept {
                    prop_assert_eq!(arena.get(*block), &data[..]);
                }
            }
            kept.drain(..).for_each(|(block, _)| arena.free(block));
            prop_assert_eq!(arena.used(), 0);
        }
    }
}
