//! The events of a session, for an observer: a trace of the session can be written from them.
//!
//! A session without an observer costs one branch an event. Events are plain values without memory of their own: the observer
//! decides what becomes of them, and when. The times are those that the caller passes in.

use crate::ecn::EcnState;
use crate::header::{PacketKind, Run};
use crate::unit::bits;

/// Takes the events of a session, in their order.
pub trait SessionObserver: Send + Sync {
    /// An event at that time, in ns.
    fn event(&mut self, now_ns: u64, event: TraceEvent);
}

/// An event of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// Packets have left.
    Sent {
        /// The packets.
        packets: PacketRun,
        /// Whether they were sent before.
        again: bool,
    },
    /// Packets have arrived.
    Received {
        /// The packets.
        packets: PacketRun,
        /// The bits of ECN in their IP headers ([`crate::ecn`]).
        ecn: u8,
    },
    /// An ack covers these packets for the first time.
    Acked(PacketSet),
    /// These packets are to be sent again, unless an ack comes before that.
    Lost {
        /// The packets.
        packets: PacketSet,
        /// Why.
        reason: LossReason,
    },
    /// Datagrams count as lost with the congestion control; the receiver reports how many, and not their numbers.
    DatagramsLost {
        /// How many.
        packets: u64,
    },
    /// A timer has expired.
    TimedOut(SenderTimer),
    /// The state of the sending half, after an event or a transmission that may have changed it.
    State(SenderState),
}

impl TraceEvent {
    /// One packet has left that is in no unit of the sender.
    #[must_use]
    pub fn sent(kind: PacketKind, number: u64, bytes: usize) -> TraceEvent {
        TraceEvent::Sent { packets: PacketRun::one(kind, number, bytes), again: false }
    }
}

/// Packets of one kind and with consecutive numbers, which left or arrived together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRun {
    /// Their kind.
    pub kind: PacketKind,
    /// The number of the first, for kinds that are numbered.
    pub first_seq: u64,
    /// How many they are.
    pub packets: u32,
    /// Bytes of each but the last, header and padding included. Of datagrams that leave, the mean of their super-packet.
    pub each_bytes: u64,
    /// Bytes of the last.
    pub last_bytes: u64,
    /// The stream or subscription, or the open mailbox, for packets that have one.
    pub stream: Option<u32>,
}

impl PacketRun {
    /// One packet of `bytes` bytes.
    #[must_use]
    pub fn one(kind: PacketKind, number: u64, bytes: usize) -> PacketRun {
        let bytes = bytes as u64;
        PacketRun { kind, first_seq: number, packets: 1, each_bytes: bytes, last_bytes: bytes, stream: None }
    }

    /// The number and the bytes of each packet.
    pub fn each(self) -> impl Iterator<Item = (u64, u64)> {
        let last = self.packets.saturating_sub(1);
        (0..self.packets).map(move |index| {
            let bytes = if index == last { self.last_bytes } else { self.each_bytes };
            (self.first_seq.saturating_add(index.into()), bytes)
        })
    }
}

impl From<&Run> for PacketRun {
    fn from(run: &Run) -> PacketRun {
        let Run { header, packets, longest_bytes, last_bytes, .. } = *run;
        let has_stream = matches!(header.kind, PacketKind::Data | PacketKind::Datagram | PacketKind::Message);
        PacketRun {
            kind: header.kind,
            first_seq: header.seq,
            packets,
            each_bytes: longest_bytes as u64,
            last_bytes: last_bytes as u64,
            stream: has_stream.then_some(header.stream),
        }
    }
}

/// Some of up to 64 packets with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSet {
    /// The number of the first.
    pub first_seq: u64,
    /// Bit i: packet `first_seq + i` is one of them.
    pub set: u64,
}

impl PacketSet {
    /// The packets' numbers.
    pub fn numbers(self) -> impl Iterator<Item = u64> {
        bits(self.set).map(move |bit| self.first_seq + u64::from(bit))
    }
}

/// Why packets are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// Enough later packets have arrived (RFC 9002, 6.1.1).
    Overtaken,
    /// A later packet has arrived, and the time for a packet that is late has passed (RFC 9002, 6.1.2).
    Delayed,
    /// No ack came within the probe time-out: the packets probe the path, and do not count as lost (RFC 9002, 6.2).
    Unanswered,
    /// The receiver had no room for a packet that it had acknowledged ahead of a hole.
    NotTaken,
}

impl LossReason {
    /// Whether the packets count as lost on the path.
    #[must_use]
    pub fn is_loss(self) -> bool {
        matches!(self, LossReason::Overtaken | LossReason::Delayed)
    }
}

/// A timer of the sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderTimer {
    /// The probe time-out.
    Probe,
    /// When a packet that was overtaken counts as lost.
    Loss,
}

/// The phase of the congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionPhase {
    /// It doubles with each round trip.
    SlowStart,
    /// It follows the function of CUBIC.
    Avoidance,
    /// It has shrunk, and nothing that was sent since is acknowledged.
    Recovery,
    /// There is none, but a rate that the configuration states.
    StatedRate,
}

/// The state of the sending half. Times are in ns; those of the round trip are zero before the first sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderState {
    /// The last round-trip time, without the delay of the ack.
    pub latest_rtt_ns: u64,
    /// The smoothed round-trip time.
    pub smoothed_rtt_ns: u64,
    /// The shortest round-trip time of the last while.
    pub shortest_rtt_ns: u64,
    /// The variation of the round-trip time.
    pub rtt_variation_ns: u64,
    /// The congestion window; none where a rate is stated.
    pub window_bytes: Option<u64>,
    /// Bytes on the way: sent, and neither acknowledged nor given up.
    pub flight_bytes: u64,
    /// The phase of the congestion window.
    pub phase: CongestionPhase,
    /// Probe time-outs since the last answer.
    pub timeouts: u32,
    /// When the probe time-out expires, if something is on the way.
    pub probe_due_ns: Option<u64>,
    /// When a packet that was overtaken counts as lost, if there is one.
    pub loss_due_ns: Option<u64>,
    /// The longest packet that the path takes, as far as is known, in bytes.
    pub packet_bytes: usize,
    /// Whether the path carries congestion marks.
    pub ecn: EcnState,
    /// Packets that the receiver has reported as marked.
    pub marked_packets: u64,
}

/// The observer of a session, if there is one.
#[derive(Default)]
pub(crate) struct Observed(Option<Box<dyn SessionObserver>>);

impl std::fmt::Debug for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Observed").field(&self.0.is_some()).finish()
    }
}

impl Observed {
    pub(crate) fn set(&mut self, observer: Box<dyn SessionObserver>) {
        self.0 = Some(observer);
    }

    #[inline]
    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Reports an event, which is made only if there is an observer.
    #[inline]
    pub(crate) fn note(&mut self, now_ns: u64, event: impl FnOnce() -> TraceEvent) {
        if let Some(observer) = &mut self.0 {
            observer.event(now_ns, event());
        }
    }

    /// Reports packets that are to be sent again, if there are any.
    #[inline]
    pub(crate) fn lost(&mut self, now_ns: u64, first_seq: u64, set: u64, reason: LossReason) {
        if set != 0 {
            self.note(now_ns, || TraceEvent::Lost { packets: PacketSet { first_seq, set }, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_last_packet_of_another_length_and_a_set_has_holes() {
        let run = PacketRun { packets: 3, each_bytes: 100, ..PacketRun::one(PacketKind::Data, 7, 40) };
        assert_eq!(run.each().collect::<Vec<_>>(), [(7, 100), (8, 100), (9, 40)]);
        let set = PacketSet { first_seq: 10, set: 0b1011 };
        assert_eq!(set.numbers().collect::<Vec<_>>(), [10, 11, 13]);
    }
}
