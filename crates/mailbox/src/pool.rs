//! A pool: one core's heap. Its free lists are private to the holder; buffers come home through [`crate::heap`].

use crate::buffer::{Buffer, BufferMut};
use crate::heap::{Cut, HeapOwner};
use crate::segment::Segment;
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;

/// Buffers start on cache lines of their own.
const ALIGN: usize = 64;
/// The largest class: what a descriptor's 32-bit offsets reach with room to spare.
const MAX_CLASS_BYTES: usize = 1 << 30;

/// The size classes of a pool's segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// (bytes, count) a class, in any order. Bytes are rounded up to a multiple of 64.
    pub classes: Vec<(usize, usize)>,
}

impl Default for PoolConfig {
    /// For one context. 86 MiB of address space; pages are touched only as far as the load ever reached, since free
    /// lists are last-in first-out: a context under steady load lives in the few MiB that its window holds.
    ///
    /// | class | count | MiB | for |
    /// |---|---|---|---|
    /// | 512 B | 4096 | 2 | acks, control messages, single small records: two for each of 2048 sessions |
    /// | 2 KiB | 2048 | 4 | one packet of an Ethernet path |
    /// | 8 KiB | 1024 | 8 | one packet of a loopback or jumbo path |
    /// | 16 KiB | 512 | 8 | the largest arrival that a device copies instead of handing over a 64 KiB buffer |
    /// | 64 KiB | 1024 | 64 | super-packets: 8 posted, 32 in flight to each of 16 busy subscribers, 500 being filled or held for slow ones |
    fn default() -> PoolConfig {
        PoolConfig { classes: vec![(512, 4096), (2 << 10, 2048), (8 << 10, 1024), (16 << 10, 512), (64 << 10, 1024)] }
    }
}

/// One size class of the holder's side.
struct Class {
    bytes: usize,
    count: usize,
    allocated: u64,
    exhausted: u64,
}

/// One core's heap over a sealed memfd segment. Allocation needs `&mut`; it may move to another thread, but is never
/// shared. Buffers may be dropped anywhere, also after the pool: the memory stays mapped until the last is gone.
pub struct Pool {
    classes: Vec<Class>,
    failed: u64,
    heap: HeapOwner,
    /// Not `Sync`: `stats` walks return paths, which only the one holder may.
    _one_holder: PhantomData<Cell<()>>,
}

/// The counts of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolStats {
    /// By class, smallest first.
    pub classes: Vec<ClassStats>,
    /// Allocations that found nothing in any class that fits.
    pub failed: u64,
    /// Buffers taken from return paths so far.
    pub collected: u64,
}

/// One class of [`PoolStats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassStats {
    /// Size of a buffer in bytes.
    pub bytes: usize,
    /// Buffers in the class.
    pub count: usize,
    /// Of these, free: on the free list, or on their way to it.
    pub free: usize,
    /// Buffers handed out so far.
    pub allocated: u64,
    /// Times that a request of this size found the class empty and went on to a larger one, or failed.
    pub exhausted: u64,
}

impl ClassStats {
    /// Buffers in use.
    pub fn in_use(&self) -> usize {
        self.count - self.free
    }
}

impl Pool {
    /// Makes the segment and its private table.
    ///
    /// # Errors
    /// `InvalidInput` for a configuration without buffers, with a class of no or over 1 GiB bytes, or of too many
    /// buffers; else the kernel's error (memfd, seals, mmap).
    pub fn new(mut config: PoolConfig) -> io::Result<Pool> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        for (bytes, _) in &mut config.classes {
            if *bytes == 0 || *bytes > MAX_CLASS_BYTES {
                return refuse(format!("a buffer class of {bytes} bytes: give 1 to {MAX_CLASS_BYTES}"));
            }
            *bytes = bytes.next_multiple_of(ALIGN);
        }
        config.classes.retain(|&(_, count)| count > 0);
        config.classes.sort_unstable();
        let cuts: Vec<Cut> = config.classes.iter().map(|&(bytes, count)| Cut { bytes, count }).collect();
        let total = cuts.iter().try_fold(0usize, |sum, cut| sum.checked_add(cut.bytes.checked_mul(cut.count)?));
        let Some(total @ 1..) = total else {
            return refuse("a pool needs at least one buffer, and less than all addresses for them".to_owned());
        };
        let Some(heap) = HeapOwner::new(Segment::new(total)?, &cuts) else {
            return refuse("a pool has fewer than 4 billion buffers".to_owned());
        };
        let class = |cut: &Cut| Class { bytes: cut.bytes, count: cut.count, allocated: 0, exhausted: 0 };
        Ok(Pool { classes: cuts.iter().map(class).collect(), failed: 0, heap, _one_holder: PhantomData })
    }

    /// A buffer of at least `bytes`: from the smallest class that fits and has one, the one freed last; `None` if none
    /// has.
    ///
    /// It is not zeroed: it holds whatever this daemon last kept in it. That leaks nothing, since the segment is mapped
    /// by the daemon alone and every reader is given exactly the length that was written. A segment that client
    /// processes map belongs to one protection domain, within which processes may read each other's messages anyway;
    /// memory never moves between domains, only bytes do, by one copy.
    #[inline]
    pub fn alloc(&mut self, bytes: usize) -> Option<BufferMut> {
        for (at, class) in self.classes.iter_mut().enumerate() {
            if class.bytes < bytes {
                continue;
            }
            if let Some(buffer) = self.heap.take(at) {
                class.allocated += 1;
                return Some(buffer);
            }
            class.exhausted += 1;
        }
        self.failed += 1;
        None
    }

    /// Whether at least `count` buffers are free in one class of at least `bytes`. Costs no more than an allocation, so a
    /// context may ask before it takes in what it could not finish.
    #[inline]
    pub fn has_free(&mut self, bytes: usize, count: usize) -> bool {
        let heap = &mut self.heap;
        self.classes.iter().enumerate().any(|(at, class)| class.bytes >= bytes && heap.has(at, count))
    }

    /// Buffers of the smallest class that holds `bytes`; of the largest, if none does.
    pub fn buffers_for(&self, bytes: usize) -> usize {
        let fitting = self.classes.iter().find(|class| class.bytes >= bytes);
        fitting.or(self.classes.last()).map_or(0, |class| class.count)
    }

    /// Gives a reference up by the short way: cheaper than dropping it, for the pool's holder. A buffer that is still
    /// shared, or another pool's, is only dropped.
    #[inline]
    pub fn recycle(&mut self, buffer: Buffer) {
        self.heap.reclaim(buffer);
    }

    /// Whether a buffer is one of this pool, and three quarters of its class are free. Costs no more than an allocation.
    #[inline]
    pub fn is_mostly_free(&mut self, buffer: &Buffer) -> bool {
        let (heap, bytes) = (&mut self.heap, buffer.capacity());
        let class = self.classes.iter().enumerate().find(|(_, class)| class.bytes == bytes);
        heap.owns(buffer) && class.is_some_and(|(at, class)| heap.has(at, class.count / 4 * 3))
    }

    /// A buffer of this pool with the first `len` bytes of another: that buffer itself, if it is one of this pool. `None` if none is
    /// free for a copy.
    pub fn own(&mut self, buffer: &Buffer, len: usize) -> Option<Buffer> {
        if self.heap.owns(buffer) {
            return Some(buffer.clone());
        }
        let mut copy = self.alloc(len)?;
        copy[..len].copy_from_slice(&buffer[..len]);
        Some(copy.freeze())
    }

    /// Counts of what was done and is held. Walks the return paths; not for the data path.
    pub fn stats(&self) -> PoolStats {
        let classes = self.classes.iter().enumerate().map(|(at, class)| ClassStats {
            bytes: class.bytes,
            count: class.count,
            free: self.heap.free(at),
            allocated: class.allocated,
            exhausted: class.exhausted,
        });
        PoolStats { classes: classes.collect(), failed: self.failed, collected: self.heap.collected() }
    }

    /// Length of the segment in bytes: the most memory that its buffers can ever occupy.
    pub fn memory_bytes(&self) -> usize {
        self.heap.segment_bytes()
    }

    /// Capacity in bytes of the largest class.
    pub fn largest_bytes(&self) -> usize {
        self.classes.last().map_or(0, |class| class.bytes)
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish()
    }
}
