//! The keys of one client and its daemon, and the packets that they seal and open.
//!
//! Each direction has a secret of its own, from which the key of each phase follows (HKDF): key, initialisation vector, and the
//! secret of the next phase. The sender begins a phase on its own, after a number of packets or a time; the receiver follows with
//! the first packet of the next phase that is authentic. It keeps the last phase's key for packets that are late.

use super::envelope::{DataHead, HEAD_BYTES};
use super::keys::KEY_BYTES;
use super::noise::Secrets;
use super::replay::ReplayWindow;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use std::ops::Range;

/// Bytes that a packet is longer in its envelope: the head and the tag.
pub const OVERHEAD_BYTES: usize = HEAD_BYTES + MAX_TAG_LEN;

/// When the keys of what is sealed are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    /// After this number of packets. RFC 9001, 6.6 allows 2^23 packets of 64 KiB with AES-GCM.
    pub packets: u64,
    /// After this time, if packets are sent; in ns.
    pub ns: u64,
}

impl Default for KeyLimits {
    fn default() -> KeyLimits {
        KeyLimits { packets: 1 << 22, ns: 600_000_000_000 }
    }
}

/// Packets that may fail to open before the keys are given up: fewer than the 2^52 of RFC 9001, 6.6, since ours are longer.
const MOST_FAILURES: u64 = 1 << 36;

/// The result of sealing a super-packet: in `bytes` bytes, the envelopes lie `stride` bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// All bytes.
    pub bytes: usize,
    /// Bytes from one envelope to the next.
    pub stride: usize,
}

/// Why a packet is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// It is shorter than an envelope.
    Short,
    /// It has arrived before, or is too old to be sure.
    Replayed,
    /// It was not sealed with a key of this channel, or was changed.
    Unauthentic,
}

/// The keys of a channel that are in use, without the keys: to notice that they have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPhases {
    /// The peer's index for the channel: another handshake has another one.
    pub index: u32,
    /// The phase of the key that seals.
    pub sealing: u8,
    /// The phase of the key that opens.
    pub opening: u8,
}

/// Keys in both directions.
pub struct Channel {
    /// The peer's index for these keys.
    peer_index: u32,
    limits: KeyLimits,
    sealing: Phase,
    /// Of the phase of `sealing`.
    phase: u8,
    next_number: u64,
    /// The number and the time of the next phase.
    phase_end: u64,
    phase_end_ns: u64,
    opening: Opening,
}

impl Channel {
    /// The client's end.
    pub(super) fn of_client(secrets: &Secrets, peer_index: u32, limits: KeyLimits, now_ns: u64) -> Option<Channel> {
        Channel::new(&secrets.of_client, &secrets.of_daemon, peer_index, limits, now_ns)
    }

    /// The daemon's end.
    pub(super) fn of_daemon(secrets: &Secrets, peer_index: u32, limits: KeyLimits, now_ns: u64) -> Option<Channel> {
        Channel::new(&secrets.of_daemon, &secrets.of_client, peer_index, limits, now_ns)
    }

    fn new(
        sealing: &[u8; KEY_BYTES],
        opening: &[u8; KEY_BYTES],
        peer_index: u32,
        limits: KeyLimits,
        now_ns: u64,
    ) -> Option<Channel> {
        Some(Channel {
            peer_index,
            limits,
            sealing: Phase::of(sealing)?,
            phase: 0,
            next_number: 0,
            phase_end: limits.packets,
            phase_end_ns: now_ns.saturating_add(limits.ns),
            opening: Opening::new(opening)?,
        })
    }

    /// The peer's index for these keys.
    #[must_use]
    pub fn peer_index(&self) -> u32 {
        self.peer_index
    }

    /// The phases of the keys in use.
    #[must_use]
    pub fn phases(&self) -> KeyPhases {
        KeyPhases { index: self.peer_index, sealing: self.phase, opening: self.opening.phase }
    }

    /// Seals a super-packet, which is `slices` joined, with packets of `stride` bytes but the last: `out` gets its envelopes. `None`
    /// if they do not fit into it, or no number is left for them.
    pub fn seal<'a>(
        &mut self,
        slices: impl Iterator<Item = &'a [u8]>,
        stride: usize,
        out: &mut [u8],
        now_ns: u64,
    ) -> Option<Sealed> {
        let content = gather(slices, stride, out)?;
        let stride = stride.min(content);
        let mut at = 0;
        let mut rest = content;
        while rest > 0 {
            let len = rest.min(stride);
            let packet = out.get_mut(at..at + len + OVERHEAD_BYTES)?;
            self.seal_one(packet, now_ns)?;
            at += packet.len();
            rest -= len;
        }
        Some(Sealed { bytes: at, stride: stride + OVERHEAD_BYTES })
    }

    /// Seals one packet, which lies between the room for the head and the room for the tag.
    fn seal_one(&mut self, packet: &mut [u8], now_ns: u64) -> Option<()> {
        if self.next_number >= self.phase_end || now_ns >= self.phase_end_ns {
            self.sealing = self.sealing.next()?;
            self.phase = self.phase.wrapping_add(1);
            self.phase_end = self.next_number.saturating_add(self.limits.packets);
            self.phase_end_ns = now_ns.saturating_add(self.limits.ns);
        }
        let number = self.next_number;
        self.next_number = number.checked_add(1)?;
        let head = DataHead { index: self.peer_index, phase: self.phase, number }.to_bytes();
        let (room, rest) = packet.split_first_chunk_mut()?;
        let (content, tag) = rest.split_last_chunk_mut::<MAX_TAG_LEN>()?;
        *room = head;
        let key = &self.sealing.key;
        let sealed = key.seal_in_place_separate_tag(self.sealing.nonce(number), Aad::from(head), content).ok()?;
        tag.copy_from_slice(sealed.as_ref());
        Some(())
    }

    /// Opens the envelope at `range` of `frame`, and puts the packet that was in it to `to`, which is not behind the envelope's begin.
    /// Its length.
    ///
    /// # Errors
    /// The reason for which it is dropped; bytes from `to` on may be changed then.
    pub fn open(
        &mut self,
        frame: &mut [u8],
        range: Range<usize>,
        head: DataHead,
        to: usize,
    ) -> Result<usize, Unopened> {
        self.opening.open(frame, range, head, to)
    }
}

/// Copies a super-packet to `out`, packet by packet, with room for a head and a tag around each. The bytes of its content.
fn gather<'a>(slices: impl Iterator<Item = &'a [u8]>, stride: usize, out: &mut [u8]) -> Option<usize> {
    let (mut content, mut at, mut room) = (0, HEAD_BYTES, stride);
    for mut slice in slices {
        content += slice.len();
        while !slice.is_empty() {
            if room == 0 {
                (at, room) = (at + OVERHEAD_BYTES, stride);
            }
            let (now, later) = slice.split_at(slice.len().min(room));
            out.get_mut(at..at + now.len())?.copy_from_slice(now);
            (at, room, slice) = (at + now.len(), room.checked_sub(now.len()).filter(|_| stride > 0)?, later);
        }
    }
    Some(content)
}

/// The key of a phase, and the secret of the next one.
struct Phase {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    next: [u8; KEY_BYTES],
}

/// A number of bytes that follow from a secret.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

impl Phase {
    fn of(secret: &[u8; KEY_BYTES]) -> Option<Phase> {
        let secret = Prk::new_less_safe(HKDF_SHA256, secret);
        let key = UnboundKey::from(secret.expand(&[b"crossdock key"], &AES_128_GCM).ok()?);
        let (mut iv, mut next) = ([0; NONCE_LEN], [0; KEY_BYTES]);
        secret.expand(&[b"crossdock iv"], Bytes(NONCE_LEN)).ok()?.fill(&mut iv).ok()?;
        secret.expand(&[b"crossdock next"], Bytes(KEY_BYTES)).ok()?.fill(&mut next).ok()?;
        Some(Phase { key: LessSafeKey::new(key), iv, next })
    }

    fn next(&self) -> Option<Phase> {
        Phase::of(&self.next)
    }

    /// As in TLS 1.3 and QUIC: the vector, and the number in its last bytes.
    #[inline]
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        nonce[NONCE_LEN - 8..].iter_mut().zip(number.to_be_bytes()).for_each(|(byte, of_number)| *byte ^= of_number);
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The keys that open what the peer seals.
struct Opening {
    phase: u8,
    current: Phase,
    /// Made in advance: so a forged packet of the next phase costs no more than any other.
    next: Phase,
    previous: Option<Phase>,
    window: ReplayWindow,
    failures: u64,
}

impl Opening {
    fn new(secret: &[u8; KEY_BYTES]) -> Option<Opening> {
        let current = Phase::of(secret)?;
        let next = current.next()?;
        Some(Opening { phase: 0, current, next, previous: None, window: ReplayWindow::default(), failures: 0 })
    }

    fn open(&mut self, frame: &mut [u8], range: Range<usize>, head: DataHead, to: usize) -> Result<usize, Unopened> {
        if range.len() < OVERHEAD_BYTES || range.start < to {
            return Err(Unopened::Short);
        }
        let is_next = head.phase == self.phase.wrapping_add(1);
        let phase = match head.phase.wrapping_sub(self.phase) {
            0 => Some(&self.current),
            1 => Some(&self.next),
            u8::MAX => self.previous.as_ref(),
            _ => None,
        };
        let phase = phase.filter(|_| self.failures < MOST_FAILURES).ok_or(Unopened::Unauthentic)?;
        if !self.window.is_fresh(head.number) {
            return Err(Unopened::Replayed);
        }
        // As it came, with the bytes that have no meaning; what is opened may lie over it.
        let associated: [u8; HEAD_BYTES] = *frame[range.clone()].first_chunk().ok_or(Unopened::Short)?;
        let sealed_from = range.start + HEAD_BYTES - to;
        let (nonce, region) = (phase.nonce(head.number), &mut frame[to..range.end]);
        let Ok(packet) = phase.key.open_within(nonce, Aad::from(associated), region, sealed_from..) else {
            self.failures += 1;
            return Err(Unopened::Unauthentic);
        };
        let opened = packet.len();
        self.window.note(head.number);
        if is_next && let Some(after) = self.next.next() {
            let current = std::mem::replace(&mut self.next, after);
            self.previous = Some(std::mem::replace(&mut self.current, current));
            self.phase = head.phase;
        }
        Ok(opened)
    }
}
