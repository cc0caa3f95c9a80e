//! The compatibility of each field where one format is converted to another by name alone.

use super::by_name;
use super::error::{PlanFlaw, PlanProblem};
use super::path::{Path, Source};
use super::rules::Rules;
use super::value::NullRule;
use crate::element::Member;
use crate::field::{Field, FieldType};
use crate::format::Format;

/// The compatibility of the fields of a format.
pub(crate) struct CompatReport {
    /// Of each field of the target.
    pub(crate) fields: Vec<FieldCompat>,
    /// Of each field of the target, the index of the source's field that it is made from.
    pub(crate) sources: Vec<Option<usize>>,
    /// The flaws beside the fields: nested records, unions, fields of lists' elements.
    pub(crate) flaws: Vec<PlanFlaw>,
    /// The paths of unions for which some records are refused.
    pub(crate) unions: Vec<String>,
}

/// The compatibility of one.
pub(crate) enum FieldCompat {
    /// It is made as it is from the source's field of this index.
    Same,
    /// It is converted from the source's field of this index.
    Converted { from: usize, may_refuse: bool },
    /// As it is, but null is refused.
    NeverNull,
    /// It is always null.
    Null,
    /// It cannot be had.
    None(PlanProblem),
}

impl CompatReport {
    /// The compatibility of the fields of `to`.
    pub(crate) fn of(from: &Format, to: &Format) -> CompatReport {
        let (body, mut flaws) = by_name::body(from, to, &Rules::none());
        let fields = to.fields().iter().zip(&body.sources).map(|(field, source)| {
            let flaw = flaws.iter().position(|flaw| flaw.field == field.name);
            match (flaw.map(|at| flaws.remove(at).problem), source) {
                (Some(problem), _) => FieldCompat::None(problem),
                (None, Source::Null | Source::Constant(_)) => FieldCompat::Null,
                (None, Source::Field(path)) => of_path(path, &from.fields()[path.from], field),
                (None, Source::List(list)) if list.nullable && list.null == NullRule::Refuse => FieldCompat::NeverNull,
                (None, Source::List(list)) => match from.fields()[list.from].detail == field.detail {
                    true => FieldCompat::Same,
                    false => FieldCompat::Converted { from: list.from, may_refuse: list.may_refuse() },
                },
            }
        });
        let fields = fields.collect();
        let mut paths = Vec::new();
        unions(to.tree(), &mut paths);
        let refused = body.unions.iter().zip(paths).filter(|(union, _)| union.may_refuse || !union.lost.is_empty());
        let unions = refused.map(|(_, path)| path).collect();
        let source = |source: &Source| match source {
            Source::Field(path) => Some(path.from),
            Source::List(list) => Some(list.from),
            Source::Null | Source::Constant(_) => None,
        };
        CompatReport { fields, sources: body.sources.iter().map(source).collect(), flaws, unions }
    }
}

fn of_path(path: &Path, source: &Field, field: &Field) -> FieldCompat {
    match &path.hops[..] {
        _ if path.nullable && path.null == NullRule::Refuse => FieldCompat::NeverNull,
        [] => FieldCompat::Same,
        [hop] if !hop.by_number && matches!((path.ty, hop.to), (FieldType::Enum { .. }, FieldType::Enum { .. })) => {
            // Numbers that nobody has a name for are not counted on.
            let known = |symbol: &str| field.enumeration().is_some_and(|symbols| symbols.number(symbol).is_some());
            let symbols = source.enumeration().map_or(&[][..], |enumeration| enumeration.symbols());
            let may_refuse = hop.unknown.is_none() && !symbols.iter().all(|(symbol, _)| known(symbol));
            FieldCompat::Converted { from: path.from, may_refuse }
        }
        _ => FieldCompat::Converted { from: path.from, may_refuse: path.may_refuse() },
    }
}

/// The paths of unions, each behind those that lie in it.
fn unions(members: &[Member], paths: &mut Vec<String>) {
    for member in members {
        if let Member::Group(group) = member {
            unions(&group.members, paths);
            if group.union.is_some() {
                paths.push(group.path.clone());
            }
        }
    }
}
