//! The meaning of a conversion, value by value. Steps do the same for whole chunks of records, and are held to this.

use std::sync::Arc;

use super::decimal;
use super::error::{ConvertProblem, TypeProblem};
use super::rules::TimeUnit;
use crate::builder::rescale;
use crate::element::Enumeration;
use crate::field::FieldType;
use crate::field::enum_range;
use crate::record::Value;

/// One conversion on the way of a value: to which type, and what the types do not say.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Hop {
    pub(super) to: FieldType,
    /// The unit of an integer, where the type on the other side is a timestamp.
    pub(super) unit: TimeUnit,
    /// The symbols of the enumeration that it leads to.
    pub(super) symbols: Option<Arc<Enumeration>>,
    /// Whether an enumeration keeps its number, its symbols being the same.
    pub(super) by_number: bool,
    /// The number for symbols that the enumeration lacks, if there is one.
    pub(super) unknown: Option<i64>,
}

impl Hop {
    fn enumerated(&self, number: i64) -> Value<'_> {
        Value::Enum { number, symbol: self.symbols.as_ref().and_then(|symbols| symbols.symbol(number)) }
    }

    /// The value that a symbol stands for, or the one for those that the enumeration lacks; `None` if there is neither.
    fn symbol(&self, symbol: Option<&[u8]>) -> Option<Value<'_>> {
        let symbol = symbol.and_then(|symbol| str::from_utf8(symbol).ok());
        let number = self.symbols.as_ref().zip(symbol).and_then(|(symbols, symbol)| symbols.number(symbol));
        number.or(self.unknown).map(|number| self.enumerated(number))
    }
}

/// The least and the greatest number of a type whose values are whole numbers: integers and enumerations.
pub(super) fn number_range(ty: FieldType) -> Option<(i128, i128)> {
    match ty {
        FieldType::Enum { bytes, signed } => Some(enum_range(bytes, signed)),
        ty => ty.integer_range(),
    }
}

/// A value that owns its bytes: a default.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Constant {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Timestamp(i64),
    Text(Box<[u8]>),
    Bytes(Box<[u8]>),
    Decimal {
        unscaled: i128,
        scale: u8,
    },
    Enum {
        number: i64,
        symbol: Option<Box<str>>,
    },
    /// A list without elements.
    NoElements,
}

impl Constant {
    /// The constant of a value; `None` for null, and for what is more than one value.
    pub(super) fn of(value: Value<'_>) -> Option<Constant> {
        Some(match value {
            Value::Null => return None,
            Value::Bool(value) => Self::Bool(value),
            Value::Int(value) => Self::Int(value),
            Value::Uint(value) => Self::Uint(value),
            Value::Float(value) => Self::Float(value),
            Value::Timestamp(value) => Self::Timestamp(value),
            Value::Text(text) => Self::Text(text.into()),
            Value::Bytes(bytes) => Self::Bytes(bytes.into()),
            Value::Decimal { unscaled, scale } => Self::Decimal { unscaled, scale },
            Value::Enum { number, symbol } => Self::Enum { number, symbol: symbol.map(Box::from) },
            Value::List(_) | Value::Record(_) => return None,
        })
    }

    /// As a value; null for a list, which needs a record.
    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Float(value) => Value::Float(*value),
            Self::Timestamp(value) => Value::Timestamp(*value),
            Self::Text(text) => Value::Text(text),
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Decimal { unscaled, scale } => Value::Decimal { unscaled: *unscaled, scale: *scale },
            Self::Enum { number, symbol } => Value::Enum { number: *number, symbol: symbol.as_deref() },
            Self::NoElements => Value::Null,
        }
    }
}

/// The rule for null.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum NullRule {
    /// It stays null; the target is nullable.
    Keep,
    /// The row is refused.
    Refuse,
    /// It becomes this, of the target's type.
    Default(Constant),
}

/// Whether a value that is not null may be refused on its way from one type to another, for what it is.
pub(super) fn may_refuse(from: FieldType, hop: &Hop) -> bool {
    use FieldType as T;
    match (from, hop.to) {
        (T::Enum { .. }, T::Enum { .. }) if !hop.by_number => hop.unknown.is_none(),
        (T::Enum { .. }, to) if to.is_text() => true,
        (from, T::Enum { .. }) if from.is_text() => hop.unknown.is_none(),
        (T::Decimal { .. }, T::F32 | T::F64) => false,
        (from, to) if decimal::scale(from).or(decimal::scale(to)).is_some() => decimal::may_refuse(from, to),
        (T::Char(from), T::Char(to)) => from > to,
        (T::String, T::Char(_)) | (T::Bytes, T::Char(_) | T::String) | (T::F64, T::F32) => true,
        (T::F32 | T::F64, to) => to.is_integer(),
        (T::Timestamp, T::I64 | T::Timestamp) => false,
        (T::Timestamp, _) => true,
        (_, T::Timestamp) => true,
        (from, T::Bool) => from != T::Bool,
        (from, to) => match (number_range(from), number_range(to)) {
            (Some((low, high)), Some((least, greatest))) => low < least || high > greatest,
            _ => false,
        },
    }
}

/// Whether values of one type are converted to another by name, and whether that takes a unit.
pub(super) fn allowed(from: FieldType, to: FieldType, has_unit: bool) -> Result<(), TypeProblem> {
    use FieldType as T;
    let is_number = |ty: T| ty.is_integer() || matches!(ty, T::F32 | T::F64 | T::Decimal { .. });
    let is_text = |ty: T| ty.is_text() || ty == T::Bytes;
    let time = |other: T| match (other.is_integer(), has_unit) {
        (true, true) => Ok(()),
        (true, false) => Err(TypeProblem::NoUnit),
        (false, _) => Err(TypeProblem::NoConversion),
    };
    match (from, to) {
        // The elements of a list, its type does not say.
        (T::List, _) | (_, T::List) => Err(TypeProblem::NoConversion),
        (T::Timestamp, T::Timestamp) | (T::Bool, T::Bool) if has_unit => Err(TypeProblem::UselessUnit),
        (from, to) if from == to && !has_unit => Ok(()),
        (T::Timestamp, other) | (other, T::Timestamp) => time(other),
        _ if has_unit => Err(TypeProblem::UselessUnit),
        (T::Bool, other) | (other, T::Bool) if other.is_integer() => Ok(()),
        (T::Enum { .. }, T::Enum { .. }) => Ok(()),
        (T::Enum { .. }, other) | (other, T::Enum { .. }) if other.is_integer() || other.is_text() => Ok(()),
        (from, to) if is_number(from) && is_number(to) => Ok(()),
        (from, to) if is_text(from) && is_text(to) => Ok(()),
        _ => Err(TypeProblem::NoConversion),
    }
}

/// A value that is not null as one of the type that a hop leads to. Floats become the nearest integer, the even one of two,
/// as CAST does; a timestamp becomes the last whole unit before it.
pub(super) fn convert<'a>(value: Value<'a>, hop: &'a Hop) -> Result<Value<'a>, ConvertProblem> {
    use FieldType as T;
    let (to, unit) = (hop.to, hop.unit);
    match (value, to) {
        (Value::Null, _) => Err(ConvertProblem::Null),
        (Value::Timestamp(_), T::Timestamp) => Ok(value),
        (Value::Timestamp(nanoseconds), _) => integer(nanoseconds.div_euclid(unit.nanoseconds()).into(), to),
        (Value::Bool(_), T::Bool) => Ok(value),
        (Value::Bool(bit), _) => integer(bit.into(), to),
        (Value::Int(value), _) => from_integer(value.into(), hop),
        (Value::Uint(value), _) => from_integer(value.into(), hop),
        (Value::Float(_), T::F64) => Ok(value),
        (Value::Float(found), T::F32) => {
            let narrow = found as f32;
            match narrow.is_infinite() && found.is_finite() {
                true => Err(ConvertProblem::FloatRange { found, ty: to }),
                false => Ok(Value::Float(narrow.into())),
            }
        }
        (Value::Float(found), T::Decimal { .. }) => {
            decimal::of_float(found, to).ok_or(ConvertProblem::FloatRange { found, ty: to })
        }
        (Value::Float(found), _) => {
            let rounded = found.round_ties_even();
            // Every float below 2^65 fits; NaN is in no range.
            match (-3.7e19..=3.7e19).contains(&rounded) {
                true => integer(rounded as i128, to).map_err(|_| ConvertProblem::FloatRange { found, ty: to }),
                false => Err(ConvertProblem::FloatRange { found, ty: to }),
            }
        }
        (Value::Text(text), T::Enum { .. }) => hop.symbol(Some(text)).ok_or(ConvertProblem::NotSymbol),
        (Value::Text(bytes) | Value::Bytes(bytes), T::Bytes) => Ok(Value::Bytes(bytes)),
        (Value::Text(text), _) => fit_text(text, to),
        (Value::Bytes(bytes), _) => match str::from_utf8(bytes) {
            Ok(_) => fit_text(bytes, to),
            Err(_) => Err(ConvertProblem::NotUtf8),
        },
        (Value::Enum { number, symbol }, _) => from_enum(number, symbol, hop),
        (Value::Decimal { unscaled, scale }, T::F32 | T::F64) => Ok(decimal::to_float(unscaled, scale, to)),
        (Value::Decimal { unscaled, scale }, _) => {
            let refused = ConvertProblem::DecimalRange { unscaled, scale, ty: to };
            match to {
                T::Decimal { .. } => decimal::fit(unscaled, scale, to).ok_or(refused),
                _ => rescale(unscaled, scale, 0).ok_or(refused).and_then(|whole| integer(whole, to)),
            }
        }
        (Value::List(_) | Value::Record(_), ty) => Err(ConvertProblem::WrongType { ty }),
    }
}

fn from_enum<'a>(number: i64, symbol: Option<&'a str>, hop: &'a Hop) -> Result<Value<'a>, ConvertProblem> {
    match hop.to {
        FieldType::Enum { .. } if hop.by_number => from_integer(number.into(), hop),
        to if to.is_integer() => integer(number.into(), to),
        FieldType::Enum { .. } => hop.symbol(symbol.map(str::as_bytes)).ok_or(match symbol {
            Some(_) => ConvertProblem::UnknownSymbol { found: number },
            None => ConvertProblem::NoSymbol { found: number },
        }),
        to => fit_text(symbol.ok_or(ConvertProblem::NoSymbol { found: number })?.as_bytes(), to),
    }
}

fn from_integer(value: i128, hop: &Hop) -> Result<Value<'_>, ConvertProblem> {
    let (to, unit) = (hop.to, hop.unit);
    match to {
        FieldType::Bool => match value {
            0 => Ok(Value::Bool(false)),
            1 => Ok(Value::Bool(true)),
            found => Err(ConvertProblem::NotBool { found }),
        },
        FieldType::F64 => Ok(Value::Float(value as f64)),
        FieldType::F32 => Ok(Value::Float((value as f32).into())),
        FieldType::Timestamp => match i64::try_from(value * i128::from(unit.nanoseconds())) {
            Ok(nanoseconds) => Ok(Value::Timestamp(nanoseconds)),
            Err(_) => Err(ConvertProblem::TimeRange { found: value, unit }),
        },
        FieldType::Decimal { .. } => {
            decimal::fit(value, 0, to).ok_or(ConvertProblem::IntegerRange { found: value, ty: to })
        }
        FieldType::Enum { bytes, signed } => {
            let (least, greatest) = enum_range(bytes, signed);
            match i64::try_from(value).ok().filter(|_| (least..=greatest).contains(&value)) {
                Some(number) => Ok(hop.enumerated(number)),
                None => Err(ConvertProblem::IntegerRange { found: value, ty: to }),
            }
        }
        _ => integer(value, to),
    }
}

fn integer<'a>(found: i128, to: FieldType) -> Result<Value<'a>, ConvertProblem> {
    match to.integer_range() {
        Some((least, greatest)) if (least..=greatest).contains(&found) => Ok(match least {
            0 => Value::Uint(found as u64),
            _ => Value::Int(found as i64),
        }),
        Some(_) => Err(ConvertProblem::IntegerRange { found, ty: to }),
        None => Err(ConvertProblem::WrongType { ty: to }),
    }
}

fn fit_text(text: &[u8], to: FieldType) -> Result<Value<'_>, ConvertProblem> {
    match to {
        FieldType::Char(room) if text.len() > room.into() => {
            Err(ConvertProblem::TextTooLong { found: text.len(), room })
        }
        FieldType::Char(_) if text.last() == Some(&0) => Err(ConvertProblem::EndsInNul),
        FieldType::Char(_) | FieldType::String => Ok(Value::Text(text)),
        ty => Err(ConvertProblem::WrongType { ty }),
    }
}

/// Puts a value, of the field's own type, into a fixed part; null and bytes of the variable part are not for here.
pub(super) fn store(row: &mut [u8], at: usize, ty: FieldType, value: Value<'_>) {
    match value {
        Value::Bool(value) => put(row, at, [value.into()]),
        Value::Int(value) | Value::Timestamp(value) => put_integer(row, at, ty.size() as u8, value as u64),
        Value::Uint(value) => put_integer(row, at, ty.size() as u8, value),
        Value::Float(value) if ty == FieldType::F32 => put(row, at, (value as f32).to_le_bytes()),
        Value::Float(value) => put(row, at, value.to_le_bytes()),
        Value::Text(text) => {
            if let Some(place) = row.get_mut(at..at + text.len()) {
                place.copy_from_slice(text);
            }
        }
        Value::Enum { number, .. } => put_integer(row, at, ty.size() as u8, number as u64),
        Value::Decimal { unscaled, .. } if ty.size() == 16 => put(row, at, unscaled.to_le_bytes()),
        Value::Decimal { unscaled, .. } => put_integer(row, at, ty.size() as u8, unscaled as u64),
        Value::Null | Value::Bytes(_) | Value::List(_) | Value::Record(_) => {}
    }
}

/// Writes the low bytes of an integer, as many as these.
pub(super) fn put_integer(row: &mut [u8], at: usize, bytes: u8, value: u64) {
    match bytes {
        1 => put(row, at, (value as u8).to_le_bytes()),
        2 => put(row, at, (value as u16).to_le_bytes()),
        4 => put(row, at, (value as u32).to_le_bytes()),
        _ => put(row, at, value.to_le_bytes()),
    }
}

/// Writes `N` bytes at `at`; nothing if the row has fewer.
#[inline]
pub(super) fn put<const N: usize>(row: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = row.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value;
    }
}
