//! `crossdock mailbox`: mailboxes of the daemon, and messages in and out of them.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use crossdock_nectarine::{Implementation, SyncAddress, Transport};

use super::{Answer, Keys};
use crate::quantity::{parse_duration, parse_number};

/// `crossdock mailbox`.
#[derive(Debug, Args)]
pub(crate) struct Mailbox {
    #[command(subcommand)]
    pub(crate) command: MailboxCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MailboxCommand {
    /// Creates a mailbox, which stays until it is removed or the daemon ends
    #[command(after_help = "\
Examples:
  crossdock mailbox create orders
  crossdock mailbox create orders --implementation rings --bound-messages 10k

A [[mailbox]] section of the daemon's configuration creates a mailbox whenever the
daemon starts.")]
    Create(CreateMailbox),
    /// Removes a mailbox, with the messages in it
    #[command(
        visible_alias = "remove",
        after_help = "\
Examples:
  crossdock mailbox rm orders"
    )]
    Rm(RemoveMailbox),
    /// Puts messages into a mailbox: each line of a file or of standard input, or a number of messages of one size
    #[command(after_help = "\
Examples:
  echo hello | crossdock mailbox put orders
  crossdock mailbox put orders lines.txt
  crossdock mailbox put images photo.jpg --whole
  crossdock mailbox put orders --count 1M --size 64
  crossdock mailbox put east/orders lines.txt

While the mailbox is full, the command waits. It ends with 1 if messages of the
mailbox were dropped meanwhile, whoever put them, such as by a task whose output
mailbox was full, and prints how many and why. east/orders is the mailbox of another
node that the daemon's configuration names.")]
    Put(PutMessages),
    /// Takes messages out of a mailbox and prints them
    #[command(after_help = "\
Examples:
  crossdock mailbox get replies
  crossdock mailbox get replies --limit 10 --output json
  crossdock mailbox get images --output raw > photo.jpg
  crossdock mailbox get replies --limit 1000 --for 10s --output none

The command waits for messages until it has --limit of them; with --for it ends
with 0 also when there were fewer. Messages that it does not take stay in the
mailbox for the next reader. Exception: by shared memory, a reader of a `rings`
mailbox that is killed had messages ahead. Those are dropped, and counted by
`crossdock mailboxes` (reader_gone).")]
    Get(GetMessages),
    /// Takes messages out of a mailbox and prints them as they come, until it is interrupted
    #[command(after_help = "\
Examples:
  crossdock mailbox tail replies
  crossdock mailbox tail replies --output hex")]
    Tail(TailMessages),
    /// Has a task in the daemon read a mailbox, or ends that task
    #[command(after_help = "\
Examples:
  crossdock mailbox task requests echo to=replies
  crossdock mailbox task requests discard
  crossdock mailbox task requests --end

The tasks and their arguments:
  echo to=MAILBOX               moves each message to another mailbox
  copy to=MAILBOX               puts a copy of each message into another mailbox
  sum [to=MAILBOX]              puts the sum of each message's bytes into a mailbox
  discard                       drops each message
  log                           writes each message to the daemon's log
  read_file to=MAILBOX          puts the contents of the file that a message names
                                into a mailbox (`files` under [services])
  dump [to=MAILBOX]             writes each message to a file of its own, and the
                                file's name into a mailbox (`dumps` under [services])")]
    Task(MailboxTask),
    /// Allocates a sync and waits until it is written, or writes one
    #[command(after_help = "\
Examples:
  crossdock mailbox sync
  crossdock mailbox sync 0x0001000000000003 42

A sync is one word that one process waits for and another writes. The first form
prints the sync's address, waits, and prints the value. The second form writes the
value; its process must be of the same protection domain. Both need shared memory.")]
    Sync(MailboxSync),
}

#[derive(Debug, Args)]
pub(crate) struct CreateMailbox {
    /// The mailbox's name
    pub(crate) name: String,
    /// How messages pass through it: signal_queue, for any number of writers and readers, or rings, for one of each at a
    /// lower cost per message (the default of programs, of the configuration and of the HTTP API)
    #[arg(long, value_name = "KIND", default_value = "signal_queue",
        value_parser = PossibleValuesParser::new(["rings", "signal_queue"]).try_map(|word| word.parse::<Implementation>()))]
    pub(crate) implementation: Implementation,
    /// How many messages it holds before writers wait, such as 1000 or 10k [default: the daemon's configuration]
    #[arg(long, value_name = "N", value_parser = parse_number)]
    pub(crate) bound_messages: Option<u64>,
    /// How many bytes it holds before writers wait [default: the daemon's configuration]
    #[arg(long, value_name = "N", value_parser = parse_number)]
    pub(crate) bound_bytes: Option<u64>,
    #[command(flatten)]
    pub(crate) answer: Answer,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveMailbox {
    /// The mailbox's name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) answer: Answer,
}

/// How a command's messages reach the daemon.
#[derive(Debug, Args)]
pub(crate) struct Link {
    /// The daemon's address; unix:PATH or unix:@NAME is its attach socket, for shared memory only
    #[arg(long, value_name = "HOST:PORT", env = "CROSSDOCK_ADDRESS", default_value = "127.0.0.1:7440")]
    pub(crate) address: String,
    /// Transport of messages: shared memory (shm), packets (udp), or auto: shared memory if the daemon is on the same
    /// machine and accepts the attachment, else packets
    #[arg(long, value_name = "TRANSPORT", env = "CROSSDOCK_TRANSPORT", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "shm", "udp"]).try_map(|word| word.parse::<Transport>()))]
    pub(crate) transport: Transport,
    #[command(flatten)]
    pub(crate) keys: Keys,
}

#[derive(Debug, Args)]
pub(crate) struct PutMessages {
    /// The mailbox: its name, or node/name
    pub(crate) mailbox: String,
    /// The file whose lines are the messages; standard input if it is `-` or not given
    #[arg(value_hint = ValueHint::FilePath, conflicts_with = "count")]
    pub(crate) file: Option<PathBuf>,
    /// The whole input is one message, also if it is empty
    #[arg(long, conflicts_with = "count")]
    pub(crate) whole: bool,
    /// Put N messages without an input, such as 1000 or 1M; each begins with its number, 8 bytes, little endian
    #[arg(long, value_name = "N", value_parser = parse_number)]
    pub(crate) count: Option<u64>,
    /// Length of the messages of --count, in bytes; 0 for empty ones
    #[arg(long, value_name = "BYTES", default_value = "64")]
    pub(crate) size: u64,
    /// Print the result as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) link: Link,
}

/// How a message is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageOutput {
    /// As it is, with a newline after it; to a terminal, with control characters escaped
    Text,
    /// As it is
    Raw,
    /// In hexadecimal, one message per line
    Hex,
    /// A JSON object per line, with the message's length, and its text, or its bytes in hexadecimal
    Json,
    /// Not at all; messages are counted
    None,
}

#[derive(Debug, Args)]
pub(crate) struct GetMessages {
    /// The mailbox: its name, or node/name
    pub(crate) mailbox: String,
    /// End after N messages
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_number)]
    pub(crate) limit: u64,
    /// End after this time, such as 10s, also with fewer messages
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// How messages are printed
    #[arg(long, value_name = "KIND", default_value = "text")]
    pub(crate) output: MessageOutput,
    #[command(flatten)]
    pub(crate) link: Link,
}

#[derive(Debug, Args)]
pub(crate) struct TailMessages {
    /// The mailbox: its name, or node/name
    pub(crate) mailbox: String,
    /// How messages are printed
    #[arg(long, value_name = "KIND", default_value = "text")]
    pub(crate) output: MessageOutput,
    #[command(flatten)]
    pub(crate) link: Link,
}

#[derive(Debug, Args)]
pub(crate) struct MailboxTask {
    /// The mailbox whose messages it takes
    pub(crate) mailbox: String,
    /// The task: echo, copy, sum, discard, log, read_file or dump
    #[arg(required_unless_present = "end")]
    pub(crate) task: Option<String>,
    /// The task's arguments
    #[arg(value_name = "NAME=VALUE", value_parser = parse_argument)]
    pub(crate) arguments: Vec<(String, String)>,
    /// End the task that reads the mailbox
    #[arg(long, conflicts_with = "task")]
    pub(crate) end: bool,
    #[command(flatten)]
    pub(crate) answer: Answer,
}

fn parse_argument(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = split.ok_or("an argument is NAME=VALUE, such as to=replies")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
pub(crate) struct MailboxSync {
    /// The address of the sync to write, as `crossdock mailbox sync` prints it
    #[arg(requires = "value", value_parser = parse_address)]
    pub(crate) address: Option<SyncAddress>,
    /// The value to write: an unsigned 64-bit number
    pub(crate) value: Option<u64>,
    /// Longest time to wait, such as 10s
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration, conflicts_with = "address")]
    pub(crate) duration: Option<Duration>,
    /// The daemon's address; unix:PATH or unix:@NAME is its attach socket
    #[arg(long = "address", value_name = "HOST:PORT", env = "CROSSDOCK_ADDRESS", default_value = "127.0.0.1:7440")]
    pub(crate) daemon: String,
}

fn parse_address(text: &str) -> Result<SyncAddress, String> {
    let word = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let address = word.and_then(SyncAddress::from_word);
    address.ok_or_else(|| "an address is `0x` and hexadecimal digits, as `crossdock mailbox sync` prints it".to_owned())
}
