//! XML from anywhere: the same records and errors whatever the reader's buffer, and what is read is written and read again.
//! The first byte is the buffer's size, and says whether what is unknown is passed over and what a record is called.
use std::io::BufReader;
use std::sync::LazyLock;

use crossdock_format::encoding::xml::{XmlDecoder, XmlEncoder};
use crossdock_format::encoding::{Decoder, Encoder, EncodingOptions, Loss};
use crossdock_format::{Format, Record};

static FORMAT: LazyLock<Format> = LazyLock::new(|| {
    let schema = "a i16 null\nb string null\nc record { d bool; e timestamp null } null\nf f32 null\ng bytes null\n\
                  h record { i u8; j string[] null }[]\nk u8[2][] null\nl union { m i32; n record { o char[2] } } null\n\
                  p enum u8 { X = 1 } null\nq decimal(8, scale 2) null";
    Format::parse_schema(schema).expect("a sound schema")
});

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [choices, text @ ..] = input else { return };
    let options = EncodingOptions {
        ignore_unknown: choices.is_multiple_of(2),
        xml_element: choices.is_multiple_of(3).then(|| "r".to_owned()),
        max_item_bytes: 300,
        // A character's number may be one that XML does not have.
        allow: vec![Loss::InvalidText],
        ..EncodingOptions::default()
    };
    let whole = decode(text, 1 << 16, &options);
    let parts = decode(text, usize::from(*choices) + 1, &options);
    assert_eq!(whole, parts);
    write_and_read_again(&whole.0);
}

fn write_and_read_again(payload: &[u8]) {
    let options = EncodingOptions { allow: vec![Loss::InvalidText], ..EncodingOptions::default() };
    let mut encoder = XmlEncoder::new(&FORMAT, &options).expect("names that elements have");
    let mut written = Vec::new();
    encoder.start(&mut written);
    let mut records = 0;
    let sound = FORMAT.check_records(payload, |start, len| {
        let record = &payload[start as usize..(start + len) as usize];
        encoder.record(&Record::assume_checked(&FORMAT, record), &mut written).expect("losses are allowed");
        records += 1;
    });
    sound.expect("a decoder's own records");
    encoder.finish(&mut written).expect("nothing was kept");
    let (again, errors) = decode(&written, 1 << 16, &options);
    // The replacement for a character that XML does not have is three bytes long, which may be too long for text of a
    // fixed size.
    if String::from_utf8_lossy(&written).contains(char::REPLACEMENT_CHARACTER) {
        return;
    }
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(FORMAT.check_records(&again, |_, _| {}).ok(), Some(records));
}

/// Records, back to back, and the errors.
fn decode(text: &[u8], buffer_bytes: usize, options: &EncodingOptions) -> (Vec<u8>, Vec<String>) {
    let mut decoder = XmlDecoder::new(&FORMAT, options);
    let mut input = BufReader::with_capacity(buffer_bytes, text);
    let (mut payload, mut errors) = (Vec::new(), Vec::new());
    loop {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => return (payload, errors),
            Err(error) => {
                let goes_on = error.is_item();
                errors.push(error.to_string());
                if !goes_on {
                    return (payload, errors);
                }
            }
        }
    }
}
