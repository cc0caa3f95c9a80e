//! The sessions of a context as the nodes that end in them see them, and what follows when such a node has run: the
//! queue's bound, reports to the subscriber, ends of streams.

use crate::context::Context;
use crate::graph::edge::Queued;
use crate::graph::run::Outcome;
use crate::graph::session::{Egress, Room, Sent, SessionRun, SessionStep};
use crate::graph::spill::Spill;
use crate::managers::request::{ControlRequest, EventKind};
use crate::net::Net;
use crate::net::queues::MOST_PACKETS;
use crate::net::sink::SessionSink;
use crate::subscriptions::{Subscription, Subscriptions};
use crossdock_engine::Sink;
use crossdock_mailbox::host::HostInterface;
use crossdock_transport::handshake::Close;
use crossdock_transport::{ControlMessage, MAX_MESSAGE_BYTES, Notice};

/// The parts of a context that have to do with its sessions' queues.
pub(crate) struct Sessions<'a> {
    /// The subscriptions, with their open packets.
    pub(crate) subscriptions: &'a mut Subscriptions,
    /// The peers, with their queues.
    pub(crate) net: &'a mut Net,
    /// The memory that attached clients share.
    pub(crate) host: &'a mut HostInterface,
}

impl Egress for Sessions<'_> {
    #[inline]
    fn room(&mut self, key: usize, bytes: usize) -> Room {
        let found = self.subscriptions.present(key);
        let room = found.and_then(|s| self.net.room(s.peer(), s.waits_for_room(), bytes, self.host));
        room.unwrap_or(Room::Packets(MOST_PACKETS))
    }

    #[inline]
    fn run(&mut self, key: usize, run: SessionRun<'_>, spill: &mut Spill) -> Sent {
        let (batch, format, longest) = (run.batch, run.format, run.longest);
        let mut is_shared = false;
        let mut sent = self.send(key, (format, longest), spill, |sink| {
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
        self.send(key, (rows.format, MAX_MESSAGE_BYTES), again, |sink| {
            rows.rows().for_each(|row| sink.push(row));
            Outcome::Made
        })
    }
}

impl Sessions<'_> {
    /// Sends what `push` puts into a subscription's sink, which takes records of a format and a longest length.
    #[inline]
    fn send(
        &mut self,
        key: usize,
        of: (u64, usize),
        spill: &mut Spill,
        push: impl FnOnce(&mut SessionSink<'_>) -> Outcome,
    ) -> Sent {
        let nothing = Sent { outcome: Outcome::Made, records: 0, bytes: 0, no_buffer: 0, too_long: 0 };
        let Some(subscription) = self.subscriptions.present_mut(key) else { return nothing };
        let (was_open, to) = (subscription.opened_ns().is_some(), subscription.recipient());
        let (peer, output) = (subscription.peer(), subscription.packet());
        let Some(mut sink) = self.net.sink(peer, to, output, of, spill, self.host) else { return nothing };
        let outcome = push(&mut sink);
        let SessionSink { taken: records, bytes, no_buffer, too_long, .. } = sink;
        if !was_open && subscription.opened_ns().is_some() {
            self.subscriptions.note_opened(key);
        }
        self.net.note_sent(peer, records);
        Sent { outcome, records, bytes, no_buffer, too_long }
    }

    /// A whole batch joins the queue of a subscription over packets by reference; its records.
    fn pass_whole(&mut self, key: usize, batch: &Queued) -> u64 {
        let Some(subscription) = self.subscriptions.present(key) else { return 0 };
        self.net.pass_whole(subscription.peer(), batch.shared(), subscription.recipient())
    }
}

impl Context {
    /// Lets the nodes of sessions run, as far as their sessions and the buffers have room for what comes of it.
    pub(crate) fn serve_sessions(&mut self) {
        loop {
            self.take_events();
            let now_ns = self.net.now_ns();
            let mut sessions = Sessions {
                subscriptions: &mut self.subscriptions,
                net: &mut self.net,
                host: self.host.interface_mut(),
            };
            // From here on subscriptions may end.
            match self.graph.next_session(now_ns, &mut sessions, &mut self.workspace) {
                Some(SessionStep::Ran(key)) => self.check_queue(key),
                Some(SessionStep::Failed(key)) => self.fail_query(key),
                Some(SessionStep::Ended(key, publishers, lost)) => self.report_end(key, publishers, lost),
                Some(SessionStep::StateLost(key, loss)) => self.end_reading(key, loss),
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
    pub(crate) fn fail_query(&mut self, key: usize) {
        let Some(subscription) = self.subscriptions.present(key) else { return };
        let (peer, number) = (subscription.peer(), subscription.number());
        let message = "the query failed on a record because of a bug in the daemon: its records are dropped".to_owned();
        let text = format!("the query `{}`: {message}", subscription.select().sql());
        self.send_control(peer, &Notice::Unreadable { subscription: number, message }.into());
        // The managers may have ended before.
        let _ = self.to_managers.send(ControlRequest::Event(EventKind::Failed, self.graph.index(), text));
        self.check_queue(key);
    }

    /// Notifies a subscription that a publisher has stopped, after the records that came.
    pub(crate) fn report_end(&mut self, key: usize, publishers: u32, lost: u32) {
        self.flush_subscription(key);
        self.settle_queue(key);
        // It may have been disconnected for its queue.
        if self.subscriptions.get(key).is_none() {
            return;
        }
        self.note_losses(key);
        self.report_dropped(key, true);
        self.report_position(key, true);
        let Some(subscription) = self.subscriptions.present(key) else { return };
        let (peer, number) = (subscription.peer(), subscription.number());
        let notice = Notice::StreamEnded { subscription: number, publishers, lost };
        self.send_control(peer, &ControlMessage::Notice(notice));
    }

    /// A subscriber whose policy is to be disconnected has lost records.
    #[cold]
    pub(crate) fn disconnect_behind(&mut self, key: usize) {
        let Some(peer) = self.subscriptions.present(key).map(Subscription::peer) else { return };
        let reason = "the subscriber's queue is full and its policy is disconnect".to_owned();
        self.remove_peer(peer, "queue_full", Some(Close { again: false, reason }));
    }
}
