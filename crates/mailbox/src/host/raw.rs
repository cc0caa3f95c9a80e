//! A client by hand: raw rings and raw bytes, without any of the client library's care. For tests and for the fuzz target that plays a
//! hostile client.

use super::client::ClientKey;
use super::prepared::{DomainSegments, Prepared};
use crate::attach::Peer;
use crate::segment::Segment;
use crate::shared::{
    Call, ClientLane, ControlLayout, Descriptor, DoorbellPage, PORT_ENTRIES, Passed, Regrants, RingReader, RingWriter,
    SIGNAL_ENTRIES, Signal, SyncCell, down,
};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// One entry of a port's ring: operation, slot, generation, target, offset, length.
pub type RawDescriptor = (u8, u16, u16, u16, u32, u32);

/// A client whose every byte is the caller's to choose.
pub struct RawClient {
    control: Arc<Segment>,
    domain: Arc<DomainSegments>,
    up: HashMap<u16, RingWriter<Descriptor>>,
    down: HashMap<u16, RingReader<Descriptor>>,
    /// The last grant of each slot, by port and slot.
    grants: HashMap<(u16, u16), RawDescriptor>,
    /// Of a REGRANT that was taken from a port's ring, the rest, as grants.
    regrants: HashMap<u16, VecDeque<RawDescriptor>>,
    lane: ClientLane,
    signal_up: RingWriter<Signal>,
    signal_down: RingReader<Signal>,
    /// The socket's other end: the client is there as long as this is open.
    _socket: OwnedFd,
}

pub(crate) fn descriptor((op, slot, generation, target, offset, len): RawDescriptor) -> Descriptor {
    Descriptor { op, slot, generation, target, offset, len }
}

pub(crate) fn raw(d: &Descriptor) -> RawDescriptor {
    (d.op, d.slot, d.generation, d.target, d.offset, d.len)
}

impl RawClient {
    /// A client of `domain`, and what the host interface is to admit.
    ///
    /// # Errors
    /// The system's.
    pub fn new(domain: &Arc<DomainSegments>, bell: &DoorbellPage) -> io::Result<(RawClient, Prepared)> {
        let (ours, theirs) = UnixStream::pair()?;
        let peer = Peer::of(ours.as_fd())?;
        let (prepared, _reply) = Prepared::new(peer, OwnedFd::from(theirs), domain, bell)?;
        let control = prepared.control.clone();
        let short = || io::Error::other("the control segment is too short");
        let signal_up = RingWriter::new(&control, ControlLayout::signal_up(), SIGNAL_ENTRIES).ok_or_else(short)?;
        let signal_down = RingReader::new(&control, ControlLayout::signal_down(), SIGNAL_ENTRIES).ok_or_else(short)?;
        let lane = ClientLane::new(&control).ok_or_else(short)?;
        let (up, down, grants, regrants) = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        let (_socket, domain) = (ours.into(), domain.clone());
        let client = RawClient { control, domain, up, down, grants, regrants, lane, signal_up, signal_down, _socket };
        Ok((client, prepared))
    }

    /// Takes hold of a port's rings anew, as after it was opened.
    pub fn begin_port(&mut self, port: u16) {
        let at = usize::from(port);
        if let Some(up) = RingWriter::new(&self.control, ControlLayout::port_up(at), PORT_ENTRIES)
            && let Some(down) = RingReader::new(&self.control, ControlLayout::port_down(at), PORT_ENTRIES)
        {
            self.up.insert(port, up);
            self.down.insert(port, down);
            self.regrants.remove(&port);
        }
    }

    /// Writes an entry to a port's ring.
    pub fn push(&mut self, port: u16, entry: RawDescriptor) {
        if !self.up.contains_key(&port) {
            self.begin_port(port);
        }
        if let Some(ring) = self.up.get_mut(&port) {
            ring.push(descriptor(entry));
        }
    }

    /// The next entry that the core wrote to a port's ring. Each slot that it granted again is a grant, as if it had an entry of its own.
    pub fn pop(&mut self, port: u16) -> Option<RawDescriptor> {
        if !self.down.contains_key(&port) {
            self.begin_port(port);
        }
        if let Some(grant) = self.regrants.get_mut(&port).and_then(VecDeque::pop_front) {
            return Some(grant);
        }
        let entry = self.down.get_mut(&port)?.pop()?;
        self.spread(port, entry)
    }

    /// The next entry that the core wrote to a port's ring, packed as it is.
    pub fn pop_packed(&mut self, port: u16) -> Option<RawDescriptor> {
        self.down.get_mut(&port)?.pop().as_ref().map(raw)
    }

    /// The first grant of a REGRANT, whose others are kept; of a GRANT, that, which is noted; else the entry.
    fn spread(&mut self, port: u16, entry: Descriptor) -> Option<RawDescriptor> {
        match entry.op {
            down::GRANT => {
                self.grants.insert((port, entry.slot), raw(&entry));
                Some(raw(&entry))
            }
            down::REGRANT => {
                let rest = self.regrants.entry(port).or_default();
                let mut slots = Regrants::of(entry)?;
                while let Some(slot) = slots.pop() {
                    let grant = self.grants.get_mut(&(port, slot))?;
                    grant.2 = grant.2.wrapping_add(1);
                    rest.push_back(*grant);
                }
                rest.pop_front()
            }
            _ => Some(raw(&entry)),
        }
    }

    /// The next entry that the core wrote to a port's ring or passed for it, in the order in which it did.
    pub fn next(&mut self, port: u16) -> Option<RawDescriptor> {
        if !self.down.contains_key(&port) {
            self.begin_port(port);
        }
        if self.regrants.get(&port).is_some_and(|rest| !rest.is_empty()) {
            return self.pop(port);
        }
        let ring = self.down.get_mut(&port)?;
        let is_ready = ring.is_ready();
        let position = ring.position() as u32;
        match self.lane.peek().filter(|offer| (offer.passed.port, offer.passed.after) == (port, position)) {
            Some(offer) => {
                self.lane.accept(&offer);
                Some(raw(&offer.passed.signal.head))
            }
            None if is_ready => self.pop(port),
            None => None,
        }
    }

    /// Writes an entry to the signal queue.
    pub fn push_signal(&mut self, head: RawDescriptor, a: u64, b: u64) {
        self.signal_up.push(Signal { head: descriptor(head), a, b });
    }

    /// The next entry that the core wrote to the signal queue: head, a, b.
    pub fn pop_signal(&mut self) -> Option<(RawDescriptor, u64, u64)> {
        self.signal_down.pop().map(|signal| (raw(&signal.head), signal.a, signal.b))
    }

    /// Passes an entry over the lane, with a port (`u16::MAX`: the signal queue) and the number of entries of its ring
    /// that precede it, `after`. False if the lane is not the client's.
    pub fn pass(&mut self, port: u16, after: u32, head: RawDescriptor, a: u64, b: u64) -> bool {
        self.lane.pass(&Passed { signal: Signal { head: descriptor(head), a, b }, port, after })
    }

    /// Calls the core to a port: for its direct rings' other end to be woken, or because this end uses them no more.
    pub fn call(&mut self, port: u16, is_done: bool) {
        self.lane.call(if is_done { Call::Done } else { Call::Wake }, port);
    }

    /// Entries written to a port's ring so far.
    pub fn pushed(&self, port: u16) -> u32 {
        self.up.get(&port).map_or(0, |ring| ring.position() as u32)
    }

    /// Takes what the core passed: port, entries of that ring before it, entry.
    pub fn take_passed(&mut self) -> Option<(u16, u32, RawDescriptor)> {
        let offer = self.lane.peek()?;
        self.lane.accept(&offer);
        Some((offer.passed.port, offer.passed.after, raw(&offer.passed.signal.head)))
    }

    /// Overwrites bytes of the control segment: rings, syncs, conditions, whatever lies there.
    pub fn scribble(&mut self, offset: usize, bytes: &[u8]) {
        let _inside = self.control.write_from(offset % ControlLayout::BYTES, bytes);
    }

    /// Overwrites bytes of the domain's shared segment.
    pub fn write(&mut self, offset: u32, bytes: &[u8]) -> bool {
        self.domain.shared().write_from(offset as usize, bytes)
    }

    /// Reads bytes of the domain's shared segment, or of its inbox.
    pub fn read(&self, inbox: bool, offset: u32, bytes: &mut [u8]) -> bool {
        let segment = if inbox { self.domain.inbox() } else { self.domain.shared() };
        segment.read_into(offset as usize, bytes)
    }

    /// Makes sync `index` wait for a value; its address as a word.
    pub fn alloc_sync(&mut self, client: ClientKey, index: u16, generation: u16) -> Option<u64> {
        let cell = SyncCell::new(&self.control, ControlLayout::client_sync(index.into()))?;
        let pool = crate::shared::SyncPool::Client;
        let address = crate::shared::SyncAddress { client: client.number(), pool, index, generation };
        cell.alloc(generation).then(|| address.to_word())
    }

    /// The value of a sync, if it was written.
    pub fn read_sync(&mut self, index: u16, generation: u16) -> Option<u64> {
        SyncCell::new(&self.control, ControlLayout::client_sync(index.into()))?.poll(generation)
    }
}
