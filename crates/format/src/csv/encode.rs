//! Records to CSV rows.

use super::{CsvError, CsvOptions};
use crate::field::FieldType;
use crate::format::Format;
use crate::json::JsonValue;
use crate::record::{Record, Value};
use crate::text::{self, NotText};

/// Writes records of one format as CSV rows, which [`CsvDecoder`](super::CsvDecoder) reads back as the same records.
///
/// Rows end in LF. Text and bytes that look like a null word are put in quotes, so that they are not taken for null.
/// One null is lost: text or bytes that are the only column, where every null word is empty, since a blank line is no
/// row. A list is written as a JSON array; a nested record that is there without values is written like one that is
/// null.
#[derive(Clone, Debug)]
pub struct CsvEncoder {
    format: Format,
    types: Vec<FieldType>,
    options: CsvOptions,
    /// Bytes that a field may have in quotes only.
    special: [bool; 256],
    /// The delimiter is a byte that numbers, timestamps and the like are written with: they go in quotes.
    quote_values: bool,
    null: Vec<u8>,
    /// How lists are written, by the indices of their fields.
    lists: Vec<(usize, JsonValue)>,
}

impl CsvEncoder {
    /// An encoder for records of this format.
    ///
    /// # Errors
    /// Options that cannot be.
    pub fn new(format: &Format, options: &CsvOptions) -> Result<Self, CsvError> {
        options.check()?;
        let mut special = [false; 256];
        for byte in [options.delimiter, b'"', b'\n', b'\r'] {
            special[usize::from(byte)] = true;
        }
        let types: Vec<FieldType> = format.fields().iter().map(|field| field.ty).collect();
        // In a single column nothing at all would be a blank line, which is no row.
        let is_single = types.len() == 1;
        let null = match options.null_words.iter().find(|word| !is_single || !word.is_empty()) {
            Some(word) => word.as_bytes(),
            None if is_single => b"\"\"",
            None => b"",
        };
        let quote_values = options.delimiter.is_ascii_alphanumeric() || b"+-./:=".contains(&options.delimiter);
        let null = null.to_vec();
        let fields = format.fields().iter().enumerate().filter(|(_, field)| field.ty == FieldType::List);
        let lists = fields.map(|(index, field)| (index, JsonValue::of(field))).collect();
        Ok(Self { format: format.clone(), types, special, quote_values, null, options: options.clone(), lists })
    }

    /// Appends the header row.
    pub fn header(&self, out: &mut Vec<u8>) {
        for (index, field) in self.format.fields().iter().enumerate() {
            if index > 0 {
                out.push(self.options.delimiter);
            }
            let name = field.name.as_str();
            // Blanks around a name are taken away by who reads it, unless it is in quotes.
            if name.trim() == name {
                self.push_text(out, name.as_bytes(), false);
            } else {
                push_quoted(out, name.as_bytes());
            }
        }
        out.push(b'\n');
    }

    /// Appends a record as a row, text that is not UTF-8 with U+FFFD in it. Does not allocate but to grow `out`, and for
    /// lists. A record of another format gives a row of nonsense.
    #[inline]
    pub fn record(&self, record: &Record<'_>, out: &mut Vec<u8>) {
        self.push(record, out);
    }

    /// As [`CsvEncoder::record`], but refuses text that is not UTF-8.
    ///
    /// # Errors
    /// A text is not; nothing was appended.
    #[inline]
    pub fn try_record(&self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), NotText> {
        let start = out.len();
        if !self.push(record, out) {
            return Ok(());
        }
        out.truncate(start);
        Err(NotText::of(record))
    }

    /// Appends a row; whether text in it had to be repaired.
    #[inline]
    fn push(&self, record: &Record<'_>, out: &mut Vec<u8>) -> bool {
        let mut is_repaired = false;
        for (index, ty) in self.types.iter().enumerate() {
            if index > 0 {
                out.push(self.options.delimiter);
            }
            match record.get(index) {
                Value::Null => out.extend_from_slice(&self.null),
                Value::Text(value) if value.is_ascii() || str::from_utf8(value).is_ok() => {
                    self.push_text(out, value, true);
                }
                Value::Text(value) => {
                    self.push_text(out, String::from_utf8_lossy(value).as_bytes(), true);
                    is_repaired = true;
                }
                Value::Enum { symbol: Some(symbol), .. } => self.push_text(out, symbol.as_bytes(), true),
                Value::Bytes(value) => self.push_bytes(out, value),
                Value::List(_) => is_repaired |= self.push_list(out, index, record.get(index)),
                value if self.quote_values => {
                    out.push(b'"');
                    push_value(out, *ty, value);
                    out.push(b'"');
                }
                value => push_value(out, *ty, value),
            }
        }
        out.push(b'\n');
        is_repaired
    }

    #[inline]
    fn push_text(&self, out: &mut Vec<u8>, value: &[u8], is_value: bool) {
        let quote = value.iter().any(|byte| self.special[usize::from(*byte)])
            || (is_value && self.options.is_null_word(value, FieldType::String))
            || (value.is_empty() && self.types.len() == 1)
            || value.starts_with(b"\xef\xbb\xbf");
        if quote {
            push_quoted(out, value);
        } else {
            out.extend_from_slice(value);
        }
    }

    #[cold]
    fn push_list(&self, out: &mut Vec<u8>, field: usize, list: Value<'_>) -> bool {
        let Some((_, how)) = self.lists.iter().find(|(index, _)| *index == field) else { return false };
        let mut text = Vec::new();
        let is_repaired = how.push(list, &mut text);
        self.push_text(out, &text, true);
        is_repaired
    }

    fn push_bytes(&self, out: &mut Vec<u8>, value: &[u8]) {
        let start = out.len();
        text::push_base64(out, value);
        // Base64 has none of CSV's special bytes, unless the delimiter is one of its own.
        let word = out.get(start..).unwrap_or_default();
        if self.quote_values || word.is_empty() || self.options.is_null_word(word, FieldType::Bytes) {
            out.insert(start, b'"');
            out.push(b'"');
        }
    }
}

/// A value of any type but text and bytes.
#[inline]
fn push_value(out: &mut Vec<u8>, ty: FieldType, value: Value<'_>) {
    match value {
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(value) => text::push_integer(out, value),
        Value::Uint(value) => text::push_integer(out, value),
        Value::Float(value) => text::push_float(out, ty, value),
        Value::Timestamp(value) => text::push_timestamp(out, value),
        Value::Decimal { unscaled, scale } => text::push_decimal(out, unscaled, scale),
        Value::Enum { number, .. } => text::push_integer(out, number),
        Value::Null | Value::Text(_) | Value::Bytes(_) | Value::List(_) | Value::Record(_) => {}
    }
}

fn push_quoted(out: &mut Vec<u8>, value: &[u8]) {
    out.push(b'"');
    for part in value.split_inclusive(|byte| *byte == b'"') {
        out.extend_from_slice(part);
        if part.ends_with(b"\"") {
            out.push(b'"');
        }
    }
    out.push(b'"');
}
