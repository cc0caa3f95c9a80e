//! The context's peers: one session each, found by the number that packets carry.

use crate::output::{Arrived, Payload};
use crossdock_format::Format;
use crossdock_transport::Session;
use slab::Slab;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// Low bits of a session number: the slot. The rest is random, so that an old number is not mistaken for a new session.
const SLOT_BITS: u32 = 16;

/// What a peer publishes under one of its stream numbers.
#[derive(Clone, Debug)]
pub(crate) struct Publishing {
    /// The peer's number for it.
    pub(crate) number: u32,
    /// The stream's key in the context.
    pub(crate) stream: usize,
    /// The format it was announced with.
    pub(crate) format: Format,
}

/// One peer.
pub(crate) struct Peer {
    pub(crate) addr: SocketAddr,
    pub(crate) nonce: u64,
    /// The number by which this side knows the session.
    pub(crate) number: u32,
    pub(crate) session: Session<Payload, Arrived>,
    pub(crate) publishing: Vec<Publishing>,
    /// Keys of its subscriptions.
    pub(crate) subscriptions: Vec<usize>,
    /// Bytes of control messages that it has not acknowledged.
    pub(crate) control_bytes: usize,
    /// Whether its queue is over the bound; its `block` subscriptions then hold their streams' publishers back.
    pub(crate) full: bool,
    /// Whether it is in the list of peers that have something to send this turn.
    pub(crate) dirty: bool,
    /// The deadline that the timer heap holds for it, in ns.
    pub(crate) armed_ns: u64,
}

/// All peers.
#[derive(Default)]
pub(crate) struct Peers {
    slots: Slab<Peer>,
    by_addr: HashMap<SocketAddr, usize>,
    dirty: Vec<usize>,
}

impl Peers {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
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

    /// The session that this hello already made.
    pub(crate) fn greeted(&self, addr: SocketAddr, nonce: u64) -> Option<&Peer> {
        self.at(addr).and_then(|key| self.slots.get(key)).filter(|p| p.nonce == nonce)
    }

    /// The peer at an address.
    pub(crate) fn at(&self, addr: SocketAddr) -> Option<usize> {
        self.by_addr.get(&addr).copied()
    }

    /// The peer a packet belongs to: by the number it carries, if it comes from that peer's address.
    #[inline]
    pub(crate) fn find(&self, number: u32, from: SocketAddr) -> Option<usize> {
        let key = (number & ((1 << SLOT_BITS) - 1)) as usize;
        self.slots.get(key).filter(|p| p.number == number && p.addr == from).map(|_| key)
    }

    /// Takes a peer in; returns its key. The caller keeps the bound (at most 65,536).
    pub(crate) fn insert(&mut self, addr: SocketAddr, nonce: u64, session: Session<Payload, Arrived>) -> usize {
        let entry = self.slots.vacant_entry();
        let key = entry.key();
        let number = fastrand::u32(1..) << SLOT_BITS | key as u32;
        entry.insert(Peer {
            addr,
            nonce,
            number,
            session,
            publishing: Vec::new(),
            subscriptions: Vec::new(),
            control_bytes: 0,
            full: false,
            dirty: false,
            armed_ns: u64::MAX,
        });
        self.by_addr.insert(addr, key);
        key
    }

    pub(crate) fn remove(&mut self, key: usize) -> Option<Peer> {
        let peer = self.slots.try_remove(key)?;
        self.by_addr.remove(&peer.addr);
        Some(peer)
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
            peer.control_bytes = peer.control_bytes.saturating_sub(bytes);
        }
    }

    /// Queues a control message for a peer.
    pub(crate) fn tell(&mut self, key: usize, message: &crossdock_transport::ControlMessage) {
        if let Some(peer) = self.slots.get_mut(key) {
            let payload: Rc<[u8]> = Rc::from(message.encode());
            peer.control_bytes += payload.len();
            Payload::Control(payload).enqueue(&mut peer.session);
            self.touch(key);
        }
    }
}
