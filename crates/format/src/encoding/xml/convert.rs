//! The inside of a record's element.

use std::borrow::Cow;
use std::collections::HashMap;

use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;
use quick_xml::{Error as XmlError, XmlVersion, escape};

use super::ITEM;
use super::decode::{Bounded, Flaw, is_blank, local, too_deep};
use crate::builder::{RecordBuilder, ValueError};
use crate::element::{Element, ElementKind, Group, Member};
use crate::encoding::{EncodingError, EncodingOptions, EncodingProblem, Loss};
use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};
use crate::text::{self, Rounding, Unfit};

/// What makes a record of an element.
#[derive(Debug)]
pub(super) struct Convert {
    builder: RecordBuilder,
    nodes: Vec<Node>,
    ignore_unknown: bool,
    rounding: Rounding,
    /// The elements that are open.
    open: Vec<Open>,
    /// How many elements have been opened: each has a number of its own.
    opened: u64,
    /// The text of the innermost open element, as far as it has been read.
    text: Vec<u8>,
    scratch: Vec<u8>,
    /// What is wrong with the record; the rest of it is only read to find its end.
    flaw: Option<EncodingError>,
}

/// What an element is; the first is the record.
#[derive(Debug)]
struct Node {
    name: String,
    kind: Kind,
    children: HashMap<String, usize>,
    /// Those of the children that are lists which may not be null.
    lists: Vec<usize>,
    /// The number of the element that one like this was last seen in.
    seen_in: u64,
}

#[derive(Debug)]
enum Kind {
    Record,
    Group(Group),
    Leaf {
        field: usize,
        ty: FieldType,
        nullable: bool,
    },
    /// An element of a list.
    Item {
        field: usize,
        of: Item,
        nullable: bool,
    },
}

impl Node {
    fn new(name: String, kind: Kind) -> Self {
        Self { name, kind, children: HashMap::new(), lists: Vec::new(), seen_in: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Value(FieldType),
    Record,
    /// A list, whose elements are nodes of this index.
    List(usize),
}

/// An element that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// `None` for one that is passed over.
    node: Option<usize>,
    number: u64,
    /// The list in it whose elements are being read.
    list: Option<usize>,
    /// What was seen in it first: in a union, the one variant.
    first: Option<usize>,
    /// Whether it says that it is null.
    is_nil: bool,
}

impl Convert {
    pub(super) fn new(format: &Format, options: &EncodingOptions) -> Self {
        let mut nodes = vec![Node::new(String::new(), Kind::Record)];
        add_members(&mut nodes, 0, format, format.tree(), &format.specs());
        Self {
            builder: RecordBuilder::with_defaults(format),
            nodes,
            ignore_unknown: options.ignore_unknown,
            rounding: Rounding::of(options.allows(Loss::Rounding)),
            open: Vec::new(),
            opened: 0,
            text: Vec::new(),
            scratch: Vec::new(),
            flaw: None,
        }
    }

    /// Reads what is left of the record that [`Convert::begin`] began.
    pub(super) fn read_record(
        &mut self,
        reader: &mut Reader<Bounded<'_>>,
        buffer: &mut Vec<u8>,
        most_deep: usize,
    ) -> Result<(), Flaw> {
        // The start of an element that stands for a list without elements if nothing is in it, however that is written.
        let mut held: Option<BytesStart<'_>> = None;
        while !self.open.is_empty() {
            buffer.clear();
            let event = reader.read_event_into(buffer)?;
            if let Some(tag) = held.take() {
                self.start(&tag, matches!(event, Event::End(_)))?;
            }
            match event {
                Event::Start(_) if self.open.len() >= most_deep => return Err(too_deep()),
                Event::Start(tag) if nil_of(&tag)? == Some(false) => held = Some(tag.into_owned()),
                Event::Start(tag) => self.start(&tag, false)?,
                Event::Empty(tag) => {
                    self.start(&tag, true)?;
                    self.end();
                }
                Event::End(_) => self.end(),
                Event::Text(text) => self.text(&text.xml10_content()),
                Event::CData(text) => self.text(&text.xml10_content()),
                Event::GeneralRef(reference) => self.reference(&reference)?,
                Event::PI(_) | Event::Comment(_) => {}
                Event::DocType(_) | Event::Decl(_) => {
                    return Err(Flaw::Syntax("found a declaration in the middle of a record".to_owned()));
                }
                Event::Eof => return Err(Flaw::Cut),
            }
        }
        Ok(())
    }

    /// The start of a record's element.
    pub(super) fn begin(&mut self, tag: &BytesStart<'_>) -> Result<(), Flaw> {
        self.builder.clear();
        self.flaw = None;
        self.open.clear();
        self.push(Some(0), None, false);
        self.attributes(tag)
    }

    /// The record whose element has ended.
    pub(super) fn finish(&mut self) -> Result<&[u8], EncodingError> {
        match self.flaw.take() {
            Some(flaw) => Err(flaw),
            None => Ok(self.builder.finish()?),
        }
    }

    fn push(&mut self, node: Option<usize>, list: Option<usize>, is_nil: bool) {
        self.opened += 1;
        self.open.push(Open { node, number: self.opened, list, first: None, is_nil });
    }

    /// The start of an element in a record, which may be its end too.
    fn start(&mut self, tag: &BytesStart<'_>, is_empty: bool) -> Result<(), Flaw> {
        let name = tag.name();
        let nil = nil_of(tag)?;
        let goes_on = self.open.last().and_then(|open| open.list);
        let node = self.child(name.as_ref(), "an element");
        let node = node.filter(|node| match (self.nodes.get(*node).map(|node| &node.kind), nil) {
            (Some(Kind::Item { field, nullable, .. }), Some(nil)) if (nil || is_empty) && goes_on != Some(*node) => {
                let (field, nullable, node) = (*field, *nullable, *node);
                self.list_as_a_whole(node, field, nil, nullable);
                false
            }
            _ => true,
        });
        let inner = node.and_then(|node| self.enter(node));
        let node = node.filter(|_| self.flaw.is_none());
        self.push(node, inner, nil == Some(true));
        if node.is_some() { self.attributes(tag) } else { Ok(()) }
    }

    /// The node under this name in the innermost element, which is noted to have been seen; `None` where it is passed
    /// over.
    fn child(&mut self, name: &str, what: &str) -> Option<usize> {
        let parent = *self.open.last()?;
        let of = self.nodes.get(parent.node.filter(|_| self.flaw.is_none())?)?;
        let is_union = matches!(&of.kind, Kind::Group(group) if group.union.is_some());
        let Some(&child) = of.children.get(name).or_else(|| of.children.get(local(name))) else {
            self.unknown(of.expected(&self.builder), name, what);
            return None;
        };
        self.leave_list(Some(child));
        let seen_in = std::mem::replace(&mut self.nodes.get_mut(child)?.seen_in, parent.number);
        if seen_in == parent.number && parent.list != Some(child) {
            let path = self.path(Some(name));
            self.flaw = Some(EncodingError::new(EncodingProblem::Twice).in_field(path));
        } else if is_union && parent.first.is_some_and(|first| first != child) {
            let found = format!("a second variant, `{}`", text::shorten(name.as_bytes()));
            self.refuse(None, found, "one of the union's".to_owned());
        }
        if let Some(open) = self.open.last_mut() {
            open.first.get_or_insert(child);
        }
        self.text.clear();
        self.flaw.is_none().then_some(child)
    }

    #[cold]
    fn unknown(&mut self, expected: Option<String>, name: &str, what: &str) {
        if self.ignore_unknown {
            return;
        }
        match expected {
            Some(expected) => {
                let found = format!("{what} `{}`", text::shorten(name.as_bytes()));
                self.refuse(None, found, expected);
            }
            None => {
                let node = self.open.last().and_then(|open| self.nodes.get(open.node?));
                let mut known: Vec<&usize> = node.map(|node| node.children.values().collect()).unwrap_or_default();
                known.sort_unstable();
                let known: Vec<&str> =
                    known.into_iter().filter_map(|child| Some(self.nodes.get(*child)?.name.as_str())).collect();
                let problem = EncodingProblem::Unknown { known: known.join(", ") };
                let path = self.path(Some(&text::shorten(name.as_bytes())));
                self.flaw = Some(EncodingError::new(problem).in_field(path));
            }
        }
    }

    /// Makes the builder ready for what is in an element; gives the list that its elements are of, if it is one.
    fn enter(&mut self, node: usize) -> Option<usize> {
        let is_open = self.open.last().is_some_and(|open| open.list == Some(node));
        let (outcome, inner) = match &self.nodes.get(node)?.kind {
            Kind::Record | Kind::Leaf { .. } => (Ok(()), None),
            Kind::Group(group) => {
                self.builder.set_group_present(group);
                (Ok(()), None)
            }
            Kind::Item { field, of, .. } => {
                let begun = if is_open { Ok(()) } else { self.builder.begin_list(*field) };
                if let Some(open) = self.open.last_mut() {
                    open.list = Some(node);
                }
                match of {
                    Item::Value(_) => (begun, None),
                    Item::Record => (begun.and_then(|()| self.builder.begin_element()), None),
                    Item::List(inner) => (begun.and_then(|()| self.builder.begin_list(0)), Some(*inner)),
                }
            }
        };
        self.note(outcome);
        inner
    }

    /// One empty element for a list that is null, or has no elements.
    fn list_as_a_whole(&mut self, node: usize, field: usize, is_null: bool, nullable: bool) {
        if !is_null {
            let outcome = self.builder.begin_list(field).and_then(|()| self.builder.end_list());
            self.note(outcome);
        } else if !nullable && self.builder.set_null(field).is_err() {
            self.refuse(Some(node), "null".to_owned(), "a list; the field is not nullable".to_owned());
        }
    }

    /// The end of the innermost element.
    pub(super) fn end(&mut self) {
        self.leave_list(None);
        let Some(closed) = self.open.pop() else { return };
        let Some(node) = closed.node.filter(|_| self.flaw.is_none()) else { return };
        self.fill_lists(node, closed.number);
        let Some(of) = self.nodes.get(node) else { return };
        match of.kind {
            // Those that were begun are ended with them.
            Kind::Record | Kind::Group(_) | Kind::Item { of: Item::List(_), .. } => {}
            Kind::Leaf { field, ty, nullable } => {
                let text = std::mem::take(&mut self.text);
                self.leaf(field, ty, node, nullable, closed.is_nil, &text);
                self.text = text;
            }
            Kind::Item { of: Item::Record, .. } => {
                let outcome = self.builder.end_element();
                self.note(outcome);
            }
            Kind::Item { of: Item::Value(ty), .. } => {
                let text = std::mem::take(&mut self.text);
                let begun = if closed.is_nil { Err(Unfit) } else { self.builder.begin_value().map_err(|_| Unfit) };
                if begun.and_then(|()| self.put(0, ty, &text)).is_err() {
                    let found = if closed.is_nil { "null".to_owned() } else { format!("`{}`", text::shorten(&text)) };
                    self.refuse(Some(node), found, exactly(ty.to_string(), &text, ty));
                }
                self.builder.end_value();
                self.text = text;
            }
        }
    }

    fn leaf(&mut self, field: usize, ty: FieldType, node: usize, nullable: bool, is_nil: bool, text: &[u8]) {
        let is_text = ty.is_text() || ty == FieldType::Bytes;
        if nullable && (is_nil || (!is_text && text.trim_ascii().is_empty())) {
            // Unset is null.
            return;
        }
        if is_nil && self.builder.set_null(field).is_ok() {
            // It has a default.
            return;
        }
        if is_nil {
            let expected = self.expected(node);
            self.refuse(Some(node), "null".to_owned(), expected);
            return;
        }
        self.value(field, ty, node, text);
    }

    fn value(&mut self, field: usize, ty: FieldType, node: usize, text: &[u8]) {
        if self.put(field, ty, text).is_err() {
            let expected = exactly(self.expected(node), text, ty);
            self.refuse(Some(node), format!("`{}`", text::shorten(text)), expected);
        }
    }

    fn put(&mut self, field: usize, ty: FieldType, text: &[u8]) -> Result<(), Unfit> {
        let Self { builder, scratch, rounding, .. } = self;
        match ty {
            FieldType::Bytes => text::set_from_text(builder, scratch, field, &without_blanks(text), *rounding),
            _ => text::set_from_text(builder, scratch, field, text, *rounding),
        }
    }

    /// Ends the list that is open in the innermost element, unless it goes on with `next`.
    fn leave_list(&mut self, next: Option<usize>) {
        let Some(open) = self.open.last_mut() else { return };
        if open.list.is_some() && open.list != next {
            open.list = None;
            if self.flaw.is_none() {
                let outcome = self.builder.end_list();
                self.note(outcome);
            }
        }
    }

    /// Lists that may not be null and that nothing was seen of have no elements.
    fn fill_lists(&mut self, node: usize, number: u64) {
        let Some(of) = self.nodes.get(node) else { return };
        let mut outcome = Ok(());
        for child in &of.lists {
            if let Some(Node { kind: Kind::Item { field, .. }, seen_in, .. }) = self.nodes.get(*child)
                && *seen_in != number
            {
                let filled = self.builder.begin_list(*field).and_then(|()| self.builder.end_list());
                outcome = outcome.and(filled);
            }
        }
        self.note(outcome);
    }

    /// The innermost element's attributes: fields of a record. What is said of the element itself is known already.
    fn attributes(&mut self, tag: &BytesStart<'_>) -> Result<(), Flaw> {
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(XmlError::from)?;
            let name: &str = attribute.key.as_ref();
            let prefix = name.split_once(':').map_or("", |(prefix, _)| prefix);
            if name == "xmlns" || matches!(prefix, "xmlns" | "xml" | "xsi") || name.ends_with(":nil") {
                continue;
            }
            let value = attribute.normalized_value(XmlVersion::Implicit1_0)?;
            let child = self.child(name, "an attribute");
            match child.and_then(|child| Some((child, &self.nodes.get(child)?.kind))) {
                Some((child, Kind::Leaf { field, ty, .. })) => {
                    let (field, ty) = (*field, *ty);
                    self.value(field, ty, child, value.as_bytes());
                }
                Some((child, _)) => self.refuse(Some(child), "an attribute".to_owned(), "an element".to_owned()),
                None => {}
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        let Some(Open { node: Some(node), .. }) = self.open.last() else { return };
        match self.nodes.get(*node).map(|node| &node.kind) {
            Some(Kind::Leaf { .. } | Kind::Item { of: Item::Value(_), .. }) => {
                self.text.extend_from_slice(text.as_bytes());
            }
            _ if is_blank(text) || self.flaw.is_some() || self.ignore_unknown => {}
            _ => {
                let found = format!("the text `{}`", text::shorten(text.as_bytes()));
                self.refuse(None, found, "elements of the format's fields".to_owned());
            }
        }
    }

    /// One of the five entities that XML has of its own, or a character by its number.
    fn reference(&mut self, reference: &BytesRef<'_>) -> Result<(), Flaw> {
        if let Some(c) = reference.resolve_char_ref()? {
            self.text(c.encode_utf8(&mut [0; 4]));
            return Ok(());
        }
        match escape::resolve_xml_entity(reference) {
            Some(text) => self.text(text),
            None => {
                let name = text::shorten(reference.as_bytes());
                let message =
                    format!("found the entity `&{name};`, expected one of amp, lt, gt, quot, apos, or a number");
                return Err(Flaw::Syntax(message));
            }
        }
        Ok(())
    }

    /// Notes that the builder refused something, with where that is.
    fn note(&mut self, outcome: Result<(), ValueError>) {
        if let Err(error) = outcome
            && self.flaw.is_none()
        {
            self.flaw = Some(error.into());
        }
    }

    /// What a node's field takes, in words.
    fn expected(&self, node: usize) -> String {
        self.nodes.get(node).and_then(|node| node.expected(&self.builder)).unwrap_or_default()
    }

    /// Notes what is wrong with the innermost element, or with one in it.
    #[cold]
    fn refuse(&mut self, node: Option<usize>, found: String, expected: String) {
        let name = node.and_then(|node| self.nodes.get(node)).map(|node| node.name.as_str());
        let path = self.path(name);
        let error = EncodingError::value(found, expected);
        self.flaw = Some(if path.is_empty() { error } else { error.in_field(path) });
    }

    /// The names of the open elements in the record, and a last one.
    fn path(&self, last: Option<&str>) -> String {
        let open = self.open.iter().skip(1).filter_map(|open| Some(self.nodes.get(open.node?)?.name.as_str()));
        let names: Vec<&str> = open.chain(last).collect();
        names.join(".")
    }
}

impl Node {
    /// What a field's text is to be, in words; `None` for what has elements in it.
    fn expected(&self, builder: &RecordBuilder) -> Option<String> {
        match self.kind {
            Kind::Leaf { field, nullable, .. } => {
                let field = builder.format().fields().get(field)?;
                let mut expected = text::expected(field, "RFC 3339, such as 2013-01-01T10:00:00Z");
                expected.push_str(if nullable { "" } else { "; the field is not nullable" });
                Some(expected)
            }
            Kind::Item { of: Item::Value(ty), .. } => Some(ty.to_string()),
            _ => None,
        }
    }
}

/// Adds what may be in an element: the members of a record or of a nested one.
fn add_members(nodes: &mut Vec<Node>, parent: usize, format: &Format, places: &[Member], specs: &[FieldSpec]) {
    let is_union = matches!(&nodes[parent].kind, Kind::Group(group) if group.union.is_some());
    for (place, spec) in places.iter().zip(specs) {
        let index = match place {
            Member::Leaf(leaf) => match format.fields().get(*leaf).map(|field| (field.ty, field.element())) {
                Some((_, Some(element))) => add_list(nodes, *leaf, &spec.name, element, spec.nullable),
                Some((ty, None)) => {
                    let kind = Kind::Leaf { field: *leaf, ty, nullable: spec.nullable };
                    add(nodes, Node::new(spec.name.clone(), kind))
                }
                None => continue,
            },
            Member::Group(group) => {
                let index = add(nodes, Node::new(spec.name.clone(), Kind::Group(group.clone())));
                if let TypeSpec::Record(inner) | TypeSpec::Union(inner) = &spec.ty {
                    add_members(nodes, index, format, &group.members, inner);
                }
                index
            }
        };
        if !spec.nullable && !is_union && matches!(nodes[index].kind, Kind::Item { .. }) {
            nodes[parent].lists.push(index);
        }
        nodes[parent].children.insert(spec.name.clone(), index);
    }
}

fn add_list(nodes: &mut Vec<Node>, field: usize, name: &str, element: &Element, nullable: bool) -> usize {
    // Its place is taken first: what is in it comes behind.
    let index = add(nodes, Node::new(name.to_owned(), Kind::Item { field, of: Item::Record, nullable }));
    let of = match element.kind() {
        ElementKind::Record(format) => {
            add_members(nodes, index, format, format.tree(), &format.specs());
            Item::Record
        }
        ElementKind::Scalar(scalar) => match scalar.element() {
            None => Item::Value(scalar.ty),
            Some(inner) => {
                let inner = add_list(nodes, 0, ITEM, inner, false);
                nodes[index].children.insert(ITEM.to_owned(), inner);
                Item::List(inner)
            }
        },
    };
    nodes[index].kind = Kind::Item { field, of, nullable };
    index
}

fn add(nodes: &mut Vec<Node>, node: Node) -> usize {
    nodes.push(node);
    nodes.len() - 1
}

/// What an element says of itself by `xsi:nil`, whatever the prefix is.
fn nil_of(tag: &BytesStart<'_>) -> Result<Option<bool>, Flaw> {
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(XmlError::from)?;
        if attribute.key.as_ref().ends_with(":nil") {
            return Ok(Some(matches!(attribute.value.trim(), "true" | "1")));
        }
    }
    Ok(None)
}

fn without_blanks(text: &[u8]) -> Cow<'_, [u8]> {
    match text.iter().any(u8::is_ascii_whitespace) {
        true => text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect(),
        false => Cow::Borrowed(text),
    }
}

/// What was expected, with what an integer must be that would be rounded.
fn exactly(expected: String, found: &[u8], ty: FieldType) -> String {
    if text::is_inexact(found, ty) { format!("{expected}, {}", text::exactly(ty)) } else { expected }
}
