//! Formats of a stream that come while subscriptions to it come and go.

use super::{await_that, start};
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Event, Publisher, Subscriber};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FORMATS: u64 = 40;
const RECORDS: u64 = 25;

fn format(number: u64) -> Format {
    let more = format!("more{number}");
    Format::natural([FieldSpec::new("number", FieldType::U64), FieldSpec::new(more, FieldType::I32)]).unwrap()
}

/// Publishes records in a format that the stream has not had before.
fn publish(addr: &str, number: u64) {
    let format = format(number);
    let mut publisher = Publisher::builder(addr).stream("S").format(&format).connect().unwrap();
    let mut row = RecordBuilder::new(&format);
    for at in number * RECORDS..(number + 1) * RECORDS {
        row.clear();
        row.set(0, Value::Uint(at)).unwrap();
        row.set(1, Value::Int(1)).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
    publisher.finish().unwrap();
}

/// Takes some records; none is missing among them.
fn take_some(addr: &str, sql: &str, is_over: &AtomicBool) -> u64 {
    let mut subscriber = Subscriber::builder(addr).sql(sql).connect().unwrap();
    let (mut next, mut taken) = (None, 0);
    while taken < 2 * RECORDS {
        match subscriber.next_event(Some(Duration::from_millis(10))).unwrap() {
            Some(Event::Records(records)) => {
                for record in records.iter() {
                    let Value::Uint(number) = record.get(0) else { panic!("{:?}", record.get(0)) };
                    assert!(next.is_none_or(|next| next == number), "{number} came after {next:?}");
                    (next, taken) = (Some(number + 1), taken + 1);
                }
            }
            Some(Event::Dropped { records, reason, .. }) => panic!("{records} were dropped: {reason}"),
            Some(_) => {}
            None if is_over.load(Ordering::Acquire) => break,
            None => {}
        }
    }
    taken
}

#[test]
fn no_record_of_a_new_format_comes_before_the_queries_of_its_stream_are_planned_for_it() {
    // Measuring a query takes longer than the next format takes to come.
    let context = start(|config| config.platform.admit_subscriptions = false);
    let addr = context.local_addr().to_string();
    publish(&addr, 0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let queries = ["SELECT number FROM S", "SELECT number FROM S WHERE number + 1 > 0", "SELECT * FROM S"];
        let subscribers = queries.map(|sql| {
            scope.spawn(|| {
                let mut taken = 0;
                while !is_over.load(Ordering::Acquire) {
                    taken += take_some(&addr, sql, &is_over);
                }
                taken
            })
        });
        (1..FORMATS).for_each(|number| publish(&addr, number));
        is_over.store(true, Ordering::Release);
        let taken = subscribers.map(|subscriber| subscriber.join().unwrap());
        assert!(taken.iter().all(|taken| *taken > 0), "{taken:?} records");
    });
    let streams = context.streams().unwrap();
    assert_eq!(streams[0].formats.len() as u64, FORMATS);
    assert_eq!(streams[0].records_in, FORMATS * RECORDS);
}

/// Takes records until it has this number of them.
fn take(subscriber: &mut Subscriber, count: u64) {
    let mut taken = 0;
    while taken < count {
        match subscriber.next_event(Some(Duration::from_secs(20))).unwrap() {
            Some(Event::Records(records)) => taken += records.iter().count() as u64,
            Some(Event::Dropped { records, reason, .. }) => panic!("{records} were dropped: {reason}"),
            Some(_) => {}
            None => panic!("{taken} of {count} records came"),
        }
    }
}

#[test]
fn a_version_that_nobody_publishes_ages_out_of_a_stream_in_use_and_may_come_again() {
    let context = start(|config| config.unused_stream_expiry_s = 1);
    let addr = context.local_addr().to_string();
    publish(&addr, 0);
    let queries = ["SELECT number FROM S", "SELECT number FROM S WHERE number + 1 > 0", "SELECT * FROM S"];
    let mut subscribers = queries.map(|sql| Subscriber::builder(&addr).sql(sql).connect().unwrap());
    let newer = format(1);
    let publisher = Publisher::builder(&addr).stream("S").format(&newer).connect().unwrap();
    let versions = || {
        let formats = context.formats().unwrap();
        let mut versions: Vec<_> = formats.into_iter().flat_map(|format| format.versions).collect();
        versions.sort_unstable();
        versions
    };
    await_that("the first version is removed", || versions() == [2]);
    // Queries are planned for it once more.
    publish(&addr, 0);
    assert_eq!(versions(), [2, 3]);
    publish(&addr, 1);
    subscribers.iter_mut().for_each(|subscriber| take(subscriber, 2 * RECORDS));
    drop(publisher);
}
