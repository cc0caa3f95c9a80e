//! The project's chores, run as `cargo xtask …`: test, tidy, fuzz, sim, bench, weight, dist.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line tool: what it prints on standard output is its result")]

mod bench;
mod disk;
mod dist;
mod fuzz;
mod fuzz_queries;
mod oracle;
mod place;
mod sim;
mod steps;
mod test;
mod tidy;
mod weight;

use std::ffi::OsString;
use std::process::ExitCode;

use lexopt::prelude::*;
use place::CargoWorkspace;

const USAGE: &str = "\
The project's chores.

usage: cargo xtask test [CRATE] [--quick] [--verbose] [-- FILTER…]
       cargo xtask tidy [--verbose]
       cargo xtask fuzz [TARGET [FILE…]] [--seconds N] [--seed N]
       cargo xtask fuzz queries [FILE…] [--count N] [--seed N] [--kind KIND]
       cargo xtask sim [NAME…] [--count N] [--seed S]
       cargo xtask bench NAME [ARGUMENTS…]
       cargo xtask weight [--all] [--json]
       cargo xtask dist [--out DIR] [--check]

test    Runs every test: tidy, unit, integration and doc tests, loom, miri, the fuzz targets (a few seconds
        each, CROSSDOCK_FUZZ_SECONDS), the demo. Says first how much disk this needs, and ends if there is less.
        CRATE       only the tests of one crate, by its short or its full name (`query`, `crossdock-query`)
        --quick     unit and integration tests with few cases, for the loop of editing and testing
        --verbose   shows what each step prints as it runs; else only what a failed step printed
        FILTER      goes to the test binaries: `cargo xtask test query -- like`
tidy    Checks formatting, lints, the dependency table of ARCHITECTURE.md, the absences, lengths, links.
fuzz    Runs each fuzz target for N seconds (60), or one of them, or one over the files given (to repeat a crash).
        --seed N    starts from the kept seeds as `cargo xtask test` does, which prints its N; else from the corpus
        queries     runs random queries over random rows here and in DuckDB instead, and keeps those that differ
        --count N   how many (10000)
        --kind KIND only these: expressions, joins, windows, over, tables, changes
sim     Runs the simulations of sessions, and of a daemon with its clients, in virtual time, with many seeds.
        NAME        only the tests with it in their names
        --count N   how many seeds (100000)
        --seed S    this seed alone, such as 0x2a
bench   Builds crossdock and the benchmarks as packages are built and runs one: `cargo xtask bench broker --json`.
weight  Builds crossdock from nothing in release mode, and prints what each dependency costs in CPU-seconds.
dist    Builds the packages of this commit: a tarball, a Debian package, their debug information, checksums.
        --out DIR   where they are written, instead of target/packages
        --check     builds a clone once more, in other folders, and compares the packages byte by byte

Exit status: 0 done, 1 something failed, 2 the command line was wrong.
";

/// The result of a chore, as this process's exit status.
pub(crate) enum Ended {
    /// All went well.
    Well,
    /// Something failed; it has been reported.
    Failed,
    /// The command line is wrong; says how.
    Usage(String),
    /// A program that was run in this one's place ended with this status.
    Status(u8),
}

fn main() -> ExitCode {
    if weight::is_wrapper() {
        return weight::wrap();
    }
    match run() {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Failed) => ExitCode::from(1),
        Ok(Ended::Status(code)) => ExitCode::from(code),
        Ok(Ended::Usage(why)) => {
            eprintln!("xtask: {why}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::from(1)
        }
    }
}

/// Reads the first word and hands the rest to the chore of that name.
fn run() -> Result<Ended, String> {
    if let Some(why) = fuzz::compiler() {
        return Err(why);
    }
    let mut args = std::env::args_os().skip(1);
    let chore = args.next().map(|word| word.to_string_lossy().into_owned());
    let rest: Vec<OsString> = args.collect();
    let asks_help = rest.iter().any(|word| word == "--help" || word == "-h");
    match chore.as_deref() {
        Some("--help" | "-h" | "help") => {
            print!("{USAGE}");
            return Ok(Ended::Well);
        }
        // `bench NAME --help` is the benchmark's own.
        Some(_) if asks_help && chore.as_deref() != Some("bench") => {
            print!("{USAGE}");
            return Ok(Ended::Well);
        }
        None => return Ok(Ended::Usage("which chore?".into())),
        Some(_) => {}
    }
    let place = CargoWorkspace::find()?;
    match chore.as_deref() {
        Some("test") => test::run(&place, rest),
        Some("tidy") => tidy_only(&place, rest),
        Some("fuzz") => fuzz::run(&place, rest),
        Some("sim") => sim::run(&place, rest),
        Some("bench") => bench::run(&place, rest),
        Some("weight") => weight::run(&place, rest),
        Some("dist") => dist::run(&place, rest),
        other => Ok(Ended::Usage(format!("there is no chore `{}`", other.unwrap_or_default()))),
    }
}

fn tidy_only(place: &CargoWorkspace, args: Vec<OsString>) -> Result<Ended, String> {
    let mut verbose = false;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Long("verbose") | Short('v') => verbose = true,
            other => return Ok(Ended::Usage(format!("tidy: {}", other.unexpected()))),
        }
    }
    let mut steps = steps::Steps::new(place, verbose);
    tidy::run(&mut steps);
    Ok(steps.summary())
}
