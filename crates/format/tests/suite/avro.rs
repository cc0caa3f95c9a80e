//! Avro against apache-avro, in both directions; what is documented of values; hostile bytes.

use crate::any;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value as Theirs;
use apache_avro::writer::datum::GenericDatumWriter;
use apache_avro::{Codec, Decimal, DeflateSettings, Reader, Schema, Writer};
use crossdock_format::encoding::avro::{
    AvroCodec, AvroDecoder, AvroEncoder, AvroFileDecoder, AvroFileEncoder, AvroSchema,
};
use crossdock_format::encoding::{Decoder, Encoder, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crossdock_format::{FieldSpec, FieldType, Format, Group, Member, Record, RecordBuilder, TypeSpec, Value};
use proptest::prelude::*;

/// A record as the library has it, by the schema that stands for the format.
fn theirs(record: &Record<'_>) -> Theirs {
    fields(record, record.format().tree(), &record.format().specs())
}

fn fields(record: &Record<'_>, tree: &[Member], specs: &[FieldSpec]) -> Theirs {
    let field = |(member, spec): (&Member, &FieldSpec)| (spec.name.clone(), member_value(record, member, spec));
    Theirs::Record(tree.iter().zip(specs).map(field).collect())
}

fn member_value(record: &Record<'_>, member: &Member, spec: &FieldSpec) -> Theirs {
    if let (Member::Group(group), TypeSpec::Union(variants)) = (member, &spec.ty) {
        return union(record, group, variants, spec.nullable);
    }
    let is_null = match member {
        Member::Leaf(index) => record.is_null(*index),
        Member::Group(group) => record.group_is_null(group),
    };
    let value = match (member, &spec.ty) {
        _ if is_null => Theirs::Null,
        (Member::Leaf(index), ty) => value(record.get(*index), ty),
        (Member::Group(group), TypeSpec::Record(specs)) => fields(record, &group.members, specs),
        _ => unreachable!("tree and specs are of one shape"),
    };
    if spec.nullable { Theirs::Union(u32::from(!is_null), Box::new(value)) } else { value }
}

fn union(record: &Record<'_>, group: &Group, variants: &[FieldSpec], nullable: bool) -> Theirs {
    let found = record.variant(group).and_then(|member| group.members.iter().position(|other| other == member));
    let Some(index) = found else {
        return Theirs::Union(0, Box::new(Theirs::Null));
    };
    let inner = FieldSpec { nullable: false, ..variants[index].clone() };
    let value = member_value(record, &group.members[index], &inner);
    let value = match inner.ty {
        TypeSpec::Record(_) => value,
        _ => Theirs::Record(vec![("value".to_owned(), value)]),
    };
    Theirs::Union(index as u32 + u32::from(nullable), Box::new(value))
}

fn value(value: Value<'_>, ty: &TypeSpec) -> Theirs {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("made of text");
    match (value, ty) {
        (Value::Null, _) => Theirs::Null,
        (Value::Bool(value), _) => Theirs::Boolean(value),
        (Value::Int(value), TypeSpec::Scalar(FieldType::I64)) => Theirs::Long(value),
        (Value::Int(value), _) => Theirs::Int(value as i32),
        (Value::Uint(value), TypeSpec::Scalar(FieldType::U32 | FieldType::U64)) => Theirs::Long(value as i64),
        (Value::Uint(value), _) => Theirs::Int(value as i32),
        (Value::Float(value), TypeSpec::Scalar(FieldType::F32)) => Theirs::Float(value as f32),
        (Value::Float(value), _) => Theirs::Double(value),
        (Value::Timestamp(value), _) => Theirs::TimestampNanos(value),
        (Value::Text(value), _) => Theirs::String(text(value)),
        (Value::Bytes(value), _) => Theirs::Bytes(value.to_vec()),
        (Value::Decimal { unscaled, .. }, _) => {
            let bytes = unscaled.to_be_bytes();
            let is_sign = |at: &usize| {
                let next = bytes[at + 1] & 0x80 != 0;
                (bytes[*at] == 0 && !next) || (bytes[*at] == 0xff && next)
            };
            let extra = (0..15).take_while(is_sign).count();
            Theirs::Decimal(Decimal::from(&bytes[extra..]))
        }
        (Value::Enum { number, .. }, TypeSpec::Enum { symbols, .. }) => {
            match symbols.iter().position(|(_, known)| *known == number) {
                Some(index) => Theirs::Enum(index as u32, symbols[index].0.clone()),
                None => Theirs::Long(number),
            }
        }
        (Value::List(list), TypeSpec::List { element, .. }) => {
            let item = |item: Value<'_>| match (item, &**element) {
                (Value::Record(record), TypeSpec::Record(specs)) => fields(&record, record.format().tree(), specs),
                (item, ty) => self::value(item, ty),
            };
            Theirs::Array(list.iter().map(item).collect())
        }
        (value, ty) => unreachable!("{value:?} is no {ty:?}"),
    }
}

/// A datum as the library reads it.
fn read_datum(schema: &Schema, datum: &[u8]) -> Result<Theirs, apache_avro::Error> {
    GenericDatumReader::builder(schema).build()?.read_value(&mut &datum[..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn the_library_and_we_read_each_other(format in any::format(), seeds in proptest::collection::vec(any::<u64>(), 1..5)) {
        let options = EncodingOptions::default();
        let schema = AvroSchema::of(&format).unwrap();
        let known = Schema::parse_str(schema.to_json()).unwrap();
        prop_assert_eq!(schema.format().unwrap().describe(), format.describe());
        prop_assert_eq!(&AvroSchema::parse(schema.to_json()).unwrap(), &schema);

        let encoder = AvroEncoder::new(&format, &options, None).unwrap();
        let mut decoder = AvroDecoder::new(&format, &options, Some(&schema)).unwrap();
        let mut stream = Vec::new();
        let mut records = Vec::new();
        for seed in seeds {
            let bytes = any::record(&format, seed);
            let record = Record::check(&format, &bytes).unwrap();
            let mut datum = Vec::new();
            encoder.datum(&record, &mut datum).unwrap();
            let expected = theirs(&record);
            prop_assert_eq!(&read_datum(&known, &datum).unwrap(), &expected);
            let written = GenericDatumWriter::builder(&known).build().unwrap().write_value_to_vec(expected).unwrap();
            let decoded = decoder.decode(&written).unwrap();
            prop_assert_eq!(&Record::check(&format, decoded).unwrap(), &record);
            stream.extend_from_slice(&datum);
            records.push(bytes);
        }
        for chunk in [1, 7, 64, 1 << 20] {
            let mut input = std::io::BufReader::with_capacity(chunk, &stream[..]);
            let mut decoder = AvroDecoder::new(&format, &options, None).unwrap();
            for bytes in &records {
                let decoded = decoder.next_record(&mut input).unwrap().unwrap();
                prop_assert_eq!(Record::check(&format, decoded).unwrap(), Record::check(&format, bytes).unwrap());
            }
            prop_assert!(decoder.next_record(&mut input).unwrap().is_none());
        }
    }

    #[test]
    fn files_are_read_and_written(format in any::format(), seeds in proptest::collection::vec(any::<u64>(), 0..5)) {
        let options = EncodingOptions::default();
        let schema = AvroSchema::of(&format).unwrap();
        let known = Schema::parse_str(schema.to_json()).unwrap();
        let records: Vec<Vec<u8>> = seeds.iter().map(|seed| any::record(&format, *seed)).collect();
        let expected: Vec<Theirs> =
            records.iter().map(|bytes| theirs(&Record::check(&format, bytes).unwrap())).collect();
        let codecs = [
            (AvroCodec::Null, Codec::Null),
            (AvroCodec::Deflate, Codec::Deflate(DeflateSettings::default())),
            (AvroCodec::Snappy, Codec::Snappy),
        ];
        for (codec, theirs) in codecs {
            let mut encoder = AvroFileEncoder::new(&format, &options, None).unwrap().with_codec(codec);
            let mut file = Vec::new();
            encoder.start(&mut file);
            for bytes in &records {
                encoder.record(&Record::check(&format, bytes).unwrap(), &mut file).unwrap();
            }
            encoder.finish(&mut file).unwrap();
            let read: Result<Vec<Theirs>, _> = Reader::new(&file[..]).unwrap().collect();
            prop_assert_eq!(&read.unwrap(), &expected);

            let mut writer = Writer::with_codec(&known, Vec::new(), theirs).unwrap();
            for value in &expected {
                writer.append_value(value.clone()).unwrap();
            }
            let written = writer.into_inner().unwrap();
            let mut input = std::io::BufReader::with_capacity(11, &written[..]);
            let (opened, mut decoder) = AvroFileDecoder::open(&mut input, &options).unwrap();
            // The library drops attributes that it does not know.
            prop_assert_eq!(opened.specs().len(), format.specs().len());
            let mut own = AvroFileDecoder::new(&format, &options);
            let mut whole = &file[..];
            for bytes in &records {
                prop_assert!(decoder.next_record(&mut input).unwrap().is_some());
                let decoded = own.next_record(&mut whole).unwrap().unwrap();
                prop_assert_eq!(Record::check(&format, decoded).unwrap(), Record::check(&format, bytes).unwrap());
            }
            prop_assert!(decoder.next_record(&mut input).unwrap().is_none());
            prop_assert!(own.next_record(&mut whole).unwrap().is_none());
        }
    }

    #[test]
    fn hostile_bytes_are_an_error_and_no_more(
        format in any::format(),
        seeds in proptest::collection::vec(any::<u64>(), 1..4),
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let options = EncodingOptions { max_item_bytes: 1 << 16, ..EncodingOptions::default() };
        let mut encoder = AvroEncoder::new(&format, &options, None).unwrap();
        let mut file_encoder = AvroFileEncoder::new(&format, &options, None).unwrap().with_codec(AvroCodec::Deflate);
        let (mut stream, mut file) = (Vec::new(), Vec::new());
        file_encoder.start(&mut file);
        for seed in seeds {
            let bytes = any::record(&format, seed);
            let record = Record::check(&format, &bytes).unwrap();
            encoder.record(&record, &mut stream).unwrap();
            file_encoder.record(&record, &mut file).unwrap();
        }
        file_encoder.finish(&mut file).unwrap();
        for bytes in [&mut stream, &mut file] {
            for (at, byte) in noise.iter().filter(|_| !bytes.is_empty()).copied().collect::<Vec<_>>() {
                let at = at.index(bytes.len());
                bytes[at] ^= byte;
            }
            let len = bytes.len();
            bytes.truncate(cut.index(len + 1));
        }
        let mut decoders: [(Box<dyn Decoder>, &[u8]); 2] = [
            (Box::new(AvroDecoder::new(&format, &options, None).unwrap()), &stream),
            (Box::new(AvroFileDecoder::new(&format, &options)), &file),
        ];
        for (decoder, input) in &mut decoders {
            // A datum of no bytes never ends: as many as there were is enough.
            for _ in 0..100 {
                match decoder.next_record(input) {
                    Ok(Some(record)) => prop_assert!(Record::check(&format, record).is_ok()),
                    Ok(None) => break,
                    Err(error) if error.is_item() => {}
                    Err(_) => break,
                }
            }
        }
    }
}

fn schema(fields: &str) -> AvroSchema {
    AvroSchema::parse(&format!("{{\"type\":\"record\",\"name\":\"R\",\"fields\":[{fields}]}}")).expect("a schema")
}

fn long(value: i64) -> Vec<u8> {
    let mut value = (value << 1 ^ value >> 63) as u64;
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn read(format: &str, schema: &AvroSchema, options: &EncodingOptions, datum: &[u8]) -> Result<String, EncodingError> {
    let format = Format::parse_schema(format).expect("a format");
    let mut decoder = AvroDecoder::new(&format, options, Some(schema))?;
    let bytes = decoder.decode(datum)?;
    Ok(format!("{:?}", Record::check(&format, bytes).expect("a record")))
}

#[test]
fn schemas_are_formats() {
    let fields = r#"{"name":"a","type":"int"}, {"name":"b","type":["null","string"]},
        {"name":"c","type":{"type":"long","logicalType":"timestamp-micros"}},
        {"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":12,"scale":3}},
        {"name":"e","type":{"type":"enum","name":"E","symbols":["X","Y"]}},
        {"name":"f","type":{"type":"array","items":"E"}},
        {"name":"g","type":{"type":"map","values":["double","null"]}},
        {"name":"h","type":["null",{"type":"record","name":"P","namespace":"n","fields":[{"name":"x","type":"float"}]}]},
        {"name":"i","type":["int","string","n.P"]},
        {"name":"j","type":{"type":"array","items":["null","long"]}},
        {"name":"k","type":{"type":"fixed","name":"F","size":16}}"#;
    let expected = "a i32\nb string null\nc timestamp\nd decimal(8, scale 3)\ne enum i32 { X = 0; Y = 1 }\n\
                    f enum i32 { X = 0; Y = 1 }[]\ng record { key string; value f64 null }[]\n\
                    h record { x f32 } null\ni union { int i32; string string; P record { x f32 } }\n\
                    j record { value i64 null }[]\nk bytes\n";
    let format = schema(fields).format().unwrap();
    assert_eq!(format.schema(), Format::parse_schema(expected).unwrap().schema());
    // All of it can be read, and written back.
    let mut builder = RecordBuilder::new(&format);
    for (name, value) in [("a", Value::Int(1)), ("i.P.x", Value::Float(0.5)), ("k", Value::Bytes(&[7; 16]))] {
        builder.set(format.field(name).unwrap(), value).unwrap();
    }
    builder.set(format.field("c").unwrap(), Value::Timestamp(1_000)).unwrap();
    builder.set(format.field("d").unwrap(), Value::Decimal { unscaled: -5, scale: 3 }).unwrap();
    builder.set(format.field("e").unwrap(), Value::Text(b"Y")).unwrap();
    for list in ["f", "g", "j"] {
        builder.begin_list(format.field(list).unwrap()).unwrap();
        match list {
            "f" => builder.push(Value::Text(b"X")).unwrap(),
            "g" => {
                builder.begin_element().unwrap();
                builder.set(0, Value::Text(b"key")).unwrap();
                builder.end_element().unwrap();
            }
            _ => {
                builder.begin_element().unwrap();
                builder.set(0, Value::Int(-9)).unwrap();
                builder.end_element().unwrap();
            }
        }
        builder.end_list().unwrap();
    }
    let bytes = builder.finish().unwrap();
    let record = Record::check(&format, bytes).unwrap();
    let options = EncodingOptions::default();
    let mut datum = Vec::new();
    AvroEncoder::new(&format, &options, Some(&schema(fields))).unwrap().datum(&record, &mut datum).unwrap();
    let known = Schema::parse_str(schema(fields).to_json()).unwrap();
    assert!(read_datum(&known, &datum).is_ok());
    let mut decoder = AvroDecoder::new(&format, &options, Some(&schema(fields))).unwrap();
    assert_eq!(Record::check(&format, decoder.decode(&datum).unwrap()).unwrap(), record);
}

#[test]
fn schemas_that_are_refused() {
    let refusal = |json: &str| AvroSchema::parse(json).and_then(|schema| schema.format()).unwrap_err().to_string();
    assert!(refusal("[").starts_with("the schema is no JSON"));
    assert!(refusal("\"int\"").contains("no record"));
    let of = |fields: &str| format!("{{\"type\":\"record\",\"name\":\"R\",\"fields\":[{fields}]}}");
    assert!(refusal(&of("")).contains("at least one field"));
    assert_eq!(refusal(&of(r#"{"name":"a","type":"ints"}"#)), "field `a`: there is no type `ints`");
    assert!(refusal(&of(r#"{"name":"a","type":"null"}"#)).starts_with("field `a`: it is always null"));
    assert_eq!(
        refusal(&of(r#"{"name":"a","type":["null","R"]}"#)),
        "field `a`: the record `R` lies in itself, which no format can"
    );
    // More fields than there is memory for, out of a few types: each record has the one before twenty times.
    let wide = (1..12).fold(
        r#"{"type":"record","name":"W0","fields":[{"name":"x","type":"int"}]}"#.to_owned(),
        |inner, at| {
            let more = (1..20).map(|field| format!(",{{\"name\":\"f{field}\",\"type\":\"W{}\"}}", at - 1));
            let more: String = more.collect();
            format!(
                "{{\"type\":\"record\",\"name\":\"W{at}\",\"fields\":[{{\"name\":\"f0\",\"type\":{inner}}}{more}]}}"
            )
        },
    );
    assert!(refusal(&wide).contains("fields with those in it, expected at most 4096"), "{}", refusal(&wide));
    assert!(refusal(&of(r#"{"name":"a","type":[["int"]]}"#)).contains("union lies in a union"));
    assert!(refusal(&of(r#"{"name":"a","type":"int"},{"name":"a","type":"int"}"#)).contains("two fields"));
    let deep = format!("{}\"int\"{}", "{\"type\":\"array\",\"items\":".repeat(60), "}".repeat(60));
    assert!(refusal(&of(&format!("{{\"name\":\"a\",\"type\":{deep}}}"))).contains("deep"));
}

#[test]
fn a_file_packed_by_what_is_not_read_says_so() {
    let entry = |key: &str, value: &str| {
        [&long(key.len() as i64)[..], key.as_bytes(), &long(value.len() as i64), value.as_bytes()].concat()
    };
    let schema = entry("avro.schema", schema(r#"{"name":"a","type":"int"}"#).to_json());
    let file = [b"Obj\x01", &long(2)[..], &schema, &entry("avro.codec", "bzip2"), &[0; 17]].concat();
    let error = AvroFileDecoder::open(&mut &file[..], &EncodingOptions::default()).unwrap_err().to_string();
    assert!(error.contains("packed with `bzip2`; known: null, deflate, snappy, zstandard. Have it written"), "{error}");
}

#[test]
fn values_that_do_not_fit() {
    let options = EncodingOptions::default();
    let ints = schema(r#"{"name":"a","type":"long"},{"name":"b","type":"string"}"#);
    let datum = |number: i64, text: &[u8]| [&long(number)[..], &long(text.len() as i64), text].concat();
    let format = "a i16\nb char[3]";
    let wrong = |bytes: &[u8]| read(format, &ints, &options, bytes).unwrap_err().to_string();
    assert_eq!(wrong(&datum(40_000, b"")), "field `a`: found 40000, expected i16 (-32768 to 32767)");
    assert!(wrong(&datum(1, b"four")).starts_with("field `b`: found a text of 4 bytes"));
    assert!(wrong(&datum(1, b"a\xff")).starts_with("field `b`: found text that is no UTF-8"));
    let repairs = EncodingOptions { allow: vec![Loss::InvalidText], ..options.clone() };
    assert!(read("a i16\nb string", &ints, &repairs, &datum(1, b"a\xff")).is_ok());
    let times = schema(r#"{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}}"#);
    assert!(
        read("t timestamp", &times, &options, &long(i64::MAX)).unwrap_err().to_string().contains("a time beyond it")
    );
    let nullable = schema(r#"{"name":"a","type":["null","int"]}"#);
    assert!(read("a i32", &nullable, &options, &[0]).unwrap_err().to_string().starts_with("field `a`: found null"));
    let symbols = schema(r#"{"name":"e","type":{"type":"enum","name":"E","symbols":["X","Y"]}}"#);
    assert!(read("e enum i32 { X = 5 }", &symbols, &options, &[0]).unwrap().contains("number: 5"));
    assert!(
        read("e enum i32 { X = 5 }", &symbols, &options, &[2])
            .unwrap_err()
            .to_string()
            .contains("a symbol that the field")
    );
    // A datum that no schema like this has written ends the input.
    let fatal = |schema: &AvroSchema, format: &str, bytes: &[u8]| {
        let error = read(format, schema, &options, bytes).unwrap_err();
        assert!(!error.is_item(), "{error}");
        error.to_string()
    };
    assert!(fatal(&symbols, "e enum i32 { X = 5 }", &[4]).contains("symbol that its enumeration"));
    assert!(fatal(&nullable, "a i32 null", &[4]).contains("branch that its union"));
    assert!(fatal(&nullable, "a i32 null", &[&[2][..], &long(1 << 40)].concat()).contains("int of more than 32 bits"));
    assert!(fatal(&ints, format, &[0xff; 11]).contains("more than ten bytes"));
    assert!(fatal(&ints, format, &[0, 1]).contains("length below zero"));
    assert!(fatal(&ints, format, &[0, 0, 0]).contains("1 bytes behind"));
    assert!(matches!(read(format, &ints, &options, &[0, 4]).unwrap_err().problem, EncodingProblem::Cut));
}

#[test]
fn an_item_that_is_wrong_is_passed_over() {
    let numbers = schema(r#"{"name":"a","type":{"type":"array","items":"long"}},{"name":"b","type":"int"}"#);
    let format = Format::parse_schema("a u8[]\nb i32").unwrap();
    let mut stream = Vec::new();
    for number in [1, 300, 2] {
        // Two blocks, one of them with its size.
        stream.extend(
            [long(-1), long(long(number).len() as i64), long(number), long(1), long(7), long(0), long(5)].concat(),
        );
    }
    let mut decoder = AvroDecoder::new(&format, &EncodingOptions::default(), Some(&numbers)).unwrap();
    let mut input = &stream[..];
    assert!(decoder.next_record(&mut input).unwrap().is_some());
    let error = decoder.next_record(&mut input).unwrap_err();
    assert!(error.is_item() && error.item == 2 && error.field.as_deref() == Some("a[]"), "{error}");
    let record = decoder.next_record(&mut input).unwrap().unwrap();
    let Value::List(list) = Record::check(&format, record).unwrap().get(0) else { panic!("a list") };
    assert_eq!(list.iter().collect::<Vec<_>>(), [Value::Uint(2), Value::Uint(7)]);
    assert!(decoder.next_record(&mut input).unwrap().is_none());
}

#[test]
fn fields_that_the_format_lacks_are_passed_over_if_asked() {
    let rich = schema(
        r#"{"name":"x","type":{"type":"map","values":{"type":"array","items":["null","double","R"]}}},
           {"name":"a","type":"int"}, {"name":"y","type":{"type":"array","items":"null"}}"#,
    );
    let options = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    let refused = read("a i32", &rich, &EncodingOptions::default(), &[]).unwrap_err();
    assert!(matches!(refused.problem, EncodingProblem::Unknown { .. }) && refused.field.as_deref() == Some("x"));
    let inner = [&[0][..], &long(3), &[0]].concat();
    // A map of one key with a block of an array: null, a double, a record like this one.
    let datum = [&[2, 2, b'k', 6, 0, 2][..], &[9; 8], &[4], &inner, &[0, 0], &long(42), &long(1 << 60), &[0]].concat();
    assert_eq!(read("a i32", &rich, &options, &datum).unwrap(), "{\"a\": Int(42)}");
    let lacking = read("a i32\nz i32", &rich, &options, &datum).unwrap_err().to_string();
    assert_eq!(lacking, "field `z`: record R has no such field");
    assert!(read("a i32\nz i32 null", &rich, &options, &datum).is_ok());
    let mismatch = read("a string", &rich, &options, &datum).unwrap_err().to_string();
    assert_eq!(mismatch, "field `a`: the schema has int, which does not go with string");
}

#[test]
fn values_that_cannot_be_written_are_an_error_of_the_record() {
    let format = Format::parse_schema("a u64\nt timestamp\ne enum i32 { X = 0 }\ns string").unwrap();
    let by_milliseconds = schema(
        r#"{"name":"a","type":"long"},{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}},
           {"name":"e","type":{"type":"enum","name":"E","symbols":["X"]}},{"name":"s","type":"string"}"#,
    );
    let outcome = |a: u64, t: i64, e: i64, s: &[u8]| {
        let mut builder = RecordBuilder::new(&format);
        builder.set(0, Value::Uint(a)).unwrap();
        builder.set(1, Value::Timestamp(t)).unwrap();
        builder.set(2, Value::Int(e)).unwrap();
        builder.set(3, Value::Text(s)).unwrap();
        let record = builder.finish().unwrap();
        let mut encoder = AvroEncoder::new(&format, &EncodingOptions::default(), Some(&by_milliseconds)).unwrap();
        let mut out = Vec::new();
        let outcome = encoder.record(&Record::check(&format, record).unwrap(), &mut out);
        assert_eq!(outcome.is_err(), out.is_empty());
        outcome.map_err(|error| {
            assert!(error.is_item() && error.item == 1);
            error.field.unwrap_or_default()
        })
    };
    assert_eq!(outcome(1, -1_000_000, 0, b"ok"), Ok(()));
    assert_eq!(outcome(1 << 63, 0, 0, b""), Err("a".to_owned()));
    assert_eq!(outcome(1, 1, 0, b""), Err("t".to_owned()));
    assert_eq!(outcome(1, 0, 1, b""), Err("e".to_owned()));
    assert_eq!(outcome(1, 0, 0, b"\xff"), Err("s".to_owned()));
}

#[test]
fn floats_that_are_no_numbers_are_kept() {
    let format = Format::parse_schema("a f32\nb f64").unwrap();
    for bits in [0x7fc0_0001_u32, 0xffc1_2345, 0x7f80_0000, 0x8000_0000] {
        let mut builder = RecordBuilder::new(&format);
        builder.set_f64(0, f32::from_bits(bits).into()).unwrap();
        builder.set_f64(1, f64::from_bits(u64::from(bits) << 32 | 1)).unwrap();
        let record = builder.finish().unwrap();
        let options = EncodingOptions::default();
        let mut out = Vec::new();
        let encoder = AvroEncoder::new(&format, &options, None).unwrap();
        encoder.datum(&Record::check(&format, record).unwrap(), &mut out).unwrap();
        let mut decoder = AvroDecoder::new(&format, &options, None).unwrap();
        assert_eq!(decoder.decode(&out).unwrap(), record);
    }
}

#[test]
fn files_that_are_refused() {
    let format = Format::parse_schema("a i32").unwrap();
    let options = EncodingOptions { max_item_bytes: 4096, ..EncodingOptions::default() };
    let mut file = Vec::new();
    let mut encoder = AvroFileEncoder::new(&format, &options, None).unwrap().with_codec(AvroCodec::Snappy);
    encoder.start(&mut file);
    let mut builder = RecordBuilder::new(&format);
    builder.set_i64(0, 5).unwrap();
    let record = builder.finish().unwrap().to_vec();
    encoder.record(&Record::check(&format, &record).unwrap(), &mut file).unwrap();
    encoder.finish(&mut file).unwrap();
    let outcome = |file: &[u8]| {
        let mut input = file;
        let (_, mut decoder) = AvroFileDecoder::open(&mut input, &options)?;
        while decoder.next_record(&mut input)?.is_some() {}
        Ok(())
    };
    outcome(&file).unwrap();
    let wrong = |file: &[u8]| outcome(file).map_err(|error: EncodingError| error.to_string()).unwrap_err();
    assert!(wrong(b"PAR1").contains("no Avro object container file"));
    assert!(wrong(&file[..40]).ends_with("ends in the middle of it"));
    assert!(wrong(&file[..file.len() - 1]).ends_with("ends in the middle of it"));
    let mut changed = file.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(wrong(&changed).contains("marker behind a block"));
    let mut changed = file.clone();
    let sum = changed.len() - 17;
    changed[sum] ^= 1;
    assert!(wrong(&changed).contains("checksum"));
    let text = String::from_utf8_lossy(&file).replace("snappy", "zstand");
    assert!(!text.is_empty());
    let at = file.windows(6).position(|window| window == b"snappy").unwrap();
    let mut changed = file.clone();
    changed[at..at + 6].copy_from_slice(b"zstand");
    assert!(wrong(&changed).contains("packed with `zstand`"));
}

#[test]
fn nothing_is_allocated_once_buffers_are_warm() {
    let format = Format::parse_schema(
        "carrier char[2]\nflight u16\ndep_delay i32 null\nair_time f64 null\ntailnum string null\ntime_hour timestamp\n\
         ok bool\nnote bytes null\nlegs record { to string; km u16 }[]",
    )
    .unwrap();
    let options = EncodingOptions::default();
    let bytes = any::record(&format, 5);
    let record = Record::check(&format, &bytes).unwrap();
    let mut encoder = AvroEncoder::new(&format, &options, None).unwrap();
    let mut out = Vec::new();
    (0..100).for_each(|_| encoder.record(&record, &mut out).unwrap());
    let stream = out.clone();
    let mut input = &stream[..];
    let mut decoder = AvroDecoder::new(&format, &options, None).unwrap();
    decoder.next_record(&mut input).unwrap();
    let counts = allocation_counter::measure(|| {
        for _ in 0..99 {
            assert!(decoder.next_record(&mut input).unwrap().is_some());
            out.clear();
            encoder.record(&record, &mut out).unwrap();
        }
    });
    assert_eq!(counts.count_total, 0);
}

/// A datum of one schema as a record of another, which is that of the format.
fn resolve(reader: &str, writer: &str, datum: &[u8]) -> Result<String, EncodingError> {
    let format = schema(reader).format().expect("a format");
    let mut decoder = AvroDecoder::new(&format, &EncodingOptions::default(), Some(&schema(writer)))?;
    let bytes = decoder.decode(datum)?;
    Ok(format!("{:?}", Record::check(&format, bytes).expect("a record")))
}

#[test]
fn data_without_bytes_are_refused_both_ways() {
    let empty = schema(r#"{"name":"nothing","type":{"type":"fixed","name":"F","size":0}}"#);
    let format = empty.format().unwrap();
    let mut decoder = AvroDecoder::new(&format, &EncodingOptions::default(), Some(&empty)).unwrap();
    let record = decoder.decode(&[]).expect("one by itself can be read").to_vec();
    let error = decoder.next_record(&mut &b"\x02"[..]).unwrap_err();
    assert!(error.to_string().contains("have no bytes") && !error.is_item(), "{error}");
    let mut encoder = AvroEncoder::new(&format, &EncodingOptions::default(), Some(&empty)).unwrap();
    let error = encoder.record(&Record::check(&format, &record).unwrap(), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("have no bytes"), "{error}");
}

#[test]
fn defaults_are_written_so_that_the_library_reads_them() {
    let text = "kept i32\nside enum u8 { BUY = 66; SELL = 83 } default SELL\nodd enum u8 { \"a b\" = 3; c = 4 } default c\n\
                at timestamp default 1970-01-01T00:00:01.5Z\nfare decimal(4, scale 2) default -1.5\n\
                loss decimal(16, scale 0) null default 300\nraw bytes default AH8=\nname string default x\n";
    let format = Format::parse_schema(text).unwrap();
    let made = AvroSchema::of(&format).unwrap();
    assert_eq!(made.format().unwrap().describe(), format.describe());
    // The writer has the first field only.
    let writer = Schema::parse_str(schema(r#"{"name":"kept","type":"int"}"#).to_json()).unwrap();
    let reader = Schema::parse_str(&made.to_json().replace("\"name\":\"Record\"", "\"name\":\"R\"")).unwrap();
    let theirs =
        GenericDatumReader::builder(&writer).reader_schema(&reader).build().unwrap().read_value(&mut &[14][..]);
    let Theirs::Record(fields) = theirs.unwrap() else { panic!("no record") };
    let decimal = |bytes: &[u8]| Theirs::Decimal(Decimal::from(bytes));
    let expected = [
        Theirs::Int(7),
        Theirs::Enum(1, "SELL".to_owned()),
        Theirs::Long(4),
        Theirs::TimestampNanos(1_500_000_000),
        decimal(&[0xff, 0xff, 0xff, 0x6a]),
        Theirs::Union(0, Box::new(decimal(&300_i128.to_be_bytes()))),
        Theirs::Bytes(vec![0, 0x7f]),
        Theirs::String("x".to_owned()),
    ];
    assert_eq!(fields.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), expected);
}

#[test]
fn a_union_is_read_as_one_of_its_types_and_a_type_as_one_of_a_union() {
    let single = r#"{"name":"a","type":"long"}"#;
    let union = r#"{"name":"a","type":["int","string"]}"#;
    let record = resolve(single, union, &[0, 14]).unwrap();
    assert!(record.contains('7'), "{record}");
    // The other branch is an error of the record, behind which reading goes on.
    let refused = resolve(single, union, &[2, 2, b'x']).unwrap_err().to_string();
    assert!(refused.contains("field `a`") && refused.contains("a value of type string"), "{refused}");
    let none = resolve(r#"{"name":"a","type":"boolean"}"#, union, &[0, 14]).unwrap_err().to_string();
    assert!(none.contains("does not go with"), "{none}");
    let nullable = r#"{"name":"a","type":["null","int","string"]}"#;
    assert!(resolve(r#"{"name":"a","type":["null","long"]}"#, nullable, &[0]).is_ok());

    // By name, then by promotion.
    let reader = r#"{"name":"a","type":["string","long","double"]}"#;
    for (writer, datum, expected) in [
        (r#"{"name":"a","type":"int"}"#, &[14][..], "\"a.long\": Int(7)"),
        (r#"{"name":"a","type":"double"}"#, &[0; 8], "\"a.double\": Float(0.0)"),
        (r#"{"name":"a","type":"bytes"}"#, &[2, b'x'], "\"a.string\": Text"),
        (r#"{"name":"a","type":["int","string"]}"#, &[0, 14], "\"a.long\": Int(7)"),
    ] {
        let record = resolve(reader, writer, datum).unwrap();
        assert!(record.contains(expected), "{writer}: {record}");
    }
    // A pair of types without promotion has none in a union either; and types with names go by these.
    let named = |kind: &str, name: &str| match kind {
        "enum" => format!(r#"{{"type":"enum","name":"{name}","symbols":["X","Y"],"default":"X"}}"#),
        _ => format!(r#"{{"type":"record","name":"{name}","fields":[{{"name":"price","type":"int"}}]}}"#),
    };
    let field = |ty: &str| format!(r#"{{"name":"a","type":{ty}}}"#);
    let with = |ty: &str| field(&format!(r#"["int",{ty}]"#));
    let (color, order) = (named("enum", "Color"), named("record", "Order"));
    let record = resolve(&field(&format!(r#"[{color},"long"]"#)), &field(r#""int""#), &[2]).unwrap();
    assert!(record.contains("\"a.long\": Int(1)"), "{record}");
    let record = resolve(&field(r#"["int","double"]"#), &field(r#""long""#), &[14]).unwrap();
    assert!(record.contains("\"a.double\": Float(7.0)"), "{record}");
    for (reader, writer, name) in [
        (reader.to_owned(), field(r#""boolean""#), "boolean"),
        (with(&color), field(&named("enum", "Side")), "Side"),
        (with(&order), field(&named("record", "Buy")), "Buy"),
    ] {
        let none = resolve(&reader, &writer, &[0; 8]).unwrap_err().to_string();
        assert!(none.contains(&format!("a type `{name}` for it, which goes with none")), "{none}");
    }
}

#[test]
fn variants_are_found_by_the_aliases_of_their_types() {
    let of = |name: &str, aliases: &str| {
        let record = format!(r#"{{"type":"record","name":"{name}"{aliases},"fields":[{{"name":"x","type":"int"}}]}}"#);
        format!(r#"{{"name":"a","type":["int",{record}]}}"#)
    };
    let reader = of("New", r#","aliases":["n.Old","Older"]"#);
    for writer in ["Old", "Older", "New"] {
        let record = resolve(&reader, &of(writer, ""), &[2, 14]).unwrap();
        assert!(record.contains("\"a.New.x\": Int(7)"), "{writer}: {record}");
    }
    assert!(schema(&reader).format().unwrap().schema().contains("alias Old"));
}

#[test]
fn parts_of_a_schema_that_a_format_lacks_are_listed() {
    let fields = r#"{"name":"a","type":["int","string"],"default":1},
        {"name":"b","type":{"type":"array","items":{"type":"enum","name":"E","symbols":["X"],"default":"X"}},"default":[]},
        {"name":"c","type":{"type":"record","name":"C","fields":[
            {"name":"d","type":{"type":"map","values":"int"},"default":{"x":1}}, {"name":"e","type":"int","default":1}]}},
        {"name":"f","type":[{"type":"record","name":"F","fields":[{"name":"g","type":"int"}]},"null"],"default":{"g":1}},
        {"name":"h","type":"C","default":{"d":{"y":1},"e":2}}, {"name":"i","type":"int","default":"seven"}"#;
    let expected = [
        "the default of `a`",
        "the default symbol of `b[]`",
        "the default of `c.d`",
        "the default of `f`",
        "the default of `h.d`",
        "the default of `i`",
    ];
    let ignored = schema(fields).ignored();
    assert_eq!(ignored, expected);
}
