//! The losses of subscriptions are counted at their context, reported to the subscriber, and noted as events.

use crate::access::Access;
use crate::context::Context;
use crate::egress::{QueueEnd, Sessions};
use crate::losses::{CAUSES, with_example};
use crate::managers::request::{ControlRequest, EventKind};
use crate::net::Net;
use crate::subscriptions::{Subscription, Subscriptions};
use crossdock_transport::Notice;
use crossdock_transport::control::DropCause;
use std::collections::BTreeSet;

/// How often a subscriber is notified of dropped records at most, in ns; the end of a stream is always preceded by a report.
const REPORT_INTERVAL_NS: u64 = 100_000_000;
/// How often there is an event of the records that a subscription lost at most, in ns.
const EVENT_INTERVAL_NS: u64 = 10_000_000_000;

impl Sessions<'_> {
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
        if !now && (is_early || self.net.has_untaken_control(peer, self.host)) {
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
            self.flush(key);
        }
        notices.into_iter().for_each(|notice| self.net.send(peer, &notice.into(), self.host));
    }
}

impl Context {
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
            let (mut sessions, ..) = self.sessions();
            if sessions.note_losses(key) {
                if let Some(QueueEnd { peer, close }) = sessions.behind(key) {
                    self.remove_peer(peer, "queue_full", Some(close));
                }
                continue;
            }
            sessions.report_dropped(key, false);
            let losses = self.subscriptions.take_event(key, false, &self.net, &self.access);
            self.note_event(losses);
            let Some(subscription) = self.subscriptions.present(key) else { continue };
            if subscription.losses().is_unreported() || subscription.is_elsewhere() {
                self.subscriptions.look_again(key, now_ns + REPORT_INTERVAL_NS);
            }
        }
    }

    /// Has the managers note an event, if there is one.
    pub(crate) fn note_event(&self, event: Option<(EventKind, String)>) {
        if let Some((kind, text)) = event {
            // The managers may have ended before.
            let _ = self.to_managers.send(ControlRequest::Event(kind, self.graph.index(), text));
        }
    }
}

impl Subscriptions {
    /// The event of a subscriber that has held publishers back for a while.
    #[cold]
    pub(crate) fn holding_event(&self, key: usize, net: &Net) -> Option<(EventKind, String)> {
        let peer = net.present_peer(key)?;
        let blocking = peer.subscriptions().iter().filter_map(|of| self.present(*of));
        let streams: BTreeSet<&str> = blocking.filter(|of| of.blocks()).map(|of| of.select().stream()).collect();
        if streams.is_empty() {
            return None;
        }
        let streams: Vec<String> = streams.into_iter().map(|stream| format!("`{stream}`")).collect();
        let text = format!(
            "{peer} holds back the publishers of {}: its queue has been full for a second, and its policy is block",
            streams.join(", ")
        );
        Some((EventKind::Blocked, text))
    }

    /// An event of what a subscription lost since the last such event; unless it `ends`, not too often.
    pub(crate) fn take_event(
        &mut self,
        key: usize,
        ends: bool,
        net: &Net,
        access: &Access,
    ) -> Option<(EventKind, String)> {
        let subscription = self.present_mut(key)?;
        let new = subscription.losses_mut().take_unnoted(net.now_ns(), EVENT_INTERVAL_NS, ends)?;
        let new = new.unasked();
        if new.sum() == 0 {
            return None;
        }
        // Whoever reads events may have no right to read the stream.
        let in_words = |cause: DropCause, records| match access.rules() {
            Some(_) => cause.to_string(),
            None => reason(subscription, cause, records),
        };
        let reasons: Vec<String> = new
            .by_cause()
            .into_iter()
            .map(|(cause, records)| format!("{records} because {}", in_words(cause, records)))
            .collect();
        let peer = net.peer(subscription.peer()).map(ToString::to_string).unwrap_or_default();
        let text = format!(
            "subscription {} of {peer} to `{}` did not get {} {}: {}",
            subscription.id(),
            subscription.select().stream(),
            new.sum(),
            if new.sum() == 1 { "record" } else { "records" },
            reasons.join("; ")
        );
        Some((EventKind::Dropped, text))
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
