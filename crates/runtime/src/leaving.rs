//! Clients that are gone without an end of what they published or subscribed to are noted as events.

use crate::context::Context;
use crate::managers::request::{ControlRequest, EventKind};
use crate::streams::Stream;
use crossdock_transport::handshake::Close;
use crossdock_transport::secure::AuthorizedKeys;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Streams that an event lists by name.
const SHOWN: usize = 8;

/// Whether a client that goes for this reason has not ended its subscriptions itself.
fn is_sudden(why: &str) -> bool {
    matches!(why, "gone" | "refused" | "silent")
}

impl Context {
    /// Replaces the list of clients that may connect over the network.
    pub(crate) fn authorize(&mut self, authorized: Arc<AuthorizedKeys>) {
        for key in self.net.authorize(authorized) {
            // There are no keys any more that could say why.
            self.remove_peer(key, "unauthorised", None);
        }
    }

    /// A client goes: has the managers note an event if the daemon disconnects it, or if it has not ended what it did.
    pub(crate) fn note_departure(&mut self, key: usize, why: &'static str, close: Option<&Close>) {
        // A peer that has been replaced goes on in a session of its own client.
        if matches!(why, "terminated" | "shutdown" | "replaced") {
            return;
        }
        let Some(peer) = self.net.present_peer(key) else { return };
        let published: BTreeSet<&str> = peer
            .publishing()
            .iter()
            .filter(|publishing| !publishing.goes_on())
            .filter_map(|publishing| self.streams.present(publishing.stream))
            .map(Stream::name)
            .collect();
        let published =
            (!published.is_empty()).then(|| format!("it published {} without finishing", listed(&published)));
        let subscribed = if is_sudden(why) { self.subscribed(key) } else { None };
        let left: Vec<String> = published.into_iter().chain(subscribed).collect();
        let left = left.join(", and ");
        let (kind, text) = match close {
            Some(close) if left.is_empty() => (EventKind::Disconnected, format!("was disconnected: {}", close.reason)),
            Some(close) => (EventKind::Disconnected, format!("was disconnected: {}; {left}", close.reason)),
            None if left.is_empty() => return,
            None => (EventKind::Gone, format!("is gone: {left}")),
        };
        let text = format!("{peer} {text}");
        self.note_gone(kind, text);
    }

    /// A client is gone whose subscriptions end before it does.
    pub(crate) fn note_subscriber_gone(&mut self, key: usize) {
        // It had none left.
        let Some(left) = self.subscribed(key) else { return };
        let Some(peer) = self.net.present_peer(key) else { return };
        let text = format!("{peer} is gone: {left}");
        self.note_gone(EventKind::Gone, text);
    }

    /// The subscriptions of a client, in words, without those that still wait for their stream.
    fn subscribed(&self, key: usize) -> Option<String> {
        let peer = self.net.present_peer(key)?;
        let subscriptions = peer.subscriptions().iter().filter_map(|of| self.subscriptions.present(*of));
        let streams: Vec<&str> =
            subscriptions.filter(|of| !of.awaits_format()).map(|of| of.select().stream()).collect();
        let what = match streams.len() {
            0 => return None,
            1 => "its subscription".to_owned(),
            number => format!("its {number} subscriptions"),
        };
        Some(format!("it left without ending {what} to {}", listed(&streams.into_iter().collect())))
    }

    fn note_gone(&mut self, kind: EventKind, text: String) {
        self.tick_departures();
        if kind == EventKind::Disconnected || self.departures.take() {
            // The managers may have ended before.
            let _ = self.to_managers.send(ControlRequest::Event(kind, self.graph.index(), text));
        }
    }

    /// Has the managers note the number of clients that had no event of their own, once their interval is over.
    pub(crate) fn tick_departures(&mut self) {
        let others = self.departures.tick(self.net.now_ns());
        if others > 0 {
            let text = format!("{others} more clients went without finishing or without ending their subscriptions");
            let _ = self.to_managers.send(ControlRequest::Event(EventKind::Gone, self.graph.index(), text));
        }
    }
}

/// Names of streams in a sentence, the first few of many.
fn listed(names: &BTreeSet<&str>) -> String {
    let shown = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_streams_the_first_few_are_listed() {
        let names: Vec<String> = (10..30).map(|number| format!("s{number}")).collect();
        let listed_of = |count: usize| listed(&names.iter().take(count).map(String::as_str).collect());
        assert_eq!(listed_of(2), "`s10`, `s11`");
        assert_eq!(listed_of(8).matches('`').count(), 16);
        assert!(listed_of(20).ends_with("`s17` and 12 more"), "{}", listed_of(20));
    }
}
