//! What a field's type and attributes make of it in a foreign layout.

use std::fmt::Write as _;
use std::sync::Arc;

use super::attributes::{Attributes, UNITS, whole};
use super::place::fits;
use super::{Access, Length, Number, Read, Test};
use crate::field::{Detail, FieldType};
use crate::natural;
use crate::notation::{Quoted, Ty};

/// What a field's type and attributes make of it, before it has a place.
pub(super) struct Kind {
    pub(super) ty: FieldType,
    pub(super) detail: Detail,
    /// Bytes in its place.
    pub(super) size: u32,
    pub(super) align: u32,
    pub(super) is_big: bool,
    /// Whether there is more than one byte to put in order.
    pub(super) has_order: bool,
    pub(super) read: Template,
    /// The type, and what stands behind the place, as they are written down.
    pub(super) text: String,
    pub(super) attributes: String,
}

/// How it is read, before it has a place.
pub(super) enum Template {
    Number { signed: bool, bits: Option<(u8, u8)>, unit: i64 },
    Float,
    Wide,
    Text { pads_space: bool },
    Slot { start: u8, len: u8, base: u32 },
    Here(Length),
}

impl Kind {
    fn load(&self, at: u32, signed: bool, bits: Option<(u8, u8)>) -> Number {
        let (low, high) = bits.unwrap_or((0, self.size as u8 * 8));
        let is_big = self.is_big && self.has_order;
        Number { offset: at, bytes: self.size as u8, is_big, signed, shift: low, bits: high - low }
    }

    /// The field as a number that a discriminator or a count can be.
    pub(super) fn number(&self, at: u32) -> Option<Number> {
        match self.read {
            Template::Number { signed, bits, .. } => Some(self.load(at, signed, bits)),
            Template::Text { .. } if self.size <= 8 => {
                let bits = self.size as u8 * 8;
                Some(Number { offset: at, bytes: self.size as u8, is_big: true, signed: false, shift: 0, bits })
            }
            _ => None,
        }
    }

    /// How it is read, if one load does not do it.
    pub(super) fn access(&self, at: u32, tests: Vec<Test>) -> Option<Arc<Access>> {
        let is_natural = tests.is_empty() && !(self.is_big && self.has_order) && self.size as usize == self.ty.size();
        match self.read {
            Template::Number { bits: None, unit: 1, .. } if is_natural && self.ty != FieldType::Bool => None,
            Template::Float | Template::Wide | Template::Text { pads_space: false } if is_natural => None,
            _ => Some(Arc::new(Access { read: self.read_at(at), tests: tests.into() })),
        }
    }

    /// Where its bytes are, and what they are.
    pub(super) fn read_at(&self, at: u32) -> Read {
        match self.read {
            Template::Number { signed, bits, unit } => Read::Number { load: self.load(at, signed, bits), unit },
            Template::Float => Read::Float(self.load(at, false, None)),
            Template::Wide => Read::Wide { offset: at, is_big: self.is_big },
            Template::Text { pads_space } => Read::Text { offset: at, len: self.size as u16, pads_space },
            Template::Slot { start, len, base } => {
                let number = |offset, bytes: u8| Number {
                    offset,
                    bytes,
                    is_big: self.is_big,
                    signed: false,
                    shift: 0,
                    bits: bytes * 8,
                };
                Read::Slot { start: number(at, start), len: number(at + u32::from(start), len), base }
            }
            Template::Here(count) => Read::Here { offset: at, count },
        }
    }

    /// The test of `null if = VALUE`, and the value as it is written down.
    pub(super) fn sentinel(&self, at: u32, word: &str) -> Option<(Test, String)> {
        match self.read {
            Template::Number { signed, bits, .. } => {
                let load = self.load(at, signed, bits);
                let symbol = match &self.detail {
                    Detail::Enum(enumeration) => enumeration.number(word).map(i128::from),
                    _ => None,
                };
                let value = symbol.or_else(|| whole(word)).filter(|value| fits(load, *value))?;
                Some((Test::Sentinel { load, value }, value.to_string()))
            }
            Template::Float => {
                let load = self.load(at, false, None);
                let any_nan = word.eq_ignore_ascii_case("nan");
                let (bits, text) = match self.ty {
                    // What is no number has many forms.
                    _ if any_nan => (None, "nan".to_owned()),
                    FieldType::F32 => {
                        let value: f32 = word.parse().ok()?;
                        (Some(value.to_bits().into()), format!("{value:?}"))
                    }
                    _ => {
                        let value: f64 = word.parse().ok()?;
                        (Some(value.to_bits()), format!("{value:?}"))
                    }
                };
                Some((Test::Float { load, bits }, text))
            }
            Template::Text { pads_space } => {
                let len = self.size as u16;
                let is_padding = |c: char| c == '\0' || (pads_space && c == ' ');
                let text = word.trim_end_matches(is_padding);
                let test = Test::Text { offset: at, len, pads_space, text: text.as_bytes().into() };
                (text.len() <= usize::from(len)).then(|| (test, Quoted(text).to_string()))
            }
            _ => None,
        }
    }
}

impl Kind {
    /// What a single value is.
    pub(super) fn of(ty: &Ty, attributes: &Attributes, is_big: bool) -> Result<Kind, &'static str> {
        let mut kind = Kind {
            ty: FieldType::U8,
            detail: Detail::None,
            size: 0,
            align: 1,
            is_big,
            has_order: false,
            read: Template::Float,
            text: text_of(ty),
            attributes: String::new(),
        };
        let number = |signed| Template::Number { signed, bits: attributes.bits, unit: attributes.unit.unwrap_or(1) };
        match ty {
            Ty::Scalar(FieldType::List) | Ty::Record | Ty::Union(_) | Ty::List { .. } => {
                return Err("it is no single value");
            }
            Ty::Scalar(FieldType::Enum { .. }) => return Err("an enumeration has braces"),
            Ty::Scalar(ty @ (FieldType::String | FieldType::Bytes)) => {
                let (start, len) = attributes.slot.ok_or("it lies behind a slot: `slot u16 u16`, offset and length")?;
                kind.ty = *ty;
                kind.size = u32::from(start) + u32::from(len);
                kind.align = u32::from(start.max(len)).next_power_of_two();
                kind.read = Template::Slot { start, len, base: attributes.base.unwrap_or(0) };
            }
            Ty::Scalar(ty) => {
                kind.ty = *ty;
                kind.size = attributes.size.map_or(ty.size() as u32, u32::from);
                kind.align = ty.align() as u32;
                kind.read = match ty {
                    FieldType::Char(_) => Template::Text { pads_space: attributes.pads_space },
                    FieldType::F32 | FieldType::F64 => Template::Float,
                    FieldType::Decimal { bytes: 16, .. } => Template::Wide,
                    FieldType::Decimal { .. } => number(true),
                    FieldType::Timestamp => number(kind.size == 8),
                    ty => number(ty.integer_range().is_some_and(|(least, _)| least < 0)),
                };
            }
            Ty::Odd { bytes, signed } => {
                kind.ty = integer(u32::from(*bytes) * 8, *signed);
                kind.size = (*bytes).into();
                kind.read = number(*signed);
            }
            Ty::Enum { bytes, signed, symbols } => {
                kind.ty = FieldType::Enum { bytes: *bytes, signed: *signed };
                kind.detail = natural::enumeration(*bytes, *signed, symbols.clone())?;
                (kind.size, kind.align) = ((*bytes).into(), (*bytes).into());
                kind.read = number(*signed);
            }
        }
        kind.check(attributes)?;
        kind.has_order = kind.size > 1 && !matches!(kind.ty, FieldType::Char(_));
        if let (Some((low, high)), Template::Number { signed, .. }) = (attributes.bits, &kind.read)
            && kind.ty.is_integer()
        {
            kind.ty = integer(u32::from(high - low), *signed);
        }
        kind.attributes = attributes.text();
        Ok(kind)
    }

    /// Refuses attributes that say nothing of such a field.
    fn check(&self, attributes: &Attributes) -> Result<(), &'static str> {
        let is_number = matches!(self.read, Template::Number { .. });
        let is_timestamp = self.ty == FieldType::Timestamp;
        match attributes {
            Attributes { bits: Some(_), .. } if !is_number => Err("`bits` is for whole numbers"),
            Attributes { bits: Some((_, high)), .. } if u32::from(*high) > self.size * 8 => {
                Err("`bits` goes beyond the number's bytes")
            }
            Attributes { pads_space: true, .. } if !matches!(self.ty, FieldType::Char(_)) => {
                Err("`pad space` is for char[N]")
            }
            Attributes { unit: Some(_), .. } if !is_timestamp => Err("`unit` is for timestamps"),
            Attributes { size: Some(_), .. } if !is_timestamp && self.ty != FieldType::Bool => {
                Err("`size` is for timestamps and bool")
            }
            Attributes { size: Some(0 | 9..), .. } => Err("`size` is 1 to 8 bytes"),
            Attributes { slot: Some(_), .. } | Attributes { base: Some(_), .. }
                if !matches!(self.read, Template::Slot { .. }) =>
            {
                Err("`slot` and `base` are for string, bytes and lists")
            }
            Attributes { count: Some(_), .. } | Attributes { stride: Some(_), .. } => {
                Err("`count` and `stride` are for lists")
            }
            _ => Ok(()),
        }
    }
}

impl Attributes {
    /// As they are written down, but for the place, the order, null and the count.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        if let Some((low, high)) = self.bits {
            let _ = write!(text, " bits {low}..{high}");
        }
        if self.pads_space {
            text.push_str(" pad space");
        }
        let unit = self.unit.filter(|unit| *unit != 1).and_then(|unit| UNITS.iter().find(|(_, known)| *known == unit));
        if let Some((unit, _)) = unit {
            let _ = write!(text, " unit {unit}");
        }
        if let Some(size) = self.size {
            let _ = write!(text, " size {size}");
        }
        if let Some((start, len)) = self.slot {
            let _ = write!(text, " slot u{} u{}", u32::from(start) * 8, u32::from(len) * 8);
        }
        if let Some(base) = self.base.filter(|base| *base != 0) {
            let _ = write!(text, " base {base}");
        }
        text
    }
}

/// The type of whole numbers that holds `bits` bits.
fn integer(bits: u32, signed: bool) -> FieldType {
    match (bits, signed) {
        (0..=8, false) => FieldType::U8,
        (0..=8, true) => FieldType::I8,
        (9..=16, false) => FieldType::U16,
        (9..=16, true) => FieldType::I16,
        (17..=32, false) => FieldType::U32,
        (17..=32, true) => FieldType::I32,
        (_, false) => FieldType::U64,
        (_, true) => FieldType::I64,
    }
}

/// A type as it is written down; records and unions are written with their fields.
pub(super) fn text_of(ty: &Ty) -> String {
    match ty {
        Ty::Scalar(ty) => ty.to_string(),
        Ty::Odd { bytes, signed } => format!("{}{}", if *signed { 'i' } else { 'u' }, u32::from(*bytes) * 8),
        Ty::Enum { bytes, signed, symbols } => {
            let mut text = format!("{} {{", FieldType::Enum { bytes: *bytes, signed: *signed });
            for (index, (symbol, number)) in symbols.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                let _ = write!(text, "{comma} {} = {number}", Quoted(symbol));
            }
            text.push_str(if symbols.is_empty() { "}" } else { " }" });
            text
        }
        Ty::List { element, count } => {
            format!("{}[{}]", text_of(element), count.map(|count| count.to_string()).unwrap_or_default())
        }
        Ty::Record => "record".to_owned(),
        Ty::Union(_) => "union".to_owned(),
    }
}
