//! The session of a node, which its clones, and the writers and readers of its mailboxes, share.

use super::open_side::OpenSide;
use crate::client::{Client, Interrupter};
use crate::error::Error;
use crate::incoming::{Answer, Opened};
use crate::link::NOBODY;
use crate::post::{AHEAD, Post};
use crate::settings::Settings;
use crate::shared::{Inner, Shared};
use crossdock_mailbox::client::Attachment;
use crossdock_transport::secure::PublicKey;
use crossdock_transport::{Request, Side};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// How long a dropped node tries to get rid of what was put.
const FAREWELL: Duration = Duration::from_millis(250);

/// The state that the clones of a node share.
pub(super) struct NodeSession {
    pub(super) settings: Settings,
    pub(super) shared: Arc<Shared>,
    /// For requests; one waits at a time.
    client: Mutex<Client>,
    pub(super) interrupter: Interrupter,
    /// The node's name, once it was asked for.
    pub(super) name: OnceLock<String>,
    /// The number of the last stream that was announced.
    stream: AtomicU16,
}

impl NodeSession {
    pub(super) fn new(settings: Settings, client: Client) -> NodeSession {
        let (interrupter, shared) = (client.interrupter(), Arc::clone(&client.shared));
        let (client, name, stream) = (Mutex::new(client), OnceLock::new(), AtomicU16::new(0));
        NodeSession { settings, shared, client, interrupter, name, stream }
    }

    /// A number for one more stream, from 1 to `most`; numbers come again after that many.
    pub(super) fn next_stream(&self, most: u16) -> u16 {
        self.stream.fetch_add(1, Ordering::Relaxed) % most + 1
    }

    pub(super) fn client(&self) -> MutexGuard<'_, Client> {
        // Half-done after a panic is at most a request whose answer nobody waits for.
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and waits for the answer; waits for the connection first, if it was lost.
    pub(super) fn ask(&self, request: impl FnOnce(u32) -> Request) -> Result<Answer, Error> {
        self.ask_after(|_, id| request(id)).map(|(answer, _)| answer)
    }

    /// The same; `request` may read the session's state when it asks. Also returns the session in which it was
    /// answered.
    pub(super) fn ask_after(&self, request: impl FnOnce(&mut Post, u32) -> Request) -> Result<(Answer, u64), Error> {
        let mut client = self.client();
        let up = client.wait(Some(self.settings.connect_timeout), |inner| inner.link.is_up().then_some(()))?;
        if up.is_none() {
            return Err(client.shared.lock().link.lost());
        }
        client.ask(|inner, id| request(inner.post.get_or_insert_default(), id))
    }

    /// The attachment of the session that stands.
    pub(super) fn attachment(&self, what: &'static str) -> Result<Attachment, Error> {
        let inner = self.shared.lock();
        inner.link.check_up()?;
        let attachment = inner.link.attachment().cloned();
        attachment.ok_or_else(|| Error::NotLocal { what, addr: self.settings.addr.clone() })
    }

    /// Opens a side of a mailbox; with the attachment, if its messages go by shared memory.
    pub(super) fn open(
        &self,
        mailbox: &str,
        side: Side,
        message_bytes: Option<u32>,
        ahead: Option<u32>,
    ) -> Result<(OpenSide, Opened, Option<Attachment>), Error> {
        let name = mailbox.to_owned();
        let (answer, session) = self.ask_after(|post, id| {
            if side == Side::Read {
                post.expect(id, ahead.unwrap_or(AHEAD));
            }
            Request::OpenMailbox { id, name, side, message_bytes, ahead }
        })?;
        let Answer::Opened(opened) = answer else {
            return Err(Error::Malformed("the daemon's answer lacks the opened mailbox".to_owned()));
        };
        let attachment = {
            let inner = self.shared.lock();
            if inner.link.session() != session || !inner.link.is_up() {
                return Err(inner.link.lost());
            }
            inner.link.attachment().cloned()
        };
        if let Some(attachment) = &attachment {
            let shared = Arc::downgrade(&self.shared);
            attachment.on_unused(move |number| close(&shared, session, number));
        }
        Ok((OpenSide { session, number: opened.number, mailbox: mailbox.to_owned() }, opened, attachment))
    }

    /// Deletes a mailbox that was made in session `session`, and waits for nobody.
    pub(super) fn forget_mailbox(&self, session: u64, name: &str) {
        let mut inner = self.shared.lock();
        if inner.link.session() != session {
            return; // it went with that
        }
        inner.link.ask(Request::DeleteMailbox { id: NOBODY, name: name.to_owned() });
        inner.link.transmit();
        // A thread that has the client waits, and does what falls due.
        if let Ok(client) = self.client.try_lock() {
            client.tick(&mut inner);
        }
    }

    /// Deletes a mailbox that was made in session `session`, and waits until the daemon has, unless that takes too long.
    pub(super) fn delete_mailbox(&self, session: u64, name: &str) {
        let is_gone = |inner: &Inner| inner.link.session() != session || !inner.link.is_up();
        let mut client = self.client();
        let id = {
            let mut inner = self.shared.lock();
            if is_gone(&inner) {
                return; // it went with that
            }
            let id = inner.link.request_id();
            inner.link.ask(Request::DeleteMailbox { id, name: name.to_owned() });
            id
        };
        // Nobody is there to take an error any more.
        let timeout = Some(self.settings.connect_timeout);
        let _ = client.wait(timeout, |inner| (inner.link.answer(id).is_some() || is_gone(inner)).then_some(()));
    }

    /// A node's address and name, and its daemon's key.
    pub(super) fn find(&self, name: &str) -> Result<Found, Error> {
        let name = name.to_owned();
        let Answer::Node { address, name, key } = self.ask(|id| Request::FindNode { id, name })? else {
            return Err(Error::Malformed("the daemon's answer lacks the node's address".to_owned()));
        };
        let key = key.map(|key| key.parse()).transpose();
        let key = key.map_err(|why| Error::Malformed(format!("the daemon's answer has a key that is none: {why}")))?;
        Ok(Found { address, name, key })
    }
}

/// A node that the daemon knows.
pub(super) struct Found {
    /// Its daemon's address.
    pub(super) address: String,
    pub(super) name: String,
    /// Its daemon's public key, if it is known.
    pub(super) key: Option<PublicKey>,
}

/// Closes a side of a mailbox by shared memory, once nothing of it is in use any more.
fn close(shared: &Weak<Shared>, session: u64, number: u16) {
    let Some(shared) = shared.upgrade() else { return };
    let mut inner = shared.lock();
    if inner.link.session() == session {
        inner.link.ask(Request::CloseMailbox { id: NOBODY, number });
        inner.link.transmit();
    }
}

impl Drop for NodeSession {
    fn drop(&mut self) {
        let client = self.client.get_mut().unwrap_or_else(PoisonError::into_inner);
        if client.shared.lock().link.attachment().is_none() {
            client.shared.lock().link.ask(Request::Terminate);
        }
        // Nobody is there to take an error any more.
        let _ = client.wait(Some(FAREWELL), |inner| inner.link.is_settled().then_some(()));
        // An attachment lasts as long as messages of it are in the application's hands.
        client.shared.lock().link.say_close();
    }
}
