//! What arrives from the daemon.

use crossdock_mailbox::Buffer;
use crossdock_transport::header::PayloadSpan;
use crossdock_transport::{Header, Implementation, Notice};

/// A run of packets that arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) buffer: Buffer,
    pub(crate) header: Header,
    pub(crate) spans: Vec<PayloadSpan>,
}

impl Arrived {
    /// The payloads of its packets, in order.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|span| &self.buffer[span.range()])
    }
}

/// What is there for the application, in order.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Records; `end_seq` says up to where they reach, for the credit.
    Records { arrived: Arrived, end_seq: u64 },
    /// A message of the mailbox that the session has open under this number.
    Message { number: u32, bytes: Vec<u8> },
    /// A side of a mailbox is open under this number.
    Opened(Opened),
    /// Something the daemon tells.
    Notice(Notice),
    /// A subscription stands (again), with this format description.
    Subscribed { format: String },
    /// The session is a new one; what was sent between may be missing.
    Reconnected,
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

/// What a request was answered.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It was carried out.
    Done,
    /// The side of a mailbox that was asked for is open.
    Opened(Opened),
    /// Where the node is that was asked for.
    Node { address: String, name: String },
}
