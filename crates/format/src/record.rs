//! Records read in place. Reading never relies on the check for its own safety: beyond the bytes there are zeros.

use std::fmt;

use crate::element::{Count, Element, Group, Member};
use crate::field::FieldType;
use crate::foreign::{Access, At, any_null};
use crate::format::{Bit, Cell, CellKind, Format, RECORD_ALIGN};

/// A value of one field, borrowed from the record.
#[derive(Clone, Copy, PartialEq)]
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
    /// Of a `decimal` field: a number of units of 10 to the power of minus `scale`.
    Decimal {
        /// The number of units.
        unscaled: i128,
        /// Digits behind the point.
        scale: u8,
    },
    /// Of an enumeration. The symbol is that of the number; a number may have none.
    Enum {
        /// The number.
        number: i64,
        /// Its symbol.
        symbol: Option<&'a str>,
    },
    /// Of a list.
    List(List<'a>),
    /// An element of a list of records.
    Record(Record<'a>),
}

impl Value<'_> {
    /// Whether this is [`Value::Null`].
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The kind of this value, in a word, for messages.
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
            Self::Decimal { .. } => "decimal",
            Self::Enum { .. } => "enum",
            Self::List(_) => "list",
            Self::Record(_) => "record",
        }
    }
}

/// Text that is UTF-8 is shown as text.
impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Bool(value) => f.debug_tuple("Bool").field(value).finish(),
            Self::Int(value) => f.debug_tuple("Int").field(value).finish(),
            Self::Uint(value) => f.debug_tuple("Uint").field(value).finish(),
            Self::Float(value) => f.debug_tuple("Float").field(value).finish(),
            Self::Timestamp(value) => f.debug_tuple("Timestamp").field(value).finish(),
            Self::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => f.debug_tuple("Text").field(&text).finish(),
                Err(_) => f.debug_tuple("Text").field(bytes).finish(),
            },
            Self::Bytes(bytes) => f.debug_tuple("Bytes").field(bytes).finish(),
            Self::Decimal { unscaled, scale } => {
                f.debug_struct("Decimal").field("unscaled", unscaled).field("scale", scale).finish()
            }
            Self::Enum { number, symbol } => {
                f.debug_struct("Enum").field("number", number).field("symbol", symbol).finish()
            }
            Self::List(list) => f.debug_tuple("List").field(list).finish(),
            Self::Record(record) => f.debug_tuple("Record").field(record).finish(),
        }
    }
}

/// A view of one record, or of one element of a list: a format and the bytes.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    format: &'a Format,
    cells: &'a [Cell],
    bytes: &'a [u8],
    /// Where the record starts in the bytes: 0, but for an element.
    base: usize,
}

/// Two records are equal when they are of one format and hold equal values.
impl PartialEq for Record<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.format == other.format
            && (0..self.cells.len()).all(|field| self.get(field) == other.get(field))
            && self.groups_equal(self.format.tree(), other)
    }
}

impl<'a> Record<'a> {
    /// A view of a record that was checked where it came in. Nothing is looked at again; should the bytes not be what
    /// they were said to be, reading gives zeros, nulls and empty text, and never panics.
    #[inline]
    #[must_use]
    pub fn assume_checked(format: &'a Format, bytes: &'a [u8]) -> Record<'a> {
        Record { format, cells: &format.layout().cells, bytes, base: 0 }
    }

    /// An element of a list of this record; `format` is an element's.
    #[inline]
    pub(crate) fn element(format: &'a Format, bytes: &'a [u8], base: usize) -> Record<'a> {
        Record { format, cells: &format.layout().cells, bytes, base }
    }

    /// The record's bytes; for an element, those of the whole record that it lies in.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where the record starts in its bytes: 0, but for an element of a list.
    #[inline]
    #[must_use]
    pub fn base(&self) -> usize {
        self.base
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
        self.cells.get(field).is_none_or(|cell| match cell.kind {
            CellKind::Foreign => self.access(field).is_none_or(|access| any_null(&access.tests, &self.place())),
            _ => self.cell_is_null(cell),
        })
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
        let at = self.base + cell.offset as usize;
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
            FieldType::Decimal { .. } | FieldType::Enum { .. } | FieldType::List => self.composed(field, cell),
        }
    }

    /// The value of the field of this name, such as `pos.x` for a field of a nested record; `None` if the format has no such
    /// field. The name is looked up at each call: over many records, look the index up once ([`Format::field`]).
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        self.format.field(name).map(|field| self.get(field))
    }

    /// A value that is more than one load; kept apart, so that the others are read where they are asked for.
    #[inline(never)]
    fn composed(&self, field: usize, cell: &Cell) -> Value<'a> {
        if cell.kind == CellKind::Foreign {
            return self.foreign_value(field);
        }
        let at = self.base + cell.offset as usize;
        match cell.ty {
            FieldType::Decimal { bytes, scale } => {
                let unscaled = match bytes {
                    4 => i32::from_le_bytes(self.load(at)).into(),
                    8 => i64::from_le_bytes(self.load(at)).into(),
                    _ => i128::from_le_bytes(self.load(at)),
                };
                Value::Decimal { unscaled, scale }
            }
            FieldType::Enum { bytes, signed } => self.symbol(field, self.enum_number(at, bytes, signed)),
            FieldType::List => self.format.layout().element(field).map_or(Value::Null, |element| {
                let (at, len) = match element.count {
                    Count::Fixed(count) => (at, count),
                    Count::Slot => {
                        let (start, len) = slot(self.bytes, at);
                        (start as usize, len as u32)
                    }
                };
                Value::List(List { element, bytes: self.bytes, at, len, stride: element.stride })
            }),
            _ => Value::Null,
        }
    }

    /// Whether a nested record is null, or no variant of a union is there. `group` is of this record's format.
    #[must_use]
    pub fn group_is_null(&self, group: &Group) -> bool {
        if group.union.is_some() {
            return group.members.iter().all(|variant| match variant {
                Member::Leaf(field) => self.is_null(*field),
                Member::Group(group) => self.group_is_null(group),
            });
        }
        group.optional.is_some_and(|optional| self.optional_is_null(optional))
    }

    /// Whether the nested record of this index, among those that may be null, is.
    #[inline]
    pub(crate) fn optional_is_null(&self, optional: usize) -> bool {
        let layout = self.format.layout();
        if let Some(foreign) = &layout.foreign {
            return foreign.groups.get(optional).is_some_and(|tests| any_null(tests, &self.place()));
        }
        layout.groups.get(optional).is_some_and(|cell| cell.null.is_set(self.bytes, self.base))
    }

    /// Which variant of a union is there; `None` if none is.
    #[must_use]
    pub fn variant<'g>(&self, union: &'g Group) -> Option<&'g Member> {
        union.members.iter().find(|variant| match variant {
            Member::Leaf(field) => !self.is_null(*field),
            Member::Group(group) => !self.group_is_null(group),
        })
    }

    fn groups_equal(&self, members: &[Member], other: &Self) -> bool {
        members.iter().all(|member| match member {
            Member::Leaf(_) => true,
            Member::Group(group) => {
                self.group_is_null(group) == other.group_is_null(group) && self.groups_equal(&group.members, other)
            }
        })
    }

    #[inline]
    fn access(&self, field: usize) -> Option<&'a Access> {
        self.format.layout().foreign.as_ref()?.access.get(field)?.as_deref()
    }

    /// The value of a field that is more than one load.
    fn foreign_value(&self, field: usize) -> Value<'a> {
        let Some(ty) = self.format.fields().get(field).map(|field| field.ty) else { return Value::Null };
        match self.access(field) {
            Some(access) if !any_null(&access.tests, &self.place()) => {
                access.value(self.format.layout(), field, ty, &self.place())
            }
            _ => Value::Null,
        }
    }

    /// The places of a foreign layout.
    #[inline]
    fn place(&self) -> At<'a> {
        At::of(self.bytes, self.base, self.format.layout().foreign.as_ref().map_or(&[], |foreign| &foreign.pieces))
    }

    #[inline]
    fn cell_is_null(&self, cell: &Cell) -> bool {
        Bit { byte: cell.null_byte, mask: cell.null_mask }.is_set(self.bytes, self.base)
    }

    #[inline]
    fn enum_number(&self, at: usize, bytes: u8, signed: bool) -> i64 {
        match (bytes, signed) {
            (1, true) => i8::from_le_bytes(self.load(at)).into(),
            (1, false) => u8::from_le_bytes(self.load(at)).into(),
            (2, true) => i16::from_le_bytes(self.load(at)).into(),
            (2, false) => u16::from_le_bytes(self.load(at)).into(),
            (4, true) => i32::from_le_bytes(self.load(at)).into(),
            (4, false) => u32::from_le_bytes(self.load(at)).into(),
            _ => i64::from_le_bytes(self.load(at)),
        }
    }

    #[inline]
    fn symbol(&self, field: usize, number: i64) -> Value<'a> {
        let symbol = self.format.layout().enumeration(field).and_then(|enumeration| enumeration.symbol(number));
        Value::Enum { number, symbol }
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

/// The elements of a list.
#[derive(Clone, Copy)]
pub struct List<'a> {
    element: &'a Element,
    bytes: &'a [u8],
    at: usize,
    len: u32,
    /// Bytes from one element to the next: the element's own number, unless a record of a foreign layout has its own.
    stride: u32,
}

impl<'a> List<'a> {
    pub(crate) fn of(element: &'a Element, bytes: &'a [u8], at: usize, len: u32, stride: u32) -> List<'a> {
        List { element, bytes, at, len, stride }
    }

    /// How many elements there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element of the list.
    #[must_use]
    pub fn element(&self) -> &'a Element {
        self.element
    }

    /// An element as a record: for a list of single values, one whose only field is the value; `None` beyond the end.
    #[inline]
    #[must_use]
    pub fn record(&self, index: usize) -> Option<Record<'a>> {
        let base = index.checked_mul(self.stride as usize)?.checked_add(self.at)?;
        // Behind the bytes there is nothing to be read, whatever the slot says.
        (index < self.len() && base < self.bytes.len()).then(|| Record::element(&self.element.format, self.bytes, base))
    }

    /// An element's value: [`Value::Record`] in a list of records; null beyond the end.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Value<'a> {
        match self.record(index) {
            Some(record) if self.element.is_record => Value::Record(record),
            Some(record) => record.get(0),
            None => Value::Null,
        }
    }

    /// The elements' values.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value<'a>> + use<'a> {
        let list = *self;
        // Of a list that was not checked, no more than there are bytes for.
        let room = list.bytes.len().saturating_sub(list.at).div_ceil(list.stride.max(1) as usize);
        (0..list.len().min(room)).map(move |index| list.get(index))
    }

    /// Where the elements start in the record's bytes.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Bytes from one element to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride as usize
    }

    /// The bytes of the record that the list lies in.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl PartialEq for List<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// `N` bytes from `at` on; zeros where there are fewer.
#[inline]
pub(crate) fn load<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|value| value.first_chunk()).copied().unwrap_or([0; N])
}

/// Start and length of a slot, wide enough that their sum does not overflow.
#[inline]
pub(crate) fn slot(bytes: &[u8], at: usize) -> (u64, u64) {
    let word = u64::from_le_bytes(load(bytes, at));
    (word & 0xffff_ffff, word >> 32)
}

impl Format {
    /// The length of the record that `bytes` start with, as it says itself or as the layout has it; `None` if it is none
    /// that a record can have, or more than there are bytes. Nothing else is checked.
    #[inline]
    #[must_use]
    pub fn record_len(&self, bytes: &[u8]) -> Option<usize> {
        match &self.layout().foreign {
            None => record_len(bytes),
            Some(foreign) => foreign.record_len(self.fixed_bytes(), bytes),
        }
    }
}

/// The length of the record that `bytes` start with, from its first word: at least 8, a multiple of 8, and no more than
/// there are bytes. `None` if it is none of these; nothing else is checked.
#[inline]
#[must_use]
pub fn record_len(bytes: &[u8]) -> Option<usize> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    (len >= RECORD_ALIGN && len.is_multiple_of(RECORD_ALIGN) && len <= bytes.len()).then_some(len)
}
