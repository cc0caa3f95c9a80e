//! States that are saved and made again: the rest of the output is the same, and no bytes do harm.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use crossdock_engine::{
    Handler, HandlerProgram, HandlerSource, Natives, SavedStateError, StateOrder, Tables, seal_state,
};
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_mailbox::Selection;
use crossdock_query::KeyedState;
use proptest::prelude::*;
use stateful_support::sql::SqlRun;

const S: (&str, &str) = (
    "s",
    "ts timestamp\nk string null\nv i64 null\nf f64 null\nword string null\nb bool null\nd decimal(8, scale 2)\n",
);
const Q: (&str, &str) = ("q", "ts timestamp\nk string null\nw i64\nword string null\n");
/// The bytes of a saved state before the kind.
const HEAD_BYTES: usize = 24;

/// All aggregates, each under a name of its own.
const AGGREGATES: [&str; 25] = [
    "count(*)",
    "count(v)",
    "count(DISTINCT word)",
    "count(*) FILTER (WHERE v > 0)",
    "sum(v)",
    "sum(d)",
    "sum(f)",
    "sum(DISTINCT v)",
    "avg(v)",
    "avg(f)",
    "min(word)",
    "max(f)",
    "max(d)",
    "stddev(f)",
    "var_pop(v)",
    "first(word)",
    "last(v)",
    "arg_max(word, v)",
    "arg_min(v, word)",
    "approx_count_distinct(word)",
    "approx_quantile(f, 0.5)",
    "bool_and(b)",
    "bool_or(b)",
    "string_agg(word, ', ')",
    "string_agg(DISTINCT word, ';')",
];

fn aggregates() -> String {
    let named = AGGREGATES.iter().enumerate().map(|(number, call)| format!("{call} AS a{number}"));
    named.collect::<Vec<_>>().join(", ")
}

/// Queries with each kind of operator.
fn queries() -> Vec<String> {
    let all = aggregates();
    let of = |window: &str, rest: &str| format!("SELECT k, {all} FROM s GROUP BY k{window} {rest}");
    let lateness = "LATENESS INTERVAL '5 seconds'";
    let near = "ON s.k = q.k AND q.ts BETWEEN s.ts - INTERVAL '5 seconds' AND s.ts + INTERVAL '2 seconds'";
    let counted =
        "SELECT k, window_start, window_end, count(*) AS n FROM s GROUP BY k, TUMBLE(ts, INTERVAL '5 seconds')";
    vec![
        of("", ""),
        of(", TUMBLE(ts, INTERVAL '10 seconds')", lateness),
        of(", HOP(ts, INTERVAL '5 seconds', INTERVAL '20 seconds')", lateness),
        of(", SESSION(ts, INTERVAL '4 seconds')", lateness),
        "SELECT DISTINCT k, word FROM s".to_owned(),
        "SELECT k, lag(word, 3) OVER (PARTITION BY k) AS a, sum(v) OVER (PARTITION BY k ROWS 9 PRECEDING) AS b, \
         max(v) OVER (PARTITION BY k ROWS 4 PRECEDING) AS c, min(word) OVER (PARTITION BY k ROWS BETWEEN 5 PRECEDING AND 1 PRECEDING) AS d, \
         first_value(word) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS e, first_value(v) OVER (ROWS 3 PRECEDING) AS g, \
         string_agg(word, '-') OVER (PARTITION BY k ROWS 2 PRECEDING) AS h, row_number() OVER (PARTITION BY k) AS i, \
         max(word) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS j, max(d) OVER (ROWS 6 PRECEDING) AS l FROM s"
            .to_owned(),
        format!("SELECT s.k, s.v, s.word, q.w FROM s JOIN q {near}"),
        format!("SELECT s.k, s.v, s.word, q.w FROM s LEFT JOIN q {near}"),
        format!("SELECT s.k, s.v, s.word, q.w, q.word AS other FROM s FULL JOIN q {near}"),
        "SELECT s.v, s.word, q.w FROM s ASOF LEFT JOIN q ON s.k = q.k AND s.ts >= q.ts".to_owned(),
        format!("SELECT s.v, s.word, q.w FROM s ASOF LEFT JOIN q ON s.k = q.k AND s.ts > q.ts {lateness}"),
        "SELECT k, count(*) AS n FROM (SELECT k, ts FROM s UNION ALL SELECT k, ts FROM q) x GROUP BY k".to_owned(),
        format!("SELECT window_start, sum(n) AS n FROM ({counted}) x GROUP BY TUMBLE(x.window_start, INTERVAL '10 seconds')"),
        format!("SELECT k, n, n - lag(n) OVER (PARTITION BY k) AS change FROM ({counted}) x"),
        format!(
            "WITH c AS ({counted}), m AS (SELECT window_start AS ws, max(n) AS n FROM c GROUP BY TUMBLE(c.window_start, INTERVAL '5 seconds')) \
             SELECT c.k, c.n FROM c JOIN m ON c.n = m.n AND c.window_start = m.ws"
        ),
    ]
}

fn run(sql: &str) -> SqlRun {
    let reads =
        |(name, _): &(&str, &str)| sql.contains(&format!("FROM {name}")) || sql.contains(&format!("JOIN {name}"));
    let streams: Vec<(&str, &str)> = [S, Q].into_iter().filter(reads).collect();
    SqlRun::new(sql, &streams)
}

/// A row of a stream as text.
type Row = (&'static str, String);

fn rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let text = || prop::sample::select(vec!["null", "a", "b", "", "a text of more than sixteen bytes"]);
    let number = prop_oneof![Just("null".to_owned()), (-5..5i64).prop_map(|number| number.to_string())];
    let float = prop::sample::select(vec!["null", "0.5", "-2.25", "1e300", "inf", "NaN"]);
    let truth = prop::sample::select(vec!["null", "true", "false"]);
    let row = (any::<bool>(), 0..60i64, text(), number, float, text(), truth, -999..999i64);
    let row = row.prop_map(|(is_other, second, k, v, f, word, b, d)| {
        let ts = second * 1_000_000_000;
        match is_other {
            true => ("q", format!("{ts}|{k}|{d}|{word}")),
            false => ("s", format!("{ts}|{k}|{v}|{f}|{word}|{b}|{d}")),
        }
    });
    prop::collection::vec(row, 1..most)
}

/// Gives a query the rows of the streams that it reads.
fn feed(run: &mut SqlRun, sql: &str, rows: &[Row]) {
    let has_other = sql.contains(" q ") || sql.contains("FROM q");
    for (stream, row) in rows.iter().filter(|(stream, _)| has_other || *stream == "s") {
        run.feed(stream, &[row]);
    }
}

/// The same, then the end of the streams; the rows that leave.
fn finish(mut run: SqlRun, sql: &str, rows: &[Row]) -> Vec<String> {
    run.rows.clear();
    feed(&mut run, sql, rows);
    for stream in ["s", "q"].into_iter().filter(|stream| sql.contains(&format!(" {stream} ")) || sql.ends_with(stream))
    {
        run.end(stream);
    }
    run.sorted()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_state_that_was_saved_goes_on_as_that_which_was_not(
        query in 0..queries().len(), rows in rows(80), cut in 0..80usize, again in 0..80usize,
    ) {
        let sql = &queries()[query];
        let (before, rest) = rows.split_at(cut.min(rows.len()));
        let (between, rest) = rest.split_at(again.min(rest.len()));
        let (mut whole, mut first, mut second) = (run(sql), run(sql), run(sql));
        feed(&mut whole, sql, before);
        first.restore(&whole.saved()).unwrap();
        prop_assert_eq!(first.handler().due_ns(), whole.handler().due_ns());
        for run in [&mut whole, &mut first] {
            run.rows.clear();
            feed(run, sql, between);
        }
        prop_assert_eq!(whole.sorted(), first.sorted(), "{}", sql);
        // A state that was made of one is saved as that is.
        second.restore(&first.saved()).unwrap();
        let wanted = finish(whole, sql, rest);
        prop_assert_eq!(&finish(first, sql, rest), &wanted, "{}", sql);
        prop_assert_eq!(&finish(second, sql, rest), &wanted, "{}", sql);
    }

    /// Whatever is changed, with a checksum that says that nothing was: it is refused, or a state that goes on.
    #[test]
    fn changed_bytes_do_no_harm(
        query in 0..queries().len(),
        rows in rows(60),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let sql = &queries()[query];
        let mut before = run(sql);
        feed(&mut before, sql, &rows);
        let mut saved = before.saved();
        let from = HEAD_BYTES + 4 + before.handler().state_kind().unwrap().len();
        for (at, byte) in &changes {
            let at = from + at.index(saved.len() - from);
            saved[at] = *byte;
        }
        prop_assert!(saved == before.saved() || run(sql).restore(&saved).is_err(), "its checksum is another one");
        if let Some(cut) = cut {
            saved.truncate(from + cut.index(saved.len() - from));
        }
        seal_state(&mut saved);
        let mut after = run(sql);
        if after.restore(&saved).is_ok() {
            let _ = after.saved();
            let _ = finish(after, sql, &rows);
        } else {
            // It has the state that it had.
            let wanted = finish(run(sql), sql, &rows);
            prop_assert_eq!(finish(after, sql, &rows), wanted);
        }
    }
}

#[test]
fn a_saved_state_is_one_of_its_query_and_of_this_release() {
    let [first, second] = ["9", "10"].map(|n| format!("SELECT sum(v) OVER (ROWS {n} PRECEDING) AS x FROM s"));
    let saved = run(&first).saved();
    assert_eq!(run(&first).restore(&saved), Ok(()));
    assert_eq!(run(&second).restore(&saved), Err(SavedStateError::OtherKind));
    for (at, wanted) in [(0, SavedStateError::Unknown), (8, SavedStateError::Unknown)] {
        let mut other = saved.clone();
        other[at] ^= 1;
        assert_eq!(run(&first).restore(&other), Err(wanted));
    }
    for length in 0..saved.len() {
        assert!(run(&first).restore(&saved[..length]).is_err(), "{length}");
    }
    assert_eq!(
        run(&first).restore(&[&saved[..], &[0]].concat()),
        Err(SavedStateError::Damaged("its checksum is another one"))
    );
}

/// A state of a stream for records of a key and a value.
fn latest(max_keys: u64) -> (Box<dyn Handler>, Format) {
    let key = vec!["k".to_owned()];
    let state = KeyedState { stream: "s".into(), key, max_keys, max_bytes: 1 << 20, max_age_ns: Some(1000) };
    let program = HandlerProgram { source: HandlerSource::State(state), ..HandlerProgram::sql("") };
    program.check(&Natives::built_in()).unwrap();
    let format = Format::parse_schema("k string null\nv i64\n").unwrap();
    let made = program.make_stateful((&[("s".to_owned(), format.clone())], &Tables::default()), "s", &format).unwrap();
    (made.handler, made.output)
}

fn put(handler: &mut dyn Handler, rows: &[(String, i64)], now_ns: u64) -> Vec<Vec<u8>> {
    let format = Format::parse_schema("k string null\nv i64\n").unwrap();
    let mut builder = RecordBuilder::new(&format);
    let record = |(key, value): &(String, i64)| {
        builder.clear();
        builder.set(0, Value::Text(key.as_bytes())).unwrap();
        builder.set(1, Value::Int(*value)).unwrap();
        builder.finish().unwrap().to_vec()
    };
    let records: Vec<Vec<u8>> = rows.iter().map(record).collect();
    let batch = support::batch(&records);
    let mut out: Vec<Vec<u8>> = Vec::new();
    handler.advance(now_ns, &mut out);
    let _ = handler.process(&batch, &mut Selection::all(batch.len()), &mut out);
    out
}

/// All rows of a state, by key, as a reader gets them.
fn walked(handler: &mut dyn Handler) -> Vec<Vec<u8>> {
    assert!(handler.set_parameters(&mut StateOrder { readers: 1, walks: 1 }.into_values()));
    let mut out: Vec<Vec<u8>> = Vec::new();
    while handler.has_walk() {
        handler.walk(&mut out);
    }
    out
}

#[test]
fn the_state_of_a_stream_comes_back_with_its_order_of_use_and_its_ages() {
    let (mut before, _) = latest(50);
    let row = |number: i64| (format!("key {}", number * 7 % 60), number);
    for number in 0..200 {
        put(&mut *before, &[row(number)], number as u64);
    }
    let mut saved = Vec::new();
    assert!(before.save(&mut saved));
    seal_state(&mut saved);
    let (mut after, _) = latest(50);
    after.restore(&saved).unwrap();
    assert_eq!(after.due_ns(), before.due_ns(), "the oldest key goes first");
    // Keys that come now let the same ones go.
    for number in 200..230 {
        put(&mut *before, &[row(number)], number as u64);
        put(&mut *after, &[row(number)], number as u64);
    }
    let by_bytes = |mut rows: Vec<Vec<u8>>| {
        rows.sort();
        rows
    };
    let (wanted, found) = (by_bytes(walked(&mut *before)), by_bytes(walked(&mut *after)));
    assert!(wanted.len() > 50);
    assert_eq!(found, wanted);
    // Those that are too old go at their time.
    let left = |handler: &mut dyn Handler| {
        let gone = put(handler, &[], 1210);
        by_bytes(gone)
    };
    assert_eq!(left(&mut *after), left(&mut *before));
    // Within a smaller bound, the last ones used come back.
    let (mut small, _) = latest(10);
    small.restore(&saved).unwrap();
    assert_eq!(walked(&mut *small).len(), 10 + 2);
}

/// A core copies a state without a call for memory, where there is room for it.
#[test]
fn to_save_a_state_takes_no_memory_but_that_of_the_bytes() {
    for sql in queries() {
        let mut run = run(&sql);
        let rows = |stream: &str, rest: &str| -> Vec<String> {
            (0..200)
                .map(|n| format!("{}|key {}|{n}|{}", n * 1_000_000_000i64 / 50, n % 40, rest.replace('#', stream)))
                .collect()
        };
        run.feed("s", &rows("s", "0.5|word of #|true|5"));
        let size = run.saved().len();
        let mut out = Vec::with_capacity(size);
        let info = allocation_counter::measure(|| assert!(run.handler().save(&mut out)));
        assert_eq!((info.count_total, out.len()), (0, size), "{sql}");
    }
}

/// Other handlers have no such states.
#[test]
fn a_query_without_state_saves_none() {
    let program = HandlerProgram::sql("SELECT * FROM s");
    let format = Format::parse_schema(S.1).unwrap();
    let mut made = program.make(&Natives::built_in(), &format).unwrap();
    assert!(!made.handler.save(&mut Vec::new()));
    assert_eq!(made.handler.restore(&[]), Err(SavedStateError::OtherKind));
}
