//! A select list: fields that are copied to the new record unchanged, and expressions beside them.

use std::hint::black_box;

use crossdock_format::convert::Moves;
use crossdock_format::{Field, FieldType, Format, MAX_RECORD_BYTES, Record, RecordBuilder, Value};
use crossdock_query::{Constant, EvalError, Expr, Interpreter, Node, Output};

use crate::kernel::{FieldPosition, is_null, slot_text};
use crate::warm::WarmPiece;

/// How new records of one format are made from records of another. They are built in a buffer that is used again.
#[derive(Debug)]
pub(crate) struct RowPlan {
    /// The fixed part of a new record before anything is in it: its length, where all have the same, and zeros.
    blank: Box<[u8]>,
    /// The same as often as a chunk has rows, where all have the same length.
    blanks: Box<[u8]>,
    /// Records of a chunk.
    chunk_records: usize,
    /// Copied fields of the fixed part.
    moves: Moves,
    /// Computed fields of the fixed part, but for constants, which are in a blank one.
    computed: Vec<Computed>,
    constants: usize,
    /// Fields of the variable part, in the order of the select list.
    variable: Vec<Variable>,
    row: Vec<u8>,
    /// The rows of a chunk.
    rows: Box<[u8]>,
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
    to: FieldPosition,
}

#[derive(Debug)]
enum Variable {
    Copied { from: FieldPosition, to: FieldPosition },
    Computed(Computed),
}

/// Room for a row's variable part before its first: for most rows enough, so that a handler's first batch allocates nothing.
const ROW_SPARE_BYTES: usize = 512;

/// The most records of a chunk: fields are moved field by field, and a step does for all of them what it has to do once.
pub(crate) const CHUNK_RECORDS: usize = 32;
/// Fewer records than this are made one by one: to go over a chunk takes more than it saves then.
const FEW: usize = 4;
/// About how many bytes the rows of a chunk have together: they are to stay in the nearest cache.
const CHUNK_BYTES: usize = 12 << 10;

/// Why a place in a row is there. (A record may be anything: bytes that are no record do no harm.)
const OF_FIELDS: &str = "a row begins as a blank one, which has all fields";

impl RowPlan {
    /// The plan for a select list.
    pub(crate) fn of(outputs: &[Output], input: &Format, output: &Format) -> RowPlan {
        let mut plan = RowPlan::empty(input, output);
        if needs_values(outputs, input, output) {
            let builder = RecordBuilder::new(output);
            plan.by_value = Some(Box::new(ByValue { outputs: outputs.to_vec(), builder }));
            return plan;
        }
        let (mut moved, interpreter) = (Vec::new(), &mut Interpreter::new());
        for (at, (selected, field)) in outputs.iter().zip(output.fields()).enumerate() {
            let to = FieldPosition::of(field);
            let index = match selected.expr.node {
                Node::Field(index) => Some(index),
                _ => None,
            };
            let copied = index.and_then(|index| Some((index, input.fields().get(index)?))).filter(|(_, from)| {
                from.is_plain() && (from.ty, from.nullable, from.size) == (field.ty, field.nullable, field.size)
            });
            match copied {
                None => {
                    let computed = Computed { expr: selected.expr.clone(), to };
                    if field.ty.is_variable() {
                        plan.variable.push(Variable::Computed(computed));
                    } else if computed.is_constant()
                        && computed.compute(&[], &mut plan.blank, input, interpreter).is_ok()
                    {
                        plan.constants += 1;
                    } else {
                        plan.computed.push(computed);
                    }
                }
                Some((_, from)) if field.ty.is_variable() => {
                    plan.variable.push(Variable::Copied { from: FieldPosition::of(from), to });
                }
                Some((index, _)) => moved.push((index, at)),
            }
        }
        plan.moves = Moves::new(input, output, moved);
        if plan.variable.is_empty() {
            let length = plan.blank.len();
            plan.blank.first_chunk_mut().into_iter().for_each(|word| *word = (length as u32).to_le_bytes());
            plan.chunk_records = (CHUNK_BYTES / length.max(1)).clamp(1, CHUNK_RECORDS);
            plan.blanks = plan.blank.repeat(plan.chunk_records).into();
            plan.rows = plan.blanks.clone();
        }
        plan
    }

    /// A plan that copies and computes nothing.
    fn empty(input: &Format, output: &Format) -> RowPlan {
        let fixed_bytes = output.fixed_bytes();
        debug_assert!(
            fixed_bytes >= 8 && fixed_bytes.is_multiple_of(8),
            "records of natural formats are of whole words"
        );
        RowPlan {
            blank: vec![0; fixed_bytes].into(),
            blanks: Box::default(),
            rows: Box::default(),
            chunk_records: 0,
            moves: Moves::new(input, output, []),
            computed: Vec::new(),
            constants: 0,
            variable: Vec::new(),
            // Written once, so that the first row's page is there.
            row: vec![0; fixed_bytes + ROW_SPARE_BYTES],
            by_value: None,
        }
    }

    /// Reads through what it copies by, and writes where it copies to.
    pub(crate) fn warm(&mut self, piece: &mut WarmPiece) {
        piece.touch(&self.blank);
        piece.touch(&self.blanks);
        piece.lines(1, |_| self.moves.warm());
        piece.own(&mut self.row);
        piece.own(&mut self.rows);
        let is_copied = |at: usize| self.variable.get(at).map(|field| matches!(field, Variable::Copied { .. }));
        piece.lines(self.variable.len(), |at| _ = black_box(is_copied(at)));
    }

    /// Whether nothing is computed.
    pub(crate) fn only_copies(&self) -> bool {
        self.constants == 0 && self.blank_of_copies().is_some()
    }

    /// The fixed part of a row before its columns are in it, if all of them are copied, or the same in all rows.
    pub(crate) fn blank_of_copies(&self) -> Option<&[u8]> {
        let is_copied = |field: &Variable| matches!(field, Variable::Copied { .. });
        let all = self.by_value.is_none() && self.computed.is_empty() && self.variable.iter().all(is_copied);
        all.then_some(&self.blank)
    }

    /// Exchanges the memory that rows are made in with another plan's for the same formats.
    pub(crate) fn exchange_memory(&mut self, other: &mut RowPlan) {
        std::mem::swap(&mut self.row, &mut other.row);
        std::mem::swap(&mut self.rows, &mut other.rows);
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

    /// Hands over the new records for `count` records, from one to [`CHUNK_RECORDS`] at a time; and each record that none can be made for,
    /// with the error.
    #[inline]
    pub(crate) fn make_all<'r>(
        &mut self,
        (count, mut records): (usize, impl Iterator<Item = &'r [u8]>),
        input: &Format,
        interpreter: &mut Interpreter,
        mut failed: impl FnMut(&'r [u8], EvalError),
        mut made: impl FnMut(&[&[u8]]),
    ) {
        if count < FEW || self.by_value.is_some() || !self.variable.is_empty() {
            return records.for_each(|record| match self.make(record, input, interpreter) {
                Ok(row) => made(&[row]),
                Err(error) => failed(record, error),
            });
        }
        let row_bytes = self.blank.len();
        let mut chunk: [&[u8]; CHUNK_RECORDS] = [&[]; CHUNK_RECORDS];
        loop {
            let mut filled = 0;
            for (place, record) in chunk.iter_mut().take(self.chunk_records).zip(records.by_ref()) {
                *place = record;
                filled += 1;
            }
            let chunk = chunk.get(..filled).unwrap_or_default();
            let length = filled * row_bytes;
            let (Some(rows), Some(blanks)) = (self.rows.get_mut(..length), self.blanks.get(..length)) else { return };
            rows.copy_from_slice(blanks);
            if chunk.is_empty() {
                return;
            }
            self.moves.run_all(chunk, rows);
            let (mut whole, mut count): ([&[u8]; CHUNK_RECORDS], _) = ([&[]; CHUNK_RECORDS], 0);
            for (record, row) in chunk.iter().zip(rows.chunks_exact_mut(row_bytes.max(1))) {
                match self.computed.iter().try_for_each(|field| field.compute(record, row, input, interpreter)) {
                    Ok(()) => {
                        whole.get_mut(count).into_iter().for_each(|place| *place = row);
                        count += 1;
                    }
                    Err(error) => failed(record, error),
                }
            }
            if count > 0 {
                made(whole.get(..count).unwrap_or_default());
            }
        }
    }

    #[inline]
    fn make_row(&mut self, record: &[u8], input: &Format, interpreter: &mut Interpreter) -> Result<(), EvalError> {
        let row = &mut self.row;
        row.clear();
        row.extend_from_slice(&self.blank);
        self.moves.run(record, row);
        for field in &self.computed {
            field.compute(record, row, input, interpreter)?;
        }
        if self.variable.is_empty() {
            return Ok(());
        }
        for field in &self.variable {
            match field {
                Variable::Copied { from, to } if is_null(record, *from) => set_null(row, *to),
                Variable::Copied { from, to } => append(row, *to, slot_text(record, from.at))?,
                Variable::Computed(Computed { expr, to }) => {
                    let record = Record::assume_checked(input, record);
                    match interpreter.value(expr, &record)? {
                        Value::Text(bytes) | Value::Bytes(bytes) => append(row, *to, bytes)?,
                        value => store(row, *to, expr.ty, value)?,
                    }
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

impl Computed {
    /// Whether it is the same in all rows, and not null.
    fn is_constant(&self) -> bool {
        matches!(&self.expr.node, Node::Const(value) if *value != Constant::Null)
    }

    /// Computes the field of the fixed part of a row.
    #[inline]
    fn compute(
        &self,
        record: &[u8],
        row: &mut [u8],
        input: &Format,
        interpreter: &mut Interpreter,
    ) -> Result<(), EvalError> {
        let record = Record::assume_checked(input, record);
        store(row, self.to, self.expr.ty, interpreter.value(&self.expr, &record)?)
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
            FieldType::Enum { .. } => !from.is_some_and(Field::is_plain),
            _ => false,
        }
    })
}

#[inline]
pub(crate) fn set_null(row: &mut [u8], place: FieldPosition) {
    debug_assert!(place.null_byte < row.len(), "{OF_FIELDS}");
    if let Some(byte) = row.get_mut(place.null_byte) {
        *byte |= place.null_mask;
    }
}

/// Appends text or bytes to the row, and writes their place into the slot.
#[inline]
pub(crate) fn append(row: &mut Vec<u8>, to: FieldPosition, text: &[u8]) -> Result<(), EvalError> {
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
fn put<const N: usize>(row: &mut [u8], to: FieldPosition, value: [u8; N]) {
    debug_assert!(to.at + N <= row.len(), "{OF_FIELDS}");
    if let Some(place) = row.get_mut(to.at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value;
    }
}

/// Stores a computed value, which has the field's type but, for whole numbers, still needs to fit.
fn store(row: &mut [u8], to: FieldPosition, ty: FieldType, value: Value<'_>) -> Result<(), EvalError> {
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
        // An expression's decimals have the scale of its type.
        (Value::Decimal { unscaled, .. }, FieldType::Decimal { bytes, .. }) => match bytes {
            4 => put(row, to, fit::<i32, _>(unscaled)?.to_le_bytes()),
            8 => put(row, to, fit::<i64, _>(unscaled)?.to_le_bytes()),
            _ => put(row, to, unscaled.to_le_bytes()),
        },
        (Value::Timestamp(value), FieldType::Timestamp) => put(row, to, value.to_le_bytes()),
        (Value::Text(text), FieldType::Char(room)) if text.len() <= room.into() && text.last() != Some(&0) => {
            debug_assert!(to.at + text.len() <= row.len(), "{OF_FIELDS}");
            if let Some(place) = row.get_mut(to.at..to.at + text.len()) {
                place.copy_from_slice(text);
            }
        }
        _ => return Err(EvalError::IllTyped),
    }
    Ok(())
}

fn fit<N: TryFrom<W>, W>(value: W) -> Result<N, EvalError> {
    N::try_from(value).map_err(|_| EvalError::OutOfRange)
}
