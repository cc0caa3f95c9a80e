//! A select list: a plan of copies from places in the record to places in the new one, and expressions beside them.

use std::hint::black_box;

use crossdock_format::{Field, FieldType, Format, MAX_RECORD_BYTES, Record, RecordBuilder, Value};
use crossdock_query::{EvalError, Expr, Interpreter, Node, Output};

use crate::kernel::{Place, is_null, slot_text};
use crate::warm::{own, touch};

/// How new records of one format are made from records of another. They are built in a buffer that is used again.
#[derive(Debug)]
pub(crate) struct RowPlan {
    /// The fixed part of a new record before anything is in it: zeros.
    blank: Box<[u8]>,
    /// Copied fields that are never null, cut into pieces of a width that one load and one store move.
    pieces: Pieces,
    /// Copied fixed fields that can be null.
    nullable: Vec<Nullable>,
    /// Computed fields of the fixed part.
    computed: Vec<Computed>,
    /// Fields of the variable part, in the order of the select list.
    variable: Vec<Variable>,
    row: Vec<u8>,
    /// Set where a field is copied that no load and store moves: then all fields go this way.
    by_value: Option<Box<ByValue>>,
}

/// Makes new records field by field, whatever the fields are.
#[derive(Debug)]
struct ByValue {
    outputs: Vec<Output>,
    builder: RecordBuilder,
}

#[derive(Debug)]
struct Computed {
    expr: Expr,
    to: Place,
}

#[derive(Debug)]
enum Variable {
    Copied { from: Place, to: Place },
    Computed(Computed),
}

/// Pieces by width; from and to are in bytes from the start of the records.
#[derive(Debug, Default)]
struct Pieces {
    of_8: Vec<(u32, u32)>,
    of_4: Vec<(u32, u32)>,
    of_2: Vec<(u32, u32)>,
    of_1: Vec<(u32, u32)>,
    /// Longer stretches, with their lengths.
    long: Vec<(u32, u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Nullable {
    from: Place,
    to: Place,
    /// Its length in bytes.
    size: u32,
}

impl Nullable {
    #[inline]
    fn copy(&self, record: &[u8], row: &mut [u8]) {
        let (from, to, size) = (self.from.at, self.to.at, self.size as usize);
        match size {
            8 => copy_one::<8>(from, to, record, row),
            4 => copy_one::<4>(from, to, record, row),
            2 => copy_one::<2>(from, to, record, row),
            1 => copy_one::<1>(from, to, record, row),
            _ => copy_slice(from, to, size, record, row),
        }
    }
}

/// Room for a row's variable part before its first: for most rows enough, so that a handler's first batch allocates nothing.
const ROW_SPARE_BYTES: usize = 512;

/// The longest stretch that is cut into pieces; a longer one is worth a call of `memcpy`.
const LONGEST_CUT: u32 = 32;

impl Pieces {
    fn add(&mut self, mut from: u32, mut to: u32, mut length: u32) {
        if length > LONGEST_CUT {
            self.long.push((from, to, length));
            return;
        }
        for (width, pieces) in [(8, &mut self.of_8), (4, &mut self.of_4), (2, &mut self.of_2), (1, &mut self.of_1)] {
            while length >= width {
                pieces.push((from, to));
                (from, to, length) = (from + width, to + width, length - width);
            }
        }
    }

    fn warm(&self) {
        [&self.of_8, &self.of_4, &self.of_2, &self.of_1].into_iter().for_each(|pieces| touch(pieces));
        touch(&self.long);
    }

    #[inline]
    fn copy(&self, record: &[u8], row: &mut [u8]) {
        copy_each::<8>(&self.of_8, record, row);
        copy_each::<4>(&self.of_4, record, row);
        copy_each::<2>(&self.of_2, record, row);
        copy_each::<1>(&self.of_1, record, row);
        for &(from, to, length) in &self.long {
            copy_slice(from as usize, to as usize, length as usize, record, row);
        }
    }
}

/// Why a place in a row is there. (A record may be anything: bytes that are no record do no harm.)
const OF_FIELDS: &str = "a row begins as a blank one, which has all fields";

#[inline]
fn copy_each<const N: usize>(pieces: &[(u32, u32)], record: &[u8], row: &mut [u8]) {
    for &(from, to) in pieces {
        copy_one::<N>(from as usize, to as usize, record, row);
    }
}

#[inline]
fn copy_one<const N: usize>(from: usize, to: usize, record: &[u8], row: &mut [u8]) {
    let source = record.get(from..).and_then(|rest| rest.first_chunk::<N>());
    let place = row.get_mut(to..).and_then(|rest| rest.first_chunk_mut::<N>());
    debug_assert!(place.is_some(), "{OF_FIELDS}");
    if let (Some(source), Some(place)) = (source, place) {
        *place = *source;
    }
}

#[inline]
fn copy_slice(from: usize, to: usize, length: usize, record: &[u8], row: &mut [u8]) {
    let (source, place) = (record.get(from..from + length), row.get_mut(to..to + length));
    debug_assert!(place.is_some(), "{OF_FIELDS}");
    if let (Some(source), Some(place)) = (source, place) {
        place.copy_from_slice(source);
    }
}

impl RowPlan {
    /// The plan for a select list.
    pub(crate) fn of(outputs: &[Output], input: &Format, output: &Format) -> RowPlan {
        let mut plan = RowPlan {
            blank: vec![0; output.fixed_bytes()].into(),
            pieces: Pieces::default(),
            nullable: Vec::new(),
            computed: Vec::new(),
            variable: Vec::new(),
            // Written once, so that the first row's page is there.
            row: vec![0; output.fixed_bytes() + ROW_SPARE_BYTES],
            by_value: None,
        };
        if needs_values(outputs, input, output) {
            let builder = RecordBuilder::new(output);
            plan.by_value = Some(Box::new(ByValue { outputs: outputs.to_vec(), builder }));
            return plan;
        }
        // A stretch of fields that are side by side in both formats: from, to, length.
        let mut stretch = (0, 0, 0);
        for (selected, field) in outputs.iter().zip(output.fields()) {
            let to = Place::of(field);
            let from = match selected.expr.node {
                Node::Field(index) => input.fields().get(index),
                _ => None,
            };
            let copied = from.filter(|from| {
                from.is_plain() && (from.ty, from.nullable, from.size) == (field.ty, field.nullable, field.size)
            });
            match copied {
                None => {
                    let computed = Computed { expr: selected.expr.clone(), to };
                    if field.ty.is_variable() {
                        plan.variable.push(Variable::Computed(computed));
                    } else {
                        plan.computed.push(computed);
                    }
                }
                Some(from) if field.ty.is_variable() => {
                    plan.variable.push(Variable::Copied { from: Place::of(from), to });
                }
                Some(from) if field.nullable => {
                    plan.nullable.push(Nullable { from: Place::of(from), to, size: field.size });
                }
                Some(from) if (from.offset, field.offset) == (stretch.0 + stretch.2, stretch.1 + stretch.2) => {
                    stretch.2 += field.size;
                }
                Some(from) => {
                    plan.pieces.add(stretch.0, stretch.1, stretch.2);
                    stretch = (from.offset, field.offset, field.size);
                }
            }
        }
        plan.pieces.add(stretch.0, stretch.1, stretch.2);
        plan
    }

    /// Reads through what it copies by, and writes where it copies to.
    pub(crate) fn warm(&mut self) {
        touch(&self.blank);
        self.pieces.warm();
        touch(&self.nullable);
        own(&mut self.row);
        self.variable.iter().for_each(|field| _ = black_box(matches!(field, Variable::Copied { .. })));
    }

    /// Whether nothing is computed.
    pub(crate) fn only_copies(&self) -> bool {
        self.by_value.is_none()
            && self.computed.is_empty()
            && self.variable.iter().all(|field| matches!(field, Variable::Copied { .. }))
    }

    /// Exchanges the memory that rows are made in with another plan's for the same formats.
    pub(crate) fn exchange_memory(&mut self, other: &mut RowPlan) {
        std::mem::swap(&mut self.row, &mut other.row);
        if let (Some(by_value), Some(other)) = (&mut self.by_value, &mut other.by_value) {
            std::mem::swap(&mut by_value.builder, &mut other.builder);
        }
    }

    /// Whether fields are set one by one, so that there has to be an output for each.
    pub(crate) fn is_by_value(&self) -> bool {
        self.by_value.is_some()
    }

    /// The new record for one of format `input`.
    #[inline]
    pub(crate) fn make(
        &mut self,
        record: &[u8],
        input: &Format,
        interpreter: &mut Interpreter,
    ) -> Result<&[u8], EvalError> {
        if self.by_value.is_none() {
            self.make_row(record, input, interpreter)?;
        }
        match &mut self.by_value {
            Some(by_value) => by_value.make(&Record::assume_checked(input, record), interpreter),
            None => Ok(&self.row),
        }
    }

    /// The same, in memory where its fixed fields can be set to other values.
    #[inline]
    pub(crate) fn make_mut(
        &mut self,
        record: &[u8],
        input: &Format,
        interpreter: &mut Interpreter,
    ) -> Result<&mut [u8], EvalError> {
        match &mut self.by_value {
            Some(by_value) => {
                let made = by_value.make(&Record::assume_checked(input, record), interpreter)?;
                self.row.clear();
                self.row.extend_from_slice(made);
            }
            None => self.make_row(record, input, interpreter)?,
        }
        Ok(&mut self.row)
    }

    #[inline]
    fn make_row(&mut self, record: &[u8], input: &Format, interpreter: &mut Interpreter) -> Result<(), EvalError> {
        let row = &mut self.row;
        row.clear();
        row.extend_from_slice(&self.blank);
        self.pieces.copy(record, row);
        for field in &self.nullable {
            if is_null(record, field.from) {
                set_null(row, field.to);
            } else {
                field.copy(record, row);
            }
        }
        for Computed { expr, to } in &self.computed {
            let record = Record::assume_checked(input, record);
            store(row, *to, expr.ty, interpreter.value(expr, &record)?)?;
        }
        for field in &self.variable {
            match field {
                Variable::Copied { from, to } if is_null(record, *from) => set_null(row, *to),
                Variable::Copied { from, to } => append(row, *to, slot_text(record, from.at))?,
                Variable::Computed(Computed { expr, to }) => {
                    let record = Record::assume_checked(input, record);
                    store(row, *to, expr.ty, interpreter.value(expr, &record)?)?;
                }
            }
        }
        let length = row.len().next_multiple_of(8);
        row.resize(length, 0);
        if let Some(word) = row.first_chunk_mut() {
            *word = (length as u32).to_le_bytes();
        }
        Ok(())
    }
}

impl ByValue {
    fn make(&mut self, record: &Record<'_>, interpreter: &mut Interpreter) -> Result<&[u8], EvalError> {
        self.builder.clear();
        for (index, output) in self.outputs.iter().enumerate() {
            interpreter.set(&output.expr, record, &mut self.builder, index)?;
        }
        self.builder.finish().map_err(|_| EvalError::RecordTooLong)
    }
}

/// Whether a field is selected whose value is more than fixed bytes or one slot, or has to be put together.
fn needs_values(outputs: &[Output], input: &Format, output: &Format) -> bool {
    outputs.iter().zip(output.fields()).any(|(selected, field)| {
        let from = selected.plain_field().and_then(|index| input.fields().get(index));
        match field.ty {
            FieldType::List => true,
            FieldType::Decimal { .. } | FieldType::Enum { .. } => !from.is_some_and(Field::is_plain),
            _ => false,
        }
    })
}

#[inline]
fn set_null(row: &mut [u8], place: Place) {
    debug_assert!(place.null_byte < row.len(), "{OF_FIELDS}");
    if let Some(byte) = row.get_mut(place.null_byte) {
        *byte |= place.null_mask;
    }
}

/// Appends text or bytes to the row, and writes their place into the slot.
#[inline]
fn append(row: &mut Vec<u8>, to: Place, text: &[u8]) -> Result<(), EvalError> {
    if row.len() + text.len() > MAX_RECORD_BYTES - 8 {
        return Err(EvalError::RecordTooLong);
    }
    // Both fit 32 bits: see the bound above.
    let slot = row.len() as u64 | (text.len() as u64) << 32;
    row.extend_from_slice(text);
    put(row, to, slot.to_le_bytes());
    Ok(())
}

#[inline]
fn put<const N: usize>(row: &mut [u8], to: Place, value: [u8; N]) {
    debug_assert!(to.at + N <= row.len(), "{OF_FIELDS}");
    if let Some(place) = row.get_mut(to.at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value;
    }
}

/// Stores a computed value, which has the field's type but, for whole numbers, still needs to fit.
fn store(row: &mut Vec<u8>, to: Place, ty: FieldType, value: Value<'_>) -> Result<(), EvalError> {
    match (value, ty) {
        (Value::Null, _) if to.null_mask != 0 => set_null(row, to),
        (Value::Bool(value), FieldType::Bool) => put(row, to, [value.into()]),
        (Value::Int(value), FieldType::I64) => put(row, to, value.to_le_bytes()),
        (Value::Int(value), FieldType::I32) => put(row, to, fit::<i32, _>(value)?.to_le_bytes()),
        (Value::Int(value), FieldType::I16) => put(row, to, fit::<i16, _>(value)?.to_le_bytes()),
        (Value::Int(value), FieldType::I8) => put(row, to, fit::<i8, _>(value)?.to_le_bytes()),
        (Value::Uint(value), FieldType::U64) => put(row, to, value.to_le_bytes()),
        (Value::Uint(value), FieldType::U32) => put(row, to, fit::<u32, _>(value)?.to_le_bytes()),
        (Value::Uint(value), FieldType::U16) => put(row, to, fit::<u16, _>(value)?.to_le_bytes()),
        (Value::Uint(value), FieldType::U8) => put(row, to, [fit(value)?]),
        (Value::Float(value), FieldType::F64) => put(row, to, value.to_le_bytes()),
        (Value::Float(value), FieldType::F32) => {
            let narrow = value as f32;
            if narrow.is_infinite() && value.is_finite() {
                return Err(EvalError::OutOfRange);
            }
            put(row, to, narrow.to_le_bytes());
        }
        (Value::Timestamp(value), FieldType::Timestamp) => put(row, to, value.to_le_bytes()),
        (Value::Text(text), FieldType::Char(room)) if text.len() <= room.into() && text.last() != Some(&0) => {
            debug_assert!(to.at + text.len() <= row.len(), "{OF_FIELDS}");
            if let Some(place) = row.get_mut(to.at..to.at + text.len()) {
                place.copy_from_slice(text);
            }
        }
        (Value::Text(text), FieldType::String) => append(row, to, text)?,
        (Value::Bytes(bytes), FieldType::Bytes) => append(row, to, bytes)?,
        _ => return Err(EvalError::IllTyped),
    }
    Ok(())
}

fn fit<N: TryFrom<W>, W>(value: W) -> Result<N, EvalError> {
    N::try_from(value).map_err(|_| EvalError::OutOfRange)
}
