//! The packet header, and the walk over the packets of a super-packet.
//!
//! Layout, little-endian, 32 bytes, so that records behind it keep their 8-byte alignment:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version |
//! | 1 | kind |
//! | 2..4 | payload length in bytes |
//! | 4..8 | session: the receiver's number for it; in a reset the sender's |
//! | 8..16 | sequence number of the packet in its direction |
//! | 16..24 | format id of the records |
//! | 24..28 | stream: the publisher's number for it, the subscription's, or the session's number of an open mailbox |
//! | 28..30 | number of records |
//! | 30 | which piece of a message it is ([`Piece`]) |
//! | 31 | reserved, zero |

use crate::order::Traffic;
use std::ops::Range;

/// Length of a header in bytes.
pub const HEADER_BYTES: usize = 32;

/// The version of the wire format that this crate speaks.
pub const VERSION: u8 = 6;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketKind {
    /// A client asks for a session.
    Hello = 1,
    /// The daemon grants one.
    Welcome = 2,
    /// Records of one stream and format; reliable and in order.
    Data = 3,
    /// A control message; in the same sequence as the data, but with a window of its own ([`crate::credit`]).
    Control = 4,
    /// Cumulative and selective acknowledgement, with credit.
    Ack = 5,
    /// The session has ended, with a reason; not acknowledged.
    Close = 6,
    /// Asks for an ack; carries nothing.
    Ping = 7,
    /// One mailbox message; in the same sequence as data and control. To the daemon: put into the mailbox that the session has
    /// open for writing under the header's `stream` number. To the client: got from the mailbox open for reading.
    Message = 8,
    /// The answer of a daemon to a packet of a session that it does not have: the client's session is over. Its `session` is the
    /// number that the packet carried; it carries nothing else, so it is never longer than what it answers, and it is never
    /// answered.
    Reset = 9,
    /// Records of one stream and format, sent once and delivered at most once, in any order; numbered in a sequence of their own
    /// ([`crate::datagrams`]).
    Datagram = 10,
    /// Padding, to find out whether the path takes a packet of that length ([`crate::mtu`]); its `seq` is the probe's number.
    Probe = 11,
    /// The answer to a probe, with its number; it carries nothing.
    Probed = 12,
    /// A part of a packet that is longer than the path takes ([`crate::parts`]).
    Part = 13,
}

impl PacketKind {
    pub(crate) fn from_byte(byte: u8) -> Option<PacketKind> {
        Some(match byte {
            1 => PacketKind::Hello,
            2 => PacketKind::Welcome,
            3 => PacketKind::Data,
            4 => PacketKind::Control,
            5 => PacketKind::Ack,
            6 => PacketKind::Close,
            7 => PacketKind::Ping,
            8 => PacketKind::Message,
            9 => PacketKind::Reset,
            10 => PacketKind::Datagram,
            11 => PacketKind::Probe,
            12 => PacketKind::Probed,
            13 => PacketKind::Part,
            _ => return None,
        })
    }

    /// The window in which packets of this kind are counted, for those that are in a session's sequence.
    #[must_use]
    pub fn traffic(self) -> Traffic {
        if self == PacketKind::Control { Traffic::Control } else { Traffic::Data }
    }
}

/// Which part of a message a packet carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Piece {
    /// All of it, or many whole records.
    #[default]
    Whole = 0,
    /// The first piece, after the length of the message.
    First = 1,
    /// A piece between the first and the last.
    Middle = 2,
    /// The last piece.
    Last = 3,
}

impl Piece {
    fn from_byte(byte: u8) -> Option<Piece> {
        Some(match byte {
            0 => Piece::Whole,
            1 => Piece::First,
            2 => Piece::Middle,
            3 => Piece::Last,
            _ => return None,
        })
    }
}

/// Why bytes are not a packet; each has its counter in the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Shorter than a header.
    #[error("the packet is shorter than its {HEADER_BYTES}-byte header")]
    Short,
    /// Another version of the wire format.
    #[error("the packet is of wire version {0}, this side speaks {VERSION}")]
    Version(u8),
    /// A kind this version does not know.
    #[error("unknown packet kind {0}")]
    Kind(u8),
    /// A piece this version does not know.
    #[error("unknown piece of a message {0}")]
    Piece(u8),
    /// The payload length does not fit the bytes that came.
    #[error("the header claims {claimed} payload bytes, {present} came")]
    Length {
        /// The length in the header, in bytes.
        claimed: usize,
        /// The length behind the header, in bytes.
        present: usize,
    },
    /// The payload of a fixed-layout packet (hello, welcome, ack, close) does not parse.
    #[error("the payload of a {0:?} packet is malformed")]
    Payload(PacketKind),
}

/// A packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the packet.
    pub kind: PacketKind,
    /// Bytes of payload behind the header (padding up to the stride is not counted).
    pub payload_bytes: u16,
    /// The receiver's number for the session (zero in a hello).
    pub session: u32,
    /// Sequence number in this direction, for data, control and message packets; for datagrams, in their own sequence.
    pub seq: u64,
    /// Format id of the records, for data packets.
    pub format: u64,
    /// The publisher's stream number or the subscription number, for data packets; the session's number of an open mailbox, for
    /// messages.
    pub stream: u32,
    /// Number of records, for data packets.
    pub records: u16,
    /// Which piece of a message it carries, for data, control and message packets.
    pub piece: Piece,
}

impl Header {
    /// A header of `kind` for `session` with everything else zero.
    #[must_use]
    pub fn new(kind: PacketKind, session: u32) -> Header {
        Header { kind, payload_bytes: 0, session, seq: 0, format: 0, stream: 0, records: 0, piece: Piece::Whole }
    }

    /// Reads and checks the header at the start of `packet`, which is one whole datagram or segment.
    ///
    /// # Errors
    /// See [`PacketError`]; nothing of a refused packet may be used.
    #[inline]
    pub fn read(packet: &[u8]) -> Result<Header, PacketError> {
        match packet.first_chunk() {
            Some(head) => Header::parse(head, packet.len()),
            None => Err(PacketError::Short),
        }
    }

    /// The same for a packet of `packet_bytes` with only the header at hand: of one in memory that others may write, that
    /// is the part that has to be copied before it is checked.
    ///
    /// # Errors
    /// See [`PacketError`]; nothing of a refused packet may be used.
    #[inline]
    pub fn parse(head: &[u8; HEADER_BYTES], packet_bytes: usize) -> Result<Header, PacketError> {
        let present = packet_bytes.checked_sub(HEADER_BYTES).ok_or(PacketError::Short)?;
        if head[0] != VERSION {
            return Err(PacketError::Version(head[0]));
        }
        let kind = PacketKind::from_byte(head[1]).ok_or(PacketError::Kind(head[1]))?;
        let piece = Piece::from_byte(head[30]).ok_or(PacketError::Piece(head[30]))?;
        let payload_bytes = u16::from_le_bytes([head[2], head[3]]);
        if usize::from(payload_bytes) > present {
            return Err(PacketError::Length { claimed: payload_bytes.into(), present });
        }
        Ok(Header {
            kind,
            payload_bytes,
            session: word32(head, 4),
            seq: word64(head, 8),
            format: word64(head, 16),
            stream: word32(head, 24),
            records: u16::from_le_bytes([head[28], head[29]]),
            piece,
        })
    }

    /// The header as bytes.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0] = VERSION;
        out[1] = self.kind as u8;
        out[2..4].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[4..8].copy_from_slice(&self.session.to_le_bytes());
        out[8..16].copy_from_slice(&self.seq.to_le_bytes());
        out[16..24].copy_from_slice(&self.format.to_le_bytes());
        out[24..28].copy_from_slice(&self.stream.to_le_bytes());
        out[28..30].copy_from_slice(&self.records.to_le_bytes());
        out[30] = self.piece as u8;
        out
    }

    /// A whole packet: this header, its length set from `payload`, and the payload.
    ///
    /// # Errors
    /// When the payload is longer than a packet can say (65,535 bytes).
    pub fn packet(mut self, payload: &[u8]) -> Result<Vec<u8>, PacketError> {
        self.payload_bytes = u16::try_from(payload.len())
            .map_err(|_| PacketError::Length { claimed: payload.len(), present: u16::MAX.into() })?;
        let mut out = Vec::with_capacity(HEADER_BYTES + payload.len());
        out.extend_from_slice(&self.to_bytes());
        out.extend_from_slice(payload);
        Ok(out)
    }

    /// Whether `next` carries on the run that `self` starts: same session, kind, stream and format, `ahead` packets later. Of pieces,
    /// those between the first and the last of a message are a run.
    #[inline]
    fn runs_on(&self, next: &Header, ahead: u64) -> bool {
        matches!(self.kind, PacketKind::Data | PacketKind::Datagram)
            && next.kind == self.kind
            && matches!((self.piece, next.piece), (Piece::Whole, Piece::Whole) | (Piece::Middle, Piece::Middle))
            && self.session == next.session
            && self.stream == next.stream
            && self.format == next.format
            && next.seq == self.seq.wrapping_add(ahead)
    }
}

fn word32(head: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

fn word64(head: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(word32(head, at)) | u64::from(word32(head, at + 4)) << 32
}

/// One packet of a [`Run`]: where its payload lies in the frame, and how many records it claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadSpan {
    /// First byte of the payload in the frame.
    pub start: u32,
    /// Bytes of payload, without padding.
    pub len: u32,
    /// Records that the header claims.
    pub records: u16,
}

/// Consecutive packets of one frame that belong together: data of one session, stream and format with consecutive
/// sequence numbers; any other packet is a run of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first packet's header.
    pub header: Header,
    /// The packets, as a range of the span list given to [`walk`].
    pub first: usize,
    /// Number of packets.
    pub packets: u32,
    /// Bytes of the longest of them, and of the last, as they came: with their headers and padding.
    pub longest_bytes: usize,
    /// See there.
    pub last_bytes: usize,
}

/// Walks the packets of a frame (a super-packet of `stride`-byte packets; the last may be shorter).
///
/// `spans` and `runs` are filled anew; why a packet is none goes to `refuse`. An empty datagram is one packet, too short.
pub fn walk(
    frame: &[u8],
    stride: usize,
    spans: &mut Vec<PayloadSpan>,
    runs: &mut Vec<Run>,
    mut refuse: impl FnMut(PacketError),
) {
    spans.clear();
    runs.clear();
    if frame.is_empty() {
        refuse(PacketError::Short);
    }
    let stride = if stride == 0 { frame.len().max(1) } else { stride };
    let mut open: Option<Run> = None;
    for (index, packet) in frame.chunks(stride).enumerate() {
        let header = match Header::read(packet) {
            Ok(header) => header,
            Err(error) => {
                refuse(error);
                runs.extend(open.take());
                continue;
            }
        };
        let start = index * stride + HEADER_BYTES;
        let Ok(start) = u32::try_from(start) else {
            break;
        };
        spans.push(PayloadSpan { start, len: header.payload_bytes.into(), records: header.records });
        let bytes = packet.len();
        match &mut open {
            Some(run) if run.header.runs_on(&header, u64::from(run.packets)) => {
                run.packets += 1;
                (run.longest_bytes, run.last_bytes) = (run.longest_bytes.max(bytes), bytes);
            }
            _ => {
                runs.extend(open.take());
                open =
                    Some(Run { header, first: spans.len() - 1, packets: 1, longest_bytes: bytes, last_bytes: bytes });
            }
        }
    }
    runs.extend(open);
}

impl Run {
    /// Bytes of its packets, with headers and padding: all but the last are taken to be as long as the longest.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.packets.saturating_sub(1)) * self.longest_bytes as u64 + self.last_bytes as u64
    }

    /// The spans of this run's packets.
    #[must_use]
    pub fn spans<'a>(&self, spans: &'a [PayloadSpan]) -> &'a [PayloadSpan] {
        &spans[self.first..self.first + self.packets as usize]
    }
}

impl PayloadSpan {
    /// The payload's bytes in the frame, as a range.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data(session: u32, seq: u64, payload: &[u8]) -> Vec<u8> {
        let header = Header { seq, format: 7, stream: 3, records: 1, ..Header::new(PacketKind::Data, session) };
        header.packet(payload).unwrap()
    }

    #[test]
    fn a_header_reads_back() {
        let header = Header {
            kind: PacketKind::Data,
            payload_bytes: 5,
            session: 0xdead_beef,
            seq: u64::MAX - 3,
            format: 0x0102_0304_0506_0708,
            stream: 9,
            records: 700,
            piece: Piece::Middle,
        };
        let mut packet = header.to_bytes().to_vec();
        packet.extend_from_slice(b"hello");
        assert_eq!(Header::read(&packet), Ok(header));
    }

    #[test]
    fn errors_are_named() {
        let good = data(1, 0, b"12345678");
        assert_eq!(Header::read(&good[..31]), Err(PacketError::Short));
        assert_eq!(Header::read(&good[..36]), Err(PacketError::Length { claimed: 8, present: 4 }));
        let mut other = good.clone();
        other[0] = VERSION + 1;
        assert_eq!(Header::read(&other), Err(PacketError::Version(VERSION + 1)));
        let mut other = good.clone();
        other[1] = 99;
        assert_eq!(Header::read(&other), Err(PacketError::Kind(99)));
        let mut other = good;
        other[30] = 4;
        assert_eq!(Header::read(&other), Err(PacketError::Piece(4)));
    }

    #[test]
    fn a_super_packet_is_one_run_until_something_differs() {
        let mut frame = Vec::new();
        for (session, seq) in [(1, 10), (1, 11), (1, 12), (2, 13), (1, 20)] {
            let mut packet = data(session, seq, b"12345678");
            packet.resize(48, 0);
            frame.extend_from_slice(&packet);
        }
        frame.truncate(frame.len() - 8);
        let (mut spans, mut runs) = (Vec::new(), Vec::new());
        walk(&frame, 48, &mut spans, &mut runs, |e| panic!("{e}"));
        assert_eq!(
            runs.iter().map(|r| (r.header.session, r.header.seq, r.packets)).collect::<Vec<_>>(),
            [(1, 10, 3), (2, 13, 1), (1, 20, 1)]
        );
        assert_eq!(&frame[runs[0].spans(&spans)[1].range()], b"12345678");
    }

    #[test]
    fn the_pieces_between_the_first_and_the_last_are_a_run() {
        use Piece::{First, Last, Middle, Whole};
        let header = |seq, piece| Header { seq, piece, ..Header::new(PacketKind::Data, 1) };
        let pieces = [Whole, Whole, First, Middle, Middle, Middle, Last, First, Last];
        let packet = |(seq, piece)| header(seq, piece).packet(b"12345678").unwrap();
        let frame: Vec<u8> = (0..).zip(pieces).flat_map(packet).collect();
        let (mut spans, mut runs) = (Vec::new(), Vec::new());
        walk(&frame, 40, &mut spans, &mut runs, |e| panic!("{e}"));
        let runs: Vec<_> = runs.iter().map(|run| (run.header.piece, run.packets)).collect();
        assert_eq!(runs, [(Whole, 2), (First, 1), (Middle, 3), (Last, 1), (First, 1), (Last, 1)]);
    }

    #[test]
    fn each_mailbox_message_is_a_run_of_its_own() {
        let header = |seq| Header { seq, stream: 65_535, ..Header::new(PacketKind::Message, 1) };
        let frame: Vec<u8> = (0..3).flat_map(|seq| header(seq).packet(&[seq as u8; 16]).unwrap()).collect();
        let (mut spans, mut runs) = (Vec::new(), Vec::new());
        walk(&frame, 48, &mut spans, &mut runs, |e| panic!("{e}"));
        assert_eq!(
            runs.iter().map(|r| (r.header.seq, r.header.kind, r.packets)).collect::<Vec<_>>(),
            [(0, PacketKind::Message, 1), (1, PacketKind::Message, 1), (2, PacketKind::Message, 1)]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_without_panic(frame in proptest::collection::vec(any::<u8>(), 0..400), stride in 0usize..200) {
            let (mut spans, mut runs) = (Vec::new(), Vec::new());
            let mut refused = 0;
            walk(&frame, stride, &mut spans, &mut runs, |_| refused += 1);
            for run in &runs {
                for span in run.spans(&spans) {
                    prop_assert!(frame.get(span.range()).is_some());
                }
            }
            let packets: u32 = runs.iter().map(|r| r.packets).sum();
            let datagrams = frame.len().max(1).div_ceil(if stride == 0 { frame.len().max(1) } else { stride });
            prop_assert_eq!(packets as usize + refused, datagrams);
        }

        #[test]
        fn valid_version_and_random_rest(mut frame in proptest::collection::vec(any::<u8>(), 32..400), kind in 0u8..10) {
            frame[0] = VERSION;
            frame[1] = kind;
            if let Ok(header) = Header::read(&frame) {
                prop_assert!(usize::from(header.payload_bytes) <= frame.len() - HEADER_BYTES);
                prop_assert_eq!(&header.to_bytes()[..31], &frame[..31]);
            }
        }
    }
}
