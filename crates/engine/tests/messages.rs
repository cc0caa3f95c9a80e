//! Messages as Kafka, MQTT and gRPC carry them in a field: bare, behind their lengths, in Confluent's frame; with what lies
//! beside them.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod support;

use crossdock_engine::{DecodeHandler, EncodeHandler, Handler, Messages};
use crossdock_format::convert::Codec;
use crossdock_format::encoding::{Encoding, Framing, RegisteredSchema, Schema};
use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_mailbox::Selection;
use proptest::prelude::*;
use support::batch;

const PROTO: &str = "syntax = \"proto3\";\nmessage Other { bool x = 1; }\n\
                     message Quote { int32 bid = 1; string sym = 2; message Leg { int32 bid = 1; string sym = 2; } }\n";
/// Quote { bid: 7, sym: "AB" }.
const QUOTE: &[u8] = b"\x08\x07\x12\x02AB";

fn quotes() -> Format {
    Format::parse_schema("bid i32\nsym string").unwrap()
}

fn envelope() -> Format {
    Format::parse_schema("topic string\nkey bytes null\nbody bytes").unwrap()
}

fn protobuf() -> Codec {
    let schema = Schema::new("q.proto", PROTO, Some("Quote".to_owned()));
    Codec { field: "body".to_owned(), schema: Some(schema), ..Codec::new(Encoding::Protobuf) }
}

fn message(body: &[u8]) -> Vec<u8> {
    let mut builder = RecordBuilder::new(&envelope());
    builder.set_text(0, b"ticks").unwrap();
    builder.set_bytes(1, b"k").unwrap();
    builder.set_bytes(2, body).unwrap();
    builder.finish().unwrap().to_vec()
}

fn run(handler: &mut dyn Handler, records: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    handler.process(&batch(records), &mut Selection::all(records.len()), &mut out);
    out
}

/// The records of a body, and why the last of it was refused.
fn decode(codec: &Codec, to: &Format, body: &[u8]) -> (Vec<String>, Option<String>) {
    let mut handler = DecodeHandler::new(&envelope(), codec, to).unwrap_or_else(|error| panic!("{error}"));
    let made = run(&mut handler, &[message(body)]);
    assert_eq!(handler.counters().row_errors, u64::from(handler.refusal().is_some()));
    (made.iter().map(|record| format!("{:?}", Record::check(to, record).unwrap())).collect(), handler.refusal())
}

fn quote(bid: i32, sym: &str) -> Vec<u8> {
    let mut builder = RecordBuilder::new(&quotes());
    builder.set_i64(0, bid.into()).unwrap();
    builder.set_text(1, sym).unwrap();
    builder.finish().unwrap().to_vec()
}

fn shown(record: &[u8]) -> String {
    format!("{:?}", Record::check(&quotes(), record).unwrap())
}

#[test]
fn a_field_holds_one_bare_protobuf_message() {
    let (bare, length) = (protobuf(), Codec { framing: Framing::Length, ..protobuf() });
    assert_eq!(decode(&bare, &quotes(), QUOTE), (vec![shown(&quote(7, "AB"))], None));
    // Nothing at all is a message: all its fields have their defaults.
    assert_eq!(decode(&bare, &quotes(), b""), (vec![shown(&quote(0, ""))], None));
    let framed = [&[QUOTE.len() as u8], QUOTE].concat();
    assert_eq!(decode(&length, &quotes(), &framed), (vec![shown(&quote(7, "AB"))], None));
    assert_eq!(decode(&length, &quotes(), &[&framed[..], &framed].concat()).0.len(), 2);
    for (codec, wrong) in [(&bare, &framed[..]), (&length, QUOTE), (&bare, &QUOTE[..3])] {
        let (made, refusal) = decode(codec, &quotes(), wrong);
        assert!(made.is_empty() && refusal.is_some(), "{wrong:?}");
    }
}

#[test]
fn protobuf_messages_are_made_while_they_are_read() {
    for (framing, expected) in [(Framing::None, QUOTE.to_vec()), (Framing::Length, [&[6], QUOTE].concat())] {
        let codec = Codec { framing, ..protobuf() };
        let mut handler = EncodeHandler::new(&quotes(), &codec, Messages::EachRecord).unwrap();
        let made = run(&mut handler, &[quote(7, "AB")]);
        assert_eq!(Record::check(handler.output(), &made[0]).unwrap().get(0), Value::Bytes(&expected));
    }
    for (codec, messages, said) in [
        (protobuf(), Messages::EachBatch, "several records needs the framing `length`"),
        (Codec { framing: Framing::Confluent, ..protobuf() }, Messages::EachRecord, "are only read so"),
        (Codec { keep: vec!["bid".to_owned()], ..protobuf() }, Messages::EachRecord, "stands alone"),
        (Codec { framing: Framing::Length, ..Codec::new(Encoding::Cbor) }, Messages::EachRecord, "is for protobuf"),
        (Codec::new(Encoding::Parquet), Messages::EachRecord, "an encoding of files"),
    ] {
        let refused = EncodeHandler::new(&quotes(), &codec, messages).err().expect("a refusal").to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

/// As a registry lists them.
fn registry() -> String {
    let proto = serde_text(PROTO);
    let avro = serde_text(
        r#"{"type":"record","name":"Q","fields":[{"name":"bid","type":"int"},{"name":"sym","type":"string"}]}"#,
    );
    let other = serde_text(
        r#"{"type":"record","name":"Q","fields":[{"name":"sym","type":"string"},{"name":"bid","type":"int"}]}"#,
    );
    format!(
        r#"[{{"subject":"q-value","version":1,"id":7,"schemaType":"PROTOBUF","schema":{proto},"references":[]}},
            {{"subject":"r-value","version":1,"id":7,"schemaType":"PROTOBUF","schema":{proto}}},
            {{"subject":"a-value","version":1,"id":3,"schema":{avro}}},
            {{"subject":"a-value","version":2,"id":300,"schema":{other}}},
            {{"subject":"j-value","version":1,"id":5,"schemaType":"JSON","schema":"{{}}"}}]"#
    )
}

/// A text in JSON.
fn serde_text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

fn confluent(encoding: Encoding) -> Codec {
    let registered = RegisteredSchema::read_list(&registry(), encoding).unwrap();
    let framing = Framing::Confluent;
    let codec = Codec { field: "body".to_owned(), framing, registered, ..Codec::new(encoding) };
    // As the daemon gets it.
    let text = crossdock_format::convert::Conversion::Decode(codec.clone()).to_string();
    assert_eq!(text.parse(), Ok(crossdock_format::convert::Conversion::Decode(codec.clone())));
    codec
}

fn frame(id: u32, rest: &[&[u8]]) -> Vec<u8> {
    [&[0], &id.to_be_bytes()[..], &rest.concat()].concat()
}

#[test]
fn confluents_frames_are_read() {
    let expected = (vec![shown(&quote(7, "AB"))], None);
    let protobuf = confluent(Encoding::Protobuf);
    // Quote is the second message: one index, 1. A message in it, of the same fields: two indexes, 1 and 0.
    assert_eq!(decode(&protobuf, &quotes(), &frame(7, &[&[2, 2], QUOTE])), expected);
    assert_eq!(decode(&protobuf, &quotes(), &frame(7, &[&[4, 2, 0], QUOTE])), expected);
    let avro = confluent(Encoding::Avro);
    assert_eq!(decode(&avro, &quotes(), &frame(3, &[&[14, 4], b"AB"])), expected);
    assert_eq!(decode(&avro, &quotes(), &frame(300, &[&[4], b"AB", &[14]])), expected);
    let json = confluent(Encoding::Json);
    assert_eq!(decode(&json, &quotes(), &frame(5, &[b"{\"bid\":7,\"sym\":\"AB\"}\n"])), expected);
}

#[test]
fn errors_of_a_frame_are_reported_with_its_id() {
    let (protobuf, avro) = (confluent(Encoding::Protobuf), confluent(Encoding::Avro));
    for (codec, body, said) in [
        (&protobuf, frame(99, &[&[0], QUOTE]), "found the schema id 99, expected one that is known: 7"),
        (&avro, frame(7, &[&[14, 4], b"AB"]), "found the schema id 7, expected one that is known: 3, 300"),
        (&protobuf, frame(7, &[&[0], QUOTE]), "message [0] of schema 7 is not for this format"),
        (&protobuf, frame(7, &[&[2, 10], QUOTE]), "message [5] of schema 7, expected one that the schema has"),
        (&protobuf, frame(7, &[&[1], QUOTE]), "schema id 7 without a message's index"),
        (&protobuf, frame(7, &[&[2, 2], &QUOTE[..3]]), "by schema 7: "),
        (&avro, frame(3, &[&[14, 4], b"ABC"]), "by schema 3: found 1 bytes behind the message"),
        (&avro, frame(3, &[]), "by schema 3: "),
        (&avro, vec![1, 0, 0, 0, 3, 14, 4], "expected a zero byte and the id of a schema in four bytes"),
        (&avro, vec![0, 0, 0], "expected a zero byte and the id of a schema in four bytes"),
        (&avro, vec![], "expected a zero byte"),
    ] {
        let (made, refusal) = decode(codec, &quotes(), &body);
        let refusal = refusal.expect("a refusal");
        assert!(made.is_empty() && refusal.contains(said), "{body:?}: {refusal}");
    }
}

#[test]
fn schemas_that_cannot_be_are_refused_when_the_handler_is_made() {
    let refused =
        |codec: &Codec, to: &Format| DecodeHandler::new(&envelope(), codec, to).err().expect("a refusal").to_string();
    let none = Codec { registered: Vec::new(), ..confluent(Encoding::Avro) };
    assert!(refused(&none, &quotes()).contains("need 1 to 256 schemas"));
    let both = Codec { schema: protobuf().schema, ..confluent(Encoding::Protobuf) };
    assert!(refused(&both, &quotes()).contains("leave `schema` out"));
    let unframed = Codec { framing: Framing::None, ..confluent(Encoding::Avro) };
    assert!(refused(&unframed, &quotes()).contains("framed as `confluent`"));
    let strange = Format::parse_schema("bid string\nsym string").unwrap();
    assert!(refused(&confluent(Encoding::Avro), &strange).contains("schema 3: field `bid`"));
    for (text, encoding, said) in [
        ("{}", Encoding::Avro, "expected a JSON array"),
        ("[]", Encoding::Avro, "no schema is of avro-binary"),
        (r#"[{"id":1,"schema":"a"},{"id":1,"schema":"b"}]"#, Encoding::Avro, "two schemas with the id 1"),
        (
            r#"[{"id":1,"schemaType":"PROTOBUF","schema":"a","references":[{"name":"c.proto","subject":"c","version":2}]}]"#,
            Encoding::Protobuf,
            "schema 1 refers to `c.proto`, version 2 of c, which is not in the list",
        ),
    ] {
        let error = RegisteredSchema::read_list(text, encoding).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_file_of_very_many_messages_is_refused() {
    let text: String = (0..300).map(|number| format!("message M{number} {{ int32 bid = 1; }}\n")).collect();
    let schema = Schema::new("m.proto", format!("syntax = \"proto3\";\n{text}"), None);
    let codec = Codec { registered: vec![RegisteredSchema { id: 1, schema }], ..confluent(Encoding::Protobuf) };
    let to = Format::parse_schema("bid i32").unwrap();
    let error = DecodeHandler::new(&envelope(), &codec, &to).err().expect("a refusal").to_string();
    assert!(error.contains("schema 1: the file declares 300 messages, expected at most 256"), "{error}");
}

#[test]
fn schemas_may_refer_to_others_of_the_registry() {
    let own = serde_text("syntax = \"proto3\";\nimport \"c.proto\";\nmessage Q { C c = 1; }\n");
    let other = serde_text("syntax = \"proto3\";\nmessage C { int32 x = 1; }\n");
    let list = format!(
        r#"[{{"subject":"c","version":2,"id":1,"schemaType":"PROTOBUF","schema":{other}}},
            {{"subject":"q","version":1,"id":2,"schemaType":"PROTOBUF","schema":{own},
              "references":[{{"name":"c.proto","subject":"c","version":2}}]}}]"#
    );
    let mut registered = RegisteredSchema::read_list(&list, Encoding::Protobuf).unwrap();
    registered.retain(|registered| registered.id == 2);
    let codec = Codec { registered, ..confluent(Encoding::Protobuf) };
    let to = Format::parse_schema("c record { x i32 } null").unwrap();
    let (made, refusal) = decode(&codec, &to, &frame(2, &[&[0], &[0x0a, 2, 8, 5]]));
    assert!(refusal.is_none() && made[0].contains("Int(5)"), "{made:?} {refusal:?}");
}

#[test]
fn fields_beside_the_message_are_kept() {
    let keeping = |codec: Codec, keep: &[&str]| Codec { keep: keep.iter().map(ToString::to_string).collect(), ..codec };
    let to = Format::parse_schema("topic string\nbid i32\nkey bytes null\nsym string").unwrap();
    let (made, refusal) = decode(&keeping(protobuf(), &["topic", "key"]), &to, QUOTE);
    assert_eq!(refusal, None);
    let mut expected = RecordBuilder::new(&to);
    expected.set_text(0, b"ticks").unwrap();
    expected.set_i64(1, 7).unwrap();
    expected.set_bytes(2, b"k").unwrap();
    expected.set_text(3, b"AB").unwrap();
    assert_eq!(made, [format!("{:?}", Record::check(&to, expected.finish().unwrap()).unwrap())]);
    // Of a message with several records, each has them; and so have nested records and lists.
    let nested = Format::parse_schema("key bytes null\npos record { x i32; tags string[] } null").unwrap();
    let json = Codec { field: "body".to_owned(), ..Codec::new(Encoding::Json) };
    let body = b"{\"pos\":{\"x\":1,\"tags\":[\"a\",\"b\"]}}\n{\"pos\":null}";
    let (made, refusal) = decode(&keeping(json, &["key"]), &nested, body);
    assert!(refusal.is_none() && made.len() == 2, "{refusal:?}");
    assert!(made.iter().all(|record| record.contains("Bytes([107])")), "{made:?}");
    assert!(made[0].contains("Text(\"a\")"), "{made:?}");

    for (keep, schema, said) in [
        (
            "partition",
            "bid i32\nsym string",
            "field `partition`: it is to be kept, and the messages' format lacks it; it has: topic",
        ),
        (
            "key",
            "bid i32\nsym string",
            "field `key`: it is to be kept, and the target format lacks it: add the line `key bytes null`",
        ),
        (
            "key",
            "bid i32\nsym string\nkey bytes",
            "is `key bytes null` beside the message, but `key bytes` in the target",
        ),
        ("topic", "bid i32\nsym string\ntopic i32", "`topic string` beside the message, but `topic i32` in the target"),
    ] {
        let to = Format::parse_schema(schema).unwrap();
        let error = DecodeHandler::new(&envelope(), &keeping(protobuf(), &[keep]), &to).err().unwrap().to_string();
        assert!(error.contains(said), "{error}");
    }
}

proptest! {
    #[test]
    fn any_frame_is_taken(
        bodies in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8),
    ) {
        for encoding in [Encoding::Protobuf, Encoding::Avro] {
            for codec in [confluent(encoding), Codec { framing: Framing::None, registered: Vec::new(), ..protobuf() }] {
                let mut handler = DecodeHandler::new(&envelope(), &codec, &quotes()).unwrap();
                let id: &[u8] = if encoding == Encoding::Avro { &[0, 0, 0, 0, 3] } else { &[0, 0, 0, 0, 7, 2, 2] };
                let body = |(framed, body): &(bool, Vec<u8>)| if *framed { [id, body].concat() } else { body.clone() };
                let records: Vec<Vec<u8>> = bodies.iter().map(|of| message(&body(of))).collect();
                let made = run(&mut handler, &records);
                for record in &made {
                    prop_assert!(Record::check(&quotes(), record).is_ok());
                }
                prop_assert_eq!(made.len() as u64 + handler.counters().row_errors, records.len() as u64);
            }
        }
    }
}
