//! How reading, converting and writing grow with the format: the paper's question on the complexity of formats.
//!
//! Formats of 5, 20, 100 and 500 fields: `flat` ones; `nested` ones, with fields in records of five, and
//! those in one another; and `arrays`, in which two fields of five are lists of four. A later version of each has its
//! fields turned round and the integers wider.

use super::Case;
use crate::cpu::Error;
use crossdock_format::convert::{Plan, Rules};
use crossdock_format::{FieldSpec, FieldType, Format, List, Record, RecordBuilder, TypeSpec, Value};

/// Fields of a pass: few records of long formats, so that they stay near the core and a pass is shorter than what a busy
/// machine gives one process at a time.
const FIELDS_OF_A_PASS: usize = 6400;
/// Most records of a pass.
const RECORDS: usize = 128;
/// Fields of a nested record.
const IN_A_RECORD: usize = 5;
/// Elements of a list.
const ELEMENTS: usize = 4;

/// Of what shape a format is.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Flat,
    Nested,
    Arrays,
}

pub(super) fn cases<'a>() -> Result<Vec<Case<'a>>, Error> {
    let mut cases = Vec::new();
    for (shape, name) in [(Shape::Flat, "flat"), (Shape::Nested, "nested"), (Shape::Arrays, "arrays")] {
        for fields in [5_usize, 20, 100, 500] {
            let format = Format::natural(specs(shape, fields, false))?;
            let later = Format::natural(specs(shape, fields, true))?;
            let plan = Plan::by_name(&format, &later, &Rules::none())?;
            cases.extend(of(&format!("{name}_{fields}"), &format, plan)?);
        }
    }
    Ok(cases)
}

/// The fields of a format, or of its later version.
fn specs(shape: Shape, fields: usize, later: bool) -> Vec<FieldSpec> {
    let field = |index: usize| {
        let ty: TypeSpec = match index % 5 {
            0 => if later { FieldType::I64 } else { FieldType::I32 }.into(),
            1 if shape == Shape::Arrays => TypeSpec::list(if later { FieldType::I64 } else { FieldType::I32 }),
            1 => FieldType::F64.into(),
            2 => FieldType::Char(6).into(),
            3 if shape == Shape::Arrays => TypeSpec::array(FieldType::U16, ELEMENTS as u32),
            3 => if later { FieldType::U32 } else { FieldType::U16 }.into(),
            _ => FieldType::Timestamp.into(),
        };
        match (shape, index % 7) {
            (Shape::Flat, 3) => FieldSpec::nullable(format!("f{index}"), ty),
            _ => FieldSpec::new(format!("f{index}"), ty),
        }
    };
    let mut specs: Vec<FieldSpec> = (0..fields).map(field).collect();
    if shape == Shape::Nested {
        specs = nested(specs, later);
    }
    if later {
        specs.reverse();
    }
    specs
}

/// The fields in records of five, and these by twos in one another.
fn nested(fields: Vec<FieldSpec>, later: bool) -> Vec<FieldSpec> {
    let mut outer: Vec<FieldSpec> = Vec::new();
    let mut fields = fields.into_iter();
    for index in 0.. {
        let mut inner: Vec<FieldSpec> = fields.by_ref().take(IN_A_RECORD).collect();
        if inner.is_empty() {
            break;
        }
        if index % 2 == 1 {
            inner.extend(outer.pop());
        }
        if later {
            inner.reverse();
        }
        outer.push(FieldSpec::new(format!("r{index}"), TypeSpec::Record(inner)));
    }
    outer
}

/// A value for a field that has one, by its type.
fn value(record: usize, field: usize, ty: FieldType) -> Value<'static> {
    match ty {
        FieldType::I32 => Value::Int(record as i64),
        FieldType::F64 => Value::Float(record as f64 / 8.0),
        FieldType::Char(_) => Value::Text(b"abcdef".get(..record % 7).unwrap_or_default()),
        FieldType::U16 => Value::Uint(field as u64),
        _ => Value::Timestamp(record as i64 * 1_000_000_000),
    }
}

/// Reading every field, converting to the later version, and writing every field.
fn of<'a>(name: &str, format: &Format, plan: Plan) -> Result<Vec<Case<'a>>, Error> {
    let fields = format.fields().len();
    let records = (FIELDS_OF_A_PASS / fields).min(RECORDS);
    let mut builder = RecordBuilder::new(format);
    let mut payload = Vec::new();
    for record in 0..records {
        payload.extend_from_slice(build(&mut builder, format, record)?);
    }
    let length = payload.len() / records;
    let (own, input) = (format.clone(), payload.clone());
    let read = Case::new(&format!("read_{name}"), move || {
        input.chunks_exact(length).fold(0, |sum, bytes| {
            let record = Record::assume_checked(&own, bytes);
            (0..fields).fold(sum, |sum: u64, field| sum.wrapping_add(digest(record.get(field))))
        })
    });
    let format = format.clone();
    let encode = Case::new(&format!("encode_{name}"), move || {
        let length = |record| build(&mut builder, &format, record).map_or(0, <[u8]>::len) as u64;
        (0..records).map(length).sum()
    });
    let mut out = Vec::new();
    if plan.run_payload(&payload, &mut out, |_, _| {}) != records {
        return Err(format!("{name}: not every record has a place in the later version").into());
    }
    let convert = Case::new(&format!("convert_{name}"), move || {
        out.clear();
        plan.run_payload(&payload, &mut out, |_, _| {}) as u64
    });
    Ok([read, convert, encode].map(|case| Case { records, ..case }).into())
}

fn build<'b>(builder: &'b mut RecordBuilder, format: &Format, record: usize) -> Result<&'b [u8], Error> {
    builder.clear();
    for (index, field) in format.fields().iter().enumerate() {
        let element = match field.ty {
            _ if field.nullable && record.is_multiple_of(4) => {
                builder.set_null(index)?;
                continue;
            }
            FieldType::List => field.element(),
            _ => None,
        };
        match element.and_then(|element| element.format().fields().first()) {
            None => builder.set(index, value(record, index, field.ty))?,
            Some(element) => {
                builder.begin_list(index)?;
                for at in 0..ELEMENTS {
                    builder.push(value(record + at, index, element.ty))?;
                }
                builder.end_list()?;
            }
        }
    }
    Ok(builder.finish()?)
}

/// Something of a value, so that it was read.
#[inline]
fn digest(value: Value<'_>) -> u64 {
    match value {
        Value::Null => 1,
        Value::Bool(value) => value.into(),
        Value::Int(value) | Value::Timestamp(value) => value as u64,
        Value::Uint(value) => value,
        Value::Float(value) => value.to_bits(),
        Value::Text(bytes) | Value::Bytes(bytes) => bytes.len() as u64,
        Value::Decimal { unscaled, .. } => unscaled as u64,
        Value::Enum { number, .. } => number as u64,
        Value::List(list) => elements(list),
        Value::Record(record) => {
            (0..record.format().fields().len()).fold(0, |sum: u64, field| sum.wrapping_add(digest(record.get(field))))
        }
    }
}

#[inline(never)]
fn elements(list: List<'_>) -> u64 {
    list.iter().fold(0, |sum: u64, value| sum.wrapping_add(digest(value)))
}
