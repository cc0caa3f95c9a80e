//! `ping` and `call`.

use std::time::Duration;

use clap::Args;

use super::keys::Keys;
use super::mailbox::Link;
use super::trace::Tracing;
use crate::quantity::{parse_duration, parse_number};

/// `crossdock ping`.
#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// How many round trips
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse_number)]
    pub(crate) count: u64,
    /// Time between the beginnings of two round trips
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = parse_duration)]
    pub(crate) interval: Duration,
    /// How long an answer is waited for; after that it counts as lost
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Print the result as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's address
    #[arg(long, value_name = "HOST:PORT", env = "CROSSDOCK_ADDRESS", default_value = "127.0.0.1:7440")]
    pub(crate) address: String,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    #[command(flatten)]
    pub(crate) keys: Keys,
}

/// `crossdock call`.
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The procedure: its name, or node/name
    #[arg(value_name = "NODE/SERVICE")]
    pub(crate) service: String,
    /// The request; standard input if it is not given
    #[arg(value_name = "REQUEST")]
    pub(crate) request: Option<String>,
    /// How long the result is waited for
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) deadline: Duration,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    #[command(flatten)]
    pub(crate) link: Link,
}
