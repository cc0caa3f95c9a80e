//! `streams`, `subscriptions`, `contexts`, `clients`, `mailboxes` and `explain`: what the daemon says of itself.

use crossdock_runtime::info::{
    ClientInfo, ContextInfo, ExplainInfo, HandlerContextInfo, MailboxInfo, StreamInfo, SubscriptionInfo,
};
use serde::Serialize;

use crate::cli::{Explain, List};
use crate::conversions::{format_named, named, way};
use crate::failure::Outcome;
use crate::handlers::per_mille_of_core;
use crate::http::ExplainRequest;
use crate::http::client::Client;
use crate::quantity::{bandwidth, bytes, count, counted};
use crate::table::{Side, Width, render};
use crate::{http, out};

/// `crossdock streams`.
pub(crate) fn streams(arguments: &List) -> Outcome {
    let http::Streams { streams } = client(arguments)?.get("/v1/streams")?;
    if arguments.json {
        return objects(&streams);
    }
    let row = |stream: &StreamInfo| {
        let held_back = if stream.blocked > 0 { " (held back)" } else { "" };
        let publishers = || counted(stream.publishers.into(), "publisher") + held_back;
        vec![
            stream.name.clone(),
            stream.made_by.as_ref().map_or_else(publishers, |handler| format!("handler {handler}")),
            count(stream.subscriptions.into()),
            count(stream.records_in),
            bytes(stream.bytes_in),
            count(stream.records_unclaimed),
            count(stream.records_malformed),
            stream.policy.clone(),
        ]
    };
    let headings = [
        ("stream", Side::Left),
        ("made by", Side::Left),
        ("subs", Side::Right),
        ("records", Side::Right),
        ("bytes", Side::Right),
        ("unclaimed", Side::Right),
        ("malformed", Side::Right),
        ("policy", Side::Left),
    ];
    table(&headings, streams.iter().map(row), "no streams: `crossdock publish` makes one")
}

/// `crossdock subscriptions`.
pub(crate) fn subscriptions(arguments: &List) -> Outcome {
    let http::Subscriptions { subscriptions } = client(arguments)?.get("/v1/subscriptions")?;
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

/// `crossdock contexts`.
pub(crate) fn contexts(arguments: &List) -> Outcome {
    let http::Contexts { contexts, platform } = client(arguments)?.get("/v1/contexts")?;
    if arguments.json {
        objects(&contexts)?;
        return objects(&platform);
    }
    let mut texts: Vec<String> = contexts.iter().map(context_text).collect();
    if !platform.is_empty() {
        let is_bounded = platform.iter().any(|context| context.capacity_bytes_per_s.is_some());
        let headings: Vec<(&str, Side)> =
            CONTEXT_HEADINGS.into_iter().filter(|(name, _)| is_bounded || *name != BANDWIDTH).collect();
        let rows = platform.iter().map(|context| context_row(context, is_bounded));
        texts.insert(0, render(&headings, rows, Width::of_stdout()));
    }
    out::print(texts.join("\n"))
}

const BANDWIDTH: &str = "bandwidth left";
/// Bandwidth is shown where it is bounded.
const CONTEXT_HEADINGS: [(&str, Side); 8] = [
    ("context", Side::Left),
    ("cpu", Side::Right),
    ("handlers", Side::Left),
    ("busy", Side::Right),
    ("headroom", Side::Right),
    (BANDWIDTH, Side::Right),
    ("queued", Side::Right),
    ("records/s", Side::Right),
];

fn context_row(context: &HandlerContextInfo, has_bandwidth: bool) -> Vec<String> {
    let others = context.shares.iter().filter(|other| **other != context.name);
    let lost = if context.lost.is_some() { " (does not answer)" } else { "" };
    let shares = others.fold(String::new(), |shares, other| format!("{shares} (with {other})"));
    let mut row = vec![
        context.name.clone() + &shares + lost,
        context.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
        if context.handlers.is_empty() { "-".to_owned() } else { context.handlers.join(", ") },
        format!("{:.0} %", context.busy_share * 100.0),
        per_mille_of_core(context.headroom_ns_per_s),
        format!("{} of {}", count(context.queued), count(context.queue_bound)),
        count(context.rate_msgs_per_s),
    ];
    if has_bandwidth {
        let [left, of] = [context.headroom_bytes_per_s, context.capacity_bytes_per_s].map(|bytes| bytes.map(bandwidth));
        row.insert(5, left.zip(of).map_or_else(|| "-".to_owned(), |(left, of)| format!("{left} of {of}")));
    }
    row
}

/// `crossdock clients`.
pub(crate) fn clients(arguments: &List) -> Outcome {
    let http::Clients { clients } = client(arguments)?.get("/v1/clients")?;
    if arguments.json {
        return objects(&clients);
    }
    table(
        &CLIENT_HEADINGS,
        clients.iter().map(client_row),
        "no clients: `crossdock subscribe` on this machine is one while it runs",
    )
}

const CLIENT_HEADINGS: [(&str, Side); 7] = [
    ("client", Side::Left),
    ("domain", Side::Left),
    ("uses", Side::Left),
    ("put", Side::Right),
    ("got", Side::Right),
    ("held", Side::Right),
    ("waits", Side::Right),
];

fn client_row(client: &ClientInfo) -> Vec<String> {
    vec![
        format!("{} (pid {} {})", client.id, client.pid, client.process),
        client.domain.clone(),
        uses(client),
        count(client.messages_in),
        count(client.messages_out),
        bytes(client.bytes_held),
        count(client.waits),
    ]
}

/// What a client is there for.
fn uses(client: &ClientInfo) -> String {
    let mut uses: Vec<String> = client.publishes.iter().map(|stream| format!("publishes {stream}")).collect();
    let sides = [(client.subscriptions, "subscription"), (client.mailboxes, "mailbox side")];
    uses.extend(sides.into_iter().filter(|(number, _)| *number > 0).map(|(number, what)| counted(number.into(), what)));
    if uses.is_empty() { "-".to_owned() } else { uses.join(", ") }
}

/// `crossdock mailboxes`.
pub(crate) fn mailboxes(arguments: &List) -> Outcome {
    let http::Mailboxes { mailboxes } = client(arguments)?.get("/v1/mailboxes")?;
    if arguments.json {
        return objects(&mailboxes);
    }
    table(
        &MAILBOX_HEADINGS,
        mailboxes.iter().map(mailbox_row),
        "no mailboxes: programs make them, or [[mailbox]] in the daemon's configuration",
    )
}

const MAILBOX_HEADINGS: [(&str, Side); 7] = [
    ("mailbox", Side::Left),
    ("owner", Side::Left),
    ("read by", Side::Left),
    ("messages", Side::Right),
    ("bytes", Side::Right),
    ("waits", Side::Right),
    ("dropped", Side::Left),
];

fn mailbox_row(mailbox: &MailboxInfo) -> Vec<String> {
    let readers = match &mailbox.upcall {
        Some(task) => format!("task {task}"),
        None => counted(mailbox.readers.into(), "reader"),
    };
    let dropped: Vec<String> =
        mailbox.dropped.iter().map(|(reason, number)| format!("{} {reason}", count(*number))).collect();
    vec![
        mailbox.address.clone(),
        mailbox.owner.clone(),
        readers,
        format!("{} of {}", count(mailbox.depth.into()), count(mailbox.bound_messages.into())),
        format!("{} of {}", bytes(mailbox.bytes), bytes(mailbox.bound_bytes)),
        count(mailbox.waits),
        if dropped.is_empty() { "0".to_owned() } else { dropped.join(", ") },
    ]
}

/// A context's counters, one a line: there are few contexts and many counters.
fn context_text(context: &ContextInfo) -> String {
    let of = |used: u64, bound: u64| format!("{} of {}", count(used), count(bound));
    let mut rows = vec![
        ["address".to_owned(), context.address.clone()],
        ["sessions".to_owned(), of(context.sessions.into(), context.max_sessions.into())],
        ["clients attached".to_owned(), of(context.clients.into(), context.max_clients.into())],
        ["mailboxes".to_owned(), of(context.mailboxes.into(), context.max_mailboxes.into())],
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
    if context.subscriptions_refused > 0 {
        rows.push(["subscriptions refused".to_owned(), count(context.subscriptions_refused)]);
    }
    rows.extend(context.detached.iter().map(|(reason, number)| [format!("detached: {reason}"), count(*number)]));
    let headings = [("context", Side::Left), ("", Side::Right)];
    render(&headings, rows.into_iter().map(Vec::from), Width::of_stdout())
}

/// `crossdock explain`.
pub(crate) fn explain(arguments: &Explain) -> Outcome {
    let accept = arguments.accept.iter().map(|format| format_named(format)).collect::<Outcome<_>>()?;
    let question = ExplainRequest { sql: arguments.sql.clone(), accept };
    let plan: ExplainInfo = Client::new(&arguments.control)?.post("/v1/explain", &question)?;
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
    if let Some(load) = plan.load_ns_per_s {
        let rate = count(plan.rate_msgs_per_s);
        text += &format!("  {} at {rate} records a second, the stream's peak", per_mille_of_core(load));
        match plan.headroom_ns_per_s {
            Some(has) if has < load => {
                text += &format!(
                    "; the core has {}: it would run as a handler elsewhere, or be refused",
                    per_mille_of_core(has)
                );
            }
            Some(has) => text += &format!("; the core has {}", per_mille_of_core(has)),
            None => {}
        }
        text.push('\n');
    }
    if let Some(share) = plan.selectivity {
        text += &format!("  {:.1} % of them pass\n", share * 100.0);
    }
    if !plan.paths.is_empty() {
        text += "\npaths\n";
    }
    for path in &plan.paths {
        let cost = match (path.measured_ns_per_record, path.is_missing || path.steps.is_empty()) {
            (_, true) => String::new(),
            (Some(ns), false) => {
                format!("; {ns:.0} ns a record, measured on the latest {}", count(path.sample_records))
            }
            (None, false) => format!("; reckoned at {:.0} ns a record", path.ns_per_record),
        };
        text += &format!("  {}: {}{cost}\n", named(&path.from, path.from_version), way(path));
        text += &path.parts.iter().map(|part| format!("    {part}\n")).collect::<String>();
    }
    text + "\noutput\n" + &indented(&plan.output)
}

pub(crate) fn client(arguments: &List) -> Outcome<Client> {
    Client::new(&arguments.control)
}

pub(crate) fn objects(list: &[impl Serialize]) -> Outcome {
    list.iter().try_for_each(out::print_json)
}

pub(crate) fn table(headings: &[(&str, Side)], rows: impl Iterator<Item = Vec<String>>, empty: &str) -> Outcome {
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

    fn lines(headings: &[(&str, Side)], row: Vec<String>) -> String {
        let text = render(headings, [row], Width::Columns(80));
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None, "{text}");
        text
    }

    #[test]
    fn a_client_says_what_it_is_there_for() {
        let mut client = ClientInfo {
            id: 4_294_967_295,
            pid: 4_194_304,
            process: "departures-board".into(),
            uid: 1000,
            domain: "uid 1000".into(),
            messages_in: 123_456_789,
            messages_out: 987_654_321,
            bytes_held: 67_000_000,
            waits: 12_345,
            ..ClientInfo::default()
        };
        assert_eq!(uses(&client), "-");
        (client.publishes, client.subscriptions, client.mailboxes) = (vec!["A".into(), "B".into()], 1, 2);
        assert_eq!(uses(&client), "publishes A, publishes B, 1 subscription, 2 mailbox sides");
        let text = lines(&CLIENT_HEADINGS, client_row(&client));
        assert!(text.contains(" 123,456,789 ") && text.contains(" 63.90 "), "{text}");
    }

    #[test]
    fn a_mailbox_says_who_reads_it_and_what_it_dropped() {
        let mut mailbox = MailboxInfo {
            address: "a-host.example.org/requests-of-departures".into(),
            owner: "client 4294967295 (pid 4194304 departures-board)".into(),
            readers: 1,
            depth: 1024,
            bound_messages: 1024,
            bytes: 33_554_432,
            bound_bytes: 33_554_432,
            waits: 123_456,
            ..MailboxInfo::default()
        };
        assert_eq!(mailbox_row(&mailbox)[2..4], ["1 reader", "1,024 of 1,024"]);
        assert_eq!(mailbox_row(&mailbox)[6], "0");
        (mailbox.upcall, mailbox.dropped) = (Some("echo".into()), vec![("closed".into(), 1200), ("full".into(), 1)]);
        assert_eq!(mailbox_row(&mailbox)[2], "task echo");
        assert_eq!(mailbox_row(&mailbox)[6], "1,200 closed, 1 full");
        lines(&MAILBOX_HEADINGS, mailbox_row(&mailbox));
    }

    #[test]
    fn a_context_shows_what_is_attached_and_why_it_no_longer_is() {
        let context = ContextInfo {
            clients: 2,
            max_clients: 1024,
            mailboxes: 3,
            max_mailboxes: 4096,
            detached: vec![("violation".into(), 1)],
            subscriptions_refused: 3,
            ..ContextInfo::default()
        };
        let text = context_text(&context);
        let has = |name: &str, value: &str| text.lines().any(|line| line.starts_with(name) && line.ends_with(value));
        assert!(has("clients attached", "2 of 1,024") && has("mailboxes", "3 of 4,096"), "{text}");
        assert!(has("detached: violation", " 1"), "{text}");
        assert!(has("subscriptions refused", " 3"), "{text}");
    }

    #[test]
    fn a_context_shows_what_runs_there_and_what_room_it_has() {
        let mut context = HandlerContextInfo {
            name: "c-core-1".into(),
            shares: vec!["c-core-1".into(), "c-core-2".into()],
            handlers: vec!["late".into(), "totals".into()],
            busy_share: 0.256,
            headroom_ns_per_s: 544_000_000,
            queued: 3,
            queue_bound: 256,
            rate_msgs_per_s: 2_100_000,
            ..HandlerContextInfo::default()
        };
        let wanted = ["c-core-1 (with c-core-2)", "-", "late, totals", "26 %", "544 ms/s", "3 of 256", "2,100,000"];
        assert_eq!(context_row(&context, false), wanted);
        assert_eq!(context_row(&context, true)[5], "-");
        (context.capacity_bytes_per_s, context.headroom_bytes_per_s) = (Some(125_000_000), Some(12_000_000));
        let row = context_row(&context, true);
        assert_eq!((&*row[5], row.len()), ("12.0 MB/s of 125.0 MB/s", CONTEXT_HEADINGS.len()));
        lines(&CONTEXT_HEADINGS, row);
    }

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
            rate_msgs_per_s: 2_100_000,
            load_ns_per_s: None,
            headroom_ns_per_s: None,
            output: "carrier char[2]".into(),
            paths: Vec::new(),
        };
        assert!(explain_text(&plan).contains("plan\n  filter\n  project\n"));
        assert!(explain_text(&plan).contains("unknown: no record"));
        (plan.sample_records, plan.ns_per_record, plan.selectivity) = (1000, Some(12.3), Some(0.005));
        let text = explain_text(&plan);
        assert!(text.contains("12 ns a record, measured on the latest 1,000") && text.contains("0.5 % of them pass"));
        (plan.load_ns_per_s, plan.headroom_ns_per_s) = (Some(310_000_000), Some(120_000_000));
        let text = explain_text(&plan);
        let wanted = "  310 ms/s at 2,100,000 records a second, the stream's peak; the core has 120 ms/s: it would run as a handler elsewhere, or be refused\n";
        assert!(text.contains(wanted), "{text}");
    }
}
