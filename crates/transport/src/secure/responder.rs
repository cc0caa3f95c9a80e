//! The daemon's endpoint: cookies, handshakes, and the keys of many clients.
//!
//! A client costs nothing but a hash until it has returned a cookie, and has no place in the table until it has proved that it has
//! an authorised key. Until a packet of its has been opened, its place may go to another.

use super::channel::{Channel, KeyLimits, OVERHEAD_BYTES, Sealed, Unopened};
use super::cookie::Cookies;
use super::envelope::{
    Code, DataHead, Envelope, HEAD_BYTES, Initial, RESPONSE_BYTES, cookie_head, is_envelope, refusal, response_head,
};
use super::keys::{AuthorizedKeys, KEY_BYTES, PrivateKey, PublicKey, RANDOM_BYTES};
use super::noise::{self, FIRST_MESSAGE_BYTES};
use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

/// Low bits of an index: the place in the table. The bits above name the I/O context, and the rest is random.
const SLOT_BITS: u32 = 16;
/// How long a client may take from its handshake to its first packet, in ns.
const UNCONFIRMED_NS: u64 = 5_000_000_000;
/// The table is searched for clients that have gone at most so often, in ns.
const SWEEP_NS: u64 = 1_000_000_000;
/// Handshakes a second, and at once: each takes about 0.2 ms.
const HANDSHAKES: (u64, u64) = (500, 64);
/// The same for one source: none takes the share of the others. Cookies have shown that it is there.
const HANDSHAKES_OF_SOURCE: (u64, u64) = (100, 32);
/// Buckets of handshakes: the hash of a source's network chooses one.
const SOURCES: usize = 256;
/// Cookies a second, and at once; and the same of refusals, which take no cookies away.
const COOKIES: (u64, u64) = (10_000, 256);
const REFUSALS: (u64, u64) = (10_000, 256);

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// It is no envelope, or none that a client sends.
    Malformed,
    /// A returned cookie is wrong or expired; the client gets another.
    Cookie,
    /// A handshake that was not made for this daemon's key, or was changed.
    Handshake,
    /// The client's key is not authorised.
    UnknownKey,
    /// There is no place for another client, or of this key; or there are too many handshakes.
    Limit,
    /// There are no keys for its index, or they are those of a client at another address.
    UnknownIndex,
    /// It does not open.
    Unauthentic,
    /// It has arrived before, or is too old to be sure.
    Replayed,
    /// It is in no envelope, and its sender's network is not trusted.
    Unprotected,
}

/// An answer, for the sender of the frame.
#[derive(Clone, Copy)]
pub struct Reply {
    bytes: [u8; RESPONSE_BYTES],
    len: usize,
}

impl Reply {
    fn of(parts: [&[u8]; 2]) -> Reply {
        let (mut bytes, mut len) = ([0; RESPONSE_BYTES], 0);
        for part in parts {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        Reply { bytes, len }
    }

    /// The packet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The result of a frame.
#[derive(Clone, Copy, Default)]
pub struct Opened {
    /// Bytes of the packets that were in its envelopes, from the frame's first byte on.
    pub len: usize,
    /// Bytes from one packet to the next.
    pub stride: usize,
    /// The key of their client, if there are any.
    pub client: Option<PublicKey>,
    /// They are the first of this client: whoever was at its address before is there no more.
    pub is_confirmed: bool,
    /// An answer to send.
    pub reply: Option<Reply>,
}

/// The circumstances of a frame.
pub struct Arrival<'a> {
    /// The sender's address.
    pub from: SocketAddr,
    /// The time.
    pub now_ns: u64,
    /// Whether a session stands at an address. A client keeps its keys while it has one.
    pub is_taken: &'a dyn Fn(SocketAddr) -> bool,
    /// Makes random bytes for a handshake, which is refused if there are none.
    pub random: &'a mut dyn FnMut() -> Option<[u8; RANDOM_BYTES]>,
    /// Counts what is dropped.
    pub refuse: &'a mut dyn FnMut(Rejection),
}

/// A packet that is dropped, and what its sender learns, about the index that it carries.
struct Dropped {
    why: Rejection,
    hint: Option<(u32, Code)>,
}

impl From<Rejection> for Dropped {
    fn from(why: Rejection) -> Dropped {
        Dropped { why, hint: None }
    }
}

/// The settings of a daemon's endpoint.
#[derive(Clone)]
pub struct ResponderConfig {
    /// The daemon's key.
    pub private: PrivateKey,
    /// The clients that may connect.
    pub authorized: Arc<AuthorizedKeys>,
    /// Random; endpoints of one daemon share it.
    pub cookie_secret: [u8; KEY_BYTES],
    /// Bound on clients.
    pub max_clients: usize,
    /// Bound on clients of one key.
    pub max_clients_per_key: usize,
    /// A client without a session is forgotten after this time of silence, in ns.
    pub idle_ns: u64,
    /// The place of the endpoint among the daemon's, and the bits that distinguish them.
    pub place: (usize, u32),
    /// When keys are replaced.
    pub limits: KeyLimits,
}

impl fmt::Debug for ResponderConfig {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ResponderConfig { private, authorized, max_clients, place, .. } = self;
        let mut shown = f.debug_struct("ResponderConfig");
        shown.field("public", &private.public()).field("authorized", &authorized.len());
        shown.field("max_clients", max_clients).field("place", place).finish_non_exhaustive()
    }
}

/// A client that has made a handshake.
struct Client {
    /// This side's index for its keys.
    index: u32,
    key: PublicKey,
    addr: SocketAddr,
    channel: Channel,
    /// The message with which it began, and the answer.
    message: [u8; FIRST_MESSAGE_BYTES],
    response: Reply,
    /// Whether a packet of its was opened.
    is_confirmed: bool,
    heard_ns: u64,
}

/// The daemon's endpoint.
pub struct Responder {
    config: ResponderConfig,
    cookies: Cookies,
    slots: Vec<Option<Box<Client>>>,
    free: Vec<usize>,
    /// The confirmed client at each address.
    by_addr: HashMap<SocketAddr, usize>,
    handshakes: Budget,
    of_sources: Box<[Budget]>,
    hasher: RandomState,
    for_cookies: Budget,
    for_refusals: Budget,
    swept_ns: u64,
}

impl Responder {
    /// An endpoint without clients.
    #[must_use]
    pub fn new(config: ResponderConfig) -> Responder {
        let cookies = Cookies::new(&config.cookie_secret);
        let (slots, free, by_addr) = (Vec::new(), Vec::new(), HashMap::new());
        Responder {
            config,
            cookies,
            slots,
            free,
            by_addr,
            handshakes: Budget::new(HANDSHAKES),
            of_sources: (0..SOURCES).map(|_| Budget::new(HANDSHAKES_OF_SOURCE)).collect(),
            hasher: RandomState::new(),
            for_cookies: Budget::new(COOKIES),
            for_refusals: Budget::new(REFUSALS),
            swept_ns: 0,
        }
    }

    /// The place of the endpoint that an envelope is for, by the index in it; `home` if it is the initial of a client that uses
    /// mailboxes, or the answer to an initial of this daemon's own. `None`: this one.
    #[inline]
    #[must_use]
    pub fn place_of(&self, packet: &[u8], home: usize) -> Option<usize> {
        let (own, bits) = self.config.place;
        let place = match Envelope::read(packet)? {
            Envelope::Data(DataHead { index, .. }) => (index >> SLOT_BITS & ((1 << bits) - 1)) as usize,
            Envelope::Initial(initial) if initial.uses_mailboxes => home,
            Envelope::Initial(_) => own,
            Envelope::Cookie { .. } | Envelope::Response { .. } | Envelope::Refusal { .. } => home,
        };
        Some(place).filter(|place| *place != own)
    }

    /// Clients that have a place in the table.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The key of the client at an address.
    #[must_use]
    pub fn client_at(&self, addr: SocketAddr) -> Option<PublicKey> {
        self.by_addr.get(&addr).and_then(|slot| self.slots[*slot].as_ref()).map(|client| client.key)
    }

    /// This side's index for the keys of the client at an address.
    #[must_use]
    pub fn index_at(&self, addr: SocketAddr) -> Option<u32> {
        self.by_addr.get(&addr).and_then(|slot| self.slots[*slot].as_ref()).map(|client| client.index)
    }

    /// The address and the key of the client whose keys have this index.
    #[must_use]
    pub fn client_of(&self, index: u32) -> Option<(SocketAddr, PublicKey)> {
        let client = self.find(index).and_then(|slot| self.slots[slot].as_ref())?;
        client.is_confirmed.then_some((client.addr, client.key))
    }

    /// Replaces the list of clients that may connect. Those that are on it no more lose their keys; their addresses come back.
    pub fn authorize(&mut self, authorized: Arc<AuthorizedKeys>) -> Vec<SocketAddr> {
        self.config.authorized = authorized;
        let authorized = Arc::clone(&self.config.authorized);
        let is_gone = |client: &Client| authorized.name_of(&client.key).is_none();
        self.remove_where(is_gone)
    }

    /// Seals a super-packet for the client at an address ([`Channel::seal`]); `None` also if none is there.
    pub fn seal<'a>(
        &mut self,
        to: SocketAddr,
        slices: impl Iterator<Item = &'a [u8]>,
        stride: usize,
        out: &mut [u8],
        now_ns: u64,
    ) -> Option<Sealed> {
        let slot = *self.by_addr.get(&to)?;
        self.slots.get_mut(slot)?.as_mut()?.channel.seal(slices, stride, out, now_ns)
    }

    /// A refusal of a packet that is in no envelope, if there is time for one: it is never longer than the packet.
    pub fn refuse_unprotected(&mut self, packet_bytes: usize, now_ns: u64) -> Option<Reply> {
        let fits = packet_bytes >= HEAD_BYTES && self.for_refusals.take(now_ns);
        fits.then(|| Reply::of([&refusal(0, Code::Unprotected), &[]]))
    }

    /// Opens a frame's envelopes: what was in them lies at its begin then. All opened packets of a frame are of one client.
    pub fn open_frame(&mut self, frame: &mut [u8], stride: usize, arrival: &mut Arrival<'_>) -> Opened {
        let stride = if stride == 0 { frame.len().max(1) } else { stride.min(frame.len().max(1)) };
        let mut opened = Opened { stride: stride.saturating_sub(OVERHEAD_BYTES).max(1), ..Opened::default() };
        let mut slot = None;
        for start in (0..frame.len()).step_by(stride) {
            let range = start..(start + stride).min(frame.len());
            let packet = &frame[range.clone()];
            let taken = match Envelope::read(packet) {
                Some(Envelope::Data(head)) => {
                    self.open(frame, range, head, opened.len, (slot, arrival.from)).map(|(at, len)| {
                        (slot, opened.len) = (Some(at), opened.len + len);
                        None
                    })
                }
                Some(Envelope::Initial(initial)) if opened.reply.is_none() => self.take_initial(&initial, arrival),
                Some(Envelope::Initial(_)) => Err(Rejection::Limit.into()),
                _ if !is_envelope(packet) => Err(Rejection::Unprotected.into()),
                _ => Err(Rejection::Malformed.into()),
            };
            match taken {
                Ok(reply) => opened.reply = opened.reply.or(reply),
                Err(Dropped { why, hint }) => {
                    (arrival.refuse)(why);
                    let hint = hint.filter(|_| opened.reply.is_none() && self.for_refusals.take(arrival.now_ns));
                    opened.reply = opened.reply.or(hint.map(|(index, code)| Reply::of([&refusal(index, code), &[]])));
                }
            }
        }
        if let Some(slot) = slot {
            self.heard(slot, arrival.now_ns, &mut opened);
        }
        opened
    }

    /// Opens a packet of the client at the place `of`, if that is given, which comes from the address of its handshake; and moves its
    /// content to `to`. The client's place, and the content's length.
    ///
    /// Keys hold at one address. A packet does not show that its client is where it comes from: it may be a copy, and its sender's
    /// address a lie. Whoever has another address makes another handshake, whose cookie shows it.
    fn open(
        &mut self,
        frame: &mut [u8],
        range: Range<usize>,
        head: DataHead,
        to: usize,
        (of, from): (Option<usize>, SocketAddr),
    ) -> Result<(usize, usize), Dropped> {
        let slot = self.find(head.index).filter(|found| of.is_none_or(|of| of == *found));
        let client = slot.and_then(|slot| Some((slot, self.slots.get_mut(slot)?.as_mut()?)));
        let client = client.filter(|(_, client)| client.addr == from);
        let hint = Some((head.index, Code::UnknownIndex));
        let (slot, client) = client.ok_or(Dropped { why: Rejection::UnknownIndex, hint })?;
        let len = client.channel.open(frame, range, head, to).map_err(|why| match why {
            Unopened::Short => Rejection::Malformed,
            Unopened::Replayed => Rejection::Replayed,
            Unopened::Unauthentic => Rejection::Unauthentic,
        })?;
        Ok((slot, len))
    }

    /// The place of the client that has an index.
    fn find(&self, index: u32) -> Option<usize> {
        let slot = (index & ((1 << SLOT_BITS) - 1)) as usize;
        self.slots.get(slot)?.as_ref().filter(|client| client.index == index).map(|_| slot)
    }

    /// A client's packets were opened: it has its keys. Its cookie has shown that it is at its address, whoever was there before.
    fn heard(&mut self, slot: usize, now_ns: u64, opened: &mut Opened) {
        let Some(client) = &mut self.slots[slot] else { return };
        client.heard_ns = now_ns;
        opened.client = Some(client.key);
        if std::mem::replace(&mut client.is_confirmed, true) {
            return;
        }
        opened.is_confirmed = true;
        if let Some(earlier) = self.by_addr.insert(client.addr, slot).filter(|earlier| *earlier != slot) {
            self.slots[earlier] = None;
            self.free.push(earlier);
        }
    }

    /// A client begins.
    fn take_initial(&mut self, initial: &Initial<'_>, arrival: &mut Arrival<'_>) -> Result<Option<Reply>, Dropped> {
        let Arrival { from, now_ns, .. } = *arrival;
        let index = initial.index;
        if !self.cookies.accepts(initial.cookie, index, from, now_ns) {
            // One that is wrong or expired is answered as none is.
            let has_none = initial.cookie.iter().all(|byte| *byte == 0);
            if !has_none {
                (arrival.refuse)(Rejection::Cookie);
            }
            if !self.for_cookies.take(now_ns) {
                return Err(Rejection::Limit.into());
            }
            return Ok(Some(Reply::of([&cookie_head(index), &self.cookies.make(index, from, now_ns)])));
        }
        // It has come before: a client that lost the answer gets the same one.
        let known = self.slots.iter().flatten();
        let known = known.into_iter().find(|known| known.addr == from && known.message == *initial.message);
        if let Some(known) = known {
            return if known.is_confirmed { Err(Rejection::Replayed.into()) } else { Ok(Some(known.response)) };
        }
        if !self.of_source(from).take(now_ns) || !self.handshakes.take(now_ns) {
            return Err(Rejection::Limit.into());
        }
        let random = (arrival.random)().ok_or(Rejection::Limit)?;
        let (Some(&tag), Some(&ephemeral)) = (random.first_chunk(), random.last_chunk()) else {
            return Err(Rejection::Malformed.into());
        };
        let received = noise::receive(&self.config.private, initial.prologue, initial.message, ephemeral);
        let (received, key) = received.ok_or(Rejection::Handshake)?;
        if self.config.authorized.name_of(&key).is_none() {
            return Err(Dropped { why: Rejection::UnknownKey, hint: Some((index, Code::UnknownKey)) });
        }
        // One place for each handshake that a client has begun, however often it begins it anew.
        self.remove_where(|known| {
            let is_same = known.key == key && known.addr == from && known.channel.peer_index() == index;
            is_same && !known.is_confirmed
        });
        let full = Dropped { why: Rejection::Limit, hint: Some((index, Code::Limit)) };
        let slot = self.make_room(&key, arrival).ok_or(full)?;
        let own = self.index_of(slot, u32::from_le_bytes(tag));
        let made = received.answer(own).and_then(|(message, secrets)| {
            let channel = Channel::of_daemon(&secrets, index, self.config.limits, now_ns)?;
            Some((message, channel))
        });
        let Some((message, channel)) = made else {
            self.free.push(slot);
            return Err(Rejection::Handshake.into());
        };
        let response = Reply::of([&response_head(index), &message]);
        let message = *initial.message;
        let client =
            Client { index: own, key, addr: from, channel, message, response, is_confirmed: false, heard_ns: now_ns };
        self.slots[slot] = Some(Box::new(client));
        Ok(Some(response))
    }

    /// The budget of the sender's network, an address of IPv4 or 64 bits of IPv6: with a hash that nobody can foresee.
    fn of_source(&mut self, from: SocketAddr) -> &mut Budget {
        let network = match from.ip().to_canonical() {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
        };
        let at = self.hasher.hash_one(network) % SOURCES as u64;
        &mut self.of_sources[at as usize]
    }

    fn index_of(&self, slot: usize, random: u32) -> u32 {
        let (place, bits) = self.config.place;
        let low = (place as u32) << SLOT_BITS | slot as u32;
        random.checked_shl(SLOT_BITS + bits).unwrap_or_default() | low
    }

    /// An empty place of the table for a client with this key.
    fn make_room(&mut self, key: &PublicKey, arrival: &Arrival<'_>) -> Option<usize> {
        let Arrival { now_ns, is_taken, .. } = *arrival;
        if now_ns >= self.swept_ns.saturating_add(SWEEP_NS) {
            self.swept_ns = now_ns;
            let idle_ns = self.config.idle_ns;
            self.remove_where(|client| {
                let bound_ns = if client.is_confirmed { idle_ns } else { UNCONFIRMED_NS };
                let is_silent = now_ns >= client.heard_ns.saturating_add(bound_ns);
                is_silent && !(client.is_confirmed && is_taken(client.addr))
            });
        }
        let of_key = self.slots.iter().flatten().filter(|client| client.key == *key);
        if of_key.count() >= self.config.max_clients_per_key {
            self.forget_unconfirmed(Some(key))?;
        } else if self.clients() >= self.config.max_clients.min(1 << SLOT_BITS) {
            self.forget_unconfirmed(None)?;
        }
        self.free.pop().or_else(|| {
            self.slots.push(None);
            Some(self.slots.len() - 1)
        })
    }

    /// Gives up the oldest of the clients that have sent nothing since their handshake, of a key if that is given.
    fn forget_unconfirmed(&mut self, key: Option<&PublicKey>) -> Option<()> {
        let is_meant = |client: &&Client| !client.is_confirmed && key.is_none_or(|key| client.key == *key);
        let oldest = self.slots.iter().flatten().map(|client| &**client).filter(is_meant);
        let index = oldest.min_by_key(|client| client.heard_ns)?.index;
        self.remove_where(|client| client.index == index);
        Some(())
    }

    /// Removes clients; the addresses of those that were confirmed.
    fn remove_where(&mut self, mut is_meant: impl FnMut(&Client) -> bool) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if let Some(client) = slot.take_if(|client| is_meant(client)) {
                self.free.push(at);
                if self.by_addr.get(&client.addr) == Some(&at) {
                    self.by_addr.remove(&client.addr);
                    addresses.push(client.addr);
                }
            }
        }
        addresses
    }
}

/// A number of events a second; some may come at once.
struct Budget {
    per_s: u64,
    most: u64,
    left: u64,
    filled_ns: u64,
}

impl Budget {
    fn new((per_s, most): (u64, u64)) -> Budget {
        Budget { per_s, most, left: most, filled_ns: 0 }
    }

    /// Takes one, if one is left.
    fn take(&mut self, now_ns: u64) -> bool {
        let each_ns = 1_000_000_000 / self.per_s;
        let more = now_ns.saturating_sub(self.filled_ns) / each_ns;
        if more > 0 {
            self.left = (self.left + more.min(self.most)).min(self.most);
            self.filled_ns = if more < self.most { self.filled_ns + more * each_ns } else { now_ns };
        }
        let has = self.left > 0;
        self.left -= u64::from(has);
        has
    }
}
