//! Compares what the daemon says with the models of its counters.

use super::model::Range;
use super::world::World;
use crossdock_runtime::ContextHandle;
use crossdock_runtime::info::{
    ClientInfo, ContextInfo, ControlInfo, Described, Field, HandlerContextInfo, HandlerInfo, MailboxInfo, MetricKind,
    StreamInfo, SubscriptionInfo, Value,
};
use crossdock_transport::MAX_SUPER_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// All that the daemon says.
pub(crate) struct Reports {
    pub(crate) streams: Vec<StreamInfo>,
    pub(crate) subscriptions: Vec<SubscriptionInfo>,
    pub(crate) context: ContextInfo,
    pub(crate) clients: Vec<ClientInfo>,
    pub(crate) mailboxes: Vec<MailboxInfo>,
    pub(crate) handlers: Vec<HandlerInfo>,
    pub(crate) contexts: Vec<HandlerContextInfo>,
    pub(crate) control: ControlInfo,
}

impl Reports {
    pub(crate) fn of(context: &ContextHandle) -> Reports {
        Reports {
            streams: context.streams().unwrap(),
            subscriptions: context.subscriptions().unwrap(),
            context: context.context().unwrap(),
            clients: context.clients().unwrap(),
            mailboxes: context.mailboxes().unwrap(),
            handlers: context.manager().handlers().unwrap(),
            contexts: context.manager().contexts().unwrap(),
            control: context.manager().control(),
        }
    }
}

/// The expected value of a counter.
pub(crate) enum Expected {
    /// This, or between these.
    Number(Range),
    /// The same for each reason, and nothing for any other.
    ByReason(BTreeMap<String, Range>),
}

impl From<u64> for Expected {
    fn from(exact: u64) -> Expected {
        Expected::Number(exact.into())
    }
}

impl From<Range> for Expected {
    fn from(range: Range) -> Expected {
        Expected::Number(range)
    }
}

/// The expected value of a counter of a report, by the world and all that the daemon says.
pub(crate) type Model<T> = fn(&World, &Reports, &T) -> Expected;

/// A report whose counters have models.
pub(crate) trait Modelled: Described {
    const MODELS: &'static [(&'static str, Model<Self>)];
    /// Counters that have none, and why.
    const WITHOUT: &'static [(&'static str, &'static str)];

    /// By which a failure names it.
    fn name(&self) -> String;
}

/// Whether a field is a counter.
fn is_counter<T: Described + Default>(field: &Field<T>) -> bool {
    let is_metric =
        matches!(field.about.kind, MetricKind::Counter(_) | MetricKind::Gauge(_) | MetricKind::Histogram(_));
    let parts = matches!((field.value)(&T::default()), Value::ByReason(_) | Value::Histogram(_));
    is_metric || field.is_number || parts
}

/// The counters of a report that have neither a model nor a reason to have none.
pub(crate) fn without_model<T: Modelled + Default>() -> Vec<&'static str> {
    let known = |name: &str| {
        T::MODELS.iter().any(|(model, _)| *model == name) || T::WITHOUT.iter().any(|(other, _)| *other == name)
    };
    let counters = T::FIELDS.iter().filter(|field| is_counter(field));
    let mut wrong: Vec<&str> = counters.map(|field| field.name).filter(|name| !known(name)).collect();
    let modelled = T::MODELS.iter().map(|(name, _)| *name).chain(T::WITHOUT.iter().map(|(name, _)| *name));
    wrong.extend(modelled.filter(|name| T::field(name).is_none()));
    wrong
}

/// The counters that do not say what they should.
pub(crate) fn compare(world: &World, reports: &Reports) -> Vec<String> {
    let mut wrong = others(world, reports);
    if !wrong.is_empty() {
        return wrong;
    }
    compare_list(world, reports, &reports.streams, &mut wrong);
    compare_list(world, reports, &reports.subscriptions, &mut wrong);
    compare_list(world, reports, std::slice::from_ref(&reports.context), &mut wrong);
    compare_list(world, reports, &reports.clients, &mut wrong);
    compare_list(world, reports, &reports.mailboxes, &mut wrong);
    compare_list(world, reports, &reports.handlers, &mut wrong);
    compare_list(world, reports, &reports.contexts, &mut wrong);
    compare_list(world, reports, std::slice::from_ref(&reports.control), &mut wrong);
    wrong.extend(world.subscribers.iter().filter_map(|of| of.complaint(world)));
    wrong
}

/// The objects that are there and should not be, or the other way round.
fn others(world: &World, reports: &Reports) -> Vec<String> {
    let of = |what: &str, found: Vec<String>, wanted: Vec<String>| {
        let (found, wanted): (BTreeSet<_>, BTreeSet<_>) = (found.into_iter().collect(), wanted.into_iter().collect());
        (found != wanted).then(|| format!("{what}: {found:?}, not {wanted:?}"))
    };
    let streams = reports.streams.iter().map(|of| of.name.clone()).collect();
    let subscriptions = reports.subscriptions.iter().map(|of| of.id.to_string()).collect();
    let handlers = reports.handlers.iter().map(|of| of.name.clone()).collect();
    let wrong = [
        of("streams", streams, world.streams.keys().cloned().collect()),
        of("subscriptions", subscriptions, world.subscribers.iter().map(|of| of.id.to_string()).collect()),
        of("handlers", handlers, world.handlers.iter().map(|of| of.name.clone()).collect()),
    ];
    wrong.into_iter().flatten().collect()
}

fn compare_list<T: Modelled>(world: &World, reports: &Reports, list: &[T], wrong: &mut Vec<String>) {
    for report in list {
        for (name, model) in T::MODELS {
            let value = (T::field(name).unwrap().value)(report);
            let complaint = match (model(world, reports, report), value) {
                (Expected::ByReason(wanted), Value::ByReason(found)) => by_reason(&wanted, found),
                (Expected::Number(wanted), Value::Histogram(found)) => number(wanted, found.count() as f64),
                (Expected::Number(wanted), value) => number(wanted, value.number().unwrap_or_default()),
                (Expected::ByReason(_), value) => Some(format!("{value:?}, which has no reasons")),
            };
            wrong.extend(complaint.map(|complaint| format!("{} {name}: {complaint}", report.name())));
        }
    }
}

fn number(wanted: Range, found: f64) -> Option<String> {
    (!wanted.has(found)).then(|| format!("{found}, not {wanted:?}"))
}

fn by_reason(wanted: &BTreeMap<String, Range>, found: &[(String, u64)]) -> Option<String> {
    let of = |reason: &str| found.iter().find(|(known, _)| known == reason).map_or(0, |(_, number)| *number);
    let is_known = found.iter().all(|(reason, _)| wanted.contains_key(reason));
    let is_right = is_known && wanted.iter().all(|(reason, range)| range.has(of(reason) as f64));
    (!is_right).then(|| format!("{found:?}, not {wanted:?}"))
}

/// How far a backlog may be over the largest bound that it had: by the last batch, which is longer than a long record here, and by
/// control messages.
const OVER_BACKLOG: f64 = (16 * MAX_SUPER_BYTES + CONTROL_BYTES) as f64;
const CONTROL_BYTES: usize = 16_384;

/// The counters as they were seen last, which only grow, and the largest bounds of backlogs.
#[derive(Default)]
pub(crate) struct Seen(BTreeMap<(String, &'static str), f64>);

impl Seen {
    /// The counters that have fallen, and the gauges that are above their bounds.
    pub(crate) fn take(&mut self, reports: &Reports) -> Vec<String> {
        let mut wrong = Vec::new();
        self.take_list(&reports.streams, &mut wrong);
        self.take_list(&reports.subscriptions, &mut wrong);
        self.take_list(std::slice::from_ref(&reports.context), &mut wrong);
        self.take_list(&reports.clients, &mut wrong);
        self.take_list(&reports.mailboxes, &mut wrong);
        self.take_list(&reports.handlers, &mut wrong);
        self.take_list(&reports.contexts, &mut wrong);
        self.take_list(std::slice::from_ref(&reports.control), &mut wrong);
        wrong
    }

    fn take_list<T: Modelled>(&mut self, list: &[T], wrong: &mut Vec<String>) {
        for report in list {
            for field in T::FIELDS {
                let Some(value) = (field.value)(report).number() else { continue };
                if matches!(field.about.kind, MetricKind::Counter(_)) {
                    let before = self.0.insert((report.name(), field.name), value).unwrap_or_default();
                    if value < before {
                        wrong.push(format!("{} {} fell from {before} to {value}", report.name(), field.name));
                    }
                }
                let bound = field.about.bound.and_then(T::field).and_then(|bound| self.bound(report, bound));
                if let Some(bound) = bound.filter(|bound| value > *bound) {
                    wrong.push(format!("{} {}: {value} of {bound}", report.name(), field.name));
                }
            }
        }
    }

    /// The most that a gauge with this bound may say.
    fn bound<T: Modelled>(&mut self, report: &T, field: &'static Field<T>) -> Option<f64> {
        let bound = (field.value)(report).number()?;
        if field.name != "queue_bytes" {
            return Some(bound);
        }
        let largest = self.0.entry((report.name(), field.name)).or_default();
        *largest = largest.max(bound);
        Some(*largest + OVER_BACKLOG)
    }
}
