//! The replay: publishers and subscribers, each in a thread of its own, through the context's address.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crossdock_format::json::JsonEncoder;
use crossdock_format::{Format, Record, Value};
use crossdock_nectarine::{Error, Event, Interrupter, Publisher, Subscriber};
use crossdock_runtime::{ChangeRequest, ContextHandle, HandlerSpec, StateSpec};

use super::checksum::{Rows, Sum};
use super::data::Replay;
use super::jobs::{CARRIERS, Job, Keyed};
use super::progress::Display;
use crate::failure::{Failure, Outcome};
use crate::signals::Interrupt;

/// Records that a publisher hands over at a time, between two updates of its counter.
const CHUNK: usize = 256;
/// How often progress is looked at; drawn as often on a terminal.
const REFRESH: Duration = Duration::from_millis(50);

/// Nothing moves for so long only if something is wrong: even a machine under heavy load moves something.
const STALL: Duration = Duration::from_secs(30);

/// A stream, and what is replayed on it.
pub(crate) struct Stream {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its records.
    pub(crate) replay: Replay,
}

/// The results of a run.
pub(crate) struct Results {
    /// From the first record published until the last subscriber received the end of its stream.
    pub(crate) time: Duration,
    /// The records of each subscriber, in the jobs' order.
    pub(crate) received: Vec<Received>,
}

/// The records of a subscriber.
#[derive(Clone)]
pub(crate) struct Received {
    /// Count and checksum of its rows.
    pub(crate) sum: Sum,
    /// Length of its records, in bytes.
    pub(crate) bytes: u64,
    /// When it received the end of its stream, from the clock's start.
    pub(crate) time: Duration,
    /// Its first row, as JSON; empty without one.
    pub(crate) first: String,
}

/// Counters that the threads keep and the display reads.
pub(crate) struct Counters {
    /// Records handed over, a stream each.
    pub(crate) published: Vec<AtomicU64>,
    /// Records received, a job each.
    pub(crate) received: Vec<AtomicU64>,
    /// Set when all are to end before they are done.
    cancelled: AtomicBool,
}

impl Counters {
    fn new(streams: usize, jobs: usize) -> Counters {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Counters { published: zeros(streams), received: zeros(jobs), cancelled: AtomicBool::new(false) }
    }

    /// All records that moved, in and out.
    fn total(&self) -> u64 {
        self.published.iter().chain(&self.received).map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Why a thread ended early.
enum Trouble {
    /// The run was cancelled.
    Cancelled,
    /// Its link failed.
    Link(String),
}

impl Trouble {
    fn of(who: &str, error: &Error) -> Trouble {
        match error {
            Error::Interrupted => Trouble::Cancelled,
            error => Trouble::Link(format!("{who}: {error}")),
        }
    }
}

/// Replays all streams to all jobs' subscribers, as fast as these take them.
pub(crate) fn run(
    context: &ContextHandle,
    streams: &[Stream],
    jobs: &[Job],
    interrupt: &Interrupt,
) -> Outcome<Results> {
    let address = context.local_addr().to_string();
    let failed = |who: &str, error: &Error| Failure::failed(format!("{who}: {error}"));
    // Publishers first: they announce the streams that the subscribers ask for.
    let connect = |stream: &Stream| {
        let builder = Publisher::builder(&address).stream(stream.name).format(&stream.replay.format).reconnect(false);
        builder.connect().map_err(|error| failed(stream.name, &error))
    };
    let publishers = streams.iter().map(connect).collect::<Outcome<Vec<Publisher>>>()?;
    deploy(context, &CARRIERS)?;
    let connect = |job: &Job| {
        let builder = Subscriber::builder(&address).sql(job.sql).reconnect(false);
        // Those of a handler are known once it has begun.
        let builder = if job.is_of_changes() { builder.wait_for_stream(STALL) } else { builder };
        builder.connect().map_err(|error| failed(job.name, &error))
    };
    let subscribers = jobs.iter().map(connect).collect::<Outcome<Vec<Subscriber>>>()?;

    let mut interrupters: Vec<Interrupter> = publishers.iter().map(Publisher::interrupter).collect();
    interrupters.extend(subscribers.iter().map(Subscriber::interrupter));
    let watch = Watch { streams, jobs, interrupt, interrupters, counters: Counters::new(streams.len(), jobs.len()) };
    interrupt.arm();
    play(publishers, subscribers, &watch)
}

/// Deploys a handler and declares the key of its stream.
fn deploy(context: &ContextHandle, keyed: &Keyed) -> Outcome {
    let state = StateSpec { key: vec![keyed.key.to_owned()], ..StateSpec::default() };
    let handler =
        HandlerSpec { name: keyed.name.to_owned(), sql: Some(keyed.sql.to_owned()), ..HandlerSpec::default() };
    for spec in [handler, HandlerSpec::of_state(keyed.name, state)] {
        let name = spec.name.clone();
        let failed = |why: &str| Failure::failed(format!("handler `{name}`: {why}"));
        let made = context.manager().change(ChangeRequest::Deploy(spec), false);
        let made = made.map_err(|stopped| failed(&stopped.to_string()))?;
        made.map_err(|plan| failed(&plan.refusals.join("; ")))?;
    }
    Ok(())
}

/// Lets all threads run to their ends.
fn play(publishers: Vec<Publisher>, subscribers: Vec<Subscriber>, watch: &Watch<'_>) -> Outcome<Results> {
    let counters = &watch.counters;
    let (published, received, ending) = std::thread::scope(|scope| {
        let started = Instant::now();
        let (done, finished) = mpsc::channel();
        let report = |done: &mpsc::Sender<bool>, is_well: bool| {
            // Nobody listens any more once another has failed.
            let _ = done.send(is_well);
        };
        let mut publishing = Vec::new();
        for ((publisher, stream), count) in publishers.into_iter().zip(watch.streams).zip(&counters.published) {
            let done = done.clone();
            publishing.push(scope.spawn(move || {
                let outcome = publish(publisher, stream, count, &counters.cancelled);
                report(&done, outcome.is_ok());
                outcome
            }));
        }
        let mut receiving = Vec::new();
        for ((subscriber, job), count) in subscribers.into_iter().zip(watch.jobs).zip(&counters.received) {
            let done = done.clone();
            receiving.push(scope.spawn(move || {
                let outcome = receive(subscriber, job, count, started);
                report(&done, outcome.is_ok());
                outcome
            }));
        }
        drop(done);
        let ending = watch.until_done(&finished, started);
        (join_all(publishing), join_all(receiving), ending)
    });
    match (ending, published, received) {
        (Ending::Signal(signal), ..) => Err(Failure::Interrupted(signal)),
        (_, Ok(_), Ok(received)) => {
            let time = received.iter().map(|received| received.time).max().unwrap_or_default();
            Ok(Results { time, received })
        }
        (Ending::Stalled, ..) => Err(Failure::failed(format!("nothing moved for {} s", STALL.as_secs()))),
        (_, Err(why), _) | (_, _, Err(why)) => Err(Failure::failed(why)),
    }
}

/// Publishes a stream's records, and waits until the daemon has them all.
fn publish(
    mut publisher: Publisher,
    stream: &Stream,
    count: &AtomicU64,
    cancelled: &AtomicBool,
) -> Result<(), Trouble> {
    let trouble = |error| Trouble::of(stream.name, &error);
    let mut records = stream.replay.records().peekable();
    while records.peek().is_some() {
        if cancelled.load(Ordering::Relaxed) {
            return Err(Trouble::Cancelled);
        }
        publisher.publish_all(records.by_ref().take(CHUNK)).map_err(trouble)?;
        count.store(publisher.stats().records, Ordering::Relaxed);
    }
    publisher.finish().map_err(trouble)?;
    Ok(())
}

/// Receives until the stream's publisher is done.
fn receive(mut subscriber: Subscriber, job: &Job, count: &AtomicU64, started: Instant) -> Result<Received, Trouble> {
    let trouble = |error| Trouble::of(job.name, &error);
    let mut rows = Rows::new(job.is_in_order());
    let (mut first, mut table) = (Vec::new(), Table::new());
    loop {
        match subscriber.next_event(None).map_err(trouble)? {
            Some(Event::Records(records)) => {
                let fields = records.format().fields().len();
                for record in records.iter() {
                    if first.is_empty() {
                        JsonEncoder::new(records.format()).record(&record, &mut first);
                    }
                    match job.is_of_changes() {
                        true => change(&mut table, records.format(), &record),
                        false => rows.add_record(&record, fields),
                    }
                }
                count.fetch_add(records.len() as u64, Ordering::Relaxed);
            }
            Some(Event::StreamEnded { publishers_left: 0, .. }) => break,
            Some(Event::Dropped { records, reason, .. }) => {
                return Err(Trouble::Link(format!("{records} records were dropped: {reason}")));
            }
            Some(Event::Unreadable { message }) => return Err(Trouble::Link(message)),
            Some(
                Event::Format(_)
                | Event::StreamEnded { .. }
                | Event::Reconnected
                | Event::Missed { .. }
                | Event::Held { .. }
                | Event::Readable { .. },
            )
            | None => {}
        }
    }
    for (format, record) in table.values() {
        rows.add_record(&Record::assume_checked(format, record), format.fields().len().saturating_sub(1));
    }
    let first = String::from_utf8_lossy(&first).trim_end().to_owned();
    Ok(Received { sum: rows.sum(), bytes: rows.bytes(), time: started.elapsed(), first })
}

/// The rows that changes leave, by the first column. The last column says what a change is.
type Table = BTreeMap<Vec<u8>, (Format, Vec<u8>)>;

fn change(table: &mut Table, format: &Format, record: &Record<'_>) {
    let Value::Text(key) = record.get(0) else { return };
    match record.get(format.fields().len().saturating_sub(1)) {
        Value::Text(b"leave") => drop(table.remove(key)),
        _ => drop(table.insert(key.to_vec(), (format.clone(), record.bytes().to_vec()))),
    }
}

/// The results of all threads, or the first error.
fn join_all<T>(threads: Vec<ScopedJoinHandle<'_, Result<T, Trouble>>>) -> Result<Vec<T>, String> {
    let outcomes: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    let mut results = Vec::new();
    let mut why = None;
    for outcome in outcomes {
        match outcome {
            Ok(Ok(result)) => results.push(result),
            Ok(Err(Trouble::Link(link))) => why = Some(link),
            Ok(Err(Trouble::Cancelled)) => why = why.or(Some("it was cancelled".to_owned())),
            Err(_) => why = Some("a thread panicked".to_owned()),
        }
    }
    why.map_or(Ok(results), Err)
}

/// How the wait for the threads ended.
enum Ending {
    /// They are done, well or not.
    Done,
    /// A signal ended them.
    Signal(i32),
    /// The watch ended them, because nothing moved.
    Stalled,
}

/// The main thread's part: showing progress, and ending all when one fails.
struct Watch<'a> {
    streams: &'a [Stream],
    jobs: &'a [Job],
    interrupt: &'a Interrupt,
    interrupters: Vec<Interrupter>,
    counters: Counters,
}

impl Watch<'_> {
    fn until_done(&self, finished: &mpsc::Receiver<bool>, started: Instant) -> Ending {
        let mut display = Display::new(self.streams, self.jobs);
        let (mut moved, mut moved_at) = (0, started);
        let mut stalled = false;
        loop {
            match finished.recv_timeout(REFRESH) {
                Ok(true) | Err(RecvTimeoutError::Timeout) => {}
                Ok(false) => self.cancel(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.counters.total() != moved {
                (moved, moved_at) = (self.counters.total(), Instant::now());
            }
            stalled |= moved_at.elapsed() > STALL;
            if stalled || self.interrupt.caught().is_some() {
                self.cancel();
            }
            display.update(&self.counters, started.elapsed());
        }
        display.clear();
        match self.interrupt.caught() {
            Some(signal) => Ending::Signal(signal),
            None if stalled => Ending::Stalled,
            None => Ending::Done,
        }
    }

    fn cancel(&self) {
        self.counters.cancelled.store(true, Ordering::Relaxed);
        self.interrupters.iter().for_each(Interrupter::interrupt);
    }
}
