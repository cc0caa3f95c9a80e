//! Records to JSON lines.

use crate::element::{Element, Group, Member as TreeMember};
use crate::field::{Field, FieldType};
use crate::format::Format;
use crate::record::{List, Record, Value};
use crate::text::{self, NotText};

/// Writes records of one format as JSON lines, which [`JsonDecoder`](super::JsonDecoder) reads back as the same
/// records. Text that is not UTF-8 has its flaws replaced by U+FFFD, or is refused, as the caller chooses.
#[derive(Clone, Debug)]
pub struct JsonEncoder {
    members: Vec<Member>,
}

/// The text in front of a value, and the form of the value.
#[derive(Clone, Debug)]
struct Member {
    /// A comma unless it is the first, the name, a colon.
    prefix: Vec<u8>,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// The field of this index.
    Value(usize, ValueForm),
    /// A nested record, or a union, which is written as an object of its one variant.
    Group(Group, Vec<Member>),
}

/// How a value is written, where the value alone does not say.
#[derive(Clone, Debug)]
enum ValueForm {
    Scalar(FieldType),
    /// A list of single values.
    Values(Box<ValueForm>),
    /// A list of records.
    Records(Vec<Member>),
}

/// How the values of one field are written, apart from records.
#[derive(Clone, Debug)]
pub(crate) struct JsonValue(ValueForm);

impl JsonValue {
    pub(crate) fn of(field: &Field) -> Self {
        Self(ValueForm::of(field))
    }

    /// Appends a value of the field; whether text in it had to be repaired.
    pub(crate) fn push(&self, value: Value<'_>, out: &mut Vec<u8>) -> bool {
        let mut line = Line { bytes: out, is_repaired: false };
        push_value(&self.0, value, &mut line);
        line.is_repaired
    }
}

impl ValueForm {
    fn of(field: &Field) -> Self {
        match field.element() {
            None => Self::Scalar(field.ty),
            Some(element) => Self::of_elements(element),
        }
    }

    fn of_elements(element: &Element) -> Self {
        let format = element.format();
        if element.is_record {
            return Self::Records(members(format, format.tree(), 0, false));
        }
        Self::Values(Box::new(format.fields().first().map_or(Self::Scalar(FieldType::Bytes), Self::of)))
    }
}

fn members(format: &Format, places: &[TreeMember], path: usize, are_variants: bool) -> Vec<Member> {
    let member = |(index, place): (usize, &TreeMember)| {
        let (name, what) = match place {
            TreeMember::Leaf(leaf) => {
                let field = format.fields().get(*leaf)?;
                (field.name.get(path..)?, What::Value(*leaf, ValueForm::of(field)))
            }
            TreeMember::Group(group) => {
                let inner = members(format, &group.members, group.path.len() + 1, group.union.is_some());
                (group.name.as_str(), What::Group(group.clone(), inner))
            }
        };
        let mut prefix = Vec::new();
        if index > 0 && !are_variants {
            prefix.push(b',');
        }
        push_string(&mut prefix, name);
        prefix.push(b':');
        Some(Member { prefix, what })
    };
    places.iter().enumerate().filter_map(member).collect()
}

impl JsonEncoder {
    /// An encoder for records of this format.
    #[must_use]
    pub fn new(format: &Format) -> Self {
        Self { members: members(format, format.tree(), 0, false) }
    }

    /// Appends a record as a line, text that is not UTF-8 with U+FFFD in it. Does not allocate but to grow `out`. A record of
    /// another format gives a line of nonsense.
    #[inline]
    pub fn record(&self, record: &Record<'_>, out: &mut Vec<u8>) {
        self.push(record, out);
    }

    /// As [`JsonEncoder::record`], but refuses text that is not UTF-8.
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

    /// Appends a line; whether text in it had to be repaired.
    #[inline]
    fn push(&self, record: &Record<'_>, out: &mut Vec<u8>) -> bool {
        let mut line = Line { bytes: out, is_repaired: false };
        push_record(&self.members, record, &mut line);
        line.bytes.push(b'\n');
        line.is_repaired
    }
}

/// The line that is being written.
struct Line<'o> {
    bytes: &'o mut Vec<u8>,
    /// Whether a text was not UTF-8.
    is_repaired: bool,
}

#[inline]
fn push_record(members: &[Member], record: &Record<'_>, out: &mut Line<'_>) {
    out.bytes.push(b'{');
    for Member { prefix, what } in members {
        out.bytes.extend_from_slice(prefix);
        match what {
            What::Value(index, kind) => push_value(kind, record.get(*index), out),
            What::Group(group, members) => push_group(group, members, record, out),
        }
    }
    out.bytes.push(b'}');
}

fn push_group(group: &Group, members: &[Member], record: &Record<'_>, out: &mut Line<'_>) {
    if record.group_is_null(group) {
        out.bytes.extend_from_slice(b"null");
        return;
    }
    if group.union.is_none() {
        push_record(members, record, out);
        return;
    }
    let is_there = |member: &&Member| match &member.what {
        What::Value(index, _) => !record.is_null(*index),
        What::Group(group, _) => !record.group_is_null(group),
    };
    let variant = members.iter().find(is_there);
    push_record(variant.map_or(&[], std::slice::from_ref), record, out);
}

#[inline]
fn push_value(kind: &ValueForm, value: Value<'_>, out: &mut Line<'_>) {
    let bytes = &mut *out.bytes;
    match value {
        Value::Null => bytes.extend_from_slice(b"null"),
        Value::Bool(true) => bytes.extend_from_slice(b"true"),
        Value::Bool(false) => bytes.extend_from_slice(b"false"),
        Value::Int(value) => text::push_integer(bytes, value),
        Value::Uint(value) => text::push_integer(bytes, value),
        Value::Float(value) => {
            let ty = if let ValueForm::Scalar(ty) = kind { *ty } else { FieldType::F64 };
            if value.is_finite() {
                text::push_float(bytes, ty, value);
            } else {
                quoted(bytes, |bytes| text::push_float(bytes, ty, value));
            }
        }
        Value::Timestamp(value) => quoted(bytes, |bytes| text::push_timestamp(bytes, value)),
        Value::Text(value) => match str::from_utf8(value) {
            Ok(text) => push_string(bytes, text),
            Err(_) => {
                push_string(bytes, &String::from_utf8_lossy(value));
                out.is_repaired = true;
            }
        },
        Value::Bytes(value) => quoted(bytes, |bytes| text::push_base64(bytes, value)),
        Value::Decimal { unscaled, scale } => text::push_decimal(bytes, unscaled, scale),
        Value::Enum { symbol: Some(symbol), .. } => push_string(bytes, symbol),
        Value::Enum { number, symbol: None } => text::push_integer(bytes, number),
        Value::List(list) => push_list(kind, list, out),
        Value::Record(record) => match kind {
            ValueForm::Records(members) => push_record(members, &record, out),
            _ => bytes.extend_from_slice(b"null"),
        },
    }
}

/// A list as an array.
fn push_list(kind: &ValueForm, list: List<'_>, out: &mut Line<'_>) {
    out.bytes.push(b'[');
    for (index, value) in list.iter().enumerate() {
        if index > 0 {
            out.bytes.push(b',');
        }
        match kind {
            ValueForm::Values(kind) => push_value(kind, value, out),
            kind => push_value(kind, value, out),
        }
    }
    out.bytes.push(b']');
}

/// Puts in quotes what needs no escapes.
#[inline]
fn quoted(out: &mut Vec<u8>, push: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    push(out);
    out.push(b'"');
}

/// A string with serde_json's escapes.
#[inline]
fn push_string(out: &mut Vec<u8>, text: &str) {
    // Neither a string nor writing to a vector can fail.
    let _ = serde_json::to_writer(out, text);
}
