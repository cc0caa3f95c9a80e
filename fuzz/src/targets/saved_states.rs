//! Saved states from anywhere: refused, or states that go on over records without harm, and that are saved again as states.
//!
//! An input's first byte names the query that the state is of; the rest is what follows its head, which is right.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crossdock_engine::{Handler, SavedStateError, StatefulHandler, TOO_MANY_ROWS, seal_state};
use crossdock_format::Format;
use crossdock_format::json::{JsonDecoder, JsonOptions};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use crossdock_query::{Query, StatefulProgram, StatefulQuery, parse_query};

/// The bytes of a saved state before the length of its kind.
const HEAD_BYTES: usize = 24;

/// Queries with each kind of operator over the stream `s`.
const QUERIES: [&str; 7] = [
    "SELECT k, count(*) AS a, sum(v) AS b, string_agg(w, ',') AS c, arg_max(w, v) AS d FROM s GROUP BY k",
    "SELECT k, count(DISTINCT w) AS a, approx_count_distinct(w) AS b, approx_quantile(v, 0.5) AS c, max(w) AS d, avg(v) AS e \
     FROM s GROUP BY k, HOP(t, INTERVAL '5 seconds', INTERVAL '20 seconds')",
    "SELECT k, first(w) AS a, stddev(v) AS b, bool_or(v > 1) AS c FROM s GROUP BY k, SESSION(t, INTERVAL '4 seconds')",
    "SELECT k, lag(w, 3) OVER (PARTITION BY k) AS a, max(v) OVER (ROWS 4 PRECEDING) AS b, sum(v) OVER (ROWS 2 PRECEDING) AS c, \
     first_value(w) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS d FROM s",
    "SELECT a.v, b.w FROM s a FULL JOIN s b ON a.k = b.k AND b.t BETWEEN a.t - INTERVAL '5 seconds' AND a.t",
    "SELECT a.v, b.w FROM s a ASOF LEFT JOIN s b ON a.k = b.k AND a.t > b.t LATENESS INTERVAL '5 seconds'",
    "SELECT window_start, sum(n) AS n FROM (SELECT k, window_start, window_end, count(*) AS n FROM s \
     GROUP BY k, TUMBLE(t, INTERVAL '5 seconds')) x GROUP BY TUMBLE(x.window_start, INTERVAL '10 seconds')",
];

static FORMAT: LazyLock<Format> = LazyLock::new(|| {
    Format::parse_schema("t timestamp\nk string null\nv i64 null\nw string null").expect("a sound schema")
});

static PROGRAMS: LazyLock<Vec<(StatefulQuery, Arc<StatefulProgram>)>> = LazyLock::new(|| {
    let plan = |sql: &&str| {
        let Ok(Query::Stateful(query)) = parse_query(sql) else { panic!("{sql} has state") };
        let program = query.plan(&[("s", &FORMAT)], &BTreeMap::new()).expect("a sound query");
        (query, Arc::new(StatefulProgram { max_state_bytes: 1 << 20, ..program }))
    };
    QUERIES.iter().map(plan).collect()
});

static RECORDS: LazyLock<Batch> = LazyLock::new(|| {
    let lines = [
        r#"{"t":"1970-01-01T00:00:01Z","k":"a","v":1,"w":"x"}"#,
        r#"{"t":"1970-01-01T00:00:03Z","k":"a","v":-7}"#,
        r#"{"t":"1970-01-01T00:00:02Z","k":"a key of more than sixteen bytes","w":"a text of more than sixteen bytes"}"#,
        r#"{"t":"1970-01-01T00:01:00Z"}"#,
    ];
    let options = JsonOptions::default();
    let decode = |line: &str| JsonDecoder::new(&FORMAT, &options).decode(line.as_bytes()).expect("a record").to_vec();
    batch(&lines.map(decode))
});

fn batch(records: &[Vec<u8>]) -> Batch {
    let (mut batch, bytes) = (Batch::new(), records.concat());
    let mut pool = Pool::new(PoolConfig { classes: vec![(bytes.len(), 1)] }).expect("memory");
    let mut buffer = pool.alloc(bytes.len()).expect("the only buffer");
    buffer[..bytes.len()].copy_from_slice(&bytes);
    let mut start = 0;
    for record in records {
        batch.records.push(Span { slice: 0, start, len: record.len() as u32 });
        start += record.len() as u32;
    }
    let buffer = batch.push_buffer(buffer.freeze()).expect("the first buffer");
    batch.push_slice(Slice { buffer, start: 0, len: start, records: records.len() as u32 }).expect("the first slice");
    batch.select_all();
    batch
}

fn handler(number: usize) -> StatefulHandler {
    let (query, program) = &PROGRAMS[number];
    let readers = query.readers(program, "s", &FORMAT, &BTreeMap::new()).expect("the query's own format");
    StatefulHandler::new(Arc::clone(program), readers).expect("a sound plan")
}

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [choice, content @ ..] = input else { return };
    let mut handler = handler(usize::from(*choice) % QUERIES.len());
    let mut saved = Vec::new();
    assert!(handler.save(&mut saved));
    saved.truncate(HEAD_BYTES + 4 + handler.state_kind().map_or(0, str::len));
    saved.extend_from_slice(content);
    seal_state(&mut saved);
    let mut out: Vec<Vec<u8>> = Vec::new();
    if handler.restore(&saved).is_err() {
        return;
    }
    for round in 0..2 {
        let _ = handler.process(&RECORDS, &mut Selection::all(RECORDS.len()), &mut out);
        let mut again = Vec::new();
        assert!(handler.save(&mut again));
        seal_state(&mut again);
        match handler.restore(&again) {
            Ok(()) => {}
            // A count that was the greatest has grown.
            Err(SavedStateError::Damaged(TOO_MANY_ROWS)) => return,
            Err(error) => panic!("a state that was saved is refused: {error}"),
        }
        if round == 0 {
            handler.advance(1 << 40, &mut out);
        }
    }
    handler.end_stream();
    handler.advance(1 << 41, &mut out);
    // The rows that leave are records.
    let format = PROGRAMS[usize::from(*choice) % QUERIES.len()].1.output();
    out.iter().for_each(|row| assert!(format.check_records(row, |_, _| {}).is_ok()));
}
