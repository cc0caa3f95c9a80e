//! `formats`: reading, writing and converting records, against the libraries that people would take, and against what one
//! would write by hand.
//!
//! Every case is a pass over the same flights of 20 fields; baseline and Crossdock take turns, pass by pass, and what is
//! printed is the median over the rounds of the middle pass, a record.

mod convert;
#[cfg(feature = "formats")]
mod decode;
mod flight;
mod measure;
#[cfg(feature = "formats")]
mod read;
mod sizes;

use crate::cpu::{self, Error};
use crate::report::{self, Figure, Samples};
use clap::Args;
use flight::{FLIGHTS, Flights};
use measure::{Pass, in_turn};

/// How the benchmark is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Rounds; each runs every case, its baseline in turn with it
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Only cases that begin so
    #[arg(long)]
    case: Option<String>,
}

/// One case: what a record takes, and what it takes the baseline.
struct Case<'a> {
    name: String,
    ours: Pass<'a>,
    baseline: Option<(&'static str, Pass<'a>)>,
    /// Records that a pass goes over.
    records: usize,
}

impl<'a> Case<'a> {
    fn new(name: &str, ours: impl FnMut() -> u64 + 'a) -> Case<'a> {
        Case { name: name.to_owned(), ours: Box::new(ours), baseline: None, records: FLIGHTS }
    }

    fn against(self, name: &'static str, baseline: impl FnMut() -> u64 + 'a) -> Case<'a> {
        Case { baseline: Some((name, Box::new(baseline))), ..self }
    }
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let machine = cpu::machine();
    let flights = Flights::load()?;
    eprintln!("{machine}\n{FLIGHTS} flights of {} bytes", flights.records.len() / FLIGHTS);
    let mut cases = Vec::new();
    #[cfg(feature = "formats")]
    {
        cases.extend(read::cases(&flights)?);
        cases.extend(decode::cases(&flights)?);
    }
    if cfg!(not(feature = "formats")) {
        eprintln!(
            "built without feature `formats`: the cases against libraries are left out (`cargo xtask bench formats`)"
        );
    }
    cases.extend(convert::cases(&flights)?);
    cases.extend(sizes::cases()?);
    if let Some(wanted) = &options.case {
        cases.retain(|case| case.name.starts_with(wanted));
    }
    if cases.is_empty() {
        return Err("no such case".into());
    }
    let mut samples: Vec<(Samples, Samples)> = vec![(Samples::default(), Samples::default()); cases.len()];
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for (case, (ours, baseline)) in cases.iter_mut().zip(&mut samples) {
            let records = case.records as f64;
            match &mut case.baseline {
                Some((_, pass)) => {
                    let times = in_turn(&mut [pass, &mut case.ours]);
                    baseline.push(times[0] / records);
                    ours.push(times[1] / records);
                }
                None => ours.push(in_turn(&mut [&mut case.ours])[0] / records),
            }
        }
    }
    let figures: Vec<Figure> = cases
        .iter()
        .zip(samples)
        .map(|(case, (ours, baseline))| Figure {
            bench: "formats",
            case: case.name.clone(),
            metric: "ns_per_record",
            unit: "ns",
            samples: ours,
            baseline: case.baseline.as_ref().map(|(name, _)| (*name, baseline)),
            ratios: None,
        })
        .collect();
    report::print(&figures, options.json, &machine, None);
    Ok(())
}
