//! The aggregates of a group: slots of a fixed layout in one piece of memory, in which zeros are a group without rows.

mod correct;
mod numbers;
mod saved;

use std::cmp::Ordering;

use crossdock_format::{Field, FieldType, Format, Record, Value};
use crossdock_query::{Aggregate, AggregateFunction, EvalError};

use super::arena::{Arena, MOST_LOOSE};
use super::cell::{Cell, compare, compare_exactly, load, plain, store};
use super::distinct::Distinct;
use super::multiset::Multiset;
use super::sketch::{Quantiles, Registers};
use super::texts::{Joined, Texts, list_format};
use super::word::WordColumn;
use numbers::{deviation, integer, mean, number, units, whole};

/// The slots of a group's aggregates. A slot begins with the number of values that count; the highest bit is for [`SPECIAL`].
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// The bytes of all slots together.
    bytes: usize,
    /// Whether the order of rows is that of arrival, so that of two equal ones the first is known.
    by_arrival: bool,
    /// Whether rows are taken out again.
    corrects: bool,
}

/// The memory besides the slots.
#[derive(Debug, Default)]
pub(super) struct Stores {
    pub(super) arena: Arena,
    pub(super) distinct: Distinct,
    /// The values that may be taken out again.
    pub(super) values: Multiset,
    /// The text of a result.
    joined: Joined,
    /// The values of a set that is added to another.
    moved: Vec<u8>,
}

impl Stores {
    /// Empty ones.
    pub(super) fn of(distinct: Distinct, values: Multiset) -> Stores {
        Stores { distinct, values, ..Stores::default() }
    }

    /// How many bytes are in use.
    pub(super) fn used(&self) -> usize {
        self.arena.used() + self.distinct.used() + self.values.used() + self.buffers()
    }

    /// The bytes of the memory that is kept for the next result, beyond [`MOST_LOOSE`].
    fn buffers(&self) -> usize {
        (self.joined.taken() + self.moved.capacity()).saturating_sub(MOST_LOOSE)
    }

    /// Gives that memory back if it is much beside what is in use, so that nothing is forgotten for it. Whether it was.
    pub(super) fn release(&mut self) -> bool {
        let is_much = self.buffers() > (self.arena.used() + self.distinct.used()) / 8;
        if is_much {
            (self.joined, self.moved) = (Joined::default(), Vec::new());
        }
        is_much
    }
}

#[derive(Debug)]
struct Slot {
    at: usize,
    kind: AccumulatorKind,
    arguments: [Option<usize>; 2],
    filter: Option<usize>,
    /// The set of the values that counted, whose head stands in front of the slot.
    distinct: Option<usize>,
    /// The type of the result.
    ty: FieldType,
    /// Of a list: the format of a record whose only column it is.
    list: Option<Format>,
    /// Of a sum: the place of the values, if one load reads them and all of them count.
    word: Option<WordColumn>,
}

#[derive(Clone, Copy, Debug)]
enum AccumulatorKind {
    Count,
    /// The sum of whole numbers or decimals, in units, and how often it left the range upwards less how often downwards: an overflow on
    /// the way changes nothing.
    Whole {
        scale: u8,
        is_mean: bool,
        /// Whether it can leave the range: that of decimals, where no number of 64-bit values can.
        is_wide: bool,
    },
    /// The sum of floats, and what rounding took from it.
    Float {
        is_mean: bool,
    },
    /// Mean, and sum of the squares of the distances from it.
    Moments {
        is_sample: bool,
        is_root: bool,
    },
    /// Least or greatest.
    Extreme {
        cell: Cell,
        wanted: Ordering,
    },
    /// Of the row whose order is least or greatest.
    Edge {
        cell: Cell,
        wanted: Ordering,
    },
    /// By another value.
    Arg {
        cell: Cell,
        by: Cell,
        wanted: Ordering,
    },
    /// How many are TRUE.
    Truth {
        of_all: bool,
    },
    Registers,
    Quantile(f64),
    Texts,
    Values {
        cell: Cell,
    },
    /// Least or greatest of the values that are kept in order, so that they can be taken out again: by the aggregate's number.
    Ordered {
        wanted: Ordering,
        number: u16,
    },
    /// A sum of floats that can be taken out again: besides, how many are NaN, and of both infinities.
    FloatBag {
        is_mean: bool,
    },
    /// The same of moments: besides, how many values are not finite.
    MomentBag {
        is_sample: bool,
        is_root: bool,
    },
}

/// A sum or a deviation of floats with an infinity or NaN among them; texts that are too long together.
const SPECIAL: u64 = 1 << 63;

impl Slots {
    /// The slots for aggregates of rows of this format.
    ///
    /// # Errors
    /// In words: an aggregate does not fit its column.
    pub(super) fn of(aggregates: &[Aggregate], input: &Format, by_arrival: bool) -> Result<Slots, String> {
        Slots::of_kind(aggregates, input, (by_arrival, false))
    }

    fn of_kind(
        aggregates: &[Aggregate],
        input: &Format,
        (by_arrival, corrects): (bool, bool),
    ) -> Result<Slots, String> {
        let mut slots = Slots { slots: Vec::with_capacity(aggregates.len()), bytes: 0, by_arrival, corrects };
        for aggregate in aggregates {
            let mut arguments = [None; 2];
            arguments.iter_mut().zip(&aggregate.arguments).for_each(|(place, argument)| *place = Some(*argument));
            let field = |number: usize| arguments[number].and_then(|index| input.fields().get(index));
            let kind = AccumulatorKind::of(aggregate.function, field(0), field(1))?;
            let kind = if corrects { kind.correcting(slots.slots.len())? } else { kind };
            let distinct = match arguments[0] {
                Some(index) if aggregate.distinct && kind.counts_each() => Some(index),
                _ => None,
            };
            let at = slots.bytes + if distinct.is_some() { 8 } else { 0 };
            slots.bytes = at + kind.size();
            let list = match kind {
                AccumulatorKind::Values { .. } => field(0).map(list_format).transpose()?,
                _ => None,
            };
            let (filter, ty) = (aggregate.filter, aggregate.ty);
            let word = match (kind, distinct) {
                (AccumulatorKind::Whole { .. }, None) => arguments[0].and_then(|column| WordColumn::of(input, column)),
                _ => None,
            };
            slots.slots.push(Slot { at, kind, arguments, filter, distinct, ty, list, word });
        }
        Ok(slots)
    }

    /// The set of the values of each aggregate that counts different ones.
    pub(super) fn distinct(&self, input: &Format) -> Result<Distinct, String> {
        Distinct::of(input, self.slots.iter().map(|slot| slot.distinct))
    }

    /// The bytes of a group's slots.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a row. `order` is its time, or its number where that is the order; `owner` the group, by a number of its own.
    #[inline]
    pub(super) fn update(&self, group: &mut [u8], stores: &mut Stores, owner: u32, row: &Record<'_>, order: i64) {
        for (number, slot) in self.slots.iter().enumerate() {
            if slot.filter.is_some_and(|filter| row.get(filter) != Value::Bool(true)) {
                continue;
            }
            let Some(first) = slot.arguments[0] else {
                let count = count(group, slot.at);
                store(group, slot.at, (count + 1).to_le_bytes());
                continue;
            };
            if let Some(word) = slot.word {
                word.get(row.bytes()).into_iter().for_each(|units| slot.add_whole(group, (units.into(), 0), 1));
                continue;
            }
            let value = plain(row.get(first));
            if value.is_null() {
                continue;
            }
            let second = slot.arguments[1].map_or(Value::Null, |index| plain(row.get(index)));
            if slot.distinct.is_some() && !stores.distinct.enter(group, slot.at - 8, number, owner, &value) {
                continue;
            }
            // Different values have no order but their own.
            let order = if slot.distinct.is_some() { 0 } else { order };
            slot.add(group, stores, &value, &second, order, self.by_arrival);
        }
    }

    /// Adds a row to one aggregate that counts equal values each. `arguments` are those of the row, which passes its condition.
    #[inline]
    pub(super) fn add(
        &self,
        number: usize,
        group: &mut [u8],
        stores: &mut Stores,
        [first, second]: &[Option<Value<'_>>; 2],
        order: i64,
    ) {
        let Some(slot) = self.slots.get(number) else { return };
        match first {
            None => store(group, slot.at, (count(group, slot.at) + 1).to_le_bytes()),
            Some(value) if value.is_null() => {}
            Some(value) => {
                slot.add(group, stores, value, second.as_ref().unwrap_or(&Value::Null), order, self.by_arrival);
            }
        }
    }

    /// Whether the slots keep nothing elsewhere, so that a copy of their bytes is one of the group.
    pub(super) fn are_plain(&self) -> bool {
        let is_number = |cell: Cell| !matches!(cell, Cell::Text | Cell::Bytes);
        self.slots.iter().all(|slot| match slot.kind {
            _ if slot.distinct.is_some() => false,
            AccumulatorKind::Extreme { cell, .. } | AccumulatorKind::Edge { cell, .. } => is_number(cell),
            AccumulatorKind::Arg { cell, by, .. } => is_number(cell) && is_number(by),
            AccumulatorKind::Count
            | AccumulatorKind::Whole { .. }
            | AccumulatorKind::Float { .. }
            | AccumulatorKind::Moments { .. }
            | AccumulatorKind::Truth { .. } => true,
            _ => false,
        })
    }

    /// Whether rows can be taken out of all aggregates again, so that what is left is as if they had not been there.
    pub(super) fn can_retract(&self) -> bool {
        self.slots.iter().all(|slot| matches!(slot.kind, AccumulatorKind::Count | AccumulatorKind::Whole { .. }))
    }

    /// Takes a row out of one aggregate again.
    #[inline]
    pub(super) fn retract(&self, number: usize, group: &mut [u8], [first, _]: &[Option<Value<'_>>; 2]) {
        let Some(slot) = self.slots.get(number) else { return };
        if first.as_ref().is_some_and(Value::is_null) {
            return;
        }
        if let (AccumulatorKind::Whole { is_wide, .. }, Some(value)) = (slot.kind, first) {
            let (units, at) = (whole(value), slot.at + 8);
            let (sum, is_over) = i128::from_le_bytes(load(group, at)).overflowing_sub(units);
            store(group, at, sum.to_le_bytes());
            if is_wide {
                let turn = if is_over { if units < 0 { 1 } else { -1 } } else { 0 };
                let turns = i64::from_le_bytes(load(group, at + 16)) + turn;
                store(group, at + 16, turns.to_le_bytes());
            }
        }
        store(group, slot.at, count(group, slot.at).saturating_sub(1).to_le_bytes());
    }

    /// The result of one aggregate.
    ///
    /// # Errors
    /// It does not fit its type.
    #[inline]
    pub(super) fn result<'v>(
        &'v self,
        number: usize,
        group: &'v [u8],
        stores: &'v mut Stores,
    ) -> Result<Value<'v>, EvalError> {
        self.slots.get(number).map_or(Ok(Value::Null), |slot| slot.result(group, stores))
    }

    /// Adds the rows of another group.
    pub(super) fn merge(&self, into: &mut [u8], owner: u32, from: &[u8], stores: &mut Stores) {
        for (number, slot) in self.slots.iter().enumerate() {
            if slot.distinct.is_some() {
                self.merge_distinct(number, slot, (into, owner), from, stores);
            } else if count(from, slot.at) > 0 {
                slot.merge(into, from, stores, self.by_arrival);
            }
        }
    }

    fn merge_distinct(
        &self,
        number: usize,
        slot: &Slot,
        (into, owner): (&mut [u8], u32),
        from: &[u8],
        stores: &mut Stores,
    ) {
        let mut next = stores.distinct.first(from, slot.at - 8);
        let mut bytes = std::mem::take(&mut stores.moved);
        if matches!(slot.kind, AccumulatorKind::Texts) {
            Texts::adopt_separator(into, from, slot.at + 8, &mut stores.arena, &mut bytes);
        }
        let columns = stores.distinct.take_columns();
        while let Some(entry) = next {
            next = stores.distinct.copy(entry, &mut bytes);
            if stores.distinct.enter_bytes(into, slot.at - 8, number, owner, &bytes)
                && let Some(Some(columns)) = columns.get(number)
            {
                columns.values(&bytes, |_, value| slot.add(into, stores, &value, &Value::Null, 0, self.by_arrival));
            }
        }
        stores.distinct.put_columns(columns);
        stores.moved = bytes;
    }

    /// Lets go of what the slots keep elsewhere; they are zeros then.
    pub(super) fn clear(&self, group: &mut [u8], stores: &mut Stores) {
        for (number, slot) in self.slots.iter().enumerate() {
            if self.corrects {
                slot.let_values_go(number, group, stores);
            } else if slot.distinct.is_some() {
                stores.distinct.clear(group, slot.at - 8);
            }
            slot.kind.clear(group, slot.at, &mut stores.arena);
        }
        group.fill(0);
    }

    /// Hands over the results.
    ///
    /// # Errors
    /// One does not fit its type, or was refused.
    pub(super) fn results(
        &self,
        group: &[u8],
        stores: &mut Stores,
        mut each: impl FnMut(usize, Value<'_>) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        self.slots.iter().enumerate().try_for_each(|(number, slot)| each(number, slot.result(group, stores)?))
    }
}

fn count(group: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(load(group, at))
}

fn float(group: &[u8], at: usize) -> f64 {
    f64::from_le_bytes(load(group, at))
}

impl AccumulatorKind {
    fn of(
        function: AggregateFunction,
        first: Option<&Field>,
        second: Option<&Field>,
    ) -> Result<AccumulatorKind, String> {
        let cell = |field: Option<&Field>| {
            field.and_then(|field| Cell::of(field.ty)).ok_or("an aggregate has no column, or a list".to_owned())
        };
        let sum = |is_mean| match cell(first)? {
            Cell::Int | Cell::Uint => Ok(AccumulatorKind::Whole { scale: 0, is_mean, is_wide: false }),
            Cell::Decimal { scale } => Ok(AccumulatorKind::Whole { scale, is_mean, is_wide: true }),
            Cell::Float => Ok(AccumulatorKind::Float { is_mean }),
            _ => Err("a sum is of numbers".to_owned()),
        };
        use AggregateFunction as F;
        Ok(match function {
            F::Count => AccumulatorKind::Count,
            F::Sum => sum(false)?,
            F::Avg => sum(true)?,
            F::Min => AccumulatorKind::Extreme { cell: cell(first)?, wanted: Ordering::Less },
            F::Max => AccumulatorKind::Extreme { cell: cell(first)?, wanted: Ordering::Greater },
            F::StddevSamp => AccumulatorKind::Moments { is_sample: true, is_root: true },
            F::StddevPop => AccumulatorKind::Moments { is_sample: false, is_root: true },
            F::VarSamp => AccumulatorKind::Moments { is_sample: true, is_root: false },
            F::VarPop => AccumulatorKind::Moments { is_sample: false, is_root: false },
            F::First => AccumulatorKind::Edge { cell: cell(first)?, wanted: Ordering::Less },
            F::Last => AccumulatorKind::Edge { cell: cell(first)?, wanted: Ordering::Greater },
            F::ArgMax => AccumulatorKind::Arg { cell: cell(first)?, by: cell(second)?, wanted: Ordering::Greater },
            F::ArgMin => AccumulatorKind::Arg { cell: cell(first)?, by: cell(second)?, wanted: Ordering::Less },
            F::BoolAnd => AccumulatorKind::Truth { of_all: true },
            F::BoolOr => AccumulatorKind::Truth { of_all: false },
            F::ApproxCountDistinct => AccumulatorKind::Registers,
            F::ApproxQuantile(part) => AccumulatorKind::Quantile(part),
            F::StringAgg => AccumulatorKind::Texts,
            F::ArrayAgg => AccumulatorKind::Values { cell: cell(first)? },
        })
    }

    fn size(self) -> usize {
        8 + match self {
            AccumulatorKind::Count => 0,
            AccumulatorKind::Whole { is_wide, .. } => 16 + if is_wide { 8 } else { 0 },
            AccumulatorKind::Float { .. } | AccumulatorKind::Moments { .. } => 16,
            AccumulatorKind::Extreme { cell, .. } => cell.size(),
            AccumulatorKind::Edge { cell, .. } => 8 + cell.size(),
            AccumulatorKind::Arg { cell, by, .. } => 8 + cell.size() + by.size(),
            AccumulatorKind::Truth { .. } => 8,
            AccumulatorKind::Registers => Registers::SIZE,
            AccumulatorKind::Quantile(_) => Quantiles::SIZE,
            AccumulatorKind::Texts | AccumulatorKind::Values { .. } => Texts::SIZE,
            AccumulatorKind::Ordered { .. } => 8,
            AccumulatorKind::FloatBag { .. } => 40,
            AccumulatorKind::MomentBag { .. } => 24,
        }
    }

    /// Whether it is a sum that can leave its range.
    #[inline]
    fn is_wide(self) -> bool {
        matches!(self, AccumulatorKind::Whole { is_wide: true, .. })
    }

    /// Whether the result changes with a value that was there before.
    fn counts_each(self) -> bool {
        matches!(
            self,
            AccumulatorKind::Count
                | AccumulatorKind::Whole { .. }
                | AccumulatorKind::Float { .. }
                | AccumulatorKind::Moments { .. }
                | AccumulatorKind::Quantile(_)
                | AccumulatorKind::Texts
                | AccumulatorKind::Values { .. }
                | AccumulatorKind::FloatBag { .. }
                | AccumulatorKind::MomentBag { .. }
        )
    }

    fn clear(self, group: &mut [u8], at: usize, arena: &mut Arena) {
        let at = at + 8;
        match self {
            AccumulatorKind::Extreme { cell, .. } => cell.clear(group, at, arena),
            AccumulatorKind::Edge { cell, .. } => cell.clear(group, at + 8, arena),
            AccumulatorKind::Arg { cell, by, .. } => {
                by.clear(group, at + 8, arena);
                cell.clear(group, at + 8 + by.size(), arena);
            }
            AccumulatorKind::Registers => Registers::clear(group, at, arena),
            AccumulatorKind::Quantile(_) => Quantiles::clear(group, at, arena),
            AccumulatorKind::Texts | AccumulatorKind::Values { .. } => Texts::clear(group, at, arena),
            _ => {}
        }
    }
}

impl Slot {
    /// Adds a value that is not null.
    #[inline]
    fn add(
        &self,
        group: &mut [u8],
        stores: &mut Stores,
        value: &Value<'_>,
        second: &Value<'_>,
        order: i64,
        by_arrival: bool,
    ) {
        let (word, at) = (count(group, self.at), self.at + 8);
        let (before, mut special) = (word & !SPECIAL, word & SPECIAL);
        let arena = &mut stores.arena;
        match self.kind {
            AccumulatorKind::Count | AccumulatorKind::Ordered { .. } => {}
            AccumulatorKind::Whole { .. } => return self.add_whole(group, (whole(value), 0), 1),
            AccumulatorKind::Float { .. } => {
                return self.add_float(group, number(value), 0.0, u64::from(!number(value).is_finite()) * SPECIAL + 1);
            }
            AccumulatorKind::Moments { .. } => {
                let (mean, squares, value) = (float(group, at), float(group, at + 8), number(value));
                let distance = value - mean;
                let mean = mean + distance / (before + 1) as f64;
                store(group, at, mean.to_le_bytes());
                store(group, at + 8, (squares + distance * (value - mean)).to_le_bytes());
                special |= if value.is_finite() { 0 } else { SPECIAL };
            }
            AccumulatorKind::Extreme { cell, wanted } => {
                if before == 0 || compare_exactly(value, &cell.value(group, at, arena)) == wanted {
                    cell.set(group, at, arena, value);
                }
            }
            AccumulatorKind::Edge { cell, wanted } => {
                if before == 0 || self.comes_before(group, arena, (at, cell), (order, value), wanted, by_arrival) {
                    store(group, at, order.to_le_bytes());
                    cell.set(group, at + 8, arena, value);
                }
            }
            AccumulatorKind::Arg { cell, by, wanted } => {
                if second.is_null() {
                    return;
                }
                let is_better = before == 0
                    || is_better((group, at), (cell, by, wanted), (value, second, order), arena, by_arrival);
                if is_better {
                    store(group, at, order.to_le_bytes());
                    by.set(group, at + 8, arena, second);
                    cell.set(group, at + 8 + by.size(), arena, value);
                }
            }
            AccumulatorKind::Truth { .. } if *value != Value::Bool(true) => {}
            AccumulatorKind::Truth { .. } => store(group, at, (count(group, at) + 1).to_le_bytes()),
            AccumulatorKind::Registers => Registers::add(group, at, arena, value),
            AccumulatorKind::Quantile(_) => Quantiles::add(group, at, arena, number(value), 1),
            AccumulatorKind::Texts | AccumulatorKind::Values { .. } => {
                let mut raw = [0; 16];
                let value = match self.list {
                    Some(_) => Value::Bytes(Cell::raw(value, self.distinct.is_some(), &mut raw)),
                    None => *value,
                };
                if special == 0 && !Texts::add(group, at, arena, (order, before), &value, second) {
                    Texts::clear(group, at, arena);
                    special = SPECIAL;
                }
            }
            AccumulatorKind::FloatBag { .. } => return self.put_into_bag(group, number(value)),
            AccumulatorKind::MomentBag { .. } => return self.put_into_moments(group, number(value)),
        }
        store(group, self.at, ((before + 1) | special).to_le_bytes());
    }

    /// Whether a row is before the one whose value the slot has, or behind it; of rows of one time the value decides, so that the
    /// order in which they came does not.
    fn comes_before(
        &self,
        group: &[u8],
        arena: &Arena,
        (at, cell): (usize, Cell),
        (order, value): (i64, &Value<'_>),
        wanted: Ordering,
        by_arrival: bool,
    ) -> bool {
        match order.cmp(&i64::from_le_bytes(load(group, at))) {
            Ordering::Equal if by_arrival => wanted == Ordering::Greater,
            Ordering::Equal => compare_exactly(value, &cell.value(group, at + 8, arena)) == wanted,
            ordering => ordering == wanted,
        }
    }

    fn add_whole(&self, group: &mut [u8], (units, more_turns): (i128, i64), rows: u64) {
        let (before, at) = (count(group, self.at), self.at + 8);
        let (sum, is_over) = i128::from_le_bytes(load(group, at)).overflowing_add(units);
        store(group, at, sum.to_le_bytes());
        if self.kind.is_wide() {
            let turn = if is_over { if units < 0 { -1 } else { 1 } } else { 0 };
            let turns = i64::from_le_bytes(load(group, at + 16)) + more_turns + turn;
            store(group, at + 16, turns.to_le_bytes());
        }
        store(group, self.at, (before + rows).to_le_bytes());
    }

    /// Adds a float, and what rounding took from it (by Neumaier): the result is the exact sum but for its last bits.
    fn add_float(&self, group: &mut [u8], value: f64, rest: f64, rows: u64) {
        let (before, at) = (count(group, self.at), self.at + 8);
        let (sum, lost) = (float(group, at), float(group, at + 8));
        let with = sum + value;
        let more = if sum.abs() >= value.abs() { (sum - with) + value } else { (value - with) + sum };
        store(group, at, with.to_le_bytes());
        store(group, at + 8, (lost + more + rest).to_le_bytes());
        let special = (before | rows) & SPECIAL;
        store(group, self.at, (((before & !SPECIAL) + (rows & !SPECIAL)) | special).to_le_bytes());
    }

    /// Adds the values of the same slot of another group, which has some.
    fn merge(&self, into: &mut [u8], from: &[u8], stores: &mut Stores, by_arrival: bool) {
        let (word, more_word, at) = (count(into, self.at), count(from, self.at), self.at + 8);
        let (before, more) = (word & !SPECIAL, more_word & !SPECIAL);
        let mut special = (word | more_word) & SPECIAL;
        match self.kind {
            AccumulatorKind::Whole { is_wide, .. } => {
                let turns = if is_wide { i64::from_le_bytes(load(from, at + 16)) } else { 0 };
                return self.add_whole(into, (i128::from_le_bytes(load(from, at)), turns), more);
            }
            AccumulatorKind::Float { .. } => {
                return self.add_float(into, float(from, at), float(from, at + 8), more_word);
            }
            AccumulatorKind::Moments { .. } => {
                let distance = float(from, at) - float(into, at);
                let (one, other) = (before as f64, more as f64);
                let mean = float(into, at) + distance * (other / (one + other));
                let squares = float(into, at + 8) + float(from, at + 8);
                store(into, at, mean.to_le_bytes());
                store(into, at + 8, (squares + distance * distance * (one * other / (one + other))).to_le_bytes());
            }
            AccumulatorKind::Extreme { cell, .. } => {
                return self.merge_cell(into, from, (at, cell), None, stores, by_arrival);
            }
            AccumulatorKind::Edge { cell, .. } => {
                return self.merge_cell(into, from, (at + 8, cell), None, stores, by_arrival);
            }
            AccumulatorKind::Arg { cell, by, .. } => {
                let place = (at + 8 + by.size(), cell);
                return self.merge_cell(into, from, place, Some((at + 8, by)), stores, by_arrival);
            }
            // Groups from which values are taken out again have no windows, and are not added up.
            AccumulatorKind::Ordered { .. } | AccumulatorKind::FloatBag { .. } | AccumulatorKind::MomentBag { .. } => {}
            AccumulatorKind::Count => {}
            AccumulatorKind::Truth { .. } => {
                let trues = count(into, at) + count(from, at);
                store(into, at, trues.to_le_bytes());
            }
            AccumulatorKind::Registers => Registers::merge(into, from, at, &mut stores.arena),
            AccumulatorKind::Quantile(_) => Quantiles::merge(into, from, at, &mut stores.arena),
            AccumulatorKind::Texts | AccumulatorKind::Values { .. } => {
                let (arena, copy) = (&mut stores.arena, &mut stores.moved);
                if special != 0 || !Texts::merge(into, from, at, (arena, copy), before) {
                    Texts::clear(into, at, arena);
                    special = SPECIAL;
                }
            }
        }
        store(into, self.at, ((before + more) | special).to_le_bytes());
    }

    /// Adds the value of a cell as one row's.
    fn merge_cell(
        &self,
        into: &mut [u8],
        from: &[u8],
        (at, cell): (usize, Cell),
        by: Option<(usize, Cell)>,
        stores: &mut Stores,
        by_arrival: bool,
    ) {
        let (before, more) = (count(into, self.at), count(from, self.at));
        let order = if matches!(self.kind, AccumulatorKind::Extreme { .. }) {
            0
        } else {
            i64::from_le_bytes(load(from, self.at + 8))
        };
        // The texts are copied out of the arena, which may have to move when another is put in.
        let mut copies = std::mem::take(&mut stores.moved);
        copies.clear();
        let value = cell.value(from, at, &stores.arena);
        let second = by.map_or(Value::Null, |(at, by)| by.value(from, at, &stores.arena));
        [value, second].iter().for_each(|value| {
            if let Value::Text(text) | Value::Bytes(text) = value {
                copies.extend_from_slice(text);
            }
        });
        let (value, rest) = copied(value, &copies);
        let (second, _) = copied(second, rest);
        self.add(into, stores, &value, &second, order, by_arrival);
        store(into, self.at, (before + more).to_le_bytes());
        stores.moved = copies;
    }

    fn result<'v>(&'v self, group: &'v [u8], stores: &'v mut Stores) -> Result<Value<'v>, EvalError> {
        let Stores { arena, values, joined, .. } = stores;
        let (word, at) = (count(group, self.at), self.at + 8);
        let rows = word & !SPECIAL;
        if let (AccumulatorKind::Values { cell }, Some(format)) = (self.kind, &self.list) {
            // Without values it is empty.
            return match word & SPECIAL {
                0 => Texts::list(group, at, arena, joined, (cell, format)),
                _ => Err(EvalError::RecordTooLong),
            };
        }
        if rows == 0 {
            return Ok(if matches!(self.kind, AccumulatorKind::Count) { integer(0, self.ty)? } else { Value::Null });
        }
        let is_special = word & SPECIAL != 0;
        Ok(match self.kind {
            AccumulatorKind::Count => integer(rows.into(), self.ty)?,
            AccumulatorKind::Whole { is_wide: true, .. } if load(group, at + 16) != [0; 8] => {
                return Err(EvalError::OutOfRange);
            }
            AccumulatorKind::Whole { scale, is_mean, .. } => {
                let sum = i128::from_le_bytes(load(group, at));
                if is_mean { mean(sum, scale, rows, self.ty)? } else { units(sum, scale, self.ty)? }
            }
            AccumulatorKind::Float { is_mean } => {
                let (sum, lost) = (float(group, at), float(group, at + 8));
                let sum = if (sum + lost).is_nan() || is_special { sum } else { sum + lost };
                if !sum.is_finite() && !is_special {
                    return Err(EvalError::OutOfRange);
                }
                Value::Float(if is_mean { sum / rows as f64 } else { sum })
            }
            AccumulatorKind::Moments { is_sample, is_root } => {
                return deviation((float(group, at + 8), rows), is_special, (is_sample, is_root));
            }
            AccumulatorKind::Extreme { cell, .. } => cell.value(group, at, arena),
            AccumulatorKind::Edge { cell, .. } => cell.value(group, at + 8, arena),
            AccumulatorKind::Arg { cell, by, .. } => cell.value(group, at + 8 + by.size(), arena),
            AccumulatorKind::Truth { of_all } => {
                let trues = count(group, at);
                Value::Bool(if of_all { trues == rows } else { trues > 0 })
            }
            AccumulatorKind::Registers => integer(Registers::estimate(group, at, arena).into(), self.ty)?,
            AccumulatorKind::Quantile(part) => Value::Float(Quantiles::estimate(group, at, arena, part)),
            AccumulatorKind::Texts if is_special => return Err(EvalError::TextTooLong),
            AccumulatorKind::Texts => Value::Text(Texts::join(group, at, arena, joined)),
            AccumulatorKind::Values { .. } => return Err(EvalError::IllTyped),
            AccumulatorKind::Ordered { .. } => self.of_ordered(group, values),
            AccumulatorKind::FloatBag { is_mean } => self.of_bag(group, rows, is_mean)?,
            AccumulatorKind::MomentBag { is_sample, is_root } => {
                return deviation((float(group, at + 8), rows), count(group, at + 16) > 0, (is_sample, is_root));
            }
        })
    }
}

/// Whether a value goes in the place of the one that is known, for the sake of the second one; of equal ones the first counts.
fn is_better(
    (group, at): (&[u8], usize),
    (cell, by, wanted): (Cell, Cell, Ordering),
    (value, second, order): (&Value<'_>, &Value<'_>, i64),
    arena: &Arena,
    by_arrival: bool,
) -> bool {
    match compare(second, &by.value(group, at + 8, arena)) {
        Ordering::Equal => {
            let known = i64::from_le_bytes(load(group, at));
            let is_less = || compare_exactly(value, &cell.value(group, at + 8 + by.size(), arena)).is_lt();
            order < known || (order == known && !by_arrival && is_less())
        }
        ordering => ordering == wanted,
    }
}

/// The same value with its text in the copy, and the rest of the copy.
fn copied<'c>(value: Value<'_>, copies: &'c [u8]) -> (Value<'c>, &'c [u8]) {
    match value {
        Value::Text(text) => {
            let (text, rest) = copies.split_at(text.len().min(copies.len()));
            (Value::Text(text), rest)
        }
        Value::Bytes(text) => {
            let (text, rest) = copies.split_at(text.len().min(copies.len()));
            (Value::Bytes(text), rest)
        }
        Value::Bool(value) => (Value::Bool(value), copies),
        Value::Int(value) => (Value::Int(value), copies),
        Value::Uint(value) => (Value::Uint(value), copies),
        Value::Float(value) => (Value::Float(value), copies),
        Value::Timestamp(value) => (Value::Timestamp(value), copies),
        Value::Decimal { unscaled, scale } => (Value::Decimal { unscaled, scale }, copies),
        Value::Null | Value::Enum { .. } | Value::List(_) | Value::Record(_) => (Value::Null, copies),
    }
}
