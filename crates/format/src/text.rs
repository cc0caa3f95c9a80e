//! Values as text, the same in CSV and in JSON: numbers, timestamps (RFC 3339), bytes (base64).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use jiff::fmt::temporal::{DateTimeParser, DateTimePrinter};
use jiff::tz::TimeZone;

use crate::builder::{ByteRun, Place, RecordBuilder};
use crate::encoding::Loss;
use crate::field::{Field, FieldType};
use crate::record::{Record, Value};
use crate::scan::{Scan, Target};

static TIMESTAMP_PARSER: DateTimeParser = DateTimeParser::new();
static TIMESTAMP_PRINTER: DateTimePrinter = DateTimePrinter::new();

/// A text that is not UTF-8, for encodings that have no other.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("field `{field}`: found `{found}`, which is no UTF-8")]
pub struct NotText {
    /// The path of its field.
    pub field: String,
    /// The text, cut short if it was long, with U+FFFD where it is none.
    pub found: String,
}

impl NotText {
    /// The first of a record that has one.
    #[cold]
    pub(crate) fn of(record: &Record<'_>) -> Self {
        let fields = record.format().fields();
        let found = fields.iter().enumerate().find_map(|(index, field)| flaw(record.get(index), field.name.clone()));
        let (field, found) = found.unwrap_or_default();
        Self { field, found }
    }
}

/// The path and the text of the first flaw in a value.
fn flaw(value: Value<'_>, path: String) -> Option<(String, String)> {
    match value {
        Value::Text(text) if str::from_utf8(text).is_err() => Some((path, shorten(text))),
        Value::List(list) => list.iter().enumerate().find_map(|(index, value)| flaw(value, format!("{path}[{index}]"))),
        Value::Record(record) => {
            let fields = record.format().fields().iter().enumerate();
            fields.into_iter().find_map(|(index, field)| flaw(record.get(index), format!("{path}.{}", field.name)))
        }
        _ => None,
    }
}

/// A text is no value of the field's type. The found and the expected value are put into words only on request.
#[derive(Debug, PartialEq)]
pub(crate) struct Unfit;

/// The treatment of an integer that is to become a float and is between two of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rounding {
    /// It is no value of the field.
    Refused,
    /// It becomes the nearest float.
    Allowed,
}

impl Rounding {
    /// Whether an option allows it.
    pub(crate) const fn of(is_allowed: bool) -> Self {
        if is_allowed { Self::Allowed } else { Self::Refused }
    }

    /// An integer as a float of this type, which is a float type.
    #[inline]
    pub(crate) fn float(self, number: i128, ty: FieldType) -> Option<f64> {
        let float = if ty == FieldType::F32 { f64::from(number as f32) } else { number as f64 };
        // Up to here each integer is a float of its own, and floats beyond `i128` are cut when they are compared.
        let is_exact = number.unsigned_abs() <= 1 << 24 || (float.abs() < 1e38 && float as i128 == number);
        (is_exact || self == Self::Allowed).then_some(float)
    }
}

/// Whether a float is one of `f32`.
fn is_narrow(wide: f64) -> bool {
    f64::from(wide as f32).to_bits() == wide.to_bits()
}

/// Whether a text of a number is an integer that would be another one when it has become a float of this type. One that comes
/// back digit by digit is taken, as JavaScript writes large floats: 12345678901234567000.
#[inline]
pub(crate) fn is_inexact(text: &[u8], ty: FieldType) -> bool {
    let text = text.trim_ascii();
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    if digits.len() <= 7 || !matches!(ty, FieldType::F32 | FieldType::F64) || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let number: Option<i128> = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    if number.is_some_and(|number| Rounding::Refused.float(number, ty).is_some()) {
        return false;
    }
    let is_back = |back: String| back.as_bytes() == digits;
    let wide = parse::<f64>(digits).unwrap_or(f64::INFINITY);
    match ty {
        // As itself, or as the `f64` that is equal to it.
        FieldType::F32 if is_back((wide as f32).to_string()) => false,
        FieldType::F32 => !is_narrow(wide) || !is_back(wide.to_string()),
        _ => !is_back(wide.to_string()),
    }
}

/// Reads a text as a value of a field of the innermost open record. `scratch` is room for what must be decoded.
pub(crate) fn set_from_text(
    builder: &mut RecordBuilder,
    scratch: &mut Vec<u8>,
    field: usize,
    text: &[u8],
    rounding: Rounding,
) -> Result<(), Unfit> {
    let target = Target::of(builder.format(), field).ok_or(Unfit)?;
    put_from_text(builder, scratch, &target, ByteRun::alone(text), rounding)
}

/// As [`set_from_text`], for a field that was looked up.
#[inline]
pub(crate) fn put_from_text(
    builder: &mut RecordBuilder,
    scratch: &mut Vec<u8>,
    target: &Target,
    text: ByteRun<'_>,
    rounding: Rounding,
) -> Result<(), Unfit> {
    // The types of nearly all texts, each with as little as it takes.
    if let FieldType::Char(_) | FieldType::String = target.place.ty() {
        return match text.is_text() {
            true => builder.put_run(target.place, text).map_err(|_| Unfit),
            false => Err(Unfit),
        };
    }
    // A number of few digits is read with what is behind it, and has to end where the text does.
    let mut scan = Scan::new(text.ahead);
    match target.number(builder, &mut scan) {
        Some(()) if scan.left() + text.bytes.len() == text.ahead.len() => Ok(()),
        _ => put_any_from_text(builder, scratch, target.place, text.bytes, rounding),
    }
}

/// As [`put_from_text`], for whatever text there may be.
#[inline(never)]
pub(crate) fn put_any_from_text(
    builder: &mut RecordBuilder,
    scratch: &mut Vec<u8>,
    place: Place,
    text: &[u8],
    rounding: Rounding,
) -> Result<(), Unfit> {
    match place.ty() {
        FieldType::F32 | FieldType::F64 if rounding == Rounding::Refused && is_inexact(text, place.ty()) => {
            return Err(Unfit);
        }
        FieldType::Bool => builder.put(place, [u8::from(parse_bool(text).ok_or(Unfit)?)]),
        FieldType::U64 => builder.put(place, parse::<u64>(text)?.to_le_bytes()),
        FieldType::F64 => builder.put(place, parse_f64(text).ok_or(Unfit)?.to_le_bytes()),
        FieldType::F32 => builder.put(place, parse_f32(text).ok_or(Unfit)?.to_le_bytes()),
        FieldType::Timestamp => builder.put(place, parse_time(text.trim_ascii()).ok_or(Unfit)?.to_le_bytes()),
        FieldType::Bytes => {
            decode_base64(text, scratch)?;
            return builder.put_run(place, ByteRun::alone(scratch)).map_err(|_| Unfit);
        }
        FieldType::Decimal { .. } => {
            let (unscaled, scale) = parse_decimal(text.trim_ascii()).ok_or(Unfit)?;
            return builder.put_decimal(place, unscaled, scale).map_err(|_| Unfit);
        }
        // A symbol, or else a number.
        FieldType::Enum { .. } => match builder.put_symbol(place, text) {
            Ok(()) => {}
            Err(_) => return builder.put_number(place, parse(text)?).map_err(|_| Unfit),
        },
        ty if ty.is_integer() => return if builder.put_i64(place, parse(text)?) { Ok(()) } else { Err(Unfit) },
        _ => return Err(Unfit),
    }
    Ok(())
}

/// A number in the standard library's notation, with blanks around it at most.
#[inline]
fn parse<N: std::str::FromStr>(text: &[u8]) -> Result<N, Unfit> {
    str::from_utf8(text.trim_ascii()).map_err(|_| Unfit)?.parse().map_err(|_| Unfit)
}

/// The words that files have for true and false.
#[inline]
pub(crate) fn parse_bool(text: &[u8]) -> Option<bool> {
    let text = text.trim_ascii();
    let is = |word: &str| text.eq_ignore_ascii_case(word.as_bytes());
    if is("true") || is("t") || text == b"1" {
        Some(true)
    } else if is("false") || is("f") || text == b"0" {
        Some(false)
    } else {
        None
    }
}

/// A float; digits that are beyond its range are none, though `inf` is.
#[inline]
pub(crate) fn parse_f64(text: &[u8]) -> Option<f64> {
    parse(text).ok().filter(|value: &f64| value.is_finite() || !has_digit(text))
}

/// As [`parse_f64`], rounded once: by way of `f64` it would be rounded twice.
#[inline]
pub(crate) fn parse_f32(text: &[u8]) -> Option<f32> {
    parse(text).ok().filter(|value: &f32| value.is_finite() || !has_digit(text))
}

fn has_digit(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_digit)
}

/// A number with its digits kept: the number of units, and the number of digits behind the point. An exponent moves the
/// point. `None` where it is no number, or has more digits than 16 bytes hold.
pub(crate) fn parse_decimal(text: &[u8]) -> Option<(i128, u8)> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let exponent_at = digits.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (digits, exponent) = match exponent_at {
        Some(at) => (&digits[..at], str::from_utf8(&digits[at + 1..]).ok()?.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let mut unscaled: i128 = 0;
    let mut behind_point = None;
    let mut any = false;
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                any = true;
                // Zeros at the end of a fraction may be more than there is room for.
                let next = unscaled.checked_mul(10)?.checked_sub((byte - b'0').into())?;
                (unscaled, behind_point) = (next, behind_point.map(|count: i32| count + 1));
            }
            b'.' if behind_point.is_none() => behind_point = Some(0),
            _ => return None,
        }
    }
    let unscaled = if is_negative { unscaled } else { unscaled.checked_neg()? };
    let scale = i64::from(behind_point.unwrap_or(0)) - i64::from(exponent);
    match u8::try_from(scale) {
        _ if !any => None,
        _ if unscaled == 0 => Some((0, 0)),
        Ok(scale) => Some((unscaled, scale)),
        Err(_) => {
            let factor = 10_i128.checked_pow(u32::try_from(-scale).ok()?)?;
            Some((unscaled.checked_mul(factor)?, 0))
        }
    }
}

/// RFC 3339 to nanoseconds since 1970, if they are within 64 bits (the years 1677 to 2262).
#[inline]
pub(crate) fn parse_timestamp(text: &[u8]) -> Option<i64> {
    let timestamp = TIMESTAMP_PARSER.parse_timestamp(text).ok()?;
    i64::try_from(timestamp.as_nanosecond()).ok()
}

/// As [`parse_timestamp`]; a date, and a date and time without a zone, are of UTC, as in SQL.
#[inline]
pub(crate) fn parse_time(text: &[u8]) -> Option<i64> {
    parse_timestamp(text).or_else(|| parse_civil(text))
}

#[cold]
fn parse_civil(text: &[u8]) -> Option<i64> {
    // The library also takes digits alone for a date, and passes over an offset or the name of a zone.
    let is_date = matches!(text, [_, _, _, _, b'-', _, _, b'-', _, _, ..]);
    let of_time = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b':' | b'.' | b'T' | b't' | b' ');
    if !is_date || !text.iter().skip(10).all(of_time) {
        return None;
    }
    let zoned = TIMESTAMP_PARSER.parse_datetime(text).ok()?.to_zoned(TimeZone::UTC).ok()?;
    i64::try_from(zoned.timestamp().as_nanosecond()).ok()
}

/// Bytes as text has them.
#[cfg(any(feature = "avro", feature = "protobuf"))]
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    push_base64(&mut text, bytes);
    // It is ASCII.
    String::from_utf8(text).unwrap_or_default()
}

/// Standard base64 with its padding, into `bytes`.
pub(crate) fn decode_base64(text: &[u8], bytes: &mut Vec<u8>) -> Result<(), Unfit> {
    bytes.resize(base64::decoded_len_estimate(text.len()), 0);
    let len = BASE64_STANDARD.decode_slice(text, bytes).map_err(|_| Unfit)?;
    bytes.truncate(len);
    Ok(())
}

#[inline]
pub(crate) fn push_integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// The shortest text that reads back as the same float; of an `f32` field, as the same `f32`.
#[inline]
pub(crate) fn push_float(out: &mut Vec<u8>, ty: FieldType, value: f64) {
    let mut buffer = zmij::Buffer::new();
    let text = match ty {
        FieldType::F32 => buffer.format(value as f32),
        _ => buffer.format(value),
    };
    out.extend_from_slice(text.as_bytes());
}

#[inline]
pub(crate) fn push_timestamp(out: &mut Vec<u8>, nanoseconds: i64) {
    // All of i64 is within jiff's range, and writing to a vector does not fail: there is no other arm to take.
    if let Ok(timestamp) = Timestamp::from_nanosecond(nanoseconds.into()) {
        let _ = TIMESTAMP_PRINTER.print_timestamp(&timestamp, out);
    }
}

/// A decimal with all its digits behind the point.
pub(crate) fn push_decimal(out: &mut Vec<u8>, unscaled: i128, scale: u8) {
    if unscaled < 0 {
        out.push(b'-');
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(unscaled.unsigned_abs()).as_bytes();
    let scale = usize::from(scale);
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(scale));
    out.extend_from_slice(if whole.is_empty() { b"0" } else { whole });
    if scale > 0 {
        out.push(b'.');
        out.resize(out.len() + scale - fraction.len(), b'0');
        out.extend_from_slice(fraction);
    }
}

pub(crate) fn push_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    // Longer than any record's bytes can come to: the length cannot overflow.
    out.resize(start + base64::encoded_len(bytes.len(), true).unwrap_or(0), 0);
    let written = BASE64_STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
}

/// The values that a field takes, in words for error messages about this text.
pub(crate) fn expected_not(found: &[u8], field: &Field, timestamp_hint: &str) -> String {
    let expected = expected(field, timestamp_hint);
    if is_inexact(found, field.ty) { format!("{expected}, {}", exactly(field.ty)) } else { expected }
}

/// The bounds of an integer that goes into a field of floats, and what has it go there all the same.
pub(crate) fn exactly(ty: FieldType) -> String {
    format!("and an integer that {ty} holds exactly; --allow {} has it rounded", Loss::Rounding)
}

/// The values that a field takes, in words for error messages.
pub(crate) fn expected(field: &Field, timestamp_hint: &str) -> String {
    let ty = field.ty;
    match ty {
        FieldType::Bool => "bool (true or false)".to_owned(),
        FieldType::F32 => "f32 (a number, up to 3.4e38 either way)".to_owned(),
        FieldType::F64 => "f64 (a number, up to 1.8e308 either way)".to_owned(),
        FieldType::Timestamp => format!("timestamp ({timestamp_hint}, in the years 1678 to 2261)"),
        FieldType::Char(room) => format!("{ty} (UTF-8 text of at most {room} bytes)"),
        FieldType::String => "string (UTF-8 text)".to_owned(),
        FieldType::Bytes => "bytes (base64)".to_owned(),
        FieldType::Decimal { .. } => format!("{ty} (a number that needs no more digits)"),
        FieldType::Enum { .. } => {
            let symbols = field.enumeration().map_or(&[][..], |enumeration| enumeration.symbols());
            let known: Vec<&str> = symbols.iter().take(20).map(|(symbol, _)| symbol.as_str()).collect();
            let more = if symbols.len() > 20 { ", …" } else { "" };
            format!("{ty} (a number, or one of {}{more})", known.join(", "))
        }
        FieldType::List => format!("a list of {}", crate::notation::one_line(&field.type_spec())),
        _ => {
            let (least, greatest) = ty.integer_range().unwrap_or_default();
            format!("{ty} ({least} to {greatest})")
        }
    }
}

/// Enough of what was found to find it again, with nothing in it that would spoil a terminal.
pub(crate) fn shorten(found: &[u8]) -> String {
    const MOST_CHARS: usize = 60;
    let text = String::from_utf8_lossy(found.get(..4 * MOST_CHARS).unwrap_or(found));
    let mut short: String = text.chars().take(MOST_CHARS).flat_map(char::escape_debug).collect();
    if found.len() > 4 * MOST_CHARS || text.chars().nth(MOST_CHARS).is_some() {
        short.push('…');
    }
    short
}
