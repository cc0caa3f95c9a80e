//! A link shared by the application's threads and its keeper.
//!
//! Lock, do, unlock; who waits, waits outside the lock. The lock is uncontended where one thread uses the link: the keeper takes
//! it only when something is due that the application's thread did not do itself.

use crate::link::Link;
use crate::packing::Packing;
use crate::post::Post;
use crossdock_device::Doorbell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The state under the lock.
pub(crate) struct Inner {
    pub(crate) link: Link,
    pub(crate) packing: Option<Packing>,
    /// For a node: the mailboxes that are open.
    pub(crate) post: Option<Post>,
    /// The application's threads that are asleep, or about to be.
    asleep: Vec<Arc<Waker>>,
    /// The task that waits for something to happen without a thread.
    pub(crate) task: Option<Task>,
    /// When a thread of the application last drove the link, in ns.
    pub(crate) driven_ns: u64,
    /// When the keeper looks at the link by itself, in ns.
    pub(crate) keeper_ns: u64,
}

impl Inner {
    /// Packs a record; `false` when there is no room before the daemon takes some of what it was sent.
    #[inline]
    pub(crate) fn pack(&mut self, record: &[u8]) -> bool {
        debug_assert!(self.packing.is_some(), "a publisher packs");
        self.packing.as_mut().is_some_and(|packing| packing.pack(&mut self.link, record))
    }

    /// The packed records join the link's queue.
    pub(crate) fn flush_packing(&mut self) {
        if let Some(packing) = &mut self.packing {
            packing.flush(&mut self.link);
        }
    }

    /// When the linger of what is packed ends, in ns.
    #[inline]
    pub(crate) fn flush_ns(&self) -> u64 {
        self.packing.as_ref().map_or(u64::MAX, Packing::flush_ns)
    }

    /// When something is due, in ns.
    #[inline]
    pub(crate) fn due_ns(&self) -> u64 {
        self.link.due_ns().min(self.flush_ns())
    }

    /// Everything that is due, linger included, and what has arrived.
    pub(crate) fn drive(&mut self) {
        self.link.receive();
        self.drive_without_receiving();
    }

    /// Everything that is due, linger included.
    pub(crate) fn drive_without_receiving(&mut self) {
        if self.link.now_ns() >= self.flush_ns() {
            self.flush_packing();
        }
        if let Some(post) = &mut self.post {
            post.sort(&mut self.link);
        }
        self.link.drive();
    }

    /// Whether a thread of the application waits, and so does all that is due itself.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.asleep.is_empty()
    }

    /// Wakes the other threads that wait, if something has happened that they may be waiting for.
    pub(crate) fn wake_others(&mut self, own: &Arc<Waker>) {
        if self.link.take_changed() {
            self.asleep.iter().filter(|waker| !Arc::ptr_eq(waker, own)).for_each(|waker| waker.bell.ring());
        }
    }

    /// A thread of the application is about to sleep.
    pub(crate) fn sleeps(&mut self, own: &Arc<Waker>) {
        self.asleep.push(Arc::clone(own));
    }

    /// It is awake.
    pub(crate) fn woke(&mut self, own: &Arc<Waker>) {
        self.asleep.retain(|waker| !Arc::ptr_eq(waker, own));
    }
}

/// The waiter without a thread, until the keeper wakes it: a task of an executor, or an event loop that polls a descriptor.
pub(crate) struct Task {
    pub(crate) waker: std::task::Waker,
    /// Whether the keeper watches the link for it by now.
    pub(crate) is_watched: bool,
}

/// A link and its lock.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
}

impl Shared {
    pub(crate) fn new(link: Link) -> Shared {
        let (asleep, packing, post, task) = (Vec::new(), None, None, None);
        let inner = Inner { link, packing, post, asleep, task, driven_ns: 0, keeper_ns: 0 };
        Shared { inner: Mutex::new(inner) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while the lock was held has nothing half-done that drive does not repair: go on.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same without waiting; `None` while another thread has the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The waker of a thread that waits on a link.
pub(crate) struct Waker {
    interrupted: AtomicBool,
    bell: Doorbell,
}

impl Waker {
    pub(crate) fn new(bell: Doorbell) -> Waker {
        Waker { interrupted: AtomicBool::new(false), bell }
    }

    /// Interrupts the call that waits now, or the next one that would.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether a call was interrupted since this was last asked: then it is met.
    pub(crate) fn take_interrupted(&self) -> bool {
        self.interrupted.swap(false, Ordering::AcqRel)
    }
}
