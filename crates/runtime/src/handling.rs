//! The handlers at the context that has the device: what they make, and whom they hold back. Also the managers' requests to this
//! context other than changes of its table.

use crate::clock::TurnClock;
use crate::context::Context;
use crate::counters::{DropReason, Levels};
use crate::graph::Graph;
use crate::graph::build::{Spares, Workspace};
use crate::graph::node::StateLoss;
use crate::host::Host;
use crate::managers::state_spec::stream_of_state;
use crate::net::Net;
use crate::streams::{Counted, Stream, Streams};

impl Streams {
    /// Counts what handlers have made for sessions; the home context counts the records of each stream. Whether there was any.
    pub(crate) fn note_arrived(
        &mut self,
        is_home: bool,
        graph: &mut Graph,
        net: &mut Net,
        spares: &mut Spares,
    ) -> bool {
        let (now_ns, mut any) = (net.now_ns(), false);
        for batch in graph.take_arrived() {
            if let Some(stream) = self.get_mut(batch.stream as usize) {
                let is_first = is_home && stream.is_made();
                stream.note_batch(&batch, is_first, now_ns);
                if is_first {
                    let records = batch.len() as u64;
                    stream.entry().activity().note(records, now_ns);
                    net.counters_mut().records_in += records;
                    if !stream.entry().is_read() {
                        stream.note_unclaimed(records);
                        net.count_drop(DropReason::Unclaimed, records);
                    }
                }
            }
            spares.keep_shared(batch);
            any = true;
        }
        any
    }

    /// The counts here of a stream.
    pub(crate) fn counted(&self, name: &str, now_ns: u64) -> Option<Counted> {
        let key = self.find(name)?;
        self.get(key).map(|stream| stream.counted(now_ns))
    }

    /// No handler makes a stream any more: notifies its subscribers, after the records that came.
    pub(crate) fn end_derived(&mut self, number: u32, graph: &mut Graph) {
        // It may have gone, or have ended here already.
        let Some(stream) = self.get_mut(number as usize).filter(|stream| stream.is_made()) else { return };
        stream.end_made();
        match stream_of_state(stream.name()) {
            Some(_) => graph.lose_state(number, StateLoss::Withdrawn),
            None => graph.end_for_sessions(number),
        }
    }
}

impl Net {
    /// Credit goes to publishers of streams that have room again, and to others no more. Whether any turned.
    pub(crate) fn turn_credit(&mut self, graph: &mut Graph, streams: &Streams, host: &mut Host) -> bool {
        let turned = graph.take_turned();
        for (stream, is_blocked) in &turned {
            for &publisher in streams.get(*stream as usize).map(Stream::publishers).unwrap_or_default() {
                self.grant_credit(publisher, host.interface_mut(), |stream| graph.is_blocked(stream as u32));
                if !is_blocked {
                    self.touch(publisher);
                }
            }
        }
        !turned.is_empty()
    }
}

impl Context {
    /// Ends a turn: wakes the clients that have something to take, and counts the turn, with the processor time that it took if
    /// it was busy.
    pub(crate) fn end_turn(&mut self, was_busy: bool, turn_clock: &mut TurnClock) {
        self.host.end_turn();
        self.net.counters_mut().turns += 1;
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
        self.levels.note_work(true);
        self.levels.update(&mut self.graph, &self.net, &self.workspace);
    }
}

impl Levels {
    /// Updates the gauge of the network's bytes after a busy turn and before a sleep, and those of queues and buffers, if something has
    /// happened since they were last updated and that was not a moment ago. In how many ns the latter are to be updated, if they are.
    pub(crate) fn update(&mut self, graph: &mut Graph, net: &Net, workspace: &Workspace) -> u64 {
        let device = net.device_counters();
        graph.gauges().network_bytes.set(device.bytes_received.wrapping_add(device.bytes_sent));
        match self.due_in_ns(net.now_ns()) {
            None => u64::MAX,
            Some(left_ns @ 1..) => left_ns,
            Some(0) => {
                let (of_net, _) = net.buffers();
                graph.note_queues(workspace.buffers_in_use() + of_net);
                u64::MAX
            }
        }
    }
}
