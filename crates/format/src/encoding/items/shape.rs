//! A format's fields by their names, as maps have them.

use std::collections::HashMap;

use crate::element::Group;
use crate::encoding::shape::{Items, Named, Shape};
use crate::field::{Field, FieldType};
use crate::format::Format;

/// The members of a map: of a record, a nested record, or a union.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) entries: Vec<Entry>,
    by_name: HashMap<Vec<u8>, usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) path: String,
    pub(super) target: Target,
}

#[derive(Clone, Debug)]
pub(super) enum Target {
    Leaf(usize, Field),
    Group(Box<Group>, Members),
    List(usize, Box<Element>),
}

#[derive(Clone, Debug)]
pub(super) enum Element {
    Scalar(Entry),
    Record(Members),
    /// A record of one nullable value, which is there without the record too.
    Nullable(Members),
}

impl Members {
    pub(super) fn of(format: &Format) -> Self {
        Self::named(&Named::all(format, ""))
    }

    fn named(members: &[Named]) -> Self {
        let entries: Vec<Entry> = members.iter().map(Entry::of).collect();
        let by_name = entries.iter().enumerate().map(|(index, entry)| (entry.name.clone(), index)).collect();
        Self { entries, by_name }
    }

    /// Which member a name is. Most maps have their members in the format's order: that one is looked at first.
    #[inline]
    pub(super) fn find(&self, name: &[u8], likely: usize) -> Option<usize> {
        match self.entries.get(likely) {
            Some(entry) if entry.name == name => Some(likely),
            _ => self.by_name.get(name).copied(),
        }
    }

    /// The members' names, for messages.
    pub(super) fn known(&self) -> String {
        let names: Vec<_> = self.entries.iter().take(20).map(|entry| String::from_utf8_lossy(&entry.name)).collect();
        names.join(", ")
    }
}

impl Entry {
    fn of(named: &Named) -> Self {
        let target = match &named.shape {
            Shape::Leaf(index, field) => match field.element() {
                Some(element) if field.ty == FieldType::List => {
                    let element = match Items::of(element, &named.path) {
                        Items::Scalar(named) => Element::Scalar(Entry::of(&named)),
                        Items::Record(members) if element.is_nullable_value() => {
                            Element::Nullable(Members::named(&members))
                        }
                        Items::Record(members) => Element::Record(Members::named(&members)),
                    };
                    Target::List(*index, Box::new(element))
                }
                _ => Target::Leaf(*index, field.clone()),
            },
            Shape::Record(group, members) | Shape::Union(group, members) => {
                Target::Group(Box::new(group.clone()), Members::named(members))
            }
        };
        Self { name: named.name.clone().into_bytes(), path: named.path.clone(), target }
    }
}
