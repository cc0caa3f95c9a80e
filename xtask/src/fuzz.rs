//! Runs the fuzz targets of `fuzz/` with libFuzzer on stable Rust: coverage by LLVM's own pass, no cargo-fuzz.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use lexopt::prelude::*;

use crate::Ended;
use crate::place::{self, Place};
use crate::steps::{Call, Outcome, Steps};

/// Coverage for libFuzzer, by the flags that cargo-fuzz passes; no sanitizer, which stable Rust does not have.
const RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// One input may take this long, in seconds: thousands of times what any of them should.
const INPUT_LIMIT_S: u32 = 10;

/// A target may use this much memory, in MiB: an input of 4 KiB that makes it use more is a finding.
const MEMORY_LIMIT_MIB: u32 = 1024;

/// `cargo xtask fuzz [TARGET [FILE…]] [--seconds N]`.
pub(crate) fn run(place: &Place, args: Vec<OsString>) -> Result<Ended, String> {
    let mut seconds = 60;
    let mut only = None;
    let mut files: Vec<PathBuf> = Vec::new();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Long("seconds") => match parser.value().and_then(|value| value.parse()) {
                Ok(0) => return Ok(Ended::Usage("fuzz: --seconds must be at least 1".into())),
                Ok(given) => seconds = given,
                Err(e) => return Ok(Ended::Usage(format!("fuzz: --seconds: {e}"))),
            },
            Value(word) if only.is_none() => only = Some(word.to_string_lossy().into_owned()),
            Value(word) => files.push(word.into()),
            other => return Ok(Ended::Usage(format!("fuzz: {}", other.unexpected()))),
        }
    }
    let targets = targets(place, Which::All)?;
    if let Some(lack) = lacks() {
        return Err(lack);
    }
    let mut steps = Steps::new(place, false);
    if let Some(name) = &only
        && !targets.contains(name)
    {
        return Ok(Ended::Usage(format!("fuzz: there is no target `{name}`; there are: {}", targets.join(", "))));
    }
    let wanted: Vec<&str> =
        targets.iter().map(String::as_str).filter(|t| only.as_deref().is_none_or(|o| o == *t)).collect();
    if build(&mut steps, Which::All) {
        for target in wanted {
            let work = if files.is_empty() { Work::Seconds(seconds) } else { Work::Files(&files) };
            fuzz(&mut steps, target, &work);
        }
    }
    Ok(steps.summary())
}

/// Every target that builds fast, each for so many seconds, as part of `cargo xtask test`.
pub(crate) fn all(steps: &mut Steps<'_>, seconds: u32) {
    if !steps.place.root.join("fuzz/Cargo.toml").exists() {
        steps.step("fuzz", |_| Outcome::Skipped("there is no fuzz/Cargo.toml".into()));
        return;
    }
    if let Some(lack) = lacks() {
        steps.step("fuzz", |_| Outcome::Skipped(lack));
        return;
    }
    let targets = match targets(steps.place, Which::Light) {
        Ok(targets) => targets,
        Err(why) => {
            steps.step("fuzz", |_| Outcome::Failed(why));
            return;
        }
    };
    if build(steps, Which::Light) {
        for target in targets {
            fuzz(steps, &target, &Work::Same(seconds));
        }
    }
}

/// What this machine lacks to build libFuzzer, in one line.
fn lacks() -> Option<String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let there = Command::new(&compiler).arg("--version").output().is_ok_and(|out| out.status.success());
    (!there).then(|| format!("libFuzzer is C++ and there is no `{compiler}`; install g++, or name a compiler in CXX"))
}

/// Which targets are meant.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    /// All that there are.
    All,
    /// Those that need no feature of the package: they build fast.
    Light,
}

/// The fuzz package's binaries: each is a target.
fn targets(place: &Place, which: Which) -> Result<Vec<String>, String> {
    let manifest = place.root.join("fuzz/Cargo.toml");
    if !manifest.exists() {
        return Err("there is no fuzz/Cargo.toml, and so no fuzz target".into());
    }
    let metadata = place::metadata(&manifest, &["--no-deps"])?;
    let all = metadata["packages"].as_array().into_iter().flatten();
    let all = all.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let bins = all.filter(|t| t["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin")));
    let bins = bins.filter(|target| which == Which::All || target["required-features"].as_array().is_none());
    let mut names: Vec<String> = bins.filter_map(|target| target["name"].as_str()).map(str::to_owned).collect();
    names.sort();
    if names.is_empty() { Err("fuzz/Cargo.toml has no [[bin]]: give each target one".into()) } else { Ok(names) }
}

/// Builds the targets, checked arithmetic and debug assertions on; true where that went well.
fn build(steps: &mut Steps<'_>, which: Which) -> bool {
    let mut built = false;
    steps.step("fuzz: build", |steps| {
        let host = match host() {
            Ok(host) => host,
            Err(why) => return Outcome::Failed(why),
        };
        let mut cargo = steps.place.cargo(&["build", "--release", "--bins", "--manifest-path", "fuzz/Cargo.toml"]);
        if which == Which::All {
            cargo.arg("--all-features");
        }
        // With a target named, the flags stay out of build scripts and procedural macros.
        cargo.args(["--target", &host]).env("CARGO_TARGET_DIR", folder(steps.place)).env("RUSTFLAGS", RUSTFLAGS);
        cargo.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
        cargo.env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true");
        match steps.call("fuzz: build", cargo) {
            Ok(call) if call.ok() => {
                built = true;
                Outcome::Passed(String::new())
            }
            Ok(call) => Outcome::Failed(call.report(steps.place)),
            Err(why) => Outcome::Failed(why),
        }
    });
    built
}

/// Where all that fuzzing makes goes: builds, corpora, crashes.
fn folder(place: &Place) -> PathBuf {
    place.target.join("fuzz")
}

/// This machine's target triple.
fn host() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc).arg("-vV").output().map_err(|e| format!("rustc -vV: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".into())
}

/// What a target is to do.
enum Work<'a> {
    /// Look for inputs that crash it, so long, from what earlier runs found.
    Seconds(u32),
    /// The same from nothing but the seeds, and in the same order every time: a gate that passes once should not fail another
    /// time for the dice alone.
    Same(u32),
    /// Take each of these inputs once.
    Files(&'a [PathBuf]),
}

/// Runs one built target.
fn fuzz(steps: &mut Steps<'_>, target: &str, work: &Work<'_>) {
    let name = format!("fuzz: {target}");
    steps.step(&name, |steps| {
        let folder = folder(steps.place);
        let corpus = folder.join(if matches!(work, Work::Same(_)) { "gate" } else { "corpus" }).join(target);
        if matches!(work, Work::Same(_)) {
            // What is not there need not go; what cannot go is seen by the next step.
            let _ = std::fs::remove_dir_all(&corpus);
        }
        let artifacts = folder.join("artifacts").join(target);
        for made in [&corpus, &artifacts] {
            if let Err(e) = std::fs::create_dir_all(made) {
                return Outcome::Failed(format!("{}: {e}", made.display()));
            }
        }
        let host = match host() {
            Ok(host) => host,
            Err(why) => return Outcome::Failed(why),
        };
        let mut command = Command::new(folder.join(host).join("release").join(target));
        command.current_dir(&steps.place.root);
        command.arg(format!("-timeout={INPUT_LIMIT_S}")).arg(format!("-rss_limit_mb={MEMORY_LIMIT_MIB}"));
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        match work {
            Work::Files(files) => {
                command.args(files.iter());
            }
            Work::Seconds(seconds) | Work::Same(seconds) => {
                if matches!(work, Work::Same(_)) {
                    command.arg("-seed=1");
                }
                command.arg(format!("-max_total_time={seconds}")).arg(&corpus);
                let seeds = steps.place.root.join("fuzz/seeds").join(target);
                if seeds.is_dir() {
                    command.arg(seeds);
                }
            }
        }
        match steps.call(&name, command) {
            Ok(call) if call.ok() => Outcome::Passed(inputs_tried(&call.output()).unwrap_or_default()),
            Ok(call) => Outcome::Failed(crash(steps.place, target, &call, work)),
            Err(why) => Outcome::Failed(why),
        }
    });
}

/// What a person needs to mend a crash: what it said, the input, and how to run that again.
fn crash(place: &Place, target: &str, call: &Call, work: &Work<'_>) -> String {
    let mut report = call.report(place);
    if let (Work::Seconds(_) | Work::Same(_), Some(input)) = (work, input_written(&call.output())) {
        let input = place.short(Path::new(input)).to_string();
        report += &format!("\nthe input is kept in {input}\nto repeat it: cargo xtask fuzz {target} {input}");
        report += "\nto mend it: make the code refuse such bytes, and add the input to its tests";
    }
    report
}

/// The file that libFuzzer says it kept the crashing input in.
fn input_written(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path.trim())
}

/// How many inputs a run tried, from libFuzzer's last line: `Done N runs in S second(s)`.
fn inputs_tried(output: &str) -> Option<String> {
    let line = output.lines().rfind(|line| line.starts_with("Done "))?;
    Some(format!("{} inputs", line.split_whitespace().nth(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "INFO: seed corpus\n==6174== ERROR: libFuzzer: deadly signal\n\
        artifact_prefix='a/bad/'; Test unit written to a/bad/crash-8e5ad\nBase64: Q0Q=\n";

    #[test]
    fn the_crashing_input_is_found_in_what_libfuzzer_prints() {
        assert_eq!(input_written(OUTPUT), Some("a/bad/crash-8e5ad"));
        assert_eq!(input_written("Done 5 runs in 1 second(s)\n"), None);
    }

    #[test]
    fn a_good_run_tells_how_many_inputs_it_tried() {
        assert_eq!(inputs_tried("#5 DONE\nDone 9512949 runs in 5 second(s)\n").as_deref(), Some("9512949 inputs"));
        assert_eq!(inputs_tried(OUTPUT), None);
    }
}
