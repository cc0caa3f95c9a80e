//! The description of what can be seen. A field of a report is declared once, with its type, help, unit and kind; the
//! JSON and its schema, the lists, the live view and the metrics are made from that declaration.

use super::{DomainInfo, FieldInfo, HandlerInputInfo, HistogramInfo, LoadInfo, PathStep};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A report whose fields are described.
pub trait Described: Sized + 'static {
    /// Its fields, in the order of their declaration.
    const FIELDS: &'static [Field<Self>];

    /// The field of this name.
    #[must_use]
    fn field(name: &str) -> Option<&'static Field<Self>> {
        Self::FIELDS.iter().find(|field| field.name == name)
    }
}

/// One field of a report of type `T`.
#[derive(Debug)]
pub struct Field<T> {
    /// Its name in the JSON.
    pub name: &'static str,
    /// Its meaning, in a sentence.
    pub help: &'static str,
    /// How it is shown and exposed.
    pub about: About,
    /// Whether its values are numbers.
    pub is_number: bool,
    /// Its value in a report.
    pub value: fn(&T) -> Value<'_>,
}

impl<T> Field<T> {
    /// Its heading in lists: its name in words, unless it was given another.
    #[must_use]
    pub fn title(&self) -> Cow<'static, str> {
        match self.about.title {
            Some(title) => title.into(),
            None => self.name.replace('_', " ").into(),
        }
    }
}

/// How a field is shown in lists, and exposed as a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Its kind as a metric, and the metric's name without the unit's suffix.
    pub kind: MetricKind,
    /// The unit of its numbers.
    pub unit: Unit,
    /// Its heading in lists, where that is not its name.
    pub title: Option<&'static str>,
    /// The field that bounds it, by name.
    pub bound: Option<&'static str>,
    /// The label that distinguishes the parts of a number by reason.
    pub by: &'static str,
}

/// The kind of a field as a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It is none.
    Listed,
    /// The label of all metrics of the report, by this name.
    Label(&'static str),
    /// A label of the metric of this name, whose value is 1.
    Info(&'static str),
    /// A number that only grows while the daemon runs.
    Counter(&'static str),
    /// A number that grows and falls.
    Gauge(&'static str),
    /// How many observations fell into each range.
    Histogram(&'static str),
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Records, batches, times …
    One,
    /// Bytes.
    Bytes,
    /// Time, in ns.
    Ns,
    /// Time in s.
    Seconds,
    /// A time of the world's clock, in ms since 1970.
    AtMs,
    /// Time of a core, in ns a second.
    NsPerS,
    /// Bytes a second.
    BytesPerS,
    /// A share of a whole, 0 to 1.
    Share,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// It has none.
    Absent,
    /// A whole number.
    Integer(u64),
    /// A number.
    Number(f64),
    /// Whether something is so.
    Flag(bool),
    /// A text.
    Text(&'a str),
    /// Texts.
    List(&'a [String]),
    /// Texts by name.
    Named(&'a BTreeMap<String, String>),
    /// Numbers by reason.
    ByReason(&'a [(String, u64)]),
    /// A load; as a number, its time.
    Load(&'a LoadInfo),
    /// Observations.
    Histogram(&'a HistogramInfo),
    /// The number of reports, or of numbers, within the report.
    Parts(usize),
}

impl Value<'_> {
    /// It as one number, if it has one: of a list how long it is, of texts by name whether there are any, of numbers by
    /// reason their sum.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match *self {
            Value::Absent | Value::Text(_) | Value::Histogram(_) => None,
            Value::Integer(number) => Some(number as f64),
            Value::Number(number) => Some(number),
            Value::Flag(is_so) => Some(f64::from(u8::from(is_so))),
            Value::List(list) => Some(list.len() as f64),
            Value::Named(named) => Some(f64::from(u8::from(!named.is_empty()))),
            Value::ByReason(reasons) => Some(reasons.iter().map(|(_, number)| *number).sum::<u64>() as f64),
            Value::Load(load) => Some(load.time_ns_per_s as f64),
            Value::Parts(number) => Some(number as f64),
        }
    }
}

const fn about(kind: MetricKind) -> About {
    About { kind, unit: Unit::One, title: None, bound: None, by: "reason" }
}

/// A field that is no metric.
pub(crate) const fn listed() -> About {
    about(MetricKind::Listed)
}

/// The label of all metrics of its report.
pub(crate) const fn label(name: &'static str) -> About {
    about(MetricKind::Label(name))
}

/// A label of this metric, by the field's name.
pub(crate) const fn info(metric: &'static str) -> About {
    about(MetricKind::Info(metric))
}

/// A counter.
pub(crate) const fn counter(metric: &'static str) -> About {
    about(MetricKind::Counter(metric))
}

/// A gauge.
pub(crate) const fn gauge(metric: &'static str) -> About {
    about(MetricKind::Gauge(metric))
}

/// A histogram of times.
pub(crate) const fn histogram(metric: &'static str) -> About {
    about(MetricKind::Histogram(metric)).unit(Unit::Ns)
}

impl About {
    pub(crate) const fn unit(self, unit: Unit) -> About {
        About { unit, ..self }
    }

    pub(crate) const fn title(self, title: &'static str) -> About {
        About { title: Some(title), ..self }
    }

    pub(crate) const fn bound(self, field: &'static str) -> About {
        About { bound: Some(field), ..self }
    }

    pub(crate) const fn by(self, label: &'static str) -> About {
        About { by: label, ..self }
    }
}

/// A type that fields have.
pub(super) trait Seen {
    const IS_NUMBER: bool;

    fn seen(&self) -> Value<'_>;
}

macro_rules! seen {
    ($($type:ty, $is_number:literal: $of:ident => $value:expr;)*) => {
        $(impl Seen for $type {
            const IS_NUMBER: bool = $is_number;

            fn seen(&self) -> Value<'_> {
                let $of = self;
                $value
            }
        })*
    };
}

seen! {
    u64, true: of => Value::Integer(*of);
    u32, true: of => Value::Integer((*of).into());
    usize, true: of => Value::Integer(*of as u64);
    f64, true: of => Value::Number(*of);
    bool, false: of => Value::Flag(*of);
    String, false: of => Value::Text(of);
    Vec<String>, false: of => Value::List(of);
    Vec<(String, u64)>, false: of => Value::ByReason(of);
    BTreeMap<String, String>, false: of => Value::Named(of);
    LoadInfo, true: of => Value::Load(of);
    HistogramInfo, false: of => Value::Histogram(of);
    Vec<HandlerInputInfo>, false: of => Value::Parts(of.len());
    Vec<DomainInfo>, false: of => Value::Parts(of.len());
    Vec<PathStep>, false: of => Value::Parts(of.len());
    Vec<FieldInfo>, false: of => Value::Parts(of.len());
    Vec<u32>, false: of => Value::Parts(of.len());
}

impl<T: Seen> Seen for Option<T> {
    const IS_NUMBER: bool = T::IS_NUMBER;

    fn seen(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Absent, Seen::seen)
    }
}

/// Declares reports: structures whose fields may be followed by `= ` and how they are shown and exposed. A field's doc
/// comment is its help everywhere.
macro_rules! reports {
    ($(
        $(#[$($of:tt)*])*
        pub struct $name:ident {
            $($(#[$($attribute:tt)*])* pub $field:ident: $type:ty $(= $about:expr)?,)*
        }
    )*) => {$(
        $(#[$($of)*])*
        #[derive(serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct $name {
            $($(#[$($attribute)*])* pub $field: $type,)*
        }

        impl $crate::info::Described for $name {
            const FIELDS: &'static [$crate::info::Field<$name>] = &[$(
                $crate::info::Field {
                    name: stringify!($field),
                    help: $crate::info::field::help!($([$($attribute)*])*).trim_ascii_start(),
                    about: $crate::info::field::or_listed!($($about)?),
                    is_number: <$type as $crate::info::field::Seen>::IS_NUMBER,
                    value: |of: &$name| $crate::info::field::Seen::seen(&of.$field),
                },
            )*];
        }
    )*};
}

/// The text of the doc comment among attributes.
macro_rules! help {
    () => { "" };
    ([doc = $line:literal] $($others:tt)*) => { concat!($line, $crate::info::field::help!($($others)*)) };
    ([$($other:tt)*] $($others:tt)*) => { $crate::info::field::help!($($others)*) };
}

macro_rules! or_listed {
    () => {
        $crate::info::field::listed()
    };
    ($about:expr) => {
        $about
    };
}

pub(super) use {help, or_listed, reports};
