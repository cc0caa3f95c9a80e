//! Accounts of the records that came for subscriptions.

use crate::graph::gauges::Loss;
use crate::losses::Losses;
use crate::subscriptions::Subscription;

/// The account of the records that came for a subscription. Between two batches, `published` and `rows_made` are the sum of all
/// others, but for `losses`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// Records of the streams that its query reads.
    pub(crate) published: u64,
    /// Rows that the state of its query gave for it.
    pub(crate) rows_made: u64,
    /// Records that were sent to it, or wait in its session's queue.
    pub(crate) delivered: u64,
    pub(crate) filtered: u64,
    /// Records that its query has taken into state.
    pub(crate) taken: u64,
    pub(crate) conflated: u64,
    pub(crate) sampled: u64,
    pub(crate) row_errors: u64,
    /// Records that it lost for any other reason.
    pub(crate) dropped: u64,
    /// Records that its node has, or the handler that keeps the state of its query.
    pub(crate) in_flight: u64,
    /// Row errors and lost records by cause, conflated and sampled ones included.
    pub(crate) losses: Losses,
}

impl Ledger {
    /// That of a subscription whose node has `in_flight` records. Where handlers run its query, what became of records there is taken
    /// from them, at one moment; the rest of it is about the rows that they make.
    pub(crate) fn of(subscription: &Subscription, in_flight: u64) -> Ledger {
        let (gauges, handler) = (subscription.gauges(), subscription.handler_account());
        let conflated = gauges.lost(Loss::Conflated);
        let sampled = gauges.lost(Loss::Sampled) + handler.losses.sampled();
        let row_errors = handler.losses.row_errors();
        let lost = gauges.lost_in_all() + handler.losses.sum();
        let mut losses = Losses::of(gauges);
        losses.add(&handler.losses);
        let (came, made) = (handler.came(), gauges.published.get() + handler.lost_rows);
        let (published, rows_made) = if handler.makes_rows { (came, made) } else { (came + made, 0) };
        Ledger {
            published,
            rows_made,
            delivered: subscription.records_sent(),
            filtered: gauges.filtered.get() + handler.filtered,
            taken: handler.taken,
            conflated,
            sampled,
            row_errors: gauges.row_errors.get() + row_errors,
            dropped: lost.saturating_sub(conflated + sampled + row_errors),
            in_flight: in_flight + handler.in_work,
            losses,
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
    pub(crate) rows_made: u64,
    pub(crate) filtered: u64,
    pub(crate) taken: u64,
    pub(crate) conflated: u64,
    pub(crate) sampled: u64,
    pub(crate) dropped: u64,
    /// Of the subscriptions that are there.
    pub(crate) in_flight: u64,
}

impl Served {
    /// With those of a subscription whose node has `in_flight` records.
    pub(crate) fn add(&mut self, subscription: &Subscription, in_flight: u64) {
        let ledger = Ledger::of(subscription, in_flight);
        let (gauges, records_out) = (subscription.gauges(), subscription.gauges().records_out.get());
        self.published += ledger.published;
        self.rows_made += ledger.rows_made;
        self.filtered += ledger.filtered;
        self.taken += ledger.taken;
        self.conflated += ledger.conflated;
        self.sampled += ledger.sampled;
        self.dropped += ledger.dropped;
        self.in_flight += ledger.in_flight;
        self.records_in += gauges.records_in.get();
        self.records_out += records_out;
        self.records_unsent += records_out.saturating_sub(ledger.delivered);
        self.row_errors += ledger.row_errors;
    }

    /// With those of a subscription that ends: what is in flight to it counts as published only.
    pub(crate) fn add_ended(&mut self, subscription: &Subscription) {
        self.add(subscription, 0);
        self.in_flight = 0;
    }
}
