//! `handler`, `handlers`, `plan`, `apply`, `events` and `top`: the handlers on the platform, and changes to them.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use crossdock_runtime::{OnFault, OnRowError, OverBudget, WhenFull};

use super::{Control, List};
use crate::quantity::{Reserve, parse_budget, parse_peak, parse_reserve, parse_stuck_after};

/// `crossdock handler`.
#[derive(Debug, Args)]
pub(crate) struct Handler {
    #[command(subcommand)]
    pub(crate) command: HandlerCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HandlerCommand {
    /// Deploys a new handler: a query, or a built-in one
    #[command(after_help = "\
Examples:
  crossdock handler deploy late 'SELECT carrier, flight FROM A WHERE dep_delay > $minutes' --param minutes=15
  crossdock handler deploy late 'SELECT * FROM A' --output-stream late_flights --place g-core-0 --peak 100k
  crossdock handler deploy counted --native tally --input-stream A --param key=carrier --dry-run
  crossdock handler deploy late 'SELECT * FROM A WHERE dep_delay > $m' --param m=15 --overload-param m=60
  crossdock handler deploy late 'SELECT * FROM A' --reserve '50ms/s, 64 buffers' --reserve-path-rate 2M
  crossdock handler deploy clean 'SELECT * FROM A WHERE dep_delay IS NOT NULL' --replicas

A context admits the handler if it has enough headroom. The daemon measures the
handler's cost on the latest records of its stream, and multiplies it by the peak
rate: --peak, or else the highest rate seen. If no context has enough headroom, the
answer gives the figures, and nothing changes.")]
    Deploy(HandlerArguments),
    /// Replaces a handler by its next version while records flow; settings that are not given stay unchanged
    #[command(after_help = "\
Examples:
  crossdock handler swap late 'SELECT * FROM A WHERE dep_delay > $minutes + 5'
  crossdock handler swap late --budget 20us --max-sampling 8
  crossdock handler swap late --replicas
  crossdock handler swap totals 'SELECT * FROM A' --discard-state --dry-run

No record is lost, duplicated or reordered. If the next version cannot take over
the handler's state, the swap is refused unless --discard-state is given.")]
    Swap(HandlerArguments),
    /// Sets parameters of a running handler, without recompiling it
    #[command(after_help = "\
Examples:
  crossdock handler set late minutes=30
  crossdock handler set late minutes=30 carrier=UA")]
    Set(SetHandler),
    /// Moves a handler and its state to a context; without a name, to the context where it fits best
    #[command(after_help = "\
Examples:
  crossdock handler move late g-core-0
  crossdock handler move late")]
    Move(MoveHandler),
    /// Removes a handler; its derived stream ends
    #[command(after_help = "\
Example:
  crossdock handler remove late")]
    Remove(RemoveHandler),
    /// Lists the built-in handlers and their parameters
    #[command(after_help = "\
Example:
  crossdock handler builtins
  crossdock handler builtins --json | jq -r .name")]
    Builtins(Builtins),
}

/// `crossdock handler builtins`.
#[derive(Debug, Args)]
pub(crate) struct Builtins {
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The specification of a handler.
#[derive(Debug, Args)]
pub(crate) struct HandlerArguments {
    /// The handler's name
    pub(crate) name: String,
    /// The handler's query, in SQL; $NAME is a parameter
    #[arg(value_name = "SQL")]
    pub(crate) sql: Option<String>,
    /// Run this built-in handler instead of a query; `crossdock handler builtins` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "sql")]
    pub(crate) native: Option<String>,
    /// Input stream of the handler; may be given several times. A query names its input stream in FROM
    #[arg(long = "input-stream", value_name = "STREAM")]
    pub(crate) input_streams: Vec<String>,
    /// Name of the derived stream that the handler produces [default: the handler's name]
    #[arg(long, value_name = "STREAM")]
    pub(crate) output_stream: Option<String>,
    /// Value of a parameter; may be given several times
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_parameter)]
    pub(crate) parameters: Vec<(String, String)>,
    /// Context to run the handler on [default: the context where it fits best]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) place: Option<String>,
    /// Run the handler at every I/O context, each replica on what is published there; only for handlers that keep no state.
    /// `--replicas=false` makes it one handler again
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) replicas: Option<bool>,
    /// Highest rate of incoming records, per second, such as 2.5k or 1M [default: the highest rate within
    /// 100 ms of the last minute]
    #[arg(long, value_name = "N", value_parser = parse_peak)]
    pub(crate) peak: Option<u64>,
    /// Core time, buffers and bandwidth reserved for the handler, such as 50ms/s or '50ms/s, 64 buffers, 12MB/s'
    #[arg(long, value_name = "RESOURCES", value_parser = parse_reserve)]
    pub(crate) reserve: Option<Reserve>,
    /// Reserve capacity in every handler of the service path that ends here, for N records per second at the path's
    /// beginning, such as 2.5k or 1M
    #[arg(long, value_name = "N", value_parser = parse_peak)]
    pub(crate) reserve_path_rate: Option<u64>,
    /// Batches that the handler may process in one turn while other handlers of its context wait [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) weight: Option<u32>,
    /// Action when the handler's input queue is full: block the publishers (no record is lost), or drop records
    /// and count them [default: block]
    #[arg(long, value_name = "POLICY", value_parser = words([("block", WhenFull::Block), ("drop", WhenFull::Drop)]))]
    pub(crate) when_full: Option<WhenFull>,
    /// Value of a parameter while the handler's core is overloaded; may be given several times. It applies before any
    /// record is left out
    #[arg(long = "overload-param", value_name = "NAME=VALUE", value_parser = parse_parameter)]
    pub(crate) overload_parameters: Vec<(String, String)>,
    /// Allow sampling while batches wait too long for the handler's core: at least one record in N is processed
    /// [default: 1, no sampling]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_sampling: Option<u32>,
    /// Most processor time per record, such as 5us [default: ten times the measured time]
    #[arg(long, value_name = "TIME", value_parser = parse_budget)]
    pub(crate) budget: Option<u64>,
    /// Time that the handler may work on a g-core without going on to its next record, such as 10s; then it is abandoned
    /// with its batch [default: 1s, or `stuck_after_ms` under `[platform]` of the daemon's configuration]
    #[arg(long, value_name = "TIME", value_parser = parse_stuck_after)]
    pub(crate) stuck_after: Option<u64>,
    /// Action when the handler repeatedly exceeds its budget: move it to a g-core, or stop it; if no g-core
    /// has room, or with --place, it stays and gets no more time than its budget allows [default: move]
    #[arg(long, value_name = "POLICY", value_parser = words([("move", OverBudget::Move), ("stop", OverBudget::Stop)]))]
    pub(crate) over_budget: Option<OverBudget>,
    /// Action when the handler panics or does not return: restart it with new state, or stop it
    /// [default: restart]
    #[arg(long, value_name = "POLICY", value_parser = words([("restart", OnFault::Restart), ("stop", OnFault::Stop)]))]
    pub(crate) on_fault: Option<OnFault>,
    /// Action of the query for a record that it cannot compute, such as a division by zero: skip and count it, or
    /// make the expression null [default: skip]
    #[arg(long, value_name = "POLICY", value_parser = words([("skip", OnRowError::Skip), ("null", OnRowError::Null)]))]
    pub(crate) on_row_error: Option<OnRowError>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Options of every change.
#[derive(Debug, Args)]
pub(crate) struct How {
    /// Show what would change, without changing it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Discard the handler's state if the next version cannot take it over
    #[arg(long)]
    pub(crate) discard_state: bool,
    /// Print the answer as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) control: Control,
}

#[derive(Debug, Args)]
pub(crate) struct SetHandler {
    /// The handler's name
    pub(crate) name: String,
    /// Parameters and their values; parameters that are not named keep their values
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = parse_parameter)]
    pub(crate) parameters: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, Args)]
pub(crate) struct MoveHandler {
    /// The handler's name
    pub(crate) name: String,
    /// The new context; `crossdock contexts` lists them [default: the context where it fits best]
    #[arg(value_name = "CONTEXT")]
    pub(crate) place: Option<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveHandler {
    /// The handler's name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) how: How,
}

/// `crossdock handlers`.
#[derive(Debug, Args)]
pub(crate) struct Handlers {
    /// Show every detail of this handler
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) list: List,
}

/// `crossdock plan` and `crossdock apply`.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// Configuration file; only its handler sections are read
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Keep handlers that have no section, instead of removing them
    #[arg(long)]
    pub(crate) keep: bool,
    /// Discard a handler's state if its next version cannot take it over
    #[arg(long)]
    pub(crate) discard_state: bool,
    /// Print the answer as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) control: Control,
}

/// `crossdock events`.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Continue with new events until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Show only events with a number greater than N
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) after: u64,
    #[command(flatten)]
    pub(crate) list: List,
}

/// `crossdock top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Print one screen as text and exit; it is as wide as the terminal, or as $COLUMNS, or else as its text needs
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once, print the figures as a JSON object
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) control: Control,
}

fn parse_parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            // A query writes a parameter as `$name`.
            Ok((name.strip_prefix('$').unwrap_or(name).to_owned(), value.to_owned()))
        }
        _ => Err("a parameter is NAME=VALUE, such as minutes=15".to_owned()),
    }
}

/// One of a few words.
fn words<T: Copy + Send + Sync + 'static, const N: usize>(
    words: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = words.map(|(word, _)| word);
    PossibleValuesParser::new(names).try_map(move |found| {
        let known = words.iter().find(|(word, _)| *word == found);
        known.map(|(_, value)| *value).ok_or("no such word")
    })
}
