//! A message in the daemon's hands: a part of a buffer of some domain, with a claim on it.

#![allow(unsafe_code)]

use super::MailboxKey;
use crate::segment::Segment;
use crate::shared::up;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Which of a domain's two segments a buffer lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Area {
    /// The domain's processes may write there.
    Shared = 0,
    /// Only the daemon writes there.
    Inbox = 1,
}

/// A message: bytes of a buffer, and a claim on the buffer. It must be put, sent or freed; dropping it keeps the buffer in use.
///
/// One word, however often it is handed on between a ring, a task and a queue: as a struct of a dozen fields it would be written
/// in small pieces and read back in large ones at each step, and each time the processor would wait for the pieces.
#[must_use = "put, send or free it: the buffer is in use until then"]
#[derive(Debug)]
pub struct Message(pub(crate) Box<Span>);

/// The port whose writer a buffer was granted to: once the message in it is freed, the port gets it back, and nobody has to ask the
/// heap (paper, section 3.3: "cached buffers").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    /// Index of the client.
    pub(crate) client: u16,
    pub(crate) port: u16,
    /// Which of the port's lives.
    pub(crate) life: u32,
}

impl Home {
    /// Of a buffer that goes back to the heap.
    pub(crate) const HEAP: Home = Home { client: u16::MAX, port: u16::MAX, life: 0 };
}

/// The area of a message, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Span {
    /// Key of the domain.
    pub(crate) domain: u16,
    pub(crate) area: Area,
    /// Whether there may be other messages of this buffer ([`super::HostInterface::share`]).
    pub(crate) is_shared: bool,
    /// Whether it may be dropped when its reader is too slow ([`super::HostInterface::drop_oldest`]).
    pub(crate) droppable: bool,
    /// The core's tag for the reader of a session: the subscription's number.
    pub(crate) tag: u16,
    /// The core's note for itself.
    pub(crate) mark: u16,
    /// The buffer, in the heap of that area.
    pub(crate) buffer: u32,
    /// First byte, from the segment's start.
    pub(crate) start: u32,
    /// Length in bytes.
    pub(crate) len: u32,
    /// The buffer's first byte, and the byte after its last.
    pub(crate) first: u32,
    /// See `first`.
    pub(crate) end: u32,
    /// How many records the core counts in it, for reports of losses.
    pub(crate) records: u32,
    /// The slot of its writer's port in which it was granted last.
    pub(crate) slot: u16,
    /// The mailbox that it was last taken from.
    pub(crate) origin: MailboxKey,
    /// Where the buffer goes once it is freed.
    pub(crate) home: Home,
}

impl Span {
    /// All of a buffer that lies at `range` {first byte, length}.
    #[inline(always)]
    pub(crate) fn of(domain: u16, area: Area, buffer: u32, range: (u32, u32)) -> Span {
        let (first, bytes) = range;
        Span {
            domain,
            area,
            is_shared: false,
            droppable: false,
            tag: 0,
            mark: 0,
            buffer,
            start: first,
            len: bytes,
            first,
            end: first + bytes,
            records: 0,
            slot: u16::MAX,
            origin: MailboxKey::NONE,
            home: Home::HEAP,
        }
    }

    /// All of its buffer, as of a new message; home and slot stay.
    #[inline(always)]
    pub(crate) fn renew(&mut self) {
        let Span { domain, area, buffer, first, end, slot, home, .. } = *self;
        *self = Span { slot, home, ..Span::of(domain, area, buffer, (first, end - first)) };
    }
}

/// Memory of messages that were freed, for the next ones.
#[derive(Default)]
#[allow(clippy::vec_box)] // it is the boxes that are kept
pub(crate) struct Spares(Vec<Box<Span>>);

/// The greatest number of spare spans.
const MOST_SPARES: usize = 4096;

impl Spares {
    /// A message of this span.
    #[inline(always)]
    pub(crate) fn message(&mut self, span: Span) -> Message {
        match self.0.pop() {
            Some(mut spare) => {
                *spare = span;
                Message(spare)
            }
            None => Message(Box::new(span)),
        }
    }

    /// Keeps a message's memory.
    #[inline(always)]
    pub(crate) fn keep(&mut self, message: Message) {
        if self.0.len() < MOST_SPARES {
            self.0.push(message.0);
        }
    }
}

impl Message {
    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Takes `prefix` bytes off its front and `suffix` off its end, in place (paper, section 3.3: "adjust"). False, and
    /// nothing changed, if it is not that long.
    pub fn adjust(&mut self, prefix: usize, suffix: usize) -> bool {
        let Some(rest) = prefix.checked_add(suffix).and_then(|taken| self.len().checked_sub(taken)) else {
            return false;
        };
        self.0.start += prefix as u32;
        self.0.len = rest as u32;
        true
    }

    /// Says which subscription it is for (below 32,768), how many records it holds, and whether it may be dropped when the reader
    /// is too slow.
    pub fn label(&mut self, subscription: u16, records: u32, droppable: bool) {
        self.0.tag = subscription;
        self.0.records = records;
        self.0.droppable = droppable;
    }

    /// A draft of all of it, in a buffer of the inbox segment `segment` that nobody else has a claim on; `None` if it does not lie
    /// there.
    pub(crate) fn draft(self, segment: &Arc<Segment>, dropped: &Dropped) -> Option<Draft> {
        debug_assert_eq!(self.0.area, Area::Inbox);
        let data = segment.at(self.0.start as usize, self.len())?;
        let len = self.len();
        Some(Draft { message: Some(self), data, len, dropped: dropped.clone(), _segment: segment.clone() })
    }

    /// The subscription and records of its label.
    pub fn labelled(&self) -> (u16, u32) {
        (self.0.tag, self.0.records)
    }

    /// Notes a number on it, which no client sees; 0 until then.
    pub fn set_mark(&mut self, mark: u16) {
        self.0.mark = mark;
    }

    /// The session's number of the stream to which a client has sent it out of a mailbox; `None` for a packet of the session.
    pub fn sent_to(&self) -> Option<u32> {
        (self.0.mark & up::TO_STREAM != 0).then_some((self.0.mark & !up::TO_STREAM).into())
    }

    /// The number that was noted on it.
    pub fn mark(&self) -> u16 {
        self.0.mark
    }
}

/// Buffers of drafts that were dropped, until the host interface takes them back.
pub(crate) type Dropped = Arc<Mutex<Vec<Message>>>;

/// A message that the core is writing, in an inbox segment, which clients map read-only: `DerefMut` gives its bytes. Dropped,
/// it gives its buffer back.
#[derive(Debug)]
pub struct Draft {
    /// None once it is finished.
    message: Option<Message>,
    data: NonNull<u8>,
    len: usize,
    dropped: Dropped,
    /// Keeps the mapping.
    _segment: Arc<Segment>,
}

// SAFETY: a draft is the only claim on its bytes; it has no thread-bound state, and the way its buffer goes home is locked.
unsafe impl Send for Draft {}

impl Draft {
    /// The message, of its first `len` bytes (of all, if that is more).
    pub fn finish(mut self, len: usize) -> Message {
        let Some(mut message) = self.message.take() else { unreachable!("a draft is finished once, by value") };
        message.0.len = message.0.len.min(u32::try_from(len).unwrap_or(u32::MAX));
        message
    }
}

impl Deref for Draft {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie in a mapping that this draft keeps, which always holds a value (the kernel zeroes it); it is an inbox
        // segment, which no client can write to, and in this process the draft has the only claim on the buffer: it was made of
        // a buffer fresh from the heap (`HostInterface::draft`).
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl DerefMut for Draft {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        }
    }
}
