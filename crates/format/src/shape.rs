//! How a format's fields lie in each other, with the names that encodings have for them.

use std::sync::Arc;

use crate::element::{Element, ElementKind, Group, Member};
use crate::field::Field;
use crate::format::Format;
use crate::spec::{Evolution, FieldSpec, TypeSpec};

/// A field, a nested record or a union, with its own name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// The names on the way to it, and its own: for messages.
    pub(crate) path: String,
    /// Whether it may be null where what it lies in is not.
    pub(crate) nullable: bool,
    pub(crate) evolution: Option<Arc<Evolution>>,
    pub(crate) shape: Shape,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// The field of this index.
    Leaf(usize, Field),
    Record(Group, Vec<Named>),
    /// Of these one is there.
    Union(Group, Vec<Named>),
}

/// The elements of a list.
#[derive(Clone, Debug)]
pub(crate) enum Items {
    /// Single values.
    Scalar(Box<Named>),
    Record(Vec<Named>),
}

impl Named {
    /// Whether a record without it is whole: it is null then, or has its default.
    pub(crate) fn may_be_missing(&self) -> bool {
        let is_leaf_filled = |field: &Field| field.default_text().is_some();
        self.nullable
            || match &self.shape {
                Shape::Leaf(_, field) => is_leaf_filled(field),
                Shape::Record(_, members) => members.iter().all(Named::may_be_missing),
                Shape::Union(..) => false,
            }
    }

    /// The members of the format's records; `path` is that of the list, for elements.
    pub(crate) fn all(format: &Format, path: &str) -> Vec<Named> {
        Self::members(format, format.tree(), &format.specs(), path)
    }

    fn members(format: &Format, members: &[Member], specs: &[FieldSpec], path: &str) -> Vec<Named> {
        let named = |(member, spec): (&Member, &FieldSpec)| {
            let path = if path.is_empty() { spec.name.clone() } else { format!("{path}.{}", spec.name) };
            let shape = match (member, &spec.ty) {
                (Member::Leaf(index), _) => Shape::Leaf(*index, format.fields().get(*index)?.clone()),
                (Member::Group(group), TypeSpec::Union(variants)) => {
                    Shape::Union(group.clone(), Self::members(format, &group.members, variants, &path))
                }
                (Member::Group(group), TypeSpec::Record(fields)) => {
                    Shape::Record(group.clone(), Self::members(format, &group.members, fields, &path))
                }
                (Member::Group(_), _) => return None,
            };
            let evolution = spec.evolution.clone();
            Some(Named { name: spec.name.clone(), path, nullable: spec.nullable, evolution, shape })
        };
        members.iter().zip(specs).filter_map(named).collect()
    }
}

impl Items {
    /// The elements of the list at this path.
    pub(crate) fn of(element: &Element, path: &str) -> Self {
        let path = format!("{path}[]");
        match element.kind() {
            ElementKind::Record(format) => Self::Record(Named::all(format, &path)),
            ElementKind::Scalar(field) => {
                let shape = Shape::Leaf(0, field.clone());
                Self::Scalar(Box::new(Named { name: String::new(), path, nullable: false, evolution: None, shape }))
            }
        }
    }
}
