//! Crossdock's own benchmarks and their baselines: `cargo xtask bench NAME [--json]`.
//!
//! A benchmark starts the processes that it measures (the daemon, publishers, subscribers, the baseline's relay), runs
//! baseline and Crossdock in turn, several rounds, and prints the median of each figure: one JSON object a line with
//! `--json`, else a table.

#![forbid(unsafe_code)]

mod broker;
mod chain;
mod cores;
mod cpu;
mod daemon;
mod flights;
mod formats;
mod load;
mod mailbox;
mod process;
mod report;

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
    /// Publisher, daemon and subscriber as three processes over loopback, against a relay of single datagrams
    Broker(broker::Options),
    /// Handlers one behind the other: what a stage costs, within a context and across contexts
    Chain(chain::Options),
    /// Records read, written and converted, against what else does that
    Formats(formats::Options),
    /// Mailboxes between a client process on one core and the daemon on another, against what else moves messages there
    Mailbox(mailbox::Options),
    /// A process of a benchmark; started by it
    #[command(hide = true, subcommand)]
    Role(Role),
}

#[derive(Subcommand)]
enum Role {
    #[command(flatten)]
    Broker(broker::roles::Role),
    #[command(subcommand)]
    Mailbox(mailbox::Role),
}

fn main() -> ExitCode {
    let result = match Cli::parse().bench {
        Bench::Broker(options) => broker::run(&options),
        Bench::Chain(options) => chain::run(&options),
        Bench::Formats(options) => formats::run(&options),
        Bench::Mailbox(options) => mailbox::run(&options),
        Bench::Role(Role::Broker(role)) => role.run(),
        Bench::Role(Role::Mailbox(role)) => role.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
