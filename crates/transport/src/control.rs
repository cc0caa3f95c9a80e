//! The control messages of a session: what a client asks, what the daemon answers, what it reports unasked.
//!
//! They travel in the same reliable sequence as the data, but do not wait for the data's credit ([`crate::credit`]): they are
//! sent before the data that waits, except for the records that a message ends or describes ([`ControlMessage::class`],
//! [`crate::order`]). JSON, unknown keys ignored: readable in a packet capture, and open to new keys without a new wire version.

mod causes;
mod order;
mod position;
mod words;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use causes::{DropCause, RowErrors};
pub use position::{MAX_LISTED, Position, PublisherPosition};
pub use words::{
    Activity, FormatName, Implementation, Overflow, Publication, PublisherId, Refusal, RefusalCode, Side, Unreadable,
};

/// A client's request; `id` comes back in the [`Reply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Declares that data packets numbered `stream` will carry records of the named stream in this format.
    Announce {
        /// The client's number for the reply.
        id: u32,
        /// The client's own number for the stream, used in packet headers.
        stream: u32,
        /// The stream's name.
        name: String,
        /// The format's canonical description.
        format: String,
        /// Whose records they are, so that none that comes again after a lost session is taken twice; absent: each is taken.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        publication: Option<Publication>,
        /// The columns of the stream's key, whose last record the daemon is to keep from the first one on; absent: none is declared.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        key: Vec<String>,
    },
    /// Asks for the records that a query selects.
    Subscribe {
        /// The client's number for the reply.
        id: u32,
        /// The client's own number for the subscription, used in packet headers.
        subscription: u32,
        /// The query.
        sql: String,
        /// The policy when this subscriber's queue is full; the daemon's configured policy when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overflow: Option<Overflow>,
        /// Whether to wait for a stream that is not there: the reply then comes when it is announced, and no record of it is
        /// missed.
        #[serde(default)]
        wait: bool,
        /// The formats that the query is planned for; records in others are converted to one of them where there is a way.
        /// Without any, the query is planned for each format as it comes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        accept: Vec<FormatName>,
        /// With `accept`: what happens to records that nothing converts; the daemon's configured policy when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unreadable: Option<Unreadable>,
        /// The policy for a record that the query cannot compute.
        #[serde(default)]
        row_errors: RowErrors,
        /// Whether the subscriber is to be notified of how far its stream has come ([`Notice::Position`]), so that it can count what it
        /// misses while its connection is lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        positions: bool,
        /// Without `accept`: whether the subscriber would have all records in one format. Where registered conversions lead from
        /// formats of the stream to another one, those records are converted; all others come unchanged.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        one_format: bool,
    },
    /// Gives a subscription another query, over the same stream. The answer is [`Reply::Done`]: each record of the stream is one for the
    /// query before or for this one, and records in a format that is new follow [`Notice::Format`]. With `SNAPSHOT THEN CHANGES` the
    /// difference of what is there follows as records that enter and leave.
    SetQuery {
        /// The client's number for the reply.
        id: u32,
        /// The subscription's number.
        subscription: u32,
        /// The query.
        sql: String,
    },
    /// Ends a subscription.
    Unsubscribe {
        /// The client's number for the reply.
        id: u32,
        /// The subscription's number.
        subscription: u32,
    },
    /// Says that no more records of a stream follow from this client.
    Finish {
        /// The client's number for the reply.
        id: u32,
        /// The stream's number.
        stream: u32,
    },
    /// Opens a circuit (Nectar paper, section 2.1): the daemon reserves buffers and credit for what this session publishes, until it
    /// ends. A session has one at most. It is refused where the daemon has no room for it.
    OpenCircuit {
        /// The client's number for the reply.
        id: u32,
        /// How many bytes; the daemon reserves more where that is less than it takes ahead of the session anyway.
        bytes: u64,
    },
    /// Has the records of this session's subscriptions go as datagrams from now on, where they go in packets: each is sent once, and those for
    /// which the path has no room are dropped and counted.
    UseDatagrams {
        /// The client's number for the reply.
        id: u32,
    },
    /// Reports records of a subscription that are invalid: they came in the publisher's memory, which the daemon does not read. From
    /// then on it checks what attached publishers of the stream put, and disconnects the one that puts such records.
    ReportMalformed {
        /// The subscription's number.
        subscription: u32,
    },
    /// Reports that a subscriber has come back after a lost connection, and how many records of its stream it has missed; nothing
    /// answers.
    ReportMissed {
        /// The subscription's number.
        subscription: u32,
        /// How many; an upper bound if its query has a condition.
        records: u64,
    },
    /// Asks how many subscriptions there are to a stream that the client publishes; the answer is [`Reply::Subscriptions`].
    CountSubscriptions {
        /// The client's number for the reply.
        id: u32,
        /// The stream's number.
        stream: u32,
    },
    /// Offers a conversion between two formats of a stream. It is checked before anything changes, and used from the next batch
    /// on.
    RegisterConversion {
        /// The client's number for the reply.
        id: u32,
        /// The stream's name.
        stream: String,
        /// The format that it reads.
        from: FormatName,
        /// The format that it makes.
        to: FormatName,
        /// How, as text: what begins with SELECT is a query that makes the one format's fields of the other's, anything else
        /// are rules for a conversion by the fields' names, one a line; empty: by the names alone.
        conversion: String,
        /// Whether it stays when this session ends, and when the daemon does if that has a place to keep it.
        #[serde(default)]
        kept: bool,
    },
    /// Takes a conversion back: this session's, or the kept one.
    UnregisterConversion {
        /// The client's number for the reply.
        id: u32,
        /// The stream's name.
        stream: String,
        /// The format that it reads.
        from: FormatName,
        /// The format that it makes.
        to: FormatName,
        /// Whether the kept one is meant.
        #[serde(default)]
        kept: bool,
    },
    /// Requests a [`Notice::ConverterWanted`] for each conversion that a stream's subscribers lack: the ones they lack
    /// now, and the ones they lack later.
    ListenForConverters {
        /// The client's number for the reply.
        id: u32,
        /// The stream's name; it need not be there yet.
        stream: String,
    },
    /// Makes a mailbox of this name on the daemon's node (Nectar paper, section 3.3); it lives until it is deleted, or the
    /// session that made it ends.
    CreateMailbox {
        /// The client's number for the reply.
        id: u32,
        /// The mailbox's name, unique on its node.
        name: String,
        /// How messages pass through it.
        #[serde(default)]
        implementation: Implementation,
        /// How many messages it holds before its writers wait; the daemon's default when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bound_messages: Option<u32>,
        /// How many bytes it holds before its writers wait; the daemon's default when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bound_bytes: Option<u64>,
    },
    /// Deletes a mailbox with its messages; clients that have it open are notified ([`Notice::MailboxClosed`]).
    DeleteMailbox {
        /// The client's number for the reply.
        id: u32,
        /// The mailbox's name.
        name: String,
    },
    /// Opens one side of a mailbox; the answer is [`Reply::MailboxOpened`].
    OpenMailbox {
        /// The client's number for the reply.
        id: u32,
        /// The mailbox's name.
        name: String,
        /// Whether to write into it or to read from it.
        side: Side,
        /// Shared memory only, writers: the size in bytes of the buffers that are granted ahead; the daemon's default when
        /// absent. Longer messages cost a request each.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_bytes: Option<u32>,
        /// Shared memory: how many buffers are granted ahead to a writer. Over packets: how many messages a reader takes before
        /// it asks for more ([`Request::GetMessages`]), or a writer would like to put before it must wait
        /// ([`Notice::MayPut`]). The daemon's default when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ahead: Option<u32>,
    },
    /// Closes a side of a mailbox that this session has open.
    CloseMailbox {
        /// The client's number for the reply.
        id: u32,
        /// The session's number for the open side.
        number: u16,
    },
    /// Over packets only: a reader takes `messages` more messages of a mailbox that it has open, beyond those it has
    /// asked for before (`ahead` of [`Request::OpenMailbox`] to begin with). The daemon sends no more than that, so a
    /// reader that is slow on one mailbox delays nothing else of its session. Nothing answers.
    ///
    /// The reader has ended this number of messages: the oldest of those that it was sent and has not reported so before, except
    /// the ones in `held`. A message that it has not reported when it goes is for the next reader.
    GetMessages {
        /// The session's number for the open side.
        number: u16,
        /// How many more.
        messages: u32,
        /// Which it holds still, though it has ended later ones: their positions among the messages that it was sent and has not
        /// reported as ended, 0 for the oldest, in ascending order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        held: Vec<u32>,
    },
    /// Starts one of the daemon's built-in tasks, which reads a mailbox by upcall (Nectar paper, sections 3.3 and 3.5).
    CreateTask {
        /// The client's number for the reply.
        id: u32,
        /// The work of the task: `echo`, `copy`, `discard`, `log`, `read_file`, `dump`.
        task: String,
        /// The mailbox that it reads.
        mailbox: String,
        /// Its other arguments, such as `to`: the mailbox that `echo` and `copy` write into.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        arguments: BTreeMap<String, String>,
    },
    /// Ends the task that reads a mailbox.
    EndTask {
        /// The client's number for the reply.
        id: u32,
        /// The mailbox that the task reads.
        mailbox: String,
    },
    /// Asks where a node is reached; the answer is [`Reply::Node`].
    FindNode {
        /// The client's number for the reply.
        id: u32,
        /// The node's name; empty for the node that is asked.
        name: String,
    },
    /// Ends the session; everything sent before has been taken.
    Terminate,
}

impl Request {
    /// The client's number for the reply; what nobody waits for has none.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        match self {
            Request::Announce { id, .. }
            | Request::Subscribe { id, .. }
            | Request::SetQuery { id, .. }
            | Request::Unsubscribe { id, .. }
            | Request::Finish { id, .. }
            | Request::OpenCircuit { id, .. }
            | Request::UseDatagrams { id }
            | Request::CountSubscriptions { id, .. }
            | Request::RegisterConversion { id, .. }
            | Request::UnregisterConversion { id, .. }
            | Request::ListenForConverters { id, .. }
            | Request::CreateMailbox { id, .. }
            | Request::DeleteMailbox { id, .. }
            | Request::OpenMailbox { id, .. }
            | Request::CloseMailbox { id, .. }
            | Request::CreateTask { id, .. }
            | Request::EndTask { id, .. }
            | Request::FindNode { id, .. } => Some(*id),
            Request::GetMessages { .. }
            | Request::ReportMalformed { .. }
            | Request::ReportMissed { .. }
            | Request::Terminate => None,
        }
    }
}

/// The daemon's answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The request was carried out.
    Done {
        /// The request's number.
        id: u32,
    },
    /// The stream is announced.
    Announced {
        /// The request's number.
        id: u32,
        /// The longest record that the daemon takes, in bytes.
        most_record_bytes: u64,
        /// How many records of the publication the daemon has taken, over all sessions: the next one is the first that it
        /// wants. Absent if the request named no publication.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        taken: Option<u64>,
        /// Subscriptions to the stream, at all contexts; absent from a daemon that does not report it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subscriptions: Option<u32>,
        /// How many records of the publication are in a checkpoint on disk: the publisher keeps those behind them until
        /// [`Notice::Durable`] says that they are, too. Absent from a daemon that is not durable, and if the request named no publication.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        durable: Option<u64>,
    },
    /// How many subscriptions there are to a stream, at all contexts of the daemon.
    Subscriptions {
        /// The request's number.
        id: u32,
        /// How many.
        subscriptions: u32,
    },
    /// The subscription stands; records of `subscription` follow.
    Subscribed {
        /// The request's number.
        id: u32,
        /// The subscription's number.
        subscription: u32,
        /// Canonical description of the records that will come.
        format: String,
        /// The activity of its stream.
        #[serde(default)]
        activity: Activity,
        /// How far its stream has come, if that was asked for and is known: not for a stream that handlers make.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<Position>,
        /// Its number in the daemon's list of subscriptions, which no other has or had; the daemons before did not say it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
    },
    /// A side of a mailbox is open. Over packets, each message is a packet of [`PacketKind::Message`](crate::PacketKind::Message).
    MailboxOpened {
        /// The request's number.
        id: u32,
        /// The session's number for the open side.
        number: u16,
        /// The pair of rings that its messages pass through; absent for a `signal_queue` mailbox, and over packets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// How messages pass through the mailbox.
        #[serde(default)]
        implementation: Implementation,
        /// Over packets, for a writer: how many messages it may put before it waits for [`Notice::MayPut`]; as many as the
        /// session's credit allows when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ahead: Option<u32>,
    },
    /// Where a node is reached.
    Node {
        /// The request's number.
        id: u32,
        /// Its daemon's address, `host:port`.
        address: String,
        /// Its name.
        name: String,
        /// Its daemon's public key, if it is known: what is sent there goes in secure sessions with a daemon of that key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// The request was refused; nothing has changed.
    Refused {
        /// The request's number.
        id: u32,
        /// Why.
        refusal: Refusal,
    },
}

/// The daemon's unasked reports to a client; what concerns records or messages, in order with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum Notice {
    /// Records in another format may follow (a publisher announced a new version of the stream).
    Format {
        /// The subscription's number.
        subscription: u32,
        /// The new output format's canonical description.
        format: String,
    },
    /// A publisher of the stream has finished or gone.
    StreamEnded {
        /// The subscription's number.
        subscription: u32,
        /// Publishers that are still there.
        publishers: u32,
        /// Those that have gone without having finished since the subscription began: records of theirs may be missing.
        #[serde(default)]
        lost: u32,
    },
    /// How far the stream has come, among the subscription's records; about once a second while records pass, and when a
    /// publisher has come.
    Position {
        /// The subscription's number.
        subscription: u32,
        /// How far.
        position: Position,
    },
    /// Records of a publication are in a checkpoint on disk: its publisher need not send them again, whatever becomes of the daemon.
    Durable {
        /// The publisher's number for the stream.
        stream: u32,
        /// How many, counted from the publication's first.
        records: u64,
    },
    /// Records did not reach this subscriber; a notice for each cause.
    Dropped {
        /// The subscription's number.
        subscription: u32,
        /// How many.
        records: u64,
        /// Why.
        #[serde(default)]
        cause: DropCause,
        /// The same in words, with what is known of these records.
        reason: String,
    },
    /// A publisher brought a format that the query does not fit; its records do not reach this subscription. Or the state that the query
    /// reads is gone, and [`Notice::StreamEnded`] follows.
    Unreadable {
        /// The subscription's number.
        subscription: u32,
        /// The part that does not fit, or why the state is gone.
        message: String,
    },
    /// Records came in a format that no chain of conversions leads from to one that the subscription accepts. They wait, or are
    /// dropped; the applications on the stream that listen for it were asked for a conversion.
    NoReader {
        /// The subscription's number.
        subscription: u32,
        /// The id of the format that came, 16 hexadecimal digits.
        format: String,
        /// The policy for its records.
        policy: Unreadable,
        /// The missing part, for people.
        message: String,
    },
    /// Records of a format that could not be read can be read from here on; those that waited come first.
    Readable {
        /// The subscription's number.
        subscription: u32,
        /// The format's id.
        format: String,
        /// The ids of the formats on the way to the one that is accepted, that one last; none if it is accepted as it is.
        chain: Vec<String>,
        /// Records that waited.
        records: u64,
    },
    /// To those that listen for it: a subscriber of the stream lacks a conversion.
    ConverterWanted {
        /// The stream's name.
        stream: String,
        /// Canonical description of the format that records come in.
        from: String,
        /// Canonical description of a format that the subscriber accepts.
        to: String,
    },
    /// A mailbox that the client has open is gone; nothing more comes from it, and nothing can be put into it.
    MailboxClosed {
        /// The session's number for the open side.
        number: u16,
        /// Why.
        reason: String,
    },
    /// Messages of a mailbox that the client has open for writing were dropped, whoever put them.
    MessagesDropped {
        /// The session's number for the open side.
        number: u16,
        /// How many.
        messages: u64,
        /// Why.
        reason: String,
    },
    /// Over packets only: a writer may put `messages` more messages into a mailbox, beyond those it was allowed before
    /// (`ahead` of [`Reply::MailboxOpened`] to begin with). A full mailbox thus holds back its own writers and nothing
    /// else of their sessions.
    MayPut {
        /// The session's number for the open side.
        number: u16,
        /// How many more.
        messages: u32,
    },
}

/// Any control message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ControlMessage {
    /// From a client.
    Request(Request),
    /// From the daemon, answering.
    Reply(Reply),
    /// From the daemon, unasked.
    Notice(Notice),
}

impl ControlMessage {
    /// The message as bytes for a control packet.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a control packet's payload.
    ///
    /// # Errors
    /// The error of a payload that does not parse, in words.
    pub fn decode(payload: &[u8]) -> Result<ControlMessage, String> {
        serde_json::from_slice(payload).map_err(|e| format!("not a control message: {e}"))
    }
}

impl From<Request> for ControlMessage {
    fn from(request: Request) -> ControlMessage {
        ControlMessage::Request(request)
    }
}

impl From<Reply> for ControlMessage {
    fn from(reply: Reply) -> ControlMessage {
        ControlMessage::Reply(reply)
    }
}

impl From<Notice> for ControlMessage {
    fn from(notice: Notice) -> ControlMessage {
        ControlMessage::Notice(notice)
    }
}

#[cfg(test)]
mod tests;
