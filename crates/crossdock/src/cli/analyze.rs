//! `explain` and `explain analyze`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::Control;
use super::mailbox::Link;
use crate::quantity::parse_duration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Explain {
    #[command(subcommand)]
    pub(crate) command: Option<ExplainCommand>,
    /// The query: SELECT … FROM stream WHERE …
    #[arg(value_name = "SQL", required = true)]
    pub(crate) sql: Option<String>,
    /// Formats that the subscriber would accept, comma-separated, as for `subscribe --accept`
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    pub(crate) accept: Vec<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) control: Control,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExplainCommand {
    /// Runs a query for a while, or looks at one that runs, and shows what each step of it does
    #[command(after_help = "\
Examples:
  crossdock explain analyze \"SELECT carrier, flight FROM A WHERE dest = 'LAX'\"
  crossdock explain analyze 'SELECT dest, COUNT(*) AS n FROM A GROUP BY dest' --for 30s
  crossdock explain analyze --subscription 3
  crossdock explain analyze --handler late --json

The output is a tree: the session or handler first, and below each step its input.
Counts are since the subscription or handler began. The time of a node includes
that of the steps below it, up to the next node: steps of one node run together. A
query that is given here is a subscription of this command, which takes its records
and drops them; it is removed at the end.")]
    Analyze(Analyze),
}

#[derive(Debug, Args)]
pub(crate) struct Analyze {
    /// The query: it is run for this, and its records are counted and dropped
    #[arg(value_name = "SQL", required_unless_present_any = ["subscription", "handler"])]
    pub(crate) sql: Option<String>,
    /// A subscription that runs, by its number in `crossdock subscriptions`
    #[arg(long, value_name = "N", conflicts_with = "sql")]
    pub(crate) subscription: Option<u64>,
    /// A handler that runs, by its name in `crossdock handlers`
    #[arg(long, value_name = "NAME", conflicts_with_all = ["sql", "subscription"])]
    pub(crate) handler: Option<String>,
    /// How long the query runs, such as 30s, and for how long the share of a core is measured [default: 5s for a query, else 1s]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon: Link,
    #[command(flatten)]
    pub(crate) control: Control,
}
