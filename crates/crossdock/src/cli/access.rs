//! `crossdock access`.

use clap::{Args, Subcommand};

use super::{Answer, List};

/// `crossdock access`.
#[derive(Debug, Args)]
pub(crate) struct AccessCommand {
    #[command(subcommand)]
    pub(crate) command: AccessQuestion,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccessQuestion {
    /// Lists the access rules in force
    #[command(after_help = "\
Examples:
  crossdock access list
  crossdock access list --json | jq 'select(.administration != \"none\") | .identity'")]
    List(List),
    /// Says whether an identity may do something, and by which rule; nothing is done
    #[command(after_help = "\
Examples:
  crossdock access check desk 'SELECT * FROM A'
  crossdock access check uid:1000 --publish A
  crossdock access check everybody --mailbox orders
  crossdock access check desk --route west,middle,east

Of a query it shows the one that would run, with the rows and fields of the rule.
Of a source route it answers for the part of the daemon that is asked: the right to
send to the next node is the client's at the first node, and else the one of the
node before, which is then shown.

Exit status: 0 if it is allowed, 1 if it is refused.")]
    Check(AccessCheck),
}

#[derive(Debug, Args)]
pub(crate) struct AccessCheck {
    /// The identity: the name of a key or the key itself, uid:NUMBER, token:NAME or everybody
    pub(crate) identity: String,
    /// A query that it would subscribe to
    #[arg(
        value_name = "SQL",
        required_unless_present_any = ["publish", "mailbox", "route"],
        conflicts_with_all = ["publish", "mailbox", "route"]
    )]
    pub(crate) sql: Option<String>,
    /// A stream that it would publish
    #[arg(long, value_name = "STREAM", conflicts_with_all = ["mailbox", "route"])]
    pub(crate) publish: Option<String>,
    /// A mailbox that it would use
    #[arg(long, value_name = "NAME", conflicts_with = "route")]
    pub(crate) mailbox: Option<String>,
    /// The nodes that its packets would take, from the first to the last, such as west,middle,east; the daemon's own is among them
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    pub(crate) route: Vec<String>,
    #[command(flatten)]
    pub(crate) answer: Answer,
}
