//! The platform overlay: execution contexts, and the handlers that are deployed in them (data-compatibility 4.2).
//!
//! A deployed handler is a [`stage::Stage`] of one context's [`table::Table`]; it reads streams and makes one. Within a
//! context a batch goes from stage to stage by a queue that is run to its end; between contexts by an [`edge`], a
//! bounded ring. A change to what runs is a list of prepared [`ops::Op`]s that a context carries out between two
//! batches: pointers are exchanged, and the objects taken out go back to the sender of the change, to be dropped or put
//! in elsewhere. A stage moves with the ends of its rings, so their batches are neither lost, duplicated nor reordered.

mod apply;
mod behind;
pub(crate) mod context;
pub(crate) mod edge;
pub(crate) mod gauges;
pub(crate) mod making;
pub(crate) mod ops;
pub(crate) mod overlay;
#[cfg(feature = "bench")]
pub mod rig;
pub(crate) mod stage;
pub(crate) mod start;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub(crate) mod work;

use crate::config::PlatformConfig;

/// The bound on contexts, the one with the device included.
pub(crate) const MAX_CONTEXTS: usize = PlatformConfig::MAX_CONTEXTS + 1;

/// The format of a batch without records: the end of publishing, which follows the last records of a stream
/// through all stages to the subscriptions.
pub(crate) const END: u64 = 0;

/// A stage's number on the platform, whatever context it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StageId(pub(crate) u32);

/// A context's number, counted from 0, the one with the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ContextIndex(pub(crate) u8);

/// Whence batches come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Origin {
    /// A stream that comes in at the context, by its number.
    Stream(u32),
    /// A stage.
    Stage(StageId),
}
