//! The graph's knowledge of its work in case of a panic.

use crate::graph::NodeId;

/// The run that is in work.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtWork {
    pub(super) node: NodeId,
    /// Records that it works on.
    pub(super) records: u64,
    /// Records of the batch that come after them; those that the node has not counted as arrived.
    pub(super) after: u64,
}

/// How often steps have panicked without one between them that did not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Panics {
    pub(super) in_a_row: u32,
    /// The turns that the context had made by the last.
    pub(super) turns: u64,
    /// Whether the graph was being put in order after the last. If it is and no thread does, that has panicked as well.
    pub(super) is_recovering: bool,
    /// How many changes of ports and of nodes are to panic next, for tests.
    #[cfg(test)]
    pub(super) wanted_in_changes: [u32; 2],
    /// How many routes do not panic next, and then how many do, for tests.
    #[cfg(test)]
    pub(super) wanted_in_routes: [u32; 2],
    /// The same of updates of sessions' nodes.
    #[cfg(test)]
    pub(super) wanted_in_updates: [u32; 2],
}
