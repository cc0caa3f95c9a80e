//! The sides of a mailbox whose messages go by shared memory: the host interface's own, in this interface's words.

use super::open_side::OpenSide;
use super::session::NodeSession;
use crate::error::Error;
use crossdock_mailbox::client::{self, MailboxError, Message, Put, Wait};
use std::sync::Arc;

/// What both sides keep beside the side itself.
pub(super) struct LocalSide {
    session: Arc<NodeSession>,
    side: OpenSide,
}

impl LocalSide {
    pub(super) fn new(session: Arc<NodeSession>, side: OpenSide) -> LocalSide {
        LocalSide { session, side }
    }

    pub(super) fn mailbox(&self) -> &str {
        &self.side.mailbox
    }

    /// Whether messages can be handed from one to the other within the attachment.
    fn is_with(&self, other: &LocalSide) -> bool {
        Arc::ptr_eq(&self.session, &other.session) && self.side.session == other.side.session
    }

    #[cold]
    fn error(&self, error: MailboxError) -> Error {
        match error {
            MailboxError::Gone { reason, again: true } => {
                Error::Lost { addr: self.session.settings.addr.clone(), reason: reason.to_string() }
            }
            MailboxError::Closed { reason } => {
                Error::MailboxClosed { mailbox: self.side.mailbox.clone(), reason: reason.to_string() }
            }
            other => other.into(),
        }
    }

    /// The next message; none when the time is over.
    #[inline]
    fn unless_late<T>(&self, result: Result<T, MailboxError>) -> Result<Option<T>, Error> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(MailboxError::TimedOut) => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }
}

/// The writing side.
pub(super) struct LocalWriter {
    pub(super) writer: client::Writer,
    pub(super) side: LocalSide,
}

impl LocalWriter {
    #[inline]
    pub(super) fn begin_put(&mut self, bytes: usize, wait: Wait) -> Result<Option<Put>, Error> {
        let put = self.writer.begin_put(bytes, wait);
        self.side.unless_late(put)
    }

    #[inline]
    pub(super) fn try_begin_put(&mut self, bytes: usize) -> Result<Option<Put>, Error> {
        self.writer.try_begin_put(bytes).map_err(|error| self.side.error(error))
    }

    #[inline]
    pub(super) fn end_put(&mut self, put: Put) -> Result<(), Error> {
        self.writer.end_put(put).map_err(|error| self.side.error(error))
    }
}

/// The reading side.
pub(super) struct LocalReader {
    pub(super) reader: client::Reader,
    pub(super) side: LocalSide,
}

impl LocalReader {
    #[inline]
    pub(super) fn begin_get(&mut self, wait: Wait) -> Result<Option<Message>, Error> {
        let message = self.reader.begin_get(wait);
        self.side.unless_late(message)
    }

    #[inline]
    pub(super) fn try_begin_get(&mut self) -> Result<Option<Message>, Error> {
        self.reader.try_begin_get().map_err(|error| self.side.error(error))
    }

    /// Whether `enqueue` to that writer's mailbox moves a message without a copy.
    #[inline]
    pub(super) fn can_enqueue(&self, to: &LocalWriter) -> bool {
        self.side.is_with(&to.side)
    }

    #[inline]
    pub(super) fn enqueue(&mut self, message: Message, to: &LocalWriter) -> Result<(), Error> {
        self.reader.enqueue(message, to.side.side.number).map_err(|error| self.side.error(error))
    }
}
