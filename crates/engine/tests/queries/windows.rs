//! Random queries that group rows by windows of time.

use fastrand::Rng;

use crate::case::Rule;
use crate::events::{Events, SECOND, lateness, with_marks};
use crate::lists::{Lists, OF_S, Term};
use crate::spec::Texts;

/// An aggregate; `$` stands for a value that is computed from lists, where it is one of those of them.
#[derive(Debug)]
struct AggregatePair {
    ours: &'static str,
    /// DuckDB's; empty where it is the same.
    theirs: &'static str,
    rule: Rule,
    /// A sum that may leave `i64`: then the whole row of ours is a row error, which drops it.
    is_bounded: bool,
}

const fn alike(ours: &'static str) -> AggregatePair {
    AggregatePair { ours, theirs: "", rule: Rule::Exact, is_bounded: false }
}

const fn near(ours: &'static str) -> AggregatePair {
    AggregatePair { rule: Rule::Near, ..alike(ours) }
}

const fn bounded(ours: &'static str) -> AggregatePair {
    AggregatePair { is_bounded: true, ..alike(ours) }
}

const fn unlike(ours: &'static str, theirs: &'static str) -> AggregatePair {
    AggregatePair { theirs, ..alike(ours) }
}

const fn unlike_near(ours: &'static str, theirs: &'static str) -> AggregatePair {
    AggregatePair { theirs, ..near(ours) }
}

/// Not among them: `approx_count_distinct` and `approx_quantile`, whose estimates are other ones in DuckDB.
///
/// Sums and deviations of floats are those of `y`, whose sums are exact in any order; of `x` two databases that add in another order
/// may have sums without a digit in common. Deviations of whole numbers are those of small ones, for the same reason.
const AGGREGATES: &[AggregatePair] = &[
    alike("count(*)"),
    alike("count(v)"),
    alike("count(x)"),
    bounded("sum(v)"),
    near("avg(v)"),
    alike("min(v)"),
    alike("max(v)"),
    alike("min(t)"),
    alike("max(t)"),
    alike("min(x)"),
    alike("max(x)"),
    alike("min(d)"),
    alike("max(d)"),
    alike("min(h)"),
    alike("max(h)"),
    alike("max(ts)"),
    alike("min(id)"),
    alike("sum(d)"),
    near("avg(d)"),
    alike("sum(y)"),
    near("avg(y)"),
    // As in PostgreSQL, NaN where a value is NaN or infinite; DuckDB has 0 if it is the only one.
    unlike_near(
        "stddev(y)",
        "CASE WHEN count(y) > 1 AND bool_or(NOT isfinite(y)) THEN CAST('NaN' AS DOUBLE) ELSE stddev(y) END",
    ),
    unlike_near(
        "stddev_pop(y)",
        "CASE WHEN bool_or(NOT isfinite(y)) THEN CAST('NaN' AS DOUBLE) ELSE stddev_pop(y) END",
    ),
    near("var_samp(v % 100)"),
    near("var_pop(d)"),
    unlike("first(v)", "first(v ORDER BY tm, v) FILTER (WHERE v IS NOT NULL)"),
    unlike("first(x)", "first(x ORDER BY tm, x) FILTER (WHERE x IS NOT NULL)"),
    unlike("first(h)", "first(h ORDER BY tm, h) FILTER (WHERE h IS NOT NULL)"),
    unlike("last(t)", "last(t ORDER BY tm, t) FILTER (WHERE t IS NOT NULL)"),
    unlike("last(d)", "last(d ORDER BY tm, d) FILTER (WHERE d IS NOT NULL)"),
    unlike("any_value(b)", "first(b ORDER BY tm, b) FILTER (WHERE b IS NOT NULL)"),
    unlike("arg_max(t, x)", "first(t ORDER BY x DESC, tm, t) FILTER (WHERE t IS NOT NULL AND x IS NOT NULL)"),
    unlike("arg_min(v, x)", "first(v ORDER BY x, tm, v) FILTER (WHERE v IS NOT NULL AND x IS NOT NULL)"),
    unlike("arg_max(d, t)", "first(d ORDER BY t DESC, tm, d) FILTER (WHERE d IS NOT NULL AND t IS NOT NULL)"),
    alike("bool_and(b)"),
    alike("bool_or(b)"),
    unlike("string_agg(t, ';')", "string_agg(t, ';' ORDER BY tm, t)"),
    unlike("string_agg(DISTINCT t, ';')", "string_agg(DISTINCT t, ';' ORDER BY t)"),
    // Without values a list is empty here.
    unlike("array_agg(v)", "coalesce(array_agg(v ORDER BY tm, v) FILTER (WHERE v IS NOT NULL), [])"),
    unlike("array_agg(t)", "coalesce(array_agg(t ORDER BY tm, t) FILTER (WHERE t IS NOT NULL), [])"),
    unlike("array_agg(d)", "coalesce(array_agg(d ORDER BY tm, d) FILTER (WHERE d IS NOT NULL), [])"),
    unlike("array_agg(DISTINCT v)", "coalesce(array_agg(DISTINCT v ORDER BY v) FILTER (WHERE v IS NOT NULL), [])"),
    unlike(
        "array_agg(t) FILTER (WHERE b)",
        "coalesce(array_agg(t ORDER BY tm, t) FILTER (WHERE t IS NOT NULL AND b), [])",
    ),
    alike("count(DISTINCT v)"),
    alike("count(DISTINCT x)"),
    alike("count(DISTINCT h)"),
    bounded("sum(DISTINCT v)"),
    near("avg(DISTINCT d)"),
    near("stddev_pop(DISTINCT v % 100)"),
    alike("count(*) FILTER (WHERE v > 0)"),
    bounded("sum(v) FILTER (WHERE b)"),
    unlike("max(TRY(v + 1))", "max(TRY_CAST(v::HUGEINT + 1 AS BIGINT))"),
    unlike("(array_agg(DISTINCT v))[2]", "(array_agg(DISTINCT v ORDER BY v) FILTER (WHERE v IS NOT NULL))[2]"),
    unlike("array_to_string(array_agg(t), '-')", "coalesce(string_agg(t, '-' ORDER BY tm, t), '')"),
];

/// Of values that are computed from lists.
const OF_VALUES: &[AggregatePair] = &[
    alike("count($)"),
    alike("min($)"),
    alike("max($)"),
    alike("count(DISTINCT $)"),
    alike("max(id) FILTER (WHERE $ IS NULL)"),
    unlike("first($)", "first($ ORDER BY tm, $) FILTER (WHERE $ IS NOT NULL)"),
    unlike("last($)", "last($ ORDER BY tm, $) FILTER (WHERE $ IS NOT NULL)"),
    unlike("arg_max($, d)", "first($ ORDER BY d DESC, tm, $) FILTER (WHERE $ IS NOT NULL AND d IS NOT NULL)"),
    unlike("array_agg($)", "coalesce(array_agg($ ORDER BY tm, $) FILTER (WHERE $ IS NOT NULL), [])"),
    unlike("array_agg(DISTINCT $)", "coalesce(array_agg(DISTINCT $ ORDER BY $) FILTER (WHERE $ IS NOT NULL), [])"),
];

/// Of numbers that are.
const OF_NUMBERS: &[AggregatePair] = &[bounded("sum($)"), near("avg($)"), bounded("sum(DISTINCT $)")];

/// Of conditions that are.
const OF_CONDITIONS: &[AggregatePair] = &[
    alike("bool_and($)"),
    alike("bool_or($)"),
    alike("count(*) FILTER (WHERE $)"),
    alike("max(t) FILTER (WHERE $)"),
    bounded("sum(v) FILTER (WHERE $)"),
    unlike(
        "array_agg(v) FILTER (WHERE $)",
        "coalesce(array_agg(v ORDER BY tm, v) FILTER (WHERE v IS NOT NULL AND $), [])",
    ),
];

/// An aggregate of a query.
#[derive(Clone, Debug)]
struct Aggregate {
    pair: &'static AggregatePair,
    of: Option<Term>,
}

impl Aggregate {
    const fn plain(pair: &'static AggregatePair) -> Aggregate {
        Aggregate { pair, of: None }
    }

    fn new(lists: &mut Lists, random: &mut Rng) -> Aggregate {
        let one = |all: &'static [AggregatePair], random: &mut Rng| &all[random.usize(0..all.len())];
        let (all, of) = match random.u8(0..12) {
            0 | 1 => (OF_VALUES, lists.value(random, &OF_S)),
            2 => (OF_NUMBERS, lists.number(random, &OF_S)),
            3 => (OF_CONDITIONS, lists.condition(random, &OF_S)),
            _ => return Aggregate::plain(one(AGGREGATES, random)),
        };
        Aggregate { pair: one(all, random), of: Some(of) }
    }

    fn ours(&self) -> String {
        self.of.as_ref().map_or(self.pair.ours.to_owned(), |of| self.pair.ours.replace('$', &of.ours()))
    }

    fn theirs(&self) -> String {
        let text = if self.pair.theirs.is_empty() { self.pair.ours } else { self.pair.theirs };
        self.of.as_ref().map_or(text.to_owned(), |of| text.replace('$', &of.theirs()))
    }

    fn smaller(&self) -> Vec<Aggregate> {
        let less = self.of.iter().flat_map(Term::smaller);
        less.map(|less| Aggregate { pair: self.pair, of: Some(less) }).collect()
    }
}

const KEYS: &[&str] = &["k", "j", "b", "coalesce(k, 'none')", "v % 3", "x", "y", "d", "h", "t || '-'"];

/// Conditions that are written alike in both dialects.
pub(crate) const FILTERS: &[&str] = &[
    "v > 0",
    "b IS NOT FALSE",
    "t <> ''",
    "id % 3 <> 1",
    "x < 1.5",
    "d * 2 > 0.5",
    "k LIKE '%y%' OR j = 2",
    "v IS DISTINCT FROM 3",
    "FALSE",
];

/// Conditions of HAVING, ours and DuckDB's; the list of no values is empty here.
const HAVINGS: &[(&str, &str)] = &[
    ("count(*) > 1", "count(*) > 1"),
    ("min(v) IS NOT NULL", "min(v) IS NOT NULL"),
    ("max(t) >= 'b'", "max(t) >= 'b'"),
    ("count(DISTINCT k) < 2", "count(DISTINCT k) < 2"),
    ("bool_or(b)", "bool_or(b)"),
    ("sum(y) > 0", "sum(y) > 0"),
    ("2 = ANY(array_agg(v))", "coalesce(bool_or(v = 2), FALSE)"),
    ("5 > ALL(array_agg(v))", "coalesce(max(v) < 5, TRUE)"),
    ("array_agg(t) @> ARRAY['x']", "coalesce(bool_or(t = 'x'), FALSE)"),
    ("cardinality(array_agg(DISTINCT v)) > 1", "count(DISTINCT v) > 1"),
    ("(array_agg(DISTINCT v))[1] < 3", "min(v) < 3"),
    ("array_length(array_agg(t), 1) <= 3", "nullif(count(t), 0) <= 3"),
];

/// The values that the first rows of a window are chosen by, written alike in both dialects.
const ORDERS: &[&str] = &["count(*)", "max(t)", "min(v)", "max(x)", "min(d)", "count(DISTINCT v)", "max(ts)"];

/// The first rows of each window.
#[derive(Clone, Copy, Debug)]
struct FirstSpec {
    order: &'static str,
    direction: &'static str,
    limit: usize,
}

/// The windows, in seconds.
#[derive(Clone, Copy, Debug)]
enum WindowKind {
    Tumble {
        size: i64,
    },
    Hop {
        slide: i64,
        size: i64,
    },
    Session {
        gap: i64,
    },
    /// None: each row brings the present row of its group.
    Running,
}

/// A length near that of all times: its ends are beyond them for some rows.
const AGES: i64 = 86_400 * 100_000;

/// A query of this kind.
#[derive(Clone, Debug)]
pub(crate) struct WindowSpec {
    window: WindowKind,
    keys: Vec<Term>,
    aggregates: Vec<Aggregate>,
    filter: Option<Term>,
    having: Option<(&'static str, &'static str)>,
    lateness_s: i64,
    /// Only of windows of fixed length.
    first: Option<FirstSpec>,
}

impl WindowSpec {
    pub(crate) fn new(events: &Events, lists: &mut Lists, random: &mut Rng) -> WindowSpec {
        let one = |all: &[&'static str], random: &mut Rng| all[random.usize(0..all.len())];
        let (tumble, gap) = ([1, 7, 60, AGES][random.usize(0..4)], [1, 4, 15, AGES][random.usize(0..4)]);
        let (slide, size) = [(2, 6), (5, 10), (1, 9), (7, 7), (AGES / 10, AGES)][random.usize(0..5)];
        let window = match random.u8(0..7) {
            0..2 => WindowKind::Tumble { size: tumble },
            2..4 => WindowKind::Hop { slide, size },
            4..6 => WindowKind::Session { gap },
            _ => WindowKind::Running,
        };
        let mut lateness_s = [0, 0, 2, 5, 20, AGES][random.usize(0..6)];
        if matches!(window, WindowKind::Session { .. }) {
            // A row that is late by less than the pause could have made one of two sessions that are closed, or continues one: it
            // depends on the order of arrival which, and DuckDB's query has no such order. The latest rows are late here too.
            lateness_s = lateness_s.max(events.disorder_s);
        }
        let mut keys = Vec::new();
        for _ in 0..[0, 1, 1, 2][random.usize(0..4)] {
            let key = lists.value_or(KEYS, random, &OF_S);
            if keys.iter().all(|other: &Term| other.ours() != key.ours()) {
                keys.push(key);
            }
        }
        let mut aggregates: Vec<Aggregate> = (0..random.usize(1..6)).map(|_| Aggregate::new(lists, random)).collect();
        let filter = (random.u8(0..3) == 0).then(|| lists.condition_or(FILTERS, random, &OF_S));
        let having = (random.u8(0..4) == 0).then(|| HAVINGS[random.usize(0..HAVINGS.len())]);
        if matches!(window, WindowKind::Running) {
            // The last row of a group is compared; the last one that passes HAVING, or whose sum fits, need not be the last.
            aggregates.retain(|aggregate| !aggregate.pair.is_bounded);
            aggregates.insert(0, Aggregate::plain(&AGGREGATES[0]));
            let more = AGGREGATES.iter().filter(|pair| !pair.is_bounded && random.u8(0..8) == 0);
            aggregates.extend(more.map(Aggregate::plain));
            keys.truncate(1);
            keys.extend(keys.is_empty().then_some(Term::Alike("k")));
            return WindowSpec { window, keys, aggregates, filter, having: None, lateness_s: 0, first: None };
        }
        let is_fixed = !matches!(window, WindowKind::Session { .. });
        let first = (is_fixed && random.u8(0..3) == 0).then(|| FirstSpec {
            order: one(ORDERS, random),
            direction: ["", " DESC", " NULLS FIRST", " DESC NULLS LAST"][random.usize(0..4)],
            limit: random.usize(1..4),
        });
        WindowSpec { window, keys, aggregates, filter, having, lateness_s, first }
    }

    /// One for parts of other queries: windows of fixed length, one key, `count(*)` first, and no aggregate that is compared but for a
    /// rounding.
    pub(crate) fn part(events: &Events, lists: &mut Lists, random: &mut Rng) -> WindowSpec {
        loop {
            let mut spec = WindowSpec::new(events, lists, random);
            spec.aggregates
                .retain(|Aggregate { pair, .. }| pair.rule == Rule::Exact && !pair.ours.starts_with("array_agg"));
            spec.aggregates.insert(0, Aggregate::plain(&AGGREGATES[0]));
            if spec.is_part() {
                return spec;
            }
        }
    }

    pub(crate) fn is_part(&self) -> bool {
        let is_fixed = matches!(self.window, WindowKind::Tumble { .. } | WindowKind::Hop { .. });
        is_fixed && self.keys.len() == 1 && self.aggregates.first().is_some_and(|first| first.pair.ours == "count(*)")
    }

    /// From one window to the next, in seconds.
    pub(crate) fn step_s(&self) -> i64 {
        match self.window {
            WindowKind::Tumble { size } => size,
            WindowKind::Hop { slide, .. } => slide,
            WindowKind::Session { gap } => gap,
            WindowKind::Running => 0,
        }
    }

    /// `WITH p`, in both dialects, whose columns are `c0` for the key, `ws` and `we` for the window, and `a0` and so on, and their number.
    pub(crate) fn with(&self) -> (String, String, usize) {
        let ours = self.ours_with(&|expr, name| format!("{expr} AS {name}"));
        let aggregates: String = (0..self.aggregates.len()).map(|at| format!(", a{at}")).collect();
        let theirs = self.theirs();
        (
            format!("WITH p AS ({ours})"),
            format!("WITH p(c0, ws, we{aggregates}) AS ({theirs})"),
            3 + self.aggregates.len(),
        )
    }

    pub(crate) fn texts(&self) -> Texts {
        let is_running = matches!(self.window, WindowKind::Running);
        let rules = vec![Rule::Exact; self.keys.len() + if is_running { 0 } else { 2 }];
        let rules = rules.into_iter().chain(self.aggregates.iter().map(|aggregate| aggregate.pair.rule)).collect();
        let last_of = if is_running { self.keys.len() } else { 0 };
        Texts { ours: self.ours(), theirs: self.theirs(), rules, last_of }
    }

    fn ours(&self) -> String {
        self.ours_with(&|expr, _| expr.to_owned())
    }

    /// Ours, with what is said of each column of the select list by its expression and the name that it has as a part of another query.
    fn ours_with(&self, column: &dyn Fn(&str, &str) -> String) -> String {
        let keys: Vec<String> = self.keys.iter().map(Term::ours).collect();
        let of_keys = keys.iter().zip(0..).map(|(key, at)| column(key, &format!("c{at}")));
        let of_window = [("window_start", "ws"), ("window_end", "we")].map(|(expr, name)| column(expr, name));
        let aggregates = self.aggregates.iter().zip(0..).map(|(of, at)| column(&of.ours(), &format!("a{at}")));
        let filter = self.filter.as_ref().map_or(String::new(), |filter| format!(" WHERE {}", filter.ours()));
        let having = self.having.map_or(String::new(), |(having, _)| format!(" HAVING {having}"));
        let window = match self.window {
            WindowKind::Tumble { size } => format!("TUMBLE(ts, INTERVAL '{size} seconds')"),
            WindowKind::Hop { slide, size } => {
                format!("HOP(ts, INTERVAL '{slide} seconds', INTERVAL '{size} seconds')")
            }
            WindowKind::Session { gap } => format!("SESSION(ts, INTERVAL '{gap} seconds')"),
            WindowKind::Running => {
                let list: Vec<String> = of_keys.chain(aggregates).collect();
                return format!("SELECT {} FROM s{filter} GROUP BY {}", list.join(", "), keys.join(", "));
            }
        };
        let list: Vec<String> = of_keys.chain(of_window).chain(aggregates).collect();
        let first = self.first.map_or(String::new(), |FirstSpec { order, direction, limit }| {
            format!(" ORDER BY {order}{direction} LIMIT {limit}")
        });
        format!(
            "SELECT {} FROM s{filter} GROUP BY {}{window}{having}{}{first}",
            list.join(", "),
            keys.iter().map(|key| format!("{key}, ")).collect::<String>(),
            lateness(self.lateness_s),
        )
    }

    fn theirs(&self) -> String {
        let named = |template: &str| -> String {
            self.keys
                .iter()
                .enumerate()
                .map(|(at, key)| template.replace('#', &at.to_string()).replace('@', &key.theirs()))
                .collect()
        };
        // A window whose start or end is beyond all times has no rows here.
        let (rows, start, end, group) = match self.window {
            WindowKind::Tumble { size } => Self::fixed(size, size),
            WindowKind::Hop { slide, size } => Self::fixed(slide, size),
            // In order of arrival.
            WindowKind::Running => return self.theirs_of_groups(),
            WindowKind::Session { gap } => {
                let gap = gap * SECOND;
                let over = format!("OVER (PARTITION BY {}1 ORDER BY tm)", named("key#, "));
                let rows = format!(
                    "p AS (SELECT * FROM r WHERE tm + {gap} <= {max} AND (mark IS NULL OR tm + {gap} > mark)), \
                     l AS (SELECT *, tm - lag(tm) {over} >= {gap} AS is_first FROM p), \
                     w AS (SELECT *, count(*) FILTER (WHERE is_first) {over} AS session FROM l)",
                    max = i64::MAX,
                );
                (rows, "min(tm)".to_owned(), format!("max(tm) + {gap}"), "session")
            }
        };
        let mut having: Vec<String> = self.having.iter().map(|(_, having)| format!("({having})")).collect();
        having.extend(self.aggregates.iter().filter(|aggregate| aggregate.pair.is_bounded).map(|aggregate| {
            let sum = aggregate.theirs();
            format!("({sum} IS NULL OR {sum} BETWEEN {} AND {})", i64::MIN, i64::MAX)
        }));
        let having = if having.is_empty() { String::new() } else { format!(" HAVING {}", having.join(" AND ")) };
        // Without a word on nulls they are greater than all values here, and at the end in DuckDB.
        let first = self.first.map_or(String::new(), |FirstSpec { order, direction, limit }| {
            let nulls = if direction == " DESC" { " NULLS FIRST" } else { "" };
            let keys = named(", key# NULLS LAST");
            format!(
                " QUALIFY row_number() OVER (PARTITION BY {group} ORDER BY {order}{direction}{nulls}{keys}) <= {limit}"
            )
        });
        format!(
            "WITH r AS (SELECT *{} FROM {}), {rows} SELECT {}{start}, {end}, {} FROM w GROUP BY {}{group}{having}{first}",
            named(", @ AS key#"),
            with_marks("s", self.filter.as_ref().map(Term::theirs).as_deref(), self.lateness_s),
            named("key#, "),
            self.their_aggregates(),
            named("key#, "),
        )
    }

    fn their_aggregates(&self) -> String {
        self.aggregates.iter().map(Aggregate::theirs).collect::<Vec<_>>().join(", ")
    }

    fn theirs_of_groups(&self) -> String {
        let filter = self.filter.as_ref().map_or(String::new(), |filter| format!(" WHERE {}", filter.theirs()));
        let keys: Vec<String> = self.keys.iter().map(Term::theirs).collect();
        let keys = keys.join(", ");
        format!("SELECT {keys}, {} FROM (SELECT *, n AS tm FROM s{filter}) GROUP BY {keys}", self.their_aggregates())
    }

    /// Of windows of fixed length: the rows, each once for each of its windows that is not closed; the start, the end, and the group.
    fn fixed(slide: i64, size: i64) -> (String, String, String, &'static str) {
        let (step, size) = (slide * SECOND, size * SECOND);
        let (least, most) =
            (i128::from(i64::MIN) + i128::from(size - step).max(0), i128::from(i64::MAX) - i128::from(size));
        let rows = format!(
            "p AS (SELECT *, floor_to(tm, {step}::HUGEINT) AS newest FROM r WHERE tm IS NOT NULL), \
             w AS (SELECT *, newest - range * {step} AS ws FROM p, range({count}) \
             WHERE newest BETWEEN {least} AND {most} AND (mark IS NULL OR newest - range * {step} + {size} > mark))",
            count = size / step,
        );
        (rows, "ws".to_owned(), format!("ws + {size}"), "ws")
    }

    pub(crate) fn smaller(&self) -> Vec<WindowSpec> {
        let mut found = Vec::new();
        let mut add = |change: &dyn Fn(&mut WindowSpec)| {
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
        if self.first.is_some() {
            add(&|less| less.first = None);
        }
        let least = usize::from(matches!(self.window, WindowKind::Running));
        (least..self.keys.len()).for_each(|place| add(&|less| _ = less.keys.remove(place)));
        if self.aggregates.len() > 1 {
            (0..self.aggregates.len()).for_each(|place| add(&|less| _ = less.aggregates.remove(place)));
        }
        for less in self.filter.iter().flat_map(Term::smaller) {
            add(&|spec| spec.filter = Some(less.clone()));
        }
        for place in 0..self.keys.len() {
            self.keys[place].smaller().iter().for_each(|less| add(&|spec| spec.keys[place] = less.clone()));
        }
        for place in 0..self.aggregates.len() {
            self.aggregates[place].smaller().iter().for_each(|less| add(&|spec| spec.aggregates[place] = less.clone()));
        }
        if let WindowKind::Hop { size, .. } = self.window {
            add(&|less| less.window = WindowKind::Tumble { size });
        }
        found
    }
}
