//! Libraries that may panic at bytes which they did not expect. The process's panic hook still reports it, on standard error
//! unless somebody set another; with `panic = "abort"` there is nothing to be caught.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::EncodingError;

/// The error of a library, or that it panicked: its input is damaged then, in a way that it has no words for. The
/// object that the call worked on is not to be used after that.
pub(super) fn guarded<T, E: Display>(
    refused: impl FnOnce(String) -> EncodingError,
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, EncodingError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(outcome) => outcome.map_err(|error| refused(error.to_string())),
        Err(_) => Err(refused("it is damaged in a way that its library has no words for".to_owned())),
    }
}
