//! Writing records.

mod copy;
mod defaults;
mod error;
mod nested;
mod place;
mod put;

use crate::field::FieldType;
use crate::format::{Format, RECORD_ALIGN};
use crate::record::{Record, Value};

pub(crate) use copy::rescale;
pub use error::{ValueError, ValueProblem};
use nested::Level;
pub(crate) use place::{ByteRun, Place};
use put::{store, store_char, store_integer, store_run};

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
/// those that describe others may be left unset: which variant is there, how many elements a list has, how long the
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
    /// A record with nothing set: its fixed part, and its fields' defaults if they have them here.
    blank: Box<[u8]>,
    /// One bit a field of the record: those that must be set.
    required: Box<[u64]>,
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
    /// Whether what is not set has its default, if it has one.
    fills_in: bool,
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
            blank: layout.blank.clone(),
            required: layout.required.clone(),
            format: format.clone(),
            base: 0,
            target: 0,
            levels: Vec::new(),
            depth: 0,
            has_dead: false,
            spare: Vec::new(),
            foreign,
            fills_in: false,
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
        self.bytes.clear();
        self.bytes.extend_from_slice(&self.blank);
        self.missing.copy_from_slice(&self.required);
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
            Value::Record(_) => Err(self.wrong_type(field, "record")),
        }
    }

    /// Makes a nullable field null.
    ///
    /// # Errors
    /// The field is not nullable, or there is none.
    pub fn set_null(&mut self, field: usize) -> Result<(), ValueError> {
        let place = self.place(field)?;
        self.put_null(place).map_err(|problem| self.refuse(field, problem))
    }

    /// Gives a `bool` field its value.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    pub fn set_bool(&mut self, field: usize, value: bool) -> Result<(), ValueError> {
        let place = self.place(field)?;
        match place.ty() {
            FieldType::Bool => self.put(place, [u8::from(value)]),
            _ => return Err(self.wrong_type(field, "bool")),
        }
        Ok(())
    }

    /// Gives an integer field its value.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    pub fn set_i64(&mut self, field: usize, value: i64) -> Result<(), ValueError> {
        match self.quick(field, |record, cell| store_integer(record, cell, value)) {
            true => Ok(()),
            false => self.set_any_i64(field, value),
        }
    }

    /// An integer for any field of any record.
    #[inline(never)]
    fn set_any_i64(&mut self, field: usize, value: i64) -> Result<(), ValueError> {
        match Place::of(&self.format, field).is_some_and(|place| self.put_i64(place, value)) {
            true => Ok(()),
            false => self.set_other_integer(field, value.into()),
        }
    }

    /// Gives an integer field its value.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    pub fn set_u64(&mut self, field: usize, value: u64) -> Result<(), ValueError> {
        match i64::try_from(value) {
            Ok(value) => self.set_i64(field, value),
            Err(_) => self.set_other_integer(field, value.into()),
        }
    }

    /// An integer for a field that is no integer, or has no room for it as an `i64`.
    #[inline(never)]
    fn set_other_integer(&mut self, field: usize, value: i128) -> Result<(), ValueError> {
        let place = self.place(field)?;
        match (place.ty(), u64::try_from(value)) {
            (FieldType::U64, Ok(value)) => self.put(place, value.to_le_bytes()),
            (ty @ FieldType::Enum { .. }, _) => match i64::try_from(value) {
                Ok(value) => return self.put_number(place, value).map_err(|problem| self.refuse(field, problem)),
                Err(_) => return Err(self.refuse(field, ValueProblem::WrongType { found: "integer", ty })),
            },
            (FieldType::Decimal { .. }, _) => return self.set_decimal(field, value, 0),
            (ty, _) if ty.is_integer() => {
                return Err(self.refuse(field, ValueProblem::IntegerRange { found: value, ty }));
            }
            _ => return Err(self.wrong_type(field, "integer")),
        }
        Ok(())
    }

    /// Gives an `f64` field its value, or an `f32` field the nearest that it can hold.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`]; a finite value that would be infinite as `f32` is out of range.
    pub fn set_f64(&mut self, field: usize, value: f64) -> Result<(), ValueError> {
        let is_set = self.quick(field, |record, cell| {
            let is_own = cell.ty == FieldType::F64;
            if is_own {
                store(record, cell, value.to_le_bytes());
            }
            is_own
        });
        if is_set { Ok(()) } else { self.set_float(field, value) }
    }

    /// A float for any field.
    #[inline(never)]
    fn set_float(&mut self, field: usize, value: f64) -> Result<(), ValueError> {
        let place = self.place(field)?;
        self.put_float(place, value).map_err(|problem| self.refuse(field, problem))
    }

    /// Gives a `timestamp` field its value, in nanoseconds since 1970-01-01T00:00:00Z.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    pub fn set_timestamp(&mut self, field: usize, nanoseconds: i64) -> Result<(), ValueError> {
        let place = self.place(field)?;
        match place.ty() {
            FieldType::Timestamp => self.put(place, nanoseconds.to_le_bytes()),
            _ => return Err(self.wrong_type(field, "timestamp")),
        }
        Ok(())
    }

    /// Gives a `char[N]` or `string` field its value, from a `&str`, or from bytes that the caller knows to be UTF-8.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`]; an enumeration takes its symbols. A text that ends in NUL does not go into a `char[N]`: padding is NUL too.
    #[inline]
    pub fn set_text(&mut self, field: usize, text: impl AsRef<[u8]>) -> Result<(), ValueError> {
        self.set_run(field, text.as_ref())
    }

    fn set_run(&mut self, field: usize, text: &[u8]) -> Result<(), ValueError> {
        let is_set = self.quick(field, |record, cell| match cell.ty {
            FieldType::Char(room) => store_char(record, cell, room, text),
            FieldType::String => store_run(record, cell, ByteRun::alone(text)),
            _ => false,
        });
        if is_set { Ok(()) } else { self.set_any_text(field, text) }
    }

    /// A text for any field.
    #[inline(never)]
    fn set_any_text(&mut self, field: usize, text: &[u8]) -> Result<(), ValueError> {
        let place = self.place(field)?;
        match place.ty() {
            FieldType::String | FieldType::Char(_) => {
                self.put_run(place, ByteRun::alone(text)).map_err(|problem| self.refuse(field, problem))
            }
            FieldType::Enum { .. } => self.put_symbol(place, text).map_err(|problem| self.refuse(field, problem)),
            _ => Err(self.wrong_type(field, "text")),
        }
    }

    /// Gives a `bytes` field its value.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    pub fn set_bytes(&mut self, field: usize, value: &[u8]) -> Result<(), ValueError> {
        let place = self.place(field)?;
        match place.ty() {
            FieldType::Bytes => {
                self.put_run(place, ByteRun::alone(value)).map_err(|problem| self.refuse(field, problem))
            }
            _ => Err(self.wrong_type(field, "bytes")),
        }
    }

    /// The finished record.
    ///
    /// # Errors
    /// A field that is not nullable was never set. Of a foreign layout: a value that it has no way to hold, or that is not
    /// what fields say that describe it.
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
        self.bytes.extend_from_slice(&[0; RECORD_ALIGN]);
        self.bytes.truncate(len);
        if let Some(word) = self.bytes.first_chunk_mut() {
            // At most MAX_RECORD_BYTES: see `put_run`.
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

    /// The place of a field of the innermost open record.
    #[inline]
    fn place(&self, field: usize) -> Result<Place, ValueError> {
        match Place::of(&self.format, field) {
            Some(place) => Ok(place),
            None => Err(self.no_such_field(field)),
        }
    }

    #[cold]
    #[inline(never)]
    fn no_such_field(&self, field: usize) -> ValueError {
        self.refuse(field, ValueProblem::NoSuchField { fields: self.format.fields().len() })
    }

    /// The buffer that the innermost open record is in.
    #[inline]
    fn buffer(&mut self) -> &mut Vec<u8> {
        match self.target {
            0 => &mut self.bytes,
            target => match self.levels.get_mut(target - 1) {
                Some(level) => &mut level.bytes,
                None => &mut self.bytes,
            },
        }
    }

    #[cold]
    #[inline(never)]
    fn wrong_type(&self, field: usize, found: &'static str) -> ValueError {
        match self.place(field) {
            Ok(place) => self.refuse(field, ValueProblem::WrongType { found, ty: place.ty() }),
            Err(error) => error,
        }
    }

    #[cold]
    pub(crate) fn refuse(&self, field: usize, problem: ValueProblem) -> ValueError {
        ValueError { format: self.format.clone(), within: self.path(), is_value: self.is_in_value(), field, problem }
    }
}
