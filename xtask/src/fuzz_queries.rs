//! `cargo xtask fuzz queries`: random queries over random rows, here and in DuckDB.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Ended;
use crate::oracle;
use crate::place::CargoWorkspace;
use crate::steps::{Outcome, Steps};

/// The name of this target, beside those of libFuzzer.
pub(crate) const TARGET: &str = "queries";

/// The kinds of queries, and the percentage of all that each has. A query with state takes longer, for DuckDB too.
const KINDS: [(&str, u64); 6] =
    [("expressions", 50), ("joins", 10), ("windows", 10), ("over", 10), ("tables", 10), ("changes", 10)];

/// Queries of a run that names no number.
const COUNT: u32 = 100_000;

/// The request of the command line.
pub(crate) struct QueriesRequest {
    pub(crate) count: Option<u32>,
    pub(crate) seed: Option<u32>,
    pub(crate) kind: Option<String>,
    pub(crate) files: Vec<PathBuf>,
}

impl QueriesRequest {
    /// The kinds to run and the number of queries of each; the error is one of the command line.
    fn kinds(&self) -> Result<Vec<(&'static str, u64)>, String> {
        let count = u64::from(self.count.unwrap_or(COUNT));
        let Some(wanted) = &self.kind else {
            return Ok(KINDS.iter().map(|(kind, percent)| (*kind, (count * percent).div_ceil(100))).collect());
        };
        let names = KINDS.map(|(kind, _)| kind);
        match names.iter().find(|kind| *kind == wanted) {
            Some(kind) => Ok(vec![(*kind, count)]),
            None => Err(format!("fuzz: there is no kind `{wanted}` of queries; there are: {}", names.join(", "))),
        }
    }
}

/// Runs the queries, or the kept cases given. Those that differ are kept as files by the tests of `crossdock-engine`.
///
/// # Errors
/// There is no DuckDB, and none can be installed.
pub(crate) fn run(place: &CargoWorkspace, request: &QueriesRequest) -> Result<Ended, String> {
    let kinds = match request.kinds() {
        Ok(kinds) => kinds,
        Err(usage) => return Ok(Ended::Usage(usage)),
    };
    if let Some(missing) = request.files.iter().find(|file| !file.exists()) {
        return Ok(Ended::Usage(format!("fuzz: there is no file {}", missing.display())));
    }
    let mut steps = Steps::new(place, false);
    if !request.files.is_empty() {
        let here = std::env::current_dir().map_err(|e| format!("the current folder: {e}"))?;
        let files = std::env::join_paths(request.files.iter().map(|file| here.join(file)));
        let mut command = tests(place);
        command.env("CROSSDOCK_QUERIES_FILES", files.map_err(|e| format!("the names of the files: {e}"))?);
        step(&mut steps, "fuzz: queries: files", command);
        return Ok(steps.summary());
    }
    let python = oracle::python(&steps)?;
    for (kind, count) in kinds {
        let mut command = with_duckdb(place, &python, request.seed.unwrap_or(1));
        command.env("CROSSDOCK_QUERIES_KIND", kind).env("CROSSDOCK_QUERIES_COUNT", count.to_string());
        step(&mut steps, &format!("fuzz: queries: {kind}"), command);
    }
    Ok(steps.summary())
}

fn with_duckdb(place: &CargoWorkspace, python: &Path, seed: u32) -> Command {
    let mut command = tests(place);
    command.env(oracle::VARIABLE, python).env("CROSSDOCK_DUCKDB_SEED", seed.to_string());
    command
}

/// The test that runs them.
fn tests(place: &CargoWorkspace) -> Command {
    place.cargo(&[
        "test",
        "--package",
        "crossdock-engine",
        "--test",
        "queries",
        "--",
        "--ignored",
        "--exact",
        "--nocapture",
        "fuzz",
    ])
}

fn step(steps: &mut Steps<'_>, name: &str, command: Command) {
    steps.step(name, |steps| match steps.call(name, command) {
        Ok(call) if call.ok() => Outcome::Passed(compared(&call.output()).unwrap_or_default().to_owned()),
        Ok(call) => Outcome::Failed(call.report(steps.place)),
        Err(why) => Outcome::Failed(why),
    });
}

/// The line that says what was compared.
fn compared(output: &str) -> Option<&str> {
    // Behind what the test harness prints on the same line.
    output.lines().find_map(|line| line.split_once("queries: ")).map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(count: Option<u32>, kind: Option<&str>) -> QueriesRequest {
        QueriesRequest { count, seed: None, kind: kind.map(str::to_owned), files: Vec::new() }
    }

    #[test]
    fn each_kind_has_its_share_of_the_queries() {
        let tenth = |kind| (kind, 10_000);
        let [joins, windows, over, tables, changes] = ["joins", "windows", "over", "tables", "changes"].map(tenth);
        let all = [("expressions", 50_000), joins, windows, over, tables, changes];
        assert_eq!(request(Some(100_000), None).kinds().unwrap(), all);
        assert_eq!(request(Some(1), None).kinds().unwrap().iter().map(|(_, count)| count).sum::<u64>(), 6);
        assert_eq!(request(Some(7), Some("joins")).kinds().unwrap(), [("joins", 7)]);
        let usage = request(None, Some("join")).kinds().unwrap_err();
        assert_eq!(
            usage,
            "fuzz: there is no kind `join` of queries; there are: expressions, joins, windows, over, tables, changes"
        );
    }

    #[test]
    fn a_good_run_reports_what_it_compared() {
        let output = "running 1 test\ntest fuzz ... queries: 7 joins, 40 rows compared, --seed 1\nok\n";
        assert_eq!(compared(output), Some("7 joins, 40 rows compared, --seed 1"));
        assert_eq!(compared("running 1 test\n"), None);
    }
}
