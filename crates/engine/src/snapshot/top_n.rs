//! The rows of a query with `ORDER BY … LIMIT n`, in order: all for which the condition holds, or, of a snapshot without changes, the
//! first ones.

use crossdock_format::{Format, Record, Value};
use crossdock_query::{EvalError, Interpreter, MAX_ORDERED_ROW_BYTES, SortDirection, TopNProgram};

use super::plan_of;
use crate::key::of_f64;
use crate::project::RowPlan;
use crate::stateful::Ranked;
use crate::warm::WarmPiece;

/// The bytes before a value: those of null stand before or behind all others.
const NULL_FIRST: u8 = 0;
const VALUE: u8 = 1;
const NULL_LAST: u8 = 2;

/// The rows.
#[derive(Debug)]
pub(super) struct TopN {
    pub(super) program: TopNProgram,
    keep: RowPlan,
    order: RowPlan,
    /// The columns of the key in what is kept of a row.
    kept_key: Vec<usize>,
    ranked: Ranked,
    /// There was no room for a row.
    is_full: bool,
    /// The order of a row as bytes: its values of `ORDER BY`, then its key.
    key: Vec<u8>,
    /// The kept columns of the row that is to be put in.
    pub(super) row: Vec<u8>,
    /// The same of the one that was taken out last.
    pub(super) gone: Vec<u8>,
}

impl TopN {
    pub(super) fn of(program: &TopNProgram) -> TopN {
        let kept = |column: &usize| {
            let field = program.keep.input.fields().get(*column)?;
            program.keep.output.field(&field.name)
        };
        TopN {
            kept_key: program.key.iter().filter_map(kept).collect(),
            keep: plan_of(&program.keep),
            order: plan_of(&program.order),
            ranked: Ranked::bounded(program.max_bytes),
            is_full: false,
            key: Vec::new(),
            row: Vec::new(),
            gone: Vec::new(),
            program: program.clone(),
        }
    }

    /// How many rows the query gives at most.
    pub(super) fn limit(&self) -> usize {
        self.program.limit as usize
    }

    /// How many bytes are in use.
    pub(super) fn used(&self) -> usize {
        self.ranked.used()
    }

    /// Whether the rows take more than they may.
    pub(super) fn is_too_large(&self) -> bool {
        self.is_full || self.used() > self.program.max_bytes
    }

    /// Takes all rows out.
    pub(super) fn take_rows(&mut self) -> Ranked {
        std::mem::take(&mut self.ranked)
    }

    /// Has these rows from now on.
    pub(super) fn set_rows(&mut self, rows: Ranked) {
        self.ranked = rows;
    }

    /// Lets all rows go.
    pub(super) fn clear(&mut self) {
        (self.ranked, self.is_full) = (Ranked::bounded(self.program.max_bytes), false);
    }

    /// The row behind this number of others.
    pub(super) fn at(&self, rank: usize) -> Option<&[u8]> {
        self.ranked.at(rank)
    }

    /// The stream's key of each of the first rows, in their order.
    pub(super) fn first_keys(&self) -> Vec<Vec<u8>> {
        let key_of = |row: &[u8]| {
            let mut key = Vec::new();
            append_key(row, &self.program.keep.output, &self.kept_key, &mut key);
            key
        };
        (0..self.limit()).map_while(|rank| self.at(rank)).map(key_of).collect()
    }

    /// Takes the row of a record out. Its rank, if it is there: [`TopN::limit`] stands for all that are not among the first.
    pub(super) fn remove(&mut self, record: &[u8], interpreter: &mut Interpreter) -> Option<usize> {
        // Without its values it has not been put in.
        self.read_key(record, interpreter).ok()?;
        let most = self.limit();
        self.ranked.remove(&self.key, &mut self.gone, most)
    }

    /// Makes what a row of the state is put in order by, and what is kept of it.
    pub(super) fn read(&mut self, record: &[u8], interpreter: &mut Interpreter) -> Result<(), EvalError> {
        self.read_key(record, interpreter)?;
        self.row.clear();
        self.row.extend_from_slice(self.keep.make(record, &self.program.keep.input, interpreter)?);
        if self.row.len() + self.key.len() > MAX_ORDERED_ROW_BYTES { Err(EvalError::RecordTooLong) } else { Ok(()) }
    }

    /// Puts in what was read last; its rank, if there was room for it.
    pub(super) fn insert(&mut self) -> Option<usize> {
        let most = self.limit();
        let rank = self.ranked.insert(&self.key, &self.row, most);
        self.is_full |= rank.is_none();
        rank
    }

    /// Keeps no more than the first rows.
    pub(super) fn keep_first(&mut self) {
        while self.ranked.len() > self.limit() {
            self.ranked.remove_last();
        }
    }

    pub(super) fn warm(&mut self, piece: &mut WarmPiece) {
        self.keep.warm(piece);
        self.order.warm(piece);
    }

    fn read_key(&mut self, record: &[u8], interpreter: &mut Interpreter) -> Result<(), EvalError> {
        let TopN { program, order, key, .. } = self;
        let input = &program.order.input;
        key.clear();
        let values = order.make(record, input, interpreter)?;
        let values = Record::assume_checked(&program.order.output, values);
        for (index, direction) in program.directions.iter().enumerate() {
            append(&values.get(index), *direction, key);
        }
        append_key(record, input, &program.key, key);
        Ok(())
    }
}

/// Ties are broken by the key.
fn append_key(record: &[u8], format: &Format, columns: &[usize], key: &mut Vec<u8>) {
    let record = Record::assume_checked(format, record);
    let direction = SortDirection { descending: false, nulls_first: false };
    columns.iter().for_each(|column| append(&record.get(*column), direction, key));
}

/// Writes a value, as bytes that stand in the order of the values of its type.
pub(crate) fn append(value: &Value<'_>, direction: SortDirection, key: &mut Vec<u8>) {
    let begin = key.len() + 1;
    key.push(VALUE);
    match value {
        Value::Int(value) | Value::Timestamp(value) => key.extend_from_slice(&ordered(*value)),
        Value::Uint(value) => key.extend_from_slice(&value.to_be_bytes()),
        Value::Bool(value) => key.push(u8::from(*value)),
        Value::Float(value) => key.extend_from_slice(&ordered(of_f64(*value))),
        // Those of a column have one scale.
        Value::Decimal { unscaled, .. } => key.extend_from_slice(&(unscaled ^ i128::MIN).to_be_bytes()),
        Value::Text(text) | Value::Bytes(text) => append_text(text, key),
        Value::Enum { symbol: Some(symbol), .. } => append_text(symbol.as_bytes(), key),
        Value::Enum { symbol: None, .. } | Value::Null | Value::List(_) | Value::Record(_) => {
            let null = if direction.nulls_first { NULL_FIRST } else { NULL_LAST };
            key.last_mut().into_iter().for_each(|mark| *mark = null);
            return;
        }
    }
    if direction.descending {
        key.iter_mut().skip(begin).for_each(|byte| *byte = !*byte);
    }
}

/// A text with an end that is less than all that may follow: 0 is written as 0, 255, and the end as 0, 0.
fn append_text(text: &[u8], key: &mut Vec<u8>) {
    for (number, part) in text.split(|byte| *byte == 0).enumerate() {
        if number > 0 {
            key.extend_from_slice(&[0, u8::MAX]);
        }
        key.extend_from_slice(part);
    }
    key.extend_from_slice(&[0, 0]);
}

/// A number whose bytes stand in the order of numbers.
fn ordered(value: i64) -> [u8; 8] {
    ((value as u64) ^ (1 << 63)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn key(values: &[Value<'_>], direction: SortDirection) -> Vec<u8> {
        let mut key = Vec::new();
        values.iter().for_each(|value| append(value, direction, &mut key));
        key
    }

    /// The order of two values of a column as PostgreSQL has it.
    fn compared(one: &Value<'_>, other: &Value<'_>, direction: SortDirection) -> Ordering {
        let turned = |order: Ordering| if direction.descending { order.reverse() } else { order };
        let nulls = if direction.nulls_first { Ordering::Less } else { Ordering::Greater };
        match (one, other) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => nulls,
            (_, Value::Null) => nulls.reverse(),
            (Value::Int(one), Value::Int(other)) => turned(one.cmp(other)),
            (Value::Float(one), Value::Float(other)) => turned(match (one.is_nan(), other.is_nan()) {
                (false, false) => one.partial_cmp(other).unwrap(),
                (one, other) => one.cmp(&other),
            }),
            (Value::Decimal { unscaled: one, .. }, Value::Decimal { unscaled: other, .. }) => turned(one.cmp(other)),
            (Value::Text(one), Value::Text(other)) => turned(one.cmp(other)),
            (Value::Bool(one), Value::Bool(other)) => turned(one.cmp(other)),
            other => panic!("{other:?}"),
        }
    }

    /// Values of five columns.
    type Row = (Option<i64>, Option<f64>, Option<i128>, Option<Vec<u8>>, Option<bool>);

    fn rows() -> impl Strategy<Value = Row> {
        let whole = prop_oneof![Just(i64::MIN), Just(i64::MAX), -2..3i64];
        let float = prop_oneof![
            prop::sample::select(vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.5, -1.5]),
            any::<f64>(),
        ];
        let decimal = prop_oneof![Just(i128::MIN), Just(i128::MAX), -2..3i128];
        let text = prop::collection::vec(prop::sample::select(vec![0u8, 1, 97, 255]), 0..4);
        let of = |weight: f64| prop::option::weighted(weight, Just(()));
        (of(0.8), whole, of(0.8), float, of(0.8), decimal, of(0.8), text, of(0.8), any::<bool>()).prop_map(
            |(a, whole, b, float, c, decimal, d, text, e, truth)| {
                (a.map(|()| whole), b.map(|()| float), c.map(|()| decimal), d.map(|()| text), e.map(|()| truth))
            },
        )
    }

    fn values((whole, float, decimal, text, truth): &Row) -> [Value<'_>; 5] {
        [
            text.as_deref().map_or(Value::Null, Value::Text),
            whole.map_or(Value::Null, Value::Int),
            float.map_or(Value::Null, Value::Float),
            decimal.map_or(Value::Null, |unscaled| Value::Decimal { unscaled, scale: 2 }),
            truth.map_or(Value::Null, Value::Bool),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn bytes_stand_in_the_order_of_the_values(
            one in rows(), other in rows(), descending in any::<bool>(), nulls_first in any::<bool>(),
        ) {
            let direction = SortDirection { descending, nulls_first };
            let (one, other) = (values(&one), values(&other));
            let mut wanted = Ordering::Equal;
            for (one, other) in one.iter().zip(&other) {
                wanted = wanted.then_with(|| compared(one, other, direction));
                let alone = key(&[*one], direction).cmp(&key(&[*other], direction));
                prop_assert_eq!(alone, compared(one, other, direction));
            }
            prop_assert_eq!(key(&one, direction).cmp(&key(&other, direction)), wanted);
        }
    }
}
