//! Subscribers of a stream's state that stop reading: with `ON SLOW` nobody waits for them, and their tables are those of the query.

use super::states::state_of;
use super::*;
use crate::slow::balanced;
use crossdock_nectarine::{DropCause, Error, Overflow};
use crossdock_runtime::StateSpec;

const KEYS: u64 = 2000;
const CONFLATES: &str =
    "SELECT number, grp FROM N SNAPSHOT THEN CHANGES WHERE number % 7 <> 0 ON SLOW CONFLATE BY (grp)";

/// With a queue that is full soon.
fn start_small() -> (ContextHandle, String) {
    start(|config| (config.queue_bytes, config.platform.admit_subscriptions) = (256 << 10, false))
}

/// Publishes numbers whose groups are their remainders by `keys`.
fn publish_of(publisher: &mut Publisher, numbers: std::ops::Range<u64>, keys: u64) {
    let mut row = RecordBuilder::new(publisher.format());
    for number in numbers {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Int((number % keys) as i64)).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
}

/// The last number of each group of the first `count` numbers, that are no multiple of 7.
fn wanted(count: u64, keys: u64) -> BTreeMap<i64, u64> {
    let last = (count.saturating_sub(keys)..count).filter(|number| number % 7 != 0);
    last.map(|number| ((number % keys) as i64, number)).collect()
}

/// The table that a subscriber makes of what it gets.
#[derive(Default)]
struct Reading {
    table: BTreeMap<i64, u64>,
    changes: u64,
    conflated: u64,
    unreadable: Vec<String>,
    /// Whether its stream had finished, once it has ended.
    ended: Option<bool>,
}

impl Reading {
    fn take(&mut self, event: Event) {
        match event {
            Event::Records(records) => records.iter().for_each(|record| {
                let (Value::Uint(number), Value::Int(group)) = (record.get(0), record.get(1)) else { panic!("a row") };
                let change = record.field("_change");
                let had = match change {
                    Some(Value::Text(b"leave")) => self.table.remove(&group),
                    _ => self.table.insert(group, number),
                };
                assert_eq!(had.is_some(), change != Some(Value::Text(b"enter")), "{change:?} of {group}");
                self.changes += 1;
            }),
            Event::Dropped { records, cause: DropCause::Conflated, .. } => self.conflated += records,
            Event::Dropped { records, cause, .. } => assert!(self.ended.is_none(), "{records} for {cause}"),
            Event::Unreadable { message } => self.unreadable.push(message),
            Event::StreamEnded { publishers_left: 0, finished, .. } => self.ended = Some(finished),
            _ => {}
        }
    }

    fn to_the_end(subscriber: &mut Subscriber) -> Reading {
        let mut reading = Reading::default();
        while reading.ended.is_none() {
            reading.take(subscriber.next_event(Some(PATIENCE)).unwrap().expect("something comes"));
        }
        reading
    }
}

fn follow_aside(addr: &str, way: Transport, sql: &str) -> std::thread::JoinHandle<Reading> {
    let mut subscriber = Subscriber::builder(addr).transport(way).sql(sql).connect().unwrap();
    std::thread::spawn(move || Reading::to_the_end(&mut subscriber))
}

#[test]
fn a_subscriber_that_stops_reading_gets_one_change_of_each_row_and_nobody_waits() {
    const COUNT: u64 = 400_000;
    for (place, way) in PLACES.into_iter().zip(TRANSPORTS.into_iter().cycle()) {
        let (context, addr) = start_small();
        let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
        change(&context, ChangeRequest::Deploy(HandlerSpec { place: Some(place.into()), ..state_of("N", "grp") }));
        let mut slow = Subscriber::builder(&addr).transport(way).sql(CONFLATES).connect().unwrap();
        let plain = CONFLATES.split(" ON SLOW").next().unwrap();
        let other = follow_aside(&addr, way, plain);
        publish_of(&mut publisher, 0..COUNT / 2, KEYS);
        // Its state goes on in the next version, and the subscriber's changes wait on.
        let (key, max_keys) = (vec!["grp".to_owned()], Some(10 * KEYS));
        let state = StateSpec { key, max_keys, ..StateSpec::default() };
        let spec = HandlerSpec { place: Some(place.into()), ..HandlerSpec::of_state("N", state) };
        // Where its context has no time for it at this rate, the first version stays.
        if let Err(plan) = context.manager().change(ChangeRequest::Swap(spec), false).unwrap() {
            assert!(plan.refusals.iter().all(|refusal| refusal.contains(" ms/s at ")), "{plan:?}");
        }
        publish_of(&mut publisher, COUNT / 2..COUNT, KEYS);
        publisher.finish().unwrap();
        // The slow one has taken nothing so far.
        let other = other.join().unwrap();
        assert_eq!(
            (other.table, other.ended, other.conflated),
            (wanted(COUNT, KEYS), Some(true), 0),
            "{place} {way:?}"
        );
        balanced(&context);
        let reading = Reading::to_the_end(&mut slow);
        assert_eq!((&reading.table, reading.ended), (&wanted(COUNT, KEYS), Some(true)), "{place} {way:?}");
        let infos = balanced(&context);
        let of = infos.iter().find(|of| of.overflow == "conflate by (grp)").unwrap();
        assert_eq!((of.in_flight, of.dropped, of.row_errors), (0, 0, 0), "{of:?}");
        assert!(of.conflated > 0, "{of:?}");
        assert_eq!((of.records_out, of.conflated), (reading.changes, reading.conflated), "{place} {way:?}");
        context.stop().unwrap();
    }
}

/// A record that comes among the first gives two: the one that leaves, and itself.
#[test]
fn the_account_of_a_subscriber_of_the_first_rows_balances() {
    const COUNT: u64 = 5000;
    for clause in ["", " ON SLOW CONFLATE BY (grp)"] {
        let (context, addr) = start_small();
        let mut publisher = connect(&addr);
        change(&context, ChangeRequest::Deploy(state_of("N", "grp")));
        publish_of(&mut publisher, 0..100, 2 * COUNT);
        publisher.flush().unwrap();
        until(&context, super::states::STATE, |info| info.taken == 100);
        let sql = format!("SELECT number, grp FROM N SNAPSHOT THEN CHANGES ORDER BY number DESC LIMIT 5{clause}");
        let mut first = Subscriber::builder(&addr).sql(sql).connect().unwrap();
        // The one for which the publisher would wait reads at once.
        let waits = !clause.is_empty();
        let (finished, is_finished) = std::sync::mpsc::channel::<()>();
        let reading = std::thread::spawn(move || {
            if waits {
                is_finished.recv().unwrap();
            }
            (Reading::to_the_end(&mut first), first)
        });
        publish_of(&mut publisher, 100..COUNT, 2 * COUNT);
        publisher.finish().unwrap();
        finished.send(()).ok();
        let (reading, _first) = reading.join().unwrap();
        let wanted = (COUNT - 5..COUNT).map(|number| (number as i64, number));
        assert!(reading.table.iter().map(|(key, number)| (*key, *number)).eq(wanted), "{:?}", reading.table);
        let infos = balanced(&context);
        let of = infos.iter().find(|of| of.sql.contains("ORDER BY")).unwrap();
        assert_eq!((of.records_out, of.in_flight), (reading.changes, 0), "{of:?}");
        assert!(of.records_out + of.conflated > COUNT, "{of:?}");
        context.stop().unwrap();
    }
}

/// The walk over the state does not wait for a subscriber that takes nothing, and nor does what changes meanwhile.
#[test]
fn a_snapshot_of_many_rows_is_whole_however_slowly_it_is_taken() {
    const COUNT: u64 = 200_000;
    for (place, clause) in
        [("c-core-0", "CONFLATE BY (grp)"), ("g-core-0", "CONFLATE BY (grp)"), ("g-core-0", "DISCONNECT")]
    {
        let (context, addr) = start_small();
        let mut publisher = connect(&addr);
        change(&context, ChangeRequest::Deploy(HandlerSpec { place: Some(place.into()), ..state_of("N", "grp") }));
        publish_of(&mut publisher, 0..COUNT, COUNT);
        publisher.flush().unwrap();
        until(&context, super::states::STATE, |info| info.taken == COUNT);
        let sql =
            |clause: &str| format!("SELECT number, grp FROM N SNAPSHOT THEN CHANGES WHERE number % 7 <> 0 {clause}");
        let mut slow = Subscriber::builder(&addr).sql(sql(&format!("ON SLOW {clause}"))).connect().unwrap();
        let other = follow_aside(&addr, Transport::Udp, &sql(""));
        let count = 2 * COUNT;
        publish_of(&mut publisher, COUNT..count, COUNT);
        // Others have all of it before it takes anything.
        publisher.finish().unwrap();
        assert_eq!(other.join().unwrap().table, wanted(count, COUNT), "{place} {clause}");
        balanced(&context);
        let reading = Reading::to_the_end(&mut slow);
        assert_eq!((&reading.unreadable[..], reading.ended), (&[][..], Some(true)), "{place} {clause}");
        assert_eq!(reading.table, wanted(count, COUNT), "{place} {clause}");
        balanced(&context);
        context.stop().unwrap();
    }
}

#[test]
fn past_the_bound_the_subscription_ends_with_a_reason_or_the_session_does() {
    const COUNT: u64 = 200_000;
    let (context, addr) = start_small();
    let mut publisher = connect(&addr);
    let key = vec!["grp".to_owned()];
    let state = StateSpec { key, max_bytes: Some(1 << 20), ..StateSpec::default() };
    change(&context, ChangeRequest::Deploy(HandlerSpec::of_state("N", state)));
    // The rows are longer than the records that the state keeps.
    let of = "SELECT number, grp, repeat('x', 2000) AS pad FROM N SNAPSHOT THEN CHANGES WHERE number % 7 <> 0";
    let connect = |clause: &str| Subscriber::builder(&addr).sql(format!("{of} {clause}")).connect().unwrap();
    let (mut conflates, mut disconnects) = (connect("ON SLOW CONFLATE BY (grp)"), connect("ON SLOW DISCONNECT"));
    let mut asked = Subscriber::builder(&addr).sql(of).overflow(Overflow::Disconnect).connect().unwrap();
    let other =
        follow_aside(&addr, Transport::Udp, "SELECT number, grp FROM N SNAPSHOT THEN CHANGES WHERE number % 7 <> 0");
    publish_of(&mut publisher, 0..COUNT, 5000);
    publisher.finish().unwrap();
    assert_eq!(other.join().unwrap().table, wanted(COUNT, 5000));
    for subscriber in [&mut disconnects, &mut asked] {
        let error = loop {
            if let Err(error) = subscriber.next_event(Some(PATIENCE)) {
                break error;
            }
        };
        assert!(matches!(&error, Error::Closed(reason) if reason.contains("policy is disconnect")), "{error}");
    }
    let reading = Reading::to_the_end(&mut conflates);
    assert_eq!((reading.ended, reading.unreadable.len()), (Some(false), 1), "{:?}", reading.unreadable);
    assert!(reading.unreadable[0].contains("the subscriber is too slow"), "{:?}", reading.unreadable);
    let infos = balanced(&context);
    assert!(infos.iter().any(|of| of.dropped > 0 && of.in_flight == 0), "{infos:?}");
    context.stop().unwrap();
}
