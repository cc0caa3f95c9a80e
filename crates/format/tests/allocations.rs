//! Once its buffers have grown to the records' sizes, nothing that runs once a record allocates.

use std::io::BufRead;

use allocation_counter::measure;
use crossdock_format::convert::Plan;
use crossdock_format::csv::{CsvDecoder, CsvEncoder, CsvOptions};
use crossdock_format::encoding::{self, Encoding, EncodingOptions};
use crossdock_format::json::{JsonDecoder, JsonEncoder, JsonOptions};
use crossdock_format::typed::{RecordReader, RecordWriter};
use crossdock_format::{Format, Record, RecordBuilder, Value};

const SCHEMA: &str = "carrier char[2]\nflight u16\ndep_delay i32 null\nair_time f64 null\ntailnum string null\n\
                      time_hour timestamp\nok bool\nnote bytes null";
const HEADER: &str = "carrier,flight,dep_delay,air_time,tailnum,time_hour,ok,note\n";
const ROW: &str = "UA,1545,2,227.5,N14228,2013-01-01T10:00:00Z,true,AAEC\nB6,1,NA,NA,\"quoted, \"\"too\"\"\",2013-01-01T10:00:00.5Z,f,\n";

#[test]
fn csv_to_records_and_back_without_allocating() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let text = [HEADER, &ROW.repeat(50)].concat();
    let options = CsvOptions::default();
    let mut input = text.as_bytes();
    let mut decoder = CsvDecoder::from_header(&format, &mut input, &options).unwrap();
    let encoder = CsvEncoder::new(&format, &options).unwrap();
    let mut out = Vec::with_capacity(1000);
    let mut step = || {
        let record = decoder.next_record(&mut input).unwrap().unwrap();
        out.clear();
        encoder.record(&Record::check(&format, record).unwrap(), &mut out);
    };
    (0..10).for_each(|_| step());
    assert_eq!(measure(|| (0..80).for_each(|_| step())).count_total, 0);
}

#[test]
fn json_to_records_and_back_without_allocating() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let line = "{\"carrier\":\"UA\",\"flight\":1545,\"dep_delay\":null,\"air_time\":227.5,\"tailnum\":\"N1\\\"4228\",\
                \"time_hour\":\"2013-01-01T10:00:00Z\",\"ok\":true,\"note\":\"AAEC\"}\n";
    let text = line.repeat(100);
    let mut decoder = JsonDecoder::new(&format, &JsonOptions::default());
    let encoder = JsonEncoder::new(&format);
    let mut input = text.as_bytes();
    let mut out = Vec::with_capacity(1000);
    let mut step = || {
        let record = decoder.next_record(&mut input).unwrap().unwrap();
        out.clear();
        encoder.record(&Record::check(&format, record).unwrap(), &mut out);
    };
    (0..10).for_each(|_| step());
    assert_eq!(measure(|| (0..80).for_each(|_| step())).count_total, 0);
}

#[test]
fn unusual_json_and_cbor_to_records_without_allocating() {
    let schema = "a i32 null\nb string null\nc record { value record { d i8 } null }[] null\ne u8[][] null";
    let format = Format::parse_schema(schema).unwrap();
    let options = JsonOptions { ignore_unknown_fields: true, ..JsonOptions::default() };
    let line = "{\"e\":[[1],[]],\"x\":{\"y\":[1,{}]},\"b\":\"\\u00e9\\n\",\
                \"c\":[{\"d\":1},null,{\"value\":{\"d\":2}}],\"\\u0061\":1}\n";
    let text = line.repeat(100);
    let mut decoder = JsonDecoder::new(&format, &options);
    let mut input = text.as_bytes();
    let mut step = || assert!(decoder.next_record(&mut input).unwrap().is_some());
    (0..10).for_each(|_| step());
    assert_eq!(measure(|| (0..80).for_each(|_| step())).count_total, 0);
    // A text in pieces, an unknown member, names that are not in order.
    let item = b"\xa3\x61b\x7f\x61p\x61q\xff\x61x\x82\x01\x80\x61a\x01".repeat(100);
    let options = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    let mut decoder = encoding::decoder(Encoding::Cbor, &format, None, &options).unwrap();
    let mut input = &item[..];
    let mut step = || assert!(decoder.next_record(&mut input).unwrap().is_some());
    (0..10).for_each(|_| step());
    assert_eq!(measure(|| (0..80).for_each(|_| step())).count_total, 0);
}

#[test]
fn building_and_checking_without_allocating() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let mut builder = RecordBuilder::new(&format);
    let mut step = || {
        builder.clear();
        builder.set(0, Value::Text(b"UA")).unwrap();
        builder.set(1, Value::Int(1545)).unwrap();
        builder.set(4, Value::Text(b"N14228")).unwrap();
        builder.set(4, Value::Text(b"N14229")).unwrap();
        builder.set(5, Value::Timestamp(0)).unwrap();
        builder.set(6, Value::Bool(true)).unwrap();
        // Refused values may be many, too.
        let refused = builder.set(1, Value::Int(-1));
        assert!(refused.is_err());
        drop(refused);
        let payload = builder.finish().unwrap();
        assert_eq!(format.check_records(payload, |_, _| {}), Ok(1));
        assert!(format.check_records(&payload[8..], |_, _| {}).is_err());
    };
    step();
    assert_eq!(measure(|| (0..100).for_each(|_| step())).count_total, 0);
}

#[test]
fn writing_foreign_layouts_without_allocating() {
    let layout = "layout foreign big packed length len +0\nlen u16\nflags u8\nkind u8\nat u24 null bit 0 of flags\n\
                  name string slot u16 u16\nlegs record { to char[3] pad space; km u16 null if = 0 }[] slot u16 u8\n\
                  msg union on kind { 1 => add u40; 2 => text char[8] }";
    let format = Format::parse_schema(layout).unwrap();
    let field = |name: &str| format.field(name).unwrap();
    let (at, name, legs, text) = (field("at"), field("name"), field("legs"), field("msg.text"));
    let mut builder = RecordBuilder::new(&format);
    let mut step = || {
        builder.clear();
        builder.set_u64(at, 7).unwrap();
        builder.set_text(name, "N14228").unwrap();
        builder.begin_list(legs).unwrap();
        for to in ["JFK", "LGA"] {
            builder.begin_element().unwrap();
            builder.set_text(0, to).unwrap();
            builder.end_element().unwrap();
        }
        builder.end_list().unwrap();
        builder.set_text(text, "boarding").unwrap();
        assert_eq!(format.check_records(builder.finish().unwrap(), |_, _| {}), Ok(1));
        // Refused values may be many, too.
        builder.set_u64(at, 1 << 30).unwrap();
        assert!(builder.finish().is_err());
    };
    step();
    assert_eq!(measure(|| (0..100).for_each(|_| step())).count_total, 0);
}

#[test]
fn converting_without_allocating() {
    let from = Format::parse_schema(SCHEMA).unwrap();
    let to =
        "flight u8\ndelay f64 null\nair_time f32\ntailnum char[8] null\nsince i32\nnote bytes null\nat string\nok u8";
    let rules =
        "rename dep_delay delay\nrename time_hour since\nunit since s\ndefault at \"a text\"\ndefault air_time 1";
    let plan = Plan::by_name(&from, &Format::parse_schema(to).unwrap(), &rules.parse().unwrap()).unwrap();
    let mut builder = RecordBuilder::new(&from);
    let mut payload = Vec::new();
    // The flights from 256 on have no room where they go, and are refused.
    for flight in 0..300 {
        builder.set_text(0, "UA").unwrap();
        builder.set_u64(1, flight).unwrap();
        builder.set_text(4, "N14228").unwrap();
        builder.set_timestamp(5, 0).unwrap();
        builder.set_bool(6, true).unwrap();
        payload.extend_from_slice(builder.finish().unwrap());
    }
    let mut out = Vec::with_capacity(64 << 10);
    let mut step = || {
        out.clear();
        let mut refused = 0;
        assert_eq!(plan.run_payload(&payload, &mut out, |_, _| refused += 1), 256);
        assert_eq!(refused, 44);
        let record = Record::check(&from, &payload).unwrap().bytes();
        plan.run(record, &mut out).unwrap();
    };
    step();
    assert_eq!(measure(|| (0..10).for_each(|_| step())).count_total, 0);
}

#[test]
fn converting_nested_records_without_allocating() {
    let from = "pos record { x f32; y f32 null } null\nlegs record { km i32; to string; at i64[] }[]\n\
                u union { a i32; b string }\nkind enum u8 { A = 1; B = 2 }\nfare decimal(8, scale 2)\nm i16[][]";
    let to = "pos record { x f64; y f64 } null\nlegs record { km u8; to char[3]; at timestamp[] }[]\n\
              u union { a i64; b bytes }\nkind enum u8 { B = 1; A = 2 }\nfare f32\nm i32[][]";
    let rules = "default pos.y 0\nunit legs[].at[] s";
    let from = Format::parse_schema(from).unwrap();
    let plan = Plan::by_name(&from, &Format::parse_schema(to).unwrap(), &rules.parse().unwrap()).unwrap();
    let mut decoder = JsonDecoder::new(&from, &JsonOptions::default());
    let line = r#"{"pos":{"x":1,"y":null},"legs":[{"km":5,"to":"JFK","at":[1,2]},{"km":6,"to":"","at":[]}],"#;
    let line = [line, r#""u":{"b":"t"},"kind":"A","fare":7.25,"m":[[1],[2,3]]}"#].concat();
    let payload = decoder.decode(line.as_bytes()).unwrap().repeat(100);
    let mut out = Vec::with_capacity(256 << 10);
    let mut step = || {
        out.clear();
        assert_eq!(plan.run_payload(&payload, &mut out, |_, error| panic!("{error}")), 100);
        plan.run(Record::check(&from, &payload).unwrap().bytes(), &mut out).unwrap();
    };
    step();
    assert_eq!(measure(|| (0..10).for_each(|_| step())).count_total, 0);
}

#[test]
fn converting_to_a_foreign_layout_without_allocating() {
    let from = Format::parse_schema("kind char[1]\nqty u32\nsymbol string\nlevels u32[]").unwrap();
    let to = "layout foreign big packed length size\nsize u16\nkind char[1]\nqty u24\nsymbol char[4]\nn u8\nlevels u16[] count n";
    let plan = Plan::by_name(&from, &Format::parse_schema(to).unwrap(), &"".parse().unwrap()).unwrap();
    let mut decoder = JsonDecoder::new(&from, &JsonOptions::default());
    let mut decode = |line: &[u8]| decoder.decode(line).unwrap().to_vec();
    let record = decode(br#"{"kind":"A","qty":7,"symbol":"AB","levels":[1,2,3]}"#);
    // Refused by the plan, and by the layout.
    let long = decode(br#"{"kind":"A","qty":7,"symbol":"ABCDE","levels":[1]}"#);
    let high = decode(br#"{"kind":"A","qty":16777216,"symbol":"AB","levels":[]}"#);
    let payload = [record.clone(), long, high, record.clone()].concat().repeat(25);
    let mut out = Vec::with_capacity(16 << 10);
    let mut step = || {
        out.clear();
        let mut refused = 0;
        assert_eq!(plan.run_payload(&payload, &mut out, |_, _| refused += 1), 50);
        assert_eq!(refused, 50);
        // Another core with the same plan needs nothing of its own but its output.
        plan.clone().run(&record, &mut out).unwrap();
    };
    step();
    assert_eq!(measure(|| (0..10).for_each(|_| step())).count_total, 0);
}

/// Encodings that have an item for each record; the others gather records in blocks of their own.
const ITEMS: [Encoding; 7] = [
    Encoding::Json,
    Encoding::Csv,
    Encoding::Cbor,
    Encoding::MessagePack,
    Encoding::Avro,
    Encoding::Protobuf,
    Encoding::Binary,
];

#[test]
fn items_of_every_encoding_without_allocating() {
    let flat = "{\"carrier\":\"UA\",\"flight\":1545,\"dep_delay\":null,\"air_time\":227.5,\"tailnum\":\"N14228\",\
                \"time_hour\":\"2013-01-01T10:00:00Z\",\"ok\":true,\"note\":\"AAEC\"}";
    let nested =
        r#"{"pos":{"x":1,"y":null},"legs":[{"km":5,"to":"JFK","at":[1,2]},{"km":6,"to":"","at":[]}],"fare":7.25}"#;
    let nested_schema = "pos record { x f32; y f32 null } null\nlegs record { km i32; to string; at i64[] }[]\nfare decimal(8, scale 2)";
    for (schema, line) in [(SCHEMA, flat), (nested_schema, nested)] {
        let format = Format::parse_schema(schema).unwrap();
        let bytes = JsonDecoder::new(&format, &JsonOptions::default()).decode(line.as_bytes()).unwrap().to_vec();
        let record = Record::check(&format, &bytes).unwrap();
        for encoding in ITEMS {
            let options = EncodingOptions::default();
            // Some are left out of some builds, and columns hold no records in lists.
            let Ok(mut encoder) = encoding::encoder(encoding, &format, None, &options) else { continue };
            let mut out = Vec::with_capacity(64 << 10);
            encoder.start(&mut out);
            let mut encode = |times: usize| (0..times).for_each(|_| encoder.record(&record, &mut out).unwrap());
            encode(10);
            assert_eq!(measure(|| encode(90)).count_total, 0, "{encoding:?} out of {schema}");
            encoder.finish(&mut out).unwrap();
            let mut decoder = encoding::decoder(encoding, &format, None, &options).unwrap();
            let input: &mut dyn BufRead = &mut &out[..];
            let mut decode = |times: usize| {
                (0..times).for_each(|_| assert_eq!(decoder.next_record(input).unwrap(), Some(&bytes[..])));
            };
            decode(10);
            assert_eq!(measure(|| decode(90)).count_total, 0, "{encoding:?} into {schema}");
        }
    }
}

/// The items of an encoding, read one for each of `steps` after ten to warm up: how many allocations that takes, and how
/// many of all of them were refused.
fn carried(encoding: Encoding, format: &Format, text: &[u8], steps: usize) -> (u64, usize) {
    let options = EncodingOptions::default();
    let mut decoder = encoding::decoder(encoding, format, None, &options).expect("a format without losses");
    let mut input = text;
    let mut refused = 0;
    let mut step = || match decoder.next_record(&mut input) {
        Ok(record) => assert!(record.is_some(), "{encoding}"),
        Err(error) => {
            assert!(error.is_item(), "{encoding}: {error}");
            refused += 1;
        }
    };
    (0..10).for_each(|_| step());
    let count = measure(|| (0..steps).for_each(|_| step())).count_total;
    (count, refused)
}

#[test]
fn foreign_layouts_are_read_from_other_encodings_without_allocating() {
    let layout =
        "layout foreign big packed\nkind char[1]\nqty u24\nprice decimal(8, scale 2)\nat timestamp size 6 unit ms";
    let format = Format::parse_schema(layout).unwrap();
    let csv = ["kind,qty,price,at\n", &"A,7,1.25,2013-01-01T10:00:00Z\n".repeat(100)].concat();
    assert_eq!(carried(Encoding::Csv, &format, csv.as_bytes(), 80), (0, 0));
}

/// Most texts that an error of one item is made of: what was found and expected, the field, and both in one.
const MOST_OF_ERROR: u64 = 12;

#[test]
fn refused_values_cost_their_error_alone() {
    let format = Format::parse_schema("carrier char[2]\nflight u16\ndelay i32 null").unwrap();
    let csv = ["carrier,flight,delay\n", &"UA,1545,2\nUA,99999,2\n".repeat(60)].concat();
    let json = "{\"carrier\":\"UA\",\"flight\":1,\"delay\":2}\n{\"carrier\":\"UA\",\"flight\":99999,\"delay\":2}\n";
    for (encoding, text) in [(Encoding::Csv, csv), (Encoding::Json, json.repeat(60))] {
        let (count, refused) = carried(encoding, &format, text.as_bytes(), 100);
        assert_eq!(refused, 55, "{encoding}");
        assert!(count <= 50 * MOST_OF_ERROR, "{encoding}: {count}");
    }
    let layout = Format::parse_schema("layout foreign big packed\nkind char[1]\nqty u24").unwrap();
    let csv = ["kind,qty\n", &"A,7\nA,16777216\n".repeat(60)].concat();
    let (count, refused) = carried(Encoding::Csv, &layout, csv.as_bytes(), 100);
    assert_eq!(refused, 55);
    assert!(count <= 50 * MOST_OF_ERROR, "{count}");
}

#[cfg(feature = "xml")]
#[test]
fn xml_is_written_without_allocating() {
    let schema = "id u32\nname string null\nprice f64 null\nat timestamp\nfare decimal(8, scale 2)\nraw bytes\n\
                  legs record { to string; km u16[] }[]\nu union { a i32; b record { c enum u8 { A = 1 } } }";
    let format = Format::parse_schema(schema).unwrap();
    let line = r#"{"id":1,"name":"a & <b>","price":1.5,"at":"2013-01-01T10:00:00Z","fare":7.25,"raw":"AAEC","#;
    let line = [line, r#""legs":[{"to":"JFK","km":[1,2]},{"to":"","km":[]}],"u":{"b":{"c":"A"}}}"#].concat();
    let mut decoder = JsonDecoder::new(&format, &JsonOptions::default());
    let bytes = decoder.decode(line.as_bytes()).unwrap();
    let record = Record::check(&format, bytes).unwrap();
    let mut encoder = encoding::encoder(Encoding::Xml, &format, None, &EncodingOptions::default()).unwrap();
    let mut out = Vec::with_capacity(4096);
    encoder.start(&mut out);
    let mut step = || {
        out.clear();
        encoder.record(&record, &mut out).unwrap();
    };
    step();
    assert_eq!(measure(|| (0..100).for_each(|_| step())).count_total, 0);
}

#[cfg(feature = "xml")]
#[test]
fn xml_is_read_with_two_allocations_of_the_parser_a_record() {
    let schema =
        "id u32\nname string null\nraw bytes\nlegs record { to string; km u16[] }[]\ng u8[][]\nu union { a i32 }";
    let format = Format::parse_schema(schema).unwrap();
    let row = "<r><id>1</id><name>a &amp; b</name><raw>AAEC</raw><legs><to>JFK</to><km>1</km><km>2</km></legs>\
               <g><item>1</item></g><u><a>-1</a></u></r>";
    let text = format!("<rs>{}</rs>", row.repeat(100));
    let (count, refused) = carried(Encoding::Xml, &format, text.as_bytes(), 80);
    assert_eq!(refused, 0);
    // The names of the elements that are open, which the parser keeps: more would take it more room.
    assert!(count <= 2 * 80, "{count}");
}

#[test]
fn rust_types_to_records_and_back_without_allocating() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Flight<'a> {
        carrier: &'a str,
        flight: u16,
        legs: [Leg<'a>; 2],
        dep_delay: Option<i32>,
    }
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Leg<'a> {
        #[serde(borrow)]
        to: Option<&'a str>,
    }
    let format = Format::of::<Flight<'static>>().unwrap();
    let (mut writer, reader) = (RecordWriter::new(&format), RecordReader::new(&format));
    let mut step = || {
        let legs = [Leg { to: Some("JFK") }, Leg { to: None }];
        let bytes = writer.write(&Flight { carrier: "UA", flight: 1545, legs, dep_delay: None }).unwrap();
        let flight: Flight<'_> = reader.read(&Record::assume_checked(&format, bytes)).unwrap();
        assert_eq!(flight.legs[0].to, Some("JFK"));
    };
    (0..10).for_each(|_| step());
    assert_eq!(measure(|| (0..80).for_each(|_| step())).count_total, 0);
}
