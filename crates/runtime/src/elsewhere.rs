//! Handlers that run the queries of subscriptions, as their subscriptions know them.

use crate::graph::gauges::NodeGauges;
use crate::losses::Losses;
use std::sync::Arc;

/// The work of a handler for a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerWork {
    /// Its query, which keeps no state: a record is a row, or none.
    Select,
    /// Its query, which takes records into state and makes rows of that.
    Stateful,
    /// The state of the stream that its query reads.
    State,
}

/// The gauges of the handlers that work for a subscription: of the one whose stream it takes, then of the reductions in front of that.
#[derive(Clone, Debug)]
pub(crate) struct HandlerGauges {
    pub(crate) work: HandlerWork,
    pub(crate) own: Arc<NodeGauges>,
    pub(crate) reductions: Vec<Arc<NodeGauges>>,
}

/// The account of the records that came to the handlers of a subscription's query and became none of the rows that come for the
/// subscription.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandlerAccount {
    pub(crate) filtered: u64,
    pub(crate) taken: u64,
    /// Records that the handler works on.
    pub(crate) in_work: u64,
    /// Row errors and lost records, and the rows that were lost on their way to the subscription.
    pub(crate) losses: Losses,
    /// Whether the rows for the subscription are made of state, rather than of one record each.
    pub(crate) makes_rows: bool,
}

impl HandlerAccount {
    /// Records of the streams that the query reads.
    pub(crate) fn came(&self) -> u64 {
        self.filtered + self.taken + self.in_work + self.losses.sum() - self.losses.of_made()
    }

    /// All that the handlers have counted since they were made.
    fn of(HandlerGauges { work, own, reductions }: &HandlerGauges) -> HandlerAccount {
        let mut account = HandlerAccount { losses: Losses::of_handler(own), ..HandlerAccount::default() };
        // The records of a state are the subscription's own: each comes for it.
        if *work != HandlerWork::State {
            (account.filtered, account.taken) = (own.filtered.get(), own.taken.get());
        }
        if *work == HandlerWork::Stateful {
            account.makes_rows = true;
            let gone = account.filtered + account.taken + account.losses.of_begun();
            // Read last: a record is counted here before it is counted as gone.
            account.in_work = own.records_in.get().saturating_sub(gone);
        }
        for reduction in reductions {
            account.losses.add(&Losses::of_handler(reduction));
            account.filtered += reduction.filtered.get();
        }
        account
    }

    fn since(mut self, before: &HandlerAccount) -> HandlerAccount {
        self.filtered = self.filtered.saturating_sub(before.filtered);
        self.taken = self.taken.saturating_sub(before.taken);
        self.losses = self.losses.since(&before.losses);
        self
    }
}

/// One use of a handler that runs a subscription's query. Its end is reported to the managers, who remove the handler with the last.
pub(crate) struct Elsewhere {
    handler: String,
    /// The gauges of its handlers, and their counts when the subscription began: others may have had them before. Apart, since nodes
    /// have room for a use.
    counts: Box<(HandlerGauges, HandlerAccount)>,
    /// The streams that a query with state reads; the subscription takes that of the handler.
    reads: Vec<String>,
    end: Box<dyn Fn(String) + Send>,
}

impl Elsewhere {
    /// A use of this handler; `end` is called with its name at the end of the use.
    pub(crate) fn new(handler: String, gauges: HandlerGauges, end: impl Fn(String) + Send + 'static) -> Elsewhere {
        let counts = Box::new((gauges, HandlerAccount::default()));
        Elsewhere { handler, counts, reads: Vec::new(), end: Box::new(end) }
    }

    /// With the streams that its query reads.
    pub(crate) fn reading(mut self, reads: Vec<String>) -> Elsewhere {
        self.reads = reads;
        self
    }

    /// Its subscription begins.
    pub(crate) fn begin(&mut self) {
        self.counts.1 = HandlerAccount::of(&self.counts.0);
    }

    /// It is the next use of the same handler by the same subscription.
    pub(crate) fn follow(&mut self, former: &Elsewhere) {
        self.counts.1 = former.counts.1;
    }

    /// The handler's name.
    pub(crate) fn handler(&self) -> &str {
        &self.handler
    }

    /// The account of its records since the subscription began.
    pub(crate) fn account(&self) -> HandlerAccount {
        let (gauges, before) = &*self.counts;
        HandlerAccount::of(gauges).since(before)
    }

    /// The first row error of the query, in words.
    pub(crate) fn first_row_error(&self) -> Option<&str> {
        let HandlerGauges { own, reductions, .. } = &self.counts.0;
        reductions.iter().chain([own]).find_map(|gauges| gauges.first_row_error())
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
