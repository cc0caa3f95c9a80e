//! The bounded queue between two contexts: batches one way, their empty descriptors back, so that once warm nothing is
//! allocated.

use crate::platform::gauges::{Loss, StageGauges};
use crate::platform::{ContextIndex, END, StageId};
use crossdock_mailbox::Batch;
use crossdock_mailbox::ring::{Consumer, Producer, ring};
use std::collections::VecDeque;
use std::sync::Arc;

/// The sending side. It belongs to the stage that makes the batches, or to the stream, and moves with it.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: Producer<Batch>,
    spent: Consumer<Batch>,
    /// Batches that the ring had no room for, in order; there are some only while its stage's inputs are held back.
    pending: VecDeque<Batch>,
    /// The receiving stage.
    pub(crate) to: StageId,
    /// The context of that stage now.
    pub(crate) context: ContextIndex,
    /// Whether batches that find no room are dropped.
    pub(crate) drops: bool,
    /// Batches that may wait in the ring: its share of the buffers that all of its context's may hold.
    limit: usize,
    /// The gauges of the receiving stage.
    gauges: Arc<StageGauges>,
}

/// The receiving side.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: Consumer<Batch>,
    spent: Producer<Batch>,
}

/// A queue with room for `batches` batches to a stage, of which `limit` may wait in it now.
pub(crate) fn edge(
    (batches, limit): (usize, usize),
    to: StageId,
    context: ContextIndex,
    drops: bool,
    gauges: Arc<StageGauges>,
) -> (Sender, Receiver) {
    let ((ring, taken), (spent, returned)) = (self::ring(batches), self::ring(batches));
    let pending = VecDeque::new();
    (Sender { ring, spent: returned, pending, to, context, drops, limit, gauges }, Receiver { ring: taken, spent })
}

impl Sender {
    /// An empty descriptor that came back, if one did.
    #[inline]
    pub(crate) fn spare(&mut self) -> Option<Batch> {
        self.spent.pop()
    }

    /// Appends a batch to the queue; a dropped batch is returned empty.
    #[inline]
    pub(crate) fn push(&mut self, batch: Batch) -> Option<Batch> {
        let mut refused = match self.pending.is_empty() && self.ring.is_below(self.limit) {
            true => self.ring.push(batch).err()?,
            false => batch,
        };
        if self.drops && refused.format != END {
            self.gauges.lose(Loss::QueueFull, refused.len() as u64);
            refused.clear();
            return Some(refused);
        }
        self.pending.push_back(refused);
        None
    }

    /// Whether the stage that feeds it should make no more for it now.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Puts in the batches that wait, as far as there is room; returns whether any went.
    pub(crate) fn flush(&mut self) -> bool {
        let mut went = false;
        while self.ring.is_below(self.limit)
            && let Some(batch) = self.pending.pop_front()
        {
            if let Err(batch) = self.ring.push(batch) {
                self.pending.push_front(batch);
                break;
            }
            went = true;
        }
        went
    }

    /// Sets how many batches may wait in the ring.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
    }

    /// Upper bound of its batches that were not taken out yet.
    pub(crate) fn waiting(&mut self) -> usize {
        self.pending.len() + self.ring.capacity() - self.ring.free()
    }

    /// Whether the receiver is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    /// Drops and counts the batches that had no room.
    pub(crate) fn drop_waiting(&mut self) {
        let records = self.pending.drain(..).map(|batch| batch.len() as u64).sum();
        self.gauges.lose(Loss::Removed, records);
    }
}

impl Receiver {
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Batch> {
        self.ring.pop()
    }

    /// Gives an empty descriptor back; none is waited for.
    #[inline]
    pub(crate) fn give_back(&mut self, batch: Batch) {
        drop(self.spent.push(batch));
    }

    /// Batches that wait in it.
    pub(crate) fn waiting(&mut self) -> usize {
        self.ring.waiting()
    }

    /// Whether the sender is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    /// Whether the sender is gone and all batches were taken out.
    pub(crate) fn is_done(&mut self) -> bool {
        self.ring.is_closed() && self.waiting() == 0
    }
}
