//! Notifies subscribers of how far their streams have come, so that one that comes back after a lost connection, to this daemon or to its
//! successor, can count what it has missed.
//!
//! Nothing here is done for a message: what a position is made of is counted anyway.

use crate::context::Context;
use crate::egress::Sessions;
use crate::managers::request::EventKind;
use crate::net::Net;
use crate::streams::Streams;
use crate::subscriptions::{Subscription, Subscriptions};
use crossdock_transport::Notice;
use crossdock_transport::control::Position;

/// How often a subscriber is notified of how far its stream has come while records pass, in ns.
const INTERVAL_NS: u64 = 1_000_000_000;
/// While a subscriber has not taken that many bytes of control messages, it gets no such notice.
const MAX_UNTAKEN_BYTES: u64 = 32 << 10;

impl Streams {
    /// How far the stream of a subscription has come, if its subscriber asks for that, and whether the counts are of one moment. The
    /// records of a stream that handlers make are not counted.
    pub(crate) fn position(&self, subscription: &Subscription) -> Option<(Position, bool)> {
        let stream = self.present(subscription.stream()).filter(|_| subscription.wants_positions())?;
        let is_numbered = self.is_numbered() && gets_all(subscription);
        if stream.entry().made_by().is_some() && !is_numbered {
            return None;
        }
        let activity = stream.entry().activity();
        let (position, is_exact) = activity.position();
        let number = is_numbered.then(|| activity.first_number().saturating_add(position.passed));
        Some((Position { left_out: subscription.left_out(), number, ..position }, is_exact))
    }
}

impl Subscriptions {
    /// Once a second: those that are to be notified if their streams have gone on.
    fn take_due_positions(&mut self, now_ns: u64) -> Vec<usize> {
        if now_ns < self.positions_due_ns() {
            return Vec::new();
        }
        let notified: Vec<usize> =
            self.iter().filter(|(_, subscription)| subscription.wants_positions()).map(|(key, _)| key).collect();
        let due_ns = if notified.is_empty() { u64::MAX } else { now_ns.saturating_add(INTERVAL_NS) };
        self.set_positions_due(due_ns);
        notified
    }

    /// Notes that the subscriber is notified now.
    pub(crate) fn note_reported(&mut self, key: usize, streams: &Streams) {
        let Some(subscription) = self.present_mut(key) else { return };
        let stream = streams.present(subscription.stream());
        subscription.note_position(stream.map(|stream| stream.entry().activity().version()));
    }

    /// An event of what a subscriber has missed while its connection was lost.
    pub(crate) fn missed_event(&self, of: (&Net, usize), number: u32, records: u64) -> Option<(EventKind, String)> {
        let peer = of.0.present_peer(of.1)?;
        // Its subscriber may have ended it already, or name one that it never had.
        let subscription = self.of_peer(of, number).ok().and_then(|key| self.present(key))?;
        let at_most = if subscription.left_out().is_some() { "up to " } else { "" };
        let text = format!(
            "subscription {} of {peer} missed {at_most}{records} {} of `{}` while its connection was lost",
            subscription.id(),
            if records == 1 { "record" } else { "records" },
            subscription.select().stream()
        );
        Some((EventKind::Missed, text))
    }
}

impl Sessions<'_> {
    /// Once a second: notifies those subscribers whose streams have gone on.
    pub(crate) fn tick_positions(&mut self, streams: &Streams) {
        let notified = self.subscriptions.take_due_positions(self.net.now_ns());
        notified.into_iter().for_each(|key| self.report_position(key, false, streams));
    }

    /// Notifies the subscribers of a stream.
    fn report_positions(&mut self, stream: u32, streams: &Streams) {
        let subscriptions = streams.get(stream as usize).map(|stream| stream.subscriptions().to_vec());
        subscriptions.into_iter().flatten().for_each(|key| self.report_position(key, false, streams));
    }

    /// Notifies a subscriber of how far its stream has come, if that has changed; unless it is to be `now`, only one that takes its
    /// notices.
    pub(crate) fn report_position(&mut self, key: usize, now: bool, streams: &Streams) {
        let Some(subscription) = self.subscriptions.present(key) else { return };
        let Some(stream) = streams.present(subscription.stream()).filter(|_| subscription.wants_positions()) else {
            return;
        };
        let peer = subscription.peer();
        let is_known = subscription.knows_position(stream.entry().activity().version());
        if is_known || (!now && self.net.untaken_control_bytes(peer, self.host) > MAX_UNTAKEN_BYTES) {
            return;
        }
        // The records that were counted as not left out come before.
        self.flush(key);
        self.subscriptions.note_reported(key, streams);
        let Some(subscription) = self.subscriptions.present(key) else { return };
        let Some((position, true)) = streams.position(subscription) else {
            // A subscriber adds and subtracts the counts. It is notified the next time that it is looked at.
            if let Some(subscription) = self.subscriptions.present_mut(key) {
                subscription.note_position(None);
            }
            return;
        };
        let notice = Notice::Position { subscription: subscription.number(), position };
        self.net.send(peer, &notice.into(), self.host);
    }
}

impl Context {
    /// A publisher of a stream has come: its subscribers at all contexts are notified.
    pub(crate) fn report_publication(&mut self, stream: u32) {
        let report = move |context: &mut Context| {
            let (mut sessions, streams, _) = context.sessions();
            sessions.report_positions(stream, streams);
        };
        report(self);
        if !self.place.is_only() {
            self.inbox.at_others(self.place, self.streams.catalog(), report);
        }
    }
}

/// Whether a subscription gets every record of its stream: its own count of them is the stream's, then.
fn gets_all(subscription: &Subscription) -> bool {
    subscription.blocks() && subscription.left_out().is_none() && subscription.asked().snapshot().is_none()
}
