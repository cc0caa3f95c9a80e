//! Numbers: operations and comparisons, as PostgreSQL does them where it has the types.

use std::cmp::Ordering;

use super::{Datum, EvalError};
use crate::decimal::{Decimal, QUOTIENT_SCALE};
use crate::expr::ArithmeticOp;

/// `left op right`. Whole numbers give a whole number that must fit `i64`; a float on either side gives a float, else a
/// decimal on either side a decimal.
pub(super) fn arithmetic<'a>(op: ArithmeticOp, left: Datum<'a>, right: Datum<'a>) -> Result<Datum<'a>, EvalError> {
    match (left, right) {
        (Datum::Null, _) | (_, Datum::Null) => Ok(Datum::Null),
        (Datum::Int(left), Datum::Int(right)) => whole(op, left, right),
        (Datum::Float(left), right) => float(op, left, as_float(right)?),
        (left, Datum::Float(right)) => float(op, as_float(left)?, right),
        (left, right) => decimal(op, as_decimal(left)?, as_decimal(right)?),
    }
}

/// Any number as the nearest float.
pub(super) fn as_float(value: Datum<'_>) -> Result<f64, EvalError> {
    match value {
        Datum::Float(value) => Ok(value),
        Datum::Int(value) => Ok(value as f64),
        value => as_decimal(value).map(Decimal::to_f64),
    }
}

/// A decimal or a whole number.
pub(super) fn as_decimal(value: Datum<'_>) -> Result<Decimal, EvalError> {
    match value {
        Datum::Decimal { unscaled, scale } => Ok(Decimal { unscaled, scale }),
        Datum::Int(value) => Ok(Decimal::new(value, 0)),
        _ => Err(EvalError::IllTyped),
    }
}

pub(super) fn negate(operand: Datum<'_>) -> Result<Datum<'_>, EvalError> {
    match operand {
        Datum::Null => Ok(Datum::Null),
        Datum::Int(value) => fits(value.checked_neg()),
        Datum::Float(value) => Ok(Datum::Float(-value)),
        Datum::Decimal { unscaled, scale } => {
            Decimal { unscaled, scale }.negated().map(Datum::from).ok_or(EvalError::OutOfRange)
        }
        _ => Err(EvalError::IllTyped),
    }
}

fn whole<'a>(op: ArithmeticOp, left: i128, right: i128) -> Result<Datum<'a>, EvalError> {
    fits(match op {
        ArithmeticOp::Add => left.checked_add(right),
        ArithmeticOp::Subtract => left.checked_sub(right),
        ArithmeticOp::Multiply => left.checked_mul(right),
        ArithmeticOp::Divide | ArithmeticOp::Remainder if right == 0 => return Err(EvalError::DivisionByZero),
        ArithmeticOp::Divide => left.checked_div(right),
        ArithmeticOp::Remainder => left.checked_rem(right),
    })
}

/// At the scale that the planner expects: see [`result_scale`].
fn decimal<'a>(op: ArithmeticOp, left: Decimal, right: Decimal) -> Result<Datum<'a>, EvalError> {
    let result = match op {
        ArithmeticOp::Divide | ArithmeticOp::Remainder if right.unscaled == 0 => return Err(EvalError::DivisionByZero),
        ArithmeticOp::Add => left.plus(right),
        ArithmeticOp::Subtract => left.minus(right),
        ArithmeticOp::Multiply => left.times(right),
        ArithmeticOp::Divide => left.divided(right, result_scale(op, left.scale, right.scale)),
        ArithmeticOp::Remainder => left.remainder(right),
    };
    result.map(Datum::from).ok_or(EvalError::OutOfRange)
}

/// Digits behind the point of the result of an operation on decimals of these scales. PostgreSQL's rules, but for a
/// quotient: its digits depend on its value there.
pub(crate) fn result_scale(op: ArithmeticOp, left: u8, right: u8) -> u8 {
    match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract | ArithmeticOp::Remainder => left.max(right),
        ArithmeticOp::Multiply => left.saturating_add(right),
        ArithmeticOp::Divide => left.max(right).max(QUOTIENT_SCALE),
    }
}

fn fits<'a>(value: Option<i128>) -> Result<Datum<'a>, EvalError> {
    let value = value.and_then(|value| i64::try_from(value).ok()).ok_or(EvalError::OutOfRange)?;
    Ok(Datum::Int(value.into()))
}

/// As PostgreSQL's `double precision`: finite operands must give a finite result, and one other than zero unless zero
/// is the result.
fn float<'a>(op: ArithmeticOp, left: f64, right: f64) -> Result<Datum<'a>, EvalError> {
    let zero_is_due = match op {
        ArithmeticOp::Add | ArithmeticOp::Subtract | ArithmeticOp::Remainder => true,
        ArithmeticOp::Multiply => left == 0.0 || right == 0.0,
        ArithmeticOp::Divide => left == 0.0 || right.is_infinite(),
    };
    let result = match op {
        ArithmeticOp::Add => left + right,
        ArithmeticOp::Subtract => left - right,
        ArithmeticOp::Multiply => left * right,
        ArithmeticOp::Divide | ArithmeticOp::Remainder if right == 0.0 && !left.is_nan() => {
            return Err(EvalError::DivisionByZero);
        }
        ArithmeticOp::Divide => left / right,
        ArithmeticOp::Remainder => left % right,
    };
    let overflowed = result.is_infinite() && left.is_finite() && right.is_finite();
    let underflowed = result == 0.0 && !zero_is_due;
    if overflowed || underflowed { Err(EvalError::OutOfRange) } else { Ok(Datum::Float(result)) }
}

/// NaN equals itself and is greater than every other number; -0 equals 0.
pub(super) fn compare_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

/// Compares a whole number with a float by their values, without rounding either.
pub(super) fn compare_exactly(whole: i128, float: f64) -> Ordering {
    const BEYOND: f64 = (1u128 << 100) as f64;
    if float.is_nan() || float >= BEYOND {
        return Ordering::Less;
    }
    if float <= -BEYOND {
        return Ordering::Greater;
    }
    let truncated = float.trunc();
    let fraction = float - truncated;
    whole.cmp(&(truncated as i128)).then(compare_floats(0.0, fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_float_compare_by_value() {
        let big = 9_007_199_254_740_993_i128; // 2^53 + 1, which no f64 is
        assert_eq!(compare_exactly(big, 9_007_199_254_740_992.0), Ordering::Greater);
        assert_eq!(compare_exactly(big, 9_007_199_254_740_994.0), Ordering::Less);
        assert_eq!(compare_exactly(u64::MAX.into(), 18_446_744_073_709_551_616.0), Ordering::Less);
        assert_eq!(compare_exactly(0, -0.0), Ordering::Equal);
        assert_eq!(compare_exactly(-1, -1.5), Ordering::Greater);
        assert_eq!(compare_exactly(1, 1.5), Ordering::Less);
        assert_eq!(compare_exactly(i128::from(i64::MAX), f64::NAN), Ordering::Less);
        assert_eq!(compare_exactly(0, f64::INFINITY), Ordering::Less);
        assert_eq!(compare_exactly(0, f64::NEG_INFINITY), Ordering::Greater);
    }

    #[test]
    fn nan_is_the_greatest_and_equals_itself() {
        assert_eq!(compare_floats(f64::NAN, f64::NAN), Ordering::Equal);
        assert_eq!(compare_floats(f64::NAN, f64::INFINITY), Ordering::Greater);
        assert_eq!(compare_floats(f64::NEG_INFINITY, f64::NAN), Ordering::Less);
    }
}
