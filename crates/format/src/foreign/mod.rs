//! Foreign layouts: bytes as other programs write them, read in place.
//!
//! A field may lie at any offset, in either byte order, in any number of bytes or bits; null may be a bit, a value, or
//! the absence of the variant that the field belongs to; text and lists may lie behind slots of any width. All that
//! reading takes is worked out when the format is made: a field whose value is one little-endian load stays as cheap as
//! in the natural layout ([`Field::is_plain`](crate::Field::is_plain)), the others cost what [`ReadCost`] says.
//!
//! Records are written through the format's natural format ([`Format::natural_format`](crate::Format::natural_format)), the natural layout of the same
//! fields: what makes records of natural layouts makes these too, and `write` then gives them their bytes.

mod attributes;
mod check;
mod cursor;
mod head;
mod kind;
mod piece;
mod place;
mod span;
mod write;

use crate::element::{Count, Element};
use crate::field::FieldType;
use crate::format::Layout;
use crate::record::{List, Value};
use piece::{Head, Spot, Stride, unzigzag, varint};

pub(crate) use check::ForeignLayout;
pub(crate) use piece::At;
pub(crate) use place::parse;
pub(crate) use write::{write, write_over};

/// The cost of reading a field in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ReadCost {
    /// One load, or one slot: compiled code does it.
    Load,
    /// Bytes are swapped, cut out of others, or compared first; the interpreter does it, value by value.
    Converted,
    /// As [`ReadCost::Converted`], after a look at the field that says which variant is there.
    Guarded,
    /// As [`ReadCost::Converted`], after a walk over what lies in front of the field and has no constant length.
    Walked,
}

impl ReadCost {
    /// The cost in words, for people: what is done, and by whom.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Load => "read by one load",
            Self::Converted => "read in place, but bytes are swapped, cut out or compared first: about 5 ns a value",
            Self::Guarded => "read in place, after reading the field that selects the variant: about 10 ns a value",
            Self::Walked => {
                "read in place, after finding its place behind fields of variable length: about 10 ns a value, and about 3 ns \
                 for each of these fields"
            }
        }
    }
}

/// How a field of a foreign layout is read, where that is more than one load.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Access {
    pub(crate) read: Read,
    pub(crate) tests: Tests,
}

impl Access {
    pub(crate) fn cost(&self) -> ReadCost {
        if self.walks() {
            ReadCost::Walked
        } else if self.tests.iter().any(|test| matches!(test, Test::OneOf { .. })) {
            ReadCost::Guarded
        } else {
            ReadCost::Converted
        }
    }

    /// Whether the value, or what says that it is null, has no constant place.
    fn walks(&self) -> bool {
        let spot = match &self.read {
            Read::Number { load, .. } | Read::Float(load) | Read::Slot { start: load, .. } => load.at,
            Read::Wide { at, .. } | Read::Text { at, .. } | Read::Here { at, .. } | Read::Nul { at } => *at,
        };
        spot.anchor != 0 || piece::any_walks(&self.tests)
    }
}

/// The tests that make a field or nested record null; it is there if none of them does.
pub(crate) type Tests = Box<[Test]>;

#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Test {
    /// The variant is not there: the discriminator, field `of`, has none of these values.
    OneOf { of: usize, load: Number, values: Box<[i128]> },
    /// The bit of field `of` is as given.
    Bit { of: usize, load: Number, bit: u8, when: bool },
    /// The number is this one.
    Sentinel { load: Number, value: i128 },
    /// The float is this one, by its bits; without bits, any that is no number.
    Float { load: Number, bits: Option<u64> },
    /// The text, without its padding, is this one.
    Text { at: Spot, len: u16, pads_space: bool, text: Box<[u8]> },
}

impl Test {
    /// Whether the field is null because of this.
    #[inline]
    pub(crate) fn is_null(&self, place: &At<'_>) -> bool {
        match self {
            Self::OneOf { load, values, .. } => !values.contains(&load.value(place)),
            Self::Bit { load, bit, when, .. } => (load.raw(place) >> bit & 1 != 0) == *when,
            Self::Sentinel { load, value } => load.value(place) == *value,
            Self::Float { load, bits } => {
                let raw = load.raw(place);
                match bits {
                    Some(bits) => raw == *bits,
                    None if load.bytes == 4 => f32::from_bits(raw as u32).is_nan(),
                    None => f64::from_bits(raw).is_nan(),
                }
            }
            Self::Text { at, len, pads_space, text } => {
                unpadded(place.bytes, place.spot(*at), usize::from(*len), *pads_space) == &**text
            }
        }
    }
}

impl Test {
    /// The field whose value is looked at, where that is another one.
    pub(crate) fn of(&self) -> Option<usize> {
        match self {
            Self::OneOf { of, .. } | Self::Bit { of, .. } => Some(*of),
            _ => None,
        }
    }
}

#[inline]
pub(crate) fn any_null(tests: &[Test], place: &At<'_>) -> bool {
    tests.iter().any(|test| test.is_null(place))
}

/// How a number's bytes are put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Form {
    Little,
    Big,
    /// Seven bits a byte, the lowest first, with the top bit set in all bytes but the last.
    Varint,
    /// As [`Form::Varint`], of a signed number whose sign is the lowest bit.
    Zigzag,
}

impl Form {
    pub(crate) const fn of(is_big: bool) -> Self {
        if is_big { Self::Big } else { Self::Little }
    }

    pub(crate) const fn is_varint(self) -> bool {
        matches!(self, Self::Varint | Self::Zigzag)
    }
}

/// A number of 1 to 8 bytes, or some bits of it, or of as many bytes as it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Number {
    pub(crate) at: Spot,
    /// How many bytes it has, unless it is a varint.
    pub(crate) bytes: u8,
    pub(crate) form: Form,
    pub(crate) signed: bool,
    /// The lowest bit that belongs to it.
    pub(crate) shift: u8,
    /// How many bits belong to it.
    pub(crate) bits: u8,
}

impl Number {
    /// Its bits unchanged; zeros where the bytes end.
    #[inline]
    pub(crate) fn raw(&self, place: &At<'_>) -> u64 {
        self.load(place.bytes, place.spot(self.at)).unwrap_or(0)
    }

    #[inline]
    fn load(&self, bytes: &[u8], at: usize) -> Option<u64> {
        let len = usize::from(self.bytes);
        let mut word = [0; 8];
        let number = match self.form {
            Form::Varint | Form::Zigzag => return varint(bytes, at).ok().map(|(number, _)| number),
            Form::Big => {
                word[8 - len..].copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
                u64::from_be_bytes(word)
            }
            Form::Little => {
                word[..len].copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
                u64::from_le_bytes(word)
            }
        };
        let cut = number >> self.shift;
        Some(if self.bits == 64 { cut } else { cut & ((1 << self.bits) - 1) })
    }

    /// Its bits unchanged.
    ///
    /// # Errors
    /// Not all its bytes are there; a varint of more than 64 bits.
    pub(crate) fn read(&self, place: &At<'_>) -> Result<u64, piece::Flaw> {
        let start = place.spot(self.at);
        if self.form.is_varint() {
            return varint(place.bytes, start).map(|(number, _)| number);
        }
        let at_least = start.saturating_add(self.bytes.into());
        self.load(place.bytes, start).ok_or(piece::Flaw::Short { at_least })
    }

    /// Whether some of its numbers, as counts of `unit` nanoseconds, are no timestamps: beyond the years 1677 to 2262.
    pub(crate) fn passes_time(&self, unit: i64) -> bool {
        let most = 1 << if self.signed { self.bits.saturating_sub(1) } else { self.bits };
        unit > 1 && !is_time(most, unit)
    }

    /// The number, with its sign.
    #[inline]
    pub(crate) fn value(&self, place: &At<'_>) -> i128 {
        let raw = self.raw(place);
        if !self.signed {
            return raw.into();
        }
        if self.form == Form::Zigzag {
            return unzigzag(raw).into();
        }
        let unused = 64 - u32::from(self.bits);
        ((raw << unused) as i64 >> unused).into()
    }
}

/// Whether 64 bits of nanoseconds hold `count` units.
pub(crate) fn is_time(count: i128, unit: i64) -> bool {
    count.checked_mul(unit.into()).is_some_and(|nanoseconds| i64::try_from(nanoseconds).is_ok())
}

/// Where a value's bytes are.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Read {
    /// A number, or what is one: a truth value, an enumeration, a timestamp of `unit` nanoseconds a unit, a decimal.
    Number { load: Number, unit: i64 },
    /// A float.
    Float(Number),
    /// A decimal of 16 bytes.
    Wide { at: Spot, is_big: bool },
    /// Text with padding.
    Text { at: Spot, len: u16, pads_space: bool },
    /// Text up to a NUL.
    Nul { at: Spot },
    /// Bytes or elements behind a slot; the offset counts from `base` bytes into the record.
    Slot { start: Number, len: Number, base: u32 },
    /// Elements or bytes in their place, behind a head.
    Here { at: Spot, head: Head, count: Length, stride: Stride },
}

/// The number of elements: constant, or the value of field `of`, or of a number in the list's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Length {
    Fixed(u32),
    Field { of: usize, load: Number },
    Head(Number),
}

impl Length {
    #[inline]
    fn value(&self, place: &At<'_>) -> u64 {
        match self {
            Self::Fixed(count) => u64::from(*count),
            Self::Field { load, .. } | Self::Head(load) => load.raw(place),
        }
    }
}

/// Text without what fills up its place: NUL, and blanks where it is so declared.
#[inline]
fn unpadded(bytes: &[u8], at: usize, len: usize, pads_space: bool) -> &[u8] {
    let mut text = bytes.get(at..at.saturating_add(len)).unwrap_or_default();
    while let [rest @ .., last] = text {
        if *last != 0 && !(pads_space && *last == b' ') {
            break;
        }
        text = rest;
    }
    text
}

/// Where what a slot speaks of starts, and how many bytes or elements it is. No slot is in an element: they count from the
/// record's start.
#[inline]
pub(crate) fn slot_of(start: &Number, len: &Number, base: u32, place: &At<'_>) -> (u64, u64) {
    // An offset of 64 bits may be beyond all that there is, and stays that.
    (start.raw(place).saturating_add(base.into()), len.raw(place))
}

impl Access {
    /// The value of a field that is not null.
    #[inline]
    pub(crate) fn value<'a>(&self, layout: &'a Layout, field: usize, ty: FieldType, place: &At<'a>) -> Value<'a> {
        let bytes = place.bytes;
        match &self.read {
            Read::Number { load, unit } => number(layout, field, ty, load.value(place), *unit),
            Read::Float(load) if load.bytes == 4 => Value::Float(f32::from_bits(load.raw(place) as u32).into()),
            Read::Float(load) => Value::Float(f64::from_bits(load.raw(place))),
            Read::Wide { at, is_big } => {
                let word = crate::record::load(bytes, place.spot(*at).min(bytes.len()));
                let unscaled = if *is_big { i128::from_be_bytes(word) } else { i128::from_le_bytes(word) };
                let scale = if let FieldType::Decimal { scale, .. } = ty { scale } else { 0 };
                Value::Decimal { unscaled, scale }
            }
            Read::Text { at, len, pads_space } => {
                Value::Text(unpadded(bytes, place.spot(*at), usize::from(*len), *pads_space))
            }
            Read::Nul { at } => {
                let text = bytes.get(place.spot(*at)..).unwrap_or_default();
                Value::Text(text.iter().position(|byte| *byte == 0).and_then(|end| text.get(..end)).unwrap_or_default())
            }
            Read::Slot { start, len, base: from } => {
                let (start, len) = slot_of(start, len, *from, place);
                let stride = layout.element(field).map_or(1, |element| element.stride);
                run(layout, field, ty, bytes, (start, len, stride))
            }
            Read::Here { at, head, count, stride } => {
                let start = place.spot(*at);
                let start = start.saturating_add(head.len(place, start).unwrap_or(0)) as u64;
                run(layout, field, ty, bytes, (start, count.value(place), stride.value(place)))
            }
        }
    }
}

/// Elements, or bytes, of a field: where they start, how many they are, and how far apart.
#[inline]
fn run<'a>(
    layout: &'a Layout,
    field: usize,
    ty: FieldType,
    bytes: &'a [u8],
    (start, len, stride): (u64, u64, u32),
) -> Value<'a> {
    match layout.element(field) {
        Some(element) => list(element, bytes, start, len, stride),
        None => {
            let range = usize::try_from(start).ok().zip(usize::try_from(start.saturating_add(len)).ok());
            let found = range.and_then(|(start, end)| bytes.get(start..end)).unwrap_or_default();
            if ty == FieldType::Bytes { Value::Bytes(found) } else { Value::Text(found) }
        }
    }
}

fn number<'a>(layout: &'a Layout, field: usize, ty: FieldType, value: i128, unit: i64) -> Value<'a> {
    match ty {
        FieldType::Bool => Value::Bool(value != 0),
        FieldType::Timestamp => {
            // Those beyond 64 bits of nanoseconds are refused by the check.
            let nanoseconds = value.saturating_mul(unit.into()).clamp(i64::MIN.into(), i64::MAX.into());
            Value::Timestamp(nanoseconds as i64)
        }
        FieldType::Decimal { scale, .. } => Value::Decimal { unscaled: value, scale },
        FieldType::Enum { .. } => {
            let number = value as i64;
            Value::Enum { number, symbol: layout.enumeration(field).and_then(|of| of.symbol(number)) }
        }
        FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64 => Value::Uint(value as u64),
        _ => Value::Int(value as i64),
    }
}

fn list<'a>(element: &'a Element, bytes: &'a [u8], start: u64, len: u64, stride: u32) -> Value<'a> {
    let at = usize::try_from(start).unwrap_or(usize::MAX);
    let most = match element.count {
        Count::Fixed(count) => count,
        Count::Slot => u32::MAX,
    };
    Value::List(List::of(element, bytes, at, u32::try_from(len).unwrap_or(u32::MAX).min(most), stride))
}
