//! The command line: every command, flag and default, with examples of each command. Other modules run the commands.

mod access;
mod analyze;
mod bench;
mod calls;
mod control;
mod data;
mod formats;
mod handlers;
mod keys;
mod mailbox;
mod subscriptions;
mod trace;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use crossdock_mailbox::attach::AttachAddr;

pub(crate) use self::access::{AccessCheck, AccessCommand, AccessQuestion};
pub(crate) use self::analyze::{Analyze, Explain, ExplainCommand};
pub(crate) use self::bench::{Bench, BenchCommand, BenchMailbox};
pub(crate) use self::calls::{Call, Ping};
pub(crate) use self::control::{Control, HttpAddress};
pub(crate) use self::data::{Daemon, OnError, OnRowError, ProtoPath, Publish, Subscribe, Why};
pub(crate) use self::formats::{
    AddConversion, CheckFormat, Conversions, ConversionsCommand, DiffFormats, ExportFormat, Formats, FormatsCommand,
    MessageCoding, RemoveConversion, RemoveStream, RemoveVersion, SetPolicy, SetStream, ShowFormat, Streams,
    StreamsCommand,
};
use self::formats::{FORMATS, LAYOUTS};
pub(crate) use self::handlers::{Apply, Events, Handler, HandlerArguments, HandlerCommand, Handlers, How, Top};
pub(crate) use self::keys::{AddKey, Keygen, Keys, KeysChange, KeysCommand, KeysFile, KeysList, RemoveKey};
pub(crate) use self::mailbox::{
    CreateMailbox, GetMessages, Link, Mailbox, MailboxCommand, MailboxSync, MailboxTask, MessageOutput, PutMessages,
    RemoveMailbox,
};
pub(crate) use self::subscriptions::{SetSubscription, SubscriptionsArguments, SubscriptionsCommand};
pub(crate) use self::trace::Tracing;
use crate::version;

/// The text that `crossdock` prints without arguments.
pub(crate) const START: &str = "\
Crossdock is a message broker that runs SQL on messages in transit.

  crossdock tour                   shows the main commands in two minutes

Or, each in a terminal of its own:
  crossdock serve                  runs the daemon
  crossdock subscribe --wait --limit 5 'SELECT * FROM A'
  crossdock demo flights | crossdock publish A

crossdock --help for all commands.
";

/// The exit statuses of a command that has no others.
const USUAL_STATUS: &str = "\
Exit status: 0 success, 1 failure, 2 error in the command line, in a query or in
a file that it names. `crossdock --help` lists those after Ctrl-C.";

const ENVIRONMENT: &str = "\
Environment:
  CROSSDOCK_ADDRESS     where serve listens, and publish and subscribe connect to
  CROSSDOCK_SOCKET      the daemon's control socket
  CROSSDOCK_TRANSPORT   transport of records: auto, shm or udp
  CROSSDOCK_KEY         the file with a client's private key
  CROSSDOCK_DAEMON_KEY  the daemon's public key
  CROSSDOCK_CONFIG      the configuration file of serve, check and keys
  CROSSDOCK_HTTP        the daemon's HTTP address, instead of the socket
  CROSSDOCK_TOKEN_FILE  the file with the token for requests to CROSSDOCK_HTTP
  CROSSDOCK_CA          the authorities that may have signed its certificate
  CROSSDOCK_PIN         the SHA-256 of its certificate, instead of those
  COLUMNS, LINES        width of tables that do not go to a terminal; top --once
  NO_COLOR              if set, no colours
An option goes before the variable of its kind.";

const EXIT_STATUS: &str = "\
Exit status: 0 success, 1 failure, 2 error in the command line, in a query or in
a file that it names.
Ctrl-C ends a command cleanly, a second Ctrl-C at once. A command that is
interrupted before its end exits with 130 (143 after SIGTERM). A command without
an end of its own (serve, subscribe without --limit, --for and --until-end) exits
with 0 when it is interrupted.";

/// Processes messages in transit: publishers send records, and subscribers select from them with SQL.
#[derive(Debug, Parser)]
#[command(name = "crossdock", version = version::SHORT, long_version = version::long(), max_term_width = 110, after_help = format!("\
Start with: crossdock tour

{ENVIRONMENT}

{EXIT_STATUS}"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The definition of the command line. Every command's help names its exit statuses.
pub(crate) fn definition() -> clap::Command {
    with_status(Cli::command())
}

fn with_status(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommands(with_status);
    let lacks = |help: Option<&StyledStr>| help.map(ToString::to_string).filter(|help| !help.contains("Exit status: "));
    let (short, long) = (lacks(command.get_after_help()), lacks(command.get_after_long_help()));
    let is_bare = command.get_after_help().is_none();
    let command = match short {
        Some(help) => command.after_help(format!("{help}\n\n{USUAL_STATUS}")),
        None if is_bare => command.after_help(USUAL_STATUS),
        None => command,
    };
    match long {
        Some(help) => command.after_long_help(format!("{help}\n\n{USUAL_STATUS}")),
        None => command,
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the main commands in two minutes: publish, subscribe, a handler, a swap, and top
    #[command(after_help = "\
Examples:
  crossdock tour
  crossdock tour --no-wait

The tour starts a daemon of its own on a free port, prints each command before it
runs it, and explains it. Between two steps it waits for Enter, unless standard
input is not a terminal. At its end, or on Ctrl-C, it removes its files.")]
    Tour(Tour),

    /// Runs a demonstration on the bundled flights of 2013, in this process, and checks its results
    #[command(after_help = "\
Examples:
  crossdock demo
  crossdock demo airline
  crossdock demo morph
  crossdock demo flights > flights.csv

airline: starts a daemon's parts on a free port, replays 336,776 flights (stream
A) and 26,115 hours of weather (stream B) through it to eight subscribers, two of
whose queries join streams or have windows, and compares the records of each with
a separate pass over the CSV. Exit status 1 if one differs.

morph: a publisher sends the flights in version 1 of their format, and the
subscribers accept version 3. The records wait in the daemon, which requests a
conversion. A converter registers one while records flow; it removes the
passengers' names first.")]
    Demo(Demo),

    /// Runs the daemon
    #[command(after_help = "\
Examples:
  crossdock serve
  crossdock serve --print-config > crossdock.toml
  crossdock serve --config crossdock.toml

On Ctrl-C or SIGTERM the daemon ends its sessions, removes its control socket and
exits with 0. Under systemd it notifies readiness (Type=notify, WatchdogSec=) and
takes over the sockets of socket units. Each replaces the configured socket of its
kind: ListenDatagram=IP:PORT (data), ListenStream=/PATH (control),
ListenSequentialPacket= (attach), ListenStream=IP:PORT (HTTP).")]
    Serve(Serve),

    /// Publishes the rows of a file, or of standard input, as records of a stream
    #[command(after_help = "\
Examples:
  crossdock publish A data/flights.csv.gz
  crossdock publish A flights.csv --schema flights.schema --rate 10k
  crossdock publish A data/flights.csv.gz --transport udp --trace a.sqlog
  generate-json | crossdock publish B --input json --schema b.schema
  crossdock publish C weather.parquet
  crossdock publish D feed.xml --schema d.schema --element quote
  crossdock publish E ticks.pb --schema feed.proto:market.Tick
  crossdock publish F capture.bin --schema feed.layout

Parquet, Arrow and Avro files contain their schema. For other inputs, the ending of
the schema file selects its kind: .proto (name the message after a colon), .avsc
(Avro schema), .json (JSON Schema), else Crossdock's own notation, with a line
`name type` or `name type null` for each field:
  carrier   char[2]
  dep_delay i16 null
  # types: bool i8..i64 u8..u64 f32 f64 timestamp char[N] string bytes
  #        decimal(8, scale 2) enum u8 { A = 1 } record { x f32 } T[] T[8]
Without --schema, the schema of CSV or JSON is inferred from the first 1000 rows
(or from all rows, if the input ends earlier), and shown. Give a schema for a live
feed with few rows, since publishing begins after these rows.
Binary records (.bin, or --input binary) are consecutive, in the schema's layout:
Crossdock's own, or another program's (`crossdock formats --help`).")]
    Publish(Publish),

    /// Prints the records that a query selects, as they arrive
    #[command(after_help = "\
Examples:
  crossdock subscribe 'SELECT * FROM A'
  crossdock subscribe \"SELECT carrier, flight FROM A WHERE dep_delay > 15\"
  crossdock subscribe 'SELECT * FROM A' --wait --until-end --output csv > a.csv
  crossdock subscribe 'SELECT * FROM A' --wait --until-end --output parquet > a.parquet
  crossdock subscribe 'SELECT * FROM A' --accept v3 --unreadable hold

A value that an encoding cannot represent without a loss is an error, which names
the field and the loss; --allow NAME permits that loss.
Ctrl-C ends the command; standard error then gives the number of records.")]
    Subscribe(Subscribe),

    /// Shows how the daemon would run a query, and its cost
    #[command(after_help = "\
Examples:
  crossdock explain \"SELECT carrier, flight FROM A WHERE dest = 'LAX'\"
  crossdock explain 'SELECT * FROM A' --accept v3
  crossdock explain analyze 'SELECT * FROM A' --for 10s

`crossdock explain analyze --help` has more on what it does at work.")]
    Explain(Explain),

    /// Lists, compares and checks formats, and sets how they may change
    #[command(after_help = FORMATS, after_long_help = format!("{FORMATS}\n\n{LAYOUTS}"))]
    Formats(Formats),

    /// Lists, adds and removes conversions between formats
    #[command(after_help = "\
Examples:
  crossdock conversions
  crossdock conversions add A v1 v2 --rule 'rename delay dep_delay' --rule 'drop passengers'
  crossdock conversions add A v2 v3 --sql 'SELECT carrier, dep_delay * 60 AS delay_s FROM x'
  crossdock conversions add Q v1 quote.schema --decode protobuf --field body --schema q.proto:Quote
  crossdock conversions remove A v1 v2

A rule is one of: rename OLD NEW, default FIELD VALUE, drop FIELD, unit FIELD s|ms|us|ns.
Without rules and query, a conversion maps fields by their names. With --decode or
--encode, the records of one format are messages in a field of the other. A
conversion that a program registers ends with the program's session. One that is
added here stays, with `state_dir` in [morph] of the configuration also after a
restart of the daemon.")]
    Conversions(Conversions),

    /// Lists the chains of handlers, and the conversion routes to the formats that subscribers accept
    #[command(after_help = "\
Examples:
  crossdock paths
  crossdock paths --json | jq 'select(.is_missing)'
  crossdock paths --json | jq 'select(.handler)'

A chain leads from a stream through handlers, each shown with its context, to
derived streams. `ns` is the estimated cost per record of a route to an accepted
format; `crossdock explain --accept` measures it.")]
    Paths(List),

    /// Lists the daemon's streams, sets their keys and removes them
    #[command(after_help = "\
Examples:
  crossdock streams
  crossdock streams --json | jq .records_in
  crossdock streams set A --key flight_id
  crossdock streams rm A")]
    Streams(Streams),

    /// Lists the daemon's reference tables
    #[command(after_help = "\
Examples:
  crossdock tables
  crossdock tables --json | jq -r .schema

A table is declared in the daemon's configuration ([[table]]), and read again when its
file changes. `refused` counts changed files that were not taken: the rows before stay.")]
    Tables(List),

    /// Lists the daemon's subscriptions, and gives one another query
    #[command(after_help = "\
Examples:
  crossdock subscriptions
  crossdock subscriptions --json | jq -r .sql
  crossdock subscriptions set 3 \"SELECT * FROM A WHERE dest = 'LAX'\"")]
    Subscriptions(SubscriptionsArguments),

    /// Lists the daemon's execution contexts with their load, headroom, counters and bounds
    #[command(after_help = "\
Examples:
  crossdock contexts
  crossdock contexts --json | jq 'select(.kind) | [.name, .busy_share, .headroom_ns_per_s]'

`headroom` is the time per second that is left for further handlers. With --json
the I/O context is listed twice: once with the counters of its packets and
sessions, and once, like the other contexts, with its handlers.")]
    Contexts(List),

    /// Deploys, replaces, tunes, moves and removes handlers while records flow
    #[command(after_help = "\
Examples:
  crossdock handler deploy late 'SELECT carrier, flight FROM A WHERE dep_delay > $minutes' --param minutes=15
  crossdock subscribe 'SELECT * FROM late'
  crossdock handler set late minutes=30
  crossdock handler swap late 'SELECT * FROM A WHERE dep_delay > $minutes'
  crossdock handler move late g-core-0
  crossdock handler remove late

A handler reads streams and produces one, the derived stream, which subscriptions
and further handlers read. Handlers deployed with this command are deployed again
after a restart of the daemon if its configuration has `state_dir` in [morph];
those of [[handler]] sections are deployed at every start.")]
    Handler(Handler),

    /// Lists the deployed handlers, or shows one in detail
    #[command(after_help = "\
Examples:
  crossdock handlers
  crossdock handlers late
  crossdock handlers --json | jq '[.name, .context, .ns_per_record]'

`needs` is the core time per second that was predicted for the handler when it was
admitted, `takes` the core time that it used in the last second.")]
    Handlers(Handlers),

    /// Shows the changes that `apply` would make for a configuration file
    #[command(after_help = "\
Examples:
  crossdock plan crossdock.toml
  crossdock plan crossdock.toml --keep --json | jq -r '.plan.changes[].what'

Exit status: 0 if the changes are possible, or none is necessary; 1 if not.")]
    Plan(Apply),

    /// Deploys the handlers of a configuration file: all of its changes are made, or none
    #[command(after_help = "\
Examples:
  crossdock apply crossdock.toml
  crossdock apply crossdock.toml --keep")]
    Apply(Apply),

    /// Lists events of the platform: deployments, moves, refusals and faults, with their reasons
    #[command(after_help = "\
Examples:
  crossdock events
  crossdock events --follow
  crossdock events --json | jq 'select(.kind == \"moved\") | .text'

The daemon keeps the last 1000 events.")]
    Events(Events),

    /// Says what is wrong with the daemon now: slow subscribers, losses and their causes, bounds that are near
    #[command(after_help = "\
Examples:
  crossdock doctor
  crossdock doctor --json | jq -r .text

Exit status 1 if there is a problem. `crossdock check` looks at the machine.")]
    Doctor(List),

    /// Judges single records by a subscription's query: met, filtered by a condition, or a row error; and says whether its policy
    /// can have left them out
    #[command(after_help = "\
Examples:
  crossdock why flights 'flight = 1545' --subscription 3
  crossdock why flights 'flight = 1545' --subscription 3 --trace --limit 10

The daemon keeps no records but those of the state of a stream (`crossdock streams set` with
--key): of these, the last record of each key is judged. --trace judges records as they come.
A policy for slow subscribers counts the records that it left out for the subscription as a
whole, and a join, group or window its late and forgotten rows: where these are none, the end
of the record is known, and else in some cases. The records are those that the caller may
read; the subscription may see less of them by its access rules.")]
    Why(Why),

    /// Shows contexts, handlers and streams with their rates, live in the terminal
    #[command(after_help = "\
Examples:
  crossdock top
  crossdock top --once

Keys: Tab or arrows change the list and the row, s sorts, p pauses, ? explains, q quits.")]
    Top(Top),

    /// Lists the sessions over packets: round-trip time, window, loss and bytes of each
    #[command(after_help = "\
Examples:
  crossdock sessions
  crossdock sessions --json | jq '[.peer, .rtt_ns, .loss]'

`rtt` is the smoothed round-trip time, `window` the bytes that may be on the way to the peer
at once, `loss` the share of the sent packets that were sent again. Clients that are attached
through shared memory have no session over packets: `crossdock clients` lists them.")]
    Sessions(List),

    /// Lists the processes that are attached to the daemon through shared memory
    #[command(after_help = "\
Examples:
  crossdock clients
  crossdock clients --json | jq '[.pid, .bytes_held, .waits]'

`put` and `got` count messages, `held` the bytes of buffers that the process holds;
`waits` counts how often the process had to wait for a buffer.")]
    Clients(List),

    /// Measures round trips to the daemon over packets
    #[command(after_help = "\
Examples:
  crossdock ping
  crossdock ping --count 100 --interval 10ms --trace ping.sqlog
  crossdock ping --address 192.0.2.1:7440 --json

Each round trip is a packet to the daemon and its answer, in a session that does nothing
else. The command ends with 1 if no answer came at all.")]
    Ping(Ping),

    /// Calls a procedure that a program offers on a node, and prints the result
    #[command(after_help = "\
Examples:
  crossdock call reverse desserts
  cat photo.jpg | crossdock call east/resize --deadline 30s > small.jpg

A program offers a procedure with `Node::serve` of the library. A call is carried out once
at most; if its deadline passes, it may or may not have been carried out.")]
    Call(Call),

    /// Creates and removes mailboxes, puts messages into them and gets messages out of them
    #[command(after_help = "\
Examples:
  crossdock mailbox create orders
  echo hello | crossdock mailbox put orders
  crossdock mailbox get orders")]
    Mailbox(Mailbox),

    /// Puts load on a running daemon, and prints what it takes
    #[command(after_help = "\
Examples:
  crossdock bench mailbox
  crossdock bench mailbox --size 1k --json")]
    Bench(Bench),

    /// Lists the daemon's mailboxes
    #[command(after_help = "\
Examples:
  crossdock mailboxes
  crossdock mailboxes --json | jq 'select(.waits > 0) | .address'

`messages` and `bytes` are the content of a mailbox and its bounds; `waits` counts
how often a writer had to wait because of the bounds.")]
    Mailboxes(List),

    /// Makes a private key for secure sessions, and prints the public key that belongs to it; or a token for the HTTP API
    #[command(after_help = "\
Examples:
  crossdock keygen
  crossdock keygen --output daemon.key
  crossdock keygen --token --output ops.token

A daemon that listens beyond this machine needs a key (`key` in [security] of its
configuration), and so does each of its clients over the network (--key of
`publish`, `subscribe` and `mailbox`). Only the file's user may read it.")]
    Keygen(Keygen),

    /// Lists, adds and removes the public keys of clients that may connect over the network
    #[command(after_help = "\
Examples:
  crossdock keys --config crossdock.toml
  crossdock keys add 0b5f2c1d3e4a59687786a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0 desk --file clients.keys
  crossdock keys rm desk --file clients.keys
  crossdock keys show crossdock.key

With --config, the list begins with the daemon's own public key. A running daemon
takes a changed file into account within some seconds, and ends the sessions of
clients that are no longer in it.")]
    Keys(KeysCommand),

    /// Lists the access rules, and says what they would decide
    #[command(after_help = "\
Examples:
  crossdock access list
  crossdock access check desk 'SELECT * FROM A'
  crossdock access check uid:1000 --publish A

Rules are [[access]] sections of the daemon's configuration, by the public key of a
secure session, the user of a process on this machine, or a token.")]
    Access(AccessCommand),

    /// Compares this machine with the daemon's requirements, and prints the command for each change
    #[command(after_help = "\
Examples:
  crossdock check
  crossdock check --config crossdock.toml
  crossdock check --json | jq -r 'select(.command) | .command'

The command compares limits, socket buffers, huge pages, cores, clock, paths and
ports with the configuration, reads its reference tables, and changes nothing.
`advice` improves speed or reliability; a `problem` stops the daemon or a part of it; `unknown` means that the
system gives no value. Run it as the user of the daemon. Without --config it reads
/etc/crossdock/crossdock.toml, if there is one, and says so.

Exit status: 0 if there is no problem, 1 if there is one.")]
    Check(Check),

    /// Prints the version, the commit, and what was built in
    #[command(after_help = "\
Examples:
  crossdock version
  crossdock version --json | jq -r .commit")]
    Version(Version),

    /// Prints the manual page, or writes the pages of all commands to a directory
    #[command(after_help = "\
Examples:
  crossdock man | man -l -
  crossdock man --directory pages

The directory gets a page for each command, such as crossdock-serve.1, and the page
of the configuration, crossdock.toml.5.")]
    Man(Man),

    /// Prints the completion script of a shell
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
pub(crate) struct Tour {
    /// Go on from step to step without waiting for Enter
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The demonstration; without one, the command lists them
    pub(crate) scenario: Option<Scenario>,
    /// Print the results as JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Scenario {
    /// An airline's flights and weather, sent to its departments
    Airline,
    /// Flights in an old format, converted to a new version
    Morph,
    /// Prints the bundled flights as CSV, for examples
    Flights,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Configuration file; every key has a default
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// UDP address to receive on, instead of the configured one; port 0 selects a free port. unix:PATH and unix:@NAME
    /// set the attach socket instead
    #[arg(long, value_name = "HOST:PORT", env = "CROSSDOCK_ADDRESS", value_parser = parse_listen)]
    pub(crate) listen: Option<Listen>,
    /// Control socket, instead of the configured one
    #[arg(long, value_name = "PATH", env = "CROSSDOCK_SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
    /// Print a configuration file with every key, its default and its meaning, and exit
    #[arg(long)]
    pub(crate) print_config: bool,
}

/// Where a daemon is reached: what `--address` of the other commands names.
#[derive(Clone, Debug)]
pub(crate) enum Listen {
    /// The UDP address, to which an attach socket of its own belongs.
    Udp(SocketAddr),
    /// The attach socket; the UDP address is the configured one.
    Attach(AttachAddr),
}

/// Reads what `--address` takes: an attach socket, or a host and a port.
fn parse_listen(text: &str) -> Result<Listen, String> {
    if text.starts_with("unix:") {
        return text.parse().map(Listen::Attach);
    }
    let named = || text.to_socket_addrs().ok().and_then(|mut found| found.next());
    let address = text.parse::<SocketAddr>().or_else(|error| named().ok_or(error));
    address.map(Listen::Udp).map_err(|error| format!("{error}: give an address and a port, such as 127.0.0.1:7440"))
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Configuration file to compare with; without it, that of an installed package, else the defaults
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Directory to write all pages to; it is created if it does not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

/// How a change or a question is answered.
#[derive(Debug, Args)]
pub(crate) struct Answer {
    /// Print the answer as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) control: Control,
}

#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) control: Control,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_holds_together() {
        definition().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_that_parses() {
        let commands = definition();
        let nested = ["handler", "mailbox", "access", "explain"]
            .map(|name| commands.find_subcommand(name).unwrap().get_subcommands());
        for command in commands.get_subcommands().chain(nested.into_iter().flatten()) {
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
