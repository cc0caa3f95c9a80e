//! The handlers at the context that has the device: they are served after the network. Also the managers' requests to this context other than changes of its table.

use crate::announcing::Plans;
use crate::clock::TurnClock;
use crate::context::Context;
use crate::refusal::{fits_a_packet, refuse};
use crossdock_format::Format;
use crossdock_transport::control::{Refusal, RefusalCode};

/// The known facts of a stream that handlers read.
#[derive(Clone, Debug)]
pub(crate) struct StreamFacts {
    /// Its number, which batches carry.
    pub(crate) number: u32,
    pub(crate) name: String,
    /// Its formats, newest last, each with some of its latest records.
    pub(crate) formats: Vec<(Format, Vec<u8>)>,
    /// The highest rate of the last minute.
    pub(crate) peak_msgs_per_s: u64,
    pub(crate) records_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) batches_in: u64,
    /// The handler that makes it, if one does.
    pub(crate) made_by: Option<String>,
    pub(crate) publishers: u32,
}

impl Context {
    /// Takes the changes that came, and works on what waits for handlers, for a slice. Whether there is more to do at
    /// once.
    pub(crate) fn serve_handlers(&mut self) -> bool {
        let changed = self.graph.take_orders(&mut self.workspace);
        if self.graph.is_empty() && !changed && self.graph.turned.is_empty() {
            return false;
        }
        let slice_ns = self.config.platform.slice_us.saturating_mul(1000);
        let more = self.graph.serve(slice_ns, self.now_ns, &mut self.workspace);
        let arrived = self.note_arrived();
        self.serve_sessions();
        let has_turned = self.turn_credit();
        if arrived || has_turned || self.peers.is_dirty() {
            // Nothing else may come that would take it along.
            self.flush_opened(self.idler.is_heavy(self.now_ns));
            self.service_peers();
        }
        arrived || more || changed || has_turned || self.graph.is_changing()
    }

    /// Counts what handlers have made for sessions, and gives it to those that it reaches by a conversion. Whether there
    /// was any.
    fn note_arrived(&mut self) -> bool {
        if self.graph.arrived.is_empty() {
            return false;
        }
        let mut arrived = std::mem::take(&mut self.graph.arrived);
        for batch in arrived.drain(..) {
            let stream = batch.stream as usize;
            self.note_arrival(stream, &batch);
            self.route(stream, &batch, &[]);
            self.workspace.spares.keep_shared(batch);
        }
        self.graph.arrived = arrived;
        true
    }

    /// Credit goes to publishers of streams that have room again, and to others no more. Whether any turned.
    fn turn_credit(&mut self) -> bool {
        let turned = std::mem::take(&mut self.graph.turned);
        for (stream, is_blocked) in &turned {
            let publishers = self.streams.get(*stream as usize).map(|stream| stream.publishers.clone());
            for publisher in publishers.unwrap_or_default() {
                self.grant_credit(publisher);
                if !is_blocked {
                    self.peers.touch(publisher);
                }
            }
        }
        !turned.is_empty()
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
        let stream = self.streams.get(key)?;
        Some(StreamFacts {
            number: key as u32,
            name: stream.name.clone(),
            formats: stream.formats.iter().map(|known| (known.format.clone(), known.sample.records())).collect(),
            peak_msgs_per_s: stream.peak.msgs_per_s(self.now_ns),
            records_in: stream.records_in,
            bytes_in: stream.bytes_in,
            batches_in: stream.batches_in,
            made_by: stream.made_by.as_deref().map(str::to_owned),
            publishers: stream.publishers.len() as u32,
        })
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

    /// No handler makes a stream any more: notifies its subscribers, after the records that came.
    pub(crate) fn underive(&mut self, number: u32) {
        let Some(stream) = self.streams.get(number as usize) else { return };
        if stream.made_by.is_none() {
            return;
        }
        if let Some(stream) = self.streams.get_mut(number as usize) {
            stream.made_by = None;
        }
        self.graph.end_for_sessions(number, 0);
        self.disclaim(number);
    }
}
