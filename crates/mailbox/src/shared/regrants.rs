//! Slots that go back to a writer, many in one entry: from the core, which grants them again, or over direct rings from the reader.
//!
//! A message that was freed leaves its buffer to the writer that it came from, and mostly to the very slot in which that had it. Then
//! both sides know the buffer already, and the slot's number says all: one entry of a port's ring has room for [`Regrants::MOST`]
//! of them, so the ring's lines move once for several bursts, and the writer takes no addresses in.

use super::layout::SLOTS;
use super::ring::{Descriptor, Entry};

/// Bits of a slot's number.
const BITS: u32 = 8;
const _: () = assert!(SLOTS <= 1 << BITS, "a slot's number is a byte");
/// Where the count lies in the entry's first word, behind the ring's byte and the operation's.
const COUNT_AT: u32 = 16;
/// Numbers in the first word, behind the count; the others are in the second.
const IN_FIRST: u32 = 5;

/// Slots of a writer. Of those that are granted again, each has the buffer of its last grant, and is one generation later.
#[derive(Clone, Copy, Default)]
pub(crate) struct Regrants {
    words: [u64; 2],
    count: u32,
}

impl Regrants {
    /// As many fit an entry.
    pub(crate) const MOST: u32 = IN_FIRST + u64::BITS / BITS;

    /// Adds a slot; there must be room for it.
    #[inline(always)]
    pub(crate) fn add(&mut self, slot: u16) {
        debug_assert!(self.count < Self::MOST && usize::from(slot) < SLOTS);
        let slot = u64::from(slot);
        match self.count.checked_sub(IN_FIRST) {
            None => self.words[0] |= slot << (COUNT_AT + BITS * (self.count + 1)),
            Some(at) => self.words[1] |= slot << (BITS * (at % BITS)),
        }
        self.count += 1;
    }

    /// How many there are.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// An entry of these slots.
    #[inline(always)]
    pub(crate) fn entry(&self, op: u8) -> Descriptor {
        let [first, second] = self.words;
        Descriptor { op, ..Descriptor::decode([first | u64::from(self.count) << COUNT_AT, second, 0, 0]) }
    }

    /// Those of an entry; none if it says that there are more than it holds.
    #[inline(always)]
    pub(crate) fn of(entry: Descriptor) -> Option<Regrants> {
        let [first, second, ..] = entry.encode();
        let count = u32::from((first >> COUNT_AT) as u8);
        (count <= Self::MOST).then_some(Regrants { words: [first, second], count })
    }

    /// Takes out the slot that was added last.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<u16> {
        self.count = self.count.checked_sub(1)?;
        let slot = match self.count.checked_sub(IN_FIRST) {
            None => self.words[0] >> (COUNT_AT + BITS * (self.count + 1)),
            Some(at) => self.words[1] >> (BITS * (at % BITS)),
        };
        Some(u16::from(slot as u8))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 20 } else { 256 }, failure_persistence: None,
            ..ProptestConfig::default() })]

        #[test]
        fn slots_come_out_of_an_entry_as_they_went_in(slots in prop::collection::vec(0u16..256, 0..14), op: u8) {
            let mut regrants = Regrants::default();
            slots.iter().for_each(|&slot| regrants.add(slot));
            let entry = regrants.entry(op);
            prop_assert_eq!((regrants.count() as usize, entry.op), (slots.len(), op));
            prop_assert_eq!(Descriptor::decode(entry.encode()), entry);
            let mut taken = Regrants::of(entry).unwrap();
            let mut popped: Vec<_> = std::iter::from_fn(|| taken.pop()).collect();
            popped.reverse();
            prop_assert_eq!(popped, slots);
        }

        #[test]
        fn no_entry_has_more_slots_than_it_holds(slot: u16, generation: u16, target: u16, offset: u32, len: u32) {
            let entry = Descriptor { op: 9, slot, generation, target, offset, len };
            match Regrants::of(entry) {
                Some(slots) => prop_assert!(slots.count() == u32::from(slot as u8) && slot as u8 <= 13),
                None => prop_assert!(slot as u8 > 13),
            }
        }
    }
}
