//! JSON lines from anywhere: the same records and errors whatever the reader's buffer, and what is read is written and
//! read again. The first byte is the buffer's size, and says whether unknown fields are passed over.
#![no_main]

use std::io::BufReader;
use std::sync::LazyLock;

use crossdock_format::json::{JsonDecoder, JsonEncoder, JsonOptions};
use crossdock_format::{Format, Record, Value};
use libfuzzer_sys::fuzz_target;

static FORMAT: LazyLock<Format> = LazyLock::new(|| {
    let schema = "a i16 null\nb string null\nc bool null\nd timestamp null\ne f32 null\nf char[3] null\ng bytes null\nh u64 null";
    Format::parse_schema(schema).expect("a sound schema")
});

fuzz_target!(|input: &[u8]| {
    let [buffer_bytes, text @ ..] = input else { return };
    let ignore_unknown_fields = buffer_bytes.is_multiple_of(2);
    let options = JsonOptions { ignore_unknown_fields, max_line_bytes: 300, ..JsonOptions::default() };
    let whole = decode(text, 1 << 16, &options);
    let parts = decode(text, usize::from(*buffer_bytes) + 1, &options);
    assert_eq!(whole, parts);
    let _ = JsonDecoder::new(&FORMAT, &options).decode(text);

    let (payload, _) = whole;
    let encoder = JsonEncoder::new(&FORMAT);
    let mut written = Vec::new();
    let mut values = Vec::new();
    let records = FORMAT.check_records(&payload, |start, len| {
        let record = &payload[start as usize..(start + len) as usize];
        let record = Record::assume_checked(&FORMAT, record);
        encoder.record(&record, &mut written);
        values.extend((0..FORMAT.fields().len()).map(|field| record.get(field)));
    });
    records.expect("a decoder's own records");
    let (again, errors) = decode(&written, 1 << 16, &JsonOptions::default());
    assert!(errors.is_empty(), "{errors:?}");
    let mut values = values.into_iter();
    let records = FORMAT.check_records(&again, |start, len| {
        let record = Record::assume_checked(&FORMAT, &again[start as usize..(start + len) as usize]);
        for field in 0..FORMAT.fields().len() {
            match (record.get(field), values.next().expect("as many records")) {
                (Value::Float(again), Value::Float(value)) => assert_eq!(again.to_bits(), value.to_bits()),
                (again, value) => assert_eq!(again, value),
            }
        }
    });
    records.expect("a decoder's own records");
    assert!(values.next().is_none());
});

fn decode(text: &[u8], buffer_bytes: usize, options: &JsonOptions) -> (Vec<u8>, Vec<String>) {
    let mut decoder = JsonDecoder::new(&FORMAT, options);
    let mut input = BufReader::with_capacity(buffer_bytes, text);
    let (mut payload, mut errors) = (Vec::new(), Vec::new());
    loop {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => return (payload, errors),
            Err(error) => {
                assert!(error.is_row());
                errors.push(error.to_string());
            }
        }
    }
}
