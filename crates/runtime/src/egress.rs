//! The sessions of a context as the nodes that end in them see them, and what follows when such a node has run: the
//! queue's bound, reports to the subscriber, ends of streams.

use crate::Overflow;
use crate::context::{Context, SPARE_BUFFERS, wire};
use crate::counters::DropReason;
use crate::graph::edge::Queued;
use crate::graph::gauges::Loss;
use crate::graph::node::Spill;
use crate::graph::run::Outcome;
use crate::graph::session::{Egress, Room, Sent, SessionRun, SessionStep};
use crate::managers::request::ControlRequest;
use crate::net::carrier::Wire;
use crate::net::payload::Payload;
use crate::net::peers::Peers;
use crate::net::sink::SessionSink;
use crate::subscriptions::Subscription;
use crossdock_engine::Sink;
use crossdock_transport::handshake::Close;
use crossdock_transport::{ControlMessage, MAX_SUPER_BYTES, Notice};
use slab::Slab;

/// Most packets that a session is said to have room for.
const MOST_PACKETS: usize = 16;

/// The parts of a context that have to do with its sessions' queues.
pub(crate) struct Sessions<'a> {
    pub(crate) subscriptions: &'a mut Slab<Subscription>,
    pub(crate) peers: &'a mut Peers,
    pub(crate) wire: Wire<'a>,
    /// Keys of subscriptions with an open packet.
    pub(crate) opened: &'a mut Vec<usize>,
    /// The bound of a queue, in bytes.
    pub(crate) queue_bytes: u64,
    /// Large buffers that stay free: acks arrive in them.
    pub(crate) spare_buffers: usize,
}

impl Egress for Sessions<'_> {
    #[inline]
    fn room(&mut self, key: usize) -> Room {
        let subscription = self.subscriptions.get(key);
        let found = subscription.and_then(|s| Some((s.overflow, self.peers.get(s.peer)?)));
        let Some((overflow, peer)) = found else { return Room::Packets(MOST_PACKETS) };
        let carrier = peer.carrier();
        let packets = match overflow {
            Overflow::Block if peer.full => return Room::Full,
            Overflow::Block => {
                let left = self.queue_bytes.saturating_sub(carrier.backlog_bytes(self.wire.host));
                (left as usize / MAX_SUPER_BYTES + 1).min(MOST_PACKETS)
            }
            Overflow::DropOldest | Overflow::Disconnect => MOST_PACKETS,
        };
        if !carrier.takes_buffers() {
            return Room::Packets(packets);
        }
        // One more is that of the packet that is open.
        let mut has_free = |packets: usize| self.wire.pool.has_free(MAX_SUPER_BYTES, self.spare_buffers + packets + 1);
        match () {
            () if has_free(packets) => Room::Packets(packets),
            () if has_free(0) => Room::Packets(1),
            () => Room::NoBuffers,
        }
    }

    #[inline]
    fn run(&mut self, key: usize, run: SessionRun<'_>, spill: &mut Spill) -> Sent {
        let (batch, format) = (run.batch, run.format);
        let mut is_shared = false;
        let mut sent = self.send(key, format, spill, |sink| {
            let outcome = run.into_sink(sink);
            is_shared = outcome == Outcome::Whole && sink.take_whole(batch);
            outcome
        });
        if is_shared {
            sent.records += self.pass_whole(key, batch);
        }
        sent
    }

    #[cold]
    fn resend(&mut self, key: usize, rows: &Spill, again: &mut Spill) -> Sent {
        self.send(key, rows.format, again, |sink| {
            rows.rows().for_each(|row| sink.push(row));
            Outcome::Made
        })
    }
}

impl Sessions<'_> {
    /// Sends what `push` puts into a subscription's sink.
    #[inline]
    fn send(
        &mut self,
        key: usize,
        format: u64,
        spill: &mut Spill,
        push: impl FnOnce(&mut SessionSink<'_>) -> Outcome,
    ) -> Sent {
        let nothing = Sent { outcome: Outcome::Made, records: 0, bytes: 0, no_buffer: 0, too_long: 0 };
        let Some(subscription) = self.subscriptions.get_mut(key) else { return nothing };
        let Some(peer) = self.peers.get_mut(subscription.peer) else { return nothing };
        let (was_open, to) = (subscription.output.opened_ns().is_some(), subscription.recipient());
        let wire = self.wire.reborrow();
        let mut sink = SessionSink::new(&mut subscription.output, peer.carrier_mut(), wire, to, format, spill);
        let outcome = push(&mut sink);
        let SessionSink { taken: records, bytes, no_buffer, too_long, .. } = sink;
        if !was_open && subscription.output.opened_ns().is_some() {
            self.opened.push(key);
        }
        self.wire.counters.records_out += records;
        if records > 0 {
            self.peers.touch(subscription.peer);
        }
        Sent { outcome, records, bytes, no_buffer, too_long }
    }

    /// A whole batch joins the queue of a subscription over packets by reference; its records.
    fn pass_whole(&mut self, key: usize, batch: &Queued) -> u64 {
        let Some(subscription) = self.subscriptions.get(key) else { return 0 };
        let Some(link) = self.peers.link_mut(subscription.peer) else { return 0 };
        let records = batch.len() as u64;
        Payload::Whole { batch: batch.shared(), to: subscription.recipient() }.enqueue(&mut link.session);
        self.wire.counters.records_out += records;
        self.wire.counters.batches_whole += 1;
        self.peers.touch(subscription.peer);
        records
    }
}

impl Context {
    /// Lets the nodes of sessions run, as far as their sessions and the buffers have room for what comes of it.
    pub(crate) fn serve_sessions(&mut self) {
        loop {
            self.take_events();
            let mut sessions = Sessions {
                subscriptions: &mut self.subscriptions,
                peers: &mut self.peers,
                wire: wire!(self),
                opened: &mut self.scratch.opened,
                queue_bytes: self.queue_bytes,
                spare_buffers: (SPARE_BUFFERS / 2).min(self.large_buffers / 16),
            };
            // From here on subscriptions may end.
            match self.graph.next_session(self.now_ns, &mut sessions, &mut self.workspace) {
                Some(SessionStep::Ran(key)) => self.check_queue(key),
                Some(SessionStep::Failed(key)) => self.fail_query(key),
                Some(SessionStep::Ended(key, publishers)) => self.tell_end(key, publishers),
                Some(SessionStep::Converted { stream, chain, lost, has_failed }) => {
                    self.note_converted(stream as usize, chain, lost, has_failed);
                }
                None => return,
            }
        }
    }

    /// A subscription's query has panicked, which is a flaw of the daemon: it sees no more records, and nobody else
    /// notices.
    #[cold]
    fn fail_query(&mut self, key: usize) {
        let Some(subscription) = self.subscriptions.get(key) else { return };
        let (peer, number) = (subscription.peer, subscription.number);
        let message = "the query failed on a record because of a bug in the daemon: its records are dropped".to_owned();
        let text = format!("the query `{}`: {message}", subscription.select.sql());
        self.tell(peer, &Notice::Unreadable { subscription: number, message }.into());
        // The managers may have ended before.
        let _ = self.news.send(ControlRequest::QueryFailed(self.graph.index, text));
        self.check_queue(key);
    }

    /// Tells a subscription that a publisher has stopped, after the records that came.
    fn tell_end(&mut self, key: usize, publishers: u32) {
        self.flush_subscription(key);
        self.settle_queue(key);
        self.note_losses(key);
        self.tell_dropped(key, true);
        let Some(subscription) = self.subscriptions.get(key) else { return };
        let notice = Notice::StreamEnded { subscription: subscription.number, publishers };
        let peer = subscription.peer;
        self.tell(peer, &ControlMessage::Notice(notice));
    }

    /// Counts what the node of a subscription has lost since the last time. Whether its queue was full.
    #[inline]
    pub(crate) fn note_losses(&mut self, key: usize) -> bool {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return false };
        let errors = subscription.gauges.row_errors.get();
        self.counters.drop(DropReason::RowError, errors - std::mem::replace(&mut subscription.row_errors, errors));
        let lost = subscription.gauges.lost_in_all();
        if lost == subscription.lost_in_node {
            return false;
        }
        subscription.lose(lost - subscription.lost_in_node);
        subscription.lost_in_node = lost;
        self.count_losses(key)
    }

    #[cold]
    fn count_losses(&mut self, key: usize) -> bool {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return false };
        // The sink has counted its own, and what conversions lose is counted once for all that take it.
        let reasons = [
            (Loss::Unreadable, DropReason::Unreadable),
            (Loss::Failed, DropReason::QueryFailed),
            (Loss::QueueFull, DropReason::QueueFull),
            (Loss::HoldFull, DropReason::HoldFull),
            (Loss::HoldExpired, DropReason::HoldExpired),
        ];
        let mut was_full = false;
        for ((loss, reason), counted) in reasons.into_iter().zip(&mut subscription.counted) {
            let lost = subscription.gauges.lost(loss);
            let more = lost - std::mem::replace(counted, lost);
            self.counters.drop(reason, more);
            was_full |= loss == Loss::QueueFull && more > 0;
        }
        was_full && subscription.overflow == Overflow::Disconnect
    }

    /// A subscriber whose policy is to be disconnected has lost records.
    #[cold]
    pub(crate) fn disconnect_behind(&mut self, key: usize) {
        let Some(peer) = self.subscriptions.get(key).map(|subscription| subscription.peer) else { return };
        let reason = "the subscriber's queue is full and its policy is disconnect".to_owned();
        self.remove_peer(peer, "queue_full", Some(Close { again: false, reason }));
    }
}
