//! The clock of all contexts: nanoseconds since they were started; and the processor time of a context's turns.

use crossdock_device::thread_time_ns;
use std::time::{Instant, UNIX_EPOCH};

/// Time without the processor, in ns, that does not count as being away: a nap.
const AWAY_NS: u64 = 50_000;

/// Nanoseconds since the contexts were started; a context reads it once a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(crossdock_device::now())
    }

    /// The time from 1970-01-01 UTC to its zero, in ns, by the system's clock now: what is computed with it never goes back.
    pub(crate) fn epoch_ns(self) -> u64 {
        let since_1970 = crossdock_device::system_now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        u64::try_from(since_1970).unwrap_or(u64::MAX).saturating_sub(self.now_ns())
    }

    /// Now, in ns; 584 years fit.
    pub(crate) fn now_ns(self) -> u64 {
        u64::try_from(crossdock_device::elapsed(self.0).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The processor time of one thread's turns, and how long it was away: asleep, or without a processor because others had
/// it. A packet that waits meanwhile does not wait for the context's other work.
#[derive(Debug)]
pub(crate) struct TurnClock {
    /// The thread's processor time when that was last asked for, and when that was.
    had_ns: u64,
    asked_ns: u64,
    seen_ns: u64,
}

impl TurnClock {
    /// For the calling thread, from now on.
    pub(crate) fn start(now_ns: u64) -> TurnClock {
        TurnClock { had_ns: thread_time_ns(), asked_ns: now_ns, seen_ns: now_ns }
    }

    /// A turn begins; returns how long the thread was away since the last one ended, in ns.
    #[inline]
    pub(crate) fn begin(&mut self, now_ns: u64) -> u64 {
        let away_ns = away(now_ns.saturating_sub(std::mem::replace(&mut self.seen_ns, now_ns)));
        if away_ns > 0 {
            (self.had_ns, self.asked_ns) = (thread_time_ns(), now_ns);
        }
        away_ns
    }

    /// A turn ends; returns the processor time since the one before ended, and how long the thread was away in it, in ns. Only
    /// for a turn that is long enough to have been away is the system asked: a call takes as long as a small batch.
    #[inline]
    pub(crate) fn end(&mut self, now_ns: u64) -> (u64, u64) {
        let began_ns = std::mem::replace(&mut self.seen_ns, now_ns);
        let passed_ns = now_ns.saturating_sub(began_ns);
        if passed_ns <= AWAY_NS {
            return (passed_ns, 0);
        }
        let had_ns = thread_time_ns();
        // Since the last question and until this turn the thread had the processor all the time.
        let before_ns = began_ns.saturating_sub(std::mem::replace(&mut self.asked_ns, now_ns));
        let ns = had_ns.saturating_sub(std::mem::replace(&mut self.had_ns, had_ns)).saturating_sub(before_ns);
        let ns = ns.min(passed_ns);
        (ns, away(passed_ns - ns))
    }
}

fn away(ns: u64) -> u64 {
    if ns > AWAY_NS { ns } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn a_turn_counts_with_processor_time_and_waiting_is_being_away() {
        let (mut turns, mut now_ns) = (TurnClock::start(0), 0);
        let work = |ns: u64| {
            let until = thread_time_ns() + ns;
            while thread_time_ns() < until {
                black_box(until);
            }
        };
        work(200_000);
        // As if no more time had passed.
        now_ns += 200_000;
        let (ns, away_ns) = turns.end(now_ns);
        assert!(ns >= 200_000 && away_ns == 0, "{ns}");
        assert_eq!(turns.begin(now_ns + 10_000), 0);
        // Much more has passed than the thread has had.
        now_ns += 3_600_000_000_000;
        let (ns, away_ns) = turns.end(now_ns);
        assert!(away_ns > 1_800_000_000_000 && ns < 1_800_000_000_000, "{ns}");
        assert_eq!(turns.begin(now_ns + 2 * AWAY_NS), 2 * AWAY_NS);
    }
}
