//! Conditions of a common form, resolved once: a load at a known offset of every record of a batch, and a comparison.

use crossdock_format::{Field, FieldType, Format};
use crossdock_mailbox::{Batch, Selection};
use crossdock_query::{CompareOp, Constant, Expr, Like, Node};

use crate::key::{self, Bounds, Load};
use crate::warm::WarmPiece;

/// Where a field's value is, and how to see that it is null.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldPosition {
    /// In bytes from the start of the record.
    pub(crate) at: usize,
    /// Byte of the null bitmap, in bytes from the start of the record.
    pub(crate) null_byte: usize,
    /// Its bit there; 0 for a field that is never null.
    pub(crate) null_mask: u8,
}

impl FieldPosition {
    pub(crate) fn of(field: &Field) -> FieldPosition {
        let (null_byte, null_mask) = match field.null_bit {
            Some(bit) => (4 + usize::from(bit) / 8, 1 << (bit % 8)),
            None => (0, 0),
        };
        FieldPosition { at: field.offset as usize, null_byte, null_mask }
    }

    /// How many of a record's first bytes are read for a field of `bytes` bytes; without them, for one whose slot speaks of its bytes.
    /// That depends on the record, and is only of use for one in pieces.
    pub(crate) fn end(self, batch: &Batch, bytes: Option<usize>) -> usize {
        let end = match bytes {
            Some(bytes) => self.at + bytes,
            None if batch.is_in_pieces() => slot_end(batch.front(0), self.at),
            None => usize::MAX,
        };
        end.max(self.null_byte + 1)
    }
}

/// How many of a record's first bytes a slot and its bytes are in; all of them if the slot does not lie in `front`.
fn slot_end(front: &[u8], at: usize) -> usize {
    let Some(slot) = front.get(at..).and_then(|rest| rest.first_chunk()) else { return usize::MAX };
    let slot = u64::from_le_bytes(*slot);
    ((slot & 0xffff_ffff) as usize + (slot >> 32) as usize).max(at + 8)
}

/// A condition that needs no interpreter. None of them can have a row error.
#[derive(Clone, Debug)]
pub(crate) enum Kernel {
    /// No record passes.
    Nothing,
    /// The field is null, or is not.
    Null { place: FieldPosition, is_null: bool },
    /// The field's key lies within the bounds, or outside of them.
    Range { place: FieldPosition, load: Load, low: i64, high: i64, outside: bool },
    /// The field's key is one of these, which rise, or none of them.
    OneOf { place: FieldPosition, load: Load, keys: Box<[i64]>, negated: bool },
    /// A text or bytes that no key holds.
    Text { place: FieldPosition, source: TextLocation, test: Test },
}

/// Where the bytes of a text are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TextLocation {
    /// At the place itself: `n` bytes, padded with NUL.
    Padded(usize),
    /// In the variable part, by the slot at the place.
    Slot,
}

impl TextLocation {
    /// Its bytes at the place itself, where they are there.
    fn bytes(self) -> Option<usize> {
        match self {
            TextLocation::Padded(bytes) => Some(bytes),
            TextLocation::Slot => None,
        }
    }
}

/// The test of a text.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Equal {
        text: Box<[u8]>,
        negated: bool,
    },
    Compare {
        op: CompareOp,
        text: Box<[u8]>,
    },
    /// One of these, which rise, or none of them.
    OneOf {
        texts: Box<[Box<[u8]>]>,
        negated: bool,
    },
    StartsWith {
        text: Box<[u8]>,
        negated: bool,
    },
}

impl Test {
    #[inline]
    fn holds(&self, text: &[u8]) -> bool {
        match self {
            Test::Equal { text: other, negated } => (text == &**other) != *negated,
            Test::Compare { op, text: other } => op.holds(text.cmp(other)),
            Test::OneOf { texts, negated } => texts.binary_search_by(|other| (**other).cmp(text)).is_ok() != *negated,
            Test::StartsWith { text: other, negated } => text.starts_with(other) != *negated,
        }
    }
}

impl Kernel {
    /// Reads through what it compares with.
    pub(crate) fn warm(&self, piece: &mut WarmPiece) {
        match self {
            Kernel::OneOf { keys, .. } => piece.touch(keys),
            Kernel::Text { test: Test::OneOf { texts, .. }, .. } => texts.iter().for_each(|text| piece.touch(text)),
            Kernel::Text {
                test: Test::Equal { text, .. } | Test::Compare { text, .. } | Test::StartsWith { text, .. },
                ..
            } => piece.touch(text),
            Kernel::Nothing | Kernel::Null { .. } | Kernel::Range { .. } => {}
        }
    }

    /// The kernel of a condition; `None` if it has no form that a kernel has.
    pub(crate) fn of(condition: &Expr, format: &Format) -> Option<Kernel> {
        // Fields that one load reads, and that hold what the expression compares.
        let field = |expr: &Expr| match expr.node {
            Node::Field(index) => {
                // Short texts are cut out of a word, and there are foreign records that are shorter than one.
                let has_word = format.fixed_bytes() >= 8;
                let field = format.fields().get(index)?;
                let is_simple = field.is_plain() && field.ty == expr.ty;
                (is_simple && (has_word || !field.ty.is_text())).then_some(field)
            }
            _ => None,
        };
        match &condition.node {
            Node::Const(Constant::Bool(false) | Constant::Null) => Some(Kernel::Nothing),
            Node::Field(_) => truth(field(condition)?, true),
            Node::Not(operand) => truth(field(operand)?, false),
            Node::IsNull { negated, operand } => {
                Some(Kernel::Null { place: FieldPosition::of(field(operand)?), is_null: !negated })
            }
            Node::IsTruth { truth: Some(wanted), negated: false, operand } => truth(field(operand)?, *wanted),
            Node::Compare { op, left, right } => compare(field(left)?, *op, right.as_known()?),
            Node::Distinct { negated: true, left, right } => match right.as_known()? {
                Constant::Null => Some(Kernel::Null { place: FieldPosition::of(field(left)?), is_null: true }),
                constant => compare(field(left)?, CompareOp::Eq, constant),
            },
            Node::Between { negated, operand, low, high } => {
                between(field(operand)?, *negated, low.as_known()?, high.as_known()?)
            }
            Node::In { negated, operand, list } => {
                let list: Option<Vec<&Constant>> = list.iter().map(Expr::as_known).collect();
                one_of(field(operand)?, *negated, &list?)
            }
            Node::Like(like) => starts_with(field(&like.operand)?, like),
            _ => None,
        }
    }

    /// Its cost, roughly, for ordering: nanoseconds for a record.
    pub(crate) fn cost(&self) -> u32 {
        match self {
            Kernel::Nothing => 0,
            Kernel::Null { .. } => 1,
            Kernel::Range { .. } => 2,
            Kernel::OneOf { .. } => 4,
            Kernel::Text { .. } => 6,
        }
    }

    /// Keeps the selected records for which the condition is TRUE.
    pub(crate) fn narrow(&self, batch: &Batch, selection: &mut Selection) {
        match self {
            Kernel::Nothing => selection.narrow(|_| false),
            Kernel::Null { place, is_null } => {
                let mut records = Records::within(batch, place.null_byte + 1);
                selection.narrow(|index| records.is_null(index, *place) == *is_null);
            }
            Kernel::Range { place, load, low, high, outside } => {
                let (low, width, outside) = (*low, high.wrapping_sub(*low) as u64, *outside);
                narrow_by_key(batch, selection, *place, *load, |key| {
                    (key.wrapping_sub(low) as u64 <= width) != outside
                });
            }
            Kernel::OneOf { place, load, keys, negated } => {
                if keys.len() <= LISTED {
                    let test = |key| keys.iter().fold(false, |found, other| found | (*other == key)) != *negated;
                    narrow_by_key(batch, selection, *place, *load, test);
                } else {
                    narrow_by_key(batch, selection, *place, *load, |key| keys.binary_search(&key).is_ok() != *negated);
                }
            }
            Kernel::Text { place, source, test } => {
                let mut records = Records::within(batch, place.end(batch, source.bytes()));
                selection.narrow(|index| {
                    let record = records.record(index);
                    let text = match source {
                        TextLocation::Padded(bytes) => unpadded(record, place.at, *bytes),
                        TextLocation::Slot => slot_text(record, place.at),
                    };
                    test.holds(text) && !is_null(record, *place)
                });
            }
        }
    }
}

/// Up to this many keys are compared one after the other.
const LISTED: usize = 8;

fn truth(field: &Field, wanted: bool) -> Option<Kernel> {
    (field.ty == FieldType::Bool).then(|| Kernel::Range {
        place: FieldPosition::of(field),
        load: Load::U8,
        low: wanted.into(),
        high: wanted.into(),
        outside: false,
    })
}

fn with_bounds(field: &Field, load: Load, bounds: Bounds) -> Kernel {
    let place = FieldPosition::of(field);
    match bounds {
        Bounds::Nothing => Kernel::Nothing,
        Bounds::Everything => Kernel::Null { place, is_null: false },
        Bounds::Within(low, high) => Kernel::Range { place, load, low, high, outside: false },
        Bounds::Outside(low, high) => Kernel::Range { place, load, low, high, outside: true },
    }
}

fn source(field: &Field) -> TextLocation {
    match field.ty {
        FieldType::Char(bytes) => TextLocation::Padded(bytes.into()),
        _ => TextLocation::Slot,
    }
}

/// The bytes of a constant that compares with a text or bytes.
fn bytes_of(constant: &Constant) -> Option<&[u8]> {
    match constant {
        Constant::Text(text) => Some(text.as_bytes()),
        Constant::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn compare(field: &Field, op: CompareOp, constant: &Constant) -> Option<Kernel> {
    if *constant == Constant::Null {
        return Some(Kernel::Nothing);
    }
    if let Some(load) = Load::of(field.ty) {
        return Some(with_bounds(field, load, Bounds::of(field.ty, load, op, constant)?));
    }
    let text: Box<[u8]> = bytes_of(constant)?.into();
    let test = match op {
        CompareOp::Eq | CompareOp::Ne => Test::Equal { text, negated: op == CompareOp::Ne },
        op => Test::Compare { op, text },
    };
    Some(Kernel::Text { place: FieldPosition::of(field), source: source(field), test })
}

fn between(field: &Field, negated: bool, low: &Constant, high: &Constant) -> Option<Kernel> {
    let load = Load::of(field.ty)?;
    if *low == Constant::Null || *high == Constant::Null {
        // One bound may still decide: that is left to the interpreter.
        return None;
    }
    let bounds =
        Bounds::of(field.ty, load, CompareOp::Ge, low)?.and(Bounds::of(field.ty, load, CompareOp::Le, high)?)?;
    Some(with_bounds(field, load, if negated { bounds.negated() } else { bounds }))
}

fn one_of(field: &Field, negated: bool, list: &[&Constant]) -> Option<Kernel> {
    let known = list.iter().filter(|constant| ***constant != Constant::Null);
    if negated && list.contains(&&Constant::Null) {
        // Nothing is known to be none of them.
        return Some(Kernel::Nothing);
    }
    let place = FieldPosition::of(field);
    if let Some(load) = Load::of(field.ty) {
        let mut keys = Vec::with_capacity(list.len());
        for constant in known {
            match Bounds::of(field.ty, load, CompareOp::Eq, constant)? {
                Bounds::Within(low, high) if low == high => keys.push(low),
                Bounds::Nothing => {}
                _ => return None,
            }
        }
        keys.sort_unstable();
        keys.dedup();
        return Some(match (&keys[..], negated) {
            ([], false) => Kernel::Nothing,
            ([], true) => Kernel::Null { place, is_null: false },
            _ => Kernel::OneOf { place, load, keys: keys.into(), negated },
        });
    }
    let texts: Option<Vec<Box<[u8]>>> = known.map(|constant| bytes_of(constant).map(Into::into)).collect();
    let mut texts = texts?;
    texts.sort_unstable();
    texts.dedup();
    Some(Kernel::Text { place, source: source(field), test: Test::OneOf { texts: texts.into(), negated } })
}

/// `LIKE 'abc%'`, and LIKE without a wildcard.
fn starts_with(field: &Field, like: &Like) -> Option<Kernel> {
    let Some(Constant::Text(pattern)) = like.pattern.as_known() else { return None };
    if like.any_case || !field.ty.is_text() {
        return None;
    }
    let (text, is_open) = match pattern.strip_suffix('%') {
        Some(text) => (text, true),
        None => (pattern.as_str(), false),
    };
    if text.contains(['%', '_']) || like.escape.is_some_and(|escape| text.contains(escape) || escape == '%') {
        return None;
    }
    let (text, negated): (Box<[u8]>, bool) = (text.as_bytes().into(), like.negated);
    let test = if is_open { Test::StartsWith { text, negated } } else { Test::Equal { text, negated } };
    Some(Kernel::Text { place: FieldPosition::of(field), source: source(field), test })
}

/// The records of a batch by their numbers, with the buffer of the last one at hand: neighbours share it.
pub(crate) struct Records<'a> {
    batch: &'a Batch,
    slice: Option<u16>,
    buffer: &'a [u8],
    /// How many of a record's first bytes are read.
    reach: usize,
}

impl<'a> Records<'a> {
    pub(crate) fn of(batch: &'a Batch) -> Records<'a> {
        Records::within(batch, usize::MAX)
    }

    /// The same, to read the first `reach` bytes of each alone: a record in pieces is not joined for what lies in its first piece.
    pub(crate) fn within(batch: &'a Batch, reach: usize) -> Records<'a> {
        Records { batch, slice: None, buffer: &[], reach }
    }

    /// The buffer that a record is in, and where it begins there; nothing if there is no such record.
    #[inline]
    fn start(&mut self, index: usize) -> (&'a [u8], usize) {
        let Some(span) = self.batch.records.get(index) else { return (&[], 0) };
        if self.slice != Some(span.slice) {
            self.turn_to(span.slice);
        }
        (self.buffer, span.start as usize)
    }

    #[cold]
    fn turn_to(&mut self, slice: u16) {
        self.slice = Some(slice);
        if self.batch.is_in_pieces() {
            // It begins at 0 in its span.
            let front = self.batch.front(0);
            self.buffer = if self.reach <= front.len() { front } else { self.batch.record(0) };
            return;
        }
        let buffer = self.batch.slices.get(slice as usize).map(|slice| slice.buffer as usize);
        self.buffer = buffer.and_then(|buffer| self.batch.buffers.get(buffer)).map_or(&[], |buffer| buffer);
    }

    /// A record's bytes, of one in pieces as many as are read; none if there is no such record.
    #[inline]
    pub(crate) fn record(&mut self, index: usize) -> &'a [u8] {
        let (buffer, start) = self.start(index);
        let len = self.batch.records.get(index).map_or(0, |span| span.len as usize);
        match buffer.get(start..).and_then(|rest| rest.get(..len)) {
            Some(record) => record,
            None if self.batch.is_in_pieces() => buffer,
            None => &[],
        }
    }

    #[inline]
    fn is_null(&mut self, index: usize, place: FieldPosition) -> bool {
        let (buffer, start) = self.start(index);
        buffer.get(start + place.null_byte).is_some_and(|byte| byte & place.null_mask != 0)
    }
}

#[inline]
pub(crate) fn is_null(record: &[u8], place: FieldPosition) -> bool {
    record.get(place.null_byte).is_some_and(|byte| byte & place.null_mask != 0)
}

/// A `char[N]` without its padding.
#[inline]
fn unpadded(record: &[u8], at: usize, bytes: usize) -> &[u8] {
    let padded = record.get(at..at + bytes).unwrap_or_default();
    let length = padded.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &padded[..length]
}

/// The bytes that a slot speaks of.
#[inline]
pub(crate) fn slot_text(record: &[u8], at: usize) -> &[u8] {
    let slot = u64::from_le_bytes(load(record, at));
    let (start, length) = ((slot & 0xffff_ffff) as usize, (slot >> 32) as usize);
    record.get(start..).and_then(|rest| rest.get(..length)).unwrap_or_default()
}

#[inline]
fn load<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// Keeps the records whose field is not null and has a key that passes. One loop for each kind of load.
fn narrow_by_key(
    batch: &Batch,
    selection: &mut Selection,
    place: FieldPosition,
    kind: Load,
    test: impl Fn(i64) -> bool,
) {
    match kind {
        Load::I8 => narrow(batch, selection, place, test, |bytes| i8::from_le_bytes(bytes).into()),
        Load::I16 => narrow(batch, selection, place, test, |bytes| i16::from_le_bytes(bytes).into()),
        Load::I32 => narrow(batch, selection, place, test, |bytes| i32::from_le_bytes(bytes).into()),
        Load::I64 => narrow(batch, selection, place, test, i64::from_le_bytes),
        Load::U8 => narrow(batch, selection, place, test, |bytes| u8::from_le_bytes(bytes).into()),
        Load::U16 => narrow(batch, selection, place, test, |bytes| u16::from_le_bytes(bytes).into()),
        Load::U32 => narrow(batch, selection, place, test, |bytes| u32::from_le_bytes(bytes).into()),
        Load::U64 => narrow(batch, selection, place, test, |bytes| key::of_u64(u64::from_le_bytes(bytes))),
        Load::F32 => narrow(batch, selection, place, test, |bytes| key::of_f64(f32::from_le_bytes(bytes).into())),
        Load::F64 => narrow(batch, selection, place, test, |bytes| key::of_f64(f64::from_le_bytes(bytes))),
        Load::Char(bytes) => narrow_by_char(batch, selection, place, bytes, test),
    }
}

/// The field's bytes are loaded as part of a whole word, the one that ends with them; or the record's first one, since a
/// record has at least 8 bytes.
fn narrow_by_char(
    batch: &Batch,
    selection: &mut Selection,
    place: FieldPosition,
    bytes: u16,
    test: impl Fn(i64) -> bool,
) {
    let bytes = usize::from(bytes);
    let back = place.at - (place.at + bytes).saturating_sub(8);
    let (shift, place) = (8 * back as u32, FieldPosition { at: place.at - back, ..place });
    let mask = if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
    narrow(batch, selection, place, test, |word| key::of_char((u64::from_le_bytes(word) >> shift) & mask));
}

fn narrow<const N: usize>(
    batch: &Batch,
    selection: &mut Selection,
    place: FieldPosition,
    test: impl Fn(i64) -> bool,
    key: impl Fn([u8; N]) -> i64,
) {
    let mut records = Records::within(batch, place.end(batch, Some(N)));
    if place.null_mask == 0 {
        selection.narrow(|index| {
            let (buffer, start) = records.start(index);
            test(key(load(buffer, start + place.at)))
        });
    } else {
        selection.narrow(|index| {
            let (buffer, start) = records.start(index);
            let is_null = load::<1>(buffer, start + place.null_byte)[0] & place.null_mask != 0;
            test(key(load(buffer, start + place.at))) & !is_null
        });
    }
}
