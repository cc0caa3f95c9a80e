//! Steps: what a plan does to the fixed parts of records, a chunk of records at a time.
//!
//! One step is one loop over the records of a chunk, with nothing in it to decide: the widths are the loop's, places are
//! the same for every record. Flaws are gathered beside the records, without a branch. A chunk of one record is no loop.

use super::body::Presence;
use super::path::Source;
use super::value::{put, put_integer, store};
use super::words::Words;
use crate::field::FieldType;
use crate::format::{Bit, Format};
use crate::record::{Record, Value, record_len, slot};

/// Where a field is, and its null bit: mask 0 if it is never null.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct NullBit {
    pub(super) byte: u32,
    pub(super) mask: u8,
}

impl NullBit {
    /// The bit that says whether a field is null: its own, or that of the nested record that it lies in.
    pub(super) fn of(format: &Format, field: usize) -> NullBit {
        let cell = format.layout().cells.get(field);
        cell.map_or(NullBit::default(), |cell| NullBit { byte: cell.null_byte, mask: cell.null_mask })
    }

    #[inline(always)]
    pub(super) fn is_set<'r>(self, record: impl Bytes<'r>) -> bool {
        let [byte] = record.load(self.byte);
        byte & self.mask != 0
    }
}

impl From<Bit> for NullBit {
    fn from(bit: Bit) -> NullBit {
        NullBit { byte: bit.byte, mask: bit.mask }
    }
}

/// One step; places are in bytes from the start of a record.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    pub(super) from: u32,
    pub(super) to: u32,
    /// The source's null bit, for steps that ask.
    pub(super) null: NullBit,
}

/// The operation of a step.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Copies this many bytes; there is a loop for each of the usual widths.
    Move(u32),
    /// Moves of several fields, in one loop.
    Words(Box<Words>),
    /// Copies bits of one byte of the null bitmap into another, turned to the left.
    Bits { mask: u8, turn: u8 },
    /// Refuses null.
    RefuseNull,
    /// Refuses all but NUL in this many bytes: the tail that a shorter `char[N]` would lose.
    RefuseText(u32),
    /// An integer to one of `bytes` bytes.
    Integer { load: Load, bytes: u8, check: Option<Range> },
    /// An enumeration to one of `bytes` bytes, by a table of ascending numbers and their new values; others are
    /// refused.
    Renumber { load: Load, bytes: u8, numbers: Box<[(i64, i64)]> },
    /// An integer to an `f64`.
    IntegerToF64(Load),
    /// An integer of a coarser unit to nanoseconds: times this.
    Times { load: Load, factor: i64 },
    /// An `f32` to an `f64`.
    Widen,
    /// An `f64` to an `f32`, which refuses what would become infinite.
    Narrow,
    /// Anything, value by value. `within` is the bit of the nested record that the field lies in, in the row: where that
    /// is null, so is the field.
    Value { source: Box<Source>, ty: FieldType, to_null: NullBit, within: NullBit },
    /// A nested record is null if it is not there, or if the one that it lies in is null.
    Group { there: Box<Presence>, to_null: NullBit, within: NullBit },
    /// Refuses a union that has not one variant in the row, or had one that got lost.
    Union(Box<UnionBits>),
}

/// The description of a union.
#[derive(Clone, Debug)]
pub(super) struct UnionBits {
    /// The bits of the variants, in the row.
    pub(super) variants: Box<[NullBit]>,
    /// Whether there may be none.
    pub(super) nullable: bool,
    /// The bit of the nested record that it lies in.
    pub(super) within: NullBit,
    /// Variants that the target does not have.
    pub(super) lost: Box<[Presence]>,
}

impl UnionBits {
    fn is_refused(&self, record: &Record<'_>, row: &[u8]) -> bool {
        let found = self.variants.iter().filter(|bit| !bit.is_set(row)).count();
        let is_null = self.within.is_set(row);
        found > 1
            || (!is_null && found == 0 && !self.nullable)
            || (!is_null && self.lost.iter().any(|variant| variant.is_there(record)))
    }
}

/// How an integer is got out of the eight bytes at a step's place: shifted up to the top, and down again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Load {
    pub(super) up: u8,
    pub(super) down: u8,
    pub(super) signed: bool,
}

/// The range of an integer: `low`, and up to `span` more.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Range {
    pub(super) low: i64,
    pub(super) span: u64,
}

/// A record, as steps look at it.
pub(super) trait Bytes<'r>: Copy {
    /// `N` bytes from `at` on; zeros where the record has fewer.
    fn load<const N: usize>(self, at: u32) -> [u8; N];

    /// `bytes` bytes from `at` on; none if the record has fewer.
    fn stretch(self, at: u32, bytes: u32) -> &'r [u8];

    /// Its first `bytes` bytes; `None` if it has fewer.
    fn fixed(self, bytes: usize) -> Option<&'r [u8]>;

    /// All of it, as a record of its format.
    fn view<'f>(self, format: &'f Format) -> Record<'f>
    where
        'r: 'f;
}

impl<'r> Bytes<'r> for &'r [u8] {
    #[inline(always)]
    fn load<const N: usize>(self, at: u32) -> [u8; N] {
        let at = at as usize;
        self.get(at..at + N).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
    }

    #[inline(always)]
    fn stretch(self, at: u32, bytes: u32) -> &'r [u8] {
        let at = at as usize;
        self.get(at..at + bytes as usize).unwrap_or_default()
    }

    #[inline(always)]
    fn fixed(self, bytes: usize) -> Option<&'r [u8]> {
        self.get(..bytes)
    }

    #[inline(always)]
    fn view<'f>(self, format: &'f Format) -> Record<'f>
    where
        'r: 'f,
    {
        Record::assume_checked(format, self)
    }
}

/// A part of a record: the record itself, or an element of a list. An element may be shorter than a load, and end where
/// the record ends: what is behind it counts as zeros.
#[derive(Clone, Copy)]
pub(super) struct Part<'r> {
    pub(super) bytes: &'r [u8],
    pub(super) base: usize,
}

impl<'r> Bytes<'r> for Part<'r> {
    #[inline(always)]
    fn load<const N: usize>(self, at: u32) -> [u8; N] {
        let at = self.base + at as usize;
        match self.bytes.get(at..at + N).and_then(|bytes| bytes.first_chunk()) {
            Some(bytes) => *bytes,
            None => self.cut_off(at),
        }
    }

    #[inline(always)]
    fn stretch(self, at: u32, bytes: u32) -> &'r [u8] {
        let at = self.base + at as usize;
        self.bytes.get(at..at + bytes as usize).unwrap_or_default()
    }

    #[inline(always)]
    fn fixed(self, bytes: usize) -> Option<&'r [u8]> {
        self.bytes.get(self.base..self.base + bytes)
    }

    #[inline]
    fn view<'f>(self, format: &'f Format) -> Record<'f>
    where
        'r: 'f,
    {
        Record::element(format, self.bytes, self.base)
    }
}

impl Part<'_> {
    #[cold]
    fn cut_off<const N: usize>(self, at: usize) -> [u8; N] {
        let mut word = [0; N];
        let rest = self.bytes.get(at..).unwrap_or_default();
        word.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
        word
    }
}

/// Records and their rows, over which a step goes.
pub(super) trait Over<'r>: Sized {
    /// The type of a record.
    type Record: Bytes<'r>;

    /// Does something for each.
    fn each(self, change: impl FnMut(Self::Record, &mut [u8]));

    /// Does something for each, which says whether the record is refused.
    fn check(self, change: impl FnMut(Self::Record, &mut [u8]) -> bool);
}

/// One record and its row.
pub(super) struct One<'w, Record> {
    pub(super) record: Record,
    pub(super) row: &'w mut [u8],
    pub(super) refused: &'w mut bool,
}

impl<'r, Record: Bytes<'r>> Over<'r> for One<'_, Record> {
    type Record = Record;

    #[inline(always)]
    fn each(self, mut change: impl FnMut(Record, &mut [u8])) {
        change(self.record, self.row);
    }

    #[inline(always)]
    fn check(self, mut change: impl FnMut(Record, &mut [u8]) -> bool) {
        *self.refused |= change(self.record, self.row);
    }
}

/// The elements of a list, their rows, and whether one of them is refused.
pub(super) struct Elements<'r, 'w> {
    pub(super) bytes: &'r [u8],
    /// Where the first one starts, and how far the next one is.
    pub(super) at: usize,
    pub(super) stride: usize,
    pub(super) rows: &'w mut [u8],
    pub(super) row_bytes: usize,
    pub(super) refused: &'w mut bool,
}

impl<'r> Elements<'r, '_> {
    #[inline(always)]
    fn run(self, mut change: impl FnMut(Part<'r>, &mut [u8]) -> bool) {
        let mut base = self.at;
        for row in self.rows.chunks_exact_mut(self.row_bytes.max(1)) {
            *self.refused |= change(Part { bytes: self.bytes, base }, row);
            base += self.stride;
        }
    }
}

impl<'r> Over<'r> for Elements<'r, '_> {
    type Record = Part<'r>;

    #[inline(never)]
    fn each(self, mut change: impl FnMut(Part<'r>, &mut [u8])) {
        self.run(|record, row| {
            change(record, row);
            false
        });
    }

    #[inline(never)]
    fn check(self, change: impl FnMut(Part<'r>, &mut [u8]) -> bool) {
        self.run(change);
    }
}

/// Many records, their rows, and what is noted of each.
pub(super) struct Many<'w, Records, Rows> {
    pub(super) records: Records,
    pub(super) rows: Rows,
    pub(super) flaws: &'w mut [u8],
}

impl<'r, 'w, Record, Records, Rows> Over<'r> for Many<'w, Records, Rows>
where
    Record: Bytes<'r>,
    Records: Iterator<Item = Record>,
    Rows: Iterator<Item = &'w mut [u8]>,
{
    type Record = Record;

    #[inline(always)]
    fn each(self, mut change: impl FnMut(Record, &mut [u8])) {
        for (record, row) in self.records.zip(self.rows) {
            change(record, row);
        }
    }

    #[inline(never)]
    fn check(self, mut change: impl FnMut(Record, &mut [u8]) -> bool) {
        for ((record, row), flaw) in self.records.zip(self.rows).zip(self.flaws) {
            *flaw |= u8::from(change(record, row));
        }
    }
}

/// The records of a payload and their rows: where each record starts is found on the way.
pub(super) struct Found<'w, 'r> {
    /// The rest of it once they are done.
    pub(super) payload: &'w mut &'r [u8],
    /// Records are looked for as long as there are places, and rows, and none is shorter than its fixed part.
    pub(super) places: &'w mut [&'r [u8]],
    /// Whether it is noted where they are, for other steps.
    pub(super) is_noted: bool,
    pub(super) rows: &'w mut [u8],
    /// How many bytes a record's fixed part and a row have.
    pub(super) bytes: (usize, usize),
    /// How many there were.
    pub(super) done: &'w mut usize,
}

impl<'r> Over<'r> for Found<'_, 'r> {
    type Record = &'r [u8];

    #[inline(always)]
    fn each(self, mut change: impl FnMut(&'r [u8], &mut [u8])) {
        let (from_bytes, to_bytes) = self.bytes;
        let (mut rest, mut rows, mut done) = (*self.payload, self.rows, 0);
        // To find the next record waits for the length of this one; meanwhile there is something to do.
        for place in self.places {
            let length = record_len(rest).filter(|length| *length >= from_bytes);
            let Some((record, after)) = length.and_then(|length| rest.split_at_checked(length)) else { break };
            let Some((row, behind)) = rows.split_at_mut_checked(to_bytes) else { break };
            change(record, row);
            if self.is_noted {
                *place = record;
            }
            (rest, rows) = (after, behind);
            done += 1;
        }
        (*self.payload, *self.done) = (rest, done);
    }

    /// None is refused here: steps that refuse come once all have been found.
    fn check(self, mut change: impl FnMut(&'r [u8], &mut [u8]) -> bool) {
        self.each(|record, row| {
            change(record, row);
        });
    }
}

impl Step {
    /// Does the step for each record and its row, and notes which records it refuses.
    #[inline(always)]
    pub(super) fn run<'r>(&self, format: &Format, over: impl Over<'r>) {
        let (from, to, null) = (self.from, self.to as usize, self.null);
        match &self.op {
            Op::Move(_) | Op::Words(_) | Op::Bits { .. } => self.run_move(over),
            Op::RefuseNull => over.check(|record, _| null.is_set(record)),
            Op::RefuseText(bytes) => over.check(|record, _| {
                let tail = record.stretch(from, *bytes);
                tail.iter().any(|byte| *byte != 0) && !null.is_set(record)
            }),
            Op::Integer { load, bytes: 1, check } => self.integer(*load, *check, over, |value| [value as u8]),
            Op::Integer { load, bytes: 2, check } => {
                self.integer(*load, *check, over, |value| (value as u16).to_le_bytes());
            }
            Op::Integer { load, bytes: 4, check } => {
                self.integer(*load, *check, over, |value| (value as u32).to_le_bytes());
            }
            Op::Integer { load, check, .. } => self.integer(*load, *check, over, u64::to_le_bytes),
            Op::Renumber { load, bytes, numbers } => self.renumber(*load, *bytes, numbers, over),
            Op::IntegerToF64(load) => over.each(|record, row| {
                let value = load.of(record, from);
                put(row, to, if load.signed { value as i64 as f64 } else { value as f64 }.to_le_bytes());
            }),
            Op::Times { load, factor } => over.check(|record, row| {
                let value = load.of(record, from);
                let (product, too_much) = (value as i64).overflowing_mul(*factor);
                put(row, to, product.to_le_bytes());
                // An unsigned value that does not fit the sign is too much as well.
                (too_much | (!load.signed & ((value as i64) < 0))) & !null.is_set(record)
            }),
            Op::Widen => over.each(|record, row| {
                put(row, to, f64::from(f32::from_le_bytes(record.load(from))).to_le_bytes());
            }),
            Op::Narrow => over.check(|record, row| {
                let wide = f64::from_le_bytes(record.load(from));
                let narrow = wide as f32;
                put(row, to, narrow.to_le_bytes());
                narrow.is_infinite() & wide.is_finite() & !null.is_set(record)
            }),
            Op::Value { .. } | Op::Group { .. } | Op::Union(_) => self.by_value(format, over),
        }
    }

    /// Does the step, if it moves bytes or bits unchanged.
    #[inline(always)]
    pub(super) fn run_move<'r>(&self, over: impl Over<'r>) {
        let (from, to) = (self.from, self.to as usize);
        match &self.op {
            Op::Move(1) => over.each(|record, row| put(row, to, record.load::<1>(from))),
            Op::Move(2) => over.each(|record, row| put(row, to, record.load::<2>(from))),
            Op::Move(4) => over.each(|record, row| put(row, to, record.load::<4>(from))),
            Op::Move(8) => over.each(|record, row| put(row, to, record.load::<8>(from))),
            Op::Move(16) => over.each(|record, row| put(row, to, record.load::<16>(from))),
            Op::Move(bytes) => {
                over.each(|record, row| {
                    let source = record.stretch(from, *bytes);
                    if let Some(place) = row.get_mut(to..to + source.len()) {
                        place.copy_from_slice(source);
                    }
                });
            }
            Op::Words(words) => words.run(over),
            Op::Bits { mask, turn } => over.each(|record, row| {
                let [bits] = record.load(from);
                change::<1>(to, row, |[byte]| [byte | (bits & mask).rotate_left((*turn).into())]);
            }),
            _ => {}
        }
    }

    /// Steps that read records as anybody would.
    #[inline(always)]
    fn by_value<'r>(&self, format: &Format, over: impl Over<'r>) {
        let to = self.to as usize;
        match &self.op {
            Op::Value { source, ty, to_null, within } => over.check(|record, row| {
                if within.is_set(&*row) {
                    set_null(row, *to_null);
                    return false;
                }
                match source.eval(&record.view(format)) {
                    Ok(Value::Null) => set_null(row, *to_null),
                    Ok(value) => store(row, to, *ty, value),
                    Err(_) => return true,
                }
                false
            }),
            Op::Group { there, to_null, within } => over.each(|record, row| {
                if within.is_set(&*row) || !there.is_there(&record.view(format)) {
                    set_null(row, *to_null);
                }
            }),
            Op::Union(union) => over.check(|record, row| union.is_refused(&record.view(format), row)),
            _ => {}
        }
    }

    /// Enumerations to enumerations.
    #[inline(always)]
    fn renumber<'r>(&self, load: Load, bytes: u8, numbers: &[(i64, i64)], over: impl Over<'r>) {
        let (from, to, null) = (self.from, self.to as usize, self.null);
        over.check(|record, row| {
            // Zeros stay where null is.
            if null.is_set(record) {
                return false;
            }
            let value = load.of(record, from) as i64;
            let found = numbers.binary_search_by_key(&value, |number| number.0).ok().and_then(|at| numbers.get(at));
            if let Some((_, number)) = found {
                put_integer(row, to, bytes, *number as u64);
            }
            found.is_none()
        });
    }

    /// Integers to integers. Two's complement: the low bytes of a value that fits are the value, signed or not.
    #[inline(always)]
    fn integer<'r, const M: usize>(
        &self,
        load: Load,
        check: Option<Range>,
        over: impl Over<'r>,
        low_bytes: impl Fn(u64) -> [u8; M],
    ) {
        let (from, to, null) = (self.from, self.to as usize, self.null);
        match check {
            None => over.each(|record, row| put(row, to, low_bytes(load.of(record, from)))),
            Some(Range { low, span }) => over.check(|record, row| {
                let value = load.of(record, from);
                put(row, to, low_bytes(value));
                (value.wrapping_sub(low as u64) > span) & !null.is_set(record)
            }),
        }
    }
}

impl Load {
    #[inline(always)]
    fn of<'r>(self, record: impl Bytes<'r>, from: u32) -> u64 {
        let Load { up, down, signed } = self;
        let word = u64::from_le_bytes(record.load(from)) << up;
        if signed { (word as i64 >> down) as u64 } else { word >> down }
    }
}

#[inline]
pub(super) fn set_null(row: &mut [u8], null: NullBit) {
    if let Some(byte) = row.get_mut(null.byte as usize) {
        *byte |= null.mask;
    }
}

/// The bytes that the slot at this place of a part speaks of; none where it speaks of some that are not there.
#[inline]
pub(super) fn slot_bytes(record: &[u8], base: usize, at: u32) -> &[u8] {
    let (start, length) = slot(record, base + at as usize);
    record.get(start as usize..(start + length) as usize).unwrap_or_default()
}

/// Changes `N` bytes of a row.
#[inline(always)]
fn change<const N: usize>(at: usize, row: &mut [u8], change: impl Fn([u8; N]) -> [u8; N]) {
    if let Some(place) = row.get_mut(at..at + N).and_then(|bytes| bytes.first_chunk_mut::<N>()) {
        *place = change(*place);
    }
}
