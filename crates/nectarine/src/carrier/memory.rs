//! The carrier by shared memory: an attachment to the daemon, and packets of the session in it.
//!
//! Each message of the session is one packet, header first, filled in the memory in which the daemon finds it. They come in
//! order and none is lost, so nothing is acknowledged; what a daemon that died had not taken is sent again in the next session.
//! Credit is memory: the daemon grants buffers ahead, and gets back those of what was received when they are dropped.

use super::Carrier;
use crate::incoming::{Arrived, Bytes, Heard};
use crate::outgoing::{Outgoing, PacketBuffer, Unsent};
use crate::settings::Transport;
use crossdock_device::Idler;
use crossdock_mailbox::SESSION_GRANT_BYTES;
use crossdock_mailbox::attach::{AttachAddr, AttachError, AttachRequest};
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
    /// Packets so far.
    seq: u64,
}

impl Memory {
    /// Attaches to the daemon at the first of these addresses that lets this process in, for what `request` names.
    ///
    /// # Errors
    /// Why none does, in words.
    pub(crate) fn attach(addrs: &[AttachAddr], request: AttachRequest, timeout: Duration) -> Result<Memory, String> {
        let mut why: Option<AttachError> = None;
        for addr in addrs {
            match Attachment::connect_within(addr, request, timeout) {
                Ok(attachment) => {
                    let (writer, reader) =
                        attachment.session().ok_or("its shared memory has no rings for a session")?;
                    return Ok(Memory { attachment, writer, reader, seq: 0 });
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
        let template = Header { stream, format, ..Header::new(Kind::Data, 0) };
        packet.write_headers(0..1, &template, self.seq);
        let bytes = packet.len();
        match packet.into_buffer() {
            PacketBuffer::Shared(put) => self.end_put(put, bytes),
            PacketBuffer::Own(_) => debug_assert!(false, "records go into packets that their carrier began"),
        }
    }

    /// Sends one packet; `false` when there is no memory for it now.
    fn send_single(&mut self, kind: Kind, stream: u32, payload: &[u8]) -> bool {
        let bytes = HEADER_BYTES + payload.len();
        let put = match kind {
            // While buffers for records are withheld, the daemon grants one that is too long to be among them, and wakes this side.
            Kind::Control => self.writer.poll_begin_put(bytes, SESSION_GRANT_BYTES + 8),
            _ => self.writer.try_begin_put(bytes),
        };
        let put = put.ok().flatten();
        let Some(mut put) = put else { return false };
        let header = Header { payload_bytes: payload.len() as u16, stream, seq: self.seq, ..Header::new(kind, 0) };
        put[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        put[HEADER_BYTES..bytes].copy_from_slice(payload);
        self.end_put(put, bytes);
        true
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
        let is_sent = match unit {
            Outgoing::Records { packet, stream, format } => {
                self.send_records(packet, stream, format);
                return Ok(());
            }
            Outgoing::Message { number, ref payload } => self.send_single(Kind::Message, number, payload),
            Outgoing::Control { ref payload, .. } => self.send_single(Kind::Control, 0, payload),
        };
        if is_sent { Ok(()) } else { Err(unit) }
    }

    fn receive(&mut self, now_ns: u64, idler: &mut Idler, heard: &mut Vec<Heard>) {
        for _ in 0..BURST {
            match self.reader.try_begin_get() {
                Ok(Some(message)) => {
                    idler.arrived(now_ns, message.len());
                    // What is no packet is passed over, as on the network.
                    if let Ok(header @ Header { payload_bytes, records, .. }) = Header::read(&message) {
                        let spans = vec![PayloadSpan { start: HEADER_BYTES as u32, len: payload_bytes, records }];
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

    fn arm(&self) -> bool {
        self.attachment.arm();
        true
    }

    fn lose(&mut self) -> Vec<Unsent> {
        self.writer.untaken().iter().filter_map(|packet| records_of(packet)).collect()
    }

    fn attachment(&self) -> Option<&Attachment> {
        Some(&self.attachment)
    }
}

/// What of a packet goes into the next session: its records.
fn records_of(packet: &[u8]) -> Option<Unsent> {
    let header = Header::read(packet).ok().filter(|header| header.kind == Kind::Data)?;
    let records = packet.get(HEADER_BYTES..HEADER_BYTES + usize::from(header.payload_bytes))?.to_vec();
    Some(Unsent { stream: header.stream, format: header.format, records, done: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_of_a_lost_session_go_into_the_next() {
        let header = Header { stream: 3, format: 9, records: 1, ..Header::new(Kind::Data, 0) };
        let packet = header.packet(b"16 bytes of them").unwrap();
        let unsent = Unsent { stream: 3, format: 9, records: b"16 bytes of them".to_vec(), done: 0 };
        assert_eq!(records_of(&packet), Some(unsent));
        assert!(records_of(&Header::new(Kind::Control, 0).packet(b"{}").unwrap()).is_none());
        assert!(records_of(&packet[..40]).is_none() && records_of(b"").is_none());
    }
}
