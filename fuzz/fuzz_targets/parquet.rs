//! Parquet files from anywhere: whatever they say, there are sound records and errors. The library's own panics are errors
//! too: they must not get out.
#![no_main]

use std::sync::{Arc, Once};

use crossdock_format::encoding::parquet::ParquetDecoder;
use crossdock_format::encoding::{Decoder, EncodingOptions};
use libfuzzer_sys::fuzz_target;

/// Records that are looked at: a page of nothing but nulls has any number in a few bytes.
const MOST: usize = 1000;
static QUIET: Once = Once::new();

fuzz_target!(|input: &[u8]| {
    // The engine's hook ends the process at every panic, also at one that is caught. One that gets out ends it still.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
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
});
