//! Plans the route of each format of a stream to each subscription that accepts certain formats only, and compiles the
//! chains, away from the core. The plan is taken in between two batches ([`super::install`]).

use crate::catalog::{Conversions, Snapshot};
use crate::config::ByName;
use crate::graph::convert::Stock;
use crate::morph::chain::{Between, ConversionChain, Tally};
use crate::morph::compile::{Part, fuse, plan_cost};
use crate::morph::narrow::narrow;
use crate::morph::{ByNamePlan, ByNamePlans, Route};
use crate::subscriptions::Planned;
use crossdock_control::conversions::{Chain, Cost};
use crossdock_format::convert::{Plan, Rules};
use crossdock_format::registry::Diff;
use crossdock_format::{Format, FormatDigest, FormatId};
use crossdock_query::Select;
use crossdock_transport::FormatName;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

/// Which fields of each accepted format are read, a flag a field; by format.
pub(crate) type Reads = BTreeMap<FormatId, Vec<bool>>;

/// A stream's conversions and formats, to find chains among.
#[derive(Clone)]
pub(crate) struct Finder {
    pub(crate) conversions: Arc<Conversions>,
    /// The stream's formats.
    pub(crate) versions: Vec<Format>,
    pub(crate) by_name: ByName,
    pub(crate) plans: ByNamePlans,
}

impl Finder {
    /// The cheapest chain from a format of the stream to an accepted one.
    pub(crate) fn chain(&self, from: &Format, accept: &[Format]) -> Option<Chain> {
        // An accepted format need not be known, so that another format may come to have its id.
        if accept.iter().any(|accepted| accepted.id() == from.id() && accepted != from) {
            return None;
        }
        let ids: Vec<FormatId> = accept.iter().map(Format::id).collect();
        let plan = |from, to| self.by_name(from, to);
        self.conversions.graph().chain(from.id(), &ids, &plan)
    }

    /// Whether registered conversions lead from one format to another.
    fn leads(&self, from: &Format, to: &Format) -> bool {
        from != to && self.conversions.graph().chain(from.id(), &[to.id()], &|_, _| None).is_some()
    }

    /// The cost of the plan by name between two versions, if there is one, and the configuration or the stream's policy permits
    /// it.
    fn by_name(&self, from: FormatId, to: FormatId) -> Option<Cost> {
        let version = |id| self.versions.iter().position(|version| version.id() == id);
        let (from_version, to_version) = (version(from)?, version(to)?);
        let is_promised = self.conversions.policy().has_read(from_version, to_version);
        if self.by_name == ByName::Off && !is_promised {
            return None;
        }
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = *plans.entry((from, to)).or_insert_with(|| {
            let (from, to) = (self.versions.get(from_version)?, self.versions.get(to_version)?);
            let plan = Plan::by_name(from, to, &Rules::none()).ok()?;
            Some(ByNamePlan { cost: plan_cost(&plan), takes_all: Diff::of(to, from).is_compatible() })
        });
        plan.filter(|plan| self.by_name == ByName::VersionsOfStream || plan.takes_all).map(|plan| plan.cost)
    }

    /// A chain as it runs: its steps' parts, as few as they can be, each making no more than is read.
    pub(crate) fn compile(
        &self,
        (from, chain): (&Format, &Chain),
        accept: &[Format],
        reads: &Reads,
        number: u64,
    ) -> Option<ConversionChain> {
        let mut parts = Vec::new();
        let mut to = from.clone();
        for step in &chain.steps {
            match step.conversion {
                Some(number) => parts.extend(self.conversions.compiled(number)?.parts.iter().cloned()),
                None => {
                    let next = accept.iter().find(|target| target.id() == step.to)?;
                    parts.push(Part::Plan(Plan::by_name(&to, next, &Rules::none()).ok()?));
                }
            }
            to = parts.last()?.to().clone();
        }
        let mut parts = fuse(parts);
        let reads: Box<[bool]> = reads.get(&to.id()).map(Vec::as_slice).unwrap_or_default().into();
        if !reads.is_empty() {
            parts = narrow(parts, &reads);
        }
        let made = parts.last()?.to().clone();
        let (from, steps, weight, tally) = (from.clone(), chain.steps.clone(), chain.weight, Arc::default());
        Some(ConversionChain { number, from, to, made, reads, steps, weight, parts, tally })
    }
}

/// A subscription that accepts certain formats only, as routes are planned for it.
pub(crate) struct Accepting {
    /// Its key and its id.
    pub(crate) key: usize,
    pub(crate) id: u64,
    pub(crate) select: Arc<Select>,
    pub(crate) names: Arc<[FormatName]>,
    /// The formats that it accepts and that are known, each with a flag for each field that its query reads.
    pub(crate) targets: Vec<(Format, Arc<[bool]>)>,
    /// The formats that its query is planned for, or found not to fit, by their ids.
    pub(crate) entries: Vec<u64>,
    /// Where it takes what nothing converts unchanged: the formats that its query fits, by their ids, with the fields that it reads.
    pub(crate) open_to: Option<Vec<(u64, Arc<[bool]>)>>,
    /// Those among the entries that have only some fields of an accepted format.
    pub(crate) narrowed: Vec<u64>,
    pub(crate) routes: Vec<(u64, Route)>,
}

impl Accepting {
    /// Plans its query for formats that it accepts and that have come to be known.
    fn resolve(&mut self, snapshot: &Snapshot, stream: &str, versions: &[Format]) -> Vec<(Format, Planned)> {
        let mut new: Vec<(Format, Planned)> = Vec::new();
        let named = self.names.iter().filter_map(|name| snapshot.format_named(stream, name).ok().flatten());
        let unnamed = if self.open_to.is_some() { versions } else { &[] };
        for format in named.chain(unnamed.iter().cloned()) {
            if self.entries.contains(&format.id().0) {
                continue;
            }
            let planned = Planned::guarded(&self.select, &format);
            self.entries.push(format.id().0);
            match &mut self.open_to {
                Some(open_to) => open_to.extend(planned.fits().then(|| (format.id().0, planned.reads()))),
                None => self.targets.extend(planned.fits().then(|| (format.clone(), planned.reads()))),
            }
            new.push((format, planned));
        }
        new
    }

    /// The later choice of one that accepts no certain format, if that is not settled yet: the version to which registered
    /// conversions lead from most others, the newest of them; or all that there are, if none lead anywhere.
    fn choose(&mut self, finder: &Finder) -> Vec<Format> {
        let Some(open_to) = self.open_to.as_ref().filter(|_| self.targets.is_empty()) else { return Vec::new() };
        let reads =
            |version: &Format| open_to.iter().find(|(id, _)| *id == version.id().0).map(|(_, reads)| reads.clone());
        let fitting = finder.versions.iter().filter_map(|version| Some((version.clone(), reads(version)?)));
        let mut fitting: Vec<(Format, Arc<[bool]>)> = fitting.collect();
        let leading = |(to, _): &(Format, _)| finder.versions.iter().filter(|from| finder.leads(from, to)).count();
        let best = (0..fitting.len()).max_by_key(|at| leading(&fitting[*at]));
        if let Some(best) = best.filter(|at| leading(&fitting[*at]) > 0) {
            fitting = vec![fitting.swap_remove(best)];
        }
        self.targets.clone_from(&fitting);
        fitting.into_iter().map(|(format, _)| format).collect()
    }

    /// Its query for what the chains to it make, where that is less than what it accepts; nothing where that has not
    /// changed.
    fn narrowed<'c>(&self, chains: impl Iterator<Item = &'c ConversionChain> + Clone) -> Option<Vec<Planned>> {
        let less = chains.filter(|chain| chain.made != chain.to);
        if less.clone().map(|chain| chain.made.id().0).eq(self.narrowed.iter().copied()) {
            return None;
        }
        Some(less.map(|chain| Planned::narrowed(&self.select, &chain.to, &chain.made)).collect())
    }
}

/// The state that routes are planned from.
pub(crate) struct RouteRequest {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The stream's name.
    pub(crate) stream: String,
    pub(crate) finder: Finder,
    pub(crate) between: Between,
    pub(crate) subscriptions: Vec<Accepting>,
    /// The chains in use, and how many have been made.
    pub(crate) chains: Vec<Arc<ConversionChain>>,
    pub(crate) chains_made: u64,
    /// How often the subscriptions have changed.
    pub(crate) changes: u64,
}

/// The routes to one subscription.
pub(crate) struct Routed {
    pub(crate) key: usize,
    pub(crate) id: u64,
    /// Formats that it accepts and that have come to be known.
    pub(crate) new: Vec<(Format, Planned)>,
    /// The formats that it accepts from now on, if it named nothing.
    pub(crate) chosen: Vec<Format>,
    /// Its query for formats that have only some fields of accepted ones, where these have changed.
    pub(crate) narrowed: Option<Vec<Planned>>,
    /// By the id of the format that comes.
    pub(crate) routes: Vec<(u64, Route)>,
}

/// The routes to all subscriptions of a stream that accept certain formats only.
pub(crate) struct RoutePlan {
    /// The conversions that it was planned from.
    pub(crate) conversions: Arc<Conversions>,
    pub(crate) formats: usize,
    pub(crate) changes: u64,
    pub(crate) subscriptions: Vec<Routed>,
    /// The chains that they take, and how many have been made.
    pub(crate) chains: Vec<Arc<ConversionChain>>,
    pub(crate) chains_made: u64,
    /// Handlers for each subscription whose routes are others than before.
    pub(crate) stock: Stock,
}

impl RouteRequest {
    /// Plans the routes.
    pub(crate) fn plan(self) -> RoutePlan {
        let RouteRequest { snapshot, stream, finder, between, mut subscriptions, chains, chains_made, changes } = self;
        let resolve = |accepting: &mut Accepting| {
            let new = accepting.resolve(&snapshot, &stream, &finder.versions);
            (new, accepting.choose(&finder))
        };
        let resolved: Vec<_> = subscriptions.iter_mut().map(resolve).collect();
        let reads = reads(&subscriptions);
        let mut chains = Chains { finder, known: chains, used: Vec::new(), made: chains_made };
        // Many accept the same.
        let mut planned: BTreeMap<Vec<FormatDigest>, Vec<(u64, Route)>> = BTreeMap::new();
        let (mut routed, mut stock) = (Vec::with_capacity(subscriptions.len()), Stock::default());
        for (accepting, (new, chosen)) in subscriptions.iter().zip(resolved) {
            let targets: Vec<Format> = accepting.targets.iter().map(|(format, _)| format.clone()).collect();
            let accepted = targets.iter().map(Format::digest).collect();
            let mut routes = planned.entry(accepted).or_insert_with(|| chains.routes_to(&targets, &reads)).clone();
            let open_to = accepting.open_to.as_deref().unwrap_or_default();
            let unchanged = |(format, route): &&mut (u64, Route)| {
                *route == Route::Unreachable && open_to.iter().any(|(id, _)| id == format)
            };
            routes.iter_mut().filter(unchanged).for_each(|(_, route)| *route = Route::Direct);
            let taken = routes.iter().filter_map(|(_, route)| chains.of(*route));
            let narrowed = accepting.narrowed(taken);
            if routes != accepting.routes {
                // An earlier record goes by the routes before.
                let before = accepting.routes.iter().filter(|route| !routes.contains(route));
                for chain in routes.iter().chain(before).filter_map(|(_, route)| chains.of(*route)) {
                    chain.instance(&between).into_iter().for_each(|instance| stock.put(chain.number, instance));
                }
            }
            routed.push(Routed { key: accepting.key, id: accepting.id, new, chosen, narrowed, routes });
        }
        let Chains { finder, used, made, .. } = chains;
        RoutePlan {
            formats: finder.versions.len(),
            conversions: finder.conversions,
            changes,
            subscriptions: routed,
            chains: used,
            chains_made: made,
            stock,
        }
    }
}

/// The chains of a stream, while routes are planned.
struct Chains {
    finder: Finder,
    /// Those that were in use before.
    known: Vec<Arc<ConversionChain>>,
    used: Vec<Arc<ConversionChain>>,
    made: u64,
}

impl Chains {
    /// The route of each format of the stream to one of the accepted ones; no more is read of it than this.
    fn routes_to(&mut self, accept: &[Format], reads: &Reads) -> Vec<(u64, Route)> {
        let mut routes = Vec::with_capacity(self.finder.versions.len());
        for from in self.finder.versions.clone() {
            // A panic is a flaw in the planning of this one, and takes no other along.
            let found = catch_unwind(AssertUnwindSafe(|| self.route(&from, accept, reads)));
            routes.push((from.id().0, found.unwrap_or(Route::Unreachable)));
        }
        routes
    }

    fn route(&mut self, from: &Format, accept: &[Format], reads: &Reads) -> Route {
        match self.finder.chain(from, accept) {
            None => Route::Unreachable,
            Some(chain) if chain.steps.is_empty() => Route::Direct,
            Some(chain) => self.number_of(from, &chain, accept, reads).map_or(Route::Unreachable, Route::Convert),
        }
    }

    /// The number of a chain, compiled unless it is there already.
    fn number_of(&mut self, from: &Format, chain: &Chain, accept: &[Format], reads: &Reads) -> Option<u64> {
        let to = chain.steps.last().map_or(from.id(), |step| step.to);
        let read = reads.get(&to).map(Vec::as_slice).unwrap_or_default();
        let is_it = |other: &&Arc<ConversionChain>| other.is_as(from, &chain.steps, read) && accept.contains(&other.to);
        if let Some(there) = self.used.iter().find(is_it) {
            return Some(there.number);
        }
        let there = match self.known.iter().find(is_it) {
            Some(there) => Arc::clone(there),
            None => {
                let mut new = self.finder.compile((from, chain), accept, reads, self.made + 1)?;
                self.made += 1;
                let alike = self.known.iter().find(|other| other.is_alike(from, &chain.steps));
                new.tally = alike.map_or_else(Arc::<Tally>::default, |other| Arc::clone(&other.tally));
                Arc::new(new)
            }
        };
        let number = there.number;
        self.used.push(there);
        Some(number)
    }

    fn of(&self, route: Route) -> Option<&ConversionChain> {
        // There is none, or none is needed.
        let Route::Convert(number) = route else { return None };
        self.used.iter().chain(&self.known).find(|chain| chain.number == number).map(|chain| &**chain)
    }
}

/// Which fields of each accepted format the queries of these subscriptions read.
fn reads(subscriptions: &[Accepting]) -> Reads {
    let mut reads = Reads::new();
    for (target, of_query) in subscriptions.iter().flat_map(|accepting| &accepting.targets) {
        let read = reads.entry(target.id()).or_insert_with(|| vec![false; target.fields().len()]);
        of_query.iter().zip(read).for_each(|(of_query, read)| *read |= of_query);
    }
    reads
}
