//! The properties of a format that reading and writing Rust types needs, worked out once.

use std::sync::OnceLock;

use crate::element::{Element, Group};
use crate::field::FieldType;
use crate::format::Format;
use crate::shape::{Items, Named, Shape};

/// The fields and nested records of a record, in declared order.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) all: Box<[Member]>,
    /// The choice of the first type that was read.
    chosen: OnceLock<Chosen>,
}

/// The indices of the members whose names are in a list of names.
#[derive(Clone, Debug)]
struct Chosen {
    names: &'static [&'static str],
    indices: Box<[usize]>,
}

/// A field or a nested record.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) kind: MemberKind,
}

#[derive(Clone, Debug)]
pub(super) enum MemberKind {
    Leaf(Leaf),
    /// A nested record, or a union, whose variants are members that may be null.
    Group(Group, Members),
}

/// A field of one value, or of a list.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) field: usize,
    pub(super) ty: FieldType,
    /// The elements of a list.
    pub(super) elements: Option<Box<Elements>>,
}

#[derive(Clone, Debug)]
pub(super) enum Elements {
    /// Single values: each is field 0 of its element.
    Value(Leaf),
    Record(Members),
}

impl Members {
    pub(super) fn of(format: &Format) -> Members {
        Members::from_named(Named::all(format, ""))
    }

    fn from_named(named: Vec<Named>) -> Members {
        Members { all: named.into_iter().map(Member::from_named).collect(), chosen: OnceLock::new() }
    }

    /// The member of this name. `next` is the index where it is most likely, and the one behind it afterwards.
    pub(super) fn find(&self, name: &str, next: &mut usize) -> Option<&Member> {
        let is_next = self.all.get(*next).is_some_and(|member| member.name == name);
        let index = if is_next { *next } else { self.all.iter().position(|member| member.name == name)? };
        *next = index + 1;
        self.all.get(index)
    }

    /// The indices of the members with these names, if [`Members::choose`] has worked them out.
    pub(super) fn chosen(&self, names: &'static [&'static str]) -> Option<&[usize]> {
        let chosen = self.chosen.get()?;
        // A type always has the same list, at the same place.
        std::ptr::eq(chosen.names, names).then_some(&*chosen.indices)
    }

    /// Has only the members with these names be read from now on. A type that names none may take any: it is given all.
    pub(super) fn choose(&self, names: &'static [&'static str]) {
        if names.is_empty() {
            return;
        }
        self.chosen.get_or_init(|| {
            let is_chosen = |member: &Member| names.contains(&member.name.as_str());
            let indices = self.all.iter().enumerate().filter(|(_, member)| is_chosen(member)).map(|(index, _)| index);
            Chosen { names, indices: indices.collect() }
        });
    }
}

impl Member {
    fn from_named(named: Named) -> Member {
        let kind = match named.shape {
            Shape::Leaf(field, of) => MemberKind::Leaf(Leaf {
                field,
                ty: of.ty,
                elements: of.element().map(|element| Box::new(Elements::of(element))),
            }),
            Shape::Record(group, members) | Shape::Union(group, members) => {
                MemberKind::Group(group, Members::from_named(members))
            }
        };
        Member { name: named.name, kind }
    }
}

impl Elements {
    fn of(element: &Element) -> Elements {
        match Items::of(element, "") {
            Items::Record(members) => Elements::Record(Members::from_named(members)),
            Items::Scalar(value) => match Member::from_named(*value).kind {
                MemberKind::Leaf(leaf) => Elements::Value(leaf),
                MemberKind::Group(_, members) => Elements::Record(members),
            },
        }
    }
}
