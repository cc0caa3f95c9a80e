//! JSON lines to records.

use std::collections::HashMap;
use std::fmt;
use std::io::BufRead;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::plain::Plain;
use super::shape::{Entry, Item, Shape, What};
use super::values::ValueReader;
use super::{JsonError, JsonOptions, JsonProblem};
use crate::builder::{RecordBuilder, ValueError, ValueProblem};
use crate::element::{Group, VALUE};
use crate::field::{Field, FieldType};
use crate::format::Format;
use crate::nesting::MAX_NESTING;
use crate::text::{self, Rounding, Unfit};

/// Reads objects into records of one format, without allocating once its buffers have grown to the objects' sizes: an
/// object a line, or the elements of an array over any number of lines, which is read element by element.
#[derive(Debug)]
pub struct JsonDecoder {
    values: ValueReader,
    shape: Shape,
    convert: Convert,
}

/// What makes a record of an object.
#[derive(Debug)]
struct Convert {
    /// What reads most lines; `None` for formats with more than single values in them.
    plain: Option<Plain>,
    builder: RecordBuilder,
    options: JsonOptions,
    /// One bit a member: those that the objects on the way to where parsing is had.
    seen: Vec<u64>,
    scratch: Vec<u8>,
    /// What is wrong, while the parser's own error takes its way out.
    flaw: Option<(Option<String>, JsonProblem)>,
}

impl JsonDecoder {
    /// A decoder for objects of this format.
    #[must_use]
    pub fn new(format: &Format, options: &JsonOptions) -> Self {
        let (shape, words) = Shape::of(format);
        let convert = Convert {
            plain: Plain::of(format, &shape),
            builder: RecordBuilder::with_defaults(format),
            options: options.clone(),
            seen: vec![0; words],
            scratch: Vec::new(),
            flaw: None,
        };
        Self { values: ValueReader::default(), shape, convert }
    }

    /// The next object as a record; blank lines are skipped; `None` at the end of the input. Always give it the same
    /// input.
    ///
    /// # Errors
    /// The object is wrong, and the next call goes on with what follows it ([`JsonError::is_row`]); or the input cannot
    /// be read.
    #[inline]
    pub fn next_record<R: BufRead + ?Sized>(&mut self, input: &mut R) -> Result<Option<&[u8]>, JsonError> {
        let Self { values, shape, convert } = self;
        loop {
            let most = convert.options.max_line_bytes;
            match values.read(input, most, |line, bytes| convert.line(shape, line, bytes).map(|there| (line, there)))? {
                None => return Ok(None),
                Some(Ok((_, false))) => {}
                Some(Ok((line, true))) => return convert.finish(line).map(Some),
                Some(Err(error)) => return Err(error),
            }
        }
    }

    /// Forgets the input: the next call is given the start of another.
    pub fn restart(&mut self) {
        self.values = ValueReader::default();
    }

    /// One object as a record, without an input around it; errors are of line 1.
    ///
    /// # Errors
    /// It is wrong, or there is none.
    pub fn decode(&mut self, object: &[u8]) -> Result<&[u8], JsonError> {
        if object.len() > self.convert.options.max_line_bytes {
            let problem = JsonProblem::LineTooLong { most: self.convert.options.max_line_bytes };
            return Err(JsonError::at(1, problem));
        }
        if !self.convert.line(&self.shape, 1, object)? {
            let problem = JsonProblem::Syntax { column: 1, message: "found nothing, expected an object".to_owned() };
            return Err(JsonError::at(1, problem));
        }
        self.convert.finish(1)
    }
}

impl Convert {
    /// Makes the members of an object a record, for [`Convert::finish`]; false for a blank line.
    #[inline]
    fn line(&mut self, shape: &Shape, line: u64, bytes: &[u8]) -> Result<bool, JsonError> {
        if bytes.trim_ascii().is_empty() {
            return Ok(false);
        }
        if let Some(plain) = &mut self.plain
            && plain.read(&mut self.builder, shape, &self.options, bytes)
        {
            return Ok(true);
        }
        self.builder.clear();
        let mut parser = serde_json::Deserializer::from_slice(bytes);
        let outcome = parser.deserialize_map(Object { convert: self, shape }).and_then(|()| parser.end());
        match outcome {
            Ok(()) => Ok(true),
            Err(error) => Err(self.explain(line, &error)),
        }
    }

    #[inline]
    fn finish(&mut self, line: u64) -> Result<&[u8], JsonError> {
        self.builder.finish().map_err(|error| {
            let (field, problem) = flaw_of(&error);
            JsonError { line, field, problem }
        })
    }

    #[cold]
    fn explain(&mut self, line: u64, error: &serde_json::Error) -> JsonError {
        if let Some((field, problem)) = self.flaw.take() {
            return JsonError { line, field, problem };
        }
        // The parser's place is within the value: said once, in our words.
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        let problem = JsonProblem::Syntax { column: error.column(), message: message.to_owned() };
        JsonError::at(line + (error.line() as u64).saturating_sub(1), problem)
    }

    /// Puts the parser's error in the place of what the builder says.
    #[cold]
    fn refuse<E: serde::de::Error>(&mut self, error: &ValueError) -> E {
        self.flaw = Some(flaw_of(error));
        E::custom("flaw")
    }

    /// A member's name with the elements that it lies in.
    fn path(&self, name: &str) -> String {
        self.builder.path().map_or_else(|| name.to_owned(), |path| format!("{path}.{name}"))
    }
}

fn flaw_of(error: &ValueError) -> (Option<String>, JsonProblem) {
    let problem = match error.problem {
        ValueProblem::NotSet => JsonProblem::Missing,
        problem => JsonProblem::Refused { problem },
    };
    (error.path(), problem)
}

/// The members of a record: the whole line, a nested record, a union, an element of a list.
struct Object<'c> {
    convert: &'c mut Convert,
    shape: &'c Shape,
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { convert, shape } = self;
        convert.seen.get_mut(shape.seen.clone()).unwrap_or_default().fill(0);
        let mut likely = 0;
        while let Some(key) = map.next_key_seed(Key { convert, shape, likely })? {
            let Some((index, entry)) = key.and_then(|index| Some((index, shape.entries.get(index)?))) else {
                map.next_value_seed(Skipped { convert, depth: MAX_NESTING })?;
                continue;
            };
            likely = index + 1;
            match &entry.what {
                What::Value(field, ty) => map.next_value_seed(Member { convert, field: *field, ty: *ty })?,
                What::List(field, item) => map.next_value_seed(Elements { convert, field: *field, item })?,
                What::Group(group, inner) => {
                    map.next_value_seed(Nested { convert, group, shape: inner })?;
                }
            }
        }
        Ok(())
    }
}

/// A member's name, to the index of its entry; `None` if it is to be passed over.
struct Key<'c> {
    convert: &'c mut Convert,
    shape: &'c Shape,
    likely: usize,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        parser.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    #[inline]
    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        let Self { convert, shape, likely } = self;
        let problem = match shape.entry(name, likely) {
            Some(index) => {
                let (word, bit) = (shape.seen.start + index / 64, 1 << (index % 64));
                match convert.seen.get_mut(word) {
                    Some(seen) if *seen & bit == 0 => {
                        *seen |= bit;
                        return Ok(Some(index));
                    }
                    _ => JsonProblem::SameField,
                }
            }
            None if convert.options.ignore_unknown_fields => return Ok(None),
            None => {
                let known: Vec<&str> = shape.entries.iter().map(|Entry { name, .. }| name.as_str()).collect();
                JsonProblem::UnknownField { known: known.join(", ") }
            }
        };
        convert.flaw = Some((Some(convert.path(&text::shorten(name.as_bytes()))), problem));
        Err(E::custom("flaw"))
    }
}

/// A nested record or union.
struct Nested<'c> {
    convert: &'c mut Convert,
    group: &'c Group,
    shape: &'c Shape,
}

impl<'de> DeserializeSeed<'de> for Nested<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object for `{}`", self.convert.path(&self.group.path))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.convert.builder.set_group_null(self.group).map_err(|error| self.convert.refuse(&error))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.convert.builder.set_group_present(self.group);
        Object { convert: self.convert, shape: self.shape }.visit_map(map)
    }
}

/// A list.
struct Elements<'c> {
    convert: &'c mut Convert,
    field: usize,
    item: &'c Item,
}

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array for `{}`", self.convert.path(self.convert.builder.field_name(self.field)))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.convert.builder.set_null(self.field).map_err(|error| self.convert.refuse(&error))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { convert, field, item } = self;
        convert.builder.begin_list(field).map_err(|error| convert.refuse::<A::Error>(&error))?;
        while seq.next_element_seed(One { convert, item })?.is_some() {}
        convert.builder.end_list().map_err(|error| convert.refuse(&error))
    }
}

/// An element of a list.
struct One<'c> {
    convert: &'c mut Convert,
    item: &'c Item,
}

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        let Self { convert, item } = self;
        match item {
            Item::List(item) => return Elements { convert, field: 0, item }.deserialize(parser),
            Item::Value(ty) => {
                convert.builder.begin_value().map_err(|error| convert.refuse::<D::Error>(&error))?;
                Member { convert, field: 0, ty: *ty }.deserialize(parser)?;
                convert.builder.end_value();
            }
            Item::Record(shape) | Item::Nullable(shape) => {
                convert.builder.begin_element().map_err(|error| convert.refuse::<D::Error>(&error))?;
                match item {
                    Item::Nullable(_) => Bare { convert, shape }.deserialize(parser)?,
                    _ => parser.deserialize_map(Object { convert, shape })?,
                }
                convert.builder.end_element().map_err(|error| convert.refuse::<D::Error>(&error))?;
            }
        }
        Ok(())
    }
}

/// The value of a record that has no other: as the record's only member, or without the record around it.
struct Bare<'c> {
    convert: &'c mut Convert,
    shape: &'c Shape,
}

impl<'de> DeserializeSeed<'de> for Bare<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        let Self { convert, shape } = self;
        // Read twice, since only what is in an object tells whether it is the record or its value.
        let text = <&RawValue>::deserialize(parser)?.get();
        let mut parser = serde_json::Deserializer::from_str(text);
        let outcome = match shape.entries.first().map(|entry| &entry.what) {
            _ if text == "null" => Ok(()),
            Some(What::Group(..)) if text.starts_with('{') && is_wrapped(text) => {
                parser.deserialize_map(Object { convert, shape })
            }
            Some(What::Group(group, inner)) => Nested { convert, group, shape: inner }.deserialize(&mut parser),
            _ if text.starts_with('{') => parser.deserialize_map(Object { convert, shape }),
            Some(What::List(field, item)) => Elements { convert, field: *field, item }.deserialize(&mut parser),
            Some(What::Value(field, ty)) => Member { convert, field: *field, ty: *ty }.deserialize(&mut parser),
            None => Ok(()),
        };
        outcome.map_err(D::Error::custom)
    }
}

/// Whether an object has one member, [`VALUE`], which is an object or null.
fn is_wrapped(object: &str) -> bool {
    let members: Result<HashMap<String, &RawValue>, _> = serde_json::from_str(object);
    let is_value = |value: &&RawValue| value.get() == "null" || value.get().starts_with('{');
    members.is_ok_and(|members| members.len() == 1 && members.get(VALUE).is_some_and(is_value))
}

/// The value of a field.
struct Member<'c> {
    convert: &'c mut Convert,
    field: usize,
    ty: FieldType,
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        match self.ty {
            FieldType::F32 | FieldType::F64 | FieldType::Decimal { .. } => self.deserialize_digits(parser),
            _ => parser.deserialize_any(self),
        }
    }
}

impl Member<'_> {
    /// A number that comes from its digits. By way of `f64` an `f32` would be rounded twice, which makes 7.038531e-26
    /// another number; a decimal would be rounded, and an integer beyond `u64` would be without anybody's notice.
    fn deserialize_digits<'de, D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        let text = <&RawValue>::deserialize(parser)?.get();
        if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            let mut parser = serde_json::Deserializer::from_str(text);
            return parser.deserialize_any(self).map_err(D::Error::custom);
        }
        let Convert { builder, scratch, options, .. } = &mut *self.convert;
        let rounding = Rounding::of(options.rounds_integers);
        match text::set_from_text(builder, scratch, self.field, text.as_bytes(), rounding) {
            Ok(()) => Ok(()),
            Err(Unfit) => self.refuse(text::shorten(text.as_bytes())),
        }
    }

    /// Ends the parsing, with the flaw where [`Convert::explain`] finds it.
    #[cold]
    fn refuse<E: serde::de::Error>(self, found: String) -> Result<(), E> {
        let field: Option<Field> = self.convert.builder.format().fields().get(self.field).cloned();
        if let Some(field) = &field {
            let times = "an RFC 3339 string, such as \"2013-01-01T10:00:00Z\"";
            let mut expected = text::expected_not(found.as_bytes(), field, times);
            expected.push_str(if field.nullable { ", or null" } else { "" });
            let problem = JsonProblem::Value { found, expected };
            let path = match self.convert.builder.path() {
                Some(path) if self.convert.builder.is_in_value() => path.into(),
                _ => self.convert.path(&field.name),
            };
            self.convert.flaw = Some((Some(path), problem));
        }
        Err(E::custom("flaw"))
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    #[inline]
    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match self.convert.builder.set_bool(self.field, value) {
            Ok(()) => Ok(()),
            Err(_) => self.refuse(value.to_string()),
        }
    }

    #[inline]
    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        match self.convert.builder.set_i64(self.field, value) {
            Ok(()) => Ok(()),
            Err(_) => self.refuse(value.to_string()),
        }
    }

    #[inline]
    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match self.convert.builder.set_u64(self.field, value) {
            Ok(()) => Ok(()),
            Err(_) => self.refuse(value.to_string()),
        }
    }

    #[inline]
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        match self.convert.builder.set_f64(self.field, value) {
            Ok(()) => Ok(()),
            Err(_) => self.refuse(format!("{value:?}")),
        }
    }

    #[inline]
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        match self.convert.builder.set_null(self.field) {
            Ok(()) => Ok(()),
            Err(_) => self.refuse("null".to_owned()),
        }
    }

    #[inline]
    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        let (field, ty) = (self.field, self.ty);
        let Convert { builder, options, scratch, .. } = &mut *self.convert;
        if options.null_words.iter().any(|word| word == value) && builder.set_null(field).is_ok() {
            return Ok(());
        }
        let is_text = match ty {
            FieldType::Char(_)
            | FieldType::String
            | FieldType::Timestamp
            | FieldType::Bytes
            | FieldType::Enum { .. }
            | FieldType::Decimal { .. } => true,
            // What JSON has no number for.
            FieldType::F32 | FieldType::F64 => !value.bytes().any(|byte| byte.is_ascii_digit()),
            _ => false,
        };
        let rounding = Rounding::of(options.rounds_integers);
        let outcome = match is_text {
            true => text::set_from_text(builder, scratch, field, value.as_bytes(), rounding),
            false => Err(Unfit),
        };
        match outcome {
            Ok(()) => Ok(()),
            Err(Unfit) => self.refuse(format!("\"{}\"", text::shorten(value.as_bytes()))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        self.refuse("an array".to_owned())
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        self.refuse("an object".to_owned())
    }
}

/// A value that is passed over, but not at any depth.
struct Skipped<'c> {
    convert: &'c mut Convert,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Skipped<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_any(self)
    }
}

impl Skipped<'_> {
    fn deeper<E: serde::de::Error>(&mut self) -> Result<usize, E> {
        self.depth.checked_sub(1).ok_or_else(|| {
            self.convert.flaw = Some((None, JsonProblem::TooDeep));
            E::custom("flaw")
        })
    }
}

impl<'de> Visitor<'de> for Skipped<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let depth = self.deeper()?;
        while seq.next_element_seed(Skipped { convert: self.convert, depth })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let depth = self.deeper()?;
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(Skipped { convert: self.convert, depth })?;
        }
        Ok(())
    }
}
