//! The costs that handlers are predicted to have, from a sample of records, and what they then take over other records
//! of the same stream, in batches that were just copied and checked as a context does it.
//!
//! `cargo run --release -p crossdock-engine --example predicted [how many handlers] [seed]`
#![allow(clippy::unwrap_used, clippy::print_stdout)] // an example that cannot go on may panic; its output is its purpose

use std::hint::black_box;
use std::time::{Duration, Instant};

use crossdock_engine::{Handler, HandlerProgram, Natives, Sink, measure};
use crossdock_format::{Format, RecordBuilder};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use fastrand::Rng;

const SCHEMA: &str = "carrier char[2]\nflight i32\ntailnum string null\norigin char[3]\ndest char[3]\ndep_delay i32 null\n\
    arr_delay i32 null\nair_time f32 null\ndistance i32\ntime_hour timestamp\nnote string\n";
const PACKET_BYTES: usize = 63_000;
/// The records of a run: more than any cache holds.
const PACKETS: usize = 1000;
const RUN: Duration = Duration::from_millis(150);
const PIECE_NS: f64 = 250_000.0;

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
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().unwrap());
    let (count, seed) = (arguments.next().unwrap_or(50), arguments.next().unwrap_or(2013));
    let mut random = Rng::with_seed(seed);
    let format = Format::parse_schema(SCHEMA).unwrap();
    let natives = Natives::built_in();
    let packets: Vec<Vec<u8>> = (0..PACKETS).map(|_| packet(&format, &mut random)).collect();
    let sample = packet(&format, &mut random);
    let (mut alone, mut shared) = (Vec::new(), Vec::new());
    println!("predicted   alone  shared  ns a record (batch of; a batch, a record, tail; measured in)");
    let neighbour = HandlerProgram::sql("SELECT origin, dest, distance * 2 AS d FROM A WHERE dep_delay > 0");
    for _ in 0..count {
        let program = program(&mut random);
        let in_batch = [1, 4, 20, 100, 1000][random.usize(0..5)];
        let began = Instant::now();
        let mut make = || program.make(&natives, &format).unwrap().handler;
        let measured = measure(&mut make, &format, &sample, in_batch).unwrap();
        let took_ms = began.elapsed().as_secs_f64() * 1e3;
        let ran = run(&mut *make(), None, &format, &packets, in_batch);
        let mut other = neighbour.make(&natives, &format).unwrap().handler;
        let beside = run(&mut *make(), Some(&mut *other), &format, &packets, in_batch);
        let predicted = measured.ns_of_batch(ran.1) / ran.1;
        println!(
            "{predicted:9.1} {:7.1} {:7.1}  {:+.2} {:+.2} ({:.0}; {:.1}, {:.1}, {:.0}; {took_ms:.0} ms) {:?} {:?}",
            ran.0,
            beside.0,
            predicted / ran.0 - 1.0,
            predicted / beside.0 - 1.0,
            ran.1,
            measured.ns_per_batch,
            measured.mean_ns,
            measured.tail_ns,
            program.source,
            program.parameters
        );
        alone.push((predicted / ran.0 - 1.0).abs());
        shared.push((predicted / beside.0 - 1.0).abs());
    }
    for (name, errors) in [("alone", &mut alone), ("shared", &mut shared)] {
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| errors[(errors.len() as f64 * share) as usize];
        println!("{name}: relative error p50 {:.3}, p90 {:.3}, most {:.3}", at(0.5), at(0.9), at(0.999));
    }
}

/// Runs a handler for a while; ns a record, and records a batch. The median over pieces of a quarter of a millisecond: what
/// was interrupted is not the handler's.
fn run(
    handler: &mut dyn Handler,
    mut neighbour: Option<&mut dyn Handler>,
    format: &Format,
    packets: &[Vec<u8>],
    in_batch: usize,
) -> (f64, f64) {
    let mut pool = Pool::new(PoolConfig { classes: vec![(64 << 10, 8)] }).unwrap();
    let (mut batch, mut selection, mut out) = (Batch::new(), Selection::default(), Buffered(Vec::new()));
    let clock_ns = clock_ns();
    let (mut spent_ns, mut records, mut batches) = (0.0, 0, 0);
    let mut pieces: Vec<(f64, f64)> = Vec::new();
    let mut held = std::collections::VecDeque::new();
    let began = Instant::now();
    'all: for packet in packets.iter().cycle() {
        held.truncate(6);
        let mut buffer = pool.alloc(64 << 10).unwrap();
        buffer[..packet.len()].copy_from_slice(packet);
        let mut spans = Vec::new();
        format.check_records(packet, |start, len| spans.push(Span { slice: 0, start, len })).unwrap();
        let buffer = buffer.freeze();
        held.push_front(buffer.clone());
        for piece in spans.chunks(in_batch) {
            batch.clear();
            batch.format = format.id().0;
            batch.push_buffer(buffer.clone()).unwrap();
            batch.records.extend_from_slice(piece);
            let len = piece.iter().map(|span| span.len).sum();
            batch.push_slice(Slice { buffer: 0, start: piece[0].start, len, records: piece.len() as u32 }).unwrap();
            if let Some(neighbour) = &mut neighbour {
                selection.select_all(batch.len());
                black_box(neighbour.process(&batch, &mut selection, &mut out));
            }
            selection.select_all(batch.len());
            let start = Instant::now();
            black_box(handler.process(&batch, &mut selection, &mut out));
            spent_ns += start.elapsed().as_nanos() as f64 - clock_ns;
            (records, batches) = (records + piece.len(), batches + 1);
            if spent_ns > PIECE_NS {
                pieces.push((spent_ns / records as f64, records as f64 / f64::from(batches)));
                (spent_ns, records, batches) = (0.0, 0, 0);
            }
            if began.elapsed() > RUN {
                break 'all;
            }
        }
    }
    pieces.sort_by(|one, other| one.0.total_cmp(&other.0));
    pieces.get(pieces.len() / 2).copied().unwrap_or((spent_ns / records as f64, records as f64 / f64::from(batches)))
}

/// The cost of asking for the time.
fn clock_ns() -> f64 {
    let start = Instant::now();
    for _ in 0..1000 {
        black_box(Instant::now());
    }
    start.elapsed().as_nanos() as f64 / 1000.0
}

fn program(random: &mut Rng) -> HandlerProgram {
    let native = HandlerProgram::native;
    match random.usize(0..10) {
        0 => native("work").with("ns", random.u64(0..300).to_string()),
        1 => native("work").with("ns", random.u64(0..5000).to_string()).with("every", random.u64(1..50).to_string()),
        2 => native("sample").with("every", random.u64(1..20).to_string()),
        3 => native("number"),
        4 => native("tally")
            .with("key", ["carrier", "dest", "carrier,origin,dest"][random.usize(0..3)])
            .with("sum", "distance"),
        5 => {
            native("changes").with("key", "tailnum").with("fields", ["dest", "dep_delay,arr_delay"][random.usize(0..2)])
        }
        _ => HandlerProgram::sql(sql(random)),
    }
}

fn sql(random: &mut Rng) -> String {
    let list = [
        "*",
        "carrier, flight, dest, dep_delay",
        "carrier, flight, tailnum, note",
        "flight, dep_delay + arr_delay AS delay, distance / 2 AS half",
        "CASE WHEN dep_delay > 15 THEN 'late' ELSE 'fine' END AS is, origin || dest AS leg",
    ];
    let conditions = [
        "dep_delay > 15",
        "origin = 'JFK'",
        "dest IN ('LAX', 'SFO', 'ORD')",
        "tailnum LIKE 'N1%'",
        "note LIKE '%xy%'",
        "dep_delay + arr_delay > 5",
        "air_time BETWEEN 100 AND 900",
        "(carrier = 'UA' OR distance > 1000)",
    ];
    let mut sql = format!("SELECT {} FROM A", list[random.usize(0..list.len())]);
    for number in 0..random.usize(0..4) {
        sql.push_str(if number == 0 { " WHERE " } else { " AND " });
        sql.push_str(conditions[random.usize(0..conditions.len())]);
    }
    sql
}

fn packet(format: &Format, random: &mut Rng) -> Vec<u8> {
    let mut row = RecordBuilder::new(format);
    let mut packet = Vec::new();
    loop {
        fill(format, random, &mut row);
        let record = row.finish().unwrap();
        if packet.len() + record.len() > PACKET_BYTES {
            return packet;
        }
        packet.extend_from_slice(record);
    }
}

fn fill(format: &Format, random: &mut Rng, row: &mut RecordBuilder) {
    const PLACES: [&str; 8] = ["EWR", "JFK", "LGA", "LAX", "SFO", "ORD", "ATL", "BOS"];
    row.clear();
    let of = |name: &str| format.field(name).unwrap();
    row.set_text(of("carrier"), ["UA", "AA", "B6", "DL"][random.usize(0..4)]).unwrap();
    row.set_i64(of("flight"), random.i64(1..5000)).unwrap();
    if random.u8(0..20) > 0 {
        row.set_text(of("tailnum"), format!("N{}AA", random.u16(100..999))).unwrap();
    }
    row.set_text(of("origin"), PLACES[random.usize(0..3)]).unwrap();
    row.set_text(of("dest"), PLACES[random.usize(3..8)]).unwrap();
    for name in ["dep_delay", "arr_delay"] {
        if random.u8(0..40) > 0 {
            row.set_i64(of(name), random.i64(-20..60)).unwrap();
        }
    }
    row.set_f64(of("air_time"), random.i64(20..2000) as f64).unwrap();
    row.set_i64(of("distance"), random.i64(80..5000)).unwrap();
    row.set_timestamp(of("time_hour"), 1_357_016_400_000_000_000).unwrap();
    row.set_text(of("note"), "wxyz".repeat(random.usize(0..12))).unwrap();
}
