//! An attachment: this process as a client of a daemon.

use super::condition::Condition;
use super::error::MailboxError;
use super::inner::Inner;
use super::port::Port;
use super::reader::Reader;
use super::signal::{ErrorSignal, SignalSide};
use super::sync::SyncWord;
use super::upcall;
use super::wait::{Interrupt, Wait, WaitsAt};
use super::writer::Writer;
use crate::attach::{Admitted, AttachAddr, AttachError, AttachRequest, Peer, connect};
use crate::failpoint::failpoint;
use crate::segment::HugePages;
use crate::shared::{ConditionAddress, SyncAddress};
use rustix::fd::{AsFd, BorrowedFd};
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long each step of attaching may take: a daemon that runs answers within milliseconds.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);
/// Reads that empty a wake pipe of the kernel's usual length, 64 KiB.
const MOST_WAKE_READS: usize = 17;
/// The session's port to write.
const SESSION_OUT: u16 = 0;
/// The session's port to read.
const SESSION_IN: u16 = 1;

/// This process as a client of a daemon: what both share, for as long as this value, a clone of it, or anything had from it is
/// there. All of it may be used from any thread.
///
/// When the last of them is dropped the daemon reclaims all that the process had.
#[derive(Clone)]
pub struct Attachment(Arc<Inner>);

impl Attachment {
    /// Attaches to the daemon at `address`, as a client that may use all that an attachment offers.
    ///
    /// # Errors
    /// No daemon there; one that refuses this process, with its reason; one of another version; the system's errors.
    pub fn connect(address: &AttachAddr) -> Result<Attachment, AttachError> {
        Attachment::connect_within(address, AttachRequest { uses_mailboxes: true }, ATTACH_TIMEOUT)
    }

    /// Attaches to the daemon at `address` for what `request` names, waiting at most `timeout` for each of the daemon's steps.
    ///
    /// # Errors
    /// As [`Attachment::connect`].
    pub fn connect_within(
        address: &AttachAddr,
        request: AttachRequest,
        timeout: Duration,
    ) -> Result<Attachment, AttachError> {
        failpoint!("attach.before_connect");
        Attachment::admitted(connect(address, request, timeout)?)
    }

    /// The resources that a daemon handed over to this process.
    pub(super) fn admitted(admitted: Admitted) -> Result<Attachment, AttachError> {
        failpoint!("attach.after_connect");
        let system = |error| AttachError::System { doing: "mapping what the daemon shares", error };
        let inner = Inner::new(admitted).map_err(system)?;
        failpoint!("attach.after_watcher");
        Ok(Attachment(Arc::new(inner)))
    }

    /// The number by which the daemon knows this process, as `crossdock clients` shows it.
    pub fn client_number(&self) -> u32 {
        self.0.client
    }

    /// The daemon's process.
    pub fn daemon(&self) -> &Peer {
        &self.0.daemon
    }

    /// Whether huge pages are behind the memory of messages, as far as this process asked for them.
    pub fn huge_pages(&self) -> HugePages {
        self.0.memory.shared.huge_pages()
    }

    /// Whether the attachment is over: the daemon ended, or detached this process.
    pub fn is_gone(&self) -> bool {
        self.0.watch.is_gone()
    }

    /// Why the attachment is over, if it is.
    pub fn gone(&self) -> Option<MailboxError> {
        self.is_gone().then(|| self.0.watch.gone())
    }

    /// The two sides of the session: packets to the daemon, and from it. They are given out once.
    pub fn session(&self) -> Option<(Writer, Reader)> {
        let writer = Port::take(&self.0, None, SESSION_OUT).ok()?;
        let reader = Port::take(&self.0, None, SESSION_IN).ok()?;
        failpoint!("session.taken");
        Some((Writer::session(writer)?, Reader::rings(reader)))
    }

    /// The writing side of a mailbox that the daemon has opened for this process as `number`: over `port`, or over the signal
    /// queue if there is none.
    ///
    /// # Errors
    /// `PortTaken`: the port is in use, or is none.
    pub fn writer(&self, number: u16, port: Option<u16>) -> Result<Writer, MailboxError> {
        Ok(match port {
            Some(port) => Writer::rings(Port::take(&self.0, Some(number), port)?),
            None => Writer::signals(SignalSide::new(&self.0, number)),
        })
    }

    /// The reading side; as [`Attachment::writer`].
    ///
    /// # Errors
    /// `PortTaken`: the port is in use, or is none.
    pub fn reader(&self, number: u16, port: Option<u16>) -> Result<Reader, MailboxError> {
        Ok(match port {
            Some(port) => Reader::rings(Port::take(&self.0, Some(number), port)?),
            None => Reader::signals(SignalSide::new(&self.0, number)),
        })
    }

    /// Sets what is called when the writer or reader of a mailbox's side, and every put and message that came by it, are dropped:
    /// only then may the side be closed, since closing takes its buffers back. It is called with the side's number, by
    /// whichever thread dropped the last of them, and should only pass it on.
    pub fn on_unused(&self, unused: impl Fn(u16) + Send + std::marker::Sync + 'static) {
        *self.0.unused.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(unused));
    }

    /// Allocates a sync (Nectar paper, 3.4).
    ///
    /// # Errors
    /// `NoSyncs`: all are in use.
    pub fn alloc_sync(&self) -> Result<SyncWord, MailboxError> {
        SyncWord::alloc(&self.0)
    }

    /// Writes a sync of this or another process of the domain. The core does it: that is what settles the race with a reader that
    /// cancels. A sync that nobody waits for any more takes no harm.
    ///
    /// # Errors
    /// `Gone`.
    pub fn write_sync(&self, address: SyncAddress, value: u64) -> Result<(), MailboxError> {
        self.0.write_sync(address, value)
    }

    /// Allocates a host condition (Nectar paper, 3.2).
    ///
    /// # Errors
    /// `NoConditions`: all are in use.
    pub fn condition(&self) -> Result<Condition, MailboxError> {
        Condition::alloc(&self.0)
    }

    /// Signals a host condition of this or another process of the domain.
    ///
    /// # Errors
    /// `Gone`.
    pub fn signal(&self, address: ConditionAddress) -> Result<(), MailboxError> {
        self.0.signal(address)
    }

    /// The small remote call (Nectar paper, 3.2): calls `procedure` of the core and waits for its result.
    ///
    /// # Errors
    /// `TimedOut`: the call may still be carried out; `NoSyncs`, `Gone`.
    pub fn call(&self, procedure: u16, argument: u64, wait: Wait) -> Result<u64, MailboxError> {
        upcall::call(&self.0, procedure, argument, wait)
    }

    /// Serves the core's calls into this process: `serve` is called with procedure and argument by a thread of its own, one call
    /// at a time, and its value is the result. Without it such calls are answered with `u64::MAX`.
    ///
    /// # Errors
    /// `UpcallsServed`: that was set already; `System`: no thread; `Gone`.
    pub fn on_upcall(&self, serve: impl FnMut(u16, u64) -> u64 + Send + 'static) -> Result<(), MailboxError> {
        upcall::serve(&self.0, serve)
    }

    /// Calls `look` until it finds something, as `wait` says, and gives that: for a thread that waits for several readers and writers
    /// of this attachment at once. Asleep it costs nothing: it looks again when something was sent to this process, or after
    /// [`Attachment::wake`]. `look` itself must not wait.
    ///
    /// # Errors
    /// `TimedOut`; `Gone`, after a last look.
    pub fn wait_until<T>(&self, wait: Wait, mut look: impl FnMut() -> Option<T>) -> Result<T, MailboxError> {
        let interrupt = Interrupt::of(WaitsAt::OwnPorts);
        self.0.watch.wait_for(&self.0.arrivals, wait, Some(&interrupt), || Ok(look()))
    }

    /// Has every thread that waits for something from the daemon look again, from another thread.
    pub fn wake(&self) {
        self.0.arrivals.signal();
    }

    /// Errors of the daemon that answer no call, since they were last asked for, the oldest first; of more than 16 the oldest are
    /// lost.
    pub fn errors(&self) -> Vec<ErrorSignal> {
        self.0.errors()
    }

    /// For an event loop of the application's own: readable when something was sent to this process after [`Attachment::arm`],
    /// or when the daemon is gone.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }

    /// Asks for [`Attachment::as_fd`] to become readable at the next thing sent, once. Call it, then *try* everything that is waited
    /// for once more, and only then wait: what came before this call makes nothing readable.
    pub fn arm(&self) {
        let mut old = [0; 4096];
        // Until it is empty: what is in it was for an earlier call. An honest daemon writes a byte for each call of this
        // function, so one read is the rule; what another goes on writing makes the descriptor readable, and no more.
        for _ in 0..MOST_WAKE_READS {
            if !matches!(rustix::io::read(&self.0.wake, &mut old), Ok(1..)) {
                break;
            }
        }
        self.0.armed.arm();
        self.0.watch.fall_asleep(WaitsAt::AllPorts);
        failpoint!("arm.armed");
    }

    /// Shows the daemon that this process runs. To be called about once a second by a client that others may have to wait for: a
    /// daemon ends one whose process is stopped.
    pub fn beat(&self) {
        self.0.armed.beat();
    }
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment")
            .field("client", &self.0.client)
            .field("gone", &self.is_gone())
            .finish_non_exhaustive()
    }
}
