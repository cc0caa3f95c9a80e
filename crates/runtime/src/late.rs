//! Subscriptions for which a batch has to wait, because buffers ran out before all subscriptions of its stream were
//! served. No further input is taken in meanwhile, so there is one such batch at most.

use crate::context::{Context, SPARE_BUFFERS};
use crate::morph::Route;
use crate::subscriptions::Late;
use crossdock_mailbox::Batch;
use crossdock_transport::{ControlMessage, MAX_SUPER_BYTES, Notice};

impl Context {
    /// Whether a subscription has to wait for buffers. Those of attached processes need none.
    #[inline]
    pub(crate) fn must_wait(&mut self, key: usize) -> bool {
        let peer = self.subscriptions.get(key).and_then(|subscription| self.peers.get(subscription.peer));
        let needs_buffers = peer.is_some_and(|peer| peer.carrier().takes_buffers());
        needs_buffers && !self.pool.has_free(MAX_SUPER_BYTES, (SPARE_BUFFERS / 2).min(self.large_buffers / 16))
    }

    /// Keeps a batch for those that have to wait.
    #[cold]
    pub(crate) fn make_late(&mut self, batch: &Batch, stream: usize, keys: &[usize]) {
        // Nothing is taken in while there is one, so it is the first.
        self.serve_late(true);
        let mut copy = self.scratch.spare.pop().unwrap_or_default();
        copy.clone_from(batch);
        copy.select_all();
        let subscriptions = keys.iter().copied().collect();
        self.late = Some(Late { batch: copy, stream, subscriptions, end_pending: None });
    }

    /// Serves those that wait for buffers, as far as there are some by now, or `all`.
    pub(crate) fn serve_late(&mut self, all: bool) {
        while let Some(late) = &mut self.late {
            let Some(key) = late.subscriptions.pop_front() else {
                if let Some(late) = self.late.take() {
                    self.recycle(late.batch);
                }
                return;
            };
            let stream = late.stream;
            let is_there = |subscription: &crate::subscriptions::Subscription| subscription.stream == stream;
            if !self.subscriptions.get(key).is_some_and(is_there) {
                continue;
            }
            if !all && self.must_wait(key) {
                if let Some(late) = &mut self.late {
                    late.subscriptions.push_front(key);
                }
                return;
            }
            let Some(late) = self.late.take() else { return };
            match self.subscriptions.get(key).map(|subscription| subscription.way(late.batch.format)) {
                // Not by reference: the others have it by now.
                Some(Route::Direct) => drop(self.serve(key, &late.batch, usize::MAX)),
                Some(Route::Chain(chain)) => self.convert(stream, chain, &late.batch, &[(chain, key)]),
                Some(Route::None) => self.put_aside(key, &late.batch),
                None => {}
            }
            let end_pending = late.end_pending;
            self.late = Some(late);
            match end_pending {
                Some(publishers) => self.tell_end(key, publishers),
                None => self.check_queue(key),
            }
        }
    }

    /// Whether a publisher's end is reported to a subscription only after the batch that waits for it.
    pub(crate) fn is_told_late(&mut self, key: usize, publishers: u32) -> bool {
        let waits = |late: &&mut Late| late.subscriptions.contains(&key);
        match self.late.as_mut().filter(waits) {
            Some(late) => {
                late.end_pending = Some(publishers);
                true
            }
            None => false,
        }
    }

    /// Tells a subscription that a publisher has stopped, after the records that came.
    pub(crate) fn tell_end(&mut self, key: usize, publishers: u32) {
        self.flush_subscription(key);
        self.settle_queue(key);
        self.tell_dropped(key, true);
        let Some(subscription) = self.subscriptions.get(key) else { return };
        let notice = Notice::StreamEnded { subscription: subscription.number, publishers };
        let peer = subscription.peer;
        self.tell(peer, &ControlMessage::Notice(notice));
    }
}
