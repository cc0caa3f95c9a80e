//! Dates, and times without a zone, in text: they are of UTC, as in SQL.
#![cfg(feature = "xml")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crossdock_format::csv::{CsvOptions, InferOptions, infer_csv_sample};
use crossdock_format::encoding::{self, Encoding, EncodingOptions};
use crossdock_format::json::{JsonInferOptions, infer_json_sample};
use crossdock_format::{Format, Record, Value};

const HOUR: i64 = 3_600_000_000_000;
/// 2013-01-01T00:00:00Z.
const DAY: i64 = 376_944 * HOUR;

/// The time that a text is, in a field of its own (`list`: in a list).
fn read(encoding: Encoding, text: &str, list: bool) -> Option<i64> {
    let (list, text) = (list && encoding != Encoding::Csv, text);
    let (schema, input) = match (encoding, list) {
        (Encoding::Json, false) => ("t timestamp", format!("{{\"t\":\"{text}\"}}\n")),
        (Encoding::Json, true) => ("t timestamp[]", format!("{{\"t\":[\"{text}\"]}}\n")),
        (Encoding::Xml, false) => ("t timestamp", format!("<rows><row><t>{text}</t></row></rows>")),
        (Encoding::Xml, true) => ("t timestamp[]", format!("<rows><row><t>{text}</t></row></rows>")),
        _ => ("t timestamp", format!("t\n{text}\n")),
    };
    let format = Format::parse_schema(schema).unwrap();
    let mut decoder = encoding::decoder(encoding, &format, None, &EncodingOptions::default()).unwrap();
    let record = decoder.next_record(&mut input.as_bytes()).ok()??.to_vec();
    match Record::check(&format, &record).unwrap().get(0) {
        Value::Timestamp(time) => Some(time),
        Value::List(list) => match list.iter().next() {
            Some(Value::Timestamp(time)) => Some(time),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn dates_and_times_without_a_zone_are_of_utc() {
    for (text, time) in [
        ("2013-01-01", Some(DAY)),
        ("2013-01-01 05:00:00", Some(DAY + 5 * HOUR)),
        ("2013-01-01T05:00:00", Some(DAY + 5 * HOUR)),
        ("2013-01-01T05:00", Some(DAY + 5 * HOUR)),
        ("2013-01-01 05:00:00.000000001", Some(DAY + 5 * HOUR + 1)),
        ("2013-01-01T05:00:00Z", Some(DAY + 5 * HOUR)),
        ("2013-01-01T05:00:00+01:00", Some(DAY + 4 * HOUR)),
        ("20130101", None),
        ("2013-1-1", None),
        ("2013-02-30", None),
        ("2013-01-01 25:00:00", None),
        ("2013-01-01T05:00:00[Europe/Berlin]", None),
        ("9999-12-31", None),
        ("05:00:00", None),
    ] {
        for encoding in [Encoding::Json, Encoding::Csv, Encoding::Xml] {
            for list in [false, true] {
                assert_eq!(read(encoding, text, list), time, "{encoding}: {text}");
            }
        }
    }
}

#[test]
fn an_inferred_type_does_not_take_a_date_for_a_time() {
    let csv = infer_csv_sample(b"t\n2013-01-01\n", true, &CsvOptions::default(), &InferOptions::default()).unwrap();
    let json = infer_json_sample(b"{\"t\":\"2013-01-01 05:00:00\"}\n", true, &JsonInferOptions::default()).unwrap();
    assert_eq!((csv.schema().as_str(), json.schema().as_str()), ("t string\n", "t string\n"));
}
