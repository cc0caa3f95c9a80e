//! Queries over nested records and foreign layouts: kernels and copies give what the interpreter says.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod support;

use crossdock_engine::{Form, SelectHandler};
use crossdock_format::json::{JsonDecoder, JsonEncoder, JsonOptions};
use crossdock_format::{Format, Record, RecordBuilder};
use crossdock_query::{Program, parse};
use proptest::prelude::*;
use support::hold_to_interpreter;

fn planned(sql: &str, format: &Format) -> Program {
    parse(sql).and_then(|select| select.plan(format)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn natural() -> (Format, Vec<Vec<u8>>) {
    let format = Format::parse_schema(
        "id u32\npos record { x f64; y i16 null } null\nside enum u8 { BUY = 1, SELL = 2 }\nprice decimal(8, scale 2) null\n\
         tags string[]\nlegs record { to string; km u16 }[] null\nmsg union { add record { n i32 }; del string }",
    )
    .unwrap();
    let lines = [
        r#"{"id":1,"pos":{"x":1.5,"y":7},"side":"BUY","price":12.50,"tags":["a","b"],"legs":[{"to":"JFK","km":3}],"msg":{"add":{"n":5}}}"#,
        r#"{"id":2,"pos":null,"side":"SELL","tags":[],"msg":{"del":"x"}}"#,
        r#"{"id":3,"pos":{"x":-1},"side":9,"price":0.01,"tags":["c"],"legs":[],"msg":{"add":{"n":-5}}}"#,
    ];
    let mut decoder = JsonDecoder::new(&format, &JsonOptions::default());
    let records = lines.iter().map(|line| decoder.decode(line.as_bytes()).unwrap().to_vec()).collect();
    (format, records)
}

/// The output, as JSON.
fn rows(sql: &str, format: &Format, records: &[Vec<u8>]) -> Vec<String> {
    let program = planned(sql, format);
    let all: Vec<usize> = (0..records.len()).collect();
    hold_to_interpreter(&program, records, &all).unwrap();
    let mut row = RecordBuilder::new(&program.output);
    let encoder = JsonEncoder::new(&program.output);
    let passing = records.iter().map(|bytes| Record::check(format, bytes).unwrap()).filter(|r| program.matches(r));
    let lines = passing.map(|record| {
        program.project(&record, &mut row).unwrap();
        let mut line = Vec::new();
        encoder.record(&Record::check(&program.output, row.finish().unwrap()).unwrap(), &mut line);
        String::from_utf8(line).unwrap().trim_end().to_owned()
    });
    lines.collect()
}

#[test]
fn nested_fields_are_columns() {
    let (format, records) = natural();
    let rows = |sql: &str| rows(sql, &format, &records);
    assert_eq!(rows("SELECT id FROM A WHERE pos.x > 0 AND pos.y = 7"), [r#"{"id":1}"#]);
    assert_eq!(rows("SELECT id FROM A WHERE A.pos.x IS NULL"), [r#"{"id":2}"#]);
    assert_eq!(rows("SELECT id FROM A WHERE side = 'SELL'"), [r#"{"id":2}"#]);
    assert_eq!(rows("SELECT id FROM A WHERE side IS NULL"), [r#"{"id":3}"#]);
    assert_eq!(rows("SELECT id FROM A WHERE side IN ('BUY', 'SELL') AND price > 12.4"), [r#"{"id":1}"#]);
    assert_eq!(rows("SELECT id FROM A WHERE legs IS NOT NULL AND msg.add.n < 0"), [r#"{"id":3}"#]);
    assert_eq!(rows("SELECT price, side FROM A WHERE id = 3"), [r#"{"price":0.01,"side":9}"#]);
    assert_eq!(
        rows("SELECT tags, legs, pos.x FROM A WHERE id = 1"),
        [r#"{"tags":["a","b"],"legs":[{"to":"JFK","km":3}],"x":1.5}"#]
    );
    assert_eq!(
        rows("SELECT price * 2 AS twice, side || '!' AS said FROM A WHERE id = 1"),
        [r#"{"twice":25.00,"said":"BUY!"}"#]
    );
    assert_eq!(
        rows("SELECT tags[1] AS tag, id FROM A WHERE 'b' <> ALL(tags) AND cardinality(legs) = 0"),
        [r#"{"tag":"c","id":3}"#]
    );
    assert_eq!(rows("SELECT * FROM A WHERE id = 2").len(), 1);
    let refused = |sql: &str| parse(sql).unwrap().plan(&format).unwrap_err().to_string();
    assert!(refused("SELECT id FROM A WHERE tags = 'a'").contains("`tags` is a list"), "lists do not compare");
    assert!(refused("SELECT id FROM A WHERE pos.z = 1").contains("no column `pos.z`"), "a path that is none");
}

/// Fields of every kind; most of them no load reads.
const FOREIGN: &str = "layout foreign big packed length len\nlen u8\nkind char[1]\na i24\nb u16 le\nc f64\nd char[3] pad space
e char[2]\nf u8 bits 2..7\ng enum i16 { ONE = 1, TWO = -2 }\nh decimal(4, scale 1)\nok bool\nlist u16[] slot u8 u8
msg union on kind { 'A' => add record { n i32; t timestamp size 6 unit ms }; 'D' => del record { s string slot u8 u8 } }";

const QUERIES: &[&str] = &[
    "SELECT list[b], cardinality(list), array_position(list, b), array_to_string(list, '-') FROM A WHERE b > ANY(list) OR list[1] IS NULL",
    "SELECT * FROM A WHERE a > 0",
    "SELECT len, b, d FROM A WHERE b BETWEEN 1 AND 300",
    "SELECT a, c, g, h, ok, list, \"msg.add.n\", msg.del.s, msg.add.t FROM A",
    "SELECT len FROM A WHERE d = 'ab' OR e LIKE 'a%' OR kind IN ('A', 'D')",
    "SELECT g || d AS text, h * 2 AS twice FROM A WHERE ok",
    "SELECT len FROM A WHERE kind = 'A' AND e < 'b' AND f = 3 AND msg.add.n IS NOT NULL",
];

proptest! {
    #[test]
    fn foreign_records_are_read_alike(rows in prop::collection::vec(prop::collection::vec(any::<u8>(), 34..60), 1..6)) {
        let format = Format::parse_schema(FOREIGN).unwrap();
        let mut records = Vec::new();
        for mut bytes in rows {
            bytes[0] = bytes.len() as u8;
            bytes[1] = [b'A', b'D', b'?'][usize::from(bytes[1]) % 3];
            if bytes[2] % 2 == 0 {
                // Sound slots, often enough.
                let list = format.fields()[format.field("list").unwrap()].offset as usize;
                bytes[list..list + 2].copy_from_slice(&[30, 1]);
                let text = format.fields()[format.field("msg.del.s").unwrap()].offset as usize;
                bytes[text..text + 2].copy_from_slice(&[32, 2]);
            }
            if Record::check(&format, &bytes).is_ok() {
                records.push(bytes);
            }
        }
        let all: Vec<usize> = (0..records.len()).collect();
        for sql in QUERIES {
            hold_to_interpreter(&planned(sql, &format), &records, &all).map_err(TestCaseError::fail)?;
        }
    }
}

#[test]
fn short_foreign_records_are_compared_right() {
    let format = Format::parse_schema("layout foreign big packed\na char[2]\nb u8").unwrap();
    let records: Vec<Vec<u8>> = [b"ab\x01", b"ac\x02", b"ab\x03"].iter().map(|bytes| bytes.to_vec()).collect();
    assert_eq!(rows("SELECT b FROM A WHERE a = 'ab'", &format, &records), [r#"{"b":1}"#, r#"{"b":3}"#]);
    let steps = SelectHandler::new(planned("SELECT b FROM A WHERE b > 1", &format)).steps();
    assert_eq!(steps[0].form, Form::Kernel, "one byte is one load in any layout");
    let steps = SelectHandler::new(planned("SELECT b FROM A WHERE a = 'ab'", &format)).steps();
    assert_eq!(steps[0].form, Form::Interpreted);
}
