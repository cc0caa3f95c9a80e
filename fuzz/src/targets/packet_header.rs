//! A frame from the network: every packet is walked or refused, every payload lies in the frame, and whatever decodes is
//! written back and decodes to the same. The first byte is the stride, in steps of eight bytes.
use crossdock_transport::handshake::Close;
use crossdock_transport::header::walk;
use crossdock_transport::parts::{Parts, Put};
use crossdock_transport::receiver::{Ack, MAX_ACK_BYTES};
use crossdock_transport::{ControlMessage, HEADER_BYTES, Header, Hello, PacketKind, Welcome};

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [stride, frame @ ..] = input else { return };
    let stride = usize::from(*stride) * 8;
    let (mut spans, mut runs, mut refused) = (Vec::new(), Vec::new(), 0);
    walk(frame, stride, &mut spans, &mut runs, |_| refused += 1);
    let packets: usize = runs.iter().map(|run| run.packets as usize).sum();
    let length = if stride == 0 { frame.len().max(1) } else { stride };
    assert_eq!(packets, spans.len());
    assert_eq!(packets + refused, frame.len().max(1).div_ceil(length));
    if let Some(close) = Hello::refuse_version(frame) {
        assert_eq!((close[0], close[1]), (frame[0], PacketKind::Close as u8));
    }
    let mut parts: Parts<Vec<u8>> = Parts::default();
    for run in &runs {
        for (ahead, span) in run.spans(&spans).iter().enumerate() {
            let payload = &frame[span.range()];
            let head = span.range().start - HEADER_BYTES;
            let header = Header::read(&frame[head..span.range().end]).expect("it was walked");
            assert_eq!((header.session, header.kind), (run.header.session, run.header.kind));
            assert_eq!(header.seq, run.header.seq.wrapping_add(ahead as u64));
            decode(header.kind, payload);
            if header.kind == PacketKind::Part
                && let Put::Whole(packet, len, _) = parts.put(&header, payload, (0, 0), |bytes| Some(vec![0; bytes]))
            {
                let inner = Header::read(&packet[..len]).expect("a packet that is none is refused");
                assert_eq!((inner.session, inner.seq), (header.session, header.seq));
                assert_ne!(inner.kind, PacketKind::Part);
            }
        }
    }
}

/// Each kind's payload, as its receiver reads it.
fn decode(kind: PacketKind, payload: &[u8]) {
    match kind {
        PacketKind::Hello => {
            if let Ok(hello) = Hello::decode(payload) {
                assert_eq!(Hello::decode(&hello.packet()[HEADER_BYTES..]), Ok(hello));
            }
        }
        PacketKind::Welcome => {
            if let Ok(welcome) = Welcome::decode(payload) {
                assert_eq!(Welcome::decode(&welcome.packet(7)[HEADER_BYTES..]), Ok(welcome));
            }
        }
        PacketKind::Control => {
            if let Ok(message) = ControlMessage::decode(payload) {
                assert_eq!(ControlMessage::decode(&message.encode()), Ok(message));
            }
        }
        PacketKind::Ack => {
            if let Ok(ack) = Ack::decode(payload) {
                let mut written = [0; MAX_ACK_BYTES];
                let len = ack.encode(&mut written);
                assert_eq!(Ack::decode(&written[..len]), Ok(ack));
            }
        }
        PacketKind::Close => {
            let close = Close::decode(payload);
            let again = Close::decode(&close.packet(7)[HEADER_BYTES..]);
            assert_eq!(again.again, close.again);
            assert!(close.reason.starts_with(&again.reason), "a long reason is cut");
        }
        PacketKind::Data
        | PacketKind::Datagram
        | PacketKind::Message
        | PacketKind::Part
        | PacketKind::Ping
        | PacketKind::Probe
        | PacketKind::Probed
        | PacketKind::Reset => {}
    }
}
