//! Records that attached clients send out of mailboxes (Nectar paper, section 4.2: "it may already exist in some other mailbox, in which
//! case the user includes a pointer to it in the request").
//!
//! A client moves a message that it holds to a stream of its session, as it would to another mailbox. The message is one record. The
//! context copies it once, into a buffer of its own, as any record that is not passed on by reference, and releases it.

use crate::context::Context;
use crate::counters::DropReason;
use crate::graph::bounds::PIECE_BYTES;
use crate::graph::build::alone;
use crate::net::frames::Data;
use crate::net::peers::Peer;
use crossdock_mailbox::host::Message;
use crossdock_transport::header::PayloadSpan;
use crossdock_transport::{HEADER_BYTES, Header, PacketKind};

impl Context {
    /// A message that a client has sent to the stream that its session publishes under this number; it comes back if the context has
    /// no buffers for it now, or the stream's publishers are held back, unless it `is_last`.
    pub(crate) fn take_sent(&mut self, key: usize, number: u32, message: Message, is_last: bool) -> Option<Message> {
        let publishing = self.net.present_peer(key).map(Peer::publishing).unwrap_or_default();
        let found = publishing.iter().find(|publishing| publishing.number == number);
        let Some((stream, format)) = found.map(|publishing| (publishing.stream, publishing.format.clone())) else {
            self.net.count_drop(DropReason::Unannounced, 1);
            self.host.interface_mut().free(message);
            return None;
        };
        if !is_last && (self.net.lacks_buffers(key) || self.graph.is_blocked(stream as u32)) {
            return Some(message);
        }
        let len = message.len();
        self.net.note_arrival(len);
        // A record that fits a packet has room for its header before it, as one that came in a packet.
        let is_long = len > PIECE_BYTES;
        let start = if is_long { 0 } else { HEADER_BYTES };
        let Some(mut copy) = self.net.alloc_for(key, start + len) else {
            self.net.count_drop(DropReason::NoBuffer, 1);
            self.host.interface_mut().free(message);
            return None;
        };
        self.host.interface().read(&message, 0, &mut copy[start..start + len]);
        self.host.interface_mut().free(message);
        let (buffer, header) = (copy.freeze(), Header::new(PacketKind::Data, 0));
        let header = Header { stream: number, format: format.id().0, records: 1, ..header };
        if is_long {
            self.take_record(key, &header, alone(buffer, len, header.format), (stream, &format));
        } else {
            let span = PayloadSpan { start: start as u32, len: len as u32, records: 1 };
            self.deliver_records(key, Data { buffer, header, spans: &[span], stride: start + len });
        }
        None
    }

    /// A client finishes a stream: what it has sent out of mailboxes comes before that, though it came over other rings.
    pub(crate) fn take_last_sent(&mut self, key: usize) {
        // Only attached clients have mailboxes to send out of.
        let Some(client) = self.net.client_of(key) else { return };
        for message in self.host.interface_mut().last_sent(client) {
            let left = match message.sent_to() {
                Some(number) => self.take_sent(key, number, message, true),
                None => Some(message),
            };
            debug_assert!(left.is_none(), "packets of the session come over its own ring");
            left.into_iter().for_each(|message| self.host.interface_mut().free(message));
        }
    }
}
