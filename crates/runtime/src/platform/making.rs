//! Packs the records that a handler makes into batches, in buffers of the context's pool.

use crate::morph::chain::PIECE_BYTES;
use crossdock_engine::Sink;
use crossdock_mailbox::{Batch, BufferMut, Pool, Slice, Span};

/// The smallest buffer that is requested.
const LEAST_BYTES: usize = 512;

/// Descriptors that are kept for later, and how many where they are small: there may be as many as there are handlers
/// of a stream times the batches that came at once.
const SPARE: usize = 64;
const SPARE_SMALL: usize = 4096;
/// Records that a small one has room for. All of them take 6 MiB at most.
const SMALL_RECORDS: usize = 64;

/// Most bytes that a g-core's handler may make of one batch: a handler whose output does not end must not take all
/// memory.
const MAX_ROWS_BYTES: usize = 16 << 20;

/// The output of a context's handlers; one handler works at a time.
#[derive(Debug, Default)]
pub(crate) struct BatchBuilder {
    open: Option<BufferMut>,
    used: usize,
    /// Of the open buffer.
    batch: Batch,
    /// Whole batches, in order.
    pub(crate) made: Vec<Batch>,
    /// Empty ones.
    pub(crate) spare: Vec<Batch>,
    pub(crate) no_buffer: u64,
    pub(crate) too_long: u64,
    /// How many bytes the next buffer should have, by what came in.
    hint: usize,
}

/// The same with the pool of its memory.
pub(crate) struct BatchSink<'a> {
    pub(crate) making: &'a mut BatchBuilder,
    pub(crate) pool: &'a mut Pool,
}

impl BatchBuilder {
    /// Begins anew for a batch of about `hint` bytes.
    pub(crate) fn begin(&mut self, hint: usize) {
        self.hint = hint.clamp(LEAST_BYTES, PIECE_BYTES);
        (self.no_buffer, self.too_long) = (0, 0);
    }

    /// Closes the open buffer.
    #[inline]
    pub(crate) fn close(&mut self) {
        let Some(buffer) = self.open.take() else { return };
        let spare = self.spare.pop().unwrap_or_default();
        let mut batch = std::mem::replace(&mut self.batch, spare);
        let slice = Slice { buffer: 0, start: 0, len: self.used as u32, records: batch.records.len() as u32 };
        let records = batch.records.len() as u64;
        if batch.push_buffer(buffer.freeze()).is_ok() && batch.push_slice(slice).is_ok() {
            batch.select_all();
            self.made.push(batch);
        } else {
            // An empty batch has room for one of each, so this does not happen; it would be counted.
            self.no_buffer += records;
        }
        self.used = 0;
        self.hint = PIECE_BYTES;
    }

    /// An empty descriptor.
    #[inline]
    pub(crate) fn spare(&mut self) -> Batch {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps an empty descriptor for later.
    #[inline]
    pub(crate) fn keep(&mut self, mut batch: Batch) {
        let is_small = batch.records.capacity() <= SMALL_RECORDS;
        if self.spare.len() < if is_small { SPARE_SMALL } else { SPARE } {
            batch.clear();
            self.spare.push(batch);
        }
    }
}

impl BatchSink<'_> {
    #[cold]
    fn open(&mut self, record: &[u8]) -> bool {
        self.making.close();
        if record.len() > PIECE_BYTES {
            self.making.too_long += 1;
            return false;
        }
        let wanted = self.making.hint.max(record.len());
        let Some(buffer) = self.pool.alloc(wanted).or_else(|| self.pool.alloc(record.len())) else {
            self.making.no_buffer += 1;
            return false;
        };
        self.making.open = Some(buffer);
        true
    }
}

impl Sink for BatchSink<'_> {
    #[inline]
    fn push(&mut self, record: &[u8]) {
        let has_room = |making: &BatchBuilder| {
            making.open.as_ref().is_some_and(|open| making.used + record.len() <= open.capacity().min(PIECE_BYTES))
        };
        if !has_room(self.making) && !self.open(record) {
            return;
        }
        let making = &mut *self.making;
        let Some(place) = making.open.as_mut().and_then(|open| open.get_mut(making.used..making.used + record.len()))
        else {
            return;
        };
        place.copy_from_slice(record);
        making.batch.records.push(Span { slice: 0, start: making.used as u32, len: record.len() as u32 });
        making.used += record.len();
    }
}

/// Records gathered back to back, where there is no pool at hand.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Records for which there was no room.
    pub(crate) refused: u64,
}

impl Rows {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.refused = 0;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(start, end)| self.bytes.get(start..*end))
    }
}

impl Sink for Rows {
    #[inline]
    fn push(&mut self, record: &[u8]) {
        if self.bytes.len() + record.len() > MAX_ROWS_BYTES {
            self.refused += 1;
            return;
        }
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
    }
}
