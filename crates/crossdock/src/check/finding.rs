//! What is found of one thing: as it is, as it should be, and the command that makes it so.

use std::fmt::{self, Display};

use serde::Serialize;

/// How it stands with one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Nothing to set.
    Ok,
    /// The system does not say.
    Unknown,
    /// The daemon works, and would work better.
    Advice,
    /// The daemon does not start, or a part of it does not work.
    Problem,
}

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Ok => "ok",
            Verdict::Unknown => "unknown",
            Verdict::Advice => "advice",
            Verdict::Problem => "problem",
        })
    }
}

/// What is found of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What is looked at.
    pub(crate) item: &'static str,
    /// As it is.
    pub(crate) found: String,
    /// As the configuration wants it.
    pub(crate) wanted: String,
    /// How it stands.
    pub(crate) verdict: Verdict,
    /// Why it matters; empty where it is as wanted.
    pub(crate) why: String,
    /// The command that mends it, until the next start of the machine if it is a setting of the kernel.
    pub(crate) command: Option<String>,
    /// The file that makes it last, and the line in it.
    pub(crate) lasting: Option<String>,
}

impl Finding {
    /// Something that is as it should be.
    pub(crate) fn ok(item: &'static str, found: impl Display, wanted: impl Display) -> Finding {
        Finding {
            item,
            found: found.to_string(),
            wanted: wanted.to_string(),
            verdict: Verdict::Ok,
            why: String::new(),
            command: None,
            lasting: None,
        }
    }

    /// Something that the system does not say.
    pub(crate) fn unknown(item: &'static str, wanted: impl Display, why: impl Display) -> Finding {
        Finding { why: why.to_string(), verdict: Verdict::Unknown, ..Finding::ok(item, "unknown", wanted) }
    }

    /// It would be better otherwise.
    pub(crate) fn advice(self, why: impl Display) -> Finding {
        Finding { verdict: Verdict::Advice, why: why.to_string(), ..self }
    }

    /// It prevents work.
    pub(crate) fn problem(self, why: impl Display) -> Finding {
        Finding { verdict: Verdict::Problem, why: why.to_string(), ..self }
    }

    /// The command that mends it.
    pub(crate) fn command(self, command: impl Display) -> Finding {
        Finding { command: Some(command.to_string()), ..self }
    }

    /// The file and its line that make it last.
    pub(crate) fn lasting(self, file: &str, line: impl Display) -> Finding {
        Finding { lasting: Some(format!("{file}: {line}")), ..self }
    }
}

/// A number of bytes as people read it; whole units where they fit.
pub(crate) fn size(bytes: u64) -> String {
    crate::quantity::bytes(bytes).replace(".00", "")
}
