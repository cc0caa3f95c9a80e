//! Protobuf's messages in messages, lists, maps, enumerations and `oneof`, against prost-reflect.

use crate::any;
use crossdock_format::encoding::protobuf::{ProtobufDecoder, ProtobufEncoder, ProtobufSchema};
use crossdock_format::encoding::{Decoder, Encoder, EncodingError, EncodingOptions, Loss};
use crossdock_format::{Format, Record, RecordBuilder, Value};
use proptest::prelude::*;
use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor, Value as Theirs};
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

fn descriptor(proto: &str, message: &str) -> MessageDescriptor {
    let mut resolver = ChainFileResolver::new();
    resolver.add(One(proto.to_owned()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("one.proto").unwrap_or_else(|error| panic!("{error:?}\n{proto}"));
    compiler.descriptor_pool().get_message_by_name(message).expect("it is there")
}

fn import(proto: &str, message: &str) -> ProtobufSchema {
    ProtobufSchema::import(&[("one.proto", proto)], Some(message)).expect("it compiles")
}

/// Fields of numbers that the message's type does not have, anywhere in it.
fn has_unknown(message: &DynamicMessage) -> bool {
    let in_value = |value: &Theirs| match value {
        Theirs::Message(message) => has_unknown(message),
        Theirs::List(items) => items.iter().any(|item| item.as_message().is_some_and(has_unknown)),
        _ => false,
    };
    message.unknown_fields().next().is_some() || message.fields().any(|(_, value)| in_value(value))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn the_library_and_we_read_each_other(format in any::format(), seeds in proptest::collection::vec(any::<u64>(), 1..5)) {
        let options = EncodingOptions::default();
        let schema = ProtobufSchema::of(&format);
        let proto = schema.to_proto();
        let descriptor = descriptor(&proto, "Record");
        let imported = import(&proto, "Record");
        prop_assert_eq!(imported.format().unwrap().describe(), format.describe(), "{}", proto);
        prop_assert_eq!(&imported.to_proto(), &proto);

        let mut encoder = ProtobufEncoder::new(&format, &options, None).unwrap();
        let mut decoder = ProtobufDecoder::new(&format, &options, Some(&imported)).unwrap();
        let (mut stream, mut records) = (Vec::new(), Vec::new());
        for seed in seeds {
            let bytes = any::record(&format, seed);
            let record = Record::check(&format, &bytes).unwrap();
            let mut message = Vec::new();
            encoder.message(&record, &mut message).unwrap();
            let theirs = DynamicMessage::decode(descriptor.clone(), &message[..]).unwrap();
            prop_assert!(!has_unknown(&theirs), "{}\n{:?}", proto, theirs);
            // A message that the library has read, it writes; that it has read the same is seen when we read that.
            let written = theirs.encode_to_vec();
            let decoded = decoder.decode(&written).unwrap();
            prop_assert_eq!(&Record::check(&format, decoded).unwrap(), &record, "{}", proto);
            encoder.record(&record, &mut stream).unwrap();
            records.push(bytes);
        }
        for chunk in [1, 64, 1 << 20] {
            let mut input = std::io::BufReader::with_capacity(chunk, &stream[..]);
            decoder.restart();
            for bytes in &records {
                let decoded = decoder.next_record(&mut input).unwrap().unwrap();
                prop_assert_eq!(Record::check(&format, decoded).unwrap(), Record::check(&format, bytes).unwrap());
            }
            prop_assert!(decoder.next_record(&mut input).unwrap().is_none());
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
        let encoder = ProtobufEncoder::new(&format, &options, None).unwrap();
        let mut decoder = ProtobufDecoder::new(&format, &options, None).unwrap();
        for seed in seeds {
            let bytes = any::record(&format, seed);
            let mut message = Vec::new();
            encoder.message(&Record::check(&format, &bytes).unwrap(), &mut message).unwrap();
            for (at, byte) in noise.iter().filter(|_| !message.is_empty()).copied().collect::<Vec<_>>() {
                let at = at.index(message.len());
                message[at] ^= byte;
            }
            let len = message.len();
            message.truncate(cut.index(len + 1));
            match decoder.decode(&message) {
                Ok(record) => prop_assert!(Record::check(&format, record).is_ok()),
                Err(error) => prop_assert!(error.is_item()),
            }
        }
    }

    #[test]
    fn parts_of_messages_in_any_order_are_as_the_library_has_them(
        parts in proptest::collection::vec((0_usize..PARTS.len(), any::<u8>()), 0..12),
    ) {
        let descriptor = descriptor(RICH, "R");
        let schema = import(RICH, "R");
        let format = schema.format().unwrap();
        let mut decoder = ProtobufDecoder::new(&format, &EncodingOptions::default(), Some(&schema)).unwrap();
        let mut message = Vec::new();
        for (index, byte) in parts {
            let mut part = PARTS[index].to_vec();
            // The last byte of each is a number or a letter.
            *part.last_mut().unwrap() = byte & 0x7f;
            message.extend_from_slice(&part);
        }
        let first = decoder.decode(&message).unwrap().to_vec();
        // The library merges, orders and takes the last one of a `oneof`; what it then writes has each field once.
        let theirs = DynamicMessage::decode(descriptor, &message[..]).unwrap();
        let second = decoder.decode(&theirs.encode_to_vec()).unwrap();
        prop_assert_eq!(Record::check(&format, &first).unwrap(), Record::check(&format, second).unwrap());
    }
}

const RICH: &str = "syntax = \"proto3\"; import \"google/protobuf/timestamp.proto\";\n\
    message R {\n\
      Pos pos = 1; repeated int32 numbers = 2; repeated string names = 3; repeated Pos legs = 4;\n\
      map<string, Pos> map = 5; Side side = 6; repeated Side sides = 7 [packed = false];\n\
      oneof what { int32 number = 8; string text = 9; Pos place = 10; }\n\
      repeated google.protobuf.Timestamp times = 11;\n\
    }\n\
    message Pos { int32 x = 1; optional int32 y = 2; repeated int32 tags = 3; }\n\
    enum Side { NONE = 0; BUY = 66; SELL = 83; }";

/// Fields of `R`, whole, with a number in their last byte.
const PARTS: [&[u8]; 15] = [
    &[0x0a, 2, 0x08, 1],
    &[0x0a, 2, 0x10, 1],
    &[0x0a, 2, 0x18, 1],
    &[0x0a, 3, 0x1a, 1, 1],
    &[0x10, 1],
    &[0x12, 2, 5, 1],
    &[0x1a, 1, b'a'],
    &[0x22, 2, 0x08, 1],
    &[0x22, 4, 0x18, 9, 0x10, 1],
    &[0x38, 1],
    &[0x3a, 2, 66, 1],
    &[0x40, 1],
    &[0x4a, 1, b'b'],
    &[0x52, 2, 0x08, 1],
    &[0x5a, 2, 0x08, 1],
];

#[test]
fn rich_messages_are_formats() {
    let format = import(RICH, "R").format().unwrap();
    let expected = "pos record { x i32; y i32 null; tags i32[] } null\nnumbers i32[]\nnames string[]\n\
                    legs record { x i32; y i32 null; tags i32[] }[]\n\
                    map record { key string; value record { x i32; y i32 null; tags i32[] } null }[]\n\
                    side enum i32 { NONE = 0, BUY = 66, SELL = 83 }\nsides enum i32 { NONE = 0, BUY = 66, SELL = 83 }[]\n\
                    what union { number i32; text string; place record { x i32; y i32 null; tags i32[] } } null\n\
                    times timestamp[]";
    assert_eq!(format.schema(), Format::parse_schema(expected).unwrap().schema());
    let twice = "syntax = \"proto2\"; message M { repeated group G = 1 { required int32 a = 1; } optional M2 m = 2; }\n\
                 message M2 { required string s = 1; }";
    let format = import(twice, "M").format().unwrap();
    let expected = "g record { a i32 }[]\nm record { s string } null";
    assert_eq!(format.schema(), Format::parse_schema(expected).unwrap().schema());
}

#[test]
fn messages_that_no_format_can_have_are_refused_with_a_remedy() {
    let lies_in_itself = "syntax = \"proto3\"; message M { int32 a = 1; M m = 2; }";
    let refusal = |text: &str| import(&format!("syntax = \"proto3\"; {text}"), "M").format().unwrap_err().to_string();
    let error = import(lies_in_itself, "M").format().unwrap_err().to_string();
    assert!(error.starts_with("field `m`: its message type `M` lies in itself, which no format can: in the `.proto`"));
    let error = refusal("message M { int32 a = 1; B b = 2; } message B { repeated C c = 1; } message C { B b = 1; }");
    assert!(error.starts_with("field `b.c.b`: its message type `B` lies in itself"), "{error}");
    for (fields, path) in [
        ("E e = 1;", "e"),
        ("int32 a = 1; repeated E e = 2;", "e"),
        ("oneof o { int32 a = 1; E e = 2; }", "e"),
        ("map<string, E> e = 1;", "e.value"),
    ] {
        let error = refusal(&format!("message M {{ {fields} }} message E {{ }}"));
        let wanted = format!("field `{path}`: its message type `E` has no fields, and a record has at least one");
        assert!(error.starts_with(&wanted) && error.contains("declare it as `bytes`"), "{error}");
    }
    let deep: String = (0..20).map(|at| format!("message D{at} {{ D{} d = 1; }} ", at + 1)).collect();
    let error = refusal(&format!("message M {{ D0 d = 1; }} {deep} message D20 {{ int32 a = 1; }}"));
    assert!(error.contains("it lies more than 16 deep"), "{error}");
    // More fields than there is memory for, out of a few types.
    let fields = |of: usize| (1..=100).map(|at| format!("W{of} w{at} = {at};")).collect::<String>();
    let wide: String = (1..9).map(|at| format!("message W{at} {{ {} }} ", fields(at + 1))).collect();
    let error = refusal(&format!("message M {{ {} }} {wide} message W9 {{ int32 a = 1; }}", fields(1)));
    assert!(error.contains("fields with those in it, expected at most 4096"), "{error}");
    // As bytes they are what they are on the wire.
    let as_bytes = "syntax = \"proto3\"; message M { int32 a = 1; bytes m = 2; }";
    let format = Format::parse_schema("a i32\nm bytes").unwrap();
    let inner = [0x08, 7, 0x12, 2, 0x08, 9];
    let line = read(&format, as_bytes, &inner).unwrap();
    assert_eq!(line, "{\"a\": Int(7), \"m\": Bytes([8, 9])}");
}

fn read(format: &Format, proto: &str, message: &[u8]) -> Result<String, EncodingError> {
    let schema = ProtobufSchema::import(&[("one.proto", proto)], Some("M")).expect("it compiles");
    let mut decoder = ProtobufDecoder::new(format, &EncodingOptions::default(), Some(&schema))?;
    let bytes = decoder.decode(message)?;
    Ok(format!("{:?}", Record::check(format, bytes).expect("a record")))
}

#[test]
fn lists_may_be_packed_or_not_and_need_not_be_together() {
    let proto = "syntax = \"proto3\"; message M { repeated int32 a = 1; int32 b = 2; }";
    let format = Format::parse_schema("a i16[]\nb i32").unwrap();
    let scattered = [0x08, 1, 0x0a, 2, 2, 3, 0x10, 9, 0x08, 4, 0x18, 0, 0x0a, 1, 5];
    assert_eq!(
        read(&format, proto, &scattered).unwrap(),
        "{\"a\": List([Int(1), Int(2), Int(3), Int(4), Int(5)]), \"b\": Int(9)}"
    );
    assert_eq!(read(&format, proto, &[]).unwrap(), "{\"a\": List([]), \"b\": Int(0)}");
    let fixed = Format::parse_schema("a i16[2]\nb i32").unwrap();
    assert!(read(&fixed, proto, &[0x0a, 2, 2, 3]).is_ok());
    assert!(read(&fixed, proto, &[0x0a, 1, 2]).unwrap_err().to_string().starts_with("field `a`:"));
    assert!(read(&fixed, proto, &[]).unwrap_err().to_string().starts_with("field `a`:"));
    // 32768 is beyond i16; a text is no varint; a length ends too early.
    for wrong in [&[0x0a, 3, 0x80, 0x80, 2][..], &[0x0d, 0, 0, 0, 0], &[0x0a, 2, 1], &[0x0a, 1, 0x80]] {
        let error = read(&format, proto, wrong).unwrap_err();
        assert!(error.is_item(), "{error}");
    }
    let error = read(&format, proto, &[0x0a, 3, 0x80, 0x80, 2]).unwrap_err().to_string();
    assert_eq!(error, "field `a[]`: found 32768, expected i16 (-32768 to 32767)");
}

#[test]
fn the_last_of_a_oneof_counts() {
    let proto = "syntax = \"proto3\"; message M { oneof u { int32 a = 1; P p = 2; } } message P { int32 x = 1; }";
    let format = import(proto, "M").format().unwrap();
    let outcome = |message: &[u8]| read(&format, proto, message).unwrap();
    assert_eq!(outcome(&[0x08, 5, 0x12, 2, 0x08, 7]), "{\"u.a\": Null, \"u.p.x\": Int(7)}");
    assert_eq!(outcome(&[0x12, 2, 0x08, 7, 0x08, 5]), "{\"u.a\": Int(5), \"u.p.x\": Null}");
    assert_eq!(outcome(&[0x12, 2, 0x08, 7, 0x08, 5, 0x12, 0]), "{\"u.a\": Null, \"u.p.x\": Int(0)}");
    assert_eq!(outcome(&[]), "{\"u.a\": Null, \"u.p.x\": Null}");
    let strict = Format::parse_schema("u union { a i32; p record { x i32 } }").unwrap();
    assert!(read(&strict, proto, &[]).unwrap_err().is_item());
}

#[test]
fn numbers_without_a_symbol_are_kept() {
    let proto = "syntax = \"proto3\"; message M { E e = 1; } enum E { Z = 0; }";
    let format = import(proto, "M").format().unwrap();
    assert_eq!(read(&format, proto, &[0x08, 77]).unwrap(), "{\"e\": Enum { number: 77, symbol: None }}");
    assert_eq!(read(&format, proto, &[]).unwrap(), "{\"e\": Enum { number: 0, symbol: Some(\"Z\") }}");
    let narrow = Format::parse_schema("e enum u8 { Z = 0 }").unwrap();
    assert!(read(&narrow, proto, &[0x08, 0x80, 2]).unwrap_err().to_string().starts_with("field `e`: found 256"));
}

#[test]
fn groups_are_read_and_written() {
    let proto = "syntax = \"proto2\"; message M { repeated group G = 1 { required int32 a = 1; } optional group H = 2 { optional string s = 1; } }";
    let schema = import(proto, "M");
    let format = schema.format().unwrap();
    let bytes = any::record(&format, 12);
    let record = Record::check(&format, &bytes).unwrap();
    let mut message = Vec::new();
    let encoder = ProtobufEncoder::new(&format, &EncodingOptions::default(), Some(&schema)).unwrap();
    encoder.message(&record, &mut message).unwrap();
    let theirs = DynamicMessage::decode(descriptor(proto, "M"), &message[..]).unwrap();
    assert!(!has_unknown(&theirs));
    let mut decoder = ProtobufDecoder::new(&format, &EncodingOptions::default(), Some(&schema)).unwrap();
    assert_eq!(Record::check(&format, decoder.decode(&theirs.encode_to_vec()).unwrap()).unwrap(), record);
    let missing = read(&format, proto, &[0x0b, 0x0c]).unwrap_err();
    assert!(missing.is_item() && missing.field.as_deref().is_some_and(|field| field.starts_with('g')), "{missing}");
}

#[test]
fn losses_are_refused_unless_they_are_allowed() {
    let schema = import("syntax = \"proto3\"; message M { repeated int32 a = 1; }", "M");
    let format = Format::parse_schema("a i32[] null").unwrap();
    let error = ProtobufEncoder::new(&format, &EncodingOptions::default(), Some(&schema)).unwrap_err();
    assert!(error.to_string().ends_with("--allow null has it written all the same"), "{error}");
    let allowed = EncodingOptions { allow: vec![Loss::Null], ..EncodingOptions::default() };
    let encoder = ProtobufEncoder::new(&format, &allowed, Some(&schema)).unwrap();
    let mut builder = RecordBuilder::new(&format);
    let bytes = builder.finish().unwrap();
    let mut out = Vec::new();
    encoder.message(&Record::check(&format, bytes).unwrap(), &mut out).unwrap();
    assert!(out.is_empty());
    // By the message type of its own, null is not the empty list.
    let mut own = Vec::new();
    let encoder = ProtobufEncoder::new(&format, &EncodingOptions::default(), None).unwrap();
    builder.begin_list(0).unwrap();
    builder.end_list().unwrap();
    let bytes = builder.finish().unwrap().to_vec();
    encoder.message(&Record::check(&format, &bytes).unwrap(), &mut own).unwrap();
    let mut decoder = ProtobufDecoder::new(&format, &EncodingOptions::default(), None).unwrap();
    let is_null = |bytes: &[u8]| Record::check(&format, bytes).unwrap().get(0) == Value::Null;
    assert!(!is_null(decoder.decode(&own).unwrap()));
    assert!(is_null(decoder.decode(&[]).unwrap()));
}

#[test]
fn nothing_is_allocated_once_buffers_are_warm() {
    let format =
        Format::parse_schema("a record { b string; c i32[] } null\nd record { to string; km u16 }[]\ne i32[][]")
            .unwrap();
    let bytes = any::record(&format, 7);
    let record = Record::check(&format, &bytes).unwrap();
    let mut encoder = ProtobufEncoder::new(&format, &EncodingOptions::default(), None).unwrap();
    let mut out = Vec::new();
    (0..100).for_each(|_| encoder.record(&record, &mut out).unwrap());
    let stream = out.clone();
    let mut input = &stream[..];
    let mut decoder = ProtobufDecoder::new(&format, &EncodingOptions::default(), None).unwrap();
    (0..10).for_each(|_| assert!(decoder.next_record(&mut input).unwrap().is_some()));
    let counts = allocation_counter::measure(|| {
        for _ in 0..90 {
            assert!(decoder.next_record(&mut input).unwrap().is_some());
            out.clear();
            encoder.record(&record, &mut out).unwrap();
        }
    });
    assert_eq!(counts.count_total, 0);
}
