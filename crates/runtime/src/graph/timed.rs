//! Nodes that run at a time though nothing comes for them: those whose handlers [want time](crossdock_engine::Handler::wants_time).
//!
//! The contexts' clock counts from their start, and handlers' from 1970: the graph knows the difference.

use crate::graph::NodeId;
use crate::graph::bounds::{PIECE_BYTES, spare_buffers};
use crate::graph::build::Workspace;
use crate::graph::due::Due;
use crate::graph::edge::Publishers;
use crate::graph::node::{Condition, Input, Instance, Node, RunTime};
use crate::graph::run::Job;
use crate::graph::serve::Graph;
use std::cmp::Reverse;

/// Time until a node is looked at again that could not run when it was due, or made nothing and is due still, in ns.
const AGAIN_NS: u64 = 1_000_000;
/// Entries that are out of date, beside as many as there are nodes, before they are removed.
const MOST_OLD: usize = 64;

impl Graph {
    /// The contexts' clock began `epoch_ns` after 1970-01-01 UTC.
    pub(crate) fn set_epoch(&mut self, epoch_ns: u64) {
        self.due.epoch_ns = epoch_ns;
    }

    /// The time now as handlers know it, in ns.
    #[inline]
    pub(super) fn time_ns(&self) -> u64 {
        self.due.epoch_ns.saturating_add(self.now_ns)
    }

    /// When the next node is to be looked at, in ns of the contexts' clock; the greatest time if none is.
    #[inline]
    pub(crate) fn due_ns(&self) -> u64 {
        if self.holds_times { u64::MAX } else { self.due_entry_ns().min(self.walk_ns()) }
    }

    /// The same of those that are due at a time.
    #[inline]
    fn due_entry_ns(&self) -> u64 {
        self.due.entries.peek().map_or(u64::MAX, |Reverse((at_ns, _))| *at_ns)
    }

    /// Whether one that is due may run before what waits. After each such run it is the others' turn.
    #[inline]
    pub(super) fn due_goes_first(&mut self) -> bool {
        !std::mem::take(&mut self.due.had_turn)
    }

    /// The entries of all times at which nodes are looked at.
    #[cfg(test)]
    pub(super) fn due_entries(&self) -> usize {
        self.due.entries.len()
    }

    /// Takes out what is needed to run a node that is due, if one is and may run.
    #[inline]
    pub(super) fn next_due(&mut self, most: RunTime, ws: &mut Workspace) -> Option<Job> {
        let is_none = self.due.come.is_empty() && self.due_entry_ns() > self.now_ns;
        if is_none || self.holds_times { None } else { self.take_due(most, ws) }
    }

    #[cold]
    fn take_due(&mut self, most: RunTime, ws: &mut Workspace) -> Option<Job> {
        let now_ns = self.now_ns;
        self.note_come();
        // As for what waits: the buffers come back soon.
        if !ws.pool.has_free(PIECE_BYTES, spare_buffers(ws.large_buffers)) {
            return None;
        }
        for _ in 0..self.due.come.len() {
            if !self.ready.is_empty() {
                return None;
            }
            let id = self.due.come.pop_front()?;
            // It may have gone, or have been listed anew.
            let Some(node) = self.node_mut(id).filter(|node| node.due.listed_ns == 0) else { continue };
            if matches!(node.condition, Condition::Failed | Condition::Ending) {
                self.settle_node(id);
            } else if node.due.at_ns > now_ns {
                node.due.listed_ns = u64::MAX;
                self.list_due(id, 0);
            } else if self.is_stalled(id, ws) || !self.ready.is_empty() {
                self.due.come.push_back(id);
            } else {
                let place = self.node(id).and_then(|node| node.due_place(self.time_ns()));
                match self.begin_due(id, (place, false), most, ws) {
                    Some(job) => {
                        self.due.had_turn = true;
                        return Some(job);
                    }
                    None => self.note_due(id, true),
                }
            }
        }
        None
    }

    /// Nodes whose time has come wait as those do for which something came: until then nobody is woken for them.
    fn note_come(&mut self) {
        while self.due_entry_ns() <= self.now_ns {
            let Some(Reverse((at_ns, id))) = self.due.entries.pop() else {
                return debug_assert!(false, "an entry is due, so there is one");
            };
            // It has gone, or is due at another time by now.
            let Some(node) = self.node_mut(id).filter(|node| node.due.listed_ns == at_ns) else { continue };
            node.due.listed_ns = 0;
            if !self.due.come.contains(&id) {
                self.due.come.push_back(id);
            }
        }
    }

    /// Has a node looked at when it is due, and not before `earliest_ns`.
    fn list_due(&mut self, id: NodeId, earliest_ns: u64) {
        let Some(node) = self.present_node_mut(id) else { return };
        let at_ns = node.due.at_ns.max(earliest_ns);
        if node.due.at_ns == u64::MAX || at_ns >= node.due.listed_ns {
            return;
        }
        node.due.listed_ns = at_ns;
        self.due.entries.push(Reverse((at_ns, id)));
        if self.due.entries.len() > self.here.len() + MOST_OLD {
            let mut entries = std::mem::take(&mut self.due.entries);
            entries.retain(|Reverse((at_ns, id))| self.node(*id).is_some_and(|node| node.due.listed_ns == *at_ns));
            self.due.entries = entries;
        }
    }

    /// The stream of an input has no publishers: if it has ended, what waited for its records is due.
    pub(super) fn end_input(&mut self, id: NodeId, input: usize, publishers: Publishers) {
        let Some(node) = self.present_node_mut(id) else { return };
        // A publisher that was lost may come back, and go on; a stream that nobody has published yet is about to begin.
        let has_ended = |input: &&Input| publishers.losses == 0 && (publishers.count.is_some() || input.has_begun);
        let stream = node.inputs.get(input).filter(has_ended).map(|input| input.stream);
        if stream.is_some_and(|stream| node.end_stream(stream)) {
            self.settle_due(id);
        }
    }

    /// A node's handlers are others, or have come with it: it is due when they are.
    pub(super) fn settle_due(&mut self, id: NodeId) {
        self.settle_walk(id);
        let epoch_ns = self.due.epoch_ns;
        // It has gone with what it has done, or depends on no time.
        let Some(node) = self.node_mut(id).filter(|node| node.is_due_once() || node.wants_time()) else { return };
        let at_ns = node.least_due_ns(epoch_ns);
        // The entry of the same time stays its entry.
        let listed_ns = if node.due.listed_ns == at_ns { at_ns } else { u64::MAX };
        node.due = Due { at_ns, listed_ns };
        self.list_due(id, 0);
    }

    /// The same where it may make no more: its stream may have ended with that.
    pub(super) fn settle_node(&mut self, id: NodeId) {
        self.settle_due(id);
        let makes = self.node(id).and_then(Node::makes);
        makes.into_iter().for_each(|makes| self.settle_made(makes));
    }

    /// A node whose handler wants time has run: notes when it is due next. One that ran only for that, and has made nothing, is
    /// not due at once again.
    pub(super) fn note_due(&mut self, id: NodeId, is_idle: bool) {
        let (epoch_ns, now_ns) = (self.due.epoch_ns, self.now_ns);
        let Some(node) = self.present_node_mut(id) else { return };
        let at_ns = node.least_due_ns(epoch_ns);
        let before_ns = std::mem::replace(&mut node.due.at_ns, at_ns);
        if node.due.listed_ns == 0 {
            // It has had its turn.
            node.due.listed_ns = u64::MAX;
        }
        let waits = is_idle && at_ns <= before_ns;
        let (is_over, makes) = (before_ns < u64::MAX && !node.is_due_once(), node.makes());
        self.list_due(id, if waits { now_ns.saturating_add(AGAIN_NS) } else { 0 });
        // Its stream may have ended with what it has made.
        if let Some(makes) = makes.filter(|_| is_over) {
            self.settle_made(makes);
        }
    }
}

impl Node {
    /// Whether it will run though nothing comes, so that it may make more.
    pub(super) fn is_due_once(&self) -> bool {
        self.due.at_ns < u64::MAX || self.walk_ns < u64::MAX
    }

    /// Notifies its handler for a stream that this has ended, if it has one that wants time.
    fn end_stream(&mut self, stream: u32) -> bool {
        let is_of_it = |instance: &Instance| {
            instance.stream.is_none_or(|of| of == stream)
                && instance.handler.as_ref().is_some_and(|handler| handler.wants_time())
        };
        let at = self.instances.iter().position(is_of_it);
        let taken = at.and_then(|at| self.take_instance(at).map(|handler| (at, handler)));
        // None of its handlers depends on time.
        let Some((at, mut handler)) = taken else { return false };
        handler.end_stream();
        if let Some(instance) = self.instances.get_mut(at) {
            instance.handler = Some(handler);
        }
        true
    }

    /// Whether one of its handlers wants time.
    fn wants_time(&self) -> bool {
        self.instances.iter().filter_map(|instance| instance.handler.as_ref()).any(|handler| handler.wants_time())
    }

    /// Whether an instance of it is to be advanced: where they share their state, only the one that has it.
    pub(super) fn may_be_due(&self, at: usize) -> bool {
        let handler = self.instances.get(at).and_then(|instance| instance.handler.as_ref());
        let has_state = || self.state_holder() == Some(at);
        handler.is_some_and(|handler| handler.wants_time() && (!handler.shares_state() || has_state()))
    }

    /// When its handlers are due, in ns of the contexts' clock, which began at `epoch_ns`. Those of one that has failed make no more.
    fn least_due_ns(&self, epoch_ns: u64) -> u64 {
        if !matches!(self.condition, Condition::Running | Condition::Waiting) {
            return u64::MAX;
        }
        let due = |at: usize| self.instances.get(at)?.handler.as_ref()?.due_ns();
        let all = (0..self.instances.len()).filter(|at| self.may_be_due(*at)).filter_map(due);
        all.min().map_or(u64::MAX, |due_ns| due_ns.saturating_sub(epoch_ns))
    }

    /// The place of an instance that is due at `time_ns`, in ns since 1970.
    pub(super) fn due_place(&self, time_ns: u64) -> Option<usize> {
        let due = |at: &usize| self.instances.get(*at).and_then(|of| of.handler.as_ref()?.due_ns());
        let is_due = |at: &usize| self.may_be_due(*at) && due(at).is_some_and(|due_ns| due_ns <= time_ns);
        (0..self.instances.len()).find(is_due)
    }
}
