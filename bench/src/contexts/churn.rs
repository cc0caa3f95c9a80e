//! Subscriptions made and ended beside traffic: from the request to the first record, and the latency of a subscriber that stays.

use super::Options;
use crate::cores;
use crate::cpu::Error;
use crate::daemon::Daemon;
use crate::inside::{Said, Shared, in_words, joined};
use crate::process::{Process, end_with_parent, say, wait_for_go};
use crate::report::{Table, quantile};
use crossdock_nectarine::{Event, Subscriber, Transport};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Records that are published at a time, one packet of loopback, and the time between, in us: 26,000 records a second. With many
/// more packets, subscriptions that a busy machine delays would add answers until the delay grows.
const AT_A_TIME: u64 = 26;
const EVERY_US: u64 = 1000;
/// The stream that is published.
const STREAM: &str = "flights";
/// Threads that make subscriptions: enough that one that takes 50 ms keeps no other waiting, at 1,000 a second.
const THREADS: u64 = 64;
/// How long a subscription's first record is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Whether there is churn in the pieces of the time in which latencies are taken: in turn, so that what else the machine does is
/// shared.
const IN_TURN: [bool; 4] = [false, true, true, false];
/// How often they come again.
const REPEATS: usize = 4;
const PIECES: usize = IN_TURN.len() * REPEATS;
/// A moment for what was done before to end.
const SETTLE: Duration = Duration::from_millis(100);

/// Makes a subscription, waits for its first record, and ends it; when that record came.
fn subscribe(addr: &str, stream: &str, number: u64) -> Result<Instant, Error> {
    // One record of 20, so that it is the subscriptions that are work for the daemon, not what they select. Queries differ in
    // their constant, as those of many users do.
    let sql = format!("SELECT carrier, flight, distance FROM {stream} WHERE flight % 20 = {}", number % 20);
    let mut subscriber = Subscriber::builder(addr).transport(Transport::Udp).sql(&sql).connect()?;
    let deadline = Instant::now() + PATIENCE;
    while let Some(event) = subscriber.next_event(Some(deadline.saturating_duration_since(Instant::now())))? {
        if matches!(event, Event::Records(_)) {
            return Ok(Instant::now());
        }
    }
    Err(format!("`{sql}` was given no record").into())
}

/// Makes and ends subscriptions for a while, each when it is due; the time from then to its first record, in ns.
fn churn(addr: &str, stream: &str, per_s: u64, run_ms: u64) -> Result<Vec<u64>, Error> {
    let (next, count, start) = (AtomicU64::new(0), per_s * run_ms / 1000, Instant::now());
    let one_by_one = || {
        let mut effects = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(effects);
            }
            let due = Duration::from_nanos(number * 1_000_000_000 / per_s);
            let early = due.saturating_sub(start.elapsed());
            if !early.is_zero() {
                crossdock_device::nap(early);
            }
            let came = subscribe(addr, stream, number).map_err(|error| error.to_string())?;
            effects.push((came - start).saturating_sub(due).as_nanos() as u64);
        }
    };
    let effects = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one_by_one)).collect();
        let effects: Result<Vec<Vec<u64>>, String> = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a subscriber panicked".to_owned()).and_then(|effects| effects))
            .collect();
        effects
    })?;
    Ok(effects.concat())
}

/// The process that makes subscriptions: for each line that it is given, for a while.
pub(super) fn serve(addr: &str, stream: &str, per_s: u64, run_ms: u64) -> Result<(), Error> {
    end_with_parent()?;
    say(&json!({"ready": true}));
    loop {
        wait_for_go()?;
        let start = Instant::now();
        let effects = churn(addr, stream, per_s, run_ms)?;
        say(&json!({"effects_ns": effects, "took_ns": start.elapsed().as_nanos() as u64}));
    }
}

/// The results of the pieces with churn.
#[derive(Default)]
struct Churned {
    effects_ns: Vec<u64>,
    took_ns: u64,
}

impl Churned {
    fn add(&mut self, report: &Value) -> Result<(), Error> {
        let effects = report["effects_ns"].as_array().ok_or("no effects were reported")?;
        self.effects_ns.extend(effects.iter().filter_map(Value::as_u64));
        self.took_ns += report["took_ns"].as_u64().ok_or("no time was reported")?;
        Ok(())
    }
}

/// Has latencies taken in pieces, with subscriptions made and ended at a daemon and without.
fn pieces(options: &Options, addr: &str, shared: &Shared) -> Result<Churned, Error> {
    let piece_ms = 2 * options.latency_ms / PIECES as u64;
    let args = ["contexts", "churn", addr, STREAM, &options.churn_per_s.to_string(), &piece_ms.to_string()];
    let mut churner = Process::role(&args.map(str::to_owned))?;
    let mut churned = Churned::default();
    churner.next_report()?;
    for with_churn in IN_TURN.repeat(REPEATS) {
        shared.time(true);
        if with_churn {
            churner.go()?;
            churned.add(&churner.next_report()?)?;
        } else {
            std::thread::sleep(Duration::from_millis(piece_ms));
        }
        shared.time(false);
        std::thread::sleep(SETTLE);
    }
    Ok(churned)
}

/// Publishes at a daemon while something is done.
fn while_published<T>(daemon: &Daemon, shared: &Shared, body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let done: Said<T> = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            cores::raise_priority();
            cores::short_turns();
            in_words(shared.publish(&daemon.addr, STREAM))
        });
        std::thread::sleep(5 * SETTLE);
        let done = in_words(body());
        shared.end();
        joined(publisher).and(done)
    });
    Ok(done?)
}

pub(super) fn round(options: &Options, table: &mut Table) -> Result<(), Error> {
    let (daemon, shared) = (Daemon::start("")?, Shared::new(AT_A_TIME, EVERY_US));
    let (churned, runs) = std::thread::scope(|scope| {
        let subscriber = scope.spawn(|| {
            cores::raise_priority();
            cores::short_turns();
            in_words(shared.subscribe(&daemon.addr, STREAM))
        });
        let churned = while_published(&daemon, &shared, || {
            let churned = pieces(options, &daemon.addr, &shared)?;
            // The same at another daemon, which has nothing to do with what is measured but the machine.
            let (elsewhere, its) = (Daemon::start("")?, Shared::new(AT_A_TIME, EVERY_US));
            while_published(&elsewhere, &its, || pieces(options, &elsewhere.addr, &shared))?;
            Ok(churned)
        });
        let runs = joined(subscriber);
        Ok::<_, Error>((churned?, runs?))
    })?;
    if runs.len() != 2 * PIECES {
        return Err(format!("{} runs were timed, not {}", runs.len(), 2 * PIECES).into());
    }
    note(table, churned, &runs[..PIECES], &runs[PIECES..]);
    Ok(())
}

/// Latencies of the pieces with churn and of those without, at a part of them, in us.
fn others(runs: &[Vec<u64>], part: f64) -> [f64; 2] {
    [true, false].map(|with_churn| {
        let wanted = runs.iter().zip(IN_TURN.iter().cycle()).filter(|(_, is)| **is == with_churn);
        let mut latencies: Vec<u64> = wanted.flat_map(|(run, _)| run).copied().collect();
        quantile(&mut latencies, part) as f64 / 1e3
    })
}

fn note(table: &mut Table, mut churned: Churned, here: &[Vec<u64>], elsewhere: &[Vec<u64>]) {
    let per_s = churned.effects_ns.len() as f64 * 1e9 / churned.took_ns.max(1) as f64;
    let mut effect_ms = |part| quantile(&mut churned.effects_ns, part) as f64 / 1e6;
    let [p50, p99] = [0.5, 0.99].map(&mut effect_ms);
    let [[with_p50, without_p50], [with_p99, without_p99]] = [0.5, 0.99].map(|part| others(here, part));
    let [beside_p99, alone_p99] = others(elsewhere, 0.99);
    table.push("churn", "request_to_effect_ms_p99", p99, None);
    table.push("churn", "request_to_effect_ms_p50", p50, None);
    table.push("churn", "subscriptions_per_s", per_s, None);
    table.push("churn", "others_p99_ratio", with_p99 / without_p99, Some(beside_p99 / alone_p99));
    table.push("churn", "others_latency_us_p99", with_p99, Some(without_p99));
    table.push("churn", "others_latency_us_p50", with_p50, Some(without_p50));
}
