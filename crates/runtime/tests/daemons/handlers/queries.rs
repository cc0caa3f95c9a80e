//! Queries of subscriptions that are changed while records flow.

use super::states::{Table, last, state_of};
use super::*;
use crossdock_runtime::SetQueryError;
use crossdock_runtime::info::SubscriptionInfo;

/// The subscription with this query, once it has one.
fn subscription(context: &ContextHandle, sql: &str) -> SubscriptionInfo {
    let began = Instant::now();
    loop {
        let all = context.subscriptions().unwrap();
        match all.iter().find(|of| of.sql == sql) {
            Some(of) => return of.clone(),
            None => assert!(began.elapsed() < PATIENCE, "{all:?}"),
        }
    }
}

/// The query with this number: its records have that, and another format each second time.
fn tagged(query: u64) -> String {
    let more = if query.is_multiple_of(2) { "" } else { ", grp" };
    format!("SELECT number, {query} AS query{more} FROM N WHERE number % {query} = 0")
}

const CHANGES: u64 = 40;

#[test]
fn each_record_is_seen_by_the_query_before_or_by_the_next_one() {
    for way in TRANSPORTS {
        let (context, addr) = start(|config| config.platform.admit_subscriptions = false);
        let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
        let mut reader = Subscriber::builder(&addr).transport(way).sql(tagged(1)).connect().unwrap();
        let id = subscription(&context, &tagged(1)).id;
        let reader = std::thread::spawn(move || {
            let (mut got, mut formats) = (Vec::new(), 0);
            loop {
                match reader.next_event(Some(PATIENCE)).unwrap().expect("something comes") {
                    Event::Records(records) => records.iter().for_each(|record| {
                        let (Value::Uint(number), Value::Int(query)) = (record.get(0), record.get(1)) else {
                            panic!("{record:?}")
                        };
                        assert_eq!(record.format().fields().len(), if query % 2 == 0 { 2 } else { 3 });
                        got.push((number, query as u64));
                    }),
                    Event::Format(_) => formats += 1,
                    Event::StreamEnded { publishers_left: 0, finished, .. } => {
                        assert!(finished && formats > 0);
                        return (got, reader);
                    }
                    Event::Dropped { records, .. } => panic!("{records} were dropped"),
                    _ => {}
                }
            }
        });
        for query in 2..=CHANGES {
            publish(&mut publisher, (query - 2) * 1000, (query - 1) * 1000);
            context.set_subscription_query(id, &tagged(query)).unwrap().unwrap();
        }
        let records = CHANGES * 1000;
        publish(&mut publisher, (CHANGES - 1) * 1000, records);
        publisher.finish().unwrap();
        let (got, _reader) = reader.join().unwrap();
        let (mut next, mut query) = (0, 1);
        for &(number, by) in got.iter().chain([&(records, CHANGES)]) {
            assert!(number >= next && by >= query && (number == records || number % by == 0), "{number} by {by}");
            // The missing ones were seen by a query whose condition does not hold.
            for missing in next..number {
                assert!(
                    (query..=by).any(|query| missing % query != 0),
                    "{missing} is missing between {query} and {by}"
                );
            }
            (next, query) = (number + 1, by);
        }
        let of = subscription(&context, &tagged(CHANGES));
        assert_eq!((of.id, of.published, of.in_flight), (id, records, 0));
        assert_eq!(of.published, of.records_out + of.filtered, "{of:?}");
        assert_eq!(of.records_out, got.len() as u64);
        context.stop().unwrap();
    }
}

/// A subscriber that sets the next one of its queries as often as that is possible, and its table.
struct Changing {
    subscriber: Subscriber,
    queries: Vec<String>,
    table: Table,
    query: usize,
    changes: usize,
}

impl Changing {
    fn connect(addr: &str, way: Transport, queries: Vec<String>) -> Changing {
        let subscriber = Subscriber::builder(addr).transport(way).sql(&queries[0]).connect().unwrap();
        Changing { subscriber, queries, table: Table::default(), query: 0, changes: 0 }
    }

    /// Takes what comes next; whether it is the stream's end.
    fn take(&mut self) -> bool {
        match self.subscriber.next_event(Some(PATIENCE)).unwrap().expect("something comes") {
            Event::Records(records) => {
                for record in records.iter() {
                    self.table.take(record.get(0), record.get(1), record.field("_change"));
                }
                false
            }
            Event::StreamEnded { publishers_left: 0, finished, .. } => {
                assert!(finished);
                true
            }
            Event::Dropped { records, .. } => panic!("{records} were dropped"),
            _ => false,
        }
    }

    fn read_to_the_end(mut self) -> Changing {
        let mut due = 20;
        while !self.take() {
            if self.table.rows < due {
                continue;
            }
            let next = (self.query + 1) % self.queries.len();
            match self.subscriber.set_query(&self.queries[next]) {
                Ok(()) => (self.query, self.changes) = (next, self.changes + 1),
                // The difference to the one before is not complete.
                Err(why) => assert!(why.to_string().contains("try again behind that"), "{why}"),
            }
            due = self.table.rows + 20;
        }
        self
    }

    /// Checks the table, once the difference to a query has come that was set as the end was on its way.
    fn check(mut self, wanted: &BTreeMap<i64, u64>) {
        while self.table.numbers != *wanted {
            let _ = self.take();
        }
        assert!(self.changes > 0);
    }
}

#[test]
fn a_table_of_changes_equals_the_query_that_was_set_last() {
    for (place, way) in PLACES.into_iter().zip(TRANSPORTS.into_iter().cycle()) {
        let (context, addr) = start(|config| config.platform.admit_subscriptions = false);
        let mut publisher = connect(&addr);
        change(&context, ChangeRequest::Deploy(HandlerSpec { place: Some(place.into()), ..state_of("N", "grp") }));
        publish(&mut publisher, 0, 100);
        let all = |condition: &str| format!("SELECT number, grp FROM N SNAPSHOT THEN CHANGES{condition}");
        let conditions = [" WHERE number % 7 <> 0", "", " WHERE number % 3 <> 0"].map(all);
        let first = ["number % 4 DESC LIMIT 3", "number DESC LIMIT 5"].map(|order| all(&format!(" ORDER BY {order}")));
        let follow = |queries: &[String]| {
            let changing = Changing::connect(&addr, way, queries.to_vec());
            std::thread::spawn(move || changing.read_to_the_end())
        };
        let (reader, ordered) = (follow(&conditions), follow(&first));
        for step in 0..100 {
            publish(&mut publisher, 100 + step * 200, 300 + step * 200);
        }
        publisher.finish().unwrap();
        let numbers = 100 + 100 * 200;
        let reader = reader.join().unwrap();
        let wanted = last(numbers, [7, u64::MAX, 3][reader.query]);
        reader.check(&wanted);
        let ordered = ordered.join().unwrap();
        let mut rows: Vec<(i64, u64)> = last(numbers, u64::MAX).into_iter().collect();
        match ordered.query {
            0 => rows.sort_by_key(|(group, number)| (std::cmp::Reverse(number % 4), *group)),
            _ => rows.sort_by_key(|(_, number)| std::cmp::Reverse(*number)),
        }
        rows.truncate([3, 5][ordered.query]);
        ordered.check(&rows.into_iter().collect());
        context.stop().unwrap();
    }
}

/// Nothing but the difference comes: nobody publishes meanwhile.
#[test]
fn the_difference_of_a_state_is_given_without_records() {
    for way in TRANSPORTS {
        let (context, addr) = start(|config| config.platform.admit_subscriptions = false);
        let mut publisher = connect(&addr);
        change(&context, ChangeRequest::Deploy(state_of("N", "number")));
        publish(&mut publisher, 0, 1000);
        publisher.flush().unwrap();
        until(&context, super::states::STATE, |info| info.taken == 1000);
        let sql = |condition: &str| format!("SELECT number, grp FROM N SNAPSHOT THEN CHANGES WHERE {condition}");
        let mut reader = Subscriber::builder(&addr).transport(way).sql(sql("number < 600")).connect().unwrap();
        let take = |reader: &mut Subscriber, wanted: usize| {
            let mut rows: Vec<(String, u64)> = Vec::new();
            while rows.len() < wanted {
                let event = reader.next_event(Some(PATIENCE)).unwrap().expect("something comes");
                let Event::Records(records) = event else { continue };
                rows.extend(records.iter().map(|record| match (record.field("_change"), record.get(0)) {
                    (Some(Value::Text(change)), Value::Uint(number)) => {
                        (String::from_utf8(change.to_vec()).unwrap(), number)
                    }
                    other => panic!("{other:?}"),
                }));
            }
            rows.sort();
            rows
        };
        let of =
            |change: &str, numbers: std::ops::Range<u64>| numbers.map(|n| (change.to_owned(), n)).collect::<Vec<_>>();
        assert_eq!(take(&mut reader, 600), of("enter", 0..600));
        let began = Instant::now();
        // The end of its snapshot may be on its way.
        while let Err(why) = reader.set_query(sql("number >= 500")) {
            assert!(why.to_string().contains("try again") && began.elapsed() < PATIENCE, "{why}");
        }
        let difference = [of("enter", 600..1000), of("leave", 0..500)].concat();
        assert_eq!(take(&mut reader, 900), difference, "{way:?}");
        publish(&mut publisher, 400, 501);
        publisher.finish().unwrap();
        assert_eq!(take(&mut reader, 1), of("update", 500..501));
        context.stop().unwrap();
    }
}

#[test]
fn a_query_that_cannot_take_the_place_is_refused_with_the_place_and_the_one_before_stays() {
    let (context, addr) = start(|config| config.platform.admit_subscriptions = false);
    let mut publisher = connect(&addr);
    let mut other = Publisher::builder(&addr).stream("M").format(&numbers()).connect().unwrap();
    publish(&mut other, 0, 1);
    change(&context, ChangeRequest::Deploy(state_of("N", "grp")));
    publish(&mut publisher, 0, 20);
    publisher.flush().unwrap();
    until(&context, super::states::STATE, |info| info.taken == 20);
    let subscribe = |sql: &str| Subscriber::builder(&addr).sql(sql).connect().unwrap();
    let (plain, state) = ("SELECT number FROM N", "SELECT number, grp FROM N SNAPSHOT THEN CHANGES");
    let (mut of_plain, mut of_state) = (subscribe(plain), subscribe(state));
    // It has all that is there.
    while context.subscriptions().unwrap().iter().all(|of| of.sql != state || of.records_out < 10) {
        std::thread::yield_now();
    }
    for (sql, says) in [
        ("SELECT number FROM N WHERE nmber > 3", "line 1, column 28: stream N has no column `nmber`"),
        ("SELECT number FROM M", "line 1, column 20: the subscription is one to stream `N`"),
        ("SELECT number FROM N SNAPSHOT", "line 1, column 22: the query before is one without SNAPSHOT"),
        ("SELECT number FROM N MAX RATE 3 PER SECOND", "MAX RATE stays"),
        ("SELECT grp, count(*) AS n FROM N GROUP BY grp", "joins, groups or windows"),
    ] {
        let why = of_plain.set_query(sql).unwrap_err().to_string();
        assert!(why.contains(says), "{sql}: {why}");
    }
    for (sql, says) in [
        ("SELECT number FROM N SNAPSHOT THEN CHANGES", "keeps its columns"),
        ("SELECT number, grp * 2 AS grp FROM N SNAPSHOT THEN CHANGES", "line 1, column 16"),
        ("SELECT number, grp FROM N", "the query before is one with SNAPSHOT THEN CHANGES"),
        ("SELECT number, grp FROM N SNAPSHOT THEN CHANGES DELTA", "with SNAPSHOT THEN CHANGES DELTA"),
        ("SELECT number, grp FROM N SNAPSHOT THEN CHANGES ORDER BY number LIMIT 3", "neither added nor taken away"),
    ] {
        let why = of_state.set_query(sql).unwrap_err().to_string();
        assert!(why.contains(says), "{sql}: {why}");
    }
    let id = subscription(&context, plain).id;
    let refused = |id, sql| context.set_subscription_query(id, sql).unwrap().unwrap_err();
    assert_eq!(refused(10_000, plain), SetQueryError::UnknownSubscription);
    assert!(matches!(refused(id, "SELECT"), SetQueryError::Query(_)));
    publish(&mut publisher, 20, 25);
    publisher.finish().unwrap();
    assert_eq!(collect(&mut of_plain), (20..25).collect::<Vec<_>>());
    context.stop().unwrap();
}

/// The first key, for which it was planned, would not hold of the rows that it is to get.
#[test]
fn a_reader_that_has_not_begun_is_refused_when_another_key_is_declared() {
    let (context, addr) = start(|_| {});
    change(&context, ChangeRequest::Deploy(state_of("N", "grp")));
    let sql = "SELECT * FROM N SNAPSHOT THEN CHANGES";
    let address = addr.clone();
    let waits = std::thread::spawn(move || {
        let builder = Subscriber::builder(&address).sql(sql).wait_for_stream(PATIENCE);
        builder.connect().unwrap_err().to_string()
    });
    subscription(&context, sql);
    let discard = context.manager().change(ChangeRequest::Swap(state_of("N", "number")), true).unwrap();
    discard.map_err(|plan| plan.refusals).unwrap();
    let why = waits.join().unwrap();
    assert!(why.contains("another key was declared"), "{why}");
    // Other bounds are no other key.
    let waits = std::thread::spawn(move || {
        let builder = Subscriber::builder(&addr).sql(sql).wait_for_stream(PATIENCE);
        let mut subscriber = builder.connect().unwrap();
        collect(&mut subscriber).len()
    });
    subscription(&context, sql);
    let mut bounded = state_of("N", "number");
    bounded.state.iter_mut().for_each(|state| state.max_keys = Some(50));
    change(&context, ChangeRequest::Swap(bounded));
    let mut publisher = connect(&context.local_addr().to_string());
    publish(&mut publisher, 0, 20);
    publisher.finish().unwrap();
    assert_eq!(waits.join().unwrap(), 20);
    context.stop().unwrap();
}
