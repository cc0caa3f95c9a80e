//! The graph of one context: its nodes, the ports of the streams that they read and make, and the order in which nodes
//! are served.
//!
//! [`Graph::serve`] takes batches from the nodes' queues in turn, from each node as many in a row as its weight, and runs
//! each through the nodes of this context as far as they have room, before it takes the next. A node whose output has no
//! room is not served until there is room again; its queues fill, and so the credit ends upstream, up to the publishers.

use crate::graph::at_work::{AtWork, Panics};
use crate::graph::bounds::{HoldLimits, Holding, PIECE_BYTES, QUEUE_BATCHES, SESSION_BATCHES, spare_buffers};
use crate::graph::build::Workspace;
use crate::graph::change::{Commit, Orders};
use crate::graph::due::DueTimes;
use crate::graph::edge::{Item, Sender};
use crate::graph::gauges::ContextGauges;
use crate::graph::node::{Condition, Event, Node, RunTime};
use crate::graph::port::Port;
use crate::graph::shed::LoadShedder;
use crate::graph::{ContextIndex, MAX_CONTEXTS, NodeId, NodeKind};
use crossdock_device::{Doorbell, thread_time_ns};
use crossdock_mailbox::Batch;
use std::collections::VecDeque;
use std::sync::Arc;

/// Results for sessions leave before work is begun that takes longer than this, in ns.
const DELIVER_NS: f32 = 20_000.0;

/// The next step of a node.
pub(super) struct Next {
    pub(super) node: NodeId,
    /// The input's position.
    pub(super) input: usize,
    pub(super) item: Item,
    /// Records of a batch that were worked on already.
    pub(super) done: usize,
}

/// The nodes of a context and their queues.
pub(crate) struct Graph {
    pub(super) index: ContextIndex,
    pub(super) nodes: Vec<Option<Box<Node>>>,
    /// The nodes of sessions, by the keys of their subscriptions.
    pub(super) sessions: Vec<Option<Box<Node>>>,
    /// The nodes that convert for them.
    pub(super) converts: Vec<Option<Box<Node>>>,
    /// Those of both that have something to do, in the order in which it came.
    pub(super) listed: VecDeque<NodeId>,
    /// Streams that sessions read.
    pub(super) session_ports: usize,
    /// Batches that may wait for all sessions, and for one from one stream.
    pub(super) session_batches: usize,
    pub(super) session_limit: usize,
    /// The records that wait for conversions.
    pub(super) holding: Holding,
    /// When records that wait for the rates of their subscriptions are to be looked at, in ns.
    pub(super) slow_due_ns: u64,
    /// How often routes were taken in.
    pub(super) routings: u64,
    /// The reports for subscribers.
    pub(super) events: VecDeque<Event>,
    /// The nodes that are here, in the order in which they came.
    pub(super) here: Vec<NodeId>,
    /// Which of them is served next, and how many batches it may take still.
    pub(super) next: usize,
    left: u32,
    pub(super) ports: Vec<Option<Box<Port>>>,
    /// How many streams have one.
    pub(super) ports_used: usize,
    /// Streams that come by edges from other contexts.
    pub(super) fed: Vec<u32>,
    /// Publishers here of each stream, by its number ([`Graph::publishers_of`]).
    pub(super) publishers: Vec<Option<u32>>,
    /// Of each stream, the publishers here that have gone without having finished.
    pub(super) losses: Vec<u32>,
    /// Batches on their way from node to node; empty between two turns.
    pub(super) ready: VecDeque<(NodeId, Batch)>,
    /// Batches of streams that are made for sessions here, as they came; for the context's books.
    pub(super) arrived: Vec<Arc<Batch>>,
    /// Streams whose edges or publishers wait for room.
    pub(super) waiting: Vec<u32>,
    /// Edges that have ended, until the batches that wait in them have gone.
    pub(super) leaving: Vec<Sender>,
    /// Streams whose publishers are to be held back from now on, or no longer.
    pub(super) turned: Vec<(u32, bool)>,
    /// Contexts into whose rings something was put since their doorbells were rung.
    pub(super) rung: u64,
    doorbells: Vec<Doorbell>,
    pub(super) orders: Orders,
    pub(super) commits: Vec<Commit>,
    /// The run that is in work.
    pub(super) at_work: Option<AtWork>,
    pub(super) panics: Panics,
    pub(super) gauges: Arc<ContextGauges>,
    /// When nodes are to run though nothing comes for them.
    pub(super) due: DueTimes,
    /// Nodes that have something to walk over.
    pub(super) walks: Vec<NodeId>,
    /// Whether nodes run for nothing but what comes.
    pub(super) holds_times: bool,
    /// Whether too few buffers are free to begin a batch.
    is_short: bool,
    /// Whether a node has something to do, and no room for what comes of it.
    is_stalled: bool,
    /// When buffers were last short, in ns.
    short_ns: u64,
    /// The approximate time, in ns of the clock of all contexts.
    pub(super) now_ns: u64,
    pub(super) shedder: LoadShedder,
    /// About how long the longest of the last runs took, in ns.
    pub(super) step_ns: u64,
    /// The time of it that reading the thread's processor time takes, in ns.
    pub(super) clock_ns: u64,
    /// Batches that may wait in each queue here.
    pub(super) limit: usize,
}

impl Graph {
    /// A graph with nothing in it. The doorbells are those of all contexts, by their numbers.
    pub(crate) fn new(index: ContextIndex, orders: Orders, doorbells: Vec<Doorbell>) -> Graph {
        Graph {
            index,
            nodes: Vec::new(),
            sessions: Vec::new(),
            converts: Vec::new(),
            listed: VecDeque::new(),
            session_ports: 0,
            session_batches: SESSION_BATCHES,
            session_limit: QUEUE_BATCHES,
            holding: Holding::new(HoldLimits { bytes: u64::MAX, total_bytes: u64::MAX, longest_ns: u64::MAX }),
            slow_due_ns: u64::MAX,
            routings: 0,
            events: VecDeque::new(),
            here: Vec::new(),
            next: 0,
            left: 0,
            ports: Vec::new(),
            ports_used: 0,
            fed: Vec::new(),
            publishers: Vec::new(),
            losses: Vec::new(),
            ready: VecDeque::new(),
            arrived: Vec::new(),
            waiting: Vec::new(),
            leaving: Vec::new(),
            turned: Vec::new(),
            rung: 0,
            doorbells,
            orders,
            commits: Vec::new(),
            at_work: None,
            panics: Panics::default(),
            gauges: Arc::default(),
            due: DueTimes::default(),
            walks: Vec::new(),
            holds_times: false,
            is_short: false,
            is_stalled: false,
            short_ns: 0,
            now_ns: 0,
            shedder: LoadShedder::default(),
            step_ns: 0,
            clock_ns: clock_ns(),
            limit: QUEUE_BATCHES,
        }
    }

    /// The number of the context.
    #[inline]
    pub(crate) fn index(&self) -> ContextIndex {
        self.index
    }

    /// The counters of the context.
    #[inline]
    pub(crate) fn gauges(&self) -> &Arc<ContextGauges> {
        &self.gauges
    }

    /// The next that is to be reported to a subscriber.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The batches of streams that are made for sessions here, as they came since the last call.
    #[inline]
    pub(crate) fn take_arrived(&mut self) -> impl Iterator<Item = Arc<Batch>> {
        self.arrived.drain(..)
    }

    /// Whether publishers are to be held back from now on, or no longer.
    #[inline]
    pub(crate) fn has_turned(&self) -> bool {
        !self.turned.is_empty()
    }

    /// Streams whose publishers are to be held back from now on, or no longer.
    #[inline]
    pub(crate) fn take_turned(&mut self) -> Vec<(u32, bool)> {
        std::mem::take(&mut self.turned)
    }

    /// Whether nothing is done here, and nothing has to leave.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.here.is_empty() && self.ports_used == 0 && self.leaving.is_empty()
    }

    /// Whether a node anywhere reads a stream.
    #[inline]
    pub(crate) fn takes(&self, stream: u32) -> bool {
        self.port(stream).is_some_and(|port| !port.is_unread())
    }

    /// Whether a node other than a session's reads a stream.
    #[inline]
    pub(crate) fn has_readers(&self, stream: u32) -> bool {
        self.port(stream).is_some_and(|port| !port.readers.is_empty() || !port.edges.is_empty())
    }

    /// Whether a session reads a stream.
    #[inline]
    pub(crate) fn has_sessions(&self, stream: u32) -> bool {
        self.port(stream).is_some_and(|port| !port.sessions.is_empty())
    }

    /// Whether the publishers of a stream are held back.
    #[inline]
    pub(crate) fn is_blocked(&self, stream: u32) -> bool {
        self.port(stream).is_some_and(|port| port.is_blocked)
    }

    /// Moves on what waited for room, and lets publishers go on where there is some.
    fn tidy_queues(&mut self, ws: &mut Workspace) {
        // A batch on its way goes before those that come, and before its markers.
        for at in (0..if self.ready.is_empty() { self.fed.len() } else { 0 }).rev() {
            if let Some(stream) = self.fed.get(at).copied() {
                self.pull(stream, ws);
            }
        }
        if self.waiting.is_empty() && self.leaving.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let half = [self.limit, self.limit.min(self.session_limit)].map(|limit| (limit / 2).max(1));
        waiting.retain(|stream| {
            let room = self.room(*stream);
            let rung = &mut self.rung;
            let port = self.ports.get_mut(*stream as usize).and_then(Option::as_mut);
            debug_assert!(
                port.is_some(),
                "stream {stream} waits for room at context {}: it has a port there",
                self.index.0
            );
            let Some(port) = port else { return false };
            let mut is_pending = false;
            for edge in port.edges.iter_mut().filter(|edge| edge.is_pending()) {
                *rung |= u64::from(edge.flush()) << edge.to.0;
                is_pending |= edge.is_pending();
            }
            if port.is_blocked && room >= half[usize::from(!port.sessions.is_empty())] {
                port.is_blocked = false;
                self.turned.push((*stream, false));
            }
            is_pending || port.is_blocked
        });
        waiting.append(&mut self.waiting);
        self.waiting = waiting;
        let rung = &mut self.rung;
        self.leaving.retain_mut(|edge| {
            *rung |= u64::from(edge.flush()) << edge.to.0;
            edge.is_pending() && !edge.is_closed()
        });
    }

    /// The context's thread was away for so long until now, asleep or without a processor: what waited meanwhile did not
    /// wait for its other work.
    #[inline]
    pub(crate) fn note_away(&mut self, now_ns: u64, away_ns: u64) {
        if away_ns > 0 {
            self.shedder.away(now_ns, away_ns);
        }
    }

    /// Batches may wait for this context for so long, in ns, before it sheds load.
    pub(crate) fn shed_after(&mut self, ns: u64) {
        self.shedder = LoadShedder::new(ns);
    }

    /// A turn begins, at `now_ns`.
    pub(crate) fn begin_turn(&mut self, now_ns: u64, ws: &mut Workspace) {
        self.now_ns = now_ns;
        self.tidy_queues(ws);
    }

    /// Takes batches from the queues and runs them, for about `slice_ns`. Whether there is more to do at once. Now it
    /// is `now_ns`.
    pub(crate) fn serve(&mut self, slice_ns: u32, now_ns: u64, ws: &mut Workspace) -> bool {
        self.begin_turn(now_ns, ws);
        let (mut spent, slice) = (0.0, slice_ns as f32);
        let is_over = |spent: f32, delivers: bool| spent >= slice || (delivers && spent >= DELIVER_NS);
        while !self.ready.is_empty() || !is_over(spent, self.delivers()) {
            self.now_ns = now_ns + spent as u64;
            // Nothing is left that may run.
            let Some(mut job) = self.next_job(RunTime::Slice(slice_ns), ws) else { break };
            let ran = job.run(ws);
            spent += self.finish(job, ran, ws);
        }
        self.ring();
        is_over(spent, self.delivers())
    }

    /// Whether something was made for sessions that has yet to leave.
    #[inline]
    fn delivers(&self) -> bool {
        !self.listed.is_empty() || !self.arrived.is_empty()
    }

    /// The next item that waits, of the node whose turn it is.
    pub(super) fn next_waiting(&mut self, ws: &mut Workspace) -> Option<Next> {
        // Batches that wait elsewhere hold a part of the buffers at most, so the others come back soon.
        self.is_short = !self.here.is_empty() && !ws.pool.has_free(PIECE_BYTES, spare_buffers(ws.large_buffers));
        if self.is_short {
            self.short_ns = self.now_ns;
            return None;
        }
        self.is_stalled = false;
        for _ in 0..=self.here.len() {
            let id = *self.here.get(self.next)?;
            if self.left > 0
                && let Some(next) = self.take_from(id, ws)
            {
                self.left -= 1;
                return Some(next);
            }
            if !self.ready.is_empty() {
                return None;
            }
            self.turn_to(self.next + 1);
        }
        // The next round begins with the first again: how long what comes waits for its node does not depend on where
        // this one ended.
        self.turn_to(0);
        None
    }

    pub(super) fn turn_to(&mut self, next: usize) {
        self.next = next % self.here.len().max(1);
        let next = self.here.get(self.next).copied();
        self.left = next.and_then(|id| self.present_node(id)).map_or(1, |node| node.policy.weight.max(1));
    }

    /// The next item of a node that may be served.
    #[inline]
    fn take_from(&mut self, id: NodeId, ws: &mut Workspace) -> Option<Next> {
        if self.present_node(id)?.waiting() == 0 {
            self.pull_for(id, ws);
        }
        if self.is_stalled(id, ws) {
            let now_ns = self.now_ns;
            // A marker among what came may have ended it here.
            let node = self.node_mut(id)?;
            node.stalled_ns = now_ns;
            let has_work = node.waiting() > 0 || !node.spill.is_empty() || node.due.has_come(now_ns);
            let changes = node.change.is_some();
            self.is_stalled |= has_work && self.waits_elsewhere(id);
            if changes {
                self.check_node(id);
            }
            return None;
        }
        if !self.ready.is_empty() {
            // Output that had waited for buffers goes first.
            return None;
        }
        let now_ns = self.now_ns;
        let node = self.present_node_mut(id)?;
        if node.due.has_come(now_ns) {
            // Work that is due goes before batches that came: it is taken where it is its turn.
            return None;
        }
        // Nothing waits that may be taken.
        let Some((input, item, done)) = node.take_next() else {
            if node.change.is_some() {
                self.check_node(id);
            }
            return None;
        };
        Some(Next { node: id, input, item, done })
    }

    /// Takes what came by edges for a node.
    fn pull_for(&mut self, id: NodeId, ws: &mut Workspace) {
        if self.fed.is_empty() {
            return;
        }
        for at in 0.. {
            // Those were all; or a marker among what came has ended the node here.
            let input = self.node(id).and_then(|node| node.inputs.get(at).map(|input| input.stream));
            let Some(stream) = input else { return };
            self.pull(stream, ws);
        }
    }

    /// Whether a node may not run now, for a reason other than its context's other work. Output that waited for buffers
    /// leaves first.
    pub(super) fn is_stalled(&mut self, id: NodeId, ws: &mut Workspace) -> bool {
        let spilled = self.node(id).filter(|node| !node.spill.is_empty()).and_then(Node::makes);
        // Also that of a node which may not run itself: its change may wait for it.
        spilled.is_some_and(|makes| self.room_to_make(id, makes) == 0 || !self.unspill(id, ws)) || self.lacks_room(id)
    }

    /// Whether a node may not run, or its output has no room.
    pub(super) fn lacks_room(&mut self, id: NodeId) -> bool {
        // A node that was to be served may have ended here meanwhile.
        let Some(node) = self.node(id) else { return true };
        let makes = node.makes();
        match node.condition {
            Condition::Failed | Condition::Ending => false,
            Condition::Restarting | Condition::Waiting => true,
            Condition::Running => {
                node.is_over_limit(self.now_ns) || makes.is_some_and(|makes| self.room_to_make(id, makes) == 0)
            }
        }
    }

    /// Whether what a stalled node waits for comes without a doorbell: time, or room in another context. A batch that waits
    /// for a session goes on with what the session's peer sends.
    fn waits_elsewhere(&mut self, id: NodeId) -> bool {
        let Some(node) = self.present_node(id) else { return false };
        // Time is what it waits for, or its output does.
        let Some(makes) = node.makes().filter(|_| !node.is_over_limit(self.now_ns) && node.spill.is_empty()) else {
            return true;
        };
        node.condition != Condition::Running || self.lacks_edge(makes)
    }

    /// Whether an edge of a stream has no room.
    fn lacks_edge(&mut self, stream: u32) -> bool {
        self.port_mut(stream).is_some_and(|port| port.edges.iter_mut().any(|edge| !edge.has_room()))
    }

    /// When a node, or its context for want of buffers, could last not go on, in ns.
    pub(super) fn stalled_ns(&self, id: NodeId) -> u64 {
        self.present_node(id).map_or(0, |node| node.stalled_ns).max(self.short_ns)
    }

    /// Sets how many batches may wait in each queue.
    pub(super) fn limit_queues(&mut self, batches: usize) {
        self.limit = batches.clamp(1, QUEUE_BATCHES);
        let edges = self.ports.iter_mut().flatten().flat_map(|port| &mut port.edges);
        edges.for_each(|edge| edge.set_limit(batches));
        self.share_sessions();
    }

    /// Whether batches wait for room elsewhere or for buffers, so that the context should check again soon without a
    /// doorbell.
    pub(crate) fn is_full(&mut self) -> bool {
        let waits = !self.leaving.is_empty() || self.is_short || self.is_stalled || !self.listed.is_empty();
        waits || (0..self.waiting.len()).any(|at| self.waiting.get(at).copied().is_some_and(|s| self.awaits_edge(s)))
    }

    /// Whether a stream waits until another context has taken more of what was put into its edge.
    fn awaits_edge(&mut self, stream: u32) -> bool {
        let half = (self.limit / 2).max(1);
        let Some(port) = self.present_port_mut(stream) else { return false };
        let is_blocked = port.is_blocked;
        port.edges
            .iter_mut()
            .any(|edge| !edge.has_room() || (is_blocked && edge.overflow.blocks() && edge.room() < half))
    }

    /// Wakes the contexts into whose rings something was put.
    #[inline]
    pub(crate) fn ring(&mut self) {
        while self.rung != 0 {
            let at = self.rung.trailing_zeros() as usize;
            self.rung &= self.rung - 1;
            if at != usize::from(self.index.0)
                && let Some(doorbell) = self.doorbells.get(at)
            {
                doorbell.ring();
            }
        }
    }

    pub(super) fn ring_for(&mut self, context: ContextIndex) {
        self.rung |= 1 << context.0;
    }

    /// Updates the gauges of waiting batches, and of the buffers that the context has in use.
    pub(crate) fn note_queues(&mut self, buffers_in_use: u64) {
        let mut all = 0;
        for at in 0..self.here.len() {
            let Some(node) = self.here.get(at).copied().and_then(|id| self.lift(id)) else { continue };
            let waiting = node.waiting() as u64;
            let streams = node.inputs.iter().map(|input| input.stream).filter(|_| !node.reads_own);
            let coming: u64 = streams.map(|stream| self.coming(stream)).sum();
            node.gauges.queued.set(waiting + coming);
            all += waiting;
            self.set_node(node);
        }
        // A batch that comes by an edge counts once here, however many nodes it is for.
        for at in 0..self.fed.len() {
            let stream = self.fed.get(at).copied().unwrap_or_default();
            let is_read = self.port(stream).is_some_and(|port| port.readers.iter().any(|reader| !reader.reads_own));
            all += if is_read { self.coming(stream) } else { 0 };
        }
        self.gauges.queued.set(all);
        self.gauges.buffers_in_use.set(buffers_in_use);
    }
}

/// Nodes and ports by their numbers, and what waits at a port.
impl Graph {
    /// Batches of a stream that wait in the edges from other contexts.
    fn coming(&mut self, stream: u32) -> u64 {
        let feeds = self.port_mut(stream).into_iter().flat_map(|port| &mut port.feeds);
        feeds.map(|feed| feed.receiver.waiting() as u64).sum()
    }

    /// A node, which may have gone since its number was noted.
    #[inline]
    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        let (nodes, at) = match id.kind() {
            NodeKind::Handler(at) => (&self.nodes, at),
            NodeKind::Session(at) => (&self.sessions, at),
            NodeKind::Convert(at) => (&self.converts, at),
        };
        nodes.get(at)?.as_deref()
    }

    /// See [`Graph::node`].
    #[inline]
    pub(super) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.place(id)?.as_deref_mut()
    }

    /// A node that is here: a port or a session names it, it is being served, or a change or an order is about it.
    #[inline]
    #[track_caller]
    pub(super) fn present_node(&self, id: NodeId) -> Option<&Node> {
        let node = self.node(id);
        debug_assert!(node.is_some(), "{}", self.unknown(id));
        node
    }

    /// See [`Graph::present_node`].
    #[inline]
    #[track_caller]
    pub(super) fn present_node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        debug_assert!(self.node(id).is_some(), "{}", self.unknown(id));
        self.node_mut(id)
    }

    /// A node that is here, taken out to be worked with.
    #[inline]
    #[track_caller]
    pub(super) fn lift(&mut self, id: NodeId) -> Option<Box<Node>> {
        debug_assert!(self.node(id).is_some(), "{}", self.unknown(id));
        self.place(id)?.take()
    }

    fn unknown(&self, id: NodeId) -> String {
        format!("node {id:?} of context {} is unknown", self.index.0)
    }

    #[inline]
    pub(super) fn set_node(&mut self, node: Box<Node>) {
        let (nodes, at) = self.places(node.id);
        if nodes.len() <= at {
            nodes.resize_with(at + 1, || None);
        }
        if let Some(place) = nodes.get_mut(at) {
            *place = Some(node);
        }
    }

    #[inline]
    fn place(&mut self, id: NodeId) -> Option<&mut Option<Box<Node>>> {
        let (nodes, at) = self.places(id);
        nodes.get_mut(at)
    }

    #[inline]
    fn places(&mut self, id: NodeId) -> (&mut Vec<Option<Box<Node>>>, usize) {
        match id.kind() {
            NodeKind::Handler(at) => (&mut self.nodes, at),
            NodeKind::Session(at) => (&mut self.sessions, at),
            NodeKind::Convert(at) => (&mut self.converts, at),
        }
    }

    /// The port of a stream; there is none where nothing reads or makes the stream here.
    #[inline]
    pub(super) fn port(&self, stream: u32) -> Option<&Port> {
        self.ports.get(stream as usize)?.as_deref()
    }

    /// See [`Graph::port`].
    #[inline]
    pub(super) fn port_mut(&mut self, stream: u32) -> Option<&mut Port> {
        self.ports.get_mut(stream as usize)?.as_deref_mut()
    }

    /// The port of a stream that is read or made here.
    #[inline]
    #[track_caller]
    pub(super) fn present_port_mut(&mut self, stream: u32) -> Option<&mut Port> {
        debug_assert!(self.port(stream).is_some(), "stream {stream} has no port at context {}", self.index.0);
        self.port_mut(stream)
    }

    /// A port, taken out to be worked with; there is none where nothing reads or makes the stream here.
    #[inline]
    pub(super) fn lift_port(&mut self, stream: u32) -> Option<Box<Port>> {
        self.ports.get_mut(stream as usize)?.take()
    }

    /// The port of a stream that is read or made here, taken out to be worked with.
    #[inline]
    #[track_caller]
    pub(super) fn lift_present_port(&mut self, stream: u32) -> Option<Box<Port>> {
        debug_assert!(self.port(stream).is_some(), "stream {stream} has no port at context {}", self.index.0);
        self.lift_port(stream)
    }

    #[inline]
    pub(super) fn put_port_back(&mut self, stream: u32, mut port: Box<Port>) {
        let at = stream as usize;
        port.stream = stream;
        if self.ports.len() <= at {
            self.ports.resize_with(at + 1, || None);
        }
        if let Some(place) = self.ports.get_mut(at) {
            *place = Some(port);
        }
    }
}

/// The time that reading a thread's processor time takes, in ns: the least of some readings.
fn clock_ns() -> u64 {
    (0..64)
        .map(|_| {
            let before = thread_time_ns();
            thread_time_ns().saturating_sub(before)
        })
        .min()
        .unwrap_or(0)
}

const _: () = assert!(MAX_CONTEXTS <= u64::BITS as usize, "contexts that were rung for are bits of a word");
