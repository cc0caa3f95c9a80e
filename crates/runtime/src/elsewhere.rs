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

impl HandlerGauges {
    fn all(&self) -> impl Iterator<Item = &Arc<NodeGauges>> {
        self.reductions.iter().chain([&self.own])
    }

    /// The sum of what they have lost, without the causes.
    fn lost(&self) -> u64 {
        self.all().map(|gauges| gauges.lost_at_handler()).sum()
    }
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
    /// The rows among them: all else are records of the streams.
    pub(crate) lost_rows: u64,
    /// Whether the rows for the subscription are made of state, rather than of one record each.
    pub(crate) makes_rows: bool,
}

impl HandlerAccount {
    /// Records of the streams that the query reads.
    pub(crate) fn came(&self) -> u64 {
        self.filtered + self.taken + self.in_work + self.losses.sum() - self.lost_rows
    }

    /// All that the handlers have counted since they were made.
    fn of(HandlerGauges { work, own, reductions }: &HandlerGauges) -> HandlerAccount {
        let losses = Losses::of_handler(own);
        // A reduction's rows are records of a stream still.
        let mut account = HandlerAccount { losses, lost_rows: losses.of_made(), ..HandlerAccount::default() };
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
        self.lost_rows = self.lost_rows.saturating_sub(before.lost_rows);
        self
    }
}

/// The gauges of the handlers of a use, and their counts when the subscription began: others may have had them before.
struct CountsOfUse {
    gauges: HandlerGauges,
    before: HandlerAccount,
    lost_before: u64,
}

/// One use of a handler that runs a subscription's query. Its end is reported to the managers, who remove the handler with the last.
pub(crate) struct Elsewhere {
    handler: String,
    /// Apart, since nodes have room for a use.
    counts: Box<CountsOfUse>,
    /// The streams that a query with state reads; the subscription takes that of the handler.
    reads: Vec<String>,
    end: Box<dyn Fn(String) + Send>,
}

impl Elsewhere {
    /// A use of this handler; `end` is called with its name at the end of the use.
    pub(crate) fn new(handler: String, gauges: HandlerGauges, end: impl Fn(String) + Send + 'static) -> Elsewhere {
        let counts = CountsOfUse { gauges, before: HandlerAccount::default(), lost_before: 0 };
        Elsewhere { handler, counts: Box::new(counts), reads: Vec::new(), end: Box::new(end) }
    }

    /// With the streams that its query reads.
    pub(crate) fn reading(mut self, reads: Vec<String>) -> Elsewhere {
        self.reads = reads;
        self
    }

    /// Its subscription begins.
    pub(crate) fn begin(&mut self) {
        let CountsOfUse { gauges, before, lost_before } = &mut *self.counts;
        (*before, *lost_before) = (HandlerAccount::of(gauges), gauges.lost());
    }

    /// It is the next use of the same handler by the same subscription.
    pub(crate) fn follow(&mut self, former: &Elsewhere) {
        (self.counts.before, self.counts.lost_before) = (former.counts.before, former.counts.lost_before);
    }

    /// The handler's name.
    pub(crate) fn handler(&self) -> &str {
        &self.handler
    }

    /// The account of its records since the subscription began.
    pub(crate) fn account(&self) -> HandlerAccount {
        HandlerAccount::of(&self.counts.gauges).since(&self.counts.before)
    }

    /// The sum of the account's losses, which is looked at with each batch.
    #[inline]
    pub(crate) fn lost(&self) -> u64 {
        self.counts.gauges.lost().saturating_sub(self.counts.lost_before)
    }

    /// The first row error of the query, in words.
    pub(crate) fn first_row_error(&self) -> Option<&str> {
        self.counts.gauges.all().find_map(|gauges| gauges.first_row_error())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::gauges::Loss;
    use fastrand::Rng;

    const LOSSES: [Loss; 7] = [
        Loss::Unreadable,
        Loss::QueueFull,
        Loss::Failed,
        Loss::NoBuffer,
        Loss::TooLong,
        Loss::Removed,
        Loss::Unclaimed,
    ];

    fn lose(gauges: &NodeGauges, rng: &mut Rng) {
        LOSSES.into_iter().for_each(|why| gauges.lose(why, rng.u64(0..100)));
    }

    #[test]
    fn the_sum_of_losses_is_that_of_the_account() {
        let mut rng = Rng::with_seed(5);
        for reductions in [0, 2] {
            let (own, reductions) = (Arc::default(), (0..reductions).map(|_| Arc::default()).collect());
            let gauges = HandlerGauges { work: HandlerWork::Stateful, own, reductions };
            // Those from before its subscription are none of its own.
            gauges.all().for_each(|gauges| lose(gauges, &mut rng));
            let mut elsewhere = Elsewhere::new("subscription-1".to_owned(), gauges.clone(), drop);
            elsewhere.begin();
            assert_eq!((elsewhere.lost(), elsewhere.account().losses.sum()), (0, 0));
            for _ in 0..9 {
                gauges.all().for_each(|gauges| lose(gauges, &mut rng));
                assert!(elsewhere.lost() > 0 && elsewhere.lost() == elsewhere.account().losses.sum());
            }
        }
    }

    #[test]
    fn records_that_a_reduction_lost_have_come_and_rows_of_the_state_have_not() {
        let (own, reduction): (Arc<NodeGauges>, Arc<NodeGauges>) = Default::default();
        let reductions = vec![Arc::clone(&reduction)];
        let gauges = HandlerGauges { work: HandlerWork::Stateful, own: Arc::clone(&own), reductions };
        let mut elsewhere = Elsewhere::new("subscription-1".to_owned(), gauges, drop);
        elsewhere.begin();
        // Of 100 records 40 are filtered, and 7 make no record that the state could take.
        reduction.records_in.add(100);
        reduction.filtered.add(40);
        reduction.lose(Loss::TooLong, 5);
        reduction.lose(Loss::NoBuffer, 2);
        own.records_in.add(53);
        own.taken.add(50);
        // Rows of the state.
        own.lose(Loss::TooLong, 11);
        let account = elsewhere.account();
        assert_eq!((account.came(), account.filtered, account.taken, account.in_work), (100, 40, 50, 3));
        assert_eq!((account.losses.sum(), account.lost_rows), (18, 11));
    }
}
