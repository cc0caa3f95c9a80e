//! The way by shared memory: an attachment to the daemon, and packets of the session in it.
//!
//! Each message of the session is one packet, header first, filled in the memory in which the daemon finds it. They come in
//! order and none is lost, so nothing is acknowledged; what a daemon that died had not taken is sent again in the next session.

use crate::incoming::{Arrived, Bytes, Heard};
use crate::outgoing::{Again, Outgoing, PacketBuffer};
use crossdock_device::Idler;
use crossdock_format::Format;
use crossdock_mailbox::attach::{AttachAddr, AttachError};
use crossdock_mailbox::client::{Attachment, MailboxError, Put, Reader, Writer};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::PayloadSpan;
use crossdock_transport::{HEADER_BYTES, Header, Kind, MAX_SUPER_BYTES, SuperPacket};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Messages taken in one go.
const BURST: usize = 32;

/// An attachment and its session.
pub(crate) struct Memory {
    attachment: Attachment,
    writer: Writer,
    reader: Reader,
    /// Which session this is: buffers of another one cannot be ended in it.
    session: u64,
    /// Packets so far.
    seq: u64,
}

impl Memory {
    /// Attaches to the daemon at the first of these addresses that lets this process in.
    ///
    /// # Errors
    /// Why none does, in words.
    pub(crate) fn attach(addrs: &[AttachAddr], session: u64, timeout: Duration) -> Result<Memory, String> {
        let mut why: Option<AttachError> = None;
        for addr in addrs {
            match Attachment::connect_within(addr, timeout) {
                Ok(attachment) => {
                    let (writer, reader) = attachment.session().ok_or("what it shares has no room for a session")?;
                    return Ok(Memory { attachment, writer, reader, session, seq: 0 });
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
        Err(why.map_or_else(|| "it is not an address of this machine".to_owned(), |error| error.to_string()))
    }

    pub(crate) fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// To poll for readability.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.attachment.as_fd()
    }

    /// Asks for the descriptor to become readable at the next thing that comes; what has come must be looked for after this.
    pub(crate) fn arm(&self) {
        self.attachment.arm();
    }

    /// An empty packet in memory of the daemon; `None` while it grants none.
    pub(crate) fn begin_packet(&mut self) -> Option<SuperPacket<PacketBuffer>> {
        // An attachment that is over grants nothing more; `receive` says so.
        let put = self.writer.try_begin_put(MAX_SUPER_BYTES).ok().flatten()?;
        Some(SuperPacket::new(PacketBuffer::Shared { put, session: self.session }, MAX_SUPER_BYTES))
    }

    /// Hands a unit over.
    ///
    /// # Errors
    /// The unit, or what is left of it, when the daemon grants no memory for it now.
    pub(crate) fn enqueue(&mut self, unit: Outgoing, of: Option<&Format>) -> Result<(), Outgoing> {
        match unit {
            Outgoing::Records { packet, stream, format } if self.is_own(&packet) => {
                self.end_packet(packet, stream, format);
                Ok(())
            }
            Outgoing::Control(message) => self.put_control(message),
            // Mailboxes by shared memory have rings of their own.
            Outgoing::Message { .. } => Ok(()),
            unit => unit.again().map_or(Ok(()), |again| self.put_again(again, of)),
        }
    }

    /// Whether a packet lies in this session's memory, as one packet.
    fn is_own(&self, packet: &SuperPacket<PacketBuffer>) -> bool {
        let own =
            |buffer: &PacketBuffer| matches!(buffer, PacketBuffer::Shared { session, .. } if *session == self.session);
        own(packet.buffer()) && packet.packets().len() == 1
    }

    fn end_packet(&mut self, mut packet: SuperPacket<PacketBuffer>, stream: u32, format: u64) {
        let template = Header { stream, format, ..Header::new(Kind::Data, 0) };
        packet.write_headers(0..1, &template, self.seq);
        let bytes = packet.len();
        if let PacketBuffer::Shared { put, .. } = packet.into_buffer() {
            self.end_put(put, bytes);
        }
    }

    /// The first `bytes` of a buffer are a packet now.
    fn end_put(&mut self, mut put: Put, bytes: usize) {
        let rest = put.len().saturating_sub(bytes);
        // Neither can fail: it has those bytes, and it is this writer's. That the daemon is gone is no error here.
        if put.adjust(0, rest).is_ok() && self.writer.end_put(put).is_ok() {
            self.seq += 1;
        }
    }

    fn put_control(&mut self, message: Vec<u8>) -> Result<(), Outgoing> {
        let bytes = HEADER_BYTES + message.len();
        let Ok(payload_bytes) = u16::try_from(message.len()) else {
            return Ok(()); // the daemon would refuse it by its length
        };
        let Some(mut put) = self.writer.try_begin_put(bytes).ok().flatten() else {
            return Err(Outgoing::Control(message));
        };
        let header = Header { payload_bytes, seq: self.seq, ..Header::new(Kind::Control, 0) };
        let (head, payload) = put.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.to_bytes());
        payload.copy_from_slice(&message);
        self.end_put(put, bytes);
        Ok(())
    }

    /// Packs records anew, into this session's memory.
    fn put_again(&mut self, mut again: Again, of: Option<&Format>) -> Result<(), Outgoing> {
        while !again.is_done() {
            let Some(mut packet) = self.begin_packet() else { return Err(Outgoing::Again(again)) };
            again.pack(&mut packet, of);
            if packet.is_empty() {
                return Ok(()); // not a record, which cannot be: they were checked before they were packed
            }
            self.end_packet(packet, again.stream, again.format);
        }
        Ok(())
    }

    /// Takes what has come: what it means goes to `heard`, in order.
    pub(crate) fn receive(&mut self, now_ns: u64, idler: &mut Idler, heard: &mut Vec<Heard>) {
        for _ in 0..BURST {
            match self.reader.try_begin_get() {
                Ok(Some(message)) => {
                    idler.arrived(now_ns, message.len());
                    // What is no packet is passed over, as on the network.
                    if let Ok(header @ Header { payload_bytes, records, .. }) = Header::read(&message) {
                        let spans = vec![PayloadSpan { start: HEADER_BYTES as u32, len: payload_bytes, records }];
                        let arrived = Arrived { bytes: Bytes::Shared(message), header, spans };
                        heard.push(Heard::Packets { arrived, end_seq: 0 });
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

    /// The session is lost: what the daemon has not taken of it.
    pub(crate) fn lose(&mut self) -> Vec<Outgoing> {
        self.writer.untaken().iter().filter_map(|packet| records_of(packet)).collect()
    }
}

/// What of a packet goes into the next session: its records.
fn records_of(packet: &[u8]) -> Option<Outgoing> {
    let header = Header::read(packet).ok().filter(|header| header.kind == Kind::Data)?;
    let records = packet.get(HEADER_BYTES..HEADER_BYTES + usize::from(header.payload_bytes))?.to_vec();
    Some(Outgoing::Again(Again { stream: header.stream, format: header.format, records, done: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_of_a_lost_session_go_into_the_next() {
        let header = Header { stream: 3, format: 9, records: 1, ..Header::new(Kind::Data, 0) };
        let packet = header.packet(b"16 bytes of them").unwrap();
        let again = Again { stream: 3, format: 9, records: b"16 bytes of them".to_vec(), done: 0 };
        assert!(matches!(records_of(&packet), Some(Outgoing::Again(found)) if found == again));
        assert!(records_of(&Header::new(Kind::Control, 0).packet(b"{}").unwrap()).is_none());
        assert!(records_of(&packet[..40]).is_none() && records_of(b"").is_none());
    }
}
