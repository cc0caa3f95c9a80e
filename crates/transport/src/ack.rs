//! Acks: what has arrived, as a receiver reports it to the sender.

use crate::datagrams::DatagramReport;
use crate::ecn::EcnCounts;
use crate::header::{PacketError, PacketKind};
use std::ops::Range;

/// The most ranges an ack carries: a super-packet that lost every other packet has 32 holes.
pub const MAX_RANGES: usize = 64;

/// Bytes of an ack's payload at most.
pub const MAX_ACK_BYTES: usize = FIXED_ACK_BYTES + MAX_RANGES * 8 + DATAGRAM_BYTES + ECN_BYTES;

/// Bytes of it before the ranges.
pub(crate) const FIXED_ACK_BYTES: usize = 32;

/// Bytes of it behind the ranges, where datagrams have arrived.
const DATAGRAM_BYTES: usize = 16;

/// Bytes of it behind those, where packets with ECN's bits have arrived.
const ECN_BYTES: usize = 16;

/// The arrivals, and the limit of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Everything below has arrived.
    pub next_seq: u64,
    /// The units of data that will be taken, from the session's first on ([`crate::credit`]).
    pub data_limit: u64,
    /// The same of control; 0 says nothing new.
    pub control_limit: u64,
    /// How long ago the highest packet that has arrived came, or the highest datagram if that came later, in µs.
    pub delay_us: u32,
    /// The datagrams that have arrived.
    pub datagrams: DatagramReport,
    /// The packets that arrived with ECN's bits.
    pub ecn: EcnCounts,
    pub(crate) ranges: [Range<u64>; MAX_RANGES],
    pub(crate) count: usize,
}

impl Ack {
    /// A purely cumulative ack, without new credit for control.
    #[must_use]
    pub fn new(next_seq: u64, data_limit: u64) -> Ack {
        let (datagrams, ecn) = (DatagramReport::default(), EcnCounts::default());
        let ranges = [const { 0..0 }; MAX_RANGES];
        Ack { next_seq, data_limit, control_limit: 0, delay_us: 0, datagrams, ecn, ranges, count: 0 }
    }

    /// The same with ranges that have arrived beyond the first hole, ascending; what is more than [`MAX_RANGES`] is left out.
    #[must_use]
    pub fn with_ranges(mut self, ranges: impl IntoIterator<Item = Range<u64>>) -> Ack {
        for range in ranges.into_iter().take(MAX_RANGES) {
            self.ranges[self.count] = range;
            self.count += 1;
        }
        self
    }

    /// Ranges that have arrived beyond the first hole.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges[..self.count]
    }

    /// The same in ns.
    #[must_use]
    pub fn delay_ns(&self) -> u64 {
        u64::from(self.delay_us) * 1000
    }

    /// Writes the payload; returns its length. A range is two 32-bit numbers: the packets missing in front of it, and its own.
    pub fn encode(&self, out: &mut [u8; MAX_ACK_BYTES]) -> usize {
        out[0..8].copy_from_slice(&self.next_seq.to_le_bytes());
        out[8..16].copy_from_slice(&self.data_limit.to_le_bytes());
        out[16..24].copy_from_slice(&self.control_limit.to_le_bytes());
        out[24..28].copy_from_slice(&self.delay_us.to_le_bytes());
        out[28..32].copy_from_slice(&(self.count as u32).to_le_bytes());
        let mut end = self.next_seq;
        for (range, out) in self.ranges().iter().zip(out[FIXED_ACK_BYTES..].chunks_exact_mut(8)) {
            // No window is so large that this saturates.
            let missing = u32::try_from(range.start.saturating_sub(end)).unwrap_or(u32::MAX);
            let arrived = u32::try_from(range.end.saturating_sub(range.start)).unwrap_or(u32::MAX);
            out[..4].copy_from_slice(&missing.to_le_bytes());
            out[4..].copy_from_slice(&arrived.to_le_bytes());
            end = range.end;
        }
        let len = FIXED_ACK_BYTES + self.count * 8;
        let (DatagramReport { end, arrived }, EcnCounts { ect_0, ce }) = (self.datagrams, self.ecn);
        let words = match (end, ect_0, ce) {
            (0, 0, 0) => 0,
            (_, 0, 0) => 2,
            _ => 4,
        };
        for (word, out) in [end, arrived, ect_0, ce].iter().take(words).zip(out[len..].chunks_exact_mut(8)) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        len + words * 8
    }

    /// Reads an ack's payload.
    ///
    /// # Errors
    /// [`PacketError::Payload`] when it is short, has too many ranges, its ranges are empty or out of order, or more datagrams have
    /// arrived than there are.
    pub fn decode(payload: &[u8]) -> Result<Ack, PacketError> {
        let bad = PacketError::Payload(PacketKind::Ack);
        let word = |at: usize| -> Result<u64, PacketError> {
            let bytes = payload.get(at..at + 8).and_then(|b| b.first_chunk()).ok_or(bad)?;
            Ok(u64::from_le_bytes(*bytes))
        };
        let mut ack = Ack { control_limit: word(16)?, ..Ack::new(word(0)?, word(8)?) };
        let tail = word(24)?;
        ack.delay_us = tail as u32;
        ack.count = (tail >> 32) as usize;
        if ack.count > MAX_RANGES {
            return Err(bad);
        }
        let mut floor = ack.next_seq;
        for i in 0..ack.count {
            let pair = word(FIXED_ACK_BYTES + i * 8)?;
            let (missing, arrived) = (pair & u64::from(u32::MAX), pair >> 32);
            let start = floor.checked_add(missing).ok_or(bad)?;
            let end = start.checked_add(arrived).ok_or(bad)?;
            if arrived == 0 {
                return Err(bad);
            }
            floor = end;
            ack.ranges[i] = start..end;
        }
        let end = FIXED_ACK_BYTES + ack.count * 8;
        if payload.len() > end {
            ack.datagrams = DatagramReport { end: word(end)?, arrived: word(end + 8)? };
            if payload.len() > end + DATAGRAM_BYTES {
                ack.ecn = EcnCounts { ect_0: word(end + 16)?, ce: word(end + 24)? };
            }
            if ack.datagrams.arrived > ack.datagrams.end || (ack.datagrams.end, ack.ecn) == (0, EcnCounts::default()) {
                return Err(bad);
            }
        }
        Ok(ack)
    }
}
