//! Queries over a record in pieces give what they give of the record at one place, and join it only for what lies beyond its first piece.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod support;

use crossdock_engine::{Handler, SelectHandler, Verdict};
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice};
use crossdock_query::{Program, parse};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the variable part of a record: its second text begins in the first piece, and ends in another.
const TEXT_BYTES: usize = 3000;
/// Bytes of the first piece, which holds the fixed part and the short text.
const FIRST_BYTES: usize = 256;

fn format() -> Format {
    Format::parse_schema("n i64\nflag bool\nname char[8]\nlevel i32 null\nlow u16\nshort string\nlong string null")
        .unwrap()
}

fn record(n: i64, level: Option<i64>) -> Vec<u8> {
    let mut row = RecordBuilder::new(&format());
    row.set(0, Value::Int(n)).unwrap();
    row.set(1, Value::Bool(n % 2 == 0)).unwrap();
    row.set(2, Value::Text(b"piece")).unwrap();
    if let Some(level) = level {
        row.set(3, Value::Int(level)).unwrap();
    }
    row.set(4, Value::Uint(7)).unwrap();
    row.set(5, Value::Text(b"short")).unwrap();
    let long: Vec<u8> = (0..TEXT_BYTES).map(|at| b'a' + (at % 26) as u8).collect();
    row.set(6, Value::Text(&long)).unwrap();
    row.finish().unwrap().to_vec()
}

/// The record cut into a first piece of that length and others of 512 bytes, with other bytes between them.
fn in_pieces(record: &[u8], first: usize, joins: &Arc<AtomicU64>) -> Batch {
    let mut pool = Pool::new(PoolConfig { classes: vec![(1024, 16), (8192, 1)] }).unwrap();
    let mut batch = Batch::new();
    let mut rest = record;
    while !rest.is_empty() {
        let (piece, others) =
            rest.split_at(rest.len().min(if batch.is_empty() && rest.len() == record.len() { first } else { 512 }));
        let mut buffer = pool.alloc(1024).unwrap();
        buffer.fill(0xff);
        buffer[40..40 + piece.len()].copy_from_slice(piece);
        let buffer = batch.push_buffer(buffer.freeze()).unwrap();
        batch.push_slice(Slice { buffer, start: 40, len: piece.len() as u32, records: 0 }).unwrap();
        rest = others;
    }
    batch.put_in_pieces(pool.alloc(record.len()).unwrap(), joins).unwrap();
    batch
}

fn planned(sql: &str) -> Program {
    parse(sql).and_then(|select| select.plan(&format())).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The verdict of a query on a batch, whether the record passes, the rows, and what was counted.
fn run(program: &Program, batch: &Batch) -> (Verdict, usize, Vec<Vec<u8>>, u64, Option<String>) {
    let (mut handler, mut selection) = (SelectHandler::new(program.clone()), Selection::all(1));
    let mut rows: Vec<Vec<u8>> = Vec::new();
    let verdict = handler.process(batch, &mut selection, &mut rows);
    (verdict, selection.len(), rows, handler.counters().row_errors, handler.refusal())
}

/// Queries, and whether they read beyond the first piece.
const QUERIES: [(&str, bool); 21] = [
    ("SELECT * FROM N", false),
    ("SELECT * FROM N WHERE n > 3", false),
    ("SELECT * FROM N WHERE n IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)", false),
    ("SELECT * FROM N WHERE flag", false),
    ("SELECT * FROM N WHERE NOT flag AND low = 7", false),
    ("SELECT * FROM N WHERE name = 'piece'", false),
    ("SELECT * FROM N WHERE name LIKE 'pi%' AND n < 8", false),
    ("SELECT * FROM N WHERE level IS NULL", false),
    ("SELECT * FROM N WHERE level > 0 OR n % 3 = 1", false),
    ("SELECT * FROM N WHERE short = 'short'", false),
    ("SELECT * FROM N WHERE short LIKE '%t' AND n <> 2", false),
    ("SELECT n, name, short FROM N", false),
    ("SELECT n + level AS sum, low FROM N WHERE n >= 0", false),
    ("SELECT short || name AS text FROM N", false),
    ("SELECT n FROM N WHERE long IS NOT NULL", false),
    ("SELECT * FROM N WHERE long LIKE 'abc%'", true),
    ("SELECT * FROM N WHERE long = 'abc'", true),
    ("SELECT * FROM N WHERE long LIKE '%xyz'", true),
    ("SELECT n, long FROM N", true),
    ("SELECT length(long) AS len FROM N", true),
    ("SELECT long, short FROM N WHERE n < 5", true),
];

#[test]
fn a_query_joins_a_record_for_what_lies_beyond_its_first_piece_alone() {
    for (sql, reads_on) in QUERIES {
        let (program, record, joins) = (planned(sql), record(2, Some(1)), Arc::new(AtomicU64::new(0)));
        let batch = in_pieces(&record, FIRST_BYTES, &joins);
        let whole = run(&program, &support::batch(std::slice::from_ref(&record)));
        assert_eq!(run(&program, &batch), whole, "{sql}");
        assert_eq!(joins.load(Ordering::Relaxed), u64::from(reads_on), "{sql}");
    }
}

proptest! {
    #[test]
    fn queries_of_a_record_in_pieces_are_those_of_the_record(
        n in -2i64..12,
        level in proptest::option::of(prop_oneof![-2i64..3, Just(i64::from(i32::MAX))]),
        first in 1usize..1024 - 40,
    ) {
        let record = record(n, level);
        for (sql, reads_on) in QUERIES {
            let (program, joins) = (planned(sql), Arc::new(AtomicU64::new(0)));
            let batch = in_pieces(&record, first, &joins);
            let whole = run(&program, &support::batch(std::slice::from_ref(&record)));
            prop_assert!(run(&program, &batch) == whole, "{sql} with a first piece of {first} bytes");
            prop_assert!(first < FIRST_BYTES || reads_on || joins.load(Ordering::Relaxed) == 0, "{sql}");
        }
    }
}

#[test]
fn a_row_error_names_the_values_of_the_whole_record() {
    let sql = "SELECT n FROM N WHERE 1 / (n - 2) = 1 AND long <> ''";
    let (record, joins) = (record(2, None), Arc::new(AtomicU64::new(0)));
    let found = run(&planned(sql), &in_pieces(&record, FIRST_BYTES, &joins));
    assert_eq!(found, run(&planned(sql), &support::batch(std::slice::from_ref(&record))));
    assert_eq!(found.3, 1);
}
