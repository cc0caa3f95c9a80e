//! Nested records, lists, enumerations, decimals and unions: laid out, written, checked and read back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crossdock_format::json::{JsonDecoder, JsonEncoder, JsonOptions};
use crossdock_format::{Format, Member, Record, RecordBuilder, RecordProblem, Value, ValueProblem};

const SCHEMA: &str = "id u64
carrier char[2]
pos record { x f32; y f32 null; inner record { a bool } null } null
side enum u8 { BUY = 66, SELL = 'S' }
price decimal(8, scale 4) null
tags string[]
samples i16[3]
legs record {
    to string
    stops record { name string; at timestamp null }[]
    km u16
}[] null
grid u8[2][]
msg union { add record { price i64 }; del u32 }
";

fn json(format: &Format, bytes: &[u8]) -> String {
    let mut line = Vec::new();
    JsonEncoder::new(format).record(&Record::check(format, bytes).unwrap(), &mut line);
    String::from_utf8(line).unwrap()
}

fn field(builder: &RecordBuilder, name: &str) -> usize {
    builder.format().field(name).unwrap_or_else(|| panic!("no field {name}"))
}

fn fill(row: &mut RecordBuilder) {
    row.clear();
    row.set(field(row, "id"), Value::Uint(7)).unwrap();
    row.set_text(field(row, "carrier"), "UA").unwrap();
    row.set_f64(field(row, "pos.x"), 1.5).unwrap();
    row.set_text(field(row, "side"), "SELL").unwrap();
    row.set_decimal(field(row, "price"), 12_345, 2).unwrap();
    row.begin_list(field(row, "tags")).unwrap();
    row.push(Value::Text(b"a")).unwrap();
    row.push(Value::Text(b"bcd")).unwrap();
    row.end_list().unwrap();
    row.begin_list(field(row, "samples")).unwrap();
    for sample in [-1, 0, 1] {
        row.push(Value::Int(sample)).unwrap();
    }
    row.end_list().unwrap();
    row.begin_list(field(row, "legs")).unwrap();
    for (to, stops) in [("JFK", &["one", "two"][..]), ("LGA", &[])] {
        row.begin_element().unwrap();
        row.set_text(0, to).unwrap();
        row.begin_list(1).unwrap();
        for stop in stops {
            row.begin_element().unwrap();
            row.set_text(0, stop).unwrap();
            row.end_element().unwrap();
        }
        row.end_list().unwrap();
        row.set_u64(2, 100).unwrap();
        row.end_element().unwrap();
    }
    row.end_list().unwrap();
    row.begin_list(field(row, "grid")).unwrap();
    for pair in [[1, 2], [3, 4]] {
        row.begin_list(0).unwrap();
        pair.iter().for_each(|value| row.push(Value::Uint(*value)).unwrap());
        row.end_list().unwrap();
    }
    row.end_list().unwrap();
    row.set_u64(field(row, "msg.del"), 9).unwrap();
}

const LINE: &str = "{\"id\":7,\"carrier\":\"UA\",\"pos\":{\"x\":1.5,\"y\":null,\"inner\":null},\"side\":\"SELL\",\
                    \"price\":123.4500,\"tags\":[\"a\",\"bcd\"],\"samples\":[-1,0,1],\"legs\":[{\"to\":\"JFK\",\"stops\":\
                    [{\"name\":\"one\",\"at\":null},{\"name\":\"two\",\"at\":null}],\"km\":100},{\"to\":\"LGA\",\
                    \"stops\":[],\"km\":100}],\"grid\":[[1,2],[3,4]],\"msg\":{\"del\":9}}\n";

#[test]
fn written_records_are_read() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let mut row = RecordBuilder::new(&format);
    fill(&mut row);
    let bytes = row.finish().unwrap().to_vec();
    assert_eq!(json(&format, &bytes), LINE);
    // Written again over the former record, with other texts in between, it is the same record.
    let mut again = RecordBuilder::new(&format);
    fill(&mut again);
    again.begin_list(field(&again, "tags")).unwrap();
    again.push(Value::Text(b"something longer")).unwrap();
    again.end_list().unwrap();
    let record = Record::check(&format, &bytes).unwrap();
    again.copy(&record).unwrap();
    let copied = again.finish().unwrap().to_vec();
    assert_eq!(json(&format, &copied), LINE);
    assert_eq!(Record::check(&format, &copied).unwrap(), record);
    assert_eq!(copied.len(), bytes.len(), "nothing is left behind");
    row.clear();
    fill(&mut row);
    assert_eq!(row.finish().unwrap(), bytes, "a builder that is used again writes the same bytes");
}

#[test]
fn formats_with_nested_fields_read_back() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let back = Format::parse(&format.describe()).unwrap_or_else(|error| panic!("{error}\n{}", format.describe()));
    assert_eq!((back.fields(), back.tree()), (format.fields(), format.tree()));
    let back = Format::parse_schema(&format.schema()).unwrap();
    assert_eq!((back.fields(), back.tree(), back.id()), (format.fields(), format.tree(), format.id()));
    assert_eq!(Format::natural(format.specs()).unwrap(), format);
    let names: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
    let expected = [
        "id",
        "carrier",
        "pos.x",
        "pos.y",
        "pos.inner.a",
        "side",
        "price",
        "tags",
        "samples",
        "legs",
        "grid",
        "msg.add.price",
        "msg.del",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_nested_record_is_there_once_something_in_it_is() {
    let format = Format::parse_schema("pos record { x i32; y i32 null; in record { z i32 } null } null\nn u8").unwrap();
    let Member::Group(pos) = &format.tree()[0] else { panic!() };
    let mut row = RecordBuilder::new(&format);
    row.set_u64(3, 1).unwrap();
    assert_eq!(json(&format, row.finish().unwrap()), "{\"pos\":null,\"n\":1}\n");
    row.set_i64(1, 2).unwrap();
    let error = row.finish().unwrap_err();
    assert_eq!((error.field, error.problem), (0, ValueProblem::NotSet));
    row.set_i64(0, 3).unwrap();
    assert_eq!(json(&format, row.finish().unwrap()), "{\"pos\":{\"x\":3,\"y\":2,\"in\":null},\"n\":1}\n");
    row.set_i64(2, 4).unwrap();
    assert_eq!(json(&format, row.finish().unwrap()), "{\"pos\":{\"x\":3,\"y\":2,\"in\":{\"z\":4}},\"n\":1}\n");
    assert_eq!(row.set_null(0).unwrap_err().problem, ValueProblem::NotNullable);
    row.set_group_null(pos).unwrap();
    assert_eq!(json(&format, row.finish().unwrap()), "{\"pos\":null,\"n\":1}\n");
    row.set_null(0).unwrap();
    row.set_group_present(pos);
    assert_eq!(row.finish().unwrap_err().problem, ValueProblem::NotSet);
}

#[test]
fn builders_refuse_what_does_not_go_together() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let mut row = RecordBuilder::new(&format);
    fill(&mut row);
    row.set_i64(field(&row, "msg.add.price"), 1).unwrap();
    assert_eq!(row.finish().unwrap_err().problem, ValueProblem::Variants { found: 2 });
    fill(&mut row);
    assert_eq!(row.set_text(5, "HOLD").unwrap_err().problem, ValueProblem::UnknownSymbol);
    assert!(matches!(row.set_i64(5, 256).unwrap_err().problem, ValueProblem::EnumRange { .. }));
    assert!(matches!(row.set_decimal(6, 1, 5).unwrap_err().problem, ValueProblem::DecimalRange { .. }));
    assert_eq!(row.push(Value::Null).unwrap_err().problem, ValueProblem::NotOpen);
    row.begin_list(8).unwrap();
    row.push(Value::Int(1)).unwrap();
    let found = row.end_list().unwrap_err();
    assert_eq!(found.problem, ValueProblem::ListCount { found: 1, expected: 3 });
    assert_eq!(row.finish().unwrap_err().problem, ValueProblem::Open);
    row.clear();
    row.begin_list(9).unwrap();
    row.begin_element().unwrap();
    row.begin_list(1).unwrap();
    row.begin_element().unwrap();
    let error = row.end_element().unwrap_err();
    assert_eq!(error.to_string(), "field `legs[0].stops[0].name`: has no value, and is not nullable");
}

#[test]
fn hostile_lists_are_refused_with_the_path() {
    let format = Format::parse_schema("legs record { n u32; stops record { ok bool; name string }[] }[]").unwrap();
    let mut row = RecordBuilder::new(&format);
    row.begin_list(0).unwrap();
    for leg in 0..2 {
        row.begin_element().unwrap();
        row.set_u64(0, leg).unwrap();
        row.begin_list(1).unwrap();
        for stop in 0..=leg {
            row.begin_element().unwrap();
            row.set_bool(0, true).unwrap();
            row.set_text(1, format!("stop {stop}")).unwrap();
            row.end_element().unwrap();
        }
        row.end_list().unwrap();
        row.end_element().unwrap();
    }
    row.end_list().unwrap();
    let good = row.finish().unwrap().to_vec();
    let Value::List(legs) = Record::check(&format, &good).unwrap().get(0) else { panic!() };
    let Value::List(stops) = legs.record(1).unwrap().get(1) else { panic!() };
    let mut bad = good.clone();
    let at = stops.record(1).unwrap().base();
    bad[at] = 2;
    let error = Record::check(&format, &bad).unwrap_err();
    assert_eq!(error.problem, RecordProblem::Bool { field: 0, found: 2 });
    assert_eq!(error.field_path(&format).unwrap(), "legs[1].stops[1].ok");
    let mut bad = good.clone();
    bad[at + 8] = 200;
    let error = Record::check(&format, &bad).unwrap_err();
    assert_eq!(error.field_path(&format).unwrap(), "legs[1].stops[1].name");
    // The second leg's stops are those of the first too: shared bytes.
    let mut bad = good.clone();
    let (one, two) = (legs.record(0).unwrap().base(), legs.record(1).unwrap().base());
    bad.copy_within(two..two + 12, one);
    let error = Record::check(&format, &bad).unwrap_err();
    assert!(matches!(error.problem, RecordProblem::SharedBytes { .. }), "{error}");
}

#[test]
fn json_reads_back() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let mut decoder = JsonDecoder::new(&format, &JsonOptions::default());
    for _ in 0..2 {
        let bytes = decoder.decode(LINE.as_bytes()).unwrap().to_vec();
        assert_eq!(json(&format, &bytes), LINE);
    }
    let cases = [
        ("\"x\":1.5", "\"z\":1.5", "field `pos.z`: the format has no field of this name; it has: x, y, inner"),
        ("\"km\":100},", "\"km\":-1},", "field `legs[0].km`: found -1, expected u16 (0 to 65535)"),
        ("\"name\":\"two\",", "", "field `legs[0].stops[1].name`: the object lacks this member"),
        ("\"bcd\"", "7", "field `tags[1]`: found 7, expected string (UTF-8 text)"),
        ("[3,4]", "[3]", "field `grid[1]`: found 1 elements, expected 2"),
        ("[3,4]", "5", "field `grid[1]`: found 5, expected an array"),
        ("[3,4]", "null", "field `grid[1]`: found null, and the field is not nullable"),
        ("\"del\":9", "", "field `msg.add.price`: found 0 variants of its union, expected 1"),
        ("[\"a\",\"bcd\"]", "1", "field `tags`: found 1, expected an array"),
        ("123.4500", "123.45001", "field `price`: found 123.45001, expected decimal(8, scale 4)"),
        ("\"SELL\"", "\"HOLD\"", "field `side`: found \"HOLD\", expected enum u8 (a number, or one of BUY, SELL)"),
    ];
    for (from, to, message) in cases {
        assert!(LINE.contains(from), "{from}");
        let error = decoder.decode(LINE.replacen(from, to, 1).as_bytes()).unwrap_err().to_string();
        assert!(error.contains(message), "{to}: {error}");
    }
    // A record that an error leaves open does not last.
    assert_eq!(json(&format, decoder.decode(LINE.as_bytes()).unwrap()), LINE);
}

#[test]
fn csv_does_not_lose_in_silence_that_a_nested_record_is_there() {
    use crossdock_format::encoding::{Encoding, EncodingOptions, Loss, encoder};
    let format = Format::parse_schema("a u8\npos record { x u8 null; y u8 null } null").unwrap();
    let mut row = RecordBuilder::new(&format);
    row.set_u64(0, 1).unwrap();
    row.set_group_present(format.group("pos").unwrap());
    let bytes = row.finish().unwrap().to_vec();
    let record = Record::check(&format, &bytes).unwrap();
    let write = |allow: Vec<Loss>| {
        let options = EncodingOptions { allow, ..EncodingOptions::default() };
        encoder(Encoding::Csv, &format, None, &options).unwrap().record(&record, &mut Vec::new())
    };
    let refused = write(Vec::new()).unwrap_err().to_string();
    assert!(refused.contains("`pos`") && refused.contains("--allow null"), "{refused}");
    assert!(write(vec![Loss::Null]).is_ok());
}

#[test]
fn lists_of_lists_are_copied_between_layouts_at_any_depth() {
    // Element by element, since the elements are laid out in other ways.
    let from = Format::parse_schema("deep u16[2][2][3]\nafter u8\n").unwrap();
    let to = Format::parse_schema("deep u32[2][][3]\nafter u8\n").unwrap();
    let mut source = RecordBuilder::new(&from);
    source.clear();
    source.begin_list(0).unwrap();
    let mut next = 0;
    for _ in 0..3 {
        source.begin_list(0).unwrap();
        for _ in 0..2 {
            source.begin_list(0).unwrap();
            for _ in 0..2 {
                next += 1;
                source.push(Value::Uint(next)).unwrap();
            }
            source.end_list().unwrap();
        }
        source.end_list().unwrap();
    }
    source.end_list().unwrap();
    source.set(1, Value::Uint(9)).unwrap();
    let bytes = source.finish().unwrap().to_vec();
    let mut copy = RecordBuilder::new(&to);
    copy.clear();
    copy.copy(&Record::check(&from, &bytes).unwrap()).unwrap();
    let copied = copy.finish().unwrap().to_vec();
    let wanted = r#"{"deep":[[[1,2],[3,4]],[[5,6],[7,8]],[[9,10],[11,12]]],"after":9}"#;
    assert_eq!(json(&to, &copied).trim_end(), wanted);
    assert_eq!(json(&from, &bytes).trim_end(), wanted);
}
