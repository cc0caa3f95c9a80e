//! Slots in this process's hands: bytes of a mapped segment that may be used until the slot is given back.
//!
//! The only file of the client that dereferences mapped memory.

#![allow(unsafe_code)]

use super::claim::Claim;
use super::error::MailboxError;
use crate::racy;
use crate::segment::Segment;
use crate::shared::Descriptor;
use std::ptr::NonNull;
use std::sync::Arc;

/// The port that a slot of the signal queue is said to be of.
pub(crate) const SIGNALS: u16 = u16::MAX;

/// The two segments with messages.
pub(crate) struct Memory {
    /// Of the domain: its processes and the daemon write it.
    pub(crate) shared: Arc<Segment>,
    /// Of the domain: only the daemon writes it.
    pub(crate) inbox: Arc<Segment>,
}

impl Memory {
    /// The bytes that a GRANT names; none if they are not all in the shared segment.
    #[inline]
    pub(crate) fn granted(&self, descriptor: &Descriptor, port: u16) -> Option<Granted> {
        Range::new(&self.shared, descriptor, port).map(Granted)
    }

    /// A copy of the bytes that an entry of a put names.
    pub(crate) fn copy(&self, descriptor: &Descriptor) -> Vec<u8> {
        let mut bytes = vec![0; descriptor.len as usize];
        // It lies inside: it was checked when it was granted.
        let _inside = self.shared.read_into(descriptor.offset as usize, &mut bytes);
        bytes
    }

    /// The bytes that a MESSAGE names; none if they are not all in the segment that it says.
    #[inline]
    pub(crate) fn delivered(&self, descriptor: &Descriptor, port: u16) -> Option<Range> {
        let segment = if descriptor.target & 1 == 0 { &self.shared } else { &self.inbox };
        Range::new(segment, descriptor, port)
    }
}

/// What caches move.
const LINE_BYTES: u32 = 64;
/// Lines of a buffer that are asked for ahead of writing: the rest follows by the processor's own guess.
const MOST_LINES: u32 = 16;

/// A slot, and the checked place of its bytes.
pub(crate) struct Range {
    data: NonNull<u8>,
    /// Of `data`, in its segment.
    offset: u32,
    /// Bytes from there on.
    pub(crate) len: u32,
    slot: u16,
    generation: u16,
    /// As the descriptor said; without its lowest bit, the area.
    label: u16,
    /// Whose slot it is: a port, or [`SIGNALS`].
    port: u16,
}

// SAFETY: an address and numbers; the bytes are reached only through a `Held`, which keeps the mapping.
unsafe impl Send for Range {}
// SAFETY: as above; a shared `Held` gives out bytes to be read only.
unsafe impl Sync for Range {}

impl Range {
    #[inline]
    fn new(segment: &Segment, descriptor: &Descriptor, port: u16) -> Option<Range> {
        let data = segment.at(descriptor.offset as usize, descriptor.len as usize)?;
        let Descriptor { offset, len, slot, generation, target, .. } = *descriptor;
        Some(Range { data, offset, len, slot, generation, label: target >> 1, port })
    }

    /// The entry by which the slot is given back.
    #[inline]
    pub(crate) fn entry(&self, op: u8, target: u16) -> Descriptor {
        Descriptor { op, slot: self.slot, generation: self.generation, target, offset: self.offset, len: self.len }
    }

    /// All of it, for the application. `claim` is the side of a mailbox that it came by.
    #[inline]
    pub(crate) fn hold(self, claim: Arc<Claim>) -> Held {
        Held { range: self, claim: Some(claim) }
    }
}

/// A slot whose bytes the application has in hand. Dropping it gives the slot back through the signal queue, from any thread.
pub(crate) struct Held {
    range: Range,
    /// Keeps the mapping, and the side of the mailbox open. Taken only on the way out.
    claim: Option<Arc<Claim>>,
}

impl Held {
    /// Bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.range.len as usize
    }

    /// What the descriptor said beside the area.
    pub(crate) fn label(&self) -> u16 {
        self.range.label
    }

    /// Whether it came by this side of a mailbox.
    #[inline]
    pub(crate) fn is_of(&self, claim: &Arc<Claim>) -> bool {
        self.claim.as_ref().is_some_and(|own| Arc::ptr_eq(own, claim))
    }

    /// The entry that says `op` of it, and its claim: from here on the slot is given back by that entry and not by the drop.
    #[inline]
    pub(crate) fn into_entry(mut self, op: u8, target: u16) -> (Descriptor, Option<Arc<Claim>>) {
        (self.range.entry(op, target), self.claim.take())
    }

    /// Leaves out `prefix` bytes at the start and `suffix` at the end.
    #[inline]
    pub(crate) fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), MailboxError> {
        let len = self.len();
        match prefix.checked_add(suffix) {
            Some(out) if out <= len => {
                // SAFETY: `prefix` is at most the length, so the address stays within the range or at its end.
                self.range.data = unsafe { self.range.data.add(prefix) };
                // Both fit: they are at most a length that is a u32.
                self.range.offset += prefix as u32;
                self.range.len = (len - out) as u32;
                Ok(())
            }
            _ => Err(MailboxError::TooShort { bytes: len }),
        }
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range was checked to lie in a segment of the attachment, which `claim` keeps mapped. The slot is
        // this process's until it is given back, which needs the `Held`. Nobody writes meanwhile: the daemon does not
        // write to slots that it handed out, and other processes of the domain are declared to be trusted not to (see the
        // module's page); the inbox segment they cannot write at all.
        unsafe { std::slice::from_raw_parts(self.range.data.as_ptr(), self.range.len as usize) }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            give_back(&claim, &self.range);
        }
    }
}

#[cold]
fn give_back(claim: &Claim, range: &Range) {
    claim.inner.give_back(range.port, range.entry(0, 0));
}

/// A range in the shared segment that a GRANT named: the application's to write once it holds it.
pub(crate) struct Granted(Range);

impl Granted {
    /// How many bytes may be written to it.
    #[inline]
    pub(crate) fn capacity(&self) -> u32 {
        self.0.len
    }

    /// Says that its first `bytes` bytes (a few cache lines at most) are about to be written.
    #[inline]
    pub(crate) fn prefetch(&self, bytes: u32) {
        for line in 0..bytes.min(self.0.len).div_ceil(LINE_BYTES).min(MOST_LINES) {
            // SAFETY: less than `len` bytes from `data` on, all of which lie in the segment.
            racy::prefetch_to_write(unsafe { self.0.data.add((line * LINE_BYTES) as usize) });
        }
    }

    /// The entry by which the slot is given back.
    #[inline]
    pub(crate) fn entry(&self, op: u8) -> Descriptor {
        self.0.entry(op, 0)
    }

    /// The first `len` bytes of it, for the application. `claim` is the side of a mailbox that it came by.
    #[inline]
    pub(crate) fn hold(mut self, len: u32, claim: Arc<Claim>) -> HeldMut {
        self.0.len = self.0.len.min(len);
        HeldMut(self.0.hold(claim))
    }
}

/// A slot to be written.
pub(crate) struct HeldMut(Held);

impl HeldMut {
    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// The bytes, to write.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let range = &self.0.range;
        // SAFETY: as in `Held::bytes`; only a `Granted` becomes a `HeldMut`, so the range is in the shared segment, which is
        // mapped to be written; a slot is handed out once, so this value, borrowed mutably, is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(range.data.as_ptr(), range.len as usize) }
    }

    /// As [`Held::adjust`].
    #[inline]
    pub(crate) fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), MailboxError> {
        self.0.adjust(prefix, suffix)
    }

    /// As [`Held::is_of`].
    #[inline]
    pub(crate) fn is_of(&self, claim: &Arc<Claim>) -> bool {
        self.0.is_of(claim)
    }

    /// As [`Held::into_entry`].
    #[inline]
    pub(crate) fn into_entry(self, op: u8, target: u16) -> (Descriptor, Option<Arc<Claim>>) {
        self.0.into_entry(op, target)
    }
}
