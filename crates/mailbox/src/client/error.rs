//! The possible errors of a client, in words that say what would correct it.

use crate::shared::Reason;
use std::sync::Arc;

/// Why an operation on a mailbox, a sync or a condition failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MailboxError {
    /// The attachment is over: the daemon ended, or it detached this process.
    #[error("the attachment to the daemon is over: {reason}{}", if *.again { "; attach again once the daemon runs" } else { "" })]
    Gone {
        /// Why, as the daemon said it or as this process saw it.
        reason: Arc<str>,
        /// Whether it makes sense to attach again: the daemon ended, rather than that it does not want this process.
        again: bool,
    },
    /// The mailbox is gone, or this side of it was closed.
    #[error("the mailbox is closed ({reason}); create it again, or open it again")]
    Closed {
        /// Why.
        reason: Reason,
    },
    /// Longer than a message may be.
    #[error("a message of {bytes} bytes is longer than the {most} that one may have; send it in parts")]
    TooLong {
        /// The requested length, in bytes.
        bytes: usize,
        /// The longest that there may be, in bytes.
        most: usize,
    },
    /// The domain's heap has no free buffer of that size.
    #[error(
        "the domain's heap has no free buffer of that size: end the gets of what was read, wait, or give the domain more \
         memory (`shared_bytes` in [host] of the daemon's configuration)"
    )]
    NoBuffers,
    /// The client holds all the bytes that its quota allows: to write in, and of signal-queue mailboxes also to read.
    #[error(
        "this process holds all the bytes to write in that its quota allows: end or drop its puts, end its gets from signal-queue \
         mailboxes, or raise `client_bytes` in [host] of the daemon's configuration"
    )]
    Quota,
    /// The mailbox holds as much as its bound allows.
    #[error("the mailbox is full: wait for its reader, or create it with a larger bound")]
    Full,
    /// More is to be left out of a message than there is.
    #[error("the message has only {bytes} bytes; remove no more than that")]
    TooShort {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The time to wait until has come.
    #[error("nothing came until the time was up; ask again, or wait longer")]
    TimedOut,
    /// An [`Interrupter`](super::Interrupter) was used.
    #[error("interrupted")]
    Interrupted,
    /// As many messages as there are slots for are held or asked for.
    #[error("{most} messages are held or asked for already, the most at a time; end puts and gets first")]
    TooManyHeld {
        /// How many there may be.
        most: usize,
    },
    /// Every sync is in use.
    #[error("all {most} syncs of this process are in use; read or cancel some first")]
    NoSyncs {
        /// How many there are.
        most: usize,
    },
    /// Every host condition is in use.
    #[error("all {most} host conditions of this process are in use; drop some first")]
    NoConditions {
        /// How many there are.
        most: usize,
    },
    /// No open mailbox has that number.
    #[error("no mailbox is open under that number: open it first")]
    UnknownMailbox,
    /// The port is in use already, or there is none of that number.
    #[error(
        "port {port} is not free: drop the writer or reader that uses it, and close its mailbox, before it is opened again"
    )]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// A put or message was handed to a writer or reader that it does not come from.
    #[error("this put or message is of another mailbox; hand it to the writer or reader that it comes from")]
    Foreign,
    /// This process serves upcalls already.
    #[error("upcalls are served already: one function serves them all, and distinguishes them by the procedure")]
    UpcallsServed,
    /// The sync was read already.
    #[error("the sync was read already; allocate another one for another value")]
    SyncRead,
    /// The daemon refused for a reason that does not belong to the operation.
    #[error("the daemon refused: {reason}")]
    Refused {
        /// Why.
        reason: Reason,
    },
    /// The system's error.
    #[error("the system refused: {what}")]
    System {
        /// Its operation, and its error.
        what: Arc<str>,
    },
}

impl MailboxError {
    /// The meaning of the daemon's refusal of an operation for `bytes` bytes; `most` is what a refusal for length says.
    pub(crate) fn refused(reason: Option<Reason>, bytes: usize, most: u32) -> MailboxError {
        match reason {
            Some(Reason::Full) => MailboxError::Full,
            Some(Reason::NoBuffers) => MailboxError::NoBuffers,
            Some(Reason::Quota) => MailboxError::Quota,
            Some(Reason::TooLong) => {
                let most = if most == 0 { MAX_MESSAGE_BYTES } else { most as usize };
                MailboxError::TooLong { bytes, most }
            }
            Some(Reason::Cancelled) => MailboxError::TimedOut,
            Some(Reason::UnknownMailbox) => MailboxError::UnknownMailbox,
            Some(reason @ (Reason::Closed | Reason::Shutdown)) => MailboxError::Closed { reason },
            Some(reason @ (Reason::Empty | Reason::Violation)) => MailboxError::Refused { reason },
            None => MailboxError::Refused { reason: Reason::Violation },
        }
    }
}

/// The longest message in bytes, where the daemon does not say another.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 20;
