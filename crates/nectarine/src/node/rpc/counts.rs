//! The counts of a service, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of a service so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceCounts {
    /// Callers that it has now.
    pub callers: usize,
    /// Calls that were carried out.
    pub calls: u64,
    /// Those of them that ended with an error or a panic.
    pub failed: u64,
    /// Calls whose caller gave them up before it was their turn: they were not carried out.
    pub skipped: u64,
    /// Calls that came a second time: they were dropped.
    pub repeated: u64,
    /// Messages that are no calls: they were dropped.
    pub malformed: u64,
    /// Callers for which there was no room.
    pub refused: u64,
    /// Results that were dropped, because their caller's mailbox had no room for them.
    pub lost_replies: u64,
}

/// A number of [`ServiceCounts`] as the service's threads count it.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self) {
        self.add_many(1);
    }

    pub(super) fn add_many(&self, many: usize) {
        self.0.fetch_add(many as u64, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All of them but the callers.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) calls: Count,
    pub(super) failed: Count,
    pub(super) skipped: Count,
    pub(super) repeated: Count,
    pub(super) malformed: Count,
    pub(super) refused: Count,
    pub(super) lost_replies: Count,
}
