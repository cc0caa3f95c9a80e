//! `crossdock explain analyze`: the steps of a running query with their counts, as a tree.

use std::time::{Duration, Instant};

use crossdock_nectarine::{Error, Overflow, Subscriber};
use crossdock_query::Query;
use crossdock_runtime::info::{AnalyzeInfo, OperatorInfo};

use crate::cli::Analyze;
use crate::connecting::{self, link_failure};
use crate::failure::{Failure, Outcome};
use crate::http::client::Client;
use crate::quantity::{bytes, count};
use crate::signals::Interrupt;
use crate::table::push_lines;
use crate::{handlers, out};

/// How long a query runs, and how long one that runs is looked at, unless the command says it.
const RUN: Duration = Duration::from_secs(5);
const LOOK_AT: Duration = Duration::from_secs(1);
/// How often it looks whether it is to end, while nothing comes.
const LOOK: Duration = Duration::from_millis(250);
/// Steps are indented by this much for each that they are away from the output, up to a bound.
const INDENT: usize = 2;
const MOST_INDENT: usize = 30;

/// Runs the command.
pub(crate) fn run(arguments: &Analyze) -> Outcome {
    let client = Client::new(&arguments.control)?;
    let interrupt = Interrupt::install()?;
    let info = match (&arguments.sql, arguments.subscription, &arguments.handler) {
        (Some(sql), ..) => of_query(arguments, &client, sql, &interrupt)?,
        (None, Some(id), _) => of_running(arguments, &client, &of_subscription(id), &interrupt)?,
        (None, None, Some(name)) => {
            of_running(arguments, &client, &format!("{}/analyze", handlers::path_of(name)), &interrupt)?
        }
        // The definition of the command line asks for one of them.
        (None, None, None) => return Err(Failure::usage("give a query, --subscription or --handler")),
    };
    if arguments.json { out::print_json(&info) } else { out::print(tree(&info)) }
}

fn of_subscription(id: u64) -> String {
    format!("/v1/subscriptions/{id}/analyze")
}

/// A query or handler that runs already: its counts, and its shares from two looks at it.
fn of_running(arguments: &Analyze, client: &Client, path: &str, interrupt: &Interrupt) -> Outcome<AnalyzeInfo> {
    let before: AnalyzeInfo = client.get(path)?;
    interrupt.arm();
    interrupt.sleep(arguments.duration.unwrap_or(LOOK_AT));
    if let Some(signal) = interrupt.caught() {
        return Err(Failure::Interrupted(signal));
    }
    let after: AnalyzeInfo = client.get(path)?;
    Ok(after.since(&before))
}

/// A query, which this command subscribes to for a while.
fn of_query(arguments: &Analyze, client: &Client, sql: &str, interrupt: &Interrupt) -> Outcome<AnalyzeInfo> {
    let mut subscriber = subscriber(arguments, sql)?;
    let interrupter = subscriber.interrupter();
    interrupt.on_raise(move || interrupter.interrupt());
    interrupt.arm();
    let deadline = Instant::now() + arguments.duration.unwrap_or(RUN);
    let path = subscriber.number().map(of_subscription);
    let path = path.ok_or_else(|| Failure::failed("the daemon does not say the number of the subscription"))?;
    let first: AnalyzeInfo = client.get(&path)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || interrupt.caught().is_some() {
            break;
        }
        match subscriber.next_event(Some(left.min(LOOK))) {
            Ok(_) | Err(Error::Interrupted) => {}
            Err(error) => return Err(link_failure(error)),
        }
    }
    // The counts until a signal came are shown too.
    let last: AnalyzeInfo = client.get(&path)?;
    Ok(last.since(&first))
}

/// The subscriber of this command.
fn subscriber(arguments: &Analyze, sql: &str) -> Outcome<Subscriber> {
    let daemon = &arguments.daemon;
    let mut builder = Subscriber::builder(&daemon.address).sql(sql).transport(daemon.transport);
    // It looks on, and holds nobody back, unless the query says what it gets while it is slow.
    let is_free = match crossdock_query::parse_query(sql) {
        Ok(Query::Select(select)) => select.on_slow().is_none() && select.snapshot().is_none(),
        Ok(Query::Stateful(query)) => !query.has_clauses(),
        // The daemon says what is wrong with it.
        Err(_) => false,
    };
    if is_free {
        builder = builder.overflow(Overflow::DropOldest);
    }
    if let Some((own, daemons)) = connecting::keys(&daemon.keys)? {
        builder = builder.keys(own, daemons);
    }
    builder.connect().map_err(link_failure)
}

/// The tree, in lines of [`COLUMNS`](crate::table::COLUMNS).
fn tree(info: &AnalyzeInfo) -> String {
    let mut text = String::new();
    push_lines(&format!("{}: {}", info.of, info.sql), ("", 2), &mut text);
    text.push('\n');
    for operator in &info.operators {
        let indent = (operator.depth as usize * INDENT).min(MOST_INDENT);
        let arrow =
            if operator.depth == 0 { String::new() } else { format!("{:indent$}-> ", "", indent = indent - INDENT) };
        push_lines(&operator.text, (&arrow, indent + 3), &mut text);
        let facts = facts(operator);
        if !facts.is_empty() {
            push_lines(&facts, (&" ".repeat(indent + 3), indent + 5), &mut text);
        }
    }
    text
}

/// The counts of an operator, in words.
fn facts(operator: &OperatorInfo) -> String {
    let mut facts = Vec::new();
    match (operator.records_in, operator.records_out) {
        (Some(came), Some(left)) => facts.push(format!("in {}, out {}", count(came), count(left))),
        (Some(came), None) => facts.push(format!("in {}", count(came))),
        (None, Some(left)) => facts.push(format!("out {}", count(left))),
        (None, None) => {}
    }
    if !operator.lost.is_empty() {
        let reasons: Vec<String> =
            operator.lost.iter().map(|(reason, records)| format!("{} {reason}", count(*records))).collect();
        facts.push(format!("lost {}", reasons.join(", ")));
    }
    if let Some(kept) = operator.kept_bytes {
        let rows = operator.kept_rows.map(|rows| format!("{} rows, ", count(rows))).unwrap_or_default();
        let bound = operator.kept_bytes_bound.map(|bound| format!(" of {}", bytes(bound))).unwrap_or_default();
        facts.push(format!("keeps {rows}{}{bound}", bytes(kept)));
    }
    if let Some(ns) = operator.ns_per_record {
        facts.push(format!("{ns:.0} ns a record"));
    }
    if let Some(share) = operator.share {
        facts.push(format!("{:.1} % of a core", share * 100.0));
    }
    if let Some(context) = &operator.context {
        facts.push(format!("at {context}"));
    }
    if let Some(form) = &operator.form {
        facts.push(form.clone());
    }
    facts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::COLUMNS;

    #[test]
    fn the_tree_has_a_step_below_the_one_that_it_feeds() {
        let step = |depth, text: &str| OperatorInfo { depth, text: text.into(), ..OperatorInfo::default() };
        let session = OperatorInfo {
            records_in: Some(1_200),
            records_out: Some(1_100),
            lost: vec![("conflated".into(), 100)],
            kept_bytes: Some(0),
            kept_bytes_bound: Some(1 << 20),
            context: Some("c-core-0".into()),
            ..step(0, "session client 3, block")
        };
        let filter = OperatorInfo {
            records_in: Some(9),
            records_out: Some(3),
            ns_per_record: Some(41.4),
            share: Some(0.021),
            ..step(1, "filter dest = 'LAX'")
        };
        let info = AnalyzeInfo {
            of: "subscription 3".into(),
            sql: "SELECT * FROM A WHERE dest = 'LAX'".into(),
            at_ns: 1,
            operators: vec![session, filter, OperatorInfo { records_out: Some(9), ..step(2, "stream A") }],
        };
        let expected = "\
subscription 3: SELECT * FROM A WHERE dest = 'LAX'

session client 3, block
   in 1,200, out 1,100; lost 100 conflated; keeps 0 B of 1.00 MiB; at c-core-0
-> filter dest = 'LAX'
     in 9, out 3; 41 ns a record; 2.1 % of a core
  -> stream A
       out 9
";
        assert_eq!(tree(&info), expected);
    }

    #[test]
    fn every_line_fits_80_columns_however_long_names_are_and_however_deep_the_tree_is() {
        let operators = (0..40)
            .map(|depth| OperatorInfo {
                depth,
                text: format!("filter {} AND b = '\u{1b}[2J'", "äb".repeat(100)),
                records_in: Some(u64::MAX),
                records_out: Some(u64::MAX),
                lost: vec![("errors within".into(), u64::MAX), ("late".into(), u64::MAX)],
                kept_rows: Some(u64::MAX),
                kept_bytes: Some(u64::MAX),
                kept_bytes_bound: Some(u64::MAX),
                ns_per_record: Some(1e9),
                ..OperatorInfo::default()
            })
            .collect();
        let info = AnalyzeInfo { of: "handler x".into(), sql: "SELECT ".repeat(40), at_ns: 0, operators };
        let text = tree(&info);
        assert_eq!(text.lines().find(|line| line.chars().count() > COLUMNS), None, "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().count() > 200, "{text}");
    }
}
