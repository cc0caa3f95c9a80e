//! The processes of the broker benchmark: publisher, subscriber, the two ends of a round trip, the relay.
//!
//! Each prints a line of JSON when it is ready and another when it is done; a role that has to start at a given moment waits for
//! a line on standard input.

use super::relay;
use crate::cpu::Error;
use crate::flights::{self, RECORD_BYTES, SENT};
use crate::process::{say, wait_for_go};
use crate::report::quantile;
use clap::Subcommand;
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Event, Publisher, PublisherBuilder, Subscriber, SubscriberBuilder, Transport};
use serde_json::json;
use std::io::{BufRead, BufWriter, Write};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A subscriber to which nothing came for this time fails: records were lost, or the daemon stands still.
const PATIENCE: Duration = Duration::from_secs(30);

/// The task of a process of the benchmark.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// Publishes flights
    Publish {
        addr: String,
        stream: String,
        count: u64,
        rate: u64,
        sql: String,
        #[arg(long, default_value_t = Transport::Udp)]
        transport: Transport,
    },
    /// Counts what a query selects
    Subscribe {
        addr: String,
        sql: String,
        #[arg(long, default_value_t = Transport::Udp)]
        transport: Transport,
    },
    /// Sends one message at a time and waits for its echo
    Ping { addr: String, count: u64 },
    /// Sends every message back
    Echo { addr: String },
    /// Runs the product with these arguments and counts the lines that it prints
    CountLines {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// The baseline's processes
    #[command(subcommand)]
    Relay(relay::Role),
}

impl Role {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self {
            Role::Publish { addr, stream, count, rate, sql, transport } => {
                let publisher = Publisher::builder(addr).transport(transport).stream(&stream);
                publish(publisher, count, rate, &sql)
            }
            Role::Subscribe { addr, sql, transport } => {
                subscribe(Subscriber::builder(addr).transport(transport).sql(&sql))
            }
            Role::Ping { addr, count } => ping(&addr, count),
            Role::Echo { addr } => echo(&addr),
            Role::CountLines { args } => count_lines(&args),
            Role::Relay(role) => role.run(),
        }
    }
}

/// The time of day in ns, the same for all processes of the machine.
fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64)
}

/// How many of `count` flights, over and over from the first, the case's query selects: read from the bytes as the
/// benchmark made them, not by the product.
fn selected(format: &Format, records: &[u8], count: u64, sql: &str) -> u64 {
    let passes = |bytes: &[u8]| -> bool {
        let record = crossdock_format::Record::assume_checked(format, bytes);
        let text = |name: &str| match format.field(name).map(|f| record.get(f)) {
            Some(Value::Text(text)) => text.to_vec(),
            _ => Vec::new(),
        };
        let float = |name: &str| match format.field(name).map(|f| record.get(f)) {
            Some(Value::Float(value)) => value,
            Some(Value::Int(value)) => value as f64,
            _ => f64::NAN,
        };
        if sql.contains("origin") {
            text("origin") == b"JFK" && text("dest") == b"LAX" && float("dep_delay") > 15.0
        } else {
            !sql.contains("minute") || float("minute") < 30.0
        }
    };
    let total = (records.len() / RECORD_BYTES) as u64;
    let prefix = |n: u64| records.chunks(RECORD_BYTES).take(n as usize).filter(|r| passes(r)).count() as u64;
    count / total * prefix(total) + prefix(count % total)
}

fn publish(publisher: PublisherBuilder, count: u64, rate: u64, sql: &str) -> Result<(), Error> {
    let format = flights::format()?;
    let mut records = flights::records(&format, 336_776)?;
    let mut publisher = publisher.format(&format).connect()?;
    say(&json!({"selected": selected(&format, &records, count, sql)}));
    wait_for_go()?;
    match NonZero::new(rate) {
        None => publish_unpaced(publisher, &records, count),
        Some(rate) => {
            publish_paced(&mut publisher, &mut records, flights::sent_offset(&format), count, rate)?;
            finish(publisher)
        }
    }
}

/// Publishes `count` records, the same again and again, as fast as the daemon takes them, and reports that.
pub(crate) fn publish_unpaced(mut publisher: Publisher, records: &[u8], count: u64) -> Result<(), Error> {
    let mut left = count as usize;
    while left > 0 {
        let now = left.min(records.len() / RECORD_BYTES);
        publisher.publish_all(records.chunks(RECORD_BYTES).take(now))?;
        left -= now;
    }
    finish(publisher)
}

/// Ends a publisher once the daemon has all records, and reports what it did.
fn finish(publisher: Publisher) -> Result<(), Error> {
    let summary = publisher.finish()?;
    say(&json!({"records": summary.records, "resent": summary.resent_packets}));
    Ok(())
}

/// Publishes `count` records at `rate` a second, each stamped with the time of the call.
fn publish_paced(
    publisher: &mut Publisher,
    records: &mut [u8],
    sent_at: usize,
    count: u64,
    rate: NonZero<u64>,
) -> Result<(), Error> {
    let start = Instant::now();
    for (i, record) in records.chunks_mut(RECORD_BYTES).take(count as usize).enumerate() {
        let due = Duration::from_nanos(i as u64 * 1_000_000_000 / rate);
        while start.elapsed() < due {
            // A nap only where there is time for one: the publisher's own lateness is not what is measured.
            if due.saturating_sub(start.elapsed()) > Duration::from_micros(100) {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        record[sent_at..sent_at + 8].copy_from_slice(&now_ns().to_le_bytes());
        publisher.publish(record)?;
    }
    Ok(())
}

fn subscribe(subscriber: SubscriberBuilder) -> Result<(), Error> {
    let subscriber = subscriber.connect()?;
    say(&json!({"ready": true}));
    count_records(subscriber)
}

/// Takes records until the stream's publishers have ended, and reports how many and their latencies.
pub(crate) fn count_records(mut subscriber: Subscriber) -> Result<(), Error> {
    let sent = subscriber.format().and_then(|f| f.field("sent"));
    let mut count = 0u64;
    let mut latencies_ns = Vec::new();
    loop {
        match subscriber.next_event(Some(PATIENCE))? {
            None => return Err(format!("nothing came for {} s after {count} records", PATIENCE.as_secs()).into()),
            Some(Event::Records(records)) => {
                count += records.len() as u64;
                let now = now_ns();
                let Some(sent) = sent else { continue };
                for record in records.iter() {
                    match record.get(sent) {
                        Value::Timestamp(0) => break, // a throughput run: nothing is stamped
                        Value::Timestamp(at) => latencies_ns.push((now - at).max(0) as u64),
                        _ => {}
                    }
                }
            }
            Some(Event::StreamEnded { publishers_left: 0, .. }) => break,
            Some(Event::Dropped { records, reason, .. }) => return Err(format!("{records} dropped: {reason}").into()),
            _ => {}
        }
    }
    let (p50, p99) = (quantile(&mut latencies_ns, 0.5), quantile(&mut latencies_ns, 0.99));
    say(&json!({"records": count, "latency_ns_p50": p50, "latency_ns_p99": p99}));
    Ok(())
}

/// The message of a round trip: 300 bytes, as the flights.
fn message_format() -> Result<Format, Error> {
    Ok(Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new("filling", FieldType::String)])?)
}

/// One record, as soon as it is there.
fn next_record(subscriber: &mut Subscriber) -> Result<Vec<u8>, Error> {
    loop {
        match subscriber.next_event(None)? {
            Some(Event::Records(records)) => {
                return records.bytes().next().map(<[u8]>::to_vec).ok_or_else(|| "no record".into());
            }
            Some(Event::StreamEnded { .. }) => return Ok(Vec::new()),
            _ => {}
        }
    }
}

fn ping(addr: &str, count: u64) -> Result<(), Error> {
    let format = message_format()?;
    let mut publisher = Publisher::builder(addr).transport(Transport::Udp).stream("ping").format(&format).connect()?;
    let wait = Duration::from_secs(10);
    let mut subscriber = Subscriber::builder(addr)
        .transport(Transport::Udp)
        .sql("SELECT * FROM pong")
        .wait_for_stream(wait)
        .connect()?;
    let mut row = RecordBuilder::new(&format);
    let filling = "x".repeat(RECORD_BYTES - 24);
    let mut round_trips_ns = Vec::with_capacity(count as usize);
    // The other end may need a moment longer to subscribe: the first message that comes back starts the clock.
    let mut number = 0;
    loop {
        row.clear();
        row.set_u64(0, number)?;
        row.set_text(1, &filling)?;
        publisher.publish(row.finish()?)?;
        publisher.flush()?;
        if let Some(Event::Records(_)) = subscriber.next_event(Some(Duration::from_millis(50)))? {
            break;
        }
    }
    for _ in 0..count {
        number += 1;
        row.clear();
        row.set_u64(0, number)?;
        row.set_text(1, &filling)?;
        let start = Instant::now();
        publisher.publish(row.finish()?)?;
        publisher.flush()?;
        loop {
            let back = next_record(&mut subscriber)?;
            // Echoes of the messages before the clock started are let pass.
            if back.get(8..16) == Some(&number.to_le_bytes()) {
                break;
            }
        }
        round_trips_ns.push(start.elapsed().as_nanos() as u64);
    }
    publisher.finish()?;
    let (p50, p99) = (quantile(&mut round_trips_ns, 0.5), quantile(&mut round_trips_ns, 0.99));
    say(&json!({"rtt_ns_p50": p50, "rtt_ns_p99": p99}));
    Ok(())
}

fn echo(addr: &str) -> Result<(), Error> {
    let format = message_format()?;
    let mut publisher = Publisher::builder(addr).transport(Transport::Udp).stream("pong").format(&format).connect()?;
    let wait = Duration::from_secs(10);
    let mut subscriber = Subscriber::builder(addr)
        .transport(Transport::Udp)
        .sql("SELECT * FROM ping")
        .wait_for_stream(wait)
        .connect()?;
    say(&json!({"ready": true}));
    loop {
        let record = next_record(&mut subscriber)?;
        if record.is_empty() {
            publisher.finish()?;
            return Ok(());
        }
        publisher.publish(&record)?;
        publisher.flush()?;
    }
}

/// Starts the product, says so at once, and counts the lines of its output.
fn count_lines(args: &[String]) -> Result<(), Error> {
    let bin = std::env::var_os("CROSSDOCK_BIN").ok_or("CROSSDOCK_BIN is not set")?;
    let mut child = Command::new(bin).args(args).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or("no standard output")?;
    say(&json!({"ready": true}));
    let mut lines = 0u64;
    let mut reader = std::io::BufReader::with_capacity(1 << 16, stdout);
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            break;
        }
        lines += chunk.iter().filter(|&&b| b == b'\n').count() as u64;
        let len = chunk.len();
        reader.consume(len);
    }
    child.wait()?;
    say(&json!({"lines": lines}));
    Ok(())
}

/// The flights as JSON lines, and the schema file for them.
pub(super) fn write_json(path: &Path, schema: &str) -> Result<(), Error> {
    let format = flights::format()?;
    std::fs::write(schema, format.schema())?;
    let records = flights::records(&format, 336_776)?;
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    let encoder = crossdock_format::json::JsonEncoder::new(&format);
    let mut line = Vec::new();
    for bytes in records.chunks(RECORD_BYTES) {
        line.clear();
        encoder.record(&crossdock_format::Record::assume_checked(&format, bytes), &mut line);
        out.write_all(&line)?;
    }
    out.flush()?;
    debug_assert!(format.field("sent") == Some(SENT));
    Ok(())
}
