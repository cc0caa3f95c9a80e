//! `swap`: handlers replaced while messages flow. The gap that a swap leaves between two messages, against stopping the
//! handler, compiling the next one where it runs, and starting it (what is done where there is no planner); whether every
//! message comes through, once and in order; and what a request to the managers takes, and what subscribers notice of it.

mod daemon;
mod gap;

use crate::cores::Cores;
use crate::cpu::{self, Error};
use crate::report::{self, Declared, Table};
use clap::Args;

/// How the benchmark is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Rounds; each runs everything
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Swaps of a round
    #[arg(long, default_value_t = 10_000)]
    swaps: u32,
    /// Stops, compilations and starts of a round
    #[arg(long, default_value_t = 1000)]
    stops: u32,
    /// Requests to the managers in a round
    #[arg(long, default_value_t = 200)]
    requests: u32,
    /// How long the subscriber's latency is taken in a round, with swaps and without, in ms
    #[arg(long, default_value_t = 16_000)]
    latency_ms: u64,
}

/// The one case.
const CASE: &str = "hot_swap";

/// Its figures.
const METRICS: [Declared; 13] = [
    (CASE, "added_gap_ns_p99", "ns", Some("stop_load_start")),
    (CASE, "added_gap_ns_p50", "ns", Some("stop_load_start")),
    (CASE, "gap_ns_p99", "ns", Some("no_swap")),
    (CASE, "lost", "", None),
    (CASE, "duplicated", "", None),
    (CASE, "reordered", "", None),
    (CASE, "state_lost", "", None),
    (CASE, "swaps", "", None),
    (CASE, "request_to_effect_ms_p50", "ms", None),
    (CASE, "request_to_effect_ms_p99", "ms", None),
    (CASE, "subscriber_latency_us_p50", "us", Some("no_swaps")),
    (CASE, "subscriber_latency_us_p99", "us", Some("no_swaps")),
    (CASE, "subscriber_latency_us_p999", "us", Some("no_swaps")),
];

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let machine = cpu::machine();
    let cpus = Cores::choose(None, None)?;
    let cores = format!(
        "the gap: the context on CPU {}, the swaps prepared on CPU {}, {}; the rest: all threads wherever the system puts them",
        cpus.client,
        cpus.daemon,
        cpus.relation(),
    );
    eprintln!("{machine}\n{cores}");
    let mut table = Table::default();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        gap::round(&mut table, cpus, options.swaps, options.stops)?;
        daemon::round(&mut table, options.requests, options.latency_ms)?;
    }
    report::print(&table.figures("swap", &METRICS), options.json, &machine, Some(&cores));
    Ok(())
}
