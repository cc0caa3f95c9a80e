//! The natural layout: gives declared fields their places, in the order given.

use std::collections::HashMap;
use std::sync::Arc;

use crate::description::describe;
use crate::element::{Count, Element, Enumeration, Group, Member, Tag};
use crate::field::{ByteOrder, Detail, Field, FieldType};
use crate::foreign::ForeignLayout;
use crate::format::{
    Format, FormatError, FormatProblem, Frame, LENGTH_BYTES, Layout, NullBit, Parts, RECORD_ALIGN, Specs, Union,
};
use crate::spec::{Evolution, FieldSpec, TypeSpec};
use crate::{MAX_DEPTH, MAX_FIELDS, MAX_FIXED_BYTES, MAX_NAME_BYTES};

/// The declarations so far, in this layout and in those of elements: bounds hold for all of it.
#[derive(Default)]
pub(crate) struct Declared {
    /// Fields, nested records and unions, counted in the order in which they are declared.
    pub(crate) nodes: usize,
}

impl Format {
    /// Gives the fields their places in the natural layout (see the crate's page), in the order given.
    ///
    /// # Errors
    /// No field or more than [`MAX_FIELDS`](crate::MAX_FIELDS), those of nested records and of lists' elements counted;
    /// a name that is empty, too long, has control characters or occurs twice; `char[0]`; a type that cannot be; records
    /// and lists that lie in each other deeper than [`MAX_DEPTH`](crate::MAX_DEPTH); a fixed part over
    /// [`MAX_FIXED_BYTES`](crate::MAX_FIXED_BYTES); a description over
    /// [`MAX_DESCRIPTION_BYTES`](crate::MAX_DESCRIPTION_BYTES).
    pub fn natural(fields: impl IntoIterator<Item = FieldSpec>) -> Result<Format, FormatError> {
        let specs: Vec<FieldSpec> = fields.into_iter().take(crate::MAX_FIELDS + 1).collect();
        lay_out(specs, Frame::Record, "", 0, &mut Declared::default())
            .map_err(|problem| FormatError { line: None, problem })
    }

    pub(crate) fn laid_out(
        frame: Frame,
        parts: Parts,
        tree: Vec<Member>,
        fixed_bytes: usize,
    ) -> Result<Format, FormatProblem> {
        let layout = Layout::of(&parts, fixed_bytes);
        let description = describe(frame, &parts.fields, &tree, &layout);
        Self::with(frame, parts.fields, tree, layout, &description)
    }

    pub(crate) fn foreign(
        frame: Frame,
        fields: Vec<Field>,
        tree: Vec<Member>,
        foreign: ForeignLayout,
        fixed_bytes: usize,
    ) -> Result<Format, FormatProblem> {
        let layout = Layout::foreign(&fields, foreign, fixed_bytes);
        let description = describe(frame, &fields, &tree, &layout);
        let mut format = Self::with(frame, fields, tree, layout, &description)?;
        if frame == Frame::Foreign {
            let specs = format.specs_of(Specs::Natural);
            format.set_natural_format(lay_out(specs, Frame::Record, "", 0, &mut Declared::default())?);
        }
        Ok(format)
    }
}

/// Lays out a record, or, with no length in front, an element of a list. `path` is that of the list.
pub(crate) fn lay_out(
    specs: Vec<FieldSpec>,
    frame: Frame,
    path: &str,
    depth: usize,
    declared: &mut Declared,
) -> Result<Format, FormatProblem> {
    if specs.is_empty() {
        return Err(FormatProblem::NoFields);
    }
    if specs.len() > MAX_FIELDS {
        return Err(FormatProblem::TooManyFields);
    }
    let header = if frame == Frame::Record { LENGTH_BYTES } else { 0 };
    let mut bits = 0;
    count_bits(&specs, depth, false, &mut bits)?;
    let parts = Parts { null_at: header, ..Parts::default() };
    let end = header + usize::from(bits).div_ceil(8);
    let mut places = Places { parts, names: HashMap::new(), path, end, align: 1, bits: 0, declared };
    let members = places.members(specs, "", None, depth)?;
    let align = if frame == Frame::Record { RECORD_ALIGN } else { places.align };
    let fixed_bytes = places.end.next_multiple_of(align);
    if fixed_bytes > MAX_FIXED_BYTES {
        return Err(FormatProblem::FixedPartTooLong { name: path.to_owned() });
    }
    Format::laid_out(frame, places.parts, members, fixed_bytes)
}

/// Null bits that the fields take: one for each that is nullable, and for each nested record that is.
fn count_bits(specs: &[FieldSpec], depth: usize, is_variant: bool, bits: &mut u16) -> Result<(), FormatProblem> {
    if depth > MAX_DEPTH {
        return Err(FormatProblem::TooDeep { name: specs.first().map(|spec| spec.name.clone()).unwrap_or_default() });
    }
    for spec in specs {
        let own = match &spec.ty {
            TypeSpec::Union(variants) => {
                count_bits(variants, depth + 1, true, bits)?;
                false
            }
            TypeSpec::Record(fields) => {
                count_bits(fields, depth + 1, false, bits)?;
                spec.nullable || is_variant
            }
            _ => spec.nullable || is_variant,
        };
        // More would be more fields than a format may have.
        *bits = bits.checked_add(own.into()).ok_or(FormatProblem::TooManyFields)?;
    }
    Ok(())
}

/// A type with its size, as a place for it needs it.
struct Sized {
    ty: FieldType,
    size: usize,
    align: usize,
    detail: Detail,
}

/// Gives places, one after the other.
struct Places<'a> {
    parts: Parts,
    /// Whole names of fields, nested records and unions.
    names: HashMap<String, ()>,
    /// The path of the list whose elements these are, for messages.
    path: &'a str,
    end: usize,
    align: usize,
    bits: u16,
    declared: &'a mut Declared,
}

impl Places<'_> {
    fn members(
        &mut self,
        specs: Vec<FieldSpec>,
        prefix: &str,
        within: Option<usize>,
        depth: usize,
    ) -> Result<Vec<Member>, FormatProblem> {
        specs.into_iter().map(|spec| self.member(spec, prefix, within, false, depth)).collect()
    }

    fn member(
        &mut self,
        spec: FieldSpec,
        prefix: &str,
        within: Option<usize>,
        is_variant: bool,
        depth: usize,
    ) -> Result<Member, FormatProblem> {
        let name = self.name(&spec.name, prefix)?;
        let nullable = spec.nullable || is_variant;
        let (node, evolution) = (self.declared.nodes - 1, spec.evolution.clone());
        let flaw = evolution.as_ref().and_then(|evolution| flaw(evolution, &spec, is_variant));
        if let Some(flaw) = flaw {
            return Err(FormatProblem::Type { field: node, name: self.shown(&name), flaw });
        }
        Ok(match spec.ty {
            TypeSpec::Record(fields) => {
                let group = self.record(spec.name, name, fields, nullable, within, depth)?;
                Member::Group(Group { evolution, ..group })
            }
            TypeSpec::Union(variants) => {
                let group = self.union(spec.name, name, variants, nullable, within, depth)?;
                Member::Group(Group { evolution, ..group })
            }
            ty => {
                let sized = self.sized(ty, &name, depth)?;
                let leaf = self.leaf(name, sized, nullable, within)?;
                if let Some(field) = self.parts.fields.get_mut(leaf) {
                    field.evolution = evolution;
                    if !field.is_default_valid() {
                        let (name, flaw) = (field.name.clone(), "its default is no value of it");
                        return Err(FormatProblem::Type { field: node, name: self.shown(&name), flaw });
                    }
                }
                Member::Leaf(leaf)
            }
        })
    }

    /// Checks a name and that there is room for one more; gives the whole name.
    fn name(&mut self, name: &str, prefix: &str) -> Result<String, FormatProblem> {
        let field = self.declared.nodes;
        if field >= MAX_FIELDS {
            return Err(FormatProblem::TooManyFields);
        }
        self.declared.nodes += 1;
        let flaw = match name.len() {
            0 => Some("is empty"),
            1..=MAX_NAME_BYTES => name.chars().any(char::is_control).then_some("has control characters"),
            _ => Some("is longer than 255 bytes"),
        };
        if let Some(flaw) = flaw {
            return Err(FormatProblem::Name { field, flaw });
        }
        let whole = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        match self.names.insert(whole.clone(), ()) {
            None => Ok(whole),
            Some(()) => Err(FormatProblem::SameName { field, name: self.shown(&whole) }),
        }
    }

    /// A whole name as messages show it.
    fn shown(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn record(
        &mut self,
        name: String,
        path: String,
        fields: Vec<FieldSpec>,
        nullable: bool,
        within: Option<usize>,
        depth: usize,
    ) -> Result<Group, FormatProblem> {
        if fields.is_empty() {
            let field = self.declared.nodes - 1;
            return Err(FormatProblem::EmptyRecord { field, name: self.shown(&path) });
        }
        let first = self.parts.fields.len();
        let optional = nullable.then(|| self.null_test(within));
        let members = self.members(fields, &path, optional.or(within), depth + 1)?;
        let leaves = first..self.parts.fields.len();
        Ok(Group { name, path, nullable, optional, union: None, members, leaves, evolution: None })
    }

    fn union(
        &mut self,
        name: String,
        path: String,
        variants: Vec<FieldSpec>,
        nullable: bool,
        within: Option<usize>,
        depth: usize,
    ) -> Result<Group, FormatProblem> {
        if variants.is_empty() {
            let field = self.declared.nodes - 1;
            return Err(FormatProblem::EmptyRecord { field, name: self.shown(&path) });
        }
        let first = self.parts.fields.len();
        let mut members = Vec::with_capacity(variants.len());
        let mut tests = Vec::with_capacity(variants.len());
        for variant in variants {
            if matches!(variant.ty, TypeSpec::Union(_)) {
                let field = self.declared.nodes;
                return Err(FormatProblem::UnionVariant { field, name: self.shown(&path) });
            }
            let bit = self.bits;
            members.push(self.member(variant, &path, within, true, depth + 1)?);
            tests.push(bit);
        }
        let leaves = first..self.parts.fields.len();
        self.parts.unions.push(Union { tests, nullable, within, first });
        let union = Some(Tag { discriminator: None });
        Ok(Group { name, path, nullable, optional: None, union, members, leaves, evolution: None })
    }

    /// A null bit for a nested record.
    fn null_test(&mut self, within: Option<usize>) -> usize {
        let bit = self.bits;
        self.bits += 1;
        self.parts.groups.push(NullBit { bit, within });
        self.parts.groups.len() - 1
    }

    fn leaf(
        &mut self,
        name: String,
        sized: Sized,
        nullable: bool,
        within: Option<usize>,
    ) -> Result<usize, FormatProblem> {
        let Sized { ty, size, align, detail } = sized;
        let offset = self.end.next_multiple_of(align);
        if offset + size > MAX_FIXED_BYTES {
            return Err(FormatProblem::FixedPartTooLong { name: self.shown(&name) });
        }
        self.end = offset + size;
        self.align = self.align.max(align);
        let shared = within.and_then(|group| self.parts.groups.get(group)).map(|group| group.bit);
        let null_bit = if nullable { Some(self.bits) } else { shared };
        self.bits += u16::from(nullable);
        let nullable_here = null_bit.is_some();
        // Both are at most MAX_FIXED_BYTES.
        let (offset, size) = (offset as u32, size as u32);
        let byte_order = ByteOrder::Little;
        self.parts.within.push(within);
        self.parts.own_null.push(nullable);
        let (nullable, foreign, evolution) = (nullable_here, None, None);
        let field = Field { name, ty, nullable, offset, size, byte_order, null_bit, detail, foreign, evolution };
        self.parts.fields.push(field);
        Ok(self.parts.fields.len() - 1)
    }

    fn sized(&mut self, ty: TypeSpec, name: &str, depth: usize) -> Result<Sized, FormatProblem> {
        let field = self.declared.nodes - 1;
        let refuse = |flaw| FormatProblem::Type { field, name: self.shown(name), flaw };
        let of = |ty: FieldType, detail| Sized { ty, size: ty.size(), align: ty.align(), detail };
        Ok(match ty {
            TypeSpec::Scalar(FieldType::Char(0)) => {
                return Err(FormatProblem::EmptyChar { field, name: self.shown(name) });
            }
            TypeSpec::Scalar(FieldType::Enum { bytes, signed }) => {
                return self.sized(TypeSpec::Enum { bytes, signed, symbols: Vec::new() }, name, depth);
            }
            TypeSpec::Scalar(FieldType::List) => return Err(refuse("a list needs a type of its elements")),
            TypeSpec::Scalar(ty @ FieldType::Decimal { bytes, scale }) => {
                if !matches!(bytes, 4 | 8 | 16) || scale > crate::field::MAX_SCALE {
                    return Err(refuse("a decimal has 4, 8 or 16 bytes and a scale of 0 to 38"));
                }
                of(ty, Detail::None)
            }
            TypeSpec::Scalar(ty) => of(ty, Detail::None),
            TypeSpec::Enum { bytes, signed, symbols } => {
                let detail = enumeration(bytes, signed, symbols).map_err(refuse)?;
                of(FieldType::Enum { bytes, signed }, detail)
            }
            TypeSpec::List { element, count } => {
                let (element, align) = self.element(*element, count, name, depth)?;
                let size = match count {
                    Some(count) => (element.stride as usize).saturating_mul(count as usize),
                    None => FieldType::List.size(),
                };
                let align = if count.is_some() { align } else { FieldType::List.align() };
                Sized { ty: FieldType::List, size, align, detail: Detail::List(Arc::new(element)) }
            }
            TypeSpec::Record(_) | TypeSpec::Union(_) => return Err(refuse("it holds fields and no value")),
        })
    }

    /// The element of a list, and what its offset is a multiple of.
    fn element(
        &mut self,
        of: TypeSpec,
        count: Option<u32>,
        name: &str,
        depth: usize,
    ) -> Result<(Element, usize), FormatProblem> {
        let field = self.declared.nodes - 1;
        let path = format!("{}[]", self.shown(name));
        if count == Some(0) {
            return Err(FormatProblem::Type { field, name: path, flaw: "a list of no elements holds nothing" });
        }
        if depth >= MAX_DEPTH {
            return Err(FormatProblem::TooDeep { name: path });
        }
        let (specs, is_record) = match of {
            TypeSpec::Record(fields) if fields.is_empty() => {
                return Err(FormatProblem::EmptyRecord { field, name: path });
            }
            TypeSpec::Record(fields) => (fields, true),
            TypeSpec::Union(_) => {
                let flaw = "an element is one value, a record or a list; put the union into a record";
                return Err(FormatProblem::Type { field, name: path, flaw });
            }
            one => (vec![FieldSpec::new("element", one)], false),
        };
        if !is_record {
            // The value is no field of its own: it was counted with the list.
            self.declared.nodes -= 1;
        }
        let format = lay_out(specs, Frame::Element, &path, depth + 1, self.declared)?;
        // At most MAX_FIXED_BYTES.
        let stride = format.fixed_bytes() as u32;
        let align = format.fields().iter().map(natural_align).max().unwrap_or(1);
        let count = count.map_or(Count::Slot, Count::Fixed);
        Ok((Element { format, is_record, stride, count }, align))
    }
}

/// The alignment of a field's offset.
fn natural_align(field: &Field) -> usize {
    match field.element() {
        Some(element) if element.count != Count::Slot => {
            element.format.fields().iter().map(natural_align).max().unwrap_or(1)
        }
        _ => field.ty.align(),
    }
}

/// Most names that a field had.
pub(crate) const MAX_ALIASES: usize = 64;
/// Most bytes of a default.
const MAX_DEFAULT_BYTES: usize = 4096;

/// The error of a declaration's statement on other versions, but for the default's value.
fn flaw(evolution: &Evolution, spec: &FieldSpec, is_variant: bool) -> Option<&'static str> {
    let Evolution { default, aliases, unknown } = evolution;
    let is_group = matches!(spec.ty, TypeSpec::Record(_) | TypeSpec::Union(_));
    let is_name = |name: &String| (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
    let has_symbol = |symbol: &String| match &spec.ty {
        TypeSpec::Enum { symbols, .. } => symbols.iter().any(|(own, _)| own == symbol),
        _ => false,
    };
    let is_known = |(at, alias): (usize, &String)| *alias == spec.name || aliases[..at].contains(alias);
    let is_text = |text: &String| text.len() <= MAX_DEFAULT_BYTES && !text.chars().any(char::is_control);
    if *evolution == Evolution::default() {
        return Some("nothing is said of other versions, and then there is no word of them");
    }
    if default.is_some() && (is_group || is_variant) {
        return Some("records, unions and their variants have no default of their own: the fields in them have");
    }
    if !default.iter().all(is_text) {
        return Some("its default has more than 4096 bytes, or control characters");
    }
    if !unknown.iter().all(has_symbol) {
        return Some("`unknown` names none of its symbols");
    }
    if aliases.len() > MAX_ALIASES || !aliases.iter().all(is_name) || aliases.iter().enumerate().any(is_known) {
        return Some("it has more than 64 aliases, or an alias that is its name, another alias, or no name");
    }
    None
}

/// Distinct symbols, with numbers that fit.
pub(crate) fn enumeration(bytes: u8, signed: bool, symbols: Vec<(String, i64)>) -> Result<Detail, &'static str> {
    let (least, greatest) = match (bytes, signed) {
        (1, true) => (i8::MIN.into(), i8::MAX.into()),
        (2, true) => (i16::MIN.into(), i16::MAX.into()),
        (4, true) => (i32::MIN.into(), i32::MAX.into()),
        (8, true) => (i64::MIN, i64::MAX),
        (1, false) => (0, u8::MAX.into()),
        (2, false) => (0, u16::MAX.into()),
        (4, false) => (0, u32::MAX.into()),
        _ => return Err("an enumeration has 1, 2, 4 or 8 bytes, and one of 8 bytes has a sign"),
    };
    if symbols.len() > MAX_SYMBOLS {
        return Err("an enumeration has at most 65536 symbols");
    }
    if symbols.iter().any(|(_, number)| !(least..=greatest).contains(number)) {
        return Err("the number of a symbol does not fit the enumeration's bytes");
    }
    if symbols
        .iter()
        .any(|(symbol, _)| symbol.is_empty() || symbol.len() > MAX_NAME_BYTES || symbol.chars().any(char::is_control))
    {
        return Err("a symbol is empty, longer than 255 bytes, or has control characters");
    }
    let mut names: Vec<&str> = symbols.iter().map(|(symbol, _)| symbol.as_str()).collect();
    names.sort_unstable();
    if names.windows(2).any(|two| two[0] == two[1]) {
        return Err("two symbols are the same");
    }
    Ok(Detail::Enum(Arc::new(Enumeration::new(symbols))))
}

/// Most symbols of an enumeration.
const MAX_SYMBOLS: usize = 1 << 16;
