//! JSON Schema to a format.

use std::fmt;

use serde_json::{Map, Value as Json};

use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};
use crate::{MAX_FIELDS, MAX_NESTING, nesting};

/// Why a JSON Schema makes no format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JsonSchemaError {
    /// The path of the property; empty for the schema itself.
    pub path: String,
    /// The error, and its remedy.
    pub message: String,
}

impl fmt::Display for JsonSchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.is_empty() {
            true => write!(f, "JSON Schema: {}", self.message),
            false => write!(f, "JSON Schema, property `{}`: {}", self.path, self.message),
        }
    }
}

impl std::error::Error for JsonSchemaError {}

/// A format for objects that a JSON Schema (draft 4 to 2020-12) describes.
///
/// `integer` is `i64` (`u64` where the minimum is not below 0 and the maximum beyond `i64`), `number` is `f64`, `string` is
/// `string`, or `timestamp` (format `date-time`), or `bytes` (`contentEncoding` `base64`), or an enumeration (`enum` of
/// strings, numbered from 0); `object` is a nested record, `array` a list (`minItems` equal to `maxItems`: of that
/// many). A property that is not `required` is nullable, and so is what may be `null`. `$ref` leads within the schema.
/// Constraints on values are passed over.
///
/// # Errors
/// It is no JSON, no object with `properties`, has a type that no field has, or a `$ref` that leads nowhere or round in a
/// circle.
pub fn import_json_schema(schema: &str) -> Result<Format, JsonSchemaError> {
    nesting::check_json(schema).map_err(|why| refuse("", why))?;
    let root: Json = serde_json::from_str(schema)
        .map_err(|error| JsonSchemaError { path: String::new(), message: format!("it is no JSON: {error}") })?;
    let mut importer = Importer { root: &root, fields: 0 };
    let (ty, _) = importer.type_of(&root, "", 0)?;
    let TypeSpec::Record(specs) = ty else {
        return Err(refuse("", "expected an object with properties"));
    };
    Format::natural(specs).map_err(|error| refuse("", error.to_string()))
}

fn refuse(path: &str, message: impl Into<String>) -> JsonSchemaError {
    JsonSchemaError { path: path.to_owned(), message: message.into() }
}

struct Importer<'s> {
    root: &'s Json,
    /// How many properties there were: a `$ref` makes many of a few.
    fields: usize,
}

impl<'s> Importer<'s> {
    /// The type of a schema, and whether null is one of its values.
    fn type_of(&mut self, schema: &'s Json, path: &str, depth: usize) -> Result<(TypeSpec, bool), JsonSchemaError> {
        if depth > MAX_NESTING {
            let message =
                format!("schemas nest more than {MAX_NESTING} levels deep, or a `$ref` leads round in a circle");
            return Err(refuse(path, message));
        }
        let Json::Object(object) = schema else {
            return Err(refuse(path, "expected a schema with a `type`"));
        };
        if let Some(Json::String(reference)) = object.get("$ref") {
            return self.type_of(self.find(reference, path)?, path, depth + 1);
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(Json::Array(options)) = object.get(word) {
                return self.one_of(options, path, depth);
            }
        }
        if let Some(Json::Array(values)) = object.get("enum") {
            return enumeration(values, path);
        }
        let (word, nullable) = type_word(object, path)?;
        let ty = match word {
            "boolean" => FieldType::Bool.into(),
            "integer" => integer(object).into(),
            "number" => FieldType::F64.into(),
            "string" => string(object).into(),
            "object" => self.record(object, path, depth)?,
            "array" => self.list(object, path, depth)?,
            other => return Err(refuse(path, format!("the type `{other}` is no field's"))),
        };
        Ok((ty, nullable))
    }

    /// `#/definitions/x`, `#/$defs/x` and the like.
    fn find(&self, reference: &str, path: &str) -> Result<&'s Json, JsonSchemaError> {
        let pointer = reference.strip_prefix('#');
        pointer.and_then(|pointer| self.root.pointer(pointer)).ok_or_else(|| {
            let shown: String = reference.chars().take(80).collect();
            refuse(path, format!("`$ref` leads to `{shown}`, which is not in this schema"))
        })
    }

    /// One type, and null beside it.
    fn one_of(&mut self, options: &'s [Json], path: &str, depth: usize) -> Result<(TypeSpec, bool), JsonSchemaError> {
        let is_null = |option: &&Json| option.get("type").and_then(Json::as_str) == Some("null");
        let others: Vec<&Json> = options.iter().filter(|option| !is_null(option)).collect();
        match others[..] {
            [one] => {
                let (ty, nullable) = self.type_of(one, path, depth + 1)?;
                Ok((ty, nullable || others.len() < options.len()))
            }
            _ => Err(refuse(path, "several types in one place; a field has one, and may be null beside it")),
        }
    }

    fn record(&mut self, object: &'s Map<String, Json>, path: &str, depth: usize) -> Result<TypeSpec, JsonSchemaError> {
        let Some(Json::Object(properties)) = object.get("properties") else {
            return Err(refuse(path, "an object without `properties` has no fields"));
        };
        let required: Vec<&str> = match object.get("required") {
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
            _ => Vec::new(),
        };
        let mut specs = Vec::with_capacity(properties.len());
        for (name, schema) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.fields += 1;
            if self.fields > MAX_FIELDS {
                return Err(refuse(&path, "there are more than 4096 properties, those behind each `$ref` counted"));
            }
            let (ty, nullable) = self.type_of(schema, &path, depth + 1)?;
            let nullable = nullable || !required.contains(&name.as_str());
            specs.push(FieldSpec { nullable, ..FieldSpec::new(name, ty) });
        }
        Ok(TypeSpec::Record(specs))
    }

    fn list(&mut self, object: &'s Map<String, Json>, path: &str, depth: usize) -> Result<TypeSpec, JsonSchemaError> {
        let path = format!("{path}[]");
        let items = object.get("items").filter(|items| items.is_object());
        let items = items.ok_or_else(|| refuse(&path, "an array needs `items`, one schema for all of them"))?;
        let (element, nullable) = self.type_of(items, &path, depth + 1)?;
        if nullable {
            return Err(refuse(&path, "the elements of a list are never null"));
        }
        let bound = |word: &str| object.get(word).and_then(Json::as_u64).and_then(|count| u32::try_from(count).ok());
        let count = bound("minItems").filter(|count| *count > 0 && bound("maxItems") == Some(*count));
        Ok(TypeSpec::List { element: Box::new(element), count })
    }
}

/// The one type that is not null, and whether null is another; an object needs not say that it is one.
fn type_word<'s>(object: &'s Map<String, Json>, path: &str) -> Result<(&'s str, bool), JsonSchemaError> {
    let several = || refuse(path, "several types in one place; a field has one, and may be null beside it");
    match object.get("type") {
        Some(Json::String(word)) => Ok((word, false)),
        Some(Json::Array(words)) => {
            let mut others = words.iter().filter_map(Json::as_str).filter(|word| *word != "null");
            let word = others.next().ok_or_else(several)?;
            if others.next().is_some() { Err(several()) } else { Ok((word, words.iter().any(|word| word == "null"))) }
        }
        _ if object.contains_key("properties") => Ok(("object", false)),
        _ => Err(refuse(path, "expected a schema with a `type`")),
    }
}

/// An enumeration of strings.
fn enumeration(values: &[Json], path: &str) -> Result<(TypeSpec, bool), JsonSchemaError> {
    let nullable = values.iter().any(Json::is_null);
    let mut symbols = Vec::with_capacity(values.len());
    for (number, value) in (0..).zip(values.iter().filter(|value| !value.is_null())) {
        match value {
            Json::String(symbol) => symbols.push((symbol.clone(), number)),
            _ => return Err(refuse(path, "`enum` has values that are no strings")),
        }
    }
    Ok((TypeSpec::enumeration(symbols), nullable))
}

fn integer(object: &Map<String, Json>) -> FieldType {
    let is_large = object.get("maximum").is_some_and(|most| most.is_u64() && !most.is_i64());
    let is_natural = object.get("minimum").and_then(Json::as_i64).is_some_and(|least| least >= 0);
    if is_large && is_natural { FieldType::U64 } else { FieldType::I64 }
}

fn string(object: &Map<String, Json>) -> FieldType {
    let is = |key: &str, word: &str| object.get(key).and_then(Json::as_str) == Some(word);
    match () {
        () if is("format", "date-time") => FieldType::Timestamp,
        () if is("contentEncoding", "base64") => FieldType::Bytes,
        () => FieldType::String,
    }
}
