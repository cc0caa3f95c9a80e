//! The common refusals of several requests.

use crossdock_transport::control::{Refusal, RefusalCode};
use std::fmt;

/// A refusal with its message.
pub(crate) fn refuse(code: RefusalCode, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

/// A context cannot answer: it has stopped, or has not come back from a step for long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// The context, if it has not stopped.
    unanswered: Option<String>,
}

impl Stopped {
    /// Whether a context has only not come back from a step: others go on.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.unanswered.is_some()
    }

    /// A context of this name does not answer.
    pub(crate) fn unanswered(context: &str) -> Stopped {
        Stopped { unanswered: Some(context.to_owned()) }
    }
}

impl std::error::Error for Stopped {}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.unanswered {
            Some(context) => write!(f, "context {context} does not answer: its thread has not returned from a step"),
            None => f.write_str("the context has stopped"),
        }
    }
}
