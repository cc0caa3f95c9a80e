//! Messages of a field, bare and in Confluent's frame, and the lists of schemas that such frames name: the messages from
//! anywhere, by schemas of ours.

use std::sync::LazyLock;

use crate::{guarded, small_stack};
use crossdock_format::Format;
use crossdock_format::encoding::{
    Encoding, EncodingOptions, Framing, MessageForm, RegisteredSchema, Schema, message_decoder,
};

const PROTO: &str = "syntax = \"proto3\"; message Other { bool x = 1; } \
                     message Quote { int32 bid = 1; string sym = 2; message Leg { int32 bid = 1; string sym = 2; } }";
const AVRO: &str =
    r#"{"type":"record","name":"Q","fields":[{"name":"bid","type":"int"},{"name":"sym","type":"string"}]}"#;

static FORMAT: LazyLock<Format> =
    LazyLock::new(|| Format::parse_schema("bid i32\nsym string").expect("a sound schema"));

/// A message may have many items.
const MOST_ITEMS: usize = 1000;

/// Takes one input: the first byte says what the others are.
pub fn fuzz(input: &[u8]) {
    guarded::panics_may_be_caught();
    let [choice, rest @ ..] = input else { return };
    let encoding = [Encoding::Protobuf, Encoding::Avro, Encoding::Json][usize::from(choice % 3)];
    match (choice / 3) % 3 {
        0 => read(encoding, Framing::None, rest),
        1 => read(encoding, Framing::Confluent, rest),
        _ => small_stack::run(|| list(encoding, rest)),
    }
}

fn read(encoding: Encoding, framing: Framing, mut message: &[u8]) {
    let (name, text) = match encoding {
        Encoding::Protobuf => ("q.proto", PROTO),
        Encoding::Avro => ("q.avsc", AVRO),
        _ => ("q.json", "{}"),
    };
    let schema = Schema::new(name, text, None);
    let registered = [1, 300].map(|id| RegisteredSchema { id, schema: schema.clone() });
    let quote = Schema { message: (encoding == Encoding::Protobuf).then(|| "Quote".to_owned()), ..schema };
    let form = match framing {
        Framing::Confluent => MessageForm { encoding, framing, schema: None, registered: &registered },
        _ => MessageForm { encoding, framing, schema: Some(&quote), registered: &[] },
    };
    let options = EncodingOptions { max_item_bytes: 1 << 16, ..EncodingOptions::default() };
    let mut decoder = message_decoder(form, &FORMAT, &options).expect("sound schemas");
    let mut payload = Vec::new();
    for _ in 0..MOST_ITEMS {
        match decoder.next_record(&mut message) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => break,
            Err(error) if error.is_item() => {}
            Err(_) => break,
        }
    }
    FORMAT.check_records(&payload, |_, _| {}).expect("a decoder's own records");
}

/// Reads a list of schemas, and makes decoders by them.
fn list(encoding: Encoding, text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(registered) = RegisteredSchema::read_list(text, encoding) else { return };
    let form = MessageForm { encoding, framing: Framing::Confluent, schema: None, registered: &registered };
    let _ = message_decoder(form, &FORMAT, &EncodingOptions::default());
}
