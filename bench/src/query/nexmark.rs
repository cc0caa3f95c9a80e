//! The events of the Nexmark benchmark (Tucker et al., "NEXMark: a benchmark for queries over data streams"): persons who sell, their
//! auctions, and bids, from a generator of our own with a fixed seed.
//!
//! Of 50 events one is a person, three are auctions, all others bids, as in the benchmark's usual generators. Half of the bids are for
//! the newest auction of a hundred, half of the auctions are of the newest seller of a hundred.

use super::rows::{Rows, StreamFields};
use crate::cpu::Error;
use crossdock_format::{FieldType, RecordBuilder, Value};
use fastrand::Rng;

/// Events of a block: one person, three auctions, and bids.
const BLOCK: u64 = 50;
const PERSONS: u64 = 1;
const AUCTIONS: u64 = 3;
/// The time of the first event, 2026-01-01 00:00 UTC in ns, and from each event to the next.
pub(super) const FIRST_NS: i64 = 1_767_225_600_000_000_000;
pub(super) const EVERY_NS: i64 = 100_000;
/// From one hot auction or seller to the next.
const HOT: u64 = 100;
/// Auctions and persons among which a bid or an auction that is not for the hot one chooses: the newest.
const ACTIVE: u64 = 1000;
const SEED: u64 = 0x4e45_584d;
const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];
const CITIES: [&str; 6] = ["Phoenix", "Los Angeles", "Boise", "Portland", "Seattle", "Cheyenne"];
const CHANNELS: [&str; 4] = ["Apple", "Google", "Facebook", "Baidu"];

/// The streams, each with its fields.
const STREAMS: [StreamFields; 3] = [
    (
        "person",
        &[
            ("id", FieldType::I64, false),
            ("name", FieldType::String, false),
            ("email", FieldType::String, false),
            ("city", FieldType::String, false),
            ("state", FieldType::Char(2), false),
            ("date_time", FieldType::Timestamp, false),
        ],
    ),
    (
        "auction",
        &[
            ("id", FieldType::I64, false),
            ("item", FieldType::String, false),
            ("initial_bid", FieldType::I64, false),
            ("reserve", FieldType::I64, false),
            ("date_time", FieldType::Timestamp, false),
            ("expires", FieldType::Timestamp, false),
            ("seller", FieldType::I64, false),
            ("category", FieldType::I64, false),
        ],
    ),
    (
        "bid",
        &[
            ("auction", FieldType::I64, false),
            ("bidder", FieldType::I64, false),
            ("price", FieldType::I64, false),
            ("channel", FieldType::String, false),
            ("url", FieldType::String, false),
            ("date_time", FieldType::Timestamp, false),
        ],
    ),
];

/// The first `count` events: the three streams, in the order of [`STREAMS`].
pub(super) fn events(count: u64, with_csv: bool) -> Result<Vec<Rows>, Error> {
    let [person, auction, bid] = STREAMS;
    let mut rows = [Rows::new(person, with_csv)?, Rows::new(auction, with_csv)?, Rows::new(bid, with_csv)?];
    let mut builders = [0, 1, 2].map(|of: usize| RecordBuilder::new(&rows[of].format));
    let mut random = Rng::with_seed(SEED);
    for event in 0..count {
        let (block, within) = (event / BLOCK, event % BLOCK);
        let ns = FIRST_NS + event as i64 * EVERY_NS;
        match within {
            0 => add_person(&mut rows[0], &mut builders[0], &mut random, (event, block, ns))?,
            1..=AUCTIONS => {
                let id = block * AUCTIONS + within - 1;
                add_auction(&mut rows[1], &mut builders[1], &mut random, (event, id, ns))?;
            }
            _ => add_bid(&mut rows[2], &mut builders[2], &mut random, (event, block, ns))?,
        }
    }
    Ok(rows.into())
}

/// One of the newest of `made`, for half of the calls the newest hot one.
fn newest(random: &mut Rng, made: u64) -> i64 {
    let last = made.saturating_sub(1);
    let chosen = match random.bool() {
        true => last / HOT * HOT,
        false => random.u64(last.saturating_sub(ACTIVE)..=last),
    };
    chosen as i64
}

/// An event's number, a number in its own stream, and its time.
type At = (u64, u64, i64);

fn add_person(rows: &mut Rows, row: &mut RecordBuilder, random: &mut Rng, (event, id, ns): At) -> Result<(), Error> {
    let home = random.usize(0..STATES.len());
    let name = format!("person {id}");
    let email = format!("{:08x}@example.org", random.u32(..));
    let values = [
        Value::Int(id as i64),
        Value::Text(name.as_bytes()),
        Value::Text(email.as_bytes()),
        Value::Text(CITIES[home].as_bytes()),
        Value::Text(STATES[home].as_bytes()),
        Value::Timestamp(ns),
    ];
    rows.push(row, event, &values)
}

fn add_auction(rows: &mut Rows, row: &mut RecordBuilder, random: &mut Rng, (event, id, ns): At) -> Result<(), Error> {
    let item = format!("item {:06}", random.u32(0..1_000_000));
    let first = random.i64(1..100_000);
    let values = [
        Value::Int(id as i64),
        Value::Text(item.as_bytes()),
        Value::Int(first),
        Value::Int(first + random.i64(1..100_000)),
        Value::Timestamp(ns),
        Value::Timestamp(ns + random.i64(1..20_000) * 1_000_000),
        Value::Int(newest(random, event / BLOCK + PERSONS)),
        Value::Int(random.i64(10..15)),
    ];
    rows.push(row, event, &values)
}

fn add_bid(rows: &mut Rows, row: &mut RecordBuilder, random: &mut Rng, (event, block, ns): At) -> Result<(), Error> {
    let channel = CHANNELS[random.usize(0..CHANNELS.len())];
    let url = format!("https://www.example.org/{:08x}/item.htm", random.u32(..));
    let values = [
        Value::Int(newest(random, (block + 1) * AUCTIONS)),
        Value::Int(newest(random, block + PERSONS)),
        Value::Int(random.i64(1..10_000_000)),
        Value::Text(channel.as_bytes()),
        Value::Text(url.as_bytes()),
        Value::Timestamp(ns),
    ];
    rows.push(row, event, &values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    #[test]
    fn events_are_shared_out_and_come_in_order() {
        let rows = events(10_000, true).unwrap();
        assert_eq!(rows.iter().map(Rows::len).collect::<Vec<_>>(), [200, 600, 9200]);
        for stream in &rows {
            assert_eq!(stream.csv.lines().count(), stream.len() + 1);
            let parts: usize = (0..10).map(|part| stream.of_events(part * 1000, (part + 1) * 1000).count()).sum();
            assert_eq!(parts, stream.len());
            let all: Vec<u8> = stream.of_events(0, 10_000).flatten().copied().collect();
            let mut found = 0;
            stream.format.check_records(&all, |_, _| found += 1).unwrap();
            assert_eq!(found, stream.len());
        }
    }
}
