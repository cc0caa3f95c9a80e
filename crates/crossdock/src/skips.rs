//! Rows and records that are skipped: the first are reported, and all are counted.

use std::fmt::Display;

/// Skips that are reported; the rest is only counted.
const SHOWN: u64 = 10;

/// How many were skipped.
#[derive(Debug, Default)]
pub(crate) struct Skips(u64);

impl Skips {
    /// Counts one more of these (`rows`); the line that reports it, unless there were enough.
    pub(crate) fn add(&mut self, what: &str, why: impl Display) -> Option<String> {
        self.0 += 1;
        match self.0 {
            1..=SHOWN => Some(format!("skipped: {why}")),
            n if n == SHOWN + 1 => Some(format!("skipped: further {what}, which are only counted")),
            _ => None,
        }
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.0
    }
}
