//! Records of a stream that lie in messages of mailboxes: a program that reads a mailbox names one, and the daemon sends it.

use super::carried::Carried;
use super::session::NodeSession;
use super::{Message, Node, Reader};
use crate::error::Error;
use crate::link::NOBODY;
use crate::packing::Packing;
use crate::settings::DeliveryClass;
use crate::shared::Inner;
use crossdock_format::{Format, Record};
use crossdock_transport::{MAX_MESSAGE_BYTES, Request};
use std::sync::Arc;
use std::time::Duration;

/// The highest number of a stream in the descriptors of shared memory.
const MOST_STREAMS: u16 = (1 << 15) - 1;

/// Publishes records that lie in mailboxes. Where the node is reached by shared memory, and a message was read by a reader of the same
/// [`Node`], the daemon takes the bytes from where they lie: they do not pass through this program. Otherwise they are sent as
/// those of a [`Publisher`](crate::Publisher).
///
/// It goes with its session: when that is lost, it can be used no more. Dropping it finishes the stream.
pub struct RecordSender {
    session: Arc<NodeSession>,
    /// The session in which it publishes.
    number: u64,
    /// The session's number of the stream.
    stream: u16,
    format: Format,
    is_finished: bool,
}

impl Node {
    /// Announces a stream, to send records of it out of mailboxes ([`RecordSender::send`]).
    ///
    /// # Errors
    /// The daemon refuses the stream or its format; the connection is gone.
    ///
    /// # Examples
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let node = crossdock_nectarine::Node::connect("127.0.0.1:7440")?;
    /// # let format = crossdock_format::Format::parse_schema("delay i32")?;
    /// let (mut reader, mut sender) = (node.reader("checked")?, node.record_sender("flights", &format)?);
    /// for _ in 0..100 {
    ///     let message = reader.begin_get()?;
    ///     sender.send(&mut reader, message)?;
    /// }
    /// sender.finish()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn record_sender(&self, stream: &str, format: &Format) -> Result<RecordSender, Error> {
        let (name, description) = (stream.to_owned(), format.describe());
        let mut stream = 0;
        let (_, number) = self.session.ask_after(|_, id| {
            stream = self.session.next_stream(MOST_STREAMS);
            let (name, format) = (name, description);
            Request::Announce { id, stream: stream.into(), name, format, publication: None, key: Vec::new() }
        })?;
        let session = Arc::clone(&self.session);
        Ok(RecordSender { session, number, stream, format: format.clone(), is_finished: false })
    }
}

impl RecordSender {
    /// The format of the stream's records.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Publishes a message of a mailbox, as it is now: one record of the stream's format. The message is ended. By shared memory this
    /// waits for nobody and copies nothing; records of one sender that were read by several readers may overtake one another.
    ///
    /// # Errors
    /// The message is not one record of the format, or was read by another reader; the connection is gone. The message is ended then
    /// too.
    pub fn send(&mut self, reader: &mut Reader, message: Message) -> Result<(), Error> {
        Record::check(&self.format, &message)?;
        match (&mut reader.0, message.0) {
            (Carried::Memory(reader), Carried::Memory(message)) if reader.is_of(&self.session, self.number) => {
                reader.send(message, self.stream)
            }
            (_, message) => self.copy(&Message(message)),
        }
    }

    /// Sends a copy of a record.
    fn copy(&self, record: &[u8]) -> Result<(), Error> {
        if record.len() > MAX_MESSAGE_BYTES {
            return Err(Error::TooLong { bytes: record.len(), most: MAX_MESSAGE_BYTES });
        }
        let (stream, format) = (self.stream.into(), self.format.id().0);
        let pack = |inner: &mut Inner| {
            if inner.link.session() != self.number {
                return Some(Err(inner.link.lost()));
            }
            let mut packing = Packing::new(stream, format, DeliveryClass::Reliable, Duration::ZERO);
            let is_packed = packing.pack(&mut inner.link, record);
            packing.flush(&mut inner.link);
            inner.link.transmit();
            is_packed.then_some(Ok(()))
        };
        let sent = self.session.client().wait(None, pack)?;
        debug_assert!(sent.is_some(), "a wait without a time-out does not run out of time");
        sent.unwrap_or(Err(Error::Interrupted))
    }

    /// Finishes the stream, and waits until the daemon has taken all that was sent.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn finish(mut self) -> Result<(), Error> {
        self.is_finished = true;
        let stream = self.stream.into();
        let (_, number) = self.session.ask_after(|_, id| Request::Finish { id, stream })?;
        if number == self.number { Ok(()) } else { Err(self.session.shared.lock().link.lost()) }
    }
}

impl Drop for RecordSender {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let mut inner = self.session.shared.lock();
        if inner.link.session() == self.number {
            inner.link.ask(Request::Finish { id: NOBODY, stream: self.stream.into() });
            inner.link.transmit();
        }
    }
}

impl std::fmt::Debug for RecordSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordSender").field("stream", &self.stream).finish_non_exhaustive()
    }
}
