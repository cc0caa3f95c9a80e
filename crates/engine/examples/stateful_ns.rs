//! The cost of queries with state for a record, in nanoseconds of the thread: many groups in windows that overlap, groups of groups, a join of windows.
//! Each round begins with an empty state.
//!
//! `cargo run --release -p crossdock-engine --example stateful_ns [CASE [ROUNDS]]`
#![allow(clippy::unwrap_used, clippy::print_stdout)] // an example that cannot go on may panic; its output is its purpose

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use crossdock_engine::{Handler, Sink, StatefulHandler};
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use crossdock_query::{Query, parse_query};

const READING: &str = "sensor i64\nvalue i64\nts timestamp\n";
const AUCTION: &str = "id i64\ncategory i64\ndate_time timestamp\nexpires timestamp\n";
const BID: &str = "auction i64\nbidder i64\nprice i64\nchannel string\nurl string\ndate_time timestamp\n";
const EVENTS: i64 = 1_000_000;
/// From one event to the next, in ns.
const EVERY: i64 = 100_000;
const PACKET_BYTES: usize = 63_000;

const CASES: [(&str, &str); 3] = [
    (
        "hop",
        "SELECT sensor, window_start, count(*) AS readings, sum(value) AS total FROM reading
         GROUP BY sensor, HOP(ts, INTERVAL '20 seconds', INTERVAL '60 seconds')
         HAVING window_start < TIMESTAMP '1970-01-01 00:00:40'",
    ),
    (
        "corrected",
        "SELECT category, avg(final) AS average FROM (
             SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b
             ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
             GROUP BY a.id, a.category) q
         GROUP BY category",
    ),
    (
        "most",
        "WITH counts AS (SELECT auction, window_start AS starts, count(*) AS bids FROM bid
                         GROUP BY auction, HOP(date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')),
               most AS (SELECT window_start AS starts, max(bids) AS bids FROM counts
                        GROUP BY TUMBLE(starts, INTERVAL '2 seconds'))
          SELECT c.auction, c.starts, c.bids FROM counts c JOIN most m ON c.bids = m.bids AND c.starts = m.starts",
    ),
];

/// Counts rows, and adds up their words in any order.
#[derive(Default)]
struct Counted(u64, u64);

impl Sink for Counted {
    fn push(&mut self, record: &[u8]) {
        self.0 += 1;
        let words = record.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        self.1 = self.1.wrapping_add(words.fold(0, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
}

/// Batches of a packet each.
struct Packets {
    format: Format,
    row: RecordBuilder,
    bytes: Vec<u8>,
    spans: Vec<Span>,
    batches: Vec<Batch>,
    records: usize,
}

impl Packets {
    fn new(schema: &str) -> Packets {
        let format = Format::parse_schema(schema).unwrap();
        let row = RecordBuilder::new(&format);
        Packets { format, row, bytes: Vec::new(), spans: Vec::new(), batches: Vec::new(), records: 0 }
    }

    fn push(&mut self, values: &[Value<'_>]) {
        self.row.clear();
        values.iter().enumerate().for_each(|(index, value)| self.row.set(index, *value).unwrap());
        let record = self.row.finish().unwrap();
        self.spans.push(Span { slice: 0, start: self.bytes.len() as u32, len: record.len() as u32 });
        self.bytes.extend_from_slice(record);
        self.records += 1;
        if self.bytes.len() > PACKET_BYTES - 1000 {
            self.end();
        }
    }

    fn end(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let mut pool = Pool::new(PoolConfig { classes: vec![(64 << 10, 1)] }).unwrap();
        let mut buffer = pool.alloc(64 << 10).unwrap();
        buffer[..self.bytes.len()].copy_from_slice(&self.bytes);
        let mut batch = Batch::new();
        batch.format = self.format.id().0;
        batch.push_buffer(buffer.freeze()).unwrap();
        let (len, records) = (self.bytes.len() as u32, self.spans.len() as u32);
        batch.push_slice(Slice { buffer: 0, start: 0, len, records }).unwrap();
        batch.records = std::mem::take(&mut self.spans);
        batch.select_all();
        self.batches.push(batch);
        self.bytes.clear();
    }
}

fn readings() -> Vec<(&'static str, Packets)> {
    let (mut packets, mut random) = (Packets::new(READING), fastrand::Rng::with_seed(1));
    for event in 0..EVENTS {
        let ts = Value::Timestamp(event * EVERY);
        packets.push(&[Value::Int(random.i64(0..100_000)), Value::Int(random.i64(0..1000)), ts]);
    }
    packets.end();
    vec![("reading", packets)]
}

/// Of 49 events three are auctions, all others bids: half of them for the newest auction of a hundred.
fn auctions() -> Vec<(&'static str, Packets)> {
    let (mut auctions, mut bids) = (Packets::new(AUCTION), Packets::new(BID));
    let mut random = fastrand::Rng::with_seed(2);
    let mut last = 0;
    for event in 0..EVENTS {
        let ns = event * EVERY;
        if event % 49 < 3 {
            let expires = Value::Timestamp(ns + random.i64(1..20_000) * 1_000_000);
            auctions.push(&[Value::Int(last), Value::Int(random.i64(10..15)), Value::Timestamp(ns), expires]);
            last += 1;
        } else {
            let auction = if random.bool() { last / 100 * 100 } else { random.i64((last - 1000).max(0)..=last) };
            let url = format!("https://www.example.org/{:08x}/item.htm", random.u32(..));
            let values = [
                Value::Int(auction),
                Value::Int(random.i64(0..1000)),
                Value::Int(random.i64(1..10_000_000)),
                Value::Text(b"Google"),
                Value::Text(url.as_bytes()),
                Value::Timestamp(ns),
            ];
            bids.push(&values);
        }
    }
    auctions.end();
    bids.end();
    vec![("auction", auctions), ("bid", bids)]
}

fn main() {
    let case = std::env::args().nth(1).unwrap_or_default();
    let rounds = std::env::args().nth(2).map_or(5, |rounds| rounds.parse().unwrap());
    let chosen = |(name, _): &&(&str, &str)| case.is_empty() || *name == case;
    for (name, sql) in CASES.iter().filter(chosen) {
        let streams = if *name == "hop" { readings() } else { auctions() };
        let Query::Stateful(query) = parse_query(sql).unwrap() else { continue };
        let formats: Vec<(&str, &Format)> = streams.iter().map(|(stream, of)| (*stream, &of.format)).collect();
        let values = BTreeMap::new();
        let program = Arc::new(query.plan(&formats, &values).unwrap());
        let is_read = |stream: &str| program.sources.iter().any(|source| source.stream == stream);
        let streams: Vec<&(&str, Packets)> = streams.iter().filter(|(stream, _)| is_read(stream)).collect();
        let records: usize = streams.iter().map(|(_, of)| of.records).sum();
        let mut took = Vec::new();
        let mut out = Counted::default();
        for _ in 0..rounds {
            let readers = |of: &(&str, Packets)| query.readers(&program, of.0, &of.1.format, &values).unwrap();
            let handler = |of: &&(&str, Packets)| StatefulHandler::new(Arc::clone(&program), readers(of)).unwrap();
            let mut handlers: Vec<StatefulHandler> = streams.iter().map(handler).collect();
            out = Counted::default();
            let start = cpu_ns();
            run(&mut handlers, &streams, &mut out);
            took.push((cpu_ns() - start) / records as f64);
        }
        took.sort_by(f64::total_cmp);
        let Counted(rows, sum) = out;
        println!("{:7.1} ns a record, {:7.1} at best  {name}: {rows} rows, {sum:016x}", took[took.len() / 2], took[0]);
    }
}

/// The processor time of this thread: other programs count less in it than in the time that goes by.
fn cpu_ns() -> f64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

/// All batches, those of the streams in turn by their share of all.
fn run(handlers: &mut [StatefulHandler], streams: &[&(&str, Packets)], out: &mut Counted) {
    let mut selection = Selection::default();
    let mut turn = 0;
    let steps = streams.iter().map(|(_, of)| of.batches.len()).min().unwrap_or(0);
    for step in 0..steps {
        for (number, (_, of)) in streams.iter().enumerate() {
            if number != turn {
                let state = handlers[turn].hand_over().unwrap();
                handlers[number].take_over(state).unwrap();
                turn = number;
            }
            let place = |step: usize| of.batches.len() * step / steps;
            for batch in &of.batches[place(step)..place(step + 1)] {
                selection.select_all(batch.len());
                black_box(handlers[number].process(batch, &mut selection, out));
            }
        }
    }
}
