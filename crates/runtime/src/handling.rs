//! The handlers at the context that has the device: they are served after the network. Also the managers' requests to this context other than changes of its table.

use crate::clock::TurnClock;
use crate::context::Context;
use crate::streams::StreamFacts;

impl Context {
    /// Takes the changes that came, and works on what waits for handlers, for a slice. Whether there is more to do at
    /// once.
    pub(crate) fn serve_handlers(&mut self) -> bool {
        let changed = self.graph.take_orders(&mut self.workspace);
        if self.graph.is_empty() && !changed && !self.graph.has_turned() {
            return false;
        }
        let slice_ns = self.config.platform.slice_us.saturating_mul(1000);
        let more = self.graph.serve(slice_ns, self.net.now_ns(), &mut self.workspace);
        let arrived = self.note_arrived();
        self.serve_sessions();
        let has_turned = self.turn_credit();
        if arrived || has_turned || self.net.is_dirty() {
            // Nothing else may come that would take it along.
            self.flush_opened(self.net.is_heavy());
            self.service_peers();
        }
        arrived || more || changed || has_turned || self.graph.is_changing()
    }

    /// Counts what handlers have made for sessions. Whether there was any.
    fn note_arrived(&mut self) -> bool {
        let (is_home, now_ns, mut any) = (self.place.is_home(), self.net.now_ns(), false);
        for batch in self.graph.take_arrived() {
            if let Some(stream) = self.streams.get_mut(batch.stream as usize) {
                let is_first = is_home && stream.made_by.is_some();
                stream.note_batch(&batch, is_first, now_ns);
                self.net.counters_mut().records_in += if is_first { batch.len() as u64 } else { 0 };
            }
            self.workspace.spares.keep_shared(batch);
            any = true;
        }
        any
    }

    /// Credit goes to publishers of streams that have room again, and to others no more. Whether any turned.
    fn turn_credit(&mut self) -> bool {
        let turned = self.graph.take_turned();
        for (stream, is_blocked) in &turned {
            let publishers = self.streams.get(*stream as usize).map(|stream| stream.publishers.clone());
            for publisher in publishers.unwrap_or_default() {
                self.grant_credit(publisher);
                if !is_blocked {
                    self.net.touch(publisher);
                }
            }
        }
        !turned.is_empty()
    }

    /// Counts a turn, and the processor time that it took if it was busy.
    pub(crate) fn note_turn(&mut self, was_busy: bool, turn_clock: &mut TurnClock) {
        self.net.counters_mut().turns += 1;
        self.graph.gauges().turns.add(1);
        self.graph.gauges().clients.set(self.host.interface().attached().into());
        let end_ns = self.net.clock_ns();
        let (busy_ns, away_ns) = turn_clock.end(end_ns);
        self.graph.note_away(end_ns, away_ns);
        if !was_busy {
            return;
        }
        self.net.counters_mut().busy_turns += 1;
        self.graph.gauges().busy_ns.add(busy_ns);
        let batches = std::mem::take(&mut self.net.counters_mut().batches_given);
        if batches > 0 {
            self.graph.gauges().batch_latency.note(end_ns.saturating_sub(self.net.since_ns()), batches);
        }
        let device = self.net.device_counters();
        self.graph.gauges().network_bytes.set(device.bytes_received.wrapping_add(device.bytes_sent));
        if self.net.counters().busy_turns.is_multiple_of(256) {
            self.graph.note_queues(&self.workspace);
        }
    }

    /// The known facts of a stream.
    pub(crate) fn facts(&self, key: usize) -> Option<StreamFacts> {
        self.streams.get(key).map(|stream| stream.facts(key as u32, self.graph.index(), self.net.now_ns()))
    }

    /// No handler makes a stream any more: notifies its subscribers, after the records that came.
    pub(crate) fn end_derived(&mut self, number: u32) {
        if self.streams.get(number as usize).is_none_or(|stream| stream.made_by.is_none()) {
            return;
        }
        if let Some(stream) = self.streams.get_mut(number as usize) {
            stream.made_by = None;
        }
        self.graph.end_for_sessions(number);
    }
}
