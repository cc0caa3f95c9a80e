//! The subscribers of the demo: each with its query, and beside it the same in plain Rust, over the text of the CSV.
//!
//! The plain side shares no code with the engine: it reads the text with another library, compares and computes by itself,
//! and is what each subscriber's rows are checked against.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::checksum::{Cell, Rows, Sum};
use super::made_up::{FlightKey, passengers_and_meals};
use crate::failure::{Failure, Outcome};

/// One subscriber.
pub(crate) struct Job {
    /// Its purpose.
    pub(crate) name: &'static str,
    /// Its query.
    pub(crate) sql: &'static str,
    plain: Plain,
}

/// A row's share of the rows that a subscriber should get.
enum Plain {
    /// A flight.
    A(fn(&Flight<'_>, &mut Rows)),
    /// An hour of weather.
    B(fn(&Hour<'_>, &mut Rows)),
    /// A flight, with each hour of weather of its airport and hour, or with none.
    Joined(fn(&Flight<'_>, Option<&Sky>, &mut Rows)),
    /// The flights of an airport in an hour, which starts at this time.
    ByHour(fn(&str, i64, &Delays, &mut Rows)),
    /// The first of the carriers by the flights of their last day, as a table that its changes make.
    Carriers(fn(&str, &LastDay, &mut Rows)),
}

/// A handler, whose stream has a key, and with it a state.
pub(crate) struct Keyed {
    /// The name of the handler and of its stream.
    pub(crate) name: &'static str,
    /// Its query.
    pub(crate) sql: &'static str,
    /// The column of the key.
    pub(crate) key: &'static str,
}

/// The stream whose state the last subscriber reads.
pub(crate) const CARRIERS: Keyed = Keyed {
    name: "carriers",
    sql: "SELECT carrier, window_start AS day, count(*) AS flights, count(*) FILTER (WHERE dep_delay > 15) AS late \
          FROM A GROUP BY carrier, TUMBLE(time_hour, INTERVAL '1 day') LATENESS INTERVAL '1 day'",
    key: "carrier",
};

/// The carriers of the last subscriber.
const FIRST_CARRIERS: usize = 10;
const DAY_NS: i64 = 86_400_000_000_000;

/// The flights of a carrier on the last day of it.
#[derive(Default)]
struct LastDay {
    start_ns: i64,
    flights: i64,
    late: i64,
}

impl LastDay {
    fn add(&mut self, flight: &Flight<'_>) {
        let start_ns = flight.time_hour_ns.div_euclid(DAY_NS) * DAY_NS;
        if start_ns > self.start_ns {
            *self = LastDay { start_ns, ..LastDay::default() };
        }
        if start_ns == self.start_ns {
            self.flights += 1;
            self.late += i64::from(flight.dep_delay.is_some_and(|minutes| minutes > 15));
        }
    }
}

impl Job {
    /// Whether its rows come in the order of the records. The rows of joins and windows come when a partner or the time does.
    pub(crate) fn is_in_order(&self) -> bool {
        matches!(self.plain, Plain::A(_) | Plain::B(_))
    }

    /// Whether its rows are changes of a table by the first column, which is what is compared in the end.
    pub(crate) fn is_of_changes(&self) -> bool {
        matches!(self.plain, Plain::Carriers(_))
    }
}

/// The part of an hour of weather that is joined.
struct Sky {
    temp: Option<f64>,
    wind_speed: Option<f64>,
    visib: Option<f64>,
}

/// The delays of the flights of an airport in an hour.
#[derive(Default)]
struct Delays {
    flights: i64,
    departed: i64,
    late: i64,
    sum: i64,
    worst: Option<i64>,
}

impl Delays {
    fn add(&mut self, flight: &Flight<'_>) {
        self.flights += 1;
        if let Some(minutes) = flight.dep_delay {
            self.departed += 1;
            self.late += i64::from(minutes > 15);
            self.sum += minutes;
            self.worst = self.worst.max(Some(minutes));
        }
    }
}

/// By airport and time.
type ByHour<T> = BTreeMap<(String, i64), T>;

/// The subscribers.
pub(crate) const JOBS: [Job; 9] = [
    // The C-CORE paper's query, with this data's names: passengers and meals from one city to another, at a time.
    Job {
        name: "passengers, meals",
        sql: "SELECT passenger_list, meal_preference FROM A \
              WHERE origin = 'JFK' AND dest = 'LAX' AND sched_dep_time BETWEEN 1800 AND 2100",
        plain: Plain::A(|flight, rows| {
            if flight.origin == "JFK" && flight.dest == "LAX" && (1800..=2100).contains(&flight.sched_dep_time) {
                let (mut passengers, mut meals) = (String::new(), String::new());
                let boarded = flight.dep_time.map(|_| passengers_and_meals(flight.key, &mut passengers, &mut meals));
                rows.add(&[boarded.map(|()| &passengers[..]).into(), boarded.map(|()| &meals[..]).into()]);
            }
        }),
    },
    Job {
        name: "late to Los Angeles",
        sql: "SELECT carrier, flight, dest, dep_delay FROM A \
              WHERE origin = 'JFK' AND dest = 'LAX' AND dep_delay > 15",
        plain: Plain::A(|flight, rows| {
            let is_late = flight.dep_delay.is_some_and(|minutes| minutes > 15);
            if flight.origin == "JFK" && flight.dest == "LAX" && is_late {
                rows.add(&[flight.carrier.into(), flight.flight.into(), flight.dest.into(), flight.dep_delay.into()]);
            }
        }),
    },
    Job {
        name: "Newark's feed",
        sql: "SELECT carrier, flight, dest, sched_dep_time, dep_delay FROM A WHERE origin = 'EWR'",
        plain: Plain::A(|flight, rows| {
            if flight.origin == "EWR" {
                rows.add(&[
                    flight.carrier.into(),
                    flight.flight.into(),
                    flight.dest.into(),
                    flight.sched_dep_time.into(),
                    flight.dep_delay.into(),
                ]);
            }
        }),
    },
    Job {
        name: "Kennedy's feed",
        sql: "SELECT flight, dest, COALESCE(dep_delay, 0) AS delay_min, distance * 1.609344::float8 AS distance_km \
              FROM A WHERE origin = 'JFK'",
        plain: Plain::A(|flight, rows| {
            if flight.origin == "JFK" {
                let distance_km = flight.distance as f64 * 1.609344;
                let delay_min = flight.dep_delay.unwrap_or(0);
                rows.add(&[flight.flight.into(), flight.dest.into(), delay_min.into(), distance_km.into()]);
            }
        }),
    },
    Job {
        name: "LaGuardia's feed",
        sql: "SELECT carrier, flight, tailnum, time_hour, \
              CASE WHEN dep_time IS NULL THEN 'cancelled' WHEN dep_delay > 15 THEN 'late' ELSE 'on time' END AS state \
              FROM A WHERE origin = 'LGA'",
        plain: Plain::A(|flight, rows| {
            if flight.origin == "LGA" {
                let state = match (flight.dep_time, flight.dep_delay) {
                    (None, _) => "cancelled",
                    (Some(_), Some(16..)) => "late",
                    (Some(_), _) => "on time",
                };
                rows.add(&[
                    flight.carrier.into(),
                    flight.flight.into(),
                    flight.tailnum.into(),
                    Cell::Time(flight.time_hour_ns),
                    state.into(),
                ]);
            }
        }),
    },
    Job {
        name: "severe weather",
        sql: "SELECT origin, time_hour, wind_gust, visib, precip FROM B \
              WHERE wind_gust >= 40 OR visib < 0.5 OR precip > 0.3",
        plain: Plain::B(|hour, rows| {
            let is_severe = hour.wind_gust.is_some_and(|gust| gust >= 40.0)
                || hour.visib.is_some_and(|visib| visib < 0.5)
                || hour.precip.is_some_and(|precip| precip > 0.3);
            if is_severe {
                rows.add(&[
                    hour.origin.into(),
                    Cell::Time(hour.time_hour_ns),
                    hour.wind_gust.into(),
                    hour.visib.into(),
                    hour.precip.into(),
                ]);
            }
        }),
    },
    // The third stream of the C-CORE paper: flights and weather together. The flights of a day come in the order of departure.
    Job {
        name: "flights with weather",
        sql: "SELECT f.carrier, f.flight, f.origin, f.time_hour, f.dep_delay, w.temp, w.wind_speed, w.visib \
              FROM A f LEFT JOIN B w ON f.origin = w.origin AND f.time_hour = w.time_hour LATENESS INTERVAL '1 day'",
        plain: Plain::Joined(|flight, sky, rows| {
            rows.add(&[
                flight.carrier.into(),
                flight.flight.into(),
                flight.origin.into(),
                Cell::Time(flight.time_hour_ns),
                flight.dep_delay.into(),
                sky.and_then(|sky| sky.temp).into(),
                sky.and_then(|sky| sky.wind_speed).into(),
                sky.and_then(|sky| sky.visib).into(),
            ]);
        }),
    },
    Job {
        name: "delays by the hour",
        sql: "SELECT origin, window_start, count(*) AS flights, count(*) FILTER (WHERE dep_delay > 15) AS late, \
              avg(dep_delay::float8) AS mean_min, max(dep_delay) AS worst_min \
              FROM A GROUP BY origin, TUMBLE(time_hour, INTERVAL '1 hour') LATENESS INTERVAL '1 day'",
        plain: Plain::ByHour(|origin, start, delays, rows| {
            let mean = (delays.departed > 0).then(|| delays.sum as f64 / delays.departed as f64);
            rows.add(&[
                origin.into(),
                Cell::Time(start),
                delays.flights.into(),
                delays.late.into(),
                mean.into(),
                delays.worst.into(),
            ]);
        }),
    },
    // A live table of ten rows: the last record of each carrier is kept, and what changes among the first ten is given.
    Job {
        name: "late carriers, live",
        sql: "SELECT carrier, day, flights, late FROM carriers SNAPSHOT THEN CHANGES ORDER BY late DESC LIMIT 10",
        plain: Plain::Carriers(|carrier, day, rows| {
            rows.add(&[carrier.into(), Cell::Time(day.start_ns), day.flights.into(), day.late.into()]);
        }),
    },
];

/// The rows that each subscriber should get, by one plain pass over the text of each file.
pub(crate) fn expected(flights_csv: &[u8], weather_csv: &[u8]) -> Outcome<Vec<Sum>> {
    let mut sums: Vec<Rows> = JOBS.iter().map(|job| Rows::new(job.is_in_order())).collect();
    let mut skies: ByHour<Vec<Sky>> = BTreeMap::new();
    pass(weather_csv, |row| {
        let hour = Hour::read(row)?;
        for (job, rows) in JOBS.iter().zip(&mut sums) {
            if let Plain::B(select) = job.plain {
                select(&hour, rows);
            }
        }
        skies.entry((hour.origin.to_owned(), hour.time_hour_ns)).or_default().push(hour.sky);
        Some(())
    })?;
    let mut hours: ByHour<Delays> = BTreeMap::new();
    let mut carriers: BTreeMap<String, LastDay> = BTreeMap::new();
    each_flight(flights_csv, |flight| {
        let place = (flight.origin.to_owned(), flight.time_hour_ns);
        let skies = skies.get(&place).map(Vec::as_slice).unwrap_or_default();
        for (job, rows) in JOBS.iter().zip(&mut sums) {
            match job.plain {
                Plain::A(select) => select(flight, rows),
                Plain::Joined(select) if skies.is_empty() => select(flight, None, rows),
                Plain::Joined(select) => skies.iter().for_each(|sky| select(flight, Some(sky), rows)),
                Plain::B(_) | Plain::ByHour(_) | Plain::Carriers(_) => {}
            }
        }
        hours.entry(place).or_default().add(flight);
        carriers.entry(flight.carrier.to_owned()).or_default().add(flight);
    })?;
    // Those with as many late flights are in order of their names.
    let mut carriers: Vec<(String, LastDay)> = carriers.into_iter().collect();
    carriers.sort_by_key(|(_, day)| Reverse(day.late));
    carriers.truncate(FIRST_CARRIERS);
    for (job, rows) in JOBS.iter().zip(&mut sums) {
        if let Plain::Carriers(select) = job.plain {
            carriers.iter().for_each(|(carrier, day)| select(carrier, day, rows));
        }
    }
    for ((origin, start), delays) in &hours {
        for (job, rows) in JOBS.iter().zip(&mut sums) {
            if let Plain::ByHour(select) = job.plain {
                select(origin, *start, delays, rows);
            }
        }
    }
    Ok(sums.iter().map(Rows::sum).collect())
}

/// Visits every flight, read from the text by the plain pass.
pub(crate) fn each_flight(flights_csv: &[u8], mut visit: impl FnMut(&Flight<'_>)) -> Outcome {
    pass(flights_csv, |row| {
        visit(&Flight::read(row)?);
        Some(())
    })
}

/// Visits every row after the header.
fn pass(text: &[u8], mut visit: impl FnMut(&csv::StringRecord) -> Option<()>) -> Outcome {
    let unreadable =
        |line: u64, why: &str| Failure::failed(format!("the bundled CSV cannot be checked: line {line}: {why}"));
    let mut reader = csv::Reader::from_reader(text);
    let mut row = csv::StringRecord::new();
    loop {
        let line = reader.position().line();
        match reader.read_record(&mut row) {
            Ok(true) => visit(&row).ok_or_else(|| unreadable(line, "a column is not as expected"))?,
            Ok(false) => return Ok(()),
            Err(error) => return Err(unreadable(line, &error.to_string())),
        }
    }
}

/// A flight, read from the text of its row.
pub(crate) struct Flight<'a> {
    key: FlightKey<'a>,
    dep_time: Option<i64>,
    sched_dep_time: i64,
    pub(crate) dep_delay: Option<i64>,
    pub(crate) carrier: &'a str,
    pub(crate) flight: i64,
    tailnum: Option<&'a str>,
    pub(crate) origin: &'a str,
    pub(crate) dest: &'a str,
    pub(crate) distance: i64,
    pub(crate) time_hour_ns: i64,
}

impl<'a> Flight<'a> {
    /// Makes up its passengers and their meals; whether anybody boarded.
    pub(crate) fn passengers_and_meals(&self, passengers: &mut String, meals: &mut String) -> bool {
        if self.dep_time.is_some() {
            passengers_and_meals(self.key, passengers, meals);
        }
        self.dep_time.is_some()
    }

    fn read(row: &'a csv::StringRecord) -> Option<Flight<'a>> {
        let key = FlightKey {
            date: [row.get(0)?, row.get(1)?, row.get(2)?],
            sched_dep_time: row.get(4)?,
            carrier: row.get(9)?,
            flight: row.get(10)?,
        };
        Some(Flight {
            key,
            dep_time: number_or_na(row.get(3)?)?,
            sched_dep_time: key.sched_dep_time.parse().ok()?,
            dep_delay: number_or_na(row.get(5)?)?,
            carrier: key.carrier,
            flight: key.flight.parse().ok()?,
            tailnum: Some(row.get(11)?).filter(|text| *text != "NA"),
            origin: row.get(12)?,
            dest: row.get(13)?,
            distance: row.get(15)?.parse().ok()?,
            time_hour_ns: nanoseconds(row.get(18)?)?,
        })
    }
}

/// An hour of weather, read from the text of its row.
struct Hour<'a> {
    origin: &'a str,
    wind_gust: Option<f64>,
    precip: Option<f64>,
    visib: Option<f64>,
    time_hour_ns: i64,
    sky: Sky,
}

impl<'a> Hour<'a> {
    fn read(row: &'a csv::StringRecord) -> Option<Hour<'a>> {
        let visib = number_or_na(row.get(13)?)?;
        Some(Hour {
            origin: row.get(0)?,
            wind_gust: number_or_na(row.get(10)?)?,
            precip: number_or_na(row.get(11)?)?,
            visib,
            time_hour_ns: nanoseconds(row.get(14)?)?,
            sky: Sky { temp: number_or_na(row.get(5)?)?, wind_speed: number_or_na(row.get(9)?)?, visib },
        })
    }
}

/// A number, or `NA` for none; `None` for what is neither.
fn number_or_na<T: std::str::FromStr>(text: &str) -> Option<Option<T>> {
    if text == "NA" { Some(None) } else { text.parse().ok().map(Some) }
}

fn nanoseconds(text: &str) -> Option<i64> {
    let time: Timestamp = text.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::super::data;
    use super::*;

    #[test]
    fn the_plain_pass_finds_what_is_known_of_the_data() {
        let sums = expected(&data::flights_csv().unwrap(), &data::weather_csv().unwrap()).unwrap();
        let rows = |name: &str| {
            let job = JOBS.iter().position(|job| job.name == name).unwrap();
            sums[job].rows
        };
        // Counted with awk over the same files.
        assert_eq!(rows("late to Los Angeles"), 1782);
        assert_eq!(rows("Newark's feed"), 120_835);
        assert_eq!(rows("Kennedy's feed"), 111_279);
        assert_eq!(rows("LaGuardia's feed"), 104_662);
        assert_eq!(rows("Newark's feed") + rows("Kennedy's feed") + rows("LaGuardia's feed"), 336_776);
        assert_eq!(rows("passengers, meals"), 2096);
        assert_eq!(rows("severe weather"), 385);
    }
}
