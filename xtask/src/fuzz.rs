//! Runs the fuzz targets of `fuzz/` with libFuzzer on stable Rust: coverage by LLVM's own pass, no cargo-fuzz.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::SystemTime;

use lexopt::prelude::*;

use crate::Ended;
use crate::fuzz_queries::{self, QueriesRequest};
use crate::place::CargoWorkspace;
use crate::steps::{Call, Outcome, Steps};

/// The environment variable by which [`build`] has cargo run this program in the compiler's place.
const COMPILER: &str = "CROSSDOCK_FUZZ_COMPILER";

/// The environment variable by which the program of all targets knows which of them it is.
const TARGET: &str = "CROSSDOCK_FUZZ_TARGET";

/// Coverage for libFuzzer, by the flags that cargo-fuzz passes; no sanitizer, which stable Rust does not have.
const COVERAGE: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
];

/// One input may take this long, in seconds: thousands of times what any of them should.
const INPUT_LIMIT_S: u32 = 10;

/// A target may use this much memory, in MiB: an input of 4 KiB that makes it use more is a finding.
const MEMORY_LIMIT_MIB: u32 = 1024;

/// How long each target runs as part of `cargo xtask test`, in seconds; [`SECONDS`] names another time.
const GATE_S: u32 = 4;

/// The environment variable with the seconds that each target runs as part of `cargo xtask test`.
const SECONDS: &str = "CROSSDOCK_FUZZ_SECONDS";

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// The request of the command line.
struct Request {
    seconds: Option<u32>,
    seed: Option<u32>,
    /// Of the target `queries` alone.
    count: Option<u32>,
    kind: Option<String>,
    target: Option<String>,
    files: Vec<PathBuf>,
}

/// How long each target runs unless the command line says it, in seconds.
const DEFAULT_S: u32 = 60;

/// `cargo xtask fuzz [TARGET [FILE…]] [--seconds N] [--seed N]`, and `cargo xtask fuzz queries [FILE…] [--count N] [--seed N] [--kind KIND]`.
pub(crate) fn run(place: &CargoWorkspace, args: Vec<OsString>) -> Result<Ended, String> {
    let request = match Request::parse(args) {
        Ok(request) => request,
        Err(usage) => return Ok(Ended::Usage(format!("fuzz: {usage}"))),
    };
    if request.target.as_deref() == Some(fuzz_queries::TARGET) {
        let Request { count, seed, kind, files, .. } = request;
        return fuzz_queries::run(place, &QueriesRequest { count, seed, kind, files });
    }
    let mut targets = targets(place)?;
    if let Some(name) = &request.target {
        if !targets.contains(name) {
            targets.push(fuzz_queries::TARGET.to_owned());
            return Ok(Ended::Usage(format!("fuzz: there is no target `{name}`; there are: {}", targets.join(", "))));
        }
        targets.retain(|target| target == name);
    }
    if let Some(lack) = lacks() {
        return Err(lack);
    }
    let mut steps = Steps::new(place, false);
    if build(&mut steps) {
        let Request { seconds, seed, files, .. } = request;
        let seconds = seconds.unwrap_or(DEFAULT_S);
        let work = match seed {
            _ if !files.is_empty() => Work::Files(files),
            Some(seed) => Work::Seeds { seconds, seed },
            None => Work::Corpus { seconds },
        };
        fuzz_all(&mut steps, &targets, &work);
    }
    Ok(steps.summary())
}

impl Request {
    /// Reads the words behind `fuzz`; the error says which of them is wrong.
    fn parse(args: Vec<OsString>) -> Result<Request, String> {
        let mut request =
            Request { seconds: None, seed: None, count: None, kind: None, target: None, files: Vec::new() };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
            match arg {
                Long("seconds") => request.seconds = Some(positive(&mut parser, "--seconds")?),
                Long("count") => request.count = Some(positive(&mut parser, "--count")?),
                Long("kind") => {
                    let kind = parser.value().map_err(|e| format!("--kind: {e}"))?;
                    request.kind = Some(kind.to_string_lossy().into_owned());
                }
                Long("seed") => request.seed = Some(positive(&mut parser, "--seed")?),
                Value(word) if request.target.is_none() => request.target = Some(word.to_string_lossy().into_owned()),
                Value(word) => request.files.push(word.into()),
                other => return Err(other.unexpected().to_string()),
            }
        }
        if request.seed.is_some() && !request.files.is_empty() {
            return Err("--seed chooses the inputs that are made, and FILE names them: give one of the two".into());
        }
        let is_queries = request.target.as_deref() == Some(fuzz_queries::TARGET);
        if is_queries && request.seconds.is_some() {
            return Err("`queries` runs a number of queries: give --count N instead of --seconds".into());
        }
        if is_queries && !request.files.is_empty() && (request.count.is_some() || request.kind.is_some()) {
            return Err("--count and --kind are of queries that are made, and FILE names them".into());
        }
        if !is_queries && (request.count.is_some() || request.kind.is_some()) {
            return Err("--count and --kind are of the target `queries`: cargo xtask fuzz queries --count N".into());
        }
        Ok(request)
    }
}

/// The number behind an option.
fn positive(parser: &mut lexopt::Parser, option: &str) -> Result<u32, String> {
    let value: u32 = parser.value().and_then(|value| value.parse()).map_err(|e| format!("{option}: {e}"))?;
    if value == 0 { Err(format!("{option} must be at least 1")) } else { Ok(value) }
}

/// Every target for a few seconds from its kept seeds, as part of `cargo xtask test`.
pub(crate) fn all(steps: &mut Steps<'_>) {
    if !steps.place.root.join("fuzz/Cargo.toml").exists() {
        steps.step("fuzz", |_| Outcome::Skipped("there is no fuzz/Cargo.toml".into()));
        return;
    }
    if let Some(lack) = lacks() {
        steps.step("fuzz", |_| Outcome::Skipped(lack));
        return;
    }
    let set = std::env::var(SECONDS).ok();
    let (targets, seconds) = match (targets(steps.place), gate_seconds(set.as_deref())) {
        (Ok(targets), Ok(seconds)) => (targets, seconds),
        (Err(why), _) | (_, Err(why)) => {
            steps.step("fuzz", |_| Outcome::Failed(why));
            return;
        }
    };
    // Before the build: all targets of a run have one seed, also where the build ends after midnight.
    let seed = seed_of(SystemTime::now());
    if build(steps) {
        fuzz_all(steps, &targets, &Work::Seeds { seconds, seed });
    }
}

/// The seconds for each target, from the value of [`SECONDS`].
fn gate_seconds(set: Option<&str>) -> Result<u32, String> {
    let Some(set) = set else { return Ok(GATE_S) };
    let wrong = || format!("{SECONDS} is `{set}`: it is the number of seconds for each fuzz target, at least 1");
    set.parse().ok().filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

/// The day as libFuzzer's seed: days since 1970. The gate tries other inputs each day, and all day the same ones.
fn seed_of(now: SystemTime) -> u32 {
    let days = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() / SECONDS_PER_DAY);
    // Zero would let libFuzzer choose one itself.
    u32::try_from(days).unwrap_or(u32::MAX).max(1)
}

/// The tools that this machine lacks to build libFuzzer, in one line.
fn lacks() -> Option<String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let there = Command::new(&compiler).arg("--version").output().is_ok_and(|out| out.status.success());
    (!there).then(|| format!("libFuzzer is C++ and there is no `{compiler}`; install g++, or name a compiler in CXX"))
}

/// The names of the targets: each is a file.
fn targets(place: &CargoWorkspace) -> Result<Vec<String>, String> {
    let folder = place.root.join("fuzz/src/targets");
    let files = files_of(&folder)?;
    let names = files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs"));
    let names: Vec<String> = names.filter_map(|file| Some(file.file_stem()?.to_string_lossy().into_owned())).collect();
    if names.is_empty() { Err(format!("{}: there is no target, NAME.rs", folder.display())) } else { Ok(names) }
}

/// Builds the one program of all targets, checked arithmetic and debug assertions on; true where that went well.
fn build(steps: &mut Steps<'_>) -> bool {
    let mut built = false;
    steps.step("fuzz: build", |steps| {
        let mut cargo = steps.place.cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
        let this = match std::env::current_exe() {
            Ok(this) => this,
            Err(e) => return Outcome::Failed(format!("this program cannot find its own path: {e}")),
        };
        // No flags for all crates: Parquet's and Arrow's take as long again with coverage. Random inputs are led only by
        // what our own code and the parsers of text (`PARSERS`) do with them.
        cargo.env("CARGO_TARGET_DIR", folder(steps.place)).env("RUSTC_WRAPPER", this).env(COMPILER, "1");
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

/// Becomes the compiler, where cargo runs this program in its place (`RUSTC_WRAPPER`) to build the targets, with coverage
/// for the project's own crates. Comes back with the reason where that cannot be, and with none where cargo does not.
pub(crate) fn compiler() -> Option<String> {
    std::env::var_os(COMPILER)?;
    let mut words = std::env::args_os().skip(1);
    let Some(rustc) = words.next() else { return Some(format!("{COMPILER} is set, and no compiler is named")) };
    let words: Vec<OsString> = words.collect();
    let mut command = Command::new(&rustc);
    if has_coverage(std::env::var("CARGO_PKG_NAME").ok().as_deref(), &words) {
        command.args(COVERAGE);
    }
    let error = command.args(words).exec();
    Some(format!("{}: {error}", rustc.display()))
}

/// Libraries that parse text from outside for us: SQL and `.proto` files.
const PARSERS: [&str; 2] = ["sqlparser", "protox-parse"];

/// Whether a package is compiled with coverage: those of this project and the parsers, but not their build scripts.
fn has_coverage(package: Option<&str>, words: &[OsString]) -> bool {
    let is_parsed = package.is_some_and(|name| name.starts_with("crossdock-") || PARSERS.contains(&name));
    is_parsed && !words.iter().any(|word| word == "build_script_build")
}

/// Where all that fuzzing makes goes: builds, corpora, crashes.
fn folder(place: &CargoWorkspace) -> PathBuf {
    place.target.join("fuzz")
}

/// The work of the targets.
enum Work {
    /// Look for inputs that crash the target, from the corpus that earlier runs left and from the kept seeds.
    Corpus { seconds: u32 },
    /// The same from nothing but the kept seeds, in the order that this seed of libFuzzer gives.
    Seeds { seconds: u32, seed: u32 },
    /// Try each of these inputs once.
    Files(Vec<PathBuf>),
}

/// Runs built targets, as many at a time as there are processors, and prints their lines in order. The time of a line is
/// what the run waited for this target after the one before.
fn fuzz_all(steps: &mut Steps<'_>, targets: &[String], work: &Work) {
    let (next, (sender, receiver)) = (AtomicUsize::new(0), mpsc::channel());
    let at_a_time = std::thread::available_parallelism().map_or(1, NonZero::get).min(targets.len());
    // The same steps with nothing counted: the threads that run targets print no lines.
    let quiet = Steps::new(steps.place, false);
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            let (sender, next, quiet) = (sender.clone(), &next, &quiet);
            scope.spawn(move || {
                while let Some((number, target)) = take(next, targets) {
                    let run = FuzzRun { steps: quiet, target, work };
                    // The receiver is there until every target has been reported.
                    let _ = sender.send((number, run.outcome()));
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        for (number, target) in targets.iter().enumerate() {
            steps.step(&format!("fuzz: {target}"), |_| {
                while !early.contains_key(&number) {
                    let Ok((other, outcome)) = receiver.recv() else { break };
                    early.insert(other, outcome);
                }
                early.remove(&number).unwrap_or_else(|| Outcome::Failed("the thread that ran it panicked".into()))
            });
        }
    });
}

/// The next target that no thread has taken.
fn take<'a>(next: &AtomicUsize, targets: &'a [String]) -> Option<(usize, &'a str)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    targets.get(number).map(|target| (number, target.as_str()))
}

/// One target at work.
struct FuzzRun<'a> {
    steps: &'a Steps<'a>,
    target: &'a str,
    work: &'a Work,
}

impl FuzzRun<'_> {
    /// First every kept seed, however short the time; then new inputs.
    fn outcome(&self) -> Outcome {
        let (seconds, seed) = match self.work {
            Work::Files(files) => return self.files(files).unwrap_or_else(|why| why),
            Work::Corpus { seconds } => (*seconds, None),
            Work::Seeds { seconds, seed } => (*seconds, Some(*seed)),
        };
        let seeds = match files_of(&self.seeds()) {
            Ok(seeds) => seeds,
            Err(why) => return Outcome::Failed(why),
        };
        if seeds.is_empty() && seed.is_some() {
            // Seconds from nothing reach nothing behind the first checks.
            return Outcome::Failed(format!(
                "there is no seed in fuzz/seeds/{}: keep some that reach deep",
                self.target
            ));
        }
        if !seeds.is_empty()
            && let Err(failed) = self.files(&seeds)
        {
            return failed;
        }
        self.search(seconds, seed, seeds.len()).unwrap_or_else(Outcome::Failed)
    }

    /// The folder of the kept seeds.
    fn seeds(&self) -> PathBuf {
        self.steps.place.root.join("fuzz/seeds").join(self.target)
    }

    /// Tries each of these inputs once.
    fn files(&self, files: &[PathBuf]) -> Result<Outcome, Outcome> {
        let mut command = self.command().map_err(Outcome::Failed)?;
        command.args(files);
        match self.steps.call(&format!("fuzz: {}: files", self.target), command) {
            Ok(call) if call.ok() => Ok(Outcome::Passed(format!("{} inputs", files.len()))),
            Ok(call) => Err(Outcome::Failed(self.crash(&call, input_running(&call.output()), None))),
            Err(why) => Err(Outcome::Failed(why)),
        }
    }

    /// Makes inputs and tries them.
    fn search(&self, seconds: u32, seed: Option<u32>, kept: usize) -> Result<Outcome, String> {
        let corpus = folder(self.steps.place).join(if seed.is_some() { "gate" } else { "corpus" }).join(self.target);
        if seed.is_some() {
            // A folder that is not there need not go; what cannot go is seen by the next step.
            let _ = std::fs::remove_dir_all(&corpus);
        }
        std::fs::create_dir_all(&corpus).map_err(|e| format!("{}: {e}", corpus.display()))?;
        let mut command = self.command()?;
        if let Some(seed) = seed {
            command.arg(format!("-seed={seed}"));
        }
        command.arg(format!("-max_total_time={seconds}")).arg(&corpus);
        if kept > 0 {
            command.arg(self.seeds());
        }
        let call = self.steps.call(&format!("fuzz: {}", self.target), command)?;
        let output = call.output();
        if !call.ok() {
            return Err(self.crash(&call, input_written(&output), seed));
        }
        let tried = inputs_tried(&output).unwrap_or_default();
        let seed = seed.map(|seed| format!(", --seed {seed}")).unwrap_or_default();
        Ok(Outcome::Passed(format!("{kept} seeds, {tried}{seed}")))
    }

    /// The target's program with the limits that always hold.
    fn command(&self) -> Result<Command, String> {
        let folder = folder(self.steps.place);
        let artifacts = folder.join("artifacts").join(self.target);
        std::fs::create_dir_all(&artifacts).map_err(|e| format!("{}: {e}", artifacts.display()))?;
        let mut command = Command::new(folder.join("release/crossdock-fuzz"));
        command.current_dir(&self.steps.place.root).env(TARGET, self.target);
        command.arg(format!("-timeout={INPUT_LIMIT_S}")).arg(format!("-rss_limit_mb={MEMORY_LIMIT_MIB}"));
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        Ok(command)
    }

    /// The facts that a person needs to repair a crash: what the target printed, the input, and the commands that repeat it.
    fn crash(&self, call: &Call, input: Option<&str>, seed: Option<u32>) -> String {
        let (place, target) = (self.steps.place, self.target);
        let mut report = call.report(place);
        if let Some(input) = input {
            let input = place.short(Path::new(input)).to_string();
            report += &format!("\nthe input: {input}\nto repeat it: cargo xtask fuzz {target} {input}");
            report += "\nremedy: make the code refuse such bytes, and add the input to the tests of its crate";
            if !input.starts_with("fuzz/seeds/") {
                report += &format!("\nto keep it: cp {input} fuzz/seeds/{target}/, under a name that says what it is");
            }
        }
        if let Some(seed) = seed {
            report += &format!("\nto repeat the whole run: cargo xtask fuzz {target} --seed {seed}");
        }
        report
    }
}

/// The files of a folder, in the order of their names; none if there is no such folder.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let at_folder = |e: std::io::Error| format!("{}: {e}", folder.display());
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(at_folder(e)),
    };
    let files: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut files = files.map_err(at_folder)?;
    files.sort();
    Ok(files)
}

/// The file that libFuzzer says it kept the crashing input in.
fn input_written(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path.trim())
}

/// Of a run over files the one that libFuzzer said it was about to try when it ended: `Running: FILE`.
fn input_running(output: &str) -> Option<&str> {
    output.lines().rev().find_map(|line| line.strip_prefix("Running: ")).map(str::trim)
}

/// How many inputs a run tried, from libFuzzer's last line: `Done N runs in S second(s)`.
fn inputs_tried(output: &str) -> Option<String> {
    let line = output.lines().rfind(|line| line.starts_with("Done "))?;
    Some(format!("{} inputs", line.split_whitespace().nth(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const OUTPUT: &str = "INFO: seed corpus\n==6174== ERROR: libFuzzer: deadly signal\n\
        artifact_prefix='a/bad/'; Test unit written to a/bad/crash-8e5ad\nBase64: Q0Q=\n";

    #[test]
    fn the_crashing_input_is_found_in_what_libfuzzer_prints() {
        assert_eq!(input_written(OUTPUT), Some("a/bad/crash-8e5ad"));
        assert_eq!(input_written("Done 5 runs in 1 second(s)\n"), None);
    }

    #[test]
    fn of_a_run_over_files_the_last_one_begun_is_the_one_that_crashed() {
        let output =
            "Running: seeds/a\nExecuted seeds/a in 1 ms\nRunning: seeds/b c\n==1== ERROR: libFuzzer: timeout\n";
        assert_eq!(input_running(output), Some("seeds/b c"));
        assert_eq!(input_running("Done 5 runs in 1 second(s)\n"), None);
    }

    #[test]
    fn the_seed_moves_on_with_the_date_and_is_never_zero() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(seed_of(at(0)), 1);
        assert_eq!((seed_of(at(86_400 * 20_780 - 1)), seed_of(at(86_400 * 20_780))), (20_779, 20_780));
        assert_eq!(seed_of(at(86_400 * 20_780)), seed_of(at(86_400 * 20_781 - 1)));
    }

    #[test]
    fn the_seconds_of_the_gate_are_the_variable_s_or_the_default() {
        assert_eq!(gate_seconds(None), Ok(GATE_S));
        assert_eq!(gate_seconds(Some("30")), Ok(30));
        for wrong in ["0", "", "-1", "ten"] {
            assert!(gate_seconds(Some(wrong)).unwrap_err().contains(SECONDS), "{wrong}");
        }
    }

    #[test]
    fn the_words_of_the_command_line_are_read_or_refused() {
        let parse = |words: &[&str]| Request::parse(words.iter().map(OsString::from).collect());
        let request = parse(&["sql", "a", "b", "--seconds", "7"]).unwrap();
        assert_eq!((request.target.as_deref(), request.seconds, request.seed), (Some("sql"), Some(7), None));
        assert_eq!(request.files, [PathBuf::from("a"), PathBuf::from("b")]);
        let request = parse(&["--seed", "20780"]).unwrap();
        assert_eq!((request.target, request.seconds, request.seed), (None, None, Some(20_780)));
        let request = parse(&["queries", "--count", "9", "--kind", "joins", "--seed", "3"]).unwrap();
        assert_eq!((request.count, request.kind.as_deref(), request.seed), (Some(9), Some("joins"), Some(3)));
        for (words, says) in [
            (&["sql", "--count", "1"][..], "of the target `queries`"),
            (&["queries", "--seconds", "1"], "--count N"),
            (&["queries", "a", "--kind", "joins"], "FILE names them"),
            (&["--seed", "0"], "--seed must be at least 1"),
            (&["--seconds", "x"], "--seconds: "),
            (&["sql", "a", "--seed", "1"], "give one of the two"),
            (&["--fast"], "--fast"),
        ] {
            let Err(usage) = parse(words) else { panic!("{words:?} was taken") };
            assert!(usage.contains(says), "{usage}");
        }
    }

    #[test]
    fn the_project_s_own_crates_have_coverage_and_no_others() {
        let words = |name: &str| ["--crate-name", name, "src/lib.rs"].map(OsString::from);
        assert!(has_coverage(Some("crossdock-format"), &words("crossdock_format")));
        assert!(!has_coverage(Some("crossdock-format"), &words("build_script_build")));
        assert!(!has_coverage(Some("parquet"), &words("parquet")));
        assert!(!has_coverage(None, &[OsString::from("-vV")]));
    }

    #[test]
    fn every_target_is_taken_once() {
        let targets = ["a", "b"].map(str::to_owned);
        let next = AtomicUsize::new(0);
        let taken: Vec<_> = std::iter::from_fn(|| take(&next, &targets)).collect();
        assert_eq!(taken, [(0, "a"), (1, "b")]);
        assert_eq!(take(&next, &targets), None);
    }

    #[test]
    fn files_come_in_the_order_of_their_names() {
        let folder = std::env::temp_dir().join(format!("xtask-{}-seeds", std::process::id()));
        assert_eq!(files_of(&folder), Ok(Vec::new()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["b", "a"] {
            std::fs::write(folder.join(name), name).unwrap();
        }
        assert_eq!(files_of(&folder), Ok(vec![folder.join("a"), folder.join("b")]));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_good_run_reports_how_many_inputs_it_tried() {
        assert_eq!(inputs_tried("#5 DONE\nDone 9512949 runs in 5 second(s)\n").as_deref(), Some("9512949 inputs"));
        assert_eq!(inputs_tried(OUTPUT), None);
    }
}
