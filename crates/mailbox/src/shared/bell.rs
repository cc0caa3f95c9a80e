//! Waking a core that sleeps, and a client that waits in its own event loop.
//!
//! The core's page says whether it sleeps; clients can only read it. After publishing, a client rings the core's doorbell
//! (an eventfd of its own) if the core sleeps, once each sleep. While the core is awake, a message costs its sender a fence
//! and the load of a line that nobody writes.

use super::words::Words;
use crate::sync::{Ordering, fence};
#[cfg(not(loom))]
use {super::layout::ControlLayout, crate::segment::Segment, crate::sync::Arc, rustix::fd::OwnedFd, std::io};

/// Length of the page that says whether the core sleeps.
pub(crate) const BELL_PAGE_BYTES: usize = 4096;

/// The core's own side: says when it sleeps. In a page that clients map to read only.
///
/// The word counts both ways of going: odd while the core sleeps. It has 64 bits so that no client can mistake a later sleep
/// for the one it rang in.
pub struct BellPage(Words);

impl BellPage {
    /// Makes the page, for a core that is awake.
    ///
    /// # Errors
    /// The kernel's (memfd, seals, mmap).
    #[cfg(not(loom))]
    pub fn new() -> io::Result<BellPage> {
        let segment = Arc::new(Segment::new_for_readers(BELL_PAGE_BYTES)?);
        let words = Words::new(&segment, 0, 1).ok_or_else(|| io::Error::other("the bell's word is not in its page"))?;
        Ok(BellPage(words))
    }

    /// The page in this word.
    #[cfg(loom)]
    pub(crate) fn over(words: Words) -> BellPage {
        BellPage(words)
    }

    /// The page's segment, for its descriptor.
    #[cfg(not(loom))]
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        self.0.segment()
    }

    /// Before sleeping. After it the core looks at all its rings once more, and sleeps only if they are empty; in any case
    /// it then calls [`BellPage::after_sleep`].
    pub fn before_sleep(&self) {
        let epoch = self.0.word(0);
        epoch.store(epoch.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// After sleeping, or not sleeping after all: nobody need ring.
    pub fn after_sleep(&self) {
        let epoch = self.0.word(0);
        let before = epoch.load(Ordering::Relaxed);
        epoch.store(before.wrapping_add(before & 1), Ordering::Relaxed);
    }
}

/// A client's side of the core's bell.
pub(crate) struct CoreBell {
    page: Words,
    #[cfg(not(loom))]
    doorbell: OwnedFd,
}

impl CoreBell {
    /// The bell of the core whose page is `page`, rung by writing `doorbell`, an eventfd that does not block; none if the
    /// page is too short.
    #[cfg(not(loom))]
    pub(crate) fn new(page: &Arc<Segment>, doorbell: OwnedFd) -> Option<CoreBell> {
        Some(CoreBell { page: Words::new(page, 0, 1)?, doorbell })
    }

    /// The bell of the core whose page is this word.
    #[cfg(loom)]
    pub(crate) fn over(page: Words) -> CoreBell {
        CoreBell { page }
    }

    /// After publishing: whether the core must be rung for it. `rung` is the caller's own, 0 at first: the last sleep that
    /// it was told to ring in.
    #[inline]
    pub(crate) fn must_ring(&self, rung: &mut u64) -> bool {
        fence(Ordering::SeqCst);
        let epoch = self.page.word(0).load(Ordering::Relaxed);
        if epoch & 1 == 0 || epoch == *rung {
            return false;
        }
        *rung = epoch;
        true
    }

    /// After publishing: rings if the core sleeps and was not rung by this caller since it fell asleep. True if it rang.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn ring_if_asleep(&self, rung: &mut u64) -> bool {
        let must = self.must_ring(rung);
        if must {
            self.ring();
        }
        must
    }

    /// Rings.
    #[cfg(not(loom))]
    #[cold]
    pub(crate) fn ring(&self) {
        // It fails only if this process filled its eventfd on purpose; then nobody else is hurt.
        let _rang = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }
}

/// By which a client with its own event loop asks to find a byte in its wake pipe when something was sent to it: a word in
/// its control segment.
pub(crate) struct ArmedFlag(Words);

impl ArmedFlag {
    /// The flag of the client with this control segment; none if that is too short.
    #[cfg(not(loom))]
    pub(crate) fn new(control: &Arc<Segment>) -> Option<ArmedFlag> {
        Words::new(control, ControlLayout::armed(), 1).map(ArmedFlag)
    }

    /// The flag in this word.
    #[cfg(loom)]
    pub(crate) fn over(words: Words) -> ArmedFlag {
        ArmedFlag(words)
    }

    /// By the client: asks for a byte at the next thing sent. After it the client looks once more before it waits.
    pub(crate) fn arm(&self) {
        self.0.word(0).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// By the core, after publishing and a `fence(SeqCst)`: whether to write a byte now. One yes for one `arm`.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        let armed = self.0.word(0).load(Ordering::Relaxed) != 0;
        if armed {
            self.0.word(0).store(0, Ordering::Relaxed);
        }
        armed
    }
}
