//! The control messages of a session: what a client asks, what the daemon answers, what it tells unasked.
//!
//! They travel in the same reliable sequence as the data (DESIGN.md, "Control travels in the session"), so an answer
//! stands exactly where it belongs between the records before and after it. JSON, unknown keys ignored: readable in a
//! packet capture, and open to new keys without a new wire version.

use serde::{Deserialize, Serialize};

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
    /// Ends the session; everything sent before has been taken.
    Terminate,
}

impl Request {
    /// The client's number for the reply; a terminate has none, since nobody waits for its answer.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        match self {
            Request::Announce { id, .. }
            | Request::Subscribe { id, .. }
            | Request::Unsubscribe { id, .. }
            | Request::Finish { id, .. } => Some(*id),
            Request::Terminate => None,
        }
    }
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
    /// The request was refused; nothing has changed.
    Refused {
        /// The request's number.
        id: u32,
        /// Why.
        refusal: Refusal,
    },
}

/// What the daemon tells a subscriber unasked, in order with its records.
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
}
