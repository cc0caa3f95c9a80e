//! A link shared by the application's thread and its keeper.
//!
//! Lock, do, unlock; who waits, waits outside the lock. The lock is uncontended: the keeper takes it only when something is
//! due that the application's thread did not do itself.

use crate::error::Error;
use crate::keeper::Keeper;
use crate::link::{Link, LinkOptions};
use crate::outgoing::Outgoing;
use crossdock_device::{Device, Doorbell, Idle, Idler, Poller, nap};
use crossdock_transport::{MAX_SUPER_BYTES, SuperPacket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest wait without a look at the clock, in ns.
const LONGEST_WAIT_NS: u64 = 1_000_000_000;

/// The socket's key in the poller.
const SOCKET: u64 = 0;

/// Records that are being packed for a stream.
pub(crate) struct Packing {
    pub(crate) stream: u32,
    pub(crate) format: u64,
    pub(crate) linger_ns: u64,
    open: Option<SuperPacket<crossdock_mailbox::BufferMut>>,
    flush_ns: u64,
}

impl Packing {
    pub(crate) fn new(stream: u32, format: u64, linger: Duration) -> Packing {
        let linger_ns = u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX);
        Packing { stream, format, linger_ns, open: None, flush_ns: u64::MAX }
    }
}

/// What the lock protects.
pub(crate) struct Inner {
    pub(crate) link: Link,
    pub(crate) packing: Option<Packing>,
    /// The application's thread waits on the socket.
    pub(crate) waiting: bool,
    /// When the application's thread last drove the link, in ns.
    pub(crate) driven_ns: u64,
    /// When the keeper wakes by itself, in ns.
    pub(crate) keeper_ns: u64,
    pub(crate) closing: bool,
}

impl Inner {
    /// Packs a record; `false` when there is no room before the daemon gives credit.
    #[inline]
    pub(crate) fn pack(&mut self, record: &[u8]) -> bool {
        if let Some(packing) = &mut self.packing
            && let Some(open) = &mut packing.open
            && open.push(record)
        {
            return true;
        }
        self.pack_into_new(record)
    }

    #[cold]
    fn pack_into_new(&mut self, record: &[u8]) -> bool {
        self.flush_packing();
        let packet_bytes = self.link.session().map_or(0, |s| s.packet_bytes());
        if packet_bytes == 0 || !self.has_room() {
            return false;
        }
        let Some(buffer) = self.link.pool.alloc(MAX_SUPER_BYTES) else { return false };
        let now_ns = self.link.now_ns();
        let Some(packing) = &mut self.packing else { return false };
        let mut packet = SuperPacket::new(buffer, packet_bytes);
        let fits = packet.push(record);
        packing.open = fits.then_some(packet);
        packing.flush_ns = now_ns.saturating_add(packing.linger_ns);
        fits
    }

    /// Whether another super-packet may be filled: not more than twice what the daemon's credit lets go.
    pub(crate) fn has_room(&self) -> bool {
        self.link.backlog_bytes() < 4 << 20
    }

    /// What is packed joins the queue; a few records move to a small buffer first.
    pub(crate) fn flush_packing(&mut self) {
        let Some(packing) = &mut self.packing else { return };
        let Some(packet) = packing.open.take() else { return };
        packing.flush_ns = u64::MAX;
        let len = packet.len();
        let small = if len <= MAX_SUPER_BYTES / 4 { self.link.pool.alloc(len) } else { None };
        let packet = match small {
            Some(small) => packet.copied_to(small),
            None => packet,
        };
        let (stream, format) = (packing.stream, packing.format);
        self.link.enqueue(Outgoing::Records { packet, stream, format });
    }

    /// When the linger of what is packed ends, in ns.
    pub(crate) fn flush_ns(&self) -> u64 {
        self.packing.as_ref().map_or(u64::MAX, |p| p.flush_ns)
    }

    /// When something is due, in ns.
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
        self.link.drive();
    }
}

/// A link, its lock, and the ways to wake those who wait.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    pub(crate) interrupted: AtomicBool,
    pub(crate) app_bell: Doorbell,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while the lock was held has nothing half-done that drive does not mend: go on.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a call that waits return [`Error::Interrupted`], from another thread (a handler of Ctrl-C).
#[derive(Clone)]
pub struct Interrupter(pub(crate) Arc<Shared>);

impl Interrupter {
    /// Interrupts the call that waits now, or the next one that would.
    pub fn interrupt(&self) {
        self.0.interrupted.store(true, Ordering::Release);
        self.0.app_bell.ring();
    }
}

impl std::fmt::Debug for Interrupter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupter").finish_non_exhaustive()
    }
}

/// The application's end of a link.
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    poller: Poller,
    keeper: Keeper,
}

impl Client {
    /// Opens a link and starts its keeper; dialling has begun.
    pub(crate) fn new(options: LinkOptions) -> Result<Client, Error> {
        let link = Link::new(options)?;
        let epoll = Error::system("cannot watch the socket");
        let mut poller = Poller::new().map_err(&epoll)?;
        let keeper_poller = Poller::new().map_err(&epoll)?;
        if let Some(fd) = link.device.as_fd() {
            poller.add(fd, SOCKET).map_err(&epoll)?;
        }
        let inner = Inner { link, packing: None, waiting: true, driven_ns: 0, keeper_ns: 0, closing: false };
        let shared = Arc::new(Shared {
            inner: Mutex::new(inner),
            interrupted: AtomicBool::new(false),
            app_bell: poller.doorbell(),
        });
        let keeper = Keeper::start(Arc::clone(&shared), keeper_poller)?;
        Ok(Client { shared, poller, keeper })
    }

    /// Drives the link and waits until `done` has something, the time is over, or the link has ended.
    pub(crate) fn wait<T>(
        &mut self,
        timeout: Option<Duration>,
        mut done: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let mut until_ns = None;
        let mut receive = false;
        loop {
            let mut inner = self.shared.lock();
            // The socket is read when the poller says so, which saves the system call that would find nothing.
            if receive {
                inner.drive();
            } else {
                inner.drive_without_receiving();
            }
            let now_ns = inner.link.now_ns();
            inner.driven_ns = now_ns;
            inner.waiting = false;
            if let Some(result) = done(&mut inner) {
                self.keeper.look_after(&inner);
                return Ok(Some(result));
            }
            if let Some(fault) = inner.link.fault() {
                return Err(fault);
            }
            if self.shared.interrupted.swap(false, Ordering::AcqRel) {
                self.keeper.look_after(&inner);
                return Err(Error::Interrupted);
            }
            let until_ns = *until_ns.get_or_insert_with(|| match timeout {
                Some(timeout) => now_ns.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)),
                None => u64::MAX,
            });
            if now_ns >= until_ns {
                self.keeper.look_after(&inner);
                return Ok(None);
            }
            let idle = inner.link.idler.choose(now_ns);
            let pause_ns = until_ns.min(inner.due_ns()).saturating_sub(now_ns).min(LONGEST_WAIT_NS);
            inner.waiting = idle == Idle::Sleep;
            drop(inner);
            receive = true;
            match idle {
                Idle::Nap => nap(Idler::NAP),
                // Others may need this core to send what is waited for.
                Idle::Spin => std::thread::yield_now(),
                Idle::Sleep => {
                    // A failed wait (a signal) is a short one.
                    let ready = self.poller.wait(Some(Duration::from_nanos(pause_ns)));
                    receive = ready.is_ok_and(|ready| ready.contains(&SOCKET));
                    let link = &mut self.shared.lock().link;
                    link.idler.slept(now_ns, link.now_ns(), receive);
                }
            }
        }
    }

    /// Says that the application's thread has left something that will be due.
    #[inline]
    pub(crate) fn look_after(&self, inner: &Inner) {
        self.keeper.look_after(inner);
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        Interrupter(Arc::clone(&self.shared))
    }
}
