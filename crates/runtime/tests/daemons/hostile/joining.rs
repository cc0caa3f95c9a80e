//! Peers that begin messages and do not end them.

use super::raw::Raw;
use super::{dropped, start};
use crossdock_transport::handshake::Close;
use crossdock_transport::{MAX_CONTROL_BYTES, PacketKind, Piece};

/// A session with the first piece of the longest control message sent.
fn begin(addr: &str) -> Raw {
    let mut raw = Raw::connect(addr);
    raw.greet().unwrap();
    let first = [&(MAX_CONTROL_BYTES as u64).to_le_bytes()[..], b"{"].concat();
    raw.send_piece(PacketKind::Control, Piece::First, &first);
    raw
}

/// The same, once it is taken.
fn begin_and_await(addr: &str) -> Raw {
    let raw = begin(addr);
    raw.receive(|kind| kind == PacketKind::Ack);
    raw
}

#[test]
fn messages_with_pieces_missing_have_a_bound_over_all_sessions() {
    let (context, addr) = start();
    // As many as a context joins at a time.
    let mut begun: Vec<Raw> = (0..8).map(|_| begin_and_await(&addr)).collect();
    let reason = begin(&addr).close();
    assert!(reason.contains("no memory for a message now"), "{reason}");
    assert_eq!(dropped(&context, "packet_no_buffer"), 1);
    // One that goes leaves its memory to the next.
    let gone = begun.remove(3);
    let close = Close { again: false, reason: "done".to_owned() }.packet(gone.session);
    gone.socket.send(&close).unwrap();
    crate::hostile::await_that("it is gone", || context.context().unwrap().sessions == 7);
    begun.push(begin_and_await(&addr));
    assert_eq!(dropped(&context, "packet_no_buffer"), 1);
}
