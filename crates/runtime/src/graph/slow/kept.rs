//! Records of one subscription that wait outside of all pools, as copies: a buffer of the pool that waited for a slow
//! subscriber would be unavailable to all other traffic.

use crate::graph::bounds::{PIECE_BYTES, SLOW_RECORDS};
use crate::graph::edge::Held;
use crossdock_engine::Key;
use std::collections::{HashMap, VecDeque};

/// Bytes that a record counts for beside its own.
const SLOT_BYTES: usize = 64;
/// Slots without a record that may be among the others in any case; with more, half of all.
const MOST_VOIDS: usize = 1024;

/// Records in the order in which they came; of those with a key, the last of each, in the place of the first.
#[derive(Debug, Default)]
pub(super) struct Kept {
    slots: Vec<Slot>,
    /// Slots without a record, whose memory is used again.
    free: Vec<u32>,
    /// Slots with a record, the oldest first, and among them some whose record was taken out.
    order: VecDeque<u32>,
    voids: usize,
    by_key: HashMap<Key, u32>,
    /// How many of the records have each format; there are few formats.
    formats: Vec<(u64, u64)>,
    /// Bytes of the records, and of the memory of all slots.
    bytes: usize,
    reserved: usize,
    /// The bound on the first, as of the last record that came. Memory beyond twice the bound is not kept for later ones.
    most_bytes: usize,
    /// Whether only their bytes are bounded, and not their number.
    are_many: bool,
}

#[derive(Debug, Default)]
struct Slot {
    format: u64,
    key: Option<Key>,
    record: Vec<u8>,
    /// Its record was taken out: another of its key comes in its place.
    is_void: bool,
}

/// The records that a new one cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Put {
    /// Records of its key, in whose place it is.
    pub(super) replaced: u64,
    /// The oldest ones, for which there was no room beside it.
    pub(super) lost: u64,
}

impl Kept {
    /// None yet. Their number has no bound, their bytes have.
    pub(super) fn of_many() -> Kept {
        Kept { are_many: true, ..Kept::default() }
    }

    fn most_records(&self) -> usize {
        if self.are_many { usize::MAX } else { SLOW_RECORDS }
    }

    #[inline]
    pub(super) fn len(&self) -> u64 {
        (self.order.len() - self.voids) as u64
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.order.len() == self.voids
    }

    /// Bytes of the records.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The formats of the records.
    pub(super) fn formats(&self) -> impl Iterator<Item = u64> {
        self.formats.iter().map(|(format, _)| *format)
    }

    /// The record of a key.
    pub(super) fn get(&self, key: Key) -> Option<&[u8]> {
        let slot = self.slots.get(*self.by_key.get(&key)? as usize)?;
        (!slot.is_void).then_some(&slot.record)
    }

    /// Whether there is room for a record of this length, of a key that has one or not, so that no other gives way.
    pub(super) fn has_room(&self, key: Option<Key>, bytes: usize, most_bytes: usize) -> bool {
        let had = key.and_then(|key| self.get(key)).map(<[u8]>::len);
        let records = self.len() as usize + usize::from(had.is_none());
        let bytes = self.bytes - had.unwrap_or(0) + bytes + records * SLOT_BYTES;
        records <= 1 || (bytes <= most_bytes && records <= self.most_records())
    }

    /// Takes the record of a key out.
    pub(super) fn remove(&mut self, key: Key) {
        let Some(at) = self.by_key.get(&key).copied() else { return debug_assert!(false, "no record of the key") };
        self.forget_format(at);
        if let Some(slot) = self.slots.get_mut(at as usize) {
            self.bytes -= slot.record.len();
            slot.record.clear();
            slot.is_void = true;
            self.voids += 1;
        }
        if self.voids > MOST_VOIDS && self.voids > self.order.len() / 2 {
            for _ in 0..self.order.len() {
                let Some(at) = self.order.pop_front() else { break };
                if !self.releases_void(at) {
                    self.order.push_back(at);
                }
            }
        }
    }

    /// Takes a copy of a record, within a bound in bytes: the oldest ones give way. One record is taken however long it is.
    pub(super) fn put(&mut self, key: Option<Key>, format: u64, record: &[u8], most_bytes: usize) -> Put {
        self.most_bytes = most_bytes;
        let known = key.and_then(|key| self.by_key.get(&key).copied());
        if let Some(at) = known {
            let slot = self.slots.get_mut(at as usize);
            let was_void = slot.is_some_and(|slot| std::mem::take(&mut slot.is_void));
            match was_void {
                true => self.voids -= 1,
                false => self.forget_format(at),
            }
            self.write(at, format, record);
            return Put { replaced: u64::from(!was_void), lost: self.make_room(0, most_bytes) };
        }
        let lost = self.make_room(record.len(), most_bytes);
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        if let Some(key) = key {
            self.by_key.insert(key, at);
        }
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.key = key;
        }
        self.write(at, format, record);
        self.order.push_back(at);
        Put { replaced: 0, lost }
    }

    /// Moves the oldest records that may leave to the end of `to`, which is empty: records of one format, as many as fit one
    /// buffer, one at least. `may_leave` is asked once for each; behind more than `most_stay` for which it says no, no other is
    /// looked at. Those that stay come behind all others.
    pub(super) fn take(&mut self, to: &mut Held, most_stay: usize, mut may_leave: impl FnMut(Option<Key>) -> bool) {
        let mut stay = 0;
        for _ in 0..self.order.len() {
            let Some(at) = self.order.front().copied() else { break };
            if self.releases_void(at) {
                self.order.pop_front();
                continue;
            }
            let Some(slot) = self.slots.get(at as usize) else { break };
            let fits = slot.format == to.format && to.payload_bytes() + slot.record.len() <= PIECE_BYTES;
            if to.records() > 0 && !fits {
                break;
            }
            if !may_leave(slot.key) {
                if stay >= most_stay {
                    break;
                }
                self.order.rotate_left(1);
                stay += 1;
                continue;
            }
            self.order.pop_front();
            if to.records() == 0 {
                to.format = slot.format;
            }
            to.push(&slot.record);
            self.release(at);
        }
    }

    /// The keys of the records.
    pub(super) fn keys(&self) -> impl Iterator<Item = Option<Key>> {
        let slots = self.order.iter().filter_map(|at| self.slots.get(*at as usize));
        slots.filter(|slot| !slot.is_void).map(|slot| slot.key)
    }

    /// Lets all records go.
    pub(super) fn clear(&mut self) {
        *self = Kept { are_many: self.are_many, ..Kept::default() };
    }

    fn write(&mut self, at: u32, format: u64, record: &[u8]) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return debug_assert!(false, "no slot {at}") };
        let (before, reserved) = (slot.record.len(), slot.record.capacity());
        slot.format = format;
        slot.record.clear();
        slot.record.extend_from_slice(record);
        // A long record that was in its place must not keep its memory for it.
        if self.reserved - reserved + slot.record.capacity() > self.most_bytes.saturating_mul(2) {
            slot.record.shrink_to_fit();
        }
        self.bytes = self.bytes + record.len() - before;
        self.reserved = self.reserved + slot.record.capacity() - reserved;
        match self.formats.iter_mut().find(|(of, _)| *of == format) {
            Some((_, records)) => *records += 1,
            None => self.formats.push((format, 1)),
        }
    }

    /// The record of a slot is one less of its format.
    fn forget_format(&mut self, at: u32) {
        let format = self.slots.get(at as usize).map(|slot| slot.format);
        let Some(format) = format else { return debug_assert!(false, "no slot {at}") };
        self.formats.retain_mut(|(of, records)| {
            *records -= u64::from(*of == format);
            *records > 0
        });
    }

    /// Makes room for `more` bytes of another record, beside one at least; how many records that costs.
    fn make_room(&mut self, more: usize, most_bytes: usize) -> u64 {
        let is_over = |kept: &Kept| {
            let records = kept.len() as usize + usize::from(more > 0);
            let bytes = kept.bytes + more + records * SLOT_BYTES;
            records > 1 && (bytes > most_bytes || records > kept.most_records())
        };
        let mut lost = 0;
        while is_over(self)
            && let Some(oldest) = self.order.pop_front()
        {
            if !self.releases_void(oldest) {
                self.release(oldest);
                lost += 1;
            }
        }
        lost
    }

    /// A slot that has left the order, or is about to, is free if its record was taken out; whether it was.
    fn releases_void(&mut self, at: u32) -> bool {
        let Some(slot) = self.slots.get_mut(at as usize).filter(|slot| slot.is_void) else { return false };
        slot.is_void = false;
        let key = slot.key.take();
        self.voids -= 1;
        if self.reserved > self.most_bytes.saturating_mul(2) {
            self.reserved -= slot.record.capacity();
            slot.record = Vec::new();
        }
        if let Some(key) = key {
            self.by_key.remove(&key);
        }
        self.free.push(at);
        true
    }

    /// A slot's record has gone.
    fn release(&mut self, at: u32) {
        self.forget_format(at);
        let Some(slot) = self.slots.get_mut(at as usize) else { return debug_assert!(false, "no slot {at}") };
        self.bytes -= slot.record.len();
        slot.record.clear();
        if self.reserved > self.most_bytes.saturating_mul(2) {
            self.reserved -= slot.record.capacity();
            slot.record = Vec::new();
        }
        if let Some(key) = slot.key.take() {
            self.by_key.remove(&key);
        }
        self.free.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(kept: &mut Kept, may_leave: impl FnMut(Option<Key>) -> bool) -> Vec<u8> {
        let mut to = Held::new(0, 0);
        kept.take(&mut to, 10, may_leave);
        to.first_bytes()
    }

    #[test]
    fn of_each_key_the_last_record_is_kept_in_the_place_of_the_first() {
        let mut kept = Kept::default();
        for (key, byte) in [(1, 10), (2, 20), (1, 11), (3, 30), (2, 21), (1, 12)] {
            kept.put(Some(key), 7, &[byte; 3], 1000);
        }
        assert_eq!((kept.len(), kept.bytes), (3, 9));
        assert_eq!(taken(&mut kept, |key| key != Some(2)), [12, 30]);
        assert_eq!(kept.put(Some(2), 7, &[22; 5], 1000), Put { replaced: 1, lost: 0 });
        assert_eq!(kept.put(Some(1), 7, &[13; 3], 1000), Put::default());
        assert_eq!(taken(&mut kept, |_| true), [22, 13]);
        assert_eq!((kept.len(), kept.bytes, kept.by_key.len(), kept.slots.len()), (0, 0, 0, 3));
    }

    #[test]
    fn the_oldest_gives_way_and_one_record_is_kept_however_long() {
        let mut kept = Kept::default();
        let most_bytes = 3 * (4 + SLOT_BYTES);
        assert_eq!((0..5).map(|n| kept.put(None, 7, &[n; 4], most_bytes).lost).sum::<u64>(), 2);
        assert_eq!(kept.put(None, 7, &[9; 1000], most_bytes), Put { replaced: 0, lost: 3 });
        assert_eq!(kept.put(None, 8, &[1; 4], most_bytes), Put { replaced: 0, lost: 1 });
        assert_eq!(kept.put(None, 7, &[2; 4], most_bytes).lost, 0);
        let (first, second) = (taken(&mut kept, |_| true), taken(&mut kept, |_| true));
        assert_eq!((first, second), (vec![1], vec![2]), "a batch has one format");
        assert!(kept.reserved <= 3 * most_bytes, "{}", kept.reserved);
    }

    #[test]
    fn records_that_stay_are_looked_at_in_turn() {
        let mut kept = Kept::default();
        for key in 0..6_u8 {
            kept.put(Some(key.into()), 7, &[key], 1000);
        }
        let mut to = Held::new(0, 0);
        let mut asked = Vec::new();
        kept.take(&mut to, 2, |key| {
            asked.extend(key);
            key == Some(1)
        });
        assert_eq!((asked, to.first_bytes()), (vec![0, 1, 2, 3], vec![1]));
        assert_eq!(taken(&mut kept, |_| true), [3, 4, 5, 0, 2]);
    }

    #[test]
    fn a_record_that_was_taken_out_leaves_its_place_to_the_next_of_its_key_and_costs_nothing() {
        let mut kept = Kept::default();
        for key in 0..4_u8 {
            kept.put(Some(key.into()), 7, &[key; 3], 1000);
        }
        kept.remove(1);
        kept.remove(2);
        assert_eq!((kept.len(), kept.bytes(), kept.get(1), kept.get(3)), (2, 6, None, Some(&[3; 3][..])));
        assert_eq!(kept.keys().collect::<Vec<_>>(), [Some(0), Some(3)]);
        assert_eq!(kept.put(Some(2), 8, &[9; 3], 1000), Put::default());
        assert_eq!(taken(&mut kept, |key| key != Some(0)), [9]);
        assert_eq!(taken(&mut kept, |_| true), [3, 0]);
        assert_eq!((kept.len(), kept.voids, kept.by_key.len(), kept.free.len()), (0, 0, 0, 4));
        // Keys that come and go do not add up.
        for key in 0..100_000 {
            kept.put(Some(key), 7, &[1; 3], 1 << 20);
            kept.remove(key);
        }
        assert!(kept.is_empty() && kept.slots.len() <= 2 * MOST_VOIDS + 4, "{}", kept.slots.len());
    }

    #[test]
    fn there_is_room_up_to_the_bound_and_for_one_record_in_any_case() {
        let (mut kept, most_bytes) = (Kept::default(), 2 * (4 + SLOT_BYTES));
        assert!(kept.has_room(Some(1), 1000, most_bytes));
        kept.put(Some(1), 7, &[1; 4], most_bytes);
        assert!(kept.has_room(Some(2), 4, most_bytes) && !kept.has_room(Some(2), 5, most_bytes));
        assert_eq!(kept.put(Some(2), 7, &[2; 4], most_bytes), Put::default());
        assert!(!kept.has_room(None, 1, most_bytes));
        assert!(kept.has_room(Some(2), 4, most_bytes) && !kept.has_room(Some(2), 5, most_bytes));
    }

    #[test]
    fn formats_are_known_as_long_as_records_have_them() {
        let mut kept = Kept::default();
        let formats = |kept: &Kept| kept.formats().collect::<Vec<u64>>();
        kept.put(Some(1), 7, &[1; 4], 1000);
        kept.put(Some(2), 8, &[2; 4], 1000);
        kept.put(Some(1), 8, &[3; 4], 1000);
        assert_eq!(formats(&kept), [8]);
        kept.put(None, 9, &[4; 4], 1000);
        assert_eq!(taken(&mut kept, |_| true), [3, 2]);
        assert_eq!(formats(&kept), [9]);
    }

    #[test]
    fn a_short_record_does_not_keep_the_memory_of_a_long_one() {
        let (mut kept, most_bytes) = (Kept::default(), 1 << 20);
        for key in 0..200 {
            kept.put(Some(key), 7, &[1; 1 << 18], most_bytes);
            kept.put(Some(key), 7, &[2; 8], most_bytes);
        }
        assert_eq!((kept.len(), kept.bytes), (200, 1600));
        assert!(kept.reserved <= 2 * most_bytes + (1 << 18), "{}", kept.reserved);
    }

    #[test]
    fn once_warm_nothing_is_allocated() {
        let mut kept = Kept::default();
        let mut to = Held::new(0, 0);
        let mut round = |kept: &mut Kept| {
            for n in 0..200_u64 {
                kept.put(Some(u128::from(n % 50)), 7, &n.to_le_bytes(), 1 << 20);
            }
            to.reset();
            kept.take(&mut to, 0, |_| true);
            (kept.reserved, kept.slots.capacity(), kept.order.capacity(), kept.by_key.capacity(), kept.free.capacity())
        };
        let warm = round(&mut kept);
        assert!((0..10).all(|_| round(&mut kept) == warm));
    }
}
