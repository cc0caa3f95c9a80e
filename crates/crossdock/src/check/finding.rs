//! One finding: the value found, the value wanted, the verdict, and the command that sets it.

use std::fmt::{self, Display};

use serde::Serialize;

/// The verdict on one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// The value is as wanted.
    Ok,
    /// The system gives no value.
    Unknown,
    /// The daemon works; the change would make it faster or more reliable.
    Advice,
    /// The daemon, or a part of it, does not work.
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

/// The finding on one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The item.
    pub(crate) item: &'static str,
    /// The value found.
    pub(crate) found: String,
    /// The value that the configuration wants.
    pub(crate) wanted: String,
    /// The verdict.
    pub(crate) verdict: Verdict,
    /// The effect of the difference; empty for `ok`.
    pub(crate) why: String,
    /// The command that sets the wanted value; a kernel setting lasts until the next boot.
    pub(crate) command: Option<String>,
    /// The file that keeps it across boots, and the line in it, as `FILE: LINE`.
    pub(crate) lasting: Option<String>,
}

impl Finding {
    /// An item with the wanted value.
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

    /// An item without a value.
    pub(crate) fn unknown(item: &'static str, wanted: impl Display, why: impl Display) -> Finding {
        Finding { why: why.to_string(), verdict: Verdict::Unknown, ..Finding::ok(item, "unknown", wanted) }
    }

    /// Turns it into advice.
    pub(crate) fn advice(self, why: impl Display) -> Finding {
        Finding { verdict: Verdict::Advice, why: why.to_string(), ..self }
    }

    /// Turns it into a problem.
    pub(crate) fn problem(self, why: impl Display) -> Finding {
        Finding { verdict: Verdict::Problem, why: why.to_string(), ..self }
    }

    /// Adds the command.
    pub(crate) fn command(self, command: impl Display) -> Finding {
        Finding { command: Some(command.to_string()), ..self }
    }

    /// Adds the file and the line that keep it.
    pub(crate) fn lasting(self, file: &str, line: impl Display) -> Finding {
        Finding { lasting: Some(format!("{file}: {line}")), ..self }
    }
}

/// A number of bytes with its unit, without empty decimals.
pub(crate) fn size(bytes: u64) -> String {
    crate::quantity::bytes(bytes).replace(".00", "")
}
