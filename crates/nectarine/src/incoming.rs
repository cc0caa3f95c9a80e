//! Arrivals from the daemon.

use crossdock_mailbox::Buffer;
use crossdock_mailbox::client::Message;
use crossdock_transport::control::{Activity, Position};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::PayloadSpan;
use crossdock_transport::{Header, Implementation, Notice};

/// Where bytes lie that arrived.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// In a buffer of this process's own.
    Own(Buffer),
    /// In memory shared with the daemon, which gets it back when this is dropped.
    Shared(Message),
    /// Joined from pieces.
    Joined(Vec<u8>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(buffer) => buffer,
            Bytes::Shared(message) => message,
            Bytes::Joined(bytes) => bytes,
        }
    }
}

/// A run of packets that arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) bytes: Bytes,
    pub(crate) header: Header,
    pub(crate) spans: Vec<PayloadSpan>,
    /// Units of data that have arrived so far: for the credit.
    pub(crate) data_end: u64,
}

impl Arrived {
    /// The payloads of its packets, in order.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|span| &self.bytes[span.range()])
    }
}

/// The events of a carrier.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The daemon granted a session.
    Welcome,
    /// In-order packets.
    Packets(Arrived),
    /// The daemon ended the session, or refused one.
    Close(Close),
    /// The network reports that nobody listens there.
    Refused,
    /// The daemon has been silent for too long.
    Silent {
        /// For how long, in ns.
        ns: u64,
    },
}

/// The arrivals for the application, in order.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Records.
    Records(Arrived),
    /// A message of the mailbox that the session has open under this number.
    Message { number: u32, bytes: Vec<u8> },
    /// A side of a mailbox is open under this number.
    Opened(Opened),
    /// Something that the daemon reports.
    Notice(Notice),
    /// A subscription stands (again), with this format description; what is going on at its stream, and how far that has come; and
    /// its number in the daemon's list.
    Subscribed { format: String, activity: Activity, position: Option<Box<Position>>, number: Option<u64> },
    /// The session is a new one; what was sent between may be missing.
    Reconnected,
}

impl Incoming {
    /// Whether it came in data packets.
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Incoming::Records(_) | Incoming::Message { .. })
    }
}

/// An open side of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The request's number.
    pub(crate) id: u32,
    /// The session's number for it.
    pub(crate) number: u16,
    /// Its pair of rings.
    pub(crate) port: Option<u16>,
    pub(crate) implementation: Implementation,
    /// Over packets: how many messages a writer may put before it must wait.
    pub(crate) ahead: Option<u32>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It was carried out.
    Done,
    /// The side of a mailbox that was asked for is open.
    Opened(Opened),
    /// Where the node is that was asked for.
    Node { address: String, name: String, key: Option<String> },
}
