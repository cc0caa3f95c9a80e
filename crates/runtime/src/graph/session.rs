//! Nodes that end in the session of a subscription: its query, run as any node is ([`super::run`]), whose records go
//! straight into the session's queue.
//!
//! Such a node waits in its input queue while its session takes no more, or while there are no buffers for what it
//! would send. The context puts these nodes in and takes them out between two batches; changes leave them alone.

use crate::graph::NodeId;
use crate::graph::bounds::session_limit;
use crate::graph::build::Workspace;
use crate::graph::edge::{Item, Queued};
use crate::graph::gauges::{Loss, NodeGauges};
use crate::graph::node::{Condition, Destination, Instance, Node, SchedulingPolicy, SessionEnd, Spill, Turn};
use crate::graph::port::Port;
use crate::graph::run::{Outcome, process};
use crate::graph::serve::Graph;
use crossdock_engine::{Handler, Sink};
use crossdock_mailbox::{Batch, Selection};
use std::sync::Arc;

/// Added to the key of a subscription, the number of its node: the managers give none of these to theirs.
const FIRST: u32 = 1 << 31;

impl NodeId {
    /// The node of a subscription, by its key.
    #[inline]
    pub(crate) fn of_subscription(key: usize) -> NodeId {
        NodeId(FIRST | key as u32)
    }

    /// The key of the subscription whose node it is, if it is one's.
    #[inline]
    pub(super) fn subscription(self) -> Option<usize> {
        (self.0 & FIRST != 0).then_some((self.0 & !FIRST) as usize)
    }
}

/// What a session takes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// About so many packets, one at least.
    Packets(usize),
    /// Nothing until [`Graph::wake_session`] is called: its queue is full.
    Full,
    /// Nothing until there are buffers.
    NoBuffers,
}

/// The sessions of a context, as the nodes that end in them see them. Subscriptions are known by their keys.
pub(crate) trait Egress {
    /// What the session of a subscription takes now.
    fn room(&mut self, key: usize) -> Room;

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
}

impl SessionRun<'_> {
    /// Runs it into a sink.
    #[inline]
    pub(crate) fn into_sink(self, sink: &mut impl Sink) -> Outcome {
        process(self.handler, self.batch, self.selection, sink)
    }
}

/// What came of a run.
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

/// What a session's node has done; the subscription's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionStep {
    /// It has worked on a batch, or on a part of one.
    Ran(usize),
    /// Its query has panicked: what comes from now on is dropped and counted.
    Failed(usize),
    /// It has come to the end of a publisher, of which the stream has so many left.
    Ended(usize, u32),
}

impl Graph {
    /// Puts in the node of a subscription to a stream. If it `is_routed`, its batches come by [`Graph::offer`].
    pub(crate) fn add_session(
        &mut self,
        key: usize,
        stream: u32,
        instances: Vec<Instance>,
        (policy, is_routed): (SchedulingPolicy, bool),
        gauges: Arc<NodeGauges>,
    ) {
        let id = NodeId::of_subscription(key);
        let session = SessionEnd { key, is_routed, ..SessionEnd::default() };
        let mut node = Box::new(Node::with(id, instances, Destination::Session(session), &[stream]));
        (node.policy, node.gauges) = (policy, gauges);
        self.set_node(node);
        self.open_port(stream);
        let Some(port) = self.port_mut(stream) else { return };
        let is_first = port.sessions.is_empty();
        port.sessions.push(id);
        self.session_ports += usize::from(is_first);
        self.share_sessions();
    }

    /// Takes out the node of a subscription, with what waits for it.
    pub(crate) fn remove_session(&mut self, key: usize, ws: &mut Workspace) {
        let id = NodeId::of_subscription(key);
        let Some(mut node) = self.lift(id) else { return };
        for input in &mut node.inputs {
            for item in input.queue.drain(..) {
                if let Item::Batch(batch) = item {
                    ws.spares.keep_queued(batch);
                }
            }
            let stream = input.stream;
            let Some(port) = self.port_mut(stream) else { continue };
            port.sessions.retain(|session| *session != id);
            let (is_last, is_unused) = (port.sessions.is_empty(), port.is_unused());
            self.session_ports -= usize::from(is_last);
            if is_unused {
                self.close_port(stream);
            }
        }
        self.share_sessions();
    }

    /// What waits for all sessions may hold this many batches.
    pub(crate) fn limit_sessions(&mut self, batches: usize) {
        self.session_batches = batches;
        self.share_sessions();
    }

    /// Sets how many batches may wait for a session from one stream.
    pub(super) fn share_sessions(&mut self) {
        self.session_limit = session_limit(self.session_batches, self.session_ports, self.limit);
    }

    /// Gives the node of a subscription new instances. Those that it has and that are not `wanted` go, except where
    /// records wait for them.
    pub(crate) fn update_session(&mut self, key: usize, new: &mut Vec<Instance>, wanted: impl Fn(u64) -> bool) {
        let Some(node) = self.node_mut(NodeId::of_subscription(key)) else { return };
        let waiting: Vec<u64> = node.waiting_formats().collect();
        node.instances.retain(|known| wanted(known.format) || waiting.contains(&known.format));
        for new in new.drain(..) {
            match node.instance(new.format) {
                Some(known) => *known = new,
                None => node.instances.push(new),
            }
        }
    }

    /// Whether nothing waits for a subscription's node, and it can run.
    pub(crate) fn is_session_idle(&self, key: usize) -> bool {
        let node = self.node(NodeId::of_subscription(key));
        node.is_some_and(|node| node.waiting() == 0 && node.spill.is_empty() && node.condition == Condition::Running)
    }

    /// Batches for which a subscription's node has room.
    pub(crate) fn session_room(&self, key: usize) -> usize {
        let node = self.node(NodeId::of_subscription(key));
        node.map_or(0, |node| self.session_limit.saturating_sub(node.waiting()))
    }

    /// A subscription has the next batch of its stream already.
    pub(crate) fn skip_next(&mut self, key: usize) {
        if let Some(session) = self.node_mut(NodeId::of_subscription(key)).and_then(Node::session_mut) {
            session.skips = true;
        }
    }

    /// A session has room again, or has to be looked at for another reason.
    pub(crate) fn wake_session(&mut self, key: usize) {
        let id = NodeId::of_subscription(key);
        if let Some(session) = self.node_mut(id).and_then(Node::session_mut)
            && session.turn == Turn::Awaited
        {
            session.turn = Turn::Listed;
            self.listed.push_back(id);
        }
    }

    /// Whether the stream of a subscription gets no credit, since records that come before wait elsewhere.
    pub(crate) fn withhold(&mut self, key: usize, withholds: bool) {
        let Some(node) = self.node_mut(NodeId::of_subscription(key)) else { return };
        let stream = node.inputs.first().map(|input| input.stream);
        if let Some(session) = node.session_mut() {
            session.withholds = withholds;
        }
        stream.into_iter().for_each(|stream| self.check_publishers(stream));
    }

    /// Gives a batch to the node of a subscription, behind what waits there.
    pub(crate) fn offer(&mut self, key: usize, batch: &Arc<Batch>) {
        self.enqueue_shared(NodeId::of_subscription(key), batch);
    }

    /// Gives the end of a publisher to the node of a subscription, behind what waits there.
    pub(crate) fn offer_end(&mut self, key: usize, publishers: u32) {
        self.enqueue_end(NodeId::of_subscription(key), publishers);
    }

    /// Nothing more comes of a stream: the end is given to the nodes of all sessions that read it.
    pub(crate) fn end_for_sessions(&mut self, stream: u32) {
        let Some(port) = self.lift_port(stream) else { return };
        port.sessions.iter().for_each(|id| self.enqueue_end(*id, 0));
        self.put_port_back(stream, port);
    }

    /// Gives a batch that came at a port to the nodes of sessions that read it there; if it `is_noted`, also to the context,
    /// for its books.
    pub(super) fn share(&mut self, port: &Port, batch: Batch, is_noted: bool, ws: &mut Workspace) {
        let batch = self.compacted(port, batch, ws);
        let batch = ws.spares.share(batch);
        for id in &port.sessions {
            let Some(session) = self.node_mut(*id).and_then(Node::session_mut) else { continue };
            if !session.is_routed && !std::mem::take(&mut session.skips) {
                self.enqueue_shared(*id, &batch);
            }
        }
        match is_noted {
            true => self.arrived.push(batch),
            false => ws.spares.keep_shared(batch),
        }
    }

    /// A few records that will wait must not hold a large buffer meanwhile.
    fn compacted(&self, port: &Port, batch: Batch, ws: &mut Workspace) -> Batch {
        let waits = |id: &NodeId| self.node(*id).and_then(Node::session).is_some_and(|s| s.turn == Turn::Awaited);
        let held: usize = batch.buffers.iter().map(crossdock_mailbox::Buffer::capacity).sum();
        if held / 4 < batch.payload_bytes() || !port.sessions.iter().any(waits) {
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
    fn enqueue_shared(&mut self, id: NodeId, batch: &Arc<Batch>) {
        let limit = self.session_limit;
        let Some(node) = self.node_mut(id) else { return debug_assert!(false, "the node of a session is there") };
        let drops = node.policy.drops;
        let Some(input) = node.inputs.first_mut() else { return };
        if drops && input.queue.len() >= limit {
            return node.gauges.lose(Loss::QueueFull, batch.len() as u64);
        }
        input.queue.push_back(Item::Batch(Queued::Shared(Arc::clone(batch))));
        self.list(id);
    }

    pub(super) fn enqueue_end(&mut self, id: NodeId, publishers: u32) {
        if let Some(input) = self.node_mut(id).and_then(|node| node.inputs.first_mut()) {
            input.queue.push_back(Item::End(publishers));
            self.list(id);
        }
    }

    /// Notes that a session's node has something to do.
    #[inline]
    fn list(&mut self, id: NodeId) {
        if let Some(session) = self.node_mut(id).and_then(Node::session_mut)
            && session.turn == Turn::None
        {
            session.turn = Turn::Listed;
            self.listed.push_back(id);
        }
    }

    /// Whether a node that ends in a session has room for what `port` brings; how much.
    pub(super) fn room_of_sessions(&self, port: &Port) -> usize {
        let limit = self.session_limit;
        let room = |id: &NodeId| {
            let node = self.node(*id).filter(|node| !node.policy.drops)?;
            let withholds = node.session().is_some_and(|session| session.withholds);
            Some(if withholds { 0 } else { limit.saturating_sub(node.waiting()) })
        };
        port.sessions.iter().filter_map(room).min().unwrap_or(usize::MAX)
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
            if let Some(step) = self.step_session(id, egress, ws) {
                return Some(step);
            }
        }
        None
    }

    fn step_session(&mut self, id: NodeId, egress: &mut impl Egress, ws: &mut Workspace) -> Option<SessionStep> {
        // It may have gone since it was listed, and another be in its place.
        let node = self.node_mut(id)?;
        let waits = node.inputs.first().and_then(|input| input.queue.front());
        let needs_room = match waits {
            _ if !node.spill.is_empty() => true,
            None => return self.set_turn(id, Turn::None),
            Some(Item::Batch(_)) => node.condition == Condition::Running,
            Some(Item::End(_) | Item::Publishers(_) | Item::Marker(_)) => false,
        };
        let key = node.session()?.key;
        let room = match needs_room.then(|| egress.room(key)) {
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
        if self.node(id).is_some_and(|node| node.waiting() > 0 || !node.spill.is_empty()) {
            self.list(id);
        }
        step
    }

    fn set_turn(&mut self, id: NodeId, turn: Turn) -> Option<SessionStep> {
        if let Some(session) = self.node_mut(id).and_then(Node::session_mut) {
            session.turn = turn;
        }
        None
    }

    fn run_session(
        &mut self,
        id: NodeId,
        (key, room): (usize, usize),
        egress: &mut impl Egress,
        ws: &mut Workspace,
    ) -> Option<SessionStep> {
        let node = self.node_mut(id)?;
        if !node.spill.is_empty() {
            let rows = std::mem::take(&mut node.spill);
            node.spill.format = rows.format;
            let sent = egress.resend(key, &rows, &mut node.spill);
            node.note_sent(&sent);
            return Some(SessionStep::Ran(key));
        }
        let (input, item, done) = node.take_next()?;
        let batch = match item {
            Item::Batch(batch) => batch,
            Item::End(publishers) if node.is_overtaken() => {
                node.inputs.first_mut()?.queue.push_back(Item::End(publishers));
                return Some(SessionStep::Ran(key));
            }
            Item::End(publishers) => return Some(SessionStep::Ended(key, publishers)),
            Item::Publishers(_) | Item::Marker(_) => {
                debug_assert!(false, "only edges bring these");
                return None;
            }
        };
        let Some(mut job) = self.begin(id, (input, batch, done), (room, false), ws) else {
            return Some(SessionStep::Ran(key));
        };
        let ran = job.run_to(key, egress, ws);
        let has_panicked = ran.0 == Outcome::Panicked;
        self.finish(job, ran, ws);
        Some(if has_panicked { SessionStep::Failed(key) } else { SessionStep::Ran(key) })
    }
}

impl Node {
    /// Whether records wait that came before the end which is taken: of a subscription that says which formats it accepts, the
    /// context brings them by way of a conversion, and so later.
    fn is_overtaken(&self) -> bool {
        let is_routed = self.session().is_some_and(|session| session.is_routed);
        is_routed && self.inputs.iter().flat_map(|input| &input.queue).any(|item| matches!(item, Item::Batch(_)))
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
