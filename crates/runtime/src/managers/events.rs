//! Events of the platform, for people and for `events --follow`.

use crate::info::EventInfo;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

/// Events that are kept; older ones go.
const MAX_EVENTS: usize = 1000;

/// The latest events. Cheap to clone: all clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    kept: VecDeque<EventInfo>,
    last: u64,
    /// How many there were, by kind.
    counts: BTreeMap<String, u64>,
    /// Also receives every event, if it is set.
    sink: Option<Sink>,
}

/// Takes events, on the thread where they happen.
type Sink = Box<dyn FnMut(&EventInfo) + Send>;

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("last", &self.last).finish_non_exhaustive()
    }
}

/// The handler and the context that an event is about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About<'a> {
    pub(crate) handler: Option<&'a str>,
    pub(crate) context: Option<&'a str>,
}

/// The world's clock, in ms since 1970.
pub(crate) fn now_ms() -> u64 {
    crossdock_device::system_now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Events {
    /// Notes that something happened now.
    pub(crate) fn note(&self, kind: &str, about: About<'_>, text: impl Into<String>) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.last += 1;
        let number = log.last;
        let at_ms = now_ms();
        let owned = |name: Option<&str>| name.map(str::to_owned);
        let (kind, handler, context) = (kind.to_owned(), owned(about.handler), owned(about.context));
        if log.kept.len() == MAX_EVENTS {
            log.kept.pop_front();
        }
        *log.counts.entry(kind.clone()).or_default() += 1;
        let event = EventInfo { number, at_ms, kind, handler, context, text: text.into() };
        if let Some(sink) = &mut log.sink {
            sink(&event);
        }
        log.kept.push_back(event);
    }

    /// Passes events to `sink` as well, first those that are kept.
    pub(crate) fn log_to(&self, mut sink: Sink) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.kept.iter().for_each(&mut sink);
        log.sink = Some(sink);
    }

    /// How many there were since the start, by kind.
    pub(crate) fn counts(&self) -> Vec<(String, u64)> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.counts.iter().map(|(kind, number)| (kind.clone(), *number)).collect()
    }

    /// The number of the latest.
    pub(crate) fn last(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// Those after a number, oldest first.
    pub(crate) fn after(&self, number: u64) -> Vec<EventInfo> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.kept.iter().filter(|event| event.number > number).cloned().collect()
    }
}
