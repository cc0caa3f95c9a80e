//! The control requests of a session, carried out; and the queues' bounds, which a subscription brings with it.

use crate::Overflow;
use crate::context::Context;
use crate::counters::Drop;
use crate::managers::handle::Ask;
use crate::morph::{Accept, keeping::Asker, requests::Between};
use crate::peers::{Carrier, Publishing};
use crate::streams::{Sample, StreamFormat};
use crate::subscriptions::Subscription;
use crossdock_control::conversions::Owner;
use crossdock_format::Format;
use crossdock_query::{QueryError, Select};
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::handshake::Close;
use crossdock_transport::{
    ControlMessage, FormatName, HEADER_BYTES, MAX_SUPER_BYTES, Notice, Reply, Request, Unreadable,
};

/// Announced stream numbers of one session at most.
const MAX_PUBLISHING: usize = 256;
/// Formats of one stream at most.
const MAX_FORMATS: usize = 64;
/// Subscription numbers that fit into the descriptors of shared memory; 0 stands there for no subscription.
const LOCAL_NUMBERS: std::ops::RangeInclusive<u32> = 1..=(1 << 15) - 1;
/// Room in a queue for what a subscriber is told at a stream's end, in bytes.
const NOTICES_BYTES: u64 = 4096;
/// Formats that one subscription accepts at most.
const MAX_ACCEPTED: usize = 16;
/// The longest name of a stream, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// A refusal and the words for it.
pub(crate) fn refuse(code: RefusalCode, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

/// Whose a conversion is that a peer speaks of.
fn owner(peer: usize, kept: bool) -> Owner {
    if kept { Owner::Kept } else { Owner::Session(peer as u64) }
}

/// What a subscriber asks for.
struct Wish {
    /// The subscriber's number for it.
    number: u32,
    sql: String,
    overflow: Option<Overflow>,
    /// The request's number, if it may wait for its stream.
    wait: Option<u32>,
    accept: Vec<FormatName>,
    unreadable: Option<Unreadable>,
}

/// Whether records of a format can be in a packet.
pub(crate) fn fits_a_packet(format: &Format) -> Result<(), Refusal> {
    let (bytes, most) = (format.fixed_bytes(), MAX_SUPER_BYTES - HEADER_BYTES);
    if bytes <= most {
        return Ok(());
    }
    let id = format.id();
    let message = format!("records of format {id} take {bytes} bytes at least; a packet holds {most}");
    Err(refuse(RefusalCode::Format, message))
}

impl Context {
    /// Carries out a request of a peer and queues the reply.
    pub(crate) fn carry_out(&mut self, key: usize, request: Request) {
        let (id, outcome) = match request {
            Request::Announce { id, stream, name, format } => (id, self.announce(key, stream, &name, &format)),
            Request::Subscribe { id, subscription, sql, overflow, wait, accept, unreadable } => {
                let wait = wait.then_some(id);
                let wish = Wish { number: subscription, sql, overflow, wait, accept, unreadable };
                match self.subscribe(key, &wish) {
                    Ok(true) => return self.confirm_subscription(key, id, subscription),
                    Ok(false) => return, // its stream is not there yet; the answer comes with it
                    Err(refusal) => (id, Err(refusal)),
                }
            }
            Request::RegisterConversion { id, stream, from, to, conversion, kept } => {
                let between = Between { stream: &stream, from: &from, to: &to };
                let outcome = self.register_conversion(owner(key, kept), &between, &conversion);
                return self.answer_when_kept(Asker::Session { peer: key, id }, outcome);
            }
            Request::UnregisterConversion { id, stream, from, to, kept } => {
                let between = Between { stream: &stream, from: &from, to: &to };
                let outcome = self.unregister_conversion(owner(key, kept), &between);
                return self.answer_when_kept(Asker::Session { peer: key, id }, outcome);
            }
            Request::ListenForConverters { id, stream } => (id, self.listen_for_converters(key, &stream)),
            Request::Unsubscribe { id, subscription } => (id, self.unsubscribe(key, subscription)),
            Request::Finish { id, stream } => (id, self.finish(key, stream)),
            request @ (Request::CreateMailbox { .. }
            | Request::DeleteMailbox { .. }
            | Request::OpenMailbox { .. }
            | Request::CloseMailbox { .. }
            | Request::GetMessages { .. }
            | Request::CreateTask { .. }
            | Request::EndTask { .. }
            | Request::FindNode { .. }) => {
                if let Some(reply) = self.carry_out_mailbox(key, request) {
                    self.tell(key, &reply);
                }
                return;
            }
            Request::Terminate => {
                let close = Close { again: false, reason: "as you asked".to_owned() };
                return self.remove_peer(key, "terminated", Some(close));
            }
        };
        let reply = match outcome {
            Ok(()) => Reply::Done { id },
            Err(refusal) => Reply::Refused { id, refusal },
        };
        self.tell(key, &ControlMessage::Reply(reply));
    }

    /// A stream by name, made if it is new.
    ///
    /// # Errors
    /// The name is none, or the table is full.
    pub(crate) fn stream_named(&mut self, name: &str) -> Result<usize, Refusal> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            let message = format!("a stream's name has 1 to {MAX_NAME_BYTES} bytes and no control characters");
            return Err(refuse(RefusalCode::State, message));
        }
        if self.streams.find(name).is_none() && self.streams.len() >= self.config.max_streams as usize {
            let message = format!("the daemon knows {} streams, its bound", self.config.max_streams);
            return Err(refuse(RefusalCode::Limit, message));
        }
        Ok(self.streams.find_or_make(name))
    }

    /// Makes a format known on a stream, and keeps it; its subscriptions plan their queries for it.
    pub(crate) fn declare(&mut self, name: &str, format: &Format) -> Result<usize, Refusal> {
        self.make_known(name, format, true)
    }

    /// The same; a format that a handler makes is kept with the handler, and in the registry only where that knows its stream.
    pub(crate) fn make_known(&mut self, name: &str, format: &Format, keeps: bool) -> Result<usize, Refusal> {
        let key = self.stream_named(name)?;
        if keeps || self.morph.registry.stream(name).is_some() {
            self.keep_versions(key)?;
        }
        let Some(stream) = self.streams.get_mut(key) else { return Ok(key) };
        if stream.has_format(format.id()) {
            return Ok(key);
        }
        if stream.formats.len() >= MAX_FORMATS {
            let message = format!("stream `{name}` has {MAX_FORMATS} formats, the bound");
            return Err(refuse(RefusalCode::Limit, message));
        }
        let (was_left, is_kept) = (stream.morphing.graph.is_guarded(format.id()), stream.is_kept);
        if is_kept {
            self.note_version(name, format, was_left).inspect_err(|_| self.streams.forget_if_unused(key))?;
        }
        let Some(stream) = self.streams.get_mut(key) else { return Ok(key) };
        stream.formats.push(StreamFormat { format: format.clone(), sample: Sample::default() });
        if stream.claims > 0 {
            // The managers may have ended before.
            let _ = self.news.send(Ask::NewFormat { stream: key as u32 });
        }
        for subscription in stream.subscriptions.clone() {
            self.plan_for(subscription, format);
        }
        self.replan(key);
        Ok(key)
    }

    /// A subscription's query is planned for a format; the subscriber is told what comes of it.
    fn plan_for(&mut self, key: usize, format: &Format) {
        // Of one that says what it accepts, the ways are planned, not the query.
        let Some(subscription) = self.subscriptions.get_mut(key).filter(|s| s.accept.is_none()) else { return };
        let (peer, number) = (subscription.peer, subscription.number);
        let planned = subscription.add_format(format);
        let awaiting = subscription.awaiting.take();
        let message: ControlMessage = match (planned, awaiting) {
            (Ok(_), Some(id)) => return self.confirm_subscription(peer, id, number),
            (Ok(output), None) => Notice::Format { subscription: number, format: output.describe() }.into(),
            (Err(error), Some(id)) => {
                self.remove_subscription(key);
                Reply::Refused { id, refusal: refuse(RefusalCode::Query, error.to_string()) }.into()
            }
            (Err(error), None) => Notice::Unreadable { subscription: number, message: error.to_string() }.into(),
        };
        self.tell(peer, &message);
    }

    fn announce(&mut self, key: usize, number: u32, name: &str, description: &str) -> Result<(), Refusal> {
        let format = Format::parse(description)
            .map_err(|error| refuse(RefusalCode::Format, format!("the announced format is refused: {error}")))?;
        fits_a_packet(&format)?;
        self.check_publishable(name)?;
        let stream = self.declare(name, &format)?;
        let Some(peer) = self.peers.get_mut(key) else { return Ok(()) };
        if peer.publishing.iter().any(|p| p.number == number && p.stream != stream) {
            let message = format!("stream number {number} already stands for another stream in this session");
            return Err(refuse(RefusalCode::State, message));
        }
        let again = peer.publishing.iter().any(|p| p.number == number && p.format.id() == format.id());
        if !again && peer.publishing.len() >= MAX_PUBLISHING {
            let message = format!("this session has announced {MAX_PUBLISHING} streams and formats, the bound");
            return Err(refuse(RefusalCode::Limit, message));
        }
        if !again {
            peer.publishing.push(Publishing { number, stream, format });
        }
        if let Some(stream) = self.streams.get_mut(stream)
            && !stream.publishers.contains(&key)
        {
            stream.publishers.push(key);
        }
        Ok(())
    }

    /// Makes a subscription; whether it stands at once, or waits for its stream, or for a format that it accepts.
    fn subscribe(&mut self, key: usize, wish: &Wish) -> Result<bool, Refusal> {
        let select = crossdock_query::parse(&wish.sql).map_err(|e| refuse(RefusalCode::Query, e.to_string()))?;
        self.check_subscribing(key, wish.number)?;
        let announced = |key: &usize| self.streams.get(*key).is_some_and(|s| !s.formats.is_empty());
        let stream_key = match self.streams.find(select.stream()).filter(announced) {
            Some(stream) => stream,
            None if wish.wait.is_some() => self.stream_named(select.stream())?,
            None => {
                let error = self.unknown_stream(&select);
                return Err(refuse(RefusalCode::UnknownStream, error.to_string()));
            }
        };
        let made = self.make_subscription(key, stream_key, select, wish);
        let subscription = made.inspect_err(|_| self.streams.forget_if_unused(stream_key))?;
        let stands = subscription.awaiting.is_none();
        let (overflow, accepts) = (subscription.overflow, subscription.accept.is_some());
        self.next_subscription += 1;
        let subscription_key = self.subscriptions.insert(subscription);
        if let Some(stream) = self.streams.get_mut(stream_key) {
            stream.subscriptions.push(subscription_key);
        }
        if let Some(peer) = self.peers.get_mut(key) {
            peer.subscriptions.push(subscription_key);
            if peer.full && overflow == Overflow::Block {
                self.block(stream_key);
            }
        }
        self.share_queues();
        if accepts {
            self.replan(stream_key);
        }
        Ok(stands)
    }

    /// Whether a peer may have one subscription more, under this number.
    fn check_subscribing(&self, key: usize, number: u32) -> Result<(), Refusal> {
        if self.subscriptions.len() >= self.config.max_subscriptions as usize {
            let message = format!("the daemon has {} subscriptions, its bound", self.config.max_subscriptions);
            return Err(refuse(RefusalCode::Limit, message));
        }
        let Some(peer) = self.peers.get(key) else { return Ok(()) };
        if peer.link().is_none() && !LOCAL_NUMBERS.contains(&number) {
            let message =
                format!("subscription number {number}: over shared memory they go from 1 to {}", LOCAL_NUMBERS.end());
            return Err(refuse(RefusalCode::State, message));
        }
        if peer.subscriptions.iter().any(|&s| self.subscriptions.get(s).is_some_and(|s| s.number == number)) {
            let message = format!("subscription number {number} is in use in this session");
            return Err(refuse(RefusalCode::State, message));
        }
        Ok(())
    }

    /// A subscription with its query planned for all that is known now.
    fn make_subscription(
        &self,
        peer: usize,
        stream_key: usize,
        select: Select,
        wish: &Wish,
    ) -> Result<Subscription, Refusal> {
        let overflow = wish.overflow.unwrap_or(self.config.overflow);
        let id = self.next_subscription;
        let mut subscription = Subscription::new(id, peer, wish.number, stream_key, select, overflow);
        if !wish.accept.is_empty() {
            self.plan_accepted(&mut subscription, wish)?;
            return Ok(subscription);
        }
        let formats = self.streams.get(stream_key).map_or(&[][..], |stream| &stream.formats);
        // The newest format must fit; older ones may not, their records are then counted as unreadable.
        for (index, known) in formats.iter().enumerate() {
            if let Err(error) = subscription.add_format(&known.format)
                && index + 1 == formats.len()
            {
                return Err(refuse(RefusalCode::Query, error.to_string()));
            }
        }
        subscription.awaiting = if formats.is_empty() { wish.wait } else { None };
        Ok(subscription)
    }

    /// Plans a query for the formats that are accepted, as far as they are known. All of these must fit.
    fn plan_accepted(&self, subscription: &mut Subscription, wish: &Wish) -> Result<(), Refusal> {
        if wish.accept.len() > MAX_ACCEPTED {
            let message = format!("a subscription accepts {MAX_ACCEPTED} formats at most");
            return Err(refuse(RefusalCode::Limit, message));
        }
        let stream = Some(subscription.stream);
        let policy = wish.unreadable.unwrap_or(self.config.morph.unreadable);
        let mut accept = Accept::new(wish.accept.clone(), policy);
        for name in &wish.accept {
            let Some(format) = self.format_named(stream, name)? else { continue };
            if accept.targets.contains(&format) {
                continue;
            }
            subscription.add_format(&format).map_err(|error| {
                let message = format!("the query does not fit the accepted format {}: {error}", format.id());
                refuse(RefusalCode::Query, message)
            })?;
            accept.targets.push(format);
        }
        if let (true, Some(name)) = (accept.targets.is_empty(), wish.accept.first()) {
            match wish.wait {
                Some(id) => subscription.awaiting = Some(id),
                None => return Err(self.unknown_format(stream, name, subscription.select.stream())),
            }
        }
        subscription.accept = Some(Box::new(accept));
        Ok(())
    }

    /// Tells a subscriber that its subscription stands, and all formats that may come.
    pub(crate) fn confirm_subscription(&mut self, key: usize, id: u32, number: u32) {
        let Some(peer) = self.peers.get(key) else { return };
        let found = peer.subscriptions.iter().filter_map(|&s| self.subscriptions.get(s)).find(|s| s.number == number);
        let Some(subscription) = found else { return };
        let mut formats: Vec<String> = subscription.output_formats().map(Format::describe).collect();
        let format = formats.pop().unwrap_or_default();
        self.tell(key, &ControlMessage::Reply(Reply::Subscribed { id, subscription: number, format }));
        for format in formats {
            self.tell(key, &ControlMessage::Notice(Notice::Format { subscription: number, format }));
        }
    }

    fn unsubscribe(&mut self, key: usize, number: u32) -> Result<(), Refusal> {
        let peer = self.peers.get(key);
        let mut keys = peer.iter().flat_map(|p| p.subscriptions.iter().copied());
        let found = keys.find(|&s| self.subscriptions.get(s).is_some_and(|s| s.number == number));
        let Some(found) = found else {
            return Err(refuse(RefusalCode::State, format!("there is no subscription {number} in this session")));
        };
        self.flush_subscription(found);
        self.remove_subscription(found);
        Ok(())
    }

    fn finish(&mut self, key: usize, number: u32) -> Result<(), Refusal> {
        let Some(peer) = self.peers.get_mut(key) else { return Ok(()) };
        let Some(stream) = peer.publishing.iter().find(|p| p.number == number).map(|p| p.stream) else {
            let message = format!("stream number {number} was not announced in this session");
            return Err(refuse(RefusalCode::State, message));
        };
        peer.publishing.retain(|p| p.number != number);
        if !peer.publishing.iter().any(|p| p.stream == stream) {
            self.end_publishing(key, stream);
        }
        Ok(())
    }

    /// The error for a query on a stream that is not there: what is, and what may have been meant.
    pub(crate) fn unknown_stream(&self, select: &crossdock_query::Select) -> QueryError {
        let known: Vec<&str> = self.streams.iter().filter(|s| !s.formats.is_empty()).map(|s| s.name.as_str()).collect();
        select.unknown_stream(&known)
    }

    /// Takes a subscription out of everything that knows it.
    pub(crate) fn remove_subscription(&mut self, key: usize) {
        let Some(subscription) = self.subscriptions.try_remove(key) else { return };
        if let Some(stream) = self.streams.get_mut(subscription.stream) {
            stream.subscriptions.retain(|&s| s != key);
        }
        if let Some(accept) = &subscription.accept {
            self.forget_waiting(key, accept, subscription.stream);
            // Once for all that go together.
            self.morph.stale.insert(subscription.stream);
            self.morph.is_due = true;
        }
        self.streams.forget_if_unused(subscription.stream);
        let mut was_full = false;
        if let Some(peer) = self.peers.get_mut(subscription.peer) {
            peer.subscriptions.retain(|&s| s != key);
            was_full = peer.full;
        }
        if was_full && subscription.overflow == Overflow::Block {
            self.unblock(subscription.stream);
        }
        self.share_queues();
    }

    /// The bound of each queue: the configured one, or an even share of a quarter of the large buffers. A quarter,
    /// since a unit of 16 KiB may hold one of 64 KiB until it is acknowledged. Of an inbox, no more either: what waits for
    /// attached subscribers lies there.
    fn share_queues(&mut self) {
        let large_bytes = ((self.large_buffers * MAX_SUPER_BYTES) as u64).min(self.config.host.inbox_bytes);
        let share = large_bytes / 4 / (self.subscriptions.len().max(1) as u64);
        let queue_bytes = self.config.queue_bytes.min(share);
        if queue_bytes != std::mem::replace(&mut self.queue_bytes, queue_bytes) {
            for (_, peer) in self.peers.iter() {
                if let Carrier::Memory(attached) = &peer.carrier {
                    self.host.limit_session(attached.client, queue_bytes / 2);
                }
            }
        }
    }

    pub(crate) fn block(&mut self, key: usize) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.blocked_by += 1;
        if stream.blocked_by == 1 {
            if let Some(delivery) = stream.delivery {
                self.platform.hold(delivery, true);
            }
            // Who speaks by packets gets no credit when it next sends some; who is attached has buffers withheld from
            // now on.
            for publisher in stream.publishers.clone() {
                if self.peers.attached_mut(publisher).is_some() {
                    self.grant_credit(publisher);
                }
            }
        }
    }

    /// One queue less holds a stream back; with the last, its publishers get their credit.
    pub(crate) fn unblock(&mut self, key: usize) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.blocked_by = stream.blocked_by.saturating_sub(1);
        if stream.blocked_by == 0 {
            if let Some(delivery) = stream.delivery {
                self.platform.hold(delivery, false);
            }
            for publisher in stream.publishers.clone() {
                self.grant_credit(publisher);
                self.peers.touch(publisher);
            }
        }
    }

    /// Before the last that a subscriber is told of a stream: what has to be dropped is dropped now, so that it is told
    /// before.
    pub(crate) fn settle_queue(&mut self, key: usize) {
        if let Some(peer) = self.subscriptions.get(key).map(|s| s.peer) {
            self.check_peer_queue_with(peer, NOTICES_BYTES);
        }
    }

    /// After a batch: a subscription's queue is held to its bound by its policy.
    pub(crate) fn check_queue(&mut self, key: usize) {
        let Some(peer) = self.subscriptions.get(key).map(|s| s.peer) else { return };
        if self.peers.attached_mut(peer).is_some_and(|attached| attached.is_late()) {
            self.straggle(peer);
        }
        if self.peers.get(peer).is_some_and(|p| p.full || p.backlog_bytes(&self.host) > self.queue_bytes) {
            self.check_peer_queue(peer);
        }
        self.tell_dropped(key, false);
    }

    /// Applies the overflow policies of a peer whose queue is over its bound, and lifts them when it is well below.
    pub(crate) fn check_peer_queue(&mut self, key: usize) {
        self.check_peer_queue_with(key, 0);
    }

    /// The same, for a queue that `more` bytes are to join.
    fn check_peer_queue_with(&mut self, key: usize, more: u64) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let bound = self.queue_bytes.saturating_sub(more);
        while peer.backlog_bytes(&self.host) > bound {
            let Some((number, records)) = peer.drop_oldest(&mut self.host) else { break };
            let hit = |s: &usize| self.subscriptions.get(*s).is_some_and(|s| s.number == number);
            if let Some(subscription) = peer.subscriptions.iter().copied().find(hit)
                && let Some(subscription) = self.subscriptions.get_mut(subscription)
            {
                subscription.dropped += records;
                subscription.untold += records;
            }
            self.counters.drop(Drop::QueueFull, records);
        }
        let backlog = peer.backlog_bytes(&self.host);
        let full = if peer.full { backlog > bound / 2 } else { backlog > bound };
        if full == std::mem::replace(&mut peer.full, full) {
            return;
        }
        if full {
            // That an attached one has taken something is not told, so it is looked at.
            self.straggle(key);
        }
        let Some(peer) = self.peers.get_mut(key) else { return };
        let subscriptions = peer.subscriptions.clone();
        let policies = subscriptions.iter().filter_map(|&s| self.subscriptions.get(s)).map(|s| (s.stream, s.overflow));
        let policies: Vec<(usize, Overflow)> = policies.collect();
        if full && policies.iter().any(|(_, overflow)| *overflow == Overflow::Disconnect) {
            peer.full = false; // no stream was held back on its account
            let reason = format!("{backlog} bytes wait for you, the bound is {bound}, and your policy is disconnect");
            self.remove_peer(key, "queue_full", Some(Close { again: false, reason }));
            return;
        }
        for (stream, _) in policies.into_iter().filter(|(_, overflow)| *overflow == Overflow::Block) {
            if full {
                self.block(stream);
            } else {
                self.unblock(stream);
            }
        }
        if !full {
            for subscription in subscriptions {
                self.tell_dropped(subscription, true);
            }
        }
    }
}
