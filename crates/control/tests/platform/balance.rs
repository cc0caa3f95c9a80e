//! Balance, second by second, in a platform that does what it decides.

use crate::random::{self, MS, time};
use crossdock_control::admission::{Class, ContextChoice, Need};
use crossdock_control::balance::{Balance, Decision, HandlerSample, Overrun, RuleSecond, Rules, Sample};
use crossdock_control::load::{Capacity, Context, Contexts, CoreKind, Cost, Flow, Load};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;

const SOME: Flow = Flow { batches_per_s: 10_000, messages_per_s: 1_000_000, bytes_per_s: 0 };

/// A platform whose handlers take what they are said to take, or what they take by their rules, and what it costs to take their
/// input over where it comes from another context. Batches wait too long for a context with more to do than there is time.
struct World {
    contexts: Contexts,
    handlers: Vec<HandlerSample>,
    /// Where each one's input comes from.
    inputs: BTreeMap<String, usize>,
    balance: Balance,
    second: u32,
}

fn platform(free_ms: &[(&str, u64)]) -> Contexts {
    let context = |(name, free): &(&str, u64)| {
        let kind = if name.starts_with('c') { CoreKind::CCore } else { CoreKind::GCore };
        Context { name: (*name).to_owned(), capacity: Capacity::of_cpu(kind, None, 1000), system: time(800 - free) }
    };
    Contexts::new(free_ms.iter().map(context).collect()).unwrap()
}

fn handler(name: &str, ms: u64, class: Class) -> HandlerSample {
    HandlerSample {
        name: name.to_owned(),
        context: 0,
        need: Need { load: time(ms), class, ..Need::of(&Cost::default(), 0) },
        place: ContextChoice::Auto,
        arriving: Flow::default(),
        leaving: Flow::default(),
        overruns: 0,
        is_far_over: false,
        is_limited: false,
        policy: Overrun::Move,
        budget_ns_per_s: 50 * MS,
        rule: None,
    }
}

/// One that stays where it is, and takes less by its own rule.
fn ruled(name: &str, ms: u64, degraded_ms: u64) -> HandlerSample {
    let rule = Some(RuleSecond { is_applied: false, otherwise: time(degraded_ms) });
    HandlerSample {
        place: ContextChoice::Named("c-core-0".to_owned()),
        rule,
        ..handler(name, ms, Class::Communication)
    }
}

impl World {
    fn new(contexts: Contexts, handlers: Vec<HandlerSample>) -> World {
        let inputs = handlers.iter().map(|handler| (handler.name.clone(), handler.context)).collect();
        World { contexts, handlers, inputs, balance: Balance::new(Rules::default()), second: 0 }
    }

    /// One second passes, and what is decided is done.
    fn pass(&mut self) -> Vec<Decision> {
        let handlers: Vec<HandlerSample> = self.handlers.iter().map(|handler| self.measured(handler)).collect();
        let committed = self.committed();
        let is_delayed = |at: usize| committed.excess_with(at, 0).time_ns_per_s > 0;
        let delayed: Vec<bool> = (0..committed.list().len()).map(is_delayed).collect();
        let second = Sample { contexts: &self.contexts, handlers: &handlers, delayed: &delayed };
        let decisions = self.balance.second(&second);
        self.second += 1;
        for decision in &decisions {
            match decision {
                Decision::Move { handler, from, to, .. } => {
                    let at = self.find(handler);
                    assert_eq!(self.contexts.list()[self.handlers[at].context].name, *from);
                    self.handlers[at].context = self.contexts.find(to).unwrap();
                }
                Decision::Limit { handler, ns_per_s, .. } => {
                    let at = self.find(handler);
                    assert_ne!(self.handlers[at].is_limited, ns_per_s.is_some());
                    self.handlers[at].is_limited = ns_per_s.is_some();
                }
                Decision::Degrade { handler, applies, .. } => {
                    let at = self.find(handler);
                    let rule = self.handlers[at].rule.as_mut().expect("one that it has");
                    assert_ne!(rule.is_applied, *applies);
                    rule.is_applied = *applies;
                }
                Decision::Stop { handler, .. } => self.handlers.retain(|h| h.name != *handler),
            }
        }
        decisions
    }

    /// The decisions of this number of seconds, each with its second.
    fn pass_for(&mut self, seconds: u32) -> Vec<(u32, String)> {
        let mut decided = Vec::new();
        for _ in 0..seconds {
            let second = self.second;
            decided.extend(self.pass().iter().map(|decision| (second, short(decision))));
        }
        decided
    }

    fn find(&self, handler: &str) -> usize {
        self.handlers.iter().position(|h| h.name == handler).unwrap()
    }

    fn measured(&self, handler: &HandlerSample) -> HandlerSample {
        let mut measured = handler.clone();
        if let Some(rule) = measured.rule.as_mut().filter(|rule| rule.is_applied) {
            std::mem::swap(&mut rule.otherwise, &mut measured.need.load);
        }
        if self.inputs[&handler.name] != handler.context {
            measured.need.load = measured.need.load + handler.arriving.crossing();
        }
        measured
    }

    fn committed(&self) -> Contexts {
        let mut contexts = self.contexts.clone();
        let measured = self.handlers.iter().map(|handler| self.measured(handler));
        measured.for_each(|handler| contexts.commit(handler.context, handler.need.committed(Load::default())));
        contexts
    }
}

fn short(decision: &Decision) -> String {
    match decision {
        Decision::Move { handler, to, .. } => format!("{handler} to {to}"),
        Decision::Limit { handler, ns_per_s: Some(ns), .. } => format!("{handler} limited to {} ms", ns / MS),
        Decision::Limit { handler, .. } => format!("{handler} not limited"),
        Decision::Degrade { handler, applies: true, .. } => format!("{handler} by its rule"),
        Decision::Degrade { handler, .. } => format!("{handler} whole"),
        Decision::Stop { handler, .. } => format!("stop {handler}"),
    }
}

fn at(second: u32, what: &str) -> (u32, String) {
    (second, what.to_owned())
}

#[test]
fn the_handlers_that_compute_most_leave_first() {
    let contexts = platform(&[("c-core-0", 500), ("g-core-0", 800)]);
    let handlers = vec![
        handler("a", 100, Class::Communication),
        handler("b", 200, Class::Communication),
        handler("c", 50, Class::Computation),
        handler("d", 210, Class::Computation),
        HandlerSample { place: ContextChoice::Named("c-core-0".to_owned()), ..handler("e", 100, Class::Computation) },
    ];
    let mut world = World::new(contexts, handlers);
    // 660 of 500: 160 too much.
    assert_eq!(world.pass(), []);
    assert_eq!(world.pass(), []);
    let why = "c-core-0 exceeded its capacity by 160 ms/s in 3 of the last 5 s; d takes 210 ms/s; \
               g-core-0 has 800 ms/s";
    let moved = Decision::Move {
        handler: "d".to_owned(),
        from: "c-core-0".to_owned(),
        to: "g-core-0".to_owned(),
        why: why.to_owned(),
    };
    assert_eq!(world.pass(), [moved]);
    assert_eq!(world.pass_for(300), [], "and the load stays");
    // 200 more: the other one that computes and the smaller of two that are enough with it.
    let a = world.find("a");
    world.handlers[a].need.load = time(300);
    world.handlers[a].arriving = SOME;
    assert_eq!(world.pass_for(10), [at(305, "b to g-core-0")]);
}

#[test]
fn a_dip_of_the_load_is_not_over_and_a_peak_is_not_lasting() {
    let mut world =
        World::new(platform(&[("c-core-0", 500), ("g-core-0", 800)]), vec![handler("a", 0, Class::default())]);
    for ms in [501, 501, 499, 500, 500, 501, 501, 500, 500, 500, 501, 0, 501, 0, 0, 501] {
        world.handlers[0].need.load = time(ms);
        assert_eq!(world.pass(), [], "{ms}");
    }
    for (ms, moves) in [(100, 0), (501, 0), (501, 1)] {
        world.handlers[0].need.load = time(ms);
        assert_eq!(world.pass().len(), moves, "{ms}");
    }
}

#[test]
fn a_moved_handler_returns_after_lasting_headroom_and_later_each_time() {
    let contexts = platform(&[("c-core-0", 600), ("g-core-0", 800)]);
    let handlers = vec![handler("a", 300, Class::Computation), handler("b", 301, Class::Communication)];
    let mut world = World::new(contexts, handlers);
    assert_eq!(world.pass_for(3), [at(2, "a to g-core-0")]);
    // With 15 percent more than the margin there is room for 450 in all.
    world.handlers[1].need.load = time(151);
    assert_eq!(world.pass_for(200), []);
    world.handlers[1].need.load = time(150);
    assert_eq!(world.pass_for(29), []);
    world.handlers[1].need.load = time(151);
    assert_eq!(world.pass_for(1), [], "it was room for 29 s only");
    world.handlers[1].need.load = time(150);
    let why = "c-core-0 has had the capacity for it for 30 s; a takes 300 ms/s; c-core-0 has 450 ms/s";
    assert_eq!(world.pass_for(29), []);
    let back = world.pass();
    assert!(matches!(&back[..], [Decision::Move { to, why: said, .. }] if to == "c-core-0" && said == why), "{back:?}");
    // Each time that it has to leave again it stays away twice as long.
    let mut away_s = Vec::new();
    for _ in 0..8 {
        world.handlers[1].need.load = time(301);
        assert_eq!(world.pass_for(3).len(), 1);
        world.handlers[1].need.load = time(150);
        let left = world.second;
        while world.pass().is_empty() {}
        away_s.push(world.second - left);
    }
    assert_eq!(away_s, [60, 120, 240, 480, 960, 960, 960, 960]);
    // Unless it has been there for long.
    assert_eq!(world.pass_for(1000), []);
    world.handlers[1].need.load = time(301);
    assert_eq!(world.pass_for(3).len(), 1);
    world.handlers[1].need.load = time(150);
    assert_eq!(world.pass_for(30).len(), 1);
}

#[test]
fn a_handler_that_is_moved_on_returns_to_its_first_context() {
    let contexts = platform(&[("c-core-0", 600), ("c-core-1", 600), ("g-core-0", 800)]);
    let handlers = vec![
        HandlerSample { arriving: SOME, ..handler("a", 300, Class::Communication) },
        HandlerSample { arriving: SOME, leaving: SOME, ..handler("b", 301, Class::Communication) },
        HandlerSample {
            context: 1,
            place: ContextChoice::Named("c-core-1".to_owned()),
            ..handler("c", 0, Class::Communication)
        },
    ];
    let mut world = World::new(contexts, handlers);
    assert_eq!(world.pass_for(3), [at(2, "a to c-core-1")]);
    world.handlers[2].need.load = time(301);
    assert_eq!(world.pass_for(3), [at(5, "a to g-core-0")]);
    world.handlers[1].need.load = time(0);
    assert_eq!(world.pass_for(40), [at(35, "a to c-core-0")]);
}

#[test]
fn a_handler_that_a_request_moved_is_not_moved_back() {
    let contexts = platform(&[("c-core-0", 600), ("g-core-0", 800), ("g-core-1", 800)]);
    let handlers = vec![handler("a", 300, Class::Computation), handler("b", 301, Class::Communication)];
    let mut world = World::new(contexts, handlers);
    assert_eq!(world.pass_for(3), [at(2, "a to g-core-0")]);
    world.handlers[0].context = 2;
    world.handlers[1].need.load = time(0);
    assert_eq!(world.pass_for(100), []);
}

#[test]
fn a_move_that_was_not_made_is_decided_again() {
    let contexts = platform(&[("c-core-0", 600), ("g-core-0", 800)]);
    let mut world = World::new(contexts, vec![handler("a", 700, Class::Computation)]);
    for _ in 0..4 {
        assert_eq!(world.pass_for(2), []);
        assert_eq!(world.pass().len(), 1);
        world.handlers[0].context = 0;
    }
}

#[test]
fn contexts_of_one_cpu_lose_their_headroom_together() {
    let mut list = platform(&[("c-core-0", 800), ("g-core-0", 800), ("c-core-1", 800)]).list().to_vec();
    list[0].capacity.cpu = Some(3);
    list[1].capacity.cpu = Some(3);
    let handlers = vec![
        handler("a", 500, Class::Communication),
        HandlerSample { context: 1, ..handler("b", 400, Class::Computation) },
    ];
    let mut world = World::new(Contexts::new(list).unwrap(), handlers);
    assert_eq!(world.pass_for(100), [at(2, "b to c-core-1")]);
}

#[test]
fn a_context_over_its_share_may_give_to_its_neighbour_on_the_cpu() {
    let mut list = platform(&[("c-core-0", 800), ("g-core-0", 800)]).list().to_vec();
    list.iter_mut().for_each(|context| context.capacity.cpu = Some(1));
    list[0].capacity.most.time_ns_per_s = 500 * MS;
    let handlers = vec![
        handler("a", 250, Class::Communication),
        handler("b", 151, Class::Communication),
        HandlerSample { context: 1, ..handler("c", 1, Class::Computation) },
    ];
    let mut world = World::new(Contexts::new(list).unwrap(), handlers);
    // The load of c on the same CPU is not the overload.
    assert_eq!(world.pass_for(100), [at(2, "a to g-core-0")]);
}

#[test]
fn a_handler_moves_to_a_context_where_it_can_stay() {
    let contexts = platform(&[("c-core-0", 500), ("c-core-1", 210), ("g-core-0", 400)]);
    let handlers = vec![handler("a", 400, Class::Communication), handler("b", 210, Class::Computation)];
    let mut world = World::new(contexts, handlers.clone());
    assert_eq!(world.pass_for(10), [at(2, "b to g-core-0")]);
    // Where that cannot be, its margin is enough.
    let contexts = platform(&[("c-core-0", 500), ("c-core-1", 210), ("g-core-0", 300)]);
    let mut world = World::new(contexts, handlers);
    assert_eq!(world.pass_for(10), [at(2, "b to c-core-1")]);
}

#[test]
fn of_several_that_could_come_back_those_do_that_have_room_together() {
    let contexts = platform(&[("c-core-0", 600), ("g-core-0", 800)]);
    let handlers = vec![
        handler("a", 301, Class::Computation),
        handler("b", 300, Class::Computation),
        handler("c", 600, Class::Communication),
    ];
    let mut world = World::new(contexts, handlers);
    assert_eq!(world.pass_for(3), [at(2, "a to g-core-0"), at(2, "b to g-core-0")]);
    world.handlers[2].need.load = time(0);
    assert_eq!(world.pass_for(200), [at(32, "b to c-core-0")]);
}

#[test]
fn a_handler_with_a_reservation_stays_if_another_can_leave() {
    let contexts = platform(&[("c-core-0", 300), ("g-core-0", 800)]);
    let mut reserved = handler("a", 100, Class::Communication);
    reserved.need.reserve = time(200);
    let handlers = vec![reserved, HandlerSample { arriving: SOME, ..handler("b", 200, Class::Communication) }];
    // 100 are taken of the 200 that are reserved, and all of them count.
    assert_eq!(World::new(contexts, handlers).pass_for(100), [at(2, "b to g-core-0")]);
}

#[test]
fn a_handler_moved_for_its_overruns_does_not_return() {
    let contexts = platform(&[("c-core-0", 600), ("g-core-0", 800)]);
    let handlers = vec![handler("a", 300, Class::Computation), handler("b", 301, Class::Communication)];
    let mut world = World::new(contexts, handlers);
    assert_eq!(world.pass_for(3), [at(2, "a to g-core-0")]);
    world.handlers[1].need.load = time(0);
    assert_eq!(world.pass_for(40), [at(32, "a to c-core-0")]);
    world.handlers[0].overruns = 3;
    assert_eq!(world.pass_for(1), [at(43, "a to g-core-0")]);
    world.handlers[0].overruns = 0;
    assert_eq!(world.pass_for(200), []);
}

#[test]
fn where_batches_wait_handlers_go_by_their_rules_one_after_the_other() {
    let contexts = platform(&[("c-core-0", 800)]);
    let handlers = vec![ruled("some", 300, 200), ruled("own", 500, 300), ruled("useless", 300, 300)];
    let mut world = World::new(contexts, handlers);
    // 1100 of 1000: the one that gains most by it.
    assert_eq!(world.pass_for(2), []);
    let decided = world.pass();
    let why = "batches waited too long for c-core-0 in 3 of the last 5 s".to_owned();
    assert_eq!(decided, [Decision::Degrade { handler: "own".to_owned(), applies: true, why }]);
    assert_eq!(world.pass_for(100), [], "900: none waits, and there is too little room to come back");
    let useless = world.find("useless");
    world.handlers[useless] = ruled("useless", 600, 600);
    assert_eq!(world.pass_for(100), [at(105, "some by its rule")], "what gains nothing by its rule is left alone");
    world.handlers[useless].need.load = time(150);
    // 650 of 1000, with 35 percent to be left; first the one that takes least, then the one that fits with it.
    assert_eq!(world.pass_for(100), [], "100 more would be too many");
    world.handlers[useless].need.load = time(40);
    assert_eq!(world.pass_for(100), [at(332, "some whole")], "and 200 more with that one");
    world.handlers[useless].need.load = time(0);
    let own = world.find("own");
    world.handlers[own].need.load = time(340);
    assert_eq!(world.pass_for(100), [at(432, "own whole")]);
}

#[test]
fn batches_that_wait_now_and_then_are_no_overload() {
    let contexts = platform(&[("c-core-0", 800)]);
    let mut world = World::new(contexts, vec![ruled("own", 400, 100)]);
    for second in 0..100 {
        world.handlers[0].need.load = time(if second % 5 < 2 { 1200 } else { 300 });
        assert_eq!(world.pass(), []);
    }
}

#[test]
fn no_handler_comes_back_to_where_another_goes_by_its_rule() {
    let contexts = platform(&[("c-core-0", 800), ("g-core-0", 800)]);
    let handlers = vec![handler("a", 300, Class::Computation), ruled("own", 700, 600)];
    let mut world = World::new(contexts, handlers);
    assert_eq!(world.pass_for(3), [at(2, "a to g-core-0")]);
    let own = world.find("own");
    world.handlers[own].need.load = time(1001);
    assert_eq!(world.pass_for(20), [at(5, "own by its rule")]);
    world.handlers[own].need.load = time(200);
    world.handlers[own].rule = Some(RuleSecond { is_applied: true, otherwise: time(100) });
    let back = world.pass_for(200);
    assert_eq!(back, [at(52, "own whole"), at(82, "a to c-core-0")]);
}

#[test]
fn moving_comes_before_doing_with_less() {
    let contexts = platform(&[("c-core-0", 800), ("g-core-0", 800)]);
    let world = |ms| {
        World::new(contexts.clone(), vec![handler("a", ms, Class::Computation), ruled("own", 601, 300)]).pass_for(10)
    };
    assert_eq!(world(400), [at(2, "a to g-core-0")]);
    assert_eq!(world(900), [at(2, "own by its rule")], "there is no room for it anywhere");
}

#[test]
fn a_handler_over_its_budget_moves_to_a_g_core_stops_or_is_limited() {
    let over = |policy, context, free| {
        let contexts = platform(&[("c-core-0", 800), ("c-core-1", 800), ("g-core-0", free)]);
        let handlers = vec![HandlerSample { overruns: 1, policy, context, ..handler("a", 100, Class::default()) }];
        World::new(contexts, handlers)
    };
    assert_eq!(over(Overrun::Move, 0, 100).pass_for(200), [at(2, "a to g-core-0")]);
    assert_eq!(over(Overrun::Move, 2, 100).pass_for(200), []);
    assert_eq!(over(Overrun::Stop, 2, 100).pass_for(200), [at(2, "stop a")]);
    let mut no_room = over(Overrun::Move, 0, 99);
    assert_eq!(no_room.pass_for(2), []);
    let why = "a exceeded its budget 3 times in the last 5 s, and no g-core has room for it: it gets the 50 ms/s that \
               its \
               budget allows";
    let limited = Decision::Limit { handler: "a".to_owned(), ns_per_s: Some(50 * MS), why: why.to_owned() };
    assert_eq!(no_room.pass(), [limited]);
    assert_eq!(no_room.pass_for(200), [], "it is counted, and stays");
    // Until it has kept to its budget for a while, or there is a place for it.
    no_room.handlers[0].overruns = 0;
    assert_eq!(no_room.pass_for(200), [at(232, "a not limited")]);
    no_room.handlers[0].overruns = 3;
    assert_eq!(no_room.pass_for(10), [at(403, "a limited to 50 ms")]);
    no_room.handlers[0].need.load = time(99);
    assert_eq!(no_room.pass_for(10), [at(413, "a to g-core-0"), at(414, "a not limited")]);
    let mut fixed = over(Overrun::Move, 0, 100);
    fixed.handlers[0].place = ContextChoice::Named("c-core-0".to_owned());
    assert_eq!(fixed.pass_for(200), [at(2, "a limited to 50 ms")]);
    // One that computes is least in the way at the emptiest g-core.
    let mut computes = over(Overrun::Move, 0, 99);
    computes.handlers[0].need.class = Class::Computation;
    assert_eq!(computes.pass_for(200), [at(2, "a to g-core-0")]);
    let mut without = over(Overrun::Move, 0, 99);
    without.contexts = platform(&[("c-core-0", 800), ("c-core-1", 800)]);
    without.handlers[0].need.class = Class::Computation;
    assert_eq!(without.pass_for(200), [at(2, "a limited to 50 ms")]);
    // Now and then is not too often.
    let mut seldom = over(Overrun::Stop, 0, 100);
    for second in 0..100 {
        seldom.handlers[0].overruns = u32::from(second % 5 < 2);
        assert_eq!(seldom.pass(), []);
    }
    seldom.handlers[0].overruns = 3;
    assert_eq!(seldom.pass().len(), 1);
}

#[test]
fn a_handler_far_over_its_estimate_is_limited_at_once() {
    for (free, expected) in [(100, "a to g-core-0"), (99, "a limited to 50 ms")] {
        let contexts = platform(&[("c-core-0", 800), ("g-core-0", free)]);
        let handlers = vec![HandlerSample { is_far_over: true, ..handler("a", 100, Class::default()) }];
        assert_eq!(World::new(contexts, handlers).pass_for(1), [at(0, expected)]);
    }
}

fn any_handler(contexts: usize) -> impl Strategy<Value = HandlerSample> {
    let place = prop_oneof![5 => Just(ContextChoice::Auto), 1 => Just(ContextChoice::Named("c-core-0".to_owned()))];
    (random::need(), 0..contexts, place, random::flow()).prop_map(|(need, context, place, mut arriving)| {
        arriving.bytes_per_s /= 8;
        arriving.messages_per_s /= 8;
        HandlerSample { need, context, place, arriving, ..handler("", 0, need.class) }
    })
}

/// Handlers on three c-cores and two g-cores, or all on the first.
fn world(all_on: Option<usize>) -> impl Strategy<Value = World> {
    let free = prop::collection::vec(300..800u64, 5);
    let rules = prop::collection::vec((0..300u64, 0..5usize, 0..=100u64), 0..3);
    (free, prop::collection::vec(any_handler(5), 0..10), rules).prop_map(move |(free, handlers, with_rules)| {
        let names = ["c-core-0", "c-core-1", "c-core-2", "g-core-0", "g-core-1"];
        let contexts = platform(&names.into_iter().zip(free).collect::<Vec<_>>());
        let named = |(number, handler): (usize, HandlerSample)| {
            let context = all_on.unwrap_or(handler.context);
            HandlerSample { name: format!("h{number}"), context, ..handler }
        };
        let with_rule = |(number, (ms, context, percent)): (usize, (u64, usize, u64))| {
            let context = all_on.unwrap_or(context);
            let place = ContextChoice::Named(names[context].to_owned());
            HandlerSample { context, place, ..ruled(&format!("s{number}"), ms, ms * percent / 100) }
        };
        let with_rules = with_rules.into_iter().enumerate().map(with_rule);
        World::new(contexts, handlers.into_iter().enumerate().map(named).chain(with_rules).collect())
    })
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("contexts", &self.contexts.list()).field("handlers", &self.handlers).finish()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn under_a_constant_load_it_comes_to_rest(mut world in world(None)) {
        world.pass_for(1000);
        prop_assert_eq!(world.pass_for(2000), []);
    }

    #[test]
    fn a_handler_leaves_a_context_once_under_a_constant_load(mut world in world(Some(0))) {
        let mut moves: BTreeMap<String, usize> = BTreeMap::new();
        let mut log = Vec::new();
        for _ in 0..1500 {
            for decision in world.pass() {
                log.push((world.second, decision.clone()));
                match decision {
                    Decision::Move { handler, .. } => *moves.entry(handler).or_default() += 1,
                    Decision::Degrade { handler, .. } => *moves.entry(format!("{handler} degraded")).or_default() += 1,
                    Decision::Limit { .. } | Decision::Stop { .. } => prop_assert!(false, "nobody is over its budget"),
                }
            }
        }
        for (name, times) in moves {
            prop_assert!(times <= 1, "{name} {times} times: {log:#?}");
        }
        // A handler that could still go has nowhere to go to.
        let committed = world.committed();
        for handler in world.handlers.iter().filter(|handler| handler.context == 0 && handler.place == ContextChoice::Auto) {
            let is_over = committed.excess(0).min(handler.need.committed(Load::default())) != Load::default();
            let others = (1..5).filter(|&at| {
                crossdock_control::admission::fit(&handler.need, handler.arriving.crossing(), &committed, at).is_ok()
            });
            prop_assert!(!is_over || others.count() == 0, "{handler:?}");
        }
    }

    #[test]
    fn no_more_load_is_offloaded_than_necessary(mut world in world(Some(0))) {
        let before = world.committed();
        let decided: Vec<Decision> = (0..3).flat_map(|_| world.pass()).collect();
        let moved: Vec<&str> = decided.iter().filter_map(|decision| match decision {
            Decision::Move { handler, .. } => Some(handler.as_str()),
            _ => None,
        }).collect();
        if before.excess(0) == Load::default() {
            prop_assert_eq!(decided, []);
            return Ok(());
        }
        let after = world.committed();
        for handler in world.handlers.iter().filter(|handler| moved.contains(&handler.name.as_str())) {
            let takes = handler.need.committed(Load::default());
            let mut with = after.clone();
            with.commit(0, takes);
            prop_assert!(with.excess(0) != Load::default(), "{} need not have gone", handler.name);
            prop_assert_eq!(&handler.place, &ContextChoice::Auto);
            prop_assert_eq!(after.excess(handler.context), before.excess(handler.context), "and it has room there");
        }
    }

    /// A load that changes as it likes, but leaves every context its margin.
    #[test]
    fn within_the_band_nothing_is_done(
        mut world in world(None),
        parts in prop::collection::vec((any::<Index>(), 0..=100u64), 300),
    ) {
        // The handlers' peaks, made so small that all fit.
        for handler in &mut world.handlers {
            handler.need.reserve = Load::default();
            handler.need.load.time_ns_per_s /= 20;
            handler.rule = None;
        }
        let loads: Vec<Need> = world.handlers.iter().map(|handler| handler.need).collect();
        prop_assert!((0..5).all(|at| world.committed().excess(at) == Load::default()));
        for (which, percent) in parts {
            if !loads.is_empty() {
                let which = which.index(loads.len());
                let load = &mut world.handlers[which].need.load;
                load.time_ns_per_s = loads[which].load.time_ns_per_s * percent / 100;
            }
            prop_assert_eq!(world.pass(), []);
        }
    }

    /// A load that has driven a handler away and then swings, periodically up to where there is no room for its return.
    #[test]
    fn between_the_margins_nothing_comes_back(period in 1..30u32, low in 0..400u64, high in 151..300u64) {
        let contexts = platform(&[("c-core-0", 600), ("g-core-0", 800)]);
        let handlers = vec![handler("a", 300, Class::Computation), handler("b", 301, Class::Communication)];
        let mut world = World::new(contexts, handlers);
        prop_assert_eq!(world.pass_for(3).len(), 1);
        for second in 0..600 {
            world.handlers[1].need.load = time(if second % period == 0 { high } else { low.min(high) });
            prop_assert_eq!(world.pass(), []);
        }
    }

    #[test]
    fn any_load_at_all_is_taken(
        mut world in world(None),
        loads in prop::collection::vec((any::<Index>(), random::load(), 0..3u32), 60),
    ) {
        for (which, load, overruns) in loads {
            if !world.handlers.is_empty() {
                let which = which.index(world.handlers.len());
                world.handlers[which].need.load = load;
                world.handlers[which].overruns = overruns;
            }
            let before = world.committed();
            let decided = world.pass();
            // Whatever is decided, a c-core gets only what is metered and takes short steps, and nobody is sent to where it is.
            for decision in decided {
                if let Decision::Move { handler, from, to, .. } = decision {
                    prop_assert!(from != to);
                    let there = &world.handlers[world.find(&handler)];
                    let capacity = before.list()[there.context].capacity;
                    let is_allowed = there.need.is_metered && there.need.step_ns <= capacity.slice_ns;
                    prop_assert!(capacity.kind == CoreKind::GCore || is_allowed);
                }
            }
        }
        prop_assert!(world.handlers.iter().all(|handler| handler.need.load.time_ns_per_s < 1000 * MS));
    }
}
