//! `query`: queries over the events of Nexmark through the daemon, against DuckDB over the same rows; windows with many groups; and
//! subscribers that are slow; the state of a stream by key. `join`: flights with their weather, against DuckDB.

mod duckdb;
mod flights_weather;
mod last_rows;
mod latest_by_key;
mod nexmark;
mod queries;
mod readings;
mod rows;
mod slow_reader;
mod through;

use crate::cpu::{self, Error};
use crate::report::{self, Declared, Table};
use clap::{Args, Subcommand};
use duckdb::Duckdb;
use queries::{JOINS, QUERIES};
use std::path::PathBuf;
use through::Query;

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
    /// Thousands of events that are published for each query
    #[arg(long, default_value_t = 2000)]
    thousands: u64,
    /// How long `slow_reader` and `latest_by_key` take latencies at a time, in ms
    #[arg(long, default_value_t = 1000)]
    piece_ms: u64,
    /// Thousands of keys of `latest_by_key`
    #[arg(long, default_value_t = 1000)]
    thousand_keys: u64,
}

/// A process of the benchmark.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// Publishes the streams of a case
    Publish { addr: String, count: u64, case: String },
    /// Takes the records that a query makes
    Subscribe { addr: String, sql: String, expected: u64 },
    /// Takes the records that a query makes until the last of each key are those in a file
    SubscribeLast { addr: String, sql: String, keys: usize, rows: PathBuf },
}

impl Role {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self {
            Role::Publish { addr, count, case } => through::publish(&addr, count, &case),
            Role::Subscribe { addr, sql, expected } => through::subscribe(&addr, &sql, expected),
            Role::SubscribeLast { addr, sql, keys, rows } => last_rows::subscribe(&addr, &sql, keys, &rows),
        }
    }
}

/// The figures, by case and metric.
const METRICS: [Declared; 20] = [
    ("nexmark_q0", RATE, "1/s", Some("duckdb")),
    ("nexmark_q1", RATE, "1/s", Some("duckdb")),
    ("nexmark_q2", RATE, "1/s", Some("duckdb")),
    ("nexmark_q3", RATE, "1/s", Some("duckdb")),
    ("nexmark_q4", RATE, "1/s", Some("duckdb")),
    ("nexmark_q5", RATE, "1/s", Some("duckdb")),
    ("nexmark_q6", RATE, "1/s", Some("duckdb")),
    ("nexmark_q7", RATE, "1/s", Some("duckdb")),
    ("nexmark_q8", RATE, "1/s", Some("duckdb")),
    ("window_hop", RATE, "1/s", Some("duckdb")),
    (LATEST_BY_KEY, "update_ns", "ns", Some("hash_map")),
    (LATEST_BY_KEY, "record_ns", "ns", Some("without_key")),
    (LATEST_BY_KEY, "snapshot_s", "s", Some("hash_map")),
    (LATEST_BY_KEY, "stream_p99_ratio", "", None),
    (LATEST_BY_KEY, "stream_latency_us_p99", "us", Some("without_snapshot")),
    (LATEST_BY_KEY, "stream_latency_us_p50", "us", Some("without_snapshot")),
    ("slow_reader", "others_p99_ratio", "", None),
    ("slow_reader", "others_latency_us_p99", "us", Some("nobody_slow")),
    ("slow_reader", "others_latency_us_p50", "us", Some("nobody_slow")),
    ("slow_reader", "records_conflated", "", None),
];
const JOIN_METRICS: [Declared; 1] = [("flights_weather", RATE, "1/s", Some("duckdb"))];

/// Events for each second of processor time of the daemon, or of DuckDB.
const RATE: &str = "events_per_s_per_core";
const SLOW_READER: &str = "slow_reader";
const LATEST_BY_KEY: &str = "latest_by_key";
const WORDS: &str = "daemon, publisher and subscribers are processes and threads wherever the system puts them";

/// Runs `query` and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let names: Vec<&str> = QUERIES.iter().map(|query| query.case).chain([LATEST_BY_KEY, SLOW_READER]).collect();
    measure(options, "query", &names, &METRICS)
}

/// Runs `join` and prints its figures.
pub(crate) fn run_join(options: &Options) -> Result<(), Error> {
    let names = JOINS.each_ref().map(|query| query.case);
    measure(options, "join", &names, &JOIN_METRICS)
}

fn measure(options: &Options, bench: &'static str, names: &[&str], metrics: &'static [Declared]) -> Result<(), Error> {
    let wanted = |name: &&str| options.case.as_deref().is_none_or(|only| only == *name);
    let cases: Vec<&str> = names.iter().copied().filter(wanted).collect();
    if cases.is_empty() {
        return Err(format!("`--case`: there is none of that name; the cases are {}", names.join(", ")).into());
    }
    let machine = cpu::machine();
    eprintln!("{machine}\n{WORDS}");
    let queries: Vec<&Query> = cases.iter().filter_map(|case| queries::find(case)).collect();
    let events = options.thousands * 1000;
    let mut duckdb = if queries.is_empty() { None } else { Duckdb::start()? };
    let mut table = Table::default();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        if let Some(duckdb) = &mut duckdb {
            for query in &queries {
                let [ours, its] = through::compare(query, events, duckdb)?;
                table.push(query.case, RATE, ours, Some(its));
            }
        }
        if cases.contains(&LATEST_BY_KEY) {
            latest_by_key::round(options, &mut table)?;
        }
        if cases.contains(&SLOW_READER) {
            slow_reader::round(options, &mut table)?;
        }
    }
    report::print(&table.figures(bench, metrics), options.json, &machine, Some(WORDS));
    Ok(())
}
