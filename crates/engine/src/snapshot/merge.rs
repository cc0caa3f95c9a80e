//! Changes of one row that a subscriber has not got yet, as one change: what it would have of them all.
//!
//! | kept | next | one change |
//! |---|---|---|
//! | `enter` | `update` | `enter` with the newest values |
//! | `enter` | `leave` | none: the subscriber never has the row |
//! | `update` | `update` | `update` with the newest values; with `DELTA` the columns of both |
//! | `update` | `leave` | `leave` |
//! | `leave` | `enter` | `update`: the subscriber has the row yet. With `DELTA` it has all columns, and is none where only the key is there |

use crossdock_format::{Format, FormatId, Record, RecordBuilder, Value};
use crossdock_query::{EvalError, Snapshot, SnapshotProgram};

use super::{Change, word};
use crate::identity::{Key, KeyHasher};

/// Makes one change of several of a row, for a query with `SNAPSHOT` and `ON SLOW CONFLATE BY`.
#[derive(Debug)]
pub struct ChangeMerger {
    format: Format,
    /// The columns of the key.
    key: Vec<usize>,
    /// How many columns the list has. `_change` follows them, if the query has it, and then, with `DELTA`, `_changed`.
    columns: usize,
    has_change: bool,
    has_changed: bool,
    builder: RecordBuilder,
    changed: Vec<u8>,
}

impl ChangeMerger {
    /// That of a query; none if it does not conflate.
    pub fn of(program: &SnapshotProgram) -> Option<ChangeMerger> {
        let (format, key) = (program.output().clone(), program.conflated_by.clone()?);
        let has_changed = program.deltas.is_some();
        let has_change = program.snapshot != Snapshot::Once;
        let columns = format.fields().len() - usize::from(has_change) - usize::from(has_changed);
        let (builder, changed) = (RecordBuilder::new(&format), vec![0; columns.div_ceil(8)]);
        Some(ChangeMerger { format, key, columns, has_change, has_changed, builder, changed })
    }

    /// The format of the changes.
    pub fn format(&self) -> FormatId {
        self.format.id()
    }

    /// The key of the row of a change.
    pub fn key_of(&self, hasher: &mut KeyHasher, change: &[u8]) -> Key {
        hasher.key_of(&Record::assume_checked(&self.format, change), &self.key)
    }

    /// One change in the place of a kept one and the `next` of the same row; none if they leave nothing to be said.
    ///
    /// # Errors
    /// It is too long for a record.
    pub fn merge<'a>(&'a mut self, kept: &[u8], next: &'a [u8]) -> Result<Option<&'a [u8]>, EvalError> {
        let (before, now) = (Record::assume_checked(&self.format, kept), Record::assume_checked(&self.format, next));
        let (had, is) = (self.change_of(&before), self.change_of(&now));
        let change = match (had, is) {
            (Change::Enter, Change::Leave) => return Ok(None),
            (_, Change::Leave) => return Ok(Some(next)),
            (Change::Enter, _) => Change::Enter,
            (Change::Update | Change::Leave, _) => Change::Update,
        };
        if !self.has_change || (change == is && !self.has_changed) {
            return Ok(Some(next));
        }
        let (columns, has_changed) = (self.columns, self.has_changed);
        let ChangeMerger { builder, changed, .. } = self;
        let bits = |record: &Record<'_>, byte: usize| match record.get(columns + 1) {
            Value::Bytes(bits) => bits.get(byte).copied().unwrap_or(0),
            _ => 0,
        };
        builder.clear();
        for (byte, both) in changed.iter_mut().enumerate() {
            let of_now = if has_changed { bits(&now, byte) } else { u8::MAX };
            let of_before = if has_changed { bits(&before, byte) } else { 0 };
            *both = of_now | of_before;
            for column in 8 * byte..(8 * byte + 8).min(columns) {
                let bit = 1 << (column % 8);
                // Columns of the key are there without a bit too.
                let from = if of_now & bit == 0 && of_before & bit != 0 { &before } else { &now };
                let value = from.get(column);
                if value != Value::Null {
                    builder.set(column, value).map_err(|_| EvalError::RecordTooLong)?;
                }
            }
        }
        if has_changed && change == Change::Update {
            for column in &self.key {
                changed.get_mut(column / 8).into_iter().for_each(|byte| *byte &= !(1 << (column % 8)));
            }
            if changed.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
        }
        let mut set = builder.set_text(columns, word(change));
        if has_changed {
            set = set.and_then(|()| builder.set_bytes(columns + 1, changed));
        }
        set.map_err(|_| EvalError::RecordTooLong)?;
        builder.finish().map(Some).map_err(|_| EvalError::RecordTooLong)
    }

    /// The change that a record says: of those without `_change`, which come once each, that a row is there.
    fn change_of(&self, record: &Record<'_>) -> Change {
        match record.get(self.columns) {
            Value::Text(b"leave") if self.has_change => Change::Leave,
            Value::Text(b"update") if self.has_change => Change::Update,
            _ => Change::Enter,
        }
    }
}
