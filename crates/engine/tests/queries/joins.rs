//! Random joins of two streams by keys and times.

use fastrand::Rng;

use crate::case::Rule;
use crate::events::{Events, SECOND, lateness, with_marks};
use crate::lists::{Lists, Names, OF_BOTH, ONLY_Q, ONLY_S, Term};
use crate::spec::Texts;

pub(crate) const OUTPUTS: &[&str] = &[
    "s.ts",
    "q.ts",
    "s.k",
    "q.k",
    "s.v",
    "q.w",
    "coalesce(s.k, q.k)",
    "s.v IS NULL",
    "q.x",
    "h",
    "s.j = q.j",
    "CASE WHEN q.w > 0 THEN t ELSE q.k END",
    "d",
    "s.nums",
    "q.tags",
    "q.nums",
    "s.tags[1]",
];

/// Equal columns, of the same type or of others that compare.
const KEYS: &[&str] = &[
    "s.k = q.k",
    "s.j = q.j",
    "s.v = q.w",
    "s.x = q.x",
    "s.t = q.k",
    "s.j = q.w",
    "s.tags[1] = q.k",
    "s.v = q.nums[2]",
    "s.nums[1] = q.nums[1]",
];

/// Further conditions on pairs.
pub(crate) const PAIRS: &[&str] =
    &["s.v < q.w", "s.t <> q.k", "(s.b OR q.w > 0)", "s.x IS DISTINCT FROM q.x", "s.id % 2 = q.id % 2"];

/// Conditions on one stream. They are computed before the step, so a watermark is that of the rows that pass; DuckDB's query does not say
/// so, and they are made only where no row is late.
pub(crate) const OF_ONE: &[&str] =
    &["s.v > 0", "q.w <= 4", "q.k <> ''", "s.b IS NOT FALSE", "s.id IS NULL", "q.id IS NOT NULL"];

/// Conditions of WHERE, on the result.
pub(crate) const WHERES: &[&str] =
    &["s.k IS NOT NULL", "coalesce(q.w, 1) > 0", "s.v IS DISTINCT FROM q.w", "s.id IS NULL OR q.id IS NULL"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Within these times of `q` less those of `s`, in seconds; `true` if the bound itself is among them.
    Within {
        low: (i64, bool),
        high: (i64, bool),
    },
    Asof {
        is_strict: bool,
    },
}

/// A query of this kind.
#[derive(Clone, Debug)]
pub(crate) struct JoinSpec {
    /// Empty, `LEFT `, `RIGHT ` or `FULL `.
    kind: &'static str,
    how: How,
    keys: Vec<&'static str>,
    outputs: Vec<Term>,
    condition: Option<Term>,
    filter: Option<Term>,
    lateness_s: i64,
    /// The rows are grouped by windows of this time and length, in seconds.
    window: Option<(&'static str, i64)>,
    third: Option<ThirdJoin>,
    /// The column that is equal beside the times, which are too: `USING (k, ts)`.
    using: Option<&'static str>,
}

/// A second join behind the first one: with the rows of `q` again, as `r`, whose times less those of `s` are within these seconds.
#[derive(Clone, Copy, Debug)]
struct ThirdJoin {
    /// Empty or `LEFT `.
    kind: &'static str,
    column: &'static str,
    low: i64,
    high: i64,
}

/// The columns of both streams, or of one.
fn names(random: &mut Rng) -> &'static Names {
    match random.u8(0..5) {
        0 => &ONLY_S,
        1 => &ONLY_Q,
        number => &OF_BOTH[usize::from(number) - 2],
    }
}

/// A value of the result.
pub(crate) fn output(lists: &mut Lists, random: &mut Rng) -> Term {
    let names = names(random);
    lists.value_or(OUTPUTS, random, names)
}

/// A condition on pairs.
pub(crate) fn condition_on_pairs(lists: &mut Lists, random: &mut Rng) -> Term {
    loop {
        let names = &OF_BOTH[random.usize(0..3)];
        let condition = lists.condition_or(PAIRS, random, names);
        if condition.is_of_both() {
            return condition;
        }
    }
}

/// A condition on the rows of one stream.
pub(crate) fn condition_on_one(lists: &mut Lists, random: &mut Rng) -> Term {
    let names = [&ONLY_S, &ONLY_Q][random.usize(0..2)];
    lists.condition_or(OF_ONE, random, names)
}

/// A condition of WHERE.
pub(crate) fn condition_on_result(lists: &mut Lists, random: &mut Rng) -> Term {
    let names = names(random);
    lists.condition_or(WHERES, random, names)
}

/// The aggregates of such windows; the second may leave `i64`, and the row of its window is then a row error.
const AGGREGATES: &str = "count(*), sum(w), min(s.v), max(q.x), count(DISTINCT s.k), sum(s.y)";

impl JoinSpec {
    pub(crate) fn new(events: &Events, lists: &mut Lists, random: &mut Rng) -> JoinSpec {
        let one = |all: &[&'static str], random: &mut Rng| all[random.usize(0..all.len())];
        // Of rows of `q` with one time and one key ours takes the one with the greater bytes, DuckDB any: so there are none.
        let is_asof = events.is_unique && random.bool();
        let mut lateness_s = [0, 0, 2, 5, 20][random.usize(0..5)];
        let how = if is_asof {
            // Without LATENESS a row is joined with what has come, which DuckDB does not know where rows come out of order.
            if events.disorder_s > 0 && lateness_s == 0 {
                lateness_s = 5;
            }
            How::Asof { is_strict: random.bool() }
        } else {
            let (low, high) = (random.i64(-6..4), random.i64(1..9));
            // Bounds near the length of all times: for some rows they are beyond them.
            let ages = 86_400 * 100_000;
            let (low, high) = match random.u8(0..8) {
                0 => (low - ages, high),
                1 => (low, high + ages),
                2 => (ages - high, ages),
                _ => (low, low + high),
            };
            match random.u8(0..4) {
                0 => How::Within { low: (0, true), high: (0, true) },
                _ => How::Within { low: (low, random.bool()), high: (high, random.bool()) },
            }
        };
        let kinds: &[&str] = if is_asof { &["", "LEFT "] } else { &["", "LEFT ", "RIGHT ", "FULL "] };
        let kind = one(kinds, random);
        let mut keys = vec![one(KEYS, random)];
        match random.u8(0..4) {
            0 if !is_asof => keys.clear(),
            1 => keys.push(one(KEYS, random)),
            _ => {}
        }
        keys.dedup();
        let outputs = (0..random.usize(1..5)).map(|_| output(lists, random)).collect();
        let has_late = events.disorder_s > 0;
        let condition = match random.u8(0..4) {
            0 if !has_late && is_asof => {
                Some(lists.condition_or(&["q.w <= 4", "q.w <= 4", "q.id IS NULL"], random, &ONLY_Q))
            }
            0 if !has_late => Some(condition_on_one(lists, random)),
            1 if !is_asof => Some(condition_on_pairs(lists, random)),
            _ => None,
        };
        let filter = (!has_late && random.u8(0..4) == 0).then(|| condition_on_result(lists, random));
        // An ASOF join gives the times of `s` in order if its rows wait; the times of `q`, and those of a join without LATENESS, come
        // in any order, and the window would have a watermark of its own.
        let size = [1, 5, 30][random.usize(0..3)];
        let window = match (random.u8(0..4), is_asof) {
            (0, false) => Some((["s.ts", "q.ts"][random.usize(0..2)], size)),
            (0, true) if lateness_s > 0 => Some(("s.ts", size)),
            _ => None,
        };
        // A row of `s` without its key may go before the first join, where it would not come to the watermark; so no row is late.
        let third = (!has_late && window.is_none() && random.u8(0..4) == 0).then(|| {
            let low = random.i64(-6..4);
            let kind = ["", "LEFT "][random.usize(0..2)];
            ThirdJoin { kind, column: ["k", "j"][random.usize(0..2)], low, high: low + random.i64(0..5) }
        });
        let spec = JoinSpec { kind, how, keys, outputs, condition, filter, lateness_s, window, third, using: None };
        if !is_asof && random.u8(0..6) == 0 { spec.with_using(["k", "j"][random.usize(0..2)]) } else { spec }
    }

    /// The same with `USING (column, ts)`.
    fn with_using(self, column: &'static str) -> JoinSpec {
        let key = if column == "k" { "s.k = q.k" } else { "s.j = q.j" };
        let how = How::Within { low: (0, true), high: (0, true) };
        JoinSpec { using: Some(column), keys: vec![key], how, condition: None, third: None, ..self }
    }

    /// The column of USING as DuckDB's query, which has none, can name it.
    fn merged(&self, column: &str) -> String {
        match self.kind {
            "RIGHT " => format!("q.{column}"),
            "FULL " => format!("coalesce(s.{column}, q.{column})"),
            _ => format!("s.{column}"),
        }
    }

    pub(crate) fn texts(&self) -> Texts {
        let columns = match self.window {
            Some(_) => 1 + AGGREGATES.split(", ").count(),
            None => self.outputs.len() + 2 + usize::from(self.third.is_some()) + usize::from(self.using.is_some()),
        };
        let rules = vec![Rule::Exact; columns];
        Texts { ours: self.ours(), theirs: self.theirs(), rules, last_of: 0 }
    }

    fn select(&self, using: &str, is_theirs: bool) -> String {
        let outputs: String = self.outputs.iter().map(|output| format!(", {}", output.sql(is_theirs))).collect();
        let third = if self.third.is_some() { ", r.id" } else { "" };
        let using = if using.is_empty() { String::new() } else { format!(", {using}") };
        format!("SELECT s.id, q.id{outputs}{third}{using} FROM")
    }

    fn filter(&self, is_theirs: bool) -> String {
        self.filter.as_ref().map_or(String::new(), |filter| format!(" WHERE {}", filter.sql(is_theirs)))
    }

    /// Our list, and what follows on the join.
    fn our_ends(&self) -> (String, String) {
        match self.window {
            None => (self.select(self.using.unwrap_or_default(), false), self.filter(false)),
            Some((time, size)) => (
                format!("SELECT window_start, {AGGREGATES} FROM"),
                format!("{} GROUP BY TUMBLE({time}, INTERVAL '{size} seconds')", self.filter(false)),
            ),
        }
    }

    /// The same of DuckDB. A row without the window's time, which a row without a partner may be, belongs to no window.
    fn their_ends(&self) -> (String, String) {
        let using = self.using.map_or(String::new(), |column| self.merged(column));
        let Some((time, size)) = self.window else { return (self.select(&using, true), self.filter(true)) };
        let step = size * SECOND;
        let start = format!("floor_to({}, {step}::HUGEINT)", time.replace(".ts", ".tm"));
        let (least, most) = (i64::MIN, i64::MAX);
        let filter = self.filter.as_ref().map_or(String::new(), |filter| format!("({}) AND ", filter.theirs()));
        (
            format!("SELECT {start} AS ws, {AGGREGATES} FROM"),
            format!(
                " WHERE {filter}{start} BETWEEN {least} AND {} GROUP BY ws HAVING sum(w) IS NULL OR sum(w) BETWEEN {least} AND {most}",
                most - step,
            ),
        )
    }

    fn ours(&self) -> String {
        let mut on: Vec<String> = self.keys.iter().map(|key| (*key).to_owned()).collect();
        let at = |seconds: i64| format!("s.ts + INTERVAL '{seconds} seconds'");
        let op = |op: &str, is_within: bool| if is_within { format!("{op}=") } else { op.to_owned() };
        match self.how {
            How::Within { low: (0, true), high: (0, true) } => on.push("s.ts = q.ts".to_owned()),
            How::Within { low: (low, true), high: (high, true) } => {
                on.push(format!("q.ts BETWEEN {} AND {}", at(low), at(high)));
            }
            How::Within { low, high } => {
                on.push(format!("q.ts {} {}", op(">", low.1), at(low.0)));
                on.push(format!("q.ts {} {}", op("<", high.1), at(high.0)));
            }
            How::Asof { is_strict } => on.push(format!("s.ts {} q.ts", op(">", !is_strict))),
        }
        on.extend(self.condition.as_ref().map(|condition| format!("({})", condition.ours())));
        let word = if matches!(self.how, How::Asof { .. }) { "ASOF " } else { "" };
        let (select, mut tail) = self.our_ends();
        if let Some(ThirdJoin { kind, column, low, high }) = self.third {
            let within = format!("r.ts BETWEEN {} AND {}", at(low), at(high));
            tail = format!(" {kind}JOIN q r ON s.{column} = r.{column} AND {within}{tail}");
        }
        let on = match self.using {
            Some(column) => format!("USING ({column}, ts)"),
            None => format!("ON {}", on.join(" AND ")),
        };
        format!("{select} s {word}{}JOIN q {on}{tail}{}", self.kind, lateness(self.lateness_s))
    }

    fn theirs(&self) -> String {
        // DuckDB has no FULL JOIN without equal columns.
        let mut on = vec!["1 = 1".to_owned()];
        on.extend(self.keys.iter().map(|key| (*key).to_owned()));
        let op = |op: &str, is_within: bool| if is_within { format!("{op}=") } else { op.to_owned() };
        let mut condition_of_q = None;
        match self.how {
            How::Within { low, high } => {
                on.push(format!("q.tm {} s.tm + {}", op(">", low.1), low.0 * SECOND));
                on.push(format!("q.tm {} s.tm + {}", op("<", high.1), high.0 * SECOND));
                on.extend(self.condition.as_ref().map(Term::theirs));
            }
            How::Asof { is_strict } => {
                on.remove(0);
                on.push(format!("s.tm {} q.tm", op(">", !is_strict)));
                condition_of_q = self.condition.as_ref().map(|condition| condition.theirs().replace("q.", ""));
            }
        }
        let (word, right) = match self.how {
            How::Asof { .. } => ("ASOF ", " AND tm IS NOT NULL"),
            How::Within { .. } => ("", ""),
        };
        // A row that is older than its stream's watermark is late, and no row of the join.
        let rows = |stream: &str, more: &str, condition: Option<&str>| {
            let mut conditions = self.keys_there(stream);
            conditions.extend(condition.map(str::to_owned));
            let conditions = (!conditions.is_empty()).then(|| conditions.join(" AND "));
            let marked = with_marks(stream, conditions.as_deref(), self.lateness_s);
            let is_there = if self.has_late_rows() { "(tm IS NULL OR mark IS NULL OR tm >= mark)" } else { "TRUE" };
            format!("(SELECT * FROM {marked} WHERE {is_there}{more})")
        };
        let (select, mut tail) = self.their_ends();
        if let Some(ThirdJoin { kind, column, low, high }) = self.third {
            let within = format!("r.tm BETWEEN s.tm + {} AND s.tm + {}", low * SECOND, high * SECOND);
            let marked = with_marks("q", None, self.lateness_s);
            tail = format!(" {kind}JOIN {marked} r ON s.{column} = r.{column} AND {within}{tail}");
        }
        format!(
            "{select} {} s {word}{}JOIN {} q ON {}{tail}",
            rows("s", "", None),
            self.kind,
            rows("q", right, condition_of_q.as_deref()),
            on.join(" AND ")
        )
    }

    /// That the keys of a stream are not null, where a row without a partner is of no use: such a row does not come to the step, and its time
    /// not to the watermark.
    fn keys_there(&self, stream: &str) -> Vec<String> {
        if matches!((self.kind, stream), ("FULL ", _) | ("LEFT ", "s") | ("RIGHT ", "q")) {
            return Vec::new();
        }
        let column = |key: &&str| {
            let (left, right) = key.split_once(" = ")?;
            let side = if stream == "s" { left } else { right };
            side.split_once('.').map(|(_, column)| format!("{column} IS NOT NULL"))
        };
        self.keys.iter().filter_map(column).collect()
    }

    /// Whether a row that is older than the watermark is dropped: an ASOF join without LATENESS takes rows as they come.
    fn has_late_rows(&self) -> bool {
        self.lateness_s > 0 || !matches!(self.how, How::Asof { .. })
    }

    pub(crate) fn smaller(&self) -> Vec<JoinSpec> {
        let mut found = Vec::new();
        let mut add = |change: &dyn Fn(&mut JoinSpec)| {
            let mut less = self.clone();
            change(&mut less);
            found.push(less);
        };
        if self.window.is_some() {
            add(&|less| less.window = None);
        }
        if self.third.is_some() {
            add(&|less| less.third = None);
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
            if less.is_of_both() {
                add(&|spec| spec.condition = Some(less.clone()));
            }
        }
        for place in 0..self.outputs.len() {
            self.outputs[place].smaller().iter().for_each(|less| add(&|spec| spec.outputs[place] = less.clone()));
        }
        if self.using.is_some() {
            add(&|less| less.using = None);
        } else if self.keys.len() > 1 || matches!(self.how, How::Within { .. }) {
            (0..self.keys.len()).for_each(|place| add(&|less| _ = less.keys.remove(place)));
        }
        (0..self.outputs.len()).for_each(|place| add(&|less| _ = less.outputs.remove(place)));
        if !self.kind.is_empty() {
            add(&|less| less.kind = "");
        }
        found
    }
}
