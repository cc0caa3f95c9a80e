//! CBOR, MessagePack, Avro datums and Protobuf messages from anywhere: the same records and errors whatever the reader's
//! buffer, and what is read is written and read again. The first byte says which of them, the buffer's size, which of two formats
//! the items are read by, and whether unknown members are passed over.

use crate::nested;
use std::io::BufReader;
use std::sync::LazyLock;

use crossdock_format::encoding::{self, Encoding, EncodingOptions, Loss};
use crossdock_format::{Format, Record};

/// The encodings of the first byte.
const ENCODINGS: [Encoding; 4] = [Encoding::Cbor, Encoding::MessagePack, Encoding::Avro, Encoding::Protobuf];

static FORMATS: LazyLock<[Format; 2]> = LazyLock::new(|| {
    [nested::SCHEMA, nested::ELEMENTS].map(|schema| Format::parse_schema(schema).expect("a sound schema"))
});

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [choices, bytes @ ..] = input else { return };
    let encoding = ENCODINGS[usize::from(*choices) % ENCODINGS.len()];
    let (format, ignore_unknown) = (&FORMATS[usize::from(*choices >= 128)], choices & 64 == 0);
    let whole = decode(encoding, format, ignore_unknown, bytes, 1 << 16);
    assert_eq!(whole, decode(encoding, format, ignore_unknown, bytes, usize::from(choices / 4) + 1));
    write_and_read_again(encoding, format, &whole.0);
}

fn options(ignore_unknown: bool) -> EncodingOptions {
    EncodingOptions { ignore_unknown, allow: vec![Loss::InvalidText, Loss::Decimal], ..EncodingOptions::default() }
}

fn write_and_read_again(encoding: Encoding, format: &Format, payload: &[u8]) {
    let mut encoder = encoding::encoder(encoding, format, None, &options(false)).expect("losses are allowed");
    let (mut written, mut records, mut refused) = (Vec::new(), 0, 0);
    let sound = format.check_records(payload, |start, len| {
        let record = &payload[start as usize..(start + len) as usize];
        // A number of an enumeration may have no symbol, which Avro cannot write.
        match encoder.record(&Record::assume_checked(format, record), &mut written) {
            Ok(()) => records += 1,
            Err(_) => refused += 1,
        }
    });
    assert_eq!(sound.ok(), Some(records + refused));
    let (again, errors) = decode(encoding, format, false, &written, 1 << 16);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(format.check_records(&again, |_, _| {}).ok(), Some(records));
}

/// Records, back to back, and the errors.
fn decode(
    encoding: Encoding,
    format: &Format,
    ignore_unknown: bool,
    bytes: &[u8],
    buffer_bytes: usize,
) -> (Vec<u8>, Vec<String>) {
    let mut decoder = encoding::decoder(encoding, format, None, &options(ignore_unknown)).expect("its own schema");
    let mut input = BufReader::with_capacity(buffer_bytes, bytes);
    let (mut payload, mut errors) = (Vec::new(), Vec::new());
    loop {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => return (payload, errors),
            Err(error) => {
                if !error.is_item() {
                    // Which of several flaws of one item is reported may depend on how much of it was there.
                    errors.push(format!("the end, at {:?}", error.at));
                    return (payload, errors);
                }
                errors.push(error.to_string());
            }
        }
    }
}
