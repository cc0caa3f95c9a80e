//! The objects that records of a format are, worked out once: names to fields, at every depth.

use std::collections::HashMap;
use std::ops::Range;

use crate::element::{Element, Group, Member};
use crate::field::{Field, FieldType};
use crate::format::Format;

/// The members of one object.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    /// Words of the decoder's set of members that were there.
    pub(super) seen: Range<usize>,
}

/// A member.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) what: What,
}

/// What a member is.
#[derive(Debug)]
pub(super) enum What {
    /// The value of a field.
    Value(usize, FieldType),
    /// A list.
    List(usize, Item),
    /// A nested record or union.
    Group(Group, Shape),
}

/// What an element of a list is.
#[derive(Debug)]
pub(super) enum Item {
    Value(FieldType),
    List(Box<Item>),
    Record(Shape),
    /// A record of one nullable value, which is there without the record too.
    Nullable(Shape),
}

impl Shape {
    /// The shape of a format's records, and how many words its set of members has.
    pub(super) fn of(format: &Format) -> (Shape, usize) {
        let mut words = 0;
        let shape = Self::of_members(format, format.tree(), 0, &mut words);
        (shape, words)
    }

    fn of_members(format: &Format, members: &[Member], path: usize, words: &mut usize) -> Shape {
        let seen = *words..*words + members.len().div_ceil(64);
        *words = seen.end;
        let mut entries = Vec::with_capacity(members.len());
        for member in members {
            match member {
                Member::Leaf(index) => {
                    let Some(field) = format.fields().get(*index) else { continue };
                    let name = field.name.get(path..).unwrap_or(&field.name).to_owned();
                    let what = match field.element() {
                        Some(element) => What::List(*index, Item::of(element, words)),
                        None => What::Value(*index, field.ty),
                    };
                    entries.push(Entry { name, what });
                }
                Member::Group(group) => {
                    let inner = Self::of_members(format, &group.members, group.path.len() + 1, words);
                    entries.push(Entry { name: group.name.clone(), what: What::Group(group.clone(), inner) });
                }
            }
        }
        let by_name = entries.iter().enumerate().map(|(index, entry)| (entry.name.clone(), index)).collect();
        Shape { entries, by_name, seen }
    }

    /// Which member a name is. Most objects have their members in the format's order: that one is looked at first.
    #[inline]
    pub(super) fn entry(&self, name: &str, likely: usize) -> Option<usize> {
        match self.entries.get(likely) {
            Some(entry) if entry.name == name => Some(likely),
            _ => self.by_name.get(name).copied(),
        }
    }
}

impl Item {
    fn of(element: &Element, words: &mut usize) -> Item {
        let format = element.format();
        if element.is_record {
            let shape = Shape::of_members(format, format.tree(), 0, words);
            return if element.is_nullable_value() { Item::Nullable(shape) } else { Item::Record(shape) };
        }
        let value: Option<&Field> = format.fields().first();
        match value.and_then(Field::element) {
            Some(inner) => Item::List(Box::new(Item::of(inner, words))),
            None => Item::Value(value.map_or(FieldType::Bytes, |field| field.ty)),
        }
    }
}
