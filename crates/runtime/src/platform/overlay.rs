//! The platform overlay: which node is at which context, and how that is changed without a record being lost, doubled or
//! reordered. It runs off the cores.
//!
//! A change is one transaction over all contexts that take part: those whose part of the graph differs, and their
//! neighbours. All of them prepare, which stops nothing; if one does not answer in time, the change is dropped and
//! nothing has changed. Then all commit: markers in the streams separate the graph before from the graph after
//! ([`crate::graph::change`]). Nodes that move are passed on from the context that they leave to the one where they go on.

use crate::graph::bounds::{TooManyQueues, queue_limit};
use crate::graph::change::{Control, Op, Order, Part, Report};
use crate::graph::edge::{Overflow, edge};
use crate::graph::gauges::{ContextGauges, NodeGauges};
use crate::graph::node::{Condition, Instance, Node, SchedulingPolicy, Then};
use crate::graph::port::{Feed, PortChange, Reader};
use crate::graph::save::SaveState;
use crate::graph::{ContextIndex, NodeId};
use crossdock_device::Doorbell;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

mod committing;
mod orders;
mod quiet;
mod view;

use committing::{Committing, PATIENT_POLLS};
use orders::Ordered;
pub(crate) use orders::{NotDone, NotOrdered};
use view::{EdgeEnds, View};

/// Why a change was not made. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotChanged {
    /// A context did not answer in time, or has not completed another change.
    Unanswered { at: ContextIndex },
    /// There are not enough buffers for all queues.
    NoBuffers(TooManyQueues),
    /// There is no such node.
    UnknownNode(NodeId),
}

/// How the overlay waits until contexts have done what it sent them.
pub(crate) trait Waiting {
    /// A new wait begins.
    fn begin(&mut self);

    /// Waits a moment. `false`: the time for it is over.
    fn wait(&mut self) -> bool;

    /// Waits for what contexts are to have done beside their orders before a change is committed.
    ///
    /// # Errors
    /// The context that has not done it in time.
    fn prerequisites(&mut self) -> Result<(), ContextIndex> {
        Ok(())
    }

    /// Whether a context works on something long, and takes its orders for certain when it has done that.
    fn is_at_work(&self, _at: ContextIndex) -> bool {
        false
    }
}

/// The wait of the overlay's caller.
pub(crate) type Wait<'a> = &'a mut dyn Waiting;

/// A context as the overlay sees it.
#[derive(Debug)]
pub(crate) struct Port {
    control: Control,
    doorbell: Option<Doorbell>,
    pub(crate) gauges: Arc<ContextGauges>,
    /// Batches that may wait in each of its queues: the limit that the context was last sent.
    limit: usize,
    /// Reports that came and were not asked for yet.
    reports: Vec<(u64, Report)>,
}

impl Port {
    pub(crate) fn new(control: Control, doorbell: Option<Doorbell>, gauges: Arc<ContextGauges>) -> Port {
        Port { control, doorbell, gauges, limit: 0, reports: Vec::new() }
    }

    /// Whether fewer than `most` orders wait to be taken.
    fn has_place(&mut self, most: usize) -> bool {
        self.control.orders.is_below(most)
    }

    /// Sends an order; gives it back if there is no place for it.
    fn send(&mut self, number: u64, order: Order) -> Result<(), Order> {
        self.take_reports();
        self.control.orders.push((number, order)).map_err(|(_, order)| order)?;
        self.doorbell.iter().for_each(Doorbell::ring);
        Ok(())
    }

    fn take_reports(&mut self) {
        while let Some(report) = self.control.reports.pop() {
            self.reports.push(report);
        }
    }

    /// The report on the order of this number, if it has come.
    fn report(&mut self, number: u64) -> Option<Report> {
        self.take_reports();
        let at = self.reports.iter().position(|(of, _)| *of == number)?;
        Some(self.reports.swap_remove(at).1)
    }
}

/// A node as the overlay knows it.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) at: ContextIndex,
    pub(crate) reads: BTreeSet<u32>,
    /// Whether it takes only what is published or made at its context.
    pub(crate) reads_own: bool,
    pub(crate) makes: u32,
    pub(crate) policy: SchedulingPolicy,
    pub(crate) gauges: Arc<NodeGauges>,
}

/// One node's part in a change.
pub(crate) enum Edit {
    /// A new node.
    Add { node: Box<Node>, at: ContextIndex },
    /// Another version, other streams to read, another place, or several of these.
    Change {
        id: NodeId,
        /// The next version, and whether it takes over the state.
        instances: Option<(Vec<Instance>, bool)>,
        policy: Option<SchedulingPolicy>,
        reads: Option<BTreeSet<u32>>,
        at: Option<ContextIndex>,
    },
    /// A node less, once it has worked on its input.
    Remove { id: NodeId },
    /// Whether a stream is for the sessions of an I/O context, wherever it is made or published.
    Deliver { stream: u32, at: ContextIndex, is_delivered: bool },
    /// Whether the records of a stream are counted, which they are at the first I/O context, whoever takes them.
    Observe { stream: u32, is_observed: bool },
    /// Whether sessions of an I/O context publish a stream. Where there is one I/O context only, that one publishes all.
    Publish { stream: u32, at: ContextIndex, is_published: bool },
}

/// Whether a stream is delivered or published, by stream and I/O context.
type AtContexts = BTreeMap<(u32, ContextIndex), bool>;

/// The part that a change concerns, as it is afterwards.
#[derive(Default)]
struct After {
    /// Nodes; nothing for those that end.
    nodes: BTreeMap<NodeId, Option<Placed>>,
    delivered: AtContexts,
    published: AtContexts,
    observed: BTreeMap<u32, bool>,
}

impl After {
    /// A node that goes on.
    fn placed(&self, id: NodeId) -> Option<&Placed> {
        let placed = self.nodes.get(&id).and_then(Option::as_ref);
        debug_assert!(placed.is_some(), "node {id:?} is changed and goes on");
        placed
    }
}

/// The result of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// States that could not be handed over.
    pub(crate) lost_states: u32,
    /// Records that removed nodes had not worked on.
    pub(crate) dropped: u64,
    /// A context that has not changed all that it was to, because of a panic.
    pub(crate) failed: Option<ContextIndex>,
    /// The change's number, if contexts have not completed it yet: [`Overlay::resume`] goes on with it.
    pub(crate) unfinished: Option<u64>,
}

/// A change that is complete after its caller has stopped to wait for it.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) change: u64,
    pub(crate) changed: Changed,
}

/// How many edges bring a stream to a context, each stream's counted once for many nodes.
#[derive(Debug, Default)]
pub(crate) struct EdgeCounts(RefCell<BTreeMap<u32, BTreeMap<ContextIndex, usize>>>);

impl EdgeCounts {
    fn of(&self, overlay: &Overlay, stream: u32, at: ContextIndex) -> usize {
        let mut known = self.0.borrow_mut();
        let of_stream = known.entry(stream).or_insert_with(|| {
            let mut counts = BTreeMap::new();
            overlay.view(stream, None).edges().iter().for_each(|(_, to)| *counts.entry(*to).or_default() += 1);
            counts
        });
        of_stream.get(&at).copied().unwrap_or(0)
    }
}

/// The contexts, and the nodes at each.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) ports: Vec<Port>,
    /// The I/O contexts.
    io: Vec<ContextIndex>,
    nodes: BTreeMap<NodeId, Placed>,
    /// No number below is free.
    first_free: u32,
    /// The readers of each stream.
    readers: BTreeMap<u32, BTreeSet<NodeId>>,
    /// The nodes that make each stream: several are replicas at different contexts, or one takes the place of the other.
    makers: BTreeMap<u32, BTreeSet<NodeId>>,
    /// Streams that are delivered to subscriptions, and where.
    delivered: BTreeSet<(u32, ContextIndex)>,
    /// Streams that are published, and where.
    published: BTreeSet<(u32, ContextIndex)>,
    /// Streams whose records are counted at the first I/O context.
    observed: BTreeSet<u32>,
    /// How many queues there are: edges, and the nodes' own; and how many edges that lead to sessions only.
    queues: (usize, usize),
    queue_batches: usize,
    /// Buffers of one context that may be in queues.
    queued_buffers: usize,
    /// Batches that may wait in each queue now.
    limit: usize,
    numbers: u64,
    /// Changes that wait for contexts.
    unfinished: Vec<Committing>,
    /// Small orders that are not reported on yet, by their numbers.
    ordered: BTreeMap<u64, Ordered>,
    /// The states that contexts have copied.
    saved: Vec<(NodeId, SaveState)>,
}

impl Overlay {
    /// Contexts with nothing in them; `io` are those with sessions. A queue holds `queue_batches` batches at most, and all
    /// queues together `queued_buffers` buffers of one context, so that enough are left to work with.
    pub(crate) fn new(ports: Vec<Port>, io: Vec<ContextIndex>, queue_batches: usize, queued_buffers: usize) -> Overlay {
        Overlay {
            ports,
            io,
            nodes: BTreeMap::new(),
            first_free: 0,
            readers: BTreeMap::new(),
            makers: BTreeMap::new(),
            delivered: BTreeSet::new(),
            published: BTreeSet::new(),
            observed: BTreeSet::new(),
            queues: (0, 0),
            queue_batches,
            queued_buffers,
            limit: queue_batches,
            numbers: 0,
            unfinished: Vec::new(),
            ordered: BTreeMap::new(),
            saved: Vec::new(),
        }
    }

    /// A number for a new node, other than those of nodes that are to be added with it.
    pub(crate) fn next_id(&self, besides: &[NodeId]) -> NodeId {
        let is_leaving = |id: &NodeId| self.unfinished.iter().any(|change| change.nodes.contains(id));
        let is_free = |id: &NodeId| !self.nodes.contains_key(id) && !besides.contains(id) && !is_leaving(id);
        (self.first_free..).map(NodeId).find(is_free).unwrap_or(NodeId(u32::MAX))
    }

    /// A node that is there: a deployed handler has it, or an edit was found to be about it.
    pub(crate) fn placed(&self, id: NodeId) -> Option<&Placed> {
        let placed = self.nodes.get(&id);
        debug_assert!(placed.is_some(), "there is no node {id:?}");
        placed
    }

    /// Batches that may wait in a node's queues now: it has one for each stream that it reads, and the edges by which that comes.
    pub(crate) fn queue_bound(&self, placed: &Placed, edges: &EdgeCounts) -> u64 {
        let edges = |stream: &u32| if placed.reads_own { 0 } else { edges.of(self, *stream, placed.at) };
        (self.limit * placed.reads.iter().map(|stream| 1 + edges(stream)).sum::<usize>()) as u64
    }

    /// A node, if it is there.
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn node(&self, id: NodeId) -> Option<&Placed> {
        self.nodes.get(&id)
    }

    /// The context for which an unfinished change waits, if there is one.
    #[cfg(test)]
    pub(crate) fn unanswered(&self) -> Option<ContextIndex> {
        self.unfinished.first().and_then(Committing::awaits)
    }

    /// Goes on with unfinished changes, as far as contexts have answered by now. Those that are finished.
    pub(crate) fn resume(&mut self) -> Vec<Finished> {
        let mut finished = Vec::new();
        for mut change in std::mem::take(&mut self.unfinished) {
            match self.step(&mut change) {
                true => finished.push(Finished { change: change.change, changed: change.changed }),
                false => self.unfinished.push(change),
            }
        }
        self.send_waiting();
        finished
    }

    /// Whether there are unfinished changes that are about to be complete.
    pub(crate) fn is_finishing(&self) -> bool {
        self.unfinished.iter().any(|change| change.polls < 2 * PATIENT_POLLS)
    }

    /// Nodes that end with changes which have taken longer no longer work on all of their input.
    pub(crate) fn force_after(&mut self, longest: Duration) {
        let is_late = |change: &&mut Committing| crossdock_device::elapsed(change.since) >= longest;
        self.unfinished.iter_mut().filter(is_late).for_each(|change| change.polls = change.polls.max(PATIENT_POLLS));
    }

    /// The context for which an unfinished change waits in which one of these contexts, or of these nodes, takes part.
    pub(crate) fn busy(&self, contexts: &BTreeSet<ContextIndex>, nodes: &[NodeId]) -> Option<ContextIndex> {
        let has_part = |change: &&Committing| {
            let mut awaited = change.awaited.iter().map(|(at, _)| at).chain(change.unsent.iter().map(|(at, _)| at));
            awaited.any(|at| contexts.contains(at)) || nodes.iter().any(|node| change.nodes.contains(node))
        };
        self.unfinished.iter().find(has_part)?.awaits()
    }

    /// The context that an unfinished change waits for.
    pub(crate) fn change_awaits(&self, number: u64) -> Option<ContextIndex> {
        self.unfinished.iter().find(|change| change.change == number)?.awaits()
    }

    /// The context for which a change would wait: one that takes part in it has not finished another, it is about what
    /// another is still changing, or about a node that is still to get an order.
    fn hindrance(&self, after: &After, parts: &BTreeMap<ContextIndex, Part>) -> Option<ContextIndex> {
        let streams = self.streams_of(after);
        let waiting = after.nodes.keys().find(|id| self.has_waiting(**id));
        if let Some(placed) = waiting.and_then(|id| self.nodes.get(id)) {
            return Some(placed.at);
        }
        self.unfinished.iter().find_map(|change| {
            let contexts = change.awaited.iter().map(|(at, _)| at).chain(change.unsent.iter().map(|(at, _)| at));
            let shares =
                !change.streams.is_disjoint(&streams) || after.nodes.keys().any(|id| change.nodes.contains(id));
            let at = contexts.copied().find(|at| parts.contains_key(at));
            at.or_else(|| change.awaits().filter(|_| shares))
        })
    }

    /// Changes the graph as a whole: all edits take effect, or none. Unfinished changes are to be [resumed](Overlay::resume)
    /// before.
    ///
    /// # Errors
    /// A context did not answer, there are too few buffers for the queues, or an edit is about a node that is not there.
    pub(crate) fn change(&mut self, edits: Vec<Edit>, wait: Wait<'_>) -> Result<Changed, NotChanged> {
        self.forget_reports();
        let after = self.after(&edits)?;
        let queues = self.queues_after(&after);
        let limit = queue_limit(queues, self.queued_buffers, self.queue_batches).map_err(NotChanged::NoBuffers)?;
        self.numbers += 1;
        let change = self.numbers;
        let mut parts = self.ports_of(change, &after, limit);
        let moves = self.add_nodes(edits, &after, &mut parts);
        if let Some(at) = self.hindrance(&after, &parts) {
            return Err(NotChanged::Unanswered { at });
        }
        let numbers = self.prepare(change, parts, wait)?;
        let (streams, nodes) = (self.streams_of(&after), after.nodes.keys().copied().collect());
        self.take_over(after, queues);
        let unsent = numbers.iter().map(|at| (*at, Order::Commit(change))).collect();
        let (awaited, changed, polls) = (Vec::new(), Changed::default(), 0);
        let (since, is_forced) = (crossdock_device::now(), false);
        let changed = self.complete(
            Committing { change, streams, nodes, awaited, moves, unsent, changed, polls, since, is_forced },
            wait,
        );
        self.limit_queues(limit);
        Ok(changed)
    }

    /// The part that a set of edits concerns, as it is afterwards.
    ///
    /// # Errors
    /// One is about a node that is not there.
    fn after(&self, edits: &[Edit]) -> Result<After, NotChanged> {
        let mut after = After::default();
        for edit in edits {
            match edit {
                Edit::Add { node, at } => {
                    let Some(makes) = node.makes() else {
                        debug_assert!(false, "the nodes of sessions are no part of changes");
                        continue;
                    };
                    let placed = Placed {
                        at: *at,
                        reads: node.inputs.iter().map(|input| input.stream).collect(),
                        reads_own: node.reads_own,
                        makes,
                        policy: node.policy,
                        gauges: Arc::clone(&node.gauges),
                    };
                    after.nodes.insert(node.id, Some(placed));
                }
                Edit::Change { id, policy, reads, at, .. } => {
                    let mut placed = self.nodes.get(id).ok_or(NotChanged::UnknownNode(*id))?.clone();
                    placed.policy = policy.unwrap_or(placed.policy);
                    placed.at = at.unwrap_or(placed.at);
                    reads.iter().for_each(|reads| placed.reads.clone_from(reads));
                    after.nodes.insert(*id, Some(placed));
                }
                Edit::Remove { id } => {
                    self.nodes.get(id).ok_or(NotChanged::UnknownNode(*id))?;
                    after.nodes.insert(*id, None);
                }
                Edit::Deliver { stream, at, is_delivered } => {
                    after.delivered.insert((*stream, *at), *is_delivered);
                }
                Edit::Observe { stream, is_observed } => drop(after.observed.insert(*stream, *is_observed)),
                Edit::Publish { stream, at, is_published } => {
                    after.published.insert((*stream, *at), *is_published);
                }
            }
        }
        Ok(after)
    }

    /// A stream before a change, or as it is after it.
    fn view(&self, stream: u32, after: Option<&After>) -> View {
        let placed = |id: NodeId| match after.and_then(|after| after.nodes.get(&id)) {
            Some(placed) => placed.as_ref(),
            None => self.nodes.get(&id),
        };
        let new = after.into_iter().flat_map(|after| &after.nodes).map(|(id, _)| *id);
        let known = self.makers.get(&stream).into_iter().flatten().copied();
        let maker = |id: NodeId| placed(id).filter(|node| node.makes == stream).map(|node| (id, node.at));
        let makers: BTreeMap<NodeId, ContextIndex> = known.chain(new.clone()).filter_map(maker).collect();
        let old = self.readers.get(&stream).into_iter().flatten().copied();
        let ids: BTreeSet<NodeId> = old.chain(new).collect();
        let reader = |id: NodeId| {
            let node = placed(id).filter(|node| node.reads.contains(&stream))?;
            Some((Reader { id, reads_own: node.reads_own }, node.at))
        };
        let contexts_of = |now: &BTreeSet<(u32, ContextIndex)>, after: Option<&AtContexts>| {
            let is_one = |at: &ContextIndex| {
                let after = after.and_then(|after| after.get(&(stream, *at)).copied());
                after.unwrap_or_else(|| now.contains(&(stream, *at)))
            };
            self.io.iter().copied().filter(is_one).collect::<BTreeSet<ContextIndex>>()
        };
        let producers = match &self.io[..] {
            _ if !makers.is_empty() => makers.values().copied().collect(),
            [only] => BTreeSet::from([*only]),
            _ => contexts_of(&self.published, after.map(|after| &after.published)),
        };
        let mut delivered = contexts_of(&self.delivered, after.map(|after| &after.delivered));
        let is_observed = after.and_then(|after| after.observed.get(&stream).copied());
        let is_observed = is_observed.unwrap_or_else(|| self.observed.contains(&stream));
        let observed_at = self.io.first().copied().filter(|_| is_observed);
        delivered.extend(observed_at);
        View { producers, makers, readers: ids.into_iter().filter_map(reader).collect(), delivered, observed_at }
    }

    /// The streams that a change concerns.
    fn streams_of(&self, after: &After) -> BTreeSet<u32> {
        let before = after.nodes.keys().filter_map(|id| self.nodes.get(id));
        let nodes = before.chain(after.nodes.values().flatten());
        let of_nodes = nodes.flat_map(|node| node.reads.iter().copied().chain([node.makes]));
        let at_contexts = after.delivered.keys().chain(after.published.keys()).map(|(stream, _)| *stream);
        of_nodes.chain(at_contexts).chain(after.observed.keys().copied()).collect()
    }

    /// How many queues of handlers there are after a change, and how many edges that lead to sessions only.
    fn queues_after(&self, after: &After) -> (usize, usize) {
        let inputs = |nodes: &mut dyn Iterator<Item = &Placed>| nodes.map(|node| node.reads.len()).sum::<usize>();
        let (mut queues, mut crossings) = self.queues;
        queues += inputs(&mut after.nodes.values().flatten());
        queues -= inputs(&mut after.nodes.keys().filter_map(|id| self.nodes.get(id)));
        for stream in self.streams_of(after) {
            let (new, old) = (self.view(stream, Some(after)).queues(), self.view(stream, None).queues());
            (queues, crossings) = (queues + new.0 - old.0, crossings + new.1 - old.1);
        }
        (queues, crossings)
    }

    /// The ports of all streams that a change concerns, by context; with the edges that it needs.
    fn ports_of(&self, change: u64, after: &After, limit: usize) -> BTreeMap<ContextIndex, Part> {
        let mut parts: BTreeMap<ContextIndex, Part> = BTreeMap::new();
        for stream in self.streams_of(after) {
            let (old, new) = (self.view(stream, None), self.view(stream, Some(after)));
            let mut changes = self.port_changes((change, stream), (&old, &new), after);
            let (old_edges, new_edges) = (old.edges(), new.edges());
            for (from, to) in new_edges.iter().copied().filter(|ends| !old_edges.contains(ends)) {
                let overflow = self.overflow(&new, to, after);
                let (sender, receiver) = edge((self.queue_batches, limit), to, overflow);
                changes.entry(from).or_default().edges.push(sender);
                changes.entry(to).or_default().feeds.push(Feed::new(receiver, from));
            }
            for (at, port) in changes {
                let is_same = port.edges.is_empty()
                    && port.overflows.is_empty()
                    && port.feeds.is_empty()
                    && port.marked_readers.is_empty()
                    && port.marked_edges.is_empty()
                    && port.marked_feeds.is_empty()
                    && port.readers == old.readers_at(at)
                    && port.is_made == old.is_made()
                    && port.is_delivered == old.delivered.contains(&at);
                if !is_same {
                    parts.entry(at).or_default().ports.push(Box::new(port));
                }
            }
        }
        parts.values_mut().for_each(|part| part.change = change);
        parts
    }

    /// The ports of a stream, by context, but for new edges.
    fn port_changes(
        &self,
        (change, stream): (u64, u32),
        (old, new): (&View, &View),
        after: &After,
    ) -> BTreeMap<ContextIndex, PortChange> {
        let (old_edges, new_edges) = (old.edges(), new.edges());
        let takes_part = |id: &NodeId| after.nodes.contains_key(id);
        // Also where a node comes from elsewhere: it begins with what follows the marker there.
        let has_part = |at: ContextIndex| old.takers_at(at).chain(new.takers_at(at)).any(|id| takes_part(&id));
        // The output of a new maker comes behind all that those before it have made.
        let is_remade = !old.makers.keys().eq(new.makers.keys());
        let is_ended = |ends: &&EdgeEnds| !new_edges.contains(ends);
        let is_marked = |ends: &&EdgeEnds| is_remade || is_ended(ends) || has_part(ends.1);
        let marked: Vec<EdgeEnds> = old_edges.iter().filter(is_marked).copied().collect();
        let ended: Vec<EdgeEnds> = marked.iter().filter(is_ended).copied().collect();
        let from = |ends: &[EdgeEnds], at| ends.iter().filter(|(from, _)| *from == at).map(|(_, to)| *to).collect();
        let to = |ends: &[EdgeEnds], at| ends.iter().filter(|(_, to)| *to == at).map(|(from, _)| *from).collect();
        let mut changes: BTreeMap<ContextIndex, PortChange> = BTreeMap::new();
        for at in old.contexts().into_iter().chain(new.contexts()) {
            let differs = |to| has_part(to) || old.delivered.contains(&to) != new.delivered.contains(&to);
            let kept = new_edges.iter().filter(|ends| ends.0 == at && old_edges.contains(ends) && differs(ends.1));
            let port = PortChange {
                change,
                stream,
                after: old.makers_at(at).find(takes_part),
                readers: new.readers_at(at),
                marked_readers: old.readers_at(at).into_iter().map(|reader| reader.id).filter(takes_part).collect(),
                overflows: kept.map(|(_, to)| (*to, self.overflow(new, *to, after))).collect(),
                marked_edges: from(&marked, at),
                ended_edges: from(&ended, at),
                marked_feeds: to(&marked, at),
                ended_feeds: to(&ended, at),
                is_delivered: new.delivered.contains(&at),
                is_made: new.is_made(),
                ..PortChange::default()
            };
            changes.insert(at, port);
        }
        changes
    }

    /// Whether an edge withholds credit where it is full: where something at its other end does.
    fn overflow(&self, view: &View, to: ContextIndex, after: &After) -> Overflow {
        let placed = |id: &NodeId| match after.nodes.get(id) {
            Some(placed) => placed.clone(),
            None => self.nodes.get(id).cloned(),
        };
        let readers: Vec<Placed> = view.takers_at(to).filter_map(|id| placed(&id)).collect();
        if view.delivered.contains(&to) || readers.iter().any(|node| !node.policy.drops) {
            return Overflow::Block;
        }
        Overflow::Drop(readers.into_iter().map(|node| node.gauges).collect())
    }

    /// Adds the nodes to the parts of a change; returns those that move.
    fn add_nodes(
        &self,
        edits: Vec<Edit>,
        after: &After,
        parts: &mut BTreeMap<ContextIndex, Part>,
    ) -> BTreeMap<NodeId, ContextIndex> {
        let mut moves = BTreeMap::new();
        for edit in edits {
            match edit {
                Edit::Add { node, at } => parts.entry(at).or_default().nodes.push(node),
                Edit::Deliver { .. } | Edit::Observe { .. } | Edit::Publish { .. } => {}
                Edit::Remove { id } => {
                    let placed = self.placed(id);
                    debug_assert!(placed.is_some(), "node {id:?} is removed, so it is there");
                    let Some(placed) = placed else { continue };
                    parts.entry(placed.at).or_default().changes.push((id, Then::End));
                }
                Edit::Change { id, instances, .. } => {
                    let both = self.placed(id).zip(after.placed(id));
                    debug_assert!(both.is_some(), "node {id:?} is changed, so it is there");
                    let Some((before, placed)) = both else { continue };
                    let reads: Vec<u32> = placed.reads.iter().copied().collect();
                    let (instances, keeps_state) = match instances {
                        Some((instances, keeps_state)) => (Some(instances), keeps_state),
                        None => (None, true),
                    };
                    if before.at == placed.at {
                        let then = Then::Stay { instances, keeps_state, policy: placed.policy, reads };
                        parts.entry(placed.at).or_default().changes.push((id, then));
                        continue;
                    }
                    // Its place, until it comes with its instances.
                    let mut node = Box::new(Node::new(id, Vec::new(), placed.makes, &reads));
                    (node.policy, node.condition) = (placed.policy, Condition::Waiting);
                    node.reads_own = placed.reads_own;
                    node.gauges = Arc::clone(&placed.gauges);
                    parts.entry(before.at).or_default().changes.push((id, Then::Leave { instances, keeps_state }));
                    parts.entry(placed.at).or_default().nodes.push(node);
                    moves.insert(id, placed.at);
                }
            }
        }
        moves
    }

    /// Sends a change's parts to their contexts, and waits until all have them, or will for certain.
    ///
    /// # Errors
    /// One did not answer; then none has its part any more.
    fn prepare(
        &mut self,
        change: u64,
        parts: BTreeMap<ContextIndex, Part>,
        wait: Wait<'_>,
    ) -> Result<Vec<ContextIndex>, NotChanged> {
        let mut sent = Vec::new();
        wait.begin();
        for (at, mut part) in parts {
            part.change = change;
            part.reserve();
            self.numbers += 1;
            match self.ask(at, Order::Prepare(Box::new(part)), wait) {
                true => sent.push((at, self.numbers)),
                false => return Err(self.cancel(change, at, sent)),
            }
        }
        for (at, number) in sent.clone() {
            while self.report(at, number).is_none() && !wait.is_at_work(at) {
                if !wait.wait() {
                    return Err(self.cancel(change, at, sent));
                }
            }
        }
        if let Err(at) = wait.prerequisites() {
            return Err(self.cancel(change, at, sent));
        }
        Ok(sent.into_iter().map(|(at, _)| at).collect())
    }

    /// Has all contexts forget a change. Those that do not answer do so when they do.
    fn cancel(&mut self, change: u64, at: ContextIndex, sent: Vec<(ContextIndex, u64)>) -> NotChanged {
        for (at, _) in sent {
            self.numbers += 1;
            let number = self.numbers;
            // A context with no place for orders has ended.
            let _ = self.port_mut(at).send(number, Order::Cancel(change));
        }
        NotChanged::Unanswered { at }
    }

    /// A context. Its number is that of one of them, since these are all that there ever are.
    fn port_mut(&mut self, at: ContextIndex) -> &mut Port {
        &mut self.ports[usize::from(at.0)]
    }

    fn report(&mut self, at: ContextIndex, number: u64) -> Option<Report> {
        self.port_mut(at).report(number)
    }

    /// Sends an order under the latest number; whether there was a place for it in time.
    fn ask(&mut self, at: ContextIndex, order: Order, wait: Wait<'_>) -> bool {
        let (number, mut order) = (self.numbers, order);
        let port = self.port_mut(at);
        while let Err(refused) = port.send(number, order) {
            order = refused;
            if !wait.wait() {
                return false;
            }
        }
        true
    }

    /// A change is the present graph from here on.
    fn take_over(&mut self, after: After, queues: (usize, usize)) {
        let of_contexts = [(after.delivered, &mut self.delivered), (after.published, &mut self.published)];
        for (changed, now) in of_contexts {
            for (of, is_one) in changed {
                if is_one {
                    now.insert(of)
                } else {
                    now.remove(&of)
                };
            }
        }
        for (stream, is_observed) in after.observed {
            match is_observed {
                true => self.observed.insert(stream),
                false => self.observed.remove(&stream),
            };
        }
        for (id, placed) in after.nodes {
            if let Some(before) = self.nodes.remove(&id) {
                for stream in before.reads {
                    let readers = self.readers.entry(stream).or_default();
                    readers.remove(&id);
                    if readers.is_empty() {
                        self.readers.remove(&stream);
                    }
                }
                let makers = self.makers.entry(before.makes).or_default();
                makers.remove(&id);
                if makers.is_empty() {
                    self.makers.remove(&before.makes);
                }
            }
            if placed.is_none() {
                self.first_free = self.first_free.min(id.0);
            }
            if let Some(placed) = placed {
                for stream in &placed.reads {
                    self.readers.entry(*stream).or_default().insert(id);
                }
                self.makers.entry(placed.makes).or_default().insert(id);
                self.nodes.insert(id, placed);
            }
        }
        while self.nodes.contains_key(&NodeId(self.first_free)) {
            self.first_free += 1;
        }
        self.queues = queues;
    }

    /// The contexts to which a stream comes, or where it comes from.
    pub(crate) fn contexts_of(&self, stream: u32) -> BTreeSet<ContextIndex> {
        self.view(stream, None).contexts()
    }

    /// Whether a node makes a stream.
    pub(crate) fn is_made(&self, stream: u32) -> bool {
        self.makers.contains_key(&stream)
    }

    /// Forgets reports on orders that nobody waits for.
    fn forget_reports(&mut self) {
        let is_of_change =
            |number| self.unfinished.iter().any(|c| c.awaited.iter().any(|(_, awaited)| *awaited == number));
        let is_awaited = |number| self.ordered.contains_key(&number) || is_of_change(number);
        for port in &mut self.ports {
            port.take_reports();
            port.reports.retain(|(number, _)| is_awaited(*number));
        }
    }

    /// Informs the contexts how many batches may wait in each queue. One that has no place for the order gets it with the next
    /// change.
    fn limit_queues(&mut self, limit: usize) {
        self.limit = limit;
        for at in 0..self.ports.len() {
            if self.ports[at].limit != limit && self.post(ContextIndex(at as u8), vec![Op::Limit(limit)]) {
                self.ports[at].limit = limit;
            }
        }
    }
}
