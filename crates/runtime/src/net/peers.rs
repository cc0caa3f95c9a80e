//! The context's peers: publishers, subscribers and clients, each with its carrier. Sessions over packets are found by
//! the number that their packets carry, attached clients by theirs.

use crate::io::IoPlace;
use crate::net::carrier::Carrier;
use crate::net::joining::Joining;
use crate::net::memory::Attached;
use crate::net::packets::Link;
use crate::net::payload::{Arrived, Payload};
use crate::present::present;
use crate::principal::Principal;
use crate::publications::Taken;
use crate::refusal::refuse;
use crossdock_format::{Format, FormatId};
use crossdock_transport::Session;
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::secure::PublicKey;
use slab::Slab;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Low bits of a session number: the slot. The bits above name the I/O context, and the rest is random, so that an old number is
/// not mistaken for a new session.
const SLOT_BITS: u32 = 16;

/// Announced stream numbers of one session at most.
const MAX_PUBLISHING: usize = 256;

/// The stream that a peer publishes under one of its stream numbers.
#[derive(Clone, Debug)]
pub(crate) struct Publishing {
    /// The peer's number for it.
    pub(crate) number: u32,
    /// The stream's key in the context.
    pub(crate) stream: usize,
    /// The format it was announced with.
    pub(crate) format: Format,
    /// How many of its records were taken, if the peer has said whose they are.
    pub(crate) taken: Option<Taken>,
    /// Whether records of it have come.
    pub(crate) has_records: bool,
}

impl Publishing {
    /// Whether its publisher has a later session, in which the publication goes on.
    pub(crate) fn goes_on(&self) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken.count.is_closed())
    }
}

/// A peer's carrier, in the table.
#[expect(clippy::large_enum_variant, reason = "sessions over packets are looked up for every packet")]
enum Stored {
    Link(Link),
    Attached(Box<Attached>),
}

/// The serial number of the latest peer in all contexts of the process.
static LAST_SERIAL: AtomicU64 = AtomicU64::new(0);

/// One peer.
pub(crate) struct Peer {
    stored: Stored,
    publishing: Vec<Publishing>,
    /// Keys of its subscriptions.
    pub(super) subscriptions: Vec<usize>,
    /// Whether its queue is over the bound; its `block` subscriptions then hold their streams' publishers back.
    pub(super) full: bool,
    /// When it became so, in ns, until that was noted as an event.
    pub(super) full_since_ns: Option<u64>,
    /// When it was last noted that it holds publishers back, in ns.
    pub(super) noted_ns: Option<u64>,
    /// Whether it is in the list of peers that have something to send this turn.
    dirty: bool,
    /// Distinguishes it from earlier and later peers with the same key, and from those of other contexts.
    pub(super) serial: u64,
    /// Whether a request of its is with the planner or the catalog, and what it sends meanwhile waits.
    pub(super) is_paused: bool,
    /// Its messages with pieces missing.
    pub(super) joining: Joining,
}

/// A peer as others know it, which may have gone meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerRef {
    /// Its key.
    pub(crate) key: usize,
    /// Distinguishes it from earlier and later peers with the same key.
    pub(crate) serial: u64,
}

impl Peer {
    fn new(stored: Stored) -> Peer {
        Peer {
            stored,
            publishing: Vec::new(),
            subscriptions: Vec::new(),
            full: false,
            full_since_ns: None,
            noted_ns: None,
            dirty: false,
            serial: LAST_SERIAL.fetch_add(1, Ordering::Relaxed) + 1,
            is_paused: false,
            joining: Joining::default(),
        }
    }

    /// Whether a request of its is with the planner or the catalog.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Its publications.
    pub(crate) fn publishing(&self) -> &[Publishing] {
        &self.publishing
    }

    /// Its publication under a number, in the format of this id.
    #[inline]
    pub(crate) fn published(&self, number: u32, format: u64) -> Option<&Publishing> {
        self.publishing.iter().find(|p| p.number == number && p.format.id().0 == format)
    }

    /// It publishes a stream in a format from now on; whether it has not before.
    ///
    /// # Errors
    /// The number stands for another stream, or it publishes as much as it may.
    pub(crate) fn publish(&mut self, publishing: Publishing) -> Result<bool, Refusal> {
        let (number, stream, format) = (publishing.number, publishing.stream, publishing.format.id());
        if self.publishing.iter().any(|p| p.number == number && p.stream != stream) {
            let message = format!("stream number {number} already stands for another stream in this session");
            return Err(refuse(RefusalCode::State, message));
        }
        let has_room = self.publishing.len() < MAX_PUBLISHING;
        match self.publishing.iter_mut().find(|p| p.number == number && p.format.id() == format) {
            Some(again) => {
                *again = Publishing { has_records: again.has_records, ..publishing };
                Ok(false)
            }
            None if has_room => {
                self.publishing.push(publishing);
                Ok(true)
            }
            None => {
                let message = format!("this session has announced {MAX_PUBLISHING} streams and formats, the bound");
                Err(refuse(RefusalCode::Limit, message))
            }
        }
    }

    /// It has finished what it published under a number: the stream, what it published of it, and whether it publishes nothing more
    /// of it.
    pub(crate) fn finish(&mut self, number: u32) -> Option<(usize, Vec<Publishing>, bool)> {
        let stream = self.publishing.iter().find(|p| p.number == number)?.stream;
        let ended = self.publishing.extract_if(.., |p| p.number == number).collect();
        Some((stream, ended, !self.publishing.iter().any(|p| p.stream == stream)))
    }

    /// Records have come of what it publishes under a number in the format of this id: the stream and the format.
    pub(crate) fn note_records(&mut self, number: u32, format: u64) -> Option<(usize, FormatId)> {
        let publishing = self.publishing.iter_mut().find(|p| p.number == number && p.format.id().0 == format)?;
        publishing.has_records = true;
        Some((publishing.stream, publishing.format.id()))
    }

    /// Keys of its subscriptions.
    #[inline]
    pub(crate) fn subscriptions(&self) -> &[usize] {
        &self.subscriptions
    }

    /// It has a subscription of this key.
    pub(crate) fn begin_subscription(&mut self, key: usize) {
        self.subscriptions.push(key);
    }

    /// A subscription of its has ended.
    pub(crate) fn end_subscription(&mut self, key: usize) {
        self.subscriptions.retain(|&other| other != key);
    }

    /// Whether its queue is over the bound.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// The key of the client, if its packets come in envelopes.
    pub(crate) fn client(&self) -> Option<PublicKey> {
        self.link()?.client
    }

    /// Distinguishes it from earlier and later peers with the same key, and from those of other contexts.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// The carrier of its messages.
    #[inline]
    pub(crate) fn carrier(&self) -> &dyn Carrier {
        match &self.stored {
            Stored::Link(link) => link,
            Stored::Attached(attached) => &**attached,
        }
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn carrier_mut(&mut self) -> &mut dyn Carrier {
        match &mut self.stored {
            Stored::Link(link) => link,
            Stored::Attached(attached) => &mut **attached,
        }
    }

    /// Its session over packets, if it has one.
    #[inline]
    pub(crate) fn link(&self) -> Option<&Link> {
        if let Stored::Link(link) = &self.stored { Some(link) } else { None }
    }

    /// The attached client, if it is one.
    #[inline]
    fn attached(&self) -> Option<&Attached> {
        if let Stored::Attached(attached) = &self.stored { Some(attached) } else { None }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.carrier().fmt(f)
    }
}

/// All peers.
pub(crate) struct Peers {
    /// The context's place, which the numbers of its sessions name.
    place: IoPlace,
    slots: Slab<Peer>,
    by_addr: HashMap<SocketAddr, usize>,
    /// By the client's number.
    by_client: HashMap<u32, usize>,
    dirty: Vec<usize>,
}

impl Peers {
    pub(crate) fn new(place: IoPlace) -> Peers {
        Peers { place, slots: Slab::new(), by_addr: HashMap::new(), by_client: HashMap::new(), dirty: Vec::new() }
    }

    /// The place of the I/O context that has the session of a number; it may be none.
    #[inline]
    pub(crate) fn place_of(&self, number: u32) -> usize {
        (number >> SLOT_BITS & ((1 << self.place.bits()) - 1)) as usize
    }

    /// Sessions over packets.
    pub(crate) fn sessions(&self) -> usize {
        self.by_addr.len()
    }

    /// The peers of an origin.
    pub(crate) fn of_origin(&self, origin: Principal) -> impl Iterator<Item = &Peer> {
        self.slots.iter().map(|(_, peer)| peer).filter(move |peer| peer.carrier().principal() == origin)
    }

    /// Whether every number that a session can have is taken.
    pub(crate) fn is_full(&self) -> bool {
        self.slots.vacant_key() >= 1 << SLOT_BITS
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Peer)> {
        self.slots.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Peer)> {
        self.slots.iter_mut()
    }

    /// A peer, unless it has gone.
    pub(crate) fn get(&self, key: usize) -> Option<&Peer> {
        self.slots.get(key)
    }

    /// See [`Peers::get`].
    pub(crate) fn get_mut(&mut self, key: usize) -> Option<&mut Peer> {
        self.slots.get_mut(key)
    }

    /// A peer that is there: its packet is being taken, or it has a subscription.
    #[inline]
    #[track_caller]
    pub(crate) fn present(&self, key: usize) -> Option<&Peer> {
        present(self.get(key), "peer", key)
    }

    /// See [`Peers::present`].
    #[inline]
    #[track_caller]
    pub(crate) fn present_mut(&mut self, key: usize) -> Option<&mut Peer> {
        present(self.get_mut(key), "peer", key)
    }

    /// The session over packets of a peer that is there and has one.
    #[inline]
    #[track_caller]
    pub(crate) fn present_link_mut(&mut self, key: usize) -> Option<&mut Link> {
        let link = self.link_mut(key);
        debug_assert!(link.is_some(), "peer {key} is unknown, or no session over packets");
        link
    }

    /// The attached client of a peer that is there and is one.
    #[inline]
    #[track_caller]
    pub(crate) fn present_attached_mut(&mut self, key: usize) -> Option<&mut Attached> {
        let attached = self.attached_mut(key);
        debug_assert!(attached.is_some(), "peer {key} is unknown, or no attached client");
        attached
    }

    /// The session over packets of a peer that has one.
    #[inline]
    pub(crate) fn link_mut(&mut self, key: usize) -> Option<&mut Link> {
        if let Stored::Link(link) = &mut self.slots.get_mut(key)?.stored { Some(link) } else { None }
    }

    /// The attached client of a peer that is one.
    #[inline]
    pub(crate) fn attached(&self, key: usize) -> Option<&Attached> {
        self.slots.get(key).and_then(Peer::attached)
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn attached_mut(&mut self, key: usize) -> Option<&mut Attached> {
        if let Stored::Attached(attached) = &mut self.slots.get_mut(key)?.stored { Some(attached) } else { None }
    }

    /// The session that this hello already made.
    pub(crate) fn greeted(&self, addr: SocketAddr, client: Option<PublicKey>, nonce: u64) -> Option<&Link> {
        let link = self.at(addr).and_then(|key| self.slots.get(key)).and_then(Peer::link);
        link.filter(|link| link.nonce == nonce && link.client == client)
    }

    /// The peer at an address.
    pub(crate) fn at(&self, addr: SocketAddr) -> Option<usize> {
        self.by_addr.get(&addr).copied()
    }

    /// The peer a packet belongs to: by the number it carries, if it comes from that peer's address, and in the envelopes of that
    /// peer if it has any.
    #[inline]
    pub(crate) fn find(&self, number: u32, from: SocketAddr, client: Option<PublicKey>) -> Option<usize> {
        let key = (number & ((1 << SLOT_BITS) - 1)) as usize;
        let is_its = |link: &&Link| link.number == number && link.addr == from && link.client == client;
        self.slots.get(key).and_then(Peer::link).filter(is_its).map(|_| key)
    }

    /// Takes in a peer that speaks by packets; returns its key and the session's number. The caller sees to it that
    /// there is room.
    pub(crate) fn insert(
        &mut self,
        (addr, client, origin): (SocketAddr, Option<PublicKey>, Principal),
        nonce: u64,
        session: Session<Payload, Arrived>,
    ) -> (usize, u32) {
        let entry = self.slots.vacant_entry();
        let key = entry.key();
        let random = fastrand::u32(1..) << (SLOT_BITS + self.place.bits());
        let number = random | (self.place.index as u32) << SLOT_BITS | key as u32;
        let mut link = Link::new(addr, nonce, number, session);
        (link.client, link.origin) = (client, origin);
        entry.insert(Peer::new(Stored::Link(link)));
        self.by_addr.insert(addr, key);
        (key, number)
    }

    /// Takes in an attached client.
    pub(crate) fn insert_attached(&mut self, attached: Attached) -> usize {
        let number = attached.client.number();
        let key = self.slots.insert(Peer::new(Stored::Attached(Box::new(attached))));
        self.by_client.insert(number, key);
        key
    }

    /// The attached client of that number.
    #[inline]
    pub(crate) fn of_client(&self, number: u32) -> Option<usize> {
        self.by_client.get(&number).copied()
    }

    pub(crate) fn remove(&mut self, key: usize) -> Option<Peer> {
        let peer = self.slots.try_remove(key)?;
        if let Some(link) = peer.link() {
            self.by_addr.remove(&link.addr);
        }
        if let Some(attached) = peer.attached() {
            self.by_client.remove(&attached.client.number());
        }
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

    /// Notes that all peers may have something to send.
    pub(crate) fn touch_all(&mut self) {
        self.dirty.clear();
        for (key, peer) in &mut self.slots {
            peer.dirty = true;
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
}
