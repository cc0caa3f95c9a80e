//! The parts of windows, each with the slots of its aggregates behind it: a row needs both, and finds them in one line of the cache where
//! they are not more.

use crossdock_mailbox::MappedVec;

use crate::stateful::cell::{load, store};
use crate::stateful::keys::NONE;

/// A part's memory is a multiple of this many bytes; it is as long as a [`Part`].
const UNIT: usize = 32;

/// A stretch of time of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) key: u32,
    /// The one of its group that begins before it, or the next that is free.
    pub(super) older: u32,
    pub(super) newer: u32,
    /// How often its number was given out.
    pub(super) stamp: u32,
    pub(super) start: i64,
    /// The time of the last row, of a session; of a group whose rows are taken out again, how many there are.
    pub(super) last: i64,
}

impl Part {
    #[inline]
    fn of(bytes: &[u8; UNIT]) -> Part {
        let word = |at| u32::from_le_bytes(load(bytes, at));
        let time = |at| i64::from_le_bytes(load(bytes, at));
        Part { key: word(0), older: word(4), newer: word(8), stamp: word(12), start: time(16), last: time(24) }
    }

    #[inline]
    fn write(self, bytes: &mut [u8; UNIT]) {
        let Part { key, older, newer, stamp, start, last } = self;
        let words = [key, older, newer, stamp].into_iter().zip([0, 4, 8, 12]);
        words.for_each(|(word, at)| store(bytes, at, word.to_le_bytes()));
        store(bytes, 16, start.to_le_bytes());
        store(bytes, 24, last.to_le_bytes());
    }
}

/// WindowParts by numbers that are used again once a part is gone.
#[derive(Debug)]
pub(super) struct WindowParts {
    units: MappedVec<[u8; UNIT]>,
    /// The units of each, and the bytes of its slots.
    stride: usize,
    slot_bytes: usize,
    /// The first that is free; `older` leads to the next one.
    vacant: u32,
    there: usize,
}

impl WindowParts {
    /// None, of slots that take this many bytes.
    pub(super) fn of(slot_bytes: usize) -> WindowParts {
        let stride = 1 + slot_bytes.div_ceil(UNIT);
        WindowParts { units: MappedVec::default(), stride, slot_bytes, vacant: NONE, there: 0 }
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.there
    }

    /// The bytes that each takes with its slots.
    pub(super) fn part_bytes(&self) -> usize {
        self.stride * UNIT
    }

    #[inline]
    fn place(&self, at: u32) -> usize {
        at as usize * self.stride
    }

    /// The part of a number; of one that is gone what it was.
    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<Part> {
        self.units.get(self.place(at)).map(Part::of)
    }

    /// Asks for the memory of a part and of the end of its slots.
    #[inline]
    pub(super) fn prefetch(&self, at: u32) {
        let place = self.place(at);
        self.units.prefetch(place);
        self.units.prefetch(place + self.stride - 1);
    }

    /// Changes a part; whether there is one.
    #[inline]
    pub(super) fn change(&mut self, at: u32, change: impl FnOnce(&mut Part)) -> bool {
        let place = self.place(at);
        let Some(unit) = self.units.get_mut(place) else { return false };
        let mut part = Part::of(unit);
        change(&mut part);
        part.write(unit);
        true
    }

    /// The slots of a part.
    #[inline]
    pub(super) fn slots(&self, at: u32) -> Option<&[u8]> {
        let first = self.place(at) + 1;
        self.units.get(first..first + self.stride - 1)?.as_flattened().get(..self.slot_bytes)
    }

    /// The slots of a part, to be changed.
    #[inline]
    pub(super) fn slots_mut(&mut self, at: u32) -> Option<&mut [u8]> {
        let first = self.place(at) + 1;
        self.units.get_mut(first..first + self.stride - 1)?.as_flattened_mut().get_mut(..self.slot_bytes)
    }

    /// Adds a part, whose slots are zeros.
    pub(super) fn add(&mut self, part: Part) -> u32 {
        self.there += 1;
        if let Some(Part { older: next, stamp, .. }) = self.get(self.vacant) {
            self.change(self.vacant, |vacant| *vacant = Part { stamp, ..part });
            return std::mem::replace(&mut self.vacant, next);
        }
        let at = (self.units.len() / self.stride) as u32;
        self.units.resize(self.units.len() + self.stride, [0; UNIT]);
        self.change(at, |new| *new = part);
        at
    }

    /// Lets go of a part that nothing leads to, whose slots are zeros again.
    pub(super) fn free(&mut self, at: u32) {
        let vacant = self.vacant;
        let is_there = self.change(at, |part| {
            part.stamp = part.stamp.wrapping_add(1);
            part.older = vacant;
        });
        if is_there {
            self.vacant = at;
            self.there -= 1;
        }
    }

    /// All parts, where none is gone.
    pub(super) fn iter(&self) -> impl Iterator<Item = Part> {
        self.units.iter().step_by(self.stride).map(Part::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_slots_and_numbers_are_used_again() {
        for slot_bytes in [0, 8, 32, 40, 100] {
            let mut parts = WindowParts::of(slot_bytes);
            let part = |key: u32| Part { key, older: NONE, newer: 7, stamp: 0, start: -5, last: i64::MAX };
            for key in 0..10 {
                assert_eq!(parts.add(part(key)), key);
                parts.slots_mut(key).unwrap().fill(key as u8);
            }
            parts.slots_mut(3).unwrap().fill(0);
            parts.free(3);
            assert_eq!((parts.len(), parts.add(part(30)), parts.len()), (9, 3, 10));
            assert!(parts.change(4, |part| part.older = 2) && !parts.change(10, |_| {}));
            for (number, part) in (0_u32..).zip(parts.iter()) {
                let (key, stamp) = if number == 3 { (30, 1) } else { (number, 0) };
                assert_eq!((part.key, part.stamp, part.start, part.last), (key, stamp, -5, i64::MAX));
                assert_eq!((part.older, part.newer), (if number == 4 { 2 } else { NONE }, 7));
                let filled = if number == 3 { 0 } else { number as u8 };
                let slots = parts.slots(number).unwrap();
                assert!(slots.len() == slot_bytes && slots.iter().all(|byte| *byte == filled));
            }
            assert!(parts.get(10).is_none() && parts.slots(10).is_none_or(<[u8]>::is_empty));
        }
    }
}
