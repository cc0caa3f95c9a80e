//! Records to datums.

use super::no_bytes;
use super::plan::{Absent, Label, Leaf, List, Op, Plan, Purpose, ValuePlan};
use super::schema::{AvroSchema, AvroType};
use crate::encoding::reader::{push_varint, zigzag};
use crate::encoding::{Encoder, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crate::format::Format;
use crate::record::{Record, Value};
use crate::text;

/// Writes records of one format in Avro's binary encoding, a datum after the other with nothing in between.
#[derive(Debug)]
pub struct AvroEncoder {
    pub(super) schema: AvroSchema,
    plan: Plan,
    repairs_text: bool,
    records: u64,
}

/// A value that cannot be written: whose, and why.
type Refused = (u32, EncodingProblem);

impl AvroEncoder {
    /// An encoder of datums of this schema; without one, of the schema that stands for the format
    /// ([`AvroSchema::of`]).
    ///
    /// # Errors
    /// The schema has no field for one of the format's, or one that does not go with it.
    pub fn new(format: &Format, options: &EncodingOptions, schema: Option<&AvroSchema>) -> Result<Self, EncodingError> {
        let schema = schema.cloned().map_or_else(|| AvroSchema::of(format), Ok)?;
        let plan = Plan::of(&schema, format, Purpose::Write)?;
        Ok(Self { schema, plan, repairs_text: options.allows(Loss::InvalidText), records: 0 })
    }

    /// Appends one record as a datum. Does not allocate but to grow `out`. A record of another format gives nonsense.
    ///
    /// # Errors
    /// A value that the schema has no way to write: a null where it has none, a number that is beyond its type or has
    /// no symbol, text that is no UTF-8 (unless [`Loss::InvalidText`] is allowed). Nothing was appended then.
    #[inline]
    pub fn datum(&self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        let start = out.len();
        self.steps(&self.plan.steps, record, out).map_err(|(label, problem)| {
            out.truncate(start);
            explain(&self.plan.labels, label, problem)
        })
    }

    #[inline]
    fn steps(&self, steps: &[ValuePlan], record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Refused> {
        steps.iter().try_for_each(|step| self.step(step, record, out))
    }

    fn step(&self, step: &ValuePlan, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Refused> {
        match step {
            ValuePlan::Leaf(leaf) => self.leaf(leaf, record, out),
            // Plans for writing have no such steps.
            ValuePlan::Default(_) | ValuePlan::Refuse(..) => Ok(()),
            ValuePlan::Skip(ty) => {
                // The plan was refused unless it may be null.
                if let AvroType::Union(branches) = &self.schema.ty(*ty).kind
                    && let Some(null) =
                        branches.iter().position(|branch| self.schema.ty(*branch).kind == AvroType::Null)
                {
                    push_long(out, null as i64);
                }
                Ok(())
            }
            ValuePlan::Record(_, steps) => self.steps(steps, record, out),
            ValuePlan::Null(_) => Ok(()),
            ValuePlan::Branches(branches, label) => {
                let present = branches.iter().position(|branch| !is_absent(branch, record));
                let index = present.or_else(|| branches.iter().position(|branch| matches!(branch, ValuePlan::Null(_))));
                match index.and_then(|index| Some((index, branches.get(index)?))) {
                    Some((index, branch)) => {
                        push_long(out, index as i64);
                        self.step(branch, record, out)
                    }
                    None => Err((*label, null_where_none_is())),
                }
            }
            ValuePlan::List(list) => self.list(list, record, out),
        }
    }

    fn list(&self, list: &List, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Refused> {
        let Value::List(elements) = record.get(list.field) else {
            return Err((list.label, null_where_none_is()));
        };
        if !elements.is_empty() {
            push_long(out, elements.len() as i64);
            for index in 0..elements.len() {
                let Some(element) = elements.record(index) else {
                    break;
                };
                self.steps(&list.steps, &element, out)?;
            }
        }
        push_long(out, 0);
        Ok(())
    }

    #[inline]
    fn leaf(&self, leaf: &Leaf, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Refused> {
        let value = record.get(leaf.place.index());
        let is_null = value.is_null();
        match leaf.null {
            Some(null) => {
                out.push((if is_null { null } else { 1 - null }) * 2);
                if is_null {
                    return Ok(());
                }
            }
            None if is_null => return Err((leaf.label, null_where_none_is())),
            None => {}
        }
        match (&leaf.op, value) {
            (Op::Bool, Value::Bool(value)) => out.push(value.into()),
            (Op::Int32 | Op::Int64, Value::Int(value)) => push_long(out, value),
            (Op::Float, Value::Float(value)) => out.extend_from_slice(&(value as f32).to_le_bytes()),
            (Op::Double, Value::Float(value)) => out.extend_from_slice(&value.to_le_bytes()),
            (Op::Text, Value::Text(text)) => return self.text(text, leaf.label, out),
            (Op::Bytes, Value::Bytes(bytes)) => {
                push_long(out, bytes.len() as i64);
                out.extend_from_slice(bytes);
            }
            (op, value) => return self.rare(op, value, out).map_err(|problem| (leaf.label, problem)),
        }
        Ok(())
    }

    #[inline]
    fn text(&self, text: &[u8], label: u32, out: &mut Vec<u8>) -> Result<(), Refused> {
        if str::from_utf8(text).is_ok() {
            push_long(out, text.len() as i64);
            out.extend_from_slice(text);
        } else if self.repairs_text {
            let repaired = String::from_utf8_lossy(text);
            push_long(out, repaired.len() as i64);
            out.extend_from_slice(repaired.as_bytes());
        } else {
            let expected = "UTF-8; --allow invalid-text has the wrong bytes replaced".to_owned();
            return Err((label, EncodingProblem::Value { found: text::shorten(text), expected }));
        }
        Ok(())
    }

    fn rare(&self, op: &Op, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), EncodingProblem> {
        let wrong = |found: String, expected: &str| EncodingProblem::Value { found, expected: expected.to_owned() };
        match (op, value) {
            (Op::Integer(..), Value::Int(value) | Value::Enum { number: value, .. }) => push_long(out, value),
            (Op::Integer(..), Value::Uint(value)) => match i64::try_from(value) {
                Ok(value) => push_long(out, value),
                Err(_) => return Err(wrong(value.to_string(), "at most 9223372036854775807, as Avro's `long`")),
            },
            (Op::Widen, Value::Float(value)) => {
                let narrow = value as f32;
                if f64::from(narrow) != value && !value.is_nan() {
                    return Err(wrong(value.to_string(), "a `float`, as the schema has it"));
                }
                out.extend_from_slice(&narrow.to_le_bytes());
            }
            (Op::Fixed(size), Value::Bytes(bytes)) => {
                if bytes.len() != *size {
                    return Err(wrong(format!("{} bytes", bytes.len()), &format!("{size}, as the schema has it")));
                }
                out.extend_from_slice(bytes);
            }
            (Op::Time(unit), Value::Timestamp(nanoseconds)) => {
                if nanoseconds % unit != 0 {
                    let expected = format!("a whole number of {unit} nanoseconds, as the schema has it");
                    return Err(wrong(format!("{nanoseconds} nanoseconds"), &expected));
                }
                push_long(out, nanoseconds / unit);
            }
            (Op::Symbols(numbers), Value::Enum { number, .. }) => {
                match numbers.iter().position(|own| *own == Some(number)) {
                    Some(index) => push_long(out, index as i64),
                    None => return Err(wrong(format!("the number {number}"), "one that the schema has a symbol for")),
                }
            }
            (Op::Decimal(size), Value::Decimal { unscaled, .. }) => {
                let bytes = unscaled.to_be_bytes();
                let least = (0..15).take_while(|at| is_sign(bytes[*at], bytes[*at + 1])).count();
                match size {
                    None => {
                        push_long(out, (16 - least) as i64);
                        out.extend_from_slice(&bytes[least..]);
                    }
                    Some(size) if *size >= 16 - least => {
                        let sign = if unscaled < 0 { 0xff } else { 0 };
                        let extra = size.saturating_sub(16);
                        out.resize(out.len() + extra, sign);
                        out.extend_from_slice(&bytes[16 - (size - extra)..]);
                    }
                    Some(size) => return Err(wrong(unscaled.to_string(), &format!("a number of {size} bytes"))),
                }
            }
            // The plan has no step for other pairs.
            _ => {}
        }
        Ok(())
    }
}

impl Encoder for AvroEncoder {
    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.records += 1;
        let before = out.len();
        let written = self.datum(record, out).and_then(|()| if out.len() > before { Ok(()) } else { Err(no_bytes()) });
        written.map_err(|error| error.of_item(self.records))
    }
}

/// Whether a byte says no more than the sign, which the next one says too.
fn is_sign(byte: u8, next: u8) -> bool {
    (byte == 0 && next & 0x80 == 0) || (byte == 0xff && next & 0x80 != 0)
}

/// Whether what a branch is for is not in the record.
fn is_absent(step: &ValuePlan, record: &Record<'_>) -> bool {
    match step {
        ValuePlan::Leaf(leaf) => record.is_null(leaf.place.index()),
        ValuePlan::List(list) => record.is_null(list.field),
        ValuePlan::Record(Some(group), _) => record.group_is_null(group),
        ValuePlan::Record(None, steps) => steps.iter().all(|step| is_absent(step, record)),
        ValuePlan::Branches(steps, _) => steps.iter().all(|step| is_absent(step, record)),
        ValuePlan::Null(Absent::Leaf(_) | Absent::Group(_))
        | ValuePlan::Skip(_)
        | ValuePlan::Default(_)
        | ValuePlan::Refuse(..) => true,
    }
}

fn null_where_none_is() -> EncodingProblem {
    EncodingProblem::Value { found: "null".to_owned(), expected: "a value, as the schema has it".to_owned() }
}

/// Appends an `int` or a `long`.
#[inline]
pub(super) fn push_long(out: &mut Vec<u8>, value: i64) {
    push_varint(out, zigzag(value));
}

#[cold]
fn explain(labels: &[Label], label: u32, problem: EncodingProblem) -> EncodingError {
    let error = EncodingError::new(problem);
    match labels.get(label as usize) {
        Some(label) => error.in_field(&label.path),
        None => error,
    }
}
