//! The properties of a field: its type, and its place in a record.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::element::{Count, Element, ElementKind, Enumeration};
use crate::foreign::{Access, ReadCost};
use crate::format::Specs;
use crate::problem::FieldTypeError;
pub(crate) use crate::spec::{Evolution, FieldSpec, TypeSpec};

/// The type of a field's values. Its text form (`Display`, `FromStr`) is `bool`, `i8` … `u64`, `f32`, `f64`,
/// `timestamp`, `char[N]`, `string`, `bytes`, `decimal(BYTES, scale N)`. The description of an enumeration's symbols
/// and a list's elements stands in the field's [`Detail`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FieldType {
    /// True or false; one byte, 0 or 1.
    Bool,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// Nanoseconds since 1970-01-01T00:00:00Z, a signed 64-bit integer.
    Timestamp,
    /// Text of at most this many bytes (1 or more), kept in the fixed part and padded with NUL.
    Char(u16),
    /// Text of any length, UTF-8, kept in the variable part.
    String,
    /// Bytes of any length, kept in the variable part.
    Bytes,
    /// A whole number of this many bytes (4, 8 or 16, two's complement) that counts units of 10 to the power of minus
    /// `scale`.
    Decimal {
        /// Bytes of the number.
        bytes: u8,
        /// Digits behind the point, 0 to 38.
        scale: u8,
    },
    /// A number that stands for a symbol. Numbers without a symbol are kept unchanged.
    Enum {
        /// Bytes of the number: 1, 2, 4 or 8.
        bytes: u8,
        /// Whether the number has a sign; one of 8 bytes always has.
        signed: bool,
    },
    /// Elements of one type: a slot, or, where their number is fixed, the elements themselves.
    List,
}

impl FieldType {
    /// Bytes that a value takes in the fixed part; for `string`, `bytes` and lists, those of its slot. A list whose count
    /// is fixed takes what its field says.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::Timestamp | Self::String | Self::Bytes | Self::List => 8,
            Self::Char(bytes) => bytes as usize,
            Self::Decimal { bytes, .. } | Self::Enum { bytes, .. } => bytes as usize,
        }
    }

    /// The alignment of a value's offset in the natural layout, in bytes.
    #[must_use]
    pub const fn align(self) -> usize {
        match self {
            Self::Char(_) => 1,
            Self::String | Self::Bytes | Self::List => 4,
            Self::Decimal { bytes: 16, .. } => 8,
            other => other.size(),
        }
    }

    /// Whether the value's bytes are in the variable part, behind a slot (`string` and `bytes`).
    #[must_use]
    pub const fn is_variable(self) -> bool {
        matches!(self, Self::String | Self::Bytes)
    }

    /// Whether this is one of the eight integer types (a timestamp is not).
    #[must_use]
    pub const fn is_integer(self) -> bool {
        self.integer_range().is_some()
    }

    /// Whether this is text: `char[N]` or `string`.
    #[must_use]
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Char(_) | Self::String)
    }

    /// The least and the greatest value of an integer type; `None` for other types.
    #[must_use]
    pub const fn integer_range(self) -> Option<(i128, i128)> {
        Some(match self {
            Self::I8 => (i8::MIN as i128, i8::MAX as i128),
            Self::I16 => (i16::MIN as i128, i16::MAX as i128),
            Self::I32 => (i32::MIN as i128, i32::MAX as i128),
            Self::I64 => (i64::MIN as i128, i64::MAX as i128),
            Self::U8 => (0, u8::MAX as i128),
            Self::U16 => (0, u16::MAX as i128),
            Self::U32 => (0, u32::MAX as i128),
            Self::U64 => (0, u64::MAX as i128),
            _ => return None,
        })
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Timestamp => "timestamp",
            Self::Char(bytes) => return write!(f, "char[{bytes}]"),
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Decimal { bytes, scale } => return write!(f, "decimal({bytes}, scale {scale})"),
            Self::Enum { bytes, signed } => {
                let (sign, bits) = (if *signed { 'i' } else { 'u' }, u32::from(*bytes) * 8);
                return write!(f, "enum {sign}{bits}");
            }
            Self::List => "list",
        };
        f.pad(word)
    }
}

impl FromStr for FieldType {
    type Err = FieldTypeError;

    fn from_str(word: &str) -> Result<Self, FieldTypeError> {
        Ok(match word {
            "bool" => Self::Bool,
            "i8" => Self::I8,
            "i16" => Self::I16,
            "i32" => Self::I32,
            "i64" => Self::I64,
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "f32" => Self::F32,
            "f64" => Self::F64,
            "timestamp" => Self::Timestamp,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            _ => {
                let known = parse_char(word).or_else(|| parse_decimal(word));
                return known.ok_or_else(|| FieldTypeError { found: word.chars().take(40).collect() });
            }
        })
    }
}

/// `char[N]`, with N written one way only: digits, no sign, no leading zero.
fn parse_char(word: &str) -> Option<FieldType> {
    let digits = word.strip_prefix("char[")?.strip_suffix(']')?;
    if digits.starts_with('0') || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(FieldType::Char)
}

/// Digits behind the point that a decimal may have: as many as 16 bytes hold.
pub(crate) const MAX_SCALE: u8 = 38;

/// `decimal(BYTES, scale N)`.
fn parse_decimal(word: &str) -> Option<FieldType> {
    let (bytes, scale) = word.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
    let scale = scale.trim_start().strip_prefix("scale")?;
    let scale: u8 = scale.strip_prefix(char::is_whitespace)?.trim().parse().ok()?;
    let bytes = match bytes.trim() {
        "4" => 4,
        "8" => 8,
        "16" => 16,
        _ => return None,
    };
    (scale <= MAX_SCALE).then_some(FieldType::Decimal { bytes, scale })
}

/// Which end of a number comes first in memory. The natural layout is little-endian throughout; a field says so,
/// because a description of a foreign layout may say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ByteOrder {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

impl fmt::Display for ByteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Little => "little",
            Self::Big => "big",
        })
    }
}

/// The properties that a type alone does not say.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum Detail {
    /// The type says it all.
    None,
    /// The symbols of an enumeration.
    Enum(Arc<Enumeration>),
    /// The elements of a list.
    List(Arc<Element>),
}

/// A field with its place in a record.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Field {
    /// The name, unique in its format; of a field in a nested record, the names on the way to it with dots in between.
    pub name: String,
    /// The type of its values.
    pub ty: FieldType,
    /// Whether a record may hold null here: the field is declared so, or lies in a nested record that may be null.
    pub nullable: bool,
    /// Where the value (or its slot) starts, in bytes from the start of the record; of an element's field, from the start
    /// of the element.
    pub offset: u32,
    /// How many bytes the value (or its slot) takes there.
    pub size: u32,
    /// Byte order of the value, or of its slot.
    pub byte_order: ByteOrder,
    /// Which bit of the null bitmap describes this field (bit `n` is bit `n % 8` of byte `4 + n / 8`, in elements of
    /// lists of byte `n / 8`); `None` if it is never null. Fields of a nested record that may be null share its bit,
    /// unless they are nullable themselves.
    pub null_bit: Option<u16>,
    /// The properties that the type does not say: symbols, elements.
    pub detail: Detail,
    /// How the field of a foreign layout is read, where that takes more than one load.
    pub foreign: Option<Arc<Access>>,
    /// How it goes together with other versions of the format, if anything is said of that.
    pub evolution: Option<Arc<Evolution>>,
}

impl Field {
    /// Whether the value is one little-endian load, or one slot, with null by the bitmap: what compiled code may rely
    /// on. Everything else is read by [`Record::get`](crate::Record::get).
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.foreign.is_none()
    }

    /// The cost of reading the field in place.
    #[must_use]
    pub fn read_cost(&self) -> ReadCost {
        self.foreign.as_ref().map_or(ReadCost::Load, |access| access.cost())
    }

    /// The symbols, of an enumeration.
    #[must_use]
    pub fn enumeration(&self) -> Option<&Arc<Enumeration>> {
        match &self.detail {
            Detail::Enum(enumeration) => Some(enumeration),
            _ => None,
        }
    }

    /// Its value where a record has no such field, as text.
    #[must_use]
    pub fn default_text(&self) -> Option<&str> {
        self.evolution.as_ref()?.default.as_deref()
    }

    /// The number of the symbol that stands for those that an enumeration lacks.
    #[must_use]
    pub fn unknown_number(&self) -> Option<i64> {
        self.enumeration()?.number(self.evolution.as_ref()?.unknown.as_deref()?)
    }

    /// The elements, of a list.
    #[must_use]
    pub fn element(&self) -> Option<&Arc<Element>> {
        match &self.detail {
            Detail::List(element) => Some(element),
            _ => None,
        }
    }

    /// The type as it is declared.
    #[must_use]
    pub fn type_spec(&self) -> TypeSpec {
        self.type_spec_of(Specs::Declared)
    }

    pub(crate) fn type_spec_of(&self, which: Specs) -> TypeSpec {
        match &self.detail {
            Detail::None => TypeSpec::Scalar(self.ty),
            Detail::Enum(enumeration) => {
                let (bytes, signed) = match self.ty {
                    FieldType::Enum { bytes, signed } => (bytes, signed),
                    _ => (4, true),
                };
                TypeSpec::Enum { bytes, signed, symbols: enumeration.symbols().to_vec() }
            }
            Detail::List(element) => {
                let of = match element.kind() {
                    ElementKind::Scalar(field) => field.type_spec_of(which),
                    ElementKind::Record(format) => TypeSpec::Record(format.specs_of(which)),
                };
                let count = match element.count {
                    Count::Fixed(count) => Some(count),
                    Count::Slot => None,
                };
                TypeSpec::List { element: Box::new(of), count }
            }
        }
    }

    /// A declaration of a field like this one, by its whole name, in no nested record: what a column of a query's result
    /// is made from.
    #[must_use]
    pub fn spec(&self) -> FieldSpec {
        let (ty, evolution) = (self.type_spec(), self.evolution.clone());
        FieldSpec { name: self.name.clone(), ty, nullable: self.nullable, evolution }
    }
}

/// The numbers that an enumeration of `bytes` bytes has room for.
pub(crate) fn enum_range(bytes: u8, signed: bool) -> (i128, i128) {
    let bits = u32::from(bytes) * 8;
    match signed {
        true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => (0, (1 << bits) - 1),
    }
}
