//! Nodes that have work which can wait for all else: the state of a stream that is walked over for its new readers
//! ([`Handler::walk`](crossdock_engine::Handler::walk)).
//!
//! A step is done where the node's output has ample room, so that there is room left for what changes meanwhile, and takes no more than
//! a sixth of the time: other nodes of the context, the node's own input, and what the rows of the step cost to deliver come in between.

use crate::graph::NodeId;
use crate::graph::bounds::{PIECE_BYTES, spare_buffers};
use crate::graph::build::Workspace;
use crate::graph::node::{Condition, Node, RunTime};
use crate::graph::run::Job;
use crate::graph::serve::Graph;

/// Time until a node is looked at again whose output has no ample room, in ns.
const AGAIN_NS: u64 = 500_000;
/// Rest after a step, in times of the step. The more, the less do the streams of other subscribers wait (`bench query`, `latest_by_key`:
/// with 2, 5 and 8 their 99th percentile is 2.2, 1.3 and 1.2 times that without a walk), and the longer does a walk over a million rows
/// take (0.32, 0.39 and 0.52 s).
const REST: u64 = 5;

impl Graph {
    /// When the next step of a walk is to be done, in ns of the contexts' clock; the greatest time if none is.
    #[inline]
    pub(super) fn walk_ns(&self) -> u64 {
        if self.walks.is_empty() { u64::MAX } else { self.next_walk_ns() }
    }

    #[cold]
    fn next_walk_ns(&self) -> u64 {
        let times = self.walks.iter().filter_map(|id| self.node(*id)).map(|node| node.walk_ns);
        times.min().unwrap_or(u64::MAX)
    }

    /// Takes out what is needed for a step of a walk, if one may be done now.
    #[inline]
    pub(super) fn next_walk(&mut self, most: RunTime, ws: &mut Workspace) -> Option<Job> {
        if self.walk_ns() <= self.now_ns && !self.holds_times { self.take_walk(most, ws) } else { None }
    }

    #[cold]
    fn take_walk(&mut self, most: RunTime, ws: &mut Workspace) -> Option<Job> {
        let now_ns = self.now_ns;
        let again_ns = now_ns.saturating_add(AGAIN_NS);
        if !ws.pool.has_free(PIECE_BYTES, 2 * spare_buffers(ws.large_buffers)) {
            for id in self.walks.clone() {
                let due = self.node_mut(id).filter(|node| node.walk_ns <= now_ns);
                due.into_iter().for_each(|node| node.walk_ns = again_ns);
            }
            return None;
        }
        for at in 0..self.walks.len() {
            let Some(id) = self.walks.get(at).copied() else { break };
            // It has gone, or rests between two steps.
            let Some(node) = self.node_mut(id).filter(|node| node.walk_ns <= now_ns) else { continue };
            if matches!(node.condition, Condition::Failed | Condition::Ending) {
                self.end_walk(id);
                continue;
            }
            if node.condition != Condition::Running || node.change.is_some() || !node.spill.is_empty() {
                node.walk_ns = again_ns;
                continue;
            }
            let place = node.walk_place();
            let has_room = place.is_some() && self.has_ample_room(id);
            let job = if has_room { self.begin_due(id, (place, true), most, ws) } else { None };
            match job {
                Some(job) => return Some(job),
                None if place.is_none() => self.end_walk(id),
                None => self.node_mut(id).into_iter().for_each(|node| node.walk_ns = again_ns),
            }
        }
        let mut walks = std::mem::take(&mut self.walks);
        walks.retain(|id| self.here_has_walk(*id));
        self.walks = walks;
        None
    }

    fn here_has_walk(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.walk_ns < u64::MAX)
    }

    /// Whether a node's output has room for a step and, beside it, for much of what changes meanwhile.
    fn has_ample_room(&mut self, id: NodeId) -> bool {
        let least = (self.limit.min(self.session_limit) * 3 / 4).max(1);
        self.room_of(id) >= least
    }

    /// A node's handlers are others, or have an order: it may have something to walk over.
    pub(super) fn settle_walk(&mut self, id: NodeId) {
        let now_ns = self.now_ns;
        let Some(node) = self.present_node_mut(id) else { return };
        if node.walk_place().is_some() && node.walk_ns == u64::MAX {
            node.walk_ns = now_ns;
            if !self.walks.contains(&id) {
                self.walks.push(id);
            }
        }
    }

    /// A step of a walk was done, and took this long.
    pub(super) fn note_walked(&mut self, id: NodeId, took_ns: u64) {
        let now_ns = self.now_ns;
        let Some(node) = self.present_node_mut(id) else { return };
        match node.walk_place() {
            Some(_) => node.walk_ns = now_ns.saturating_add((REST * took_ns).min(AGAIN_NS)),
            None => self.end_walk(id),
        }
    }

    /// A node has nothing more to walk over: its stream may have ended with that.
    fn end_walk(&mut self, id: NodeId) {
        let Some(node) = self.present_node_mut(id) else { return };
        node.walk_ns = u64::MAX;
        let makes = node.makes();
        self.walks.retain(|other| *other != id);
        makes.into_iter().for_each(|makes| self.settle_made(makes));
    }
}

impl Node {
    /// The place of the instance that has something to walk over.
    fn walk_place(&self) -> Option<usize> {
        let has_walk = |at: &usize| {
            self.instances.get(*at).and_then(|of| of.handler.as_ref()).is_some_and(|handler| handler.has_walk())
        };
        (0..self.instances.len()).find(|at| self.may_be_due(*at) && has_walk(at))
    }
}
