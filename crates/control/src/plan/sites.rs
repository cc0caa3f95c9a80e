//! Where those go that change.

use super::streams::Streams;
use super::{Current, Definition, Deployed, Difference, Refusal, Room, Wanted, WantedHandler};
use crate::admission::{self, AdmissionRequest, ContextChoice, Need, admit, fit};
use crate::figures::{Rate, Time};
use crate::load::{Contexts, CoreKind, Flow, Load};
use crate::placement::{InputSource, Node, place};
use std::collections::BTreeMap;

/// Refusals for which a move that would make room is looked for.
const MAX_ROOMS: usize = 4;

/// Contexts for which it is said why a handler is not there.
const MAX_SHOWN: usize = 3;

/// The decision for one handler.
pub(super) struct PlacementDecision {
    pub(super) deployed: Deployed,
    /// Why there.
    pub(super) why: String,
}

/// The decisions for the handlers that change.
///
/// # Errors
/// Those that have no place.
pub(super) fn targets<'a>(
    current: &'a Current,
    wanted: &'a Wanted,
    streams: &Streams<'a>,
    contexts: Contexts,
) -> Result<BTreeMap<&'a str, PlacementDecision>, Vec<Refusal>> {
    let mut sites = Sites { current, wanted, streams, contexts, settled: BTreeMap::new(), changing: Vec::new() };
    sites.divide();
    let nodes = sites.nodes()?;
    let (places, loads) = sites.places(&nodes)?;
    for (node, (&at, &load)) in nodes.iter().zip(places.iter().zip(&loads)) {
        sites.contexts.commit(at, load.max(node.need.reserve));
    }
    let mut targets = BTreeMap::new();
    for (&name, &(at, load)) in &sites.settled {
        let need = wanted[name].need;
        targets.insert(name, sites.target(name, at, load, &need));
    }
    for (number, &name) in sites.changing.iter().enumerate() {
        targets.insert(name, sites.target(name, places[number], loads[number], &nodes[number].need));
    }
    Ok(targets)
}

struct Sites<'a, 's> {
    current: &'a Current,
    wanted: &'a Wanted,
    streams: &'s Streams<'a>,
    /// With everything committed that stays as it is.
    contexts: Contexts,
    /// Those that change, but take no more where they are than they did: they stay, also where there is too much already.
    settled: BTreeMap<&'a str, (usize, Load)>,
    /// The others that change, in the order of the data.
    changing: Vec<&'a str>,
}

impl<'a> Sites<'a, '_> {
    fn divide(&mut self) {
        for &name in &self.streams.order {
            let (deployed, handler) = (self.current.handlers.get(name), &self.wanted[name]);
            let at = deployed.and_then(|deployed| self.contexts.find(&deployed.context));
            let Some(difference) = self.streams.differences.get(name) else {
                if let (Some(deployed), Some(at)) = (deployed, at) {
                    self.contexts.commit(at, deployed.committed());
                }
                continue;
            };
            match (deployed, at) {
                (Some(deployed), Some(at)) if self.takes_no_more(deployed, handler, difference, at) => {
                    let need = need(handler, deployed, *difference, self.crossing_now(deployed));
                    let crossing = self.crossing_at_most(handler, at);
                    self.settled.insert(name, (at, need.load + crossing));
                    self.contexts.commit(at, need.committed(crossing));
                }
                _ => self.changing.push(name),
            }
        }
    }

    fn takes_no_more(&self, deployed: &Deployed, handler: &WantedHandler, difference: &Difference, at: usize) -> bool {
        let capacity = self.contexts.list()[at].capacity;
        let is_allowed =
            capacity.kind == CoreKind::GCore || (handler.need.is_metered && handler.need.step_ns <= capacity.slice_ns);
        let need = need(handler, deployed, *difference, self.crossing_now(deployed));
        let takes = need.committed(self.crossing_at_most(handler, at));
        !difference.place && is_allowed && takes.is_within(deployed.committed())
    }

    /// The present cost to a handler of taking its input over.
    fn crossing_now(&self, deployed: &Deployed) -> Load {
        let of_stream = |stream: &String| match self.current.published.get(stream) {
            Some(published) => vec![(&published.context, published.flow)],
            None => {
                let made = self.streams.makers(stream).iter().filter_map(|maker| self.current.handlers.get(*maker));
                let made = made.filter(|maker| maker.definition.makes == *stream);
                made.map(|maker| (&maker.context, maker.leaving)).collect()
            }
        };
        crossing_streams(&deployed.definition)
            .flat_map(of_stream)
            .filter(|(from, _)| **from != deployed.context)
            .fold(Load::default(), |sum, (_, flow)| sum + flow.crossing())
    }

    /// The cost to a handler of taking its input over, if all who make it and have no place yet are elsewhere.
    fn crossing_at_most(&self, handler: &WantedHandler, at: usize) -> Load {
        let inputs = crossing_streams(&handler.definition).flat_map(|stream| self.inputs(stream));
        let crossing = inputs.filter(|(from, _)| *from != Some(at)).map(|(_, flow)| flow.crossing());
        crossing.fold(Load::default(), |sum, crossing| sum + crossing)
    }

    /// The flow of a stream, and the contexts that it comes from, if these are known already.
    fn inputs(&self, stream: &str) -> Vec<(Option<usize>, Flow)> {
        let made = self.streams.makers(stream).iter().map(|maker| self.made(maker));
        let published = self.current.published.get(stream).filter(|_| self.streams.makers(stream).is_empty());
        let published = published.map(|published| (self.contexts.find(&published.context), published.flow));
        made.chain(published).collect()
    }

    /// The output flow of a handler, and its context, if that is known already.
    fn made(&self, maker: &str) -> (Option<usize>, Flow) {
        let is_open = self.streams.differences.contains_key(maker) && !self.settled.contains_key(maker);
        (self.present(maker).filter(|_| !is_open), self.leaving(maker))
    }

    /// Those that change, for the search.
    fn nodes(&self) -> Result<Vec<Node>, Vec<Refusal>> {
        let numbers: BTreeMap<&str, usize> = self.changing.iter().enumerate().map(|(at, &name)| (name, at)).collect();
        let mut refusals = Vec::new();
        let mut nodes = Vec::new();
        for &name in &self.changing {
            let handler = &self.wanted[name];
            let of_context = |(at, flow): (Option<usize>, Flow)| Some(InputSource::Context(at?, flow));
            let sources = |stream: &String| match self.streams.makers(stream) {
                [] => self.inputs(stream).into_iter().filter_map(of_context).collect(),
                makers => {
                    let source = |maker: &&str| match numbers.get(maker) {
                        Some(&number) => Some(InputSource::Node(number)),
                        None => of_context(self.made(maker)),
                    };
                    makers.iter().filter_map(source).collect::<Vec<InputSource>>()
                }
            };
            let named = match &handler.place {
                ContextChoice::Auto => None,
                ContextChoice::Named(context) => {
                    let at = self.contexts.find(context);
                    if at.is_none() {
                        let request = AdmissionRequest { place: handler.place.clone(), inputs: Vec::new() };
                        let refused = admit(&handler.need, &self.contexts, &request).err();
                        refusals.extend(refused.map(|refused| no_place(name, refused)));
                    }
                    at
                }
            };
            nodes.push(Node {
                need: self.need(name),
                place: named.or_else(|| self.present(name)),
                reads: crossing_streams(&handler.definition).flat_map(sources).collect(),
                leaving: self.leaving(name),
                to: self.leaves_to(&handler.definition.makes, &numbers),
            });
        }
        if refusals.is_empty() { Ok(nodes) } else { Err(refusals) }
    }

    fn is_of_content(&self, name: &str) -> bool {
        self.streams.differences.get(name).is_some_and(|difference| difference.is_of_content())
    }

    /// The output flow of a handler: as predicted, or as measured if it goes on with the same.
    fn leaving(&self, name: &str) -> Flow {
        let measured = self.current.handlers.get(name).filter(|_| !self.is_of_content(name));
        measured.map_or(self.wanted[name].leaving, |deployed| deployed.leaving)
    }

    fn need(&self, name: &str) -> Need {
        let handler = &self.wanted[name];
        match (self.current.handlers.get(name), self.streams.differences.get(name)) {
            (Some(deployed), Some(difference)) => need(handler, deployed, *difference, self.crossing_now(deployed)),
            _ => handler.need,
        }
    }

    /// The context where a handler is, if it is anywhere.
    fn present(&self, name: &str) -> Option<usize> {
        self.current.handlers.get(name).and_then(|deployed| self.contexts.find(&deployed.context))
    }

    /// The contexts that a stream flows to whatever is chosen here.
    fn leaves_to(&self, stream: &str, numbers: &BTreeMap<&str, usize>) -> Vec<usize> {
        let readers = self.streams.readers(stream);
        if readers.is_empty() {
            return self
                .current
                .delivered_at
                .as_ref()
                .and_then(|delivered_at| self.contexts.find(delivered_at))
                .into_iter()
                .collect();
        }
        // A replica reads what is made at its own context.
        let is_replica = |reader: &str| self.wanted[reader].definition.replica_of.is_some();
        let stay = readers.iter().filter(|reader| !numbers.contains_key(**reader) && !is_replica(reader));
        let mut to: Vec<usize> = stay.filter_map(|reader| self.present(reader)).collect();
        to.sort_unstable();
        to.dedup();
        to
    }

    /// The context of each node and what it takes there.
    ///
    /// First all that are at work stay where they are. If that cannot be, those move that have to.
    fn places(&self, nodes: &[Node]) -> Result<(Vec<usize>, Vec<Load>), Vec<Refusal>> {
        let loads = |places: Vec<usize>| {
            let known = known(&places);
            let load =
                |number: usize| nodes[number].need.load + request(nodes, number, &known).crossing(places[number]);
            let loads = (0..places.len()).map(load).collect();
            (places, loads)
        };
        if let Some(placed) = place(nodes, &self.contexts) {
            return Ok(loads(placed.contexts));
        }
        let (one_by_one, refusals) = self.one_by_one(nodes);
        let mut freed = nodes.to_vec();
        for (number, node) in freed.iter_mut().enumerate() {
            let has_stayed = one_by_one[number].is_some() && one_by_one[number] == node.place;
            if !has_stayed && self.wanted[self.changing[number]].place == ContextChoice::Auto {
                node.place = None;
            }
        }
        match place(&freed, &self.contexts) {
            Some(placed) => Ok(loads(placed.contexts)),
            None if refusals.is_empty() => Ok(loads(one_by_one.into_iter().flatten().collect())),
            None => Err(refusals),
        }
    }

    /// Each where it fits by itself, after those that it reads.
    fn one_by_one(&self, nodes: &[Node]) -> (Vec<Option<usize>>, Vec<Refusal>) {
        let mut contexts = self.contexts.clone();
        let (mut places, mut refused) = (Vec::new(), Vec::new());
        for (number, (&name, node)) in self.changing.iter().zip(nodes).enumerate() {
            let mut request = request(nodes, number, &places);
            request.place = self.wanted[name].place.clone();
            let stays = node.place.filter(|&at| fit(&node.need, request.crossing(at), &contexts, at).is_ok());
            let admitted = match stays {
                Some(at) => Ok((at, node.need.committed(request.crossing(at)))),
                None => admit(&node.need, &contexts, &request).map(|admitted| (admitted.context, admitted.committed)),
            };
            if let Ok((at, committed)) = admitted {
                contexts.commit(at, committed);
            }
            places.push(admitted.as_ref().ok().map(|(at, _)| *at));
            refused.extend(admitted.err().map(|error| (number, request, error)));
        }
        let refusal = |(count, (number, request, error)): (usize, (usize, AdmissionRequest, admission::Refused))| {
            let room = if count < MAX_ROOMS { self.room(&nodes[number], &request, &contexts) } else { None };
            Refusal::NoPlace { handler: self.changing[number].to_owned(), refused: error, room }
        };
        let refusals = refused.into_iter().enumerate().map(refusal).collect();
        (places, refusals)
    }

    /// A handler that could go elsewhere, so that this one would fit: the one that takes least.
    fn room(&self, node: &Node, request: &AdmissionRequest, contexts: &Contexts) -> Option<Room> {
        let stays = |(name, deployed): (&'a String, &'a Deployed)| {
            let handler = self.wanted.get(name).filter(|handler| handler.place == ContextChoice::Auto)?;
            let is_as_it_was = !self.streams.differences.contains_key(name.as_str());
            is_as_it_was.then_some((name, deployed, handler))
        };
        let mut others: Vec<_> = self.current.handlers.iter().filter_map(stays).collect();
        others.sort_by_key(|(_, deployed, _)| deployed.committed().time_ns_per_s);
        others.into_iter().find_map(|(name, deployed, handler)| {
            let may_be_there =
                request.place == ContextChoice::Auto || request.place == ContextChoice::Named(deployed.context.clone());
            let from = contexts.find(&deployed.context).filter(|_| may_be_there)?;
            let mut without = contexts.clone();
            without.release(from, deployed.committed());
            fit(&node.need, request.crossing(from), &without, from).ok()?;
            without.commit(from, node.need.committed(request.crossing(from)));
            let need = Need { load: deployed.load, reserve: deployed.reserve, ..handler.need };
            let to = admit(&need, &without, &AdmissionRequest::default())
                .ok()
                .filter(|admitted| admitted.context != from)?;
            let to = contexts.list()[to.context].name.clone();
            Some(Room { handler: name.clone(), from: deployed.context.clone(), to })
        })
    }

    /// The handler as it is to be at a context.
    fn target(&self, name: &str, at: usize, load: Load, need: &Need) -> PlacementDecision {
        let handler = &self.wanted[name];
        let context = self.contexts.list()[at].name.clone();
        let deployed = match self.current.handlers.get(name).filter(|_| !self.is_of_content(name)) {
            Some(deployed) => Deployed { context, load, reserve: need.reserve, ..deployed.clone() },
            None => Deployed {
                definition: handler.definition.clone(),
                context,
                load,
                reserve: need.reserve,
                leaving: handler.leaving,
                state: handler.state.clone(),
            },
        };
        let why = self.why(&deployed, at, need, &handler.place);
        PlacementDecision { deployed, why }
    }

    fn why(&self, deployed: &Deployed, at: usize, need: &Need, place: &ContextChoice) -> String {
        let (context, left) = (&deployed.context, Time(self.contexts.headroom(at).time_ns_per_s));
        let takes = Time(deployed.committed().time_ns_per_s);
        let mut text = format!("{}, takes {takes} at {}", need.class, Rate(need.rate_msgs_per_s));
        text += &format!("; {context} then has {left}");
        if matches!(place, ContextChoice::Named(_)) {
            return text + ", and is the named context";
        }
        let mut without = self.contexts.clone();
        without.release(at, deployed.committed());
        let is_c_core = |at: &usize| without.list()[*at].capacity.kind == CoreKind::CCore;
        if is_c_core(&at) {
            return text;
        }
        for other in admission::order(&without, None).into_iter().filter(is_c_core).take(MAX_SHOWN) {
            let context = without.list()[other].name.clone();
            text += &match fit(need, Load::default(), &without, other) {
                Ok(()) => format!("; fewer bytes cross between contexts than with it on {context}"),
                Err(obstacle) => format!("; {}", admission::Tried { context, obstacle }),
            };
        }
        text
    }
}

/// The needs of a handler after the change: what was measured, if that stays the same.
fn need(handler: &WantedHandler, deployed: &Deployed, difference: Difference, crossing_now: Load) -> Need {
    match difference.is_of_content() {
        true => handler.need,
        false => Need { load: deployed.load - crossing_now, ..handler.need },
    }
}

/// The streams that a handler may read from other contexts: a replica reads none.
fn crossing_streams(definition: &Definition) -> impl Iterator<Item = &String> {
    definition.reads.iter().filter(|_| definition.replica_of.is_none())
}

fn no_place(name: &str, refused: admission::Refused) -> Refusal {
    Refusal::NoPlace { handler: name.to_owned(), refused, room: None }
}

fn known(places: &[usize]) -> Vec<Option<usize>> {
    places.iter().copied().map(Some).collect()
}

/// Where a node's inputs come from, as far as those before it have a place.
fn request(nodes: &[Node], number: usize, places: &[Option<usize>]) -> AdmissionRequest {
    let input = |source: &InputSource| match *source {
        InputSource::Node(from) => places[from].map(|at| (at, nodes[from].leaving)),
        InputSource::Context(at, flow) => Some((at, flow)),
    };
    AdmissionRequest { place: ContextChoice::Auto, inputs: nodes[number].reads.iter().filter_map(input).collect() }
}
