//! The load that keeps contexts busy: batches of records, made beforehand.

use crate::cpu::Error;
use crossdock_engine::{HandlerProgram, HandlerSource, Natives};
use crossdock_format::Format;
use crossdock_mailbox::{Batch, Pool, PoolConfig, Slice, Span};
use crossdock_runtime::rig::Entry;
use std::collections::BTreeMap;

/// A batch of records that lie one behind the other, as they come in one packet.
pub(crate) fn batch(pool: &mut Pool, format: &Format, records: &[u8]) -> Result<Batch, Error> {
    let mut buffer = pool.alloc(records.len()).ok_or("no buffer for a batch")?;
    buffer[..records.len()].copy_from_slice(records);
    let mut batch = Batch::new();
    batch.format = format.id().0;
    batch.push_buffer(buffer.freeze())?;
    let spans = &mut batch.records;
    let found = format.check_records(records, |start, len| spans.push(Span { slice: 0, start, len }))?;
    batch.push_slice(Slice { buffer: 0, start: 0, len: records.len() as u32, records: found as u32 })?;
    batch.select_all();
    Ok(batch)
}

/// Batches of equal numbers of records, again and again.
pub(crate) struct Feed {
    batches: Vec<Batch>,
    next: usize,
}

impl Feed {
    /// Batches of this number of records of equal length.
    pub(crate) fn new(format: &Format, records: &[u8], record_bytes: usize, at_a_time: usize) -> Result<Feed, Error> {
        let bytes = record_bytes * at_a_time;
        let count = records.len() / bytes;
        let mut pool = Pool::new(PoolConfig { classes: vec![(bytes, count)] })?;
        let batches: Result<Vec<Batch>, Error> =
            records.chunks_exact(bytes).map(|records| batch(&mut pool, format, records)).collect();
        Ok(Feed { batches: batches?, next: 0 })
    }

    /// The next one.
    #[inline]
    pub(crate) fn next(&mut self) -> &Batch {
        self.next = if self.next + 1 < self.batches.len() { self.next + 1 } else { 0 };
        &self.batches[self.next]
    }
}

/// A handler for records of a format, and the format that it makes.
pub(crate) fn entry(
    source: HandlerSource,
    parameters: &[(&str, &str)],
    input: &Format,
) -> Result<(Entry, Format), Error> {
    let parameters: BTreeMap<String, String> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let made = HandlerProgram { source, parameters, null_for_errors: false, subscription_views: None, part: None }
        .make(&Natives::built_in(), input)?;
    Ok((Entry { format: input.id().0, handler: made.handler, output: made.output.id().0 }, made.output))
}

/// A query as a handler.
pub(crate) fn sql(text: &str, input: &Format) -> Result<(Entry, Format), Error> {
    entry(HandlerSource::Sql(text.to_owned()), &[], input)
}

/// A native handler.
pub(crate) fn native(name: &str, parameters: &[(&str, &str)], input: &Format) -> Result<(Entry, Format), Error> {
    entry(HandlerSource::Native(name.to_owned()), parameters, input)
}
