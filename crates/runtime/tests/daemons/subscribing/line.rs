//! A client that sends what it likes without waiting for answers, over packets or by shared memory.

use crossdock_device::{Device, Poller, Sent, UdpDevice, UdpOptions};
use crossdock_mailbox::client::{Attachment, Reader, Wait, Writer};
use crossdock_mailbox::{Pool, PoolConfig};
use crossdock_runtime::ContextHandle;
use crossdock_transport::receiver::{Ack, MAX_ACK_BYTES};
use crossdock_transport::{ControlMessage, HEADER_BYTES, Header, Hello, PacketKind, Request, Welcome};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;

/// How long a test waits for what must come: only a broken build waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// An arrival.
#[derive(Debug)]
pub(crate) enum Came {
    Control(ControlMessage),
    /// Records of a subscription, by its number: how many.
    Records(u32, u64),
}

/// A session over packets.
pub(crate) struct Packets {
    device: UdpDevice,
    poller: Poller,
    pool: Pool,
    session: u32,
    seq: u64,
    next: u64,
    came: VecDeque<Vec<u8>>,
    /// The packets that are to leave as one super-packet, of packets of this length.
    leaving: Vec<u8>,
    stride: usize,
}

/// One session.
#[expect(clippy::large_enum_variant, reason = "a test has a few")]
pub(crate) enum Line {
    Packets(Packets),
    Memory { writer: Writer, reader: Reader, _attachment: Attachment },
}

impl Line {
    pub(crate) fn open(context: &ContextHandle, by_packets: bool) -> Line {
        if by_packets {
            return Line::greet(context);
        }
        let attachment = Attachment::connect(context.attach_addr().unwrap()).unwrap();
        let (writer, reader) = attachment.session().unwrap();
        Line::Memory { writer, reader, _attachment: attachment }
    }

    fn greet(context: &ContextHandle) -> Line {
        let device = UdpDevice::connect(context.local_addr(), UdpOptions::default()).unwrap();
        let (mut poller, pool) = (Poller::new().unwrap(), Pool::new(PoolConfig::default()).unwrap());
        poller.add(device.as_fd().unwrap(), 1).unwrap();
        let (session, seq, next, came, leaving, stride) = (0, 0, 0, VecDeque::new(), Vec::new(), 0);
        let mut packets = Packets { device, poller, pool, session, seq, next, came, leaving, stride };
        packets.leave(
            &Hello { nonce: 1, session: 77, packet_bytes: 1472, window_bytes: 64 * 1472, uses_mailboxes: false }
                .packet(),
        );
        packets.flush();
        let packet = packets.receive();
        assert_eq!(Header::read(&packet).unwrap().kind, PacketKind::Welcome);
        packets.session = Welcome::decode(&packet[HEADER_BYTES..]).unwrap().session;
        Line::Packets(packets)
    }

    fn send(&mut self, header: Header, payload: &[u8]) {
        match self {
            Line::Packets(packets) => packets.send(header, payload),
            Line::Memory { writer, .. } => {
                let header = Header { payload_bytes: payload.len() as u16, ..header };
                let mut put = writer.begin_put(HEADER_BYTES + payload.len(), Wait::at_most(PATIENCE)).unwrap();
                put[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
                put[HEADER_BYTES..].copy_from_slice(payload);
                writer.end_put(put).unwrap();
            }
        }
    }

    pub(crate) fn ask(&mut self, request: Request) {
        self.send(Header::new(PacketKind::Control, 0), &ControlMessage::Request(request).encode());
    }

    pub(crate) fn publish(&mut self, stream: u32, format: u64, records: u16, payload: &[u8]) {
        self.send(Header { stream, format, records, ..Header::new(PacketKind::Data, 0) }, payload);
    }

    /// The end, without waiting for anything that is owed.
    pub(crate) fn close(mut self) {
        self.send(Header::new(PacketKind::Close, 0), &[]);
        self.flush();
    }

    /// A sent packet leaves, if it has not already: over packets, as few super-packets as it fits in.
    pub(crate) fn flush(&mut self) {
        if let Line::Packets(packets) = self {
            packets.flush();
        }
    }

    /// The next thing that came.
    pub(crate) fn next(&mut self) -> Came {
        match self {
            Line::Packets(packets) => packets.next(),
            Line::Memory { reader, .. } => {
                let message = reader.begin_get(Wait::at_most(PATIENCE)).unwrap();
                let header = Header::read(&message).unwrap();
                let came = match header.kind {
                    PacketKind::Control => {
                        let payload = &message[HEADER_BYTES..][..header.payload_bytes.into()];
                        Came::Control(ControlMessage::decode(payload).unwrap())
                    }
                    PacketKind::Data => Came::Records(message.label().into(), header.records.into()),
                    other => panic!("{other:?}"),
                };
                reader.end_get(message);
                came
            }
        }
    }
}

impl Packets {
    fn send(&mut self, header: Header, payload: &[u8]) {
        let header = Header { seq: self.seq, session: self.session, ..header };
        self.seq += u64::from(matches!(header.kind, PacketKind::Data | PacketKind::Control));
        self.leave(&header.packet(payload).unwrap());
    }

    /// A packet joins the others, all as long but the last.
    fn leave(&mut self, packet: &[u8]) {
        if packet.len() > self.stride || self.leaving.len() > 16 * self.stride {
            self.flush();
            self.stride = packet.len();
        }
        self.leaving.extend_from_slice(packet);
        if packet.len() < self.stride {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(to) = self.device.peer_addr().filter(|_| !self.leaving.is_empty()) else { return };
        let sent = self.device.send(to, &[IoSlice::new(&self.leaving)], self.stride).unwrap();
        assert_eq!(sent, Sent::Done);
        self.leaving.clear();
        self.stride = 0;
    }

    fn receive(&mut self) -> Vec<u8> {
        while self.came.is_empty() {
            assert!(!self.poller.wait(Some(PATIENCE)).unwrap().is_empty(), "nothing within 20 s");
            let mut frames = Vec::new();
            self.device.receive(&mut self.pool, &mut frames, 8).unwrap();
            for frame in frames {
                self.came.extend(frame.buffer[..frame.len].chunks(frame.stride).map(<[u8]>::to_vec));
            }
        }
        self.came.pop_front().unwrap()
    }

    fn next(&mut self) -> Came {
        self.flush();
        loop {
            let packet = self.receive();
            let header = Header::read(&packet).unwrap();
            if !matches!(header.kind, PacketKind::Control | PacketKind::Data) {
                continue;
            }
            let is_next = header.seq == self.next;
            self.next += u64::from(is_next);
            let mut ack = Ack::new(self.next, self.next + 64);
            ack.control_limit = self.next + 64;
            let mut payload = [0; MAX_ACK_BYTES];
            let len = ack.encode(&mut payload);
            self.send(Header::new(PacketKind::Ack, 0), &payload[..len]);
            self.flush();
            match header.kind {
                // Sent again, or ahead of one that is: it comes again.
                _ if !is_next => {}
                PacketKind::Control => return Came::Control(ControlMessage::decode(&packet[HEADER_BYTES..]).unwrap()),
                _ => return Came::Records(header.stream, header.records.into()),
            }
        }
    }
}
