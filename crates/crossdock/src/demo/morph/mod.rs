//! `crossdock demo morph`: versions of a format that do not know one another, and a converter that comes while traffic flows.
//!
//! A publisher sends the flights in version 1, passengers' names included. Its subscribers know version 3 only, and nothing leads
//! there: their records wait in the daemon, which asks. A converter answers with two conversions: the first strips
//! the names, the second computes what version 3 has. Waiting records are released, the rest converted as it comes, and each
//! subscriber's rows are compared with a plain pass over the CSV, as `demo airline` does it.

mod report;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use crossdock_format::Format;
use crossdock_nectarine::{Conversion, Converter, Error, Event, Interrupter, Publisher, Subscriber};
use crossdock_runtime::info::{ContextInfo, ExplainInfo, PathInfo};
use crossdock_runtime::{ContextConfig, ContextHandle, FormatName};

use super::checksum::{Cell, Rows, Sum};
use super::data::{self, Replay};
use super::jobs::{self, Flight};
use crate::failure::{Failure, Outcome};
use crate::signals::Interrupt;

/// The stream.
const STREAM: &str = "A";
/// The flights are sent in this many parts, the first before the converter answers.
const PARTS: u64 = 3;
/// Nothing comes for so long only if something is wrong.
const STALL: Duration = Duration::from_secs(30);
/// Memory for what waits: more than all flights take.
const HOLD_BYTES: u64 = 256 << 20;

/// The step that strips what is private: version 2 has no field for the names.
const STRIP: &str = "drop passenger_list";
/// The step that computes version 3.
const COMPUTE: &str = "SELECT carrier, flight, origin, dest, time_hour AS leaves, dep_delay * 60 AS delay_s, \
                       distance * 1.609344::float8 AS distance_km, meal_preference AS meals, \
                       CAST(NULL AS text) AS passengers FROM version_2";

/// A subscriber of version 3: what it is for, its query, and the same in plain Rust.
struct Job {
    name: &'static str,
    sql: &'static str,
    plain: fn(&Flight<'_>, &mut Rows),
}

const JOBS: [Job; 2] = [
    Job {
        name: "caterer",
        sql: "SELECT * FROM A",
        plain: |flight, rows| {
            let (mut passengers, mut meals) = (String::new(), String::new());
            let boarded = flight.passengers_and_meals(&mut passengers, &mut meals);
            rows.add(&[
                flight.carrier.into(),
                flight.flight.into(),
                flight.origin.into(),
                flight.dest.into(),
                Cell::Time(flight.time_hour_ns),
                flight.dep_delay.map(|minutes| minutes * 60).into(),
                (flight.distance as f64 * 1.609344).into(),
                boarded.then_some(&meals[..]).into(),
                // Version 3 has room for the names, and must not get them.
                Cell::Null,
            ]);
        },
    },
    Job {
        name: "hours late",
        sql: "SELECT carrier, flight, delay_s FROM A WHERE delay_s > 7200",
        plain: |flight, rows| {
            if flight.dep_delay.is_some_and(|minutes| minutes > 120) {
                let delay_s = flight.dep_delay.map(|minutes| minutes * 60);
                rows.add(&[flight.carrier.into(), flight.flight.into(), delay_s.into()]);
            }
        },
    },
];

/// The records of a subscriber.
struct Received {
    sum: Sum,
    /// Records that waited in the daemon until the converter came.
    waited: u64,
    /// The dropped records, which should be nothing.
    dropped: u64,
    /// From the first record published until the stream's end.
    time: Duration,
}

/// The results of the run.
struct Results {
    received: Vec<Received>,
    /// From the question until both conversions were in force.
    answered: Duration,
    paths: Vec<PathInfo>,
    plan: ExplainInfo,
    context: ContextInfo,
}

/// The three versions: the publisher's, the one without names, the subscribers'.
struct Versions([Format; 3]);

impl Versions {
    fn read() -> Outcome<Versions> {
        let built_wrong = |error: &dyn std::fmt::Display| Failure::failed(format!("the demo's formats: {error}"));
        let first = data::flights_format()?;
        let stripped = include_str!("../flights.schema").lines().filter(|line| !line.starts_with("passenger_list"));
        let stripped: String = stripped.map(|line| format!("{line}\n")).collect();
        let second = Format::parse_schema(&stripped).map_err(|error| built_wrong(&error))?;
        let third = Format::parse_schema(include_str!("version-3.schema")).map_err(|error| built_wrong(&error))?;
        Ok(Versions([first, second, third]))
    }
}

/// Runs the demo.
pub(crate) fn run(json: bool) -> Outcome {
    let interrupt = Interrupt::install()?;
    let versions = Versions::read()?;
    let flights_csv = data::flights_csv()?;
    let replay = Replay::decode(&data::with_made_up_columns(&flights_csv)?, &versions.0[0])?;
    if !json {
        report::introduce(&replay, &versions)?;
    }
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = ContextConfig { listen, ..ContextConfig::default() };
    (config.morph.hold_bytes, config.morph.hold_total_bytes) = (HOLD_BYTES, 2 * HOLD_BYTES);
    let context = ContextHandle::start(config).map_err(|error| Failure::failed(error.to_string()))?;
    let results = play(&context, &replay, &versions, &interrupt);
    let stopped = context.stop();
    let results = results?;
    stopped.map_err(|stuck| Failure::failed(stuck.to_string()))?;
    let mut expected = vec![Rows::default(); JOBS.len()];
    jobs::each_flight(&flights_csv, |flight| {
        JOBS.iter().zip(&mut expected).for_each(|(job, rows)| (job.plain)(flight, rows));
    })?;
    let expected: Vec<Sum> = expected.iter().map(Rows::sum).collect();
    let report = report::Report { replay: &replay, versions: &versions, results: &results, expected: &expected };
    report.print(json)?;
    report.verdict()
}

/// Why a thread ended early; none if it was asked to end.
type Trouble = Option<String>;

fn trouble(who: &'static str) -> impl Fn(Error) -> Trouble {
    move |error| match error {
        Error::Interrupted => None,
        error => Some(format!("{who}: {error}")),
    }
}

/// Lets publisher, subscribers and converter play their parts.
fn play(context: &ContextHandle, replay: &Replay, versions: &Versions, interrupt: &Interrupt) -> Outcome<Results> {
    let address = context.local_addr().to_string();
    let failed = |who: &'static str| move |error: Error| Failure::failed(format!("{who}: {error}"));
    let publisher = Publisher::builder(&address).stream(STREAM).format(&replay.format).reconnect(false);
    let publisher = publisher.connect().map_err(failed("the publisher"))?;
    let connect = |job: &Job| {
        let builder = Subscriber::builder(&address).sql(job.sql).accept(&versions.0[2]).reconnect(false);
        builder.connect().map_err(failed("a subscriber"))
    };
    let subscribers = JOBS.iter().map(connect).collect::<Outcome<Vec<Subscriber>>>()?;
    let converter = Converter::builder(&address).stream(STREAM).connect().map_err(failed("the converter"))?;
    let mut interrupters: Vec<Interrupter> = subscribers.iter().map(Subscriber::interrupter).collect();
    interrupters.extend([publisher.interrupter(), converter.interrupter()]);
    interrupt.on_raise(move || interrupters.iter().for_each(Interrupter::interrupt));
    interrupt.arm();

    let started = Instant::now();
    let (part_sent, is_part_sent) = mpsc::channel();
    let (answered, received) = std::thread::scope(|scope| {
        let publishing = scope.spawn(move || publish(publisher, replay, &part_sent));
        let converting = scope.spawn(move || convert(converter, versions, &is_part_sent));
        let receiving: Vec<_> = subscribers.into_iter().map(|s| scope.spawn(move || receive(s, started))).collect();
        let received: Vec<_> =
            receiving.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect();
        let published = publishing.join().unwrap_or_else(|_| panicked());
        let answered = converting.join().unwrap_or_else(|_| panicked());
        (published.and(answered), received)
    });
    let received: Result<Vec<(Received, Subscriber)>, Trouble> = received.into_iter().collect();
    match (answered, received) {
        (Ok((answered, _converter)), Ok(received)) => {
            // Subscribers and converter are there still, and with them the path.
            let (received, _subscribers): (Vec<Received>, Vec<Subscriber>) = received.into_iter().unzip();
            results(context, received, answered)
        }
        (Err(why), _) | (_, Err(why)) => Err(match (interrupt.caught(), why) {
            (Some(signal), _) => Failure::Interrupted(signal),
            (None, why) => Failure::failed(why.unwrap_or_else(|| "it was interrupted".to_owned())),
        }),
    }
}

fn panicked<T>() -> Result<T, Trouble> {
    Err(Some("a thread panicked".to_owned()))
}

/// The daemon's figures for all of it, while the conversions are still there.
fn results(context: &ContextHandle, received: Vec<Received>, answered: Duration) -> Outcome<Results> {
    let stopped = |stopped| Failure::failed(format!("{stopped}"));
    let paths = context.paths().map_err(stopped)?;
    let accept = paths.first().map(|path| FormatName::Id(path.to.clone()));
    let plan = context.explain(JOBS[0].sql, accept.as_slice()).map_err(stopped)?;
    let plan = plan.map_err(|error| Failure::failed(error.to_string()))?;
    let context = context.context().map_err(stopped)?;
    Ok(Results { received, answered, paths, plan, context })
}

/// Publishes the flights, and says when the first part has left.
fn publish(mut publisher: Publisher, replay: &Replay, part_sent: &Sender<()>) -> Result<(), Trouble> {
    let trouble = trouble("the publisher");
    let mut records = replay.records();
    publisher.publish_all(records.by_ref().take((replay.records / PARTS) as usize)).map_err(&trouble)?;
    publisher.flush().map_err(&trouble)?;
    // If the converter is gone, its own thread reports the error.
    let _ = part_sent.send(());
    publisher.publish_all(records).map_err(&trouble)?;
    publisher.finish().map_err(&trouble)?;
    Ok(())
}

/// Answers the daemon's question while the flights go on. The converter is to be there until all has been converted.
fn convert(
    mut converter: Converter,
    versions: &Versions,
    part_sent: &Receiver<()>,
) -> Result<(Duration, Converter), Trouble> {
    let trouble = trouble("the converter");
    let Versions([first, second, third]) = versions;
    let wanted = converter.next_wanted(Some(STALL)).map_err(&trouble)?;
    let Some(wanted) = wanted.filter(|wanted| wanted.from == *first && wanted.to == *third) else {
        return Err(Some("the converter: nobody asked for a conversion from version 1 to version 3".to_owned()));
    };
    // The publisher has gone if nothing comes, and says why.
    let _ = part_sent.recv_timeout(STALL);
    let started = Instant::now();
    for (from, to, text) in [(first, second, STRIP), (second, &wanted.to, COMPUTE)] {
        let conversion: Conversion = text.parse().map_err(|error| Some(format!("the converter: {error}")))?;
        converter.register(from, to, &conversion).map_err(&trouble)?;
    }
    Ok((started.elapsed(), converter))
}

/// Receives until the stream's end; the subscriber is there still.
fn receive(mut subscriber: Subscriber, started: Instant) -> Result<(Received, Subscriber), Trouble> {
    let trouble = trouble("a subscriber");
    let mut rows = Rows::default();
    let (mut waited, mut dropped) = (0, 0);
    loop {
        match subscriber.next_event(Some(STALL)).map_err(&trouble)? {
            Some(Event::Records(records)) => {
                let fields = records.format().fields().len();
                records.iter().for_each(|record| rows.add_record(&record, fields));
            }
            Some(Event::Readable { records, .. }) => waited += records,
            Some(Event::Dropped { records, .. }) => dropped += records,
            Some(Event::StreamEnded { publishers_left: 0, .. }) => break,
            Some(Event::Unreadable { message }) => return Err(Some(message)),
            Some(_) => {}
            None => return Err(Some(format!("nothing came for {} s", STALL.as_secs()))),
        }
    }
    Ok((Received { sum: rows.sum(), waited, dropped, time: started.elapsed() }, subscriber))
}
