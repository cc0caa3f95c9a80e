//! When slow start has found the rate of a long path, before it overflows the queue there: HyStart++ (RFC 9406).
//!
//! A round trip that takes longer than the one before shows that a queue grows. Growth slows down then, and slow start ends unless
//! the round trips get shorter again. The samples that show it are the last ones, not a round trip's shortest as in the RFC: what is
//! paced fills the queue in the course of a round trip, and the first of its packets find an empty one.

/// How much longer a round trip must be, in ns: an eighth of it, within these bounds.
const LONGER_NS: std::ops::RangeInclusive<u64> = 4_000_000..=16_000_000;
/// How many samples in a row must show it.
const SAMPLES: u32 = 8;
/// Round trips of slower growth, after which slow start ends.
const SLOWER_ROUNDS: u32 = 5;
/// The divisor of growth in them.
const SLOWER: u64 = 4;

/// How slow start goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// By what is acknowledged, divided by this.
    One(u64),
    /// Not at all: it is over.
    Over,
}

/// The round trips of a slow start.
#[derive(Debug)]
pub(crate) struct SlowStart {
    /// The first transmission after the round trip's last.
    round_tx: u64,
    shortest_ns: u64,
    /// The same of the round trip before.
    before_ns: u64,
    /// The last samples, as many as were all longer than before, and their shortest.
    longer: (u32, u64),
    /// While growth is slower: the shortest sample that made it so, and how many round trips it has been since.
    slower: Option<(u64, u32)>,
}

impl SlowStart {
    pub(crate) fn new() -> SlowStart {
        SlowStart { round_tx: 0, shortest_ns: u64::MAX, before_ns: u64::MAX, longer: (0, u64::MAX), slower: None }
    }

    /// An ack came for transmissions up to `newest_tx`, when `next_tx` was the next, with a sample of the round trip's time perhaps.
    pub(crate) fn acked(&mut self, newest_tx: u64, next_tx: u64, sample_ns: Option<u64>) -> Growth {
        if newest_tx >= self.round_tx {
            self.round_tx = next_tx;
            self.before_ns = std::mem::replace(&mut self.shortest_ns, u64::MAX);
            if let Some((_, rounds)) = &mut self.slower {
                *rounds += 1;
            }
        }
        if let Some(sample_ns) = sample_ns {
            self.sample(sample_ns);
        }
        match self.slower {
            Some((_, SLOWER_ROUNDS..)) => Growth::Over,
            Some(_) => Growth::One(SLOWER),
            None => Growth::One(1),
        }
    }

    fn sample(&mut self, sample_ns: u64) {
        self.shortest_ns = self.shortest_ns.min(sample_ns);
        let longer_ns = (self.before_ns / 8).clamp(*LONGER_NS.start(), *LONGER_NS.end());
        if sample_ns >= self.before_ns.saturating_add(longer_ns) {
            self.longer = (self.longer.0 + 1, self.longer.1.min(sample_ns));
        } else {
            self.longer = (0, u64::MAX);
        }
        match self.slower {
            Some((baseline_ns, _)) if sample_ns < baseline_ns => self.slower = None,
            None if self.longer.0 >= SAMPLES => self.slower = Some((self.longer.1, 0)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A round trip of ten packets that take `rtt_ms` each.
    fn round(start: &mut SlowStart, tx: &mut u64, rtt_ms: u64) -> Growth {
        *tx += 10;
        (*tx - 10..*tx).map(|newest_tx| start.acked(newest_tx, *tx, Some(rtt_ms * MS))).last().unwrap()
    }

    #[test]
    fn a_queue_that_grows_ends_it_after_five_slower_round_trips() {
        let (mut start, mut tx) = (SlowStart::new(), 0);
        for rtt_ms in [50, 50, 55] {
            assert_eq!(round(&mut start, &mut tx, rtt_ms), Growth::One(1));
        }
        assert_eq!(round(&mut start, &mut tx, 62), Growth::One(SLOWER));
        (1..5).for_each(|_| assert_eq!(round(&mut start, &mut tx, 64), Growth::One(SLOWER)));
        assert_eq!(round(&mut start, &mut tx, 66), Growth::Over);
    }

    #[test]
    fn a_longer_round_trip_that_passes_does_not_end_it() {
        let (mut start, mut tx) = (SlowStart::new(), 0);
        for rtt_ms in [50, 60] {
            round(&mut start, &mut tx, rtt_ms);
        }
        assert_eq!(start.slower, Some((60 * MS, 0)));
        assert_eq!(round(&mut start, &mut tx, 52), Growth::One(1));
    }

    #[test]
    fn few_samples_say_nothing() {
        let (mut start, mut tx) = (SlowStart::new(), 0);
        round(&mut start, &mut tx, 50);
        for newest_tx in tx..tx + 100 {
            let rtt_ms = if newest_tx % 8 == 0 { 55 } else { 500 };
            assert_eq!(start.acked(newest_tx, tx + 100, Some(rtt_ms * MS)), Growth::One(1));
        }
    }
}
