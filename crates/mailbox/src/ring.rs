//! Bounded single-producer, single-consumer rings of descriptors.
//!
//! Each side keeps its own index and a copy of the other's on cache lines of its own, and looks at the other's line only
//! when the copy says full or empty; whole batches move for one publication.

#![allow(unsafe_code)]

use crate::sync::{Arc, AtomicBool, AtomicUsize, CachePadded, Ordering, UnsafeCell};
use std::fmt;
use std::mem::MaybeUninit;

struct Shared<T> {
    /// Next place to be read; written by the consumer. Counts on without wrapping to the capacity.
    head: CachePadded<AtomicUsize>,
    /// Next place to be written; written by the producer.
    tail: CachePadded<AtomicUsize>,
    /// One side is gone.
    closed: AtomicBool,
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a place is touched by the producer alone while it is outside head..tail, by the consumer alone while it is
// inside; the release store of an index hands it over. Values only move between threads, so `T: Send` is enough.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    #[inline]
    fn place(&self, at: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.places[at & (self.places.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let (mut at, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        while at != tail {
            // SAFETY: both sides are gone; head..tail were written and not read.
            self.place(at).with_mut(|place| unsafe { (*place).assume_init_drop() });
            at = at.wrapping_add(1);
        }
    }
}

/// The side that puts in. One thread at a time holds it.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// The consumer's index as last seen.
    head_seen: usize,
}

/// The side that takes out. One thread at a time holds it.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// The producer's index as last seen.
    tail_seen: usize,
}

/// A ring for at least `capacity` descriptors, rounded up to a power of two.
///
/// # Panics
/// If `capacity` is over 2^30: a bound has to be one.
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity <= 1 << 30, "a ring of {capacity} places is not bounded in any useful sense");
    let places = (0..capacity.max(1).next_power_of_two()).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Arc::new(Shared {
        head: CachePadded(AtomicUsize::new(0)),
        tail: CachePadded(AtomicUsize::new(0)),
        closed: AtomicBool::new(false),
        places,
    });
    let producer = Producer { shared: shared.clone(), tail: 0, head_seen: 0 };
    (producer, Consumer { shared, head: 0, tail_seen: 0 })
}

impl<T> Producer<T> {
    /// How many descriptors it holds at most.
    pub fn capacity(&self) -> usize {
        self.shared.places.len()
    }

    /// How many more fit now, at least.
    pub fn free(&mut self) -> usize {
        self.head_seen = self.shared.head.load(Ordering::Acquire);
        self.capacity() - self.tail.wrapping_sub(self.head_seen)
    }

    /// Whether fewer than `limit` wait in it; asks the consumer only if it seems otherwise.
    #[inline]
    pub fn is_below(&mut self, limit: usize) -> bool {
        if self.tail.wrapping_sub(self.head_seen) < limit {
            return true;
        }
        self.head_seen = self.shared.head.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.head_seen) < limit
    }

    /// How many fit without asking, or after asking if that is none.
    fn free_seen(&mut self) -> usize {
        match self.capacity() - self.tail.wrapping_sub(self.head_seen) {
            0 => self.free(),
            free => free,
        }
    }

    /// Puts one in.
    ///
    /// # Errors
    /// Gives `value` back if the ring is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.free_seen() == 0 {
            return Err(value);
        }
        // SAFETY: the place is outside head..tail, so it is the producer's, and holds nothing.
        self.shared.place(self.tail).with_mut(|place| unsafe { (*place).write(value) });
        self.tail = self.tail.wrapping_add(1);
        self.shared.tail.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Takes from the front of `values` as many as fit, for one publication. Returns how many.
    pub fn push_batch(&mut self, values: &mut Vec<T>) -> usize {
        let mut free = self.free_seen();
        if free < values.len() {
            free = self.free();
        }
        let count = free.min(values.len());
        let mut tail = self.tail;
        for value in values.drain(..count) {
            // SAFETY: `count` places from `tail` on are free, so they are the producer's.
            self.shared.place(tail).with_mut(|place| unsafe { (*place).write(value) });
            tail = tail.wrapping_add(1);
        }
        if count > 0 {
            self.tail = tail;
            self.shared.tail.store(tail, Ordering::Release);
        }
        count
    }

    /// Whether the consumer is gone: nothing put in will ever be taken out.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

impl<T> Consumer<T> {
    /// How many descriptors it holds at most.
    pub fn capacity(&self) -> usize {
        self.shared.places.len()
    }

    /// How many wait now, at least.
    pub fn waiting(&mut self) -> usize {
        self.tail_seen = self.shared.tail.load(Ordering::Acquire);
        self.tail_seen.wrapping_sub(self.head)
    }

    fn waiting_seen(&mut self) -> usize {
        match self.tail_seen.wrapping_sub(self.head) {
            0 => self.waiting(),
            waiting => waiting,
        }
    }

    /// Takes one out.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.waiting_seen() == 0 {
            return None;
        }
        // SAFETY: the place is inside head..tail, so it is the consumer's, and was written; it is read once, as `head`
        // moves on.
        let value = self.shared.place(self.head).with(|place| unsafe { (*place).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.shared.head.store(self.head, Ordering::Release);
        Some(value)
    }

    /// Appends at most `max` to `values`, for one publication. Returns how many.
    pub fn pop_batch(&mut self, values: &mut Vec<T>, max: usize) -> usize {
        let mut waiting = self.waiting_seen();
        if waiting < max {
            waiting = self.waiting();
        }
        let count = waiting.min(max);
        values.reserve(count); // before the reads: an unwinding allocation must not lose what was read
        for at in 0..count {
            let place = self.shared.place(self.head.wrapping_add(at));
            // SAFETY: as in `pop`, for `count` places.
            values.push(place.with(|place| unsafe { (*place).assume_init_read() }));
        }
        if count > 0 {
            self.head = self.head.wrapping_add(count);
            self.shared.head.store(self.head, Ordering::Release);
        }
        count
    }

    /// Whether the producer is gone: what is taken out after this was true and the ring is empty is the last there is.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("capacity", &self.capacity()).field("tail", &self.tail).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("capacity", &self.capacity()).field("head", &self.head).finish_non_exhaustive()
    }
}
