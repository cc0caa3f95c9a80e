//! Setting what nearly all values are, with as little as it takes: what does not fit is for others to judge.

use super::{RecordBuilder, clear_null};
use crate::MAX_RECORD_BYTES;
use crate::field::FieldType;
use crate::format::RECORD_ALIGN;

impl RecordBuilder {
    /// Stores an integer in an integer field that has room for it; false, and nothing done, for any other field or
    /// integer. No error is made, which would take longer than all the rest.
    #[inline]
    pub(crate) fn try_i64(&mut self, field: usize, value: i64) -> bool {
        let Some(cell) = self.format.layout().cells.get(field).copied() else { return false };
        // A conversion that fails gives a value that differs, whatever the type: one rule for all of them.
        let fits = match cell.ty {
            FieldType::I8 => i64::from(value as i8) == value,
            FieldType::I16 => i64::from(value as i16) == value,
            FieldType::I32 => i64::from(value as i32) == value,
            FieldType::I64 => true,
            FieldType::U8 => i64::from(value as u8) == value,
            FieldType::U16 => i64::from(value as u16) == value,
            FieldType::U32 => i64::from(value as u32) == value,
            FieldType::U64 => value >= 0,
            _ => false,
        };
        if fits {
            self.store_integer(field, cell, value as u64);
        }
        fits
    }

    /// As [`RecordBuilder::try_i64`], for `f64` fields.
    #[inline]
    pub(crate) fn try_f64(&mut self, field: usize, value: f64) -> bool {
        match self.format.layout().cells.get(field).copied() {
            Some(cell) if cell.ty == FieldType::F64 => self.store(field, cell, value.to_le_bytes()),
            _ => return false,
        }
        true
    }

    /// As [`RecordBuilder::try_i64`], for text in `char[N]` and `string` fields.
    #[inline]
    pub(crate) fn try_text(&mut self, field: usize, text: &[u8]) -> bool {
        let Some(cell) = self.format.layout().cells.get(field).copied() else { return false };
        match cell.ty {
            FieldType::String if self.bytes.len() + text.len() <= MAX_RECORD_BYTES - RECORD_ALIGN => {
                self.store_variable(field, cell, text).is_ok()
            }
            FieldType::Char(room) if text.len() <= usize::from(room) && text.last() != Some(&0) => {
                let (at, record) = (cell.offset as usize, self.record());
                if let Some(place) = record.get_mut(at..at + usize::from(room)) {
                    let (head, padding) = place.split_at_mut(text.len());
                    // So short that a call would take longer.
                    head.iter_mut().zip(text).for_each(|(place, byte)| *place = *byte);
                    padding.iter_mut().for_each(|place| *place = 0);
                }
                clear_null(record, cell);
                self.mark_required(field, cell);
                true
            }
            _ => false,
        }
    }
}
