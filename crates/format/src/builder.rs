//! Writing records.

use std::fmt;

use crate::MAX_RECORD_BYTES;
use crate::field::FieldType;
use crate::format::{Cell, Format, RECORD_ALIGN};
use crate::record::Value;

/// Writes records of one format, one after the other, without allocating once its buffer has grown to their size.
///
/// [`clear`](RecordBuilder::clear) starts a record with every field unset; `set…` gives fields their values, in any
/// order, again if need be; [`finish`](RecordBuilder::finish) gives the record's bytes. A nullable field that is never
/// set is null. Without a `clear` in between, the next record starts from the values of the last.
#[derive(Clone, Debug)]
pub struct RecordBuilder {
    format: Format,
    /// The fixed part, and behind it the variable part as far as it has been written.
    bytes: Vec<u8>,
    /// One bit a field: those that must be set and have not been.
    missing: Vec<u64>,
}

impl RecordBuilder {
    /// A builder with every field unset.
    #[must_use]
    pub fn new(format: &Format) -> Self {
        let layout = format.layout();
        Self { bytes: layout.blank.to_vec(), missing: layout.required.to_vec(), format: format.clone() }
    }

    /// The format of the records.
    #[inline]
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Starts over, with every field unset.
    #[inline]
    pub fn clear(&mut self) {
        let layout = self.format.layout();
        self.bytes.clear();
        self.bytes.extend_from_slice(&layout.blank);
        self.missing.copy_from_slice(&layout.required);
    }

    /// Gives a field its value. Integers of either sign go into any integer field that has room for them; a float is
    /// rounded to the nearest for an `f32` field. Everything else goes into fields of its own type only. Text is not
    /// looked into: that it is UTF-8 is the caller's promise.
    ///
    /// # Errors
    /// The format has no such field, or the value does not fit the field; the field is then as it was.
    #[inline]
    pub fn set(&mut self, field: usize, value: Value<'_>) -> Result<(), ValueError> {
        match value {
            Value::Null => self.set_null(field),
            Value::Bool(value) => self.set_bool(field, value),
            Value::Int(value) => self.set_i64(field, value),
            Value::Uint(value) => self.set_u64(field, value),
            Value::Float(value) => self.set_f64(field, value),
            Value::Timestamp(value) => self.set_timestamp(field, value),
            Value::Text(value) => self.set_text(field, value),
            Value::Bytes(value) => self.set_bytes(field, value),
        }
    }

    /// Makes a nullable field null.
    ///
    /// # Errors
    /// The field is not nullable, or there is none.
    #[inline]
    pub fn set_null(&mut self, field: usize) -> Result<(), ValueError> {
        let cell = self.cell(field)?;
        if cell.null_mask == 0 {
            return Err(self.refuse(field, ValueProblem::NotNullable));
        }
        if cell.ty.is_variable() && self.slot(cell.offset as usize).1 > 0 {
            self.remove_variable(cell.offset as usize);
        }
        let (at, size) = (cell.offset as usize, cell.ty.size());
        if let Some(slot) = self.bytes.get_mut(at..at + size) {
            slot.fill(0);
        }
        if let Some(byte) = self.bytes.get_mut(cell.null_byte as usize) {
            *byte |= cell.null_mask;
        }
        Ok(())
    }

    /// Gives a `bool` field its value.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    #[inline]
    pub fn set_bool(&mut self, field: usize, value: bool) -> Result<(), ValueError> {
        let cell = self.cell(field)?;
        match cell.ty {
            FieldType::Bool => self.store(field, cell, [u8::from(value)]),
            ty => return Err(self.wrong_type(field, "bool", ty)),
        }
        Ok(())
    }

    /// Gives an integer field its value.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    #[inline]
    pub fn set_i64(&mut self, field: usize, value: i64) -> Result<(), ValueError> {
        let cell = self.cell(field)?;
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
            ty => return Err(self.wrong_type(field, "integer", ty)),
        };
        if !fits {
            return Err(self.refuse(field, ValueProblem::IntegerRange { found: value.into(), ty: cell.ty }));
        }
        self.store_integer(field, cell, value as u64);
        Ok(())
    }

    /// Gives an integer field its value.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    #[inline]
    pub fn set_u64(&mut self, field: usize, value: u64) -> Result<(), ValueError> {
        if let Ok(value) = i64::try_from(value) {
            return self.set_i64(field, value);
        }
        let cell = self.cell(field)?;
        match cell.ty {
            FieldType::U64 => self.store(field, cell, value.to_le_bytes()),
            ty if ty.is_integer() => {
                return Err(self.refuse(field, ValueProblem::IntegerRange { found: value.into(), ty }));
            }
            ty => return Err(self.wrong_type(field, "integer", ty)),
        }
        Ok(())
    }

    /// Gives an `f64` field its value, or an `f32` field the nearest that it can hold.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`]; a finite value that would be infinite as `f32` is out of range.
    #[inline]
    pub fn set_f64(&mut self, field: usize, value: f64) -> Result<(), ValueError> {
        let cell = self.cell(field)?;
        match cell.ty {
            FieldType::F64 => self.store(field, cell, value.to_le_bytes()),
            FieldType::F32 => {
                let narrow = value as f32;
                if narrow.is_infinite() && value.is_finite() {
                    return Err(self.refuse(field, ValueProblem::FloatRange { found: value }));
                }
                self.store(field, cell, narrow.to_le_bytes());
            }
            ty => return Err(self.wrong_type(field, "float", ty)),
        }
        Ok(())
    }

    /// Gives a `timestamp` field its value, in nanoseconds since 1970-01-01T00:00:00Z.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    #[inline]
    pub fn set_timestamp(&mut self, field: usize, nanoseconds: i64) -> Result<(), ValueError> {
        let cell = self.cell(field)?;
        match cell.ty {
            FieldType::Timestamp => self.store(field, cell, nanoseconds.to_le_bytes()),
            ty => return Err(self.wrong_type(field, "timestamp", ty)),
        }
        Ok(())
    }

    /// Gives a `char[N]` or `string` field its value, from a `&str`, or from bytes that the caller knows to be UTF-8.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`]. A text that ends in NUL does not go into a `char[N]`: padding is NUL too.
    #[inline]
    pub fn set_text(&mut self, field: usize, text: impl AsRef<[u8]>) -> Result<(), ValueError> {
        let text = text.as_ref();
        let cell = self.cell(field)?;
        match cell.ty {
            FieldType::String => self.store_variable(field, cell, text),
            FieldType::Char(room) => {
                if text.len() > usize::from(room) {
                    return Err(self.refuse(field, ValueProblem::TextTooLong { found: text.len(), room }));
                }
                if text.last() == Some(&0) {
                    return Err(self.refuse(field, ValueProblem::EndsInNul));
                }
                let at = cell.offset as usize;
                if let Some(place) = self.bytes.get_mut(at..at + usize::from(room)) {
                    let (head, padding) = place.split_at_mut(text.len());
                    head.copy_from_slice(text);
                    padding.fill(0);
                }
                self.mark_set(field, cell);
                Ok(())
            }
            ty => Err(self.wrong_type(field, "text", ty)),
        }
    }

    /// Gives a `bytes` field its value.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    #[inline]
    pub fn set_bytes(&mut self, field: usize, value: &[u8]) -> Result<(), ValueError> {
        let cell = self.cell(field)?;
        match cell.ty {
            FieldType::Bytes => self.store_variable(field, cell, value),
            ty => Err(self.wrong_type(field, "bytes", ty)),
        }
    }

    /// The finished record.
    ///
    /// # Errors
    /// A field that is not nullable was never set.
    #[inline]
    pub fn finish(&mut self) -> Result<&[u8], ValueError> {
        if let Some(word) = self.missing.iter().position(|word| *word != 0) {
            let field = word * 64 + self.missing[word].trailing_zeros() as usize;
            return Err(self.refuse(field, ValueProblem::NotSet));
        }
        let len = self.bytes.len().next_multiple_of(RECORD_ALIGN);
        self.bytes.resize(len, 0);
        if let Some(word) = self.bytes.first_chunk_mut() {
            // At most MAX_RECORD_BYTES: see `store_variable`.
            *word = (len as u32).to_le_bytes();
        }
        Ok(&self.bytes)
    }

    #[inline]
    fn cell(&self, field: usize) -> Result<Cell, ValueError> {
        match self.format.layout().cells.get(field) {
            Some(cell) => Ok(*cell),
            None => Err(self.refuse(field, ValueProblem::NoSuchField { fields: self.format.fields().len() })),
        }
    }

    #[inline]
    fn store_integer(&mut self, field: usize, cell: Cell, value: u64) {
        // Two's complement: the low bytes are the value, for signed and unsigned types alike.
        match cell.ty.size() {
            1 => self.store(field, cell, (value as u8).to_le_bytes()),
            2 => self.store(field, cell, (value as u16).to_le_bytes()),
            4 => self.store(field, cell, (value as u32).to_le_bytes()),
            _ => self.store(field, cell, value.to_le_bytes()),
        }
    }

    #[inline]
    fn store<const N: usize>(&mut self, field: usize, cell: Cell, value: [u8; N]) {
        if let Some(place) = self.bytes.get_mut(cell.offset as usize..).and_then(|rest| rest.first_chunk_mut()) {
            *place = value;
        }
        self.mark_set(field, cell);
    }

    #[inline]
    fn store_variable(&mut self, field: usize, cell: Cell, value: &[u8]) -> Result<(), ValueError> {
        let at = cell.offset as usize;
        // The value that goes leaves room for the one that comes only after that one is known to fit.
        let old = self.slot(at).1;
        let found = self.bytes.len() - old + value.len();
        if found > MAX_RECORD_BYTES - RECORD_ALIGN {
            return Err(self.refuse(field, ValueProblem::RecordTooLong { found }));
        }
        if old > 0 {
            self.remove_variable(at);
        }
        let slot = (self.bytes.len() as u64) | (value.len() as u64) << 32;
        self.bytes.extend_from_slice(value);
        self.store(field, cell, slot.to_le_bytes());
        Ok(())
    }

    /// Start and length in the slot at this offset.
    #[inline]
    fn slot(&self, at: usize) -> (usize, usize) {
        let word = self.bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word));
        ((word & 0xffff_ffff) as usize, (word >> 32) as usize)
    }

    /// Takes a value out of the variable part, and moves up those behind it: a field that is set twice leaves nothing
    /// behind.
    #[cold]
    fn remove_variable(&mut self, at: usize) {
        let (start, len) = self.slot(at);
        self.bytes.drain(start..start + len);
        for index in 0..self.format.layout().slots.len() {
            let other = self.format.layout().slots[index] as usize;
            let (other_start, other_len) = self.slot(other);
            if other_start > start {
                let slot = (other_start - len) as u64 | (other_len as u64) << 32;
                self.bytes[other..other + 8].copy_from_slice(&slot.to_le_bytes());
            }
        }
    }

    #[inline]
    fn mark_set(&mut self, field: usize, cell: Cell) {
        if cell.null_mask == 0 {
            if let Some(word) = self.missing.get_mut(field / 64) {
                *word &= !(1 << (field % 64));
            }
        } else if let Some(byte) = self.bytes.get_mut(cell.null_byte as usize) {
            *byte &= !cell.null_mask;
        }
    }

    #[cold]
    fn wrong_type(&self, field: usize, found: &'static str, ty: FieldType) -> ValueError {
        self.refuse(field, ValueProblem::WrongType { found, ty })
    }

    #[cold]
    fn refuse(&self, field: usize, problem: ValueProblem) -> ValueError {
        ValueError { format: self.format.clone(), field, problem }
    }
}

/// Why a builder refused a value. Making one does not allocate: rows that are refused may be many.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueError {
    format: Format,
    /// Index of the field.
    pub field: usize,
    /// What is wrong.
    pub problem: ValueProblem,
}

impl ValueError {
    /// The field's name, if there is such a field.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.format.fields().get(self.field).map(|field| field.name.as_str())
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "field `{name}`: {}", self.problem),
            None => write!(f, "field {}: {}", self.field + 1, self.problem),
        }
    }
}

impl std::error::Error for ValueError {}

/// What can be wrong with a value.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum ValueProblem {
    /// The index is beyond the format's fields.
    #[error("the format has {fields} fields")]
    NoSuchField {
        /// How many it has.
        fields: usize,
    },
    /// Null for a field that is never null.
    #[error("found null, and the field is not nullable")]
    NotNullable,
    /// The field needs a value and got none.
    #[error("has no value, and is not nullable")]
    NotSet,
    /// A value of another type.
    #[error("found {found}, expected {ty}")]
    WrongType {
        /// The kind of the value.
        found: &'static str,
        /// The field's type.
        ty: FieldType,
    },
    /// An integer beyond the field's range.
    #[error("found {found}, expected {ty} {}", range_words(*ty))]
    IntegerRange {
        /// The integer.
        found: i128,
        /// The field's type.
        ty: FieldType,
    },
    /// A float beyond the range of `f32`.
    #[error("found {found:e}, expected f32, at most 3.4028235e38 either way")]
    FloatRange {
        /// The float.
        found: f64,
    },
    /// A text with more bytes than the field has.
    #[error("found a text of {found} bytes, expected at most {room} for char[{room}]")]
    TextTooLong {
        /// Its length in bytes.
        found: usize,
        /// The field's room in bytes.
        room: u16,
    },
    /// A text that could not be told from its padding.
    #[error("found a text that ends in NUL, which char[N] cannot tell from padding; use string")]
    EndsInNul,
    /// The record would be longer than any may be.
    #[error("the record would take {found} bytes, expected at most {MAX_RECORD_BYTES}")]
    RecordTooLong {
        /// Its length in bytes.
        found: usize,
    },
}

/// The range of an integer type, for messages.
fn range_words(ty: FieldType) -> String {
    ty.integer_range().map(|(least, greatest)| format!("({least} to {greatest})")).unwrap_or_default()
}
