//! `crossdock demo`: `airline`, and [`morph`] beside it.
//!
//! `airline` is the main job, on real data, through the real parts, checked.
//!
//! A context is started in this process on a free port of 127.0.0.1. Two publishers and nine subscribers connect to it through
//! the library and its wire, as any client would; the last one reads the state of a stream that a handler makes. The rows of each subscriber are then compared with [`jobs`]' plain pass.

mod checksum;
mod columns;
pub(crate) mod data;
mod jobs;
mod made_up;
mod morph;
mod progress;
mod replay;
mod report;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use clap::builder::PossibleValue;
use crossdock_runtime::{ContextConfig, ContextHandle};
use serde::Serialize;

use self::data::Replay;
use self::replay::Stream;
use crate::cli::{Demo, Scenario};
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::quantity::{counted, seconds};
use crate::signals::Interrupt;
use crate::table::wrapped;

/// Runs a demo.
pub(crate) fn run(arguments: &Demo) -> Outcome {
    match arguments.scenario {
        Some(Scenario::Airline) => airline(arguments.json),
        Some(Scenario::Morph) => morph::run(arguments.json),
        Some(Scenario::Flights) => out::print(data::flights_csv()?),
        None => list(arguments.json),
    }
}

/// A demo that there is.
#[derive(Serialize)]
struct Entry {
    name: String,
    about: String,
}

/// Lists the demos.
fn list(json: bool) -> Outcome {
    let values = Scenario::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let about = |value: &PossibleValue| value.get_help().map(ToString::to_string).unwrap_or_default();
    let entries: Vec<Entry> =
        values.map(|value| Entry { name: value.get_name().to_owned(), about: about(&value) }).collect();
    if json {
        return entries.iter().try_for_each(out::print_json);
    }
    let lines = entries.iter().map(|Entry { name, about }| format!("crossdock demo {name:<8}{about}\n"));
    out::print(lines.collect::<String>())
}

fn airline(json: bool) -> Outcome {
    let interrupt = Interrupt::install()?;
    let started = Instant::now();
    let flights_csv = data::flights_csv()?;
    let weather_csv = data::weather_csv()?;
    let streams = [
        Stream {
            name: "A",
            replay: Replay::decode(&data::with_made_up_columns(&flights_csv)?, &data::flights_format()?)?,
        },
        Stream { name: "B", replay: Replay::decode(&weather_csv, &data::weather_format()?)? },
    ];
    let prepare_time = started.elapsed();
    if !json {
        introduce(&streams, prepare_time)?;
    }

    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let context = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() })
        .map_err(|error| Failure::failed(error.to_string()))?;
    let results = replay::run(&context, &streams, &jobs::JOBS, &interrupt);
    let stopped = context.stop();
    let results = results?;
    stopped.map_err(|stuck| Failure::failed(stuck.to_string()))?;

    let started = Instant::now();
    let expected = jobs::expected(&flights_csv, &weather_csv)?;
    let report = report::Report {
        streams: &streams,
        jobs: &jobs::JOBS,
        results: &results,
        expected: &expected,
        prepare_time,
        check_time: started.elapsed(),
    };
    report.print(json)?;
    report.verdict()
}

/// An introduction, for people.
fn introduce(streams: &[Stream], prepare_time: Duration) -> Outcome {
    let mut text = format!(
        "New York in 2013: {} on stream A, {} of weather on B.\n\
         passenger_list and meal_preference are made up; all else is real.\n\
         The rows were encoded as records in {}, before the clock starts.\n",
        counted(streams[0].replay.records, "flight"),
        counted(streams[1].replay.records, "hour"),
        seconds(prepare_time),
    );
    for (number, job) in jobs::JOBS.iter().enumerate() {
        text += &format!("\n{}. {}\n", number + 1, job.name);
        text += &wrapped(job.sql, 4);
        if job.is_of_changes() {
            text +=
                &format!("    {} is made by a handler, and has the key {}:\n", jobs::CARRIERS.name, jobs::CARRIERS.key);
            text += &wrapped(jobs::CARRIERS.sql, 4);
        }
    }
    out::print(text + "\n")
}
