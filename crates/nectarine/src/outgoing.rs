//! What a client sends: super-packets of records, control messages, mailbox messages.

use crossdock_device::{Device, Sent};
use crossdock_format::{Format, record_len};
use crossdock_mailbox::BufferMut;
use crossdock_mailbox::client::Put;
use crossdock_transport::{HEADER_BYTES, Header, Kind, SuperPacket};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut, Range};

/// Where a packet of records is filled.
#[derive(Debug)]
pub(crate) enum PacketBuffer {
    /// In memory of this process's own.
    Own(BufferMut),
    /// In memory shared with the daemon, granted for this session.
    Shared { put: Put, session: u64 },
}

impl Deref for PacketBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            PacketBuffer::Own(buffer) => buffer,
            PacketBuffer::Shared { put, .. } => put,
        }
    }
}

impl DerefMut for PacketBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            PacketBuffer::Own(buffer) => buffer,
            PacketBuffer::Shared { put, .. } => put,
        }
    }
}

/// An outgoing unit, kept until the daemon has it.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Records of the stream number and format given.
    Records { packet: SuperPacket<PacketBuffer>, stream: u32, format: u64 },
    /// Records that a lost session left over: they are packed anew for the next one.
    Again(Again),
    /// A control message.
    Control(Vec<u8>),
    /// A message for the mailbox that the session has open under this number.
    Message { number: u16, bytes: Vec<u8> },
}

/// Records of one stream and format, joined, of which the first `done` bytes are packed already.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) stream: u32,
    pub(crate) format: u64,
    pub(crate) records: Vec<u8>,
    pub(crate) done: usize,
}

impl Outgoing {
    /// Packets and bytes of the unit.
    pub(crate) fn size(&self) -> (u32, u64) {
        match self {
            Outgoing::Records { packet, .. } => (packet.packets().len() as u32, packet.len() as u64),
            Outgoing::Again(again) => (1, (again.records.len() - again.done) as u64),
            Outgoing::Control(bytes) | Outgoing::Message { bytes, .. } => (1, (bytes.len() + HEADER_BYTES) as u64),
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
            Outgoing::Control(message) => send_one(device, addr, Header::new(Kind::Control, to), first_seq, message),
            Outgoing::Message { number, bytes } => {
                let header = Header { stream: u32::from(*number), ..Header::new(Kind::Message, to) };
                send_one(device, addr, header, first_seq, bytes)
            }
            // What is to be packed anew never enters a session as it is.
            Outgoing::Again(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// What of it goes into the next session when this one is lost: records. Control messages belonged to the old session,
    /// and so did the numbers of mailboxes.
    pub(crate) fn again(self) -> Option<Again> {
        match self {
            Outgoing::Records { packet, stream, format } => {
                let packets = 0..packet.packets().len() as u32;
                let payloads = packets.map(|at| packet.bytes(at..at + 1).get(HEADER_BYTES..).unwrap_or_default());
                Some(Again { stream, format, records: payloads.collect::<Vec<_>>().concat(), done: 0 })
            }
            Outgoing::Again(again) => Some(again),
            Outgoing::Control(_) | Outgoing::Message { .. } => None,
        }
    }
}

impl Again {
    /// Packs as many of its records as fit; they are of format `of`.
    pub(crate) fn pack<B: DerefMut<Target = [u8]>>(&mut self, packet: &mut SuperPacket<B>, of: Option<&Format>) {
        while let Some(rest) = self.records.get(self.done..)
            && let Some(len) = of.map_or_else(|| record_len(rest), |format| format.record_len(rest))
            && let Some(record) = rest.get(..len)
            && packet.push(record)
        {
            self.done += record.len();
        }
    }

    /// Whether all are packed.
    pub(crate) fn is_done(&self) -> bool {
        self.done >= self.records.len()
    }
}

/// Sends one packet.
fn send_one(device: &mut dyn Device, addr: SocketAddr, header: Header, seq: u64, payload: &[u8]) -> io::Result<Sent> {
    let bytes = Header { payload_bytes: payload.len() as u16, seq, ..header }.to_bytes();
    device.send(addr, &[IoSlice::new(&bytes), IoSlice::new(payload)], bytes.len() + payload.len())
}
