//! A format's fields by their names, as maps have them.

use std::collections::HashMap;
use std::ops::Range;

use crate::element::{Element, ElementKind, Group};
use crate::field::Field;
use crate::format::Format;
use crate::scan::{Needle, Target};
use crate::shape::{Named, Shape};

/// The members of a map: of a record, a nested record, or a union.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) entries: Box<[Entry]>,
    by_name: HashMap<Box<[u8]>, usize>,
    /// The lists that may not be null: which members they are, and their fields.
    pub(super) lists: Box<[(usize, usize)]>,
    /// Words of the decoder's set of the members that were there.
    pub(super) seen: Range<usize>,
    /// The first of the decoder's guesses at which member follows: one for the first, then one for that behind each.
    pub(super) next: usize,
    /// The names on the way to the members, up to the last dot.
    pub(super) within: Box<str>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Box<str>,
    /// The name as it is written.
    pub(super) needle: Needle,
    /// The names on the way to it from the innermost list's element, and its own.
    pub(super) path: Box<str>,
    pub(super) goal: Goal,
}

/// The destination of a member.
#[derive(Debug)]
pub(super) enum Goal {
    Value(Target),
    /// A nested record or union.
    Group(Box<Group>, Members),
    List(usize, Box<Item>),
}

/// The form of an element of a list.
#[derive(Debug)]
pub(super) enum Item {
    Value(Target),
    List(Box<Item>),
    Record(Members),
    /// A record of one nullable value, which is there without the record too.
    Nullable(Members),
}

/// The needs of a format's members in a decoder.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Words of a set of all members.
    pub(super) seen: usize,
    pub(super) next: Vec<usize>,
}

/// How an encoding writes a name.
pub(super) type Written = fn(&str) -> Vec<u8>;

impl Members {
    /// The members of a format's records, or of its elements.
    pub(super) fn of(format: &Format, written: Written, needs: &mut Needs) -> Self {
        Self::named(format, &Named::all(format, ""), None, written, needs)
    }

    /// `within`: the nested record or union that they are of.
    fn named(format: &Format, members: &[Named], within: Option<&Named>, written: Written, needs: &mut Needs) -> Self {
        let is_union = within.is_some_and(|within| matches!(within.shape, Shape::Union(..)));
        let seen = needs.seen..needs.seen + members.len().div_ceil(64);
        needs.seen = seen.end;
        let next = needs.next.len();
        needs.next.extend(0..=members.len());
        let (mut entries, mut by_name) = (Vec::with_capacity(members.len()), HashMap::new());
        let mut lists = Vec::new();
        for named in members {
            let Some(goal) = Goal::of(format, named, written, needs) else { continue };
            if let (Goal::List(field, _), false) = (&goal, named.nullable || is_union) {
                lists.push((entries.len(), *field));
            }
            by_name.insert(named.name.as_bytes().into(), entries.len());
            let needle = Needle::new(written(&named.name));
            entries.push(Entry { name: named.name.as_str().into(), needle, path: named.path.as_str().into(), goal });
        }
        let within = within.map_or_else(Box::default, |within| format!("{}.", within.path).into());
        Self { entries: entries.into(), by_name, lists: lists.into(), seen, next, within }
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The members' names, for messages.
    pub(super) fn known(&self) -> String {
        let names: Vec<&str> = self.entries.iter().take(20).map(|entry| &*entry.name).collect();
        names.join(", ")
    }
}

impl Goal {
    fn of(format: &Format, named: &Named, written: Written, needs: &mut Needs) -> Option<Self> {
        Some(match &named.shape {
            Shape::Leaf(index, field) => match field.element() {
                Some(element) => Self::List(*index, Box::new(Item::of(element, written, needs)?)),
                None => Self::Value(Target::of(format, *index)?),
            },
            Shape::Record(group, members) | Shape::Union(group, members) => {
                Self::Group(Box::new(group.clone()), Members::named(format, members, Some(named), written, needs))
            }
        })
    }
}

impl Item {
    fn of(element: &Element, written: Written, needs: &mut Needs) -> Option<Self> {
        Some(match element.kind() {
            ElementKind::Record(format) => {
                let members = Members::of(format, written, needs);
                if element.is_nullable_value() { Self::Nullable(members) } else { Self::Record(members) }
            }
            ElementKind::Scalar(field) => match Field::element(field) {
                Some(inner) => Self::List(Box::new(Self::of(inner, written, needs)?)),
                None => Self::Value(Target::of(element.format(), 0)?),
            },
        })
    }
}
