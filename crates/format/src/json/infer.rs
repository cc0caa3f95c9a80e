//! A format for JSON, from some of its objects.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::numbers::Numbers;
use super::values::{Layout, Start, ValueReader};
use super::{JsonError, JsonProblem};
use crate::element::VALUE;
use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};
use crate::text;
use crate::{MAX_FIELDS, MAX_NESTING};

/// The assumptions of inference on the lines that it does not see.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JsonInferOptions {
    /// Every field nullable, though the sample has it in each line.
    pub all_nullable: bool,
}

/// The properties that values of one member have in common.
#[derive(Clone, Debug, Default)]
struct Seen {
    kind: SeenKind,
    /// Whether one of them was null, or missing.
    nulls: bool,
}

#[derive(Clone, Debug, Default)]
enum SeenKind {
    /// Nothing but nulls, so far.
    #[default]
    Nothing,
    Bool,
    Number(Numbers),
    Timestamp,
    Text,
    List(Box<Seen>),
    Record(Members),
}

/// The members of objects; those of the first object first, in its order.
#[derive(Clone, Debug, Default)]
struct Members {
    members: Vec<(String, Seen)>,
    objects: u64,
}

/// Finds a format for the objects of a sample, an object a line or in an array; `whole` if it is all of the input, otherwise
/// the last line is left out, since it may be cut off. A line that is no object is left out too.
///
/// Whole numbers are `i64` (`u64` where one needs it); numbers with a point or an exponent among them make the type `f64`. Where
/// that would round a whole number, and where one is beyond 64 bits, it is a `decimal` that holds all of them. Strings that are
/// all RFC 3339 are `timestamp`, else `string`; objects are nested records, arrays are lists. A member that is null or missing
/// in an object is nullable; one that is null in all of them is a nullable `string`. Where an array has a null in it, its elements
/// are records of one nullable field, `value`. Fields come in the order of the first object, those that it lacks last.
///
/// # Errors
/// A member holds values that no type holds together; there is no object; the names make no format.
pub fn infer_json_sample(sample: &[u8], whole: bool, options: &JsonInferOptions) -> Result<Format, JsonError> {
    let is_lines = Layout::of(sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(sample)) == Some(Layout::Lines);
    let end = match is_lines && !whole {
        true => memchr::memrchr(b'\n', sample).map_or(0, |end| end + 1),
        false => sample.len(),
    };
    let mut sample = sample.get(..end).unwrap_or_default();
    let (mut values, mut seen) = (ValueReader::default(), Members::default());
    // The first that is no object. Where there are objects, it is for who reads them to report.
    let mut fault = None;
    loop {
        let read = values.read(&mut sample, usize::MAX, |start, text| {
            let outcome = match serde_json::from_slice(text).and_then(Json::parse) {
                Ok(Json::Object(object)) => seen.see(&object, "", 0),
                Ok(_) => Ok(()),
                Err(_) if text.trim_ascii().is_empty() => Ok(()),
                Err(error) => {
                    fault.get_or_insert_with(|| syntax_error(start, &error));
                    Ok(())
                }
            };
            outcome.map_err(|(path, problem)| JsonError { line: start.line, field: Some(path), problem })
        });
        match read {
            Ok(Some(outcome)) => outcome?,
            Ok(None) => break,
            Err(error) => {
                fault.get_or_insert(error);
                break;
            }
        }
    }
    let no_format = |problem| JsonError::at(1, problem);
    if seen.members.is_empty() {
        let message = "found no object to infer a format from".to_owned();
        return Err(fault.unwrap_or_else(|| no_format(JsonProblem::Syntax { column: 1, message })));
    }
    let specs = seen.specs(options);
    Format::natural(specs).map_err(|error| {
        no_format(JsonProblem::Syntax { column: 1, message: format!("the names make no format: {error}") })
    })
}

/// The error of a value that starts there.
fn syntax_error(start: Start, error: &serde_json::Error) -> JsonError {
    let (line, mut column) = (start.line + error.line().saturating_sub(1) as u64, error.column());
    if error.line() <= 1 {
        column += start.column;
    }
    let text = error.to_string();
    // Its place is one of the value, not of the input.
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message).to_owned();
    JsonError::at(line, JsonProblem::Syntax { column, message })
}

/// A value of the sample: numbers as written, members in their order, and what is in it not looked into yet.
enum Json<'a> {
    Null,
    Bool,
    Number(&'a str),
    Text(Cow<'a, str>),
    Array(Vec<&'a RawValue>),
    Object(Object<'a>),
}

/// The members of an object.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Json<'a> {
    fn parse(text: &'a RawValue) -> Result<Self, serde_json::Error> {
        let text = text.get();
        Ok(match text.as_bytes().first() {
            Some(b'n') => Self::Null,
            Some(b't' | b'f') => Self::Bool,
            Some(b'"') => Self::Text(Cow::Owned(serde_json::from_str(text)?)),
            Some(b'[') => Self::Array(serde_json::from_str(text)?),
            Some(b'{') => Self::Object(serde_json::from_str(text)?),
            _ => Self::Number(text),
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(parser: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        parser.deserialize_map(Pairs).map(Object)
    }
}

/// The error, and its place.
type Flaw = (String, JsonProblem);

impl Members {
    fn see(&mut self, Object(object): &Object<'_>, path: &str, depth: usize) -> Result<(), Flaw> {
        if depth >= MAX_NESTING {
            return Err((path.to_owned(), JsonProblem::TooDeep));
        }
        // In a place where objects stood before, what is new was missing there.
        let is_late = self.objects > 0;
        self.objects += 1;
        for (name, value) in object {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let at = match self.members.iter().position(|(known, _)| known == name) {
                Some(at) => at,
                None if self.members.len() >= MAX_FIELDS => {
                    let message = "found more than 4096 members".to_owned();
                    return Err((path, JsonProblem::Syntax { column: 1, message }));
                }
                None => {
                    self.members.push((name.clone(), Seen { kind: SeenKind::Nothing, nulls: is_late }));
                    self.members.len() - 1
                }
            };
            self.members[at].1.see(value, &path, depth)?;
        }
        for (name, seen) in &mut self.members {
            seen.nulls |= !object.iter().any(|(known, _)| known == name);
        }
        Ok(())
    }

    fn specs(&self, options: &JsonInferOptions) -> Vec<FieldSpec> {
        let spec = |(name, seen): &(String, Seen)| {
            let nullable = seen.nulls || options.all_nullable || matches!(seen.kind, SeenKind::Nothing);
            Some(FieldSpec { nullable, ..FieldSpec::new(name, seen.type_spec(options)?) })
        };
        self.members.iter().filter_map(spec).collect()
    }
}

impl Seen {
    fn see(&mut self, value: &RawValue, path: &str, depth: usize) -> Result<(), Flaw> {
        let value = Json::parse(value).map_err(|error| {
            let problem = JsonProblem::Syntax { column: error.column(), message: error.to_string() };
            (path.to_owned(), problem)
        })?;
        let kind = match &value {
            Json::Null => {
                self.nulls = true;
                return Ok(());
            }
            Json::Bool => SeenKind::Bool,
            Json::Number(digits) => return self.see_number(digits, path),
            Json::Text(word) if text::parse_timestamp(word.as_bytes()).is_some() => SeenKind::Timestamp,
            Json::Text(_) => SeenKind::Text,
            Json::Array(values) => return self.see_all(values, path, depth),
            Json::Object(object) => {
                if matches!(self.kind, SeenKind::Nothing) {
                    self.kind = SeenKind::Record(Members::default());
                }
                return match &mut self.kind {
                    SeenKind::Record(members) => members.see(object, path, depth + 1),
                    other => Err(other.mixed(path, "an object")),
                };
            }
        };
        self.kind = match (std::mem::take(&mut self.kind), kind) {
            (SeenKind::Nothing, kind) => kind,
            (SeenKind::Bool, SeenKind::Bool) => SeenKind::Bool,
            (SeenKind::Timestamp, SeenKind::Timestamp) => SeenKind::Timestamp,
            (SeenKind::Text | SeenKind::Timestamp, SeenKind::Text | SeenKind::Timestamp) => SeenKind::Text,
            (before, kind) => return Err(before.mixed(path, kind.word())),
        };
        Ok(())
    }

    fn see_number(&mut self, digits: &str, path: &str) -> Result<(), Flaw> {
        if matches!(self.kind, SeenKind::Nothing) {
            self.kind = SeenKind::Number(Numbers::default());
        }
        let SeenKind::Number(numbers) = &mut self.kind else { return Err(self.kind.mixed(path, "a number")) };
        numbers.see(digits);
        if numbers.ty().is_some() {
            return Ok(());
        }
        let found = text::shorten(digits.as_bytes());
        let expected = "a number that one type holds together with those before, none of them rounded; a schema can name \
                        the type (f64 rounds, where that is allowed; string is for texts)";
        Err((path.to_owned(), JsonProblem::Value { found, expected: expected.to_owned() }))
    }

    fn see_all(&mut self, values: &[&RawValue], path: &str, depth: usize) -> Result<(), Flaw> {
        if depth >= MAX_NESTING {
            return Err((path.to_owned(), JsonProblem::TooDeep));
        }
        if matches!(self.kind, SeenKind::Nothing) {
            self.kind = SeenKind::List(Box::default());
        }
        let SeenKind::List(element) = &mut self.kind else { return Err(self.kind.mixed(path, "an array")) };
        let path = format!("{path}[]");
        for value in values {
            element.see(value, &path, depth + 1)?;
        }
        Ok(())
    }

    /// The type that holds all that was seen; `None` for objects without members, where there is nothing to keep.
    fn type_spec(&self, options: &JsonInferOptions) -> Option<TypeSpec> {
        Some(match &self.kind {
            SeenKind::Nothing | SeenKind::Text => FieldType::String.into(),
            SeenKind::Bool => FieldType::Bool.into(),
            SeenKind::Number(numbers) => numbers.ty()?.into(),
            SeenKind::Timestamp => FieldType::Timestamp.into(),
            SeenKind::List(element) if element.nulls => {
                let value = FieldSpec::nullable(VALUE, element.type_spec(options)?);
                TypeSpec::list(TypeSpec::Record(vec![value]))
            }
            SeenKind::List(element) => TypeSpec::list(element.type_spec(options)?),
            SeenKind::Record(members) => {
                let specs = members.specs(options);
                if specs.is_empty() {
                    return None;
                }
                TypeSpec::Record(specs)
            }
        })
    }
}

impl SeenKind {
    fn word(&self) -> &'static str {
        match self {
            Self::Nothing => "null",
            Self::Bool => "a bool",
            Self::Number(_) => "a number",
            Self::Timestamp | Self::Text => "a string",
            Self::List(_) => "an array",
            Self::Record(_) => "an object",
        }
    }

    fn mixed(&self, path: &str, found: &str) -> Flaw {
        let expected = format!("{}, as in the lines before; no type holds both", self.word());
        (path.to_owned(), JsonProblem::Value { found: found.to_owned(), expected })
    }
}
