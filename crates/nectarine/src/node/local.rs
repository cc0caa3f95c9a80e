//! The sides of a mailbox whose messages go by shared memory: the host interface's own, in this interface's words.

use super::carried::Carried;
use super::open_side::OpenSide;
use super::session::NodeSession;
use crate::client::Interrupter;
use crate::error::Error;
use crate::post::DroppedMessages;
use crossdock_mailbox::client::{self, MailboxError, Message, Put, Wait};
use std::sync::Arc;
use std::time::Duration;

/// The state that both sides keep beside the side itself.
pub(super) struct Local {
    session: Arc<NodeSession>,
    side: OpenSide,
}

impl Local {
    pub(super) fn new(session: Arc<NodeSession>, side: OpenSide) -> Local {
        Local { session, side }
    }

    /// Whether messages can be handed from one to the other within the attachment.
    fn is_with(&self, other: &Local) -> bool {
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

    /// The result of a call that waits; none when the time is over.
    #[inline]
    fn unless_late<T, P>(&self, result: Result<T, MailboxError>) -> Result<Option<Carried<T, P>>, Error> {
        match result {
            Ok(found) => Ok(Some(Carried::Memory(found))),
            Err(MailboxError::TimedOut) => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }
}

/// The writing side.
pub(super) struct LocalWriter {
    pub(super) writer: client::Writer,
    pub(super) open: Local,
}

impl LocalWriter {
    pub(super) fn mailbox(&self) -> &str {
        &self.open.side.mailbox
    }

    pub(super) fn interrupter(&self) -> Interrupter {
        Interrupter::local(self.writer.interrupter())
    }

    #[inline]
    pub(super) fn begin_put<P>(&mut self, bytes: usize, wait: Wait) -> Result<Option<Carried<Put, P>>, Error> {
        let put = self.writer.begin_put(bytes, wait);
        self.open.unless_late(put)
    }

    #[inline]
    pub(super) fn try_begin_put<P>(&mut self, bytes: usize) -> Result<Option<Carried<Put, P>>, Error> {
        let put = self.writer.try_begin_put(bytes).map_err(|error| self.open.error(error))?;
        Ok(put.map(Carried::Memory))
    }

    #[inline]
    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.writer.check().map_err(|error| self.open.error(error))
    }

    pub(super) fn withdraw(&mut self) {
        self.writer.withdraw();
    }

    #[inline]
    pub(super) fn end_put(&mut self, put: Put) -> Result<(), Error> {
        self.writer.end_put(put).map_err(|error| self.open.error(error))
    }

    #[inline]
    pub(super) fn put_many<M: AsRef<[u8]>>(&mut self, messages: impl IntoIterator<Item = M>) -> Result<usize, Error> {
        self.writer.put_many(messages, Wait::Block).map_err(|error| self.open.error(error))
    }

    #[inline]
    pub(super) fn put_many_with(
        &mut self,
        count: usize,
        bytes: usize,
        fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<usize, Error> {
        self.writer.put_many_with(count, bytes, Wait::Block, fill).map_err(|error| self.open.error(error))
    }

    /// Reports come over the session.
    pub(super) fn next_dropped(&mut self, timeout: Option<Duration>) -> Result<Option<DroppedMessages>, Error> {
        let mut client = self.open.session.client().join()?;
        client.wait(timeout, |inner| self.open.side.dropped(inner))?.transpose()
    }

    /// The daemon has it at once.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// The reading side.
pub(super) struct LocalReader {
    pub(super) reader: client::Reader,
    pub(super) open: Local,
}

impl LocalReader {
    pub(super) fn mailbox(&self) -> &str {
        &self.open.side.mailbox
    }

    pub(super) fn interrupter(&self) -> Interrupter {
        Interrupter::local(self.reader.interrupter())
    }

    #[inline]
    pub(super) fn begin_get<P>(&mut self, wait: Wait) -> Result<Option<Carried<Message, P>>, Error> {
        let message = self.reader.begin_get(wait);
        self.open.unless_late(message)
    }

    /// The next messages, `most` at most; none when the time is over.
    #[inline]
    pub(super) fn get_many(&mut self, most: usize, wait: Wait) -> Result<Option<client::Burst<'_>>, Error> {
        match self.reader.get_many(most, wait) {
            Ok(burst) => Ok(Some(burst)),
            Err(MailboxError::TimedOut) => Ok(None),
            Err(error) => Err(self.open.error(error)),
        }
    }

    #[inline]
    pub(super) fn try_begin_get<P>(&mut self) -> Result<Option<Carried<Message, P>>, Error> {
        let message = self.reader.try_begin_get().map_err(|error| self.open.error(error))?;
        Ok(message.map(Carried::Memory))
    }

    /// Whether it is a reader of this session.
    #[inline]
    pub(super) fn is_of(&self, session: &Arc<NodeSession>, number: u64) -> bool {
        Arc::ptr_eq(&self.open.session, session) && self.open.side.session == number
    }

    /// Sends a message to a stream of the session, in place.
    #[inline]
    pub(super) fn send(&mut self, message: Message, stream: u16) -> Result<(), Error> {
        self.reader.send(message, stream).map_err(|error| self.open.error(error))
    }

    /// Whether `enqueue` to that writer's mailbox moves a message without a copy.
    #[inline]
    pub(super) fn can_enqueue(&self, to: &LocalWriter) -> bool {
        self.open.is_with(&to.open)
    }

    #[inline]
    pub(super) fn enqueue(&mut self, message: Message, to: &LocalWriter) -> Result<(), Error> {
        self.reader.enqueue(message, to.open.side.number).map_err(|error| self.open.error(error))
    }
}
