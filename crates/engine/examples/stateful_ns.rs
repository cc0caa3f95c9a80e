//! The cost of queries with state for a record, in nanoseconds of the thread: many groups in windows that overlap, groups of groups, joins with windows,
//! flights with their latest weather, the last record by key. Each round begins with an empty state, but for that of the last records, which has
//! all keys.
//!
//! `cargo run --release -p crossdock-engine --example stateful_ns [CASE [ROUNDS [THOUSANDS]]]`; `valgrind --tool=callgrind
//! --toggle-collect='stateful_ns::run' …` counts its instructions.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // an example that cannot go on may panic; its output is its purpose

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use crossdock_engine::{Handler, Sink, StatefulHandler};
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use crossdock_query::{KeyedState, Query, StatefulQuery, parse_query};

const READING: &str = "sensor i64\nvalue i64\nts timestamp\n";
const AUCTION: &str = "id i64\ncategory i64\ndate_time timestamp\nexpires timestamp\n";
const BID: &str = "auction i64\nbidder i64\nprice i64\nchannel string\nurl string\ndate_time timestamp\n";
const FLIGHT: &str =
    "year i32\ncarrier char[2]\nflight i32\norigin char[3]\ndest char[3]\ndep_delay f64 null\ntime_hour timestamp\n";
const WEATHER: &str = "origin char[3]\ntemp f64 null\nwind_speed f64 null\nvisib f64 null\ntime_hour timestamp\n";
const KEYED: &str = "k i64\nsent timestamp\nv i64\nnote char[72]\n";
/// Records that come, in thousands, where no other number is given.
const THOUSANDS: i64 = 1000;
/// From one event to the next, in ns.
const EVERY: i64 = 100_000;
const PACKET_BYTES: usize = 63_000;

const CASES: [(&str, &str); 6] = [
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
    (
        "highest",
        "WITH most AS (SELECT window_end AS ends, max(price) AS price FROM bid GROUP BY TUMBLE(date_time, INTERVAL '10 seconds'))
          SELECT b.auction, b.bidder, b.price, b.date_time FROM bid b JOIN most m
          ON b.price = m.price AND b.date_time >= m.ends - INTERVAL '10 seconds' AND b.date_time < m.ends",
    ),
    (
        "asof",
        "SELECT f.carrier, f.flight, f.origin, f.dest, f.time_hour, f.dep_delay, w.temp, w.wind_speed, w.visib
         FROM flight f ASOF JOIN weather w ON f.origin = w.origin AND f.time_hour >= w.time_hour
         WHERE f.year < 2014 LATENESS INTERVAL '0 seconds'",
    ),
    // The state of a stream has no text.
    ("latest", ""),
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

fn readings(events: i64) -> Vec<(&'static str, Packets)> {
    let (mut packets, mut random) = (Packets::new(READING), fastrand::Rng::with_seed(1));
    for event in 0..events {
        let ts = Value::Timestamp(event * EVERY);
        packets.push(&[Value::Int(random.i64(0..100_000)), Value::Int(random.i64(0..1000)), ts]);
    }
    packets.end();
    vec![("reading", packets)]
}

/// Of 49 events three are auctions, all others bids: half of them for the newest auction of a hundred.
fn auctions(events: i64) -> Vec<(&'static str, Packets)> {
    let (mut auctions, mut bids) = (Packets::new(AUCTION), Packets::new(BID));
    let mut random = fastrand::Rng::with_seed(2);
    let mut last = 0;
    for event in 0..events {
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

/// Every hour the weather of three airports, and 39 flights from them.
fn flights(events: i64) -> Vec<(&'static str, Packets)> {
    let (mut flights, mut weather) = (Packets::new(FLIGHT), Packets::new(WEATHER));
    let mut random = fastrand::Rng::with_seed(3);
    let mut float = move || if random.u8(..) < 5 { Value::Null } else { Value::Float(f64::from(random.i16(..)) / 8.0) };
    let origins = ["EWR", "JFK", "LGA"];
    for event in 0..events {
        let time = Value::Timestamp(event / 42 * 3_600_000_000_000);
        let origin = Value::Text(origins[event as usize * 7 / 5 % 3].as_bytes());
        if event % 42 < 3 {
            weather.push(&[origin, float(), float(), float(), time]);
        } else {
            let (carrier, dest) = (Value::Text(b"UA"), Value::Text(b"IAH"));
            flights.push(&[Value::Int(2013), carrier, Value::Int(event % 5000), origin, dest, float(), time]);
        }
    }
    flights.end();
    weather.end();
    vec![("flight", flights), ("weather", weather)]
}

/// A record of each of as many keys as there are records of keys by chance.
fn keyed(events: i64, by_chance: bool) -> Vec<(&'static str, Packets)> {
    let (mut packets, mut random) = (Packets::new(KEYED), fastrand::Rng::with_seed(4));
    for event in 0..events {
        let key = if by_chance { random.i64(0..events) } else { event };
        packets.push(&[Value::Int(key), Value::Timestamp(0), Value::Int(key * 7), Value::Text(&[b'n'; 72])]);
    }
    packets.end();
    vec![("keyed", packets)]
}

/// The query of a case.
fn query(sql: &str) -> StatefulQuery {
    if sql.is_empty() {
        let (stream, key) = ("keyed".to_owned(), vec!["k".to_owned()]);
        let (max_keys, max_bytes) = (4 << 20, 1 << 30);
        return StatefulQuery::of_state(KeyedState { stream, key, max_keys, max_bytes, max_age_ns: None });
    }
    match parse_query(sql).unwrap() {
        Query::Stateful(query) => query,
        Query::Select(_) => panic!("it has no state: {sql}"),
    }
}

fn main() {
    let case = std::env::args().nth(1).unwrap_or_default();
    let rounds = std::env::args().nth(2).map_or(5, |rounds| rounds.parse().unwrap());
    let events = 1000 * std::env::args().nth(3).map_or(THOUSANDS, |thousands| thousands.parse().unwrap());
    let chosen = |(name, _): &&(&str, &str)| case.is_empty() || *name == case;
    for (name, sql) in CASES.iter().filter(chosen) {
        let streams = match *name {
            "hop" => readings(events),
            "asof" => flights(events),
            "latest" => keyed(events, true),
            _ => auctions(events),
        };
        let query = query(sql);
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
            if *name == "latest" {
                fill(&mut handlers, &keyed(events, false));
            }
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

/// All batches of a stream, without the first handler's output.
fn fill(handlers: &mut [StatefulHandler], streams: &[(&str, Packets)]) {
    let mut selection = Selection::default();
    for batch in streams.iter().flat_map(|(_, of)| &of.batches) {
        selection.select_all(batch.len());
        handlers[0].process(batch, &mut selection, &mut Counted::default());
    }
}

/// The processor time of this thread: other programs count less in it than in the time that goes by.
fn cpu_ns() -> f64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

/// All batches, those of the streams in turn by their share of all.
#[inline(never)]
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
