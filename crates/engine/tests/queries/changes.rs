//! Random queries over groups without a window, whose rows change: joins without bounds of time, groups of groups, DISTINCT and OVER of them.

use fastrand::Rng;

use crate::case::Rule;
use crate::joins::{condition_on_pairs, output};
use crate::lists::{Lists, OF_S, Term};
use crate::spec::Texts;
use crate::windows::FILTERS;

/// Equal columns of two streams.
const ON: &[&str] = &[
    "s.nums[1] = q.j",
    "s.tags[1] = q.tags[1]",
    "s.k = q.k",
    "s.j = q.j",
    "s.v = q.w",
    "s.x = q.x",
    "s.t = q.k AND s.j = q.j",
];

/// Bounds of time that are no interval, or of one side.
const TIMES: &[&str] = &["q.ts >= s.ts", "q.ts < s.ts", "s.id < q.id AND q.ts >= s.ts"];

/// Values of an inner group, and whether sums of them stay within their types.
const INNER: &[(&str, bool)] = &[
    ("count(*)", true),
    ("count(v)", true),
    ("sum(j)", true),
    ("sum(d)", true),
    ("min(id)", true),
    ("max(id)", true),
    ("sum(y)", true),
    ("count(DISTINCT v)", true),
    ("count(*) FILTER (WHERE b)", true),
    ("max(v)", false),
    ("min(v)", false),
    ("max(x)", false),
    ("min(d)", true),
    ("max(t)", false),
    ("max(h)", false),
];

/// Of the values of any inner group.
const OUTER: &[&str] = &[
    "count(*)",
    "count(m)",
    "min(m)",
    "max(m)",
    "count(DISTINCT m)",
    "max(n)",
    "min(n)",
    "sum(n)",
    "bool_or(n > 2)",
    "bool_and(n > 1)",
    "count(*) FILTER (WHERE n > 1)",
    "sum(DISTINCT n)",
];

/// Of numbers whose sums stay within their types.
const SUMS: &[(&str, Rule)] =
    &[("sum(m)", Rule::Exact), ("avg(m)", Rule::Near), ("sum(DISTINCT m)", Rule::Exact), ("var_pop(n)", Rule::Near)];

const KEYS: &[&str] = &["k", "j", "b", "coalesce(k, 'none')", "v % 3", "d"];

const HAVINGS: &[&str] = &["count(*) < 3", "count(*) > 1", "min(v) IS NOT NULL", "max(id) % 3 <> 1"];

const WHERES: &[&str] = &["n > 1", "n % 2 = 1", "m IS NOT NULL", "k0 IS NOT NULL AND n < 4"];

/// The query around the groups.
#[derive(Clone, Debug)]
enum Above {
    /// Nothing: their own changes.
    Changes,
    /// Groups of them, by one of their columns.
    Groups { key: &'static str, values: Vec<(&'static str, Rule)>, having: bool, is_changes: bool },
    /// Each pair of a key and a value once.
    Distinct,
    /// Values over those that came before, of all in the partition.
    Over(&'static str),
    /// The groups of both streams together, in groups.
    Union,
    /// Each with the rows of the other stream.
    Join,
}

/// A query of this kind.
#[derive(Clone, Debug)]
pub(crate) enum ChangesSpec {
    Join { on: &'static str, pair: Option<Term>, time: Option<&'static str>, outputs: Vec<Term> },
    Groups(GroupsSpec),
}

/// Groups, and what is done with them.
#[derive(Clone, Debug)]
pub(crate) struct GroupsSpec {
    keys: [Term; 2],
    value: &'static str,
    /// Of a join of both streams.
    is_joined: bool,
    filter: Option<Term>,
    having: Option<&'static str>,
    condition: Option<&'static str>,
    above: Above,
}

impl ChangesSpec {
    pub(crate) fn new(lists: &mut Lists, random: &mut Rng) -> ChangesSpec {
        let one = |all: &[&'static str], random: &mut Rng| all[random.usize(0..all.len())];
        let maybe = |all: &[&'static str], random: &mut Rng| (random.u8(0..4) == 0).then(|| one(all, random));
        if random.u8(0..5) == 0 {
            let outputs = (0..random.usize(1..4)).map(|_| output(lists, random)).collect();
            return ChangesSpec::Join {
                on: one(ON, random),
                pair: (random.u8(0..4) == 0).then(|| condition_on_pairs(lists, random)),
                time: maybe(TIMES, random),
                outputs,
            };
        }
        let (value, is_summed) = INNER[random.usize(0..INNER.len())];
        let first = lists.value_or(KEYS, random, &OF_S);
        let second = lists.value_or(KEYS, random, &OF_S);
        let above = match random.u8(0..10) {
            0 => Above::Changes,
            1 => Above::Distinct,
            2 | 3 => {
                Above::Over(["sum(n)", "max(m)", "count(m)", "last_value(m)", "first_value(n)"][random.usize(0..5)])
            }
            4 => Above::Union,
            5 => Above::Join,
            _ => {
                let mut values = vec![("count(*)", Rule::Exact)];
                for _ in 0..random.usize(1..4) {
                    values.push((one(OUTER, random), Rule::Exact));
                }
                if is_summed {
                    values.push(SUMS[random.usize(0..SUMS.len())]);
                }
                let key = ["k0", "k0", "m", "n % 3"][random.usize(0..4)];
                let is_changes = random.u8(0..4) > 0;
                Above::Groups { key, values, having: is_changes && random.u8(0..4) == 0, is_changes }
            }
        };
        let is_over = matches!(above, Above::Over(_));
        let mut spec = GroupsSpec {
            keys: [first, second],
            value,
            is_joined: !is_over && random.u8(0..4) == 0,
            filter: (random.u8(0..4) == 0).then(|| lists.condition_or(FILTERS, random, &OF_S)),
            having: maybe(HAVINGS, random).filter(|_| !is_over),
            condition: maybe(WHERES, random).filter(|_| !is_over),
            above,
        };
        if let Above::Groups { is_changes, .. } = &mut spec.above {
            // Without CHANGES a group that has lost all of its rows is not seen to leave.
            *is_changes |= spec.having.is_some() || spec.condition.is_some();
        }
        if let Above::Groups { key: "m" | "n % 3", is_changes, .. } = &mut spec.above {
            *is_changes = true;
        }
        ChangesSpec::Groups(spec)
    }

    pub(crate) fn texts(&self) -> Texts {
        match self {
            ChangesSpec::Join { on, pair, time, outputs } => {
                let text = |is_theirs: bool| {
                    let outputs: String = outputs.iter().map(|output| format!(", {}", output.sql(is_theirs))).collect();
                    let pair = pair.as_ref().map_or(String::new(), |pair| format!(" AND ({})", pair.sql(is_theirs)));
                    let time = time.map_or(String::new(), |time| format!(" AND {time}"));
                    format!("SELECT s.id, q.id{outputs} FROM s JOIN q ON {on}{pair}{time}")
                };
                let rules = vec![Rule::Exact; outputs.len() + 2];
                Texts { ours: text(false), theirs: text(true), rules, last_of: 0 }
            }
            ChangesSpec::Groups(spec) => spec.texts(),
        }
    }

    pub(crate) fn smaller(&self) -> Vec<ChangesSpec> {
        let mut found = Vec::new();
        match self {
            ChangesSpec::Join { on, pair, time, outputs } => {
                let mut add = |pair: Option<Term>, time, outputs: &[Term]| {
                    found.push(ChangesSpec::Join { on, pair, time, outputs: outputs.to_vec() });
                };
                if pair.is_some() {
                    add(None, *time, outputs);
                }
                if time.is_some() {
                    add(pair.clone(), None, outputs);
                }
                if outputs.len() > 1 {
                    add(pair.clone(), *time, &outputs[1..]);
                }
                for less in pair.iter().flat_map(Term::smaller).filter(Term::is_of_both) {
                    add(Some(less), *time, outputs);
                }
                for less in outputs[0].smaller() {
                    add(pair.clone(), *time, &[&[less], &outputs[1..]].concat());
                }
            }
            ChangesSpec::Groups(spec) => found.extend(spec.smaller().into_iter().map(ChangesSpec::Groups)),
        }
        found
    }
}

impl GroupsSpec {
    /// The inner query; of DuckDB with the place of each group's first row.
    fn inner(&self, is_theirs: bool) -> String {
        let GroupsSpec { keys: [first, second], value, is_joined, filter, having, .. } = self;
        let rows = match is_joined {
            true => {
                "(SELECT s.k, s.j, s.b, s.v, s.d, s.x, s.y, s.t, s.h, s.ts, s.nums, q.tags, q.id * 100 + s.id AS id FROM s JOIN q ON s.j = q.j) s"
            }
            false => "s",
        };
        let [first, second] = [first, second].map(|key| key.sql(is_theirs));
        let filter = filter.as_ref().map_or(String::new(), |filter| format!(" WHERE {}", filter.sql(is_theirs)));
        let having = having.map_or(String::new(), |having| format!(" HAVING {having}"));
        let place = if is_theirs && !is_joined { ", min(s.n) AS place" } else { "" };
        format!(
            "SELECT {first} AS k0, {second} AS k1, {value} AS m, count(*) AS n{place} FROM {rows}{filter} GROUP BY {first}, {second}{having}"
        )
    }

    fn texts(&self) -> Texts {
        let condition = self.condition.map_or(String::new(), |condition| format!(" WHERE {condition}"));
        let text = |is_theirs: bool| {
            let inner = self.inner(is_theirs);
            let changes = if is_theirs { "" } else { " CHANGES" };
            match &self.above {
                Above::Changes => format!("SELECT k0, k1, m, n FROM ({inner}) g{condition}{changes}"),
                Above::Distinct => format!("SELECT DISTINCT k0, n FROM ({inner}) g{condition}{changes}"),
                Above::Over(call) => {
                    let order = if is_theirs { "ORDER BY place " } else { "" };
                    format!(
                        "SELECT k0, k1, {call} OVER (PARTITION BY k0 {order}ROWS 99 PRECEDING) FROM ({inner}) g{changes}"
                    )
                }
                Above::Union => format!(
                    "SELECT n, count(*), max(m) FROM (SELECT n, m FROM ({inner}) g{condition} UNION ALL \
                     SELECT n, m FROM (SELECT j AS k0, count(*) AS n, NULL AS m FROM q GROUP BY j) h) u GROUP BY n{changes}"
                ),
                Above::Join => format!(
                    "SELECT m, n, count(*), max(id), sum(id) FROM (SELECT g.k0, g.m, g.n, q.id FROM ({inner}) g JOIN q ON g.n = q.j) x{condition} GROUP BY m, n{changes}"
                ),
                Above::Groups { key, values, having, is_changes } => {
                    let values: String = values.iter().map(|(value, _)| format!(", {value}")).collect();
                    let having = if *having { " HAVING count(*) > 1" } else { "" };
                    let changes = if *is_changes { changes } else { "" };
                    format!("SELECT {key}{values} FROM ({inner}) g{condition} GROUP BY {key}{having}{changes}")
                }
            }
        };
        let (rules, last_of) = match &self.above {
            Above::Changes => (vec![Rule::Exact; 4], 2),
            Above::Distinct => (vec![Rule::Exact; 2], 2),
            Above::Over(_) => (vec![Rule::Exact; 3], 2),
            Above::Union => (vec![Rule::Exact; 3], 1),
            Above::Join => (vec![Rule::Exact; 5], 2),
            Above::Groups { values, .. } => {
                ([Rule::Exact].into_iter().chain(values.iter().map(|(_, rule)| *rule)).collect(), 1)
            }
        };
        Texts { ours: text(false), theirs: text(true), rules, last_of }
    }

    fn smaller(&self) -> Vec<GroupsSpec> {
        let mut found = Vec::new();
        let mut add = |change: &dyn Fn(&mut GroupsSpec)| {
            let mut less = self.clone();
            change(&mut less);
            found.push(less);
        };
        if self.filter.is_some() {
            add(&|less| less.filter = None);
        }
        if self.having.is_some() {
            add(&|less| less.having = None);
        }
        if self.condition.is_some() {
            add(&|less| less.condition = None);
        }
        for less in self.filter.iter().flat_map(Term::smaller) {
            add(&|spec| spec.filter = Some(less.clone()));
        }
        for place in 0..2 {
            self.keys[place].smaller().iter().for_each(|less| add(&|spec| spec.keys[place] = less.clone()));
        }
        if self.is_joined {
            add(&|less| less.is_joined = false);
        }
        if let Above::Groups { values, .. } = &self.above
            && values.len() > 1
        {
            for place in 0..values.len() {
                add(&|less| {
                    if let Above::Groups { values, .. } = &mut less.above {
                        values.remove(place);
                    }
                });
            }
        }
        found
    }
}
