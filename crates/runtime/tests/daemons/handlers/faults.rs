//! Handlers that panic, do not return or are stopped, and contexts that do not come back.

use super::*;
use crossdock_engine::{Handler, HandlerCounters, NativeKind, Sink, Verdict};
use crossdock_mailbox::{Batch, Selection};
use crossdock_nectarine::Subscriber;
use crossdock_runtime::info::HandlerInfo;
use crossdock_runtime::{ChangeRequest, HandlerSpec, OnFault};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A context's own kinds of handlers: one that panics at a number, one that does not return from it until it is
/// released.
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

/// A stream with two handlers: `bad`, which panics at a number, and `good`.
fn bad_and_good(at: u64) -> (ContextHandle, String, Publisher) {
    let (context, addr) = start(|_| {});
    context.manager().add_native(troubled("panics", at, |number| panic!("at {number}, as the test wants"))).unwrap();
    let publisher = connect(&addr);
    change(&context, ChangeRequest::Deploy(native("bad", "panics", "N", &[])));
    change(&context, ChangeRequest::Deploy(sql("good", "SELECT * FROM N")));
    (context, addr, publisher)
}

#[test]
fn a_handler_that_panics_is_restarted_with_new_state_and_nobody_else_notices() {
    let (context, addr, mut publisher) = bad_and_good(5000);
    let mut good = Subscriber::builder(&addr).sql("SELECT number FROM good").connect().unwrap();
    let mut bad = Subscriber::builder(&addr).sql("SELECT number FROM bad").connect().unwrap();
    let readers = (std::thread::spawn(move || collect(&mut good)), std::thread::spawn(move || collect(&mut bad)));
    publish(&mut publisher, 0, 10_000);
    publisher.flush().unwrap();
    let info = until(&context, "bad", |info| info.faults == 1 && info.records_in == 10_000);
    assert!(info.dropped[0].0 == "failed" && info.dropped[0].1 > 0, "{info:?}");
    // After the batch it goes on.
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
    context.stop().unwrap();
}

#[test]
fn a_handler_that_panics_again_and_again_is_given_up_and_its_publishers_go_on() {
    let (context, addr, mut publisher) = bad_and_good(7);
    let mut good = Subscriber::builder(&addr).sql("SELECT number FROM good").connect().unwrap();
    let reader = std::thread::spawn(move || collect(&mut good).len());
    let restarts = || context.manager().events(0).unwrap().iter().filter(|event| event.kind == "restarted").count();
    for time in 1..=2 {
        publish(&mut publisher, 7, 8);
        publisher.flush().unwrap();
        until(&context, "bad", |info| info.faults == time);
        while restarts() < time as usize {
            std::thread::yield_now();
        }
    }
    publish(&mut publisher, 7, 8);
    publisher.flush().unwrap();
    until(&context, "bad", |info| info.status == "failed");
    // More than all queues hold.
    publish(&mut publisher, 0, 200_000);
    publisher.finish().unwrap();
    assert_eq!(reader.join().unwrap(), 200_003);
    let info = until(&context, "bad", |info| info.records_in == 200_003);
    assert_eq!(info.dropped[0], ("failed".to_owned(), 200_003));
    // It is swapped for one that goes on.
    change(&context, ChangeRequest::Swap(native("bad", "pass", "N", &[])));
    until(&context, "bad", |info| info.status == "running");
    context.stop().unwrap();
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
    // Also where a panic outside of a handler's work has come before.
    context.manager().add_native(unsound_at_first()).unwrap();
    let mut publisher = connect(&addr);
    let mut other = Publisher::builder(&addr).stream("O").format(&numbers()).connect().unwrap();
    let there = |spec: HandlerSpec| HandlerSpec { place: Some("g-core-0".into()), ..spec };
    change(&context, ChangeRequest::Deploy(there(native("unsound", "unsound", "O", &[]))));
    while context.manager().contexts().unwrap()[1].panics == 0 {
        publish(&mut other, 0, 100);
        other.flush().unwrap();
    }
    // On the same g-core.
    change(
        &context,
        ChangeRequest::Deploy(HandlerSpec { on_fault: OnFault::Stop, ..native("bad", "stuck", "N", &[]) }),
    );
    change(&context, ChangeRequest::Deploy(there(sql("good", "SELECT * FROM N"))));
    let mut good = Subscriber::builder(&addr).sql("SELECT number FROM good").connect().unwrap();
    let reader = std::thread::spawn(move || collect(&mut good));
    publish(&mut publisher, 0, 100_000);
    publisher.finish().unwrap();
    assert_eq!(reader.join().unwrap(), (0..100_000).collect::<Vec<_>>());
    let info = until(&context, "bad", |info| info.status == "failed");
    assert_eq!(info.faults, 1);
    let contexts = context.manager().contexts().unwrap();
    assert_eq!((contexts[1].name.as_str(), contexts[1].replaced), ("g-core-0", 1));
    let events = context.manager().events(0).unwrap();
    let replaced = events.iter().find(|event| event.kind == "replaced").unwrap();
    assert_eq!((replaced.handler.as_deref(), replaced.context.as_deref()), (Some("bad"), Some("g-core-0")));
    // A later record is lost to a handler that has failed; this is the batch that it did not return from.
    let records: u64 = replaced.text.split("with the ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(
        replaced.text.contains("within 200ms (`stuck_after`)") && (1..=info.dropped[0].1).contains(&records),
        "{replaced:?}"
    );
    LET_GO.store(true, Ordering::Release);
    context.stop().unwrap();
}

/// Long computing is what g-cores are for: it counts whether a handler goes on to its next record.
#[test]
fn a_handler_of_1_ms_a_record_is_not_stuck_however_long_its_batch_takes() {
    let (context, addr) = start(|config| config.platform.stuck_after_ms = 50);
    let compute: fn(u64) = |_| {
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
    };
    context.manager().add_native(each("slow", compute)).unwrap();
    let mut publisher = connect(&addr);
    change(
        &context,
        ChangeRequest::Deploy(HandlerSpec {
            place: Some("g-core-0".into()),
            peak_msgs_per_s: Some(100),
            ..native("slow", "slow", "N", &[])
        }),
    );
    let mut reader = Subscriber::builder(&addr).sql("SELECT number FROM slow").connect().unwrap();
    let reader = std::thread::spawn(move || collect(&mut reader));
    publish(&mut publisher, 0, 1500);
    publisher.finish().unwrap();
    assert_eq!(reader.join().unwrap(), (0..1500).collect::<Vec<_>>());
    let info = until(&context, "slow", |info| info.records_out == 1500);
    assert_eq!((info.status.as_str(), info.faults, info.dropped.len()), ("running", 0, 0), "{info:?}");
    assert_eq!(context.manager().contexts().unwrap()[1].replaced, 0);
    context.stop().unwrap();
}

/// Does some work on each record.
struct Each {
    work: fn(u64),
    counters: HandlerCounters,
}

impl Handler for Each {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        for index in &*selection {
            (self.work)(u64::from_le_bytes(batch.record(index)[8..16].try_into().unwrap()));
        }
        self.counters.passed += selection.len() as u64;
        Verdict::Forward
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }
}

fn each(name: &str, work: fn(u64)) -> NativeKind {
    NativeKind::new(name, "works on each record", &[], move |format, _| {
        Ok((Box::new(Each { work, counters: HandlerCounters::default() }), format.clone()))
    })
}

static LET_GO_PATIENT: AtomicBool = AtomicBool::new(false);
static LET_GO_HASTY: AtomicBool = AtomicBool::new(false);

#[test]
fn how_long_a_handler_may_stay_at_a_record_is_its_own_setting() {
    let (context, addr) = start(|config| config.platform.stuck_after_ms = 30_000);
    fn stay(number: u64, let_go: &AtomicBool) {
        // Where it is measured it comes back.
        let is_at_work = std::thread::current().name().is_some_and(|name| name.starts_with("g-core"));
        while is_at_work && number == 0 && !let_go.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
    type NamedWork = (&'static str, fn(u64));
    let kinds: [NamedWork; 2] =
        [("patient", |number| stay(number, &LET_GO_PATIENT)), ("hasty", |number| stay(number, &LET_GO_HASTY))];
    for (name, work) in kinds {
        context.manager().add_native(each(name, work)).unwrap();
    }
    let deploy = |name: &str, place: &str, stuck_after_ms: Option<u64>| {
        let spec = HandlerSpec { place: Some(place.into()), stuck_after_ms, ..native(name, name, "N", &[]) };
        change(&context, ChangeRequest::Deploy(HandlerSpec { on_fault: OnFault::Stop, ..spec }));
    };
    deploy("patient", "g-core-0", None);
    deploy("hasty", "g-core-1", Some(100));
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1);
    publisher.flush().unwrap();
    // Both stay at the record from about the same time on.
    until(&context, "hasty", |info| info.status == "failed");
    let patients = until(&context, "patient", |info| info.records_in == 1);
    assert_eq!((patients.status.as_str(), patients.faults), ("running", 0));
    let replaced = |at: usize| context.manager().contexts().unwrap()[at].replaced;
    assert_eq!((replaced(1), replaced(3)), (0, 1));
    [&LET_GO_PATIENT, &LET_GO_HASTY].iter().for_each(|let_go| let_go.store(true, Ordering::Release));
    until(&context, "patient", |info| info.records_out + info.dropped.iter().map(|lost| lost.1).sum::<u64>() == 1);
    context.stop().unwrap();
}

static LET_GO_C_CORE: AtomicBool = AtomicBool::new(false);

/// A c-core cannot be replaced: it is noticed, and what needs it is refused at once until it is back.
#[test]
fn a_c_core_that_does_not_come_back_is_reported_and_left_alone_until_it_does() {
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
    change(&context, ChangeRequest::Deploy(on_c_core(native("bad", "stuck_there", "N", &[]))));
    publish(&mut publisher, 0, 10);
    publisher.flush().unwrap();
    let lost = || context.manager().contexts().unwrap()[2].lost.clone();
    let why = loop {
        match lost() {
            Some(why) => break why,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(why, "context c-core-1 does not answer: its thread has not returned from handler `bad`");
    let is_reported = |kind: &str| context.manager().events(0).unwrap().iter().any(|event| event.kind == kind);
    while !is_reported("lost") {
        std::thread::yield_now();
    }
    let remove = ChangeRequest::Remove { handler: "bad".into() };
    let refused = context.manager().change(remove.clone(), false).unwrap().unwrap_err();
    assert!(refused.refusals[0].starts_with(&why), "{refused:?}");
    // Others need not wait for it.
    change(
        &context,
        ChangeRequest::Deploy(HandlerSpec { place: Some("g-core-0".into()), ..sql("good", "SELECT * FROM N") }),
    );
    // One at an I/O context where the stream is published: from any other, an edge to the handler would have to begin.
    let at_another = || Publisher::builder(&addr).stream("N").format(&wider()).connect().ok();
    let mut other = (0..60).find_map(|_| at_another()).expect("one in three is at the same context");
    publish_wider(&mut other, 0, 100);
    other.flush().unwrap();
    until(&context, "good", |info| info.records_out >= 100 && info.inputs.len() == 2);
    LET_GO_C_CORE.store(true, Ordering::Release);
    while lost().is_some() || !is_reported("returned") {
        std::thread::yield_now();
    }
    until(&context, "bad", |info| info.inputs.len() == 2);
    change(&context, remove);
    context.stop().unwrap();
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
        change(
            &context,
            ChangeRequest::Deploy(HandlerSpec { on_fault: OnFault::Stop, ..native(name, kind, "N", &[]) }),
        );
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
    context.stop().unwrap();
}

static IS_MEASURED: AtomicBool = AtomicBool::new(false);

static LET_GO_MEASURED: AtomicBool = AtomicBool::new(false);

#[test]
fn reports_are_available_during_a_change() {
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
    change(&context, ChangeRequest::Deploy(sql("first", "SELECT * FROM N")));
    let changing = context.clone();
    let changed = std::thread::spawn(move || {
        changing.manager().change(ChangeRequest::Deploy(native("slow", "slow", "N", &[])), false)
    });
    while !IS_MEASURED.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let manager = context.manager();
    assert_eq!((manager.handlers().unwrap().len(), manager.specs().unwrap().len()), (1, 1));
    assert_eq!(manager.contexts().unwrap().len(), 4 + crate::contexts::further().count());
    assert!(manager.events(0).unwrap().iter().any(|event| event.kind == "deployed"));
    assert!(!changed.is_finished(), "it waits for its handler still");
    LET_GO_MEASURED.store(true, Ordering::Release);
    changed.join().unwrap().unwrap().unwrap();
    assert_eq!(manager.handlers().unwrap().len(), 2, "who made a change sees it");
    context.stop().unwrap();
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

/// The first handler panics where its counters are read; one that is made after a fault does not.
fn unsound_at_first() -> NativeKind {
    let is_made = AtomicBool::new(false);
    let kind = NativeKind::new("unsound", "panics outside of its work", &[], move |format, _| {
        let is_first = std::thread::current().name() == Some("managers") && !is_made.swap(true, Ordering::AcqRel);
        let records_in = if is_first { 999_000 } else { 0 };
        let counters = HandlerCounters { records_in, ..HandlerCounters::default() };
        Ok((Box::new(Unsound(Troubled { at: u64::MAX, trouble: |_| (), counters })), format.clone()))
    });
    kind.metered()
}

/// It takes the batch and the handler that were in work, and nothing else.
#[test]
fn a_context_goes_on_after_a_panic_outside_of_a_handlers_work() {
    for (number, place) in [(2, "c-core-1"), (1, "g-core-0"), (0, "c-core-0")] {
        let (context, addr) = start(|_| {});
        context.manager().add_native(unsound_at_first()).unwrap();
        // With so little to do it fits anywhere, however slow the machine is.
        let there = |spec: HandlerSpec| HandlerSpec { place: Some(place.into()), peak_msgs_per_s: Some(100), ..spec };
        let mut publisher = connect(&addr);
        change(&context, ChangeRequest::Deploy(there(sql("good", "SELECT * FROM N"))));
        change(&context, ChangeRequest::Deploy(there(native("bad", "unsound", "N", &[]))));
        let mut sent = 0;
        while context.manager().contexts().unwrap()[number].panics == 0 {
            publish(&mut publisher, sent, sent + 100);
            publisher.flush().unwrap();
            sent += 100;
        }
        let is_reported = |kind: &str| context.manager().events(0).unwrap().iter().any(|event| event.kind == kind);
        while !is_reported("panicked") || !is_reported("restarted") {
            std::thread::yield_now();
        }
        publish(&mut publisher, sent, sent + 1000);
        publisher.finish().unwrap();
        sent += 1000;
        let lost = |info: &HandlerInfo| info.dropped.iter().map(|lost| lost.1).sum::<u64>();
        let bad = until(&context, "bad", |info| info.records_in == sent && info.records_out + lost(info) == sent);
        assert!(lost(&bad) > 0 && bad.faults == 1, "{bad:?}");
        let good = until(&context, "good", |info| info.records_out == sent);
        assert_eq!((good.faults, lost(&good)), (0, 0));
        // Changes there go on.
        let moved = |handler: &str| ChangeRequest::Move { handler: handler.into(), place: Some("g-core-1".into()) };
        ["bad", "good"].into_iter().for_each(|handler| change(&context, moved(handler)));
        assert!(context.manager().contexts().unwrap().iter().all(|context| context.lost.is_none()));
        context.stop().unwrap();
    }
}

/// One that is stopped runs no more, and delays nobody.
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
        ChangeRequest::Deploy(HandlerSpec { on_fault: OnFault::Stop, ..native("bad", "panics_at_once", "N", &[]) }),
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
    change(&context, ChangeRequest::Swap(HandlerSpec { on_fault: OnFault::Stop, ..native("bad", "pass", "N", &[]) }));
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1000);
    publisher.finish().unwrap();
    let info = until(&context, "bad", |info| info.records_in == 11_000 && lost(info) + info.records_out == 11_000);
    assert_eq!((info.records_out, lost(&info), info.status.as_str()), (1000, 10_000, "running"));
    context.stop().unwrap();
}
