//! What a conversion means, value by value. Steps do the same for whole chunks of records, and are held to this.

use super::error::{ConvertProblem, TypeProblem};
use super::rules::TimeUnit;
use crate::field::FieldType;
use crate::record::Value;

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
}

impl Constant {
    /// The constant of a value; `None` for null.
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
            Value::Decimal { .. } | Value::Enum { .. } | Value::List(_) | Value::Record(_) => return None,
        })
    }

    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Float(value) => Value::Float(*value),
            Self::Timestamp(value) => Value::Timestamp(*value),
            Self::Text(text) => Value::Text(text),
            Self::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

/// What becomes of null.
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
pub(super) fn may_refuse(from: FieldType, to: FieldType) -> bool {
    use FieldType as T;
    match (from, to) {
        (T::Char(from), T::Char(to)) => from > to,
        (T::String, T::Char(_)) | (T::Bytes, T::Char(_) | T::String) | (T::F64, T::F32) => true,
        (T::F32 | T::F64, to) => to.is_integer(),
        (T::Timestamp, T::I64 | T::Timestamp) => false,
        (T::Timestamp, _) => true,
        (_, T::Timestamp) => true,
        (from, T::Bool) => from != T::Bool,
        (from, to) => match (from.integer_range(), to.integer_range()) {
            (Some((low, high)), Some((least, greatest))) => low < least || high > greatest,
            _ => false,
        },
    }
}

/// Whether values of one type are converted to another by name, and whether that takes a unit.
pub(super) fn allowed(from: FieldType, to: FieldType, has_unit: bool) -> Result<(), TypeProblem> {
    use FieldType as T;
    let is_number = |ty: T| ty.is_integer() || matches!(ty, T::F32 | T::F64);
    let is_text = |ty: T| ty.is_text() || ty == T::Bytes;
    let time = |other: T| match (other.is_integer(), has_unit) {
        (true, true) => Ok(()),
        (true, false) => Err(TypeProblem::NoUnit),
        (false, _) => Err(TypeProblem::NoWay),
    };
    let is_composed = |ty: T| matches!(ty, T::List | T::Enum { .. } | T::Decimal { .. });
    match (from, to) {
        // What the types alone do not say is not looked at here.
        (from, to) if is_composed(from) || is_composed(to) => Err(TypeProblem::NoWay),
        (T::Timestamp, T::Timestamp) | (T::Bool, T::Bool) if has_unit => Err(TypeProblem::UselessUnit),
        (from, to) if from == to && !has_unit => Ok(()),
        (T::Timestamp, other) | (other, T::Timestamp) => time(other),
        _ if has_unit => Err(TypeProblem::UselessUnit),
        (T::Bool, other) | (other, T::Bool) if other.is_integer() => Ok(()),
        (from, to) if is_number(from) && is_number(to) => Ok(()),
        (from, to) if is_text(from) && is_text(to) => Ok(()),
        _ => Err(TypeProblem::NoWay),
    }
}

/// A value that is not null as one of type `to`. Floats become the nearest integer, the even one of two, as CAST does;
/// a timestamp becomes the last whole unit before it.
pub(super) fn convert(value: Value<'_>, to: FieldType, unit: TimeUnit) -> Result<Value<'_>, ConvertProblem> {
    use FieldType as T;
    match (value, to) {
        (Value::Null, _) => Err(ConvertProblem::Null),
        (Value::Timestamp(_), T::Timestamp) => Ok(value),
        (Value::Timestamp(nanoseconds), _) => integer(nanoseconds.div_euclid(unit.nanoseconds()).into(), to),
        (Value::Bool(_), T::Bool) => Ok(value),
        (Value::Bool(bit), _) => integer(bit.into(), to),
        (Value::Int(value), _) => from_integer(value.into(), to, unit),
        (Value::Uint(value), _) => from_integer(value.into(), to, unit),
        (Value::Float(_), T::F64) => Ok(value),
        (Value::Float(found), T::F32) => {
            let narrow = found as f32;
            match narrow.is_infinite() && found.is_finite() {
                true => Err(ConvertProblem::FloatRange { found, ty: to }),
                false => Ok(Value::Float(narrow.into())),
            }
        }
        (Value::Float(found), _) => {
            let rounded = found.round_ties_even();
            // Every float below 2^65 fits; NaN is in no range.
            match (-3.7e19..=3.7e19).contains(&rounded) {
                true => integer(rounded as i128, to).map_err(|_| ConvertProblem::FloatRange { found, ty: to }),
                false => Err(ConvertProblem::FloatRange { found, ty: to }),
            }
        }
        (Value::Text(bytes) | Value::Bytes(bytes), T::Bytes) => Ok(Value::Bytes(bytes)),
        (Value::Text(text), _) => fit_text(text, to),
        (Value::Bytes(bytes), _) => match str::from_utf8(bytes) {
            Ok(_) => fit_text(bytes, to),
            Err(_) => Err(ConvertProblem::NotUtf8),
        },
        (Value::Decimal { .. } | Value::Enum { .. } | Value::List(_) | Value::Record(_), ty) => {
            Err(ConvertProblem::WrongType { ty })
        }
    }
}

fn from_integer<'a>(value: i128, to: FieldType, unit: TimeUnit) -> Result<Value<'a>, ConvertProblem> {
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
        Value::Int(value) | Value::Timestamp(value) => store_integer(row, at, ty, value as u64),
        Value::Uint(value) => store_integer(row, at, ty, value),
        Value::Float(value) if ty == FieldType::F32 => put(row, at, (value as f32).to_le_bytes()),
        Value::Float(value) => put(row, at, value.to_le_bytes()),
        Value::Text(text) => {
            if let Some(place) = row.get_mut(at..at + text.len()) {
                place.copy_from_slice(text);
            }
        }
        Value::Null
        | Value::Bytes(_)
        | Value::Decimal { .. }
        | Value::Enum { .. }
        | Value::List(_)
        | Value::Record(_) => {}
    }
}

fn store_integer(row: &mut [u8], at: usize, ty: FieldType, value: u64) {
    match ty.size() {
        1 => put(row, at, (value as u8).to_le_bytes()),
        2 => put(row, at, (value as u16).to_le_bytes()),
        4 => put(row, at, (value as u32).to_le_bytes()),
        _ => put(row, at, value.to_le_bytes()),
    }
}

/// Writes `N` bytes at `at`; nothing where there are not so many.
#[inline]
pub(super) fn put<const N: usize>(row: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = row.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value;
    }
}
