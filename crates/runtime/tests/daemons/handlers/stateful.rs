//! Queries with joins and windows, as handlers and as subscriptions.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Numbers with a key and a time.
pub(super) fn timed() -> Format {
    Format::parse_schema("number u64\nk u32\nat timestamp").unwrap()
}

/// The same with a field more.
fn timed_wider() -> Format {
    Format::parse_schema("number u64\nk u32\nat timestamp\nmore f64 null").unwrap()
}

const SECOND: u64 = 1_000_000_000;

pub(super) fn publisher_of(addr: &str, stream: &str, format: &Format, way: Transport) -> Publisher {
    Publisher::builder(addr).transport(way).stream(stream).format(format).connect().unwrap()
}

/// Publishes numbers, each a second after the one before; their keys are their remainders by 7.
pub(super) fn publish_timed(publisher: &mut Publisher, numbers: std::ops::Range<u64>) {
    let mut row = RecordBuilder::new(publisher.format());
    for number in numbers {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Uint(number % 7)).unwrap();
        row.set(2, Value::Timestamp((number * SECOND) as i64)).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
}

/// The whole numbers of all rows up to the stream's end.
pub(super) fn rows(subscriber: &mut Subscriber) -> Vec<Vec<u64>> {
    let mut rows = Vec::new();
    let number = |value: Value<'_>| match value {
        Value::Uint(number) => number,
        Value::Int(number) | Value::Timestamp(number) => number as u64,
        other => panic!("{other:?}"),
    };
    loop {
        let Some(event) = subscriber.next_event(Some(PATIENCE)).unwrap() else {
            panic!(
                "no end came within {PATIENCE:?} by {:?}, after {} rows: {rows:?}",
                subscriber.transport(),
                rows.len()
            )
        };
        match event {
            Event::Records(records) => rows.extend(records.iter().map(|record| {
                (0..record.format().fields().len()).map(|at| number(record.get(at))).collect::<Vec<u64>>()
            })),
            Event::StreamEnded { publishers_left: 0, .. } => return rows,
            Event::Dropped { records, .. } => panic!("{records} were dropped"),
            _ => {}
        }
    }
}

const JOIN: &str = "SELECT a.number AS n, b.number AS m FROM A a JOIN B b \
    ON a.k = b.k AND b.at BETWEEN a.at - INTERVAL '14' SECOND AND a.at";
const WINDOW: &str = "SELECT k, window_start, count(*) AS n FROM A GROUP BY k, TUMBLE(at, INTERVAL '70' SECOND)";

/// The pairs of `JOIN` of as many numbers.
fn pairs(numbers: u64) -> BTreeSet<Vec<u64>> {
    (0..numbers).flat_map(|n| [0, 7, 14].map(|less| n.checked_sub(less).map(|m| vec![n, m]))).flatten().collect()
}

/// The rows of `WINDOW` of as many numbers; the last window closes with the end of the stream.
fn windows(numbers: u64) -> BTreeSet<Vec<u64>> {
    let mut counts = BTreeMap::new();
    (0..numbers).for_each(|number| *counts.entry((number % 7, number / 70)).or_default() += 1);
    counts.into_iter().map(|((k, window), count)| vec![k, window * 70 * SECOND, count]).collect()
}

fn unique(rows: Vec<Vec<u64>>) -> BTreeSet<Vec<u64>> {
    let (count, rows) = (rows.len(), BTreeSet::from_iter(rows));
    assert_eq!(count, rows.len(), "each comes once");
    rows
}

#[test]
fn joins_and_windows_of_two_publishers_are_handlers_and_subscriptions() {
    for way in TRANSPORTS {
        let (context, addr) = start(|_| {});
        let mut publishers = ["A", "B"].map(|stream| publisher_of(&addr, stream, &timed(), way));
        change(&context, ChangeRequest::Deploy(sql("joined", JOIN)));
        change(&context, ChangeRequest::Deploy(sql("counted", WINDOW)));
        let queries = ["SELECT * FROM joined", "SELECT * FROM counted", JOIN, WINDOW];
        let readers = queries.map(|query| {
            let mut subscriber = Subscriber::builder(&addr).transport(way).sql(query).connect().unwrap();
            std::thread::spawn(move || rows(&mut subscriber))
        });
        for from in (0..1000).step_by(100) {
            publishers.iter_mut().for_each(|publisher| publish_timed(publisher, from..from + 100));
        }
        for publisher in publishers {
            publisher.finish().unwrap();
        }
        let [joined, counted, joined_here, counted_here] = readers.map(|reader| unique(reader.join().unwrap()));
        assert_eq!(joined, pairs(1000), "{way:?}");
        assert_eq!(counted, windows(1000), "{way:?}");
        assert!(joined_here == joined && counted_here == counted, "{way:?}");
        let info = until(&context, "joined", |info| info.records_in == 2000);
        assert_eq!((info.taken, info.late, info.row_errors, info.faults), (2000, 0, 0, 0), "{info:#?}");
        assert!(info.dropped.is_empty() && info.state_bytes <= info.state_bytes_bound, "{info:#?}");
        assert_eq!(info.reads, ["A", "B"]);
        context.stop().unwrap();
    }
}

/// As many as one FROM takes; a ninth is refused with its place.
#[test]
fn eight_published_streams_are_joined() {
    let (context, addr) = start(|_| {});
    let streams: Vec<String> = (0..8).map(|at| format!("S{at}")).collect();
    let mut publishers: Vec<Publisher> =
        streams.iter().map(|stream| publisher_of(&addr, stream, &timed(), Transport::Udp)).collect();
    let joins =
        |count: usize| (1..count).map(|at| format!(" JOIN S{at} ON S{at}.number = S0.number AND S{at}.at = S0.at"));
    let list: Vec<String> = streams.iter().map(|stream| format!("{stream}.number AS of_{stream}")).collect();
    let select = |count: usize| format!("SELECT {} FROM S0{}", list.join(", "), joins(count).collect::<String>());
    let refused = Subscriber::builder(&addr).sql(select(9)).connect().unwrap_err().to_string();
    assert!(refused.contains("more than 8 streams in one FROM") && refused.contains("JOIN S8"), "{refused}");
    let mut subscriber = Subscriber::builder(&addr).sql(select(8)).connect().unwrap();
    let reader = std::thread::spawn(move || rows(&mut subscriber));
    for from in (0..300).step_by(100) {
        publishers.iter_mut().for_each(|publisher| publish_timed(publisher, from..from + 100));
    }
    for publisher in publishers {
        publisher.finish().unwrap();
    }
    assert_eq!(unique(reader.join().unwrap()), (0..300).map(|number| vec![number; 8]).collect());
    context.stop().unwrap();
}

#[test]
fn a_handler_waits_for_the_first_format_of_each_of_its_streams() {
    let (context, addr) = start(|_| {});
    let mut first = publisher_of(&addr, "A", &timed(), Transport::Udp);
    publish_timed(&mut first, 0..100);
    first.flush().unwrap();
    change(&context, ChangeRequest::Deploy(sql("joined", JOIN)));
    let info = until(&context, "joined", |info| info.status == "waiting");
    assert_eq!(info.why.as_deref(), Some("for stream `B`"));
    let readers = ["SELECT * FROM joined", JOIN].map(|query| {
        let subscriber = Subscriber::builder(&addr).sql(query).wait_for_stream(PATIENCE);
        std::thread::spawn(move || rows(&mut subscriber.connect().unwrap()))
    });
    while placed(&context).is_empty() {
        std::thread::yield_now();
    }
    let mut second = publisher_of(&addr, "B", &timed(), Transport::Udp);
    let info = until(&context, "joined", |info| info.status == "running" && info.inputs.len() == 2);
    assert!(info.inputs.iter().all(|input| input.output.is_some()), "{info:#?}");
    while context.subscriptions().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    publish_timed(&mut first, 100..300);
    publish_timed(&mut second, 0..300);
    first.finish().unwrap();
    second.finish().unwrap();
    // Earlier records of A wait in the handler's queue, or were there before the handler.
    let late: BTreeSet<Vec<u64>> = pairs(300).into_iter().filter(|pair| pair[0] >= 100).collect();
    for reader in readers {
        let found = unique(reader.join().unwrap());
        assert!(found.is_superset(&late) && found.is_subset(&pairs(300)), "{found:?}");
    }
    context.stop().unwrap();
}

/// A running count goes on through swaps, moves and a further format while records come.
/// More records of the one than its queue takes: the further ones are dropped and counted.
#[test]
fn a_query_that_waits_for_one_stream_holds_back_no_publisher_of_another() {
    let (context, addr) = start(|config| config.platform.queue_batches = 16);
    let mut first = publisher_of(&addr, "A", &timed(), Transport::Udp);
    change(&context, ChangeRequest::Deploy(sql("joined", JOIN)));
    until(&context, "joined", |info| info.status == "waiting");
    let mut reader = Subscriber::builder(&addr).sql("SELECT * FROM A").connect().unwrap();
    let reading = std::thread::spawn(move || rows(&mut reader).len());
    for from in 0..400 {
        publish_timed(&mut first, from * 20..(from + 1) * 20);
        first.flush().unwrap();
    }
    let info = until(&context, "joined", |info| !info.dropped.is_empty());
    assert_eq!(info.status, "waiting");
    let mut second = publisher_of(&addr, "B", &timed(), Transport::Udp);
    until(&context, "joined", |info| info.status == "running" && info.inputs.len() == 2);
    publish_timed(&mut second, 0..100);
    first.finish().unwrap();
    second.finish().unwrap();
    assert_eq!(reading.join().unwrap(), 8000);
    context.stop().unwrap();
}

#[test]
fn subscriptions_with_state_beyond_their_memory_are_refused() {
    let (context, addr) = start(|config| config.platform.max_query_state_bytes = 256 << 20);
    let _publishers = ["A", "B"].map(|stream| publisher_of(&addr, stream, &timed(), Transport::Udp));
    let subscribe = |query: &str| Subscriber::builder(&addr).sql(query).connect();
    let one = subscribe(JOIN).unwrap();
    let same = subscribe(JOIN).unwrap();
    let refused = subscribe(WINDOW).unwrap_err().to_string();
    assert!(refused.contains("`max_query_state_bytes`") && refused.contains("268435456"), "{refused}");
    // Handlers do not count, and one that has gone leaves its part.
    change(&context, ChangeRequest::Deploy(sql("counted", WINDOW)));
    drop((one, same));
    while !placed(&context).is_empty() {
        std::thread::yield_now();
    }
    // Each counts with its own bound.
    let _other = subscribe(&format!("{WINDOW} MAX STATE 100 MB")).unwrap();
    let refused = subscribe(&format!("{JOIN} MAX STATE 157 MB")).unwrap_err().to_string();
    assert!(refused.contains("164626432") && refused.contains("MAX STATE"), "{refused}");
    let _another = subscribe(&format!("{JOIN} MAX STATE 156 MB")).unwrap();
    assert_eq!(placed(&context).iter().map(|info| info.state_bytes_bound).sum::<u64>(), 256 << 20);
    context.stop().unwrap();
}

#[test]
fn a_query_keeps_within_the_bound_that_it_says_and_counts_the_groups_that_go() {
    const GROUPS: u64 = 20_000;
    let (context, addr) = start(|_| {});
    let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    let bounded = |bytes: u64| format!("SELECT number, count(*) AS n FROM A GROUP BY number MAX STATE {bytes} bytes");
    let small = |bytes: u64| HandlerSpec { peak_msgs_per_s: Some(10), ..sql("counted", &bounded(bytes)) };
    let line = "state    at most 64 KiB; past that it sheds the oldest, which is counted\n";
    let explained = context.explain(&bounded(64 << 10), &[]).unwrap().unwrap().plan;
    assert!(explained.starts_with(line), "{explained}");
    change(&context, ChangeRequest::Deploy(small(64 << 10)));
    let mut subscriber = Subscriber::builder(&addr).sql("SELECT * FROM counted").connect().unwrap();
    let reader = std::thread::spawn(move || rows(&mut subscriber));
    // The counts of a run are published one by one.
    let kept_groups = |is_all: &dyn Fn(u64) -> bool| {
        let since = Instant::now();
        loop {
            let analyzed = context.analyze_handler("counted").unwrap().unwrap();
            let kept = analyzed.operators.iter().filter_map(|operator| operator.kept_rows).sum::<u64>();
            if is_all(kept) {
                return kept;
            }
            assert!(since.elapsed() < PATIENCE, "{kept} are kept: {:#?}", context.manager().handlers());
            std::thread::yield_now();
        }
    };
    let forgotten = || until(&context, "counted", |_| true).forgotten;
    publish_timed(&mut publisher, 0..GROUPS);
    publisher.flush().unwrap();
    let info = until(&context, "counted", |info| info.records_in == GROUPS);
    let (bound, policy) = (info.state_bytes_bound, info.state_policy.as_str());
    assert_eq!((bound, policy), (64 << 10, crossdock_query::STATE_POLICY));
    assert!(info.plan.as_ref().is_some_and(|plan| plan.starts_with(line)), "{info:#?}");
    let kept = kept_groups(&|kept| kept > 0 && kept + forgotten() == GROUPS);
    assert!(info.state_bytes <= bound && kept < GROUPS, "{info:#?}");
    // Another bound keeps the groups, and holds at once.
    change(&context, ChangeRequest::Swap(small(16 << 20)));
    publish_timed(&mut publisher, GROUPS - kept..2 * GROUPS);
    publisher.flush().unwrap();
    let info = until(&context, "counted", |info| info.records_in == 2 * GROUPS + kept);
    assert_eq!(info.state_bytes_bound, 16 << 20, "{info:#?}");
    kept_groups(&|all| all == GROUPS + kept);
    change(&context, ChangeRequest::Swap(small(32 << 10)));
    publish_timed(&mut publisher, 0..1);
    publisher.finish().unwrap();
    let mut expected: Vec<Vec<u64>> = (0..GROUPS).map(|number| vec![number, 1]).collect();
    expected.extend((GROUPS - kept..2 * GROUPS).map(|number| vec![number, if number < GROUPS { 2 } else { 1 }]));
    expected.push(vec![0, 1]);
    assert!(reader.join().unwrap() == expected);
    let info = until(&context, "counted", |info| info.records_in == 2 * GROUPS + kept + 1);
    assert!(info.state_bytes <= 32 << 10, "{info:#?}");
    context.stop().unwrap();
}

#[test]
fn the_state_of_a_query_outlives_swaps_and_moves_and_further_formats() {
    // Each change waits for the batches in front of its marker: few, however busy the machine is.
    let (context, addr) = start(|config| config.platform.queue_batches = 16);
    let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    // Far less than it brings: it is let in, however long a record is measured to take.
    let small = |query: &str| HandlerSpec { peak_msgs_per_s: Some(10), ..sql("counted", query) };
    change(&context, ChangeRequest::Deploy(small("SELECT count(*) AS n FROM A")));
    let mut subscriber = Subscriber::builder(&addr).sql("SELECT * FROM counted").connect().unwrap();
    let reader = std::thread::spawn(move || rows(&mut subscriber));
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let traffic = std::thread::spawn(move || {
        let mut sent = 0;
        while !ends.load(Ordering::Acquire) {
            publish_timed(&mut publisher, sent..sent + 100);
            sent += 100;
        }
        publisher.finish().unwrap();
        sent
    });
    for round in 0..10 {
        // The other context may have no room for what it takes at full speed; then it stays.
        let place = ["g-core-0", "g-core-1"][round % 2];
        let moved = ChangeRequest::Move { handler: "counted".into(), place: Some(place.into()) };
        let _ = context.manager().change(moved, false).unwrap();
        let same = format!("SELECT count(*) AS n FROM A WHERE number >= {round} - {round}");
        change(&context, ChangeRequest::Swap(small(&same)));
    }
    let mut other = publisher_of(&addr, "A", &timed_wider(), Transport::Udp);
    let mut row = RecordBuilder::new(&timed_wider());
    for number in 0..1000 {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Uint(0)).unwrap();
        row.set(2, Value::Timestamp(0)).unwrap();
        other.publish(row.finish().unwrap()).unwrap();
    }
    other.finish().unwrap();
    until(&context, "counted", |info| info.inputs.len() == 2);
    is_over.store(true, Ordering::Release);
    let sent = traffic.join().unwrap() + 1000;
    let counts: Vec<u64> = reader.join().unwrap().into_iter().map(|row| row[0]).collect();
    assert_same(&counts, &(1..=sent).collect::<Vec<_>>(), &context.manager().handlers().unwrap());
    // Another query's state is another: that it is lost has to be said.
    let other = || ChangeRequest::Swap(sql("counted", "SELECT k, count(*) AS n FROM A GROUP BY k"));
    let refused = context.manager().change(other(), false).unwrap().unwrap_err();
    assert!(refused.refusals.join("; ").contains("state"), "{refused:?}");
    assert!(context.manager().change(other(), true).unwrap().is_ok());
    // Each replica would have a part of it.
    let replicas = HandlerSpec { replicas: true, ..sql("many", "SELECT count(*) AS n FROM A") };
    let refused = context.manager().change(ChangeRequest::Deploy(replicas), false).unwrap().unwrap_err();
    assert!(refused.refusals.join("; ").contains("without replicas"), "{refused:?}");
    context.stop().unwrap();
}

/// The number before by key, the sum of the last three of a key, and how many there were.
const OVER: &str = "SELECT number, lag(number, 1, number) OVER (PARTITION BY k) AS before, \
    sum(number) OVER (PARTITION BY k ROWS 2 PRECEDING) AS three, row_number() OVER () AS n FROM A";

/// The rows of `OVER` of as many numbers.
fn with_rows_before(numbers: u64) -> Vec<Vec<u64>> {
    let row = |number: u64| {
        let of_key = [0, 7, 14].into_iter().filter_map(|less| number.checked_sub(less));
        vec![number, number.checked_sub(7).unwrap_or(number), of_key.sum(), number + 1]
    };
    (0..numbers).map(row).collect()
}

#[test]
fn values_over_rows_before_go_on_through_swaps_and_moves() {
    for way in TRANSPORTS {
        let (context, addr) = start(|_| {});
        let mut publisher = publisher_of(&addr, "A", &timed(), way);
        let small = |query: &str| HandlerSpec { peak_msgs_per_s: Some(10), ..sql("running", query) };
        change(&context, ChangeRequest::Deploy(small(OVER)));
        let readers = ["SELECT * FROM running", OVER].map(|query| {
            let mut subscriber = Subscriber::builder(&addr).transport(way).sql(query).connect().unwrap();
            std::thread::spawn(move || rows(&mut subscriber))
        });
        for round in 0..10 {
            publish_timed(&mut publisher, round * 100..(round + 1) * 100);
            publisher.flush().unwrap();
            let place = ["g-core-0", "g-core-1"][round as usize % 2];
            let moved = ChangeRequest::Move { handler: "running".into(), place: Some(place.into()) };
            // The other context may have no room for it; then it stays.
            let _ = context.manager().change(moved, false).unwrap();
            change(&context, ChangeRequest::Swap(small(&format!("{OVER} WHERE number >= {round} - {round}"))));
        }
        publisher.finish().unwrap();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), with_rows_before(1000), "{way:?}");
        }
        let info = until(&context, "running", |info| info.records_in == 1000);
        assert_eq!((info.taken, info.row_errors, info.faults), (1000, 0, 0), "{info:#?}");
        assert!(info.state_bytes > 0 && info.state_bytes <= info.state_bytes_bound, "{info:#?}");
        context.stop().unwrap();
    }
}

/// The handlers that run subscriptions' queries.
fn placed(context: &ContextHandle) -> Vec<HandlerInfo> {
    let mut handlers = context.manager().handlers().unwrap();
    handlers.retain(|info| info.name.starts_with("subscription-"));
    handlers
}

#[test]
fn subscribers_with_the_same_query_share_a_handler_that_goes_with_the_last() {
    let (context, addr) = start(|_| {});
    let mut publishers = ["A", "B"].map(|stream| publisher_of(&addr, stream, &timed(), Transport::Udp));
    let subscribe = |query: &str| Subscriber::builder(&addr).sql(query).connect().unwrap();
    let spaced = JOIN.replace(' ', "\n  ");
    let one = subscribe(JOIN);
    let other = subscribe(&spaced);
    let third = subscribe(&format!("{JOIN} WHERE a.number > 3"));
    assert_eq!(placed(&context).len(), 2);
    let lists = context.subscriptions().unwrap();
    assert!(lists.iter().all(|info| info.stream == "A, B" && info.handler.is_some()), "{lists:#?}");
    assert_eq!(lists[0].sql, JOIN);
    drop(third);
    while placed(&context).len() > 1 {
        std::thread::yield_now();
    }
    let readers = [one, other].map(|mut reader| std::thread::spawn(move || (unique(rows(&mut reader)), reader)));
    publishers.iter_mut().for_each(|publisher| publish_timed(publisher, 0..100));
    for publisher in publishers {
        publisher.finish().unwrap();
    }
    let [(found, one), (same, other)] = readers.map(|reader| reader.join().unwrap());
    assert!(found == pairs(100) && same == found, "{found:?}");
    drop(one);
    while context.subscriptions().unwrap().len() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(placed(&context).len(), 1, "the other takes what it makes still");
    drop(other);
    while !placed(&context).is_empty() {
        std::thread::yield_now();
    }
    context.stop().unwrap();
}

/// One that a handler reads, and another subscriber's query, goes once they have gone.
#[test]
fn a_shared_handler_that_others_read_goes_with_the_last_of_them() {
    let (context, addr) = start(|_| {});
    let _publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    let subscribe = |query: &str| Subscriber::builder(&addr).sql(query).connect().unwrap();
    let first = subscribe(WINDOW);
    let name = placed(&context)[0].name.clone();
    change(&context, ChangeRequest::Deploy(sql("reader", &format!("SELECT k, n FROM \"{name}\""))));
    let second = subscribe(&format!("SELECT k, count(*) AS n FROM \"{name}\" GROUP BY k"));
    drop(first);
    while context.subscriptions().unwrap().len() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(placed(&context).len(), 2, "it is read");
    drop(second);
    while placed(&context).len() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(placed(&context)[0].name, name);
    change(&context, ChangeRequest::Remove { handler: "reader".into() });
    while !placed(&context).is_empty() {
        std::thread::yield_now();
    }
    context.stop().unwrap();
}

#[test]
fn an_error_of_a_query_with_state_reaches_the_subscriber_with_its_place() {
    let (context, addr) = start(|_| {});
    let _publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    let refusal = |query: &str| Subscriber::builder(&addr).sql(query).connect().unwrap_err().to_string();
    let unknown = refusal("SELECT kk, count(*) AS n\nFROM A GROUP BY kk");
    assert!(unknown.contains("no column `kk`") && unknown.contains("line 2"), "{unknown}");
    let missing = refusal(JOIN);
    assert!(missing.contains("no stream `B`"), "{missing}");
    assert!(placed(&context).is_empty());
    let explained = context.explain("SELECT k, count(*) AS n FROM A GROUP BY k", &[]).unwrap().unwrap();
    assert!(explained.plan.contains("stream A") && explained.plan.contains("state"), "{}", explained.plan);
    context.stop().unwrap();
}

/// The clauses for a slow subscriber are its subscription's, not the shared handler's.
#[test]
fn a_slow_subscriber_of_a_query_with_state_has_clauses_of_its_own() {
    let (context, addr) = start(|_| {});
    let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    let clauses = ["", " ON SLOW DROP OLDEST", " MAX RATE 100000 PER SECOND ON SLOW SAMPLE 8"];
    let readers = clauses.map(|clauses| {
        let mut subscriber = Subscriber::builder(&addr).sql(format!("{WINDOW}{clauses}")).connect().unwrap();
        std::thread::spawn(move || unique(rows(&mut subscriber)))
    });
    let lists = context.subscriptions().unwrap();
    let overflows: Vec<String> = lists.iter().map(|info| info.overflow.to_lowercase()).collect();
    assert!(overflows[0].contains("block") && overflows[1].contains("drop"), "{overflows:?}");
    assert!(overflows[2].contains("sample"), "{overflows:?}");
    assert!(lists.iter().all(|info| info.stream == lists[0].stream), "one handler runs it: {lists:#?}");
    // A bound of its own makes it another query.
    let bound = format!("{WINDOW} ON SLOW DROP OLDEST MAX STATE 1 MB");
    let other = Subscriber::builder(&addr).sql(&*bound).connect().unwrap();
    let handlers = context.manager().handlers().unwrap();
    let bounds: BTreeSet<u64> = handlers.iter().map(|info| info.state_bytes_bound).collect();
    assert_eq!((handlers.len(), bounds), (2, BTreeSet::from([1 << 20, 256 << 20])), "{handlers:#?}");
    drop(other);
    publish_timed(&mut publisher, 0..1000);
    publisher.finish().unwrap();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), windows(1000));
    }
    context.stop().unwrap();
}

/// Windows by the time of arrival end though nothing more comes.
#[test]
fn a_window_of_arrival_ends_when_its_time_is_over() {
    for place in PLACES {
        let (context, addr) = start(|_| {});
        let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
        let query = "SELECT count(*) AS n FROM A GROUP BY TUMBLE(INTERVAL '100 milliseconds')";
        change(&context, ChangeRequest::Deploy(HandlerSpec { place: Some(place.into()), ..sql("counted", query) }));
        let mut subscriber = Subscriber::builder(&addr).sql("SELECT * FROM counted").connect().unwrap();
        publish_timed(&mut publisher, 0..100);
        publisher.flush().unwrap();
        let mut left = 100;
        // The publisher is there still, and its stream has not ended.
        while left > 0 {
            if let Some(Event::Records(records)) = subscriber.next_event(Some(PATIENCE)).unwrap() {
                for record in records.iter() {
                    let Value::Int(count) = record.get(0) else { panic!("{:?}", record.get(0)) };
                    left -= count;
                }
            }
        }
        assert_eq!(left, 0, "{place}");
        publisher.finish().unwrap();
        assert_eq!(rows(&mut subscriber), Vec::<Vec<u64>>::new());
        context.stop().unwrap();
    }
}

#[test]
fn another_value_of_a_parameter_is_another_version_that_keeps_the_state() {
    let (context, addr) = start(|_| {});
    let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    let query = "SELECT count(*) AS n FROM A WHERE number >= $least";
    let spec = HandlerSpec { place: Some("g-core-0".into()), ..sql("counted", query) };
    let parameters = |least: &str| BTreeMap::from([("least".to_owned(), least.to_owned())]);
    change(&context, ChangeRequest::Deploy(HandlerSpec { parameters: parameters("90"), ..spec }));
    publish_timed(&mut publisher, 0..100);
    publisher.flush().unwrap();
    until(&context, "counted", |info| info.taken == 10);
    let set = |least| ChangeRequest::SetParameters { handler: "counted".into(), parameters: parameters(least) };
    change(&context, set("0"));
    let mut subscriber = Subscriber::builder(&addr).sql("SELECT * FROM counted").connect().unwrap();
    publish_timed(&mut publisher, 0..5);
    publisher.finish().unwrap();
    let counts: Vec<u64> = rows(&mut subscriber).into_iter().map(|row| row[0]).collect();
    assert_eq!(counts, (11..=15).collect::<Vec<u64>>());
    context.stop().unwrap();
}

#[test]
fn a_query_with_state_is_restored_after_a_restart_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let begin = |directory: &Path| start(|config| config.morph.state_dir = Some(directory.to_owned()));
    let (context, addr) = begin(directory.path());
    let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    change(&context, ChangeRequest::Deploy(sql("counted", "SELECT count(*) AS n FROM A")));
    let events = context.manager().events(0).unwrap();
    let is_empty = |text: &str| text.contains("its state is empty");
    assert!(events.iter().any(|event| event.kind == "deployed" && is_empty(&event.text)), "{events:#?}");
    let other = Subscriber::builder(&addr).sql(WINDOW).connect().unwrap();
    publish_timed(&mut publisher, 0..100);
    publisher.finish().unwrap();
    until(&context, "counted", |info| info.taken == 100);
    context.stop().unwrap();
    // It goes on dialling its daemon's port, which the next daemon may get.
    drop(other);
    let (context, addr) = begin(directory.path());
    assert_eq!(context.not_restored(), &[] as &[String]);
    assert!(placed(&context).is_empty(), "subscriptions' queries are not kept");
    let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    // It is compiled for the format that is kept.
    let wanted = Subscriber::builder(&addr).sql("SELECT * FROM counted").wait_for_stream(PATIENCE);
    let mut subscriber = wanted.connect().unwrap();
    let events = context.manager().events(0).unwrap();
    assert!(!events.iter().any(|event| event.kind == "deployed" && is_empty(&event.text)), "{events:#?}");
    publish_timed(&mut publisher, 0..10);
    publisher.finish().unwrap();
    let counts: Vec<u64> = rows(&mut subscriber).into_iter().map(|row| row[0]).collect();
    assert_eq!(counts, (101..=110).collect::<Vec<u64>>());
    context.stop().unwrap();
}
