//! Clients that are gone without an end of what they published or subscribed to are noted as events.

use crate::context::Context;
use crate::departures::Departures;
use crate::managers::request::EventKind;
use crate::net::Net;
use crate::net::peers::Peer;
use crate::streams::{Stream, Streams};
use crate::subscriptions::Subscriptions;
use crossdock_transport::handshake::Close;
use std::collections::BTreeSet;

/// Streams that an event lists by name.
const SHOWN: usize = 8;

/// Whether a client that goes for this reason has not ended its subscriptions itself.
fn is_sudden(why: &str) -> bool {
    matches!(why, "gone" | "refused" | "silent")
}

impl Context {
    /// Has the managers note the event of a client that went, if there is one, and how many had none, once their interval is over.
    pub(crate) fn note_gone(&mut self, event: Option<(EventKind, String)>) {
        let events = self.departures.events(event, self.net.now_ns());
        events.into_iter().for_each(|event| self.note_event(event));
    }
}

impl Net {
    /// A client goes: the event, if the daemon disconnects it, or if it has not ended what it did.
    pub(crate) fn departure(
        &self,
        key: usize,
        (why, close): (&'static str, Option<&Close>),
        streams: &Streams,
        subscriptions: &Subscriptions,
    ) -> Option<(EventKind, String)> {
        // A peer that has been replaced goes on in a session of its own client.
        if matches!(why, "terminated" | "shutdown" | "replaced") {
            return None;
        }
        let peer = self.present_peer(key)?;
        let published: BTreeSet<&str> = peer
            .publishing()
            .iter()
            .filter(|publishing| !publishing.goes_on())
            .filter_map(|publishing| streams.present(publishing.stream))
            .map(Stream::name)
            .collect();
        let published =
            (!published.is_empty()).then(|| format!("it published {} without finishing", listed(&published)));
        let subscribed = if is_sudden(why) { subscriptions.left_by(peer) } else { None };
        let left: Vec<String> = published.into_iter().chain(subscribed).collect();
        let left = left.join(", and ");
        let (kind, text) = match close {
            Some(close) if left.is_empty() => (EventKind::Disconnected, format!("was disconnected: {}", close.reason)),
            Some(close) => (EventKind::Disconnected, format!("was disconnected: {}; {left}", close.reason)),
            None if left.is_empty() => return None,
            None => (EventKind::Gone, format!("is gone: {left}")),
        };
        Some((kind, format!("{peer} {text}")))
    }
}

impl Subscriptions {
    /// The event of a client that is gone, and whose subscriptions end before it does. None if it had none left.
    pub(crate) fn gone_event(&self, peer: &Peer) -> Option<(EventKind, String)> {
        self.left_by(peer).map(|left| (EventKind::Gone, format!("{peer} is gone: {left}")))
    }

    /// The subscriptions of a client, in words, without those that still wait for their stream.
    fn left_by(&self, peer: &Peer) -> Option<String> {
        let subscriptions = peer.subscriptions().iter().filter_map(|of| self.present(*of));
        let streams: Vec<&str> =
            subscriptions.filter(|of| !of.awaits_format()).map(|of| of.select().stream()).collect();
        let what = match streams.len() {
            0 => return None,
            1 => "its subscription".to_owned(),
            number => format!("its {number} subscriptions"),
        };
        Some(format!("it left without ending {what} to {}", listed(&streams.into_iter().collect())))
    }
}

impl Departures {
    /// The events to note: the number of clients that had none of their own, once their interval is over, and that of a client that
    /// goes now, if it is to have one.
    fn events(&mut self, gone: Option<(EventKind, String)>, now_ns: u64) -> [Option<(EventKind, String)>; 2] {
        let others = self.tick(now_ns);
        let others = (others > 0).then(|| {
            let text = format!("{others} more clients went without finishing or without ending their subscriptions");
            (EventKind::Gone, text)
        });
        [others, gone.filter(|(kind, _)| *kind == EventKind::Disconnected || self.take())]
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
