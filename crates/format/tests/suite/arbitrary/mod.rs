//! Any format, and any values for it.

use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use proptest::collection::vec;
use proptest::prelude::*;

/// A value that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Owned {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Timestamp(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Owned {
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Float(value) => Value::Float(*value),
            Self::Timestamp(value) => Value::Timestamp(*value),
            Self::Text(value) => Value::Text(value.as_bytes()),
            Self::Bytes(value) => Value::Bytes(value),
        }
    }
}

pub(crate) fn field_type() -> impl Strategy<Value = FieldType> {
    prop_oneof![
        Just(FieldType::Bool),
        Just(FieldType::I8),
        Just(FieldType::I16),
        Just(FieldType::I32),
        Just(FieldType::I64),
        Just(FieldType::U8),
        Just(FieldType::U16),
        Just(FieldType::U32),
        Just(FieldType::U64),
        Just(FieldType::F32),
        Just(FieldType::F64),
        Just(FieldType::Timestamp),
        (1_u16..20).prop_map(FieldType::Char),
        Just(FieldType::String),
        Just(FieldType::Bytes),
    ]
}

/// Names with everything in them that a notation might trip over.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_][a-z0-9_]{0,8}", "[ -~]{1,12}", "\\PC{1,12}"]
}

/// A format of 1 to 20 fields.
pub(crate) fn format() -> impl Strategy<Value = Format> {
    vec((name(), field_type(), any::<bool>()), 1..20).prop_map(|fields| {
        let mut specs: Vec<FieldSpec> = Vec::new();
        for (name, ty, nullable) in fields {
            let mut name = name;
            while specs.iter().any(|spec| spec.name == name) {
                name.push('_');
            }
            specs.push(FieldSpec { nullable, ..FieldSpec::new(name, ty) });
        }
        Format::natural(specs).expect("names differ")
    })
}

/// Any value of a type; floats are never NaN, which equals nothing.
pub(crate) fn value(ty: FieldType) -> BoxedStrategy<Owned> {
    let text = prop_oneof![
        "[a-zA-Z ]{0,12}",
        "\\PC{0,8}",
        "[,\"\r\n\t\\\\'NA]{0,6}",
        Just("NA".to_owned()),
        Just(String::new()),
        Just("\u{feff}x".to_owned()),
    ];
    match ty {
        FieldType::Bool => any::<bool>().prop_map(Owned::Bool).boxed(),
        FieldType::I8 => any::<i8>().prop_map(|value| Owned::Int(value.into())).boxed(),
        FieldType::I16 => any::<i16>().prop_map(|value| Owned::Int(value.into())).boxed(),
        FieldType::I32 => any::<i32>().prop_map(|value| Owned::Int(value.into())).boxed(),
        FieldType::I64 => any::<i64>().prop_map(Owned::Int).boxed(),
        FieldType::U8 => any::<u8>().prop_map(|value| Owned::Uint(value.into())).boxed(),
        FieldType::U16 => any::<u16>().prop_map(|value| Owned::Uint(value.into())).boxed(),
        FieldType::U32 => any::<u32>().prop_map(|value| Owned::Uint(value.into())).boxed(),
        FieldType::U64 => any::<u64>().prop_map(Owned::Uint).boxed(),
        FieldType::F32 => {
            let float = prop::num::f32::ANY.prop_filter("NaN equals nothing", |value| !value.is_nan());
            float.prop_map(|value| Owned::Float(value.into())).boxed()
        }
        FieldType::F64 => {
            let float = prop::num::f64::ANY.prop_filter("NaN equals nothing", |value| !value.is_nan());
            float.prop_map(Owned::Float).boxed()
        }
        FieldType::Timestamp => any::<i64>().prop_map(Owned::Timestamp).boxed(),
        FieldType::Char(room) => text
            .prop_map(move |text| {
                let mut text = text;
                while text.len() > usize::from(room) {
                    text.pop();
                }
                Owned::Text(text)
            })
            .boxed(),
        FieldType::String => text.prop_map(Owned::Text).boxed(),
        FieldType::Bytes => vec(any::<u8>(), 0..20).prop_map(Owned::Bytes).boxed(),
        FieldType::Decimal { .. } | FieldType::Enum { .. } | FieldType::List => unreachable!("formats here are flat"),
    }
}

/// Values for one record.
pub(crate) fn row(format: &Format) -> BoxedStrategy<Vec<Owned>> {
    let fields: Vec<BoxedStrategy<Owned>> = format
        .fields()
        .iter()
        .map(|field| {
            let null = if field.nullable { 1 } else { 0 };
            prop_oneof![3 => value(field.ty), null => Just(Owned::Null)].boxed()
        })
        .collect();
    fields.boxed()
}

/// A format, and rows of values for it.
pub(crate) fn rows() -> impl Strategy<Value = (Format, Vec<Vec<Owned>>)> {
    format().prop_flat_map(|format| {
        let row = row(&format);
        (Just(format), vec(row, 0..6))
    })
}

/// The rows as records, back to back.
pub(crate) fn payload(format: &Format, rows: &[Vec<Owned>]) -> Vec<u8> {
    let mut builder = RecordBuilder::new(format);
    let mut payload = Vec::new();
    for row in rows {
        builder.clear();
        for (field, value) in row.iter().enumerate() {
            builder.set(field, value.value()).expect("made for the field");
        }
        payload.extend_from_slice(builder.finish().expect("every field was set"));
    }
    payload
}
