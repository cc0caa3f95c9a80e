//! Handlers deployed in a running daemon: derived streams, hot-swap, moves, faults; over the real wire, in one process.

use crate::contexts::tries;
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Event, Publisher, Subscriber, Transport};
use crossdock_runtime::info::HandlerInfo;
use crossdock_runtime::{
    ChangeRequest, ContextConfig, ContextHandle, ContextKind, ContextSpec, HandlerSpec, PassedSockets,
};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod budgets;
mod changes;
mod changing;
mod checkpoints;
mod cuts;
mod explains;
mod faults;
mod ledgers;
mod queries;
mod replicas;
mod resources;
mod slow_states;
mod stateful;
mod states;
mod tables;

/// An answer that takes longer than this does not come at all.
const PATIENCE: Duration = Duration::from_secs(120);

const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::Shm];

fn start(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    let context = ContextSpec::new;
    config.platform.contexts =
        vec![context(ContextKind::GCore), context(ContextKind::CCore), context(ContextKind::GCore)];
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
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

#[test]
fn no_packet_is_taken_before_the_context_is_opened() {
    let config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    let context = ContextHandle::prepare(config, PassedSockets::default()).unwrap();
    let addr = context.local_addr().to_string();
    let publishers = TRANSPORTS.map(|way| {
        let addr = addr.clone();
        std::thread::spawn(move || {
            let mut publisher =
                Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
            publish(&mut publisher, 0, 1000);
            publisher.finish().unwrap();
        })
    });
    // Longer than a publisher takes to connect.
    change(&context, ChangeRequest::Deploy(sql("all", "SELECT * FROM N")));
    assert!(context.streams().unwrap().iter().all(|stream| stream.publishers == 0 && stream.records_in == 0));
    assert_eq!(context.clients().unwrap().len(), 0);
    context.open().unwrap();
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    // Records count as taken before they are worked on.
    let info = until(&context, "all", |info| info.records_out == 2000);
    assert_eq!((info.records_in, context.streams().unwrap()[0].records_unclaimed), (2000, 0));
    context.stop().unwrap();
}

/// The first field of all records up to the stream's end.
fn collect(subscriber: &mut Subscriber) -> Vec<u64> {
    collect_and_report(subscriber, &AtomicU64::new(0))
}

/// The same; `seen` is the latest so far.
fn collect_and_report(subscriber: &mut Subscriber, seen: &AtomicU64) -> Vec<u64> {
    let mut numbers = Vec::new();
    follow(subscriber, |number| {
        numbers.push(number);
        seen.store(number, Ordering::Release);
    });
    numbers
}

/// Has the first field of all records up to the stream's end taken.
fn follow(subscriber: &mut Subscriber, mut take: impl FnMut(u64)) {
    loop {
        match subscriber.next_event(Some(PATIENCE)).unwrap().expect("something comes") {
            Event::Records(records) => records.iter().for_each(|record| match record.get(0) {
                Value::Uint(number) => take(number),
                Value::Int(number) => take(number as u64),
                other => panic!("{other:?}"),
            }),
            Event::StreamEnded { publishers_left: 0, .. } => return,
            Event::Dropped { records, .. } => panic!("{records} were dropped"),
            _ => {}
        }
    }
}

/// The rate that the handlers of these tests are said to have to keep up with: little, so that all are let in, however
/// fast the test is.
const PEAK: Option<u64> = Some(10_000);

fn sql(name: &str, sql: &str) -> HandlerSpec {
    HandlerSpec { name: name.into(), sql: Some(sql.into()), peak_msgs_per_s: PEAK, ..HandlerSpec::default() }
}

fn native(name: &str, native: &str, input: &str, parameters: &[(&str, &str)]) -> HandlerSpec {
    let parameters: BTreeMap<String, String> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (native, input_streams) = (Some(native.to_owned()), vec![input.to_owned()]);
    HandlerSpec {
        name: name.into(),
        native,
        input_streams,
        parameters,
        peak_msgs_per_s: PEAK,
        ..HandlerSpec::default()
    }
}

fn change(context: &ContextHandle, change: ChangeRequest) {
    let applied = context.manager().change(change, false).unwrap();
    applied.unwrap_or_else(|plan| panic!("{plan:?}"));
}

#[test]
fn the_output_of_a_chain_of_handlers_is_subscribed_to_wherever_they_run() {
    for way in TRANSPORTS {
        for place in PLACES {
            let (context, addr) = start(|_| {});
            let mut publisher =
                Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
            let first = HandlerSpec { place: Some(place.into()), ..sql("small", "SELECT * FROM N WHERE grp < 5") };
            change(&context, ChangeRequest::Deploy(first));
            change(&context, ChangeRequest::Deploy(sql("threes", "SELECT number + 1 AS n FROM small WHERE grp = 3")));
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
            context.stop().unwrap();
        }
    }
}

/// Waits until the managers report this of a handler; a failure shows all events.
fn until(context: &ContextHandle, handler: &str, holds: impl Fn(&HandlerInfo) -> bool) -> HandlerInfo {
    let began = Instant::now();
    loop {
        let found = context.manager().handlers().unwrap().into_iter().find(|info| info.name == handler);
        match found.clone().filter(&holds) {
            Some(info) => return info,
            None if began.elapsed() < PATIENCE => std::thread::yield_now(),
            None => panic!("{found:#?} {:#?}", context.manager().events(0)),
        }
    }
}

/// The format of `numbers` with a field more.
fn wider() -> Format {
    let fields = [("number", FieldType::U64), ("grp", FieldType::I32), ("more", FieldType::F64)];
    Format::natural(fields.map(|(name, ty)| FieldSpec::new(name, ty))).unwrap()
}

fn publish_wider(publisher: &mut Publisher, from: u64, to: u64) {
    let format = wider();
    let mut row = RecordBuilder::new(&format);
    for number in from..to {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Int((number % 10) as i64)).unwrap();
        row.set(2, Value::Float(0.5)).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
}

/// A publisher of a wider format comes while one of the first goes on; handlers are compiled for it while its records wait.
#[test]
fn a_new_format_of_a_stream_goes_through_a_chain_and_nothing_is_lost() {
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    change(&context, ChangeRequest::Deploy(sql("first", "SELECT * FROM N WHERE grp < 5")));
    change(&context, ChangeRequest::Deploy(sql("second", "SELECT number FROM first WHERE number >= 0")));
    let mut subscriber = Subscriber::builder(&addr).sql("SELECT number FROM second").connect().unwrap();
    let reader = std::thread::spawn(move || collect(&mut subscriber));
    publish(&mut publisher, 0, 5000);
    let mut other = Publisher::builder(&addr).stream("N").format(&wider()).connect().unwrap();
    publish_wider(&mut other, 5000, 10_000);
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
    context.stop().unwrap();
}

#[test]
fn a_note_on_a_stream_without_a_publisher_says_whether_it_had_records() {
    let (context, addr) = start(|_| {});
    let note = |name: &str| {
        let deploy = ChangeRequest::Deploy(sql(name, "SELECT number FROM N"));
        context.manager().change(deploy, false).unwrap().unwrap().plan.notes.join("; ")
    };
    let before = note("before");
    assert!(before.contains("handler `before` waits: nobody has published stream `N` yet"), "{before}");
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1000);
    let meanwhile = note("meanwhile");
    assert!(!meanwhile.contains("publish"), "{meanwhile}");
    publisher.finish().unwrap();
    let after = note("after");
    let had = "waits: stream `N`, which has had 1000 records since the daemon's start, has no publisher now";
    assert!(after.contains(had), "{after}");
    // As after a restart, when a stream has formats and no records have come yet.
    context.declare_stream("M", &numbers()).unwrap().unwrap();
    let deploy = ChangeRequest::Deploy(sql("of_kept", "SELECT number FROM M"));
    let kept = context.manager().change(deploy, false).unwrap().unwrap().plan.notes.join("; ");
    assert!(kept.contains("stream `M`, which has had 0 records since the daemon's start, has no publisher"), "{kept}");
    context.stop().unwrap();
}

#[test]
fn a_stream_that_is_published_is_made_by_no_handler_and_stays_as_it_is() {
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    let taken = HandlerSpec { output_stream: Some("N".into()), ..sql("other", "SELECT * FROM M") };
    let refused = context.manager().change(ChangeRequest::Deploy(taken), false).unwrap().unwrap_err();
    assert!(refused.refusals[0].contains("which has publishers"), "{refused:?}");
    publish(&mut publisher, 0, 10);
    publisher.finish().unwrap();
    // The output stream of a handler has no publisher, as long as it is there.
    change(&context, ChangeRequest::Deploy(sql("made", "SELECT * FROM N")));
    let publishing = Publisher::builder(&addr).stream("made").format(&numbers()).connect();
    assert!(publishing.is_err_and(|error| error.to_string().contains("produced by handler `made`")));
    change(&context, ChangeRequest::Remove { handler: "made".into() });
    Publisher::builder(&addr).stream("made").format(&numbers()).connect().unwrap();
    context.stop().unwrap();
}

#[test]
fn the_streams_of_handlers_that_are_gone_are_forgotten_once_nobody_reads_them() {
    let (context, addr) = start(|config| config.max_streams = 4);
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 10);
    publisher.flush().unwrap();
    for round in 0..20 {
        let name = format!("made{round}");
        change(&context, ChangeRequest::Deploy(sql(&name, "SELECT * FROM N")));
        let subscriber = Subscriber::builder(&addr).sql(format!("SELECT * FROM {name}")).connect().unwrap();
        change(&context, ChangeRequest::Remove { handler: name });
        assert_eq!(context.streams().unwrap().len(), 2, "somebody waits for it still");
        drop(subscriber);
        while context.streams().unwrap().len() > 1 {
            std::thread::yield_now();
        }
    }
    // A declared stream stays.
    context.declare_stream("kept", &numbers()).unwrap().unwrap();
    change(&context, ChangeRequest::Deploy(sql("kept", "SELECT * FROM N")));
    change(&context, ChangeRequest::Remove { handler: "kept".into() });
    assert_eq!(context.streams().unwrap().len(), 2);
    context.stop().unwrap();
}

/// Says where two long lists part.
fn assert_same(found: &[u64], wanted: &[u64], handlers: &[HandlerInfo]) {
    let parted = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    let at = parted.unwrap_or(found.len().min(wanted.len()));
    let around = |list: &[u64]| list[at.saturating_sub(2).min(list.len())..(at + 3).min(list.len())].to_vec();
    let (lengths, near) = ((found.len(), wanted.len()), (around(found), around(wanted)));
    assert!(found == wanted, "they part at {at} (lengths {lengths:?}): {near:?}; {handlers:#?}");
}

/// How many numbers come; they are those, in that order.
fn count(subscriber: &mut Subscriber, wanted: impl Iterator<Item = u64>) -> u64 {
    let (mut wanted, mut found) = (wanted.fuse(), 0);
    follow(subscriber, |number| {
        assert_eq!(Some(number), wanted.next(), "after {found} as they should be");
        found += 1;
    });
    found
}

#[test]
fn random_changes_under_traffic_lose_double_and_reorder_nothing() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("CROSSDOCK_SEED={seed} repeats this");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    change(&context, ChangeRequest::Deploy(native("counted", "number", "N", &[("field", "n1")])));
    change(&context, ChangeRequest::Deploy(sql("all", "SELECT * FROM counted WHERE number >= 0")));
    change(&context, ChangeRequest::Deploy(sql("tens", "SELECT n1, number FROM all WHERE grp = 0")));
    let mut all = Subscriber::builder(&addr).sql("SELECT n1, number FROM all").connect().unwrap();
    let mut tens = Subscriber::builder(&addr).sql("SELECT number FROM tens").connect().unwrap();
    // That the numbers run on says that the state moved along.
    let readers = (
        std::thread::spawn(move || count(&mut all, 1..)),
        std::thread::spawn(move || count(&mut tens, (0..).step_by(10))),
    );
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
    let (changes, mut taken) = (tries(700, 300), BTreeMap::new());
    for round in 0..changes {
        let again = |name: &str| match name {
            "counted" => native("counted", "number", "N", &[("field", "n1")]),
            "all" => sql("all", &format!("SELECT * FROM counted WHERE number >= -{round}")),
            "tens" => sql("tens", &format!("SELECT n1, number FROM all WHERE grp = 0 AND number >= -{round}")),
            _ => native("side", "work", "N", &[("ns", "0")]),
        };
        let name = ["counted", "all", "tens"][rng.usize(0..3)];
        let (kind, change) = match rng.u8(0..32) {
            0..4 => ("swap", ChangeRequest::Swap(again(name))),
            4 => ("deploy", ChangeRequest::Deploy(again("side"))),
            5 => ("remove", ChangeRequest::Remove { handler: "side".into() }),
            6..8 => {
                let parameters = BTreeMap::from([("ns".to_owned(), (round % 7).to_string())]);
                ("set", ChangeRequest::SetParameters { handler: "side".into(), parameters })
            }
            8 => (
                "all",
                ChangeRequest::All(
                    ["counted", "all", "tens", "side"][..rng.usize(3..=4)].iter().map(|name| again(name)).collect(),
                ),
            ),
            _ => ("move", ChangeRequest::Move { handler: name.into(), place: Some(PLACES[rng.usize(0..4)].into()) }),
        };
        // A context that is busy with all this traffic may have no room, and `side` may be there or not; then nothing has changed.
        *taken.entry(kind).or_insert(0) += u32::from(context.manager().change(change, false).unwrap().is_ok());
    }
    println!("of {changes} changes were made: {taken:?}");
    assert!(
        taken.values().sum::<u32>() > changes / 4 && taken.len() == 6 && taken.values().all(|made| *made > 0),
        "{taken:?}"
    );
    stop.store(true, Ordering::Release);
    let published = publishing.join().unwrap();
    let found = (readers.0.join(), readers.1.join());
    let found = (found.0.map_err(drop), found.1.map_err(drop));
    assert_eq!(found, (Ok(published), Ok(published / 10)), "{:#?}", context.manager().handlers());
    context.stop().unwrap();
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
                    let change = match round % 2 {
                        0 => ChangeRequest::Deploy(sql("one", &format!("SELECT * FROM N WHERE number > {client}"))),
                        _ => ChangeRequest::Remove { handler: "one".into() },
                    };
                    taken += u32::from(context.manager().change(change, false).unwrap().is_ok());
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
    context.stop().unwrap();
}

/// The output of many subscribers from a backlog takes more buffers than there are: it waits, and is not dropped.
#[test]
fn a_derived_stream_waits_while_buffers_are_short() {
    // So few that each subscriber can have one or two.
    let (context, addr) = start(|config| config.buffer_bytes = 1 << 20);
    let mut publisher = connect(&addr);
    change(
        &context,
        ChangeRequest::Deploy(HandlerSpec { place: Some("g-core-0".into()), ..sql("made", "SELECT * FROM N") }),
    );
    let subscribe =
        |_| Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT number FROM made").connect().unwrap();
    let subscribers: Vec<Subscriber> = (0..80).map(subscribe).collect();
    let publishing = std::thread::spawn(move || {
        publish(&mut publisher, 0, 200_000);
        publisher.finish().unwrap();
    });
    // Nobody takes anything until publishers are held back, or all has been published, or for a while: where it is blocked
    // depends on how the machine's threads take turns.
    let begun = Instant::now();
    let is_blocked = || context.streams().unwrap().iter().any(|stream| stream.blocked > 0);
    while !publishing.is_finished() && !is_blocked() && begun.elapsed() < Duration::from_secs(2) {
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
    context.stop().unwrap();
}
