//! How reading, converting and writing grow with the format: the paper's question on the complexity of formats.

use super::Case;
use crate::cpu::Error;
use crossdock_format::convert::{Plan, Rules};
use crossdock_format::{FieldSpec, FieldType, Format, Record, RecordBuilder, Value};

/// Records of a pass: few, so that those of 500 fields stay near the core as well.
const RECORDS: usize = 128;

pub(super) fn cases<'a>() -> Result<Vec<Case<'a>>, Error> {
    let mut cases = Vec::new();
    for fields in [5_usize, 20, 100, 500] {
        let types = [FieldType::I32, FieldType::F64, FieldType::Char(6), FieldType::U16, FieldType::Timestamp];
        let specs = |from: &[FieldType]| -> Vec<FieldSpec> {
            let field = |index| match (format!("f{index}"), from[index % 5]) {
                (name, ty) if index % 7 == 3 => FieldSpec::nullable(name, ty),
                (name, ty) => FieldSpec::new(name, ty),
            };
            (0..fields).map(field).collect()
        };
        let format = Format::natural(specs(&types))?;
        // A version later: the fields turned round, the integers wider.
        let wider = [FieldType::I64, FieldType::F64, FieldType::Char(6), FieldType::U32, FieldType::Timestamp];
        let to = Format::natural(specs(&wider).into_iter().rev())?;
        let plan = Plan::by_name(&format, &to, &Rules::none())?;
        cases.extend(of(&format!("flat_{fields}"), &format, plan, value)?);
    }
    Ok(cases)
}

/// A value for a field of a record.
fn value(record: usize, field: usize) -> Value<'static> {
    match field % 5 {
        _ if field % 7 == 3 && record.is_multiple_of(4) => Value::Null,
        0 => Value::Int(record as i64),
        1 => Value::Float(record as f64 / 8.0),
        2 => Value::Text(b"abcdef".get(..record % 7).unwrap_or_default()),
        3 => Value::Uint(field as u64),
        _ => Value::Timestamp(record as i64 * 1_000_000_000),
    }
}

type ValueOf = fn(usize, usize) -> Value<'static>;

/// Reading every field, converting to the later version, and writing every field.
fn of<'a>(name: &str, format: &Format, plan: Plan, value: ValueOf) -> Result<Vec<Case<'a>>, Error> {
    let fields = format.fields().len();
    let mut builder = RecordBuilder::new(format);
    let mut payload = Vec::new();
    for record in 0..RECORDS {
        payload.extend_from_slice(build(&mut builder, record, value)?);
    }
    let length = payload.len() / RECORDS;
    let (format, input) = (format.clone(), payload.clone());
    let read = Case::new(&format!("read_{name}"), move || {
        input.chunks_exact(length).fold(0, |sum, bytes| {
            let record = Record::assume_checked(&format, bytes);
            (0..fields).fold(sum, |sum: u64, field| sum.wrapping_add(digest(record.get(field))))
        })
    });
    let mut out = Vec::new();
    let convert = Case::new(&format!("convert_{name}"), move || {
        out.clear();
        plan.run_payload(&payload, &mut out, |_, _| {}) as u64
    });
    let encode = Case::new(&format!("encode_{name}"), move || {
        (0..RECORDS).fold(0, |bytes, record| bytes + build(&mut builder, record, value).map_or(0, <[u8]>::len) as u64)
    });
    Ok([read, convert, encode].map(|case| Case { records: RECORDS, ..case }).into())
}

fn build(builder: &mut RecordBuilder, record: usize, value: ValueOf) -> Result<&[u8], Error> {
    builder.clear();
    for field in 0..builder.format().fields().len() {
        builder.set(field, value(record, field))?;
    }
    Ok(builder.finish()?)
}

/// Something of a value, so that it was read.
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
        Value::List(list) => list.iter().fold(0, |sum: u64, value| sum.wrapping_add(digest(value))),
        Value::Record(record) => {
            (0..record.format().fields().len()).fold(0, |sum: u64, field| sum.wrapping_add(digest(record.get(field))))
        }
    }
}
