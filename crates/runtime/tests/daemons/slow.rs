//! Slow subscribers with clauses in their queries, over the real wire; and the ledger of each, at all times.

use crate::contexts::tries;
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{DropCause, Event, Overflow, Publisher, Subscriber, Transport};
use crossdock_runtime::info::SubscriptionInfo;
use crossdock_runtime::{ContextConfig, ContextHandle};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const KEYS: u64 = 10;

fn start() -> (ContextHandle, String) {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = ContextConfig { listen, queue_bytes: 256 << 10, ..ContextConfig::default() };
    config.platform.contexts.extend(crate::contexts::further());
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    (context, addr)
}

fn numbers() -> Format {
    let fields = [("number", FieldType::U64), ("grp", FieldType::U64), ("name", FieldType::String)];
    Format::natural(fields.map(|(name, ty)| FieldSpec::new(name, ty))).unwrap()
}

fn publisher(addr: &str, way: Transport) -> Publisher {
    Publisher::builder(addr).transport(way).stream("N").format(&numbers()).connect().unwrap()
}

fn publish(publisher: &mut Publisher, from: u64, to: u64) {
    let mut row = RecordBuilder::new(publisher.format());
    for number in from..to {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Uint(number % KEYS)).unwrap();
        row.set(2, Value::Text("abcdefghij".repeat(1 + (number % 30) as usize).as_bytes())).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
}

/// A subscriber, and what it was sent.
struct Reading {
    subscriber: Subscriber,
    came: Vec<u64>,
    dropped: BTreeMap<DropCause, u64>,
    has_ended: bool,
}

impl Reading {
    fn new(addr: &str, way: Transport, sql: &str) -> Reading {
        let subscriber = Subscriber::builder(addr).transport(way).sql(sql).connect().unwrap();
        Reading { subscriber, came: Vec::new(), dropped: BTreeMap::new(), has_ended: false }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Records(records) => self.came.extend(records.iter().map(|record| match record.get(0) {
                Value::Uint(number) => number,
                other => panic!("{other:?}"),
            })),
            Event::Dropped { records, cause, .. } => *self.dropped.entry(cause).or_default() += records,
            Event::StreamEnded { publishers_left, .. } => self.has_ended |= publishers_left == 0,
            Event::Format(_) => {}
            other => panic!("{other:?}"),
        }
    }

    fn take_present(&mut self) {
        while let Some(event) = self.subscriber.try_next_event().unwrap() {
            self.take(event);
        }
    }

    fn take_all(&mut self) {
        while !self.has_ended {
            let event = self.subscriber.next_event(Some(PATIENCE)).unwrap().expect("something within 20 s");
            self.take(event);
        }
    }
}

/// The reports of all subscriptions, whose ledgers balance to the record.
pub(crate) fn balanced(context: &ContextHandle) -> Vec<SubscriptionInfo> {
    let infos = context.subscriptions().unwrap();
    for of in &infos {
        let gone = of.filtered + of.taken + of.conflated + of.sampled + of.dropped + of.row_errors;
        assert_eq!(of.published + of.rows_made, of.records_out + gone + of.in_flight, "{of:?}");
    }
    infos
}

fn the_last_of_each_key_arrives_and_nobody_waits(way: Transport) {
    const COUNT: u64 = 100_000;
    let (context, addr) = start();
    let mut publisher = publisher(&addr, way);
    let mut slow = Reading::new(&addr, way, "SELECT number, name FROM N WHERE grp <> 3 ON SLOW CONFLATE BY (grp)");
    let mut other = Reading::new(&addr, way, "SELECT * FROM N");
    let reading = std::thread::spawn(move || {
        other.take_all();
        other
    });
    publish(&mut publisher, 0, COUNT);
    publisher.finish().unwrap();
    // The slow one has taken nothing so far.
    assert_eq!(reading.join().unwrap().came.len() as u64, COUNT);
    balanced(&context);
    slow.take_all();
    for key in (0..KEYS).filter(|key| *key != 3) {
        let of_key: Vec<u64> = slow.came.iter().copied().filter(|number| number % KEYS == key).collect();
        assert!(of_key.is_sorted());
        assert_eq!(of_key.last(), Some(&(COUNT - KEYS + key)));
    }
    let infos = balanced(&context);
    let of = infos.iter().find(|of| of.overflow == "conflate by (grp)").unwrap();
    assert_eq!((of.published, of.filtered, of.in_flight, of.dropped), (COUNT, COUNT / KEYS, 0, 0));
    assert!(of.conflated > 0);
    assert_eq!(
        (of.records_out, Some(&of.conflated)),
        (slow.came.len() as u64, slow.dropped.get(&DropCause::Conflated))
    );
}

#[test]
fn the_last_of_each_key_arrives_and_nobody_waits_by_packets() {
    the_last_of_each_key_arrives_and_nobody_waits(Transport::Udp);
}

#[test]
fn the_last_of_each_key_arrives_and_nobody_waits_by_shared_memory() {
    the_last_of_each_key_arrives_and_nobody_waits(Transport::Shm);
}

/// The query's clause and the request beside it are one setting.
#[test]
fn the_clause_and_the_request_may_not_differ() {
    let (context, addr) = start();
    let _publisher = publisher(&addr, Transport::Udp);
    let ask = |clause: &str, overflow: Overflow| {
        let sql = format!("SELECT * FROM N {clause}");
        Subscriber::builder(&addr).sql(sql).overflow(overflow).connect()
    };
    let _same = ask("ON SLOW DROP OLDEST", Overflow::DropOldest).unwrap();
    let _alone = ask("MAX RATE 5 PER SECOND BY grp", Overflow::Disconnect).unwrap();
    let mut said: Vec<_> = balanced(&context).into_iter().map(|of| (of.overflow, of.max_rate)).collect();
    said.sort();
    assert_eq!(said, [("disconnect".into(), "5 per second by grp".into()), ("drop_oldest".to_owned(), String::new())]);
    for clause in ["ON SLOW BLOCK", "ON SLOW SAMPLE 3"] {
        let error = ask(clause, Overflow::DropOldest).map(drop).unwrap_err().to_string();
        assert!(error.contains("leave one of them out"), "{error}");
    }
    let error = ask("ON SLOW CONFLATE BY (group)", Overflow::Block).map(drop).unwrap_err().to_string();
    assert!(error.contains("line 1, column"), "{error}");
    let error =
        Subscriber::builder(&addr).sql("SELECT * FROM N ON SLOW CONFLATE BY (nmae)").connect().map(drop).unwrap_err();
    assert!(error.to_string().contains("did you mean `name`?"), "{error}");
    let plan =
        context.explain("SELECT * FROM N ON SLOW KEEP WHERE grp > 3 MAX RATE 9 PER SECOND", &[]).unwrap().unwrap().plan;
    assert!(
        plan.contains("keep where grp > 3; at most 65536 records") && plan.contains("at most 9 per second"),
        "{plan}"
    );
}

/// Random clauses, readers and rates, over both carriers.
#[test]
fn ledgers_balance_at_all_times() {
    const CLAUSES: [&str; 8] = [
        "ON SLOW DROP OLDEST",
        "ON SLOW CONFLATE BY (grp)",
        "ON SLOW CONFLATE BY (grp) MAX RATE 1000 PER SECOND BY grp",
        "ON SLOW SAMPLE 7",
        "ON SLOW KEEP WHERE grp > 6",
        "MAX RATE 2000 PER SECOND ON SLOW DROP OLDEST",
        "MAX RATE 500 PER SECOND BY grp ON SLOW SAMPLE 2",
        "ON SLOW KEEP WHERE number % 100 = 0 MAX RATE 50 PER SECOND BY grp, name",
    ];
    const QUERIES: [&str; 3] =
        ["SELECT * FROM N", "SELECT number FROM N WHERE grp < 8", "SELECT number, 60 / grp AS q FROM N"];
    let name = "ledgers_balance_at_all_times";
    crossdock_sim::check(name, tries(8, 2), |seed| {
        let mut rng = Rng::with_seed(seed);
        let (context, addr) = start();
        let way = |rng: &mut Rng| if rng.bool() { Transport::Udp } else { Transport::Shm };
        let mut publisher = publisher(&addr, way(&mut rng));
        let subscribe = |rng: &mut Rng, clause: &str| {
            Reading::new(&addr, way(rng), &format!("{} {clause}", QUERIES[rng.usize(0..QUERIES.len())]))
        };
        let mut readings: Vec<Reading> = CLAUSES.iter().map(|clause| subscribe(&mut rng, clause)).collect();
        let mut published = 0;
        for _ in 0..40 {
            let more = rng.u64(0..2000);
            publish(&mut publisher, published, published + more);
            publisher.flush().unwrap();
            published += more;
            for reading in &mut readings {
                if rng.u8(0..4) == 0 {
                    reading.take_present();
                }
            }
            balanced(&context);
        }
        publisher.finish().unwrap();
        readings.iter_mut().for_each(Reading::take_all);
        let began = Instant::now();
        while balanced(&context).iter().any(|of| of.in_flight > 0 || of.published < published) {
            assert!(began.elapsed() < PATIENCE, "seed {seed:#x}: {:#?}", context.subscriptions().unwrap());
            std::thread::yield_now();
        }
        let infos = balanced(&context);
        for (reading, clause) in readings.iter().zip(CLAUSES) {
            // One clause is the end of another.
            let is_its = |sql: &str| QUERIES.iter().any(|query| sql == format!("{query} {clause}"));
            let of = infos.iter().find(|of| is_its(&of.sql)).unwrap();
            let dropped: u64 = reading.dropped.values().sum();
            let reported = of.dropped + of.row_errors + of.conflated + of.sampled;
            assert_eq!((of.records_out, reported), (reading.came.len() as u64, dropped), "seed {seed:#x}: {of:?}");
        }
        let stream = &context.streams().unwrap()[0];
        let gone = stream.records_filtered + stream.records_conflated + stream.records_sampled + stream.records_dropped;
        assert_eq!(stream.records_offered, stream.records_out + gone + stream.row_errors + stream.records_in_flight);
    });
}
