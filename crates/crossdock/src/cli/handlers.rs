//! `handler`, `handlers`, `plan`, `apply`, `events` and `top`: what runs on the platform, and how that is changed.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use crossdock_runtime::{OnFault, OverBudget, WhenFull};

use super::{Control, List};
use crate::quantity::{Reserve, parse_budget, parse_peak, parse_reserve};

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
  crossdock handler deploy late 'SELECT * FROM A' --as late_flights --place g-core-0 --peak 100k
  crossdock handler deploy counted --native tally --on A --param key=carrier --dry-run
  crossdock handler deploy late 'SELECT * FROM A WHERE dep_delay > $m' --param m=15 --degrade m=60
  crossdock handler deploy late 'SELECT * FROM A' --reserve '50ms/s, 64 buffers' --reserve-path 2M

It is let in where it fits: its cost is measured on the latest records of its
stream, and taken times the most records a second that were seen or that --peak
says. If no context has room the answer has the figures, and nothing changes.")]
    Deploy(HandlerArguments),
    /// Replaces a handler by its next version while records flow; what is not said stays as it is
    #[command(after_help = "\
Examples:
  crossdock handler swap late 'SELECT * FROM A WHERE dep_delay > $minutes + 5'
  crossdock handler swap late --budget 20us --may-sample 8
  crossdock handler swap totals 'SELECT * FROM A' --discard-state --dry-run

No record is lost, doubled or reordered. State that the next version cannot take
is not given up unless --discard-state says so.")]
    Swap(HandlerArguments),
    /// Sets parameters of a handler; nothing is built anew
    #[command(after_help = "\
Examples:
  crossdock handler set late minutes=30
  crossdock handler set late minutes=30 carrier=UA")]
    Set(SetHandler),
    /// Moves a handler to a context, with its state; to where it fits best if none is named
    #[command(after_help = "\
Examples:
  crossdock handler move late g-core-0
  crossdock handler move late")]
    Move(MoveHandler),
    /// Takes a handler out; its derived stream ends
    #[command(after_help = "\
Example:
  crossdock handler remove late")]
    Remove(RemoveHandler),
    /// Lists the handlers that are built in, with their parameters
    #[command(after_help = "\
Example:
  crossdock handler natives")]
    Natives,
}

/// What is wanted of a handler.
#[derive(Debug, Args)]
pub(crate) struct HandlerArguments {
    /// Its name
    pub(crate) name: String,
    /// Its query; $NAME stands for a parameter
    #[arg(value_name = "SQL")]
    pub(crate) sql: Option<String>,
    /// The built-in handler that it is, instead of a query; `crossdock handler natives` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "sql")]
    pub(crate) native: Option<String>,
    /// A stream that it reads; may be given several times. Of a query, FROM says it
    #[arg(long, value_name = "STREAM")]
    pub(crate) on: Vec<String>,
    /// The stream that it makes [default: the handler's name]
    #[arg(long = "as", value_name = "STREAM")]
    pub(crate) makes: Option<String>,
    /// A parameter's value; may be given several times
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_parameter)]
    pub(crate) parameters: Vec<(String, String)>,
    /// The context where it runs [default: where it fits best]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) place: Option<String>,
    /// The most records a second that come, such as 2.5k or 1M [default: the most that was seen in 100 ms]
    #[arg(long, value_name = "N", value_parser = parse_peak)]
    pub(crate) peak: Option<u64>,
    /// What is kept for it: time of a core, buffers, bandwidth, such as 50ms/s or '50ms/s, 64 buffers, 12MB/s'
    #[arg(long, value_name = "WHAT", value_parser = parse_reserve)]
    pub(crate) reserve: Option<Reserve>,
    /// Records a second that the path to it is to bear where it begins: of each handler on it that is kept which it then takes
    #[arg(long, value_name = "N", value_parser = parse_peak)]
    pub(crate) reserve_path: Option<u64>,
    /// How many batches it may take in its turn, where several handlers have something to do
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) weight: Option<u32>,
    /// What happens when its queue is full: block the publishers (nothing is lost), or drop records and count them
    /// [default: block]
    #[arg(long, value_name = "WHAT", value_parser = words([("block", WhenFull::Block), ("drop", WhenFull::Drop)]))]
    pub(crate) when_full: Option<WhenFull>,
    /// A parameter's value while its core is near its limit, before any record is left out; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_parameter)]
    pub(crate) degrade: Vec<(String, String)>,
    /// When its core nears its limit, or batches wait too long for a c-core, at least one record in N is let through
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) may_sample: Option<u32>,
    /// The longest time for a record, such as 5us [default: ten times what was measured]
    #[arg(long, value_name = "TIME", value_parser = parse_budget)]
    pub(crate) budget: Option<u64>,
    /// What happens when it goes over its budget again and again: move it to a g-core, if it has no --place, or stop it [default: move]
    #[arg(long, value_name = "WHAT", value_parser = words([("move", OverBudget::Move), ("stop", OverBudget::Stop)]))]
    pub(crate) over_budget: Option<OverBudget>,
    /// What happens when it panics or does not return: restart it with new state, or stop it [default: restart]
    #[arg(long, value_name = "WHAT", value_parser = words([("restart", OnFault::Restart), ("stop", OnFault::Stop)]))]
    pub(crate) on_fault: Option<OnFault>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// How a change is made.
#[derive(Debug, Args)]
pub(crate) struct How {
    /// Show what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Change it also where state is lost, since the next version cannot take it
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
    /// Parameters and their values; those that are not named stay
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = parse_parameter)]
    pub(crate) parameters: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, Args)]
pub(crate) struct MoveHandler {
    /// The handler's name
    pub(crate) name: String,
    /// The context; `crossdock contexts` lists them
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
    /// One handler, to show all that is known of it
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) list: List,
}

/// `crossdock plan` and `crossdock apply`.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// A configuration file, of which the handlers' sections count
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Leave handlers alone that have no section, instead of taking them out
    #[arg(long)]
    pub(crate) keep: bool,
    /// Change it also where state is lost, since a next version cannot take it
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
    /// Go on with what happens from now on, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only events after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) after: u64,
    #[command(flatten)]
    pub(crate) list: List,
}

/// `crossdock top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Print one screen as text and exit; 80 columns, or as many as COLUMNS says
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) control: Control,
}

fn parse_parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            // As it is written in a query.
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
