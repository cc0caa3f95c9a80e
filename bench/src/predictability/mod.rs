//! `predictability`: the airline job while the machine's other work is heavy: in the daemon's c-core, which runs each batch to
//! completion, against the same handlers in an ordinary program with a thread for each and channels between. Both are processes
//! that get flights as UDP packets over loopback and send what they make of them back the same way.

mod c_core;
mod noise;
mod threads;

use crate::cores::Cores;
use crate::cpu::{self, Error};
use crate::flights;
use crate::inside::Shared;
use crate::load;
use crate::process::{Process, end_with_parent};
use crate::report::{self, Declared, Table, quantile};
use clap::{Args, Subcommand};
use crossdock_format::Format;
use crossdock_runtime::rig::Entry;
use std::net::SocketAddr;
use std::time::Duration;

/// How the benchmark is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Rounds; each runs every case, its baseline beside it
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// How long latencies are taken in each run, in ms
    #[arg(long, default_value_t = 2000)]
    run_ms: u64,
    /// Threads of other work for each core
    #[arg(long, default_value_t = 3)]
    other: usize,
}

/// A process of the benchmark.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// The machine's other work
    Noise { threads: u64 },
    /// The ordinary program
    Threads { answers: SocketAddr },
}

impl Role {
    pub(crate) fn run(self) -> Result<(), Error> {
        end_with_parent()?;
        match self {
            Role::Noise { threads } => noise::run(threads),
            Role::Threads { answers } => threads::serve(answers),
        }
    }
}

/// Records of a batch, one packet of loopback, and the time between two: 52,000 records a second.
const RECORDS_A_BATCH: u64 = 26;
const BATCH_EVERY_US: u64 = 500;
/// How long a run goes on before its latencies are taken.
const SETTLE: Duration = Duration::from_millis(200);

/// The stream of flights.
const STREAM: &str = "flights";
/// The job's queries, each with the name of what it makes: flights that left or came late, what airlines need of them.
const JOB: [(&str, &str); 2] = [
    ("late", "SELECT * FROM flights WHERE dep_delay > 15 OR arr_delay > 15"),
    (
        "delays",
        "SELECT carrier, flight, origin, dest, dep_delay, arr_delay, distance * 2 AS there_and_back, sent FROM late",
    ),
];
/// The handler that follows them: how many each airline had; its name and key.
const TALLY: (&str, &str) = ("tallied", "carrier");

const METRICS: [(&str, f64); 3] = [("latency_us_p50", 0.5), ("latency_us_p99", 0.99), ("latency_us_p999", 0.999)];
const BASELINE: Option<&str> = Some("threads");
const CASES: [&str; 2] = ["c_core", "c_core_ordinary_priority"];

/// A handler, and the format that it makes.
struct JobHandler {
    entry: Entry,
    output: Format,
}

/// The job's handlers, made anew.
fn job() -> Result<Vec<JobHandler>, Error> {
    let mut input = flights::format()?;
    let mut steps = Vec::new();
    for (_, sql) in JOB {
        let (entry, output) = load::sql(sql, &input)?;
        input = output.clone();
        steps.push(JobHandler { entry, output });
    }
    let (entry, output) = load::native("tally", &[("key", TALLY.1)], &input)?;
    steps.push(JobHandler { entry, output });
    Ok(steps)
}

/// Publishes flights, sets up what takes them, and takes what comes of them; the latencies of `run_ms`, in ns.
fn measured(
    run_ms: u64,
    publish: impl FnOnce(&Shared) -> Result<(), Error> + Send,
    set_up: impl FnOnce() -> Result<(), Error>,
    subscribe: impl FnOnce(&Shared) -> Result<Vec<Vec<u64>>, Error> + Send,
) -> Result<Vec<u64>, Error> {
    let shared = Shared::new(RECORDS_A_BATCH, BATCH_EVERY_US);
    let words = |error: Error| error.to_string();
    let mut runs = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| publish(&shared).map_err(words));
        std::thread::sleep(SETTLE);
        let subscriber = set_up().map_err(words).map(|()| scope.spawn(|| subscribe(&shared).map_err(words)));
        if subscriber.is_ok() {
            std::thread::sleep(SETTLE);
            shared.time(true);
            std::thread::sleep(Duration::from_millis(run_ms));
            shared.time(false);
            std::thread::sleep(SETTLE);
        }
        shared.end();
        let published = publisher.join().map_err(|_| "the publisher panicked".to_owned()).and_then(|done| done);
        let runs = subscriber?.join().map_err(|_| "the subscriber panicked".to_owned()).and_then(|runs| runs);
        published.and(runs)
    })?;
    match (runs.pop(), runs.is_empty()) {
        (Some(run), true) => Ok(run),
        _ => Err("nothing came while latencies were taken".into()),
    }
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let machine = cpu::machine();
    let cores = Cores::choose(None, None)?;
    let others = options.other * std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let words = format!(
        "the daemon's c-core on CPU {}, publisher and subscriber of both sides on CPU {}; the ordinary program's threads and {others} \
         threads of other work wherever the system puts them; all at the same priority, except the c-core of case c_core",
        cores.daemon, cores.client
    );
    eprintln!("{machine}\n{words}");
    let mut noise = Process::role(&["predictability", "noise", &others.to_string()].map(str::to_owned))?;
    noise.next_report()?;
    let mut table = Table::default();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        let mut baseline = threads::run(cores, options.run_ms)?;
        for (case, goes_first) in CASES.into_iter().zip([true, false]) {
            let mut latencies = c_core::run(cores, goes_first, options.run_ms)?;
            for (metric, part) in METRICS {
                let [ours, base] = [&mut latencies, &mut baseline].map(|run| quantile(run, part) as f64 / 1e3);
                table.push(case, metric, ours, Some(base));
            }
        }
    }
    drop(noise);
    let declared: Vec<Declared> =
        CASES.iter().flat_map(|case| METRICS.map(|(metric, _)| (*case, metric, "us", BASELINE))).collect();
    report::print(&table.figures("predictability", &declared), options.json, &machine, Some(&words));
    Ok(())
}
