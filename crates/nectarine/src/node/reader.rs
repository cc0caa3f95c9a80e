//! Reading from a mailbox of a node.

use super::carried::{Carried, carried};
use super::local::LocalReader;
use super::remote::{RemoteMessage, RemoteReader};
use super::writer::Writer;
use crate::client::Interrupter;
use crate::error::Error;
use crate::shared::Inner;
use crossdock_mailbox::client::{self, Wait};
use std::ops::Deref;
use std::slice;
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
/// towards the mailbox's bound; over packets, what a reader was sent does not. A message that a reader has not ended
/// when it is dropped stays in the mailbox, before the others, for the next reader.
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

    /// The next messages, `most` at most: waits for the first, and takes those behind it that have come. For streams of small
    /// messages, much quicker than one by one; they are ended together when the burst is dropped.
    ///
    /// # Errors
    /// As [`Reader::begin_get`].
    ///
    /// # Examples
    /// ```no_run
    /// # fn main() -> Result<(), crossdock_nectarine::Error> {
    /// # let node = crossdock_nectarine::Node::connect("127.0.0.1:7401")?;
    /// let mut reader = node.reader("orders")?;
    /// for message in &reader.get_many(32)? {
    ///     println!("{} bytes", message.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn get_many(&mut self, most: usize) -> Result<Burst<'_>, Error> {
        let burst = self.get_many_by(most, Wait::Block)?;
        debug_assert!(burst.is_some(), "a call without a time-out does not run out of time");
        burst.ok_or(Error::Interrupted)
    }

    /// [`Reader::get_many`] that waits for the first message as `wait` says; `None` when its time is over. Over packets,
    /// [`Wait::Poll`] is [`Wait::Block`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn get_many_by(&mut self, most: usize, wait: Wait) -> Result<Option<Burst<'_>>, Error> {
        match &mut self.0 {
            Carried::Memory(reader) => Ok(reader.get_many(most, wait)?.map(|burst| Burst(Carried::Memory(burst)))),
            Carried::Packets(reader) => {
                let mut messages = Vec::new();
                while messages.len() < most {
                    let next = if messages.is_empty() { reader.begin_get(wait) } else { reader.try_begin_get() };
                    match next {
                        Ok(Some(Carried::<client::Message, _>::Packets(message))) => messages.push(message),
                        Ok(_) if messages.is_empty() => return Ok(None),
                        Err(error) if messages.is_empty() => return Err(error),
                        // An error is met again by the next call, which begins with it.
                        Ok(_) | Err(_) => break,
                    }
                }
                Ok(Some(Burst(Carried::Packets(messages))))
            }
        }
    }

    /// Over packets: whether [`Reader::try_begin_get`] has something, for a thread that has the link.
    pub(super) fn has_message(&self, inner: &mut Inner) -> bool {
        match &self.0 {
            Carried::Memory(_) => false,
            Carried::Packets(reader) => reader.has_message(inner),
        }
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

/// Messages that were taken together ([`Reader::get_many`]), in their order. Dropping it ends them all.
pub struct Burst<'a>(Carried<client::Burst<'a>, Vec<RemoteMessage>>);

impl Burst<'_> {
    /// How many there are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        carried!(&self.0, messages => messages.len())
    }

    /// Whether there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of each.
    #[inline]
    pub fn iter(&self) -> Messages<'_> {
        Messages(match &self.0 {
            Carried::Memory(burst) => Carried::Memory(burst.iter()),
            Carried::Packets(messages) => Carried::Packets(messages.iter()),
        })
    }
}

impl<'a> IntoIterator for &'a Burst<'_> {
    type Item = &'a [u8];
    type IntoIter = Messages<'a>;

    #[inline]
    fn into_iter(self) -> Messages<'a> {
        self.iter()
    }
}

impl std::fmt::Debug for Burst<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Burst").field("messages", &self.len()).finish_non_exhaustive()
    }
}

/// The bytes of the messages of a [`Burst`], one after the other.
pub struct Messages<'a>(Carried<slice::Iter<'a, client::Message>, slice::Iter<'a, RemoteMessage>>);

impl<'a> Iterator for Messages<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        carried!(&mut self.0, messages => messages.next().map(|message| &**message))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        carried!(&self.0, messages => messages.size_hint())
    }
}

impl ExactSizeIterator for Messages<'_> {}

impl std::fmt::Debug for Messages<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Messages").field("left", &self.len()).finish_non_exhaustive()
    }
}

/// A message that is being read, in place, less what [`Message::adjust`] left out. Dropping it ends it, from any thread.
pub struct Message(pub(super) Carried<client::Message, RemoteMessage>);

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
