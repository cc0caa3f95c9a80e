//! Crossdock's own benchmarks and their baselines: `cargo xtask bench NAME [--json]`.
//!
//! A benchmark starts the processes that it measures (the daemon, publishers, subscribers, the baseline's relay), runs
//! baseline and Crossdock in turn, several rounds, and prints the median of each figure: one JSON object a line with
//! `--json`, else a table.

#![forbid(unsafe_code)]

mod admission;
mod broker;
mod chain;
mod contexts;
mod cores;
mod cpu;
mod daemon;
mod flights;
mod formats;
mod inside;
mod load;
mod mailbox;
mod predictability;
mod process;
mod query;
mod report;
mod swap;
mod transport;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "crossdock-bench", about = "Crossdock's benchmarks and their baselines")]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The predicted costs of handlers, and what becomes of those that were let in when more comes than fits
    Admission(admission::Options),
    /// Publisher, daemon and subscriber as three processes over loopback, against a relay of single datagrams
    Broker(broker::Options),
    /// Handlers one behind the other: what a stage costs, within a context and across contexts
    Chain(chain::Options),
    /// Clients spread over several I/O contexts against one, and subscriptions made and ended beside traffic
    Contexts(contexts::Options),
    /// Records read, written and converted, against what else does that
    Formats(formats::Options),
    /// Flights joined with the weather of their airports through the daemon, against DuckDB
    Join(query::Options),
    /// Mailboxes between a client process on one core and the daemon on another, against what else moves messages there
    Mailbox(mailbox::Options),
    /// The airline job's latency while the machine has other work, against an ordinary threaded program
    Predictability(predictability::Options),
    /// Queries over the events of Nexmark and windows through the daemon, against DuckDB; and subscribers that are slow
    Query(query::Options),
    /// Handlers replaced while messages flow, against a handler that is stopped meanwhile
    Swap(swap::Options),
    /// Sessions between two processes without a daemon, against plain sockets; and what many sessions cost a daemon
    Transport(transport::Options),
    /// A process of a benchmark; started by it
    #[command(hide = true, subcommand)]
    Role(Role),
}

#[derive(Subcommand)]
enum Role {
    #[command(flatten)]
    Broker(broker::roles::Role),
    #[command(subcommand)]
    Contexts(contexts::Role),
    #[command(subcommand)]
    Mailbox(mailbox::Role),
    #[command(subcommand)]
    Predictability(predictability::Role),
    #[command(subcommand)]
    Query(query::Role),
    #[command(subcommand)]
    Transport(transport::Role),
}

fn main() -> ExitCode {
    let result = match Cli::parse().bench {
        Bench::Admission(options) => admission::run(&options),
        Bench::Broker(options) => broker::run(&options),
        Bench::Chain(options) => chain::run(&options),
        Bench::Contexts(options) => contexts::run(&options),
        Bench::Formats(options) => formats::run(&options),
        Bench::Join(options) => query::run_join(&options),
        Bench::Mailbox(options) => mailbox::run(&options),
        Bench::Predictability(options) => predictability::run(&options),
        Bench::Query(options) => query::run(&options),
        Bench::Swap(options) => swap::run(&options),
        Bench::Transport(options) => transport::run(&options),
        Bench::Role(Role::Broker(role)) => role.run(),
        Bench::Role(Role::Contexts(role)) => role.run(),
        Bench::Role(Role::Mailbox(role)) => role.run(),
        Bench::Role(Role::Predictability(role)) => role.run(),
        Bench::Role(Role::Query(role)) => role.run(),
        Bench::Role(Role::Transport(role)) => role.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
