//! Morphing in transit: subscriptions that accept certain formats only, and the conversions that bring records there.
//!
//! A subscription may say which formats it accepts; its query is then planned for those. For each format that its
//! stream brings there is a [`Route`]: direct, through a chain of conversions, or none. Routes are planned anew whenever a
//! conversion, a format or such a subscription comes or goes, and chains compiled, away from the core ([`routes`]); a
//! context takes the plan in between two batches ([`install`]). A chain is the handler of a node ([`chain`],
//! `crate::graph::convert`), and shared by all subscriptions that take the same one, so that a batch is converted once
//! for all of them. A chain makes only the fields that one of their queries or a later step reads, so that the needed
//! fields are extracted before they are reformatted ([`narrow`]).
//!
//! For a format without a route, the applications on the stream are asked for a conversion (the paper's request for a
//! handler, 4.2.3). Until one answers, records wait in the queue of the node that will take them, or are dropped, by the
//! subscription's policy; [`waiting`] reports it.

pub(crate) mod chain;
pub(crate) mod compile;
mod install;
pub(crate) mod lists;
mod narrow;
pub(crate) mod requests;
pub(crate) mod routes;
pub(crate) mod waiting;

use crate::catalog::{Conversions, StreamEntry};
use crate::pending::Pending;
use chain::{Between, ConversionChain};
use crossdock_control::conversions::Cost;
use crossdock_format::{Format, FormatId};
use crossdock_mailbox::Pool;
use crossdock_transport::{FormatName, Unreadable};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// How records of one format come to a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The query takes them.
    Direct,
    /// Through a chain of the stream, by its number.
    Convert(u64),
    /// Not now.
    Unreachable,
}

/// The plans by name between two versions of a stream, where there are any: such a plan is always the same.
pub(crate) type ByNamePlans = Arc<Mutex<BTreeMap<(FormatId, FormatId), Option<ByNamePlan>>>>;

/// The facts of a plan by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByNamePlan {
    pub(crate) cost: Cost,
    /// Whether it refuses no record, as policies want it.
    pub(crate) takes_all: bool,
}

/// How the formats of one stream come to its subscriptions here.
#[derive(Default)]
pub(crate) struct Morphing {
    /// The conversions that routes are planned from now.
    conversions: Arc<Conversions>,
    /// The stream's first formats, to which there are routes or none.
    formats: usize,
    /// How often the subscriptions that accept certain formats have changed, and the value at which there are routes.
    changes: u64,
    routed: u64,
    /// Whether they are planned once more, after a panic that took them or left only some of them installed.
    is_retried: bool,
    by_name: ByNamePlans,
    /// The chains in use.
    chains: Vec<Arc<ConversionChain>>,
    /// Chains that there were.
    chains_made: u64,
    /// Keys of the peers that are notified of wanted conversions.
    listeners: Vec<usize>,
    /// The conversions wanted now: from a format that came, to one that is accepted.
    wanted: Vec<(Format, Format)>,
    /// The same of other I/O contexts, by their places.
    wanted_elsewhere: BTreeMap<usize, Vec<(Format, Format)>>,
}

impl std::fmt::Debug for Morphing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Morphing")
            .field("conversions", &self.conversions)
            .field("chains", &self.chains.len())
            .finish_non_exhaustive()
    }
}

impl Morphing {
    /// Whether routes are planned for the formats and conversions that the stream has now.
    pub(crate) fn is_routed(&self, entry: &StreamEntry) -> bool {
        self.formats == entry.formats().len() && Arc::ptr_eq(&self.conversions, entry.conversions())
    }

    /// Whether routes are to be planned: for these, or for other subscriptions.
    pub(crate) fn needs_routes(&self, entry: &StreamEntry) -> bool {
        !self.is_routed(entry) || self.routed != self.changes
    }

    /// Whether there are routes to the stream's format at a place, or none are needed.
    pub(crate) fn covers(&self, format: usize) -> bool {
        format < self.formats
    }

    /// The stream has only its first `formats` formats left of those before.
    pub(crate) fn forget_formats(&mut self, formats: usize) {
        self.formats = self.formats.min(formats);
    }

    /// The routes stay unchanged, whatever has changed.
    pub(crate) fn adopt_routes(&mut self, entry: &StreamEntry) {
        self.conversions = Arc::clone(entry.conversions());
        (self.formats, self.routed, self.is_retried) = (entry.formats().len(), self.changes, false);
    }

    /// The same, where no subscription needs routes: no chain is in use.
    pub(crate) fn end_routes(&mut self, entry: &StreamEntry) {
        self.adopt_routes(entry);
        self.chains.clear();
    }

    /// Chains come into use. Those that were stay until all routes are installed, since a panic may leave some that lead
    /// through them.
    fn add_chains(&mut self, chains: &[Arc<ConversionChain>]) {
        let new = chains.iter().filter(|chain| self.chain(chain.number).is_none()).cloned();
        let new: Vec<Arc<ConversionChain>> = new.collect();
        self.chains.extend(new);
    }

    /// The conversions wanted at any I/O context, each once.
    pub(crate) fn all_wanted(&self) -> Vec<(Format, Format)> {
        let mut all = self.wanted.clone();
        for want in self.wanted_elsewhere.values().flatten() {
            if !all.contains(want) {
                all.push(want.clone());
            }
        }
        all
    }

    /// The formats on a route, by their ids, the accepted one last.
    pub(crate) fn describe_route(&self, route: Route) -> Vec<String> {
        // There is none, or none is needed.
        let Route::Convert(number) = route else { return Vec::new() };
        let chain = self.chain(number);
        chain.map(|chain| chain.steps.iter().map(|step| step.to.to_string()).collect()).unwrap_or_default()
    }

    /// A chain in use, by its number.
    pub(crate) fn chain(&self, number: u64) -> Option<&ConversionChain> {
        self.chains.iter().find(|chain| chain.number == number).map(|chain| &**chain)
    }
}

/// The formats that a subscription accepts.
#[derive(Debug)]
pub(crate) struct Accept {
    /// As they were named; those that were not known yet may be later.
    names: Arc<[FormatName]>,
    /// Whether it names none: it accepts the one that registered conversions lead to, and takes what nothing converts unchanged.
    is_open: bool,
    /// Those that are known and that the query fits.
    targets: Vec<Format>,
    unreadable: Unreadable,
    /// By the id of the format that comes.
    routes: Vec<(u64, Route)>,
    /// Formats that came and have no route; the subscriber has been notified.
    missed: Vec<Format>,
    /// The request to answer once there are routes. It is refused if the subscription ends before.
    unrouted: Option<Pending>,
}

impl Accept {
    /// The formats that a request names, and what becomes of records that nothing brings there. It is answered with the routes.
    pub(crate) fn named(request: Pending, names: Vec<FormatName>, unreadable: Unreadable) -> Accept {
        let (names, targets, routes, missed) = (names.into(), Vec::new(), Vec::new(), Vec::new());
        Accept { names, is_open: false, targets, unreadable, routes, missed, unrouted: Some(request) }
    }

    /// Whatever format the registered conversions lead to.
    pub(crate) fn open(request: Pending) -> Accept {
        Accept { is_open: true, ..Accept::named(request, Vec::new(), Unreadable::Drop) }
    }

    /// A named format is known, and the query fits it.
    pub(crate) fn accept(&mut self, format: Format) {
        self.targets.push(format);
    }

    /// Whether none of the named formats is known.
    pub(crate) fn knows_none(&self) -> bool {
        self.targets.is_empty()
    }

    /// The subscription ends before it has routes; the request, if it waits for them.
    pub(crate) fn give_up(&mut self) -> Option<Pending> {
        self.unrouted.take()
    }

    /// The formats, and what becomes of records that nothing brings there, in words.
    pub(crate) fn describe(&self) -> (Vec<String>, String) {
        (self.names.iter().map(waiting::short).collect(), self.unreadable.word().to_owned())
    }

    /// The number of formats to which there are routes or known to be none.
    #[cfg(test)]
    pub(crate) fn known_routes(&self) -> usize {
        self.routes.len()
    }

    /// How records of this format come.
    pub(crate) fn route(&self, format: u64) -> Route {
        self.routes.iter().find(|(id, _)| *id == format).map_or(Route::Unreachable, |(_, route)| *route)
    }
}

/// The common parts of all chains of a context.
pub(crate) struct Morph {
    /// The memory between the parts of the chain that runs.
    between: Between,
    /// Keys of streams that subscriptions have left since their routes were planned.
    stale: BTreeSet<usize>,
    /// Sessions that have offered conversions, by their serial numbers.
    owners: BTreeSet<u64>,
    /// Sessions that have gone, by their serial numbers, with the streams for which they had conversions: these stay until what
    /// came before has crossed to other contexts, where it may need them.
    gone: Vec<(u64, Vec<u32>)>,
}

impl Morph {
    /// Nothing to do yet; chains have the memory of `pool` between their parts.
    pub(crate) fn new(pool: Pool) -> Morph {
        let (stale, owners, gone) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        Morph { between: Arc::new(Mutex::new(pool)), stale, owners, gone }
    }

    /// A subscription that accepts certain formats only has left a stream, whose routes are planned anew with the next turn.
    pub(crate) fn note_left(&mut self, stream: usize) {
        self.stale.insert(stream);
    }

    /// Whether such routes are to be planned.
    pub(crate) fn has_left(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Whether conversions are to be withdrawn once records have crossed to other contexts.
    pub(crate) fn awaits_crossing(&self) -> bool {
        !self.gone.is_empty()
    }
}
