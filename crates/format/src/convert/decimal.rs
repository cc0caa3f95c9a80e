//! Decimals: at another scale, as integers, as floats.

use std::fmt::{self, Write as _};

use crate::builder::rescale;
use crate::field::FieldType;
use crate::record::Value;

/// Digits behind the point, of a decimal.
pub(super) fn scale(ty: FieldType) -> Option<u8> {
    match ty {
        FieldType::Decimal { scale, .. } => Some(scale),
        _ => None,
    }
}

/// The least and the greatest number of units.
fn range(bytes: u8) -> (i128, i128) {
    match bytes {
        4 => (i32::MIN.into(), i32::MAX.into()),
        8 => (i64::MIN.into(), i64::MAX.into()),
        _ => (i128::MIN, i128::MAX),
    }
}

/// Whether a number may be refused on its way from one type to another, at least one of them a decimal.
pub(super) fn may_refuse(from: FieldType, to: FieldType) -> bool {
    let bounds = |ty: FieldType| match ty {
        FieldType::Decimal { bytes, scale } => Some((range(bytes), scale)),
        ty => ty.integer_range().map(|range| (range, 0)),
    };
    let (Some(((low, high), scale)), Some(((least, greatest), own))) = (bounds(from), bounds(to)) else {
        return true;
    };
    let fits = |value| rescale(value, scale, own).is_some_and(|value| (least..=greatest).contains(&value));
    scale > own || !fits(low) || !fits(high)
}

/// The factor of a whole number of up to 8 bytes to become a decimal of at least as many digits behind the point;
/// `None` for any other two types.
pub(super) fn factor(from: FieldType, to: FieldType) -> Option<i64> {
    let own = match from {
        FieldType::Decimal { bytes: 4 | 8, scale } => scale,
        from => from.integer_range().map(|_| 0)?,
    };
    10_i64.checked_pow(scale(to)?.checked_sub(own)?.into())
}

/// `unscaled` units of 10 to the power of minus `from` as a decimal; `None` if digits would be lost, or it has no room.
pub(super) fn fit<'a>(unscaled: i128, from: u8, to: FieldType) -> Option<Value<'a>> {
    let FieldType::Decimal { bytes, scale } = to else { return None };
    let (least, greatest) = range(bytes);
    let unscaled = rescale(unscaled, from, scale).filter(|value| (least..=greatest).contains(value))?;
    Some(Value::Decimal { unscaled, scale })
}

/// Floats from here on have no room in any decimal.
const BEYOND: f64 = 1e39;

/// The nearest decimal, the even one of two; `None` if it has no room.
pub(super) fn of_float<'a>(value: f64, to: FieldType) -> Option<Value<'a>> {
    let scale = scale(to)?;
    if value.is_nan() || value.abs() >= BEYOND {
        return None;
    }
    let mut text = Text::new();
    // The library's digits are those of the float itself, rounded once.
    write!(text, "{value:.*}", usize::from(scale)).ok()?;
    let mut unscaled: i128 = 0;
    for byte in text.bytes().iter().filter(|byte| byte.is_ascii_digit()) {
        // Downwards, where there is one more.
        unscaled = unscaled.checked_mul(10)?.checked_sub((byte - b'0').into())?;
    }
    let unscaled = if text.bytes().first() == Some(&b'-') { unscaled } else { unscaled.checked_neg()? };
    fit(unscaled, scale, to)
}

/// Powers of ten that an `f64` holds exactly.
const EXACT: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// The nearest float.
pub(super) fn to_float<'a>(unscaled: i128, scale: u8, to: FieldType) -> Value<'a> {
    let is_narrow = to == FieldType::F32;
    if let Some(power) = EXACT.get(usize::from(scale)).filter(|_| !is_narrow && unscaled.unsigned_abs() <= 1 << 53) {
        // Both are exact, so the quotient is rounded once.
        return Value::Float(unscaled as f64 / power);
    }
    let mut text = Text::new();
    let written = write!(text, "{unscaled}e-{scale}");
    let digits = str::from_utf8(text.bytes()).ok().filter(|_| written.is_ok()).unwrap_or_default();
    // Rounded once as well: an `f32` is not made by way of an `f64`.
    let value = match is_narrow {
        true => digits.parse::<f32>().map(f64::from),
        false => digits.parse::<f64>(),
    };
    Value::Float(value.unwrap_or(f64::NAN))
}

/// Room for the digits of a number, with nothing allocated: 39 before the point, 38 behind it, the point and a sign.
struct Text {
    bytes: [u8; 96],
    len: usize,
}

impl Text {
    fn new() -> Text {
        Text { bytes: [0; 96], len: 0 }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(bytes: u8, scale: u8) -> FieldType {
        FieldType::Decimal { bytes, scale }
    }

    #[test]
    fn floats_are_rounded_once_to_the_even_digit() {
        let units = |value: f64, scale| match of_float(value, decimal(16, scale)) {
            Some(Value::Decimal { unscaled, .. }) => Some(unscaled),
            _ => None,
        };
        for (value, scale, wanted) in [
            (0.125, 2, Some(12)),
            (0.375, 2, Some(38)),
            (-0.125, 2, Some(-12)),
            (2.5, 0, Some(2)),
            (-0.0, 3, Some(0)),
            (0.1, 20, Some(10_000_000_000_000_000_555)),
            (1e38, 0, Some(99_999_999_999_999_997_748_809_823_456_034_029_568)),
            (1e39, 0, None),
            (f64::NAN, 0, None),
            (f64::NEG_INFINITY, 0, None),
        ] {
            assert_eq!(units(value, scale), wanted, "{value} at {scale}");
        }
        assert_eq!(of_float(21_474_836.48, decimal(4, 2)), None);
        assert!(of_float(-21_474_836.48, decimal(4, 2)).is_some());
    }

    #[test]
    fn decimals_are_the_nearest_floats() {
        for (unscaled, scale, text) in [
            (1, 1, "0.1"),
            (123_456_789, 4, "12345.6789"),
            ((1 << 53) + 1, 0, "9007199254740993"),
            (i128::MIN, 38, "-1.70141183460469231731687303715884105728"),
            (i128::MAX, 0, "170141183460469231731687303715884105727"),
            (16_777_217, 0, "16777217"),
        ] {
            assert_eq!(to_float(unscaled, scale, FieldType::F64), Value::Float(text.parse().unwrap()), "{text}");
            let narrow: f32 = text.parse().unwrap();
            assert_eq!(to_float(unscaled, scale, FieldType::F32), Value::Float(narrow.into()), "{text}");
        }
    }

    #[test]
    fn conversions_that_may_be_refused() {
        for (from, to, wanted) in [
            (decimal(4, 2), decimal(8, 2), false),
            (decimal(4, 2), decimal(8, 9), false),
            (decimal(4, 2), decimal(8, 12), true),
            (decimal(8, 2), decimal(16, 1), true),
            (FieldType::I32, decimal(8, 4), false),
            (FieldType::U64, decimal(8, 0), true),
            (decimal(4, 0), FieldType::I32, false),
            (decimal(4, 1), FieldType::I64, true),
            (FieldType::F64, decimal(16, 0), true),
        ] {
            assert_eq!(may_refuse(from, to), wanted, "{from} to {to}");
        }
    }
}
