//! The units that a client sends: super-packets of records, control messages, mailbox messages.

use crossdock_format::{Format, record_len};
use crossdock_mailbox::BufferMut;
use crossdock_mailbox::client::Put;
use crossdock_transport::{HEADER_BYTES, Header, Origin, PacketKind, SuperPacket, TrafficClass};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

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

/// The unit that a carrier sends as a whole, and keeps until the daemon has it.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Records of the stream number and format given, in a packet that the same carrier began.
    Records { packet: SuperPacket<PacketBuffer>, stream: u32, format: u64 },
    /// The same as datagrams.
    Datagrams { packet: SuperPacket<PacketBuffer>, stream: u32, format: u64 },
    /// A message, which the carrier cuts into packets if one is too short for it.
    Message(Message),
}

/// A control message, a mailbox's message, or a record that is longer than a packet.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The bytes, shared by the units that they are sent in.
    pub(crate) bytes: Arc<Vec<u8>>,
    /// The common part of the headers of all its packets.
    pub(crate) header: Header,
    pub(crate) class: TrafficClass,
    /// Packets of it that a carrier without units has sent.
    pub(crate) sent: u32,
}

impl Message {
    fn unit(bytes: impl Into<Arc<Vec<u8>>>, header: Header, class: TrafficClass) -> Outgoing {
        Outgoing::Message(Message { bytes: bytes.into(), header, class, sent: 0 })
    }

    /// A message for the mailbox that the session has open under this number.
    pub(crate) fn mailbox(number: u16, bytes: Vec<u8>) -> Outgoing {
        let header = Header { stream: number.into(), ..Header::new(PacketKind::Message, 0) };
        Message::unit(bytes, header, TrafficClass::Data(Origin::Mailbox(number.into())))
    }

    /// A control message.
    pub(crate) fn control(bytes: Vec<u8>, class: TrafficClass) -> Outgoing {
        Message::unit(bytes, Header::new(PacketKind::Control, 0), class)
    }

    /// A record that is longer than a packet, of the stream number and format given.
    pub(crate) fn record(bytes: impl Into<Arc<Vec<u8>>>, stream: u32, format: u64) -> Outgoing {
        let header = Header { stream, format, records: 1, ..Header::new(PacketKind::Data, 0) };
        Message::unit(bytes, header, TrafficClass::Data(Origin::Stream(stream)))
    }

    /// The part of it that goes into the next session when this one is lost: a record.
    pub(crate) fn unsent(&self) -> Option<Unsent> {
        let Header { kind, stream, format, .. } = self.header;
        (kind == PacketKind::Data).then(|| Unsent { stream, format, records: self.bytes.to_vec(), done: 0 })
    }
}

impl Outgoing {
    /// Its class in the order of sending.
    pub(crate) fn class(&self) -> TrafficClass {
        match self {
            Outgoing::Records { stream, .. } | Outgoing::Datagrams { stream, .. } => {
                TrafficClass::Data(Origin::Stream(*stream))
            }
            Outgoing::Message(message) => message.class,
        }
    }

    /// The records of datagrams, which go into no other session.
    pub(crate) fn datagram_records(&self) -> u64 {
        match self {
            Outgoing::Datagrams { packet, .. } => packet.records(),
            Outgoing::Records { .. } | Outgoing::Message(_) => 0,
        }
    }

    /// The part of it that goes into the next session when this one is lost: records. Control messages belonged to the
    /// old session, and so did the numbers of mailboxes.
    pub(crate) fn unsent(self) -> Option<Unsent> {
        match self {
            Outgoing::Records { packet, stream, format } => Some(unsent_records(&packet, stream, format)),
            Outgoing::Datagrams { .. } => None,
            Outgoing::Message(message) => message.unsent(),
        }
    }
}

/// The records of a packet that the daemon may not have.
pub(crate) fn unsent_records(packet: &SuperPacket<PacketBuffer>, stream: u32, format: u64) -> Unsent {
    let payloads = (0..).zip(packet.packets()).map(|(at, packed)| {
        // Behind the payload may be padding, up to the next packet.
        let payload = packet.bytes(at..at + 1).get(HEADER_BYTES..HEADER_BYTES + usize::from(packed.payload_bytes));
        debug_assert!(payload.is_some(), "a packet is a header and its payload");
        payload.unwrap_or_default()
    });
    Unsent { stream, format, records: payloads.collect::<Vec<_>>().concat(), done: 0 }
}

/// The first of some joined records, which are of format `of`, and the others.
fn split_record<'a>(records: &'a [u8], of: Option<&Format>) -> Option<(&'a [u8], &'a [u8])> {
    let len = of.map_or_else(|| record_len(records), |format| format.record_len(records))?;
    records.split_at_checked(len).filter(|_| len > 0)
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
    /// The next record that is not packed; the records are of format `of`.
    pub(crate) fn next_record(&self, of: Option<&Format>) -> Option<&[u8]> {
        split_record(self.records.get(self.done..)?, of).map(|(record, _)| record)
    }

    /// Packs as many of its records as fit; they are of format `of`.
    pub(crate) fn pack<B: DerefMut<Target = [u8]>>(&mut self, packet: &mut SuperPacket<B>, of: Option<&Format>) {
        while let Some(record) = self.next_record(of)
            && packet.push(record)
        {
            self.done += record.len();
        }
    }

    /// How many of its records, which are of format `of`, are not packed.
    pub(crate) fn count(&self, of: Option<&Format>) -> u64 {
        let mut rest = self.records.get(self.done..).unwrap_or_default();
        let mut count = 0;
        while let Some((_, after)) = split_record(rest, of) {
            (rest, count) = (after, count + 1);
        }
        count
    }

    /// Passes over the next `count` records, which are of format `of`, as if they were packed; returns how many there were.
    pub(crate) fn skip(&mut self, count: u64, of: Option<&Format>) -> u64 {
        let mut skipped = 0;
        while skipped < count
            && let Some(bytes) = self.next_record(of).map(<[u8]>::len)
        {
            self.done += bytes;
            skipped += 1;
        }
        skipped
    }

    /// Whether all are packed.
    pub(crate) fn is_done(&self) -> bool {
        self.done >= self.records.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crossdock_format::{RecordBuilder, Value};
    use crossdock_mailbox::{Pool, PoolConfig};

    /// The packets of a super-packet are a stride apart: behind a shorter payload is padding.
    #[test]
    fn records_of_any_length_are_left_over_as_they_were_packed() {
        let format = Format::parse_schema("n u64\ntext string").unwrap();
        let mut pool = Pool::new(PoolConfig { classes: vec![(64 << 10, 1)] }).unwrap();
        let mut packet = SuperPacket::new(PacketBuffer::Own(pool.alloc(64 << 10).unwrap()), 1472);
        let (mut row, mut records) = (RecordBuilder::new(&format), Vec::new());
        for n in 0..40 {
            row.clear();
            row.set(0, Value::Uint(n)).unwrap();
            row.set(1, Value::Text("x".repeat(n as usize * 37 % 700).as_bytes())).unwrap();
            let record = row.finish().unwrap();
            assert!(packet.push(record));
            records.push(record.to_vec());
        }
        assert!(packet.packets().len() > 2);
        let mut unsent = unsent_records(&packet, 1, format.id().0);
        assert_eq!(unsent.count(Some(&format)), 40);
        for record in records {
            assert_eq!(unsent.next_record(Some(&format)), Some(&record[..]));
            unsent.skip(1, Some(&format));
        }
        assert!(unsent.is_done());
    }
}
