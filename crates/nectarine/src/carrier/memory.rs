//! The carrier by shared memory: an attachment to the daemon, and packets of the session in it.
//!
//! Each message in shared memory is one packet of the session, header first, filled where the daemon finds it. They come in
//! order and none is lost, so nothing is acknowledged; what a daemon that died had not taken is sent again in the next session.
//! Credit is memory: the daemon grants buffers ahead, and gets back those of what was received when they are dropped.

use super::Carrier;
use crate::incoming::{Arrived, Bytes, Heard};
use crate::outgoing::{Message, Outgoing, PacketBuffer, Unsent};
use crate::owner;
use crate::settings::Transport;
use crossdock_device::Idler;
use crossdock_mailbox::SESSION_GRANT_BYTES;
use crossdock_mailbox::attach::{AttachAddr, AttachError, AttachRequest};
use crossdock_mailbox::client::{Attachment, MailboxError, Put, Reader, Writer};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::PayloadSpan;
use crossdock_transport::{Cut, HEADER_BYTES, Header, MAX_SUPER_BYTES, PacketKind, Piece, SuperPacket};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Why no daemon lets this process attach.
#[derive(Debug)]
pub(crate) struct NotAttached {
    /// In words.
    pub(crate) reason: String,
    /// Whether none listens: one may come yet.
    pub(crate) is_absent: bool,
}

impl From<String> for NotAttached {
    fn from(reason: String) -> NotAttached {
        NotAttached { reason, is_absent: false }
    }
}

/// Messages taken in one go.
const BURST: usize = 32;

/// An attachment and its session.
pub(crate) struct Memory {
    attachment: Attachment,
    writer: Writer,
    reader: Reader,
    /// Packets so far.
    seq: u64,
    /// Records in pieces that the daemon may not have taken whole, each with the number of puts that it ends with.
    in_pieces: VecDeque<(u64, Message)>,
}

impl Memory {
    /// Attaches to the daemon at the first of these addresses that lets this process in, for what `request` names. Addresses that
    /// follow from a UDP address come with its port: a process of another user than the daemon's may have taken their names.
    ///
    /// # Errors
    /// Why none does.
    pub(crate) fn attach(
        addrs: &[AttachAddr],
        port: Option<u16>,
        request: AttachRequest,
        timeout: Duration,
    ) -> Result<Memory, NotAttached> {
        let mut why: Option<AttachError> = None;
        for addr in addrs {
            match Attachment::connect_within(addr, request, timeout) {
                Ok(attachment) => {
                    port.map_or(Ok(()), |port| owner::check(attachment.daemon().uid, port))?;
                    let (writer, reader) = attachment
                        .session()
                        .ok_or_else(|| "its shared memory has no rings for a session".to_owned())?;
                    return Ok(Memory { attachment, writer, reader, seq: 0, in_pieces: VecDeque::new() });
                }
                // A daemon that says no says more than an address at which none is; of those the first is the likeliest.
                Err(error) => match (&why, &error) {
                    (None, _) => why = Some(error),
                    (Some(AttachError::Absent { .. }), AttachError::Absent { .. }) => {}
                    (Some(AttachError::Absent { .. }), _) => why = Some(error),
                    (Some(_), _) => {}
                },
            }
        }
        let is_absent = matches!(why, Some(AttachError::Absent { .. }));
        let reason = why.map_or_else(|| "it is not an address of this machine".to_owned(), |error| error.to_string());
        Err(NotAttached { reason, is_absent })
    }

    /// The first `bytes` of a buffer are a packet now.
    fn end_put(&mut self, mut put: Put, bytes: usize) {
        let rest = put.len().saturating_sub(bytes);
        let adjusted = put.adjust(0, rest);
        debug_assert!(adjusted.is_ok(), "it has those bytes");
        // It is this writer's. That the daemon is gone is no error here.
        if adjusted.is_ok() && self.writer.end_put(put).is_ok() {
            self.seq += 1;
        }
    }

    fn send_records(&mut self, mut packet: SuperPacket<PacketBuffer>, stream: u32, format: u64) {
        debug_assert_eq!(packet.packets().len(), 1, "a packet of shared memory is as long as a super-packet");
        let template = Header { stream, format, ..Header::new(PacketKind::Data, 0) };
        packet.write_headers(0..1, &template, self.seq);
        let bytes = packet.len();
        match packet.into_buffer() {
            PacketBuffer::Shared(put) => self.end_put(put, bytes),
            PacketBuffer::Own(_) => debug_assert!(false, "records go into packets that their carrier began"),
        }
    }

    /// Sends a message, packet by packet.
    ///
    /// # Errors
    /// The message, with the number of its packets that are sent, when there is no memory for the next one now.
    fn send_message(&mut self, mut message: Message) -> Result<(), Message> {
        let cut = Cut::new(message.bytes.len(), MAX_SUPER_BYTES);
        while message.sent < cut.packets() {
            let first_seq = self.seq.wrapping_sub(message.sent.into());
            let (head, range) = (cut.head(message.sent, &message.header, first_seq), cut.range(message.sent));
            let bytes = head.len() + range.len();
            let put = match message.header.kind {
                // While buffers for records are withheld, the daemon grants one that is too long to be among them, and wakes this
                // side.
                PacketKind::Control => self.writer.poll_begin_put(bytes, SESSION_GRANT_BYTES + 8),
                _ => self.writer.try_begin_put(bytes),
            };
            let Some(mut put) = put.ok().flatten() else { return Err(message) };
            put[..head.len()].copy_from_slice(&head);
            put[head.len()..bytes].copy_from_slice(&message.bytes[range]);
            self.end_put(put, bytes);
            message.sent += 1;
        }
        if message.header.kind == PacketKind::Data {
            let (put, taken) = self.writer.put_and_taken();
            while self.in_pieces.front().is_some_and(|(end, _)| *end <= taken) {
                self.in_pieces.pop_front();
            }
            self.in_pieces.push_back((put, message));
        }
        Ok(())
    }
}

impl Carrier for Memory {
    fn transport(&self) -> Transport {
        Transport::Shm
    }

    fn begin_packet(&mut self) -> Option<SuperPacket<PacketBuffer>> {
        // An attachment that is over grants nothing more; `receive` says so.
        let put = self.writer.try_begin_put(MAX_SUPER_BYTES).ok().flatten()?;
        Some(SuperPacket::new(PacketBuffer::Shared(put), MAX_SUPER_BYTES))
    }

    fn send(&mut self, unit: Outgoing) -> Result<(), Outgoing> {
        match unit {
            // Nothing is lost in memory.
            Outgoing::Records { packet, stream, format } | Outgoing::Datagrams { packet, stream, format } => {
                self.send_records(packet, stream, format);
                Ok(())
            }
            Outgoing::Message(message) => self.send_message(message).map_err(Outgoing::Message),
        }
    }

    fn receive(&mut self, now_ns: u64, idler: &mut Idler, heard: &mut Vec<Heard>) {
        for _ in 0..BURST {
            match self.reader.try_begin_get() {
                Ok(Some(message)) => {
                    idler.arrived(now_ns, message.len());
                    // Bytes that are no packet are passed over, as on the network.
                    if let Ok(header @ Header { payload_bytes, records, .. }) = Header::read(&message) {
                        let spans =
                            vec![PayloadSpan { start: HEADER_BYTES as u32, len: payload_bytes.into(), records }];
                        let arrived = Arrived { bytes: Bytes::Shared(message), header, spans, data_end: 0 };
                        heard.push(Heard::Packets(arrived));
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    let (reason, again) = match error {
                        MailboxError::Gone { reason, again } => (reason.to_string(), again),
                        other => (other.to_string(), true),
                    };
                    heard.push(Heard::Close(Close { again, reason }));
                    return;
                }
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.attachment.as_fd())
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn beat(&self) {
        self.attachment.beat();
    }

    fn arm(&self) -> bool {
        self.attachment.arm();
        true
    }

    fn lose(&mut self) -> Vec<Unsent> {
        // A record in pieces goes into the next session whole, in the place of its last piece.
        let untaken = self.writer.untaken();
        let mut in_pieces = std::mem::take(&mut self.in_pieces).into_iter().rev();
        let mut unsent: Vec<Unsent> =
            untaken.iter().rev().filter_map(|packet| records_of(packet, &mut in_pieces)).collect();
        unsent.reverse();
        unsent
    }

    fn attachment(&self) -> Option<&Attachment> {
        Some(&self.attachment)
    }
}

/// The part of a packet that goes into the next session: its records. Of one in pieces, which `in_pieces` has from the
/// last on, the last piece stands for all.
fn records_of(packet: &[u8], mut in_pieces: impl Iterator<Item = (u64, Message)>) -> Option<Unsent> {
    let header = Header::read(packet).ok().filter(|header| header.kind == PacketKind::Data)?;
    let Header { piece, stream, format, payload_bytes, .. } = header;
    match piece {
        Piece::Whole => {
            let records = packet.get(HEADER_BYTES..HEADER_BYTES + usize::from(payload_bytes))?.to_vec();
            Some(Unsent { stream, format, records, done: 0 })
        }
        Piece::Last => in_pieces.next().and_then(|(_, message)| message.unsent()),
        Piece::First | Piece::Middle => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_of_a_lost_session_go_into_the_next() {
        let header = Header { stream: 3, format: 9, records: 1, ..Header::new(PacketKind::Data, 0) };
        let packet = header.packet(b"16 bytes of them").unwrap();
        let unsent = Unsent { stream: 3, format: 9, records: b"16 bytes of them".to_vec(), done: 0 };
        let in_pieces = || std::iter::empty();
        assert_eq!(records_of(&packet, in_pieces()), Some(unsent));
        let control = Header::new(PacketKind::Control, 0).packet(b"{}").unwrap();
        assert!([&control[..], &packet[..40], b""].iter().all(|packet| records_of(packet, in_pieces()).is_none()));
    }
}
