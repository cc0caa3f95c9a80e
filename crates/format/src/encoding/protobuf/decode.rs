//! Messages to records.

use std::io::BufRead;

use super::nested::Marks;
use super::plan::{FieldPlan, Label, MessagePlan, Number, Op, Plan, Purpose, Range};
use super::schema::ProtobufSchema;
use super::wire::{self, Flaw, Wire};
use crate::builder::{ByteRun, Place, RecordBuilder, ValueError, ValueProblem};
use crate::encoding::error::refused;
use crate::encoding::reader::{ReadFlaw, Reader, unzigzag};
use crate::encoding::window::{Attempt, Window};
use crate::encoding::{Decoder, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crate::format::Format;
use crate::text;

/// Reads Protobuf messages of one type into records of one format, without allocating once its buffers have grown to
/// the messages' sizes.
#[derive(Debug)]
pub struct ProtobufDecoder {
    window: Window,
    table: Table,
    builder: RecordBuilder,
    most: usize,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) plan: Plan,
    /// Whether text that is no UTF-8 is repaired, and not refused.
    repairs_text: bool,
}

/// The error of a message, without allocating: messages that are refused may be many.
#[derive(Debug)]
pub(super) struct Wrong {
    /// The label of the field, where it is known.
    label: Option<u32>,
    what: What,
}

#[derive(PartialEq, Debug)]
pub(super) enum What {
    Bytes(Flaw),
    Wire { found: u32, expected: u32 },
    Range(i128),
    Text,
    Time,
    Digits,
    Refused(ValueProblem),
}

impl What {
    pub(super) fn at(self, label: u32) -> Wrong {
        Wrong { label: Some(label), what: self }
    }
}

impl From<Flaw> for What {
    fn from(flaw: Flaw) -> Self {
        Self::Bytes(flaw)
    }
}

impl From<ReadFlaw> for What {
    fn from(flaw: ReadFlaw) -> Self {
        Self::Bytes(flaw.into())
    }
}

impl From<ValueProblem> for What {
    fn from(problem: ValueProblem) -> Self {
        Self::Refused(problem)
    }
}

impl From<ValueError> for What {
    fn from(error: ValueError) -> Self {
        Self::Refused(error.problem)
    }
}

/// Bytes that are no message.
impl From<Flaw> for Wrong {
    fn from(flaw: Flaw) -> Self {
        Self { label: None, what: flaw.into() }
    }
}

impl ProtobufDecoder {
    /// A decoder for messages of this type; without one, of the type that stands for the format
    /// ([`ProtobufSchema::of`]).
    ///
    /// # Errors
    /// A field of the message type and one of the format do not go together; the format has none for it, and
    /// [`EncodingOptions::ignore_unknown`] is not set; a field that is never null has none in the message type.
    pub fn new(
        format: &Format,
        options: &EncodingOptions,
        schema: Option<&ProtobufSchema>,
    ) -> Result<Self, EncodingError> {
        let purpose = Purpose::Read { ignore_unknown: options.ignore_unknown };
        let plan = match schema {
            Some(schema) => Plan::of(schema, format, purpose)?,
            None => Plan::of(&ProtobufSchema::of(format), format, purpose)?,
        };
        let mut builder = RecordBuilder::with_defaults(format);
        plan.root.zeros.iter().for_each(|place| builder.start_from_zero(*place));
        let table = Table { plan, repairs_text: options.allows(Loss::InvalidText) };
        Ok(Self { window: Window::default(), table, builder, most: options.max_item_bytes })
    }

    /// One message, without its length, as a record.
    ///
    /// # Errors
    /// It is no message of the type, or a value does not fit its field.
    #[inline]
    pub fn decode(&mut self, message: &[u8]) -> Result<&[u8], EncodingError> {
        match self.table.record(&mut self.builder, message) {
            Ok(()) => Ok(self.builder.finish()?),
            Err(wrong) => Err(wrong.explain(&self.table.plan.labels)),
        }
    }
}

impl Decoder for ProtobufDecoder {
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        let Self { window, table, builder, most } = self;
        let outcome = window.next(input, *most, |bytes| {
            let mut reader = Reader::new(bytes);
            let len = match reader.varint() {
                Ok(len) => len,
                Err(ReadFlaw::Cut) => return Ok(Attempt::Short { at_least: 0 }),
                Err(ReadFlaw::Varint) => return Err(EncodingError::syntax("found a length of more than ten bytes")),
            };
            let head = bytes.len() - reader.left();
            if len > *most as u64 {
                return Err(EncodingError::new(EncodingProblem::TooLong { found: len, most: *most }));
            }
            let end = head + len as usize;
            match bytes.get(head..end) {
                Some(message) => {
                    let outcome = table.record(builder, message);
                    Ok(Attempt::Done { bytes: end, value: outcome })
                }
                None => Ok(Attempt::Short { at_least: end }),
            }
        })?;
        match outcome {
            None => Ok(None),
            Some(Err(wrong)) => Err(window.place(wrong.explain(&table.plan.labels))),
            Some(Ok(())) => {
                let record = builder.finish().map_err(|error| window.place(error.into()))?;
                Ok(Some(record))
            }
        }
    }

    fn restart(&mut self) {
        self.window = Window::default();
    }
}

impl Table {
    /// Begins a record with a message's values.
    #[inline]
    fn record(&self, builder: &mut RecordBuilder, message: &[u8]) -> Result<(), Wrong> {
        builder.clear();
        self.message(builder, &self.plan.root, message)
    }

    /// Puts into a nested record what it has where a message has nothing.
    pub(super) fn begin(&self, builder: &mut RecordBuilder, plan: &MessagePlan) -> Result<(), Wrong> {
        for place in &plan.zeros {
            builder.put_zero(*place).map_err(|problem| Wrong { label: None, what: problem.into() })?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn message(&self, builder: &mut RecordBuilder, plan: &MessagePlan, message: &[u8]) -> Result<(), Wrong> {
        let mut reader = Reader::new(message);
        let mut likely = 0;
        let mut marks = Marks::default();
        while !reader.is_empty() {
            let tag = reader.tag()?;
            let step = match plan.steps.get(likely) {
                Some(step) if step.tag == tag => step,
                _ => match plan.find(likely, tag) {
                    Some(index) => {
                        likely = index;
                        &plan.steps[index]
                    }
                    None => {
                        reader.skip(tag)?;
                        continue;
                    }
                },
            };
            likely += 1;
            if step.oneof > 0 {
                self.enter_variant(builder, plan, step, &mut marks)?;
            }
            match step.op {
                Op::Nested { index, .. } => {
                    self.nested(builder, index, step, (message, tag, &mut reader), &mut marks)?;
                }
                _ => self.value(builder, step, tag, &mut reader).map_err(|what| what.at(step.label))?,
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn value(
        &self,
        builder: &mut RecordBuilder,
        step: &FieldPlan,
        tag: u32,
        reader: &mut Reader<'_>,
    ) -> Result<(), What> {
        if tag != step.tag {
            return Err(What::Wire { found: tag, expected: step.tag });
        }
        let place = step.place;
        match step.op {
            Op::Var32 => builder.put(place, (reader.varint()? as u32).to_le_bytes()),
            Op::Var64 => builder.put(place, reader.varint()?.to_le_bytes()),
            Op::Zig32 => builder.put(place, (unzigzag(reader.varint()? & 0xffff_ffff) as u32).to_le_bytes()),
            Op::Zig64 => builder.put(place, unzigzag(reader.varint()?).to_le_bytes()),
            Op::Fixed32 => builder.put(place, reader.fixed::<4>()?),
            Op::Fixed64 => builder.put(place, reader.fixed::<8>()?),
            Op::Bool => builder.put(place, [u8::from(reader.varint()? != 0)]),
            Op::Widen => builder.put(place, f64::from(f32::from_le_bytes(reader.fixed()?)).to_le_bytes()),
            Op::Integer(number, range) => put_integer(builder, place, range, read_number(reader, number)?)?,
            Op::Text | Op::Char => {
                let run = reader.run()?;
                match run.is_text() {
                    true => builder.put_run(place, run)?,
                    false => self.put_wrong_text(builder, place, run)?,
                }
            }
            Op::Bytes => builder.put_run(place, reader.run()?)?,
            Op::Timestamp => builder.put(place, timestamp(reader.length_delimited()?)?.to_le_bytes()),
            Op::Decimal => {
                let (unscaled, scale) = text::parse_decimal(reader.length_delimited()?).ok_or(What::Digits)?;
                builder.put_decimal(place, unscaled, scale)?;
            }
            // Whoever calls has looked.
            Op::Nested { .. } => {}
        }
        Ok(())
    }

    #[cold]
    fn put_wrong_text(&self, builder: &mut RecordBuilder, place: Place, run: ByteRun<'_>) -> Result<(), What> {
        if !self.repairs_text {
            return Err(What::Text);
        }
        let repaired = String::from_utf8_lossy(run.bytes);
        builder.put_run(place, ByteRun::alone(repaired.as_bytes()))?;
        Ok(())
    }
}

/// An integer as it stands on the wire, and whether it is beyond `i64`.
#[inline]
fn read_number(reader: &mut Reader<'_>, number: Number) -> Result<Result<i64, u64>, ReadFlaw> {
    Ok(Ok(match number {
        Number::Int32 => i64::from(reader.varint()? as i32),
        Number::Int64 => reader.varint()? as i64,
        Number::Uint32 => i64::from(reader.varint()? as u32),
        Number::Sint32 => unzigzag(reader.varint()? & 0xffff_ffff),
        Number::Sint64 => unzigzag(reader.varint()?),
        Number::Fixed32 => i64::from(u32::from_le_bytes(reader.fixed()?)),
        Number::Sfixed32 => i64::from(i32::from_le_bytes(reader.fixed()?)),
        Number::Sfixed64 => i64::from_le_bytes(reader.fixed()?),
        Number::Uint64 => return Ok(signed(reader.varint()?)),
        Number::Fixed64 => return Ok(signed(u64::from_le_bytes(reader.fixed()?))),
    }))
}

fn signed(value: u64) -> Result<i64, u64> {
    i64::try_from(value).map_err(|_| value)
}

#[inline]
fn put_integer(builder: &mut RecordBuilder, place: Place, range: Range, value: Result<i64, u64>) -> Result<(), What> {
    let value = value.map_err(|value| What::Range(value.into()))?;
    if value < range.least || value > range.most {
        return Err(What::Range(value.into()));
    }
    builder.put_integer(place, value as u64);
    Ok(())
}

/// The nanoseconds of a `google.protobuf.Timestamp`.
#[inline]
fn timestamp(message: &[u8]) -> Result<i64, What> {
    const SECONDS: u32 = wire::tag(1, Wire::Varint);
    const NANOS: u32 = wire::tag(2, Wire::Varint);
    let mut reader = Reader::new(message);
    let (mut seconds, mut nanos) = (0, 0);
    while !reader.is_empty() {
        match reader.tag()? {
            SECONDS => seconds = reader.varint()? as i64,
            NANOS => nanos = reader.varint()? as i32,
            tag => reader.skip(tag)?,
        }
    }
    if !(0..1_000_000_000).contains(&nanos) {
        return Err(What::Time);
    }
    let whole = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    i64::try_from(whole).map_err(|_| What::Time)
}

impl Wrong {
    #[cold]
    fn explain(self, labels: &[Label]) -> EncodingError {
        let label = self.label.and_then(|label| labels.get(label as usize));
        let target = label.and_then(|label| label.field.as_ref());
        let fits = target.map(|field| text::expected(field, "a time of up to 9 digits below the second"));
        let expected = fits.unwrap_or_else(|| "a message of the type".to_owned());
        let value = |found: String| EncodingProblem::Value { found, expected: expected.clone() };
        let problem = match self.what {
            What::Bytes(flaw) => value(flaw.found().to_owned()),
            What::Wire { found, expected } => EncodingProblem::Value {
                found: format!("wire type {}", Wire::of(found).map_or("none", Wire::name)),
                expected: Wire::of(expected).map_or("none", Wire::name).to_owned(),
            },
            What::Range(found) => value(found.to_string()),
            What::Text => value("text that is no UTF-8".to_owned()),
            What::Time => value("a time beyond it".to_owned()),
            What::Digits => value("a text that is no decimal".to_owned()),
            What::Refused(problem) => refused(problem, expected),
        };
        let error = EncodingError::new(problem);
        match label {
            Some(label) => error.in_field(&label.path),
            None => error,
        }
    }
}
