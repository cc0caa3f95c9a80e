//! Formats to Arrow's schemas and back.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Fields, Schema as ArrowSchema, TimeUnit, UnionFields};

use crate::encoding::{EncodingError, EncodingOptions, Loss};
use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};

/// Where the schema's metadata has the format's canonical description.
pub const METADATA_KEY: &str = "crossdock:format";
/// The name of a list's elements, as most have it.
const ITEM: &str = "item";

/// How enumerations are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Enums {
    /// As their numbers.
    Numbers,
    /// As their symbols.
    Symbols,
}

impl Enums {
    pub(super) fn of(options: &EncodingOptions) -> Self {
        if options.allows(Loss::Enum) { Self::Symbols } else { Self::Numbers }
    }
}

/// The Arrow schema of a format's records; enumerations are numbers, or symbols where [`Loss::Enum`] is allowed.
#[must_use]
pub fn export(format: &Format, options: &EncodingOptions) -> ArrowSchema {
    export_with(format, Enums::of(options))
}

pub(super) fn export_with(format: &Format, enums: Enums) -> ArrowSchema {
    let specs = format.specs();
    let columns = fields(&specs, enums, false);
    // The format that comes back has the fields, laid out as Crossdock does: a foreign layout is of its own bytes only.
    let description = if format.is_foreign() { Format::natural(specs).ok() } else { Some(format.clone()) };
    let metadata = description.map(|format| (METADATA_KEY.to_owned(), format.describe()));
    ArrowSchema::new_with_metadata(columns, metadata.into_iter().collect::<HashMap<_, _>>())
}

fn fields(specs: &[FieldSpec], enums: Enums, are_variants: bool) -> Fields {
    let field = |spec: &FieldSpec| {
        let nullable = spec.nullable || are_variants;
        ArrowField::new(&spec.name, declared(&spec.ty, enums), nullable)
    };
    specs.iter().map(field).collect()
}

/// The Arrow type that holds all values of a type.
fn declared(ty: &TypeSpec, enums: Enums) -> DataType {
    match ty {
        TypeSpec::Scalar(ty) => scalar(*ty),
        TypeSpec::Enum { .. } if enums == Enums::Symbols => DataType::Utf8,
        TypeSpec::Enum { bytes, signed, .. } => scalar(FieldType::Enum { bytes: *bytes, signed: *signed }),
        TypeSpec::List { element, count } => {
            let item = Arc::new(ArrowField::new(ITEM, declared(element, enums), false));
            match count.and_then(|count| i32::try_from(count).ok()) {
                Some(count) => DataType::FixedSizeList(item, count),
                None => DataType::List(item),
            }
        }
        TypeSpec::Record(specs) => DataType::Struct(fields(specs, enums, false)),
        TypeSpec::Union(specs) => DataType::Struct(fields(specs, enums, true)),
    }
}

/// The most digits of a number of `bytes` bytes, as far as Arrow's decimals go.
fn digits(bytes: u8) -> u8 {
    match bytes {
        4 => 10,
        8 => 19,
        _ => 38,
    }
}

fn scalar(ty: FieldType) -> DataType {
    match ty {
        FieldType::Bool => DataType::Boolean,
        FieldType::I8 | FieldType::Enum { bytes: 1, signed: true } => DataType::Int8,
        FieldType::I16 | FieldType::Enum { bytes: 2, signed: true } => DataType::Int16,
        FieldType::I32 | FieldType::Enum { bytes: 4, signed: true } => DataType::Int32,
        FieldType::U8 | FieldType::Enum { bytes: 1, .. } => DataType::UInt8,
        FieldType::U16 | FieldType::Enum { bytes: 2, .. } => DataType::UInt16,
        FieldType::U32 | FieldType::Enum { bytes: 4, .. } => DataType::UInt32,
        FieldType::I64 | FieldType::Enum { .. } => DataType::Int64,
        FieldType::U64 => DataType::UInt64,
        FieldType::F32 => DataType::Float32,
        FieldType::F64 => DataType::Float64,
        FieldType::Timestamp => DataType::Timestamp(TimeUnit::Nanosecond, Some(Arc::from("UTC"))),
        FieldType::Char(_) | FieldType::String => DataType::Utf8,
        // A list is declared with its elements, never like this.
        FieldType::Bytes | FieldType::List => DataType::Binary,
        FieldType::Decimal { bytes, scale } => {
            DataType::Decimal128(digits(bytes).max(scale), i8::try_from(scale).unwrap_or(i8::MAX))
        }
    }
}

/// The format of an Arrow schema's rows.
///
/// # Errors
/// A column whose type no field has, by its path; names that no format can have.
pub fn import(schema: &ArrowSchema, options: &EncodingOptions) -> Result<Format, EncodingError> {
    if let Some(format) = own(schema) {
        return Ok(format);
    }
    let specs = import_fields(schema.fields(), options)?;
    Format::natural(specs).map_err(|error| EncodingError::schema(error.to_string()))
}

/// The format that Crossdock wrote the schema of, if the columns are still those.
fn own(schema: &ArrowSchema) -> Option<Format> {
    let format = Format::parse(schema.metadata().get(METADATA_KEY)?).ok()?;
    let same = |(own, found): (&Arc<ArrowField>, &Arc<ArrowField>)| {
        own.name() == found.name()
            && own.data_type().equals_datatype(found.data_type())
            && own.is_nullable() == found.is_nullable()
    };
    let is_of = |enums| {
        let expected = export_with(&format, enums);
        let mut fields = expected.fields().iter().zip(schema.fields());
        expected.fields().len() == schema.fields().len() && fields.all(same)
    };
    (is_of(Enums::Numbers) || is_of(Enums::Symbols)).then_some(format)
}

fn import_fields(fields: &Fields, options: &EncodingOptions) -> Result<Vec<FieldSpec>, EncodingError> {
    let spec = |field: &Arc<ArrowField>| {
        let ty = import_type(field.data_type(), options).map_err(|error| within(field.name(), error))?;
        let nullable = match field.data_type() {
            DataType::Null => true,
            // They have no nulls of their own.
            DataType::RunEndEncoded(_, values) => values.is_nullable() || field.is_nullable(),
            DataType::Union(variants, _) => variants.iter().any(|(_, variant)| variant.is_nullable()),
            _ => field.is_nullable(),
        };
        Ok(FieldSpec { nullable, ..FieldSpec::new(field.name(), ty) })
    };
    fields.iter().map(spec).collect()
}

/// The error with the name of what it is in before its path.
pub(super) fn within(name: &str, error: EncodingError) -> EncodingError {
    let path = error.field.as_ref().map_or_else(|| name.to_owned(), |path| format!("{name}.{path}"));
    error.in_field(path)
}

fn import_type(found: &DataType, options: &EncodingOptions) -> Result<TypeSpec, EncodingError> {
    match found {
        DataType::Struct(fields) => Ok(TypeSpec::Record(import_fields(fields, options)?)),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => Ok(TypeSpec::list(import_type(item.data_type(), options)?)),
        DataType::Union(variants, _) => {
            let mut specs = import_fields(&variants_of(variants), options)?;
            // A variant that is null is none.
            specs.iter_mut().for_each(|spec| spec.nullable = false);
            Ok(TypeSpec::Union(specs))
        }
        DataType::FixedSizeList(item, count) if *count > 0 => {
            Ok(TypeSpec::array(import_type(item.data_type(), options)?, count.unsigned_abs()))
        }
        _ => import_scalar(found, options).map(TypeSpec::Scalar),
    }
}

/// The variants of a union, without their numbers.
pub(super) fn variants_of(variants: &UnionFields) -> Fields {
    variants.iter().map(|(_, variant)| Arc::clone(variant)).collect()
}

/// The type of a field that takes a column's values.
fn import_scalar(found: &DataType, options: &EncodingOptions) -> Result<FieldType, EncodingError> {
    Ok(match found {
        DataType::Boolean => FieldType::Bool,
        DataType::Int8 => FieldType::I8,
        DataType::Int16 => FieldType::I16,
        DataType::Int32 => FieldType::I32,
        DataType::Int64 => FieldType::I64,
        DataType::UInt8 => FieldType::U8,
        DataType::UInt16 => FieldType::U16,
        DataType::UInt32 => FieldType::U32,
        DataType::UInt64 => FieldType::U64,
        DataType::Float16 | DataType::Float32 => FieldType::F32,
        DataType::Float64 => FieldType::F64,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => FieldType::Timestamp,
        // Nothing but nulls: of any type that can be null.
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => FieldType::String,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            FieldType::Bytes
        }
        DataType::Dictionary(_, values) if !is_nested(values) => import_scalar(values, options)?,
        DataType::RunEndEncoded(_, values) if !is_nested(values.data_type()) => {
            import_scalar(values.data_type(), options)?
        }
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let bytes = match precision {
                ..=9 => 4,
                10..=18 => 8,
                _ => 16,
            };
            match u8::try_from(*scale) {
                Ok(scale) if scale <= 38 => FieldType::Decimal { bytes, scale },
                _ => {
                    let message =
                        format!("the column is a {found}, and a decimal field has 0 to 38 digits behind the point");
                    return Err(EncodingError::schema(message));
                }
            }
        }
        DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_) => {
            if !options.allows(Loss::IntegerType) {
                return Err(EncodingError::schema(format!(
                    "the column is a {found}, which no field is; --allow {} has its number read all the same",
                    Loss::IntegerType
                )));
            }
            if matches!(found, DataType::Time32(_)) { FieldType::I32 } else { FieldType::I64 }
        }
        other => return Err(unlike(other)),
    })
}

fn unlike(found: &DataType) -> EncodingError {
    EncodingError::schema(format!(
        "the column is a {found}, which no field is: have it written as another type, or left out (with a schema of the \
         other columns, --ignore-unknown passes it over)"
    ))
}

fn is_nested(found: &DataType) -> bool {
    found.is_nested() || matches!(found, DataType::Dictionary(..) | DataType::RunEndEncoded(..))
}

/// Whether a field of this type, which is no list, takes values of such a column as far as they fit.
pub(super) fn goes_into(found: &DataType, ty: FieldType, options: &EncodingOptions) -> bool {
    let Ok(own) = import_scalar(found, options) else { return false };
    match ty {
        _ if matches!(found, DataType::Null) => true,
        FieldType::F32 | FieldType::F64 => own.is_integer() || matches!(own, FieldType::F32 | FieldType::F64),
        FieldType::Char(_) | FieldType::String => own.is_text() || own == FieldType::Bytes,
        FieldType::Enum { .. } => own.is_text() || own.is_integer(),
        FieldType::Decimal { .. } => own.is_integer() || matches!(own, FieldType::Decimal { .. }),
        _ if ty.is_integer() => own.is_integer(),
        _ => own == ty,
    }
}
