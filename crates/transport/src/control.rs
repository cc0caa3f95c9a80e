//! The control messages of a session: what a client asks, what the daemon answers, what it tells unasked.
//!
//! They travel in the same reliable sequence as the data (DESIGN.md, "Control travels in the session"), so an answer
//! stands exactly where it belongs between the records before and after it. JSON, unknown keys ignored: readable in a
//! packet capture, and open to new keys without a new wire version.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    },
    /// Asks for the records that a query selects.
    Subscribe {
        /// The client's number for the reply.
        id: u32,
        /// The client's own number for the subscription, used in packet headers.
        subscription: u32,
        /// The query.
        sql: String,
        /// What happens when this subscriber's queue is full; the daemon's configured policy when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overflow: Option<Overflow>,
        /// Whether to wait for a stream that is not there: the reply then comes when it is announced, and no record of it is
        /// missed.
        #[serde(default)]
        wait: bool,
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
    /// Deletes a mailbox with all that lies in it; who has it open is told ([`Notice::MailboxClosed`]).
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
    /// Over packets only: a reader takes so many messages more of a mailbox that it has open, beyond those it has asked for
    /// before (`ahead` of [`Request::OpenMailbox`] to begin with). The daemon sends no more than that, so a reader that is
    /// slow on one mailbox holds up nothing else of its session. Nothing answers.
    GetMessages {
        /// The session's number for the open side.
        number: u16,
        /// How many more.
        messages: u32,
    },
    /// Starts one of the daemon's built-in tasks, which reads a mailbox by upcall (Nectar paper, sections 3.3 and 3.5).
    CreateTask {
        /// The client's number for the reply.
        id: u32,
        /// What the task does: `echo`, `copy`, `discard`, `log`, `read_file`, `dump`.
        task: String,
        /// The mailbox that it reads.
        mailbox: String,
        /// What else it is told, such as `to`: the mailbox that `echo` and `copy` write into.
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
            | Request::Unsubscribe { id, .. }
            | Request::Finish { id, .. }
            | Request::CreateMailbox { id, .. }
            | Request::DeleteMailbox { id, .. }
            | Request::OpenMailbox { id, .. }
            | Request::CloseMailbox { id, .. }
            | Request::CreateTask { id, .. }
            | Request::EndTask { id, .. }
            | Request::FindNode { id, .. } => Some(*id),
            Request::GetMessages { .. } | Request::Terminate => None,
        }
    }
}

/// How messages pass through a mailbox (the Nectar paper's two implementations, section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Implementation {
    /// Descriptors pass through rings of the mailbox's own, with no call to anyone: one side writes, one side reads.
    #[default]
    Rings,
    /// Operations are asked of the daemon over the signal queue: any number of writers and readers.
    SignalQueue,
}

impl Implementation {
    /// Its word on the wire, on the command line and in lists.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Implementation::Rings => "rings",
            Implementation::SignalQueue => "signal_queue",
        }
    }
}

impl std::fmt::Display for Implementation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

impl std::str::FromStr for Implementation {
    type Err = String;

    fn from_str(text: &str) -> Result<Implementation, String> {
        match text {
            "rings" => Ok(Implementation::Rings),
            "signal_queue" => Ok(Implementation::SignalQueue),
            other => Err(format!("unknown implementation `{other}` of a mailbox: one of rings, signal_queue")),
        }
    }
}

/// A side of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Messages are put into it.
    Write,
    /// Messages are got from it.
    Read,
}

/// What happens when a subscriber's queue in the daemon is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The stream's publishers get no more credit until there is room: nothing is lost.
    #[default]
    Block,
    /// The oldest records that have not been sent are dropped and counted, and the subscriber is told.
    DropOldest,
    /// The subscriber's session is ended with a reason.
    Disconnect,
}

impl std::str::FromStr for Overflow {
    type Err = String;

    fn from_str(text: &str) -> Result<Overflow, String> {
        match text {
            "block" => Ok(Overflow::Block),
            "drop_oldest" => Ok(Overflow::DropOldest),
            "disconnect" => Ok(Overflow::Disconnect),
            other => Err(format!("unknown overflow policy `{other}`: one of block, drop_oldest, disconnect")),
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What kind of refusal it is, for programs.
    pub code: RefusalCode,
    /// What is wrong, where, and what would mend it, for people.
    pub message: String,
}

/// The kinds of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The query does not parse or does not fit its stream.
    Query,
    /// The query names a stream that the daemon does not know.
    UnknownStream,
    /// The format description is not one.
    Format,
    /// A table of the daemon is full.
    Limit,
    /// The request makes no sense in this state (a number used twice, an unknown subscription).
    State,
    /// The request names a mailbox that the node does not have.
    UnknownMailbox,
    /// The request names a task that the daemon does not know, or ends one where none runs.
    UnknownTask,
    /// The request names a node that the daemon does not know.
    UnknownNode,
    /// There is a mailbox of this name already.
    Exists,
    /// The side of a `rings` mailbox is taken by another, or a task reads the mailbox already.
    Busy,
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
    /// The subscription stands; records of `subscription` follow.
    Subscribed {
        /// The request's number.
        id: u32,
        /// The subscription's number.
        subscription: u32,
        /// Canonical description of the records that will come.
        format: String,
    },
    /// A side of a mailbox is open. Over packets, each message is a packet of [`Kind::Message`](crate::Kind::Message).
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
    },
    /// The request was refused; nothing has changed.
    Refused {
        /// The request's number.
        id: u32,
        /// Why.
        refusal: Refusal,
    },
}

/// What the daemon tells a client unasked, in order with its records and messages.
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
    },
    /// Records were dropped for this subscriber, by its overflow policy or because they were unreadable.
    Dropped {
        /// The subscription's number.
        subscription: u32,
        /// How many.
        records: u64,
        /// Why.
        reason: String,
    },
    /// A publisher brought a format that the query does not fit; its records do not reach this subscription.
    Unreadable {
        /// The subscription's number.
        subscription: u32,
        /// What does not fit.
        message: String,
    },
    /// A mailbox that the client has open is gone; nothing more comes from it, and nothing can be put into it.
    MailboxClosed {
        /// The session's number for the open side.
        number: u16,
        /// Why.
        reason: String,
    },
    /// Over packets only: a writer may put so many messages more into a mailbox, beyond those it was allowed before (`ahead` of
    /// [`Reply::MailboxOpened`] to begin with). A full mailbox thus holds back its own writers and nothing else of their
    /// sessions.
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
    /// What does not parse, in words.
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
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_unknown_keys_are_ignored() {
        let messages: [ControlMessage; 4] = [
            Request::Announce { id: 1, stream: 2, name: "A".into(), format: "…".into() }.into(),
            Request::Terminate.into(),
            Reply::Refused { id: 1, refusal: Refusal { code: RefusalCode::Limit, message: "full".into() } }.into(),
            Notice::Dropped { subscription: 3, records: 4, reason: "queue full".into() }.into(),
        ];
        for message in messages {
            assert_eq!(ControlMessage::decode(&message.encode()), Ok(message));
        }
        let newer = br#"{"request":"finish","id":4,"stream":1,"why":"done"}"#;
        assert_eq!(ControlMessage::decode(newer), Ok(Request::Finish { id: 4, stream: 1 }.into()));
        assert!(ControlMessage::decode(b"{\"request\":\"dance\"}").is_err());
        assert!(ControlMessage::decode(&[0xff; 9]).is_err());
    }

    #[test]
    fn mailbox_messages_come_back() {
        let (name, reason) = (|| "orders".to_owned(), || "deleted".to_owned());
        let (bound_messages, bound_bytes) = (Some(9), Some(1 << 40));
        let implementation = Implementation::SignalQueue;
        let arguments = BTreeMap::from([("to".to_owned(), "replies".to_owned())]);
        let messages: Vec<ControlMessage> = vec![
            Request::CreateMailbox { id: 1, name: name(), implementation, bound_messages, bound_bytes }.into(),
            Request::DeleteMailbox { id: 2, name: name() }.into(),
            Request::OpenMailbox { id: 3, name: name(), side: Side::Write, message_bytes: Some(64), ahead: Some(8) }
                .into(),
            Request::OpenMailbox { id: 3, name: name(), side: Side::Read, message_bytes: None, ahead: None }.into(),
            Request::CloseMailbox { id: 4, number: 65_535 }.into(),
            Request::GetMessages { number: 7, messages: 16 }.into(),
            Request::CreateTask { id: 5, task: "echo".into(), mailbox: name(), arguments }.into(),
            Request::EndTask { id: 6, mailbox: name() }.into(),
            Request::FindNode { id: 7, name: String::new() }.into(),
            Reply::MailboxOpened { id: 3, number: 2, port: Some(5), implementation, ahead: None }.into(),
            Reply::MailboxOpened { id: 3, number: 2, port: None, implementation, ahead: Some(16) }.into(),
            Reply::Node { id: 7, address: "[::1]:7440".into(), name: "east".into() }.into(),
            Reply::Refused { id: 8, refusal: Refusal { code: RefusalCode::Busy, message: "taken".into() } }.into(),
            Notice::MailboxClosed { number: 2, reason: reason() }.into(),
            Notice::MayPut { number: 2, messages: 3 }.into(),
        ];
        for message in messages {
            assert_eq!(ControlMessage::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn what_a_mailbox_request_leaves_out_is_the_default() {
        let short = br#"{"request":"create_mailbox","id":1,"name":"a","colour":"red"}"#;
        let implementation = Implementation::Rings;
        let name = || "a".to_owned();
        let whole =
            Request::CreateMailbox { id: 1, name: name(), implementation, bound_messages: None, bound_bytes: None };
        assert_eq!(ControlMessage::decode(short), Ok(whole.clone().into()));
        let short = br#"{"request":"open_mailbox","id":1,"name":"a","side":"read"}"#;
        let open = Request::OpenMailbox { id: 1, name: name(), side: Side::Read, message_bytes: None, ahead: None };
        assert_eq!(ControlMessage::decode(short), Ok(open.into()));
        let short = br#"{"reply":"mailbox_opened","id":1,"number":4}"#;
        let opened = Reply::MailboxOpened { id: 1, number: 4, port: None, implementation, ahead: None };
        assert_eq!(ControlMessage::decode(short), Ok(opened.into()));
        let short = br#"{"request":"create_task","id":1,"task":"discard","mailbox":"a"}"#;
        let create = Request::CreateTask { id: 1, task: "discard".into(), mailbox: name(), arguments: BTreeMap::new() };
        assert_eq!(ControlMessage::decode(short), Ok(create.into()));
        for wrong in ["\"side\":\"sideways\"", "\"side\":\"read\",\"ahead\":-1", "\"ahead\":1"] {
            let text = format!("{{\"request\":\"open_mailbox\",\"id\":1,\"name\":\"a\",{wrong}}}");
            assert!(ControlMessage::decode(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!((whole.id(), Request::GetMessages { number: 1, messages: 1 }.id()), (Some(1), None));
    }

    #[test]
    fn what_was_written_before_mailboxes_still_reads() {
        let old: [(&[u8], ControlMessage); 4] = [
            (
                br#"{"request":"subscribe","id":2,"subscription":1,"sql":"SELECT * FROM a","wait":true}"#,
                Request::Subscribe {
                    id: 2,
                    subscription: 1,
                    sql: "SELECT * FROM a".into(),
                    overflow: None,
                    wait: true,
                }
                .into(),
            ),
            (br#"{"request":"terminate"}"#, Request::Terminate.into()),
            (br#"{"reply":"done","id":3}"#, Reply::Done { id: 3 }.into()),
            (
                br#"{"notice":"stream_ended","subscription":1,"publishers":0}"#,
                Notice::StreamEnded { subscription: 1, publishers: 0 }.into(),
            ),
        ];
        for (text, message) in old {
            assert_eq!(ControlMessage::decode(text), Ok(message));
        }
    }

    #[test]
    fn an_implementation_is_named_by_its_word() {
        for implementation in [Implementation::Rings, Implementation::SignalQueue] {
            assert_eq!(implementation.to_string().parse(), Ok(implementation));
            assert_eq!(serde_json::to_string(&implementation).unwrap(), format!("\"{implementation}\""));
        }
        assert!("ring".parse::<Implementation>().unwrap_err().contains("signal_queue"));
    }
}
