//! Host conditions (Nectar 1990, 3.1): a poll value that a signal moves on, waited for by polling or asleep.
//!
//! A sleeper counts itself, looks once more, and sleeps on the poll value; a signaller first publishes, then looks for
//! sleepers. The fences between make that either the sleeper sees what was published, or the signaller sees the sleeper. A
//! signaller who finds nobody asleep pays for one fence and one load.

use super::futex;
use super::words::Words;
use crate::sync::{AtomicU32, Ordering, fence};
use std::time::Duration;
#[cfg(not(loom))]
use {crate::segment::Segment, crate::sync::Arc};

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The last look before sleeping found what was waited for.
    Ready,
    /// Signalled, or disturbed: look again.
    Perhaps,
    /// The time is over.
    TimedOut,
}

/// One host condition: a poll value and a count of sleepers, 32 bits each.
pub(crate) struct HostCondition(Words<AtomicU32>);

impl HostCondition {
    /// The condition `at` bytes into `segment`; none if it is not inside.
    #[cfg(not(loom))]
    pub(crate) fn new(segment: &Arc<Segment>, at: usize) -> Option<HostCondition> {
        Words::new(segment, at, 2).map(HostCondition)
    }

    /// The condition in these two words.
    #[cfg(loom)]
    pub(crate) fn over(words: Words<AtomicU32>) -> HostCondition {
        HostCondition(words)
    }

    #[inline]
    fn poll_value(&self) -> &AtomicU32 {
        self.0.word(0)
    }

    #[inline]
    fn sleepers(&self) -> &AtomicU32 {
        self.0.word(1)
    }

    /// The poll value, which each signal changes; it wraps. What was published before a signal is seen with its value.
    #[inline]
    pub(crate) fn value(&self) -> u32 {
        self.poll_value().load(Ordering::Acquire)
    }

    /// Moves the poll value on without waking anyone: enough for who polls it.
    #[inline]
    pub(crate) fn signal_value(&self) {
        self.poll_value().fetch_add(1, Ordering::Release);
    }

    /// Whether anyone sleeps or is about to. Sound only after a `fence(SeqCst)` that comes after what was published; so
    /// one fence can serve many conditions.
    #[inline]
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers().load(Ordering::Relaxed) != 0
    }

    /// Moves the poll value on and wakes all who sleep.
    #[cold]
    pub(crate) fn wake(&self) {
        self.signal_value();
        futex::wake_all(self.poll_value());
    }

    /// Moves the poll value on, and wakes all who sleep. True if any did.
    #[inline]
    pub(crate) fn signal(&self) -> bool {
        self.signal_value();
        fence(Ordering::SeqCst);
        let asleep = self.has_sleepers();
        if asleep {
            futex::wake_all(self.poll_value());
        }
        asleep
    }

    /// Wakes all who sleep, after something was published that they look for themselves; leaves even the poll value alone
    /// if nobody does. True if any did.
    #[inline]
    pub(crate) fn signal_if_asleep(&self) -> bool {
        fence(Ordering::SeqCst);
        let asleep = self.has_sleepers();
        if asleep {
            self.wake();
        }
        asleep
    }

    /// Sleeps unless `ready`, until the poll value is no longer `seen`, for `timeout` at most. `seen` was loaded before
    /// what `ready` looks at was last found missing, or at any time before this call.
    pub(crate) fn wait_unless(&self, seen: u32, timeout: Option<Duration>, ready: impl FnOnce() -> bool) -> Woken {
        self.sleepers().fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let woken = if ready() {
            Woken::Ready
        } else if futex::wait(self.poll_value(), seen, timeout) {
            Woken::TimedOut
        } else {
            Woken::Perhaps
        };
        self.sleepers().fetch_sub(1, Ordering::Relaxed);
        woken
    }
}
