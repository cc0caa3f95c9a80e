//! The window of packet numbers that were received, after RFC 6479: a ring of words, one of them being filled.

/// Words of the ring.
const WORDS: usize = 32;
const WORD_BITS: u64 = u64::BITS as u64;

/// Which packets have arrived: exactly, within [`ReplayWindow::PACKETS`] of the latest. Older ones count as arrived.
#[derive(Clone, Debug, Default)]
pub struct ReplayWindow {
    /// The latest number that has arrived, and one.
    end: u64,
    /// Bit `n % 64` of word `n / 64 % WORDS`: packet `n` has arrived.
    words: [u64; WORDS],
}

impl ReplayWindow {
    /// How far behind the latest packet one may be.
    pub const PACKETS: u64 = (WORDS as u64 - 1) * WORD_BITS;

    /// Whether no packet of this number has arrived, and it is not too old to be sure of that.
    #[inline]
    #[must_use]
    pub fn is_fresh(&self, number: u64) -> bool {
        self.is_latest(number) || self.end - 1 - number < ReplayWindow::PACKETS && self.word(number) & bit(number) == 0
    }

    /// Whether it is later than all that have arrived.
    #[inline]
    #[must_use]
    pub fn is_latest(&self, number: u64) -> bool {
        number >= self.end
    }

    /// Notes that a packet has arrived, which is fresh and authentic.
    #[inline]
    pub fn note(&mut self, number: u64) {
        if self.is_latest(number) {
            // The words that are begun now; of those at once, no more than there are.
            let next = self.end.div_ceil(WORD_BITS);
            let last = number / WORD_BITS;
            for word in next.max(last.saturating_sub(WORDS as u64 - 1))..=last {
                self.words[(word % WORDS as u64) as usize] = 0;
            }
            self.end = number.saturating_add(1);
        }
        self.words[(number / WORD_BITS % WORDS as u64) as usize] |= bit(number);
    }

    fn word(&self, number: u64) -> u64 {
        self.words[(number / WORD_BITS % WORDS as u64) as usize]
    }
}

fn bit(number: u64) -> u64 {
    1 << (number % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_packet_is_taken_once_and_only_while_it_is_within_the_window() {
        let mut window = ReplayWindow::default();
        assert!(window.is_fresh(0));
        window.note(0);
        assert!(!window.is_fresh(0) && window.is_fresh(1));
        window.note(5000);
        assert!(!window.is_fresh(5000) && !window.is_fresh(0));
        assert!(window.is_fresh(5000 - ReplayWindow::PACKETS + 1));
        assert!(!window.is_fresh(5000 - ReplayWindow::PACKETS), "too old");
        window.note(u64::MAX - 1);
        assert!(!window.is_fresh(5001) && window.is_fresh(u64::MAX - 2) && !window.is_fresh(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set(steps in proptest::collection::vec((0u64..2200, any::<bool>(), any::<bool>()), 1..400)) {
            let (mut window, mut set, mut latest) = (ReplayWindow::default(), BTreeSet::new(), 0u64);
            for (step, is_back, leaps) in steps {
                let ahead = if leaps { latest + step } else { latest + step % 70 };
                let number = if is_back { latest.saturating_sub(step) } else { ahead };
                let is_old = !set.is_empty() && number < latest && latest - number >= ReplayWindow::PACKETS;
                let is_fresh = !is_old && !set.contains(&number);
                prop_assert_eq!(window.is_fresh(number), is_fresh, "{} of {}", number, latest);
                if is_fresh {
                    window.note(number);
                    set.insert(number);
                    latest = latest.max(number);
                }
            }
        }
    }
}
