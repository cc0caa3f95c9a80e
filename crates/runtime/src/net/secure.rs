//! Secure sessions: the envelopes around packets of networks that are not trusted ([`crossdock_transport::secure`]). Whatever is
//! sent to a client that has keys is sealed, and to an address that is not trusted nothing else is sent.

use super::Net;
use super::routes::{Routes, is_route};
use crate::config::{Network, SecurityConfig};
use crate::counters::DropReason;
use crate::io::{IoPlace, Received};
use crossdock_device::{Device, DeviceCounters, Frame, SealedSender, Sent, random};
use crossdock_mailbox::Pool;
use crossdock_transport::mtu::probe;
use crossdock_transport::parts::Splitter;
use crossdock_transport::secure::envelope::Envelope;
use crossdock_transport::secure::{
    Arrival, AuthorizedKeys, KEY_BYTES, KeyLimits, OVERHEAD_BYTES, Opened, PublicKey, Rejection, Reply, Responder,
    ResponderConfig, is_envelope,
};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Clients beside those that have sessions: they make a handshake, or have just lost their session.
pub(crate) const MORE_CLIENTS: usize = 256;

/// The settings of secure sessions, which the I/O contexts have in common.
#[derive(Clone)]
pub(crate) struct Security {
    config: SecurityConfig,
    cookie_secret: [u8; KEY_BYTES],
    max_clients: usize,
    max_clients_per_key: usize,
    idle_ns: u64,
}

impl Security {
    /// The settings of a daemon with these bounds on sessions, in all and from one origin.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(crate) fn new(
        config: SecurityConfig,
        (sessions, per_peer): (u32, u32),
        idle_timeout_ms: u32,
    ) -> io::Result<Security> {
        Ok(Security {
            config,
            cookie_secret: random()?,
            max_clients: sessions as usize + MORE_CLIENTS,
            max_clients_per_key: per_peer as usize,
            idle_ns: 2 * u64::from(idle_timeout_ms) * 1_000_000,
        })
    }

    fn responder(&self, place: IoPlace) -> Option<Responder> {
        Some(Responder::new(ResponderConfig {
            private: self.config.key.clone()?,
            authorized: Arc::clone(&self.config.authorized),
            cookie_secret: self.cookie_secret,
            max_clients: self.max_clients,
            max_clients_per_key: self.max_clients_per_key,
            idle_ns: self.idle_ns,
            place: (place.index, place.bits()),
            limits: KeyLimits::default(),
        }))
    }
}

/// The device of a context, whose packets go out in envelopes where they have to.
pub(crate) struct SecureDevice {
    pub(super) device: Box<dyn Device>,
    trusted: Vec<Network>,
    pub(super) keys: Option<Box<Keys>>,
    /// The node's part in source routes, if it has one.
    pub(super) routes: Option<Box<Routes>>,
    pub(super) now_ns: u64,
    /// The longest packet that goes whole, in bytes.
    most_bytes: usize,
    splitter: Splitter,
}

pub(super) struct Keys {
    pub(super) responder: Responder,
    sender: SealedSender,
}

impl SecureDevice {
    pub(crate) fn new(device: Box<dyn Device>, security: &Security, place: IoPlace) -> SecureDevice {
        let keys = security
            .responder(place)
            .map(|responder| Box::new(Keys { responder, sender: SealedSender::new(OVERHEAD_BYTES) }));
        let (trusted, splitter) = (security.config.trusted.clone(), Splitter::default());
        SecureDevice { device, trusted, keys, routes: None, now_ns: 0, most_bytes: usize::MAX, splitter }
    }

    /// Takes part in source routes.
    pub(crate) fn with_routes(self, routes: Option<Routes>) -> SecureDevice {
        SecureDevice { routes: routes.map(Box::new), ..self }
    }

    /// The time for all that follows.
    #[inline]
    pub(super) fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Packets that are longer than this go in parts, until another length is set. In bytes.
    #[inline]
    pub(super) fn set_most_bytes(&mut self, most_bytes: usize) {
        self.most_bytes = most_bytes;
    }

    /// Sends a probe of `bytes` bytes, with that header.
    ///
    /// # Errors
    /// The network's: the interface takes no packet of that length.
    pub(super) fn send_probe(&mut self, to: SocketAddr, header: &[u8], bytes: usize) -> io::Result<Sent> {
        let (slices, count) = probe(header, bytes);
        self.send(to, &slices[..count], bytes)
    }

    #[cold]
    fn send_parts(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent> {
        let (mut splitter, most_bytes) = (std::mem::take(&mut self.splitter), self.most_bytes);
        let sent = splitter.split(slices.iter().map(|slice| &**slice), stride, most_bytes, |parts, stride| {
            self.send_whole(to, &[IoSlice::new(parts)], stride).map(|sent| sent == Sent::Done)
        });
        self.splitter = splitter;
        Ok(if sent? { Sent::Done } else { Sent::Full })
    }

    fn send_whole(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent> {
        let SecureDevice { device, keys, routes, now_ns, .. } = self;
        if is_route(to)
            && let (Some(keys), Some(routes)) = (keys.as_deref_mut(), routes)
        {
            return routes.send_answer((&mut **device, &mut keys.responder, *now_ns), to, slices, stride);
        }
        if let Some(Keys { responder, sender }) = keys.as_deref_mut()
            && responder.client_at(to).is_some()
        {
            return sender.send(&mut **device, to, (slices, stride), |part, stride, out| {
                responder.seal(to, part, stride, out, *now_ns).map(|sealed| sealed.bytes)
            });
        }
        if !self.is_trusted(to) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("there are no keys for {to}")));
        }
        self.device.send(to, slices, stride)
    }

    /// Whether envelopes wait that the device had no room for.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        let routes = || self.routes.as_ref().is_some_and(|routes| routes.is_waiting());
        self.keys.as_ref().is_some_and(|keys| keys.sender.is_waiting()) || routes()
    }

    /// Sends the envelopes that the device had no room for; whether it is still full.
    pub(super) fn flush(&mut self) -> bool {
        let SecureDevice { device, keys, routes, .. } = self;
        keys.as_mut().is_some_and(|keys| keys.sender.flush(&mut **device) == Sent::Full)
            || routes.as_mut().is_some_and(|routes| routes.flush(&mut **device) == Sent::Full)
    }

    /// Routed packets to a neighbour.
    pub(super) fn send_to_neighbour(&mut self, neighbour: usize, packets: &[u8], stride: usize) -> io::Result<Sent> {
        let routes = self.routes.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        routes.send_to(neighbour, (&mut *self.device, self.now_ns), &[IoSlice::new(packets)], stride)
    }

    /// Routed packets to a client, in the envelopes of its keys with this node.
    pub(super) fn send_to_client(&mut self, client: SocketAddr, packets: &[u8], stride: usize) -> io::Result<Sent> {
        let keys = self.keys.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let (Keys { responder, sender }, now_ns) = (&mut **keys, self.now_ns);
        sender.send(&mut *self.device, client, (&[IoSlice::new(packets)], stride), |part, stride, out| {
            responder.seal(client, part, stride, out, now_ns).map(|sealed| sealed.bytes)
        })
    }

    fn is_trusted(&self, addr: SocketAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(addr.ip())) && !is_route(addr)
    }

    /// The key of the client at an address.
    pub(super) fn client_at(&self, addr: SocketAddr) -> Option<PublicKey> {
        self.keys.as_ref()?.responder.client_at(addr)
    }
}

impl Device for SecureDevice {
    fn local_addr(&self) -> SocketAddr {
        self.device.local_addr()
    }

    fn receive(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        self.device.receive(pool, frames, max)
    }

    fn send(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent> {
        let is_long =
            stride > self.most_bytes && slices.iter().map(|slice| slice.len()).sum::<usize>() > self.most_bytes;
        if is_long { self.send_parts(to, slices, stride) } else { self.send_whole(to, slices, stride) }
    }

    fn set_ecn(&mut self, bits: u8) {
        self.device.set_ecn(bits);
    }

    fn ecn(&self) -> u8 {
        self.device.ecn()
    }

    fn refused(&mut self) -> Option<SocketAddr> {
        self.device.refused()
    }

    fn packet_bytes(&self, to: SocketAddr) -> usize {
        if let Some(routes) = self.routes.as_ref().filter(|_| is_route(to)) {
            return routes.first_packet_bytes(to, |addr| self.device.packet_bytes(addr));
        }
        let bytes = self.device.packet_bytes(to);
        if self.client_at(to).is_some() { bytes.saturating_sub(OVERHEAD_BYTES) & !7 } else { bytes }
    }

    fn most_packet_bytes(&self, to: SocketAddr) -> usize {
        if let Some(routes) = self.routes.as_ref().filter(|_| is_route(to)) {
            return routes.packet_bytes(to, |addr| self.device.most_packet_bytes(addr));
        }
        let bytes = self.device.most_packet_bytes(to);
        if self.client_at(to).is_some() { bytes.saturating_sub(OVERHEAD_BYTES) & !7 } else { bytes }
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_fd()
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }
}

/// A frame that may be taken, and the session that has to end before.
#[derive(Debug)]
pub(crate) struct Unsealed {
    /// The content of the envelopes, or the frame, if its network is trusted.
    pub(crate) frame: Option<Received>,
    /// The session of another client that was at the sender's address.
    pub(crate) ends: Option<usize>,
}

/// The envelopes of what arrives.
impl Net {
    /// Takes a frame out of its envelopes. One that has to be in envelopes and is not is dropped and counted, and so is all that does
    /// not open. Envelopes that another I/O context has the keys of are handed over.
    #[inline]
    pub(crate) fn unseal(&mut self, frame: Received) -> Unsealed {
        self.client = None;
        if is_envelope(&frame.buffer[..frame.len]) {
            return self.open_envelopes(frame);
        }
        if self.device.is_trusted(frame.from) {
            return Unsealed { frame: Some(frame), ends: None };
        }
        self.refuse_unprotected(&frame);
        Unsealed { frame: None, ends: None }
    }

    fn open_envelopes(&mut self, frame: Received) -> Unsealed {
        let none = Unsealed { frame: None, ends: None };
        let Received { buffer, len, stride, from, ecn } = frame;
        let home = self.place.home;
        let elsewhere = self.device.keys.as_ref().and_then(|keys| {
            let first = &buffer[..len.min(stride.max(1))];
            keys.responder.place_of(first, home).filter(|place| *place < self.place.of)
        });
        if let Some(place) = elsewhere {
            self.hand_over(place, Received { buffer, len, stride, from, ecn }, len.div_ceil(stride.max(1)));
            return none;
        }
        // Nobody else has it yet.
        let Ok(mut bytes) = buffer.try_mut() else { return none };
        if self.hears_neighbour(&mut bytes[..len], stride, from) {
            return none;
        }
        let opened = self.open_in_place(&mut bytes[..len], stride, from);
        let Opened { len, stride, client, is_confirmed, reply } = opened;
        if let Some(reply) = reply {
            self.reply(from, &reply);
        }
        self.client = client;
        if client.is_some()
            && is_route(from)
            && let (Some(routes), Some(keys)) = (&mut self.device.routes, &self.device.keys)
        {
            routes.keep_route(from, &keys.responder);
        }
        let other = is_confirmed.then(|| self.peers.at(from)).flatten();
        let ends = other.filter(|key| self.peers.get(*key).is_some_and(|peer| peer.client() != client));
        let frame = (len > 0).then(|| Received { buffer: bytes.freeze(), len, stride: stride.min(len), from, ecn });
        Unsealed { frame, ends }
    }

    /// Takes a frame with an answer to a handshake that this node has begun with a neighbour; whether it is one.
    fn hears_neighbour(&mut self, frame: &mut [u8], stride: usize, from: SocketAddr) -> bool {
        let SecureDevice { device, routes, now_ns, .. } = &mut self.device;
        let Some(routes) = routes else { return false };
        let is_answer = matches!(
            Envelope::read(&frame[..frame.len().min(stride.max(1))]),
            Some(Envelope::Cookie { .. } | Envelope::Response { .. } | Envelope::Refusal { .. })
        );
        is_answer && routes.hear((frame, stride, from), &mut **device, *now_ns)
    }

    fn open_in_place(&mut self, frame: &mut [u8], stride: usize, from: SocketAddr) -> Opened {
        let Net { device, peers, counters, .. } = self;
        let now_ns = device.now_ns;
        let Some(keys) = &mut device.keys else {
            // This daemon has no keys.
            counters.drop(DropReason::EnvelopeUnexpected, frame.len().div_ceil(stride.max(1)) as u64);
            return Opened::default();
        };
        let mut arrival = Arrival {
            from,
            now_ns,
            is_taken: &|addr| peers.at(addr).is_some(),
            random: &mut || random().ok(),
            refuse: &mut |rejection| counters.drop(reason(rejection), 1),
        };
        keys.responder.open_frame(frame, stride, &mut arrival)
    }

    fn reply(&mut self, to: SocketAddr, reply: &Reply) {
        let bytes = reply.bytes();
        let SecureDevice { device, routes, now_ns, .. } = &mut self.device;
        // Not in an envelope of its own keys: whoever gets it may have none.
        let sent = match routes {
            Some(routes) if is_route(to) => routes.send_reply(&mut **device, to, bytes, *now_ns),
            _ => device.send(to, &[IoSlice::new(bytes)], bytes.len()),
        };
        match sent {
            Ok(Sent::Done) => self.counters.packets_out += 1,
            _ => self.counters.drop(DropReason::SendRefused, 1),
        }
    }

    /// A frame that is in no envelope comes from a network that is not trusted.
    #[cold]
    fn refuse_unprotected(&mut self, frame: &Received) {
        let stride = frame.stride.max(1);
        self.counters.drop(DropReason::PacketUnprotected, frame.len.div_ceil(stride) as u64);
        let now_ns = self.device.now_ns;
        let keys = self.device.keys.as_mut();
        if let Some(reply) = keys.and_then(|keys| keys.responder.refuse_unprotected(frame.len.min(stride), now_ns)) {
            self.reply(frame.from, &reply);
        }
    }

    /// Clients that have keys, or are about to.
    #[cfg(test)]
    pub(crate) fn clients_with_keys(&self) -> usize {
        self.device.keys.as_ref().map_or(0, |keys| keys.responder.clients())
    }

    /// Replaces the list of clients that may connect; the sessions of those that are on it no more.
    pub(crate) fn authorize(&mut self, authorized: Arc<AuthorizedKeys>) -> Vec<usize> {
        let Some(keys) = &mut self.device.keys else { return Vec::new() };
        self.device.routes.iter_mut().for_each(|routes| routes.forget_rights());
        let gone = keys.responder.authorize(authorized);
        gone.into_iter().filter_map(|addr| self.peers.at(addr)).collect()
    }
}

/// The counter of a packet that is dropped.
fn reason(rejection: Rejection) -> DropReason {
    match rejection {
        Rejection::Malformed => DropReason::EnvelopeMalformed,
        Rejection::Cookie => DropReason::HandshakeCookie,
        Rejection::Handshake => DropReason::HandshakeInvalid,
        Rejection::UnknownKey => DropReason::HandshakeUnknownKey,
        Rejection::Limit => DropReason::HandshakeLimit,
        Rejection::UnknownIndex => DropReason::EnvelopeUnknown,
        Rejection::Unauthentic => DropReason::EnvelopeUnauthentic,
        Rejection::Replayed => DropReason::EnvelopeReplayed,
        Rejection::Unprotected => DropReason::PacketUnprotected,
    }
}
