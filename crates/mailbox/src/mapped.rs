//! A vector of plain values for tables that are read at random.
//!
//! From 2 MiB on it has a mapping of its own, and grows without a copy of what is there: the kernel moves the mapping in the address space. A
//! vector of the allocator is copied where its elements have an alignment, or where the kernel was advised on a part of its pages, and a copy
//! of all that a large state keeps stops a context for a tenth of a second. The mapping is on huge pages where the kernel's settings allow it
//! (`madvise`), so that a look at any place costs no walk through the page table. Elements begin with a line of the cache: one whose size
//! divides that of a line is in one.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

#[cfg(not(any(loom, miri)))]
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap};

use crate::segment::HUGE_PAGE_BYTES;

/// A line of the cache, in bytes.
const LINE: usize = 64;
/// The bytes of the first element's memory, or more.
const FIRST_BYTES: usize = 4 * LINE;

/// A vector of plain values, on huge pages if it is large; it grows without a copy then. It has no memory until its first element.
pub struct MappedVec<T: Copy> {
    start: NonNull<T>,
    len: usize,
    /// The bytes of its memory; 0 for none.
    bytes: usize,
    of: PhantomData<T>,
}

// SAFETY: it owns its memory, to which nothing else leads, as a `Vec` does.
unsafe impl<T: Copy + Send> Send for MappedVec<T> {}
// SAFETY: shared references give out shared references to the elements only.
unsafe impl<T: Copy + Sync> Sync for MappedVec<T> {}

impl<T: Copy> Default for MappedVec<T> {
    fn default() -> MappedVec<T> {
        MappedVec { start: NonNull::dangling(), len: 0, bytes: 0, of: PhantomData }
    }
}

impl<T: Copy> MappedVec<T> {
    const ELEMENT: usize = {
        assert!(size_of::<T>() > 0 && align_of::<T>() <= LINE, "elements take memory, and begin with a line");
        size_of::<T>()
    };

    /// A vector of `count` elements, each the same.
    #[must_use]
    pub fn filled(count: usize, with: T) -> MappedVec<T> {
        let mut filled = MappedVec::default();
        filled.resize(count, with);
        filled
    }

    /// Adds an element behind the last one.
    #[inline]
    pub fn push(&mut self, one: T) {
        self.reserve(1);
        // SAFETY: there is room for one more, so that its place is in its memory.
        unsafe { self.start.add(self.len).write(one) };
        self.len += 1;
    }

    /// Makes it this long: with copies of an element, or by leaving the last ones out.
    #[inline]
    pub fn resize(&mut self, len: usize, with: T) {
        let more = len.saturating_sub(self.len);
        self.reserve(more);
        for at in self.len..self.len + more {
            // SAFETY: there is room for all of them, so that each place is in its memory.
            unsafe { self.start.add(at).write(with) };
        }
        self.len = len;
    }

    /// Leaves the elements behind this length out. Their memory stays.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Leaves all elements out.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    fn reserve(&mut self, more: usize) {
        if more > self.bytes / Self::ELEMENT - self.len {
            self.grow(more);
        }
    }

    /// Twice as much room, or what is needed. As with a `Vec` the process ends where there is no memory.
    #[cold]
    fn grow(&mut self, more: usize) {
        let needed = (self.len + more).saturating_mul(Self::ELEMENT).max(self.bytes.saturating_mul(2)).max(FIRST_BYTES);
        let bytes =
            if is_large(needed) { needed.div_ceil(HUGE_PAGE_BYTES).saturating_mul(HUGE_PAGE_BYTES) } else { needed };
        let start = match is_large(bytes) {
            true if is_large(self.bytes) => mapping::moved(self.start.cast(), self.bytes, bytes),
            true => mapping::new(bytes),
            // SAFETY: the layout is not empty.
            false => layout(bytes).and_then(|layout| NonNull::new(unsafe { alloc(layout) })),
        };
        let Some(start) = start else { handle_alloc_error(Layout::new::<T>()) };
        if !is_large(self.bytes) {
            // SAFETY: the elements are in the old memory, and fit into the new one, which is another.
            unsafe { self.start.copy_to_nonoverlapping(start.cast(), self.len) };
            self.free();
        }
        (self.start, self.bytes) = (start.cast(), bytes);
    }

    /// Lets go of the memory, which is not used from here on.
    fn free(&mut self) {
        if is_large(self.bytes) {
            mapping::free(self.start.cast(), self.bytes);
        } else if let Some(layout) = layout(self.bytes).filter(|layout| layout.size() > 0) {
            // SAFETY: it is the allocator's, of this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}

impl MappedVec<u64> {
    /// A vector of zeros. Of a large one no page is touched.
    #[must_use]
    pub fn zeros(count: usize) -> MappedVec<u64> {
        let mut zeros = MappedVec::default();
        zeros.reserve(count);
        if is_large(zeros.bytes) {
            // A new mapping is of zeros.
            zeros.len = count;
        }
        zeros.resize(count, 0);
        zeros
    }
}

/// Whether this much memory is a mapping. The model checkers have none.
fn is_large(bytes: usize) -> bool {
    bytes >= HUGE_PAGE_BYTES && cfg!(not(any(loom, miri)))
}

/// The layout of memory that is the allocator's; none of more than there can be.
fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, LINE).ok()
}

#[cfg(not(any(loom, miri)))]
mod mapping {
    use super::{Advice, MapFlags, MremapFlags, NonNull, ProtFlags, madvise, mmap_anonymous, mremap, munmap};

    /// A new mapping, on huge pages from its first byte on where the kernel places it so (Linux does from 6.7 on).
    pub(super) fn new(bytes: usize) -> Option<NonNull<u8>> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses the place, so that nothing refers to the memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }.ok()?;
        // SAFETY: this is all of the mapping, and the advice changes no byte. It may be refused.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        NonNull::new(start.cast())
    }

    /// A longer mapping with the bytes of one that is gone then.
    pub(super) fn moved(start: NonNull<u8>, before: usize, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: it is a whole mapping of `new`, and the vector that owns it is borrowed for the change.
        NonNull::new(unsafe { mremap(start.as_ptr().cast(), before, bytes, MremapFlags::MAYMOVE) }.ok()?.cast())
    }

    pub(super) fn free(start: NonNull<u8>, bytes: usize) {
        // SAFETY: it is a whole mapping of `new`, and the vector that owns it uses it no longer.
        let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
    }
}

#[cfg(any(loom, miri))]
mod mapping {
    use super::NonNull;

    pub(super) fn new(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(super) fn moved(_start: NonNull<u8>, _before: usize, _bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(super) fn free(_start: NonNull<u8>, _bytes: usize) {}
}

impl<T: Copy> MappedVec<T> {
    /// Asks for the cache line of an element that will be read or written soon; past the end nothing happens. A hint: other
    /// work goes on while the line comes.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if let Some(element) = self.get(index) {
            crate::racy::prefetch(NonNull::from(element).cast());
        }
    }
}

impl<T: Copy> Drop for MappedVec<T> {
    fn drop(&mut self) {
        self.free();
    }
}

impl<T: Copy> Deref for MappedVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` elements are in its memory and were written; of none the start is aligned.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for MappedVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for shared ones; the vector is borrowed for as long.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for MappedVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements that are more than a huge page; the model checkers have no pages, and are slow.
    const MANY: u64 = if cfg!(any(loom, miri)) { 300 } else { 300_000 };

    #[test]
    fn it_keeps_its_elements_while_it_grows() {
        // Beyond each limit, in elements that no page is a multiple of.
        let mut pushed = MappedVec::default();
        for number in 0..MANY {
            pushed.push([number; 3]);
        }
        assert!((0..).zip(pushed.iter()).all(|(number, one)| *one == [number; 3]));
        assert_eq!(pushed.len(), MANY as usize);
        pushed.truncate(5);
        assert_eq!(pushed.last(), Some(&[4; 3]));
    }

    #[test]
    fn its_length_changes_in_both_directions() {
        let (mut bytes, unit) = (MappedVec::filled(10, 7_u8), 4 * MANY as usize);
        for (len, with) in [(100, 1), (50, 2), (5 * unit, 3), (unit, 4), (6 * unit, 5), (3 * unit, 6)] {
            bytes.resize(len, with);
            assert_eq!(bytes.len(), len);
        }
        let runs = [(0..10, 7), (10..50, 1), (50..unit, 3), (unit..3 * unit, 5)];
        assert!(runs.into_iter().all(|(run, of)| bytes[run].iter().all(|byte| *byte == of)));
        bytes.clear();
        assert!(bytes.is_empty() && MappedVec::<u8>::default().is_empty());
    }

    #[test]
    fn elements_begin_with_a_line() {
        let mut lines = MappedVec::filled(1, [0_u64; 8]);
        while lines.len() < MANY as usize {
            assert_eq!(lines.as_ptr().addr() % LINE, 0);
            lines.resize(lines.len() * 40, [1; 8]);
        }
        assert!(lines.iter().skip(1).all(|line| *line == [1; 8]));
    }

    #[test]
    fn zeros_are_zeros() {
        for count in [0, 5, MANY as usize] {
            let zeros = MappedVec::zeros(count);
            assert!(zeros.len() == count && zeros.iter().all(|zero| *zero == 0));
        }
    }
}
