//! A publisher waits for the subscribers that its stream had before its connection was lost.
//!
//! While it is connected it asks several times a second how many subscriptions there are. In a new session it sends no records
//! before there are as many again, or the time for that is over.

use super::Link;
use crossdock_transport::Request;
use std::time::Duration;

/// How often the number of subscriptions is asked for, in ns: while they are awaited, and while the session stands.
const ASK_NS: (u64, u64) = (20_000_000, 250_000_000);

/// The settings of a publisher's builder: for how long to wait, and for how many at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AwaitSubscribers {
    pub(crate) bound: Duration,
    pub(crate) least: u32,
}

/// The events of a publisher while its calls wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublisherEvent {
    /// It has connected, for the first time or again, and waits for subscribers before it sends further.
    AwaitingSubscribers {
        /// Subscriptions to the stream now.
        present: u32,
        /// Those that it waits for.
        wanted: u32,
    },
    /// It goes on.
    SubscribersAwaited {
        /// Subscriptions to the stream now; fewer than `wanted` if the time was over.
        present: u32,
        /// Those that it has waited for.
        wanted: u32,
    },
}

/// The callback for the events of a publisher.
pub(crate) type OnPublisherEvent = Box<dyn FnMut(PublisherEvent) + Send>;

/// The state of a publisher that waits for subscribers.
pub(crate) struct Awaiting {
    bound_ns: u64,
    least: u32,
    /// The stream's number.
    stream: u32,
    /// Subscriptions, as far as the daemon has said it last.
    present: u32,
    /// Those that are waited for, until when, in ns, and those that are there.
    wanted: Option<(u32, u64)>,
    seen: u32,
    /// How many of the publisher's records the daemon has taken, which it has said before.
    taken: Option<u64>,
    /// The last request's number, and when the next one is due, in ns.
    asked: Option<u32>,
    ask_ns: u64,
    on_event: Option<OnPublisherEvent>,
}

impl Awaiting {
    pub(crate) fn new(settings: AwaitSubscribers, stream: u32, on_event: Option<OnPublisherEvent>) -> Awaiting {
        Awaiting {
            bound_ns: u64::try_from(settings.bound.as_nanos()).unwrap_or(u64::MAX),
            least: settings.least,
            stream,
            present: 0,
            wanted: None,
            seen: 0,
            taken: None,
            asked: None,
            ask_ns: u64::MAX,
            on_event,
        }
    }

    fn say(&mut self, event: PublisherEvent) {
        self.on_event.iter_mut().for_each(|on_event| on_event(event));
    }

    /// When something is due, in ns.
    pub(super) fn due_ns(&self) -> u64 {
        self.ask_ns.min(self.wanted.map_or(u64::MAX, |(_, until_ns)| until_ns))
    }
}

impl Link {
    /// The stream is announced, and there are that many subscriptions to it, if the daemon says so. Whether the records wait for
    /// more; else they may go on from `taken`.
    pub(super) fn begin_awaiting(&mut self, subscriptions: Option<u32>, taken: Option<u64>) -> bool {
        let now_ns = self.now_ns();
        let Some(awaiting) = &mut self.awaiting else { return false };
        (awaiting.wanted, awaiting.asked, awaiting.ask_ns) = (None, None, u64::MAX);
        // A daemon that does not say it is not asked.
        let Some(present) = subscriptions else { return false };
        let wanted = awaiting.least.max(awaiting.present);
        if present >= wanted {
            (awaiting.present, awaiting.ask_ns) = (present, now_ns.saturating_add(ASK_NS.1));
            return false;
        }
        (awaiting.wanted, awaiting.taken) = (Some((wanted, now_ns.saturating_add(awaiting.bound_ns))), taken);
        awaiting.seen = present;
        awaiting.ask_ns = now_ns.saturating_add(ASK_NS.0);
        awaiting.say(PublisherEvent::AwaitingSubscribers { present, wanted });
        // A call that waits for the answer to the announcement waits on.
        self.is_resuming = true;
        true
    }

    /// The daemon has said how many subscriptions there are; whether it was asked for here.
    pub(super) fn take_subscriptions(&mut self, id: u32, present: u32) -> bool {
        let now_ns = self.now_ns();
        let Some(awaiting) = self.awaiting.as_mut().filter(|awaiting| awaiting.asked == Some(id)) else { return false };
        awaiting.asked = None;
        awaiting.seen = present;
        let Some((wanted, until_ns)) = awaiting.wanted else {
            (awaiting.present, awaiting.ask_ns) = (present, now_ns.saturating_add(ASK_NS.1));
            return true;
        };
        if present < wanted && now_ns < until_ns {
            awaiting.ask_ns = now_ns.saturating_add(ASK_NS.0);
        } else {
            self.end_awaiting(wanted);
        }
        true
    }

    fn end_awaiting(&mut self, wanted: u32) {
        let now_ns = self.now_ns();
        let Some(awaiting) = &mut self.awaiting else { return };
        let present = awaiting.seen;
        (awaiting.present, awaiting.wanted, awaiting.ask_ns) = (present, None, now_ns.saturating_add(ASK_NS.1));
        awaiting.say(PublisherEvent::SubscribersAwaited { present, wanted });
        let taken = awaiting.taken.take();
        self.changed = true;
        self.resume(taken);
    }

    /// Waits for subscribers no more.
    pub(crate) fn stop_awaiting(&mut self) {
        if let Some((wanted, _)) = self.awaiting.as_ref().and_then(|awaiting| awaiting.wanted) {
            self.end_awaiting(wanted);
        }
    }

    /// Asks when that is due, and waits no more when the time is over.
    pub(super) fn tick_awaiting(&mut self, now_ns: u64) {
        let Some(awaiting) = self.awaiting.as_mut().filter(|awaiting| now_ns >= awaiting.due_ns()) else { return };
        if let Some((wanted, until_ns)) = awaiting.wanted
            && now_ns >= until_ns
        {
            return self.end_awaiting(wanted);
        }
        awaiting.ask_ns = now_ns.saturating_add(ASK_NS.1);
        // One question at a time, or answers would come that nobody awaits.
        if awaiting.asked.is_some() {
            return;
        }
        let stream = awaiting.stream;
        let id = self.request_id();
        if let Some(awaiting) = &mut self.awaiting {
            awaiting.asked = Some(id);
        }
        self.ask(Request::CountSubscriptions { id, stream });
    }
}
