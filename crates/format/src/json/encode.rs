//! Records to JSON lines.

use std::borrow::Cow;

use crate::field::FieldType;
use crate::format::Format;
use crate::record::{Record, Value};
use crate::text;

/// Writes records of one format as JSON lines, which [`JsonDecoder`](super::JsonDecoder) reads back as the same
/// records. Text that is not UTF-8 has its flaws replaced by U+FFFD.
#[derive(Clone, Debug)]
pub struct JsonEncoder {
    fields: Vec<Member>,
}

/// What stands in front of a value, and the value's type.
#[derive(Clone, Debug)]
struct Member {
    /// `{` or `,`, the name, a colon.
    prefix: Vec<u8>,
    ty: FieldType,
}

impl JsonEncoder {
    /// An encoder for records of this format.
    #[must_use]
    pub fn new(format: &Format) -> Self {
        let fields = format.fields().iter().enumerate().map(|(index, field)| {
            let mut prefix = vec![if index == 0 { b'{' } else { b',' }];
            push_string(&mut prefix, &field.name);
            prefix.push(b':');
            Member { prefix, ty: field.ty }
        });
        Self { fields: fields.collect() }
    }

    /// Appends a record as a line. Does not allocate but to grow `out`. A record of another format gives a line of
    /// nonsense.
    #[inline]
    pub fn record(&self, record: &Record<'_>, out: &mut Vec<u8>) {
        for (index, Member { prefix, ty }) in self.fields.iter().enumerate() {
            out.extend_from_slice(prefix);
            match record.get(index) {
                Value::Null => out.extend_from_slice(b"null"),
                Value::Bool(true) => out.extend_from_slice(b"true"),
                Value::Bool(false) => out.extend_from_slice(b"false"),
                Value::Int(value) => text::push_integer(out, value),
                Value::Uint(value) => text::push_integer(out, value),
                Value::Float(value) if value.is_finite() => text::push_float(out, *ty, value),
                Value::Float(value) => quoted(out, |out| text::push_float(out, *ty, value)),
                Value::Timestamp(value) => quoted(out, |out| text::push_timestamp(out, value)),
                Value::Text(value) => push_text(out, value),
                Value::Bytes(value) => quoted(out, |out| text::push_base64(out, value)),
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

/// Puts in quotes what needs no escapes.
#[inline]
fn quoted(out: &mut Vec<u8>, push: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    push(out);
    out.push(b'"');
}

#[inline]
fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    match str::from_utf8(text) {
        Ok(text) => push_string(out, text),
        Err(_) => {
            let text: Cow<'_, str> = String::from_utf8_lossy(text);
            push_string(out, &text);
        }
    }
}

/// A string with serde_json's escapes.
#[inline]
fn push_string(out: &mut Vec<u8>, text: &str) {
    // Neither a string nor writing to a vector can fail.
    let _ = serde_json::to_writer(out, text);
}
