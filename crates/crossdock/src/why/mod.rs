//! `crossdock why`: the judgement of single records of a stream in a subscription, by predicate and policy.
//!
//! The daemon keeps nothing about single records. So the command finds it out itself: the records are those that the state of the
//! stream keeps, or with `--trace` those that come from now on. They come to a subscriber of its own, under the access rules of the
//! caller. The subscription's query runs on each, and its counters give the number of records that its policies left out.

mod judge;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossdock_format::Format;
use crossdock_format::encoding::{Encoding, EncodingOptions};
use crossdock_nectarine::DropCause as C;
use crossdock_nectarine::{Error, Event, Overflow, Records, Subscriber, SubscriberBuilder};
use crossdock_query::ReferenceTable;
use crossdock_runtime::info::{AnalyzeInfo, SubscriptionInfo, TableInfo};
use serde_json::{Value, json};

use self::judge::{Judge, Judgement};
use crate::cli::Why;
use crate::connecting::{self, link_failure};
use crate::failure::{Failure, Outcome};
use crate::http::client::Client;
use crate::quantity::counted;
use crate::rows::Rows;
use crate::signals::Interrupt;
use crate::{http, out};

/// How often it looks whether it is to end, while nothing comes.
const LOOK: Duration = Duration::from_millis(250);

/// Runs the command.
pub(crate) fn run(arguments: &Why) -> Outcome {
    let client = Client::new(&arguments.control)?;
    let before = subscription(&client, arguments.subscription)?.ok_or_else(|| {
        Failure::usage(format!("the daemon has no subscription {}", arguments.subscription))
            .hint("`crossdock subscriptions` lists them with their numbers")
    })?;
    let formats = formats(&client)?;
    let stream = spelling(&arguments.stream, &formats);
    let judge = Judge::new(&before.sql, &stream, formats, &tables(&client)?)?;
    if !before.accept.is_empty() {
        out::say("the subscription accepts certain formats: records are judged as published, before any conversion");
    }
    let steps = |judge: &Judge| match judge.keeps_state() {
        true => client.get(&format!("/v1/subscriptions/{}/analyze", arguments.subscription)).map(Some),
        false => Ok(None),
    };
    let steps_before: Option<AnalyzeInfo> = steps(&judge)?;
    let interrupt = Interrupt::install()?;
    let subscriber = builder(arguments, &stream)?.connect().map_err(|error| unheld(arguments, error))?;
    let interrupter = subscriber.interrupter();
    interrupt.on_raise(move || interrupter.interrupt());
    interrupt.arm();
    let deadline = arguments.duration.map(|duration| Instant::now() + duration);
    let mut inquiry = Inquiry { arguments, judge, subscriber, interrupt, deadline, counts: JudgementCounts::default() };
    let end = inquiry.receive()?;
    let Inquiry { counts, judge, .. } = inquiry;
    if let (End::Signal(signal), false) = (end, arguments.trace) {
        return Err(Failure::Interrupted(signal));
    }
    if end == End::Early && !arguments.trace {
        out::say("ended by --limit or --for: other records may be kept");
    }
    // Another one may have the number meanwhile.
    let now = subscription(&client, arguments.subscription)?;
    let now = now.filter(|now| (&now.sql, &now.peer) == (&before.sql, &before.peer));
    let lost = match (now.as_ref().map(|_| steps(&judge)).transpose()?.flatten(), steps_before) {
        (Some(after), Some(before)) if arguments.trace => lost_within(&before, &after),
        (Some(after), _) => lost_within(&AnalyzeInfo::default(), &after),
        (None, _) => Vec::new(),
    };
    let lost = LostInState { rows: lost, is_one_step: judge.is_one_step() };
    counts.conclude(arguments, (judge.note(), &lost), (&before, now.as_ref()), end)
}

/// The end of the inquiry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// All records that are kept have come.
    All,
    /// By `--limit` or `--for`.
    Early,
    Signal(i32),
}

/// The stream that a name means, by the rule of names without quotes in queries: the same one, else the only one that differs in
/// case alone.
fn spelling(name: &str, formats: &BTreeMap<String, Format>) -> String {
    let alike: Vec<&String> = formats.keys().filter(|known| known.to_lowercase() == name.to_lowercase()).collect();
    match &alike[..] {
        [only] if !formats.contains_key(name) => (*only).clone(),
        _ => name.to_owned(),
    }
}

fn subscription(client: &Client, id: u64) -> Outcome<Option<SubscriptionInfo>> {
    let http::Subscriptions { subscriptions } = client.get("/v1/subscriptions")?;
    Ok(subscriptions.into_iter().find(|subscription| subscription.id == id))
}

/// The latest format of each stream that the daemon knows.
fn formats(client: &Client) -> Outcome<BTreeMap<String, Format>> {
    let http::Formats { formats } = client.get("/v1/formats")?;
    let mut latest: BTreeMap<String, (u32, Format)> = BTreeMap::new();
    for of in &formats {
        // One that cannot be read here is of a stream that the query may not need.
        let Ok(format) = Format::parse(&of.description) else { continue };
        for (stream, version) in of.streams.iter().zip(&of.versions) {
            if latest.get(stream).is_none_or(|(known, _)| known < version) {
                latest.insert(stream.clone(), (*version, format.clone()));
            }
        }
    }
    Ok(latest.into_iter().map(|(stream, (_, format))| (stream, format)).collect())
}

/// The reference tables that a query may look rows up in.
fn tables(client: &Client) -> Outcome<Vec<ReferenceTable>> {
    let http::TableInfos { tables } = client.get("/v1/tables")?;
    let read = |table: &TableInfo| {
        // One that cannot be read here is one that the query may not need.
        let format = Format::parse_schema(&table.schema).ok()?;
        let key = table.key.iter().map(|column| format.field(column)).collect::<Option<_>>()?;
        Some(ReferenceTable { name: table.name.clone(), format, key })
    };
    Ok(tables.iter().filter_map(read).collect())
}

/// The subscriber for the records in question.
fn builder(arguments: &Why, stream: &str) -> Outcome<SubscriberBuilder> {
    let Why { condition, daemon, .. } = arguments;
    let stream = format!("\"{}\"", stream.replace('"', "\"\""));
    let of = if arguments.trace { "" } else { "SNAPSHOT " };
    let mut builder = Subscriber::builder(&daemon.address)
        .sql(format!("SELECT * FROM {stream} {of}WHERE {condition}"))
        .transport(daemon.transport);
    if arguments.trace {
        // It looks on, and holds nobody back.
        builder = builder.overflow(Overflow::DropOldest);
    }
    if let Some((own, daemons)) = connecting::keys(&daemon.keys)? {
        builder = builder.keys(own, daemons);
    }
    if let Some(route) = connecting::route(&daemon.keys)? {
        builder = builder.route(route);
    }
    Ok(builder)
}

/// The failure to get at the records that the daemon keeps.
fn unheld(arguments: &Why, error: Error) -> Failure {
    let trace = "--trace judges the records that come from now on; `crossdock streams set` with --key lets the daemon keep the last \
                 record of each key";
    if arguments.trace || error.is_no_daemon() { link_failure(error) } else { link_failure(error).hint(trace) }
}

struct Inquiry<'a> {
    arguments: &'a Why,
    judge: Judge,
    subscriber: Subscriber,
    interrupt: Interrupt,
    deadline: Option<Instant>,
    counts: JudgementCounts,
}

impl Inquiry<'_> {
    /// Judges records until there are no more, or a signal ends it.
    fn receive(&mut self) -> Outcome<End> {
        loop {
            if let Some(signal) = self.interrupt.caught() {
                return Ok(End::Signal(signal));
            }
            let is_over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if is_over || self.counts.is_enough(self.arguments.limit) {
                return Ok(End::Early);
            }
            let left = self.deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()));
            let event = match self.subscriber.next_event(Some(left.min(LOOK))) {
                Ok(event) => event,
                Err(Error::Interrupted) => None,
                Err(error) => return Err(link_failure(error)),
            };
            match event {
                Some(Event::Records(records)) => self.judge(&records)?,
                Some(Event::StreamEnded { publishers_left: 0, lost, .. }) if !self.arguments.trace => {
                    return if lost == 0 { Ok(End::All) } else { Err(Failure::failed("the stream's state is gone")) };
                }
                Some(Event::Dropped { records, cause, reason }) if cause.is_row_error() => {
                    out::say(format_args!("{}: the condition of this command: {reason}", counted(records, "record")));
                }
                Some(Event::Dropped { records, .. }) => self.counts.missed += records,
                Some(Event::Unreadable { message }) if self.arguments.trace => {
                    out::say(format_args!("records are not looked at: {message}"));
                }
                Some(Event::Unreadable { message }) => return Err(Failure::failed(message)),
                Some(_) => {}
                None if out::is_closed() => return Err(Failure::OutputClosed),
                None => {}
            }
        }
    }

    fn judge(&mut self, records: &Records) -> Outcome {
        let mut printer = Rows::new(Encoding::Json, None, EncodingOptions::default());
        let mut row = Vec::new();
        printer.begin(records.format(), &mut row)?;
        for record in records.iter() {
            if self.counts.is_enough(self.arguments.limit) {
                break;
            }
            let judgement = self.judge.judgement(&record);
            row.clear();
            let text = match printer.record(&record, self.counts.count() + 1, &mut row) {
                Ok(()) => String::from_utf8_lossy(&row).trim_end().to_owned(),
                Err(why) => json!({ "unwritten": why }).to_string(),
            };
            if self.arguments.json {
                out::print_json(&line(&text, &judgement))?;
            } else {
                out::print(format!("{text}\n  {}\n", in_words(&judgement)))?;
            }
            self.counts.note(&judgement);
        }
        Ok(())
    }
}

fn in_words(judgement: &Judgement) -> String {
    match judgement {
        Judgement::Filtered { condition, is_null: false } => format!("filtered: {condition} is false"),
        Judgement::Filtered { condition, is_null: true } => format!("filtered: {condition} is null"),
        Judgement::RowError { expression, error } => {
            format!("row error: {expression}: {error} (null instead, if its subscriber asked for that)")
        }
        Judgement::Meets => "meets the query".to_owned(),
        Judgement::Unkept { condition, is_null } => format!(
            "meets the query; left out if its subscriber was slow then: KEEP WHERE {condition} is {}",
            if *is_null { "null" } else { "false" }
        ),
        Judgement::Taken { step } => {
            format!("meets the conditions; goes into the query's state, unless it is late: {step}")
        }
        Judgement::Unknown(why) => format!("not known: {why}"),
    }
}

/// The same as JSON.
fn line(record: &str, judgement: &Judgement) -> Value {
    let record: Value = serde_json::from_str(record).unwrap_or_else(|_| Value::from(record));
    let (word, by, why) = match judgement {
        Judgement::Filtered { condition, is_null } => {
            ("filtered", Some(condition), Some(if *is_null { "null" } else { "false" }))
        }
        Judgement::RowError { expression, error } => ("row_error", Some(expression), Some(error.as_str())),
        Judgement::Meets => ("meets", None, None),
        Judgement::Unkept { condition, is_null } => {
            ("unkept", Some(condition), Some(if *is_null { "null" } else { "false" }))
        }
        Judgement::Taken { step } => ("taken", Some(step), None),
        Judgement::Unknown(why) => ("unknown", None, Some(why.as_str())),
    };
    json!({ "record": record, "judgement": word, "by": by, "why": why })
}

/// How many records had each judgement.
#[derive(Default)]
struct JudgementCounts {
    filtered: u64,
    row_errors: u64,
    meets: u64,
    /// Those that meet the query, and are left out while its subscriber is slow.
    unkept: u64,
    taken: u64,
    unknown: u64,
    /// Records that came too fast for this command.
    missed: u64,
}

impl JudgementCounts {
    fn note(&mut self, judgement: &Judgement) {
        *match judgement {
            Judgement::Filtered { .. } => &mut self.filtered,
            Judgement::RowError { .. } => &mut self.row_errors,
            Judgement::Meets => &mut self.meets,
            Judgement::Unkept { .. } => &mut self.unkept,
            Judgement::Taken { .. } => &mut self.taken,
            Judgement::Unknown(_) => &mut self.unknown,
        } += 1;
    }

    fn count(&self) -> u64 {
        self.filtered + self.row_errors + self.meets + self.unkept + self.taken + self.unknown
    }

    fn is_enough(&self, limit: Option<u64>) -> bool {
        limit.is_some_and(|limit| self.count() >= limit)
    }

    /// Prints the sums, and the knowledge of those that met the query: they are a matter of the subscription's policies. The
    /// subscription is that of the start, and that of now.
    fn conclude(
        &self,
        arguments: &Why,
        (note, lost): (Option<&str>, &LostInState),
        (before, now): (&SubscriptionInfo, Option<&SubscriptionInfo>),
        end: End,
    ) -> Outcome {
        if self.missed > 0 {
            out::say(format_args!("{} came too fast and were not looked at", counted(self.missed, "record")));
        }
        if self.count() == 0 {
            return Err(nothing(arguments, end));
        }
        let mut conclusion = self.conclusion(arguments.trace, lost, (before, now));
        if let Some(note) = note {
            conclusion = format!("{conclusion}\n{note}");
        }
        if arguments.json {
            return out::print_json(&json!({
                "filtered": self.filtered, "row_errors": self.row_errors, "meets": self.meets, "unkept": self.unkept,
                "taken": self.taken, "unknown": self.unknown, "conclusion": conclusion,
            }));
        }
        let parts = [
            (self.filtered, "filtered"),
            (self.row_errors, "row errors"),
            (self.meets, "met the query"),
            (self.unkept, "met the query but not KEEP WHERE"),
            (self.taken, "met the conditions"),
            (self.unknown, "not known"),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
        out::print(format!("{}: {}\n{conclusion}\n", counted(self.count(), "record"), parts.join(", ")))
    }

    fn conclusion(
        &self,
        is_trace: bool,
        lost: &LostInState,
        (before, now): (&SubscriptionInfo, Option<&SubscriptionInfo>),
    ) -> String {
        let Some(now) = now else {
            return "the subscription has ended meanwhile: its last counters are not known".to_owned();
        };
        let start = SubscriptionInfo::default();
        let before = if is_trace { before } else { &start };
        let since = if is_trace { "since the trace began" } else { "since the subscription began" };
        if self.taken > 0 {
            return of_state(since, lost, now.taken.saturating_sub(before.taken));
        }
        if self.meets + self.unkept == 0 {
            let rest = if self.unknown == 0 { "" } else { "; of those not known nothing is said" };
            return format!("its policies for a slow subscriber had no part in that{rest}");
        }
        let mut left_out = left_out(before, now);
        if self.unkept == 0 {
            // Those of others.
            left_out.retain(|(cause, _)| cause != C::NotKept.word());
        }
        let causes: Vec<String> = left_out.iter().map(|(cause, records)| format!("{records} {cause}")).collect();
        if left_out.is_empty() {
            let if_there = if is_trace { "" } else { ", if they came while it was there" };
            return format!("nothing was left out for a slow subscriber {since}: they are sent or in flight{if_there}");
        }
        let policy =
            if now.max_rate.is_empty() { now.overflow.clone() } else { format!("{}, {}", now.overflow, now.max_rate) };
        // A record that the queue drops may have been sent before another one was.
        let is_one_end = left_out.len() == 1 && left_out[0].0 != C::QueueFull.word();
        let has_all = now.published.saturating_sub(before.published) >= self.count();
        if is_trace && is_one_end && has_all && now.in_flight == 0 && now.records_out == before.records_out {
            return format!(
                "{since} the subscription (policy: {policy}) was sent nothing, and nothing is in flight: they are among its {}",
                causes.join(", ")
            );
        }
        format!(
            "{since} the subscription (policy: {policy}) did not get: {}; it cannot be known whether these are among them; the others \
             are sent or in flight",
            causes.join(", ")
        )
    }
}

/// Rows that a step of a query with state lost: the step, why, and how many.
type LostRows = (String, String, u64);

/// The rows that a query with state lost.
#[derive(Default)]
struct LostInState {
    rows: Vec<LostRows>,
    /// Whether the query has one step, to which each record goes once: its rows are the records, then.
    is_one_step: bool,
}

/// The rows that the steps of a query lost between two reports: late ones, and those that were forgotten for others.
fn lost_within(before: &AnalyzeInfo, now: &AnalyzeInfo) -> Vec<LostRows> {
    let mut lost = Vec::new();
    // The counts of nodes are about records that were judged, or the sums of those of their steps.
    for step in now.operators.iter().filter(|step| step.context.is_none()) {
        let known = before.operators.iter().find(|known| (&known.text, known.depth) == (&step.text, step.depth));
        let had = |reason: &String| {
            let mut reasons = known.iter().flat_map(|known| &known.lost);
            reasons.find(|(known, _)| known == reason).map_or(0, |(_, rows)| *rows)
        };
        let new = step.lost.iter().map(|(reason, rows)| (reason, rows.saturating_sub(had(reason))));
        lost.extend(new.filter(|(_, rows)| *rows > 0).map(|(reason, rows)| (step.text.clone(), reason.clone(), rows)));
    }
    lost
}

/// The knowledge of records that went into the state of a query, which took `taken` since then.
fn of_state(since: &str, LostInState { rows: lost, is_one_step }: &LostInState, taken: u64) -> String {
    let rest = "the rows of its state are not followed further";
    let texts: Vec<String> = lost.iter().map(|(step, reason, rows)| format!("{rows} {reason} at {step}")).collect();
    match &lost[..] {
        [] => {
            format!("nothing of its state was late or forgotten {since}: they are in it, or have become rows; {rest}")
        }
        [(_, reason, rows)] if *is_one_step && reason == "late" && *rows == taken => {
            format!("all that came {since} was late: {}; nothing is made of these", texts.join(", "))
        }
        _ => format!(
            "{since} its state took {taken} records and lost: {}; it cannot be known whether these are among them; {rest}",
            texts.join(", ")
        ),
    }
}

/// The records that a subscription did not get though they met its query, by cause.
fn left_out(before: &SubscriptionInfo, now: &SubscriptionInfo) -> Vec<(String, u64)> {
    let mut causes = vec![
        (C::Conflated.word().to_owned(), now.conflated.saturating_sub(before.conflated)),
        (C::Sampled.word().to_owned(), now.sampled.saturating_sub(before.sampled)),
    ];
    let others =
        [C::Conflated, C::Sampled, C::DivisionByZero, C::OutOfRange, C::NotAValue, C::BadPattern, C::RowTooLong];
    let is_other = |word: &str| others.iter().any(|cause| cause.word() == word);
    for (cause, records) in now.dropped_by.iter().filter(|(cause, _)| !is_other(cause)) {
        let had = before.dropped_by.iter().find(|(known, _)| known == cause).map_or(0, |(_, records)| *records);
        causes.push((cause.clone(), records.saturating_sub(had)));
    }
    causes.retain(|(_, records)| *records > 0);
    causes
}

/// The failure where no record could be looked at.
fn nothing(arguments: &Why, end: End) -> Failure {
    let Why { stream, condition, trace, .. } = arguments;
    if end != End::All && !*trace {
        return Failure::failed(format!(
            "no record of `{stream}` with {condition} came before the end by --limit or --for"
        ));
    }
    if *trace {
        return Failure::failed(format!("no record of `{stream}` with {condition} came"))
            .hint("give a longer time with --for, or another condition");
    }
    Failure::failed(format!("it cannot be known: of `{stream}` no record with {condition} is kept"))
        .hint("it never came, a later one of its key has replaced it, or the state's bounds let it go; --trace judges those that come")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_left_out_are_said_by_cause() {
        let with = |conflated, dropped: &[(&str, u64)]| SubscriptionInfo {
            conflated,
            dropped_by: dropped.iter().map(|(cause, records)| ((*cause).to_owned(), *records)).collect(),
            overflow: "conflate by (key)".to_owned(),
            ..SubscriptionInfo::default()
        };
        let met = JudgementCounts { meets: 2, ..JudgementCounts::default() };
        let before = with(5, &[("queue_full", 1)]);
        let since = |now: &SubscriptionInfo| met.conclusion(true, &LostInState::default(), (&before, Some(now)));
        assert!(since(&before).contains("nothing was left out"));
        let now = with(7, &[("queue_full", 1), ("no_format", 3)]);
        let said = since(&now);
        assert!(said.contains("(policy: conflate by (key)) did not get: 2 conflated, 3 no_format;"), "{said}");
        let said = met.conclusion(false, &LostInState::default(), (&before, Some(&now)));
        assert!(said.contains("7 conflated, 1 queue_full, 3 no_format"), "{said}");
        assert!(met.conclusion(true, &LostInState::default(), (&before, None)).contains("has ended"));
        let filtered = JudgementCounts { filtered: 2, ..JudgementCounts::default() };
        assert!(filtered.conclusion(true, &LostInState::default(), (&before, Some(&now))).contains("had no part"));
    }

    #[test]
    fn the_only_end_that_records_can_have_had_is_known() {
        let met = JudgementCounts { meets: 2, filtered: 1, ..JudgementCounts::default() };
        let before = SubscriptionInfo { published: 10, records_out: 9, ..SubscriptionInfo::default() };
        let now = SubscriptionInfo { published: 13, conflated: 2, ..before.clone() };
        let said = |now: SubscriptionInfo| met.conclusion(true, &LostInState::default(), (&before, Some(&now)));
        assert!(said(now.clone()).contains("they are among its 2 conflated"), "{}", said(now));
        // One may have been sent, be in flight, come yet, or have had another end.
        let unknown = [
            SubscriptionInfo { records_out: 10, ..now.clone() },
            SubscriptionInfo { in_flight: 1, ..now.clone() },
            SubscriptionInfo { published: 12, ..now.clone() },
            SubscriptionInfo { sampled: 1, ..now.clone() },
            SubscriptionInfo { conflated: 0, dropped_by: vec![("queue_full".into(), 2)], ..now.clone() },
        ];
        for now in unknown {
            assert!(said(now.clone()).contains("cannot be known"), "{}", said(now));
        }
        // Records that meet KEEP WHERE are none of those that it left out.
        let now = SubscriptionInfo { conflated: 0, dropped_by: vec![("not_kept".into(), 2)], ..now };
        assert!(said(now.clone()).contains("nothing was left out"), "{}", said(now));
        let unkept = JudgementCounts { unkept: 2, ..JudgementCounts::default() };
        let said = unkept.conclusion(true, &LostInState::default(), (&before, Some(&now)));
        assert!(said.contains("they are among its 2 not_kept"), "{said}");
    }

    #[test]
    fn late_and_forgotten_rows_are_said_by_step() {
        use crossdock_runtime::info::OperatorInfo;
        let step = |text: &str, lost: &[(&str, u64)]| OperatorInfo {
            text: text.to_owned(),
            lost: lost.iter().map(|(reason, rows)| ((*reason).to_owned(), *rows)).collect(),
            ..OperatorInfo::default()
        };
        let node = OperatorInfo { context: Some("c-core-0".into()), ..step("handler h", &[("late", 9)]) };
        let report = |late, forgotten| AnalyzeInfo {
            operators: vec![node.clone(), step("group by k", &[("late", late), ("forgotten", forgotten)])],
            ..AnalyzeInfo::default()
        };
        let before = report(3, 0);
        assert_eq!(lost_within(&before, &before), []);
        let late = vec![("group by k".to_owned(), "late".to_owned(), 2)];
        assert_eq!(lost_within(&before, &report(5, 0)), late);
        assert_eq!(lost_within(&AnalyzeInfo::default(), &report(5, 1)).len(), 2);

        let taken = JudgementCounts { taken: 2, ..JudgementCounts::default() };
        let (before, now) = (SubscriptionInfo { taken: 7, ..Default::default() }, |taken| SubscriptionInfo {
            taken,
            ..Default::default()
        });
        let said = |rows: &[LostRows], is_one_step, all| {
            let lost = LostInState { rows: rows.to_vec(), is_one_step };
            taken.conclusion(true, &lost, (&before, Some(&now(all))))
        };
        assert!(said(&[], true, 9).contains("was late or forgotten since the trace began"), "{}", said(&[], true, 9));
        let all = said(&late, true, 9);
        assert!(all.contains("all that came since the trace began was late: 2 late at group by k"), "{all}");
        // Of several steps, rows may be others than the records.
        for some in [said(&late, false, 9), said(&late, true, 10)] {
            assert!(some.contains("and lost: 2 late at group by k; it cannot be known"), "{some}");
        }
    }
}
