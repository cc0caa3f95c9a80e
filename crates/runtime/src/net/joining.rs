//! Messages that come in pieces, until they are whole: the memory is reserved when the first piece comes.
//!
//! Records stay in the buffers that their pieces came in ([`ArrivingRecord`]). Control and mailbox messages are joined in memory of
//! their own, which has a bound for the context. A peer that begins a message and does not end it holds that memory, so when there
//! is none left, peers whose message has not grown whole for as long as a session may be silent are disconnected.

use super::Net;
use crate::graph::bounds::PIECE_BYTES;
use crate::graph::build::alone;
use crossdock_mailbox::{Batch, Buffer, BufferMut, Slice};
use crossdock_transport::pieces::{Joined, announced_bytes};
use crossdock_transport::{Filling, Header, Joiner, MAX_CONTROL_BYTES, MAX_SUPER_BYTES, PacketKind, Piece, PieceError};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of control and mailbox messages that a context joins at a time: eight of the longest control messages.
const MAX_JOINING_BYTES: usize = 64 << 20;
/// Buffers of a class that stay free when a record begins: what nodes make of one finds memory.
const SPARE_LONG: usize = 1;
/// Fewest bytes of a piece that stays where it came, unless it is the last: so a super-packet is sent out of few slices.
pub(crate) const LEAST_PIECE_BYTES: usize = 1 << 10;
/// Bytes of the buffers in which pieces stay beyond twice those of the pieces: a buffer that is filled badly, or just begun.
const SPARE_BUFFER_BYTES: usize = 128 << 10;

/// A peer's messages with pieces missing. Of each kind of traffic, one at a time can be.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    control: Joiner<Vec<u8>>,
    mailbox: Joiner<Vec<u8>>,
    record: Option<ArrivingRecord>,
    /// When the latest of them began, in ns.
    began_ns: u64,
}

impl Joining {
    fn own(&mut self, kind: PacketKind) -> &mut Joiner<Vec<u8>> {
        if kind == PacketKind::Message { &mut self.mailbox } else { &mut self.control }
    }

    /// Bytes of memory of its own.
    fn own_bytes(&self) -> usize {
        self.control.bytes() + self.mailbox.bytes()
    }

    fn has_begun(&self) -> bool {
        self.own_bytes() > 0 || self.record.is_some()
    }

    /// Whether a record has begun.
    pub(crate) fn has_record(&self) -> bool {
        self.record.is_some()
    }
}

/// A record with pieces missing.
///
/// Its pieces stay where they came, as slices, and `memory` for all of it is reserved beside them, so that it can be joined at any
/// time. The first piece that cannot stay has it joined, and the following ones are copied behind that.
#[derive(Debug)]
struct ArrivingRecord {
    filling: Filling,
    memory: BufferMut,
    /// The pieces so far; none once they are joined.
    slices: Option<Batch>,
    /// Bytes of the buffers that they are in.
    held_bytes: usize,
}

impl ArrivingRecord {
    /// Begins a record with its first piece. One that fits a packet is copied with others where it leaves, so it is joined at once.
    fn begin(payload: &[u8], place: Option<PiecePlace<'_>>, memory: BufferMut) -> Result<ArrivingRecord, PieceError> {
        let (filling, part) = Filling::begin(payload, memory.len())?;
        let slices = (filling.bytes() > PIECE_BYTES).then(Batch::new);
        let mut record = ArrivingRecord { filling, memory, slices, held_bytes: 0 };
        let place = place.map(|place| PiecePlace { start: place.start + (payload.len() - part.len()), ..place });
        record.put(0..part.len(), part, place);
        Ok(record)
    }

    /// Takes a piece behind the first.
    fn go_on(&mut self, piece: Piece, payload: &[u8], place: Option<PiecePlace<'_>>) -> Result<(), PieceError> {
        let range = self.filling.take(piece, payload.len())?;
        self.put(range, payload, place);
        Ok(())
    }

    fn put(&mut self, range: Range<usize>, bytes: &[u8], place: Option<PiecePlace<'_>>) {
        if self.slices.is_some() && !place.is_some_and(|place| self.keep(&range, place)) {
            self.join();
        }
        if self.slices.is_none() {
            self.memory[range].copy_from_slice(bytes);
        }
    }

    /// Keeps a piece where it is; false if it cannot stay there.
    fn keep(&mut self, range: &Range<usize>, PiecePlace { buffer, start }: PiecePlace<'_>) -> bool {
        let Some(slices) = &mut self.slices else { return false };
        let is_long = range.len() >= LEAST_PIECE_BYTES || range.end == self.filling.bytes();
        if !slices.buffers.last().is_some_and(|last| last.same(buffer)) {
            self.held_bytes += buffer.capacity();
            if slices.push_buffer(buffer.clone()).is_err() {
                return false;
            }
        }
        let buffer = (slices.buffers.len() - 1) as u16;
        let slice = Slice { buffer, start: start as u32, len: range.len() as u32, records: 0 };
        is_long && self.held_bytes <= 2 * range.end + SPARE_BUFFER_BYTES && slices.push_slice(slice).is_ok()
    }

    /// Copies the pieces so far into the memory for all.
    #[cold]
    fn join(&mut self) {
        self.slices.take().into_iter().for_each(|slices| slices.copy_slices(&mut self.memory));
    }

    /// The record as a batch, now that it is whole; one that was joined counts in `joins`.
    fn finish(mut self, joins: &Arc<AtomicU64>) -> Batch {
        let len = self.filling.bytes();
        let memory = match self.slices.take() {
            None => self.memory,
            Some(mut slices) => match slices.put_in_pieces(self.memory, joins) {
                Ok(()) => return slices,
                Err(mut memory) => {
                    slices.copy_slices(&mut memory);
                    memory
                }
            },
        };
        joins.fetch_add(1, Ordering::Relaxed);
        alone(memory.freeze(), len, 0)
    }
}

/// The place of a piece that lies in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PiecePlace<'a> {
    /// The buffer.
    pub(crate) buffer: &'a Buffer,
    /// The piece's first byte there.
    pub(crate) start: usize,
}

/// Why a piece of a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its peer does not keep to the protocol, or the message is too long.
    Piece(PieceError),
    /// There is no memory for the message now.
    NoMemory,
}

impl From<PieceError> for Refused {
    fn from(error: PieceError) -> Refused {
        Refused::Piece(error)
    }
}

impl Net {
    /// The longest record that is taken, in bytes.
    pub(crate) fn most_record_bytes(&self) -> usize {
        self.most_record_bytes
    }

    /// Takes a packet of control or mailbox messages: the message, when it is whole.
    ///
    /// # Errors
    /// Why it is not taken; the peer is to be disconnected.
    pub(crate) fn join<'a>(
        &mut self,
        key: usize,
        header: &Header,
        payload: &'a [u8],
    ) -> Result<Option<Joined<'a>>, Refused> {
        let now_ns = self.now_ns();
        // As many mailbox messages wait as a writer has credit for, so each is short.
        let most = if header.kind == PacketKind::Control { MAX_CONTROL_BYTES } else { MAX_SUPER_BYTES };
        let mut more = 0;
        if header.piece == Piece::First {
            more = announced_bytes(payload, most)?;
            if self.joining_bytes + more > MAX_JOINING_BYTES {
                return Err(Refused::NoMemory);
            }
        }
        let Some(peer) = self.peers.present_mut(key) else { return Ok(None) };
        let joiner = peer.joining.own(header.kind);
        let before = joiner.bytes();
        let joined = joiner.take(header.piece, payload, most)?;
        let after = joiner.bytes();
        if more > 0 {
            peer.joining.began_ns = now_ns;
        }
        self.joining_bytes = self.joining_bytes + after - before;
        Ok(joined)
    }

    /// Whether a record that begins with this first piece finds memory. One that is too long or malformed does: it is refused when
    /// it is taken.
    pub(crate) fn has_memory_for(&mut self, first: &[u8]) -> bool {
        match announced_bytes(first, self.most_record_bytes) {
            Ok(bytes) => {
                let has_free = self.pool.has_free(bytes, 1 + SPARE_LONG);
                self.lacks_memory |= !has_free;
                has_free
            }
            Err(_) => true,
        }
    }

    /// Whether a record found no memory since this was last asked.
    pub(crate) fn take_lacks_memory(&mut self) -> bool {
        std::mem::take(&mut self.lacks_memory)
    }

    /// Takes a piece of a record, which lies in `place` if it may stay there. The record, when it is whole: a batch without stream and
    /// format.
    ///
    /// # Errors
    /// Why it is not taken. Where there is no memory, nothing has changed, and it may be taken later.
    pub(crate) fn join_record(
        &mut self,
        key: usize,
        piece: Piece,
        payload: &[u8],
        place: Option<PiecePlace<'_>>,
    ) -> Result<Option<Batch>, Refused> {
        let now_ns = self.now_ns();
        let mut memory = None;
        if piece == Piece::First {
            let bytes = announced_bytes(payload, self.most_record_bytes)?;
            let has_free = self.pool.has_free(bytes, 1 + SPARE_LONG);
            memory = Some(has_free.then(|| self.pool.alloc(bytes)).flatten().ok_or(Refused::NoMemory)?);
        }
        // So records in pieces leave enough buffers to all else, however long their readers hold them.
        let place = place.filter(|place| self.pool.is_mostly_free(place.buffer));
        let Some(peer) = self.peers.present_mut(key) else { return Ok(None) };
        let Joining { record, began_ns, .. } = &mut peer.joining;
        match (&mut *record, memory) {
            (None, Some(memory)) => {
                (*record, *began_ns) = (Some(ArrivingRecord::begin(payload, place, memory)?), now_ns);
            }
            (Some(record), None) => record.go_on(piece, payload, place)?,
            _ => return Err(PieceError::OutOfPlace.into()),
        }
        let complete = if piece == Piece::Last { record.take() } else { None };
        Ok(complete.map(|record| record.finish(&self.counters.messages_joined)))
    }

    /// Whether a peer has begun a record with pieces missing: then no other data may come.
    #[inline]
    pub(crate) fn has_begun_record(&self, key: usize) -> bool {
        self.peers.get(key).is_some_and(|peer| peer.joining.has_record())
    }

    /// A peer that began a message long ago and has not ended it, while others find no memory.
    pub(crate) fn slowest_joining(&self, patience_ns: u64) -> Option<usize> {
        let began_before_ns = self.now_ns().saturating_sub(patience_ns);
        let slow =
            self.peers.iter().filter(|(_, peer)| peer.joining.has_begun() && peer.joining.began_ns < began_before_ns);
        slow.min_by_key(|(_, peer)| peer.joining.began_ns).map(|(key, _)| key)
    }

    /// The memory of a peer's messages that were not whole is free again, as the peer ends.
    pub(super) fn forget_joining(&mut self, joining: &Joining) {
        self.joining_bytes -= joining.own_bytes();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crossdock_mailbox::{Pool, PoolConfig};
    use fastrand::Rng;

    fn pool(large: usize) -> Pool {
        Pool::new(PoolConfig { classes: vec![(64 << 10, large), (1 << 20, 2)] }).unwrap()
    }

    /// The payloads of the pieces of a record: the first one begins with its length.
    fn pieces(record: &[u8], rng: &mut Rng) -> Vec<Vec<u8>> {
        let (mut pieces, mut at) = (Vec::new(), 0);
        let most = [2_000, 20_000, 60_000][rng.usize(..3)];
        while at < record.len() || pieces.len() < 2 {
            let least = if rng.u8(..64) == 0 { 0 } else { LEAST_PIECE_BYTES };
            let bytes = rng.usize(least..most).min(record.len() - at);
            let head = if pieces.is_empty() { (record.len() as u64).to_le_bytes().to_vec() } else { Vec::new() };
            pieces.push([&head, &record[at..at + bytes]].concat());
            at += bytes;
        }
        pieces
    }

    /// Frames with these payloads, each in that of the one before or in one of its own, and behind a header: the frame of each, and its
    /// first byte there.
    fn frames(pool: &mut Pool, payloads: &[Vec<u8>], rng: &mut Rng) -> (Vec<Buffer>, Vec<(usize, usize)>) {
        let (mut frames, mut places, mut used): (Vec<BufferMut>, _, _) = (Vec::new(), Vec::new(), 0);
        for payload in payloads {
            let is_full = frames.last().is_none_or(|frame| used + 40 + payload.len() > frame.capacity());
            if is_full || rng.u8(..4) == 0 {
                let mut frame = pool.alloc(64 << 10).unwrap();
                frame.fill(0xee);
                frames.push(frame);
                used = 0;
            }
            let (frame, start) = (frames.len() - 1, used + 40);
            frames[frame][start..start + payload.len()].copy_from_slice(payload);
            places.push((frame, start));
            used = start + payload.len();
        }
        (frames.into_iter().map(BufferMut::freeze).collect(), places)
    }

    /// Wherever pieces lie, and wherever they have to be joined: the record is the same, and is joined once at most.
    #[test]
    fn pieces_make_the_record_wherever_they_may_stay() {
        let (mut stayed, mut were_joined) = (0, 0);
        for seed in 0..400 {
            let (mut rng, mut pool, joins) = (Rng::with_seed(seed), pool(400), Arc::new(AtomicU64::new(0)));
            let record: Vec<u8> = (0..rng.usize(1..300_000)).map(|at| ((at * 13) >> 4) as u8).collect();
            let mut memory = Some(pool.alloc(record.len()).unwrap());
            let payloads = pieces(&record, &mut rng);
            let (frames, places) = frames(&mut pool, &payloads, &mut rng);
            let leaves_some = rng.u8(..3) == 0;
            let mut arriving = None::<ArrivingRecord>;
            for (at, (payload, (frame, start))) in payloads.iter().zip(places).enumerate() {
                let place = PiecePlace { buffer: &frames[frame], start };
                let place = Some(place).filter(|_| !(leaves_some && rng.u8(..4) == 0));
                let piece = if at + 1 == payloads.len() { Piece::Last } else { Piece::Middle };
                match &mut arriving {
                    None => arriving = Some(ArrivingRecord::begin(payload, place, memory.take().unwrap()).unwrap()),
                    Some(arriving) => arriving.go_on(piece, payload, place).unwrap(),
                }
            }
            let batch = arriving.unwrap().finish(&joins);
            assert_eq!(joins.load(Ordering::Relaxed), u64::from(!batch.is_in_pieces()), "seed {seed}");
            assert_eq!((batch.len(), batch.payload_bytes()), (1, record.len()), "seed {seed}");
            assert!(batch.fragments(0).range(0..record.len()).flatten().eq(&record), "seed {seed}");
            assert!(batch.record(0) == record, "seed {seed}");
            assert_eq!(joins.load(Ordering::Relaxed), 1, "seed {seed}");
            let held: usize = batch.buffers.iter().map(Buffer::capacity).sum();
            assert!(!batch.is_in_pieces() || held <= 2 * record.len() + SPARE_BUFFER_BYTES, "seed {seed}: {held}");
            stayed += u32::from(batch.is_in_pieces());
            were_joined += u32::from(!batch.is_in_pieces());
        }
        assert!(stayed > 30 && were_joined > 30, "{stayed} stayed, {were_joined} were joined");
    }
}
