//! Records that arrived together, and single ones of them.

use crate::account::RecordNumbers;
use crate::incoming::Bytes;
use crossdock_format::{Format, Record, Value};
use std::ops::Range;
use std::sync::Arc;

/// The records that arrived together: bytes, and where the records lie in them.
struct Batch {
    format: Format,
    bytes: Bytes,
    payloads: Vec<Range<usize>>,
}

/// A place between two records of a batch.
#[derive(Clone, Copy, Default)]
struct Cursor {
    payload: usize,
    /// From the payload's start, in bytes.
    offset: usize,
}

/// Records that arrived together, read in place. They hold a buffer until they and all [`ReceivedRecord`]s of them are dropped;
/// clones share it.
///
/// By shared memory the place may be one that other processes of the same protection domain (by default: of the same user) can
/// write. They are trusted to leave alone what they have handed over, as the domain's processes trust one another in all else.
/// Each record was checked when it arrived; what a process of another domain sent lies where no client can write.
#[derive(Clone)]
pub struct Records {
    batch: Arc<Batch>,
    first: Cursor,
    count: usize,
    numbers: RecordNumbers,
}

impl Records {
    /// The `count` records in these parts of the bytes; they were checked.
    pub(crate) fn new(format: Format, bytes: Bytes, payloads: Vec<Range<usize>>, count: usize) -> Records {
        let batch = Arc::new(Batch { format, bytes, payloads });
        Records { batch, first: Cursor::default(), count, numbers: RecordNumbers::default() }
    }

    /// Their numbers are known.
    pub(crate) fn set_numbers(&mut self, numbers: RecordNumbers) {
        self.numbers = numbers;
    }

    /// The number of the first of them in its stream, from a daemon that is `durable` and to a subscriber that gets every record of the
    /// stream; the others follow one by one. A record has the same number each time that it comes.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.numbers.first
    }

    /// How many of the first of them had come before: a daemon that was started again repeats what it had sent after its last
    /// checkpoint. Records of a stream that several publishers bring, or that a handler makes of such streams, may come in another order
    /// the second time.
    #[must_use]
    pub fn repeated(&self) -> usize {
        self.numbers.repeated
    }

    /// Leaves out those that had come before.
    pub fn skip_repeated(&mut self) {
        while self.numbers.repeated > 0 && self.take_first().is_some() {}
    }

    /// The records' format.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.batch.format
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The records' bytes, in order; each was checked when it arrived.
    pub fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        let batch = &*self.batch;
        let mut offset = self.first.offset;
        batch.payloads.get(self.first.payload..).unwrap_or_default().iter().flat_map(move |payload| {
            let start = payload.start + std::mem::take(&mut offset);
            let mut rest = batch.bytes.get(start..payload.end).unwrap_or_default();
            std::iter::from_fn(move || {
                let (record, after) = rest.split_at_checked(batch.format.record_len(rest)?)?;
                rest = after;
                Some(record)
            })
        })
    }

    /// The records, in order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        self.bytes().map(|bytes| Record::assume_checked(self.format(), bytes))
    }

    /// Takes the first record out.
    pub(crate) fn take_first(&mut self) -> Option<ReceivedRecord> {
        let Batch { format, bytes, payloads } = &*self.batch;
        while let Some(payload) = payloads.get(self.first.payload) {
            let start = payload.start + self.first.offset;
            let rest = bytes.get(start..payload.end).unwrap_or_default();
            if let Some(len) = format.record_len(rest).filter(|len| (1..=rest.len()).contains(len)) {
                self.first.offset += len;
                self.count = self.count.saturating_sub(1);
                self.numbers.pass_one();
                return Some(ReceivedRecord { batch: Arc::clone(&self.batch), place: start..start + len });
            }
            self.first = Cursor { payload: self.first.payload + 1, offset: 0 };
        }
        self.count = 0;
        None
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl IntoIterator for Records {
    type Item = ReceivedRecord;
    type IntoIter = TakenRecords;

    fn into_iter(self) -> TakenRecords {
        TakenRecords(self)
    }
}

/// The records of a [`Records`]; each holds the buffer.
#[derive(Clone, Debug)]
pub struct TakenRecords(Records);

impl Iterator for TakenRecords {
    type Item = ReceivedRecord;

    fn next(&mut self) -> Option<ReceivedRecord> {
        self.0.take_first()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.0.count))
    }
}

/// One record, read in place. It holds the buffer of all records that arrived together with it until it is dropped; clones share
/// it. For what is kept for long, copy the values or [`ReceivedRecord::bytes`].
#[derive(Clone)]
pub struct ReceivedRecord {
    batch: Arc<Batch>,
    place: Range<usize>,
}

impl ReceivedRecord {
    /// A view of the record.
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        Record::assume_checked(&self.batch.format, self.bytes())
    }

    /// The record's format.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.batch.format
    }

    /// The record's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.batch.bytes.get(self.place.clone()).unwrap_or_default()
    }

    /// The value of a field by its index; null for an index that the format does not have.
    #[must_use]
    pub fn get(&self, field: usize) -> Value<'_> {
        self.record().get(field)
    }

    /// The value of a field by its name, such as `pos.x` for a field of a nested record; `None` if the format has no such field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Value<'_>> {
        self.record().field(name)
    }
}

impl std::fmt::Debug for ReceivedRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.record().fmt(f)
    }
}
