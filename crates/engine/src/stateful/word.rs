//! Columns of eight bytes, which most keys, times and results are: one load or store each.

use crossdock_format::{Field, FieldType, Format, Value};

use super::cell::{load, store};
use crate::kernel::{FieldPosition, is_null};
use crate::project::set_null;

/// The place of a column of type `i64` or `timestamp` that lies in the fixed part of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordColumn(FieldPosition);

impl WordColumn {
    /// The place of a column; `None` if it is of another type, or not plain.
    pub(super) fn of(format: &Format, column: usize) -> Option<WordColumn> {
        let field = format.fields().get(column).filter(|field| is_word(field))?;
        Some(WordColumn(FieldPosition::of(field)))
    }

    /// The same for a timestamp only.
    pub(super) fn time(format: &Format, column: usize) -> Option<WordColumn> {
        let is_time = format.fields().get(column)?.ty == FieldType::Timestamp;
        WordColumn::of(format, column).filter(|_| is_time)
    }

    /// The value in a row; `None` if it is null.
    #[inline]
    pub(super) fn get(self, row: &[u8]) -> Option<i64> {
        let WordColumn(place) = self;
        (!is_null(row, place)).then(|| i64::from_le_bytes(load(row, place.at)))
    }
}

fn is_word(field: &Field) -> bool {
    matches!(field.ty, FieldType::I64 | FieldType::Timestamp) && field.is_plain()
}

/// Makes rows whose columns are all such words.
#[derive(Debug)]
pub(super) struct WordRow {
    /// With the length, and zeros.
    blank: Box<[u8]>,
    places: Box<[(FieldType, FieldPosition)]>,
    row: Box<[u8]>,
}

impl WordRow {
    /// For rows of a natural format; `None` if a column is something else.
    pub(super) fn of(rows: &Format) -> Option<WordRow> {
        if !rows.fields().iter().all(is_word) {
            return None;
        }
        let mut blank = vec![0; rows.fixed_bytes()].into_boxed_slice();
        let len = blank.len() as u32;
        *blank.first_chunk_mut()? = len.to_le_bytes();
        let places = rows.fields().iter().map(|field| (field.ty, FieldPosition::of(field))).collect();
        Some(WordRow { row: blank.clone(), blank, places })
    }

    /// Begins the next row.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.row.copy_from_slice(&self.blank);
    }

    /// Gives a column its value; whether it is of the column's type.
    #[inline]
    pub(super) fn set(&mut self, column: usize, value: &Value<'_>) -> bool {
        let Some((ty, place)) = self.places.get(column) else { return false };
        match (value, ty) {
            (Value::Int(value), FieldType::I64) | (Value::Timestamp(value), FieldType::Timestamp) => {
                store(&mut self.row, place.at, value.to_le_bytes());
                true
            }
            (Value::Null, _) if place.null_mask != 0 => {
                set_null(&mut self.row, *place);
                true
            }
            _ => false,
        }
    }

    /// The row, once all columns have their values.
    #[inline]
    pub(super) fn row(&self) -> &[u8] {
        &self.row
    }
}
