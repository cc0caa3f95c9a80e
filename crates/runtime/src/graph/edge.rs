//! The bounded queue of one stream between two contexts: batches one way, their empty descriptors back, so that once
//! warm nothing is allocated.

use crate::graph::ContextIndex;
use crate::graph::bounds::PIECE_BYTES;
use crate::graph::gauges::{Loss, NodeGauges};
use crossdock_mailbox::ring::{Consumer, Producer, ring};
use crossdock_mailbox::{Batch, Pool, Slice, Span};
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A batch in a queue.
#[derive(Debug)]
pub(crate) enum Queued {
    /// A descriptor of the queue's own.
    Own(Batch),
    /// A descriptor that other queues of the context have too.
    Shared(Arc<Batch>),
}

impl Queued {
    /// A descriptor of the batch that is shared.
    pub(crate) fn shared(&self) -> Arc<Batch> {
        match self {
            Queued::Own(batch) => Arc::new(batch.clone()),
            Queued::Shared(batch) => Arc::clone(batch),
        }
    }
}

impl Deref for Queued {
    type Target = Batch;

    #[inline]
    fn deref(&self) -> &Batch {
        match self {
            Queued::Own(batch) => batch,
            Queued::Shared(batch) => batch,
        }
    }
}

/// Records of one format that wait for a conversion, as a copy: a buffer of the pool that waited for minutes would be
/// unavailable to all other traffic.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) format: u64,
    /// The records, back to back, and the end of each.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// When the first of them came, in ns.
    pub(crate) at_ns: u64,
}

impl Held {
    /// Bytes that count for it beside its records.
    const ITEM_BYTES: usize = 64;

    pub(crate) fn new(format: u64, at_ns: u64) -> Held {
        Held { format, bytes: Vec::new(), ends: Vec::new(), at_ns }
    }

    /// Without records, as it was made; the memory is kept, unless it was for a record that is longer than a packet.
    pub(crate) fn reset(&mut self) {
        match self.bytes.len() > PIECE_BYTES {
            true => self.bytes = Vec::new(),
            false => self.bytes.clear(),
        }
        self.ends.clear();
    }

    /// The first byte of each record.
    #[cfg(test)]
    pub(crate) fn first_bytes(&self) -> Vec<u8> {
        self.rows().map(|row| row[0]).collect()
    }

    /// Its records.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(start, end)| self.bytes.get(start as usize..*end as usize))
    }

    /// Appends a record.
    pub(crate) fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len() as u32);
    }

    /// The size of its records, in bytes.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that it counts for.
    pub(crate) fn size(&self) -> u64 {
        (self.bytes.len() + Held::ITEM_BYTES) as u64
    }

    pub(crate) fn records(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Fills an empty descriptor with the records, in a buffer of the pool; whether there was one.
    pub(crate) fn fill(&self, batch: &mut Batch, pool: &mut Pool) -> bool {
        let len = self.bytes.len();
        // All are in use.
        let Some(mut buffer) = pool.alloc(len) else { return false };
        buffer[..len].copy_from_slice(&self.bytes);
        let slice = Slice { buffer: 0, start: 0, len: len as u32, records: self.ends.len() as u32 };
        let has_place = batch.push_buffer(buffer.freeze()).is_ok() && batch.push_slice(slice).is_ok();
        debug_assert!(has_place, "an empty batch has room for one of each");
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        batch.records.extend(starts.zip(&self.ends).map(|(start, end)| Span { slice: 0, start, len: end - start }));
        batch.format = self.format;
        batch.select_all();
        true
    }
}

/// The publishers of a stream at a context, or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publishers {
    /// How many there are, if that is known. For a session none: the state that its query reads is gone.
    pub(crate) count: Option<u32>,
    /// How many have gone that had not said that they are finished, so far: a number that only grows.
    pub(crate) losses: u32,
}

/// An item of a queue, in the order in which it was put in.
#[derive(Debug)]
pub(crate) enum Item {
    Batch(Queued),
    /// Only in the queues of nodes that convert.
    Held(Held),
    /// A publisher of the stream has stopped, after the records before; those that it still has: in an edge at the context that
    /// the edge comes from, in a node's queue anywhere. Nodes that make a stream see the last end only, and learn of losses before.
    End(Publishers),
    /// Publishers of the stream at the context that the edge comes from, if that is known there: when the edge begins, behind a
    /// marker, when they get more, and whenever it changes for a stream that nodes make.
    Publishers(Publishers),
    /// The batches before it belong to the graph before the change of this number, those after it to the graph after.
    Marker(u64),
}

impl Item {
    /// The format of its records, by id, if it has any.
    pub(crate) fn format(&self) -> Option<u64> {
        match self {
            Item::Batch(batch) => Some(batch.format),
            Item::Held(held) => Some(held.format),
            Item::End(_) | Item::Publishers(_) | Item::Marker(_) => None,
        }
    }

    /// Records in it.
    pub(crate) fn records(&self) -> u64 {
        match self {
            Item::Batch(batch) => batch.len() as u64,
            Item::Held(held) => held.records(),
            Item::End(_) | Item::Publishers(_) | Item::Marker(_) => 0,
        }
    }
}

/// The policy for a batch for which an edge has no room.
#[derive(Clone, Debug)]
pub(crate) enum Overflow {
    /// The stream gets no credit until there is room.
    Block,
    /// It is dropped, and counted for these readers.
    Drop(Vec<Arc<NodeGauges>>),
}

impl Overflow {
    pub(crate) fn blocks(&self) -> bool {
        matches!(self, Overflow::Block)
    }
}

/// The sending side. It belongs to the stream's port at the context where its batches are made.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: Producer<Item>,
    spent: Consumer<Batch>,
    /// Items that the ring had no room for, in order: what a port got beyond its credit, ends and markers.
    pending: VecDeque<Item>,
    /// Whether there are any, for the receiver.
    is_behind: Arc<AtomicBool>,
    /// The receiving context.
    pub(crate) to: ContextIndex,
    pub(crate) overflow: Overflow,
    /// Items that may wait in the ring: its share of the buffers that all of its context's may hold.
    limit: usize,
}

/// The receiving side.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: Consumer<Item>,
    spent: Producer<Batch>,
    is_behind: Arc<AtomicBool>,
}

/// A queue with room for `batches` items; `limit` may wait in it now.
pub(crate) fn edge((batches, limit): (usize, usize), to: ContextIndex, overflow: Overflow) -> (Sender, Receiver) {
    let ((ring, taken), (spent, returned)) = (self::ring(batches), self::ring(batches));
    let (pending, is_behind) = (VecDeque::new(), Arc::<AtomicBool>::default());
    let receiver = Receiver { ring: taken, spent, is_behind: Arc::clone(&is_behind) };
    (Sender { ring, spent: returned, pending, is_behind, to, overflow, limit }, receiver)
}

impl Sender {
    /// An empty descriptor that came back, if one did.
    #[inline]
    pub(crate) fn spare(&mut self) -> Option<Batch> {
        self.spent.pop()
    }

    /// Appends a batch; a dropped one is returned empty.
    #[inline]
    pub(crate) fn push(&mut self, batch: Batch) -> Option<Batch> {
        let item = match self.pending.is_empty() && self.ring.is_below(self.limit) {
            true => match self.ring.push(Item::Batch(Queued::Own(batch))) {
                Ok(()) => return None,
                Err(item) => item,
            },
            false => Item::Batch(Queued::Own(batch)),
        };
        match (&self.overflow, item) {
            (Overflow::Drop(readers), Item::Batch(Queued::Own(mut batch))) => {
                readers.iter().for_each(|reader| reader.lose(Loss::QueueFull, batch.len() as u64));
                batch.clear();
                return Some(batch);
            }
            (_, item) => self.defer(item),
        }
        None
    }

    /// Keeps an item until there is room for it.
    fn defer(&mut self, item: Item) {
        self.pending.push_back(item);
        self.is_behind.store(true, Ordering::Release);
    }

    /// Appends an end or a marker, whether there is room or not.
    pub(crate) fn push_control(&mut self, item: Item) {
        self.defer(item);
        self.flush();
    }

    /// Whether batches may be put in.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.pending.is_empty() && self.ring.is_below(self.limit)
    }

    /// Whether the receiver has taken all that was put in.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.pending.is_empty() && self.ring.free() == self.ring.capacity()
    }

    /// Batches that may be put in now.
    #[inline]
    pub(crate) fn room(&mut self) -> usize {
        if !self.has_room() {
            return 0;
        }
        let waiting = self.ring.capacity() - self.ring.free();
        self.limit.saturating_sub(waiting)
    }

    /// Whether something has not gone into the ring yet.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Puts in the items that wait, as far as there is room; returns whether any went. Ends and markers need only a
    /// place in the ring.
    pub(crate) fn flush(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let mut went = false;
        while let Some(item) = self.pending.pop_front() {
            let goes = !matches!(item, Item::Batch(_)) || self.ring.is_below(self.limit);
            let back = if goes { self.ring.push(item).err() } else { Some(item) };
            if let Some(item) = back {
                self.pending.push_front(item);
                return went;
            }
            went = true;
        }
        // Whoever sees it finds them all in the ring.
        self.is_behind.store(false, Ordering::Release);
        went
    }

    /// Sets how many items may wait in the ring.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
    }

    /// Whether the receiver is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }
}

impl Receiver {
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.ring.pop()
    }

    /// Gives an empty descriptor back; none is waited for.
    #[inline]
    pub(crate) fn give_back(&mut self, batch: Batch) {
        drop(self.spent.push(batch));
    }

    /// Items that wait in it.
    pub(crate) fn waiting(&mut self) -> usize {
        self.ring.waiting()
    }

    /// Whether all has been taken that the sender had to say until now, also what the ring had no room for.
    pub(crate) fn is_drained(&mut self) -> bool {
        !self.is_behind.load(Ordering::Acquire) && self.ring.waiting() == 0
    }
}
