//! Sessions over packets: handshake, acks, output, timers, and their end.

use crate::context::Context;
use crate::counters::DropReason;
use crate::net::payload::Payload;
use crossdock_device::Sent;
use crossdock_transport::handshake::{Close, Hello, Welcome};
use crossdock_transport::session::SessionError;
use crossdock_transport::{Header, Limits, Session};
use std::io::IoSlice;
use std::net::SocketAddr;

/// A client that takes only smaller packets would have the daemon send one for each record. In bytes, header included.
const MIN_PACKET_BYTES: u32 = 512;

impl Context {
    /// A client greets: a new session, or the same answer as before.
    pub(crate) fn take_hello(&mut self, payload: &[u8], from: SocketAddr) {
        let Some(hello) = Hello::decode(payload).ok().filter(|h| h.packet_bytes >= MIN_PACKET_BYTES) else {
            self.counters.drop(DropReason::PacketPayload, 1);
            return;
        };
        let window_packets = self.config.window_packets;
        if let Some(known) = self.peers.greeted(from, hello.nonce) {
            let (session, packet_bytes) = (known.number, known.session.packet_bytes() as u32);
            let welcome = Welcome { nonce: hello.nonce, session, packet_bytes, window_packets };
            self.send_now(from, &welcome.packet(hello.session));
            return;
        }
        if let Some(old) = self.peers.at(from) {
            // One socket has one session: its client has begun a new one, and will not use the old one again.
            self.remove_peer(old, "replaced", None);
        }
        if self.peers.sessions() >= self.config.max_sessions as usize || self.peers.is_full() {
            self.counters.drop(DropReason::SessionLimit, 1);
            let reason = format!(
                "all {} sessions of the daemon are in use (`max_sessions` in [context] of its configuration)",
                self.config.max_sessions
            );
            self.send_now(from, &Close { again: false, reason }.packet(hello.session));
            return;
        }
        let path = self.config.packet_bytes.unwrap_or(u32::MAX).min(self.device.packet_bytes(from) as u32);
        let packet_bytes = hello.packet_bytes.min(path) & !7;
        let limits = Limits { window_packets, idle_timeout_ns: u64::from(self.config.idle_timeout_ms) * 1_000_000 };
        let session = Session::new(hello.session, packet_bytes, hello.window_packets, limits, self.now_ns);
        let (key, session) = self.peers.insert(from, hello.nonce, session);
        self.peers.touch(key);
        let welcome = Welcome { nonce: hello.nonce, session, packet_bytes, window_packets };
        self.send_now(from, &welcome.packet(hello.session));
    }

    /// An ack: what it releases makes room.
    pub(crate) fn take_ack(&mut self, header: &Header, payload: &[u8], from: SocketAddr) {
        let Some(key) = self.peers.find(header.session, from) else {
            self.counters.drop(DropReason::UnknownSession, 1);
            return;
        };
        let Some(link) = self.peers.link_mut(key) else { return };
        link.session.heard(self.now_ns);
        let mut released = std::mem::take(&mut self.scratch.released);
        match link.session.on_ack(payload, self.now_ns, |payload| released.push(payload)) {
            Ok(()) => {}
            Err(SessionError::Packet(_)) => self.counters.drop(DropReason::PacketPayload, 1),
            Err(SessionError::Ack(_)) => self.counters.drop(DropReason::AckUnsent, 1),
        }
        for payload in released.drain(..) {
            match payload {
                Payload::Whole { batch, .. } => self.workspace.spares.keep_shared(batch),
                Payload::Control(message, _) => {
                    if let Some(link) = self.peers.link_mut(key) {
                        link.control_taken(message.len());
                    }
                }
                Payload::Packed { .. } | Payload::Message { .. } => {}
            }
        }
        self.scratch.released = released;
        self.peers.touch(key);
        self.check_peer_queue(key);
    }

    /// Sends what a session is owed; whether the device took it all.
    pub(crate) fn service_link(&mut self, key: usize) -> bool {
        let Some(link) = self.peers.link_mut(key) else { return true };
        let (addr, to, now_ns) = (link.addr, link.session.peer_session(), self.now_ns);
        let mut all = true;
        while let Some(transmit) = link.session.sender.poll() {
            let count = u64::from(transmit.packets.end - transmit.packets.start);
            let resend = transmit.resend;
            match transmit.payload.transmit(&mut *self.device, addr, to, transmit.first_seq, transmit.packets) {
                Ok(Sent::Done) => {}
                Ok(Sent::Full) => {
                    all = false;
                    break;
                }
                // Refused by the network: as good as lost on the way, so the time-out sends it again.
                Err(_) => self.counters.drop(DropReason::SendRefused, 1),
            }
            link.session.sender.transmitted(now_ns);
            self.counters.packets_out += if resend { 0 } else { count };
            self.counters.packets_resent += if resend { count } else { 0 };
        }
        while let Some(short) = link.session.poll_short(now_ns) {
            let bytes = short.bytes();
            if !matches!(self.device.send(addr, &[IoSlice::new(bytes)], bytes.len()), Ok(Sent::Done)) {
                self.counters.drop(DropReason::SendRefused, 1);
            }
        }
        let deadline = link.session.deadline_ns();
        if deadline < link.armed_ns {
            self.timers.remove(&(link.armed_ns, key));
            self.timers.insert((deadline, key));
            link.armed_ns = deadline;
        }
        all
    }

    /// A packet outside any session's sequence; if the device is full, it is as good as lost.
    pub(crate) fn send_now(&mut self, to: SocketAddr, packet: &[u8]) {
        if !matches!(self.device.send(to, &[IoSlice::new(packet)], packet.len()), Ok(Sent::Done)) {
            self.counters.drop(DropReason::SendRefused, 1);
        }
    }

    /// Deadlines that have passed: retransmissions, acks, pings, peers that are gone.
    pub(crate) fn run_timers(&mut self) {
        while let Some((_, key)) = self.timers.first().copied().filter(|(at, _)| *at <= self.now_ns) {
            self.timers.pop_first();
            let Some(link) = self.peers.link_mut(key) else { continue };
            link.armed_ns = u64::MAX;
            if link.session.on_timer(self.now_ns) {
                self.peers.touch(key);
            } else {
                let reason = format!("no packet arrived for {} ms", self.config.idle_timeout_ms);
                self.remove_peer(key, "silent", Some(Close { again: true, reason }));
            }
        }
    }

    /// Takes out the timer of a session that ends.
    pub(crate) fn disarm(&mut self, key: usize) {
        if let Some(link) = self.peers.link_mut(key) {
            self.timers.remove(&(link.armed_ns, key));
        }
    }
}
