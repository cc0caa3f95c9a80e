//! The command line: every command, flag and default, with an example each. Nothing is done here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use crossdock_nectarine::Transport;
use crossdock_runtime::Overflow;

use crate::quantity::{parse_duration, parse_rate};

const EXIT_STATUS: &str = "\
Exit status: 0 done, 1 failed, 2 the command line, a query or a file that it
names is wrong.
Ctrl-C ends a command cleanly, a second one at once. A command that was
interrupted before it was done exits with 130 (143 after SIGTERM); one that
has no end of its own (serve, subscribe without --limit, --for and
--until-end) has then done its work, and exits with 0.";

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
    /// Runs the main job on the bundled flights of 2013, in this process, and checks its results
    #[command(after_help = "\
Example:
  crossdock demo airline

Starts a daemon's parts on a free port, replays 336,776 flights (stream A) and
26,115 hours of weather (stream B) through it to six subscribers, and compares
what each got with a separate pass over the CSV. Exit status 1 if one differs.")]
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

A schema file has a field a line, `name type` or `name type null`:
  carrier   char[2]
  dep_delay i16 null
  # types: bool i8..i64 u8..u64 f32 f64 timestamp char[N] string bytes
Without --schema, a CSV file's is inferred from its header and its first 1000
rows (all of them, if there are fewer before the input's end), and shown; a
live feed of few rows is better published with one.")]
    Publish(Publish),

    /// Prints the records that a query selects, as they come
    #[command(after_help = "\
Examples:
  crossdock subscribe 'SELECT * FROM A'
  crossdock subscribe \"SELECT carrier, flight FROM A WHERE dep_delay > 15\"
  crossdock subscribe 'SELECT * FROM A' --wait --until-end --output csv > a.csv

Ctrl-C ends it; how much came is said on standard error.")]
    Subscribe(Subscribe),

    /// Shows how the daemon would run a query, and what that would cost
    #[command(after_help = "\
Example:
  crossdock explain \"SELECT carrier, flight FROM A WHERE dest = 'LAX'\"")]
    Explain(Explain),

    /// Lists the formats that the daemon knows
    #[command(after_help = "\
Examples:
  crossdock formats
  crossdock formats --json | jq -r .description")]
    Formats(List),

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
    /// The records' fields: a file with `name type [null]` a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) schema: Option<PathBuf>,
    /// How the input is written; by default what the file's name says, else what its first byte looks like
    #[arg(long, value_name = "FORMAT")]
    pub(crate) input: Option<Encoding>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    /// An object a line
    Json,
    /// A header with the fields' names, then a record a line
    Csv,
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
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    pub(crate) output: Encoding,
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
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The query: SELECT … FROM stream WHERE …
    #[arg(value_name = "SQL")]
    pub(crate) sql: String,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
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
