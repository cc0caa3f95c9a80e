//! `crossdock tour`: the main commands in two minutes, each explained and then run, on the bundled flights.
//!
//! The daemon runs in this process, on a free port of 127.0.0.1 and with a control socket of its own; the commands are this
//! program again. All that the tour makes is in a folder that goes with it.

mod steps;

use std::fs::{DirBuilder, File};
use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crossdock_runtime::{ContextConfig, ContextHandle, MorphConfig, PassedSockets};

use self::steps::{FILE, Runs, STEPS, TourStep, words};
use crate::cli::Tour as Arguments;
use crate::config::Config;
use crate::demo::data;
use crate::failure::{Failure, Outcome};
use crate::http::server::Server;
use crate::http::socket::SocketFile;
use crate::input::wait_readable;
use crate::out;
use crate::signals::Interrupt;
use crate::table::wrapped;

/// The pause between two looks at a command that runs.
const LOOK: Duration = Duration::from_millis(20);
/// The messages of the publisher, in the tour's folder.
const PUBLISHER_STDERR: &str = "publish.stderr";
/// The screen of commands whose output is no terminal.
const SCREEN: [(&str, &str); 2] = [("COLUMNS", "80"), ("LINES", "24")];

/// Runs the tour.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let interrupt = Interrupt::install()?;
    interrupt.arm();
    let mut tour = Tour::start(interrupt, !arguments.no_wait && io::stdin().is_terminal())?;
    let waits = if tour.waits { ", and Enter leads to the next" } else { "" };
    out::print(wrapped(
        &format!("Crossdock is a message broker that runs SQL on messages in transit. {} steps{waits}.", STEPS.len()),
        0,
    ))?;
    for (number, step) in STEPS.iter().enumerate() {
        tour.step(number + 1, step)?;
    }
    out::print(
        "\nThat was the tour; its daemon ends now. To go on:\n  \
         crossdock serve       runs a daemon of your own\n  \
         crossdock demo        lists demonstrations that check their results\n  \
         crossdock --help      lists all commands, each with examples\n",
    )
}

/// The tour's daemon and what belongs to it.
struct Tour {
    interrupt: Interrupt,
    /// Whether Enter leads to the next step.
    waits: bool,
    context: ContextHandle,
    server: Option<Server>,
    socket: Option<SocketFile>,
    publisher: Option<Child>,
    /// The step that starts the publisher, again if it has come to its end.
    publishes: Option<&'static TourStep>,
    folder: Folder,
}

/// A folder that goes when this does.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is in the folder for temporary files, where it is removed some day.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn make() -> Outcome<Folder> {
        let path = std::env::temp_dir().join(format!("crossdock-tour-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| {
            Failure::failed(format!("cannot make the folder {}: {error}", path.display()))
                .hint("name a folder for temporary files in the variable TMPDIR")
        })?;
        Ok(Folder(path))
    }
}

impl Drop for Tour {
    fn drop(&mut self) {
        self.end_publisher();
        self.server = None;
        // One that is stuck ends with the process.
        let _ = self.context.stop();
        self.socket = None;
    }
}

impl Tour {
    /// Starts the daemon.
    fn start(interrupt: Interrupt, waits: bool) -> Outcome<Tour> {
        let folder = Folder::make()?;
        let file = folder.0.join(FILE);
        let flights = data::flights_csv()?;
        std::fs::write(&file, flights)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))?;
        let failed = |error: &dyn std::error::Error| Failure::failed(error.to_string());
        // The socket before the context's threads: it sets the umask for a moment.
        let (unix, socket) = SocketFile::bind(&folder.0.join("control.sock"))?;
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        // The deployed handlers are kept until the folder goes: without that, each answer would say that it is not.
        let morph = MorphConfig { state_dir: Some(folder.0.join("state")), ..MorphConfig::default() };
        let config = ContextConfig { listen, morph, ..ContextConfig::default() };
        let context = ContextHandle::prepare(config, PassedSockets::default()).map_err(|error| failed(&error))?;
        let tokens = Config::default().tokens(&folder.0)?;
        let mut tour = Tour {
            interrupt,
            waits,
            context,
            server: None,
            socket: Some(socket),
            publisher: None,
            publishes: None,
            folder,
        };
        tour.server = Some(Server::start(tour.context.clone(), unix, None, Arc::new(tokens))?);
        tour.context.open().map_err(|error| failed(&error))?;
        Ok(tour)
    }

    /// Explains a step, and runs its command.
    fn step(&mut self, number: usize, step: &'static TourStep) -> Outcome {
        self.check_signal()?;
        let bold = console::style(format!("$ {}", step.command)).bold();
        out::print(format!("\n{}\n{bold}\n", wrapped(&format!("({number}/{}) {}", STEPS.len(), step.text), 0)))?;
        self.check_publisher()?;
        // One that has sent all flights begins again, since the steps may take any time.
        if self.publisher.as_mut().is_some_and(|publisher| !matches!(publisher.try_wait(), Ok(None))) {
            self.publish()?;
        }
        match step.runs {
            Runs::Daemon => out::print(format!("serving on {}\n", self.context.local_addr()))?,
            Runs::Behind => {
                self.publishes = Some(step);
                self.publish()?;
            }
            Runs::ToItsEnd => self.run(step)?,
        }
        self.wait_for_enter()
    }

    /// The command of a step, for the tour's daemon.
    fn command(&self, step: &TourStep) -> Outcome<Command> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::failed(format!("cannot find the program's own file: {error}")))?;
        let mut command = Command::new(program);
        command.args(words(step.command).into_iter().skip(1)).current_dir(&self.folder.0).stdin(Stdio::null());
        for name in ["CROSSDOCK_CONFIG", "CROSSDOCK_HTTP", "CROSSDOCK_TOKEN_FILE", "CROSSDOCK_TRANSPORT"] {
            command.env_remove(name);
        }
        command.env("CROSSDOCK_ADDRESS", self.context.local_addr().to_string());
        command.env("CROSSDOCK_SOCKET", self.folder.0.join("control.sock"));
        if !io::stdout().is_terminal() {
            command.envs(SCREEN.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()));
        }
        Ok(command)
    }

    /// Starts the publisher behind the other commands.
    fn publish(&mut self) -> Outcome {
        self.end_publisher();
        let Some(step) = self.publishes else { return Ok(()) };
        let mut command = self.command(step)?;
        let stderr = File::create(self.folder.0.join(PUBLISHER_STDERR)).map_err(|error| not_run(step, &error))?;
        let started = command.stdout(Stdio::null()).stderr(stderr).spawn();
        self.publisher = Some(started.map_err(|error| not_run(step, &error))?);
        Ok(())
    }

    /// Fails if the publisher has: without its records, the commands that follow show nothing.
    fn check_publisher(&mut self) -> Outcome {
        let (Some(publisher), Some(step)) = (&mut self.publisher, self.publishes) else { return Ok(()) };
        let Ok(Some(status)) = publisher.try_wait() else { return Ok(()) };
        if status.success() {
            return Ok(());
        }
        // A signal may have been for both.
        self.check_signal()?;
        let said = std::fs::read_to_string(self.folder.0.join(PUBLISHER_STDERR)).unwrap_or_default();
        Err(Failure::failed(format!("`{}` ended with {status}:\n{}", step.command, said.trim_end())))
    }

    fn end_publisher(&mut self) {
        if let Some(mut publisher) = self.publisher.take() {
            // It may have ended by itself.
            let _ = publisher.kill();
            let _ = publisher.wait();
        }
    }

    /// Runs a command to its end.
    fn run(&mut self, step: &TourStep) -> Outcome {
        let mut child = self.command(step)?.spawn().map_err(|error| not_run(step, &error))?;
        let status = loop {
            match child.try_wait().map_err(|error| not_run(step, &error))? {
                Some(status) => break status,
                None if self.interrupt.caught().is_some() => {
                    // The signal may have been for this process alone.
                    let _ = child.kill();
                    let _ = child.wait();
                }
                None => {
                    if let Err(failure) = self.check_publisher() {
                        let _ = child.kill();
                        let _ = child.wait();
                        return Err(failure);
                    }
                    self.interrupt.sleep(LOOK);
                }
            }
        };
        self.check_signal()?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::failed(format!("`{}` ended with {status}", step.command)))
    }

    fn check_signal(&self) -> Outcome {
        self.interrupt.caught().map_or(Ok(()), |signal| Err(Failure::Interrupted(signal)))
    }

    /// Waits for the user, if there is one.
    fn wait_for_enter(&mut self) -> Outcome {
        if !self.waits {
            return Ok(());
        }
        let dim = console::style("[Enter: next, Ctrl-C: end]").dim();
        out::print(format!("\n{dim} "))?;
        let failed = |error: io::Error| Failure::failed(format!("cannot read the terminal: {error}"));
        let stdin = io::stdin();
        wait_readable(std::os::fd::AsFd::as_fd(&stdin), self.interrupt.fd()).map_err(failed)?;
        self.check_signal()?;
        // A terminal hands over a line at a time.
        self.waits = rustix::io::read(&stdin, &mut [0; 1024]).map_err(|error| failed(error.into()))? > 0;
        Ok(())
    }
}

/// A command that cannot be run.
fn not_run(step: &TourStep, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot run `{}`: {error}", step.command))
}
