//! The times at which nodes are due ([`timed`](super::timed)).

use crate::graph::NodeId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// When a node is due, in ns of the contexts' clock; the greatest time: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(super) at_ns: u64,
    /// When its context looks for it: not later than that. 0: its time has come.
    pub(super) listed_ns: u64,
}

impl Due {
    /// Whether it is due at this time, and its context looks for it.
    #[inline]
    pub(super) fn has_come(&self, now_ns: u64) -> bool {
        self.at_ns <= now_ns && self.listed_ns <= now_ns
    }
}

impl Default for Due {
    fn default() -> Due {
        Due { at_ns: u64::MAX, listed_ns: u64::MAX }
    }
}

/// The times at which the nodes of a context are due. Of a node whose time has become later, the former entry stays until then.
#[derive(Debug, Default)]
pub(super) struct DueTimes {
    pub(super) entries: BinaryHeap<Reverse<(u64, NodeId)>>,
    /// The nodes whose time has come, until they have run: they may wait for buffers or for room.
    pub(super) come: VecDeque<NodeId>,
    /// The time from 1970 to the zero of the contexts' clock, in ns.
    pub(super) epoch_ns: u64,
    /// Whether the last run was of one that was due: then what waits comes first.
    pub(super) had_turn: bool,
}
