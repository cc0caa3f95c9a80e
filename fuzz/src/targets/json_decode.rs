//! JSON lines from anywhere: the same records and errors whatever the reader's buffer, and what is read is written and
//! read again. The first byte is the buffer's size, and says whether unknown fields are passed over, and which of three
//! formats the lines are read by: one of plain values, one with all that may lie in a record, or one with elements that may be null.

use crate::nested;
use std::io::BufReader;
use std::sync::LazyLock;

use crossdock_format::json::{JsonDecoder, JsonEncoder, JsonOptions};
use crossdock_format::{Format, Record};

static FORMATS: LazyLock<[Format; 3]> = LazyLock::new(|| {
    let schema = "a i16 null\nb string null\nc bool null\nd timestamp null\ne f32 null\nf char[3] null\ng bytes null\nh u64 null";
    [schema, nested::SCHEMA, nested::ELEMENTS].map(|schema| Format::parse_schema(schema).expect("a sound schema"))
});

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [buffer_bytes, text @ ..] = input else { return };
    let ignore_unknown_fields = buffer_bytes.is_multiple_of(2);
    let format = &FORMATS[usize::from(*buffer_bytes / 86)];
    let options = JsonOptions { ignore_unknown_fields, max_line_bytes: 300, ..JsonOptions::default() };
    let whole = decode(format, text, 1 << 16, &options);
    let parts = decode(format, text, usize::from(*buffer_bytes) + 1, &options);
    assert_eq!(whole, parts);
    let _ = JsonDecoder::new(format, &options).decode(text);

    let written = encode(format, &whole.0);
    let (again, errors) = decode(format, &written, 1 << 16, &JsonOptions::default());
    assert!(errors.is_empty(), "{errors:?}");
    // The text has each value to the last bit, a negative zero too.
    assert_eq!(String::from_utf8_lossy(&encode(format, &again)), String::from_utf8_lossy(&written));
}

fn encode(format: &Format, payload: &[u8]) -> Vec<u8> {
    let encoder = JsonEncoder::new(format);
    let mut written = Vec::new();
    let records = format.check_records(payload, |start, len| {
        let record = &payload[start as usize..(start + len) as usize];
        encoder.record(&Record::assume_checked(format, record), &mut written);
    });
    records.expect("a decoder's own records");
    written
}

fn decode(format: &Format, text: &[u8], buffer_bytes: usize, options: &JsonOptions) -> (Vec<u8>, Vec<String>) {
    let mut decoder = JsonDecoder::new(format, options);
    let mut input = BufReader::with_capacity(buffer_bytes, text);
    let (mut payload, mut errors) = (Vec::new(), Vec::new());
    loop {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => return (payload, errors),
            Err(error) => {
                errors.push(error.to_string());
                // The bytes between the elements of an array.
                if !error.is_row() {
                    return (payload, errors);
                }
            }
        }
    }
}
