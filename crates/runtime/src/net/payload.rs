//! The units of a session over packets: super-packets that are built here, batches that leave unchanged, control
//! messages, and what arrives.

use crate::net::carrier::Recipient;
use crossdock_device::{Device, Sent};
use crossdock_mailbox::{Batch, Buffer, BufferMut};
use crossdock_transport::header::PayloadSpan;
use crossdock_transport::{HEADER_BYTES, Header, Kind, MAX_PACKETS, Origin, Session, SuperPacket, TrafficClass};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// An outgoing unit: what one system call sends, kept until it is acknowledged.
#[derive(Debug)]
pub(crate) enum Payload {
    /// Records that were copied together.
    Packed { packet: SuperPacket<BufferMut>, format: u64, to: Recipient },
    /// A batch that passes whole, as the bytes that it came in; others may share it.
    Whole { batch: Arc<Batch>, to: Recipient },
    /// A control message.
    Control(Rc<[u8]>, TrafficClass),
    /// A mailbox's message: the first `len` bytes of the buffer, for the mailbox that the session has open under
    /// `number`.
    Message { buffer: Buffer, len: usize, number: u32 },
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
    /// Puts the unit into the session's queue.
    pub(crate) fn enqueue(self, session: &mut Session<Payload, Arrived>) {
        let data = |to: &Recipient| TrafficClass::Data(Origin::Stream(to.subscription));
        let (packets, bytes, class, droppable) = match &self {
            Payload::Packed { packet, to, .. } => (packet.packets().len(), packet.len(), data(to), to.droppable),
            Payload::Whole { batch, to, .. } => {
                let bytes = batch.payload_bytes() + batch.slices.len() * HEADER_BYTES;
                (batch.slices.len(), bytes, data(to), to.droppable)
            }
            Payload::Control(message, class) => (1, message.len() + HEADER_BYTES, *class, false),
            Payload::Message { len, number, .. } => {
                (1, len + HEADER_BYTES, TrafficClass::Data(Origin::Mailbox(*number)), false)
            }
        };
        session.sender.enqueue(self, packets as u32, bytes as u64, class, droppable);
    }

    /// Records in it, and the subscription they are for.
    pub(crate) fn records(&self) -> Option<(u32, u64)> {
        match self {
            Payload::Packed { packet, to, .. } => Some((to.subscription, packet.records())),
            Payload::Whole { batch, to, .. } => Some((to.subscription, batch.len() as u64)),
            Payload::Control(..) | Payload::Message { .. } => None,
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
        match self {
            Payload::Packed { packet, format, to: Recipient { subscription, .. } } => {
                let template = Header { stream: *subscription, format: *format, ..Header::new(Kind::Data, to) };
                packet.write_headers(range.clone(), &template, first_seq);
                device.send(addr, &[IoSlice::new(packet.bytes(range))], packet.stride())
            }
            Payload::Whole { batch, to: Recipient { subscription, .. } } => {
                let template = Header { stream: *subscription, format: batch.format, ..Header::new(Kind::Data, to) };
                let stride = batch.stride;
                match in_place(batch, &template, first_seq, range.clone()) {
                    Some(bytes) => device.send(addr, &[IoSlice::new(bytes)], stride),
                    None => gather(batch, device, addr, &template, first_seq, range),
                }
            }
            Payload::Control(message, _) => {
                let header =
                    Header { payload_bytes: message.len() as u16, seq: first_seq, ..Header::new(Kind::Control, to) };
                let bytes = header.to_bytes();
                device.send(addr, &[IoSlice::new(&bytes), IoSlice::new(message)], bytes.len() + message.len())
            }
            Payload::Message { buffer, len, number } => {
                let (stream, payload_bytes) = (*number, *len as u16);
                let header = Header { stream, payload_bytes, seq: first_seq, ..Header::new(Kind::Message, to) };
                let bytes = header.to_bytes();
                device.send(addr, &[IoSlice::new(&bytes), IoSlice::new(&buffer[..*len])], bytes.len() + *len)
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
    Some(&alone.buffers[0][first.start as usize - HEADER_BYTES..(last.start + last.len) as usize])
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
        let end = if index + 1 == range.end {
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
