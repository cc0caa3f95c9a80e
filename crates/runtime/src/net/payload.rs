//! The units of a session over packets: super-packets that are built here, batches that leave unchanged, messages in
//! pieces, and what arrives.

use crate::graph::bounds::is_long;
use crate::net::carrier::Recipient;
use crate::net::joining::LEAST_PIECE_BYTES;
use crossdock_device::{Device, Sent};
use crossdock_mailbox::{Batch, Buffer, BufferMut, Fragments};
use crossdock_transport::header::PayloadSpan;
use crossdock_transport::pieces::Head;
use crossdock_transport::{
    Cut, HEADER_BYTES, Header, Lengths, MAX_PACKETS, MAX_SUPER_BYTES, Origin, PacketKind, Session, SuperPacket,
    TrafficClass,
};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Slices of the packets of a message that one system call sends: a head for each, and its part of the message in as many slices as there
/// are ends of packets and of pieces in it. All but the last piece of a record have [`LEAST_PIECE_BYTES`] bytes or more.
const MAX_SLICES: usize = 2 * MAX_PACKETS + MAX_SUPER_BYTES / LEAST_PIECE_BYTES + 2;

/// An outgoing unit: what one system call sends, kept until it is acknowledged.
#[derive(Debug)]
pub(crate) enum Payload {
    /// Records that were copied together.
    Packed { packet: SuperPacket<BufferMut>, format: u64, to: Recipient },
    /// The same, each packet sent once.
    Datagrams { packet: SuperPacket<BufferMut>, format: u64, to: Recipient },
    /// A batch that passes whole, as the bytes that it came in; others may share it.
    Whole { batch: Arc<Batch>, to: Recipient },
    /// Packets of a message, from packet `from` on.
    Message { content: Content, cut: Cut, from: u32 },
}

/// A message, which is cut into packets if one is too short for it.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A control message.
    Control(Rc<[u8]>, TrafficClass),
    /// A mailbox's message: the first `len` bytes of the buffer, for the mailbox that the session has open under
    /// `number`.
    Mailbox { buffer: Buffer, len: usize, number: u32 },
    /// A record that is longer than a packet: the one of the batch.
    Record { batch: Arc<Batch>, to: Recipient },
}

impl Content {
    /// Its bytes where they lie: a record that came in pieces leaves in others, and is not joined for that.
    fn fragments(&self) -> Fragments<'_> {
        match self {
            Content::Control(message, _) => Fragments::from(&**message),
            Content::Mailbox { buffer, len, .. } => Fragments::from(&buffer[..*len]),
            Content::Record { batch, .. } => batch.fragments(0),
        }
    }

    /// The common part of the headers of all its packets to the peer's session `to`.
    fn template(&self, to: u32) -> Header {
        match self {
            Content::Control(..) => Header::new(PacketKind::Control, to),
            Content::Mailbox { number, .. } => Header { stream: *number, ..Header::new(PacketKind::Message, to) },
            Content::Record { batch, to: Recipient { subscription, .. } } => {
                Header { stream: *subscription, format: batch.format, records: 1, ..Header::new(PacketKind::Data, to) }
            }
        }
    }

    /// Puts it into the session's queue.
    pub(crate) fn enqueue(self, session: &mut Session<Payload, Arrived>) {
        let class = match &self {
            Content::Control(_, class) => *class,
            Content::Mailbox { number, .. } => TrafficClass::Data(Origin::Mailbox(*number)),
            Content::Record { to, .. } => TrafficClass::Data(Origin::Stream(to.subscription)),
        };
        let cut = Cut::new(self.fragments().len(), session.packet_bytes());
        for packets in cut.units() {
            let payload = Payload::Message { content: self.clone(), cut, from: packets.start };
            session.sender.enqueue_super(payload, cut.lengths(packets), class, false);
        }
    }
}

/// A run of packets that arrived.
#[derive(Debug)]
pub(crate) enum Arrived {
    /// It lies in the frame that is being taken right now.
    Here,
    /// It came ahead of a hole and was kept.
    Kept { buffer: Buffer, header: Header, spans: Vec<PayloadSpan>, stride: usize },
}

/// Packets that wait until a request of their session is answered.
#[derive(Debug)]
pub(crate) enum Deferred {
    /// A run of packets, in order.
    Packets {
        /// The buffer that holds them.
        buffer: Buffer,
        /// The first one's header.
        header: Header,
        /// Their payloads.
        spans: Vec<PayloadSpan>,
        /// The distance from one to the next.
        stride: usize,
    },
    /// The session's end, and why.
    End(&'static str),
}

impl Payload {
    /// Puts records into the session's queue.
    pub(crate) fn enqueue_packed(
        packet: SuperPacket<BufferMut>,
        format: u64,
        to: Recipient,
        session: &mut Session<Payload, Arrived>,
    ) {
        let lengths = packet.lengths();
        Payload::Packed { packet, format, to }.enqueue_data(lengths, to, session);
    }

    /// Puts records into the session's queue of datagrams; of those that it drops for it, `lost` gets the subscription and how many.
    pub(crate) fn enqueue_datagrams(
        packet: SuperPacket<BufferMut>,
        format: u64,
        to: Recipient,
        session: &mut Session<Payload, Arrived>,
        mut lost: impl FnMut((u32, u64)),
    ) {
        let (packets, bytes) = (packet.packets().len() as u32, packet.len() as u64);
        let payload = Payload::Datagrams { packet, format, to };
        session.sender.enqueue_datagrams(payload, packets, bytes, |payload, unsent| {
            let Payload::Datagrams { packet, to, .. } = payload else { return };
            let packets = packet.packets().get(unsent.start as usize..unsent.end as usize).unwrap_or_default();
            lost((to.subscription, packets.iter().map(|packed| u64::from(packed.records)).sum()));
        });
    }

    /// Puts a batch that passes whole into the session's queue: as it is, or in pieces.
    pub(crate) fn enqueue_whole(batch: Arc<Batch>, to: Recipient, session: &mut Session<Payload, Arrived>) {
        if is_long(&batch) {
            return Content::Record { batch, to }.enqueue(session);
        }
        let (packets, stride) = (batch.slices.len(), batch.stride as u64);
        let last = batch.slices.last().map_or(0, |slice| u64::from(slice.len) + HEADER_BYTES as u64);
        let bytes = (packets as u64).saturating_sub(1) * stride + last;
        let lengths = Lengths { packets: packets as u32, stride, bytes };
        Payload::Whole { batch, to }.enqueue_data(lengths, to, session);
    }

    fn enqueue_data(self, lengths: Lengths, to: Recipient, session: &mut Session<Payload, Arrived>) {
        let class = TrafficClass::Data(Origin::Stream(to.subscription));
        session.sender.enqueue_super(self, lengths, class, to.droppable);
    }

    /// Records in it, and the subscription they are for.
    pub(crate) fn records(&self) -> Option<(u32, u64)> {
        match self {
            Payload::Packed { packet, to, .. } | Payload::Datagrams { packet, to, .. } => {
                Some((to.subscription, packet.records()))
            }
            Payload::Whole { batch, to, .. } => Some((to.subscription, batch.len() as u64)),
            Payload::Message { content: Content::Record { to, .. }, .. } => Some((to.subscription, 1)),
            Payload::Message { .. } => None,
        }
    }

    /// Sends the packets in `range`, numbered from `first_seq` for packet 0, to the peer's session `to`.
    pub(crate) fn transmit(
        &mut self,
        device: &mut dyn Device,
        addr: SocketAddr,
        to: u32,
        first_seq: u64,
        range: Range<u32>,
    ) -> io::Result<Sent> {
        let kind = if matches!(self, Payload::Datagrams { .. }) { PacketKind::Datagram } else { PacketKind::Data };
        match self {
            Payload::Packed { packet, format, to: Recipient { subscription, .. } }
            | Payload::Datagrams { packet, format, to: Recipient { subscription, .. } } => {
                let template = Header { stream: *subscription, format: *format, ..Header::new(kind, to) };
                packet.write_headers(range.clone(), &template, first_seq);
                device.send(addr, &[IoSlice::new(packet.bytes(range))], packet.stride())
            }
            Payload::Whole { batch, to: Recipient { subscription, .. } } => {
                let template =
                    Header { stream: *subscription, format: batch.format, ..Header::new(PacketKind::Data, to) };
                let stride = batch.stride;
                match in_place(batch, &template, first_seq, range.clone()) {
                    Some(bytes) => device.send(addr, &[IoSlice::new(bytes)], stride),
                    None => gather(batch, device, addr, &template, first_seq, range),
                }
            }
            Payload::Message { content, cut, from } => {
                // Packet 0 of the message, which may be before the unit's.
                let (template, first_seq) = (content.template(to), first_seq.wrapping_sub((*from).into()));
                let packets = range.start + *from..range.end + *from;
                let bytes = content.fragments();
                let mut heads = [Head::EMPTY; MAX_PACKETS];
                for (head, index) in heads.iter_mut().zip(packets.clone()) {
                    *head = cut.head(index, &template, first_seq);
                }
                let parts = heads
                    .iter()
                    .zip(packets)
                    .flat_map(|(head, index)| std::iter::once::<&[u8]>(head).chain(bytes.range(cut.range(index))));
                let (mut slices, mut count) = ([IoSlice::new(&[]); MAX_SLICES], 0);
                for (slice, part) in slices.iter_mut().zip(parts) {
                    *slice = IoSlice::new(part);
                    count += 1;
                }
                device.send(addr, &slices[..count], cut.stride())
            }
        }
    }
}

/// The header of packet `index` of a batch.
fn slice_header(batch: &Batch, template: &Header, first_seq: u64, index: u32) -> Header {
    let slice = batch.slices[index as usize];
    Header {
        payload_bytes: slice.len as u16,
        records: slice.records as u16,
        seq: first_seq + u64::from(index),
        ..*template
    }
}

/// Writes new headers over those that the packets came with, if the buffer has no other holder; returns the bytes to
/// send.
fn in_place<'a>(batch: &'a mut Arc<Batch>, template: &Header, first_seq: u64, range: Range<u32>) -> Option<&'a [u8]> {
    let alone = Arc::get_mut(batch)?;
    if alone.buffers.len() != 1 {
        return None;
    }
    let mut bytes = match alone.buffers.pop()?.try_mut() {
        Ok(bytes) => bytes,
        Err(shared) => {
            alone.buffers.push(shared);
            return None;
        }
    };
    for index in range.clone() {
        let at = alone.slices[index as usize].start as usize - HEADER_BYTES;
        bytes[at..at + HEADER_BYTES].copy_from_slice(&slice_header(alone, template, first_seq, index).to_bytes());
    }
    alone.buffers.push(bytes.freeze());
    let (first, last) = (alone.slices[range.start as usize], alone.slices[range.end as usize - 1]);
    let start = first.start as usize - HEADER_BYTES;
    let end = match alone.slices.get(range.end as usize) {
        // All packets but the last are as long as the stride.
        Some(next) => next.start as usize - HEADER_BYTES,
        None => (last.start + last.len) as usize,
    };
    Some(&alone.buffers[0][start..end])
}

/// Sends packets whose buffer others hold too: headers from here, payloads from there.
fn gather(
    batch: &Batch,
    device: &mut dyn Device,
    addr: SocketAddr,
    template: &Header,
    first_seq: u64,
    range: Range<u32>,
) -> io::Result<Sent> {
    let stride = batch.stride;
    let mut headers = [[0; HEADER_BYTES]; MAX_PACKETS];
    let mut slices = [IoSlice::new(&[]); 2 * MAX_PACKETS];
    for (header, index) in headers.iter_mut().zip(range.clone()) {
        *header = slice_header(batch, template, first_seq, index).to_bytes();
    }
    let mut count = 0;
    for (header, index) in headers.iter().zip(range.clone()) {
        let slice = batch.slices[index as usize];
        let buffer = &batch.buffers[slice.buffer as usize];
        // All packets but the last are as long as the stride; the padding that came with them goes on.
        let end = if index as usize + 1 == batch.slices.len() {
            (slice.start + slice.len) as usize
        } else {
            slice.start as usize + stride - HEADER_BYTES
        };
        slices[count] = IoSlice::new(header);
        slices[count + 1] = IoSlice::new(&buffer[slice.start as usize..end]);
        count += 2;
    }
    device.send(addr, &slices[..count], stride)
}
