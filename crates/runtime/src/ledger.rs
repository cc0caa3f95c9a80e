//! Accounts of the records that came for subscriptions.

use crate::graph::gauges::Loss;
use crate::subscriptions::Subscription;

/// The account of the records that came for a subscription. Between two batches, `published` is the sum of all others and of
/// its row errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) published: u64,
    /// Records that were sent to it, or wait in its session's queue.
    pub(crate) delivered: u64,
    pub(crate) filtered: u64,
    pub(crate) conflated: u64,
    pub(crate) sampled: u64,
    /// Records that it lost for any other reason.
    pub(crate) dropped: u64,
    /// Records that its node has.
    pub(crate) in_flight: u64,
}

impl Ledger {
    /// That of a subscription whose node has `in_flight` records. Where a handler runs its query, its records are those that the
    /// handler makes, and its row errors.
    pub(crate) fn of(subscription: &Subscription, in_flight: u64) -> Ledger {
        let gauges = subscription.gauges();
        let (conflated, sampled) = (gauges.lost(Loss::Conflated), gauges.lost(Loss::Sampled));
        Ledger {
            published: gauges.published.get() + subscription.row_errors_elsewhere(),
            delivered: subscription.records_sent(),
            filtered: gauges.filtered.get(),
            conflated,
            sampled,
            dropped: gauges.lost_in_all().saturating_sub(conflated + sampled),
            in_flight,
        }
    }
}

/// The counts of subscriptions on a stream's records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    pub(crate) records_in: u64,
    /// Records that joined the queues.
    pub(crate) records_out: u64,
    /// Those of them that were dropped from the queues.
    pub(crate) records_unsent: u64,
    pub(crate) row_errors: u64,
    pub(crate) published: u64,
    pub(crate) filtered: u64,
    pub(crate) conflated: u64,
    pub(crate) sampled: u64,
    pub(crate) dropped: u64,
}

impl Served {
    pub(crate) fn add(&mut self, subscription: &Subscription) {
        let Ledger { published, delivered, filtered, conflated, sampled, dropped, .. } = Ledger::of(subscription, 0);
        let (gauges, records_out) = (subscription.gauges(), subscription.gauges().records_out.get());
        self.published += published;
        self.filtered += filtered;
        self.conflated += conflated;
        self.sampled += sampled;
        self.dropped += dropped;
        self.records_in += gauges.records_in.get();
        self.records_out += records_out;
        self.records_unsent += records_out.saturating_sub(delivered);
        self.row_errors += subscription.row_errors();
    }
}
