//! Changes beside others: of formats under traffic, while a handler is compiled or measured, while a context is busy; and changes
//! that are refused since the graph would have a cycle, or more queues than there are buffers for.

use super::*;
use crossdock_engine::{Arguments, Handler, HandlerCounters, NativeKind, Parameter, ParameterKind, ParameterValues};
use crossdock_engine::{Sink, Verdict};
use crossdock_mailbox::{Batch, Selection};
use crossdock_nectarine::{Conversion, Converter};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;

/// The two versions of a handler, which make records of different formats.
const VERSIONS: [&str; 2] = ["SELECT number, grp FROM N", "SELECT number, grp, grp + 1 AS next FROM N"];

const ROUNDS: u64 = 1000;
/// Records that are published for each round.
const RECORDS: u64 = 2000;

/// The format of all that a stream brings by now.
fn format_of(addr: &str, stream: &str) -> Format {
    let subscriber = Subscriber::builder(addr).sql(format!("SELECT * FROM {stream}")).connect().unwrap();
    subscriber.format().expect("it is there").clone()
}

/// Publishes as many records as are wanted by now, up to those of all rounds: as much for each change as is still on its way
/// when that is made, so that the machine is not only busy with it.
fn publish_as_wanted(mut publisher: Publisher) -> (Arc<AtomicU64>, JoinHandle<()>) {
    let wanted = Arc::new(AtomicU64::new(0));
    let due = Arc::clone(&wanted);
    let publishing = std::thread::spawn(move || {
        let mut next = 0;
        while next < ROUNDS * RECORDS {
            let to = due.load(Ordering::Acquire).min(next + 100);
            publish(&mut publisher, next, to);
            next = to;
            std::thread::yield_now();
        }
        publisher.finish().unwrap();
    });
    (wanted, publishing)
}

/// A handler's output format changes a thousand times, forth and back, at times with its context; readers of the one format, of
/// the other and of both go on.
#[test]
fn an_output_format_changes_a_thousand_times_under_traffic_and_nothing_is_lost() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("CROSSDOCK_SEED={seed} repeats this");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (context, addr) = start(|_| {});
    let publisher = connect(&addr);
    change(&context, ChangeRequest::Deploy(sql("made", VERSIONS[1])));
    let newer = format_of(&addr, "made");
    change(&context, ChangeRequest::Swap(sql("made", VERSIONS[0])));
    let older = format_of(&addr, "made");
    assert_ne!(older, newer);
    let mut converter = Converter::builder(&addr).stream("made").connect().unwrap();
    let conversion = |sql: &str| -> Conversion { sql.parse().unwrap() };
    converter.register(&older, &newer, &conversion("SELECT number, grp, grp + 1 AS next FROM x")).unwrap();
    converter.register(&newer, &older, &conversion("SELECT number, grp FROM x")).unwrap();
    // A handler that reads it as well, elsewhere.
    change(
        &context,
        ChangeRequest::Deploy(HandlerSpec {
            place: Some("g-core-1".into()),
            ..sql("behind", "SELECT number FROM made")
        }),
    );
    let connect_to = |stream: &str, accept: Option<&Format>| {
        let builder = Subscriber::builder(&addr).sql(format!("SELECT * FROM {stream}"));
        let builder = match accept {
            Some(format) => builder.accept(format),
            None => builder,
        };
        let mut subscriber = builder.connect().unwrap();
        std::thread::spawn(move || count(&mut subscriber, 0..))
    };
    let readers = [
        connect_to("made", None),
        connect_to("made", Some(&older)),
        connect_to("made", Some(&newer)),
        connect_to("behind", None),
    ];
    let (wanted, publishing) = publish_as_wanted(publisher);
    let mut place = 0;
    for round in 0..ROUNDS as usize {
        wanted.fetch_add(RECORDS, Ordering::AcqRel);
        if rng.u8(0..4) == 0 {
            place = rng.usize(0..PLACES.len());
        }
        // A context that is busy with all this traffic may have no room: then it goes to the next.
        let mut refused = Vec::new();
        let mut goes = |at: usize| {
            let place = Some(PLACES[(place + at) % PLACES.len()].into());
            let spec = HandlerSpec { place, ..sql("made", VERSIONS[(round + 1) % 2]) };
            context.manager().change(ChangeRequest::Swap(spec), false).unwrap().map_err(|plan| refused.push(plan))
        };
        let has_gone = (0..PLACES.len()).any(|at| goes(at).is_ok());
        assert!(has_gone, "seed {seed}, round {round}: {refused:?}");
    }
    publishing.join().unwrap();
    let found = readers.map(|reader| reader.join().map_err(drop));
    assert_eq!(found, [Ok(ROUNDS * RECORDS); 4], "seed {seed}: {:#?}", context.manager().handlers());
    let handlers = context.manager().handlers().unwrap();
    assert!(handlers.iter().all(|handler| handler.dropped.is_empty() && handler.faults == 0), "{handlers:#?}");
    assert!(
        handlers.iter().any(|handler| handler.name == "made" && u64::from(handler.version) >= ROUNDS),
        "{handlers:#?}"
    );
    context.stop().unwrap();
}

/// Waits at a record until it is let go: where it is measured, or where it works.
struct Waits {
    arguments: Arguments,
    is_measured: bool,
    here: &'static AtomicBool,
    let_go: &'static AtomicBool,
    counters: HandlerCounters,
}

impl Handler for Waits {
    fn process(&mut self, _: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
        let is_measured = std::thread::current().name() == Some("measuring");
        if is_measured == self.is_measured {
            self.here.store(true, Ordering::Release);
        }
        while is_measured == self.is_measured && !self.let_go.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.counters.records_in += selection.len() as u64;
        self.counters.passed += selection.len() as u64;
        Verdict::Forward
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn set_parameters(&mut self, values: &mut ParameterValues) -> bool {
        self.arguments.exchange(values)
    }
}

fn waits(is_measured: bool, here: &'static AtomicBool, let_go: &'static AtomicBool) -> NativeKind {
    let kind = ParameterKind::Whole { least: 0, most: 100 };
    let parameter = Parameter { name: "some", about: "a number", kind, default: Some("1"), is_tunable: true };
    NativeKind::new("waits", "waits at a record", &[parameter], move |format, arguments| {
        let (arguments, counters) = (arguments.clone(), HandlerCounters::default());
        Ok((Box::new(Waits { arguments, is_measured, here, let_go, counters }), format.clone()))
    })
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

/// A handler may take as long as its own setting says to be measured, and others are deployed meanwhile.
#[test]
fn measuring_a_handler_delays_no_other_change() {
    static HERE: AtomicBool = AtomicBool::new(false);
    static LET_GO: AtomicBool = AtomicBool::new(false);
    delays_no_other_change(waits(true, &HERE, &LET_GO), &HERE, &LET_GO);
}

/// The same for one that is compiled.
#[test]
fn compiling_a_handler_delays_no_other_change() {
    static HERE: AtomicBool = AtomicBool::new(false);
    static LET_GO: AtomicBool = AtomicBool::new(false);
    let kind = NativeKind::new("waits", "waits when it is made", &[], |format, arguments| {
        HERE.store(true, Ordering::Release);
        wait_for(&LET_GO);
        let (arguments, counters) = (arguments.clone(), HandlerCounters::default());
        let waits = Waits { arguments, is_measured: true, here: &HERE, let_go: &LET_GO, counters };
        Ok((Box::new(waits), format.clone()))
    });
    delays_no_other_change(kind, &HERE, &LET_GO);
}

/// Deploys a handler of a kind that waits before it is deployed, and others meanwhile.
fn delays_no_other_change(kind: NativeKind, here: &AtomicBool, let_go: &AtomicBool) {
    let (context, addr) = start(|config| config.platform.stuck_after_ms = 50);
    context.manager().add_native(kind).unwrap();
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 100);
    publisher.flush().unwrap();
    let slow = HandlerSpec { stuck_after_ms: Some(3_600_000), ..native("slow", "waits", "N", &[]) };
    let deploying = {
        let context = context.clone();
        std::thread::spawn(move || context.manager().change(ChangeRequest::Deploy(slow), false).unwrap())
    };
    wait_for(here);
    // All kinds of changes, also of what it is to read, and plans.
    change(&context, ChangeRequest::Deploy(sql("other", "SELECT * FROM N")));
    change(&context, ChangeRequest::Swap(sql("other", "SELECT number FROM N")));
    change(&context, ChangeRequest::Move { handler: "other".into(), place: Some("g-core-1".into()) });
    let plan = context.manager().plan(ChangeRequest::Remove { handler: "other".into() }, false).unwrap();
    assert_eq!(plan.refusals, [""; 0]);
    // Also one that it is in the way of, by the time that it is known.
    change(&context, ChangeRequest::Deploy(sql("reads_it", "SELECT * FROM slow")));
    assert!(!deploying.is_finished(), "it still waits");
    let_go.store(true, Ordering::Release);
    let applied = deploying.join().unwrap();
    assert!(applied.is_ok(), "{applied:?}");
    publish(&mut publisher, 100, 200);
    publisher.finish().unwrap();
    until(&context, "reads_it", |info| info.records_in == 100);
    context.stop().unwrap();
}

/// Whose state is asked for when it is swapped: a format is announced then.
#[derive(Default)]
struct Announces(HandlerCounters);

static DAEMON: OnceLock<ContextHandle> = OnceLock::new();
static ANNOUNCING: Mutex<Option<JoinHandle<Publisher>>> = Mutex::new(None);

impl Handler for Announces {
    fn process(&mut self, _: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
        self.0.records_in += selection.len() as u64;
        self.0.passed += selection.len() as u64;
        Verdict::Forward
    }

    fn counters(&self) -> HandlerCounters {
        self.0
    }

    fn state_kind(&self) -> Option<&'static str> {
        Some("of a test")
    }

    fn takes_state(&self, _: &str) -> bool {
        let mut announcing = ANNOUNCING.lock().unwrap();
        if announcing.is_none() {
            let daemon = DAEMON.get().unwrap();
            let known = daemon.formats().unwrap().len();
            let wider = [("number", FieldType::U64), ("more", FieldType::F64)];
            let wider = Format::natural(wider.map(|(name, ty)| FieldSpec::new(name, ty))).unwrap();
            let publisher = Publisher::builder(daemon.local_addr().to_string()).stream("M").format(&wider);
            let thread = announcing.insert(std::thread::spawn(|| publisher.connect().unwrap()));
            // With several I/O contexts, the managers answer the publisher, and they wait for this handler: the daemon has the format
            // now, and the publisher is connected after the change.
            let is_announced = || match crate::contexts::further().next() {
                None => thread.is_finished(),
                Some(_) => daemon.formats().unwrap().len() > known,
            };
            while !is_announced() {
                std::thread::yield_now();
            }
        }
        true
    }
}

/// A format that comes to a stream after a plan knew its formats, and before the plan's handler reads it, is read all the same.
#[test]
fn a_format_that_is_announced_while_a_change_is_planned_is_read() {
    let (context, addr) = start(|_| {});
    DAEMON.set(context.clone()).unwrap();
    let kind = NativeKind::new("announces", "announces a format", &[], |format, _| {
        Ok((Box::new(Announces::default()), format.clone()))
    });
    context.manager().add_native(kind).unwrap();
    let _of_n = connect(&addr);
    let _of_m = Publisher::builder(&addr).stream("M").format(&numbers()).connect().unwrap();
    let spec = native("reader", "announces", "N", &[]);
    change(&context, ChangeRequest::Deploy(spec.clone()));
    change(&context, ChangeRequest::Swap(HandlerSpec { input_streams: vec!["N".into(), "M".into()], ..spec }));
    let announcing = ANNOUNCING.lock().unwrap().take().expect("the state was asked for");
    let mut publisher = announcing.join().unwrap();
    let mut row = RecordBuilder::new(publisher.format());
    row.set(0, Value::Uint(1)).unwrap();
    row.set(1, Value::Float(0.5)).unwrap();
    publisher.publish(row.finish().unwrap()).unwrap();
    publisher.finish().unwrap();
    let info = until(&context, "reader", |info| info.inputs.len() == 2 && info.records_in == 1);
    assert!(info.dropped.is_empty(), "{info:#?}");
    context.stop().unwrap();
}

/// A swap waits for contexts to learn what they know of the streams, to prepare and to commit, and for nothing else: also where its
/// handler is compiled and measured before, and where its output has a format that is new to all contexts and their queries.
#[test]
fn a_swap_takes_three_round_trips_at_most() {
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1000);
    publisher.flush().unwrap();
    let place = |place: &str| Some(place.to_owned());
    change(
        &context,
        ChangeRequest::Deploy(HandlerSpec { place: place("g-core-0"), ..sql("of", "SELECT number FROM N") }),
    );
    change(&context, ChangeRequest::Deploy(sql("behind", "SELECT * FROM of")));
    let _readers = [0, 1].map(|_| Subscriber::builder(&addr).sql("SELECT * FROM of").connect().unwrap());
    for round in 0..20 {
        // Every third has a format that no other had.
        let query = match round % 3 {
            0 => format!("SELECT number AS n{round} FROM N"),
            1 => format!("SELECT number FROM N WHERE number > {round}"),
            _ => format!("SELECT number, grp FROM N WHERE grp <> {round}"),
        };
        let swapped = HandlerSpec { place: place("g-core-0"), ..sql("of", &query) };
        let applied = context.manager().change(ChangeRequest::Swap(swapped), false).unwrap().unwrap();
        assert!((1..=3).contains(&applied.round_trips), "{query}: {applied:?}");
        publish(&mut publisher, 0, 10);
    }
    // So does a removal: the last of them ends the stream that the handler made.
    change(&context, ChangeRequest::Deploy(sql("alone", "SELECT number FROM N")));
    let removed = context.manager().change(ChangeRequest::Remove { handler: "alone".into() }, false).unwrap().unwrap();
    assert_eq!(removed.round_trips, 3, "{removed:?}");
    context.stop().unwrap();
}

/// A format that comes while the next version is measured is read by that version too.
#[test]
fn a_format_that_is_announced_while_a_swap_is_measured_is_read() {
    static HERE: AtomicBool = AtomicBool::new(false);
    static LET_GO: AtomicBool = AtomicBool::new(false);
    let (context, addr) = start(|_| {});
    context.manager().add_native(waits(true, &HERE, &LET_GO)).unwrap();
    let mut first = connect(&addr);
    publish(&mut first, 0, 10);
    first.flush().unwrap();
    change(&context, ChangeRequest::Deploy(sql("of", "SELECT * FROM N")));
    until(&context, "of", |info| info.records_in >= 10 || info.inputs.len() == 1);
    let swapped = {
        let (context, next) = (context.clone(), native("of", "waits", "N", &[]));
        std::thread::spawn(move || context.manager().change(ChangeRequest::Swap(next), true).unwrap())
    };
    wait_for(&HERE);
    let other = Format::natural([FieldSpec::new("other", FieldType::U64)]).unwrap();
    let mut second = Publisher::builder(&addr).stream("N").format(&other).connect().unwrap();
    until(&context, "of", |info| info.inputs.len() == 2);
    LET_GO.store(true, Ordering::Release);
    swapped.join().unwrap().unwrap();
    let before = until(&context, "of", |info| info.version == 2).records_in;
    let mut row = RecordBuilder::new(&other);
    row.set(0, Value::Uint(1)).unwrap();
    second.publish(row.finish().unwrap()).unwrap();
    second.finish().unwrap();
    let info = until(&context, "of", |info| info.records_in > before || !info.dropped.is_empty());
    assert!(info.dropped.is_empty() && info.inputs.len() == 2, "{info:#?}");
    context.stop().unwrap();
}

/// An order to a busy context is given, and its caller is answered when it is carried out; others are answered meanwhile.
#[test]
fn a_busy_context_delays_no_change_but_those_that_it_takes_part_in() {
    static HERE: AtomicBool = AtomicBool::new(false);
    static LET_GO: AtomicBool = AtomicBool::new(false);
    let (context, addr) = start(|_| {});
    context.manager().add_native(waits(false, &HERE, &LET_GO)).unwrap();
    let mut publisher = connect(&addr);
    let busy = HandlerSpec {
        place: Some("g-core-0".into()),
        stuck_after_ms: Some(3_600_000),
        ..native("busy", "waits", "N", &[])
    };
    change(&context, ChangeRequest::Deploy(busy));
    publish(&mut publisher, 0, 1);
    publisher.flush().unwrap();
    wait_for(&HERE);
    let set = |value: &str| ChangeRequest::SetParameters {
        handler: "busy".into(),
        parameters: BTreeMap::from([("some".to_owned(), value.to_owned())]),
    };
    let setting: Vec<_> = ["2", "3"]
        .map(|value| {
            let (context, set) = (context.clone(), set(value));
            std::thread::spawn(move || context.manager().change(set, false).unwrap())
        })
        .into();
    // Both are given before the next request, by what the managers say of the handler.
    until(&context, "busy", |info| info.changes == 2);
    for round in 0..10 {
        let other = sql("other", &format!("SELECT number + {round} AS n FROM M"));
        let other = HandlerSpec { place: Some("c-core-1".into()), ..other };
        change(&context, ChangeRequest::Deploy(other));
        change(&context, ChangeRequest::Remove { handler: "other".into() });
    }
    assert!(setting.iter().all(|setting| !setting.is_finished()), "they are not carried out");
    LET_GO.store(true, Ordering::Release);
    for setting in setting {
        let applied = setting.join().unwrap();
        assert!(applied.is_ok(), "{applied:?}");
    }
    publisher.finish().unwrap();
    let info = until(&context, "busy", |info| info.records_out == 1);
    assert_eq!((info.status.as_str(), info.faults, info.dropped.len()), ("running", 0, 0), "{info:?}");
    context.stop().unwrap();
}

/// Handlers that read one another's streams are refused, however they come to it, and what is there goes on.
#[test]
fn a_cycle_is_refused_in_whatever_steps_it_comes() {
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    let deploy = |name: &str, text: &str| ChangeRequest::Deploy(sql(name, text));
    // A stream may be read before there is anybody who makes it.
    change(&context, deploy("a", "SELECT * FROM b"));
    change(&context, deploy("c", "SELECT * FROM a"));
    change(&context, deploy("d", "SELECT * FROM c"));
    change(&context, deploy("e", "SELECT * FROM N"));
    let before = context.manager().specs().unwrap();
    let all = |reads: &str| {
        let mut specs = before.clone();
        specs.extend([sql("x", "SELECT * FROM y"), sql("y", &format!("SELECT * FROM {reads}"))]);
        ChangeRequest::All(specs)
    };
    let wired = |name: &str, reads: &[&str]| HandlerSpec {
        input_streams: reads.iter().map(|&stream| stream.to_owned()).collect(),
        ..native(name, "pass", "", &[])
    };
    let refused = [
        // Two and more that name each other's streams, one after the other.
        (deploy("b", "SELECT * FROM a"), "`b` -> `a` -> `b`"),
        (deploy("b", "SELECT * FROM d"), "`c` -> `d` -> `b` -> `a` -> `c`"),
        (ChangeRequest::Deploy(wired("b", &["N", "c"])), "`c` -> `b` -> `a` -> `c`"),
        // By its own name.
        (deploy("self", "SELECT * FROM self"), "`self` -> `self`"),
        // By a change of what one of them reads.
        (ChangeRequest::Swap(sql("a", "SELECT * FROM d")), "`c` -> `d` -> `a` -> `c`"),
        (ChangeRequest::Swap(wired("a", &["N", "c"])), "`c` -> `a` -> `c`"),
        // All at once.
        (all("x"), "`y` -> `x` -> `y`"),
    ];
    for (change, cycle) in refused {
        let planned = context.manager().plan(change.clone(), false).unwrap();
        let plan = context.manager().change(change.clone(), false).unwrap().expect_err("it is refused");
        assert_eq!(planned.refusals, plan.refusals, "{change:?}");
        let why = "form a cycle, each reads the stream of the one before it: let one of them read another stream";
        assert_eq!(plan.refusals, [format!("handlers {cycle} {why}")], "{change:?}");
        assert_eq!(context.manager().specs().unwrap(), before, "{change:?}");
    }
    // Without a way round it is taken.
    change(&context, deploy("b", "SELECT * FROM e"));
    let mut last = Subscriber::builder(&addr).sql("SELECT number FROM d").connect().unwrap();
    publish(&mut publisher, 0, 1000);
    publisher.finish().unwrap();
    assert_eq!(count(&mut last, 0..), 1000);
    context.stop().unwrap();
}

/// Each queue needs a buffer at least: a handler for whose queues there is none is refused, and the others go on.
#[test]
fn a_change_whose_queues_do_not_fit_into_the_buffers_is_refused() {
    // A quarter of the large buffers may be in queues: 16 of 64.
    let (context, addr) = start(|config| config.buffer_bytes = 1 << 20);
    let mut publisher = connect(&addr);
    let spec =
        |number: u32| HandlerSpec { place: Some("g-core-0".into()), ..sql(&format!("h{number}"), "SELECT * FROM N") };
    let mut there = 0;
    let refused = loop {
        match context.manager().change(ChangeRequest::Deploy(spec(there)), false).unwrap() {
            Ok(_) => there += 1,
            Err(plan) => break plan,
        }
        assert!(there < 16, "they do not fit");
    };
    let why = &refused.refusals[0];
    assert!(why.contains("queues between handlers") && why.contains("raise `buffer_bytes`"), "{why}");
    assert!(there > 0 && !refused.is_begun, "{refused:?}");
    assert_eq!(context.manager().handlers().unwrap().len(), there as usize);
    let readers: Vec<_> = (0..there)
        .map(|number| {
            let mut reader = Subscriber::builder(&addr).sql(format!("SELECT number FROM h{number}")).connect().unwrap();
            std::thread::spawn(move || count(&mut reader, 0..))
        })
        .collect();
    publish(&mut publisher, 0, 100_000);
    publisher.finish().unwrap();
    readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap(), 100_000));
    // Where one goes another has room.
    change(&context, ChangeRequest::Remove { handler: "h0".into() });
    change(&context, ChangeRequest::Deploy(spec(there)));
    context.stop().unwrap();
}

/// A change at a busy context takes effect when that has time, and those that need the same context after it; others meanwhile.
#[test]
fn a_change_at_a_busy_context_keeps_no_other_waiting() {
    static HERE: AtomicBool = AtomicBool::new(false);
    static LET_GO: AtomicBool = AtomicBool::new(false);
    let (context, addr) = start(|_| {});
    context.manager().add_native(waits(false, &HERE, &LET_GO)).unwrap();
    let mut publisher = connect(&addr);
    let busy = HandlerSpec {
        place: Some("g-core-0".into()),
        stuck_after_ms: Some(3_600_000),
        ..native("busy", "waits", "N", &[])
    };
    change(&context, ChangeRequest::Deploy(busy.clone()));
    publish(&mut publisher, 0, 1);
    publisher.flush().unwrap();
    wait_for(&HERE);
    let begin = |change| {
        let context = context.clone();
        std::thread::spawn(move || context.manager().change(change, false).unwrap())
    };
    let swapped = begin(ChangeRequest::Swap(HandlerSpec { input_streams: vec!["N".into(), "M".into()], ..busy }));
    until(&context, "busy", |info| info.version == 2);
    let behind = HandlerSpec { place: Some("g-core-0".into()), ..sql("behind", "SELECT number FROM busy") };
    let deployed = begin(ChangeRequest::Deploy(behind));
    for round in 0..10 {
        let other = sql("other", &format!("SELECT number + {round} AS n FROM O"));
        let other = HandlerSpec { place: Some("c-core-1".into()), ..other };
        change(&context, ChangeRequest::Deploy(other));
        change(&context, ChangeRequest::Remove { handler: "other".into() });
    }
    assert!(!swapped.is_finished() && !deployed.is_finished(), "their context is busy");
    LET_GO.store(true, Ordering::Release);
    for made in [swapped, deployed] {
        let applied = made.join().unwrap();
        assert!(applied.is_ok(), "{applied:?}");
    }
    publish(&mut publisher, 1, 2);
    publisher.finish().unwrap();
    let info = until(&context, "busy", |info| info.records_out == 2);
    assert_eq!((info.status.as_str(), info.faults, info.dropped.len()), ("running", 0, 0), "{info:?}");
    until(&context, "behind", |info| info.records_in > 0);
    context.stop().unwrap();
}

/// Nearly as many handlers as there are buffers for their queues.
const MANY_HANDLERS: usize = 300;

/// The cost of a change follows what it changes: it looks at the same handlers, however many others there are.
#[test]
fn a_change_looks_at_no_handler_that_it_does_not_concern() {
    let looked_at = |others: usize| {
        // On a busy machine a step may be measured as longer than the usual slice, and the handlers then go to other cores.
        let (context, addr) = start(|config| config.platform.slice_us = 100_000);
        let mut publisher = connect(&addr);
        publish(&mut publisher, 0, 1000);
        publisher.flush().unwrap();
        // All at one context, however dear they are measured to be.
        let sql = |name: &str, text: &str| HandlerSpec {
            place: Some("c-core-0".to_owned()),
            peak_msgs_per_s: Some(100),
            ..sql(name, text)
        };
        let mut specs: Vec<HandlerSpec> =
            (0..others).map(|number| sql(&format!("other{number}"), "SELECT number FROM N")).collect();
        let limited = |least: u32| HandlerSpec {
            parameters: [("least".to_owned(), least.to_string())].into(),
            ..sql("first", "SELECT number FROM N WHERE number > $least")
        };
        specs.extend([limited(1), sql("second", "SELECT number FROM first"), sql("third", "SELECT * FROM second")]);
        change(&context, ChangeRequest::All(specs));
        let made = |change: ChangeRequest| context.manager().change(change, false).unwrap().unwrap().handlers_planned;
        let handler = || "first".to_owned();
        let moved = |place: &str| ChangeRequest::Move { handler: handler(), place: Some(place.to_owned()) };
        let parameters = [("least".to_owned(), "7".to_owned())].into();
        let looked_at = [
            made(ChangeRequest::Deploy(sql("new", "SELECT grp FROM N"))),
            made(ChangeRequest::SetParameters { handler: handler(), parameters }),
            made(ChangeRequest::Swap(limited(3))),
            made(moved("g-core-0")),
            made(moved("g-core-1")),
            made(ChangeRequest::Swap(sql("third", "SELECT number FROM second"))),
            made(ChangeRequest::Remove { handler: "third".to_owned() }),
            made(ChangeRequest::Remove { handler: "new".to_owned() }),
        ];
        assert_eq!(context.manager().handlers().unwrap().len(), others + 2);
        context.stop().unwrap();
        looked_at
    };
    let few = looked_at(10);
    assert_eq!(few, [1, 3, 3, 3, 3, 3, 2, 0]);
    assert_eq!(looked_at(MANY_HANDLERS), few);
}
