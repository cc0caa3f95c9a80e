//! Messages that are longer than a packet: cut into pieces by the sender ([`Cut`]), joined by the receiver ([`Joiner`]).
//!
//! A message that fits a packet is the payload of that packet. A longer one travels in consecutive packets of its kind; each says
//! in its header which piece it is ([`Piece`]). The payload of the first begins with the length of the message, 8 bytes,
//! little-endian, so that the receiver can refuse a message that is too long before it has stored any of it, and otherwise reserves
//! the memory once. Pieces are in the session's one sequence: they arrive in order, none is missing, and each takes
//! credit as any other packet does. Control messages may come between the pieces of a record, and records between those of a control
//! message, but no other packet of the same kind of traffic.

use crate::header::{HEADER_BYTES, Header, Piece};
use crate::packer::{MAX_PACKETS, MAX_SUPER_BYTES};
use crate::unit::Lengths;
use std::ops::{DerefMut, Range};

/// The longest control message in bytes: the longest description of a format twice (a wanted conversion names two), with room for
/// what JSON adds.
pub const MAX_CONTROL_BYTES: usize = 8 << 20;
/// The longest record and the longest mailbox message in bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Bytes of the length in front of a first piece; 8, so that what follows keeps its alignment.
const LENGTH_BYTES: usize = 8;

/// How a message is cut into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    message_bytes: usize,
    /// The longest packet, header included.
    packet_bytes: usize,
}

impl Cut {
    /// Cuts a message of `message_bytes` into packets of at most `packet_bytes` (header included).
    ///
    /// # Panics
    /// When a packet has no room for more than a header and a length, which is a mistake of the caller.
    #[must_use]
    pub fn new(message_bytes: usize, packet_bytes: usize) -> Cut {
        // A super-packet's packets begin at multiples of 8.
        let packet_bytes = packet_bytes.min(MAX_SUPER_BYTES) & !7;
        assert!(packet_bytes > HEADER_BYTES + LENGTH_BYTES, "a packet needs more than its header and a length");
        Cut { message_bytes, packet_bytes }
    }

    /// Number of packets.
    #[must_use]
    pub fn packets(self) -> u32 {
        if self.message_bytes <= self.payload_bytes() {
            return 1;
        }
        (self.message_bytes + LENGTH_BYTES).div_ceil(self.payload_bytes()) as u32
    }

    /// The packets by units of a sender: those that one system call sends.
    pub fn units(self) -> impl Iterator<Item = Range<u32>> {
        let (packets, most) = (self.packets(), (MAX_SUPER_BYTES / self.packet_bytes).clamp(1, MAX_PACKETS) as u32);
        (0..packets).step_by(most as usize).map(move |first| first..packets.min(first + most))
    }

    /// Bytes of the packets in `range`, headers included.
    #[must_use]
    pub fn bytes(self, range: Range<u32>) -> usize {
        range.map(|index| self.head_bytes(index) + self.range(index).len()).sum()
    }

    /// The lengths of the packets in `range`, as a sender counts them.
    #[must_use]
    pub fn lengths(self, range: Range<u32>) -> Lengths {
        Lengths { packets: range.len() as u32, stride: self.stride() as u64, bytes: self.bytes(range) as u64 }
    }

    /// The distance from one packet to the next, when several are sent at once: all but the last are so long.
    #[must_use]
    pub fn stride(self) -> usize {
        if self.packets() == 1 { HEADER_BYTES + self.message_bytes } else { self.packet_bytes }
    }

    /// The head of packet `index` before its part of the message. `template` has what is the same in all headers;
    /// packet 0 has sequence number `first_seq`.
    #[must_use]
    pub fn head(self, index: u32, template: &Header, first_seq: u64) -> Head {
        let (piece, len) = (self.piece(index), self.head_bytes(index));
        let payload_bytes = (len - HEADER_BYTES + self.range(index).len()) as u16;
        let header = Header { piece, payload_bytes, seq: first_seq.wrapping_add(index.into()), ..*template };
        let mut bytes = [0; HEADER_BYTES + LENGTH_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        bytes[HEADER_BYTES..].copy_from_slice(&(self.message_bytes as u64).to_le_bytes());
        Head { bytes, len }
    }

    /// Where the part of the message that is in packet `index` lies.
    #[must_use]
    pub fn range(self, index: u32) -> Range<usize> {
        if self.packets() == 1 {
            return 0..self.message_bytes;
        }
        let ends_at =
            |index: usize| (index * self.payload_bytes()).saturating_sub(LENGTH_BYTES).min(self.message_bytes);
        ends_at(index as usize)..ends_at(index as usize + 1)
    }

    fn payload_bytes(self) -> usize {
        self.packet_bytes - HEADER_BYTES
    }

    fn piece(self, index: u32) -> Piece {
        match (index, self.packets() - 1) {
            (_, 0) => Piece::Whole,
            (0, _) => Piece::First,
            (index, last) if index < last => Piece::Middle,
            _ => Piece::Last,
        }
    }

    fn head_bytes(self, index: u32) -> usize {
        HEADER_BYTES + if self.piece(index) == Piece::First { LENGTH_BYTES } else { 0 }
    }
}

/// The bytes of a packet before its part of the message: the header, and in a first piece the message's length.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; HEADER_BYTES + LENGTH_BYTES],
    len: usize,
}

impl Head {
    /// Nothing, as a place for one.
    pub const EMPTY: Head = Head { bytes: [0; HEADER_BYTES + LENGTH_BYTES], len: 0 };
}

impl std::ops::Deref for Head {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The error of a piece. A peer that sends such a piece does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PieceError {
    /// A piece that continues no message, or another message before the last piece of one.
    #[error("a piece of a message is out of place")]
    OutOfPlace,
    /// The pieces are not as long as the first one says.
    #[error("the pieces of a message are not as long as the first one says")]
    Length,
    /// The message is longer than its receiver takes.
    #[error("a message of {bytes} bytes, and at most {most} are taken")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// The longest that is taken.
        most: usize,
    },
}

/// The length of the message that a first piece's payload begins.
///
/// # Errors
/// [`PieceError::Length`] where it is shorter than that length, and [`PieceError::TooLong`] above `most` bytes.
pub fn announced_bytes(payload: &[u8], most: usize) -> Result<usize, PieceError> {
    let bytes = payload.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).ok_or(PieceError::Length)?;
    usize::try_from(bytes).ok().filter(|bytes| *bytes <= most).ok_or(PieceError::TooLong { bytes, most })
}

/// A first piece's payload: the length of the message, and the beginning of it.
///
/// # Errors
/// Those of [`announced_bytes`].
pub fn split_first(payload: &[u8], most: usize) -> Result<(usize, &[u8]), PieceError> {
    let bytes = announced_bytes(payload, most)?;
    Ok((bytes, payload.get(LENGTH_BYTES..).unwrap_or_default()))
}

/// How much of a message has come: the place in it of the piece that comes, and whether that piece may. It holds none of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    filled: usize,
    bytes: usize,
}

impl Filling {
    /// Begins a message of at most `most` bytes with its first piece; the part of its payload that is the message's.
    ///
    /// # Errors
    /// See [`PieceError`].
    pub fn begin(payload: &[u8], most: usize) -> Result<(Filling, &[u8]), PieceError> {
        let (bytes, part) = split_first(payload, most)?;
        let mut filling = Filling { filled: 0, bytes };
        filling.take(Piece::Middle, part.len()).map(|_| (filling, part))
    }

    /// Takes a piece of `len` bytes behind the first; its place in the message.
    ///
    /// # Errors
    /// See [`PieceError`].
    pub fn take(&mut self, piece: Piece, len: usize) -> Result<Range<usize>, PieceError> {
        if !matches!(piece, Piece::Middle | Piece::Last) {
            return Err(PieceError::OutOfPlace);
        }
        let end = self.filled + len;
        if end > self.bytes || (piece == Piece::Last && end < self.bytes) {
            return Err(PieceError::Length);
        }
        Ok(std::mem::replace(&mut self.filled, end)..end)
    }

    /// Bytes of the message.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Joins the pieces of one message at a time, in memory `B`.
#[derive(Debug)]
pub struct Joiner<B> {
    begun: Option<Begun<B>>,
}

#[derive(Debug)]
struct Begun<B> {
    memory: B,
    filling: Filling,
}

impl<B> Default for Joiner<B> {
    fn default() -> Joiner<B> {
        Joiner { begun: None }
    }
}

impl<B: DerefMut<Target = [u8]>> Joiner<B> {
    /// Bytes of the message with pieces missing; 0 when there is none.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.begun.as_ref().map_or(0, |begun| begun.filling.bytes)
    }

    /// Whether pieces are missing of a message.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Forgets the message with pieces missing.
    pub fn clear(&mut self) {
        self.begun = None;
    }

    /// Begins a message with its first piece. `memory` holds as many bytes as [`announced_bytes`] says, or more.
    ///
    /// # Errors
    /// See [`PieceError`].
    pub fn begin(&mut self, payload: &[u8], mut memory: B) -> Result<(), PieceError> {
        if self.begun.is_some() {
            return Err(PieceError::OutOfPlace);
        }
        let (filling, part) = Filling::begin(payload, memory.len())?;
        memory[..part.len()].copy_from_slice(part);
        self.begun = Some(Begun { memory, filling });
        Ok(())
    }

    /// Takes a piece behind the first; gives the message back when it was the last: its memory, and its length.
    ///
    /// # Errors
    /// See [`PieceError`].
    pub fn go_on(&mut self, piece: Piece, payload: &[u8]) -> Result<Option<(B, usize)>, PieceError> {
        let begun = self.begun.as_mut().ok_or(PieceError::OutOfPlace)?;
        let place = begun.filling.take(piece, payload.len())?;
        begun.memory[place].copy_from_slice(payload);
        let complete = if piece == Piece::Last { self.begun.take() } else { None };
        Ok(complete.map(|begun| (begun.memory, begun.filling.bytes)))
    }
}

impl Joiner<Vec<u8>> {
    /// Takes any piece of a message of at most `most` bytes into memory of its own; what is whole is given back as it is. The
    /// message, when it is complete.
    ///
    /// # Errors
    /// See [`PieceError`].
    pub fn take<'a>(&mut self, piece: Piece, payload: &'a [u8], most: usize) -> Result<Option<Joined<'a>>, PieceError> {
        match piece {
            Piece::Whole if self.begun.is_some() => Err(PieceError::OutOfPlace),
            Piece::Whole => Ok(Some(Joined::Whole(payload))),
            Piece::First => {
                let bytes = announced_bytes(payload, most)?;
                self.begin(payload, vec![0; bytes]).map(|()| None)
            }
            Piece::Middle | Piece::Last => {
                let joined = self.go_on(piece, payload)?;
                Ok(joined.map(|(memory, _)| Joined::Own(memory)))
            }
        }
    }
}

/// A complete message.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined<'a> {
    /// It came in one packet.
    Whole(&'a [u8]),
    /// It came in pieces.
    Own(Vec<u8>),
}

impl Joined<'_> {
    /// The bytes, copied if they lie in a packet.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Joined::Whole(bytes) => bytes.to_vec(),
            Joined::Own(bytes) => bytes,
        }
    }
}

impl std::ops::Deref for Joined<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Joined::Whole(bytes) => bytes,
            Joined::Own(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::PacketKind;
    use proptest::prelude::*;

    /// The packets of a message, as sent.
    fn packets(message: &[u8], cut: Cut) -> Vec<Vec<u8>> {
        let template = Header { stream: 3, format: 9, records: 1, ..Header::new(PacketKind::Data, 7) };
        let packet = |index| [&cut.head(index, &template, 100), &message[cut.range(index)]].concat();
        (0..cut.packets()).map(packet).collect()
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_message(len in 0usize..5_000, packet_bytes in 48usize..700) {
            let message: Vec<u8> = (0..len).map(|at| ((at * 31) >> 3) as u8).collect();
            let cut = Cut::new(len, packet_bytes);
            let packets = packets(&message, cut);
            let mut joiner = Joiner::default();
            let mut complete = None;
            for (at, packet) in packets.iter().enumerate() {
                prop_assert!(complete.is_none());
                prop_assert!(packet.len() <= packet_bytes);
                // All but the last are as long as the stride, as segmentation demands.
                prop_assert!(at + 1 == packets.len() || packet.len() == cut.stride());
                let header = Header::read(packet).unwrap();
                prop_assert_eq!((header.seq, header.stream, header.format), (100 + at as u64, 3, 9));
                prop_assert_eq!(usize::from(header.payload_bytes), packet.len() - HEADER_BYTES);
                let joined = joiner.take(header.piece, &packet[HEADER_BYTES..], len).unwrap();
                complete = joined.map(|joined| joined.to_vec());
            }
            prop_assert_eq!(complete, Some(message));
            prop_assert!(!joiner.has_begun());
            let units: Vec<_> = cut.units().collect();
            prop_assert_eq!(units.iter().map(|unit| cut.bytes(unit.clone())).sum::<usize>(), packets.concat().len());
            prop_assert!(units.iter().all(|unit| (1..=MAX_PACKETS).contains(&unit.len())));
            prop_assert_eq!(units.concat_ranges(), (0..cut.packets()).collect::<Vec<_>>());
        }

        #[test]
        fn any_pieces_are_taken_without_panic(
            pieces in proptest::collection::vec((0u8..4, proptest::collection::vec(any::<u8>(), 0..40), 0u64..100), 0..20),
        ) {
            let mut joiner = Joiner::default();
            for (piece, mut payload, bytes) in pieces {
                let piece = [Piece::Whole, Piece::First, Piece::Middle, Piece::Last][usize::from(piece)];
                if piece == Piece::First && payload.len() >= LENGTH_BYTES {
                    payload[..LENGTH_BYTES].copy_from_slice(&bytes.to_le_bytes());
                }
                match joiner.take(piece, &payload, 64) {
                    Ok(Some(joined)) => prop_assert!(joined.len() <= 64),
                    Ok(None) => prop_assert!(joiner.bytes() <= 64),
                    // A session ends with such an error.
                    Err(_) => joiner.clear(),
                }
            }
        }
    }

    trait ConcatRanges {
        fn concat_ranges(&self) -> Vec<u32>;
    }

    impl ConcatRanges for Vec<Range<u32>> {
        fn concat_ranges(&self) -> Vec<u32> {
            self.iter().cloned().flatten().collect()
        }
    }

    #[test]
    fn errors_of_a_piece_are_named() {
        let first = |bytes: u64| [&bytes.to_le_bytes()[..], b"abcd"].concat();
        let take = |pieces: &[(Piece, &[u8])]| {
            let mut joiner = Joiner::default();
            let results: Vec<_> = pieces.iter().map(|(piece, payload)| joiner.take(*piece, payload, 10)).collect();
            results.into_iter().find_map(Result::err)
        };
        use Piece::{First, Last, Middle, Whole};
        assert_eq!(take(&[(Middle, b"ab")]), Some(PieceError::OutOfPlace));
        assert_eq!(take(&[(Last, b"ab")]), Some(PieceError::OutOfPlace));
        assert_eq!(take(&[(First, &first(6)), (Whole, b"ab")]), Some(PieceError::OutOfPlace));
        assert_eq!(take(&[(First, &first(6)), (First, &first(6))]), Some(PieceError::OutOfPlace));
        assert_eq!(take(&[(First, b"short")]), Some(PieceError::Length));
        assert_eq!(take(&[(First, &first(3))]), Some(PieceError::Length));
        assert_eq!(take(&[(First, &first(6)), (Last, b"a")]), Some(PieceError::Length));
        assert_eq!(take(&[(First, &first(6)), (Last, b"abc")]), Some(PieceError::Length));
        assert_eq!(take(&[(First, &first(11))]), Some(PieceError::TooLong { bytes: 11, most: 10 }));
        assert_eq!(take(&[(First, &first(u64::MAX))]), Some(PieceError::TooLong { bytes: u64::MAX, most: 10 }));
        assert_eq!(take(&[(First, &first(6)), (Middle, b"a"), (Last, b"b"), (Whole, b"x")]), None);
    }
}
