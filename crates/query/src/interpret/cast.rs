//! CAST: a value as another type, as PostgreSQL does it where it has the types. Which casts there are is for the
//! planner to say; here is what they do.

use std::io::Write as _;

use crossdock_format::FieldType;
use jiff::{Timestamp, civil, tz};

use super::number::as_decimal;
use super::{Datum, EvalError, MAX_MADE_TEXT_BYTES, Text};
use crate::decimal::{BadDecimal, Decimal};
use crate::expr::is_float;

/// A value of type `from` as a value of type `to`. Text is made at the end of `made`.
pub(super) fn cast<'a>(
    value: Datum<'a>,
    from: FieldType,
    to: FieldType,
    made: &mut Vec<u8>,
) -> Result<Datum<'a>, EvalError> {
    match (value, to) {
        (Datum::Null, _) => Ok(Datum::Null),
        (Datum::Text(text), FieldType::Char(most)) => Ok(Datum::Text(cut(text, most.into(), made))),
        (Datum::Text(text), FieldType::String) => Ok(Datum::Text(text)),
        (Datum::Text(text), _) => parse(text.bytes(made), to),
        (value, FieldType::String | FieldType::Char(_)) => {
            let text = print(value, from, made)?;
            match to {
                FieldType::Char(most) => Ok(Datum::Text(cut(text, most.into(), made))),
                _ => Ok(Datum::Text(text)),
            }
        }
        (Datum::Int(value), _) if to.is_integer() => within(value, to),
        (Datum::Int(value), FieldType::F32) => Ok(Datum::Float((value as f32).into())),
        (Datum::Int(value), FieldType::F64) => Ok(Datum::Float(value as f64)),
        (Datum::Int(value), FieldType::Bool) => Ok(Datum::Bool(value != 0)),
        (Datum::Int(value), FieldType::Timestamp) => {
            Ok(Datum::Timestamp(i64::try_from(value).map_err(|_| EvalError::OutOfRange)?))
        }
        (value, FieldType::Decimal { bytes, scale }) => to_decimal(value, from, bytes, scale),
        (value @ Datum::Decimal { .. }, FieldType::F32) => single(as_decimal(value)?.to_f32().into()),
        (value @ Datum::Decimal { .. }, FieldType::F64) => Ok(Datum::Float(as_decimal(value)?.to_f64())),
        (value @ Datum::Decimal { .. }, _) if to.is_integer() => {
            within(as_decimal(value)?.rescaled(0).ok_or(EvalError::OutOfRange)?.unscaled, to)
        }
        (Datum::Float(value), FieldType::F64) => Ok(Datum::Float(value)),
        (Datum::Float(value), FieldType::F32) => single(value),
        (Datum::Float(value), _) if to.is_integer() => {
            if !value.is_finite() {
                return Err(EvalError::OutOfRange);
            }
            // Saturates far outside of every type's range.
            within(value.round_ties_even() as i128, to)
        }
        (Datum::Bool(value), _) if to.is_integer() => Ok(Datum::Int(value.into())),
        (Datum::Bool(value), FieldType::Bool) => Ok(Datum::Bool(value)),
        (Datum::Timestamp(value), FieldType::Timestamp) => Ok(Datum::Timestamp(value)),
        (Datum::Timestamp(value), _) if to.is_integer() => within(value.into(), to),
        (Datum::Bytes(value), FieldType::Bytes) => Ok(Datum::Bytes(value)),
        _ => Err(EvalError::IllTyped),
    }
}

/// A number as a decimal of this scale, rounded half away from zero.
fn to_decimal<'a>(value: Datum<'a>, from: FieldType, bytes: u8, scale: u8) -> Result<Datum<'a>, EvalError> {
    let value = match value {
        Datum::Float(value) => Decimal::of_float(value, from == FieldType::F32, scale),
        value => as_decimal(value)?.rescaled(scale),
    };
    value.filter(|value| has_room(*value, bytes)).map(Datum::from).ok_or(EvalError::OutOfRange)
}

/// Whether a decimal of `bytes` bytes holds it.
fn has_room(value: Decimal, bytes: u8) -> bool {
    match bytes {
        4 => i32::try_from(value.unscaled).is_ok(),
        8 => i64::try_from(value.unscaled).is_ok(),
        _ => true,
    }
}

fn within<'a>(value: i128, ty: FieldType) -> Result<Datum<'a>, EvalError> {
    match ty.integer_range() {
        Some((least, most)) if (least..=most).contains(&value) => Ok(Datum::Int(value)),
        _ => Err(EvalError::OutOfRange),
    }
}

/// `f32` has no room for what is too large, nor for what is too small to differ from zero.
fn single<'a>(value: f64) -> Result<Datum<'a>, EvalError> {
    let narrow = value as f32;
    let overflowed = narrow.is_infinite() && value.is_finite();
    let underflowed = narrow == 0.0 && value != 0.0;
    if overflowed || underflowed { Err(EvalError::OutOfRange) } else { Ok(Datum::Float(narrow.into())) }
}

/// The first `most` bytes, or a few less where a character would be cut; without NUL at the end, which is padding.
fn cut<'a>(text: Text<'a>, most: usize, made: &[u8]) -> Text<'a> {
    let bytes = text.bytes(made);
    let mut length = bytes.len().min(most);
    while length < bytes.len() && length > 0 && bytes[length] & 0xc0 == 0x80 {
        length -= 1;
    }
    while length > 0 && bytes[length - 1] == 0 {
        length -= 1;
    }
    text.part(0, length)
}

fn parse<'a>(text: &[u8], to: FieldType) -> Result<Datum<'a>, EvalError> {
    let not_a_value = EvalError::NotAValue(to);
    let text = std::str::from_utf8(text).map_err(|_| not_a_value)?.trim();
    match to {
        FieldType::Bool => parse_bool(text).map(Datum::Bool).ok_or(not_a_value),
        FieldType::Timestamp => parse_timestamp(text).map(Datum::Timestamp).ok_or(not_a_value),
        FieldType::F32 | FieldType::F64 => {
            let value: f64 = text.parse().map_err(|_| not_a_value)?;
            let says_zero =
                !text.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).any(|b| matches!(b, b'1'..=b'9'));
            let overflowed = value.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit());
            if overflowed || (value == 0.0 && !says_zero) {
                return Err(EvalError::OutOfRange);
            }
            if to == FieldType::F32 { single(value) } else { Ok(Datum::Float(value)) }
        }
        FieldType::Decimal { bytes, scale } => match Decimal::parse(text, Some(scale)) {
            Ok(value) if has_room(value, bytes) => Ok(value.into()),
            Err(BadDecimal::NotANumber) => Err(not_a_value),
            _ => Err(EvalError::OutOfRange),
        },
        _ if to.is_integer() => {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(not_a_value);
            }
            within(text.parse().map_err(|_| EvalError::OutOfRange)?, to)
        }
        _ => Err(EvalError::IllTyped),
    }
}

/// PostgreSQL takes any beginning of these words that means one of them only.
fn parse_bool(text: &str) -> Option<bool> {
    let is = |word: &str, least: usize| {
        text.len() >= least && text.len() <= word.len() && word[..text.len()].eq_ignore_ascii_case(text)
    };
    if is("true", 1) || is("yes", 1) || is("on", 2) || text == "1" {
        Some(true)
    } else if is("false", 1) || is("no", 1) || is("off", 2) || text == "0" {
        Some(false)
    } else {
        None
    }
}

/// Nanoseconds since 1970-01-01T00:00:00Z of a time as RFC 3339 writes it: `2013-01-01T05:00:00Z`, with a fraction, with
/// an offset, with a space in place of the `T`. Without an offset it is UTC; without a time of day it is midnight.
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    let text = text.trim();
    let time = text.parse::<Timestamp>().ok().or_else(|| {
        let civil: civil::DateTime = text.parse().ok()?;
        civil.to_zoned(tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    })?;
    i64::try_from(time.as_nanosecond()).ok()
}

/// A value as text, at the end of `made`.
pub(crate) fn print<'a>(value: Datum<'_>, ty: FieldType, made: &mut Vec<u8>) -> Result<Text<'a>, EvalError> {
    let start = made.len();
    let written = match value {
        Datum::Bool(value) => write!(made, "{value}"),
        Datum::Int(value) => write!(made, "{value}"),
        Datum::Decimal { unscaled, scale } => Decimal { unscaled, scale }.print(made),
        Datum::Float(value) if is_float(ty) => print_float(value, ty == FieldType::F32, made),
        Datum::Timestamp(value) => match Timestamp::from_nanosecond(value.into()) {
            Ok(time) => write!(made, "{time}"),
            Err(_) => return Err(EvalError::OutOfRange),
        },
        _ => return Err(EvalError::IllTyped),
    };
    if written.is_err() || made.len() > MAX_MADE_TEXT_BYTES {
        return Err(EvalError::TextTooLong);
    }
    Ok(Text::Made { start, end: made.len() })
}

/// The shortest digits that give the number back, laid out as PostgreSQL does.
fn print_float(value: f64, single: bool, made: &mut Vec<u8>) -> std::io::Result<()> {
    if value.is_nan() {
        return made.write_all(b"NaN");
    }
    if value.is_infinite() {
        return made.write_all(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let start = made.len();
    if single {
        write!(made, "{:e}", value as f32)?;
    } else {
        write!(made, "{value:e}")?;
    }
    let e = made[start..].iter().rposition(|&byte| byte == b'e').map_or(made.len(), |at| start + at);
    let exponent: i32 =
        made.get(e + 1..).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or(0);
    let plain_below = if single { 6 } else { 15 };
    if (-4..plain_below).contains(&exponent) {
        made.truncate(start);
        return if single { write!(made, "{}", value as f32) } else { write!(made, "{value}") };
    }
    made.truncate(e);
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(made, "e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(value: Datum<'_>, ty: FieldType) -> String {
        let mut made = b"before".to_vec();
        let text = print(value, ty, &mut made).unwrap();
        String::from_utf8(text.bytes(&made).to_vec()).unwrap()
    }

    #[test]
    fn floats_print_as_postgresql_prints_them() {
        let cases = [
            (0.1, "0.1"),
            (100.0, "100"),
            (-0.0, "-0"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.5e20, "1.5e+20"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e300, "1e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (value, expected) in cases {
            assert_eq!(text_of(Datum::Float(value), FieldType::F64), expected);
        }
        assert_eq!(text_of(Datum::Float(f64::from(0.1f32)), FieldType::F32), "0.1");
        assert_eq!(text_of(Datum::Float(1e6), FieldType::F32), "1e+06");
        assert_eq!(
            text_of(Datum::Timestamp(1_357_016_400_500_000_000), FieldType::Timestamp),
            "2013-01-01T05:00:00.5Z"
        );
    }

    #[test]
    fn timestamps_are_read_with_and_without_offset() {
        let five = Some(1_357_016_400_000_000_000);
        for text in
            ["2013-01-01T05:00:00Z", "2013-01-01 05:00:00", "2013-01-01T07:00:00+02:00", " 2013-01-01 05:00:00+00 "]
        {
            assert_eq!(parse_timestamp(text), five, "{text}");
        }
        assert_eq!(parse_timestamp("2013-01-01"), five.map(|time| time - 5 * 3_600_000_000_000));
        assert_eq!(parse_timestamp("1969-12-31T23:59:59.999999999Z"), Some(-1));
        for text in ["", "2013", "2013-13-01", "noon", "2013-02-29 00:00:00", "9999-01-01T00:00:00Z"] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn words_for_truth() {
        for (text, truth) in
            [("t", Some(true)), ("TRUE", Some(true)), ("o", None), ("on", Some(true)), ("of", Some(false))]
        {
            assert_eq!(parse_bool(text), truth, "{text}");
        }
        for text in ["", "2", "truest", "tru\u{e9}", "\u{e9}"] {
            assert_eq!(parse_bool(text), None, "{text}");
        }
    }

    #[test]
    fn text_is_cut_between_characters() {
        let cut = |text: &'static str, most| {
            let text = cut(Text::Standing(text.as_bytes()), most, &[]);
            String::from_utf8(text.bytes(&[]).to_vec()).unwrap()
        };
        assert_eq!(cut("abcd", 3), "abc");
        assert_eq!(cut("aéb", 2), "a");
        assert_eq!(cut("日本", 5), "日");
        assert_eq!(cut("a\0\0", 3), "a");
        assert_eq!(cut("", 3), "");
    }

    #[test]
    fn text_that_says_no_number() {
        for text in ["", "x", "1x", "--1", "1.5", "0x10", "+", "1_000"] {
            assert_eq!(
                parse(text.as_bytes(), FieldType::I64).unwrap_err(),
                EvalError::NotAValue(FieldType::I64),
                "{text}"
            );
        }
        assert_eq!(parse(b"128", FieldType::I8).unwrap_err(), EvalError::OutOfRange);
        assert_eq!(parse(&[b'9'; 200], FieldType::I64).unwrap_err(), EvalError::OutOfRange);
        assert_eq!(parse(b"1e999", FieldType::F64).unwrap_err(), EvalError::OutOfRange);
        assert_eq!(parse(b"1e-999", FieldType::F64).unwrap_err(), EvalError::OutOfRange);
        assert!(matches!(parse(b"0e-999", FieldType::F64), Ok(Datum::Float(0.0))));
        assert!(matches!(parse(b"inf", FieldType::F64), Ok(Datum::Float(f64::INFINITY))));
    }
}
