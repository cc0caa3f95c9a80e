//! From two formats and rules to where each field comes from.

use std::collections::HashSet;

use super::error::{PlanError, PlanFlaw, PlanProblem, TypeProblem};
use super::path::{Path, Source};
use super::rules::{Rule, Rules, TimeUnit};
use super::value::{Constant, NullRule, allowed};
use crate::builder::RecordBuilder;
use crate::element::Member;
use crate::field::{Field, FieldSpec};
use crate::format::Format;
use crate::record::Record;
use crate::text;

/// Where each field of `to` comes from.
pub(super) fn sources(from: &Format, to: &Format, rules: &Rules) -> Result<Vec<Source>, PlanError> {
    if from == to && rules.rules().is_empty() {
        return Ok(to
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| Source::Field(Path::same(index, field)))
            .collect());
    }
    let mut flaws: Vec<PlanFlaw> = to.tree().iter().filter_map(optional_group).collect();
    if let Some(field) = to.fields().first().filter(|_| to.is_foreign()) {
        flaws.push(PlanFlaw { field: field.name.clone(), problem: PlanProblem::Foreign });
    }
    let told = Told::of(rules);
    let mut sources = Vec::with_capacity(to.fields().len());
    for field in to.fields() {
        match source(from, field, &told) {
            Ok(source) => sources.push(source),
            Err(problem) => flaws.push(PlanFlaw { field: field.name.clone(), problem }),
        }
    }
    flaws.extend(rules.rules().iter().filter_map(|rule| stale(rule, from, to)));
    if flaws.is_empty() { Ok(sources) } else { Err(PlanError { flaws }) }
}

/// Rules, looked up by the target's field.
struct Told<'a> {
    rules: &'a Rules,
    /// Source fields that are not used under their own name.
    taken: HashSet<&'a str>,
}

impl<'a> Told<'a> {
    fn of(rules: &'a Rules) -> Told<'a> {
        let taken = rules.rules().iter().filter_map(|rule| match rule {
            Rule::Rename { from, .. } | Rule::Drop { field: from } => Some(from.as_str()),
            Rule::Default { .. } | Rule::Unit { .. } => None,
        });
        Told { taken: taken.collect(), rules }
    }

    /// Name of the source's field that a field of this name is made from.
    fn source_name<'n>(&self, name: &'n str) -> Option<&'n str>
    where
        'a: 'n,
    {
        let renamed = self.rules.rules().iter().find_map(|rule| match rule {
            Rule::Rename { from, to } if to == name => Some(from.as_str()),
            _ => None,
        });
        renamed.or_else(|| (!self.taken.contains(name)).then_some(name))
    }

    fn default(&self, name: &str) -> Option<&'a str> {
        self.rules.rules().iter().find_map(|rule| match rule {
            Rule::Default { field, value } if field == name => Some(value.as_str()),
            _ => None,
        })
    }

    fn unit(&self, name: &str) -> Option<TimeUnit> {
        self.rules.rules().iter().find_map(|rule| match rule {
            Rule::Unit { field, unit } if field == name => Some(*unit),
            _ => None,
        })
    }
}

/// What is wrong with a group of the target that would have to be told to be there or not.
fn optional_group(member: &Member) -> Option<PlanFlaw> {
    let Member::Group(group) = member else { return None };
    match group.nullable || group.union.is_some() {
        true => Some(PlanFlaw { field: group.path.clone(), problem: PlanProblem::OptionalGroup }),
        false => group.members.iter().find_map(optional_group),
    }
}

fn source(from: &Format, field: &Field, told: &Told<'_>) -> Result<Source, PlanProblem> {
    let name = field.name.as_str();
    let default = told.default(name).map(|text| constant(field, text)).transpose()?;
    let Some(index) = told.source_name(name).and_then(|name| from.field(name)) else {
        return match default {
            Some(constant) => Ok(Source::Constant(constant)),
            None if field.nullable => Ok(Source::Null),
            None => Err(PlanProblem::Missing { field: name.to_owned() }),
        };
    };
    let source = &from.fields()[index];
    // What is read by more than a load is for SQL, and so are records that are shorter than a load.
    if !source.is_plain() || !field.is_plain() || from.fixed_bytes() < 8 {
        return Err(PlanProblem::NoWay { from: source.ty, to: field.ty });
    }
    let unit = told.unit(name);
    allowed(source.ty, field.ty, unit.is_some()).map_err(|problem| match problem {
        TypeProblem::NoWay => PlanProblem::NoWay { from: source.ty, to: field.ty },
        TypeProblem::NoUnit => PlanProblem::NoUnit { field: name.to_owned(), from: source.ty, to: field.ty },
        TypeProblem::UselessUnit => PlanProblem::UselessUnit { from: source.ty, to: field.ty },
    })?;
    let null = match default {
        _ if field.nullable || !source.nullable => NullRule::Keep,
        Some(constant) => NullRule::Default(constant),
        None => NullRule::Refuse,
    };
    let hop = (source.ty != field.ty).then_some((field.ty, unit.unwrap_or(TimeUnit::Nanoseconds)));
    Ok(Source::Field(Path {
        from: index,
        ty: source.ty,
        nullable: source.nullable,
        hops: hop.into_iter().collect(),
        null,
        to: field.ty,
    }))
}

/// The value of a `default` rule.
fn constant(field: &Field, text: &str) -> Result<Constant, PlanProblem> {
    let refused = || PlanProblem::Default {
        found: text.chars().take(80).collect(),
        expected: text::expected(field, "RFC 3339, such as 2013-01-01T05:00:00Z"),
    };
    let format = Format::natural([FieldSpec::new(field.name.as_str(), field.ty)]).map_err(|_| refused())?;
    let mut builder = RecordBuilder::new(&format);
    text::set_from_text(&mut builder, &mut Vec::new(), 0, field.ty, text.as_bytes()).map_err(|_| refused())?;
    let record = builder.finish().map_err(|_| refused())?;
    Constant::of(Record::assume_checked(&format, record).get(0)).ok_or_else(refused)
}

/// What is wrong with a rule that speaks of a field which is not there.
fn stale(rule: &Rule, from: &Format, to: &Format) -> Option<PlanFlaw> {
    let (field, side) = match rule {
        Rule::Rename { from: field, .. } | Rule::Drop { field } if from.field(field).is_none() => (field, "source"),
        Rule::Rename { to: field, .. } | Rule::Default { field, .. } | Rule::Unit { field, .. }
            if to.field(field).is_none() =>
        {
            (field, "target")
        }
        _ => return None,
    };
    Some(PlanFlaw { field: field.clone(), problem: PlanProblem::NoSuchField { rule: rule.to_string(), side } })
}
