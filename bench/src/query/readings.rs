//! Readings of many sensors, for windows with many groups.

use super::nexmark::{EVERY_NS, FIRST_NS};
use super::rows::{Rows, StreamFields};
use crate::cpu::Error;
use crossdock_format::{FieldType, RecordBuilder, Value};
use fastrand::Rng;

/// How many sensors there are.
const SENSORS: i64 = 100_000;
const SEED: u64 = 0x0048_4f50;

const READING: StreamFields = (
    "reading",
    &[("sensor", FieldType::I64, false), ("value", FieldType::I64, false), ("ts", FieldType::Timestamp, false)],
);

/// The first `count` readings, each of a sensor by chance.
pub(super) fn readings(count: u64, with_csv: bool) -> Result<Vec<Rows>, Error> {
    let mut rows = Rows::new(READING, with_csv)?;
    let mut row = RecordBuilder::new(&rows.format);
    let mut random = Rng::with_seed(SEED);
    for event in 0..count {
        let (sensor, value) = (random.i64(0..SENSORS), random.i64(0..1000));
        let ts = Value::Timestamp(FIRST_NS + event as i64 * EVERY_NS);
        rows.push(&mut row, event, &[Value::Int(sensor), Value::Int(value), ts])?;
    }
    Ok(vec![rows])
}
