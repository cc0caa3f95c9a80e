//! What a client sends: super-packets of records, and control messages.

use crossdock_device::{Device, Sent};
use crossdock_mailbox::BufferMut;
use crossdock_transport::{HEADER_BYTES, Header, Kind, SuperPacket};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;

/// An outgoing unit, kept until it is acknowledged.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Records of the stream number and format given.
    Records { packet: SuperPacket<BufferMut>, stream: u32, format: u64 },
    /// A control message.
    Control(Vec<u8>),
}

impl Outgoing {
    /// Packets and bytes of the unit.
    pub(crate) fn size(&self) -> (u32, u64) {
        match self {
            Outgoing::Records { packet, .. } => (packet.packets().len() as u32, packet.len() as u64),
            Outgoing::Control(bytes) => (1, (bytes.len() + HEADER_BYTES) as u64),
        }
    }

    /// Sends the packets in `range`, numbered from `first_seq` for packet 0.
    pub(crate) fn transmit(
        &mut self,
        device: &mut dyn Device,
        addr: SocketAddr,
        to: u32,
        first_seq: u64,
        range: Range<u32>,
    ) -> io::Result<Sent> {
        match self {
            Outgoing::Records { packet, stream, format } => {
                let template = Header { stream: *stream, format: *format, ..Header::new(Kind::Data, to) };
                packet.write_headers(range.clone(), &template, first_seq);
                device.send(addr, &[IoSlice::new(packet.bytes(range))], packet.stride())
            }
            Outgoing::Control(message) => {
                let payload_bytes = message.len() as u16;
                let header = Header { payload_bytes, seq: first_seq, ..Header::new(Kind::Control, to) };
                let bytes = header.to_bytes();
                device.send(addr, &[IoSlice::new(&bytes), IoSlice::new(message)], bytes.len() + message.len())
            }
        }
    }
}
