//! A link shared by the application's threads and its keeper.
//!
//! Lock, do, unlock; who waits, waits outside the lock. The lock is uncontended where one thread uses the link: the keeper takes
//! it only when something is due that the application's thread did not do itself.

use crate::error::Error;
use crate::keeper::Keeper;
use crate::link::Link;
use crate::node::Post;
use crate::packing::Packing;
use crate::settings::Settings;
use crate::watch::Watch;
use crossdock_device::{Doorbell, Idle, Idler, nap};
use crossdock_mailbox::client;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest wait without a look at the clock, in ns.
const LONGEST_WAIT_NS: u64 = 1_000_000_000;

/// What the lock protects.
pub(crate) struct Inner {
    pub(crate) link: Link,
    pub(crate) packing: Option<Packing>,
    /// For a node: the mailboxes that are open.
    pub(crate) post: Option<Post>,
    /// The application's threads that are asleep, or about to be.
    asleep: Vec<Arc<Waker>>,
    /// When a thread of the application last drove the link, in ns.
    pub(crate) driven_ns: u64,
    /// When the keeper wakes by itself, in ns.
    pub(crate) keeper_ns: u64,
    pub(crate) closing: bool,
}

impl Inner {
    /// Packs a record; `false` when there is no room before the daemon takes some of what it was sent.
    #[inline]
    pub(crate) fn pack(&mut self, record: &[u8]) -> bool {
        self.packing.as_mut().is_some_and(|packing| packing.pack(&mut self.link, record))
    }

    /// What is packed joins the link's queue.
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

    fn woke(&mut self, own: &Arc<Waker>) {
        self.asleep.retain(|waker| !Arc::ptr_eq(waker, own));
    }
}

/// A link and its lock.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while the lock was held has nothing half-done that drive does not mend: go on.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What wakes a thread that waits on a link.
pub(crate) struct Waker {
    interrupted: AtomicBool,
    bell: Doorbell,
}

/// Makes a call that waits return [`Error::Interrupted`], from another thread (a handler of Ctrl-C).
#[derive(Clone)]
pub struct Interrupter(Waiter);

/// Who waits, and how.
#[derive(Clone)]
enum Waiter {
    /// On a link.
    Link(Arc<Waker>),
    /// In shared memory, for a mailbox.
    Memory(client::Interrupter),
}

impl Interrupter {
    pub(crate) fn local(interrupter: client::Interrupter) -> Interrupter {
        Interrupter(Waiter::Memory(interrupter))
    }

    /// Interrupts the call that waits now, or the next one that would.
    pub fn interrupt(&self) {
        match &self.0 {
            Waiter::Link(waker) => {
                waker.interrupted.store(true, Ordering::Release);
                waker.bell.ring();
            }
            Waiter::Memory(interrupter) => interrupter.interrupt(),
        }
    }

    /// Takes back an interruption that no call has met: for who has seen otherwise why it was interrupted, and goes on to calls
    /// that may wait, such as [`Publisher::finish`](crate::Publisher::finish).
    pub fn withdraw(&self) {
        match &self.0 {
            Waiter::Link(waker) => waker.interrupted.store(false, Ordering::Release),
            Waiter::Memory(interrupter) => interrupter.withdraw(),
        }
    }
}

impl std::fmt::Debug for Interrupter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupter").finish_non_exhaustive()
    }
}

/// One thread's end of a link.
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    watch: Watch,
    waker: Arc<Waker>,
    keeper: Arc<Keeper>,
}

impl Client {
    /// Makes a link and starts its keeper; connecting has begun.
    pub(crate) fn new(settings: Settings) -> Result<Client, Error> {
        let link = Link::new(settings)?;
        let inner =
            Inner { link, packing: None, post: None, asleep: Vec::new(), driven_ns: 0, keeper_ns: 0, closing: false };
        let shared = Arc::new(Shared { inner: Mutex::new(inner) });
        let keeper = Arc::new(Keeper::start(Arc::clone(&shared))?);
        Client::with(shared, keeper)
    }

    fn with(shared: Arc<Shared>, keeper: Arc<Keeper>) -> Result<Client, Error> {
        let watch = Watch::new()?;
        let waker = Arc::new(Waker { interrupted: AtomicBool::new(false), bell: watch.doorbell() });
        Ok(Client { shared, watch, waker, keeper })
    }

    /// Drives the link and waits until `done` has something, the time is over, or the link has ended.
    pub(crate) fn wait<T>(
        &mut self,
        timeout: Option<Duration>,
        mut done: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let mut until_ns = None;
        let mut receive = false;
        let mut armed = false;
        loop {
            let mut inner = self.shared.lock();
            inner.woke(&self.waker);
            // The socket is read when the poller says so, which saves the system call that would find nothing.
            if receive || inner.link.is_polled() {
                inner.drive();
            } else {
                inner.drive_without_receiving();
            }
            let now_ns = inner.link.now_ns();
            inner.driven_ns = now_ns;
            inner.wake_others(&self.waker);
            if let Some(result) = done(&mut inner) {
                self.keeper.tick(&inner);
                return Ok(Some(result));
            }
            if let Some(fault) = inner.link.fault() {
                return Err(fault);
            }
            if self.waker.interrupted.swap(false, Ordering::AcqRel) {
                self.keeper.tick(&inner);
                return Err(Error::Interrupted);
            }
            let until_ns = *until_ns.get_or_insert_with(|| match timeout {
                Some(timeout) => now_ns.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)),
                None => u64::MAX,
            });
            if now_ns >= until_ns {
                self.keeper.tick(&inner);
                return Ok(None);
            }
            let idle = inner.link.idler.choose(now_ns);
            receive = true;
            match idle {
                Idle::Nap => {
                    drop(inner);
                    nap(Idler::NAP);
                }
                // Others may need this core to send what is waited for.
                Idle::Spin => {
                    drop(inner);
                    std::thread::yield_now();
                }
                // What came before it was armed wakes nobody: one more look.
                Idle::Sleep if !std::mem::replace(&mut armed, true) && inner.link.arm() => {}
                Idle::Sleep => {
                    armed = false;
                    let pause_ns = until_ns.min(inner.due_ns()).saturating_sub(now_ns).min(LONGEST_WAIT_NS);
                    self.watch.watch(&inner.link);
                    inner.asleep.push(Arc::clone(&self.waker));
                    drop(inner);
                    receive = self.watch.sleep(pause_ns);
                    let link = &mut self.shared.lock().link;
                    link.idler.slept(now_ns, link.now_ns(), receive);
                }
            }
        }
    }

    /// What `done` has now, after a look at what has arrived; does not wait.
    pub(crate) fn look<T>(&self, mut done: impl FnMut(&mut Inner) -> Option<T>) -> Option<T> {
        let mut inner = self.shared.lock();
        let mut found = done(&mut inner);
        if found.is_none() {
            inner.drive();
            found = done(&mut inner);
        }
        self.leave(&mut inner);
        found
    }

    /// The application's thread has used the link and goes elsewhere.
    pub(crate) fn leave(&self, inner: &mut Inner) {
        inner.driven_ns = inner.link.now_ns();
        inner.wake_others(&self.waker);
        self.keeper.tick(inner);
    }

    /// Another thread's end of the same link.
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub(crate) fn join(&self) -> Result<Client, Error> {
        Client::with(Arc::clone(&self.shared), Arc::clone(&self.keeper))
    }

    /// Says that the application's thread has left something that will be due.
    #[inline]
    pub(crate) fn tick(&self, inner: &Inner) {
        self.keeper.tick(inner);
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        Interrupter(Waiter::Link(Arc::clone(&self.waker)))
    }
}
