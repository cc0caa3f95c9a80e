//! The resources of handlers: time, buffers and bandwidth, and what they do where it is short.

use super::*;
use crossdock_nectarine::{Publisher, Subscriber, Transport};
use crossdock_runtime::info::HandlerContextInfo;
use crossdock_runtime::{ChangeRequest, HandlerSpec, WhenFull};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bandwidth binds like time: what the network takes of it is not there for handlers, and what fits goes elsewhere.
#[test]
fn a_handler_goes_where_there_is_bandwidth_for_what_it_makes() {
    let (context, addr) = start(|config| {
        config.platform.bandwidth_mbit_per_s = Some(8);
        config.platform.contexts.truncate(2);
        config.platform.contexts[1].bandwidth_mbit_per_s = Some(80);
        // A step that another process has interrupted is not to decide where it goes.
        config.platform.slice_us = 100_000;
    });
    let mut publisher = Publisher::builder(&addr).transport(Transport::Udp).stream("N").format(&numbers()).connect();
    let publisher = publisher.as_mut().unwrap();
    publish(publisher, 0, 1000);
    publisher.flush().unwrap();
    // Records of 24 bytes and what frames them: 1.2 MB a second at the least, where all but one have 0.8 to give.
    let wide = |name: &str, peak| HandlerSpec { peak_msgs_per_s: Some(peak), ..sql(name, "SELECT * FROM N") };
    change(&context, ChangeRequest::Deploy(wide("some", 50_000)));
    assert_eq!(until(&context, "some", |_| true).context.as_deref(), Some("c-core-1"));
    let refused = context.manager().change(ChangeRequest::Deploy(wide("more", 1_000_000)), false).unwrap().unwrap_err();
    let why = &refused.refusals[0];
    assert!(why.contains("c-core-1 has ") && why.contains("MB/s that it sends"), "{refused:?}");
    let bandwidths = context.manager().contexts().unwrap();
    let capacities: Vec<_> = bandwidths.iter().map(|context| context.capacity_bytes_per_s).collect();
    assert_eq!(capacities[..3], [Some(1_000_000), Some(1_000_000), Some(10_000_000)]);
    let left = bandwidths[2].headroom_bytes_per_s.unwrap();
    assert!((1..8_000_000 - 1_000_000).contains(&left), "{left}");
    // The device's own bandwidth is not there for handlers. Of nothing there is 0.8 MB/s.
    let mut next = 1000;
    loop {
        publish(publisher, next, next + 1000);
        publisher.flush().unwrap();
        next += 1000;
        let contexts = context.manager().contexts().unwrap();
        let of_home = contexts[0].headroom_bytes_per_s.unwrap();
        assert!(of_home <= 800_000, "{contexts:?}");
        // The session may be at another I/O context than the home context.
        let has_less =
            |io: &HandlerContextInfo| io.network_bytes_per_s > 100_000 && io.headroom_bytes_per_s.unwrap() < 700_000;
        if contexts.iter().any(has_less) {
            break;
        }
    }
    context.stop().unwrap();
}

/// The reservation of a path is kept for each handler on the way, and for nobody else; all three resources bind.
#[test]
fn reservations_hold_for_handlers_and_for_their_paths() {
    let (context, addr) = start(|config| config.platform.bandwidth_mbit_per_s = Some(8000));
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1000);
    publisher.flush().unwrap();
    // It is measured on these records.
    while context.streams().unwrap().iter().all(|stream| stream.records_in < 1000) {
        std::thread::yield_now();
    }
    change(&context, ChangeRequest::Deploy(sql("tens", "SELECT * FROM N WHERE grp = 0")));
    assert_eq!(until(&context, "tens", |_| true).reserved, None);
    // The path is said at its end; who lies on it already has its share kept too.
    let last = HandlerSpec { reserve_path_msgs_per_s: Some(1_000_000), ..sql("last", "SELECT number FROM tens") };
    let applied = context.manager().change(ChangeRequest::Deploy(last.clone()), false).unwrap().unwrap();
    assert_eq!(applied.plan.changes.len(), 2, "{applied:?}");
    let kept = |name: &str| until(&context, name, |_| true).reserved.unwrap_or_default();
    let (tens, of_last) = (kept("tens"), kept("last"));
    assert!(tens.time_ns_per_s > 0 && tens.bytes_per_s >= 2_400_000, "{tens:?}");
    assert!(of_last.time_ns_per_s > 0 && of_last.bytes_per_s < tens.bytes_per_s, "{of_last:?}");
    assert!(
        context
            .manager()
            .plan(ChangeRequest::All(context.manager().specs().unwrap()), false)
            .unwrap()
            .changes
            .is_empty()
    );
    // More than there is of anything, which is kept free whether it is used or not.
    let refused = |spec: HandlerSpec| {
        let before = context.manager().specs().unwrap();
        let plan = context.manager().change(ChangeRequest::Swap(spec), false).unwrap().unwrap_err();
        assert_eq!(context.manager().specs().unwrap(), before);
        plan.refusals.join("; ")
    };
    let why = refused(HandlerSpec { reserve_path_msgs_per_s: Some(100_000_000_000), ..last.clone() });
    assert!(why.contains("as reserved") && why.contains("reserve less"), "{why}");
    let why = refused(HandlerSpec { reserve_buffers: Some(1 << 20), ..last.clone() });
    assert!(why.contains("buffers left of the 1048576 that it needs"), "{why}");
    let why = refused(HandlerSpec { reserve_bytes_per_s: Some(1_000_000_000), ..last.clone() });
    assert!(why.contains("left of the 1 GB/s that it sends"), "{why}");
    let place = Some("g-core-1".to_owned());
    let left = |at: usize| context.manager().contexts().unwrap()[at].headroom_bytes_per_s.unwrap();
    let before = left(3);
    let half = HandlerSpec { reserve_bytes_per_s: Some(500_000_000), place: place.clone(), ..last.clone() };
    change(&context, ChangeRequest::Swap(half));
    assert!(left(3) <= before - 499_000_000, "{before} {}", left(3));
    let other = HandlerSpec { reserve_bytes_per_s: Some(500_000_000), place, ..sql("other", "SELECT * FROM N") };
    let why = context.manager().change(ChangeRequest::Deploy(other), false).unwrap().unwrap_err().refusals.join("; ");
    assert!(why.contains("g-core-1 has ") && why.contains("left of the 500 MB/s that it sends"), "{why}");
    // Nothing is kept any more for a path that nobody has.
    change(&context, ChangeRequest::Swap(sql("last", "SELECT number FROM tens")));
    assert_eq!((until(&context, "tens", |_| true).reserved, until(&context, "last", |_| true).reserved), (None, None));
    context.stop().unwrap();
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

/// A handler with a rule. The reserve that is kept for it lets it be changed where there is nothing left.
fn few(text: &str, overload: &[(&str, &str)]) -> HandlerSpec {
    HandlerSpec {
        place: Some("g-core-0".into()),
        reserve_ns_per_s: Some(100_000_000),
        reserve_buffers: Some(256),
        reserve_bytes_per_s: Some(1_000_000_000),
        parameters: map(&[("g", "10")]),
        overload_parameters: map(overload),
        ..sql("few", text)
    }
}

const FEW: &str = "SELECT number FROM N WHERE grp < $g";

#[test]
fn a_rule_that_does_not_suit_its_handler_is_refused() {
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1000);
    publisher.flush().unwrap();
    for (overload, named) in [([("x", "1")], "x"), ([("g", "many")], "g")] {
        let refused = context.manager().change(ChangeRequest::Deploy(few(FEW, &overload)), false).unwrap().unwrap_err();
        let why = &refused.refusals[0];
        assert!(why.contains("`overload_parameters`: ") && why.contains(named), "{refused:?}");
    }
    let overload_parameters = map(&[("field", "m")]);
    let fixed = HandlerSpec { overload_parameters, ..native("few", "number", "N", &[("field", "n1")]) };
    let refused = context.manager().change(ChangeRequest::Deploy(fixed), false).unwrap().unwrap_err();
    assert!(refused.refusals[0].contains("cannot change while the handler runs"), "{refused:?}");
    context.stop().unwrap();
}

/// Handlers at a context that is near its limit, one of them with a rule for that.
#[test]
fn a_handler_does_with_less_by_its_own_rule_where_its_context_is_near_its_limit() {
    let (context, addr) = start(|config| config.platform.queue_batches = 8);
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1000);
    publisher.flush().unwrap();
    change(&context, ChangeRequest::Deploy(few(FEW, &[("g", "1")])));
    let busy = native("busy", "work", "N", &[("ns", "10000")]);
    // It is said to need less than it does, so that there is room for it on a single CPU too.
    let (place, peak_msgs_per_s) = (Some("g-core-0".into()), Some(5000));
    let busy = HandlerSpec { place, peak_msgs_per_s, when_full: WhenFull::Drop, ..busy };
    change(&context, ChangeRequest::Deploy(busy));
    let mut subscriber = Subscriber::builder(&addr).sql("SELECT number FROM few").connect().unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let latest = Arc::clone(&seen);
    let reader = std::thread::spawn(move || collect_and_report(&mut subscriber, &latest));
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
    assert!(degraded.contains("g=1") && degraded.contains("batches waited too long for g-core-0"), "{degraded}");
    // The next version goes by it too, and so does what was set anew; from here on as long as nothing else is said.
    change(&context, ChangeRequest::Swap(few("SELECT number FROM N WHERE grp < $g AND number >= 0", &[("g", "1")])));
    change(&context, ChangeRequest::SetParameters { handler: "few".into(), parameters: map(&[("g", "9")]) });
    let by_rule = published.load(Ordering::Acquire);
    while seen.load(Ordering::Acquire) < by_rule + 1000 {
        std::thread::yield_now();
    }
    // One that has no rule any more has its own values.
    change(&context, ChangeRequest::Swap(HandlerSpec { overload_parameters: BTreeMap::new(), ..few(FEW, &[]) }));
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
    context.stop().unwrap();
}

/// A thread's name and priority, from what the kernel reports of it.
fn name_and_nice(stat: &str) -> Option<(&str, i32)> {
    let (head, fields) = stat.rsplit_once(") ")?;
    // The 19th of all: two are in front.
    Some((head.split_once('(')?.1, fields.split(' ').nth(16)?.parse().ok()?))
}

/// Whether there is a thread of this name and priority, with a time slice of 0.1 ms or an ordinary one. Kernels before 6.12 have
/// none of a thread's own, and do not report it.
fn has_thread(name: &str, nice: i32, is_short: bool) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let mut threads = threads.filter_map(|thread| Some(thread.ok()?.path()));
    threads.any(|thread| {
        let read = |file: &str| std::fs::read_to_string(thread.join(file)).unwrap_or_default();
        let sched = read("sched");
        let slice = sched.lines().find_map(|line| line.strip_prefix("se.slice")?.rsplit(' ').next()?.parse().ok());
        name_and_nice(&read("stat")) == Some((name, nice)) && slice.is_none_or(|ns: u64| (ns == 100_000) == is_short)
    })
}

#[test]
fn contexts_have_the_priorities_that_they_are_to_have_or_it_is_said_which_have_not() {
    let own = name_and_nice(&std::fs::read_to_string("/proc/self/stat").unwrap()).unwrap().1;
    let [io_context, g_core, c_core] = [11, 12, 13].map(|nice: i32| nice.max(own));
    let (context, _) = start(|config| {
        config.nice = Some(io_context);
        let contexts = &mut config.platform.contexts;
        (contexts[0].nice, contexts[1].nice) = (Some(g_core), Some(c_core));
        (contexts[2].nice, contexts[2].name) = (Some(-20), Some("first".into()));
    });
    let refused = context.not_restored();
    assert!(refused.iter().all(|why| why.starts_with("context first ") && why.contains("nice = -20")), "{refused:?}");
    let first = if refused.is_empty() { -20 } else { own };
    let threads = [
        ("c-core-0", io_context, true),
        ("g-core-0", g_core, false),
        ("c-core-1", c_core, true),
        ("first", first, false),
    ];
    for (name, nice, is_short) in threads {
        // A message wakes a c-core at once, a g-core when it is its turn.
        while !has_thread(name, nice, is_short) {
            std::thread::yield_now();
        }
    }
    context.stop().unwrap();
}

/// While batches wait too long for a context, its handlers that allow it are sampled, and an event reports it.
#[test]
fn a_sampled_handler_is_reported() {
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    let slow = native("slow", "work", "N", &[("ns", "10000")]);
    let slow = HandlerSpec { place: Some("c-core-0".into()), max_sampling: Some(1000), ..slow };
    change(&context, ChangeRequest::Deploy(slow));
    let mut next = 0;
    let mut publish_some = || {
        publish(&mut publisher, next, next + 2000);
        next += 2000;
    };
    let sampled = loop {
        publish_some();
        let mut events = context.manager().events(0).unwrap().into_iter();
        if let Some(sampled) = events.find(|event| event.text.contains("the context is overloaded")) {
            break sampled;
        }
    };
    assert_eq!((sampled.kind.as_str(), sampled.handler.as_deref()), ("degraded", Some("slow")));
    let left_out = |info: &HandlerInfo| info.dropped.iter().any(|(why, records)| why == "sampled" && *records > 0);
    until(&context, "slow", left_out);
    // Such seconds are in the history of both. In the first one nothing may have been read off the handler but once.
    let (slow, io_then) = loop {
        publish_some();
        let history = context.manager().history().unwrap();
        let second = |name: &str| {
            let of = history.iter().find(|of| of.name == name);
            of.and_then(|of| of.moments.last().copied()).unwrap()
        };
        if second("slow").msgs_in_per_s > 0 {
            break (second("slow"), second("c-core-0"));
        }
    };
    assert_eq!(slow.buffers, slow.queued);
    let io_context = context.manager().contexts().unwrap().swap_remove(0);
    assert!(
        io_then.headroom_ns_per_s < io_context.capacity_ns_per_s * 4 / 5,
        "what is kept free and the handler's share are not left"
    );
    context.stop().unwrap();
}
