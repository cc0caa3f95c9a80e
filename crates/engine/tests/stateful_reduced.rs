//! A query with state gives the same rows whether its streams are reduced in front of it or not.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use crossdock_engine::Tables;
use crossdock_query::{Query, parse_query};
use proptest::prelude::*;
use stateful_support::sql::SqlRun;

const SCHEMA: &str = "ts timestamp null\nk string null\nv i64 null\nnote string null\nw i64\n";
const STREAMS: [(&str, &str); 2] = [("A", SCHEMA), ("B", SCHEMA)];

/// Queries of all kinds of stages, with conditions that may have row errors and such that may not.
const QUERIES: [&str; 13] = [
    "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM A WHERE v > 2 GROUP BY k",
    "SELECT k, COUNT(*) AS n FROM A WHERE 10 / v > 1 AND w < 5 GROUP BY k HAVING COUNT(*) > 1",
    "SELECT k, COUNT(*) AS n FROM A WHERE w < 5 AND 10 / v > 1 GROUP BY k",
    "SELECT k, window_start, MAX(v) AS m FROM A WHERE k <> 'b' GROUP BY k, TUMBLE(ts, INTERVAL '1 second') LATENESS INTERVAL '2 seconds'",
    "SELECT COUNT(*) AS n FROM A",
    "SELECT k, v, lag(v) OVER (PARTITION BY k) AS before FROM A WHERE v IS NOT NULL",
    "SELECT k, v, row_number() OVER (PARTITION BY k) AS n FROM A WHERE w < 7 QUALIFY n < 3",
    "SELECT a.v, b.w FROM A a JOIN B b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '2 seconds' AND a.ts WHERE a.v > 1 AND b.w < 7",
    "SELECT a.v, b.v AS other FROM A a JOIN A b ON a.k = b.k WHERE a.v > 3 AND b.w < 4",
    "SELECT a.v, b.w FROM A a ASOF LEFT JOIN B b ON a.k = b.k AND a.ts >= b.ts WHERE a.w > 2",
    "SELECT k, v FROM A WHERE v > 4 UNION ALL SELECT k, w AS v FROM B WHERE k = 'a'",
    "WITH late AS (SELECT k, v FROM A WHERE v > 1 AND note LIKE '%x%') SELECT k, AVG(v) AS m FROM late GROUP BY k",
    "SELECT k, COUNT(DISTINCT v) AS n FROM A WHERE 2 > 3 GROUP BY k",
];

fn rows() -> impl Strategy<Value = String> {
    let perhaps = |text: &'static str| prop::option::weighted(0.85, text.prop_map(|text| text));
    let number = prop::option::weighted(0.85, -2i64..8);
    (0i64..20, perhaps("[abc]"), number, perhaps("[xy]{0,3}"), 0i64..9).prop_map(|(ts, k, v, note, w)| {
        let or_null = |text: Option<String>| text.unwrap_or_else(|| "null".to_owned());
        let v = or_null(v.map(|v| v.to_string()));
        format!("{}|{}|{v}|{}|{w}", ts * 500_000_000, or_null(k), or_null(note))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn results_are_the_same_with_reductions_in_front(
        batches in prop::collection::vec((0usize..2, prop::collection::vec(rows(), 1..9)), 1..12),
        at in 0..QUERIES.len(),
    ) {
        let sql = QUERIES[at];
        let Query::Stateful(query) = parse_query(sql).unwrap() else { panic!("{sql} keeps no state") };
        let read: Vec<&str> = query.streams();
        let tables = Tables::default();
        let mut runs = [SqlRun::with_tables(sql, &STREAMS, &tables), SqlRun::reduced(sql, &STREAMS, &tables)];
        for run in &mut runs {
            for (stream, rows) in batches.iter().filter(|(stream, _)| read.contains(&STREAMS[*stream].0)) {
                run.feed(STREAMS[*stream].0, rows);
            }
            STREAMS.iter().filter(|(name, _)| read.contains(name)).for_each(|(name, _)| run.end(name));
        }
        let [whole, cut] = runs;
        prop_assert_eq!(&whole.rows, &cut.rows, "{}", sql);
        let counts = |run: &SqlRun| (run.counters().taken, run.counters().late, run.counters().row_errors);
        prop_assert_eq!(counts(&whole), counts(&cut), "{}", sql);
        prop_assert!(cut.counters().records_in <= whole.counters().records_in);
    }
}
