//! Queries with state in SQL: keys of different types, times that come from other stages, bounds.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use stateful_support::sql::SqlRun;

const LEFT: (&str, &str) = ("l", "ts timestamp\nk i64\n");
const RIGHT: (&str, &str) = ("r", "ts timestamp\nk i64 null\nw i64\n");

#[test]
fn keys_are_equal_also_where_only_one_of_them_may_be_null() {
    for join in [
        "SELECT l.k, r.w FROM l JOIN r ON l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '1 second' AND l.ts",
        "SELECT l.k, r.w FROM l LEFT JOIN r ON l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '1 second' AND l.ts",
        "SELECT l.k, r.w FROM l ASOF JOIN r ON l.k = r.k AND l.ts >= r.ts",
        "SELECT l.k, r.w FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.ts >= r.ts",
    ] {
        let mut run = SqlRun::new(join, &[LEFT, RIGHT]);
        run.feed("r", &["1|7|70", "2|null|80"]);
        run.feed("l", &["3|7"]);
        assert_eq!(run.rows, ["7|70"], "{join}");
    }
}
