//! Queries with state in SQL: keys of different types, times that come from other stages, bounds.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use crossdock_engine::Handler as _;
use stateful_support::sql::{SqlRun, planned};

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

/// Rows with these times, in seconds, and further columns.
fn at(rows: &[(i64, &str)]) -> Vec<String> {
    rows.iter().map(|(second, rest)| format!("{}|{rest}", second * 1_000_000_000)).collect()
}

/// Times in the rows, in seconds.
fn seconds(rows: &[String]) -> Vec<String> {
    let second = |column: &str| column.strip_suffix("000000000").map_or(column.to_owned(), |time| format!("{time}s"));
    rows.iter().map(|row| row.split('|').map(second).collect::<Vec<_>>().join("|")).collect()
}

const KEYED: (&str, &str) = ("s", "ts timestamp\nk string\n");

#[test]
fn windows_of_windows_take_all_rows_whichever_time_they_go_by() {
    for (time, lateness, wanted) in [
        ("x.window_start", "", ["0|3", "10s|2"]),
        ("x.window_end - INTERVAL '5 seconds'", "", ["0|3", "10s|2"]),
        // The session of b begins before that of a, and ends behind it.
        ("x.most", "LATENESS INTERVAL '5 seconds'", ["0|3", "10s|2"]),
    ] {
        let sql = format!(
            "SELECT window_start, count(*) FROM (SELECT k, window_start, window_end, max(ts) AS most FROM s GROUP BY k, \
             TUMBLE(ts, INTERVAL '5 seconds')) x GROUP BY TUMBLE({time}, INTERVAL '10 seconds') {lateness}"
        );
        let mut run = SqlRun::new(&sql, &[KEYED]);
        run.feed("s", &at(&[(1, "a"), (4, "b"), (9, "a"), (12, "b"), (16, "a"), (100, "a"), (200, "a"), (300, "a")]));
        assert_eq!(seconds(&run.rows)[..2], wanted, "{sql}");
        assert_eq!(run.counters().late, 0, "{sql}");
    }
}

#[test]
fn times_behind_a_join_are_late_only_by_the_lateness_that_the_query_has() {
    let quotes = ("q", "ts timestamp\nk string\n");
    let join = |lateness: &str| {
        format!(
            "SELECT window_start, count(*) FROM (SELECT q.ts AS qts FROM s ASOF JOIN q ON s.k = q.k AND s.ts >= q.ts) x \
             GROUP BY TUMBLE(x.qts, INTERVAL '10 seconds') {lateness}"
        )
    };
    let error = planned(&join(""), &[KEYED, quotes]).unwrap_err();
    assert!(error.contains("do not come in order of `ts_2`"), "{error}");
    let mut run = SqlRun::new(&join("LATENESS INTERVAL '1 hour'"), &[KEYED, quotes]);
    run.feed("q", &at(&[(1, "a"), (40, "b")]));
    run.feed("s", &at(&[(50, "b"), (60, "a"), (70, "b")]));
    run.feed("q", &at(&[(9000, "b")]));
    run.feed("s", &at(&[(9001, "b")]));
    run.feed("q", &at(&[(9002, "b")]));
    assert_eq!(run.counters().late, 0);
    assert_eq!(seconds(&run.rows), ["0|1", "40s|2"]);
}

#[test]
fn each_side_of_a_join_has_a_watermark_of_its_own_behind_it() {
    for (time, wanted) in [("x.lts", ["0|2"]), ("x.rts", ["10s|2"])] {
        let sql = format!(
            "SELECT window_start, count(*) FROM (SELECT l.ts AS lts, r.ts AS rts FROM s l JOIN q r ON l.k = r.k AND r.ts \
             BETWEEN l.ts + INTERVAL '10 seconds' AND l.ts + INTERVAL '15 seconds') x GROUP BY TUMBLE({time}, \
             INTERVAL '10 seconds')"
        );
        let mut run = SqlRun::new(&sql, &[KEYED, ("q", "ts timestamp\nk string\n")]);
        run.feed("s", &at(&[(1, "a"), (4, "b"), (30, "c")]));
        run.feed("q", &at(&[(15, "a"), (18, "b"), (100, "a")]));
        run.feed("s", &at(&[(100, "a")]));
        assert_eq!((seconds(&run.rows), run.counters().late), (wanted.map(str::to_owned).to_vec(), 0), "{sql}");
    }
}

#[test]
fn hops_of_too_many_windows_are_refused() {
    let hop = |slide: &str, size: &str| {
        let sql = format!("SELECT count(*) FROM s GROUP BY HOP(ts, INTERVAL '{slide}', INTERVAL '{size}')");
        planned(&sql, &[KEYED]).map(|_| ())
    };
    assert_eq!(hop("1 second", "4096 seconds"), Ok(()));
    let error = hop("1 second", "4097 seconds").unwrap_err();
    assert!(error.contains("each row would be in 4097 windows, and 4096 are possible"), "{error}");
}

/// A row at a time that closes everything: each call makes a part of the rows, in order, and those that follow go on.
#[test]
fn rows_that_are_closed_at_once_are_bounded() {
    let streams = [KEYED, ("q", "ts timestamp\nk string\n")];
    let keys: Vec<(i64, String)> = (0..3000).map(|at| (1 + at % 4, format!("key {at:04}"))).collect();
    let keys: Vec<(i64, &str)> = keys.iter().map(|(at, key)| (*at, key.as_str())).collect();
    let doubled: Vec<(i64, &str)> = keys.iter().chain(&keys).copied().collect();
    for (sql, least) in [
        (
            "SELECT k, window_end, count(*) FROM s GROUP BY k, HOP(ts, INTERVAL '1 second', INTERVAL '8 seconds')",
            24_000,
        ),
        ("SELECT k, window_end, count(*) FROM s GROUP BY k, ts, SESSION(ts, INTERVAL '1 second')", 3000),
        ("SELECT s.k, q.k FROM s LEFT JOIN q ON q.ts = s.ts AND q.k = s.k LATENESS INTERVAL '9 seconds'", 6000),
        ("SELECT s.k, q.k FROM s ASOF LEFT JOIN q ON q.ts <= s.ts AND q.k = s.k LATENESS INTERVAL '9 seconds'", 6000),
        (
            "SELECT window_end, count(*) FROM (SELECT k, window_start AS at, count(*) FROM s GROUP BY k, \
             HOP(ts, INTERVAL '1 second', INTERVAL '8 seconds') LATENESS INTERVAL '9 seconds') x \
             GROUP BY TUMBLE(x.at, INTERVAL '1 second')",
            11,
        ),
    ] {
        let sql =
            if sql.contains("LATENESS") { sql.to_owned() } else { format!("{sql} LATENESS INTERVAL '9 seconds'") };
        let (mut whole, mut run) = (SqlRun::new(&sql, &streams), SqlRun::new(&sql, &streams));
        for run in [&mut whole, &mut run] {
            run.feed("s", &at(&doubled));
            assert_eq!(run.rows.len(), 0, "{sql}");
            run.feed("s", &at(&[(1000, "z")]));
            run.feed("q", &at(&[(1000, "z")]));
            assert!(run.rows.len() <= 4097, "{sql}: a pair, and what is released: {}", run.rows.len());
        }
        whole.finish();
        // Rows that come meanwhile change nothing.
        for run in [&mut whole, &mut run] {
            (0..30).for_each(|_| run.feed("s", &at(&[(1000, "z")])));
            run.finish();
        }
        assert!(whole.rows.len() >= least, "{sql}: {}", whole.rows.len());
        assert!(whole.sorted() == run.sorted(), "{sql}");
        assert_eq!(run.counters().late, 0, "{sql}");
        let ends: Vec<&str> = whole.rows.iter().map(|row| row.split('|').nth(1).unwrap()).collect();
        assert!(!sql.contains("k, window_end") || ends.is_sorted_by_key(|end| end.parse::<i64>().unwrap()), "{sql}");
    }
}

/// Sessions and windows of one key that are all open: a row finds its own without a look at the others, and so does what closes.
#[test]
fn many_open_windows_of_one_group_take_no_longer() {
    for sql in [
        "SELECT window_start, count(*) FROM s GROUP BY SESSION(ts, INTERVAL '2 seconds') LATENESS INTERVAL '30 days'",
        "SELECT window_start, count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '2 seconds') LATENESS INTERVAL '30 days'",
        "SELECT window_start, count(*) FROM s GROUP BY HOP(ts, INTERVAL '2 seconds', INTERVAL '4 seconds') LATENESS INTERVAL '30 days'",
    ] {
        let mut run = SqlRun::new(sql, &[KEYED]);
        let times: Vec<(i64, &str)> = (0..20_000).rev().map(|at| (at * 4, "a")).collect();
        run.feed("s", &at(&times));
        run.feed("s", &at(&[(4_000_000, "a")]));
        run.finish();
        assert_eq!((run.rows.len() - 1) % 20_000, 19_999, "{sql}");
        assert_eq!(run.counters().late, 0);
    }
}

#[test]
fn times_at_the_ends_of_all_times_are_late_or_right() {
    for window in [
        "TUMBLE(ts, INTERVAL '7 seconds')",
        "HOP(ts, INTERVAL '7 seconds', INTERVAL '21 seconds')",
        "SESSION(ts, INTERVAL '7 seconds')",
    ] {
        let sql = format!("SELECT window_start, window_end, count(*) FROM s GROUP BY {window}");
        let mut run = SqlRun::new(&sql, &[KEYED]);
        let row = |ts: i64| format!("{ts}|a");
        run.feed("s", &[row(i64::MIN), row(i64::MIN + 1), row(0), row(i64::MAX - 1), row(i64::MAX)]);
        run.finish();
        for made in &run.rows {
            let times: Vec<i64> = made.split('|').map(|time| time.parse().unwrap()).collect();
            assert!(times[0] < times[1], "{window}: {made}");
        }
        assert!(run.counters().late >= 2, "{window}: {}", run.counters().late);
    }
}

/// Rows in any order, over hops and sessions whose parts are added up: the same results.
#[test]
fn results_do_not_depend_on_the_order_of_arrival() {
    let stream = ("s", "ts timestamp\nk string\nd decimal(16, scale 0)\nf f64\n");
    let big = i128::MAX / 4 * 3;
    let rows = [(1, "b"), (4, "a"), (2, "b"), (5, "c"), (3, "a"), (6, "b")];
    let more = [format!("{big}|-0.0"), format!("{big}|0.0"), format!("-{big}|0.0")];
    for (window, wanted) in [
        ("SESSION(ts, INTERVAL '2 seconds')", &["a,b,c|b-b-a-a-c-b|0|-0|0"][..]),
        ("HOP(ts, INTERVAL '3 seconds', INTERVAL '6 seconds')", &[]),
    ] {
        let sql = format!(
            "SELECT string_agg(DISTINCT k, ','), string_agg(k, '-'), sum(d), min(f), max(f) FROM s GROUP BY {window} \
             LATENESS INTERVAL '30 seconds'"
        );
        let mut first: Option<Vec<String>> = None;
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut all: Vec<(i64, String)> =
                (0..rows.len()).map(|n| (rows[n].0, format!("{}|{}", rows[n].1, more[n % 3]))).collect();
            all.iter_mut().filter(|(ts, _)| *ts == 5).for_each(|(_, row)| *row = format!("c|-{big}|0.0"));
            random.shuffle(&mut all);
            let all: Vec<(i64, &str)> = all.iter().map(|(ts, row)| (*ts, row.as_str())).collect();
            let mut run = SqlRun::new(&sql, &[stream]);
            run.feed("s", &at(&all));
            run.feed("s", &at(&[(100, "z|0|0")]));
            run.finish();
            let found = (run.rows.clone(), run.counters().stage_errors);
            let shown: Vec<String> = found.0.iter().cloned().chain([found.1.to_string()]).collect();
            assert_eq!(first.get_or_insert(shown.clone()), &shown, "{window}, seed {seed}");
            assert!(wanted.is_empty() || found.0 == wanted, "{window}: {found:?}");
        }
    }
}

#[test]
fn texts_that_are_too_long_together_are_an_error_and_no_more() {
    let mut run = SqlRun::new(
        "SELECT window_start, count(*), string_agg(k, '') FROM s GROUP BY HOP(ts, INTERVAL '1 second', INTERVAL '2 seconds')",
        &[KEYED],
    );
    let text = "x".repeat(1 << 17);
    run.feed("s", &at(&[(1, text.as_str()); 8]));
    run.feed("s", &at(&[(2, "y"), (4, "z")]));
    assert_eq!(run.counters().stage_errors, 1, "one byte more than a text may have");
    assert_eq!(run.rows.len(), 2);
    assert!(run.rows[0].ends_with(&text) && run.rows[0].len() > 1 << 20, "as long as a text may be");
    assert_eq!(seconds(&run.rows)[1], "2s|1|y");
}

#[test]
fn deviations_of_values_that_are_not_finite_are_no_number() {
    let sql = "SELECT stddev_pop(f), stddev(f), var_pop(f), variance(f) FROM s GROUP BY HOP(ts, INTERVAL '1 second', INTERVAL '2 seconds')";
    for (values, wanted) in [
        (["NaN", "1"], "NaN|NaN|NaN|NaN"),
        (["1", "NaN"], "NaN|NaN|NaN|NaN"),
        (["inf", "2"], "NaN|NaN|NaN|NaN"),
        (["-inf", "-inf"], "NaN|NaN|NaN|NaN"),
        (["3", "3"], "0|0|0|0"),
    ] {
        let mut run = SqlRun::new(sql, &[("s", "ts timestamp\nf f64\n")]);
        run.feed("s", &at(&[(1, values[0]), (2, values[1]), (9, "0")]));
        assert_eq!(run.rows[1], wanted, "{values:?}");
    }
    let mut run = SqlRun::new(sql, &[("s", "ts timestamp\nf f64\n")]);
    run.feed("s", &at(&[(1, "1e300"), (2, "-1e300"), (9, "0")]));
    assert_eq!((run.counters().stage_errors, run.rows.len()), (1, 2), "beyond all floats");
}

#[test]
fn an_early_row_whose_match_is_gone_counts_as_late() {
    let quotes = ("q", "ts timestamp\nk string\np i64\n");
    let join = "SELECT s.k, q.p FROM s ASOF LEFT JOIN q ON s.k = q.k AND s.ts >= q.ts";
    let mut run = SqlRun::new(join, &[KEYED, quotes]);
    run.feed("q", &at(&[(1, "a|1"), (5, "a|5")]));
    run.feed("s", &at(&[(2, "a"), (6, "a"), (4, "a")]));
    assert_eq!((&run.rows[..], run.counters().late), (&["a|1", "a|5", "a|1"].map(str::to_owned)[..], 0));
    // The row at 8 lets that at 1 go: the left stream is at 6, and 5 is enough for it.
    run.feed("q", &at(&[(8, "a|8")]));
    run.feed("s", &at(&[(3, "a"), (7, "a")]));
    assert_eq!((&run.rows[3..], run.counters().late), (&["a|null", "a|5"].map(str::to_owned)[..], 1));
}

/// A query takes over the state of one that differs in the lateness and in the bound.
#[test]
fn the_lateness_and_the_bound_are_those_of_the_query_that_runs() {
    let query = |seconds: u32| {
        format!(
            "SELECT window_start, count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '10 seconds') LATENESS INTERVAL '{seconds} seconds'"
        )
    };
    let (mut first, mut second) = (SqlRun::new(&query(1000), &[KEYED]), SqlRun::bounded(&query(0), &[KEYED], 400));
    first.feed("s", &at(&[(1, "a"), (2, "a"), (25, "a")]));
    assert_eq!(first.rows, [""; 0]);
    second.take_over(&mut first);
    second.feed("s", &at(&[(31, "a")]));
    assert_eq!(seconds(&second.rows), ["0|2", "20s|1"]);
    second.feed("s", &at(&(0..40).map(|at| (40 + at * 10, "a")).collect::<Vec<_>>()));
    assert!(second.handler().state_bytes() <= 400);
}

/// Sessions that are made one again and again leave nothing behind.
#[test]
fn sessions_that_become_one_take_the_memory_of_one() {
    let sql = "SELECT count(*) FROM s GROUP BY SESSION(ts, INTERVAL '3 seconds') LATENESS INTERVAL '30 days'";
    let mut run = SqlRun::new(sql, &[KEYED]);
    let times: Vec<(i64, &str)> =
        (0..3000).flat_map(|at| [(4 * at, "a"), (4 * at + 3, "a"), (4 * at + 2, "a")]).collect();
    run.feed("s", &at(&times));
    assert!(run.handler().state_bytes() < 5000, "{}", run.handler().state_bytes());
    run.feed("s", &at(&[(4_000_000, "a")]));
    assert_eq!(run.rows, ["9000"]);
}

#[test]
fn the_end_of_a_stream_closes_its_windows_and_those_of_the_steps_behind() {
    let sql = "SELECT window_start, sum(n) FROM (SELECT k, window_start, count(*) AS n FROM s GROUP BY k, \
               TUMBLE(ts, INTERVAL '5 seconds')) x GROUP BY TUMBLE(x.window_start, INTERVAL '10 seconds')";
    let mut run = SqlRun::new(sql, &[KEYED]);
    run.feed("s", &at(&[(1, "a"), (7, "b"), (9, "a")]));
    assert_eq!(run.rows.len(), 0);
    // No window that is yet to leave begins before 10 s.
    run.feed("s", &at(&[(10, "a")]));
    assert_eq!(seconds(&run.rows), ["0|3"]);
    run.feed("s", &at(&[(12, "a")]));
    run.end("s");
    assert_eq!(seconds(&run.rows), ["0|3", "10s|2"]);
    assert_eq!((run.handler().due_ns(), run.handler().state_bytes()), (None, 0));
    // A publisher that comes later goes on where the stream was.
    run.feed("s", &at(&[(13, "a"), (4, "a"), (31, "a")]));
    assert_eq!(run.counters().late, 1, "4 s is past, as before the end");
    assert_eq!(seconds(&run.rows)[2..], ["10s|1"]);
    run.end("s");
    assert_eq!(seconds(&run.rows)[3..], ["30s|1"]);
}

#[test]
fn a_stream_that_begins_again_while_its_windows_close_loses_no_row() {
    for window in ["TUMBLE(ts, INTERVAL '5 seconds')", "HOP(ts, INTERVAL '5 seconds', INTERVAL '10 seconds')"] {
        let mut run = SqlRun::new(&format!("SELECT k, count(*) FROM s GROUP BY k, {window}"), &[KEYED]);
        let keys: Vec<String> = (0..5000).map(|key| format!("k{key}")).collect();
        run.feed("s", &at(&keys.iter().map(|key| (7, key.as_str())).collect::<Vec<_>>()));
        run.begin_end("s");
        assert!(run.advance(0) < 5000, "one call closes a part of the window");
        // A group that has left, and one that is new.
        run.feed("s", &at(&[(7, "k0"), (7, "new")]));
        run.end("s");
        let counts = |key: &str| {
            let of_key = run.rows.iter().filter_map(|row| row.strip_prefix(&format!("{key}|")));
            of_key.map(|count| count.parse::<usize>().unwrap()).sum::<usize>()
        };
        let windows = if window.starts_with("HOP") { 2 } else { 1 };
        assert_eq!((run.counters().late, counts("k1"), counts("k4999")), (0, windows, windows), "{window}");
        // The first hopping window has closed by then.
        assert_eq!((counts("k0"), counts("new")), (windows + 1, 1), "{window}");
        assert_eq!((run.handler().due_ns(), run.handler().state_bytes()), (None, 0), "{window}");
    }
}

#[test]
fn rows_wait_for_a_stream_that_has_not_begun_and_not_for_one_that_has_ended() {
    let sql = "SELECT l.k, r.w FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.ts >= r.ts LATENESS INTERVAL '0 seconds'";
    let mut run = SqlRun::new(sql, &[LEFT, RIGHT]);
    run.end("r");
    run.feed("l", &["3|7", "9|7"]);
    assert_eq!(run.rows.len(), 0, "the right stream may be about to begin");
    run.feed("r", &["1|7|70", "4|7|71"]);
    assert_eq!(run.rows, ["7|70"]);
    run.end("r");
    assert_eq!(run.rows, ["7|70", "7|71"]);
    run.feed("l", &["10|7"]);
    assert_eq!(run.rows, ["7|70", "7|71", "7|71"]);
    // Where both have ended, nothing waits, though one had no rows.
    let mut run = SqlRun::new(sql, &[LEFT, RIGHT]);
    run.feed("l", &["3|7"]);
    run.end("r");
    assert_eq!(run.rows.len(), 0);
    run.end("l");
    assert_eq!(run.rows, ["7|null"]);
}

#[test]
fn rows_without_a_time_have_no_partner() {
    let (left, right) = (("l", "ts timestamp null\nk i64\n"), ("r", "ts timestamp\nk i64\nw i64\n"));
    let on = "l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '1 second' AND l.ts";
    for (sql, wanted) in [
        (format!("SELECT l.k, r.w FROM l LEFT JOIN r ON {on}"), &["7|null"][..]),
        ("SELECT l.k, r.w FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.ts >= r.ts".to_owned(), &["7|null"]),
        (format!("SELECT l.k, r.w FROM l JOIN r ON {on}"), &[]),
    ] {
        let mut run = SqlRun::new(&sql, &[left, right]);
        run.feed("r", &["1|7|70"]);
        run.feed("l", &["null|7"]);
        assert_eq!(
            (run.rows.as_slice(), run.counters().late),
            (&*wanted.iter().map(ToString::to_string).collect::<Vec<_>>(), 0),
            "{sql}"
        );
    }
}

#[test]
fn a_time_that_stands_for_never_closes_nothing() {
    let mut run =
        SqlRun::new("SELECT window_start, count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '5 seconds')", &[KEYED]);
    run.feed("s", &at(&[(1, "a")]));
    run.feed("s", &[format!("{}|b", i64::MAX)]);
    run.feed("s", &at(&[(2, "a"), (6, "a")]));
    assert_eq!((seconds(&run.rows), run.counters().late), (vec!["0|2".to_owned()], 1));
}

#[test]
fn empty_texts_count_in_the_bound_of_a_joined_text() {
    let mut run = SqlRun::new("SELECT string_agg(k, '') FROM s GROUP BY TUMBLE(ts, INTERVAL '1 day')", &[KEYED]);
    run.feed("s", &vec!["1|"; 400_000]);
    assert!(run.handler().state_bytes() < 4 << 20, "{}", run.handler().state_bytes());
}

/// The memory of the last result goes before a group does.
#[test]
fn the_memory_for_a_joined_text_counts_and_no_group_is_forgotten_for_it() {
    const SQL: &str = "SELECT string_agg(k, ''), count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '1 day')";
    let of_day = |day: i64| vec![format!("{}|a text 10b", 1 + day * 86_400_000_000_000); 60_000];
    let mut run = SqlRun::new(SQL, &[KEYED]);
    run.feed("s", &of_day(0));
    let of_group = run.handler().state_bytes();
    run.end("s");
    let of_result = run.handler().state_bytes();
    assert!((600_000 + 16 * 60_000 - (32 << 10)..3_000_000).contains(&of_result), "{of_result}");
    let bound = of_group + of_result / 2;
    let mut run = SqlRun::bounded(SQL, &[KEYED], bound);
    for day in 0..3 {
        for rows in of_day(day).chunks(1000) {
            run.feed("s", rows);
            assert!(run.handler().state_bytes() <= bound, "{} of {bound}", run.handler().state_bytes());
        }
    }
    run.end("s");
    assert_eq!((run.counters().forgotten, run.rows.len()), (0, 3));
    assert!(run.rows.iter().all(|row| row.ends_with("|60000") && row.len() == 600_000 + 6));
}

/// A window is forgotten after a part of it has left; those behind it leave or are counted.
#[test]
fn no_window_is_skipped_where_those_of_one_that_closes_are_forgotten() {
    let sql = "SELECT window_end, count(*) FROM s GROUP BY k, HOP(ts, INTERVAL '1 second', INTERVAL '2 seconds')";
    let mut run = SqlRun::bounded(sql, &[KEYED], 1_500_000);
    let rows: Vec<String> = (0..6000).map(|key| format!("0|{key}")).collect();
    run.feed("s", &rows);
    // Closes a part of the windows that end at 1 s.
    run.feed("s", &["1000000000|x"]);
    let (left, before) = (run.rows.len(), run.counters().forgotten);
    assert!(left < 6000 && before == 0, "{left}, {before}");
    // Takes all memory, at a time of a later window.
    let rows: Vec<String> = (0..9000).map(|key| format!("5000000000|y{key}")).collect();
    run.feed("s", &rows);
    run.feed("s", &["100000000000|z"]);
    run.finish();
    let ends = seconds(&run.rows);
    let of = |end: &str| ends.iter().filter(|row| row.starts_with(end)).count();
    let kept = of("6s|");
    assert_eq!(kept, of("7s|"), "both windows of the rows that are there");
    assert!(kept > 0);
}

#[test]
fn the_columns_of_using_are_one_and_come_first() {
    let streams = [("l", "ts timestamp\nk i64 null\nv i64\n"), ("r", "w i64\nk i64\nts timestamp\n")];
    for (kind, wanted) in [
        ("JOIN", vec!["7|1|10|70"]),
        ("LEFT JOIN", vec!["7|1|10|70", "8|2|20|null", "null|1|30|null"]),
        ("RIGHT JOIN", vec!["7|1|10|70", "9|3|null|90"]),
        ("RIGHT OUTER JOIN", vec!["7|1|10|70", "9|3|null|90"]),
        ("FULL JOIN", vec!["7|1|10|70", "8|2|20|null", "9|3|null|90", "null|1|30|null"]),
    ] {
        let sql = format!("SELECT * FROM l {kind} r USING (k, ts)");
        let mut run = SqlRun::new(&sql, &streams);
        let names: Vec<&str> = run.output().fields().iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["k", "ts", "v", "w"], "{sql}");
        run.feed("l", &["1|null|30", "1|7|10", "2|8|20"]);
        run.feed("r", &["70|7|1", "90|9|3"]);
        run.end("l");
        run.end("r");
        assert_eq!(run.sorted(), wanted, "{sql}");
    }
    let mut run = SqlRun::new("SELECT l.k, r.k, ts, l.*, k + 1 AS next FROM l RIGHT JOIN r USING (ts, k)", &streams);
    run.feed("r", &["90|9|3"]);
    run.end("r");
    run.end("l");
    assert_eq!(run.rows, ["null|9|3|null|null|null|10"]);
}

/// A right join is a left one that is written the other way around, also behind other joins and with conditions on one side.
#[test]
fn right_joins_are_left_joins_the_other_way_around() {
    let third = ("t", "ts timestamp\nk i64\nx i64\n");
    let within = "r.ts BETWEEN l.ts - INTERVAL '3 seconds' AND l.ts + INTERVAL '1 second'";
    let rows = |kind: usize| match kind {
        0 => at(&[(1, "1"), (2, "2"), (5, "2"), (9, "4")]),
        1 => at(&[(1, "1|10"), (3, "2|20"), (4, "2|30"), (9, "3|40")]),
        _ => at(&[(1, "1|7"), (5, "2|8"), (6, "5|9")]),
    };
    for (one, other) in [
        (format!("l RIGHT JOIN r ON l.k = r.k AND {within}"), format!("r LEFT JOIN l ON l.k = r.k AND {within}")),
        (
            format!("l RIGHT JOIN r ON l.k = r.k AND {within} AND l.k < 2 AND r.w < 40"),
            format!("r LEFT JOIN l ON l.k = r.k AND {within} AND l.k < 2 AND r.w < 40"),
        ),
        (
            format!("l RIGHT JOIN r ON l.k = r.k AND {within} WHERE l.k IS NULL"),
            format!("r LEFT JOIN l ON l.k = r.k AND {within} WHERE l.k IS NULL"),
        ),
        (
            format!("l JOIN r ON l.k = r.k AND {within} RIGHT JOIN t ON t.k = l.k AND t.ts = l.ts"),
            format!(
                "t LEFT JOIN (SELECT l.ts, l.k, r.w FROM l JOIN r ON l.k = r.k AND {within}) l ON t.k = l.k AND t.ts = l.ts"
            ),
        ),
    ] {
        let of = |from: &str| {
            let w = if from.contains("(SELECT") { "l.w" } else { "r.w" };
            let x = if from.contains("t.k") { ", t.x" } else { "" };
            let mut run = SqlRun::new(&format!("SELECT l.k, {w}{x} FROM {from}"), &[LEFT, RIGHT, third]);
            for (number, stream) in ["l", "r", "t"].into_iter().enumerate() {
                run.feed(stream, &rows(number));
            }
            ["l", "r", "t"].into_iter().for_each(|stream| run.end(stream));
            run.sorted()
        };
        let found = of(&one);
        assert!(!found.is_empty(), "{one}");
        assert_eq!(found, of(&other), "{one}");
    }
}

#[test]
fn lists_have_the_values_in_order_of_time_and_are_bounded() {
    let streams = [("s", "ts timestamp\nk string\nv i64 null\n")];
    let sql = "SELECT k, array_agg(v), array_agg(DISTINCT v) AS d, array_agg(v) FILTER (WHERE v > 1) AS f FROM s GROUP BY k, \
               TUMBLE(ts, INTERVAL '1 day') LATENESS INTERVAL '1 hour'";
    let mut run = SqlRun::new(sql, &streams);
    run.feed("s", &["3|a|1", "1|a|2", "1|a|1", "2|a|null", "2|b|null", "9|a|2"]);
    run.end("s");
    assert_eq!(
        run.sorted(),
        [
            "a|List([Int(1), Int(2), Int(1), Int(2)])|List([Int(1), Int(2)])|List([Int(2), Int(2)])",
            "b|List([])|List([])|List([])"
        ]
    );
    assert_eq!(run.handler().state_bytes(), 0);
    // Texts, hopping windows, whose parts are added up, and the lists of an inner query.
    let sql = "SELECT x.l, x.n FROM (SELECT array_agg(k) AS l, count(*) AS n, window_end FROM s GROUP BY \
               HOP(ts, INTERVAL '1 second', INTERVAL '2 seconds')) x";
    let mut run = SqlRun::new(sql, &streams);
    run.feed("s", &at(&[(0, "b|1"), (1, "a|1")]));
    run.end("s");
    let text = |text: &str| format!("{:?}", crossdock_format::Value::Text(text.as_bytes()));
    let (a, b) = (text("a"), text("b"));
    assert_eq!(run.rows, [format!("List([{b}])|1"), format!("List([{b}, {a}])|2"), format!("List([{a}])|1")]);
    // Too many values, too long a list, a row that has neither.
    let mut run = SqlRun::new("SELECT array_agg(v), count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '1 day')", &streams);
    run.feed("s", &vec!["1|a|7"; 90_000]);
    assert!(run.handler().state_bytes() < 4 << 20, "{}", run.handler().state_bytes());
    run.end("s");
    assert_eq!((run.rows.len(), run.counters().stage_errors), (0, 1));
}

/// In conditions of joins, keys, aggregates and calls with OVER, over records that come through a join.
#[test]
fn lists_are_operands_in_every_step() {
    let schema = "ts timestamp\nk string\nstops string[]\ndelays i16[] null\n";
    let format = crossdock_format::Format::parse_schema(schema).unwrap();
    let mut builder = crossdock_format::RecordBuilder::new(&format);
    let mut flight = |second: i64, k: &str, stops: &[&str], delays: &[i64]| {
        builder.clear();
        builder.set_timestamp(0, second * 1_000_000_000).unwrap();
        builder.set_text(1, k).unwrap();
        builder.begin_list(2).unwrap();
        stops.iter().for_each(|stop| builder.push(crossdock_format::Value::Text(stop.as_bytes())).unwrap());
        builder.end_list().unwrap();
        if !delays.is_empty() {
            builder.begin_list(3).unwrap();
            delays.iter().for_each(|delay| builder.push(crossdock_format::Value::Int(*delay)).unwrap());
            builder.end_list().unwrap();
        }
        builder.finish().unwrap().to_vec()
    };
    let flights = [
        flight(1, "a", &["DEN", "ORD"], &[5, -3]),
        flight(2, "b", &[], &[]),
        flight(3, "c", &["ORD"], &[7]),
        flight(4, "a", &["DEN"], &[1, 2, 3]),
    ];
    let streams = [("s", schema), ("o", "ts timestamp\nstop string\nleast i64\n")];
    let joined = "FROM s LEFT JOIN o ON s.stops[1] = o.stop AND o.least < ANY(s.delays) AND o.ts BETWEEN s.ts - INTERVAL '9 seconds' AND s.ts";
    for (sql, wanted) in [
        (format!("SELECT s.k, o.least, s.stops[2] AS second, cardinality(s.delays) AS n {joined}"), &["a|1|ORD|2", "a|1|null|3", "b|null|null|null", "c|null|null|1"][..]),
        ("SELECT stops[1] AS first, count(*) AS n, sum(cardinality(delays)) AS d, max(delays[1]) FILTER (WHERE 'ORD' = ANY(stops)) AS o FROM s \
          GROUP BY stops[1], TUMBLE(ts, INTERVAL '1 day') HAVING 5 <> ALL(array_agg(delays[1])) OR cardinality(array_agg(k)) > 1".to_owned(),
         &["DEN|2|5|5", "ORD|1|1|7", "null|1|null|null"][..]),
        ("SELECT k, lag(stops[1]) OVER (PARTITION BY k) AS was, (array_agg(delays[1]) OVER (PARTITION BY k ROWS 1 PRECEDING))[2] AS second FROM s".to_owned(),
         &["a|DEN|1", "a|null|null", "b|null|null", "c|null|null"][..]),
    ] {
        let mut run = SqlRun::new(&sql, &streams[..if sql.contains("JOIN") { 2 } else { 1 }]);
        if sql.contains("JOIN") {
            run.feed("o", &["0|DEN|1", "0|ORD|7"]);
            run.end("o");
        }
        run.feed_records("s", &flights);
        run.end("s");
        assert_eq!(run.sorted(), wanted, "{sql}");
    }
}

#[test]
fn lists_are_made_of_frames_too() {
    let streams = [("s", "ts timestamp\nk string\nv i64 null\n")];
    let sql = "SELECT v, array_agg(v) OVER (PARTITION BY k ROWS 1 PRECEDING) AS two, array_agg(k) OVER (PARTITION BY k ROWS UNBOUNDED \
               PRECEDING) AS keys FROM s";
    let mut run = SqlRun::new(sql, &streams);
    run.feed("s", &["1|a|1", "2|a|2", "3|a|3"]);
    let lists: Vec<String> = run.rows.iter().map(|row| row.split('|').nth(1).unwrap().to_owned()).collect();
    assert_eq!(lists, ["List([Int(1)])", "List([Int(1), Int(2)])", "List([Int(2), Int(3)])"]);
}

#[test]
fn each_window_has_its_own_first_rows_when_it_closes() {
    let sql = "SELECT k, count(*) AS n FROM s GROUP BY k, TUMBLE(ts, INTERVAL '10 seconds') ORDER BY n DESC LIMIT 2";
    let mut run = SqlRun::new(sql, &[KEYED]);
    run.feed("s", &at(&[(0, "c"), (1, "a"), (2, "b"), (3, "b"), (4, "d")]));
    assert_eq!(run.rows.len(), 0);
    // The first row behind the window closes it, though it is at its very end; equal counts go by the key.
    run.feed("s", &at(&[(10, "z")]));
    assert_eq!(run.rows, ["b|2", "a|1"]);
    run.feed("s", &at(&[(11, "y"), (12, "y"), (35, "x")]));
    assert_eq!(run.rows[2..], ["y|2", "z|1"]);
    run.end("s");
    assert_eq!(run.rows[4..], ["x|1"]);
    assert_eq!(run.handler().state_bytes(), 0);
    // HAVING comes first, and columns that are not in the list may put in order.
    let sql = "SELECT k FROM s GROUP BY k, HOP(ts, INTERVAL '5 seconds', INTERVAL '10 seconds') HAVING count(*) < 3 \
               ORDER BY max(ts), 1 DESC LIMIT 1 LATENESS INTERVAL '2 seconds'";
    let mut run = SqlRun::new(sql, &[KEYED]);
    run.feed("s", &at(&[(0, "c"), (1, "a"), (1, "b"), (2, "c"), (3, "c")]));
    run.end("s");
    assert_eq!(run.rows, ["b", "b"]);
}

/// Also within another query, whose windows go by the times of those.
#[test]
fn the_first_rows_of_windows_come_in_order_of_their_ends() {
    let sql = "SELECT window_end, count(*), max(x.n) FROM (SELECT k, window_start AS at, count(*) AS n FROM s GROUP BY k, \
               TUMBLE(ts, INTERVAL '1 second') ORDER BY n DESC, k LIMIT 1) x GROUP BY TUMBLE(x.at, INTERVAL '10 seconds')";
    let mut run = SqlRun::new(sql, &[KEYED]);
    let rows: Vec<(i64, &str)> = (0..25).flat_map(|second| [(second, "a"), (second, "b"), (second, "a")]).collect();
    run.feed("s", &at(&rows));
    run.end("s");
    assert_eq!(seconds(&run.rows), ["10s|10|2", "20s|10|2", "30s|5|2"]);
    assert_eq!(run.counters().late, 0);
    // Windows of arrival close by the clock.
    let sql = "SELECT k, count(*) AS n FROM s GROUP BY k, TUMBLE(INTERVAL '1 second') ORDER BY n DESC LIMIT 1";
    let mut run = SqlRun::new(sql, &[KEYED]);
    run.advance(5_000_000_000);
    run.feed("s", &["0|a", "0|b", "0|b"]);
    assert_eq!(run.rows.len(), 0);
    run.advance(6_000_000_000);
    assert_eq!(run.rows, ["b|2"]);
}

#[test]
fn orders_of_windows_are_refused_where_they_have_no_meaning() {
    let window = "TUMBLE(ts, INTERVAL '1 second')";
    for (sql, wanted) in [
        ("SELECT k, count(*) FROM s GROUP BY k ORDER BY 2 LIMIT 3".to_owned(), "the query has none"),
        (
            "SELECT k FROM s GROUP BY k, SESSION(ts, INTERVAL '1 second') ORDER BY 1 LIMIT 3".to_owned(),
            "windows of fixed length",
        ),
        (format!("SELECT k FROM s GROUP BY k, {window} ORDER BY ts LIMIT 3"), "neither a key of GROUP BY"),
        (format!("SELECT k, array_agg(k) AS l FROM s GROUP BY k, {window} ORDER BY l LIMIT 3"), "ORDER BY has a list"),
        (format!("SELECT k FROM s GROUP BY k, {window} ORDER BY 2 LIMIT 3"), "ORDER BY 2 is no place"),
        (format!("SELECT k FROM s GROUP BY k, {window} ORDER BY 'x' LIMIT 3"), "ORDER BY has a constant"),
    ] {
        let error = planned(&sql, &[KEYED]).unwrap_err();
        assert!(error.contains(wanted) && error.contains("line 1, column"), "{sql}: {error}");
    }
}

/// Rows of both streams at times that mostly rise, in pieces of one stream each.
fn pieces(random: &mut fastrand::Rng) -> Vec<(&'static str, Vec<String>)> {
    let mut now = 0;
    let piece = |_| {
        let stream = if random.bool() { "l" } else { "r" };
        // Up to more than an operator gathers.
        let most = if random.u8(..) < 60 { 300 } else { 60 };
        let rows = (0..random.usize(1..=most)).map(|_| {
            now += random.i64(0..300);
            let ts = (now - if random.u8(..) < 30 { random.i64(0..4000) } else { 0 }).max(0) * 1_000_000;
            let k = if random.u8(..) < 10 { "null".to_owned() } else { random.u8(0..6).to_string() };
            if stream == "l" { format!("{ts}|{k}") } else { format!("{ts}|{k}|{}", random.u16(..)) }
        });
        (stream, rows.collect())
    };
    (0..12).map(piece).collect()
}

/// Rows go through the stages in chunks, and leave together; but in no other order than if each came alone.
#[test]
fn rows_leave_in_the_same_order_however_many_come_at_a_time() {
    let streams = [("l", "ts timestamp\nk i64 null\n"), ("r", "ts timestamp\nk i64 null\nw i64\n")];
    let late = "LATENESS INTERVAL '1 second'";
    for sql in [
        &format!("SELECT l.ts, l.k, r.w FROM l ASOF JOIN r ON l.k = r.k AND l.ts >= r.ts {late}"),
        &format!("SELECT l.ts, l.k, r.w FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.ts > r.ts {late}"),
        "SELECT l.ts, l.k, r.w FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.ts >= r.ts",
        &format!(
            "SELECT l.ts, l.k, r.w FROM l FULL JOIN r ON l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '1 second' AND l.ts {late}"
        ),
        "SELECT l.ts, l.k, r.w FROM l JOIN r ON l.k = r.k",
        "SELECT l.ts, l.k, r.w FROM l JOIN r ON l.k = r.k WHERE r.w > l.k * 5000",
        "SELECT k, sum(w) FROM (SELECT l.k, r.w FROM l JOIN r ON l.k = r.k) x GROUP BY k",
        "SELECT k, max(w), count(*) FROM r GROUP BY k",
        &format!(
            "SELECT k, window_start, count(*), sum(w), avg(w) FROM r GROUP BY k, TUMBLE(ts, INTERVAL '2 seconds') {late}"
        ),
        &format!(
            "SELECT k, window_end, count(*) FROM r GROUP BY k, HOP(ts, INTERVAL '1 second', INTERVAL '5 seconds') {late}"
        ),
        &format!("SELECT k, window_start, max(w) FROM r GROUP BY k, SESSION(ts, INTERVAL '1 second') {late}"),
        &format!(
            "SELECT window_start, count(*) FROM (SELECT l.ts FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.ts >= r.ts {late}) x \
             GROUP BY TUMBLE(ts, INTERVAL '2 seconds') {late}"
        ),
        &format!(
            "WITH most AS (SELECT window_end AS ends, max(w) AS w FROM r GROUP BY TUMBLE(ts, INTERVAL '2 seconds')) \
             SELECT r.ts, r.k, r.w FROM r JOIN most m ON r.w = m.w AND r.ts >= m.ends - INTERVAL '2 seconds' AND r.ts < m.ends {late}"
        ),
        "SELECT k, w, sum(w) OVER (PARTITION BY k ROWS 3 PRECEDING) FROM r",
    ] {
        for seed in 0..20 {
            let (mut whole, mut single) = (SqlRun::new(sql, &streams), SqlRun::new(sql, &streams));
            for (stream, rows) in pieces(&mut fastrand::Rng::with_seed(seed)) {
                whole.feed(stream, &rows);
                rows.iter().for_each(|row| single.feed(stream, std::slice::from_ref(row)));
            }
            for run in [&mut whole, &mut single] {
                run.end("l");
                run.end("r");
                run.finish();
            }
            assert!(seed > 0 || single.rows.len() > 10, "{sql}: {}", single.rows.len());
            assert_eq!(whole.rows, single.rows, "{sql}, seed {seed}");
            let late = [&whole, &single].map(|run| (run.counters().late, run.counters().forgotten));
            assert_eq!(late[0], late[1], "{sql}, seed {seed}");
        }
    }
}

/// A late row finds no right row that the row before it has let go, though both come in a chunk.
#[test]
fn late_rows_of_an_asof_join_find_what_they_would_find_if_they_came_alone() {
    let runs = [&[&["8|1", "3|1"][..]][..], &[&["8|1"], &["3|1"]]].map(|pieces| {
        let mut run =
            SqlRun::new("SELECT l.ts, l.k, r.w FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.ts >= r.ts", &[LEFT, RIGHT]);
        run.feed("r", &["1|1|10", "5|1|50"]);
        run.feed("l", &["8|2"]);
        pieces.iter().for_each(|piece| run.feed("l", piece));
        (run.counters().late, run.rows)
    });
    assert_eq!(runs[0].1[1..], ["8|1|50", "3|1|null"]);
    assert_eq!((runs[0].0, &runs[0]), (1, &runs[1]));
}

/// A row lets a bounded number of windows leave, and the next ones the others: those of a batch as many as if each came alone.
#[test]
fn each_row_of_a_batch_lets_as_many_windows_leave_as_one_that_comes_alone() {
    let sql = "SELECT k, window_end, count(*) FROM s GROUP BY k, HOP(ts, INTERVAL '1 second', INTERVAL '900 seconds') \
        LATENESS INTERVAL '0 seconds'";
    let stream = ("s", "ts timestamp\nk i64\n");
    let (mut whole, mut single) = (SqlRun::new(sql, &[stream]), SqlRun::new(sql, &[stream]));
    for piece in 0..3 {
        let rows: Vec<String> =
            (0..60).map(|row| format!("{}|{}", (piece * 60 + row) / 9 * 2000 * 1_000_000_000_i64, row % 9)).collect();
        whole.feed("s", &rows);
        rows.iter().for_each(|row| single.feed("s", std::slice::from_ref(row)));
        assert!(single.rows.len() > 20_000 * (piece as usize + 1), "{}", single.rows.len());
        assert_eq!(whole.rows.len(), single.rows.len());
    }
    assert_eq!(whole.rows, single.rows);
}

/// A publisher of rows that all fail brings none: what has ended stays ended.
#[test]
fn rows_that_fail_do_not_open_a_stream_again() {
    let sql =
        "SELECT l.k, r.w FROM l ASOF LEFT JOIN (SELECT ts, k, 10 / w AS w FROM r) r ON l.k = r.k AND l.ts >= r.ts";
    let sql = format!("{sql} LATENESS INTERVAL '0 seconds'");
    let mut run = SqlRun::new(&sql, &[LEFT, RIGHT]);
    run.feed("r", &["1|7|5"]);
    run.end("r");
    run.feed("r", &vec!["2|7|0"; 40]);
    run.feed("l", &["3|7"]);
    assert_eq!((run.rows.as_slice(), run.counters().row_errors), (&["7|2".to_owned()][..], 40));
}
