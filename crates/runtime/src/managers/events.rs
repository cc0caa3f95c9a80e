//! What happened on the platform, for people and for `events --follow`.

use crate::info::EventInfo;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// Events that are kept; older ones go.
const MAX_EVENTS: usize = 1000;

/// The latest events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    kept: VecDeque<EventInfo>,
    last: u64,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About<'a> {
    pub(crate) handler: Option<&'a str>,
    pub(crate) context: Option<&'a str>,
}

impl Events {
    /// Notes that something happened now.
    pub(crate) fn note(&mut self, kind: &str, about: About<'_>, text: impl Into<String>) {
        self.last += 1;
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let owned = |name: Option<&str>| name.map(str::to_owned);
        let (kind, handler, context) = (kind.to_owned(), owned(about.handler), owned(about.context));
        if self.kept.len() == MAX_EVENTS {
            self.kept.pop_front();
        }
        self.kept.push_back(EventInfo { number: self.last, at_ms, kind, handler, context, text: text.into() });
    }

    /// Those after a number, oldest first.
    pub(crate) fn after(&self, number: u64) -> Vec<EventInfo> {
        self.kept.iter().filter(|event| event.number > number).cloned().collect()
    }
}
