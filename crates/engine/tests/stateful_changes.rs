//! Joins without bounds of time, groups whose rows change, and what is made of them: corrected as if all rows had been there at once.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crossdock_engine::{Handler, StatefulHandler, Tables};
use crossdock_format::Format;
use crossdock_mailbox::Selection;
use crossdock_query::{Query, parse_query};
use proptest::prelude::*;
use stateful_support::sql::{SqlRun, planned, records, table};

const AUCTION: (&str, &str) = ("a", "id i64\nseller string\nts timestamp\nexpires timestamp\n");
const BID: (&str, &str) = ("b", "auction i64\nprice i64 null\nts timestamp\n");
const STREAMS: [(&str, &str); 2] = [AUCTION, BID];

const WINNING: &str = "SELECT a.id, a.seller, max(b.price) AS final FROM a JOIN b ON a.id = b.auction AND b.ts BETWEEN a.ts AND \
                       a.expires GROUP BY a.id, a.seller";

fn by_seller(rest: &str) -> String {
    format!(
        "SELECT seller, count(*), sum(final), avg(final), min(final), max(final) FROM ({WINNING}) q GROUP BY seller{rest}"
    )
}

#[test]
fn rows_are_joined_in_whatever_order_they_come() {
    let sql = "SELECT a.seller, b.price FROM a JOIN b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires";
    let mut run = SqlRun::new(sql, &STREAMS);
    run.feed("b", &["1|10|5", "1|11|50", "2|12|5", "1|null|6"]);
    run.feed("a", &["1|x|4|9", "3|y|0|100"]);
    assert_eq!(run.sorted(), ["x|10", "x|null"], "those within the auction's own times");
    run.feed("b", &["3|30|1000000", "3|31|100", "1|13|9"]);
    run.feed("a", &["2|z|5|5", "1|w|0|99"]);
    assert_eq!(run.sorted(), ["w|10", "w|11", "w|13", "w|null", "x|10", "x|13", "x|null", "y|31", "z|12"]);
    assert_eq!(run.counters().late, 0);
    run.end("b");
    run.feed("a", &["3|v|0|100"]);
    assert_eq!(run.rows.last().unwrap(), "v|31", "rows stay where their stream has ended");
}

#[test]
fn a_group_of_groups_is_that_of_their_last_rows() {
    let mut run = SqlRun::new(&by_seller(""), &STREAMS);
    run.feed("a", &["1|x|0|99", "2|x|0|99", "3|y|0|99"]);
    run.feed("b", &["1|10|1"]);
    run.feed("b", &["1|7|2"]);
    run.feed("b", &["2|20|3", "1|14|4", "3|5|5", "1|100|1000"]);
    let sums: Vec<String> = run.rows.iter().map(|row| row.split('|').take(3).collect::<Vec<_>>().join("|")).collect();
    assert_eq!(sums, ["x|1|10", "x|2|30", "x|2|34", "y|1|5"], "a bid that wins nothing changes nothing");
    assert!(run.rows[2].ends_with("|14|20"), "{}", run.rows[2]);
}

/// Though the rows behind its groups come of one row.
#[test]
fn a_stage_of_corrected_groups_keeps_within_the_bound_at_each_row() {
    let sql = "SELECT r.t, u.t AS o, count(*) FROM (SELECT k, count(*) AS n FROM s GROUP BY k) q \
        JOIN r ON q.n = r.n JOIN u ON q.n = u.n GROUP BY r.t, u.t CHANGES";
    let streams = [("s", "k string\n"), ("r", "n i64\nt i64\n"), ("u", "n i64\nt i64\n")];
    let mut run = SqlRun::bounded(sql, &streams, 200_000);
    let rows: Vec<String> = (0..100).map(|t| format!("1|{t}")).collect();
    ["r", "u"].into_iter().for_each(|of| run.feed(of, &rows));
    run.feed("s", &["a"]);
    let (mut there, mut most) = (0, 0);
    for row in &run.rows {
        there += i32::from(row.ends_with("enter")) - i32::from(row.ends_with("leave"));
        most = most.max(there);
    }
    assert!(run.rows.len() > 10_000 && most < 3000, "{} rows, {most} groups", run.rows.len());
}

/// Rows that the end of a stream brings to a join are joined before the join ends, and with it what is behind.
#[test]
fn pairs_that_the_end_of_a_stream_brings_come_before_the_end() {
    let sql = "SELECT count(*) FROM (SELECT w.e AS e FROM (SELECT k, window_end AS e FROM s \
        GROUP BY k, TUMBLE(ts, INTERVAL '5 seconds')) w JOIN r ON w.k = r.k) x \
        GROUP BY TUMBLE(e, INTERVAL '10 seconds') LATENESS INTERVAL '0 seconds'";
    let mut run = SqlRun::new(sql, &[("s", "ts timestamp\nk string\n"), ("r", "k string\n")]);
    run.feed("r", &["a"]);
    run.feed("s", &["1000000000|a"]);
    ["r", "s"].into_iter().for_each(|of| run.end(of));
    assert_eq!((run.rows.as_slice(), run.handler().due_ns()), (&["1".to_owned()][..], None));
}

#[test]
fn changes_say_what_enters_is_updated_and_leaves() {
    let sql = "SELECT k, count(*) AS n, max(v) AS m FROM s GROUP BY k HAVING count(*) < 3 AND max(v) > 0 CHANGES";
    let mut run = SqlRun::new(sql, &[("s", "k string\nv i64\n")]);
    run.feed("s", &["a|0", "a|5", "b|1", "a|9", "b|1", "b|1", "b|1", "c|-1"]);
    assert_eq!(run.rows, ["a|2|5|enter", "b|1|1|enter", "a|2|5|leave", "b|2|1|update", "b|2|1|leave"]);
    // Of a column that does not change nothing comes.
    let mut run = SqlRun::new("SELECT k, max(v) FROM s GROUP BY k CHANGES", &[("s", "k string\nv i64\n")]);
    run.feed("s", &["a|3", "a|2", "a|4", "a|4"]);
    assert_eq!(run.rows, ["a|3|enter", "a|4|update"]);
}

#[test]
fn a_row_that_moves_to_another_group_leaves_the_first() {
    let inner = "SELECT k, count(*) AS n FROM s GROUP BY k";
    let streams = [("s", "k string\nv i64\n")];
    let mut run = SqlRun::new(&format!("SELECT n, count(*) FROM ({inner}) q GROUP BY n CHANGES"), &streams);
    run.feed("s", &["a|0", "b|0", "a|0"]);
    assert_eq!(run.rows, ["1|1|enter", "1|2|update", "1|1|update", "2|1|enter"]);
    run.feed("s", &["b|0"]);
    assert_eq!(run.rows[4..], ["1|1|leave", "2|2|update"]);
    // Different values, each for as long as a group has it.
    let mut run = SqlRun::new(&format!("SELECT DISTINCT n FROM ({inner}) q CHANGES"), &streams);
    run.feed("s", &["a|0", "b|0", "a|0", "b|0"]);
    assert_eq!(run.rows, ["1|enter", "2|enter", "1|leave"]);
    // Without keys there is one group, also once it has no rows.
    let sql = format!("SELECT count(*), sum(n) FROM ({inner} HAVING count(*) < 2) q CHANGES");
    let mut run = SqlRun::new(&sql, &streams);
    run.feed("s", &["a|0", "a|0"]);
    assert_eq!(run.rows, ["1|1|enter", "0|null|update"]);
}

#[test]
fn groups_that_change_are_united_and_joined() {
    let streams = [("s", "k string\nv i64\n"), ("r", "n i64\nt string\n")];
    let inner = "SELECT k, count(*) AS n FROM s GROUP BY k";
    let sql = format!("SELECT q.k, r.t FROM ({inner}) q JOIN r ON q.n = r.n CHANGES");
    let mut run = SqlRun::new(&sql, &streams);
    run.feed("r", &["1|one", "2|two"]);
    run.feed("s", &["a|0"]);
    run.feed("s", &["a|0"]);
    run.feed("r", &["2|more"]);
    assert_eq!(run.rows, ["a|one|enter", "a|one|leave", "a|two|enter", "a|more|enter"]);
    run.feed("s", &["a|0"]);
    assert_eq!(
        run.rows[4..].iter().cloned().collect::<BTreeSet<_>>(),
        ["a|more|leave", "a|two|leave"].map(str::to_owned).into()
    );
    let sql = format!("SELECT n, count(*) FROM ({inner} UNION ALL SELECT t AS k, n FROM r) u GROUP BY n CHANGES");
    let mut run = SqlRun::new(&sql, &streams);
    run.feed("s", &["a|0"]);
    run.feed("r", &["1|x"]);
    run.feed("s", &["a|0"]);
    assert_eq!(run.rows, ["1|1|enter", "1|2|update", "1|1|update", "2|1|enter"]);
}

#[test]
fn a_row_in_a_frame_is_replaced_at_its_place() {
    let sql =
        format!("SELECT id, sum(final) OVER (PARTITION BY seller ROWS 1 PRECEDING) AS two FROM ({WINNING}) q CHANGES");
    let mut run = SqlRun::new(&sql, &STREAMS);
    run.feed("a", &["1|x|0|99", "2|x|0|99", "3|x|0|99", "4|y|0|99"]);
    for bid in ["1|10|1", "2|20|1", "4|7|1", "3|30|1"] {
        run.feed("b", &[bid]);
    }
    assert_eq!(run.rows, ["1|10|enter", "2|30|enter", "4|7|enter", "3|50|enter"]);
    run.feed("b", &["2|25|2"]);
    assert_eq!(run.rows[4..], ["2|35|update", "3|55|update"], "the rows whose frames it is in");
    run.feed("b", &["1|40|2"]);
    assert_eq!(run.rows[6..], ["2|65|update"], "the first row is beyond the frame of the newest, and stays as it left");
    // Where nobody asks for changes, the rows that are now.
    let mut run = SqlRun::new(&sql.replace(" CHANGES", ""), &STREAMS);
    run.feed("a", &["1|x|0|99"]);
    run.feed("b", &["1|10|1", "1|11|1"]);
    assert_eq!(run.rows, ["1|10", "1|11"]);
}

#[test]
fn a_row_that_leaves_a_frame_is_one_less() {
    let inner = "SELECT k, count(*) AS n FROM s GROUP BY k HAVING count(*) < 3";
    let sql = format!("SELECT k, sum(n) OVER (ROWS 5 PRECEDING) AS t FROM ({inner}) q CHANGES");
    let mut run = SqlRun::new(&sql, &[("s", "k string\nv i64\n")]);
    run.feed("s", &["a|0", "b|0", "c|0"]);
    run.feed("s", &["b|0"]);
    run.feed("s", &["b|0"]);
    assert_eq!(run.rows[..3], ["a|1|enter", "b|2|enter", "c|3|enter"]);
    assert_eq!(run.rows[3..5], ["b|3|update", "c|4|update"]);
    assert_eq!(run.rows[5..], ["b|3|leave", "c|2|update"]);
}

/// Groups that change, and a stream and a table to join them with.
const CHANGING: &str = "SELECT k, count(*) AS n, max(ts) AS t FROM s GROUP BY k";
const JOINED: [(&str, &str); 2] = [("s", "k string\nts timestamp\n"), ("r", "k string\nts timestamp\nv i64\n")];

#[test]
fn steps_that_do_not_correct_take_each_row_of_a_group_as_one_of_its_own() {
    let tables = Tables::new(vec![table(
        "names",
        "k string\nname string\n",
        &["k"],
        &records("k string\nname string\n", &["a|one"]),
    )]);
    for (sql, wanted) in [
        ("SELECT k, n - lag(n, 1, 0) OVER (PARTITION BY k) AS d FROM (CHANGING) q", &["a|1", "a|1", "b|1", "a|1"][..]),
        (
            "SELECT k, n, row_number() OVER (PARTITION BY k) AS i FROM (CHANGING) q",
            &["a|1|1", "a|2|2", "b|1|1", "a|3|3"],
        ),
        ("SELECT q.n, c.name FROM (CHANGING) q JOIN names c ON q.k = c.k", &["1|one", "2|one", "3|one"]),
        (
            "SELECT q.n, r.v FROM (CHANGING) q JOIN r ON q.k = r.k AND r.ts BETWEEN q.t - INTERVAL '1 second' AND q.t \
             LATENESS INTERVAL '1 minute'",
            &["1|7", "2|7", "3|7"],
        ),
        (
            "SELECT q.n, r.v FROM (CHANGING) q ASOF JOIN r ON q.k = r.k AND q.t >= r.ts LATENESS INTERVAL '1 minute'",
            &["1|7", "2|7", "3|7"],
        ),
    ] {
        let sql = sql.replace("CHANGING", CHANGING);
        let reads = if sql.contains(" r ON ") { &JOINED[..] } else { &JOINED[..1] };
        let mut run = SqlRun::with_tables(&sql, reads, &tables);
        if reads.len() > 1 {
            run.feed("r", &["a|10|7"]);
        }
        run.feed("s", &["a|11", "a|12", "b|12", "a|13"]);
        reads.iter().rev().for_each(|(stream, _)| run.end(stream));
        assert_eq!(run.rows, wanted, "{sql}");
    }
}

#[test]
fn counts_of_each_change_of_a_group_are_refused() {
    let within = "JOIN r ON q.k = r.k AND r.ts BETWEEN q.t - INTERVAL '1 second' AND q.t";
    let asof = "ASOF JOIN r ON q.k = r.k AND q.t >= r.ts";
    let late = "LATENESS INTERVAL '1 minute'";
    let (window, groups) = ("a window of groups that change", "joined one by one");
    for (sql, words) in [
        (format!("SELECT count(*) FROM ({CHANGING}) q GROUP BY TUMBLE(t, INTERVAL '1 hour') {late}"), window),
        (format!("SELECT k, sum(n) FROM ({CHANGING}) q GROUP BY k, SESSION(t, INTERVAL '1 hour') {late}"), window),
        (
            format!(
                "SELECT count(*) FROM (SELECT k, t FROM ({CHANGING}) q UNION ALL SELECT k, ts FROM r) u GROUP BY HOP(t, \
                 INTERVAL '1 hour', INTERVAL '2 hours') {late}"
            ),
            window,
        ),
        (format!("SELECT q.k, count(*) FROM ({CHANGING}) q {within} GROUP BY q.k {late}"), groups),
        (format!("SELECT q.k, sum(q.n) FROM ({CHANGING}) q {asof} GROUP BY q.k {late}"), groups),
        (
            format!(
                "SELECT count(*) FROM (SELECT r.ts FROM ({CHANGING}) q {asof} {late}) x GROUP BY TUMBLE(ts, INTERVAL '1 hour') {late}"
            ),
            window,
        ),
        (
            format!("SELECT k, sum(n) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS s FROM ({CHANGING}) q"),
            "sum with OVER",
        ),
        (
            format!(
                "SELECT k, max(n) OVER (ROWS 3 PRECEDING) AS m, lag(n) OVER (PARTITION BY k) AS l FROM ({CHANGING}) q"
            ),
            "max with OVER",
        ),
        (
            format!(
                "SELECT avg(n) OVER (ROWS 3 PRECEDING) AS a FROM (SELECT q.n FROM ({CHANGING}) q {within} {late}) x"
            ),
            "avg with OVER",
        ),
    ] {
        let error = planned(&sql, &JOINED).map(|_| ()).unwrap_err();
        assert!(error.contains(words), "{sql}: {error}");
    }
    for sql in [
        // Each value once is no count, and the right side of ASOF JOIN only says what is joined.
        format!("SELECT DISTINCT q.k FROM ({CHANGING}) q {within} {late}"),
        format!(
            "SELECT r.k, count(*) FROM r ASOF JOIN ({CHANGING}) q ON q.k = r.k AND r.ts >= q.t GROUP BY r.k {late}"
        ),
        format!("SELECT k, sum(n) FROM ({CHANGING}) q GROUP BY k"),
        format!("SELECT k, sum(n) OVER (ROWS 3 PRECEDING) AS s FROM ({CHANGING}) q"),
        format!("SELECT sum(d) FROM (SELECT n - lag(n, 1, 0) OVER (PARTITION BY k) AS d FROM ({CHANGING}) q) x"),
    ] {
        assert_eq!(planned(&sql, &JOINED).map(|_| ()), Ok(()), "{sql}");
    }
}

#[test]
fn aggregates_that_cannot_be_corrected_are_refused_in_words() {
    let inner = "SELECT k, count(*) AS n, max(t) AS t FROM s GROUP BY k";
    let streams = [("s", "k string\nt string\nts timestamp\n")];
    for (name, call) in [
        ("string_agg", "string_agg(t, ',')"),
        ("first", "first(n)"),
        ("arg_max", "arg_max(k, n)"),
        ("approx_quantile", "approx_quantile(n, 0.5)"),
    ] {
        let error = planned(&format!("SELECT {call} FROM ({inner}) q"), &streams).unwrap_err();
        assert!(error.contains(&format!("{name} of rows that change is not possible")), "{error}");
        assert!(error.contains("possible over its rows are count, sum"), "{error}");
    }
    for sql in ["SELECT DISTINCT k FROM s CHANGES", "SELECT k, lag(t) OVER (PARTITION BY k) FROM s CHANGES"] {
        let error = planned(sql, &streams).unwrap_err();
        assert!(error.contains("CHANGES is of rows that change"), "{error}");
    }
    let error = planned("SELECT k, count(*) AS \"_change\" FROM s GROUP BY k CHANGES", &streams).unwrap_err();
    assert!(error.contains("the query makes a column `_change`"), "{error}");
    let left = "SELECT x.k FROM s x LEFT JOIN s y ON x.k = y.k";
    let error = planned(left, &streams).unwrap_err();
    assert!(error.contains("has no bounds of time"), "{error}");
    for clause in ["ON SLOW DROP OLDEST", "ON SLOW SAMPLE 3", "MAX RATE 3 PER SECOND"] {
        let error = parse_query(&format!("SELECT k, count(*) FROM s GROUP BY k CHANGES {clause}")).unwrap_err();
        assert!(error.to_string().contains("CHANGES gives every change"), "{error}");
    }
    for clause in
        ["ON SLOW BLOCK", "ON SLOW CONFLATE BY (k)", "ON SLOW CONFLATE BY (k) MAX RATE 1 PER SECOND BY k", ";", ""]
    {
        assert!(parse_query(&format!("SELECT k, count(*) FROM s GROUP BY k CHANGES {clause}")).is_ok(), "{clause}");
    }
}

/// An auction's seller, times, and bids: prices and times.
#[derive(Clone, Debug)]
enum Row {
    Auction(i64, u8, i64, i64),
    Bid(i64, Option<i64>, i64),
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let auction =
        (0..6i64, 0..3u8, 0..20i64, 0..20i64).prop_map(|(id, of, from, long)| Row::Auction(id, of, from, from + long));
    let bid =
        (0..6i64, prop::option::weighted(0.9, -9..30i64), 0..40i64).prop_map(|(of, price, at)| Row::Bid(of, price, at));
    prop::collection::vec(prop_oneof![1 => auction, 4 => bid], 1..120)
}

/// The result of all rows together, by seller: the values of `by_seller`.
fn by_hand(rows: &[Row]) -> BTreeMap<String, String> {
    let mut winning: BTreeMap<(i64, u8), Option<i64>> = BTreeMap::new();
    for row in rows {
        let Row::Auction(id, seller, from, to) = row else { continue };
        for bid in rows {
            if let Row::Bid(of, price, at) = bid
                && of == id
                && (from..=to).contains(&at)
            {
                let most = winning.entry((*id, *seller)).or_default();
                *most = (*most).max(*price);
            }
        }
    }
    let mut sellers: BTreeMap<u8, Vec<Option<i64>>> = BTreeMap::new();
    winning.iter().for_each(|((_, seller), most)| sellers.entry(*seller).or_default().push(*most));
    let text = |value: Option<i64>| value.map_or("null".to_owned(), |value| value.to_string());
    let line = |(seller, all): (&u8, &Vec<Option<i64>>)| {
        let there: Vec<i64> = all.iter().copied().flatten().collect();
        let sum = (!there.is_empty()).then(|| there.iter().sum::<i64>());
        let values = [Some(all.len() as i64), sum, there.iter().min().copied(), there.iter().max().copied()];
        (format!("seller {seller}"), values.map(text).join("|"))
    };
    sellers.iter().map(line).collect()
}

/// The last row of each key, without those that have left; the mean, which is the fourth column, is that of the sum and left out.
fn last_rows(rows: &[String]) -> BTreeMap<String, String> {
    let mut last = BTreeMap::new();
    for row in rows {
        let columns: Vec<&str> = row.split('|').collect();
        let key = columns[0].to_owned();
        let had = match columns[columns.len() - 1] {
            "leave" => last.remove(&key),
            _ => last.insert(key, [columns[1], columns[2], columns[4], columns[5]].join("|")),
        };
        assert_eq!(had.is_some(), columns[columns.len() - 1] != "enter", "{row}");
    }
    last
}

fn fed(run: &mut SqlRun, row: &Row) {
    match row {
        Row::Auction(id, seller, from, to) => run.feed("a", &[format!("{id}|seller {seller}|{from}|{to}")]),
        Row::Bid(of, price, at) => {
            let price = price.map_or("null".to_owned(), |price| price.to_string());
            run.feed("b", &[format!("{of}|{price}|{at}")]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// In any order of arrival, and after any hand-over of the state to another version of the query.
    #[test]
    fn the_last_change_of_each_key_is_the_result_of_all_rows(
        rows in rows(), seed in any::<u64>(), cuts in prop::collection::vec(0..120usize, 0..4),
    ) {
        let mut rows = rows;
        fastrand::Rng::with_seed(seed).shuffle(&mut rows);
        let versions = [by_seller(" CHANGES"), by_seller(" CHANGES").replace("a.expires GROUP", "a.expires WHERE b.auction > -100 GROUP")];
        let mut runs = versions.each_ref().map(|sql| SqlRun::new(sql, &STREAMS));
        let (mut turn, mut made) = (0, Vec::new());
        for (at, row) in rows.iter().enumerate() {
            if at > 0 && cuts.contains(&at) {
                let [first, second] = &mut runs;
                let (from, to) = if turn == 0 { (first, second) } else { (second, first) };
                to.take_over(from);
                turn = 1 - turn;
            }
            fed(&mut runs[turn], row);
            made.append(&mut runs[turn].rows);
            prop_assert_eq!(last_rows(&made), by_hand(&rows[..=at]));
        }
    }

    /// Whatever goes, the state is never more than its bound; a group that goes leaves, and what is above it is of the others.
    #[test]
    fn the_bound_is_never_passed(rows in rows(), bound in 0..6000usize) {
        let mut run = SqlRun::bounded(&by_seller(" CHANGES"), &STREAMS, bound);
        for row in &rows {
            fed(&mut run, row);
            prop_assert!(run.handler().state_bytes() <= bound, "{} of {bound}", run.handler().state_bytes());
        }
        last_rows(&run.rows);
        if run.counters().forgotten == 0 {
            prop_assert_eq!(last_rows(&run.rows), by_hand(&rows));
        }
    }

    /// Sums and deviations of floats, with infinities and NaN, are those of what is left.
    #[test]
    fn values_are_taken_out_again(values in prop::collection::vec((0..5u8, prop::sample::select(vec![
        0.5, -0.0, 3.25, -7.5, 1024.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY,
    ])), 1..60)) {
        let inner = "SELECT k, max(x) AS x, count(*) AS n FROM s GROUP BY k";
        let sql = format!("SELECT sum(x), avg(x), min(x), max(x), count(DISTINCT x), sum(DISTINCT n), bool_or(n > 3), var_pop(n) FROM ({inner}) q");
        let mut run = SqlRun::new(&sql, &[("s", "k string\nx f64\n")]);
        let mut again = SqlRun::new(&sql, &[("s", "k string\nx f64\n")]);
        let row = |(k, x): &(u8, f64)| format!("k{k}|{x}");
        values.iter().for_each(|value| run.feed("s", &[row(value)]));
        // The same groups, the largest values first: fewer values are taken out again.
        let mut sorted = values.clone();
        sorted.sort_by(|one, other| other.1.total_cmp(&one.1));
        sorted.iter().for_each(|value| again.feed("s", &[row(value)]));
        let near = |row: &String| -> Vec<String> {
            row.split('|').map(|value| value.parse::<f64>().map_or(value.to_owned(), |value| format!("{:.6}", value + 0.0))).collect()
        };
        prop_assert_eq!(run.rows.last().map(near), again.rows.last().map(near));
    }
}

#[test]
fn warm_groups_of_groups_allocate_nothing() {
    let inner = "SELECT k, count(*) % 7 AS n, max(t) AS t FROM s GROUP BY k";
    let sql =
        format!("SELECT n, count(*), min(t), max(t), count(DISTINCT t), avg(n) FROM ({inner}) q GROUP BY n CHANGES");
    let schema = "k string\nt string\n";
    let Ok(Query::Stateful(query)) = parse_query(&sql) else { panic!("it has state") };
    let program = Arc::new(planned(&sql, &[("s", schema)]).unwrap());
    let format = Format::parse_schema(schema).unwrap();
    let readers = query.readers(&program, "s", &format, &BTreeMap::new()).unwrap();
    let mut handler = StatefulHandler::new(program, readers).unwrap();
    let rows: Vec<String> = (0..98)
        .map(|n| format!("{}|{}", ["a", "b", "a key of more than sixteen bytes"][n % 3], "x".repeat(n % 40)))
        .collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let batch = support::batch(&records(schema, &rows));
    let (mut selection, mut sink) = (Selection::default(), support::RowCount(0));
    let mut round = || {
        selection.select_all(batch.len());
        let _ = handler.process(&batch, &mut selection, &mut sink);
    };
    (0..20).for_each(|_| round());
    assert_eq!(allocation_counter::measure(round).count_total, 0);
    assert!(sink.0 > 1000, "{}", sink.0);
}

#[test]
fn a_join_without_bounds_forgets_the_oldest_rows_of_both_sides() {
    let sql = "SELECT a.seller, b.price FROM a JOIN b ON a.id = b.auction";
    let bound = 40_000;
    let mut run = SqlRun::bounded(sql, &STREAMS, bound);
    for id in 0..600 {
        run.feed("a", &[format!("{id}|seller|0|9")]);
        run.feed("b", &[format!("{id}|1|1"), format!("{id}|2|1")]);
        assert!(run.handler().state_bytes() <= bound, "{}", run.handler().state_bytes());
    }
    assert_eq!(run.rows.len(), 1200);
    assert!(run.counters().forgotten > 600, "{:?}", run.counters());
    run.feed("b", &["0|3|1", "599|3|1"]);
    assert_eq!(run.rows.len(), 1201, "the oldest auction is forgotten, the newest is not");
}
