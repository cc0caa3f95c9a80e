//! Messages in pieces through a receiver: pieces that are doubled, overlap, come in any order or are missing for a while.

#![allow(clippy::unwrap_used, reason = "a test may panic; the lint spares test functions only, not what they call")]

use crossdock_transport::receiver::{Arrival, Arriving, Receiver};
use crossdock_transport::{Cut, HEADER_BYTES, Header, Joiner, PacketKind, Traffic};
use proptest::prelude::*;
use std::ops::Range;

const PACKET_BYTES: usize = 64;

/// A message that differs from others of its length.
fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 31) as u8).collect()
}

/// The packets of messages one behind the other, numbered from 0.
fn packets(messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (template, mut packets) = (Header::new(PacketKind::Data, 7), Vec::new());
    for message in messages {
        let (cut, first_seq) = (Cut::new(message.len(), PACKET_BYTES), packets.len() as u64);
        let packet = |index| [&cut.head(index, &template, first_seq), &message[cut.range(index)]].concat();
        packets.extend((0..cut.packets()).map(packet));
    }
    packets
}

/// A session that joins what a receiver delivers.
struct Joining {
    receiver: Receiver<Range<usize>>,
    joiner: Joiner<Vec<u8>>,
    joined: Vec<Vec<u8>>,
}

impl Joining {
    fn new() -> Joining {
        Joining { receiver: Receiver::new(PACKET_BYTES, 4096), joiner: Joiner::default(), joined: Vec::new() }
    }

    /// A run of the packets arrives.
    fn arrive(&mut self, packets: &[Vec<u8>], run: Range<usize>) -> Arrival {
        let lengths = || packets[run.clone()].iter().map(Vec::len);
        let arriving = Arriving {
            traffic: Traffic::Data,
            first_seq: run.start as u64,
            packets: run.len() as u32,
            longest_bytes: lengths().max().unwrap_or(0),
            last_bytes: lengths().next_back().unwrap_or(0),
        };
        let Joining { receiver, joiner, joined } = self;
        let arrival = receiver.arrive(arriving, run, 0, |run, skip| {
            for packet in &packets[run.start + skip as usize..run.end] {
                let header = Header::read(packet).unwrap();
                assert_eq!(header.seq as usize, packets.iter().position(|other| other == packet).unwrap_or(usize::MAX));
                let message = joiner.take(header.piece, &packet[HEADER_BYTES..], 1 << 20).unwrap();
                joined.extend(message.map(|message| message.to_vec()));
            }
        });
        self.receiver.consumed_to(u64::MAX);
        arrival
    }
}

proptest! {
    #[test]
    fn messages_come_whole_once_and_in_order(
        lengths in proptest::collection::vec(0usize..600, 1..12),
        runs in proptest::collection::vec((any::<prop::sample::Index>(), 1usize..9), 0..200),
    ) {
        let messages: Vec<_> = lengths.iter().enumerate().map(|(number, &len)| message(number, len)).collect();
        let packets = packets(&messages);
        let mut session = Joining::new();
        let mut came = vec![false; packets.len()];
        for (at, len) in runs {
            let start = at.index(packets.len());
            let run = start..packets.len().min(start + len);
            if session.arrive(&packets, run.clone()) != Arrival::Beyond {
                came[run].fill(true);
            }
            // Nothing that follows a missing piece is delivered, and memory is that of one message.
            let in_order = came.iter().take_while(|came| **came).count();
            prop_assert!(session.receiver.next_seq() <= in_order as u64);
            prop_assert!(session.joiner.bytes() <= 600);
            prop_assert!(session.joined.iter().eq(&messages[..session.joined.len()]));
        }
        // Missing pieces come at last, each packet by itself.
        for at in 0..packets.len() {
            session.arrive(&packets, at..at + 1);
        }
        prop_assert_eq!(&session.joined, &messages);
        prop_assert!(!session.joiner.has_begun() && session.receiver.held() == 0);
    }
}

#[test]
fn a_message_is_not_delivered_while_any_piece_is_missing() {
    let messages = [message(0, 500), message(1, 10)];
    let packets = packets(&messages);
    for missing in 0..packets.len() - 1 {
        let mut session = Joining::new();
        for at in (0..packets.len()).rev().filter(|at| *at != missing) {
            session.arrive(&packets, at..at + 1);
        }
        assert!(session.joined.is_empty(), "piece {missing} has not come");
        session.arrive(&packets, missing..missing + 1);
        assert_eq!(session.joined, messages);
    }
}
