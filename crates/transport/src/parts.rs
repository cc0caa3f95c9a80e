//! Packets in parts: those that are longer than the path takes.
//!
//! A packet is numbered with the length that it has, and delivered by its number; so it cannot be packed anew when the path takes
//! less than it did, nor does a record that is alone in a long packet fit then. Such a packet goes in parts, each in a packet of its
//! own, which IP need not fragment. The receiver puts it together again before anything else looks at it ([`Parts`]): sequence,
//! acknowledgement, credit and congestion control concern the whole packet.

use crate::ecn::joined;
use crate::header::{HEADER_BYTES, Header, PacketKind};
use crate::packer::{MAX_PACKETS, MAX_SUPER_BYTES};
use std::ops::DerefMut;

/// The most parts of a packet: what the longest has on the narrowest path ([`crate::handshake::MIN_PACKET_BYTES`]).
const MAX_PARTS: usize = 192;
/// Packets of a session that miss parts at most: when another one begins, the one that has waited longest is forgotten, and comes
/// again if it is in the sequence.
const MAX_PARTIAL: usize = 4;
/// How long a packet may miss parts before it is forgotten, in ns.
const LONGEST_NS: u64 = 2_000_000_000;

/// Memory in which packets are put into parts.
#[derive(Debug, Default)]
pub struct Splitter {
    packet: Vec<u8>,
    parts: Vec<u8>,
}

impl Splitter {
    /// Puts the packets of a super-packet, whose bytes `slices` has, into parts of at most `most_bytes` bytes. `send` gets parts that
    /// may leave at once, with the distance from one to the next; it says whether there was room for them. Whether there was for all:
    /// if not, the super-packet is to be sent again.
    ///
    /// # Errors
    /// Those of `send`.
    pub fn split<'a, E>(
        &mut self,
        slices: impl IntoIterator<Item = &'a [u8]>,
        stride: usize,
        most_bytes: usize,
        mut send: impl FnMut(&[u8], usize) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let stride = stride.max(1);
        self.packet.clear();
        for slice in slices {
            let mut rest = slice;
            while !rest.is_empty() {
                let (head, tail) = rest.split_at(rest.len().min(stride - self.packet.len()));
                self.packet.extend_from_slice(head);
                rest = tail;
                if self.packet.len() == stride {
                    if !self.split_packet(most_bytes, &mut send)? {
                        return Ok(false);
                    }
                    self.packet.clear();
                }
            }
        }
        if self.packet.is_empty() { Ok(true) } else { self.split_packet(most_bytes, &mut send) }
    }

    fn split_packet<E>(
        &mut self,
        most_bytes: usize,
        send: &mut impl FnMut(&[u8], usize) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let Splitter { packet, parts } = self;
        let Ok(header) = Header::read(packet) else { return Ok(true) };
        if packet.len() <= most_bytes {
            return send(packet, packet.len());
        }
        let most_bytes = (most_bytes & !7).max(HEADER_BYTES + packet.len().div_ceil(MAX_PARTS).next_multiple_of(8));
        let part_bytes = most_bytes - HEADER_BYTES;
        let at_once = (MAX_SUPER_BYTES / most_bytes).clamp(1, MAX_PACKETS);
        for (first, group) in packet.chunks(part_bytes * at_once).enumerate() {
            parts.clear();
            for (index, part) in group.chunks(part_bytes).enumerate() {
                let offset = (first * at_once + index) * part_bytes;
                let of = PartOf { kind: header.kind, seq: header.seq, total: packet.len(), offset, part_bytes };
                parts.extend_from_slice(&of.header(header.session, part.len()).to_bytes());
                parts.extend_from_slice(part);
            }
            if !send(parts, most_bytes)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The content of a part's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartOf {
    /// The kind and the number of the packet.
    kind: PacketKind,
    seq: u64,
    /// Its length in bytes.
    total: usize,
    /// Where the part begins in it.
    offset: usize,
    /// The length of all parts but the last.
    part_bytes: usize,
}

impl PartOf {
    fn header(self, session: u32, len: usize) -> Header {
        Header {
            payload_bytes: len as u16,
            seq: self.seq,
            format: self.offset as u64 | (self.total as u64) << 32,
            stream: self.kind as u32,
            records: self.part_bytes as u16,
            ..Header::new(PacketKind::Part, session)
        }
    }

    /// Reads the header of a part; `None` if there is no such part.
    fn read(header: &Header) -> Option<PartOf> {
        let kind = u8::try_from(header.stream).ok().and_then(PacketKind::from_byte)?;
        let (offset, total) = ((header.format & u64::from(u32::MAX)) as usize, (header.format >> 32) as usize);
        let part_bytes = usize::from(header.records);
        let is_numbered =
            matches!(kind, PacketKind::Data | PacketKind::Control | PacketKind::Message | PacketKind::Datagram);
        let is_part = part_bytes > 0
            && (HEADER_BYTES..=MAX_SUPER_BYTES).contains(&total)
            && total.div_ceil(part_bytes) <= MAX_PARTS
            && offset.is_multiple_of(part_bytes)
            && offset < total
            && usize::from(header.payload_bytes) == part_bytes.min(total - offset);
        (is_numbered && is_part).then_some(PartOf { kind, seq: header.seq, total, offset, part_bytes })
    }

    /// Whether both are parts of one packet, cut in the same way.
    fn is_with(self, other: PartOf) -> bool {
        PartOf { offset: 0, ..self } == PartOf { offset: 0, ..other }
    }

    fn index(self) -> usize {
        self.offset / self.part_bytes
    }
}

/// A packet that misses parts.
#[derive(Debug)]
struct Partial<B> {
    of: PartOf,
    memory: B,
    /// Bit i: part i is there.
    have: [u64; MAX_PARTS / 64],
    missing: usize,
    /// ECN's bits of all parts so far.
    ecn: u8,
    began_ns: u64,
}

/// The result for a part.
#[derive(Debug)]
pub enum Put<B> {
    /// The packet is whole: its memory, its length in bytes, and ECN's bits.
    Whole(B, usize, u8),
    /// Others are missing.
    Partial,
    /// It was there before.
    Duplicate,
    /// It is no part of a packet that goes in parts.
    Malformed,
    /// There is no memory for the packet.
    NoMemory,
}

/// The packets of a session that miss parts, in memory `B`.
#[derive(Debug)]
pub struct Parts<B> {
    partial: Vec<Partial<B>>,
    forgotten: u64,
}

impl<B> Default for Parts<B> {
    fn default() -> Parts<B> {
        Parts { partial: Vec::new(), forgotten: 0 }
    }
}

impl<B: DerefMut<Target = [u8]>> Parts<B> {
    /// Takes a part that came with these bits of ECN. Memory of that many bytes or more for a packet that begins comes from `alloc`.
    pub fn put(
        &mut self,
        header: &Header,
        payload: &[u8],
        (ecn, now_ns): (u8, u64),
        alloc: impl FnOnce(usize) -> Option<B>,
    ) -> Put<B> {
        let Some(of) = PartOf::read(header).filter(|_| payload.len() == usize::from(header.payload_bytes)) else {
            return Put::Malformed;
        };
        let known = self.partial.iter().position(|partial| partial.of.is_with(of));
        let Some(at) = known.or_else(|| self.begin(of, (ecn, now_ns), alloc)) else { return Put::NoMemory };
        let partial = &mut self.partial[at];
        let (word, bit) = (of.index() / 64, 1 << (of.index() % 64));
        if partial.have[word] & bit != 0 {
            return Put::Duplicate;
        }
        partial.have[word] |= bit;
        partial.missing -= 1;
        partial.ecn = joined(partial.ecn, ecn);
        partial.memory[of.offset..of.offset + payload.len()].copy_from_slice(payload);
        if partial.missing > 0 {
            return Put::Partial;
        }
        let whole = self.partial.remove(at);
        // It carries what its parts say, and is no part itself.
        let is_same = Header::read(&whole.memory[..of.total])
            .is_ok_and(|inner| (inner.kind, inner.seq, inner.session) == (of.kind, of.seq, header.session));
        if is_same { Put::Whole(whole.memory, of.total, whole.ecn) } else { Put::Malformed }
    }

    fn begin(
        &mut self,
        of: PartOf,
        (ecn, began_ns): (u8, u64),
        alloc: impl FnOnce(usize) -> Option<B>,
    ) -> Option<usize> {
        // It was cut in another way before, when the path took more.
        self.partial.retain(|partial| (partial.of.kind, partial.of.seq) != (of.kind, of.seq));
        if self.partial.len() >= MAX_PARTIAL {
            self.partial.remove(0);
            self.forgotten += 1;
        }
        let memory = alloc(of.total).filter(|memory| memory.len() >= of.total)?;
        let missing = of.total.div_ceil(of.part_bytes);
        self.partial.push(Partial { of, memory, have: [0; MAX_PARTS / 64], missing, ecn, began_ns });
        Some(self.partial.len() - 1)
    }

    /// Forgets what has missed parts for long, so that it holds no memory.
    pub fn expire(&mut self, now_ns: u64) {
        let before = self.partial.len();
        self.partial.retain(|partial| now_ns < partial.began_ns.saturating_add(LONGEST_NS));
        self.forgotten += (before - self.partial.len()) as u64;
    }

    /// Packets that were forgotten since the last call.
    pub fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(seq: u64, len: usize) -> Vec<u8> {
        let payload: Vec<u8> = (0..len - HEADER_BYTES).map(|at| ((at * 31) >> 3) as u8 ^ seq as u8).collect();
        Header { seq, stream: 3, format: 9, records: 1, ..Header::new(PacketKind::Data, 7) }.packet(&payload).unwrap()
    }

    /// The parts of super-packets, one by one.
    fn split(bytes: &[u8], stride: usize, most_bytes: usize) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        let sent = Splitter::default().split(bytes.chunks(1000), stride, most_bytes, |bytes, stride| {
            assert!(bytes.len() <= MAX_SUPER_BYTES && bytes.len().div_ceil(stride) <= MAX_PACKETS);
            parts.extend(bytes.chunks(stride).map(<[u8]>::to_vec));
            Ok::<_, ()>(true)
        });
        assert_eq!(sent, Ok(true));
        parts
    }

    fn put(parts: &mut Parts<Vec<u8>>, part: &[u8]) -> Put<Vec<u8>> {
        let header = Header::read(part).unwrap();
        parts.put(&header, &part[HEADER_BYTES..], (0, 0), |bytes| Some(vec![0; bytes]))
    }

    proptest! {
        #[test]
        fn parts_in_any_order_make_the_packets(
            lens in proptest::collection::vec(600usize..20_000, 1..4),
            most_bytes in 512usize..9000,
            seed in any::<u64>(),
        ) {
            let stride = lens.iter().copied().max().unwrap();
            let padded = |len: usize| { let mut packet = packet(len as u64, len); packet.resize(stride, 0); packet };
            let packets: Vec<_> = lens.iter().map(|len| padded(*len)).collect();
            let mut sent = split(&packets.concat(), stride, most_bytes);
            prop_assert!(sent.iter().all(|part| part.len() <= most_bytes));
            crossdock_sim::Rng::with_seed(seed).shuffle(&mut sent);
            let (mut parts, mut whole) = (Parts::default(), Vec::new());
            for part in sent {
                if Header::read(&part).unwrap().kind == PacketKind::Data {
                    whole.push(part);
                } else if let Put::Whole(memory, len, _) = put(&mut parts, &part) {
                    whole.push(memory[..len].to_vec());
                }
            }
            whole.sort();
            let mut packets = packets;
            packets.sort();
            packets.dedup();
            whole.dedup();
            prop_assert_eq!(whole, packets);
        }

        #[test]
        fn any_parts_are_taken_without_panic(
            parts in proptest::collection::vec((0u64..3, any::<u16>(), 0u64..3000, 0u64..3000, 0u32..12, 0usize..2000), 0..60),
        ) {
            let mut taken = Parts::default();
            for (seq, records, offset, total, stream, len) in parts {
                let format = offset | total << 32;
                let header = Header { seq, records, format, stream, ..Header::new(PacketKind::Part, 7) };
                let part = header.packet(&vec![5; len]).unwrap();
                if let Put::Whole(..) = put(&mut taken, &part) {
                    prop_assert!(false, "no header is made of fives");
                }
                prop_assert!(taken.partial.len() <= MAX_PARTIAL);
            }
        }
    }

    #[test]
    fn the_longest_packet_crosses_the_narrowest_path() {
        let long = packet(1, MAX_SUPER_BYTES);
        let mut parts = Parts::default();
        let sent = split(&long, long.len(), crate::handshake::MIN_PACKET_BYTES as usize);
        assert!(sent.len() <= MAX_PARTS);
        let (last, first) = sent.split_last().unwrap();
        assert!(first.iter().all(|part| matches!(put(&mut parts, part), Put::Partial)));
        assert!(matches!(put(&mut parts, &sent[3]), Put::Duplicate));
        let Put::Whole(memory, len, _) = put(&mut parts, last) else { panic!("a part is missing") };
        assert!(memory[..len] == long);
    }

    #[test]
    fn packets_that_miss_parts_are_bounded_and_forgotten() {
        let mut parts = Parts::default();
        for seq in 0..10 {
            put(&mut parts, &split(&packet(seq, 2000), 2000, 1200)[0]);
        }
        let seqs: Vec<u64> = parts.partial.iter().map(|partial| partial.of.seq).collect();
        assert_eq!(seqs, [6, 7, 8, 9], "those that have waited longest go first");
        parts.expire(LONGEST_NS - 1);
        assert_eq!(parts.take_forgotten(), 6);
        parts.expire(LONGEST_NS);
        assert_eq!(parts.take_forgotten(), 4);
        let part = split(&packet(1, 2000), 2000, 1200).remove(0);
        let header = Header::read(&part).unwrap();
        assert!(matches!(parts.put(&header, &part[HEADER_BYTES..], (0, 0), |_| None), Put::NoMemory));
    }

    #[test]
    fn a_packet_that_comes_in_other_parts_begins_anew() {
        let (wide, narrow) = (split(&packet(1, 4000), 4000, 1472), split(&packet(1, 4000), 4000, 1200));
        let mut parts = Parts::default();
        assert!(matches!(put(&mut parts, &wide[0]), Put::Partial));
        let last = narrow.len() - 1;
        assert!(narrow[..last].iter().all(|part| matches!(put(&mut parts, part), Put::Partial)));
        assert!(matches!(put(&mut parts, &narrow[last]), Put::Whole(_, 4000, _)));
    }

    #[test]
    fn a_device_that_is_full_gets_the_packet_again() {
        let bytes = packet(1, 4000);
        let mut rooms = [true, false].into_iter();
        let mut splitter = Splitter::default();
        let mut left = || Ok::<_, ()>(rooms.next().unwrap_or(true));
        // The longer one needs two calls.
        let long = packet(3, MAX_SUPER_BYTES);
        assert_eq!(splitter.split([&long[..]], long.len(), 1200, |_, _| left()), Ok(false));
        assert_eq!(splitter.split([&bytes[..]], 4000, 1200, |_, _| left()), Ok(true));
    }
}
