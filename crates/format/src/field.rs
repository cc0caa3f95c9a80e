//! What a field is: its type, its declaration, and its place in a record.

use std::fmt;
use std::str::FromStr;

/// The type of a field's values. Its text form (`Display`, `FromStr`) is `bool`, `i8` … `u64`, `f32`, `f64`,
/// `timestamp`, `char[N]`, `string`, `bytes`.
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
}

impl FieldType {
    /// Bytes that a value takes in the fixed part; for `string` and `bytes`, those of its slot.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::Timestamp | Self::String | Self::Bytes => 8,
            Self::Char(bytes) => bytes as usize,
        }
    }

    /// What a value's offset is a multiple of in the natural layout, in bytes.
    #[must_use]
    pub const fn align(self) -> usize {
        match self {
            Self::Char(_) => 1,
            Self::String | Self::Bytes => 4,
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
        };
        f.pad(word)
    }
}

/// A word that is no field type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{found}` is no field type; known: bool, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, timestamp, char[N] with \
     N from 1 to 65535, string, bytes"
)]
pub struct FieldTypeError {
    /// The word that was found, cut short if it was long.
    pub found: String,
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
                return parse_char(word).ok_or_else(|| FieldTypeError { found: word.chars().take(40).collect() });
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

/// A field as people declare it, before it has a place.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct FieldSpec {
    /// The name, unique in its format, 1 to 255 bytes with no control characters.
    pub name: String,
    /// The type of its values.
    pub ty: FieldType,
    /// Whether a record may hold null here.
    pub nullable: bool,
}

impl FieldSpec {
    /// A field that is never null.
    #[must_use]
    pub fn new(name: impl Into<String>, ty: FieldType) -> Self {
        Self { name: name.into(), ty, nullable: false }
    }

    /// A field that may be null.
    #[must_use]
    pub fn nullable(name: impl Into<String>, ty: FieldType) -> Self {
        Self { name: name.into(), ty, nullable: true }
    }
}

/// A field with its place in a record.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Field {
    /// The name, unique in its format.
    pub name: String,
    /// The type of its values.
    pub ty: FieldType,
    /// Whether a record may hold null here.
    pub nullable: bool,
    /// Where the value (or its slot) starts, in bytes from the start of the record.
    pub offset: u32,
    /// How many bytes the value (or its slot) takes there.
    pub size: u32,
    /// Byte order of the value, or of its slot.
    pub byte_order: ByteOrder,
    /// Which bit of the null bitmap tells of this field (bit `n` is bit `n % 8` of byte `4 + n / 8`); `None` if it is
    /// never null.
    pub null_bit: Option<u16>,
}
