//! A context goes on after a panic outside of a handler, which is a mistake of Crossdock's.
//!
//! The panic takes what was in work: the batch, and the node that ran on it, which fails as it does when its handler panics.
//! Nodes and ports that had been taken out of the graph to be worked with come back to their places, and all lists of what
//! has something to do are made anew.

use crate::graph::at_work::AtWork;
use crate::graph::build::{BatchBuilder, Workspace};
use crate::graph::change::ChangeStep;
use crate::graph::gauges::Loss;
use crate::graph::node::{Destination, Node, Turn};
use crate::graph::port::Port;
use crate::graph::serve::Graph;
use crate::graph::{NodeId, NodeKind};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Steps in a row that may panic; with one more the context's thread ends.
const MOST_PANICS: u32 = 16;

/// Nodes and ports, in boxes as the graph has them.
#[derive(Default)]
#[expect(clippy::vec_box, reason = "they go back into the graph, which has boxes")]
struct Dropped {
    nodes: Vec<Box<Node>>,
    ports: Vec<Box<Port>>,
}

thread_local! {
    /// Nodes and ports that a panic dropped on this thread.
    static DROPPED: RefCell<Dropped> = const { RefCell::new(Dropped { nodes: Vec::new(), ports: Vec::new() }) };
}

impl Drop for Node {
    /// A node that a panic drops comes back with all that waits for it.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept = std::mem::replace(self, Node::with(self.id, Vec::new(), Destination::Stream(0), &[]));
            // The thread may be about to end.
            let _ = DROPPED.try_with(|dropped| dropped.borrow_mut().nodes.push(Box::new(kept)));
        }
    }
}

impl Drop for Port {
    /// As that of a node.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept = std::mem::take(self);
            let _ = DROPPED.try_with(|dropped| dropped.borrow_mut().ports.push(Box::new(kept)));
        }
    }
}

impl Graph {
    /// Runs a step. Nothing comes of it if it panics; then the graph goes on.
    pub(crate) fn guarded<T>(
        &mut self,
        ws: &mut Workspace,
        step: impl FnOnce(&mut Graph, &mut Workspace) -> T,
    ) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(|| step(self, ws))) {
            Ok(done) => Some(done),
            Err(panic) => {
                self.recover(panic, ws);
                None
            }
        }
    }

    /// Goes on after a panic; the node that was at work, if one was. If there are too many panics in a row, this one goes on and ends
    /// the thread, and another thread can go on with the graph.
    #[cold]
    pub(crate) fn recover(&mut self, panic: Box<dyn Any + Send>, ws: &mut Workspace) -> Option<NodeId> {
        self.gauges.panics.add(1);
        let turns = self.gauges.turns.get();
        let in_a_row = if self.panics.turns == turns { self.panics.in_a_row + 1 } else { 1 };
        (self.panics.in_a_row, self.panics.turns, self.panics.is_recovering) = (in_a_row, turns, true);
        ws.builder = BatchBuilder::default();
        ws.selection = Default::default();
        self.put_back();
        #[cfg(test)]
        if self.gauges.wanted_bad_recoveries.takes_one() {
            resume_unwind(panic);
        }
        self.relist();
        let at_work = self.give_up();
        if let Some((number, report)) = self.orders.owed.take() {
            self.report(number, report);
        }
        self.resume_changes();
        self.panics.is_recovering = false;
        if in_a_row > MOST_PANICS {
            self.panics.in_a_row = 0;
            resume_unwind(panic);
        }
        at_work.map(|(node, _)| node)
    }

    /// Whether it has all of its nodes and ports: each recovery from a panic is complete.
    pub(crate) fn is_whole(&self) -> bool {
        !self.panics.is_recovering
    }

    /// The batch in work is lost: the records, and its node's handler with its state. The node, and the number of records.
    pub(crate) fn give_up(&mut self) -> Option<(NodeId, u64)> {
        let AtWork { node: id, records, after } = self.at_work.take()?;
        self.gauges.running.set(0);
        if let Some(node) = self.node_mut(id) {
            node.gauges.records_in.add(after);
            node.gauges.lose(Loss::Failed, records + after);
            node.fail();
            self.settle_node(id);
        }
        Some((id, records + after))
    }

    /// Puts back what a panic has dropped, as far as something names it still.
    fn put_back(&mut self) {
        let Dropped { nodes, ports } = DROPPED.with(|dropped| std::mem::take(&mut *dropped.borrow_mut()));
        for port in ports {
            if self.port(port.stream).is_none() {
                self.put_port_back(port.stream, port);
            }
        }
        for node in nodes {
            if self.node(node.id).is_none() && self.is_named(node.id) {
                self.set_node(node);
            }
        }
        self.here
            .retain(|id| matches!(id.kind(), NodeKind::Handler(at) if self.nodes.get(at).is_some_and(Option::is_some)));
    }

    /// The next `ports` changes of ports and `nodes` of nodes panic, while they have them in hand.
    #[cfg(test)]
    pub(crate) fn panic_in_changes(&mut self, ports: u32, nodes: u32) {
        self.panics.wanted_in_changes = [ports, nodes];
    }

    /// Panics if a test wants that, before anything of a turn is done.
    #[cfg(test)]
    pub(super) fn panic_in_turn_if_wanted(&self) {
        if self.gauges.wanted_panics.takes_one() {
            resume_unwind(Box::new("as the test wants"));
        }
    }

    /// Panics if a test wants that, as the planning of a stream is resumed.
    #[cfg(test)]
    pub(crate) fn panic_in_resuming_if_wanted(&self) {
        if self.gauges.wanted_bad_resumptions.takes_one() {
            resume_unwind(Box::new("as the test wants"));
        }
    }

    /// Behind the next `good` routes of sessions, `bad` ones panic.
    #[cfg(test)]
    pub(crate) fn panic_in_routes(&mut self, good: u32, bad: u32) {
        self.panics.wanted_in_routes = [good, bad];
    }

    /// Behind the next `good` updates of sessions' nodes, `bad` ones panic.
    #[cfg(test)]
    pub(crate) fn panic_in_updates(&mut self, good: u32, bad: u32) {
        self.panics.wanted_in_updates = [good, bad];
    }

    /// Panics if a test wants that.
    #[cfg(test)]
    pub(super) fn panic_in_route_if_wanted(&mut self) {
        panic_behind(&mut self.panics.wanted_in_routes);
    }

    /// Panics if a test wants that.
    #[cfg(test)]
    pub(super) fn panic_in_update_if_wanted(&mut self) {
        panic_behind(&mut self.panics.wanted_in_updates);
    }

    /// Panics if a test wants that.
    #[cfg(test)]
    pub(super) fn panic_if_wanted(&mut self, has_node: bool) {
        let wanted = &mut self.panics.wanted_in_changes[usize::from(has_node)];
        if *wanted > 0 {
            *wanted -= 1;
            resume_unwind(Box::new("as the test wants"));
        }
    }

    fn is_named(&self, id: NodeId) -> bool {
        let mut ports = self.ports.iter().flatten();
        match id.kind() {
            NodeKind::Handler(_) => self.here.contains(&id),
            NodeKind::Session(_) => ports.any(|port| port.sessions.contains(&id)),
            NodeKind::Convert(_) => ports.any(|port| port.converts.contains(&id)),
        }
    }

    /// Makes the lists anew of what has something to do or waits for room.
    fn relist(&mut self) {
        let ports = || self.ports.iter().flatten().map(|port| &**port);
        self.ports_used = ports().count();
        self.session_ports = ports().filter(|port| !port.sessions.is_empty()).count();
        self.waiting = ports().map(|port| port.stream).collect();
        let is_fed = |port: &&Port| !port.feeds.is_empty() || !port.held.is_empty();
        self.fed = ports().filter(is_fed).map(|port| port.stream).collect();
        self.listed.clear();
        for node in self.sessions.iter_mut().chain(&mut self.converts).flatten() {
            node.turn = Turn::Listed;
            self.listed.push_back(node.id);
        }
        self.share_sessions();
        self.turn_to(0);
    }

    /// Looks at all changes that are not complete.
    fn resume_changes(&mut self) {
        self.settle_changes();
        let changes = self.commits.iter().map(|commit| commit.part.change);
        self.orders.steps.extend(changes.map(ChangeStep::TakeEffect));
        self.orders.steps.push_back(ChangeStep::Report);
    }
}

/// Panics where `good` calls have passed and `bad` ones are left.
#[cfg(test)]
fn panic_behind([good, bad]: &mut [u32; 2]) {
    if *good > 0 {
        *good -= 1;
    } else if *bad > 0 {
        *bad -= 1;
        resume_unwind(Box::new("as the test wants"));
    }
}
