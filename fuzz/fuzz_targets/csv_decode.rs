//! CSV from anywhere: the same rows and errors whatever the reader's buffer, and what is read is written and read
//! again. The first byte is the buffer's size.
#![no_main]

use std::io::BufReader;
use std::sync::LazyLock;

use crossdock_format::csv::{CsvDecoder, CsvEncoder, CsvOptions, InferOptions, infer_csv_sample};
use crossdock_format::{Format, Record};
use libfuzzer_sys::fuzz_target;

static FORMAT: LazyLock<Format> = LazyLock::new(|| {
    let schema =
        "a i16 null\nb string null\nc bool null\nd timestamp null\ne f32 null\nf char[3]\ng bytes null\nh u64 null";
    Format::parse_schema(schema).expect("a sound schema")
});

fuzz_target!(|input: &[u8]| {
    let [buffer_bytes, text @ ..] = input else { return };
    let options = CsvOptions { max_row_bytes: 200, ..CsvOptions::default() };
    if let Ok(format) = infer_csv_sample(text, false, &options, &InferOptions::default()) {
        let mut input = text;
        let mut decoder = CsvDecoder::from_header(&format, &mut input, &options).expect("the header was read before");
        while decoder.next_record(&mut input).is_ok_and(|record| record.is_some()) {}
    }
    let header: Vec<&str> = FORMAT.fields().iter().map(|field| field.name.as_str()).collect();
    let whole = decode(&header, text, 1 << 16, &options);
    let parts = decode(&header, text, usize::from(*buffer_bytes) + 1, &options);
    assert_eq!(whole, parts);

    let (payload, _) = whole;
    let encoder = CsvEncoder::new(&FORMAT, &options).expect("sound options");
    let mut written = Vec::new();
    let records = FORMAT.check_records(&payload, |start, len| {
        let record = &payload[start as usize..(start + len) as usize];
        encoder.record(&Record::assume_checked(&FORMAT, record), &mut written);
    });
    records.expect("a decoder's own records");
    let generous = CsvOptions::default();
    let (again, errors) = decode(&header, &written, 1 << 16, &generous);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(again, payload);
});

fn decode(header: &[&str], text: &[u8], buffer_bytes: usize, options: &CsvOptions) -> (Vec<u8>, Vec<String>) {
    let mut decoder = CsvDecoder::new(&FORMAT, header, options).expect("a sound header");
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
