//! A query that was made at random, as it is written here and for DuckDB, and queries with less in them.

use crate::case::{Case, Rule};
use crate::changes::ChangesSpec;
use crate::expressions::ExpressionSpec;
use crate::joins::JoinSpec;
use crate::lookups::LookupSpec;
use crate::over::OverSpec;
use crate::shared::SharedSpec;
use crate::windows::WindowSpec;

/// A query in both dialects, and how its columns are compared.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    pub(crate) ours: String,
    pub(crate) theirs: String,
    pub(crate) rules: Vec<Rule>,
    pub(crate) last_of: usize,
}

impl Texts {
    /// The case of this query over the rows of another.
    pub(crate) fn over(self, rows: &Case) -> (Case, String) {
        let Texts { ours, theirs, rules, last_of } = self;
        (Case { query: ours, rules, last_of, ..rows.clone() }, theirs)
    }
}

/// A query that was made at random.
#[derive(Clone, Debug)]
pub(crate) enum Spec {
    Expression(ExpressionSpec),
    Window(WindowSpec),
    Join(JoinSpec),
    Lookup(LookupSpec),
    Over(OverSpec),
    Changes(ChangesSpec),
    Shared(SharedSpec),
    /// One of the fixed queries.
    Fixed(Texts),
}

impl Spec {
    pub(crate) fn texts(&self) -> Texts {
        match self {
            Spec::Expression(spec) => spec.texts(),
            Spec::Window(spec) => spec.texts(),
            Spec::Join(spec) => spec.texts(),
            Spec::Lookup(spec) => spec.texts(),
            Spec::Over(spec) => spec.texts(),
            Spec::Changes(spec) => spec.texts(),
            Spec::Shared(spec) => spec.texts(),
            Spec::Fixed(texts) => texts.clone(),
        }
    }

    /// Queries with less in them, the smallest first where that is cheap to know.
    pub(crate) fn smaller(&self) -> Vec<Spec> {
        match self {
            Spec::Expression(spec) => spec.smaller().into_iter().map(Spec::Expression).collect(),
            Spec::Window(spec) => spec.smaller().into_iter().map(Spec::Window).collect(),
            Spec::Join(spec) => spec.smaller().into_iter().map(Spec::Join).collect(),
            Spec::Lookup(spec) => spec.smaller().into_iter().map(Spec::Lookup).collect(),
            Spec::Over(spec) => spec.smaller().into_iter().map(Spec::Over).collect(),
            Spec::Changes(spec) => spec.smaller().into_iter().map(Spec::Changes).collect(),
            Spec::Shared(spec) => spec.smaller().into_iter().map(Spec::Shared).collect(),
            Spec::Fixed(_) => Vec::new(),
        }
    }
}
