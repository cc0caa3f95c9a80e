//! Sessions over packets: handshake, output, timers.

use super::Net;
use super::routes::is_route;
use crate::config::ContextConfig;
use crate::counters::DropReason;
use crate::net::peers::Peer;
use crate::principal::{Bound, Principal};
use crossdock_device::{Device, Sent};
use crossdock_mailbox::host::HostInterface;
use crossdock_transport::control::Refusal;
use crossdock_transport::ecn::{ECT_0, NOT_ECT};
use crossdock_transport::handshake::{Close, Hello, Welcome};
use crossdock_transport::{Limits, MAX_SUPER_BYTES, Session};
use std::io::IoSlice;
use std::net::SocketAddr;

/// The configured limits of sessions and their queues.
pub(super) struct SessionLimits {
    window_bytes: u32,
    max_window_bytes: u32,
    /// Bytes that the socket holds.
    held_bytes: u32,
    /// Bytes by which the windows of all sessions together may grow.
    pub(super) growth_bytes: u64,
    pace_bytes_per_s: u64,
    max_sessions: u32,
    /// Whether the tables are shared out by the keys of secure sessions, not by their addresses.
    by_key: bool,
    packet_bytes: Option<u32>,
    max_packet_bytes: Option<u32>,
    pub(super) idle_timeout_ms: u32,
    /// The bound of a peer's queue, in bytes.
    pub(super) queue_bytes: u64,
    /// The bound of a domain's inbox, in bytes.
    pub(super) inbox_bytes: u64,
}

impl SessionLimits {
    /// The limits that a configuration has.
    pub(super) fn new(config: &ContextConfig, held_bytes: u32) -> SessionLimits {
        SessionLimits {
            window_bytes: config.window_bytes,
            max_window_bytes: config.max_window_bytes,
            held_bytes,
            growth_bytes: config.buffer_bytes / 4,
            pace_bytes_per_s: config.pace_bytes_per_s,
            max_sessions: config.max_sessions,
            by_key: config.access.is_some(),
            packet_bytes: config.packet_bytes,
            max_packet_bytes: config.max_packet_bytes.or(config.packet_bytes),
            idle_timeout_ms: config.idle_timeout_ms,
            queue_bytes: config.queue_bytes,
            inbox_bytes: config.host.inbox_bytes,
        }
    }
}

impl Net {
    /// A client greets: its hello, unless that is not one, or was answered before and is again.
    pub(crate) fn take_hello(&mut self, payload: &[u8], from: SocketAddr) -> Option<Hello> {
        let Ok(hello) = Hello::decode(payload) else {
            self.counters.drop(DropReason::PacketPayload, 1);
            return None;
        };
        // Nobody begins or ends a session at the address of a client that has keys from outside of its envelopes.
        let at = self.peers.at(from).and_then(|key| self.peers.get(key)).and_then(Peer::client);
        if at.or_else(|| self.device.client_at(from)).is_some_and(|client| self.client != Some(client)) {
            self.counters.drop(DropReason::PacketUnprotected, 1);
            return None;
        }
        // It is new.
        let Some(known) = self.peers.greeted(from, self.client, hello.nonce) else { return Some(hello) };
        let (session, packet_bytes) = (known.number, known.session.first_packet_bytes() as u32);
        let window_bytes = self.limits.window_bytes;
        let welcome = Welcome { nonce: hello.nonce, session, packet_bytes, window_bytes };
        self.send_now(from, &welcome.packet(hello.session));
        None
    }

    /// The session at an address. One socket has one session: where its client begins a new one, it will not use the old one
    /// again.
    pub(crate) fn session_at(&self, addr: SocketAddr) -> Option<usize> {
        self.peers.at(addr)
    }

    /// The origin of the packet in work.
    pub(crate) fn origin(&self, from: SocketAddr) -> Principal {
        match self.client {
            Some(client) if self.limits.by_key || is_route(from) => Principal::Key(client),
            _ => Principal::of_address(from),
        }
    }

    /// Opens a session for a client that has greeted, and answers it; or refuses it, where there are too many, in all or of its
    /// origin.
    pub(crate) fn open_session(&mut self, hello: &Hello, from: SocketAddr, bound: Bound) {
        let SessionLimits { window_bytes, pace_bytes_per_s, max_sessions, packet_bytes, idle_timeout_ms, .. } =
            self.limits;
        if self.peers.sessions() >= max_sessions as usize || self.peers.is_full() {
            let reason = format!(
                "all {max_sessions} sessions of the daemon are in use (`max_sessions` in [context] of its configuration)"
            );
            return self.refuse_session(hello, from, reason);
        }
        let origin = self.origin(from);
        if let Err(refusal) = self.bound_sessions(origin, bound, self.peers.sessions()) {
            return self.refuse_session(hello, from, refusal.message);
        }
        let path = packet_bytes.unwrap_or(u32::MAX).min(self.device.packet_bytes(from) as u32);
        let packet_bytes = hello.packet_bytes.min(path) & !7;
        let most = self.device.most_packet_bytes(from).min(MAX_SUPER_BYTES) as u32;
        // Over loopback no path holds anything: all that the window allows waits in the socket.
        let held_bytes = if from.ip().to_canonical().is_loopback() { self.limits.held_bytes } else { u32::MAX };
        let limits = Limits {
            pace_bytes_per_s,
            max_packet_bytes: self.limits.max_packet_bytes.unwrap_or(u32::MAX).min(most),
            max_window_bytes: self.limits.max_window_bytes.min(held_bytes),
            ..Limits::new(window_bytes, u64::from(idle_timeout_ms) * 1_000_000)
        };
        let session = Session::new(hello.session, packet_bytes, hello.window_bytes, limits, self.now_ns());
        let (key, session) = self.peers.insert((from, self.client, origin), hello.nonce, session);
        self.peers.touch(key);
        let welcome = Welcome { nonce: hello.nonce, session, packet_bytes, window_bytes };
        self.send_now(from, &welcome.packet(hello.session));
    }

    fn refuse_session(&mut self, hello: &Hello, from: SocketAddr, reason: String) {
        self.counters.drop(DropReason::SessionLimit, 1);
        self.send_now(from, &Close { again: false, reason }.packet(hello.session));
    }

    /// Refuses one session more of an origin that has as many as it may. `of_all` sessions are there of its kind: only where they
    /// could all be of that origin, its own are counted.
    ///
    /// # Errors
    /// That it has.
    pub(crate) fn bound_sessions(&self, origin: Principal, bound: Bound, of_all: usize) -> Result<(), Refusal> {
        let most = bound.most as usize;
        if of_all >= most && self.peers.of_origin(origin).count() >= most {
            return Err(origin.refuse_more("sessions", bound));
        }
        Ok(())
    }

    /// The peers of an origin.
    pub(crate) fn peers_of(&self, origin: Principal) -> impl Iterator<Item = &Peer> {
        self.peers.of_origin(origin)
    }

    /// The peers that have something to send; the caller calls [`Net::send_queued`] for each, then [`Net::send_short`] for each, and
    /// gives the list back with [`Net::end_sending`].
    pub(crate) fn begin_sending(&mut self) -> Vec<usize> {
        self.is_device_full = self.device.flush();
        let mut dirty = std::mem::take(&mut self.scratch.dirty);
        self.peers.take_dirty(&mut dirty);
        dirty
    }

    /// Keeps the memory of a list of peers for the next turn.
    pub(crate) fn end_sending(&mut self, dirty: Vec<usize>) {
        self.scratch.dirty = dirty;
        self.is_device_full |= self.device.is_waiting();
    }

    /// Bytes of control messages that a peer has not taken.
    pub(crate) fn untaken_control_bytes(&self, key: usize, host: &HostInterface) -> u64 {
        self.peers.get(key).map_or(0, |peer| peer.carrier().untaken_control_bytes(host))
    }

    /// Whether a peer has not taken all control messages yet, or is not there.
    pub(crate) fn has_untaken_control(&self, key: usize, host: &HostInterface) -> bool {
        self.peers.get(key).is_none_or(|peer| peer.carrier().untaken_control_bytes(host) > 0)
    }

    /// Sends a peer what is queued for it, as far as the device takes it; the rest in the next turn.
    pub(crate) fn send_queued(&mut self, key: usize) {
        let now_ns = self.now_ns();
        // An attached client has all in its rings; others may have gone since they were noted.
        let Some(link) = self.peers.link_mut(key) else { return };
        let (addr, to) = (link.addr, link.session.peer_session());
        let mut is_full = false;
        self.device.set_most_bytes(link.session.packet_bytes());
        self.device.set_ecn(if link.session.sender.marks_ecn() { ECT_0 } else { NOT_ECT });
        while let Some(transmit) = link.session.sender.poll() {
            let count = u64::from(transmit.packets.end - transmit.packets.start);
            let resend = transmit.resend;
            match transmit.payload.transmit(&mut self.device, addr, to, transmit.first_seq, transmit.packets) {
                Ok(Sent::Done) if resend => self.counters.packets_resent += count,
                Ok(Sent::Done) => self.counters.packets_out += count,
                Ok(Sent::Full) => {
                    is_full = true;
                    break;
                }
                // Refused by the network: as good as lost on the way, so the time-out sends it again.
                Err(_) => self.counters.drop(DropReason::SendRefused, 1),
            }
            link.session.sender.transmitted(now_ns);
        }
        self.device.set_most_bytes(usize::MAX);
        self.device.set_ecn(NOT_ECT);
        if is_full {
            self.is_device_full = true;
            self.peers.touch(key);
        }
    }

    /// Sends a peer what is due beside its queue, the packets that acknowledge, ask and probe, and arms its timer.
    pub(crate) fn send_short(&mut self, key: usize) {
        let now_ns = self.now_ns();
        let Some(link) = self.peers.link_mut(key) else { return };
        let addr = link.addr;
        self.device.set_ecn(if link.session.sender.marks_ecn() { ECT_0 } else { NOT_ECT });
        while let Some((header, bytes)) = link.session.poll_probe(now_ns) {
            // One that the interface refuses is as good as lost on the way.
            let sent = self.device.send_probe(addr, &header, bytes);
            self.counters.packets_out += u64::from(matches!(sent, Ok(Sent::Done)));
        }
        if let Some(circuit) = self.circuits.of(key) {
            circuit.grow_window(&mut link.session, now_ns);
        } else {
            let spare_bytes = self.limits.growth_bytes.saturating_sub(self.grown_bytes);
            self.grown_bytes += link.session.grow_window(now_ns, spare_bytes);
        }
        while let Some(short) = link.session.poll_short(now_ns) {
            let bytes = short.bytes();
            match self.device.send(addr, &[IoSlice::new(bytes)], bytes.len()) {
                Ok(Sent::Done) => self.counters.packets_out += 1,
                _ => self.counters.drop(DropReason::SendRefused, 1),
            }
        }
        self.device.set_ecn(NOT_ECT);
        let deadline = link.session.deadline_ns();
        if deadline < link.armed_ns {
            self.timers.remove(&(link.armed_ns, key));
            self.timers.insert((deadline, key));
            link.armed_ns = deadline;
        }
    }

    /// A packet outside any session's sequence; if the device is full, it is as good as lost.
    pub(super) fn send_now(&mut self, to: SocketAddr, packet: &[u8]) {
        match self.device.send(to, &[IoSlice::new(packet)], packet.len()) {
            Ok(Sent::Done) => self.counters.packets_out += 1,
            _ => self.counters.drop(DropReason::SendRefused, 1),
        }
    }

    /// Deadlines that have passed: retransmissions, acks, pings. The next peer that is gone, and the reason to send it.
    pub(crate) fn next_silent(&mut self) -> Option<(usize, Close)> {
        let now_ns = self.now_ns();
        while let Some((_, key)) = self.timers.first().copied().filter(|(at, _)| *at <= now_ns) {
            self.timers.pop_first();
            // Its timer is taken out with a session.
            let Some(link) = self.peers.present_link_mut(key) else { continue };
            link.armed_ns = u64::MAX;
            link.parts.expire(now_ns);
            self.counters.drop(DropReason::PartsMissing, link.parts.take_forgotten());
            if !link.session.on_timer(now_ns) {
                let reason = format!("no packet arrived for {} ms", self.limits.idle_timeout_ms);
                return Some((key, Close { again: true, reason }));
            }
            self.peers.touch(key);
        }
        None
    }

    /// Takes out the timer of a session that ends.
    pub(super) fn disarm(&mut self, key: usize) {
        if let Some(link) = self.peers.link_mut(key) {
            self.timers.remove(&(link.armed_ns, key));
        }
    }
}
