//! Nodes that convert for sessions: order and loss while routes change, what waits for a conversion, what a panic takes
//! along.

use super::sessions::Panics;
use super::*;
use crate::graph::bounds::HoldLimits;
use crate::graph::convert::Stock;
use crate::graph::gauges::{Loss, NodeGauges};
use crate::graph::node::Take;

/// The formats that come.
const FORMATS: [u64; 3] = [FORMAT, FORMAT + 1, FORMAT + 2];
/// The format that chains make.
const MADE: u64 = 100;

/// Makes a copy of each record, in another format.
struct Copies;

impl Handler for Copies {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        selection.iter().for_each(|index| out.push(batch.record(index)));
        Verdict::emit(selection.len())
    }

    fn counters(&self) -> HandlerCounters {
        HandlerCounters::default()
    }
}

fn instance(format: u64, handler: Box<dyn Handler>, output: u64) -> Instance {
    Instance { stream: None, format, handler: Some(handler), output }
}

/// More handlers than are needed: two chains for each format, by their numbers.
fn stock() -> Stock {
    let mut stock = Stock::default();
    for format in FORMATS {
        for chain in [10 * format, 10 * format + 1] {
            (0..8).for_each(|_| stock.put(chain, instance(format, Box::new(Copies), MADE)));
        }
    }
    stock
}

/// A session of the first stream that accepts certain formats.
fn accept(world: &mut World, key: u32, policy: SchedulingPolicy) -> Arc<NodeGauges> {
    let gauges = Arc::default();
    world.sessions.keys.push(key as usize);
    let instances = FORMATS.into_iter().chain([MADE]).map(|format| instance(format, Box::new(All), format)).collect();
    world.graphs[0].0.add_session(key as usize, 0, instances, (policy, true), Arc::clone(&gauges));
    gauges
}

fn route(world: &mut World, key: u32, takes: Vec<(u64, Take)>, stock: &mut Stock) {
    world.graphs[0].0.route(key as usize, takes, stock);
}

/// The same routes for some sessions.
fn route_all(world: &mut World, keys: impl Iterator<Item = u32>, takes: &[(u64, Take)]) {
    world.graphs[0].0.begin_routes();
    let mut stock = stock();
    keys.for_each(|key| route(world, key, takes.to_vec(), &mut stock));
    world.graphs[0].0.check_publishers(0);
}

fn converts(world: &World) -> usize {
    world.graphs[0].0.converts.iter().flatten().count()
}

fn random_takes(rng: &mut Rng, may_hold: bool) -> Vec<(u64, Take)> {
    let take = |format: u64, rng: &mut Rng| match rng.u8(0..if may_hold { 5 } else { 3 }) {
        0 => Take::Direct,
        at @ (1 | 2) => Take::Convert(10 * format + u64::from(at) - 1),
        _ => Take::Hold,
    };
    FORMATS.map(|format| (format, take(format, rng))).into()
}

/// Sessions with hardly any room, whose routes change again and again while three formats come and publishers end.
fn routes_change(seed: u64, may_hold: bool) {
    let (mut world, _overlay) = World::with_buffers(1, seed, 4, 24);
    let mut rng = Rng::with_seed(!seed);
    world.sessions.tight = Some(Rng::with_seed(seed));
    world.graphs[0].0.limit_sessions(8);
    let sessions = rng.u32(1..5);
    let gauges: Vec<_> = (0..sessions).map(|key| accept(&mut world, key, SchedulingPolicy::default())).collect();
    route_all(&mut world, 0..sessions, &random_takes(&mut rng, may_hold));
    let (mut next, mut offered, mut ends) = (FORMATS.map(|format| (format - FORMAT) * LANE), 0, Vec::new());
    for _ in 0..300 {
        match rng.u8(0..16) {
            0 => {
                let from = rng.u32(0..sessions);
                let keys = if rng.bool() { 0..sessions } else { from..from + 1 };
                route_all(&mut world, keys, &random_takes(&mut rng, may_hold));
            }
            1 => {
                ends.push(offered);
                world.graphs[0].0.arrive_end(0, 0, true);
            }
            2..10 if !world.blocked[0] => {
                let at = rng.usize(0..FORMATS.len());
                // Records of one format are in order; all are where none has to wait for a conversion.
                let lane = if may_hold { at } else { 0 };
                let before = next[lane];
                world.offer_from(0, FORMATS[at], &mut next[lane]);
                offered += next[lane] - before;
            }
            _ => drop(world.turn(0)),
        }
    }
    let about = format!("seed {seed}, {sessions} sessions, may hold: {may_hold}");
    // At last all of them take the same, and so have the same node before them.
    let last = FORMATS.map(|format| (format, Take::Convert(10 * format)));
    route_all(&mut world, 0..sessions, &last);
    ends.push(offered);
    world.graphs[0].0.arrive_end(0, 0, true);
    world.settle();
    assert_eq!((world.sessions.wrong, world.blocked[0]), (0, false), "{about}");
    for (key, gauges) in (0..sessions).zip(gauges) {
        assert_eq!((world.sessions.count(key), gauges.losses()), (offered, Vec::new()), "{about}");
        let at_ends: Vec<u64> =
            world.sessions.ends.iter().filter(|(of, _)| *of == key).map(|(_, count)| *count).collect();
        assert_eq!(at_ends.len(), ends.len(), "{about}");
        assert!(at_ends.iter().zip(&ends).all(|(came, offered)| came >= offered), "{about}: {at_ends:?} {ends:?}");
        assert_eq!(world.graphs[0].0.held(key as usize), (0, 0), "{about}");
    }
    assert_eq!(converts(&world), 1, "{about}");
    route_all(&mut world, 0..sessions, &FORMATS.map(|format| (format, Take::Direct)));
    world.settle();
    assert_eq!((converts(&world), world.graphs[0].1.buffers_in_use()), (0, 0), "{about}");
}

#[test]
fn routes_that_change_under_traffic_lose_double_and_reorder_nothing() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    match seed {
        Some(seed) => [false, true].into_iter().for_each(|may_hold| routes_change(seed, may_hold)),
        None => {
            let all = if std::env::var_os("CROSSDOCK_THOROUGH").is_some() { 2500 } else { 400 };
            (0..all).for_each(|seed| routes_change(seed / 2, seed % 2 == 0));
        }
    }
}

/// The output of a chain is many times as long as its input, and there are hardly any buffers.
#[test]
fn a_session_that_blocks_loses_nothing_behind_a_conversion() {
    for (seed, times) in [(1, 1), (2, 40), (3, 100)] {
        let (mut world, _overlay) = World::with_buffers(1, seed, 4, 8);
        world.sessions.tight = Some(Rng::with_seed(seed));
        world.graphs[0].0.limit_sessions(4);
        let gauges = [0, 1].map(|key| accept(&mut world, key, SchedulingPolicy::default()));
        let mut stock = Stock::default();
        let many = Box::new(Many { times, ..Many::default() });
        stock.put(1, instance(FORMAT, many, MADE));
        [0, 1].into_iter().for_each(|key| route(&mut world, key, vec![(FORMAT, Take::Convert(1))], &mut stock));
        assert_eq!(converts(&world), 1, "it is made once for both");
        let mut was_blocked = false;
        for _ in 0..100 {
            world.offer(0);
            world.turn(0);
            was_blocked |= world.blocked[0];
        }
        world.graphs[0].0.arrive_end(0, 0, true);
        world.settle();
        for (key, gauges) in (0..).zip(gauges) {
            assert_eq!((gauges.losses(), world.sessions.wrong), (Vec::new(), 0), "{times} records of each");
            assert_eq!(world.sessions.count(key), world.next[0] * times as u64);
            assert!(world.sessions.ends.contains(&(key, world.next[0] * times as u64)), "at the end, and not before");
        }
        assert_eq!((was_blocked, world.blocked[0]), (true, false));
        assert_eq!(world.graphs[0].1.buffers_in_use(), 0);
    }
}

/// The chain whose handler panics makes no more; other formats, other chains and other sessions go on.
#[test]
fn a_panic_in_a_conversion_takes_its_chain_only() {
    let (mut world, _overlay) = World::new(1, 1, 64);
    let gauges = [0, 1, 2].map(|key| accept(&mut world, key, SchedulingPolicy::default()));
    let mut stock = stock();
    stock.put(1, instance(FORMAT, Box::new(Panics), MADE));
    let takes = |of_first| vec![(FORMATS[0], of_first), (FORMATS[1], Take::Convert(80)), (FORMATS[2], Take::Direct)];
    [0, 1].into_iter().for_each(|key| route(&mut world, key, takes(Take::Convert(1)), &mut stock));
    route(&mut world, 2, takes(Take::Convert(70)), &mut stock);
    let mut offered = [0; FORMATS.len()];
    for at in (0..60).map(|round| round % FORMATS.len()) {
        let mut next = at as u64 * LANE + offered[at];
        let before = next;
        world.offer_from(0, FORMATS[at], &mut next);
        offered[at] += next - before;
        world.turn(0);
    }
    world.settle();
    let all: u64 = offered.iter().sum();
    for (key, gauges) in (0..).zip(gauges) {
        let lost = if key < 2 { offered[0] } else { 0 };
        assert_eq!(world.sessions.count(key), all - lost);
        assert_eq!((gauges.lost(Loss::NotConvertible), gauges.lost_in_all()), (lost, lost));
    }
    assert_eq!((world.sessions.wrong, world.blocked[0]), (0, false));
}

/// Offers batches of a format, and says how many records that were.
fn offer_many(world: &mut World, format: u64, batches: usize) -> u64 {
    let before = world.next[0];
    for _ in 0..batches {
        world.offer_as(0, format);
        world.now_ns += 1000;
        world.turn(0);
    }
    world.next[0] - before
}

/// The waiting records are held to their bounds in bytes, for a session and for all; the oldest goes, and no publisher
/// is held back.
#[test]
fn records_that_wait_for_a_conversion_are_bounded_in_bytes() {
    let (mut world, _overlay) = World::new(1, 1, 64);
    let (bytes, total_bytes) = (8 << 10, 12 << 10);
    world.graphs[0].0.limit_holding(HoldLimits { bytes, total_bytes, longest_ns: 1 << 20 });
    let gauges = [0, 1].map(|key| accept(&mut world, key, SchedulingPolicy::default()));
    route_all(&mut world, 0..1, &[(FORMAT, Take::Hold)]);
    let first = offer_many(&mut world, FORMAT, 200);
    let held = |world: &World, key: usize| world.graphs[0].0.held(key);
    assert!((bytes / 2..=bytes).contains(&held(&world, 0).1), "{:?}", held(&world, 0));
    assert_eq!(held(&world, 0).0 + gauges[0].lost(Loss::HoldFull), first);
    // Those of all are more: the one with the most loses some.
    route_all(&mut world, 1..2, &[(FORMAT, Take::Hold)]);
    offer_many(&mut world, FORMAT, 200);
    assert!(held(&world, 0).1 + held(&world, 1).1 <= total_bytes);
    assert!(held(&world, 0).1.min(held(&world, 1).1) >= total_bytes / 3);
    assert!(!world.blocked[0]);
    // The end comes behind what is left, which is the newest, without a hole.
    world.graphs[0].0.arrive_end(0, 0, true);
    world.settle();
    assert_eq!(world.sessions.ends, []);
    let left = [0, 1].map(|key| held(&world, key).0);
    route_all(&mut world, 0..2, &[(FORMAT, Take::Convert(70))]);
    world.settle();
    assert_eq!(world.sessions.ends, [(0, left[0]), (1, left[1])]);
    assert_eq!([0, 1].map(|key| world.sessions.delivered[&key]), left.map(|left| (world.next[0], left)));
    assert_eq!((world.sessions.wrong, world.graphs[0].1.buffers_in_use()), (0, 0));
}

/// A record that has waited too long goes, and the end behind it comes; what is younger stays.
#[test]
fn records_that_wait_for_a_conversion_are_bounded_in_time() {
    let (mut world, _overlay) = World::new(1, 1, 64);
    let (bytes, total_bytes, longest_ns) = (u64::MAX, u64::MAX, 1_000_000);
    world.graphs[0].0.limit_holding(HoldLimits { bytes, total_bytes, longest_ns });
    let gauges = accept(&mut world, 0, SchedulingPolicy::default());
    route_all(&mut world, 0..1, &[(FORMAT, Take::Hold), (FORMAT + 1, Take::Direct)]);
    let old = offer_many(&mut world, FORMAT, 10);
    world.graphs[0].0.arrive_end(0, 0, true);
    world.settle();
    assert_eq!(world.sessions.ends, []);
    // Other formats do not wait for it.
    let direct = offer_many(&mut world, FORMAT + 1, 10);
    world.settle();
    assert_eq!(world.sessions.count(0), direct);
    world.now_ns += longest_ns / 2;
    world.turn(0);
    let young = offer_many(&mut world, FORMAT, 10);
    world.now_ns += longest_ns / 2;
    let now_ns = world.now_ns;
    assert!(world.graphs[0].0.hold_expires_ns() <= now_ns);
    world.graphs[0].0.expire_held(now_ns);
    assert!(world.graphs[0].0.hold_expires_ns() > now_ns);
    world.settle();
    assert_eq!((gauges.lost(Loss::HoldExpired), world.graphs[0].0.held(0).0), (old, young));
    assert_eq!(world.sessions.ends, [(0, direct)]);
    route_all(&mut world, 0..1, &[(FORMAT, Take::Direct), (FORMAT + 1, Take::Direct)]);
    world.settle();
    assert_eq!((world.sessions.count(0), converts(&world)), (direct + young, 0));
}

/// A record that came while there was a route goes by it, however long it waits for its session; what came later waits
/// for another.
#[test]
fn records_of_a_removed_route_are_still_converted() {
    let (mut world, _overlay) = World::new(1, 1, 8);
    let gauges = [0, 1].map(|key| accept(&mut world, key, SchedulingPolicy::default()));
    route_all(&mut world, 0..2, &[(FORMAT, Take::Convert(70)), (FORMAT + 1, Take::Direct)]);
    world.sessions.held = vec![0, 1];
    let before = offer_many(&mut world, FORMAT, 200);
    assert!(world.blocked[0]);
    // Of one of them first, so that it gets a node of its own; then of both.
    route_all(&mut world, 0..1, &[(FORMAT, Take::Hold), (FORMAT + 1, Take::Direct)]);
    route_all(&mut world, 0..2, &[(FORMAT, Take::Hold), (FORMAT + 1, Take::Hold)]);
    let mut next = world.next[0];
    world.offer_from(0, FORMAT, &mut next);
    let after = next - before;
    world.graphs[0].0.arrive_end(0, 0, true);
    world.sessions.held.clear();
    world.settle();
    assert_eq!(
        [0, 1].map(|key| (world.sessions.count(key), world.graphs[0].0.held(key as usize).0)),
        [(before, after); 2]
    );
    assert_eq!(world.sessions.ends, []);
    route_all(&mut world, 0..2, &[(FORMAT, Take::Direct)]);
    world.settle();
    assert_eq!([0, 1].map(|key| world.sessions.delivered[&key]), [(next, next); 2]);
    assert_eq!((world.sessions.ends.len(), world.sessions.wrong, converts(&world)), (2, 0, 0));
    assert!(gauges.iter().all(|gauges| gauges.losses().is_empty()));
}

/// Records that a session refuses are lost to it; what came while there was a route is not.
#[test]
fn records_without_a_conversion_are_refused_by_the_policy() {
    let (mut world, _overlay) = World::new(1, 1, 64);
    let policy = SchedulingPolicy { drops: true, ..SchedulingPolicy::default() };
    let gauges = accept(&mut world, 0, policy);
    route_all(&mut world, 0..1, &[(FORMAT, Take::Convert(70))]);
    let converted = offer_many(&mut world, FORMAT, 10);
    route_all(&mut world, 0..1, &[(FORMAT, Take::Refuse)]);
    let refused = offer_many(&mut world, FORMAT, 10);
    world.graphs[0].0.arrive_end(0, 0, true);
    world.settle();
    assert_eq!((world.sessions.ends.as_slice(), converts(&world)), (&[(0, converted)][..], 0));
    assert_eq!(gauges.losses(), [("unreadable".to_owned(), refused)]);
}

/// A session that goes takes what waits for it along, and no more.
#[test]
fn a_session_that_goes_takes_what_waits_before_it_along() {
    let (mut world, _overlay) = World::new(1, 1, 64);
    [0, 1].into_iter().for_each(|key| drop(accept(&mut world, key, SchedulingPolicy::default())));
    route_all(&mut world, 0..2, &[(FORMAT, Take::Convert(70)), (FORMAT + 1, Take::Hold)]);
    world.sessions.held = vec![0];
    let held = offer_many(&mut world, FORMAT + 1, 20);
    offer_many(&mut world, FORMAT, 400);
    assert!(world.blocked[0] && world.graphs[0].0.held(0).0 == held);
    let (graph, ws) = &mut world.graphs[0];
    graph.remove_session(0, ws);
    world.sessions.keys.retain(|key| *key != 0);
    world.settle();
    assert!(!world.blocked[0]);
    assert_eq!((world.sessions.count(1) + held, world.graphs[0].0.held(1).0), (world.next[0], held));
    let (graph, ws) = &mut world.graphs[0];
    graph.remove_session(1, ws);
    assert_eq!((converts(&world), world.graphs[0].1.buffers_in_use()), (0, 0));
}
