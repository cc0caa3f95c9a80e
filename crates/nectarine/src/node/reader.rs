//! Reading from a mailbox of a node.

use super::carried::{Carried, carried};
use super::local::LocalReader;
use super::remote::{RemoteMessage, RemoteReader};
use super::writer::Writer;
use crate::client::Interrupter;
use crate::error::Error;
use crossdock_mailbox::client::{self, Wait};
use std::ops::Deref;
use std::time::Duration;

/// How a mailbox is opened for reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderOptions {
    /// Over packets: how many messages are sent ahead of those that were ended; 16 unless set, at least 1. From 4 MiB of messages
    /// that were sent and not ended on, no further one is sent. They are for the next reader of the mailbox when this one is closed
    /// or its session is lost.
    pub ahead: Option<u32>,
}

/// The reading side of a mailbox.
///
/// A message is begun, read in place, and ended; several may be begun before one is ended. A message that is not ended counts
/// towards the mailbox's bound; over packets, what a reader was sent does not. What a reader has not ended when it is dropped stays in
/// the mailbox, before the others, for the next reader.
///
/// Over packets the same applies to a reader whose process died or whose connection was lost. The end of a message is reported
/// together with others, so the next reader may get messages again that this one has ended last: each is delivered at least once. By
/// shared memory, the messages that a process held or was handed ahead when it died are dropped and counted.
pub struct Reader(pub(super) Carried<LocalReader, RemoteReader>);

impl Reader {
    /// The next message. Waits while there is none.
    ///
    /// # Errors
    /// The mailbox or the connection is gone and nothing is left of what came before, or the call was interrupted.
    #[inline]
    pub fn begin_get(&mut self) -> Result<Message, Error> {
        let message = self.begin_get_by(Wait::Block)?;
        debug_assert!(message.is_some(), "a call without a time-out does not run out of time");
        message.ok_or(Error::Interrupted)
    }

    /// [`Reader::begin_get`] that gives up after `timeout`: `None`, and no message was taken.
    ///
    /// # Errors
    /// As there.
    pub fn begin_get_timeout(&mut self, timeout: Duration) -> Result<Option<Message>, Error> {
        self.begin_get_by(Wait::at_most(timeout))
    }

    /// [`Reader::begin_get`] that waits as `wait` says; `None` when its time is over. Over packets, [`Wait::Poll`] is
    /// [`Wait::Block`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn begin_get_by(&mut self, wait: Wait) -> Result<Option<Message>, Error> {
        Ok(carried!(&mut self.0, reader => reader.begin_get(wait)?).map(Message))
    }

    /// The next message, if one is there.
    ///
    /// # Errors
    /// As [`Reader::begin_get`].
    #[inline]
    pub fn try_begin_get(&mut self) -> Result<Option<Message>, Error> {
        Ok(carried!(&mut self.0, reader => reader.try_begin_get()?).map(Message))
    }

    /// Ends a message: its memory is given back. The same as dropping it, but quicker.
    #[inline]
    pub fn end_get(&mut self, message: Message) {
        if let (Carried::Memory(reader), Carried::Memory(message)) = (&mut self.0, message.0) {
            reader.reader.end_get(message);
        }
    }

    /// Moves a message, as it is now, to another mailbox. Between mailboxes of one node that were opened by the same [`Node`],
    /// by shared memory, nothing is copied and nothing waits; else it is put into the other mailbox ([`Writer::put`]), and
    /// this waits while that is full.
    ///
    /// # Errors
    /// The other mailbox or the connection is gone, or the call was interrupted; the message is ended then.
    ///
    /// [`Node`]: crate::Node
    #[inline]
    pub fn enqueue(&mut self, message: Message, to: &mut Writer) -> Result<(), Error> {
        match (&mut self.0, message.0, &mut to.0) {
            (Carried::Memory(reader), Carried::Memory(message), Carried::Memory(writer))
                if reader.can_enqueue(writer) =>
            {
                reader.enqueue(message, writer)
            }
            (_, message, _) => to.put(&Message(message)),
        }
    }

    /// The mailbox's name.
    #[must_use]
    pub fn mailbox(&self) -> &str {
        carried!(&self.0, reader => reader.mailbox())
    }

    /// Makes a waiting call of this reader return, from another thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        carried!(&self.0, reader => reader.interrupter())
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("mailbox", &self.mailbox()).finish_non_exhaustive()
    }
}

/// A message that is being read, in place, less what [`Message::adjust`] left out. Dropping it ends it, from any thread.
pub struct Message(Carried<client::Message, RemoteMessage>);

impl Message {
    /// Leaves out `prefix` bytes at the start and `suffix` at the end, without copying: for this reader, and for who gets the
    /// message next when it is enqueued.
    ///
    /// # Errors
    /// The message has not as many; it stays as it is.
    #[inline]
    pub fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), Error> {
        carried!(&mut self.0, message => Ok(message.adjust(prefix, suffix)?))
    }
}

impl Deref for Message {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        carried!(&self.0, message => message)
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("bytes", &self.len()).finish_non_exhaustive()
    }
}
