//! Defaults of a schema's fields: what they are as defaults of a format's fields, and which no format has.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::decode::big_endian;
use super::schema::{AvroSchema, AvroType, Logical};
use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};
use crate::text;

impl AvroSchema {
    /// The parts of the schema that its format ([`AvroSchema::format`]) does not have, though readers by Avro's rules
    /// heed it: defaults of unions of several types and of nullable records, of arrays and maps with elements, of
    /// enumerations in arrays and maps, and those that are no value of their type. Each as a phrase, such as "the
    /// default of `a.b`".
    #[must_use]
    pub fn ignored(&self) -> Vec<String> {
        let mut ignored = Vec::new();
        // A schema that no format can be has fields without an end, perhaps.
        if self.format().is_ok() {
            self.find_ignored(self.root, "", &mut ignored);
        }
        // One may be found with its own field and with the default of the record that it lies in.
        let mut seen = BTreeSet::new();
        ignored.retain(|phrase| seen.insert(phrase.clone()));
        ignored
    }

    fn find_ignored(&self, ty: usize, path: &str, ignored: &mut Vec<String>) {
        match &self.ty(ty).kind {
            AvroType::Record(fields) => {
                for field in fields.iter().filter(|field| field.note.is_none()) {
                    let path = join(path, &field.name);
                    let spec = self.spec(&field.name, field.ty, &path, 0);
                    if let (Some(default), Ok(spec)) = (&field.default, spec) {
                        self.with_default(spec, field.ty, default, (&path, ignored));
                    }
                    self.find_ignored(field.ty, &path, ignored);
                }
            }
            AvroType::Array(element) | AvroType::Map(element) => {
                let path = format!("{path}[]");
                if matches!(self.ty(*element).kind, AvroType::Enum(_)) && self.ty(*element).default.is_some() {
                    ignored.push(format!("the default symbol of `{path}`"));
                }
                self.find_ignored(*element, &path, ignored);
            }
            AvroType::Union(branches) => branches.iter().for_each(|branch| self.find_ignored(*branch, path, ignored)),
            _ => {}
        }
    }

    /// A field with the default that the schema gives it, as far as fields have such: of a record that is always there, its fields
    /// have it, but for those that have one of their own. Each default that is ignored is added to `ignored`, by the
    /// path of its field.
    pub(super) fn with_default(
        &self,
        spec: FieldSpec,
        ty: usize,
        default: &Json,
        (path, ignored): (&str, &mut Vec<String>),
    ) -> FieldSpec {
        let ty = self.not_null(ty);
        if let (TypeSpec::Record(specs), Json::Object(values), false, AvroType::Record(fields)) =
            (&spec.ty, default, spec.nullable, &self.ty(ty).kind)
        {
            let inner = specs.iter().zip(fields).map(|(spec, field)| {
                let value = values.get(&field.name).filter(|value| !value.is_null());
                match value.filter(|_| spec.evolution.as_ref().is_none_or(|own| own.default.is_none())) {
                    Some(value) => {
                        self.with_default(spec.clone(), field.ty, value, (&join(path, &field.name), &mut *ignored))
                    }
                    None => spec.clone(),
                }
            });
            return FieldSpec { ty: TypeSpec::Record(inner.collect()), ..spec };
        }
        // A default that is no value of the type is as if it were not there, as with other readers.
        let with = self.default_text(&spec.ty, ty, default).map(|value| spec.clone().with_default(value));
        with.filter(|with| Format::natural([with.clone()]).is_ok()).unwrap_or_else(|| {
            ignored.push(format!("the default of `{path}`"));
            spec
        })
    }

    /// The type of a value that may be null, where it is one type.
    fn not_null(&self, ty: usize) -> usize {
        let AvroType::Union(branches) = &self.ty(ty).kind else { return ty };
        let mut others = branches.iter().filter(|branch| self.ty(**branch).kind != AvroType::Null);
        match (others.next(), others.next()) {
            (Some(one), None) => *one,
            _ => ty,
        }
    }

    fn default_text(&self, spec: &TypeSpec, ty: usize, default: &Json) -> Option<String> {
        match (spec, self.ty(ty).logical, default) {
            (TypeSpec::Scalar(FieldType::Timestamp), Logical::Timestamp(unit), Json::Number(number)) => {
                let mut time = Vec::new();
                text::push_timestamp(&mut time, number.as_i64()?.checked_mul(unit)?);
                String::from_utf8(time).ok()
            }
            (TypeSpec::Scalar(FieldType::Decimal { .. }), Logical::Decimal { scale, .. }, Json::String(chars)) => {
                let mut number = Vec::new();
                text::push_decimal(&mut number, big_endian(&bytes_of(chars)?)?, scale);
                String::from_utf8(number).ok()
            }
            (TypeSpec::Scalar(FieldType::Timestamp | FieldType::Decimal { .. }), ..) => None,
            (TypeSpec::Scalar(FieldType::Bytes), _, Json::String(chars)) => Some(text::base64(&bytes_of(chars)?)),
            (TypeSpec::Scalar(_), _, Json::String(text)) => Some(text.clone()),
            (TypeSpec::Scalar(_), _, Json::Number(number)) => Some(number.to_string()),
            (TypeSpec::Scalar(_), _, Json::Bool(bit)) => Some(bit.to_string()),
            (TypeSpec::Enum { .. }, _, Json::String(symbol)) => Some(symbol.clone()),
            (TypeSpec::List { .. }, _, Json::Array(elements)) if elements.is_empty() => Some("[]".to_owned()),
            (TypeSpec::List { .. }, _, Json::Object(entries)) if entries.is_empty() => Some("[]".to_owned()),
            _ => None,
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The bytes of a default: each character is one.
fn bytes_of(chars: &str) -> Option<Vec<u8>> {
    chars.chars().map(|c| u8::try_from(c).ok()).collect()
}

/// Bytes as a default.
fn chars_of(bytes: &[u8]) -> Json {
    bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into()
}

/// A field's default in a schema, of those that Avro has a value for: the attribute in our notation says the others.
pub(super) fn default_json(ty: &TypeSpec, default: &str) -> Option<Json> {
    let trimmed = default.trim();
    match ty {
        TypeSpec::Scalar(FieldType::Bool) => trimmed.parse().ok().map(Json::Bool),
        TypeSpec::Scalar(FieldType::F32 | FieldType::F64) => {
            trimmed.parse::<f64>().ok().filter(|value| value.is_finite()).map(Json::from)
        }
        TypeSpec::Scalar(FieldType::Timestamp) => text::parse_time(trimmed.as_bytes()).map(Json::from),
        TypeSpec::Scalar(FieldType::Decimal { bytes, scale }) => {
            let (unscaled, own) = text::parse_decimal(trimmed.as_bytes())?;
            let unscaled = unscaled.checked_mul(10_i128.checked_pow(scale.checked_sub(own)?.into())?)?;
            // As many as the precision takes: `apache-avro` refuses a default of fewer.
            Some(chars_of(unscaled.to_be_bytes().split_at_checked(16_usize.checked_sub((*bytes).into())?)?.1))
        }
        TypeSpec::Scalar(FieldType::Bytes) => {
            let mut bytes = Vec::new();
            text::decode_base64(trimmed.as_bytes(), &mut bytes).ok()?;
            Some(chars_of(&bytes))
        }
        TypeSpec::Scalar(ty) if ty.is_integer() => trimmed.parse::<i64>().ok().map(Json::from),
        TypeSpec::Scalar(ty) if ty.is_text() => Some(default.into()),
        TypeSpec::Enum { symbols, .. } => {
            let (symbol, number) = symbols.iter().find(|(symbol, _)| symbol == trimmed)?;
            Some(if super::make::has_symbols(symbols) { symbol.as_str().into() } else { Json::from(*number) })
        }
        TypeSpec::List { .. } => Some(Json::Array(Vec::new())),
        _ => None,
    }
}
