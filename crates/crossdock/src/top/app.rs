//! The view of `top`, and what its keys change.

use std::collections::BTreeMap;
use std::time::Instant;

use crossdock_runtime::info::{
    ContextInfo, EventInfo, HandlerContextInfo, HandlerInfo, HistoryInfo, MomentInfo, StreamInfo, SubscriptionInfo,
};
use ratatui::crossterm::event::KeyCode;
use serde::Serialize;

use crate::lists::losses;

/// Events that are kept to be shown.
const MAX_EVENTS: usize = 100;

/// The daemon's figures at one time.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) at: Instant,
    /// When the daemon started, in ms since 1970: another one counts anew.
    pub(super) started_at_ms: u64,
    pub(super) io: ContextInfo,
    pub(super) platform: Vec<HandlerContextInfo>,
    pub(super) handlers: Vec<HandlerInfo>,
    pub(super) streams: Vec<StreamInfo>,
    pub(super) subscriptions: Vec<SubscriptionInfo>,
    pub(super) history: Vec<HistoryInfo>,
    /// Those since the one before.
    pub(super) events: Vec<EventInfo>,
}

/// The counts a second, between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Rate {
    pub(super) records_per_s: u64,
    pub(super) bytes_per_s: u64,
}

/// The figures that `--once --json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Figures<'a> {
    address: &'a str,
    records_in_per_s: u64,
    records_out_per_s: u64,
    contexts: &'a [HandlerContextInfo],
    handlers: &'a [HandlerInfo],
    streams: &'a [StreamInfo],
    stream_rates: &'a BTreeMap<String, Rate>,
    subscriptions: &'a [SubscriptionInfo],
    events: &'a [EventInfo],
}

/// The list that the keys are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum List {
    Contexts,
    #[default]
    Handlers,
    Streams,
    Subscriptions,
}

/// By what a list is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// By name, from a to z.
    #[default]
    Name,
    /// By records a second, the most first.
    Rate,
    /// By the share of a core that it takes; of streams by bytes a second, of subscriptions by backlog; the most first.
    Load,
    /// By records lost, the most first.
    Losses,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Rate => "rate",
            Sort::Load => "load",
            Sort::Losses => "losses",
        }
    }
}

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct App {
    pub(super) latest: Option<Snapshot>,
    /// Why the daemon does not answer, while it does not.
    pub(super) lost: Option<String>,
    /// Of each stream.
    pub(super) rates: BTreeMap<String, Rate>,
    /// Records a second that left for each subscription, by its number.
    pub(super) sent: BTreeMap<u64, u64>,
    /// Records a second, in and out of the daemon.
    pub(super) total: (u64, u64),
    pub(super) events: Vec<EventInfo>,
    pub(super) list: List,
    /// The list in the middle, which stays while the contexts have the keys.
    pub(super) middle: Middle,
    pub(super) sort: Sort,
    /// The row that is chosen in each list.
    chosen: [usize; 4],
    pub(super) is_paused: bool,
    pub(super) has_help: bool,
}

/// The middle of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Middle {
    #[default]
    Handlers,
    Streams,
    Subscriptions,
}

impl App {
    /// The latest figures; none before the daemon has answered.
    pub(super) fn figures(&self) -> Option<Figures<'_>> {
        let latest = self.latest.as_ref()?;
        Some(Figures {
            address: &latest.io.address,
            records_in_per_s: self.total.0,
            records_out_per_s: self.total.1,
            contexts: &latest.platform,
            handlers: &latest.handlers,
            streams: &latest.streams,
            stream_rates: &self.rates,
            subscriptions: &latest.subscriptions,
            events: &self.events,
        })
    }

    /// Takes in what the daemon says now.
    pub(super) fn take(&mut self, mut next: Snapshot) {
        self.lost = None;
        (self.rates, self.sent, self.total) = Default::default();
        // Another daemon's counters say nothing of this one's.
        if let Some(before) = self.latest.as_ref().filter(|before| before.started_at_ms == next.started_at_ms) {
            let s = next.at.saturating_duration_since(before.at).as_secs_f64();
            let rate = |now: u64, before: u64| if s > 0.0 { (now.saturating_sub(before) as f64 / s) as u64 } else { 0 };
            let former: BTreeMap<&str, &StreamInfo> =
                before.streams.iter().map(|stream| (&*stream.name, stream)).collect();
            let of = |stream: &StreamInfo| {
                let (records, bytes) =
                    former.get(&*stream.name).map_or((0, 0), |former| (former.records_in, former.bytes_in));
                let (records_per_s, bytes_per_s) = (rate(stream.records_in, records), rate(stream.bytes_in, bytes));
                (stream.name.clone(), Rate { records_per_s, bytes_per_s })
            };
            self.rates = next.streams.iter().map(of).collect();
            let former: BTreeMap<u64, u64> =
                before.subscriptions.iter().map(|subscription| (subscription.id, subscription.records_out)).collect();
            let of = |subscription: &SubscriptionInfo| {
                let before = former.get(&subscription.id).copied().unwrap_or(subscription.records_out);
                (subscription.id, rate(subscription.records_out, before))
            };
            self.sent = next.subscriptions.iter().map(of).collect();
            let (now, before) = (&next.io, &before.io);
            self.total = (rate(now.records_in, before.records_in), rate(now.records_out, before.records_out));
        }
        self.events.append(&mut next.events);
        self.events.drain(..self.events.len().saturating_sub(MAX_EVENTS));
        self.latest = Some(next);
        self.arrange();
    }

    /// The daemon does not answer: what it said last stays.
    pub(super) fn lose(&mut self, why: String) {
        self.lost = Some(why);
    }

    /// Sorts the lists, and keeps the chosen rows in them.
    fn arrange(&mut self) {
        let Some(latest) = &mut self.latest else { return };
        let rate = |stream: &StreamInfo| self.rates.get(&stream.name).copied().unwrap_or_default();
        latest.handlers.sort_by(|a, b| a.name.cmp(&b.name));
        latest.streams.sort_by(|a, b| a.name.cmp(&b.name));
        latest.subscriptions.sort_by_key(|subscription| subscription.id);
        // Stable: among equals the names stay in their order.
        match self.sort {
            Sort::Name => {}
            Sort::Rate => {
                latest.handlers.sort_by_key(|handler| std::cmp::Reverse(handler.rate_msgs_per_s));
                latest.streams.sort_by_key(|stream| std::cmp::Reverse(rate(stream).records_per_s));
                let sent = |subscription: &SubscriptionInfo| self.sent.get(&subscription.id).copied();
                latest.subscriptions.sort_by_key(|subscription| std::cmp::Reverse(sent(subscription)));
            }
            Sort::Load => {
                latest.handlers.sort_by_key(|handler| std::cmp::Reverse(handler.measured.time_ns_per_s));
                latest.streams.sort_by_key(|stream| std::cmp::Reverse(rate(stream).bytes_per_s));
                latest.subscriptions.sort_by_key(|subscription| std::cmp::Reverse(subscription.backlog_bytes));
            }
            Sort::Losses => {
                latest.handlers.sort_by_key(|handler| std::cmp::Reverse(losses::of_handler(handler)));
                latest.streams.sort_by_key(|stream| std::cmp::Reverse(losses::of_stream(stream)));
                latest.subscriptions.sort_by_key(|of| std::cmp::Reverse(losses::of_subscription(of)));
            }
        }
        let lengths = [latest.platform.len(), latest.handlers.len(), latest.streams.len(), latest.subscriptions.len()];
        for (chosen, length) in self.chosen.iter_mut().zip(lengths) {
            *chosen = (*chosen).min(length.saturating_sub(1));
        }
    }

    /// Handles a key; whether that is not to end it.
    pub(super) fn press(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Char('q') => return false,
            KeyCode::Esc if !self.has_help => return false,
            _ if self.has_help => self.has_help = false,
            KeyCode::Char('?' | 'h') => self.has_help = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => {
                self.sort = match self.sort {
                    Sort::Name => Sort::Rate,
                    Sort::Rate => Sort::Load,
                    Sort::Load => Sort::Losses,
                    Sort::Losses => Sort::Name,
                };
            }
            KeyCode::Tab | KeyCode::Right => {
                self.turn_to(match self.list {
                    List::Contexts => List::Handlers,
                    List::Handlers => List::Streams,
                    List::Streams => List::Subscriptions,
                    List::Subscriptions => List::Contexts,
                });
            }
            KeyCode::BackTab | KeyCode::Left => {
                self.turn_to(match self.list {
                    List::Contexts => List::Subscriptions,
                    List::Subscriptions => List::Streams,
                    List::Handlers => List::Contexts,
                    List::Streams => List::Handlers,
                });
            }
            KeyCode::Up => self.chosen[self.list as usize] = self.chosen[self.list as usize].saturating_sub(1),
            KeyCode::Down => self.chosen[self.list as usize] += 1,
            KeyCode::Home => self.chosen[self.list as usize] = 0,
            KeyCode::End => self.chosen[self.list as usize] = usize::MAX,
            _ => {}
        }
        self.arrange();
        true
    }

    fn turn_to(&mut self, list: List) {
        self.list = list;
        match list {
            List::Contexts => {}
            List::Handlers => self.middle = Middle::Handlers,
            List::Streams => self.middle = Middle::Streams,
            List::Subscriptions => self.middle = Middle::Subscriptions,
        }
    }

    /// The row that is chosen in a list.
    pub(super) fn chosen(&self, list: List) -> usize {
        self.chosen[list as usize]
    }

    /// Whose last minutes are shown: the chosen handler or context, else the home context.
    pub(super) fn history(&self) -> Option<(&str, &[MomentInfo])> {
        let latest = self.latest.as_ref()?;
        let (kind, name) = match self.list {
            List::Handlers if !latest.handlers.is_empty() => {
                ("handler", &*latest.handlers.get(self.chosen(List::Handlers))?.name)
            }
            List::Contexts => ("context", &*latest.platform.get(self.chosen(List::Contexts))?.name),
            _ => ("context", &*latest.platform.first()?.name),
        };
        let history = latest.history.iter().find(|history| history.kind == kind && history.name == name)?;
        Some((&history.name, &history.moments))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::time::Duration;

    /// A stream on which `records` records came in each of `seconds` seconds.
    fn stream(name: &str, records: u64, seconds: u64, made_by: Option<&str>) -> StreamInfo {
        StreamInfo {
            name: name.into(),
            publishers: 1,
            subscriptions: 2,
            records_in: records * seconds,
            bytes_in: records * 40 * seconds,
            records_unclaimed: 12_345,
            policy: "none".into(),
            made_by: made_by.map(str::to_owned),
            peak_msgs_per_s: records * 2,
            ..StreamInfo::default()
        }
    }

    /// A subscription that got 500 records in each of `seconds` seconds.
    fn subscription(seconds: u64) -> SubscriptionInfo {
        SubscriptionInfo {
            id: 7,
            stream: "A".into(),
            sql: "SELECT flight FROM A".into(),
            peer: "127.0.0.1:40000".into(),
            records_out: 500 * seconds,
            dropped: 9,
            ..SubscriptionInfo::default()
        }
    }

    fn handler(name: &str, reads: &str, context: &str, rate: u64, load: u64) -> HandlerInfo {
        let mut handler = crate::handlers::made_up::handler(name, &[reads], &format!("{name}_out"), context);
        (handler.rate_msgs_per_s, handler.measured.time_ns_per_s, handler.ns_per_record) = (rate, load, 123.4);
        (handler.queued, handler.queue_bound) = (3, 256);
        if name == "narrow" {
            handler.dropped = vec![("queue_full".into(), 7), ("sampled".into(), 5)];
            (handler.row_errors, handler.sampled, handler.overruns, handler.faults) = (1, 8, 4, 2);
        }
        handler
    }

    /// A daemon with three contexts, three handlers and three streams; a second later with `seconds`.
    pub(crate) fn snapshot(start: Instant, seconds: u64) -> Snapshot {
        let context = |name: &str, kind: &str, busy_share, handlers: &[&str]| HandlerContextInfo {
            name: name.into(),
            kind: kind.into(),
            busy_share,
            headroom_ns_per_s: ((0.8 - busy_share) * 1e9) as u64,
            handlers: handlers.iter().map(|&name| name.into()).collect(),
            rate_msgs_per_s: 2_100_000,
            queue_bound: 256,
            ..HandlerContextInfo::default()
        };
        let stream = |name, records, made_by| stream(name, records, seconds, made_by);
        let moments = (0..120).map(|at_s| MomentInfo { at_s, msgs_in_per_s: at_s * 10, ..MomentInfo::default() });
        let history = |kind: &str, name: &str| HistoryInfo {
            name: name.into(),
            kind: kind.into(),
            moments: moments.clone().collect(),
        };
        Snapshot {
            at: start + Duration::from_secs(seconds),
            started_at_ms: 1_700_000_000_000,
            io: ContextInfo {
                address: "127.0.0.1:7440".into(),
                records_in: 2_100_000 * seconds,
                records_out: 1_000_000 * seconds,
                ..ContextInfo::default()
            },
            platform: vec![
                HandlerContextInfo {
                    capacity_bytes_per_s: Some(125_000_000),
                    headroom_bytes_per_s: Some(68_000_000),
                    ..context("c-core-0", "c-core", 0.52, &["late", "narrow"])
                },
                context("c-core-1", "c-core", 0.05, &[]),
                context("g-core-0", "g-core", 0.99, &["totals"]),
            ],
            handlers: vec![
                handler("late", "A", "c-core-0", 2_000_000, 260_000_000),
                handler("narrow", "A", "c-core-0", 2_100_000, 100_000_000),
                handler("totals", "late_out", "g-core-0", 150_000, 990_000_000),
            ],
            streams: vec![
                stream("A", 2_100_000, None),
                stream("B", 700, None),
                stream("late_out", 150_000, Some("late")),
            ],
            subscriptions: vec![subscription(seconds)],
            history: vec![history("context", "c-core-0"), history("handler", "totals"), history("handler", "late")],
            events: vec![EventInfo {
                number: seconds,
                at_ms: 1_700_000_000_000 + seconds * 1000,
                kind: "moved".into(),
                handler: Some("totals".into()),
                context: Some("g-core-0".into()),
                text: "c-core-1 had lost its headroom".into(),
            }],
        }
    }

    pub(crate) fn app() -> App {
        let (mut app, start) = (App::default(), Instant::now());
        app.take(snapshot(start, 1));
        app.take(snapshot(start, 2));
        app
    }

    fn names(app: &App) -> Vec<&str> {
        app.latest.iter().flat_map(|latest| &latest.handlers).map(|handler| &*handler.name).collect()
    }

    #[test]
    fn rates_are_what_came_between_two_looks() {
        let app = app();
        assert_eq!(app.total, (2_100_000, 1_000_000));
        assert_eq!(app.rates["B"], Rate { records_per_s: 700, bytes_per_s: 28_000 });
        assert_eq!((app.sent[&7], app.events.len()), (500, 2));
    }

    #[test]
    fn keys_turn_sort_choose_pause_and_end() {
        let mut app = app();
        assert_eq!(names(&app), ["late", "narrow", "totals"]);
        assert!(app.press(KeyCode::Char('s')));
        assert_eq!((app.sort, names(&app)), (Sort::Rate, vec!["narrow", "late", "totals"]));
        assert!(app.press(KeyCode::Char('s')));
        assert_eq!((app.sort, names(&app)), (Sort::Load, vec!["totals", "late", "narrow"]));
        // The last row is the last, however often the key is pressed.
        (0..5).for_each(|_| assert!(app.press(KeyCode::Down)));
        assert_eq!(app.chosen(List::Handlers), 2);
        assert!(app.press(KeyCode::Home) && app.press(KeyCode::Up));
        assert_eq!(app.history().map(|(name, moments)| (name, moments.len())), Some(("totals", 120)));
        assert!(app.press(KeyCode::Char('s')));
        assert_eq!((app.sort, names(&app)), (Sort::Losses, vec!["narrow", "late", "totals"]));
        assert!(app.press(KeyCode::Tab) && app.list == List::Streams && app.middle == Middle::Streams);
        assert!(app.press(KeyCode::Tab) && app.list == List::Subscriptions && app.middle == Middle::Subscriptions);
        assert!(app.press(KeyCode::Tab) && app.list == List::Contexts && app.middle == Middle::Subscriptions);
        assert_eq!(app.history().map(|(name, _)| name), Some("c-core-0"));
        assert!(app.press(KeyCode::BackTab) && app.list == List::Subscriptions);
        assert!(app.press(KeyCode::Char('p')) && app.is_paused);
        // Any key ends the help, and only that.
        assert!(app.press(KeyCode::Char('?')) && app.press(KeyCode::Esc) && !app.has_help);
        assert!(!app.press(KeyCode::Esc) && !app.press(KeyCode::Char('q')));
    }

    #[test]
    fn a_daemon_that_does_not_answer_leaves_what_it_said_and_the_next_one_counts_anew() {
        let mut app = app();
        app.lose("no daemon is running".into());
        assert!(app.lost.is_some() && app.latest.is_some());
        let mut next = snapshot(Instant::now(), 1);
        next.started_at_ms += 1;
        app.take(next);
        assert_eq!((app.lost.as_deref(), app.total, app.rates.len(), app.sent.len()), (None, (0, 0), 0, 0));
    }

    #[test]
    fn a_daemon_with_nothing_is_no_trouble() {
        let mut app = App::default();
        for key in [KeyCode::Down, KeyCode::End, KeyCode::Tab, KeyCode::Char('s')] {
            assert!(app.press(key));
        }
        assert!(app.history().is_none());
    }
}
