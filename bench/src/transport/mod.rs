//! `transport`: the library's sessions between two processes over loopback, polling on two cores and without a daemon, against
//! plain sockets; what a packet costs a daemon with many sessions; a blocking round trip through it; and the same in secure sessions
//! with a flood of strangers' packets beside it.

mod attack;
mod crossdock;
mod role;
mod sends;
mod sessions;
mod sockets;

pub(crate) use role::Role;

use crate::broker;
use crate::cores::Cores;
use crate::cpu::{self, Error};
use crate::process::Process;
use crate::report::{self, Declared, Table};
use clap::Args;
use serde_json::Value;

/// How the benchmark is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Rounds; each runs every case once, its baseline beside it
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Only this case
    #[arg(long)]
    case: Option<String>,
    /// How long messages are sent in a throughput case, in milliseconds
    #[arg(long, default_value_t = 1000)]
    milliseconds: u64,
    /// Round trips of each case
    #[arg(long, default_value_t = 50_000)]
    round_trips: u64,
    /// The core of the side that sends, counted from 0; otherwise the first that this process may use
    #[arg(long)]
    client_cpu: Option<usize>,
    /// The core of the other side; otherwise the last
    #[arg(long)]
    daemon_cpu: Option<usize>,
}

/// Cases of round trips: ours, and a plain socket of the other kind.
const ROUND_TRIPS: [&str; 5] = ["datagram", "reliable", "request_response", "secure_datagram", "tcp_socket"];

/// Cases of one way, and the bytes of a message.
const ONE_WAY: [(&str, usize); 5] = [
    ("reliable_16", 16),
    ("reliable_64", 64),
    ("reliable_4096", 4096),
    ("reliable_65536", 65_536),
    ("reliable_1048576", 1 << 20),
];

/// Sessions of a daemon.
const SESSIONS: (usize, usize) = (10, 10_000);

/// Round trips beside a flood at most.
const ATTACK_ROUND_TRIPS: u64 = 20_000;

const FIGURES: &[Declared] = &[
    ("datagram", "rtt_us_p50", "us", Some("udp_socket")),
    ("datagram", "rtt_us_p99", "us", Some("udp_socket")),
    ("reliable", "rtt_us_p50", "us", Some("udp_socket")),
    ("reliable", "rtt_us_p99", "us", Some("udp_socket")),
    ("request_response", "rtt_us_p50", "us", Some("udp_socket")),
    ("request_response", "rtt_us_p99", "us", Some("udp_socket")),
    ("secure_datagram", "rtt_us_p50", "us", Some("udp_socket")),
    ("secure_datagram", "rtt_us_p99", "us", Some("udp_socket")),
    ("tcp_socket", "rtt_us_p50", "us", Some("udp_socket")),
    ("tcp_socket", "rtt_us_p99", "us", Some("udp_socket")),
    ("reliable_16", "mbit_per_s", "Mbit/s", Some("tcp_socket")),
    ("reliable_64", "mbit_per_s", "Mbit/s", Some("tcp_socket")),
    ("reliable_4096", "mbit_per_s", "Mbit/s", Some("tcp_socket")),
    ("reliable_65536", "mbit_per_s", "Mbit/s", Some("tcp_socket")),
    ("reliable_1048576", "mbit_per_s", "Mbit/s", Some("tcp_socket")),
    ("secure_4096", "mbit_per_s", "Mbit/s", Some("plain")),
    ("sessions_10000", "ns_per_packet", "ns", Some("sessions_10")),
    ("broker_rtt_blocking", "rtt_us_p50", "us", Some("udp_relay")),
    ("broker_rtt_blocking", "rtt_us_p99", "us", Some("udp_relay")),
    ("attack_flood", "others_rtt_us_p99", "us", Some("without_flood")),
];

/// The metrics of a round trip.
const RTT: [&str; 2] = ["rtt_us_p50", "rtt_us_p99"];

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    if let Some(case) = &options.case
        && !FIGURES.iter().any(|(name, ..)| name == case)
    {
        let mut names: Vec<&str> = FIGURES.iter().map(|(name, ..)| *name).collect();
        names.dedup();
        return Err(format!("`--case`: there is no `{case}`; the cases are {}", names.join(", ")).into());
    }
    let machine = cpu::machine();
    let cores = Cores::choose(options.client_cpu, options.daemon_cpu)?;
    let words = cores.words();
    eprintln!("{machine}\n{words}");
    let mut table = Table::default();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        run_round(options, cores, &mut table)?;
    }
    report::print(&table.figures("transport", FIGURES), options.json, &machine, Some(&words));
    Ok(())
}

fn run_round(options: &Options, cores: Cores, table: &mut Table) -> Result<(), Error> {
    let wanted = |case: &str| options.case.as_deref().is_none_or(|only| only == case);
    if ROUND_TRIPS.iter().any(|case| wanted(case)) {
        let count = options.round_trips.to_string();
        let base = pair(cores, "udp_socket", &["ping", &count])?;
        for case in ROUND_TRIPS.into_iter().filter(|case| wanted(case)) {
            let ours = pair(cores, case, &["ping", &count])?;
            for metric in RTT {
                table.push(case, metric, figure(&ours, metric)?, Some(figure(&base, metric)?));
            }
        }
    }
    for (case, bytes) in ONE_WAY.into_iter().filter(|(case, _)| wanted(case)) {
        let (bytes, milliseconds) = (bytes.to_string(), options.milliseconds.to_string());
        let send = ["send", &bytes, &milliseconds];
        let base = figure(&pair(cores, "tcp_socket", &send)?, "mbit_per_s")?;
        let ours = figure(&pair(cores, "reliable", &send)?, "mbit_per_s")?;
        table.push(case, "mbit_per_s", ours, Some(base));
    }
    if wanted("secure_4096") {
        let milliseconds = options.milliseconds.to_string();
        let send = ["send", "4096", &milliseconds];
        let base = figure(&pair(cores, "reliable", &send)?, "mbit_per_s")?;
        let ours = figure(&pair(cores, "secure_reliable", &send)?, "mbit_per_s")?;
        table.push("secure_4096", "mbit_per_s", ours, Some(base));
    }
    if wanted("sessions_10000") {
        let (few, many) = SESSIONS;
        let base = sessions::ns_per_packet(few)?;
        table.push("sessions_10000", "ns_per_packet", sessions::ns_per_packet(many)?, Some(base));
    }
    if wanted("broker_rtt_blocking") {
        let [ours, base] = broker::round_trips_beside_relay()?;
        for (metric, (ours, base)) in RTT.into_iter().zip(ours.into_iter().zip(base)) {
            table.push("broker_rtt_blocking", metric, ours, Some(base));
        }
    }
    if wanted("attack_flood") {
        let count = options.round_trips.min(ATTACK_ROUND_TRIPS);
        let base = attack::rtt_us_p99(count, false)?;
        table.push("attack_flood", "others_rtt_us_p99", attack::rtt_us_p99(count, true)?, Some(base));
    }
    Ok(())
}

/// Runs both sides of a case: the one that waits, and the one that does `job`; what the latter reports.
fn pair(cores: Cores, way: &str, job: &[&str]) -> Result<Value, Error> {
    let role = |args: &[&str], cpu: usize| {
        let cpu = cpu.to_string();
        let args = ["transport"].iter().chain(args).chain(&[&*cpu]).map(|&arg| arg.to_owned()).collect::<Vec<_>>();
        Process::role(&args)
    };
    let mut waiting = role(&["answer", way], cores.daemon)?;
    let ready = waiting.next_report()?;
    let addr = ready["listen"].as_str().ok_or("the other side did not say where it listens")?.to_owned();
    let (verb, numbers) = job.split_first().ok_or("no job")?;
    let mut going = role(&[&[*verb, way, &addr], numbers].concat(), cores.client)?;
    let report = going.next_report()?;
    going.end()?;
    waiting.end()?;
    Ok(report)
}

fn figure(report: &Value, metric: &str) -> Result<f64, Error> {
    report[metric].as_f64().ok_or_else(|| format!("no {metric} in {report}").into())
}
