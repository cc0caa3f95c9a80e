//! The state that all parts of an attachment share, from what the daemon handed over to its end.

use super::error::MailboxError;
use super::held::{Memory, Records};
use super::signal::{MAX_ERRORS, Signals, listen};
use super::sync::{FreeSyncs, cells};
use super::watcher::Watch;
use crate::attach::{Admitted, Peer};
use crate::segment::Segment;
use crate::shared::{
    ARRIVAL_CONDITION, ArmedFlag, CONDITIONS, ClientLane, ControlLayout, CoreBell, DOORBELL_PAGE_BYTES, FREE_CONDITION,
    HostCondition, PORTS, SIGNAL_SLOTS, SIGNALS, SyncCell, UPCALL_CONDITION, up,
};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The function that is called with the number of a side that is not used any more.
pub(super) type Unused = Arc<dyn Fn(u16) + Send + std::marker::Sync>;

/// Which ports have an owner.
#[derive(Default)]
pub(crate) struct Ports(AtomicU64);

impl Ports {
    /// True if it is the caller's now.
    pub(super) fn claim(&self, port: u16) -> bool {
        let bit = 1 << (port % PORTS as u16);
        usize::from(port) < PORTS && self.0.fetch_or(bit, Ordering::Acquire) & bit == 0
    }

    /// It has no owner any more.
    pub(crate) fn release(&self, port: u16) {
        self.0.fetch_and(!(1 << (port % PORTS as u16)), Ordering::Release);
    }
}

const _: () = assert!(PORTS == 64, "a bit of a word for each port");

/// The state of an attachment that all of its parts share.
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
    pub(super) armed: ArmedFlag,
    pub(super) wake: OwnedFd,
    pub(super) daemon: Peer,
    watcher: Option<JoinHandle<()>>,
}

impl Inner {
    /// Maps what the daemon handed over, and starts the thread that watches its socket.
    pub(super) fn new(admitted: Admitted) -> std::io::Result<Inner> {
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

/// All conditions of a client; none if the segment is too short.
fn conditions(control: &Arc<Segment>) -> Option<Vec<HostCondition>> {
    (0..CONDITIONS).map(|index| HostCondition::new(control, ControlLayout::condition(index))).collect()
}
