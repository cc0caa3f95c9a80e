//! A record that arrived in pieces, as the one record of a batch: the slices of the buffers in which the pieces came, in order.
//!
//! It is joined when it is first read as a whole ([`Batch::record`]), once for all that share the batch. A reader of its beginning
//! takes [`Batch::front`], and whatever sends it on or copies it takes its [`Fragments`].

use crate::batch::{Batch, Span};
use crate::buffer::{Buffer, BufferMut};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The parts of a record in pieces beside its slices. The clones of its batch share them.
#[derive(Debug)]
pub(crate) struct RecordSlices {
    /// Where each slice ends in the record, in bytes.
    ends: Box<[u32]>,
    /// Memory for the whole record. It is reserved with the first piece and not touched before a join, so a join cannot fail.
    reserved: Mutex<Option<BufferMut>>,
    joined: OnceLock<Option<Buffer>>,
    /// Counts the join.
    joins: Arc<AtomicU64>,
}

impl RecordSlices {
    fn len(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }

    /// The record at one place, joined now if it was not before.
    pub(crate) fn joined(&self, batch: &Batch) -> &[u8] {
        let joined = self.joined.get_or_init(|| {
            let mut memory = self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take()?;
            batch.copy_slices(&mut memory);
            self.joins.fetch_add(1, Ordering::Relaxed);
            Some(memory.freeze())
        });
        debug_assert!(joined.is_some(), "the memory is there until the one join");
        joined.as_ref().and_then(|joined| joined.get(..self.len())).unwrap_or_default()
    }

    /// The record at one place, if it was joined.
    fn if_joined(&self) -> Option<&[u8]> {
        self.joined.get()?.as_ref()?.get(..self.len())
    }
}

/// Records in pieces.
impl Batch {
    /// Makes one record of the slices, which are its pieces, in order. `reserved` is memory for all of it, which a join counts in
    /// `joins` and fills.
    ///
    /// # Errors
    /// The memory, where it is too short, the first buffer is long enough for the whole record, or there are records already: then
    /// nothing has changed.
    pub fn put_in_pieces(&mut self, reserved: BufferMut, joins: &Arc<AtomicU64>) -> Result<(), BufferMut> {
        let mut len = 0usize;
        let ends = self.slices.iter().map(|slice| {
            len += slice.len as usize;
            len as u32
        });
        let ends = ends.collect();
        // By its length alone a reader finds that it does not lie in the first buffer.
        let lies_apart = self.slices.first().is_some_and(|slice| self.buffers[slice.buffer as usize].capacity() < len);
        if !lies_apart || reserved.capacity() < len || u32::try_from(len).is_err() || !self.records.is_empty() {
            return Err(reserved);
        }
        self.slices.iter_mut().enumerate().for_each(|(at, slice)| slice.records = u32::from(at == 0));
        self.records.push(Span { slice: 0, start: 0, len: len as u32 });
        let (reserved, joined, joins) = (Mutex::new(Some(reserved)), OnceLock::new(), Arc::clone(joins));
        self.pieces = Some(Arc::new(RecordSlices { ends, reserved, joined, joins }));
        self.select_all();
        Ok(())
    }

    /// Whether it is one record that arrived in pieces, joined since or not.
    #[inline]
    pub fn is_in_pieces(&self) -> bool {
        self.pieces.is_some()
    }

    /// The first bytes of record `index`, as many as lie at one place: all, but for a record in pieces that was not joined.
    ///
    /// # Panics
    /// As [`Batch::record`].
    pub fn front(&self, index: usize) -> &[u8] {
        self.fragments(index).fragment(0).map_or(&[], |(_, front)| front)
    }

    /// The bytes of record `index` where they lie.
    ///
    /// # Panics
    /// As [`Batch::record`].
    pub fn fragments(&self, index: usize) -> Fragments<'_> {
        match &self.pieces {
            Some(pieces) if pieces.if_joined().is_none() => Fragments(Lie::Apart(self, pieces)),
            _ => Fragments(Lie::Together(self.record(index))),
        }
    }

    /// Copies all slices to the beginning of `to`, back to back.
    ///
    /// # Panics
    /// If they are longer than it.
    pub fn copy_slices(&self, to: &mut [u8]) {
        let mut at = 0;
        for slice in (0..self.slices.len()).map(|index| self.slice(index)) {
            to[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
    }
}

/// The bytes of a record or message where they lie: at one place, or as the pieces in which it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Fragments<'a>(Lie<'a>);

#[derive(Clone, Copy, Debug)]
enum Lie<'a> {
    Together(&'a [u8]),
    Apart(&'a Batch, &'a RecordSlices),
}

impl<'a> From<&'a [u8]> for Fragments<'a> {
    fn from(bytes: &'a [u8]) -> Fragments<'a> {
        Fragments(Lie::Together(bytes))
    }
}

impl<'a> Fragments<'a> {
    /// Bytes of all of it.
    pub fn len(self) -> usize {
        match self.0 {
            Lie::Together(bytes) => bytes.len(),
            Lie::Apart(_, pieces) => pieces.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// All of it at one place: where it lies apart, it is joined.
    pub fn whole(self) -> &'a [u8] {
        match self.0 {
            Lie::Together(bytes) => bytes,
            Lie::Apart(batch, pieces) => pieces.joined(batch),
        }
    }

    /// The bytes in `range`, fragment by fragment; as far as there are any.
    pub fn range(self, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
        let first = match self.0 {
            Lie::Together(_) => 0,
            Lie::Apart(_, pieces) => pieces.ends.partition_point(|end| *end as usize <= range.start),
        };
        (first..).map_while(move |at| {
            let (begin, bytes) = self.fragment(at).filter(|(begin, _)| *begin < range.end)?;
            bytes.get(range.start.saturating_sub(begin)..bytes.len().min(range.end - begin))
        })
    }

    /// Copies the bytes in `range` to the beginning of `to`.
    ///
    /// # Panics
    /// If they are more than fit there.
    pub fn copy_range(self, range: Range<usize>, to: &mut [u8]) {
        self.range(range).fold(0, |at, bytes| {
            to[at..at + bytes.len()].copy_from_slice(bytes);
            at + bytes.len()
        });
    }

    /// A fragment by its number, and where it begins.
    fn fragment(self, at: usize) -> Option<(usize, &'a [u8])> {
        match self.0 {
            Lie::Together(bytes) => (at == 0).then_some((0, bytes)),
            Lie::Apart(batch, pieces) => {
                let end = *pieces.ends.get(at)?;
                let bytes = batch.slice(at);
                Some((end as usize - bytes.len(), bytes))
            }
        }
    }
}
