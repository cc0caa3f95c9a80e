//! The results of `demo morph`, for people or as JSON, and whether it is right.

use crossdock_runtime::info::{PathInfo, PathStep};
use serde::Serialize;

use super::super::checksum::Sum;
use super::super::data::Replay;
use super::{COMPUTE, JOBS, Job, Received, Results, STRIP, Versions};
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::quantity::{bytes, count, counted, rate, seconds};
use crate::table::{Side, Width, render, wrapped};

/// The replayed and received records, and those that should have been.
pub(super) struct Report<'a> {
    pub(super) replay: &'a Replay,
    pub(super) versions: &'a Versions,
    pub(super) results: &'a Results,
    pub(super) expected: &'a [Sum],
}

/// A line of `--json` about the path that the records took.
#[derive(Serialize)]
struct PathLine<'a> {
    kind: &'static str,
    path: &'a PathInfo,
    measured_ns_per_record: Option<f64>,
}

/// A line of `--json` about a subscriber.
#[derive(Serialize)]
struct SubscriberLine<'a> {
    kind: &'static str,
    subscriber: &'a str,
    sql: &'a str,
    records: u64,
    waited: u64,
    dropped: u64,
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
    converted: u64,
    refused: u64,
    answer_seconds: f64,
    seconds: f64,
    same: bool,
}

/// An introduction, for people.
pub(super) fn introduce(replay: &Replay, versions: &Versions) -> Outcome {
    let Versions([first, second, third]) = versions;
    let text = format!(
        "A publisher sends {} in version 1 ({} fields, {}), passengers' names included.\n\
         Two subscribers accept version 3 only ({} fields), and no conversion leads there yet: their records wait,\n\
         and the daemon asks for a conversion. A converter answers while the flights go on:\n\n  \
         1 to 2  {STRIP}    ({} fields: private fields are stripped first)\n{}\n",
        counted(replay.records, "flight"),
        first.fields().len(),
        bytes(replay.len_bytes()),
        third.fields().len(),
        second.fields().len(),
        wrapped(&format!("2 to 3  {COMPUTE}"), 2),
    );
    out::print(text)
}

impl Report<'_> {
    /// Prints it.
    pub(super) fn print(&self, json: bool) -> Outcome {
        if json { self.print_json() } else { out::print(self.text(Width::of_stdout())) }
    }

    /// Succeeds if every subscriber got what it should, nothing was lost, and the names were stripped in the first step.
    pub(super) fn verdict(&self) -> Outcome {
        match self.wrong() {
            wrong if wrong.is_empty() => Ok(()),
            wrong => Err(Failure::failed(wrong.join("; "))),
        }
    }

    /// The values that are not as they should be.
    fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (job, received, expected) in self.rows() {
            if received.sum != *expected {
                wrong.push(format!("{} got other rows than the plain pass over the CSV gives", job.name));
            }
            if received.dropped > 0 {
                wrong.push(format!("{} lost {}", job.name, counted(received.dropped, "record")));
            }
            if received.waited == 0 {
                wrong.push(format!("nothing waited for {}, so nothing was shown", job.name));
            }
        }
        let ids: Vec<String> = self.versions.0.iter().map(|format| format.id().to_string()).collect();
        let is_way = |steps: &[PathStep]| matches!(steps, [strip, compute] if strip.from == ids[0] && strip.to == ids[1] && compute.to == ids[2]);
        match &self.results.paths[..] {
            [path] if is_way(&path.steps) && path.refused == 0 => {}
            paths => wrong.push(format!("the records came another way than from version 1 to 2 to 3: {paths:?}")),
        }
        wrong
    }

    fn rows(&self) -> impl Iterator<Item = (&Job, &Received, &Sum)> {
        let pairs = self.results.received.iter().zip(self.expected);
        JOBS.iter().zip(pairs).map(|(job, (received, expected))| (job, received, expected))
    }

    /// The versions on a path, behind the first.
    fn way(&self, path: &PathInfo) -> String {
        let version = |step: &PathStep| {
            let at = self.versions.0.iter().position(|format| format.id().to_string() == step.to);
            at.map_or_else(|| step.to.clone(), |at| format!("version {}", at + 1))
        };
        path.steps.iter().map(version).collect::<Vec<_>>().join(", ")
    }

    fn measured_ns(&self) -> Option<f64> {
        self.results.plan.paths.iter().find_map(|path| path.measured_ns_per_record)
    }

    fn text(&self, width: Width) -> String {
        let headings = [
            ("subscriber", Side::Left),
            ("rows", Side::Right),
            ("waited", Side::Right),
            ("dropped", Side::Right),
            ("checksum", Side::Left),
            ("check", Side::Left),
        ];
        let row = |(job, received, expected): (&Job, &Received, &Sum)| {
            vec![
                job.name.to_owned(),
                count(received.sum.rows),
                count(received.waited),
                count(received.dropped),
                received.sum.checksum.clone(),
                if received.sum == *expected {
                    "same".to_owned()
                } else {
                    format!("differs from {}", expected.checksum)
                },
            ]
        };
        let mut text = render(&headings, self.rows().map(row), width);
        for path in &self.results.paths {
            text += &format!("\npath   version 1, {}\n", self.way(path));
            for (number, part) in path.parts.iter().enumerate() {
                text += &wrapped(&format!("{}. {part}", number + 1), 7);
            }
            let measured = self.measured_ns().map_or(String::new(), |ns| format!(", measured {ns:.0} ns"));
            text += &format!("cost   estimated {:.0} ns a record{measured}\n", path.ns_per_record);
            text += &format!(
                "done   {} in, {} out, {} refused: waiting records once for each subscriber, all others once for \
                 both\n",
                count(path.records_in),
                count(path.records_out),
                count(path.refused)
            );
        }
        let time = self.results.received.iter().map(|received| received.time).max().unwrap_or_default();
        text += &format!(
            "\nThe converter answered within {}; {} went through in {} ({}).\n",
            seconds(self.results.answered),
            counted(self.results.context.records_in, "flight"),
            seconds(time),
            rate(self.replay.records, time),
        );
        let verdict =
            if self.wrong().is_empty() { "Nothing was lost, and no name left the daemon." } else { "This is wrong." };
        text + verdict + "\n"
    }

    fn print_json(&self) -> Outcome {
        for path in &self.results.paths {
            out::print_json(&PathLine { kind: "path", path, measured_ns_per_record: self.measured_ns() })?;
        }
        for (job, received, expected) in self.rows() {
            out::print_json(&SubscriberLine {
                kind: "subscriber",
                subscriber: job.name,
                sql: job.sql,
                records: received.sum.rows,
                waited: received.waited,
                dropped: received.dropped,
                seconds: received.time.as_secs_f64(),
                checksum: &received.sum.checksum,
                expected_records: expected.rows,
                expected_checksum: &expected.checksum,
                same: received.sum == *expected,
            })?;
        }
        let time = self.results.received.iter().map(|received| received.time).max().unwrap_or_default();
        out::print_json(&SummaryLine {
            kind: "summary",
            records_in: self.replay.records,
            converted: self.results.paths.iter().map(|path| path.records_out).sum(),
            refused: self.results.paths.iter().map(|path| path.refused).sum(),
            answer_seconds: self.results.answered.as_secs_f64(),
            seconds: time.as_secs_f64(),
            same: self.wrong().is_empty(),
        })
    }
}
