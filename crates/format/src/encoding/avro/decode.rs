//! Datums to records.

use std::io::BufRead;

use super::no_bytes;
use super::plan::{Absent, Label, Leaf, List, Op, Plan, Purpose, ValuePlan};
use super::schema::{AvroSchema, AvroType};
use crate::builder::{ByteRun, Place, RecordBuilder, ValueError, ValueProblem};
use crate::encoding::error::refused;
use crate::encoding::reader::{ReadFlaw, Reader, unzigzag};
use crate::encoding::window::{Attempt, Window};
use crate::encoding::{Decoder, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crate::field::FieldType;
use crate::format::Format;
use crate::nesting::{MAX_NESTING, TOO_DEEP};
use crate::text;

/// Reads Avro's binary encoding, a datum after the other with nothing in between, without allocating once its buffers
/// have grown to the datums' sizes.
#[derive(Debug)]
pub struct AvroDecoder {
    window: Window,
    pub(super) table: Table,
    most: usize,
}

/// The decoder that makes records of datums.
#[derive(Debug)]
pub(super) struct Table {
    schema: AvroSchema,
    plan: Plan,
    builder: RecordBuilder,
    repairs_text: bool,
}

/// A datum that has been read: its number of bytes, and what is wrong with a value in it.
pub(super) struct Datum {
    pub(super) bytes: usize,
    wrong: Option<Wrong>,
}

/// Why a datum cannot be read to its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// There are not enough bytes.
    Cut,
    /// The bytes are none of the schema.
    Bytes(&'static str),
}

/// A value that does not fit, without allocating: there may be many.
#[derive(Debug)]
struct Wrong {
    label: u32,
    what: What,
}

#[derive(Debug)]
enum What {
    Range(i128),
    /// A branch of a union, of this type.
    Type(&'static str),
    Text,
    Time,
    Symbol,
    Decimal,
    Refused(ValueProblem),
}

impl From<ReadFlaw> for Stop {
    fn from(flaw: ReadFlaw) -> Self {
        match flaw {
            ReadFlaw::Cut => Self::Cut,
            ReadFlaw::Varint => Self::Bytes("a number of more than ten bytes"),
        }
    }
}

impl AvroDecoder {
    /// A decoder of datums that were written by this schema; without one, by the schema that stands for the format
    /// ([`AvroSchema::of`]).
    ///
    /// # Errors
    /// A field of the schema and one of the format do not go together; the format has none for it, and
    /// [`EncodingOptions::ignore_unknown`] is not set; a field that is never null has none in the schema.
    pub fn new(format: &Format, options: &EncodingOptions, schema: Option<&AvroSchema>) -> Result<Self, EncodingError> {
        let schema = schema.cloned().map_or_else(|| AvroSchema::of(format), Ok)?;
        Ok(Self {
            window: Window::default(),
            table: Table::new(schema, format, options)?,
            most: options.max_item_bytes,
        })
    }

    /// One datum as a record; there must be nothing behind it.
    ///
    /// # Errors
    /// It is no datum of the schema, or a value does not fit its field.
    #[inline]
    pub fn decode(&mut self, datum: &[u8]) -> Result<&[u8], EncodingError> {
        match self.table.datum(datum) {
            Ok(Datum { bytes, .. }) if bytes < datum.len() => {
                Err(EncodingError::syntax(format!("found {} bytes behind the datum", datum.len() - bytes)))
            }
            Ok(found) => self.table.finish(found),
            Err(stop) => Err(stop.explain()),
        }
    }
}

impl Decoder for AvroDecoder {
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        let Self { window, table, most } = self;
        let datum = window.next(input, *most, |bytes| match table.datum(bytes) {
            // Whatever is behind it is not read by such a schema: it would never end.
            Ok(Datum { bytes: 0, .. }) => Err(no_bytes()),
            Ok(datum) => Ok(Attempt::Done { bytes: datum.bytes, value: datum }),
            Err(Stop::Cut) => Ok(Attempt::Short { at_least: 0 }),
            Err(stop) => Err(stop.explain()),
        })?;
        match datum {
            None => Ok(None),
            Some(datum) => match self.table.finish(datum) {
                Ok(record) => Ok(Some(record)),
                Err(error) => Err(self.window.place(error)),
            },
        }
    }

    fn restart(&mut self) {
        self.window = Window::default();
    }
}

impl Stop {
    #[cold]
    pub(super) fn explain(self) -> EncodingError {
        match self {
            Self::Cut => EncodingError::new(EncodingProblem::Cut),
            Self::Bytes(found) => EncodingError::syntax(format!("found {found}: not written by this schema")),
        }
    }
}

impl Table {
    pub(super) fn new(schema: AvroSchema, format: &Format, options: &EncodingOptions) -> Result<Self, EncodingError> {
        let plan = Plan::of(&schema, format, Purpose::Read { ignore_unknown: options.ignore_unknown })?;
        let mut builder = RecordBuilder::with_defaults(format);
        plan.places.iter().for_each(|place| builder.promise(*place));
        let repairs_text = options.allows(Loss::InvalidText);
        Ok(Self { schema, plan, builder, repairs_text })
    }

    /// Reads the datum that the bytes start with.
    #[inline]
    pub(super) fn datum(&mut self, bytes: &[u8]) -> Result<Datum, Stop> {
        let Self { schema, plan, builder, repairs_text } = self;
        builder.clear();
        let mut reading =
            Reading { schema, repairs_text: *repairs_text, reader: Reader::new(bytes), builder, wrong: None };
        reading.steps(&plan.steps)?;
        Ok(Datum { bytes: bytes.len() - reading.reader.left(), wrong: reading.wrong })
    }

    /// The record of the datum that was read last.
    #[inline]
    pub(super) fn finish(&mut self, datum: Datum) -> Result<&[u8], EncodingError> {
        match datum.wrong {
            Some(wrong) => Err(wrong.explain(&self.plan.labels)),
            None => Ok(self.builder.finish()?),
        }
    }
}

struct Reading<'p, 'b> {
    schema: &'p AvroSchema,
    repairs_text: bool,
    reader: Reader<'b>,
    builder: &'p mut RecordBuilder,
    /// The first value that does not fit. The bytes behind it are read, so that the next datum is found.
    wrong: Option<Wrong>,
}

impl<'b> Reading<'_, 'b> {
    #[inline]
    fn steps(&mut self, steps: &[ValuePlan]) -> Result<(), Stop> {
        for step in steps {
            match step {
                ValuePlan::Leaf(leaf) => self.leaf(leaf)?,
                step => self.step(step)?,
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &ValuePlan) -> Result<(), Stop> {
        match step {
            ValuePlan::Leaf(leaf) => self.leaf(leaf),
            ValuePlan::Skip(ty) => self.skip(*ty, MAX_NESTING),
            ValuePlan::Refuse(ty, label) => {
                self.note(*label, What::Type(self.schema.ty(*ty).kind.word()));
                self.skip(*ty, MAX_NESTING)
            }
            ValuePlan::Default(field) => {
                let outcome = self.builder.give_default(*field);
                self.note_error(0, outcome);
                Ok(())
            }
            ValuePlan::Record(group, steps) => {
                if let Some(group) = group {
                    let outcome = self.builder.put_group(group, false);
                    self.take(0, outcome);
                }
                self.steps(steps)
            }
            ValuePlan::Null(Absent::Leaf(place)) => {
                let outcome = self.builder.put_null(*place);
                self.take(0, outcome);
                Ok(())
            }
            ValuePlan::Null(Absent::Group(group)) => {
                let outcome = self.builder.put_group(group, true);
                self.take(0, outcome);
                Ok(())
            }
            ValuePlan::Branches(branches, label) => {
                let branch = usize::try_from(self.long()?).ok().and_then(|branch| branches.get(branch));
                match branch.ok_or(Stop::Bytes("a branch that its union does not have"))? {
                    ValuePlan::Null(absent) => {
                        let outcome = match absent {
                            Absent::Leaf(place) => self.builder.put_null(*place),
                            Absent::Group(group) => self.builder.put_group(group, true),
                        };
                        self.take(*label, outcome);
                        Ok(())
                    }
                    branch => self.step(branch),
                }
            }
            ValuePlan::List(list) => self.list(list),
        }
    }

    fn list(&mut self, list: &List) -> Result<(), Stop> {
        let begun = self.builder.begin_list(list.field);
        self.note_error(list.label, begun);
        while let Some(count) = self.block()? {
            for _ in 0..count {
                let begun = if list.is_record { self.builder.begin_element() } else { self.builder.begin_value() };
                self.note_error(list.label, begun);
                let before = self.reader.left();
                self.steps(&list.steps)?;
                if list.is_record {
                    let ended = self.builder.end_element();
                    self.note_error(list.label, ended);
                } else {
                    self.builder.end_value();
                }
                // Elements of no bytes could be any number, and none of them would fit any more.
                if self.wrong.is_some() && self.reader.left() == before {
                    return Err(Stop::Bytes("too many elements of no bytes"));
                }
            }
        }
        let ended = self.builder.end_list();
        self.note_error(list.label, ended);
        Ok(())
    }

    /// How many elements the next block of an array or a map has; `None` behind the last.
    fn block(&mut self) -> Result<Option<u64>, Stop> {
        let count = self.long()?;
        if count < 0 {
            // The block's size in bytes, for those who pass over it.
            self.long()?;
        }
        Ok((count != 0).then_some(count.unsigned_abs()))
    }

    #[inline]
    fn long(&mut self) -> Result<i64, Stop> {
        Ok(unzigzag(self.reader.varint()?))
    }

    /// Bytes behind their number.
    #[inline]
    fn run(&mut self) -> Result<ByteRun<'b>, Stop> {
        let len = u64::try_from(self.long()?).map_err(|_| Stop::Bytes("a length below zero"))?;
        Ok(self.reader.take(len)?)
    }

    #[inline]
    fn take(&mut self, label: u32, outcome: Result<(), ValueProblem>) {
        if let Err(problem) = outcome {
            self.note(label, What::Refused(problem));
        }
    }

    #[inline]
    fn note_error(&mut self, label: u32, outcome: Result<(), ValueError>) {
        if let Err(error) = outcome {
            self.note(label, What::Refused(error.problem));
        }
    }

    #[cold]
    fn note(&mut self, label: u32, what: What) {
        self.wrong.get_or_insert(Wrong { label, what });
    }

    #[inline]
    fn leaf(&mut self, leaf: &Leaf) -> Result<(), Stop> {
        let Leaf { op, place, null, label } = leaf;
        if let Some(null) = null {
            match self.reader.varint()? {
                // The branch's number, doubled.
                branch if branch == u64::from(*null) * 2 => {
                    let outcome = self.builder.put_null(*place);
                    self.take(*label, outcome);
                    return Ok(());
                }
                0 | 2 => {}
                _ => return Err(Stop::Bytes("a branch that its union does not have")),
            }
        }
        match op {
            Op::Bool => {
                let [byte] = self.reader.fixed()?;
                if byte > 1 {
                    return Err(Stop::Bytes("a boolean that is neither 0 nor 1"));
                }
                self.builder.put(*place, [byte]);
            }
            Op::Int32 => match i32::try_from(self.long()?) {
                Ok(value) => self.builder.put(*place, value.to_le_bytes()),
                Err(_) => return Err(Stop::Bytes("an int of more than 32 bits")),
            },
            Op::Int64 => {
                let value = self.long()?;
                self.builder.put(*place, value.to_le_bytes());
            }
            Op::Integer(least, most) => {
                let value = self.long()?;
                if value < *least || value > *most {
                    self.note(*label, What::Range(value.into()));
                    return Ok(());
                }
                self.builder.put_integer(*place, value as u64);
            }
            Op::Float => self.builder.put(*place, self.reader.fixed::<4>()?),
            Op::Double => self.builder.put(*place, self.reader.fixed::<8>()?),
            Op::Widen => {
                let value = f32::from_le_bytes(self.reader.fixed()?);
                self.builder.put(*place, f64::from(value).to_le_bytes());
            }
            Op::Text => return self.text(*place, *label),
            Op::Bytes => {
                let len = u64::try_from(self.long()?).map_err(|_| Stop::Bytes("a length below zero"))?;
                let run = self.reader.take(len)?;
                self.put_run(*place, *label, run);
            }
            Op::Fixed(size) => {
                let run = self.reader.take(*size as u64)?;
                self.put_run(*place, *label, run);
            }
            op => return self.rare(op, *place, *label),
        }
        Ok(())
    }

    #[inline]
    fn put_run(&mut self, place: Place, label: u32, run: ByteRun<'_>) {
        let outcome = self.builder.put_run(place, run);
        self.take(label, outcome);
    }

    #[inline]
    fn text(&mut self, place: Place, label: u32) -> Result<(), Stop> {
        let len = u64::try_from(self.long()?).map_err(|_| Stop::Bytes("a length below zero"))?;
        let run = self.reader.take(len)?;
        match run.is_text() {
            true => self.put_run(place, label, run),
            false if self.repairs_text => {
                let repaired = String::from_utf8_lossy(run.bytes);
                self.put_run(place, label, ByteRun::alone(repaired.as_bytes()));
            }
            false => self.note(label, What::Text),
        }
        Ok(())
    }

    fn rare(&mut self, op: &Op, place: Place, label: u32) -> Result<(), Stop> {
        match op {
            Op::Time(unit) => match self.long()?.checked_mul(*unit) {
                Some(value) => self.builder.put(place, value.to_le_bytes()),
                None => self.note(label, What::Time),
            },
            Op::IntegerToF32 => {
                let value = self.long()?;
                self.builder.put(place, (value as f32).to_le_bytes());
            }
            Op::IntegerToF64 => {
                let value = self.long()?;
                self.builder.put(place, (value as f64).to_le_bytes());
            }
            Op::Symbols(numbers) => {
                let index = usize::try_from(self.long()?).ok();
                let number = index.and_then(|index| numbers.get(index));
                match number.ok_or(Stop::Bytes("a symbol that its enumeration does not have"))? {
                    Some(number) => self.builder.put_integer(place, *number as u64),
                    None => self.note(label, What::Symbol),
                }
            }
            Op::Decimal(size) => {
                let run = match size {
                    Some(size) => self.reader.take(*size as u64)?,
                    None => self.run()?,
                };
                let unscaled = big_endian(run.bytes);
                match (unscaled, place.ty()) {
                    (Some(value), FieldType::Decimal { bytes: 16, .. }) => self.builder.put(place, value.to_le_bytes()),
                    (Some(value), FieldType::Decimal { bytes, .. }) if fits(value, bytes) => {
                        self.builder.put_integer(place, value as u64);
                    }
                    _ => self.note(label, What::Decimal),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Passes over a value of this type.
    fn skip(&mut self, ty: usize, depth: usize) -> Result<(), Stop> {
        let depth = depth.checked_sub(1).ok_or(Stop::Bytes(TOO_DEEP))?;
        let schema = self.schema;
        match &schema.ty(ty).kind {
            AvroType::Null => {}
            AvroType::Boolean => {
                self.reader.fixed::<1>()?;
            }
            AvroType::Int | AvroType::Long | AvroType::Enum(_) => {
                self.long()?;
            }
            AvroType::Float => {
                self.reader.fixed::<4>()?;
            }
            AvroType::Double => {
                self.reader.fixed::<8>()?;
            }
            AvroType::Bytes | AvroType::String => {
                self.run()?;
            }
            AvroType::Fixed(size) => {
                self.reader.take(*size as u64)?;
            }
            AvroType::Array(element) => self.skip_blocks(*element, false, depth)?,
            AvroType::Map(element) => self.skip_blocks(*element, true, depth)?,
            AvroType::Union(branches) => {
                let branch = usize::try_from(self.long()?).ok().and_then(|branch| branches.get(branch));
                let branch = *branch.ok_or(Stop::Bytes("a branch that its union does not have"))?;
                self.skip(branch, depth)?;
            }
            AvroType::Record(fields) => {
                for field in fields {
                    self.skip(field.ty, depth)?;
                }
            }
        }
        Ok(())
    }

    fn skip_blocks(&mut self, element: usize, is_map: bool, depth: usize) -> Result<(), Stop> {
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                let bytes = u64::try_from(self.long()?).map_err(|_| Stop::Bytes("a block of less than no bytes"))?;
                self.reader.take(bytes)?;
                continue;
            }
            for _ in 0..count {
                let before = self.reader.left();
                if is_map {
                    self.run()?;
                }
                self.skip(element, depth)?;
                if self.reader.left() == before {
                    // Of no bytes, as all the others are: nothing depends on how many there are.
                    break;
                }
            }
        }
    }
}

/// A number in two's complement, the first byte first; `None` if it has more than 128 bits.
pub(super) fn big_endian(bytes: &[u8]) -> Option<i128> {
    let (&first, _) = bytes.split_first()?;
    let sign: i128 = if first & 0x80 == 0 { 0 } else { -1 };
    let spare = bytes.len().saturating_sub(16);
    let (extra, low) = bytes.split_at(spare);
    if extra.iter().any(|byte| *byte != sign as u8) {
        return None;
    }
    let value = low.iter().fold(sign, |value, byte| value << 8 | i128::from(*byte));
    ((value < 0) == (sign < 0)).then_some(value)
}

/// Whether `bytes` bytes have room for the number.
fn fits(value: i128, bytes: u8) -> bool {
    match bytes {
        4 => i32::try_from(value).is_ok(),
        _ => i64::try_from(value).is_ok(),
    }
}

impl Wrong {
    #[cold]
    fn explain(self, labels: &[Label]) -> EncodingError {
        let label = labels.get(self.label as usize);
        let field = label.and_then(|label| label.field.as_ref());
        let expected = field.map_or_else(|| "what fits".to_owned(), |field| text::expected(field, "a time"));
        let found = match self.what {
            What::Range(found) => found.to_string(),
            What::Type(word) => format!("a value of type {word}"),
            What::Text => "text that is no UTF-8".to_owned(),
            What::Time => "a time beyond it".to_owned(),
            What::Symbol => "a symbol that the field does not have".to_owned(),
            What::Decimal => "a decimal that needs more bytes".to_owned(),
            What::Refused(problem) => {
                let error = EncodingError::new(refused(problem, expected));
                return match label {
                    Some(label) => error.in_field(&label.path),
                    None => error,
                };
            }
        };
        let error = EncodingError::value(found, expected);
        match label {
            Some(label) => error.in_field(&label.path),
            None => error,
        }
    }
}
