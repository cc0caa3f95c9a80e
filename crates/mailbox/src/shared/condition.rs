//! Host conditions (Nectar 1990, 3.1): a poll value that a signal moves on, waited for by polling or asleep.
//!
//! A sleeper counts itself, looks once more, and sleeps on the poll value; a signaller first publishes, then looks for
//! sleepers. The fences between make that either the sleeper sees what was published, or the signaller sees the
//! sleeper. A signaller who finds nobody asleep pays for one fence and one load.

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

    /// The poll value, which each signal changes; it wraps. An entry that was published before a signal is seen with
    /// its value.
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

    /// Wakes all who sleep, after something was published that they look for themselves; leaves even the poll value
    /// alone if nobody does. True if any did.
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

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn condition(segment: &Arc<Segment>) -> HostCondition {
        HostCondition::new(segment, 0).unwrap()
    }

    #[test]
    fn a_signal_moves_the_poll_value_on() {
        let segment = Arc::new(Segment::new(64).unwrap());
        let (ours, theirs) = (condition(&segment), condition(&segment));
        assert_eq!(ours.value(), 0);
        assert!(!theirs.signal(), "nobody sleeps");
        theirs.signal_value();
        assert_eq!(ours.value(), 2);
        assert!(!theirs.signal_if_asleep());
        assert_eq!(ours.value(), 2, "nothing to say to someone awake");
    }

    #[test]
    #[cfg_attr(miri, ignore = "sleeps on a futex, whose arguments rustix hands on in a way that miri refuses")]
    fn nobody_sleeps_who_need_not() {
        let segment = Arc::new(Segment::new(64).unwrap());
        let condition = condition(&segment);
        assert_eq!(condition.wait_unless(0, None, || true), Woken::Ready);
        condition.signal();
        assert_eq!(condition.wait_unless(0, None, || false), Woken::Perhaps, "signalled since");
        assert!(!condition.has_sleepers());
    }

    #[test]
    #[cfg_attr(miri, ignore = "sleeps on a futex, whose arguments rustix hands on in a way that miri refuses")]
    fn a_wait_ends_when_its_time_is_over() {
        let segment = Arc::new(Segment::new(64).unwrap());
        let condition = condition(&segment);
        let wait = |time| loop {
            match condition.wait_unless(0, Some(time), || false) {
                Woken::Perhaps => {} // disturbed
                other => return other,
            }
        };
        assert_eq!(wait(Duration::ZERO), Woken::TimedOut);
        assert_eq!(wait(Duration::from_millis(2)), Woken::TimedOut);
        assert!(!condition.has_sleepers());
    }

    #[test]
    fn a_condition_outside_its_segment_is_not_made() {
        let segment = Arc::new(Segment::new(4096).unwrap());
        assert!(HostCondition::new(&segment, 4088).is_some());
        for at in [4092, 4096, 2, usize::MAX] {
            assert!(HostCondition::new(&segment, at).is_none());
        }
    }

    /// One counts up for the other in turn, each asleep until it is its turn.
    #[test]
    #[cfg_attr(miri, ignore = "sleeps on a futex, whose arguments rustix hands on in a way that miri refuses")]
    fn two_threads_wake_each_other() {
        let turns: u64 = if cfg!(miri) { 20 } else { 5000 };
        let (one, other) = (Arc::new(Segment::new(64).unwrap()), Arc::new(Segment::new(64).unwrap()));
        let count = AtomicU64::new(0);
        let take_turns = |wakes: &Arc<Segment>, sleeps: &Arc<Segment>, parity: u64| {
            let (wakes, sleeps) = (condition(wakes), condition(sleeps));
            for turn in (parity..turns).step_by(2) {
                let is_turn = || count.load(Ordering::Relaxed) == turn;
                while !is_turn() {
                    let seen = sleeps.value();
                    sleeps.wait_unless(seen, None, is_turn);
                }
                count.store(turn + 1, Ordering::Relaxed);
                wakes.signal_if_asleep();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| take_turns(&one, &other, 0));
            scope.spawn(|| take_turns(&other, &one, 1));
        });
        assert_eq!(count.into_inner(), turns);
    }

    #[test]
    #[cfg_attr(miri, ignore = "sleeps on a futex, whose arguments rustix hands on in a way that miri refuses")]
    fn one_signal_wakes_all_who_sleep() {
        let segment = Arc::new(Segment::new(64).unwrap());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let condition = condition(&segment);
                    while condition.value() == 0 {
                        condition.wait_unless(0, None, || condition.value() != 0);
                    }
                });
            }
            condition(&segment).signal();
        });
    }
}
