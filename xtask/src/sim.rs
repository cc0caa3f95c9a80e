//! `cargo xtask sim`: the simulations with many more seeds than the tests give them, or with one.

use std::ffi::OsString;
use std::process::Command;

use lexopt::prelude::*;

use crate::Ended;
use crate::place::CargoWorkspace;
use crate::steps::{Outcome, Steps};

/// Seeds of a run that names no number.
const COUNT: u64 = 100_000;
/// Seeds that the tests give to the simulation of the daemon with its clients; others have their own number, and as many times more.
const SEEDS_OF_TESTS: u64 = 200;

/// The simulation of the daemon with its clients: package, target, filter.
const DAEMON: (&str, &[&str], &str) = ("crossdock-runtime", &["--lib"], "simulation::");
/// The simulation of sessions alone.
const SESSIONS: (&str, &[&str], &str) = ("crossdock-transport", &["--test", "simulation"], "");

/// The seeds of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seeds {
    /// This number of them, from anywhere.
    Count(u64),
    /// This one.
    One(String),
}

impl Seeds {
    /// The variable by which the tests get them, in one of `shares` equal parts.
    fn variable(&self, shares: u64) -> (&'static str, String) {
        match self {
            Seeds::Count(count) => ("CROSSDOCK_SEARCH", count.div_ceil(SEEDS_OF_TESTS * shares).to_string()),
            Seeds::One(seed) => ("CROSSDOCK_SEED", seed.clone()),
        }
    }
}

/// Runs them. A seed that fails is reported with the command that repeats it.
///
/// # Errors
/// The command line cannot be read.
pub(crate) fn run(place: &CargoWorkspace, args: Vec<OsString>) -> Result<Ended, String> {
    let (mut seeds, mut names) = (Seeds::Count(COUNT), Vec::new());
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Long("count") => match parser.value().and_then(|value| value.parse()) {
                Ok(count) => seeds = Seeds::Count(count),
                Err(why) => return Ok(Ended::Usage(format!("sim: --count: {why}"))),
            },
            Long("seed") => match parser.value().and_then(lexopt::ValueExt::string) {
                Ok(seed) => seeds = Seeds::One(seed),
                Err(why) => return Ok(Ended::Usage(format!("sim: --seed: {why}"))),
            },
            Value(name) => names.push(name.to_string_lossy().into_owned()),
            other => return Ok(Ended::Usage(format!("sim: {}", other.unexpected()))),
        }
    }
    let mut steps = Steps::new(place, false);
    for (package, target, _) in [DAEMON, SESSIONS] {
        let words = [&["test", "--no-run", "--package", package][..], target].concat();
        steps.command(&format!("sim: build {package}"), place.cargo(&words), "correct what the compiler reports");
    }
    if let Seeds::One(_) = seeds {
        step(&mut steps, "sim: daemon", command(place, DAEMON, &names, seeds.variable(1)));
        step(&mut steps, "sim: sessions", command(place, SESSIONS, &names, seeds.variable(1)));
        return Ok(steps.summary());
    }
    // A test has one thread: two run beside each other, with seeds from anywhere.
    let half = |name: &'static str| {
        let command = command(place, DAEMON, &names, seeds.variable(2));
        move |lane: &mut Steps<'_>| step(lane, name, command)
    };
    let sessions = command(place, SESSIONS, &names, seeds.variable(1));
    let (first, second) = (half("sim: daemon, first half"), half("sim: daemon, second half"));
    steps.side_by_side(first, |lane| {
        second(lane);
        step(lane, "sim: sessions", sessions);
    });
    Ok(steps.summary())
}

/// The tests of a simulation, all or those of some names, with these seeds.
fn command(
    place: &CargoWorkspace,
    (package, target, filter): (&str, &[&str], &str),
    names: &[String],
    (variable, value): (&str, String),
) -> Command {
    let mut command = place.cargo(&[&["test", "--package", package][..], target, &["--"]].concat());
    let all: Vec<String> = Some(filter.to_owned()).filter(|filter| !filter.is_empty()).into_iter().collect();
    command.args(if names.is_empty() { &all[..] } else { names }).env(variable, value);
    command
}

fn step(steps: &mut Steps<'_>, name: &str, command: Command) {
    steps.step(name, |steps| match steps.call(name, command) {
        Ok(call) if call.ok() => Outcome::Passed(String::new()),
        Ok(call) => Outcome::Failed(call.report(steps.place)),
        Err(why) => Outcome::Failed(why),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_shared_out_and_one_seed_is_given_to_all() {
        assert_eq!(Seeds::Count(100_000).variable(2), ("CROSSDOCK_SEARCH", "250".to_owned()));
        assert_eq!(Seeds::Count(1).variable(2), ("CROSSDOCK_SEARCH", "1".to_owned()));
        assert_eq!(Seeds::One("0x2a".to_owned()).variable(2), ("CROSSDOCK_SEED", "0x2a".to_owned()));
    }
}
