//! Buffers: references to parts of a pool's segment. A buffer is one index into the pool's private table plus the
//! address that it was checked for.

#![allow(unsafe_code)]

use crate::heap::{Heap, Slot};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A buffer's name within its pool: an index, and which of its lives is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct BufferId {
    /// Place in the pool's table.
    pub index: u32,
    /// Number of times that this place was freed before; wraps.
    pub generation: u32,
}

/// A shared, read-only buffer: `Deref` gives its whole capacity. Cloning counts a reference; the last drop, on any
/// thread, sends it home to its pool.
pub struct Buffer {
    heap: NonNull<Heap>,
    data: NonNull<u8>,
    index: u32,
    capacity: u32,
}

// SAFETY: the bytes are read-only while shared, the count is atomic, and the way home may be taken from any thread.
unsafe impl Send for Buffer {}
// SAFETY: see `Send`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The table that it belongs to, and its place there.
    #[inline]
    pub(crate) fn place(&self) -> (NonNull<Heap>, u32) {
        (self.heap, self.index)
    }

    #[inline]
    fn slot(&self) -> &Slot {
        // SAFETY: a reference to a buffer keeps its heap.
        unsafe { self.heap.as_ref() }.slot(self.index)
    }

    /// Capacity in bytes: the size of its class.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Its name within its pool.
    pub fn id(&self) -> BufferId {
        BufferId { index: self.index, generation: self.slot().generation() }
    }

    /// Whether `other` is a reference to the same buffer.
    pub fn same(&self, other: &Buffer) -> bool {
        self.place() == other.place()
    }

    /// Becomes writable again if this is the only reference; else gives itself back.
    ///
    /// # Errors
    /// The buffer itself, when it is shared.
    pub fn try_mut(self) -> Result<BufferMut, Buffer> {
        if self.slot().is_sole() { Ok(BufferMut(self)) } else { Err(self) }
    }
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Buffer {
        self.slot().share();
        Buffer { heap: self.heap, data: self.data, index: self.index, capacity: self.capacity }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this reference ends here.
        unsafe { Heap::let_go(self.heap, self.index) };
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        #[cfg(loom)]
        self.slot().reads();
        // SAFETY: `capacity` bytes from `data` on were checked to lie in the segment, which outlives the buffer; they
        // always hold a value, since the kernel zeroes what was never written; nobody writes to a shared buffer, and
        // the segment is mapped by the daemon alone.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.capacity as usize) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("id", &self.id()).field("capacity", &self.capacity).finish()
    }
}

/// A buffer with one owner, who may write: `Deref` and `DerefMut` give its whole capacity. Its first bytes are
/// the bytes of its last use, by the same daemon; see [`crate::Pool::alloc`].
pub struct BufferMut(Buffer);

impl BufferMut {
    /// A new reference to buffer `index`.
    ///
    /// # Safety
    /// The buffer's count is 1, and this reference is the one counted; `capacity` bytes from `data` on are the buffer's
    /// own, in the segment of `heap`.
    #[inline]
    pub(crate) unsafe fn new(heap: NonNull<Heap>, index: u32, data: NonNull<u8>, capacity: u32) -> BufferMut {
        BufferMut(Buffer { heap, data, index, capacity })
    }

    /// Gives up writing, for sharing.
    #[inline]
    pub fn freeze(self) -> Buffer {
        self.0
    }

    /// Capacity in bytes: the size of its class.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Its name within its pool.
    pub fn id(&self) -> BufferId {
        self.0.id()
    }
}

impl Deref for BufferMut {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for BufferMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        #[cfg(loom)]
        self.0.slot().writes();
        // SAFETY: as in `Buffer::deref`; and this is the only reference, since `BufferMut` is made only for a count of
        // one and cannot be cloned.
        unsafe { std::slice::from_raw_parts_mut(self.0.data.as_ptr(), self.0.capacity as usize) }
    }
}

impl fmt::Debug for BufferMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferMut").field("id", &self.id()).field("capacity", &self.capacity()).finish()
    }
}
