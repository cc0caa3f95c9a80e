//! Syncs on the client's side (Nectar paper, 3.4): one word handed from whoever writes it to the reader that allocated it.

use super::error::MailboxError;
use super::inner::Inner;
use super::wait::Wait;
use crate::failpoint::failpoint;
use crate::segment::Segment;
use crate::shared::{ControlLayout, Descriptor, SYNCS, Signal, SyncAddress, SyncCell, SyncPool, up};
use std::fmt;
use std::sync::{Arc, PoisonError};

/// Which of the client's syncs are free: this process's own knowledge.
pub(crate) struct FreeSyncs {
    free: Vec<u16>,
    /// Cancelled before they were written: the write frees them.
    cancelled: Vec<u16>,
    /// Which use of each place is the latest.
    generations: Vec<u16>,
}

impl FreeSyncs {
    pub(crate) fn new() -> FreeSyncs {
        FreeSyncs {
            free: (0..SYNCS as u16).rev().collect(),
            cancelled: Vec::with_capacity(SYNCS),
            generations: vec![0; SYNCS],
        }
    }

    /// Makes a free cell wait for a value.
    fn alloc(&mut self, inner: &Inner) -> Option<(u16, u16)> {
        self.tidy(inner);
        let cells = &inner.cells;
        if self.free.is_empty() {
            let is_free = |index: &u16| cells[usize::from(*index)].is_free();
            self.free.extend(self.cancelled.extract_if(.., |index| is_free(index)));
        }
        let index = self.free.pop()?;
        let generation = &mut self.generations[usize::from(index)];
        *generation = generation.wrapping_add(1);
        cells[usize::from(index)].alloc(*generation).then_some((index, *generation))
    }

    /// Takes out of the lane what was for a port that is closed by now, or for a sync that nobody awaits: one thread at a time,
    /// since this is under a lock, and the threads that await something take only that.
    #[inline]
    fn tidy(&mut self, inner: &Inner) {
        let Some(offer) = inner.lane.peek() else { return };
        if offer.is_void() {
            return inner.lane.accept(&offer);
        }
        let Some((sync, _)) = offer.sync() else { return };
        let Some(cell) = inner.cells.get(usize::from(sync.index)) else { return inner.lane.accept(&offer) };
        if !cell.is_awaited(sync.generation) {
            inner.lane.accept(&offer);
            // As a write does that comes after the cancel; one that comes twice, or late, finds another state, and does nothing.
            if cell.free_if_cancelled(sync.generation)
                && let Some(at) = self.cancelled.iter().position(|index| *index == sync.index)
            {
                self.free.push(self.cancelled.swap_remove(at));
            }
        }
    }
}

/// A word that is not there yet: whoever is given its address writes it, once. It is `Send`: one thread may allocate it and
/// another read it.
///
/// Dropping it cancels it.
pub struct SyncWord {
    inner: Arc<Inner>,
    index: u16,
    generation: u16,
    /// It was read: the cell is free.
    is_read: bool,
}

impl SyncWord {
    pub(crate) fn alloc(inner: &Arc<Inner>) -> Result<SyncWord, MailboxError> {
        let allocated = inner.syncs.lock().unwrap_or_else(PoisonError::into_inner).alloc(inner);
        let (index, generation) = allocated.ok_or(MailboxError::NoSyncs { most: SYNCS })?;
        failpoint!("sync.alloc");
        Ok(SyncWord { inner: inner.clone(), index, generation, is_read: false })
    }

    /// Makes a sync that was read wait for another value, under another address: as if it was allocated anew, and quicker.
    ///
    /// # Errors
    /// `NoSyncs` if it was not read.
    #[inline]
    pub fn renew(&mut self) -> Result<(), MailboxError> {
        let generation = self.generation.wrapping_add(1);
        if !self.is_read || !self.cell().alloc(generation) {
            return Err(MailboxError::NoSyncs { most: SYNCS });
        }
        (self.generation, self.is_read) = (generation, false);
        Ok(())
    }

    /// The sync's name, by which the core or another process of the domain writes it ([`super::Attachment::write_sync`]). It goes
    /// into a message or a call as one word ([`SyncAddress::to_word`]).
    pub fn address(&self) -> SyncAddress {
        SyncAddress {
            client: self.inner.client,
            pool: SyncPool::Client,
            index: self.index,
            generation: self.generation,
        }
    }

    /// Waits until the sync is written. Its place is free for another once this is dropped.
    ///
    /// # Errors
    /// `TimedOut`: it is still to be written; `Gone`; `SyncRead` if it was read before.
    #[inline]
    pub fn read(&mut self, wait: Wait) -> Result<u64, MailboxError> {
        let inner = self.inner.clone();
        inner.watch.wait_for(&inner.arrivals, wait, None, || self.try_read())
    }

    /// The value, if it was written.
    ///
    /// # Errors
    /// `SyncRead` if it was read before.
    #[inline]
    pub fn try_read(&mut self) -> Result<Option<u64>, MailboxError> {
        if self.is_read {
            return Err(MailboxError::SyncRead);
        }
        let Some(value) = self.passed().or_else(|| self.cell().poll(self.generation)) else {
            self.inner.lane.pause();
            return Ok(None);
        };
        failpoint!("sync.read.after_read");
        self.is_read = true;
        Ok(Some(value))
    }

    /// Gives up: if it was written it is free now, else the write frees it.
    pub fn cancel(self) {
        drop(self);
    }

    /// The value, if the core passed it over the lane.
    #[inline]
    fn passed(&self) -> Option<u64> {
        let offer = self.inner.lane.peek()?;
        let (sync, value) = offer.sync()?;
        if (sync.index, sync.generation) != (self.index, self.generation) {
            return None;
        }
        self.inner.lane.accept(&offer);
        self.cell().free(self.generation);
        Some(value)
    }

    fn cell(&self) -> &SyncCell {
        &self.inner.cells[usize::from(self.index)]
    }
}

impl Drop for SyncWord {
    fn drop(&mut self) {
        let is_free = self.is_read || self.cell().cancel(self.generation);
        failpoint!("sync.cancel.after_cancel");
        let mut syncs = self.inner.syncs.lock().unwrap_or_else(PoisonError::into_inner);
        syncs.generations[usize::from(self.index)] = self.generation;
        if is_free {
            syncs.free.push(self.index);
        } else {
            syncs.cancelled.push(self.index);
        }
    }
}

impl fmt::Debug for SyncWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncWord").field("address", &self.address()).field("is_read", &self.is_read).finish()
    }
}

/// All cells that a client reads; none if the segment is too short.
pub(crate) fn cells(control: &Arc<Segment>) -> Option<Vec<SyncCell>> {
    (0..SYNCS).map(|index| SyncCell::new(control, ControlLayout::client_sync(index))).collect()
}

impl Inner {
    /// Takes out of the lane what nobody else would: see [`FreeSyncs::tidy`].
    #[cold]
    pub(crate) fn tidy_lane(&self) {
        self.syncs.lock().unwrap_or_else(PoisonError::into_inner).tidy(self);
    }

    /// Asks the core to write a sync.
    pub(crate) fn write_sync(&self, address: SyncAddress, value: u64) -> Result<(), MailboxError> {
        failpoint!("sync.write.before_push");
        let head = Descriptor { op: up::SYNC_WRITE, ..Descriptor::default() };
        let sent = self.pass(Signal { head, a: address.to_word(), b: value });
        failpoint!("sync.write.after_push");
        sent
    }
}
