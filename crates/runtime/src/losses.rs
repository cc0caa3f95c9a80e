//! Records that did not reach a subscriber, by cause: counted at their context, reported to the subscriber, and as events.

use crate::context::Context;
use crate::counters::DropReason;
use crate::graph::gauges::Loss;
use crate::managers::request::{ControlRequest, EventKind};
use crate::subscriptions::Subscription;
use crossdock_engine::RowError;
use crossdock_transport::Notice;
use crossdock_transport::control::{DropCause, Overflow};

/// How often a subscriber is notified of dropped records at most, in ns; the end of a stream is always preceded by a report.
const REPORT_INTERVAL_NS: u64 = 100_000_000;
/// How often there is an event of the records that a subscription lost at most, in ns.
const EVENT_INTERVAL_NS: u64 = 10_000_000_000;

/// What the gauges of a node count.
enum Counted {
    Loss(Loss),
    RowError(RowError),
}

/// What the gauges of a node count, the cause that the subscriber is told, and the context's counter of it, where no other
/// place has counted it already: the sessions' sinks do, and conversions, which count once for all that take them.
const CAUSES: [(Counted, DropCause, Option<DropReason>); 17] = [
    (Counted::Loss(Loss::QueueFull), DropCause::QueueFull, Some(DropReason::QueueFull)),
    (Counted::Loss(Loss::NoBuffer), DropCause::NoBuffer, None),
    (Counted::Loss(Loss::TooLong), DropCause::TooLong, None),
    (Counted::Loss(Loss::Unreadable), DropCause::Unreadable, Some(DropReason::Unreadable)),
    (Counted::Loss(Loss::NotConvertible), DropCause::NotConvertible, None),
    (Counted::Loss(Loss::HoldFull), DropCause::HoldFull, Some(DropReason::HoldFull)),
    (Counted::Loss(Loss::HoldExpired), DropCause::HoldExpired, Some(DropReason::HoldExpired)),
    (Counted::Loss(Loss::Failed), DropCause::QueryFailed, Some(DropReason::QueryFailed)),
    (Counted::Loss(Loss::Sampled), DropCause::Other, None),
    (Counted::Loss(Loss::Removed), DropCause::Other, None),
    (Counted::Loss(Loss::Unclaimed), DropCause::Other, None),
    (Counted::RowError(RowError::DivisionByZero), DropCause::DivisionByZero, Some(DropReason::RowError)),
    (Counted::RowError(RowError::OutOfRange), DropCause::OutOfRange, Some(DropReason::RowError)),
    (Counted::RowError(RowError::NotAValue), DropCause::NotAValue, Some(DropReason::RowError)),
    (Counted::RowError(RowError::BadPattern), DropCause::BadPattern, Some(DropReason::RowError)),
    (Counted::RowError(RowError::TooLong), DropCause::RowTooLong, Some(DropReason::RowError)),
    (Counted::RowError(RowError::Other), DropCause::Other, Some(DropReason::RowError)),
];

/// Lost records, a number for each of [`CAUSES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses([u64; CAUSES.len()]);

impl Losses {
    /// Those of a subscription: what its node has had, and the row errors of its query where a handler runs that.
    pub(crate) fn of(subscription: &Subscription) -> Losses {
        let (own, elsewhere) = (&subscription.gauges, subscription.elsewhere.as_deref());
        Losses(std::array::from_fn(|at| match CAUSES[at].0 {
            Counted::Loss(loss) => own.lost(loss),
            Counted::RowError(error) => {
                own.row_errors_of(error) + elsewhere.map_or(0, |gauges| gauges.row_errors_of(error))
            }
        }))
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
    fn by_cause(&self) -> Vec<(DropCause, u64)> {
        let mut found: Vec<(DropCause, u64)> = Vec::new();
        for ((_, cause, _), records) in CAUSES.iter().zip(self.0).filter(|(_, records)| *records > 0) {
            match found.iter_mut().find(|(known, _)| known == cause) {
                Some((_, sum)) => *sum += records,
                None => found.push((*cause, records)),
            }
        }
        found
    }

    /// What is new since `self`, which is brought up to date.
    fn take_new(&mut self, now: &Losses) -> Losses {
        let before = std::mem::replace(self, *now);
        Losses(std::array::from_fn(|at| now.0[at].saturating_sub(before.0[at])))
    }
}

/// How far the losses of a subscription are known.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// As the context has counted them, and their sum.
    counted: Losses,
    pub(crate) sum: u64,
    /// As the subscriber was told, and when.
    reported: Losses,
    reported_sum: u64,
    reported_ns: u64,
    /// As the last event said, and when that was.
    noted: Losses,
    noted_ns: Option<u64>,
    /// Whether it is in the list of those that are to be looked at again.
    pub(crate) is_listed: bool,
}

impl Known {
    /// Whether the subscriber, or those who read events, are to be told more.
    fn is_untold(&self) -> bool {
        self.reported_sum != self.sum || self.noted != self.counted
    }
}

impl Context {
    /// Counts what a subscription has lost since the last time. Whether its queue was full, and it is to be disconnected.
    #[inline]
    pub(crate) fn note_losses(&mut self, key: usize) -> bool {
        // It may have been disconnected for its queue.
        let Some(subscription) = self.subscriptions.get_mut(key) else { return false };
        let sum = subscription.gauges.lost_in_all() + subscription.row_errors();
        if sum == subscription.losses.sum {
            return false;
        }
        subscription.losses.sum = sum;
        self.count_losses(key)
    }

    #[cold]
    fn count_losses(&mut self, key: usize) -> bool {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return false };
        let now = Losses::of(subscription);
        let new = subscription.losses.counted.take_new(&now);
        let overflow = subscription.overflow;
        self.subscriptions.look_again(key, self.net.now_ns() + REPORT_INTERVAL_NS);
        let mut was_full = false;
        for ((_, cause, reason), records) in CAUSES.iter().zip(new.0) {
            reason.iter().for_each(|reason| self.net.count_drop(*reason, records));
            was_full |= *cause == DropCause::QueueFull && records > 0;
        }
        was_full && overflow == Overflow::Disconnect
    }

    /// Notifies a subscriber of the records that were dropped since it was last told, a notice for each cause; unless it is to be
    /// `now`, not more often than it takes such reports.
    pub(crate) fn report_dropped(&mut self, key: usize, now: bool) {
        // It may have been disconnected for its queue.
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let known = &mut subscription.losses;
        if known.reported_sum == known.sum {
            return;
        }
        // A subscriber that has not yet taken the last report gets the sum later, at the latest with the stream's end.
        let (peer, number, now_ns) = (subscription.peer, subscription.number, self.net.now_ns());
        let is_early = known.reported_sum > 0 && now_ns < known.reported_ns + REPORT_INTERVAL_NS;
        if !now && (is_early || self.net.has_untaken_control(peer, self.host.interface())) {
            return;
        }
        (known.reported_ns, known.reported_sum) = (now_ns, known.sum);
        let new = known.reported.take_new(&known.counted);
        let notices: Vec<Notice> = new
            .by_cause()
            .into_iter()
            .map(|(cause, records)| {
                let reason = reason(subscription, cause, records);
                Notice::Dropped { subscription: number, records, cause, reason }
            })
            .collect();
        notices.into_iter().for_each(|notice| self.send_control(peer, &notice.into()));
    }

    /// Tells what could not be told before of the subscriptions that have lost something, and looks at those whose query runs
    /// elsewhere.
    pub(crate) fn tick_losses(&mut self) {
        let now_ns = self.net.now_ns();
        if now_ns < self.subscriptions.looks_again_ns() {
            return;
        }
        for key in self.subscriptions.take_listed() {
            if self.note_losses(key) {
                self.disconnect_behind(key);
                continue;
            }
            self.report_dropped(key, false);
            self.tell_losses(key, false);
            let Some(subscription) = self.subscriptions.get(key) else { continue };
            if subscription.losses.is_untold() || subscription.elsewhere.is_some() {
                self.subscriptions.look_again(key, now_ns + REPORT_INTERVAL_NS);
            }
        }
    }

    /// Has the managers note an event of what a subscription lost since the last such event; unless it `ends`, not too often.
    pub(crate) fn tell_losses(&mut self, key: usize, ends: bool) {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let now_ns = self.net.now_ns();
        let known = &mut subscription.losses;
        let is_early = known.noted_ns.is_some_and(|at| now_ns < at + EVENT_INTERVAL_NS);
        if known.noted == known.counted || (is_early && !ends) {
            return;
        }
        known.noted_ns = Some(now_ns);
        let new = known.noted.take_new(&known.counted);
        let reasons: Vec<String> = new
            .by_cause()
            .into_iter()
            .map(|(cause, records)| format!("{records} because {}", reason(subscription, cause, records)))
            .collect();
        let peer = self.net.peer(subscription.peer).map(ToString::to_string).unwrap_or_default();
        let text = format!(
            "subscription {} of {peer} to `{}` did not get {} records: {}",
            subscription.id,
            subscription.select.stream(),
            new.sum(),
            reasons.join("; ")
        );
        // The managers may have ended before.
        let _ = self.to_managers.send(ControlRequest::Event(EventKind::Dropped, self.graph.index(), text));
    }
}

/// A cause in words, with what is known of these records.
fn reason(subscription: &Subscription, cause: DropCause, records: u64) -> String {
    let first = subscription.first_row_error().filter(|_| cause.is_row_error());
    match (cause, first) {
        (DropCause::QueueFull, _) => {
            format!("{cause}, and its policy is {}", crate::explain::overflow_name(subscription.overflow))
        }
        (DropCause::NotConvertible, _) => format!("{cause} (`crossdock paths` shows which)"),
        (_, Some(first)) => match first.strip_prefix(&cause.to_string()) {
            Some(place) if records == 1 => format!("{cause}{place}"),
            Some(place) => format!("{cause}, first{place}"),
            None if cause == DropCause::NotAValue && first.starts_with("a text does not say") => first.to_owned(),
            None => cause.to_string(),
        },
        _ => cause.to_string(),
    }
}
