//! `streams`, `subscriptions`, `formats`, `contexts` and `explain`: what the daemon says of itself.

use crossdock_runtime::info::{ContextInfo, ExplainInfo, FormatInfo, StreamInfo, SubscriptionInfo};
use serde::{Deserialize, Serialize};

use crate::cli::{Explain, List};
use crate::failure::Outcome;
use crate::http::ExplainRequest;
use crate::http::client::Client;
use crate::out;
use crate::quantity::{bytes, count};
use crate::table::{Side, Width, render};

/// `crossdock streams`.
pub(crate) fn streams(arguments: &List) -> Outcome {
    #[derive(Deserialize)]
    struct Answer {
        streams: Vec<StreamInfo>,
    }
    let Answer { streams } = client(arguments)?.get("/v1/streams")?;
    if arguments.json {
        return objects(&streams);
    }
    let row = |stream: &StreamInfo| {
        vec![
            stream.name.clone(),
            count(stream.publishers.into()) + if stream.blocked > 0 { " (held back)" } else { "" },
            count(stream.subscriptions.into()),
            count(stream.records_in),
            bytes(stream.bytes_in),
            count(stream.records_unclaimed),
            count(stream.records_malformed),
        ]
    };
    let headings = [
        ("stream", Side::Left),
        ("publishers", Side::Right),
        ("subscribers", Side::Right),
        ("records", Side::Right),
        ("bytes", Side::Right),
        ("unclaimed", Side::Right),
        ("malformed", Side::Right),
    ];
    table(&headings, streams.iter().map(row), "no streams: `crossdock publish` makes one")
}

/// `crossdock subscriptions`.
pub(crate) fn subscriptions(arguments: &List) -> Outcome {
    #[derive(Deserialize)]
    struct Answer {
        subscriptions: Vec<SubscriptionInfo>,
    }
    let Answer { subscriptions } = client(arguments)?.get("/v1/subscriptions")?;
    if arguments.json {
        return objects(&subscriptions);
    }
    let row = |subscription: &SubscriptionInfo| {
        vec![
            subscription.id.to_string(),
            subscription.peer.clone(),
            count(subscription.records_in),
            count(subscription.records_out),
            count(subscription.dropped + subscription.row_errors),
            bytes(subscription.backlog_bytes),
            subscription.sql.clone(),
        ]
    };
    let headings = [
        ("id", Side::Right),
        ("peer", Side::Left),
        ("seen", Side::Right),
        ("sent", Side::Right),
        ("dropped", Side::Right),
        ("backlog", Side::Right),
        ("query", Side::Left),
    ];
    table(&headings, subscriptions.iter().map(row), "no subscriptions: `crossdock subscribe` makes one")
}

/// `crossdock formats`.
pub(crate) fn formats(arguments: &List) -> Outcome {
    #[derive(Deserialize)]
    struct Answer {
        formats: Vec<FormatInfo>,
    }
    let Answer { formats } = client(arguments)?.get("/v1/formats")?;
    if arguments.json {
        return objects(&formats);
    }
    let row = |format: &FormatInfo| {
        let field = |field: &crossdock_runtime::info::FieldInfo| {
            format!("{} {}{}", field.name, field.ty, if field.nullable { " null" } else { "" })
        };
        let fields: Vec<String> = format.fields.iter().map(field).collect();
        vec![format.id.clone(), format.streams.join(", "), fields.join(", ")]
    };
    let headings = [("format", Side::Left), ("streams", Side::Left), ("fields", Side::Left)];
    table(&headings, formats.iter().map(row), "no formats: a publisher announces its own")
}

/// `crossdock contexts`.
pub(crate) fn contexts(arguments: &List) -> Outcome {
    #[derive(Deserialize)]
    struct Answer {
        contexts: Vec<ContextInfo>,
    }
    let Answer { contexts } = client(arguments)?.get("/v1/contexts")?;
    if arguments.json {
        return objects(&contexts);
    }
    let texts: Vec<String> = contexts.iter().map(context_text).collect();
    out::print(texts.join("\n"))
}

/// A context's counters, one a line: there are few contexts and many counters.
fn context_text(context: &ContextInfo) -> String {
    let of = |used: u64, bound: u64| format!("{} of {}", count(used), count(bound));
    let mut rows = vec![
        ["address".to_owned(), context.address.clone()],
        ["sessions".to_owned(), of(context.sessions.into(), context.max_sessions.into())],
        ["buffers in use".to_owned(), of(context.buffers_in_use, context.buffers)],
        ["memory of the buffers".to_owned(), bytes(context.buffer_bytes)],
        ["turns of the loop".to_owned(), count(context.turns)],
        ["  with something to do".to_owned(), count(context.busy_turns)],
        ["sleeps".to_owned(), count(context.sleeps)],
        ["frames in".to_owned(), count(context.frames_in)],
        ["packets in".to_owned(), count(context.packets_in)],
        ["packets out".to_owned(), count(context.packets_out)],
        ["packets sent again".to_owned(), count(context.packets_resent)],
        ["records in".to_owned(), count(context.records_in)],
        ["records out".to_owned(), count(context.records_out)],
        ["batches passed whole".to_owned(), count(context.batches_whole)],
    ];
    rows.extend(context.dropped.iter().map(|(reason, number)| [format!("dropped: {reason}"), count(*number)]));
    let headings = [("context", Side::Left), ("", Side::Right)];
    render(&headings, rows.into_iter().map(Vec::from), Width::of_stdout())
}

/// `crossdock explain`.
pub(crate) fn explain(arguments: &Explain) -> Outcome {
    let question = ExplainRequest { sql: arguments.sql.clone() };
    let plan: ExplainInfo = Client::new(arguments.control.socket.as_deref())?.post("/v1/explain", &question)?;
    if arguments.json {
        return out::print_json(&plan);
    }
    out::print(explain_text(&plan))
}

fn explain_text(plan: &ExplainInfo) -> String {
    let indented = |text: &str| -> String { text.lines().map(|line| format!("  {line}\n")).collect() };
    let mut text = format!("stream {} in format {}\n\nplan\n{}", plan.stream, plan.format, indented(&plan.plan));
    text += &format!("\nplace\n{}\ncost\n", indented(&plan.place));
    match plan.ns_per_record {
        Some(ns) => text += &format!("  {ns:.0} ns a record, measured on the latest {}\n", count(plan.sample_records)),
        None => text += "  unknown: no record of the stream has come yet to measure it on\n",
    }
    if let Some(share) = plan.selectivity {
        text += &format!("  {:.1} % of them pass\n", share * 100.0);
    }
    text + "\noutput\n" + &indented(&plan.output)
}

fn client(arguments: &List) -> Outcome<Client> {
    Client::new(arguments.control.socket.as_deref())
}

fn objects(list: &[impl Serialize]) -> Outcome {
    list.iter().try_for_each(out::print_json)
}

fn table(headings: &[(&str, Side)], rows: impl Iterator<Item = Vec<String>>, empty: &str) -> Outcome {
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        out::say(empty);
        return Ok(());
    }
    out::print(render(headings, rows, Width::of_stdout()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_shows_what_is_known_of_its_cost() {
        let mut plan = ExplainInfo {
            stream: "A".into(),
            format: "00".into(),
            plan: "filter\nproject".into(),
            place: "c-core 0".into(),
            sample_records: 0,
            ns_per_record: None,
            selectivity: None,
            output: "carrier char[2]".into(),
        };
        assert!(explain_text(&plan).contains("plan\n  filter\n  project\n"));
        assert!(explain_text(&plan).contains("unknown: no record"));
        (plan.sample_records, plan.ns_per_record, plan.selectivity) = (1000, Some(12.3), Some(0.005));
        let text = explain_text(&plan);
        assert!(text.contains("12 ns a record, measured on the latest 1,000") && text.contains("0.5 % of them pass"));
    }
}
