//! Arrow IPC from anywhere: whatever the schema and the batches say, there are sound records and errors, and what is read is
//! written and read again.

use crate::guarded;
use crossdock_format::encoding::arrow::{ArrowDecoder, ArrowEncoder};
use crossdock_format::encoding::{Decoder, Encoder, EncodingOptions};
use crossdock_format::{Format, Record};

/// Records that are looked at: a batch of nothing but nulls has any number in a few bytes.
const MOST: usize = 1000;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    guarded::panics_may_be_caught();
    let options = EncodingOptions { max_block_bytes: 1 << 20, max_item_bytes: 1 << 16, ..EncodingOptions::default() };
    let mut rest = input;
    let Ok((format, mut decoder)) = ArrowDecoder::open(&mut rest, &options) else { return };
    let payload = decode(&mut decoder, rest);
    let mut encoder = ArrowEncoder::new(&format, false, &options).expect("what was a schema");
    let mut written = Vec::new();
    encoder.start(&mut written);
    let mut records = 0;
    let sound = format.check_records(&payload, |start, len| {
        let record = &payload[start as usize..(start + len) as usize];
        records += usize::from(encoder.record(&Record::assume_checked(&format, record), &mut written).is_ok());
    });
    sound.expect("a decoder's own records");
    encoder.finish(&mut written).expect("batches of the schema");
    let options = EncodingOptions::default();
    let again = decode(&mut ArrowDecoder::new(&format, &options), &written);
    assert_eq!(count(&format, &again), records);
}

fn count(format: &Format, payload: &[u8]) -> usize {
    format.check_records(payload, |_, _| {}).expect("a decoder's own records")
}

/// The first records, back to back.
fn decode(decoder: &mut dyn Decoder, mut input: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    for _ in 0..MOST {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => break,
            Err(error) if error.is_item() => {}
            Err(_) => break,
        }
    }
    payload
}
