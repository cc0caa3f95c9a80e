//! Handlers deployed in a running daemon: derived streams, hot-swap, moves, faults; over the real wire, in one process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crossdock_engine::{Handler, HandlerCounters, NativeKind, Sink, Verdict};
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Selection};
use crossdock_nectarine::{Event, Publisher, Subscriber, Transport};
use crossdock_runtime::info::HandlerInfo;
use crossdock_runtime::{ContextConfig, ContextHandle, ContextKind, ContextSpec, HandlerSpec, OnFault, WhenFull, Wish};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WAYS: [Transport; 2] = [Transport::Udp, Transport::Shm];

fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    let context = ContextSpec::new;
    config.platform.contexts =
        vec![context(ContextKind::GCore), context(ContextKind::CCore), context(ContextKind::GCore)];
    change(&mut config);
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

const PLACES: [&str; 4] = ["c-core-0", "g-core-0", "c-core-1", "g-core-1"];

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

fn connect(addr: &str) -> Publisher {
    Publisher::builder(addr).stream("N").format(&numbers()).connect().unwrap()
}

/// The first field of all records up to the stream's end.
fn collect(subscriber: &mut Subscriber) -> Vec<u64> {
    collect_and_tell(subscriber, &AtomicU64::new(0))
}

/// The same; `seen` is the latest so far.
fn collect_and_tell(subscriber: &mut Subscriber, seen: &AtomicU64) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        seen.store(numbers.last().copied().unwrap_or(0), Ordering::Release);
        match subscriber.next_event(Some(Duration::from_secs(20))).unwrap().expect("something within 20 s") {
            Event::Records(records) => numbers.extend(records.iter().map(|record| match record.get(0) {
                Value::Uint(number) => number,
                Value::Int(number) => number as u64,
                other => panic!("{other:?}"),
            })),
            Event::StreamEnded { publishers_left: 0 } => return numbers,
            Event::Dropped { records, .. } => panic!("{records} were dropped"),
            _ => {}
        }
    }
}

/// What the handlers of these tests are said to have to keep up with: little, so that all are let in, however fast the test is.
const PEAK: Option<u64> = Some(10_000);

fn sql(name: &str, sql: &str) -> HandlerSpec {
    HandlerSpec { name: name.into(), sql: Some(sql.into()), peak_msgs_per_s: PEAK, ..HandlerSpec::default() }
}

fn native(name: &str, native: &str, on: &str, parameters: &[(&str, &str)]) -> HandlerSpec {
    let parameters: BTreeMap<String, String> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (native, on) = (Some(native.to_owned()), vec![on.to_owned()]);
    HandlerSpec { name: name.into(), native, on, parameters, peak_msgs_per_s: PEAK, ..HandlerSpec::default() }
}

fn change(context: &ContextHandle, wish: Wish) {
    let applied = context.manager().change(wish, false).unwrap();
    applied.unwrap_or_else(|plan| panic!("{plan:?}"));
}

#[test]
fn what_a_chain_of_handlers_makes_is_subscribed_to_wherever_they_run() {
    for way in WAYS {
        for place in PLACES {
            let (context, addr) = start(|_| {});
            let mut publisher =
                Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
            let first = HandlerSpec { place: Some(place.into()), ..sql("small", "SELECT * FROM N WHERE grp < 5") };
            change(&context, Wish::Deploy(first));
            change(&context, Wish::Deploy(sql("threes", "SELECT number + 1 AS n FROM small WHERE grp = 3")));
            let mut small = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM small").connect().unwrap();
            let mut threes =
                Subscriber::builder(&addr).transport(way).sql("SELECT n FROM threes WHERE n > 100").connect().unwrap();
            let reader = std::thread::spawn(move || collect(&mut threes));
            let other = std::thread::spawn(move || collect(&mut small));
            publish(&mut publisher, 0, 100_000);
            publisher.finish().unwrap();
            let wanted: Vec<u64> = (0..100_000).filter(|n| n % 10 == 3 && *n >= 100).map(|n| n + 1).collect();
            assert_eq!(reader.join().unwrap(), wanted, "{place} {way:?}");
            assert_eq!(other.join().unwrap(), (0..100_000).filter(|n| n % 10 < 5).collect::<Vec<_>>());
            let handlers = context.manager().handlers().unwrap();
            assert_eq!(handlers[0].context.as_deref(), Some(place));
            assert_eq!((handlers[0].records_in, handlers[0].records_out), (100_000, 50_000), "{handlers:?}");
            assert!(handlers.iter().all(|handler| handler.dropped.is_empty()), "{handlers:?}");
            context.stop();
        }
    }
}

/// A context's own kinds of handlers: one that panics at a number, one that does not return from it until it is told to.
struct Troubled {
    at: u64,
    trouble: fn(u64),
    counters: HandlerCounters,
}

impl Handler for Troubled {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        for index in &*selection {
            let number = u64::from_le_bytes(batch.record(index)[8..16].try_into().unwrap());
            if number == self.at {
                (self.trouble)(number);
            }
        }
        self.counters.passed += selection.len() as u64;
        Verdict::Forward
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }
}

static LET_GO: AtomicBool = AtomicBool::new(false);

fn troubled(name: &str, at: u64, trouble: fn(u64)) -> NativeKind {
    NativeKind::new(name, "gets into trouble", &[], move |format, _| {
        Ok((Box::new(Troubled { at, trouble, counters: HandlerCounters::default() }), format.clone()))
    })
}

/// Waits until the managers say so of a handler.
fn until(context: &ContextHandle, handler: &str, holds: impl Fn(&HandlerInfo) -> bool) -> HandlerInfo {
    loop {
        let found = context.manager().handlers().unwrap().into_iter().find(|info| info.name == handler);
        match found.filter(&holds) {
            Some(info) => return info,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_handler_that_panics_is_restarted_with_new_state_and_nobody_else_notices() {
    let (context, addr) = start(|_| {});
    context.manager().add_native(troubled("panics", 5000, |number| panic!("at {number}, as the test wants"))).unwrap();
    let mut publisher = connect(&addr);
    change(&context, Wish::Deploy(native("bad", "panics", "N", &[])));
    change(&context, Wish::Deploy(sql("good", "SELECT * FROM N")));
    let mut good = Subscriber::builder(&addr).sql("SELECT number FROM good").connect().unwrap();
    let mut bad = Subscriber::builder(&addr).sql("SELECT number FROM bad").connect().unwrap();
    let readers = (std::thread::spawn(move || collect(&mut good)), std::thread::spawn(move || collect(&mut bad)));
    publish(&mut publisher, 0, 10_000);
    publisher.flush().unwrap();
    let info = until(&context, "bad", |info| info.faults == 1 && info.records_in == 10_000);
    assert!(info.dropped[0].0 == "failed" && info.dropped[0].1 > 0, "{info:?}");
    // Behind the batch it goes on.
    until(&context, "bad", |info| info.status == "running");
    let restarted = |kind: &str| context.manager().events(0).unwrap().iter().any(|event| event.kind == kind);
    while !restarted("restarted") {
        std::thread::yield_now();
    }
    publish(&mut publisher, 10_000, 12_000);
    publisher.finish().unwrap();
    assert_eq!(readers.0.join().unwrap(), (0..12_000).collect::<Vec<_>>());
    let of_bad = readers.1.join().unwrap();
    assert!(of_bad.ends_with(&(10_000..12_000).collect::<Vec<_>>()), "{:?}", of_bad.last());
    assert!(!of_bad.contains(&5000));
    // The batch is lost, and what came behind it waited.
    let lost = context.manager().handlers().unwrap()[0].dropped[0].1;
    assert_eq!(of_bad.len() as u64 + lost, 12_000);
    let gaps = of_bad.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
    assert_eq!(gaps, 1, "one run of records is missing");
    context.stop();
}

#[test]
fn a_handler_that_does_not_return_has_its_context_replaced_and_its_queue_taken_over() {
    let (context, addr) = start(|config| {
        config.platform.contexts.truncate(1);
        config.platform.stuck_after_ms = 200;
    });
    let stuck: fn(u64) = |_| {
        while !LET_GO.load(Ordering::Acquire) {
            std::thread::park();
        }
    };
    context.manager().add_native(troubled("stuck", 0, stuck)).unwrap();
    let mut publisher = connect(&addr);
    // On the same g-core.
    change(&context, Wish::Deploy(HandlerSpec { on_fault: OnFault::Stop, ..native("bad", "stuck", "N", &[]) }));
    change(&context, Wish::Deploy(HandlerSpec { place: Some("g-core-0".into()), ..sql("good", "SELECT * FROM N") }));
    let mut good = Subscriber::builder(&addr).sql("SELECT number FROM good").connect().unwrap();
    let reader = std::thread::spawn(move || collect(&mut good));
    publish(&mut publisher, 0, 100_000);
    publisher.finish().unwrap();
    assert_eq!(reader.join().unwrap(), (0..100_000).collect::<Vec<_>>());
    let info = until(&context, "bad", |info| info.status == "failed");
    assert_eq!(info.faults, 1);
    let contexts = context.manager().contexts().unwrap();
    assert_eq!((contexts[1].name.as_str(), contexts[1].replaced), ("g-core-0", 1));
    assert!(context.manager().events(0).unwrap().iter().any(|event| event.kind == "replaced"));
    LET_GO.store(true, Ordering::Release);
    context.stop();
}

static LET_GO_C_CORE: AtomicBool = AtomicBool::new(false);

/// A c-core cannot be replaced: it is noticed, and what needs it is refused at once until it is back.
#[test]
fn a_c_core_that_does_not_come_back_is_told_of_and_left_alone_until_it_does() {
    let (context, addr) = start(|config| config.platform.stuck_after_ms = 200);
    let stuck: fn(u64) = |_| {
        // Where it is measured it comes back.
        let is_there = std::thread::current().name() == Some("c-core-1");
        while is_there && !LET_GO_C_CORE.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    context.manager().add_native(troubled("stuck_there", 7, stuck).metered()).unwrap();
    let on_c_core = |spec: HandlerSpec| HandlerSpec { place: Some("c-core-1".into()), ..spec };
    // The format first: no change is to be under way when the handler gets stuck.
    let mut publisher = connect(&addr);
    change(&context, Wish::Deploy(on_c_core(native("bad", "stuck_there", "N", &[]))));
    publish(&mut publisher, 0, 10);
    publisher.flush().unwrap();
    let lost = || context.manager().contexts().unwrap()[2].lost.clone();
    let why = loop {
        match lost() {
            Some(why) => break why,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(why, "context c-core-1 does not answer: its thread has not come back from handler `bad`");
    let is_told = |kind: &str| context.manager().events(0).unwrap().iter().any(|event| event.kind == kind);
    while !is_told("lost") {
        std::thread::yield_now();
    }
    let remove = Wish::Remove { handler: "bad".into() };
    let refused = context.manager().change(remove.clone(), false).unwrap().unwrap_err();
    assert!(refused.refusals[0].starts_with(&why), "{refused:?}");
    // Others need not wait for it.
    change(&context, Wish::Deploy(HandlerSpec { place: Some("g-core-0".into()), ..sql("good", "SELECT * FROM N") }));
    LET_GO_C_CORE.store(true, Ordering::Release);
    while lost().is_some() || !is_told("returned") {
        std::thread::yield_now();
    }
    change(&context, remove);
    context.stop();
}

static LET_GO_MANY: AtomicBool = AtomicBool::new(false);

/// Threads that come back from their handlers are none that were lost.
#[test]
fn as_many_g_cores_as_ever_are_replaced_if_handlers_come_back() {
    let (context, addr) = start(|config| {
        config.platform.contexts.truncate(1);
        config.platform.stuck_after_ms = 100;
    });
    let stuck: fn(u64) = |number| {
        let is_there = std::thread::current().name() == Some("g-core-0");
        while is_there && (number == 1 || !LET_GO_MANY.load(Ordering::Acquire)) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    };
    context.manager().add_native(troubled("stuck_once", 0, stuck)).unwrap();
    context.manager().add_native(troubled("stuck_more", 1, stuck)).unwrap();
    let deploy = |name: &str, kind: &str| {
        change(&context, Wish::Deploy(HandlerSpec { on_fault: OnFault::Stop, ..native(name, kind, "N", &[]) }));
    };
    let mut publisher = connect(&addr);
    (0..17).for_each(|number| deploy(&format!("once{number}"), "stuck_once"));
    publish(&mut publisher, 0, 1);
    publisher.flush().unwrap();
    let g_core = || context.manager().contexts().unwrap()[1].clone();
    while g_core().replaced < 16 || g_core().lost.is_none() {
        std::thread::yield_now();
    }
    assert_eq!(g_core().replaced, 16, "no more than that at a time");
    LET_GO_MANY.store(true, Ordering::Release);
    while g_core().lost.is_some() {
        std::thread::yield_now();
    }
    deploy("more", "stuck_more");
    publish(&mut publisher, 1, 2);
    publisher.flush().unwrap();
    while g_core().replaced < 17 {
        std::thread::yield_now();
    }
    context.stop();
}

static IS_MEASURED: AtomicBool = AtomicBool::new(false);
static LET_GO_MEASURED: AtomicBool = AtomicBool::new(false);

#[test]
fn what_there_is_is_told_while_a_change_is_being_made() {
    let (context, addr) = start(|config| config.platform.stuck_after_ms = 30_000);
    let slow: fn(u64) = |_| {
        IS_MEASURED.store(true, Ordering::Release);
        while !LET_GO_MEASURED.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    };
    context.manager().add_native(troubled("slow", 0, slow)).unwrap();
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1);
    publisher.flush().unwrap();
    change(&context, Wish::Deploy(sql("first", "SELECT * FROM N")));
    let changing = context.clone();
    let changed =
        std::thread::spawn(move || changing.manager().change(Wish::Deploy(native("slow", "slow", "N", &[])), false));
    while !IS_MEASURED.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let manager = context.manager();
    assert_eq!((manager.handlers().unwrap().len(), manager.specs().unwrap().len()), (1, 1));
    assert_eq!(manager.contexts().unwrap().len(), 4);
    assert!(manager.events(0).unwrap().iter().any(|event| event.kind == "deployed"));
    assert!(!changed.is_finished(), "it waits for its handler still");
    LET_GO_MEASURED.store(true, Ordering::Release);
    changed.join().unwrap().unwrap().unwrap();
    assert_eq!(manager.handlers().unwrap().len(), 2, "who made a change sees it");
    context.stop();
}

/// Panics where nobody expects it.
struct Unsound(Troubled);

impl Handler for Unsound {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, sink: &mut dyn Sink) -> Verdict {
        self.0.process(batch, selection, sink)
    }

    fn counters(&self) -> HandlerCounters {
        assert!(self.0.counters.records_in < 1_000_000, "as the test wants");
        self.0.counters
    }
}

#[test]
fn a_c_core_whose_thread_has_ended_is_told_of() {
    let (context, addr) = start(|_| {});
    let kind = NativeKind::new("unsound", "ends its context", &[], |format, _| {
        let counters = HandlerCounters { records_in: 999_000, ..HandlerCounters::default() };
        Ok((Box::new(Unsound(Troubled { at: u64::MAX, trouble: |_| (), counters })), format.clone()))
    });
    context.manager().add_native(kind.metered()).unwrap();
    let spec = HandlerSpec { place: Some("c-core-1".into()), ..native("bad", "unsound", "N", &[]) };
    let mut publisher = connect(&addr);
    change(&context, Wish::Deploy(spec));
    publish(&mut publisher, 0, 2000);
    while context.manager().contexts().unwrap()[2].lost.is_none() {
        std::thread::yield_now();
    }
    let moved = Wish::Move { handler: "bad".into(), place: Some("g-core-0".into()) };
    let refused = context.manager().change(moved, false).unwrap().unwrap_err();
    assert!(refused.refusals[0].contains("its thread has ended"), "{refused:?}");
    context.stop();
}

/// A publisher of a wider format comes while one of the first goes on; handlers are compiled for it while its records wait.
#[test]
fn a_new_format_of_a_stream_goes_through_a_chain_and_nothing_is_lost() {
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    change(&context, Wish::Deploy(sql("first", "SELECT * FROM N WHERE grp < 5")));
    change(&context, Wish::Deploy(sql("second", "SELECT number FROM first WHERE number >= 0")));
    let mut subscriber = Subscriber::builder(&addr).sql("SELECT number FROM second").connect().unwrap();
    let reader = std::thread::spawn(move || collect(&mut subscriber));
    publish(&mut publisher, 0, 5000);
    let wider = [("number", FieldType::U64), ("grp", FieldType::I32), ("more", FieldType::F64)];
    let wider = Format::natural(wider.map(|(name, ty)| FieldSpec::new(name, ty))).unwrap();
    let mut other = Publisher::builder(&addr).stream("N").format(&wider).connect().unwrap();
    let mut row = RecordBuilder::new(&wider);
    for number in 5000..10_000 {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Int((number % 10) as i64)).unwrap();
        row.set(2, Value::Float(0.5)).unwrap();
        other.publish(row.finish().unwrap()).unwrap();
    }
    publish(&mut publisher, 10_000, 15_000);
    publisher.finish().unwrap();
    other.finish().unwrap();
    let found = reader.join().unwrap();
    let (of_other, of_first): (Vec<u64>, Vec<u64>) = found.iter().partition(|n| (5000..10_000).contains(*n));
    let wanted = |from: u64, to: u64| (from..to).filter(|n| n % 10 < 5);
    let handlers = context.manager().handlers().unwrap();
    assert_same(&of_other, &wanted(5000, 10_000).collect::<Vec<_>>(), &handlers);
    assert_same(&of_first, &wanted(0, 5000).chain(wanted(10_000, 15_000)).collect::<Vec<_>>(), &handlers);
    for handler in ["first", "second"] {
        let info = until(&context, handler, |info| info.inputs.len() == 2);
        assert!(info.dropped.is_empty(), "{info:#?}");
    }
    context.stop();
}

#[test]
fn a_stream_that_is_published_is_made_by_no_handler_and_stays_as_it_is() {
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    let taken = HandlerSpec { makes: Some("N".into()), ..sql("other", "SELECT * FROM M") };
    let refused = context.manager().change(Wish::Deploy(taken), false).unwrap().unwrap_err();
    assert!(refused.refusals[0].contains("which is published"), "{refused:?}");
    publish(&mut publisher, 0, 10);
    publisher.finish().unwrap();
    // What a handler makes nobody publishes, as long as it is there.
    change(&context, Wish::Deploy(sql("made", "SELECT * FROM N")));
    let publishing = Publisher::builder(&addr).stream("made").format(&numbers()).connect();
    assert!(publishing.is_err_and(|error| error.to_string().contains("made by handler `made`")));
    change(&context, Wish::Remove { handler: "made".into() });
    Publisher::builder(&addr).stream("made").format(&numbers()).connect().unwrap();
    context.stop();
}

/// Bandwidth binds like time: what the network takes of it is not there for handlers, and what fits goes elsewhere.
#[test]
fn a_handler_goes_where_there_is_bandwidth_for_what_it_makes() {
    let (context, addr) = start(|config| {
        config.platform.bandwidth_mbit_per_s = Some(8);
        config.platform.contexts.truncate(2);
        config.platform.contexts[1].bandwidth_mbit_per_s = Some(80);
    });
    let mut publisher = Publisher::builder(&addr).transport(Transport::Udp).stream("N").format(&numbers()).connect();
    let publisher = publisher.as_mut().unwrap();
    publish(publisher, 0, 1000);
    publisher.flush().unwrap();
    // Records of 24 bytes and what frames them: 1.2 MB a second at the least, where all but one have 0.8 to give.
    let wide = |name: &str, peak| HandlerSpec { peak_msgs_per_s: Some(peak), ..sql(name, "SELECT * FROM N") };
    change(&context, Wish::Deploy(wide("some", 50_000)));
    assert_eq!(until(&context, "some", |_| true).context.as_deref(), Some("c-core-1"));
    let refused = context.manager().change(Wish::Deploy(wide("more", 1_000_000)), false).unwrap().unwrap_err();
    let why = &refused.refusals[0];
    assert!(why.contains("c-core-1 has ") && why.contains("MB/s that it makes"), "{refused:?}");
    let bandwidths = context.manager().contexts().unwrap();
    let capacities: Vec<_> = bandwidths.iter().map(|context| context.capacity_bytes_per_s).collect();
    assert_eq!(capacities, [Some(1_000_000), Some(1_000_000), Some(10_000_000)]);
    let left = bandwidths[2].headroom_bytes_per_s.unwrap();
    assert!((1..8_000_000 - 1_000_000).contains(&left), "{left}");
    // What the device receives and sends is not there for handlers. Of nothing there is 0.8 MB/s.
    let mut next = 1000;
    loop {
        publish(publisher, next, next + 1000);
        publisher.flush().unwrap();
        next += 1000;
        let dock = context.manager().contexts().unwrap().swap_remove(0);
        assert!(dock.headroom_bytes_per_s.unwrap() <= 800_000, "{dock:?}");
        if dock.network_bytes_per_s > 100_000 && dock.headroom_bytes_per_s.unwrap() < 700_000 {
            break;
        }
    }
    context.stop();
}

/// What a path reserves is kept for each handler on the way, and for nobody else; all three resources bind.
#[test]
fn what_is_reserved_is_kept_for_handlers_and_for_the_paths_that_they_lie_on() {
    let (context, addr) = start(|config| config.platform.bandwidth_mbit_per_s = Some(8000));
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1000);
    publisher.flush().unwrap();
    change(&context, Wish::Deploy(sql("tens", "SELECT * FROM N WHERE grp = 0")));
    assert_eq!(until(&context, "tens", |_| true).reserved, None);
    // The path is said at its end; who lies on it already has its share kept too.
    let last = HandlerSpec { reserve_path_msgs_per_s: Some(1_000_000), ..sql("last", "SELECT number FROM tens") };
    let applied = context.manager().change(Wish::Deploy(last.clone()), false).unwrap().unwrap();
    assert_eq!(applied.plan.changes.len(), 2, "{applied:?}");
    let kept = |name: &str| until(&context, name, |_| true).reserved.unwrap_or_default();
    let (tens, of_last) = (kept("tens"), kept("last"));
    assert!(tens.time_ns_per_s > 0 && tens.bytes_per_s >= 2_400_000, "{tens:?}");
    assert!(of_last.time_ns_per_s > 0 && of_last.bytes_per_s < tens.bytes_per_s, "{of_last:?}");
    assert!(context.manager().plan(Wish::All(context.manager().specs().unwrap()), false).unwrap().changes.is_empty());
    // More than there is of anything, which is kept free whether it is used or not.
    let refused = |spec: HandlerSpec| {
        let before = context.manager().specs().unwrap();
        let plan = context.manager().change(Wish::Swap(spec), false).unwrap().unwrap_err();
        assert_eq!(context.manager().specs().unwrap(), before);
        plan.refusals.join("; ")
    };
    let why = refused(HandlerSpec { reserve_path_msgs_per_s: Some(100_000_000_000), ..last.clone() });
    assert!(why.contains("as reserved") && why.contains("reserve less"), "{why}");
    let why = refused(HandlerSpec { reserve_buffers: Some(1 << 20), ..last.clone() });
    assert!(why.contains("buffers of the 1048576 that it holds"), "{why}");
    let why = refused(HandlerSpec { reserve_bytes_per_s: Some(1_000_000_000), ..last.clone() });
    assert!(why.contains("of the 1 GB/s that it makes"), "{why}");
    let place = Some("g-core-1".to_owned());
    let left = |at: usize| context.manager().contexts().unwrap()[at].headroom_bytes_per_s.unwrap();
    let before = left(3);
    let half = HandlerSpec { reserve_bytes_per_s: Some(500_000_000), place: place.clone(), ..last.clone() };
    change(&context, Wish::Swap(half));
    assert!(left(3) <= before - 499_000_000, "{before} {}", left(3));
    let other = HandlerSpec { reserve_bytes_per_s: Some(500_000_000), place, ..sql("other", "SELECT * FROM N") };
    let why = context.manager().change(Wish::Deploy(other), false).unwrap().unwrap_err().refusals.join("; ");
    assert!(why.contains("g-core-1 has ") && why.contains("of the 500 MB/s that it makes"), "{why}");
    // Nothing is kept any more for a path that nobody has.
    change(&context, Wish::Swap(sql("last", "SELECT number FROM tens")));
    assert_eq!((until(&context, "tens", |_| true).reserved, until(&context, "last", |_| true).reserved), (None, None));
    context.stop();
}

/// Handlers at a context that is near its limit, one of which has a rule for that.
#[test]
fn a_handler_does_with_less_by_its_own_rule_where_its_context_is_near_its_limit() {
    let (context, addr) = start(|config| config.platform.queue_batches = 8);
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1000);
    publisher.flush().unwrap();
    let place = Some("g-core-0".to_owned());
    let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    // What is kept for it lets it be changed where there is nothing left.
    let few = |text: &str, degrade: &[(&str, &str)]| HandlerSpec {
        place: place.clone(),
        reserve_ns_per_s: Some(100_000_000),
        reserve_buffers: Some(256),
        reserve_bytes_per_s: Some(1_000_000_000),
        parameters: map(&[("g", "10")]),
        degrade: map(degrade),
        ..sql("few", text)
    };
    let text = "SELECT number FROM N WHERE grp < $g";
    for (degrade, told) in [([("x", "1")], "x"), ([("g", "many")], "g")] {
        let refused = context.manager().change(Wish::Deploy(few(text, &degrade)), false).unwrap().unwrap_err();
        assert!(refused.refusals[0].contains("`degrade`: ") && refused.refusals[0].contains(told), "{refused:?}");
    }
    let fixed = HandlerSpec { degrade: map(&[("field", "m")]), ..native("few", "number", "N", &[("field", "n1")]) };
    let refused = context.manager().change(Wish::Deploy(fixed), false).unwrap().unwrap_err();
    assert!(refused.refusals[0].contains("cannot change while the handler runs"), "{refused:?}");
    change(&context, Wish::Deploy(few(text, &[("g", "1")])));
    let busy = native("busy", "work", "N", &[("ns", "20000")]);
    let busy = HandlerSpec { place: place.clone(), when_full: WhenFull::Drop, ..busy };
    change(&context, Wish::Deploy(busy));
    let mut subscriber = Subscriber::builder(&addr).sql("SELECT number FROM few").connect().unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let latest = Arc::clone(&seen);
    let reader = std::thread::spawn(move || collect_and_tell(&mut subscriber, &latest));
    let (stop, published) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(1000)));
    let (stopped, next) = (Arc::clone(&stop), Arc::clone(&published));
    let publishing = std::thread::spawn(move || {
        while !stopped.load(Ordering::Acquire) {
            let from = next.fetch_add(100, Ordering::AcqRel);
            publish(&mut publisher, from, from + 100);
        }
        publisher.finish().unwrap();
    });
    let info = until(&context, "few", |info| !info.degraded.is_empty());
    assert_eq!((&info.degraded, &*info.parameters["g"]), (&map(&[("g", "1")]), "10"), "what is wanted stays");
    let event = |kind: &str| {
        let events = context.manager().events(0).unwrap();
        events.into_iter().find(|event| event.kind == kind && event.handler.as_deref() == Some("few"))
    };
    let degraded = loop {
        if let Some(degraded) = event("degraded") {
            break degraded.text;
        }
    };
    assert!(degraded.contains("g=1") && degraded.contains("more to do than it should"), "{degraded}");
    // The next version goes by it too, and so does what was set anew; from here on as long as nothing else is said.
    change(&context, Wish::Swap(few("SELECT number FROM N WHERE grp < $g AND number >= 0", &[("g", "1")])));
    change(&context, Wish::SetParameters { handler: "few".into(), parameters: map(&[("g", "9")]) });
    let by_rule = published.load(Ordering::Acquire);
    while seen.load(Ordering::Acquire) < by_rule + 1000 {
        std::thread::yield_now();
    }
    // One that has no rule any more has its own values.
    change(&context, Wish::Swap(HandlerSpec { degrade: BTreeMap::new(), ..few(text, &[]) }));
    assert!(until(&context, "few", |_| true).degraded.is_empty());
    let whole = published.load(Ordering::Acquire);
    while published.load(Ordering::Acquire) < whole + 1000 {
        std::thread::yield_now();
    }
    stop.store(true, Ordering::Release);
    publishing.join().unwrap();
    let found = reader.join().unwrap();
    let part = |from: u64, to: u64| found.iter().filter(move |n| (from..to).contains(*n)).copied();
    assert_eq!(part(0, 1000).count(), 0, "they were there before it");
    let part_by_rule: Vec<u64> = part(by_rule, by_rule + 1000).collect();
    assert!(part_by_rule.iter().copied().eq((by_rule..by_rule + 1000).filter(|n| n % 10 == 0)), "{part_by_rule:?}");
    assert!(part(whole, whole + 1000).eq(whole..whole + 1000), "whole again");
    context.stop();
}

/// A thread's name and priority, from what the kernel tells of it.
fn name_and_nice(stat: &str) -> Option<(&str, i32)> {
    let (head, fields) = stat.rsplit_once(") ")?;
    // The 19th of all: two are in front.
    Some((head.split_once('(')?.1, fields.split(' ').nth(16)?.parse().ok()?))
}

fn has_thread(name: &str, nice: i32) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let mut stats = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    stats.any(|stat| name_and_nice(&stat) == Some((name, nice)))
}

#[test]
fn contexts_have_the_priorities_that_they_are_to_have_or_it_is_said_which_have_not() {
    let own = name_and_nice(&std::fs::read_to_string("/proc/self/stat").unwrap()).unwrap().1;
    let [dock, g_core, c_core] = [11, 12, 13].map(|nice: i32| nice.max(own));
    let (context, _) = start(|config| {
        config.nice = Some(dock);
        let contexts = &mut config.platform.contexts;
        (contexts[0].nice, contexts[1].nice) = (Some(g_core), Some(c_core));
        (contexts[2].nice, contexts[2].name) = (Some(-20), Some("first".into()));
    });
    let refused = context.not_restored();
    assert!(refused.iter().all(|why| why.starts_with("context first ") && why.contains("nice = -20")), "{refused:?}");
    let first = if refused.is_empty() { -20 } else { own };
    for (name, nice) in [("c-core-0", dock), ("g-core-0", g_core), ("c-core-1", c_core), ("first", first)] {
        while !has_thread(name, nice) {
            std::thread::yield_now();
        }
    }
    context.stop();
}

#[test]
fn the_streams_of_handlers_that_are_gone_are_forgotten_once_nobody_reads_them() {
    let (context, addr) = start(|config| config.max_streams = 4);
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 10);
    publisher.flush().unwrap();
    for round in 0..20 {
        let name = format!("made{round}");
        change(&context, Wish::Deploy(sql(&name, "SELECT * FROM N")));
        let subscriber = Subscriber::builder(&addr).sql(format!("SELECT * FROM {name}")).connect().unwrap();
        change(&context, Wish::Remove { handler: name });
        assert_eq!(context.streams().unwrap().len(), 2, "somebody waits for it still");
        drop(subscriber);
        while context.streams().unwrap().len() > 1 {
            std::thread::yield_now();
        }
    }
    // What was declared stays.
    context.declare_stream("kept", &numbers()).unwrap().unwrap();
    change(&context, Wish::Deploy(sql("kept", "SELECT * FROM N")));
    change(&context, Wish::Remove { handler: "kept".into() });
    assert_eq!(context.streams().unwrap().len(), 2);
    context.stop();
}

/// One that is stopped runs no more, and holds nobody up.
#[test]
fn a_handler_that_is_stopped_after_a_fault_drops_and_counts_what_comes() {
    let (context, addr) = start(|_| {});
    context
        .manager()
        .add_native(troubled("panics_at_once", 0, |number| panic!("at {number}, as the test wants")))
        .unwrap();
    let mut publisher = connect(&addr);
    change(
        &context,
        Wish::Deploy(HandlerSpec { on_fault: OnFault::Stop, ..native("bad", "panics_at_once", "N", &[]) }),
    );
    publish(&mut publisher, 0, 5000);
    publisher.flush().unwrap();
    until(&context, "bad", |info| info.status == "failed");
    publish(&mut publisher, 5000, 10_000);
    publisher.finish().unwrap();
    let lost = |info: &HandlerInfo| info.dropped.iter().map(|lost| lost.1).sum::<u64>();
    let info = until(&context, "bad", |info| info.records_in == 10_000 && lost(info) + info.records_out == 10_000);
    assert_eq!((info.records_out, info.dropped.as_slice()), (0, &[("failed".to_owned(), 10_000)][..]));
    // A new version is another chance.
    change(&context, Wish::Swap(HandlerSpec { on_fault: OnFault::Stop, ..native("bad", "pass", "N", &[]) }));
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1000);
    publisher.finish().unwrap();
    let info = until(&context, "bad", |info| info.records_in == 11_000 && lost(info) + info.records_out == 11_000);
    assert_eq!((info.records_out, lost(&info), info.status.as_str()), (1000, 10_000, "running"));
    context.stop();
}

/// Says where two long lists part.
fn assert_same(found: &[u64], wanted: &[u64], handlers: &[HandlerInfo]) {
    let parted = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    let at = parted.unwrap_or(found.len().min(wanted.len()));
    let around = |list: &[u64]| list[at.saturating_sub(2).min(list.len())..(at + 3).min(list.len())].to_vec();
    let (lengths, near) = ((found.len(), wanted.len()), (around(found), around(wanted)));
    assert!(found == wanted, "they part at {at} (lengths {lengths:?}): {near:?}; {handlers:#?}");
}

#[test]
fn random_changes_under_traffic_lose_double_and_reorder_nothing() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("CROSSDOCK_SEED={seed} repeats this");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    change(&context, Wish::Deploy(native("counted", "number", "N", &[("field", "n1")])));
    change(&context, Wish::Deploy(sql("all", "SELECT * FROM counted WHERE number >= 0")));
    change(&context, Wish::Deploy(sql("tens", "SELECT n1, number FROM all WHERE grp = 0")));
    let mut all = Subscriber::builder(&addr).sql("SELECT n1, number FROM all").connect().unwrap();
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
    let mut taken = 0;
    for round in 0..400 {
        let name = ["counted", "all", "tens"][rng.usize(0..3)];
        let wish = if rng.u8(0..3) == 0 {
            let again = match name {
                "counted" => native("counted", "number", "N", &[("field", "n1")]),
                "all" => sql("all", &format!("SELECT * FROM counted WHERE number >= -{round}")),
                _ => sql("tens", &format!("SELECT n1, number FROM all WHERE grp = 0 AND number >= -{round}")),
            };
            Wish::Swap(again)
        } else {
            Wish::Move { handler: name.into(), place: Some(PLACES[rng.usize(0..4)].into()) }
        };
        // A context that is busy with all this traffic may have no room; then nothing has changed.
        taken += u32::from(context.manager().change(wish, false).unwrap().is_ok());
    }
    assert!(taken > 100, "{taken} of 400 changes were made");
    stop.store(true, Ordering::Release);
    let published = publishing.join().unwrap();
    let handlers = context.manager().handlers().unwrap();
    // That the numbers run on says that the state moved along.
    assert_same(&readers.0.join().unwrap(), &(1..=published).collect::<Vec<_>>(), &handlers);
    let tens: Vec<u64> = (0..published).filter(|n| n % 10 == 0).collect();
    assert_same(&readers.1.join().unwrap(), &tens, &handlers);
    context.stop();
}

/// Two who change the same at once: one after the other, and both are answered.
#[test]
fn changes_at_once_are_made_one_after_the_other() {
    let (context, _) = start(|_| {});
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let context = context.clone();
            std::thread::spawn(move || {
                let mut taken = 0;
                for round in 0..50 {
                    let wish = match round % 2 {
                        0 => Wish::Deploy(sql("one", &format!("SELECT * FROM N WHERE number > {client}"))),
                        _ => Wish::Remove { handler: "one".into() },
                    };
                    taken += u32::from(context.manager().change(wish, false).unwrap().is_ok());
                }
                taken
            })
        })
        .collect();
    let taken: u32 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert!(taken > 0);
    let there = context.manager().handlers().unwrap();
    assert!(there.len() <= 1, "{there:?}");
    let events = context.manager().events(0).unwrap();
    let count = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(count("deployed"), count("removed") + there.len());
    context.stop();
}

/// What many subscribers make of a backlog takes more buffers than there are: it waits, and is not dropped.
#[test]
fn a_derived_stream_waits_while_buffers_are_short() {
    // So few that each subscriber can have one or two.
    let (context, addr) = start(|config| config.buffer_bytes = 1 << 20);
    let mut publisher = connect(&addr);
    change(&context, Wish::Deploy(HandlerSpec { place: Some("g-core-0".into()), ..sql("made", "SELECT * FROM N") }));
    let subscribe =
        |_| Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT number FROM made").connect().unwrap();
    let subscribers: Vec<Subscriber> = (0..80).map(subscribe).collect();
    let publishing = std::thread::spawn(move || {
        publish(&mut publisher, 0, 200_000);
        publisher.finish().unwrap();
    });
    // Nobody takes anything until publishers are held back, or all has been published, or for a while: where it is held up
    // depends on how the machine's threads take turns.
    let begun = Instant::now();
    let is_held_up = || context.streams().unwrap().iter().any(|stream| stream.blocked > 0);
    while !publishing.is_finished() && !is_held_up() && begun.elapsed() < Duration::from_secs(2) {
        std::thread::yield_now();
    }
    let readers: Vec<_> =
        subscribers.into_iter().map(|mut subscriber| std::thread::spawn(move || collect(&mut subscriber))).collect();
    publishing.join().unwrap();
    for reader in readers {
        let found = reader.join().unwrap();
        assert_same(&found, &(0..200_000).collect::<Vec<_>>(), &[]);
    }
    let made = &context.manager().handlers().unwrap()[0];
    assert!(made.dropped.is_empty(), "{made:?}");
    context.stop();
}
