//! `crossdock bench`: load for a running daemon.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::Link;
use crate::quantity::{parse_duration, parse_number};

/// `crossdock bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measures the daemon's mailboxes: round trips, and messages in one direction
    #[command(after_help = "\
Examples:
  crossdock bench mailbox
  crossdock bench mailbox --size 64k --for 5s
  crossdock bench mailbox --transport udp --json

The cases:
  enqueue      a message goes to a task and comes back; no byte is touched
  put_get      a message is allocated, filled and copied by a task; the copy is read
  one_way      messages to a task that drops them, many with each call
  one_way_single  the same with one call for each message

The mailboxes are the command's own, and are removed when it ends. This process and
the daemon's I/O context poll while a case runs, so each needs a core for itself.")]
    Mailbox(BenchMailbox),
}

#[derive(Debug, Args)]
pub(crate) struct BenchMailbox {
    /// Length of the messages in bytes, such as 64 or 64k; at least 8
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = parse_number)]
    pub(crate) size: u64,
    /// Duration of each case; round trips end after 16.7 million
    #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// Print one JSON object for each case
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) link: Link,
}
