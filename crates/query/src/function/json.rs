//! JSON that stands in a text. It is read in place up to the end (a text that is no JSON is a row error) and never put together
//! in memory.

use std::fmt;

use crossdock_format::FieldType;
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Answer, Arguments, Body, Function, Gives, Kind, Scratch};
use crate::interpret::EvalError;

const TEXT: Gives = Gives::Type(FieldType::String);
const KEY: &[Kind] = &[Kind::Text, Kind::Text];
const INDEX: &[Kind] = &[Kind::Text, Kind::Integer];

/// The most names in a path: the rest of the text is read at each.
const MAX_PATH_NAMES: usize = 64;

const AS_JSON: &str =
    "works on texts, as the type `json` does (of members with one name the last counts); there is no type of JSON";

pub(super) const FUNCTIONS: &[Function] = &[
    operator(
        "->",
        KEY,
        "the member with this name, as JSON; null if there is none",
        ("'{\"a\": [1, 2]}' -> 'a'", "[1, 2]"),
        |a, o| pushed(member(a.text(0)?, a.text(1)?)?, o),
    )
    .but(AS_JSON),
    operator(
        "->",
        INDEX,
        "the element with this number, from 0; from the end if below zero",
        ("'[1, 2]' -> -1", "2"),
        |a, o| pushed(element(a.text(0)?, a.count_at(1)?)?, o),
    ),
    operator("->>", KEY, "the member as text", ("'{\"a\": \"x\\n\"}' ->> 'a' = E'x\\n'", "true"), |a, o| {
        unquoted(member(a.text(0)?, a.text(1)?)?, o)
    }),
    operator("->>", INDEX, "the element as text", ("'[\"x\", null]' ->> 0", "x"), |a, o| {
        unquoted(element(a.text(0)?, a.count_at(1)?)?, o)
    }),
    operator(
        "#>",
        KEY,
        "the value at the end of a path, as JSON",
        ("'{\"a\": [{\"b\": 1}]}' #> '{a,0}'", "{\"b\": 1}"),
        |a, o| pushed(at_path(a.text(0)?, a.text(1)?)?, o),
    )
    .but("names in a path hold no commas; more than 64 names are a row error"),
    operator("#>>", KEY, "the same as text", ("'{\"a\": [{\"b\": \"x\"}]}' #>> '{a,0,b}'", "x"), |a, o| {
        unquoted(at_path(a.text(0)?, a.text(1)?)?, o)
    }),
    Function::new(
        ("json", &[Kind::Text], TEXT),
        "the text, which is to be JSON; also `CAST(text AS json)`",
        ("json('[1]')", "[1]"),
        Body::Values(|arguments, _| {
            kind(arguments.text(0)?)?;
            Ok(Answer::Argument(0))
        }),
    )
    .but("a cast to `jsonb` leaves the text as it is too; a number beyond `double precision`, such as `1e400`, is a row error"),
    Function::new(
        ("json_typeof", &[Kind::Text], TEXT),
        "`object`, `array`, `string`, `number`, `boolean` or `null`",
        ("json_typeof('[1]')", "array"),
        Body::Values(|arguments, out| {
            out.push(kind(arguments.text(0)?)?.as_bytes())?;
            Ok(Answer::Made)
        }),
    )
    .within(8),
    Function::new(
        ("json_array_length", &[Kind::Text], Gives::Type(FieldType::I64)),
        "the number of elements",
        ("json_array_length('[1, [2, 3]]')", "2"),
        Body::Values(|arguments, _| {
            let text = arguments.text(0)?;
            if kind(text)? != "array" {
                return Err(EvalError::Domain("JSON that is no array has no length"));
            }
            Ok(Answer::Int(length(text)? as i128))
        }),
    ),
];

const fn operator(
    name: &'static str,
    arguments: &'static [Kind],
    meaning: &'static str,
    example: (&'static str, &'static str),
    run: fn(&Arguments<'_, '_>, &mut Scratch) -> Result<Answer, EvalError>,
) -> Function {
    Function::new((name, arguments, TEXT), meaning, example, Body::Values(run)).nullable()
}

/// The kind of value that a text says in JSON.
fn kind(text: &str) -> Result<&'static str, EvalError> {
    read(text, Whole)?;
    Ok(match text.trim_start().bytes().next() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    })
}

/// Reads a text of JSON up to its end.
fn read<'t, V: Visitor<'t>>(text: &'t str, visitor: V) -> Result<V::Value, EvalError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = deserializer.deserialize_any(visitor);
    read.and_then(|value| deserializer.end().map(|()| value)).map_err(|_| EvalError::NotJson)
}

fn member<'t>(text: &'t str, name: &str) -> Result<Option<&'t str>, EvalError> {
    read(text, Find::Member(name))
}

fn element(text: &str, index: i64) -> Result<Option<&str>, EvalError> {
    let index = if index < 0 { length(text)? as i64 + index } else { index };
    match usize::try_from(index) {
        Ok(index) => read(text, Find::Element(index)),
        Err(_) => read(text, Whole).map(|_| None),
    }
}

/// The number of elements; 0 of what is no array.
fn length(text: &str) -> Result<usize, EvalError> {
    read(text, Whole)
}

/// The value at the end of a path `{a,0,b}`.
fn at_path<'t>(text: &'t str, path: &str) -> Result<Option<&'t str>, EvalError> {
    let names = path.trim().strip_prefix('{').and_then(|path| path.strip_suffix('}'));
    let names = names.ok_or(EvalError::Domain("a path in JSON is written '{name,0,name}'"))?;
    let mut text = text;
    if names.trim().is_empty() {
        read(text, Whole)?;
        return Ok(Some(text));
    }
    if names.split(',').nth(MAX_PATH_NAMES).is_some() {
        return Err(EvalError::Domain("a path in JSON of more than 64 names"));
    }
    for name in names.split(',').map(str::trim) {
        let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name);
        let found = match text.trim_start().starts_with('[') {
            true => name.parse().map_or_else(|_| read(text, Whole).map(|_| None), |index| element(text, index))?,
            false => member(text, name)?,
        };
        match found {
            Some(found) => text = found,
            None => return Ok(None),
        }
    }
    Ok(Some(text))
}

fn pushed(found: Option<&str>, out: &mut Scratch) -> Result<Answer, EvalError> {
    let Some(found) = found else { return Ok(Answer::Null) };
    out.push(found.as_bytes())?;
    Ok(Answer::Made)
}

/// A string without its quotes; null for JSON's null.
fn unquoted(found: Option<&str>, out: &mut Scratch) -> Result<Answer, EvalError> {
    match found.map(str::trim) {
        Some("null") => Ok(Answer::Null),
        Some(string) if string.starts_with('"') => {
            read(string, Push(out))??;
            Ok(Answer::Made)
        }
        other => pushed(other, out),
    }
}

/// Reads anything, and counts the elements of an array.
struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_i64<E>(self, _: i64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_u64<E>(self, _: u64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_f64<E>(self, _: f64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_str<E>(self, _: &str) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_unit<E>(self) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while all.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<usize, A::Error> {
        while all.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(0)
    }
}

/// Finds a part of an object or an array; nothing in other values.
enum Find<'n> {
    Member(&'n str),
    Element(usize),
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = Option<&'de str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let (mut found, mut index) = (None, 0);
        let wanted = match self {
            Find::Element(wanted) => Some(wanted),
            Find::Member(_) => None,
        };
        loop {
            let next = match wanted == Some(index) {
                true => all.next_element::<&RawValue>()?.map(|value| found = Some(value.get())),
                false => all.next_element::<IgnoredAny>()?.map(|_| ()),
            };
            if next.is_none() {
                return Ok(found);
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let wanted = match self {
            Find::Member(wanted) => Some(wanted),
            Find::Element(_) => None,
        };
        while let Some(is_wanted) = all.next_key_seed(IsName(wanted))? {
            match is_wanted {
                true => found = Some(all.next_value::<&RawValue>()?.get()),
                false => _ = all.next_value::<IgnoredAny>()?,
            }
        }
        Ok(found)
    }
}

/// Whether a member has this name.
struct IsName<'n>(Option<&'n str>);

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(self.0 == Some(name))
    }
}

/// Appends a string to the text that is made.
struct Push<'s>(&'s mut Scratch);

impl Visitor<'_> for Push<'_> {
    type Value = Result<(), EvalError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        // No text holds NUL.
        if text.contains('\0') {
            return Err(E::custom("NUL"));
        }
        Ok(self.0.push(text.as_bytes()))
    }
}
