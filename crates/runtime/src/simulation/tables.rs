//! The state of a stream: each subscriber keeps the table of `SNAPSHOT THEN CHANGES`, replayed change by change, while its query is changed,
//! sessions are lost, and a `durable` daemon crashes. Some subscribers use `DELTA`, some `ORDER BY … LIMIT n`. Once all is delivered the table
//! equals the query over the whole stream.

use super::durable::{self, durable_plan};
use super::model::{Model, Query, stream_name, value_of};
use super::world::{MS, SECOND, World};
use super::{any_plan, finish, heal, leave, network_fault};
use crate::managers::spec::HandlerSpec;
use crate::managers::state_spec::StateSpec;
use crossdock_sim::{Rng, check};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Subscribers at most.
const SUBSCRIBERS: usize = 5;
/// The columns of a query; the last one is not in all lists. `part` is the rest of the number by [`PART`], and null for one of the rests.
const COLUMNS: [&str; 4] = ["value", "publisher", "part", "number"];
const PART: u64 = 3;

/// A row of a query: its columns in the order of [`COLUMNS`].
type Row = [Option<i64>; COLUMNS.len()];

/// The expressions that rows are put in order by.
const ORDERS: [&str; 4] = ["value", "number", "part", "value % 10"];

/// The first rows of a query in order: by one of [`ORDERS`], then by the number if `by_number`, and by the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    by: usize,
    is_descending: bool,
    /// None: nulls stand where the direction puts them.
    nulls_first: Option<bool>,
    by_number: bool,
    limit: usize,
}

impl Order {
    fn any(rng: &mut Rng) -> Order {
        Order {
            by: rng.usize(..ORDERS.len()),
            is_descending: rng.bool(),
            nulls_first: [None, Some(false), Some(true)][rng.usize(..3)],
            by_number: rng.bool(),
            limit: [1, 3, 20, 200, 1000][rng.usize(..5)],
        }
    }

    fn sql(self) -> String {
        let direction = if self.is_descending { " DESC" } else { "" };
        let nulls = match self.nulls_first {
            None => "",
            Some(true) => " NULLS FIRST",
            Some(false) => " NULLS LAST",
        };
        let number = if self.by_number { ", number" } else { "" };
        format!(" ORDER BY {}{direction}{nulls}{number} LIMIT {}", ORDERS[self.by], self.limit)
    }

    /// The order of two rows, each with its record's number.
    fn compare(self, (one, of_one): (&Row, u64), (other, of_other): (&Row, u64)) -> Ordering {
        let term = |row: &Row, number: u64| match self.by {
            0 => row[0],
            1 => Some(number as i64),
            2 => row[2],
            _ => row[0].map(|value| value % 10),
        };
        let order = match (term(one, of_one), term(other, of_other)) {
            (Some(one), Some(other)) if self.is_descending => other.cmp(&one),
            (Some(one), Some(other)) => one.cmp(&other),
            // True is greater, so a row whose null stands first comes first.
            (one, other) if self.nulls_first.unwrap_or(self.is_descending) => other.is_none().cmp(&one.is_none()),
            (one, other) => one.is_none().cmp(&other.is_none()),
        };
        let numbers = if self.by_number { of_one.cmp(&of_other) } else { Ordering::Equal };
        order.then(numbers).then(one[0].cmp(&other[0]))
    }
}

/// The rows of a state by value whose number leaves another rest, what is given of their changes, and what a slow subscriber gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableQuery {
    modulus: u64,
    rest: u64,
    /// The rest of a number for which `part` is null.
    null_part: u64,
    order: Option<Order>,
    is_delta: bool,
    /// Whether `number` is in the list: without it records change that no column of the list shows.
    lists_number: bool,
    pub(super) conflates: bool,
}

impl TableQuery {
    fn any(rng: &mut Rng) -> TableQuery {
        TableQuery {
            modulus: rng.u64(1..5),
            rest: rng.u64(..5),
            null_part: rng.u64(..=PART),
            order: rng.bool().then(|| Order::any(rng)),
            is_delta: rng.bool(),
            lists_number: rng.u8(..4) > 0,
            conflates: rng.u8(..3) == 0,
        }
    }

    /// Another query that can take the place of this one.
    fn another(self, rng: &mut Rng) -> TableQuery {
        let TableQuery { order, is_delta, lists_number, conflates, .. } = self;
        let order = order.map(|_| Order::any(rng));
        TableQuery { order, is_delta, lists_number, conflates, ..TableQuery::any(rng) }
    }

    pub(super) fn sql(self, stream: &str) -> String {
        let TableQuery { modulus, rest, null_part, .. } = self;
        let number = if self.lists_number { ", number" } else { "" };
        let delta = if self.is_delta { " DELTA" } else { "" };
        let order = self.order.map(Order::sql).unwrap_or_default();
        let slow = if self.conflates { " ON SLOW CONFLATE BY (value)" } else { "" };
        format!(
            "SELECT value, publisher, NULLIF(number % {PART}, {null_part}) AS part{number} FROM {stream} \
             SNAPSHOT THEN CHANGES{delta} WHERE number % {modulus} <> {rest}{order}{slow}"
        )
    }

    pub(super) fn selects(self, number: u64) -> bool {
        number % self.modulus != self.rest
    }

    /// How many rows it has at most.
    fn limit(self) -> usize {
        self.order.map_or(usize::MAX, |order| order.limit)
    }

    /// The row of a record.
    fn row(self, publisher: usize, number: u64) -> Row {
        let part = Some(number % PART).filter(|part| *part != self.null_part);
        let number_of_list = Some(number as i64).filter(|_| self.lists_number);
        let value = value_of(publisher, number);
        [Some(value), Some(publisher as i64), part.map(|part| part as i64), number_of_list]
    }

    /// The rows of a state, given by the last number of each value.
    fn rows(self, publisher: usize, last: &BTreeMap<i64, u64>) -> BTreeMap<i64, Row> {
        let selected = last.values().filter(|number| self.selects(**number));
        let mut rows: Vec<(Row, u64)> = selected.map(|number| (self.row(publisher, *number), *number)).collect();
        if let Some(order) = self.order {
            rows.sort_by(|(one, of_one), (other, of_other)| order.compare((one, *of_one), (other, *of_other)));
            rows.truncate(order.limit);
        }
        rows.into_iter().filter_map(|(row, _)| Some((row[0]?, row))).collect()
    }

    /// The row that a change gives in the place of the one before.
    fn changed(self, kind: u8, before: Option<Row>, field: impl Fn(&str) -> Option<i64>) -> Result<Row, String> {
        let came = COLUMNS.map(&field);
        if !self.is_delta {
            return Ok(came);
        }
        let marked = field("_changed").ok_or("a change without `_changed`")?;
        let is_marked = |column: &usize| marked >> column & 1 == 1;
        let before = before.unwrap_or_default();
        let mut row = before;
        for column in (0..COLUMNS.len()).filter(is_marked) {
            row[column] = came[column];
        }
        // The key is always there.
        row[0] = came[0];
        let columns = COLUMNS.len() - usize::from(!self.lists_number);
        let mut without = (1..COLUMNS.len()).filter(|column| !is_marked(column));
        let fits = match kind {
            b'e' => marked == (1 << columns) - 1,
            // Of changes that were conflated a column may have the value that it had.
            b'u' if self.conflates => marked != 0 && marked < 1 << columns,
            b'u' => {
                marked != 0 && (0..COLUMNS.len()).all(|column| is_marked(&column) == (row[column] != before[column]))
            }
            _ => marked == 0,
        };
        match fits && without.all(|column| came[column].is_none()) {
            true => Ok(row),
            false => {
                Err(format!("a change `{}` to {came:?} with the columns {marked:b}, after {before:?}", kind as char))
            }
        }
    }
}

/// The kind of a change by its first letter, whether it is one of `DELTA`, and whether it is one of the first rows in order.
type ChangeKind = (u8, bool, bool);

/// The table that a subscriber keeps: the row of the last record by value.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: BTreeMap<i64, Row>,
    /// The rows that it has at most by any of its queries.
    most_rows: usize,
    /// That of all records so far.
    whole: RefCell<Whole>,
    /// Changes that came.
    pub(super) changes: BTreeMap<ChangeKind, u64>,
}

/// The last number of each value among the first records of a publisher, and the rows that a query has of them.
#[derive(Debug, Default)]
struct Whole {
    records: u64,
    last: BTreeMap<i64, u64>,
    wanted: Option<(TableQuery, BTreeMap<i64, Row>)>,
}

impl Table {
    /// A change by a query has come; `_change` is given by the first letter of its kind. It fits the table that is there.
    pub(super) fn take(
        &mut self,
        (stream, query): (usize, TableQuery),
        model: &Model,
        field: impl Fn(&str) -> Option<i64>,
    ) -> Result<(), String> {
        let whole = |name: &str| field(name).ok_or_else(|| format!("a change without `{name}`"));
        let (value, kind) = (whole("value")?, whole("_change")? as u8);
        let before = self.rows.get(&value).copied();
        let row = query.changed(kind, before, &field)?;
        let Some((id, of)) = model.of(stream).next() else { return Err("a row of no publisher".to_owned()) };
        let [_, publisher, part, number] = row;
        let is_sent = match number.map(|number| number as u64) {
            Some(number) => {
                let is_part = part.is_none_or(|part| part as u64 == number % PART);
                number < of.handed && value == value_of(id, number) && is_part
            }
            None => !query.lists_number,
        };
        // Of a row that leaves, `DELTA` gives only the key: whether it was there is seen below.
        let is_key_alone = query.is_delta && kind == b'l';
        if !(is_sent || is_key_alone) || publisher.is_some_and(|publisher| publisher != id as i64) {
            return Err(format!("{row:?} was never sent"));
        }
        // By another query the row of the same record may differ.
        let differs = |before: Row| before != row || !(query.is_delta || query.lists_number);
        let fits = match kind {
            b'e' => before.is_none(),
            b'u' => before.is_some_and(|before| before[3] <= number && (query.conflates || differs(before))),
            // A change that was conflated with this one has not come.
            b'l' => before.is_some_and(|before| before == row || query.conflates && before[3] <= number),
            _ => false,
        };
        if !fits {
            return Err(format!("a change `{}` to {row:?}, after {before:?}", kind as char));
        }
        match kind {
            b'l' => self.rows.remove(&value),
            _ => self.rows.insert(value, row),
        };
        *self.changes.entry((kind, query.is_delta, query.order.is_some())).or_default() += 1;
        match self.rows.len() > self.most_rows && !query.conflates {
            true => Err(format!("{} rows, after {row:?}, and there are {} at most", self.rows.len(), self.most_rows)),
            false => Ok(()),
        }
    }

    /// The rows may be those of this query from now on, or those of the queries before.
    pub(super) fn expect(&mut self, query: TableQuery) {
        self.most_rows = self.most_rows.max(query.limit());
    }

    /// All that is there comes once more.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    /// The first row in which it differs from the query over the whole stream, if there is one.
    pub(super) fn missing(&self, stream: usize, query: TableQuery, model: &Model) -> Option<String> {
        let (id, of) = model.of(stream).next()?;
        let Whole { records, last, wanted } = &mut *self.whole.borrow_mut();
        // Sorted only where something is new: this is asked at each step of a run.
        if *records < of.handed || wanted.as_ref().is_none_or(|(of, _)| *of != query) {
            last.extend((*records..of.handed).map(|number| (value_of(id, number), number)));
            *records = of.handed;
            *wanted = Some((query, query.rows(id, last)));
        }
        let (_, wanted) = wanted.as_ref()?;
        if self.rows == *wanted {
            return None;
        }
        let lacks = wanted.iter().find(|(value, row)| self.rows.get(value) != Some(row));
        let wrong = self.rows.iter().find(|(value, row)| wanted.get(value) != Some(row));
        Some(format!("its table lacks {lacks:?} and has {wrong:?}"))
    }
}

/// A world with the state of a stream by value, a publisher, and a subscriber.
fn table_world(seed: u64, rng: &mut Rng) -> World {
    let plan = if rng.bool() { durable_plan(rng) } else { any_plan(rng) };
    let mut world = World::new(seed, plan);
    let state = StateSpec { key: vec!["value".to_owned()], ..StateSpec::default() };
    world.deploy(vec![HandlerSpec { peak_msgs_per_s: Some(1000), ..HandlerSpec::of_state(&stream_name(0), state) }]);
    world.publish(0, (rng.usize(1..=20), [5 * MS, 20 * MS][rng.usize(..2)]));
    subscribe(&mut world, rng);
    world
}

fn subscribe(world: &mut World, rng: &mut Rng) {
    let query = TableQuery::any(rng);
    let pace = ([1, 4, 100][rng.usize(..3)], [MS, 10 * MS, 100 * MS][rng.usize(..3)]);
    world.subscribe(0, Query::Table(query), pace);
}

/// A subscriber comes, or gets another query.
fn change(world: &mut World, rng: &mut Rng) {
    let there = world.subscribers().count();
    if there < SUBSCRIBERS && rng.u8(..3) == 0 {
        return subscribe(world, rng);
    }
    let chosen = rng.usize(..there);
    if let Some(subscriber) = world.subscribers_mut().nth(chosen)
        && let Query::Table(before) = subscriber.query
    {
        subscriber.change_query(Query::Table(before.another(rng)));
    }
}

/// The figures of a run: its digest, the crashes, the queries that were changed, and the kinds of changes that came.
#[derive(Debug, Default, PartialEq, Eq)]
struct RunFigures {
    digest: u64,
    crashes: u64,
    queries: u64,
    changes: BTreeMap<ChangeKind, u64>,
}

/// A run from a seed.
fn run(seed: u64) -> RunFigures {
    let mut rng = Rng::with_seed(seed);
    let mut world = table_world(seed, &mut rng);
    for _ in 0..rng.usize(2..=4) {
        for _ in 0..rng.usize(1..=3) {
            let limit_ns = world.network.now_ns() + rng.u64(..SECOND);
            world.run(limit_ns, |_| false);
            change(&mut world, &mut rng);
        }
        if world.plan.is_durable {
            durable::crash(&mut world, &mut rng);
        } else {
            let until_ns = network_fault(&mut world, &mut rng);
            world.run(until_ns, |_| false);
        }
        if rng.bool() {
            change(&mut world, &mut rng);
        }
        heal(&mut world);
    }
    let mut figures = RunFigures { crashes: world.crashes, ..RunFigures::default() };
    for subscriber in world.subscribers() {
        figures.queries += subscriber.queries;
        for (kind, count) in &subscriber.judge.table.changes {
            *figures.changes.entry(*kind).or_default() += count;
        }
    }
    if !world.plan.is_durable {
        finish(&mut world);
        leave(&mut world, &mut rng);
    }
    figures.digest = world.network.fingerprint();
    figures
}

#[test]
fn a_table_of_snapshot_and_changes_equals_the_query_over_the_whole_stream() {
    check("a_table_of_snapshot_and_changes_equals_the_query_over_the_whole_stream", 24, |seed| {
        run(seed);
    });
}

#[test]
fn a_seed_makes_the_same_run_of_tables() {
    let runs: Vec<RunFigures> = (0..6).map(run).collect();
    assert_eq!(runs, (0..6).map(run).collect::<Vec<_>>());
    // Crashes, changed queries and each kind of change occur.
    assert!(runs.iter().any(|of| of.crashes > 0) && runs.iter().any(|of| of.crashes == 0), "{runs:?}");
    assert!(runs.iter().any(|of| of.queries > 0), "{runs:?}");
    for kind in *b"eul" {
        for (is_delta, is_ordered) in [(false, false), (false, true), (true, false), (true, true)] {
            let kind = (kind, is_delta, is_ordered);
            assert!(runs.iter().any(|of| of.changes.contains_key(&kind)), "{kind:?}: {runs:?}");
        }
    }
}
