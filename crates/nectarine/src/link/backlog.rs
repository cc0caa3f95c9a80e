//! The queue of a link: units of the session that stands, and records that a lost session left over.

use super::{Link, MAX_PAYLOAD_BYTES};
use crate::outgoing::{Message, Outgoing, Unsent};
use crossdock_format::Format;
use crossdock_transport::{Origin, TrafficClass};

/// The units that wait to be handed to the carrier.
pub(super) enum Waiting {
    /// A unit of the session that stands.
    Unit(Outgoing),
    /// Records of a session that is over.
    Unsent(Unsent),
}

impl Waiting {
    pub(super) fn class(&self) -> TrafficClass {
        match self {
            Waiting::Unit(unit) => unit.class(),
            Waiting::Unsent(unsent) => TrafficClass::Data(Origin::Stream(unsent.stream)),
        }
    }

    /// How many records of format `of` it holds for the session that comes up.
    pub(super) fn records(&self, of: Option<&Format>) -> u64 {
        match self {
            Waiting::Unit(_) => 0,
            Waiting::Unsent(unsent) => unsent.count(of),
        }
    }

    /// The records in datagrams, which are dropped with their session.
    pub(super) fn datagram_records(&self) -> u64 {
        match self {
            Waiting::Unit(unit) => unit.datagram_records(),
            Waiting::Unsent(_) => 0,
        }
    }

    /// The part of it that goes into the next session.
    pub(super) fn unsent(self) -> Option<Unsent> {
        match self {
            Waiting::Unit(unit) => unit.unsent(),
            Waiting::Unsent(unsent) => Some(unsent),
        }
    }
}

impl Link {
    /// Sends records again, packed into packets of this session, up to one that is longer than a packet or that one alone; what is
    /// left comes back into the backlog.
    ///
    /// # Errors
    /// The rest, when the carrier has no memory for it now.
    pub(super) fn send_again(&mut self, mut unsent: Unsent) -> Result<(), Waiting> {
        let is_long = |record: &&[u8]| record.len() > MAX_PAYLOAD_BYTES;
        if let Some(record) = unsent.next_record(self.published.as_ref()).filter(is_long) {
            let (bytes, message) = (record.len(), Message::record(record.to_vec(), unsent.stream, unsent.format));
            unsent.done += bytes;
            self.backlog.push_front(Waiting::Unsent(unsent));
            return self.carrier.send(message).map_err(Waiting::Unit);
        }
        while !unsent.is_done() {
            if unsent.next_record(self.published.as_ref()).is_some_and(|record| is_long(&record)) {
                self.backlog.push_front(Waiting::Unsent(unsent));
                return Ok(());
            }
            let Some(mut packet) = self.carrier.begin_packet() else { return Err(Waiting::Unsent(unsent)) };
            let done = unsent.done;
            unsent.pack(&mut packet, self.published.as_ref());
            if packet.is_empty() {
                debug_assert!(false, "records were checked before they were packed");
                return Ok(());
            }
            let unit = Outgoing::Records { packet, stream: unsent.stream, format: unsent.format };
            if self.carrier.send(unit).is_err() {
                return Err(Waiting::Unsent(Unsent { done, ..unsent }));
            }
        }
        Ok(())
    }
}
