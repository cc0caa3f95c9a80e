//! The schema that stands for a format.

use serde_json::{Value as Json, json};

use super::defaults::default_json;
use super::schema::{AvroSchema, NOTE, VALUE};
use crate::encoding::EncodingError;
use crate::encoding::identifiers::Identifiers;
use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};

/// Name of the record that stands for a format.
const CANONICAL_NAME: &str = "Record";

impl AvroSchema {
    /// The schema that stands for a format (see the module's page).
    ///
    /// # Errors
    /// A format that no schema can have: types that lie in each other too deep.
    pub fn of(format: &Format) -> Result<Self, EncodingError> {
        let mut names = Identifiers::default();
        let record = names.of(CANONICAL_NAME);
        let json = record_json(&mut names, &record, &format.specs())?;
        Self::parse(&json.to_string())
    }
}

/// `names` are those of records and enumerations, which must differ in all of the schema.
fn record_json(names: &mut Identifiers, name: &str, specs: &[FieldSpec]) -> Result<Json, EncodingError> {
    let mut own = Identifiers::default();
    let fields: Result<Vec<Json>, EncodingError> =
        specs.iter().map(|spec| field_json(names, &mut own, name, spec)).collect();
    Ok(json!({"type": "record", "name": name, "fields": fields?}))
}

fn field_json(
    names: &mut Identifiers,
    own: &mut Identifiers,
    record: &str,
    spec: &FieldSpec,
) -> Result<Json, EncodingError> {
    let name = own.of(&spec.name);
    let mut ty = type_json(names, &format!("{record}_{name}"), &spec.ty)?;
    if let Some(unknown) = spec.evolution.as_ref().and_then(|evolution| evolution.unknown.as_ref())
        && ty["type"] == "enum"
    {
        ty["default"] = unknown.as_str().into();
    }
    if spec.nullable {
        ty = match ty {
            Json::Array(mut branches) => {
                branches.insert(0, "null".into());
                Json::Array(branches)
            }
            ty => json!(["null", ty]),
        };
    }
    let mut field = json!({"name": name, "type": ty});
    if spec.nullable {
        field["default"] = Json::Null;
    }
    if let Some(evolution) = &spec.evolution {
        if let Some(default) = evolution.default.as_ref().and_then(|default| default_json(&spec.ty, default)) {
            if let Some(Json::Array(branches)) = field.get_mut("type").filter(|_| spec.nullable) {
                // A default is a value of the first branch.
                branches.rotate_left(1);
            }
            field["default"] = default;
        }
        let aliases: Vec<&str> = evolution.aliases.iter().map(String::as_str).filter(|alias| is_name(alias)).collect();
        if !aliases.is_empty() {
            field["aliases"] = aliases.into();
        }
    }
    // The meaning of this field in Avro's types by themselves; where that is not all, our notation says it.
    let alone = AvroSchema::parse(&json!({"type": "record", "name": "alone", "fields": [field]}).to_string())?;
    let found = alone.root_field().map(|found| alone.spec(&name, found, "", 0));
    if !matches!(found, Some(Ok(found)) if found == *spec) {
        field[NOTE] = crate::notation::field_line(spec).into();
    }
    Ok(field)
}

/// Whether a name or symbol is one in Avro.
fn is_name(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain && name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
}

/// Whether an enumeration is one in Avro: it has symbols, and they are names there.
pub(super) fn has_symbols<N>(symbols: &[(String, N)]) -> bool {
    !symbols.is_empty() && symbols.iter().all(|(symbol, _)| is_name(symbol))
}

fn type_json(names: &mut Identifiers, path: &str, ty: &TypeSpec) -> Result<Json, EncodingError> {
    Ok(match ty {
        TypeSpec::Scalar(ty) => scalar_json(*ty),
        TypeSpec::Enum { symbols, .. } => {
            if !has_symbols(symbols) {
                return Ok("long".into());
            }
            let words: Vec<&str> = symbols.iter().map(|(symbol, _)| symbol.as_str()).collect();
            json!({"type": "enum", "name": names.of(path), "symbols": words})
        }
        TypeSpec::List { element, .. } => {
            json!({"type": "array", "items": type_json(names, &format!("{path}_element"), element)?})
        }
        TypeSpec::Record(fields) => {
            let name = names.of(path);
            record_json(names, &name, fields)?
        }
        TypeSpec::Union(variants) => {
            let branches: Result<Vec<Json>, EncodingError> =
                variants.iter().map(|variant| variant_json(names, path, variant)).collect();
            Json::Array(branches?)
        }
    })
}

/// A variant is always a record, so that two variants of one type are distinct.
fn variant_json(names: &mut Identifiers, path: &str, variant: &FieldSpec) -> Result<Json, EncodingError> {
    let name = names.of(&format!("{path}_{}", variant.name));
    let mut json = match &variant.ty {
        TypeSpec::Record(fields) => record_json(names, &name, fields)?,
        ty => record_json(names, &name, &[FieldSpec::new(VALUE, ty.clone())])?,
    };
    json[NOTE] = variant.name.as_str().into();
    Ok(json)
}

fn scalar_json(ty: FieldType) -> Json {
    match ty {
        FieldType::Bool => "boolean".into(),
        FieldType::I8 | FieldType::I16 | FieldType::I32 | FieldType::U8 | FieldType::U16 => "int".into(),
        FieldType::U32 | FieldType::I64 | FieldType::U64 | FieldType::Enum { .. } => "long".into(),
        FieldType::F32 => "float".into(),
        FieldType::F64 => "double".into(),
        FieldType::Timestamp => json!({"type": "long", "logicalType": "timestamp-nanos"}),
        FieldType::Char(_) | FieldType::String => "string".into(),
        // A list always comes with what its elements are: see `TypeSpec::List`.
        FieldType::Bytes | FieldType::List => "bytes".into(),
        FieldType::Decimal { bytes, scale } => {
            let digits = match bytes {
                4 => 9,
                8 => 18,
                _ => 38,
            };
            let precision = digits.max(scale);
            json!({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
        }
    }
}
