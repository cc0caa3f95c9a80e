//! A warm handler allocates nothing, whatever form its program has.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod support;

use crossdock_engine::{Handler, SelectHandler, Sink};
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_mailbox::Selection;
use crossdock_query::parse;

/// Counts rows and keeps none.
struct Counted(usize);

impl Sink for Counted {
    fn push(&mut self, _record: &[u8]) {
        self.0 += 1;
    }
}

#[test]
fn a_warm_handler_allocates_nothing() {
    let format =
        Format::parse_schema("n i32\nm f64 null\ns string null\nc char[3]\nt timestamp\nd decimal(8, scale 2)\n")
            .unwrap();
    let mut row = RecordBuilder::new(&format);
    let records: Vec<Vec<u8>> = (0..50i64)
        .map(|n| {
            row.clear();
            row.set_i64(0, n).unwrap();
            row.set_f64(1, n as f64 / 8.0).unwrap();
            row.set_text(2, "x".repeat(n as usize)).unwrap();
            row.set_text(3, "JFK").unwrap();
            row.set_timestamp(4, n * 1_000_000_007).unwrap();
            row.set(5, Value::Decimal { unscaled: (n * 7).into(), scale: 2 }).unwrap();
            row.finish().unwrap().to_vec()
        })
        .collect();
    let batch = support::batch(&records);
    for sql in [
        "SELECT * FROM a WHERE n > 20 AND c = 'JFK' AND s LIKE 'xx%' AND n IN (1, 30, 31, 32, 33, 34, 35, 36, 37, 38)",
        "SELECT s, c, n, m FROM a WHERE n % 2 = 0 OR s LIKE '%x_' OR s ILIKE 'X'",
        "SELECT n, n::text || m::text || t::text || s AS a, CASE c WHEN 'LAX' THEN s ELSE c || '!' END AS b FROM a",
        "SELECT s||'1'||s||'2'||s||'3'||s||'4'||s||'5'||s AS long, COALESCE(NULLIF(s, c), '') FROM a WHERE t::text > '1970'",
        "SELECT d * 3 AS x, d / 7 AS y, round(d, 1) AS z, d::text AS t FROM a WHERE d > 0.3 AND d * 3 <> 0.33",
        "SELECT upper(s) || left(c, 2) AS u, replace(s, 'x', 'yy') AS r, concat_ws('-', c, n, s) AS w FROM a WHERE c ~ '[A-Z]+'",
        "SELECT regexp_replace(s, '(x)(x)', '<\\1>', 'g') AS g, regexp_substr(c, 'J(.)') AS p, encode(sha256(s), 'hex') FROM a",
        "SELECT to_char(t, 'Dy YYYY') AS a, date_trunc('week', t) AS b, EXTRACT(epoch FROM t + INTERVAL '1 month') AS e FROM a",
        "SELECT concat('{\"k\": [1, \"', s, '\"]}') -> 'k' ->> 1 AS member, sqrt(n) AS root FROM a",
        "SELECT n / (n - n) AS x, m * 1e308 * 1e308 AS y, s::int AS z FROM a",
    ] {
        let program = parse(sql).unwrap().plan(&format).unwrap();
        let mut handler = SelectHandler::new(program);
        let mut selection = Selection::default();
        let mut sink = Counted(0);
        let mut round = || {
            selection.select_all(batch.len());
            let _ = handler.process(&batch, &mut selection, &mut sink);
        };
        round();
        let allocations = allocation_counter::measure(round).count_total;
        assert_eq!(allocations, 0, "{sql}");
    }
}
