//! A mailbox: a queue of messages with an address, its bound, and who reads and writes it (Nectar paper, section 3.3).

use super::client::ClientKey;
use super::losses::Losses;
use super::message::Message;
use std::collections::VecDeque;

/// Names a mailbox in its daemon; never stands for another one later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct MailboxKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl MailboxKey {
    pub(crate) const NONE: MailboxKey = MailboxKey { index: u32::MAX, generation: 0 };
}

/// How clients' operations on a mailbox are carried out (paper, section 3.3, "Implementation of Mailboxes"). Both may be used side by
/// side; each mailbox has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Implementation {
    /// Descriptors through rings of the pair's own, asking nobody: one client writes, one reads; the core may do both too.
    #[default]
    Rings,
    /// Each operation is asked of the core over the signal queue: any number of writers and readers.
    SignalQueue,
}

impl Implementation {
    /// Its name in lists and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Implementation::Rings => "rings",
            Implementation::SignalQueue => "signal_queue",
        }
    }
}

/// Which side of a mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Its owner puts messages in.
    Write,
    /// Its owner gets messages out.
    Read,
}

/// The owner of a mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Owner {
    /// The daemon: it stays until it is deleted.
    Daemon,
    /// An attached client, by number: it goes with the client.
    Client(u32),
    /// A session over the network, by the context's key: it goes when the context says so ([`super::HostInterface::disown`]).
    Session(u32),
}

/// A client's port, or its signal queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PortKey {
    /// Index of the client.
    pub(crate) client: u32,
    pub(crate) port: u16,
}

/// How a mailbox is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MailboxOptions {
    /// How clients' operations are carried out.
    pub implementation: Implementation,
    /// Messages that may be in it (not yet ended by a reader) before writers wait; the configured bound when absent.
    pub bound_messages: Option<u32>,
    /// The same in bytes.
    pub bound_bytes: Option<u64>,
}

/// The core's treatment of the messages that are put into a mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CoreReader {
    /// Nothing: they wait for a reader.
    None,
    /// They are this client's session.
    Session(ClientKey),
    /// They go to an upcall of the core's, under this number.
    Upcall(u32),
}

/// A client that waits for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Get {
    /// Index of the client.
    pub(crate) client: u32,
    /// The client's number for the mailbox.
    pub(crate) number: u16,
    /// By which the client knows the answer.
    pub(crate) tag: u64,
}

/// One mailbox.
pub(crate) struct Mailbox {
    /// Empty for the two of a session.
    pub(crate) name: String,
    pub(crate) generation: u32,
    pub(crate) owner: Owner,
    pub(crate) implementation: Implementation,
    pub(crate) bound_messages: u32,
    pub(crate) bound_bytes: u64,
    pub(crate) queue: VecDeque<Message>,
    /// Messages in it: queued, or in a reader's hands and not ended.
    pub(crate) depth: u32,
    /// Their bytes.
    pub(crate) bytes: u64,
    pub(crate) core_reader: CoreReader,
    /// The direct rings between its two sides, if it has some.
    pub(crate) direct: Option<u32>,
    /// Whether messages came to it from others than its writers since one of its sides was opened anew.
    pub(crate) is_mixed: bool,
    /// Of a `rings` mailbox.
    pub(crate) writer: Option<PortKey>,
    /// Further ports of the writer's client, for its other threads.
    pub(crate) more_writers: Vec<PortKey>,
    /// Of a `rings` mailbox.
    pub(crate) reader: Option<PortKey>,
    /// Writers and readers over the signal queue, and sessions of the network.
    pub(crate) writers: u32,
    pub(crate) readers: u32,
    /// The client that opened it last to read it over the signal queue.
    pub(crate) last_reader: Option<ClientKey>,
    /// Clients that wait for a message, by tag, first come first served.
    pub(crate) gets: VecDeque<Get>,
    pub(crate) counters: MailboxCounters,
    /// Whether changes are noted for the context ([`super::HostInterface::watch`]).
    pub(crate) is_watched: bool,
    /// Whether one is noted.
    pub(crate) is_changed: bool,
}

/// The counts of a mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MailboxCounters {
    pub(crate) puts: u64,
    pub(crate) gets: u64,
    /// Times that a writer was left without a buffer because the mailbox was full.
    pub(crate) waits: u64,
    /// Messages that were dropped.
    pub(crate) losses: Losses,
    /// Those that its writers were not notified of.
    pub(crate) unreported: Losses,
}

impl Mailbox {
    /// One more port writes to it.
    pub(crate) fn add_writer(&mut self, port: PortKey) {
        match self.writer {
            None => self.writer = Some(port),
            Some(_) => self.more_writers.push(port),
        }
    }

    /// A port writes to it no more.
    pub(crate) fn remove_writer(&mut self, port: PortKey) {
        self.more_writers.retain(|other| *other != port);
        if self.writer == Some(port) {
            self.writer = self.more_writers.pop();
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.depth >= self.bound_messages || self.bytes >= self.bound_bytes
    }

    /// Notes that a message is in it from now on.
    #[inline]
    pub(crate) fn enters(&mut self, bytes: u32) {
        self.counters.puts += 1;
        self.depth += 1;
        self.bytes += u64::from(bytes);
    }

    /// Notes that a message has left.
    #[inline]
    pub(crate) fn leaves(&mut self, bytes: u32) {
        self.counters.gets += 1;
        self.depth -= 1;
        self.bytes -= u64::from(bytes);
    }

    /// Notes that a message that had left is in it again.
    pub(crate) fn returns(&mut self, bytes: u32) {
        self.counters.gets = self.counters.gets.saturating_sub(1);
        self.depth += 1;
        self.bytes += u64::from(bytes);
    }
}
