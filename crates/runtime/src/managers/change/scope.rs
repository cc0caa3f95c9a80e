//! The handlers that a change concerns, in the order of the data, with the streams that they read.

use super::Prepared;
use super::wanted::WantedSpecs;
use crate::managers::Managers;
use crate::managers::deployed::{Deployed, KnownStream, reads};
use crate::managers::spec::HandlerSpec;
use crate::refusal::Stopped;
use crossdock_control::plan::scope::{Links, Scope};
use std::collections::{BTreeMap, BTreeSet};

/// A handler that a change concerns, as it is to be, with the streams that it reads.
type Concerned = (HandlerSpec, Vec<String>);

impl Managers {
    /// The handlers that a change of these concerns, in their new form: in an order in which each comes behind those whose
    /// streams it reads. Those in a cycle come last: planning refuses them. `is_whole`: all handlers are looked at.
    pub(super) fn concerned(
        &self,
        nodes: &WantedSpecs,
        is_whole: bool,
        prepared: &mut Prepared,
    ) -> (Scope, Vec<Concerned>) {
        let mut left = self.changing(nodes, prepared);
        let links = nodes.keys().map(|name| {
            let links = left.get(name).map(|(spec, reads)| Links {
                reads: reads.iter().cloned().collect(),
                makes: spec.derived().to_owned(),
            });
            (name.clone(), links)
        });
        let reserves = |name: &str| {
            let after = nodes.get(name).and_then(Option::as_ref);
            let specs = self.handlers.get(name).map(|there| &there.spec).into_iter().chain(after);
            specs.into_iter().any(|spec| spec.reserve_path_msgs_per_s.is_some())
        };
        let mut scope = self.joined.scope(&links.collect(), reserves);
        if is_whole {
            scope.handlers.extend(self.handlers.keys().cloned());
            scope.reserves = true;
        }
        for name in scope.handlers.iter().filter(|name| !nodes.contains_key(*name)) {
            let there = self.handlers.get(name).map(|there| (name.clone(), (there.spec.clone(), there.read_names())));
            left.extend(there);
        }
        let mut order = Vec::new();
        while !left.is_empty() {
            let made: BTreeSet<&str> = left.values().map(|(spec, _)| spec.derived()).collect();
            let is_next = |reads: &Vec<String>| reads.iter().all(|stream| !made.contains(stream.as_str()));
            let mut next: Vec<String> =
                left.iter().filter(|(_, (_, reads))| is_next(reads)).map(|(name, _)| name.clone()).collect();
            if next.is_empty() {
                next.extend(left.keys().cloned());
            }
            order.extend(next.iter().filter_map(|name| left.remove(name)));
        }
        (scope, order)
    }

    /// The handlers that change, with what they are to read.
    fn changing(&self, nodes: &WantedSpecs, prepared: &mut Prepared) -> BTreeMap<String, Concerned> {
        let mut changing = BTreeMap::new();
        let catalog = self.catalog.snapshot().ok();
        let new = || nodes.values().flatten().map(HandlerSpec::derived);
        for (name, spec) in nodes.iter().filter_map(|(name, spec)| Some((name, spec.as_ref()?))) {
            let reads = match self.handlers.get(name).filter(|there| there.spec == *spec) {
                // Nothing is parsed anew of those that stay unchanged.
                Some(there) => Ok(there.read_names()),
                None => {
                    let known = catalog.iter().flat_map(|catalog| catalog.known_names());
                    let known = known.chain(self.joined.made()).chain(new());
                    // Its own output is not its input.
                    reads(spec, &self.compiler.natives, known.filter(|name| *name != spec.derived()))
                }
            };
            match reads {
                Ok(reads) => drop(changing.insert(name.clone(), (spec.clone(), reads))),
                Err(why) => prepared.refuse(format!("handler `{}`: {why}", spec.asked_name())),
            }
        }
        changing
    }

    /// The known formats and rates of the streams that handlers read or make.
    pub(super) fn published(&mut self, order: &[Concerned]) -> Result<BTreeMap<String, KnownStream>, Stopped> {
        let reads = order.iter().flat_map(|(_, reads)| reads.iter().cloned());
        let names: BTreeSet<String> = reads.chain(order.iter().map(|(spec, _)| spec.derived().to_owned())).collect();
        // A removal needs to know of none.
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let catalog = self.catalog.snapshot()?;
        // A format may have been announced since: then the contexts are asked again.
        let formats = |name: &String| catalog.find(name).map_or(0, |entry| entry.formats().len());
        let is_same = |name: &String, known: &BTreeMap<String, KnownStream>| {
            known.get(name).map_or(0, |stream| stream.formats.len()) == formats(name)
        };
        let known = self.progress.known.as_ref().filter(|(asked, _)| *asked == names);
        if let Some((_, known)) = known.filter(|(asked, known)| asked.iter().all(|name| is_same(name, known))) {
            return Ok(known.clone());
        }
        let known = self.known_streams(&names)?;
        self.progress.known = Some((names, known.clone()));
        Ok(known)
    }

    /// The handlers that read what a handler makes, or make what it reads, those that make the same stream, and itself.
    pub(in crate::managers) fn neighbours<'a>(&'a self, name: &'a str, reads: &'a [String]) -> BTreeSet<&'a str> {
        let there = self.handlers.get(name);
        let makes = there.map(|there| there.spec.derived());
        let reads_now = there.into_iter().flat_map(|there| &there.reads).map(|(stream, _)| stream);
        let feeding = reads_now.chain(reads).flat_map(|stream| self.joined.makers(stream));
        let fed = makes.into_iter().flat_map(|stream| self.joined.readers(stream).chain(self.joined.makers(stream)));
        feeding.chain(fed).chain([name]).collect()
    }

    /// A handler is there, has changed or is gone: what is kept of it for plans and reports follows.
    pub(in crate::managers) fn note_changed(&mut self, name: &str) {
        // Theirs have other queues now.
        let near = self.neighbours(name, &[]).into_iter().map(str::to_owned).collect::<Vec<String>>();
        self.unpublished.extend(near);
        match self.handlers.get(name) {
            Some(there) => {
                self.joined.insert(name, links(there));
                self.ledger.set(name, self.takes(name, there));
            }
            None => {
                self.joined.remove(name);
                self.ledger.set(name, None);
            }
        }
    }

    /// The loads of handlers have been measured anew.
    pub(in crate::managers) fn recount(&mut self) {
        let takes: Vec<_> = self.handlers.iter().map(|(name, there)| (name.clone(), self.takes(name, there))).collect();
        takes.into_iter().for_each(|(name, takes)| self.ledger.set(&name, takes));
        debug_assert!(self.handlers.iter().all(|(name, there)| self.joined.links(name) == Some(&links(there))));
    }

    /// The share of a handler in its context's headroom, and the context.
    fn takes(&self, name: &str, there: &Deployed) -> Option<(usize, crossdock_control::load::Load)> {
        let at = usize::from(self.overlay.placed(there.node)?.at.0);
        Some((at, self.load_of(name, there).max(there.need.reserve)))
    }
}

fn links(there: &Deployed) -> Links {
    let reads = there.reads.iter().map(|(stream, _)| stream.clone()).collect();
    Links { reads, makes: there.spec.derived().to_owned() }
}
