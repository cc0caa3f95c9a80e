//! The assert of the tables: what a caller holds a key of is there.

use std::fmt::Display;

/// The value that was found under a key that its holder knows to be in use.
#[inline]
#[track_caller]
pub(crate) fn present<T>(found: Option<T>, what: &str, key: impl Display) -> Option<T> {
    debug_assert!(found.is_some(), "{what} {key} is unknown");
    found
}
