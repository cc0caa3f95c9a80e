//! The statements of a format on other versions, in conversions, in policies, and where records are read from
//! encodings; Avro's schema resolution against apache-avro, and the defaults of proto2 against prost-reflect.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use apache_avro::types::Value as Theirs;
use apache_avro::{Reader, Schema, Writer};
use crossdock_format::convert::Plan;
use crossdock_format::encoding::avro::{AvroFileDecoder, AvroSchema};
use crossdock_format::encoding::protobuf::{ProtobufDecoder, ProtobufSchema};
use crossdock_format::encoding::{Decoder, Encoding, EncodingOptions, Loss, decoder, encoder};
use crossdock_format::json::{JsonDecoder, JsonOptions};
use crossdock_format::registry::{Policy, Registry};
use crossdock_format::{Evolution, FieldSpec, FieldType, Format, Record, RecordBuilder, TypeSpec, Value};
use prost_reflect::DynamicMessage;
use prost_reflect::prost::Message as _;

fn format(schema: &str) -> Format {
    Format::parse_schema(schema).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

fn show(value: Value<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Timestamp(value) => value.to_string(),
        Value::Text(value) | Value::Bytes(value) => text(value),
        Value::Decimal { unscaled, scale } => format!("{unscaled}e-{scale}"),
        Value::Enum { number, symbol } => symbol.map_or_else(|| number.to_string(), str::to_owned),
        Value::List(list) => format!("[{}]", list.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Record(record) => {
            let fields = (0..record.format().fields().len()).map(|field| show(record.get(field)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The fields' values, in words.
fn values(format: &Format, record: &[u8]) -> Vec<String> {
    let record = Record::check(format, record).unwrap();
    (0..format.fields().len()).map(|field| show(record.get(field))).collect()
}

fn read(encoding: Encoding, format: &Format, text: &str) -> Result<Vec<String>, String> {
    let mut decoder = decoder(encoding, format, None, &EncodingOptions::default()).unwrap();
    let record = decoder.next_record(&mut text.as_bytes()).map_err(|error| error.to_string())?;
    Ok(values(format, record.expect("a record")))
}

#[test]
fn notations_say_it_and_the_id_follows() {
    let text = "a i32 null default 5 alias b alias \"c d\"\n\
                s enum u8 { X = 0, Y = 1 } default Y unknown X\n\
                l u16[] default []\n\
                p record {\n    q string default \"\"\n} null alias old\n\
                e record {\n    f u8 default 7\n}[] alias g\n\
                u union {\n    v u8 alias w\n    x string\n} alias y\n";
    let format = format(text);
    assert_eq!(format.schema(), text);
    assert_eq!(Format::parse(&format.describe()).unwrap(), format);
    let specs = format.specs();
    assert_eq!(Format::natural(specs.clone()).unwrap().id(), format.id());
    let aliases = vec!["b".to_owned(), "c d".to_owned()];
    let said = Evolution { default: Some("5".to_owned()), aliases, unknown: None };
    assert_eq!(specs[0].evolution.as_deref(), Some(&said));
    let made = FieldSpec::nullable("a", FieldType::I32).with_default("5").with_alias("b").with_alias("c d");
    assert_eq!(specs[0], made);
    let plain = Format::natural([FieldSpec::nullable("a", FieldType::I32)]).unwrap();
    assert_ne!(Format::natural([made]).unwrap().id(), plain.id());
}

#[test]
fn impossible_declarations_are_refused() {
    let long = "x".repeat(5000);
    for (schema, why) in [
        ("a i32 default x", "its default is no value of it"),
        ("a u8 default 256", "its default is no value of it"),
        ("a u8[] default 1", "its default is no value of it"),
        ("a u8[2] default \"[]\"", "its default is no value of it"),
        ("a enum u8 { X = 0 } default Y", "its default is no value of it"),
        ("a record { b u8 } default 1", "have no default of their own"),
        ("a union { b u8 default 1 }", "have no default of their own"),
        ("a u8 unknown X", "`unknown` names none of its symbols"),
        ("a enum u8 { X = 0 } unknown Y", "`unknown` names none of its symbols"),
        ("a u8 alias a", "an alias that is its name"),
        ("a u8 alias b alias b", "an alias that is its name, another alias"),
        ("a u8 alias \"\"", "or no name"),
        (&format!("a string default {long}"), "more than 4096 bytes"),
        ("a u8 default", "a value, symbol or name behind"),
        ("a u8 default 1 default 2", "each once"),
        ("a u8 alias b null", "a value, symbol or name behind"),
        ("layout foreign little packed\na u8 default 1", "default"),
    ] {
        let error = Format::parse_schema(schema).unwrap_err().to_string();
        assert!(error.contains(why), "{schema}: {error}");
    }
    let nothing = FieldSpec { evolution: Some(Evolution::default().into()), ..FieldSpec::new("a", FieldType::U8) };
    assert!(Format::natural([nothing]).is_err());
}

#[test]
fn conversions_go_by_aliases_and_fill_in_defaults() {
    let from = format(
        "old i32\nstate enum u8 { A = 1, B = 2, C = 3 }\npos record { x f32; z u8 }\n\
         legs record { code string; km u16 }[]\nnull_here u8 null\nboth u8\nboth_too u8",
    );
    let to = format(
        "new i64 alias older alias old\nstate enum u8 { B = 7, OTHER = 9 } unknown OTHER\n\
         place record { x f64; y i16 default -3 } alias pos\n\
         hops record { to string alias code; miles u16 default 11; km u16 }[] alias legs\n\
         null_here u8 default 44\nboth u8 alias both_too\nadded string default \"not yet\"\n\
         maybe record { inside u8 default 1 } null\nsure record { inside u8 default 2; list u8[] default \"[]\" }\n\
         when timestamp null default 2013-01-01T05:00:00Z",
    );
    let plan = Plan::by_name(&from, &to, &"".parse().unwrap()).unwrap();
    assert!(!plan.may_refuse(), "every record of the one is one of the other");
    let mut row = RecordBuilder::new(&from);
    let mut states = Vec::new();
    for state in [b"A".as_slice(), b"B", b"C"] {
        row.clear();
        row.set_i64(0, -5).unwrap();
        row.set_text(1, state).unwrap();
        row.set_f64(2, 1.5).unwrap();
        row.set_u64(3, 8).unwrap();
        row.begin_list(4).unwrap();
        row.begin_element().unwrap();
        row.set_text(0, "JFK").unwrap();
        row.set_u64(1, 17).unwrap();
        row.end_element().unwrap();
        row.end_list().unwrap();
        row.set_u64(6, 1).unwrap();
        row.set_u64(7, 2).unwrap();
        let mut out = Vec::new();
        plan.run(row.finish().unwrap(), &mut out).unwrap();
        let found = values(&to, &out);
        states.push(found[1].clone());
        let field = |name: &str| found[to.field(name).unwrap()].as_str();
        assert_eq!((field("new"), field("place.x"), field("place.y")), ("-5", "1.5", "-3"));
        assert!(field("hops").contains("JFK") && field("hops").contains("11") && field("hops").contains("17"));
        assert_eq!((field("null_here"), field("both"), field("added")), ("44", "1", "not yet"));
        assert_eq!((field("maybe.inside"), field("sure.inside")), ("null", "2"));
        assert_eq!(field("when"), "1357016400000000000");
    }
    assert_eq!(states, ["OTHER", "B", "OTHER"]);
    // Rules come first, and what a rule takes away no alias brings back.
    let plan = Plan::by_name(&from, &to, &"rename both new\ndrop both_too\ndefault added x".parse().unwrap());
    let error = plan.unwrap_err().to_string();
    assert!(error.contains("both"), "{error}");
}

#[test]
fn policies_count_on_them() {
    let old = format("id u32\nname string\nkind enum u8 { A = 0, B = 1 }");
    let new = format("id u32\ntitle string alias name\nkind enum u8 { A = 0, Z = 2 } unknown A\nsize u16 default 0");
    let mut registry = Registry::default();
    registry.set_policy("S", Policy::Backward).unwrap();
    registry.announce("S", &old).unwrap();
    registry.announce("S", &new).unwrap();
    registry.set_policy("T", Policy::Backward).unwrap();
    registry.announce("T", &old).unwrap();
    for without in ["title string", "size u16"] {
        let schema = new.schema();
        let line = schema.lines().find(|line| line.starts_with(without)).unwrap();
        let worse = format(&schema.replace(line, without));
        let error = registry.announce("T", &worse).unwrap_err().to_string();
        assert!(error.contains(without.split(' ').next().unwrap()), "{error}");
    }
    registry.set_policy("U", Policy::Full).unwrap();
    registry.announce("U", &old).unwrap();
    assert!(registry.announce("U", &new).is_err(), "the old one has no `name` in the new one");
}

#[test]
fn encodings_fill_in_what_is_missing() {
    let to = format(
        "id u32\nname string default \"no name\"\nn i16 null default 5\np record { x u8 default 3; y u8 null }\n\
         q record { z u8; s string default deep } null\nl record { k u8; t string default \"in it\" }[] default \"[]\"",
    );
    let blank = ["1", "no name", "null", "3", "null", "null", "null", "[]"];
    let mut json = JsonDecoder::new(&to, &JsonOptions::default());
    let mut decode = |text: &str| json.decode(text.as_bytes()).unwrap().to_vec();
    assert_eq!(values(&to, &decode(r#"{"id": 1}"#)), blank);
    // Another value in its place, and the default again after that.
    let replaced = decode(r#"{"id": 2, "name": "named", "n": 6}"#);
    assert_eq!(values(&to, &replaced), ["2", "named", "6", "3", "null", "null", "null", "[]"]);
    assert!(!replaced.windows(7).any(|window| window == b"no name"), "what was replaced is gone");
    // A field that is never null has its default for null.
    assert_eq!(values(&to, &decode(r#"{"id": 1, "name": null, "n": null, "p": {}}"#)), blank);
    // Whoever makes records sets what they hold.
    let mut row = RecordBuilder::new(&to);
    row.set_u64(0, 1).unwrap();
    assert!(row.finish().unwrap_err().to_string().contains("name"));

    let nested = ["1", "no name", "null", "3", "null", "9", "deep"];
    for (encoding, text) in [
        (Encoding::Json, r#"{"id": 1, "q": {"z": 9}, "l": [{"k": 4}, {"k": 5, "t": "out"}]}"#),
        (Encoding::Xml, "<rs><r><id>1</id><q><z>9</z></q><l><k>4</k></l><l><k>5</k><t>out</t></l></r></rs>"),
        (
            Encoding::Xml,
            "<rs xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"><r><id>1</id><name xsi:nil=\"true\"/><q><z>9</z></q>\
             <l><k>4</k></l><l><k>5</k><t>out</t></l></r></rs>",
        ),
    ] {
        let found = read(encoding, &to, text).unwrap();
        assert_eq!(found[..7], nested, "{encoding:?}");
        assert!(found[7].contains("in it") && found[7].contains("out"), "{encoding:?}: {}", found[7]);
    }
    assert!(read(Encoding::Json, &to, r#"{"name": "x"}"#).unwrap_err().contains("id"));
}

#[test]
fn a_missing_column_has_its_default_and_a_null_cell_is_null() {
    let flat = format("id u32 alias number alias no\nname string default \"no name\"\nn i16 null default 5");
    for (text, expected) in [
        ("id\n7\n", ["7", "no name", "5"]),
        ("n,no\n,7\n", ["7", "no name", "null"]),
        ("number,name\n8,x\n", ["8", "x", "5"]),
        // Rows with quotes are read in another way.
        ("n,id,name\n,7,\"x\"\n", ["7", "x", "null"]),
        ("n,id,name\n1,7,\n", ["7", "no name", "1"]),
        ("name,n,id\n,\"1\",\"7\"\n", ["7", "no name", "1"]),
    ] {
        assert_eq!(read(Encoding::Csv, &flat, text).unwrap(), expected, "{text}");
    }
    let nested = format(
        "id u32\nq record { z u8; s string default deep; t u8 null default 4 } null\n\
         u union { a record { x u8 default 3 }; b u8 }\nr record { y u8 null default 6 }",
    );
    assert_eq!(
        read(Encoding::Csv, &nested, "id,u.b\n7,8\n").unwrap(),
        ["7", "null", "null", "null", "null", "8", "null"]
    );
    assert_eq!(read(Encoding::Csv, &nested, "id,q.z,u.b\n7,1,8\n").unwrap()[1..4], ["1", "deep", "null"]);
    // One of two that could be meant: the other is no column of the format.
    assert!(read(Encoding::Csv, &flat, "no,number\n7,8\n").unwrap_err().contains("no"));
}

#[test]
fn null_survives_encodings_that_leave_it_out() {
    let own = format(
        "id u32\nn i16 null default 5\nl u8[] null default []\ne record { value u8 null default 7 }[]\ns u8 default 3",
    );
    let mut row = RecordBuilder::new(&own);
    row.set_u64(0, 1).unwrap();
    row.set_u64(4, 9).unwrap();
    row.begin_list(3).unwrap();
    row.begin_element().unwrap();
    row.end_element().unwrap();
    row.end_list().unwrap();
    let record = row.finish().unwrap().to_vec();
    for encoding in [
        Encoding::Json,
        Encoding::Csv,
        Encoding::Cbor,
        Encoding::MessagePack,
        Encoding::Xml,
        Encoding::Protobuf,
        Encoding::Avro,
        Encoding::AvroFile,
        Encoding::ArrowStream,
        Encoding::Parquet,
    ] {
        let options = EncodingOptions { allow: vec![Loss::ListAsJson], ..EncodingOptions::default() };
        let mut written = Vec::new();
        let mut encoder = encoder(encoding, &own, None, &options).unwrap();
        encoder.start(&mut written);
        encoder.record(&Record::check(&own, &record).unwrap(), &mut written).unwrap();
        encoder.finish(&mut written).unwrap();
        let mut decoder = decoder(encoding, &own, None, &options).unwrap();
        let read = decoder.next_record(&mut &written[..]).unwrap().unwrap();
        assert_eq!(values(&own, read), values(&own, &record), "{encoding:?}");
    }
}

#[test]
fn unknown_symbols_are_read_as_the_one_for_them() {
    let own = format("e enum u8 { A = 1, O = 9 } unknown O\nid u8");
    for (encoding, text) in [
        (Encoding::Json, r#"{"e": "Z", "id": 1}"#),
        (Encoding::Csv, "e,id\nZ,1\n"),
        (Encoding::Xml, "<rs><r><e>Z</e><id>1</id></r></rs>"),
    ] {
        assert_eq!(read(encoding, &own, text).unwrap(), ["O", "1"], "{encoding:?}");
        // A number is itself, with a symbol or not; no text is none.
        assert_eq!(read(encoding, &own, &text.replace('Z', "77")).unwrap(), ["77", "1"], "{encoding:?}");
        assert!(read(encoding, &own, &text.replace('Z', "")).is_err(), "{encoding:?}");
    }
    let by_number = format("e enum u8 { A = 1, O = 9 } default 1 unknown O\nid u8");
    assert_eq!(read(Encoding::Json, &by_number, r#"{"id": 1}"#).unwrap(), ["A", "1"]);
    let mut row = RecordBuilder::new(&own);
    assert!(row.set_text(0, "Z").is_err(), "whoever makes records knows its symbols");
}

#[test]
fn defaults_of_lists_in_lists_are_checked_once_each() {
    let inner = |depth: usize| {
        (0..depth).fold("x u8 default 1".to_owned(), |inner, _| format!("l record {{ {inner} }}[] default []"))
    };
    assert!(Format::parse_schema(&inner(15)).is_ok());
    assert!(Format::parse_schema(&inner(15).replace("default 1", "default 256")).is_err());
}

/// The record of a reader of the second schema for one by the first: ours, and theirs.
fn resolved(writer: &str, reader: &str, record: Theirs) -> (Result<Vec<String>, String>, Option<Theirs>) {
    let schema = Schema::parse_str(writer).unwrap();
    let mut written = Writer::new(&schema, Vec::new()).unwrap();
    written.append_value(record).unwrap();
    let file = written.into_inner().unwrap();
    let format = AvroSchema::parse(reader).unwrap().format().unwrap();
    let options = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    let mut decoder = AvroFileDecoder::new(&format, &options);
    let ours = match decoder.next_record(&mut &file[..]) {
        Ok(record) => Ok(values(&format, record.unwrap())),
        Err(error) => Err(error.to_string()),
    };
    let reader_schema = Schema::parse_str(reader).unwrap();
    let theirs = Reader::builder(&file[..]).reader_schema(&reader_schema).build();
    (ours, theirs.ok().and_then(|mut theirs| theirs.next().and_then(Result::ok)))
}

/// One of their values as ours are shown.
fn shown(value: &Theirs) -> String {
    match value {
        Theirs::Null => "null".to_owned(),
        Theirs::Int(value) => value.to_string(),
        Theirs::Long(value) => value.to_string(),
        Theirs::Float(value) => f64::from(*value).to_string(),
        Theirs::Double(value) => value.to_string(),
        Theirs::String(value) | Theirs::Enum(_, value) => value.clone(),
        Theirs::Union(_, value) => shown(value),
        Theirs::Array(elements) if elements.is_empty() => "[]".to_owned(),
        other => panic!("{other:?}"),
    }
}

fn record_of(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#)
}

#[test]
fn avro_resolves_schemas_as_others_do() {
    let enumeration =
        |symbols: &str, more: &str| format!(r#"{{"type":"enum","name":"E","symbols":[{symbols}]{more}}}"#);
    let cases = [
        // A new field, of each kind of default.
        (r#"{"name":"a","type":"int"}"#.to_owned(), vec![("a", Theirs::Int(3))], r#"{"name":"a","type":"int"},{"name":"s","type":"string","default":"x y"},{"name":"n","type":["null","int"],"default":null},{"name":"m","type":["int","null"],"default":8},{"name":"l","type":{"type":"array","items":"int"},"default":[]},{"name":"d","type":"double","default":2.5}"#.to_owned()),
        // Promoted.
        (r#"{"name":"a","type":"int"},{"name":"b","type":"int"},{"name":"c","type":"int"},{"name":"d","type":"long"},{"name":"e","type":"long"},{"name":"f","type":"float"}"#.to_owned(),
         vec![("a", Theirs::Int(-7)), ("b", Theirs::Int(7)), ("c", Theirs::Int(9)), ("d", Theirs::Long(1 << 40)), ("e", Theirs::Long(5)), ("f", Theirs::Float(0.5))],
         r#"{"name":"a","type":"long"},{"name":"b","type":"float"},{"name":"c","type":"double"},{"name":"d","type":"float"},{"name":"e","type":"double"},{"name":"f","type":"double"}"#.to_owned()),
        // A field that the reader lacks, in another order.
        (r#"{"name":"gone","type":"string"},{"name":"b","type":"int"},{"name":"a","type":"string"}"#.to_owned(),
         vec![("gone", Theirs::String("?".into())), ("b", Theirs::Int(1)), ("a", Theirs::String("z".into()))],
         r#"{"name":"a","type":"string"},{"name":"b","type":"int"}"#.to_owned()),
        // A symbol that the reader lacks.
        (format!(r#"{{"name":"e","type":{}}}"#, enumeration(r#""A","B","C""#, "")), vec![("e", Theirs::Enum(2, "C".into()))],
         format!(r#"{{"name":"e","type":{}}}"#, enumeration(r#""B","O""#, r#","default":"O""#))),
        (format!(r#"{{"name":"e","type":{}}}"#, enumeration(r#""A","B","C""#, "")), vec![("e", Theirs::Enum(1, "B".into()))],
         format!(r#"{{"name":"e","type":{}}}"#, enumeration(r#""B","O""#, r#","default":"O""#))),
        // A value that may be null for one that may not have been.
        (r#"{"name":"a","type":"int"}"#.to_owned(), vec![("a", Theirs::Int(3))], r#"{"name":"a","type":["null","long"]}"#.to_owned()),
    ];
    for (writer, fields, reader) in cases {
        let record = Theirs::Record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
        let (ours, theirs) = resolved(&record_of(&writer), &record_of(&reader), record);
        let Some(Theirs::Record(theirs)) = theirs else { panic!("{reader}: {theirs:?}") };
        let theirs: Vec<String> = theirs.iter().map(|(_, value)| shown(value)).collect();
        assert_eq!(ours.unwrap_or_else(|error| panic!("{writer} {reader}: {error}")), theirs, "{writer} {reader}");
    }
    // The pairs that they resolve no more than we do.
    for (writer, value, reader) in [
        (r#"{"name":"a","type":"int"}"#, Theirs::Int(3), r#"{"name":"b","type":"int"}"#),
        (r#"{"name":"a","type":"string"}"#, Theirs::String("3".into()), r#"{"name":"a","type":"int"}"#),
    ] {
        let record = Theirs::Record(vec![("a".to_owned(), value)]);
        let (ours, theirs) = resolved(&record_of(writer), &record_of(reader), record);
        assert!(ours.is_err() && theirs.is_none(), "{writer} {reader}: {ours:?} {theirs:?}");
    }
}

#[test]
fn avro_reads_bytes_as_text_and_back_and_defaults_within_records() {
    let writer = record_of(r#"{"name":"a","type":"string"},{"name":"b","type":"bytes"}"#);
    let reader = record_of(
        r#"{"name":"a","type":"bytes"},{"name":"b","type":"string"},{"name":"c","type":"bytes","default":"\u00ff\u0001"},
           {"name":"r","type":{"type":"record","name":"I","fields":[{"name":"x","type":"int"},
             {"name":"y","type":"string","default":"own"}]},"default":{"x":6}}"#,
    );
    let fields = [("a", Theirs::String("t".into())), ("b", Theirs::Bytes(b"u".to_vec()))];
    let record = Theirs::Record(fields.map(|(name, value)| (name.to_owned(), value)).to_vec());
    let (ours, _) = resolved(&writer, &reader, record);
    let ours = ours.unwrap();
    assert_eq!((ours[1].as_str(), &ours[3..]), ("u", &["6".to_owned(), "own".to_owned()][..]));
    let format = AvroSchema::parse(&reader).unwrap().format().unwrap();
    assert_eq!(format.fields()[2].default_text(), Some("/wE="));
}

/// As Avro's specification has it ("Aliases"); the library reads aliases, but does not resolve by them.
#[test]
fn avro_finds_fields_by_the_first_of_their_aliases() {
    let field = |name: &str, more: &str| format!(r#"{{"name":"{name}","type":"int"{more}}}"#);
    let aliases = r#","aliases":["older","old"]"#;
    for (writer, expected) in [
        (&["old"][..], Ok("1")),
        (&["old", "older"], Ok("2")),
        (&["old", "new", "older"], Ok("2")),
        (&["oldest"], Err("has no such field")),
    ] {
        let schema = record_of(&writer.iter().map(|name| field(name, "")).collect::<Vec<_>>().join(","));
        let fields = writer.iter().zip(1..).map(|(name, value)| ((*name).to_owned(), Theirs::Int(value)));
        let (ours, _) = resolved(&schema, &record_of(&field("new", aliases)), Theirs::Record(fields.collect()));
        match expected {
            Ok(value) => assert_eq!(ours.unwrap(), [value], "{writer:?}"),
            Err(why) => assert!(ours.unwrap_err().contains(why), "{writer:?}"),
        }
    }
}

#[test]
fn avro_schemas_of_formats_say_it_to_others() {
    let own = format(
        "a i32 null default 5 alias b\ns string default x\nf f64 default 1.5\nk enum i32 { X = 0, Y = 1 } unknown Y\n\
         l u8[] default \"[]\"\nt timestamp default 2013-01-01T05:00:00Z",
    );
    let schema = AvroSchema::of(&own).unwrap();
    assert_eq!(schema.format().unwrap(), own);
    let json = schema.to_json();
    for said in [r#""aliases":["b"]"#, r#""default":5"#, r#""default":"x""#, r#""default":1.5"#, r#""default":"Y""#] {
        assert!(json.contains(said), "{said}: {json}");
    }
    // They take it, with the default of the field that may be null.
    Schema::parse_str(json).unwrap();
}

const PROTO: &str = "syntax = \"proto2\";\n\
    message M {\n\
      optional int32 a = 1 [default = -41];\n\
      optional string b = 2 [default = \"it's \\\"so\\\"\"];\n\
      optional bytes c = 3 [default = \"\\001\\377z\"];\n\
      optional double d = 4 [default = inf];\n\
      optional bool e = 5 [default = true];\n\
      optional K k = 6 [default = Y];\n\
      optional uint64 none = 7;\n\
      optional I i = 8;\n\
      repeated I l = 9;\n\
      required fixed32 r = 10;\n\
      oneof o { int32 p = 11; string q = 12; }\n\
    }\n\
    message I { optional int32 x = 1 [default = 7]; optional string y = 2; }\n\
    enum K { X = 0; Y = 5; }\n";

/// As the library has them.
fn compiled() -> prost_reflect::DescriptorPool {
    let directory = std::env::temp_dir().join(format!("crossdock-proto2-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("one.proto"), PROTO).unwrap();
    let compiled = protox::compile(["one.proto"], [&directory]).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    prost_reflect::DescriptorPool::from_file_descriptor_set(compiled).unwrap()
}

#[test]
fn proto2_defaults_are_what_a_message_without_the_field_has() {
    let schema = ProtobufSchema::import(&[("one.proto", PROTO)], Some("M")).unwrap();
    let format = schema.format().unwrap();
    let mut decoder = ProtobufDecoder::new(&format, &EncodingOptions::default(), Some(&schema)).unwrap();
    let pool = compiled();
    let descriptor = pool.get_message_by_name("M").unwrap();
    let with = |fields: &[(&str, prost_reflect::Value)]| {
        let mut message = DynamicMessage::new(descriptor.clone());
        fields.iter().for_each(|(name, value)| message.set_field_by_name(name, value.clone()));
        message
    };
    let inner = |fields: &[(&str, prost_reflect::Value)]| {
        let mut message = DynamicMessage::new(pool.get_message_by_name("I").unwrap());
        fields.iter().for_each(|(name, value)| message.set_field_by_name(name, value.clone()));
        prost_reflect::Value::Message(message)
    };
    use prost_reflect::Value as P;
    let messages = [
        with(&[("r", P::U32(1)), ("p", P::I32(1))]),
        with(&[("r", P::U32(1)), ("q", P::String("s".into())), ("a", P::I32(0)), ("b", P::String(String::new()))]),
        with(&[("r", P::U32(1)), ("p", P::I32(1)), ("i", inner(&[])), ("e", P::Bool(false)), ("k", P::EnumNumber(0))]),
        with(&[("r", P::U32(1)), ("p", P::I32(1)), ("i", inner(&[("x", P::I32(2))])), ("d", P::F64(0.5))]),
        with(&[("r", P::U32(1)), ("p", P::I32(1)), ("l", P::List(vec![inner(&[]), inner(&[("x", P::I32(3))])]))]),
    ];
    for message in messages {
        let found = values(&format, decoder.decode(&message.encode_to_vec()).unwrap());
        let field = |name: &str| found[format.field(name).unwrap()].clone();
        let theirs = |name: &str| message.get_field_by_name(name).unwrap().into_owned();
        assert_eq!(field("a"), theirs("a").as_i32().unwrap().to_string());
        assert_eq!(field("b"), theirs("b").as_str().unwrap());
        assert_eq!(field("d"), theirs("d").as_f64().unwrap().to_string());
        assert_eq!(field("e"), theirs("e").as_bool().unwrap().to_string());
        assert_eq!(field("k"), if theirs("k").as_enum_number() == Some(5) { "Y" } else { "X" });
        assert_eq!(field("none"), "null");
        if message.has_field_by_name("i") {
            let inner = theirs("i").as_message().unwrap().get_field_by_name("x").unwrap().as_i32();
            assert_eq!(field("i.x"), inner.unwrap().to_string());
        } else {
            assert_eq!(field("i.x"), "null");
        }
        let list = theirs("l");
        for element in list.as_list().unwrap() {
            let x = element.as_message().unwrap().get_field_by_name("x").unwrap().as_i32().unwrap();
            assert!(field("l").contains(&x.to_string()), "{}", field("l"));
        }
    }
    assert_eq!(format.fields()[2].default_text(), Some("Af96"));
    // A value that is said is read though there is a default; the type keeps its word in our own schema.
    assert!(format.schema().contains("a i32 default -41\n"), "{}", format.schema());
    let specs = format.specs();
    assert!(matches!(specs[10].ty, TypeSpec::Union(_)));
}
