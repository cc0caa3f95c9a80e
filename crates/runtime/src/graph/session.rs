//! Nodes that end in the session of a subscription: its query, run as any node is ([`super::run`]), whose records go
//! straight into the session's queue.
//!
//! Such a node waits in its input queue while its session takes no more, or while there are no buffers for what it
//! would send. The context puts these nodes in and takes them out between two batches; changes leave them alone.

use crate::elsewhere::Elsewhere;
use crate::graph::bounds::session_limit;
use crate::graph::build::Workspace;
use crate::graph::edge::{Item, Publishers, Queued};
use crate::graph::gauges::{Loss, NodeGauges};
use crate::graph::node::{
    Condition, Destination, Instance, Node, RunTime, SchedulingPolicy, SessionEnd, StateLoss, Turn,
};
use crate::graph::port::Port;
use crate::graph::run::{Outcome, process};
use crate::graph::serve::Graph;
use crate::graph::slow::Slow;
use crate::graph::spill::Spill;
use crate::graph::{NodeId, NodeKind};
use crossdock_engine::{Handler, Sink};
use crossdock_mailbox::{Batch, Selection};
use std::sync::Arc;

/// The room of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The approximate number of packets, at least one.
    Packets(usize),
    /// Nothing until [`Graph::wake_session`] is called: its queue is full.
    Full,
    /// Nothing until there are buffers.
    NoBuffers,
}

/// The sessions of a context, as the nodes that end in them see them. Subscriptions are known by their keys.
pub(crate) trait Egress {
    /// The present room of the session of a subscription, if the next record has `bytes` bytes, or 0 if that is not known.
    fn room(&mut self, key: usize, bytes: usize) -> Room;

    /// Runs a subscription's query; its records join the session's queue, and those for which there is no buffer the
    /// spill.
    fn run(&mut self, key: usize, run: SessionRun<'_>, spill: &mut Spill) -> Sent;

    /// Records that found no buffer before join the session's queue; what finds none again goes into `again`.
    fn resend(&mut self, key: usize, rows: &Spill, again: &mut Spill) -> Sent;
}

/// One run of a subscription's query.
pub(crate) struct SessionRun<'a> {
    pub(super) handler: &'a mut dyn Handler,
    /// The batch, which others may have too.
    pub(crate) batch: &'a Queued,
    pub(super) selection: &'a mut Selection,
    /// The format of the records that it makes, by id.
    pub(crate) format: u64,
    /// The longest record that it may make, in bytes.
    pub(crate) longest: usize,
}

impl SessionRun<'_> {
    /// Runs it into a sink.
    #[inline]
    pub(crate) fn into_sink(self, sink: &mut impl Sink) -> Outcome {
        process(self.handler, self.batch, self.selection, sink)
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) outcome: Outcome,
    /// Records that joined the session's queue, and their size.
    pub(crate) records: u64,
    pub(crate) bytes: usize,
    /// Records for which there was neither a buffer nor a place to wait.
    pub(crate) no_buffer: u64,
    /// Records longer than a packet can be.
    pub(crate) too_long: u64,
}

/// The result of a session's node, or one that converts for sessions, has done; the subscription's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionStep {
    /// It has worked on a batch, or on a part of one.
    Ran(usize),
    /// Its query has panicked: what comes from now on is dropped and counted.
    Failed(usize),
    /// It has come to the end of a publisher; the number of publishers that the stream has left, and of those that have gone without
    /// having finished since the subscription began.
    Ended(usize, u32, u32),
    /// The state that its query reads is gone before the subscriber's end: nothing more comes.
    StateLost(usize, StateLoss),
    /// Records of a stream went through a chain of conversions, by its number, or past it.
    Converted {
        stream: u32,
        chain: Option<u64>,
        /// Records that were lost since the chain has panicked.
        lost: u64,
        has_failed: bool,
    },
}

impl Graph {
    /// Puts in the node of a subscription to a stream. If it `accepts` certain formats only, nothing comes before
    /// [`Graph::route`] says how.
    pub(crate) fn add_session(
        &mut self,
        key: usize,
        stream: u32,
        instances: Vec<Instance>,
        (policy, accepts): (SchedulingPolicy, bool),
        gauges: Arc<NodeGauges>,
    ) {
        let id = NodeId::of_subscription(key);
        let session = SessionEnd { key, takes: accepts.then(Vec::new), ..SessionEnd::default() };
        let mut node = Box::new(Node::with(id, instances, Destination::Session(session), &[stream]));
        (node.policy, node.gauges) = (policy, gauges);
        self.set_node(node);
        let Some(port) = self.open_port(stream) else { return };
        let (is_first, losses_before) = (port.sessions.is_empty(), port.losses);
        port.sessions.push(id);
        self.session_ports += usize::from(is_first);
        self.session_end(id).into_iter().for_each(|session| session.losses_before = losses_before);
        self.share_sessions();
    }

    /// Takes out the node of a subscription, with what waits for it.
    pub(crate) fn remove_session(&mut self, key: usize, ws: &mut Workspace) {
        let id = NodeId::of_subscription(key);
        let sources = self.session_end(id).map(|session| std::mem::take(&mut session.sources));
        sources.into_iter().flatten().for_each(|source| self.part(source, id));
        let Some(mut node) = self.lift(id) else { return };
        if node.slow().is_some() {
            self.share_slow();
        }
        for input in &mut node.inputs {
            for item in input.queue.drain(..) {
                if let Item::Batch(batch) = item {
                    ws.spares.keep_queued(batch);
                }
            }
            let stream = input.stream;
            let Some(port) = self.present_port_mut(stream) else { continue };
            port.sessions.retain(|session| *session != id);
            let (is_last, is_unused) = (port.sessions.is_empty(), port.is_unused());
            self.session_ports -= usize::from(is_last);
            if is_unused {
                self.close_port(stream);
            }
        }
        self.share_sessions();
    }

    /// The batches that wait for all sessions may be this many.
    pub(crate) fn limit_sessions(&mut self, batches: usize) {
        self.session_batches = batches;
        self.share_sessions();
    }

    /// Sets how many batches may wait for a session from one stream.
    pub(super) fn share_sessions(&mut self) {
        let streams = self.session_ports + self.converting();
        self.session_limit = session_limit(self.session_batches, streams, self.limit);
    }

    /// Gives the node of a subscription new instances. Those that it has and that are not `wanted` go, except where
    /// records wait for them.
    pub(crate) fn update_session(&mut self, key: usize, new: &mut Vec<Instance>, wanted: impl Fn(u64) -> bool) {
        #[cfg(test)]
        self.panic_in_update_if_wanted();
        let mut waiting = self.made_for(key);
        let Some(node) = self.present_node_mut(NodeId::of_subscription(key)) else { return };
        waiting.extend(node.waiting_formats());
        node.retain_instances(|known| wanted(known.format) || waiting.contains(&known.format));
        new.drain(..).for_each(|new| drop(node.put_instance(new)));
    }

    /// Gives the node of a subscription the handlers of another query, one for each format that is `wanted`: what waits for it is for
    /// that query.
    pub(crate) fn exchange_query(&mut self, key: usize, new: &mut Vec<Instance>, wanted: impl Fn(u64) -> bool) {
        self.update_session(key, new, wanted);
        let Some(node) = self.present_node_mut(NodeId::of_subscription(key)) else { return };
        node.out_bytes_per_record = None;
        node.forget_cost();
    }

    /// The use of a state by the query before a subscription's present one lasts until the difference is given.
    pub(crate) fn keep_former_use(&mut self, key: usize, former: Option<Elsewhere>) {
        let session = self.session_end(NodeId::of_subscription(key));
        if let Some(session) = session {
            session.former_use = former;
        }
    }

    /// Why a subscription cannot get another query now, if it cannot.
    pub(crate) fn hinders_exchange(&self, key: usize) -> Option<&'static str> {
        let node = self.present_node(NodeId::of_subscription(key))?;
        let session = node.session()?;
        match () {
            () if node.condition != Condition::Running => Some("its query has failed: end it and subscribe anew"),
            () if session.has_ended => Some("it has ended, since the state that it read is gone: subscribe anew"),
            () if session.reads_state && node.state_reader().is_some_and(Handler::holds_end) => {
                Some("it has yet to get all that is there by its present query: try again behind that")
            }
            () => None,
        }
    }

    /// Whether nothing waits for a subscription's node, and it can run.
    pub(crate) fn is_session_idle(&self, key: usize) -> bool {
        let node = self.present_node(NodeId::of_subscription(key));
        let has_nothing = |node: &Node| node.waiting() == 0 && node.spill.is_empty();
        let passes_all = |node: &Node| node.slow().is_none_or(|slow| slow.len() == 0 && !slow.is_limited());
        node.is_some_and(|node| has_nothing(node) && passes_all(node) && node.condition == Condition::Running)
    }

    /// A subscription has the next batch of its stream already.
    pub(crate) fn skip_next(&mut self, key: usize) {
        if let Some(session) = self.session_end(NodeId::of_subscription(key)) {
            session.skips = true;
        }
    }

    /// A session has room again, or has to be looked at for another reason.
    pub(crate) fn wake_session(&mut self, key: usize) {
        self.wake(NodeId::of_subscription(key));
    }

    /// The awaited room of a node may be there. The node of a subscription may have gone with its peer.
    pub(super) fn wake(&mut self, id: NodeId) {
        if let Some(node) = self.node_mut(id)
            && node.turn == Turn::Awaited
        {
            node.turn = Turn::Listed;
            self.listed.push_back(id);
        }
    }

    /// Nothing more comes of a stream: the end is given to the nodes of all sessions that read it.
    pub(crate) fn end_for_sessions(&mut self, stream: u32) {
        // Nothing reads it here.
        let Some(port) = self.lift_port(stream) else { return };
        self.end_at_sessions(&port, 0);
        self.put_port_back(stream, port);
    }

    /// A publisher of a stream has stopped: the end is given to the nodes of all sessions that read it at its port, behind what
    /// is converted for them.
    pub(super) fn end_at_sessions(&mut self, port: &Port, publishers: u32) {
        let publishers = Publishers { count: Some(publishers), losses: port.losses };
        port.converts.iter().for_each(|id| self.end_at_convert(*id, publishers));
        port.sessions.iter().for_each(|id| self.end_for_session(*id, publishers));
    }

    /// Gives a batch that came at a port to the nodes of sessions that read it there; if it `is_noted`, also to the context,
    /// for its books.
    pub(super) fn share(&mut self, port: &Port, batch: Batch, is_noted: bool, ws: &mut Workspace) {
        let batch = self.compacted(port, batch, ws);
        let batch = ws.spares.share(batch);
        for id in &port.sessions {
            let Some(session) = self.session_end(*id) else { continue };
            let skips = std::mem::take(&mut session.skips);
            if !skips && (session.takes.is_none() || self.takes_now(*id, &batch)) {
                self.enqueue_shared(*id, &batch);
            }
        }
        port.converts.iter().for_each(|id| self.enqueue_convert(*id, &batch));
        match is_noted {
            true => self.arrived.push(batch),
            false => ws.spares.keep_shared(batch),
        }
    }

    /// A few records that will wait must not hold a large buffer meanwhile.
    fn compacted(&self, port: &Port, batch: Batch, ws: &mut Workspace) -> Batch {
        let waits = |id: &NodeId| self.present_node(*id).is_some_and(|node| node.turn == Turn::Awaited);
        let held: usize = batch.buffers.iter().map(crossdock_mailbox::Buffer::capacity).sum();
        // The buffers of a record in pieces have a bound of their own.
        if batch.is_in_pieces()
            || held / 4 < batch.payload_bytes()
            || !port.sessions.iter().chain(&port.converts).any(waits)
        {
            return batch;
        }
        let is_smaller = |compact: &Batch| compact.buffers.iter().all(|buffer| buffer.capacity() < held);
        match ws.compact(&batch).filter(is_smaller) {
            Some(compact) => {
                ws.spares.keep(batch);
                compact
            }
            None => batch,
        }
    }

    #[inline]
    pub(super) fn enqueue_shared(&mut self, id: NodeId, batch: &Arc<Batch>) {
        let limit = self.session_limit;
        let Some(node) = self.present_node_mut(id) else { return };
        let drops = node.policy.drops;
        node.gauges.published.add(batch.len() as u64);
        let Some(input) = node.inputs.first_mut() else { return debug_assert!(false, "such a node reads a stream") };
        if drops && input.is_full_for(batch, limit) {
            // The oldest gives way, as in the session's own queue.
            let Some(lost) = input.make_room(batch) else {
                return node.gauges.lose(Loss::QueueFull, batch.len() as u64);
            };
            node.gauges.lose(Loss::QueueFull, lost);
        }
        input.put_shared(batch);
        self.list(id);
    }

    pub(super) fn enqueue_end(&mut self, id: NodeId, publishers: Publishers) {
        if let Some(input) = self.input_of(id) {
            input.queue.push_back(Item::End(publishers));
            self.list(id);
        }
    }

    /// Notes that a session's node, or one that converts for sessions, has something to do.
    #[inline]
    pub(super) fn list(&mut self, id: NodeId) {
        let Some(node) = self.present_node_mut(id) else { return };
        let has_work = match node.turn {
            Turn::None => true,
            Turn::Listed => false,
            Turn::Awaited => node.slow().is_some_and(Slow::selects),
        };
        if has_work {
            node.turn = Turn::Listed;
            self.listed.push_back(id);
        }
    }

    /// How many batches of a stream those nodes have room for that end in sessions or convert for them.
    pub(super) fn room_of_sessions(&self, port: &Port) -> usize {
        let limit = self.session_limit;
        let room = |id: &NodeId| {
            let node = self.present_node(*id).filter(|node| !node.policy.drops)?;
            Some(node.room(limit))
        };
        let converts = port.converts.iter().filter_map(|id| self.room_of_convert(*id));
        port.sessions.iter().filter_map(room).chain(converts).min().unwrap_or(usize::MAX)
    }

    /// Lets the next node of a session that has something to do, and room for what comes of it, run once. It is
    /// `now_ns`.
    pub(crate) fn next_session(
        &mut self,
        now_ns: u64,
        egress: &mut impl Egress,
        ws: &mut Workspace,
    ) -> Option<SessionStep> {
        self.now_ns = now_ns;
        for _ in 0..self.listed.len() {
            let id = self.listed.pop_front()?;
            let step = match id.kind() {
                NodeKind::Convert(_) => self.step_convert(id, ws),
                NodeKind::Session(_) | NodeKind::Handler(_) => self.step_session(id, egress, ws),
            };
            if let Some(step) = step {
                return Some(step);
            }
        }
        None
    }

    fn step_session(&mut self, id: NodeId, egress: &mut impl Egress, ws: &mut Workspace) -> Option<SessionStep> {
        // It may have gone since it was listed, and another be in its place.
        let node = self.node_mut(id)?;
        if node.slow().is_some() {
            if node.condition == Condition::Running {
                return self.step_slow(id, egress, ws);
            }
            self.give_up_kept(id, ws);
        }
        let node = self.node_mut(id)?;
        let waits = node.inputs.first().and_then(|input| input.queue.front());
        let needs_room = match waits {
            _ if !node.spill.is_empty() => true,
            None => return self.set_turn(id, Turn::None),
            Some(Item::Batch(_)) => node.condition == Condition::Running,
            Some(Item::Held(_) | Item::End(_) | Item::Publishers(_) | Item::Marker(_)) => false,
        };
        let (key, spilled_bytes) = (node.session()?.key, node.spill.first_bytes());
        let room = match needs_room.then(|| egress.room(key, spilled_bytes)) {
            None => 1,
            Some(Room::Packets(packets)) => packets,
            Some(Room::Full) => return self.set_turn(id, Turn::Awaited),
            Some(Room::NoBuffers) => {
                self.listed.push_back(id);
                return self.set_turn(id, Turn::Listed);
            }
        };
        let step = self.run_session(id, (key, room), egress, ws);
        self.set_turn(id, Turn::None);
        self.wake_sources(id);
        if self.present_node(id).is_some_and(|node| node.waiting() > 0 || !node.spill.is_empty()) {
            self.list(id);
        }
        step
    }

    fn set_turn(&mut self, id: NodeId, turn: Turn) -> Option<SessionStep> {
        self.present_node_mut(id)?.turn = turn;
        None
    }

    pub(super) fn run_session(
        &mut self,
        id: NodeId,
        (key, room): (usize, usize),
        egress: &mut impl Egress,
        ws: &mut Workspace,
    ) -> Option<SessionStep> {
        let node = self.present_node_mut(id)?;
        if !node.spill.is_empty() {
            let rows = std::mem::take(&mut node.spill);
            node.spill.format = rows.format;
            let sent = egress.resend(key, &rows, &mut node.spill);
            node.note_sent(&sent);
            return Some(self.own_end(id, key).unwrap_or(SessionStep::Ran(key)));
        }
        let (input, item, done) = node.take_next()?;
        let batch = match item {
            Item::Batch(batch) => batch,
            Item::End(Publishers { count: None, .. }) => return self.lose_reader(id, key),
            // Its own end was the last.
            Item::End(_) if self.session_end(id).is_some_and(|session| session.has_ended) => return None,
            Item::End(publishers) if self.holds_end(id) => {
                self.session_end(id).into_iter().for_each(|session| session.held_end = Some(publishers));
                return None;
            }
            Item::End(Publishers { count, losses }) => {
                let before = self.session_end(id).map_or(0, |session| session.losses_before);
                return Some(SessionStep::Ended(key, count.unwrap_or_default(), losses.saturating_sub(before)));
            }
            Item::Held(_) | Item::Publishers(_) | Item::Marker(_) => {
                debug_assert!(false, "a session's node gets none of these");
                return None;
            }
        };
        self.run_batch(id, (input, batch, done), (key, room), egress, ws)
    }

    /// Runs the query on a batch of an input, from one of its records on, as far as there is room.
    pub(super) fn run_batch(
        &mut self,
        id: NodeId,
        batch: (usize, Queued, usize),
        (key, room): (usize, usize),
        egress: &mut impl Egress,
        ws: &mut Workspace,
    ) -> Option<SessionStep> {
        // Its query has failed, or does not fit the format: the batch is dropped and counted.
        let Some(mut job) = self.begin(id, batch, (room, RunTime::Long), ws) else {
            return Some(self.note_unread(id, key));
        };
        let ran = job.run_to(key, egress, ws);
        let has_panicked = ran.0 == Outcome::Panicked;
        self.finish(job, ran, ws);
        if has_panicked {
            return Some(SessionStep::Failed(key));
        }
        Some(self.own_end(id, key).unwrap_or(SessionStep::Ran(key)))
    }

    /// A batch was dropped: its query has failed, or does not fit the format.
    pub(super) fn note_unread(&mut self, id: NodeId, key: usize) -> SessionStep {
        let is_running = self.present_node(id).is_some_and(|node| node.condition == Condition::Running);
        // Rows of a state have another format only where it is another one.
        let lost = if is_running { self.lose_reader(id, key) } else { None };
        lost.unwrap_or(SessionStep::Ran(key))
    }
}

impl Graph {
    /// A subscription's query reads the state of a stream.
    pub(crate) fn read_state(&mut self, key: usize) {
        let session = self.session_end(NodeId::of_subscription(key));
        session.into_iter().for_each(|session| session.reads_state = true);
    }

    /// The state of a stream is gone, behind all that was made of it: those that read it hear so.
    pub(crate) fn lose_state(&mut self, stream: u32, loss: StateLoss) {
        let sessions = self.port(stream).map(|port| port.sessions.clone()).unwrap_or_default();
        sessions.into_iter().for_each(|id| self.lose_state_at(id, loss));
    }

    /// The same for one subscription.
    pub(crate) fn lose_state_of(&mut self, key: usize, loss: StateLoss) {
        self.lose_state_at(NodeId::of_subscription(key), loss);
    }

    fn lose_state_at(&mut self, id: NodeId, loss: StateLoss) {
        let Some(session) = self.session_end(id).filter(|session| session.reads_state) else { return };
        session.loss = loss;
        self.enqueue_end(id, Publishers { count: None, losses: 0 });
    }

    /// The reader of a state that is gone makes no more. Its subscriber hears of that, unless it has all already.
    pub(super) fn lose_reader(&mut self, id: NodeId, key: usize) -> Option<SessionStep> {
        let node = self.present_node_mut(id)?;
        let session = node.session_mut().filter(|session| session.reads_state && !session.has_ended)?;
        (session.has_ended, session.held_end) = (true, None);
        let loss = session.loss;
        let kept = session.slow.as_deref_mut().filter(|slow| slow.keeps_changes()).map(Slow::forget_changes);
        if let Some(kept) = kept {
            let lost = kept + node.spill.waiting() as u64;
            node.spill.clear();
            node.gauges.lose(Loss::Removed, lost);
        }
        node.instances.iter_mut().filter_map(|instance| instance.handler.as_mut()).for_each(|handler| handler.lose());
        Some(SessionStep::StateLost(key, loss))
    }

    /// Whether the end of a stream is nothing yet for a subscriber: it is to get all that is there first. Where the state goes before,
    /// [`Graph::lose_state`] is its end.
    fn holds_end(&self, id: NodeId) -> bool {
        let Some(node) = self.present_node(id) else { return false };
        node.session().is_some_and(|session| session.reads_state) && node.state_reader().is_some_and(Handler::holds_end)
    }

    /// Why the query of a subscription makes no more, where its subscriber is to learn that.
    pub(crate) fn failure(&self, key: usize) -> Option<String> {
        let node = self.present_node(NodeId::of_subscription(key))?;
        let slow = node.slow().and_then(Slow::failure).map(str::to_owned);
        slow.or_else(|| node.state_reader()?.failure())
    }

    /// The end of what a subscriber gets of a state, or that of its stream which has waited until all was there.
    pub(super) fn own_end(&mut self, id: NodeId, key: usize) -> Option<SessionStep> {
        let node = self.present_node_mut(id)?;
        // The end comes behind all rows.
        let has_rows = !node.spill.is_empty() || node.slow().is_some_and(|slow| slow.len() > 0);
        if !node.session()?.reads_state || has_rows {
            return None;
        }
        let reader = node.state_reader()?;
        let (holds_end, is_over, is_lost) = (reader.holds_end(), reader.is_over(), reader.is_lost());
        if is_lost {
            return self.lose_reader(id, key);
        }
        let session = node.session_mut()?;
        if !holds_end {
            session.former_use = None;
        }
        if is_over {
            let has_ended = std::mem::replace(&mut session.has_ended, true);
            return (!has_ended).then_some(SessionStep::Ended(key, 0, 0));
        }
        let Publishers { count, losses } = session.held_end.take_if(|_| !holds_end)?;
        Some(SessionStep::Ended(key, count.unwrap_or_default(), losses.saturating_sub(session.losses_before)))
    }
}

impl Node {
    /// The handler that knows how far a subscriber has come with a state: of several the one that ran last. Before any has, all know
    /// the same; an instance for a format that its query does not fit has none.
    fn state_reader(&self) -> Option<&(dyn Handler + 'static)> {
        let shares = |at: &usize| self.instances.get(*at).is_some_and(Instance::shares_state);
        let at =
            self.state_holder().filter(shares).or_else(|| self.instances.iter().position(Instance::shares_state))?;
        self.instances.get(at)?.handler.as_deref()
    }

    /// Counts what joined its session's queue, and what did not.
    pub(super) fn note_sent(&mut self, sent: &Sent) {
        self.gauges.records_out.add(sent.records);
        self.gauges.bytes_out.add(sent.bytes as u64);
        if sent.no_buffer + sent.too_long > 0 {
            self.gauges.lose(Loss::NoBuffer, sent.no_buffer);
            self.gauges.lose(Loss::TooLong, sent.too_long);
        }
    }
}
