//! Manifests of cuts from anywhere: refused, or written again as the same bytes. The checksum is right, so that the parser behind it is reached.

use crossdock_runtime::{reads_cut_manifest, seal_cut_manifest};

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let _ = reads_cut_manifest(input);
    if let Ok(json) = std::str::from_utf8(input) {
        let _ = reads_cut_manifest(&seal_cut_manifest(json));
    }
}
