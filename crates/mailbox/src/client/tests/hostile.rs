//! A fault that a hostile daemon writes costs the client its attachment, and never its time or its memory.

use super::*;
use crate::attach::{AttachError, Welcome};
use crate::client::raw::{RawFile, attach as attach_to};
use crate::client::signal::MAX_ERRORS;

fn error(detail: u64) -> Signal {
    Signal { head: Descriptor { op: down::ERROR, target: 6, ..Descriptor::default() }, a: detail, b: 0 }
}

/// Entries that nobody takes are sent up to the ring's length.
fn fill(attachment: &Attachment, fake: &mut Fake) {
    for detail in 0..SIGNAL_ENTRIES as u64 - 32 {
        fake.send(error(detail));
    }
    assert_eq!(attachment.errors().len(), MAX_ERRORS);
    assert_eq!(attachment.gone(), None);
}

#[test]
fn answers_wait_for_room_and_are_sent_once_there_is_some() {
    let (attachment, mut fake) = attach();
    fill(&attachment, &mut fake);
    for detail in 0..100 {
        fake.send(error(detail));
    }
    assert_eq!(attachment.errors().len(), MAX_ERRORS);
    assert_eq!(attachment.gone(), None);
    let mut credits = 0;
    while fake.pop().is_some() {
        credits += 1;
    }
    assert_eq!(credits, SIGNAL_ENTRIES, "what came before was taken when it attached");
    fake.taken.store(fake.signal_up.position());
    assert!(attachment.errors().is_empty());
    while fake.pop().is_some() {
        credits += 1;
    }
    assert_eq!(credits, SIGNAL_ENTRIES - 32 + 100);
}

#[test]
fn upcalls_are_served_though_there_is_no_room_to_say_so() {
    let (attachment, mut fake) = attach();
    fill(&attachment, &mut fake);
    for detail in 0..100 {
        fake.send(error(detail));
    }
    attachment.errors();
    attachment.on_upcall(|_, _| 0).unwrap();
    assert_eq!(attachment.gone(), None);
}

#[test]
fn signals_beyond_their_credits_end_the_attachment() {
    let upcall = Signal { head: Descriptor { op: down::UPCALL, ..Descriptor::default() }, a: 0, b: 0 };
    for unasked in [error(1), upcall] {
        let (attachment, mut fake) = attach();
        fill(&attachment, &mut fake);
        for _ in 0..SIGNAL_ENTRIES / 2 {
            fake.send(unasked);
        }
        attachment.errors();
        let gone = attachment.gone().unwrap();
        assert!(is_gone(&gone, "more signals than it was given credits for"), "{gone}");
    }
}

#[test]
fn a_daemon_that_took_what_was_never_sent_is_left() {
    let (attachment, mut fake) = attach();
    fill(&attachment, &mut fake);
    fake.taken.store(1 << 40);
    for detail in 0..100 {
        fake.send(error(detail));
    }
    attachment.errors();
    let gone = attachment.gone().unwrap();
    assert!(is_gone(&gone, "took signals that were never sent"), "{gone}");
}

#[test]
fn puts_that_are_granted_and_never_taken_are_bounded() {
    let (attachment, fake) = attach();
    let (mut writer, _reader) = attachment.session().unwrap();
    let mut port = fake.port(0);
    for _ in 0..PORT_ENTRIES {
        port.send(grant(0, 0, 64));
        let put = writer.begin_put(8, now()).unwrap();
        writer.end_put(put).unwrap();
    }
    assert_eq!(attachment.gone(), None);
    port.send(grant(0, 0, 64));
    let put = writer.begin_put(8, now()).unwrap();
    writer.end_put(put).unwrap();
    let gone = attachment.gone().unwrap();
    assert!(is_gone(&gone, "took nothing of what was put"), "{gone}");
    assert_eq!(writer.untaken().len(), PORT_ENTRIES + 1);
}

/// The answer to a daemon that welcomes with these as doorbell and wake pipe.
fn welcomed(doorbell: RawFile, wake: RawFile) -> Result<Attachment, AttachError> {
    let control_bytes = ControlLayout::BYTES as u64;
    let packet = Welcome { client: 7, control_bytes, shared_bytes: 4096, inbox_bytes: 4096 }.encode();
    let shared = [RawFile::Control, RawFile::Segment(4096), RawFile::ForReaders(4096), RawFile::ForReaders(4096)];
    let files: Vec<_> = shared.into_iter().chain([doorbell, wake]).map(|file| file.open().unwrap()).collect();
    attach_to(&packet, &files)
}

#[test]
fn descriptors_that_could_block_or_end_this_process_are_refused() {
    let (bell, pipe) = (RawFile::Eventfd(false), RawFile::Pipe(true));
    for (doorbell, wake, says) in [
        (RawFile::Pipe(false), pipe, "its doorbell is no eventfd"),
        (RawFile::Zeros, pipe, "its doorbell is no eventfd"),
        (RawFile::Socket, pipe, "its doorbell is no eventfd"),
        (bell, RawFile::Zeros, "wakes this process by is no pipe"),
        (bell, RawFile::Socket, "wakes this process by is no pipe"),
        (bell, RawFile::Segment(4096), "wakes this process by is no pipe"),
    ] {
        let error = welcomed(doorbell, wake).unwrap_err().to_string();
        assert!(error.contains(says), "{doorbell:?} {wake:?}: {error}");
    }
    // One that blocks is made not to: without that the second read of the pipe would wait.
    welcomed(RawFile::Eventfd(true), pipe).unwrap().arm();
}
