//! Writing records.

mod copy;
mod error;
mod nested;
mod quick;

use crate::MAX_RECORD_BYTES;
use crate::field::FieldType;
use crate::format::{Cell, Format, RECORD_ALIGN};
use crate::record::{Record, Value, slot};

pub(crate) use copy::rescale;
pub use error::{ValueError, ValueProblem};
use nested::Level;

/// Writes records of one format, one after the other, without allocating once its buffer has grown to their size.
///
/// [`clear`](RecordBuilder::clear) starts a record with every field unset; `set…` gives fields their values, in any
/// order, again if need be; [`finish`](RecordBuilder::finish) gives the record's bytes. A nullable field that is never
/// set is null. Without a `clear` in between, the next record starts from the values of the last.
///
/// A nested record that may be null is there as soon as a field in it is set. A list is begun, gets its elements one
/// after the other, and is ended; between [`begin_element`](RecordBuilder::begin_element) and
/// [`end_element`](RecordBuilder::end_element), `set…` speaks of the fields of that element.
///
/// Records of a foreign layout are made in the same way, and get their bytes when they are finished. Of their fields,
/// those that tell of others may be left unset: which variant is there, how many elements a list has, how long the
/// record is, what is null. Those that are set must say what is so.
///
/// ```
/// use crossdock_format::{Format, Record, RecordBuilder, Value};
///
/// let format = Format::parse_schema("id u32\npos record { x f32; y f32 } null\nlegs record { to string; km u16 }[]")?;
/// let mut row = RecordBuilder::new(&format);
/// row.set_u64(0, 7)?;
/// row.begin_list(3)?;
/// for (to, km) in [("JFK", 100), ("LGA", 20)] {
///     row.begin_element()?;
///     row.set_text(0, to)?;
///     row.set_u64(1, km)?;
///     row.end_element()?;
/// }
/// row.end_list()?;
/// let record = Record::check(&format, row.finish()?)?;
/// assert!(record.is_null(1), "nothing in `pos` was set");
/// let Value::List(legs) = record.get(3) else { unreachable!() };
/// assert_eq!(legs.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RecordBuilder {
    /// Of the innermost open record: the record itself, or an element of a list.
    format: Format,
    /// The fixed part, and behind it the variable part as far as it has been written.
    bytes: Vec<u8>,
    /// One bit a field of the innermost open record: those that must be set and have not been.
    missing: Vec<u64>,
    /// Where the innermost open record starts in its buffer.
    base: usize,
    /// Which buffer that is: `bytes` for 0, else that of the level before this one.
    target: usize,
    /// Lists that lie in each other; the first `depth` are open, the others keep their buffers for later.
    levels: Vec<Level>,
    depth: usize,
    /// Whether there are bytes in the variable part that no slot speaks of any more.
    has_dead: bool,
    /// Room for a copy of the record without those.
    spare: Vec<u8>,
    /// The foreign layout that records are written in once they are whole, and the last one's bytes.
    foreign: Option<(Format, Vec<u8>)>,
}

impl RecordBuilder {
    /// A builder with every field unset.
    #[must_use]
    pub fn new(format: &Format) -> Self {
        let foreign = format.is_foreign().then(|| (format.clone(), Vec::new()));
        let format = format.natural_format();
        let layout = format.layout();
        Self {
            bytes: layout.blank.to_vec(),
            missing: layout.required.to_vec(),
            format: format.clone(),
            base: 0,
            target: 0,
            levels: Vec::new(),
            depth: 0,
            has_dead: false,
            spare: Vec::new(),
            foreign,
        }
    }

    /// The format of the innermost open record: that of the records, unless an element of a list is open; of a foreign
    /// layout, its [natural format](Format::natural_format).
    #[inline]
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Starts over, with every field unset.
    #[inline]
    pub fn clear(&mut self) {
        if self.depth > 0 {
            self.close_all();
        }
        self.has_dead = false;
        let layout = self.format.layout();
        self.bytes.clear();
        self.bytes.extend_from_slice(&layout.blank);
        self.missing.copy_from_slice(&layout.required);
    }

    /// Gives a field its value. Integers of either sign go into any integer field that has room for them; a float is
    /// rounded to the nearest for an `f32` field. An enumeration takes the text of a symbol and any number that fits; a
    /// decimal takes integers, and decimals of another scale, if nothing is lost; a list takes a list with the same
    /// elements, which is copied. Everything else goes into fields of its own type only. Text is not looked into: that
    /// it is UTF-8 is the caller's promise.
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
            Value::Decimal { unscaled, scale } => self.set_decimal(field, unscaled, scale),
            Value::Enum { number, symbol } => self.set_enum(field, number, symbol),
            Value::List(list) => self.set_list(field, list),
            Value::Record(_) => match self.cell(field) {
                Ok(cell) => Err(self.wrong_type(field, "record", cell.ty)),
                Err(error) => Err(error),
            },
        }
    }

    /// Makes a nullable field null.
    ///
    /// # Errors
    /// The field is not nullable, or there is none.
    #[inline]
    pub fn set_null(&mut self, field: usize) -> Result<(), ValueError> {
        let cell = self.cell(field)?;
        if cell.null_mask == 0 || cell.is_shared() {
            return self.null_with_its_record(field, cell);
        }
        self.forget(field, cell);
        self.set_bit(cell.null_byte, cell.null_mask);
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
        match self.try_i64(field, value) {
            true => Ok(()),
            false => self.set_other_i64(field, value),
        }
    }

    /// An integer for a field that is no integer, or has no room for it.
    #[inline(never)]
    fn set_other_i64(&mut self, field: usize, value: i64) -> Result<(), ValueError> {
        let cell = self.cell(field)?;
        match cell.ty {
            FieldType::Enum { .. } => self.set_number(field, cell, value),
            FieldType::Decimal { .. } => self.set_decimal(field, value.into(), 0),
            ty if ty.is_integer() => Err(self.refuse(field, ValueProblem::IntegerRange { found: value.into(), ty })),
            ty => Err(self.wrong_type(field, "integer", ty)),
        }
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
            FieldType::Decimal { .. } => return self.set_decimal(field, value.into(), 0),
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
        match self.try_f64(field, value) {
            true => Ok(()),
            false => self.set_other_f64(field, value),
        }
    }

    /// A float for a field that is no `f64`.
    #[inline(never)]
    fn set_other_f64(&mut self, field: usize, value: f64) -> Result<(), ValueError> {
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
    /// As [`RecordBuilder::set`]; an enumeration takes its symbols. A text that ends in NUL does not go into a `char[N]`: padding is NUL too.
    #[inline]
    pub fn set_text(&mut self, field: usize, text: impl AsRef<[u8]>) -> Result<(), ValueError> {
        match self.try_text(field, text.as_ref()) {
            true => Ok(()),
            false => self.set_other_text(field, text.as_ref()),
        }
    }

    /// A text for a field that is none, or has no room for it.
    #[inline(never)]
    fn set_other_text(&mut self, field: usize, text: &[u8]) -> Result<(), ValueError> {
        let cell = self.cell(field)?;
        match cell.ty {
            FieldType::String => self.store_variable(field, cell, text),
            FieldType::Enum { .. } => self.set_symbol(field, cell, text),
            FieldType::Char(room) => {
                if text.len() > usize::from(room) {
                    return Err(self.refuse(field, ValueProblem::TextTooLong { found: text.len(), room }));
                }
                Err(self.refuse(field, ValueProblem::EndsInNul))
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
    /// A field that is not nullable was never set. Of a foreign layout: a value that it has no way to hold, or that is not
    /// what fields say that tell of it.
    #[inline]
    pub fn finish(&mut self) -> Result<&[u8], ValueError> {
        if self.depth > 0 {
            return Err(self.refuse(0, ValueProblem::Open));
        }
        self.check_complete()?;
        if self.has_dead {
            self.compact();
        }
        let len = self.bytes.len().next_multiple_of(RECORD_ALIGN);
        self.bytes.resize(len, 0);
        if let Some(word) = self.bytes.first_chunk_mut() {
            // At most MAX_RECORD_BYTES: see `store_variable`.
            *word = (len as u32).to_le_bytes();
        }
        match &mut self.foreign {
            None => Ok(&self.bytes),
            Some((format, out)) => {
                out.clear();
                crate::foreign::write(format, &Record::assume_checked(&self.format, &self.bytes), out)?;
                Ok(out)
            }
        }
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
        let record = self.record();
        if let Some(place) = record.get_mut(cell.offset as usize..).and_then(|rest| rest.first_chunk_mut()) {
            *place = value;
        }
        clear_null(record, cell);
        self.mark_required(field, cell);
    }

    #[inline]
    fn store_variable(&mut self, field: usize, cell: Cell, value: &[u8]) -> Result<(), ValueError> {
        let at = self.base + cell.offset as usize;
        if slot(self.buffer(), at).1 > 0 {
            // Taken out when the record is finished.
            self.has_dead = true;
        }
        if self.bytes.len() + value.len() > MAX_RECORD_BYTES - RECORD_ALIGN {
            self.make_room(field, cell, value.len())?;
        }
        let slot = (self.bytes.len() as u64) | (value.len() as u64) << 32;
        self.bytes.extend_from_slice(value);
        self.store(field, cell, slot.to_le_bytes());
        Ok(())
    }

    /// The buffer that the innermost open record is in.
    #[inline]
    fn buffer(&mut self) -> &mut Vec<u8> {
        match self.target.checked_sub(1).and_then(|level| self.levels.get_mut(level)) {
            Some(level) => &mut level.bytes,
            None => &mut self.bytes,
        }
    }

    /// The innermost open record, and what is behind it.
    #[inline]
    fn record(&mut self) -> &mut [u8] {
        let base = self.base;
        self.buffer().get_mut(base..).unwrap_or_default()
    }

    /// Notes that a field has a value.
    fn mark_set(&mut self, field: usize, cell: Cell) {
        clear_null(self.record(), cell);
        self.mark_required(field, cell);
    }

    /// Notes that a field has a value, beside its own null bit.
    #[inline]
    fn mark_required(&mut self, field: usize, cell: Cell) {
        if cell.null_mask != 0 {
            if cell.group == 0 {
                return;
            }
            self.mark_groups(cell.group);
        }
        if let Some(word) = self.missing.get_mut(field / 64) {
            *word &= !(1 << (field % 64));
        }
    }

    #[cold]
    fn wrong_type(&self, field: usize, found: &'static str, ty: FieldType) -> ValueError {
        self.refuse(field, ValueProblem::WrongType { found, ty })
    }

    #[cold]
    fn refuse(&self, field: usize, problem: ValueProblem) -> ValueError {
        ValueError { format: self.format.clone(), within: self.path(), is_value: self.is_in_value(), field, problem }
    }
}

/// A field of this record is not null.
#[inline]
fn clear_null(record: &mut [u8], cell: Cell) {
    if cell.null_mask != 0
        && let Some(byte) = record.get_mut(cell.null_byte as usize)
    {
        *byte &= !cell.null_mask;
    }
}
