//! Parts that a query has several times are computed once, and give what parts of their own give.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use crossdock_engine::{Handler as _, OperatorCounters, SavedStateError};
use proptest::prelude::*;
use stateful_support::sql::{SqlRun, planned};

const SCHEMA: &str = "ts timestamp null\nk string null\nv i64 null\nw i64\n";
const STREAMS: [(&str, &str); 2] = [("A", SCHEMA), ("B", SCHEMA)];

/// A query of two equal parts, `p` and `o`.
struct Twice {
    /// The part, with `#` where another aggregate may stand.
    part: &'static str,
    rest: &'static str,
    /// Whether its result goes by event time, and not by the order in which rows arrive.
    is_timed: bool,
}

const HOP: &str = "SELECT k, window_start AS ws, window_end AS we, count(*) AS n, sum(v) AS s # FROM A
     GROUP BY k, HOP(ts, INTERVAL '1 second', INTERVAL '3 seconds') LATENESS INTERVAL '4 seconds'";
const SESSION: &str = "SELECT k, window_end AS we, count(*) AS n, min(v) AS s # FROM A WHERE v > 0
     GROUP BY k, SESSION(ts, INTERVAL '1 second') LATENESS INTERVAL '4 seconds'";
const JOINED: &str = "SELECT b.k AS k, window_start AS ws, count(*) AS n # FROM A a JOIN B b ON a.k = b.k
     AND b.ts BETWEEN a.ts - INTERVAL '1 second' AND a.ts + INTERVAL '1 second'
     GROUP BY b.k, TUMBLE(a.ts, INTERVAL '2 seconds') LATENESS INTERVAL '4 seconds'";
const RUNNING: &str = "SELECT k, count(*) AS n, max(v) AS s # FROM A GROUP BY k";

const QUERIES: [Twice; 9] = [
    Twice {
        part: HOP,
        rest: "SELECT p.k, p.ws, p.n FROM p JOIN (SELECT window_start AS ws, max(n) AS n FROM o
               GROUP BY TUMBLE(ws, INTERVAL '1 second')) m ON p.n = m.n AND p.ws = m.ws",
        is_timed: true,
    },
    Twice { part: HOP, rest: "SELECT k, ws, n FROM p UNION ALL SELECT k, we, s FROM o WHERE n > 1", is_timed: true },
    Twice {
        part: HOP,
        rest: "SELECT p.k, p.ws, p.n, o.k AS other, o.s FROM p FULL JOIN o ON p.k = o.k AND o.ws = p.ws - INTERVAL '3 seconds'",
        is_timed: true,
    },
    Twice {
        part: HOP,
        rest: "SELECT window_start, count(*), sum(n) FROM (SELECT ws, n FROM p UNION ALL SELECT we, n FROM o WHERE s > 1) u
               GROUP BY TUMBLE(ws, INTERVAL '2 seconds') LATENESS INTERVAL '1 minute'",
        is_timed: true,
    },
    Twice {
        part: SESSION,
        rest: "SELECT p.k, p.we, o.n FROM p LEFT JOIN o ON p.k = o.k AND o.we BETWEEN p.we - INTERVAL '3 seconds' AND p.we",
        is_timed: true,
    },
    Twice { part: JOINED, rest: "SELECT k, ws, n FROM p UNION ALL SELECT k, ws, n FROM o", is_timed: true },
    Twice { part: RUNNING, rest: "SELECT k, n FROM p UNION ALL SELECT k, s FROM o WHERE n < 9", is_timed: false },
    Twice { part: RUNNING, rest: "SELECT p.k, o.n, o.s FROM p JOIN o ON p.k = o.k CHANGES", is_timed: false },
    Twice {
        part: RUNNING,
        rest: "SELECT p.n, b.w FROM p JOIN B b ON p.n = b.w UNION ALL SELECT o.n, b.v FROM o JOIN B b ON o.n = b.v",
        is_timed: false,
    },
];

impl Twice {
    fn sql(&self, more: &str) -> String {
        let (part, other) = (self.part.replace('#', ""), self.part.replace('#', more));
        format!("WITH p AS ({part}), o AS ({other}) {}", self.rest)
    }

    fn shared(&self) -> String {
        self.sql("")
    }

    /// The same where the second part has a column more that nobody reads.
    fn apart(&self) -> String {
        self.sql(", max(7) AS more")
    }

    fn has_other(&self) -> bool {
        self.sql("").contains("JOIN B")
    }
}

fn run(sql: &str) -> SqlRun {
    let streams: Vec<(&str, &str)> =
        STREAMS.into_iter().filter(|(name, _)| *name == "A" || sql.contains("JOIN B")).collect();
    SqlRun::new(sql, &streams)
}

/// A time in units of 0.5 s, and the columns of its row.
type Row = (i64, String);

fn rows(most: usize) -> impl Strategy<Value = Vec<(usize, Row)>> {
    let perhaps = |text: &'static str| prop::option::weighted(0.9, text.prop_map(|text| text));
    let row = (0..2usize, 0..30i64, perhaps("[ab]|zebra"), prop::option::weighted(0.85, -2..8i64), 0..9i64);
    let row = row.prop_map(|(stream, at, k, v, w)| {
        let v = v.map_or("null".to_owned(), |v| v.to_string());
        (stream, (at, format!("{}|{v}|{w}", k.unwrap_or("null".to_owned()))))
    });
    prop::collection::vec(row, 1..most)
}

fn feed(run: &mut SqlRun, query: &Twice, rows: &[(usize, Row)]) {
    for (stream, (at, rest)) in rows.iter().filter(|(stream, _)| *stream == 0 || query.has_other()) {
        run.feed(STREAMS[*stream].0, &[format!("{}|{rest}", at * 500_000_000)]);
    }
}

fn end(run: &mut SqlRun, query: &Twice) {
    STREAMS.iter().filter(|(name, _)| *name == "A" || query.has_other()).for_each(|(name, _)| run.end(name));
}

#[test]
fn the_queries_of_these_tests_have_parts_that_are_shared_and_such_that_are_not() {
    for query in &QUERIES {
        let [shared, apart] = [query.shared(), query.apart()].map(|sql| planned(&sql, &STREAMS).unwrap());
        assert!(shared.stages.len() < apart.stages.len(), "{}", query.shared());
        // Of groups over a join the join is shared even so.
        assert!(shared.sources.len() <= apart.sources.len(), "{}", query.shared());
        assert!(shared.stages.iter().any(|stage| stage.outputs.len() == 2), "{}", query.shared());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// In order, out of order, and late: the rows of a shared part are those of parts of their own. By arrival also their order is the same.
    #[test]
    fn shared_parts_give_what_parts_of_their_own_give(rows in rows(60), at in 0..QUERIES.len(), ends in any::<bool>()) {
        let query = &QUERIES[at];
        let mut runs = [query.shared(), query.apart()].map(|sql| run(&sql));
        for run in &mut runs {
            feed(run, query, &rows);
            if ends {
                end(run, query);
                // A stream that begins again.
                feed(run, query, &rows[rows.len() / 2..]);
                end(run, query);
            }
        }
        let [shared, apart] = runs;
        prop_assert_eq!(shared.sorted(), apart.sorted(), "{}", query.shared());
        if query.part == RUNNING {
            prop_assert_eq!(&shared.rows, &apart.rows, "{}", query.shared());
        }
        prop_assert_eq!(shared.counters().taken, apart.counters().taken);
        prop_assert!(shared.counters().late <= apart.counters().late);
        let bytes = |run: &SqlRun| run.handler().state_bytes();
        prop_assert!(bytes(&shared) <= bytes(&apart), "{} and {}", bytes(&shared), bytes(&apart));
    }

    /// Within the lateness, whatever the order of arrival: the same rows.
    #[test]
    fn results_of_shared_parts_do_not_depend_on_the_interleaving(
        rows in rows(60), at in 0..QUERIES.len(), seed in any::<u64>(),
    ) {
        let query = &QUERIES[at];
        prop_assume!(query.is_timed);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut delayed: Vec<(i64, (usize, Row))> =
            rows.iter().map(|row| (row.1.0 + random.i64(0..=8), row.clone())).collect();
        random.shuffle(&mut delayed);
        delayed.sort_by_key(|(at, _)| *at);
        let shuffled: Vec<(usize, Row)> = delayed.into_iter().map(|(_, row)| row).collect();
        let mut in_order = rows;
        in_order.sort_by_key(|(_, (at, _))| *at);
        let results = [in_order, shuffled].map(|rows| {
            let mut run = run(&query.shared());
            feed(&mut run, query, &rows);
            end(&mut run, query);
            (run.sorted(), run.counters().late)
        });
        prop_assert_eq!(&results[0], &results[1], "{}", query.shared());
        prop_assert_eq!(results[0].1, 0);
    }

    /// A state that is saved goes on, and one of parts of their own is of another kind.
    #[test]
    fn the_state_of_a_shared_part_is_saved_once(rows in rows(60), cut in 0..60usize, at in 0..QUERIES.len()) {
        let query = &QUERIES[at];
        let (before, rest) = rows.split_at(cut.min(rows.len()));
        let [mut whole, mut after, mut apart] = [query.shared(), query.shared(), query.apart()].map(|sql| run(&sql));
        feed(&mut whole, query, before);
        feed(&mut apart, query, before);
        after.restore(&whole.saved()).unwrap();
        whole.rows.clear();
        for run in [&mut whole, &mut after] {
            feed(run, query, rest);
            end(run, query);
        }
        prop_assert_eq!(whole.sorted(), after.sorted(), "{}", query.shared());
        prop_assert_eq!(run(&query.shared()).restore(&apart.saved()), Err(SavedStateError::OtherKind));
        prop_assert_eq!(run(&query.apart()).restore(&whole.saved()), Err(SavedStateError::OtherKind));
    }

    /// Whatever goes, the state is not beyond its bound.
    #[test]
    fn shared_parts_stay_within_the_bound_of_the_state(rows in rows(80), at in 0..QUERIES.len(), bound in 0..4000usize) {
        let query = &QUERIES[at];
        let sql = query.shared();
        let mut run = SqlRun::bounded(&sql, if query.has_other() { &STREAMS[..] } else { &STREAMS[..1] }, bound);
        for row in &rows {
            feed(&mut run, query, std::slice::from_ref(row));
            prop_assert!(run.handler().state_bytes() <= bound, "{} of {bound}: {sql}", run.handler().state_bytes());
        }
    }
}

/// The counts of each source, of each stage, and of each further place where a stage's rows go.
#[test]
fn each_place_where_the_rows_of_a_shared_part_go_has_a_count() {
    let query = &QUERIES[1];
    let mut run = run(&query.shared());
    let row = |at: i64, k: &str| (0, (at, format!("{k}|1|0")));
    feed(&mut run, query, &[row(0, "a"), row(1, "a"), row(2, "b")]);
    end(&mut run, query);
    let mut counts: Vec<OperatorCounters> = Vec::new();
    run.handler().operator_counters(&mut |place, of| {
        assert_eq!(place, counts.len());
        counts.push(of);
    });
    let seen: Vec<(u64, u64)> = counts.iter().map(|of| (of.rows_in, of.rows_out)).collect();
    // Three windows of each key; those of `a` alone have two rows.
    assert_eq!(seen, [(3, 3), (3, 6), (9, 9), (0, 3)]);
    assert_eq!(run.rows.len(), 9);
}
