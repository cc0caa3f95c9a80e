//! The daemon with its managers in this process, a publisher and a subscriber over UDP: from the request for another
//! version to the first message that it made, and what subscribers notice of swaps.

use super::CASE;
use crate::cpu::Error;
use crate::inside;
use crate::report::{Table, quantile};
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Event, Publisher, Subscriber, Transport};
use crossdock_runtime::{ChangeRequest, ContextConfig, ContextHandle, HandlerSpec};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Messages that are published at a time, each time that has passed: 50,000 messages a second.
const AT_A_TIME: u64 = 10;
const EVERY: Duration = Duration::from_micros(200);
/// The context where the handlers run: the one that has the network.
const PLACE: &str = "c-core-0";
/// Between two swaps while the subscriber's latency is taken.
const BETWEEN_SWAPS: Duration = Duration::from_millis(20);
/// How often the four pieces of the time in which latencies are taken come again.
const REPEATS: usize = 4;
/// How long the effect of a request is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state that publisher, subscriber and requests share.
#[derive(Default)]
struct Shared {
    /// Versions that have made a message: the newest, and when its first came, in ns.
    newest: AtomicU64,
    newest_ns: AtomicU64,
    /// Whether latencies are written down.
    is_timing: AtomicBool,
    has_ended: AtomicBool,
}

fn format() -> Result<Format, Error> {
    let fields = [("number", FieldType::U64), ("sent_ns", FieldType::U64), ("key", FieldType::I64)];
    Ok(Format::natural(fields.map(|(name, ty)| FieldSpec::new(name, ty)))?)
}

/// The two programs, which say which version they are: a condition on the number, or one on the key and a sum.
fn version(number: u64) -> HandlerSpec {
    let sql = match number % 2 {
        0 => format!("SELECT number, sent_ns, key, {number} AS version FROM s WHERE number >= 0"),
        _ => format!("SELECT number, sent_ns, key + 1 AS key, {number} AS version FROM s WHERE key + 1 > 0"),
    };
    HandlerSpec { name: "v".into(), sql: Some(sql), place: Some(PLACE.into()), ..HandlerSpec::default() }
}

/// Publishes until it is stopped.
fn publish(addr: &str, since: Instant, shared: &Shared) -> Result<(), Error> {
    let format = format()?;
    let mut publisher = Publisher::builder(addr).transport(Transport::Udp).stream("s").format(&format).connect()?;
    let mut row = RecordBuilder::new(&format);
    let (start, mut number) = (Instant::now(), 0);
    while !shared.has_ended.load(Ordering::Acquire) {
        let due = EVERY * u32::try_from(number / AT_A_TIME).unwrap_or(u32::MAX);
        let early = due.saturating_sub(start.elapsed());
        if !early.is_zero() {
            crossdock_device::nap(early);
        }
        for _ in 0..AT_A_TIME {
            row.clear();
            row.set(0, Value::Uint(number))?;
            row.set(1, Value::Uint(since.elapsed().as_nanos() as u64))?;
            row.set(2, Value::Int((number % 1000) as i64))?;
            publisher.publish(row.finish()?)?;
            number += 1;
        }
        publisher.flush()?;
    }
    publisher.finish()?;
    Ok(())
}

/// Takes what the handler makes until the stream ends; the latencies, run by run.
fn subscribe(addr: &str, since: Instant, shared: &Shared) -> Result<Vec<Vec<u64>>, Error> {
    let builder = Subscriber::builder(addr).transport(Transport::Udp).sql("SELECT * FROM v");
    let mut subscriber = builder.wait_for_stream(PATIENCE).connect()?;
    let (mut runs, mut was_timing, mut next) = (vec![Vec::new()], false, None);
    loop {
        match subscriber.next_event(None)? {
            Some(Event::Records(records)) => {
                let now_ns = since.elapsed().as_nanos() as u64;
                let is_timing = shared.is_timing.load(Ordering::Acquire);
                if is_timing && !was_timing {
                    runs.push(Vec::new());
                }
                was_timing = is_timing;
                for record in records.iter() {
                    let (Value::Uint(number), Value::Uint(sent_ns)) = (record.get(0), record.get(1)) else {
                        return Err("the handler made something else".into());
                    };
                    if next.is_some_and(|next| next != number) {
                        return Err(format!("message {number} came after {next:?} was awaited").into());
                    }
                    next = Some(number + 1);
                    if is_timing && let Some(run) = runs.last_mut() {
                        run.push(now_ns.saturating_sub(sent_ns));
                    }
                    if let Value::Int(version) = record.get(3)
                        && version as u64 > shared.newest.load(Ordering::Relaxed)
                    {
                        shared.newest_ns.store(now_ns, Ordering::Relaxed);
                        shared.newest.store(version as u64, Ordering::Release);
                    }
                }
            }
            Some(Event::StreamEnded { publishers_left: 0, .. }) => return Ok(runs.split_off(1)),
            Some(Event::Dropped { records, .. }) => return Err(format!("{records} messages were dropped").into()),
            _ => {}
        }
    }
}

/// Has the managers make a change; it has to be taken.
fn change(context: &ContextHandle, request: ChangeRequest) -> Result<(), Error> {
    inside::change(context, request)?.map_err(|why| format!("refused: {why}").into())
}

/// Requests a version, and waits for the first message that it made; how long that took, in ns.
fn effect_ns(context: &ContextHandle, number: u64, since: Instant, shared: &Shared) -> Result<u64, Error> {
    let asked_ns = since.elapsed().as_nanos() as u64;
    change(context, ChangeRequest::Swap(version(number)))?;
    let start = Instant::now();
    while shared.newest.load(Ordering::Acquire) < number {
        if start.elapsed() > PATIENCE {
            return Err(format!("version {number} has made nothing yet").into());
        }
        crossdock_device::nap(Duration::from_micros(100));
    }
    Ok(shared.newest_ns.load(Ordering::Relaxed).saturating_sub(asked_ns))
}

/// Requests, and latencies with swaps and without.
fn ask(
    context: &ContextHandle,
    since: Instant,
    shared: &Shared,
    requests: u32,
    latency_ms: u64,
) -> Result<Vec<u64>, Error> {
    let mut effects = Vec::new();
    let first = 2;
    for number in first..first + u64::from(requests) {
        effects.push(effect_ns(context, number, since, shared)?);
    }
    let mut number = first + u64::from(requests);
    // In turn, so that what else the machine does is shared: without, with, with, without, and the same again.
    let pieces = [false, true, true, false].repeat(REPEATS);
    let piece = Duration::from_millis(2 * latency_ms) / pieces.len() as u32;
    for with_swaps in pieces {
        shared.is_timing.store(true, Ordering::Release);
        let start = Instant::now();
        while start.elapsed() < piece {
            crossdock_device::nap(BETWEEN_SWAPS);
            if with_swaps {
                change(context, ChangeRequest::Swap(version(number)))?;
                number += 1;
            }
        }
        shared.is_timing.store(false, Ordering::Release);
        crossdock_device::nap(5 * BETWEEN_SWAPS);
    }
    Ok(effects)
}

pub(super) fn round(table: &mut Table, requests: u32, latency_ms: u64) -> Result<(), Error> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let context = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() })?;
    let addr = context.local_addr().to_string();
    let (shared, since) = (Shared::default(), Instant::now());
    let words = |error: Error| error.to_string();
    // Reported at once: the other threads may wait for what does not come now.
    let in_words = |error: Error| {
        eprintln!("{error}");
        error.to_string()
    };
    let (effects, runs) = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| publish(&addr, since, &shared).map_err(in_words));
        // The stream is there before the handler, so that it is measured on real messages.
        crossdock_device::nap(Duration::from_millis(200));
        let deployed = change(&context, ChangeRequest::Deploy(version(1))).map_err(words);
        let subscriber = scope.spawn(|| subscribe(&addr, since, &shared).map_err(in_words));
        let effects = deployed.and_then(|()| ask(&context, since, &shared, requests, latency_ms).map_err(words));
        shared.has_ended.store(true, Ordering::Release);
        let published = publisher.join().map_err(|_| "the publisher panicked".to_owned()).and_then(|done| done);
        let runs = match effects {
            // Where nothing was deployed nothing ends.
            Err(_) => Ok(Vec::new()),
            Ok(_) => subscriber.join().map_err(|_| "the subscriber panicked".to_owned()).and_then(|runs| runs),
        };
        published.and(effects.and_then(|effects| Ok((effects, runs?))))
    })?;
    context.stop()?;
    note(table, effects, &runs)
}

fn note(table: &mut Table, mut effects: Vec<u64>, runs: &[Vec<u64>]) -> Result<(), Error> {
    if runs.len() != 4 * REPEATS {
        return Err(format!("{} runs were timed, not {}", runs.len(), 4 * REPEATS).into());
    }
    let [mut without, mut with] = [[0, 3], [1, 2]].map(|kept| {
        let runs = runs.iter().enumerate().filter(|(number, _)| kept.contains(&(number % 4)));
        runs.flat_map(|(_, run)| run).copied().collect::<Vec<u64>>()
    });
    table.push(CASE, "request_to_effect_ms_p50", quantile(&mut effects, 0.5) as f64 / 1e6, None);
    table.push(CASE, "request_to_effect_ms_p99", quantile(&mut effects, 0.99) as f64 / 1e6, None);
    for (metric, part) in
        [("subscriber_latency_us_p50", 0.5), ("subscriber_latency_us_p99", 0.99), ("subscriber_latency_us_p999", 0.999)]
    {
        let [with, without] = [&mut with, &mut without].map(|run| quantile(run, part) as f64 / 1e3);
        table.push(CASE, metric, with, Some(without));
    }
    Ok(())
}
