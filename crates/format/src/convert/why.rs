//! Why a record is refused: the same conversion once more, value by value, up to the first that is.

use super::body::{Body, ListPath};
use super::error::{ConvertError, ConvertProblem, RefusedPart};
use super::path::Source;
use super::value::NullRule;
use crate::element::{Count, Group, Member};
use crate::record::{Record, Value};

impl Body {
    /// The refused part, and why; `None` if nothing is.
    pub(super) fn flaw(&self, record: &Record<'_>) -> Option<ConvertError> {
        for (field, source) in self.sources.iter().enumerate() {
            let problem = match source {
                Source::Null | Source::Constant(_) => continue,
                _ if self.is_absent(field, record) => continue,
                Source::Field(path) => path.eval(record).err(),
                Source::List(list) => match list.flaw(record) {
                    None => None,
                    Some(Flaw::Own(problem)) => Some(problem),
                    Some(Flaw::Element(index, error)) => {
                        let name = self.to.fields().get(field).map_or("", |field| &field.name);
                        return Some(error.within(name, index, list.is_record));
                    }
                },
            };
            if let Some(problem) = problem {
                return Some(ConvertError::new(&self.to, RefusedPart::Field(field), problem));
            }
        }
        for path in &self.checks {
            if let Err(problem) = path.eval(record) {
                return Some(ConvertError::new(&self.from, RefusedPart::Field(path.from), problem));
            }
        }
        self.union_flaw(self.to.tree(), record, &mut 0)
    }

    /// The first union that has not one variant; `union` counts those that were looked at.
    fn union_flaw(&self, members: &[Member], record: &Record<'_>, union: &mut usize) -> Option<ConvertError> {
        for member in members {
            let Member::Group(group) = member else { continue };
            if let Some(error) = self.union_flaw(&group.members, record, union) {
                return Some(error);
            }
            if group.union.is_none() {
                continue;
            }
            if let Some(problem) = self.variants_flaw(group, *union, record) {
                return Some(ConvertError::new(&self.to, RefusedPart::Union(*union), problem));
            }
            *union += 1;
        }
        None
    }

    fn variants_flaw(&self, group: &Group, union: usize, record: &Record<'_>) -> Option<ConvertProblem> {
        let found = group.members.iter().filter(|variant| match variant {
            Member::Leaf(field) => !self.is_absent(*field, record) && self.has_value(*field, record),
            Member::Group(variant) => variant.optional.is_some_and(|optional| self.is_there(optional, record)),
        });
        let found = found.count();
        let outer = group.members.iter().find_map(|variant| match variant {
            Member::Leaf(field) => self.nesting.1.innermost(*field),
            Member::Group(variant) => variant.optional.and_then(|optional| self.nesting.1.out_of(optional).nth(1)),
        });
        let is_null = outer.is_some_and(|outer| !self.is_there(outer, record));
        let lost = self.unions.get(union).is_some_and(|union| union.lost.iter().any(|lost| lost.is_there(record)));
        match found {
            2.. => Some(ConvertProblem::Variants { found }),
            _ if is_null => None,
            _ if lost => Some(ConvertProblem::UnknownVariant),
            0 if !group.nullable => Some(ConvertProblem::Variants { found }),
            _ => None,
        }
    }

    /// Whether a nested record and those that it lies in are there.
    fn is_there(&self, group: usize, record: &Record<'_>) -> bool {
        let mut around = self.nesting.1.out_of(group);
        around.all(|group| self.groups.get(group).is_none_or(|presence| presence.is_there(record)))
    }

    fn has_value(&self, field: usize, record: &Record<'_>) -> bool {
        match self.sources.get(field) {
            None | Some(Source::Null) => false,
            Some(Source::Constant(_)) => true,
            Some(Source::Field(path)) => !matches!(path.eval(record), Ok(Value::Null)),
            Some(Source::List(list)) => list.null != NullRule::Keep || !record.is_null(list.from),
        }
    }
}

/// The error of a list, or with one of its elements.
enum Flaw {
    Own(ConvertProblem),
    Element(usize, ConvertError),
}

impl ListPath {
    fn flaw(&self, record: &Record<'_>) -> Option<Flaw> {
        let list = match (record.get(self.from), &self.null) {
            (Value::List(list), _) => list,
            (Value::Null, NullRule::Keep | NullRule::Default(_)) => return None,
            _ => return Some(Flaw::Own(ConvertProblem::Null)),
        };
        let found = list.iter().len();
        if let Count::Fixed(expected) = self.counts.1
            && expected as usize != found
        {
            return Some(Flaw::Own(ConvertProblem::ListCount { found, expected }));
        }
        (0..found).find_map(|index| {
            let error = self.body.flaw(&list.record(index)?)?;
            Some(Flaw::Element(index, error))
        })
    }
}
