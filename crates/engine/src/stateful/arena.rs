//! Blocks of bytes of any length, in one piece of memory that is used again.

/// Blocks begin at multiples of this many bytes.
const UNIT: usize = 16;

/// No block follows in a list of free ones.
const NONE: u32 = u32::MAX;

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

    /// Its length in bytes.
    pub(super) fn len(self) -> usize {
        self.len as usize
    }
}

/// Memory for blocks. Freed ones are used again for blocks of about the same length: lengths are rounded up by a quarter at most.
#[derive(Debug, Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    /// For each rounded length, the first of the free blocks; its first four bytes lead to the next one.
    free: Vec<u32>,
    used: usize,
}

impl Arena {
    /// How many bytes the blocks take that are in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// A block with a copy of these bytes.
    pub(super) fn put(&mut self, data: &[u8]) -> Block {
        let block = self.alloc(data.len());
        if let Some(place) = self.get_mut(block) {
            place.copy_from_slice(data);
        }
        block
    }

    /// A block of this length, whose bytes may be anything. An empty one if there is no room in 64 GiB.
    pub(super) fn alloc(&mut self, len: usize) -> Block {
        if len == 0 {
            return Block::default();
        }
        let units = rounded(len);
        let class = class_of(units);
        let at = match self.free.get(class).copied() {
            Some(first) if first != NONE => {
                if let Some(head) = self.free.get_mut(class) {
                    *head = next_free(&self.bytes, first);
                }
                first
            }
            _ => {
                let (Ok(at), Ok(_)) = (u32::try_from(self.bytes.len() / UNIT), u32::try_from(len)) else {
                    debug_assert!(false, "the state is bounded far below this");
                    return Block::default();
                };
                self.bytes.resize(self.bytes.len() + units * UNIT, 0);
                at
            }
        };
        self.used += units * UNIT;
        Block { at, len: len as u32 }
    }

    /// Lets go of a block.
    pub(super) fn free(&mut self, block: Block) {
        if block.len == 0 {
            return;
        }
        let units = rounded(block.len as usize);
        let class = class_of(units);
        if self.free.len() <= class {
            self.free.resize(class + 1, NONE);
        }
        let next = std::mem::replace(&mut self.free[class], block.at);
        if let Some(head) = self.bytes.get_mut(block.at as usize * UNIT..).and_then(|rest| rest.first_chunk_mut()) {
            *head = next.to_le_bytes();
        }
        self.used -= units * UNIT;
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

    /// The same block with these bytes in place of its own, or another one if they do not fit.
    pub(super) fn replace(&mut self, block: Block, data: &[u8]) -> Block {
        if block.len > 0 && rounded(block.len()) == rounded(data.len()) && !data.is_empty() {
            let block = Block { at: block.at, len: data.len() as u32 };
            if let Some(place) = self.get_mut(block) {
                place.copy_from_slice(data);
            }
            return block;
        }
        self.free(block);
        self.put(data)
    }

    /// A block with the first bytes of this one and room for at least `len`; this one is gone.
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

fn next_free(bytes: &[u8], at: u32) -> u32 {
    bytes.get(at as usize * UNIT..).and_then(|rest| rest.first_chunk()).map_or(NONE, |word| u32::from_le_bytes(*word))
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
        }
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
