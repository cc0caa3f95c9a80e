//! The flight: 20 fields of the bundled data, and what everybody's records are made of.

use crate::cpu::Error;
use crossdock_format::{Format, View, record};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// How many flights a pass goes over: enough that branches are not learnt by heart, few enough to stay near the core.
pub(super) const FLIGHTS: usize = 1024;
/// Distance between them in rows, so that every month and airport is among them.
const STRIDE: usize = 300;

pub(super) const SCHEMA: &str = "year u16\nmonth u8\nday u8\ndep_time i32 null\nsched_dep_time i32\n\
    dep_delay f64 null\narr_time i32 null\nsched_arr_time i32\narr_delay f64 null\ncarrier char[2]\nflight i32\n\
    tailnum string null\norigin char[3]\ndest char[3]\nair_time f64 null\ndistance i32\nhour i32\nminute i32\n\
    time_hour string\nsequence u64";

record! {
    /// A flight, every field of it.
    #[derive(Clone, Copy)]
    pub(super) struct Flight<'a> {
        pub(super) year: u16,
        pub(super) month: u8,
        pub(super) day: u8,
        pub(super) dep_time: Option<i32>,
        pub(super) sched_dep_time: i32,
        pub(super) dep_delay: Option<f64>,
        pub(super) arr_time: Option<i32>,
        pub(super) sched_arr_time: i32,
        pub(super) arr_delay: Option<f64>,
        pub(super) carrier: [u8; 2],
        pub(super) flight: i32,
        pub(super) tailnum: Option<&'a [u8]>,
        pub(super) origin: [u8; 3],
        pub(super) dest: [u8; 3],
        pub(super) air_time: Option<f64>,
        pub(super) distance: i32,
        pub(super) hour: i32,
        pub(super) minute: i32,
        pub(super) time_hour: &'a [u8],
        pub(super) sequence: u64,
    }
}

/// The flights as records, back to back.
pub(super) struct Flights {
    pub(super) format: Format,
    pub(super) records: Vec<u8>,
}

impl Flights {
    pub(super) fn load() -> Result<Flights, Error> {
        let format = Format::parse_schema(SCHEMA)?;
        let view = View::<Flight>::bind(&format)?;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/flights.csv.gz");
        let file = File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut records = Vec::new();
        let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines().skip(1).step_by(STRIDE).take(FLIGHTS);
        for (sequence, line) in (0..).zip(lines) {
            let line = line?;
            let words: Vec<&str> = line.split(',').collect();
            view.write(&flight(&words, sequence).ok_or_else(|| format!("no flight: {line}"))?, &mut records)?;
        }
        Ok(Flights { format, records })
    }

    /// The records, one by one.
    pub(super) fn each(&self) -> Result<Vec<&[u8]>, Error> {
        let mut records = Vec::with_capacity(FLIGHTS);
        let places = |start, len| records.push(&self.records[start as usize..(start + len) as usize]);
        self.format.check_records(&self.records, places)?;
        Ok(records)
    }
}

/// The flight of a line of the data, `NA` being null.
fn flight<'a>(words: &[&'a str], sequence: u64) -> Option<Flight<'a>> {
    fn number<N: std::str::FromStr>(word: &str) -> Option<N> {
        word.parse().ok()
    }
    let [year, month, day, dep_time, sched_dep_time, dep_delay, arr_time, sched_arr_time, arr_delay, words @ ..] =
        words
    else {
        return None;
    };
    let [carrier, flight, tailnum, origin, dest, air_time, distance, hour, minute, time_hour] = words else {
        return None;
    };
    Some(Flight {
        year: number(year)?,
        month: number(month)?,
        day: number(day)?,
        dep_time: number(dep_time),
        sched_dep_time: number(sched_dep_time)?,
        dep_delay: number(dep_delay),
        arr_time: number(arr_time),
        sched_arr_time: number(sched_arr_time)?,
        arr_delay: number(arr_delay),
        carrier: carrier.as_bytes().try_into().ok()?,
        flight: number(flight)?,
        tailnum: (*tailnum != "NA").then_some(tailnum.as_bytes()),
        origin: origin.as_bytes().try_into().ok()?,
        dest: dest.as_bytes().try_into().ok()?,
        air_time: number(air_time),
        distance: number(distance)?,
        hour: number(hour)?,
        minute: number(minute)?,
        time_hour: time_hour.as_bytes(),
        sequence,
    })
}
