//! Runs one step after another: a line for each with its time, what a failed one printed, a summary at the end.

use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Ended;
use crate::place::CargoWorkspace;

/// The most that a failed step shows of its output, from the end, in bytes.
const SHOWN_BYTES: u64 = 64 * 1024;

/// How long one step may take where nobody watches (`CI=true`): several times the slowest step's time on two cores
/// from nothing, so that a hang is reported by name and the other steps still run.
const STEP_LIMIT: Duration = Duration::from_secs(25 * 60);

/// How a step ended.
pub(crate) enum Outcome {
    /// It passed; a note that belongs on its line, or nothing.
    Passed(String),
    /// It failed; what a person needs to remedy it.
    Failed(String),
    /// It could not run here; why, in one line.
    Skipped(String),
}

/// The steps that ran so far.
pub(crate) struct Steps<'a> {
    /// The workspace that the steps work on.
    pub(crate) place: &'a CargoWorkspace,
    verbose: bool,
    /// Whether the name of the step that runs is shown on a terminal.
    live: bool,
    /// Nobody watches (`CI=true`): a step that cannot run fails, and one that hangs is ended.
    unattended: bool,
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl<'a> Steps<'a> {
    /// No step ran yet. `verbose` shows each step's output as it comes.
    pub(crate) fn new(place: &'a CargoWorkspace, verbose: bool) -> Self {
        let unattended = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        let live = !verbose && std::io::stderr().is_terminal();
        Steps { place, verbose, live, unattended, passed: 0, failed: Vec::new(), skipped: Vec::new() }
    }

    /// Runs two series of steps side by side, which share no build directory: where one waits for a single compiler, the
    /// other uses the processors that are left. Each line is printed when its step has ended.
    pub(crate) fn side_by_side(&mut self, one: impl FnOnce(&mut Self) + Send, other: impl FnOnce(&mut Self) + Send) {
        let mut lanes = [(); 2].map(|()| Steps { live: false, ..Steps::new(self.place, self.verbose) });
        let [left, right] = &mut lanes;
        // A series that panics ends this program, after the other.
        std::thread::scope(|scope| {
            scope.spawn(|| one(left));
            other(right);
        });
        for lane in lanes {
            self.passed += lane.passed;
            self.failed.extend(lane.failed);
            self.skipped.extend(lane.skipped);
        }
    }

    /// Runs one step and prints its line.
    pub(crate) fn step(&mut self, name: &str, body: impl FnOnce(&Self) -> Outcome) {
        if self.verbose {
            eprintln!("--- {name}");
        } else if self.live {
            eprint!("\r\x1b[K      … {name}");
        }
        let started = Instant::now();
        let outcome = body(self);
        let took_s = started.elapsed().as_secs_f64();
        if self.live {
            eprint!("\r\x1b[K");
        }
        match if self.unattended { must_run(outcome) } else { outcome } {
            Outcome::Passed(note) => {
                println!("{}", format!("ok      {name:<44} {took_s:>7.1} s  {note}").trim_end());
                self.passed += 1;
            }
            Outcome::Failed(why) => {
                println!("FAILED  {name:<44} {took_s:>7.1} s");
                for line in why.trim_end().lines() {
                    println!("        {line}");
                }
                self.failed.push(name.into());
            }
            Outcome::Skipped(why) => {
                println!("skipped {name:<44} {took_s:>7.1} s  {why}");
                self.skipped.push(format!("{name}: {why}"));
            }
        }
    }

    /// A step that is one command: it passes where the command's exit status is 0.
    pub(crate) fn command(&mut self, name: &str, command: Command, remedy: &str) {
        self.step(name, |steps| match steps.call(name, command) {
            Ok(call) if call.ok() => Outcome::Passed(String::new()),
            Ok(call) => Outcome::Failed(format!("{}\nremedy: {remedy}", call.report(steps.place))),
            Err(why) => Outcome::Failed(why),
        });
    }

    /// Runs a command to its end with its output in a log, without input. Fails only where it cannot be started.
    pub(crate) fn call(&self, name: &str, command: Command) -> Result<Call, String> {
        let log = self.log_file(name);
        let limit = self.unattended.then_some(STEP_LIMIT);
        run_logged(command, log, self.verbose, limit)
    }

    /// Runs a command that must end well, or reports in one line the last that it said and what would correct it.
    pub(crate) fn call_or_say(&self, name: &str, command: Command, remedy: &str) -> Result<(), String> {
        let call = self.call(name, command).map_err(|why| format!("{why} ({remedy})"))?;
        if call.ok() {
            return Ok(());
        }
        let output = call.output();
        let last = output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
        Err(format!("`{name}` failed: {last} ({remedy})"))
    }

    /// Where a step's output is kept: `target/xtask/NAME.log`.
    pub(crate) fn log_file(&self, name: &str) -> PathBuf {
        let folder = self.place.target.join("xtask");
        // Where the folder cannot be made, creating the log says so.
        let _ = std::fs::create_dir_all(&folder);
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }
        };
        folder.join(format!("{}.log", name.chars().map(plain).collect::<String>()))
    }

    /// Prints what was skipped, what failed and, alone on the last line, how many steps passed and failed.
    pub(crate) fn summary(self) -> Ended {
        println!();
        for line in &self.skipped {
            println!("skipped: {line}");
        }
        for name in &self.failed {
            println!("failed: {name}");
        }
        println!("{}", tally(self.passed, self.failed.len(), self.skipped.len()));
        if self.failed.is_empty() { Ended::Well } else { Ended::Failed }
    }
}

/// Where nobody watches, a step that was skipped would not be missed.
fn must_run(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Skipped(why) => Outcome::Failed(format!("it cannot run here, and CI=true skips nothing: {why}")),
        outcome => outcome,
    }
}

/// The last line: `N passed, N failed`, and how many were skipped where any was.
fn tally(passed: usize, failed: usize, skipped: usize) -> String {
    let skipped = if skipped == 0 { String::new() } else { format!(", {skipped} skipped") };
    format!("{passed} passed, {failed} failed{skipped}")
}

/// A command that ran to its end, or past its limit.
pub(crate) struct Call {
    status: ExitStatus,
    late: bool,
    shown: String,
    log: PathBuf,
}

impl Call {
    /// It ended by itself, with status 0.
    pub(crate) fn ok(&self) -> bool {
        self.status.success() && !self.late
    }

    /// The whole output, as text.
    pub(crate) fn output(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The command, how it ended, and the end of what it printed.
    pub(crate) fn report(&self, place: &CargoWorkspace) -> String {
        let mut report = without_progress(&tail(&self.log, SHOWN_BYTES));
        if !report.is_empty() && !report.ends_with('\n') {
            report.push('\n');
        }
        let ended = if self.late {
            format!("it was stopped after {} s: it hangs, or this machine is very slow", STEP_LIMIT.as_secs())
        } else {
            self.status.to_string()
        };
        report + &format!("{}: {ended}; all of its output: {}", self.shown, place.short(&self.log))
    }
}

/// Runs a command with both outputs in `log`, and on standard error as they come where `live`. Its whole
/// process group is ended after the limit, where there is one.
fn run_logged(mut command: Command, log: PathBuf, live: bool, limit: Option<Duration>) -> Result<Call, String> {
    let shown = in_words(&command);
    let at_log = |e: std::io::Error| format!("{}: {e}", log.display());
    let file = File::create(&log).map_err(at_log)?;
    let mut new_lines = File::open(&log).map_err(at_log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone().map_err(at_log)?).stderr(file);
    if limit.is_some() {
        // A group of its own can be ended whole; without a limit, Ctrl-C must reach the command.
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(|e| format!("{shown}: did not start: {e}"))?;
    let started = Instant::now();
    let mut late = false;
    let status = loop {
        let ended = child.try_wait().map_err(|e| format!("{shown}: {e}"))?;
        if live {
            std::io::copy(&mut new_lines, &mut std::io::stderr()).map_err(at_log)?;
        }
        match ended {
            Some(status) => break status,
            None if !late && limit.is_some_and(|limit| started.elapsed() >= limit) => {
                late = true;
                let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    Ok(Call { status, late, shown, log })
}

/// The end of a file, at most `bytes` bytes, from the start of a line.
fn tail(path: &Path, bytes: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let from = file.metadata()?.len().saturating_sub(bytes);
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(match text.split_once('\n') {
            Some((_, whole_lines)) if from > 0 => {
                format!("[… the start is in the log]\n{whole_lines}")
            }
            _ => text,
        })
    };
    read().unwrap_or_else(|e| format!("{}: {e}", path.display()))
}

/// Cargo's output without the lines that only say that it is getting on.
fn without_progress(output: &str) -> String {
    const PROGRESS: [&str; 7] =
        ["Compiling", "Checking", "Documenting", "Downloading", "Downloaded", "Updating", "Locking"];
    let is_progress = |line: &str| {
        let indented = line.starts_with("   ");
        indented
            && PROGRESS
                .iter()
                .any(|word| line.trim_start().strip_prefix(word).is_some_and(|rest| rest.starts_with(' ')))
    };
    output.split_inclusive('\n').filter(|line| !is_progress(line)).collect()
}

/// A command as one would type it.
pub(crate) fn in_words(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words: Vec<String> = Vec::new();
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", key.display(), quoted(&value.to_string_lossy())));
        }
    }
    // Cargo by its name; a program of ours by its path, so that the line can be pasted.
    let program = if name == "cargo" { "cargo".into() } else { command.get_program().to_string_lossy() };
    words.push(quoted(&program));
    words.extend(command.get_args().map(|arg| quoted(&arg.to_string_lossy())));
    words.join(" ")
}

/// A word as a shell needs it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_last_line_names_the_skipped_only_where_there_are_any() {
        assert_eq!(tally(3, 1, 0), "3 passed, 1 failed");
        assert_eq!(tally(3, 0, 2), "3 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn two_series_side_by_side_count_as_one() {
        let place = CargoWorkspace::find().unwrap();
        let mut steps = Steps::new(&place, false);
        // Each waits for the other: they do run at the same time.
        let both = std::sync::Barrier::new(2);
        let met = |_: &Steps<'_>| {
            both.wait();
            Outcome::Passed(String::new())
        };
        let fails = |steps: &mut Steps<'_>| {
            steps.step("meets", met);
            steps.step("fails", |_| Outcome::Failed("intended".into()));
        };
        steps.side_by_side(fails, |steps| steps.step("meets too", met));
        assert_eq!((steps.passed, steps.failed), (2, vec!["fails".to_owned()]));
    }

    #[test]
    fn where_nobody_watches_nothing_is_skipped() {
        assert!(
            matches!(must_run(Outcome::Skipped("no rustup".into())), Outcome::Failed(why) if why.contains("no rustup"))
        );
        assert!(matches!(must_run(Outcome::Passed(String::new())), Outcome::Passed(_)));
    }

    #[test]
    fn a_command_reads_as_one_would_type_it() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--", "a b"]).env("RUSTFLAGS", "--cfg loom");
        assert_eq!(in_words(&command), "RUSTFLAGS='--cfg loom' cargo test -- 'a b'");
    }

    #[test]
    fn progress_is_left_out_of_a_report_and_the_rest_is_not() {
        let output =
            "   Compiling libc v0.2.191\n    Checking a v0.1.0 (/a)\nerror: unused\n     Running tests\nChecking\n";
        assert_eq!(without_progress(output), "error: unused\n     Running tests\nChecking\n");
    }

    #[test]
    fn both_outputs_and_the_status_of_a_command_are_kept() {
        let log = scratch("both").join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let call = run_logged(command, log.clone(), false, None).unwrap();
        assert!(!call.ok());
        assert_eq!(call.status.code(), Some(3));
        assert_eq!(call.output(), "out\nerr\n");
        std::fs::remove_dir_all(log.parent().unwrap()).unwrap();
    }

    #[test]
    fn past_its_limit_a_command_is_ended_with_all_that_it_started() {
        let log = scratch("late").join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & sleep 600; echo survived"]);
        let call = run_logged(command, log.clone(), false, Some(Duration::ZERO)).unwrap();
        assert!(!call.ok() && call.late);
        assert_eq!(call.output(), "");
        std::fs::remove_dir_all(log.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_long_log_is_shown_from_the_start_of_a_line() {
        let path = scratch("tail").join("log");
        std::fs::write(&path, "first\nsecond\nthird\n").unwrap();
        assert_eq!(tail(&path, 1000), "first\nsecond\nthird\n");
        assert_eq!(tail(&path, 10), "[… the start is in the log]\nthird\n");
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
