//! Records that did not reach a subscriber, by cause.

use crate::counters::DropReason;
use crate::graph::gauges::{Loss, NodeGauges};
use crossdock_engine::{RowError, RowErrorCounts};
use crossdock_transport::control::DropCause;

/// The counts of a node's gauges.
pub(crate) enum Counted {
    Loss(Loss),
    RowError(RowError),
    /// A loss of a handler that works for the node's query.
    AtHandler(Loss),
    /// An error of an expression in a conversion before the node.
    Conversion(RowError),
}

/// The counts of a node's gauges, the cause that is reported to the subscriber, and the context's counter of it, where
/// no other place has counted it already: the sessions' sinks do, and conversions, which count once for all that take them.
pub(crate) const CAUSES: [(Counted, DropCause, Option<DropReason>); 26] = [
    (Counted::Loss(Loss::QueueFull), DropCause::QueueFull, Some(DropReason::QueueFull)),
    (Counted::AtHandler(Loss::QueueFull), DropCause::HandlerFull, None),
    (Counted::Loss(Loss::NoBuffer), DropCause::NoBuffer, None),
    (Counted::Loss(Loss::TooLong), DropCause::TooLong, None),
    (Counted::Loss(Loss::Unreadable), DropCause::Unreadable, Some(DropReason::Unreadable)),
    (Counted::Loss(Loss::NotConvertible), DropCause::NotConvertible, None),
    (Counted::Loss(Loss::HoldFull), DropCause::HoldFull, Some(DropReason::HoldFull)),
    (Counted::Loss(Loss::HoldExpired), DropCause::HoldExpired, Some(DropReason::HoldExpired)),
    (Counted::Loss(Loss::Failed), DropCause::QueryFailed, Some(DropReason::QueryFailed)),
    (Counted::Loss(Loss::Sampled), DropCause::Sampled, None),
    (Counted::Loss(Loss::Conflated), DropCause::Conflated, None),
    (Counted::Loss(Loss::NotKept), DropCause::NotKept, None),
    (Counted::Loss(Loss::OverRate), DropCause::OverRate, None),
    (Counted::Loss(Loss::Removed), DropCause::Other, None),
    (Counted::Loss(Loss::Unclaimed), DropCause::Other, None),
    (Counted::RowError(RowError::DivisionByZero), DropCause::DivisionByZero, Some(DropReason::RowError)),
    (Counted::RowError(RowError::OutOfRange), DropCause::OutOfRange, Some(DropReason::RowError)),
    (Counted::RowError(RowError::NotAValue), DropCause::NotAValue, Some(DropReason::RowError)),
    (Counted::RowError(RowError::BadPattern), DropCause::BadPattern, Some(DropReason::RowError)),
    (Counted::RowError(RowError::TooLong), DropCause::RowTooLong, Some(DropReason::RowError)),
    (Counted::RowError(RowError::Other), DropCause::Other, Some(DropReason::RowError)),
    (Counted::Conversion(RowError::DivisionByZero), DropCause::DivisionByZero, None),
    (Counted::Conversion(RowError::OutOfRange), DropCause::OutOfRange, None),
    (Counted::Conversion(RowError::NotAValue), DropCause::NotAValue, None),
    (Counted::Conversion(RowError::BadPattern), DropCause::BadPattern, None),
    (Counted::Conversion(RowError::TooLong), DropCause::RowTooLong, None),
];

/// Lost records, a number for each of [`CAUSES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses(pub(crate) [u64; CAUSES.len()]);

impl Losses {
    /// Those of a subscription's node.
    pub(crate) fn of(own: &NodeGauges) -> Losses {
        let in_conversions: u64 = RowError::ALL.into_iter().map(|error| own.conversion_errors_of(error)).sum();
        Losses(std::array::from_fn(|at| match CAUSES[at].0 {
            Counted::Loss(loss @ Loss::NotConvertible) => own.lost(loss).saturating_sub(in_conversions),
            Counted::Loss(loss) => own.lost(loss),
            Counted::Conversion(error) => own.conversion_errors_of(error),
            Counted::RowError(error) => own.row_errors_of(error),
            Counted::AtHandler(_) => 0,
        }))
    }

    /// Those of a handler that works for a subscription's query. Rows of it are unclaimed only while no subscription takes them; its full
    /// queue is not the subscriber's.
    pub(crate) fn of_handler(gauges: &NodeGauges) -> Losses {
        Losses(std::array::from_fn(|at| match CAUSES[at].0 {
            Counted::Loss(Loss::Unclaimed | Loss::QueueFull) | Counted::Conversion(_) => 0,
            Counted::Loss(loss) | Counted::AtHandler(loss) => gauges.lost(loss),
            Counted::RowError(error) => gauges.row_errors_of(error),
        }))
    }

    /// Those of a handler's row errors.
    pub(crate) fn of_row_errors(counts: &RowErrorCounts) -> Losses {
        Losses(std::array::from_fn(|at| match CAUSES[at].0 {
            Counted::RowError(error) => counts[error as usize],
            Counted::Loss(_) | Counted::AtHandler(_) | Counted::Conversion(_) => 0,
        }))
    }

    /// With others.
    pub(crate) fn add(&mut self, others: &Losses) {
        self.0.iter_mut().zip(others.0).for_each(|(records, more)| *records += more);
    }

    /// Those that are counted in such a way.
    fn counted(&self, is_one: impl Fn(&Counted) -> bool) -> u64 {
        CAUSES.iter().zip(self.0).filter(|((counted, ..), _)| is_one(counted)).map(|(_, records)| records).sum()
    }

    /// Records lost for any row error of the query.
    pub(crate) fn row_errors(&self) -> u64 {
        self.counted(|counted| matches!(counted, Counted::RowError(_)))
    }

    /// Records that were sampled.
    pub(crate) fn sampled(&self) -> u64 {
        self.counted(|counted| matches!(counted, Counted::Loss(Loss::Sampled)))
    }

    /// Of a handler, the records that it had begun with.
    pub(crate) fn of_begun(&self) -> u64 {
        let is_one = |counted: &Counted| match counted {
            Counted::Loss(loss) => matches!(loss, Loss::Unreadable | Loss::Failed | Loss::Sampled),
            Counted::RowError(_) => true,
            Counted::AtHandler(_) | Counted::Conversion(_) => false,
        };
        self.counted(is_one)
    }

    /// Of a handler, the rows that it made and that were lost then.
    pub(crate) fn of_made(&self) -> u64 {
        self.counted(|counted| matches!(counted, Counted::Loss(Loss::NoBuffer | Loss::TooLong)))
    }

    /// Records lost for any cause.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those that occurred, by their words.
    pub(crate) fn by_words(&self) -> Vec<(String, u64)> {
        self.by_cause().into_iter().map(|(cause, records)| (cause.word().to_owned(), records)).collect()
    }

    /// Those that occurred, each cause once.
    pub(crate) fn by_cause(&self) -> Vec<(DropCause, u64)> {
        let mut found: Vec<(DropCause, u64)> = Vec::new();
        for ((_, cause, _), records) in CAUSES.iter().zip(self.0).filter(|(_, records)| *records > 0) {
            match found.iter_mut().find(|(known, _)| known == cause) {
                Some((_, sum)) => *sum += records,
                None => found.push((*cause, records)),
            }
        }
        found
    }

    /// Those that the subscription's query does not say itself.
    #[must_use]
    pub(crate) fn unasked(&self) -> Losses {
        Losses(std::array::from_fn(|at| if CAUSES[at].1.is_asked_for() { 0 } else { self.0[at] }))
    }

    /// Those in whose place it did not get other records: without conflated and sampled ones.
    #[must_use]
    pub(crate) fn unreduced(&self) -> Losses {
        let is_reduced = |cause| matches!(cause, DropCause::Conflated | DropCause::Sampled);
        Losses(std::array::from_fn(|at| if is_reduced(CAUSES[at].1) { 0 } else { self.0[at] }))
    }

    /// The losses that are new since `self`, which is brought up to date.
    pub(crate) fn take_new(&mut self, now: &Losses) -> Losses {
        now.since(&std::mem::replace(self, *now))
    }

    /// The losses that are new since `before`.
    #[must_use]
    pub(crate) fn since(&self, before: &Losses) -> Losses {
        Losses(std::array::from_fn(|at| self.0[at].saturating_sub(before.0[at])))
    }
}

/// A cause in words, with the first of `records` row errors as a handler reports it, and where that was if it was not in the query or
/// handler itself. `None` if the first error had another cause.
pub(crate) fn with_example(cause: DropCause, records: u64, first: &str, place: &str) -> Option<String> {
    let Some(example) = first.strip_prefix(&cause.to_string()) else {
        let is_reported = cause == DropCause::NotAValue && first.starts_with("a text does not say");
        return is_reported.then(|| format!("{first}{place}"));
    };
    Some(match (records, place.is_empty()) {
        (1, true) => format!("{cause}{example}"),
        (1, false) => format!("{cause}{place},{example}"),
        _ => format!("{cause}{place}, first{example}"),
    })
}

/// How far the losses of a subscription are known.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Those of its own node, as the context has counted them.
    own: Losses,
    /// All, as the context knows them, and their sum.
    counted: Losses,
    sum: u64,
    /// As was reported to the subscriber, and when.
    reported: Losses,
    reported_sum: u64,
    reported_ns: u64,
    /// As the last event said, and when that was.
    noted: Losses,
    noted_ns: Option<u64>,
    /// Whether it is in the list of those that are to be looked at again.
    is_listed: bool,
}

impl Known {
    /// Whether the subscriber, or those who read events, are to be notified of more.
    pub(crate) fn is_unreported(&self) -> bool {
        self.lacks_report() || self.noted != self.counted
    }

    /// Whether the subscriber is to be notified of more.
    #[inline]
    pub(crate) fn lacks_report(&self) -> bool {
        self.reported_sum != self.sum
    }

    /// Takes note of the sum of all losses; whether it has changed.
    #[inline]
    pub(crate) fn has_grown(&mut self, sum: u64) -> bool {
        std::mem::replace(&mut self.sum, sum) != sum
    }

    /// Of the losses at its `own` node those that the context has not counted yet; it takes note of `all`.
    pub(crate) fn take_uncounted(&mut self, own: &Losses, all: &Losses) -> Losses {
        self.counted = *all;
        self.own.take_new(own)
    }

    /// When the subscriber may be notified again, in ns: `interval_ns` after the last time.
    pub(crate) fn report_due_ns(&self, interval_ns: u64) -> u64 {
        if self.reported_sum > 0 { self.reported_ns + interval_ns } else { 0 }
    }

    /// The losses that the subscriber has not been notified of yet; it is now.
    pub(crate) fn take_unreported(&mut self, now_ns: u64) -> Losses {
        (self.reported_ns, self.reported_sum) = (now_ns, self.sum);
        self.reported.take_new(&self.counted)
    }

    /// The losses that no event has said yet, if there is to be one now: `interval_ns` after the last, unless the
    /// subscription `ends`.
    pub(crate) fn take_unnoted(&mut self, now_ns: u64, interval_ns: u64, ends: bool) -> Option<Losses> {
        let is_early = self.noted_ns.is_some_and(|at| now_ns < at + interval_ns);
        if self.noted == self.counted || (is_early && !ends) {
            return None;
        }
        self.noted_ns = Some(now_ns);
        Some(self.noted.take_new(&self.counted))
    }

    /// It is in the list of those that are to be looked at again; whether it was not before.
    pub(crate) fn list(&mut self) -> bool {
        !std::mem::replace(&mut self.is_listed, true)
    }

    /// It is in the list no longer.
    pub(crate) fn unlist(&mut self) {
        self.is_listed = false;
    }
}
