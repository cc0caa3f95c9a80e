//! `swap`: handlers replaced while messages flow. The gap that a swap leaves between two messages, against stopping the
//! handler, compiling the next one where it runs, and starting it (what is done where there is no standby); whether every
//! message comes through, once and in order; and what a request to the managers takes, and what subscribers notice of it.

mod daemon;
mod gap;

use crate::cores::Cores;
use crate::cpu::{self, Error};
use crate::report::{self, Figure, Samples};
use clap::Args;
use std::collections::BTreeMap;

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

/// The figures of the case, with their units and baselines.
const METRICS: [(&str, &str, Option<&str>); 13] = [
    ("added_gap_ns_p99", "ns", Some("stop_load_start")),
    ("added_gap_ns_p50", "ns", Some("stop_load_start")),
    ("gap_ns_p99", "ns", Some("no_swap")),
    ("lost", "", None),
    ("duplicated", "", None),
    ("reordered", "", None),
    ("state_lost", "", None),
    ("swaps", "", None),
    ("request_to_effect_ms_p50", "ms", None),
    ("request_to_effect_ms_p99", "ms", None),
    ("subscriber_latency_us_p50", "us", Some("no_swaps")),
    ("subscriber_latency_us_p99", "us", Some("no_swaps")),
    ("subscriber_latency_us_p999", "us", Some("no_swaps")),
];

/// What the rounds gave, by metric: ours, and the baseline's.
#[derive(Default)]
struct Table(BTreeMap<&'static str, (Samples, Samples)>);

impl Table {
    fn push(&mut self, metric: &'static str, value: f64, baseline: Option<f64>) {
        let (ours, base) = self.0.entry(metric).or_default();
        ours.push(value);
        base.0.extend(baseline);
    }
}

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
    let figures: Vec<Figure> = METRICS
        .iter()
        .filter_map(|(metric, unit, baseline)| {
            let (samples, base) = table.0.remove(metric)?;
            let baseline = baseline.map(|name| (name, base));
            Some(Figure { bench: "swap", case: "hot_swap".to_owned(), metric, unit, samples, baseline })
        })
        .collect();
    report::print(&figures, options.json, &machine, Some(&cores));
    Ok(())
}
