//! Whether nothing of what came is left at a context, for a cut of the whole graph that is made while nothing comes.

use crate::graph::node::Node;
use crate::graph::quiescence::Quiescence;
use crate::graph::serve::Graph;
use crate::graph::slow::Slow;

impl Graph {
    /// Has nodes run for nothing but what comes, or no longer; what is left.
    pub(super) fn hold_times(&mut self, is_held: bool) -> Quiescence {
        self.holds_times = is_held;
        let nodes = || [&self.nodes, &self.sessions, &self.converts].into_iter().flatten().flatten();
        let moved = nodes().fold(0, |sum: u64, node| sum.wrapping_add(node.gauges.records_in.get()));
        let is_idle = nodes().all(|node| node.is_dry());
        let has_left =
            self.ready.is_empty() && self.arrived.is_empty() && self.leaving.is_empty() && self.commits.is_empty();
        let is_dry = is_idle && has_left && self.ports.iter_mut().flatten().all(|port| port.is_dry());
        Quiescence { is_dry, moved }
    }
}

impl Node {
    /// Whether it has worked on all that came, and has passed on what it made of that. Output that waits for a subscriber may be dropped if its
    /// policy is not to block; one that reads a state gets that anew.
    fn is_dry(&self) -> bool {
        let may_drop = self.session().is_some() && (self.policy.drops || self.slow().is_some_and(Slow::keeps_changes));
        may_drop || (self.waiting() == 0 && self.spill.is_empty() && self.change.is_none())
    }
}
