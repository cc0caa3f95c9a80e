//! Items by a schema from anywhere: a schema that is no format is refused, bytes that are none of it are errors, the same
//! whatever the reader's buffer. Each record that is read is checked; it is written by the same schema and read again.
//! Items are read by the schema's own format and by another one, whose fields are found by name.
//!
//! An input's first byte says the buffer's size; then come the schema, a byte of ones, and the items.

use std::io::BufReader;
use std::sync::LazyLock;

use crossdock_format::encoding::{self, Encoding, EncodingOptions, Loss, Schema};
use crossdock_format::{Format, Record};

static OTHER: LazyLock<Format> = LazyLock::new(|| Format::parse_schema(crate::nested::SCHEMA).expect("a sound schema"));

/// Fixed parts longer than this would make an input of a few bytes records of many MiB.
const MOST_FIXED_BYTES: usize = 4096;
/// Items may have no bytes at all: as many as these are enough.
const MOST_ITEMS: usize = 1000;

/// Takes an input: the schema is in a file of this name.
pub fn examine(encoding: Encoding, name: &str, input: &[u8]) {
    let [choice, rest @ ..] = input else { return };
    let mut parts = rest.splitn(2, |byte| *byte == 0xff);
    let (Some(Ok(text)), Some(items)) = (parts.next().map(std::str::from_utf8), parts.next()) else { return };
    let schema = Schema::new(name, text, None);
    let buffer_bytes = usize::from(*choice) + 1;
    let Ok(own) = schema.format() else { return };
    for format in [&own, &*OTHER] {
        if format.fixed_bytes() > MOST_FIXED_BYTES {
            continue;
        }
        let Some(whole) = decode((encoding, format, &schema), items, 1 << 16) else { continue };
        assert_eq!(Some(&whole), decode((encoding, format, &schema), items, buffer_bytes).as_ref());
        write_and_read_again((encoding, format, &schema), &whole.0);
    }
}

fn options() -> EncodingOptions {
    EncodingOptions {
        ignore_unknown: true,
        allow: vec![Loss::InvalidText, Loss::Null],
        max_item_bytes: 1 << 16,
        ..EncodingOptions::default()
    }
}

fn write_and_read_again(by: (Encoding, &Format, &Schema), payload: &[u8]) {
    let (encoding, format, schema) = by;
    // The other format may have more than the schema.
    let Ok(mut encoder) = encoding::encoder(encoding, format, Some(schema), &options()) else { return };
    let (mut written, mut records, mut refused) = (Vec::new(), 0, 0);
    let sound = format.check_records(payload, |start, len| {
        let record = &payload[start as usize..(start + len) as usize];
        // A number of an enumeration may have no symbol, and a value no room in the schema's type.
        match encoder.record(&Record::assume_checked(format, record), &mut written) {
            Ok(()) => records += 1,
            Err(_) => refused += 1,
        }
    });
    assert_eq!(sound.ok(), Some(records + refused));
    let (again, errors) = decode(by, &written, 1 << 16).expect("it was read by this schema before");
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(format.check_records(&again, |_, _| {}).ok(), Some(records));
}

/// Records, back to back, and the errors; `None` if the schema does not go with the format.
fn decode(
    (encoding, format, schema): (Encoding, &Format, &Schema),
    items: &[u8],
    buffer_bytes: usize,
) -> Option<(Vec<u8>, Vec<String>)> {
    let mut decoder = encoding::decoder(encoding, format, Some(schema), &options()).ok()?;
    let mut input = BufReader::with_capacity(buffer_bytes, items);
    let (mut payload, mut errors) = (Vec::new(), Vec::new());
    for _ in 0..MOST_ITEMS {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => break,
            Err(error) => {
                let goes_on = error.is_item();
                errors.push(error.to_string());
                if !goes_on {
                    break;
                }
            }
        }
    }
    Some((payload, errors))
}
