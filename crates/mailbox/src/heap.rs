//! The private table behind a pool's segment: who owns which part of it.
//!
//! Reference counts, generations, classes and the way home live here, in memory that only the daemon maps.
//!
//! **Return path.** A buffer whose last reference goes puts its index into its class's return path: a ring of cells, one
//! for each buffer of the class, so it cannot be full. A ticket (one atomic addition, whatever the number of buffers)
//! says which cells to write; the pool's holder reads them in order and needs no atomic exchange at all.
//!
//! **End of a pool.** Dropping the pool closes the return paths and adds the number of buffers still out to `debt`;
//! each buffer that then finds its path closed takes one off. Whoever brings the debt to zero frees table and segment.

#![allow(unsafe_code)]

use crate::buffer::{Buffer, BufferMut};
use crate::segment::Segment;
use crate::sync::{AtomicIsize, AtomicU32, AtomicUsize, CachePadded, Ordering, fence, yield_now};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A cell of a return path that holds no index.
const EMPTY: u32 = u32::MAX;
/// Set in a return path's ticket count once its pool is gone.
const CLOSED: usize = 1 << (usize::BITS - 1);
/// More references than this to one buffer can only be a leak in a loop; the process ends before the count wraps.
const MAX_REFERENCES: u32 = u32::MAX / 2;
/// Allocations of a class between two looks at its return path, while its free list lasts: few, so that what came home
/// last and is warm is used first, and more than one, so that two cores do not fight for the path's cache line.
const LOOK_EVERY: usize = 16;

/// One buffer's private state. A cache line of its own, so that cores that share different buffers do not meet.
#[repr(align(64))]
pub(crate) struct Slot {
    /// Owners; 0 while the buffer is free.
    refs: AtomicU32,
    /// Counts the buffer's lives: distinguishes a name {index, generation} of an earlier life from the current one's.
    generation: AtomicU32,
    /// Constant; here because who drops a buffer has this line at hand.
    class: u32,
    /// Stands for the buffer's bytes, so that loom sees who reads and writes them when.
    #[cfg(loom)]
    bytes: crate::sync::UnsafeCell<()>,
}

impl Slot {
    fn new(class: u32) -> Slot {
        Slot {
            refs: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            class,
            #[cfg(loom)]
            bytes: crate::sync::UnsafeCell::new(()),
        }
    }

    /// Notifies loom that the buffer's bytes are read.
    #[cfg(loom)]
    pub(crate) fn reads(&self) {
        self.bytes.with(|_| ());
    }

    /// Notifies loom that the buffer's bytes are written.
    #[cfg(loom)]
    pub(crate) fn writes(&self) {
        self.bytes.with_mut(|_| ());
    }

    /// Counts one more reference; the caller has one.
    #[inline]
    pub(crate) fn share(&self) {
        // Relaxed: a new reference is made from one that its maker may use already.
        if self.refs.fetch_add(1, Ordering::Relaxed) > MAX_REFERENCES {
            std::process::abort();
        }
    }

    /// Whether the caller's reference is the only one, and then all that others did with the buffer has happened.
    pub(crate) fn is_sole(&self) -> bool {
        self.refs.load(Ordering::Acquire) == 1
    }

    /// Gives up one reference; true if it was the last, and then all that others did with the buffer has happened.
    #[inline]
    fn let_go(&self) -> bool {
        // A sole owner needs no read-modify-write: nobody else has a reference to clone or drop.
        if self.is_sole() {
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

    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }
}

/// The way home for one class's buffers.
struct ReturnPath {
    /// Next ticket; [`CLOSED`] is set in it at the end.
    tickets: CachePadded<AtomicUsize>,
    /// Indices of buffers, by ticket; a power of two of them, no fewer than the class has buffers.
    cells: Box<[AtomicU32]>,
}

impl ReturnPath {
    fn new(buffers: usize) -> ReturnPath {
        let cells = (0..buffers.next_power_of_two()).map(|_| AtomicU32::new(EMPTY)).collect();
        ReturnPath { tickets: CachePadded(AtomicUsize::new(0)), cells }
    }

    #[inline]
    fn cell(&self, ticket: usize) -> &AtomicU32 {
        &self.cells[ticket & (self.cells.len() - 1)]
    }
}

/// The table: everything about a segment's buffers that must not lie in the segment.
pub(crate) struct Heap {
    slots: Box<[Slot]>,
    returns: Box<[ReturnPath]>,
    debt: AtomicIsize,
    segment: Segment,
}

impl Heap {
    #[inline]
    pub(crate) fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    /// Adds `change` to the debt; whoever brings it to zero frees the heap.
    ///
    /// # Safety
    /// The caller gives up its claims on the heap (as the pool, or as the owner of `n` buffers) and no longer touches
    /// it.
    unsafe fn settle(heap: NonNull<Heap>, change: isize) {
        // SAFETY: the caller's claims keep the heap until the addition is made. Before the pool has added its count the
        // debt is at most 0 and buffers only lower it; after, it falls to 0 exactly once.
        let before = unsafe { heap.as_ref() }.debt.fetch_add(change, Ordering::AcqRel);
        if before + change == 0 {
            // SAFETY: every claim is gone and no new one can come: the pool is closed, no buffer is left to clone.
            drop(unsafe { Box::from_raw(heap.as_ptr()) });
        }
    }

    /// Sends buffers of `class`, which have no owner left, home.
    ///
    /// # Safety
    /// The caller was the last owner of each, and touches the heap no more on their account.
    #[inline]
    unsafe fn give_back(heap: NonNull<Heap>, class: u32, indices: &[u32]) {
        // SAFETY: these buffers are not home yet, so the heap is still there: up to the last store below, or to `settle`.
        let path = unsafe { &heap.as_ref().returns[class as usize] };
        // Acquire: a cell is written after it was emptied, which happened before one of the returns counted here did.
        let ticket = path.tickets.fetch_add(indices.len(), Ordering::AcqRel);
        if ticket & CLOSED != 0 {
            // SAFETY: the claims of just these buffers, as this function's own contract says.
            unsafe { Heap::settle(heap, -(indices.len() as isize)) };
            return;
        }
        for (at, &index) in indices.iter().enumerate() {
            // Release: the holder that reads this sees all that was done to the buffer.
            path.cell(ticket.wrapping_add(at)).store(index, Ordering::Release);
        }
    }

    /// Gives up one reference to buffer `index`, sending it home if that was the last.
    ///
    /// # Safety
    /// The caller owns the reference, and with it touches neither buffer nor heap any more.
    #[inline]
    pub(crate) unsafe fn let_go(heap: NonNull<Heap>, index: u32) {
        // SAFETY: the reference keeps the heap.
        let slot = unsafe { heap.as_ref() }.slot(index);
        let class = slot.class;
        if slot.let_go() {
            // SAFETY: the last reference went just now, and it was the caller's.
            unsafe { Heap::give_back(heap, class, &[index]) };
        }
    }
}

/// Unmapping ends the bytes, so loom must find every use of them before it.
#[cfg(loom)]
impl Drop for Heap {
    fn drop(&mut self) {
        self.slots.iter().for_each(Slot::writes);
    }
}

/// Drops all of `buffers`; those of one pool and class that follow each other go home for one atomic operation.
pub(crate) fn release(buffers: &mut Vec<Buffer>) {
    /// Buffers sent home together: more gain nothing.
    const GROUP: usize = 32;
    let mut group = [0u32; GROUP];
    let mut count = 0;
    let mut of: Option<(NonNull<Heap>, u32)> = None;
    for buffer in buffers.drain(..) {
        let (heap, index) = ManuallyDrop::new(buffer).place();
        // SAFETY: the reference, given up here, keeps the heap.
        let slot = unsafe { heap.as_ref() }.slot(index);
        let class = slot.class;
        if !slot.let_go() {
            continue;
        }
        if let Some((last_heap, last_class)) = of
            && (last_heap != heap || last_class != class || count == GROUP)
        {
            // SAFETY: the last references to these went just now, and they were this function's.
            unsafe { Heap::give_back(last_heap, last_class, &group[..count]) };
            count = 0;
        }
        of = Some((heap, class));
        group[count] = index;
        count += 1;
    }
    if let Some((heap, class)) = of {
        // SAFETY: as above.
        unsafe { Heap::give_back(heap, class, &group[..count]) };
    }
}

/// The pieces of a segment, class by class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) bytes: usize,
    pub(crate) count: usize,
}

/// The holder's side of one class.
struct Home {
    /// Indices of the buffers that are home, the warmest last.
    free: Vec<u32>,
    /// The next ticket of the return path to look for.
    ticket: usize,
    /// Allocations left before the return path is looked at again.
    until_look: usize,
    /// Index of the class's first buffer.
    first: u32,
    /// Bytes of each buffer.
    bytes: u32,
    /// Where the first buffer begins; the others follow it.
    base: NonNull<u8>,
}

/// The pool's own hold on a heap, with the free lists. Dropping it closes the return paths.
pub(crate) struct HeapOwner {
    heap: NonNull<Heap>,
    homes: Box<[Home]>,
    /// Buffers taken from return paths so far.
    collected: u64,
}

// SAFETY: all state that threads share is atomic; the rest is constant after `new`. The owner's operations need `&mut`.
unsafe impl Send for HeapOwner {}

impl HeapOwner {
    /// A heap over `segment`, cut into `cuts` one after the other; `None` if they do not fit it.
    pub(crate) fn new(segment: Segment, cuts: &[Cut]) -> Option<HeapOwner> {
        let add = |sum: u32, cut: &Cut| sum.checked_add(u32::try_from(cut.count).ok()?);
        let count = cuts.iter().try_fold(0, add).filter(|&count| count < EMPTY)?;
        // Grown by one class after the other, the slots would be copied for each.
        let (mut slots, mut homes) = (Vec::with_capacity(count as usize), Vec::with_capacity(cuts.len()));
        let (mut first, mut offset) = (0, 0);
        for (class, cut) in cuts.iter().enumerate() {
            let class = u32::try_from(class).ok()?;
            let end = first + cut.count as u32;
            let base = segment.at(offset, cut.bytes.checked_mul(cut.count)?)?;
            offset += cut.bytes * cut.count;
            slots.extend((first..end).map(|_| Slot::new(class)));
            // Reversed: the lowest index is on top, so a light load touches few neighbouring pages.
            let free = (first..end).rev().collect();
            homes.push(Home { free, ticket: 0, until_look: 0, first, bytes: u32::try_from(cut.bytes).ok()?, base });
            first = end;
        }
        let heap = Box::new(Heap {
            slots: slots.into_boxed_slice(),
            returns: cuts.iter().map(|cut| ReturnPath::new(cut.count)).collect(),
            debt: AtomicIsize::new(0),
            segment,
        });
        Some(HeapOwner { heap: NonNull::from(Box::leak(heap)), homes: homes.into_boxed_slice(), collected: 0 })
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

    /// Hands out a buffer of `class`, one that came home lately, if any is home.
    #[inline]
    pub(crate) fn take(&mut self, class: usize) -> Option<BufferMut> {
        // SAFETY: as in `heap`; not through `self`, whose lists change meanwhile.
        let heap = unsafe { self.heap.as_ref() };
        let home = &mut self.homes[class];
        if home.until_look == 0 || home.free.is_empty() {
            let got = home.collect(&heap.returns[class]);
            self.collected += got as u64;
            home.until_look = got.clamp(1, LOOK_EVERY);
        }
        home.until_look -= 1;
        let index = home.free.pop()?;
        heap.slot(index).refs.store(1, Ordering::Relaxed);
        // SAFETY: the index was on the class's free list, so it has no other owner; `new` checked that all of the
        // class's buffers lie in the segment, one after the other from `base` on.
        unsafe {
            let data = home.base.add((index - home.first) as usize * home.bytes as usize);
            Some(BufferMut::new(self.heap, index, data, home.bytes))
        }
    }

    /// Whether at least `count` buffers of `class` are home.
    #[inline]
    pub(crate) fn has(&mut self, class: usize, count: usize) -> bool {
        // SAFETY: as in `heap`; not through `self`, whose lists change meanwhile.
        let heap = unsafe { self.heap.as_ref() };
        let home = &mut self.homes[class];
        if home.free.len() < count {
            self.collected += home.collect(&heap.returns[class]) as u64;
        }
        home.free.len() >= count
    }

    /// Takes a reference back, past the return path: the buffer is home at once if it was the last.
    #[inline]
    pub(crate) fn reclaim(&mut self, buffer: Buffer) {
        if buffer.place().0 != self.heap {
            return; // another pool's: dropped here, so it goes home by that pool's return path
        }
        let (_, index) = ManuallyDrop::new(buffer).place();
        let slot = self.heap().slot(index);
        let class = slot.class as usize;
        if slot.let_go() {
            self.homes[class].free.push(index);
        }
    }

    /// Whether a buffer is one of this heap.
    pub(crate) fn owns(&self, buffer: &Buffer) -> bool {
        buffer.place().0 == self.heap
    }

    /// How many buffers of `class` are home, or have arrived on the return path.
    pub(crate) fn free(&self, class: usize) -> usize {
        let (home, path) = (&self.homes[class], &self.heap().returns[class]);
        let arrived = (0..path.cells.len())
            .take_while(|&at| path.cell(home.ticket.wrapping_add(at)).load(Ordering::Relaxed) != EMPTY)
            .count();
        home.free.len() + arrived
    }
}

impl Home {
    /// Moves what has arrived on the return path to the free list, the latest on top. Returns how many.
    #[inline]
    fn collect(&mut self, path: &ReturnPath) -> usize {
        let before = self.free.len();
        loop {
            let cell = path.cell(self.ticket);
            // Acquire: all that was done to the buffer happened before it is used again.
            let index = cell.load(Ordering::Acquire);
            if index == EMPTY {
                return self.free.len() - before;
            }
            cell.store(EMPTY, Ordering::Relaxed);
            self.ticket = self.ticket.wrapping_add(1);
            self.free.push(index);
        }
    }
}

impl Drop for HeapOwner {
    fn drop(&mut self) {
        // SAFETY: as in `heap`.
        let heap = unsafe { self.heap.as_ref() };
        let mut out = heap.slots.len() as isize;
        for (home, path) in self.homes.iter_mut().zip(&heap.returns) {
            let last = path.tickets.fetch_or(CLOSED, Ordering::AcqRel);
            home.collect(path);
            // A thread with a ticket from before is about to write its cell, and must not find the heap gone.
            while home.ticket != last {
                yield_now();
                home.collect(path);
            }
            out -= home.free.len() as isize;
        }
        // SAFETY: the owner's claim ends here.
        unsafe { Heap::settle(self.heap, out) };
    }
}
