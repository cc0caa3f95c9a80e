//! Which way each format of a stream takes to each of its subscriptions, planned anew whenever that may have changed.

use crate::context::Context;
use crate::morph::chain::ChainRun;
use crate::morph::compile::{Part, fuse};
use crate::morph::{Accept, Way};
use crate::requests::refuse;
use crossdock_control::conversions::Chain;
use crossdock_format::Format;
use crossdock_format::convert::{Plan, Rules};
use crossdock_transport::control::RefusalCode;
use crossdock_transport::{ControlMessage, Notice, Reply};
use std::collections::BTreeSet;

impl Context {
    /// Plans the ways of a stream's formats to those of its subscriptions that say what they accept. What can be read from here
    /// on, leaves.
    pub(crate) fn replan(&mut self, stream_key: usize) {
        let Some(stream) = self.streams.get(stream_key) else { return };
        let accepts = |key: &usize| self.subscriptions.get(*key).is_some_and(|s| s.accept.is_some());
        let keys: Vec<usize> = stream.subscriptions.iter().copied().filter(accepts).collect();
        for &key in &keys {
            self.resolve_accepted(key);
        }
        let mut used = BTreeSet::new();
        for key in keys {
            let Some(targets) = self.accept(key).map(|accept| accept.targets.clone()) else { continue };
            let ways = self.ways_to(stream_key, &targets);
            used.extend(ways.iter().filter_map(|(_, way)| match way {
                Way::Chain(chain) => Some(*chain),
                Way::AsTheyAre | Way::None => None,
            }));
            if let Some(accept) = self.accept_mut(key) {
                accept.ways = ways;
            }
            self.note_readable(key);
        }
        if let Some(stream) = self.streams.get_mut(stream_key) {
            stream.morphing.chains.retain(|key, _| used.contains(&key));
        }
        self.note_wanted(stream_key);
    }

    /// What a subscription accepts, if it says so.
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
        let known = accept.names.iter().filter_map(|name| self.format_named(Some(stream), name).ok().flatten());
        let planned = |format: &Format| subscription.entries.iter().any(|entry| entry.format == format.id().0);
        let new: Vec<Format> = known.filter(|format| !planned(format)).collect();
        for format in new {
            let Some(subscription) = self.subscriptions.get_mut(key) else { return };
            let message: ControlMessage = match subscription.add_format(&format) {
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

    /// The way of each format of a stream to one of the accepted ones.
    fn ways_to(&mut self, stream_key: usize, targets: &[Format]) -> Vec<(u64, Way)> {
        let by_name = self.config.morph.by_name;
        let Some(stream) = self.streams.get_mut(stream_key) else { return Vec::new() };
        let versions: Vec<Format> = stream.formats.iter().map(|known| known.format.clone()).collect();
        let morphing = &mut stream.morphing;
        let mut ways = Vec::new();
        for from in &versions {
            let way = match morphing.chain(from, targets, &versions, by_name) {
                None => Way::None,
                Some(chain) if chain.steps.is_empty() => Way::AsTheyAre,
                Some(chain) => morphing.chain_for(from, &chain, targets).map_or(Way::None, Way::Chain),
            };
            ways.push((from.id().0, way));
        }
        ways
    }
}

impl super::Morphing {
    /// The key of a chain, compiled unless it is there already.
    fn chain_for(&mut self, from: &Format, chain: &Chain, targets: &[Format]) -> Option<usize> {
        let same = |slot: &Option<Box<ChainRun>>| slot.as_ref().is_some_and(|run| run.steps == chain.steps);
        if let Some((key, _)) = self.chains.iter().find(|(_, slot)| same(slot)) {
            return Some(key);
        }
        let run = self.compile_chain(from, chain, targets)?;
        Some(self.chains.insert(Some(Box::new(run))))
    }

    /// A chain as it runs: its steps' parts, as few as they can be.
    pub(crate) fn compile_chain(&self, from: &Format, chain: &Chain, targets: &[Format]) -> Option<ChainRun> {
        let mut parts = Vec::new();
        let mut at = from.clone();
        for step in &chain.steps {
            match step.conversion {
                Some(number) => parts.extend(self.compiled.get(&number)?.parts.iter().cloned()),
                None => {
                    let to = targets.iter().find(|target| target.id() == step.to)?;
                    parts.push(Part::Plan(Plan::by_name(&at, to, &Rules::none()).ok()?));
                }
            }
            at = parts.last()?.to().clone();
        }
        Some(ChainRun::new(from, &at, chain.steps.clone(), chain.weight, fuse(parts)))
    }
}
