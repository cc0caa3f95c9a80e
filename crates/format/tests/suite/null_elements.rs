//! Lists with null elements: read into lists of records of one nullable field, `value`.
#![cfg(all(feature = "arrow", feature = "avro"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field};
use crossdock_format::encoding::{self, Encoding, EncodingOptions, Loss, Schema};
use crossdock_format::json::{JsonEncoder, JsonInferOptions, infer_json_sample};
use crossdock_format::{Format, Record};
use parquet::arrow::ArrowWriter;

/// The records that are read, as JSON; errors as reported.
fn read(encoding: Encoding, schema: &str, mut bytes: &[u8], by: Option<&Schema>) -> Vec<String> {
    let format = Format::parse_schema(schema).unwrap();
    let mut decoder = encoding::decoder(encoding, &format, by, &EncodingOptions::default()).unwrap();
    let encoder = JsonEncoder::new(&format);
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        match decoder.next_record(&mut bytes) {
            Ok(Some(record)) => encoder.record(&Record::check(&format, record).unwrap(), &mut line),
            Ok(None) => return lines,
            Err(error) if error.is_item() => line.extend_from_slice(error.to_string().as_bytes()),
            Err(error) => panic!("{error}"),
        }
        lines.push(String::from_utf8(line).unwrap().trim_end().to_owned());
    }
}

const TEXTS: &str = "a record { value string null }[]";
const LISTS: &str = "a record { value i64[] null }[]";
const RECORDS: &str = "a record { value record { x i64 null } null }[]";

#[test]
fn json_has_them_bare_or_as_records() {
    let cases = [
        (
            TEXTS,
            r#"{"a":["x",null,{"value":"y"},{}]}"#,
            r#"{"a":[{"value":"x"},{"value":null},{"value":"y"},{"value":null}]}"#,
        ),
        (LISTS, r#"{"a":[[1,2],null,[]]}"#, r#"{"a":[{"value":[1,2]},{"value":null},{"value":[]}]}"#),
        (
            RECORDS,
            r#"{"a":[{"x":1},null,{"value":{"x":2}},{"value":null}]}"#,
            r#"{"a":[{"value":{"x":1}},{"value":null},{"value":{"x":2}},{"value":null}]}"#,
        ),
    ];
    for (schema, input, expected) in cases {
        assert_eq!(read(Encoding::Json, schema, input.as_bytes(), None), [expected], "{schema}");
        assert_eq!(read(Encoding::Json, schema, expected.as_bytes(), None), [expected], "{schema}");
    }
    let found = read(Encoding::Json, TEXTS, br#"{"a":["x",7]}"#, None);
    assert!(found[0].starts_with("line 1, field `a[1].value`: found 7, expected string"), "{found:?}");
    // In a column of CSV as well, where a list is JSON.
    let csv = "a\n\"[\"\"x\"\",null]\"\n";
    assert_eq!(read(Encoding::Csv, TEXTS, csv.as_bytes(), None), [r#"{"a":[{"value":"x"},{"value":null}]}"#]);
}

#[test]
fn json_with_them_is_inferred_so() {
    let infer = |sample: &str| {
        let format = infer_json_sample(sample.as_bytes(), true, &JsonInferOptions::default()).unwrap();
        let read = read(Encoding::Json, &format.schema(), sample.as_bytes(), None);
        assert!(read.iter().all(|line| line.starts_with('{')), "{read:?}");
        format.schema()
    };
    assert_eq!(infer("{\"a\":[\"x\"]}\n{\"a\":[null]}\n"), "a record {\n    value string null\n}[]\n");
    assert_eq!(infer("{\"a\":[null,1]}\n"), "a record {\n    value i64 null\n}[]\n");
    assert_eq!(infer("{\"a\":[[null,1]]}\n"), "a record {\n    value i64 null\n}[][]\n");
    let nested = infer("{\"a\":[{\"x\":1},null]}\n");
    assert_eq!(
        Format::parse_schema(&nested).unwrap(),
        Format::parse_schema("a record { value record { x i64 } null }[]").unwrap()
    );
    assert_eq!(infer("{\"a\":[1]}\n"), "a i64[]\n");
}

fn batch() -> RecordBatch {
    let mut texts = ListBuilder::new(StringBuilder::new());
    texts.append_value([Some("x"), None]);
    texts.append_value([Some("y")]);
    let mut lists = ListBuilder::new(ListBuilder::new(Int64Builder::new()));
    lists.values().append_value([Some(1)]);
    lists.values().append_null();
    lists.append(true);
    lists.append(true);
    let fields = vec![Field::new("x", DataType::Int64, true)];
    let mut records = ListBuilder::new(StructBuilder::from_fields(fields, 2));
    for (x, is_there) in [(Some(1), true), (None, false)] {
        records.values().field_builder::<Int64Builder>(0).unwrap().append_option(x);
        records.values().append(is_there);
    }
    records.append(true);
    records.append(true);
    let columns: [(&str, ArrayRef); 3] =
        [("t", Arc::new(texts.finish())), ("l", Arc::new(lists.finish())), ("r", Arc::new(records.finish()))];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn columns_have_them() {
    let schema = "t record { value string null }[]\nl record { value i64[] null }[]\n\
                  r record { value record { x i64 null } null }[]";
    let batch = batch();
    let mut arrow = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    arrow.write(&batch).unwrap();
    let mut parquet = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut parquet, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    for (encoding, bytes) in [(Encoding::ArrowStream, arrow.into_inner().unwrap()), (Encoding::Parquet, parquet)] {
        let expected = [
            r#"{"t":[{"value":"x"},{"value":null}],"l":[{"value":[1]},{"value":null}],"r":[{"value":{"x":1}},{"value":null}]}"#,
            r#"{"t":[{"value":"y"}],"l":[],"r":[]}"#,
        ];
        assert_eq!(read(encoding, schema, &bytes, None), expected, "{encoding}");
        let plain =
            read(encoding, "t string[]\nl record { value i64[] null }[]\nr record { x i64 null }[]", &bytes, None);
        assert!(
            plain[0].contains("`t[1]`: found null") && plain[0].contains("record { value TYPE null }[]"),
            "{plain:?}"
        );
    }
}

#[test]
fn written_elements_come_back() {
    for schema in [TEXTS, LISTS, RECORDS] {
        let rows = match schema {
            TEXTS => r#"{"a":[{"value":"x"},{"value":null}]}"#,
            LISTS => r#"{"a":[{"value":[1]},{"value":null}]}"#,
            _ => r#"{"a":[{"value":{"x":1}},{"value":null}]}"#,
        };
        let format = Format::parse_schema(schema).unwrap();
        let mut decoder = encoding::decoder(Encoding::Json, &format, None, &EncodingOptions::default()).unwrap();
        let record = decoder.next_record(&mut rows.as_bytes()).unwrap().unwrap().to_vec();
        for encoding in Encoding::ALL.into_iter().filter(|encoding| *encoding != Encoding::Csv) {
            let mut encoder = encoding::encoder(encoding, &format, None, &EncodingOptions::default()).unwrap();
            let mut out = Vec::new();
            encoder.start(&mut out);
            encoder.record(&Record::check(&format, &record).unwrap(), &mut out).unwrap();
            encoder.finish(&mut out).unwrap();
            assert_eq!(read(encoding, schema, &out, None), [rows], "{encoding}: {schema}");
        }
    }
}

#[test]
fn items_have_them() {
    // {"a": ["x", null, {"value": "y"}]}
    let cbor = [0xa1, 0x61, b'a', 0x83, 0x61, b'x', 0xf6, 0xa1, 0x65, b'v', b'a', b'l', b'u', b'e', 0x61, b'y'];
    let pack = [0x81, 0xa1, b'a', 0x93, 0xa1, b'x', 0xc0, 0x81, 0xa5, b'v', b'a', b'l', b'u', b'e', 0xa1, b'y'];
    let expected = [r#"{"a":[{"value":"x"},{"value":null},{"value":"y"}]}"#];
    assert_eq!(read(Encoding::Cbor, TEXTS, &cbor, None), expected);
    assert_eq!(read(Encoding::MessagePack, TEXTS, &pack, None), expected);
    // {"a": [[1], null]}, {"a": [{"x": 1}, null]}
    assert_eq!(
        read(Encoding::Cbor, LISTS, &[0xa1, 0x61, b'a', 0x82, 0x81, 1, 0xf6], None),
        [r#"{"a":[{"value":[1]},{"value":null}]}"#]
    );
    assert_eq!(
        read(Encoding::MessagePack, RECORDS, &[0x81, 0xa1, b'a', 0x92, 0x81, 0xa1, b'x', 1, 0xc0], None),
        [r#"{"a":[{"value":{"x":1}},{"value":null}]}"#]
    );
    let wrong = read(Encoding::Cbor, TEXTS, &[0xa1, 0x61, b'a', 0x81, 7], None);
    assert!(wrong[0].contains("field `a[0].value`: found 7, expected string"), "{wrong:?}");
}

#[test]
fn avro_has_them() {
    let schema = r#"{"type":"record","name":"R","fields":[
        {"name":"a","type":{"type":"array","items":["null","string"]}}]}"#;
    let by = Schema::new("r.avsc", schema, None);
    // One block of two elements: "x", null.
    let found = read(Encoding::Avro, TEXTS, &[4, 2, 2, b'x', 0, 0], Some(&by));
    assert_eq!(found, [r#"{"a":[{"value":"x"},{"value":null}]}"#]);
}

#[test]
fn a_record_around_its_value_is_seen_whatever_else_is_there() {
    let read = |schema: &str, element: &str, ignore_unknown: bool| {
        let format = Format::parse_schema(schema).unwrap();
        let options = EncodingOptions { ignore_unknown, ..EncodingOptions::default() };
        let mut decoder = encoding::decoder(Encoding::Json, &format, None, &options).unwrap();
        let text = format!("{{\"a\":[{element}]}}");
        let record = decoder.next_record(&mut text.as_bytes()).map_err(|error| error.to_string())?.unwrap().to_vec();
        Ok::<String, String>(format!("{:?}", Record::check(&format, &record).unwrap()))
    };
    let lenient = |element: &str| read("a record { value record { x i32 } null }[]", element, true);
    let wrapped = lenient(r#"{"value":{"x":1}}"#).unwrap();
    assert_eq!(lenient(r#"{"x":1}"#), Ok(wrapped.clone()));
    assert_eq!(lenient(r#"{"value":{"x":1},"q":2}"#), Ok(wrapped.clone()));
    assert_eq!(lenient(r#"{"q":2,"value":{"x":1}}"#), Ok(wrapped));
    let twice = lenient(r#"{"value":{"x":1},"value":{"x":2}}"#).unwrap_err();
    assert!(twice.contains("field `a[0].value`: the object has this member twice"), "{twice}");
    assert_eq!(
        lenient(r#"{"x":"?"}"#).unwrap_err(),
        "line 1, field `a[0].value.x`: found \"?\", expected i32 (-2147483648 to 2147483647)"
    );
    // The value has such a member itself: the record has no other of the value's.
    let strict = |element: &str| {
        read("a record { value record { value record { x i32 } null; y i32 null } null }[]", element, false)
    };
    assert_eq!(strict(r#"{"value":{"x":1},"y":2}"#), strict(r#"{"value":{"value":{"x":1},"y":2}}"#));
    // Text is repaired in them as anywhere else.
    let format = Format::parse_schema("a record { value record { s string } null }[]").unwrap();
    let options =
        EncodingOptions { allow: vec![Loss::InvalidText], ignore_unknown: true, ..EncodingOptions::default() };
    let mut decoder = encoding::decoder(Encoding::Json, &format, None, &options).unwrap();
    let text = b"{\"a\":[{\"s\":\"\xff\"},{\"value\":{\"s\":\"\xff\"}}],\"q\":\"\xff\"}";
    assert!(decoder.next_record(&mut &text[..]).unwrap().is_some());
}
