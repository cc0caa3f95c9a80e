//! `GET /metrics`: what the lists say, as Prometheus reads it (OpenMetrics text).
//!
//! Metrics of reports are made from the reports' declarations ([`Described`]); those of the process are here. Names are those of
//! OpenTelemetry's semantic conventions where they have one (`process.*`), as Prometheus writes them, and `crossdock_…` else.
//! Labels are names that outlast connections: contexts, handlers, streams, mailboxes, and reasons. Of each kind at most
//! [`MAX_OF_A_KIND`] are exposed; the others are counted in `crossdock_metrics_omitted`, so that a scrape has a bound whatever
//! clients make.

use std::borrow::Cow;
use std::fmt;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use crossdock_runtime::info::{
    ContextInfo, ControlInfo, Described, Field, HandlerContextInfo, HandlerInfo, HistogramInfo, MailboxInfo,
    MetricKind, StreamInfo, TableInfo, Unit, Value,
};
use crossdock_runtime::{ContextHandle, Stopped};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit as MetricUnit};

use super::ErrorBody;
use super::process::Process;
use super::routes::{ask, error};

/// The most rows of a kind that are exposed: streams, subscriptions, handlers and so on.
const MAX_OF_A_KIND: usize = 1000;
/// The format's own name.
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
    io: Vec<ContextInfo>,
    control: ControlInfo,
    contexts: Vec<HandlerContextInfo>,
    handlers: Vec<HandlerInfo>,
    streams: Vec<StreamInfo>,
    mailboxes: Vec<MailboxInfo>,
    tables: Vec<TableInfo>,
    /// How many of each kind were omitted.
    omitted: Vec<(&'static str, u64)>,
}

impl Exposition {
    fn of(context: &ContextHandle) -> Result<Exposition, Stopped> {
        let manager = context.manager();
        let mut exposition = Exposition {
            process: Process::read(),
            io: context.io_contexts()?,
            control: manager.control(),
            contexts: manager.contexts()?,
            handlers: manager.handlers()?,
            streams: context.streams()?,
            mailboxes: context.mailboxes()?,
            tables: context.tables()?,
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
            bounded("handler", &mut self.handlers),
            bounded("mailbox", &mut self.mailboxes),
            bounded("stream", &mut self.streams),
            bounded("table", &mut self.tables),
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
        families.reports(&self.io)?;
        families.reports(std::slice::from_ref(&self.control))?;
        families.reports(&self.contexts)?;
        families.reports(&self.handlers)?;
        families.reports(&self.streams)?;
        families.reports(&self.mailboxes)?;
        families.reports(&self.tables)
    }
}

impl Exposition {
    fn process(&self, families: &mut Families<'_>) -> fmt::Result {
        let process = &self.process;
        let modes = [("user", process.user_s), ("system", process.system_s)];
        let modes = modes.map(|(mode, seconds)| (labelled("cpu_mode", mode), Value::Number(seconds)));
        let name = "process_cpu_time";
        families.family(Family { name, help: "CPU time of the daemon", unit: Unit::Seconds, kind: COUNTER }, modes)?;
        for (name, help, unit, value) in [
            ("process_memory_usage", "Resident memory of the daemon", Unit::Bytes, process.resident_bytes),
            ("process_memory_virtual", "Virtual memory of the daemon", Unit::Bytes, process.virtual_bytes),
            ("process_thread_count", "Threads of the daemon", Unit::One, process.threads),
            (
                "process_unix_file_descriptor_count",
                "Open file descriptors of the daemon",
                Unit::One,
                process.descriptors,
            ),
        ] {
            families.family(Family { name, help, unit, kind: GAUGE }, [(Vec::new(), Value::Integer(value))])?;
        }
        let version = (labelled("version", env!("CARGO_PKG_VERSION")), Value::Integer(1));
        let family = |name, help| Family { name, help, unit: Unit::One, kind: GAUGE };
        families.family(family("crossdock_daemon", "The daemon's version"), [version])?;
        let omitted = self.omitted.iter().map(|(kind, number)| (labelled("kind", kind), Value::Integer(*number)));
        families.family(family("crossdock_metrics_omitted", "Series omitted by the limit per kind"), omitted)
    }
}

/// A metric's labels.
type Labels<'a> = Vec<(&'static str, Cow<'a, str>)>;

fn labelled<'a>(name: &'static str, value: &'a str) -> Labels<'a> {
    vec![(name, value.into())]
}

const COUNTER: MetricType = MetricType::Counter;
const GAUGE: MetricType = MetricType::Gauge;

/// The head of a family.
#[derive(Clone, Copy)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    unit: Unit,
    kind: MetricType,
}

/// Where families of metrics are written, one after the other.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    /// All metrics of reports of one kind.
    fn reports<T: Described>(&mut self, reports: &[T]) -> fmt::Result {
        let labels: Vec<Labels<'_>> = reports.iter().map(labels).collect();
        let mut infos: Vec<&str> = Vec::new();
        for field in T::FIELDS {
            let (name, kind) = match field.about.kind {
                MetricKind::Counter(name) => (name, COUNTER),
                MetricKind::Gauge(name) => (name, GAUGE),
                MetricKind::Histogram(name) => (name, MetricType::Histogram),
                MetricKind::Info(name) if !infos.contains(&name) => {
                    infos.push(name);
                    let rows = reports.iter().zip(&labels).map(|(report, labels)| {
                        (labels.iter().cloned().chain(info_labels(report, name)).collect(), Value::Integer(1))
                    });
                    let help = "Its state, as labels; the value is 1";
                    self.family(Family { name, help, unit: Unit::One, kind: GAUGE }, rows)?;
                    continue;
                }
                MetricKind::Info(_) | MetricKind::Label(_) | MetricKind::Listed => continue,
            };
            let family = Family { name, help: field.help, unit: field.about.unit, kind };
            let rows = reports.iter().zip(&labels);
            self.family(family, rows.flat_map(|(report, labels)| series(field, report, labels)))?;
        }
        Ok(())
    }

    /// One family with its series.
    fn family<'r>(
        &mut self,
        family: Family<'_>,
        series: impl IntoIterator<Item = (Labels<'r>, Value<'r>)>,
    ) -> fmt::Result {
        let Family { name, help, unit, kind } = family;
        // As Prometheus wants it: the base unit, by its whole name.
        let (suffix, of) = match unit {
            Unit::One => (None, 1.0),
            Unit::Bytes => (Some("bytes"), 1.0),
            Unit::Seconds => (Some("seconds"), 1.0),
            Unit::AtMs => (Some("seconds"), 1e3),
            Unit::Ns => (Some("seconds"), NS_PER_S),
            Unit::NsPerS => (Some("ratio"), NS_PER_S),
            Unit::Share => (Some("ratio"), 1.0),
            Unit::BytesPerS => (Some("bytes_per_second"), 1.0),
        };
        let suffix = suffix.map(|suffix| MetricUnit::Other(suffix.to_owned()));
        let mut encoder = self.0.encode_descriptor(name, help, suffix.as_ref(), kind)?;
        for (labels, value) in series {
            let encoder = encoder.encode_family(&labels)?;
            match (value, kind) {
                (Value::Histogram(histogram), _) => encode_histogram(histogram, encoder)?,
                // Whole numbers are exact.
                (Value::Integer(number), MetricType::Counter) if of == 1.0 => {
                    ConstCounter::new(number).encode(encoder)?;
                }
                (value, MetricType::Counter) => {
                    ConstCounter::new(value.number().unwrap_or(0.0) / of).encode(encoder)?;
                }
                (value, _) => ConstGauge::new(value.number().unwrap_or(0.0) / of).encode(encoder)?,
            }
        }
        Ok(())
    }
}

/// ns in a second.
const NS_PER_S: f64 = 1e9;

fn encode_histogram(histogram: &HistogramInfo, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let ranges = histogram.buckets.iter().map(|bucket| (bucket.up_to_ns as f64 / NS_PER_S, bucket.count));
    let buckets: Vec<(f64, u64)> = ranges.chain([(f64::INFINITY, histogram.above)]).collect();
    encoder.encode_histogram::<NoLabelSet>(histogram.sum_ns as f64 / NS_PER_S, histogram.count(), &buckets, None)
}

/// The series of a field of a report: one, or one a reason; none where it has no value.
fn series<'a, T>(field: &'static Field<T>, report: &'a T, labels: &Labels<'a>) -> Vec<(Labels<'a>, Value<'a>)> {
    match (field.value)(report) {
        Value::Absent => Vec::new(),
        Value::ByReason(reasons) => {
            let of = |(reason, number): &'a (String, u64)| {
                let label = (field.about.by, Cow::from(&**reason));
                (labels.iter().cloned().chain([label]).collect(), Value::Integer(*number))
            };
            reasons.iter().map(of).collect()
        }
        value => vec![(labels.clone(), value)],
    }
}

/// The labels of all metrics of a report.
fn labels<T: Described>(report: &T) -> Labels<'_> {
    let label = |field: &'static Field<T>| match field.about.kind {
        MetricKind::Label(name) => Some((name, text((field.value)(report)))),
        _ => None,
    };
    T::FIELDS.iter().filter_map(label).collect()
}

/// The labels of a metric that says how things are.
fn info_labels<'a, T: Described>(
    report: &'a T,
    metric: &'static str,
) -> impl Iterator<Item = (&'static str, Cow<'a, str>)> {
    let fields = T::FIELDS.iter().filter(move |field| field.about.kind == MetricKind::Info(metric));
    fields.map(|field| (field.name, text((field.value)(report))))
}

/// A value as a label's.
fn text(value: Value<'_>) -> Cow<'_, str> {
    match value {
        Value::Text(text) => text.into(),
        value => value.number().map_or_else(String::new, |number| number.to_string()).into(),
    }
}

#[cfg(test)]
mod tests;
