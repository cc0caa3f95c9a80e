//! The command line: every command, flag and default, with an example each. Nothing is done here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use crossdock_format::convert::MESSAGE_FIELD;
use crossdock_format::encoding::{Encoding, EncodingOptions, Loss};
use crossdock_format::registry::Policy;
use crossdock_nectarine::Transport;
use crossdock_runtime::{Overflow, Unreadable};

use crate::formats::parse_policy;
use crate::quantity::{parse_duration, parse_rate};

const EXIT_STATUS: &str = "\
Exit status: 0 done, 1 failed, 2 the command line, a query or a file that it
names is wrong.
Ctrl-C ends a command cleanly, a second one at once. A command that was
interrupted before it was done exits with 130 (143 after SIGTERM); one that
has no end of its own (serve, subscribe without --limit, --for and
--until-end) has then done its work, and exits with 0.";

const FORMATS: &str = "\
Examples:
  crossdock formats
  crossdock formats --json | jq -r .description
  crossdock formats show A:v1
  crossdock formats diff A:v1 A:v2
  crossdock formats policy A backward
  crossdock formats check A next.schema
  crossdock formats show sample.csv > A.schema

A format is named by its stream and version, by its id, or by a schema file, which
may be data too: .parquet, .arrow and .avro say their fields, .csv and .jsonl show them.
A policy is none, backward (who reads a new version can read old records),
forward (who reads an old version can read new ones) or full (both).
--help says how the layouts of other programs are written down.";

/// The notation of foreign layouts, as far as it fits a page; the whole is in the documentation of `notation`.
const LAYOUTS: &str = "\
Layouts of other programs, in a schema file:
  layout foreign big packed size variant    # byte order; where fields go; length
  type   char[1]
  flags  u8
  time   timestamp size 6 unit ns
  venue  u16 null unless bit 0 of flags
  msg    union on type {
    'A' => add record { ref u64; shares u32; stock char[8] pad space }
    'D' 'X' => delete record { ref u64 }
  }

First line: little or big; packed, aligned (as C compilers do) or explicit (each
field says `at N`); then, if need be, `size N`, `size variant` (the record ends
with the variants that are there) or `length FIELD +N` (a field says its length).
Types: those of other schemas, and whole numbers of any bytes (u24, i48).
Behind a type:
  at N, be, le, bits A..B          place, byte order, some bits of it
  null if = VALUE                  a value that stands for null
  null [unless] bit B of FIELD     a bit of another field does
  pad space                        char[N] filled up with blanks
  unit s|ms|us|ns, size N          what timestamps count, and their bytes
  slot u16 u16, base N             string, bytes and lists behind offset and length
  count FIELD, stride N            lists in place: how many, how far apart
  overlay                          shares its bytes with other fields
Fields that tell of others (type, flags and lengths here) are worked out when a
record is written, unless they are set. `crossdock explain` says what it costs to
read each field in place.";

/// Processes messages in transit: publishers send records, subscribers say in SQL what they want of them.
#[derive(Debug, Parser)]
#[command(name = "crossdock", version, max_term_width = 110, after_help = format!("\
Start with: crossdock demo airline

{EXIT_STATUS}"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the main job on the bundled flights of 2013, in this process, and checks its results; or another one
    #[command(after_help = "\
Examples:
  crossdock demo airline
  crossdock demo morph

Starts a daemon's parts on a free port, replays 336,776 flights (stream A) and
26,115 hours of weather (stream B) through it to six subscribers, and compares
what each got with a separate pass over the CSV. Exit status 1 if one differs.

morph: a publisher sends the flights in version 1 of their format, and the
subscribers accept version 3. What comes waits in the daemon, which asks for a
conversion; one comes while traffic flows, and strips the passengers' names first.")]
    Demo(Demo),

    /// Runs the daemon
    #[command(after_help = "\
Examples:
  crossdock serve
  crossdock serve --print-config > crossdock.toml
  crossdock serve --config crossdock.toml

Ctrl-C or SIGTERM ends its sessions, removes its control socket and exits
with 0.")]
    Serve(Serve),

    /// Sends a file's rows, or standard input's, as records of a stream
    #[command(after_help = "\
Examples:
  crossdock publish A data/flights.csv.gz
  crossdock publish A flights.csv --schema flights.schema --rate 10k
  crossdock publish A data/flights.csv.gz --transport udp
  generate-json | crossdock publish B --input json --schema b.schema
  crossdock publish C weather.parquet
  crossdock publish D feed.xml --schema d.schema --element quote
  crossdock publish E ticks.pb --schema feed.proto:market.Tick
  crossdock publish F capture.bin --schema feed.layout

Parquet, Arrow and Avro files carry their schema. For other inputs a schema
file is, by its ending, a .proto (name the message behind a colon), an Avro
schema (.avsc), a JSON Schema (.json), or else Crossdock's own, which has a field a line, `name type` or `name type null`:
  carrier   char[2]
  dep_delay i16 null
  # types: bool i8..i64 u8..u64 f32 f64 timestamp char[N] string bytes
  #        decimal(8, scale 2) enum u8 { A = 1 } record { x f32 } T[] T[8]
Without --schema, that of CSV or JSON is inferred from the first 1000
rows (all of them, if there are fewer before the input's end), and shown; a
live feed of few rows is better published with one.
Binary records (.bin, or --input binary) lie back to back, in the layout that the
schema says: Crossdock's own, or another program's (`crossdock formats --help`).")]
    Publish(Publish),

    /// Prints the records that a query selects, as they come
    #[command(after_help = "\
Examples:
  crossdock subscribe 'SELECT * FROM A'
  crossdock subscribe \"SELECT carrier, flight FROM A WHERE dep_delay > 15\"
  crossdock subscribe 'SELECT * FROM A' --wait --until-end --output csv > a.csv
  crossdock subscribe 'SELECT * FROM A' --until-end --output parquet > a.parquet
  crossdock subscribe 'SELECT * FROM A' --accept v3 --unreadable hold

What an encoding cannot hold without losing something is refused, with the
field and the loss's name; --allow NAME has it written all the same.
Ctrl-C ends it; how much came is said on standard error.")]
    Subscribe(Subscribe),

    /// Shows how the daemon would run a query, and what that would cost
    #[command(after_help = "\
Examples:
  crossdock explain \"SELECT carrier, flight FROM A WHERE dest = 'LAX'\"
  crossdock explain 'SELECT * FROM A' --accept v3")]
    Explain(Explain),

    /// Lists the formats that the daemon knows, compares them, and says how they may change
    #[command(after_help = FORMATS, after_long_help = format!("{FORMATS}\n\n{LAYOUTS}"))]
    Formats(Formats),

    /// Lists the conversions between formats, adds and removes those that the daemon keeps
    #[command(after_help = "\
Examples:
  crossdock conversions
  crossdock conversions add A v1 v2 --rule 'rename delay dep_delay' --rule 'drop passengers'
  crossdock conversions add A v2 v3 --sql 'SELECT carrier, dep_delay * 60 AS delay_s FROM x'
  crossdock conversions add Q v1 quote.schema --decode protobuf --field body --schema q.proto:Quote
  crossdock conversions remove A v1 v2

A rule is one of: rename OLD NEW, default FIELD VALUE, drop FIELD, unit FIELD s|ms|us|ns.
Without rules and query a conversion goes by the fields' names alone. With
--decode or --encode one side's records are messages in a field of the other's. What
programs register goes with their session; what is added here stays, with
`state_dir` in [morph] of the configuration also when the daemon restarts.")]
    Conversions(Conversions),

    /// Lists how records come to subscribers that do not accept their format, and what nothing leads to
    #[command(after_help = "\
Examples:
  crossdock paths
  crossdock paths --json | jq 'select(.is_missing)'

`ns` is what a path is reckoned to cost a record; `crossdock explain --accept`
measures it.")]
    Paths(List),

    /// Lists the daemon's streams
    #[command(after_help = "\
Examples:
  crossdock streams
  crossdock streams --json | jq .records_in")]
    Streams(List),

    /// Lists the daemon's subscriptions
    #[command(after_help = "\
Examples:
  crossdock subscriptions
  crossdock subscriptions --json | jq -r .sql")]
    Subscriptions(List),

    /// Lists the daemon's execution contexts, with their counters and bounds
    #[command(after_help = "\
Examples:
  crossdock contexts
  crossdock contexts --json")]
    Contexts(List),

    /// Lists the processes that are attached to the daemon by shared memory
    #[command(after_help = "\
Examples:
  crossdock clients
  crossdock clients --json | jq '[.pid, .bytes_held, .waits]'

`put` and `got` are messages, `held` the buffers in the process's hands now;
`waits` says how often it was left to wait for one.")]
    Clients(List),

    /// Lists the daemon's mailboxes
    #[command(after_help = "\
Examples:
  crossdock mailboxes
  crossdock mailboxes --json | jq 'select(.waits > 0) | .address'

`messages` and `bytes` are what lies in a mailbox, and its bounds; `waits` says
how often a writer was left to wait because of them.")]
    Mailboxes(List),

    /// Prints a shell's completions
    #[command(after_help = "\
Examples:
  crossdock completions bash > ~/.local/share/bash-completion/completions/crossdock
  crossdock completions fish > ~/.config/fish/completions/crossdock.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Which one
    #[arg(default_value = "airline")]
    pub(crate) scenario: Scenario,
    /// Print the results as JSON, an object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Scenario {
    /// An airline's flights and weather, to its departments
    Airline,
    /// Flights in an old version of their format, to subscribers of a new one, by a converter that comes while they flow
    Morph,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Configuration file; every key has a default
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// UDP address to receive on, instead of the configured one; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Control socket, instead of the configured one
    #[arg(long, value_name = "PATH", env = "CROSSDOCK_SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
    /// Print a configuration file with every key, its default and what it means, and exit
    #[arg(long)]
    pub(crate) print_config: bool,
}

/// Where the daemon's data traffic goes, and by which way.
#[derive(Debug, Args)]
pub(crate) struct Daemon {
    /// The daemon's address; unix:PATH or unix:@NAME is its attach socket, for shared memory only
    #[arg(long, value_name = "HOST:PORT", env = "CROSSDOCK_ADDRESS", default_value = "127.0.0.1:7440")]
    pub(crate) address: String,
    /// How records travel: by shared memory (shm), in packets (udp), or auto: by shared memory if the daemon is on this
    /// machine and lets us attach, else in packets
    #[arg(long, value_name = "WAY", env = "CROSSDOCK_TRANSPORT", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "shm", "udp"]).try_map(|word| word.parse::<Transport>()))]
    pub(crate) transport: Transport,
    /// Come back when the daemon has gone and is there again, instead of failing
    #[arg(long)]
    pub(crate) reconnect: bool,
}

/// Where the daemon is asked about itself.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// The daemon's control socket [default: crossdock.sock in $XDG_RUNTIME_DIR, else /tmp/crossdock-UID.sock]
    #[arg(long, value_name = "PATH", env = "CROSSDOCK_SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// The stream's name
    pub(crate) stream: String,
    /// The file, plain or gzip; standard input if it is `-` or left out
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// How the input is written; by default what the file's name says, else what its first bytes look like
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding())]
    pub(crate) input: Option<Encoding>,
    #[command(flatten)]
    pub(crate) coding: Coding,
    /// Pass over what the input has and the schema has no field for, instead of failing
    #[arg(long)]
    pub(crate) ignore_unknown: bool,
    /// At most so many records a second, such as 1000, 2.5k or 1M
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,
    /// What to do about a row that is not as the schema says: stop there, or skip it and count
    #[arg(long, value_name = "WHAT", default_value = "stop")]
    pub(crate) on_error: OnError,
    /// CSV values that mean null, comma-separated, besides the empty value
    #[arg(long, value_name = "WORDS", value_delimiter = ',', default_value = "NA")]
    pub(crate) null_words: Vec<String>,
    /// What separates CSV values
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = parse_delimiter)]
    pub(crate) delimiter: u8,
    /// How long a record may wait for others to share its packet
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = parse_duration)]
    pub(crate) linger: Duration,
    /// Print what was published as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// What an encoding needs to know.
#[derive(Debug, Args)]
pub(crate) struct Coding {
    /// A file with the schema: .proto, .avsc, .json (JSON Schema), `name type [null]` a line, or data that says its fields
    /// (.parquet, .arrow, .avro) or shows them (.csv, .jsonl). Where it has several messages, the one that is meant stands
    /// behind a colon
    #[arg(long, value_name = "FILE[:MESSAGE]", value_hint = ValueHint::FilePath)]
    pub(crate) schema: Option<PathBuf>,
    /// What may be lost on the way, by name, comma-separated; what would be lost is refused with its name otherwise
    #[arg(long, value_name = "LOSS", value_delimiter = ',', value_parser = parse_loss())]
    pub(crate) allow: Vec<Loss>,
    /// Name of the XML elements that are records [default: on input all children of the root, on output `record`]
    #[arg(long, alias = "root", value_name = "NAME")]
    pub(crate) element: Option<String>,
}

impl Coding {
    /// The encodings' options, as far as these say them.
    pub(crate) fn options(&self) -> EncodingOptions {
        EncodingOptions { allow: self.allow.clone(), xml_element: self.element.clone(), ..EncodingOptions::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    /// Say what is wrong with it, and exit with 1; the rows before it have been published
    Stop,
    /// Leave it out; the first ten are shown, and all are counted
    Skip,
}

#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    /// The query: SELECT … FROM stream WHERE …
    #[arg(value_name = "SQL")]
    pub(crate) sql: String,
    /// How to print records
    #[arg(long, value_name = "ENCODING", default_value = "json", value_parser = parse_encoding())]
    pub(crate) output: Encoding,
    #[command(flatten)]
    pub(crate) coding: Coding,
    /// End after so many records
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// End after so long, such as 10s
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// End when the stream's last publisher has finished
    #[arg(long)]
    pub(crate) until_end: bool,
    /// Wait until the stream is there, if it is not; at most so long if given (--wait=30s). Nothing of a stream that was
    /// waited for is missed
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1, require_equals = true,
        default_missing_value = "8760h")]
    pub(crate) wait: Option<Duration>,
    /// What the daemon does when this subscriber is too slow: block the publisher, drop_oldest, or disconnect
    /// [default: as the daemon is configured]
    #[arg(long, value_name = "WHAT")]
    pub(crate) overflow: Option<Overflow>,
    /// A format that is accepted: a version of the stream (v3), a format's id, or a schema file; several,
    /// comma-separated. Records in others are converted where `crossdock conversions` lead there
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    pub(crate) accept: Vec<String>,
    /// With --accept, what happens to records that nothing converts: hold them for a while, until a conversion comes, or
    /// drop and count them [default: as the daemon is configured]
    #[arg(long, value_name = "WHAT", requires = "accept")]
    pub(crate) unreadable: Option<Unreadable>,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The query: SELECT … FROM stream WHERE …
    #[arg(value_name = "SQL")]
    pub(crate) sql: String,
    /// A format that the subscriber would accept, as of `subscribe --accept`; several, comma-separated
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    pub(crate) accept: Vec<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) control: Control,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Formats {
    #[command(subcommand)]
    pub(crate) command: Option<FormatsCommand>,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FormatsCommand {
    /// Shows a format's fields
    Show(ShowFormat),
    /// Shows what a reader of one format would see of records of another
    Diff(DiffFormats),
    /// Says whether a schema could be a stream's next version, by the stream's policy
    Check(CheckFormat),
    /// Sets how a stream's format may change from its next version on
    Policy(SetPolicy),
}

#[derive(Debug, Args)]
pub(crate) struct ShowFormat {
    /// The format: STREAM:v1, an id, or a schema file
    pub(crate) format: String,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Args)]
pub(crate) struct DiffFormats {
    /// The format that is read: STREAM:v1, an id, or a schema file
    pub(crate) reader: String,
    /// The format that the records have
    pub(crate) written: String,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Args)]
pub(crate) struct CheckFormat {
    /// The stream
    pub(crate) stream: String,
    /// The schema file
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) control: Control,
}

#[derive(Debug, Args)]
pub(crate) struct SetPolicy {
    /// The stream
    pub(crate) stream: String,
    /// none, backward, forward or full
    #[arg(value_parser = parse_policy)]
    pub(crate) policy: Policy,
    #[command(flatten)]
    pub(crate) control: Control,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Conversions {
    #[command(subcommand)]
    pub(crate) command: Option<ConversionsCommand>,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConversionsCommand {
    /// Has the daemon keep a conversion, in place of the one that it keeps between the same formats
    Add(AddConversion),
    /// Takes out a conversion that the daemon keeps
    Remove(RemoveConversion),
}

#[derive(Debug, Args)]
pub(crate) struct AddConversion {
    /// The stream
    pub(crate) stream: String,
    /// The format that it reads: a version of the stream (v1), a format's id, or a schema file
    pub(crate) from: String,
    /// The format that it makes
    pub(crate) to: String,
    /// A query whose select list makes the one format's fields of the other's
    #[arg(long, value_name = "SELECT", group = "how")]
    pub(crate) sql: Option<String>,
    /// A rule for a conversion by the fields' names; may be given several times
    #[arg(long, value_name = "RULE", group = "how")]
    pub(crate) rule: Vec<String>,
    /// A file with the query or the rules
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "how")]
    pub(crate) file: Option<PathBuf>,
    /// The records to be made are in messages of this encoding, in a field of those that are read
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding(), group = "how")]
    pub(crate) decode: Option<Encoding>,
    /// Each record becomes a message in this encoding, in the field of those that are made
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding(), group = "how")]
    pub(crate) encode: Option<Encoding>,
    #[command(flatten)]
    pub(crate) message: MessageCoding,
    #[command(flatten)]
    pub(crate) control: Control,
}

/// Where messages are, and how they are written.
#[derive(Debug, Args)]
pub(crate) struct MessageCoding {
    /// The field that the messages are in
    #[arg(long, value_name = "NAME", default_value = MESSAGE_FIELD)]
    pub(crate) field: String,
    /// A file with the messages' schema (.proto, .avsc), where the encoding goes by one
    #[arg(long, value_name = "FILE[:MESSAGE]", value_hint = ValueHint::FilePath)]
    pub(crate) schema: Option<PathBuf>,
    /// What may be lost on the way, by name, comma-separated
    #[arg(long, value_name = "LOSS", value_delimiter = ',', value_parser = parse_loss())]
    pub(crate) allow: Vec<Loss>,
    /// Pass over what a message has and the format has no field for
    #[arg(long)]
    pub(crate) ignore_unknown: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveConversion {
    /// The stream
    pub(crate) stream: String,
    /// The format that it reads: a version of the stream (v1), a format's id, or a schema file
    pub(crate) from: String,
    /// The format that it makes
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) control: Control,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print JSON, an object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) control: Control,
}

fn parse_encoding() -> impl TypedValueParser<Value = Encoding> {
    PossibleValuesParser::new(Encoding::ALL.map(Encoding::name)).try_map(|word| word.parse::<Encoding>())
}

fn parse_loss() -> impl TypedValueParser<Value = Loss> {
    PossibleValuesParser::new(Loss::ALL.map(Loss::name)).try_map(|word| word.parse::<Loss>())
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("\\t" | "tab", _) => Ok(b'\t'),
        (_, [byte]) if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("a delimiter is one ASCII character that is no quote and no line end, or `tab`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_that_parses() {
        let commands = Cli::command();
        for command in commands.get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> = help
                .lines()
                .filter_map(|line| line.strip_prefix("  "))
                .filter(|line| line.contains("crossdock "))
                .collect();
            assert!(!examples.is_empty(), "{} has no example", command.get_name());
            for example in examples {
                let words = words_of(example);
                let parsed = Cli::try_parse_from(&words);
                assert!(
                    parsed.is_ok(),
                    "{example}: {words:?} {}",
                    parsed.err().map_or(String::new(), |e| e.to_string())
                );
            }
        }
    }

    /// The words that a shell would hand to `crossdock` in a line of these examples.
    fn words_of(line: &str) -> Vec<String> {
        let from = line.find("crossdock ").unwrap_or(0);
        let (mut words, mut quote, mut word) = (Vec::new(), None, String::new());
        for c in line[from..].chars().chain([' ']) {
            match (c, quote) {
                ('|' | '>', None) => break,
                (' ', None) if !word.is_empty() => words.push(std::mem::take(&mut word)),
                (' ', None) => {}
                ('\'' | '"', None) => quote = Some(c),
                (c, Some(open)) if c == open => quote = None,
                (c, _) => word.push(c),
            }
        }
        words
    }
}
