//! `subscriptions`.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

use super::{Answer, List};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SubscriptionsArguments {
    #[command(subcommand)]
    pub(crate) command: Option<SubscriptionsCommand>,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SubscriptionsCommand {
    /// Gives a subscription another query while it runs, over the same stream
    #[command(after_help = "\
Examples:
  crossdock subscriptions set 3 \"SELECT * FROM A WHERE dest = 'LAX'\"
  crossdock subscriptions set 4 \"SELECT flight_id, gate FROM A SNAPSHOT THEN CHANGES WHERE dest = 'JFK'\"

Each record is seen by the query before or by this one. A query with SNAPSHOT THEN
CHANGES keeps its columns; the subscriber gets the difference as `enter` and `leave`.
If its connection is lost, the subscriber begins again with the query of its own.")]
    Set(SetSubscription),
}

#[derive(Debug, Args)]
pub(crate) struct SetSubscription {
    /// Its number, as `crossdock subscriptions` lists it
    #[arg(value_name = "ID")]
    pub(crate) id: u64,
    /// The query
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) sql: String,
    #[command(flatten)]
    pub(crate) answer: Answer,
}
