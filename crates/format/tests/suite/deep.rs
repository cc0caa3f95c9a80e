//! Whatever nests 100,000 levels deep is refused with the bound, on the stack of a thread: schemas in all languages, and values
//! in all encodings that nest.
#![cfg(all(feature = "avro", feature = "protobuf", feature = "xml", feature = "arrow"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use arrow_ipc::{Int, IntArgs, MessageHeader, MetadataVersion, Type};
use crossdock_format::encoding::avro::AvroSchema;
use crossdock_format::encoding::protobuf::ProtobufSchema;
use crossdock_format::encoding::{self, Encoding, EncodingOptions, Schema, SchemaLanguage};
use crossdock_format::json::{JsonInferOptions, import_json_schema, infer_json_sample};
use crossdock_format::{Format, MAX_DEPTH, MAX_NESTING};
use flatbuffers::FlatBufferBuilder;

const LEVELS: usize = 100_000;
/// The default of Rust's threads, which the daemon's have.
const STACK_BYTES: usize = 2 << 20;

/// The result of `read` on a stack of that size.
fn refusal<T>(read: impl FnOnce() -> Result<T, String> + Send) -> String {
    std::thread::scope(|scope| {
        let on_thread = || read().err().unwrap_or_else(|| "it is taken".to_owned());
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, on_thread).unwrap().join().unwrap()
    })
}

/// Holds a text to the bound: `levels` levels of it are refused.
fn assert_refused<T>(what: &str, bound: usize, read: impl FnOnce() -> Result<T, String> + Send) {
    let why = refusal(read);
    assert!(why.contains(&format!(" {bound} ")), "{what}: {why}");
}

fn nested(open: &str, inner: &str, close: &str, levels: usize) -> String {
    format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
}

fn proto(levels: usize) -> String {
    format!("syntax = \"proto3\"; {}", nested("message A { ", "int32 a = 1; ", "} ", levels))
}

fn import(text: &str) -> Result<Format, String> {
    let schema = ProtobufSchema::import(&[("a.proto", text)], Some("A")).map_err(|error| error.to_string())?;
    schema.format().map_err(|error| error.to_string())
}

#[test]
fn schemas_are_refused_before_a_parser_recurses() {
    let proto = proto(LEVELS);
    assert_refused(".proto", MAX_NESTING, || import(&proto));

    // From the innermost message on; 2 is its name, 3 what is declared in it.
    let mut message = vec![0x0a, 1, b'A'];
    for _ in 0..2000 {
        message = [&[0x0a, 1, b'A'][..], &field(3, &message)].concat();
    }
    let set = field(1, &field(4, &message));
    assert_refused("a descriptor set", MAX_NESTING, || {
        ProtobufSchema::from_descriptor_set(&set, None).map_err(|error| error.to_string())
    });

    let record = r#"{"fields":[{"type":"#;
    for (open, close) in [(record, "}]}"), (r#"{"type":"array","items":"#, "}"), ("[", "]")] {
        let avro = nested(open, "\"int\"", close, LEVELS);
        assert_refused("Avro", MAX_NESTING, || AvroSchema::parse(&avro).map_err(|error| error.to_string()));
    }
    for (open, close) in [(r#"{"properties":{"a":"#, "}}"), (r#"{"items":"#, "}"), (r#"{"anyOf":["#, "]}")] {
        let json = nested(open, r#"{"type":"integer"}"#, close, LEVELS);
        assert_refused("JSON Schema", MAX_NESTING, || import_json_schema(&json).map_err(|error| error.to_string()));
    }
    let around = r##"{"properties":{"a":{"$ref":"#/properties/a"}}}"##;
    assert_refused("a `$ref`", MAX_NESTING, || import_json_schema(around).map_err(|error| error.to_string()));

    let arrow = arrow_schema(20_000);
    let open = |encoding, mut bytes: &[u8]| {
        encoding::open(encoding, &mut bytes, &EncodingOptions::default()).map(drop).map_err(|error| error.to_string())
    };
    assert_refused("Arrow", MAX_NESTING, || open(Encoding::ArrowStream, &arrow));
    let parquet = parquet(LEVELS);
    assert_refused("Parquet", MAX_NESTING, || open(Encoding::Parquet, &parquet));

    for schema in [
        nested("a record { ", "a i8", " }", LEVELS),
        format!("a i8{}", "[]".repeat(LEVELS)),
        format!("layout foreign little packed\n{}", nested("a record { ", "a i8", " }", LEVELS)),
    ] {
        assert_refused("our notation", MAX_DEPTH, || Format::parse_schema(&schema).map_err(|error| error.to_string()));
        assert_refused("our notation", MAX_DEPTH, || {
            Format::parse_schema(&schema.replace("\nlayout", "")).map_err(|error| error.to_string())
        });
    }
}

#[test]
fn schemas_up_to_the_bound_are_read_on_a_small_stack() {
    // The message that is named is the outermost; those within it have no field, so the format has none.
    let why = refusal(|| import(&proto(MAX_NESTING)));
    assert!(!why.contains("nest"), "{why}");
    let chain: Vec<(String, String)> = (0..256)
        .map(|at| (format!("{at}.proto"), format!("syntax = \"proto3\"; import \"{}.proto\";", at + 1)))
        .chain([("256.proto".to_owned(), "syntax = \"proto3\";".to_owned())])
        .collect();
    let files: Vec<(&str, &str)> = chain.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert!(
        refusal(|| ProtobufSchema::import(&files[1..], None).map_err(|error| error.to_string())).contains("message")
    );
    let parquet = parquet(MAX_NESTING);
    let mut bytes = &parquet[..];
    let why = refusal(|| {
        encoding::open(Encoding::Parquet, &mut bytes, &EncodingOptions::default()).map_err(|error| error.to_string())
    });
    assert!(why.contains("more than 16 deep"), "{why}");
}

#[test]
fn values_are_refused_on_a_small_stack() {
    let format = Format::parse_schema("a i8 null").unwrap();
    let options = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    let recursive = r#"{"type":"record","name":"r","fields":[{"name":"a","type":["null","int"]},{"name":"x","type":
        {"type":"record","name":"list","fields":[{"name":"next","type":["null","list"]}]}}]}"#;
    let avro = Schema { language: SchemaLanguage::Avro, ..Schema::new("r.avsc", recursive, None) };
    // Behind the message's length, groups of field 2 that begin.
    let groups = field(1, &[0x13].repeat(LEVELS)).split_off(1);
    let cases: [(Encoding, Option<&Schema>, Vec<u8>); 8] = [
        (Encoding::Json, None, format!("{{\"x\":{}\n", nested("[", "", "]", LEVELS)).into_bytes()),
        (Encoding::Json, None, format!("{{\"x\":{}\n", nested("{\"x\":", "1", "}", LEVELS)).into_bytes()),
        (Encoding::Cbor, None, [&[0xa1, 0x61, b'x'][..], &[0x81].repeat(LEVELS)].concat()),
        (Encoding::MessagePack, None, [&[0x81, 0xa1, b'x'][..], &[0x91].repeat(LEVELS)].concat()),
        (Encoding::Xml, None, nested("<a>", "", "</a>", LEVELS).into_bytes()),
        (Encoding::Xml, None, format!("<rs><r>{}", nested("<x>", "", "</x>", LEVELS)).into_bytes()),
        // A null, and then lists without end.
        (Encoding::Avro, Some(&avro), [&[0][..], &[2].repeat(LEVELS)].concat()),
        (Encoding::Protobuf, None, groups),
    ];
    for (encoding, schema, bytes) in cases {
        assert_refused(encoding.name(), MAX_NESTING, || {
            let mut decoder = encoding::decoder(encoding, &format, schema, &options).unwrap();
            decoder.next_record(&mut &bytes[..]).map(drop).map_err(|error| error.to_string())
        });
    }
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let text = format!("{{\"a\":{}}}\n", nested(open, "1", close, LEVELS));
        let infer = || infer_json_sample(text.as_bytes(), true, &JsonInferOptions::default());
        assert_refused("inferred", MAX_NESTING, || infer().map_err(|error| error.to_string()));
    }
}

/// A field of Protobuf with bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    varint(&mut field, bytes.len());
    [&field[..], bytes].concat()
}

fn varint(bytes: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// An Arrow stream whose schema has a struct in a struct, and so on.
fn arrow_schema(levels: usize) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let int = Int::create(&mut builder, &IntArgs { bitWidth: 8, is_signed: true }).as_union_value();
    let name = builder.create_string("a");
    let leaf = arrow_ipc::FieldArgs { name: Some(name), type_type: Type::Int, type_: Some(int), ..Default::default() };
    let mut child = arrow_ipc::Field::create(&mut builder, &leaf);
    for _ in 1..levels {
        let children = Some(builder.create_vector(&[child]));
        let ty = arrow_ipc::Struct_::create(&mut builder, &arrow_ipc::Struct_Args {}).as_union_value();
        let (type_type, type_) = (Type::Struct_, Some(ty));
        let args = arrow_ipc::FieldArgs { name: Some(name), type_type, type_, children, ..Default::default() };
        child = arrow_ipc::Field::create(&mut builder, &args);
    }
    let fields = Some(builder.create_vector(&[child]));
    let schema = arrow_ipc::Schema::create(&mut builder, &arrow_ipc::SchemaArgs { fields, ..Default::default() });
    let message = arrow_ipc::MessageArgs {
        version: MetadataVersion::V5,
        header_type: MessageHeader::Schema,
        header: Some(schema.as_union_value()),
        ..Default::default()
    };
    let message = arrow_ipc::Message::create(&mut builder, &message);
    builder.finish(message, None);
    let message = builder.finished_data();
    let length = (message.len() as u32).to_le_bytes();
    [&[0xff; 4][..], &length, message].concat()
}

/// A Parquet file without rows whose schema has a group in a group, and so on.
fn parquet(levels: usize) -> Vec<u8> {
    // Field 1, the version; field 2, a list of structs.
    let mut metadata = vec![0x15, 2, 0x19, 0xfc];
    varint(&mut metadata, levels + 1);
    for level in 0..levels {
        // But for the root, that it is required; the name; one child.
        metadata.extend_from_slice(if level == 0 { &[][..] } else { &[0x35, 0] });
        metadata.extend_from_slice(if level == 0 { &[0x48] } else { &[0x18] });
        metadata.extend_from_slice(&[1, b'a', 0x15, 2, 0]);
    }
    // A leaf: the type, that it is required, the name. Then no rows, and no groups of them.
    metadata.extend_from_slice(&[0x15, 2, 0x25, 0, 0x18, 1, b'a', 0, 0x16, 0, 0x19, 0x0c, 0]);
    let length = (metadata.len() as u32).to_le_bytes();
    [b"PAR1", &metadata[..], &length, b"PAR1"].concat()
}
