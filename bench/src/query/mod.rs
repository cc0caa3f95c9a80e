//! `query`: queries over the events of Nexmark through the daemon, against DuckDB over the same rows; and subscribers that are slow.

mod duckdb;
mod nexmark;
mod slow_reader;
mod through;

use crate::cpu::{self, Error};
use crate::report::{self, Declared, Table};
use clap::{Args, Subcommand};
use duckdb::Duckdb;
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
    /// How long `slow_reader` takes latencies at a time, in ms
    #[arg(long, default_value_t = 1000)]
    piece_ms: u64,
}

/// A process of the benchmark.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// Publishes events of the streams named
    Publish { addr: String, count: u64, streams: String },
    /// Takes the records that a query makes
    Subscribe { addr: String, sql: String, expected: u64 },
}

impl Role {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self {
            Role::Publish { addr, count, streams } => through::publish(&addr, count, &streams),
            Role::Subscribe { addr, sql, expected } => through::subscribe(&addr, &sql, expected),
        }
    }
}

/// Nexmark's queries without state: all bids, prices in another currency, bids for certain auctions.
const QUERIES: [Query; 3] = [
    Query {
        case: "nexmark_q0",
        streams: &["bid"],
        sql: "SELECT auction, bidder, price, date_time FROM bid",
        duckdb: "SELECT auction, bidder, price, date_time FROM bid",
    },
    Query {
        case: "nexmark_q1",
        streams: &["bid"],
        sql: "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
        duckdb: "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
    },
    Query {
        case: "nexmark_q2",
        streams: &["bid"],
        sql: "SELECT auction, price FROM bid WHERE auction % 123 = 0",
        duckdb: "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    },
];

/// The figures, by case and metric.
const METRICS: [Declared; 7] = [
    ("nexmark_q0", "events_per_s_per_core", "1/s", Some("duckdb")),
    ("nexmark_q1", "events_per_s_per_core", "1/s", Some("duckdb")),
    ("nexmark_q2", "events_per_s_per_core", "1/s", Some("duckdb")),
    ("slow_reader", "others_p99_ratio", "", None),
    ("slow_reader", "others_latency_us_p99", "us", Some("nobody_slow")),
    ("slow_reader", "others_latency_us_p50", "us", Some("nobody_slow")),
    ("slow_reader", "records_conflated", "", None),
];

const SLOW_READER: &str = "slow_reader";

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let wanted = |name: &str| options.case.as_deref().is_none_or(|only| only == name);
    let names: Vec<&str> = QUERIES.iter().map(|query| query.case).chain([SLOW_READER]).collect();
    if !names.iter().any(|name| wanted(name)) {
        return Err(format!("`--case`: there is none of that name; the cases are {}", names.join(", ")).into());
    }
    let machine = cpu::machine();
    let words = "daemon, publisher and subscribers are processes and threads wherever the system puts them";
    eprintln!("{machine}\n{words}");
    let queries: Vec<&Query> = QUERIES.iter().filter(|query| wanted(query.case)).collect();
    let events = options.thousands * 1000;
    let mut duckdb = if queries.is_empty() { None } else { loaded(events)? };
    let mut table = Table::default();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        if let Some(duckdb) = &mut duckdb {
            for query in &queries {
                let [ours, its] = through::compare(query, events, duckdb)?;
                table.push(query.case, "events_per_s_per_core", ours, Some(its));
            }
        }
        if wanted(SLOW_READER) {
            slow_reader::round(options, &mut table)?;
        }
    }
    report::print(&table.figures("query", &METRICS), options.json, &machine, Some(words));
    Ok(())
}

/// DuckDB with the events as tables, if there is one.
fn loaded(events: u64) -> Result<Option<Duckdb>, Error> {
    let Some(mut duckdb) = Duckdb::start()? else { return Ok(None) };
    for (rows, times) in
        nexmark::events(events, true)?.iter().zip([&["date_time"][..], &["date_time", "expires"], &["date_time"]])
    {
        duckdb.load(rows.name, &rows.csv, times)?;
    }
    Ok(Some(duckdb))
}
