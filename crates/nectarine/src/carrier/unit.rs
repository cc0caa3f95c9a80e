//! The units that a session over packets has queued.

use crate::outgoing::{Message, PacketBuffer, Unsent, unsent_records};
use crossdock_transport::{Cut, SuperPacket};
use std::ops::Range;
use std::sync::Arc;

/// A unit that is queued, and sent at once.
pub(super) enum Unit {
    /// Records of a stream number and format.
    Records { packet: SuperPacket<PacketBuffer>, stream: u32, format: u64 },
    /// The same as datagrams.
    Datagrams { packet: SuperPacket<PacketBuffer>, stream: u32, format: u64 },
    /// Packets of a message, from packet `from` on.
    Message { message: Message, cut: Cut, from: u32 },
}

impl Unit {
    /// The records in these packets of datagrams.
    pub(super) fn records(&self, packets: Range<u32>) -> u64 {
        let Unit::Datagrams { packet, .. } = self else { return 0 };
        let packets = packet.packets().get(packets.start as usize..packets.end as usize);
        packets.unwrap_or_default().iter().map(|packet| u64::from(packet.records)).sum()
    }

    /// The part of it that goes into the next session when this one is lost; `message`: the last one that was begun.
    pub(super) fn unsent(self, last: &mut Option<Arc<Vec<u8>>>) -> Option<Unsent> {
        match self {
            Unit::Records { packet, stream, format } => Some(unsent_records(&packet, stream, format)),
            Unit::Datagrams { .. } => None,
            Unit::Message { message, .. } => {
                let is_known = last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &message.bytes));
                let unsent = if is_known { None } else { message.unsent() };
                *last = Some(message.bytes);
                unsent
            }
        }
    }
}
