//! Chains against a plain search of all of them, and the table of what covers what.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crossdock_control::conversions::{Chain, ConversionStep, Cost, Graph, MAX_CONVERSIONS, MAX_STEPS, Owner, Refused};
use crossdock_format::FormatId;
use proptest::prelude::*;

const KEPT: Owner = Owner::Kept;

fn id(number: u64) -> FormatId {
    FormatId(number)
}

fn cost(ps: u64) -> Cost {
    Cost { ps, in_bytes: 0, out_bytes: 0 }
}

fn nothing_by_name(_: FormatId, _: FormatId) -> Option<Cost> {
    None
}

fn formats(chain: &Chain) -> Vec<u64> {
    let first = chain.steps.first().map(|step| step.from.0);
    first.into_iter().chain(chain.steps.iter().map(|step| step.to.0)).collect()
}

#[test]
fn an_accepted_format_needs_no_chain_and_an_unreachable_one_has_none() {
    let mut graph = Graph::default();
    assert_eq!(graph.chain(id(1), &[id(2), id(1)], &nothing_by_name), Some(Chain::default()));
    assert_eq!(graph.chain(id(1), &[id(2)], &nothing_by_name), None);
    graph.add(id(2), id(1), KEPT, cost(1)).unwrap();
    assert_eq!(graph.chain(id(1), &[id(2)], &nothing_by_name), None, "conversions lead one way");
    assert_eq!(graph.chain(id(1), &[], &nothing_by_name), None);
}

#[test]
fn extracting_first_is_cheaper_than_reformatting_first() {
    // 1 is 20 fields of 8 bytes, 4 is 6 of them in another form; 2 extracts them unchanged, 3 reformats all.
    let step = |ps, in_bytes, out_bytes| Cost { ps, in_bytes, out_bytes };
    let mut graph = Graph::default();
    graph.add(id(1), id(3), KEPT, step(40_000, 168, 168)).unwrap();
    graph.add(id(3), id(4), KEPT, step(12_000, 168, 56)).unwrap();
    graph.add(id(1), id(2), KEPT, step(12_000, 168, 56)).unwrap();
    graph.add(id(2), id(4), KEPT, step(12_000, 56, 56)).unwrap();
    assert_eq!(formats(&graph.chain(id(1), &[id(4)], &nothing_by_name).unwrap()), [1, 2, 4]);
    // Also where the times are the same, by the bytes that are moved between the steps.
    let mut graph = Graph::default();
    for (from, to, in_bytes, out_bytes) in [(1, 2, 168, 168), (2, 4, 168, 56), (1, 3, 168, 56), (3, 4, 56, 56)] {
        graph.add(id(from), id(to), KEPT, step(10, in_bytes, out_bytes)).unwrap();
    }
    assert_eq!(formats(&graph.chain(id(1), &[id(4)], &nothing_by_name).unwrap()), [1, 3, 4]);
}

#[test]
fn of_equal_chains_the_shortest_and_then_the_first_is_taken() {
    let mut graph = Graph::default();
    for (from, to, ps) in [(1, 9, 5), (9, 4, 5), (1, 2, 5), (2, 4, 5)] {
        graph.add(id(from), id(to), KEPT, cost(ps)).unwrap();
    }
    assert_eq!(formats(&graph.chain(id(1), &[id(4)], &nothing_by_name).unwrap()), [1, 2, 4]);
    graph.add(id(1), id(4), KEPT, cost(10)).unwrap();
    assert_eq!(formats(&graph.chain(id(1), &[id(4)], &nothing_by_name).unwrap()), [1, 4]);
    // Of several accepted formats, the one that is reached most cheaply.
    graph.add(id(1), id(3), KEPT, cost(9)).unwrap();
    assert_eq!(formats(&graph.chain(id(1), &[id(4), id(3)], &nothing_by_name).unwrap()), [1, 3]);
}

#[test]
fn a_sessions_conversion_covers_the_kept_one_and_uncovers_it_when_it_goes() {
    let mut graph = Graph::default();
    let taken = |graph: &Graph| graph.chain(id(1), &[id(2)], &nothing_by_name).map(|c| c.steps[0].conversion.unwrap());
    let (of_7, none) = graph.add(id(1), id(2), Owner::Session(7), cost(9)).unwrap();
    let (kept, also_none) = graph.add(id(1), id(2), KEPT, cost(1)).unwrap();
    assert_eq!((none, also_none), (None, None));
    assert_eq!(taken(&graph), Some(of_7), "the session's, although it was there before and costs more");
    let (of_8, _) = graph.add(id(1), id(2), Owner::Session(8), cost(9)).unwrap();
    assert_eq!(taken(&graph), Some(of_8));
    let (again, replaced) = graph.add(id(1), id(2), Owner::Session(7), cost(3)).unwrap();
    assert_eq!((taken(&graph), replaced), (Some(again), Some(of_7)));
    let gone: Vec<u64> = graph.remove_session(7).iter().map(|c| c.number).collect();
    assert_eq!((gone, taken(&graph)), (vec![again], Some(of_8)));
    graph.remove(id(1), id(2), Owner::Session(8)).unwrap();
    assert_eq!(taken(&graph), Some(kept));
    assert!(graph.conversions().iter().all(|c| graph.is_in_force(c)));
    graph.remove(id(1), id(2), KEPT).unwrap();
    assert_eq!((taken(&graph), graph.remove(id(1), id(2), KEPT)), (None, None));
}

#[test]
fn a_plan_by_name_never_goes_round_a_conversion_that_strips() {
    let by_name = |_, _| Some(cost(1));
    let mut graph = Graph::default();
    let direct = graph.chain(id(1), &[id(3)], &by_name).unwrap();
    assert_eq!(direct.steps, [ConversionStep { from: id(1), to: id(3), conversion: None }]);
    let (strip, _) = graph.add(id(1), id(2), Owner::Session(1), cost(1_000_000)).unwrap();
    let chain = graph.chain(id(1), &[id(3)], &by_name).unwrap();
    let strips = ConversionStep { from: id(1), to: id(2), conversion: Some(strip) };
    assert_eq!(chain.steps, [strips, ConversionStep { from: id(2), to: id(3), conversion: None }]);
    // The session that knew what is private has ended; that it is private has not.
    graph.remove_session(1);
    assert!(graph.is_guarded(id(1)));
    assert_eq!(graph.chain(id(1), &[id(3)], &by_name), None);
    // By name is the last step or none: nothing leads from 5 to 6 by way of a plan by name.
    let mut graph = Graph::default();
    graph.add(id(4), id(6), KEPT, cost(1)).unwrap();
    assert_eq!(graph.chain(id(5), &[id(6)], &|_, to| (to == id(4)).then_some(cost(1))), None);
}

#[test]
fn the_table_and_the_chains_have_their_bounds() {
    let mut graph = Graph::default();
    assert_eq!(graph.add(id(1), id(1), KEPT, cost(1)), Err(Refused::Loop(id(1))));
    assert_eq!(graph.would_take(id(1), id(1), KEPT), Err(Refused::Loop(id(1))));
    for number in 0..MAX_CONVERSIONS as u64 {
        assert_eq!(graph.would_take(id(number), id(number + 1), KEPT), Ok(()));
        graph.add(id(number), id(number + 1), KEPT, cost(u64::MAX)).unwrap();
    }
    assert_eq!(graph.add(id(0), id(2), KEPT, cost(1)), Err(Refused::Full));
    assert_eq!(graph.would_take(id(0), id(2), KEPT), Err(Refused::Full));
    assert_eq!(graph.conversions().len(), MAX_CONVERSIONS);
    // One that is there may be replaced by a better one.
    assert_eq!(graph.would_take(id(0), id(1), KEPT), Ok(()));
    graph.add(id(0), id(1), KEPT, cost(1)).unwrap();
    let steps = MAX_STEPS as u64;
    let longest = graph.chain(id(0), &[id(steps)], &nothing_by_name).unwrap();
    assert_eq!((longest.steps.len(), longest.weight), (MAX_STEPS, u64::MAX));
    assert_eq!(graph.chain(id(0), &[id(steps + 1)], &nothing_by_name), None);
}

/// A graph of few formats: its conversions (from, to, session, cost) and its plans by name (from, to, cost).
#[derive(Clone, Debug)]
struct Case {
    conversions: Vec<(u64, u64, u64, u64)>,
    by_name: Vec<(u64, u64, u64)>,
    accept: Vec<u64>,
}

fn case() -> impl Strategy<Value = Case> {
    let format = 0..7_u64;
    let conversions = prop::collection::vec((format.clone(), format.clone(), 0..3_u64, 0..4_u64), 0..16);
    let by_name = prop::collection::vec((format.clone(), format.clone(), 0..4_u64), 0..6);
    (conversions, by_name, prop::collection::vec(format, 1..3)).prop_map(|(conversions, by_name, accept)| Case {
        conversions,
        by_name,
        accept,
    })
}

/// Every chain without circles, by trying all.
fn all_chains(case: &Case, way: &mut Vec<u64>, weight: u64, found: &mut Vec<(u64, usize, Vec<u64>)>) {
    let at = *way.last().unwrap();
    if case.accept.contains(&at) {
        found.push((weight, way.len(), way.clone()));
        return;
    }
    if way.len() > MAX_STEPS {
        return;
    }
    let mut edges: Vec<(u64, u64)> = Vec::new();
    for to in 0..7 {
        // The last one that a session registered, else the kept one (session 0).
        let between = |c: &&(u64, u64, u64, u64)| (c.0, c.1) == (at, to) && at != to;
        let of_session = case.conversions.iter().rfind(|c| between(c) && c.2 > 0);
        if let Some(edge) = of_session.or(case.conversions.iter().rfind(|c| between(c))) {
            edges.push((to, edge.3));
        }
    }
    if !case.conversions.iter().any(|c| c.0 == at && c.1 != at) {
        let plans = case.by_name.iter().filter(|p| p.0 == at && p.1 != at && case.accept.contains(&p.1));
        edges.extend(plans.map(|p| (p.1, p.2)));
    }
    for (to, ps) in edges {
        if !way.contains(&to) {
            way.push(to);
            all_chains(case, way, weight + ps, found);
            way.pop();
        }
    }
}

proptest! {
    #[test]
    fn the_chain_is_the_best_of_all_there_are(case in case(), from in 0..7_u64) {
        let mut graph = Graph::default();
        for &(from, to, session, ps) in &case.conversions {
            let owner = if session == 0 { KEPT } else { Owner::Session(session) };
            // Registered anew, it is the last one.
            graph.remove(id(from), id(to), owner);
            let added = graph.add(id(from), id(to), owner, cost(ps));
            prop_assert_eq!(added.is_err(), from == to);
        }
        let by_name = |from: FormatId, to: FormatId| {
            let plans = case.by_name.iter().filter(|p| (p.0, p.1) == (from.0, to.0));
            plans.map(|p| p.2).min().map(cost)
        };
        let accept: Vec<FormatId> = case.accept.iter().map(|&to| id(to)).collect();
        let chain = graph.chain(id(from), &accept, &by_name);
        let mut found = Vec::new();
        all_chains(&case, &mut vec![from], 0, &mut found);
        let best = found.into_iter().min();
        prop_assert_eq!(chain.is_some(), best.is_some());
        if let (Some(chain), Some((weight, _, way))) = (chain, best) {
            prop_assert_eq!(chain.weight, weight);
            let expected = if way.len() == 1 { Vec::new() } else { way };
            prop_assert_eq!(formats(&chain), expected);
            for step in &chain.steps {
                let Some(number) = step.conversion else { continue };
                let conversion = graph.conversions().iter().find(|c| c.number == number).unwrap();
                prop_assert_eq!((conversion.from, conversion.to), (step.from, step.to));
                prop_assert!(graph.is_in_force(conversion));
            }
        }
    }
}
