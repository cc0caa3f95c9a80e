//! Waking a core that sleeps, and a client that waits in its own event loop.
//!
//! The core's page says whether it sleeps; clients can only read it. After publishing, a client rings the core's doorbell
//! (an eventfd of its own) if the core sleeps, once each sleep. While the core is awake, a message costs its sender the load
//! of a line that nobody writes.
//!
//! Between publishing and that load there has to be a fence, and one between the core's word and its last look at the rings.
//! A fence waits until what was published has reached the other core, which takes longer than all else that a message costs its
//! sender. So where the kernel can (`membarrier`), the core that goes to sleep has it fence every processor that runs a
//! client, and clients that registered for it leave theirs out.

use super::words::Words;
use crate::sync::{Ordering, fence};
#[cfg(not(loom))]
use {super::layout::ControlLayout, crate::segment::Segment, crate::sync::Arc, rustix::fd::OwnedFd, std::io};

/// Length of the page that says whether the core sleeps.
pub(crate) const DOORBELL_PAGE_BYTES: usize = 4096;

/// The core's own side: says when it sleeps. In a page that clients map to read only.
///
/// The word counts both ways of going: odd while the core sleeps. It has 64 bits so that no client can mistake a later sleep
/// for the one it rang in. A second word says whether the core makes the clients' fences.
pub struct DoorbellPage {
    words: Words,
    /// Whether the core makes the clients' fences.
    fences: bool,
}

impl DoorbellPage {
    /// Makes the page, for a core that is awake.
    ///
    /// # Errors
    /// The kernel's (memfd, seals, mmap).
    #[cfg(not(loom))]
    pub fn new() -> io::Result<DoorbellPage> {
        let segment = Arc::new(Segment::new_for_readers(DOORBELL_PAGE_BYTES)?);
        let words: Words =
            Words::new(&segment, 0, 2).ok_or_else(|| io::Error::other("the bell's words are not in its page"))?;
        // A call that succeeds once does so always.
        let fences = barrier::fence_registered();
        words.word(1).store(fences.into(), Ordering::Release);
        Ok(DoorbellPage { words, fences })
    }

    /// The page in this word.
    #[cfg(loom)]
    pub(crate) fn over(words: Words) -> DoorbellPage {
        DoorbellPage { words, fences: false }
    }

    /// The page's segment, for its descriptor.
    #[cfg(not(loom))]
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        self.words.segment()
    }

    /// Before sleeping. After it the core looks at all its rings once more, and sleeps only if they are empty; in any case
    /// it then calls [`DoorbellPage::after_sleep`].
    pub fn before_sleep(&self) {
        let epoch = self.words.word(0);
        epoch.store(epoch.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        self.fence();
    }

    /// Whatever clients published before it is seen after it, or they see what was written before it.
    pub(crate) fn fence(&self) {
        fence(Ordering::SeqCst);
        #[cfg(not(loom))]
        if self.fences {
            let _fenced = barrier::fence_registered();
        }
    }

    /// After sleeping, or not sleeping after all: nobody need ring.
    pub fn after_sleep(&self) {
        let epoch = self.words.word(0);
        let before = epoch.load(Ordering::Relaxed);
        epoch.store(before.wrapping_add(before & 1), Ordering::Relaxed);
    }
}

/// A client's side of the core's bell.
pub(crate) struct CoreBell {
    page: Words,
    /// Whether this process makes its fences itself.
    #[cfg(not(loom))]
    fences: bool,
    #[cfg(not(loom))]
    doorbell: OwnedFd,
}

impl CoreBell {
    /// The bell of the core whose page is `page`, rung by writing `doorbell`, an eventfd that does not block; none if the
    /// page is too short.
    #[cfg(not(loom))]
    pub(crate) fn new(page: &Arc<Segment>, doorbell: OwnedFd) -> Option<CoreBell> {
        let page: Words = Words::new(page, 0, 2)?;
        let fences = page.word(1).load(Ordering::Acquire) != 1 || !barrier::register();
        Some(CoreBell { page, fences, doorbell })
    }

    /// The bell of the core whose page is this word.
    #[cfg(loom)]
    pub(crate) fn over(page: Words) -> CoreBell {
        CoreBell { page }
    }

    /// Whether this process can make the fences of others, and others can make its own.
    #[cfg(not(loom))]
    pub(crate) fn shares_fences(&self) -> bool {
        !self.fences && barrier::fence_registered()
    }

    /// After publishing: whether the core must be rung for it. `rung` belongs to the caller and starts at 0: the epoch
    /// of the last sleep that the caller was asked to ring in.
    #[inline]
    pub(crate) fn must_ring(&self, rung: &mut u64) -> bool {
        #[cfg(not(loom))]
        match self.fences {
            true => fence(Ordering::SeqCst),
            // The processor's part is done by the core before it sleeps, at the latest between its word and its last look.
            false => std::sync::atomic::compiler_fence(Ordering::SeqCst),
        }
        #[cfg(loom)]
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

/// The kernel's `membarrier`, of the kind that reaches other processes (Linux 4.16).
#[cfg(not(any(loom, miri)))]
pub(super) mod barrier {
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Has every processor that runs a process that registered make a full fence. False if the kernel cannot.
    pub(in crate::shared) fn fence_registered() -> bool {
        membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    }

    /// Registers this process. False if the kernel cannot.
    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
    }
}

/// The stand-in for miri, which knows no such call.
#[cfg(miri)]
pub(super) mod barrier {
    pub(in crate::shared) fn fence_registered() -> bool {
        false
    }

    pub(super) fn register() -> bool {
        false
    }
}

/// By which a client with its own event loop asks to find a byte in its wake pipe when something was sent to it: a word in
/// its control segment. Beside it is another that the client counts up while it runs, and one that says whether it shares fences.
pub(crate) struct ArmedFlag(Words);

impl ArmedFlag {
    /// The flag of the client with this control segment; none if that is too short.
    #[cfg(not(loom))]
    pub(crate) fn new(control: &Arc<Segment>) -> Option<ArmedFlag> {
        Words::new(control, ControlLayout::armed(), 4).map(ArmedFlag)
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

    /// By the client: see [`CoreBell::shares_fences`].
    pub(crate) fn say_fences(&self, are_shared: bool) {
        self.0.word(2).store(are_shared.into(), Ordering::Relaxed);
    }

    /// By the core: what the client said of its fences.
    pub(crate) fn shares_fences(&self) -> bool {
        self.0.word(2).load(Ordering::Relaxed) == 1
    }

    /// By the client: it runs.
    pub(crate) fn beat(&self) {
        self.0.word(1).fetch_add(1, Ordering::Relaxed);
    }

    /// By the core: how often the client has said so. The client may write what it likes.
    pub(crate) fn beats(&self) -> u64 {
        self.0.word(1).load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(any(loom, miri))))]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn a_sleeping_core_is_rung_once_by_each_client() {
        let page = DoorbellPage::new().unwrap();
        let theirs = page.segment().fd().unwrap().try_clone_to_owned().unwrap();
        let theirs = Arc::new(Segment::map(theirs, DOORBELL_PAGE_BYTES, false).unwrap());
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let count = |doorbell: &OwnedFd| {
            let mut bytes = [0; 8];
            rustix::io::read(doorbell, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
        };
        let bell = CoreBell::new(&theirs, doorbell.try_clone().unwrap()).unwrap();
        let (mut one, mut other) = (0, 0);
        assert!(!bell.ring_if_asleep(&mut one), "awake");
        for _ in 0..3 {
            page.before_sleep();
            assert!(bell.ring_if_asleep(&mut one) && !bell.ring_if_asleep(&mut one), "once each sleep");
            assert!(bell.ring_if_asleep(&mut other));
            assert_eq!(count(&doorbell), 2);
            page.after_sleep();
            page.after_sleep();
            assert!(!bell.ring_if_asleep(&mut one));
        }
        bell.ring();
        assert_eq!(count(&doorbell), 1);
    }

    #[test]
    fn an_armed_flag_is_taken_once() {
        let control = Arc::new(Segment::new(ControlLayout::BYTES).unwrap());
        let (ours, theirs) = (ArmedFlag::new(&control).unwrap(), ArmedFlag::new(&control).unwrap());
        assert!(!theirs.take());
        ours.arm();
        ours.arm();
        assert!(theirs.take() && !theirs.take());
    }
}
