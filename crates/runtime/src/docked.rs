//! The handlers at the context that has the device: they are served after the network, and their results are given to
//! subscriptions. Also the managers' requests to this context other than changes of its table.

use crate::announcing::Plans;
use crate::clock::TurnClock;
use crate::context::Context;
use crate::graph::Delivered;
use crate::refusal::{fits_a_packet, refuse};
use crate::streams::StreamFacts;
use crossdock_format::Format;
use crossdock_transport::control::{Refusal, RefusalCode};

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

    /// Whether sessions may publish a stream.
    ///
    /// # Errors
    /// A handler makes it.
    pub(crate) fn check_publishable(&self, name: &str) -> Result<(), Refusal> {
        let stream = self.streams.find(name).and_then(|key| self.streams.get(key));
        match stream.and_then(|stream| stream.made_by.as_deref()) {
            None => Ok(()),
            Some(handler) => {
                let message = format!("stream `{name}` is made by handler `{handler}`: publish another one");
                Err(refuse(RefusalCode::State, message))
            }
        }
    }

    /// A handler reads a stream, which need not be there yet; what is known of it.
    ///
    /// # Errors
    /// Its name is none, or there are too many streams.
    pub(crate) fn claim(&mut self, name: &str) -> Result<StreamFacts, Refusal> {
        let key = self.stream_named(name)?;
        if let Some(stream) = self.streams.get_mut(key) {
            stream.claims += 1;
        }
        self.facts(key).ok_or_else(|| refuse(RefusalCode::UnknownStream, format!("stream `{name}` is gone")))
    }

    /// A handler reads or makes a stream no longer.
    pub(crate) fn disclaim(&mut self, number: u32) {
        if let Some(stream) = self.streams.get_mut(number as usize) {
            stream.claims = stream.claims.saturating_sub(1);
        }
        self.streams.forget_if_unused(number as usize);
    }

    /// The known facts of a stream.
    pub(crate) fn facts(&self, key: usize) -> Option<StreamFacts> {
        self.streams.get(key).map(|stream| stream.facts(key as u32, self.now_ns))
    }

    /// A handler makes a stream from now on, in these formats; what is known of it.
    ///
    /// # Errors
    /// Others publish it, its policy is against a format, or there are too many streams.
    pub(crate) fn derive(
        &mut self,
        name: &str,
        handler: &str,
        formats: &[Format],
        plans: &mut Plans,
    ) -> Result<StreamFacts, Refusal> {
        let key = self.stream_named(name)?;
        let Some(stream) = self.streams.get_mut(key) else {
            return Err(refuse(RefusalCode::UnknownStream, format!("stream `{name}` is gone")));
        };
        if !stream.publishers.is_empty() {
            let message =
                format!("stream `{name}` is published by {} sessions: make another one", stream.publishers.len());
            return Err(refuse(RefusalCode::State, message));
        }
        formats.iter().try_for_each(fits_a_packet)?;
        let is_new = stream.made_by.is_none();
        stream.claims += u32::from(is_new);
        stream.made_by = Some(handler.into());
        let make_known = |format: &Format| self.make_known(name, format, plans, false).map(drop);
        if let Err(refusal) = formats.iter().try_for_each(make_known) {
            // Nobody makes it then, so that others may.
            if let Some(stream) = self.streams.get_mut(key).filter(|_| is_new) {
                stream.made_by = None;
                self.disclaim(key as u32);
            }
            return Err(refusal);
        }
        self.facts(key).ok_or_else(|| refuse(RefusalCode::UnknownStream, format!("stream `{name}` is gone")))
    }

    /// A derived stream is delivered to its subscriptions from now on, unless one of them holds it back.
    pub(crate) fn begin_delivery(&mut self, number: u32) {
        let is_held = self.streams.get(number as usize).is_some_and(|stream| stream.blocked_by > 0);
        self.graph.hold_delivery(number, is_held);
    }

    /// No handler makes a stream any more: notifies its subscribers, after the records that came.
    pub(crate) fn underive(&mut self, number: u32) {
        let Some(stream) = self.streams.get(number as usize) else { return };
        if stream.made_by.is_none() {
            return;
        }
        if self.graph.delivered.iter().any(|delivered| delivered.stream() == number) {
            self.dispatch_delivered(true);
        }
        if let Some(stream) = self.streams.get_mut(number as usize) {
            stream.made_by = None;
        }
        self.tell_ended(number as usize);
        self.disclaim(number);
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
