//! Records to messages.

use super::plan::{FieldPlan, Label, ListPlan, MessagePlan, Nested, Number, Op, Plan, Purpose};
use super::schema::{Presence, ProtobufSchema};
use super::wire::{self, Wire};
use crate::encoding::reader::{push_varint, zigzag};
use crate::encoding::{Encoder, Encoding, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crate::format::Format;
use crate::record::{Record, Value};
use crate::text;

/// Writes records of one format as Protobuf messages of one type.
#[derive(Debug)]
pub struct ProtobufEncoder {
    plan: Plan,
    repairs_text: bool,
    records: u64,
}

/// A value that cannot be written: the field's label, and why.
type Refused = (u32, EncodingProblem);

impl ProtobufEncoder {
    /// An encoder for messages of this type; without one, of the type that stands for the format
    /// ([`ProtobufSchema::of`]).
    ///
    /// # Errors
    /// The message type has no field for one of the format's; a null would become a default value, and
    /// [`Loss::Null`] is not allowed.
    pub fn new(
        format: &Format,
        options: &EncodingOptions,
        schema: Option<&ProtobufSchema>,
    ) -> Result<Self, EncodingError> {
        let plan = match schema {
            Some(schema) => Plan::of(schema, format, Purpose::Write)?,
            None => Plan::of(&ProtobufSchema::of(format), format, Purpose::Write)?,
        };
        if !options.allows(Loss::Null)
            && let Some(label) = plan.labels.iter().find(|label| label.loses_null)
        {
            let why = "has no null where the message type has a field without `optional`".to_owned();
            let problem = EncodingProblem::Lossy { encoding: Encoding::Protobuf, why, loss: Loss::Null };
            return Err(EncodingError::new(problem).in_field(&label.path));
        }
        Ok(Self { plan, repairs_text: options.allows(Loss::InvalidText), records: 0 })
    }

    /// Appends one record as a message, without its length. Does not allocate but to grow `out`. A record of another
    /// format gives nonsense.
    ///
    /// # Errors
    /// A text is no UTF-8, and [`Loss::InvalidText`] is not allowed; an integer is beyond its field in the message.
    /// Nothing was appended then.
    #[inline]
    pub fn message(&self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        let start = out.len();
        self.fields(&self.plan.root, record, out).map_err(|(label, problem)| {
            out.truncate(start);
            explain(&self.plan.labels, label, problem)
        })
    }

    #[inline]
    fn fields(&self, plan: &MessagePlan, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Refused> {
        for step in &plan.steps {
            match step.op {
                Op::Nested { index, .. } => self.nested(step, index, record, out)?,
                _ => self.field(step, record.get(step.place.index()), out).map_err(|problem| (step.label, problem))?,
            }
        }
        Ok(())
    }

    /// Appends a single value behind its tag, or nothing.
    #[inline]
    fn field(&self, step: &FieldPlan, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), EncodingProblem> {
        let is_implicit = step.presence == Presence::Implicit;
        match value {
            Value::Null if step.presence != Presence::Required => return Ok(()),
            Value::Null => {
                push_default(step, out);
                return Ok(());
            }
            value if is_implicit && is_default(value) => return Ok(()),
            _ => {}
        }
        push_varint(out, step.tag.into());
        self.value(step, value, out)
    }

    /// Appends a value that is not null.
    #[inline]
    fn value(&self, step: &FieldPlan, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), EncodingProblem> {
        let bits = match value {
            Value::Bool(value) => u64::from(value),
            Value::Int(value) | Value::Enum { number: value, .. } => value as u64,
            Value::Uint(value) => value,
            Value::Float(value) => value.to_bits(),
            value => return self.blob(value, out),
        };
        match step.op {
            // A negative `int32` has ten bytes, as if it were an `int64`: so they are compatible.
            Op::Var32 | Op::Var64 | Op::Bool => push_varint(out, bits),
            Op::Zig32 | Op::Zig64 => push_varint(out, zigzag(bits as i64)),
            Op::Fixed32 => match value {
                Value::Float(value) => out.extend_from_slice(&(value as f32).to_le_bytes()),
                _ => out.extend_from_slice(&(bits as u32).to_le_bytes()),
            },
            Op::Fixed64 => out.extend_from_slice(&bits.to_le_bytes()),
            Op::Widen => {
                let value = f64::from_bits(bits);
                let narrow = value as f32;
                if f64::from(narrow) != value && !value.is_nan() {
                    return Err(EncodingProblem::Value { found: value.to_string(), expected: "an f32".to_owned() });
                }
                out.extend_from_slice(&narrow.to_le_bytes());
            }
            Op::Integer(number, _) => push_number(out, number, value)?,
            Op::Text | Op::Char | Op::Bytes | Op::Timestamp | Op::Decimal | Op::Nested { .. } => {}
        }
        Ok(())
    }

    /// Text, bytes, times, decimals: what stands behind its length.
    #[inline]
    fn blob(&self, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), EncodingProblem> {
        match value {
            Value::Text(bytes) if str::from_utf8(bytes).is_err() => {
                if !self.repairs_text {
                    let expected = "UTF-8; --allow invalid-text has the wrong bytes replaced".to_owned();
                    return Err(EncodingProblem::Value { found: text::shorten(bytes), expected });
                }
                let repaired = String::from_utf8_lossy(bytes);
                push_varint(out, repaired.len() as u64);
                out.extend_from_slice(repaired.as_bytes());
                Ok(())
            }
            Value::Text(bytes) | Value::Bytes(bytes) => {
                push_varint(out, bytes.len() as u64);
                out.extend_from_slice(bytes);
                Ok(())
            }
            Value::Timestamp(nanoseconds) => wire::length_delimited(out, |out| {
                let seconds = nanoseconds.div_euclid(1_000_000_000);
                let nanos = nanoseconds.rem_euclid(1_000_000_000);
                for (number, value) in [(1, seconds), (2, nanos)] {
                    if value != 0 {
                        push_varint(out, wire::tag(number, Wire::Varint).into());
                        push_varint(out, value as u64);
                    }
                }
                Ok(())
            }),
            Value::Decimal { unscaled, scale } => wire::length_delimited(out, |out| {
                text::push_decimal(out, unscaled, scale);
                Ok(())
            }),
            _ => Ok(()),
        }
    }

    fn nested(&self, step: &FieldPlan, index: u32, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Refused> {
        match self.plan.nested.get(index as usize) {
            Some(Nested::Message { group, plan }) => {
                let is_null = match group {
                    Some(group) => record.group_is_null(group),
                    // A message that stands for a union in a union.
                    None => step.oneof > 0 && self.is_empty(plan, record),
                };
                if is_null && step.presence != Presence::Required {
                    return Ok(());
                }
                push_varint(out, step.tag.into());
                self.body(step, out, |out| if is_null { Ok(()) } else { self.fields(plan, record, out) })
            }
            Some(Nested::List(list)) => self.list(list, record, out),
            Some(Nested::Wrapped(list)) if !record.is_null(list.field) => {
                push_varint(out, step.tag.into());
                self.body(step, out, |out| self.list(list, record, out))
            }
            _ => Ok(()),
        }
    }

    /// Whether a message would have nothing in it.
    fn is_empty(&self, plan: &MessagePlan, record: &Record<'_>) -> bool {
        plan.steps.iter().all(|step| match step.op {
            Op::Nested { index, .. } => match self.plan.nested.get(index as usize) {
                Some(Nested::Message { group: Some(group), .. }) => record.group_is_null(group),
                Some(Nested::Message { group: None, plan }) => self.is_empty(plan, record),
                Some(Nested::List(list) | Nested::Wrapped(list)) => record.is_null(list.field),
                None => true,
            },
            _ => record.is_null(step.place.index()),
        })
    }

    /// Appends what a message or group has in it, and what marks its end.
    fn body(
        &self,
        step: &FieldPlan,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        if !matches!(step.op, Op::Nested { is_group: true, .. }) {
            return wire::length_delimited(out, write);
        }
        write(out)?;
        push_varint(out, wire::tag(wire::number(step.tag), Wire::End).into());
        Ok(())
    }

    fn list(&self, list: &ListPlan, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Refused> {
        let Value::List(elements) = record.get(list.field) else {
            return Ok(());
        };
        let element = &list.element;
        let refused = |problem| (element.label, problem);
        if let (Some((tag, true)), false) = (list.packed, elements.is_empty()) {
            push_varint(out, tag.into());
            let values = |out: &mut Vec<u8>| elements.iter().try_for_each(|value| self.value(element, value, out));
            return wire::length_delimited(out, values).map_err(refused);
        }
        for index in 0..elements.len() {
            let Some(item) = elements.record(index) else {
                break;
            };
            match (&list.record, element.op) {
                (Some(plan), _) => {
                    push_varint(out, element.tag.into());
                    self.body(element, out, |out| self.fields(plan, &item, out))?;
                }
                (None, Op::Nested { index, .. }) => self.nested(element, index, &item, out)?,
                (None, _) => self.field(element, item.get(0), out).map_err(refused)?,
            }
        }
        Ok(())
    }
}

impl Encoder for ProtobufEncoder {
    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.records += 1;
        let start = out.len();
        let outcome = wire::length_delimited(out, |out| self.message(record, out));
        outcome.map_err(|error| {
            out.truncate(start);
            error.of_item(self.records)
        })
    }
}

#[cold]
fn explain(labels: &[Label], label: u32, problem: EncodingProblem) -> EncodingError {
    let error = EncodingError::new(problem);
    match labels.get(label as usize) {
        Some(label) => error.in_field(&label.path),
        None => error,
    }
}

/// Whether a value is what is read where there is none.
#[inline]
fn is_default(value: Value<'_>) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Int(value) | Value::Enum { number: value, .. } => value == 0,
        Value::Uint(value) => value == 0,
        Value::Float(value) => value.to_bits() == 0,
        Value::Text(bytes) | Value::Bytes(bytes) => bytes.is_empty(),
        Value::Decimal { unscaled, .. } => unscaled == 0,
        _ => false,
    }
}

/// The value for a null of a field that must be there.
#[cold]
fn push_default(step: &FieldPlan, out: &mut Vec<u8>) {
    push_varint(out, step.tag.into());
    let zeros = match Wire::of(step.tag) {
        Some(Wire::Fixed64) => 8,
        Some(Wire::Fixed32) => 4,
        // A varint of zero, or a length of zero.
        _ => 1,
    };
    out.resize(out.len() + zeros, 0);
}

/// Appends an integer as the message has it, which need not be as wide as the field's own type.
#[inline]
fn push_number(out: &mut Vec<u8>, number: Number, value: Value<'_>) -> Result<(), EncodingProblem> {
    let (value, wide) = match value {
        Value::Int(value) | Value::Enum { number: value, .. } => (value, i128::from(value)),
        Value::Uint(value) => (value as i64, i128::from(value)),
        _ => return Ok(()),
    };
    let (least, most) = match number {
        Number::Int32 | Number::Sint32 | Number::Sfixed32 => (i32::MIN.into(), i32::MAX.into()),
        Number::Int64 | Number::Sint64 | Number::Sfixed64 => (i64::MIN.into(), i64::MAX.into()),
        Number::Uint32 | Number::Fixed32 => (0, u32::MAX.into()),
        Number::Uint64 | Number::Fixed64 => (0, u64::MAX.into()),
    };
    if !(least..=most).contains(&wide) {
        let expected = format!("{least} to {most}, as the message type has it");
        return Err(EncodingProblem::Value { found: wide.to_string(), expected });
    }
    match number {
        Number::Sint32 | Number::Sint64 => push_varint(out, zigzag(value)),
        Number::Fixed32 | Number::Sfixed32 => out.extend_from_slice(&(value as u32).to_le_bytes()),
        Number::Fixed64 | Number::Sfixed64 => out.extend_from_slice(&value.to_le_bytes()),
        Number::Int32 | Number::Int64 | Number::Uint32 | Number::Uint64 => push_varint(out, value as u64),
    }
    Ok(())
}
