//! The cost of a query for a record, in nanoseconds, over records of 300 bytes in batches of a super-packet.
//!
//! `cargo run --release -p crossdock-engine --example select_ns`
#![allow(clippy::unwrap_used, clippy::print_stdout)] // an example that cannot go on may panic; its output is its purpose

use std::hint::black_box;
use std::time::Instant;

use crossdock_engine::{Handler, SelectHandler, Sink};
use crossdock_format::{Format, RecordBuilder};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use crossdock_query::parse;

const SCHEMA: &str = "year i16\nmonth i8\nday i8\ndep_time i32 null\nsched_dep_time i32\ndep_delay i32 null\narr_time i32 null\n\
    arr_delay i32 null\ncarrier char[2]\nflight i32\ntailnum string null\norigin char[3]\ndest char[3]\nair_time i32 null\n\
    distance i32\ntime_hour timestamp\npassenger_list string\nmeal_preference char[16]\n";
const PACKET_BYTES: usize = 63_000;

/// Takes rows as an output would: into one buffer.
struct Buffered(Vec<u8>);

impl Sink for Buffered {
    fn push(&mut self, record: &[u8]) {
        if self.0.len() + record.len() > PACKET_BYTES {
            self.0.clear();
        }
        self.0.extend_from_slice(record);
    }
}

fn main() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let batches = batches(&format, 20);
    let records: usize = batches.iter().map(Batch::len).sum();
    println!("{} batches, {records} records of {} bytes", batches.len(), batches[0].record(0).len());
    for (name, sql) in [
        ("few match", "SELECT * FROM A WHERE origin = 'JFK' AND dest = 'LAX' AND dep_delay > 15"),
        (
            "few match, 4 fields",
            "SELECT carrier, flight, dest, dep_delay FROM A WHERE origin='JFK' AND dest='LAX' AND dep_delay > 15",
        ),
        ("half match", "SELECT * FROM A WHERE flight < 2500"),
        ("third match, 4 fields", "SELECT carrier, flight, dest, dep_delay FROM A WHERE origin = 'JFK'"),
        ("all match, 4 fields", "SELECT carrier, flight, dest, dep_delay FROM A"),
        ("all match, a string too", "SELECT carrier, flight, dest, tailnum FROM A"),
        ("all match, computed", "SELECT carrier, flight, dest, dep_delay * 60 AS s FROM A"),
        ("in list", "SELECT * FROM A WHERE dest IN ('LAX', 'SFO', 'ORD')"),
        ("string equals", "SELECT * FROM A WHERE tailnum = 'N123AA'"),
        ("interpreted", "SELECT * FROM A WHERE dep_delay + arr_delay > 60"),
    ] {
        let mut handler = SelectHandler::new(parse(sql).unwrap().plan(&format).unwrap());
        let mut sink = Buffered(Vec::with_capacity(2 * PACKET_BYTES));
        let mut selection = Selection::default();
        let mut best = f64::INFINITY;
        for _ in 0..200 {
            let start = Instant::now();
            for batch in &batches {
                selection.select_all(batch.len());
                black_box(handler.process(batch, &mut selection, &mut sink));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / records as f64);
        }
        let counters = handler.counters();
        let share = counters.passed as f64 / counters.records_in as f64;
        println!("{best:7.2} ns a record  {:5.1} % pass  {name}", 100.0 * share);
    }
}

fn batches(format: &Format, count: usize) -> Vec<Batch> {
    let mut random = fastrand::Rng::with_seed(2013);
    let mut pool = Pool::new(PoolConfig { classes: vec![(64 << 10, count)] }).unwrap();
    let mut row = RecordBuilder::new(format);
    (0..count).map(|_| batch(format, &mut random, &mut pool, &mut row)).collect()
}

fn batch(format: &Format, random: &mut fastrand::Rng, pool: &mut Pool, row: &mut RecordBuilder) -> Batch {
    let mut buffer = pool.alloc(64 << 10).unwrap();
    let mut spans = Vec::new();
    let mut end = 0;
    loop {
        fill(format, random, row);
        let record = row.finish().unwrap();
        if end + record.len() > PACKET_BYTES {
            break;
        }
        buffer[end..end + record.len()].copy_from_slice(record);
        spans.push(Span { slice: 0, start: end as u32, len: record.len() as u32 });
        end += record.len();
    }
    let mut batch = Batch::new();
    batch.format = format.id().0;
    batch.push_buffer(buffer.freeze()).unwrap();
    batch.push_slice(Slice { buffer: 0, start: 0, len: end as u32, records: spans.len() as u32 }).unwrap();
    batch.records = spans;
    batch.select_all();
    batch
}

fn fill(format: &Format, random: &mut fastrand::Rng, row: &mut RecordBuilder) {
    const ORIGINS: [&str; 3] = ["EWR", "JFK", "LGA"];
    const DESTS: [&str; 10] = ["ATL", "BOS", "CLT", "FLL", "LAX", "MCO", "MIA", "ORD", "SFO", "TPA"];
    row.clear();
    let of = |name: &str| format.field(name).unwrap();
    for name in ["sched_dep_time", "dep_time", "arr_time", "arr_delay", "air_time", "distance"] {
        row.set_i64(of(name), random.i64(0..2400)).unwrap();
    }
    row.set_i64(of("year"), 2013).unwrap();
    row.set_i64(of("month"), random.i64(1..13)).unwrap();
    row.set_i64(of("day"), random.i64(1..29)).unwrap();
    if random.u8(0..40) > 0 {
        row.set_i64(of("dep_delay"), random.i64(-20..25)).unwrap();
    }
    row.set_i64(of("flight"), random.i64(1..5000)).unwrap();
    row.set_text(of("carrier"), ["UA", "AA", "B6", "DL"][random.usize(0..4)]).unwrap();
    row.set_text(of("tailnum"), format!("N{}AA", random.u16(100..999))).unwrap();
    row.set_text(of("origin"), ORIGINS[random.usize(0..3)]).unwrap();
    row.set_text(of("dest"), DESTS[random.usize(0..10)]).unwrap();
    row.set_timestamp(of("time_hour"), 1_357_016_400_000_000_000).unwrap();
    row.set_text(of("passenger_list"), "x".repeat(185)).unwrap();
    row.set_text(of("meal_preference"), "vegetarian").unwrap();
}
