//! `MAX RATE`: a token bucket for all records, or one for each key.

use crate::graph::bounds::SLOW_RECORDS;
use crossdock_engine::Key;
use crossdock_query::MaxRate;
use std::collections::HashMap;

/// How often the table is searched for keys that can be forgotten at most, in ns.
const SWEEP_NS: u64 = 10_000_000;

/// Buckets, each as the time by which what it let pass would have come at the rate (the theoretical arrival time of the
/// generic cell rate algorithm, ITU-T I.371): a bucket is full once that has passed, and is as if it were new.
#[derive(Debug)]
pub(super) struct Rate {
    interval_ns: u64,
    /// How far that time may be ahead: a bucket of as many records as pass in a second.
    ahead_ns: u64,
    of_all_ns: u64,
    /// Whether each key has a bucket of its own.
    is_by_key: bool,
    by_key: HashMap<Key, u64>,
    swept_ns: u64,
}

impl Rate {
    pub(super) fn new(rate: &MaxRate) -> Rate {
        let per_second = u64::from(rate.per_second.get());
        let interval_ns = (1_000_000_000 / per_second).max(1);
        let ahead_ns = interval_ns * (per_second - 1);
        let is_by_key = rate.by.is_some();
        Rate { interval_ns, ahead_ns, of_all_ns: 0, is_by_key, by_key: HashMap::new(), swept_ns: 0 }
    }

    /// Whether each key has a rate of its own.
    pub(super) fn is_by_key(&self) -> bool {
        self.is_by_key
    }

    /// Whether a record may pass now; it has then. A new key finds no place while as many others as the bound have passed
    /// records within the last second.
    pub(super) fn passes(&mut self, key: Option<Key>, now_ns: u64) -> bool {
        let key = key.filter(|_| self.is_by_key);
        if let Some(key) = key
            && self.by_key.len() >= SLOW_RECORDS
            && !self.by_key.contains_key(&key)
            && !self.sweeps(now_ns)
        {
            return false;
        }
        let due_ns = match key {
            Some(key) => self.by_key.entry(key).or_default(),
            None => &mut self.of_all_ns,
        };
        let next_ns = (*due_ns).max(now_ns);
        let passes = next_ns - now_ns <= self.ahead_ns;
        if passes {
            *due_ns = next_ns + self.interval_ns;
        }
        passes
    }

    /// When a record may pass at the earliest, in ns.
    pub(super) fn due_ns(&self, key: Option<Key>) -> u64 {
        let key = key.filter(|_| self.is_by_key);
        let due_ns = key.map_or(self.of_all_ns, |key| self.by_key.get(&key).copied().unwrap_or_default());
        due_ns.saturating_sub(self.ahead_ns)
    }

    /// Forgets the keys whose buckets are full; whether there is a place then.
    #[cold]
    fn sweeps(&mut self, now_ns: u64) -> bool {
        if now_ns < self.swept_ns + SWEEP_NS {
            return false;
        }
        self.swept_ns = now_ns;
        self.by_key.retain(|_, due_ns| *due_ns > now_ns);
        self.by_key.len() < SLOW_RECORDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    const SECOND: u64 = 1_000_000_000;

    fn rate(per_second: u32) -> Rate {
        Rate::new(&MaxRate { per_second: NonZeroU32::new(per_second).unwrap(), by: None })
    }

    fn by_key(per_second: u32) -> Rate {
        Rate { is_by_key: true, ..rate(per_second) }
    }

    #[test]
    fn as_many_pass_in_a_second_and_no_more_at_once() {
        for per_second in [1, 3, 100, 1_000_000] {
            let mut rate = rate(per_second);
            let at = |rate: &mut Rate, now_ns| (0..2 * per_second).filter(|_| rate.passes(None, now_ns)).count() as u32;
            assert_eq!(at(&mut rate, 5 * SECOND), per_second);
            assert_eq!(at(&mut rate, 5 * SECOND), 0);
            assert!(rate.due_ns(None) > 5 * SECOND && rate.due_ns(None) <= 6 * SECOND);
            let due_ns = rate.due_ns(None);
            assert!(!rate.passes(None, due_ns - 1) && rate.passes(None, due_ns));
            assert_eq!(at(&mut rate, 9 * SECOND), per_second, "no more after a long pause");
        }
    }

    #[test]
    fn each_key_has_a_rate_of_its_own_and_idle_ones_make_room() {
        let mut rate = by_key(2);
        assert_eq!(
            [1, 1, 1, 2, 2, 2, 1].map(|key| rate.passes(Some(key), 0)),
            [true, true, false, true, true, false, false]
        );
        (3..=SLOW_RECORDS as u128).for_each(|key| assert!(rate.passes(Some(key), SECOND)));
        let full = rate.by_key.len();
        assert_eq!(full, SLOW_RECORDS);
        assert!(rate.passes(Some(u128::MAX), SECOND), "the first two are idle");
        assert!(rate.passes(Some(u128::MAX - 1), SECOND));
        assert!(!rate.passes(Some(u128::MAX - 2), SECOND) && rate.by_key.len() == full, "all others are not");
        assert!(rate.passes(Some(u128::MAX - 2), 3 * SECOND));
    }
}
