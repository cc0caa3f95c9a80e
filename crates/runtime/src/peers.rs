//! The context's peers: publishers, subscribers and clients, over packets or shared memory. Sessions over packets are
//! found by the number that their packets carry.

use crate::attached::Attached;
use crate::output::{Arrived, Payload};
use crate::parked::Parked;
use crossdock_format::Format;
use crossdock_mailbox::host::HostInterface;
use crossdock_transport::Session;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// Low bits of a session number: the slot. The rest is random, so that an old number is not mistaken for a new session.
const SLOT_BITS: u32 = 16;

/// The stream that a peer publishes under one of its stream numbers.
#[derive(Clone, Debug)]
pub(crate) struct Publishing {
    /// The peer's number for it.
    pub(crate) number: u32,
    /// The stream's key in the context.
    pub(crate) stream: usize,
    /// The format it was announced with.
    pub(crate) format: Format,
}

/// A session over packets.
pub(crate) struct Link {
    pub(crate) addr: SocketAddr,
    pub(crate) nonce: u64,
    /// The number by which this side knows the session.
    pub(crate) number: u32,
    pub(crate) session: Session<Payload, Arrived>,
    /// The deadline that the timer heap holds for it, in ns.
    pub(crate) armed_ns: u64,
}

/// The carrier of a peer's messages.
#[expect(clippy::large_enum_variant, reason = "sessions over packets are looked up for every packet")]
pub(crate) enum Carrier {
    /// A session over packets.
    Packets(Link),
    /// Memory that is shared with an attached client.
    Memory(Box<Attached>),
}

/// One peer.
pub(crate) struct Peer {
    pub(crate) carrier: Carrier,
    pub(crate) publishing: Vec<Publishing>,
    /// Keys of its subscriptions.
    pub(crate) subscriptions: Vec<usize>,
    /// Bytes of control messages that it has not acknowledged; of an attached one, all that it was ever sent.
    pub(crate) control_bytes: u64,
    /// Whether its queue is over the bound; its `block` subscriptions then hold their streams' publishers back.
    pub(crate) full: bool,
    /// Whether it is in the list of peers that have something to send this turn.
    pub(crate) dirty: bool,
    /// Distinguishes it from earlier and later peers with the same key.
    pub(crate) serial: u64,
    /// Whether a request of its is with the planner, and what it sends meanwhile waits.
    pub(crate) is_paused: bool,
    /// What waits, where it speaks by packets.
    pub(crate) parked: VecDeque<Parked>,
}

impl Peer {
    fn new(carrier: Carrier, serial: u64) -> Peer {
        Peer {
            carrier,
            publishing: Vec::new(),
            subscriptions: Vec::new(),
            control_bytes: 0,
            full: false,
            dirty: false,
            serial,
            is_paused: false,
            parked: VecDeque::new(),
        }
    }

    /// Its session over packets, if it has one.
    #[inline]
    pub(crate) fn link(&self) -> Option<&Link> {
        match &self.carrier {
            Carrier::Packets(link) => Some(link),
            Carrier::Memory(_) => None,
        }
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn link_mut(&mut self) -> Option<&mut Link> {
        match &mut self.carrier {
            Carrier::Packets(link) => Some(link),
            Carrier::Memory(_) => None,
        }
    }

    /// Bytes queued for it, and on the way or held by it: what it takes of the memory.
    #[inline]
    pub(crate) fn backlog_bytes(&self, host: &HostInterface) -> u64 {
        match &self.carrier {
            Carrier::Packets(link) => link.session.sender.backlog_bytes(),
            Carrier::Memory(attached) => attached.backlog_bytes(host),
        }
    }

    /// Bytes of control messages that it has not taken yet.
    pub(crate) fn untaken_control_bytes(&self, host: &HostInterface) -> u64 {
        match &self.carrier {
            Carrier::Packets(_) => self.control_bytes,
            Carrier::Memory(attached) => self.control_bytes.saturating_sub(host.unlabelled_taken(attached.client)),
        }
    }

    /// Takes the oldest droppable unit out of its queue; the subscription's number and the records in it.
    pub(crate) fn drop_oldest(&mut self, host: &mut HostInterface) -> Option<(u32, u64)> {
        match &mut self.carrier {
            Carrier::Packets(link) => {
                link.session.sender.drop_oldest().map(|dropped| dropped.records().unwrap_or((0, 0)))
            }
            Carrier::Memory(attached) => attached.drop_oldest(host),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.carrier {
            Carrier::Packets(link) => link.addr.fmt(f),
            Carrier::Memory(attached) => attached.name.fmt(f),
        }
    }
}

/// All peers.
#[derive(Default)]
pub(crate) struct Peers {
    slots: Slab<Peer>,
    by_addr: HashMap<SocketAddr, usize>,
    /// By the client's number.
    by_client: HashMap<u32, usize>,
    dirty: Vec<usize>,
    /// The serial number of the latest.
    last: u64,
}

impl Peers {
    /// Sessions over packets.
    pub(crate) fn sessions(&self) -> usize {
        self.by_addr.len()
    }

    /// Whether every number that a session can have is taken.
    pub(crate) fn is_full(&self) -> bool {
        self.slots.vacant_key() >= 1 << SLOT_BITS
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Peer)> {
        self.slots.iter()
    }

    pub(crate) fn get(&self, key: usize) -> Option<&Peer> {
        self.slots.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: usize) -> Option<&mut Peer> {
        self.slots.get_mut(key)
    }

    /// The session over packets of a peer that has one.
    #[inline]
    pub(crate) fn link_mut(&mut self, key: usize) -> Option<&mut Link> {
        self.slots.get_mut(key).and_then(Peer::link_mut)
    }

    /// The session that this hello already made.
    pub(crate) fn greeted(&self, addr: SocketAddr, nonce: u64) -> Option<&Link> {
        self.at(addr).and_then(|key| self.slots.get(key)).and_then(Peer::link).filter(|l| l.nonce == nonce)
    }

    /// The peer at an address.
    pub(crate) fn at(&self, addr: SocketAddr) -> Option<usize> {
        self.by_addr.get(&addr).copied()
    }

    /// The peer a packet belongs to: by the number it carries, if it comes from that peer's address.
    #[inline]
    pub(crate) fn find(&self, number: u32, from: SocketAddr) -> Option<usize> {
        let key = (number & ((1 << SLOT_BITS) - 1)) as usize;
        self.slots.get(key).and_then(Peer::link).filter(|l| l.number == number && l.addr == from).map(|_| key)
    }

    /// Takes in a peer that speaks by packets; returns its key and the session's number. The caller sees to it that
    /// there is room.
    pub(crate) fn insert(&mut self, addr: SocketAddr, nonce: u64, session: Session<Payload, Arrived>) -> (usize, u32) {
        let entry = self.slots.vacant_entry();
        let key = entry.key();
        let number = fastrand::u32(1..) << SLOT_BITS | key as u32;
        let link = Link { addr, nonce, number, session, armed_ns: u64::MAX };
        self.last += 1;
        entry.insert(Peer::new(Carrier::Packets(link), self.last));
        self.by_addr.insert(addr, key);
        (key, number)
    }

    /// Takes in an attached client.
    pub(crate) fn insert_attached(&mut self, attached: Attached) -> usize {
        let number = attached.client.number();
        self.last += 1;
        let key = self.slots.insert(Peer::new(Carrier::Memory(Box::new(attached)), self.last));
        self.by_client.insert(number, key);
        key
    }

    /// The attached client of that number.
    #[inline]
    pub(crate) fn of_client(&self, number: u32) -> Option<usize> {
        self.by_client.get(&number).copied()
    }

    /// The attached client behind a peer that is one.
    #[inline]
    pub(crate) fn attached_mut(&mut self, key: usize) -> Option<&mut Attached> {
        match &mut self.slots.get_mut(key)?.carrier {
            Carrier::Memory(attached) => Some(attached),
            Carrier::Packets(_) => None,
        }
    }

    pub(crate) fn remove(&mut self, key: usize) -> Option<Peer> {
        let peer = self.slots.try_remove(key)?;
        match &peer.carrier {
            Carrier::Packets(link) => self.by_addr.remove(&link.addr),
            Carrier::Memory(attached) => self.by_client.remove(&attached.client.number()),
        };
        Some(peer)
    }

    /// Attached clients.
    pub(crate) fn has_attached(&self) -> bool {
        !self.by_client.is_empty()
    }

    /// Whether something is to be sent to someone.
    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Notes that the peer has something to send this turn.
    #[inline]
    pub(crate) fn touch(&mut self, key: usize) {
        if let Some(peer) = self.slots.get_mut(key)
            && !std::mem::replace(&mut peer.dirty, true)
        {
            self.dirty.push(key);
        }
    }

    /// The peers touched since the last call, into `keys`.
    pub(crate) fn take_dirty(&mut self, keys: &mut Vec<usize>) {
        keys.clear();
        std::mem::swap(&mut self.dirty, keys);
        for &key in keys.iter() {
            if let Some(peer) = self.slots.get_mut(key) {
                peer.dirty = false;
            }
        }
    }

    /// Notes that a peer has acknowledged a control message of `bytes` bytes.
    pub(crate) fn taken(&mut self, key: usize, bytes: usize) {
        if let Some(peer) = self.slots.get_mut(key) {
            peer.control_bytes = peer.control_bytes.saturating_sub(bytes as u64);
        }
    }
}
