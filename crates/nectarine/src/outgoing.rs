//! What a client sends: super-packets of records, control messages, mailbox messages.

use crossdock_format::{Format, record_len};
use crossdock_mailbox::BufferMut;
use crossdock_mailbox::client::Put;
use crossdock_transport::{HEADER_BYTES, Origin, SuperPacket, TrafficClass};
use std::ops::{Deref, DerefMut};

/// Where a packet of records is filled.
#[derive(Debug)]
pub(crate) enum PacketBuffer {
    /// In memory of this process's own.
    Own(BufferMut),
    /// In memory shared with the daemon.
    Shared(Put),
}

impl Deref for PacketBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            PacketBuffer::Own(buffer) => buffer,
            PacketBuffer::Shared(put) => put,
        }
    }
}

impl DerefMut for PacketBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            PacketBuffer::Own(buffer) => buffer,
            PacketBuffer::Shared(put) => put,
        }
    }
}

/// What a carrier sends as a whole, and keeps until the daemon has it.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Records of the stream number and format given, in a packet that the same carrier began.
    Records { packet: SuperPacket<PacketBuffer>, stream: u32, format: u64 },
    /// A message for the mailbox that the session has open under `number`.
    Message { number: u32, payload: Vec<u8> },
    /// A control message.
    Control { payload: Vec<u8>, class: TrafficClass },
}

impl Outgoing {
    /// A message for the mailbox that the session has open under this number.
    pub(crate) fn message(number: u16, bytes: Vec<u8>) -> Outgoing {
        Outgoing::Message { number: number.into(), payload: bytes }
    }

    /// What it is in the order of what is sent.
    pub(crate) fn class(&self) -> TrafficClass {
        match self {
            Outgoing::Records { stream, .. } => TrafficClass::Data(Origin::Stream(*stream)),
            Outgoing::Message { number, .. } => TrafficClass::Data(Origin::Mailbox(*number)),
            Outgoing::Control { class, .. } => *class,
        }
    }

    /// Packets that it takes, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        match self {
            Outgoing::Records { packet, .. } => (packet.packets().len(), packet.len()),
            Outgoing::Message { payload, .. } | Outgoing::Control { payload, .. } => (1, HEADER_BYTES + payload.len()),
        }
    }

    /// What of it goes into the next session when this one is lost: records. Control messages belonged to the old session,
    /// and so did the numbers of mailboxes.
    pub(crate) fn unsent(self) -> Option<Unsent> {
        match self {
            Outgoing::Records { packet, stream, format } => {
                let packets = 0..packet.packets().len() as u32;
                let payloads = packets.map(|at| {
                    let payload = packet.bytes(at..at + 1).get(HEADER_BYTES..);
                    debug_assert!(payload.is_some(), "a packet begins with a header");
                    payload.unwrap_or_default()
                });
                Some(Unsent { stream, format, records: payloads.collect::<Vec<_>>().concat(), done: 0 })
            }
            Outgoing::Message { .. } | Outgoing::Control { .. } => None,
        }
    }
}

/// Records of one stream and format that a lost session left over, joined: they are packed again for the next session. The first
/// `done` bytes are packed already.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) stream: u32,
    pub(crate) format: u64,
    pub(crate) records: Vec<u8>,
    pub(crate) done: usize,
}

impl Unsent {
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
