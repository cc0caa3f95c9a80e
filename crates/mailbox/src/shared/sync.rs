//! Syncs: one word handed from a writer to the reader that allocated it (Nectar 1990, 3.4), and the addresses by which
//! syncs and host conditions are named across processes.
//!
//! Reader and writer may meet at any point: the one that cancels and the one that writes settle by one exchange on the
//! state who frees the cell. There is no lock, so nobody's death or sleep holds up the other side.
//!
//! A cell has one reader, the client's process, and one writer, the daemon, whoever asks it to write. The core's own syncs
//! need no cell: they are written by a signal to the core, which is where they are read.

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

/// What became of a write.
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

    /// By the reader: makes the cell wait for a value. False if it is not free: a cancelled one that no write has freed.
    #[inline]
    pub(crate) fn alloc(&self, generation: u16) -> bool {
        let found = self.0.word(0).load(Ordering::Acquire);
        found & 0xff == FREE && self.turn(found, state(generation, PENDING)).is_ok()
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

    /// By the reader: wants no value any more. True if the cell is free now, because it was written; else the write frees
    /// it when it comes.
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

/// The name of one life of one sync, as it stands in a word: client in the low 32 bits, then 1 bit of pool, 15 of index,
/// 16 of generation.
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

    /// What a word names; none if there is no such place in any client.
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

    /// What a word names; none if there is no such place in any client.
    #[inline]
    pub fn from_word(word: u64) -> Option<ConditionAddress> {
        (word >> 32 < CONDITIONS as u64).then_some(ConditionAddress { client: word as u32, index: (word >> 32) as u16 })
    }
}
