//! Gives the fields of a foreign layout their places, and writes down where they are.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::attributes::{Attributes, Null, whole};
use super::check::{ForeignLayout, LengthRule, Variant};
use super::head::{Head, Length as HeadLength, Mode};
use super::kind::{self, Count as RunCount, ForeignType, Template};
use super::piece::{Ends, Piece, PieceLen, Spot, fixed_end, reach, tails};
use super::span::Span;
use super::write::Put;
use super::{Access, Length, Number, Read, Test, Tests};
use crate::element::{Count, Element, Group, Member, Tag};
use crate::field::{ByteOrder, Detail, Field, FieldType};
use crate::format::{Format, Frame};
use crate::natural::Declared;
use crate::notation::{Node, Quoted, Ty, parse_nodes, shorten};
use crate::problem::{FormatError, FormatProblem};
use crate::{MAX_DEPTH, MAX_FIELDS, MAX_FIXED_BYTES, MAX_NAME_BYTES};

/// A layout whose first line is `head`, with the first words gone; the text of the fields starts on the next line.
pub(crate) fn parse(line: usize, head: &str, body: &str, is_canonical: bool) -> Result<Format, FormatError> {
    let head = Head::of(line, head, is_canonical)?;
    let nodes = parse_nodes(body, line + 1)?;
    let mut declared = Declared::default();
    let mut placer = Placer::new(&head, String::new(), &mut declared, 0);
    let members = placer.members(&nodes, &Scope::default())?;
    let rule = placer.length(&head, line)?;
    placer.format(members, Frame::Foreign, rule, line)
}

/// The properties of all fields at one place of the text.
#[derive(Clone, Default)]
pub(super) struct Scope {
    prefix: String,
    tests: Vec<Test>,
    /// Unions on the way, each with the variant.
    pub(super) variants: Vec<(usize, usize)>,
}

pub(super) struct Placer<'a> {
    pub(super) head: &'a Head<'a>,
    /// The path of the list whose elements these are.
    pub(super) path: String,
    depth: usize,
    declared: &'a mut Declared,
    pub(super) fields: Vec<Field>,
    access: Vec<Option<Arc<Access>>>,
    pub(super) puts: Vec<Put>,
    /// The fields that are numbers, as such.
    numbers: Vec<Option<Number>>,
    groups: Vec<Tests>,
    unions: Vec<Tests>,
    variants: Vec<Variant>,
    names: HashMap<String, ()>,
    pub(super) spans: Vec<Span>,
    /// Where the next field goes.
    pub(super) at: Spot,
    /// Whether that is not known: behind a union whose variants have no constant length.
    pub(super) is_lost: bool,
    /// The parts without a constant length, and the fields' and records' names, in the same order.
    pub(super) pieces: Vec<Piece>,
    pub(super) piece_names: Vec<String>,
    /// By anchor, where the last field ends that every record has.
    pub(super) fixed: Ends,
    /// By anchor, where the last field ends, of those in the union's variant.
    pub(super) ends: Ends,
    align: u32,
    pub(super) body: String,
}

impl Scope {
    /// The whole names that a name may stand for: itself, a neighbour, or a neighbour of a record around.
    pub(super) fn names(&self, name: &str) -> Vec<String> {
        let mut prefix = Some(self.prefix.as_str());
        let mut names = vec![name.to_owned()];
        while let Some(outer) = prefix.filter(|prefix| !prefix.is_empty()) {
            names.push(format!("{outer}.{name}"));
            prefix = outer.rsplit_once('.').map(|(outer, _)| outer);
        }
        names
    }

    /// Whether it is in a record that may be null by a bit.
    pub(super) fn may_be_null(&self) -> bool {
        self.tests.iter().any(|test| matches!(test, Test::Bit { .. }))
    }
}

impl<'a> Placer<'a> {
    fn new(head: &'a Head<'a>, path: String, declared: &'a mut Declared, depth: usize) -> Self {
        Self {
            head,
            path,
            depth,
            declared,
            fields: Vec::new(),
            access: Vec::new(),
            puts: Vec::new(),
            numbers: Vec::new(),
            groups: Vec::new(),
            unions: Vec::new(),
            variants: Vec::new(),
            names: HashMap::new(),
            spans: Vec::new(),
            at: Spot::default(),
            is_lost: false,
            pieces: Vec::new(),
            piece_names: Vec::new(),
            fixed: Ends::new(),
            ends: Ends::new(),
            align: 1,
            body: String::new(),
        }
    }

    pub(super) fn refuse(&self, node: &Node<'_>, name: &str, flaw: impl Into<String>) -> FormatError {
        let name = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        FormatError { line: Some(node.line), problem: FormatProblem::Foreign { name, flaw: flaw.into() } }
    }

    fn members(&mut self, nodes: &[Node<'_>], scope: &Scope) -> Result<Vec<Member>, FormatError> {
        nodes.iter().map(|node| self.member(node, scope, false)).collect()
    }

    fn member(&mut self, node: &Node<'_>, scope: &Scope, is_variant: bool) -> Result<Member, FormatError> {
        let name = self.name(node, scope)?;
        let attributes = Attributes::of(node)?;
        match &node.ty {
            Ty::Record => self.record(node, name, &attributes, scope, is_variant).map(Member::Group),
            Ty::Union(on) => self.union(node, name, on.as_deref(), &attributes, scope).map(Member::Group),
            ty => {
                let _ = write!(self.body, "{} ", Quoted(&node.name));
                let leaf = self.leaf(node, ty, name, &attributes, scope, is_variant)?;
                Ok(Member::Leaf(leaf))
            }
        }
    }

    /// Checks a name; gives the whole one.
    fn name(&mut self, node: &Node<'_>, scope: &Scope) -> Result<String, FormatError> {
        if self.declared.nodes >= MAX_FIELDS {
            return Err(FormatError { line: Some(node.line), problem: FormatProblem::TooManyFields });
        }
        self.declared.nodes += 1;
        let whole = match scope.prefix.is_empty() {
            true => node.name.clone(),
            false => format!("{}.{}", scope.prefix, node.name),
        };
        let own = &node.name;
        if own.is_empty() || own.len() > MAX_NAME_BYTES || own.chars().any(char::is_control) {
            return Err(self.refuse(node, &whole, "a name has 1 to 255 bytes and no control characters"));
        }
        match self.names.insert(whole.clone(), ()) {
            None => Ok(whole),
            Some(()) => Err(self.refuse(node, &whole, "there are two fields of this name")),
        }
    }

    fn deeper(&mut self, node: &Node<'_>, name: &str) -> Result<(), FormatError> {
        if node.inner.is_empty() {
            return Err(self.refuse(node, name, "it has no fields"));
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(FormatError {
                line: Some(node.line),
                problem: FormatProblem::TooDeep { name: name.to_owned() },
            });
        }
        Ok(())
    }

    fn record(
        &mut self,
        node: &Node<'_>,
        path: String,
        attributes: &Attributes,
        scope: &Scope,
        is_variant: bool,
    ) -> Result<Group, FormatError> {
        self.deeper(node, &path)?;
        self.go_to(node, &path, attributes, scope)?;
        let start = self.at;
        let mut inner = Scope { prefix: path.clone(), ..scope.clone() };
        let null = match &attributes.null {
            Some(_) if is_variant => {
                return Err(self.refuse(node, &path, "a variant is there or not by its values alone"));
            }
            Some(null @ Null::Bit { .. }) => Some(self.null_bit(node, null, scope)?),
            Some(Null::Value(_)) => return Err(self.refuse(node, &path, "a record is null by a bit, not by a value")),
            None => None,
        };
        let _ = writeln!(self.body, "{} record {{", Quoted(&node.name));
        if let Some((test, _)) = &null {
            inner.tests.push(test.clone());
        }
        // As in the natural layout, so that the tree is that of the format's natural format: the outer record comes first.
        let nullable = null.is_some() || is_variant;
        let optional = nullable.then(|| {
            self.groups.push(inner.tests.clone().into());
            self.groups.len() - 1
        });
        let first = self.fields.len();
        let members = self.members(&node.inner, &inner)?;
        let leaves = first..self.fields.len();
        if self.head.mode == Mode::Aligned {
            let align = node.inner.iter().map(align_of).max().unwrap_or(1);
            self.at.offset = self.at.offset.next_multiple_of(align);
        }
        let _ = write!(self.body, "}}{}", null.map(|(_, text)| text).unwrap_or_default());
        if let Some(length) = &attributes.length {
            self.block(node, (start, &path, leaves.clone()), length, scope)?;
        }
        self.body.push('\n');
        self.depth -= 1;
        Ok(Group { name: node.name.clone(), path, nullable, optional, union: None, members, leaves, evolution: None })
    }

    fn union(
        &mut self,
        node: &Node<'_>,
        path: String,
        on: Option<&str>,
        attributes: &Attributes,
        scope: &Scope,
    ) -> Result<Group, FormatError> {
        self.deeper(node, &path)?;
        self.go_to(node, &path, attributes, scope)?;
        let Some(on) = on else {
            let flaw =
                "a union of a foreign layout names the field that selects the variant: `union on FIELD { 1 => … }`";
            return Err(self.refuse(node, &path, flaw));
        };
        let (leaf, load) = self.find_number(node, on, scope)?;
        let _ = writeln!(self.body, "{} union on {} {{", Quoted(&node.name), Quoted(&self.fields[leaf].name));
        let (start, first, union) = (self.at, self.fields.len(), self.unions.len());
        self.unions.push(scope.tests.clone().into());
        let mut end = start;
        let mut is_lost = self.is_lost;
        let mut members = Vec::with_capacity(node.inner.len());
        let mut taken: Vec<i128> = Vec::new();
        for (index, variant) in node.inner.iter().enumerate() {
            let values = self.variant_values(variant, &path, (on, leaf, load), &taken)?;
            taken.extend(&values);
            for value in &values {
                let text = self.case_text(leaf, load, *value);
                let _ = write!(self.body, "{text} ");
            }
            self.body.push_str("=> ");
            let mut inner = Scope { prefix: path.clone(), ..scope.clone() };
            inner.tests.push(Test::OneOf { of: leaf, load, values: values.into() });
            inner.variants.push((union, index));
            (self.at, self.is_lost) = (start, false);
            let before = std::mem::take(&mut self.ends);
            members.push(self.member(variant, &inner, true)?);
            is_lost |= self.is_lost || self.at.anchor != start.anchor;
            end.offset = end.offset.max(if self.at.anchor == start.anchor { self.at.offset } else { 0 });
            let ends = std::mem::replace(&mut self.ends, before);
            for (anchor, end) in &ends {
                reach(&mut self.ends, Spot { anchor: *anchor, offset: *end });
            }
            self.variants.push(Variant {
                union,
                tests: inner.tests.into(),
                end: fixed_end(&ends),
                tails: tails(&ends),
            });
        }
        (self.at, self.is_lost) = (end, is_lost);
        self.body.push_str("}\n");
        self.depth -= 1;
        let leaves = first..self.fields.len();
        let union = Some(Tag { discriminator: Some(leaf) });
        Ok(Group {
            name: node.name.clone(),
            path,
            nullable: true,
            optional: None,
            union,
            members,
            leaves,
            evolution: None,
        })
    }

    /// The values of a union's field `on` that select a variant; those of others are `taken`.
    fn variant_values(
        &self,
        variant: &Node<'_>,
        path: &str,
        (on, leaf, load): (&str, usize, Number),
        taken: &[i128],
    ) -> Result<Vec<i128>, FormatError> {
        let mut values = Vec::with_capacity(variant.cases.len());
        for case in &variant.cases {
            let value = self.case(leaf, load, case).filter(|value| !taken.contains(value) && !values.contains(value));
            let flaw = || format!("`{}` is no value of `{on}`, or is there twice", shorten(case));
            values.push(value.ok_or_else(|| self.refuse(variant, path, flaw()))?);
        }
        if values.is_empty() {
            let flaw = "a variant has the values that select it: `VALUE => name type`";
            return Err(self.refuse(variant, path, flaw));
        }
        if matches!(variant.ty, Ty::Union(_)) {
            return Err(self.refuse(variant, path, "a variant is no union itself; put it into a record"));
        }
        Ok(values)
    }

    /// The field of a name, as a number: the whole name, or a neighbour, or a neighbour of a record around.
    pub(super) fn find_number(
        &self,
        node: &Node<'_>,
        name: &str,
        scope: &Scope,
    ) -> Result<(usize, Number), FormatError> {
        let names = scope.names(name);
        let leaf = names.iter().find_map(|name| self.fields.iter().position(|field| field.name == *name));
        let number = leaf.and_then(|leaf| Some((leaf, (*self.numbers.get(leaf)?)?)));
        number.ok_or_else(|| {
            let flaw = format!("`{}` is no number or short text in front of it", shorten(name));
            self.refuse(node, &node.name, flaw)
        })
    }

    /// A value of the discriminator, as a number.
    fn case(&self, leaf: usize, load: Number, word: &str) -> Option<i128> {
        let field = self.fields.get(leaf)?;
        if let FieldType::Char(room) = field.ty {
            return text_number(field, self.access.get(leaf)?.as_deref(), room, word);
        }
        let symbol = field.enumeration().and_then(|enumeration| enumeration.number(word)).map(i128::from);
        symbol.or_else(|| whole(word)).filter(|value| fits(load, *value))
    }

    fn case_text(&self, leaf: usize, load: Number, value: i128) -> String {
        match self.fields.get(leaf).map(|field| field.ty) {
            Some(FieldType::Char(_)) => {
                let bytes = (value as u64).to_be_bytes();
                let text = bytes.get(8 - usize::from(load.bytes)..).unwrap_or_default();
                // Only what reading the text adds again is left out.
                let padding = char::from(padding(self.access.get(leaf).and_then(|access| access.as_deref())));
                let text = String::from_utf8_lossy(text).trim_end_matches(padding).to_owned();
                Quoted(&text).to_string()
            }
            _ => value.to_string(),
        }
    }

    /// The test of `null bit B of FIELD`, and its text.
    fn null_bit(&self, node: &Node<'_>, null: &Null, scope: &Scope) -> Result<(Test, String), FormatError> {
        let Null::Bit { bit, of, when } = null else {
            return Err(self.refuse(node, &node.name, "null by a value is for single values"));
        };
        let (leaf, load) = self.find_number(node, of, scope)?;
        if *bit >= load.bits || load.form.is_varint() {
            return Err(self.refuse(node, &node.name, format!("`{of}` has {} bits", load.bits)));
        }
        let unless = if *when { "" } else { "unless " };
        let text = format!(" null {unless}bit {bit} of {}", Quoted(&self.fields[leaf].name));
        Ok((Test::Bit { of: leaf, load, bit: *bit, when: *when }, text))
    }

    /// The test that a field is null, which is written down behind it.
    fn null_test(
        &mut self,
        node: &Node<'_>,
        null: &Null,
        kind: &ForeignType,
        at: Spot,
        name: &str,
        scope: &Scope,
    ) -> Result<Test, FormatError> {
        let (test, text) = match null {
            Null::Value(word) => {
                let (test, text) = kind
                    .sentinel(at, word)
                    .ok_or_else(|| self.refuse(node, name, format!("`{}` is no value of it", shorten(word))))?;
                (test, format!(" null if = {text}"))
            }
            null => self.null_bit(node, null, scope)?,
        };
        self.body.push_str(&text);
        Ok(test)
    }

    fn leaf(
        &mut self,
        node: &Node<'_>,
        ty: &Ty,
        name: String,
        attributes: &Attributes,
        scope: &Scope,
        is_variant: bool,
    ) -> Result<usize, FormatError> {
        let kind = self.kind(node, ty, &name, attributes, scope)?;
        let align = if self.head.mode == Mode::Aligned { kind.align } else { 1 };
        let at = match self.stated_place(node, &name, attributes, scope)? {
            Some(at) => at,
            None => self.next_place(node, &name, &kind, attributes, align)?,
        };
        let end = self.end_of(node, &name, at, &kind)?;
        let mut tests = scope.tests.clone();
        let order = if kind.has_order { if kind.is_big { " be" } else { " le" } } else { "" };
        let _ = write!(self.body, "{}{}{order}{}", kind.text, self.place_text(at), kind.attributes);
        let null = match &attributes.null {
            Some(null) => Some(self.null_test(node, null, &kind, at, &name, scope)?),
            None => None,
        };
        tests.extend(null.clone());
        self.body.push_str(if attributes.overlay { " overlay\n" } else { "\n" });
        let read = kind.read_at(at);
        let piece = kind.piece(&read);
        self.spans.push(Span {
            start: at,
            // Where it ends is not known here, so nothing else may count from the same anchor behind it.
            end: if piece.is_some() { u32::MAX } else { end },
            bits: attributes.bits,
            variants: scope.variants.clone(),
            overlay: attributes.overlay,
            line: node.line,
            name: name.clone(),
        });
        (self.at, self.is_lost) = (Spot { offset: end, ..at }, false);
        self.reach(self.at, scope);
        self.align = self.align.max(align);
        let number = kind.number(at);
        self.numbers.push(number);
        let access = kind.access(at, tests.clone());
        let is_nullable = null.is_some() || is_variant;
        let piece = match piece {
            Some(len) => self.piece(node, &name, Piece { start: at, field: self.fields.len(), len }, scope)?,
            None => 0,
        };
        let (is_derived, size) = (attributes.overlay, kind.size);
        self.puts.push(Put { read, null, is_nullable, is_derived, size, anchor: at.anchor, piece });
        let byte_order = if kind.is_big && kind.has_order { ByteOrder::Big } else { ByteOrder::Little };
        self.fields.push(Field {
            name,
            ty: kind.ty,
            nullable: !tests.is_empty(),
            offset: at.offset,
            size: kind.size,
            byte_order,
            null_bit: None,
            detail: kind.detail,
            foreign: access.clone(),
            evolution: None,
        });
        self.access.push(access);
        Ok(self.fields.len() - 1)
    }
}

/// Whether a number of these bits can have the value.
pub(super) fn fits(load: Number, value: i128) -> bool {
    let bits = u32::from(load.bits);
    match load.signed {
        true => (-(1_i128 << (bits - 1))..1 << (bits - 1)).contains(&value),
        false => (0..1_i128 << bits).contains(&value),
    }
}

/// The byte that fills up a short text.
fn padding(access: Option<&Access>) -> u8 {
    match access {
        Some(Access { read: Read::Text { pads_space: true, .. }, .. }) => b' ',
        _ => 0,
    }
}

/// A short text as the number that its bytes are.
fn text_number(field: &Field, access: Option<&Access>, room: u16, word: &str) -> Option<i128> {
    let character = crate::notation::character(word);
    let text = character.as_ref().map_or(word.as_bytes(), std::slice::from_ref);
    if text.len() > usize::from(room) || field.size > 8 {
        return None;
    }
    let padded = text.iter().copied().chain(std::iter::repeat(padding(access))).take(usize::from(room));
    Some(padded.fold(0, |number, byte| number << 8 | i128::from(byte)))
}

impl Placer<'_> {
    /// The type of a field; of a list, with what it holds.
    fn kind(
        &mut self,
        node: &Node<'_>,
        ty: &Ty,
        name: &str,
        attributes: &Attributes,
        scope: &Scope,
    ) -> Result<ForeignType, FormatError> {
        let is_big = attributes.is_big.unwrap_or(self.head.is_big);
        match ty {
            Ty::List { element, count } => self.list(node, element, *count, name, attributes, scope, is_big),
            ty => ForeignType::of(ty, attributes, is_big).map_err(|flaw| self.refuse(node, name, flaw)),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of it is one field")]
    fn list(
        &mut self,
        node: &Node<'_>,
        of: &Ty,
        fixed: Option<u32>,
        name: &str,
        attributes: &Attributes,
        scope: &Scope,
        is_big: bool,
    ) -> Result<ForeignType, FormatError> {
        if attributes.varint.is_some() || attributes.until_nul || attributes.length.is_some() {
            return Err(self.refuse(
                node,
                name,
                "elements of lists, and lists, are no varints, text up to a NUL, or blocks",
            ));
        }
        let (element, least, text) = self.element(node, of, name, attributes, fixed)?;
        let (stride, mut about) = (
            element.stride,
            Attributes { slot: attributes.slot, base: attributes.base, ..Attributes::default() }.text(),
        );
        let (read, size) = match (fixed, &attributes.count, attributes.slot, attributes.inline, attributes.group) {
            (Some(0), ..) => return Err(self.refuse(node, name, "a list of no elements holds nothing")),
            (Some(count), None, None, None, None) => {
                (Template::Here(RunCount::Fixed(count, stride)), stride.saturating_mul(count))
            }
            (None, Some(of), None, None, None) => {
                let (leaf, load) = self.find_number(node, of, scope)?;
                let _ = write!(about, " count {}", Quoted(&self.fields[leaf].name));
                (Template::Here(RunCount::Field { of: leaf, load, stride }), 0)
            }
            (None, None, Some((start, len)), None, None) => {
                let base = attributes.base.unwrap_or(0);
                (Template::Slot { start, len, base }, u32::from(start) + u32::from(len))
            }
            (None, None, None, Some(width), None) => {
                let run = RunCount::Inline { width, stride };
                let head = run.head();
                (Template::Here(run), head)
            }
            (None, None, None, None, Some((width, count, head))) => {
                (Template::Here(RunCount::Group { stride: width, count, head, least }), head)
            }
            _ => {
                let flaw = "how many elements it has is said once: `[N]`, `count FIELD`, `slot u16 u16`, `inline u16`, or \
                            `group u16 u8`";
                return Err(self.refuse(node, name, flaw));
            }
        };
        let own = Attributes { slot: None, base: None, ..attributes.clone() };
        let _ = write!(about, "{} stride {stride}", own.text());
        let align = align_of(node);
        Ok(ForeignType {
            ty: FieldType::List,
            detail: Detail::List(Arc::new(element)),
            size,
            align,
            is_big,
            varint: None,
            has_order: true,
            read,
            text,
            attributes: about,
        })
    }

    /// The element of a list, and its type as it is written down.
    fn element(
        &mut self,
        node: &Node<'_>,
        of: &Ty,
        name: &str,
        attributes: &Attributes,
        fixed: Option<u32>,
    ) -> Result<(Element, u32, String), FormatError> {
        let path = if self.path.is_empty() { format!("{name}[]") } else { format!("{}.{name}[]", self.path) };
        if self.depth >= MAX_DEPTH {
            return Err(FormatError { line: Some(node.line), problem: FormatProblem::TooDeep { name: path } });
        }
        if attributes.bits.is_some() || matches!(attributes.null, Some(Null::Value(_))) {
            return Err(self.refuse(node, name, "`bits` and `null if` are for single values"));
        }
        let suffix = fixed.map(|count| count.to_string()).unwrap_or_default();
        let is_record = matches!(of, Ty::Record);
        let mut inner = Placer::new(self.head, path, self.declared, self.depth + 1);
        let (members, text) = match of {
            Ty::Record if node.inner.is_empty() => return Err(self.refuse(node, name, "its elements have no fields")),
            Ty::Record => {
                let members = inner.members(&node.inner, &Scope::default())?;
                (members, format!("record {{\n{}}}[{suffix}]", inner.body))
            }
            Ty::Union(_) => return Err(self.refuse(node, name, "an element is no union; put it into a record")),
            Ty::List { element, count } if count.is_none() || matches!(**element, Ty::Record) => {
                return Err(self.refuse(node, name, "in a list of lists these hold single values, and a fixed number"));
            }
            one => {
                // The order and the like are those of the values.
                let Attributes { is_big, pads_space, unit, size, .. } = *attributes;
                let own = Attributes { at: Some(0), is_big, pads_space, unit, size, ..Attributes::default() };
                let leaf = inner.leaf(node, one, "element".to_owned(), &own, &Scope::default(), false)?;
                (vec![Member::Leaf(leaf)], format!("{}[{suffix}]", kind::text_of(one)))
            }
        };
        let align = if self.head.mode == Mode::Aligned { inner.align } else { 1 };
        let least = fixed_end(&inner.ends);
        let needed = least.next_multiple_of(align);
        let stride = attributes.stride.unwrap_or(needed);
        if stride < least || stride as usize > MAX_FIXED_BYTES {
            let flaw = format!("its elements take {least} bytes, more than the stride of {stride}");
            return Err(inner.refuse(node, "", flaw));
        }
        let format =
            inner.format(members, Frame::ForeignElement, (LengthRule::Fixed(stride), String::new()), node.line)?;
        let count = fixed.map_or(Count::Slot, Count::Fixed);
        Ok((Element { format, is_record, stride, count }, least, text))
    }

    /// How long a record is, with the words for it.
    fn length(&self, head: &Head<'_>, line: usize) -> Result<(LengthRule, String), FormatError> {
        let wrong = |flaw: String| FormatError {
            line: Some(line),
            problem: FormatProblem::Foreign { name: "layout".to_owned(), flaw },
        };
        let align = if head.mode == Mode::Aligned { self.align } else { 1 };
        match head.length {
            HeadLength::Needed if !self.pieces.is_empty() => Ok((LengthRule::Variant, "size variant".to_owned())),
            HeadLength::Needed => {
                let len = fixed_end(&self.ends).next_multiple_of(align);
                Ok((LengthRule::Fixed(len), format!("size {len}")))
            }
            HeadLength::Fixed(len) if len >= fixed_end(&self.ends) && len as usize <= MAX_FIXED_BYTES => {
                Ok((LengthRule::Fixed(len), format!("size {len}")))
            }
            HeadLength::Fixed(len) => {
                Err(wrong(format!("a size of {len} bytes, expected at least {}, at most 1 MiB", fixed_end(&self.ends))))
            }
            HeadLength::Variant if self.variants.is_empty() && self.pieces.is_empty() => {
                Err(wrong("`size variant` needs a union, or a field of variable length".to_owned()))
            }
            HeadLength::Variant => Ok((LengthRule::Variant, "size variant".to_owned())),
            HeadLength::Field { of, add } => {
                let leaf =
                    self.fields.iter().position(|field| field.name == of && !field.nullable && field.ty.is_integer());
                let found = leaf.and_then(|leaf| Some((leaf, (*self.numbers.get(leaf)?)?)));
                let (leaf, load) =
                    found.ok_or_else(|| wrong(format!("`{}` is no whole number that is always there", shorten(of))))?;
                Ok((LengthRule::Field { of: leaf, load, add }, format!("length {} {add:+}", Quoted(of))))
            }
        }
    }

    fn format(
        mut self,
        members: Vec<Member>,
        frame: Frame,
        (rule, rule_text): (LengthRule, String),
        line: usize,
    ) -> Result<Format, FormatError> {
        if self.fields.is_empty() {
            return Err(FormatError { line: Some(line), problem: FormatProblem::NoFields });
        }
        self.check_overlaps()?;
        self.check_slots(line)?;
        let is_late = |access: &Access| matches!(&access.read, Read::Number { load, unit } if load.passes_time(*unit));
        let has_times = self.access.iter().flatten().any(|access| is_late(access));
        let has_places = self.fields.iter().any(|field| {
            field.ty.is_variable()
                || field.element().is_some_and(|element| {
                    let inner = element.format.layout().foreign.as_ref();
                    element.count == Count::Slot || inner.is_some_and(|foreign| foreign.needs_walk)
                })
        });
        let fixed = if let LengthRule::Fixed(len) = rule { len } else { fixed_end(&self.fixed) };
        let has_ties = self.derive(rule);
        let Self { fields, access, puts, groups, unions, variants, pieces, body, fixed: all, .. } = self;
        let foreign = ForeignLayout {
            rule,
            access: access.into(),
            puts: puts.into(),
            has_ties,
            natural_format: None,
            groups: groups.into(),
            variants: variants.into(),
            unions: unions.into(),
            needs_walk: has_times || has_places || !pieces.is_empty(),
            tails: tails(&all),
            pieces: pieces.into(),
            rule_text,
            body,
        };
        Format::foreign(frame, fields, members, foreign, fixed as usize)
            .map_err(|problem| FormatError { line: Some(line), problem })
    }

    /// Marks the fields that others say: variants, null bits, counts, the record's length. Gives whether there are
    /// such, here or in elements.
    fn derive(&mut self, rule: LengthRule) -> bool {
        let tests = self.access.iter().flatten().flat_map(|access| access.tests.iter());
        let tests = tests.chain(self.groups.iter().chain(&self.unions).flat_map(|tests| tests.iter()));
        let mut derived: Vec<usize> = tests.filter_map(Test::of).collect();
        derived.extend(self.puts.iter().filter_map(|put| match put.read {
            Read::Here { count: Length::Field { of, .. }, .. } => Some(of),
            _ => None,
        }));
        derived.extend(self.pieces.iter().filter_map(|piece| match piece.len {
            PieceLen::Block { of, .. } => Some(of),
            _ => None,
        }));
        if let LengthRule::Field { of, .. } = rule {
            derived.push(of);
        }
        for of in derived {
            if let Some(put) = self.puts.get_mut(of) {
                put.is_derived = true;
            }
        }
        let inner = |field: &Field| {
            let element = field.element().and_then(|element| element.format.layout().foreign.as_ref());
            element.is_some_and(|foreign| foreign.has_ties)
        };
        self.puts.iter().any(|put| put.is_derived) || self.fields.iter().any(inner)
    }
}

/// The alignment of C for a field of this type.
pub(super) fn align_of(node: &Node<'_>) -> u32 {
    let slot = node.words.iter().any(|word| word == "slot");
    if slot { 4 } else { align_of_type(&node.ty, node) }
}

fn align_of_type(ty: &Ty, node: &Node<'_>) -> u32 {
    match ty {
        Ty::Scalar(ty) => ty.align() as u32,
        Ty::Odd { .. } => 1,
        Ty::Enum { bytes, .. } => (*bytes).into(),
        Ty::List { element, .. } => align_of_type(element, node),
        Ty::Record | Ty::Union(_) => node.inner.iter().map(align_of).max().unwrap_or(1),
    }
}
