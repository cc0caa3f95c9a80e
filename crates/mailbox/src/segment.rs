//! A segment: a span of memory over a sealed memfd, mapped once for as long as anything in it is in use.
//!
//! It is sealed against growing and shrinking before anyone else could hold its descriptor, so a process that maps it
//! cannot make a later access of the daemon fault. It holds message bytes only; who owns which part of it is written in
//! private memory ([`crate::heap`]).

#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

/// A mapped span of memory; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Segment {
    base: NonNull<u8>,
    bytes: usize,
    #[cfg(not(any(loom, miri)))]
    _memfd: rustix::fd::OwnedFd,
    /// Lets loom find a segment that is never freed.
    #[cfg(loom)]
    _alive: crate::sync::Arc<()>,
}

// SAFETY: a segment is an address range that this value owns; it has no thread-bound state. Who may touch which bytes
// is settled by the buffers handed out over it.
unsafe impl Send for Segment {}
// SAFETY: `&Segment` only gives out addresses; see `Send`.
unsafe impl Sync for Segment {}

#[cfg(not(any(loom, miri)))]
impl Segment {
    /// Makes and maps a segment of `bytes` (rounded up to whole pages by the kernel), zeroed, its pages untouched.
    pub(crate) fn new(bytes: usize) -> io::Result<Segment> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        use rustix::mm::{MapFlags, ProtFlags, mmap};

        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a segment of {bytes} bytes cannot be")));
        }
        let memfd = memfd_create("crossdock-segment", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memfd, bytes as u64)?;
        fcntl_add_seals(&memfd, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        // SAFETY: a fresh mapping at an address of the kernel's choosing replaces nothing; the file is sealed at its
        // length, so every byte of the mapping stays backed for as long as it exists.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &memfd, 0)?
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        Ok(Segment { base, bytes, _memfd: memfd })
    }
}

#[cfg(not(any(loom, miri)))]
impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `new` and is unmapped nowhere else; the heap that owns this segment is freed
        // only when no buffer over it is left.
        let _unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The stand-in for the model checkers, which know no mmap: zeroed memory of the process.
#[cfg(any(loom, miri))]
impl Segment {
    pub(crate) fn new(bytes: usize) -> io::Result<Segment> {
        let memory: Box<[u64]> = vec![0; bytes.div_ceil(8)].into_boxed_slice();
        let bytes = memory.len() * 8;
        let base = NonNull::from(Box::leak(memory)).cast::<u8>();
        Ok(Segment {
            base,
            bytes,
            #[cfg(loom)]
            _alive: crate::sync::Arc::new(()),
        })
    }
}

#[cfg(any(loom, miri))]
impl Drop for Segment {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr().cast::<u64>(), self.bytes / 8);
        // SAFETY: exactly what `new` leaked.
        drop(unsafe { Box::from_raw(memory) });
    }
}

impl Segment {
    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address `offset` bytes in, if `bytes` from there on lie inside.
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        // SAFETY: `offset` lies inside the mapping, as just checked.
        Some(unsafe { self.base.add(offset) })
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use rustix::fs::{SealFlags, fcntl_get_seals, ftruncate};

    #[test]
    fn nobody_can_change_its_length_or_its_seals() {
        let segment = Segment::new(8192).unwrap();
        let seals = fcntl_get_seals(&segment._memfd).unwrap();
        assert!(seals.contains(SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL));
        assert!(ftruncate(&segment._memfd, 0).is_err());
        assert!(ftruncate(&segment._memfd, 1 << 20).is_err());
    }

    #[test]
    fn addresses_outside_are_refused() {
        let segment = Segment::new(4096).unwrap();
        assert!(segment.at(0, 4096).is_some() && segment.at(4096, 0).is_some());
        for (offset, bytes) in [(0, 4097), (4096, 1), (1, usize::MAX), (usize::MAX, 1)] {
            assert!(segment.at(offset, bytes).is_none(), "{offset} + {bytes}");
        }
        assert!(Segment::new(0).is_err());
        assert!(Segment::new(usize::MAX).is_err());
    }
}
