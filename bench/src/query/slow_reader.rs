//! A subscriber that takes a hundredth of the rate, among others, with `ON SLOW CONFLATE`: the others notice nothing, and its ledger
//! balances to the record.

use super::Options;
use crate::cores;
use crate::cpu::Error;
use crate::daemon::Daemon;
use crate::inside::{Runs, Shared, in_words, joined, stamp_offset};
use crate::report::{Table, quantile};
use crossdock_nectarine::{Event, Subscriber, Transport};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Records that are published at a time, and the time between, in us: 40,000 a second.
const AT_A_TIME: u64 = 40;
const EVERY_US: u64 = 1000;
const STREAM: &str = "flights";
/// Subscribers beside the slow one.
const OTHERS: usize = 15;
/// They take few columns, so that it is not their own work that fills the machine.
const OTHERS_SQL: &str = "SELECT carrier, flight, sent FROM flights";
const SLOW_SQL: &str = "SELECT * FROM flights ON SLOW CONFLATE BY (carrier, flight)";
/// The part of the rate that the slow one takes.
const PART: f64 = 0.01;
/// Whether the slow one is slow in the pieces of the time in which latencies are taken.
const IN_TURN: [bool; 4] = [false, true, true, false];
/// From the change of its pace until its queue is full, or empty again.
const SETTLE: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest nap of the slow one: it ends with the piece.
const NAP: Duration = Duration::from_millis(10);

/// Takes a stream to its end, slowly while that is wanted; the subscriber, and how many records it got.
fn read(shared: &Shared, addr: &str, is_slow: &AtomicBool) -> Result<(Subscriber, u64), Error> {
    let builder = Subscriber::builder(addr).transport(Transport::Udp).sql(SLOW_SQL);
    let mut subscriber = builder.wait_for_stream(PATIENCE).connect()?;
    let mut count = 0;
    loop {
        match subscriber.next_event(None)? {
            Some(Event::Records(records)) => {
                count += records.len() as u64;
                let until = Duration::from_secs_f64(records.len() as f64 / (shared.rate() as f64 * PART));
                let start = Instant::now();
                while is_slow.load(Ordering::Acquire) && start.elapsed() < until {
                    crossdock_device::nap(NAP.min(until.saturating_sub(start.elapsed())));
                }
            }
            Some(Event::StreamEnded { publishers_left: 0, .. }) => return Ok((subscriber, count)),
            _ => {}
        }
    }
}

/// Takes a stream to its end; the latencies of each piece.
fn read_all(shared: &Shared, addr: &str) -> Result<Vec<Vec<u64>>, Error> {
    let builder = Subscriber::builder(addr).transport(Transport::Udp).sql(OTHERS_SQL);
    let mut subscriber = builder.wait_for_stream(PATIENCE).connect()?;
    let mut runs = Runs::new(shared);
    loop {
        match subscriber.next_event(None)? {
            Some(Event::Records(records)) => runs.take(stamp_offset(records.format())?, records.bytes()),
            Some(Event::StreamEnded { publishers_left: 0, .. }) => return Ok(runs.taken),
            Some(Event::Dropped { records, .. }) => {
                return Err(format!("{records} records of another were lost").into());
            }
            _ => {}
        }
    }
}

/// The slow one's report, from the daemon's list.
fn ledger(daemon: &Daemon) -> Result<Value, Error> {
    let all = daemon.list("subscriptions")?;
    let of = all.into_iter().find(|of| of["sql"].as_str() == Some(SLOW_SQL));
    of.ok_or_else(|| "the slow subscription is not in the list".into())
}

/// Checks that all of its records are accounted for, and that it got those that count as sent; how many were conflated.
fn check(ledger: &Value, got: u64) -> Result<u64, Error> {
    let figure = |name: &str| ledger[name].as_u64().unwrap_or(0);
    let gone =
        ["filtered", "conflated", "sampled", "dropped", "row_errors", "in_flight"].map(figure).iter().sum::<u64>();
    let (published, sent) = (figure("published"), figure("records_out"));
    if published != sent + gone || sent != got {
        return Err(format!(
            "the ledger does not balance: {published} published, {sent} sent, {gone} other, {got} came"
        )
        .into());
    }
    match figure("conflated") {
        0 => Err("nothing was conflated: the slow subscriber was not slow".into()),
        conflated => Ok(conflated),
    }
}

pub(super) fn round(options: &Options, table: &mut Table) -> Result<(), Error> {
    let (daemon, shared, is_slow) = (Daemon::start("")?, Shared::new(AT_A_TIME, EVERY_US), AtomicBool::new(false));
    let (others, (slow, got)) = std::thread::scope(|scope| {
        let (shared, addr, is_slow) = (&shared, daemon.addr.as_str(), &is_slow);
        let others: Vec<_> = (0..OTHERS).map(|_| scope.spawn(|| in_words(read_all(shared, addr)))).collect();
        let slow = scope.spawn(|| in_words(read(shared, addr, is_slow)));
        let publisher = scope.spawn(|| {
            cores::raise_priority();
            in_words(shared.publish(addr, STREAM))
        });
        std::thread::sleep(SETTLE);
        for slow_now in IN_TURN {
            is_slow.store(slow_now, Ordering::Release);
            std::thread::sleep(SETTLE);
            shared.time(true);
            std::thread::sleep(Duration::from_millis(options.piece_ms));
            shared.time(false);
        }
        is_slow.store(false, Ordering::Release);
        shared.end();
        joined(publisher)?;
        let others = others.into_iter().map(joined).collect::<Result<Vec<_>, String>>()?;
        Ok::<_, Error>((others, joined(slow)?))
    })?;
    let conflated = check(&ledger(&daemon)?, got)?;
    drop(slow);
    let [with, without] = [true, false].map(|wanted| {
        let pieces = others.iter().flat_map(|pieces| pieces.iter().zip(IN_TURN)).filter(|(_, slow)| *slow == wanted);
        let mut latencies: Vec<u64> = pieces.flat_map(|(piece, _)| piece).copied().collect();
        [0.99, 0.5].map(|part| quantile(&mut latencies, part) as f64 / 1e3)
    });
    table.push("slow_reader", "others_p99_ratio", with[0] / without[0], None);
    table.push("slow_reader", "others_latency_us_p99", with[0], Some(without[0]));
    table.push("slow_reader", "others_latency_us_p50", with[1], Some(without[1]));
    table.push("slow_reader", "records_conflated", conflated as f64, None);
    Ok(())
}
