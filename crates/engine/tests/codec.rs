//! Encodings as handlers: messages to records and back.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod support;

use crossdock_engine::{DecodeHandler, EncodeHandler, Handler, MAX_RECORDS_PER_MESSAGE, Messages, Verdict};
use crossdock_format::convert::{Codec, MESSAGE_FIELD};
use crossdock_format::encoding::Encoding;
use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_mailbox::Selection;
use proptest::prelude::*;
use support::batch;

/// Encodings whose messages may have several items.
const ENCODINGS: [Encoding; 6] =
    [Encoding::Json, Encoding::Csv, Encoding::Xml, Encoding::Cbor, Encoding::MessagePack, Encoding::Avro];

fn format() -> Format {
    Format::parse_schema("id u32\nname string null").unwrap()
}

fn messages() -> Format {
    Format::parse_schema("topic string\nbody bytes null").unwrap()
}

fn record(id: u32, name: Option<&str>) -> Vec<u8> {
    let mut builder = RecordBuilder::new(&format());
    builder.set_u64(0, id.into()).unwrap();
    if let Some(name) = name {
        builder.set_text(1, name).unwrap();
    }
    builder.finish().unwrap().to_vec()
}

fn message(body: Option<&[u8]>) -> Vec<u8> {
    let mut builder = RecordBuilder::new(&messages());
    builder.set_text(0, "feed").unwrap();
    if let Some(body) = body {
        builder.set_bytes(1, body).unwrap();
    }
    builder.finish().unwrap().to_vec()
}

fn run(handler: &mut dyn Handler, records: &[Vec<u8>]) -> (Verdict, Vec<Vec<u8>>) {
    let mut out = Vec::new();
    let verdict = handler.process(&batch(records), &mut Selection::all(records.len()), &mut out);
    (verdict, out)
}

fn in_body(encoding: Encoding) -> Codec {
    Codec { field: "body".to_owned(), ..Codec::new(encoding) }
}

fn decoder(encoding: Encoding) -> DecodeHandler {
    DecodeHandler::new(&messages(), &in_body(encoding), &format()).unwrap()
}

/// The one field of an encoder's records.
fn body<'a>(handler: &EncodeHandler, record: &'a [u8]) -> &'a [u8] {
    let Value::Bytes(body) = Record::check(handler.output(), record).unwrap().get(0) else { panic!("no bytes") };
    let start = record.windows(body.len()).position(|window| window == body).unwrap();
    &record[start..start + body.len()]
}

#[test]
fn encoded_records_are_decoded_to_the_same_records() {
    let records: Vec<Vec<u8>> = (0..7).map(|id| record(id, (id % 2 == 0).then_some("a <b> \"c\", d"))).collect();
    for encoding in ENCODINGS {
        for each in [Messages::EachRecord, Messages::EachBatch] {
            let codec = Codec::new(encoding);
            let mut encode = EncodeHandler::new(&format(), &codec, each).unwrap();
            assert_eq!(encode.output().fields()[0].name, MESSAGE_FIELD);
            let (verdict, encoded) = run(&mut encode, &records);
            let count = if each == Messages::EachBatch { 1 } else { 7 };
            assert_eq!((verdict, encoded.len()), (Verdict::Emit(count), count), "{encoding}");
            assert_eq!((encode.counters().records_in, encode.counters().passed), (7, 7));

            let input = encode.output().clone();
            let mut decode = DecodeHandler::new(&input, &codec, &format()).unwrap();
            let (verdict, decoded) = run(&mut decode, &encoded);
            assert_eq!((verdict, decoded), (Verdict::Emit(7), records.clone()), "{encoding} {each:?}");
            assert_eq!(decode.counters().row_errors, 0);
            // And again: a handler keeps nothing of the batch before.
            assert_eq!(run(&mut decode, &encoded).1, records);
            assert_eq!(run(&mut encode, &records).1, encoded);
        }
    }
}

#[test]
fn messages_have_any_number_of_items_and_what_is_wrong_is_counted() {
    let mut handler = decoder(Encoding::Json);
    let found = run(
        &mut handler,
        &[
            message(Some(b"{\"id\":1}\n{\"id\":2,\"name\":\"two\"}")),
            message(None),
            message(Some(b"")),
            message(Some(b"{\"id\":\"x\"}\n{oh\n{\"id\":3}")),
            message(Some(b"{\"id\":4")),
            message(Some(b"{\"id\":5}")),
        ],
    );
    let expected = [record(1, None), record(2, Some("two")), record(3, None), record(5, None)];
    assert_eq!(found, (Verdict::Emit(4), expected.to_vec()));
    let counters = handler.counters();
    assert_eq!((counters.records_in, counters.passed, counters.row_errors), (6, 4, 3));
    assert_eq!(run(&mut handler, &[message(Some(b"?"))]), (Verdict::Drop, vec![]));

    // Where reading cannot go on, the rest of the message is lost, and the next message is not.
    let mut handler = decoder(Encoding::Xml);
    let torn = message(Some(b"<r><x id='1'/><x id='2'>"));
    let (verdict, found) = run(&mut handler, &[torn, message(Some(b"<r><x id='3'/></r>"))]);
    assert_eq!((verdict, found), (Verdict::Emit(2), vec![record(1, None), record(3, None)]));
    assert_eq!(handler.counters().row_errors, 1);
}

#[test]
fn only_what_is_selected_is_looked_at() {
    let records: Vec<Vec<u8>> = (0..4).map(|id| record(id, None)).collect();
    let mut handler = EncodeHandler::new(&format(), &Codec::new(Encoding::Json), Messages::EachBatch).unwrap();
    let mut selection = Selection::all(4);
    selection.narrow(|index| index % 2 == 1);
    let mut out: Vec<Vec<u8>> = Vec::new();
    assert_eq!(handler.process(&batch(&records), &mut selection, &mut out), Verdict::Emit(1));
    assert_eq!(body(&handler, &out[0]), b"{\"id\":1,\"name\":null}\n{\"id\":3,\"name\":null}\n");
    selection.narrow(|_| false);
    assert_eq!(handler.process(&batch(&records), &mut selection, &mut out), Verdict::Drop);
    assert_eq!(handler.counters().records_in, 2);
}

#[test]
fn a_record_that_cannot_be_encoded_costs_the_others_nothing() {
    let records = [record(1, Some("a")), record(2, Some("\u{1}")), record(3, Some("c"))];
    for (messages, count) in [(Messages::EachBatch, 1), (Messages::EachRecord, 2)] {
        let mut handler = EncodeHandler::new(&format(), &Codec::new(Encoding::Xml), messages).unwrap();
        let (verdict, out) = run(&mut handler, &records);
        assert_eq!((verdict, out.len()), (Verdict::Emit(count), count));
        let text: String =
            out.iter().map(|record| String::from_utf8_lossy(body(&handler, record)).into_owned()).collect();
        assert!(text.contains("<id>1</id>") && text.contains("<id>3</id>") && !text.contains("<id>2</id>"), "{text}");
        assert_eq!((handler.counters().passed, handler.counters().row_errors), (2, 1));
    }
}

#[test]
fn a_message_makes_a_bounded_number_of_records() {
    let mut handler = decoder(Encoding::Json);
    let many = "{\"id\":1}\n".repeat(MAX_RECORDS_PER_MESSAGE + 10);
    let (verdict, _) = run(&mut handler, &[message(Some(many.as_bytes())), message(Some(b"{\"id\":2}"))]);
    assert_eq!(verdict, Verdict::Emit(MAX_RECORDS_PER_MESSAGE + 1));
    assert_eq!(handler.counters().row_errors, 1);
    let exactly = "{\"id\":1}\n".repeat(MAX_RECORDS_PER_MESSAGE);
    run(&mut handler, &[message(Some(exactly.as_bytes()))]);
    assert_eq!(handler.counters().row_errors, 1);
}

#[test]
fn impossible_codecs_are_refused_by_name() {
    let refused = |field: &str, schema: &str| {
        let input = Format::parse_schema(schema).unwrap();
        let codec = Codec { field: field.to_owned(), ..Codec::new(Encoding::Json) };
        let made = DecodeHandler::new(&input, &codec, &format());
        made.err().expect("a refusal").to_string()
    };
    assert!(
        refused("body", "topic string").contains("field `body`: the messages' format has no such field; it has: topic")
    );
    assert!(refused("body", "body i64").contains("and this one is i64"));
    let named = Format::parse_schema("\"a b\" u8").unwrap();
    assert!(EncodeHandler::new(&named, &Codec::new(Encoding::Xml), Messages::EachRecord).is_err());
}

proptest! {
    #[test]
    fn any_message_is_taken(bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..8)) {
        for encoding in ENCODINGS {
            let mut handler = decoder(encoding);
            let records: Vec<Vec<u8>> = bodies.iter().map(|body| message(Some(body))).collect();
            let (_, out) = run(&mut handler, &records);
            for record in &out {
                prop_assert!(Record::check(handler.output(), record).is_ok());
            }
            prop_assert_eq!(handler.counters().passed, out.len() as u64);
        }
    }
}
