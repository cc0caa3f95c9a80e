//! Plans for less: of what others make, only what is read later, from records that have no more than that.

use std::ops::Range;

use super::Plan;
use super::body::{Body, Nesting, Presence};
use super::path::{Path, Source};
use crate::element::{Group, Member};
use crate::format::Format;

impl Plan {
    /// The fields of the source that each field of the target is made of, by their indices, and whether some record is
    /// refused there. Of a nested record whose being there counts, a field is named. After these, the same for fields
    /// that were left out on the way and are followed for what they refuse.
    #[must_use]
    pub fn dependencies(&self) -> Vec<(Vec<usize>, bool)> {
        let body = &self.inner.body;
        let mut dependencies: Vec<(Vec<usize>, bool)> = Vec::with_capacity(body.sources.len());
        for (field, source) in body.sources.iter().enumerate() {
            let mut reads = match source {
                Source::Null | Source::Constant(_) => Vec::new(),
                Source::Field(Path { from, .. }) => vec![*from],
                Source::List(list) => vec![list.from],
            };
            let around = body.nesting.1.around(field).filter_map(|group| body.groups.get(group));
            around.for_each(|presence| body.add_reads(presence, &mut reads));
            dependencies.push((reads, source.may_refuse()));
        }
        for (union, fields) in body.unions.iter().zip(unions(body.to.tree())) {
            for (reads, may_refuse) in dependencies.get_mut(fields).unwrap_or_default() {
                union.lost.iter().for_each(|variant| body.add_reads(variant, reads));
                *may_refuse |= union.may_refuse || !union.lost.is_empty();
            }
        }
        dependencies.extend(body.checks.iter().map(|path| (vec![path.from], true)));
        dependencies
    }

    /// The same plan over records of a format that has the fields it then reads, by name and type, wherever they are;
    /// making only some of its fields: a flag a field, of nested records all fields or none. A field that is not made and
    /// may refuse a record still does. `None` if a field that it reads is not there, if none is to be made, or if what is
    /// left out could not be followed for what it refuses: what lies in nested records, and lists.
    #[must_use]
    pub fn narrowed(&self, from: &Format, makes: &[bool]) -> Option<Plan> {
        let body = &self.inner.body;
        // Fields of a foreign layout describe one another.
        if self.inner.foreign.is_some() && makes.contains(&false) {
            return None;
        }
        let to = body.to.narrowed(makes)?;
        let mut is_made = vec![false; body.to.tree().len()];
        let members = body.to.members();
        for (member, _) in members.iter().zip(makes).filter(|(_, makes)| **makes) {
            *is_made.get_mut(*member)? = true;
        }
        let is_made = |field: usize| members.get(field).is_some_and(|member| is_made.get(*member) == Some(&true));
        let other = Other { own: body, from };
        let (mut sources, mut checks) = (Vec::new(), Vec::new());
        for (field, source) in body.sources.iter().enumerate() {
            match source {
                source if is_made(field) => sources.push(other.source(source)?),
                source if !source.may_refuse() => {}
                Source::Field(path) if body.nesting.1.innermost(field).is_none() => checks.push(other.path(path)?),
                _ => return None,
            }
        }
        for path in &body.checks {
            checks.push(other.path(path)?);
        }
        // Nested records and unions are numbered in the order of what is in them, and some of that is gone.
        let fields = (0..body.groups.len()).map(|group| body.nesting.1.first_field(group));
        let groups = body.groups.iter().zip(fields).filter(|(_, field)| field.is_some_and(is_made));
        let mut own_unions = Vec::new();
        for (union, fields) in body.unions.iter().zip(unions(body.to.tree())) {
            let refuses = union.may_refuse || !union.lost.is_empty();
            match is_made(fields.start) {
                true => {
                    let mut union = union.clone();
                    union.lost = union.lost.iter().map(|variant| other.presence(variant)).collect::<Option<_>>()?;
                    own_unions.push(union);
                }
                false if refuses => return None,
                false => {}
            }
        }
        let groups = groups.map(|(presence, _)| other.presence(presence)).collect::<Option<_>>()?;
        let nesting = (Nesting::of(from), Nesting::of(&to));
        let from = from.clone();
        let body = Body { from, to, sources, groups, unions: own_unions, checks, nesting };
        Some(Plan::of(body, self.inner.foreign.as_ref()))
    }
}

impl Body {
    /// Fields of the source that say whether a nested record is there.
    fn add_reads(&self, presence: &Presence, reads: &mut Vec<usize>) {
        match presence {
            Presence::Always | Presence::Never => {}
            Presence::Group(group) => reads.extend(self.nesting.0.first_field(*group)),
            Presence::Fields(fields) => reads.extend(fields),
        }
    }
}

/// A source that has what is read of another, wherever it is.
struct Other<'a> {
    own: &'a Body,
    from: &'a Format,
}

impl Other<'_> {
    fn field(&self, index: usize) -> Option<usize> {
        let field = self.own.from.fields().get(index)?;
        let at = self.from.field(&field.name)?;
        (self.from.fields().get(at)?.spec() == field.spec()).then_some(at)
    }

    fn path(&self, path: &Path) -> Option<Path> {
        Some(Path { from: self.field(path.from)?, ..path.clone() })
    }

    fn source(&self, source: &Source) -> Option<Source> {
        Some(match source {
            Source::Null | Source::Constant(_) => source.clone(),
            Source::Field(path) => Source::Field(self.path(path)?),
            Source::List(list) => {
                let mut list = list.clone();
                list.from = self.field(list.from)?;
                Source::List(list)
            }
        })
    }

    fn presence(&self, presence: &Presence) -> Option<Presence> {
        Some(match presence {
            Presence::Always | Presence::Never => presence.clone(),
            Presence::Group(group) => {
                let path = &nth_group(self.own.from.tree(), *group)?.path;
                Presence::Group(self.from.group(path)?.optional?)
            }
            Presence::Fields(fields) => {
                Presence::Fields(fields.iter().map(|field| self.field(*field)).collect::<Option<_>>()?)
            }
        })
    }
}

/// The nested record of this index among those that may be null.
fn nth_group(members: &[Member], index: usize) -> Option<&Group> {
    members.iter().find_map(|member| match member {
        Member::Group(group) if group.optional == Some(index) => Some(group),
        Member::Group(group) => nth_group(&group.members, index),
        Member::Leaf(_) => None,
    })
}

/// The fields of each union, one behind those that lie in it.
fn unions(members: &[Member]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for member in members {
        if let Member::Group(group) = member {
            found.extend(unions(&group.members));
            found.extend(group.union.map(|_| group.leaves.clone()));
        }
    }
    found
}
