use super::*;
use crossdock_runtime::info::{ClientInfo, SubscriptionInfo};
use crossdock_runtime::{ContextConfig, ContextKind, ContextSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use std::net::{Ipv4Addr, SocketAddr};

use crate::show;

/// A report in which every field has a value of its own; the first has `first`.
fn filled<T: Described + Default + Serialize + DeserializeOwned>(first: u64) -> T {
    let mut report = serde_json::to_value(T::default()).unwrap();
    for (at, field) in T::FIELDS.iter().enumerate() {
        let number = first + at as u64;
        let load = json!({ "time_ns_per_s": number * 1_000_000, "buffers": 1, "bytes_per_s": 2 });
        let candidates = match (field.value)(&T::default()) {
            Value::Integer(_) => vec![json!(number)],
            Value::Number(_) => vec![json!(number as f64 + 0.5)],
            Value::Flag(_) => vec![json!(true)],
            Value::Text(_) => vec![json!(format!("text {number}"))],
            Value::List(_) => vec![json!([format!("text {number}")])],
            Value::Named(_) => vec![json!({ format!("name {number}"): "value" })],
            Value::ByReason(_) => vec![json!([[format!("reason {number}"), number]])],
            Value::Load(_) => vec![load],
            Value::Histogram(_) => {
                vec![json!({ "buckets": [{ "up_to_ns": 1024, "count": number }], "above": 1, "sum_ns": number * 1000 })]
            }
            Value::Absent => vec![json!(number), json!(format!("text {number}")), load],
            Value::Parts(_) => continue,
        };
        let taken = candidates.into_iter().any(|candidate| {
            let mut with = report.clone();
            with[field.name] = candidate;
            let fits = serde_json::from_value::<T>(with.clone()).is_ok();
            report = if fits { with } else { report.take() };
            fits
        });
        assert!(taken, "{}: its name in the JSON is another, or its type is not known here", field.name);
    }
    serde_json::from_value(report).unwrap()
}

fn exposition() -> Exposition {
    Exposition {
        io: vec![filled(1000)],
        control: filled(2000),
        contexts: vec![filled(3000)],
        handlers: vec![filled(4000)],
        streams: vec![filled(5000)],
        mailboxes: vec![filled(6000)],
        tables: vec![filled(7000)],
        process: Process { user_s: 1.5, threads: 3, ..Process::default() },
        omitted: vec![("stream", 7)],
    }
}

/// The value of a field as Prometheus has it.
fn exposed<T: Described>(report: &T, field: &Field<T>) -> f64 {
    let number = match (field.value)(report) {
        Value::Histogram(histogram) => histogram.count() as f64,
        value => value.number().unwrap(),
    };
    match (field.about.unit, field.about.kind) {
        (_, MetricKind::Histogram(_)) => number,
        (Unit::Ns | Unit::NsPerS, _) => number / 1e9,
        (Unit::AtMs, _) => number / 1e3,
        _ => number,
    }
}

/// The sample lines of one metric name.
fn samples<'t>(text: &'t str, name: &str) -> Vec<(&'t str, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &'t str| {
        let (what, value) = line.rsplit_once(' ').unwrap();
        let of = what.split('{').next().unwrap();
        (of == name).then(|| (what, value.parse().unwrap()))
    };
    lines.filter_map(sample).collect()
}

/// Every field of a report is found with its own value where it belongs: the JSON, the lists and, under the name given in
/// `metrics`, the metrics.
fn check<T: Described + Default + Serialize + DeserializeOwned>(report: &T, text: &str, metrics: &[(&str, &str)]) {
    let json = serde_json::to_value(report).unwrap();
    let lines = show::lines(report);
    let mut metrics: Vec<(&str, &str)> = metrics.to_vec();
    for field in T::FIELDS {
        let name = field.name;
        assert!(!field.help.is_empty() && field.help.ends_with(['.', '…']), "{name}: {}", field.help);
        // Metrics and lists have units of their own.
        let units = [" in ns", " in ms", " in s.", " ns a second", " ns per second", " in bytes"];
        assert!(!units.iter().any(|unit| field.help.contains(unit)), "{name}: {}", field.help);
        assert!(field.about.bound.is_none_or(|bound| T::field(bound).is_some()), "{name}");
        assert!(!json[name].is_null(), "{name} is not in {json}");
        let shown = show::text(report, name);
        let title = field.title();
        let is_bound = T::FIELDS.iter().any(|of| of.about.bound == Some(name));
        let value = (field.value)(report);
        match value {
            Value::Integer(number) => assert_eq!(json[name], Json::from(number), "{name}"),
            Value::Text(text) => assert_eq!(json[name], Json::from(text), "{name}"),
            _ => {}
        }
        match value {
            Value::Parts(_) => {}
            Value::ByReason(reasons) => {
                let wanted = [format!("{title}: {}", reasons[0].0), crate::quantity::count(reasons[0].1)];
                assert!(lines.contains(&wanted), "{name}: {lines:?}");
            }
            _ if is_bound => assert!(lines.iter().any(|[_, text]| text.ends_with(&format!(" of {shown}"))), "{name}"),
            Value::Load(_) => {
                assert!(lines.iter().any(|[of, text]| *of == title && text.starts_with(&shown)), "{name}");
            }
            _ => assert!(lines.contains(&[title.into_owned(), shown]), "{name}: {lines:?}"),
        }
        if !matches!(field.about.kind, MetricKind::Counter(_) | MetricKind::Gauge(_) | MetricKind::Histogram(_)) {
            continue;
        }
        let at = metrics.iter().position(|(of, _)| *of == name);
        let (_, metric) = metrics.swap_remove(at.unwrap_or_else(|| panic!("{name} is a metric, and not in the table")));
        let found = samples(text, metric);
        assert_eq!(found.len(), 1, "{name}: {metric} in {text}");
        assert_eq!(found[0].1, exposed(report, field), "{name}: {found:?}");
        assert!(found[0].1 != 0.0, "{metric}");
    }
    assert!(metrics.is_empty(), "no metrics of the report: {metrics:?}");
}

#[test]
fn every_field_is_found_with_its_own_value_in_json_lists_and_metrics() {
    let of = exposition();
    let text = exposition().text().unwrap();
    check(&of.io[0], &text, &IO);
    check(&of.control, &text, &CONTROL);
    check(&of.contexts[0], &text, &CONTEXT);
    check(&of.handlers[0], &text, &HANDLER);
    check(&of.streams[0], &text, &STREAM);
    check(&of.mailboxes[0], &text, &MAILBOX);
    check(&of.tables[0], &text, &TABLE);
    check(&filled::<SubscriptionInfo>(100), "", &[]);
    check(&filled::<ClientInfo>(100), "", &[]);
}

#[test]
fn labels_are_names_that_last_and_reasons() {
    let text = exposition().text().unwrap();
    for wanted in [
        "crossdock_handler_info{handler=\"text 4000\",version=\"4001\",makes=\"text 4005\",status=\"text 4006\",\
         context=\"text 4008\",class=\"text 4010\"} 1",
        "crossdock_handler_records_in_total{handler=\"text 4000\"} ",
        "crossdock_context_turns_total{context=\"text 3000\",kind=\"text 3001\"} ",
        "crossdock_io_turns_total{context=\"text 1000\"} ",
        "crossdock_stream_records_in_total{stream=\"text 5000\"} ",
        "crossdock_mailbox_puts_total{mailbox=\"text 6000\"} ",
        "crossdock_table_loads_total{table=\"text 7000\"} ",
        "crossdock_events_total{kind=\"reason 2002\"} 2002",
        "crossdock_context_batch_wait_seconds_bucket{le=\"0.000001024\",context=\"text 3000\"",
        "process_cpu_time_seconds_total{cpu_mode=\"user\"} 1.5",
        "process_thread_count{} 3",
        "crossdock_metrics_omitted{kind=\"stream\"} 7",
    ] {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
    let label =
        text.lines().find(|line| ["subscription=", "client=", "process="].iter().any(|label| line.contains(label)));
    assert_eq!(label, None);
}

/// The metrics of the I/O contexts are those of each; the lists have their sum.
#[test]
fn each_io_context_has_its_own_series() {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = ContextConfig { listen, ..ContextConfig::default() };
    let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
    config.platform.contexts.extend([io.clone(), io]);
    let daemon = ContextHandle::start(config).unwrap();
    let contexts = daemon.io_contexts().unwrap();
    let text = Exposition::of(&daemon).unwrap().text().unwrap();
    for (metric, of) in [
        ("crossdock_io_buffers_bound", contexts.iter().map(|context| context.buffers).collect::<Vec<u64>>()),
        ("crossdock_sessions_bound", contexts.iter().map(|context| context.max_sessions.into()).collect()),
    ] {
        let found = samples(&text, metric);
        let wanted: Vec<(String, f64)> = ["c-core-0", "c-core-1", "c-core-2"]
            .into_iter()
            .zip(&of)
            .map(|(name, value)| (format!("{metric}{{context=\"{name}\"}}"), *value as f64))
            .collect();
        let found: Vec<(String, f64)> = found.into_iter().map(|(what, value)| (what.to_owned(), value)).collect();
        assert_eq!((found, of.len()), (wanted, 3));
    }
    for name in ["c-core-0", "c-core-1", "c-core-2"] {
        assert!(text.contains(&format!("crossdock_io_turns_total{{context=\"{name}\"}} ")), "{name}: {text}");
    }
    let sum = daemon.context().unwrap();
    let all = |of: fn(&ContextInfo) -> u64| contexts.iter().map(of).sum::<u64>();
    assert_eq!(sum.name, "c-core-0, c-core-1, c-core-2");
    assert_eq!((sum.buffers, sum.max_sessions.into()), (all(|of| of.buffers), all(|of| of.max_sessions.into())));
    assert_eq!(sum.max_mailboxes, contexts[0].max_mailboxes, "they are at the home context");
    daemon.stop().unwrap();
}

#[test]
fn a_histogram_s_ranges_add_up_to_its_count() {
    let text = exposition().text().unwrap();
    let name = "crossdock_change_request_to_effect_seconds";
    let buckets: Vec<f64> = samples(&text, &format!("{name}_bucket")).iter().map(|(_, value)| *value).collect();
    assert_eq!(buckets, [2001.0, 2002.0], "the last range has all");
    assert_eq!(samples(&text, &format!("{name}_count"))[0].1, 2002.0);
    assert_eq!(samples(&text, &format!("{name}_sum"))[0].1, 2001.0 * 1000.0 / 1e9);
    assert!(
        text.contains(&format!("{name}_bucket{{le=\"+Inf\"}} 2002"))
            && text.contains(&format!("# TYPE {name} histogram"))
    );
}

/// The metrics of the fields: names that dashboards have.
const IO: [(&str, &str); 37] = [
    ("sessions", "crossdock_sessions"),
    ("max_sessions", "crossdock_sessions_bound"),
    ("turns", "crossdock_io_turns_total"),
    ("busy_turns", "crossdock_io_busy_turns_total"),
    ("sleeps", "crossdock_io_sleeps_total"),
    ("frames_in", "crossdock_io_frames_in_total"),
    ("packets_in", "crossdock_io_packets_in_total"),
    ("packets_out", "crossdock_io_packets_out_total"),
    ("packets_resent", "crossdock_io_packets_resent_total"),
    ("packets_routed", "crossdock_io_packets_routed_total"),
    ("datagrams_in", "crossdock_io_datagrams_in_total"),
    ("datagrams_missing", "crossdock_io_datagrams_missing"),
    ("network_bytes_in", "crossdock_io_network_in_bytes_total"),
    ("network_bytes_out", "crossdock_io_network_out_bytes_total"),
    ("records_in", "crossdock_io_records_in_total"),
    ("messages_joined", "crossdock_io_messages_joined_total"),
    ("records_queued", "crossdock_io_records_out_total"),
    ("records_unsent", "crossdock_io_records_unsent_total"),
    ("batches_whole", "crossdock_io_batches_whole_total"),
    ("dropped", "crossdock_io_dropped_total"),
    ("buffers_in_use", "crossdock_io_buffers"),
    ("buffers", "crossdock_io_buffers_bound"),
    ("clients", "crossdock_clients"),
    ("max_clients", "crossdock_clients_bound"),
    ("mailboxes", "crossdock_mailboxes"),
    ("max_mailboxes", "crossdock_mailboxes_bound"),
    ("detached", "crossdock_clients_detached_total"),
    ("subscriptions_refused", "crossdock_io_subscriptions_refused_total"),
    ("subscribe_time", "crossdock_subscription_request_to_effect_seconds_count"),
    ("client_messages_in", "crossdock_client_messages_in_total"),
    ("client_messages_out", "crossdock_client_messages_out_total"),
    ("client_bytes_in", "crossdock_client_in_bytes_total"),
    ("client_bytes_out", "crossdock_client_out_bytes_total"),
    ("client_waits", "crossdock_client_waits_total"),
    ("client_bytes_held", "crossdock_client_held_bytes"),
    ("client_quota_used_bytes", "crossdock_client_quota_used_bytes"),
    ("client_quota_bytes", "crossdock_client_quota_used_bound_bytes"),
];
const CONTROL: [(&str, &str); 8] = [
    ("started_at_ms", "process_start_time_seconds"),
    ("change_time", "crossdock_change_request_to_effect_seconds_count"),
    ("events", "crossdock_events_total"),
    ("access_refused", "crossdock_access_refused_total"),
    ("tls_failures", "crossdock_control_tls_failures_total"),
    ("cuts", "crossdock_cuts_total"),
    ("cuts_put_off", "crossdock_cuts_put_off_total"),
    ("cuts_failed", "crossdock_cuts_failed_total"),
];
const CONTEXT: [(&str, &str); 24] = [
    ("handlers", "crossdock_context_handlers"),
    ("busy_share", "crossdock_context_busy_ratio"),
    ("capacity_ns_per_s", "crossdock_context_capacity_ratio"),
    ("headroom_ns_per_s", "crossdock_context_headroom_ratio"),
    ("capacity_bytes_per_s", "crossdock_context_bandwidth_capacity_bytes_per_second"),
    ("headroom_bytes_per_s", "crossdock_context_bandwidth_headroom_bytes_per_second"),
    ("queued", "crossdock_context_queued_batches"),
    ("queue_bound", "crossdock_context_queued_batches_bound"),
    ("buffers_in_use", "crossdock_context_buffers"),
    ("buffers", "crossdock_context_buffers_bound"),
    ("busy_ns", "crossdock_context_busy_seconds_total"),
    ("handler_ns", "crossdock_context_handler_seconds_total"),
    ("batches_in", "crossdock_context_batches_in_total"),
    ("batches_delayed", "crossdock_context_batches_delayed_total"),
    ("records_in", "crossdock_context_records_in_total"),
    ("bytes_in", "crossdock_context_in_bytes_total"),
    ("bytes_out", "crossdock_context_out_bytes_total"),
    ("network_bytes", "crossdock_context_network_bytes_total"),
    ("batch_latency", "crossdock_context_batch_latency_seconds_count"),
    ("batch_wait", "crossdock_context_batch_wait_seconds_count"),
    ("turns", "crossdock_context_turns_total"),
    ("sleeps", "crossdock_context_sleeps_total"),
    ("replaced", "crossdock_context_replaced_total"),
    ("panics", "crossdock_context_panics_total"),
];
const HANDLER: [(&str, &str); 33] = [
    ("predicted", "crossdock_handler_predicted_load_ratio"),
    ("measured", "crossdock_handler_load_ratio"),
    ("limit_ns_per_s", "crossdock_handler_limit_ratio"),
    ("records_in", "crossdock_handler_records_in_total"),
    ("records_out", "crossdock_handler_records_out_total"),
    ("bytes_in", "crossdock_handler_in_bytes_total"),
    ("bytes_out", "crossdock_handler_out_bytes_total"),
    ("batches_in", "crossdock_handler_batches_in_total"),
    ("busy_ns", "crossdock_handler_busy_seconds_total"),
    ("filtered", "crossdock_handler_records_filtered_total"),
    ("taken", "crossdock_handler_records_taken_total"),
    ("late", "crossdock_handler_rows_late_total"),
    ("forgotten", "crossdock_handler_state_forgotten_total"),
    ("stage_errors", "crossdock_handler_stage_errors_total"),
    ("state_bytes", "crossdock_handler_state_bytes"),
    ("state_bytes_bound", "crossdock_handler_state_bound_bytes"),
    ("checkpoints", "crossdock_handler_checkpoints_total"),
    ("checkpoint_failures", "crossdock_handler_checkpoint_failures_total"),
    ("checkpoint_bytes", "crossdock_handler_checkpoint_bytes"),
    ("checkpoint_at_ms", "crossdock_handler_checkpoint_at_seconds"),
    ("gap_records", "crossdock_handler_gap_records"),
    ("row_errors", "crossdock_handler_row_errors_total"),
    ("dropped", "crossdock_handler_dropped_total"),
    ("ns_per_record", "crossdock_handler_record_time_seconds"),
    ("p99_ns_per_record", "crossdock_handler_record_time_p99_seconds"),
    ("overruns", "crossdock_handler_overruns_total"),
    ("faults", "crossdock_handler_faults_total"),
    ("queued", "crossdock_handler_queued_batches"),
    ("queue_bound", "crossdock_handler_queued_batches_bound"),
    ("sampled", "crossdock_handler_one_record_in"),
    ("batches_shed", "crossdock_handler_batches_shed_total"),
    ("degraded", "crossdock_handler_degraded"),
    ("changes", "crossdock_handler_changes_total"),
];
const TABLE: [(&str, &str); 7] = [
    ("rows", "crossdock_table_rows"),
    ("keys", "crossdock_table_keys"),
    ("rows_without_key", "crossdock_table_rows_without_key"),
    ("bytes", "crossdock_table_size_bytes"),
    ("loaded_at_ms", "crossdock_table_loaded_seconds"),
    ("loads", "crossdock_table_loads_total"),
    ("failures", "crossdock_table_failures_total"),
];
const STREAM: [(&str, &str); 23] = [
    ("publishers", "crossdock_stream_publishers"),
    ("subscriptions", "crossdock_stream_subscriptions"),
    ("records_in", "crossdock_stream_records_in_total"),
    ("bytes_in", "crossdock_stream_in_bytes_total"),
    ("records_unclaimed", "crossdock_stream_records_unclaimed_total"),
    ("records_malformed", "crossdock_stream_records_malformed_total"),
    ("blocked", "crossdock_stream_publishers_blocked"),
    ("peak_msgs_per_s", "crossdock_stream_peak_records_per_second"),
    ("records_queued", "crossdock_stream_records_out_total"),
    ("records_unsent", "crossdock_stream_records_unsent_total"),
    ("records_queried", "crossdock_subscription_records_in_total"),
    ("row_errors", "crossdock_subscription_row_errors_total"),
    ("records_offered", "crossdock_subscription_records_offered_total"),
    ("rows_made", "crossdock_subscription_rows_made_total"),
    ("records_filtered", "crossdock_subscription_records_filtered_total"),
    ("records_taken", "crossdock_subscription_records_taken_total"),
    ("records_conflated", "crossdock_subscription_records_conflated_total"),
    ("records_sampled", "crossdock_subscription_records_sampled_total"),
    ("records_in_flight", "crossdock_subscription_records_in_flight"),
    ("records_dropped", "crossdock_subscription_dropped_total"),
    ("backlog_bytes", "crossdock_subscription_backlog_bytes"),
    ("queue_bytes", "crossdock_subscription_backlog_bound_bytes"),
    ("held_records", "crossdock_subscription_held_records"),
];
const MAILBOX: [(&str, &str); 10] = [
    ("writers", "crossdock_mailbox_writers"),
    ("readers", "crossdock_mailbox_readers"),
    ("depth", "crossdock_mailbox_depth_messages"),
    ("bound_messages", "crossdock_mailbox_depth_messages_bound"),
    ("bytes", "crossdock_mailbox_depth_bytes"),
    ("bound_bytes", "crossdock_mailbox_depth_bound_bytes"),
    ("puts", "crossdock_mailbox_puts_total"),
    ("gets", "crossdock_mailbox_gets_total"),
    ("waits", "crossdock_mailbox_waits_total"),
    ("dropped", "crossdock_mailbox_dropped_total"),
];
