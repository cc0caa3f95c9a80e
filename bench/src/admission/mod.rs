//! `admission`: whether what a handler is estimated to take is what it takes at work, and whether what was let in is served when more
//! is offered than fits, and when more comes than was said.

mod handlers;
mod overload;
mod prediction;

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
    /// Rounds; each runs everything, with other handlers
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Handlers that are generated
    #[arg(long, default_value_t = 50)]
    handlers: u32,
    /// How long each is measured, in ms; others on the same host may make the same work take half as long again for a second
    #[arg(long, default_value_t = 3000)]
    measure_ms: u64,
    /// How often more is asked for than fits, in each round
    #[arg(long, default_value_t = 5)]
    overloads: u32,
    /// How long latencies are taken, unloaded, loaded and in a surge, in ms
    #[arg(long, default_value_t = 3000)]
    latency_ms: u64,
}

/// The figures, by case and metric.
const METRICS: [Declared; 12] = [
    ("prediction_error", "relative_error_p90", "", None),
    ("prediction_error", "relative_error_p50", "", None),
    ("prediction_error", "relative_error_p90_alone", "", None),
    ("prediction_error", "relative_error_p90_sharing", "", None),
    ("overload", "admitted_share", "", None),
    ("overload", "admitted_lost", "", None),
    ("overload", "admitted_sampled", "", None),
    ("overload", "refused", "", None),
    ("overload", "p99_ratio", "", None),
    ("overload", "latency_us_p99", "us", Some("unloaded")),
    ("overload", "surge_latency_us_p99", "us", Some("unloaded")),
    ("overload", "offered_share", "", None),
];

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let machine = cpu::machine();
    let cores = Cores::choose(None, None)?;
    let words = format!("{}; handlers on c-core-0, pinned and polled, the context that has the network", cores.words());
    eprintln!("{machine}\n{words}");
    let mut table = Table::default();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        prediction::round(&mut table, cores, u64::from(round), options.handlers, options.measure_ms)?;
        for _ in 0..options.overloads {
            overload::round(&mut table, cores, options.latency_ms)?;
        }
    }
    report::print(&table.figures("admission", &METRICS), options.json, &machine, Some(&words));
    Ok(())
}
