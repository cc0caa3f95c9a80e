//! The load shedder of a context: how long the batches that it works on have waited, and how strongly the streams that
//! allow sampling are sampled for that.

/// Where batches have waited for longer than this, in ns, streams are sampled one in two, and one in twice as many for
/// twice the wait. While the wait lasts, the sampling doubles again after the same time.
const BEHIND_NS: u64 = 250_000;
/// How long a doubling lasts at least, in ns. The time is doubled each time that the doubling was ended too early.
const HOLD_NS: u64 = 1_000_000;
/// How long a doubling lasts at most: the managers, which check a context each second, know its needs by then.
const LONGEST_HOLD_NS: u64 = 1_000_000_000;
/// Doublings, at most.
const MOST: usize = 16;

/// One doubling: how long it lasts, until when, and when it was last ended.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    hold_ns: u64,
    until_ns: u64,
    ended_ns: Option<u64>,
}

/// How far a context is behind.
#[derive(Debug, Default)]
pub(crate) struct LoadShedder {
    levels: [Level; MOST],
    /// The number of levels that hold: the first ones.
    holding: usize,
    /// When the next may begin.
    next_ns: u64,
}

impl LoadShedder {
    /// The context begins to work on a batch that has waited since `since_ns` (0: not known). The time before its node
    /// was last stalled does not count against the context.
    #[inline]
    pub(crate) fn takes(&mut self, now_ns: u64, since_ns: u64, stalled_ns: u64) {
        if since_ns == 0 {
            return;
        }
        let waited_ns = now_ns.saturating_sub(since_ns.max(stalled_ns));
        if waited_ns >= BEHIND_NS {
            self.raise(now_ns, waited_ns);
        } else if self.holding > 0 && waited_ns < BEHIND_NS / 2 {
            self.lower(now_ns);
        }
    }

    /// Nodes that allow it let one record in this many through.
    #[inline]
    pub(crate) fn one_in(&self) -> u32 {
        1 << self.holding
    }

    #[cold]
    fn raise(&mut self, now_ns: u64, waited_ns: u64) {
        let wanted = (waited_ns / BEHIND_NS).ilog2() as usize + 1;
        let more = match now_ns < self.next_ns {
            true => wanted.saturating_sub(self.holding),
            false => wanted.saturating_sub(self.holding).max(1),
        };
        for level in self.levels.iter_mut().skip(self.holding).take(more) {
            let was_too_early = level.ended_ns.is_some_and(|ended_ns| now_ns.saturating_sub(ended_ns) <= level.hold_ns);
            level.hold_ns = if was_too_early { (2 * level.hold_ns).min(LONGEST_HOLD_NS) } else { HOLD_NS };
            level.until_ns = now_ns + level.hold_ns;
            self.holding += 1;
            self.next_ns = now_ns + BEHIND_NS;
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
            behind.takes(now_us * US, (now_us - waited_us) * US, 0);
            behind.one_in()
        };
        batches.iter().map(take).collect()
    }

    #[test]
    fn streams_are_thinned_out_as_long_as_batches_wait_too_long_and_a_while_after() {
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
    fn what_was_ended_too_early_lasts_twice_as_long_up_to_a_second() {
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
}
