//! Opening and closing a session: Hello and Welcome, and Close with its reason.
//!
//! The header, a hello and a close have the same layout in all versions of the wire format, so that a daemon can answer the
//! hello of a client of another version with a reason that the client understands ([`Hello::refuse_version`]).

use crate::header::{HEADER_BYTES, Header, PacketError, PacketKind, VERSION};

/// A client's request for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Random; names this attempt, so that a repeated hello finds the session it already made.
    pub nonce: u64,
    /// The number by which the client will know the session (in headers of packets to it).
    pub session: u32,
    /// The largest packet the client takes, header included, in bytes.
    pub packet_bytes: u32,
    /// How many bytes of data the client takes ahead of what it has consumed; of control, it is a constant
    /// ([`crate::credit::CONTROL_WINDOW_PACKETS`]).
    pub window_bytes: u32,
    /// Whether the client will use mailboxes or tasks, which are at one context of the daemon; false if the hello does not say.
    pub uses_mailboxes: bool,
}

/// The daemon's grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The hello's nonce.
    pub nonce: u64,
    /// The number by which the daemon will know the session.
    pub session: u32,
    /// The packet size in both directions, header included, in bytes: the smaller of what both sides ask for.
    pub packet_bytes: u32,
    /// How many bytes of data the daemon takes ahead.
    pub window_bytes: u32,
}

/// Why a session ended, on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// Whether it makes sense to come back: the daemon restarts, or had lost sight of the client.
    pub again: bool,
    /// In words, for the other side's error message.
    pub reason: String,
}

/// The smallest packet size that a side may ask for, header included, in bytes: with smaller ones the other would have to send a
/// packet for each record.
pub const MIN_PACKET_BYTES: u32 = 512;
const LEN: usize = 20;
/// Of the flags, which follow the other words of a hello; what is not known is passed over.
const USES_MAILBOXES: u32 = 1;

fn encode(words: (u64, u32, u32, u32)) -> [u8; LEN] {
    let mut payload = [0; LEN];
    payload[..8].copy_from_slice(&words.0.to_le_bytes());
    for (at, word) in [words.1, words.2, words.3].into_iter().enumerate() {
        payload[8 + 4 * at..][..4].copy_from_slice(&word.to_le_bytes());
    }
    payload
}

fn decode(kind: PacketKind, payload: &[u8]) -> Result<(u64, u32, u32, u32), PacketError> {
    let bytes: &[u8; LEN] = payload.first_chunk().ok_or(PacketError::Payload(kind))?;
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let words = (u64::from(word(0)) | u64::from(word(4)) << 32, word(8), word(12), word(16));
    // A window of nothing could never make progress.
    if words.2 < MIN_PACKET_BYTES || words.3 == 0 {
        return Err(PacketError::Payload(kind));
    }
    Ok(words)
}

impl Hello {
    /// The whole packet.
    #[must_use]
    pub fn packet(&self) -> Vec<u8> {
        let words = encode((self.nonce, self.session, self.packet_bytes, self.window_bytes));
        let flags = if self.uses_mailboxes { USES_MAILBOXES } else { 0 };
        Header::new(PacketKind::Hello, 0).packet(&[&words[..], &flags.to_le_bytes()].concat()).unwrap_or_default()
    }

    /// Reads the payload of a hello.
    ///
    /// # Errors
    /// [`PacketError::Payload`] when it is short or cannot work.
    pub fn decode(payload: &[u8]) -> Result<Hello, PacketError> {
        let (nonce, session, packet_bytes, window_bytes) = decode(PacketKind::Hello, payload)?;
        let flags = payload[LEN..].first_chunk().map_or(0, |&flags| u32::from_le_bytes(flags));
        Ok(Hello { nonce, session, packet_bytes, window_bytes, uses_mailboxes: flags & USES_MAILBOXES != 0 })
    }

    /// The answer to a packet that is the hello of another version of the wire format: a close, in that version.
    #[must_use]
    pub fn refuse_version(packet: &[u8]) -> Option<Vec<u8>> {
        let version = packet.first().copied().filter(|version| *version != VERSION)?;
        packet.get(1).filter(|kind| **kind == PacketKind::Hello as u8)?;
        let hello = Hello::decode(packet.get(HEADER_BYTES..)?).ok()?;
        let reason = format!(
            "the daemon speaks version {VERSION} of the wire format, this client version {version}: use a client of the \
             daemon's release"
        );
        let mut close = Close { again: false, reason }.packet(hello.session);
        *close.first_mut()? = version;
        Some(close)
    }
}

impl Welcome {
    /// The whole packet, to the client that calls the session `to`.
    #[must_use]
    pub fn packet(&self, to: u32) -> Vec<u8> {
        let words = encode((self.nonce, self.session, self.packet_bytes, self.window_bytes));
        Header::new(PacketKind::Welcome, to).packet(&words).unwrap_or_default()
    }

    /// Reads the payload of a welcome.
    ///
    /// # Errors
    /// [`PacketError::Payload`] when it is short or cannot work.
    pub fn decode(payload: &[u8]) -> Result<Welcome, PacketError> {
        let (nonce, session, packet_bytes, window_bytes) = decode(PacketKind::Welcome, payload)?;
        Ok(Welcome { nonce, session, packet_bytes, window_bytes })
    }
}

impl Close {
    /// The whole packet, to the peer that calls the session `to`; a long reason is cut.
    #[must_use]
    pub fn packet(&self, to: u32) -> Vec<u8> {
        let end = (0..=self.reason.len().min(400)).rev().find(|&i| self.reason.is_char_boundary(i)).unwrap_or(0);
        let payload = [&[u8::from(self.again)], &self.reason.as_bytes()[..end]].concat();
        Header::new(PacketKind::Close, to).packet(&payload).unwrap_or_default()
    }

    /// Reads the payload of a close; what is not UTF-8 is replaced.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Close {
        let (again, reason) = payload.split_first().unwrap_or((&0, &[]));
        Close { again: *again == 1, reason: String::from_utf8_lossy(reason).into_owned() }
    }
}

/// Repeats a hello until the welcome comes.
#[derive(Clone, Debug)]
pub struct Dialler {
    hello: Hello,
    next_ns: u64,
    interval_ns: u64,
}

impl Dialler {
    /// Dials from `now_ns` on; the hello is repeated after 50 ms, then at doubling intervals up to 200 ms, so that a daemon that is
    /// started has its clients back soon.
    #[must_use]
    pub fn new(hello: Hello, now_ns: u64) -> Dialler {
        Dialler { hello, next_ns: now_ns, interval_ns: 50_000_000 }
    }

    /// The hello packet, when it is time to send it (again).
    pub fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if now_ns < self.next_ns {
            return None;
        }
        self.next_ns = now_ns + self.interval_ns;
        self.interval_ns = (self.interval_ns * 2).min(200_000_000);
        Some(self.hello.packet())
    }

    /// When [`Dialler::poll`] has something next, in ns.
    #[must_use]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The grant, if this packet is the welcome to this hello.
    #[must_use]
    pub fn answered(&self, header: &Header, payload: &[u8]) -> Option<Welcome> {
        if header.kind != PacketKind::Welcome || header.session != self.hello.session {
            return None;
        }
        let welcome = Welcome::decode(payload).ok()?;
        let sane = welcome.nonce == self.hello.nonce && welcome.packet_bytes <= self.hello.packet_bytes;
        sane.then_some(welcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_repeated_until_its_own_welcome() {
        let hello = Hello { nonce: 77, session: 5, packet_bytes: 1472, window_bytes: 65_536, uses_mailboxes: false };
        let mut dialler = Dialler::new(hello, 1000);
        let packet = dialler.poll(1000).unwrap();
        assert_eq!(Hello::decode(&packet[HEADER_BYTES..]), Ok(hello));
        assert_eq!(dialler.poll(1001), None);
        assert!(dialler.poll(dialler.next_ns()).is_some());
        let welcome = Welcome { nonce: 77, session: 9, packet_bytes: 1200, window_bytes: 32_768 };
        for (to, nonce, wanted) in [(5, 77, true), (6, 77, false), (5, 78, false)] {
            let packet = Welcome { nonce, ..welcome }.packet(to);
            let header = Header::read(&packet).unwrap();
            assert_eq!(dialler.answered(&header, &packet[HEADER_BYTES..]).is_some(), wanted);
        }
    }

    #[test]
    fn a_hello_says_whether_mailboxes_are_used_behind_all_that_it_said_before() {
        let hello = Hello { nonce: 1, session: 2, packet_bytes: 1472, window_bytes: 65_536, uses_mailboxes: true };
        let packet = hello.packet();
        let payload = &packet[HEADER_BYTES..];
        assert_eq!(Hello::decode(payload), Ok(hello));
        assert_eq!(payload.len(), LEN + 4);
        // Without that word, with a part of it, or with flags that only a later version knows.
        let without = Ok(Hello { uses_mailboxes: false, ..hello });
        assert_eq!(Hello::decode(&payload[..LEN]), without);
        assert_eq!(Hello::decode(&payload[..LEN + 3]), without);
        assert_eq!(Hello::decode(&[&payload[..LEN], &[0xfe, 0xff, 0xff, 0xff, 9]].concat()), without);
        assert_eq!(Hello::decode(&[&payload[..LEN], &[0xff; 8]].concat()), Ok(hello));
        assert!(Hello::decode(&payload[..LEN - 1]).is_err());
    }

    #[test]
    fn a_hello_that_cannot_work_is_refused() {
        let hello = Hello { nonce: 1, session: 1, packet_bytes: 8, window_bytes: 1, uses_mailboxes: false };
        assert_eq!(Hello::decode(&hello.packet()[HEADER_BYTES..]), Err(PacketError::Payload(PacketKind::Hello)));
        assert!(Hello::decode(&[0; 7]).is_err());
        // One byte less than a packet must have, of either side.
        for (packet_bytes, is_taken) in [(MIN_PACKET_BYTES - 1, false), (MIN_PACKET_BYTES, true)] {
            let hello = Hello { packet_bytes, ..hello };
            let welcome = Welcome { nonce: 1, session: 1, packet_bytes, window_bytes: 1 };
            assert_eq!(Hello::decode(&hello.packet()[HEADER_BYTES..]).is_ok(), is_taken);
            assert_eq!(Welcome::decode(&welcome.packet(1)[HEADER_BYTES..]).is_ok(), is_taken);
        }
    }

    #[test]
    fn the_hello_of_another_version_is_refused_in_that_version() {
        let hello = Hello { nonce: 1, session: 5, packet_bytes: 1472, window_bytes: 65_536, uses_mailboxes: false };
        let mut packet = hello.packet();
        assert_eq!(Hello::refuse_version(&packet), None);
        packet[0] = VERSION - 1;
        assert_eq!(Hello::refuse_version(&packet[..HEADER_BYTES + 19]), None);
        let mut close = Hello::refuse_version(&packet).unwrap();
        assert_eq!(std::mem::replace(&mut close[0], VERSION), VERSION - 1);
        let header = Header::read(&close).unwrap();
        assert_eq!((header.kind, header.session), (PacketKind::Close, 5));
        let Close { again, reason } = Close::decode(&close[HEADER_BYTES..]);
        assert!(!again && reason.contains(&format!("version {VERSION} of")), "{reason}");
        assert!(reason.contains(&format!("version {}:", VERSION - 1)), "{reason}");
        // No other packet is answered, so that two sides never answer one another.
        packet[1] = PacketKind::Close as u8;
        assert_eq!(Hello::refuse_version(&packet), None);
    }

    #[test]
    fn a_reason_is_cut_at_a_character() {
        let close = Close { again: true, reason: "é".repeat(300) };
        let packet = close.packet(1);
        assert_eq!(Close::decode(&packet[HEADER_BYTES..]), Close { again: true, reason: "é".repeat(200) });
        assert_eq!(Close::decode(&[]), Close { again: false, reason: String::new() });
    }
}
