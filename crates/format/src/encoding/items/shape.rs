//! A format's fields with their names, as written.

use crate::element::Group;
use crate::field::{Field, FieldType};
use crate::format::Format;
use crate::shape::{Items, Named, Shape};

/// The members of a map: of a record, a nested record, or a union.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) path: String,
    pub(super) target: MemberShape,
}

#[derive(Clone, Debug)]
pub(super) enum MemberShape {
    Leaf(usize, Field),
    Group(Box<Group>, Members),
    List(usize, Box<Element>),
}

#[derive(Clone, Debug)]
pub(super) enum Element {
    Scalar(Entry),
    Record(Members),
}

impl Members {
    pub(super) fn of(format: &Format) -> Self {
        Self::named(&Named::all(format, ""))
    }

    fn named(members: &[Named]) -> Self {
        Self { entries: members.iter().map(Entry::of).collect() }
    }
}

impl Entry {
    fn of(named: &Named) -> Self {
        let target = match &named.shape {
            Shape::Leaf(index, field) => match field.element() {
                Some(element) if field.ty == FieldType::List => {
                    let element = match Items::of(element, &named.path) {
                        Items::Scalar(named) => Element::Scalar(Entry::of(&named)),
                        Items::Record(members) => Element::Record(Members::named(&members)),
                    };
                    MemberShape::List(*index, Box::new(element))
                }
                _ => MemberShape::Leaf(*index, field.clone()),
            },
            Shape::Record(group, members) | Shape::Union(group, members) => {
                MemberShape::Group(Box::new(group.clone()), Members::named(members))
            }
        };
        Self { name: named.name.clone().into_bytes(), path: named.path.clone(), target }
    }
}
