//! The beginning of every message of a call, and what must follow it.

/// Bytes before a request's or a result's own.
pub(crate) const HEADER_BYTES: usize = 24;
/// The version of the messages.
const VERSION: u16 = 1;
/// The lengths behind the header of a [`MessageKind::TooLong`]: the result's length, and what fits.
const LENGTHS_BYTES: usize = 16;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// To a service's mailbox: a caller, by its number.
    Hello = 1,
    /// The answer to it: requests may be put.
    Welcome,
    /// The other answer: the service takes no further caller.
    Full,
    /// A call, with the procedure's request behind it.
    Request,
    /// The caller gave up a call.
    Cancel,
    /// A result.
    Reply,
    /// The procedure's error, in words.
    Failed,
    /// The message of its panic.
    Panicked,
    /// It has a result that is longer than a message may be.
    TooLong,
}

impl MessageKind {
    const ALL: [MessageKind; 9] = [
        MessageKind::Hello,
        MessageKind::Welcome,
        MessageKind::Full,
        MessageKind::Request,
        MessageKind::Cancel,
        MessageKind::Reply,
        MessageKind::Failed,
        MessageKind::Panicked,
        MessageKind::TooLong,
    ];

    /// Whether a message of this kind may have that number of bytes behind its header.
    fn may_have(self, bytes: usize) -> bool {
        match self {
            MessageKind::Hello | MessageKind::Welcome | MessageKind::Full | MessageKind::Cancel => bytes == 0,
            MessageKind::TooLong => bytes == LENGTHS_BYTES,
            MessageKind::Request | MessageKind::Reply | MessageKind::Failed | MessageKind::Panicked => true,
        }
    }
}

/// Version (`u16`), kind (`u16`), 4 bytes that are 0, number (`u64`) and deadline (`u64`), each with its lowest byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: MessageKind,
    /// The call's; a caller's for [`MessageKind::Hello`] and its answers.
    pub(crate) number: u64,
    /// Of a request: what is left until its deadline when it is put, in µs.
    pub(crate) deadline_us: u64,
}

impl Header {
    /// Of any kind but a request.
    pub(crate) fn new(kind: MessageKind, number: u64) -> Header {
        Header { kind, number, deadline_us: 0 }
    }

    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [u64::from(VERSION) | (self.kind as u64) << 16, self.number, self.deadline_us];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Of a message as it has come; `None` if it is none of this version's. The rest behind a request's, result's or
    /// error's header is anything.
    pub(crate) fn parse(message: &[u8]) -> Option<Header> {
        let words: [u64; 3] = {
            // Copied first: it may lie in memory that others write.
            let header: [u8; HEADER_BYTES] = *message.first_chunk()?;
            let mut words = header.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes));
            [words.next()?.ok()?, words.next()?.ok()?, words.next()?.ok()?]
        };
        let [first, number, deadline_us] = words;
        if first & 0xffff != u64::from(VERSION) {
            return None;
        }
        let kind = MessageKind::ALL.into_iter().find(|kind| *kind as u64 == first >> 16)?;
        let has_deadline = kind == MessageKind::Request || deadline_us == 0;
        let fits = has_deadline && kind.may_have(message.len() - HEADER_BYTES);
        fits.then_some(Header { kind, number, deadline_us })
    }
}

/// The lengths behind the header of [`MessageKind::TooLong`].
pub(crate) fn encode_lengths(bytes: usize, most: usize) -> [u8; LENGTHS_BYTES] {
    let mut lengths = [0; LENGTHS_BYTES];
    for (place, length) in lengths.chunks_exact_mut(8).zip([bytes, most]) {
        place.copy_from_slice(&(length as u64).to_le_bytes());
    }
    lengths
}

/// The lengths of [`encode_lengths`].
pub(crate) fn parse_lengths(body: &[u8]) -> Option<(usize, usize)> {
    let (bytes, most) = body.split_at_checked(8)?;
    let length = |word: &[u8]| usize::try_from(u64::from_le_bytes(word.try_into().ok()?)).ok();
    Some((length(bytes)?, length(most)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_sim::{Rng, check};

    fn sample(kind: MessageKind) -> Vec<u8> {
        let deadline_us = if kind == MessageKind::Request { 1_000_000 } else { 0 };
        let mut message = Header { kind, number: 0x0102_0304_0506_0708, deadline_us }.encode().to_vec();
        if kind == MessageKind::TooLong {
            message.extend(encode_lengths(70_000, 65_448));
        }
        message
    }

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        for kind in MessageKind::ALL {
            let message = sample(kind);
            let header = Header::parse(&message).unwrap();
            assert_eq!((header.kind, header.number), (kind, 0x0102_0304_0506_0708));
            assert_eq!(header.encode(), message[..HEADER_BYTES]);
        }
        let request = sample(MessageKind::Request);
        assert_eq!(request, [1, 0, 4, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0x40, 0x42, 15, 0, 0, 0, 0, 0]);
        assert_eq!(parse_lengths(&sample(MessageKind::TooLong)[HEADER_BYTES..]), Some((70_000, 65_448)));
        for short in [&[][..], &[1; 7], &[1; 15], &[1; 17]] {
            assert_eq!(parse_lengths(short), None);
        }
    }

    #[test]
    fn bytes_that_are_no_message_of_a_call_are_refused() {
        for kind in MessageKind::ALL {
            let message = sample(kind);
            for len in 0..HEADER_BYTES {
                assert_eq!(Header::parse(&message[..len]), None, "{kind:?} of {len} bytes");
            }
            let changed = |at: usize, byte: u8| {
                let mut message = message.clone();
                message[at] = byte;
                Header::parse(&message)
            };
            for (at, byte) in [(0, 0), (0, 2), (1, 1), (2, 0), (2, 10), (3, 1), (4, 1), (7, 255)] {
                assert_eq!(changed(at, byte), None, "{kind:?} with {byte} at {at}");
            }
            assert_eq!(changed(23, 1).is_some(), kind == MessageKind::Request, "a deadline is a request's");
            let longer = [&message[..], &[0]].concat();
            let has_body =
                matches!(kind, MessageKind::Request | MessageKind::Reply | MessageKind::Failed | MessageKind::Panicked);
            assert_eq!(Header::parse(&longer).is_some(), has_body, "{kind:?} with more behind it");
        }
    }

    #[test]
    fn any_bytes_are_parsed_or_refused() {
        check("any_bytes_are_parsed_or_refused", 2000, |seed| {
            let mut rng = Rng::with_seed(seed);
            let kind = MessageKind::ALL[rng.usize(..MessageKind::ALL.len())];
            let mut message = sample(kind);
            for _ in 0..rng.u32(..4) {
                let at = rng.usize(..message.len());
                message[at] = rng.u8(..);
            }
            message.resize(rng.usize(..64), 7);
            if let Some(header) = Header::parse(&message) {
                assert_eq!(header.encode(), message[..HEADER_BYTES], "nothing else has this meaning");
            }
            let _ = parse_lengths(&message);
        });
    }
}
