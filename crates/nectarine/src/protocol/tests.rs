use super::*;
use crate::carrier::conformance::eventually;
use crate::direct::Direct;
use crossdock_sim::{Rng, check};
use crossdock_transport::{Cut, HEADER_BYTES, Header, Joiner, PacketKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A delivered message: its header and its data.
type Delivered = (Vec<u8>, Vec<u8>);

/// Delivers what it gets, but for data of more than `most` bytes.
struct Collector {
    class: DeliveryClass,
    template: Vec<u8>,
    most: usize,
    sent: u8,
    delivered: Sender<Delivered>,
}

impl Protocol for Collector {
    fn template(&self) -> HeaderTemplate {
        HeaderTemplate::new(self.class, self.template.clone())
    }

    fn complete(&mut self, header: &mut [u8], _: &[u8]) {
        if let Some(last) = header.last_mut() {
            *last = self.sent;
        }
        self.sent = self.sent.wrapping_add(1);
    }

    fn start_of_data(&mut self, start: &StartOfData<'_>) -> DataPlace {
        if start.data_bytes > self.most { DataPlace::Refused } else { DataPlace::Upcall }
    }

    fn end_of_data(&mut self, start: &StartOfData<'_>, data: ArrivedData<'_>) {
        assert_eq!(data.len(), start.data_bytes);
        self.delivered.send((start.header.to_vec(), data.into_vec())).unwrap();
    }
}

fn collector(class: DeliveryClass, template: &[u8], most: usize) -> (Collector, Receiver<Delivered>) {
    let (delivered, receiver) = channel();
    (Collector { class, template: template.to_vec(), most, sent: 0, delivered }, receiver)
}

/// The packets of a message: which piece each is, and its payload.
fn cut(message: &[u8], packet_bytes: usize) -> Vec<(Piece, Vec<u8>)> {
    let cut = Cut::new(message.len(), packet_bytes);
    let template = Header::new(PacketKind::Message, 0);
    let packet = |index: u32| {
        let head = cut.head(index, &template, 0);
        let header = Header::parse(head.first_chunk().unwrap(), usize::MAX).unwrap();
        (header.piece, [&head[HEADER_BYTES..], &message[cut.range(index)]].concat())
    };
    (0..cut.packets()).map(packet).collect()
}

#[test]
fn messages_of_any_length_arrive_once_with_their_headers() {
    check("messages_of_any_length_arrive_once_with_their_headers", 500, |seed| {
        let mut rng = Rng::with_seed(seed);
        let (template, most) = (vec![9; rng.usize(..=MAX_PROTOCOL_HEADER_BYTES)], rng.usize(..10_000));
        let (protocol, delivered) = collector(DeliveryClass::Reliable, &template, most);
        let mut protocols = Protocols::default();
        protocols.register(5, Box::new(protocol)).unwrap();
        let (mut expected, mut counts) = (Vec::new(), ProtocolCounts::default());
        for number in 0..rng.u8(1..20) {
            let bytes = rng.usize(..20_000);
            let data: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(bytes).collect();
            let message = protocols.message(5, &data);
            counts.sent += 1;
            let mut header = template.clone();
            header.iter_mut().next_back().into_iter().for_each(|last| *last = number);
            for (piece, payload) in cut(&message, rng.usize(400..9000)) {
                protocols.take(5, piece, &payload, 0).unwrap();
            }
            if data.len() <= most {
                counts.received += 1;
                counts.received_bytes += data.len() as u64;
                expected.push((header, data));
            } else {
                counts.refused += 1;
            }
        }
        assert_eq!(delivered.try_iter().collect::<Vec<_>>(), expected);
        assert_eq!((protocols.counts(5), protocols.unknown()), (Some(counts), 0));
    });
}

/// Any pieces are taken where joining them would be, and refused where it would not.
#[test]
fn pieces_in_any_order_are_refused_as_a_joiner_refuses_them() {
    check("pieces_in_any_order_are_refused_as_a_joiner_refuses_them", 2000, |seed| {
        let mut rng = Rng::with_seed(seed);
        let (protocol, delivered) = collector(DeliveryClass::Reliable, &[0; 16], 300);
        let (mut protocols, mut joiner) = (Protocols::default(), Joiner::<Vec<u8>>::default());
        protocols.register(1, Box::new(protocol)).unwrap();
        let (number, mut first_bytes) = (rng.u32(..3), 0);
        for _ in 0..rng.u32(1..12) {
            let piece = [Piece::Whole, Piece::First, Piece::Middle, Piece::Last][rng.usize(..4)];
            let mut payload = vec![rng.u8(..); rng.usize(..200)];
            if piece == Piece::First && payload.len() >= 8 {
                let bytes = if rng.u32(..10) == 0 { u64::MAX } else { rng.u64(..400) };
                payload[..8].copy_from_slice(&bytes.to_le_bytes());
            }
            match piece {
                Piece::Whole => first_bytes = payload.len(),
                Piece::First => first_bytes = payload.len().saturating_sub(8),
                Piece::Middle | Piece::Last => {}
            }
            let joined = joiner.take(piece, &payload, MAX_MESSAGE_BYTES).map(|joined| joined.map(|j| j.to_vec()));
            let taken = protocols.take(number, piece, &payload, 0);
            assert_eq!(taken.is_ok(), joined.is_ok(), "{piece:?}: {taken:?}, {joined:?}");
            let Ok(message) = joined else { return };
            assert_eq!(protocols.has_begun(), joiner.has_begun());
            // The header is in the first packet, or the message is none of the protocol's.
            let fits = |message: &Vec<u8>| number == 1 && first_bytes >= 16 && message.len() <= 316;
            let message = message.filter(fits).map(|message| (message[..16].to_vec(), message[16..].to_vec()));
            assert_eq!(delivered.try_recv().ok(), message);
        }
    });
}

#[test]
fn messages_without_a_protocol_and_without_a_header_are_counted() {
    let (protocol, delivered) = collector(DeliveryClass::Reliable, &[1, 2, 3, 4], 100);
    let mut protocols = Protocols::default();
    protocols.register(7, Box::new(protocol)).unwrap();
    for number in [8, 1 << 16, u32::MAX] {
        protocols.take(number, Piece::Whole, b"anything", 0).unwrap();
        for (piece, payload) in cut(&[5; 3000], 1000) {
            protocols.take(number, piece, &payload, 0).unwrap();
        }
    }
    protocols.take(7, Piece::Whole, b"123", 0).unwrap();
    // Pieces of another number do not go on with it.
    let pieces = cut(&[6; 3000], 1000);
    protocols.take(7, pieces[0].0, &pieces[0].1, 0).unwrap();
    assert_eq!(protocols.take(8, pieces[1].0, &pieces[1].1, 0), Err(PieceError::OutOfPlace));
    assert_eq!((protocols.unknown(), protocols.counts(7).unwrap().malformed), (6, 1));
    assert!(delivered.try_recv().is_err());
}

#[test]
fn a_protocol_is_refused_with_the_reason() {
    let mut protocols = Protocols::default();
    let mut register = |number, header: usize| {
        let (protocol, _) = collector(DeliveryClass::Reliable, &vec![0; header], 0);
        protocols.register(number, Box::new(protocol)).err().map(|error| error.to_string())
    };
    assert_eq!(register(1, MAX_PROTOCOL_HEADER_BYTES), None);
    assert!(register(1, 0).unwrap().contains("choose another"));
    assert!(register(2, 257).unwrap().contains("257 bytes, and may have 256 at most"));
    (2..33).for_each(|number| assert_eq!(register(number, 0), None));
    assert!(register(33, 0).unwrap().contains("32 protocols at most"));
}

/// Two programs with a session and a reliable protocol 3 and one of datagrams 4 at both ends.
fn pair() -> (Direct, Direct, [Receiver<Delivered>; 2]) {
    let mut here = Direct::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let (reliable, delivered) = collector(DeliveryClass::Reliable, b"reliable ?", usize::MAX);
    let (datagram, came) = collector(DeliveryClass::Datagram, b"datagram ?", usize::MAX);
    here.register(3, reliable).unwrap();
    here.register(4, datagram).unwrap();
    let addr = here.local_addr();
    let dialling = std::thread::spawn(move || Direct::connect(addr, Duration::from_secs(20)).unwrap());
    eventually("the session stands", || {
        here.turn().unwrap();
        here.is_up()
    });
    let mut there = dialling.join().unwrap();
    there.register(3, collector(DeliveryClass::Reliable, b"reliable ?", 0).0).unwrap();
    there.register(4, collector(DeliveryClass::Datagram, b"datagram ?", 0).0).unwrap();
    (here, there, [delivered, came])
}

#[test]
fn protocols_pass_beside_records_and_calls() {
    let (mut here, mut there, [delivered, came]) = pair();
    let lengths = [0, 1, 1000, 65_000, 70_000, 3 << 20];
    let sent: Vec<Vec<u8>> = lengths.iter().zip(1..).map(|(len, byte)| vec![byte; *len]).collect();
    let (mut next, mut messages, mut datagrams, mut calls) = (0, Vec::new(), 0, 0);
    there.begin_call(b"first", Duration::from_secs(60)).unwrap();
    eventually("all messages come", || {
        if next < sent.len() && there.send_by(3, &sent[next]).unwrap() {
            there.begin_call(b"next", Duration::from_secs(60)).unwrap();
            next += 1;
        }
        there.send_by(4, b"a datagram").unwrap();
        there.turn().unwrap();
        here.turn().unwrap();
        here.serve(|_, _| {
            calls += 1;
            Ok(())
        })
        .unwrap();
        messages.extend(delivered.try_iter());
        datagrams +=
            came.try_iter().filter(|(header, data)| header.starts_with(b"datagram ") && data == b"a datagram").count();
        messages.len() == sent.len() && calls == 1 + sent.len() && datagrams > 0
    });
    for ((header, data), (number, sent)) in messages.iter().zip((0..).zip(&sent)) {
        assert!(header[..9] == *b"reliable " && header[9] == number && data == sent, "{number}");
    }
    let counts = here.protocol_counts(3).unwrap();
    assert_eq!((counts.received, counts.received_bytes), (6, lengths.iter().sum::<usize>() as u64));
    assert_eq!(there.protocol_counts(3).unwrap().sent, 6);
    assert_eq!((here.protocol_counts(0).unwrap().received, here.unknown_messages()), (7, 0));
}

#[test]
fn messages_that_cannot_be_sent_are_refused_with_the_reason() {
    let (_here, mut there, _) = pair();
    assert!(matches!(there.send_by(5, b""), Err(Error::Protocol { number: 5, .. })));
    assert!(matches!(there.send_by(0, b""), Err(Error::Protocol { number: 0, .. })));
    assert!(matches!(there.send_by(3, &vec![0; MAX_MESSAGE_BYTES]), Err(Error::TooLong { .. })));
    assert!(matches!(there.send_by(4, &vec![0; 65_536]), Err(Error::DatagramTooLong { .. })));
}
