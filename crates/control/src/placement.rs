//! Handlers that are joined, placed together: a chain is cut between c-core and g-core where that is cheapest.
//!
//! A handler takes the same time wherever it runs, so what differs between two placements is what flows from one context to
//! another ([`Flow::crossing`]). The search goes through the handlers in the order of the data, tries contexts by the
//! least that the whole can cost from there, and comes back where nothing fits or nothing cheaper can follow. That least is
//! exact for a chain as long as headroom is no obstacle, so the first descent mostly is the end. A placement that is
//! not searched to its end within [`MAX_STEPS`] is improved by moving single handlers.

use crate::admission::{Need, fit, order};
use crate::load::{Contexts, Flow, Load};
use std::collections::BTreeMap;

/// Places that are looked at before the search settles for what it has: four times what the first descent takes with as
/// many handlers and contexts as there may be.
pub const MAX_STEPS: usize = 262_144;
/// Rounds in which single handlers are moved to where they cost less.
const MAX_ROUNDS: usize = 8;
/// The cost of what cannot be.
const NEVER: u64 = u64::MAX;

/// Where an input of a handler comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputSource {
    /// From another one that is placed with it, which comes before it in the list.
    Node(usize),
    /// From a context that is given.
    Context(usize, Flow),
}

/// A handler that is to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its needs.
    pub need: Need,
    /// The one context where it may be, if it was named.
    pub place: Option<usize>,
    /// Its inputs.
    pub reads: Vec<InputSource>,
    /// The flow that it makes.
    pub leaving: Flow,
    /// The contexts that this flows to besides those of other nodes: of readers that stay where they are, or the one with the
    /// device. The cost that they have of taking it over counts, but it is not held against their headroom.
    pub to: Vec<usize>,
}

/// Where handlers go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The context of each.
    pub contexts: Vec<usize>,
    /// Time that the flows between contexts cost, in ns per s.
    pub crossing_ns_per_s: u64,
    /// Whether it is known that nothing costs less. Otherwise the search was cut off.
    pub is_cheapest: bool,
}

/// Places handlers; each comes after those that it reads. The placement is within all headroom, margins
/// included. The same arguments give the same places.
///
/// `None`: nothing fits, or nothing was found in time.
#[must_use]
pub fn place(nodes: &[Node], contexts: &Contexts) -> Option<Placed> {
    let mut search = Search::new(nodes, contexts);
    search.descend(0);
    let is_cheapest = search.steps_left > 0;
    let (mut cost, mut at) = search.best.take()?;
    if !is_cheapest {
        (cost, at) = search.improve(cost, at);
    }
    Some(Placed { contexts: at, crossing_ns_per_s: cost, is_cheapest })
}

struct Search<'a> {
    nodes: &'a [Node],
    /// With what is placed so far committed.
    contexts: Contexts,
    empty: &'a Contexts,
    /// Places so far, and what they cost.
    at: Vec<usize>,
    cost: u64,
    /// By node and context: what it costs there by flows from and to given contexts; [`NEVER`] if it cannot be there.
    own: Vec<Vec<u64>>,
    /// By node and context: the least that all later nodes cost if it is there.
    later: Vec<Vec<u64>>,
    /// Contexts in the order in which equally cheap ones are tried.
    order: Vec<usize>,
    /// By context: the first that is like it in all that matters here as long as both are as they were.
    equivalent: Vec<usize>,
    best: Option<(u64, Vec<usize>)>,
    steps_left: usize,
}

impl<'a> Search<'a> {
    fn new(nodes: &'a [Node], contexts: &'a Contexts) -> Search<'a> {
        let all = 0..contexts.list().len();
        let own: Vec<Vec<u64>> =
            nodes.iter().map(|node| all.clone().map(|at| own_cost(node, contexts, at)).collect()).collect();
        let mut later = vec![vec![0; all.len()]; nodes.len()];
        for next in (1..nodes.len()).rev() {
            let whole = |at: usize| own[next][at].saturating_add(later[next][at]);
            let anywhere = all.clone().map(whole).min().unwrap_or(NEVER);
            // Only the flow from the very node before it counts, so for what is no chain this is less than it will be.
            let is_read = nodes[next].reads.contains(&InputSource::Node(next - 1));
            let crossing = if is_read { time(nodes[next - 1].leaving) } else { 0 };
            later[next - 1] = all.clone().map(|at| whole(at).min(anywhere.saturating_add(crossing))).collect();
        }
        let mut search = Search {
            nodes,
            contexts: contexts.clone(),
            empty: contexts,
            at: Vec::with_capacity(nodes.len()),
            cost: 0,
            own,
            later,
            order: order(contexts, None),
            equivalent: all.collect(),
            best: None,
            steps_left: MAX_STEPS,
        };
        search.find_equivalents();
        search
    }

    fn find_equivalents(&mut self) {
        let list = self.empty.list();
        let is_meant = |at: usize| {
            let of_node = |node: &Node| {
                let reads = |source: &InputSource| matches!(source, InputSource::Context(from, _) if *from == at);
                node.place == Some(at) || node.to.contains(&at) || node.reads.iter().any(reads)
            };
            self.nodes.iter().any(of_node)
        };
        let alone = |at: usize| (0..list.len()).all(|other| other == at || !self.empty.is_same_cpu(at, other));
        let exchangeable: Vec<usize> = (0..list.len()).filter(|&at| alone(at) && !is_meant(at)).collect();
        for &at in &exchangeable {
            let like = |other: &&usize| {
                let (one, other_capacity) = (list[at].capacity, list[**other].capacity);
                (one.kind, one.slice_ns) == (other_capacity.kind, other_capacity.slice_ns)
                    && self.empty.headroom(at) == self.empty.headroom(**other)
            };
            self.equivalent[at] = exchangeable.iter().find(like).copied().unwrap_or(at);
        }
    }

    fn descend(&mut self, node: usize) {
        if node == self.nodes.len() {
            self.best = Some((self.cost, self.at.clone()));
            return;
        }
        self.steps_left = self.steps_left.saturating_sub(self.order.len());
        let mut seen = Vec::new();
        for (least, at, cost) in self.candidates(node) {
            let is_worse = self.best.as_ref().is_some_and(|(best, _)| least >= *best);
            if is_worse || self.steps_left == 0 {
                return;
            }
            let is_untouched = self.contexts.used(at) == self.empty.used(at);
            if is_untouched && seen.contains(&self.equivalent[at]) {
                continue;
            }
            seen.extend(is_untouched.then_some(self.equivalent[at]));
            let crossing = crossing(self.nodes, node, &self.at, at);
            if fit(&self.nodes[node].need, crossing, &self.contexts, at).is_err() {
                continue;
            }
            let committed = self.nodes[node].need.committed(crossing);
            let before = std::mem::replace(&mut self.cost, cost);
            self.contexts.commit(at, committed);
            self.at.push(at);
            self.descend(node + 1);
            self.at.pop();
            self.contexts.release(at, committed);
            self.cost = before;
        }
    }

    /// The contexts where a node can be: the least that the whole then costs, the context, what it costs up to there. The
    /// cheapest first.
    fn candidates(&self, node: usize) -> Vec<(u64, usize, u64)> {
        let of_context = |&at: &usize| {
            let cost = self.cost.saturating_add(self.own[node][at]).saturating_add(self.taken_over(node, &self.at, at));
            let least = cost.saturating_add(self.later[node][at]);
            (least != NEVER).then_some((least, at, cost))
        };
        let mut candidates: Vec<(u64, usize, u64)> = self.order.iter().filter_map(of_context).collect();
        candidates.sort_by_key(|(least, ..)| *least);
        candidates
    }

    /// The cost of the flows from other nodes.
    fn taken_over(&self, node: usize, places: &[usize], at: usize) -> u64 {
        let crosses = |source: &InputSource| match source {
            InputSource::Node(from) if places[*from] != at => time(self.nodes[*from].leaving),
            _ => 0,
        };
        self.nodes[node].reads.iter().map(crosses).fold(0, u64::saturating_add)
    }

    /// Moves single nodes to where the whole costs less, until none is left or it has been tried often enough.
    fn improve(&self, mut cost: u64, mut at: Vec<usize>) -> (u64, Vec<usize>) {
        let mut readers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (reader, node) in self.nodes.iter().enumerate() {
            for source in &node.reads {
                if let InputSource::Node(from) = source {
                    readers.entry(*from).or_default().push(reader);
                }
            }
        }
        let mut contexts = self.committed(&at);
        for _ in 0..MAX_ROUNDS {
            let before = cost;
            for node in 0..at.len() {
                let readers = readers.get(&node).map_or(&[][..], Vec::as_slice);
                let price = |at: &[usize], to: usize| {
                    let of_readers = readers.iter().filter(|reader| at[**reader] != to).count() as u64;
                    let of_inputs = self.own[node][to].saturating_add(self.taken_over(node, at, to));
                    of_inputs.saturating_add(time(self.nodes[node].leaving).saturating_mul(of_readers))
                };
                let now = price(&at, at[node]);
                let mut better: Vec<(u64, usize)> =
                    self.order.iter().map(|&to| (price(&at, to), to)).filter(|(price, _)| *price < now).collect();
                better.sort_by_key(|(price, _)| *price);
                for (price, to) in better {
                    if let Some(moved) = self.moved(&contexts, &mut at, node, to, readers) {
                        (contexts, cost) = (moved, cost - (now - price));
                        break;
                    }
                }
            }
            if cost == before {
                break;
            }
        }
        (cost, at)
    }

    /// The contexts with these places committed.
    fn committed(&self, places: &[usize]) -> Contexts {
        let mut contexts = self.empty.clone();
        (0..places.len()).for_each(|node| contexts.commit(places[node], self.takes(node, places)));
        contexts
    }

    /// The load of a node at its context with these places.
    fn takes(&self, node: usize, places: &[usize]) -> Load {
        self.nodes[node].need.committed(crossing(self.nodes, node, places, places[node]))
    }

    /// Moves a node, if it and those that read it then fit.
    fn moved(
        &self,
        now: &Contexts,
        places: &mut [usize],
        node: usize,
        to: usize,
        readers: &[usize],
    ) -> Option<Contexts> {
        let mut contexts = now.clone();
        let touched = || readers.iter().chain([&node]).copied();
        touched().for_each(|one| contexts.release(places[one], self.takes(one, places)));
        let from = std::mem::replace(&mut places[node], to);
        for one in touched() {
            let crossing = crossing(self.nodes, one, places, places[one]);
            if fit(&self.nodes[one].need, crossing, &contexts, places[one]).is_err() {
                places[node] = from;
                return None;
            }
            contexts.commit(places[one], self.nodes[one].need.committed(crossing));
        }
        Some(contexts)
    }
}

fn time(flow: Flow) -> u64 {
    flow.crossing().time_ns_per_s
}

/// The cost of a node at a context by flows from and to given ones; [`NEVER`] if it would not fit there all by itself.
fn own_cost(node: &Node, contexts: &Contexts, at: usize) -> u64 {
    let mut crossing = Load::default();
    for source in &node.reads {
        if let InputSource::Context(from, flow) = source
            && *from != at
        {
            crossing = crossing + flow.crossing();
        }
    }
    if node.place.is_some_and(|place| place != at) || fit(&node.need, crossing, contexts, at).is_err() {
        return NEVER;
    }
    let leaves = node.to.iter().filter(|to| **to != at).count() as u64;
    crossing.time_ns_per_s.saturating_add(time(node.leaving).saturating_mul(leaves)).min(NEVER - 1)
}

/// The cost to a node of taking over the flows from other contexts.
fn crossing(nodes: &[Node], node: usize, places: &[usize], at: usize) -> Load {
    let of_source = |source: &InputSource| match source {
        InputSource::Context(from, flow) if *from != at => flow.crossing(),
        InputSource::Node(from) if places[*from] != at => nodes[*from].leaving.crossing(),
        InputSource::Node(_) | InputSource::Context(..) => Load::default(),
    };
    nodes[node].reads.iter().fold(Load::default(), |sum, source| sum + of_source(source))
}
