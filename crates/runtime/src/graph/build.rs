//! Packs the records that a node makes into batches, in buffers of its context's pool.

use crate::graph::bounds::{MAX_SPILL_BYTES, PIECE_BYTES};
use crate::graph::edge::Queued;
use crate::graph::spill::Spill;
use crossdock_engine::Sink;
use crossdock_mailbox::{Batch, Buffer, BufferMut, Pool, Selection, Slice, Span};
use crossdock_transport::MAX_MESSAGE_BYTES;
use std::sync::Arc;

/// Mean length from which on a batch's records are long ones, in bytes: four of them are a batch.
const LONG_RECORD_BYTES: usize = 16 << 10;

/// The longest record that may be made of one of a batch, in bytes. One that is longer than a packet is made only of records that
/// are long themselves; a run then takes one at a time: so the output of a run has a bound.
pub(crate) fn longest_made(batch: &Batch) -> usize {
    let bytes = batch.payload_bytes() / batch.len().max(1);
    if bytes >= LONG_RECORD_BYTES { MAX_MESSAGE_BYTES } else { PIECE_BYTES }
}

/// A batch of one record: the first `len` bytes of a buffer.
pub(crate) fn alone(buffer: Buffer, len: usize, format: u64) -> Batch {
    let mut batch = Batch::new();
    batch.format = format;
    let slice = Slice { buffer: 0, start: 0, len: len as u32, records: 1 };
    let has_place = batch.push_buffer(buffer).is_ok() && batch.push_slice(slice).is_ok();
    debug_assert!(has_place, "an empty batch has room for one of each");
    if has_place {
        batch.records.push(Span { slice: 0, start: 0, len: len as u32 });
    }
    batch.select_all();
    batch
}

/// The smallest buffer that is requested.
const LEAST_BYTES: usize = 512;

/// Descriptors that are kept for later, and how many where they are small: there may be as many as there are readers of
/// a stream times the batches that came at once.
const SPARE: usize = 64;
const SPARE_SMALL: usize = 4096;
/// Records that a small one has room for. All of them take 6 MiB at most.
const SMALL_RECORDS: usize = 64;

/// The memory in which the nodes of a context run. It belongs to the context's thread and not to its graph: another
/// thread can take the graph over while a handler runs.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) pool: Pool,
    pub(crate) builder: BatchBuilder,
    pub(crate) selection: Selection,
    pub(crate) spares: Spares,
    /// Buffers for full batches.
    pub(crate) large_buffers: usize,
}

impl Workspace {
    pub(crate) fn new(pool: Pool) -> Workspace {
        let large_buffers = pool.buffers_for(PIECE_BYTES);
        let (builder, selection, spares) = (BatchBuilder::default(), Selection::default(), Spares::default());
        Workspace { pool, builder, selection, spares, large_buffers }
    }

    /// Its buffers.
    pub(crate) fn buffers(&self) -> u64 {
        self.pool.stats().classes.iter().map(|class| class.count as u64).sum()
    }

    /// Its buffers that are in use.
    pub(crate) fn buffers_in_use(&self) -> u64 {
        self.pool.stats().classes.iter().map(|class| class.in_use() as u64).sum()
    }

    /// Closes the open buffer of what was made.
    #[inline]
    pub(crate) fn close(&mut self) {
        self.builder.close(&mut self.spares);
    }

    /// Throws away what was made so far.
    #[cold]
    pub(crate) fn discard(&mut self) {
        self.close();
        self.builder.made.drain(..).for_each(|batch| self.spares.keep(batch));
        self.builder.spill.clear();
    }

    /// The same records in a buffer of their size; nothing if there is none.
    pub(crate) fn compact(&mut self, batch: &Batch) -> Option<Batch> {
        let mut buffer = self.pool.alloc(batch.payload_bytes())?;
        let mut copy = self.spares.take();
        let (mut end, mut next) = (0, 0);
        for (index, slice) in batch.slices.iter().enumerate() {
            let bytes = batch.slice(index);
            buffer.get_mut(end..end + bytes.len())?.copy_from_slice(bytes);
            let of_slice = batch.records.iter().skip(next).take_while(|span| usize::from(span.slice) == index);
            let moved = |span: &Span| Span { slice: 0, start: end as u32 + span.start - slice.start, len: span.len };
            copy.records.extend(of_slice.map(moved));
            next = copy.records.len();
            end += bytes.len();
        }
        let slice = Slice { buffer: 0, start: 0, len: end as u32, records: next as u32 };
        copy.push_buffer(buffer.freeze()).ok()?;
        copy.push_slice(slice).ok()?;
        (copy.stream, copy.format, copy.since_ns) = (batch.stream, batch.format, batch.since_ns);
        copy.select_all();
        Some(copy)
    }

    /// Where a node's records go.
    pub(crate) fn sink(&mut self) -> EdgeSink<'_> {
        EdgeSink { builder: &mut self.builder, pool: &mut self.pool, spares: &mut self.spares }
    }
}

/// The output of the node that runs.
#[derive(Debug, Default)]
pub(crate) struct BatchBuilder {
    open: Option<BufferMut>,
    used: usize,
    /// Of the open buffer.
    batch: Batch,
    /// Whole batches, in order.
    pub(crate) made: Vec<Batch>,
    /// Batches that may be made: what the node's output has room for.
    most: usize,
    /// Records for which there was no buffer or no room, behind those that were made.
    pub(crate) spill: Spill,
    pub(crate) no_buffer: u64,
    pub(crate) too_long: u64,
    pub(crate) out_bytes: usize,
    /// How many bytes the next buffer should have, by what came in.
    hint: usize,
    /// The longest record that is taken, in bytes.
    longest: usize,
}

impl BatchBuilder {
    /// Begins anew, for output of about `hint` bytes in `most` batches, with records of at most `longest` bytes.
    #[inline]
    pub(crate) fn begin(&mut self, hint: usize, most: usize, longest: usize) {
        self.hint = hint.clamp(LEAST_BYTES, PIECE_BYTES);
        (self.most, self.longest, self.spill.most) = (most, longest, MAX_SPILL_BYTES);
        (self.no_buffer, self.too_long, self.out_bytes) = (0, 0, 0);
    }

    /// Closes the open buffer.
    #[inline]
    fn close(&mut self, spares: &mut Spares) {
        // None is open.
        let Some(buffer) = self.open.take() else { return };
        let mut batch = std::mem::replace(&mut self.batch, spares.take());
        let slice = Slice { buffer: 0, start: 0, len: self.used as u32, records: batch.records.len() as u32 };
        let records = batch.records.len() as u64;
        let has_place = batch.push_buffer(buffer.freeze()).is_ok() && batch.push_slice(slice).is_ok();
        debug_assert!(has_place, "an empty batch has room for one of each");
        match has_place {
            true => {
                batch.select_all();
                self.made.push(batch);
            }
            false => self.no_buffer += records,
        }
        self.used = 0;
        self.hint = PIECE_BYTES;
    }
}

/// Empty descriptors, kept for later.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    /// Those with room for more than [`SMALL_RECORDS`].
    large: Vec<Batch>,
    small: Vec<Batch>,
    shared: Vec<Arc<Batch>>,
}

impl Spares {
    /// An empty descriptor, one with much room if there is one.
    #[inline]
    pub(crate) fn take(&mut self) -> Batch {
        self.large.pop().or_else(|| self.small.pop()).unwrap_or_default()
    }

    /// A descriptor of the same batch.
    #[inline]
    pub(crate) fn copy(&mut self, batch: &Batch) -> Batch {
        let small = if batch.records.len() <= SMALL_RECORDS { self.small.pop() } else { None };
        let mut copy = small.unwrap_or_else(|| self.take());
        copy.clone_from(batch);
        copy
    }

    /// The descriptor, to be shared.
    #[inline]
    pub(crate) fn share(&mut self, batch: Batch) -> Arc<Batch> {
        let mut shared = self.shared.pop().unwrap_or_default();
        match Arc::get_mut(&mut shared) {
            Some(empty) => *empty = batch,
            None => shared = Arc::new(batch),
        }
        shared
    }

    /// The descriptor of a queue as the caller's own: a copy, where others have it too.
    pub(crate) fn own(&mut self, batch: Queued) -> Batch {
        match batch {
            Queued::Own(batch) => batch,
            Queued::Shared(mut shared) => match Arc::get_mut(&mut shared) {
                Some(alone) => std::mem::take(alone),
                None => self.copy(&shared),
            },
        }
    }

    /// Keeps a descriptor for later, without its buffers.
    #[inline]
    pub(crate) fn keep(&mut self, mut batch: Batch) {
        let is_small = batch.records.capacity() <= SMALL_RECORDS;
        batch.clear();
        let (spares, most) = if is_small { (&mut self.small, SPARE_SMALL) } else { (&mut self.large, SPARE) };
        if spares.len() < most {
            spares.push(batch);
        }
    }

    /// The same for a descriptor that others may have too.
    #[inline]
    pub(crate) fn keep_shared(&mut self, mut batch: Arc<Batch>) {
        if let Some(alone) = Arc::get_mut(&mut batch) {
            let own = std::mem::take(alone);
            self.keep(own);
            if self.shared.len() < SPARE {
                self.shared.push(batch);
            }
        }
    }

    /// The same for a descriptor from a queue.
    #[inline]
    pub(crate) fn keep_queued(&mut self, batch: Queued) {
        match batch {
            Queued::Own(batch) => self.keep(batch),
            Queued::Shared(batch) => self.keep_shared(batch),
        }
    }
}

/// Takes a node's records into batches for an edge.
pub(crate) struct EdgeSink<'a> {
    builder: &'a mut BatchBuilder,
    pool: &'a mut Pool,
    spares: &'a mut Spares,
}

impl EdgeSink<'_> {
    #[inline]
    fn has_room(&self, bytes: usize) -> bool {
        let builder = &*self.builder;
        builder.open.as_ref().is_some_and(|open| builder.used + bytes <= open.capacity().min(PIECE_BYTES))
    }

    /// Copies records of this length into the open buffer, which has room for them.
    #[inline]
    fn put(&mut self, records: &[u8], length: usize) {
        let builder = &mut *self.builder;
        builder.out_bytes += records.len();
        let end = builder.used + records.len();
        let place = builder.open.as_mut().and_then(|open| open.get_mut(builder.used..end));
        debug_assert!(place.is_some(), "the open buffer has room for {} bytes", records.len());
        let Some(place) = place else { return };
        place.copy_from_slice(records);
        while builder.used < end {
            builder.batch.records.push(Span { slice: 0, start: builder.used as u32, len: length as u32 });
            builder.used += length.max(1);
        }
        builder.used = end;
    }

    #[cold]
    fn open(&mut self, record: &[u8]) -> bool {
        let builder = &mut *self.builder;
        builder.close(self.spares);
        // One for which there can be no buffer would wait indefinitely.
        if record.len() > builder.longest.min(self.pool.largest_bytes()) {
            builder.too_long += 1;
            return false;
        }
        let wanted = builder.hint.max(record.len());
        let may_open = builder.spill.is_empty() && builder.made.len() < builder.most;
        let buffer = if may_open { self.pool.alloc(wanted).or_else(|| self.pool.alloc(record.len())) } else { None };
        match buffer {
            Some(buffer) => {
                builder.open = Some(buffer);
                return true;
            }
            None => builder.no_buffer += u64::from(!builder.spill.push(record)),
        }
        false
    }
}

impl Sink for EdgeSink<'_> {
    #[inline]
    fn push(&mut self, record: &[u8]) {
        if self.has_room(record.len()) || self.open(record) {
            self.put(record, record.len());
        } else {
            self.builder.out_bytes += record.len();
        }
    }

    /// At once, if the open buffer has room for all of them.
    fn push_rows(&mut self, records: &[u8], length: usize) {
        match self.has_room(records.len()) {
            true => self.put(records, length),
            false => records.chunks_exact(length.max(1)).for_each(|record| self.push(record)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crossdock_mailbox::PoolConfig;

    /// More than the first buffer has room for, and with a record of another length before them.
    #[test]
    fn records_that_come_together_are_the_same_as_one_by_one() {
        let rows: Vec<u8> = (0..100).flat_map(|number| [number; 40]).collect();
        let [together, alone] = [true, false].map(|together| {
            let mut ws = Workspace::new(Pool::new(PoolConfig { classes: vec![(512, 4), (64 << 10, 4)] }).unwrap());
            ws.builder.begin(512, 4, 1 << 10);
            let mut sink = ws.sink();
            sink.push(&[7; 100]);
            for rows in [&rows[..400], &rows[400..], &[]] {
                match together {
                    true => sink.push_rows(rows, 40),
                    false => rows.chunks(40).for_each(|row| sink.push(row)),
                }
            }
            ws.close();
            let records = |batch: &Batch| (0..batch.len()).map(|at| batch.record(at).to_vec()).collect::<Vec<_>>();
            let made: Vec<Vec<Vec<u8>>> = ws.builder.made.iter().map(records).collect();
            assert_eq!((ws.builder.out_bytes, ws.builder.no_buffer), (100 + rows.len(), 0));
            made
        });
        assert!(together == alone && together.len() == 2);
        assert_eq!(together.concat()[1..].concat(), rows);
    }
}
