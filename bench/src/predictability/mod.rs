//! `predictability`: the airline job while the machine's other work is heavy: in a c-core, which looks for messages itself and
//! runs each to completion, against the same handlers in an ordinary program with a thread for each and channels between.

mod c_core;
mod noise;
mod threads;

use crate::cores::Cores;
use crate::cpu::{self, Error};
use crate::flights;
use crate::load::{self, Feed};
use crate::report::{self, Figure, Samples, quantile};
use clap::Args;
use crossdock_format::Format;
use crossdock_runtime::rig::Entry;
use std::time::{Duration, Instant};

/// How the benchmark is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Rounds; each runs every case, its baseline beside it
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// How long each run takes, in ms
    #[arg(long, default_value_t = 2000)]
    run_ms: u64,
    /// Threads of other work for each core
    #[arg(long, default_value_t = 3)]
    other: usize,
}

/// Records of a batch, one packet of loopback, and the time between two: 52,000 messages a second.
const AT_A_TIME: usize = 26;
const EVERY_NS: u64 = 500_000;

/// The job: flights that left late, what airlines need of them, and how many each airline had.
const JOB: [&str; 2] = [
    "SELECT * FROM flights WHERE dep_delay > 15 OR arr_delay > 15",
    "SELECT carrier, flight, origin, dest, dep_delay, arr_delay, distance * 2 AS there_and_back FROM flights",
];

/// A handler with the format that it reads.
struct Step {
    entry: Entry,
    output: Format,
}

/// The job's handlers, made anew.
fn job() -> Result<Vec<Step>, Error> {
    let mut input = flights::format()?;
    let mut steps = Vec::new();
    for sql in JOB {
        let (entry, output) = load::sql(sql, &input)?;
        input = output.clone();
        steps.push(Step { entry, output });
    }
    let (entry, output) = load::native("tally", &[("key", "carrier")], &input)?;
    steps.push(Step { entry, output });
    Ok(steps)
}

/// What is fed: the flights of some weeks.
fn feed() -> Result<Feed, Error> {
    let format = flights::format()?;
    let records = flights::records(&format, 400 * AT_A_TIME)?;
    Feed::new(&format, &records, flights::RECORD_BYTES, AT_A_TIME)
}

/// When a run began, and how long it takes; messages are due every so often, whether what was due before has come through.
#[derive(Clone, Copy)]
struct Schedule {
    start: Instant,
    batches: u64,
}

impl Schedule {
    fn begin(run_ms: u64) -> Schedule {
        // A moment for all threads to stand.
        let start = Instant::now() + Duration::from_millis(20);
        Schedule { start, batches: run_ms * 1_000_000 / EVERY_NS }
    }

    fn now_ns(&self) -> u64 {
        Instant::now().saturating_duration_since(self.start).as_nanos() as u64
    }

    /// When a batch is due, from the start.
    fn due_ns(batch: u64) -> u64 {
        batch * EVERY_NS
    }
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    const NAMES: [&str; 3] = ["c_core", "c_core_ordinary_priority", "threads"];
    const METRICS: [(&str, f64); 3] = [("latency_us_p50", 0.5), ("latency_us_p99", 0.99), ("latency_us_p999", 0.999)];
    let machine = cpu::machine();
    let cpu = Cores::choose(None, None).map_or(0, |cores| cores.client);
    let others = options.other * std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cores = format!(
        "the c-core, and who feeds the threads, on CPU {cpu}, before other work where it is allowed; threads and {others} threads \
         of other work wherever the system puts them"
    );
    eprintln!("{machine}\n{cores}");
    let mut samples = vec![[const { Samples(Vec::new()) }; METRICS.len()]; NAMES.len()];
    let noise = noise::Noise::start(others);
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for (at, samples) in samples.iter_mut().enumerate() {
            let mut latencies = match at {
                0 => c_core::run(cpu, true, options.run_ms)?,
                1 => c_core::run(cpu, false, options.run_ms)?,
                _ => threads::run(cpu, options.run_ms)?,
            };
            for ((_, part), samples) in METRICS.iter().zip(samples) {
                samples.push(quantile(&mut latencies, *part) as f64 / 1e3);
            }
        }
    }
    noise.stop();
    let mut figures = Vec::new();
    let [c_cores @ .., threads] = &samples[..] else { return Ok(()) };
    for (name, samples) in NAMES.iter().zip(c_cores) {
        for (((metric, _), samples), baseline) in METRICS.iter().zip(samples).zip(threads) {
            let baseline = Some(("threads", baseline.clone()));
            let case = (*name).to_owned();
            figures.push(Figure {
                bench: "predictability",
                case,
                metric,
                unit: "us",
                samples: samples.clone(),
                baseline,
            });
        }
    }
    report::print(&figures, options.json, &machine, Some(&cores));
    Ok(())
}
