//! Carries out the control requests of a session, and enforces the bounds of its queues.

use crate::announcing::{Announcement, reply};
use crate::context::Context;
use crate::morph::requests::ConversionRequest;
use crate::net::peers::Peer;
use crate::net::queues::QueueChange;
use crate::refusal::refuse;
use crate::subscribing::SubscriptionRequest;
use crate::subscriptions::Subscription;
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
        if let Err(refusal) = self.admit_request(key, &request) {
            return self.refuse_request(key, &request, refusal);
        }
        let (id, outcome) = match request {
            Request::Announce { id, stream: number, name, format, publication, key: declared } => {
                return self.announce(key, Announcement { id, number, name, format, publication, key: declared });
            }
            request @ Request::Subscribe { .. } => return self.request_subscription(key, request),
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
                match self.finish(key, stream) {
                    Ok(()) if self.durability.is_durable() => return self.finish_durably(key, id),
                    outcome => (id, outcome),
                }
            }
            Request::ReportMalformed { subscription } => return self.suspect_stream(key, subscription),
            Request::ReportMissed { subscription, records } => return self.report_missed(key, subscription, records),
            Request::UseDatagrams { id } => {
                self.net.use_datagrams(key);
                (id, Ok(()))
            }
            Request::OpenCircuit { id, bytes } => return self.open_circuit(key, id, bytes),
            Request::CountSubscriptions { id, stream } => return self.report_subscriptions(key, id, stream),
            request @ (Request::CreateMailbox { .. }
            | Request::DeleteMailbox { .. }
            | Request::OpenMailbox { .. }
            | Request::CloseMailbox { .. }
            | Request::GetMessages { .. }
            | Request::CreateTask { .. }
            | Request::EndTask { .. }
            | Request::FindNode { .. }) => {
                if let Some(reply) = self.carry_out_mailbox(key, request) {
                    self.send_reply(key, &reply, ends);
                }
                return;
            }
            Request::Terminate => {
                let close = Close { again: false, reason: "as request".to_owned() };
                return self.remove_peer(key, "terminated", Some(close));
            }
        };
        self.send_reply(key, &ControlMessage::Reply(reply(id, outcome)), ends);
    }

    /// Begins a subscription.
    fn request_subscription(&mut self, key: usize, request: Request) {
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
            return debug_assert!(false, "another request");
        };
        let request = SubscriptionRequest {
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
        };
        self.begin_subscribe(key, request);
    }

    /// Answers a request that the access rules refuse; all of these have an answer.
    fn refuse_request(&mut self, key: usize, request: &Request, refusal: Refusal) {
        let Some(id) = request.id() else { return };
        self.send_reply(key, &ControlMessage::Reply(reply(id, Err(refusal))), request.ends());
    }

    /// Queues the reply to a request that ends a subscription or a side of a mailbox, if `ends` names one.
    fn send_reply(&mut self, key: usize, reply: &ControlMessage, ends: Option<Origin>) {
        let class = ends.map_or_else(|| reply.class(), |origin| TrafficClass::Exchange(Follows::Origin(origin)));
        self.send_control_as(key, reply, class);
    }

    /// Confirms to a subscriber that its subscription stands, with all formats that may come.
    pub(crate) fn confirm_subscription(&mut self, key: usize, id: u32, number: u32) {
        let Some(peer) = self.net.present_peer(key) else { return };
        let mut all = peer.subscriptions().iter().filter_map(|&key| Some((key, self.subscriptions.present(key)?)));
        let found = all.find(|(_, subscription)| subscription.number() == number);
        debug_assert!(found.is_some(), "a subscription that is confirmed is its peer's");
        let Some((subscription_key, subscription)) = found else { return };
        let mut formats: Vec<String> = subscription.output_formats().map(Format::describe).collect();
        let format = formats.pop().unwrap_or_default();
        // In the first position it is only their sum that counts, once all publishers are there.
        let position = self.position(subscription).map(|(position, _)| position);
        let activity = self.activity(subscription);
        let listed = Some(subscription.id());
        self.note_reported(subscription_key);
        let reply = Reply::Subscribed { id, subscription: number, format, activity, position, number: listed };
        self.send_control(key, &ControlMessage::Reply(reply));
        for format in formats {
            self.send_control(key, &ControlMessage::Notice(Notice::Format { subscription: number, format }));
        }
    }

    /// Answers how many subscriptions there are to a stream that a peer publishes.
    fn report_subscriptions(&mut self, key: usize, id: u32, number: u32) {
        let reply = self.count_subscriptions(key, id, number).unwrap_or_else(|why| reply(id, Err(why)));
        self.send_control(key, &reply.into());
    }

    /// How many subscriptions there are to a stream that a peer publishes.
    fn count_subscriptions(&self, key: usize, id: u32, number: u32) -> Result<Reply, Refusal> {
        let publishing = self.net.present_peer(key).map(Peer::publishing).unwrap_or_default();
        let stream = publishing.iter().find(|p| p.number == number).and_then(|p| self.streams.get(p.stream));
        let subscriptions = stream.map(|stream| stream.entry().activity().subscriptions());
        let subscriptions = subscriptions.ok_or_else(|| not_announced(number))?;
        Ok(Reply::Subscriptions { id, subscriptions })
    }

    /// The activity of a subscription's stream.
    fn activity(&self, subscription: &Subscription) -> Activity {
        let Some(stream) = self.streams.present(subscription.stream()) else { return Activity::default() };
        let (activity, is_made) = (stream.entry().activity(), stream.entry().made_by().is_some());
        let (records, latest_ns) = activity.records();
        let ago_ms = self.net.now_ns().saturating_sub(latest_ns) / 1_000_000;
        Activity {
            publishers: match is_made {
                true => self.graph.publishers_in_all(subscription.stream() as u32),
                false => Some(activity.publishers()),
            },
            records,
            latest_ms_ago: (records > 0).then_some(ago_ms),
        }
    }

    /// The key of a peer's subscription of this number.
    pub(crate) fn subscription_of(&self, key: usize, number: u32) -> Result<usize, Refusal> {
        let peer = self.net.present_peer(key);
        let mut keys = peer.iter().flat_map(|p| p.subscriptions().iter().copied());
        let found = keys.find(|&s| self.subscriptions.present(s).is_some_and(|s| s.number() == number));
        found.ok_or_else(|| refuse(RefusalCode::State, format!("there is no subscription {number} in this session")))
    }

    fn unsubscribe(&mut self, key: usize, number: u32) -> Result<(), Refusal> {
        let found = self.subscription_of(key, number)?;
        self.flush_subscription(found);
        self.remove_subscription(found);
        Ok(())
    }

    /// A subscriber got invalid records by reference: its stream's packets are checked from now on.
    fn suspect_stream(&mut self, key: usize, number: u32) {
        let Some(peer) = self.net.present_peer(key) else { return };
        let mut all = peer.subscriptions().iter().filter_map(|&s| self.subscriptions.present(s));
        // The subscription may have ended before the report came.
        let Some(stream) = all.find(|s| s.number() == number).map(Subscription::stream) else { return };
        if let Some(stream) = self.streams.present_mut(stream) {
            stream.suspect();
        }
    }

    fn finish(&mut self, key: usize, number: u32) -> Result<(), Refusal> {
        let Some(peer) = self.net.present_peer_mut(key) else { return Ok(()) };
        let Some((stream, ended, is_last)) = peer.finish(number) else { return Err(not_announced(number)) };
        for publishing in &ended {
            self.streams.end_publication(publishing);
            self.streams.end_format(stream, publishing.format.id());
        }
        if is_last {
            self.end_publishing(key, stream, true);
        }
        Ok(())
    }

    /// Takes a subscription out of everything that knows it.
    pub(crate) fn remove_subscription(&mut self, key: usize) {
        // Its policy says no more: it goes.
        self.note_losses(key);
        self.report_subscription_losses(key, true);
        let Some(subscription) = self.subscriptions.remove(key) else { return };
        self.admission.release(subscription.load_ns_per_s());
        self.graph.remove_session(key, &mut self.workspace);
        if let Some(stream) = self.streams.present_mut(subscription.stream()) {
            stream.end_subscription(key, &subscription);
        }
        if subscription.accept().is_some() {
            // Once for all that go together.
            self.morph.note_left(subscription.stream());
        }
        self.end_delivery(subscription.stream());
        self.streams.leave(subscription.stream());
        if let Some(peer) = self.net.present_peer_mut(subscription.peer()) {
            peer.end_subscription(key);
        }
        self.net.share_queues(self.subscriptions.len(), self.host.interface_mut());
    }

    /// Called before the last notice of a stream to a subscriber: drops now the records that have to be dropped, so
    /// that their loss is reported before it.
    pub(crate) fn settle_queue(&mut self, key: usize) {
        if let Some(peer) = self.subscriptions.present(key).map(Subscription::peer) {
            self.check_peer_queue_with(peer, NOTICES_BYTES);
        }
    }

    /// After a run: a subscription's queue is held to its bound by its policy, and what was lost is reported.
    pub(crate) fn check_queue(&mut self, key: usize) {
        // It may have ended with an event before this one.
        let Some(peer) = self.subscriptions.get(key).map(Subscription::peer) else { return };
        if self.net.check_backlog(peer, self.host.interface()) {
            self.check_peer_queue(peer);
        }
        // It may have been disconnected for its queue.
        if self.subscriptions.get(key).is_none() {
            return;
        }
        if self.note_losses(key) {
            return self.disconnect_behind(key);
        }
        self.report_dropped(key, false);
    }

    /// Applies the overflow policies of a peer whose queue is over its bound, and lifts them when it is well below.
    pub(crate) fn check_peer_queue(&mut self, key: usize) {
        self.check_peer_queue_with(key, 0);
    }

    /// The same, for a queue that `more` bytes are to join.
    fn check_peer_queue_with(&mut self, key: usize, more: u64) {
        let subscriptions = &mut self.subscriptions;
        let lost = |of_peer: &[usize], number, records| subscriptions.lose(of_peer, number, records);
        let change = self.net.bound_queue(key, more, self.host.interface_mut(), lost);
        if change == QueueChange::Unchanged {
            return;
        }
        let subscriptions = self.net.peer(key).map(|peer| peer.subscriptions().to_vec()).unwrap_or_default();
        if let QueueChange::Full { backlog, bound } = change {
            let ends = |s: &usize| self.subscriptions.get(*s).is_some_and(Subscription::is_disconnected_when_slow);
            if subscriptions.iter().any(ends) {
                let reason = format!(
                    "{backlog} bytes are queued, the bound is {bound}, and the subscriber's policy is disconnect"
                );
                self.remove_peer(key, "queue_full", Some(Close { again: false, reason }));
            }
            return;
        }
        for subscription in subscriptions {
            self.graph.wake_session(subscription);
            if self.note_losses(subscription) {
                return self.disconnect_behind(subscription);
            }
            self.report_dropped(subscription, true);
        }
    }
}

/// The refusal of a request about a stream that the session does not publish.
fn not_announced(number: u32) -> Refusal {
    refuse(RefusalCode::State, format!("stream number {number} was not announced in this session"))
}
