//! The results of queries that correct what they have given: of each key the last row is the one that counts.

use super::through::PATIENCE;
use crate::cpu::Error;
use crate::process::{end_with_parent, say};
use crossdock_format::{Record, Value};
use crossdock_nectarine::{Event, Subscriber, Transport};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;

/// How far apart two numbers may be that are the same but for rounding, as a part of them.
const ROUNDING: f64 = 1e-9;

/// The rows that there should be, by key, and whether the last one that came is that.
struct Wanted {
    keys: usize,
    rows: HashMap<Vec<i64>, (Vec<f64>, bool)>,
    /// The keys whose last row is the one that there should be.
    right: usize,
}

impl Wanted {
    fn read(keys: usize, path: &Path) -> Result<Wanted, Error> {
        let all: Vec<Vec<f64>> = serde_json::from_str(&std::fs::read_to_string(path)?)?;
        let row =
            |row: Vec<f64>| (row.iter().take(keys).map(|key| *key as i64).collect(), (row[keys..].to_vec(), false));
        Ok(Wanted { keys, rows: all.into_iter().map(row).collect(), right: 0 })
    }

    fn take(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let columns = record.format().fields().len();
        let all: Vec<f64> = (0..columns).map(|column| number(record.get(column))).collect::<Result<_, _>>()?;
        let (key, values) = all.split_at(self.keys);
        let key: Vec<i64> = key.iter().map(|key| *key as i64).collect();
        // Of other keys DuckDB was not asked.
        let Some((wanted, is_right)) = self.rows.get_mut(&key) else { return Ok(()) };
        let is_near = |(one, other): (&f64, &f64)| (one - other).abs() <= ROUNDING * one.abs().max(other.abs());
        let is_now = wanted.len() == values.len() && wanted.iter().zip(values).all(is_near);
        let was = std::mem::replace(is_right, is_now);
        self.right = self.right + usize::from(is_now) - usize::from(was);
        Ok(())
    }
}

fn number(value: Value<'_>) -> Result<f64, Error> {
    match value {
        Value::Int(value) => Ok(value as f64),
        Value::Uint(value) => Ok(value as f64),
        Value::Float(value) => Ok(value),
        Value::Decimal { unscaled, scale } => Ok(unscaled as f64 / 10f64.powi(scale.into())),
        other => Err(format!("{other:?} is no number").into()),
    }
}

/// Takes what a query makes until the last row of each key is the one in the file.
pub(super) fn subscribe(addr: &str, sql: &str, keys: usize, path: &Path) -> Result<(), Error> {
    end_with_parent()?;
    let mut wanted = Wanted::read(keys, path)?;
    let builder = Subscriber::builder(addr).transport(Transport::Udp).sql(sql);
    let mut subscriber = builder.wait_for_stream(PATIENCE).connect()?;
    say(&json!({"ready": true}));
    while wanted.right < wanted.rows.len() {
        match subscriber.next_event(Some(PATIENCE))? {
            None => return Err(format!("of {} keys {} are right in the end", wanted.rows.len(), wanted.right).into()),
            Some(Event::Records(records)) => records.iter().try_for_each(|record| wanted.take(&record))?,
            Some(Event::Dropped { records, reason, .. }) => return Err(format!("{records} dropped: {reason}").into()),
            Some(_) => {}
        }
    }
    say(&json!({"records": wanted.right}));
    Ok(())
}
