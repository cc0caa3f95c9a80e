//! A change to what a context runs (data-compatibility 4.2: the Control Manager reconfigures the datapaths).
//!
//! Preparing brings all new objects to the context and stops nothing. At the commit the ports at which a changed stream
//! begins put a marker into it. A node that takes part works on what came before the marker as it is, and becomes what
//! the change makes of it at the marker; then its own stream gets a marker. Where several edges or streams lead to one
//! place, those whose marker has come wait for the others. The objects that were taken out go back to the sender of the
//! change, to be dropped off the core.

use crate::graph::build::Workspace;
use crate::graph::edge::Overflow;
use crate::graph::node::{Condition, Input, Instance, Node, NodeChange, SchedulingPolicy, Then};
use crate::graph::port::{Port, PortChange};
use crate::graph::quiescence::Quiescence;
use crate::graph::save::SaveState;
use crate::graph::serve::Graph;
use crate::graph::{ContextIndex, NodeId};
use crossdock_engine::{ParameterValues, WarmPiece};
use crossdock_mailbox::ring::{Consumer, Producer, ring};
use std::collections::VecDeque;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Orders that may be under way to one context.
pub(crate) const ORDERS: usize = 64;

/// Nodes that change hands: a core moves pointers only.
pub(crate) type Nodes = Vec<Box<Node>>;

/// One context's part in a change.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) change: u64,
    /// New nodes; those that come from another context wait for their state.
    pub(crate) nodes: Nodes,
    /// The changes of nodes that are here.
    pub(crate) changes: Vec<(NodeId, Then)>,
    pub(crate) ports: PortChanges,
    /// Nodes and streams whose markers are awaited, once it is committed.
    awaited_nodes: Vec<AwaitedNode>,
    awaited_ports: Vec<u32>,
    /// After the commit: the nodes that left, with what waits for them.
    pub(crate) gone: Nodes,
    /// After the commit: what nodes and ports were changed by, with what was replaced.
    done: Vec<Then>,
    done_ports: PortChanges,
    pub(crate) lost_states: u32,
    /// Nodes and ports that did not become what they were to be, since there was none or a panic took their change.
    pub(crate) failed: u32,
}

/// A node whose markers are awaited, and whether it leaves with them.
#[derive(Clone, Copy, Debug)]
struct AwaitedNode {
    id: NodeId,
    leaves: bool,
}

/// Changes of ports, in boxes for the same reason as [`Nodes`].
pub(crate) type PortChanges = Vec<Box<PortChange>>;

impl Part {
    /// Makes room for all that is put in on the core, where nothing should be allocated.
    pub(crate) fn reserve(&mut self) {
        self.awaited_nodes = Vec::with_capacity(self.changes.len());
        self.awaited_ports = Vec::with_capacity(self.ports.len());
        self.gone = Vec::with_capacity(self.changes.len());
        self.done = Vec::with_capacity(self.changes.len());
        self.done_ports = Vec::with_capacity(self.ports.len());
    }

    fn is_complete(&self) -> bool {
        let is_placed = self.ports.is_empty() && self.nodes.is_empty() && self.changes.is_empty();
        is_placed && self.awaited_nodes.is_empty() && self.awaited_ports.is_empty()
    }

    /// Reads through a piece of it, and writes as it is what will be written, so that this core has both at hand when it takes
    /// effect: its own lists first, then each port, then each handler a few cache lines at a time. The piece behind it, if there was one.
    fn warm(&mut self, (part, of_handler): (usize, usize)) -> Option<(usize, usize)> {
        let Some(listed) = part.checked_sub(1) else {
            self.awaited_nodes.push(AwaitedNode { id: NodeId(0), leaves: false });
            self.awaited_ports.push(0);
            self.done.push(Then::End);
            self.awaited_nodes.clear();
            self.awaited_ports.clear();
            self.done.clear();
            return Some((part + 1, 0));
        };
        if let Some(port) = self.ports.get_mut(listed) {
            port.warm();
            return Some((part + 1, 0));
        }
        let new = self.nodes.iter_mut().flat_map(|node| &mut node.instances);
        let next = self.changes.iter_mut().filter_map(|(_, then)| {
            if let Then::Stay { reads, .. } = then {
                black_box(reads.first().copied());
            }
            then.instances_mut()
        });
        let mut handlers = new.chain(next.flatten()).filter_map(|instance| instance.handler.as_deref_mut());
        let handler = handlers.nth(listed - self.ports.len())?;
        let mut piece = WarmPiece::new(of_handler);
        handler.warm(&mut piece);
        Some(if piece.has_more() { (part, of_handler + 1) } else { (part + 1, 0) })
    }
}

/// The values of an instance's parameters: the stream and the format of what it takes, and the values.
pub(crate) type NewValues = ((Option<u32>, u64), ParameterValues);

/// Something small that takes effect between two batches, for one node.
#[derive(Debug)]
pub(crate) enum Op {
    /// New instances at once, with new state, for a node that has failed; the old ones are in it afterwards.
    Restart { node: NodeId, instances: Vec<Instance> },
    /// An instance for one more format.
    Instance { node: NodeId, instance: Option<Instance> },
    /// Other values of a program's parameters, for the instances of these formats; `refused` counts those that did not
    /// take them.
    Parameters { node: NodeId, values: Vec<NewValues>, refused: u32 },
    /// A copy of the state of a node.
    Save { node: NodeId, order: SaveState },
    /// Whether nodes run for nothing but what comes; and whether nothing of what came is left here.
    Quiet { is_held: bool, found: Quiescence },
    /// A node's scheduling policy.
    Policy { node: NodeId, policy: SchedulingPolicy },
    /// The policy for batches of a stream for which the edge to a context has no room.
    Overflow { stream: u32, to: ContextIndex, overflow: Overflow },
    /// How many batches may wait in each queue.
    Limit(usize),
    /// Input of a node is dropped and counted, until its instances are replaced.
    Fail { node: NodeId },
    /// Whether a node may not be served.
    #[cfg(any(test, feature = "bench"))]
    Hold { node: NodeId, is_held: bool },
}

/// An order to a context.
pub(crate) enum Order {
    /// Takes in its part in a change.
    Prepare(Box<Part>),
    /// Forgets a part that it has prepared.
    Cancel(u64),
    /// Carries out the part that it has prepared.
    Commit(u64),
    /// Nodes that end with a change drop and count what they have not worked on.
    Force(u64),
    /// Nodes that come from another context, with their state.
    Arrive(Nodes),
    /// Something small, at once.
    Now(Vec<Op>),
}

/// The report of a context.
pub(crate) enum Report {
    Prepared,
    /// With the part, where it had one, to be dropped.
    Cancelled {
        _part: Option<Box<Part>>,
    },
    /// The change is complete here.
    Committed(Box<Part>),
    /// With what is to be dropped.
    Arrived {
        _before: Nodes,
    },
    /// With a node that one of them named and that is not here, if there was one.
    Done(Vec<Op>, Option<NodeId>),
    /// It panicked at small orders, and may not have carried them out.
    Panicked,
}

/// A context's side of the signal queue by which it is changed.
#[derive(Debug)]
pub(crate) struct Orders {
    orders: Consumer<(u64, Order)>,
    reports: Producer<(u64, Report)>,
    /// An order that was fetched from the other core's memory, and takes effect in the next turn.
    pub(super) fetched: Option<(u64, Order)>,
    /// The report on the order that is being carried out, should that fail: nobody is to wait for it.
    pub(super) owed: Option<(u64, Report)>,
    /// The next steps, one step a turn.
    pub(super) steps: VecDeque<ChangeStep>,
    #[expect(clippy::vec_box, reason = "a part came in its box, and goes back in it")]
    prepared: Vec<Box<Part>>,
}

/// One step of a change, which is all that a turn does of it: each takes memory, or code, that this core has not at hand.
#[derive(Debug)]
pub(super) enum ChangeStep {
    /// Reads through a piece of a part that has come.
    Warm { number: u64, part: Box<Part>, piece: (usize, usize) },
    /// A change that is in place takes effect, where no marker has to be awaited.
    TakeEffect(u64),
    /// Complete changes are reported.
    Report,
}

/// The sender's side.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) orders: Producer<(u64, Order)>,
    pub(crate) reports: Consumer<(u64, Report)>,
}

/// Both sides of a context's signal queue.
pub(crate) fn signal_queue() -> (Orders, Control) {
    let ((orders, taken), (reports, returned)) = (ring(ORDERS), ring(2 * ORDERS));
    (
        Orders {
            orders: taken,
            reports,
            fetched: None,
            owed: None,
            steps: VecDeque::with_capacity(ORDERS),
            prepared: Vec::with_capacity(ORDERS),
        },
        Control { orders, reports: returned },
    )
}

/// A change that is being carried out.
#[derive(Debug)]
pub(crate) struct Commit {
    /// The order's number, for the report.
    number: u64,
    pub(super) part: Box<Part>,
}

impl Graph {
    /// Carries out one step of what was ordered, between two batches; returns whether there was one. Each step takes
    /// over memory that another core wrote last, so no batch waits for several.
    #[inline]
    pub(crate) fn take_orders(&mut self, ws: &mut Workspace) -> bool {
        #[cfg(test)]
        self.panic_in_turn_if_wanted();
        if !self.is_changing() {
            self.orders.fetched = self.orders.orders.pop();
            return self.orders.fetched.is_some();
        }
        // Batches that are on their way go before the markers.
        while let Some((id, mut batch)) = self.ready.pop_front() {
            batch.since_ns = self.now_ns;
            self.enqueue(id, batch, ws);
        }
        if let Some(step) = self.orders.steps.pop_front() {
            self.take_step(step);
        } else if let Some((number, order)) = self.orders.fetched.take() {
            self.carry_out(number, order);
        }
        true
    }

    /// Whether more of what was ordered can be done at once.
    #[inline]
    pub(crate) fn is_changing(&self) -> bool {
        !self.orders.steps.is_empty() || self.orders.fetched.is_some()
    }

    pub(super) fn report(&mut self, number: u64, report: Report) {
        // No more orders are under way than the ring has places, so there is room.
        let sent = self.orders.reports.push((number, report));
        debug_assert!(sent.is_ok(), "a report has a place");
    }

    fn carry_out(&mut self, number: u64, order: Order) {
        self.orders.owed = order.report_at_least().map(|report| (number, report));
        match order {
            Order::Prepare(part) => self.orders.steps.push_back(ChangeStep::Warm { number, part, piece: (0, 0) }),
            Order::Cancel(change) => {
                let part = self.prepared(change);
                self.report(number, Report::Cancelled { _part: part });
            }
            Order::Commit(change) => match self.prepared(change) {
                Some(part) => self.commit(number, part),
                None => {
                    debug_assert!(false, "change {change} was prepared at context {}", self.index.0);
                    self.report(number, Report::Cancelled { _part: None });
                }
            },
            Order::Force(change) => {
                self.force(change);
                self.report(number, Report::Prepared);
            }
            Order::Arrive(mut nodes) => {
                for node in &mut nodes {
                    // It has a place here since the commit.
                    let Some(here) = self.present_node_mut(node.id) else { continue };
                    here.arrive(node);
                    here.due.listed_ns = u64::MAX;
                    let (id, makes) = (here.id, here.makes());
                    self.settle_due(id);
                    makes.into_iter().for_each(|makes| self.settle_made(makes));
                }
                self.report(number, Report::Arrived { _before: nodes });
            }
            Order::Now(mut ops) => {
                let mut unknown = None;
                for op in &mut ops {
                    unknown = self.apply(op).err().or(unknown);
                }
                self.report(number, Report::Done(ops, unknown));
            }
        }
        self.orders.owed = None;
    }

    fn prepared(&mut self, change: u64) -> Option<Box<Part>> {
        let at = self.orders.prepared.iter().position(|part| part.change == change)?;
        Some(self.orders.prepared.swap_remove(at))
    }

    /// Puts a part in place: what it makes of nodes and ports waits there for its markers.
    fn commit(&mut self, number: u64, part: Box<Part>) {
        let change = part.change;
        self.commits.push(Commit { number, part });
        self.put_in_place(change);
        self.orders.steps.push_back(ChangeStep::TakeEffect(change));
    }

    /// Puts in place what is left of a part, one after the other: a panic takes one of them at most. Each is awaited before it is
    /// in place, so that what a panic takes is missed ([`Graph::settle_changes`]).
    fn put_in_place(&mut self, change: u64) {
        // First, since it is not known before they have changed whether the nodes have something to come.
        while let Some(stream) = self.committed(change).and_then(|part| part.ports.first()).map(|port| port.stream) {
            self.open_port(stream);
            let port = self.committed(change).and_then(|part| {
                part.awaited_ports.push(stream);
                first(&mut part.ports)
            });
            self.present_port_mut(stream).into_iter().zip(port).for_each(|(there, port)| there.next = Some(port));
        }
        while let Some(node) = self.committed(change).and_then(|part| first(&mut part.nodes)) {
            self.add(node);
        }
        while let Some((id, then)) = self.committed(change).and_then(|part| first(&mut part.changes)) {
            let (is_here, leaves) = (self.present_node(id).is_some(), matches!(then, Then::Leave { .. } | Then::End));
            if let Some(part) = self.committed(change) {
                part.failed += u32::from(!is_here);
                part.awaited_nodes.extend(is_here.then_some(AwaitedNode { id, leaves }));
            }
            let Some(node) = self.present_node_mut(id) else { continue };
            node.inputs.iter_mut().for_each(|input| (input.is_marked, input.is_held) = (false, false));
            if let Then::Stay { reads, .. } = &then {
                for stream in reads {
                    if node.input(*stream).is_none() {
                        // It begins when the change takes effect.
                        let mut input = Input::new(*stream);
                        (input.is_held, input.is_marked) = (true, true);
                        node.inputs.push(input);
                    }
                }
            }
            node.plan(change, then);
            let makes = node.makes();
            makes.into_iter().for_each(|makes| self.settle_made(makes));
        }
    }

    fn take_step(&mut self, step: ChangeStep) {
        match step {
            // A handler that panics here is as good as one that is not warm: if it does so again at work, that is its fault.
            ChangeStep::Warm { number, mut part, piece } => {
                match catch_unwind(AssertUnwindSafe(|| part.warm(piece))).unwrap_or(Some((piece.0 + 1, 0))) {
                    Some(piece) => self.orders.steps.push_front(ChangeStep::Warm { number, part, piece }),
                    None => {
                        self.orders.prepared.push(part);
                        self.report(number, Report::Prepared);
                    }
                }
            }
            ChangeStep::TakeEffect(change) => self.take_effect(change),
            ChangeStep::Report => self.complete(),
        }
    }

    /// Ports change whose streams begin here; nodes that read nothing, or cannot run, do not get to their markers by
    /// themselves.
    fn take_effect(&mut self, change: u64) {
        // A panic has left something.
        self.put_in_place(change);
        // From the last to the first: one that changes takes itself, and others that follow from it, off the list.
        let awaited = |part: &mut Part| (part.awaited_ports.len(), part.awaited_nodes.len());
        let (ports, nodes) = self.committed(change).map_or((0, 0), awaited);
        for at in (0..ports).rev() {
            if let Some(stream) = self.committed(change).and_then(|part| part.awaited_ports.get(at).copied()) {
                self.check_port(stream);
            }
        }
        for at in (0..nodes).rev() {
            if let Some(AwaitedNode { id, .. }) =
                self.committed(change).and_then(|part| part.awaited_nodes.get(at).copied())
            {
                self.check_node(id);
            }
        }
    }

    /// A change that is being carried out.
    fn committed(&mut self, change: u64) -> Option<&mut Part> {
        let commit = self.commits.iter_mut().find(|commit| commit.part.change == change)?;
        Some(&mut commit.part)
    }

    /// Puts a node in.
    fn add(&mut self, mut node: Box<Node>) {
        // It may have been listed at another context.
        node.due.listed_ns = u64::MAX;
        // It may come with a state.
        node.note_state();
        let id = node.id;
        self.here.retain(|here| *here != id);
        self.here.push(id);
        let makes = node.makes();
        self.set_node(node);
        self.settle_due(id);
        makes.into_iter().for_each(|makes| self.settle_made(makes));
    }

    /// The port of a stream, put in if there is none.
    pub(super) fn open_port(&mut self, stream: u32) -> Option<&mut Port> {
        if self.port(stream).is_none() {
            self.ports_used += 1;
            self.put_port_back(stream, Box::default());
        }
        self.present_port_mut(stream)
    }

    /// Takes out a port to which nothing leads, and from which nothing does.
    pub(super) fn close_port(&mut self, stream: u32) {
        let Some(port) = self.lift_present_port(stream) else { return };
        self.ports_used -= 1;
        self.waiting.retain(|waiting| *waiting != stream);
        if port.is_blocked {
            self.turned.push((stream, false));
        }
    }

    /// Whether the node here that makes a stream has not become yet what it is to be.
    pub(super) fn awaits_maker(&self, next: &PortChange) -> bool {
        // It may have left this context.
        let change = |id| Some(self.node(id)?.change.as_ref()?.change);
        next.after.and_then(change) == Some(next.change)
    }

    /// Changes a port as far as it is due: its edges once the node that makes its stream has become what it is to be, all else
    /// once all of its markers have come.
    pub(super) fn check_port(&mut self, stream: u32) {
        let next = self.port(stream).and_then(|port| port.next.as_deref());
        if next.is_none_or(|next| self.awaits_maker(next)) {
            return;
        }
        let publishers = self.publishers_here(stream);
        let Some(mut port) = self.lift_present_port(stream) else { return };
        if let Port { next: Some(next), edges, .. } = &mut *port
            && !next.has_turned
        {
            let ended = next.turn_edges(edges, publishers);
            // Something has gone into each of them.
            ended.iter().chain(&*edges).for_each(|edge| self.ring_for(edge.to));
            self.leaving.extend(ended);
        }
        if port.next.as_deref().is_some_and(|next| !next.is_due(&port)) {
            return self.put_port_back(stream, port);
        }
        let Some(next) = port.turn() else {
            debug_assert!(false, "it has a change, as was just seen");
            return self.put_port_back(stream, port);
        };
        #[cfg(test)]
        self.panic_if_wanted(false);
        self.fed.retain(|fed| *fed != stream);
        if !port.feeds.is_empty() || !port.held.is_empty() {
            self.fed.push(stream);
        }
        let (is_unused, begins_whole) = (port.is_unused(), port.begins_whole());
        self.put_port_back(stream, port);
        self.look_again(stream);
        match is_unused {
            true => self.close_port(stream),
            false => self.await_room(stream),
        }
        let change = next.change;
        // Batches that are on their way to them go before the marker.
        self.queue_ready(stream);
        for id in &next.marked_readers {
            let input = self.present_node_mut(*id).and_then(|node| node.input(stream));
            debug_assert!(input.is_some(), "a port's readers read its stream");
            let Some(input) = input else { continue };
            input.has_begun = begins_whole.unwrap_or(input.has_begun);
            input.mark(change);
        }
        for id in &next.marked_readers {
            self.check_node(*id);
        }
        if let Some(part) = self.committed(change) {
            part.awaited_ports.retain(|port| *port != stream);
            part.done_ports.push(next);
        }
        self.note_complete(change);
    }

    /// A node has come to the marker of a change in one of its inputs.
    pub(super) fn take_marker(&mut self, id: NodeId, input: usize, change: u64) {
        let Some(node) = self.present_node_mut(id) else { return };
        // Of a change that it no longer waits for, it means nothing.
        if node.change.as_ref().is_some_and(|pending| pending.change == change) {
            if let Some(input) = node.present_input(input) {
                input.is_held = true;
            }
            self.check_node(id);
        }
    }

    /// Changes a node, if it is due.
    pub(super) fn check_node(&mut self, id: NodeId) {
        if self.is_due(id) {
            self.switch(id);
        }
    }

    /// Whether a node is at the markers of all its inputs. One that cannot run becomes what it is to be as soon as the
    /// markers are in its queues, and takes along what is before them.
    fn is_due(&mut self, id: NodeId) -> bool {
        // Of the readers of a stream that are marked, one may have gone with the change of another.
        let Some(node) = self.node(id) else { return false };
        // No change concerns it, or no longer.
        let Some(NodeChange { then, .. }) = &node.change else { return false };
        if !node.may_take_spill_along(then) {
            return false;
        }
        let is_at_markers = node.inputs.iter().all(|input| input.is_held && input.is_marked);
        let may_be_early = match then.instances() {
            Some(next) => node.may_leave_waiting_to(next),
            None => !matches!(then, Then::End),
        };
        let is_early = node.is_marked() && may_be_early;
        let waits = !node.spill.is_empty() || node.awaits_instance();
        is_at_markers || (is_early && (waits || self.lacks_room(id)))
    }

    /// A node becomes what its change makes of it, and its stream goes on with a marker.
    fn switch(&mut self, id: NodeId) {
        let Some(mut node) = self.lift(id) else { return };
        let Some(NodeChange { change, then }) = node.change.take() else {
            debug_assert!(false, "a node that is due has a change");
            return self.set_node(node);
        };
        #[cfg(test)]
        self.panic_if_wanted(true);
        let makes = node.makes();
        node.inputs.iter_mut().for_each(|input| input.pass_marker(change));
        let (mut then, mut gone, mut lost) = (then, None, 0);
        if let Then::Stay { instances: Some(next), keeps_state, .. }
        | Then::Leave { instances: Some(next), keeps_state } = &mut then
        {
            lost = node.exchange(next, *keeps_state);
        }
        match &mut then {
            Then::Leave { .. } | Then::End => {
                self.here.retain(|here| *here != id);
                self.next = 0;
                gone = Some(node);
            }
            Then::Stay { policy, reads, .. } => {
                node.policy = *policy;
                node.inputs.retain(|input| reads.contains(&input.stream));
                self.set_node(node);
                self.settle_due(id);
            }
        }
        let part = self.committed(change);
        debug_assert!(part.is_some(), "a node's change is being carried out");
        if let Some(part) = part {
            part.awaited_nodes.retain(|awaited| awaited.id != id);
            part.gone.extend(gone);
            part.done.push(then);
            part.lost_states += lost;
        }
        if let Some(makes) = makes {
            self.settle_made(makes);
            self.check_port(makes);
        }
        self.note_complete(change);
    }

    /// After a panic: nothing waits any longer for what it took of changes. A node whose change it took fails, and leaves if it was
    /// to. A port has changed then, perhaps without a word to its readers.
    pub(super) fn settle_changes(&mut self) {
        let mut commits = std::mem::take(&mut self.commits);
        for Commit { part, .. } in &mut commits {
            let change = part.change;
            let is_port_lost = |stream: &mut u32| {
                let next = self.port(*stream).and_then(|port| port.next.as_deref());
                next.is_none_or(|next| next.change != change)
            };
            let lost_ports: Vec<u32> = part.awaited_ports.extract_if(.., is_port_lost).collect();
            let is_node_lost = |awaited: &mut AwaitedNode| {
                let next = self.node(awaited.id).and_then(|node| node.change.as_ref());
                next.is_none_or(|next| next.change != change)
            };
            let lost: Vec<AwaitedNode> = part.awaited_nodes.extract_if(.., is_node_lost).collect();
            part.failed += lost.len() as u32;
            for AwaitedNode { id, leaves } in lost {
                let Some(mut node) = self.lift(id) else { continue };
                node.fail();
                node.inputs.iter_mut().for_each(|input| input.pass_marker(change));
                if leaves {
                    self.here.retain(|here| *here != id);
                    self.next = 0;
                    part.gone.push(node);
                } else {
                    self.set_node(node);
                    self.settle_node(id);
                }
            }
            for awaited in &part.awaited_nodes {
                let inputs = self.node_mut(awaited.id).into_iter().flat_map(|node| &mut node.inputs);
                let unmarked = inputs.filter(|input| !input.is_marked && lost_ports.contains(&input.stream));
                unmarked.for_each(|input| input.mark(change));
            }
        }
        self.commits = commits;
    }

    fn note_complete(&mut self, change: u64) {
        if self.committed(change).is_some_and(|part| part.is_complete()) {
            self.orders.steps.push_back(ChangeStep::Report);
        }
    }

    /// Reports the changes that are complete here.
    fn complete(&mut self) {
        while let Some(at) = self.commits.iter().position(|commit| commit.part.is_complete()) {
            let Commit { number, part } = self.commits.swap_remove(at);
            self.report(number, Report::Committed(part));
        }
    }

    /// Nodes that end with a change drop what comes before their markers.
    fn force(&mut self, change: u64) {
        for AwaitedNode { id, .. } in self.committed(change).map(|part| part.awaited_nodes.clone()).unwrap_or_default()
        {
            let Some(node) = self.present_node_mut(id) else { continue };
            if node.change.as_ref().is_some_and(|pending| matches!(pending.then, Then::End)) {
                node.condition = Condition::Ending;
            }
        }
    }

    /// Does something small. The node that it names, if that is not here.
    fn apply(&mut self, op: &mut Op) -> Result<(), NodeId> {
        match op {
            Op::Restart { node, instances } => {
                self.ordered(*node)?.exchange(instances, false);
                self.settle_node(*node);
            }
            Op::Instance { node: id, instance } => {
                let id = *id;
                let node = self.ordered(id)?;
                node.forget_cost();
                if let Some(new) = instance.take() {
                    *instance = node.put_instance(new);
                }
                node.note_state();
                self.settle_node(id);
            }
            Op::Parameters { node, values, refused } => {
                *refused = set_parameters(self.ordered(*node)?, values);
                self.settle_node(*node);
            }
            Op::Save { node, order } => self.ordered(*node)?.save_state(order),
            Op::Quiet { is_held, found } => *found = self.hold_times(*is_held),
            Op::Policy { node, policy } => self.ordered(*node)?.policy = *policy,
            Op::Overflow { stream, to, overflow } => {
                // A change that was committed meanwhile may have ended the edge.
                if let Some(port) = self.port_mut(*stream) {
                    port.edges
                        .iter_mut()
                        .filter(|edge| edge.to == *to)
                        .for_each(|edge| edge.overflow = overflow.clone());
                    self.await_room(*stream);
                }
            }
            Op::Limit(batches) => self.limit_queues(*batches),
            Op::Fail { node } => {
                self.ordered(*node)?.condition = Condition::Failed;
                self.settle_node(*node);
            }
            #[cfg(any(test, feature = "bench"))]
            Op::Hold { node, is_held } => {
                self.ordered(*node)?.condition = if *is_held { Condition::Waiting } else { Condition::Running };
            }
        }
        Ok(())
    }

    /// The node that an order names.
    fn ordered(&mut self, id: NodeId) -> Result<&mut Node, NodeId> {
        self.node_mut(id).ok_or(id)
    }
}

/// Takes out the first.
fn first<T>(of: &mut Vec<T>) -> Option<T> {
    if of.is_empty() { None } else { Some(of.remove(0)) }
}

impl Order {
    /// The report on it in any case, if it is carried out at once and for good.
    pub(super) fn report_at_least(&self) -> Option<Report> {
        match self {
            Order::Prepare(_) | Order::Commit(_) => None,
            Order::Cancel(_) => Some(Report::Cancelled { _part: None }),
            Order::Force(_) => Some(Report::Prepared),
            Order::Arrive(_) => Some(Report::Arrived { _before: Vec::new() }),
            Order::Now(_) => Some(Report::Panicked),
        }
    }
}

/// Exchanges the values of a node's parameters for `values`; returns the number of instances that did not take them.
fn set_parameters(node: &mut Node, values: &mut [NewValues]) -> u32 {
    let mut refused = 0;
    node.forget_cost();
    for ((stream, format), values) in values {
        let handler = node.instance(*stream, *format).and_then(|instance| instance.handler.as_mut());
        refused += u32::from(!handler.is_some_and(|handler| handler.set_parameters(values)));
    }
    node.choose_holder();
    refused
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Order::Prepare(_) => "Prepare",
            Order::Cancel(_) => "Cancel",
            Order::Commit(_) => "Commit",
            Order::Force(_) => "Force",
            Order::Arrive(_) => "Arrive",
            Order::Now(_) => "Now",
        })
    }
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Report::Prepared => "Prepared",
            Report::Cancelled { .. } => "Cancelled",
            Report::Committed(_) => "Committed",
            Report::Arrived { .. } => "Arrived",
            Report::Done(..) => "Done",
            Report::Panicked => "Panicked",
        })
    }
}
