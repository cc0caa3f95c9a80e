//! From two formats and rules to where each field comes from.

mod rules_by_path;

use super::body::{Body, ListPath, Nesting, Presence, UnionFrom};
use super::error::{PlanFlaw, PlanProblem, TypeProblem};
use super::path::{Path, Source};
use super::rules::{Rules, TimeUnit};
use super::value::{Constant, Hop, NullRule, allowed};
use crate::builder::RecordBuilder;
use crate::element::{Count, Element, Group, Member};
use crate::field::{Evolution, Field, FieldSpec, FieldType};
use crate::format::{Format, Specs};
use crate::record::Record;
use crate::text::{self, Rounding};
use rules_by_path::{RulesByPath, holds, stale};

/// Where each field of `to` comes from, as far as it can be had, and what is in the way. For a foreign target, the body is
/// that of its natural format, unless it is the source as well.
pub(super) fn body(from: &Format, to: &Format, rules: &Rules) -> (Body, Vec<PlanFlaw>) {
    if from == to && rules.rules().is_empty() {
        return (Body::same(to), Vec::new());
    }
    let mut names = Names { from, rules: RulesByPath::of(rules), flaws: Vec::new() };
    let body = names.body(&Pair { laid: to, ..Pair::of(from, to.natural_format(), "", "", true) });
    names.flaws.extend(rules.rules().iter().filter_map(|rule| stale(rule, from, to)));
    (body, names.flaws)
}

/// Finds fields by their names, at any depth.
struct Names<'a> {
    /// The format of the whole records.
    from: &'a Format,
    rules: RulesByPath<'a>,
    flaws: Vec<PlanFlaw>,
}

/// Two layouts, one made from the other: those of records, or of the elements of two lists.
struct Pair<'a> {
    from: &'a Format,
    to: &'a Format,
    /// The final layout: the target itself, or the foreign layout whose natural format it is.
    laid: &'a Format,
    /// The path of each: empty for a record, `legs[]` for the elements of `legs`.
    from_path: &'a str,
    to_path: &'a str,
    /// Whether these are records, not single values.
    is_record: bool,
    nesting: (Nesting, Nesting),
}

/// The members found under the names of a layout.
#[derive(Default)]
struct Found<'a> {
    fields: Vec<FoundField>,
    groups: Vec<FoundGroup<'a>>,
    unions: Vec<FoundGroup<'a>>,
}

/// The source of a field of the target.
#[derive(Clone, Default)]
struct FoundField {
    /// The path that it has, or would have, in the source.
    path: Option<String>,
    /// Whether a rule says so.
    is_from_rule: bool,
    index: Option<usize>,
}

/// A nested record or union of the target.
struct FoundGroup<'a> {
    group: &'a Group,
    /// The innermost nested record that it lies in and that may be null.
    outer: Option<usize>,
    /// Its source, and the innermost nested record that may be null of this and those that it lies in.
    source: Option<(&'a Group, Option<usize>)>,
}

impl<'a> Pair<'a> {
    fn of(from: &'a Format, to: &'a Format, from_path: &'a str, to_path: &'a str, is_record: bool) -> Pair<'a> {
        let nesting = (Nesting::of(from), Nesting::of(to));
        Pair { from, to, laid: to, from_path, to_path, is_record, nesting }
    }

    /// The whole path of a field or nested record of the target.
    fn whole(&self, name: &str) -> String {
        match self.is_record {
            true => join(self.to_path, name),
            false => self.to_path.to_owned(),
        }
    }

    /// The name of a path in the source's layout; `None` if it leads elsewhere.
    fn relative<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.from_path {
            "" => Some(path),
            from if self.is_record => path.strip_prefix(from)?.strip_prefix('.'),
            from => (path == from).then_some(VALUE),
        }
    }

    fn find_field(&self, path: &str) -> Option<usize> {
        self.from.field(self.relative(path)?)
    }

    fn find_group(&self, path: &str) -> Option<(&'a Group, Option<usize>)> {
        find_group(self.from.tree(), self.relative(path)?, None)
    }

    /// The kind of the source's member at a path, in a word or two.
    fn kind(&self, path: &str) -> Option<&'static str> {
        match (self.find_field(path), self.find_group(path)) {
            (Some(field), _) => Some(field_kind(&self.from.fields()[field])),
            (None, Some((group, _))) => Some(group_kind(group)),
            (None, None) => None,
        }
    }
}

/// The name of the single value of an element in a list's layout.
const VALUE: &str = "element";

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn find_group<'a>(members: &'a [Member], path: &str, outer: Option<usize>) -> Option<(&'a Group, Option<usize>)> {
    members.iter().find_map(|member| {
        let Member::Group(group) = member else { return None };
        let innermost = group.optional.or(outer);
        if group.path == path { Some((group, innermost)) } else { find_group(&group.members, path, innermost) }
    })
}

fn field_kind(field: &Field) -> &'static str {
    match field.element() {
        Some(element) if element.is_record => "a list of records",
        Some(_) => "a list of values",
        None => "a single value",
    }
}

fn group_kind(group: &Group) -> &'static str {
    if group.union.is_some() { "a union" } else { "a nested record" }
}

/// Whether a field that lies in nested records which are there may still be null.
fn is_null_itself(format: &Format, field: usize) -> bool {
    let layout = format.layout();
    match &layout.foreign {
        None => layout.cells.get(field).is_some_and(|cell| cell.null_mask != 0 && !cell.is_shared()),
        Some(foreign) => foreign.puts.get(field).is_some_and(|put| put.is_nullable(Specs::Declared)),
    }
}

impl<'a> Names<'a> {
    fn flaw(&mut self, field: &str, problem: PlanProblem) {
        self.flaws.push(PlanFlaw { field: field.to_owned(), problem });
    }

    fn body(&mut self, pair: &Pair<'a>) -> Body {
        let mut found = Found { fields: vec![FoundField::default(); pair.to.fields().len()], ..Found::default() };
        for member in pair.to.tree() {
            self.look_up(pair, member, Some(pair.from_path), 0, None, &mut found);
        }
        let mut groups = vec![Presence::Always; pair.nesting.1.groups.len()];
        for group in &found.groups {
            if let Some(place) = group.group.optional.and_then(|optional| groups.get_mut(optional)) {
                *place = self.presence(pair, &found, group);
            }
        }
        let mut body = Body {
            from: pair.from.clone(),
            to: pair.to.clone(),
            sources: Vec::with_capacity(found.fields.len()),
            groups,
            unions: Vec::new(),
            checks: Vec::new(),
            nesting: pair.nesting.clone(),
        };
        for field in 0..found.fields.len() {
            let source = match body.nesting.1.around(field).any(|group| body.groups[group] == Presence::Never) {
                true => Ok(Source::Null),
                false => self.field(pair, &body, &found, field),
            };
            body.sources.push(source.unwrap_or_else(|problem| {
                self.flaw(&pair.whole(&pair.to.fields()[field].name), problem);
                Source::Null
            }));
        }
        for union in &found.unions {
            let from = self.union(pair, &body, &found, union);
            body.unions.push(from);
        }
        body
    }

    /// The members of the source for the fields, nested records and unions of the target have in the source, by their
    /// names and by rules. A member's own name is behind the first `skip` bytes of its whole one.
    fn look_up(
        &mut self,
        pair: &Pair<'a>,
        member: &'a Member,
        parent: Option<&str>,
        skip: usize,
        outer: Option<usize>,
        found: &mut Found<'a>,
    ) {
        let is_group = |path: &str| pair.find_group(path).is_some();
        match member {
            Member::Leaf(index) => {
                let name = pair.to.fields()[*index].name.as_str();
                let own = name.get(skip..).unwrap_or(name);
                let (path, is_from_rule) = match pair.is_record {
                    true => self.rules.source(&pair.whole(name), parent, own, is_group),
                    false => (Some(pair.from_path.to_owned()), false),
                };
                let index_found = path.as_deref().and_then(|path| pair.find_field(path));
                let evolution = pair.to.fields()[*index].evolution.as_deref();
                let by_alias = match index_found {
                    None if pair.is_record && !is_from_rule => {
                        self.by_alias(evolution, parent, is_group, |path| pair.find_field(path))
                    }
                    _ => None,
                };
                found.fields[*index] = match by_alias {
                    Some((path, index)) => FoundField { path: Some(path), is_from_rule, index: Some(index) },
                    None => FoundField { path, is_from_rule, index: index_found },
                };
            }
            Member::Group(group) => {
                let whole = pair.whole(&group.path);
                let (mut path, is_from_rule) = self.rules.source(&whole, parent, &group.name, is_group);
                let mut source = path.as_deref().and_then(|path| pair.find_group(path));
                if source.is_none() && !is_from_rule {
                    let evolution = group.evolution.as_deref();
                    let by_alias = self.by_alias(evolution, parent, is_group, |path| pair.find_group(path));
                    if let Some((found, group)) = by_alias {
                        (path, source) = (Some(found), Some(group));
                    }
                }
                let is_other = source.is_some_and(|(source, _)| source.union.is_some() != group.union.is_some());
                let kind = path.as_deref().and_then(|path| pair.kind(path)).filter(|_| is_other || source.is_none());
                if let Some(from) = kind {
                    self.flaw(&whole, PlanProblem::Kind { from, to: group_kind(group) });
                }
                let this = || FoundGroup { group, outer, source };
                if group.union.is_none() {
                    found.groups.push(this());
                }
                for member in &group.members {
                    let (skip, outer) = (group.path.len() + 1, group.optional.or(outer));
                    self.look_up(pair, member, path.as_deref(), skip, outer, found);
                }
                if group.union.is_some() {
                    found.unions.push(this());
                }
            }
        }
    }

    /// The source's member under the first alias of a member of the target that it has anything for, and its path there.
    fn by_alias<T>(
        &self,
        evolution: Option<&Evolution>,
        parent: Option<&str>,
        is_group: impl Fn(&str) -> bool + Copy,
        find: impl Fn(&str) -> Option<T>,
    ) -> Option<(String, T)> {
        let mut aliases = evolution?.aliases.iter();
        aliases.find_map(|alias| {
            let path = self.rules.source("", parent, alias, is_group).0?;
            find(&path).map(|found| (path, found))
        })
    }

    /// When a nested record of the target is there. One that the source does not have is where any of the fields that it
    /// is made from is not null, and always where a rule gives one of its fields a default.
    fn presence(&self, pair: &Pair<'_>, found: &Found<'_>, group: &FoundGroup<'_>) -> Presence {
        if let Some((_, innermost)) = group.source {
            return innermost.map_or(Presence::Always, Presence::Group);
        }
        let mut fields = Vec::new();
        for field in group.group.leaves.clone() {
            if self.rules.default(&pair.whole(&pair.to.fields()[field].name)).is_some() {
                return Presence::Always;
            }
            fields.extend(found.fields[field].index);
        }
        let never_null = |field: &usize| !pair.from.fields()[*field].nullable;
        match fields.is_empty() {
            true => Presence::Never,
            false if fields.iter().any(never_null) => Presence::Always,
            false => Presence::Fields(fields),
        }
    }

    /// Where a field comes from.
    fn field(&mut self, pair: &Pair<'a>, body: &Body, found: &Found<'a>, index: usize) -> Result<Source, PlanProblem> {
        let (field, found) = (&pair.to.fields()[index], &found.fields[index]);
        let whole = pair.whole(&field.name);
        let own_null = is_null_itself(pair.to, index);
        let default = self.rules.default(&whole).or_else(|| field.default_text());
        let default = default.map(|text| constant(field, text)).transpose()?;
        // How long a record is, and how many elements a list has, is worked out anew.
        let determines_size = pair.laid.layout().foreign.as_ref().is_some_and(|foreign| foreign.determines_size(index));
        let Some(from) = found.index.filter(|_| found.is_from_rule || !determines_size) else {
            let path = found.path.as_deref().filter(|_| found.index.is_none());
            if let Some(from) = path.and_then(|path| pair.kind(path)) {
                return Err(PlanProblem::Kind { from, to: field_kind(field) });
            }
            if let Some(path) = path.filter(|path| found.is_from_rule && holds(self.from, path, false)) {
                return Err(PlanProblem::Elsewhere { from: path.to_owned() });
            }
            return match default {
                Some(constant) => Ok(Source::Constant(constant)),
                None if own_null => Ok(Source::Null),
                None => Err(PlanProblem::Missing { field: whole }),
            };
        };
        let source = &pair.from.fields()[from];
        let unit = self.rules.unit(&whole);
        let is_sure = !is_null_itself(pair.from, from) && body.leads(index, from);
        let null = match default {
            _ if own_null || is_sure => NullRule::Keep,
            Some(constant) => NullRule::Default(constant),
            None => NullRule::Refuse,
        };
        match (source.element(), field.element()) {
            (None, None) => scalar(from, source, field, unit, null, &whole).map(Source::Field),
            (Some(_), Some(_)) if unit.is_some() => Err(PlanProblem::UselessUnit { from: source.ty, to: field.ty }),
            (Some(of), Some(to)) if of.is_record == to.is_record => {
                let paths = (format!("{}[]", found.path.as_deref().unwrap_or_default()), format!("{whole}[]"));
                let laid = pair.laid.fields()[index].element().map_or(&to.format, |element| &element.format);
                let (counts, body) = self.elements(of, (to, laid), (&paths.0, &paths.1))?;
                let is_record = of.is_record;
                let list = ListPath { from, nullable: source.nullable, null, counts, body, is_record };
                Ok(Source::List(Box::new(list)))
            }
            _ => Err(PlanProblem::Kind { from: field_kind(source), to: field_kind(field) }),
        }
    }

    /// The elements of a list.
    fn elements(
        &mut self,
        from: &Element,
        (to, laid): (&Element, &Format),
        (from_path, to_path): (&str, &str),
    ) -> Result<((Count, Count), Body), PlanProblem> {
        if let (Count::Fixed(from), Count::Fixed(to)) = (from.count, to.count)
            && from != to
        {
            return Err(PlanProblem::Count { from, to });
        }
        let mut inner = Names { from: self.from, rules: self.rules.clone(), flaws: Vec::new() };
        let pair = Pair::of(&from.format, &to.format, from_path, to_path, from.is_record);
        let body = inner.body(&Pair { laid, ..pair });
        self.flaws.append(&mut inner.flaws);
        Ok(((from.count, to.count), body))
    }

    /// Where the variants of a union come from.
    fn union(&mut self, pair: &Pair<'a>, body: &Body, found: &Found<'a>, union: &FoundGroup<'a>) -> UnionFrom {
        let mut from = UnionFrom { lost: Vec::new(), may_refuse: false };
        let around = || union.outer.into_iter().flat_map(|outer| body.nesting.1.out_of(outer));
        if around().any(|group| body.groups[group] == Presence::Never) {
            return from;
        }
        // The fields and nested records that variants are made from.
        let (mut fields, mut groups, mut always, mut others) = (Vec::new(), Vec::new(), 0, 0);
        for variant in &union.group.members {
            match variant {
                Member::Leaf(field) => match body.sources.get(*field) {
                    None | Some(Source::Null) => {}
                    Some(Source::Constant(_)) => always += 1,
                    Some(_) => fields.extend(found.fields[*field].index),
                },
                Member::Group(group) => match group.optional.map(|optional| &body.groups[optional]) {
                    Some(Presence::Group(there)) => groups.push(*there),
                    Some(Presence::Always) | None => always += 1,
                    Some(Presence::Fields(_)) => others += 1,
                    Some(Presence::Never) => {}
                },
            }
        }
        let count = fields.len() + groups.len() + always + others;
        if count == 0 && !union.group.nullable {
            self.flaw(&pair.whole(&union.group.path), PlanProblem::NoVariant);
        }
        let is_distinct = fields.iter().enumerate().all(|(at, field)| !fields[..at].contains(field))
            && groups.iter().enumerate().all(|(at, group)| !groups[..at].contains(group));
        let (mut is_one_of, mut is_sure) = (false, union.group.nullable);
        if let Some((source, innermost)) = union.source {
            let of = |variant: &Member| match variant {
                Member::Leaf(field) => fields.contains(field),
                Member::Group(group) => group.optional.is_some_and(|optional| groups.contains(&optional)),
            };
            let known = source.members.iter().filter(|variant| of(variant)).count();
            is_one_of = known == count && is_distinct;
            is_sure |= !source.nullable && body.leads_out(union.outer, innermost);
            for variant in source.members.iter().filter(|variant| !of(variant)) {
                let (path, presence) = match variant {
                    Member::Leaf(field) => (&pair.from.fields()[*field].name, Presence::Fields(vec![*field])),
                    Member::Group(group) => (&group.path, group.optional.map_or(Presence::Never, Presence::Group)),
                };
                if !self.rules.is_taken(&join(pair.from_path, path)) {
                    from.lost.push(presence);
                }
            }
            // A variant that is taken elsewhere leaves none here.
            is_sure &= union.group.nullable || from.lost.len() + known == source.members.len();
        }
        let is_one = count <= 1 && (union.group.nullable || always == 1);
        from.may_refuse = !(is_one || (is_one_of && is_sure));
        from
    }
}

fn scalar(
    index: usize,
    source: &Field,
    field: &Field,
    unit: Option<TimeUnit>,
    null: NullRule,
    whole: &str,
) -> Result<Path, PlanProblem> {
    let (from, to) = (source.ty, field.ty);
    allowed(from, to, unit.is_some()).map_err(|problem| match problem {
        TypeProblem::NoConversion => PlanProblem::NoConversion { from, to },
        TypeProblem::NoUnit => PlanProblem::NoUnit { field: whole.to_owned(), from, to },
        TypeProblem::UselessUnit => PlanProblem::UselessUnit { from, to },
    })?;
    let hop = (from != to || source.detail != field.detail).then(|| Hop {
        to,
        unit: unit.unwrap_or(TimeUnit::Nanoseconds),
        symbols: field.enumeration().cloned(),
        by_number: source.detail == field.detail,
        unknown: field.unknown_number(),
    });
    let hops = hop.into_iter().collect();
    Ok(Path { from: index, ty: from, nullable: source.nullable, hops, null, to })
}

/// The value of a `default` rule.
fn constant(field: &Field, text: &str) -> Result<Constant, PlanProblem> {
    let refused = || PlanProblem::Default {
        found: text.chars().take(80).collect(),
        expected: match field.ty {
            FieldType::List => "`[]`, no elements, for a list of any length".to_owned(),
            _ => text::expected(field, "RFC 3339, such as 2013-01-01T05:00:00Z"),
        },
    };
    if let Some(element) = field.element() {
        let is_empty = text.trim() == "[]" && element.count == Count::Slot;
        return if is_empty { Ok(Constant::NoElements) } else { Err(refused()) };
    }
    let format = Format::natural([FieldSpec::new("value", field.type_spec())]).map_err(|_| refused())?;
    let mut builder = RecordBuilder::new(&format);
    let set = text::set_from_text(&mut builder, &mut Vec::new(), 0, text.as_bytes(), Rounding::Refused);
    set.map_err(|_| refused())?;
    let record = builder.finish().map_err(|_| refused())?;
    Constant::of(Record::assume_checked(&format, record).get(0)).ok_or_else(refused)
}
