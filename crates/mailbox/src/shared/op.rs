//! The operations that entries of the rings and signal queues name, and the reasons for a refusal.

use std::fmt;

/// Operations from the client to the core: on a port's ring those up to [`up::WITHDRAW`], on the signal queue the others.
pub(crate) mod up {
    /// In the `target` of [`ENQUEUE`] and [`SIGNAL_ENQUEUE`]: the other bits are not a mailbox, but the session's number of a stream, to
    /// whose subscribers the core sends the message.
    pub(crate) const TO_STREAM: u16 = 1 << 15;
    /// A granted slot's message, `offset..offset + len` of its buffer, goes to the port's mailbox. The slot is the core's.
    pub(crate) const PUT: u8 = 1;
    /// A granted or delivered slot is given back.
    pub(crate) const FREE: u8 = 2;
    /// A slot's message moves to mailbox `target`, or with [`TO_STREAM`] to a stream, without being copied. The slot is the core's.
    pub(crate) const ENQUEUE: u8 = 3;
    /// `len` bytes are wanted in one buffer, beyond the size granted ahead; bit 0 of `target`: refuse rather than wait.
    pub(crate) const REQUEST: u8 = 4;
    /// Later puts go over the direct rings; all that was put before is in front of this entry.
    pub(crate) const DIRECT: u8 = 5;
    /// Later puts go over this ring again, and the direct rings are the reader's and the core's.
    pub(crate) const DIRECT_END: u8 = 6;
    /// After [`DIRECT_END`]: a granted slot that went over the direct rings and has not come back. No violation if it is not
    /// held any more.
    pub(crate) const LEFT: u8 = 7;
    /// All slots are with the reader at the other end of direct rings, or one has come back and a longer buffer is waited for: look
    /// again at what this writer is due.
    pub(crate) const MORE: u8 = 8;
    /// The oldest [`REQUEST`] that waits is given up, and refused as such; no answer if none waits.
    pub(crate) const WITHDRAW: u8 = 9;
    /// Over direct rings only: slots of the writer are given back, whose numbers are the entry's other bytes ([`super::Regrants`]).
    pub(crate) const FREE_MANY: u8 = 10;
    /// A buffer of `len` bytes for mailbox `target`; bit 0 of `b`: refuse rather than wait.
    pub(crate) const ALLOC: u8 = 16;
    /// A granted slot's message goes to mailbox `target`; no answer.
    pub(crate) const SIGNAL_PUT: u8 = 17;
    /// The next message of mailbox `target`; bit 0 of `b`: refuse rather than wait.
    pub(crate) const GET: u8 = 18;
    /// A slot is given back.
    pub(crate) const SIGNAL_FREE: u8 = 19;
    /// As [`ENQUEUE`].
    pub(crate) const SIGNAL_ENQUEUE: u8 = 20;
    /// The waiting allocation or get with tag `a` is given up; it is answered in any case.
    pub(crate) const CANCEL: u8 = 21;
    /// Writes `b` to the sync at address `a`; no answer.
    pub(crate) const SYNC_WRITE: u8 = 22;
    /// Signals the host condition at address `a`; no answer.
    pub(crate) const SIGNAL: u8 = 23;
    /// Calls procedure `target` with argument `b`; the result goes to the sync at address `a`.
    pub(crate) const CALL: u8 = 24;
    /// One more unasked signal may be sent down, of a kind that `b` says.
    pub(crate) const LISTEN: u8 = 25;
    /// In `b` of [`LISTEN`]: an ERROR.
    pub(crate) const LISTEN_ERRORS: u64 = 1;
    /// In `b` of [`LISTEN`]: an UPCALL.
    pub(crate) const LISTEN_UPCALLS: u64 = 2;
    /// A slot of port `target` is given back from outside the port's ring, by whatever thread dropped it. No violation if it is not
    /// held any more: it may cross the closing of the port.
    pub(crate) const FREE_OF_PORT: u8 = 28;
}

/// Operations from the core to the client, on a port's ring or the signal queue.
pub(crate) mod down {
    /// A slot with a buffer to write: `offset`, and its capacity as `len`.
    pub(crate) const GRANT: u8 = 1;
    /// A slot with a message to read; bit 0 of `target`: in the inbox segment, else the shared one.
    pub(crate) const MESSAGE: u8 = 2;
    /// The request is refused; `target` is the [`super::Reason`].
    pub(crate) const REFUSED: u8 = 3;
    /// The mailbox is gone; `target` is the [`super::Reason`].
    pub(crate) const CLOSED: u8 = 4;
    /// Direct rings, in a block that begins at `offset` of the shared segment. To a writer: it may use them from now on, and may
    /// come to have `len` slots; once it uses them no more it gives back those beyond `slot`. To a reader: its writer does. Bit 0
    /// of `target`: who publishes makes the fences itself.
    pub(crate) const DIRECT: u8 = 5;
    /// To a reader: the writer puts nothing more into the direct rings.
    pub(crate) const DIRECT_END: u8 = 6;
    /// To a reader: what is in the direct rings comes before what follows here; what comes into them after, only once this is followed
    /// by [`DIRECT_END`].
    pub(crate) const DIRECT_PAUSE: u8 = 7;
    /// To a writer: its [`super::up::MORE`] was seen to. There is one under way at most.
    pub(crate) const DIRECT_MORE: u8 = 8;
    /// Slots of a writer are granted again, each with the buffer of its last [`GRANT`], and one generation later: the entry's other
    /// bytes are their numbers ([`super::Regrants`]).
    pub(crate) const REGRANT: u8 = 9;
    /// Calls procedure `target` of the client with argument `a`; the result goes to the core's sync at address `b`.
    pub(crate) const UPCALL: u8 = 26;
    /// Over the lane only: the client shall write `b` to its sync at address `a`.
    pub(crate) const SYNC: u8 = 29;
    /// An error that answers nothing: `target` is the [`super::Reason`], `a` a detail.
    pub(crate) const ERROR: u8 = 27;
}

/// Why something was refused, closed or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Reason {
    /// The mailbox has no message now.
    Empty = 1,
    /// The mailbox holds as much as its bound allows.
    Full = 2,
    /// No buffer of the domain's heap is free.
    NoBuffers = 3,
    /// The client holds as many bytes as its quota allows.
    Quota = 4,
    /// Longer than a message may be.
    TooLong = 5,
    /// The mailbox was deleted, or this side of it closed.
    Closed = 6,
    /// Given up by the caller.
    Cancelled = 7,
    /// No open mailbox has that number.
    UnknownMailbox = 8,
    /// The client broke the rules of the shared memory.
    Violation = 9,
    /// The daemon is ending.
    Shutdown = 10,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Reason; 10] = [
        Reason::Empty,
        Reason::Full,
        Reason::NoBuffers,
        Reason::Quota,
        Reason::TooLong,
        Reason::Closed,
        Reason::Cancelled,
        Reason::UnknownMailbox,
        Reason::Violation,
        Reason::Shutdown,
    ];

    /// The reason with number `code`, as it stands in an entry's `target`.
    pub fn from_code(code: u16) -> Option<Reason> {
        Reason::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Its number, as it stands in an entry's `target`.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// Its name in counters and JSON: stable, one word.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Empty => "empty",
            Reason::Full => "full",
            Reason::NoBuffers => "no_buffers",
            Reason::Quota => "quota",
            Reason::TooLong => "too_long",
            Reason::Closed => "closed",
            Reason::Cancelled => "cancelled",
            Reason::UnknownMailbox => "unknown_mailbox",
            Reason::Violation => "violation",
            Reason::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Empty => "the mailbox is empty",
            Reason::Full => "the mailbox is full",
            Reason::NoBuffers => "the domain's heap has no free buffer of that size",
            Reason::Quota => "the client holds all the bytes that its quota allows",
            Reason::TooLong => "the message is longer than any may be",
            Reason::Closed => "the mailbox was closed or deleted",
            Reason::Cancelled => "the request was cancelled",
            Reason::UnknownMailbox => "no open mailbox has that number",
            Reason::Violation => "the client broke the rules of the shared memory",
            Reason::Shutdown => "the daemon is ending",
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_code_means_one_reason() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(reason.code()), at + 1);
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
            assert!(reason.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            assert!(!reason.to_string().is_empty());
        }
        for code in [0, 11, 255, u16::MAX] {
            assert_eq!(Reason::from_code(code), None, "{code}");
        }
    }
}
