//! `broker`: 300-byte flight records from one publisher process through the daemon to one subscriber process, over
//! loopback, nothing lost; against `udp_relay`, which takes and gives one message a datagram.

mod relay;
pub(crate) mod roles;

use crate::cpu::{self, Error};
use crate::daemon::Daemon;
use crate::process::Process;
use crate::report::{self, Figure, Samples};
use clap::Args;
use crossdock_nectarine::Transport;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The traffic of each throughput case.
const CASES: [(&str, &str); 3] = [
    ("forward", "SELECT * FROM A"),
    (
        "filter_jfk_lax",
        "SELECT carrier, flight, dest, dep_delay FROM A WHERE origin = 'JFK' AND dest = 'LAX' AND dep_delay > 15",
    ),
    ("filter_half", "SELECT * FROM A WHERE minute < 30"),
];

/// How the benchmark is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Rounds; each runs every case once, the baseline beside it
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Millions of records a throughput case
    #[arg(long, default_value_t = 12)]
    millions: u64,
    /// Only this case
    #[arg(long)]
    case: Option<String>,
    /// Records a second of the latency runs
    #[arg(long, default_value_t = 200_000)]
    latency_rate: u64,
}

/// Figures by case and metric.
type Table = BTreeMap<(String, &'static str), Samples>;

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let machine = cpu::machine();
    let mut table = Table::new();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {} on {machine}", options.rounds);
        run_round(options, &mut table)?;
    }
    let mut figures = Vec::new();
    for ((case, metric), samples) in &table {
        if case.starts_with("udp_relay") {
            continue;
        }
        let baseline_case = if case == "rtt_blocking" { "udp_relay_rtt" } else { "udp_relay" };
        let baseline = table.get(&(baseline_case.to_owned(), *metric)).cloned().map(|s| ("udp_relay", s));
        let (case, samples) = (case.clone(), samples.clone());
        figures.push(Figure { bench: "broker", case, metric, unit: unit(metric), samples, baseline, ratios: None });
    }
    report::print(&figures, options.json, &machine, None);
    Ok(())
}

fn unit(metric: &str) -> &'static str {
    match metric {
        "latency_us_p50" | "latency_us_p99" | "rtt_us_p50" | "rtt_us_p99" => "us",
        "memory_mib" => "MiB",
        "idle_cpu_percent" => "%",
        _ => "1/s",
    }
}

fn run_round(options: &Options, table: &mut Table) -> Result<(), Error> {
    let wanted = |case: &str| options.case.as_deref().is_none_or(|only| only == case);
    let throughput = CASES.iter().any(|(case, _)| wanted(case)) || wanted("forward_json");
    if throughput {
        relay::throughput(table)?;
    }
    for (case, sql) in CASES.iter().filter(|(case, _)| wanted(case)) {
        through_daemon(case, sql, options, table)?;
    }
    if wanted("forward_json") {
        json_through_daemon(table)?;
    }
    if wanted("rtt_blocking") {
        relay::round_trips(table)?;
        round_trips(table)?;
    }
    if wanted("idle") {
        idle(table)?;
    }
    Ok(())
}

fn note(table: &mut Table, case: &str, metric: &'static str, value: f64) {
    table.entry((case.to_owned(), metric)).or_default().push(value);
}

/// A whole number of a process' report.
pub(crate) fn number(value: &Value, key: &str) -> Result<u64, Error> {
    value[key].as_u64().ok_or_else(|| format!("no {key} in {value}").into())
}

fn strings<const N: usize>(args: [&str; N]) -> [String; N] {
    args.map(str::to_owned)
}

/// One throughput case, and the latency at a fixed rate.
fn through_daemon(case: &str, sql: &str, options: &Options, table: &mut Table) -> Result<(), Error> {
    let daemon = Daemon::start("")?;
    for (metric, value) in throughput(case, sql, options.millions, Transport::Udp, &daemon)? {
        note(table, case, metric, value);
    }
    latency(case, sql, &daemon, options.latency_rate, table)
}

/// Sends this number of millions of flights from a publisher through the daemon to a subscriber, and checks that all arrive;
/// the figures by metric.
pub(crate) fn throughput(
    case: &str,
    sql: &str,
    millions: u64,
    transport: Transport,
    daemon: &Daemon,
) -> Result<[(&'static str, f64); 4], Error> {
    let count = millions * 1_000_000;
    let transport = transport.to_string();
    let by = strings(["--transport", &transport]);
    let publish = strings(["publish", &daemon.addr, "A", &count.to_string(), "0", sql]);
    let mut publisher = Process::role(&[&publish[..], &by[..]].concat())?;
    let expected = number(&publisher.next_report()?, "selected")?;
    let mut subscriber = Process::role(&[&strings(["subscribe", &daemon.addr, sql])[..], &by[..]].concat())?;
    subscriber.next_report()?;
    let (daemon_ns, machine_ns, start) = (daemon.cpu_ns()?, cpu::machine_ns()?, Instant::now());
    publisher.go()?;
    let done = subscriber.next_report()?;
    let elapsed = start.elapsed().as_secs_f64();
    let (daemon_s, machine_s) =
        ((daemon.cpu_ns()? - daemon_ns) as f64 / 1e9, (cpu::machine_ns()? - machine_ns) as f64 / 1e9);
    let received = number(&done, "records")?;
    if received != expected {
        return Err(format!("{case}: {expected} records should have arrived, {received} did").into());
    }
    let memory = daemon.peak_memory_bytes()? as f64 / f64::from(1 << 20);
    publisher.next_report()?;
    publisher.end()?;
    subscriber.end()?;
    Ok([
        ("msgs_per_daemon_cpu_s", count as f64 / daemon_s),
        ("msgs_per_machine_cpu_s", count as f64 / machine_s),
        ("msgs_per_s", count as f64 / elapsed),
        ("memory_mib", memory),
    ])
}

/// Latency from the publisher's call to the subscriber's hands, at a rate that leaves the machine time.
fn latency(case: &str, sql: &str, daemon: &Daemon, rate: u64, table: &mut Table) -> Result<(), Error> {
    let (count, rate) = ((rate / 2).to_string(), rate.to_string());
    // `sent` has to come along for the subscriber to know.
    let sql = sql.replace("dep_delay FROM A", "dep_delay, sent FROM A");
    let mut publisher = Process::role(&strings(["publish", &daemon.addr, "A", &count, &rate, &sql]))?;
    publisher.next_report()?;
    let mut subscriber = Process::role(&strings(["subscribe", &daemon.addr, &sql]))?;
    subscriber.next_report()?;
    publisher.go()?;
    let done = subscriber.next_report()?;
    note(table, case, "latency_us_p50", number(&done, "latency_ns_p50")? as f64 / 1e3);
    note(table, case, "latency_us_p99", number(&done, "latency_ns_p99")? as f64 / 1e3);
    publisher.next_report()?;
    publisher.end()?;
    subscriber.end()
}

/// JSON lines in, records through the daemon, JSON lines out: the product's own commands at both ends.
fn json_through_daemon(table: &mut Table) -> Result<(), Error> {
    const COUNT: u64 = 336_776;
    let file = std::env::temp_dir().join(format!("crossdock-bench-{}.jsonl", std::process::id()));
    let path = file.to_string_lossy().into_owned();
    let schema = file.with_extension("schema").to_string_lossy().into_owned();
    roles::write_json(&file, &schema)?;
    // The stream is declared, so that the subscriber is there before the first record.
    let daemon = Daemon::start(&format!("[[stream]]\nname = \"A\"\nschema = \"{schema}\"\n"))?;
    let limit = COUNT.to_string();
    // The records go in packets, as in this benchmark's other cases.
    let way = ["--address", &daemon.addr, "--transport", "udp"];
    let publish = |file: &str| {
        let what = strings(["publish", "A", file, "--input", "json", "--schema", &schema]);
        [&what[..], &strings(way)].concat()
    };
    let subscribe = strings(["count-lines", "subscribe", "SELECT * FROM A", "--output", "json", "--limit", &limit]);
    let mut subscriber = Process::role(&[&subscribe[..], &strings(way)].concat())?;
    subscriber.next_report()?;
    daemon.await_subscription()?;
    let (daemon_ns, machine_ns, start) = (daemon.cpu_ns()?, cpu::machine_ns()?, Instant::now());
    let publisher = Process::crossdock(&publish(&path))?;
    let done = subscriber.next_report()?;
    let elapsed = start.elapsed().as_secs_f64();
    let (daemon_s, machine_s) =
        ((daemon.cpu_ns()? - daemon_ns) as f64 / 1e9, (cpu::machine_ns()? - machine_ns) as f64 / 1e9);
    publisher.end()?;
    subscriber.end()?;
    let _ = (std::fs::remove_file(&file), std::fs::remove_file(&schema));
    if number(&done, "lines")? != COUNT {
        return Err(format!("forward_json: {COUNT} lines should have arrived: {done}").into());
    }
    note(table, "forward_json", "msgs_per_daemon_cpu_s", COUNT as f64 / daemon_s);
    note(table, "forward_json", "msgs_per_machine_cpu_s", COUNT as f64 / machine_s);
    note(table, "forward_json", "msgs_per_s", COUNT as f64 / elapsed);
    Ok(())
}

/// Blocking round trips through a daemon, and through the relay: the middle one and the 99th of a hundred of each, in µs.
pub(crate) fn round_trips_beside_relay() -> Result<[[f64; 2]; 2], Error> {
    let mut table = Table::new();
    relay::round_trips(&mut table)?;
    round_trips(&mut table)?;
    let figure = |case: &str, metric| {
        let samples = table.get(&(case.to_owned(), metric)).and_then(Samples::median);
        samples.ok_or_else(|| format!("no {metric} of {case}"))
    };
    let both = |case| Ok::<_, Error>([figure(case, "rtt_us_p50")?, figure(case, "rtt_us_p99")?]);
    Ok([both("rtt_blocking")?, both("udp_relay_rtt")?])
}

/// One message at a time, publisher → daemon → subscriber, and back the same way.
fn round_trips(table: &mut Table) -> Result<(), Error> {
    let daemon = Daemon::start("")?;
    let mut echo = Process::role(&strings(["echo", &daemon.addr]))?;
    let mut ping = Process::role(&strings(["ping", &daemon.addr, "20000"]))?;
    echo.next_report()?;
    let done = ping.next_report()?;
    note(table, "rtt_blocking", "rtt_us_p50", number(&done, "rtt_ns_p50")? as f64 / 1e3);
    note(table, "rtt_blocking", "rtt_us_p99", number(&done, "rtt_ns_p99")? as f64 / 1e3);
    ping.end()?;
    echo.end()
}

/// CPU of a daemon with a publisher and a subscriber that have nothing to say.
fn idle(table: &mut Table) -> Result<(), Error> {
    const WATCH: Duration = Duration::from_secs(3);
    let daemon = Daemon::start("")?;
    let mut publisher = Process::role(&strings(["publish", &daemon.addr, "A", "1", "0", "SELECT * FROM A"]))?;
    publisher.next_report()?;
    let mut subscriber = Process::role(&strings(["subscribe", &daemon.addr, "SELECT * FROM A"]))?;
    subscriber.next_report()?;
    let before = daemon.cpu_ns()?;
    std::thread::sleep(WATCH);
    let used = (daemon.cpu_ns()? - before) as f64 / 1e9;
    note(table, "idle", "idle_cpu_percent", 100.0 * used / WATCH.as_secs_f64());
    Ok(())
}
