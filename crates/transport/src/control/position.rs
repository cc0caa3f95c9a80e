//! How far a stream has come, which is how a subscriber that comes back after a lost connection finds out what it has missed.

use super::words::PublisherId;
use serde::{Deserialize, Serialize};

/// Publishers that a [`Position`] lists at most: it is a message a second to each subscriber.
pub const MAX_LISTED: usize = 64;

/// How far a stream has come, where a subscription begins or later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Identifies the count `passed`: random, and another one when the daemon or the stream was started again.
    pub epoch: u64,
    /// Records that publishers brought since the count began, over all of them.
    pub passed: u64,
    /// The number of the stream's next record, where each record has the same number at each daemon that begins with a checkpoint; absent
    /// from a daemon that is not durable, and where the subscription does not get every record of the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Records for which the query's condition did not hold, since the subscription began; absent if it has no condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<u64>,
    /// The publishers, [`MAX_LISTED`] at most, those that are there first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publishers: Vec<PublisherPosition>,
    /// Publishers that are there and are not listed.
    #[serde(default)]
    pub unlisted: u32,
}

/// A publisher of a stream. Its records are numbered from 0 over all of its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublisherPosition {
    /// The publisher.
    pub publisher: PublisherId,
    /// The number of its first record that can have come since the count began: an earlier daemon has acknowledged those before.
    pub began: u64,
    /// The number of its next record.
    pub position: u64,
    /// Whether its session has ended.
    #[serde(default)]
    pub ended: bool,
}
