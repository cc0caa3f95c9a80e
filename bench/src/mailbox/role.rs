//! The processes of the mailbox benchmark. Each prints a line of JSON when it is ready, where somebody waits for that,
//! and another with what it measured.

#[cfg(feature = "iceoryx2")]
use super::iceoryx2;
use super::unix::Waiting;
use super::{client, floor, unix};
use crate::cpu::Error;
use crate::process::end_with_parent;
use clap::Subcommand;

/// The task of a process of the benchmark.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// Bounces an atomic between two cores with a message of 64 bytes beside it, filled on one core and read on the other, both ways
    PayloadFloor { client_cpu: usize, daemon_cpu: usize },
    /// Sends every message back over a Unix stream
    UnixEcho { name: String, bytes: usize, waiting: Waiting, cpu: usize },
    /// Sends one message at a time over a Unix stream and waits for its echo
    UnixPing { name: String, bytes: usize, waiting: Waiting, cpu: usize },
    /// Receives messages over a Unix stream
    UnixSink { name: String, cpu: usize },
    /// Sends messages over a Unix stream
    UnixSource { name: String, cpu: usize },
    #[cfg(feature = "iceoryx2")]
    /// Sends every message back over iceoryx2
    Iceoryx2Echo { name: String, cpu: usize },
    #[cfg(feature = "iceoryx2")]
    /// Sends one message at a time over iceoryx2 and waits for its echo
    Iceoryx2Ping { name: String, cpu: usize },
    /// Sends one message at a time to a mailbox and waits for the answer in another
    Ping(client::Ping),
    /// Hands on every message of a mailbox
    Answer { addr: String, cpu: usize },
    /// Sends messages to a mailbox that a task reads
    OneWay {
        addr: String,
        cpu: usize,
        task: String,
        /// One call for each message, in place of one for many
        #[arg(long)]
        single: bool,
    },
    /// Makes a mailbox and sends messages to the process that reads it
    Source { addr: String, cpu: usize },
    /// Reads every byte of the messages of that mailbox
    Sink { addr: String, cpu: usize },
    /// Has the core write one sync at a time and waits for it
    Sync { addr: String, cpu: usize, floor_cpu: usize },
    /// Serves a procedure that copies its request
    Serve { addr: String, cpu: usize },
    /// Calls that procedure, one call at a time
    Call { addr: String, cpu: usize },
    /// Waits for a message that never comes
    Idle { addr: String },
}

impl Role {
    pub(crate) fn run(self) -> Result<(), Error> {
        end_with_parent()?;
        match self {
            Role::PayloadFloor { client_cpu, daemon_cpu } => floor::run_with_bytes(client_cpu, daemon_cpu),
            Role::UnixEcho { name, bytes, waiting, cpu } => unix::echo(&name, bytes, waiting, cpu),
            Role::UnixPing { name, bytes, waiting, cpu } => unix::ping(&name, bytes, waiting, cpu),
            Role::UnixSink { name, cpu } => unix::sink(&name, cpu),
            Role::UnixSource { name, cpu } => unix::source(&name, cpu),
            #[cfg(feature = "iceoryx2")]
            Role::Iceoryx2Echo { name, cpu } => iceoryx2::echo(&name, cpu),
            #[cfg(feature = "iceoryx2")]
            Role::Iceoryx2Ping { name, cpu } => iceoryx2::ping(&name, cpu),
            Role::Ping(ping) => client::ping(&ping),
            Role::Answer { addr, cpu } => client::answer(&addr, cpu),
            Role::OneWay { addr, cpu, task, single } => client::one_way(&addr, cpu, &task, single),
            Role::Source { addr, cpu } => client::source(&addr, cpu),
            Role::Sink { addr, cpu } => client::sink(&addr, cpu),
            Role::Sync { addr, cpu, floor_cpu } => client::sync(&addr, cpu, floor_cpu),
            Role::Serve { addr, cpu } => client::serve(&addr, cpu),
            Role::Call { addr, cpu } => client::call(&addr, cpu),
            Role::Idle { addr } => client::idle(&addr),
        }
    }
}
