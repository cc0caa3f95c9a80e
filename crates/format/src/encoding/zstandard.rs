//! Zstandard, as Parquet, Arrow and Avro files have it: unpacked by a library in Rust.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use super::guard::guarded;
use super::{EncodingError, EncodingProblem};

/// Appends what is in these frames to `out`: at most `most` bytes.
///
/// # Errors
/// They are no frames, or hold more.
pub(super) fn unpack(mut packed: &[u8], most: usize, out: &mut Vec<u8>) -> Result<(), EncodingError> {
    let start = out.len();
    while !packed.is_empty() {
        let room = most.saturating_sub(out.len() - start) as u64;
        let wrong = |why| EncodingError::syntax(format!("it is no Zstandard, or damaged: {why}"));
        guarded(wrong, || {
            let frame = StreamingDecoder::new(&mut packed).map_err(|error| error.to_string())?;
            frame.take(room.saturating_add(1)).read_to_end(out).map_err(|error| error.to_string())
        })?;
        let found = out.len() - start;
        if found > most {
            return Err(EncodingError::new(EncodingProblem::TooLong { found: found as u64, most }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    #[test]
    fn frames_are_unpacked_up_to_a_bound() {
        let text = b"tick tock ".repeat(1000);
        let one = compress_to_vec(&text[..], CompressionLevel::Fastest);
        let two = [&one[..], &one].concat();
        let mut out = b"before".to_vec();
        unpack(&two, 2 * text.len(), &mut out).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(out, [b"before", &text[..], &text].concat());
        let error = unpack(&two, 2 * text.len() - 1, &mut Vec::new()).expect_err("too long");
        assert!(matches!(error.problem, EncodingProblem::TooLong { most: 19_999, .. }), "{error}");
        assert!(unpack(&[], 0, &mut Vec::new()).is_ok());
        for cut in 1..one.len() {
            assert!(unpack(&one[..cut], text.len(), &mut Vec::new()).is_err(), "{cut}");
        }
        assert!(unpack(b"no frame", 100, &mut Vec::new()).is_err());
    }
}
