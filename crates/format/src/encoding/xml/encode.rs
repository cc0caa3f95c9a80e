//! Records to elements.

use super::{ITEM, is_char, is_name};
use crate::element::{Element, ElementKind, Group, Member as TreeMember};
use crate::encoding::{Encoder, Encoding, EncodingError, EncodingOptions, Loss};
use crate::field::{Field, FieldType};
use crate::format::Format;
use crate::record::{List, Record, Value};
use crate::spec::{FieldSpec, TypeSpec};
use crate::text;

/// Writes records of one format as a document, which [`XmlDecoder`](super::XmlDecoder) reads back as the same records.
#[derive(Clone, Debug)]
pub struct XmlEncoder {
    element: String,
    members: Vec<Member>,
    /// Characters that XML does not have become U+FFFD.
    allow_invalid: bool,
}

/// A field or a nested record, under its own name.
#[derive(Clone, Debug)]
struct Member {
    name: String,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Value(usize, FieldType),
    /// A list; what its elements are, and whether nothing at all means that it is null, and not that it is empty.
    List(usize, Elements, bool),
    /// A nested record or a union: an element with what is there of its members.
    Group(Group, Vec<Member>),
}

#[derive(Clone, Debug)]
enum Elements {
    Values(FieldType),
    Records(Vec<Member>),
    /// Lists, whose own elements are of the name [`ITEM`].
    Lists(Box<Elements>),
}

/// A value that cannot be written.
struct Unfit {
    found: String,
}

impl XmlEncoder {
    /// An encoder of records of this format.
    ///
    /// # Errors
    /// A name that no element can have.
    pub fn new(format: &Format, options: &EncodingOptions) -> Result<Self, EncodingError> {
        let element = options.xml_element.clone().unwrap_or_else(|| "record".to_owned());
        if !is_name(&element) {
            return Err(EncodingError::schema(format!("`{element}` is no name for an XML element")));
        }
        let members = members(format, format.tree(), &format.specs())?;
        Ok(Self { element, members, allow_invalid: options.allows(Loss::InvalidText) })
    }

    /// The element around all records: any name but that of a record.
    fn root(&self) -> &'static str {
        if self.element == "records" { "document" } else { "records" }
    }

    fn members(&self, members: &[Member], record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        for Member { name, what } in members {
            let written = match what {
                What::Value(field, ty) => match record.get(*field) {
                    Value::Null => continue,
                    value => self.value(name, *ty, value, out),
                },
                What::List(field, elements, nullable) => match record.get(*field) {
                    Value::List(list) if list.is_empty() && *nullable => {
                        push_empty_list(name, out);
                        Ok(())
                    }
                    Value::List(list) => self.list(name, elements, list, out),
                    _ => continue,
                },
                What::Group(group, _) if record.group_is_null(group) => continue,
                What::Group(_, members) => {
                    open(out, name);
                    let written = self.members(members, record, out);
                    close(out, name);
                    written
                }
            };
            written.map_err(|error| within(name, error))?;
        }
        Ok(())
    }

    fn list(&self, name: &str, elements: &Elements, list: List<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        for value in list.iter() {
            match (elements, value) {
                (Elements::Values(ty), value) => self.value(name, *ty, value, out)?,
                (Elements::Records(members), Value::Record(record)) => {
                    open(out, name);
                    self.members(members, &record, out)?;
                    close(out, name);
                }
                (Elements::Lists(elements), Value::List(list)) => {
                    open(out, name);
                    self.list(ITEM, elements, list, out)?;
                    close(out, name);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn value(&self, name: &str, ty: FieldType, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        open(out, name);
        self.push_value(ty, value, out).map_err(|Unfit { found }| {
            EncodingError::value(found, "text of characters that XML has (--allow invalid-text replaces others)")
        })?;
        close(out, name);
        Ok(())
    }

    fn push_value(&self, ty: FieldType, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), Unfit> {
        match value {
            Value::Null => {}
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Int(value) => text::push_integer(out, value),
            Value::Uint(value) => text::push_integer(out, value),
            Value::Float(value) if value.is_infinite() => {
                out.extend_from_slice(if value > 0.0 { b"INF" } else { b"-INF" });
            }
            Value::Float(value) => text::push_float(out, ty, value),
            Value::Timestamp(value) => text::push_timestamp(out, value),
            Value::Bytes(value) => text::push_base64(out, value),
            Value::Text(value) => self.push_text(value, out)?,
            Value::Decimal { unscaled, scale } => text::push_decimal(out, unscaled, scale),
            Value::Enum { symbol: Some(symbol), .. } => self.push_text(symbol.as_bytes(), out)?,
            Value::Enum { number, symbol: None } => text::push_integer(out, number),
            Value::List(_) | Value::Record(_) => {}
        }
        Ok(())
    }

    fn push_text(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), Unfit> {
        for chunk in value.utf8_chunks() {
            let mut plain = chunk.valid();
            while let Some((at, c)) = plain.char_indices().find(|(_, c)| "&<>\r".contains(*c) || !is_char(*c)) {
                out.extend_from_slice(&plain.as_bytes()[..at]);
                out.extend_from_slice(match c {
                    '&' => b"&amp;",
                    '<' => b"&lt;",
                    '>' => b"&gt;",
                    // Unescaped, it would be read as a line feed.
                    '\r' => b"&#13;",
                    _ if self.allow_invalid => "\u{fffd}".as_bytes(),
                    _ => return Err(Unfit { found: text::shorten(value) }),
                });
                plain = &plain[at + c.len_utf8()..];
            }
            out.extend_from_slice(plain.as_bytes());
            if !chunk.invalid().is_empty() {
                if !self.allow_invalid {
                    return Err(Unfit { found: format!("`{}`, which is no UTF-8", text::shorten(value)) });
                }
                out.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
        Ok(())
    }
}

/// A format's fields, or those in a nested record.
fn members(format: &Format, places: &[TreeMember], specs: &[FieldSpec]) -> Result<Vec<Member>, EncodingError> {
    let member = |(place, spec): (&TreeMember, &FieldSpec)| {
        if !is_name(&spec.name) {
            let message = format!("{} has no element of such a name; give it another in the query", Encoding::Xml);
            return Err(EncodingError::schema(message).in_field(&spec.name));
        }
        let what = match (place, &spec.ty) {
            (TreeMember::Leaf(leaf), _) => match format.fields().get(*leaf) {
                Some(field) => leaf_of(*leaf, field, spec.nullable)?,
                None => What::Value(*leaf, FieldType::Bytes),
            },
            (TreeMember::Group(group), TypeSpec::Record(inner) | TypeSpec::Union(inner)) => {
                let are_variants = group.union.is_some();
                let inner: Vec<FieldSpec> = inner
                    .iter()
                    .map(|spec| FieldSpec { nullable: spec.nullable || are_variants, ..spec.clone() })
                    .collect();
                let members = members(format, &group.members, &inner).map_err(|error| within(&spec.name, error))?;
                What::Group(group.clone(), members)
            }
            (TreeMember::Group(group), _) => What::Group(group.clone(), Vec::new()),
        };
        Ok(Member { name: spec.name.clone(), what })
    };
    places.iter().zip(specs).map(member).collect()
}

fn leaf_of(index: usize, field: &Field, nullable: bool) -> Result<What, EncodingError> {
    match field.element() {
        None => Ok(What::Value(index, field.ty)),
        Some(element) => {
            let elements = elements(element).map_err(|error| within(&field.name, error))?;
            Ok(What::List(index, elements, nullable))
        }
    }
}

fn elements(element: &Element) -> Result<Elements, EncodingError> {
    Ok(match element.kind() {
        ElementKind::Record(format) => Elements::Records(members(format, format.tree(), &format.specs())?),
        ElementKind::Scalar(field) => match field.element() {
            None => Elements::Values(field.ty),
            Some(inner) => Elements::Lists(Box::new(elements(inner)?)),
        },
    })
}

/// The error with the name of what it is in before its path.
fn within(name: &str, error: EncodingError) -> EncodingError {
    let path = error.field.as_ref().map_or_else(|| name.to_owned(), |path| format!("{name}.{path}"));
    error.in_field(path)
}

/// A list that is there and has no element, where nothing at all would be no list.
fn push_empty_list(name: &str, out: &mut Vec<u8>) {
    out.push(b'<');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b" xsi:nil=\"false\"/>");
}

fn open(out: &mut Vec<u8>, name: &str) {
    out.push(b'<');
    out.extend_from_slice(name.as_bytes());
    out.push(b'>');
}

fn close(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b"</");
    out.extend_from_slice(name.as_bytes());
    out.push(b'>');
}

impl Encoder for XmlEncoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        out.push(b'<');
        out.extend_from_slice(self.root().as_bytes());
        out.extend_from_slice(b" xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\n");
    }

    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        let start = out.len();
        open(out, &self.element);
        if let Err(error) = self.members(&self.members, record, out) {
            out.truncate(start);
            return Err(error);
        }
        close(out, &self.element);
        out.push(b'\n');
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        close(out, self.root());
        out.push(b'\n');
        Ok(())
    }
}
