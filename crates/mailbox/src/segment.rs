//! A segment: a span of memory over a sealed memfd, mapped once for as long as anything in it is in use.
//!
//! It is sealed against growing and shrinking before anyone else could hold its descriptor, so a process that maps it
//! cannot make a later access of the daemon fault. It holds message bytes, rings and words to wait on; who owns which
//! part of it is written in private memory ([`crate::heap`]).

#![allow(unsafe_code)]

use crate::racy;
use std::io;
use std::ptr::NonNull;
#[cfg(not(any(loom, miri)))]
use {
    rustix::fd::{AsFd, BorrowedFd, OwnedFd},
    rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create},
    rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap},
};

/// A huge page of the kinds that are asked for here, in bytes.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Huge pages behind a segment: what is asked for, and what was had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Pages of the usual size.
    #[default]
    None,
    /// The kernel was asked to use huge pages where it has them, and its settings allow it (`madvise`).
    Transparent,
    /// Pages reserved by the administrator (`vm.nr_hugepages`; `MFD_HUGETLB`).
    Reserved,
}

/// A mapped span of memory; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Segment {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
    huge_pages: HugePages,
    /// Absent once it was passed on.
    #[cfg(not(any(loom, miri)))]
    memfd: Option<OwnedFd>,
    /// Lets loom find a segment that is never freed.
    #[cfg(loom)]
    _alive: crate::sync::Arc<()>,
}

// SAFETY: a segment is an address range that this value owns; it has no thread-bound state. The access of threads to bytes
// is controlled by the buffers handed out over it.
unsafe impl Send for Segment {}
// SAFETY: `&Segment` only gives out addresses and copies; see `Send`.
unsafe impl Sync for Segment {}

#[cfg(not(any(loom, miri)))]
impl Segment {
    /// Makes and maps a segment of `bytes` (rounded up to whole pages by the kernel), zeroed, its pages untouched.
    pub(crate) fn new(bytes: usize) -> io::Result<Segment> {
        Segment::shared(bytes, HugePages::None)
    }

    /// Makes a segment of at least `bytes` that whoever gets its descriptor may also write, on the huge pages asked for
    /// or, where they cannot be had, on others.
    pub(crate) fn shared(bytes: usize, wanted: HugePages) -> io::Result<Segment> {
        let segment = Segment::mapped_new(bytes, wanted)?;
        fcntl_add_seals(segment.fd()?, SealFlags::SEAL)?;
        Ok(segment)
    }

    /// [`Segment::shared_for_readers`] on transparent huge pages where the kernel has them.
    pub(crate) fn new_for_readers(bytes: usize) -> io::Result<Segment> {
        Segment::shared_for_readers(bytes, HugePages::Transparent)
    }

    /// Makes a segment of at least `bytes` that only this mapping can write: whoever else gets its descriptor can map
    /// it to read and nothing more, whatever it tries (Linux 5.1).
    pub(crate) fn shared_for_readers(bytes: usize, wanted: HugePages) -> io::Result<Segment> {
        let segment = Segment::mapped_new(bytes, wanted)?;
        // Only now: the seal lets stand what is mapped already, and refuses to map or write by descriptor afterwards.
        fcntl_add_seals(segment.fd()?, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        Ok(segment)
    }

    /// Maps the segment behind `memfd`, as a client does with a descriptor that it was given.
    ///
    /// # Errors
    /// `InvalidData` for a file that could still shrink under the mapping or that is not `bytes` long; else the
    /// kernel's error, `PermissionDenied` for a writable mapping of a segment made for readers.
    pub(crate) fn map(memfd: OwnedFd, bytes: usize, writable: bool) -> io::Result<Segment> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let seals = fcntl_get_seals(&memfd)?;
        if !seals.contains(SealFlags::GROW | SealFlags::SHRINK) {
            return refuse(format!("a segment sealed only by {seals:?} can change its length under its users"));
        }
        let len = fstat(&memfd)?.st_size;
        if usize::try_from(len) != Ok(bytes) {
            return refuse(format!("a segment of {len} bytes was said to have {bytes}"));
        }
        Segment::over(memfd, bytes, writable, HugePages::Transparent)
    }

    /// The descriptor to pass on; it stays open as long as the segment lives.
    ///
    /// # Errors
    /// It was taken out of the segment.
    pub(crate) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.memfd.as_ref().map(AsFd::as_fd).ok_or_else(|| io::Error::other("the segment has no descriptor any more"))
    }

    /// The segment without its descriptor, which a mapping does not need, and the descriptor.
    ///
    /// # Errors
    /// It was taken out before.
    pub(crate) fn into_parts(mut self) -> io::Result<(Segment, OwnedFd)> {
        let memfd = self.memfd.take().ok_or_else(|| io::Error::other("the segment has no descriptor any more"))?;
        Ok((self, memfd))
    }

    /// A memfd of a length that cannot change any more, mapped; seals may still be added.
    fn mapped_new(bytes: usize, wanted: HugePages) -> io::Result<Segment> {
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a segment of {bytes} bytes cannot be")));
        }
        // Reserved pages are claimed by the mapping, so a lack of them shows here and never as a fault later.
        if wanted == HugePages::Reserved
            && let Some(rounded) = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)
            && let Ok(memfd) = sealed_memfd(rounded, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)
            && let Ok(mut segment) = Segment::over(memfd, rounded, true, HugePages::None)
        {
            segment.huge_pages = HugePages::Reserved;
            return Ok(segment);
        }
        let memfd = sealed_memfd(bytes, MemfdFlags::empty())?;
        Segment::over(memfd, bytes, true, wanted)
    }

    /// Maps `bytes` of `memfd`, whose length cannot change.
    fn over(memfd: OwnedFd, bytes: usize, writable: bool, wanted: HugePages) -> io::Result<Segment> {
        let allowed = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address of the kernel's choosing replaces nothing; the file is sealed at its
        // length, so every byte of the mapping stays backed for as long as it exists.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, allowed, MapFlags::SHARED, &memfd, 0)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        let mut segment = Segment { base, bytes, writable, huge_pages: HugePages::None, memfd: Some(memfd) };
        if wanted != HugePages::None && bytes >= HUGE_PAGE_BYTES && shared_huge_pages_allowed() {
            // SAFETY: advice on a range that this segment has mapped changes no byte of it.
            let advised = unsafe { madvise(segment.base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
            if advised.is_ok() {
                segment.huge_pages = HugePages::Transparent;
            }
        }
        Ok(segment)
    }
}

/// A memfd of `bytes` zeros that can neither grow nor shrink; more seals may be added.
#[cfg(not(any(loom, miri)))]
fn sealed_memfd(bytes: usize, kind: MemfdFlags) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | kind;
    let memfd = match memfd_create("crossdock-segment", flags | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know that seal.
        Err(rustix::io::Errno::INVAL) => memfd_create("crossdock-segment", flags)?,
        other => other?,
    };
    ftruncate(&memfd, bytes as u64)?;
    fcntl_add_seals(&memfd, SealFlags::GROW | SealFlags::SHRINK)?;
    Ok(memfd)
}

/// Whether the kernel's setting lets a memfd have huge pages where they are asked for.
#[cfg(not(any(loom, miri)))]
fn shared_huge_pages_allowed() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        .is_ok_and(|setting| ["[always]", "[within_size]", "[advise]", "[force]"].iter().any(|on| setting.contains(on)))
}

#[cfg(not(any(loom, miri)))]
impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `over` and is unmapped nowhere else; whatever uses addresses in it keeps this
        // segment: the heap that owns it is freed only when no buffer over it is left, rings and words hold an `Arc`.
        let _unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
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
            writable: true,
            huge_pages: HugePages::None,
            #[cfg(loom)]
            _alive: crate::sync::Arc::new(()),
        })
    }
}

#[cfg(miri)]
impl Segment {
    pub(crate) fn new_for_readers(bytes: usize) -> io::Result<Segment> {
        Segment::new(bytes)
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

    /// The huge pages that were had for it.
    pub(crate) fn huge_pages(&self) -> HugePages {
        self.huge_pages
    }

    /// The address `offset` bytes in, if `bytes` from there on lie inside. Whether it may be written is the mapping's
    /// matter: a client has inbox segments to read only.
    #[inline]
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        // SAFETY: `offset` lies inside the mapping, as just checked.
        Some(unsafe { self.base.add(offset) })
    }

    /// Says that the bytes from `offset` on are about to be read or written.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        if let Some(place) = self.at(offset, 0) {
            racy::prefetch(place);
        }
    }

    /// Copies what lies `offset` bytes in to `to`, each byte loaded once; false if that is not all inside. Others may
    /// write meanwhile: then each byte is an old or a new one, and nothing worse.
    #[inline]
    #[must_use]
    pub(crate) fn read_into(&self, offset: usize, to: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, to.len()) else { return false };
        // SAFETY: `at` checked that these bytes are inside the mapping, which `self` keeps.
        unsafe { racy::copy_out(from, to) };
        true
    }

    /// Copies `bytes` bytes from where `from` says in another segment to where `at` says in this one, each loaded once; false if
    /// either are not all inside, or this mapping is only to be read.
    #[inline]
    #[must_use]
    pub(crate) fn copy_from(&self, at: usize, other: &Segment, from: usize, bytes: usize) -> bool {
        let (Some(from), Some(to)) = (other.at(from, bytes), self.at(at, bytes).filter(|_| self.writable)) else {
            return false;
        };
        // SAFETY: `at` checked that these bytes are inside the mappings, which `other` and `self` keep; the latter may be written.
        // Two segments do not overlap, nor do two buffers of one.
        unsafe { racy::copy_across(from, to, bytes) };
        true
    }

    /// Copies `from` to where `offset` says; false if that is not all inside, or the mapping is only to be read.
    #[inline]
    #[must_use]
    pub(crate) fn write_from(&self, offset: usize, from: &[u8]) -> bool {
        let Some(to) = self.at(offset, from.len()).filter(|_| self.writable) else { return false };
        // SAFETY: `at` checked that these bytes are inside the mapping, which `self` keeps and which may be written.
        unsafe { racy::copy_in(from, to) };
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_outside_are_refused() {
        let segment = Segment::new(4096).unwrap();
        assert!(segment.at(0, 4096).is_some() && segment.at(4096, 0).is_some());
        for (offset, bytes) in [(0, 4097), (4096, 1), (1, 4096), (usize::MAX, 1)] {
            assert!(segment.at(offset, bytes).is_none(), "{offset} + {bytes}");
            let mut private = vec![7; bytes];
            assert!(!segment.read_into(offset, &mut private) && private.iter().all(|&byte| byte == 7));
            assert!(!segment.write_from(offset, &private));
        }
        assert!(segment.at(1, usize::MAX).is_none());
        let mut all = [7; 4096];
        assert!(segment.read_into(0, &mut all) && all == [0; 4096], "what is refused writes nothing");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 12 } else { 256 }, failure_persistence: None,
                                            ..ProptestConfig::default() })]

        #[test]
        fn copies_are_exact_at_any_place_and_length(from in 0usize..40, to in 0usize..40, bytes in 0usize..2200) {
            let segment = Segment::new(4096).unwrap();
            let source: Vec<u8> = (0..4096usize).map(|at| (at * 7 + at / 256) as u8 | 1).collect();
            prop_assert!(segment.write_from(to, &source[from..from + bytes]));
            let mut all = vec![0; 4096];
            prop_assert!(segment.read_into(0, &mut all));
            prop_assert!(all[..to].iter().chain(&all[to + bytes..]).all(|&byte| byte == 0));
            prop_assert_eq!(&all[to..to + bytes], &source[from..from + bytes]);
            let mut part = vec![0; from + bytes];
            prop_assert!(segment.read_into(to, &mut part[from..]));
            prop_assert_eq!(&part[from..], &source[from..from + bytes]);
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod mapping_tests {
    use super::*;
    use rustix::mm::{MprotectFlags, mprotect};
    use std::io::ErrorKind;

    #[allow(clippy::unwrap_used)] // a test that fails may panic
    fn copy_of(segment: &Segment) -> OwnedFd {
        segment.fd().unwrap().try_clone_to_owned().unwrap()
    }

    #[test]
    fn nobody_can_change_its_length_or_its_seals() {
        for segment in [Segment::new(8192).unwrap(), Segment::new_for_readers(8192).unwrap()] {
            let seals = fcntl_get_seals(segment.fd().unwrap()).unwrap();
            assert!(seals.contains(SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL));
            assert!(ftruncate(segment.fd().unwrap(), 0).is_err());
            assert!(ftruncate(segment.fd().unwrap(), 1 << 20).is_err());
            assert!(fcntl_add_seals(segment.fd().unwrap(), SealFlags::WRITE).is_err());
        }
        for bytes in [0, usize::MAX] {
            assert!(Segment::new(bytes).is_err() && Segment::new_for_readers(bytes).is_err());
            assert!(Segment::shared(bytes, HugePages::Reserved).is_err());
        }
    }

    #[test]
    fn a_second_mapping_sees_the_same_bytes() {
        let ours = Segment::shared(8192, HugePages::None).unwrap();
        let theirs = Segment::map(copy_of(&ours), 8192, true).unwrap();
        assert!(ours.write_from(5000, b"down") && theirs.write_from(6000, b"up"));
        let mut got = [0; 4];
        assert!(theirs.read_into(5000, &mut got) && &got == b"down");
        assert!(ours.read_into(6000, &mut got) && got.starts_with(b"up"));
        drop(ours);
        assert!(theirs.read_into(5000, &mut got) && &got == b"down", "a mapping outlives the one who made it");
    }

    #[test]
    fn a_segment_for_readers_is_written_by_its_maker_alone() {
        let ours = Segment::new_for_readers(8192).unwrap();
        assert!(ours.write_from(0, b"before"));
        let refused = Segment::map(copy_of(&ours), 8192, true).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert!(rustix::io::pwrite(ours.fd().unwrap(), b"by descriptor", 0).is_err());
        // Not by way of the descriptor's name either.
        let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&ours.fd().unwrap()));
        let again = std::fs::OpenOptions::new().read(true).write(true).open(name);
        assert!(again.is_err() || Segment::map(again.unwrap().into(), 8192, true).is_err());

        let theirs = Segment::map(copy_of(&ours), 8192, false).unwrap();
        assert!(!theirs.write_from(0, b"theirs"));
        // SAFETY: asks for more rights on a range that `theirs` has mapped; it is refused, or this test fails.
        let more = unsafe { mprotect(theirs.base.as_ptr().cast(), 8192, MprotectFlags::READ | MprotectFlags::WRITE) };
        assert_eq!(more, Err(rustix::io::Errno::ACCESS));
        assert!(ours.write_from(0, b"after!"));
        let mut got = [0; 6];
        assert!(theirs.read_into(0, &mut got) && &got == b"after!");
    }

    #[test]
    fn a_file_that_could_shrink_or_is_of_another_length_is_not_mapped() {
        let kinds = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::SHRINK] {
            let memfd = memfd_create("test", kinds).unwrap();
            ftruncate(&memfd, 4096).unwrap();
            fcntl_add_seals(&memfd, seals).unwrap();
            assert_eq!(Segment::map(memfd, 4096, true).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        let segment = Segment::new(8192).unwrap();
        for bytes in [0, 4096, 8191, 8193, usize::MAX] {
            assert_eq!(Segment::map(copy_of(&segment), bytes, true).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        let plain = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Segment::map(plain.into(), 4096, false).is_err(), "not a memfd at all");
    }

    #[test]
    fn huge_pages_are_taken_where_they_can_be_had_and_missed_where_not() {
        for wanted in [HugePages::None, HugePages::Transparent, HugePages::Reserved] {
            let segment = Segment::shared((2 << 20) + 1, wanted).unwrap();
            assert!(segment.bytes() > 2 << 20);
            match segment.huge_pages() {
                HugePages::None => {}
                HugePages::Transparent => assert!(shared_huge_pages_allowed() && wanted != HugePages::None),
                HugePages::Reserved => assert!(wanted == HugePages::Reserved && segment.bytes() == 4 << 20),
            }
            assert!(segment.write_from(2 << 20, &[1]));
            let theirs = Segment::map(copy_of(&segment), segment.bytes(), true).unwrap();
            let mut got = [0];
            assert!(theirs.read_into(2 << 20, &mut got) && got == [1]);
        }
    }
}
