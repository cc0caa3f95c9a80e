//! The possible errors, in words for the application's user.

use crossdock_format::RecordError;
use crossdock_format::typed::TypedError;
use crossdock_mailbox::client::MailboxError;
use crossdock_transport::control::{Refusal, RefusalCode};
use std::io;

/// An error of a publisher, a subscriber or a node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none, or its name is not known.
    #[error("`{addr}` is not an address: {reason} (an address is host:port, such as 127.0.0.1:7440)")]
    Address {
        /// The given address.
        addr: String,
        /// The fault.
        reason: String,
    },
    /// Nobody answers there.
    #[error("no daemon at {addr}: {reason} (start one with `crossdock serve`, or name its address)")]
    NoDaemon {
        /// The address.
        addr: String,
        /// The observation.
        reason: String,
    },
    /// The source route is none, or does not go with the other settings.
    #[error("the source route {0}")]
    Route(String),
    /// Shared memory was asked for, and the daemon cannot be attached to.
    #[error(
        "no shared memory with the daemon at {addr}: {reason} (it must run on this machine, with attaching enabled for this \
         user in [attach] of its configuration; or let packets carry the messages, with the transport `udp` or `auto`)"
    )]
    NotAttached {
        /// The address.
        addr: String,
        /// The attempts, and their results.
        reason: String,
        /// Whether no daemon listens there: one may come yet.
        is_absent: bool,
    },
    /// The query does not parse or does not fit its stream.
    #[error("{0}")]
    Query(String),
    /// The query names a stream that the daemon does not know.
    #[error("{0}")]
    UnknownStream(String),
    /// The node has no mailbox of that name.
    #[error("{0}")]
    UnknownMailbox(String),
    /// The daemon has no task of that name, or none runs there.
    #[error("{0}")]
    UnknownTask(String),
    /// The daemon knows no node of that name.
    #[error("{0}")]
    UnknownNode(String),
    /// There is a mailbox of that name already.
    #[error("{0}")]
    Exists(String),
    /// The side of the mailbox is taken by another.
    #[error("{0}")]
    Busy(String),
    /// The daemon knows no such format.
    #[error("{0}")]
    UnknownFormat(String),
    /// The conversion does not lead from the one format to the other, or there is none to withdraw.
    #[error("{0}")]
    Conversion(String),
    /// The daemon refused a request for another reason.
    #[error("the daemon refused: {0}")]
    Refused(String),
    /// The daemon ended the session, and coming back would not help.
    #[error("the daemon ended the session: {0}")]
    Closed(String),
    /// No procedure has such a name.
    #[error("a procedure's name has 1 to {most} bytes, no `/` and no control characters")]
    ProcedureName {
        /// The longest that there may be, in bytes.
        most: usize,
    },
    /// The stream has ended, and a publisher of it has gone that had not finished.
    #[error(
        "the stream has ended, and a publisher has gone without finishing (it crashed, was killed or lost its connection): \
         records of it may be missing"
    )]
    Unfinished,
    /// The publisher was asked to finish, or has finished, and takes nothing more.
    #[error("the publisher has finished: set up another one to publish more")]
    Finished,
    /// The connection was lost, and reconnecting is off.
    #[error("the connection to {addr} was lost: {reason}")]
    Lost {
        /// The address.
        addr: String,
        /// The observation.
        reason: String,
    },
    /// The bytes are not a record of the publisher's format.
    #[error("not a record of the announced format: {0}")]
    Record(#[from] RecordError),
    /// A Rust type has no format, a value does not become a record of the publisher's format, or a record does not become a value
    /// of the type.
    #[error("{0}")]
    Typed(#[from] TypedError),
    /// The record is longer than the daemon takes.
    #[error(
        "the record has {bytes} bytes, and the daemon takes at most {most} (a quarter of its `buffer_bytes`, and 16 MiB)"
    )]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The fitting length, in bytes.
        most: usize,
    },
    /// The record is longer than a datagram.
    #[error(
        "the record has {bytes} bytes, and one that is published as a datagram at most {most}: publish it as reliable"
    )]
    DatagramTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The fitting length, in bytes.
        most: usize,
    },
    /// A message to another machine is longer than its daemon takes.
    #[error("the message has {bytes} bytes, and one that is put over packets has at most {most}: send it in parts")]
    RemoteTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The fitting length, in bytes.
        most: usize,
    },
    /// More was to be left out of a message than there is.
    #[error("the message has only {bytes} bytes: remove no more than that")]
    TooShort {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A message was ended by another writer than the one that began it.
    #[error("the message was begun by another writer: end it there")]
    Foreign,
    /// The operation needs shared memory, and this node is reached by packets.
    #[error(
        "{what} need shared memory, and the node at {addr} is reached by packets: use mailboxes, or run on its \
         machine with permission to attach"
    )]
    NotLocal {
        /// The operation.
        what: &'static str,
        /// The node's address.
        addr: String,
    },
    /// An operation in shared memory failed for another reason.
    #[error("{0}")]
    Memory(MailboxError),
    /// A mailbox that was open is gone.
    #[error("mailbox `{mailbox}` is closed: {reason} (create it, or open it, again)")]
    MailboxClosed {
        /// The mailbox's name.
        mailbox: String,
        /// Why.
        reason: String,
    },
    /// A message of the daemon is not as it should be, such as records that do not fit their format.
    #[error("the daemon violated the protocol: {0}")]
    Malformed(String),
    /// An [`crate::Interrupter`] was used.
    #[error("interrupted")]
    Interrupted,
    /// A session has no protocol of that number, or cannot have it.
    #[error("protocol {number}: {reason}")]
    Protocol {
        /// The protocol's number.
        number: u16,
        /// The fault, and what would help.
        reason: String,
    },
    /// A builder lacks something.
    #[error("{0}")]
    Incomplete(&'static str),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// Whether what the user asked for is at fault (a command line would exit 2), rather than how things went.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Error::Address { .. }
                | Error::Route(_)
                | Error::Query(_)
                | Error::UnknownStream(_)
                | Error::UnknownMailbox(_)
                | Error::UnknownTask(_)
                | Error::UnknownNode(_)
                | Error::UnknownFormat(_)
                | Error::ProcedureName { .. }
                | Error::Conversion(_)
                | Error::Protocol { .. }
                | Error::Incomplete(_)
        )
    }

    /// Whether no daemon is there, which may be started yet: see `wait_for_daemon` of the builders.
    #[must_use]
    pub fn is_no_daemon(&self) -> bool {
        matches!(self, Error::NoDaemon { .. } | Error::NotAttached { is_absent: true, .. })
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::System { what, source }
    }

    /// A copy for the next call that meets the same end.
    pub(crate) fn again(&self) -> Error {
        match self {
            Error::Closed(reason) => Error::Closed(reason.clone()),
            Error::Lost { addr, reason } => Error::Lost { addr: addr.clone(), reason: reason.clone() },
            Error::NoDaemon { addr, reason } => Error::NoDaemon { addr: addr.clone(), reason: reason.clone() },
            Error::NotAttached { addr, reason, is_absent } => {
                Error::NotAttached { addr: addr.clone(), reason: reason.clone(), is_absent: *is_absent }
            }
            Error::Query(message) => Error::Query(message.clone()),
            Error::UnknownStream(message) => Error::UnknownStream(message.clone()),
            Error::UnknownFormat(message) => Error::UnknownFormat(message.clone()),
            Error::Malformed(message) => Error::Malformed(message.clone()),
            Error::Refused(reason) => Error::Refused(reason.clone()),
            other => Error::Closed(other.to_string()),
        }
    }
}

impl From<MailboxError> for Error {
    fn from(error: MailboxError) -> Error {
        match error {
            MailboxError::Gone { reason, .. } => Error::Closed(reason.to_string()),
            MailboxError::TooShort { bytes } => Error::TooShort { bytes },
            MailboxError::Foreign => Error::Foreign,
            MailboxError::Interrupted => Error::Interrupted,
            other => Error::Memory(other),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal.code {
            RefusalCode::Query => Error::Query(refusal.message),
            RefusalCode::UnknownStream => Error::UnknownStream(refusal.message),
            RefusalCode::UnknownMailbox => Error::UnknownMailbox(refusal.message),
            RefusalCode::UnknownTask => Error::UnknownTask(refusal.message),
            RefusalCode::UnknownNode => Error::UnknownNode(refusal.message),
            RefusalCode::Exists => Error::Exists(refusal.message),
            RefusalCode::Busy => Error::Busy(refusal.message),
            RefusalCode::UnknownFormat => Error::UnknownFormat(refusal.message),
            RefusalCode::Conversion => Error::Conversion(refusal.message),
            RefusalCode::Format | RefusalCode::Limit | RefusalCode::State => Error::Refused(refusal.message),
        }
    }
}
