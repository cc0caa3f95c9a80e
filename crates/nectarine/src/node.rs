//! Mailboxes and tasks on a named node, local or remote (Nectar paper, sections 3.3 and 3.5): one interface, whichever way the
//! messages go.

mod carried;
mod local;
mod open_side;
mod reader;
mod remote;
pub(crate) mod rpc;
mod sending;
mod session;
mod writer;

pub use reader::{Burst, Message, Messages, Reader, ReaderOptions};
pub use rpc::{Call, CallError, Procedure, Reply, Service, ServiceCounts};
pub use sending::RecordSender;
pub use writer::{Put, Writer, WriterOptions};

use crate::client::{Client, Interrupter};
use crate::error::Error;
use crate::post::{AHEAD, Post};
use crate::settings::{Settings, Transport, setting_methods};
use carried::Carried;
use crossdock_mailbox::client::{Attachment, Condition, SyncWord, Wait};
use crossdock_mailbox::{ConditionAddress, SyncAddress};
use crossdock_transport::{Implementation, Request, Side};
use local::{Local, LocalReader, LocalWriter};
use remote::{RemoteReader, RemoteWriter};
use session::{Found, NodeSession};
use std::sync::Arc;

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
        let client = Client::connect(self.settings.clone())?;
        client.shared.lock().post = Some(Post::default());
        Ok(Node { session: Arc::new(NodeSession::new(self.settings, client)) })
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
    session: Arc<NodeSession>,
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
        NodeBuilder { settings: Settings { uses_mailboxes: true, ..Settings::new(addr) } }
    }

    /// The node's name, as its daemon says.
    ///
    /// # Errors
    /// The connection was lost.
    pub fn name(&self) -> Result<&str, Error> {
        if let Some(name) = self.session.name.get() {
            return Ok(name);
        }
        let Found { name, .. } = self.session.find("")?;
        Ok(self.session.name.get_or_init(|| name))
    }

    /// Another node, by its name, as this one's daemon knows it; this node for its own name.
    ///
    /// # Errors
    /// The daemon knows no such node, or it cannot be reached.
    pub fn named(&self, name: &str) -> Result<Node, Error> {
        if name.is_empty() || name == self.name()? {
            return Ok(self.clone());
        }
        let Found { address: addr, name, key } = self.session.find(name)?;
        // How this node was to be reached says nothing of another one, but that packets were wanted.
        let transport = match self.session.settings.transport {
            Transport::Shm => Transport::Auto,
            transport => transport,
        };
        let mut settings = Settings { addr, transport, ..self.session.settings.clone() };
        // It is where the last node says that it is, and has that one's key if nothing else is said.
        let key = key.or(settings.route.take().map(|route| route.destination));
        if let (Some(keys), Some(key)) = (&mut settings.keys, key) {
            keys.daemon = key;
        }
        let node = NodeBuilder { settings }.connect()?;
        // Another name for the same node would be its daemon's to say; this one is what it was asked for by.
        node.session.name.get_or_init(|| name);
        Ok(node)
    }

    /// The same node, by a session of its own.
    fn again(&self) -> Result<Node, Error> {
        NodeBuilder { settings: self.session.settings.clone() }.connect()
    }

    /// Makes a mailbox on the node. It lives until it is deleted, or until the last clone of this node is gone.
    ///
    /// # Errors
    /// There is one of that name, or as many as there may be.
    pub fn create_mailbox(&self, name: &str, options: MailboxOptions) -> Result<(), Error> {
        let MailboxOptions { implementation, bound_messages, bound_bytes } = options;
        let name = name.to_owned();
        self.session.ask(|id| Request::CreateMailbox { id, name, implementation, bound_messages, bound_bytes })?;
        Ok(())
    }

    /// Deletes a mailbox with all that lies in it.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn delete_mailbox(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.session.ask(|id| Request::DeleteMailbox { id, name })?;
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
        self.session.ask(|id| Request::CreateTask { id, task, mailbox, arguments })?;
        Ok(())
    }

    /// Ends the task that reads a mailbox.
    ///
    /// # Errors
    /// There is none.
    pub fn end_task(&self, mailbox: &str) -> Result<(), Error> {
        let mailbox = mailbox.to_owned();
        self.session.ask(|id| Request::EndTask { id, mailbox })?;
        Ok(())
    }

    /// Opens a mailbox for writing.
    ///
    /// # Errors
    /// There is none of that name; its implementation allows one writer, and another program is that, or another [`Node::connect`] of
    /// this one. Clones of one `Node` may have up to 17: the messages of several pass through the daemon.
    pub fn writer(&self, mailbox: &str) -> Result<Writer, Error> {
        self.writer_with(mailbox, WriterOptions::default())
    }

    /// Opens a mailbox for writing.
    ///
    /// # Errors
    /// As [`Node::writer`].
    pub fn writer_with(&self, mailbox: &str, options: WriterOptions) -> Result<Writer, Error> {
        self.open_writer(mailbox, options).map(|(writer, _)| writer)
    }

    /// The same, with the mailbox's implementation.
    fn open_writer(&self, mailbox: &str, options: WriterOptions) -> Result<(Writer, Implementation), Error> {
        let WriterOptions { message_bytes, ahead } = options;
        let (side, opened, attachment) = self.session.open(mailbox, Side::Write, message_bytes, ahead)?;
        let session = self.session.clone();
        let writer = match attachment {
            Some(attachment) => {
                let writer = attachment.writer(opened.number, opened.port)?;
                Carried::Memory(LocalWriter { writer, open: Local::new(session, side) })
            }
            None => Carried::Packets(RemoteWriter::new(session, side)?),
        };
        Ok((Writer(writer), opened.implementation))
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
        let (side, opened, attachment) = self.session.open(mailbox, Side::Read, None, Some(ahead))?;
        let session = self.session.clone();
        Ok(Reader(match attachment {
            Some(attachment) => {
                let reader = attachment.reader(opened.number, opened.port)?;
                Carried::Memory(LocalReader { reader, open: Local::new(session, side) })
            }
            None => Carried::Packets(RemoteReader::new(session, side)?),
        }))
    }

    /// Allocates a sync (Nectar paper, section 3.4): a word that is written once, by whoever has its address, and waited for.
    ///
    /// # Errors
    /// The node is reached by packets; all syncs are in use; the connection is gone.
    pub fn sync(&self) -> Result<SyncWord, Error> {
        Ok(self.session.attachment("syncs")?.alloc_sync()?)
    }

    /// Writes a sync, of this process or of another one of its protection domain.
    ///
    /// # Errors
    /// The node is reached by packets; the connection is gone.
    pub fn write_sync(&self, address: SyncAddress, value: u64) -> Result<(), Error> {
        Ok(self.session.attachment("syncs")?.write_sync(address, value)?)
    }

    /// Allocates a host condition (Nectar paper, section 3.2): a value that each signal changes, to be polled or waited for.
    ///
    /// # Errors
    /// The node is reached by packets; all conditions are in use; the connection is gone.
    pub fn condition(&self) -> Result<Condition, Error> {
        Ok(self.session.attachment("host conditions")?.condition()?)
    }

    /// Signals a host condition, of this process or of another one of its protection domain.
    ///
    /// # Errors
    /// The node is reached by packets; the connection is gone.
    pub fn signal(&self, address: ConditionAddress) -> Result<(), Error> {
        Ok(self.session.attachment("host conditions")?.signal(address)?)
    }

    /// The small remote call (Nectar paper, section 3.2): calls a procedure of the daemon's core, and waits for its result.
    ///
    /// # Errors
    /// The node is reached by packets; the connection is gone.
    pub fn call(&self, procedure: u16, argument: u64) -> Result<u64, Error> {
        Ok(self.session.attachment("calls of a core")?.call(procedure, argument, Wait::Block)?)
    }

    /// Serves the core's calls into this process, each in turn, by a thread of its own: `serve` is given procedure and argument,
    /// and returns the result. It serves the session that stands now.
    ///
    /// # Errors
    /// The node is reached by packets; they are served already; the connection is gone.
    pub fn on_upcall(&self, serve: impl FnMut(u16, u64) -> u64 + Send + 'static) -> Result<(), Error> {
        Ok(self.session.attachment("upcalls")?.on_upcall(serve)?)
    }

    /// The attachment that this node's session shares with the daemon, for what is not shown here, such as a descriptor
    /// for an event loop of the application's own ([`Attachment::arm`]; a request to the node, such as
    /// [`Node::create_mailbox`], uses it too: arm it again after one).
    ///
    /// # Errors
    /// The node is reached by packets; the connection is gone.
    pub fn attachment(&self) -> Result<Attachment, Error> {
        self.session.attachment("attachments")
    }

    /// The way that its messages go now: [`Transport::Shm`] or [`Transport::Udp`].
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.session.shared.lock().link.transport()
    }

    /// Makes a request that waits ([`Node::create_mailbox`] and its like) return, from another thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.session.interrupter.clone()
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("addr", &self.session.settings.addr)
            .field("name", &self.session.name.get())
            .finish()
    }
}
