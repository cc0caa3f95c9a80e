//! Handlers that run the queries of subscriptions, as their subscriptions know them.

use crate::graph::gauges::NodeGauges;
use std::sync::Arc;

/// One use of a handler that runs a subscription's query. Its end is reported to the managers, who remove the handler with the last.
pub(crate) struct Elsewhere {
    handler: String,
    gauges: Arc<NodeGauges>,
    /// The streams that a query with state reads; the subscription takes that of the handler.
    reads: Vec<String>,
    end: Box<dyn Fn(String) + Send>,
}

impl Elsewhere {
    /// A use of this handler; `end` is called with its name at the end of the use.
    pub(crate) fn new(handler: String, gauges: Arc<NodeGauges>, end: impl Fn(String) + Send + 'static) -> Elsewhere {
        Elsewhere { handler, gauges, reads: Vec::new(), end: Box::new(end) }
    }

    /// With the streams that its query reads.
    pub(crate) fn reading(mut self, reads: Vec<String>) -> Elsewhere {
        self.reads = reads;
        self
    }

    /// The handler's name.
    pub(crate) fn handler(&self) -> &str {
        &self.handler
    }

    /// The handler's gauges.
    #[inline]
    pub(crate) fn gauges(&self) -> &Arc<NodeGauges> {
        &self.gauges
    }

    /// The streams that a query with state reads; none of another.
    pub(crate) fn reads(&self) -> &[String] {
        &self.reads
    }
}

impl std::fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Elsewhere").field(&self.handler).finish()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        (self.end)(std::mem::take(&mut self.handler));
    }
}
