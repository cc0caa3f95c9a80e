//! `mailbox`: messages between a client process on one core and the daemon's context on another, against the floor (an
//! atomic bounced between the same cores, in turn with the case), a Unix stream, iceoryx2, and the same job over UDP. A ratio is the
//! middle one of the rounds' ratios.

mod baselines;
mod client;
mod crossdock;
mod floor;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
mod measure;
mod role;
mod unix;

pub(crate) use role::Role;

use crate::cores::Cores;
use crate::cpu::{self, Error};
use crate::report::{self, Figure, Samples};
use Baseline::{Floor, Nothing, Step};
use clap::Args;
use crossdock_nectarine::Transport;
use std::collections::{BTreeMap, BTreeSet};

/// How the benchmark is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Rounds; each runs every case once, its baseline beside it
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Millions of records of the broker's job
    #[arg(long, default_value_t = 12)]
    millions: u64,
    /// Only this case
    #[arg(long)]
    case: Option<String>,
    /// The client's core, counted from 0; otherwise the first that this process may use
    #[arg(long)]
    client_cpu: Option<usize>,
    /// The core of the daemon's context; otherwise the last
    #[arg(long)]
    daemon_cpu: Option<usize>,
}

/// The results of one run, by metric.
type Measured = BTreeMap<String, f64>;

/// The results of all runs, by case and metric.
type Table = BTreeMap<(&'static str, String), Samples>;

/// Something that is run once a round.
struct BenchCase {
    /// Its name in [`LINES`].
    name: &'static str,
    run: fn(&Bench) -> Result<Measured, Error>,
}

/// The cases of a round, in this order: what is compared stands side by side.
const STEPS: &[BenchCase] = &[
    BenchCase { name: "payload_floor", run: baselines::payload_floor },
    BenchCase { name: "enqueue_echo_64", run: |bench| crossdock::round_trips_and_floor(bench, "enqueue", "64") },
    BenchCase { name: "put_get_64", run: |bench| crossdock::round_trips_and_floor(bench, "put-get", "64") },
    BenchCase { name: "rpc_64", run: crossdock::rpc },
    BenchCase { name: "put_get_1024", run: |bench| crossdock::round_trips_and_floor(bench, "put-get", "1024") },
    BenchCase { name: "enqueue_echo_65536", run: |bench| crossdock::round_trips_and_floor(bench, "enqueue", "65536") },
    BenchCase { name: "sync", run: crossdock::sync },
    BenchCase { name: "unix_stream_64", run: |bench| baselines::unix_stream(bench, 64, "polling") },
    #[cfg(feature = "iceoryx2")]
    BenchCase { name: "iceoryx2", run: baselines::iceoryx2 },
    BenchCase {
        name: "signal_queue",
        run: |bench| crossdock::round_trips(bench, &["put-get", "64", "polling", "--by", "signal-queue"], ""),
    },
    BenchCase { name: "unix_stream_65536", run: |bench| baselines::unix_stream(bench, 65_536, "polling") },
    BenchCase {
        name: "put_get_65536",
        run: |bench| crossdock::round_trips(bench, &["put-get", "65536", "polling"], ""),
    },
    BenchCase { name: "unix_one_way", run: baselines::unix_one_way },
    // It reads every byte, as the other end of the Unix stream does.
    BenchCase { name: "one_way_64", run: |bench| crossdock::one_way(bench, &["sum"]) },
    BenchCase { name: "one_way_64_single", run: |bench| crossdock::one_way(bench, &["sum", "--single"]) },
    BenchCase { name: "one_way_64_clients", run: crossdock::one_way_clients },
    BenchCase { name: "one_way_64_unread", run: |bench| crossdock::one_way(bench, &["discard"]) },
    BenchCase { name: "unix_stream_blocking", run: |bench| baselines::unix_stream(bench, 64, "blocking") },
    BenchCase {
        name: "rtt_blocking_64",
        run: |bench| crossdock::round_trips(bench, &["enqueue", "64", "blocking"], ""),
    },
    BenchCase {
        name: "rtt_blocking_64_no_spin",
        run: |bench| crossdock::round_trips(bench, &["enqueue", "64", "blocking"], "spin_us = 0\n"),
    },
    BenchCase { name: "reader_thread", run: crossdock::reader_thread },
    BenchCase { name: "idle_client", run: crossdock::idle_client },
    BenchCase { name: "broker_udp", run: |bench| crossdock::broker(bench, Transport::Udp) },
    BenchCase { name: "broker_local", run: |bench| crossdock::broker(bench, Transport::Shm) },
];

/// A line of the result: a step's figure, and the step that it is held against.
struct Line {
    case: &'static str,
    metric: &'static str,
    step: &'static str,
    baseline: Baseline,
}

/// The other side of a comparison.
#[derive(Clone, Copy)]
enum Baseline {
    Nothing,
    /// A step, and its name in the results.
    Step(&'static str, &'static str),
    /// The floor, which the figure's own step measures in turn.
    Floor,
}

impl Baseline {
    fn step(self) -> Option<&'static str> {
        match self {
            Step(_, step) => Some(step),
            Nothing | Floor => None,
        }
    }
}

const fn line(case: &'static str, metric: &'static str, step: &'static str, baseline: Baseline) -> Line {
    Line { case, metric, step, baseline }
}

const LINES: &[Line] = &[
    line("enqueue_echo_64", "rtt_ns_p50", "enqueue_echo_64", Floor),
    line("put_get_64", "rtt_ns_p50", "put_get_64", Floor),
    line("put_get_64_vs_bare_lines", "rtt_ns_p50", "put_get_64", Step("bare_lines", "payload_floor")),
    line("put_get_64", "p99_to_p50", "put_get_64", Nothing),
    line("rpc_64", "rtt_ns_p50", "rpc_64", Step("put_get_64", "put_get_64")),
    line("put_get_1024", "rtt_ns_p50", "put_get_1024", Floor),
    line("enqueue_echo_65536", "rtt_ns_p50", "enqueue_echo_65536", Floor),
    line("sync", "rtt_ns_p50", "sync", Floor),
    line("put_get_64_vs_unix", "rtt_ns_p50", "put_get_64", Step("unix_stream", "unix_stream_64")),
    line("put_get_65536_vs_unix", "rtt_ns_p50", "put_get_65536", Step("unix_stream", "unix_stream_65536")),
    line("put_get_64_vs_iceoryx2", "rtt_ns_p50", "put_get_64", Step("iceoryx2", "iceoryx2")),
    line("rings", "rtt_ns_p50", "put_get_64", Step("signal_queue", "signal_queue")),
    line("one_way_64", "msgs_per_s", "one_way_64", Step("unix_stream", "unix_one_way")),
    line("one_way_64_single", "msgs_per_s", "one_way_64_single", Step("unix_stream", "unix_one_way")),
    line("one_way_64_clients", "msgs_per_s", "one_way_64_clients", Step("unix_stream", "unix_one_way")),
    line("one_way_64_unread", "msgs_per_s", "one_way_64_unread", Step("unix_stream", "unix_one_way")),
    line("rtt_blocking_64", "rtt_us_p50", "rtt_blocking_64", Step("unix_stream_blocking", "unix_stream_blocking")),
    line(
        "rtt_blocking_64_no_spin",
        "rtt_us_p50",
        "rtt_blocking_64_no_spin",
        Step("unix_stream_blocking", "unix_stream_blocking"),
    ),
    line("upcall", "rtt_us_p50", "rtt_blocking_64", Step("reader_thread", "reader_thread")),
    line("idle_client", "cpu_percent", "idle_client", Nothing),
    line("idle_client", "daemon_cpu_percent", "idle_client", Nothing),
    line("broker_local", "msgs_per_daemon_cpu_s", "broker_local", Step("udp", "broker_udp")),
    line("broker_local", "msgs_per_machine_cpu_s", "broker_local", Step("udp", "broker_udp")),
    line("broker_local", "msgs_per_s", "broker_local", Step("udp", "broker_udp")),
];

/// The state that all cases share.
struct Bench {
    cores: Cores,
    /// Of flights that the broker's job moves.
    millions: u64,
}

impl Bench {
    fn client_cpu(&self) -> String {
        self.cores.client.to_string()
    }

    fn daemon_cpu(&self) -> String {
        self.cores.daemon.to_string()
    }

    /// A name for something that only this run's processes share.
    fn name(&self, what: &str) -> String {
        format!("crossdock-bench-{}-{what}", std::process::id())
    }
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let machine = cpu::machine();
    let bench = Bench { cores: Cores::choose(options.client_cpu, options.daemon_cpu)?, millions: options.millions };
    let cores = bench.cores.words();
    eprintln!("{machine}\n{cores}");
    let wanted: Vec<&Line> =
        LINES.iter().filter(|line| options.case.as_deref().is_none_or(|case| case == line.case)).collect();
    if wanted.is_empty() {
        let cases: BTreeSet<&str> = LINES.iter().map(|line| line.case).collect();
        return Err(format!("no such case; there are {}", Vec::from_iter(cases).join(", ")).into());
    }
    let needed: BTreeSet<&str> =
        wanted.iter().flat_map(|line| [Some(line.step), line.baseline.step()]).flatten().collect();
    if cfg!(not(feature = "iceoryx2")) {
        eprintln!("built without feature `iceoryx2`: that baseline is left out (`cargo xtask bench mailbox` has it)");
    }
    let mut table = Table::new();
    for round in 1..=options.rounds {
        for step in STEPS.iter().filter(|step| needed.contains(step.name)) {
            eprintln!("round {round} of {}: {}", options.rounds, step.name);
            let measured = (step.run)(&bench).map_err(|error| format!("{}: {error}", step.name))?;
            for (metric, value) in measured {
                table.entry((step.name, metric)).or_default().push(value);
            }
        }
    }
    let figures: Vec<Figure> = wanted.iter().flat_map(|line| figures(line, &table)).collect();
    report::print(&figures, options.json, &machine, Some(&cores));
    Ok(())
}

/// A line's figure and, for a round trip, that of the slow ones.
fn figures(line: &Line, table: &Table) -> Vec<Figure> {
    let slow = match line.metric {
        "rtt_ns_p50" => Some("rtt_ns_p99"),
        "rtt_us_p50" => Some("rtt_us_p99"),
        _ => None,
    };
    let figure = |metric: &'static str| {
        let samples = samples(table, line.step, metric)?;
        let of_step = |step, metric: &str| self::samples(table, step, metric);
        let (baseline, ratios) = match line.baseline {
            Nothing => (None, None),
            Step(name, step) => {
                let baseline = of_step(step, metric)?;
                let ratios = samples.0.iter().zip(&baseline.0).map(|(ours, theirs)| ours / theirs).collect();
                (Some((name, baseline)), Some(Samples(ratios)))
            }
            Floor => {
                let ratios = (metric == "rtt_ns_p50").then(|| of_step(line.step, "to_floor")).flatten();
                (of_step(line.step, &metric.replace("rtt", "floor")).map(|floor| ("atomic_floor", floor)), ratios)
            }
        };
        let unit = if metric.starts_with("rtt_ns") { "ns" } else { unit(metric) };
        Some(Figure { bench: "mailbox", case: line.case.to_owned(), metric, unit, samples, baseline, ratios })
    };
    [Some(line.metric), slow].into_iter().flatten().filter_map(figure).collect()
}

/// A step's values of a metric; roles report round trips in ns.
fn samples(table: &Table, step: &'static str, metric: &str) -> Option<Samples> {
    if metric == "p99_to_p50" {
        let [slow, middle] = ["rtt_ns_p99", "rtt_ns_p50"].map(|metric| samples(table, step, metric));
        return Some(Samples(slow?.0.iter().zip(middle?.0).map(|(slow, middle)| slow / middle).collect()));
    }
    let measured_as = metric.replace("rtt_us", "rtt_ns");
    let values = table.get(&(step, measured_as.clone()))?;
    let divisor = if measured_as == metric { 1.0 } else { 1e3 };
    Some(Samples(values.0.iter().map(|value| value / divisor).collect()))
}

fn unit(metric: &str) -> &'static str {
    match metric {
        "rtt_us_p50" | "rtt_us_p99" => "us",
        "cpu_percent" | "daemon_cpu_percent" => "%",
        "p99_to_p50" => "ratio",
        _ => "1/s",
    }
}
