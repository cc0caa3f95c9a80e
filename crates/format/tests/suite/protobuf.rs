//! Protobuf against prost-reflect, in both directions; what is documented of values; hostile bytes.

use crate::arbitrary;
use crate::arbitrary::Owned;
use crossdock_format::encoding::protobuf::{ProtobufDecoder, ProtobufEncoder, ProtobufSchema};
use crossdock_format::encoding::{Decoder, Encoder, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crossdock_format::{FieldType, Format, Record, RecordBuilder, Value};
use proptest::prelude::*;
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, Value as Theirs};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

struct One(String);

impl FileResolver for One {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            "one.proto" => File::from_source(name, &self.0),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

fn compile(proto: &str) -> DescriptorPool {
    let mut resolver = ChainFileResolver::new();
    resolver.add(One(proto.to_owned()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("one.proto").unwrap_or_else(|error| panic!("{error:?}\n{proto}"));
    compiler.descriptor_pool()
}

fn descriptor(proto: &str, message: &str) -> MessageDescriptor {
    compile(proto).get_message_by_name(message).expect("made for it")
}

fn import(proto: &str) -> ProtobufSchema {
    ProtobufSchema::import(&[("one.proto", proto)], None).expect("made for it")
}

/// The library's value for one of our values.
fn theirs(field: &FieldDescriptor, ty: FieldType, value: &Owned) -> Theirs {
    match value {
        Owned::Null => unreachable!("null is absence"),
        Owned::Bool(value) => Theirs::Bool(*value),
        Owned::Int(value) if ty == FieldType::I64 => Theirs::I64(*value),
        Owned::Int(value) => Theirs::I32(*value as i32),
        Owned::Uint(value) if ty == FieldType::U64 => Theirs::U64(*value),
        Owned::Uint(value) => Theirs::U32(*value as u32),
        Owned::Float(value) if ty == FieldType::F32 => Theirs::F32(*value as f32),
        Owned::Float(value) => Theirs::F64(*value),
        Owned::Timestamp(value) => {
            let mut message = DynamicMessage::new(field.kind().as_message().expect("made for it").clone());
            message.set_field_by_name("seconds", Theirs::I64(value.div_euclid(1_000_000_000)));
            message.set_field_by_name("nanos", Theirs::I32(value.rem_euclid(1_000_000_000) as i32));
            Theirs::Message(message)
        }
        Owned::Text(value) => Theirs::String(value.clone()),
        Owned::Bytes(value) => Theirs::Bytes(value.clone().into()),
    }
}

fn their_message(descriptor: &MessageDescriptor, format: &Format, row: &[Owned]) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    let mut fields: Vec<FieldDescriptor> = descriptor.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    for ((field, ours), value) in fields.iter().zip(format.fields()).zip(row) {
        // The library takes a default that was set for one that is there.
        if *value != Owned::Null && (field.supports_presence() || !is_default(value)) {
            message.set_field(field, theirs(field, ours.ty, value));
        }
    }
    message
}

fn is_default(value: &Owned) -> bool {
    match value {
        Owned::Bool(value) => !value,
        Owned::Int(value) => *value == 0,
        Owned::Uint(value) => *value == 0,
        Owned::Float(value) => value.to_bits() == 0,
        Owned::Text(value) => value.is_empty(),
        Owned::Bytes(value) => value.is_empty(),
        Owned::Null | Owned::Timestamp(_) => false,
    }
}

proptest! {
    #[test]
    fn the_library_and_we_read_each_other((format, mut rows) in arbitrary::rows()) {
        // The library leaves out a negative zero, as if it were the default; we do not, as protoc's own code does not.
        for value in rows.iter_mut().flatten() {
            if *value == Owned::Float(0.0) {
                *value = Owned::Float(0.0);
            }
        }
        let schema = ProtobufSchema::of(&format);
        let proto = schema.to_proto();
        let descriptor = descriptor(&proto, "Record");
        prop_assert_eq!(&import(&proto), &schema, "{}", proto);
        prop_assert_eq!(&schema.format().unwrap(), &format);

        let options = EncodingOptions::default();
        let mut encoder = ProtobufEncoder::new(&format, &options, None).unwrap();
        let mut decoder = ProtobufDecoder::new(&format, &options, Some(&schema)).unwrap();
        let payload = arbitrary::payload(&format, &rows);
        let mut stream = Vec::new();
        let mut rest = &payload[..];
        for row in &rows {
            let record = Record::check(&format, rest).unwrap();
            rest = &rest[record.bytes().len()..];
            let mut message = Vec::new();
            encoder.message(&record, &mut message).unwrap();
            let expected = their_message(&descriptor, &format, row);
            prop_assert_eq!(&DynamicMessage::decode(descriptor.clone(), &message[..]).unwrap(), &expected);
            let decoded = decoder.decode(&expected.encode_to_vec()).unwrap();
            prop_assert_eq!(&values(&format, decoded), row);
            encoder.record(&record, &mut stream).unwrap();
        }
        // All of them behind each other, out of buffers that hold anything from a byte to all.
        for chunk in [1, 7, 64, 1 << 20] {
            let mut input = std::io::BufReader::with_capacity(chunk, &stream[..]);
            let mut read = Vec::new();
            let mut decoder = ProtobufDecoder::new(&format, &options, None).unwrap();
            while let Some(record) = decoder.next_record(&mut input).unwrap() {
                read.push(values(&format, record));
            }
            prop_assert_eq!(&read, &rows);
        }
    }

    #[test]
    fn hostile_bytes_are_an_error_and_no_more(
        (format, rows) in arbitrary::rows(),
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let options = EncodingOptions::default();
        let mut encoder = ProtobufEncoder::new(&format, &options, None).unwrap();
        let payload = arbitrary::payload(&format, &rows);
        let mut stream = Vec::new();
        let mut rest = &payload[..];
        while !rest.is_empty() {
            let record = Record::check(&format, rest).unwrap();
            rest = &rest[record.bytes().len()..];
            encoder.record(&record, &mut stream).unwrap();
        }
        prop_assume!(!stream.is_empty());
        for (at, byte) in &noise {
            let at = at.index(stream.len());
            stream[at] ^= byte;
        }
        stream.truncate(cut.index(stream.len() + 1).max(1));
        let mut decoder = ProtobufDecoder::new(&format, &options, None).unwrap();
        let mut input = &stream[..];
        loop {
            match decoder.next_record(&mut input) {
                Ok(Some(record)) => prop_assert!(Record::check(&format, record).is_ok()),
                Ok(None) => break,
                Err(error) => {
                    prop_assert!(error.item > 0 && error.at.is_some(), "{}", error);
                    if !error.is_item() {
                        break;
                    }
                }
            }
        }
    }
}

fn message(parts: &[(u32, Part<'_>)]) -> Vec<u8> {
    fn varint(out: &mut Vec<u8>, mut value: u64) {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
    let mut out = Vec::new();
    for (number, part) in parts {
        let number = u64::from(*number) << 3;
        match part {
            Part::Varint(value) => {
                varint(&mut out, number);
                varint(&mut out, *value);
            }
            Part::Fixed64(value) => {
                varint(&mut out, number | 1);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Part::Bytes(value) => {
                varint(&mut out, number | 2);
                varint(&mut out, value.len() as u64);
                out.extend_from_slice(value);
            }
            Part::Fixed32(value) => {
                varint(&mut out, number | 5);
                out.extend_from_slice(&value.to_le_bytes());
            }
            Part::Start => varint(&mut out, number | 3),
            Part::End => varint(&mut out, number | 4),
        }
    }
    out
}

enum Part<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Start,
    End,
}
use Part::{Bytes, End, Fixed32, Fixed64, Start, Varint};

fn read(format: &Format, proto: &str, options: &EncodingOptions, message: &[u8]) -> Result<Vec<Owned>, EncodingError> {
    let mut decoder = ProtobufDecoder::new(format, options, Some(&import(proto)))?;
    let bytes = decoder.decode(message)?;
    Ok(values(format, bytes))
}

fn values(format: &Format, bytes: &[u8]) -> Vec<Owned> {
    let record = Record::check(format, bytes).expect("made for it");
    (0..format.fields().len()).map(|field| own(record.get(field))).collect()
}

fn own(value: Value<'_>) -> Owned {
    match value {
        Value::Null => Owned::Null,
        Value::Bool(value) => Owned::Bool(value),
        Value::Int(value) => Owned::Int(value),
        Value::Uint(value) => Owned::Uint(value),
        Value::Float(value) => Owned::Float(value),
        Value::Timestamp(value) => Owned::Timestamp(value),
        Value::Text(value) => Owned::Text(String::from_utf8(value.to_vec()).expect("made for it")),
        Value::Bytes(value) => Owned::Bytes(value.to_vec()),
        other => unreachable!("{other:?}"),
    }
}

const PROTO2: &str = "syntax = \"proto2\"; message M { required int32 a = 1; optional string b = 2; \
                      optional uint64 c = 3 [default = 7]; optional float d = 4; }";
const PROTO3: &str = "syntax = \"proto3\"; import \"google/protobuf/timestamp.proto\"; package some.thing;\n\
                      message M { int32 a = 1; optional string b = 2; uint64 c = 3; float d = 4;\n\
                      google.protobuf.Timestamp t = 5; bytes e = 2000; }";

#[test]
fn imports_say_what_is_nullable() {
    let format = import(PROTO2).format().unwrap();
    assert_eq!(format.schema(), "a i32\nb string null\nc u64 default 7\nd f32 null\n");
    let format = import(PROTO3).format().unwrap();
    assert_eq!(format.schema(), "a i32\nb string null\nc u64\nd f32\nt timestamp null\ne bytes\n");
    let all = "syntax = \"proto3\"; message M { double a = 1; float b = 2; int32 c = 3; int64 d = 4; uint32 e = 5;\
               uint64 f = 6; sint32 g = 7; sint64 h = 8; fixed32 i = 9; fixed64 j = 10; sfixed32 k = 11;\
               sfixed64 l = 12; bool m = 13; string n = 14; bytes o = 15; }";
    let format = import(all).format().unwrap();
    let types: Vec<String> = format.fields().iter().map(|field| field.ty.to_string()).collect();
    assert_eq!(types.join(" "), "f64 f32 i32 i64 u32 u64 i32 i64 u32 u64 i32 i64 bool string bytes");
}

#[test]
fn missing_fields() {
    let options = EncodingOptions::default();
    let format = import(PROTO2).format().unwrap();
    let error = read(&format, PROTO2, &options, &[]).unwrap_err();
    assert_eq!(error.to_string(), "field `a`: it is missing, and the field is not nullable");
    let row = read(&format, PROTO2, &options, &message(&[(1, Varint(5))])).unwrap();
    assert_eq!(row, [Owned::Int(5), Owned::Null, Owned::Uint(7), Owned::Null]);

    let format = import(PROTO3).format().unwrap();
    let row = read(&format, PROTO3, &options, &[]).unwrap();
    let zero = [Owned::Int(0), Owned::Null, Owned::Uint(0), Owned::Float(0.0), Owned::Null, Owned::Bytes(vec![])];
    assert_eq!(row, zero);
    // A format that has null where the message has none: what is not there is zero all the same.
    let format = Format::parse_schema("a i64 null\nc u64 null\nt timestamp null").unwrap();
    let allow = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    assert_eq!(read(&format, PROTO3, &allow, &[]).unwrap(), [Owned::Int(0), Owned::Uint(0), Owned::Null]);
    let error = ProtobufDecoder::new(&format, &options, Some(&import(PROTO3))).unwrap_err();
    assert!(matches!(&error.problem, EncodingProblem::Unknown { .. }), "{error}");
    assert_eq!(error.field.as_deref(), Some("b"));
}

#[test]
fn fields_twice_or_in_vain() {
    let format = Format::parse_schema("a i32\nb string null").unwrap();
    let proto = "syntax = \"proto3\"; message M { int32 a = 1; optional string b = 2; }";
    let bytes = message(&[
        (2, Bytes(b"first")),
        (9, Start),
        (9, Start),
        (1, Varint(5)),
        (9, End),
        (9, End),
        (1, Varint(1)),
        (7, Fixed64(1)),
        (536_870_911, Fixed32(1)),
        (2, Bytes(b"last one")),
        (1, Varint(2)),
        (8, Bytes(b"unknown")),
    ]);
    let row = read(&format, proto, &EncodingOptions::default(), &bytes).unwrap();
    assert_eq!(row, [Owned::Int(2), Owned::Text("last one".to_owned())]);
}

#[test]
fn values_that_do_not_fit() {
    let proto = "syntax = \"proto3\"; import \"google/protobuf/timestamp.proto\"; message M { int64 a = 1; string b = 2;\
                 uint64 c = 3; google.protobuf.Timestamp t = 4; int32 d = 5; fixed64 e = 6; }";
    let format = Format::parse_schema("a i16\nb char[3]\nc i64\nt timestamp null\nd i32\ne u8").unwrap();
    let options = EncodingOptions::default();
    let wrong = |parts: &[(u32, Part<'_>)]| read(&format, proto, &options, &message(parts)).unwrap_err().to_string();
    assert_eq!(wrong(&[(1, Varint(32_768))]), "field `a`: found 32768, expected i16 (-32768 to 32767)");
    assert_eq!(wrong(&[(1, Varint(-32_769_i64 as u64))]), "field `a`: found -32769, expected i16 (-32768 to 32767)");
    assert!(wrong(&[(2, Bytes(b"abcd"))]).contains("a text of 4 bytes"));
    assert!(wrong(&[(2, Bytes(b"ab\0"))]).contains("NUL"));
    let text = "field `b`: found text that is no UTF-8, expected char[3] (UTF-8 text of at most 3 bytes)";
    assert_eq!(wrong(&[(2, Bytes(b"a\xff"))]), text);
    assert!(wrong(&[(3, Varint(1 << 63))]).starts_with("field `c`: found 9223372036854775808, expected i64"));
    assert!(wrong(&[(4, Bytes(&message(&[(1, Varint(1 << 40))])))]).starts_with("field `t`: found a time beyond it"));
    assert!(wrong(&[(4, Bytes(&message(&[(2, Varint(1_000_000_000))])))]).starts_with("field `t`:"));
    assert_eq!(wrong(&[(1, Fixed32(1))]), "field `a`: found wire type I32, expected VARINT");
    assert!(wrong(&[(6, Fixed64(256))]).starts_with("field `e`: found 256"));
    assert!(wrong(&[(6, Varint(256))]).contains("found wire type VARINT, expected I64"));
    assert!(wrong(&[(8, End)]).contains("group"));
    // Protobuf's own rule for a 32-bit field with more: it is cut.
    let bytes = message(&[(5, Varint(1 << 32 | 7))]);
    assert_eq!(read(&format, proto, &options, &bytes).unwrap()[4], Owned::Int(7));
    let repairs = EncodingOptions { allow: vec![Loss::InvalidText], ..EncodingOptions::default() };
    let wide = Format::parse_schema("a i16\nb string\nc i64\nt timestamp null\nd i32\ne u8").unwrap();
    let row = read(&wide, proto, &repairs, &message(&[(2, Bytes(b"a\xff"))])).unwrap();
    assert_eq!(row[1], Owned::Text("a\u{fffd}".to_owned()));
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
        let encoder = ProtobufEncoder::new(&format, &options, None).unwrap();
        encoder.message(&Record::check(&format, record).unwrap(), &mut out).unwrap();
        let mut decoder = ProtobufDecoder::new(&format, &options, None).unwrap();
        assert_eq!(decoder.decode(&out).unwrap(), record);
    }
}

#[test]
fn losses_are_refused_unless_they_are_allowed() {
    let schema = import("syntax = \"proto3\"; message M { int32 a = 1; string b = 2; }");
    let format = Format::parse_schema("a i32 null\nb string").unwrap();
    let options = EncodingOptions::default();
    let error = ProtobufEncoder::new(&format, &options, Some(&schema)).unwrap_err();
    assert!(error.to_string().starts_with("field `a`: protobuf has no null"), "{error}");
    assert!(error.to_string().ends_with("--allow null has it written all the same"), "{error}");
    let allowed = EncodingOptions { allow: vec![Loss::Null, Loss::InvalidText], ..EncodingOptions::default() };
    let lenient = ProtobufEncoder::new(&format, &allowed, Some(&schema)).unwrap();
    let mut builder = RecordBuilder::new(&format);
    builder.set_text(1, b"a\xffb").unwrap();
    let record = builder.finish().unwrap();
    let record = Record::check(&format, record).unwrap();
    let mut out = vec![9];
    lenient.message(&record, &mut out).unwrap();
    assert_eq!(out, [&[9, 0x12, 5][..], "a\u{fffd}b".as_bytes()].concat());
    out.clear();
    let mut strict =
        ProtobufEncoder::new(&format, &EncodingOptions { allow: vec![Loss::Null], ..options }, Some(&schema)).unwrap();
    let error = strict.record(&record, &mut out).unwrap_err();
    assert!(error.is_item() && out.is_empty() && error.item == 1, "{error}");
    assert_eq!(error.field.as_deref(), Some("b"));
}

#[test]
fn schemas_that_do_not_go_together() {
    let schema = import("syntax = \"proto3\"; message M { int32 a = 1; string b = 2; }");
    let options = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    let refusal = |format: &str| {
        let format = Format::parse_schema(format).unwrap();
        let decoder = ProtobufDecoder::new(&format, &options, Some(&schema)).unwrap_err();
        let encoder = ProtobufEncoder::new(&format, &options, Some(&schema)).unwrap_err();
        assert_eq!(decoder.to_string(), encoder.to_string());
        decoder.to_string()
    };
    assert_eq!(refusal("a string"), "field `a`: the message has int32, which does not go with string");
    assert_eq!(refusal("a i32\nb bytes"), "field `b`: the message has string, which does not go with bytes");
    assert_eq!(refusal("a i32\nc string"), "field `c`: message M has no such field");
    let decoder = ProtobufDecoder::new(&Format::parse_schema("a i32\nc string null").unwrap(), &options, Some(&schema));
    assert!(decoder.is_ok());
}

#[test]
fn imports_that_are_refused() {
    let refusal = |files: &[(&str, &str)], message| ProtobufSchema::import(files, message).unwrap_err().to_string();
    assert!(refusal(&[], None).contains("no `.proto` file"));
    assert!(refusal(&[("a.proto", "syntax = \"proto3\"; message M { int32 a = 1 }")], None).contains("a.proto"));
    assert!(refusal(&[("a.proto", "import \"b.proto\";")], None).contains("b.proto"));
    // The library panics at this, where it is built with its assertions.
    assert!(!refusal(&[("a.proto", "049")], None).is_empty());
    let two = "syntax = \"proto3\"; message A { int32 a = 1; } message B { int32 b = 1; }";
    assert!(refusal(&[("a.proto", two)], None).ends_with("say which: A, B"));
    assert!(refusal(&[("a.proto", two)], Some("C")).ends_with("there are: A, B"));
    assert_eq!(ProtobufSchema::import(&[("a.proto", two)], Some("B")).unwrap().name(), "B");
    let files = [
        ("a.proto", "syntax = \"proto3\"; import \"p/b.proto\"; message A { p.B b = 1; int32 c = 2; }"),
        ("p/b.proto", "syntax = \"proto3\"; package p; message B { int32 a = 1; }"),
    ];
    assert_eq!(ProtobufSchema::import(&files, Some("p.B")).unwrap().name(), "p.B");
    let empty = ProtobufSchema::import(&[("a.proto", "syntax = \"proto3\"; message A { }")], None).unwrap();
    assert!(empty.format().unwrap_err().to_string().starts_with("message A: a format has at least one field"));
}

#[test]
fn compiled_sets_of_files_are_read() {
    let set = compile(PROTO3).encode_to_vec();
    let schema = ProtobufSchema::from_descriptor_set(&set, Some("some.thing.M")).unwrap();
    assert_eq!(schema, import(PROTO3));
    assert!(ProtobufSchema::from_descriptor_set(&set[..set.len() - 3], None).is_err());
}

#[test]
fn lengths_end_a_stream_where_they_are_none() {
    let format = Format::parse_schema("b string").unwrap();
    let options = EncodingOptions { max_item_bytes: 100, ..EncodingOptions::default() };
    let outcome = |mut bytes: &[u8]| {
        let mut decoder = ProtobufDecoder::new(&format, &options, None).unwrap();
        decoder.next_record(&mut bytes).map(|record| record.is_some())
    };
    assert!(!outcome(&[]).unwrap());
    assert!(outcome(&[0]).unwrap());
    let wrong = |bytes: &[u8]| outcome(bytes).unwrap_err();
    assert!(matches!(wrong(&[101]).problem, EncodingProblem::TooLong { found: 101, most: 100 }));
    assert!(matches!(wrong(&[0xff; 9]).problem, EncodingProblem::Cut));
    assert!(matches!(wrong(&[0xff; 10]).problem, EncodingProblem::Syntax { .. }));
    assert!(matches!(wrong(&[5, 1, 2]).problem, EncodingProblem::Cut));
    assert!(!wrong(&[0xff; 10]).is_item() && !wrong(&[5, 1]).is_item());
    let mut bytes = &[2, 0x0a, 9, 2, 0x0a, 0][..];
    let mut decoder = ProtobufDecoder::new(&format, &options, None).unwrap();
    let error = decoder.next_record(&mut bytes).unwrap_err();
    assert!(
        error.is_item() && error.item == 1 && error.at == Some(0) && error.field.as_deref() == Some("b"),
        "{error}"
    );
    assert!(decoder.next_record(&mut bytes).unwrap().is_some());
    assert!(decoder.next_record(&mut bytes).unwrap().is_none());
}

#[test]
fn nothing_is_allocated_once_buffers_are_warm() {
    let schema = "carrier char[2]\nflight u16\ndep_delay i32 null\nair_time f64 null\ntailnum string null\n\
                  time_hour timestamp\nok bool\nnote bytes null";
    let format = Format::parse_schema(schema).unwrap();
    let options = EncodingOptions::default();
    let mut builder = RecordBuilder::new(&format);
    builder.set_text(0, "UA").unwrap();
    builder.set_u64(1, 1545).unwrap();
    builder.set_text(4, "N14228").unwrap();
    builder.set_timestamp(5, 1_357_034_400_000_000_001).unwrap();
    builder.set_bool(6, true).unwrap();
    let record = builder.finish().unwrap();
    let mut encoder = ProtobufEncoder::new(&format, &options, None).unwrap();
    let mut out = Vec::new();
    let record = Record::check(&format, record).unwrap();
    (0..100).for_each(|_| encoder.record(&record, &mut out).unwrap());
    let stream = out.clone();
    let mut input = &stream[..];
    let mut decoder = ProtobufDecoder::new(&format, &options, None).unwrap();
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
