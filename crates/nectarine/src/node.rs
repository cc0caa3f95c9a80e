//! Mailboxes and tasks on a named node, local or remote (Nectar paper, sections 3.3 and 3.5): one interface, whichever way the
//! messages go.

mod local;
mod post;
mod reader;
mod remote;
mod writer;

pub use reader::{Message, Reader, ReaderOptions};
pub use writer::{Put, Writer, WriterOptions};

use crate::error::Error;
use crate::incoming::{Answer, Opened};
use crate::link::NOBODY;
use crate::settings::{Settings, Transport, setting_methods};
use crate::shared::{Client, Interrupter, Shared};
use crossdock_mailbox::client::{Attachment, Condition, SyncWord, Wait};
use crossdock_mailbox::{ConditionAddress, SyncAddress};
use crossdock_transport::{Implementation, Request, Side};
use local::{LocalReader, LocalWriter};
use post::{AHEAD, Place};
use reader::ReaderSide;
use remote::{RemoteReader, RemoteWriter};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use writer::WriterSide;

pub(crate) use post::Post;

/// How long a dropped node tries to get rid of what was put.
const FAREWELL: Duration = Duration::from_millis(250);

/// Sets up a [`Node`].
#[derive(Clone, Debug)]
pub struct NodeBuilder {
    settings: Settings,
}

impl NodeBuilder {
    setting_methods!();

    /// Connects.
    ///
    /// # Errors
    /// Nobody answers, or the daemon lets nobody in.
    pub fn connect(self) -> Result<Node, Error> {
        let mut client = Client::new(self.settings.clone())?;
        client.shared.lock().post = Some(Post::default());
        client.wait(None, |inner| inner.link.is_up().then_some(()))?;
        let interrupter = client.interrupter();
        let shared = Arc::clone(&client.shared);
        let client = Mutex::new(client);
        let core = Core { settings: self.settings, shared, client, interrupter, name: OnceLock::new() };
        Ok(Node { core: Arc::new(core) })
    }
}

/// A new mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailboxOptions {
    /// How messages pass through it: [`Implementation::Rings`], for one writer and one reader, unless set.
    pub implementation: Implementation,
    /// How many messages it holds before its writers wait; the daemon's default unless set.
    pub bound_messages: Option<u32>,
    /// How many bytes it holds before its writers wait; the daemon's default unless set.
    pub bound_bytes: Option<u64>,
}

/// A node: a daemon, and the mailboxes and tasks on it. Cheap to clone; the clones, and the writers and readers of its
/// mailboxes, share one session with the daemon, and may be used by different threads.
///
/// When the daemon was gone and is back, the node can be used again; writers and readers of before cannot, since their
/// mailboxes went with the daemon.
#[derive(Clone)]
pub struct Node {
    core: Arc<Core>,
}

/// What the clones of a node share.
struct Core {
    settings: Settings,
    shared: Arc<Shared>,
    /// For requests; one waits at a time.
    client: Mutex<Client>,
    interrupter: Interrupter,
    /// The node's name, once it was asked for.
    name: OnceLock<String>,
}

impl Node {
    /// Connects to the daemon at an address, `host:port`, with the default settings.
    ///
    /// # Errors
    /// As [`NodeBuilder::connect`].
    pub fn connect(addr: impl Into<String>) -> Result<Node, Error> {
        Node::builder(addr).connect()
    }

    /// Begins to set up a node at the daemon's address, `host:port`.
    #[must_use]
    pub fn builder(addr: impl Into<String>) -> NodeBuilder {
        NodeBuilder { settings: Settings::new(addr) }
    }

    /// The node's name, as its daemon says.
    ///
    /// # Errors
    /// The connection was lost.
    pub fn name(&self) -> Result<&str, Error> {
        if let Some(name) = self.core.name.get() {
            return Ok(name);
        }
        let (_, name) = self.core.find("")?;
        Ok(self.core.name.get_or_init(|| name))
    }

    /// Another node, by its name, as this one's daemon knows it; this node for its own name.
    ///
    /// # Errors
    /// The daemon knows no such node, or it cannot be reached.
    pub fn named(&self, name: &str) -> Result<Node, Error> {
        if name.is_empty() || name == self.name()? {
            return Ok(self.clone());
        }
        let (addr, name) = self.core.find(name)?;
        // How this node was to be reached says nothing of another one, but that packets were wanted.
        let transport = match self.core.settings.transport {
            Transport::Shm => Transport::Auto,
            transport => transport,
        };
        let settings = Settings { addr, transport, ..self.core.settings.clone() };
        let node = NodeBuilder { settings }.connect()?;
        // Another name for the same node would be its daemon's to say; this one is what it was asked for by.
        node.core.name.get_or_init(|| name);
        Ok(node)
    }

    /// Makes a mailbox on the node. It lives until it is deleted, or until the last clone of this node is gone.
    ///
    /// # Errors
    /// There is one of that name, or as many as there may be.
    pub fn create_mailbox(&self, name: &str, options: MailboxOptions) -> Result<(), Error> {
        let MailboxOptions { implementation, bound_messages, bound_bytes } = options;
        let name = name.to_owned();
        self.core.ask(|id| Request::CreateMailbox { id, name, implementation, bound_messages, bound_bytes })?;
        Ok(())
    }

    /// Deletes a mailbox with all that lies in it.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn delete_mailbox(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.core.ask(|id| Request::DeleteMailbox { id, name })?;
        Ok(())
    }

    /// Starts one of the daemon's built-in tasks (`echo`, `copy`, `sum`, `discard`, `log`, `read_file`, `dump`, `call`), which reads a mailbox
    /// by upcall; `arguments` say what else it needs, such as `to`, the mailbox that it writes into.
    ///
    /// # Errors
    /// There is no such task or mailbox, or another task reads it.
    pub fn create_task<K: Into<String>, V: Into<String>>(
        &self,
        task: &str,
        mailbox: &str,
        arguments: impl IntoIterator<Item = (K, V)>,
    ) -> Result<(), Error> {
        let (task, mailbox) = (task.to_owned(), mailbox.to_owned());
        let arguments = arguments.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        self.core.ask(|id| Request::CreateTask { id, task, mailbox, arguments })?;
        Ok(())
    }

    /// Ends the task that reads a mailbox.
    ///
    /// # Errors
    /// There is none.
    pub fn end_task(&self, mailbox: &str) -> Result<(), Error> {
        let mailbox = mailbox.to_owned();
        self.core.ask(|id| Request::EndTask { id, mailbox })?;
        Ok(())
    }

    /// Opens a mailbox for writing.
    ///
    /// # Errors
    /// There is none of that name; its implementation allows one writer, and it has one.
    pub fn writer(&self, mailbox: &str) -> Result<Writer, Error> {
        self.writer_with(mailbox, WriterOptions::default())
    }

    /// Opens a mailbox for writing.
    ///
    /// # Errors
    /// As [`Node::writer`].
    pub fn writer_with(&self, mailbox: &str, options: WriterOptions) -> Result<Writer, Error> {
        let WriterOptions { message_bytes, ahead } = options;
        let (place, opened, attachment) = self.core.open(mailbox, Side::Write, message_bytes, ahead)?;
        let core = self.core.clone();
        Ok(Writer(match attachment {
            Some(attachment) => {
                let writer = attachment.writer(opened.number, opened.port)?;
                WriterSide::Local(LocalWriter { writer, side: local::Side::new(core, place) })
            }
            None => WriterSide::Remote(RemoteWriter::new(core, place)?),
        }))
    }

    /// Opens a mailbox for reading.
    ///
    /// # Errors
    /// There is none of that name; its implementation allows one reader, and it has one; a task reads it.
    pub fn reader(&self, mailbox: &str) -> Result<Reader, Error> {
        self.reader_with(mailbox, ReaderOptions::default())
    }

    /// Opens a mailbox for reading.
    ///
    /// # Errors
    /// As [`Node::reader`].
    pub fn reader_with(&self, mailbox: &str, options: ReaderOptions) -> Result<Reader, Error> {
        let ahead = options.ahead.unwrap_or(AHEAD).max(1);
        let (place, opened, attachment) = self.core.open(mailbox, Side::Read, None, Some(ahead))?;
        let core = self.core.clone();
        Ok(Reader(match attachment {
            Some(attachment) => {
                let reader = attachment.reader(opened.number, opened.port)?;
                ReaderSide::Local(LocalReader { reader, side: local::Side::new(core, place) })
            }
            None => ReaderSide::Remote(RemoteReader::new(core, place)?),
        }))
    }

    /// Allocates a sync (Nectar paper, section 3.4): a word that is written once, by whoever has its address, and waited for.
    ///
    /// # Errors
    /// The node is reached by packets; all syncs are in use; the connection is gone.
    pub fn sync(&self) -> Result<SyncWord, Error> {
        Ok(self.core.attachment("syncs")?.alloc_sync()?)
    }

    /// Writes a sync, of this process or of another one of its protection domain.
    ///
    /// # Errors
    /// The node is reached by packets; the connection is gone.
    pub fn write_sync(&self, address: SyncAddress, value: u64) -> Result<(), Error> {
        Ok(self.core.attachment("syncs")?.write_sync(address, value)?)
    }

    /// Allocates a host condition (Nectar paper, section 3.2): a value that each signal changes, to be polled or waited for.
    ///
    /// # Errors
    /// The node is reached by packets; all conditions are in use; the connection is gone.
    pub fn condition(&self) -> Result<Condition, Error> {
        Ok(self.core.attachment("host conditions")?.condition()?)
    }

    /// Signals a host condition, of this process or of another one of its protection domain.
    ///
    /// # Errors
    /// The node is reached by packets; the connection is gone.
    pub fn signal(&self, address: ConditionAddress) -> Result<(), Error> {
        Ok(self.core.attachment("host conditions")?.signal(address)?)
    }

    /// The small remote call (Nectar paper, section 3.2): calls a procedure of the daemon's core, and waits for its result.
    ///
    /// # Errors
    /// The node is reached by packets; the connection is gone.
    pub fn call(&self, procedure: u16, argument: u64) -> Result<u64, Error> {
        Ok(self.core.attachment("calls of a core")?.call(procedure, argument, Wait::Block)?)
    }

    /// Serves the core's calls into this process, each in turn, by a thread of its own: `serve` is given procedure and argument,
    /// and returns the result. It serves the session that stands now.
    ///
    /// # Errors
    /// The node is reached by packets; they are served already; the connection is gone.
    pub fn on_upcall(&self, serve: impl FnMut(u16, u64) -> u64 + Send + 'static) -> Result<(), Error> {
        Ok(self.core.attachment("upcalls")?.on_upcall(serve)?)
    }

    /// What this node's session shares with the daemon, for what is not shown here, such as a descriptor for an event loop of the
    /// application's own ([`Attachment::arm`]; a request to the node, such as [`Node::create_mailbox`], uses it too: arm it again
    /// after one).
    ///
    /// # Errors
    /// The node is reached by packets; the connection is gone.
    pub fn attachment(&self) -> Result<Attachment, Error> {
        self.core.attachment("attachments")
    }

    /// The way that its messages go now: [`Transport::Shm`] or [`Transport::Udp`].
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.core.shared.lock().link.transport()
    }

    /// Makes a request that waits ([`Node::create_mailbox`] and its like) return, from another thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.core.interrupter.clone()
    }
}

impl Core {
    fn client(&self) -> MutexGuard<'_, Client> {
        // Half-done after a panic is at most a request whose answer nobody waits for.
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and waits for the answer; waits for the connection first, if it was lost.
    fn ask(&self, request: impl FnOnce(u32) -> Request) -> Result<Answer, Error> {
        self.ask_after(|_, id| request(id)).map(|(answer, _)| answer)
    }

    /// The same; `request` may read the session's state when it asks. Also returns the session in which it was
    /// answered.
    fn ask_after(&self, request: impl FnOnce(&mut Post, u32) -> Request) -> Result<(Answer, u64), Error> {
        let mut client = self.client();
        let up = client.wait(Some(self.settings.connect_timeout), |inner| inner.link.is_up().then_some(()))?;
        let (id, session) = {
            let mut inner = client.shared.lock();
            if up.is_none() {
                return Err(inner.link.lost());
            }
            let id = inner.link.request_id();
            let request = match &mut inner.post {
                Some(post) => request(post, id),
                None => request(&mut Post::default(), id),
            };
            inner.link.ask(request);
            (id, inner.link.session())
        };
        let answer = client.wait(None, |inner| match inner.link.answer(id) {
            Some(answer) => Some(answer),
            None if !inner.link.is_up() || inner.link.session() != session => Some(Err(inner.link.lost())),
            None => None,
        })?;
        let answer = answer.ok_or_else(|| Error::Malformed("no answer came".to_owned()))??;
        Ok((answer, session))
    }

    /// The attachment of the session that stands.
    fn attachment(&self, what: &'static str) -> Result<Attachment, Error> {
        let inner = self.shared.lock();
        if let Some(fault) = inner.link.fault() {
            return Err(fault);
        }
        if !inner.link.is_up() {
            return Err(inner.link.lost());
        }
        let attachment = inner.link.attachment().cloned();
        attachment.ok_or_else(|| Error::NotLocal { what, addr: self.settings.addr.clone() })
    }

    /// Opens a side of a mailbox; with the attachment, if its messages go by shared memory.
    fn open(
        &self,
        mailbox: &str,
        side: Side,
        message_bytes: Option<u32>,
        ahead: Option<u32>,
    ) -> Result<(Place, Opened, Option<Attachment>), Error> {
        let name = mailbox.to_owned();
        let (answer, session) = self.ask_after(|post, id| {
            if side == Side::Read {
                post.expect(id, ahead.unwrap_or(AHEAD));
            }
            Request::OpenMailbox { id, name, side, message_bytes, ahead }
        })?;
        let Answer::Opened(opened) = answer else {
            return Err(Error::Malformed("the daemon did not say what it opened".to_owned()));
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
        Ok((Place { session, number: opened.number, mailbox: mailbox.to_owned() }, opened, attachment))
    }

    /// A node's address and name.
    fn find(&self, name: &str) -> Result<(String, String), Error> {
        let name = name.to_owned();
        match self.ask(|id| Request::FindNode { id, name })? {
            Answer::Node { address, name } => Ok((address, name)),
            _ => Err(Error::Malformed("the daemon did not say where the node is".to_owned())),
        }
    }
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

impl Drop for Core {
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

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("addr", &self.core.settings.addr).field("name", &self.core.name.get()).finish()
    }
}
