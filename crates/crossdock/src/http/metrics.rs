//! `GET /metrics`: what the lists say, as Prometheus reads it (OpenMetrics text).
//!
//! Names are those of OpenTelemetry's semantic conventions where they have one (`process.*`, `messaging.client.*`), as Prometheus
//! writes them, and `crossdock_…` else. Labels are names of what exists: contexts, handlers, streams, subscriptions,
//! clients, mailboxes, and reasons. Of each kind at most [`MAX_OF_A_KIND`] are exposed; the others are counted in
//! `crossdock_metrics_omitted`, so that a scrape has a bound whatever clients make.

use std::fmt;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use crossdock_runtime::info::{
    ClientInfo, ContextInfo, HandlerContextInfo, HandlerInfo, MailboxInfo, StreamInfo, SubscriptionInfo,
};
use crossdock_runtime::{ContextHandle, Stopped};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::ErrorBody;
use super::process::Process;
use super::routes::{ask, error};

/// The most rows of a kind that are exposed: streams, subscriptions, handlers and so on.
const MAX_OF_A_KIND: usize = 1000;
/// What the format calls itself.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counters and gauges for Prometheus, as OpenMetrics text
#[utoipa::path(
    get, path = "/metrics", tag = "lists",
    responses(
        (status = 200, body = String, content_type = "application/openmetrics-text", description = "The metrics"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn metrics(State(context): State<ContextHandle>) -> Response {
    let exposition = match ask(context, Exposition::of).await {
        Ok(exposition) => exposition,
        Err(response) => return response,
    };
    match exposition.text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(fmt::Error) => error(
            axum::http::StatusCode::INTERNAL_SERVER_ERROR,
            "the metrics cannot be written".to_owned(),
            "the lists of the API have the same",
        ),
    }
}

/// The state that one scrape exposes.
#[derive(Debug, Default)]
struct Exposition {
    process: Process,
    io: ContextInfo,
    contexts: Vec<HandlerContextInfo>,
    handlers: Vec<HandlerInfo>,
    streams: Vec<StreamInfo>,
    subscriptions: Vec<SubscriptionInfo>,
    clients: Vec<ClientInfo>,
    mailboxes: Vec<MailboxInfo>,
    /// How many of each kind were omitted.
    omitted: Vec<(&'static str, u64)>,
}

impl Exposition {
    fn of(context: &ContextHandle) -> Result<Exposition, Stopped> {
        let manager = context.manager();
        let mut exposition = Exposition {
            process: Process::read(),
            io: context.context()?,
            contexts: manager.contexts()?,
            handlers: manager.handlers()?,
            streams: context.streams()?,
            subscriptions: context.subscriptions()?,
            clients: context.clients()?,
            mailboxes: context.mailboxes()?,
            omitted: Vec::new(),
        };
        exposition.bound();
        Ok(exposition)
    }

    /// Omits what exceeds the limit per kind.
    fn bound(&mut self) {
        fn bounded<T>(kind: &'static str, list: &mut Vec<T>) -> (&'static str, u64) {
            let omitted = list.len().saturating_sub(MAX_OF_A_KIND);
            list.truncate(MAX_OF_A_KIND);
            (kind, omitted as u64)
        }
        self.omitted = vec![
            bounded("client", &mut self.clients),
            bounded("handler", &mut self.handlers),
            bounded("mailbox", &mut self.mailboxes),
            bounded("stream", &mut self.streams),
            bounded("subscription", &mut self.subscriptions),
        ];
    }

    fn text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Exposition {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        self.process(&mut families)?;
        self.io_context(&mut families)?;
        self.contexts(&mut families)?;
        self.handlers(&mut families)?;
        self.streams(&mut families)?;
        self.subscriptions(&mut families)?;
        self.hosts(&mut families)
    }
}

/// A metric's labels.
type Labels<'a> = Vec<(&'a str, &'a str)>;

/// Where families of metrics are written, one after the other.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    /// A family of counters.
    fn counter<'r>(
        &mut self,
        name: &str,
        help: &str,
        unit: &str,
        rows: impl IntoIterator<Item = (Labels<'r>, f64)>,
    ) -> fmt::Result {
        let unit = unit_of(unit);
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        rows.into_iter().try_for_each(|(labels, value)| match value.fract() {
            // As a whole number, which it is most often.
            0.0 => ConstCounter::new(value as u64).encode(family.encode_family(&labels)?),
            _ => ConstCounter::new(value).encode(family.encode_family(&labels)?),
        })
    }

    /// A family of gauges.
    fn gauge<'r>(
        &mut self,
        name: &str,
        help: &str,
        unit: &str,
        rows: impl IntoIterator<Item = (Labels<'r>, f64)>,
    ) -> fmt::Result {
        let unit = unit_of(unit);
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        rows.into_iter().try_for_each(|(labels, value)| ConstGauge::new(value).encode(family.encode_family(&labels)?))
    }
}

const NO_UNIT: &str = "";
const SECONDS: &str = "seconds";
const BYTES: &str = "bytes";
/// Share of a whole.
const RATIO: &str = "ratio";

fn unit_of(word: &str) -> Option<Unit> {
    (word != NO_UNIT).then(|| Unit::Other(word.to_owned()))
}

/// ns of a second, as a share of it.
const OF_A_SECOND: f64 = 1e-9;

fn by_reason<'a>(mut labels: Labels<'a>, reason: &'a str, number: u64) -> (Labels<'a>, f64) {
    labels.push(("reason", reason));
    (labels, number as f64)
}

impl Exposition {
    fn process(&self, families: &mut Families<'_>) -> fmt::Result {
        let process = &self.process;
        let modes = [("user", process.user_s), ("system", process.system_s)];
        let modes = modes.map(|(mode, seconds)| (vec![("cpu_mode", mode)], seconds));
        families.counter("process_cpu_time", "CPU time of the daemon", SECONDS, modes)?;
        for (name, help, unit, value) in [
            ("process_memory_usage", "Memory of the daemon that is in RAM", BYTES, process.resident_bytes),
            ("process_memory_virtual", "Addresses that the daemon has", BYTES, process.virtual_bytes),
            ("process_thread_count", "Threads of the daemon", NO_UNIT, process.threads),
            (
                "process_unix_file_descriptor_count",
                "Descriptors that the daemon has open",
                NO_UNIT,
                process.descriptors,
            ),
        ] {
            families.gauge(name, help, unit, [(vec![], value as f64)])?;
        }
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        families.gauge("crossdock_daemon", "The daemon's version", NO_UNIT, [(version, 1.0)])?;
        let omitted = self.omitted.iter().map(|(kind, number)| (vec![("kind", *kind)], *number as f64));
        families.gauge("crossdock_metrics_omitted", "Series omitted by the limit per kind", NO_UNIT, omitted)
    }

    /// The I/O context.
    fn io_context(&self, families: &mut Families<'_>) -> fmt::Result {
        let io = &self.io;
        for (name, help, value) in [
            ("crossdock_io_turns", "Turns of the loop", io.turns),
            ("crossdock_io_busy_turns", "Turns in which something came in", io.busy_turns),
            ("crossdock_io_sleeps", "Times that it slept until something came", io.sleeps),
            ("crossdock_io_frames_in", "Super-packets and packets in", io.frames_in),
            ("crossdock_io_packets_in", "Packets in", io.packets_in),
            ("crossdock_io_packets_out", "Packets out, sent for the first time", io.packets_out),
            ("crossdock_io_packets_resent", "Packets sent again", io.packets_resent),
            ("crossdock_io_records_in", "Records in", io.records_in),
            ("crossdock_io_records_out", "Records out, over all subscriptions", io.records_out),
            ("crossdock_io_batches_whole", "Batches that left as the bytes that they came in", io.batches_whole),
            ("crossdock_io_subscriptions_refused", "Subscriptions that do not fit", io.subscriptions_refused),
        ] {
            families.counter(name, help, NO_UNIT, [(vec![], value as f64)])?;
        }
        for (name, help, value, bound) in [
            ("crossdock_sessions", "Sessions that stand", u64::from(io.sessions), io.max_sessions.into()),
            ("crossdock_clients", "Clients that are attached", io.clients.into(), io.max_clients.into()),
            ("crossdock_mailboxes", "Mailboxes that are there", io.mailboxes.into(), io.max_mailboxes.into()),
            ("crossdock_io_buffers", "Buffers in use", io.buffers_in_use, io.buffers),
        ] {
            families.gauge(name, help, NO_UNIT, [(vec![], value as f64)])?;
            families.gauge(&format!("{name}_bound"), "The bound on them", NO_UNIT, [(vec![], bound as f64)])?;
        }
        let dropped = io.dropped.iter().map(|(reason, number)| by_reason(vec![], reason, *number));
        families.counter("crossdock_io_dropped", "Packets and records dropped", NO_UNIT, dropped)?;
        let detached = io.detached.iter().map(|(reason, number)| by_reason(vec![], reason, *number));
        families.counter("crossdock_clients_detached", "Clients that were detached", NO_UNIT, detached)
    }

    fn contexts(&self, families: &mut Families<'_>) -> fmt::Result {
        let rows = |value: fn(&HandlerContextInfo) -> f64| {
            self.contexts.iter().map(move |of| (vec![("context", &*of.name), ("kind", &*of.kind)], value(of)))
        };
        let name = "crossdock_context_busy";
        families.gauge(name, "Share of the last second in which it worked", RATIO, rows(|of| of.busy_share))?;
        let name = "crossdock_context_capacity";
        let help = "Time that it has in a second, of a core's";
        families.gauge(name, help, RATIO, rows(|of| of.capacity_ns_per_s as f64 * OF_A_SECOND))?;
        let name = "crossdock_context_headroom";
        let help = "Time that is left for further handlers in a second, of a core's";
        families.gauge(name, help, RATIO, rows(|of| of.headroom_ns_per_s as f64 * OF_A_SECOND))?;
        let name = "crossdock_context_network";
        let help = "Bytes a second that its device received and sent, in the last second";
        families.gauge(name, help, BYTES, rows(|of| of.network_bytes_per_s as f64))?;
        // Only of those that are bounded.
        let bandwidth = |value: fn(&HandlerContextInfo) -> Option<u64>| {
            let value = move |of: &HandlerContextInfo| value(of).map(|bytes| bytes as f64);
            self.contexts
                .iter()
                .filter_map(move |of| value(of).map(|bytes| (vec![("context", &*of.name), ("kind", &*of.kind)], bytes)))
        };
        let name = "crossdock_context_bandwidth_capacity";
        let help = "What it may carry in a second";
        families.gauge(name, help, BYTES, bandwidth(|of| of.capacity_bytes_per_s))?;
        let name = "crossdock_context_bandwidth_headroom";
        let help = "What it may carry more in a second";
        families.gauge(name, help, BYTES, bandwidth(|of| of.headroom_bytes_per_s))?;
        let name = "crossdock_context_handlers";
        families.gauge(name, "Handlers there", NO_UNIT, rows(|of| of.handlers.len() as f64))?;
        let name = "crossdock_context_queued_batches";
        families.gauge(name, "Batches that wait in its input queues", NO_UNIT, rows(|of| of.queued as f64))?;
        let name = "crossdock_context_queued_batches_bound";
        families.gauge(name, "The bound on them", NO_UNIT, rows(|of| of.queue_bound as f64))?;
        let name = "crossdock_context_buffers";
        families.gauge(name, "Buffers of its pool in use", NO_UNIT, rows(|of| of.buffers_in_use as f64))?;
        let name = "crossdock_context_buffers_bound";
        families.gauge(name, "The bound on them", NO_UNIT, rows(|of| of.buffers as f64))?;
        families.counter("crossdock_context_turns", "Turns of its loop", NO_UNIT, rows(|of| of.turns as f64))?;
        let name = "crossdock_context_sleeps";
        families.counter(name, "Times that it slept until something came", NO_UNIT, rows(|of| of.sleeps as f64))?;
        let name = "crossdock_context_replaced";
        let help = "Times that it was replaced since a handler did not return";
        families.counter(name, help, NO_UNIT, rows(|of| of.replaced as f64))
    }

    fn handlers(&self, families: &mut Families<'_>) -> fmt::Result {
        let rows = |value: fn(&HandlerInfo) -> f64| {
            self.handlers.iter().map(move |handler| (vec![("handler", &*handler.name)], value(handler)))
        };
        let versions: Vec<String> = self.handlers.iter().map(|handler| handler.version.to_string()).collect();
        let about = self.handlers.iter().zip(&versions).map(|(handler, version)| {
            let context = handler.context.as_deref().unwrap_or("");
            let of =
                [("handler", &*handler.name), ("version", version), ("context", context), ("makes", &handler.makes)];
            (of.into_iter().chain([("status", &*handler.status), ("class", &handler.class)]).collect(), 1.0)
        });
        families.gauge("crossdock_handler_info", "Where a handler runs, and how it is", NO_UNIT, about)?;
        type Row = (&'static str, &'static str, fn(&HandlerInfo) -> f64);
        let counters: [Row; 6] = [
            ("records_in", "Records that came in", |of| of.records_in as f64),
            ("records_out", "Records that it made", |of| of.records_out as f64),
            ("row_errors", "Records dropped since an expression failed", |of| of.row_errors as f64),
            ("overruns", "Batches that took longer than its budget", |of| of.overruns as f64),
            ("faults", "Times that it panicked or did not return", |of| of.faults as f64),
            ("changes", "Times that it was replaced, re-parameterised or moved", |of| of.changes as f64),
        ];
        for (name, help, value) in counters {
            families.counter(&format!("crossdock_handler_{name}"), help, NO_UNIT, rows(value))?;
        }
        let name = "crossdock_handler_in";
        families.counter(name, "Payload bytes that came in", BYTES, rows(|of| of.bytes_in as f64))?;
        let name = "crossdock_handler_out";
        families.counter(name, "Payload bytes that it made", BYTES, rows(|of| of.bytes_out as f64))?;
        let dropped = self.handlers.iter().flat_map(|handler| {
            let of = move || vec![("handler", &*handler.name)];
            handler.dropped.iter().map(move |(reason, number)| by_reason(of(), reason, *number))
        });
        families.counter("crossdock_handler_dropped", "Records dropped", NO_UNIT, dropped)?;
        let gauges: [Row; 4] = [
            ("queued_batches", "Batches that wait for it", |of| of.queued as f64),
            ("queued_batches_bound", "The bound on them", |of| of.queue_bound as f64),
            ("one_record_in", "One record in N is let through, where N is the value", |of| f64::from(of.sampled)),
            ("degraded", "Whether it does with less, by its own rule", |of| {
                f64::from(u8::from(!of.degraded.is_empty()))
            }),
        ];
        for (name, help, value) in gauges {
            families.gauge(&format!("crossdock_handler_{name}"), help, NO_UNIT, rows(value))?;
        }
        let name = "crossdock_handler_record_time";
        let help = "Time for a record, the mean of the last second";
        families.gauge(name, help, SECONDS, rows(|of| of.ns_per_record * 1e-9))?;
        let name = "crossdock_handler_load";
        let help = "What it took of a core in the last second";
        families.gauge(name, help, RATIO, rows(|of| of.measured.time_ns_per_s as f64 * OF_A_SECOND))?;
        let name = "crossdock_handler_predicted_load";
        let help = "What it was reckoned to take of a core when it was let in, at the stream's peak rate";
        families.gauge(name, help, RATIO, rows(|of| of.predicted.time_ns_per_s as f64 * OF_A_SECOND))
    }

    fn streams(&self, families: &mut Families<'_>) -> fmt::Result {
        fn of(stream: &str) -> Labels<'_> {
            vec![("messaging_system", "crossdock"), ("messaging_destination_name", stream)]
        }
        let rows = |value: fn(&StreamInfo) -> u64| {
            self.streams.iter().map(move |stream| (vec![("stream", &*stream.name)], value(stream) as f64))
        };
        let consumed = self.streams.iter().map(|stream| (of(&stream.name), stream.records_in as f64));
        let name = "messaging_client_consumed_messages";
        families.counter(name, "Records that came in on a stream", NO_UNIT, consumed)?;
        families.counter("crossdock_stream_in", "Payload bytes that came in", BYTES, rows(|of| of.bytes_in))?;
        type Row = (&'static str, &'static str, fn(&StreamInfo) -> u64);
        let counters: [Row; 2] = [
            ("records_unclaimed", "Records dropped, since nobody subscribed", |of| of.records_unclaimed),
            ("records_malformed", "Records dropped, since they are not what their format says", |of| {
                of.records_malformed
            }),
        ];
        for (name, help, value) in counters {
            families.counter(&format!("crossdock_stream_{name}"), help, NO_UNIT, rows(value))?;
        }
        let gauges: [Row; 4] = [
            ("publishers", "Publishers that have announced it", |of| of.publishers.into()),
            ("publishers_blocked", "Publishers that are held back now", |of| of.blocked.into()),
            ("subscriptions", "Subscriptions to it", |of| of.subscriptions.into()),
            ("peak_records_per_second", "The most records a second, over any 100 ms of the last minute", |of| {
                of.peak_msgs_per_s
            }),
        ];
        for (name, help, value) in gauges {
            families.gauge(&format!("crossdock_stream_{name}"), help, NO_UNIT, rows(value))?;
        }
        Ok(())
    }

    fn subscriptions(&self, families: &mut Families<'_>) -> fmt::Result {
        let ids: Vec<String> = self.subscriptions.iter().map(|subscription| subscription.id.to_string()).collect();
        let each = || self.subscriptions.iter().zip(&ids);
        let sent = each().map(|(subscription, id)| {
            let of = [("messaging_system", "crossdock"), ("messaging_destination_name", &subscription.stream)];
            (of.into_iter().chain([("subscription", &**id)]).collect(), subscription.records_out as f64)
        });
        let name = "messaging_client_sent_messages";
        families.counter(name, "Records that left for a subscription", NO_UNIT, sent)?;
        let rows = |value: fn(&SubscriptionInfo) -> u64| {
            each().map(move |(of, id)| (vec![("subscription", &**id), ("stream", &*of.stream)], value(of) as f64))
        };
        type Row = (&'static str, &'static str, fn(&SubscriptionInfo) -> u64);
        let counters: [Row; 3] = [
            ("records_in", "Records that its query saw", |of| of.records_in),
            ("row_errors", "Records dropped since an expression failed", |of| of.row_errors),
            ("dropped", "Records dropped by its overflow policy", |of| of.dropped),
        ];
        for (name, help, value) in counters {
            families.counter(&format!("crossdock_subscription_{name}"), help, NO_UNIT, rows(value))?;
        }
        let name = "crossdock_subscription_backlog";
        families.gauge(name, "Bytes queued or unacknowledged", BYTES, rows(|of| of.backlog_bytes))?;
        let name = "crossdock_subscription_backlog_bound";
        families.gauge(name, "The bound on them", BYTES, rows(|of| of.queue_bytes))?;
        let name = "crossdock_subscription_held_records";
        families.gauge(name, "Records that wait for a conversion", NO_UNIT, rows(|of| of.held_records))
    }

    /// Attached clients and mailboxes.
    fn hosts(&self, families: &mut Families<'_>) -> fmt::Result {
        let ids: Vec<String> = self.clients.iter().map(|client| client.id.to_string()).collect();
        let rows = |value: fn(&ClientInfo) -> u64| {
            self.clients.iter().zip(&ids).map(move |(client, id)| {
                (
                    vec![("client", &**id), ("process", &*client.process), ("domain", &client.domain)],
                    value(client) as f64,
                )
            })
        };
        let name = "crossdock_client_messages_in";
        families.counter(name, "Messages that it put", NO_UNIT, rows(|of| of.messages_in))?;
        let name = "crossdock_client_messages_out";
        families.counter(name, "Messages that were delivered to it", NO_UNIT, rows(|of| of.messages_out))?;
        let name = "crossdock_client_waits";
        families.counter(name, "Times that it was left to wait for a buffer", NO_UNIT, rows(|of| of.waits))?;
        let name = "crossdock_client_held";
        families.gauge(name, "Bytes of buffers that it holds", BYTES, rows(|of| of.bytes_held))?;
        let name = "crossdock_client_held_bound";
        families.gauge(name, "The bound on them", BYTES, rows(|of| of.quota_bytes))?;
        let rows = |value: fn(&MailboxInfo) -> u64| {
            self.mailboxes.iter().map(move |mailbox| (vec![("mailbox", &*mailbox.address)], value(mailbox) as f64))
        };
        families.counter("crossdock_mailbox_puts", "Messages put into it", NO_UNIT, rows(|of| of.puts))?;
        families.counter("crossdock_mailbox_gets", "Messages taken out of it", NO_UNIT, rows(|of| of.gets))?;
        let name = "crossdock_mailbox_waits";
        families.counter(name, "Times that a writer was left to wait", NO_UNIT, rows(|of| of.waits))?;
        let dropped = self.mailboxes.iter().flat_map(|mailbox| {
            let of = move || vec![("mailbox", &*mailbox.address)];
            mailbox.dropped.iter().map(move |(reason, number)| by_reason(of(), reason, *number))
        });
        families.counter("crossdock_mailbox_dropped", "Messages dropped", NO_UNIT, dropped)?;
        let name = "crossdock_mailbox_depth_messages";
        families.gauge(name, "Messages that wait in it", NO_UNIT, rows(|of| of.depth.into()))?;
        let name = "crossdock_mailbox_depth_messages_bound";
        families.gauge(name, "The bound on them", NO_UNIT, rows(|of| of.bound_messages.into()))?;
        families.gauge("crossdock_mailbox_depth", "Bytes that wait in it", BYTES, rows(|of| of.bytes))?;
        families.gauge("crossdock_mailbox_depth_bound", "The bound on them", BYTES, rows(|of| of.bound_bytes))
    }
}
