//! Reports as people read them: cells, tables and whole reports, made from the declarations of the reports' fields.

use std::borrow::Cow;

use crossdock_runtime::info::{Described, Field, HistogramInfo, LoadInfo, Unit, Value};

use crate::quantity::{bandwidth, bytes, count};
use crate::table::{Side, Width, render};

/// A column of a table of reports.
pub(crate) enum Column<T> {
    /// A field, by its name.
    Of(&'static str),
    /// A column that is made of several fields: a heading, the side, and the text.
    Made(&'static str, Side, fn(&T) -> String),
}

impl<T: Described> Column<T> {
    /// Its heading, and the side that its text keeps to.
    pub(crate) fn heading(&self) -> (Cow<'static, str>, Side) {
        match self {
            Column::Of(name) => {
                let field = field::<T>(name);
                (field.title(), if field.is_number { Side::Right } else { Side::Left })
            }
            Column::Made(heading, side, _) => ((*heading).into(), *side),
        }
    }

    /// Its text for a report.
    pub(crate) fn cell(&self, report: &T) -> String {
        match self {
            Column::Of(name) => cell(report, field(name)),
            Column::Made(_, _, text) => text(report),
        }
    }
}

/// A table of reports, a row each.
pub(crate) fn table<T: Described>(columns: &[Column<T>], reports: &[T], width: Width) -> String {
    let headings: Vec<(Cow<'static, str>, Side)> = columns.iter().map(Column::heading).collect();
    let headings: Vec<(&str, Side)> = headings.iter().map(|(heading, side)| (&**heading, *side)).collect();
    let row = |report: &T| columns.iter().map(|column| column.cell(report)).collect();
    render(&headings, reports.iter().map(row), width)
}

/// All fields of a report that have a value, one a line; numbers by reason one a reason. Reports within it are left out.
pub(crate) fn lines<T: Described>(report: &T) -> Vec<[String; 2]> {
    let is_bound = |name| T::FIELDS.iter().any(|field| field.about.bound == Some(name));
    let mut lines = Vec::new();
    for field in T::FIELDS.iter().filter(|field| !is_bound(field.name)) {
        match (field.value)(report) {
            Value::Parts(_) | Value::Absent => {}
            Value::Text("") | Value::List([]) => {}
            Value::Named(named) if named.is_empty() => {}
            Value::Histogram(histogram) if histogram.count() == 0 => {}
            Value::ByReason(reasons) => {
                let title = field.title();
                lines.extend(reasons.iter().map(|(reason, number)| [format!("{title}: {reason}"), count(*number)]));
            }
            Value::Load(load) => lines.push([field.title().into_owned(), whole_load(load)]),
            _ => lines.push([field.title().into_owned(), cell(report, field)]),
        }
    }
    lines
}

/// The declared field of this name. Names are this program's own, and a test has them all.
fn field<T: Described>(name: &str) -> &'static Field<T> {
    let field = T::field(name);
    debug_assert!(field.is_some(), "no field `{name}`");
    field.unwrap_or(&T::FIELDS[0])
}

/// A field of a report by its name, as in a table.
pub(crate) fn text<T: Described>(report: &T, name: &str) -> String {
    cell(report, field(name))
}

/// A field's value, and its bound where it has one.
fn cell<T: Described>(report: &T, field: &Field<T>) -> String {
    let unit = field.about.unit;
    let text = value_text((field.value)(report), unit);
    let bound = field.about.bound.and_then(T::field).map(|bound| (bound.value)(report));
    match bound {
        None | Some(Value::Absent) => text,
        Some(bound) => format!("{text} of {}", value_text(bound, unit)),
    }
}

fn value_text(value: Value<'_>, unit: Unit) -> String {
    let none_or = |text: String, none: &str| if text.is_empty() { none.to_owned() } else { text };
    match value {
        Value::Absent => "-".to_owned(),
        Value::Integer(number) => number_text(number as f64, unit).unwrap_or_else(|| count(number)),
        Value::Number(number) => number_text(number, unit).unwrap_or_else(|| format!("{number:.1}")),
        Value::Flag(is_so) => if is_so { "yes" } else { "no" }.to_owned(),
        Value::Text(text) => text.to_owned(),
        Value::List(list) => none_or(list.join(", "), "-"),
        Value::Named(named) => {
            let named: Vec<String> = named.iter().map(|(name, value)| format!("{name}={value}")).collect();
            none_or(named.join(", "), "-")
        }
        Value::ByReason(reasons) => {
            let reasons: Vec<String> =
                reasons.iter().map(|(reason, number)| format!("{} {reason}", count(*number))).collect();
            none_or(reasons.join(", "), "0")
        }
        Value::Load(load) => core_time(load.time_ns_per_s),
        Value::Histogram(histogram) => histogram_text(histogram),
        Value::Parts(number) => count(number as u64),
    }
}

/// A number in its unit; none where it has none.
fn number_text(number: f64, unit: Unit) -> Option<String> {
    Some(match unit {
        Unit::One => return None,
        Unit::Bytes => bytes(number as u64),
        Unit::Ns => time(number),
        Unit::Seconds => format!("{number} s"),
        Unit::AtMs => crate::events::time(number as u64, "%Y-%m-%d %H:%M:%S UTC"),
        Unit::NsPerS => core_time(number as u64),
        Unit::BytesPerS => bandwidth(number as u64),
        Unit::Share => format!("{:.0} %", number * 100.0),
    })
}

/// A time: `123 ns`, `1.5 ms`.
fn time(ns: f64) -> String {
    match ns {
        ..999.5 => format!("{ns:.0} ns"),
        ..999_950.0 => format!("{:.1} µs", ns / 1e3),
        ..999_950_000.0 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.1} s", ns / 1e9),
    }
}

/// Time of a core in a second: `12.5 ms/s`.
pub(crate) fn core_time(ns_per_s: u64) -> String {
    match ns_per_s as f64 / 1e6 {
        0.0 => "0".to_owned(),
        ms @ ..0.1 => format!("{ms:.3} ms/s"),
        ms @ ..100.0 => format!("{ms:.1} ms/s"),
        ms => format!("{ms:.0} ms/s"),
    }
}

fn whole_load(load: &LoadInfo) -> String {
    let LoadInfo { time_ns_per_s, buffers, bytes_per_s } = *load;
    format!("{}, {} buffers, {}/s out", core_time(time_ns_per_s), count(buffers), bytes(bytes_per_s))
}

/// Half and 99 of 100 of the observed times.
fn histogram_text(histogram: &HistogramInfo) -> String {
    if histogram.count() == 0 {
        return "-".to_owned();
    }
    let up_to = |part| match (histogram.quantile_ns(part), histogram.buckets.last()) {
        (Some(ns), _) => format!("up to {}", time(ns as f64)),
        (None, Some(last)) => format!("above {}", time(last.up_to_ns as f64)),
        (None, None) => "-".to_owned(),
    };
    format!("half {}, 99 % {}", up_to(0.5), up_to(0.99))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_runtime::info::{BucketInfo, HandlerContextInfo, HandlerInfo};

    #[test]
    fn numbers_are_shown_in_their_units() {
        assert_eq!([0, 50_000, 12_500_000, 310_000_000].map(core_time), ["0", "0.050 ms/s", "12.5 ms/s", "310 ms/s"]);
        let times = [0.0, 123.4, 1500.0, 999_960.0, 2.5e6, 3e9].map(time);
        assert_eq!(times, ["0 ns", "123 ns", "1.5 µs", "1.0 ms", "2.5 ms", "3.0 s"]);
        let context = HandlerContextInfo {
            busy_share: 0.256,
            capacity_bytes_per_s: Some(125_000_000),
            headroom_bytes_per_s: Some(12_000_000),
            handlers: vec!["late".into(), "totals".into()],
            queued: 3,
            queue_bound: 256,
            ..HandlerContextInfo::default()
        };
        let shown =
            ["busy_share", "headroom_bytes_per_s", "handlers", "queued", "cpu"].map(|name| text(&context, name));
        assert_eq!(shown, ["26 %", "12.0 MB/s of 125.0 MB/s", "late, totals", "3 of 256", "-"]);
        assert_eq!(text(&HandlerContextInfo::default(), "headroom_bytes_per_s"), "-");
    }

    #[test]
    fn a_histogram_shows_its_middle_and_its_tail() {
        let bucket = |up_to_ns, count| BucketInfo { up_to_ns, count };
        let mut histogram = HistogramInfo { buckets: vec![bucket(1024, 98), bucket(2048, 2)], above: 0, sum_ns: 1 };
        assert_eq!(histogram_text(&histogram), "half up to 1.0 µs, 99 % up to 2.0 µs");
        histogram.above = 1000;
        assert_eq!(histogram_text(&histogram), "half above 2.0 µs, 99 % above 2.0 µs");
        assert_eq!(histogram_text(&HistogramInfo::default()), "-");
    }

    #[test]
    fn a_whole_report_has_every_field_that_has_a_value_and_bounds_beside_what_they_bound() {
        let handler = HandlerInfo {
            name: "late".into(),
            dropped: vec![("queue_full".into(), 7), ("removed".into(), 1)],
            queue_bound: 64,
            ..HandlerInfo::default()
        };
        let lines = lines(&handler);
        let of =
            |title: &str| lines.iter().filter(|[name, _]| name == title).map(|[_, value]| &**value).collect::<Vec<_>>();
        assert_eq!((of("dropped: queue_full"), of("queued")), (vec!["7"], vec!["0 of 64"]));
        assert!(of("queue bound").is_empty() && of("reason").is_empty() && of("inputs").is_empty(), "{lines:?}");
        assert_eq!(of("batches shed"), ["0"]);
    }
}
