//! The rules for a path.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::convert::error::{PlanFlaw, PlanProblem};
use crate::convert::rules::{Rule, Rules, TimeUnit};
use crate::format::Format;

/// Rules, looked up by paths.
#[derive(Clone)]
pub(super) struct RulesByPath<'a> {
    inner: Arc<Inner<'a>>,
}

#[derive(Default)]
struct Inner<'a> {
    /// Paths in the source, by those in the target.
    renames: HashMap<&'a str, &'a str>,
    defaults: HashMap<&'a str, &'a str>,
    units: HashMap<&'a str, TimeUnit>,
    /// Paths in the source that are not used under their own name.
    taken: HashSet<&'a str>,
}

impl<'a> RulesByPath<'a> {
    pub(super) fn of(rules: &'a Rules) -> RulesByPath<'a> {
        let mut inner = Inner::default();
        for rule in rules.rules() {
            match rule {
                Rule::Rename { from, to } => {
                    inner.renames.insert(to, from);
                    inner.taken.insert(from);
                }
                Rule::Drop { field } => drop(inner.taken.insert(field)),
                Rule::Default { field, value } => drop(inner.defaults.insert(field, value)),
                Rule::Unit { field, unit } => drop(inner.units.insert(field, *unit)),
            }
        }
        RulesByPath { inner: inner.into() }
    }

    /// The source's path of what the target calls `path`, and whether a rule says so. Without a rule that is its own name
    /// in what its parent is made from, unless that is used otherwise. `is_group` says whether the source has a nested
    /// record at a path: names may have dots of their own.
    pub(super) fn source(
        &self,
        path: &str,
        parent: Option<&str>,
        name: &str,
        is_group: impl Fn(&str) -> bool,
    ) -> (Option<String>, bool) {
        if let Some(from) = self.inner.renames.get(path) {
            return (Some((*from).to_owned()), true);
        }
        let Some(parent) = parent else { return (None, false) };
        let path = super::join(parent, name);
        let ends = path.match_indices('.').map(|(at, _)| at).filter(|at| *at > parent.len());
        let mut around = ends.filter_map(|end| path.get(..end));
        let is_taken = self.is_taken(&path) || around.any(|path| self.is_taken(path) && is_group(path));
        ((!is_taken).then_some(path), false)
    }

    /// Whether a rule gives what the source has at this path another use, or none.
    pub(super) fn is_taken(&self, path: &str) -> bool {
        self.inner.taken.contains(path)
    }

    pub(super) fn default(&self, path: &str) -> Option<&'a str> {
        self.inner.defaults.get(path).copied()
    }

    pub(super) fn unit(&self, path: &str) -> Option<TimeUnit> {
        self.inner.units.get(path).copied()
    }
}

/// Whether there is such a path: of a field, or of a field or nested record; `legs[].km` in the elements of a list.
pub(super) fn holds(format: &Format, path: &str, is_field: bool) -> bool {
    let in_list = |name: &str, format: &Format| -> bool {
        let element = format.field(name).and_then(|index| format.fields().get(index)?.element().cloned());
        element.zip(path.get(name.len() + 2..)).is_some_and(|(element, rest)| match rest.strip_prefix('.') {
            Some(rest) => element.is_record && holds(&element.format, rest, is_field),
            None => {
                !element.is_record && (rest.is_empty() || holds(&element.format, &format!("element{rest}"), is_field))
            }
        })
    };
    format.field(path).is_some()
        || (!is_field && format.group(path).is_some())
        || path.match_indices("[]").any(|(at, _)| path.get(..at).is_some_and(|name| in_list(name, format)))
}

/// The error of a rule that speaks of a field which is not there.
pub(super) fn stale(rule: &Rule, from: &Format, to: &Format) -> Option<PlanFlaw> {
    let (field, side) = match rule {
        Rule::Rename { from: field, .. } | Rule::Drop { field } if !holds(from, field, false) => (field, "source"),
        Rule::Rename { to: field, .. } if !holds(to, field, false) => (field, "target"),
        Rule::Default { field, .. } | Rule::Unit { field, .. } if !holds(to, field, true) => (field, "target"),
        _ => return None,
    };
    Some(PlanFlaw { field: field.clone(), problem: PlanProblem::NoSuchField { rule: rule.to_string(), side } })
}
