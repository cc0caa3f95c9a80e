//! The layout of a field by its type and attributes.

use std::fmt::Write as _;
use std::sync::Arc;

use super::attributes::{Attributes, UNITS, Width, whole};
use super::piece::{Head, PieceLen, Spot, Stride};
use super::place::fits;
use super::{Access, Form, Length, Number, Read, Test};
use crate::field::{Detail, FieldType};
use crate::natural;
use crate::notation::{Quoted, Ty};

/// The layout of a field by its type and attributes, before it has a place.
pub(super) struct ForeignType {
    pub(super) ty: FieldType,
    pub(super) detail: Detail,
    /// Bytes in its place.
    pub(super) size: u32,
    pub(super) align: u32,
    pub(super) is_big: bool,
    /// Set for a varint; true for one whose sign is the lowest bit.
    pub(super) varint: Option<bool>,
    /// Whether there is more than one byte to put in order.
    pub(super) has_order: bool,
    pub(super) read: Template,
    /// The type, and what stands behind the place, as written down.
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
    Nul,
    Here(Count),
}

/// How many elements or bytes lie there, and how far they are apart.
pub(super) enum Count {
    Fixed(u32, u32),
    Field { of: usize, load: Number, stride: u32 },
    Inline { width: Width, stride: u32 },
    Group { stride: u8, count: u8, head: u32, least: u32 },
}

impl Count {
    /// The words for it, behind the place.
    pub(super) fn text(attributes: &Attributes) -> String {
        let mut text = match attributes.inline {
            Some(Width::Varint) => " inline varint".to_owned(),
            Some(Width::Bytes(bytes)) => format!(" inline u{}", u32::from(bytes) * 8),
            None => String::new(),
        };
        if let Some((stride, count, head)) = attributes.group {
            let _ = write!(text, " group u{} u{} head {head}", u32::from(stride) * 8, u32::from(count) * 8);
        }
        text
    }

    /// Bytes in front of the elements, at least.
    pub(super) fn head(&self) -> u32 {
        match self {
            Self::Fixed(..) | Self::Field { .. } => 0,
            Self::Inline { width: Width::Bytes(bytes), .. } => (*bytes).into(),
            Self::Inline { width: Width::Varint, .. } => 1,
            Self::Group { head, .. } => *head,
        }
    }

    fn read_at(&self, at: Spot, is_big: bool) -> Read {
        let number = |offset: u32, bytes: u8| Number {
            at: Spot { offset: at.offset + offset, ..at },
            bytes,
            form: Form::of(is_big && bytes > 1),
            signed: false,
            shift: 0,
            bits: bytes * 8,
        };
        let (head, count, stride) = match *self {
            Self::Fixed(count, stride) => (Head::Bytes(0), Length::Fixed(count), Stride::Fixed(stride)),
            Self::Field { of, load, stride } => (Head::Bytes(0), Length::Field { of, load }, Stride::Fixed(stride)),
            Self::Inline { width: Width::Bytes(bytes), stride } => {
                (Head::Bytes(bytes.into()), Length::Head(number(0, bytes)), Stride::Fixed(stride))
            }
            Self::Inline { width: Width::Varint, stride } => {
                let count = Number { form: Form::Varint, bits: 64, ..number(0, 0) };
                (Head::Varint, Length::Head(count), Stride::Fixed(stride))
            }
            Self::Group { stride, count, head, least } => {
                let stride = Stride::Stated { load: number(0, stride), least };
                (Head::Bytes(head), Length::Head(number(head - u32::from(count), count)), stride)
            }
        };
        Read::Here { at, head, count, stride }
    }
}

impl ForeignType {
    fn load(&self, at: Spot, signed: bool, bits: Option<(u8, u8)>) -> Number {
        if let Some(has_sign) = self.varint {
            let form = if has_sign { Form::Zigzag } else { Form::Varint };
            let bits = match self.ty {
                FieldType::Timestamp if !has_sign => 63,
                ty => ty.size() as u8 * 8,
            };
            return Number { at, bytes: 0, form, signed: has_sign, shift: 0, bits };
        }
        let (low, high) = bits.unwrap_or((0, self.size as u8 * 8));
        let form = Form::of(self.is_big && self.has_order);
        Number { at, bytes: self.size as u8, form, signed, shift: low, bits: high - low }
    }

    /// The field as a number that a discriminator or a count can be.
    pub(super) fn number(&self, at: Spot) -> Option<Number> {
        match self.read {
            Template::Number { signed, bits, .. } => Some(self.load(at, signed, bits)),
            Template::Text { .. } if self.size <= 8 => {
                let bits = self.size as u8 * 8;
                Some(Number { at, bytes: self.size as u8, form: Form::Big, signed: false, shift: 0, bits })
            }
            _ => None,
        }
    }

    /// How it is read, if one load does not do it.
    pub(super) fn access(&self, at: Spot, tests: Vec<Test>) -> Option<Arc<Access>> {
        let is_here = at.anchor == 0 && self.varint.is_none();
        let is_natural =
            is_here && tests.is_empty() && !(self.is_big && self.has_order) && self.size as usize == self.ty.size();
        match self.read {
            Template::Number { bits: None, unit: 1, .. } if is_natural && self.ty != FieldType::Bool => None,
            Template::Float | Template::Wide | Template::Text { pads_space: false } if is_natural => None,
            _ => Some(Arc::new(Access { read: self.read_at(at), tests: tests.into() })),
        }
    }

    /// Where its bytes are, and what they are.
    pub(super) fn read_at(&self, at: Spot) -> Read {
        match self.read {
            Template::Number { signed, bits, unit } => Read::Number { load: self.load(at, signed, bits), unit },
            Template::Float => Read::Float(self.load(at, false, None)),
            Template::Wide => Read::Wide { at, is_big: self.is_big },
            Template::Text { pads_space } => Read::Text { at, len: self.size as u16, pads_space },
            Template::Nul => Read::Nul { at },
            Template::Slot { start, len, base } => {
                let number = |offset: u32, bytes: u8| Number {
                    at: Spot { offset: at.offset + offset, ..at },
                    bytes,
                    form: Form::of(self.is_big),
                    signed: false,
                    shift: 0,
                    bits: bytes * 8,
                };
                Read::Slot { start: number(0, start), len: number(start.into(), len), base }
            }
            Template::Here(ref count) => count.read_at(at, self.is_big),
        }
    }

    /// How long it is, unless that is constant.
    pub(super) fn piece(&self, read: &Read) -> Option<PieceLen> {
        match *read {
            _ if self.varint.is_some() => Some(PieceLen::Varint),
            Read::Nul { .. } => Some(PieceLen::Nul),
            Read::Here { head, count: Length::Field { load: count, .. } | Length::Head(count), stride, .. } => {
                Some(PieceLen::Run { head, count, stride })
            }
            _ => None,
        }
    }

    /// The test of `null if = VALUE`, and the value as it is written down.
    pub(super) fn sentinel(&self, at: Spot, word: &str) -> Option<(Test, String)> {
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
                    // A value that is no number has many forms.
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
                let test = Test::Text { at, len, pads_space, text: text.as_bytes().into() };
                (text.len() <= usize::from(len)).then(|| (test, Quoted(text).to_string()))
            }
            _ => None,
        }
    }
}

impl ForeignType {
    /// The type of a single value.
    pub(super) fn of(ty: &Ty, attributes: &Attributes, is_big: bool) -> Result<ForeignType, &'static str> {
        let mut kind = ForeignType {
            ty: FieldType::U8,
            detail: Detail::None,
            size: 0,
            align: 1,
            is_big,
            varint: attributes.varint,
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
            Ty::Scalar(ty @ (FieldType::String | FieldType::Bytes)) => kind.set_text(*ty, attributes)?,
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
        if attributes.varint.is_some() {
            (kind.size, kind.align, kind.has_order) = (1, 1, false);
        }
        if let (Some((low, high)), Template::Number { signed, .. }) = (attributes.bits, &kind.read)
            && kind.ty.is_integer()
        {
            kind.ty = integer(u32::from(high - low), *signed);
        }
        kind.attributes = attributes.text();
        Ok(kind)
    }

    /// Text or bytes of any length.
    fn set_text(&mut self, ty: FieldType, attributes: &Attributes) -> Result<(), &'static str> {
        self.ty = ty;
        (self.size, self.read) = match (attributes.inline, attributes.slot) {
            _ if attributes.until_nul && ty == FieldType::String => (1, Template::Nul),
            (Some(width), _) => {
                let count = Count::Inline { width, stride: 1 };
                (count.head(), Template::Here(count))
            }
            (None, Some((start, len))) => {
                self.align = u32::from(start.max(len)).next_power_of_two();
                (u32::from(start) + u32::from(len), Template::Slot { start, len, base: attributes.base.unwrap_or(0) })
            }
            (None, None) => return Err(NO_PLACE),
        };
        Ok(())
    }

    /// Refuses attributes that say nothing of such a field.
    fn check(&self, attributes: &Attributes) -> Result<(), &'static str> {
        let is_number = matches!(self.read, Template::Number { .. });
        let is_timestamp = self.ty == FieldType::Timestamp;
        let is_signed = matches!(self.read, Template::Number { signed: true, .. });
        match attributes {
            Attributes { varint: Some(_), .. } if !is_number => {
                Err("`varint` and `zigzag` are for numbers of up to 64 bits")
            }
            Attributes { varint: Some(has_sign), .. } if !is_timestamp && *has_sign != is_signed => {
                Err("a number without a sign is a `varint`, one with a sign a `zigzag`")
            }
            Attributes { varint: Some(_), bits: Some(_), .. } | Attributes { varint: Some(_), size: Some(_), .. } => {
                Err("a varint has as many bytes as its value needs: no `bits`, no `size`")
            }
            Attributes { until_nul: true, .. } if !matches!(self.read, Template::Nul) => {
                Err("`until nul` is for string")
            }
            Attributes { inline: Some(_), .. } if !matches!(self.read, Template::Here(_)) => {
                Err("`inline` is for string, bytes and lists")
            }
            Attributes { slot: Some(_), .. } if matches!(self.read, Template::Nul | Template::Here(_)) => Err(NO_PLACE),
            Attributes { group: Some(_), .. } => Err("`group` is for lists"),
            Attributes { length: Some(_), .. } => Err("`length` is for records"),
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
    /// As written down, but for the place, the order, null and the count.
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
        if let Some(has_sign) = self.varint {
            text.push_str(if has_sign { " zigzag" } else { " varint" });
        }
        if self.until_nul {
            text.push_str(" until nul");
        }
        text.push_str(&Count::text(self));
        if let Some((start, len)) = self.slot {
            let _ = write!(text, " slot u{} u{}", u32::from(start) * 8, u32::from(len) * 8);
        }
        if let Some(base) = self.base.filter(|base| *base != 0) {
            let _ = write!(text, " base {base}");
        }
        text
    }
}

/// The error of a string on its place.
const NO_PLACE: &str = "it lies behind a slot (`slot u16 u16`, offset and length), behind its length (`inline u16`), or ends with \
                        a NUL (`until nul`)";

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
