//! Slots in this process's hands: bytes of a mapped segment that may be used until the slot is given back.
//!
//! The only file of the client that dereferences mapped memory.
//!
//! The known facts of a slot stand in a record of a private table; a put or message is the address of its record, one
//! word, so that handing it about costs nothing. (As a struct of half a dozen fields it is written in small pieces and
//! read back in large ones whenever it moves, and each time the processor waits for the pieces to arrive in its cache.)

#![allow(unsafe_code)]

use super::claim::Claim;
use super::error::MailboxError;
use crate::racy;
use crate::segment::Segment;
use crate::shared::{Descriptor, SIGNALS, SLOTS, up};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The two segments with messages.
pub(crate) struct Memory {
    /// Of the domain: its processes and the daemon write it.
    pub(crate) shared: Arc<Segment>,
    /// Of the domain: only the daemon writes it.
    pub(crate) inbox: Arc<Segment>,
}

impl Memory {
    /// A copy of the bytes that an entry of a put names.
    pub(crate) fn copy(&self, descriptor: &Descriptor) -> Vec<u8> {
        let mut bytes = vec![0; descriptor.len as usize];
        let is_inside = self.shared.read_into(descriptor.offset as usize, &mut bytes);
        debug_assert!(is_inside, "it was checked when it was granted");
        bytes
    }
}

/// The unit that caches move.
const LINE_BYTES: u32 = 64;
/// Lines of a buffer that are asked for ahead of writing: the rest follows by the processor's own guess.
const MOST_LINES: u32 = 16;

/// The known facts of a slot while it is in this process's hands.
struct Slip {
    data: NonNull<u8>,
    /// Of `data`, in its segment.
    offset: u32,
    /// Bytes from there on.
    len: u32,
    /// As it was handed over: first byte in the segment, and length.
    whole: (u32, u32),
    slot: u16,
    generation: u16,
    /// As the descriptor said; without its lowest bit, the area.
    label: u16,
    /// Whose slot it is: a port, or [`SIGNALS`].
    port: u16,
    /// Keeps the mapping, this table, and the side of the mailbox open, while the application has the bytes.
    claim: Option<Arc<Claim>>,
}

/// A slip's place; on a cache line of its own, since different threads may hold neighbours.
#[repr(align(64))]
struct Record {
    /// Someone has the slip: a [`Granted`], [`Held`] or [`HeldMut`] of this address exists.
    is_out: AtomicBool,
    slip: UnsafeCell<Slip>,
}

// SAFETY: the slip belongs to whoever turned `is_out` to true, until it is turned back: one `Granted`, `Held` or `HeldMut`.
unsafe impl Sync for Record {}
// SAFETY: an address in mapped memory, reached only through a `Held` or `HeldMut`, and a claim, which is `Send`.
unsafe impl Send for Record {}

/// A record for each slot of a port, or of the signal queue.
pub(crate) struct Records(Box<[Record]>);

impl Records {
    /// Room for `count` of them, for the slots of `port`.
    pub(crate) fn new(count: usize, port: u16) -> Records {
        let slip = |slot: usize| Slip {
            data: NonNull::dangling(),
            offset: 0,
            len: 0,
            whole: (0, 0),
            slot: slot as u16,
            generation: 0,
            label: 0,
            port,
            claim: None,
        };
        let record = |slot| Record { is_out: AtomicBool::new(false), slip: UnsafeCell::new(slip(slot)) };
        Records((0..count).map(record).collect())
    }

    /// Takes in a slot that the daemon handed over, with bytes in `segment`. None, if they are not all inside, there is no such slot, or
    /// it is in this process's hands already: no daemon says that.
    #[inline(always)]
    fn take_in(&self, segment: &Segment, entry: Descriptor) -> Option<NonNull<Record>> {
        let data = segment.at(entry.offset as usize, entry.len as usize)?;
        let record = self.0.get(usize::from(entry.slot))?;
        // Acquire: whoever had it before is done with it. One thread at a time takes in (the port's owner, or under the
        // signals' lock), so nobody comes between the load and the store.
        if record.is_out.load(Ordering::Acquire) {
            return None;
        }
        record.is_out.store(true, Ordering::Relaxed);
        // SAFETY: it is this call's, as just settled.
        let slip = unsafe { &mut *record.slip.get() };
        slip.data = data;
        slip.offset = entry.offset;
        slip.len = entry.len;
        slip.whole = (entry.offset, entry.len);
        slip.generation = entry.generation;
        slip.label = entry.target >> 1;
        Some(NonNull::from(record))
    }

    /// Takes in what a GRANT names; as `take_in`.
    #[inline(always)]
    pub(crate) fn granted(&self, memory: &Memory, entry: Descriptor) -> Option<Granted> {
        self.take_in(&memory.shared, entry).map(Granted)
    }

    /// Takes in a slot again that went to the reader over direct rings, with all of the buffer that it was granted with. None if
    /// it is in this process's hands, or in another of its lives.
    #[inline(always)]
    pub(crate) fn granted_again(&self, memory: &Memory, slot: u16, generation: u16) -> Option<Granted> {
        self.take_in_again(memory, slot, |last| (last == generation).then_some(last))
    }

    /// Takes in a slot that a REGRANT names: one generation later, with all of the buffer that it was granted with last. None if it is in
    /// this process's hands, or never was.
    #[inline(always)]
    pub(crate) fn regranted(&self, memory: &Memory, slot: u16) -> Option<Granted> {
        self.take_in_again(memory, slot, |last| Some(last.wrapping_add(1)))
    }

    #[inline(always)]
    fn take_in_again(
        &self,
        memory: &Memory,
        slot: u16,
        generation: impl FnOnce(u16) -> Option<u16>,
    ) -> Option<Granted> {
        let record = self.0.get(usize::from(slot))?;
        // As in `take_in`.
        if record.is_out.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: nobody has the slip, and this call is the only one that takes in.
        let slip = unsafe { &mut *record.slip.get() };
        let (offset, len) = slip.whole;
        let generation = generation(slip.generation).filter(|_| len > 0)?;
        slip.generation = generation;
        slip.data = memory.shared.at(offset as usize, len as usize)?;
        (slip.offset, slip.len) = (offset, len);
        record.is_out.store(true, Ordering::Relaxed);
        Some(Granted(NonNull::from(record)))
    }

    /// Takes in what a MESSAGE names; as `take_in`.
    #[inline(always)]
    pub(crate) fn delivered(&self, memory: &Memory, entry: Descriptor) -> Option<Delivered> {
        let segment = if entry.target & 1 == 0 { &memory.shared } else { &memory.inbox };
        self.take_in(segment, entry).map(Delivered)
    }
}

/// A slot with a message to read, not yet in the application's hands. Whoever has it keeps the table that it is of.
pub(crate) struct Delivered(NonNull<Record>);

impl Delivered {
    /// For the application, by the side `claim`, which keeps the table.
    #[inline(always)]
    pub(crate) fn claimed(self, claim: Arc<Claim>) -> Held {
        // SAFETY: the table is kept, and the slip is this value's.
        unsafe { (*self.0.as_ref().slip.get()).claim = Some(claim) };
        Held(self.0)
    }

    /// For the application, which only has it as long as the side that took it in is borrowed: without a claim of its own. It must not be
    /// dropped, but ended.
    #[inline(always)]
    pub(crate) fn unclaimed(self) -> Held {
        Held(self.0)
    }
}

/// A slot with a buffer in the shared segment that may be written, not yet in the application's hands. Whoever has it keeps the
/// table that it is of.
pub(crate) struct Granted(NonNull<Record>);

// SAFETY: as for `Record`: it is the only way to a slip that is out.
unsafe impl Send for Granted {}

impl Granted {
    /// How many bytes may be written to it.
    #[inline(always)]
    pub(crate) fn capacity(&self) -> u32 {
        // SAFETY: the table is kept, and the slip is this value's.
        unsafe { (*self.0.as_ref().slip.get()).len }
    }

    /// Says that its first `bytes` bytes (a few cache lines at most) are about to be written.
    #[inline]
    pub(crate) fn prefetch(&self, bytes: u32) {
        // SAFETY: as in `capacity`.
        let slip = unsafe { &*self.0.as_ref().slip.get() };
        for line in 0..bytes.min(slip.len).div_ceil(LINE_BYTES).min(MOST_LINES) {
            // SAFETY: less than `len` bytes from `data` on, and all of them lie in the segment.
            racy::prefetch(unsafe { slip.data.add((line * LINE_BYTES) as usize) });
        }
    }

    /// Its first `len` bytes, or all if that is more, to be written in place.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self, len: u32) -> &mut [u8] {
        // SAFETY: as in `capacity`. The range was checked to lie in the shared segment, which is mapped to be written, for as long as
        // the table is kept; a slot is handed out once, so this value, borrowed mutably, is the only way to it that this process
        // or the daemon makes: that grants the buffer to others only after this process has given the slot up (`host::direct`).
        // Over direct rings another process of the domain can name these bytes as a message's: it is trusted not to, as it is
        // trusted not to write to them (the module's page).
        unsafe {
            let slip = &*self.0.as_ref().slip.get();
            std::slice::from_raw_parts_mut(slip.data.as_ptr(), slip.len.min(len) as usize)
        }
    }

    /// The entry by which its first `len` bytes, or all if that is more, are put.
    #[inline(always)]
    pub(crate) fn into_put(self, len: u32) -> Descriptor {
        let entry = self.into_entry(up::PUT);
        Descriptor { len: entry.len.min(len), ..entry }
    }

    /// The entry by which the slot is given back, unused.
    #[inline(always)]
    pub(crate) fn into_entry(self, op: u8) -> Descriptor {
        // SAFETY: as above; nobody uses the slip any more once it is turned in.
        unsafe {
            let record = self.0.as_ref();
            let entry = (*record.slip.get()).entry(op, 0);
            record.is_out.store(false, Ordering::Release);
            entry
        }
    }

    /// The first `len` bytes of it, for the application, by the side `claim`, which keeps the table.
    #[inline(always)]
    pub(crate) fn hold(self, len: u32, claim: Arc<Claim>) -> HeldMut {
        // SAFETY: as above.
        let slip = unsafe { &mut *self.0.as_ref().slip.get() };
        slip.len = slip.len.min(len);
        slip.claim = Some(claim);
        HeldMut(Held(self.0))
    }
}

impl Slip {
    #[inline(always)]
    fn entry(&self, op: u8, target: u16) -> Descriptor {
        Descriptor { op, slot: self.slot, generation: self.generation, target, offset: self.offset, len: self.len }
    }
}

/// A slot whose bytes the application has in hand. Dropping it gives the slot back through the signal queue, from any thread.
pub(crate) struct Held(NonNull<Record>);

// SAFETY: as for `Record`: it is the only way to a slip that is out, and to the bytes of the slot.
unsafe impl Send for Held {}
// SAFETY: a shared one gives out bytes to be read, and numbers.
unsafe impl Sync for Held {}

impl Held {
    #[inline(always)]
    fn slip(&self) -> &Slip {
        // SAFETY: the claim in the slip keeps the table, or the reader that a burst has borrowed; the slip is this value's, and lent to
        // be read.
        unsafe { &*self.0.as_ref().slip.get() }
    }

    /// Bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slip().len as usize
    }

    /// Bytes that it was handed over with.
    #[inline(always)]
    pub(crate) fn whole_len(&self) -> u32 {
        self.slip().whole.1
    }

    /// The label of the descriptor beside the area.
    pub(crate) fn label(&self) -> u16 {
        self.slip().label
    }

    /// Whether it came by this side of a mailbox.
    #[inline(always)]
    pub(crate) fn is_of(&self, claim: &Arc<Claim>) -> bool {
        self.slip().claim.as_ref().is_some_and(|own| Arc::ptr_eq(own, claim))
    }

    /// The entry that says `op` of it, and its claim: from here on the slot is given back by that entry and not by the drop.
    #[inline(always)]
    pub(crate) fn into_entry(self, op: u8, target: u16) -> (Descriptor, Option<Arc<Claim>>) {
        let record = self.0;
        std::mem::forget(self);
        // SAFETY: as in `slip`; this value is gone, and the claim, which keeps the table, is the caller's from here on.
        unsafe {
            let record = record.as_ref();
            let slip = &mut *record.slip.get();
            let entry = slip.entry(op, target);
            let claim = slip.claim.take();
            // Release: who takes the slot in next comes after all that was done with it.
            record.is_out.store(false, Ordering::Release);
            (entry, claim)
        }
    }

    /// Leaves out `prefix` bytes at the start and `suffix` at the end.
    #[inline]
    pub(crate) fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), MailboxError> {
        let len = self.len();
        let Some(out) = prefix.checked_add(suffix).filter(|&out| out <= len) else {
            return Err(MailboxError::TooShort { bytes: len });
        };
        // SAFETY: as in `slip`, and borrowed mutably. The address stays within the range or at its end, since `prefix` is
        // at most the length; so both numbers fit where the length did.
        unsafe {
            let slip = &mut *self.0.as_ref().slip.get();
            slip.data = slip.data.add(prefix);
            slip.offset += prefix as u32;
            slip.len = (len - out) as u32;
        }
        Ok(())
    }

    /// The bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        let slip = self.slip();
        // SAFETY: the range was checked to lie in a segment of the attachment, which the claim keeps mapped. The slot is
        // this process's until it is given back, which ends this value. Nobody writes meanwhile: the daemon does not
        // write to slots that it handed out, and other processes of the domain are declared to be trusted not to (see the
        // module's page); the inbox segment they cannot write at all.
        unsafe { std::slice::from_raw_parts(slip.data.as_ptr(), slip.len as usize) }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        give_back(Held(self.0));
    }
}

/// The effect of dropping it.
#[cold]
fn give_back(held: Held) {
    let (port, whole) = (held.slip().port, held.whole_len());
    let (entry, claim) = held.into_entry(0, 0);
    debug_assert!(claim.is_some(), "what is held keeps its claim");
    if let Some(claim) = claim {
        if port != SIGNALS && usize::from(entry.slot) >= SLOTS {
            // The core counts what it came with.
            claim.inner.give_back(port, Descriptor { len: whole, ..entry });
            // Release: who knows of it says later than this that it has nothing more.
            claim.dropped.fetch_add(1, Ordering::Release);
            return;
        }
        claim.inner.give_back(port, entry);
    }
}

/// A slot to be written.
pub(crate) struct HeldMut(Held);

impl HeldMut {
    /// The bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// The bytes, to write.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let slip = self.0.slip();
        // SAFETY: as in `Held::bytes`; only `Granted::hold` makes a `HeldMut`, so the range is in the shared segment, which is
        // mapped to be written; a slot is handed out once, so this value, borrowed mutably, is the only way to it (but see
        // `Granted::bytes_mut` on direct rings).
        unsafe { std::slice::from_raw_parts_mut(slip.data.as_ptr(), slip.len as usize) }
    }

    /// As [`Held::adjust`].
    #[inline]
    pub(crate) fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), MailboxError> {
        self.0.adjust(prefix, suffix)
    }

    /// As [`Held::is_of`].
    #[inline(always)]
    pub(crate) fn is_of(&self, claim: &Arc<Claim>) -> bool {
        self.0.is_of(claim)
    }

    /// As [`Held::whole_len`].
    #[inline(always)]
    pub(crate) fn whole_len(&self) -> u32 {
        self.0.whole_len()
    }

    /// As [`Held::into_entry`].
    #[inline(always)]
    pub(crate) fn into_entry(self, op: u8, target: u16) -> (Descriptor, Option<Arc<Claim>>) {
        self.0.into_entry(op, target)
    }
}
