//! What a handler costs on records of its stream, measured before it is let in; and the records that it makes of them.

use crate::platform::making::{Maker, Making};
use crossdock_control::load::Cost;
use crossdock_engine::{Handler, MakeError};
use crossdock_format::{Format, RecordBuilder};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use std::time::Instant;

/// The cost, and what came of the sample.
pub(crate) fn cost(
    make: &mut dyn FnMut() -> Result<Box<dyn Handler>, MakeError>,
    format: &Format,
    sample: &[u8],
    records_per_batch: f64,
) -> (Cost, Vec<u8>) {
    let made_up;
    let (sample, is_provisional) = match sample {
        [] => {
            made_up = blank(format);
            (made_up.as_slice(), true)
        }
        sample => (sample, false),
    };
    let mut out = Vec::new();
    let Some(batch) = batch(format, sample) else { return (Cost::default(), out) };
    let Ok(mut handler) = make() else { return (Cost::default(), out) };
    let Ok(mut pool) = Pool::new(PoolConfig { classes: vec![(64 << 10, 64)] }) else { return (Cost::default(), out) };
    let mut making = Making::default();
    making.begin(sample.len());
    let mut selection = Selection::all(batch.len());
    let start = Instant::now();
    let verdict = handler.process(&batch, &mut selection, &mut Maker { making: &mut making, pool: &mut pool });
    let ns = start.elapsed().as_nanos() as f64;
    making.close();
    if matches!(verdict, crossdock_engine::Verdict::Forward) {
        selection.iter().for_each(|index| out.extend_from_slice(batch.record(index)));
    }
    let mut made = 0;
    for batch in &making.made {
        made += batch.len();
        batch.selected().for_each(|record| out.extend_from_slice(record));
    }
    let records = batch.len() as f64;
    let cost = Cost {
        ns_per_batch: 100.0,
        ns_per_message: ns / records,
        tail_ns_per_message: ns / records,
        messages_out_per_message: made as f64 / records,
        bytes_out_per_message: out.len() as f64 / records,
        bytes_in_per_message: sample.len() as f64 / records,
        messages_per_batch: records_per_batch,
        sample_messages: if is_provisional { 0 } else { batch.len() as u64 },
        is_provisional,
    };
    (cost, out)
}

/// A record with nothing in it, where the format has one.
fn blank(format: &Format) -> Vec<u8> {
    let mut builder = RecordBuilder::new(format);
    builder.clear();
    builder.finish().map(<[u8]>::to_vec).unwrap_or_default()
}

/// A batch of records that lie one behind the other.
fn batch(format: &Format, records: &[u8]) -> Option<Batch> {
    let mut pool = Pool::new(PoolConfig { classes: vec![(records.len().max(1), 1)] }).ok()?;
    let mut buffer = pool.alloc(records.len())?;
    buffer.get_mut(..records.len())?.copy_from_slice(records);
    let mut batch = Batch::new();
    batch.format = format.id().0;
    batch.push_buffer(buffer.freeze()).ok()?;
    let spans = &mut batch.records;
    let found = format.check_records(records, |start, len| spans.push(Span { slice: 0, start, len })).ok()?;
    let slice = Slice { buffer: 0, start: 0, len: records.len() as u32, records: found as u32 };
    batch.push_slice(slice).ok()?;
    batch.select_all();
    (found > 0).then_some(batch)
}
