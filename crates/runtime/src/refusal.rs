//! What several requests are refused for.

use crossdock_transport::control::{Refusal, RefusalCode};

/// A refusal with its message.
pub(crate) fn refuse(code: RefusalCode, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

/// The context has stopped, so it cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the context has stopped")]
pub struct Stopped;
