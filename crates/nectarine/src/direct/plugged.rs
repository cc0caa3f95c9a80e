//! The protocols that a program adds to its session with another one.

use super::Direct;
use super::calls::CALLS;
use crate::carrier::Carrier;
use crate::error::Error;
use crate::link::MAX_PAYLOAD_BYTES;
use crate::outgoing::Outgoing;
use crate::protocol::{Protocol, ProtocolCounts};
use crate::settings::DeliveryClass;
use crossdock_transport::MAX_MESSAGE_BYTES;

impl Direct {
    /// Adds a protocol of this program's to the session, under a number from 1 on that both programs know. Its messages pass beside
    /// records and calls, in the class that its header template names. A program that listens registers before its first turn, one that
    /// dials at once when it has connected: messages for a number without a protocol are dropped and counted
    /// ([`Direct::unknown_messages`]).
    ///
    /// # Errors
    /// [`Error::Protocol`]: the number is taken, there are 32 protocols, or the header is longer than
    /// [`MAX_PROTOCOL_HEADER_BYTES`](crate::MAX_PROTOCOL_HEADER_BYTES).
    pub fn register(&mut self, number: u16, protocol: impl Protocol) -> Result<(), Error> {
        self.protocols.register(number, Box::new(protocol))
    }

    /// A protocol that was registered, by its number and type.
    pub fn protocol_mut<P: Protocol>(&mut self, number: u16) -> Option<&mut P> {
        self.protocols.get_mut(number)
    }

    /// Sends a message of a protocol: its header, and behind it `data`. `false`, and nothing is sent, while there is no room for it
    /// before the other side takes some of what was sent: turn, and try again. A reliable message comes behind all that was sent reliably before it.
    ///
    /// # Errors
    /// [`Error::Protocol`]: none has the number. The message is longer than one may be, or than a packet if it goes as a datagram; there
    /// is no session.
    pub fn send_by(&mut self, number: u16, data: &[u8]) -> Result<bool, Error> {
        if number == CALLS {
            let reason = "that is request-response, whose messages are calls: begin one".to_owned();
            return Err(Error::Protocol { number, reason });
        }
        let (class, header_bytes) = self.protocols.class(number)?;
        let bytes = header_bytes + data.len();
        match class {
            DeliveryClass::Reliable if bytes > MAX_MESSAGE_BYTES => {
                Err(Error::TooLong { bytes, most: MAX_MESSAGE_BYTES })
            }
            DeliveryClass::Datagram if bytes > MAX_PAYLOAD_BYTES => {
                Err(Error::DatagramTooLong { bytes, most: MAX_PAYLOAD_BYTES })
            }
            _ if !self.is_up => Err(self.no_session()),
            _ if !self.udp.has_room() => Ok(false),
            DeliveryClass::Reliable => self.send_message(number, data).map(|()| true),
            DeliveryClass::Datagram => self.send_datagram(number, data),
        }
    }

    /// One packet with one message: its end is the packet's.
    fn send_datagram(&mut self, number: u16, data: &[u8]) -> Result<bool, Error> {
        self.flush();
        let Some(mut packet) = self.udp.begin_packet() else { return Ok(false) };
        let fits = packet.push(&self.protocols.message(number, data));
        debug_assert!(fits, "an empty packet has room for a message of that length");
        let sent = self.udp.send(Outgoing::Datagrams { packet, stream: number.into(), format: 0 });
        sent.map(|()| fits).map_err(|_| self.no_session())
    }

    /// The counts of a protocol's messages: of a registered one, and under 0 of calls.
    #[must_use]
    pub fn protocol_counts(&self, number: u16) -> Option<ProtocolCounts> {
        self.protocols.counts(number)
    }

    /// Messages that came for numbers without a protocol, and were dropped.
    #[must_use]
    pub fn unknown_messages(&self) -> u64 {
        self.protocols.unknown()
    }
}
