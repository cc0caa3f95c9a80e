//! The batch descriptor: what device, transport, handlers and mailboxes hand on.

use crate::buffer::Buffer;
use crate::heap::release;
use crate::pieces::RecordSlices;
use crate::selection::Selection;
use std::fmt;
use std::sync::Arc;

/// One packet's payload: records back to back, in one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Index into [`Batch::buffers`].
    pub buffer: u16,
    /// First byte, from the buffer's start.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
    /// How many records lie in it.
    pub records: u32,
}

/// One record's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Index into [`Batch::slices`].
    pub slice: u16,
    /// First byte, from the start of the slice's buffer.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

/// The messages of one stream and format that arrived together, as a descriptor: buffers by reference, the packets'
/// payloads in them, the records in those, and which records are meant. Cleared and filled again, it allocates nothing.
#[derive(Debug, Default)]
pub struct Batch {
    /// One reference each, however many slices lie in it.
    pub buffers: Vec<Buffer>,
    /// In order of arrival.
    pub slices: Vec<Slice>,
    /// Number of the stream in its context.
    pub stream: u32,
    /// The format's id.
    pub format: u64,
    /// Every record, in order of arrival.
    pub records: Vec<Span>,
    /// Which of `records` are meant.
    pub selection: Selection,
    /// When it was put into the queue in which it waits, in ns of its owner's clock; 0 where that is not noted.
    pub since_ns: u64,
    /// Distance in bytes from one slice's packet to the next, each with room for a header before the slice; 0 where the
    /// slices are no packets.
    pub stride: usize,
    /// Set where the slices are the pieces of one record ([`Batch::put_in_pieces`]).
    pub(crate) pieces: Option<Arc<RecordSlices>>,
}

/// A batch takes at most 65,535 buffers and slices, and every range must lie inside what holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchFull;

impl fmt::Display for BatchFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the batch is full, or the range lies outside what holds it: begin another batch")
    }
}

impl std::error::Error for BatchFull {}

impl Batch {
    /// Nothing, of stream and format 0.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Lets go of everything, keeping the lists' memory.
    pub fn clear(&mut self) {
        release(&mut self.buffers);
        self.slices.clear();
        self.records.clear();
        self.selection.clear();
        self.stream = 0;
        self.format = 0;
        self.since_ns = 0;
        self.stride = 0;
        self.pieces = None;
    }

    /// Adds a reference to a buffer and gives its index.
    ///
    /// # Errors
    /// [`BatchFull`] after 65,535 of them.
    pub fn push_buffer(&mut self, buffer: Buffer) -> Result<u16, BatchFull> {
        let index = u16::try_from(self.buffers.len()).ok().filter(|&index| index < u16::MAX).ok_or(BatchFull)?;
        self.buffers.push(buffer);
        Ok(index)
    }

    /// Adds a packet's payload and gives its index.
    ///
    /// # Errors
    /// [`BatchFull`] after 65,535 of them, or if it does not lie inside its buffer.
    pub fn push_slice(&mut self, slice: Slice) -> Result<u16, BatchFull> {
        let index = u16::try_from(self.slices.len()).ok().filter(|&index| index < u16::MAX).ok_or(BatchFull)?;
        let capacity = self.buffers.get(slice.buffer as usize).ok_or(BatchFull)?.capacity();
        if slice.start as usize + slice.len as usize > capacity {
            return Err(BatchFull);
        }
        self.slices.push(slice);
        Ok(index)
    }

    /// The bytes of record `index`; which is not asked whether it is meant. One in pieces is joined for that, once.
    ///
    /// # Panics
    /// If there is no such record, or it was written down with a range outside its buffer.
    #[inline]
    pub fn record(&self, index: usize) -> &[u8] {
        let span = self.records[index];
        let buffer = &self.buffers[self.slices[span.slice as usize].buffer as usize];
        let start = span.start as usize;
        match buffer.get(start..start + span.len as usize) {
            Some(record) => record,
            None => self.far_record(span),
        }
    }

    /// A record that does not lie in the buffer of its first slice.
    #[cold]
    fn far_record(&self, span: Span) -> &[u8] {
        match &self.pieces {
            Some(pieces) => pieces.joined(self),
            None => {
                &self.buffers[self.slices[span.slice as usize].buffer as usize][span.start as usize..]
                    [..span.len as usize]
            }
        }
    }

    /// The bytes of slice `index`: one packet's payload.
    ///
    /// # Panics
    /// If there is no such slice, or it was written down with a range outside its buffer.
    #[inline]
    pub fn slice(&self, index: usize) -> &[u8] {
        let slice = self.slices[index];
        &self.buffers[slice.buffer as usize][slice.start as usize..][..slice.len as usize]
    }

    /// The records meant, in order.
    pub fn selected(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.selection.iter().map(|index| self.record(index))
    }

    /// How many records there are, meant or not.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether every record is meant, so that the slices may leave as they came.
    pub fn is_whole(&self) -> bool {
        self.selection.is_all()
    }

    /// Means every record again; to be called once they are all written down.
    pub fn select_all(&mut self) {
        self.selection.select_all(self.records.len());
    }

    /// Length of all slices together, in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.slices.iter().map(|slice| slice.len as usize).sum()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        release(&mut self.buffers);
    }
}

impl Clone for Batch {
    fn clone(&self) -> Batch {
        let mut copy = Batch::new();
        copy.clone_from(self);
        copy
    }

    /// Refers to the same buffers and means the same records as `from`, in the memory that this one has.
    fn clone_from(&mut self, from: &Batch) {
        self.buffers.clone_from(&from.buffers);
        self.slices.clone_from(&from.slices);
        self.records.clone_from(&from.records);
        self.selection.clone_from(&from.selection);
        self.stream = from.stream;
        self.format = from.format;
        self.since_ns = from.since_ns;
        self.stride = from.stride;
        self.pieces.clone_from(&from.pieces);
    }
}
