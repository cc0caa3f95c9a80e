//! The paper's figure 3: chains of two real handlers, in either order, between the ends of an in-memory device that is kept
//! saturated. One handler extracts, strongly or weakly; the other reformats: it reads and writes every field that it gets.

use super::figure;
use crate::cpu::Error;
use crate::flights::{self, FIELDS};
use crate::load;
use crate::report::{Figure, Samples};
use crossdock_device::{Device, MemoryDevice, MemoryOptions, Sent};
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Slice, Span};
use crossdock_runtime::rig::{self, BatchSource, Cores, Rig};
use std::io::IoSlice;
use std::time::Instant;

/// Flights that are sent again and again.
const FLIGHTS: usize = 2000;
/// Lengths of the messages, in bytes.
const LEAST: usize = 350;
const MOST: usize = 1150;
/// Bytes of a packet at most: loopback's.
const PACKET: usize = 8184;
/// Packets that wait in the device, so that it is never empty.
const AHEAD: usize = 4;
/// Passes of one round; the middle one counts.
const PASSES: u64 = 3;

/// The fields that the strong extraction leaves: 72 of about 750 bytes.
const STRONG: [&str; 11] = [
    "carrier",
    "flight",
    "origin",
    "dest",
    "sched_dep_time",
    "dep_delay",
    "arr_delay",
    "air_time",
    "distance",
    "hour",
    "minute",
];

/// The fields of a format, as a select list: unchanged.
fn unchanged(format: &Format, keep: impl Fn(&str) -> bool) -> String {
    let names = format.fields().iter().map(|field| &*field.name).filter(|name| keep(name));
    names.collect::<Vec<_>>().join(", ")
}

/// The same, with every whole number of 32 bits made one of 64.
fn reformatted(format: &Format) -> String {
    let each = format.fields().iter().map(|field| match field.ty {
        FieldType::I32 => format!("CAST({0} AS BIGINT) AS {0}", field.name),
        _ => field.name.to_string(),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// A handler of the paper's chains, as a query for what comes in.
#[derive(Clone, Copy)]
enum ChainHandler {
    Strong,
    Weak,
    Reformat,
    /// Reformats what this condition lets through.
    ReformatIf(&'static str),
}

impl ChainHandler {
    fn sql(self, input: &Format) -> String {
        match self {
            ChainHandler::Strong => format!("SELECT {} FROM s", unchanged(input, |name| STRONG.contains(&name))),
            ChainHandler::Weak => format!("SELECT {} FROM s", unchanged(input, |name| name != "blocked_seats")),
            ChainHandler::Reformat => format!("SELECT {} FROM s", reformatted(input)),
            ChainHandler::ReformatIf(condition) => format!("SELECT {} FROM s WHERE {condition}", reformatted(input)),
        }
    }
}

/// The chains: none, then the six of the figure, in its order.
const CHAINS: [&[ChainHandler]; 7] = [
    &[],
    &[ChainHandler::Strong, ChainHandler::Reformat],
    &[ChainHandler::Weak, ChainHandler::Reformat],
    &[ChainHandler::Reformat, ChainHandler::Strong],
    &[ChainHandler::Reformat, ChainHandler::Weak],
    &[ChainHandler::ReformatIf("number % 10 = 0"), ChainHandler::Strong],
    &[ChainHandler::ReformatIf("number % 10 <> 0"), ChainHandler::Weak],
];

/// The flights, 350 to 1150 bytes each, blocked seats at their end, in packets.
fn packets() -> Result<(Format, Vec<Vec<u8>>), Error> {
    let own = FIELDS.iter().map(|(name, ty)| FieldSpec::nullable(*name, *ty));
    let more = [("number", FieldType::U64), ("blocked_seats", FieldType::String)];
    let format = Format::natural(own.chain(more.map(|(name, ty)| FieldSpec::new(name, ty))))?;
    let (number, blocked) = (FIELDS.len(), FIELDS.len() + 1);
    let mut row = RecordBuilder::new(&format);
    let mut packets = vec![Vec::new()];
    for (at, line) in flights::lines(FLIGHTS)?.into_iter().enumerate() {
        // Evenly over the lengths, and from 2 to 20 % of each blocked seats; in an order that nobody learns by heart.
        let length = LEAST + at * 7919 % (MOST - LEAST);
        let seats = length * (2 + at * 31 % 19) / 100;
        let mut remarks = 0;
        for _ in 0..2 {
            row.clear();
            flights::fill(&mut row, &line)?;
            row.set_u64(number, at as u64)?;
            row.set_text(flights::REMARKS, "x".repeat(remarks))?;
            row.set_text(blocked, "B".repeat(seats))?;
            remarks = length.saturating_sub(row.finish()?.len());
        }
        let record = row.finish()?;
        if packets.last().is_some_and(|packet: &Vec<u8>| packet.len() + record.len() > PACKET) {
            packets.push(Vec::new());
        }
        if let Some(packet) = packets.last_mut() {
            packet.extend_from_slice(record);
        }
    }
    Ok((format, packets))
}

/// A context between the ends of a device, and a chain in it.
struct Path {
    cores: Cores,
    _rig: Rig,
    /// The sender, and takes what comes back.
    peer: MemoryDevice,
    device: MemoryDevice,
    pool: Pool,
    peer_pool: Pool,
}

impl Path {
    fn new(format: &Format, steps: &[ChainHandler]) -> Result<Path, Error> {
        let (mut cores, mut rig) = rig::start(&[None], 1)?;
        let mut from = BatchSource::Stream(0);
        let wait = &mut || {
            cores.turn();
            true
        };
        let mut input = format.clone();
        for (stage, step) in (1..).zip(steps) {
            let (entry, output) = load::sql(&step.sql(&input), &input)?;
            from = BatchSource::Node(rig.put(vec![entry], 0, from, stage, wait)?);
            input = output;
        }
        rig.deliver(from, wait)?;
        let (peer, device) = MemoryDevice::pair(MemoryOptions::default())?;
        let pool = || Pool::new(PoolConfig::default());
        Ok(Path { cores, _rig: rig, peer, device, pool: pool()?, peer_pool: pool()? })
    }

    /// Passes `count` packets in, each handled at once and sent back; ns a message.
    fn pass(&mut self, format: &Format, packets: &[Vec<u8>], count: usize) -> Result<f64, Error> {
        let (mut frames, mut batch) = (Vec::new(), Batch::new());
        let (to, back) = (self.device.local_addr(), self.peer.local_addr());
        let (mut messages, mut sent) = (0, 0);
        let start = Instant::now();
        for at in 0..count + AHEAD {
            if at < count {
                let packet = &packets[at % packets.len()];
                if self.peer.send(to, &[IoSlice::new(packet)], packet.len())? == Sent::Full {
                    return Err("the device is full".into());
                }
            }
            if at < AHEAD {
                continue;
            }
            self.device.receive(&mut self.pool, &mut frames, 1)?;
            for frame in frames.drain(..) {
                batch.clear();
                batch.format = format.id().0;
                let spans = &mut batch.records;
                let place = |start, len| spans.push(Span { slice: 0, start, len });
                let records = format.check_records(&frame.buffer[..frame.len], place)?;
                batch.push_buffer(frame.buffer.freeze())?;
                batch.push_slice(Slice { buffer: 0, start: 0, len: frame.len as u32, records: records as u32 })?;
                batch.select_all();
                messages += records;
                self.cores.offer(0, &batch);
            }
            self.cores.turn();
            let device = &mut self.device;
            let mut result = Ok(Sent::Done);
            self.cores.delivered(|made| {
                for slice in 0..made.slices.len() {
                    let packet = made.slice(slice);
                    sent += 1;
                    result = device.send(back, &[IoSlice::new(packet)], packet.len());
                }
            });
            if result? == Sent::Full {
                return Err("the device is full".into());
            }
            // Some are left to wait, so that this end does not run empty either.
            while sent > AHEAD {
                sent -= self.peer.receive(&mut self.peer_pool, &mut frames, 1)?.max(1);
                frames.clear();
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / messages as f64)
    }
}

/// All chains.
pub(super) struct Cases {
    format: Format,
    packets: Vec<Vec<u8>>,
    paths: Vec<Path>,
    /// ns a message, by chain.
    times: Vec<Samples>,
}

impl Cases {
    pub(super) fn new() -> Result<Cases, Error> {
        let (format, packets) = packets()?;
        let paths: Result<Vec<Path>, Error> = CHAINS.iter().map(|steps| Path::new(&format, steps)).collect();
        Ok(Cases { format, packets, paths: paths?, times: vec![Samples::default(); CHAINS.len()] })
    }

    /// Runs each chain in turn with the others.
    pub(super) fn round(&mut self, messages: u64) -> Result<(), Error> {
        let count = (messages / PASSES * self.packets.len() as u64 / FLIGHTS as u64) as usize;
        let mut times = vec![Samples::default(); self.paths.len()];
        for _ in 0..PASSES {
            for (path, times) in self.paths.iter_mut().zip(&mut times) {
                times.push(path.pass(&self.format, &self.packets, count)?);
            }
        }
        for (samples, times) in self.times.iter_mut().zip(&times) {
            samples.0.extend(times.median());
        }
        Ok(())
    }

    pub(super) fn figures(self) -> Vec<Figure> {
        let ratio = |one: &Samples, other: &Samples| {
            Samples(one.0.iter().zip(&other.0).map(|(one, other)| one / other).collect())
        };
        let rate = |times: &Samples| Samples(times.0.iter().map(|ns| 1e9 / ns).collect());
        let mut figures = Vec::new();
        let [none, chains @ ..] = &self.times[..] else { return figures };
        for (number, times) in (1..).zip(chains) {
            let case = format!("figure3_{number}");
            figures.push(figure(case.clone(), "throughput_ratio", "", ratio(none, times)));
            let mut per_second = figure(case, "msgs_per_s", "/s", rate(times));
            per_second.baseline = Some(("no_handlers", rate(none)));
            figures.push(per_second);
        }
        if let [strong_first, _, reformat_first, ..] = chains {
            let ratio = ratio(reformat_first, strong_first);
            figures.push(figure("figure3".to_owned(), "strong_first_to_reformat_first", "", ratio));
        }
        figures
    }
}
