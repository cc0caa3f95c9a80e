//! `admission`: whether what a handler is estimated to take is what it takes at work, and whether what was let in is served when more
//! is offered than fits, and when more comes than was said.

mod handlers;
mod overload;
mod prediction;

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
const METRICS: [(&str, &str, &str, Option<&str>); 12] = [
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

/// What the rounds gave, by case and metric: ours, and the baseline's.
#[derive(Default)]
struct Table(BTreeMap<(&'static str, &'static str), (Samples, Samples)>);

impl Table {
    fn push(&mut self, case: &'static str, metric: &'static str, value: f64, baseline: Option<f64>) {
        let (ours, base) = self.0.entry((case, metric)).or_default();
        ours.push(value);
        base.0.extend(baseline);
    }
}

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
    let figures: Vec<Figure> = METRICS
        .iter()
        .filter_map(|(case, metric, unit, baseline)| {
            let (samples, base) = table.0.remove(&(*case, *metric))?;
            let baseline = baseline.map(|name| (name, base));
            Some(Figure { bench: "admission", case: (*case).to_owned(), metric, unit, samples, baseline })
        })
        .collect();
    report::print(&figures, options.json, &machine, Some(&words));
    Ok(())
}
