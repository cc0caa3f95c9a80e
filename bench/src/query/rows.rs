//! The records of a stream for a benchmark, and the same rows as CSV for DuckDB.

use crate::cpu::Error;
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use std::fmt::Write as _;

/// A stream's name and its fields, each with whether it may be null.
pub(super) type StreamFields = (&'static str, &'static [(&'static str, FieldType, bool)]);

/// A stream's records, in the order of their events.
pub(super) struct Rows {
    pub(super) name: &'static str,
    pub(super) format: Format,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The event of each.
    events: Vec<u64>,
    /// The columns with times.
    pub(super) times: Vec<&'static str>,
    /// As CSV, with a head; empty where it is not wanted.
    pub(super) csv: String,
}

impl Rows {
    /// None yet, of a stream with these fields, as CSV too if that is wanted.
    pub(super) fn new((name, fields): StreamFields, with_csv: bool) -> Result<Rows, Error> {
        let format = Format::natural(fields.iter().map(|(name, ty, may_be_null)| match may_be_null {
            true => FieldSpec::nullable(*name, *ty),
            false => FieldSpec::new(*name, *ty),
        }))?;
        let head: Vec<&str> = fields.iter().map(|(name, ..)| *name).collect();
        let csv = if with_csv { head.join(",") + "\n" } else { String::new() };
        let times = fields.iter().filter(|(_, ty, _)| *ty == FieldType::Timestamp).map(|(name, ..)| *name).collect();
        Ok(Rows { name, format, bytes: Vec::new(), ends: Vec::new(), events: Vec::new(), times, csv })
    }

    /// The records of the events from one, before another.
    pub(super) fn of_events(&self, from: u64, to: u64) -> impl Iterator<Item = &[u8]> {
        let place = |event| self.events.partition_point(|&found| found < event);
        let (first, behind) = (place(from), place(to));
        (first..behind).map(|at| &self.bytes[if at == 0 { 0 } else { self.ends[at - 1] }..self.ends[at]])
    }

    /// The number behind that of its last event.
    pub(super) fn behind(&self) -> u64 {
        self.events.last().map_or(0, |last| last + 1)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds the record of an event, which is not before the last one's.
    pub(super) fn push(&mut self, row: &mut RecordBuilder, event: u64, values: &[Value<'_>]) -> Result<(), Error> {
        row.clear();
        for (field, value) in values.iter().enumerate() {
            match value {
                Value::Null => row.set_null(field)?,
                value => row.set(field, *value)?,
            }
        }
        self.bytes.extend_from_slice(row.finish()?);
        self.ends.push(self.bytes.len());
        self.events.push(event);
        if !self.csv.is_empty() {
            write_csv(&mut self.csv, values)?;
        }
        Ok(())
    }
}

/// A line of CSV; the values need no quotes. Times are in whole microseconds since 1970.
fn write_csv(csv: &mut String, values: &[Value<'_>]) -> Result<(), Error> {
    for (at, value) in values.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        match value {
            Value::Null => write!(csv, "{comma}")?,
            Value::Int(value) => write!(csv, "{comma}{value}")?,
            Value::Float(value) => write!(csv, "{comma}{value}")?,
            Value::Timestamp(ns) => write!(csv, "{comma}{}", ns / 1000)?,
            Value::Text(text) => write!(csv, "{comma}{}", std::str::from_utf8(text)?)?,
            other => return Err(format!("no record has {other:?}").into()),
        }
    }
    csv.push('\n');
    Ok(())
}
