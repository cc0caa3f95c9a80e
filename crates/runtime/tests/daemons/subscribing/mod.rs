//! Subscriptions come to be beside the core: whatever a session sends meanwhile keeps its order, nothing is lost and nothing is
//! left behind; and what does not fit is refused by its figures.

mod admission;
mod formats;
mod line;

use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_runtime::{ContextConfig, ContextHandle};
use crossdock_transport::control::{Overflow, RefusalCode};
use crossdock_transport::{ControlMessage, Notice, Reply, Request};
use line::{Came, Line};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

fn start(change: impl FnOnce(&mut ContextConfig)) -> ContextHandle {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    ContextHandle::start(config).unwrap()
}

/// Looks until something is so.
fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within 20 s");
        std::thread::yield_now();
    }
}

/// The formats that a stream has in turn: only the first two have a group.
fn formats() -> [Format; 3] {
    let (number, group, more) = (("number", FieldType::U64), ("grp", FieldType::I32), ("more", FieldType::I64));
    let of = |fields: &[(&str, FieldType)]| {
        Format::natural(fields.iter().map(|(name, ty)| FieldSpec::new(*name, *ty))).unwrap()
    };
    [of(&[number, group]), of(&[number, group, more]), of(&[number, more])]
}

/// This number of records of a format, their groups 0 to 9 in turn.
fn records(format: &Format, count: u16) -> Vec<u8> {
    let mut row = RecordBuilder::new(format);
    let mut payload = Vec::new();
    for number in 0..i64::from(count) {
        row.clear();
        for (index, field) in format.fields().iter().enumerate() {
            let value = match &*field.name {
                "number" => Value::Uint(number as u64),
                _ => Value::Int(number % 10),
            };
            row.set(index, value).unwrap();
        }
        payload.extend_from_slice(row.finish().unwrap());
    }
    payload
}

/// The queries: what is after `FROM`, whether it needs the group, and of ten records how many pass.
const QUERIES: [(&str, &str, bool, u64); 4] = [
    ("SELECT *", "", false, 10),
    ("SELECT number", "WHERE grp < 5", true, 5),
    ("SELECT number + 1 AS n", "WHERE number >= 0", false, 10),
    ("SELECT grp", "", true, 10),
];

/// The model of a daemon that does one request of a session after the other.
#[derive(Default)]
struct Model {
    /// Subscriptions: by number, the query, and the request that is not answered yet.
    subscriptions: BTreeMap<u32, (usize, Option<u32>)>,
    /// Formats of the stream, in the order in which they were announced.
    formats: Vec<usize>,
    /// The answers, in order: the request, and whether it is refused, and how.
    answers: Vec<(u32, Option<RefusalCode>)>,
    /// Records by the subscription's number.
    records: BTreeMap<u32, u64>,
}

impl Model {
    fn subscribe(&mut self, id: u32, number: u32, query: Option<usize>, wait: bool) {
        if self.subscriptions.contains_key(&number) {
            return self.answers.push((id, Some(RefusalCode::State)));
        }
        let Some(query) = query else { return self.answers.push((id, Some(RefusalCode::Query))) };
        let answer = match self.formats.last() {
            None if wait => {
                self.subscriptions.insert(number, (query, Some(id)));
                return;
            }
            None => Some(RefusalCode::UnknownStream),
            Some(2) if QUERIES[query].2 => Some(RefusalCode::Query),
            Some(_) => {
                self.subscriptions.insert(number, (query, None));
                None
            }
        };
        self.answers.push((id, answer));
    }

    fn unsubscribe(&mut self, id: u32, number: u32) {
        let gone = self.subscriptions.remove(&number);
        self.answers.push((id, gone.is_none().then_some(RefusalCode::State)));
    }

    fn announce(&mut self, id: u32, format: usize) {
        if !self.formats.contains(&format) {
            self.formats.push(format);
            let mut answers = Vec::new();
            self.subscriptions.retain(|_, (query, asked)| {
                let fits = format != 2 || !QUERIES[*query].2;
                let Some(asked) = asked.take() else { return true };
                answers.push((asked, (!fits).then_some(RefusalCode::Query)));
                fits
            });
            // In the order in which they were asked for.
            answers.sort_by_key(|(asked, _)| *asked);
            self.answers.append(&mut answers);
        }
        self.answers.push((id, None));
    }

    fn publish(&mut self, format: usize, tens: u64) {
        for (number, (query, _)) in &self.subscriptions {
            if format != 2 || !QUERIES[*query].2 {
                *self.records.entry(*number).or_default() += tens * QUERIES[*query].3;
            }
        }
    }
}

/// One session's requests, sent in one go; what they are answered, and what came of them.
struct Script<'a> {
    random: fastrand::Rng,
    line: &'a mut Line,
    stream: String,
    model: Model,
    id: u32,
}

impl Script<'_> {
    fn step(&mut self) {
        self.id += 1;
        let (id, number) = (self.id, self.random.u32(1..=4));
        match self.random.u8(0..10) {
            0..=3 => {
                let query = Some(self.random.usize(0..QUERIES.len())).filter(|_| self.random.u8(0..8) > 0);
                let wait = self.random.bool();
                self.model.subscribe(id, number, query, wait);
                self.line.ask(subscribe(id, number, &self.sql(query), wait));
            }
            4..=5 => {
                self.model.unsubscribe(id, number);
                self.line.ask(Request::Unsubscribe { id, subscription: number });
            }
            6 => {
                let format = self.random.usize(0..3);
                self.model.announce(id, format);
                let (name, described) = (self.stream.clone(), formats()[format].describe());
                self.line.ask(Request::Announce {
                    id,
                    stream: 1,
                    name,
                    format: described,
                    publication: None,
                    key: Vec::new(),
                });
            }
            _ => {
                let Some(format) = self.random.choice(self.model.formats.clone()) else { return };
                let tens = self.random.u64(1..5);
                self.model.publish(format, tens);
                let count = 10 * tens as u16;
                let described = &formats()[format];
                self.line.publish(1, described.id().0, count, &records(described, count));
            }
        }
    }

    fn sql(&self, query: Option<usize>) -> String {
        match query {
            Some(query) => format!("{} FROM {} {}", QUERIES[query].0, self.stream, QUERIES[query].1),
            None => format!("SELECT FROM {}", self.stream),
        }
    }

    /// Reads all answers and all records, and nothing else is there.
    fn check(&mut self) {
        let mut answers = self.model.answers.iter();
        let mut got: BTreeMap<u32, u64> = BTreeMap::new();
        while answers.len() > 0 || got != self.model.records {
            match self.line.next() {
                Came::Records(number, records) => *got.entry(number).or_default() += records,
                Came::Control(ControlMessage::Reply(reply)) => {
                    let (id, refusal) = match reply {
                        Reply::Done { id } | Reply::Announced { id, .. } | Reply::Subscribed { id, .. } => (id, None),
                        Reply::Refused { id, refusal } => (id, Some(refusal.code)),
                        other => panic!("{other:?}"),
                    };
                    assert_eq!(Some(&(id, refusal)), answers.next(), "of stream {}", self.stream);
                }
                Came::Control(ControlMessage::Notice(notice)) => {
                    let is_expected =
                        matches!(notice, Notice::Format { .. } | Notice::Unreadable { .. } | Notice::Dropped { .. });
                    assert!(is_expected, "{notice:?}");
                }
                other => panic!("{other:?}"),
            }
            for (number, records) in &got {
                assert!(self.model.records.get(number) >= Some(records), "{got:?} of {:?}", self.model.records);
            }
        }
    }
}

fn subscribe(id: u32, subscription: u32, sql: &str, wait: bool) -> Request {
    let (sql, overflow) = (sql.to_owned(), Some(Overflow::Block));
    Request::Subscribe {
        id,
        subscription,
        sql,
        overflow,
        wait,
        accept: Vec::new(),
        unreadable: None,
        row_errors: Default::default(),
        positions: false,
        one_format: false,
    }
}

#[test]
fn a_sessions_requests_and_records_keep_their_order_and_leave_nothing_behind() {
    let seed = std::env::var("CROSSDOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("CROSSDOCK_SEED={seed} repeats this");
    let context = start(|_| {});
    std::thread::scope(|scope| {
        for number in 0..8u64 {
            let context = &context;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed ^ number);
                for round in 0..8 {
                    let mut line = Line::open(context, number % 2 == 0);
                    let stream = format!("s{number}_{round}");
                    let (model, id) = (Model::default(), 0);
                    let mut script = Script { random: random.fork(), line: &mut line, stream, model, id };
                    // No more answers at a time than a session over packets may have unacknowledged.
                    for _ in 0..random.u8(1..4) {
                        (0..random.u8(1..25)).for_each(|_| script.step());
                        script.check();
                        script.model.answers.clear();
                        script.model.records.clear();
                    }
                    // The last requests are under way when it goes.
                    (0..random.u8(0..6)).for_each(|_| script.step());
                    match random.bool() {
                        true => line.close(),
                        false => {
                            line.ask(Request::Terminate);
                            line.flush();
                        }
                    }
                }
            });
        }
    });
    await_that("all subscriptions gone", || context.subscriptions().unwrap().is_empty());
    await_that("all sessions gone", || {
        let info = context.context().unwrap();
        info.sessions == 0 && info.clients == 0
    });
    // One that is gone publishes until what it had put before is taken.
    await_that("all publishers gone", || context.streams().unwrap().iter().all(|stream| stream.publishers == 0));
}

#[test]
fn a_burst_of_a_publisher_reaches_all_waiting_subscribers() {
    for by_packets in [true, false] {
        let context = start(|_| {});
        let mut waiting = Line::open(&context, !by_packets);
        const WAITING: u32 = 50;
        for number in 1..=WAITING {
            let (select, condition, ..) = QUERIES[number as usize % QUERIES.len()];
            waiting.ask(subscribe(number, number, &format!("{select} FROM late {condition}"), true));
        }
        waiting.flush();
        await_that("all wait", || context.subscriptions().unwrap().len() == WAITING as usize);
        let [format, ..] = formats();
        let mut publisher = Line::open(&context, by_packets);
        let described = format.describe();
        publisher.ask(Request::Announce {
            id: 1,
            stream: 1,
            name: "late".to_owned(),
            format: described,
            publication: None,
            key: Vec::new(),
        });
        publisher.publish(1, format.id().0, 100, &records(&format, 100));
        // It does not wait for its answer.
        publisher.close();
        let (mut got, mut standing, mut ended) = (BTreeMap::<u32, u64>::new(), 0, 0);
        while ended < WAITING {
            match waiting.next() {
                Came::Records(number, records) => *got.entry(number).or_default() += records,
                Came::Control(ControlMessage::Reply(Reply::Subscribed { .. })) => standing += 1,
                Came::Control(ControlMessage::Notice(Notice::StreamEnded { .. })) => ended += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(standing, WAITING);
        for number in 1..=WAITING {
            let passes = QUERIES[number as usize % QUERIES.len()].3 * 10;
            assert_eq!(got.get(&number), Some(&passes), "of subscription {number}");
        }
    }
}
