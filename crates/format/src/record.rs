//! Records read in place.
//!
//! The check is structural and done once, where bytes come in: the length, the slots of `string` and `bytes` fields,
//! and
//! `bool` bytes. It does not look into text: UTF-8 is promised by those who write, and whoever shows text to people
//! handles what is not. Reading never relies on the check for its own safety: beyond the bytes there are zeros.

use std::fmt;

use crate::field::FieldType;
use crate::format::{Cell, Format, Layout, RECORD_ALIGN};

/// A value of one field, borrowed from the record.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// Of a `bool` field.
    Bool(bool),
    /// Of an `i8` … `i64` field.
    Int(i64),
    /// Of a `u8` … `u64` field.
    Uint(u64),
    /// Of an `f32` (widened, without loss) or `f64` field.
    Float(f64),
    /// Of a `timestamp` field: nanoseconds since 1970-01-01T00:00:00Z.
    Timestamp(i64),
    /// Of a `char[N]` field, without the padding, or of a `string` field. UTF-8 if the writer kept its promise.
    Text(&'a [u8]),
    /// Of a `bytes` field.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Whether this is [`Value::Null`].
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// What kind of value this is, in a word, for messages.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Uint(_) => "integer",
            Self::Float(_) => "float",
            Self::Timestamp(_) => "timestamp",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
        }
    }
}

/// A view of one record: a format and the bytes.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    format: &'a Format,
    cells: &'a [Cell],
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Checks the record that `bytes` start with; what follows it is left alone.
    ///
    /// # Errors
    /// The length, a slot or a `bool` is wrong.
    #[inline]
    pub fn check(format: &'a Format, bytes: &'a [u8]) -> Result<Record<'a>, RecordError> {
        let layout = format.layout();
        match layout.check(bytes) {
            Some(record) => Ok(Record { format, cells: &layout.cells, bytes: record }),
            None => Err(RecordError { at: 0, problem: layout.problem(bytes) }),
        }
    }

    /// A view of a record that was checked where it came in. Nothing is looked at again; should the bytes not be what
    /// they were said to be, reading gives zeros, nulls and empty text, and never panics.
    #[inline]
    #[must_use]
    pub fn assume_checked(format: &'a Format, bytes: &'a [u8]) -> Record<'a> {
        Record { format, cells: &format.layout().cells, bytes }
    }

    /// The record's bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The record's format.
    #[inline]
    #[must_use]
    pub fn format(&self) -> &'a Format {
        self.format
    }

    /// Whether the field is null; true for an index that the format does not have.
    #[inline]
    #[must_use]
    pub fn is_null(&self, field: usize) -> bool {
        self.cells.get(field).is_none_or(|cell| self.cell_is_null(cell))
    }

    /// The field's value; null for an index that the format does not have.
    #[inline]
    #[must_use]
    pub fn get(&self, field: usize) -> Value<'a> {
        let Some(cell) = self.cells.get(field) else {
            return Value::Null;
        };
        if self.cell_is_null(cell) {
            return Value::Null;
        }
        let at = cell.offset as usize;
        match cell.ty {
            FieldType::Bool => Value::Bool(self.load::<1>(at) != [0]),
            FieldType::I8 => Value::Int(i8::from_le_bytes(self.load(at)).into()),
            FieldType::I16 => Value::Int(i16::from_le_bytes(self.load(at)).into()),
            FieldType::I32 => Value::Int(i32::from_le_bytes(self.load(at)).into()),
            FieldType::I64 => Value::Int(i64::from_le_bytes(self.load(at))),
            FieldType::U8 => Value::Uint(u8::from_le_bytes(self.load(at)).into()),
            FieldType::U16 => Value::Uint(u16::from_le_bytes(self.load(at)).into()),
            FieldType::U32 => Value::Uint(u32::from_le_bytes(self.load(at)).into()),
            FieldType::U64 => Value::Uint(u64::from_le_bytes(self.load(at))),
            FieldType::F32 => Value::Float(f32::from_le_bytes(self.load(at)).into()),
            FieldType::F64 => Value::Float(f64::from_le_bytes(self.load(at))),
            FieldType::Timestamp => Value::Timestamp(i64::from_le_bytes(self.load(at))),
            FieldType::Char(bytes) => Value::Text(self.padded(at, bytes.into())),
            FieldType::String => Value::Text(self.slot(at)),
            FieldType::Bytes => Value::Bytes(self.slot(at)),
        }
    }

    #[inline]
    fn cell_is_null(&self, cell: &Cell) -> bool {
        self.bytes.get(cell.null_byte as usize).is_some_and(|byte| byte & cell.null_mask != 0)
    }

    #[inline]
    fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        load(self.bytes, at)
    }

    #[inline]
    fn padded(&self, at: usize, len: usize) -> &'a [u8] {
        let mut text = self.bytes.get(at..at + len).unwrap_or_default();
        while let [rest @ .., 0] = text {
            text = rest;
        }
        text
    }

    #[inline]
    fn slot(&self, at: usize) -> &'a [u8] {
        let (start, len) = slot(self.bytes, at);
        self.bytes.get(start as usize..(start + len) as usize).unwrap_or_default()
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.format.fields().iter().enumerate();
        f.debug_map().entries(fields.map(|(index, field)| (&field.name, self.get(index)))).finish()
    }
}

/// `N` bytes from `at` on; zeros where there are not so many.
#[inline]
fn load<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|value| value.first_chunk()).copied().unwrap_or([0; N])
}

/// Start and length of a slot, wide enough that their sum does not overflow.
#[inline]
fn slot(bytes: &[u8], at: usize) -> (u64, u64) {
    let word = u64::from_le_bytes(load(bytes, at));
    (word & 0xffff_ffff, word >> 32)
}

/// The length of the record that `bytes` start with, from its first word: at least 8, a multiple of 8, and no more than
/// there are bytes. `None` if it is none of these; nothing else is checked.
#[inline]
#[must_use]
pub fn record_len(bytes: &[u8]) -> Option<usize> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    (len >= RECORD_ALIGN && len.is_multiple_of(RECORD_ALIGN) && len <= bytes.len()).then_some(len)
}

impl Layout {
    /// The first record of `bytes`, if it is sound. Flaws are gathered without a branch each; [`Layout::problem`] finds
    /// out later which it was.
    #[inline]
    fn check<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let record = bytes.get(..record_len(bytes)?)?;
        let fixed = self.blank.len();
        if record.len() < fixed {
            return None;
        }
        let (end, fixed_end) = (record.len() as u64, fixed as u64);
        // Negative where something is wrong. All terms are below 2^33 (and at most 4096 of them are added up), so the
        // difference of two has its top bit set exactly if the second is the greater.
        let mut flaws = 0;
        let mut variable_bytes = 0;
        for at in &self.slots {
            let (start, len) = slot(record, *at as usize);
            // It ends beyond the record; or it starts before the variable part, and is not empty.
            flaws |= end.wrapping_sub(start + len) | (start.wrapping_sub(fixed_end) & len.wrapping_neg());
            variable_bytes += len;
        }
        // Slots that share bytes would let a short record become a long one wherever its fields are copied.
        flaws |= (end - fixed_end).wrapping_sub(variable_bytes);
        for at in &self.bools {
            flaws |= 1_u64.wrapping_sub(load::<1>(record, *at as usize)[0].into());
        }
        (flaws >> 63 == 0).then_some(record)
    }

    /// Why [`Layout::check`] refused these bytes.
    #[cold]
    fn problem(&self, bytes: &[u8]) -> RecordProblem {
        let fixed = self.blank.len();
        let record = match record_len(bytes).and_then(|len| bytes.get(..len)) {
            Some(record) if record.len() >= fixed => record,
            _ => {
                let stated = bytes.first_chunk().map(|word| u32::from_le_bytes(*word));
                return RecordProblem::Length { stated, available: bytes.len(), fixed };
            }
        };
        let mut variable_bytes = 0;
        for (field, cell) in self.cells.iter().enumerate() {
            let at = cell.offset as usize;
            if cell.ty.is_variable() {
                let (start, len) = slot(record, at);
                variable_bytes += len;
                if start + len > record.len() as u64 || (start < fixed as u64 && len > 0) {
                    return RecordProblem::Slot { field, start: start as u32, len: len as u32 };
                }
            } else if cell.ty == FieldType::Bool && load::<1>(record, at)[0] > 1 {
                return RecordProblem::Bool { field, found: load::<1>(record, at)[0] };
            }
        }
        RecordProblem::SharedBytes { claimed: variable_bytes, available: record.len() - fixed }
    }
}

impl Format {
    /// Walks the payload of a packet: records back to back, each checked, then shown to `visit` with its start in the
    /// payload and its length in bytes. Returns how many there were.
    ///
    /// # Errors
    /// The first record that is wrong, after those before it were visited; what follows it is not looked at.
    #[inline]
    pub fn check_records(&self, payload: &[u8], mut visit: impl FnMut(u32, u32)) -> Result<usize, RecordError> {
        let layout = self.layout();
        if payload.len() > u32::MAX as usize {
            return Err(RecordError { at: 0, problem: RecordProblem::PayloadTooLong { found: payload.len() } });
        }
        let mut rest = payload;
        let mut records = 0;
        while !rest.is_empty() {
            let at = payload.len() - rest.len();
            let Some(record) = layout.check(rest) else {
                return Err(RecordError { at, problem: layout.problem(rest) });
            };
            visit(at as u32, record.len() as u32);
            rest = rest.get(record.len()..).unwrap_or_default();
            records += 1;
        }
        Ok(records)
    }
}

/// Why bytes are no record of a format. Small and without allocation: it is counted by reason where packets come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordError {
    /// Where the record starts, in bytes from the start of what was checked.
    pub at: usize,
    /// What is wrong with it.
    pub problem: RecordProblem,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record at byte {}: {}", self.at, self.problem)
    }
}

impl std::error::Error for RecordError {}

/// What can be wrong with a record's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordProblem {
    /// The first word is no length that this record can have.
    #[error(
        "its length is {}, expected a multiple of 8 from {fixed} to {available}",
        stated.map_or("cut off".to_owned(), |bytes| bytes.to_string())
    )]
    Length {
        /// The length as stated, in bytes; `None` if there are not even four bytes.
        stated: Option<u32>,
        /// Bytes that there are.
        available: usize,
        /// Bytes of the format's fixed part.
        fixed: usize,
    },
    /// A `string` or `bytes` field lies outside of the variable part.
    #[error("field {}: its {len} bytes from {start} on are not in the variable part", field + 1)]
    Slot {
        /// Index of the field.
        field: usize,
        /// Stated start, in bytes from the start of the record.
        start: u32,
        /// Stated length in bytes.
        len: u32,
    },
    /// The `string` and `bytes` fields claim more bytes than the variable part has, so some share theirs.
    #[error("its fields claim {claimed} bytes of a variable part of {available}")]
    SharedBytes {
        /// Bytes that the fields claim together.
        claimed: u64,
        /// Bytes of the variable part.
        available: usize,
    },
    /// A `bool` byte is neither 0 nor 1.
    #[error("field {}: a bool byte is {found}, expected 0 or 1", field + 1)]
    Bool {
        /// Index of the field.
        field: usize,
        /// The byte.
        found: u8,
    },
    /// More payload than offsets of 32 bits can tell of.
    #[error("a payload of {found} bytes, expected at most 4294967295")]
    PayloadTooLong {
        /// Its length in bytes.
        found: usize,
    },
}

impl RecordProblem {
    /// The problem's kind in a word or two: the name of its counter.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Length { .. } => "record_length",
            Self::Slot { .. } => "record_slot",
            Self::SharedBytes { .. } => "record_shared_bytes",
            Self::Bool { .. } => "record_bool",
            Self::PayloadTooLong { .. } => "payload_too_long",
        }
    }
}
