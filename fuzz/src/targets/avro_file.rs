//! Avro object container files from anywhere: a schema that is no format, a block that is damaged, and datums that are none
//! of the schema are errors. A record that the file's own schema makes is checked.
use crossdock_format::Record;
use crossdock_format::encoding::avro::AvroFileDecoder;
use crossdock_format::encoding::{Decoder, EncodingOptions};

/// Takes one input.
pub fn fuzz(bytes: &[u8]) {
    let options = EncodingOptions { max_item_bytes: 1 << 16, ..EncodingOptions::default() };
    let mut input = bytes;
    let Ok((format, mut decoder)) = AvroFileDecoder::open(&mut input, &options) else { return };
    // Datums may have no bytes at all: as many as these are enough.
    for _ in 0..1000 {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => {
                Record::check(&format, record).expect("a decoder's own record");
            }
            Ok(None) => return,
            Err(error) if error.is_item() => {}
            Err(_) => return,
        }
    }
}
