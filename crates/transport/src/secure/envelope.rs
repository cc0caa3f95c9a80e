//! The heads of envelopes. All integers are little-endian; what is not named is zero.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | what it is: 0xc1 initial, 0xc2 cookie, 0xc3 response, 0xc4 data, 0xc5 refusal |
//! | 1 | initial: the version of the handshake, 0x10; data: the key's phase |
//! | 2 | initial: 1 if the client uses mailboxes; refusal: the code ([`Code`]) |
//! | 4..8 | initial: the client's index; else the receiver's |
//! | 8..16 | data: the packet's number |
//!
//! The first byte of a packet without an envelope is the version of the wire format, which stays below 0xc0.

use super::noise::{FIRST_MESSAGE_BYTES, SECOND_MESSAGE_BYTES};

/// Bytes of an envelope's head.
pub const HEAD_BYTES: usize = 16;
/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 16;
/// Bytes of an initial: longer than any answer to it.
pub const INITIAL_BYTES: usize = HEAD_BYTES + COOKIE_BYTES + FIRST_MESSAGE_BYTES;
/// Bytes of the envelope with a cookie.
pub const COOKIE_REPLY_BYTES: usize = HEAD_BYTES + COOKIE_BYTES;
/// Bytes of a response.
pub const RESPONSE_BYTES: usize = HEAD_BYTES + SECOND_MESSAGE_BYTES;
const _: () = assert!(COOKIE_REPLY_BYTES <= INITIAL_BYTES && RESPONSE_BYTES <= INITIAL_BYTES, "no amplification");

/// The version of the handshake. No kind of a packet without an envelope has this number, so that no daemon takes an initial for
/// the hello of another version of the wire format.
pub const HANDSHAKE_VERSION: u8 = 0x10;

const INITIAL: u8 = 0xc1;
const COOKIE: u8 = 0xc2;
const RESPONSE: u8 = 0xc3;
const DATA: u8 = 0xc4;
const REFUSAL: u8 = 0xc5;

/// Whether the packet is in an envelope, by its first byte.
#[inline]
#[must_use]
pub fn is_envelope(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| *first >= 0xc0)
}

/// Why a daemon refuses a client, as the client learns it. Nothing proves that a refusal comes from the daemon, so it is a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The client's key is not authorised.
    UnknownKey = 1,
    /// The packet was in no envelope, and has to be.
    Unprotected = 2,
    /// There are no keys for the index: the daemon has been restarted, or has forgotten the client.
    UnknownIndex = 3,
    /// The daemon has as many clients as it takes.
    Limit = 4,
}

impl Code {
    fn from_byte(byte: u8) -> Option<Code> {
        [Code::UnknownKey, Code::Unprotected, Code::UnknownIndex, Code::Limit]
            .into_iter()
            .find(|code| *code as u8 == byte)
    }
}

/// The head of a data envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// The receiver's index for the keys.
    pub index: u32,
    /// The phase of the key that it is sealed with.
    pub phase: u8,
    /// Its number; the sender uses none twice.
    pub number: u64,
}

impl DataHead {
    /// The head as bytes, which are also the associated data of the seal.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut head = head(DATA, self.phase, 0, self.index);
        head[8..].copy_from_slice(&self.number.to_le_bytes());
        head
    }
}

/// A client's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initial<'a> {
    /// The head's bytes and the cookie, which the handshake authenticates.
    pub prologue: &'a [u8; HEAD_BYTES + COOKIE_BYTES],
    /// The client's index for the keys.
    pub index: u32,
    /// Whether the client uses mailboxes.
    pub uses_mailboxes: bool,
    /// The cookie; zeros in the first one.
    pub cookie: &'a [u8; COOKIE_BYTES],
    /// The handshake's message; zeros in the first one.
    pub message: &'a [u8; FIRST_MESSAGE_BYTES],
}

/// An envelope, by its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope<'a> {
    /// A client's first message.
    Initial(Initial<'a>),
    /// The cookie for the client's address.
    Cookie {
        /// The client's index.
        index: u32,
        /// The cookie.
        cookie: &'a [u8; COOKIE_BYTES],
    },
    /// The daemon's message.
    Response {
        /// The client's index.
        index: u32,
        /// The handshake's message.
        message: &'a [u8; SECOND_MESSAGE_BYTES],
    },
    /// A sealed packet, behind the head.
    Data(DataHead),
    /// The daemon refuses.
    Refusal {
        /// The index of the refused packet.
        index: u32,
        /// Why.
        code: Code,
    },
}

impl Envelope<'_> {
    /// Reads an envelope's head; `None` for what is none.
    #[inline]
    #[must_use]
    pub fn read(packet: &[u8]) -> Option<Envelope<'_>> {
        let head: &[u8; HEAD_BYTES] = packet.first_chunk()?;
        let index = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let behind = &packet[HEAD_BYTES..];
        match head[0] {
            DATA => {
                let number = u64::from_le_bytes(*head.last_chunk()?);
                Some(Envelope::Data(DataHead { index, phase: head[1], number }))
            }
            INITIAL if head[1] == HANDSHAKE_VERSION => {
                let (cookie, message) = behind.split_first_chunk()?;
                let message = message.try_into().ok()?;
                let prologue = packet.first_chunk()?;
                Some(Envelope::Initial(Initial { prologue, index, uses_mailboxes: head[2] & 1 == 1, cookie, message }))
            }
            COOKIE => Some(Envelope::Cookie { index, cookie: behind.try_into().ok()? }),
            RESPONSE => Some(Envelope::Response { index, message: behind.try_into().ok()? }),
            REFUSAL if behind.is_empty() => Some(Envelope::Refusal { index, code: Code::from_byte(head[2])? }),
            _ => None,
        }
    }
}

fn head(what: u8, second: u8, third: u8, index: u32) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    (head[0], head[1], head[2]) = (what, second, third);
    head[4..8].copy_from_slice(&index.to_le_bytes());
    head
}

/// The head of an initial.
pub(super) fn initial_head(index: u32, uses_mailboxes: bool) -> [u8; HEAD_BYTES] {
    head(INITIAL, HANDSHAKE_VERSION, u8::from(uses_mailboxes), index)
}

/// The head of the envelope with a cookie.
pub(super) fn cookie_head(index: u32) -> [u8; HEAD_BYTES] {
    head(COOKIE, 0, 0, index)
}

/// The head of a response.
pub(super) fn response_head(index: u32) -> [u8; HEAD_BYTES] {
    head(RESPONSE, 0, 0, index)
}

/// A refusal of the packet with this index.
pub(super) fn refusal(index: u32, code: Code) -> [u8; HEAD_BYTES] {
    head(REFUSAL, 0, code as u8, index)
}
