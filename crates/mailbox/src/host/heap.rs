//! The common heap of one segment: buffers of any size for all mailboxes of a domain (Nectar paper, section 3.3).
//!
//! Everything that says who owns what lies here, in memory that only the daemon maps; the segment holds messages' bytes
//! and nothing else, so no write of a client can lead the allocator astray. Small buffers are kept for the next user of
//! their size (the paper's cached small buffer, here for all mailboxes together).

use crate::segment::Segment;
use offset_allocator::{Allocation, Allocator};
use std::sync::Arc;

/// The unit of the allocator: buffers begin on cache lines of their own.
const UNIT_BYTES: u32 = 64;
/// Sizes up to here are rounded up to powers of two and kept for reuse.
const SMALL_BYTES: u32 = 64 << 10;
/// Kept sizes: 64 bytes to 64 KiB by powers of two.
const CLASSES: usize = 11;
/// Buffers that a size keeps at most, so that what one size held is there for others.
const KEPT: usize = 256;
/// Buffers of one heap at most: what the tables can name.
const MAX_BUFFERS: u32 = 1 << 18;
/// Of a buffer that the core is likely to write next, so much is asked for ahead.
const PREFETCHED_BYTES: u32 = 1024;
/// Buffers from this size on, in bytes, are used in turn, and not the one that came back last first: it lies in the cache of the core
/// that read it, which gives its lines away more slowly than the cache that all cores share, to which those in use longest ago have gone.
/// Shorter ones would only take room from others there.
const ROTATED_FROM_BYTES: u32 = 16 << 10;
/// Bytes of buffers of one size that are used in turn: more than most cores' own caches have.
const ROTATED_BYTES: u32 = 2 << 20;
/// They are this part of a segment at most.
const ROTATED_PART: u32 = 16;
/// Larger buffers are rounded up to whole pages.
const PAGE_BYTES: u32 = 4096;

/// One buffer.
struct HeapBuffer {
    /// First byte, from the segment's start.
    offset: u32,
    /// Length in bytes.
    capacity: u32,
    /// Owners; 0 while it is free.
    refs: u32,
    /// The allocator's handle.
    allocation: Allocation,
}

/// The heap of one segment. One thread's own.
pub(crate) struct Heap {
    pub(crate) segment: Arc<Segment>,
    /// Whether the core alone writes to it.
    is_core_written: bool,
    allocator: Allocator,
    places: Vec<HeapBuffer>,
    /// Entries of `places` that stand for nothing now.
    vacant: Vec<u32>,
    /// Free buffers by size class, the next to be used last: of small ones the warmest, of those from [`ROTATED_FROM_BYTES`] on the one
    /// that has been free longest.
    kept: [Vec<u32>; CLASSES],
    /// How many of a size are to be kept before one is used again: others are allocated first.
    least_kept: [usize; CLASSES],
    in_use: u32,
    bytes_in_use: u64,
}

/// The heaps of a domain: over its shared segment, and over its inbox.
pub(crate) type Heaps = [Heap; 2];

/// The kept size that `bytes` belong to.
fn class(bytes: u32) -> Option<usize> {
    if bytes > SMALL_BYTES {
        return None;
    }
    Some(bytes.max(UNIT_BYTES).next_power_of_two().trailing_zeros() as usize - UNIT_BYTES.trailing_zeros() as usize)
}

/// Whether buffers of at least `bytes` are used in turn.
#[inline(always)]
pub(super) fn is_rotated(bytes: u32) -> bool {
    (ROTATED_FROM_BYTES..=SMALL_BYTES).contains(&bytes.next_power_of_two())
}

impl Heap {
    /// The heaps of a domain with these segments.
    pub(crate) fn of_domain(shared: &Arc<Segment>, inbox: &Arc<Segment>) -> Heaps {
        let [shared, inbox] = [shared, inbox].map(|segment| Heap::new(segment.clone(), MAX_BUFFERS));
        [shared, Heap { is_core_written: true, ..inbox }]
    }

    /// A heap over all of a segment (up to 4 GiB of it), for at most `buffers` buffers.
    pub(crate) fn new(segment: Arc<Segment>, buffers: u32) -> Heap {
        let units = u32::try_from(segment.bytes()).unwrap_or(u32::MAX) / UNIT_BYTES;
        // A small segment has room for fewer, and needs no tables for more.
        let buffers = buffers.min(units);
        Heap {
            segment,
            is_core_written: false,
            // A free part lies before and after each buffer at worst.
            allocator: Allocator::with_max_allocs(units, buffers.saturating_mul(2).saturating_add(2)),
            places: Vec::new(),
            vacant: Vec::new(),
            kept: std::array::from_fn(|_| Vec::with_capacity(KEPT)),
            least_kept: std::array::from_fn(|class| {
                let (bytes, most) = (UNIT_BYTES << class, ROTATED_BYTES.min(units / ROTATED_PART * UNIT_BYTES));
                if is_rotated(bytes) { (most / bytes) as usize } else { 0 }
            }),
            in_use: 0,
            bytes_in_use: 0,
        }
    }

    /// A buffer of at least `bytes`, with one owner; `None` if no gap is left that holds them.
    #[inline(always)]
    pub(crate) fn alloc(&mut self, bytes: u32) -> Option<u32> {
        if let Some(class) = class(bytes)
            && self.kept[class].len() >= self.least_kept[class]
            && let Some(index) = self.kept[class].pop()
        {
            if let Some(&next) = self.kept[class].last() {
                self.prefetch(next);
            }
            return Some(self.hand_out(index));
        }
        self.alloc_anew(bytes)
    }

    #[inline(always)]
    fn hand_out(&mut self, index: u32) -> u32 {
        let place = &mut self.places[index as usize];
        place.refs = 1;
        self.in_use += 1;
        self.bytes_in_use += u64::from(place.capacity);
        index
    }

    #[cold]
    fn alloc_anew(&mut self, bytes: u32) -> Option<u32> {
        let capacity = match class(bytes) {
            Some(class) => UNIT_BYTES << class,
            None => bytes.checked_next_multiple_of(PAGE_BYTES)?,
        };
        let units = capacity / UNIT_BYTES;
        let mut allocation = self.allocator.allocate(units);
        if allocation.is_none()
            && let Some(index) = class(bytes).and_then(|class| self.kept[class].pop())
        {
            return Some(self.hand_out(index));
        }
        if allocation.is_none() {
            // Buffers kept for other sizes may be the gap that is wanted.
            self.give_up_kept();
            allocation = self.allocator.allocate(units);
        }
        let allocation = allocation?;
        let place = HeapBuffer { offset: allocation.offset * UNIT_BYTES, capacity, refs: 0, allocation };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.places[index as usize] = place;
                index
            }
            None => {
                self.places.push(place);
                self.places.len() as u32 - 1
            }
        };
        Some(self.hand_out(index))
    }

    fn give_up_kept(&mut self) {
        for class in &mut self.kept {
            for index in class.drain(..) {
                self.allocator.free(self.places[index as usize].allocation);
                self.vacant.push(index);
            }
        }
    }

    /// Counts one more owner.
    pub(crate) fn share(&mut self, index: u32) {
        self.places[index as usize].refs += 1;
    }

    /// Whether a buffer has one owner.
    #[inline(always)]
    pub(crate) fn is_sole(&self, index: u32) -> bool {
        self.places[index as usize].refs == 1
    }

    /// Gives up one owner's claim; the last one's frees the buffer. True then.
    #[inline]
    pub(crate) fn free(&mut self, index: u32) -> bool {
        let place = &mut self.places[index as usize];
        debug_assert!(place.refs > 0, "buffer {index} was freed before");
        place.refs -= 1;
        if place.refs > 0 {
            return false;
        }
        let capacity = place.capacity;
        self.in_use -= 1;
        self.bytes_in_use -= u64::from(capacity);
        match class(capacity) {
            Some(class) if self.kept[class].len() < KEPT => {
                if is_rotated(capacity) {
                    self.kept[class].insert(0, index);
                } else {
                    self.kept[class].push(index);
                    self.prefetch(index);
                }
            }
            _ => {
                self.allocator.free(self.places[index as usize].allocation);
                self.vacant.push(index);
            }
        }
        true
    }

    /// Asks for the first lines of a buffer that the core is likely to write next, out of the cache of the client that read it.
    #[inline(always)]
    fn prefetch(&self, index: u32) {
        if self.is_core_written {
            let HeapBuffer { offset, capacity, .. } = self.places[index as usize];
            for at in (0..capacity.min(PREFETCHED_BYTES)).step_by(UNIT_BYTES as usize) {
                self.segment.prefetch((offset + at) as usize);
            }
        }
    }

    /// First byte and length of a buffer.
    #[inline(always)]
    pub(crate) fn range(&self, index: u32) -> (u32, u32) {
        let place = &self.places[index as usize];
        (place.offset, place.capacity)
    }

    /// Buffers that have an owner.
    pub(crate) fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Their bytes.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        self.bytes_in_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn heap(bytes: usize) -> Heap {
        Heap::new(Arc::new(Segment::new(bytes).unwrap()), 1024)
    }

    #[test]
    fn a_full_heap_says_so_and_recovers() {
        let mut heap = heap(1 << 20);
        let small: Vec<u32> = std::iter::from_fn(|| heap.alloc(1000)).collect();
        assert_eq!(small.len(), 1024);
        assert_eq!((heap.in_use(), heap.bytes_in_use()), (1024, 1 << 20));
        assert!(heap.alloc(1).is_none());
        small.into_iter().for_each(|index| assert!(heap.free(index)));
        assert_eq!((heap.in_use(), heap.bytes_in_use()), (0, 0));
        // All of it in one piece, though small sizes had kept a part.
        let all = heap.alloc(1 << 20).unwrap();
        assert_eq!(heap.range(all), (0, 1 << 20));
        assert!(heap.alloc(64).is_none());
        assert!(heap.free(all));
    }

    #[test]
    fn a_shared_buffer_goes_with_its_last_owner() {
        let mut heap = heap(1 << 16);
        let index = heap.alloc(64).unwrap();
        heap.share(index);
        assert!(!heap.free(index));
        assert_eq!(heap.in_use(), 1);
        assert!(heap.free(index));
    }

    #[test]
    fn small_buffers_are_used_again_at_once_and_large_ones_in_turn() {
        let mut heap = heap(8 << 20);
        let mut again = |bytes: u32| {
            let used = std::iter::repeat_with(|| {
                let index = heap.alloc(bytes).unwrap();
                heap.free(index);
                heap.range(index).0
            });
            let used: Vec<u32> = used.take(100).collect();
            let distinct: std::collections::BTreeSet<_> = used.iter().copied().collect();
            // From when they all have been used.
            let (last, before) = (used[99], used[..99].iter().rposition(|other| *other == used[99]).unwrap());
            assert_eq!(99 - before, distinct.len(), "{bytes}: {last}");
            distinct.len()
        };
        assert_eq!([64, 4096, 8192].map(&mut again), [1, 1, 1]);
        assert_eq!([64 << 10, 33 << 10, 30 << 10].map(&mut again), [8, 8, 16]);
        // All memory is there for whoever needs it, but for a gap that is too short.
        assert_eq!(std::iter::from_fn(|| heap.alloc(64 << 10)).count(), 127);
    }

    proptest! {
        /// Whatever is asked for and freed in whatever order: no two buffers overlap, and nothing is lost.
        #[test]
        fn buffers_never_overlap(steps in prop::collection::vec((any::<bool>(), 1u32..200_000, any::<prop::sample::Index>()), 1..200)) {
            let mut heap = heap(4 << 20);
            let mut held: Vec<u32> = Vec::new();
            for (alloc, bytes, which) in steps {
                if alloc || held.is_empty() {
                    if let Some(index) = heap.alloc(bytes) {
                        let (offset, capacity) = heap.range(index);
                        prop_assert!(capacity >= bytes && offset % UNIT_BYTES == 0);
                        prop_assert!(offset as usize + capacity as usize <= 4 << 20);
                        for &other in &held {
                            let (start, len) = heap.range(other);
                            prop_assert!(offset + capacity <= start || start + len <= offset);
                        }
                        held.push(index);
                    }
                } else {
                    prop_assert!(heap.free(held.swap_remove(which.index(held.len()))));
                }
            }
            prop_assert_eq!(heap.in_use() as usize, held.len());
            held.drain(..).for_each(|index| { heap.free(index); });
            prop_assert_eq!(heap.bytes_in_use(), 0);
            prop_assert!(heap.alloc(4 << 20).is_some());
        }
    }
}
