//! The memory that a subscription's records are packed into until they leave: a super-packet in the context's pool, or
//! one packet in an attached client's inbox.

use crossdock_mailbox::BufferMut;
use crossdock_mailbox::host::Draft;
use crossdock_transport::{HEADER_BYTES, Header, MAX_SUPER_BYTES, PacketKind, SuperPacket};

/// Records of one format that are being packed for a subscription.
#[derive(Debug)]
pub(crate) struct OpenPacket {
    pub(crate) space: Space,
    /// The records' format, by id.
    pub(crate) format: u64,
    /// The context's time when the first record came, in ns.
    pub(crate) opened_ns: u64,
}

/// The memory of an open packet.
#[derive(Debug)]
pub(crate) enum Space {
    /// Packets of a session over packets.
    Super(SuperPacket<BufferMut>),
    /// A packet of an attached client's session.
    Single(SinglePacket),
}

impl Space {
    /// Appends `records` records that lie back to back, only one to a super-packet; `false` when they do not fit any
    /// more.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8], records: u16) -> bool {
        match self {
            Space::Super(packet) => {
                debug_assert_eq!(records, 1, "a super-packet cuts its packets between records");
                packet.push(bytes)
            }
            Space::Single(packet) => packet.push(bytes, records),
        }
    }

    /// Bytes in use, headers included.
    pub(crate) fn len(&self) -> usize {
        match self {
            Space::Super(packet) => packet.len(),
            Space::Single(packet) => packet.used,
        }
    }
}

/// One packet of any length up to the longest.
#[derive(Debug)]
pub(crate) struct SinglePacket {
    memory: Memory,
    used: usize,
    records: u16,
}

/// The location of a single packet's bytes.
#[derive(Debug)]
pub(crate) enum Memory {
    /// The inbox that the client's domain reads.
    Inbox(Draft),
    /// The daemon's own memory, while the inbox is full.
    Own(Box<[u8]>),
}

impl SinglePacket {
    /// An empty packet in `memory`, which is longer than a header.
    pub(crate) fn new(memory: Memory) -> SinglePacket {
        SinglePacket { memory, used: HEADER_BYTES, records: 0 }
    }

    /// Number of records.
    pub(crate) fn records(&self) -> u16 {
        self.records
    }

    #[inline]
    fn push(&mut self, bytes: &[u8], records: u16) -> bool {
        let end = self.used + bytes.len();
        // The header counts no more.
        let Some(records) = self.records.checked_add(records) else { return false };
        match self.memory.bytes().get_mut(self.used..end) {
            Some(room) if end <= MAX_SUPER_BYTES => room.copy_from_slice(bytes),
            _ => return false,
        }
        (self.used, self.records) = (end, records);
        true
    }

    /// The memory with the header in front, and the number of bytes in use.
    pub(crate) fn finish(mut self, subscription: u32, format: u64) -> (Memory, usize) {
        let payload_bytes = (self.used - HEADER_BYTES) as u16;
        let template = Header::new(PacketKind::Data, 0);
        let header = Header { stream: subscription, format, records: self.records, payload_bytes, ..template };
        self.memory.bytes()[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        (self.memory, self.used)
    }
}

impl Memory {
    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Memory::Inbox(draft) => draft,
            Memory::Own(own) => own,
        }
    }
}
