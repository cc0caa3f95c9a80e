//! A format for JSON lines, from some of them.

use serde_json::{Map, Value as Json};

use super::{JsonError, JsonProblem};
use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};
use crate::text;
use crate::{MAX_DEPTH, MAX_FIELDS};

/// What inference may assume of the lines that it does not see.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JsonInferOptions {
    /// Every field nullable, though the sample has it in each line.
    pub all_nullable: bool,
}

/// What values of one member have in common.
#[derive(Clone, Debug, Default)]
struct Seen {
    kind: Kind,
    /// Whether one of them was null, or missing.
    nulls: bool,
}

#[derive(Clone, Debug, Default)]
enum Kind {
    /// Nothing but nulls, so far.
    #[default]
    Nothing,
    Bool,
    /// Whether one is below zero, and whether one is beyond `i64`.
    Integer {
        negative: bool,
        large: bool,
    },
    Float,
    Timestamp,
    Text,
    List(Box<Seen>),
    Record(Members),
}

/// The members of objects; those of the first object first, by their names.
#[derive(Clone, Debug, Default)]
struct Members {
    members: Vec<(String, Seen)>,
    objects: u64,
}

/// Finds a format for the objects of a sample, an object a line; `whole` if it is all of the input, otherwise the last
/// line is left out, since it may be cut off. Lines that are no objects are left out too.
///
/// Whole numbers are `i64` (`u64` where one needs it), other numbers `f64`; strings that are all RFC 3339 are
/// `timestamp`, else `string`; objects are nested records, arrays are lists. Numbers of several kinds are `f64`; a member
/// that is null or missing in a line is nullable; one that is null in all of them is a nullable `string`. Fields come in
/// the order of their names, those that the first object lacks last.
///
/// # Errors
/// A member holds values that no type holds together, or null in an array; there is no object; the names make no format.
pub fn infer_json_sample(sample: &[u8], whole: bool, options: &JsonInferOptions) -> Result<Format, JsonError> {
    let end = if whole { sample.len() } else { memchr::memrchr(b'\n', sample).map_or(0, |end| end + 1) };
    let sample = sample.get(..end).unwrap_or_default();
    let sample = sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(sample);
    let mut seen = Members::default();
    for (line, text) in (1..).zip(sample.split(|byte| *byte == b'\n')) {
        if let Ok(Json::Object(object)) = serde_json::from_slice(text) {
            seen.see(&object, "", 0).map_err(|(path, problem)| JsonError { line, field: Some(path), problem })?;
        }
    }
    let no_format = |problem| JsonError { line: 0, field: None, problem };
    if seen.members.is_empty() {
        let message = "found no object to infer a format from".to_owned();
        return Err(no_format(JsonProblem::Syntax { column: 1, message }));
    }
    let specs = seen.specs(options);
    Format::natural(specs).map_err(|error| {
        no_format(JsonProblem::Syntax { column: 1, message: format!("the names make no format: {error}") })
    })
}

/// What is wrong, and where.
type Flaw = (String, JsonProblem);

impl Members {
    fn see(&mut self, object: &Map<String, Json>, path: &str, depth: usize) -> Result<(), Flaw> {
        if depth >= MAX_DEPTH {
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
                    self.members.push((name.clone(), Seen { kind: Kind::Nothing, nulls: is_late }));
                    self.members.len() - 1
                }
            };
            self.members[at].1.see(value, &path, depth)?;
        }
        for (name, seen) in &mut self.members {
            seen.nulls |= !object.contains_key(name);
        }
        Ok(())
    }

    fn specs(&self, options: &JsonInferOptions) -> Vec<FieldSpec> {
        let spec = |(name, seen): &(String, Seen)| {
            let nullable = seen.nulls || options.all_nullable || matches!(seen.kind, Kind::Nothing);
            Some(FieldSpec { name: name.clone(), ty: seen.type_spec(options)?, nullable })
        };
        self.members.iter().filter_map(spec).collect()
    }
}

impl Seen {
    fn see(&mut self, value: &Json, path: &str, depth: usize) -> Result<(), Flaw> {
        let kind = match value {
            Json::Null => {
                self.nulls = true;
                return Ok(());
            }
            Json::Bool(_) => Kind::Bool,
            Json::Number(number) if number.is_i64() => {
                Kind::Integer { negative: number.as_i64().is_some_and(|value| value < 0), large: false }
            }
            Json::Number(number) if number.is_u64() => Kind::Integer { negative: false, large: true },
            Json::Number(_) => Kind::Float,
            Json::String(word) if text::parse_timestamp(word.as_bytes()).is_some() => Kind::Timestamp,
            Json::String(_) => Kind::Text,
            Json::Array(values) => return self.see_all(values, path, depth),
            Json::Object(object) => {
                if matches!(self.kind, Kind::Nothing) {
                    self.kind = Kind::Record(Members::default());
                }
                return match &mut self.kind {
                    Kind::Record(members) => members.see(object, path, depth + 1),
                    other => Err(other.mixed(path, "an object")),
                };
            }
        };
        self.kind = match (std::mem::take(&mut self.kind), kind) {
            (Kind::Nothing, kind) => kind,
            (Kind::Bool, Kind::Bool) => Kind::Bool,
            (Kind::Integer { negative, large }, Kind::Integer { negative: also, large: too }) => {
                Kind::Integer { negative: negative | also, large: large | too }
            }
            (Kind::Integer { .. } | Kind::Float, Kind::Integer { .. } | Kind::Float) => Kind::Float,
            (Kind::Timestamp, Kind::Timestamp) => Kind::Timestamp,
            (Kind::Text | Kind::Timestamp, Kind::Text | Kind::Timestamp) => Kind::Text,
            (before, kind) => return Err(before.mixed(path, kind.word())),
        };
        Ok(())
    }

    fn see_all(&mut self, values: &[Json], path: &str, depth: usize) -> Result<(), Flaw> {
        if depth >= MAX_DEPTH {
            return Err((path.to_owned(), JsonProblem::TooDeep));
        }
        if matches!(self.kind, Kind::Nothing) {
            self.kind = Kind::List(Box::default());
        }
        let Kind::List(element) = &mut self.kind else { return Err(self.kind.mixed(path, "an array")) };
        let path = format!("{path}[]");
        for value in values {
            if value.is_null() {
                let expected = "a value; the elements of a list are never null".to_owned();
                return Err((path, JsonProblem::Value { found: "null".to_owned(), expected }));
            }
            element.see(value, &path, depth + 1)?;
        }
        Ok(())
    }

    /// The type that holds all that was seen; `None` for objects without members, of which there is nothing to keep.
    fn type_spec(&self, options: &JsonInferOptions) -> Option<TypeSpec> {
        Some(match &self.kind {
            Kind::Nothing | Kind::Text => FieldType::String.into(),
            Kind::Bool => FieldType::Bool.into(),
            Kind::Integer { negative: false, large: true } => FieldType::U64.into(),
            Kind::Integer { large: false, .. } => FieldType::I64.into(),
            Kind::Integer { .. } | Kind::Float => FieldType::F64.into(),
            Kind::Timestamp => FieldType::Timestamp.into(),
            Kind::List(element) => TypeSpec::list(element.type_spec(options)?),
            Kind::Record(members) => {
                let specs = members.specs(options);
                if specs.is_empty() {
                    return None;
                }
                TypeSpec::Record(specs)
            }
        })
    }
}

impl Kind {
    fn word(&self) -> &'static str {
        match self {
            Self::Nothing => "null",
            Self::Bool => "a bool",
            Self::Integer { .. } | Self::Float => "a number",
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
