//! Values as text, the same in CSV and in JSON: numbers, timestamps (RFC 3339), bytes (base64).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use jiff::fmt::temporal::{DateTimeParser, DateTimePrinter};

use crate::builder::RecordBuilder;
use crate::field::{Field, FieldType};

static TIMESTAMP_PARSER: DateTimeParser = DateTimeParser::new();
static TIMESTAMP_PRINTER: DateTimePrinter = DateTimePrinter::new();

/// A text is no value of the field's type. What was found and expected is put into words only if somebody asks.
#[derive(Debug, PartialEq)]
pub(crate) struct Unfit;

/// Reads a text as a value of the field's type. `scratch` is room for what must be decoded.
#[inline]
pub(crate) fn set_from_text(
    builder: &mut RecordBuilder,
    scratch: &mut Vec<u8>,
    field: usize,
    ty: FieldType,
    text: &[u8],
) -> Result<(), Unfit> {
    let outcome = match ty {
        FieldType::Bool => builder.set_bool(field, parse_bool(text).ok_or(Unfit)?),
        FieldType::U64 => builder.set_u64(field, parse(text)?),
        FieldType::F64 => builder.set_f64(field, parse_f64(text).ok_or(Unfit)?),
        FieldType::F32 => builder.set_f64(field, parse_f32(text).ok_or(Unfit)?.into()),
        FieldType::Timestamp => builder.set_timestamp(field, parse_timestamp(text.trim_ascii()).ok_or(Unfit)?),
        FieldType::Char(_) | FieldType::String => builder.set_text(field, str::from_utf8(text).map_err(|_| Unfit)?),
        FieldType::Bytes => {
            decode_base64(text, scratch)?;
            builder.set_bytes(field, scratch)
        }
        _ => builder.set_i64(field, parse(text)?),
    };
    outcome.map_err(|_| Unfit)
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

/// RFC 3339 to nanoseconds since 1970, if they are within 64 bits (the years 1677 to 2262).
#[inline]
pub(crate) fn parse_timestamp(text: &[u8]) -> Option<i64> {
    let timestamp = TIMESTAMP_PARSER.parse_timestamp(text).ok()?;
    i64::try_from(timestamp.as_nanosecond()).ok()
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

pub(crate) fn push_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    // Longer than any record's bytes can come to: the length cannot overflow.
    out.resize(start + base64::encoded_len(bytes.len(), true).unwrap_or(0), 0);
    let written = BASE64_STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
}

/// What a field takes, in words for error messages.
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
