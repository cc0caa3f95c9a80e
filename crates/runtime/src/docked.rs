//! The handlers at the context that has the device: they are served after the network, and their results are given to
//! subscriptions. Also the managers' requests to this context other than changes of its table.

use crate::clock::TurnClock;
use crate::context::Context;
use crate::graph::Delivered;
use crate::streams::StreamFacts;

impl Context {
    /// Takes the changes that came, and works on what waits for handlers, for a slice. Whether there is more to do at
    /// once.
    pub(crate) fn serve_handlers(&mut self) -> bool {
        let changed = self.graph.take_orders(&mut self.workspace);
        if self.graph.is_empty() && !changed {
            return false;
        }
        // The results of subscriptions take buffers: without buffers a batch waits, and so does the node that made it.
        self.graph.holds_deliveries = self.cannot_deliver();
        let slice_ns = self.config.platform.slice_us.saturating_mul(1000);
        let more = self.graph.serve(slice_ns, self.now_ns, &mut self.workspace);
        let has_turned = !self.graph.turned.is_empty();
        if has_turned {
            for (stream, is_blocked) in std::mem::take(&mut self.graph.turned) {
                if is_blocked { self.block(stream as usize) } else { self.unblock(stream as usize) }
            }
        }
        if !self.dispatch_delivered(false) {
            if has_turned {
                // Credit that was kept back goes out now: nothing else may come that would take it along.
                self.service_peers();
            }
            return more || changed || has_turned || self.graph.is_changing();
        }
        self.flush_opened(self.idler.is_heavy(self.now_ns));
        self.service_peers();
        true
    }

    /// Gives what was delivered to the subscriptions of its streams, as far as there are buffers for what they make of
    /// it, or `all`. Whether there was any.
    fn dispatch_delivered(&mut self, all: bool) -> bool {
        let mut any = false;
        while !self.graph.delivered.is_empty() {
            if self.cannot_deliver() {
                if !all {
                    self.graph.holds_deliveries = true;
                    break;
                }
                self.serve_late(true);
            }
            match self.graph.delivered.pop_front() {
                Some(Delivered::Batch(batch)) => {
                    let stream = batch.stream as usize;
                    self.dispatch(batch, stream, usize::MAX);
                }
                Some(Delivered::End(stream)) => self.tell_ended(stream as usize),
                None => break,
            }
            any = true;
        }
        any
    }

    /// Counts a turn, and the processor time that it took if it was busy.
    pub(crate) fn note_turn(&mut self, was_busy: bool, turn_clock: &mut TurnClock) {
        self.counters.turns += 1;
        self.graph.gauges.turns.add(1);
        let end_ns = self.clock.now_ns();
        let (busy_ns, away_ns) = turn_clock.end(end_ns);
        self.graph.note_away(end_ns, away_ns);
        if !was_busy {
            return;
        }
        self.counters.busy_turns += 1;
        self.graph.gauges.busy_ns.add(busy_ns);
        let batches = std::mem::take(&mut self.counters.batches_given);
        if batches > 0 {
            self.graph.gauges.batch_latency.note(end_ns.saturating_sub(self.since_ns), batches);
        }
        let device = self.device.counters();
        self.graph.gauges.network_bytes.set(device.bytes_received.wrapping_add(device.bytes_sent));
        if self.counters.busy_turns.is_multiple_of(256) {
            self.graph.note_queues(&self.workspace);
        }
    }

    /// The known facts of a stream.
    pub(crate) fn facts(&self, key: usize) -> Option<StreamFacts> {
        self.streams.get(key).map(|stream| stream.facts(key as u32, self.now_ns))
    }

    /// A derived stream is delivered to its subscriptions from now on, unless one of them holds it back.
    pub(crate) fn begin_delivery(&mut self, number: u32) {
        let is_held = self.streams.get(number as usize).is_some_and(|stream| stream.blocked_by > 0);
        self.graph.hold_delivery(number, is_held);
    }

    /// No handler makes a stream any more: notifies its subscribers, after the records that came.
    pub(crate) fn end_derived(&mut self, number: u32) {
        if self.streams.get(number as usize).is_none_or(|stream| stream.made_by.is_none()) {
            return;
        }
        if self.graph.delivered.iter().any(|delivered| delivered.stream() == number) {
            self.dispatch_delivered(true);
        }
        if let Some(stream) = self.streams.get_mut(number as usize) {
            stream.made_by = None;
        }
        self.tell_ended(number as usize);
    }

    /// Tells a derived stream's subscribers that it has ended, after the records that came.
    fn tell_ended(&mut self, stream_key: usize) {
        let Some(stream) = self.streams.get(stream_key) else { return };
        for key in stream.subscriptions.clone() {
            if !self.is_told_late(key, 0) {
                self.tell_end(key, 0);
            }
        }
    }
}
