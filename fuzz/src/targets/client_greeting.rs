//! The client's side of attaching, against whatever answers: refused in words, or an attachment whose every use ends.
//!
//! An input's first byte is the number of descriptors, then come two bytes for each of them, then the packet.

use std::time::Instant;

use crossdock_mailbox::client::Wait;
use crossdock_mailbox::client::raw::{RawFile, attach};

/// Most descriptors that come with a packet.
const MOST_FILES: usize = 10;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [count, rest @ ..] = input else { return };
    let Some((kinds, packet)) = rest.split_at_checked(usize::from(*count) % (MOST_FILES + 1) * 2) else { return };
    let Ok(files) = kinds.chunks_exact(2).map(|kind| file(kind[0], kind[1]).open()).collect::<Result<Vec<_>, _>>()
    else {
        return;
    };
    let attachment = match attach(packet, &files) {
        Ok(attachment) => attachment,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    attachment.arm();
    let session = attachment.session();
    if let Some((writer, reader)) = &mut { session } {
        let _ = writer.begin_put(1, Wait::Until(Instant::now())).map(|put| writer.end_put(put));
        let _ = reader.try_begin_get().map(|message| message.map(|message| message.len()));
        writer.untaken();
    }
    let _ = attachment.alloc_sync().map(|mut sync| sync.try_read());
    attachment.errors();
    attachment.arm();
}

/// Lengths are in steps of 4 KiB; a bell's page has one.
fn file(kind: u8, pages: u8) -> RawFile {
    let bytes = u32::from(pages) * 4096;
    match kind % 9 {
        0 => RawFile::Control,
        1 => RawFile::Segment(bytes),
        2 => RawFile::ForReaders(bytes),
        3 => RawFile::Unsealed(bytes),
        4 => RawFile::Eventfd(pages % 2 == 1),
        5 => RawFile::Pipe(true),
        6 => RawFile::Pipe(false),
        7 => RawFile::Zeros,
        _ => RawFile::Socket,
    }
}
