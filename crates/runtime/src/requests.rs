//! Carries out the control requests of a session, and enforces the bounds of its queues.

use crate::announcing::{Announcement, reply};
use crate::context::Context;
use crate::egress::{QueueEnd, Sessions};
use crate::graph::Graph;
use crate::host::Host;
use crate::io::IoPlace;
use crate::managers::request::RequestQueue;
use crate::morph::requests::ConversionRequest;
use crate::net::Net;
use crate::net::peers::Peer;
use crate::net::queues::QueueChange;
use crate::refusal::refuse;
use crate::streams::Streams;
use crate::subscribing::SubscriptionRequest;
use crate::subscriptions::{Subscription, Subscriptions};
use crossdock_format::Format;
use crossdock_transport::control::{Activity, Refusal, RefusalCode};
use crossdock_transport::handshake::Close;
use crossdock_transport::{ControlMessage, Follows, Notice, Origin, Reply, Request, TrafficClass};

/// Room in a queue for the notices to a subscriber at a stream's end, in bytes.
const NOTICES_BYTES: u64 = 4096;

impl Context {
    /// Carries out a request of a peer and queues the reply.
    pub(crate) fn carry_out(&mut self, key: usize, request: Request) {
        let ends = request.ends();
        if let Err(refusal) = self.access.admit_request(&self.net, key, &request) {
            // All of these have an answer.
            let Some(id) = request.id() else { return };
            return self.net.send_reply(key, &ControlMessage::Reply(reply(id, Err(refusal))), ends, &mut self.host);
        }
        let (id, outcome) = match request {
            Request::Announce { id, stream: number, name, format, publication, key: declared } => {
                return self.announce(key, Announcement { id, number, name, format, publication, key: declared });
            }
            request @ Request::Subscribe { .. } => {
                let request = SubscriptionRequest::of(request);
                return request.into_iter().for_each(|request| self.begin_subscribe(key, request));
            }
            Request::SetQuery { id, subscription, sql } => return self.begin_set_query(key, id, subscription, sql),
            Request::RegisterConversion { id, stream, from, to, conversion, kept } => {
                return self.register_conversion(key, ConversionRequest { id, stream, from, to, kept }, conversion);
            }
            Request::UnregisterConversion { id, stream, from, to, kept } => {
                return self.unregister_conversion(key, ConversionRequest { id, stream, from, to, kept });
            }
            Request::ListenForConverters { id, stream } => return self.listen_for_converters(key, id, stream),
            Request::Unsubscribe { id, subscription } => (id, self.unsubscribe(key, subscription)),
            Request::Finish { id, stream } => {
                self.take_last_sent(key);
                let (peer, of) = ((&mut self.net, key), (self.place, &*self.to_managers));
                match self.streams.finish(peer, stream, &mut self.graph, of) {
                    Ok(()) if self.durability.is_durable() => return self.finish_durably(key, id),
                    outcome => (id, outcome),
                }
            }
            Request::ReportMalformed { subscription } => {
                return self.subscriptions.suspect_stream((&self.net, key), subscription, &mut self.streams);
            }
            Request::ReportMissed { subscription, records } => {
                return self.note_event(self.subscriptions.missed_event((&self.net, key), subscription, records));
            }
            Request::UseDatagrams { id } => {
                self.net.use_datagrams(key);
                (id, Ok(()))
            }
            Request::OpenCircuit { id, bytes } => return self.open_circuit(key, id, bytes),
            Request::CountSubscriptions { id, stream } => {
                let counted = self.streams.count_subscriptions((&self.net, key), id, stream);
                return self.send_control(key, &counted.unwrap_or_else(|why| reply(id, Err(why))).into());
            }
            request @ (Request::CreateMailbox { .. }
            | Request::DeleteMailbox { .. }
            | Request::OpenMailbox { .. }
            | Request::CloseMailbox { .. }
            | Request::GetMessages { .. }
            | Request::CreateTask { .. }
            | Request::EndTask { .. }
            | Request::FindNode { .. }) => {
                let of = (self.place, &self.config, &*self.access);
                if let Some(reply) = self.host.carry_out(key, request, &mut self.net, of) {
                    self.net.send_reply(key, &reply, ends, &mut self.host);
                }
                return;
            }
            Request::Terminate => {
                let close = Close { again: false, reason: "as request".to_owned() };
                return self.remove_peer(key, "terminated", Some(close));
            }
        };
        self.net.send_reply(key, &ControlMessage::Reply(reply(id, outcome)), ends, &mut self.host);
    }

    fn unsubscribe(&mut self, key: usize, number: u32) -> Result<(), Refusal> {
        let found = self.subscriptions.of_peer((&self.net, key), number)?;
        self.sessions().0.flush(found);
        self.remove_subscription(found);
        Ok(())
    }

    /// Takes a subscription out of everything that knows it.
    pub(crate) fn remove_subscription(&mut self, key: usize) {
        // Its policy says no more: it goes.
        self.sessions().0.note_losses(key);
        let losses = self.subscriptions.take_event(key, true, &self.net, &self.access);
        self.note_event(losses);
        let removed = self.subscriptions.remove(key);
        debug_assert!(removed.is_some(), "subscription {key} is removed once");
        let Some(subscription) = removed else { return };
        self.admission.release(subscription.load_ns_per_s());
        self.graph.remove_session(key, &mut self.workspace);
        if let Some(stream) = self.streams.present_mut(subscription.stream()) {
            stream.end_subscription(key, &subscription);
        }
        if subscription.accept().is_some() {
            // Once for all that go together.
            self.morph.note_left(subscription.stream());
        }
        self.streams.end_delivery(subscription.stream(), &self.to_managers);
        self.streams.leave(subscription.stream());
        if let Some(peer) = self.net.present_peer_mut(subscription.peer()) {
            peer.end_subscription(key);
        }
        self.net.share_queues(self.subscriptions.len(), self.host.interface_mut());
    }

    /// After a run: a subscription's queue is held to its bound by its policy, and what was lost is reported.
    pub(crate) fn check_queue(&mut self, key: usize) {
        let (mut sessions, _, graph) = self.sessions();
        if let Some(QueueEnd { peer, close }) = sessions.check_queue(key, graph) {
            self.remove_peer(peer, "queue_full", Some(close));
        }
    }

    /// Applies the overflow policies of a peer whose queue is over its bound, and lifts them when it is well below.
    pub(crate) fn check_peer_queue(&mut self, key: usize) {
        let (mut sessions, _, graph) = self.sessions();
        if let Some(QueueEnd { peer, close }) = sessions.check_peer_queue(key, 0, graph) {
            self.remove_peer(peer, "queue_full", Some(close));
        }
    }
}

impl Streams {
    /// A peer has finished a stream that it publishes.
    fn finish(
        &mut self,
        (net, key): (&mut Net, usize),
        number: u32,
        graph: &mut Graph,
        of: (IoPlace, &RequestQueue),
    ) -> Result<(), Refusal> {
        let Some(peer) = net.present_peer_mut(key) else { return Ok(()) };
        let Some((stream, ended, is_last)) = peer.finish(number) else { return Err(not_announced(number)) };
        for publishing in &ended {
            self.end_publication(publishing);
            self.end_format(stream, publishing.format.id());
        }
        if is_last {
            self.end_publisher((key, stream), true, graph, of);
        }
        Ok(())
    }

    /// A peer no longer publishes a stream: notifies the subscribers, after the records that it sent, with whether it has
    /// said that it is finished.
    pub(crate) fn end_publisher(
        &mut self,
        (peer, stream_key): (usize, usize),
        is_finished: bool,
        graph: &mut Graph,
        (place, managers): (IoPlace, &RequestQueue),
    ) {
        let Some(stream) = self.present_mut(stream_key) else { return };
        // It has ended as a publisher before.
        let Some(publishers) = stream.end_publisher(peer) else { return };
        self.end_publishing(stream_key);
        // With the last, after all records of the stream, to the subscriptions of the streams derived from it.
        graph.arrive_end(stream_key as u32, publishers, is_finished);
        self.end_published(stream_key, place, managers);
    }
}

impl Streams {
    /// How many subscriptions there are to a stream that a peer publishes under this number.
    fn count_subscriptions(&self, (net, key): (&Net, usize), id: u32, number: u32) -> Result<Reply, Refusal> {
        let publishing = net.present_peer(key).map(Peer::publishing).unwrap_or_default();
        let stream = publishing.iter().find(|p| p.number == number).and_then(|p| self.get(p.stream));
        let subscriptions = stream.map(|stream| stream.entry().activity().subscriptions());
        let subscriptions = subscriptions.ok_or_else(|| not_announced(number))?;
        Ok(Reply::Subscriptions { id, subscriptions })
    }

    /// The activity of a subscription's stream.
    fn activity(&self, subscription: &Subscription, graph: &Graph, now_ns: u64) -> Activity {
        let Some(stream) = self.present(subscription.stream()) else { return Activity::default() };
        let (activity, is_made) = (stream.entry().activity(), stream.entry().made_by().is_some());
        let (records, latest_ns) = activity.records();
        let ago_ms = now_ns.saturating_sub(latest_ns) / 1_000_000;
        Activity {
            publishers: match is_made {
                true => graph.publishers_in_all(subscription.stream() as u32),
                false => Some(activity.publishers()),
            },
            records,
            latest_ms_ago: (records > 0).then_some(ago_ms),
        }
    }
}

impl Net {
    /// Queues the reply to a request that ends a subscription or a side of a mailbox, if `ends` names one.
    fn send_reply(&mut self, key: usize, reply: &ControlMessage, ends: Option<Origin>, host: &mut Host) {
        let class = ends.map_or_else(|| reply.class(), |origin| TrafficClass::Exchange(Follows::Origin(origin)));
        self.send_control(key, reply, class, host.interface_mut());
    }
}

impl Subscriptions {
    /// The key of a peer's subscription of this number.
    pub(crate) fn of_peer(&self, (net, key): (&Net, usize), number: u32) -> Result<usize, Refusal> {
        let peer = net.present_peer(key);
        let mut keys = peer.iter().flat_map(|p| p.subscriptions().iter().copied());
        let found = keys.find(|&s| self.present(s).is_some_and(|s| s.number() == number));
        found.ok_or_else(|| refuse(RefusalCode::State, format!("there is no subscription {number} in this session")))
    }

    /// A subscriber got invalid records by reference: its stream's packets are checked from now on.
    fn suspect_stream(&self, of: (&Net, usize), number: u32, streams: &mut Streams) {
        // The subscription may have ended before the report came.
        let Some(subscription) = self.of_peer(of, number).ok().and_then(|key| self.present(key)) else { return };
        if let Some(stream) = streams.present_mut(subscription.stream()) {
            stream.suspect();
        }
    }
}

impl Sessions<'_> {
    /// Confirms to a subscriber that its subscription stands, with all formats that may come.
    pub(crate) fn confirm(&mut self, (key, id, number): (usize, u32, u32), streams: &Streams, graph: &Graph) {
        let Some(peer) = self.net.present_peer(key) else { return };
        let mut all = peer.subscriptions().iter().filter_map(|&key| Some((key, self.subscriptions.present(key)?)));
        let found = all.find(|(_, subscription)| subscription.number() == number);
        debug_assert!(found.is_some(), "a subscription that is confirmed is its peer's");
        let Some((subscription_key, subscription)) = found else { return };
        let mut formats: Vec<String> = subscription.output_formats().map(Format::describe).collect();
        let format = formats.pop().unwrap_or_default();
        // In the first position it is only their sum that counts, once all publishers are there.
        let position = streams.position(subscription).map(|(position, _)| position);
        let activity = streams.activity(subscription, graph, self.net.now_ns());
        let listed = Some(subscription.id());
        self.subscriptions.note_reported(subscription_key, streams);
        let reply = Reply::Subscribed { id, subscription: number, format, activity, position, number: listed };
        self.net.send(key, &ControlMessage::Reply(reply), self.host);
        for format in formats {
            let notice = Notice::Format { subscription: number, format };
            self.net.send(key, &notice.into(), self.host);
        }
    }

    /// Called before the last notice of a stream to a subscriber: drops now the records that have to be dropped, so
    /// that their loss is reported before it. The session that ends for that, if it does.
    pub(crate) fn settle_queue(&mut self, key: usize, graph: &mut Graph) -> Option<QueueEnd> {
        let peer = self.subscriptions.present(key).map(Subscription::peer)?;
        self.check_peer_queue(peer, NOTICES_BYTES, graph)
    }

    /// Holds a subscription's queue to its bound by its policy, and reports what was lost. The session that ends for that, if it
    /// does.
    fn check_queue(&mut self, key: usize, graph: &mut Graph) -> Option<QueueEnd> {
        // It may have ended with an event before this one.
        let peer = self.subscriptions.get(key).map(Subscription::peer)?;
        if self.net.check_backlog(peer, self.host)
            && let Some(end) = self.check_peer_queue(peer, 0, graph)
        {
            return Some(end);
        }
        if self.note_losses(key) {
            return self.behind(key);
        }
        self.report_dropped(key, false);
        None
    }

    /// Applies the overflow policies of a peer whose queue is over its bound once `more` bytes join it, and lifts them when it is
    /// well below. The session that ends for that, if it does.
    fn check_peer_queue(&mut self, key: usize, more: u64, graph: &mut Graph) -> Option<QueueEnd> {
        let subscriptions = &mut *self.subscriptions;
        let lost = |of_peer: &[usize], number, records| subscriptions.lose(of_peer, number, records);
        let change = self.net.bound_queue(key, more, self.host, lost);
        if change == QueueChange::Unchanged {
            return None;
        }
        let subscriptions = self.net.peer(key).map(|peer| peer.subscriptions().to_vec()).unwrap_or_default();
        if let QueueChange::Full { backlog, bound } = change {
            let ends = |s: &usize| self.subscriptions.get(*s).is_some_and(Subscription::is_disconnected_when_full);
            return subscriptions.iter().any(ends).then(|| {
                let reason = format!(
                    "{backlog} bytes are queued, the bound is {bound}, and the subscriber's policy is disconnect"
                );
                QueueEnd { peer: key, close: Close { again: false, reason } }
            });
        }
        for subscription in subscriptions {
            graph.wake_session(subscription);
            if self.note_losses(subscription) {
                return self.behind(subscription);
            }
            self.report_dropped(subscription, true);
        }
        None
    }

    /// A subscriber whose policy is to be disconnected has lost records: its session ends.
    #[cold]
    pub(crate) fn behind(&self, key: usize) -> Option<QueueEnd> {
        let peer = self.subscriptions.present(key).map(Subscription::peer)?;
        let reason = "the subscriber's queue is full and its policy is disconnect".to_owned();
        Some(QueueEnd { peer, close: Close { again: false, reason } })
    }

    /// Super-packets that were filled in part leave when their linger has passed.
    pub(crate) fn flush_opened(&mut self, linger_ns: u64) {
        let mut opened = self.subscriptions.take_opened();
        opened.retain(|&key| {
            // It may have ended since, or its packet have left.
            let Some(subscription) = self.subscriptions.get(key) else { return false };
            let Some(opened_ns) = subscription.opened_ns() else { return false };
            if self.net.now_ns() < opened_ns.saturating_add(linger_ns) {
                return true;
            }
            self.flush(key);
            false
        });
        self.subscriptions.keep_opened(opened);
    }

    /// The open packet of a subscription joins its queue.
    pub(crate) fn flush(&mut self, key: usize) {
        let Some(subscription) = self.subscriptions.present_mut(key) else { return };
        let (peer, to) = (subscription.peer(), subscription.recipient());
        self.net.flush(peer, subscription.packet(), to, self.host);
    }
}

impl SubscriptionRequest {
    /// The same as a request of the session's protocol; none if that is another one.
    fn of(request: Request) -> Option<SubscriptionRequest> {
        let Request::Subscribe {
            id,
            subscription: number,
            sql,
            overflow,
            wait,
            accept,
            unreadable,
            row_errors,
            positions,
            one_format,
        } = request
        else {
            return None;
        };
        Some(SubscriptionRequest {
            id,
            number,
            sql,
            overflow,
            wait,
            accept,
            unreadable,
            row_errors,
            positions,
            one_format,
        })
    }
}

/// The refusal of a request about a stream that the session does not publish.
fn not_announced(number: u32) -> Refusal {
    refuse(RefusalCode::State, format!("stream number {number} was not announced in this session"))
}
