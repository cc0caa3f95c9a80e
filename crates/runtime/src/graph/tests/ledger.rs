//! Slow subscribers, from a seed and in virtual time: random rates, credits, queries and policies. After every step what
//! came for each subscription is accounted for to the record; at the end it has what its policy says.

use super::*;
use crate::graph::gauges::{Loss, NodeGauges};
use crate::graph::slow::{Reducer, Slow};
use crossdock_engine::SelectHandler;
use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_query::{Select, SlowPolicy, parse_subscription};

const STREAM: u32 = 0;
const KEYS: u64 = 7;
const SECOND: u64 = 1_000_000_000;
const QUERIES: [&str; 4] = [
    "SELECT * FROM S",
    "SELECT * FROM S WHERE d < 3",
    "SELECT n, k, d * 2 AS e FROM S WHERE d <> 1",
    "SELECT n, k, 6 / d AS e FROM S",
];
const CLAUSES: [&str; 11] = [
    "",
    "ON SLOW BLOCK",
    "ON SLOW DROP OLDEST",
    "ON SLOW CONFLATE BY (k)",
    "ON SLOW CONFLATE BY (k) MAX RATE 40 PER SECOND",
    "ON SLOW CONFLATE BY (k) MAX RATE 9 PER SECOND BY k",
    "ON SLOW SAMPLE 5",
    "ON SLOW KEEP WHERE d >= 2",
    "MAX RATE 30 PER SECOND",
    "ON SLOW KEEP WHERE d >= 2 MAX RATE 11 PER SECOND BY k",
    "ON SLOW DROP OLDEST MAX RATE 12 PER SECOND BY k",
];

/// A published record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    n: u64,
    k: u64,
    d: i64,
}

impl Row {
    /// Whether a query selects it; none where it has a row error.
    fn passes(&self, query: usize) -> Option<bool> {
        match query {
            0 => Some(true),
            1 => Some(self.d < 3),
            2 => Some(self.d != 1),
            _ => {
                if self.d == 0 {
                    None
                } else {
                    Some(true)
                }
            }
        }
    }
}

/// The subscribers' sessions.
#[derive(Default)]
struct Readers {
    full: Vec<bool>,
    rng: Option<Rng>,
    formats: BTreeMap<u64, Format>,
    /// The numbers and keys of the records that came, by subscription.
    came: Vec<Vec<(u64, u64)>>,
}

impl Readers {
    fn take(&mut self, key: usize, rows: &[Vec<u8>], format: u64, spill: &mut Spill) -> Sent {
        let rng = self.rng.as_mut().unwrap();
        let most = if rng.u8(0..3) == 0 { rng.usize(0..8) } else { usize::MAX }.min(rows.len());
        let (taken, left) = rows.split_at(most);
        assert!(left.iter().all(|row| spill.push(row)));
        for row in taken {
            let record = Record::assume_checked(&self.formats[&format], row);
            let of = |name| match record.field(name) {
                Some(Value::Uint(value)) => value,
                other => panic!("{name}: {other:?}"),
            };
            self.came[key].push((of("n"), of("k")));
        }
        Sent { outcome: Outcome::Made, records: most as u64, bytes: 0, no_buffer: 0, too_long: 0 }
    }
}

impl Egress for Readers {
    fn room(&mut self, key: usize, _: usize) -> Room {
        match self.rng.as_mut().unwrap().u8(0..10) {
            _ if self.full[key] => Room::Full,
            0 => Room::NoBuffers,
            packets => Room::Packets(packets.into()),
        }
    }

    fn run(&mut self, key: usize, run: SessionRun<'_>, spill: &mut Spill) -> Sent {
        let (batch, format, mut rows) = (run.batch, run.format, Vec::<Vec<u8>>::new());
        let outcome = run.into_sink(&mut rows);
        if outcome == Outcome::Whole {
            rows.extend(batch.selected().map(<[u8]>::to_vec));
        }
        Sent { outcome, ..self.take(key, &rows, format, spill) }
    }

    fn resend(&mut self, key: usize, rows: &Spill, again: &mut Spill) -> Sent {
        let (format, rows) = (rows.format, rows.rows().map(<[u8]>::to_vec).collect::<Vec<_>>());
        self.take(key, &rows, format, again)
    }
}

struct Subscribed {
    select: Select,
    query: usize,
    clause: usize,
    gauges: Arc<NodeGauges>,
    /// The row of the stream that is its first.
    since: usize,
}

struct Scene {
    graph: Graph,
    ws: Workspace,
    pool: Pool,
    rng: Rng,
    formats: [Format; 2],
    rows: Vec<Row>,
    subscribed: Vec<Subscribed>,
    readers: Readers,
    now_ns: u64,
    /// Whether room for the graph is what ended publishing.
    is_blocked: bool,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let mut rng = Rng::with_seed(seed);
        let (orders, _control) = signal_queue();
        let mut graph = Graph::new(FIRST, orders, Vec::new());
        graph.note_publishers(STREAM, 1);
        let pool = |large| Pool::new(PoolConfig { classes: vec![(4 << 10, 4096), (64 << 10, large)] }).unwrap();
        let formats =
            ["k u32\nn u64\nd i32", "n u64\nd i64\ntext string\nk u64"].map(|text| Format::parse_schema(text).unwrap());
        let readers = Readers { rng: Some(rng.fork()), ..Readers::default() };
        let ws = Workspace::new(pool(64));
        Scene {
            graph,
            ws,
            pool: pool(64),
            rng,
            formats,
            rows: Vec::new(),
            subscribed: Vec::new(),
            readers,
            now_ns: SECOND,
            is_blocked: false,
        }
    }

    fn instances(&mut self, select: &Select) -> Vec<Instance> {
        let mut instances = Vec::new();
        for format in &self.formats {
            let program = select.plan(format).unwrap();
            self.readers.formats.insert(program.output.id().0, program.output.clone());
            let output = program.output.id().0;
            let handler = Some(Box::new(SelectHandler::new(program)) as Box<dyn Handler>);
            instances.push(Instance { stream: None, format: format.id().0, handler, output });
        }
        instances
    }

    fn subscribe(&mut self, query: usize, clause: usize) {
        let select = parse_subscription(&format!("{} {}", QUERIES[query], CLAUSES[clause])).unwrap();
        let key = self.subscribed.len();
        let drops = !matches!(select.on_slow(), None | Some(SlowPolicy::Block));
        let (instances, gauges) = (self.instances(&select), Arc::default());
        let policy = SchedulingPolicy { drops, ..SchedulingPolicy::default() };
        self.graph.add_session(key, STREAM, instances, (policy, false), Arc::clone(&gauges));
        self.graph.set_slow(key, Slow::of(&select));
        self.readers.full.push(self.rng.bool());
        self.readers.came.push(Vec::new());
        self.subscribed.push(Subscribed { select, query, clause, gauges, since: self.rows.len() });
        self.add_reducers(key);
    }

    fn add_reducers(&mut self, key: usize) {
        let reducer = |format: &Format| Reducer::of(&self.subscribed[key].select, format).unwrap();
        let mut reducers: Vec<Reducer> = self.formats.iter().filter_map(reducer).collect();
        self.graph.add_reducers(key, &mut reducers, |_| true);
    }

    /// The next version of a subscription's query, as for formats that are planned again.
    fn swap(&mut self, key: usize) {
        let select = self.subscribed[key].select.clone();
        let mut instances = self.instances(&select);
        self.graph.update_session(key, &mut instances, |_| true);
        self.add_reducers(key);
    }

    /// Another query of a subscription, with the same clauses.
    fn exchange(&mut self, key: usize) {
        let query = self.rng.usize(0..QUERIES.len());
        let select = format!("{} {}", QUERIES[query], CLAUSES[self.subscribed[key].clause]);
        let select = parse_subscription(&select).unwrap();
        let mut instances = self.instances(&select);
        (self.subscribed[key].select, self.subscribed[key].query) = (select, query);
        assert_eq!(self.graph.hinders_exchange(key), None);
        self.graph.exchange_query(key, &mut instances, |_| true);
        self.add_reducers(key);
    }

    /// Steps by chance, from a first subscription on, until all has settled. `change` is done to a subscription now and then.
    fn run(&mut self, (query, clause): (usize, usize), change: fn(&mut Scene, usize)) {
        for step in 0..300 {
            match self.rng.u8(0..12) {
                _ if step == 0 => self.subscribe(query, clause),
                0 if self.subscribed.len() < 5 => {
                    let (query, clause) = (self.rng.usize(0..QUERIES.len()), self.rng.usize(0..CLAUSES.len()));
                    self.subscribe(query, clause);
                }
                1..5 => self.publish(),
                5..7 => {
                    let key = self.rng.usize(0..self.subscribed.len());
                    self.readers.full[key] = !self.readers.full[key];
                    self.graph.wake_session(key);
                }
                7 => self.now_ns += self.rng.u64(0..SECOND / 4),
                8 => {
                    let key = self.rng.usize(0..self.subscribed.len());
                    change(self, key);
                }
                _ => {
                    let steps = self.rng.usize(1..20);
                    self.turn(steps);
                }
            }
            self.check();
        }
        self.settle();
    }

    fn publish(&mut self) {
        if self.is_blocked {
            return;
        }
        let format = self.formats[self.rng.usize(0..2)].clone();
        let (mut builder, mut bytes) = (RecordBuilder::new(&format), Vec::new());
        let mut batch = Batch::new();
        (batch.stream, batch.format) = (STREAM, format.id().0);
        for _ in 0..self.rng.u64(1..40) {
            let row = Row { n: self.rows.len() as u64, k: self.rng.u64(0..KEYS), d: self.rng.i64(0..5) };
            builder.clear();
            for (name, value) in [("n", Value::Uint(row.n)), ("k", Value::Uint(row.k)), ("d", Value::Int(row.d))] {
                builder.set(format.field(name).unwrap(), value).unwrap();
            }
            if let Some(text) = format.field("text") {
                builder.set(text, Value::Text(&b"xxxxxxxxxxxxxxxxxxxx"[..self.rng.usize(0..20)])).unwrap();
            }
            let record = builder.finish().unwrap();
            batch.records.push(Span { slice: 0, start: bytes.len() as u32, len: record.len() as u32 });
            bytes.extend_from_slice(record);
            self.rows.push(row);
        }
        let mut buffer = self.pool.alloc(bytes.len()).unwrap();
        buffer[..bytes.len()].copy_from_slice(&bytes);
        batch.push_buffer(buffer.freeze()).unwrap();
        let records = batch.records.len() as u32;
        batch.push_slice(Slice { buffer: 0, start: 0, len: bytes.len() as u32, records }).unwrap();
        self.graph.arrive(STREAM, batch, self.now_ns, &mut self.ws);
        self.graph.check_publishers(STREAM);
    }

    /// A turn of the context, with at most `steps` steps of its subscriptions.
    fn turn(&mut self, steps: usize) {
        self.graph.begin_turn(self.now_ns, &mut self.ws);
        self.graph.wake_slow(self.now_ns);
        for _ in 0..steps {
            let Some(step) = self.graph.next_session(self.now_ns, &mut self.readers, &mut self.ws) else { break };
            assert!(matches!(step, SessionStep::Ran(_)), "{step:?}");
            self.check();
        }
        self.graph.take_turned().into_iter().for_each(|(_, is_blocked)| self.is_blocked = is_blocked);
        self.check();
    }

    /// Each ledger balances, against what this test itself has published and received.
    fn check(&self) {
        for (key, of) in self.subscribed.iter().enumerate() {
            let gauges = &of.gauges;
            let published = (self.rows.len() - of.since) as u64;
            let delivered = self.readers.came[key].len() as u64;
            let gone = gauges.filtered.get() + gauges.row_errors.get() + gauges.lost_in_all();
            let in_flight = self.graph.in_flight(key);
            let name = || format!("{} {}: {:?}", of.select.sql(), key, gauges.losses());
            assert_eq!((gauges.published.get(), gauges.records_out.get()), (published, delivered), "{}", name());
            assert_eq!(published, delivered + gone + in_flight, "{delivered} + {gone} + {in_flight}, {}", name());
        }
    }

    /// Whether publishers are held back although nobody who may do that is slow.
    fn is_held_for_nothing(&self) -> bool {
        let holds = |(key, of): (usize, &Subscribed)| {
            matches!(of.select.on_slow(), None | Some(SlowPolicy::Block)) && self.graph.in_flight(key) > 0
        };
        self.is_blocked && !self.subscribed.iter().enumerate().any(holds)
    }

    /// Gives all readers credit and lets time pass until nothing waits.
    fn settle(&mut self) {
        self.readers.full.iter_mut().for_each(|full| *full = false);
        for key in 0..self.subscribed.len() {
            self.graph.wake_session(key);
        }
        for _ in 0..100_000 {
            self.turn(usize::MAX);
            self.now_ns += SECOND / 100;
            if (0..self.subscribed.len()).all(|key| self.graph.in_flight(key) == 0) {
                return;
            }
        }
        panic!("records wait although there is room");
    }

    /// Each subscription has what its policy says.
    fn check_outcome(&self) {
        for (key, of) in self.subscribed.iter().enumerate() {
            let came = &self.readers.came[key];
            let selected: Vec<Row> =
                self.rows[of.since..].iter().filter(|row| row.passes(of.query) == Some(true)).copied().collect();
            let name = format!("{} {:?}", of.select.sql(), of.gauges.losses());
            let lost = |why| of.gauges.lost(why);
            let of_key = |k: u64| came.iter().filter(move |(_, of)| *of == k).map(|(n, _)| *n);
            for k in 0..KEYS {
                assert!(of_key(k).is_sorted(), "{name}: {k}");
            }
            let numbers: Vec<u64> = came.iter().map(|(n, _)| *n).collect();
            match CLAUSES[of.clause] {
                "" | "ON SLOW BLOCK" => assert!(numbers.iter().copied().eq(selected.iter().map(|row| row.n)), "{name}"),
                clause if clause.contains("CONFLATE") => {
                    // A query whose rows may fail has the last one of a key that did not, or an earlier one that left.
                    for k in (0..KEYS).filter(|_| of.query < 3 && lost(Loss::QueueFull) == 0) {
                        let last = selected.iter().rev().find(|row| row.k == k).map(|row| row.n);
                        assert_eq!(of_key(k).next_back(), last, "{name}: {k}");
                    }
                    assert_eq!(lost(Loss::OverRate), 0, "{name}");
                }
                "ON SLOW KEEP WHERE d >= 2" => {
                    let kept = selected.iter().filter(|row| row.d >= 2 && !numbers.contains(&row.n)).count() as u64;
                    assert_eq!(kept, lost(Loss::QueueFull), "{name}");
                }
                _ => {}
            }
        }
    }
}

/// No more records came than the rates allow: those of each second, and those of one more at once.
fn within_rate(scene: &Scene, began_ns: u64) {
    let seconds = (scene.now_ns - began_ns) / SECOND + 2;
    for (key, of) in scene.subscribed.iter().enumerate() {
        let Some(rate) = of.select.max_rate() else { continue };
        let keys = if rate.by.is_some() { KEYS } else { 1 };
        let most = u64::from(rate.per_second.get()) * keys * seconds;
        let came = scene.readers.came[key].len() as u64;
        assert!(came <= most, "{came} of {most}: {}", of.select.sql());
    }
}

#[test]
fn every_record_of_a_slow_subscriber_is_accounted_for_at_every_step() {
    let mut reasons = std::collections::BTreeSet::new();
    crossdock_sim::check("every_record_of_a_slow_subscriber_is_accounted_for_at_every_step", 200, |seed| {
        let mut scene = Scene::new(seed);
        let began_ns = scene.now_ns;
        scene.run((0, 3), Scene::swap);
        assert!(!scene.is_held_for_nothing());
        within_rate(&scene, began_ns);
        scene.check_outcome();
        assert_eq!(scene.ws.buffers_in_use(), 0);
        reasons.extend(scene.subscribed.iter().flat_map(|of| of.gauges.losses()).map(|(reason, _)| reason));
    });
    // That all of it happens at all, with the seeds that are always tried.
    if ["CROSSDOCK_SEED", "CROSSDOCK_SEARCH"].iter().all(|variable| std::env::var_os(variable).is_none()) {
        let wanted = ["conflated", "not_kept", "over_rate", "queue_full", "sampled"];
        assert!(wanted.iter().all(|reason| reasons.contains(*reason)), "{reasons:?}");
    }
}

#[test]
fn every_record_is_accounted_for_once_while_queries_change() {
    crossdock_sim::check("every_record_is_accounted_for_once_while_queries_change", 200, |seed| {
        let mut scene = Scene::new(seed);
        scene.run((1, 0), Scene::exchange);
        scene.check();
        for (key, of) in scene.subscribed.iter().enumerate().filter(|(_, of)| of.clause < 2) {
            let numbers: Vec<u64> = scene.readers.came[key].iter().map(|(number, _)| *number).collect();
            assert!(numbers.is_sorted_by(|one, other| one < other), "{}: nothing comes twice", of.select.sql());
            // One that every query selects has come.
            let all = |row: &&Row| (0..QUERIES.len()).all(|query| row.passes(query) == Some(true));
            let has = |row: &Row| numbers.binary_search(&row.n).is_ok();
            assert!(scene.rows[of.since..].iter().filter(all).all(has), "{}", of.select.sql());
        }
        assert_eq!(scene.ws.buffers_in_use(), 0);
    });
}

/// A subscriber that conflates and takes nothing holds back nobody, and costs no buffer; then it has the last of each key.
#[test]
fn a_subscriber_that_conflates_holds_nobody_back() {
    let mut scene = Scene::new(1);
    scene.subscribe(0, 3);
    scene.subscribe(0, 0);
    scene.readers.full = vec![true, false];
    for _ in 0..2000 {
        scene.publish();
        while scene.graph.in_flight(1) > 0 || scene.graph.in_flight(0) > KEYS {
            scene.turn(usize::MAX);
        }
        assert!(!scene.is_blocked);
    }
    assert_eq!(scene.readers.came[1].len(), scene.rows.len());
    assert_eq!((scene.readers.came[0].len(), scene.graph.in_flight(0)), (0, KEYS));
    let in_use = |pool: &Pool| pool.stats().classes.iter().map(crossdock_mailbox::ClassStats::in_use).sum::<usize>();
    assert_eq!((in_use(&scene.pool), scene.ws.buffers_in_use()), (0, 0));
    scene.settle();
    scene.check_outcome();
    assert_eq!(scene.readers.came[0].len(), KEYS as usize);
    assert_eq!(scene.subscribed[0].gauges.lost(Loss::Conflated), scene.rows.len() as u64 - KEYS);
}

/// The records that are kept are bounded, and the oldest goes.
#[test]
fn the_records_kept_for_a_slow_subscriber_are_bounded() {
    let mut scene = Scene::new(1);
    scene.subscribe(0, 7);
    scene.readers.full[0] = true;
    while scene.rows.len() < 4 * bounds::SLOW_RECORDS {
        scene.publish();
        scene.turn(usize::MAX);
    }
    let gauges = Arc::clone(&scene.subscribed[0].gauges);
    assert!(scene.graph.in_flight(0) <= bounds::SLOW_RECORDS as u64);
    assert!(gauges.lost(Loss::QueueFull) > 0 && gauges.lost(Loss::NotKept) > 0);
    scene.settle();
    let came = &scene.readers.came[0];
    let kept: Vec<u64> = scene.rows.iter().filter(|row| row.d >= 2).map(|row| row.n).collect();
    assert!(came.iter().map(|(n, _)| n).eq(&kept[kept.len() - came.len()..]), "the newest, in order");
}

/// The end of a publisher comes behind all that is kept.
#[test]
fn the_end_of_a_stream_follows_what_was_kept() {
    let mut scene = Scene::new(1);
    scene.subscribe(0, 4);
    scene.readers.full[0] = true;
    (0..100).for_each(|_| scene.publish());
    scene.turn(usize::MAX);
    scene.graph.arrive_end(STREAM, 0, true);
    let mut ended = false;
    for step in 0..1000 {
        scene.readers.full[0] = step < 10;
        scene.graph.wake_session(0);
        scene.graph.wake_slow(scene.now_ns);
        scene.graph.begin_turn(scene.now_ns, &mut scene.ws);
        while let Some(step) = scene.graph.next_session(scene.now_ns, &mut scene.readers, &mut scene.ws) {
            ended |= matches!(step, SessionStep::Ended(0, 0, 0));
        }
        assert!(!ended || scene.graph.in_flight(0) == 0);
        scene.now_ns += SECOND / 50;
    }
    assert!(ended);
    scene.check_outcome();
}

/// No publisher has the formats any more.
#[test]
fn kept_records_leave_after_their_formats_are_forgotten() {
    let mut scene = Scene::new(1);
    scene.subscribe(0, 3);
    scene.readers.full[0] = true;
    (0..20).for_each(|_| scene.publish());
    scene.turn(usize::MAX);
    assert!(scene.graph.in_flight(0) > 0);
    scene.graph.update_session(0, &mut Vec::new(), |_| false);
    scene.graph.add_reducers(0, &mut Vec::new(), |_| false);
    scene.settle();
    scene.check_outcome();
}

/// A condition that panics takes its node only, with what it has kept.
#[test]
fn a_panic_while_records_are_selected_takes_its_node_only() {
    let mut scene = Scene::new(1);
    scene.subscribe(0, 3);
    scene.subscribe(0, 0);
    scene.readers.full = vec![true, false];
    scene.publish();
    scene.turn(usize::MAX);
    let instance = |format: &Format| {
        let handler: Box<dyn Handler> = Box::new(sessions::Panics);
        Instance { stream: None, format: format.id().0, handler: Some(handler), output: format.id().0 }
    };
    let mut failing: Vec<Instance> = scene.formats.iter().map(instance).collect();
    scene.graph.update_session(0, &mut failing, |_| true);
    scene.readers.full[0] = false;
    scene.graph.wake_session(0);
    scene.publish();
    let mut failed = Vec::new();
    while let Some(step) = scene.graph.next_session(scene.now_ns, &mut scene.readers, &mut scene.ws) {
        failed.extend(if let SessionStep::Failed(key) = step { Some(key) } else { None });
    }
    assert_eq!(failed, [0]);
    scene.readers.came[0].clear();
    let gauges = &scene.subscribed[0].gauges;
    let gone = gauges.lost_in_all() + gauges.records_out.get();
    assert_eq!((gone, scene.graph.in_flight(0)), (scene.rows.len() as u64, 0));
    assert_eq!(scene.readers.came[1].len(), scene.rows.len());
}
