//! The bundled data: unpacked, and made into the records that the publishers send.

use std::io::Read;

use crossdock_format::csv::{CsvDecoder, CsvOptions};
use crossdock_format::{Format, record_len};
use ruzstd::decoding::StreamingDecoder;

use super::columns::fill_in;
use super::made_up::{FlightKey, passengers_and_meals};
use crate::failure::{Failure, Outcome};

/// The files of `data/`, packed with `zstd --ultra -20`, which is 3.4 MB less in the program than gzip; the flights without what
/// follows from other columns.
const FLIGHTS: &[u8] = include_bytes!("flights.csv.zst");
const WEATHER: &[u8] = include_bytes!("weather.csv.zst");

/// The flights as CSV, in order of their days: the file has October behind January.
pub(crate) fn flights_csv() -> Outcome<Vec<u8>> {
    let day = |row: &[u8]| {
        let mut columns = row.split(|byte| *byte == b',').skip(1).take(2);
        let mut number = || columns.next().and_then(|text| str::from_utf8(text).ok()?.parse::<u8>().ok());
        (number(), number())
    };
    Ok(sorted(&unpack_flights()?, day))
}

/// The weather as CSV, in order of time: the file has one airport after the other.
pub(crate) fn weather_csv() -> Outcome<Vec<u8>> {
    // The time is the last column, and of one length in all rows.
    let time = |row: &[u8]| row.rsplit(|byte| *byte == b',').next().map(<[u8]>::to_vec);
    Ok(sorted(&unpack(WEATHER)?, time))
}

/// The rows of a CSV in order of what they have for a key; rows that have the same stay as they come.
fn sorted<K: Ord>(csv: &[u8], key: impl Fn(&[u8]) -> K) -> Vec<u8> {
    let (header, rows) = csv.split_at(csv.iter().position(|byte| *byte == b'\n').map_or(csv.len(), |end| end + 1));
    let mut rows: Vec<&[u8]> = rows.split_inclusive(|byte| *byte == b'\n').collect();
    rows.sort_by_cached_key(|row| key(row));
    [&[header], &rows[..]].concat().concat()
}

/// The format of stream A.
pub(crate) fn flights_format() -> Outcome<Format> {
    Format::parse_schema(include_str!("flights.schema")).map_err(broken)
}

/// The format of stream B.
pub(crate) fn weather_format() -> Outcome<Format> {
    Format::parse_schema(include_str!("weather.schema")).map_err(broken)
}

/// The bundled files are part of this program, so this is for a program that was built wrong.
fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("the bundled data cannot be read: {error}"))
}

fn unpack_flights() -> Outcome<Vec<u8>> {
    let short = unpack(FLIGHTS)?;
    Ok(fill_in(str::from_utf8(&short).map_err(broken)?).into_bytes())
}

fn unpack(packed: &[u8]) -> Outcome<Vec<u8>> {
    let mut text = Vec::new();
    StreamingDecoder::new(packed).map_err(broken)?.read_to_end(&mut text).map_err(broken)?;
    Ok(text)
}

/// Adds the two columns that are made up to the flights' CSV.
pub(crate) fn with_made_up_columns(csv: &[u8]) -> Outcome<Vec<u8>> {
    let mut out = Vec::with_capacity(csv.len() * 2);
    let (mut passengers, mut meals) = (String::new(), String::new());
    for (number, line) in csv.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate() {
        let line = str::from_utf8(line).map_err(broken)?;
        out.extend_from_slice(line.as_bytes());
        if number == 0 {
            out.extend_from_slice(b",passenger_list,meal_preference\n");
            continue;
        }
        let mut columns = [""; 11];
        columns.iter_mut().zip(line.split(',')).for_each(|(column, text)| *column = text);
        let [year, month, day, dep_time, sched_dep_time, .., carrier, flight] = columns;
        if dep_time == "NA" {
            out.extend_from_slice(b",NA,NA\n");
            continue;
        }
        let key = FlightKey { date: [year, month, day], sched_dep_time, carrier, flight };
        passengers_and_meals(key, &mut passengers, &mut meals);
        for text in [&passengers, &meals] {
            out.push(b',');
            out.extend_from_slice(text.as_bytes());
        }
        out.push(b'\n');
    }
    Ok(out)
}

/// Records, one after the other.
pub(crate) struct Replay {
    /// Their format.
    pub(crate) format: Format,
    /// How many there are.
    pub(crate) records: u64,
    bytes: Vec<u8>,
}

impl Replay {
    /// Makes records of CSV.
    pub(crate) fn decode(csv: &[u8], format: &Format) -> Outcome<Replay> {
        let mut rows = csv;
        let options = CsvOptions { null_words: vec!["NA".to_owned()], ..CsvOptions::default() };
        let mut decoder = CsvDecoder::from_header(format, &mut rows, &options).map_err(broken)?;
        let mut replay = Replay { format: format.clone(), records: 0, bytes: Vec::with_capacity(csv.len() * 2) };
        while let Some(record) = decoder.next_record(&mut rows).map_err(broken)? {
            replay.bytes.extend_from_slice(record);
            replay.records += 1;
        }
        Ok(replay)
    }

    /// Length of all records, in bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The records in order.
    pub(crate) fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (record, after) = rest.split_at_checked(record_len(rest)?)?;
            rest = after;
            Some(record)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::leave_out;
    use super::*;
    use crossdock_format::{Record, Value};

    const SOME: &str = "\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,N18120,EWR,RDU,NA,416,16,30,2013-01-01T21:00:00Z
";

    #[test]
    fn a_flight_that_left_has_passengers_and_a_cancelled_one_none() {
        let csv = with_made_up_columns(SOME.as_bytes()).unwrap();
        let format = flights_format().unwrap();
        let replay = Replay::decode(&csv, &format).unwrap();
        assert_eq!(replay.records, 2);
        let passengers = format.field("passenger_list").unwrap();
        let values: Vec<Value<'_>> =
            replay.records().map(|record| Record::check(&format, record).unwrap().get(passengers)).collect();
        assert!(matches!(values[0], Value::Text(text) if !text.is_empty()), "{values:?}");
        assert_eq!(values[1], Value::Null);
    }

    #[test]
    fn bundled_files_are_those_in_the_folder_of_the_data() {
        let plain = |name: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name);
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut plain).unwrap();
            plain
        };
        assert!(unpack(WEATHER).unwrap() == plain("weather.csv.gz"), "weather.csv.gz is another: pack it anew");
        let flights = plain("flights.csv.gz");
        let short = leave_out(str::from_utf8(&flights).unwrap());
        if unpack(FLIGHTS).unwrap() != short.as_bytes() {
            let path = std::env::temp_dir().join("flights.csv");
            std::fs::write(&path, short).unwrap();
            panic!("flights.csv.gz is another: pack {} anew (`zstd --ultra -20`)", path.display());
        }
        assert!(unpack_flights().unwrap() == flights);
    }

    #[test]
    fn the_bundled_weather_decodes_whole() {
        let replay = Replay::decode(&weather_csv().unwrap(), &weather_format().unwrap()).unwrap();
        assert_eq!(replay.records, 26_115);
    }
}
