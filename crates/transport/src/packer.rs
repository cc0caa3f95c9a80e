//! Many records of one stream and format in a packet, many packets in a super-packet.
//!
//! A [`SuperPacket`] is built in one buffer: packet after packet at a fixed stride, room for each header left free, so
//! that it leaves with one system call (UDP GSO) and its headers can be written anew for each transmission.

use crate::header::{HEADER_BYTES, Header};
use crate::unit::Lengths;
use std::ops::{DerefMut, Range};

/// The most bytes of a super-packet: the largest UDP payload over IPv4 (65,507) without an envelope ([`crate::secure`]), rounded down
/// to 8.
pub const MAX_SUPER_BYTES: usize = (65_507 - crate::secure::OVERHEAD_BYTES) & !7;

/// The most packets of a super-packet: what Linux takes for one GSO send (`UDP_MAX_SEGMENTS`).
pub const MAX_PACKETS: usize = 64;

/// One packet of a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of payload.
    pub payload_bytes: u16,
    /// Number of records.
    pub records: u16,
}

/// A super-packet in the buffer `B`: packets at a fixed stride, each with room for its header in front.
#[derive(Debug)]
pub struct SuperPacket<B> {
    buffer: B,
    /// The longest packet that may have company.
    packet_bytes: usize,
    stride: usize,
    limit: usize,
    packets: Vec<Packed>,
    records: u64,
}

impl<B: DerefMut<Target = [u8]>> SuperPacket<B> {
    /// An empty super-packet in `buffer` whose packets are at most `packet_bytes` long (header included).
    ///
    /// # Panics
    /// When the buffer cannot hold one packet, which is a mistake of the caller.
    #[must_use]
    pub fn new(buffer: B, packet_bytes: usize) -> SuperPacket<B> {
        let limit = buffer.len().min(MAX_SUPER_BYTES);
        let packet_bytes = packet_bytes.min(limit) & !7;
        assert!(packet_bytes > HEADER_BYTES, "a packet needs more than its header");
        SuperPacket { buffer, packet_bytes, stride: packet_bytes, limit, packets: Vec::with_capacity(8), records: 0 }
    }

    /// A super-packet that came in: its packets lie `stride` bytes apart from the start of `buffer`.
    #[must_use]
    pub fn received(buffer: B, stride: usize, packets: impl IntoIterator<Item = Packed>) -> SuperPacket<B> {
        let limit = buffer.len();
        let packets: Vec<Packed> = packets.into_iter().collect();
        let records = packets.iter().map(|p| u64::from(p.records)).sum();
        SuperPacket { buffer, packet_bytes: stride, stride, limit, packets, records }
    }

    /// Appends a record; `false` when it does not fit any more and the super-packet should leave first.
    ///
    /// A record longer than the packet size goes into an empty super-packet as one long packet, alone, which goes in parts where the
    /// path takes no packet of that length ([`crate::parts`]). A record longer than [`SuperPacket::room`] of an empty one never fits.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> bool {
        if self.stride > self.packet_bytes {
            return false;
        }
        let before = self.packets.len().wrapping_sub(1);
        if let Some(last) = self.packets.last_mut() {
            let base = before * self.stride + HEADER_BYTES;
            let used = usize::from(last.payload_bytes);
            let end = base + used + record.len();
            if HEADER_BYTES + used + record.len() <= self.stride && end <= self.limit && last.records < u16::MAX {
                self.buffer[base + used..end].copy_from_slice(record);
                last.payload_bytes += record.len() as u16;
                last.records += 1;
                self.records += 1;
                return true;
            }
        }
        self.push_packet(record)
    }

    /// Starts a new packet with `record`.
    fn push_packet(&mut self, record: &[u8]) -> bool {
        self.fit_stride(record.len());
        let base = self.packets.len() * self.stride;
        let end = base + HEADER_BYTES + record.len();
        let fits = end - base <= self.stride || self.packets.is_empty();
        if !fits || end > self.limit || self.packets.len() >= MAX_PACKETS || record.len() > usize::from(u16::MAX) {
            return false;
        }
        if end - base > self.stride {
            self.stride = (end + 7) & !7;
        }
        if let Some(last) = self.packets.last() {
            let used = base - self.stride + HEADER_BYTES + usize::from(last.payload_bytes);
            self.buffer[used..base].fill(0); // padding up to the stride: no old bytes leave the process
        }
        self.buffer[base + HEADER_BYTES..end].copy_from_slice(record);
        self.packets.push(Packed { payload_bytes: record.len() as u16, records: 1 });
        self.records += 1;
        true
    }

    /// Takes the first packet's length for the stride, if it is full enough: records of one size then leave without padding.
    fn fit_stride(&mut self, record_bytes: usize) {
        if let [first] = self.packets[..] {
            let used = (HEADER_BYTES + usize::from(first.payload_bytes) + 7) & !7;
            if used >= self.packet_bytes * 3 / 4 && HEADER_BYTES + record_bytes <= used {
                self.stride = used;
            }
        }
    }

    /// Writes the headers of the packets in `range`: consecutive sequence numbers from `first_seq` for packet 0.
    #[inline]
    pub fn write_headers(&mut self, range: Range<u32>, template: &Header, first_seq: u64) {
        for index in range {
            let Some(packed) = self.packets.get(index as usize) else {
                return;
            };
            let header = Header {
                payload_bytes: packed.payload_bytes,
                records: packed.records,
                seq: first_seq + u64::from(index),
                ..*template
            };
            let at = index as usize * self.stride;
            self.buffer[at..at + HEADER_BYTES].copy_from_slice(&header.to_bytes());
        }
    }

    /// The bytes of the packets in `range`, to send with [`SuperPacket::stride`]: with padding up to it behind all but the last packet.
    #[must_use]
    pub fn bytes(&self, range: Range<u32>) -> &[u8] {
        let start = range.start as usize * self.stride;
        if (range.end as usize) < self.packets.len() {
            return self.buffer.get(start..range.end as usize * self.stride).unwrap_or(&[]);
        }
        let last = (range.end as usize).min(self.packets.len());
        let Some(packed) = last.checked_sub(1).and_then(|i| self.packets.get(i)) else {
            return &[];
        };
        let end = (last - 1) * self.stride + HEADER_BYTES + usize::from(packed.payload_bytes);
        self.buffer.get(start..end).unwrap_or(&[])
    }

    /// The lengths of the packets, as a sender counts them.
    #[must_use]
    pub fn lengths(&self) -> Lengths {
        Lengths { packets: self.packets.len() as u32, stride: self.stride as u64, bytes: self.len() as u64 }
    }

    /// Length of a packet in bytes, header and padding included; the last may be shorter.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The packets.
    #[must_use]
    pub fn packets(&self) -> &[Packed] {
        &self.packets
    }

    /// Number of records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether nothing was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Bytes from the first header to the end of the last payload.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes(0..self.packets.len() as u32).len()
    }

    /// The longest record that an empty super-packet in this buffer takes, in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(HEADER_BYTES)
    }

    /// The buffer that it is in.
    #[must_use]
    pub fn buffer(&self) -> &B {
        &self.buffer
    }

    /// The buffer, for another use.
    #[must_use]
    pub fn into_buffer(self) -> B {
        self.buffer
    }

    /// The same packets in a smaller buffer (at least [`SuperPacket::len`] bytes), so that a few records do not hold a
    /// large buffer until they are acknowledged.
    ///
    /// # Panics
    /// When `small` is too small.
    #[must_use]
    pub fn copied_to(&self, mut small: B) -> SuperPacket<B> {
        let len = self.len();
        small[..len].copy_from_slice(&self.buffer[..len]);
        let limit = small.len();
        SuperPacket {
            buffer: small,
            packet_bytes: self.packet_bytes,
            stride: self.stride,
            limit,
            packets: self.packets.clone(),
            records: self.records,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::PacketKind;
    use crate::header::walk;
    use proptest::prelude::*;

    #[test]
    fn records_fill_packets_and_packets_the_super_packet() {
        let mut packed = SuperPacket::new(vec![0xff; 400], 128);
        let mut pushed = 0;
        while packed.push(&[pushed; 40]) {
            pushed += 1;
        }
        // Two 40-byte records fit beside the header in 128 bytes, and need 112; the fourth packet may be 64 bytes long.
        assert_eq!((pushed, packed.packets().len(), packed.stride(), packed.len()), (6, 3, 112, 224 + 32 + 80));
    }

    #[test]
    fn a_short_first_packet_leaves_room_for_longer_ones() {
        let mut packed = SuperPacket::new(vec![0xff; 4096], 128);
        assert!(packed.push(&[1; 40]) && packed.push(&[2; 88]) && packed.push(&[3; 96]));
        assert_eq!((packed.packets().len(), packed.stride()), (3, 128));
        let mut packed = SuperPacket::new(vec![0xff; 4096], 128);
        assert!(packed.push(&[1; 80]) && packed.push(&[2; 88]));
        assert_eq!((packed.packets().len(), packed.stride()), (2, 128));
        assert_eq!(packed.bytes(0..1).len(), 128, "its padding counts as the packet does");
        assert_eq!(packed.bytes(0..2)[112..128], [0; 16], "old bytes would leave the process");
        assert!(packed.bytes(5..5).is_empty());
    }

    #[test]
    fn a_long_record_travels_alone() {
        let mut packed = SuperPacket::new(vec![0; 4096], 128);
        assert!(packed.push(&[1; 1000]));
        assert_eq!(packed.packets(), [Packed { payload_bytes: 1000, records: 1 }]);
        assert_eq!(packed.len(), 1032);
        assert!(!packed.push(&[2; 8]), "it would be segmented into packets that no path takes");
        assert!(!SuperPacket::new(vec![0; 4096], 128).push(&[1; 4096]));
    }

    proptest! {
        #[test]
        fn packed_packets_are_walked(sizes in proptest::collection::vec(1usize..40, 1..200), packet in 64usize..400, resend in 0u32..8) {
            let mut packed = SuperPacket::new(vec![0xaa; 4096], packet);
            let mut taken = Vec::new();
            for (i, words) in sizes.iter().enumerate() {
                let record = vec![i as u8; words * 8];
                if !packed.push(&record) { break; }
                taken.extend_from_slice(&record);
            }
            let count = packed.packets().len() as u32;
            let from = resend.min(count - 1);
            let template = Header { stream: 5, format: 6, ..Header::new(PacketKind::Data, 4) };
            packed.write_headers(0..count, &template, 100);
            let (mut spans, mut runs) = (Vec::new(), Vec::new());
            walk(packed.bytes(0..count), packed.stride(), &mut spans, &mut runs, |e| panic!("{e}"));
            prop_assert_eq!(runs.len(), 1);
            prop_assert_eq!((runs[0].header.seq, runs[0].packets), (100, count));
            let all = packed.bytes(0..count);
            let joined: Vec<u8> = spans.iter().flat_map(|s| all[s.range()].iter().copied()).collect();
            prop_assert_eq!(joined, taken);
            walk(packed.bytes(from..count), packed.stride(), &mut spans, &mut runs, |e| panic!("{e}"));
            prop_assert_eq!((runs[0].header.seq, runs[0].packets), (100 + u64::from(from), count - from));
        }
    }
}
