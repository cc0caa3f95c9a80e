//! How often the access rules refused something.

use crossdock_control::access::Action;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of refusals, by the place of their reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    by_reason: [AtomicU64; Action::REASONS.len()],
    /// TLS handshakes with the control API that failed.
    tls_failures: AtomicU64,
}

impl Refusals {
    pub(super) fn count(&self, reason: usize) {
        if let Some(count) = self.by_reason.get(reason) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_failed_handshake(&self) {
        self.tls_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// TLS handshakes with the control API that failed.
    pub(crate) fn tls_failures(&self) -> u64 {
        self.tls_failures.load(Ordering::Relaxed)
    }

    /// The reasons that occurred, and how often.
    pub(crate) fn by_reason(&self) -> Vec<(String, u64)> {
        let counts =
            Action::REASONS.iter().zip(&self.by_reason).map(|(reason, count)| (*reason, count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.to_owned(), count)).collect()
    }
}
