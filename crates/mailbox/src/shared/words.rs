//! Words of a segment as atomics, for as long as someone uses them.

#![allow(unsafe_code)]

use crate::sync::{Arc, AtomicU32, AtomicU64};
#[cfg(not(loom))]
use {crate::segment::Segment, std::ptr::NonNull};

/// The type of a word in shared memory: an atomic whose every pattern of bits is a value.
///
/// # Safety
/// The type is as large as it is aligned, holds any bits, and may be changed at any time by anyone.
pub(crate) unsafe trait Atomic {
    /// One that is zero.
    #[cfg(loom)]
    fn zero() -> Self;
}

// SAFETY: so an `AtomicU64` is.
unsafe impl Atomic for AtomicU64 {
    #[cfg(loom)]
    fn zero() -> AtomicU64 {
        AtomicU64::new(0)
    }
}

// SAFETY: so an `AtomicU32` is.
unsafe impl Atomic for AtomicU32 {
    #[cfg(loom)]
    fn zero() -> AtomicU32 {
        AtomicU32::new(0)
    }
}

/// Words, a power of two of them, and the segment that they lie in.
#[cfg(not(loom))]
pub(crate) struct Words<A = AtomicU64> {
    base: NonNull<A>,
    mask: usize,
    segment: Arc<Segment>,
}

// SAFETY: atomics may be used from any thread, and the segment that keeps them mapped is `Send` and `Sync`.
#[cfg(not(loom))]
unsafe impl<A: Sync> Send for Words<A> {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl<A: Sync> Sync for Words<A> {}

#[cfg(not(loom))]
impl<A: Atomic> Words<A> {
    /// `count` words from `at` bytes on; none if `count` is not a power of two, `at` not a multiple of a word's bytes,
    /// or they are not all inside the segment.
    pub(crate) fn new(segment: &Arc<Segment>, at: usize, count: usize) -> Option<Words<A>> {
        if !count.is_power_of_two() || !at.is_multiple_of(size_of::<A>()) {
            return None;
        }
        let base = segment.at(at, count.checked_mul(size_of::<A>())?)?.cast();
        Some(Words { base, mask: count - 1, segment: segment.clone() })
    }

    /// The segment that they lie in.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The word at `index`, which is taken modulo the number of words.
    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> &A {
        // SAFETY: the mask keeps the index below the count that `new` checked against the segment, which this value
        // keeps mapped; segments start on eight bytes and `at` is a multiple of a word's, so the word is aligned. It
        // holds a value whatever its bits, and others may change it at any time, as `Atomic` promises.
        unsafe { self.base.add(index & self.mask).as_ref() }
    }

    /// Says that the word at `index`, taken as above, and its neighbours are about to be written.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        crate::racy::prefetch(NonNull::from(self.word(index)).cast());
    }

    /// How many there are.
    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.mask + 1
    }
}

/// The stand-in of loom, whose atomics cannot lie over mapped memory.
#[cfg(loom)]
pub(crate) struct Words<A = AtomicU64> {
    cells: Arc<Vec<A>>,
    turns: Option<Arc<AtomicU32>>,
}

#[cfg(loom)]
impl<A: Atomic> Words<A> {
    /// `count` words, zero.
    pub(crate) fn zeroed(count: usize) -> Words<A> {
        Words { cells: Arc::new((0..count.next_power_of_two()).map(|_| A::zero()).collect()), turns: None }
    }

    /// The same, with every use of a word also an exchange on one more, in no order with anything else. Loom remembers
    /// one access of a word only, and so leaves out orders in which a thread that loads a word and then changes it
    /// meets another's load between; exchanges it tries in every order.
    pub(crate) fn in_every_order(count: usize) -> Words<A> {
        Words { turns: Some(Arc::new(AtomicU32::new(0))), ..Words::zeroed(count) }
    }

    pub(crate) fn word(&self, index: usize) -> &A {
        if let Some(turns) = &self.turns {
            turns.fetch_add(1, crate::sync::Ordering::Relaxed);
        }
        &self.cells[index & (self.cells.len() - 1)]
    }

    pub(crate) fn prefetch(&self, _: usize) {}

    pub(crate) fn count(&self) -> usize {
        self.cells.len()
    }
}

#[cfg(loom)]
impl<A> Clone for Words<A> {
    fn clone(&self) -> Words<A> {
        Words { cells: self.cells.clone(), turns: self.turns.clone() }
    }
}
