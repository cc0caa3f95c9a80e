//! Lists of conversions and paths, and the measured cost of a path on real records.

use crate::catalog::StreamEntry;
use crate::config::ByName;
use crate::graph::Graph;
use crate::info::{ConversionInfo, PathInfo, PathStep};
use crate::morph::Route;
use crate::morph::chain::{ConversionChain, Trial};
use crate::morph::compile::Part;
use crate::morph::routes::{Finder, Reads};
use crate::net::Net;
use crate::streams::{Stream, Streams};
use crate::subscriptions::Subscriptions;
use crossdock_control::conversions::{ConversionStep, Owner};
use crossdock_format::{Format, FormatId};
use std::sync::Arc;
use std::time::Instant;

/// Times the sample goes through the chain for an estimate.
const ROUNDS: u32 = 16;

impl Streams {
    /// All conversions, by stream and in the order in which they were registered.
    pub(crate) fn conversion_infos(&self, net: &Net) -> Vec<ConversionInfo> {
        let mut infos = Vec::new();
        for stream in self.iter() {
            let conversions = &stream.morphing().conversions;
            let graph = conversions.graph();
            for conversion in graph.conversions() {
                let compiled = conversions.compiled(conversion.number);
                debug_assert!(compiled.is_some(), "conversion {} of the graph is compiled", conversion.number);
                let Some(compiled) = compiled else { continue };
                let owner = match conversion.owner {
                    Owner::Kept => "kept".to_owned(),
                    Owner::Session(peer) => {
                        let found = net.peers().map(|(_, other)| other).find(|other| other.serial() == peer);
                        found.map_or_else(|| ConversionInfo::GONE.to_owned(), ToString::to_string)
                    }
                };
                infos.push(ConversionInfo {
                    stream: stream.name().to_owned(),
                    from: conversion.from.to_string(),
                    from_version: stream.version(conversion.from),
                    to: conversion.to.to_string(),
                    to_version: stream.version(conversion.to),
                    conversion: compiled.conversion.to_string(),
                    kept: conversion.owner == Owner::Kept,
                    owner,
                    in_force: graph.is_in_force(conversion),
                    ns_per_record: conversion.cost.ps as f64 / 1000.0,
                });
            }
        }
        infos.sort_by(|one, other| one.stream.cmp(&other.stream));
        infos
    }

    /// The chains in use, and the formats that came and have none.
    pub(crate) fn path_infos(&self, subscriptions: &Subscriptions, graph: &Graph) -> Vec<PathInfo> {
        let mut infos = Vec::new();
        for stream in self.iter() {
            for chain in &stream.morphing().chains {
                let route = Route::Convert(chain.number);
                let takes = |key: &&usize| {
                    subscriptions
                        .accept(**key)
                        .is_some_and(|accept| accept.routes.iter().any(|(_, taken)| *taken == route))
                };
                let mut info = path_info(stream, &chain.from, &chain.to, &chain.steps, &chain.parts);
                let tally = &chain.tally;
                info.ns_per_record = chain.weight as f64 / 1000.0;
                info.subscriptions = stream.subscriptions().iter().filter(takes).count() as u32;
                info.records_in = tally.records_in.get();
                info.records_out = tally.records_out.get();
                info.refused = tally.refused.get() + tally.too_long.get();
                info.refusal = tally.why();
                infos.push(info);
            }
            infos.extend(stream.missing_infos(subscriptions, graph));
        }
        infos.sort_by(|one, other| (&one.stream, &one.from, &one.to).cmp(&(&other.stream, &other.from, &other.to)));
        infos
    }
}

impl Stream {
    /// The routes that its subscriptions lack.
    fn missing_infos(&self, subscriptions: &Subscriptions, graph: &Graph) -> Vec<PathInfo> {
        let missing = |(from, to): &(Format, Format)| {
            let mut info = path_info(self, from, to, &[], &[]);
            for key in self.subscriptions().iter().copied() {
                let lacks = |accept: &crate::morph::Accept| accept.missed.contains(from) && accept.targets.contains(to);
                if subscriptions.accept(key).is_some_and(lacks) {
                    info.subscriptions += 1;
                    info.waiting += graph.held_records(key, from.id().0);
                }
            }
            info.is_missing = true;
            info
        };
        self.morphing().wanted.iter().map(missing).collect()
    }
}

/// A path without its figures.
pub(crate) fn path_info(
    stream: &Stream,
    from: &Format,
    to: &Format,
    steps: &[ConversionStep],
    parts: &[Part],
) -> PathInfo {
    let step = |step: &ConversionStep| path_step(step, stream.version(step.to));
    PathInfo {
        stream: stream.name().to_owned(),
        from: from.id().to_string(),
        from_version: stream.version(from.id()),
        to: to.id().to_string(),
        to_version: stream.version(to.id()),
        steps: steps.iter().map(step).collect(),
        parts: parts.iter().map(Part::describe).collect(),
        ..PathInfo::default()
    }
}

fn path_step(step: &ConversionStep, to_version: Option<u32>) -> PathStep {
    let (from, to, registered) = (step.from.to_string(), step.to.to_string(), step.conversion.is_some());
    PathStep { from, to, to_version, registered }
}

impl Stream {
    /// Which version of the stream a format is.
    pub(crate) fn version(&self, id: FormatId) -> Option<u32> {
        self.entry().version(id)
    }
}

/// A path that is to be planned and measured, away from the core, to show what it would be.
pub(crate) struct Planned {
    /// Without a chain.
    info: PathInfo,
    finder: Arc<Finder>,
    from: Format,
    accept: Arc<[Format]>,
    /// The fields of the accepted formats that are read.
    reads: Arc<Reads>,
    /// The stream, for the numbers of its versions.
    entry: Arc<StreamEntry>,
    sample: Arc<[u8]>,
}

impl Planned {
    /// The paths that a stream's formats would take to one of the accepted ones; no more is read of it than this.
    pub(crate) fn all(stream: &Stream, accept: &[Format], by_name: ByName, reads: &Reads) -> Vec<Planned> {
        let versions = stream.formats().iter().map(|known| known.format.clone()).collect();
        let (conversions, plans) = (Arc::clone(&stream.morphing().conversions), Arc::clone(&stream.morphing().by_name));
        let finder = Arc::new(Finder { conversions, versions, by_name, plans });
        let (accept, reads): (Arc<[Format]>, _) = (accept.into(), Arc::new(reads.clone()));
        let planned = |known: &crate::streams::StreamFormat| Planned {
            info: path_info(stream, &known.format, &known.format, &[], &[]),
            finder: Arc::clone(&finder),
            from: known.format.clone(),
            accept: Arc::clone(&accept),
            reads: Arc::clone(&reads),
            entry: Arc::clone(stream.entry()),
            sample: known.sample.records(),
        };
        stream.formats().iter().map(planned).collect()
    }

    /// The path with its cost as measured on this thread, and the sample as it comes out: its format, and the records.
    pub(crate) fn measured(mut self) -> (PathInfo, Format, Arc<[u8]>) {
        // No conversions lead there.
        let Some(chain) = self.finder.chain(&self.from, &self.accept) else {
            let to = self.accept.first().unwrap_or(&self.from);
            (self.info.to, self.info.to_version) = (to.id().to_string(), self.entry.version(to.id()));
            self.info.is_missing = true;
            return (self.info, self.from, self.sample);
        };
        if chain.steps.is_empty() {
            return (self.info, self.from, self.sample);
        }
        // A step of it cannot be made.
        let Some(chain) = self.finder.compile((&self.from, &chain), &self.accept, &self.reads, 0) else {
            return (self.info, self.from, self.sample);
        };
        let step = |step: &ConversionStep| path_step(step, self.entry.version(step.to));
        self.info.steps = chain.steps.iter().map(step).collect();
        (self.info.to, self.info.to_version) = (chain.to.id().to_string(), self.entry.version(chain.to.id()));
        self.info.parts = chain.parts.iter().map(Part::describe).collect();
        self.info.ns_per_record = chain.weight as f64 / 1000.0;
        let converted = self.measure(&chain);
        (self.info, chain.made, converted.into())
    }

    /// Measures a chain on the sample; the sample as it comes out.
    fn measure(&mut self, chain: &ConversionChain) -> Vec<u8> {
        // There is no memory for it.
        let Some(mut trial) = Trial::new(chain) else { return Vec::new() };
        let batch = trial.batch(&self.sample, &self.from);
        let mut best_ns = f64::INFINITY;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            trial.run(&batch);
            best_ns = best_ns.min(start.elapsed().as_nanos() as f64);
        }
        if !batch.is_empty() {
            self.info.sample_records = batch.len() as u64;
            self.info.measured_ns_per_record = Some(best_ns / batch.len() as f64);
        }
        trial.made()
    }
}
