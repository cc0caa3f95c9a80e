//! The load shedder of a context: how long runnable batches have waited for it, and how strongly the streams that allow
//! sampling are sampled for that. It is the platform's one signal of overload: the managers read off it whether handlers
//! are to go by their overload rules.

/// How long batches may wait, in ns, where nothing else is set.
const AFTER_NS: u64 = 250_000;
/// How long a doubling lasts at least, as a multiple of the time that batches may wait. The time is doubled each time
/// that the doubling was ended too early.
const HOLD_TIMES: u64 = 4;
/// How long a doubling lasts at most.
const LONGEST_HOLD_NS: u64 = 1_000_000_000;
/// Doublings, at most.
const MOST: usize = 16;
/// Times of the context's being away that are remembered.
const AWAY: usize = 8;

/// One doubling: how long it lasts, until when, and when it was last ended.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    hold_ns: u64,
    until_ns: u64,
    ended_ns: Option<u64>,
}

/// How far a context is behind.
#[derive(Debug)]
pub(crate) struct LoadShedder {
    /// Where batches have waited for longer than this, in ns, streams are sampled one in two, and one in twice as many for
    /// twice the wait. While the wait lasts, the sampling doubles again after the same time.
    after_ns: u64,
    levels: [Level; MOST],
    /// The number of levels that hold: the first ones.
    holding: usize,
    /// When the next may begin.
    next_ns: u64,
    /// The last times that the context's thread was away: until when, and for how long, in ns.
    away: [(u64, u64); AWAY],
    next_away: usize,
}

impl Default for LoadShedder {
    fn default() -> LoadShedder {
        LoadShedder::new(AFTER_NS)
    }
}

impl LoadShedder {
    /// One for a context where batches may wait for `after_ns`.
    pub(crate) fn new(after_ns: u64) -> LoadShedder {
        LoadShedder {
            after_ns: after_ns.max(1),
            levels: Default::default(),
            holding: 0,
            next_ns: 0,
            away: Default::default(),
            next_away: 0,
        }
    }

    /// The context's thread was away for so long until now.
    #[cold]
    pub(crate) fn away(&mut self, now_ns: u64, ns: u64) {
        if let Some(oldest) = self.away.get_mut(self.next_away % AWAY) {
            *oldest = (now_ns, ns);
        }
        self.next_away = (self.next_away + 1) % AWAY;
    }

    /// How long the context's thread was away since then, as far as it is remembered.
    #[cold]
    fn away_since(&self, since_ns: u64) -> u64 {
        self.away.iter().map(|(until_ns, ns)| until_ns.saturating_sub(since_ns).min(*ns)).sum()
    }

    /// The context begins to work on a batch that has waited since `since_ns` (0: not known). The time before its node
    /// was last stalled does not count, nor that in which the context was away, nor `round_ns` that it is ordinary to wait.
    /// Whether it has waited too long.
    #[inline]
    pub(crate) fn takes(&mut self, now_ns: u64, (since_ns, stalled_ns, round_ns): (u64, u64, u64)) -> bool {
        if since_ns == 0 {
            return false;
        }
        let from_ns = since_ns.max(stalled_ns);
        let mut waited_ns = now_ns.saturating_sub(from_ns).saturating_sub(round_ns);
        if waited_ns >= self.after_ns {
            waited_ns = waited_ns.saturating_sub(self.away_since(from_ns));
        }
        let is_late = waited_ns >= self.after_ns;
        if is_late {
            self.raise(now_ns, waited_ns);
        } else if self.holding > 0 && waited_ns < self.after_ns / 2 {
            self.lower(now_ns);
        }
        is_late
    }

    /// Nodes that allow it let one record in this many through.
    #[inline]
    pub(crate) fn one_in(&self) -> u32 {
        1 << self.holding
    }

    #[cold]
    fn raise(&mut self, now_ns: u64, waited_ns: u64) {
        let wanted = (waited_ns / self.after_ns).ilog2() as usize + 1;
        let more = match now_ns < self.next_ns {
            true => wanted.saturating_sub(self.holding),
            false => wanted.saturating_sub(self.holding).max(1),
        };
        let shortest_ns = (HOLD_TIMES * self.after_ns).min(LONGEST_HOLD_NS);
        for level in self.levels.iter_mut().skip(self.holding).take(more) {
            let was_too_early = level.ended_ns.is_some_and(|ended_ns| now_ns.saturating_sub(ended_ns) <= level.hold_ns);
            level.hold_ns = if was_too_early { (2 * level.hold_ns).min(LONGEST_HOLD_NS) } else { shortest_ns };
            level.until_ns = now_ns + level.hold_ns;
            self.holding += 1;
            self.next_ns = now_ns + self.after_ns;
        }
    }

    #[cold]
    fn lower(&mut self, now_ns: u64) {
        while let Some(level) = self.holding.checked_sub(1).and_then(|last| self.levels.get_mut(last)) {
            if now_ns < level.until_ns {
                break;
            }
            level.ended_ns = Some(now_ns);
            self.holding -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    /// Batches that have waited for so long are taken one after the other; what is let through each time.
    fn taken(behind: &mut LoadShedder, batches: &[(u64, u64)]) -> Vec<u32> {
        let take = |(now_us, waited_us): &(u64, u64)| {
            behind.takes(now_us * US, ((now_us - waited_us) * US, 0, 0));
            behind.one_in()
        };
        batches.iter().map(take).collect()
    }

    #[test]
    fn streams_are_sampled_while_batches_wait_too_long_and_a_while_after() {
        let mut behind = LoadShedder::default();
        assert_eq!(taken(&mut behind, &[(1000, 240), (2000, 0), (3000, 240)]), [1, 1, 1]);
        assert_eq!(taken(&mut behind, &[(4000, 260), (4200, 400), (4260, 450), (4300, 1000)]), [2, 2, 4, 8]);
        // Not as long as some wait still; and each for a while.
        assert_eq!(taken(&mut behind, &[(5000, 200), (5200, 100), (5300, 0), (5301, 0)]), [8, 8, 1, 1]);
        // However long it lasts.
        let long: Vec<(u64, u64)> = (10..1000).map(|ms| (1000 * ms, 400)).collect();
        assert_eq!(taken(&mut behind, &long).last(), Some(&(1 << MOST)));
    }

    #[test]
    fn sampling_that_ended_too_early_lasts_twice_as_long_up_to_a_second() {
        let mut behind = LoadShedder::default();
        let (mut now_us, mut lasted) = (1000, Vec::new());
        let mut once = |behind: &mut LoadShedder| {
            assert_eq!(taken(behind, &[(now_us, 400)]), [2]);
            let began_us = now_us;
            while behind.one_in() > 1 {
                now_us += 500;
                taken(behind, &[(now_us, 0)]);
            }
            lasted.push((now_us - began_us) / 1000);
            now_us += 500;
        };
        (0..12).for_each(|_| once(&mut behind));
        assert_eq!(taken(&mut behind, &[(10_000_000, 400), (10_001_000, 0)]), [2, 1], "a while later all is forgotten");
        assert_eq!(lasted, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]);
    }
    #[test]
    fn only_waiting_for_other_work_is_overload() {
        let mut shedder = LoadShedder::new(100 * US);
        let mut takes = |since_us: u64, stalled_us: u64, round_us: u64| {
            shedder.takes(1000 * US, (since_us * US, stalled_us * US, round_us * US))
        };
        assert!(takes(900, 0, 0) && !takes(901, 0, 0) && !takes(0, 0, 0));
        assert!(!takes(500, 950, 0), "its output had no room");
        assert!(!takes(500, 0, 450) && takes(500, 0, 400), "a round of long handlers");
        shedder.away(700 * US, 350 * US);
        shedder.away(950 * US, 220 * US);
        assert!(!shedder.takes(1000 * US, (500 * US, 0, 0)), "others had the processor for 420 of 500 us");
        assert!(shedder.takes(1020 * US, (500 * US, 0, 0)), "and what had come meanwhile takes too long to work off");
        (0..2 * AWAY as u64).for_each(|number| shedder.away((2000 + 10 * number) * US, 5 * US));
        assert!(!shedder.takes(2220 * US, (2100 * US, 0, 0)), "five times 5 of 120 us");
    }
}
