//! Protocols that plug in (Nectar paper, section 4.1): a number, the template of a header, and two hooks.
//!
//! A message of a protocol is its header and the data behind it. The session carries it as any other: whole in one packet, or in
//! pieces. When its first packet is there, the protocol's *start-of-data* hook sees the header and the length of the data, and says
//! where the data go: into a message of a mailbox, in place, or to the protocol itself. When the last packet is there, the
//! *end-of-data* hook gets the data. A message that is sent begins with the protocol's header template, which the protocol completes.
//!
//! Request-response is such a protocol, with the number 0 ([`crate::direct`]); applications add others beside it.

use crate::error::Error;
use crate::node::Put;
use crate::settings::DeliveryClass;
use crossdock_transport::pieces::split_first;
use crossdock_transport::{MAX_MESSAGE_BYTES, Piece, PieceError};
use std::any::Any;
use std::ops::Deref;

/// The longest header of a protocol, in bytes: it must be in the first packet of its message on any path.
pub const MAX_PROTOCOL_HEADER_BYTES: usize = 256;

/// Protocols of a session at most: a message's protocol is found by a look at each.
const MOST_PROTOCOLS: usize = 32;

/// A transport protocol of a session (Nectar paper, section 4.1).
pub trait Protocol: Any + Send {
    /// The template of its headers. It is asked for once, when the protocol is registered: all its headers have this length.
    fn template(&self) -> HeaderTemplate;

    /// Completes a header, which is a copy of the template, for a message with this data. Leaves it as it is by default.
    fn complete(&mut self, _header: &mut [u8], _data: &[u8]) {}

    /// Start of data: the first packet of a message is there. Says where its data go; they are not there yet, unless the message fits
    /// a packet.
    fn start_of_data(&mut self, start: &StartOfData<'_>) -> DataPlace;

    /// End of data: the message is whole. Delivers it, to a mailbox or by an upcall.
    fn end_of_data(&mut self, start: &StartOfData<'_>, data: ArrivedData<'_>);
}

/// The template of a protocol's headers: the class in which its messages go, and the header's bytes before [`Protocol::complete`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderTemplate {
    class: DeliveryClass,
    bytes: Vec<u8>,
}

impl HeaderTemplate {
    /// A template of [`MAX_PROTOCOL_HEADER_BYTES`] at most, for messages of a class. Those of [`DeliveryClass::Datagram`] are one packet
    /// long at most.
    #[must_use]
    pub fn new(class: DeliveryClass, bytes: impl Into<Vec<u8>>) -> HeaderTemplate {
        HeaderTemplate { class, bytes: bytes.into() }
    }
}

/// The start of a message, as the hooks of its protocol see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartOfData<'a> {
    /// The protocol's header, as long as its template. Its bytes are the other program's: check them.
    pub header: &'a [u8],
    /// Bytes of data behind it.
    pub data_bytes: usize,
    /// The time since the session's socket was opened, in ns, at [`Protocol::end_of_data`] that of the end.
    pub now_ns: u64,
}

/// The place of a message's data, as its protocol chooses it.
#[derive(Debug)]
pub enum DataPlace {
    /// Nowhere: the message is dropped and counted as refused. No memory is taken for it.
    Refused,
    /// The protocol gets them, in memory of this process.
    Upcall,
    /// A message of a mailbox of exactly that length, which [`Protocol::end_of_data`] gets back, to end it
    /// ([`Writer::end_put`](crate::Writer::end_put)). With a mailbox by shared memory the data are written where its reader reads.
    Mailbox(Put),
}

/// The data of a whole message.
#[derive(Debug)]
pub enum ArrivedData<'a> {
    /// In the packet that they came in.
    InPacket(&'a [u8]),
    /// In memory of this process, joined from pieces.
    Joined(Vec<u8>),
    /// In the mailbox's message that was chosen for them.
    Placed(Put),
}

impl ArrivedData<'_> {
    /// The bytes, copied unless they were joined.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            ArrivedData::Joined(bytes) => bytes,
            other => other.to_vec(),
        }
    }
}

impl Deref for ArrivedData<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ArrivedData::InPacket(bytes) => bytes,
            ArrivedData::Joined(bytes) => bytes,
            ArrivedData::Placed(put) => put,
        }
    }
}

/// The counts of a protocol's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProtocolCounts {
    /// Messages sent.
    pub sent: u64,
    /// Messages that arrived and were delivered.
    pub received: u64,
    /// Bytes of their data.
    pub received_bytes: u64,
    /// Messages that the protocol refused at their start.
    pub refused: u64,
    /// Messages that were shorter than the protocol's header.
    pub malformed: u64,
}

/// A protocol in the table.
struct Registered {
    number: u16,
    protocol: Box<dyn Protocol>,
    template: HeaderTemplate,
    counts: ProtocolCounts,
}

impl Registered {
    /// The header in front of a message's first bytes.
    fn header<'a>(&mut self, first: &'a [u8], message_bytes: usize) -> Option<(&'a [u8], &'a [u8])> {
        let split = first.split_at_checked(self.template.bytes.len()).filter(|_| first.len() <= message_bytes);
        self.counts.malformed += u64::from(split.is_none());
        split
    }

    fn start_of_data(&mut self, start: &StartOfData<'_>) -> DataPlace {
        let place = match self.protocol.start_of_data(start) {
            DataPlace::Mailbox(put) if put.len() != start.data_bytes => DataPlace::Refused,
            place => place,
        };
        self.counts.refused += u64::from(matches!(place, DataPlace::Refused));
        place
    }

    fn end_of_data(&mut self, start: &StartOfData<'_>, data: ArrivedData<'_>) {
        self.counts.received += 1;
        self.counts.received_bytes += start.data_bytes as u64;
        self.protocol.end_of_data(start, data);
    }
}

/// A message with pieces missing.
struct BegunMessage {
    number: u32,
    header: Vec<u8>,
    data_bytes: usize,
    /// The first bytes of the data that are there; of a message that is dropped, those that were passed over.
    filled: usize,
    place: DataPlace,
    /// Where they go for [`DataPlace::Upcall`].
    own: Vec<u8>,
}

impl BegunMessage {
    /// Takes more data.
    fn append(&mut self, data: &[u8]) -> Result<(), PieceError> {
        let end = self.filled + data.len();
        if end > self.data_bytes {
            return Err(PieceError::Length);
        }
        match &mut self.place {
            DataPlace::Refused => {}
            DataPlace::Upcall => self.own.extend_from_slice(data),
            DataPlace::Mailbox(put) => put[self.filled..end].copy_from_slice(data),
        }
        self.filled = end;
        Ok(())
    }
}

/// The protocols of a session, by their numbers.
#[derive(Default)]
pub(crate) struct Protocols {
    table: Vec<Registered>,
    begun: Option<BegunMessage>,
    /// Messages for numbers without a protocol.
    unknown: u64,
}

impl Protocols {
    /// Adds a protocol under a number.
    ///
    /// # Errors
    /// The number is taken, the table is full, or the header too long.
    pub(crate) fn register(&mut self, number: u16, protocol: Box<dyn Protocol>) -> Result<(), Error> {
        let template = protocol.template();
        let refuse = |reason: String| Err(Error::Protocol { number, reason });
        if self.table.iter().any(|registered| registered.number == number) {
            return refuse("the session has one of that number already: choose another".to_owned());
        }
        if self.table.len() >= MOST_PROTOCOLS {
            return refuse(format!("a session has {MOST_PROTOCOLS} protocols at most"));
        }
        let header_bytes = template.bytes.len();
        if header_bytes > MAX_PROTOCOL_HEADER_BYTES {
            return refuse(format!(
                "its header has {header_bytes} bytes, and may have {MAX_PROTOCOL_HEADER_BYTES} at most"
            ));
        }
        self.table.push(Registered { number, protocol, template, counts: ProtocolCounts::default() });
        Ok(())
    }

    fn find(&mut self, number: u32) -> Option<&mut Registered> {
        self.table.iter_mut().find(|registered| u32::from(registered.number) == number)
    }

    /// The protocol of a number, if it is of that type.
    pub(crate) fn get_mut<P: Protocol>(&mut self, number: u16) -> Option<&mut P> {
        let protocol: &mut dyn Any = self.find(number.into())?.protocol.as_mut();
        protocol.downcast_mut()
    }

    pub(crate) fn counts(&self, number: u16) -> Option<ProtocolCounts> {
        self.table.iter().find(|registered| registered.number == number).map(|registered| registered.counts)
    }

    pub(crate) fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Whether pieces are missing of a message.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// The class of a protocol's messages, and the bytes of its header.
    ///
    /// # Errors
    /// No protocol has the number.
    pub(crate) fn class(&mut self, number: u16) -> Result<(DeliveryClass, usize), Error> {
        let reason = || "the session has none of that number: register it first".to_owned();
        let found = self.find(number.into()).map(|registered| &registered.template);
        found.map_or_else(|| Err(Error::Protocol { number, reason: reason() }), |t| Ok((t.class, t.bytes.len())))
    }

    /// A message to be sent: the protocol's header and the data; nothing without such a protocol.
    pub(crate) fn message(&mut self, number: u16, data: &[u8]) -> Vec<u8> {
        let Some(registered) = self.find(number.into()) else { return Vec::new() };
        let template = &registered.template.bytes;
        let mut message = Vec::with_capacity(template.len() + data.len());
        message.extend_from_slice(template);
        registered.protocol.complete(&mut message, data);
        message.extend_from_slice(data);
        registered.counts.sent += 1;
        message
    }

    /// Takes the payload of one packet of a protocol's message.
    ///
    /// # Errors
    /// The pieces of a message do not fit one another. A message that is none for its protocol is no error, but counted.
    pub(crate) fn take(&mut self, number: u32, piece: Piece, payload: &[u8], now_ns: u64) -> Result<(), PieceError> {
        match piece {
            Piece::Whole | Piece::First if self.begun.is_some() => return Err(PieceError::OutOfPlace),
            Piece::Whole => self.take_whole(number, payload, now_ns),
            Piece::First => {
                let (message_bytes, first) = split_first(payload, MAX_MESSAGE_BYTES)?;
                self.begun = Some(self.begin(number, message_bytes, first, now_ns)?);
            }
            Piece::Middle | Piece::Last => {
                let begun = self.begun.as_mut().filter(|begun| begun.number == number);
                begun.ok_or(PieceError::OutOfPlace)?.append(payload)?;
                if piece == Piece::Last {
                    self.end(now_ns)?;
                }
            }
        }
        Ok(())
    }

    /// A message that is one packet: its data stay where they are.
    pub(crate) fn take_whole(&mut self, number: u32, message: &[u8], now_ns: u64) {
        let Some(registered) = self.find(number) else {
            self.unknown += 1;
            return;
        };
        let Some((header, data)) = registered.header(message, message.len()) else { return };
        let start = StartOfData { header, data_bytes: data.len(), now_ns };
        match registered.start_of_data(&start) {
            DataPlace::Refused => {}
            DataPlace::Upcall => registered.end_of_data(&start, ArrivedData::InPacket(data)),
            DataPlace::Mailbox(mut put) => {
                put.copy_from_slice(data);
                registered.end_of_data(&start, ArrivedData::Placed(put));
            }
        }
    }

    /// The first piece of a message of `message_bytes` bytes.
    fn begin(
        &mut self,
        number: u32,
        message_bytes: usize,
        first: &[u8],
        now_ns: u64,
    ) -> Result<BegunMessage, PieceError> {
        let passed_over = BegunMessage {
            number,
            header: Vec::new(),
            data_bytes: message_bytes,
            filled: 0,
            place: DataPlace::Refused,
            own: Vec::new(),
        };
        let (mut begun, data) = match self.find(number) {
            None => {
                self.unknown += 1;
                (passed_over, first)
            }
            Some(registered) => match registered.header(first, message_bytes) {
                None => (passed_over, first),
                Some((header, data)) => {
                    let data_bytes = message_bytes - header.len();
                    let place = registered.start_of_data(&StartOfData { header, data_bytes, now_ns });
                    let capacity = if matches!(place, DataPlace::Upcall) { data_bytes } else { 0 };
                    let (header, own) = (header.to_vec(), Vec::with_capacity(capacity));
                    (BegunMessage { header, data_bytes, place, own, ..passed_over }, data)
                }
            },
        };
        begun.append(data)?;
        Ok(begun)
    }

    /// The last piece is there.
    fn end(&mut self, now_ns: u64) -> Result<(), PieceError> {
        let Some(begun) = self.begun.take() else { return Ok(()) };
        let BegunMessage { number, header, data_bytes, filled, place, own } = begun;
        if filled != data_bytes {
            return Err(PieceError::Length);
        }
        let data = match place {
            DataPlace::Refused => return Ok(()),
            DataPlace::Upcall => ArrivedData::Joined(own),
            DataPlace::Mailbox(put) => ArrivedData::Placed(put),
        };
        if let Some(registered) = self.find(number) {
            registered.end_of_data(&StartOfData { header: &header, data_bytes, now_ns }, data);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
