//! Slow subscribers of a stream's state, from a seed and in virtual time: random changes, walks, rates and credits. After every step what
//! came for each is accounted for to the record; at the end its table is that of the query.

use super::*;
use crate::graph::gauges::{Loss, NodeGauges};
use crate::graph::slow::{Reducer, Slow};
use crossdock_engine::{ChangeMerger, HandlerProgram, HandlerSource, SnapshotHandler, StateOrder, Tables};
use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_query::{KeyedState, SlowPolicy, parse_subscription};

const STREAM: u32 = 0;
const KEYS: u64 = 12;
const SECOND: u64 = 1_000_000_000;
const CLAUSES: [&str; 6] = [
    "",
    "ON SLOW BLOCK",
    "ON SLOW CONFLATE BY (k)",
    "ON SLOW CONFLATE BY (k) MAX RATE 40 PER SECOND",
    "ON SLOW CONFLATE BY (k) MAX RATE 9 PER SECOND BY k",
    "ON SLOW DISCONNECT",
];

/// The subscribers' sessions, and the tables that they make.
struct Readers {
    full: Vec<bool>,
    rng: Rng,
    formats: BTreeMap<u64, Format>,
    came: Vec<u64>,
    tables: Vec<BTreeMap<u64, i64>>,
}

impl Readers {
    fn take(&mut self, key: usize, rows: &[Vec<u8>], format: u64, spill: &mut Spill) -> Sent {
        let most = if self.rng.u8(0..3) == 0 { self.rng.usize(0..8) } else { usize::MAX }.min(rows.len());
        let (taken, left) = rows.split_at(most);
        assert!(left.iter().all(|row| spill.push(row)));
        for row in taken {
            let record = Record::assume_checked(&self.formats[&format], row);
            let (Value::Uint(k), Value::Int(v)) = (record.get(0), record.get(1)) else { panic!("a row") };
            let (table, is_left) = (&mut self.tables[key], record.field("_change") == Some(Value::Text(b"leave")));
            let had = if is_left { table.remove(&k) } else { table.insert(k, v) };
            assert_eq!(had.is_some(), record.field("_change") != Some(Value::Text(b"enter")), "{k}");
            self.came[key] += 1;
        }
        Sent { outcome: Outcome::Made, records: most as u64, bytes: 0, no_buffer: 0, too_long: 0 }
    }
}

impl Egress for Readers {
    fn room(&mut self, key: usize, _: usize) -> Room {
        match self.rng.u8(0..10) {
            _ if self.full[key] => Room::Full,
            0 => Room::NoBuffers,
            packets => Room::Packets(packets.into()),
        }
    }

    fn run(&mut self, key: usize, run: SessionRun<'_>, spill: &mut Spill) -> Sent {
        let (format, mut rows) = (run.format, Vec::<Vec<u8>>::new());
        let outcome = run.into_sink(&mut rows);
        Sent { outcome, ..self.take(key, &rows, format, spill) }
    }

    fn resend(&mut self, key: usize, rows: &Spill, again: &mut Spill) -> Sent {
        let (format, rows) = (rows.format, rows.rows().map(<[u8]>::to_vec).collect::<Vec<_>>());
        self.take(key, &rows, format, again)
    }
}

struct Subscribed {
    clause: usize,
    gauges: Arc<NodeGauges>,
    /// The rows of the state's stream before it.
    before: u64,
}

struct Scene {
    graph: Graph,
    ws: Workspace,
    pool: Pool,
    rng: Rng,
    format: Format,
    state: Box<dyn Handler>,
    rows: Format,
    order: StateOrder,
    model: BTreeMap<u64, i64>,
    /// The rows that the state has given.
    given: u64,
    subscribed: Vec<Subscribed>,
    readers: Readers,
    now_ns: u64,
    is_blocked: bool,
    steps: Vec<SessionStep>,
}

/// The bytes that a state may take, and as many changes that are kept of it.
const MOST_BYTES: u64 = 1 << 20;

fn keyed() -> KeyedState {
    let key = vec!["k".into()];
    KeyedState { stream: "S".into(), key, max_keys: 1 << 20, max_bytes: MOST_BYTES, max_age_ns: None }
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let mut rng = Rng::with_seed(seed);
        let (orders, _control) = signal_queue();
        let mut graph = Graph::new(FIRST, orders, Vec::new());
        graph.note_publishers(STREAM, 1);
        let pool = |large| Pool::new(PoolConfig { classes: vec![(4 << 10, 4096), (64 << 10, large)] }).unwrap();
        let format = Format::parse_schema("k u64\nv i64").unwrap();
        let program = HandlerProgram {
            source: HandlerSource::State(KeyedState { max_bytes: 1 << 30, ..keyed() }),
            ..HandlerProgram::sql("")
        };
        let decided = [("S".to_owned(), format.clone())];
        let made = program.make_stateful((&decided, &Tables::default()), "S", &format).unwrap();
        let (came, tables) = (Vec::new(), Vec::new());
        let readers = Readers { full: Vec::new(), rng: rng.fork(), formats: BTreeMap::new(), came, tables };
        Scene {
            graph,
            ws: Workspace::new(pool(64)),
            pool: pool(64),
            rng,
            format,
            state: made.handler,
            rows: made.output,
            order: StateOrder { readers: 0, walks: 0 },
            model: BTreeMap::new(),
            given: 0,
            subscribed: Vec::new(),
            readers,
            now_ns: SECOND,
            is_blocked: false,
            steps: Vec::new(),
        }
    }

    fn subscribe(&mut self, clause: usize) {
        let sql = format!("SELECT k, v FROM S SNAPSHOT THEN CHANGES WHERE v > 0 {}", CLAUSES[clause]);
        let select = parse_subscription(&sql).unwrap().of_state("state of S", keyed());
        let program = select.plan_snapshot(&self.rows).unwrap();
        let merger = ChangeMerger::of(&program);
        let (key, output) = (self.subscribed.len(), program.output().clone());
        let handler = Some(Box::new(SnapshotHandler::new(program)) as Box<dyn Handler>);
        let instance = Instance { stream: None, format: self.rows.id().0, handler, output: output.id().0 };
        self.readers.formats.insert(output.id().0, output);
        self.readers.full.push(self.rng.bool());
        self.readers.came.push(0);
        self.readers.tables.push(BTreeMap::new());
        let gauges = Arc::<NodeGauges>::default();
        let policy = (SchedulingPolicy::default(), false);
        self.graph.add_session(key, STREAM, vec![instance], policy, Arc::clone(&gauges));
        let slow = Slow::of_changes(&select, &select.on_slow().unwrap_or(SlowPolicy::Block));
        assert_eq!(slow.is_some(), clause >= 2);
        self.graph.set_slow(key, slow);
        self.graph.read_state(key);
        let mut reducers: Vec<Reducer> =
            merger.map(|merger| Reducer::of_changes(merger, &self.rows)).into_iter().collect();
        self.graph.add_reducers(key, &mut reducers, |_| true);
        self.subscribed.push(Subscribed { clause, gauges, before: self.given });
        self.order = StateOrder { readers: self.order.readers + 1, walks: self.order.walks + 1 };
        assert!(self.state.set_parameters(&mut self.order.into_values()));
    }

    fn batch(&mut self, rows: &[Vec<u8>], format: u64) -> Batch {
        let bytes = rows.concat();
        let mut batch = Batch::new();
        (batch.stream, batch.format) = (STREAM, format);
        let mut buffer = self.pool.alloc(bytes.len()).unwrap();
        buffer[..bytes.len()].copy_from_slice(&bytes);
        batch.push_buffer(buffer.freeze()).unwrap();
        let records = rows.len() as u32;
        batch.push_slice(Slice { buffer: 0, start: 0, len: bytes.len() as u32, records }).unwrap();
        let mut start = 0;
        for row in rows {
            batch.records.push(Span { slice: 0, start, len: row.len() as u32 });
            start += row.len() as u32;
        }
        batch.select_all();
        batch
    }

    /// The state takes records of these keys and values.
    fn feed(&mut self, values: &[(u64, i64)]) {
        let mut builder = RecordBuilder::new(&self.format);
        let mut records = Vec::new();
        for (k, v) in values {
            builder.clear();
            builder.set_u64(0, *k).unwrap();
            builder.set_i64(1, *v).unwrap();
            records.push(builder.finish().unwrap().to_vec());
            self.model.insert(*k, *v);
        }
        let mut out: Vec<Vec<u8>> = Vec::new();
        let batch = self.batch(&records, self.format.id().0);
        let _ = self.state.process(&batch, &mut Selection::all(batch.len()), &mut out);
        self.give(&out);
    }

    fn walk(&mut self) {
        let mut out: Vec<Vec<u8>> = Vec::new();
        self.state.walk(&mut out);
        self.give(&out);
    }

    /// Rows of the state come.
    fn give(&mut self, rows: &[Vec<u8>]) {
        for rows in rows.chunks(500) {
            let batch = self.batch(rows, self.rows.id().0);
            self.given += rows.len() as u64;
            self.graph.arrive(STREAM, batch, self.now_ns, &mut self.ws);
            self.graph.check_publishers(STREAM);
        }
    }

    fn turn(&mut self, steps: usize) {
        self.graph.begin_turn(self.now_ns, &mut self.ws);
        self.graph.wake_slow(self.now_ns);
        for _ in 0..steps {
            let Some(step) = self.graph.next_session(self.now_ns, &mut self.readers, &mut self.ws) else { break };
            self.steps.extend(if matches!(step, SessionStep::Ran(_)) { None } else { Some(step) });
            self.check();
        }
        self.graph.take_turned().into_iter().for_each(|(_, is_blocked)| self.is_blocked = is_blocked);
        self.check();
    }

    /// Each ledger balances, against what this test itself has given and received.
    fn check(&self) {
        for (key, of) in self.subscribed.iter().enumerate() {
            let (gauges, delivered) = (&of.gauges, self.readers.came[key]);
            let gone = gauges.filtered.get() + gauges.row_errors.get() + gauges.lost_in_all();
            let in_flight = self.graph.in_flight(key);
            let name = || format!("{} {key}: {:?}", CLAUSES[of.clause], gauges.losses());
            let published = self.given - of.before;
            assert_eq!((gauges.published.get(), gauges.records_out.get()), (published, delivered), "{}", name());
            assert_eq!(published, delivered + gone + in_flight, "{delivered} + {gone} + {in_flight}, {}", name());
        }
    }

    /// Gives all readers credit and lets time pass until nothing waits.
    fn settle(&mut self) {
        self.readers.full.iter_mut().for_each(|full| *full = false);
        (0..self.subscribed.len()).for_each(|key| self.graph.wake_session(key));
        for _ in 0..100_000 {
            self.turn(usize::MAX);
            self.now_ns += SECOND / 100;
            let is_dry = (0..self.subscribed.len()).all(|key| self.graph.in_flight(key) == 0);
            match self.state.has_walk() {
                true => self.walk(),
                false if is_dry => return,
                false => {}
            }
        }
        panic!("records wait although there is room");
    }

    fn wanted(&self) -> BTreeMap<u64, i64> {
        self.model.iter().filter(|(_, v)| **v > 0).map(|(k, v)| (*k, *v)).collect()
    }
}

#[test]
fn a_slow_subscriber_of_a_state_has_its_table_and_every_record_is_accounted_for() {
    let mut conflated = 0;
    crossdock_sim::check("a_slow_subscriber_of_a_state_has_its_table", 200, |seed| {
        let mut scene = Scene::new(seed);
        scene.subscribe(2);
        for _ in 0..300 {
            match scene.rng.u8(0..12) {
                0 if scene.subscribed.len() < 5 => {
                    let clause = scene.rng.usize(0..CLAUSES.len());
                    scene.subscribe(clause);
                }
                // A reader that blocks holds the state back.
                1..6 if !scene.is_blocked => {
                    let many = scene.rng.usize(1..30);
                    let rng = &mut scene.rng;
                    let values: Vec<(u64, i64)> = (0..many).map(|_| (rng.u64(0..KEYS), rng.i64(-5..15))).collect();
                    scene.feed(&values);
                }
                6 if !scene.is_blocked && scene.state.has_walk() => scene.walk(),
                7..9 => {
                    let key = scene.rng.usize(0..scene.subscribed.len());
                    scene.readers.full[key] = !scene.readers.full[key];
                    scene.graph.wake_session(key);
                }
                9 => scene.now_ns += scene.rng.u64(0..SECOND / 4),
                _ => {
                    let steps = scene.rng.usize(1..20);
                    scene.turn(steps);
                }
            }
            scene.check();
        }
        scene.settle();
        assert!(scene.steps.is_empty() && !scene.is_blocked, "nobody is ended or held back: {:?}", scene.steps);
        let wanted = scene.wanted();
        for (table, of) in scene.readers.tables.iter().zip(&scene.subscribed) {
            assert_eq!(*table, wanted, "{}", CLAUSES[of.clause]);
            conflated += of.gauges.lost(Loss::Conflated);
            assert_eq!(of.gauges.lost_in_all(), of.gauges.lost(Loss::Conflated), "nothing else is left out");
        }
        assert_eq!(scene.ws.buffers_in_use(), 0);
    });
    assert!(conflated > 0);
}

/// A subscriber that takes nothing gets one change of each row then, and costs no buffer meanwhile.
#[test]
fn a_subscriber_that_stops_reading_a_state_gets_one_change_of_each_row() {
    let mut scene = Scene::new(1);
    scene.feed(&[(1, 10), (2, 20), (3, 30)]);
    scene.subscribe(2);
    scene.settle();
    assert_eq!((scene.readers.came[0], scene.graph.in_flight(0)), (3, 0));
    scene.readers.full[0] = true;
    for n in 0..5000 {
        // One leaves at the end, one comes, and one comes and goes.
        scene.feed(&[(1, 11 + n), (2, if n < 4999 { n + 1 } else { -1 }), (4, n + 1), (5, 1), (5, -1)]);
        scene.turn(usize::MAX);
        assert!(!scene.is_blocked);
    }
    assert_eq!((scene.readers.came[0], scene.graph.in_flight(0)), (3, 3));
    let in_use = |pool: &Pool| pool.stats().classes.iter().map(crossdock_mailbox::ClassStats::in_use).sum::<usize>();
    assert_eq!((in_use(&scene.pool), scene.ws.buffers_in_use()), (0, 0));
    scene.settle();
    assert_eq!((scene.readers.came[0], scene.readers.tables[0].clone()), (6, scene.wanted()));
}

/// Past the bound there is no change that could be left out.
#[test]
fn a_subscription_ends_once_there_is_no_room_for_a_change() {
    for clause in [2, 5] {
        let mut scene = Scene::new(1);
        scene.subscribe(clause);
        scene.settle();
        scene.readers.full[0] = true;
        let gauges = Arc::clone(&scene.subscribed[0].gauges);
        let (mut next, mut most) = (0, 0);
        while gauges.lost(Loss::QueueFull) == 0 {
            most = scene.graph.in_flight(0);
            scene.feed(&(next..next + 100).map(|k| (k, 1)).collect::<Vec<_>>());
            // Changes of one row are one: these need no room.
            scene.feed(&[(next, 2), (next + 1, -1)]);
            scene.turn(usize::MAX);
            next += 100;
        }
        assert!(most > 1000 && most * 64 < MOST_BYTES, "{most}");
        assert_eq!(gauges.lost(Loss::Conflated) > 0, clause == 2, "{:?}", gauges.losses());
        assert_eq!(scene.readers.came[0], 0);
        if clause == 5 {
            // Its session ends for the records that it lost.
            assert_eq!((scene.steps.len(), scene.graph.failure(0)), (0, None));
            continue;
        }
        assert_eq!(scene.graph.in_flight(0), 0);
        assert_eq!(scene.steps, [SessionStep::StateLost(0, StateLoss::Anew)]);
        assert!(scene.graph.failure(0).unwrap().contains("the subscriber is too slow"));
        // Nothing follows.
        scene.feed(&[(1, 5)]);
        scene.settle();
        assert_eq!(scene.readers.came[0], 0);
    }
}
