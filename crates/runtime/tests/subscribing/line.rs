//! A client that sends what it likes without waiting for answers, over packets or by shared memory.

use crossdock_mailbox::client::{Attachment, Reader, Wait, Writer};
use crossdock_runtime::ContextHandle;
use crossdock_transport::receiver::{Ack, MAX_ACK_BYTES};
use crossdock_transport::{ControlMessage, HEADER_BYTES, Header, Hello, Kind, Request, Welcome};
use std::net::UdpSocket;
use std::time::Duration;

/// How long a test waits for what must come: only a broken build waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came.
#[derive(Debug)]
pub(crate) enum Came {
    Control(ControlMessage),
    /// Records of a subscription, by its number: how many.
    Records(u32, u64),
}

/// One session.
#[expect(clippy::large_enum_variant, reason = "a test has a few")]
pub(crate) enum Line {
    Packets { socket: UdpSocket, session: u32, seq: u64, next: u64 },
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
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(context.local_addr()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let hello = Hello { nonce: 1, session: 77, packet_bytes: 1472, window_packets: 64 };
        socket.send(&hello.packet()).unwrap();
        let mut packet = [0; 2048];
        let len = socket.recv(&mut packet).unwrap();
        assert_eq!(Header::read(&packet[..len]).unwrap().kind, Kind::Welcome);
        let session = Welcome::decode(&packet[HEADER_BYTES..len]).unwrap().session;
        Line::Packets { socket, session, seq: 0, next: 0 }
    }

    fn send(&mut self, header: Header, payload: &[u8]) {
        match self {
            Line::Packets { socket, session, seq, .. } => {
                let header = Header { seq: *seq, session: *session, ..header };
                *seq += u64::from(matches!(header.kind, Kind::Data | Kind::Control));
                socket.send(&header.packet(payload).unwrap()).unwrap();
            }
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
        self.send(Header::new(Kind::Control, 0), &ControlMessage::Request(request).encode());
    }

    pub(crate) fn publish(&mut self, stream: u32, format: u64, records: u16, payload: &[u8]) {
        self.send(Header { stream, format, records, ..Header::new(Kind::Data, 0) }, payload);
    }

    /// The end, without waiting for anything that is owed.
    pub(crate) fn close(mut self) {
        self.send(Header::new(Kind::Close, 0), &[]);
    }

    /// The next thing that came.
    pub(crate) fn next(&mut self) -> Came {
        match self {
            Line::Packets { .. } => self.next_packet(),
            Line::Memory { reader, .. } => {
                let message = reader.begin_get(Wait::at_most(PATIENCE)).unwrap();
                let header = Header::read(&message).unwrap();
                let came = match header.kind {
                    Kind::Control => {
                        let payload = &message[HEADER_BYTES..][..header.payload_bytes.into()];
                        Came::Control(ControlMessage::decode(payload).unwrap())
                    }
                    Kind::Data => Came::Records(message.label().into(), header.records.into()),
                    other => panic!("{other:?}"),
                };
                reader.end_get(message);
                came
            }
        }
    }

    fn next_packet(&mut self) -> Came {
        let mut packet = [0; 2048];
        loop {
            let Line::Packets { socket, next, .. } = self else { unreachable!("it speaks by packets") };
            let len = socket.recv(&mut packet).unwrap();
            let header = Header::read(&packet[..len]).unwrap();
            if !matches!(header.kind, Kind::Control | Kind::Data) {
                continue;
            }
            let is_next = header.seq == *next;
            *next += u64::from(is_next);
            let mut ack = [0; MAX_ACK_BYTES];
            let len_of_ack = Ack::new(*next, *next + 64).encode(&mut ack);
            self.send(Header::new(Kind::Ack, 0), &ack[..len_of_ack]);
            match header.kind {
                // Sent again, or ahead of one that is: it comes again.
                _ if !is_next => {}
                Kind::Control => return Came::Control(ControlMessage::decode(&packet[HEADER_BYTES..len]).unwrap()),
                _ => return Came::Records(header.stream, header.records.into()),
            }
        }
    }
}
