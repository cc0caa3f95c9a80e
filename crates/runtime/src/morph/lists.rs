//! Lists of conversions and paths, and the measured cost of a path on real records.

use crate::context::Context;
use crate::info::{ConversionInfo, PathInfo, PathStep};
use crate::morph::chain::{self, ChainRun};
use crate::morph::compile::Part;
use crate::morph::{Morphing, Route};
use crate::streams::Stream;
use crossdock_control::conversions::{Owner, Step};
use crossdock_format::{Format, FormatId};
use crossdock_mailbox::Batch;
use std::collections::BTreeMap;
use std::time::Instant;

/// Times the sample goes through the chain for an estimate.
const ROUNDS: u32 = 16;

impl Context {
    /// All conversions, by stream and in the order in which they were registered.
    pub(crate) fn conversion_infos(&self) -> Vec<ConversionInfo> {
        let mut infos = Vec::new();
        for stream in self.streams.iter() {
            let conversions = &stream.morphing.conversions;
            let graph = conversions.graph();
            for conversion in graph.conversions() {
                let Some(compiled) = conversions.compiled(conversion.number) else { continue };
                let owner = match conversion.owner {
                    Owner::Kept => "kept".to_owned(),
                    Owner::Session(peer) => {
                        let found = self.peers.iter().map(|(_, other)| other).find(|other| other.serial == peer);
                        found.map_or_else(|| ConversionInfo::GONE.to_owned(), ToString::to_string)
                    }
                };
                infos.push(ConversionInfo {
                    stream: stream.name.clone(),
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
    pub(crate) fn path_infos(&self) -> Vec<PathInfo> {
        let mut infos = Vec::new();
        for stream in self.streams.iter() {
            let subscriptions = |wanted: Route| {
                let takes = |key: &&usize| {
                    self.accept(**key).is_some_and(|accept| accept.ways.iter().any(|(_, way)| *way == wanted))
                };
                stream.subscriptions.iter().filter(takes).count() as u32
            };
            for (key, run) in &stream.morphing.chains {
                let Some(run) = run else { continue };
                let mut info = path_info(stream, &run.from, &run.to, &run.steps, &run.parts);
                info.ns_per_record = run.weight as f64 / 1000.0;
                info.subscriptions = subscriptions(Route::Chain(key));
                info.records_in = run.tally.records_in;
                info.records_out = run.tally.records_out;
                info.refused = run.tally.refused + run.tally.too_long;
                info.refusal = run.tally.why.as_ref().map(ToString::to_string);
                infos.push(info);
            }
            infos.extend(self.missing_infos(stream));
        }
        infos.sort_by(|one, other| (&one.stream, &one.from, &one.to).cmp(&(&other.stream, &other.from, &other.to)));
        infos
    }

    /// The routes that a stream's subscriptions lack.
    fn missing_infos(&self, stream: &Stream) -> Vec<PathInfo> {
        let missing = |(from, to): &(Format, Format)| {
            let mut info = path_info(stream, from, to, &[], &[]);
            for accept in stream.subscriptions.iter().filter_map(|&key| self.accept(key)) {
                if accept.missed.contains(from) && accept.targets.contains(to) {
                    info.subscriptions += 1;
                    info.waiting += accept.hold.records_of(from.id().0);
                }
            }
            info.is_missing = true;
            info
        };
        stream.morphing.wanted.iter().map(missing).collect()
    }
}

/// A path without its figures.
pub(crate) fn path_info(stream: &Stream, from: &Format, to: &Format, steps: &[Step], parts: &[Part]) -> PathInfo {
    let step = |step: &Step| PathStep {
        from: step.from.to_string(),
        to: step.to.to_string(),
        to_version: stream.version(step.to),
        registered: step.conversion.is_some(),
    };
    PathInfo {
        stream: stream.name.clone(),
        from: from.id().to_string(),
        from_version: stream.version(from.id()),
        to: to.id().to_string(),
        to_version: stream.version(to.id()),
        steps: steps.iter().map(step).collect(),
        parts: parts.iter().map(Part::describe).collect(),
        ..PathInfo::default()
    }
}

impl Stream {
    /// Which version of the stream a format is, counted from 1.
    pub(crate) fn version(&self, id: FormatId) -> Option<u32> {
        self.formats.iter().position(|known| known.format.id() == id).map(|at| at as u32 + 1)
    }
}

/// A path that was planned to show what it would be: with what its cost can be measured on, away from the core.
pub(crate) struct Planned {
    pub(crate) info: PathInfo,
    /// Nothing for a format that is accepted as it is, or not at all.
    run: Option<ChainRun>,
    from: Format,
    sample: Vec<u8>,
}

impl Morphing {
    /// The path that a format would take to one of the accepted ones, of which no more is read than this.
    pub(crate) fn plan_path(
        &self,
        stream: &Stream,
        from: &Format,
        targets: &[Format],
        by_name: crate::config::ByName,
        reads: &BTreeMap<FormatId, Vec<bool>>,
    ) -> Planned {
        let versions: Vec<Format> = stream.formats.iter().map(|known| known.format.clone()).collect();
        let found = self.chain(from, targets, &versions, by_name);
        let sample = stream.formats.iter().find(|known| known.format == *from).map(|known| known.sample.records());
        let sample = sample.unwrap_or_default();
        let planned = |info, run| Planned { info, run, from: from.clone(), sample };
        let Some(chain) = found else {
            let to = targets.first().unwrap_or(from);
            return planned(PathInfo { is_missing: true, ..path_info(stream, from, to, &[], &[]) }, None);
        };
        match self.compile_chain(from, &chain, targets, reads).filter(|_| !chain.steps.is_empty()) {
            Some(run) => {
                let mut info = path_info(stream, from, &run.to, &run.steps, &run.parts);
                info.ns_per_record = chain.weight as f64 / 1000.0;
                planned(info, Some(run))
            }
            None => planned(path_info(stream, from, from, &[], &[]), None),
        }
    }
}

impl Planned {
    /// The path with its cost as measured on this thread, and the sample as it comes out: its format, and the records.
    pub(crate) fn measured(mut self) -> (PathInfo, Format, Vec<u8>) {
        let Some(mut run) = self.run.take() else { return (self.info, self.from, self.sample) };
        let mut converted = Vec::new();
        if let Ok(mut pool) = chain::pool() {
            let mut batch = Batch::new();
            let len_of = |bytes: &[u8]| self.from.record_len(bytes);
            chain::fill(&mut batch, &mut pool, &self.sample, self.from.id().0, len_of);
            let mut best_ns = f64::INFINITY;
            for _ in 0..ROUNDS {
                converted.clear();
                let start = Instant::now();
                run.run(&mut pool, &batch, &mut |made| {
                    (0..made.slices.len()).for_each(|index| converted.extend_from_slice(made.slice(index)));
                });
                best_ns = best_ns.min(start.elapsed().as_nanos() as f64);
            }
            if !batch.is_empty() {
                self.info.sample_records = batch.len() as u64;
                self.info.measured_ns_per_record = Some(best_ns / batch.len() as f64);
            }
        }
        (self.info, run.made, converted)
    }
}
