//! The state of a node as bytes, which its context copies between two batches. Their way to the disk is no concern of a core.

use crate::graph::node::Node;
use crossdock_engine::Handler;

/// An order to copy the state of a handler, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct SaveState {
    /// Whose state it is to be: the handler and its version.
    pub(crate) handler: String,
    pub(crate) version: u32,
    /// A state of more bytes is not copied: all else would wait for it.
    pub(crate) most_bytes: usize,
    /// Where the bytes go: with room for them, so that the core need not have it made.
    pub(crate) bytes: Vec<u8>,
    pub(crate) saved: Saved,
}

/// The outcome of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Saved {
    /// Its handler has none that can be written, or not now.
    #[default]
    Nothing,
    /// It is in the bytes; the node had taken that many records.
    Whole { records_in: u64 },
    /// It has that many bytes.
    TooLarge { bytes: usize },
}

impl Node {
    /// Copies the state that its instances share.
    pub(super) fn save_state(&self, order: &mut SaveState) {
        let holder = self.state_holder().and_then(|at| self.instances.get(at));
        // It has no state that is shared: nothing is saved.
        let Some(handler) = holder.and_then(|instance| instance.handler.as_deref()) else { return };
        let bytes = Handler::state_bytes(handler);
        if bytes > order.most_bytes {
            order.saved = Saved::TooLarge { bytes };
        } else if handler.save(&mut order.bytes) {
            order.saved = Saved::Whole { records_in: self.gauges.records_in.get() };
        }
    }
}
