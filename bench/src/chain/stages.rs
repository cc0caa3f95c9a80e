//! The paper's table 1: chains of handlers that do nothing. The cost of a stage is the time with n of them less the time with
//! none, an n-th of it.

use super::figure;
use crate::cpu::Error;
use crate::flights;
use crate::load::{self, Feed};
use crate::report::{Figure, Samples};
use crossdock_format::Format;
use crossdock_runtime::rig::{self, BatchSource, Cores, Rig};
use std::time::Instant;

/// The longest chain.
const LONGEST: usize = 5;
/// Records of a batch: what one packet of loopback (8184 bytes) holds.
pub(super) const AT_A_TIME: usize = 26;
/// Batches that the network brings at a time.
const BURST: usize = 8;
/// Bound of a queue between two contexts: the daemon's.
const QUEUE: usize = 256;
/// Passes of one round; the middle one counts.
const PASSES: u64 = 5;

/// A chain, ready to be run.
struct Chain {
    cores: Cores,
    /// Keeps the other contexts' threads.
    _rig: Rig,
}

impl Chain {
    /// `stages` stages: all at the first context, or each at one of its own, those in turn on the caller's thread and on one
    /// at this CPU.
    fn new(format: &Format, stages: usize, other_cpu: Option<usize>) -> Result<Chain, Error> {
        let mut cpus = vec![None];
        if let Some(cpu) = other_cpu {
            cpus.extend((1..=stages).map(|at| (at % 2 == 1).then_some(cpu)));
        }
        let (mut cores, mut rig) = rig::start(&cpus, QUEUE)?;
        let mut from = BatchSource::Stream(0);
        let wait = &mut || {
            cores.turn();
            true
        };
        // Nothing comes before the chain stands.
        for stage in 1..=stages {
            let (entry, _) = load::native("pass", &[], format)?;
            let at = if other_cpu.is_some() { stage } else { 0 };
            from = BatchSource::Node(rig.put(vec![entry], at, from, stage as u32, wait)?);
        }
        rig.deliver(from, wait)?;
        Ok(Chain { cores, _rig: rig })
    }

    /// Passes `messages` messages through; ns a message.
    fn pass(&mut self, feed: &mut Feed, messages: u64) -> f64 {
        let (mut sent, mut delivered) = (0, 0);
        let start = Instant::now();
        while delivered < messages {
            let mut burst = 0;
            while burst < BURST && sent < messages && self.cores.has_room() {
                let batch = feed.next();
                sent += batch.len() as u64;
                self.cores.offer(0, batch);
                burst += 1;
            }
            self.cores.turn();
            self.cores.delivered(|batch| delivered += batch.len() as u64);
        }
        start.elapsed().as_nanos() as f64 / delivered as f64
    }
}

/// A family of chains that differ in their length.
struct Family {
    name: &'static str,
    /// How batches are named behind the length.
    suffix: &'static str,
    feed: Feed,
    /// With no stage, with one …
    chains: Vec<Chain>,
    with_none: Samples,
    per_stage: Vec<Samples>,
}

/// All families.
pub(super) struct Cases(Vec<Family>);

impl Cases {
    pub(super) fn new(other_cpu: usize) -> Result<Cases, Error> {
        let format = flights::format()?;
        let records = flights::records(&format, 8 * AT_A_TIME)?;
        let mut families = Vec::new();
        for (name, cpu) in [("same_context", None), ("across_contexts", Some(other_cpu))] {
            for (suffix, at_a_time) in [("", AT_A_TIME), ("_batch_of_one", 1)] {
                let chains: Result<Vec<Chain>, Error> =
                    (0..=LONGEST).map(|stages| Chain::new(&format, stages, cpu)).collect();
                let feed = Feed::new(&format, &records, flights::RECORD_BYTES, at_a_time)?;
                let (chains, per_stage) = (chains?, vec![Samples::default(); LONGEST]);
                families.push(Family { name, suffix, feed, chains, with_none: Samples::default(), per_stage });
            }
        }
        Ok(Cases(families))
    }

    /// Runs each chain in turn with the others of its family.
    pub(super) fn round(&mut self, messages: u64) -> Result<(), Error> {
        for family in &mut self.0 {
            let mut times = vec![Samples::default(); family.chains.len()];
            for _ in 0..PASSES {
                for (chain, times) in family.chains.iter_mut().zip(&mut times) {
                    times.push(chain.pass(&mut family.feed, messages / PASSES));
                }
            }
            let middle: Vec<f64> = times.iter().filter_map(Samples::median).collect();
            let [none, others @ ..] = &middle[..] else { return Err("no pass was timed".into()) };
            family.with_none.push(*none);
            for ((stages, time), samples) in (1..).zip(others).zip(&mut family.per_stage) {
                samples.push((time - none) / f64::from(stages));
            }
        }
        Ok(())
    }

    pub(super) fn figures(self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for Family { name, suffix, with_none, per_stage, .. } in self.0 {
            let case = |stages| format!("{name}_{stages}{suffix}");
            figures.push(figure(case(0), "ns_per_message", "ns", with_none));
            figures.extend(
                (1..).zip(per_stage).map(|(stages, samples)| figure(case(stages), "ns_per_stage", "ns", samples)),
            );
        }
        figures
    }
}
