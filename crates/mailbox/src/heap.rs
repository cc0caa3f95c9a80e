//! The private table behind a pool's segment, and the buffers handed out over it.
//!
//! Reference counts, generations, classes and the links of the return paths live here, in memory that only the daemon
//! maps. A buffer is one index into this table plus the address that it was checked for.
//!
//! **Return path.** A buffer whose last reference goes is pushed on its class's return path: a stack linked through the
//! table. It needs no memory of its own and holds at most every buffer of the class, so it cannot be full. The pool
//! takes a whole stack at once (no single pop, hence no ABA) when it next allocates.
//!
//! **End of a pool.** Dropping the pool closes the return paths and adds the number of buffers still out to `debt`;
//! each buffer that then finds its path closed takes one off. Whoever brings the debt to zero frees table and segment.

#![allow(unsafe_code)]

use crate::segment::Segment;
use crate::sync::{Apart, AtomicIsize, AtomicU32, Ordering, fence};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Head of a return path that holds nothing; also the link of its last entry.
const EMPTY: u32 = u32::MAX;
/// Head of the return path of a pool that is gone.
const CLOSED: u32 = u32::MAX - 1;
/// More references than this to one buffer can only be a leak in a loop; the process ends before the count wraps.
const MAX_REFERENCES: u32 = u32::MAX / 2;

/// One buffer's private state. A cache line of its own, so that cores that share different buffers do not meet.
#[repr(align(64))]
struct Slot {
    /// Owners; 0 while the buffer is free.
    refs: AtomicU32,
    /// The next entry of the return path, while the buffer is on one.
    next: AtomicU32,
    /// Counts the buffer's lives: a name {index, generation} of an earlier one can be told from this one's.
    generation: AtomicU32,
    class: u32,
    offset: usize,
}

/// The table: everything about a segment's buffers that must not lie in the segment.
pub(crate) struct Heap {
    slots: Box<[Slot]>,
    returns: Box<[Apart<AtomicU32>]>,
    class_bytes: Box<[usize]>,
    debt: AtomicIsize,
    segment: Segment,
}

/// What a segment is cut into, class by class; checked by the pool.
pub(crate) struct Cut {
    pub(crate) bytes: usize,
    pub(crate) count: usize,
}

/// The pool's own hold on a heap, with the free lists. Dropping it closes the return paths.
pub(crate) struct HeapOwner {
    heap: NonNull<Heap>,
    /// By class: indices of the buffers that are home, the warmest last.
    free: Box<[Vec<u32>]>,
    /// Buffers taken from return paths so far.
    collected: u64,
}

// SAFETY: all state that threads share is atomic; the rest is constant after `new`. The owner's operations need `&mut`.
unsafe impl Send for HeapOwner {}

impl HeapOwner {
    /// A heap over `segment`, cut into `cuts` one after the other; `None` if they do not fit it.
    pub(crate) fn new(segment: Segment, cuts: &[Cut]) -> Option<HeapOwner> {
        let mut slots = Vec::new();
        let mut free = Vec::new();
        let mut offset = 0;
        for (class, cut) in cuts.iter().enumerate() {
            let first = u32::try_from(slots.len()).ok()?;
            let end = first.checked_add(u32::try_from(cut.count).ok()?).filter(|&end| end < CLOSED)?;
            for _ in first..end {
                segment.at(offset, cut.bytes)?;
                slots.push(Slot {
                    refs: AtomicU32::new(0),
                    next: AtomicU32::new(EMPTY),
                    generation: AtomicU32::new(0),
                    class: u32::try_from(class).ok()?,
                    offset,
                });
                offset += cut.bytes;
            }
            // Reversed: the lowest index is on top, so a light load touches few neighbouring pages.
            free.push((first..end).rev().collect());
        }
        let heap = Box::new(Heap {
            slots: slots.into_boxed_slice(),
            returns: cuts.iter().map(|_| Apart(AtomicU32::new(EMPTY))).collect(),
            class_bytes: cuts.iter().map(|cut| cut.bytes).collect(),
            debt: AtomicIsize::new(0),
            segment,
        });
        Some(HeapOwner { heap: NonNull::from(Box::leak(heap)), free: free.into_boxed_slice(), collected: 0 })
    }

    fn heap(&self) -> &Heap {
        // SAFETY: the heap is freed at the earliest when this owner is dropped.
        unsafe { self.heap.as_ref() }
    }

    /// Length of the segment in bytes.
    pub(crate) fn segment_bytes(&self) -> usize {
        self.heap().segment.bytes()
    }

    /// Buffers taken from return paths so far.
    pub(crate) fn collected(&self) -> u64 {
        self.collected
    }

    /// Hands out the buffer of `class` that came home last, if one is home.
    #[inline]
    pub(crate) fn take(&mut self, class: usize) -> Option<BufferMut> {
        self.collect(class);
        // SAFETY: as in `heap`; not through `self`, whose free lists change meanwhile.
        let heap = unsafe { self.heap.as_ref() };
        let index = self.free[class].pop()?;
        let slot = &heap.slots[index as usize];
        let capacity = heap.class_bytes[class];
        let data = heap.segment.at(slot.offset, capacity)?;
        slot.refs.store(1, Ordering::Relaxed);
        Some(BufferMut(Buffer { heap: self.heap, data, index, capacity }))
    }

    /// Takes home what waits on the return path of `class`: what came last is warm in the cache, and is used first.
    #[inline]
    fn collect(&mut self, class: usize) {
        // SAFETY: as in `heap`; not through `self`, whose free lists change meanwhile.
        let heap = unsafe { self.heap.as_ref() };
        if heap.returns[class].load(Ordering::Relaxed) != EMPTY {
            // Acquire: all that was done to the buffers that came home happened before they are used again.
            let head = heap.returns[class].swap(EMPTY, Ordering::Acquire);
            self.collected += heap.unchain(head, &mut self.free[class]) as u64;
        }
    }

    /// Whether at least `count` buffers of `class` are home.
    #[inline]
    pub(crate) fn has(&mut self, class: usize, count: usize) -> bool {
        self.collect(class);
        self.free[class].len() >= count
    }

    /// Takes a reference back, past the return path: the buffer goes home at once if it was the last.
    #[inline]
    pub(crate) fn take_back(&mut self, buffer: Buffer) {
        if buffer.heap != self.heap {
            return; // another pool's: dropped here, so it goes home through that pool's return path
        }
        let buffer = ManuallyDrop::new(buffer);
        let slot = buffer.slot();
        if slot.let_go() {
            self.free[slot.class as usize].push(buffer.index);
        }
    }

    /// How many buffers of `class` are home, or wait on the return path. Walks it, which only the one owner may:
    /// nobody else takes from it.
    pub(crate) fn free(&self, class: usize) -> usize {
        let heap = self.heap();
        let mut count = self.free[class].len();
        let mut at = heap.returns[class].load(Ordering::Acquire);
        while at != EMPTY {
            count += 1;
            at = heap.slots[at as usize].next.load(Ordering::Relaxed);
        }
        count
    }
}

impl Drop for HeapOwner {
    fn drop(&mut self) {
        // SAFETY: as in `heap`.
        let heap = unsafe { self.heap.as_ref() };
        let mut home = 0;
        for (path, free) in heap.returns.iter().zip(&mut self.free) {
            heap.unchain(path.swap(CLOSED, Ordering::AcqRel), free);
            home += free.len();
        }
        let out = (heap.slots.len() - home) as isize;
        // SAFETY: the owner's claim ends here.
        unsafe { Heap::settle(self.heap, out) };
    }
}

impl Heap {
    /// Puts the chain that begins at `head` on top of `free`, its first entry topmost: the latest to come home is the
    /// warmest. Returns how many there were.
    fn unchain(&self, head: u32, free: &mut Vec<u32>) -> usize {
        let start = free.len();
        let mut at = head;
        while at != EMPTY {
            free.push(at);
            at = self.slots[at as usize].next.load(Ordering::Relaxed);
        }
        free[start..].reverse();
        free.len() - start
    }

    /// Adds `change` to the debt; whoever brings it to zero frees the heap.
    ///
    /// # Safety
    /// The caller gives up its own claim on the heap (as the pool, or as one buffer) and touches it no more.
    unsafe fn settle(heap: NonNull<Heap>, change: isize) {
        // SAFETY: the caller's claim keeps the heap until the addition is made. Before the pool has added its count the
        // debt is at most 0 and buffers only lower it; after, it falls to 0 exactly once.
        let before = unsafe { heap.as_ref() }.debt.fetch_add(change, Ordering::AcqRel);
        if before + change == 0 {
            // SAFETY: every claim is gone and no new one can come: the pool is closed, no buffer is left to clone.
            drop(unsafe { Box::from_raw(heap.as_ptr()) });
        }
    }

    /// Sends buffer `index`, which has no owner left, home.
    ///
    /// # Safety
    /// The caller was the buffer's last owner and touches the heap no more.
    unsafe fn give_back(heap: NonNull<Heap>, index: u32) {
        // SAFETY: the caller's buffer is not home yet, so the heap is still there; after the exchange below succeeds
        // nothing here touches it.
        let (slot, path) = unsafe {
            let table = heap.as_ref();
            let slot = &table.slots[index as usize];
            (slot, &table.returns[slot.class as usize])
        };
        let mut head = path.load(Ordering::Relaxed);
        while head != CLOSED {
            slot.next.store(head, Ordering::Relaxed);
            // Release: the pool that collects this sees all that was done to the buffer.
            match path.compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
        // SAFETY: this buffer's claim is given up, as this function's own contract says.
        unsafe { Heap::settle(heap, -1) };
    }
}

impl Slot {
    /// Gives up one reference; true if it was the last, and then all that others did with the buffer has happened.
    fn let_go(&self) -> bool {
        // A sole owner needs no read-modify-write: nobody else has a reference to clone or drop.
        if self.refs.load(Ordering::Acquire) == 1 {
            self.refs.store(0, Ordering::Relaxed);
        } else if self.refs.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
        } else {
            return false;
        }
        let lives = self.generation.load(Ordering::Relaxed);
        self.generation.store(lives.wrapping_add(1), Ordering::Relaxed);
        true
    }
}

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
    capacity: usize,
    index: u32,
}

// SAFETY: the bytes are read-only while shared, the count is atomic, and the way home may be taken from any thread.
unsafe impl Send for Buffer {}
// SAFETY: see `Send`.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn slot(&self) -> &Slot {
        // SAFETY: a buffer that exists keeps its heap.
        let heap = unsafe { self.heap.as_ref() };
        &heap.slots[self.index as usize]
    }

    /// Capacity in bytes: the size of its class.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Its name within its pool.
    pub fn id(&self) -> BufferId {
        BufferId { index: self.index, generation: self.slot().generation.load(Ordering::Relaxed) }
    }

    /// Whether `other` is a reference to the same buffer.
    pub fn same(&self, other: &Buffer) -> bool {
        self.heap == other.heap && self.index == other.index
    }

    /// Becomes writable again if this is the only reference; else gives itself back.
    ///
    /// # Errors
    /// The buffer itself, when it is shared.
    pub fn try_mut(self) -> Result<BufferMut, Buffer> {
        // Acquire: what former owners read must have been read before it is overwritten.
        if self.slot().refs.load(Ordering::Acquire) == 1 { Ok(BufferMut(self)) } else { Err(self) }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        let before = self.slot().refs.fetch_add(1, Ordering::Relaxed);
        if before > MAX_REFERENCES {
            std::process::abort();
        }
        Buffer { heap: self.heap, data: self.data, index: self.index, capacity: self.capacity }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.slot().let_go() {
            // SAFETY: the last reference went just now, and it was this one.
            unsafe { Heap::give_back(self.heap, self.index) };
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `capacity` bytes from `data` on were checked to lie in the segment, which outlives the buffer; nobody
        // writes to a shared buffer, and the segment is mapped by the daemon alone.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.capacity) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("id", &self.id()).field("capacity", &self.capacity).finish()
    }
}

/// A buffer with one owner, who may write: `Deref` and `DerefMut` give its whole capacity. What it holds at first are
/// the bytes of its last use, by the same daemon; see [`crate::Pool::alloc`].
pub struct BufferMut(Buffer);

impl BufferMut {
    /// Gives up writing, for sharing.
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
        // SAFETY: as in `Buffer::deref`; and this is the only reference, since `BufferMut` is made only for a count of
        // one and cannot be cloned.
        unsafe { std::slice::from_raw_parts_mut(self.0.data.as_ptr(), self.0.capacity) }
    }
}

impl fmt::Debug for BufferMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferMut").field("id", &self.id()).field("capacity", &self.0.capacity).finish()
    }
}
