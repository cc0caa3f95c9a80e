//! How one record, or one element of a list, is made from another: where its fields come from, which of its nested records
//! are there, and what becomes of lists, whose elements are made in the same way.

use super::path::{Path, Source};
use super::value::{Constant, NullRule};
use crate::element::{Count, Group, Member};
use crate::format::Format;
use crate::record::Record;

/// How records of one layout are made from those of another.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) from: Format,
    pub(super) to: Format,
    /// Where each field of `to` comes from.
    pub(super) sources: Vec<Source>,
    /// Which of the nested records of `to` that may be null are there, by their index.
    pub(super) groups: Vec<Presence>,
    /// The unions of `to`, each behind those that lie in it.
    pub(super) unions: Vec<UnionFrom>,
    /// Paths to fields that were left out on the way, followed for what they refuse.
    pub(super) checks: Vec<Path>,
    /// How the fields lie in nested records, on either side.
    pub(super) nesting: (Nesting, Nesting),
}

/// When a nested record of the target is there, unless one that it lies in is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    /// It always is.
    Always,
    /// It never is.
    Never,
    /// It is where the source's nested record of this index is.
    Group(usize),
    /// It is where one of these fields of the source is not null.
    Fields(Vec<usize>),
}

impl Presence {
    pub(super) fn is_there(&self, record: &Record<'_>) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Group(group) => !record.optional_is_null(*group),
            Self::Fields(fields) => fields.iter().any(|field| !record.is_null(*field)),
        }
    }
}

/// Where the variants of a union come from, beside what their own presence says.
#[derive(Clone, Debug)]
pub(super) struct UnionFrom {
    /// Variants of the source's union that nothing is made from: a record that has one is refused.
    pub(super) lost: Vec<Presence>,
    /// Whether there may be none of the target's variants, or two.
    pub(super) may_refuse: bool,
}

/// A list of the source, and what becomes of it.
#[derive(Clone, Debug)]
pub(super) struct ListPath {
    /// Index of the field.
    pub(super) from: usize,
    /// Whether it can be null.
    pub(super) nullable: bool,
    pub(super) null: NullRule,
    /// How many elements there are, on either side.
    pub(super) counts: (Count, Count),
    /// The body for an element.
    pub(super) body: Body,
    /// Whether elements are records on both sides, not single values.
    pub(super) is_record: bool,
}

impl ListPath {
    pub(super) fn may_refuse(&self) -> bool {
        self.counts_differ() || (self.nullable && self.null == NullRule::Refuse) || self.body.may_refuse()
    }

    /// Whether a list may have another number of elements than the target has.
    fn counts_differ(&self) -> bool {
        self.counts.1 != Count::Slot && self.counts.0 != self.counts.1
    }

    /// This and then what becomes of the list that it makes.
    fn then(&self, next: &ListPath) -> Option<ListPath> {
        let null = match (&self.null, &next.null) {
            (NullRule::Keep, next) => next.clone(),
            (NullRule::Refuse, _) => NullRule::Refuse,
            (NullRule::Default(_), _) => match next.counts.1 {
                Count::Slot => NullRule::Default(Constant::NoElements),
                Count::Fixed(_) => NullRule::Refuse,
            },
        };
        // A count on the way is refused where it is another.
        if self.counts_differ() && next.counts.1 == Count::Slot {
            return None;
        }
        let body = self.body.then(&next.body)?;
        Some(ListPath { null, counts: (self.counts.0, next.counts.1), body, ..self.clone() })
    }
}

impl Body {
    /// Every field as it is.
    pub(super) fn same(format: &Format) -> Body {
        let nesting = Nesting::of(format);
        let sources = format.fields().iter().enumerate().map(|(index, field)| match field.element() {
            None => Source::Field(Path::same(index, field)),
            Some(element) => Source::List(Box::new(ListPath {
                from: index,
                nullable: field.nullable,
                null: NullRule::Keep,
                counts: (element.count, element.count),
                body: Body::same(&element.format),
                is_record: element.is_record,
            })),
        });
        Body {
            from: format.clone(),
            to: format.clone(),
            sources: sources.collect(),
            groups: (0..nesting.groups.len()).map(Presence::Group).collect(),
            unions: vec![UnionFrom { lost: Vec::new(), may_refuse: false }; nesting.unions],
            checks: Vec::new(),
            nesting: (nesting.clone(), nesting),
        }
    }

    pub(super) fn may_refuse(&self) -> bool {
        self.sources.iter().any(Source::may_refuse)
            || self.unions.iter().any(|union| union.may_refuse || !union.lost.is_empty())
            || self.checks.iter().any(Path::may_refuse)
    }

    /// Whether a field of the source is null wherever a nested record that the target's field lies in is not there.
    pub(super) fn follows(&self, to: usize, from: usize) -> bool {
        self.follows_out(self.nesting.1.innermost(to), self.nesting.0.innermost(from))
    }

    /// The same of nested records: the innermost ones of either side.
    pub(super) fn follows_out(&self, to: Option<usize>, from: Option<usize>) -> bool {
        self.nesting.1.chain(to).all(|group| match self.groups.get(group) {
            Some(Presence::Always) => true,
            Some(Presence::Group(there)) => self.nesting.0.chain(from).any(|group| group == *there),
            _ => false,
        })
    }

    /// Whether a nested record of the target, and those that it lies in, are always there.
    pub(super) fn is_sure(&self, to: Option<usize>) -> bool {
        self.nesting.1.chain(to).all(|group| self.groups.get(group) == Some(&Presence::Always))
    }

    /// Whether the nested records that a field of the source lies in are there wherever those are that the target's field
    /// lies in.
    pub(super) fn leads(&self, to: usize, from: usize) -> bool {
        self.leads_out(self.nesting.1.innermost(to), self.nesting.0.innermost(from))
    }

    /// The same of nested records: the innermost ones of either side.
    pub(super) fn leads_out(&self, to: Option<usize>, from: Option<usize>) -> bool {
        let Some(innermost) = from else { return true };
        self.nesting.1.chain(to).any(|group| match self.groups.get(group) {
            Some(Presence::Group(there)) => self.nesting.0.out_of(*there).any(|group| group == innermost),
            _ => false,
        })
    }

    /// Whether a nested record that the target's field lies in is not there.
    pub(super) fn is_absent(&self, to: usize, record: &Record<'_>) -> bool {
        let is_there = |group: usize| self.groups.get(group).is_none_or(|presence| presence.is_there(record));
        !self.nesting.1.around(to).all(is_there)
    }

    /// This and then the next one, as one; `None` if that is not possible, or refuses every record.
    pub(super) fn then(&self, next: &Body) -> Option<Body> {
        // A refusal of a union is seen only once its variants are made.
        if self.unions.iter().any(|union| union.may_refuse || !union.lost.is_empty()) {
            return None;
        }
        let mut used = vec![false; self.sources.len()];
        let mut sources = Vec::with_capacity(next.sources.len());
        for (to, source) in next.sources.iter().enumerate() {
            sources.push(match source {
                Source::Null | Source::Constant(_) => source.clone(),
                Source::Field(path) => {
                    *used.get_mut(path.from)? = true;
                    self.fused(next, to, path.from)?.then(path)?
                }
                Source::List(list) => {
                    *used.get_mut(list.from)? = true;
                    self.list_then(next, to, list)?
                }
            });
        }
        let mut checks = self.checks.clone();
        for path in &next.checks {
            *used.get_mut(path.from)? = true;
            if self.nesting.1.innermost(path.from).is_some() {
                return None;
            }
            if let Source::Field(path) = self.sources.get(path.from)?.then(path)? {
                checks.push(path);
            }
        }
        for (between, (source, used)) in self.sources.iter().zip(used).enumerate() {
            match source {
                _ if used || !source.may_refuse() => {}
                // In a nested record that may not be there, what refuses null looks at that first.
                Source::Field(path) if self.nesting.1.innermost(between).is_none() => checks.push(path.clone()),
                _ => return None,
            }
        }
        let groups = next.groups.iter().map(|presence| self.presence(presence)).collect::<Option<_>>()?;
        let unions = next.unions.iter().map(|union| {
            let lost = union.lost.iter().map(|variant| self.presence(variant)).collect::<Option<_>>()?;
            Some(UnionFrom { lost, may_refuse: union.may_refuse })
        });
        Some(Body {
            from: self.from.clone(),
            to: next.to.clone(),
            sources,
            groups,
            unions: unions.collect::<Option<_>>()?,
            checks,
            nesting: (self.nesting.0.clone(), next.nesting.1.clone()),
        })
    }

    /// Where the field that `next` makes another from comes from, if the way on is the same with what lies between left out.
    fn fused(&self, next: &Body, to: usize, between: usize) -> Option<&Source> {
        let source = self.sources.get(between)?;
        let (is_loose, refuses) = match source {
            Source::Null => (false, false),
            Source::Constant(_) => (!self.is_sure(self.nesting.1.innermost(between)), false),
            Source::Field(path) => {
                (!self.follows(between, path.from), path.may_refuse() || path.null != NullRule::Keep)
            }
            Source::List(list) => (!self.follows(between, list.from), list.may_refuse() || list.null != NullRule::Keep),
        };
        // It is null where a nested record on the way is not there, whatever the source has.
        if is_loose {
            return None;
        }
        // A refusal on the way is made where the target's nested records are there, so these are to be the same.
        let same_place = next.follows(to, between) && next.leads(to, between);
        (same_place || !refuses).then_some(source)
    }

    fn list_then(&self, next: &Body, to: usize, list: &ListPath) -> Option<Source> {
        Some(match self.fused(next, to, list.from)? {
            Source::List(first) => Source::List(Box::new(first.then(list)?)),
            Source::Null => match &list.null {
                NullRule::Keep => Source::Null,
                NullRule::Default(constant) => Source::Constant(constant.clone()),
                NullRule::Refuse => return None,
            },
            Source::Constant(_) if list.counts.1 == Count::Slot => Source::Constant(Constant::NoElements),
            Source::Constant(_) | Source::Field(_) => return None,
        })
    }

    /// The presence condition `next` of the record in between, in terms of the source.
    fn presence(&self, next: &Presence) -> Option<Presence> {
        match next {
            Presence::Always | Presence::Never => Some(next.clone()),
            // Those that it lies in must say no more than it does.
            Presence::Group(group) => {
                let presence = self.groups.get(*group)?;
                let outer = self.nesting.1.out_of(*group).nth(1);
                let is_sure = match presence {
                    Presence::Never => true,
                    Presence::Group(own) => self.follows_out(outer, Some(*own)),
                    _ => self.is_sure(outer),
                };
                is_sure.then(|| presence.clone())
            }
            Presence::Fields(fields) => {
                let mut sources = Vec::new();
                for field in fields {
                    if self.nesting.1.innermost(*field).is_some() {
                        return None;
                    }
                    match self.sources.get(*field)? {
                        Source::Null => {}
                        Source::Constant(_) => return Some(Presence::Always),
                        Source::Field(path) if path.null == NullRule::Keep => sources.push(path.from),
                        Source::List(list) if list.null == NullRule::Keep => sources.push(list.from),
                        Source::Field(_) | Source::List(_) => return Some(Presence::Always),
                    }
                }
                Some(if sources.is_empty() { Presence::Never } else { Presence::Fields(sources) })
            }
        }
    }
}

/// How fields lie in nested records that may be null.
#[derive(Clone, Debug, Default)]
pub(super) struct Nesting {
    /// For each field, the innermost of them.
    pub(super) fields: Vec<Option<usize>>,
    /// For each of them, the one that it lies in.
    pub(super) groups: Vec<Option<usize>>,
    /// How many unions there are.
    pub(super) unions: usize,
}

impl Nesting {
    pub(super) fn of(format: &Format) -> Nesting {
        let mut nesting = Nesting { fields: vec![None; format.fields().len()], ..Nesting::default() };
        nesting.add(format.tree(), None);
        nesting
    }

    fn add(&mut self, members: &[Member], outer: Option<usize>) {
        for member in members {
            match member {
                Member::Leaf(field) => {
                    if let Some(within) = self.fields.get_mut(*field) {
                        *within = outer;
                    }
                }
                Member::Group(group) => self.add_group(group, outer),
            }
        }
    }

    fn add_group(&mut self, group: &Group, outer: Option<usize>) {
        if let Some(optional) = group.optional {
            if self.groups.len() <= optional {
                self.groups.resize(optional + 1, None);
            }
            if let Some(around) = self.groups.get_mut(optional) {
                *around = outer;
            }
        }
        self.add(&group.members, group.optional.or(outer));
        self.unions += usize::from(group.union.is_some());
    }

    /// The nested records that may be null around a field, from the innermost on.
    pub(super) fn around(&self, field: usize) -> impl Iterator<Item = usize> + '_ {
        self.chain(self.innermost(field))
    }

    /// The innermost of them.
    pub(super) fn innermost(&self, field: usize) -> Option<usize> {
        self.fields.get(field).copied().flatten()
    }

    /// One of them, and those that it lies in.
    pub(super) fn out_of(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        self.chain(Some(group))
    }

    /// The first field in one of them, at any depth.
    pub(super) fn first_field(&self, group: usize) -> Option<usize> {
        (0..self.fields.len()).find(|field| self.around(*field).any(|around| around == group))
    }

    pub(super) fn chain(&self, first: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(first, |group| self.groups.get(*group).copied().flatten())
    }
}
