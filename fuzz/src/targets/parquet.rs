//! Parquet files from anywhere: whatever they say, there are sound records and errors. The library's own panics are errors
//! too: they must not get out.

use crate::guarded;
use std::sync::Arc;

use crossdock_format::encoding::parquet::ParquetDecoder;
use crossdock_format::encoding::{Decoder, EncodingOptions};

/// Records that are looked at: a page of nothing but nulls has any number in a few bytes.
const MOST: usize = 1000;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    guarded::panics_may_be_caught();
    let options = EncodingOptions { max_block_bytes: 1 << 20, ..EncodingOptions::default() };
    let Ok((format, mut decoder)) = ParquetDecoder::open(Arc::new(input.to_vec()), None, &options) else { return };
    let mut payload = Vec::new();
    for _ in 0..MOST {
        match decoder.next_record(&mut &b""[..]) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => break,
            Err(error) if error.is_item() => {}
            Err(_) => break,
        }
    }
    format.check_records(&payload, |_, _| {}).expect("a decoder's own records");
}
