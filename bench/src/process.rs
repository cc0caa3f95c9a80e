//! Child processes that report what they did in lines of JSON, and end with their parent.

use crate::cpu::Error;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The line that lets a role go on.
const GO: &str = "go";
/// The line that has a role connect anew.
const AGAIN: &str = "again";

/// A child process.
pub(crate) struct Process {
    child: Child,
    name: String,
    stdin: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a role of this same program.
    pub(crate) fn role(args: &[String]) -> Result<Process, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("role").args(args);
        Process::start(command, &args.join(" "))
    }

    /// Starts a program of Python that is given as text.
    pub(crate) fn python(python: &Path, program: &str) -> Result<Process, Error> {
        let mut command = Command::new(python);
        command.args(["-c", program]);
        Process::start(command, "python")
    }

    /// Starts the product.
    pub(crate) fn crossdock(args: &[String]) -> Result<Process, Error> {
        let mut command = Command::new(crossdock_bin()?);
        command.args(args);
        Process::start(command, &args.join(" "))
    }

    /// Starts the daemon; with the line of its log that says that it serves.
    pub(crate) fn daemon(args: &[String]) -> Result<(Process, String), Error> {
        let mut command = Command::new(crossdock_bin()?);
        command.args(args).env("NO_COLOR", "1").stderr(Stdio::piped());
        let mut process = Process::start(command, &args.join(" "))?;
        let mut log = BufReader::new(process.child.stderr.take().ok_or("no standard error")?);
        let mut said = String::new();
        loop {
            let mut line = String::new();
            if log.read_line(&mut line)? == 0 {
                return Err(format!("the daemon ended at once: {said}").into());
            }
            if line.contains("serving") {
                // Its later output goes where the benchmark's own words go.
                std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::stderr()));
                return Ok((process, line));
            }
            said.push_str(&line);
        }
    }

    fn start(mut command: Command, name: &str) -> Result<Process, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("no standard output")?;
        Ok(Process { child, name: name.to_owned(), stdin, lines: BufReader::new(stdout) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that the process prints, as JSON.
    pub(crate) fn next_report(&mut self) -> Result<Value, Error> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err(format!("`{}` ended before it said what was expected", self.name).into());
        }
        serde_json::from_str(&line).map_err(|e| format!("`{}` said {line:?}: {e}", self.name).into())
    }

    /// All that the process prints until its end, each line as JSON.
    pub(crate) fn reports(mut self) -> Result<Vec<Value>, Error> {
        let mut reports = Vec::new();
        let mut line = String::new();
        while self.lines.read_line(&mut line)? > 0 {
            reports.push(serde_json::from_str(&line).map_err(|e| format!("`{}` said {line:?}: {e}", self.name))?);
            line.clear();
        }
        self.end()?;
        Ok(reports)
    }

    /// Lets a role go on that waits for a line.
    pub(crate) fn go(&mut self) -> Result<(), Error> {
        self.write_line(GO)
    }

    /// Has a role connect anew that is in [`connect_placed`].
    pub(crate) fn again(&mut self) -> Result<(), Error> {
        self.write_line(AGAIN)
    }

    /// Gives it a line of standard input.
    pub(crate) fn write_line(&mut self, line: &str) -> Result<(), Error> {
        if let Some(stdin) = &mut self.stdin {
            stdin.write_all(format!("{line}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.stdin = None;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", self.name).into()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already ended: then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reports something to the benchmark, as one of its roles.
#[expect(clippy::print_stdout, reason = "standard output is how roles speak with the benchmark")]
pub(crate) fn say(what: &Value) {
    println!("{what}");
}

/// Waits, as a role, for the benchmark's word.
pub(crate) fn wait_for_go() -> Result<(), Error> {
    next_line().map(drop)
}

/// Connects, as a role, and again as long as the benchmark wants the session at another I/O context of the daemon.
pub(crate) fn connect_placed<T>(connect: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        let session = connect()?;
        say(&json!({"connected": true}));
        if next_line()?.trim_end() == GO {
            return Ok(session);
        }
    }
}

/// The next line of a role's standard input.
fn next_line() -> Result<String, Error> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line)? {
        0 => Err("the benchmark has gone".into()),
        _ => Ok(line),
    }
}

/// Ends this role with the benchmark, however that ends: a role that polls would otherwise poll indefinitely.
pub(crate) fn end_with_parent() -> Result<(), Error> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

/// The product's binary: `cargo xtask bench` builds it and says where.
fn crossdock_bin() -> Result<PathBuf, Error> {
    match std::env::var_os("CROSSDOCK_BIN") {
        Some(path) => Ok(path.into()),
        None => Ok(std::env::current_exe()?.with_file_name("crossdock")),
    }
}
