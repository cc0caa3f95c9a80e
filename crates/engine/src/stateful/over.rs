//! OVER: values over the rows of a partition that came before each.
//!
//! For each key a partition has two things. The first are aggregates that rows change: of frames that begin with the first row, and of
//! those whose aggregate a row can be taken out of again exactly (counts, sums and means of whole numbers and decimals). The second are the
//! last rows, for `lag`, first values, and the aggregates of other [frames](super::frames). A row costs one look-up of its key
//! in each partition. Where the state is beyond its bound, the keys go that had no row for the longest.

use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_query::{Aggregate, EvalError, MAX_ROWS_BEFORE, OverFunction, OverRows, RowFrame};

use super::accumulate::{Slots, Stores};
use super::cell::{Cell, load, plain, store};
use super::frames::{EachValue, FrameColumns, FrameWork, Scratch};
use super::keys::{ENTRY_BYTES, KeyColumns, Keys};
use super::moment::{Emit, Lost, Made, refused};
use super::past_rows::{Past, PastRow, PastRows};
use crate::saved::{SavedBytes, counted, put_bytes, put_flag};

/// The state of calls with OVER.
#[derive(Debug)]
pub(super) struct Over {
    input: Format,
    /// The columns of the input that pass.
    passed: usize,
    partitions: Vec<Partition>,
    /// For each value its partition.
    values: Vec<(usize, ValueWork)>,
    row: RecordBuilder,
    key: Vec<u8>,
    scratch: Scratch,
    pub(super) lost: Lost,
}

/// The rows of one PARTITION BY, by key.
#[derive(Debug)]
struct Partition {
    columns: KeyColumns,
    keys: Keys,
    stores: Stores,
    /// By a key's number.
    past: Vec<Past>,
    /// By a key's number: the slots of the aggregates, the parts of frames, the cells of first values.
    sums: Vec<u8>,
    sum_bytes: usize,
    slots: Slots,
    kept: Vec<Kept>,
    frames: Vec<FrameWork>,
    firsts: Vec<FirstValue>,
    rows: PastRows,
    /// The number of the key of the present row.
    present: u32,
}

/// An aggregate that rows change, by the number of its slot.
#[derive(Debug)]
struct Kept {
    frame: RowFrame,
    /// Its columns in a row.
    columns: FrameColumns,
    /// Its columns in the rows that are kept, for a frame that leaves rows out.
    past: FrameColumns,
}

/// The first value of a key.
#[derive(Debug)]
struct FirstValue {
    column: usize,
    cell: Cell,
    /// Its place in the sums: whether it has a value, then the cell.
    at: usize,
}

/// The work for a value.
#[derive(Debug)]
enum ValueWork {
    /// An aggregate that rows change, by its slot.
    Kept(usize),
    /// An aggregate of a frame that rows leave, by its number.
    Frame(usize),
    /// The column of a row before, or of the present one.
    Lag { column: usize, rows: u32, default: Option<usize> },
    /// The column of the first row of a frame.
    First { column: usize, from: u32, until: u32 },
    /// The first value of a key, by its number, once there are more rows than `until`.
    FirstOfAll { first: usize, until: u32 },
}

/// The columns of an aggregate in a row.
pub(super) fn columns_of(aggregate: &Aggregate) -> FrameColumns {
    let mut arguments = [None; 2];
    arguments.iter_mut().zip(&aggregate.arguments).for_each(|(place, argument)| *place = Some(*argument));
    FrameColumns { arguments, filter: aggregate.filter }
}

/// The same columns in the rows that are kept.
fn kept_in(columns: FrameColumns, rows: &mut PastRows, input: &Format) -> Result<FrameColumns, String> {
    let mut column = |index: Option<usize>| index.map(|index| rows.column(input, index)).transpose();
    let [first, second] = columns.arguments;
    Ok(FrameColumns { arguments: [column(first)?, column(second)?], filter: column(columns.filter)? })
}

impl Over {
    /// The state of calls over rows of this format.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(plan: &OverRows, input: &Format, rows: &Format) -> Result<Over, String> {
        if rows.fields().len() != plan.passed + plan.values.len() || plan.passed > input.fields().len() {
            return Err("the rows of OVER have the columns that pass, and the values".to_owned());
        }
        let mut partitions: Vec<(Partition, Vec<Aggregate>)> = Vec::with_capacity(plan.partitions.len());
        for keys in &plan.partitions {
            partitions.push((Partition::of(keys, input)?, Vec::new()));
        }
        let mut values = Vec::with_capacity(plan.values.len());
        for value in &plan.values {
            let (partition, aggregates) =
                partitions.get_mut(value.partition).ok_or("a value of OVER has no partition")?;
            values.push((value.partition, partition.work(&value.function, aggregates, input)?));
        }
        let partitions = partitions.into_iter().map(|(partition, aggregates)| partition.complete(&aggregates, input));
        Ok(Over {
            input: input.clone(),
            passed: plan.passed,
            partitions: partitions.collect::<Result<_, String>>()?,
            values,
            row: RecordBuilder::new(rows),
            key: Vec::new(),
            scratch: Scratch::default(),
            lost: Lost::default(),
        })
    }

    /// Keys of partitions that it keeps.
    pub(super) fn kept(&self) -> usize {
        self.partitions.iter().map(|partition| partition.keys.len()).sum()
    }

    /// How many bytes are in use.
    #[inline]
    pub(super) fn used(&self) -> usize {
        self.partitions.iter().map(Partition::used).sum::<usize>() + self.scratch.stores.used()
    }

    /// Takes a row, and emits it with its values.
    pub(super) fn take(&mut self, bytes: &[u8], emit: Emit<'_>) {
        let Over { input, partitions, row: made, key, scratch, .. } = self;
        let row = Record::assume_checked(input, bytes);
        partitions.iter_mut().for_each(|partition| partition.take(&row, key, scratch));
        made.clear();
        let set = self.set_all(bytes);
        emit(set.and_then(|()| self.row.finish().map(Made::row).map_err(|_| EvalError::RecordTooLong)));
    }

    fn set_all(&mut self, bytes: &[u8]) -> Result<(), EvalError> {
        let Over { input, passed, partitions, values, row: made, scratch, .. } = self;
        let row = Record::assume_checked(input, bytes);
        for column in 0..*passed {
            made.set(column, row.get(column)).map_err(|error| refused(&error))?;
        }
        for (number, (partition, work)) in values.iter().enumerate() {
            let Some(partition) = partitions.get_mut(*partition) else { continue };
            partition.value(work, &row, scratch, &mut |value| {
                made.set(*passed + number, value).map_err(|error| refused(&error))
            })?;
        }
        Ok(())
    }

    /// Writes the keys of all partitions.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        self.partitions.iter().for_each(|partition| partition.save(out));
    }

    /// Takes the keys that were written, into partitions without any.
    ///
    /// # Errors
    /// They were not written by partitions like these, which are of no use then.
    pub(super) fn restore(&mut self, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        let Over { partitions, scratch, .. } = self;
        partitions.iter_mut().try_for_each(|partition| partition.restore(scratch, from))
    }

    /// Forgets the key that had no row for the longest, of the partition that keeps most. Memory that is kept for results goes before.
    /// Returns whether there was one.
    pub(super) fn forget(&mut self) -> bool {
        if self.scratch.stores.release() {
            return true;
        }
        let most = self.partitions.iter_mut().max_by_key(|partition| partition.used());
        let is_there = most.is_some_and(Partition::forget);
        self.lost.forgotten += u64::from(is_there);
        is_there
    }
}

impl Partition {
    fn of(keys: &[usize], input: &Format) -> Result<Partition, String> {
        Ok(Partition {
            columns: KeyColumns::of(input, keys, false)?,
            keys: Keys::default(),
            stores: Stores::default(),
            past: Vec::new(),
            sums: Vec::new(),
            sum_bytes: 0,
            slots: Slots::of(&[], input, true)?,
            kept: Vec::new(),
            frames: Vec::new(),
            firsts: Vec::new(),
            rows: PastRows::default(),
            present: 0,
        })
    }

    /// The work for a value. Aggregates that rows change are added to `aggregates`.
    fn work(
        &mut self,
        function: &OverFunction,
        aggregates: &mut Vec<Aggregate>,
        input: &Format,
    ) -> Result<ValueWork, String> {
        match function {
            OverFunction::Lag { column, rows, default } => {
                self.rows.reserve(room(*rows)?);
                let column = self.rows.column(input, *column)?;
                Ok(ValueWork::Lag { column, rows: *rows, default: *default })
            }
            OverFunction::First { column, frame: RowFrame { from: Some(from), until } } => {
                self.rows.reserve(room(*from)?);
                let column = self.rows.column(input, *column)?;
                Ok(ValueWork::First { column, from: *from, until: *until })
            }
            OverFunction::First { column, frame: RowFrame { from: None, until } } => {
                let field = input.fields().get(*column).ok_or("a column of OVER is not there")?;
                let cell = Cell::of(field.ty).ok_or("a column of OVER is a list")?;
                self.firsts.push(FirstValue { column: *column, cell, at: 0 });
                Ok(ValueWork::FirstOfAll { first: self.firsts.len() - 1, until: *until })
            }
            OverFunction::Aggregate(aggregate, frame) => self.aggregate(aggregate, *frame, aggregates, input),
        }
    }

    fn aggregate(
        &mut self,
        aggregate: &Aggregate,
        frame: RowFrame,
        aggregates: &mut Vec<Aggregate>,
        input: &Format,
    ) -> Result<ValueWork, String> {
        if aggregate.distinct {
            return Err("an aggregate with OVER counts equal values each".to_owned());
        }
        let columns = columns_of(aggregate);
        let slots = Slots::of(std::slice::from_ref(aggregate), input, true)?;
        let mut past = FrameColumns::default();
        if frame.from.is_some() || frame.until > 0 {
            self.rows.reserve(room(frame.from.unwrap_or(frame.until))?);
            past = kept_in(columns, &mut self.rows, input)?;
        }
        if let Some(from) = frame.from
            && !slots.can_retract()
        {
            self.frames.push(FrameWork::new(slots, past, (from, frame), &mut self.rows));
            return Ok(ValueWork::Frame(self.frames.len() - 1));
        }
        aggregates.push(aggregate.clone());
        self.kept.push(Kept { frame, columns, past });
        Ok(ValueWork::Kept(self.kept.len() - 1))
    }

    /// Lays out what is kept, once all values are known.
    fn complete(mut self, aggregates: &[Aggregate], input: &Format) -> Result<Partition, String> {
        self.slots = Slots::of(aggregates, input, true)?;
        self.sum_bytes = self.slots.bytes();
        for frame in &mut self.frames {
            frame.at = self.sum_bytes;
            self.sum_bytes += frame.sum_bytes();
        }
        for first in &mut self.firsts {
            first.at = self.sum_bytes;
            self.sum_bytes += 8 + first.cell.size();
        }
        self.rows.lay_out();
        Ok(self)
    }

    #[inline]
    fn used(&self) -> usize {
        self.keys.len() * (ENTRY_BYTES + size_of::<Past>() + self.sum_bytes) + self.rows.used() + self.stores.used()
    }

    /// Takes a row: it is the present one then.
    fn take(&mut self, row: &Record<'_>, key: &mut Vec<u8>, scratch: &mut Scratch) {
        self.columns.read(row, key);
        let (number, is_new) = self.keys.enter(key, &mut self.stores.arena);
        self.keys.used(number, is_new);
        self.present = number;
        let (at, bytes) = (number as usize, self.sum_bytes);
        if self.past.len() <= at {
            self.past.resize(at + 1, Past::default());
            self.sums.resize((at + 1) * bytes, 0);
        }
        let Partition { stores, past, sums, slots, kept, frames, firsts, rows, .. } = self;
        let (Some(past), Some(group)) = (past.get_mut(at), sums.get_mut(at * bytes..(at + 1) * bytes)) else { return };
        for (slot, kept) in kept.iter().enumerate() {
            // The row that is too far away once this one is there.
            if let Some(from) = kept.frame.from
                && let Some(leaving) = rows.row(past, from)
                && let Some(arguments) = kept.past.read(|column| leaving.value(column))
            {
                slots.retract(slot, group, &arguments);
            }
        }
        rows.push(past, row);
        for (slot, kept) in kept.iter().enumerate() {
            let until = kept.frame.until;
            let order = past.count() as i64 - i64::from(until);
            let arguments = match until {
                0 => kept.columns.read(|column| plain(row.get(column))),
                until => rows.row(past, until).and_then(|coming| kept.past.read(|column| coming.value(column))),
            };
            if let Some(arguments) = arguments {
                slots.add(slot, group, stores, &arguments, order);
            }
        }
        frames.iter().for_each(|frame| frame.slide(rows, past, group, scratch));
        if past.count() == 1 {
            for first in firsts {
                let value = plain(row.get(first.column));
                if !value.is_null() {
                    store(group, first.at, 1u64.to_le_bytes());
                    first.cell.set(group, first.at + 8, &mut stores.arena, &value);
                }
            }
        }
    }

    /// Hands over a value of the present row.
    fn value(
        &mut self,
        work: &ValueWork,
        row: &Record<'_>,
        scratch: &mut Scratch,
        each: EachValue<'_>,
    ) -> Result<(), EvalError> {
        let (at, bytes) = (self.present as usize, self.sum_bytes);
        let Partition { stores, past, sums, slots, frames, firsts, rows, .. } = self;
        let past = past.get(at).copied().unwrap_or_default();
        let group = sums.get(at * bytes..(at + 1) * bytes).unwrap_or_default();
        match work {
            ValueWork::Kept(slot) => each(slots.result(*slot, group, stores)?),
            ValueWork::Frame(frame) => match frames.get(*frame) {
                Some(frame) => frame.make(rows, &past, group, scratch, each),
                None => each(Value::Null),
            },
            ValueWork::Lag { column, rows: distance, default } => match rows.row(&past, *distance) {
                Some(before) => each(before.value(*column)),
                None => each(default.map_or(Value::Null, |default| row.get(default))),
            },
            ValueWork::First { column, from, until } => {
                let last = u32::try_from(past.count().saturating_sub(1)).unwrap_or(u32::MAX);
                let first = if last < *until { None } else { rows.row(&past, last.min(*from)) };
                each(first.map_or(Value::Null, |first: PastRow<'_>| first.value(*column)))
            }
            ValueWork::FirstOfAll { first, until } => match firsts.get(*first) {
                Some(FirstValue { cell, at, .. })
                    if past.count() > u64::from(*until) && load::<8>(group, *at) != [0; 8] =>
                {
                    each(cell.value(group, at + 8, &stores.arena))
                }
                _ => each(Value::Null),
            },
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        for number in self.keys.in_order_of_use() {
            let (at, bytes) = (number as usize, self.sum_bytes);
            let past = self.past.get(at).copied().unwrap_or_default();
            let group = self.sums.get(at * bytes..(at + 1) * bytes).unwrap_or_default();
            put_flag(out, true);
            put_bytes(out, self.keys.key(number, &self.stores.arena));
            out.extend_from_slice(&past.count().to_le_bytes());
            self.rows.save(&past, out);
            self.slots.save(group, &self.stores, out);
            for first in &self.firsts {
                put_flag(out, load::<8>(group, first.at) != [0; 8]);
                first.cell.save(group, first.at + 8, &self.stores.arena, out);
            }
        }
        put_flag(out, false);
    }

    fn restore(&mut self, scratch: &mut Scratch, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        while from.flag()? {
            let (number, is_new) = self.keys.enter(from.bytes()?, &mut self.stores.arena);
            if !is_new {
                return Err("a key is there twice");
            }
            self.keys.used(number, true);
            let past = self.rows.restore(counted(from.u64()?)?, from)?;
            let mut group = vec![0; self.sum_bytes];
            self.slots.restore(&mut group, 0, &mut self.stores, from)?;
            for first in &self.firsts {
                store(&mut group, first.at, u64::from(from.flag()?).to_le_bytes());
                first.cell.restore(&mut group, first.at + 8, &mut self.stores.arena, from)?;
            }
            let Partition { frames, rows, .. } = self;
            frames.iter().for_each(|frame| frame.rebuild(rows, &past, &mut group, scratch));
            // Of keys that were entered one behind the other, each has the next number.
            self.past.push(past);
            self.sums.extend_from_slice(&group);
        }
        Ok(())
    }

    /// Forgets the key that had no row for the longest.
    fn forget(&mut self) -> bool {
        let Some(number) = self.keys.oldest() else { return false };
        let (at, bytes) = (number as usize, self.sum_bytes);
        if let Some(group) = self.sums.get_mut(at * bytes..(at + 1) * bytes) {
            for first in &self.firsts {
                first.cell.clear(group, first.at + 8, &mut self.stores.arena);
            }
            self.slots.clear(group, &mut self.stores);
        }
        if let Some(past) = self.past.get_mut(at) {
            self.rows.free(past);
        }
        self.keys.unlink(number);
        self.keys.remove(number, &mut self.stores.arena);
        true
    }
}

/// The rows that are kept to look as far back.
fn room(distance: u32) -> Result<usize, String> {
    match distance {
        0..=MAX_ROWS_BEFORE => Ok(distance as usize + 1),
        _ => Err(format!("OVER looks at most {MAX_ROWS_BEFORE} rows back")),
    }
}
