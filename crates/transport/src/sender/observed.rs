//! The reports of a sender to its observer, if it has one.

use super::Sender;
use crate::header::PacketKind;
use crate::order::{Origin, TrafficClass};
use crate::trace::{PacketRun, SenderState, SessionObserver, TraceEvent};
use crate::unit::Unit;
use std::ops::Range;

impl<P> Sender<P> {
    /// Has an observer get the events of this half from now on; its state now is the first.
    pub(crate) fn observe(&mut self, observer: Box<dyn SessionObserver>, now_ns: u64) {
        self.observed.set(observer);
        self.note_state(now_ns);
    }

    /// These packets of the unit of that index have left.
    pub(super) fn note_sent(&mut self, index: usize, packets: Range<u32>, again: bool) {
        if self.observed.is_absent() {
            return;
        }
        let packets = run_of(&self.flight[index], packets);
        self.observed.note(self.now_ns, || TraceEvent::Sent { packets, again });
        self.note_state(self.now_ns);
    }

    /// Datagrams have left, `bytes` bytes in all.
    pub(super) fn note_datagrams_sent(&mut self, first_seq: u64, packets: u32, bytes: u64) {
        if self.observed.is_absent() {
            return;
        }
        let each_bytes = bytes / u64::from(packets.max(1));
        let kind = PacketKind::Datagram;
        let packets = PacketRun { kind, first_seq, packets, each_bytes, last_bytes: each_bytes, stream: None };
        self.observed.note(self.now_ns, || TraceEvent::Sent { packets, again: false });
        self.note_state(self.now_ns);
    }

    /// Reports the state of congestion control, round trip, timers and path.
    pub(super) fn note_state(&mut self, now_ns: u64) {
        if self.observed.is_absent() {
            return;
        }
        let state = SenderState {
            latest_rtt_ns: self.rtt.latest_ns(),
            smoothed_rtt_ns: self.rtt.smoothed_ns(),
            shortest_rtt_ns: self.rtt.minimum_ns(),
            rtt_variation_ns: self.rtt.variation_ns(),
            window_bytes: self.congestion.window_bytes(),
            flight_bytes: self.flight_bytes(),
            phase: self.congestion.phase(),
            timeouts: self.backoff,
            probe_due_ns: self.timeout_ns(),
            loss_due_ns: self.loss_ns,
            packet_bytes: self.mtu.bytes(),
            ecn: self.ecn.state(),
            marked_packets: self.ecn.marked(),
        };
        self.observed.note(now_ns, || TraceEvent::State(state));
    }
}

/// These packets of a unit, with their lengths on the way.
fn run_of<P>(unit: &Unit<P>, packets: Range<u32>) -> PacketRun {
    let (kind, stream) = match unit.class {
        TrafficClass::Data(Origin::Stream(number)) => (PacketKind::Data, Some(number)),
        TrafficClass::Data(Origin::Mailbox(number)) => (PacketKind::Message, Some(number)),
        TrafficClass::Exchange(_) | TrafficClass::Notice(_) => (PacketKind::Control, None),
    };
    let each_bytes = unit.longest_bytes as u64;
    // Where the unit was divided, its last packet is not the payload's.
    let is_payloads_last = packets.end == unit.packets && unit.payload.is_some();
    let before_last = u64::from((unit.from + unit.packets).saturating_sub(1)) * each_bytes;
    let last_bytes = if is_payloads_last { unit.bytes.saturating_sub(before_last) } else { each_bytes };
    let (first_seq, count) = (unit.first_seq + u64::from(packets.start), packets.end - packets.start);
    PacketRun { kind, first_seq, packets: count, each_bytes, last_bytes, stream }
}
