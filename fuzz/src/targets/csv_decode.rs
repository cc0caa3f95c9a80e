//! CSV from anywhere: the same rows and errors whatever the reader's buffer, and what is read is written and read
//! again. The first byte is the buffer's size, and says which of two formats the rows are read by: one of plain values, or
//! one with all that may lie in a record.

use crate::nested;
use std::io::BufReader;
use std::sync::LazyLock;

use crossdock_format::csv::{CsvDecoder, CsvEncoder, CsvOptions, InferOptions, infer_csv_sample};
use crossdock_format::{Format, Record};

static FORMATS: LazyLock<[Format; 2]> = LazyLock::new(|| {
    let schema =
        "a i16 null\nb string null\nc bool null\nd timestamp null\ne f32 null\nf char[3]\ng bytes null\nh u64 null";
    [schema, nested::SCHEMA].map(|schema| Format::parse_schema(schema).expect("a sound schema"))
});

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [buffer_bytes, text @ ..] = input else { return };
    let options = CsvOptions { max_row_bytes: 200, ..CsvOptions::default() };
    if let Ok(format) = infer_csv_sample(text, false, &options, &InferOptions::default()) {
        let mut input = text;
        let mut decoder = CsvDecoder::from_header(&format, &mut input, &options).expect("the header was read before");
        while decoder.next_record(&mut input).is_ok_and(|record| record.is_some()) {}
    }
    let format = &FORMATS[usize::from(*buffer_bytes >= 128)];
    let header: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
    let whole = decode(format, &header, text, 1 << 16, &options);
    let parts = decode(format, &header, text, usize::from(*buffer_bytes) + 1, &options);
    assert_eq!(whole, parts);

    let (payload, _) = whole;
    let encoder = CsvEncoder::new(format, &options).expect("sound options");
    let mut written = Vec::new();
    let records = format.check_records(&payload, |start, len| {
        let record = &payload[start as usize..(start + len) as usize];
        encoder.record(&Record::assume_checked(format, record), &mut written);
    });
    records.expect("a decoder's own records");
    let generous = CsvOptions::default();
    let (again, errors) = decode(format, &header, &written, 1 << 16, &generous);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(again, payload);
}

fn decode(
    format: &Format,
    header: &[&str],
    text: &[u8],
    buffer_bytes: usize,
    options: &CsvOptions,
) -> (Vec<u8>, Vec<String>) {
    let mut decoder = CsvDecoder::new(format, header, options).expect("a sound header");
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
