//! The graph of nodes at work in one execution context (data-compatibility 4.2: an overlay of execution contexts, each
//! with {handler, state, output queues} for every format).
//!
//! A [`node::Node`] reads streams and makes one, or ends in the session of a subscription ([`session`]). At each context a stream has a [`port::Port`]: there its batches
//! arrive, from sessions, from a node or by an [`edge`] from another context, and leave for all readers. A batch crosses
//! to another context once, however many nodes read it there. An edge has credit; a node runs only where its output has
//! room, and stops within a batch where the room ends ([`run`]). A change is prepared first, which stops nothing, and
//! then committed: a marker in the stream separates the batches of the graph before from those of the graph after
//! ([`change`]).

pub(crate) mod bounds;
pub(crate) mod build;
pub(crate) mod change;
pub(crate) mod edge;
pub(crate) mod gauges;
pub(crate) mod node;
pub(crate) mod port;
pub(crate) mod run;
mod serve;
pub(crate) mod session;
mod shed;
#[cfg(test)]
mod tests;

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
