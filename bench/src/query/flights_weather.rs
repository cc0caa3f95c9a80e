//! The bundled flights and the weather of their airports, in the order of their hours, as often as it takes; each year is as long
//! after the one before.

use super::rows::{Rows, StreamFields};
use crate::cpu::Error;
use crate::flights::bundled_lines;
use crossdock_format::{FieldType, RecordBuilder, Value};

/// Flights and rows of weather in the year.
const YEAR_ROWS: u64 = 336_776 + 26_115;
const YEAR_DAYS: i64 = 365;
/// From 1970-01-01 to 2013-01-01.
const FIRST_DAY: i64 = 15_706;
const HOUR_NS: i64 = 3_600_000_000_000;
/// The days of a year before each month.
const MONTHS: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

const FLIGHTS: StreamFields = (
    "flights",
    &[
        ("year", FieldType::I32, false),
        ("carrier", FieldType::Char(2), false),
        ("flight", FieldType::I32, false),
        ("origin", FieldType::Char(3), false),
        ("dest", FieldType::Char(3), false),
        ("dep_delay", FieldType::F64, true),
        ("time_hour", FieldType::Timestamp, false),
    ],
);
const WEATHER: StreamFields = (
    "weather",
    &[
        ("origin", FieldType::Char(3), false),
        ("temp", FieldType::F64, true),
        ("wind_speed", FieldType::F64, true),
        ("visib", FieldType::F64, true),
        ("time_hour", FieldType::Timestamp, false),
    ],
);

/// A row of the CSV, by its hour.
type Hourly = (i64, Vec<String>);

/// The years that have at least `count` rows, of both streams.
pub(super) fn years(count: u64) -> u64 {
    count.div_ceil(YEAR_ROWS)
}

/// Whole years with at least `count` rows, of both streams.
pub(super) fn rows(count: u64, with_csv: bool) -> Result<Vec<Rows>, Error> {
    let columns = ["carrier", "flight", "origin", "dest", "dep_delay"];
    let flights_of_year = hourly("flights.csv.gz", &columns)?;
    let weather_of_year = hourly("weather.csv.gz", &["origin", "temp", "wind_speed", "visib"])?;
    let (mut flights, mut weather) = (Rows::new(FLIGHTS, with_csv)?, Rows::new(WEATHER, with_csv)?);
    let mut builders = [&flights, &weather].map(|rows| RecordBuilder::new(&rows.format));
    let mut event = 0;
    for year in 0..years(count) as i64 {
        let mut weather_left = weather_of_year.iter().peekable();
        for (hour, flight) in &flights_of_year {
            while let Some((hour, row)) = weather_left.next_if(|(of, _)| of <= hour) {
                let time = Value::Timestamp(time_ns(year, *hour));
                let values = [text(row, 0), float(row, 1)?, float(row, 2)?, float(row, 3)?, time];
                weather.push(&mut builders[1], event, &values)?;
                event += 1;
            }
            let number = Value::Int(flight[1].parse()?);
            let time = Value::Timestamp(time_ns(year, *hour));
            let values =
                [Value::Int(year), text(flight, 0), number, text(flight, 2), text(flight, 3), float(flight, 4)?, time];
            flights.push(&mut builders[0], event, &values)?;
            event += 1;
        }
    }
    Ok(vec![flights, weather])
}

fn time_ns(year: i64, hour: i64) -> i64 {
    (hour + year * YEAR_DAYS * 24) * HOUR_NS
}

fn text(row: &[String], at: usize) -> Value<'_> {
    Value::Text(row[at].as_bytes())
}

fn float(row: &[String], at: usize) -> Result<Value<'_>, Error> {
    Ok(if row[at] == "NA" { Value::Null } else { Value::Float(row[at].parse()?) })
}

/// Columns of a bundled table, in the order of the hours.
fn hourly(name: &str, columns: &[&str]) -> Result<Vec<Hourly>, Error> {
    let mut lines = bundled_lines(name)?;
    let head = lines.next().ok_or("an empty table")??;
    let place = |column: &str| {
        head.split(',').position(|found| found == column).ok_or_else(|| format!("{name} has no column `{column}`"))
    };
    let places = columns.iter().map(|column| place(column)).collect::<Result<Vec<_>, _>>()?;
    let of_hour = place("time_hour")?;
    let mut rows = Vec::new();
    for line in lines {
        let line = line?;
        let cells: Vec<&str> = line.split(',').collect();
        rows.push((hours(cells[of_hour])?, places.iter().map(|&at| cells[at].to_owned()).collect()));
    }
    rows.sort_by_key(|(hour, _): &Hourly| *hour);
    Ok(rows)
}

/// The hours since 1970-01-01 UTC of a time of 2013, or of the night after it, such as `2013-01-01T06:00:00Z`.
fn hours(text: &str) -> Result<i64, Error> {
    let parse = || {
        let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
        let month = usize::try_from(number(5, 7)? - 1).ok()?;
        let day = FIRST_DAY + (number(0, 4)? - 2013) * YEAR_DAYS + MONTHS.get(month)? + number(8, 10)? - 1;
        Some(day * 24 + number(11, 13)?)
    };
    parse().ok_or_else(|| format!("`{text}` is no hour").into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    #[test]
    fn the_hours_of_a_year_follow_the_calendar() {
        // 2013-01-01T06:00:00Z is 1,357,020,000 s.
        assert_eq!(hours("2013-01-01T06:00:00Z").unwrap() * 3600, 1_357_020_000);
        assert_eq!(hours("2014-01-01T00:00:00Z").unwrap() - hours("2013-12-31T23:00:00Z").unwrap(), 1);
        assert_eq!(hours("2013-03-01T00:00:00Z").unwrap() - hours("2013-02-28T23:00:00Z").unwrap(), 1);
        assert!(hours("2013-13-01T00:00:00Z").is_err() && hours("").is_err());
    }

    #[test]
    fn weather_comes_before_the_flights_of_its_hour() {
        let rows = rows(1, false).unwrap();
        assert_eq!(rows.iter().map(Rows::len).collect::<Vec<_>>()[0], 336_776);
        assert!(rows[1].of_events(0, 1).next().is_some());
    }
}
