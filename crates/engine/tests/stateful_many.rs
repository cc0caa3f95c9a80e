//! Joins of up to eight streams against nested loops over the whole history.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use std::fmt::Write as _;

use crossdock_query::{JoinKind, parse_query};
use proptest::prelude::*;
use stateful_support::sql::{SqlRun, planned};

const SECOND: i64 = 1_000_000_000;
const SCHEMA: &str = "k i64 null\nts timestamp\nn i64\n";
const STREAMS: [(&str, &str); 8] = [
    ("s0", SCHEMA),
    ("s1", SCHEMA),
    ("s2", SCHEMA),
    ("s3", SCHEMA),
    ("s4", SCHEMA),
    ("s5", SCHEMA),
    ("s6", SCHEMA),
    ("s7", SCHEMA),
];
/// No row is this much older than another one, in seconds.
const SPAN_S: i64 = 40;

/// A row of a stream.
#[derive(Clone, Copy, Debug)]
struct Row {
    k: Option<i64>,
    ts_s: i64,
    n: i64,
}

/// The join of a stream with one of those before it.
#[derive(Clone, Copy, Debug)]
struct With {
    kind: JoinKind,
    /// The stream before.
    other: usize,
    /// How much later its time is than that of the other's, in seconds; without bounds of time any.
    within_s: Option<(i64, i64)>,
}

impl With {
    fn is_pair(self, left: &[Option<Row>], right: Row) -> bool {
        let Some(other) = left[self.other] else { return false };
        let distance = right.ts_s - other.ts_s;
        let is_within = self.within_s.is_none_or(|(low, high)| low <= distance && distance <= high);
        right.k.is_some() && right.k == other.k && is_within
    }
}

/// One loop within the other, a stream each.
fn nested_loops(streams: &[Vec<Row>], joins: &[With]) -> Vec<String> {
    let mut rows: Vec<Vec<Option<Row>>> = streams[0].iter().map(|row| vec![Some(*row)]).collect();
    for (at, join) in (1..).zip(joins) {
        let mut next = Vec::new();
        let mut has_partner = vec![false; streams[at].len()];
        for row in &rows {
            let with = |other: Option<Row>| row.iter().copied().chain([other]).collect::<Vec<_>>();
            let before = next.len();
            for (other, found) in streams[at].iter().zip(&mut has_partner) {
                if join.is_pair(row, *other) {
                    next.push(with(Some(*other)));
                    *found = true;
                }
            }
            if next.len() == before && join.kind != JoinKind::Inner {
                next.push(with(None));
            }
        }
        let alone = streams[at].iter().zip(has_partner).filter(|(_, found)| !found && join.kind == JoinKind::Full);
        next.extend(alone.map(|(other, _)| vec![None; at].into_iter().chain([Some(*other)]).collect()));
        rows = next;
    }
    let shown = |row: &Vec<Option<Row>>| {
        let numbers: Vec<String> = row.iter().map(|of| of.map_or("null".to_owned(), |of| of.n.to_string())).collect();
        numbers.join("|")
    };
    let mut rows: Vec<String> = rows.iter().map(shown).collect();
    rows.sort();
    rows
}

fn sql(joins: &[With], lateness_s: Option<i64>) -> String {
    let columns: Vec<String> = (0..=joins.len()).map(|at| format!("s{at}.n AS n{at}")).collect();
    let mut sql = format!("SELECT {} FROM s0", columns.join(", "));
    for (at, With { kind, other, within_s }) in (1..).zip(joins) {
        let word = match kind {
            JoinKind::Inner => "JOIN",
            JoinKind::Left => "LEFT JOIN",
            JoinKind::Full => "FULL JOIN",
        };
        write!(sql, " {word} s{at} ON s{at}.k = s{other}.k").unwrap();
        if let Some((low, high)) = within_s {
            let end = |s: i64| format!("s{other}.ts {} INTERVAL '{}' SECOND", if s < 0 { "-" } else { "+" }, s.abs());
            write!(sql, " AND s{at}.ts BETWEEN {} AND {}", end(*low), end(*high)).unwrap();
        }
    }
    lateness_s.into_iter().for_each(|s| write!(sql, " LATENESS INTERVAL '{s}' SECOND").unwrap());
    sql
}

/// The rows of all streams in turns, as a seed has it; then each stream ends.
fn fed(sql: &str, streams: &[Vec<Row>], seed: u64) -> SqlRun {
    let mut run = SqlRun::new(sql, &STREAMS[..streams.len()]);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rest: Vec<(&str, &[Row])> =
        STREAMS.iter().map(|(name, _)| *name).zip(streams.iter().map(|rows| &rows[..])).collect();
    while !rest.is_empty() {
        let turn = random.usize(..rest.len());
        let (name, rows) = rest[turn];
        let (now, then) = rows.split_at(random.usize(..=rows.len().min(3)));
        let shown = |row: &Row| {
            let key = row.k.map_or("null".to_owned(), |k| k.to_string());
            format!("{key}|{}|{}", row.ts_s * SECOND, row.n)
        };
        run.feed(name, &now.iter().map(shown).collect::<Vec<_>>());
        rest[turn].1 = then;
        if then.is_empty() {
            run.end(name);
            rest.swap_remove(turn);
        }
    }
    run
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (prop::option::weighted(0.9, 0..2i64), 0..SPAN_S).prop_map(|(k, ts_s)| Row { k, ts_s, n: 0 });
    prop::collection::vec(row, 0..7).prop_map(|mut rows| {
        rows.iter_mut().zip(0..).for_each(|(row, n)| row.n = n);
        rows
    })
}

/// Joins with bounds of time, that of the stream at `at` with one of those before it.
fn with(at: usize) -> impl Strategy<Value = With> {
    let kinds = vec![JoinKind::Inner, JoinKind::Inner, JoinKind::Left, JoinKind::Left, JoinKind::Full];
    (prop::sample::select(kinds), 0..at, -16..4i64, 4..24i64).prop_map(|(kind, other, low, width)| With {
        kind,
        other,
        within_s: Some((low, low + width)),
    })
}

fn joins() -> impl Strategy<Value = Vec<With>> {
    prop::sample::select(vec![2, 4, 7, 7, 7]).prop_flat_map(|count: usize| (1..=count).map(with).collect::<Vec<_>>())
}

fn streams() -> impl Strategy<Value = Vec<Vec<Row>>> {
    prop::collection::vec(rows(), 8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// However late rows come, and whichever time a join goes by: the lateness covers all.
    #[test]
    fn joins_of_eight_streams_are_nested_loops(joins in joins(), streams in streams(), (seed, unbound) in any::<(u64, u8)>()) {
        let mut joins = joins;
        for (at, join) in joins.iter_mut().enumerate() {
            // Some of the inner joins are without bounds of time.
            if join.kind == JoinKind::Inner && unbound >> at & 1 == 1 {
                join.within_s = None;
            }
        }
        let sql = sql(&joins, Some(SPAN_S));
        let run = fed(&sql, &streams, seed);
        prop_assert_eq!(run.counters().late, 0);
        prop_assert_eq!(run.sorted(), nested_loops(&streams, &joins), "{}", sql);
    }

    /// Without lateness, each stream in order, and joins that all go by the time of the first stream: what has left early is right too.
    #[test]
    fn joins_of_eight_streams_in_order_need_no_lateness(joins in joins(), streams in streams(), seed in any::<u64>()) {
        let (mut joins, mut streams) = (joins, streams);
        streams.iter_mut().for_each(|rows| rows.sort_by_key(|row| row.ts_s));
        for join in &mut joins {
            join.other = 0;
            // A row of another stream alone has no time of the first one.
            join.kind = if join.kind == JoinKind::Full { JoinKind::Left } else { join.kind };
        }
        let sql = sql(&joins, None);
        let run = fed(&sql, &streams, seed);
        prop_assert_eq!(run.counters().late, 0);
        prop_assert_eq!(run.sorted(), nested_loops(&streams, &joins), "{}", sql);
    }
}

#[test]
fn a_ninth_stream_is_refused_and_goes_with_a_query_within() {
    let with = With { kind: JoinKind::Inner, other: 0, within_s: Some((0, 5)) };
    let mut nine = STREAMS.to_vec();
    nine.push(("s8", SCHEMA));
    let refused = parse_query(&sql(&[with; 8], None)).unwrap_err();
    assert_eq!(refused.message, "more than 8 streams in one FROM");
    assert!(refused.position.is_some() && refused.hint.is_some(), "{refused}");
    let eight = sql(&[with; 7], None);
    let eight = eight.replace(" FROM", ", s0.k AS k, s0.ts AS ts FROM");
    let within = format!("SELECT q.n7, s8.n FROM ({eight}) q JOIN s8 ON s8.k = q.k AND s8.ts = q.ts");
    planned(&within, &nine).unwrap();
}
