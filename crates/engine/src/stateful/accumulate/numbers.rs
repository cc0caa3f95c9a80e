//! Values as numbers, and numbers as results.

use crossdock_format::{FieldType, Value};
use crossdock_query::EvalError;

/// A whole number, or a decimal in its units.
#[inline]
pub(super) fn whole(value: &Value<'_>) -> i128 {
    match value {
        Value::Int(value) => (*value).into(),
        Value::Uint(value) => (*value).into(),
        Value::Decimal { unscaled, .. } => *unscaled,
        _ => 0,
    }
}

/// Any number as a float.
#[inline]
pub(super) fn number(value: &Value<'_>) -> f64 {
    match value {
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::Float(value) => *value,
        Value::Decimal { unscaled, scale } => *unscaled as f64 / 10f64.powi((*scale).into()),
        Value::Timestamp(value) => *value as f64,
        _ => 0.0,
    }
}

pub(super) fn integer(value: i128, ty: FieldType) -> Result<Value<'static>, EvalError> {
    match ty {
        FieldType::F32 | FieldType::F64 => Ok(Value::Float(value as f64)),
        FieldType::Decimal { .. } => Ok(Value::Decimal { unscaled: value, scale: 0 }),
        ty if ty.integer_range().is_none_or(|(least, most)| value < least || value > most) => {
            Err(EvalError::OutOfRange)
        }
        _ => match i64::try_from(value) {
            Ok(value) => Ok(Value::Int(value)),
            Err(_) => Ok(Value::Uint(u64::try_from(value).map_err(|_| EvalError::OutOfRange)?)),
        },
    }
}

/// A sum in units of a scale.
pub(super) fn units(sum: i128, scale: u8, ty: FieldType) -> Result<Value<'static>, EvalError> {
    match (scale, ty) {
        (_, FieldType::F32 | FieldType::F64) => Ok(Value::Float(sum as f64 / 10f64.powi(scale.into()))),
        (0, ty) => integer(sum, ty),
        _ => Ok(Value::Decimal { unscaled: sum, scale }),
    }
}

/// The mean, rounded half away from zero to the scale of the result.
pub(super) fn mean(sum: i128, scale: u8, rows: u64, ty: FieldType) -> Result<Value<'static>, EvalError> {
    let FieldType::Decimal { scale: wanted, .. } = ty else {
        return Ok(Value::Float(sum as f64 / 10f64.powi(scale.into()) / rows as f64));
    };
    let rows = i128::from(rows);
    let (up, down) = (wanted.saturating_sub(scale), scale.saturating_sub(wanted));
    let power = 10i128.checked_pow(up.into()).ok_or(EvalError::OutOfRange)?;
    let divisor =
        10i128.checked_pow(down.into()).and_then(|power| rows.checked_mul(power)).ok_or(EvalError::OutOfRange)?;
    let (whole, rest) = (sum / divisor, sum % divisor);
    let rest = rest.checked_mul(power).ok_or(EvalError::OutOfRange)?;
    let (part, over) = (rest / divisor, rest % divisor);
    let up = if over.unsigned_abs() * 2 >= divisor.unsigned_abs() { over.signum() } else { 0 };
    let unscaled = whole.checked_mul(power).and_then(|whole| whole.checked_add(part + up));
    Ok(Value::Decimal { unscaled: unscaled.ok_or(EvalError::OutOfRange)?, scale: wanted })
}

/// A variance or deviation from the sum of the squares of the distances from the mean.
pub(super) fn deviation(
    (squares, rows): (f64, u64),
    is_special: bool,
    (is_sample, is_root): (bool, bool),
) -> Result<Value<'static>, EvalError> {
    let divisor = rows - u64::from(is_sample);
    if divisor == 0 {
        return Ok(Value::Null);
    }
    let variance = squares / divisor as f64;
    if is_special {
        return Ok(Value::Float(f64::NAN));
    }
    if !variance.is_finite() {
        return Err(EvalError::OutOfRange);
    }
    // Where all values are one, rounding must not leave less than nothing.
    let variance = variance.max(0.0);
    Ok(Value::Float(if is_root { variance.sqrt() } else { variance }))
}
