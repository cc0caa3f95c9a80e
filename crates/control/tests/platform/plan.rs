//! The actions and texts of plans in single cases.

use crate::random::{MS, time};
use crossdock_control::admission::{ContextChoice, Need};
use crossdock_control::load::{
    Capacity, Context, ContextsError, CoreKind, Cost, Flow, Load, MAX_CONTEXTS, MAX_HANDLERS, SLICE_NS,
};
use crossdock_control::plan::{
    Action, Current, Definition, Note, Plan, Published, Refusal, State, Wanted, WantedHandler, apply, plan,
};
use crossdock_format::FormatId;
use std::collections::{BTreeMap, BTreeSet};

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// A handler named after the stream that it makes, of this number of ms a second.
fn handler(makes: &str, reads: &[&str], ms: u64) -> (String, WantedHandler) {
    let definition = Definition { version: 1, reads: set(reads), makes: makes.to_owned(), ..Definition::default() };
    let wanted = WantedHandler {
        definition,
        place: ContextChoice::Auto,
        need: Need { load: time(ms), rate_msgs_per_s: 1_000_000, ..Need::of(&Cost::default(), 0) },
        leaving: Flow { batches_per_s: 1000, ..Flow::default() },
        state: None,
        takes_state: BTreeSet::new(),
        discard_state: false,
    };
    (makes.to_owned(), wanted)
}

fn platform(free_ms: &[(&str, u64)]) -> Current {
    let context = |(name, free): &(&str, u64)| {
        let kind = if name.starts_with('c') { CoreKind::CCore } else { CoreKind::GCore };
        Context { name: (*name).to_owned(), capacity: Capacity::of_cpu(kind, None, 1000), system: time(800 - free) }
    };
    let flights = Published { context: free_ms[0].0.to_owned(), ..Published::default() };
    Current {
        contexts: free_ms.iter().map(context).collect(),
        delivered_at: Some(free_ms[0].0.to_owned()),
        published: BTreeMap::from([("flights".to_owned(), flights)]),
        ..Current::default()
    }
}

fn lines(plan: &Plan) -> Vec<String> {
    plan.changes.iter().map(ToString::to_string).collect()
}

fn actions(plan: &Plan) -> Vec<(&str, &Action)> {
    plan.changes.iter().map(|change| (change.handler.as_str(), &change.action)).collect()
}

/// The changes, made.
fn make(current: &mut Current, wanted: &Wanted) -> Plan {
    let plan = plan(current, wanted).unwrap();
    *current = apply(current, &plan);
    plan
}

fn refused(current: &Current, wanted: &Wanted) -> Vec<String> {
    plan(current, wanted).unwrap_err().iter().map(ToString::to_string).collect()
}

fn moved(from: &str) -> Action {
    Action::Move { from: from.to_owned() }
}

#[test]
fn a_chain_is_deployed_from_its_end_and_goes_from_its_start() {
    let mut current = platform(&[("c-core-0", 600)]);
    let wanted = Wanted::from([
        handler("late", &["flights"], 100),
        handler("counts", &["late"], 100),
        handler("a", &["counts"], 1),
    ]);
    let deployed = make(&mut current, &wanted);
    assert_eq!(
        lines(&deployed),
        [
            "deploy a on c-core-0: communication-centric, takes 1 ms/s at 1 M msgs/s; c-core-0 then has 399 ms/s",
            "deploy counts on c-core-0: communication-centric, takes 100 ms/s at 1 M msgs/s; c-core-0 then has 399 ms/s",
            "deploy late on c-core-0: communication-centric, takes 100 ms/s at 1 M msgs/s; c-core-0 then has 399 ms/s",
        ]
    );
    assert_eq!(plan(&current, &wanted), Ok(Plan::default()));
    let removed = make(&mut current, &Wanted::new());
    assert_eq!(
        lines(&removed),
        ["late", "counts", "a"].map(|name| format!("remove {name}: it is no longer wanted")),
        "a handler goes after the one that feeds it"
    );
    assert!(current.handlers.is_empty());
}

#[test]
fn a_change_of_parameters_is_one_change() {
    let mut current = platform(&[("c-core-0", 600)]);
    let (name, mut late) = handler("late", &["flights"], 100);
    late.definition.parameters.insert("delay".to_owned(), "10".to_owned());
    let wanted = |late: &WantedHandler| Wanted::from([(name.clone(), late.clone())]);
    make(&mut current, &wanted(&late));
    late.definition.parameters.insert("delay".to_owned(), "20".to_owned());
    late.definition.parameters.insert("origin".to_owned(), "ATL".to_owned());
    late.need.load = time(150);
    assert_eq!(
        lines(&make(&mut current, &wanted(&late))),
        ["set parameters of late: delay from `10` to `20`, origin from unset to `ATL`"]
    );
    assert_eq!(current.handlers["late"].load, time(150));
    // A repeated prediction is no change.
    late.need.load = time(5000);
    assert_eq!(make(&mut current, &wanted(&late)), Plan::default());
    late.need.reserve = Load { buffers: 3, ..time(200) };
    assert_eq!(
        lines(&make(&mut current, &wanted(&late))),
        ["reserve for late on c-core-0: 200 ms/s, 3 buffers and 0 B/s where it was 0 ns/s, 0 buffers and 0 B/s"]
    );
    assert_eq!(current.handlers["late"].load, time(150), "what was measured stays");
    late.definition.reads = set(&["flights", "weather"]);
    late.need.load = time(160);
    let rewired = make(&mut current, &wanted(&late));
    assert_eq!(
        lines(&rewired),
        ["rewire late: reads flights and weather and produces late where it now reads flights and produces late"]
    );
    let note = Note::NoProducer { handler: "late".to_owned(), stream: "weather".to_owned() };
    assert_eq!(rewired.notes, [note]);
    assert_eq!(
        rewired.notes[0].to_string(),
        "late reads the stream weather, which no publisher or handler produces now"
    );
}

#[test]
fn state_is_handed_over_or_may_be_lost_or_nothing_changes() {
    let mut current = platform(&[("c-core-0", 600)]);
    let (name, mut tally) = handler("tally", &["flights"], 100);
    tally.state = Some("tally/1".to_owned());
    let wanted = |tally: &WantedHandler| Wanted::from([(name.clone(), tally.clone())]);
    make(&mut current, &wanted(&tally));
    tally.definition.version = 2;
    tally.takes_state = set(&["tally/1"]);
    assert_eq!(
        lines(&make(&mut current, &wanted(&tally))),
        ["swap tally on c-core-0: version 2 replaces 1 and takes over its state `tally/1`"]
    );
    (tally.definition.version, tally.takes_state, tally.state) = (3, BTreeSet::new(), None);
    assert_eq!(
        refused(&current, &wanted(&tally)),
        ["version 3 of tally cannot take the state `tally/1` of version 2: it would be lost; \
          --discard-state permits that"]
    );
    tally.discard_state = true;
    let plan = make(&mut current, &wanted(&tally));
    assert_eq!(actions(&plan), [("tally", &Action::Swap(State::Discarded))]);
    assert_eq!(plan.changes[0].why, "version 3 replaces 2; the state `tally/1` is lost, as permitted");
    tally.definition.version = 4;
    assert_eq!(actions(&make(&mut current, &wanted(&tally))), [("tally", &Action::Swap(State::None))]);
}

#[test]
fn a_version_that_no_longer_fits_moves_first() {
    let mut current = platform(&[("c-core-0", 300), ("g-core-0", 700)]);
    let (name, mut late) = handler("late", &["flights"], 100);
    let wanted = |late: &WantedHandler| Wanted::from([(name.clone(), late.clone())]);
    make(&mut current, &wanted(&late));
    (late.definition.version, late.need.is_metered) = (2, false);
    let plan = make(&mut current, &wanted(&late));
    assert_eq!(
        lines(&plan),
        [
            "move late from c-core-0 to g-core-0: communication-centric, takes 100 ms/s at 1 M msgs/s; \
             g-core-0 then has 600 ms/s; c-core-0 accepts only metered handlers",
            "swap late on g-core-0: version 2 replaces 1"
        ]
    );
    assert_eq!(plan.changes[0].after.as_ref().unwrap().definition.version, 1);
    // Named: there or not at all, and what takes less goes on where it was until it moves.
    (late.definition.version, late.need.is_metered, late.need.load) = (3, true, time(90));
    late.place = ContextChoice::Named("c-core-0".to_owned());
    let plan = make(&mut current, &wanted(&late));
    assert_eq!(actions(&plan), [("late", &Action::Swap(State::None)), ("late", &moved("g-core-0"))]);
    assert!(
        plan.changes[1].why.ends_with("; c-core-0 then has 210 ms/s, and is the named context"),
        "{}",
        plan.changes[1]
    );
    (late.definition.version, late.need.load) = (4, time(301));
    assert_eq!(
        refused(&current, &wanted(&late)),
        ["late: needs 301 ms/s at 1 M msgs/s, c-core-0 has 300 ms/s: \
          remove or move a handler, declare a lower rate, or add a context"]
    );
    late.place = ContextChoice::Named("c-core-1".to_owned());
    assert_eq!(
        refused(&current, &wanted(&late)),
        ["late: there is no context c-core-1: name one of c-core-0, g-core-0"]
    );
}

#[test]
fn a_refusal_says_what_would_make_room() {
    let mut current = platform(&[("c-core-0", 300), ("g-core-0", 200)]);
    let mut wanted = Wanted::from([handler("one", &["flights"], 150), handler("two", &["flights"], 60)]);
    make(&mut current, &wanted);
    wanted.extend([handler("three", &["flights"], 240)]);
    assert_eq!(
        refused(&current, &wanted),
        ["three: needs 240 ms/s at 1 M msgs/s, c-core-0 has 90 ms/s, g-core-0 has 200 ms/s: \
          remove or move a handler, declare a lower rate, or add a context; \
          to move one from c-core-0 to g-core-0 would make room"]
    );
    assert_eq!(current.handlers.len(), 2, "and nobody is moved for it");
}

#[test]
fn a_handler_that_goes_makes_room_for_others() {
    let mut current = platform(&[("c-core-0", 300)]);
    make(&mut current, &Wanted::from([handler("one", &["flights"], 200), handler("two", &["flights"], 100)]));
    let (name, mut two) = handler("two", &["flights"], 10);
    two.definition.version = 2;
    let wanted = Wanted::from([(name, two), handler("three", &["two"], 290)]);
    let plan = make(&mut current, &wanted);
    // The swap frees room too, but who reads comes before who makes.
    assert_eq!(plan.changes.iter().map(|change| change.handler.as_str()).collect::<Vec<_>>(), ["one", "three", "two"]);
}

#[test]
fn changes_that_need_more_follow_those_that_need_less() {
    let mut current = platform(&[("c-core-0", 300)]);
    let wanted = |ms: [u64; 2], value: &str| {
        let mut both = Wanted::from([handler("a", &["flights"], ms[0]), handler("b", &["flights"], ms[1])]);
        for one in both.values_mut() {
            one.definition.parameters.insert("n".to_owned(), value.to_owned());
        }
        both
    };
    make(&mut current, &wanted([200, 100], "1"));
    let names = |plan: &Plan| plan.changes.iter().map(|change| change.handler.clone()).collect::<Vec<_>>();
    assert_eq!(names(&make(&mut current, &wanted([100, 200], "2"))), ["a", "b"]);
    assert_eq!(names(&make(&mut current, &wanted([200, 100], "3"))), ["b", "a"]);
}

#[test]
fn impossible_plans_are_refused_with_everything_that_is_wrong() {
    let current = platform(&[("c-core-0", 600)]);
    let wanted = Wanted::from([
        handler("a", &["c"], 1),
        handler("b", &["a"], 1),
        handler("c", &["b"], 1),
        handler("flights", &["weather"], 1),
        ("other".to_owned(), handler("b", &["weather"], 1).1),
    ]);
    assert_eq!(
        refused(&current, &wanted),
        [
            "flights produces the stream flights, which has publishers: give its output another name",
            "b and other produce the same stream b: give each a stream of its own",
            "handlers `b` -> `c` -> `a` -> `b` form a cycle, each reads the stream of the one before it: \
             let one of them read another stream",
        ]
    );
    let itself = Wanted::from([handler("a", &["a"], 1)]);
    assert_eq!(plan(&current, &itself), Err(vec![Refusal::Cycle { handlers: vec!["a".to_owned()] }]));
    let many: Wanted = (0..=MAX_HANDLERS).map(|number| handler(&format!("h{number}"), &["flights"], 0)).collect();
    assert_eq!(plan(&current, &many), Err(vec![Refusal::TooMany(MAX_HANDLERS + 1)]));
    let twice = Current { contexts: [&current.contexts[..], &current.contexts[..]].concat(), ..current };
    let error = Refusal::Contexts(ContextsError::Twice("c-core-0".to_owned()));
    assert_eq!(plan(&twice, &itself), Err(vec![error]));
}

#[test]
fn a_stream_that_is_read_does_not_go() {
    let mut current = platform(&[("c-core-0", 600)]);
    let all = Wanted::from([handler("late", &["flights"], 1), handler("x", &["late"], 1), handler("y", &["late"], 1)]);
    make(&mut current, &all);
    let without = |names: &[&str]| {
        let left = all.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        left.map(|(name, handler)| (name.clone(), handler.clone())).collect::<Wanted>()
    };
    assert_eq!(
        refused(&current, &without(&["late"])),
        ["late would no longer produce the stream late, which x and y read: remove or rewire them too"]
    );
    assert!(plan(&current, &without(&["late", "x", "y"])).is_ok());
    // Somebody else may make it from now on: first the one stops, then the other starts.
    let mut instead = without(&["late"]);
    instead.insert("a".to_owned(), handler("late", &["flights"], 1).1);
    assert_eq!(actions(&make(&mut current, &instead)), [("late", &Action::Remove), ("a", &Action::Deploy)]);
}

#[test]
fn a_streams_old_producer_stops_before_its_new_one_begins() {
    let mut current = platform(&[("c-core-0", 600)]);
    let (name, mut one) = handler("late", &["flights"], 1);
    make(&mut current, &Wanted::from([(name.clone(), one.clone())]));
    one.definition.makes = "later".to_owned();
    let wanted = Wanted::from([(name, one), ("z".to_owned(), handler("late", &["flights"], 1).1)]);
    assert_eq!(actions(&make(&mut current, &wanted)), [("late", &Action::Rewire), ("z", &Action::Deploy)]);
}

#[test]
fn a_state_that_became_invalid_by_itself_blocks_no_change() {
    let mut current = platform(&[("c-core-0", 600)]);
    let mut wanted = Wanted::from([handler("late", &["flights"], 1), handler("x", &["late"], 1)]);
    make(&mut current, &wanted);
    // A format has been seen that x cannot read, and somebody publishes the stream too.
    wanted.get_mut("late").unwrap().definition.gives = BTreeSet::from([FormatId(9)]);
    wanted.get_mut("x").unwrap().definition.takes = Some(BTreeSet::from([FormatId(2)]));
    current.published.insert("late".to_owned(), Published::default());
    wanted.extend([handler("other", &["flights"], 1)]);
    assert_eq!(actions(&make(&mut current, &wanted)), [("other", &Action::Deploy)]);
}

#[test]
fn a_handler_at_its_inputs_context_pays_for_no_crossing() {
    let mut current = platform(&[("c-core-0", 600), ("g-core-0", 800)]);
    let (name, mut x) = handler("x", &["late"], 50);
    x.place = ContextChoice::Named("g-core-0".to_owned());
    let (late, mut wanted_late) = handler("late", &["flights"], 50);
    wanted_late.leaving = Flow { bytes_per_s: 1_000_000_000, ..Flow::default() };
    wanted_late.place = ContextChoice::Named("c-core-0".to_owned());
    let mut wanted = Wanted::from([(late, wanted_late), (name.clone(), x)]);
    make(&mut current, &wanted);
    assert_eq!(current.handlers["x"].load, time(50 + 32));
    current.handlers.get_mut("x").unwrap().load = time(60 + 32);
    wanted.get_mut("x").unwrap().place = ContextChoice::Named("c-core-0".to_owned());
    assert_eq!(actions(&make(&mut current, &wanted)), [("x", &moved("g-core-0"))]);
    assert_eq!(current.handlers["x"].load, time(60));
}

#[test]
fn formats_of_neighbours_fit() {
    let mut current = platform(&[("c-core-0", 600)]);
    current.published.get_mut("flights").unwrap().formats = BTreeSet::from([FormatId(1)]);
    let mut wanted = Wanted::from([handler("late", &["flights"], 1), handler("x", &["late"], 1)]);
    wanted.get_mut("late").unwrap().definition.gives = BTreeSet::from([FormatId(2)]);
    wanted.get_mut("x").unwrap().definition.takes = Some(BTreeSet::from([FormatId(2)]));
    wanted.get_mut("late").unwrap().definition.takes = Some(BTreeSet::from([FormatId(3)]));
    let plan = make(&mut current, &wanted);
    let note = Note::TakesNone { handler: "late".to_owned(), stream: "flights".to_owned() };
    assert_eq!(plan.notes, [note]);
    let late = &mut wanted.get_mut("late").unwrap().definition;
    (late.version, late.gives) = (2, BTreeSet::from([FormatId(2), FormatId(4)]));
    assert_eq!(
        refused(&current, &wanted),
        [format!(
            "late produces the stream late in format {}, which x cannot read: \
             give it a version that can, or convert in between",
            FormatId(4)
        )]
    );
    let x = &mut wanted.get_mut("x").unwrap().definition;
    (x.version, x.takes) = (2, None);
    let swap = Action::Swap(State::None);
    assert_eq!(actions(&make(&mut current, &wanted)), [("x", &swap), ("late", &swap)]);
}

#[test]
fn a_handler_that_needs_no_more_stays_in_an_overloaded_context() {
    let mut current = platform(&[("c-core-0", 300), ("g-core-0", 800)]);
    let (name, mut late) = handler("late", &["flights"], 200);
    let wanted = |late: &WantedHandler| Wanted::from([(name.clone(), late.clone())]);
    make(&mut current, &wanted(&late));
    current.handlers.get_mut("late").unwrap().load = time(400);
    (late.definition.version, late.need.load) = (2, time(400));
    assert_eq!(actions(&make(&mut current, &wanted(&late))), [("late", &Action::Swap(State::None))]);
    (late.definition.version, late.need.load) = (3, Load { time_ns_per_s: 400 * MS + 1, ..time(0) });
    assert_eq!(make(&mut current, &wanted(&late)).changes[0].action, moved("c-core-0"));
    // One that has no context any more gets another.
    current.handlers.get_mut("late").unwrap().context = "g-core-7".to_owned();
    assert_eq!(actions(&make(&mut current, &wanted(&late))), [("late", &moved("g-core-7"))]);
    assert_eq!(current.handlers["late"].context, "g-core-0");
    late.need.step_ns = SLICE_NS + 1;
    late.definition.version = 4;
    current.handlers.get_mut("late").unwrap().context = "c-core-0".to_owned();
    assert_eq!(make(&mut current, &wanted(&late)).changes[0].action, moved("c-core-0"));
}

#[test]
fn a_chain_that_has_to_be_cut_is_cut_where_least_flows() {
    let mut current = platform(&[("c-core-0", 500), ("g-core-0", 800)]);
    current.published.get_mut("flights").unwrap().flow.bytes_per_s = 1_000_000_000;
    let sized = |makes: &str, reads: &[&str], ms, mb: u64| {
        let (name, mut wanted) = handler(makes, reads, ms);
        wanted.leaving = Flow { bytes_per_s: mb * 1_000_000, ..Flow::default() };
        (name, wanted)
    };
    let wanted = Wanted::from([
        sized("late", &["flights"], 200, 100),
        sized("joined", &["late"], 400, 300),
        sized("short", &["joined"], 200, 50),
    ]);
    let plan = make(&mut current, &wanted);
    let places = ["late", "joined", "short"].map(|name| current.handlers[name].context.as_str());
    assert_eq!(places, ["c-core-0", "g-core-0", "g-core-0"]);
    assert_eq!(
        current.handlers["joined"].load,
        time(400) + Flow { bytes_per_s: 100_000_000, ..Flow::default() }.crossing()
    );
    let short = plan.changes.iter().find(|change| change.handler == "short").unwrap();
    assert!(short.why.ends_with("; fewer bytes cross between contexts than with it on c-core-0"), "{}", short.why);
}

#[test]
fn as_many_as_there_may_be_are_planned() {
    let names: Vec<String> =
        (0..MAX_CONTEXTS).map(|at| format!("{}-core-{at}", if at < 32 { 'c' } else { 'g' })).collect();
    let mut current = platform(&names.iter().map(|name| (name.as_str(), 800)).collect::<Vec<_>>());
    current.contexts.iter_mut().for_each(|context| context.capacity.most.buffers = u64::MAX);
    let of_chain = |number: u64| {
        let from = if number.is_multiple_of(8) { "flights".to_owned() } else { format!("h{}", number - 1) };
        handler(&format!("h{number}"), &[&from], 30 + number % 17)
    };
    let mut wanted: Wanted = (0..MAX_HANDLERS as u64).map(of_chain).collect();
    assert_eq!(make(&mut current, &wanted).changes.len(), MAX_HANDLERS);
    assert_eq!(make(&mut current, &wanted), Plan::default());
    wanted.remove("h1023");
    wanted.extend([handler("more", &["flights"], 40)]);
    assert_eq!(actions(&make(&mut current, &wanted)), [("h1023", &Action::Remove), ("more", &Action::Deploy)]);
}

/// The replicas of a handler at the contexts of a platform.
fn replicas(current: &Current, makes: &str, reads: &[&str], ms: u64) -> Wanted {
    let replica = |context: &Context| {
        let mut replica = handler(makes, reads, ms).1;
        replica.definition.replica_of = Some(makes.to_owned());
        replica.place = ContextChoice::Named(context.name.clone());
        (format!("{makes}@{}", context.name), replica)
    };
    current.contexts.iter().map(replica).collect()
}

#[test]
fn replicas_make_one_stream_of_what_their_own_contexts_bring() {
    let mut current = platform(&[("c-core-0", 600), ("c-core-1", 600)]);
    let flow = Flow { batches_per_s: 100_000, ..Flow::default() };
    current.published.get_mut("flights").unwrap().flow = flow;
    let mut wanted = replicas(&current, "clean", &["flights"], 100);
    wanted.extend(replicas(&current, "late", &["clean"], 10));
    wanted.values_mut().for_each(|replica| replica.leaving = flow);
    make(&mut current, &wanted);
    for (name, deployed) in &current.handlers {
        let (handler, context) = name.split_once('@').unwrap();
        assert_eq!(deployed.context, context);
        let ms = if handler == "clean" { 100 } else { 10 };
        assert_eq!(deployed.load, time(ms), "{name} takes nothing over from another context");
    }
    // One that reads their stream takes it over from the contexts where it is not.
    let (name, mut all) = handler("all", &["late"], 10);
    all.place = ContextChoice::Named("c-core-0".to_owned());
    wanted.insert(name, all);
    make(&mut current, &wanted);
    assert_eq!(current.handlers["all"].load, time(10) + flow.crossing());
    assert_eq!(plan(&current, &wanted), Ok(Plan::default()));
    // They go as they came.
    wanted.retain(|name, _| name == "all");
    assert_eq!(
        refused(&current, &wanted),
        ["late would no longer produce the stream late, which all read: remove or rewire them too"]
    );
    let gone = make(&mut current, &Wanted::new());
    assert_eq!(gone.changes.len(), 5);
    assert!(gone.changes[..2].iter().all(|change| change.handler.starts_with("clean@")), "{:?}", lines(&gone));
}

#[test]
fn replicas_read_what_is_published_or_made_by_replicas() {
    let mut current = platform(&[("c-core-0", 600), ("c-core-1", 600)]);
    let late = replicas(&current, "late", &["clean"], 1);
    let mut wanted = late.clone();
    let one_maker = "late has replicas, and clean makes the stream clean, which it reads, at one context: \
                     give clean replicas too, or late none";
    wanted.extend([handler("clean", &["flights"], 1)]);
    assert_eq!(refused(&current, &wanted), [one_maker]);
    // Also where what makes the stream comes later.
    make(&mut current, &late);
    assert_eq!(refused(&current, &wanted), [one_maker]);
    let mut wanted = late.clone();
    wanted.extend(replicas(&current, "clean", &["flights"], 1));
    make(&mut current, &wanted);
    // One takes the place of all of them.
    wanted.retain(|name, _| !name.starts_with("late"));
    wanted.extend([handler("late", &["clean"], 1)]);
    let swapped = make(&mut current, &wanted);
    let last = swapped.changes.last().unwrap();
    assert_eq!((swapped.changes.len(), &*last.handler, &last.action), (3, "late", &Action::Deploy));
}

#[test]
fn replicas_of_two_handlers_make_two_streams_and_each_needs_its_place() {
    let current = platform(&[("c-core-0", 600), ("c-core-1", 50)]);
    let mut wanted = replicas(&current, "clean", &["flights"], 10);
    let other = handler("clean", &["flights"], 1).1;
    wanted.extend([("other".to_owned(), other)]);
    let same = "clean and other produce the same stream clean: give each a stream of its own";
    assert_eq!(refused(&current, &wanted), [same]);
    let wanted = replicas(&current, "flights", &["weather"], 10);
    let published = "flights produces the stream flights, which has publishers: give its output another name";
    assert_eq!(refused(&current, &wanted), [published]);
    let wanted = replicas(&current, "clean", &["flights"], 100);
    let why = refused(&current, &wanted);
    assert!(why.len() == 1 && why[0].starts_with("clean@c-core-1: "), "{why:?}");
    let mut wanted = replicas(&current, "clean", &["flights"], 10);
    wanted.values_mut().for_each(|replica| replica.need.is_metered = false);
    let why = refused(&current, &wanted);
    assert!(why.len() == 2 && why[0].starts_with("clean@c-core-0: "), "{why:?}");
}
