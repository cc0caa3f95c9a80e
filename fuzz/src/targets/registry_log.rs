//! The registry's log from anywhere: reading it back takes no harm, what is whole stays whole, and what a registry says of
//! itself makes the same registry. The first byte says whether the rest is a log as it is, or texts of entries (with
//! a byte between two that no text has), which get their frames here: no fuzzer finds a checksum.
use crossdock_format::registry::{Registry, replay};
use sha2::{Digest, Sha256};

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [choice, bytes @ ..] = input else { return };
    let log = if choice % 4 == 0 { bytes.to_vec() } else { framed(bytes) };
    let replayed = replay(&log);
    assert!(replayed.whole_bytes <= log.len());
    assert!(replayed.passed_over.iter().all(|(at, _)| *at < replayed.whole_bytes));
    if choice % 4 != 0 {
        assert_eq!(replayed.whole_bytes, log.len());
    }
    let written = written(&replayed.registry);
    let again = replay(&written);
    assert!(again.passed_over.is_empty(), "{:?}", again.passed_over);
    assert_eq!(again.whole_bytes, written.len());
    assert_eq!(self::written(&again.registry), written);
    // Of a log that is cut anywhere, the whole frames in front are what is read.
    let cut = written.len() * usize::from(*choice) / 256;
    assert!(replay(&written[..cut]).whole_bytes <= cut);
}

/// The texts as a log.
fn framed(texts: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    for text in texts.split(|byte| *byte == 0xff) {
        let hash = Sha256::digest(text);
        log.extend_from_slice(&(text.len() as u32).to_le_bytes());
        log.extend_from_slice(&hash[..4]);
        log.extend_from_slice(text);
    }
    log
}

fn written(registry: &Registry) -> Vec<u8> {
    let mut log = Vec::new();
    registry.entries().for_each(|entry| entry.write(&mut log));
    log
}
