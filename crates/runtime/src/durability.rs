//! The checkpoints of the whole graph as a context knows them.

use crate::net::peers::PeerRef;

/// The cuts as a context knows them.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    is_durable: bool,
    /// The number of the last cut that was begun here.
    pub(crate) begun: u64,
    /// Publishers that have finished since: the requests that are answered once a cut of this number or a later one is on disk.
    pub(crate) finishing: Vec<(u64, PeerRef, u32)>,
}

impl Durability {
    pub(crate) fn new(is_durable: bool) -> Durability {
        Durability { is_durable, ..Durability::default() }
    }

    /// Whether publishers are answered when their records are in a cut on disk.
    pub(crate) fn is_durable(&self) -> bool {
        self.is_durable
    }
}
