//! Values and conditions that are computed from lists, for queries over the rows of [events](crate::events).
//!
//! They are those of random expressions, with the names of other columns, and translated for DuckDB in the same way. A row error would
//! drop a row of ours, and be a null in DuckDB: these have none.

use crossdock_format::FieldType;
use crossdock_query::{Expr, parse};
use fastrand::Rng;
use proptest::strategy::BoxedStrategy;
use proptest::test_runner::TestRunner;

use crate::duckish::guarded;
use crate::expressions::{Item, LIKE_DUCKDB, runner, some};
use crate::functions::{FunctionPair, functions};
use crate::generate;
use crate::rebuild::smaller;

/// The names that stand for the columns of random expressions, in the order of those; empty where there is none.
pub(crate) type Names = [&'static str; 12];

/// The columns of `s`.
pub(crate) static OF_S: Names = ["v", "j", "id", "x", "y", "b", "t", "k", "ts", "d", "nums", "tags"];

/// The columns of `s` in a join.
pub(crate) static ONLY_S: Names =
    ["s.v", "s.j", "s.id", "s.x", "s.y", "s.b", "s.t", "s.k", "s.ts", "s.d", "s.nums", "s.tags"];

/// The columns of `q` in a join.
pub(crate) static ONLY_Q: Names = ["q.w", "q.j", "q.id", "q.x", "", "", "q.k", "q.k", "q.ts", "", "q.nums", "q.tags"];

/// Lists of one stream of a join, beside values of the other.
pub(crate) static OF_BOTH: [Names; 3] = [
    ["s.v", "s.j", "s.id", "s.x", "s.y", "s.b", "s.t", "s.k", "s.ts", "s.d", "q.nums", "q.tags"],
    ["q.w", "q.j", "q.id", "q.x", "s.y", "s.b", "q.k", "q.k", "q.ts", "s.d", "s.nums", "s.tags"],
    ["q.w", "s.j", "s.id", "s.x", "s.y", "s.b", "s.t", "q.k", "q.ts", "s.d", "s.nums", "q.tags"],
];

/// A value or a condition of a query.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    /// Written alike in both dialects.
    Alike(&'static str),
    /// Computed from lists.
    Lists(Box<Item>, &'static Names),
}

impl Term {
    pub(crate) fn ours(&self) -> String {
        match self {
            Term::Alike(text) => (*text).to_owned(),
            Term::Lists(item, names) => renamed(&item.texts(&generate::format()).0, names).unwrap(),
        }
    }

    pub(crate) fn theirs(&self) -> String {
        match self {
            Term::Alike(text) => (*text).to_owned(),
            Term::Lists(item, names) => renamed(&item.texts(&generate::format()).1, names).unwrap(),
        }
    }

    /// In our dialect or DuckDB's.
    pub(crate) fn sql(&self, is_theirs: bool) -> String {
        if is_theirs { self.theirs() } else { self.ours() }
    }

    /// Whether it has columns of both streams of a join.
    pub(crate) fn is_of_both(&self) -> bool {
        let text = self.ours();
        ["s.", "q."].iter().all(|stream| text.contains(stream))
    }

    /// Terms of the same type with less in them.
    pub(crate) fn smaller(&self) -> Vec<Term> {
        match self {
            Term::Lists(item, names) => {
                let Item::Expr(expr) = &**item else { return Vec::new() };
                let less = smaller(expr).into_iter().filter(|less| !less.is_fallible());
                less.map(|less| Term::Lists(Box::new(Item::Expr(less)), names)).collect()
            }
            Term::Alike(_) => Vec::new(),
        }
    }
}

/// Makes terms that are computed from lists.
pub(crate) struct Lists {
    runner: TestRunner,
    conditions: BoxedStrategy<Expr>,
    numbers: BoxedStrategy<Expr>,
    texts: BoxedStrategy<Expr>,
    functions: Vec<(FunctionPair, FieldType)>,
}

impl Lists {
    pub(crate) fn new() -> Lists {
        let format = generate::format();
        let of_lists = |pair: FunctionPair| {
            // A list alone is no value here; and DuckDB takes no query within the query in every place.
            let has_query = [" ANY(", " ALL("].iter().any(|word| pair.theirs.contains(word));
            let columns = tokens(&pair.ours).any(|token| token == "l" || token == "m");
            if has_query || !columns {
                return None;
            }
            let program = parse(&format!("SELECT {} AS value FROM s", pair.ours)).unwrap().plan(&format).ok()?;
            let ty = program.output.fields()[0].ty;
            (ty != FieldType::List).then_some((pair, ty))
        };
        Lists {
            runner: runner(0),
            conditions: generate::list_condition(LIKE_DUCKDB),
            numbers: generate::list_number(LIKE_DUCKDB),
            texts: generate::list_text(LIKE_DUCKDB),
            functions: functions().into_iter().filter_map(of_lists).collect(),
        }
    }

    /// Begins those of a batch of this seed.
    pub(crate) fn begin(&mut self, seed: u64) {
        self.runner = runner(seed);
    }

    /// A whole number or a text.
    pub(crate) fn value(&mut self, random: &mut Rng, names: &'static Names) -> Term {
        if random.bool() { self.number(random, names) } else { self.text(random, names) }
    }

    pub(crate) fn number(&mut self, random: &mut Rng, names: &'static Names) -> Term {
        self.term(FieldType::I64, random, names)
    }

    pub(crate) fn text(&mut self, random: &mut Rng, names: &'static Names) -> Term {
        self.term(FieldType::String, random, names)
    }

    pub(crate) fn condition(&mut self, random: &mut Rng, names: &'static Names) -> Term {
        self.term(FieldType::Bool, random, names)
    }

    /// One of these, or one that is computed from lists.
    pub(crate) fn condition_or(&mut self, others: &[&'static str], random: &mut Rng, names: &'static Names) -> Term {
        if random.u8(0..3) == 0 {
            return self.condition(random, names);
        }
        Term::Alike(others[random.usize(0..others.len())])
    }

    /// One of these, or one of any type that is computed from lists.
    pub(crate) fn value_or(&mut self, others: &[&'static str], random: &mut Rng, names: &'static Names) -> Term {
        match random.u8(0..9) {
            0 => self.condition(random, names),
            1 | 2 => self.value(random, names),
            _ => Term::Alike(others[random.usize(0..others.len())]),
        }
    }

    fn term(&mut self, ty: FieldType, random: &mut Rng, names: &'static Names) -> Term {
        let of_type: Vec<&FunctionPair> =
            self.functions.iter().filter(|(_, of)| *of == ty).map(|(pair, _)| pair).collect();
        let strategy = match ty {
            FieldType::Bool => &self.conditions,
            FieldType::String => &self.texts,
            _ => &self.numbers,
        };
        loop {
            let item = match random.u8(0..4) {
                0 => Item::Function(of_type[random.usize(0..of_type.len())].clone()),
                _ => Item::Expr(guarded(&some(strategy, &mut self.runner))),
            };
            let is_fallible = matches!(&item, Item::Expr(expr) if expr.is_fallible());
            let text = item.texts(&generate::format()).0;
            let has_list = tokens(&text).any(|token| token == "l" || token == "m");
            if !is_fallible && has_list && renamed(&text, names).is_some() {
                return Term::Lists(Box::new(item), names);
            }
        }
    }
}

/// The words of a text, and what is between them: a text in quotes is one part.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let end = match first {
            '\'' => rest[1..].find('\'').map_or(rest.len(), |end| end + 2),
            first if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            first => first.len_utf8(),
        };
        let (token, after) = rest.split_at(end);
        rest = after;
        Some(token)
    })
}

/// The text with these names; none if it has a column without a name.
fn renamed(text: &str, names: &Names) -> Option<String> {
    let format = generate::format();
    let token = |token| match format.field(token) {
        Some(index) if names[index].is_empty() => None,
        Some(index) => Some(names[index]),
        None => Some(token),
    };
    tokens(text).map(token).collect()
}
