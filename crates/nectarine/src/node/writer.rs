//! Writing into a mailbox of a node.

use super::carried::{Carried, carried};
use super::local::LocalWriter;
use super::remote::{RemotePut, RemoteWriter};
use crate::client::Interrupter;
use crate::error::Error;
use crate::post::DroppedMessages;
use crate::shared::Inner;
use crossdock_mailbox::client::{self, Wait};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// How a mailbox is opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterOptions {
    /// By shared memory: the length in bytes of the buffers that are granted ahead; a longer message costs a request. The
    /// daemon's default unless set.
    pub message_bytes: Option<u32>,
    /// How many messages may be put before the daemon takes one; the daemon's default unless set.
    pub ahead: Option<u32>,
}

/// The writing side of a mailbox.
///
/// A message is begun, filled in place, and ended; several may be begun before one is ended, and they are read in the order
/// in which they were ended. By shared memory the place is the one in which the reader reads. Over packets it is memory of this
/// process, and a message is at most one packet long (65,440 bytes).
pub struct Writer(pub(super) Carried<LocalWriter, RemoteWriter>);

impl Writer {
    /// Begins a message of `bytes` bytes. Waits while the mailbox is full, or all that this process may hold is in use.
    ///
    /// # Errors
    /// The message is longer than one may be, the mailbox or the connection is gone, or the call was interrupted.
    #[inline]
    pub fn begin_put(&mut self, bytes: usize) -> Result<Put, Error> {
        let put = self.begin_put_by(bytes, Wait::Block)?;
        debug_assert!(put.is_some(), "a call without a time-out does not run out of time");
        put.ok_or(Error::Interrupted)
    }

    /// [`Writer::begin_put`] that gives up after `timeout`: `None`.
    ///
    /// # Errors
    /// As there.
    pub fn begin_put_timeout(&mut self, bytes: usize, timeout: Duration) -> Result<Option<Put>, Error> {
        self.begin_put_by(bytes, Wait::at_most(timeout))
    }

    /// [`Writer::begin_put`] that waits as `wait` says; `None` when its time is over. Over packets, [`Wait::Poll`] is
    /// [`Wait::Block`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn begin_put_by(&mut self, bytes: usize, wait: Wait) -> Result<Option<Put>, Error> {
        Ok(carried!(&mut self.0, writer => writer.begin_put(bytes, wait)?).map(Put))
    }

    /// [`Writer::begin_put`] that waits for nobody: `None` if it would have to.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_begin_put(&mut self, bytes: usize) -> Result<Option<Put>, Error> {
        Ok(carried!(&mut self.0, writer => writer.try_begin_put(bytes)?).map(Put))
    }

    /// Ends a message: it is in the mailbox, or on its way there, behind those that were ended before. Never waits.
    ///
    /// # Errors
    /// The mailbox or the connection is gone, or the message was begun by another writer; it is given back then.
    #[inline]
    pub fn end_put(&mut self, put: Put) -> Result<(), Error> {
        match (&mut self.0, put.0) {
            (Carried::Memory(writer), Carried::Memory(put)) => writer.end_put(put),
            (Carried::Packets(writer), Carried::Packets(put)) => writer.end_put(put),
            _ => Err(Error::Foreign),
        }
    }

    /// Puts a copy of `message`.
    ///
    /// # Errors
    /// As [`Writer::begin_put`] and [`Writer::end_put`].
    pub fn put(&mut self, message: &[u8]) -> Result<(), Error> {
        let mut put = self.begin_put(message.len())?;
        put.copy_from_slice(message);
        self.end_put(put)
    }

    /// Puts a copy of each of `messages`, in their order: for streams of small messages, much quicker than one by one. Waits whenever
    /// the mailbox is full. Returns how many there were.
    ///
    /// # Errors
    /// As [`Writer::begin_put`] and [`Writer::end_put`]. The messages before the one that met the error are put; that one has been
    /// taken from the iterator.
    ///
    /// # Examples
    /// ```no_run
    /// # fn main() -> Result<(), crossdock_nectarine::Error> {
    /// # let node = crossdock_nectarine::Node::connect("127.0.0.1:7401")?;
    /// let mut writer = node.writer("orders")?;
    /// writer.put_many(["first", "second", "third"])?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn put_many<M: AsRef<[u8]>>(&mut self, messages: impl IntoIterator<Item = M>) -> Result<usize, Error> {
        match &mut self.0 {
            Carried::Memory(writer) => writer.put_many(messages),
            Carried::Packets(_) => messages.into_iter().try_fold(0, |put, message| {
                self.put(message.as_ref())?;
                Ok(put + 1)
            }),
        }
    }

    /// Puts `count` messages of `bytes` bytes, which `fill` writes in place, each by its number from 0 on; else as
    /// [`Writer::put_many`]. `fill` writes every byte: what they hold at first is not said.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn put_many_with(
        &mut self,
        count: usize,
        bytes: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<usize, Error> {
        match &mut self.0 {
            Carried::Memory(writer) => writer.put_many_with(count, bytes, fill),
            Carried::Packets(_) => (0..count).try_fold(0, |put, at| {
                let mut message = self.begin_put(bytes)?;
                fill(at, &mut message);
                self.end_put(message)?;
                Ok(put + 1)
            }),
        }
    }

    /// Whether the mailbox is there still, as far as the daemon has said by now; waits for nobody. Of a mailbox with
    /// [`Implementation::SignalQueue`](crate::Implementation::SignalQueue) by shared memory this is known once a message is put.
    ///
    /// # Errors
    /// The mailbox or the connection is gone.
    #[inline]
    pub fn check(&mut self) -> Result<(), Error> {
        carried!(&mut self.0, writer => writer.check())
    }

    /// Whether its messages go by shared memory.
    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self.0, Carried::Memory(_))
    }

    /// Gives back memory that a call which gave up has asked for.
    pub(super) fn withdraw(&mut self) {
        match &mut self.0 {
            Carried::Memory(writer) => writer.withdraw(),
            Carried::Packets(_) => {}
        }
    }

    /// Over packets: whether the mailbox is gone, for a thread that has the link.
    pub(super) fn is_gone(&self, inner: &mut Inner) -> bool {
        match &self.0 {
            Carried::Memory(_) => false,
            Carried::Packets(writer) => writer.is_gone(inner),
        }
    }

    /// Over packets: whether a message can be put, or never again, for a thread that has the link.
    pub(super) fn has_room(&self, inner: &mut Inner) -> bool {
        match &self.0 {
            Carried::Memory(_) => false,
            Carried::Packets(writer) => writer.has_room(inner),
        }
    }

    /// Waits until the daemon has all that this node's writers have put. By shared memory it has it at once.
    ///
    /// # Errors
    /// The mailbox or the connection is gone, or the call was interrupted.
    pub fn flush(&mut self) -> Result<(), Error> {
        carried!(&mut self.0, writer => writer.flush())
    }

    /// The next report of messages of the mailbox that were dropped, whoever put them: longer than a remote reader takes, with a
    /// reader that went without having ended them, at a task whose target was full, and so on. Waits for one for `timeout`, without
    /// an end if there is none; `None` when the time is over. The daemon reports 10 times a second at most.
    ///
    /// # Errors
    /// The mailbox or the connection is gone and everything reported before was returned.
    pub fn next_dropped(&mut self, timeout: Option<Duration>) -> Result<Option<DroppedMessages>, Error> {
        carried!(&mut self.0, writer => writer.next_dropped(timeout))
    }

    /// The mailbox's name.
    #[must_use]
    pub fn mailbox(&self) -> &str {
        carried!(&self.0, writer => writer.mailbox())
    }

    /// Makes a waiting call of this writer return, from another thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        carried!(&self.0, writer => writer.interrupter())
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("mailbox", &self.mailbox()).finish_non_exhaustive()
    }
}

/// A message that is being written, in place: as many bytes as were asked for, less what [`Put::adjust`] left out. The
/// bytes that they hold at first is not said. Dropping it gives it back; nothing is put then.
pub struct Put(Carried<client::Put, RemotePut>);

impl Put {
    /// Leaves out `prefix` bytes at the start and `suffix` at the end, without copying.
    ///
    /// # Errors
    /// The message has not as many; it stays as it is.
    #[inline]
    pub fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), Error> {
        carried!(&mut self.0, put => Ok(put.adjust(prefix, suffix)?))
    }
}

impl Deref for Put {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        carried!(&self.0, put => put)
    }
}

impl DerefMut for Put {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        carried!(&mut self.0, put => put)
    }
}

impl std::fmt::Debug for Put {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Put").field("bytes", &self.len()).finish_non_exhaustive()
    }
}
