//! The state of a stream: each subscriber keeps the table of `SNAPSHOT THEN CHANGES`, replayed change by change, while its query is changed,
//! sessions are lost, and a `durable` daemon crashes. Once all is delivered the table equals the query over the whole stream.

use super::durable::{self, durable_plan};
use super::model::{Model, Query, stream_name, value_of};
use super::world::{MS, SECOND, World};
use super::{any_plan, finish, heal, leave, network_fault};
use crate::managers::spec::HandlerSpec;
use crate::managers::state_spec::StateSpec;
use crossdock_sim::{Rng, check};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Subscribers at most.
const SUBSCRIBERS: usize = 5;

/// The rows of a state by value whose number leaves another rest, and what a slow subscriber gets of their changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableQuery {
    modulus: u64,
    rest: u64,
    pub(super) conflates: bool,
}

impl TableQuery {
    fn any(rng: &mut Rng, conflates: bool) -> TableQuery {
        TableQuery { modulus: rng.u64(1..5), rest: rng.u64(..5), conflates }
    }

    pub(super) fn sql(self, stream: &str) -> String {
        let TableQuery { modulus, rest, conflates } = self;
        let slow = if conflates { " ON SLOW CONFLATE BY (value)" } else { "" };
        format!(
            "SELECT value, number, publisher FROM {stream} SNAPSHOT THEN CHANGES WHERE number % {modulus} <> {rest}{slow}"
        )
    }

    pub(super) fn selects(self, number: u64) -> bool {
        number % self.modulus != self.rest
    }
}

/// The table that a subscriber keeps: the number of the last record by value.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: BTreeMap<i64, u64>,
    /// That of all records so far.
    whole: RefCell<Whole>,
    /// Changes that came, by the first letter of their kind.
    pub(super) changes: BTreeMap<u8, u64>,
}

/// The last number of each value among the first records of a publisher.
#[derive(Debug, Default)]
struct Whole {
    records: u64,
    last: BTreeMap<i64, u64>,
}

impl Table {
    /// A change has come; `_change` is given by the first letter of its kind. It fits the table that is there.
    pub(super) fn take(
        &mut self,
        stream: usize,
        model: &Model,
        field: impl Fn(&str) -> Option<i64>,
    ) -> Result<(), String> {
        let whole = |name: &str| field(name).ok_or_else(|| format!("a change without `{name}`"));
        let (publisher, number, value) = (whole("publisher")?, whole("number")? as u64, whole("value")?);
        let Some((id, of)) = model.of(stream).next() else { return Err("a row of no publisher".to_owned()) };
        if publisher != id as i64 || number >= of.handed || value != value_of(id, number) {
            return Err(format!("record {number} of publisher {publisher} with value {value} was never sent"));
        }
        let (kind, before) = (whole("_change")? as u8, self.rows.get(&value).copied());
        let fits = match kind {
            b'e' => before.is_none(),
            b'u' => before.is_some_and(|before| before < number),
            b'l' => before == Some(number),
            _ => false,
        };
        if !fits {
            return Err(format!("a change `{}` to record {number} of value {value}, after {before:?}", kind as char));
        }
        match kind {
            b'l' => self.rows.remove(&value),
            _ => self.rows.insert(value, number),
        };
        *self.changes.entry(kind).or_default() += 1;
        Ok(())
    }

    /// All that is there comes once more.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    /// The first row in which it differs from the query over the whole stream, if there is one.
    pub(super) fn missing(&self, stream: usize, query: Query, model: &Model) -> Option<String> {
        let (id, of) = model.of(stream).next()?;
        let mut whole = self.whole.borrow_mut();
        for number in whole.records..of.handed {
            whole.last.insert(value_of(id, number), number);
        }
        whole.records = of.handed;
        let is_wanted = |(_, number): &(&i64, &u64)| query.selects(id, **number);
        let wanted = || whole.last.iter().filter(is_wanted);
        if self.rows.iter().eq(wanted()) {
            return None;
        }
        let lacks = wanted().find(|(value, number)| self.rows.get(value) != Some(number));
        let is_right = |(value, number): &(&i64, &u64)| whole.last.get(value) == Some(number);
        let wrong = self.rows.iter().find(|row| !is_right(row) || !is_wanted(row));
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
    let conflates = rng.u8(..3) == 0;
    let query = TableQuery::any(rng, conflates);
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
        subscriber.change_query(Query::Table(TableQuery::any(rng, before.conflates)));
    }
}

/// The figures of a run: its digest, the crashes, the queries that were changed, and the kinds of changes that came.
#[derive(Debug, Default, PartialEq, Eq)]
struct RunFigures {
    digest: u64,
    crashes: u64,
    queries: u64,
    changes: BTreeMap<u8, u64>,
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
    check("a_table_of_snapshot_and_changes_equals_the_query_over_the_whole_stream", 30, |seed| {
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
        assert!(runs.iter().any(|of| of.changes.contains_key(&kind)), "{runs:?}");
    }
}
