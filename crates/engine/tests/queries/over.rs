//! Random queries with values over the rows before: OVER.

use fastrand::Rng;

use crate::case::Rule;
use crate::lists::{Lists, OF_S, Term};
use crate::spec::Texts;
use crate::windows::FILTERS;

/// A call before its `OVER`, and how its values are compared.
type OverCall = (&'static str, Rule);

/// Those over a frame. Sums are those that stay within their types, and are exact in any order; see the aggregates of windows. Left out
/// are aggregates that DuckDB lacks, and deviations of floats, which are NaN here where a value is not finite.
const OF_FRAMES: &[OverCall] = &[
    ("count(*)", Rule::Exact),
    ("count(v)", Rule::Exact),
    ("sum(j)", Rule::Exact),
    ("sum(id)", Rule::Exact),
    ("sum(d)", Rule::Exact),
    ("sum(y)", Rule::Exact),
    ("avg(v)", Rule::Near),
    ("avg(d)", Rule::Near),
    ("avg(y)", Rule::Near),
    ("min(v)", Rule::Exact),
    ("max(v)", Rule::Exact),
    ("min(x)", Rule::Exact),
    ("max(x)", Rule::Exact),
    ("min(t)", Rule::Exact),
    ("max(h)", Rule::Exact),
    ("min(d)", Rule::Exact),
    ("var_samp(v % 100)", Rule::Near),
    ("var_pop(d)", Rule::Near),
    ("stddev_pop(j)", Rule::Near),
    ("bool_and(b)", Rule::Exact),
    ("bool_or(b)", Rule::Exact),
    ("string_agg(t, ';')", Rule::Exact),
    ("first_value(v)", Rule::Exact),
    ("first_value(x)", Rule::Exact),
    ("first_value(t)", Rule::Exact),
    ("last_value(t)", Rule::Exact),
    ("last_value(h)", Rule::Exact),
    ("count(*) FILTER (WHERE v > 0)", Rule::Exact),
    ("sum(d) FILTER (WHERE b)", Rule::Exact),
    ("max(x) FILTER (WHERE j = 1)", Rule::Exact),
];

/// Those of all rows before.
const OF_ROWS: &[OverCall] = &[
    ("row_number()", Rule::Exact),
    ("lag(v)", Rule::Exact),
    ("lag(x, 2)", Rule::Exact),
    ("lag(t, 3)", Rule::Exact),
    ("lag(h)", Rule::Exact),
    ("lag(d, 7)", Rule::Exact),
    ("lag(b, 0)", Rule::Exact),
    ("lag(j, 1, j)", Rule::Exact),
    ("lag(ts, 2)", Rule::Exact),
];

/// Those of a value that is computed from lists, which `$` stands for.
const OF_VALUES: &[OverCall] = &[
    ("count($)", Rule::Exact),
    ("min($)", Rule::Exact),
    ("max($)", Rule::Exact),
    ("first_value($)", Rule::Exact),
    ("last_value($)", Rule::Exact),
    ("count(*) FILTER (WHERE $ IS NOT NULL)", Rule::Exact),
];

const FRAMES: &[&str] = &[
    "ROWS 3 PRECEDING",
    "ROWS 0 PRECEDING",
    "ROWS UNBOUNDED PRECEDING",
    "ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING",
    "ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING",
    "ROWS BETWEEN 40 PRECEDING AND CURRENT ROW",
];

const PARTITIONS: &[&str] = &["", "", "k", "j", "b, j", "v % 3", "x", "d", "h", "coalesce(k, 'none')"];

/// A query of this kind.
#[derive(Clone, Debug)]
pub(crate) struct OverSpec {
    /// Beside the number of the row.
    output: Option<Term>,
    calls: Vec<OverItem>,
    filter: Option<Term>,
}

/// A call, and what it is over.
#[derive(Clone, Debug)]
struct OverItem {
    call: OverCall,
    of: Option<Term>,
    partition: Term,
    frame: &'static str,
}

impl OverSpec {
    pub(crate) fn new(lists: &mut Lists, random: &mut Rng) -> OverSpec {
        // Most queries have one partition, as people write them.
        let partition = lists.value_or(PARTITIONS, random, &OF_S);
        let count = random.usize(1..6);
        let call = |_| {
            let partition = match random.u8(0..4) {
                0 => Term::Alike(PARTITIONS[random.usize(0..PARTITIONS.len())]),
                _ => partition.clone(),
            };
            let of = (random.u8(0..5) == 0).then(|| lists.value(random, &OF_S));
            if random.u8(0..3) == 0 {
                let call = match of {
                    Some(_) => ("lag($)", Rule::Exact),
                    None => OF_ROWS[random.usize(0..OF_ROWS.len())],
                };
                return OverItem { call, of, partition, frame: "" };
            }
            let calls = if of.is_some() { OF_VALUES } else { OF_FRAMES };
            let call = calls[random.usize(0..calls.len())];
            let mut frame = FRAMES[random.usize(0..FRAMES.len())];
            if call.0.starts_with("string_agg") && frame.contains("UNBOUNDED") {
                // Refused: texts of all rows before would be kept indefinitely.
                frame = FRAMES[0];
            }
            OverItem { call, of, partition, frame }
        };
        let calls = (0..count).map(call).collect();
        let filter = (random.u8(0..3) == 0).then(|| lists.condition_or(FILTERS, random, &OF_S));
        let output = (random.u8(0..3) == 0).then(|| lists.value_or(&["nums", "tags"], random, &OF_S));
        OverSpec { output, calls, filter }
    }

    pub(crate) fn texts(&self) -> Texts {
        let outputs = vec![Rule::Exact; 1 + usize::from(self.output.is_some())];
        let rules = outputs.into_iter().chain(self.calls.iter().map(|item| item.call.1)).collect();
        // Rows are in order of their arrival, which is `n` for DuckDB.
        Texts { ours: self.sql(false), theirs: self.sql(true), rules, last_of: 0 }
    }

    fn sql(&self, is_theirs: bool) -> String {
        let order = if is_theirs { "ORDER BY n" } else { "" };
        let calls = self.calls.iter().map(|OverItem { call: (call, _), of, partition, frame }| {
            let call = of.as_ref().map_or((*call).to_owned(), |of| call.replace('$', &of.sql(is_theirs)));
            let partition = partition.sql(is_theirs);
            let partition = if partition.is_empty() { String::new() } else { format!("PARTITION BY {partition}") };
            let parts = [partition.as_str(), order, frame];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            format!(", {call} OVER ({})", parts.join(" "))
        });
        let filter = self.filter.as_ref().map_or(String::new(), |filter| format!(" WHERE {}", filter.sql(is_theirs)));
        let output = self.output.as_ref().map_or(String::new(), |output| format!(", {}", output.sql(is_theirs)));
        format!("SELECT id{output}{} FROM s{filter}", calls.collect::<String>())
    }

    pub(crate) fn smaller(&self) -> Vec<OverSpec> {
        let mut found = Vec::new();
        if self.filter.is_some() {
            found.push(OverSpec { filter: None, ..self.clone() });
        }
        if self.output.is_some() {
            found.push(OverSpec { output: None, ..self.clone() });
        }
        for less in self.filter.iter().flat_map(Term::smaller) {
            found.push(OverSpec { filter: Some(less), ..self.clone() });
        }
        for less in self.output.iter().flat_map(Term::smaller) {
            found.push(OverSpec { output: Some(less), ..self.clone() });
        }
        for place in 0..self.calls.len() {
            if self.calls.len() > 1 {
                let mut less = self.clone();
                less.calls.remove(place);
                found.push(less);
            }
            let none = Term::Alike("");
            let partitions = self.calls[place].partition.smaller();
            for partition in
                partitions.into_iter().chain((!self.calls[place].partition.ours().is_empty()).then_some(none))
            {
                let mut less = self.clone();
                less.calls[place].partition = partition;
                found.push(less);
            }
            for of in self.calls[place].of.iter().flat_map(Term::smaller) {
                let mut less = self.clone();
                less.calls[place].of = Some(of);
                found.push(less);
            }
        }
        found
    }
}

/// Fixed queries: windows with names, and calls within and behind other steps. They are for [tame](crate::events::Events::is_tame) rows.
pub(crate) fn fixed() -> Vec<Texts> {
    let ns = 3_000_000_000_i64;
    let ordered = |sql: &str, order: &str, rules: Vec<Rule>| Texts {
        ours: sql.replace("ORDER ", ""),
        theirs: sql.replace("ORDER ", &format!("ORDER BY {order} ")),
        rules,
        last_of: 0,
    };
    let grouped = "n - lag(n) OVER (PARTITION BY k ORDER ), max(n) OVER (PARTITION BY k ORDER ROWS 2 PRECEDING)";
    vec![
        ordered(
            "SELECT id, string_agg(t, ';') OVER w, count(*) OVER w, sum(j) OVER all_rows, lag(k) OVER w FROM s \
             WINDOW w AS (PARTITION BY k ORDER ROWS 4 PRECEDING), all_rows AS (ORDER ROWS 9 PRECEDING)",
            "n",
            vec![Rule::Exact; 5],
        ),
        ordered(
            "SELECT * FROM (SELECT id, k, v - lag(v) OVER (PARTITION BY k ORDER ) AS d FROM s) x WHERE d > 0",
            "n",
            vec![Rule::Exact; 3],
        ),
        Texts {
            ours: format!(
                "SELECT k, window_start, n, {} FROM (SELECT k, window_start, count(*) AS n FROM s GROUP BY k, \
                 TUMBLE(ts, INTERVAL '3 seconds')) x",
                grouped.replace("ORDER ", "")
            ),
            theirs: format!(
                "SELECT k, ws, n, {} FROM (SELECT k, floor_to(ts, {ns}) AS ws, count(*) AS n FROM s GROUP BY k, ws)",
                grouped.replace("ORDER ", "ORDER BY ws ")
            ),
            rules: vec![Rule::Exact; 5],
            last_of: 0,
        },
    ]
}
