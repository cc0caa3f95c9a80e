//! OVER: values over the rows before, their state across hand-overs, its bound, and its memory.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use crossdock_engine::{Handler, StatefulHandler};
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_mailbox::Selection;
use crossdock_query::{Query, parse_query};
use proptest::prelude::*;
use stateful_support::sql::{SqlRun, planned};

const S: (&str, &str) = ("s", "k string null\nv i64 null\nt string null\nf f64 null\n");

fn rows_of(sql: &str, rows: &[&str]) -> Vec<String> {
    let mut run = SqlRun::new(sql, &[S]);
    run.feed("s", rows);
    assert_eq!((run.counters().stage_errors, run.counters().row_errors), (0, 0));
    run.rows
}

#[test]
fn rows_before_are_counted_by_key_in_the_order_of_arrival() {
    let sql = "SELECT v, lag(v) OVER (PARTITION BY k), sum(v) OVER (PARTITION BY k ROWS 1 PRECEDING), \
               row_number() OVER (), first_value(v) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) FROM s WHERE v <> 0";
    let rows = ["a|1|x|0", "b|5|x|0", "a|0|x|0", "a|2|x|0", "null|7|x|0", "b|6|x|0", "a|3|x|0", "null|8|x|0"];
    let wanted = ["1|null|1|1|1", "5|null|5|2|5", "2|1|3|3|1", "7|null|7|4|7", "6|5|11|5|5", "3|2|5|6|1", "8|7|15|7|7"];
    assert_eq!(rows_of(sql, &rows), wanted);
}

#[test]
fn nulls_empty_texts_and_missing_rows_differ() {
    let sql = "SELECT lag(t, 1, 'none') OVER w, first_value(t) OVER w, last_value(t) OVER w, count(t) OVER w, max(t) OVER w, \
               first_value(t) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) FROM s WINDOW w AS (ROWS 1 PRECEDING)";
    let rows = ["a|1||0", "a|1|null|0", "a|1|a text of more than sixteen bytes|0", "a|1||0"];
    // An empty text shows as nothing between two bars.
    let wanted = [
        "none|||1||null",
        "||null|1||",
        "null|null|a text of more than sixteen bytes|1|a text of more than sixteen bytes|",
        "a text of more than sixteen bytes|a text of more than sixteen bytes||2|a text of more than sixteen bytes|",
    ];
    assert_eq!(rows_of(sql, &rows), wanted);
}

/// A sum that does not fit is a row error of the rows in whose frame it is, and of no other.
#[test]
fn a_sum_that_does_not_fit_is_exact_again_behind_its_frame() {
    let mut run = SqlRun::new("SELECT v, sum(v) OVER (ROWS 1 PRECEDING), avg(v) OVER (ROWS 1 PRECEDING) FROM s", &[S]);
    let most = i64::MAX;
    run.feed("s", &[format!("a|{most}|x|0"), format!("a|{most}|x|0"), "a|-5|x|0".to_owned(), "a|2|x|0".to_owned()]);
    assert_eq!(run.counters().stage_errors, 1);
    let sums: Vec<String> = run.rows.iter().map(|row| row.rsplit_once('|').unwrap().0.to_owned()).collect();
    assert_eq!(sums, [format!("{most}|{most}"), format!("-5|{}", most - 5), "2|-3".to_owned()]);
}

#[test]
fn infinities_and_nan_are_gone_with_their_frame() {
    let sql = "SELECT sum(f) OVER w, max(f) OVER w, min(f) OVER w FROM s WINDOW w AS (ROWS 1 PRECEDING)";
    let rows = ["a|1|x|1", "a|1|x|NaN", "a|1|x|2", "a|1|x|inf", "a|1|x|-inf", "a|1|x|3", "a|1|x|4"];
    let wanted = ["1|1|1", "NaN|NaN|1", "NaN|NaN|2", "inf|inf|2", "NaN|inf|-inf", "-inf|3|-inf", "7|4|3"];
    assert_eq!(rows_of(sql, &rows), wanted);
}

#[test]
fn lists_pass_and_enumerations_are_texts() {
    let stream = ("e", "kind enum u8 { a = 1, b = 2 }\nn i64\n");
    let sql = "SELECT kind, lag(kind) OVER (), count(*) OVER (PARTITION BY kind ROWS UNBOUNDED PRECEDING) FROM e";
    let mut run = SqlRun::new(sql, &[stream]);
    run.feed("e", &["1|0", "2|0", "1|0"]);
    assert_eq!(run.rows, ["a|null|1", "b|a|1", "a|b|2"]);
    let mut run = SqlRun::new("SELECT tags, lag(n) OVER () AS m FROM l", &[("l", "tags string[] null\nn i64\n")]);
    run.feed("l", &["null|1", "null|2"]);
    assert_eq!((run.rows.len(), run.counters().stage_errors), (2, 0));
}

const QUERY: &str = "SELECT v, lag(v, 2, -1) OVER (PARTITION BY k) AS l, sum(v) OVER (PARTITION BY k ROWS 3 PRECEDING) AS s, \
                     min(t) OVER (PARTITION BY k ROWS BETWEEN 4 PRECEDING AND 1 PRECEDING) AS m, count(*) OVER \
                     (ROWS UNBOUNDED PRECEDING) AS n, max(f) OVER (PARTITION BY v ROWS 2 PRECEDING) AS x FROM s";

fn rows() -> impl Strategy<Value = Vec<String>> {
    let key = prop::sample::select(vec!["a", "b", "a key of more than sixteen bytes", "", "null"]);
    let number = prop::option::weighted(0.8, -3..4i64);
    let text = prop::option::weighted(0.8, "[a-c]{0,20}");
    let row = (key, number, text, -4..4i64).prop_map(|(k, v, t, f)| {
        let v = v.map_or("null".to_owned(), |v| v.to_string());
        format!("{k}|{v}|{}|{f}.5", t.unwrap_or("null".to_owned()))
    });
    prop::collection::vec(row, 1..120)
}

/// The same by looking at all rows before.
fn by_hand(rows: &[String]) -> Vec<String> {
    let all: Vec<Vec<&str>> = rows.iter().map(|row| row.split('|').collect()).collect();
    let number = |row: &&Vec<&str>| row[1].parse::<i64>().ok();
    let shown = |value: Option<String>| value.unwrap_or("null".to_owned());
    let each = |(index, row): (usize, &Vec<&str>)| {
        let alike = |column: usize| -> Vec<&Vec<&str>> {
            all[..=index].iter().rev().filter(|other| other[column] == row[column]).collect()
        };
        let (of_key, of_number) = (alike(0), alike(1));
        let lag = of_key.get(2).map_or(Some(-1), number);
        let sums: Vec<i64> = of_key.iter().take(4).filter_map(number).collect();
        let sum = (!sums.is_empty()).then(|| sums.iter().sum::<i64>());
        let least = of_key.iter().take(5).skip(1).map(|row| row[2]).filter(|text| *text != "null").min();
        let most = of_number.iter().take(3).map(|row| row[3].parse::<f64>().unwrap()).fold(f64::MIN, f64::max);
        let [lag, sum] = [lag, sum].map(|value| shown(value.map(|value| value.to_string())));
        format!("{}|{lag}|{sum}|{}|{}|{most}", row[1], shown(least.map(str::to_owned)), index + 1)
    };
    all.iter().enumerate().map(each).collect()
}

proptest! {
    #[test]
    fn a_swap_or_a_move_changes_nothing(rows in rows(), cuts in prop::collection::vec(0..120usize, 0..6)) {
        // Another condition is another version of the query, with the same state.
        let versions = [QUERY.to_owned(), format!("{QUERY} WHERE v IS NULL OR v > -100")];
        let mut runs = versions.each_ref().map(|sql| SqlRun::new(sql, &[S]));
        let mut turn = 0;
        let mut found = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            if at > 0 && cuts.contains(&at) {
                let [first, second] = &mut runs;
                let (from, to) = if turn == 0 { (first, second) } else { (second, first) };
                to.take_over(from);
                turn = 1 - turn;
            }
            runs[turn].feed("s", &[row]);
            found.append(&mut runs[turn].rows);
        }
        prop_assert_eq!(found, by_hand(&rows));
    }

    /// However far back it looks, rings that are not full, full, and that wrap have the rows of the last `n`.
    #[test]
    fn a_frame_has_its_rows(values in prop::collection::vec(-9..9i64, 1..60), from in 0..25u32, less in 0..25u32) {
        let until = from.saturating_sub(less);
        let frame = format!("ROWS BETWEEN {from} PRECEDING AND {until} PRECEDING");
        let frame = frame.replace("AND 0 PRECEDING", "AND CURRENT ROW");
        let sql = format!("SELECT sum(v) OVER ({frame}), max(v) OVER ({frame}), first_value(v) OVER ({frame}) FROM s");
        let mut run = SqlRun::new(&sql, &[S]);
        run.feed("s", &values.iter().map(|v| format!("a|{v}|x|0")).collect::<Vec<_>>());
        for (index, row) in run.rows.iter().enumerate() {
            let end = (index + 1).saturating_sub(until as usize);
            let frame = &values[index.saturating_sub(from as usize).min(end)..end];
            let text = |value: Option<i64>| value.map_or("null".to_owned(), |value| value.to_string());
            let sum = (!frame.is_empty()).then(|| frame.iter().sum());
            let wanted = [sum, frame.iter().max().copied(), frame.first().copied()].map(text).join("|");
            prop_assert_eq!(row, &wanted);
        }
    }
}

#[test]
fn another_frame_is_another_state() {
    let query = |rows: u32| format!("SELECT avg(v) OVER (PARTITION BY k ROWS {rows} PRECEDING) AS a FROM s");
    let handler = |rows| {
        let (query, program) = match parse_query(&query(rows)) {
            Ok(Query::Stateful(parsed)) => (parsed, Arc::new(planned(&query(rows), &[S]).unwrap())),
            other => panic!("{other:?}"),
        };
        let format = Format::parse_schema(S.1).unwrap();
        StatefulHandler::new(Arc::clone(&program), query.readers(&program, "s", &format, &BTreeMap::new()).unwrap())
            .unwrap()
    };
    let (mut first, mut second, mut same) = (handler(3), handler(4), handler(3));
    let state = second.take_over(first.hand_over().unwrap()).unwrap_err();
    assert!(same.take_over(state).is_ok());
}

/// Past the bound the key goes that had no row for the longest, and begins anew; the bytes that count are those that are kept.
#[test]
fn past_its_bound_the_oldest_key_is_forgotten_and_counted() {
    let sql =
        "SELECT k, count(*) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING), lag(t, 20) OVER (PARTITION BY k) FROM s";
    let bound = 60_000;
    let mut run = SqlRun::bounded(sql, &[S], bound);
    for round in 0..40 {
        run.feed("s", &["a key that comes often|1|x|0"]);
        let rows: Vec<String> =
            (0..20).map(|key| format!("key {key} of round {round}|1|{}|0", "y".repeat(50))).collect();
        run.feed("s", &rows);
        assert!(run.handler().state_bytes() <= bound, "{}", run.handler().state_bytes());
    }
    assert!(run.counters().forgotten > 100, "{:?}", run.counters());
    run.feed("s", &["key 0 of round 0|1|x|0", "a key that comes often|1|x|0"]);
    assert_eq!(run.rows[run.rows.len() - 2..], ["key 0 of round 0|1|null", "a key that comes often|41|x"]);
}

#[test]
fn warm_rows_before_allocate_nothing() {
    let format = Format::parse_schema(S.1).unwrap();
    let Ok(Query::Stateful(query)) = parse_query(QUERY) else { panic!("it has state") };
    let program = Arc::new(planned(QUERY, &[S]).unwrap());
    let readers = query.readers(&program, "s", &format, &BTreeMap::new()).unwrap();
    let mut handler = StatefulHandler::new(program, readers).unwrap();
    let mut row = RecordBuilder::new(&format);
    let records: Vec<Vec<u8>> = (0..100i64)
        .map(|n| {
            row.clear();
            row.set(0, Value::Text(["a", "b", "a key of more than sixteen bytes"][n as usize % 3].as_bytes())).unwrap();
            row.set(1, Value::Int(n % 5)).unwrap();
            row.set(2, Value::Text("x".repeat(n as usize % 40).as_bytes())).unwrap();
            row.set(3, Value::Float(n as f64)).unwrap();
            row.finish().unwrap().to_vec()
        })
        .collect();
    let batch = support::batch(&records);
    let (mut selection, mut sink) = (Selection::default(), support::RowCount(0));
    let mut round = || {
        selection.select_all(batch.len());
        let _ = handler.process(&batch, &mut selection, &mut sink);
    };
    (0..5).for_each(|_| round());
    assert_eq!(allocation_counter::measure(round).count_total, 0);
    assert_eq!(sink.0, 600);
}

#[test]
fn rows_of_windows_are_compared_with_those_before_up_to_the_end_of_the_stream() {
    let timed = ("w", "ts timestamp\nk char[3]\nv i64\n");
    let at = |second: i64, rest: &str| format!("{}|{rest}", second * 1_000_000_000);
    let rows = [at(1, "a|1"), at(2, "a|2"), at(3, "b|3"), at(11, "a|4"), at(12, "b|5"), at(13, "b|6"), at(21, "b|7")];
    let inner = "SELECT k, count(*) AS n FROM w GROUP BY k, TUMBLE(ts, INTERVAL '10 seconds')";
    let sql = format!("SELECT k, n, n - lag(n) OVER (PARTITION BY k) AS change, row_number() OVER () FROM ({inner}) x");
    let mut run = SqlRun::new(&sql, &[timed]);
    run.feed("w", &rows);
    run.end("w");
    let mut found = run.rows.clone();
    found.iter_mut().for_each(|row| row.truncate(row.rfind('|').unwrap()));
    found[..2].sort();
    found[2..4].sort();
    assert_eq!(found, ["a|2|null", "b|1|null", "a|1|-1", "b|2|1", "b|1|-1"]);
    // And windows of rows with values of those before.
    let sql = "SELECT window_start, count(*), sum(d) FROM (SELECT ts, v - lag(v) OVER (PARTITION BY k) AS d FROM w) x \
               WHERE d > 0 GROUP BY TUMBLE(ts, INTERVAL '10 seconds')";
    let mut run = SqlRun::new(sql, &[timed]);
    run.feed("w", &rows);
    run.end("w");
    assert_eq!(run.rows, ["0|1|1", "10000000000|3|5", "20000000000|1|1"]);
}

/// QUALIFY is the condition of a query around one with OVER; rows that it leaves out count in the frames of others.
#[test]
fn qualify_leaves_out_rows_as_a_query_around_does() {
    let streams = [("A", "k string null\nv i64\n")];
    let rows = ["a|3", "b|1", "a|4", "null|7", "a|9", "b|8", "null|2", "a|1"];
    let lists = "k, v, row_number() OVER (PARTITION BY k) AS n, sum(v) OVER w AS s FROM A";
    for (qualify, around) in [
        ("n <= 2", "n <= 2"),
        ("s > 4 AND v <> 9", "s > 4 AND v <> 9"),
        ("row_number() OVER (PARTITION BY k) = 2", "n = 2"),
        ("N = 1 OR s IS NULL", "n = 1 OR s IS NULL"),
    ] {
        let window = "WINDOW w AS (PARTITION BY k ROWS 1 PRECEDING)";
        let texts = [
            format!("SELECT {lists} QUALIFY {qualify} {window}"),
            format!("SELECT {lists} {window} QUALIFY {qualify}"),
            format!("SELECT * FROM (SELECT {lists} {window}) q WHERE {around}"),
        ];
        let [before, behind, wanted] = texts.map(|sql| {
            let mut run = SqlRun::new(&sql, &streams);
            run.feed("A", &rows);
            run.rows
        });
        assert!(!wanted.is_empty() && wanted.len() < rows.len(), "{qualify}: {wanted:?}");
        assert_eq!((&before, &behind), (&wanted, &wanted), "{qualify}");
    }
}
