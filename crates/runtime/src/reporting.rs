//! The losses of subscriptions are counted at their context, reported to the subscriber, and noted as events.

use crate::context::Context;
use crate::losses::{CAUSES, with_example};
use crate::managers::request::{ControlRequest, EventKind};
use crate::subscriptions::Subscription;
use crossdock_transport::Notice;
use crossdock_transport::control::DropCause;

/// How often a subscriber is notified of dropped records at most, in ns; the end of a stream is always preceded by a report.
const REPORT_INTERVAL_NS: u64 = 100_000_000;
/// How often there is an event of the records that a subscription lost at most, in ns.
const EVENT_INTERVAL_NS: u64 = 10_000_000_000;

impl Context {
    /// Counts what a subscription has lost since the last time. Whether its queue was full, and it is to be disconnected.
    #[inline]
    pub(crate) fn note_losses(&mut self, key: usize) -> bool {
        let Some(subscription) = self.subscriptions.present_mut(key) else { return false };
        subscription.has_lost() && self.count_losses(key)
    }

    #[cold]
    fn count_losses(&mut self, key: usize) -> bool {
        let Some(subscription) = self.subscriptions.present_mut(key) else { return false };
        let new = subscription.take_uncounted();
        let disconnects = subscription.is_disconnected_when_slow();
        self.subscriptions.look_again(key, self.net.now_ns() + REPORT_INTERVAL_NS);
        let mut was_full = false;
        for ((_, cause, reason), records) in CAUSES.iter().zip(new.0) {
            reason.iter().for_each(|reason| self.net.count_drop(*reason, records));
            was_full |= *cause == DropCause::QueueFull && records > 0;
        }
        was_full && disconnects
    }

    /// Notifies a subscriber of the records that were dropped since the last report, a notice for each cause; unless it is to be
    /// `now`, not more often than it takes such reports.
    pub(crate) fn report_dropped(&mut self, key: usize, now: bool) {
        let Some(subscription) = self.subscriptions.present_mut(key) else { return };
        if !subscription.losses().lacks_report() {
            return;
        }
        // A subscriber that has not yet taken the last report gets the sum later, at the latest with the stream's end.
        let (peer, number, now_ns) = (subscription.peer(), subscription.number(), self.net.now_ns());
        let is_early = now_ns < subscription.losses().report_due_ns(REPORT_INTERVAL_NS);
        if !now && (is_early || self.net.has_untaken_control(peer, self.host.interface())) {
            return;
        }
        let new = subscription.losses_mut().take_unreported(now_ns);
        let has_row_errors = new.by_cause().iter().any(|(cause, _)| cause.is_row_error());
        let notices: Vec<Notice> = new
            .by_cause()
            .into_iter()
            .map(|(cause, records)| {
                let reason = reason(subscription, cause, records);
                Notice::Dropped { subscription: number, records, cause, reason }
            })
            .collect();
        if has_row_errors {
            // Behind the rows that precede the error, for a subscriber that stops at it.
            self.flush_subscription(key);
        }
        notices.into_iter().for_each(|notice| self.send_control(peer, &notice.into()));
    }

    /// Reports what could not be reported before of the subscriptions that have lost something, and looks at those whose query runs
    /// elsewhere.
    pub(crate) fn tick_losses(&mut self) {
        let now_ns = self.net.now_ns();
        if now_ns < self.subscriptions.looks_again_ns() {
            return;
        }
        for key in self.subscriptions.take_listed() {
            // It may have ended since it was listed.
            if self.subscriptions.get(key).is_none() {
                continue;
            }
            if self.note_losses(key) {
                self.disconnect_behind(key);
                continue;
            }
            self.report_dropped(key, false);
            self.report_subscription_losses(key, false);
            let Some(subscription) = self.subscriptions.present(key) else { continue };
            if subscription.losses().is_unreported() || subscription.is_elsewhere() {
                self.subscriptions.look_again(key, now_ns + REPORT_INTERVAL_NS);
            }
        }
    }

    /// Has the managers note an event of what a subscription lost since the last such event; unless it `ends`, not too often.
    pub(crate) fn report_subscription_losses(&mut self, key: usize, ends: bool) {
        let Some(subscription) = self.subscriptions.present_mut(key) else { return };
        let now_ns = self.net.now_ns();
        let Some(new) = subscription.losses_mut().take_unnoted(now_ns, EVENT_INTERVAL_NS, ends) else { return };
        let new = new.unasked();
        if new.sum() == 0 {
            return;
        }
        // Whoever reads events may have no right to read the stream.
        let in_words = |cause: DropCause, records| match self.access.rules() {
            Some(_) => cause.to_string(),
            None => reason(subscription, cause, records),
        };
        let reasons: Vec<String> = new
            .by_cause()
            .into_iter()
            .map(|(cause, records)| format!("{records} because {}", in_words(cause, records)))
            .collect();
        let peer = self.net.peer(subscription.peer()).map(ToString::to_string).unwrap_or_default();
        let text = format!(
            "subscription {} of {peer} to `{}` did not get {} {}: {}",
            subscription.id(),
            subscription.select().stream(),
            new.sum(),
            if new.sum() == 1 { "record" } else { "records" },
            reasons.join("; ")
        );
        // The managers may have ended before.
        let _ = self.to_managers.send(ControlRequest::Event(EventKind::Dropped, self.graph.index(), text));
    }
}

/// A cause in words, with what is known of these records.
fn reason(subscription: &Subscription, cause: DropCause, records: u64) -> String {
    let first = subscription.first_row_error().map(|first| (first, ""));
    let in_conversion = subscription.gauges().first_conversion_error().map(|first| (first, " in a conversion"));
    let known = first.into_iter().chain(in_conversion).filter(|_| cause.is_row_error());
    let example = known.filter_map(|(first, place)| with_example(cause, records, first, place)).next();
    match cause {
        DropCause::QueueFull => format!("{cause}, and its policy is {}", subscription.slow_policy()),
        DropCause::NotConvertible => format!("{cause} (`crossdock paths` shows which)"),
        _ => example.unwrap_or_else(|| cause.to_string()),
    }
}
