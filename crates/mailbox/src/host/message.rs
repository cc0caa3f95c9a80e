//! A message in the daemon's hands: a part of a buffer of some domain, with a claim on it.

#![allow(unsafe_code)]

use super::MailboxKey;
use crate::segment::Segment;
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
#[must_use = "put, send or free it: the buffer is in use until then"]
#[derive(Debug)]
pub struct Message {
    /// Key of the domain; `u16::MAX` with `NONE`.
    pub(crate) domain: u16,
    pub(crate) area: Area,
    /// Whether it may be dropped when its reader is too slow ([`super::HostInterface::drop_oldest`]).
    pub(crate) droppable: bool,
    /// What the core says of it to the reader of a session: the subscription's number.
    pub(crate) tag: u16,
    /// The buffer, in the heap of that area.
    pub(crate) buffer: u32,
    /// First byte, from the segment's start.
    pub(crate) start: u32,
    /// Length in bytes.
    pub(crate) len: u32,
    /// How many records the core counts in it, for what is told of losses.
    pub(crate) records: u32,
    /// The mailbox that it was last taken from.
    pub(crate) origin: MailboxKey,
}

impl Message {
    /// Stands where there is none.
    pub(crate) const NONE: Message = Message {
        domain: u16::MAX,
        area: Area::Shared,
        droppable: false,
        tag: 0,
        buffer: u32::MAX,
        start: 0,
        len: 0,
        records: 0,
        origin: MailboxKey::NONE,
    };

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes `prefix` bytes off its front and `suffix` off its end, in place (paper, section 3.3: "adjust"). False, and
    /// nothing changed, if it is not that long.
    pub fn adjust(&mut self, prefix: usize, suffix: usize) -> bool {
        let Some(rest) = prefix.checked_add(suffix).and_then(|taken| self.len().checked_sub(taken)) else {
            return false;
        };
        self.start += prefix as u32;
        self.len = rest as u32;
        true
    }

    /// Says which subscription it is for (below 32,768), how many records it holds, and whether it may be dropped when the reader
    /// is too slow.
    pub fn label(&mut self, subscription: u16, records: u32, droppable: bool) {
        self.tag = subscription;
        self.records = records;
        self.droppable = droppable;
    }

    /// A draft of all of it, in a buffer of the inbox segment `segment` that nobody else has a claim on; `None` if it does not lie
    /// there.
    pub(crate) fn draft(self, segment: &Arc<Segment>, dropped: &Dropped) -> Option<Draft> {
        debug_assert_eq!(self.area, Area::Inbox);
        let data = segment.at(self.start as usize, self.len())?;
        let len = self.len();
        Some(Draft { message: self, data, len, dropped: dropped.clone(), _segment: segment.clone() })
    }

    /// The subscription and records of its label.
    pub fn labelled(&self) -> (u16, u32) {
        (self.tag, self.records)
    }
}

/// Buffers of drafts that were dropped, until the host interface takes them back.
pub(crate) type Dropped = Arc<Mutex<Vec<(u16, u32)>>>;

/// A message that the core is writing, in an inbox segment, which clients map read-only: `DerefMut` gives its bytes. Dropped,
/// it gives its buffer back.
#[derive(Debug)]
pub struct Draft {
    message: Message,
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
        let mut message = std::mem::replace(&mut self.message, Message::NONE);
        message.len = message.len.min(u32::try_from(len).unwrap_or(u32::MAX));
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
        if self.message.buffer != Message::NONE.buffer {
            let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
            dropped.push((self.message.domain, self.message.buffer));
        }
    }
}
