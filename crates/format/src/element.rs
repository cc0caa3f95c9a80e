//! The content of a list, what an enumeration's numbers stand for, and how fields lie in each other.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::field::Field;
use crate::format::Format;
use crate::spec::Evolution;

/// The name of the one field of records that stand for their value.
pub(crate) const VALUE: &str = "value";

/// Symbols and their numbers.
#[derive(Clone, Debug)]
pub struct Enumeration {
    symbols: Vec<(String, i64)>,
    /// Numbers that rise, each with the index of its first symbol.
    by_number: Vec<(i64, u32)>,
    by_symbol: HashMap<String, i64>,
}

impl Enumeration {
    pub(crate) fn new(symbols: Vec<(String, i64)>) -> Self {
        let mut by_number: Vec<(i64, u32)> =
            symbols.iter().zip(0..).map(|((_, number), index)| (*number, index)).collect();
        by_number.sort_unstable();
        by_number.dedup_by_key(|(number, _)| *number);
        let by_symbol = symbols.iter().cloned().collect();
        Self { symbols, by_number, by_symbol }
    }

    /// The symbols in declared order, with their numbers.
    #[must_use]
    pub fn symbols(&self) -> &[(String, i64)] {
        &self.symbols
    }

    /// The symbol of a number; of several, the one declared first.
    #[inline]
    #[must_use]
    pub fn symbol(&self, number: i64) -> Option<&str> {
        // Most enumerations are numbered from 0 on.
        let likely = usize::try_from(number).ok().and_then(|at| self.by_number.get(at)).filter(|of| of.0 == number);
        let index = match likely {
            Some((_, index)) => *index,
            None => self.by_number[self.by_number.binary_search_by_key(&number, |of| of.0).ok()?].1,
        };
        self.symbols.get(index as usize).map(|(symbol, _)| symbol.as_str())
    }

    /// The number of a symbol.
    #[must_use]
    pub fn number(&self, symbol: &str) -> Option<i64> {
        self.by_symbol.get(symbol).copied()
    }
}

impl PartialEq for Enumeration {
    fn eq(&self, other: &Self) -> bool {
        self.symbols == other.symbols
    }
}

impl Eq for Enumeration {}

impl std::hash::Hash for Enumeration {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.symbols.hash(state);
    }
}

/// The content of a list: how one element is laid out, how far the next one is, and how many there are.
///
/// An element is laid out like a record without a length: null bitmap, then the fields. Slots in it speak of places in
/// the record that the list lies in.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Element {
    /// The layout of an element; an element of one value is a field called `element` at its start.
    pub(crate) format: Format,
    pub(crate) is_record: bool,
    /// Bytes from the start of an element to the start of the next one.
    pub stride: u32,
    /// How many elements there are.
    pub count: Count,
}

/// Where the number of a list's elements is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Count {
    /// In the list's slot, behind the offset.
    Slot,
    /// A constant number of elements, in the fixed part.
    Fixed(u32),
}

/// The kind of an element.
#[derive(Clone, Copy, Debug)]
pub enum ElementKind<'a> {
    /// One value: of this type, at the start of the element. It may be a list itself.
    Scalar(&'a Field),
    /// A record of this layout.
    Record(&'a Format),
}

impl Element {
    /// The kind of an element.
    #[must_use]
    pub fn kind(&self) -> ElementKind<'_> {
        match self.format.fields().first() {
            Some(field) if !self.is_record => ElementKind::Scalar(field),
            _ => ElementKind::Record(&self.format),
        }
    }

    /// Whether an element is a record of nothing but one nullable field of the name [`VALUE`]: what stands for a value that
    /// may be null, in lists of other systems.
    pub(crate) fn is_nullable_value(&self) -> bool {
        let fields = self.format.fields();
        let nullable = match self.format.tree() {
            [Member::Leaf(index)] => fields.get(*index).is_some_and(|field| field.name == VALUE && field.nullable),
            [Member::Group(group)] => group.name == VALUE && group.nullable,
            _ => false,
        };
        self.is_record && nullable
    }

    /// The layout of an element; one of a single value has one field, at its start, which is the value.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }
}

/// A field, or fields under one name: how a format's fields lie in each other.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum Member {
    /// The index of a field.
    Leaf(usize),
    /// A nested record or a union.
    Group(Group),
}

/// Fields under one name: a nested record, or a union.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Group {
    /// Its own name, without those that it lies in.
    pub name: String,
    /// The names on the way to it and its own, with dots in between.
    pub path: String,
    /// Whether it may be null. The variants of a union always may.
    pub nullable: bool,
    /// Which of the format's null tests says whether it is null; `None` if it never is, and for a union, which is null
    /// when all its variants are.
    pub optional: Option<usize>,
    /// Set for a union: its members are variants, and one is there.
    pub union: Option<Tag>,
    /// Its members.
    pub members: Vec<Member>,
    /// The indices of all fields in it.
    pub leaves: Range<usize>,
    /// How it goes together with other versions of the format, if anything is said of that: by its names.
    pub evolution: Option<Arc<Evolution>>,
}

/// How to see which variant of a union is there. In the natural layout each variant has its own null bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Tag {
    /// The field whose value says, in a foreign layout that has one.
    pub discriminator: Option<usize>,
}
