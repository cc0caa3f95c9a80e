//! Syncs: one word handed from a writer to the reader that allocated it (Nectar 1990, 3.4), and the addresses by which
//! syncs and host conditions are named across processes.
//!
//! Reader and writer may meet at any point: the one that cancels and the one that writes settle by one exchange on the
//! state who frees the cell. There is no lock, so nobody's death or sleep blocks the other side.
//!
//! A cell has one reader, the client's process, and one writer, the daemon, whoever asks it to write. The core's own
//! syncs need no cell: they are written by a signal to the core, which is where they are read.

use super::layout::{CONDITIONS, SYNCS};
use super::words::Words;
use crate::sync::Ordering;
#[cfg(not(loom))]
use {crate::segment::Segment, crate::sync::Arc};

const FREE: u64 = 0;
const PENDING: u64 = 1;
const WRITTEN: u64 = 2;
const CANCELLED: u64 = 3;

const fn state(generation: u16, is: u64) -> u64 {
    (generation as u64) << 8 | is
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// The reader will find the value.
    Written,
    /// The reader had given up; the cell is free now.
    Cancelled,
    /// The address is of an earlier life of the cell, or was written already; nothing happened.
    Stale,
}

/// One sync's cell.
pub(crate) struct SyncCell(Words);

impl SyncCell {
    /// The cell `at` bytes into `segment`; none if it is not inside.
    #[cfg(not(loom))]
    pub(crate) fn new(segment: &Arc<Segment>, at: usize) -> Option<SyncCell> {
        Words::new(segment, at, 2).map(SyncCell)
    }

    /// The cell in these two words.
    #[cfg(loom)]
    pub(crate) fn over(words: Words) -> SyncCell {
        SyncCell(words)
    }

    /// Moves from one state to another, or says which it found.
    #[inline]
    fn turn(&self, from: u64, to: u64) -> Result<(), u64> {
        // Release: the value written, or read, comes before. Acquire: whoever found the cell so goes on from there.
        let turned = self.0.word(0).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        turned.map(|_| ())
    }

    /// By the reader: makes the cell wait for a value. False if it is not free: a cancelled one that no write has
    /// freed.
    #[inline]
    pub(crate) fn alloc(&self, generation: u16) -> bool {
        let is_free = self.is_free();
        if is_free {
            // A store: a free cell is the reader's alone to change.
            self.0.word(0).store(state(generation, PENDING), Ordering::Release);
        }
        is_free
    }

    /// By the writer: hands over `value`.
    #[inline]
    pub(crate) fn write(&self, generation: u16, value: u64) -> WriteOutcome {
        let mut found = self.0.word(0).load(Ordering::Acquire);
        if found == state(generation, PENDING) {
            // Before the exchange that shows it; nobody reads it unless that succeeds.
            self.0.word(1).store(value, Ordering::Relaxed);
            match self.turn(found, state(generation, WRITTEN)) {
                Ok(()) => return WriteOutcome::Written,
                Err(now) => found = now,
            }
        }
        if found == state(generation, CANCELLED) && self.turn(found, state(generation, FREE)).is_ok() {
            return WriteOutcome::Cancelled;
        }
        WriteOutcome::Stale
    }

    /// By the reader: the value, if it was written; then the cell is free.
    #[inline]
    pub(crate) fn poll(&self, generation: u16) -> Option<u64> {
        if self.0.word(0).load(Ordering::Acquire) != state(generation, WRITTEN) {
            return None;
        }
        let value = self.0.word(1).load(Ordering::Relaxed);
        // A store: a written cell is the reader's alone to change.
        self.0.word(0).store(state(generation, FREE), Ordering::Release);
        Some(value)
    }

    /// By the reader, after it received the value by another path: the cell is free. A later write finds an earlier
    /// life.
    #[inline]
    pub(crate) fn free(&self, generation: u16) {
        self.0.word(0).store(state(generation, FREE), Ordering::Release);
    }

    /// By the reader: whether a value is awaited.
    #[inline]
    pub(crate) fn is_awaited(&self, generation: u16) -> bool {
        self.0.word(0).load(Ordering::Acquire) == state(generation, PENDING)
    }

    /// By the reader, after it learned by another path that the cell is written: frees the cell if the wait was
    /// cancelled. True if it was.
    pub(crate) fn free_if_cancelled(&self, generation: u16) -> bool {
        self.turn(state(generation, CANCELLED), state(generation, FREE)).is_ok()
    }

    /// By the reader: wants no value any more. True if the cell is free now, because it was written; else the write
    /// frees it when it comes.
    pub(crate) fn cancel(&self, generation: u16) -> bool {
        if self.turn(state(generation, PENDING), state(generation, CANCELLED)).is_ok() {
            return false;
        }
        self.poll(generation).is_some()
    }

    /// By the reader: whether the cell is free.
    pub(crate) fn is_free(&self) -> bool {
        self.0.word(0).load(Ordering::Acquire) & 0xff == FREE
    }
}

/// Which of a client's two pools a sync is in: by who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncPool {
    /// Allocated and read by the client.
    Client,
    /// Allocated and read by the core.
    Core,
}

/// The name of one life of one sync, as it stands in a word: client in the low 32 bits, then 1 bit of pool, 15 of
/// index, 16 of generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SyncAddress {
    /// The client's number.
    pub client: u32,
    /// Which of its pools.
    pub pool: SyncPool,
    /// Place in the pool.
    pub index: u16,
    /// Which of the place's lives.
    pub generation: u16,
}

impl SyncAddress {
    /// As a word, for a signal or for a message to someone who shall write it.
    #[inline]
    pub fn to_word(self) -> u64 {
        let pool = match self.pool {
            SyncPool::Client => 0,
            SyncPool::Core => 1u64,
        };
        u64::from(self.client) | pool << 32 | u64::from(self.index) << 33 | u64::from(self.generation) << 48
    }

    /// The address of a word; none if there is no such place in any client.
    #[inline]
    pub fn from_word(word: u64) -> Option<SyncAddress> {
        let pool = if word >> 32 & 1 == 0 { SyncPool::Client } else { SyncPool::Core };
        let index = (word >> 33 & 0x7fff) as u16;
        let address = SyncAddress { client: word as u32, pool, index, generation: (word >> 48) as u16 };
        (usize::from(index) < SYNCS).then_some(address)
    }
}

/// The name of a host condition, as it stands in a word: client in the low 32 bits, then 16 of index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConditionAddress {
    /// The client's number.
    pub client: u32,
    /// Place among its conditions.
    pub index: u16,
}

impl ConditionAddress {
    /// As a word, for a signal or for a message to someone who shall signal it.
    #[inline]
    pub fn to_word(self) -> u64 {
        u64::from(self.client) | u64::from(self.index) << 32
    }

    /// The address of a word; none if there is no such place in any client.
    #[inline]
    pub fn from_word(word: u64) -> Option<ConditionAddress> {
        (word >> 32 < CONDITIONS as u64).then_some(ConditionAddress { client: word as u32, index: (word >> 32) as u16 })
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell() -> SyncCell {
        SyncCell::new(&Arc::new(Segment::new(64).unwrap()), 16).unwrap()
    }

    #[test]
    fn a_value_is_handed_over_once() {
        let cell = cell();
        assert!(cell.is_free() && cell.poll(0).is_none());
        assert_eq!(cell.write(0, 1), WriteOutcome::Stale, "nobody waits");
        assert!(cell.alloc(5) && !cell.alloc(6), "one reader");
        assert_eq!(cell.poll(5), None);
        assert_eq!(cell.write(4, 9), WriteOutcome::Stale, "an earlier life");
        assert_eq!(cell.write(5, 77), WriteOutcome::Written);
        assert_eq!(cell.write(5, 78), WriteOutcome::Stale, "written already");
        assert_eq!((cell.poll(4), cell.poll(5), cell.poll(5)), (None, Some(77), None));
        assert!(cell.is_free() && cell.alloc(u16::MAX));
        assert_eq!(cell.write(5, 79), WriteOutcome::Stale);
        assert_eq!(cell.write(u16::MAX, u64::MAX), WriteOutcome::Written);
        assert_eq!(cell.poll(u16::MAX), Some(u64::MAX));
    }

    #[test]
    fn a_cancelled_sync_is_freed_by_its_write() {
        let cell = cell();
        assert!(cell.alloc(1) && !cell.cancel(1) && !cell.is_free());
        assert!(!cell.alloc(2), "the write is still to come");
        assert_eq!(cell.poll(1), None);
        assert_eq!(cell.write(2, 3), WriteOutcome::Stale);
        assert_eq!(cell.write(1, 3), WriteOutcome::Cancelled);
        assert!(cell.is_free() && cell.alloc(2));
        assert_eq!(cell.write(1, 3), WriteOutcome::Stale);
        assert_eq!(cell.write(2, 4), WriteOutcome::Written);
        assert!(cell.cancel(2) && cell.is_free(), "written before: nothing more will come");
    }

    #[test]
    fn a_cell_outside_its_segment_is_not_made() {
        let segment = Arc::new(Segment::new(4096).unwrap());
        assert!(SyncCell::new(&segment, 4080).is_some());
        for at in [4088, 4096, 4, usize::MAX] {
            assert!(SyncCell::new(&segment, at).is_none());
        }
    }

    #[test]
    fn an_address_lies_in_its_word_as_the_contract_says() {
        let address = SyncAddress { client: 0x0403_0201, pool: SyncPool::Core, index: 0x82, generation: 0x0807 };
        assert_eq!(address.to_word(), 0x0807_0105_0403_0201);
        let address = ConditionAddress { client: 0x0403_0201, index: 5 };
        assert_eq!(address.to_word(), 0x0005_0403_0201);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 20 } else { 256 }, failure_persistence: None,
                                            ..ProptestConfig::default() })]

        #[test]
        fn addresses_read_back_and_no_word_names_a_place_outside(
            client: u32, core: bool, index in 0..SYNCS as u16, generation: u16, condition in 0..CONDITIONS as u16,
            word: u64,
        ) {
            let pool = if core { SyncPool::Core } else { SyncPool::Client };
            let address = SyncAddress { client, pool, index, generation };
            prop_assert_eq!(SyncAddress::from_word(address.to_word()), Some(address));
            let address = ConditionAddress { client, index: condition };
            prop_assert_eq!(ConditionAddress::from_word(address.to_word()), Some(address));
            if let Some(address) = SyncAddress::from_word(word) {
                prop_assert!(usize::from(address.index) < SYNCS && address.to_word() == word);
            }
            if let Some(address) = ConditionAddress::from_word(word) {
                prop_assert!(usize::from(address.index) < CONDITIONS && address.to_word() == word);
            }
        }

        /// Whatever the other side left in the words, either side's operation ends and leaves the other's bounds alone.
        #[test]
        fn garbage_in_a_cell_hurts_nobody(words: [u64; 2], generation: u16, value: u64) {
            let operations: [fn(&SyncCell, u16, u64) -> bool; 4] = [
                |cell, generation, _| cell.alloc(generation),
                |cell, generation, value| cell.write(generation, value) == WriteOutcome::Written,
                |cell, generation, _| cell.poll(generation).is_some(),
                |cell, generation, _| cell.cancel(generation),
            ];
            for operation in operations {
                let segment = Arc::new(Segment::new(64).unwrap());
                let cell = SyncCell::new(&segment, 16).unwrap();
                cell.0.word(0).store((words[0] % 4) | (words[0] & !0xff), Ordering::Relaxed);
                cell.0.word(1).store(words[1], Ordering::Relaxed);
                let _any = operation(&cell, generation, value);
                let mut all = [0; 64];
                prop_assert!(segment.read_into(0, &mut all));
                prop_assert!(all[..16].iter().chain(&all[32..]).all(|&byte| byte == 0));
            }
        }
    }
}
