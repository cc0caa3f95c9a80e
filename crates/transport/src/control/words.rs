//! The parts of the messages: the words for ways, sides and policies, the names of formats, refusals.

use serde::{Deserialize, Serialize};

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

/// The id of a publisher: 128 random bits, no two alike. On the wire, 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PublisherId(pub u128);

impl From<PublisherId> for String {
    fn from(id: PublisherId) -> String {
        format!("{:032x}", id.0)
    }
}

impl TryFrom<String> for PublisherId {
    type Error = String;

    fn try_from(text: String) -> Result<PublisherId, String> {
        let is_hexadecimal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = is_hexadecimal.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        id.map(PublisherId).ok_or_else(|| "a publisher's id has 32 hexadecimal digits".to_owned())
    }
}

/// The records of one publisher on one stream, numbered from 0 over all sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// The publisher, the same in each of its sessions.
    pub publisher: PublisherId,
    /// The number of the first record that this session can bring: the daemon has acknowledged those before.
    pub first: u64,
}

/// The activity of a stream when a subscription to it begins. The daemon keeps no records: what passed before does not come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Sessions that publish it now. Of a stream that a handler makes, the contexts where it has something to make it of; absent while
    /// that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publishers: Option<u32>,
    /// Records that were published since the daemon's start.
    #[serde(default)]
    pub records: u64,
    /// How long ago the latest of them came, in ms; absent if none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_ms_ago: Option<u64>,
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

/// The policy when a subscriber's queue in the daemon is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The stream's publishers get no more credit until there is room: nothing is lost.
    #[default]
    Block,
    /// The oldest records that have not been sent are dropped and counted, and the drop is reported to the subscriber.
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

/// A format, as a request names it. As text `v3`, or 16 hexadecimal digits; a description has no short text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatName {
    /// By its id, 16 hexadecimal digits.
    Id(String),
    /// As a version of the stream, counted from 1. It may be one that is not there yet.
    Version(u32),
    /// By its canonical description.
    Description(String),
}

impl std::fmt::Display for FormatName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FormatName::Id(id) => f.pad(id),
            FormatName::Version(version) => write!(f, "v{version}"),
            FormatName::Description(description) => f.pad(description),
        }
    }
}

impl std::str::FromStr for FormatName {
    type Err = String;

    fn from_str(text: &str) -> Result<FormatName, String> {
        if text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(FormatName::Id(text.to_ascii_lowercase()));
        }
        let number = text.strip_prefix('v').unwrap_or(text);
        match number.parse() {
            Ok(version) if version > 0 && number.bytes().all(|b| b.is_ascii_digit()) => {
                Ok(FormatName::Version(version))
            }
            _ => Err(format!(
                "`{text}` names no format: write a version of the stream, such as v3, or a format's id of 16 hexadecimal digits"
            )),
        }
    }
}

/// The policy for records that no conversion makes readable for a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unreadable {
    /// They wait, within bounds of bytes and time, for a conversion to come; beyond, the oldest are dropped and counted.
    #[default]
    Hold,
    /// They are dropped and counted.
    Drop,
}

impl Unreadable {
    /// Its word on the wire and on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Unreadable::Hold => "hold",
            Unreadable::Drop => "drop",
        }
    }
}

impl std::str::FromStr for Unreadable {
    type Err = String;

    fn from_str(text: &str) -> Result<Unreadable, String> {
        match text {
            "hold" => Ok(Unreadable::Hold),
            "drop" => Ok(Unreadable::Drop),
            other => Err(format!("unknown policy `{other}` for what cannot be read: one of hold, drop")),
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of refusal, for programs.
    pub code: RefusalCode,
    /// The error, its place, and its remedy, for people.
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
    /// The request names a format, by its id or version, that the daemon does not know.
    UnknownFormat,
    /// The conversion does not make its one format of the other, or there is none to withdraw.
    Conversion,
}
