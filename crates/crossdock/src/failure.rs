//! How a command ends when it does not simply succeed: what is said, and the exit status.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use crate::out::say;

/// The outcome of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a command did not come to its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was asked for something that cannot be: a bad option, query, schema or configuration. Exit status 2.
    Usage(Complaint),
    /// It was asked for something sensible, which went wrong. Exit status 1.
    Failed(Complaint),
    /// A signal came before it was done; it has said how far it got. Exit status 128 + the signal, as shells count.
    Interrupted(i32),
    /// Whoever read its output has enough (`| head`). Nothing is said; exit status 0.
    OutputClosed,
}

/// The fault, its place, and its remedy.
#[derive(Debug)]
pub(crate) struct Complaint {
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// Exit status 2: the command line or what it names must change.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure::Usage(Complaint::new(message))
    }

    /// Exit status 1.
    pub(crate) fn failed(message: impl Display) -> Failure {
        Failure::Failed(Complaint::new(message))
    }

    /// Adds what would correct it.
    pub(crate) fn hint(mut self, hint: impl Display) -> Failure {
        if let Failure::Usage(complaint) | Failure::Failed(complaint) = &mut self {
            complaint.hint = Some(hint.to_string());
        }
        self
    }

    /// A failed write to standard output.
    #[allow(clippy::needless_pass_by_value, reason = "used as `map_err(Failure::output)`")]
    pub(crate) fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::failed(format!("cannot write to standard output: {error}")),
        }
    }

    /// The fault, in a sentence.
    pub(crate) fn message(&self) -> &str {
        match self {
            Failure::Usage(complaint) | Failure::Failed(complaint) => &complaint.message,
            Failure::Interrupted(_) | Failure::OutputClosed => "",
        }
    }

    /// Says it on standard error, and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Failure::Usage(complaint) => {
                complaint.say();
                ExitCode::from(2)
            }
            Failure::Failed(complaint) => {
                complaint.say();
                ExitCode::from(1)
            }
            Failure::Interrupted(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
            Failure::OutputClosed => ExitCode::SUCCESS,
        }
    }

    /// The text, on one or more lines.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Usage(Complaint { message, hint }) | Failure::Failed(Complaint { message, hint }) => {
                hint.iter().fold(message.clone(), |text, hint| format!("{text}\nhint: {hint}"))
            }
            Failure::Interrupted(_) | Failure::OutputClosed => String::new(),
        }
    }
}

impl Complaint {
    fn new(message: impl Display) -> Complaint {
        Complaint { message: message.to_string(), hint: None }
    }

    fn say(&self) {
        let word = |text| console::style(text).for_stderr().bold();
        say(format_args!("{} {}", word("error:").red(), self.message));
        if let Some(hint) = &self.hint {
            say(format_args!("{} {hint}", word("hint:")));
        }
    }
}
