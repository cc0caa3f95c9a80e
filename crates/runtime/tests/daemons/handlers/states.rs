//! States of streams: declared keys, snapshots, and changes behind them.

use super::*;
use crossdock_runtime::StateSpec;
use std::collections::BTreeMap;

pub(super) fn state_of(stream: &str, key: &str) -> HandlerSpec {
    HandlerSpec::of_state(stream, StateSpec { key: vec![key.to_owned()], ..StateSpec::default() })
}

pub(super) const STATE: &str = "state of N";

/// The number that a subscriber has for each group.
#[derive(Default)]
pub(super) struct Table {
    pub(super) numbers: BTreeMap<i64, u64>,
    pub(super) rows: usize,
}

impl Table {
    pub(super) fn take(&mut self, number: Value<'_>, group: Value<'_>, change: Option<Value<'_>>) {
        let (Value::Uint(number), Value::Int(group)) = (number, group) else { panic!("{number:?}, {group:?}") };
        let change = change.map(|change| match change {
            Value::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        });
        self.rows += 1;
        let before = match change.as_deref() {
            Some("leave") => self.numbers.remove(&group),
            _ => self.numbers.insert(group, number),
        };
        assert_eq!(before.is_some(), matches!(change.as_deref(), Some("update" | "leave")), "{change:?} of {group}");
    }
}

/// The table of all that comes up to the stream's end.
pub(super) fn table(subscriber: &mut Subscriber) -> Table {
    let mut table = Table::default();
    loop {
        match subscriber.next_event(Some(PATIENCE)).unwrap().expect("something comes") {
            Event::Records(records) => {
                records.iter().for_each(|record| table.take(record.get(0), record.get(1), record.field("_change")));
            }
            Event::StreamEnded { publishers_left: 0, finished, .. } => {
                assert!(finished);
                return table;
            }
            Event::Dropped { records, .. } => panic!("{records} were dropped"),
            _ => {}
        }
    }
}

/// The last numbers of the ten groups, of `numbers`, that are no multiple of `but`.
pub(super) fn last(numbers: u64, but: u64) -> BTreeMap<i64, u64> {
    let last = (numbers - 10..numbers).filter(|number| !number.is_multiple_of(but));
    last.map(|number| ((number % 10) as i64, number)).collect()
}

#[test]
fn a_snapshot_has_the_last_record_by_key_and_ends() {
    for way in TRANSPORTS {
        let (context, addr) = start(|_| {});
        change(&context, ChangeRequest::Deploy(state_of("N", "grp")));
        assert_eq!(until(&context, STATE, |info| info.status == "waiting").makes, STATE);
        let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
        publish(&mut publisher, 0, 1005);
        publisher.flush().unwrap();
        let info = until(&context, STATE, |info| info.taken == 1005);
        assert_eq!(
            (info.records_out, info.dropped.len(), &*info.program),
            (0, 0, "the last record of stream N by (grp)")
        );
        let subscribe = |sql: &str| Subscriber::builder(&addr).transport(way).sql(sql).connect().unwrap();
        assert_eq!(table(&mut subscribe("SELECT * FROM N SNAPSHOT")).numbers, last(1005, u64::MAX));
        let mut some = subscribe("SELECT number, grp FROM N n SNAPSHOT WHERE n.number % 7 <> 0");
        assert_eq!(table(&mut some).numbers, last(1005, 7), "{way:?}");
        // Its publishers need not be there any more.
        publisher.finish().unwrap();
        assert_eq!(table(&mut subscribe("SELECT * FROM N SNAPSHOT")).numbers, last(1005, u64::MAX), "{way:?}");
        context.stop().unwrap();
    }
}

#[test]
fn changes_follow_a_snapshot_without_a_gap_whenever_it_is_taken() {
    for (place, way) in PLACES.into_iter().zip(TRANSPORTS.into_iter().cycle()) {
        // A query for which its context has no time is refused, and the others are as fast as they can be here.
        let (context, addr) = start(|config| config.platform.admit_subscriptions = false);
        let mut publisher = connect(&addr);
        change(&context, ChangeRequest::Deploy(HandlerSpec { place: Some(place.into()), ..state_of("N", "grp") }));
        let mut readers = Vec::new();
        for step in 0..40 {
            publish(&mut publisher, step * 500, (step + 1) * 500);
            if step % 4 == 1 {
                let sql = "SELECT number, grp FROM N SNAPSHOT THEN CHANGES WHERE number % 7 <> 0";
                let reader = Subscriber::builder(&addr).transport(way).sql(sql).connect().unwrap();
                readers.push(std::thread::spawn(move || {
                    let mut reader = reader;
                    table(&mut reader)
                }));
            }
            if step == 20 {
                // It goes on with its state, and with the walk; where the other context has no time for it, it stays.
                let moved = PLACES.into_iter().find(|other| *other != place).map(str::to_owned);
                let moved = ChangeRequest::Move { handler: STATE.into(), place: moved };
                if let Err(plan) = context.manager().change(moved, false).unwrap() {
                    assert!(plan.refusals.iter().all(|refusal| refusal.contains(" ms/s at ")), "{plan:?}");
                }
            }
        }
        publisher.finish().unwrap();
        for reader in readers {
            let table = reader.join().unwrap();
            assert_eq!(table.numbers, last(20_000, 7), "{place} {way:?}");
            assert!(table.rows >= table.numbers.len());
        }
        context.stop().unwrap();
    }
}

#[test]
fn a_large_state_is_walked_over_while_it_changes() {
    let (context, addr) = start(|config| config.platform.admit_subscriptions = false);
    let mut publisher = connect(&addr);
    change(&context, ChangeRequest::Deploy(state_of("N", "number")));
    publish(&mut publisher, 0, 200_000);
    publisher.flush().unwrap();
    until(&context, STATE, |info| info.taken == 200_000);
    let sql = "SELECT number, grp FROM N SNAPSHOT THEN CHANGES";
    let mut reader = Subscriber::builder(&addr).sql(sql).connect().unwrap();
    let reader = std::thread::spawn(move || {
        let mut numbers = std::collections::BTreeSet::new();
        let (mut entered, mut updated) = (0, 0);
        loop {
            match reader.next_event(Some(PATIENCE)).unwrap().expect("something comes") {
                Event::Records(records) => records.iter().for_each(|record| {
                    let Value::Uint(number) = record.get(0) else { panic!("a number") };
                    match record.field("_change") {
                        Some(Value::Text(b"enter")) if numbers.insert(number) => entered += 1,
                        Some(Value::Text(b"update")) if numbers.contains(&number) => updated += 1,
                        other => panic!("{other:?} of {number}"),
                    }
                }),
                Event::StreamEnded { publishers_left: 0, .. } => return (entered, updated),
                Event::Dropped { records, .. } => panic!("{records} were dropped"),
                _ => {}
            }
        }
    });
    for from in (0..200_000).step_by(10_000) {
        // Some that the walk has passed, and some that it has not.
        publish(&mut publisher, from, from + 100);
        publish(&mut publisher, 199_900 - from, 200_000 - from);
        publish(&mut publisher, 200_000 + from, 200_000 + from + 100);
    }
    publisher.finish().unwrap();
    let (entered, updated) = reader.join().unwrap();
    assert_eq!(entered, 200_000 + 20 * 100);
    assert!(updated <= 40 * 100, "{updated}");
    context.stop().unwrap();
}

/// How many rows a subscriber of a state gets until that goes, and why there are no more.
fn to_the_loss(subscriber: &mut Subscriber) -> (usize, String) {
    let (mut rows, mut why) = (0, None);
    loop {
        match subscriber.next_event(Some(PATIENCE)).unwrap().expect("something comes") {
            Event::Records(records) => {
                assert!(why.is_none(), "nothing comes any more");
                rows += records.len();
            }
            Event::Unreadable { message } => why = Some(message),
            Event::StreamEnded { publishers_left: 0, finished: false, .. } => {
                return (rows, why.expect("it is said why"));
            }
            Event::Dropped { records, .. } => panic!("{records} were dropped"),
            _ => {}
        }
    }
}

fn remove(context: &ContextHandle) {
    change(context, ChangeRequest::Remove { handler: STATE.into() });
}

#[test]
fn a_snapshot_whose_state_is_withdrawn_before_it_is_complete_ends_and_says_why() {
    for way in TRANSPORTS {
        // A query for which its context has no time is refused.
        let (context, addr) = start(|config| {
            (config.queue_bytes, config.platform.admit_subscriptions) = (64 << 10, false);
        });
        let mut publisher = connect(&addr);
        change(&context, ChangeRequest::Deploy(state_of("N", "number")));
        publish(&mut publisher, 0, 300_000);
        publisher.flush().unwrap();
        until(&context, STATE, |info| info.taken == 300_000);
        let subscribe = |sql: &str| Subscriber::builder(&addr).transport(way).sql(sql).connect().unwrap();
        let mut live = subscribe("SELECT number FROM N SNAPSHOT THEN CHANGES WHERE number < 0");
        let mut complete = subscribe("SELECT number FROM N SNAPSHOT WHERE number < 100");
        assert_eq!(collect(&mut complete).len(), 100);
        // They take nothing, so that the walk does not come to its end.
        let mut waiting = ["", " THEN CHANGES"].map(|then| subscribe(&format!("SELECT * FROM N SNAPSHOT{then}")));
        remove(&context);
        for subscriber in &mut waiting {
            let (rows, why) = to_the_loss(subscriber);
            assert!(rows < 300_000, "{rows}");
            assert!(why.contains("state of stream `N` was withdrawn") && why.contains("streams set N --key"), "{why}");
        }
        assert_eq!(to_the_loss(&mut live).0, 0);
        // It ends once, whatever comes of the stream.
        publisher.finish().unwrap();
        for subscriber in waiting.iter_mut().chain([&mut live, &mut complete]) {
            let event = subscriber.next_event(Some(Duration::from_millis(1))).unwrap();
            assert!(!matches!(event, Some(Event::Records(_))), "{event:?}");
        }
        context.stop().unwrap();
    }
}

#[test]
fn a_subscription_that_waits_for_a_state_without_records_is_refused_when_that_goes() {
    let (context, addr) = start(|_| {});
    change(&context, ChangeRequest::Deploy(state_of("N", "number")));
    let waits = std::thread::spawn(move || {
        let builder = Subscriber::builder(&addr).sql("SELECT * FROM N SNAPSHOT").wait_for_stream(PATIENCE);
        builder.connect().unwrap_err().to_string()
    });
    while context.subscriptions().unwrap().is_empty() {
        std::thread::yield_now();
    }
    remove(&context);
    let why = waits.join().unwrap();
    assert!(why.contains("state of stream `N` was withdrawn"), "{why}");
    context.stop().unwrap();
}

/// The rows of the second state have a format of their own, for which each subscription has a handler of its own.
#[test]
fn another_key_after_another_format_ends_the_subscriptions_to_the_state_before() {
    let (context, addr) = start(|_| {});
    let (mut publisher, sql) = (connect(&addr), "SELECT number, grp FROM N SNAPSHOT THEN CHANGES");
    change(&context, ChangeRequest::Deploy(state_of("N", "grp")));
    publish(&mut publisher, 0, 100);
    publisher.flush().unwrap();
    until(&context, STATE, |info| info.taken == 100);
    let mut reader = Subscriber::builder(&addr).sql(sql).connect().unwrap();
    let mut other = Publisher::builder(&addr).stream("N").format(&wider()).connect().unwrap();
    publish_wider(&mut other, 100, 110);
    other.flush().unwrap();
    until(&context, STATE, |info| info.taken == 110);
    // It has what was there when it began: another key ends it at once.
    while context.subscriptions().unwrap()[0].records_out < 10 {
        std::thread::yield_now();
    }
    let discard = context.manager().change(ChangeRequest::Swap(state_of("N", "number")), true).unwrap();
    discard.map_err(|plan| plan.refusals).unwrap();
    publish_wider(&mut other, 110, 140);
    other.flush().unwrap();
    until(&context, STATE, |info| info.taken == 140 || info.taken == 30);
    let (rows, why) = to_the_loss(&mut reader);
    // Those of the first key: ten of the snapshot or its changes, and ten changes.
    assert!((10..=20).contains(&rows), "{rows}");
    assert!(why.contains("another key was declared"), "{why}");
    let mut next = Subscriber::builder(&addr).sql(sql).connect().unwrap();
    publisher.finish().unwrap();
    other.finish().unwrap();
    let mut numbers = collect(&mut next);
    numbers.sort_unstable();
    assert_eq!(numbers, (110..140).collect::<Vec<u64>>());
    context.stop().unwrap();
}

#[test]
fn the_first_rows_in_order_follow_the_state_whenever_they_are_asked_for() {
    for (place, way) in PLACES.into_iter().zip(TRANSPORTS.into_iter().cycle()) {
        let (context, addr) = start(|config| config.platform.admit_subscriptions = false);
        let mut publisher = connect(&addr);
        change(&context, ChangeRequest::Deploy(HandlerSpec { place: Some(place.into()), ..state_of("N", "grp") }));
        // The three of the last ten that are no multiple of 7 and whose remainder by 4 is greatest; of equal ones those of the least group.
        let wanted = |numbers| {
            let mut all: Vec<(i64, u64)> = last(numbers, 7).into_iter().collect();
            all.sort_by_key(|(group, number)| (std::cmp::Reverse(number % 4), *group));
            all.into_iter().take(3).collect::<Vec<_>>()
        };
        let sql = |snapshot| {
            format!("SELECT number, grp FROM N {snapshot} WHERE number % 7 <> 0 ORDER BY number % 4 DESC LIMIT 3")
        };
        let mut readers = Vec::new();
        for step in 0..20 {
            publish(&mut publisher, step * 500, (step + 1) * 500);
            if step % 4 == 1 {
                let sql = sql("SNAPSHOT THEN CHANGES");
                let reader = Subscriber::builder(&addr).transport(way).sql(&sql).connect().unwrap();
                readers.push(std::thread::spawn(move || {
                    let mut reader = reader;
                    table(&mut reader)
                }));
            }
            if step == 10 {
                let moved = PLACES.into_iter().find(|other| *other != place).map(str::to_owned);
                let moved = ChangeRequest::Move { handler: STATE.into(), place: moved };
                let state = StateSpec { key: vec!["grp".into()], max_keys: Some(50), ..StateSpec::default() };
                for change in [moved, ChangeRequest::Swap(HandlerSpec::of_state("N", state))] {
                    // Where the other context has no time for it, it stays.
                    if let Err(plan) = context.manager().change(change, false).unwrap() {
                        assert!(plan.refusals.iter().all(|refusal| refusal.contains(" ms/s at ")), "{plan:?}");
                    }
                }
            }
        }
        publisher.finish().unwrap();
        for reader in readers {
            let table = reader.join().unwrap();
            assert_eq!(table.numbers, wanted(10_000).into_iter().collect(), "{place} {way:?}");
        }
        // In order, and no more than that.
        let mut once = Subscriber::builder(&addr).transport(way).sql(sql("SNAPSHOT")).connect().unwrap();
        let numbers: Vec<u64> = wanted(10_000).into_iter().map(|(_, number)| number).collect();
        assert_eq!(collect(&mut once), numbers, "{place} {way:?}");
        context.stop().unwrap();
    }
}

#[test]
fn rows_in_order_have_room_or_are_refused_and_where_it_ends_the_subscriber_learns_why() {
    let (context, addr) = start(|config| config.platform.max_query_state_bytes = 250 << 20);
    let mut publisher = connect(&addr);
    let state =
        |max_bytes| StateSpec { key: vec!["number".into()], max_bytes: Some(max_bytes), ..StateSpec::default() };
    change(&context, ChangeRequest::Deploy(HandlerSpec::of_state("N", state(100 << 20))));
    publish(&mut publisher, 0, 100);
    publisher.flush().unwrap();
    until(&context, STATE, |info| info.taken == 100);
    let sql = "SELECT number, grp FROM N SNAPSHOT THEN CHANGES ORDER BY number LIMIT 3";
    let connect = |sql: &str| Subscriber::builder(&addr).sql(sql).connect();
    let first = connect(sql).unwrap();
    let refused = connect(sql).unwrap_err().to_string();
    assert!(refused.contains("may take 104857600 bytes") && refused.contains("max_query_state_bytes"), "{refused}");
    // Without changes only the first are kept.
    assert_eq!(collect(&mut connect("SELECT number FROM N SNAPSHOT ORDER BY number DESC LIMIT 2").unwrap()), [99, 98]);
    drop(first);
    let since = Instant::now();
    while let Err(why) = connect(sql) {
        assert!(since.elapsed() < PATIENCE, "{why}");
        std::thread::yield_now();
    }
    change(&context, ChangeRequest::Swap(HandlerSpec::of_state("N", state(1 << 16))));
    let long = "SELECT number, grp FROM N SNAPSHOT THEN CHANGES ORDER BY repeat('x', 4000) || number::text LIMIT 3";
    let mut long = connect(long).unwrap();
    let (mut why, mut has_ended) = (None, false);
    while !has_ended {
        match long.next_event(Some(PATIENCE)).unwrap().expect("something comes") {
            Event::Unreadable { message } => why = Some(message),
            Event::StreamEnded { finished, .. } => has_ended = !finished,
            Event::Records(records) => assert_eq!(records.iter().count(), 0, "there is no room for all that is there"),
            _ => {}
        }
    }
    let why = why.expect("a reason");
    assert!(why.contains("65536 bytes") && why.contains("--max-bytes"), "{why}");
    context.stop().unwrap();
}

#[test]
fn bounds_of_a_state_hold_and_can_be_changed_while_it_is_kept() {
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    let spec = |max_keys| {
        let state = StateSpec { key: vec!["NUMBER".into()], max_keys: Some(max_keys), ..StateSpec::default() };
        HandlerSpec::of_state("N", state)
    };
    change(&context, ChangeRequest::Deploy(spec(100)));
    publish(&mut publisher, 0, 1000);
    publisher.flush().unwrap();
    let info = until(&context, STATE, |info| info.taken == 1000);
    assert_eq!((info.forgotten, info.state_bytes_bound), (900, 256 << 20), "{info:#?}");
    assert!(info.plan.is_some_and(|plan| plan.contains("by number, 100 keys at most")));
    change(&context, ChangeRequest::Swap(spec(500)));
    publish(&mut publisher, 1000, 1300);
    publisher.flush().unwrap();
    until(&context, STATE, |info| info.taken == 1300);
    let mut reader = Subscriber::builder(&addr).sql("SELECT number FROM N SNAPSHOT").connect().unwrap();
    assert_eq!(collect(&mut reader).into_iter().collect::<std::collections::BTreeSet<u64>>(), (900..1300).collect());
    // Another key has another state: that is to be said.
    let other = context.manager().change(ChangeRequest::Swap(state_of("N", "grp")), false).unwrap().unwrap_err();
    assert!(other.refusals.iter().any(|why| why.contains("state")), "{other:?}");
    // One that does not fit beside the others.
    let state = StateSpec { key: vec!["grp".into()], max_bytes: Some(60 << 30), ..StateSpec::default() };
    let deploy = ChangeRequest::Deploy(HandlerSpec::of_state("M", state));
    let large = context.manager().change(deploy, false).unwrap().unwrap_err();
    assert!(large.refusals.iter().any(|why| why.contains("max_query_state_bytes")), "{large:?}");
    context.stop().unwrap();
}

#[test]
fn an_error_says_where_and_what_would_be_accepted() {
    let (context, addr) = start(|_| {});
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 10);
    publisher.flush().unwrap();
    let refusal = |sql: &str| Subscriber::builder(&addr).sql(sql).connect().unwrap_err().to_string();
    let none = refusal("SELECT * FROM N SNAPSHOT");
    assert!(
        none.contains("no key") && none.contains("streams set N --key") && none.contains("line 1, column 17"),
        "{none}"
    );
    change(&context, ChangeRequest::Deploy(state_of("N", "grp")));
    let of_state = refusal("SELECT * FROM \"state of N\"");
    assert!(of_state.contains("SNAPSHOT"), "{of_state}");
    let column = refusal("SELECT nmber FROM N SNAPSHOT");
    assert!(column.contains("nmber") && column.contains("number"), "{column}");
    let dropping =
        Subscriber::builder(&addr).sql("SELECT * FROM N SNAPSHOT").overflow(crossdock_nectarine::Overflow::DropOldest);
    let dropping = dropping.connect().unwrap_err().to_string();
    assert!(dropping.contains("every record"), "{dropping}");
    let reader = ChangeRequest::Deploy(sql("reads", "SELECT * FROM \"state of N\""));
    let reader = context.manager().change(reader, false).unwrap().unwrap_err();
    assert!(reader.refusals[0].contains("SNAPSHOT"), "{reader:?}");
    let named = ChangeRequest::Deploy(sql("state of M", "SELECT * FROM N"));
    let named = context.manager().change(named, false).unwrap().unwrap_err();
    assert!(named.refusals[0].contains("streams' states"), "{named:?}");
    let key = ChangeRequest::Deploy(state_of("N", "group"));
    context.manager().change(ChangeRequest::Remove { handler: STATE.into() }, true).unwrap().unwrap();
    let key = context.manager().change(key, false).unwrap().unwrap_err();
    assert!(key.refusals[0].contains("column `group`") && key.refusals[0].contains("number, grp"), "{key:?}");
    context.stop().unwrap();
}

/// All records of a publisher that declares the key go into the state, from the first one on.
#[test]
fn a_key_that_a_publisher_declares_is_that_of_its_first_record() {
    for way in TRANSPORTS {
        let (context, addr) = start(|_| {});
        let publisher = |key: &[&str]| {
            let builder = Publisher::builder(&addr).transport(way).stream("N").format(&numbers());
            builder.key(key.iter().copied()).connect()
        };
        let mut first = publisher(&["grp"]).unwrap();
        publish(&mut first, 0, 15);
        // The first key stands, whatever others declare; with the same one, or without one, they publish.
        let why = publisher(&["number"]).unwrap_err().to_string();
        assert!(why.contains("stream `N` has the key (grp), and its publisher declares (number)"), "{way:?}: {why}");
        let events = context.manager().events(0).unwrap();
        assert!(
            events.iter().any(|event| event.kind == "refused" && event.text.contains("has the key (grp)")),
            "{events:?}"
        );
        let why = publisher(&["no such column"]).unwrap_err().to_string();
        assert!(why.contains("has the key (grp)"), "{way:?}: {why}");
        let mut second = publisher(&["GRP"]).unwrap();
        publish(&mut second, 15, 30);
        second.finish().unwrap();
        publisher(&[]).unwrap().finish().unwrap();
        first.flush().unwrap();
        until(&context, STATE, |info| info.taken == 30);
        let mut once = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N SNAPSHOT").connect().unwrap();
        let groups: Vec<i64> = table(&mut once).numbers.into_keys().collect();
        assert_eq!(groups, (0..10).collect::<Vec<i64>>(), "{way:?}");
        context.stop().unwrap();
    }
}

#[test]
fn a_key_that_is_declared_already_stands_and_one_that_does_not_fit_is_refused() {
    let (context, addr) = start(|_| {});
    let publisher = |stream: &str, key: &[&str]| {
        Publisher::builder(&addr).stream(stream).format(&numbers()).key(key.iter().copied()).connect()
    };
    change(&context, ChangeRequest::Deploy(state_of("N", "number")));
    let why = publisher("N", &["grp"]).unwrap_err().to_string();
    assert!(why.contains("has the key (number)"), "{why}");
    let mut fitting = publisher("N", &["number"]).unwrap();
    publish(&mut fitting, 0, 3);
    fitting.finish().unwrap();
    for (key, wanted) in [(&["nothing"][..], "nothing"), (&[""], "a stream's key has 1 to 16 columns")] {
        let why = publisher("M", key).unwrap_err().to_string();
        assert!(why.contains(wanted), "{why}");
    }
    // Its stream is free for another.
    let mut other = publisher("M", &["grp", "number"]).unwrap();
    publish(&mut other, 0, 3);
    other.finish().unwrap();
    until(&context, "state of M", |info| info.taken == 3);
    context.stop().unwrap();
}
