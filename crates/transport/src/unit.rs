//! A unit: as it is queued, and in flight, where it notes which of its packets were sent, acknowledged, lost and sent again.

use crate::credit::Charge;
use crate::order::TrafficClass;
use std::ops::Range;

/// The packets of a unit: how many, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// How many: 1 to 64.
    pub packets: u32,
    /// Bytes from one to the next; the last may be shorter.
    pub stride: u64,
    /// Bytes of all, headers and padding included.
    pub bytes: u64,
}

impl Lengths {
    /// Packets of `bytes` bytes in all that are as long as each other.
    #[must_use]
    pub fn even(packets: u32, bytes: u64) -> Lengths {
        Lengths { packets, stride: bytes.div_ceil(packets.max(1).into()), bytes }
    }

    /// Bytes of the last.
    fn last(self) -> u64 {
        self.bytes.saturating_sub(u64::from(self.packets.saturating_sub(1)) * self.stride)
    }

    /// Bytes of the longest.
    fn longest(self) -> u64 {
        if self.packets > 1 { self.stride } else { self.bytes }
    }
}

/// A unit, or the rest of one that was sent in part.
#[derive(Debug)]
pub(crate) struct Queued<P> {
    pub(crate) payload: P,
    /// The packets of the payload that were sent before.
    pub(crate) from: u32,
    pub(crate) packets: u32,
    /// Bytes of a packet.
    pub(crate) packet_bytes: u64,
    /// Bytes of the longest packet.
    pub(crate) longest_bytes: usize,
    /// Units of credit that its packets take.
    pub(crate) charge: Charge,
    /// Bytes of the payload.
    pub(crate) bytes: u64,
    pub(crate) class: TrafficClass,
    pub(crate) droppable: bool,
}

impl<P> Queued<P> {
    /// The packets' charge is by `charge`, which gets the bytes of one.
    pub(crate) fn new(
        payload: P,
        lengths: Lengths,
        class: TrafficClass,
        droppable: bool,
        charge: impl Fn(u64) -> u32,
    ) -> Queued<P> {
        let Lengths { packets, stride, bytes } = lengths;
        // Rounded up: nothing is on the way for free.
        let packet_bytes = bytes.div_ceil(packets.max(1).into()).max(1);
        let longest_bytes = lengths.longest() as usize;
        let charge = Charge { each: charge(stride), last: charge(lengths.last()) };
        Queued { payload, from: 0, packets, packet_bytes, longest_bytes, charge, bytes, class, droppable }
    }

    /// Units of credit that its next packet takes.
    pub(crate) fn next_charge(&self) -> u32 {
        if self.packets > 1 { self.charge.each } else { self.charge.last }
    }

    pub(crate) fn into_unit(self, first_seq: u64) -> Unit<P> {
        Unit {
            first_seq,
            packets: self.packets,
            packet_bytes: self.packet_bytes,
            longest_bytes: self.longest_bytes,
            charge: self.charge,
            bytes: self.bytes,
            payload: Some(self.payload),
            from: self.from,
            class: self.class,
            sent: 0,
            fresh_from: 0,
            sent_ns: 0,
            acked: 0,
            lost: 0,
            again: 0,
            counted: 0,
            first_tx: u64::MAX,
            resends: Vec::new(),
        }
    }
}

/// A unit that was sent, whole or in part, and is not yet acknowledged whole.
#[derive(Debug)]
pub(crate) struct Unit<P> {
    /// Absent where the unit was divided: it is with the rest then, which is the next data after it.
    pub(crate) payload: Option<P>,
    /// The payload's packet that is its first.
    pub(crate) from: u32,
    pub(crate) class: TrafficClass,
    pub(crate) first_seq: u64,
    pub(crate) packets: u32,
    pub(crate) packet_bytes: u64,
    /// Bytes of the longest packet.
    pub(crate) longest_bytes: usize,
    /// Units of credit that its packets take.
    pub(crate) charge: Charge,
    pub(crate) bytes: u64,
    /// Packets sent at least once: the first `sent` ones.
    pub(crate) sent: u32,
    /// The first packet of the last transmission of new ones, and when that was.
    pub(crate) fresh_from: u32,
    pub(crate) sent_ns: u64,
    /// Bit i: packet i is acknowledged.
    pub(crate) acked: u64,
    /// Bit i: packet i counts as lost and waits to be sent again.
    pub(crate) lost: u64,
    /// Bit i: packet i was sent again.
    pub(crate) again: u64,
    /// Bit i: packet i was sent again because it counts as lost with the congestion control, and not as a probe since.
    pub(crate) counted: u64,
    /// Packet i was sent as transmission `first_tx + i`, unless `resends` has another for it.
    pub(crate) first_tx: u64,
    /// The last transmission of each packet, once one was sent again: its number, and when it was. Empty until then.
    pub(crate) resends: Vec<(u64, u64)>,
}

impl<P> Unit<P> {
    pub(crate) fn end(&self) -> u64 {
        self.first_seq + u64::from(self.packets)
    }

    /// Whether packets of it were never sent.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.sent < self.packets
    }

    /// Ends it with what was sent; the rest, to be queued again. Nothing is left of it if nothing was sent.
    pub(crate) fn divide(&mut self) -> Option<Queued<P>> {
        let rest = Queued {
            payload: self.payload.take()?,
            from: self.from + self.sent,
            packets: self.packets - self.sent,
            packet_bytes: self.packet_bytes,
            longest_bytes: self.longest_bytes,
            charge: self.charge,
            bytes: std::mem::take(&mut self.bytes),
            class: self.class,
            droppable: false,
        };
        self.packets = self.sent;
        self.charge.last = self.charge.each;
        self.resends.truncate(self.sent as usize);
        Some(rest)
    }

    /// Units of credit that its next packet takes.
    pub(crate) fn next_charge(&self) -> u32 {
        if self.packets > self.sent + 1 { self.charge.each } else { self.charge.last }
    }

    /// Units of credit that these packets take.
    pub(crate) fn charge_of(&self, packets: Range<u32>) -> u64 {
        let each = u64::from(self.charge.each);
        let last = if packets.end == self.packets { u64::from(self.charge.last) } else { each };
        u64::from((packets.end - packets.start).saturating_sub(1)) * each + last
    }

    pub(crate) fn sent_mask(&self) -> u64 {
        mask(self.sent)
    }

    /// Packets that may still arrive: sent, not acknowledged, not given up.
    pub(crate) fn outstanding(&self) -> u64 {
        self.sent_mask() & !self.acked & !self.lost
    }

    /// The last transmission of a packet.
    pub(crate) fn tx(&self, packet: u32) -> u64 {
        self.resends.get(packet as usize).map_or(self.first_tx + u64::from(packet), |resend| resend.0)
    }

    /// The newest transmission among the packets in `packets`, which is not empty.
    pub(crate) fn newest_tx(&self, packets: u64) -> u64 {
        if self.resends.is_empty() {
            self.tx(63 - packets.leading_zeros().min(63))
        } else {
            bits(packets).map(|packet| self.tx(packet)).max().unwrap_or(0)
        }
    }

    /// Those of `packets` whose last transmission is `tx` or an earlier one.
    pub(crate) fn sent_up_to(&self, packets: u64, tx: u64) -> u64 {
        if self.resends.is_empty() {
            packets & mask(u32::try_from((tx + 1).saturating_sub(self.first_tx)).unwrap_or(64))
        } else {
            bits(packets).filter(|&packet| self.tx(packet) <= tx).fold(0, |found, packet| found | 1 << packet)
        }
    }

    /// Those of `packets` whose last transmission was made at `at_ns` or before (none, if there is no such time), and when the
    /// first of the others was made. Of a unit that was sent in parts, the time of the last counts.
    pub(crate) fn sent_before(&self, packets: u64, at_ns: Option<u64>) -> (u64, Option<u64>) {
        let (mut before, mut next_ns) = (0, None);
        for packet in bits(packets) {
            let sent_ns = self.resends.get(packet as usize).map_or(self.sent_ns, |resend| resend.1);
            if at_ns.is_some_and(|at_ns| sent_ns <= at_ns) {
                before |= 1 << packet;
            } else {
                next_ns = Some(next_ns.map_or(sent_ns, |next_ns: u64| next_ns.min(sent_ns)));
            }
        }
        (before, next_ns)
    }

    /// Notes the transmission of `packets` as number `tx` and following.
    pub(crate) fn note_tx(&mut self, packets: Range<u32>, tx: u64, now_ns: u64) {
        if self.resends.is_empty() {
            if packets.start >= self.sent {
                self.first_tx = tx - u64::from(packets.start);
                return;
            }
            self.resends = (0..self.packets).map(|packet| (self.first_tx + u64::from(packet), self.sent_ns)).collect();
        }
        for (packet, tx) in packets.zip(tx..) {
            self.resends[packet as usize] = (tx, now_ns);
        }
    }

    /// Those of the acknowledged `packets` that were sent again so lately that it must be their first transmission that
    /// arrived: less than `round_trip_ns` ago.
    pub(crate) fn late(&self, packets: u64, now_ns: u64, round_trip_ns: u64) -> u64 {
        bits(packets & self.again)
            .filter(|&packet| now_ns.saturating_sub(self.resends[packet as usize].1) < round_trip_ns)
            .fold(0, |late, packet| late | 1 << packet)
    }
}

/// The numbers of the set bits.
pub(crate) fn bits(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(bit)
    })
}

/// The lowest `packets` bits.
pub(crate) fn mask(packets: u32) -> u64 {
    if packets >= 64 { u64::MAX } else { (1 << packets) - 1 }
}

/// The unit's sent packets that lie in the sequence range.
pub(crate) fn covered<P>(unit: &Unit<P>, range: Range<u64>) -> u64 {
    let from = range.start.saturating_sub(unit.first_seq).min(64) as u32;
    let to = range.end.saturating_sub(unit.first_seq).min(64) as u32;
    mask(to) & !mask(from) & unit.sent_mask()
}
