//! The state of a stream, and the tables that its subscribers make of what they get, for random schedules.
#![allow(clippy::unwrap_used)] // a test that fails may panic

#[path = "stateful_latest/changing.rs"]
mod changing;
#[path = "stateful_latest/conflated.rs"]
mod conflated;
#[path = "stateful_latest/ordered.rs"]
mod ordered;
mod support;

use std::collections::{BTreeMap, BTreeSet};

use crossdock_engine::{Handler, HandlerProgram, HandlerSource, Natives, SnapshotHandler, StateOrder, Tables};
use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_mailbox::Selection;
use crossdock_query::{KeyedState, Select, SnapshotProgram, parse_subscription};
use proptest::prelude::*;

/// Values by key.
type Keyed = BTreeMap<Option<String>, i64>;

/// A key, which may be null, and a value.
type Row = (Option<String>, i64);

fn format() -> Format {
    Format::parse_schema("k string null\nv i64\nword string\nkind enum u8 { near = 0, far = 1 }\n").unwrap()
}

/// Of the text of a record: short, or as a large value says.
fn length(value: i64) -> usize {
    let value = value.unsigned_abs() as usize;
    if value < LONG as usize { value % 40 } else { value / LONG as usize }
}

const LONG: i64 = 1 << 20;

fn record((key, value): &Row, row: &mut RecordBuilder) -> Vec<u8> {
    row.clear();
    key.iter().for_each(|key| row.set_text(0, key).unwrap());
    row.set_i64(1, *value).unwrap();
    // Records of one key have different lengths.
    row.set_text(2, "w".repeat(length(*value))).unwrap();
    row.set_u64(3, value.rem_euclid(2).unsigned_abs()).unwrap();
    row.finish().unwrap().to_vec()
}

/// A state, and the rows that have left it.
struct Kept {
    /// Two handlers of it, and which one has the state.
    handlers: [Box<dyn Handler>; 2],
    has: usize,
    rows: Format,
    log: Vec<Vec<u8>>,
    order: StateOrder,
    declared: KeyedState,
}

impl Kept {
    fn new(max_keys: u64, max_bytes: u64, max_age_ns: Option<u64>) -> Kept {
        let state = KeyedState { stream: "s".into(), key: vec!["K".into()], max_keys, max_bytes, max_age_ns };
        let declared = state.clone();
        let program = HandlerProgram { source: HandlerSource::State(state), ..HandlerProgram::sql("") };
        program.check(&Natives::built_in()).unwrap();
        assert_eq!((program.reads().unwrap(), program.is_stateful()), (vec!["s".to_owned()], true));
        let decided = [("s".to_owned(), format())];
        let make = || program.make_stateful((&decided, &Tables::default()), "s", &format()).unwrap();
        let (first, second) = (make(), make());
        let rows = first.output.clone();
        let order = StateOrder { readers: 0, walks: 0 };
        Kept { handlers: [first.handler, second.handler], has: 0, rows, log: Vec::new(), order, declared }
    }

    fn handler(&mut self) -> &mut dyn Handler {
        &mut *self.handlers[self.has]
    }

    fn feed(&mut self, rows: &[Row]) {
        let mut row = RecordBuilder::new(&format());
        let records: Vec<Vec<u8>> = rows.iter().map(|of| record(of, &mut row)).collect();
        let batch = support::batch(&records);
        let mut log = std::mem::take(&mut self.log);
        self.handler().process(&batch, &mut Selection::all(batch.len()), &mut log);
        self.log = log;
    }

    fn pass_on(&mut self) {
        let state = self.handler().hand_over().unwrap();
        self.has = 1 - self.has;
        self.handler().take_over(state).unwrap();
    }

    fn order(&mut self, readers: u32) {
        self.order.readers = readers;
        let order = self.order;
        assert!(self.handler().set_parameters(&mut order.into_values()));
    }

    fn subscribe(&mut self, sql: &str) -> Reader {
        let from = self.log.len();
        self.order.walks += 1;
        self.order(self.order.readers + 1);
        Reader::new(sql, &self.rows, from)
    }

    fn walk(&mut self) {
        let mut log = std::mem::take(&mut self.log);
        self.handler().walk(&mut log);
        self.log = log;
    }

    /// Another declaration of the same key, with the state so far.
    fn declare(&mut self, change: impl FnOnce(&mut KeyedState)) {
        change(&mut self.declared);
        let source = HandlerSource::State(self.declared.clone());
        let program = HandlerProgram { source, ..HandlerProgram::sql("") };
        let mut next =
            program.make_stateful((&[("s".to_owned(), format())], &Tables::default()), "s", &format()).unwrap().handler;
        next.take_over(self.handler().hand_over().unwrap()).unwrap();
        self.handlers[self.has] = next;
    }

    /// Does all that is due at this time, as the daemon does it without records.
    fn settle(&mut self, now_ns: u64) {
        while self.handler().due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.advance(now_ns);
        }
    }

    fn advance(&mut self, now_ns: u64) {
        let mut log = std::mem::take(&mut self.log);
        self.handler().advance(now_ns, &mut log);
        self.log = log;
    }

    fn walk_to_the_end(&mut self) {
        while self.handler().has_walk() {
            self.walk();
        }
    }
}

/// A subscription, and the table that it makes of what it gets.
struct Reader {
    handler: SnapshotHandler,
    output: Format,
    at: usize,
    table: BTreeMap<Option<String>, i64>,
    rows: Vec<String>,
}

fn plan(sql: &str, rows: &Format) -> SnapshotProgram {
    of_state(sql).plan_snapshot(rows).unwrap()
}

/// A query of the state, as the daemon has it.
fn of_state(sql: &str) -> Select {
    of_bounded(sql, 1 << 30)
}

/// The same, of a state that takes at most these bytes.
fn of_bounded(sql: &str, max_bytes: u64) -> Select {
    let state =
        KeyedState { stream: "s".into(), key: vec!["K".into()], max_keys: 1 << 20, max_bytes, max_age_ns: None };
    parse_subscription(sql).unwrap().of_state("state of s", state)
}

impl Reader {
    fn new(sql: &str, rows: &Format, at: usize) -> Reader {
        let program = plan(sql, rows);
        let output = program.enter.output.clone();
        Reader { handler: SnapshotHandler::new(program), output, at, table: BTreeMap::new(), rows: Vec::new() }
    }

    /// Takes the next rows of the state's, up to `most` of them.
    fn take(&mut self, log: &[Vec<u8>], most: usize) {
        let end = log.len().min(self.at.saturating_add(most));
        let batch = support::batch(&log[self.at..end]);
        self.at = end;
        let mut out: Vec<Vec<u8>> = Vec::new();
        let _ = self.handler.process(&batch, &mut Selection::all(batch.len()), &mut out);
        for row in out {
            self.put(&row);
        }
    }

    fn put(&mut self, row: &[u8]) {
        let row = Record::check(&self.output, row).unwrap();
        let text = |value: Option<Value<'_>>| match value {
            Some(Value::Text(text)) => Some(String::from_utf8(text.to_vec()).unwrap()),
            _ => None,
        };
        let (key, change) = (text(row.field("k")), text(row.field("_change")));
        let Some(Value::Int(value)) = row.field("v") else { panic!("a value") };
        self.rows.push(format!("{} {} {value}", change.as_deref().unwrap_or("-"), key.as_deref().unwrap_or("null")));
        let before = match change.as_deref() {
            Some("leave") => self.table.remove(&key),
            _ => self.table.insert(key, value),
        };
        let is_known = matches!(change.as_deref(), Some("update" | "leave"));
        assert_eq!(before.is_some(), is_known, "{:?}", self.rows);
        if change.as_deref() == Some("leave") {
            assert_eq!(before, Some(value), "a notice has the row that leaves: {:?}", self.rows);
        }
    }
}

/// The state as it should be: the keys in order of their last records.
#[derive(Default)]
struct Model {
    rows: Vec<Row>,
}

impl Model {
    fn put(&mut self, row: &Row, most: usize) -> BTreeSet<Option<String>> {
        self.rows.retain(|(key, _)| *key != row.0);
        self.rows.push(row.clone());
        let gone = self.rows.len().saturating_sub(most);
        self.rows.drain(..gone).map(|(key, _)| key).chain([row.0.clone()]).collect()
    }

    fn table(&self, passes: impl Fn(i64) -> bool) -> BTreeMap<Option<String>, i64> {
        self.rows.iter().filter(|(_, value)| passes(*value)).cloned().collect()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Feed(Vec<Row>),
    Subscribe(bool),
    Walk,
    PassOn,
    Take(usize, usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let key = prop::option::weighted(0.95, prop::sample::select((0..24).map(key_of).collect::<Vec<_>>()));
    let rows = prop::collection::vec((key, -60..60i64), 1..8);
    let act = prop_oneof![
        4 => rows.prop_map(Act::Feed),
        1 => any::<bool>().prop_map(Act::Subscribe),
        2 => Just(Act::Walk),
        1 => Just(Act::PassOn),
        4 => (0..8usize, 1..6usize).prop_map(|(reader, most)| Act::Take(reader, most)),
    ];
    prop::collection::vec(act, 1..60)
}

/// Some keys are longer than what is kept beside the table.
fn key_of(number: usize) -> String {
    format!("{}{number}", if number.is_multiple_of(3) { "a key of more than sixteen bytes " } else { "k" })
}

const FOLLOWS: &str = "SELECT k, v FROM s SNAPSHOT THEN CHANGES WHERE v > 0 AND word NOT LIKE 'wwwwwwwwwwwwwwwwwwwww%'";
const ONCE: &str = "SELECT k, v FROM s SNAPSHOT WHERE v > 0";

fn follows(value: i64) -> bool {
    value > 0 && value % 40 < 21
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn a_table_of_a_snapshot_and_its_changes_equals_the_query_over_the_whole_stream(
        acts in acts(), most in 1..30usize,
    ) {
        let (mut kept, mut model) = (Kept::new(most as u64, 1 << 30, None), Model::default());
        let mut readers: Vec<Reader> = Vec::new();
        let mut onces: Vec<(Reader, Keyed, BTreeSet<Option<String>>)> = Vec::new();
        for act in acts {
            match act {
                Act::Feed(rows) => {
                    kept.feed(&rows);
                    for row in &rows {
                        let changed = model.put(row, most);
                        onces.iter_mut().for_each(|(_, _, touched)| touched.extend(changed.iter().cloned()));
                    }
                }
                Act::Subscribe(true) => readers.push(kept.subscribe(FOLLOWS)),
                Act::Subscribe(false) => {
                    onces.push((kept.subscribe(ONCE), model.table(|value| value > 0), BTreeSet::new()));
                }
                Act::Walk => kept.walk(),
                Act::PassOn => kept.pass_on(),
                Act::Take(reader, rows) => {
                    let all = readers.len() + onces.len();
                    match reader % all.max(1) {
                        at if at < readers.len() => readers[at].take(&kept.log, rows),
                        at if at < all => onces[at - readers.len()].0.take(&kept.log, rows),
                        _ => {}
                    }
                }
            }
        }
        kept.walk_to_the_end();
        for reader in &mut readers {
            while reader.at < kept.log.len() {
                reader.take(&kept.log, 7);
            }
            prop_assert!(!reader.handler.holds_end() && !reader.handler.is_over());
            prop_assert_eq!(&reader.table, &model.table(follows));
        }
        for (mut reader, before, touched) in onces {
            reader.take(&kept.log, usize::MAX);
            prop_assert!(reader.handler.is_over());
            // Keys without a change meanwhile are given as they were, and no other but those that changed.
            for (key, value) in &before {
                prop_assert!(touched.contains(key) || reader.table.get(key) == Some(value));
            }
            prop_assert!(reader.table.keys().all(|key| touched.contains(key) || before.contains_key(key)));
        }
    }
}

#[test]
fn a_walk_is_made_in_steps_and_what_changes_meanwhile_is_given_once() {
    let mut kept = Kept::new(100_000, 1 << 30, None);
    let rows: Vec<Row> = (0..20_000).map(|number| (Some(format!("key {number}")), number)).collect();
    rows.chunks(500).for_each(|rows| kept.feed(rows));
    assert!(kept.log.is_empty(), "nobody reads");
    let mut reader = kept.subscribe("SELECT k, v FROM s SNAPSHOT THEN CHANGES");
    let (mut steps, mut changed) = (0, 0);
    while kept.handler().has_walk() {
        let before = kept.log.len();
        kept.walk();
        assert!(kept.log[before..].iter().map(Vec::len).sum::<usize>() < 64 << 10, "a step is short");
        // One that the walk has passed, one that it has not, and a new one.
        kept.feed(&[rows[0].clone(), rows[19_999].clone(), (Some(format!("new {steps}")), 1)]);
        (steps, changed) = (steps + 1, changed + 1);
    }
    assert!(steps > 10, "{steps}");
    reader.take(&kept.log, usize::MAX);
    assert_eq!(reader.table.len(), 20_000 + changed);
    let of = |wanted: &str| reader.rows.iter().filter(|row| **row == wanted).count();
    assert_eq!((of("enter key 0 0"), of("update key 0 0")), (1, steps));
    // The last key comes with the walk, and its changes before that do not.
    assert_eq!((of("enter key 19999 19999"), of("update key 19999 19999")), (1, 1));
}

#[test]
fn the_key_without_a_record_for_the_longest_goes_at_a_bound_and_is_counted() {
    let mut kept = Kept::new(3, 1 << 20, None);
    let row = |key: &str, value| (Some(key.to_owned()), value);
    kept.feed(&[row("a", 1), row("b", 2), row("c", 3), row("a", 4)]);
    let mut reader = kept.subscribe("SELECT k, v FROM s SNAPSHOT THEN CHANGES");
    kept.walk_to_the_end();
    kept.feed(&[row("d", 5)]);
    reader.take(&kept.log, usize::MAX);
    assert_eq!(reader.rows[3..], ["enter d 5", "leave b 2"]);
    assert_eq!(kept.handler().counters().forgotten, 1);

    let mut small = Kept::new(1 << 20, 40_000, None);
    (0..1000).for_each(|number| small.feed(&[(Some(format!("key {number}")), number)]));
    assert!(small.handler().state_bytes() <= 40_000, "{}", small.handler().state_bytes());
    let counters = small.handler().counters();
    assert!(counters.forgotten > 500 && counters.forgotten < 1000, "{counters:?}");
}

/// Rows are put in by groups, and their keys are looked for before that: some of these are gone by then, and their numbers are those of
/// others.
#[test]
fn a_state_gives_the_same_rows_in_the_same_order_however_many_come_at_a_time() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut key = move || (random.u8(..) > 9).then(|| key_of(random.usize(0..60)));
    let rows: Vec<Row> = (0..3000).map(|value| (key(), value)).collect();
    let logs = [1, 7, 250, 3000].map(|at_a_time| {
        let mut kept = Kept::new(40, 1 << 20, None);
        kept.subscribe("SELECT k, v FROM s SNAPSHOT THEN CHANGES");
        kept.walk_to_the_end();
        rows.chunks(at_a_time).for_each(|rows| kept.feed(rows));
        assert!(kept.handler().counters().forgotten > 500);
        kept.log
    });
    assert!(logs[0].len() > 5000);
    assert!(logs.iter().all(|log| *log == logs[0]));
}

fn numbered(keys: std::ops::Range<i64>) -> Vec<Row> {
    keys.map(|number| (Some(format!("{} {number}", "a key of more than sixteen bytes")), number)).collect()
}

/// The values of the rows that a reader gets who comes now.
fn keys_of(kept: &mut Kept) -> BTreeSet<i64> {
    let mut reader = kept.subscribe("SELECT k, v FROM s SNAPSHOT");
    kept.walk_to_the_end();
    reader.take(&kept.log, usize::MAX);
    assert!(reader.handler.is_over());
    reader.table.into_values().collect()
}

/// The memory of the keys that go comes back only by and by: that makes no others go.
#[test]
fn a_smaller_bound_of_bytes_lets_no_more_keys_go_than_it_needs() {
    let mut kept = Kept::new(1 << 20, 1 << 30, None);
    numbered(0..20_000).chunks(500).for_each(|rows| kept.feed(rows));
    let bytes = kept.handler().state_bytes() as u64;
    kept.declare(|state| state.max_bytes = bytes / 4);
    // Some go with the records that come, the others without any.
    (0..200).for_each(|_| kept.feed(&numbered(19_999..20_000)));
    kept.settle(1);
    let keys = keys_of(&mut kept);
    assert!(keys.len() > 4900 && keys.len() <= 5050, "{}", keys.len());
    assert_eq!(keys.first().copied(), Some(20_000 - keys.len() as i64), "the last ones stay");
    assert_eq!(kept.handler().counters().forgotten, 20_000 - keys.len() as u64);
    // There are as many from then on.
    numbered(20_000..50_000).chunks(500).for_each(|rows| kept.feed(rows));
    let later = keys_of(&mut kept).len();
    assert!(later.abs_diff(keys.len()) < 50, "{later}");
}

#[test]
fn a_smaller_bound_of_keys_or_age_holds_at_once_without_a_record() {
    let mut kept = Kept::new(100_000, 1 << 30, Some(1_000_000));
    kept.advance(10_000);
    numbered(0..12_000).chunks(500).for_each(|rows| kept.feed(rows));
    let mut reader = kept.subscribe("SELECT k, v FROM s SNAPSHOT THEN CHANGES");
    kept.walk_to_the_end();
    assert_eq!(kept.handler().due_ns(), Some(1_010_000));
    kept.declare(|state| state.max_keys = 10);
    assert_eq!(kept.handler().due_ns(), Some(0));
    // Not all in one step.
    kept.advance(20_000);
    assert_eq!((kept.handler().counters().forgotten, kept.handler().due_ns()), (4096, Some(0)));
    kept.settle(20_000);
    reader.take(&kept.log, usize::MAX);
    assert_eq!(reader.table.values().copied().collect::<BTreeSet<i64>>(), (11_990..12_000).collect());
    kept.declare(|state| state.max_age_ns = Some(5000));
    assert_eq!(kept.handler().due_ns(), Some(15_000));
    kept.settle(20_000);
    reader.take(&kept.log, usize::MAX);
    assert!(reader.table.is_empty());
}

/// Rows of all lengths, one of them longer than the bound: what finds no room lets others go, and readers hear of each.
#[test]
fn a_state_without_room_lets_keys_go_and_its_readers_have_what_it_has() {
    const MOST: u64 = 64 << 10;
    let mut kept = Kept::new(1 << 20, MOST, None);
    let mut reader = kept.subscribe("SELECT k, v FROM s SNAPSHOT THEN CHANGES");
    let mut random = fastrand::Rng::with_seed(7);
    for step in 0..6000 {
        let length = [0, 3, 1000, 9000, 30_000, 200_000][random.usize(0..if step % 500 == 0 { 6 } else { 5 })];
        let row = numbered(random.i64(0..60)..60).remove(0);
        kept.feed(&[(row.0, if length == 0 { step } else { length * LONG + step })]);
        if step % 100 == 0 {
            kept.walk_to_the_end();
        }
        let bytes = kept.handler().state_bytes() as u64;
        assert!(bytes <= MOST + 60 * 200, "{bytes}");
    }
    reader.take(&kept.log, usize::MAX);
    let mut now = kept.subscribe("SELECT k, v FROM s SNAPSHOT THEN CHANGES");
    kept.walk_to_the_end();
    now.take(&kept.log, usize::MAX);
    assert_eq!(reader.table, now.table);
    assert!(now.table.len() > 3 && kept.handler().counters().forgotten > 1000, "{:?}", kept.handler().counters());
}

#[test]
fn a_key_without_a_record_for_its_age_leaves() {
    let mut kept = Kept::new(100, 1 << 20, Some(1000));
    let row = |key: &str, value| (Some(key.to_owned()), value);
    kept.advance(10_000);
    kept.feed(&[row("a", 1), row("b", 2)]);
    assert_eq!(kept.handler().due_ns(), Some(11_000));
    let mut reader = kept.subscribe("SELECT k, v FROM s SNAPSHOT THEN CHANGES");
    kept.walk_to_the_end();
    kept.advance(10_500);
    kept.feed(&[row("a", 3)]);
    kept.advance(11_200);
    kept.advance(11_500);
    reader.take(&kept.log, usize::MAX);
    assert_eq!(reader.rows, ["enter a 1", "enter b 2", "update a 3", "leave b 2", "leave a 3"]);
    assert_eq!((kept.handler().due_ns(), kept.handler().counters().forgotten), (None, 2));
}

#[test]
fn a_reader_of_a_state_that_is_lost_is_over_and_one_that_waits_begins_with_the_next() {
    let mut kept = Kept::new(100, 1 << 20, None);
    kept.feed(&[(Some("a".into()), 1)]);
    let mut reader = kept.subscribe("SELECT k, v FROM s SNAPSHOT THEN CHANGES");
    kept.walk_to_the_end();
    reader.take(&kept.log, usize::MAX);
    // The other handler begins anew, as after a fault.
    (kept.has, kept.order.walks) = (1, kept.order.walks);
    let mut next = kept.subscribe("SELECT k, v FROM s SNAPSHOT THEN CHANGES");
    kept.feed(&[(Some("b".into()), 2)]);
    kept.walk_to_the_end();
    reader.take(&kept.log, usize::MAX);
    next.take(&kept.log, usize::MAX);
    assert!(reader.handler.is_lost() && reader.handler.is_over() && !next.handler.is_over());
    assert_eq!(next.rows, ["enter b 2"]);
}

/// A key declared anew, with other columns than those of the first declaration.
#[test]
fn a_reader_hears_of_another_state_though_its_rows_have_another_format() {
    const SQL: &str = "SELECT k, v FROM s SNAPSHOT THEN CHANGES";
    let wider =
        Format::parse_schema("k string null\nv i64\nword string\nkind enum u8 { near = 0, far = 1 }\nmore i64\n");
    let wider = wider.unwrap();
    let mut kept = Kept::new(100, 1 << 20, None);
    kept.feed(&[(Some("a".into()), 1)]);
    let mut reader = kept.subscribe(SQL);
    kept.walk_to_the_end();
    reader.take(&kept.log, usize::MAX);
    let state = KeyedState { key: vec!["v".into()], ..kept.declared.clone() };
    let program = HandlerProgram { source: HandlerSource::State(state), ..HandlerProgram::sql("") };
    let mut other =
        program.make_stateful((&[("s".to_owned(), wider.clone())], &Tables::default()), "s", &wider).unwrap();
    // It has a record before its first walk, which is of no use to a reader of the one before.
    let mut log: Vec<Vec<u8>> = Vec::new();
    let mut row = RecordBuilder::new(&wider);
    let mut feed = |handler: &mut dyn Handler, log: &mut Vec<Vec<u8>>| {
        row.clear();
        (0..3).for_each(
            |column| if column == 1 { row.set_i64(1, 7).unwrap() } else { row.set_text(column, "b").unwrap() },
        );
        row.set_u64(3, 0).unwrap();
        row.set_i64(4, 9).unwrap();
        let batch = support::batch(&[row.finish().unwrap().to_vec()]);
        handler.process(&batch, &mut Selection::all(batch.len()), log);
    };
    assert!(other.handler.set_parameters(&mut StateOrder { readers: 1, walks: 1 }.into_values()));
    feed(&mut *other.handler, &mut log);
    assert!(log.is_empty());
    other.handler.walk(&mut log);
    feed(&mut *other.handler, &mut log);
    // As the daemon does it: one handler for each format, which share how far the reader has come.
    let mut next = SnapshotHandler::new(plan(SQL, &other.output));
    next.take_over(reader.handler.hand_over().unwrap()).unwrap();
    let batch = support::batch(&log);
    let mut out: Vec<Vec<u8>> = Vec::new();
    let _ = next.process(&batch, &mut Selection::all(batch.len()), &mut out);
    assert!(out.is_empty() && next.is_lost() && next.is_over() && !next.holds_end());
    // One that waits begins with it.
    let mut begins = SnapshotHandler::new(plan(SQL, &other.output));
    begins.take_over(SnapshotHandler::new(plan(SQL, &kept.rows)).hand_over().unwrap()).unwrap();
    let _ = begins.process(&batch, &mut Selection::all(batch.len()), &mut out);
    assert!(out.len() == 2 && !begins.is_lost() && !begins.holds_end());
}

#[test]
fn nothing_leaves_for_nobody() {
    let mut kept = Kept::new(100, 1 << 20, None);
    let _reader = kept.subscribe("SELECT * FROM s SNAPSHOT");
    assert_eq!(kept.handler().most_out_bytes(), None);
    kept.order(0);
    assert_eq!(kept.handler().most_out_bytes(), Some(0));
    kept.feed(&[(Some("a".into()), 1)]);
    assert!(!kept.handler().has_walk() && kept.log.is_empty());
}

#[test]
fn a_row_that_cannot_be_computed_is_none_that_the_reader_has() {
    let mut kept = Kept::new(100, 1 << 20, None);
    let row = |value| (Some("a".to_owned()), value);
    kept.feed(&[row(0)]);
    let mut reader = kept.subscribe("SELECT k, v, 10 / v AS part FROM s SNAPSHOT THEN CHANGES");
    kept.walk_to_the_end();
    for value in [5, 0, 2] {
        kept.feed(&[row(value)]);
    }
    reader.take(&kept.log, usize::MAX);
    assert_eq!(reader.rows, ["enter a 5", "leave a 5", "enter a 2"]);
    assert_eq!(reader.handler.counters().row_errors, 2);
}

#[test]
fn a_query_of_a_state_has_the_streams_columns_and_what_changed() {
    let rows = Kept::new(1, 1, None).rows;
    let columns = |sql: &str| plan(sql, &rows).enter.output.describe();
    assert_eq!(columns("SELECT * FROM s SNAPSHOT").matches("_step").count(), 0);
    let all = columns("SELECT * FROM s SNAPSHOT THEN CHANGES");
    assert!(all.contains("k string") && all.contains("kind string") && all.contains("_change char[6]"), "{all}");
    let why = |sql: &str| of_state(sql).plan_snapshot(&rows).unwrap_err().to_string();
    assert!(why("SELECT _step FROM s SNAPSHOT").contains("_step"));
    let taken = why("SELECT v AS _change FROM s SNAPSHOT THEN CHANGES");
    assert!(taken.contains("give yours another name"), "{taken}");
}

const DELTAS: &str = "SELECT v, k, word, kind FROM s SNAPSHOT THEN CHANGES DELTA WHERE v > 0";

/// A table of what comes with `DELTA`: by key the value, the word and the kind.
#[derive(Default)]
struct Deltas {
    table: BTreeMap<Option<String>, (i64, String, String)>,
}

impl Deltas {
    fn put(&mut self, row: &Record<'_>) {
        let text = |value: Value<'_>| match value {
            Value::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
            _ => None,
        };
        let (key, change) = (text(row.get(1)), text(row.get(4)).unwrap());
        let Value::Bytes(&[changed]) = row.get(5) else { panic!("a bitmap of four columns") };
        match &*change {
            "leave" => {
                assert!(changed == 0 && self.table.remove(&key).is_some());
                return;
            }
            "enter" => assert!(changed == 15 && !self.table.contains_key(&key)),
            _ => assert!(changed != 0 && changed & 2 == 0, "the key does not change: {changed:b}"),
        }
        let there = self.table.entry(key).or_default();
        let has = |column: usize| changed >> column & 1 != 0;
        for column in [0, 2, 3] {
            assert_eq!(row.get(column) != Value::Null, has(column), "{change} of {changed:b}: {column}");
        }
        if let Value::Int(value) = row.get(0) {
            there.0 = value;
        }
        [(2, &mut there.1), (3, &mut there.2)].into_iter().for_each(|(column, to)| {
            text(row.get(column)).into_iter().for_each(|text| *to = text);
        });
    }
}

proptest! {
    #[test]
    fn a_table_of_deltas_equals_the_query_over_the_whole_stream(acts in acts(), most in 1..30usize) {
        let (mut kept, mut model) = (Kept::new(most as u64, 1 << 30, None), Model::default());
        let program = plan(DELTAS, &kept.rows);
        let output = program.output().clone();
        let (mut handler, mut deltas, mut at) = (SnapshotHandler::new(program), Deltas::default(), 0);
        kept.order.walks = 1;
        kept.order(1);
        for act in acts {
            match act {
                Act::Feed(rows) => {
                    kept.feed(&rows);
                    rows.iter().for_each(|row| drop(model.put(row, most)));
                }
                Act::Take(_, rows) => {
                    let end = kept.log.len().min(at + rows);
                    let (batch, mut out) = (support::batch(&kept.log[at..end]), Vec::<Vec<u8>>::new());
                    at = end;
                    let _ = handler.process(&batch, &mut Selection::all(batch.len()), &mut out);
                    out.iter().for_each(|row| deltas.put(&Record::check(&output, row).unwrap()));
                }
                Act::Walk => kept.walk(),
                Act::PassOn => kept.pass_on(),
                Act::Subscribe(_) => {}
            }
        }
        kept.walk_to_the_end();
        let (batch, mut out) = (support::batch(&kept.log[at..]), Vec::<Vec<u8>>::new());
        let _ = handler.process(&batch, &mut Selection::all(batch.len()), &mut out);
        out.iter().for_each(|row| deltas.put(&Record::check(&output, row).unwrap()));
        let whole = |(key, value): (Option<String>, i64)| {
            let kind = if value % 2 == 0 { "near" } else { "far" };
            (key, (value, "w".repeat(value.unsigned_abs() as usize % 40), kind.to_owned()))
        };
        let wanted: BTreeMap<_, _> = model.table(|value| value > 0).into_iter().map(whole).collect();
        prop_assert_eq!(deltas.table, wanted);
    }
}

#[test]
fn a_query_with_delta_has_the_key_in_its_list() {
    let rows = Kept::new(1, 1, None).rows;
    let why = |sql: &str| of_state(sql).plan_snapshot(&rows).unwrap_err().to_string();
    let missing = why("SELECT v FROM s SNAPSHOT THEN CHANGES DELTA");
    assert!(missing.contains("without the key") && missing.contains("in the list: K"), "{missing}");
    let taken = why("SELECT k, v AS _changed FROM s SNAPSHOT THEN CHANGES DELTA");
    assert!(taken.contains("give yours another name"), "{taken}");
}
