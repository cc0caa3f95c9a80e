//! The file in which deployed handlers are kept, from anywhere: it is read or refused, and what is read makes the same file, which
//! cut anywhere is none.

use crate::specs;
use crossdock_runtime::{read_kept, write_kept};

/// Longest file that is looked at, in bytes.
const MOST_BYTES: usize = 1 << 14;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let Ok(handlers) = read_kept(&input[..input.len().min(MOST_BYTES)]) else { return };
    handlers.iter().for_each(specs::examine);
    let written = write_kept(&handlers).expect("what was read");
    assert_eq!(read_kept(&written).expect("what was written"), handlers);
    let cut = written.len() * usize::from(input.first().copied().unwrap_or(0)) / 256;
    assert!(read_kept(&written[..cut]).is_err());
}
