//! A client that sends any packet, as no library would.

use super::format;
use crossdock_transport::handshake::Close;
use crossdock_transport::receiver::Ack;
use crossdock_transport::{ControlMessage, HEADER_BYTES, Header, Hello, PacketKind, Piece, Reply, Request, Welcome};
use std::net::UdpSocket;
use std::time::Duration;

/// A client that says what it likes.
pub(crate) struct Raw {
    pub(crate) socket: UdpSocket,
    pub(crate) session: u32,
    pub(crate) seq: u64,
    /// The packets that it has sent to the daemon by its own methods.
    pub(crate) packets: u64,
    /// Behind the last reply that was taken.
    next: u64,
}

impl Raw {
    pub(crate) fn connect(addr: &str) -> Raw {
        Raw::connect_from("127.0.0.1", addr)
    }

    pub(crate) fn connect_from(own: &str, addr: &str) -> Raw {
        let socket = UdpSocket::bind((own, 0)).unwrap();
        socket.connect(addr).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Raw { socket, session: 0, seq: 0, packets: 0, next: 0 }
    }

    /// Begins a session at the home context.
    pub(crate) fn greet(&mut self) -> Result<(), Close> {
        self.greet_as(true)
    }

    /// The same at the context to which the kernel brings the packet, unless it `uses_mailboxes`.
    pub(crate) fn greet_as(&mut self, uses_mailboxes: bool) -> Result<(), Close> {
        let hello = Hello { nonce: 1, session: 77, packet_bytes: 1472, window_bytes: 16 * 1472, uses_mailboxes };
        self.socket.send(&hello.packet()).unwrap();
        self.packets += 1;
        let (header, payload) = self.receive(|kind| matches!(kind, PacketKind::Welcome | PacketKind::Close));
        if header.kind == PacketKind::Close {
            return Err(Close::decode(&payload));
        }
        (self.session, self.next) = (Welcome::decode(&payload).unwrap().session, 0);
        Ok(())
    }

    pub(crate) fn receive(&self, wanted: impl Fn(PacketKind) -> bool) -> (Header, Vec<u8>) {
        let mut packet = [0; 65_536];
        loop {
            let len = self.socket.recv(&mut packet).unwrap();
            let header = Header::read(&packet[..len]).unwrap();
            if wanted(header.kind) {
                return (header, packet[HEADER_BYTES..len].to_vec());
            }
        }
    }

    pub(crate) fn send(&mut self, kind: PacketKind, stream: u32, format: u64, records: u16, payload: &[u8]) {
        let header = Header { seq: self.seq, stream, format, records, ..Header::new(kind, self.session) };
        self.seq += u64::from(matches!(kind, PacketKind::Data | PacketKind::Control));
        self.socket.send(&header.packet(payload).unwrap()).unwrap();
        self.packets += 1;
    }

    /// Waits until all that was sent has arrived.
    pub(crate) fn confirm(&mut self) {
        // Acks of what was sent before may be on the way.
        for _ in 0..1000 {
            self.send(PacketKind::Ping, 0, 0, 0, b"");
            if Ack::decode(&self.receive(|kind| kind == PacketKind::Ack).1).unwrap().next_seq == self.seq {
                return;
            }
        }
        panic!("what was sent does not arrive");
    }

    /// A piece of a message, in the place of the packet that comes next.
    pub(crate) fn send_piece(&mut self, kind: PacketKind, piece: Piece, payload: &[u8]) {
        let header = Header {
            seq: self.seq,
            piece,
            stream: 1,
            format: format().id().0,
            records: 1,
            ..Header::new(kind, self.session)
        };
        self.seq += 1;
        self.socket.send(&header.packet(payload).unwrap()).unwrap();
        self.packets += 1;
    }

    /// The reason for which the daemon has ended the session.
    pub(crate) fn close(&self) -> String {
        Close::decode(&self.receive(|kind| kind == PacketKind::Close).1).reason
    }

    pub(crate) fn ask(&mut self, request: Request) -> Reply {
        self.send(PacketKind::Control, 0, 0, 0, &ControlMessage::Request(request).encode());
        loop {
            let (header, payload) = self.receive(|kind| kind == PacketKind::Control);
            // Nothing acknowledges what came before, so it may come again.
            if header.seq < self.next {
                continue;
            }
            self.next = header.seq + 1;
            match ControlMessage::decode(&payload).unwrap() {
                ControlMessage::Reply(reply) => return reply,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Asks for a query, under this number.
pub(crate) fn subscribe(number: u32, sql: &str) -> Request {
    Request::Subscribe {
        id: number,
        subscription: number,
        sql: sql.to_owned(),
        overflow: None,
        wait: false,
        accept: Vec::new(),
        unreadable: None,
        row_errors: Default::default(),
        positions: false,
        one_format: false,
    }
}
