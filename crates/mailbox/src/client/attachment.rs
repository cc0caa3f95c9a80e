//! An attachment: this process as a client of a daemon.

use super::condition::{Condition, conditions};
use super::error::MailboxError;
use super::held::{Memory, Records, SIGNALS};
use super::port::{Port, Ports};
use super::reader::Reader;
use super::signal::{ErrorSignal, MAX_ERRORS, SignalSide, Signals, listen};
use super::sync::{FreeSyncs, SyncWord, cells};
use super::upcall;
use super::wait::{Interrupt, Wait, WaitsAt};
use super::watcher::Watch;
use super::writer::Writer;
use crate::attach::{Admitted, AttachAddr, AttachError, AttachRequest, Peer, connect};
use crate::failpoint::failpoint;
use crate::segment::{HugePages, Segment};
use crate::shared::{
    ARRIVAL_CONDITION, ArmedFlag, CONDITIONS, ClientLane, ConditionAddress, ControlLayout, CoreBell,
    DOORBELL_PAGE_BYTES, FREE_CONDITION, HostCondition, SIGNAL_SLOTS, SyncAddress, SyncCell, UPCALL_CONDITION, up,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long each step of attaching may take: a daemon that runs answers within milliseconds.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);
/// Reads that empty a wake pipe of the kernel's usual length, 64 KiB.
const MOST_WAKE_READS: usize = 17;
/// The session's port to write.
const SESSION_OUT: u16 = 0;
/// The session's port to read.
const SESSION_IN: u16 = 1;

/// The callback for the number of a side that is not used any more.
type Unused = Arc<dyn Fn(u16) + Send + std::marker::Sync>;

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
        let interrupt = Interrupt::of(WaitsAt::AllPorts);
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
        self.0.watch.fall_asleep(|_| true);
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

/// The state that everything of an attachment shares.
pub(crate) struct Inner {
    pub(crate) client: u32,
    pub(crate) memory: Memory,
    /// Of the signal queue's slots.
    pub(crate) records: Records,
    pub(crate) control: Arc<Segment>,
    pub(crate) lane: ClientLane,
    /// Entries sent to the core over the signal queue so far.
    pub(crate) signalled: AtomicU64,
    pub(crate) bell: CoreBell,
    pub(crate) watch: Arc<Watch>,
    /// Signalled when the core sent something.
    pub(crate) arrivals: HostCondition,
    /// Signalled when the core made an upcall.
    pub(crate) upcalled: HostCondition,
    pub(crate) ports: Ports,
    pub(crate) signals: Mutex<Signals>,
    pub(crate) syncs: Mutex<FreeSyncs>,
    pub(crate) cells: Vec<SyncCell>,
    /// Host conditions that are free.
    pub(crate) conditions: Mutex<Vec<u16>>,
    pub(crate) unused: Mutex<Option<Unused>>,
    armed: ArmedFlag,
    wake: OwnedFd,
    daemon: Peer,
    watcher: Option<JoinHandle<()>>,
}

impl Inner {
    /// Maps what the daemon handed over, and starts the thread that watches its socket.
    fn new(admitted: Admitted) -> std::io::Result<Inner> {
        let Admitted { welcome, handles, socket, daemon } = admitted;
        // An eventfd is of no type that files have.
        check_file(&handles.doorbell, FileType::Unknown, "its doorbell is no eventfd")?;
        check_file(&handles.wake, FileType::Fifo, "what it wakes this process by is no pipe")?;
        let map = |fd: OwnedFd, bytes: u64, writable: bool| {
            let bytes = usize::try_from(bytes).map_err(|_| std::io::Error::other("a segment longer than memory"))?;
            Segment::map(fd, bytes, writable).map(Arc::new)
        };
        let control = map(handles.control, welcome.control_bytes, true)?;
        let memory = Memory {
            shared: map(handles.shared, welcome.shared_bytes, true)?,
            inbox: map(handles.inbox, welcome.inbox_bytes, false)?,
        };
        let page = map(handles.bell, DOORBELL_PAGE_BYTES as u64, false)?;
        let parts = Parts::new(&control, &page, handles.doorbell);
        let Some(parts) = parts.filter(|_| control.bytes() >= ControlLayout::BYTES) else {
            let what = format!("its control segment of {} bytes is too short", control.bytes());
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
        };
        parts.armed.say_fences(parts.bell.shares_fences());
        let Parts { bell, conditions, arrivals, upcalled, signals, cells, armed, lane } = parts;
        let watch = Arc::new(Watch::new(socket, conditions));
        let watched = watch.clone();
        let thread = std::thread::Builder::new().name("crossdock-watch".to_owned());
        let watcher = thread.spawn(move || watched.run())?;
        let inner = Inner {
            client: welcome.client,
            memory,
            records: Records::new(SIGNAL_SLOTS, SIGNALS),
            control,
            lane,
            signalled: AtomicU64::new(0),
            bell,
            watch,
            arrivals,
            upcalled,
            ports: Ports::default(),
            signals: Mutex::new(signals),
            syncs: Mutex::new(FreeSyncs::new()),
            cells,
            conditions: Mutex::new((FREE_CONDITION..CONDITIONS as u16).rev().collect()),
            unused: Mutex::new(None),
            armed,
            wake: handles.wake,
            daemon,
            watcher: Some(watcher),
        };
        for _ in 0..MAX_ERRORS {
            // If the daemon is gone already, the first call finds out.
            let _sent = inner.send(listen(up::LISTEN_ERRORS));
        }
        Ok(inner)
    }

    /// Ends the attachment, because the daemon sent what no daemon sends.
    #[cold]
    pub(crate) fn broken(&self, what: &str) -> MailboxError {
        self.watch.end(&format!("the daemon broke the protocol: {what}"), false);
        self.watch.gone()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.watch.end("this process detached itself", true);
        self.watch.hang_up();
        if let Some(watcher) = self.watcher.take() {
            let _ended = watcher.join();
        }
    }
}

/// Refuses a descriptor of another type, which could end or block whoever writes or reads it; and has it never block.
fn check_file(file: &OwnedFd, wanted: FileType, wrong: &str) -> std::io::Result<()> {
    if FileType::from_raw_mode(fstat(file)?.st_mode) != wanted {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, wrong));
    }
    Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?)
}

/// The parts in the control segment and the core's page.
struct Parts {
    bell: CoreBell,
    conditions: Vec<HostCondition>,
    arrivals: HostCondition,
    upcalled: HostCondition,
    signals: Signals,
    cells: Vec<SyncCell>,
    armed: ArmedFlag,
    lane: ClientLane,
}

impl Parts {
    fn new(control: &Arc<Segment>, page: &Arc<Segment>, doorbell: OwnedFd) -> Option<Parts> {
        let condition = |index: u16| HostCondition::new(control, ControlLayout::condition(index.into()));
        Some(Parts {
            bell: CoreBell::new(page, doorbell)?,
            conditions: conditions(control)?,
            arrivals: condition(ARRIVAL_CONDITION)?,
            upcalled: condition(UPCALL_CONDITION)?,
            signals: Signals::new(control)?,
            cells: cells(control)?,
            armed: ArmedFlag::new(control)?,
            lane: ClientLane::new(control)?,
        })
    }
}
