//! `streams`, `tables`, `subscriptions`, `contexts`, `clients`, `mailboxes` and `explain`: what the daemon says of itself.

use crossdock_runtime::info::{
    ClientInfo, Described, ExplainInfo, HandlerContextInfo, HandlerInfo, InputStep, MailboxInfo, SessionInfo,
    StreamInfo, SubscriptionInfo, TableInfo,
};
use hyper::Method;
use serde::Serialize;

use crate::cli::{Explain, List, SetSubscription};
use crate::conversions::{format_named, named, way};
use crate::failure::Outcome;
use crate::formats;
use crate::http::client::Client;
use crate::http::{ExplainRequest, SubscriptionQuery};
use crate::quantity::{bytes, count, counted};
use crate::show::{self, Column, core_time};
use crate::table::{Side, Width, push_lines, render};
use crate::{http, out};

/// `crossdock streams`.
pub(crate) fn streams(arguments: &List) -> Outcome {
    let http::Streams { streams } = client(arguments)?.get("/v1/streams")?;
    reports(arguments, &STREAM_COLUMNS, &streams, "no streams: `crossdock publish` creates one")
}

const STREAM_COLUMNS: [Column<StreamInfo>; 9] = [
    Column::Of("name"),
    Column::Made("produced by", Side::Left, made_by),
    Column::Of("subscriptions"),
    Column::Of("records_in"),
    Column::Of("bytes_in"),
    Column::Of("records_unclaimed"),
    Column::Of("records_malformed"),
    Column::Of("records_dropped"),
    Column::Of("policy"),
];

fn made_by(stream: &StreamInfo) -> String {
    let held_back = if stream.blocked > 0 { " (held back)" } else { "" };
    let publishers = || counted(stream.publishers.into(), "publisher") + held_back;
    stream.made_by.as_ref().map_or_else(publishers, |handler| format!("handler {handler}"))
}

/// `crossdock subscriptions`.
pub(crate) fn subscriptions(arguments: &List) -> Outcome {
    let http::Subscriptions { subscriptions } = client(arguments)?.get("/v1/subscriptions")?;
    let empty = "no subscriptions: `crossdock subscribe` creates one";
    reports(arguments, &subscription_columns(&subscriptions), &subscriptions, empty)
}

/// The columns of a list of subscriptions: those about state where a query keeps some.
fn subscription_columns(subscriptions: &[SubscriptionInfo]) -> Vec<Column<SubscriptionInfo>> {
    let has_state = subscriptions.iter().any(|subscription| subscription.taken + subscription.rows_made > 0);
    let is_shown = |column: &Column<_>| has_state || !matches!(column, Column::Of("taken" | "rows_made"));
    SUBSCRIPTION_COLUMNS.into_iter().filter(is_shown).collect()
}

/// `crossdock subscriptions set`.
pub(crate) fn set_query(arguments: &SetSubscription) -> Outcome {
    let SetSubscription { id, sql, answer } = arguments;
    let request = SubscriptionQuery { sql: sql.clone() };
    let changed = Client::new(&answer.control)?.ask(Method::PUT, &format!("/v1/subscriptions/{id}"), &request)?;
    formats::report(changed, answer.json)
}

const SUBSCRIPTION_COLUMNS: [Column<SubscriptionInfo>; 12] = [
    Column::Of("id"),
    Column::Of("peer"),
    Column::Of("published"),
    Column::Of("records_out"),
    Column::Of("filtered"),
    Column::Of("taken"),
    Column::Of("rows_made"),
    Column::Made("reduced", Side::Right, reduced),
    Column::Made("dropped", Side::Right, dropped),
    Column::Of("in_flight"),
    Column::Made("backlog", Side::Right, |subscription| bytes(subscription.backlog_bytes)),
    Column::Of("sql"),
];

/// The records that a slow subscriber did not get since its query conflates or samples them.
fn reduced(subscription: &SubscriptionInfo) -> String {
    match (subscription.conflated, subscription.sampled) {
        (0, 0) => count(0),
        (conflated, 0) => format!("{} conflated", count(conflated)),
        (_, sampled) => format!("{} sampled", count(sampled)),
    }
}

/// The records that a subscription has lost, with the cause of most of them.
fn dropped(subscription: &SubscriptionInfo) -> String {
    let lost = count(losses::of_subscription(subscription));
    let main = subscription.dropped_by.iter().max_by_key(|(_, records)| *records);
    main.map_or_else(|| lost.clone(), |(cause, _)| format!("{lost} {cause}"))
}

/// `crossdock contexts`.
pub(crate) fn contexts(arguments: &List) -> Outcome {
    let http::Contexts { contexts, platform, control } = client(arguments)?.get("/v1/contexts")?;
    if arguments.json {
        objects(&contexts)?;
        objects(&platform)?;
        return out::print_json(&control);
    }
    let width = Width::of_stdout();
    let mut texts = vec![context_table(&platform, width)];
    texts.extend(contexts.iter().map(|context| counters(&context.address, context)));
    texts.extend(platform.iter().map(|context| counters(&context.name, context)));
    texts.push(counters("control", &control));
    out::print(texts.join("\n"))
}

const CONTEXT_COLUMNS: [Column<HandlerContextInfo>; 8] = [
    Column::Made("context", Side::Left, context_name),
    Column::Of("cpu"),
    Column::Of("handlers"),
    Column::Of("busy_share"),
    Column::Of("headroom_ns_per_s"),
    Column::Of("headroom_bytes_per_s"),
    Column::Of("queued"),
    Column::Of("rate_msgs_per_s"),
];

/// The contexts in brief. Bandwidth is shown where it is bounded.
fn context_table(platform: &[HandlerContextInfo], width: Width) -> String {
    let is_bounded = platform.iter().any(|context| context.capacity_bytes_per_s.is_some());
    let is_shown = |column: &Column<_>| is_bounded || !matches!(column, Column::Of("headroom_bytes_per_s"));
    let columns: Vec<_> = CONTEXT_COLUMNS.into_iter().filter(is_shown).collect();
    show::table(&columns, platform, width)
}

fn context_name(context: &HandlerContextInfo) -> String {
    let others = context.shares.iter().filter(|other| **other != context.name);
    let lost = if context.lost.is_some() { " (does not answer)" } else { "" };
    others.fold(context.name.clone(), |name, other| format!("{name} (with {other})")) + lost
}

/// All fields of a report, one a line: there are few such reports, and many fields.
fn counters<T: Described>(name: &str, report: &T) -> String {
    let lines = show::lines(report).into_iter().map(Vec::from);
    render(&[(name, Side::Left), ("", Side::Right)], lines, Width::of_stdout())
}

/// `crossdock sessions`.
pub(crate) fn sessions(arguments: &List) -> Outcome {
    let http::Sessions { sessions } = client(arguments)?.get("/v1/sessions")?;
    let empty = "no sessions over packets: `crossdock subscribe --transport udp` has one while it runs";
    reports(arguments, &SESSION_COLUMNS, &sessions, empty)
}

const SESSION_COLUMNS: [Column<SessionInfo>; 8] = [
    Column::Made("peer", Side::Left, |session| match &session.route {
        Some(route) => format!("over {route}"),
        None => session.peer.clone(),
    }),
    Column::Made("uses", Side::Left, |session| uses(&session.publishes, session.subscriptions, 0)),
    Column::Of("packet_bytes"),
    Column::Of("rtt_ns"),
    Column::Of("window_bytes"),
    Column::Of("loss"),
    Column::Of("bytes_out"),
    Column::Of("bytes_in"),
];

/// `crossdock clients`.
pub(crate) fn clients(arguments: &List) -> Outcome {
    let http::Clients { clients } = client(arguments)?.get("/v1/clients")?;
    let empty = "no clients: `crossdock subscribe` on this machine is one while it runs";
    reports(arguments, &CLIENT_COLUMNS, &clients, empty)
}

const CLIENT_COLUMNS: [Column<ClientInfo>; 7] = [
    Column::Made("client", Side::Left, |client| format!("{} (pid {} {})", client.id, client.pid, client.process)),
    Column::Of("domain"),
    Column::Made("uses", Side::Left, |client| uses(&client.publishes, client.subscriptions, client.mailboxes)),
    Column::Of("messages_in"),
    Column::Of("messages_out"),
    Column::Of("bytes_held"),
    Column::Of("waits"),
];

/// The purpose of a client or session.
fn uses(publishes: &[String], subscriptions: u32, mailboxes: u32) -> String {
    let mut uses: Vec<String> = publishes.iter().map(|stream| format!("publishes {stream}")).collect();
    let sides = [(subscriptions, "subscription"), (mailboxes, "mailbox side")];
    uses.extend(sides.into_iter().filter(|(number, _)| *number > 0).map(|(number, what)| counted(number.into(), what)));
    if uses.is_empty() { "-".to_owned() } else { uses.join(", ") }
}

/// `crossdock mailboxes`.
pub(crate) fn mailboxes(arguments: &List) -> Outcome {
    let http::Mailboxes { mailboxes } = client(arguments)?.get("/v1/mailboxes")?;
    let empty = "no mailboxes: `crossdock mailbox create` and programs create them, or [[mailbox]] in the daemon's configuration";
    reports(arguments, &MAILBOX_COLUMNS, &mailboxes, empty)
}

const MAILBOX_COLUMNS: [Column<MailboxInfo>; 7] = [
    Column::Of("address"),
    Column::Of("owner"),
    Column::Made("read by", Side::Left, |mailbox| match &mailbox.upcall {
        Some(task) => format!("task {task}"),
        None if mailbox.direct => format!("{}, directly", counted(mailbox.readers.into(), "reader")),
        None => counted(mailbox.readers.into(), "reader"),
    }),
    Column::Of("depth"),
    Column::Of("bytes"),
    Column::Of("waits"),
    Column::Of("dropped"),
];

/// `crossdock tables`.
pub(crate) fn tables(arguments: &List) -> Outcome {
    let http::TableInfos { tables } = client(arguments)?.get("/v1/tables")?;
    reports(arguments, &TABLE_COLUMNS, &tables, "no tables: [[table]] in the daemon's configuration declares one")
}

const TABLE_COLUMNS: [Column<TableInfo>; 8] = [
    Column::Of("name"),
    Column::Of("key"),
    Column::Of("rows"),
    Column::Of("rows_without_key"),
    Column::Of("bytes"),
    Column::Of("loaded_at_ms"),
    Column::Of("failures"),
    Column::Made("last refused", Side::Left, |table| table.failure.clone().unwrap_or_default()),
];

/// A list of reports.
pub(crate) fn reports<T: Described + Serialize>(
    list: &List,
    columns: &[Column<T>],
    reports: &[T],
    empty: &str,
) -> Outcome {
    if list.json {
        return objects(reports);
    }
    if reports.is_empty() {
        out::say(empty);
        return Ok(());
    }
    out::print(show::table(columns, reports, Width::of_stdout()))
}

/// Records that were lost, for whatever reason.
pub(crate) mod losses {
    use super::{HandlerInfo, StreamInfo, SubscriptionInfo};

    pub(crate) fn of_handler(handler: &HandlerInfo) -> u64 {
        handler.row_errors + handler.dropped.iter().map(|(_, records)| records).sum::<u64>()
    }

    pub(crate) fn of_stream(stream: &StreamInfo) -> u64 {
        stream.records_unclaimed + stream.records_malformed + stream.records_dropped + stream.row_errors
    }

    pub(crate) fn of_subscription(subscription: &SubscriptionInfo) -> u64 {
        subscription.dropped + subscription.row_errors
    }
}

/// `crossdock explain`.
pub(crate) fn explain(arguments: &Explain) -> Outcome {
    let accept = arguments.accept.iter().map(|format| format_named(format, &[])).collect::<Outcome<_>>()?;
    let question = ExplainRequest { sql: arguments.sql.clone().unwrap_or_default(), accept };
    let plan: ExplainInfo = Client::new(&arguments.control)?.post("/v1/explain", &question)?;
    if arguments.json {
        return out::print_json(&plan);
    }
    out::print(explain_text(&plan))
}

fn explain_text(plan: &ExplainInfo) -> String {
    let indented = |text: &str| -> String { text.lines().map(|line| format!("  {line}\n")).collect() };
    let mut text = format!("stream {} in format {}\n\nplan\n{}", plan.stream, plan.format, indented(&plan.plan));
    text += "\nplace\n";
    push_lines(&plan.place, ("  ", 4), &mut text);
    text += "\ncost\n";
    match plan.ns_per_record {
        Some(ns) => text += &format!("  {ns:.0} ns a record, measured on the latest {}\n", count(plan.sample_records)),
        None if plan.is_stateful => text += &inputs_text(plan),
        None => text += "  unknown: no records of this format have come yet to measure it on\n",
    }
    if let (Some(load), false) = (plan.load_ns_per_s, plan.is_stateful) {
        let rate = count(plan.rate_msgs_per_s);
        text += &format!("  {} at {rate} records a second, the stream's peak", core_time(load));
        match plan.headroom_ns_per_s {
            Some(has) if has < load => {
                text += &format!(
                    "; the core has {} left: the query would run as a handler in another context, or be refused",
                    core_time(has)
                );
            }
            Some(has) => text += &format!("; the core has {} left", core_time(has)),
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
            (None, false) => format!("; estimated at {:.0} ns a record", path.ns_per_record),
        };
        text += &format!("  {}: {}{cost}\n", named(&path.from, path.from_version), way(path));
        text += &path.parts.iter().map(|part| format!("    {part}\n")).collect::<String>();
    }
    text + "\noutput\n" + &indented(&plan.output)
}

/// The cost of a query with state, as a tree of its inputs.
fn inputs_text(plan: &ExplainInfo) -> String {
    let mut text = String::new();
    for input in &plan.inputs {
        let (indent, of) = match input.step {
            InputStep::Reduction => (4, "to its reduction"),
            InputStep::Reduced => (2, "reduced, into the state"),
            InputStep::State => (2, "into the state"),
        };
        let begin = format!("{:indent$}-> ", "");
        let title = format!("stream {}, {of}, at {}", input.stream, input.context);
        push_lines(&title, (&begin, indent + 3), &mut text);
        let cost = match (input.ns_per_record, input.load_ns_per_s) {
            (Some(ns), Some(load)) => format!(
                "{ns:.0} ns a record, measured on the latest {}; {} at {} records a second, the peak",
                count(input.sample_records),
                core_time(load),
                count(input.rate_msgs_per_s)
            ),
            _ => "unknown: no records of this format have come yet to measure it on".to_owned(),
        };
        let form = if input.form.is_empty() { String::new() } else { format!("{}; ", input.form) };
        push_lines(&(form + &cost), (&" ".repeat(indent + 5), indent + 7), &mut text);
    }
    let left = plan.headroom_ns_per_s.map(|left| format!("{} left", core_time(left)));
    match (plan.load_ns_per_s, left) {
        (Some(load), Some(left)) => {
            push_lines(&format!("{} in all; its context has {left}", core_time(load)), ("  ", 4), &mut text);
        }
        (None, Some(left)) => push_lines(&format!("its context has {left}"), ("  ", 4), &mut text),
        (_, None) => text += "  unknown\n",
    }
    text
}

pub(crate) fn client(arguments: &List) -> Outcome<Client> {
    Client::new(&arguments.control)
}

pub(crate) fn objects(list: &[impl Serialize]) -> Outcome {
    list.iter().try_for_each(out::print_json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_runtime::info::{ContextInfo, ExplainInputInfo};

    fn lines<T: Described>(columns: &[Column<T>], report: T) -> String {
        let text = show::table(columns, &[report], Width::Columns(80));
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
        let says = |client: &ClientInfo| CLIENT_COLUMNS[2].cell(client);
        assert_eq!(says(&client), "-");
        (client.publishes, client.subscriptions, client.mailboxes) = (vec!["A".into(), "B".into()], 1, 2);
        assert_eq!(says(&client), "publishes A, publishes B, 1 subscription, 2 mailbox sides");
        let text = lines(&CLIENT_COLUMNS, client);
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
        let cells = |mailbox: &MailboxInfo| MAILBOX_COLUMNS.map(|column| column.cell(mailbox));
        assert_eq!(cells(&mailbox)[2..4], ["1 reader", "1,024 of 1,024"]);
        assert_eq!(cells(&mailbox)[6], "0");
        mailbox.direct = true;
        assert_eq!(cells(&mailbox)[2], "1 reader, directly");
        (mailbox.upcall, mailbox.dropped) = (Some("echo".into()), vec![("closed".into(), 1200), ("full".into(), 1)]);
        assert_eq!(cells(&mailbox)[2], "task echo");
        assert_eq!(cells(&mailbox)[6], "1,200 closed, 1 full");
        lines(&MAILBOX_COLUMNS, mailbox);
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
        let text = counters("context", &context);
        let has = |name: &str, value: &str| text.lines().any(|line| line.starts_with(name) && line.ends_with(value));
        assert!(has("attached clients", "2 of 1,024") && has("mailboxes", "3 of 4,096"), "{text}");
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
        let text = context_table(std::slice::from_ref(&context), Width::Unbounded);
        for wanted in ["c-core-1 (with c-core-2)", " late, totals ", " 26 % ", " 544 ms/s ", " 3 of 256 ", " 2,100,000"]
        {
            assert!(text.contains(wanted), "no `{wanted}` in {text}");
        }
        assert!(!text.contains("bandwidth"), "{text}");
        (context.capacity_bytes_per_s, context.headroom_bytes_per_s) = (Some(125_000_000), Some(12_000_000));
        context.lost = Some("it is in a handler".into());
        let text = context_table(std::slice::from_ref(&context), Width::Unbounded);
        assert!(text.contains("12.0 MB/s of 125.0 MB/s") && text.contains("(does not answer)"), "{text}");
        lines(&CONTEXT_COLUMNS, context);
    }

    #[test]
    fn a_plan_shows_what_is_known_of_its_cost() {
        let mut plan = ExplainInfo {
            stream: "A".into(),
            format: "00".into(),
            plan: "filter\nproject".into(),
            place: "c-core-0".into(),
            sample_records: 0,
            ns_per_record: None,
            selectivity: None,
            rate_msgs_per_s: 2_100_000,
            load_ns_per_s: None,
            headroom_ns_per_s: None,
            output: "carrier char[2]".into(),
            is_stateful: false,
            inputs: Vec::new(),
            paths: Vec::new(),
        };
        assert!(explain_text(&plan).contains("plan\n  filter\n  project\n"));
        assert!(explain_text(&plan).contains("unknown: no records of this format"));
        (plan.sample_records, plan.ns_per_record, plan.selectivity) = (1000, Some(12.3), Some(0.005));
        let text = explain_text(&plan);
        assert!(text.contains("12 ns a record, measured on the latest 1,000") && text.contains("0.5 % of them pass"));
        (plan.load_ns_per_s, plan.headroom_ns_per_s) = (Some(310_000_000), Some(120_000_000));
        let text = explain_text(&plan);
        let wanted = "  310 ms/s at 2,100,000 records a second, the stream's peak; the core has 120 ms/s left: the \
                      query would run as a handler in another context, or be refused\n";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn a_plan_with_state_shows_its_cost_for_each_stream_and_its_context() {
        let input = |stream: &str, step, context: &str, sample_records| ExplainInputInfo {
            stream: stream.into(),
            step,
            context: context.into(),
            form: "kernel".into(),
            rate_msgs_per_s: 2_100_000,
            sample_records,
            ns_per_record: (sample_records > 0).then_some(61.4),
            load_ns_per_s: (sample_records > 0).then_some(129_000_000),
        };
        let mut plan = ExplainInfo {
            stream: "A, B".into(),
            format: "00, 01".into(),
            plan: "join".into(),
            place: "g-core-0: a handler of its own; subscribers with the same query share it".into(),
            sample_records: 2000,
            ns_per_record: None,
            selectivity: None,
            rate_msgs_per_s: 4_200_000,
            load_ns_per_s: Some(387_000_000),
            headroom_ns_per_s: Some(611_000_000),
            output: "n u64".into(),
            is_stateful: true,
            inputs: vec![
                input("A", InputStep::Reduced, "g-core-0", 500),
                input("A", InputStep::Reduction, "c-core-0", 1000),
                input("B", InputStep::State, "g-core-0", 1000),
            ],
            paths: Vec::new(),
        };
        let expected = "\
place
  g-core-0: a handler of its own; subscribers with the same query share it

cost
  -> stream A, reduced, into the state, at g-core-0
       kernel; 61 ns a record, measured on the latest 500; 129 ms/s at 2,100,000
         records a second, the peak
    -> stream A, to its reduction, at c-core-0
         kernel; 61 ns a record, measured on the latest 1,000; 129 ms/s at
           2,100,000 records a second, the peak
  -> stream B, into the state, at g-core-0
       kernel; 61 ns a record, measured on the latest 1,000; 129 ms/s at
         2,100,000 records a second, the peak
  387 ms/s in all; its context has 611 ms/s left
";
        let text = explain_text(&plan);
        assert!(text.contains(expected), "{text}");
        plan.inputs = vec![input("A", InputStep::State, "g-core-0", 0)];
        plan.load_ns_per_s = None;
        let text = explain_text(&plan);
        let expected = "\
  -> stream A, into the state, at g-core-0
       kernel; unknown: no records of this format have come yet to measure it on
  its context has 611 ms/s left
";
        assert!(text.contains(expected), "{text}");
        (plan.inputs, plan.headroom_ns_per_s) =
            (vec![input(&"long ".repeat(40), InputStep::State, "g-core-0", 9)], None);
        plan.place = format!("it would be refused: {}", "why ".repeat(40));
        assert_eq!(explain_text(&plan).lines().find(|line| line.chars().count() > 80), None);
    }
}
