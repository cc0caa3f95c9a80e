//! The graph of nodes at work in one execution context (data-compatibility 4.2: an overlay of execution contexts, each
//! with {handler, state, output queues} for every format).
//!
//! A [`node::Node`] reads streams and makes one, or ends in the session of a subscription ([`session`]), or converts
//! records for such nodes ([`convert`]). At each context a stream has a [`port::Port`]: there its batches
//! arrive, from sessions, from a node or by an [`edge`] from another context, and leave for all readers. A batch crosses
//! to another context once, however many nodes read it there. An edge has credit; a node runs only where its output has
//! room, and stops within a batch where the room ends ([`run`]). A change is prepared first, which stops nothing, and
//! then committed: a marker in the stream separates the batches of the graph before from those of the graph after
//! ([`change`]). The node of a slow subscriber's session has a part that selects among its records ([`slow`]).

mod arrive;
mod at_work;
pub(crate) mod bounds;
pub(crate) mod build;
pub(crate) mod change;
pub(crate) mod convert;
mod due;
pub(crate) mod edge;
pub(crate) mod gauges;
mod hold;
pub(crate) mod node;
pub(crate) mod port;
pub(crate) mod quiescence;
mod quiet;
mod recover;
pub(crate) mod run;
pub(crate) mod save;
mod serve;
pub(crate) mod session;
mod shared;
mod shed;
pub(crate) mod slow;
pub(crate) mod spill;
#[cfg(test)]
mod tests;
mod timed;
mod walk;

pub(crate) use serve::Graph;

use crate::config::PlatformConfig;

/// The bound on contexts, the home context included.
pub(crate) const MAX_CONTEXTS: usize = PlatformConfig::MAX_CONTEXTS + 1;

/// A node's number on the platform, whatever context it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

/// A context's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ContextIndex(pub(crate) u8);

/// Added to the key of a subscription, the number of its node: the managers give none of these to theirs.
const FIRST: u32 = 1 << 31;
/// The same for nodes that convert for sessions.
const FIRST_CONVERT: u32 = 1 << 30;

/// Which kind a node is of, and its place among these.
#[derive(Clone, Copy, Debug)]
enum NodeKind {
    /// A handler, which the managers put in.
    Handler(usize),
    /// A subscription's.
    Session(usize),
    /// One that converts for sessions.
    Convert(usize),
}

impl NodeId {
    /// The node of a subscription, by its key.
    #[inline]
    pub(crate) fn of_subscription(key: usize) -> NodeId {
        NodeId(FIRST | key as u32)
    }

    /// The key of the subscription whose node it is, if it is one's.
    pub(crate) fn subscription(self) -> Option<usize> {
        if let NodeKind::Session(key) = self.kind() { Some(key) } else { None }
    }

    /// The node that converts for sessions, by its place among these.
    fn of_convert(at: usize) -> NodeId {
        NodeId(FIRST_CONVERT | at as u32)
    }

    #[inline]
    fn kind(self) -> NodeKind {
        match self.0 {
            number if number & FIRST != 0 => NodeKind::Session((number & !FIRST) as usize),
            number if number & FIRST_CONVERT != 0 => NodeKind::Convert((number & !FIRST_CONVERT) as usize),
            number => NodeKind::Handler(number as usize),
        }
    }
}
