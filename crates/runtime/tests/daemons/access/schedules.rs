//! No schedule of subscribing, joining, reading a state, converting, morphing and handlers shows an identity what its rule hides. The
//! oracle is the interpreter over the records that the rule leaves.

mod stateful;

use self::stateful::{Joined, Seen, Table};
use super::*;
use crossdock_format::Record;
use crossdock_query::{Interpreter, Program, Projection, View};
use crossdock_runtime::{QueryCuts, StateSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::thread::JoinHandle;

/// The conditions of rules and of queries.
const CONDITIONS: [&str; 6] =
    ["TRUE", "late > 0", "carrier = 'UA'", "flight % 7 < 3", "crew LIKE '%7%'", "100 / late > 3"];
/// The columns that rules show, and that queries name.
const COLUMNS: [&str; 5] = ["flight", "flight, carrier", "carrier, late", "flight, late, carrier", "*"];
/// The numbers of flights: few, so that many have several records.
const NUMBERS: u64 = 200;
/// The select lists of the desk's queries.
const ITEMS: [&str; 6] = ["*", "flight", "carrier, late", "crew", "flight + 1 AS late", "*, late * 2 AS twice"];

/// The second version of the flights: conversions to it may give hidden fields the names of others.
fn second() -> Format {
    Format::parse_schema("carrier string\nflight u64\nlate i64\ncrew string\ngate u32 null").unwrap()
}

/// A row of the second version.
fn second_flight(row: &mut RecordBuilder, number: u64) -> Vec<u8> {
    row.clear();
    let crew = format!("crew of {number}");
    let values = [Value::Text(b"UA"), Value::Uint(number), Value::Int(number as i64 % 9), Value::Text(crew.as_bytes())];
    for (at, value) in values.into_iter().enumerate() {
        row.set(at, value).unwrap();
    }
    row.finish().unwrap().to_vec()
}

/// The row that a program makes of a record, if one.
fn made(program: &Program, record: &[u8]) -> Option<Vec<u8>> {
    let checked = Record::check(&program.input, record).unwrap();
    if !Interpreter::new().matches(program, &checked).unwrap_or(false) {
        return None;
    }
    if matches!(program.projection, Projection::All) {
        return Some(record.to_vec());
    }
    let mut row = RecordBuilder::new(&program.output);
    Interpreter::new().project(program, &checked, &mut row).ok()?;
    Some(row.finish().unwrap().to_vec())
}

fn shown(format: &Format, row: &[u8]) -> Vec<String> {
    let record = Record::check(format, row).unwrap();
    let fields = format.fields().iter().enumerate();
    fields.map(|(at, field)| format!("{}: {:?}", field.name, record.get(at))).collect()
}

/// A subscription of the desk to `A`.
struct Reading {
    sql: String,
    /// The records that were published before it was asked for.
    since: usize,
    subscriber: Subscriber,
}

/// A record that was published.
struct Published {
    stream: &'static str,
    format: Format,
    record: Vec<u8>,
}

/// One daemon, its desk, and what has happened.
struct World {
    random: fastrand::Rng,
    context: ContextHandle,
    addr: String,
    view: View,
    /// The view of the desk on `A` and on `B`.
    seen: [Seen; 2],
    /// Whether the desk may read the control API.
    desk_reads_reports: bool,
    /// Records in order.
    published: Vec<Published>,
    /// By their streams, and whether they publish the second format.
    publishers: BTreeMap<(&'static str, bool), Publisher>,
    readings: Vec<Reading>,
    joined: Vec<Joined>,
    tables: Vec<Table>,
    /// Subscriptions of the desk to derived streams; its rule names none of these.
    derived: Vec<JoinHandle<Result<Vec<Vec<String>>, Error>>>,
    handlers: u32,
    kept: Vec<Converter>,
}

impl World {
    fn start(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut view = |stream: &str| {
            let columns = COLUMNS[random.usize(..COLUMNS.len())];
            format!("SELECT {columns} FROM {stream} WHERE {}", CONDITIONS[random.usize(..CONDITIONS.len())])
        };
        let (view, other) = (view("A"), view("B"));
        let (second, seen) = match random.u8(..4) {
            0 => ("*", Seen::Whole),
            1 => ("D*", Seen::Nothing),
            2 => ("B", Seen::Whole),
            _ => (&*other, Seen::Through(View::parse(&other).unwrap())),
        };
        let mut rule = desk(&["desk.*"], &[&view, second]);
        rule.convert = if random.bool() { all(&["*"]) } else { Vec::new() };
        rule.handlers = if random.bool() { all(&["*"]) } else { Vec::new() };
        let desk_reads_reports = random.bool();
        rule.administration = if desk_reads_reports { Administration::Read } else { Administration::None };
        // Those of the administrator are cut: a rule's views keep a query in one piece.
        let cuts = if random.bool() { QueryCuts::Always } else { QueryCuts::Never };
        let (context, addr) = start_changed(vec![admin(), rule], |config| config.platform.query_cuts = cuts);
        context.declare_stream("B", &flights()).unwrap().unwrap();
        let state = StateSpec { key: vec!["flight".into()], ..StateSpec::default() };
        let declared = ChangeRequest::Deploy(HandlerSpec::of_state("A", state));
        context.manager().change(declared, false).unwrap().unwrap();
        // Changes of a state that nobody publishes come to an end.
        let publisher = |of: &'static str| ((of, false), super::publisher(&addr, ADMIN, of, &flights()).unwrap());
        let publishers = BTreeMap::from(["A", "B"].map(publisher));
        World {
            random,
            context,
            addr,
            seen: [Seen::Through(View::parse(&view).unwrap()), seen],
            desk_reads_reports,
            view: View::parse(&view).unwrap(),
            published: Vec::new(),
            publishers,
            readings: Vec::new(),
            joined: Vec::new(),
            tables: Vec::new(),
            derived: Vec::new(),
            handlers: 0,
            kept: Vec::new(),
        }
    }

    fn step(&mut self) {
        match self.random.u8(0..18) {
            0..=2 => self.subscribe(),
            3..=5 => self.publish(),
            6 => self.publish_other(),
            7 => self.convert(),
            8 => self.deploy_as_desk(),
            9 => self.derive(),
            10 => self.read_derived(),
            11..=12 => self.join(),
            13 => self.snapshot(),
            14 => self.ask_why(),
            15 => self.follow(),
            16 => self.change_query(),
            _ => {
                // Formats that it accepts would be converted ones.
                let accepts = reader(&self.addr, DESK, "SELECT * FROM A").accept(second()).connect();
                assert!(accepts.is_err());
            }
        }
    }

    fn subscribe(&mut self) {
        let (items, condition) =
            (ITEMS[self.random.usize(..ITEMS.len())], CONDITIONS[self.random.usize(..CONDITIONS.len())]);
        let sql = format!("SELECT {items} FROM A WHERE {condition}");
        let since = self.published.len();
        let outcome = reader(&self.addr, DESK, &sql).one_format(self.random.bool()).connect();
        // It fits the newest format that the stream has, or is refused.
        let newest = self.newest();
        let over = self.view.plan(&newest).and_then(|view| crossdock_query::parse(&sql).unwrap().plan(&view.output));
        match (outcome, over) {
            (Ok(subscriber), Ok(_)) => self.readings.push(Reading { sql, since, subscriber }),
            (Err(why), Err(over)) => {
                assert!(why.to_string().contains(&over.message), "{why}, not {over}");
                assert!(!why.to_string().contains("gate") || self.view.sql().contains('*'), "{why}");
            }
            (Ok(_), Err(why)) => panic!("{sql} through {} has columns that are hidden: {why}", self.view.sql()),
            (Err(why), Ok(_)) => panic!("{sql} through {}: {why}", self.view.sql()),
        }
    }

    /// The newest format of `A`.
    fn newest(&self) -> Format {
        let streams = self.context.streams().unwrap();
        let newest = streams.iter().find(|stream| stream.name == "A").and_then(|stream| stream.formats.last());
        if *newest.unwrap() == second().id().to_string() { second() } else { flights() }
    }

    fn publish_other(&mut self) {
        let (format, mut row) = (flights(), RecordBuilder::new(&flights()));
        let publisher = self.publishers.get_mut(&("B", false)).unwrap();
        for _ in 0..self.random.u64(1..12) {
            let record = flight(&mut row, self.random.u64(..NUMBERS));
            publisher.publish(&record).unwrap();
            self.published.push(Published { stream: "B", format: format.clone(), record });
        }
        publisher.flush().unwrap();
        self.await_arrival("B");
    }

    /// Later subscriptions begin behind the records that were published.
    fn await_arrival(&self, stream: &str) {
        let (context, of_stream) = (&self.context, |record: &&Published| record.stream == stream);
        let count = self.published.iter().filter(of_stream).count() as u64;
        let arrived = || context.streams().unwrap().iter().any(|of| of.name == stream && of.records_in == count);
        await_that("all records have come", arrived);
        let state = crossdock_runtime::state_name(stream);
        let handlers = || context.manager().handlers().unwrap();
        await_that("its state, if it has one, has them all", || {
            handlers().iter().all(|handler| handler.name != state || handler.taken == count)
        });
    }

    fn publish(&mut self) {
        let is_second = self.random.bool();
        let format = if is_second { second() } else { flights() };
        let addr = &self.addr;
        let publisher = self
            .publishers
            .entry(("A", is_second))
            .or_insert_with(|| super::publisher(addr, ADMIN, "A", &format).unwrap());
        let mut row = RecordBuilder::new(&format);
        for _ in 0..self.random.u64(1..40) {
            let number = self.random.u64(..NUMBERS);
            let record = if is_second { second_flight(&mut row, number) } else { flight(&mut row, number) };
            publisher.publish(&record).unwrap();
            self.published.push(Published { stream: "A", format: format.clone(), record });
        }
        publisher.flush().unwrap();
        self.await_arrival("A");
    }

    /// The desk would give the crew the name of a field that it may read.
    fn convert(&mut self) {
        let builder = Converter::builder(&self.addr).transport(Transport::Udp);
        let builder = builder.keys(private(DESK), private(DAEMON).public());
        let to = Format::parse_schema("flight u64\ncarrier string\nlate i64").unwrap();
        let conversion = "SELECT flight, crew AS carrier, 5 AS late FROM x".parse().unwrap();
        // Refused where the rule has no right to convert.
        if let Ok(mut converter) = builder.stream("A").connect()
            && converter.register(flights(), &to, &conversion).is_ok()
        {
            self.kept.push(converter);
        }
    }

    /// The desk deploys a handler over the control API, if the rules let it.
    fn deploy_as_desk(&mut self) {
        self.handlers += 1;
        let name = format!("desk.{}", self.handlers);
        let spec = HandlerSpec { name, sql: Some("SELECT * FROM A".into()), ..HandlerSpec::default() };
        let desk = Caller::Key { key: private(DESK).public().to_string(), name: "desk".into() };
        let change = ChangeRequest::Deploy(spec);
        assert!(self.context.admit_change(&desk, &change).unwrap().is_err(), "it does not see A whole");
    }

    /// The administrator deploys a handler, for which the desk perhaps waits already.
    fn derive(&mut self) {
        self.handlers += 1;
        let name = format!("D{}", self.handlers);
        if self.random.bool() {
            self.read(&name, true);
        }
        deploy(&self.context, &name, "SELECT * FROM A");
    }

    fn read_derived(&mut self) {
        if self.handlers > 0 {
            let name = format!("D{}", self.random.u32(1..=self.handlers));
            self.read(&name, false);
        }
    }

    fn read(&mut self, stream: &str, waits: bool) {
        let ids = || self.context.subscriptions().unwrap().into_iter().map(|subscription| subscription.id);
        // Not their number: one that a handler has refused may go meanwhile.
        let before: BTreeSet<u64> = ids().collect();
        let builder = reader(&self.addr, DESK, &format!("SELECT * FROM {stream}"));
        let builder = if waits { builder.wait_for_stream(PATIENCE) } else { builder };
        let reading = std::thread::spawn(move || builder.connect().map(|mut subscriber| rows(&mut subscriber)));
        if waits {
            // Refused at once, where no pattern lets it wait.
            await_that("it waits, or is refused", || reading.is_finished() || ids().any(|id| !before.contains(&id)));
        }
        self.derived.push(reading);
    }

    /// The rows of `A` that the desk should have seen.
    fn expected(&self, reading: &Reading) -> Vec<Vec<String>> {
        let select = crossdock_query::parse(&reading.sql).unwrap();
        let mut rows = Vec::new();
        for Published { format, record, .. } in
            self.published[reading.since..].iter().filter(|record| record.stream == "A")
        {
            let Ok(view) = self.view.plan(format) else { continue };
            let Some(seen) = made(&view, record) else { continue };
            let Ok(query) = select.plan(&view.output) else { continue };
            rows.extend(made(&query, &seen).map(|row| shown(&query.output, &row)));
        }
        rows
    }

    fn end(mut self) {
        self.publish();
        self.publish_other();
        for publisher in std::mem::take(&mut self.publishers).into_values() {
            publisher.finish().unwrap();
        }
        self.check_stateful();
        let readings = std::mem::take(&mut self.readings);
        for mut reading in readings {
            // Records of two publishers may pass one another between two contexts.
            let (mut got, mut meant) = (rows(&mut reading.subscriber), self.expected(&reading));
            got.sort();
            meant.sort();
            assert_eq!(got, meant, "{} through {}", reading.sql, self.view.sql());
        }
        for reading in std::mem::take(&mut self.derived) {
            let seen = reading.join().unwrap();
            assert!(seen.is_err(), "a derived stream was read: {seen:?}");
        }
    }
}

#[test]
fn no_schedule_shows_what_a_rule_hides() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("CROSSDOCK_SEED={seed} repeats this");
    for number in 0..u64::from(crate::contexts::tries(8, 4)) {
        let mut world = World::start(seed.wrapping_add(number));
        (0..20).for_each(|_| world.step());
        world.end();
    }
}
