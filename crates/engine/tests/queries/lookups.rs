//! Random joins of a stream with a reference table, by its key.

use fastrand::Rng;

use crate::case::Rule;
use crate::events::Events;
use crate::joins::{OF_ONE, OUTPUTS, PAIRS, WHERES};
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
    outputs: Vec<&'static str>,
    condition: Option<&'static str>,
    filter: Option<&'static str>,
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
    pub(crate) fn new(events: &Events, random: &mut Rng) -> LookupSpec {
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
            0 => Some(one(OF_ONE, random)),
            1 => Some(one(PAIRS, random)),
            _ => None,
        };
        LookupSpec {
            kind: kind(random),
            keys: own,
            outputs: (0..random.usize(1..5)).map(|_| one(OUTPUTS, random)).collect(),
            condition,
            filter: (random.u8(0..4) == 0).then(|| one(WHERES, random)),
            again,
        }
    }

    pub(crate) fn texts(&self) -> Texts {
        let LookupSpec { kind, keys, outputs, condition, filter, again } = self;
        let outputs: String = outputs.iter().map(|output| format!(", {output}")).collect();
        let on = |keys: &[String]| keys.join(" AND ");
        let condition = condition.map_or(String::new(), |condition| format!(" AND {condition}"));
        let filter = filter.map_or(String::new(), |filter| format!(" WHERE {filter}"));
        let (third, joined) = match again {
            Some((kind, keys)) => (", r.id", format!(" {kind}JOIN q r ON {}", on(keys))),
            None => ("", String::new()),
        };
        let query =
            format!("SELECT s.id, q.id{outputs}{third} FROM s {kind}JOIN q ON {}{condition}{joined}{filter}", on(keys));
        let rules = vec![Rule::Exact; self.outputs.len() + 2 + usize::from(again.is_some())];
        Texts { ours: query.clone(), theirs: query, rules, last_of: 0 }
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
        (0..self.outputs.len()).for_each(|place| add(&|less| _ = less.outputs.remove(place)));
        if !self.kind.is_empty() {
            add(&|less| less.kind = "");
        }
        found
    }
}
