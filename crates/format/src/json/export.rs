//! A format as a JSON Schema.

use serde_json::{Map, Value as Json, json};

use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};

/// The JSON Schema (draft 2020-12) of the objects that records of a format are written as. Read by
/// [`import_json_schema`](super::import_json_schema), it gives the same fields as far as JSON Schema distinguishes types, in the
/// order of their names.
#[must_use]
pub fn export_json_schema(format: &Format) -> String {
    let mut schema = object(&format.specs());
    schema.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    format!("{:#}\n", Json::Object(schema))
}

fn object(specs: &[FieldSpec]) -> Map<String, Json> {
    let properties: Map<String, Json> = specs.iter().map(|spec| (spec.name.clone(), field(spec))).collect();
    let required: Vec<&str> = specs.iter().filter(|spec| !spec.nullable).map(|spec| spec.name.as_str()).collect();
    let mut object = Map::new();
    object.insert("type".to_owned(), "object".into());
    object.insert("properties".to_owned(), properties.into());
    object.insert("required".to_owned(), required.into());
    object.insert("additionalProperties".to_owned(), false.into());
    object
}

fn field(spec: &FieldSpec) -> Json {
    let mut schema = type_schema(&spec.ty);
    if spec.nullable {
        if let Some(word @ Json::String(_)) = schema.get_mut("type") {
            *word = json!([word, "null"]);
        } else if let Some(Json::Array(symbols)) = schema.get_mut("enum") {
            symbols.push(Json::Null);
        }
    }
    Json::Object(schema)
}

fn type_schema(ty: &TypeSpec) -> Map<String, Json> {
    let schema = match ty {
        TypeSpec::Scalar(ty) => scalar(*ty),
        TypeSpec::Enum { symbols, .. } if symbols.is_empty() => json!({"type": "integer"}),
        TypeSpec::Enum { symbols, .. } => {
            json!({"enum": symbols.iter().map(|(symbol, _)| symbol.as_str()).collect::<Vec<_>>()})
        }
        TypeSpec::List { element, count } => {
            let mut schema = json!({"type": "array", "items": type_schema(element)});
            if let Some(count) = count {
                schema["minItems"] = (*count).into();
                schema["maxItems"] = (*count).into();
            }
            schema
        }
        TypeSpec::Record(specs) => return object(specs),
        // An object of the one variant.
        TypeSpec::Union(specs) => {
            let mut union = object(specs);
            union.remove("required");
            union.insert("minProperties".to_owned(), 1.into());
            union.insert("maxProperties".to_owned(), 1.into());
            return union;
        }
    };
    match schema {
        Json::Object(schema) => schema,
        _ => Map::new(),
    }
}

fn scalar(ty: FieldType) -> Json {
    let signed =
        |bits: u32| json!({"type": "integer", "minimum": i64::MIN >> (64 - bits), "maximum": i64::MAX >> (64 - bits)});
    let unsigned = |bits: u32| json!({"type": "integer", "minimum": 0, "maximum": u64::MAX >> (64 - bits)});
    match ty {
        FieldType::Bool => json!({"type": "boolean"}),
        FieldType::I8 => signed(8),
        FieldType::I16 => signed(16),
        FieldType::I32 => signed(32),
        FieldType::I64 => signed(64),
        FieldType::U8 => unsigned(8),
        FieldType::U16 => unsigned(16),
        FieldType::U32 => unsigned(32),
        FieldType::U64 => unsigned(64),
        FieldType::Enum { bytes, signed: true } => signed(u32::from(bytes) * 8),
        FieldType::Enum { bytes, signed: false } => unsigned(u32::from(bytes) * 8),
        FieldType::F32 | FieldType::F64 => {
            json!({"type": "number", "description": "NaN, inf and -inf are written as strings"})
        }
        FieldType::Decimal { .. } => json!({"type": "number"}),
        FieldType::Timestamp => json!({"type": "string", "format": "date-time"}),
        FieldType::Char(bytes) => json!({"type": "string", "maxLength": bytes}),
        FieldType::String => json!({"type": "string"}),
        // A list is declared with its elements, never like this.
        FieldType::Bytes | FieldType::List => json!({"type": "string", "contentEncoding": "base64"}),
    }
}
