//! A daemon by hand: raw rings and raw bytes, without any of the host interface's care. For tests and for the fuzz targets
//! that play a hostile daemon; `failpoint::observe` lets them act in the middle of the client's operations.

use super::attachment::Attachment;
use crate::attach::{AttachAddr, AttachError, greeted};
use crate::host::raw::{RawDescriptor, descriptor, raw};
use crate::host::{ClientKey, DomainSegments, Prepared};
use crate::segment::{HugePages, Segment};
use crate::shared::{
    CONDITIONS, ControlLayout, CoreLane, Descriptor, DoorbellPage, HostCondition, PORT_ENTRIES, Passed, RingReader,
    RingWriter, SIGNAL_ENTRIES, Signal, TakenCount,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, send,
    sendmsg, shutdown, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

/// The most descriptors that are sent with a greeting.
const MOST_FILES: usize = 10;
/// How long a greeting may take; it was sent before it is waited for.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A daemon whose every byte is the caller's to choose, with one client.
pub struct RawDaemon {
    control: Arc<Segment>,
    domain: Arc<DomainSegments>,
    bell: DoorbellPage,
    lane: CoreLane,
    up: HashMap<u16, RingReader<Descriptor>>,
    down: HashMap<u16, RingWriter<Descriptor>>,
    signal_up: RingReader<Signal>,
    signal_down: RingWriter<Signal>,
    taken: [TakenCount; 2],
    conditions: Vec<HostCondition>,
    prepared: Prepared,
}

impl RawDaemon {
    /// A daemon with `domain`, and a client that it let in.
    ///
    /// # Errors
    /// The system's.
    pub fn new(domain: &Arc<DomainSegments>) -> io::Result<(RawDaemon, Attachment)> {
        let (ours, theirs) = pair()?;
        let peer = crate::attach::Peer::of(ours.as_fd())?;
        let bell = DoorbellPage::new()?;
        let (prepared, reply) = Prepared::new(peer, ours, domain, &bell)?;
        reply.send(ClientKey::new(1, 7))?;
        let attachment = greet(theirs).map_err(io::Error::other)?;
        let control = prepared.control.clone();
        let condition = |index| HostCondition::new(&control, ControlLayout::condition(index));
        let daemon = || {
            Some(RawDaemon {
                lane: CoreLane::new(&control)?,
                up: HashMap::new(),
                down: HashMap::new(),
                signal_up: RingReader::new(&control, ControlLayout::signal_up(), SIGNAL_ENTRIES)?,
                signal_down: RingWriter::new(&control, ControlLayout::signal_down(), SIGNAL_ENTRIES)?,
                taken: [TakenCount::new(&control)?, TakenCount::of_session(&control)?],
                conditions: (0..CONDITIONS).map(condition).collect::<Option<_>>()?,
                control: control.clone(),
                domain: domain.clone(),
                bell,
                prepared,
            })
        };
        let daemon = daemon().ok_or_else(|| io::Error::other("the control segment is too short"))?;
        Ok((daemon, attachment))
    }

    /// Writes an entry to a port's ring.
    pub fn push(&mut self, port: u16, entry: RawDescriptor) {
        if !self.down.contains_key(&port) {
            let at = ControlLayout::port_down(port.into());
            let Some(ring) = RingWriter::new(&self.control, at, PORT_ENTRIES) else { return };
            self.down.insert(port, ring);
        }
        if let Some(ring) = self.down.get_mut(&port) {
            ring.push(descriptor(entry));
        }
    }

    /// The next entry that the client wrote to a port's ring.
    pub fn pop(&mut self, port: u16) -> Option<RawDescriptor> {
        if !self.up.contains_key(&port) {
            let at = ControlLayout::port_up(port.into());
            self.up.insert(port, RingReader::new(&self.control, at, PORT_ENTRIES)?);
        }
        self.up.get_mut(&port)?.pop().as_ref().map(raw)
    }

    /// Entries written to a port's ring so far.
    pub fn pushed(&self, port: u16) -> u32 {
        self.down.get(&port).map_or(0, |ring| ring.position() as u32)
    }

    /// Writes an entry to the signal queue.
    pub fn push_signal(&mut self, head: RawDescriptor, a: u64, b: u64) {
        self.signal_down.push(Signal { head: descriptor(head), a, b });
    }

    /// The next entry that the client wrote to the signal queue: head, a, b.
    pub fn pop_signal(&mut self) -> Option<(RawDescriptor, u64, u64)> {
        self.signal_up.pop().map(|signal| (raw(&signal.head), signal.a, signal.b))
    }

    /// Reports the number of entries taken from the session's ring, or from the signal queue.
    pub fn say_taken(&mut self, of_session: bool, taken: u64) {
        self.taken[usize::from(of_session)].store(taken);
    }

    /// Entries of the signal queue that it did take.
    pub fn popped_signals(&self) -> u64 {
        self.signal_up.position()
    }

    /// Passes an entry over the lane, with a port (`u16::MAX`: the signal queue) and the number of entries of its ring
    /// that precede it, `after`. False if the lane is not the daemon's.
    pub fn pass(&mut self, port: u16, after: u32, head: RawDescriptor, a: u64, b: u64) -> bool {
        self.lane.pass(&Passed { signal: Signal { head: descriptor(head), a, b }, port, after })
    }

    /// Takes what the client passed: port, entry, a.
    pub fn take_passed(&mut self) -> Option<(u16, RawDescriptor, u64)> {
        let passed = self.lane.peek()?;
        self.lane.accept();
        Some((passed.port, raw(&passed.signal.head), passed.signal.a))
    }

    /// Overwrites bytes of the control segment: rings, syncs, conditions, whatever lies there.
    pub fn scribble(&mut self, offset: usize, bytes: &[u8]) {
        let _inside = self.control.write_from(offset % ControlLayout::BYTES, bytes);
    }

    /// Overwrites bytes of the domain's inbox, or of its shared segment.
    pub fn write(&mut self, inbox: bool, offset: u32, bytes: &[u8]) -> bool {
        let segment = if inbox { self.domain.inbox() } else { self.domain.shared() };
        segment.write_from(offset as usize, bytes)
    }

    /// Falls asleep, or wakes up, as far as the client sees.
    pub fn sleep(&mut self, asleep: bool) {
        if asleep { self.bell.before_sleep() } else { self.bell.after_sleep() }
    }

    /// Signals every host condition.
    pub fn wake(&mut self) {
        for condition in &self.conditions {
            condition.signal();
        }
    }

    /// Sends a packet over the socket, if it takes one more.
    pub fn say(&mut self, packet: &[u8]) {
        let _sent = send(&self.prepared.socket, packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Hangs up.
    pub fn hang_up(&mut self) {
        let _closed = shutdown(&self.prepared.socket, Shutdown::Both);
    }
}

/// The file of a descriptor in a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawFile {
    /// A segment of that many bytes, as a daemon shares it.
    Segment(u32),
    /// A segment that only the daemon can write.
    ForReaders(u32),
    /// A file in memory whose length can change.
    Unsealed(u32),
    /// The length of a control segment.
    Control,
    /// An eventfd, which blocks or not.
    Eventfd(bool),
    /// The end of a pipe, to read if true; both block.
    Pipe(bool),
    /// A file that can be read without end.
    Zeros,
    /// A socket.
    Socket,
}

impl RawFile {
    /// Opens one.
    ///
    /// # Errors
    /// The system's; a segment cannot have no bytes.
    pub fn open(self) -> io::Result<OwnedFd> {
        let copy = |segment: Segment| segment.into_parts().map(|(_, memfd)| memfd);
        match self {
            RawFile::Segment(bytes) => copy(Segment::shared(bytes as usize, HugePages::None)?),
            RawFile::ForReaders(bytes) => copy(Segment::shared_for_readers(bytes as usize, HugePages::None)?),
            RawFile::Unsealed(bytes) => {
                let file = memfd_create("unsealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
                ftruncate(&file, bytes.into())?;
                Ok(file)
            }
            RawFile::Control => copy(Segment::shared(ControlLayout::BYTES, HugePages::None)?),
            RawFile::Eventfd(blocks) => {
                let blocking = if blocks { EventfdFlags::empty() } else { EventfdFlags::NONBLOCK };
                Ok(eventfd(0, EventfdFlags::CLOEXEC | blocking)?)
            }
            RawFile::Pipe(read) => {
                let (to_read, to_write) = pipe_with(PipeFlags::CLOEXEC)?;
                // A byte is in it; the other end is gone.
                rustix::io::write(&to_write, &[0])?;
                Ok(if read { to_read } else { to_write })
            }
            RawFile::Zeros => Ok(open("/dev/zero", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?),
            RawFile::Socket => Ok(pair()?.0),
        }
    }
}

/// Attaches to a daemon that answers with `packet` and these files, and hangs up.
///
/// # Errors
/// As [`Attachment::connect`].
pub fn attach(packet: &[u8], files: &[OwnedFd]) -> Result<Attachment, AttachError> {
    let system = |error| AttachError::System { doing: "sending the greeting", error };
    let (ours, theirs) = pair().map_err(system)?;
    let files: Vec<BorrowedFd<'_>> = files.iter().take(MOST_FILES).map(OwnedFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(system(io::Error::other("no room for the descriptors")));
    }
    sendmsg(&ours, &[IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL).map_err(|e| system(e.into()))?;
    drop(ours);
    greet(theirs)
}

/// Two sockets of the kind that daemon and client talk over.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// The client's side of a greeting that has been sent.
fn greet(socket: OwnedFd) -> Result<Attachment, AttachError> {
    let address = AttachAddr::Abstract("raw".to_owned());
    Attachment::admitted(greeted(socket, &address, TIMEOUT)?)
}
