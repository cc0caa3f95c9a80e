//! The results of the demo: a table or JSON, and whether every subscriber got what it should.

use std::time::Duration;

use serde::Serialize;

use super::checksum::Sum;
use super::jobs::Job;
use super::replay::{Received, Results, Stream};
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::quantity::{bytes, count, counted, rate, seconds};
use crate::table::{Side, Width, render, wrapped};

/// The replayed and received records, and those that should have been.
pub(crate) struct Report<'a> {
    pub(crate) streams: &'a [Stream],
    pub(crate) jobs: &'a [Job],
    pub(crate) results: &'a Results,
    pub(crate) expected: &'a [Sum],
    pub(crate) prepare_time: Duration,
    pub(crate) check_time: Duration,
}

/// A line of `--json` about a stream.
#[derive(Serialize)]
struct StreamLine<'a> {
    kind: &'static str,
    stream: &'a str,
    records: u64,
    bytes: u64,
    format: String,
}

/// A line of `--json` about a subscriber.
#[derive(Serialize)]
struct SubscriberLine<'a> {
    kind: &'static str,
    subscriber: &'a str,
    sql: &'a str,
    records: u64,
    bytes: u64,
    seconds: f64,
    checksum: &'a str,
    expected_records: u64,
    expected_checksum: &'a str,
    same: bool,
}

/// The last line of `--json`.
#[derive(Serialize)]
struct SummaryLine {
    kind: &'static str,
    records_in: u64,
    records_out: u64,
    seconds: f64,
    records_in_per_s: f64,
    records_out_per_s: f64,
    prepare_seconds: f64,
    check_seconds: f64,
    rows_decoded_before_clock: bool,
    same: bool,
}

impl Report<'_> {
    /// Prints it.
    pub(crate) fn print(&self, json: bool) -> Outcome {
        if json { self.print_json() } else { out::print(self.text(Width::of_stdout())) }
    }

    /// Succeeds if every subscriber got what it should.
    pub(crate) fn verdict(&self) -> Outcome {
        let differing: Vec<&str> = self.rows().filter(|row| !row.is_same()).map(|row| row.job.name).collect();
        match differing.len() {
            0 => Ok(()),
            n => Err(Failure::failed(format!(
                "{} got other rows than the plain pass over the CSV gives: {}",
                counted(n as u64, "subscriber"),
                differing.join("; ")
            ))),
        }
    }

    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let pairs = self.results.received.iter().zip(self.expected);
        self.jobs.iter().zip(pairs).map(|(job, (received, expected))| Row { job, received, expected })
    }

    fn records_in(&self) -> u64 {
        self.streams.iter().map(|stream| stream.replay.records).sum()
    }

    fn records_out(&self) -> u64 {
        self.results.received.iter().map(|received| received.sum.rows).sum()
    }

    fn text(&self, width: Width) -> String {
        let time = self.results.time;
        let headings = [
            ("", Side::Right),
            ("subscriber", Side::Left),
            ("rows", Side::Right),
            ("bytes", Side::Right),
            ("rate", Side::Right),
            ("checksum", Side::Left),
            ("check", Side::Left),
        ];
        let row = |(number, row): (usize, Row<'_>)| {
            vec![
                (number + 1).to_string(),
                row.job.name.to_owned(),
                count(row.received.sum.rows),
                bytes(row.received.bytes),
                rate(row.received.sum.rows, row.received.time),
                row.received.sum.checksum.clone(),
                row.check(),
            ]
        };
        let mut text = render(&headings, self.rows().enumerate().map(row), width);
        text.push_str("\nThe first row of each:\n");
        for (number, row) in self.rows().enumerate() {
            text += &format!("{}.\n{}", number + 1, wrapped(&row.received.first, 4));
        }
        text += &format!(
            "\n{} in ({}), {} out in {}: {} in, {} out.\n",
            counted(self.records_in(), "record"),
            bytes(self.streams.iter().map(|stream| stream.replay.len_bytes()).sum()),
            count(self.records_out()),
            seconds(time),
            rate(self.records_in(), time),
            rate(self.records_out(), time),
        );
        let same = self.rows().filter(Row::is_same).count();
        text += &format!(
            "{same} of {} subscribers got exactly the rows of the plain pass over the CSV ({}).\n",
            self.jobs.len(),
            seconds(self.check_time),
        );
        text
    }

    fn print_json(&self) -> Outcome {
        for stream in self.streams {
            out::print_json(&StreamLine {
                kind: "stream",
                stream: stream.name,
                records: stream.replay.records,
                bytes: stream.replay.len_bytes(),
                format: stream.replay.format.id().to_string(),
            })?;
        }
        for row in self.rows() {
            out::print_json(&row.line())?;
        }
        let time = self.results.time.as_secs_f64();
        let per_s = |records: u64| if time > 0.0 { records as f64 / time } else { 0.0 };
        out::print_json(&SummaryLine {
            kind: "summary",
            records_in: self.records_in(),
            records_out: self.records_out(),
            seconds: time,
            records_in_per_s: per_s(self.records_in()),
            records_out_per_s: per_s(self.records_out()),
            prepare_seconds: self.prepare_time.as_secs_f64(),
            check_seconds: self.check_time.as_secs_f64(),
            rows_decoded_before_clock: true,
            same: self.rows().all(|row| row.is_same()),
        })
    }
}

/// A subscriber, what it got and what it should have got.
struct Row<'a> {
    job: &'a Job,
    received: &'a Received,
    expected: &'a Sum,
}

impl<'a> Row<'a> {
    fn is_same(&self) -> bool {
        self.received.sum == *self.expected
    }

    fn check(&self) -> String {
        match (self.is_same(), self.received.sum.rows == self.expected.rows) {
            (true, _) => "same".to_owned(),
            (false, true) => format!("DIFFERS: expected {}", self.expected.checksum),
            (false, false) => format!("DIFFERS: expected {}", counted(self.expected.rows, "row")),
        }
    }

    fn line(&self) -> SubscriberLine<'a> {
        SubscriberLine {
            kind: "subscriber",
            subscriber: self.job.name,
            sql: self.job.sql,
            records: self.received.sum.rows,
            bytes: self.received.bytes,
            seconds: self.received.time.as_secs_f64(),
            checksum: &self.received.sum.checksum,
            expected_records: self.expected.rows,
            expected_checksum: &self.expected.checksum,
            same: self.is_same(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs::JOBS;
    use super::*;

    fn sum(rows: u64, checksum: &str) -> Sum {
        Sum { rows, checksum: checksum.to_owned() }
    }

    fn with_report(change: impl FnOnce(&mut Vec<Sum>), check: impl FnOnce(&Report<'_>)) {
        let mut expected = vec![sum(104_662, "0011223344556677"); JOBS.len()];
        let received = Received {
            sum: expected[0].clone(),
            bytes: 1 << 20,
            time: Duration::from_millis(300),
            first:
                r#"{"passenger_list":"12A Kim;30F Larsen;1B Bauer;2C Petrov","meal_preference":"any;vegan;halal;any"}"#
                    .into(),
        };
        let results = Results { time: Duration::from_millis(300), received: vec![received; JOBS.len()] };
        change(&mut expected);
        let (prepare_time, check_time) = (Duration::from_millis(200), Duration::from_millis(100));
        check(&Report { streams: &[], jobs: &JOBS, results: &results, expected: &expected, prepare_time, check_time });
    }

    #[test]
    fn the_table_fits_80_columns() {
        with_report(
            |expected| expected[1] = sum(104_661, "0011223344556677"),
            |report| {
                let text = report.text(Width::Columns(80));
                assert_eq!(text.lines().find(|line| line.chars().count() > 80), None, "{text}");
                assert!(text.contains("8 of 9 subscribers"), "{text}");
            },
        );
    }

    #[test]
    fn one_row_too_many_or_another_fails_the_demo() {
        with_report(|_| {}, |report| assert!(report.verdict().is_ok()));
        with_report(
            |expected| expected[2].rows += 1,
            |report| {
                let why = report.verdict().unwrap_err().text();
                assert!(why.starts_with("1 subscriber got other rows") && why.ends_with(JOBS[2].name), "{why}");
            },
        );
        with_report(|expected| expected[0].checksum.push('0'), |report| assert!(report.verdict().is_err()));
    }
}
