//! The client's endpoint: it begins the handshake, repeats it until it is answered, and begins another one when the daemon has
//! lost the keys.

use super::channel::{Channel, KeyLimits, KeyPhases, OVERHEAD_BYTES, Sealed};
use super::envelope::{COOKIE_BYTES, Code, Envelope, HEAD_BYTES, INITIAL_BYTES, initial_head};
use super::keys::{PrivateKey, PublicKey, RANDOM_BYTES};
use super::noise::{self, Started};

/// The pauses between two initials of one handshake, first and longest, in ns.
const REPEAT_NS: (u64, u64) = (100_000_000, 400_000_000);
/// A handshake after keys that stood begins no earlier than this after the last one, in ns: refusals may be forged.
const AGAIN_NS: u64 = 1_000_000_000;
/// Packets were sealed for this time and none was opened, in ns: the daemon may have lost the keys.
const SILENCE_NS: u64 = 3_000_000_000;

/// The result of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Bytes of the packets that were in its envelopes, from the frame's first byte on.
    pub len: usize,
    /// Bytes from one packet to the next.
    pub stride: usize,
    /// There are new keys.
    pub has_keys: bool,
}

/// A handshake that is not answered yet.
struct Dialling {
    /// Once there is a cookie.
    started: Option<Started>,
    /// A cookie that the message is not made for yet.
    cookie: Option<[u8; COOKIE_BYTES]>,
    index: u32,
    packet: [u8; INITIAL_BYTES],
    next_ns: u64,
    pause_ns: u64,
}

/// Keys that both sides have.
struct Up {
    channel: Channel,
    /// This side's index for them.
    index: u32,
}

/// The client's endpoint.
pub struct Initiator {
    private: PrivateKey,
    daemon: PublicKey,
    uses_mailboxes: bool,
    /// Whether the daemon seals nothing with these keys, so that its silence says nothing.
    is_one_way: bool,
    limits: KeyLimits,
    dialling: Option<Box<Dialling>>,
    up: Option<Box<Up>>,
    /// The last keys, for packets that are late.
    before: Option<Box<Up>>,
    began_ns: Option<u64>,
    /// When a packet was sealed first since one was opened, in ns.
    unheard_ns: Option<u64>,
    refused: Option<Code>,
}

impl Initiator {
    /// A client with a key of its own, and the daemon's. `uses_mailboxes` as in [`crate::Hello`].
    #[must_use]
    pub fn new(private: PrivateKey, daemon: PublicKey, uses_mailboxes: bool) -> Initiator {
        Initiator {
            private,
            daemon,
            uses_mailboxes,
            is_one_way: false,
            limits: KeyLimits::default(),
            dialling: None,
            up: None,
            before: None,
            began_ns: None,
            unheard_ns: None,
            refused: None,
        }
    }

    /// The same with other limits of the keys.
    #[must_use]
    pub fn with_limits(self, limits: KeyLimits) -> Initiator {
        Initiator { limits, ..self }
    }

    /// The same for packets that are not answered with these keys: only a refusal shows then that the daemon has lost them.
    #[must_use]
    pub fn one_way(self) -> Initiator {
        Initiator { is_one_way: true, ..self }
    }

    /// Whether packets can be sealed.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.up.is_some()
    }

    /// The phases of the keys in use, once there are keys.
    #[must_use]
    pub fn key_phases(&self) -> Option<KeyPhases> {
        self.up.as_ref().map(|up| up.channel.phases())
    }

    /// Why the daemon refused the last handshake, as far as it is known.
    #[must_use]
    pub fn refused(&self) -> Option<Code> {
        self.refused
    }

    /// Gives up the keys: what comes next is a session of its own.
    pub fn forget(&mut self) {
        (self.dialling, self.up, self.before) = (None, None, None);
        (self.unheard_ns, self.refused) = (None, None);
    }

    /// Begins a handshake, unless one has begun a short time ago; or goes on with one that has a cookie now. `random` is used once:
    /// an ephemeral key seals one message only.
    pub fn begin(&mut self, now_ns: u64, random: [u8; RANDOM_BYTES]) {
        let (Some(&index), Some(&ephemeral)) = (random.first_chunk(), random.last_chunk()) else { return };
        if let Some(dialling) = &mut self.dialling
            && let Some(cookie) = dialling.cookie.take()
        {
            let packet = &mut dialling.packet;
            packet[HEAD_BYTES..HEAD_BYTES + COOKIE_BYTES].copy_from_slice(&cookie);
            let (prologue, room) = packet.split_at_mut(HEAD_BYTES + COOKIE_BYTES);
            let Some((started, message)) = noise::start(&self.private, &self.daemon, prologue, ephemeral) else {
                return;
            };
            room.copy_from_slice(&message);
            (dialling.started, dialling.next_ns) = (Some(started), now_ns);
            return;
        }
        let is_early = self.began_ns.is_some_and(|began_ns| now_ns < began_ns.saturating_add(AGAIN_NS));
        if is_early && (self.dialling.is_some() || self.up.is_some()) {
            return;
        }
        let index = u32::from_le_bytes(index);
        // As long as with a message, so that no answer is longer.
        let mut packet = [0; INITIAL_BYTES];
        packet[..HEAD_BYTES].copy_from_slice(&initial_head(index, self.uses_mailboxes));
        self.began_ns = Some(now_ns);
        self.unheard_ns = None;
        let (started, cookie, next_ns, pause_ns) = (None, None, now_ns, REPEAT_NS.0);
        self.dialling = Some(Box::new(Dialling { started, cookie, index, packet, next_ns, pause_ns }));
    }

    /// The initial, if it is time to send it (again).
    pub fn poll(&mut self, now_ns: u64) -> Option<&[u8]> {
        let dialling = self.dialling.as_mut().filter(|dialling| dialling.next_ns <= now_ns)?;
        dialling.next_ns = now_ns.saturating_add(dialling.pause_ns);
        dialling.pause_ns = (2 * dialling.pause_ns).min(REPEAT_NS.1);
        Some(&dialling.packet)
    }

    /// When [`Initiator::poll`] has something next, in ns.
    #[must_use]
    pub fn next_ns(&self) -> u64 {
        self.dialling.as_ref().map_or(u64::MAX, |dialling| dialling.next_ns)
    }

    /// Whether another handshake should [begin](Initiator::begin): there are no keys, the daemon says that it has lost them, or it
    /// is silent. Or one should go on, with a cookie.
    #[must_use]
    pub fn should_begin(&self, now_ns: u64) -> bool {
        let is_silent = self.unheard_ns.is_some_and(|since_ns| now_ns >= since_ns.saturating_add(SILENCE_NS));
        let is_silent = is_silent && !self.is_one_way;
        let is_lost = self.refused == Some(Code::UnknownIndex);
        match &self.dialling {
            Some(dialling) => dialling.cookie.is_some(),
            None => self.up.is_none() || is_silent || is_lost,
        }
    }

    /// Seals a super-packet; see [`Channel::seal`]. `None` also while there are no keys.
    pub fn seal<'a>(
        &mut self,
        slices: impl Iterator<Item = &'a [u8]>,
        stride: usize,
        out: &mut [u8],
        now_ns: u64,
    ) -> Option<Sealed> {
        let sealed = self.up.as_mut()?.channel.seal(slices, stride, out, now_ns)?;
        self.unheard_ns.get_or_insert(now_ns);
        Some(sealed)
    }

    /// Opens a frame's envelopes: what was in them lies at its begin then. The rest is left out.
    pub fn open_frame(&mut self, frame: &mut [u8], stride: usize, now_ns: u64) -> Heard {
        let stride = if stride == 0 { frame.len().max(1) } else { stride.min(frame.len().max(1)) };
        let mut heard = Heard { len: 0, stride: stride.saturating_sub(OVERHEAD_BYTES).max(1), has_keys: false };
        for start in (0..frame.len()).step_by(stride) {
            let range = start..(start + stride).min(frame.len());
            match Envelope::read(&frame[range.clone()]) {
                Some(Envelope::Data(head)) => {
                    let mut both = self.up.iter_mut().chain(&mut self.before);
                    let Some(up) = both.find(|up| up.index == head.index) else { continue };
                    if let Ok(len) = up.channel.open(frame, range, head, heard.len) {
                        heard.len += len;
                        self.unheard_ns = None;
                    }
                }
                Some(Envelope::Cookie { index, cookie }) => self.take_cookie(index, cookie),
                Some(Envelope::Response { index, message }) => {
                    heard.has_keys |= self.take_response(index, message, now_ns);
                }
                Some(Envelope::Refusal { index, code }) => self.take_refusal(index, code),
                Some(Envelope::Initial(_)) | None => {}
            }
        }
        heard
    }

    fn take_cookie(&mut self, index: u32, cookie: &[u8; COOKIE_BYTES]) {
        if let Some(dialling) = self.dialling.as_mut().filter(|dialling| dialling.index == index) {
            // Only if this says something new: who repeats cookies makes nobody send faster.
            let is_new = dialling.packet[HEAD_BYTES..HEAD_BYTES + COOKIE_BYTES] != cookie[..];
            dialling.cookie = Some(*cookie).filter(|_| is_new);
        }
    }

    fn take_response(&mut self, index: u32, message: &[u8; noise::SECOND_MESSAGE_BYTES], now_ns: u64) -> bool {
        let Some(dialling) = self.dialling.as_mut().filter(|dialling| dialling.index == index) else { return false };
        let Some(started) = &mut dialling.started else { return false };
        let Some((peer_index, secrets)) = started.finish(message) else { return false };
        let Some(channel) = Channel::of_client(&secrets, peer_index, self.limits, now_ns) else { return false };
        self.before = self.up.replace(Box::new(Up { channel, index }));
        (self.dialling, self.refused, self.unheard_ns) = (None, None, None);
        true
    }

    fn take_refusal(&mut self, index: u32, code: Code) {
        let is_of_keys = self.up.as_ref().is_some_and(|up| up.channel.peer_index() == index);
        let is_of_handshake = self.dialling.as_ref().is_some_and(|dialling| dialling.index == index);
        if is_of_keys && code == Code::UnknownIndex || is_of_handshake && code != Code::UnknownIndex {
            self.refused = Some(code);
        }
    }
}
