//! How often the access rules refused something.

use crossdock_control::access::Action;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of refusals, by the place of their reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; Action::REASONS.len()]);

impl Refusals {
    pub(super) fn count(&self, reason: usize) {
        if let Some(count) = self.0.get(reason) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The reasons that occurred, and how often.
    pub(crate) fn by_reason(&self) -> Vec<(String, u64)> {
        let counts =
            Action::REASONS.iter().zip(&self.0).map(|(reason, count)| (*reason, count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.to_owned(), count)).collect()
    }
}
