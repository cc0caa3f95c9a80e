//! OVER of rows that others take the place of: those of groups without a window.
//!
//! Of each partition the last rows are kept whole, in the order in which they came first, twice as many as a frame has. A row that takes the
//! place of another is found by its group's key, and stands where the other one stood. The rows that leave are those within a frame's length of
//! the newest whose frame it is in.

use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_query::{EvalError, MAX_ROWS_BEFORE, OverFunction, OverRows, RowFrame};

use super::accumulate::{Slots, Stores};
use super::arena::{Arena, Block};
use super::cell::{load, plain, store};
use super::frames::FrameColumns;
use super::keys::{ENTRY_BYTES, KeyColumns, Keys};
use super::moment::{Change, Emit, Lost, Made, refused};
use super::over::columns_of;
use crate::saved::{SavedBytes, counted, put_bytes, put_flag};

/// The bytes of a row's place in its list.
const PLACE_BYTES: usize = size_of::<Block>();

/// The rows that a list begins with room for.
const FIRST_ROWS: usize = 4;

/// The state of such calls.
#[derive(Debug)]
pub(super) struct CorrectedOver {
    input: Format,
    /// The columns of the input that pass.
    passed: usize,
    gives_changes: bool,
    columns: KeyColumns,
    identity: KeyColumns,
    values: Vec<FrameValue>,
    /// How many rows before its own the longest frame begins.
    reach: usize,
    keys: Keys,
    arena: Arena,
    /// By a key's number.
    lists: Vec<RowList>,
    row: RecordBuilder,
    scratch: (Vec<u8>, Stores),
    /// The rows that others take the place of, one behind the other, with their ends.
    former: (Vec<u8>, Vec<Option<usize>>),
    key: Vec<u8>,
    own: Vec<u8>,
    other: Vec<u8>,
    pub(super) lost: Lost,
}

/// The rows of a partition: a block with their blocks, the oldest first.
#[derive(Clone, Copy, Default, Debug)]
struct RowList {
    block: Block,
    rows: usize,
}

/// The work for a value.
#[derive(Debug)]
enum FrameValue {
    Aggregate {
        slots: Slots,
        columns: FrameColumns,
        from: usize,
        until: usize,
    },
    /// The column of a frame's first row.
    First {
        column: usize,
        from: usize,
        until: usize,
    },
    /// The column of a row before, or of the present one.
    Before {
        column: usize,
        rows: usize,
    },
}

impl FrameValue {
    fn of(function: &OverFunction, input: &Format) -> Result<FrameValue, String> {
        let whole = "a frame of rows that change begins with a row at a distance";
        let ends = |frame: &RowFrame| -> Result<(usize, usize), String> {
            let from = frame.from.filter(|from| *from <= MAX_ROWS_BEFORE).ok_or(whole)?;
            Ok((from as usize, frame.until as usize))
        };
        Ok(match function {
            OverFunction::Aggregate(aggregate, frame) => {
                let (from, until) = ends(frame)?;
                let slots = Slots::of(std::slice::from_ref(aggregate), input, true)?;
                FrameValue::Aggregate { slots, columns: columns_of(aggregate), from, until }
            }
            OverFunction::First { column, frame } => {
                let (from, until) = ends(frame)?;
                FrameValue::First { column: *column, from, until }
            }
            OverFunction::Lag { column, rows, default: None } if *rows <= MAX_ROWS_BEFORE => {
                FrameValue::Before { column: *column, rows: *rows as usize }
            }
            OverFunction::Lag { .. } => return Err(whole.to_owned()),
        })
    }

    fn reach(&self) -> usize {
        match self {
            FrameValue::Aggregate { from, .. } | FrameValue::First { from, .. } => *from,
            FrameValue::Before { rows, .. } => *rows,
        }
    }
}

impl CorrectedOver {
    /// The state of calls over rows of this format.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(plan: &OverRows, input: &Format, rows: &Format) -> Result<CorrectedOver, String> {
        if rows.fields().len() != plan.passed + plan.values.len() || plan.passed > input.fields().len() {
            return Err("the rows of OVER have the columns that pass, and the values".to_owned());
        }
        let ([partition], Some(identity)) = (plan.partitions.as_slice(), &plan.identity) else {
            return Err("the rows of OVER that change have one partition, and the keys of their groups".to_owned());
        };
        let values: Vec<FrameValue> =
            plan.values.iter().map(|value| FrameValue::of(&value.function, input)).collect::<Result<_, String>>()?;
        Ok(CorrectedOver {
            input: input.clone(),
            passed: plan.passed,
            gives_changes: plan.gives_changes,
            columns: KeyColumns::of(input, partition, false)?,
            identity: KeyColumns::of(input, identity, false)?,
            reach: values.iter().map(FrameValue::reach).fold(plan.reach.min(MAX_ROWS_BEFORE) as usize, usize::max),
            values,
            keys: Keys::default(),
            arena: Arena::default(),
            lists: Vec::new(),
            row: RecordBuilder::new(rows),
            scratch: Default::default(),
            former: Default::default(),
            key: Vec::new(),
            own: Vec::new(),
            other: Vec::new(),
            lost: Lost::default(),
        })
    }

    /// Keys of the partition that it keeps.
    pub(super) fn kept(&self) -> usize {
        self.keys.len()
    }

    /// How many bytes are in use.
    #[inline]
    pub(super) fn used(&self) -> usize {
        self.keys.len() * (ENTRY_BYTES + size_of::<RowList>()) + self.arena.used() + self.scratch.1.used()
    }

    /// Takes a change of rows. One in the place of a row that is too far back to be kept changes nothing.
    pub(super) fn take(&mut self, Change { before, after }: Change<'_>, emit: Emit<'_>) {
        let Some(former) = before else {
            return after.into_iter().for_each(|row| self.push(row, emit));
        };
        let Some((number, at)) = self.find(former) else { return };
        match after {
            Some(row) if self.is_of(number, row) => self.replace(number, at, Some(row), emit),
            after => {
                self.replace(number, at, None, emit);
                after.into_iter().for_each(|row| self.push(row, emit));
            }
        }
    }

    fn read_key(&mut self, row: &[u8]) {
        self.columns.read(&Record::assume_checked(&self.input, row), &mut self.key);
    }

    fn is_of(&mut self, number: u32, row: &[u8]) -> bool {
        self.read_key(row);
        self.keys.key(number, &self.arena) == self.key
    }

    /// The partition of a row that is kept, and its place there.
    fn find(&mut self, row: &[u8]) -> Option<(u32, usize)> {
        self.read_key(row);
        let number = self.keys.find(&self.key, &self.arena)?;
        let list = *self.lists.get(number as usize)?;
        let CorrectedOver { input, identity, own, other, arena, .. } = self;
        identity.read(&Record::assume_checked(input, row), own);
        let at = (0..list.rows).rev().find(|at| {
            identity.read(&Record::assume_checked(input, list.row(*at, arena)), other);
            own == other
        })?;
        Some((number, at))
    }

    /// Puts a row behind all others of its partition.
    fn push(&mut self, row: &[u8], emit: Emit<'_>) {
        self.read_key(row);
        let (number, is_new) = self.keys.enter(&self.key, &mut self.arena);
        self.keys.used(number, is_new);
        let at = number as usize;
        if self.lists.len() <= at {
            self.lists.resize(at + 1, RowList::default());
        }
        let Some(list) = self.lists.get_mut(at) else { return };
        if list.rows > 2 * self.reach {
            list.remove(0, &mut self.arena);
        }
        list.push(row, &mut self.arena);
        let newest = list.rows - 1;
        let made = self.make(number, newest).map(Made::row);
        emit(made);
    }

    /// Puts a row in the place of another, or none.
    fn replace(&mut self, number: u32, at: usize, row: Option<&[u8]>, emit: Emit<'_>) {
        let Some(list) = self.lists.get(number as usize).copied() else { return };
        let newest = list.rows - 1;
        // The rows whose frame it is in, that are not too far back for all of their own frame to be kept.
        let (first, last) = (at.max(newest.saturating_sub(self.reach)), newest.min(at + self.reach));
        let (mut former, mut ends) = std::mem::take(&mut self.former);
        former.clear();
        ends.clear();
        for place in first..=last {
            let made = self.gives_changes && self.make(number, place).map(|row| former.extend_from_slice(row)).is_ok();
            ends.push(made.then_some(former.len()));
        }
        if let Some(list) = self.lists.get_mut(number as usize) {
            match row {
                Some(row) => list.replace(at, row, &mut self.arena),
                None => list.remove(at, &mut self.arena),
            }
        }
        let mut start = 0;
        for (place, end) in (first..=last).zip(&ends) {
            let before = end.map(|end| former.get(std::mem::replace(&mut start, end)..end).unwrap_or_default());
            match row {
                None if place == at => before.into_iter().for_each(|row| {
                    emit(Ok(Made::Change(Change::gone(row))));
                }),
                Some(_) => self.emit_made(number, place, before, emit),
                None => self.emit_made(number, if place > at { place - 1 } else { place }, before, emit),
            }
        }
        self.former = (former, ends);
        self.keys.used(number, false);
        if row.is_none() && list.rows == 1 {
            self.let_go(number);
        }
    }

    fn emit_made(&mut self, number: u32, place: usize, before: Option<&[u8]>, emit: Emit<'_>) {
        match self.make(number, place) {
            Ok(after) if before == Some(after) => {}
            Ok(after) => emit(Ok(Made::Change(Change { before, after: Some(after) }))),
            Err(error) => {
                if before.is_some() {
                    emit(Ok(Made::Change(Change { before, after: None })));
                }
                emit(Err(error));
            }
        }
    }

    /// Makes the row with its values that is at a place of a partition.
    fn make(&mut self, number: u32, at: usize) -> Result<&[u8], EvalError> {
        let CorrectedOver { input, passed, values, arena, lists, row: made, scratch: (group, stores), .. } = self;
        let list = lists.get(number as usize).copied().unwrap_or_default();
        let record = |at: usize| Record::assume_checked(input, list.row(at, arena));
        made.clear();
        let own = record(at);
        for column in 0..*passed {
            made.set(column, own.get(column)).map_err(|error| refused(&error))?;
        }
        for (value_number, value) in values.iter().enumerate() {
            let column = *passed + value_number;
            let set = match value {
                FrameValue::Aggregate { slots, columns, from, until } => {
                    group.clear();
                    group.resize(slots.bytes(), 0);
                    for place in frame(at, *from, *until) {
                        let row = record(place);
                        if let Some(arguments) = columns.read(|column| plain(row.get(column))) {
                            slots.add(0, group, stores, &arguments, place as i64);
                        }
                    }
                    let result = slots.result(0, group, stores);
                    let set = result.map(|value| made.set(column, value));
                    slots.clear(group, stores);
                    set?
                }
                FrameValue::First { column: of, from, until } => match frame(at, *from, *until).next() {
                    Some(place) => made.set(column, plain(record(place).get(*of))),
                    None => made.set(column, Value::Null),
                },
                FrameValue::Before { column: of, rows } => match at.checked_sub(*rows) {
                    Some(place) => made.set(column, plain(record(place).get(*of))),
                    None => made.set(column, Value::Null),
                },
            };
            set.map_err(|error| refused(&error))?;
        }
        made.finish().map_err(|_| EvalError::RecordTooLong)
    }

    /// Writes the rows of each partition, in the order in which the partitions were used.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        for list in self.keys.in_order_of_use().filter_map(|number| self.lists.get(number as usize)) {
            put_flag(out, true);
            out.extend_from_slice(&(list.rows as u64).to_le_bytes());
            (0..list.rows).for_each(|at| put_bytes(out, list.row(at, &self.arena)));
        }
        put_flag(out, false);
    }

    /// Takes the rows that were written, before the first one.
    ///
    /// # Errors
    /// They were not written by such calls. These are of no use then.
    pub(super) fn restore(&mut self, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        while from.flag()? {
            let rows = counted(from.u64()?)? as usize;
            if rows == 0 || rows > 2 * self.reach + 1 {
                return Err("a partition has more rows than are kept, or none");
            }
            let mut list = RowList::default();
            for at in 0..rows {
                let row = from.row(&self.input)?;
                if at == 0 {
                    self.read_key(row);
                } else {
                    let first = std::mem::take(&mut self.key);
                    self.read_key(row);
                    if first != self.key {
                        return Err("rows of two partitions are in one");
                    }
                }
                list.push(row, &mut self.arena);
            }
            let (number, is_new) = self.keys.enter(&self.key, &mut self.arena);
            if !is_new {
                return Err("a partition is there twice");
            }
            self.keys.used(number, true);
            if self.lists.len() <= number as usize {
                self.lists.resize(number as usize + 1, RowList::default());
            }
            self.lists[number as usize] = list;
        }
        Ok(())
    }

    /// Forgets the key that had no row for the longest; its rows stay as they left. Returns whether there was one.
    pub(super) fn forget(&mut self) -> bool {
        if self.scratch.1.release() {
            return true;
        }
        let Some(number) = self.keys.oldest() else { return false };
        self.let_go(number);
        self.lost.forgotten += 1;
        true
    }

    fn let_go(&mut self, number: u32) {
        if let Some(list) = self.lists.get_mut(number as usize) {
            std::mem::take(list).free(&mut self.arena);
        }
        self.keys.unlink(number);
        self.keys.remove(number, &mut self.arena);
    }
}

/// The places of a frame's rows.
fn frame(at: usize, from: usize, until: usize) -> std::ops::Range<usize> {
    match at.checked_sub(until) {
        Some(last) => at.saturating_sub(from)..last + 1,
        None => 0..0,
    }
}

impl RowList {
    fn place(self, at: usize, arena: &Arena) -> Block {
        Block::from_bytes(load(arena.get(self.block), at * PLACE_BYTES))
    }

    fn row(self, at: usize, arena: &Arena) -> &[u8] {
        arena.get(self.place(at, arena))
    }

    fn set(self, at: usize, row: Block, arena: &mut Arena) {
        if let Some(places) = arena.get_mut(self.block) {
            store(places, at * PLACE_BYTES, row.to_bytes());
        }
    }

    fn push(&mut self, row: &[u8], arena: &mut Arena) {
        let bytes = (self.rows + 1) * PLACE_BYTES;
        if bytes > self.block.len() {
            self.block = arena.grow(self.block, bytes.max(self.block.len() * 2).max(FIRST_ROWS * PLACE_BYTES));
        }
        let row = arena.put(row);
        self.set(self.rows, row, arena);
        self.rows += 1;
    }

    fn replace(self, at: usize, row: &[u8], arena: &mut Arena) {
        let row = arena.replace(self.place(at, arena), row);
        self.set(at, row, arena);
    }

    fn remove(&mut self, at: usize, arena: &mut Arena) {
        arena.free(self.place(at, arena));
        let end = self.rows * PLACE_BYTES;
        if let Some(places) = arena.get_mut(self.block) {
            places.copy_within((at + 1) * PLACE_BYTES..end, at * PLACE_BYTES);
        }
        self.rows -= 1;
    }

    fn free(self, arena: &mut Arena) {
        (0..self.rows).for_each(|at| arena.free(self.place(at, arena)));
        arena.free(self.block);
    }
}
