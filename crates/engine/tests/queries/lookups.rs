//! Random joins of a stream with a reference table, by its key.

use fastrand::Rng;

use crate::case::Rule;
use crate::events::Events;
use crate::joins::{condition_on_one, condition_on_pairs, condition_on_result, output};
use crate::lists::{Lists, Term};
use crate::spec::Texts;

/// Columns of the table that are its key, each with the columns of the stream that it may be equal to.
const KEYS: &[(&str, &[&str])] = &[
    ("k", &["s.k", "s.t", "left(s.t, 1)"]),
    ("j", &["s.j", "s.v", "s.id % 3"]),
    ("w", &["s.v", "s.j"]),
    ("x", &["s.x"]),
    ("id", &["s.id", "s.j"]),
    ("ts", &["s.ts"]),
];

/// A query of this kind.
#[derive(Clone, Debug)]
pub(crate) struct LookupSpec {
    /// Empty or `LEFT `.
    kind: &'static str,
    keys: Vec<String>,
    outputs: Vec<Term>,
    condition: Option<Term>,
    filter: Option<Term>,
    /// A second join with the table, of this kind and by these values.
    again: Option<(&'static str, Vec<String>)>,
}

/// Has the second stream of a batch be a table, with a key of one or two columns.
pub(crate) fn with_table(events: &mut Events, random: &mut Rng) {
    let (first, second) = (KEYS[random.usize(0..KEYS.len())].0, KEYS[random.usize(0..KEYS.len())].0);
    let mut key = vec![first.to_owned()];
    if first != second && random.u8(0..3) == 0 {
        key.push(second.to_owned());
    }
    events.case.streams[1].key = key;
}

impl LookupSpec {
    pub(crate) fn new(events: &Events, lists: &mut Lists, random: &mut Rng) -> LookupSpec {
        let one = |all: &[&'static str], random: &mut Rng| all[random.usize(0..all.len())];
        let kind = |random: &mut Rng| ["", "LEFT "][random.usize(0..2)];
        let keys = |table: &str, random: &mut Rng| {
            let equal = |key: &String| {
                let (column, values) = KEYS.iter().find(|(column, _)| column == key).unwrap();
                let value = one(values, random);
                if random.bool() {
                    format!("{value} = {table}.{column}")
                } else {
                    format!("{table}.{column} = {value}")
                }
            };
            events.case.streams[1].key.iter().map(equal).collect::<Vec<String>>()
        };
        let (own, again) = (keys("q", random), (random.u8(0..4) == 0).then(|| (kind(random), keys("r", random))));
        let condition = match random.u8(0..4) {
            0 => Some(condition_on_one(lists, random)),
            1 => Some(condition_on_pairs(lists, random)),
            _ => None,
        };
        LookupSpec {
            kind: kind(random),
            keys: own,
            outputs: (0..random.usize(1..5)).map(|_| output(lists, random)).collect(),
            condition,
            filter: (random.u8(0..4) == 0).then(|| condition_on_result(lists, random)),
            again,
        }
    }

    pub(crate) fn texts(&self) -> Texts {
        let rules = vec![Rule::Exact; self.outputs.len() + 2 + usize::from(self.again.is_some())];
        Texts { ours: self.sql(false), theirs: self.sql(true), rules, last_of: 0 }
    }

    fn sql(&self, is_theirs: bool) -> String {
        let LookupSpec { kind, keys, outputs, condition, filter, again } = self;
        let outputs: String = outputs.iter().map(|output| format!(", {}", output.sql(is_theirs))).collect();
        let on = |keys: &[String]| keys.join(" AND ");
        let text = |before: &str, term: &Option<Term>| {
            term.as_ref().map_or(String::new(), |term| format!(" {before} ({})", term.sql(is_theirs)))
        };
        let (condition, filter) = (text("AND", condition), text("WHERE", filter));
        let (third, joined) = match again {
            Some((kind, keys)) => (", r.id", format!(" {kind}JOIN q r ON {}", on(keys))),
            None => ("", String::new()),
        };
        format!("SELECT s.id, q.id{outputs}{third} FROM s {kind}JOIN q ON {}{condition}{joined}{filter}", on(keys))
    }

    pub(crate) fn smaller(&self) -> Vec<LookupSpec> {
        let mut found = Vec::new();
        let mut add = |change: &dyn Fn(&mut LookupSpec)| {
            let mut less = self.clone();
            change(&mut less);
            found.push(less);
        };
        if self.again.is_some() {
            add(&|less| less.again = None);
        }
        if self.filter.is_some() {
            add(&|less| less.filter = None);
        }
        if self.condition.is_some() {
            add(&|less| less.condition = None);
        }
        for less in self.filter.iter().flat_map(Term::smaller) {
            add(&|spec| spec.filter = Some(less.clone()));
        }
        for less in self.condition.iter().flat_map(Term::smaller) {
            add(&|spec| spec.condition = Some(less.clone()));
        }
        for place in 0..self.outputs.len() {
            self.outputs[place].smaller().iter().for_each(|less| add(&|spec| spec.outputs[place] = less.clone()));
        }
        (0..self.outputs.len()).for_each(|place| add(&|less| _ = less.outputs.remove(place)));
        if !self.kind.is_empty() {
            add(&|less| less.kind = "");
        }
        found
    }
}
