//! `cargo xtask test`: every test there is, or those of one crate, or only the quick ones.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use lexopt::prelude::*;

use crate::place::CargoWorkspace;
use crate::steps::{Outcome, Steps};
use crate::{Ended, disk, fuzz, oracle, tidy};

/// Cases of a property test where only a quick answer is wanted; its default is 256.
const QUICK_CASES: &str = "32";

/// With it, tests of random changes try as many as may take a minute; without it, as many as an edit can wait for.
const THOROUGH: &str = "CROSSDOCK_THOROUGH";

/// The nightly Rust whose miri is used. Pinned, so that a run today and one in a month, here and elsewhere, do the same; a later one
/// is taken when there is a reason to.
const NIGHTLY: &str = "nightly-2026-05-20";

/// The request of the command line.
#[derive(Default)]
struct Wanted {
    krate: Option<String>,
    quick: bool,
    verbose: bool,
    filter: Vec<OsString>,
}

/// The crates whose integration tests run daemons. The whole run has those of the first once more with three I/O contexts. Those of
/// the command line show less of contexts and take as long: `CROSSDOCK_THOROUGH=1 cargo xtask test crossdock` runs them so.
const END_TO_END: [&str; 2] = ["crossdock-runtime", "crossdock"];

/// `cargo xtask test [CRATE] [--quick] [--verbose] [-- FILTER…]`.
pub(crate) fn run(place: &CargoWorkspace, args: Vec<OsString>) -> Result<Ended, String> {
    let mut wanted = Wanted::default();
    // An argument behind `--` is the test binaries' own.
    let mut args = args.into_iter();
    let ours: Vec<OsString> = args.by_ref().take_while(|word| word != "--").collect();
    wanted.filter = args.collect();
    let mut parser = lexopt::Parser::from_args(ours);
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Long("quick") => wanted.quick = true,
            Long("verbose") | Short('v') => wanted.verbose = true,
            Value(word) if wanted.krate.is_none() => {
                let word = word.to_string_lossy().into_owned();
                let Some(package) = place.package(&word) else {
                    let known: Vec<&str> = place.packages().collect();
                    return Ok(Ended::Usage(format!(
                        "test: there is no crate `{word}`; there are: {}",
                        known.join(", ")
                    )));
                };
                wanted.krate = Some(package.into());
            }
            other => return Ok(Ended::Usage(format!("test: {}", other.unexpected()))),
        }
    }
    if !wanted.filter.is_empty() && wanted.krate.is_none() && !wanted.quick {
        return Ok(Ended::Usage("test: a FILTER needs a CRATE or --quick".into()));
    }
    let mut steps = Steps::new(place, wanted.verbose);
    match (&wanted.krate, wanted.quick) {
        (None, false) => {
            let room = disk::check(place)?;
            steps.step("disk", |_| Outcome::Passed(room));
            everything(&mut steps);
        }
        (None, true) => quick(&mut steps, &wanted.filter),
        (Some(krate), quick) => one(&mut steps, krate, quick, &wanted.filter),
    }
    Ok(steps.summary())
}

/// Every test, the cheapest answers first.
fn everything(steps: &mut Steps<'_>) {
    tidy::run(steps);
    let duckdb = oracle::step(steps);
    let selection = ["test", "--workspace", "--no-fail-fast"];
    // A step of its own: on a slow machine the compiler takes longer than the tests, and each has the bound of a step.
    build(steps, &selection);
    let mut tests = steps.place.cargo(&selection);
    tests.env(THOROUGH, "1");
    with_oracle(&mut tests, duckdb.as_deref());
    cargo_test(steps, "cargo test --workspace", tests);
    three_contexts(steps, END_TO_END[0], &selection);
    demo(steps);
    // Two series that take about as long; the fuzz targets run for a fixed time each, so a neighbour costs them none.
    let checkers = |steps: &mut Steps<'_>| {
        loom(steps);
        miri(steps);
    };
    steps.side_by_side(fuzz::all, checkers);
}

/// Compiles what a `cargo test …` runs, the `crossdock` program among it.
fn build(steps: &mut Steps<'_>, selection: &[&str]) {
    let mut build = steps.place.cargo(selection);
    build.arg("--no-run");
    let name = "cargo test --no-run";
    steps.step(name, |steps| match steps.call(name, build) {
        Ok(call) if call.ok() => Outcome::Passed(String::new()),
        Ok(call) => Outcome::Failed(failures(&call.output()) + &call.report(steps.place)),
        Err(why) => Outcome::Failed(why),
    });
}

/// Unit and integration tests of all but the benchmarks, whose peers take long to build.
fn quick(steps: &mut Steps<'_>, filter: &[OsString]) {
    let mut tests = steps.place.cargo(&["test", "--workspace", "--exclude", "crossdock-bench", "--tests", "--"]);
    tests.args(filter).env("PROPTEST_CASES", QUICK_CASES);
    cargo_test(steps, "quick tests", tests);
}

/// One crate's tests.
fn one(steps: &mut Steps<'_>, krate: &str, quick: bool, filter: &[OsString]) {
    let selection = ["test", "--package", krate];
    let mut tests = steps.place.cargo(&selection);
    if quick {
        tests.arg("--tests").env("PROPTEST_CASES", QUICK_CASES);
    } else {
        let duckdb = (krate == "crossdock-engine").then(|| oracle::step(steps)).flatten();
        with_oracle(&mut tests, duckdb.as_deref());
    }
    tests.arg("--").args(filter);
    cargo_test(steps, &format!("cargo test --package {krate}"), tests);
    // They take as long again, which is longer than an edit can wait for.
    let is_thorough = std::env::var_os(THOROUGH).is_some();
    if END_TO_END.contains(&krate) && is_thorough && !quick && filter.is_empty() {
        three_contexts(steps, krate, &selection);
    }
    if krate == "crossdock-mailbox" && !quick && filter.is_empty() {
        loom(steps);
        miri(steps);
    }
}

/// A crate's tests over real sockets once more, with daemons that have three I/O contexts: the programs that the step before has
/// built with this `cargo test …`. Cargo is not asked to run them: for fewer targets it compiles the dependencies in another way.
fn three_contexts(steps: &mut Steps<'_>, krate: &str, selection: &[&str]) {
    let name = format!("with three I/O contexts: {krate}");
    let mut list = steps.place.cargo(selection);
    list.args(["--no-run", "--message-format", "json"]);
    let programs = steps.call(&name, list).and_then(|call| match call.ok() {
        true => steps.place.integration_tests(krate, &call.output()),
        false => Err(call.report(steps.place)),
    });
    let programs = match programs {
        Ok(programs) => programs,
        Err(why) => return steps.step(&name, |_| Outcome::Failed(why)),
    };
    for mut program in programs {
        program.command.env("CROSSDOCK_TEST_IO_CONTEXTS", "3").env(THOROUGH, "1");
        cargo_test(steps, &format!("{name} {}", program.name), program.command);
    }
}

fn with_oracle(tests: &mut Command, duckdb: Option<&Path>) {
    if let Some(python) = duckdb {
        tests.env(oracle::VARIABLE, python);
    }
}

/// The tests of the lock-free parts in every order that the memory model allows, in a build of their own.
fn loom(steps: &mut Steps<'_>) {
    let mut tests = steps.place.cargo(&["test", "--package", "crossdock-mailbox", "--release"]);
    tests.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", steps.place.target.join("loom"));
    // Loom itself does most of the work, and the profile has libraries that it does not name built for size.
    tests.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3");
    cargo_test(steps, "loom: crossdock-mailbox", tests);
}

/// The tests of what lies where in shared memory, in an interpreter that knows what is undefined. It comes with nightly Rust only,
/// and is installed where it is missing.
fn miri(steps: &mut Steps<'_>) {
    let name = "miri: crossdock-mailbox";
    let mut lack = None;
    steps.step("miri: install", |steps| match install_miri(steps) {
        Ok(note) => Outcome::Passed(note),
        Err(why) => Outcome::Skipped(lack.insert(why).clone()),
    });
    if lack.is_none() {
        let tests = nightly(
            steps.place,
            &["cargo", "miri", "test", "--package", "crossdock-mailbox", "--lib", "--test", "ring"],
        );
        cargo_test(steps, name, tests);
    }
}

/// A command of [`NIGHTLY`].
fn nightly(place: &CargoWorkspace, arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", NIGHTLY]).args(arguments).current_dir(&place.root);
    // They name the toolchain that runs this program.
    command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Sees to it that there is a miri with a standard library of its own. Returns what was done, or why there is none.
fn install_miri(steps: &Steps<'_>) -> Result<String, String> {
    let setup = || nightly(steps.place, &["cargo", "miri", "setup"]);
    if setup().output().is_ok_and(|out| out.status.success()) {
        return Ok(String::new());
    }
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", NIGHTLY, "--profile", "minimal", "-c", "miri", "-c", "rust-src"]);
    steps.call_or_say(
        &format!("rustup toolchain install {NIGHTLY}"),
        install,
        "miri comes with nightly Rust, and that by rustup",
    )?;
    steps.call_or_say("cargo miri setup", setup(), "it builds itself a standard library")?;
    Ok("installed with rustup".into())
}

/// A step that is `cargo test`: its line says how many tests ran.
fn cargo_test(steps: &mut Steps<'_>, name: &str, command: Command) {
    steps.step(name, |steps| match steps.call(name, command) {
        Ok(call) if call.ok() => match tests_passed(&call.output()) {
            0 => Outcome::Failed(format!("it ran no test\n{}", call.report(steps.place))),
            passed => Outcome::Passed(format!("{passed} tests")),
        },
        // First of all what failed: where only the beginning is kept, that says most.
        Ok(call) => Outcome::Failed(failures(&call.output()) + &call.report(steps.place)),
        Err(why) => Outcome::Failed(why),
    });
}

/// The part of the output of `cargo test` that a person needs: of each test program with failures its name and what the
/// failed tests printed, and the errors of the compiler and of cargo. After a hang or a crash the end of the output
/// says more.
fn failures(output: &str) -> String {
    let mut shown = String::new();
    let (mut running, mut in_failures, mut in_error) = ("", false, false);
    for line in output.lines() {
        let plain = line.trim_start();
        if ["Running ", "Doc-tests "].iter().any(|start| plain.starts_with(start)) {
            running = line;
        }
        if line == "failures:" && !in_failures {
            in_failures = true;
            shown += &format!("{running}\n");
        }
        in_error = (in_error && !line.is_empty()) || line.starts_with("error") || line == "Caused by:";
        if in_failures || in_error {
            shown += &format!("{line}\n");
        }
        in_failures &= !line.starts_with("test result: ");
    }
    shown
}

/// The tests that passed, over all `test result:` lines.
fn tests_passed(output: &str) -> u64 {
    let results = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    results.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// The main job, end to end, by the program that the tests run: a release build takes longer than all else here. It compares
/// its own results and says by its status whether they hold.
fn demo(steps: &mut Steps<'_>) {
    let name = "demo airline";
    let mut demo = Command::new(steps.place.target.join("debug/crossdock"));
    demo.args(["demo", "airline", "--json"]).current_dir(&steps.place.root);
    steps.step(name, |steps| match steps.call(name, demo) {
        Ok(call) if call.ok() => match call.output().lines().filter(|line| is_object(line)).count() {
            0 => Outcome::Failed(format!("it printed no JSON object\n{}", call.report(steps.place))),
            lines => Outcome::Passed(format!("{lines} lines")),
        },
        Ok(call) => Outcome::Failed(call.report(steps.place)),
        Err(why) => Outcome::Failed(why),
    });
}

/// A line that is one JSON object.
fn is_object(line: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(line).is_ok_and(|value| value.is_object())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_over_all_binaries() {
        let output = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\n\
            test result: ok. 40 passed; 0 failed\ntest result: FAILED. 7 passed; 1 failed\n";
        assert_eq!(tests_passed(output), 42);
        assert_eq!(tests_passed(""), 0);
    }

    #[test]
    fn of_a_failed_run_what_failed_is_shown_and_nothing_else() {
        let output = "     Running tests/one.rs (target/one)\n\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed\n\n     \
            Running tests/two.rs (target/two)\n\ntest b ... FAILED\ntest c ... ok\n\nfailures:\n\n---- b stdout ----\n\
            thread 'b' panicked at two.rs:3:5:\nboom\n\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed\n\n\
            error: test failed, to rerun pass `--test two`\n     Running tests/three.rs (target/three)\ntest d ... ok\n";
        let shown = failures(output);
        assert!(
            shown.starts_with("     Running tests/two.rs (target/two)\nfailures:\n\n---- b stdout ----\n"),
            "{shown}"
        );
        assert!(shown.contains("boom") && shown.contains("error: test failed"), "{shown}");
        assert!(!shown.contains("test a") && !shown.contains("test c") && !shown.contains("one.rs"), "{shown}");
        assert_eq!(
            failures("error[E0425]: no such value\n --> a.rs:1:1\n\nwarning: unused\n"),
            "error[E0425]: no such value\n --> a.rs:1:1\n"
        );
        assert_eq!(failures("test a ... ok\n"), "");
    }

    #[test]
    fn only_whole_objects_count_as_lines_of_json() {
        assert!(is_object(r#"{"subscriber":"JFK to LAX","rows":1782}"#));
        assert!(!is_object("[1]") && !is_object("Compiling") && !is_object("{"));
    }
}
