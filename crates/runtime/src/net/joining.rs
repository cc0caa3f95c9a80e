//! Messages that come in pieces, until they are whole: the memory is reserved when the first piece comes.
//!
//! Records are joined in buffers of the context's pool, where nodes read them. Control and mailbox messages are joined in memory of
//! their own, which has a bound for the context. A peer that begins a message and does not end it holds that memory, so when there
//! is none left, peers whose message has not grown whole for as long as a session may be silent are disconnected.

use super::Net;
use crossdock_mailbox::{Buffer, BufferMut};
use crossdock_transport::pieces::{Joined, announced_bytes};
use crossdock_transport::{Header, Joiner, MAX_CONTROL_BYTES, MAX_SUPER_BYTES, PacketKind, Piece, PieceError};

/// Bytes of control and mailbox messages that a context joins at a time: eight of the longest control messages.
const MAX_JOINING_BYTES: usize = 64 << 20;
/// Buffers of a class that stay free when a record begins: what nodes make of one finds memory.
const SPARE_LONG: usize = 1;

/// A peer's messages with pieces missing. Of each kind of traffic, one at a time can be.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    control: Joiner<Vec<u8>>,
    mailbox: Joiner<Vec<u8>>,
    record: Joiner<BufferMut>,
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
        self.own_bytes() > 0 || self.record.has_begun()
    }

    /// Whether a record is being joined.
    pub(crate) fn has_record(&self) -> bool {
        self.record.has_begun()
    }
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

/// The result of a piece of a record.
#[derive(Debug)]
pub(crate) enum RecordPiece {
    /// It was taken, and others are missing.
    Taken,
    /// The record is whole: the first `len` bytes of the buffer.
    Record {
        /// The buffer.
        buffer: Buffer,
        /// Bytes of the record.
        len: usize,
    },
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

    /// Takes a piece of a record.
    ///
    /// # Errors
    /// Why it is not taken. Where there is no memory, nothing has changed, and it may be taken later.
    pub(crate) fn join_record(&mut self, key: usize, piece: Piece, payload: &[u8]) -> Result<RecordPiece, Refused> {
        let now_ns = self.now_ns();
        if piece == Piece::First {
            let bytes = announced_bytes(payload, self.most_record_bytes)?;
            let has_free = self.pool.has_free(bytes, 1 + SPARE_LONG);
            let memory = has_free.then(|| self.pool.alloc(bytes)).flatten().ok_or(Refused::NoMemory)?;
            let Some(peer) = self.peers.present_mut(key) else { return Ok(RecordPiece::Taken) };
            peer.joining.began_ns = now_ns;
            peer.joining.record.begin(payload, memory)?;
            return Ok(RecordPiece::Taken);
        }
        let Some(peer) = self.peers.present_mut(key) else { return Ok(RecordPiece::Taken) };
        Ok(match peer.joining.record.go_on(piece, payload)? {
            Some((memory, len)) => RecordPiece::Record { buffer: memory.freeze(), len },
            None => RecordPiece::Taken,
        })
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
