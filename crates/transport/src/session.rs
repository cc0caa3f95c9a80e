//! One peer's reliable, ordered, credit-controlled exchange in both directions, and whether the peer is still there.

use crate::credit::units;
use crate::header::{HEADER_BYTES, Header, PacketError, PacketKind};
use crate::mtu::Probe;
use crate::receiver::{Ack, MAX_ACK_BYTES, Receiver};
use crate::sender::{AckError, Sender};
use crate::trace::{PacketRun, SessionObserver, TraceEvent};

/// How long a sender without credit waits before it asks for some, in ns.
const STARVED_NS: u64 = 100_000_000;

/// The limits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of data that this side takes ahead of what it has consumed, at first.
    pub window_bytes: u32,
    /// The same at most, on a path that needs more.
    pub max_window_bytes: u32,
    /// A peer that was silent for so long is asked whether it is there, in ns.
    pub ask_after_ns: u64,
    /// A peer that was silent for so long, though asked, is gone. In ns.
    pub idle_timeout_ns: u64,
    /// The rate at which this side sends, in bytes a second, whatever is lost: for a network where nobody else needs the path. 0 for
    /// what congestion control finds.
    pub pace_bytes_per_s: u64,
    /// The longest packet that this side tries whether the path takes it, header included, in bytes ([`crate::mtu`]). 0 for packets of
    /// the size with which the session begins, whatever the path is found to take.
    pub max_packet_bytes: u32,
}

impl Limits {
    /// Limits with which a silent peer is asked after a third of its time-out, with congestion control, a window and packets of one
    /// size.
    #[must_use]
    pub const fn new(window_bytes: u32, idle_timeout_ns: u64) -> Limits {
        let (max_window_bytes, ask_after_ns) = (window_bytes, idle_timeout_ns / 3);
        let (pace_bytes_per_s, max_packet_bytes) = (0, 0);
        Limits { window_bytes, max_window_bytes, ask_after_ns, idle_timeout_ns, pace_bytes_per_s, max_packet_bytes }
    }
}

/// A small packet that is built without allocation: an ack or a ping.
#[derive(Clone, Debug)]
pub struct ShortPacket {
    bytes: [u8; HEADER_BYTES + MAX_ACK_BYTES],
    len: usize,
}

impl ShortPacket {
    /// The packet's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn new(kind: PacketKind, session: u32, payload: &[u8]) -> ShortPacket {
        let header = Header { payload_bytes: payload.len() as u16, ..Header::new(kind, session) };
        let mut bytes = [0; HEADER_BYTES + MAX_ACK_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        bytes[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        ShortPacket { bytes, len: HEADER_BYTES + payload.len() }
    }
}

/// The error of an ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Its payload is malformed.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// It acknowledges what was never sent.
    #[error(transparent)]
    Ack(#[from] AckError),
}

/// An established session; `P` is the handle of outgoing units, `R` of arrived runs.
#[derive(Debug)]
pub struct Session<P, R> {
    /// The sending half.
    pub sender: Sender<P>,
    /// The receiving half.
    pub receiver: Receiver<R>,
    peer_session: u32,
    unit_bytes: usize,
    limits: Limits,
    heard_ns: u64,
    asked_ns: u64,
}

impl<P, R> Session<P, R> {
    /// A session that the peer calls `peer_session`, with packets of at most `packet_bytes`; the peer takes
    /// `peer_window_bytes` of data to begin with.
    #[must_use]
    pub fn new(
        peer_session: u32,
        packet_bytes: u32,
        peer_window_bytes: u32,
        limits: Limits,
        now_ns: u64,
    ) -> Session<P, R> {
        let (peer_window, pace) = (units(peer_window_bytes, packet_bytes), limits.pace_bytes_per_s);
        let sizes = (packet_bytes as usize, limits.max_packet_bytes as usize);
        Session {
            sender: Sender::with_limits(sizes, peer_window, pace),
            receiver: Receiver::new(packet_bytes as usize, units(limits.window_bytes, packet_bytes)),
            peer_session,
            unit_bytes: packet_bytes as usize,
            limits,
            heard_ns: now_ns,
            asked_ns: now_ns,
        }
    }

    /// The number by which the peer knows this session: it goes into every header to it.
    #[must_use]
    pub fn peer_session(&self) -> u32 {
        self.peer_session
    }

    /// The packet size in bytes, header included, as the path is found to take it now.
    #[must_use]
    pub fn packet_bytes(&self) -> usize {
        self.sender.packet_bytes()
    }

    /// The packet size with which the session began, in bytes, header included: the unit of credit.
    #[must_use]
    pub fn first_packet_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Notes that the peer was heard; call it for every packet of the session.
    #[inline]
    pub fn heard(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
        self.asked_ns = now_ns;
    }

    /// Has an observer get the session's events from now on ([`crate::trace`]).
    pub fn observe(&mut self, observer: Box<dyn SessionObserver>, now_ns: u64) {
        self.sender.observe(observer, now_ns);
    }

    /// Notes that packets of the session have arrived, with these bits of ECN: [`Session::heard`], and an event for the observer.
    #[inline]
    pub fn arrived(&mut self, packets: impl Into<PacketRun>, ecn: u8, now_ns: u64) {
        self.heard(now_ns);
        self.sender.observed.note(now_ns, || TraceEvent::Received { packets: packets.into(), ecn });
    }

    /// Lets the window of data grow if the peer is held back by it: to twice its size, by `spare_bytes` at most. By how many bytes it
    /// has grown. To be called whenever data was consumed.
    pub fn grow_window(&mut self, now_ns: u64, spare_bytes: u64) -> u64 {
        let unit = self.unit_bytes.max(1) as u64;
        let most = u64::from(units(self.limits.max_window_bytes, self.unit_bytes as u32));
        let spare = self.receiver.window_units() + spare_bytes / unit;
        self.receiver.grow_window(now_ns, self.sender.rtt_ns(), most.min(spare)) * unit
    }

    /// The window of data in bytes.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.receiver.window_units() * self.unit_bytes as u64
    }

    /// By how many bytes the window of data has grown so far.
    #[must_use]
    pub fn grown_bytes(&self) -> u64 {
        let first = u64::from(units(self.limits.window_bytes, self.unit_bytes as u32));
        self.receiver.window_units().saturating_sub(first) * self.unit_bytes as u64
    }

    /// Takes an ack packet's payload; acknowledged units go to `release`.
    ///
    /// # Errors
    /// When it is malformed or acknowledges what was never sent: drop it and count it.
    pub fn on_ack(&mut self, payload: &[u8], now_ns: u64, release: impl FnMut(P)) -> Result<(), SessionError> {
        let ack = Ack::decode(payload)?;
        self.sender.on_ack(&ack, now_ns, release)?;
        Ok(())
    }

    /// How long without a word before the peer is asked (again), in ns: after a while, then often enough that a few lost pings are
    /// no death.
    fn ask_after_ns(&self) -> u64 {
        let patience_ns =
            if self.asked_ns > self.heard_ns { self.limits.idle_timeout_ns / 12 } else { self.limits.ask_after_ns };
        if self.sender.is_starved() {
            // The ack that brought new credit may have been lost, and nothing else would bring another.
            patience_ns.min(STARVED_NS)
        } else {
            patience_ns
        }
    }

    /// An ack or a ping to send now, if one is due. Call until there is none.
    pub fn poll_short(&mut self, now_ns: u64) -> Option<ShortPacket> {
        if let Some(ack) = self.receiver.poll_ack(now_ns) {
            let mut payload = [0; MAX_ACK_BYTES];
            let len = ack.encode(&mut payload);
            return Some(self.short_packet(PacketKind::Ack, &payload[..len], now_ns));
        }
        if now_ns >= self.asked_ns.saturating_add(self.ask_after_ns()) {
            self.asked_ns = now_ns;
            return Some(self.short_packet(PacketKind::Ping, &[], now_ns));
        }
        None
    }

    fn short_packet(&mut self, kind: PacketKind, payload: &[u8], now_ns: u64) -> ShortPacket {
        let packet = ShortPacket::new(kind, self.peer_session, payload);
        self.sender.observed.note(now_ns, || TraceEvent::sent(kind, 0, packet.len));
        packet
    }

    /// The header of a probe of the packet size, and its length in bytes, if one is due: what is behind the header is zero
    /// ([`crate::mtu`]). Call until there is none.
    pub fn poll_probe(&mut self, now_ns: u64) -> Option<([u8; HEADER_BYTES], usize)> {
        let Probe { number, bytes } = self.sender.poll_probe(now_ns)?;
        self.sender.observed.note(now_ns, || TraceEvent::sent(PacketKind::Probe, number, bytes));
        let payload_bytes = (bytes - HEADER_BYTES) as u16;
        let header = Header { payload_bytes, seq: number, ..Header::new(PacketKind::Probe, self.peer_session) };
        Some((header.to_bytes(), bytes))
    }

    /// The answer to a probe of the peer.
    #[must_use]
    pub fn answer_probe(&self, probe: &Header) -> [u8; HEADER_BYTES] {
        Header { seq: probe.seq, ..Header::new(PacketKind::Probed, self.peer_session) }.to_bytes()
    }

    /// Lets time pass: retransmission time-outs. Returns whether the peer is still believed to be there.
    pub fn on_timer(&mut self, now_ns: u64) -> bool {
        self.sender.on_timer(now_ns);
        now_ns < self.heard_ns.saturating_add(self.limits.idle_timeout_ns)
    }

    /// When something is due next, in ns (a moment in the past: now).
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        let ask = self.asked_ns.saturating_add(self.ask_after_ns());
        let gone = self.heard_ns.saturating_add(self.limits.idle_timeout_ns);
        let ack = self.receiver.deadline_ns().unwrap_or(u64::MAX);
        let resend = self.sender.deadline_ns().unwrap_or(u64::MAX);
        ask.min(gone).min(ack).min(resend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Origin, TrafficClass};

    const LIMITS: Limits = Limits::new(16 * 1472, 3_000_000_000);

    #[test]
    fn a_silent_peer_is_asked_and_then_gone() {
        let mut session: Session<(), ()> = Session::new(7, 1472, 16 * 1472, LIMITS, 0);
        assert!(session.poll_short(999_999_999).is_none());
        let at = session.deadline_ns();
        assert_eq!(at, 1_000_000_000);
        let ping = session.poll_short(at).unwrap();
        let header = Header::read(ping.bytes()).unwrap();
        assert_eq!((header.kind, header.session), (PacketKind::Ping, 7));
        // Two thirds of the time-out are left, and eight more pings in them.
        let pings = (at + 1..2_999_999_999).step_by(1_000_000).filter(|&now| session.poll_short(now).is_some());
        assert_eq!(pings.count(), 7);
        assert!(session.on_timer(2_999_999_999));
        session.heard(2_999_999_999);
        assert!(session.on_timer(3_000_000_000));
        assert!(!session.on_timer(5_999_999_999));
    }

    #[test]
    fn a_window_grows_while_it_is_used_up_within_two_round_trips_and_no_further_than_it_may() {
        const RTT_NS: u64 = 50_000_000;
        let limits = Limits { max_window_bytes: 100 * 1472, ..LIMITS };
        let mut session: Session<(), ()> = Session::new(7, 1472, 16 * 1472, limits, 0);
        session.sender.enqueue((), 1, 100, TrafficClass::Data(Origin::Stream(1)), false);
        session.sender.poll().unwrap();
        session.sender.transmitted(0);
        let mut payload = [0; MAX_ACK_BYTES];
        let len = Ack::new(1, 16).encode(&mut payload);
        session.on_ack(&payload[..len], RTT_NS, |()| {}).unwrap();
        let mut seq = 0;
        let mut window = |now_ns: u64, spare_bytes: u64| {
            let window = session.receiver.credit();
            let run = crate::receiver::Arriving {
                traffic: crate::order::Traffic::Data,
                first_seq: seq,
                packets: window as u32,
                longest_bytes: 1000,
                last_bytes: 1000,
            };
            seq += window;
            session.receiver.arrive(run, (), now_ns, |(), _| {});
            assert_eq!(session.grow_window(now_ns, spare_bytes), 0, "nothing is consumed");
            session.receiver.consumed_to(u64::MAX);
            let grown = session.grow_window(now_ns, spare_bytes) / 1472;
            let limit = session.receiver.poll_ack(now_ns).unwrap().data_limit;
            assert_eq!(limit, session.receiver.data_delivered() + session.receiver.window_units());
            (grown, session.receiver.window_units(), session.grown_bytes() / 1472)
        };
        // The first one was open for long.
        assert_eq!(window(3 * RTT_NS, u64::MAX), (0, 16, 0));
        assert_eq!(window(4 * RTT_NS, u64::MAX), (16, 32, 16));
        assert_eq!(window(6 * RTT_NS, u64::MAX), (0, 32, 16));
        assert_eq!(window(7 * RTT_NS, 8 * 1472), (8, 40, 24));
        assert_eq!(window(8 * RTT_NS, u64::MAX), (40, 80, 64));
        assert_eq!(window(9 * RTT_NS, u64::MAX), (20, 100, 84));
        assert_eq!(window(10 * RTT_NS, u64::MAX), (0, 100, 84));
    }

    #[test]
    fn a_starved_sender_asks_for_credit() {
        let mut session: Session<u8, ()> = Session::new(7, 1472, 1472, LIMITS, 0);
        let class = TrafficClass::Data(Origin::Stream(1));
        // The smallest window holds eight.
        session.sender.enqueue(1, 8, 800, class, true);
        session.sender.enqueue(2, 1, 100, class, true);
        session.sender.poll().unwrap();
        session.sender.transmitted(0);
        let mut payload = [0; MAX_ACK_BYTES];
        let len = Ack::new(8, 8).encode(&mut payload);
        session.on_ack(&payload[..len], 10, |p| assert_eq!(p, 1)).unwrap();
        session.heard(10);
        assert_eq!(session.deadline_ns(), 100_000_010);
        assert!(session.poll_short(100_000_010).is_some());
    }
}
