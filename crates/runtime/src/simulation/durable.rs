//! A daemon that is `durable` crashes between any two turns of its parts, and between any two steps of a checkpoint, and is started again
//! with what is on disk. Subscribers of what its handlers make (windows, and a join of two streams) and of a stream itself have all that
//! was published, and nothing twice that is not marked as repeated.

use super::model::{Model, Query, RECORD_NS, WINDOW_RECORDS, pad_bytes, stream_name, value_of, windows_sql};
use super::world::{MS, SECOND, World, WorldPlan};
use super::{PATIENCE_NS, heal};
use crate::failpoint::simulated::Moment;
use crate::managers::spec::HandlerSpec;
use crossdock_sim::{Link, Rng, check};
use std::cell::Cell;
use std::collections::BTreeMap;

/// How far back a record is joined with those of the other stream, in records.
const JOINED_RECORDS: u64 = 20;
/// Windows that may be open still.
const OPEN_WINDOWS: u64 = 2;
/// Turns of the daemon's parts, and steps of checkpoints, within which it crashes.
const TURNS: u32 = 2000;
const STEPS: u32 = 40;

/// A stream that a handler makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Derived {
    /// The number of records and the sum of their values, by windows.
    Windows,
    /// The pairs of records of both streams that are as long as one another, at about the same time.
    Pairs,
}

impl Derived {
    fn name(self) -> &'static str {
        match self {
            Derived::Windows => "windows",
            Derived::Pairs => "pairs",
        }
    }

    /// The query of a subscription to all of it.
    pub(super) fn sql(self) -> String {
        format!("SELECT * FROM {}", self.name())
    }

    fn handler(self) -> HandlerSpec {
        let (a, b, before_ms) = (stream_name(0), stream_name(1), JOINED_RECORDS * RECORD_NS / MS);
        let sql = match self {
            Derived::Windows => windows_sql(&a),
            Derived::Pairs => format!(
                "SELECT a.number AS a, b.number AS b FROM {a} a JOIN {b} b ON a.pad = b.pad AND b.at BETWEEN \
                 a.at - INTERVAL '{before_ms}' MILLISECOND AND a.at"
            ),
        };
        HandlerSpec {
            name: self.name().to_owned(),
            sql: Some(sql),
            peak_msgs_per_s: Some(1000),
            ..HandlerSpec::default()
        }
    }
}

/// The rows of such a stream that came.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// By window, or by the numbers of a pair.
    rows: BTreeMap<(u64, u64), ()>,
    /// All rows of windows, or pairs, below this number came.
    whole_to: Cell<u64>,
}

fn is_pair(model: &Model, a: u64, b: u64) -> bool {
    let [of_a, of_b] = [0, 1].map(|stream| model.of(stream).next());
    let (Some((a_is, of_a)), Some((b_is, of_b))) = (of_a, of_b) else { return false };
    let is_near = b <= a && a - b <= JOINED_RECORDS && a < of_a.handed && b < of_b.handed;
    is_near && pad_bytes(value_of(a_is, a)) == pad_bytes(value_of(b_is, b))
}

impl Rows {
    /// A row has come.
    pub(super) fn take(
        &mut self,
        derived: Derived,
        model: &Model,
        is_repeated: bool,
        field: impl Fn(&str) -> Option<i64>,
    ) -> Result<(), String> {
        let whole = |name: &str| field(name).ok_or_else(|| format!("a row without `{name}`"));
        let key = match derived {
            Derived::Windows => {
                let window = whole("window_start")? as u64 / (WINDOW_RECORDS * RECORD_NS);
                let (n, total) = (whole("n")? as u64, whole("total")?);
                let (publisher, of) = model.of(0).next().ok_or("a row of no publisher")?;
                let numbers = window * WINDOW_RECORDS..of.handed.min((window + 1) * WINDOW_RECORDS);
                let sent = numbers.end.saturating_sub(numbers.start);
                let sum: i64 = numbers.map(|number| value_of(publisher, number)).sum();
                if (n, total) != (sent, sum) {
                    return Err(format!(
                        "window {window} is {n} records with a sum of {total}, and {sent} with {sum} were sent"
                    ));
                }
                (window, 0)
            }
            Derived::Pairs => {
                let (a, b) = (whole("a")? as u64, whole("b")? as u64);
                if !is_pair(model, a, b) {
                    return Err(format!("records {a} and {b} are a pair, and were not sent as one"));
                }
                (a, b)
            }
        };
        let came_before = self.rows.insert(key, ()).is_some();
        // Pairs come in the order in which the records of both streams met, which may be another one the second time.
        if derived == Derived::Windows && came_before != is_repeated {
            return Err(format!("window {} has come before: {came_before}, and is repeated: {is_repeated}", key.0));
        }
        Ok(())
    }

    /// The missing part, if something has not come that must have.
    pub(super) fn missing(&self, derived: Derived, model: &Model) -> Option<String> {
        let [handed, of_b] = [0, 1].map(|stream| model.of(stream).next().map_or(0, |(_, of)| of.handed));
        loop {
            let next = self.whole_to.get();
            match derived {
                Derived::Windows if (next + OPEN_WINDOWS) * WINDOW_RECORDS > handed => return None,
                Derived::Windows if !self.rows.contains_key(&(next, 0)) => {
                    return Some(format!("window {next} has not come"));
                }
                Derived::Pairs if next >= handed.min(of_b) => return None,
                Derived::Pairs => {
                    let mut others = next.saturating_sub(JOINED_RECORDS)..=next;
                    let lacks = |b: &u64| is_pair(model, next, *b) && !self.rows.contains_key(&(next, *b));
                    if let Some(b) = others.find(lacks) {
                        return Some(format!("the pair of {next} and {b} has not come"));
                    }
                }
                Derived::Windows => {}
            }
            self.whole_to.set(next + 1);
        }
    }
}

/// Any world of a durable daemon.
pub(super) fn durable_plan(rng: &mut Rng) -> WorldPlan {
    let is_secure = rng.bool();
    let delay_ns = [20_000, 300_000, 5 * MS][rng.usize(..3)];
    let link = Link {
        jitter_ns: rng.u64(..=delay_ns / 2),
        loss: [0.0, 0.01][rng.usize(..2)],
        duplication: [0.0, 0.02][rng.usize(..2)],
        ..Link::new(delay_ns)
    };
    WorldPlan {
        contexts: 1,
        is_secure,
        link,
        rounds: [4, 8, 64][rng.usize(..3)],
        is_durable: true,
        is_routed: false,
        strays: 0,
    }
}

/// Such a world with its handlers, a publisher of each stream, and all subscribers in a checkpoint.
fn durable_world(seed: u64, rng: &mut Rng) -> World {
    let plan = durable_plan(rng);
    let mut world = World::new(seed, plan);
    world.deploy(vec![Derived::Windows.handler(), Derived::Pairs.handler()]);
    for stream in 0..2 {
        world.publish(stream, (rng.usize(1..=6), 20 * MS));
    }
    world.publishers_mut().for_each(|publisher| publisher.rests = true);
    for query in [Query::Of(Derived::Windows), Query::Of(Derived::Pairs), Query::All] {
        world.subscribe(0, query, (rng.usize(4..100), [MS, 10 * MS][rng.usize(..2)]));
    }
    let is_caught_up = |world: &World| super::is_caught_up(world);
    assert!(world.run(PATIENCE_NS, is_caught_up), "nothing begins: {}", world.report());
    // The daemon awaits the subscriptions that the last checkpoint has: they are in the second from here on.
    let other = world.publish(2, (1, SECOND));
    world.publishers_mut().for_each(|publisher| publisher.rests = true);
    let is_announced = |world: &World| super::is_caught_up(world);
    assert!(world.run(2 * PATIENCE_NS, is_announced), "not announced: {}", world.report());
    world.publishers_mut().filter(|publisher| publisher.id == 2).for_each(super::clients::PublisherApp::finish);
    let is_noted = |world: &World| world.publishers().any(|publisher| publisher.stage == super::Stage::Finished);
    assert!(world.run(3 * PATIENCE_NS, is_noted), "no checkpoint: {}", world.report());
    world.remove(other, true);
    world.publishers_mut().for_each(|publisher| publisher.rests = false);
    world
}

/// Has the daemon crash now or soon, with a fault of the network that no session is lost by.
pub(super) fn crash(world: &mut World, rng: &mut Rng) {
    if rng.u8(..4) == 0 {
        let clients: Vec<_> = world.clients.keys().copied().collect();
        let (client, daemon) = (clients[rng.usize(..clients.len())], world.address);
        let until_ns = world.network.now_ns() + rng.u64(..SECOND);
        world.network.cut(client, daemon, until_ns);
    }
    let before = world.crashes;
    let longest = [50 * MS, 2 * SECOND][rng.usize(..2)];
    let down_ns = rng.u64(MS..longest);
    match rng.u8(..4) {
        0 => world.crash(0, down_ns),
        1 => world.crash_later((Moment::Turn, rng.u32(..TURNS)), down_ns),
        _ => world.crash_later((Moment::Failpoint, rng.u32(..STEPS)), down_ns),
    }
    let limit_ns = world.network.now_ns() + 5 * SECOND;
    world.run(limit_ns, |world| world.crashes > before);
}

/// A run from a seed; returns its digest, and the crashes in it.
fn run(seed: u64) -> (u64, u64) {
    let mut rng = Rng::with_seed(seed);
    let mut world = durable_world(seed, &mut rng);
    for _ in 0..rng.usize(2..=4) {
        let limit_ns = world.network.now_ns() + rng.u64(..SECOND);
        world.run(limit_ns, |_| false);
        crash(&mut world, &mut rng);
        if rng.bool() {
            // Once more, while what was before is not made good.
            crash(&mut world, &mut rng);
        }
        heal(&mut world);
    }
    (world.network.fingerprint(), world.crashes)
}

#[test]
fn a_durable_daemon_that_crashes_at_any_moment_misses_nothing_and_counts_nothing_twice() {
    check("a_durable_daemon_that_crashes_at_any_moment_misses_nothing_and_counts_nothing_twice", 30, |seed| {
        run(seed);
    });
}

#[test]
fn a_seed_makes_the_same_run_of_a_durable_daemon() {
    let runs: Vec<(u64, u64)> = (0..2).map(run).collect();
    assert_eq!(runs, (0..2).map(run).collect::<Vec<_>>());
    assert!(runs.iter().all(|(_, crashes)| *crashes > 0), "it crashes");
}
