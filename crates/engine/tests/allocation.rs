//! A warm handler allocates nothing, whatever form its program has.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod support;

use crossdock_engine::{
    Handler, HandlerProgram, Natives, SelectHandler, SharedTable, Sink, TableOrder, TableRows, Tables,
};
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_mailbox::Selection;
use crossdock_query::{ReferenceTable, parse};

/// Counts rows and keeps none.
struct Counted(usize);

impl Sink for Counted {
    fn push(&mut self, _record: &[u8]) {
        self.0 += 1;
    }
}

#[test]
fn a_warm_handler_allocates_nothing() {
    let format = Format::parse_schema(
        "n i32\nm f64 null\ns string null\nc char[3]\nt timestamp\nd decimal(8, scale 2)\nl i64[]\nw string[]\n",
    )
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
            row.begin_list(6).unwrap();
            (0..n % 5).for_each(|value| row.push(Value::Int(value * n)).unwrap());
            row.end_list().unwrap();
            row.begin_list(7).unwrap();
            row.push(Value::Text(b"JFK")).unwrap();
            row.push(Value::Text(b"a text of more than sixteen bytes")).unwrap();
            row.end_list().unwrap();
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
        "SELECT l[2] AS e, w[2] || w[1] AS t, array_to_string(l, ',') AS a, array_position(w, c) AS p FROM a WHERE n <= ANY(l) OR c <> ALL(w)",
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

#[test]
fn a_warm_join_with_a_table_allocates_nothing() {
    let streams = Format::parse_schema("n i32\ncode string null\n").unwrap();
    let format = Format::parse_schema("code char[3]\nlabel string null\n").unwrap();
    let mut row = RecordBuilder::new(&format);
    let mut rows = Vec::new();
    for (code, label) in [("JFK", "a label beyond sixteen bytes"), ("EWR", "b"), ("JFK", "c")] {
        row.clear();
        row.set_text(0, code).unwrap();
        row.set_text(1, label).unwrap();
        rows.extend_from_slice(row.finish().unwrap());
    }
    let table = ReferenceTable { name: "t".to_owned(), format, key: vec![0] };
    let rows = TableRows::new(&table, rows, 0).unwrap();
    let tables = Tables::new(vec![SharedTable::new(table, rows)]);
    let mut row = RecordBuilder::new(&streams);
    let records: Vec<Vec<u8>> = (0..50i64)
        .map(|n| {
            row.clear();
            row.set_i64(0, n).unwrap();
            row.set_text(1, ["JFK", "EWR", "LGA"][n as usize % 3]).unwrap();
            row.finish().unwrap().to_vec()
        })
        .collect();
    let batch = support::batch(&records);
    let sql = "SELECT s.n, upper(t.label) FROM s LEFT JOIN t ON s.code = t.code AND s.n > 5";
    let program = HandlerProgram::sql(sql);
    let made = program.make(&Natives::built_in().with_tables(tables.clone()), &streams).unwrap();
    let mut handler = made.handler;
    let (mut selection, mut sink) = (Selection::default(), Counted(0));
    let mut round = || {
        selection.select_all(batch.len());
        let _ = handler.process(&batch, &mut selection, &mut sink);
    };
    round();
    assert_eq!(allocation_counter::measure(round).count_total, 0);
    // Nor does it when it goes on with other rows of the table: the former ones are given back.
    let mut order = TableOrder::of(tables.get("t").unwrap()).into_values();
    assert_eq!(allocation_counter::measure(|| assert!(handler.set_parameters(&mut order))).count_total, 0);
    assert!(sink.0 > 100, "{}", sink.0);
}
