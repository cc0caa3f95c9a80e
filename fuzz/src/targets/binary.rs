//! Records as they lie in memory, in any layout: the same records and errors whatever the reader's buffer, and a sound one
//! is written anew with the same values, or refused. The input is a layout's text, a byte that no text has, one that says
//! the buffer's size, and the records.
use std::io::BufReader;

use crossdock_format::encoding::{self, Encoding, EncodingOptions};
use crossdock_format::json::JsonEncoder;
use crossdock_format::{Format, Record, RecordBuilder};

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let Some(at) = input.iter().position(|byte| *byte == 0xff) else { return };
    let (Ok(text), [_, choice, bytes @ ..]) = (str::from_utf8(&input[..at]), &input[at..]) else { return };
    let Ok(format) = Format::parse_schema(text) else { return };
    let whole = decode(&format, bytes, 1 << 16);
    assert_eq!(whole, decode(&format, bytes, usize::from(*choice) + 1));
    let mut builder = RecordBuilder::new(&format);
    for record in &whole.0 {
        let record = Record::check(&format, record).expect("was checked");
        builder.clear();
        if builder.copy(&record).is_err() {
            continue;
        }
        if let Ok(written) = builder.finish() {
            let again = Record::check(&format, written).expect("a sound record");
            assert_eq!(json(&format, &again), json(&format, &record));
        }
    }
    let _ = json(&format, &Record::assume_checked(&format, bytes));
}

fn json(format: &Format, record: &Record<'_>) -> String {
    let mut line = Vec::new();
    JsonEncoder::new(format).record(record, &mut line);
    String::from_utf8(line).expect("JSON is text")
}

/// The records, and the errors.
fn decode(format: &Format, bytes: &[u8], buffer_bytes: usize) -> (Vec<Vec<u8>>, Vec<String>) {
    let mut decoder =
        encoding::decoder(Encoding::Binary, format, None, &EncodingOptions::default()).expect("any format");
    let mut input = BufReader::with_capacity(buffer_bytes, bytes);
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    loop {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => records.push(record.to_vec()),
            Ok(None) => return (records, errors),
            Err(error) => {
                let goes_on = error.is_item();
                errors.push(error.to_string());
                if !goes_on {
                    return (records, errors);
                }
            }
        }
    }
}
