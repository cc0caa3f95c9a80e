//! `contexts`: the daemon's I/O contexts: clients spread over several of them against the same clients at one, and subscriptions
//! made and ended beside traffic.

mod churn;
mod spread;

use crate::cpu::{self, Error};
use crate::report::{self, Declared, Table};
use clap::{Args, Subcommand};

/// How the benchmark is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Rounds; each runs every case
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Only this case
    #[arg(long)]
    case: Option<String>,
    /// Millions of records that each publisher of the other cases sends
    #[arg(long, default_value_t = 8)]
    millions: u64,
    /// Subscriptions that `churn` makes and ends in a second
    #[arg(long, default_value_t = 1000)]
    churn_per_s: u64,
    /// How long `churn` takes latencies in a round, with subscriptions made and ended and without, in ms
    #[arg(long, default_value_t = 4000)]
    latency_ms: u64,
}

/// A process of the benchmark.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// Makes and ends subscriptions whenever it is given a line
    Churn { addr: String, stream: String, per_s: u64, run_ms: u64 },
    /// Publishes flights from a session at a certain context
    Publish { addr: String, stream: String, count: u64 },
    /// Counts a stream's records in a session at a certain context
    Subscribe { addr: String, stream: String },
}

impl Role {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self {
            Role::Churn { addr, stream, per_s, run_ms } => churn::serve(&addr, &stream, per_s, run_ms),
            Role::Publish { addr, stream, count } => spread::publish(&addr, &stream, count),
            Role::Subscribe { addr, stream } => spread::subscribe(&addr, &stream),
        }
    }
}

/// Runs a case once, and adds its figures.
type Case = fn(&Options, &mut Table) -> Result<(), Error>;

/// The cases of a round, in this order: the case, the cores that it needs, and how it is run.
const CASES: [(&str, usize, Case); 4] = [
    ("two_io", 1, spread::two_io),
    ("crossing", 1, spread::crossing),
    // Four contexts, four publishers and four subscribers: where they share cores, nothing is gained by more contexts.
    ("four_io", 16, spread::four_io),
    ("churn", 1, churn::round),
];

/// The figures, by case and metric.
const METRICS: [Declared; 12] = [
    ("two_io", "msgs_per_daemon_cpu_s", "1/s", Some("one_io")),
    ("two_io", "msgs_per_s", "1/s", Some("one_io")),
    ("crossing", "msgs_per_daemon_cpu_s", "1/s", Some("one_io")),
    ("crossing", "msgs_per_s", "1/s", Some("one_io")),
    ("four_io", "msgs_per_s", "1/s", Some("one_io")),
    ("four_io", "msgs_per_daemon_cpu_s", "1/s", Some("one_io")),
    ("churn", "request_to_effect_ms_p99", "ms", None),
    ("churn", "request_to_effect_ms_p50", "ms", None),
    ("churn", "subscriptions_per_s", "1/s", None),
    ("churn", "others_p99_ratio", "", Some("churn_at_another_daemon")),
    ("churn", "others_latency_us_p99", "us", Some("no_churn")),
    ("churn", "others_latency_us_p50", "us", Some("no_churn")),
];

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let wanted = |name: &str| options.case.as_deref().is_none_or(|only| only == name);
    if !CASES.iter().any(|(name, ..)| wanted(name)) {
        let names: Vec<&str> = CASES.iter().map(|(name, ..)| *name).collect();
        return Err(format!("`--case`: there is none of that name; the cases are {}", names.join(", ")).into());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (cases, too_large): (Vec<_>, Vec<_>) =
        CASES.iter().filter(|(name, ..)| wanted(name)).partition(|(_, needed, _)| *needed <= cores);
    for (name, needed, _) in too_large {
        eprintln!("{name} is left out: it needs {needed} cores, and there are {cores}");
    }
    let machine = cpu::machine();
    let words = "daemon, publisher and subscribers are processes and threads wherever the system puts them";
    eprintln!("{machine}\n{words}");
    let mut table = Table::default();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for (_, _, case) in &cases {
            case(options, &mut table)?;
        }
    }
    report::print(&table.figures("contexts", &METRICS), options.json, &machine, Some(words));
    Ok(())
}
