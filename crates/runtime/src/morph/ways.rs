//! The route of each format of a stream to each of its subscriptions, planned anew whenever it may have changed.

use crate::context::Context;
use crate::morph::chain::ChainRun;
use crate::morph::compile::{Part, fuse};
use crate::morph::narrow::narrow;
use crate::morph::{Accept, Route};
use crate::refusal::refuse;
use crossdock_control::conversions::Chain;
use crossdock_format::convert::{Plan, Rules};
use crossdock_format::{Format, FormatId};
use crossdock_transport::control::RefusalCode;
use crossdock_transport::{ControlMessage, Notice, Reply};
use std::collections::{BTreeMap, BTreeSet};

impl Context {
    /// Plans the ways of a stream's formats to those of its subscriptions that say what they accept. What can be read
    /// from here on, leaves.
    pub(crate) fn replan(&mut self, stream_key: usize) {
        let Some(stream) = self.streams.get(stream_key) else { return };
        let accepts = |key: &usize| self.subscriptions.get(*key).is_some_and(|s| s.accept.is_some());
        let keys: Vec<usize> = stream.subscriptions.iter().copied().filter(accepts).collect();
        for &key in &keys {
            self.resolve_accepted(key);
        }
        let reads = self.reads(&keys);
        let mut used = BTreeSet::new();
        // Many accept the same.
        let mut planned: BTreeMap<Vec<FormatId>, Vec<(u64, Route)>> = BTreeMap::new();
        for key in keys {
            let Some(targets) = self.accept(key).map(|accept| accept.targets.clone()) else { continue };
            let accepted: Vec<FormatId> = targets.iter().map(Format::id).collect();
            let ways = match planned.get(&accepted) {
                Some(ways) => ways.clone(),
                None => self.ways_to(stream_key, &targets, &reads),
            };
            planned.insert(accepted, ways.clone());
            let chains = ways.iter().filter_map(|(_, way)| match way {
                Route::Chain(chain) => Some(*chain),
                Route::Direct | Route::None => None,
            });
            let chains: Vec<usize> = chains.collect();
            self.plan_narrowed(key, stream_key, &chains);
            used.extend(chains);
            if let Some(accept) = self.accept_mut(key) {
                accept.ways = ways;
            }
            self.note_readable(key);
        }
        if let Some(stream) = self.streams.get_mut(stream_key) {
            stream.morphing.forget_unused(&used);
        }
        self.note_wanted(stream_key);
    }

    /// The formats that a subscription accepts, if it names any.
    #[inline]
    pub(crate) fn accept(&self, key: usize) -> Option<&Accept> {
        self.subscriptions.get(key)?.accept.as_deref()
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn accept_mut(&mut self, key: usize) -> Option<&mut Accept> {
        self.subscriptions.get_mut(key)?.accept.as_deref_mut()
    }

    /// Plans a subscription's query for formats that it accepts and that have come to be known.
    fn resolve_accepted(&mut self, key: usize) {
        let Some(subscription) = self.subscriptions.get(key) else { return };
        let (stream, peer, number) = (subscription.stream, subscription.peer, subscription.number);
        let Some(accept) = &subscription.accept else { return };
        let of = self.streams.get(stream).map(|stream| stream.name.as_str()).unwrap_or_default();
        let known = accept.names.iter().filter_map(|name| self.snapshot.format_named(of, name).ok().flatten());
        let planned = |format: &Format| subscription.entries.iter().any(|entry| entry.format == format.id().0);
        let new: Vec<Format> = known.filter(|format| !planned(format)).collect();
        for format in new {
            let Some(subscription) = self.subscriptions.get_mut(key) else { return };
            let planned = subscription.add_format(&format);
            self.update_node(key);
            let Some(subscription) = self.subscriptions.get_mut(key) else { return };
            let message: ControlMessage = match planned {
                Ok(output) => {
                    let awaiting = subscription.awaiting.take();
                    if let Some(accept) = &mut subscription.accept {
                        accept.targets.push(format);
                    }
                    match awaiting {
                        Some(id) => {
                            self.confirm_subscription(peer, id, number);
                            continue;
                        }
                        None => Notice::Format { subscription: number, format: output.describe() }.into(),
                    }
                }
                Err(error) => match subscription.awaiting.take() {
                    Some(id) => {
                        self.remove_subscription(key);
                        Reply::Refused { id, refusal: refuse(RefusalCode::Query, error.to_string()) }.into()
                    }
                    None => Notice::Unreadable { subscription: number, message: error.to_string() }.into(),
                },
            };
            self.tell(peer, &message);
        }
    }

    /// Which fields of each accepted format the queries of these subscriptions read, a flag a field; by format.
    fn reads(&self, keys: &[usize]) -> BTreeMap<FormatId, Vec<bool>> {
        let mut reads: BTreeMap<FormatId, Vec<bool>> = BTreeMap::new();
        for subscription in keys.iter().filter_map(|key| self.subscriptions.get(*key)) {
            for target in subscription.accept.iter().flat_map(|accept| &accept.targets) {
                let read = reads.entry(target.id()).or_insert_with(|| vec![false; target.fields().len()]);
                subscription.mark_reads(target, read);
            }
        }
        reads
    }

    /// A subscription's query for what the chains that lead to it make, where that is less than what it accepts.
    fn plan_narrowed(&mut self, key: usize, stream_key: usize, chains: &[usize]) {
        let Some(stream) = self.streams.get(stream_key) else { return };
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let runs = chains.iter().filter_map(|chain| stream.morphing.chains.get(*chain)?.as_deref());
        subscription.plan_narrowed(runs.filter(|run| run.made != run.to).map(|run| (&run.to, &run.made)));
        self.update_node(key);
    }

    /// The way of each format of a stream to one of the accepted ones, of which no more is read than this.
    fn ways_to(
        &mut self,
        stream_key: usize,
        targets: &[Format],
        reads: &BTreeMap<FormatId, Vec<bool>>,
    ) -> Vec<(u64, Route)> {
        let by_name = self.config.morph.by_name;
        let Some(stream) = self.streams.get_mut(stream_key) else { return Vec::new() };
        let versions: Vec<Format> = stream.formats.iter().map(|known| known.format.clone()).collect();
        let morphing = &mut stream.morphing;
        let mut ways = Vec::new();
        for from in &versions {
            let way = match morphing.chain(from, targets, &versions, by_name) {
                None => Route::None,
                Some(chain) if chain.steps.is_empty() => Route::Direct,
                Some(chain) => morphing.chain_for(from, &chain, targets, reads).map_or(Route::None, Route::Chain),
            };
            ways.push((from.id().0, way));
        }
        ways
    }
}

impl super::Morphing {
    /// Removes chains that no subscription takes any more. The counters of a removed chain go to the chain that makes
    /// other fields by the same steps.
    fn forget_unused(&mut self, used: &BTreeSet<usize>) {
        let keys: Vec<usize> = self.chains.iter().map(|(key, _)| key).filter(|key| !used.contains(key)).collect();
        for key in keys {
            let Some(run) = self.chains.remove(key) else { continue };
            let same = |slot: &&mut Box<ChainRun>| slot.from == run.from && slot.steps == run.steps;
            if let Some(other) = self.chains.iter_mut().filter_map(|(_, slot)| slot.as_mut()).find(same) {
                other.tally += run.tally;
            }
        }
    }

    /// The key of a chain, compiled unless it is there already.
    fn chain_for(
        &mut self,
        from: &Format,
        chain: &Chain,
        targets: &[Format],
        reads: &BTreeMap<FormatId, Vec<bool>>,
    ) -> Option<usize> {
        let to = chain.steps.last().map_or(from.id(), |step| step.to);
        let read = reads.get(&to).map(Vec::as_slice).unwrap_or_default();
        let same =
            |slot: &Option<Box<ChainRun>>| slot.as_ref().is_some_and(|slot| slot.is_as(from, &chain.steps, read));
        if let Some((key, _)) = self.chains.iter().find(|(_, slot)| same(slot)) {
            return Some(key);
        }
        let run = self.compile_chain(from, chain, targets, reads)?;
        Some(self.chains.insert(Some(Box::new(run))))
    }

    /// A chain as it runs: its steps' parts, as few as they can be, each making no more than is read.
    pub(crate) fn compile_chain(
        &self,
        from: &Format,
        chain: &Chain,
        targets: &[Format],
        reads: &BTreeMap<FormatId, Vec<bool>>,
    ) -> Option<ChainRun> {
        let mut parts = Vec::new();
        let mut at = from.clone();
        for step in &chain.steps {
            match step.conversion {
                Some(number) => parts.extend(self.conversions.compiled(number)?.parts.iter().cloned()),
                None => {
                    let to = targets.iter().find(|target| target.id() == step.to)?;
                    parts.push(Part::Plan(Plan::by_name(&at, to, &Rules::none()).ok()?));
                }
            }
            at = parts.last()?.to().clone();
        }
        let mut parts = fuse(parts);
        let reads = reads.get(&at.id()).map(Vec::as_slice).unwrap_or_default();
        if !reads.is_empty() {
            parts = narrow(parts, reads);
        }
        let mut run = ChainRun::new(from, &at, chain.steps.clone(), chain.weight, parts)?;
        run.reads = reads.into();
        Some(run)
    }
}
