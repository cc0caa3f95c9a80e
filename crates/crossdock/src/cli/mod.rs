//! The command line: every command, flag and default, with an example each. Nothing is done here.

mod data;
mod formats;
mod handlers;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

pub(crate) use self::data::{Explain, OnError, Publish, Subscribe};
pub(crate) use self::formats::{
    AddConversion, CheckFormat, Conversions, ConversionsCommand, DiffFormats, Formats, FormatsCommand,
    RemoveConversion, SetPolicy, ShowFormat,
};
use self::formats::{FORMATS, LAYOUTS};
pub(crate) use self::handlers::{Apply, Events, Handler, HandlerArguments, HandlerCommand, Handlers, How, Top};
use crate::version;

const EXIT_STATUS: &str = "\
Exit status: 0 done, 1 failed, 2 the command line, a query or a file that it
names is wrong.
Ctrl-C ends a command cleanly, a second one at once. A command that was
interrupted before it was done exits with 130 (143 after SIGTERM); one that
has no end of its own (serve, subscribe without --limit, --for and
--until-end) has then done its work, and exits with 0.";

/// Processes messages in transit: publishers send records, subscribers say in SQL what they want of them.
#[derive(Debug, Parser)]
#[command(name = "crossdock", version = version::SHORT, long_version = version::long(), max_term_width = 110, after_help = format!("\
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
with 0. Under systemd it notifies readiness (Type=notify, WatchdogSec=) and takes
over the sockets of socket units. Each replaces a configured one, by its kind: ListenDatagram=IP:PORT, ListenStream=/PATH (control),
ListenSequentialPacket= (attach), ListenStream=IP:PORT (HTTP, loopback only).")]
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

    /// Lists the chains of handlers, and how records come to subscribers that do not accept their format
    #[command(after_help = "\
Examples:
  crossdock paths
  crossdock paths --json | jq 'select(.is_missing)'
  crossdock paths --json | jq 'select(.handler)'

Chains go from a stream over handlers, each with its context, to derived streams.
`ns` is what a way to an accepted format is reckoned to cost a record; `crossdock
explain --accept` measures it.")]
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

    /// Lists the daemon's execution contexts: how busy they are, what room they have, counters and bounds
    #[command(after_help = "\
Examples:
  crossdock contexts
  crossdock contexts --json | jq 'select(.kind) | [.name, .busy_share, .headroom_ns_per_s]'

`headroom` is the time in each second that is left for further handlers. With
--json the context with the device comes twice: once with the counters of its
packets and sessions, once, as the others, with its handlers.")]
    Contexts(List),

    /// Deploys, replaces, sets, moves and removes handlers while records flow
    #[command(after_help = "\
Examples:
  crossdock handler deploy late 'SELECT carrier, flight FROM A WHERE dep_delay > $minutes' --param minutes=15
  crossdock subscribe 'SELECT * FROM late'
  crossdock handler set late minutes=30
  crossdock handler swap late 'SELECT * FROM A WHERE dep_delay > $minutes'
  crossdock handler move late g-core-0
  crossdock handler remove late

A handler reads streams and makes one, the derived stream, which subscriptions and
further handlers read. What is deployed by hand outlives the daemon with `state_dir`
in [morph] of its configuration; [[handler]] sections are deployed at its start.")]
    Handler(Handler),

    /// Lists the deployed handlers, or shows one whole
    #[command(after_help = "\
Examples:
  crossdock handlers
  crossdock handlers late
  crossdock handlers --json | jq '[.name, .context, .ns_per_record]'

`needs` is the time of a core in each second that it was reckoned to take when it
was let in, `takes` what it took in the last second.")]
    Handlers(Handlers),

    /// Shows what would change to come to the handlers of a configuration file
    #[command(after_help = "\
Examples:
  crossdock plan crossdock.toml
  crossdock plan crossdock.toml --keep --json | jq -r '.plan.changes[].what'

Exit status: 0 if that can be, also if nothing is to be done; 1 if it cannot.")]
    Plan(Apply),

    /// Brings the daemon to the handlers of a configuration file: all of it, or nothing changes
    #[command(after_help = "\
Examples:
  crossdock apply crossdock.toml
  crossdock apply crossdock.toml --keep")]
    Apply(Apply),

    /// Shows what happened on the platform: deployments, moves, refusals, faults, and why
    #[command(after_help = "\
Examples:
  crossdock events
  crossdock events --follow
  crossdock events --json | jq 'select(.kind == \"moved\") | .text'

The daemon keeps the last thousand.")]
    Events(Events),

    /// Shows contexts, handlers and streams with their rates, live in the terminal
    #[command(after_help = "\
Examples:
  crossdock top
  crossdock top --once

Keys: Tab or arrows change the list and the row, s sorts, p pauses, ? explains, q quits.")]
    Top(Top),

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

    /// Compares this machine with what the daemon needs, and prints the command for each change
    #[command(after_help = "\
Examples:
  crossdock check
  crossdock check --config /etc/crossdock/crossdock.toml
  crossdock check --json | jq -r 'select(.command) | .command'

Limits, socket buffers, huge pages, cores, clock, paths and ports are compared with
the configuration. `advice` improves speed or reliability; a `problem` stops the
daemon or a part of it; `unknown`: the system gives no value. Nothing is changed.
Run it as the user of the daemon.

Exit status: 0 if there is no problem, 1 if there is one.")]
    Check(Check),

    /// Prints the manual page, or writes one for each command to a folder
    #[command(after_help = "\
Examples:
  crossdock man | man -l -
  crossdock man --directory pages

A folder gets a page for each command, such as crossdock-serve.1, and that of the
configuration, crossdock.toml.5.")]
    Man(Man),

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

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Configuration file to check for, instead of the defaults
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON, an object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder to write all pages to; it is made if it is not there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

/// Where the daemon is asked about itself.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// The daemon's control socket [default: crossdock.sock in $XDG_RUNTIME_DIR, else /tmp/crossdock-UID.sock; if that is not there,
    /// that of the installed service, /run/crossdock/control.sock]
    #[arg(long, value_name = "PATH", env = "CROSSDOCK_SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print JSON, an object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) control: Control,
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
        let nested = commands.find_subcommand("handler").unwrap().get_subcommands();
        for command in commands.get_subcommands().chain(nested) {
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
