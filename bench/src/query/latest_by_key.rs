//! The state of a stream with a key: the cost of an update, a snapshot of all keys, and the latency of the stream's other subscribers
//! beside it. The baseline is a hash map in one thread of this process.

use super::{LATEST_BY_KEY, Options};
use crate::cores;
use crate::cpu::Error;
use crate::daemon::Daemon;
use crate::inside::{Runs, Shared, in_words, joined, stamp_offset};
use crate::report::{Table, quantile};
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Event, Publisher, Subscriber, Transport};
use fastrand::Rng;
use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The length of each record: 100 bytes rounded up to the records' alignment.
const RECORD_BYTES: usize = 104;
/// The bytes of a record's text.
const TEXT_BYTES: u16 = 72;
const KEYED: &str = "keyed";
const PLAIN: &str = "plain";
/// The stream with a key, with room for each key and its record.
const CONFIG: &str = "[[stream]]\nname = \"keyed\"\nkey = [\"k\"]\nmax_keys = \"4M\"\nmax_bytes = \"1G\"\n";
/// Records that are published at a time while latencies are taken, and the time between, in us: 40,000 a second.
const AT_A_TIME: u64 = 40;
const EVERY_US: u64 = 1000;
/// The records of that time, which are published again and again.
const PACED: usize = 200_000;
/// The stream's other subscribers.
const OTHERS: usize = 3;
/// Whether a snapshot is taken in the pieces of the time in which latencies are taken.
const IN_TURN: [bool; 4] = [false, true, true, false];
/// From one piece to the next.
const SETTLE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two looks at what the state has taken.
const LOOK: Duration = Duration::from_millis(10);
const SEED: u64 = 0x004b_4559;

/// The records of a benchmark, one of each key.
struct Keyed {
    format: Format,
    bytes: Vec<u8>,
    /// The keys that are updated, in order.
    order: Vec<u32>,
}

impl Keyed {
    fn new(keys: u64, updates: u64) -> Result<Keyed, Error> {
        let fields = [("k", FieldType::I64), ("sent", FieldType::Timestamp), ("v", FieldType::I64)];
        let fields = fields.into_iter().chain([("note", FieldType::Char(TEXT_BYTES))]);
        let format = Format::natural(fields.map(|(name, ty)| FieldSpec::new(name, ty)))?;
        let mut row = RecordBuilder::new(&format);
        let note = "n".repeat(usize::from(TEXT_BYTES));
        let mut bytes = Vec::new();
        for key in 0..keys as i64 {
            row.clear();
            let values = [Value::Int(key), Value::Timestamp(0), Value::Int(key * 7), Value::Text(note.as_bytes())];
            for (field, value) in values.into_iter().enumerate() {
                row.set(field, value)?;
            }
            let record = row.finish()?;
            if record.len() != RECORD_BYTES {
                return Err(format!("a record is {} bytes long", record.len()).into());
            }
            bytes.extend_from_slice(record);
        }
        let mut random = Rng::with_seed(SEED);
        let order = (0..updates).map(|_| random.u64(0..keys) as u32).collect();
        Ok(Keyed { format, bytes, order })
    }

    fn keys(&self) -> u64 {
        (self.bytes.len() / RECORD_BYTES) as u64
    }

    /// The record of a key.
    fn record(&self, key: u32) -> &[u8] {
        let at = key as usize * RECORD_BYTES;
        &self.bytes[at..at + RECORD_BYTES]
    }

    /// A record of each key.
    fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(RECORD_BYTES)
    }

    /// Records of keys by chance.
    fn updates(&self) -> impl Iterator<Item = &[u8]> {
        self.order.iter().map(|key| self.record(*key))
    }

    fn publisher(&self, addr: &str, stream: &str) -> Result<Publisher, Error> {
        Ok(Publisher::builder(addr).transport(Transport::Udp).stream(stream).format(&self.format).connect()?)
    }
}

/// The processor time of the daemon for each record that is published, in ns; `taken` counts those that it has taken so far.
fn ns_per_record<'r>(
    daemon: &Daemon,
    publisher: &mut Publisher,
    records: impl Iterator<Item = &'r [u8]>,
    (count, taken): (u64, impl Fn() -> Result<u64, Error>),
) -> Result<f64, Error> {
    let (until, before_ns, start) = (taken()? + count, daemon.cpu_ns()?, Instant::now());
    publisher.publish_all(records)?;
    publisher.flush()?;
    while taken()? < until {
        if start.elapsed() > PATIENCE {
            return Err(format!("of {until} records {} were taken in {PATIENCE:?}", taken()?).into());
        }
        std::thread::sleep(LOOK);
    }
    Ok((daemon.cpu_ns()? - before_ns) as f64 / count as f64)
}

/// A figure of the row with this name, in one of the daemon's lists.
fn figure(daemon: &Daemon, list: &str, name: &str, figure: &str) -> Result<u64, Error> {
    let rows = daemon.list(list)?;
    Ok(rows.iter().find(|row| row["name"] == name).and_then(|row| row[figure].as_u64()).unwrap_or(0))
}

/// Takes a snapshot; the seconds until all of it is there.
fn snapshot(addr: &str, keys: u64) -> Result<f64, Error> {
    let start = Instant::now();
    let builder = Subscriber::builder(addr).transport(Transport::Udp).sql(format!("SELECT * FROM {KEYED} SNAPSHOT"));
    let (mut subscriber, mut count) = (builder.connect()?, 0);
    loop {
        match subscriber.next_event(Some(PATIENCE))? {
            Some(Event::Records(records)) => count += records.len() as u64,
            Some(Event::StreamEnded { publishers_left: 0, finished: true, .. }) if count == keys => {
                return Ok(start.elapsed().as_secs_f64());
            }
            Some(Event::StreamEnded { publishers_left: 0, .. }) | None => {
                return Err(format!("of {keys} keys {count} came").into());
            }
            Some(_) => {}
        }
    }
}

/// The same by a hash map in this thread: ns for each update, and the seconds that a copy of all rows takes.
fn by_hash_map(keyed: &Keyed) -> [f64; 2] {
    let mut map: HashMap<u32, Vec<u8>> = (0..).zip(keyed.all().map(<[u8]>::to_vec)).collect();
    let start = Instant::now();
    for key in &keyed.order {
        let row = map.entry(*key).or_default();
        row.clear();
        row.extend_from_slice(keyed.record(*key));
    }
    let update_ns = start.elapsed().as_nanos() as f64 / keyed.order.len() as f64;
    let start = Instant::now();
    let mut copy = Vec::new();
    map.values().for_each(|row| copy.extend_from_slice(row));
    black_box(&copy);
    [update_ns, start.elapsed().as_secs_f64()]
}

/// Takes the stream itself to its end; the latencies of each piece.
fn read_all(shared: &Shared, addr: &str) -> Result<Vec<Vec<u64>>, Error> {
    let builder = Subscriber::builder(addr).transport(Transport::Udp).sql(format!("SELECT k, sent FROM {KEYED}"));
    let mut subscriber = builder.connect()?;
    let mut runs = Runs::new(shared);
    loop {
        match subscriber.next_event(None)? {
            Some(Event::Records(records)) => runs.take(stamp_offset(records.format())?, records.bytes()),
            Some(Event::StreamEnded { publishers_left: 0, .. }) => return Ok(runs.taken),
            Some(Event::Dropped { records, .. }) => return Err(format!("{records} records were lost").into()),
            _ => {}
        }
    }
}

/// Latencies of the stream's other subscribers in us, with a snapshot beside them and without: the 99th and the 50th percentile.
fn latencies(
    options: &Options,
    daemon: &Daemon,
    keyed: &Keyed,
    mut publisher: Publisher,
) -> Result<[[f64; 2]; 2], Error> {
    let shared = Shared::new(AT_A_TIME, EVERY_US);
    let sent_at = stamp_offset(&keyed.format)?;
    let mut paced: Vec<u8> = keyed.updates().take(PACED).flatten().copied().collect();
    let others = std::thread::scope(|scope| {
        let (shared, addr) = (&shared, daemon.addr.as_str());
        let others: Vec<_> = (0..OTHERS).map(|_| scope.spawn(|| in_words(read_all(shared, addr)))).collect();
        let publisher = scope.spawn(move || {
            cores::raise_priority();
            in_words(shared.pace_records(&mut paced, (RECORD_BYTES, sent_at), |records| {
                publisher.publish_all(records.chunks(RECORD_BYTES))?;
                Ok(publisher.flush()?)
            }))?;
            in_words(publisher.finish().map(drop).map_err(Into::into))
        });
        let pieces = || {
            for with_snapshot in IN_TURN {
                std::thread::sleep(SETTLE);
                shared.time(true);
                match with_snapshot {
                    true => drop(snapshot(addr, keyed.keys())?),
                    false => std::thread::sleep(Duration::from_millis(options.piece_ms)),
                }
                shared.time(false);
            }
            std::thread::sleep(SETTLE);
            Ok::<_, Error>(())
        };
        let taken = in_words(pieces());
        // Also where a snapshot has failed: the threads end with the stream.
        shared.end();
        joined(publisher)?;
        taken.and_then(|()| others.into_iter().map(joined).collect::<Result<Vec<_>, String>>())
    })?;
    Ok([true, false].map(|wanted| {
        let pieces = others.iter().flat_map(|pieces| pieces.iter().zip(IN_TURN)).filter(|(_, with)| *with == wanted);
        let mut latencies: Vec<u64> = pieces.flat_map(|(piece, _)| piece).copied().collect();
        [0.99, 0.5].map(|part| quantile(&mut latencies, part) as f64 / 1e3)
    }))
}

pub(super) fn round(options: &Options, table: &mut Table) -> Result<(), Error> {
    let updates = options.thousands * 1000;
    let keyed = Keyed::new(options.thousand_keys * 1000, updates)?;
    let daemon = Daemon::start(CONFIG)?;
    let mut publisher = keyed.publisher(&daemon.addr, PLAIN)?;
    let came = || figure(&daemon, "streams", PLAIN, "records_in");
    // The first time the daemon touches its buffers.
    ns_per_record(&daemon, &mut publisher, keyed.all(), (keyed.keys(), came))?;
    let plain_ns = ns_per_record(&daemon, &mut publisher, keyed.updates(), (updates, came))?;
    publisher.finish()?;
    let mut publisher = keyed.publisher(&daemon.addr, KEYED)?;
    let state = format!("state of {KEYED}");
    let taken = || figure(&daemon, "handlers", &state, "taken");
    ns_per_record(&daemon, &mut publisher, keyed.all(), (keyed.keys(), taken))?;
    let keyed_ns = ns_per_record(&daemon, &mut publisher, keyed.updates(), (updates, taken))?;
    let [update_ns, copy_s] = by_hash_map(&keyed);
    // Of the cost of a record that part which is there for the key.
    table.push(LATEST_BY_KEY, "update_ns", keyed_ns - plain_ns, Some(update_ns));
    table.push(LATEST_BY_KEY, "record_ns", keyed_ns, Some(plain_ns));
    table.push(LATEST_BY_KEY, "snapshot_s", snapshot(&daemon.addr, keyed.keys())?, Some(copy_s));
    let [with, without] = latencies(options, &daemon, &keyed, publisher)?;
    table.push(LATEST_BY_KEY, "stream_p99_ratio", with[0] / without[0], None);
    table.push(LATEST_BY_KEY, "stream_latency_us_p99", with[0], Some(without[0]));
    table.push(LATEST_BY_KEY, "stream_latency_us_p50", with[1], Some(without[1]));
    Ok(())
}
