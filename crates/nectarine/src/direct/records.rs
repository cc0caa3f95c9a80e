//! The records that arrive, and those that are longer than a packet.

use crate::incoming::{Arrived, Bytes};
use crate::settings::DeliveryClass;
use crossdock_format::record_len;
use crossdock_transport::handshake::MIN_PACKET_BYTES;
use crossdock_transport::header::{HEADER_BYTES, PayloadSpan};
use crossdock_transport::pieces::announced_bytes;
use crossdock_transport::{Filling, Joiner, MAX_MESSAGE_BYTES, PacketKind, Piece, PieceError};
use std::sync::OnceLock;

/// The longest record that stays in the buffers in which its pieces came, while many are free. A longer one would leave the session
/// too few of them.
const MOST_IN_PIECES: usize = 1 << 20;
/// The most runs of packets that such a record comes in: each of the shortest packets of a path is one.
const MOST_RUNS: usize = MOST_IN_PIECES / (MIN_PACKET_BYTES as usize - HEADER_BYTES) + 2;

/// Records that arrived together. They hold the buffers in which they came until they are dropped.
pub struct DirectRecords {
    first: Arrived,
    /// Of a record in pieces, those that came after it.
    rest: Vec<Arrived>,
    /// Such a record at one place, from when it was first read so.
    joined: Option<OnceLock<Vec<u8>>>,
}

impl From<Arrived> for DirectRecords {
    fn from(first: Arrived) -> DirectRecords {
        DirectRecords { first, rest: Vec::new(), joined: None }
    }
}

impl DirectRecords {
    /// The records' format, by its id.
    #[must_use]
    pub fn format(&self) -> u64 {
        self.first.header.format
    }

    /// Whether they came reliably, or are datagrams.
    #[must_use]
    pub fn class(&self) -> DeliveryClass {
        if self.is_datagrams() { DeliveryClass::Datagram } else { DeliveryClass::Reliable }
    }

    /// The records' bytes, in order. Their lengths were looked at, nothing else: check them before they are read. A record that came
    /// in pieces is copied to one place at the first call.
    pub fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        let join = || self.fragments().collect::<Vec<_>>().concat();
        let joined = self.joined.as_ref().map(|joined| joined.get_or_init(join).as_slice());
        let whole = joined.is_none().then(|| self.first.payloads());
        joined.into_iter().chain(whole.into_iter().flatten()).flat_map(|mut rest| {
            std::iter::from_fn(move || {
                let (record, after) = rest.split_at_checked(record_len(rest)?)?;
                rest = after;
                Some(record)
            })
        })
    }

    /// All that came, where it lies, without a copy: one slice a packet, of several records or, for a record longer than a packet, of
    /// a part of it.
    pub fn fragments(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.first).chain(&self.rest).flat_map(Arrived::payloads)
    }

    pub(super) fn is_datagrams(&self) -> bool {
        self.first.header.kind == PacketKind::Datagram
    }

    /// The credit's count of units, up to the last of these.
    pub(super) fn data_end(&self) -> u64 {
        self.rest.last().unwrap_or(&self.first).data_end
    }
}

/// A record whose pieces have come in part.
#[derive(Default)]
pub(super) enum Unfinished {
    /// None.
    #[default]
    Nothing,
    /// One whose pieces stay where they are.
    InPieces(Filling, DirectRecords),
    /// One that is joined as it comes.
    Joining(Joiner<Vec<u8>>),
}

impl Unfinished {
    pub(super) fn is_there(&self) -> bool {
        !matches!(self, Unfinished::Nothing)
    }

    /// Takes a run of packets, each with a piece of a record; the record, if the last piece is among them. One that begins may stay in
    /// pieces, or not.
    ///
    /// # Errors
    /// See [`PieceError`].
    pub(super) fn take(&mut self, arrived: Arrived, may_stay: bool) -> Result<Option<DirectRecords>, PieceError> {
        let piece = arrived.header.piece;
        if arrived.spans.is_empty() {
            return Ok(None);
        }
        // A record has one first piece and one last.
        if piece != Piece::Middle && arrived.spans.len() != 1 {
            return Err(PieceError::OutOfPlace);
        }
        if piece == Piece::First {
            return self.begin(arrived, may_stay).map(|()| None);
        }
        match std::mem::take(self) {
            Unfinished::Nothing => Err(PieceError::OutOfPlace),
            Unfinished::InPieces(mut filling, mut records) => {
                for payload in arrived.payloads() {
                    filling.take(piece, payload.len())?;
                }
                if records.rest.len() == MOST_RUNS {
                    return Err(PieceError::Length);
                }
                records.rest.push(arrived);
                if piece == Piece::Last {
                    return Ok(Some(records));
                }
                *self = Unfinished::InPieces(filling, records);
                Ok(None)
            }
            Unfinished::Joining(mut joiner) => {
                for payload in arrived.payloads() {
                    let Some((bytes, _)) = joiner.go_on(piece, payload)? else { continue };
                    let span = PayloadSpan { start: 0, len: bytes.len() as u32, records: arrived.header.records };
                    let record = Arrived { bytes: Bytes::Joined(bytes), spans: vec![span], ..arrived };
                    return Ok(Some(record.into()));
                }
                *self = Unfinished::Joining(joiner);
                Ok(None)
            }
        }
    }

    fn begin(&mut self, mut first: Arrived, may_stay: bool) -> Result<(), PieceError> {
        let [span] = &mut first.spans[..] else { return Err(PieceError::OutOfPlace) };
        if self.is_there() {
            return Err(PieceError::OutOfPlace);
        }
        let payload = &first.bytes[span.range()];
        let bytes = announced_bytes(payload, MAX_MESSAGE_BYTES)?;
        if bytes > MOST_IN_PIECES || !may_stay {
            let mut joiner = Joiner::default();
            joiner.begin(payload, vec![0; bytes])?;
            *self = Unfinished::Joining(joiner);
            return Ok(());
        }
        let (filling, part) = Filling::begin(payload, MAX_MESSAGE_BYTES)?;
        let part_bytes = part.len() as u32;
        *span = PayloadSpan { start: span.start + span.len - part_bytes, len: part_bytes, ..*span };
        *self = Unfinished::InPieces(filling, DirectRecords { joined: Some(OnceLock::new()), ..first.into() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_transport::Header;
    use proptest::prelude::*;

    /// A run of packets with these payloads, as it arrives: each is a piece of this kind.
    fn run(piece: Piece, payloads: &[Vec<u8>]) -> Arrived {
        let mut bytes = Vec::new();
        let spans = payloads.iter().map(|payload| {
            // Headers and padding lie between payloads.
            bytes.extend([0xee; 5]);
            let span = PayloadSpan { start: bytes.len() as u32, len: payload.len() as u32, records: 1 };
            bytes.extend(payload);
            span
        });
        let spans = spans.collect();
        let header = Header { piece, format: 7, ..Header::new(PacketKind::Data, 1) };
        Arrived { bytes: Bytes::Joined(bytes), header, spans, data_end: payloads.len() as u64 }
    }

    fn first(announced: usize, part: &[u8]) -> Arrived {
        run(Piece::First, &[[&(announced as u64).to_le_bytes(), part].concat()])
    }

    /// A record of `len` bytes, as far as the session looks into it.
    fn record(len: usize) -> Vec<u8> {
        let mut record: Vec<u8> = (0..len).map(|at| ((at * 31) >> 3) as u8).collect();
        record[..4].copy_from_slice(&(len as u32).to_le_bytes());
        record
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_record_in_pieces_is_whole_when_its_last_piece_has_come(
            over in 0usize..3, may_stay: bool, words in 2usize..40_000, cut in 1000usize..70_000, together in 1usize..5,
        ) {
            let record = record(over * MOST_IN_PIECES + 8 * words);
            let (head, rest) = record.split_at(cut.min(record.len() - 1));
            let mut pieces: Vec<Vec<u8>> = rest.chunks(cut).map(<[u8]>::to_vec).collect();
            let last = pieces.pop().unwrap();
            let mut unfinished = Unfinished::default();
            prop_assert!(unfinished.take(first(record.len(), head), may_stay).unwrap().is_none());
            for middle in pieces.chunks(together) {
                prop_assert!(unfinished.take(run(Piece::Middle, middle), may_stay).unwrap().is_none());
                prop_assert!(unfinished.is_there());
            }
            let records = unfinished.take(run(Piece::Last, &[last]), may_stay).unwrap().unwrap();
            prop_assert!(!unfinished.is_there());
            prop_assert_eq!((records.format(), records.class()), (7, DeliveryClass::Reliable));
            prop_assert!(records.fragments().collect::<Vec<_>>().concat() == record);
            let is_copied = records.fragments().count() == 1;
            prop_assert_eq!(is_copied, record.len() > MOST_IN_PIECES || !may_stay);
            for _ in 0..2 {
                prop_assert!(records.bytes().collect::<Vec<_>>() == [&record[..]]);
            }
        }
    }

    #[test]
    fn pieces_that_are_out_of_place_or_of_other_lengths_are_errors() {
        let middle = |len: usize| run(Piece::Middle, &[vec![1; len]]);
        let last = |len: usize| run(Piece::Last, &[vec![1; len]]);
        for base in [100, MOST_IN_PIECES + 100] {
            let after = |pieces: Vec<Arrived>| {
                let mut unfinished = Unfinished::default();
                pieces.into_iter().find_map(|piece| unfinished.take(piece, true).err())
            };
            let begun = || first(base, &[1; 40]);
            assert_eq!(after(vec![middle(1)]), Some(PieceError::OutOfPlace));
            assert_eq!(after(vec![last(1)]), Some(PieceError::OutOfPlace));
            assert_eq!(after(vec![begun(), begun()]), Some(PieceError::OutOfPlace));
            assert_eq!(after(vec![begun(), run(Piece::Whole, &[vec![1]])]), Some(PieceError::OutOfPlace));
            assert_eq!(after(vec![begun(), run(Piece::Last, &[vec![1], vec![1]])]), Some(PieceError::OutOfPlace));
            assert_eq!(after(vec![begun(), middle(base)]), Some(PieceError::Length));
            assert_eq!(after(vec![begun(), last(base - 41)]), Some(PieceError::Length));
            assert_eq!(after(vec![begun(), last(base - 39)]), Some(PieceError::Length));
            assert_eq!(after(vec![begun(), last(base - 40)]), None);
        }
        let mut empty = Unfinished::default();
        empty.take(first(100, &[1; 40]), true).unwrap();
        let taken = (0..).find(|_| empty.take(run(Piece::Middle, &[Vec::new()]), true).is_err());
        assert_eq!(taken, Some(MOST_RUNS), "pieces without a byte hold buffers too");
        let mut unfinished = Unfinished::default();
        assert_eq!(unfinished.take(run(Piece::First, &[vec![1; 7]]), true).err(), Some(PieceError::Length));
        let too_long = MAX_MESSAGE_BYTES + 1;
        let error = PieceError::TooLong { bytes: too_long as u64, most: MAX_MESSAGE_BYTES };
        assert_eq!(unfinished.take(first(too_long, &[]), true).err(), Some(error));
    }
}
