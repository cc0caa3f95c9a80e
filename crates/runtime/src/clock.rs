//! The clock of all contexts: nanoseconds since they were started.

use std::time::Instant;

/// Nanoseconds since the contexts were started; a context reads it once a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Now, in ns; 584 years fit.
    pub(crate) fn now_ns(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
