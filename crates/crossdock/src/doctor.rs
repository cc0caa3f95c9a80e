//! `crossdock doctor`: what is wrong with a running daemon now, a finding a line, in ten lines at most: slow subscribers, losses and
//! their causes, bounds that are near.

use crossdock_runtime::info::{
    ContextInfo, EventInfo, HandlerContextInfo, HandlerInfo, MailboxInfo, StreamInfo, SubscriptionInfo,
};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cli::List;
use crate::failure::{Failure, Outcome};
use crate::http::client::Client;
use crate::lists::{client, losses, objects};
use crate::quantity::{bytes, count, counted};
use crate::table::wrapped;
use crate::{http, out};

/// Lines that are shown without `--json`.
const MOST_LINES: usize = 10;
/// Events are recent for this time, in ms.
const RECENT_MS: u64 = 600_000;
/// The part of a bound from which on it is near.
const NEAR: f64 = 0.8;
/// The part of a queue from which on its subscriber is slow.
const SLOW: f64 = 0.5;
/// The time between the two looks at the daemon: what grows meanwhile is a problem now, what does not is one of the past.
const BETWEEN: Duration = Duration::from_millis(500);
/// The events that report that something is wrong.
const TROUBLES: [&str; 12] = [
    "failed",
    "lost",
    "panicked",
    "replaced",
    "refused",
    "degraded",
    "over_budget",
    "dropped",
    "missed",
    "disconnected",
    "blocked",
    "gone",
];

/// The known state of a daemon.
#[derive(Default)]
struct State {
    streams: Vec<StreamInfo>,
    subscriptions: Vec<SubscriptionInfo>,
    contexts: Vec<ContextInfo>,
    platform: Vec<HandlerContextInfo>,
    handlers: Vec<HandlerInfo>,
    mailboxes: Vec<MailboxInfo>,
    events: Vec<EventInfo>,
    /// In ms since 1970.
    now_ms: u64,
}

/// Something that is wrong, or is going to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Finding {
    /// How bad it is.
    severity: Severity,
    /// The fault, in a sentence.
    text: String,
    /// The command that shows more of it, or corrects it.
    hint: String,
    /// Findings about subscriptions that have the same are shown as one: the stream and the cause.
    #[serde(skip)]
    alike: Option<(String, String)>,
}

impl Finding {
    fn new(severity: Severity, text: String, hint: impl Into<String>) -> Finding {
        Finding { severity, text, hint: hint.into(), alike: None }
    }

    /// One of several about the subscriptions to a stream, for the same cause.
    fn of_cause(self, stream: &str, cause: impl Into<String>) -> Finding {
        Finding { alike: Some((stream.to_owned(), cause.into())), ..self }
    }
}

/// How bad something is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// Records are lost now, or nothing goes on.
    Problem,
    /// Something is slow, near its bound, or was lost before.
    Warning,
}

impl Severity {
    /// That of a number that was, and has grown meanwhile or not.
    fn of_growth(before: u64, now: u64) -> Severity {
        if now > before { Severity::Problem } else { Severity::Warning }
    }
}

/// Prints the findings. Exit status 1 if there is a problem.
pub(crate) fn run(arguments: &List) -> Outcome {
    let client = client(arguments)?;
    let before = State::read(&client)?;
    std::thread::sleep(BETWEEN);
    let state = State::read(&client)?;
    let findings = state.findings(&before);
    match arguments.json {
        true => objects(&findings)?,
        false => out::print(text(&findings, &state))?,
    }
    match findings.iter().filter(|finding| finding.severity == Severity::Problem).count() as u64 {
        0 => Ok(()),
        number => Err(Failure::failed(counted(number, "problem"))),
    }
}

fn text(findings: &[Finding], state: &State) -> String {
    if findings.is_empty() {
        let (streams, subscriptions) = (state.streams.len() as u64, state.subscriptions.len() as u64);
        return wrapped(
            &format!(
                "nothing is wrong: {}, {}, {}; nothing is lost, no queue is half full, no bound is near",
                counted(streams, "stream"),
                counted(subscriptions, "subscription"),
                counted(state.handlers.len() as u64, "handler")
            ),
            0,
        );
    }
    let mut merged: Vec<(&Finding, u64)> = Vec::new();
    for finding in findings {
        let is_alike = |(first, _): &&mut (&Finding, u64)| {
            finding.alike.is_some() && (&first.alike, first.severity) == (&finding.alike, finding.severity)
        };
        match merged.iter_mut().find(is_alike) {
            Some((_, others)) => *others += 1,
            None => merged.push((finding, 0)),
        }
    }
    let shown = if merged.len() > MOST_LINES { MOST_LINES - 1 } else { merged.len() };
    let mut text: String = merged.iter().take(shown).map(|(finding, others)| line(finding, *others)).collect();
    if merged.len() > shown {
        text += &format!("and {} more: --json shows all\n", merged.len() - shown);
    }
    text
}

/// A finding, and that there are `others` like it.
fn line(Finding { severity, text, hint, .. }: &Finding, others: u64) -> String {
    let word = if *severity == Severity::Problem { "problem" } else { "warning" };
    let others =
        if others > 0 { format!("; the same for {}", counted(others, "more subscription")) } else { String::new() };
    // Text from a program cannot begin a line.
    let words: Vec<&str> = text.split_whitespace().collect();
    format!("{word}: {}{others} ({hint})\n", words.join(" "))
}

fn share(used: u64, bound: u64) -> f64 {
    if bound == 0 { 0.0 } else { used as f64 / bound as f64 }
}

/// Numbers by their reasons: `queue_full 10, division_by_zero 2`.
fn reasons(by: &[(String, u64)]) -> String {
    by.iter().map(|(reason, number)| format!("{reason} {}", count(*number))).collect::<Vec<_>>().join(", ")
}

impl State {
    /// Asks a daemon.
    fn read(client: &Client) -> Outcome<State> {
        let http::Streams { streams } = client.get("/v1/streams")?;
        let http::Subscriptions { subscriptions } = client.get("/v1/subscriptions")?;
        let http::Contexts { contexts, platform, .. } = client.get("/v1/contexts")?;
        let http::Handlers { handlers } = client.get("/v1/handlers")?;
        let http::Mailboxes { mailboxes } = client.get("/v1/mailboxes")?;
        let http::Events { events } = client.get("/v1/events?after=0")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Ok(State { streams, subscriptions, contexts, platform, handlers, mailboxes, events, now_ms })
    }

    /// The faults, the worst first; `before` is a moment before.
    fn findings(&self, before: &State) -> Vec<Finding> {
        let mut findings = Vec::new();
        for of in &self.subscriptions {
            let then = before.subscriptions.iter().find(|then| then.id == of.id);
            of_subscription(of, then.unwrap_or(&SubscriptionInfo::default()), &mut findings);
        }
        for of in &self.streams {
            let then = before.streams.iter().find(|then| then.name == of.name);
            of_stream(of, then.unwrap_or(&StreamInfo::default()), &mut findings);
        }
        for of in &self.handlers {
            let then = before.handlers.iter().find(|then| then.name == of.name);
            of_handler(of, then.unwrap_or(&HandlerInfo::default()), &mut findings);
        }
        self.contexts.iter().for_each(|context| of_io(context, &mut findings));
        self.platform.iter().for_each(|context| of_context(context, &mut findings));
        for of in &self.mailboxes {
            let then = before.mailboxes.iter().find(|then| then.address == of.address);
            of_mailbox(of, then, &mut findings);
        }
        self.recent_events(&mut findings);
        findings.sort_by_key(|finding| finding.severity);
        findings
    }

    /// The kinds of events of the last minutes that report something wrong, each with its latest.
    fn recent_events(&self, findings: &mut Vec<Finding>) {
        let is_recent = |event: &&EventInfo| event.at_ms + RECENT_MS >= self.now_ms;
        for kind in TROUBLES {
            let of_kind: Vec<&EventInfo> =
                self.events.iter().filter(is_recent).filter(|event| event.kind == kind).collect();
            let Some(latest) = of_kind.last() else { continue };
            let minutes_ago = self.now_ms.saturating_sub(latest.at_ms) / 60_000;
            let when = if minutes_ago == 0 { "just now".to_owned() } else { format!("{minutes_ago} min ago") };
            let text = format!(
                "{} `{kind}` in the last ten minutes, the latest {when}: {}",
                counted(of_kind.len() as u64, "event"),
                latest.text
            );
            let hint = "crossdock events".to_owned();
            findings.push(Finding::new(Severity::Warning, text, hint));
        }
    }
}

fn of_subscription(of: &SubscriptionInfo, before: &SubscriptionInfo, findings: &mut Vec<Finding>) {
    let name = format!("subscription {} of {} to `{}`", of.id, of.peer, of.stream);
    let full = share(of.backlog_bytes, of.queue_bytes);
    if full >= SLOW {
        let (queued, bound) = (bytes(of.backlog_bytes), bytes(of.queue_bytes));
        let text = format!("{name} is slow: {queued} of {bound} are queued; its policy is {}", of.overflow);
        let hint = match of.overflow.as_str() {
            "block" => "--on-overflow drop_oldest lets the publishers go on",
            _ => "it needs less of the stream, or more time",
        };
        // One that takes something is slow, and no more.
        let takes_nothing = full >= NEAR && of.records_out == before.records_out;
        let severity = if takes_nothing { Severity::Problem } else { Severity::Warning };
        findings.push(Finding::new(severity, text, hint).of_cause(&of.stream, format!("slow {}", of.overflow)));
    }
    let lost = of.dropped + of.row_errors;
    if lost > 0 {
        let own = of.first_row_error.as_ref().map(|first| format!("; first {first}")).unwrap_or_default();
        let converting = of.first_conversion_error.as_ref().map(|first| format!("; first in a conversion: {first}"));
        let first = own + &converting.unwrap_or_default();
        let text = format!("{name} did not get {}: {}{first}", counted(lost, "record"), reasons(&of.dropped_by));
        let hint = "crossdock subscriptions --json".to_owned();
        let severity = Severity::of_growth(before.dropped + before.row_errors, lost);
        let causes: Vec<&str> = of.dropped_by.iter().map(|(cause, _)| cause.as_str()).collect();
        findings.push(Finding::new(severity, text, hint).of_cause(&of.stream, causes.join(" ")));
    }
    if of.held_records > 0 {
        let text = format!("{} wait for a conversion for {name}", counted(of.held_records, "record"));
        findings.push(Finding::new(Severity::Warning, text, "crossdock paths").of_cause(&of.stream, "held"));
    }
}

fn of_stream(of: &StreamInfo, before: &StreamInfo, findings: &mut Vec<Finding>) {
    if of.blocked > 0 {
        let are = if of.blocked == 1 { "is" } else { "are" };
        let text = format!("{} of `{}` {are} held back", counted(of.blocked.into(), "publisher"), of.name);
        let hint = "crossdock subscriptions shows whose queue is full".to_owned();
        let severity = if of.records_in == before.records_in { Severity::Problem } else { Severity::Warning };
        findings.push(Finding::new(severity, text, hint));
    }
    if of.records_malformed > 0 {
        let text =
            format!("`{}` had {} that are not of their format", of.name, counted(of.records_malformed, "record"));
        let hint = "crossdock events names the publisher".to_owned();
        let severity = Severity::of_growth(before.records_malformed, of.records_malformed);
        findings.push(Finding::new(severity, text, hint));
    }
    if of.records_unclaimed > 0 && of.subscriptions == 0 && of.publishers > 0 {
        let text = format!("nobody takes `{}`: {} were dropped", of.name, counted(of.records_unclaimed, "record"));
        let hint = "crossdock subscribe, or a handler, takes it".to_owned();
        findings.push(Finding::new(Severity::Warning, text, hint));
    }
}

fn of_handler(of: &HandlerInfo, before: &HandlerInfo, findings: &mut Vec<Finding>) {
    let hint = || format!("crossdock handlers {}", of.name);
    let (lost, lost_before) = (losses::of_handler(of), losses::of_handler(before));
    if lost > 0 {
        let mut by = of.dropped.clone();
        by.extend_from_slice(&of.row_errors_by);
        let first = of.first_row_error.as_ref().map(|first| format!("; first {first}")).unwrap_or_default();
        let text = format!("handler `{}` lost {}: {}{first}", of.name, counted(lost, "record"), reasons(&by));
        findings.push(Finding::new(Severity::of_growth(lost_before, lost), text, hint()));
    }
    if of.faults > 0 {
        let text = format!("handler `{}` panicked or did not return {}", of.name, counted(of.faults, "time"));
        findings.push(Finding::new(Severity::of_growth(before.faults, of.faults), text, hint()));
    }
    if of.sampled > 1 {
        let text = format!("handler `{}` processes one record in {}: its core is overloaded", of.name, of.sampled);
        findings.push(Finding::new(Severity::Problem, text, hint()));
    }
    if share(of.queued, of.queue_bound) >= NEAR {
        let text = format!("handler `{}` has {} of {} batches queued", of.name, of.queued, of.queue_bound);
        findings.push(Finding::new(Severity::Warning, text, hint()));
    }
}

fn of_io(of: &ContextInfo, findings: &mut Vec<Finding>) {
    let bounds = [
        ("sessions", u64::from(of.sessions), u64::from(of.max_sessions), "max_sessions"),
        ("attached clients", of.clients.into(), of.max_clients.into(), "max_clients"),
        ("mailboxes", of.mailboxes.into(), of.max_mailboxes.into(), "max_mailboxes"),
        ("buffers", of.buffers_in_use, of.buffers, "buffer_bytes"),
    ];
    for (what, used, bound, key) in bounds.into_iter().filter(|(_, used, bound, _)| share(*used, *bound) >= NEAR) {
        let text = format!("{} of {} {what} of {} are in use", count(used), count(bound), of.address);
        let hint = format!("`{key}` in the configuration");
        findings.push(Finding::new(Severity::Warning, text, hint));
    }
}

fn of_context(of: &HandlerContextInfo, findings: &mut Vec<Finding>) {
    if of.lost.is_some() {
        let text = format!("context {} does not answer", of.name);
        findings.push(Finding::new(Severity::Problem, text, "crossdock contexts"));
    }
    if of.busy_share >= NEAR {
        let text = format!("context {} is busy {:.0} % of the time", of.name, of.busy_share * 100.0);
        let hint = "crossdock handlers shows what takes its time".to_owned();
        findings.push(Finding::new(Severity::Warning, text, hint));
    }
}

fn of_mailbox(of: &MailboxInfo, before: Option<&MailboxInfo>, findings: &mut Vec<Finding>) {
    let lost = |of: &MailboxInfo| of.dropped.iter().map(|(_, messages)| messages).sum::<u64>();
    if of.dropped.is_empty() {
        return;
    }
    let text = format!("mailbox {} lost {}: {}", of.address, counted(lost(of), "message"), reasons(&of.dropped));
    let severity = Severity::of_growth(before.map_or(0, lost), lost(of));
    findings.push(Finding::new(severity, text, "crossdock mailboxes"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, at_ms: u64, kind: &str) -> EventInfo {
        let text = format!("the {number}th");
        EventInfo { number, at_ms, kind: kind.to_owned(), handler: None, context: None, text }
    }

    #[test]
    fn a_daemon_without_trouble_has_no_findings() {
        let now_ms = 10 * RECENT_MS;
        let mut state =
            State { now_ms, events: vec![event(1, 0, "failed"), event(2, now_ms, "deployed")], ..State::default() };
        state.subscriptions.push(SubscriptionInfo {
            backlog_bytes: 49,
            queue_bytes: 100,
            ..SubscriptionInfo::default()
        });
        state.streams.push(StreamInfo { records_unclaimed: 7, ..StreamInfo::default() });
        assert_eq!(state.findings(&State::default()), []);
        assert!(text(&[], &state).starts_with("nothing is wrong: 1 stream, 1 subscription, 0 handlers;"));
    }

    #[test]
    fn problems_come_first_each_with_its_figures() {
        let now_ms = 10 * RECENT_MS;
        let mut state = State { now_ms, ..State::default() };
        state.events = vec![event(1, now_ms - 120_000, "dropped"), event(2, now_ms - 61_000, "dropped")];
        state.subscriptions.push(SubscriptionInfo {
            id: 3,
            stream: "A".into(),
            peer: "client 1 (pid 7 x)".into(),
            overflow: "block".into(),
            backlog_bytes: 90,
            queue_bytes: 100,
            row_errors: 2,
            dropped_by: vec![("division_by_zero".into(), 2)],
            first_row_error: Some("division by zero in `a / b`".into()),
            ..SubscriptionInfo::default()
        });
        state.streams.push(StreamInfo { name: "A".into(), blocked: 2, publishers: 2, ..StreamInfo::default() });
        state.contexts.push(ContextInfo {
            sessions: 9,
            max_sessions: 10,
            address: "[::1]:1".into(),
            ..ContextInfo::default()
        });
        let found = state.findings(&State::default());
        let texts: Vec<&str> = found.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "subscription 3 of client 1 (pid 7 x) to `A` is slow: 90 B of 100 B are queued; its policy is block",
                "subscription 3 of client 1 (pid 7 x) to `A` did not get 2 records: division_by_zero 2; first division by zero in `a / b`",
                "2 publishers of `A` are held back",
                "9 of 10 sessions of [::1]:1 are in use",
                "2 events `dropped` in the last ten minutes, the latest 1 min ago: the 2th",
            ]
        );
        let of = |stream: usize| Finding { alike: Some((stream.to_string(), "slow".into())), ..found[0].clone() };
        let many: Vec<Finding> = (0..3 * (MOST_LINES + 3)).map(|number| of(number / 3)).collect();
        let text = text(&many, &state);
        assert_eq!(text.lines().count(), MOST_LINES);
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("problem: subscription 3") && first.contains("; the same for 2 more subscriptions ("),
            "{text}"
        );
        assert!(text.ends_with("and 4 more: --json shows all\n"), "{text}");
    }
}
