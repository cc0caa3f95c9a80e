//! A change that is refused leaves everything as it was: what is wanted, what runs, what is kept, and the records on their way.

use crate::contexts::tries;
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Event, Publisher, Subscriber};
use crossdock_runtime::info::{EventInfo, HandlerInfo};
use crossdock_runtime::{ChangeRequest, ContextConfig, ContextHandle, ContextKind, ContextSpec, HandlerSpec};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PLACES: [&str; 3] = ["c-core-0", "g-core-0", "c-core-1"];

fn start(state_dir: &Path) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.platform.contexts = vec![ContextSpec::new(ContextKind::GCore), ContextSpec::new(ContextKind::CCore)];
    config.platform.bandwidth_mbit_per_s = Some(8000);
    config.morph.state_dir = Some(state_dir.to_owned());
    config.platform.contexts.extend(crate::contexts::further());
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

fn numbers() -> Format {
    Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new("grp", FieldType::I32)]).unwrap()
}

fn publish(publisher: &mut Publisher, from: u64, to: u64) {
    let mut row = RecordBuilder::new(publisher.format());
    for number in from..to {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Int((number % 10) as i64)).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
}

/// The first field of all records up to the stream's end.
fn collect(subscriber: &mut Subscriber) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        match subscriber.next_event(Some(Duration::from_secs(20))).unwrap().expect("something within 20 s") {
            Event::Records(records) => numbers.extend(records.iter().map(|record| match record.get(0) {
                Value::Uint(number) => number,
                Value::Int(number) => number as u64,
                other => panic!("{other:?}"),
            })),
            Event::StreamEnded { publishers_left: 0, .. } => return numbers,
            Event::Dropped { records, .. } => panic!("{records} were dropped"),
            _ => {}
        }
    }
}

/// Somewhere where nobody moves it by himself, and with a rate that there is always room for.
fn spec(name: &str, place: &str) -> HandlerSpec {
    let (name, place) = (name.into(), Some(place.into()));
    HandlerSpec { name, place, peak_msgs_per_s: Some(1000), ..HandlerSpec::default() }
}

fn sql(name: &str, sql: &str, place: &str) -> HandlerSpec {
    HandlerSpec { sql: Some(sql.into()), ..spec(name, place) }
}

fn counted(place: &str) -> HandlerSpec {
    let parameters = BTreeMap::from([("field".to_owned(), "n1".to_owned())]);
    HandlerSpec { native: Some("number".into()), input_streams: vec!["N".into()], parameters, ..spec("counted", place) }
}

const ALL: &str = "SELECT * FROM counted WHERE number >= $least";

fn all(place: &str) -> HandlerSpec {
    HandlerSpec { parameters: map("least", "0"), ..sql("all", ALL, place) }
}

fn map(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

/// The state that is the same before and after a change that is refused.
#[derive(Debug, PartialEq)]
struct State {
    specs: Vec<HandlerSpec>,
    handlers: Vec<HandlerInfo>,
    streams: Vec<(String, Option<String>, Vec<String>)>,
    kept: Vec<u8>,
    events: Vec<EventInfo>,
}

impl State {
    fn of(context: &ContextHandle, state_dir: &Path) -> State {
        let manager = context.manager();
        let specs = manager.specs().unwrap();
        let handlers = manager.handlers().unwrap().into_iter().map(|info| HandlerInfo {
            name: info.name,
            version: info.version,
            program: info.program,
            parameters: info.parameters,
            reads: info.reads,
            makes: info.makes,
            why: info.why.filter(|_| info.status != "running"),
            status: info.status,
            context: info.context,
            is_fixed: info.is_fixed,
            state: info.state,
            dropped: info.dropped,
            faults: info.faults,
            sampled: info.sampled,
            degraded: info.degraded,
            changes: info.changes,
            ..HandlerInfo::default()
        });
        let streams = context.streams().unwrap().into_iter().map(|info| (info.name, info.made_by, info.formats));
        let events = manager.events(0).unwrap();
        // Refusals themselves, and what managers measure and limit by the way.
        let by_the_way = ["refused", "measured", "over_budget", "restored"];
        let is_change = |event: &EventInfo| !by_the_way.contains(&event.kind.as_str());
        State {
            specs,
            handlers: handlers.collect(),
            streams: streams.collect(),
            kept: std::fs::read(state_dir.join("handlers.json")).unwrap(),
            events: events.into_iter().filter(is_change).collect(),
        }
    }
}

/// A change that must not be made, and a word of why. `specs` is what is wanted now.
fn impossible(rng: &mut fastrand::Rng, specs: &[HandlerSpec]) -> (ChangeRequest, &'static str) {
    let place = PLACES[rng.usize(0..PLACES.len())];
    let now = |name: &str| specs.iter().find(|spec| spec.name == name).cloned().unwrap();
    let huge = 900_000_000_000;
    match rng.u32(0..18) {
        0 => (ChangeRequest::Deploy(sql("all", "SELECT * FROM N", place)), "exists already"),
        1 => (ChangeRequest::Swap(sql("all", "SELECT n1, number, 0 AS grp FROM tens", place)), "cycle"),
        2 => (ChangeRequest::Swap(sql("all", "SELECT nothing FROM counted", place)), "nothing"),
        3 => (ChangeRequest::Deploy(sql("new", "SELECT * FROM N WHERE", place)), "new"),
        4 => {
            let new = sql("new", "SELECT * FROM N", place);
            (ChangeRequest::Deploy(HandlerSpec { output_stream: Some("all".into()), ..new }), "all")
        }
        5 => {
            let new = sql("new", "SELECT * FROM M", place);
            (ChangeRequest::Deploy(HandlerSpec { output_stream: Some("N".into()), ..new }), "publish")
        }
        6 => (ChangeRequest::SetParameters { handler: "all".into(), parameters: map("most", "1") }, "most"),
        7 => (ChangeRequest::SetParameters { handler: "all".into(), parameters: map("least", "few") }, "least"),
        8 => (
            ChangeRequest::Swap(HandlerSpec {
                native: Some("pass".into()),
                parameters: BTreeMap::new(),
                ..counted(place)
            }),
            "",
        ),
        9 => (ChangeRequest::Swap(HandlerSpec { peak_msgs_per_s: Some(huge), ..now("tens") }), "needs "),
        10 => (ChangeRequest::Swap(HandlerSpec { reserve_bytes_per_s: Some(huge), ..now("tens") }), "reserve less"),
        11 => (ChangeRequest::Swap(HandlerSpec { reserve_path_msgs_per_s: Some(huge), ..now("tens") }), "as reserved"),
        12 => (ChangeRequest::Move { handler: "tens".into(), place: Some("nowhere".into()) }, "nowhere"),
        13 => (
            ChangeRequest::Remove { handler: ["counted", "all"][rng.usize(0..2)].into() },
            "would no longer \
                                                  produce",
        ),
        14 => {
            let overload_parameters = map("most", "1");
            (ChangeRequest::Swap(HandlerSpec { overload_parameters, ..now("all") }), "`overload_parameters`")
        }
        15 => (ChangeRequest::Remove { handler: "none".into() }, "no handler `none`"),
        16 => {
            // The handlers that could be made of it are not made either.
            let mut wanted: Vec<HandlerSpec> = specs.iter().filter(|spec| spec.name != "tens").cloned().collect();
            wanted.extend([
                sql("tens", "SELECT n1, number FROM all WHERE grp = 1", place),
                sql("other", "SELECT * FROM Q", place),
            ]);
            wanted.push(HandlerSpec { weight: Some(0), ..sql("light", "SELECT * FROM N", place) });
            (ChangeRequest::All(wanted), "weight")
        }
        _ => {
            let mut wanted = specs.to_vec();
            wanted.push(sql("other", "SELECT * FROM all", place));
            wanted.push(HandlerSpec { reserve_ns_per_s: Some(1_000_000_000), ..sql("more", "SELECT * FROM Q", place) });
            (ChangeRequest::All(wanted), "as reserved")
        }
    }
}

/// A change that may be made, so that what is to stay is not always the same.
fn possible(rng: &mut fastrand::Rng, round: u32) -> ChangeRequest {
    let place = PLACES[rng.usize(0..PLACES.len())];
    match rng.u32(0..4) {
        0 => ChangeRequest::Swap(sql(
            "tens",
            &format!("SELECT n1, number FROM all WHERE grp = 0 AND number >= -{round}"),
            place,
        )),
        1 => ChangeRequest::SetParameters { handler: "all".into(), parameters: map("least", &format!("-{round}")) },
        _ => {
            let handler = ["counted", "all", "tens"][rng.usize(0..3)].to_owned();
            ChangeRequest::Move { handler, place: Some(place.to_owned()) }
        }
    }
}

#[test]
fn a_change_that_is_refused_leaves_everything_as_it_was() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("CROSSDOCK_SEED={seed} repeats this");
    let mut rng = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start(directory.path());
    let manager = context.manager();
    let mut publisher = Publisher::builder(&addr).stream("N").format(&numbers()).connect().unwrap();
    for spec in
        [counted("c-core-0"), all("g-core-0"), sql("tens", "SELECT n1, number FROM all WHERE grp = 0", "c-core-1")]
    {
        manager.change(ChangeRequest::Deploy(spec), false).unwrap().unwrap();
    }
    let mut all = Subscriber::builder(&addr).sql("SELECT n1 FROM all").connect().unwrap();
    let mut tens = Subscriber::builder(&addr).sql("SELECT number FROM tens").connect().unwrap();
    let readers = (std::thread::spawn(move || collect(&mut all)), std::thread::spawn(move || collect(&mut tens)));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let publishing = std::thread::spawn(move || {
        let mut next = 0;
        while !stopped.load(Ordering::Acquire) {
            publish(&mut publisher, next, next + 1000);
            next += 1000;
        }
        publisher.finish().unwrap();
        next
    });
    let mut refused = 0;
    for round in 0..tries(200, 100) {
        if rng.u8(0..4) == 0 {
            // A context that is busy with all this traffic may have no room.
            refused += u32::from(manager.change(possible(&mut rng, round), false).unwrap().is_err());
            continue;
        }
        let before = State::of(&context, directory.path());
        let (requested, reason) = impossible(&mut rng, &before.specs);
        let planned = manager.plan(requested.clone(), false).unwrap();
        let plan = manager.change(requested.clone(), false).unwrap().expect_err(&format!("{requested:?}"));
        let why = plan.refusals.join("; ");
        assert!(why.contains(reason) && !planned.refusals.is_empty(), "{requested:?} was refused since {why}");
        let events = manager.events(0).unwrap();
        assert_eq!(events.iter().filter(|event| event.kind == "refused").count() as u32, refused + 1, "{requested:?}");
        refused += 1;
        assert_eq!(State::of(&context, directory.path()), before, "after {requested:?}");
    }
    stop.store(true, Ordering::Release);
    let published = publishing.join().unwrap();
    // That the numbers run on says that the state stayed.
    assert!(readers.0.join().unwrap().into_iter().eq(1..=published));
    assert!(readers.1.join().unwrap().into_iter().eq((0..published).filter(|n| n % 10 == 0)));
    context.stop().unwrap();
}
