//! A daemon that is `durable` and is killed, between any two steps of a checkpoint and at any other moment: nothing is missing in what its
//! handlers make, and nothing is counted twice.

use crate::contexts::further;
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_nectarine::{Event, Interrupter, Publisher, Subscriber, Transport};
use crossdock_runtime::failpoint::FAILPOINTS;
use crossdock_runtime::{
    ChangeRequest, ContextConfig, ContextHandle, ContextKind, ContextSpec, HandlerSpec, PassedSockets, StateSpec,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An answer that takes longer than this does not come at all.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a subscriber waits before it looks whether all is over.
const LOOK: Duration = Duration::from_millis(20);
/// The directory and the address of the daemon that a process of its own is, and whether it is durable.
const DIRECTORY: &str = "CROSSDOCK_TEST_DIRECTORY";
const ADDRESS: &str = "CROSSDOCK_TEST_ADDRESS";
const DURABLE: &str = "CROSSDOCK_TEST_DURABLE";

const WINDOW: &str =
    "SELECT k, window_start, count(*) AS n, sum(number) AS s FROM A GROUP BY k, TUMBLE(at, INTERVAL '70' SECOND)";
const JOIN: &str = "SELECT a.number AS n, b.number AS m FROM A a JOIN B b ON a.k = b.k AND b.at BETWEEN \
    a.at - INTERVAL '14' SECOND AND a.at";
/// The queries that the table's subscriber may have: each leaves the numbers of one rest out, and the last one none.
const TABLES: u64 = 4;
const SECOND: u64 = 1_000_000_000;
/// Records that end all windows, and how far they are behind the others.
const CLOSING: u64 = 3;
const FAR: u64 = 10_000;
/// Records that publishers may be ahead of the last checkpoint: a daemon that makes none for a while, since the machine has much other work,
/// gets them all again after its restart.
const AHEAD: u64 = 20_000;

/// Whether the query of this number selects a record.
fn is_in_table(query: u64, number: u64) -> bool {
    number % (TABLES - 1) != query
}

fn table_sql(query: u64) -> String {
    format!("SELECT * FROM A SNAPSHOT THEN CHANGES WHERE number % {} <> {query}", TABLES - 1)
}

fn format() -> Format {
    Format::parse_schema("number u64\nk u32\nat timestamp").unwrap()
}

fn handlers() -> Vec<HandlerSpec> {
    let query = |name: &str, text: &str| HandlerSpec {
        name: name.to_owned(),
        sql: Some(text.to_owned()),
        peak_msgs_per_s: Some(100),
        ..HandlerSpec::default()
    };
    let state = StateSpec { key: vec!["k".to_owned()], ..StateSpec::default() };
    vec![query("windows", WINDOW), query("joined", JOIN), HandlerSpec::of_state("A", state)]
}

fn config(directory: &Path, address: &str, is_durable: bool) -> ContextConfig {
    let mut config = ContextConfig { listen: address.parse().unwrap(), ..ContextConfig::default() };
    config.platform.contexts = vec![ContextSpec::new(ContextKind::GCore), ContextSpec::new(ContextKind::CCore)];
    config.platform.contexts.extend(further());
    config.morph.state_dir = Some(directory.to_owned());
    config.morph.checkpoint_interval_ms = 20;
    config.morph.durable = is_durable;
    // On a machine with much other work, too.
    config.morph.checkpoint_pause_ms = 1000;
    config.morph.await_subscribers_ms = 60_000;
    config
}

/// The daemon, in a process of its own, until its standard input ends.
#[test]
fn daemon_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let address = std::env::var(ADDRESS).unwrap();
    let config = config(Path::new(&directory), &address, std::env::var(DURABLE).is_ok());
    let context = ContextHandle::prepare(config, PassedSockets::default()).unwrap();
    if context.manager().handlers().unwrap().is_empty() {
        context.manager().change(ChangeRequest::All(handlers()), false).unwrap().unwrap();
    }
    context.open().unwrap();
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

/// A daemon that is killed when this goes.
struct Daemon(Child);

impl Daemon {
    fn start(directory: &Path, address: &str, is_durable: bool, failpoint: Option<&str>) -> Daemon {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "durable::daemon_process", "--nocapture"]).stdin(Stdio::piped()).stdout(Stdio::null());
        command.env(DIRECTORY, directory).env(ADDRESS, address).env_remove("CROSSDOCK_FAILPOINT");
        if let Some(name) = failpoint {
            command.env("CROSSDOCK_FAILPOINT", name);
        }
        if is_durable {
            command.env(DURABLE, "");
        }
        Daemon(command.spawn().unwrap())
    }

    fn is_dead(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The rows that a subscriber has.
#[derive(Default)]
struct Rows {
    rows: BTreeSet<Vec<u64>>,
    received: u64,
    repeated: u64,
}

/// The state that the publishers and subscribers share.
#[derive(Default)]
struct Scene {
    /// How many records each publisher may publish.
    allowed: AtomicU64,
    /// The number behind the greatest one with a joined row.
    joined_to: AtomicU64,
    /// How many records of each publisher are acknowledged at least.
    settled: [AtomicU64; 2],
    /// The number behind the greatest one that the table's subscriber has seen.
    seen_to: AtomicU64,
    is_closing: AtomicBool,
    is_over: AtomicBool,
    windows: Mutex<Rows>,
    joined: Mutex<Rows>,
    /// The last number of each key.
    table: Mutex<BTreeMap<u64, u64>>,
    /// The query that the table's subscriber is to have, and the one that it has.
    wanted_query: AtomicU64,
    query: AtomicU64,
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn whole(value: Value<'_>) -> u64 {
    match value {
        Value::Uint(number) => number,
        Value::Int(number) | Value::Timestamp(number) => number as u64,
        other => panic!("{other:?}"),
    }
}

/// Publishes as many records as it may; at last those that end all windows, and finishes.
fn publish(scene: &Scene, mut publisher: Publisher, settled: &AtomicU64) {
    let mut row = RecordBuilder::new(publisher.format());
    let mut send = |publisher: &mut Publisher, number: u64| {
        row.clear();
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Uint(number % 7)).unwrap();
        row.set(2, Value::Timestamp((number * SECOND) as i64)).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    };
    let mut next = 0;
    loop {
        // The order matters: what is allowed before it closes is published.
        let is_closing = scene.is_closing.load(Ordering::Acquire);
        let allowed = scene.allowed.load(Ordering::Acquire);
        if next < allowed {
            send(&mut publisher, next);
            next += 1;
        } else if is_closing {
            break;
        } else {
            assert!(!scene.is_over.load(Ordering::Acquire), "it is over when all has come");
            publisher.flush().unwrap();
            if publisher.is_settled().unwrap() {
                settled.store(next, Ordering::Release);
            }
            std::thread::yield_now();
        }
    }
    (1..=CLOSING).for_each(|far| send(&mut publisher, next + far * FAR));
    publisher.flush().unwrap();
    while !scene.is_over.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    publisher.finish().unwrap();
}

/// Takes what comes until all is over; `before` is called again and again.
fn follow(
    scene: &Scene,
    mut subscriber: Subscriber,
    mut before: impl FnMut(&mut Subscriber),
    mut take: impl FnMut(Event),
) {
    while !scene.is_over.load(Ordering::Acquire) {
        before(&mut subscriber);
        if let Some(event) = subscriber.next_event(Some(LOOK)).unwrap() {
            take(event);
        }
    }
}

fn take_rows(into: &Mutex<Rows>, event: Event) {
    match event {
        Event::Records(records) => {
            let mut into = lock(into);
            into.received += records.len() as u64;
            into.repeated += records.repeated() as u64;
            let row = |record: crossdock_format::Record<'_>| {
                (0..record.format().fields().len()).map(|at| whole(record.get(at))).collect::<Vec<u64>>()
            };
            into.rows.extend(records.iter().map(row));
        }
        Event::Dropped { records, reason, .. } => panic!("{records} were dropped: {reason}"),
        _ => {}
    }
}

/// Has the table's subscriber ask for the query that it is to have: again, if it is refused for now or the daemon has gone.
fn change_query(scene: &Scene, subscriber: &mut Subscriber) {
    let wanted = scene.wanted_query.load(Ordering::Acquire);
    if wanted != scene.query.load(Ordering::Acquire) && subscriber.set_query(table_sql(wanted)).is_ok() {
        scene.query.store(wanted, Ordering::Release);
    }
}

fn take_changes(scene: &Scene, event: Event) {
    match event {
        // The state comes once more as a whole.
        Event::Reconnected => lock(&scene.table).clear(),
        Event::Records(records) => {
            let mut table = lock(&scene.table);
            for record in records.iter() {
                let (number, k) = (whole(record.get(0)), whole(record.get(1)));
                scene.seen_to.fetch_max(number + 1, Ordering::AcqRel);
                // It fits the table that is there, whichever query it is by.
                match record.field("_change") {
                    Some(Value::Text(b"leave")) => assert_eq!(table.remove(&k), Some(number)),
                    Some(Value::Text(b"enter")) => assert_eq!(table.insert(k, number), None, "{number}"),
                    _ => assert!(table.insert(k, number).is_some_and(|before| before < number), "{number}"),
                }
            }
        }
        Event::Dropped { records, reason, .. } => panic!("{records} were dropped: {reason}"),
        _ => {}
    }
}

/// The windows of records of these numbers.
fn expected_windows(numbers: u64) -> BTreeSet<Vec<u64>> {
    let mut windows: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    for number in 0..numbers {
        let window = windows.entry((number % 7, number / 70 * 70 * SECOND)).or_default();
        *window = (window.0 + 1, window.1 + number);
    }
    windows.into_iter().map(|((k, start), (n, sum))| vec![k, start, n, sum]).collect()
}

fn expected_joined(numbers: u64) -> BTreeSet<Vec<u64>> {
    let pairs = |a: u64| (a.saturating_sub(14)..=a).filter(move |b| a % 7 == b % 7).map(move |b| vec![a, b]);
    (0..numbers).flat_map(pairs).collect()
}

fn expected_table(query: u64, numbers: u64) -> BTreeMap<u64, u64> {
    let closing = (1..=CLOSING).map(|far| numbers + far * FAR);
    let last: BTreeMap<u64, u64> = (0..numbers).chain(closing).map(|number| (number % 7, number)).collect();
    last.into_iter().filter(|(_, number)| is_in_table(query, *number)).collect()
}

/// Waits until subscribers have all of what is made of that many records.
fn wait_for_all(scene: &Scene, numbers: u64) {
    let query = scene.wanted_query.load(Ordering::Acquire);
    let (windows, joined, table) =
        (expected_windows(numbers), expected_joined(numbers), expected_table(query, numbers));
    let began = Instant::now();
    let in_windows = |row: &&Vec<u64>| row[1] < numbers * SECOND;
    let in_joined = |row: &&Vec<u64>| row[0] < numbers;
    let is_all = || {
        lock(&scene.joined).rows.iter().filter(in_joined).eq(joined.iter())
            && lock(&scene.windows).rows.iter().filter(in_windows).eq(windows.iter())
            && scene.query.load(Ordering::Acquire) == query
            && *lock(&scene.table) == table
    };
    while !is_all() {
        if began.elapsed() > PATIENCE {
            let found = [
                lock(&scene.windows).rows.iter().filter(in_windows).cloned().collect::<BTreeSet<_>>(),
                lock(&scene.joined).rows.iter().filter(in_joined).cloned().collect(),
            ];
            let differences = [&windows, &joined].into_iter().zip(&found).map(|(expected, found)| {
                let missing: Vec<_> = expected.difference(found).take(5).collect();
                let wrong: Vec<_> = found.difference(expected).take(5).collect();
                format!("missing {missing:?}, wrong {wrong:?}")
            });
            let differences: Vec<String> = differences.collect();
            panic!(
                "of {numbers}: {differences:?}, {:?} in place of {table:?} of query {query}, with {:?}",
                lock(&scene.table),
                scene.query
            );
        }
        std::thread::yield_now();
    }
}

/// Lets the publishers go on for a bit, if what they have published has come through to those that get something of each few records: a
/// subscriber that is far behind would put checkpoints off. Of `TABLES` numbers in a row each query of the table selects one.
fn allow_more(scene: &Scene) {
    let Scene { joined_to, seen_to, settled: [a, b], .. } = scene;
    let [joined_to, seen_to, a, b] = [joined_to, seen_to, a, b].map(|of| of.load(Ordering::Acquire));
    if joined_to.min(seen_to + TABLES).min(a + AHEAD).min(b + AHEAD) >= scene.allowed.load(Ordering::Acquire) {
        scene.allowed.fetch_add(3, Ordering::AcqRel);
    }
    std::thread::yield_now();
}

fn free_address() -> String {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A cut that begins now is on disk when this returns: the daemon awaits the subscriptions that stand now after a restart.
fn wait_for_cut(address: &str) {
    let publisher = Publisher::builder(address).stream("Other").format(&format()).connect().unwrap();
    publisher.finish().unwrap();
}

/// Ends publishers and subscribers when the test has failed.
struct Ends<'a>(&'a Scene, [Interrupter; 2]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_over.store(true, Ordering::Release);
            self.1.iter().for_each(Interrupter::interrupt);
        }
    }
}

/// Runs publishers and subscribers of a durable daemon while `kills` has it killed and started again, and compares what comes of it.
fn is_whole_after(kills: impl FnOnce(&Path, &str, &Scene, Daemon) -> Daemon) {
    let (place, address, scene) = (tempfile::tempdir().unwrap(), free_address(), Scene::default());
    let (directory, address, scene) = (place.path(), address.as_str(), &scene);
    std::thread::scope(|scope| {
        let first = Daemon::start(directory, address, true, None);
        let publisher = |stream: &str, way: Transport| {
            let builder = Publisher::builder(address).wait_for_daemon(true).transport(way);
            builder.stream(stream).format(&format()).connect().unwrap()
        };
        let (a, b) = (publisher("A", Transport::Udp), publisher("B", Transport::Auto));
        let subscriber = |sql: &str| {
            Subscriber::builder(address).transport(Transport::Udp).sql(sql).wait_for_stream(PATIENCE).connect().unwrap()
        };
        let [windows, joined] = ["SELECT * FROM windows", "SELECT * FROM joined"].map(subscriber);
        let table = subscriber(&table_sql(0));
        wait_for_cut(address);
        let _ends = Ends(scene, [a.interrupter(), b.interrupter()]);
        let [settled_a, settled_b] = &scene.settled;
        scope.spawn(move || publish(scene, a, settled_a));
        scope.spawn(move || publish(scene, b, settled_b));
        scope.spawn(move || follow(scene, windows, |_| (), |event| take_rows(&scene.windows, event)));
        scope.spawn(move || {
            let take = |event| {
                take_rows(&scene.joined, event);
                let last = lock(&scene.joined).rows.last().map_or(0, |row| row[0] + 1);
                scene.joined_to.store(last, Ordering::Release);
            };
            follow(scene, joined, |_| (), take);
        });
        scope.spawn(move || {
            let change = |subscriber: &mut Subscriber| change_query(scene, subscriber);
            follow(scene, table, change, |event| take_changes(scene, event));
        });
        let last = kills(directory, address, scene, first);
        scene.is_closing.store(true, Ordering::Release);
        wait_for_all(scene, scene.allowed.load(Ordering::Acquire));
        scene.is_over.store(true, Ordering::Release);
        last
    });
    let windows = lock(&scene.windows);
    // With several contexts records are not numbered.
    if further().next().is_none() {
        assert_eq!(windows.received - windows.repeated, windows.rows.len() as u64, "of {}", windows.received);
    }
}

#[test]
fn killed_between_any_two_steps_of_a_checkpoint_nothing_is_missing_and_nothing_is_twice() {
    is_whole_after(|directory, address, scene, mut first| {
        first.kill();
        for (at, name) in FAILPOINTS.iter().filter(|name| name.starts_with("cut.")).enumerate() {
            let failpoint = format!("{name}:{}", 1 + at % 3);
            let mut daemon = Daemon::start(directory, address, true, Some(&failpoint));
            scene.wanted_query.store(at as u64 % TABLES, Ordering::Release);
            let began = Instant::now();
            while !daemon.is_dead() {
                let (allowed, through) = (&scene.allowed, &scene.joined_to);
                assert!(began.elapsed() < PATIENCE, "{failpoint}: of {allowed:?}, {through:?} came through");
                allow_more(scene);
            }
        }
        Daemon::start(directory, address, true, None)
    });
}

#[test]
fn killed_at_any_moment_nothing_is_missing_and_nothing_is_twice() {
    let seed = std::env::var("CROSSDOCK_TEST_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("CROSSDOCK_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    is_whole_after(|directory, address, scene, mut daemon| {
        for _ in 0..8 {
            let until = scene.allowed.load(Ordering::Acquire) + random.u64(0..2000);
            let changes_at = scene.allowed.load(Ordering::Acquire) + random.u64(0..2000);
            let next = random.u64(..TABLES);
            while scene.allowed.load(Ordering::Acquire) < until {
                allow_more(scene);
                if scene.allowed.load(Ordering::Acquire) >= changes_at {
                    scene.wanted_query.store(next, Ordering::Release);
                }
            }
            daemon.kill();
            daemon = Daemon::start(directory, address, true, None);
        }
        daemon
    });
}

/// Without `durable`, each state is that of a whole checkpoint of its own.
#[test]
fn killed_between_any_two_steps_of_a_state_s_checkpoint_the_state_is_whole() {
    let (place, address, scene) = (tempfile::tempdir().unwrap(), free_address(), Scene::default());
    for (at, name) in FAILPOINTS.iter().filter(|name| name.starts_with("checkpoint.")).enumerate() {
        let failpoint = format!("{name}:{}", 1 + at % 3);
        let mut daemon = Daemon::start(place.path(), &address, false, Some(&failpoint));
        let publisher = Publisher::builder(&address).wait_for_daemon(true).reconnect(false).stream("A");
        let mut publisher = publisher.format(&format()).connect().unwrap();
        let mut row = RecordBuilder::new(publisher.format());
        let began = Instant::now();
        while !daemon.is_dead() {
            assert!(began.elapsed() < PATIENCE, "{failpoint}");
            let number = scene.allowed.fetch_add(1, Ordering::AcqRel);
            row.clear();
            row.set(0, Value::Uint(number)).unwrap();
            row.set(1, Value::Uint(number % 7)).unwrap();
            row.set(2, Value::Timestamp((number * SECOND) as i64)).unwrap();
            // It may be dead by now.
            let _ = publisher.publish(row.finish().unwrap()).and_then(|()| publisher.flush());
        }
        drop(publisher);
        let context = ContextHandle::start(config(place.path(), &address, false)).unwrap();
        let events = context.manager().events(0).unwrap();
        let refused: Vec<_> = events.iter().filter(|event| event.kind == "state_not_restored").collect();
        // One that was killed before the first was whole has none.
        assert!(refused.iter().all(|event| event.text.contains("it had no checkpoint")), "{failpoint}: {refused:?}");
        context.stop().unwrap();
    }
}

#[test]
fn durable_takes_a_place_for_checkpoints_and_an_interval() {
    let place = tempfile::tempdir().unwrap();
    let refused = |change: fn(&mut ContextConfig)| {
        let mut config = config(place.path(), "127.0.0.1:0", true);
        change(&mut config);
        ContextHandle::start(config).map(drop).unwrap_err().to_string()
    };
    let without = refused(|config| config.morph.state_dir = None);
    assert!(without.contains("set `state_dir` in [morph]"), "{without}");
    let without = refused(|config| config.morph.checkpoint_interval_ms = 0);
    assert!(without.contains("set `checkpoint_interval_ms` above 0"), "{without}");
}

/// A subscriber that takes nothing holds a checkpoint back, and not the traffic before the publishers' bound.
#[test]
fn a_slow_subscriber_puts_checkpoints_off_until_it_has_taken_what_waits() {
    let place = tempfile::tempdir().unwrap();
    let mut config = config(place.path(), "127.0.0.1:0", true);
    config.morph.checkpoint_pause_ms = 50;
    let context = ContextHandle::start(config).unwrap();
    let address = context.local_addr().to_string();
    let mut publisher =
        Publisher::builder(&address).transport(Transport::Udp).stream("A").format(&format()).connect().unwrap();
    let subscriber = Subscriber::builder(&address).transport(Transport::Udp).sql("SELECT * FROM A");
    let mut subscriber = subscriber.connect().unwrap();
    let mut row = RecordBuilder::new(publisher.format());
    row.set(0, Value::Uint(1)).unwrap();
    row.set(1, Value::Uint(1)).unwrap();
    row.set(2, Value::Timestamp(1)).unwrap();
    let record = row.finish().unwrap().to_vec();
    let put_off = || context.manager().control().cuts_put_off;
    let mut published = 0;
    while put_off() == 0 {
        // No call waits here: the subscriber takes nothing.
        for _ in 0..1000 {
            published += u64::from(publisher.try_publish(&record).unwrap());
        }
        std::thread::yield_now();
    }
    let finishing = std::thread::spawn(move || publisher.finish().unwrap().records);
    let mut received = 0;
    while received < published {
        if let Some(Event::Records(records)) = subscriber.next_event(Some(PATIENCE)).unwrap() {
            received += records.len() as u64;
        }
    }
    while !finishing.is_finished() {
        let _ = subscriber.next_event(Some(LOOK)).unwrap();
    }
    assert_eq!(finishing.join().unwrap(), published);
    assert!(context.manager().control().cuts > 0);
    context.stop().unwrap();
}
