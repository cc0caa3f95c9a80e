//! Placement against all placements there are.

use crate::random::{self, time};
use crossdock_control::admission::{Need, fit};
use crossdock_control::load::{Capacity, Context, Contexts, CoreKind, Cost, Flow, Load, MAX_CONTEXTS, MAX_HANDLERS};
use crossdock_control::placement::{InputSource, Node, place};
use proptest::prelude::*;
use proptest::sample::Index;

fn flow(bytes_per_s: u64) -> Flow {
    Flow { bytes_per_s, ..Flow::default() }
}

fn needing(ms: u64) -> Need {
    Need { load: time(ms), ..Need::of(&Cost::default(), 0) }
}

/// A chain of handlers that need this much time and produce this number of MB, from context 0 and back to it.
fn chain(first: u64, handlers: &[(u64, u64)]) -> Vec<Node> {
    let node = |(at, (ms, mb)): (usize, &(u64, u64))| Node {
        need: needing(*ms),
        place: None,
        reads: vec![if at == 0 { InputSource::Context(0, flow(first * 1_000_000)) } else { InputSource::Node(at - 1) }],
        leaving: flow(mb * 1_000_000),
        to: if at + 1 == handlers.len() { vec![0] } else { Vec::new() },
    };
    handlers.iter().enumerate().map(node).collect()
}

fn platform(names: &[&str]) -> Contexts {
    let context = |name: &&str| {
        let kind = if name.starts_with('c') { CoreKind::CCore } else { CoreKind::GCore };
        let capacity = Capacity::of_cpu(kind, None, u64::MAX);
        Context { name: (*name).to_owned(), capacity, system: Load::default() }
    };
    Contexts::new(names.iter().map(context).collect()).unwrap()
}

#[test]
fn a_chain_is_cut_where_least_flows() {
    let contexts = platform(&["c-core-0", "g-core-0"]);
    let places = |nodes: &[Node]| place(nodes, &contexts).map(|placed| placed.contexts);
    // All of it fits: no cut. 1000 MB go in, the selection leaves 100, the join makes 300 of them.
    assert_eq!(places(&chain(1000, &[(200, 100), (300, 300), (200, 50)])), Some(vec![0, 0, 0]));
    // It does not: two cuts, and the cheapest two are those behind the selection and behind the last.
    assert_eq!(places(&chain(1000, &[(200, 100), (400, 300), (300, 50)])), Some(vec![0, 1, 1]));
    assert_eq!(places(&chain(40, &[(200, 100), (400, 60), (300, 500)])), Some(vec![1, 1, 0]));
    // One that is not metered takes with it what is cheaper beside it.
    let mut nodes = chain(1000, &[(10, 100), (10, 300), (10, 50)]);
    nodes[1].need.is_metered = false;
    assert_eq!(places(&nodes), Some(vec![0, 1, 1]));
    nodes[2].leaving = flow(301_000_000);
    assert_eq!(places(&nodes), Some(vec![0, 1, 0]));
    nodes[2].place = Some(1);
    assert_eq!(places(&nodes), Some(vec![0, 1, 1]));
    nodes[0].need.load = time(801);
    assert_eq!(places(&nodes), None);
    assert_eq!(places(&[]), Some(Vec::new()));
}

#[test]
fn contexts_of_one_cpu_do_not_stand_for_those_of_another() {
    let mut list = platform(&["c-core-0", "c-core-1", "c-core-2", "c-core-3"]).list().to_vec();
    list.iter_mut().enumerate().for_each(|(at, context)| context.capacity.cpu = Some(at as u32 / 2));
    let contexts = Contexts::new(list).unwrap();
    let node = Node { need: needing(700), place: None, reads: Vec::new(), leaving: flow(0), to: Vec::new() };
    assert_eq!(place(&[node.clone(), node.clone()], &contexts).map(|placed| placed.contexts), Some(vec![0, 2]));
    assert_eq!(place(&[node.clone(), node.clone(), node], &contexts), None);
}

#[test]
fn as_many_as_there_may_be_are_placed() {
    let names: Vec<String> =
        (0..MAX_CONTEXTS).map(|at| format!("{}-core-{at}", if at < 32 { 'c' } else { 'g' })).collect();
    let contexts = platform(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let handlers: Vec<(u64, u64)> =
        (0..MAX_HANDLERS as u64).map(|at| (10 + at * 7 % 60, 50 + at * 977 % 400)).collect();
    let nodes = chain(500, &handlers);
    let placed = place(&nodes, &contexts).unwrap();
    assert!(!placed.is_cheapest, "else this says nothing of a search that is cut off");
    assert_eq!(within(&nodes, &contexts, &placed.contexts), Some(placed.crossing_ns_per_s));
}

/// The cost of a placement, if it is within all headroom: a plain sum.
fn within(nodes: &[Node], contexts: &Contexts, places: &[usize]) -> Option<u64> {
    let mut contexts = contexts.clone();
    let mut cost = 0;
    for (node, &at) in nodes.iter().zip(places) {
        let mut crossing = Load::default();
        for source in &node.reads {
            let (from, flow) = match source {
                InputSource::Node(from) => (places[*from], nodes[*from].leaving),
                InputSource::Context(from, flow) => (*from, *flow),
            };
            if from != at {
                crossing = crossing + flow.crossing();
            }
        }
        if node.place.is_some_and(|place| place != at) || fit(&node.need, crossing, &contexts, at).is_err() {
            return None;
        }
        contexts.commit(at, node.need.committed(crossing));
        cost += crossing.time_ns_per_s;
        cost += node.to.iter().filter(|to| **to != at).map(|_| node.leaving.crossing().time_ns_per_s).sum::<u64>();
    }
    Some(cost)
}

fn cheapest(nodes: &[Node], contexts: &Contexts) -> Option<u64> {
    let many = contexts.list().len();
    let all = (0..many.pow(nodes.len() as u32))
        .map(|number| (0..nodes.len() as u32).map(|digit| number / many.pow(digit) % many).collect::<Vec<usize>>());
    all.filter_map(|places| within(nodes, contexts, &places)).min()
}

/// A node before it is known how many contexts and other nodes there are.
#[derive(Clone, Debug)]
struct Draft {
    need: Need,
    place: Option<Index>,
    /// A context that it reads from or delivers to.
    context: Index,
    flow: Flow,
    has_input: bool,
    delivers: bool,
    reads: Vec<Index>,
    leaving: Flow,
}

impl Draft {
    fn node(&self, number: usize, is_chain: bool, is_last: bool, contexts: usize) -> Node {
        let mut reads: Vec<usize> = match number {
            0 => Vec::new(),
            _ if is_chain => vec![number - 1],
            _ => self.reads.iter().map(|from| from.index(number)).collect(),
        };
        reads.sort_unstable();
        reads.dedup();
        let mut reads: Vec<InputSource> = reads.into_iter().map(InputSource::Node).collect();
        let context = self.context.index(contexts);
        if self.has_input || reads.is_empty() {
            reads.push(InputSource::Context(context, self.flow));
        }
        let place = self.place.map(|at| at.index(contexts));
        let to = if self.delivers || is_last { vec![context] } else { Vec::new() };
        Node { need: self.need, place, reads, leaving: self.leaving, to }
    }
}

fn draft() -> impl Strategy<Value = Draft> {
    let place = prop::option::weighted(0.15, any::<Index>());
    let ends = (any::<Index>(), random::flow(), prop::bool::weighted(0.3), prop::bool::weighted(0.4));
    let reads = prop::collection::vec(any::<Index>(), 0..3);
    (random::need(), place, ends, reads, random::flow()).prop_map(|(need, place, ends, reads, leaving)| {
        let (context, flow, has_input, delivers) = ends;
        Draft { need, place, context, flow, has_input, delivers, reads, leaving }
    })
}

fn nodes(is_chain: bool, most: usize) -> impl Strategy<Value = (Contexts, Vec<Node>)> {
    (random::committed(), prop::collection::vec(draft(), 1..=most)).prop_map(move |(contexts, drafts)| {
        let node = |(number, draft): (usize, &Draft)| {
            draft.node(number, is_chain, number + 1 == drafts.len(), contexts.list().len())
        };
        let nodes = drafts.iter().enumerate().map(node).collect();
        (contexts, nodes)
    })
}

/// All like the first, with nothing to do, as on a machine of equal cores; each two of them on one CPU, or each on its own.
fn equal(contexts: &Contexts, is_shared: bool) -> Contexts {
    let mut list = contexts.list().to_vec();
    let capacity = list[0].capacity;
    for (at, context) in list.iter_mut().enumerate() {
        context.capacity = Capacity { cpu: is_shared.then_some(at as u32 / 2), ..capacity };
        context.system = Load::default();
    }
    Contexts::new(list).unwrap()
}

fn as_good_as_any(contexts: &Contexts, nodes: &[Node]) -> Result<(), TestCaseError> {
    let placed = place(nodes, contexts);
    prop_assert_eq!(placed.as_ref().map(|placed| placed.crossing_ns_per_s), cheapest(nodes, contexts));
    if let Some(placed) = placed {
        prop_assert!(placed.is_cheapest);
        prop_assert_eq!(within(nodes, contexts, &placed.contexts), Some(placed.crossing_ns_per_s));
        prop_assert_eq!(Some(placed), place(nodes, contexts));
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_placement_of_a_chain_is_cheaper((contexts, nodes) in nodes(true, 5)) {
        as_good_as_any(&contexts, &nodes)?;
    }

    #[test]
    fn no_placement_of_a_graph_is_cheaper((contexts, nodes) in nodes(false, 5)) {
        as_good_as_any(&contexts, &nodes)?;
    }

    #[test]
    fn no_placement_on_equal_contexts_is_cheaper((contexts, nodes) in nodes(false, 5), is_shared in any::<bool>()) {
        as_good_as_any(&equal(&contexts, is_shared), &nodes)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_large_graph_costs_what_is_claimed((contexts, mut nodes) in nodes(false, 60)) {
        // So small that most fit, so that the search is long.
        for node in &mut nodes {
            node.need = needing(node.need.load.time_ns_per_s / 20_000_000);
            node.place = None;
            node.leaving.bytes_per_s /= 10;
            node.leaving.messages_per_s /= 10;
        }
        if let Some(placed) = place(&nodes, &contexts) {
            prop_assert_eq!(within(&nodes, &contexts, &placed.contexts), Some(placed.crossing_ns_per_s));
        }
    }
}
