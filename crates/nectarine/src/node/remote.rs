//! The sides of a mailbox whose messages go by packets.

use super::carried::Carried;
use super::open_side::OpenSide;
use super::session::NodeSession;
use crate::client::{Client, Interrupter};
use crate::error::Error;
use crate::link::MAX_PAYLOAD_BYTES;
use crate::outgoing::Message;
use crate::post::{Arrived, DroppedMessages};
use crate::shared::{Inner, Shared};
use crossdock_mailbox::client::Wait;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A side of a mailbox, with an end of the link of its own: so the sides may be used by different threads.
struct Open {
    client: Client,
    side: OpenSide,
    /// The session lasts as long as any of its sides.
    _session: Arc<NodeSession>,
}

impl Open {
    fn new(session: Arc<NodeSession>, side: OpenSide) -> Result<Open, Error> {
        let client = session.client().join()?;
        Ok(Open { client, side, _session: session })
    }

    /// Where a message belongs.
    fn home(&self) -> Home {
        Home { shared: Arc::clone(&self.client.shared), side: self.side.clone() }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut inner = self.client.shared.lock();
        self.side.close(&mut inner);
        self.client.tick(&mut inner);
    }
}

/// Where a message belongs.
struct Home {
    shared: Arc<Shared>,
    side: OpenSide,
}

/// A message's bytes, less what [`Bytes::adjust`] left out.
struct Bytes {
    all: Vec<u8>,
    /// Lies within `all`.
    range: Range<usize>,
}

impl Bytes {
    fn new(all: Vec<u8>) -> Bytes {
        Bytes { range: 0..all.len(), all }
    }

    fn get(&self) -> &[u8] {
        &self.all[self.range.clone()]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.all[self.range.clone()]
    }

    fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), Error> {
        let bytes = self.range.len();
        match prefix.checked_add(suffix) {
            Some(out) if out <= bytes => {
                self.range = self.range.start + prefix..self.range.end - suffix;
                Ok(())
            }
            _ => Err(Error::TooShort { bytes }),
        }
    }

    fn into_vec(mut self) -> Vec<u8> {
        self.all.truncate(self.range.end);
        self.all.drain(..self.range.start);
        self.all
    }
}

/// The writing side.
pub(super) struct RemoteWriter(Open);

impl RemoteWriter {
    pub(super) fn new(session: Arc<NodeSession>, side: OpenSide) -> Result<RemoteWriter, Error> {
        Open::new(session, side).map(RemoteWriter)
    }

    pub(super) fn interrupter(&self) -> Interrupter {
        self.0.client.interrupter()
    }

    pub(super) fn mailbox(&self) -> &str {
        &self.0.side.mailbox
    }

    /// `None` when the time is over.
    pub(super) fn begin_put<M>(&mut self, bytes: usize, wait: Wait) -> Result<Option<Carried<M, RemotePut>>, Error> {
        check_length(bytes)?;
        let Open { client, side, .. } = &mut self.0;
        let may_put = client.wait(timeout(wait), |inner| side.may_put(inner))?.transpose()?;
        Ok(may_put.map(|()| Carried::Packets(self.new_put(bytes))))
    }

    pub(super) fn try_begin_put<M>(&mut self, bytes: usize) -> Result<Option<Carried<M, RemotePut>>, Error> {
        check_length(bytes)?;
        let may_put = self.0.client.look(|inner| self.0.side.may_put(inner)).transpose()?;
        Ok(may_put.map(|()| Carried::Packets(self.new_put(bytes))))
    }

    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.0.side.check(&mut self.0.client.shared.lock())
    }

    /// Whether the mailbox is gone, for a thread that has the link.
    pub(super) fn is_gone(&self, inner: &mut Inner) -> bool {
        self.0.side.check(inner).is_err()
    }

    /// Whether a message can be put, or never again, for a thread that has the link.
    pub(super) fn has_room(&self, inner: &mut Inner) -> bool {
        self.0.side.has_room(inner)
    }

    fn new_put(&self, bytes: usize) -> RemotePut {
        RemotePut { bytes: Bytes::new(vec![0; bytes]), home: Some(self.0.home()) }
    }

    pub(super) fn end_put(&mut self, mut put: RemotePut) -> Result<(), Error> {
        let Open { client, side, .. } = &self.0;
        let is_own = |home: &mut Home| Arc::ptr_eq(&home.shared, &client.shared) && home.side.is_same(side);
        if put.home.take_if(is_own).is_none() {
            return Err(Error::Foreign);
        }
        let bytes = std::mem::replace(&mut put.bytes, Bytes::new(Vec::new())).into_vec();
        let mut inner = client.shared.lock();
        side.check(&mut inner)?;
        inner.link.enqueue(Message::mailbox(side.number, bytes));
        inner.link.transmit();
        client.leave(&mut inner);
        Ok(())
    }

    pub(super) fn next_dropped(&mut self, timeout: Option<Duration>) -> Result<Option<DroppedMessages>, Error> {
        let Open { client, side, .. } = &mut self.0;
        client.wait(timeout, |inner| side.dropped(inner))?.transpose()
    }

    /// Waits until the daemon has all that was put.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let Open { client, side, .. } = &mut self.0;
        let settled = client.wait(None, |inner| match side.check(inner) {
            Ok(()) => inner.link.is_settled().then_some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        let settled = settled?;
        debug_assert!(settled.is_some(), "a call without a time-out does not run out of time");
        settled.unwrap_or(Ok(()))
    }
}

/// How long to wait at most.
fn timeout(wait: Wait) -> Option<Duration> {
    match wait {
        Wait::Poll | Wait::Block => None,
        Wait::Until(end) => Some(end.saturating_duration_since(Instant::now())),
    }
}

fn check_length(bytes: usize) -> Result<(), Error> {
    let most = MAX_PAYLOAD_BYTES;
    if bytes > most { Err(Error::RemoteTooLong { bytes, most }) } else { Ok(()) }
}

/// A message being written.
pub(super) struct RemotePut {
    bytes: Bytes,
    /// Taken when it is ended.
    home: Option<Home>,
}

impl Deref for RemotePut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get()
    }
}

impl DerefMut for RemotePut {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut()
    }
}

impl RemotePut {
    pub(super) fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), Error> {
        self.bytes.adjust(prefix, suffix)
    }
}

impl Drop for RemotePut {
    fn drop(&mut self) {
        if let Some(Home { shared, side }) = self.home.take() {
            side.not_put(&mut shared.lock());
        }
    }
}

/// The reading side.
pub(super) struct RemoteReader(Open);

impl RemoteReader {
    pub(super) fn new(session: Arc<NodeSession>, side: OpenSide) -> Result<RemoteReader, Error> {
        Open::new(session, side).map(RemoteReader)
    }

    pub(super) fn interrupter(&self) -> Interrupter {
        self.0.client.interrupter()
    }

    pub(super) fn mailbox(&self) -> &str {
        &self.0.side.mailbox
    }

    /// `None` when the time is over.
    pub(super) fn begin_get<M>(&mut self, wait: Wait) -> Result<Option<Carried<M, RemoteMessage>>, Error> {
        let Open { client, side, .. } = &mut self.0;
        let message = client.wait(timeout(wait), |inner| side.get(inner))?.transpose()?;
        Ok(message.map(|message| Carried::Packets(self.message(message))))
    }

    pub(super) fn try_begin_get<M>(&mut self) -> Result<Option<Carried<M, RemoteMessage>>, Error> {
        let message = self.0.client.look(|inner| self.0.side.get(inner)).transpose()?;
        Ok(message.map(|message| Carried::Packets(self.message(message))))
    }

    /// Whether a message is there, or none will be, for a thread that has the link.
    pub(super) fn has_message(&self, inner: &mut Inner) -> bool {
        self.0.side.has_message(inner)
    }

    fn message(&self, message: Arrived) -> RemoteMessage {
        RemoteMessage { number: message.number, bytes: Bytes::new(message.bytes), home: self.0.home() }
    }
}

/// A message being read. Dropping it ends it.
pub(super) struct RemoteMessage {
    number: u64,
    bytes: Bytes,
    home: Home,
}

impl Deref for RemoteMessage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get()
    }
}

impl RemoteMessage {
    pub(super) fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), Error> {
        self.bytes.adjust(prefix, suffix)
    }
}

impl Drop for RemoteMessage {
    fn drop(&mut self) {
        let Home { shared, side } = &self.home;
        side.ended(&mut shared.lock(), self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_left_out_at_both_ends() {
        let mut bytes = Bytes::new(b"0123456789".to_vec());
        bytes.adjust(2, 3).unwrap();
        bytes.get_mut()[0] = b'x';
        assert!(matches!(bytes.adjust(3, 3), Err(Error::TooShort { bytes: 5 })));
        assert!(matches!(bytes.adjust(usize::MAX, 2), Err(Error::TooShort { bytes: 5 })));
        assert_eq!(bytes.get(), b"x3456");
        bytes.adjust(1, 0).unwrap();
        assert_eq!(bytes.into_vec(), b"3456");
        let mut empty = Bytes::new(b"ab".to_vec());
        empty.adjust(1, 1).unwrap();
        assert_eq!((empty.get().len(), empty.into_vec().len()), (0, 0));
    }
}
