//! The sleep/wake protocol of one sleeper and any number of ringers, without the sleeping itself.
//!
//! A ringer first publishes its work, then rings. The sleeper asks [`Bell::try_sleep`] before it would block: if the
//! bell rang since it last asked, it must look at its work again. A ring costs one atomic exchange; only one that finds
//! the sleeper asleep must also wake it (by eventfd or futex), which is what [`Bell::ring`] returns.

use crate::sync::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

/// Whether the one sleeper is awake, asleep, or was rung.
#[derive(Debug)]
pub struct Bell {
    state: AtomicU8,
}

impl Default for Bell {
    fn default() -> Bell {
        Bell::new()
    }
}

impl Bell {
    /// A bell whose sleeper is awake.
    pub fn new() -> Bell {
        Bell { state: AtomicU8::new(AWAKE) }
    }

    /// Rings. True if the sleeper is asleep and the caller must wake it; of several concurrent callers, exactly one
    /// gets true.
    ///
    /// An exchange, not a load first: it must come after the sleeper's own in the state's order, so that either the
    /// sleeper sees the ring or it sees the work that was published before it.
    #[inline]
    pub fn ring(&self) -> bool {
        self.state.swap(RUNG, Ordering::AcqRel) == ASLEEP
    }

    /// Before blocking: true if the sleeper may block, and must call [`Bell::woken`] after; false if it was rung since
    /// the last call, which is thereby answered.
    pub fn try_sleep(&self) -> bool {
        match self.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(_) => {
                self.woken();
                false
            }
        }
    }

    /// After blocking: awake again. True if it was rung meanwhile.
    pub fn woken(&self) -> bool {
        self.state.swap(AWAKE, Ordering::AcqRel) == RUNG
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_answered_once_and_wakes_one_sleeper_once() {
        let bell = Bell::new();
        assert!(!bell.ring(), "awake: nobody to wake");
        assert!(!bell.ring());
        assert!(!bell.try_sleep(), "rung twice, answered once");
        assert!(bell.try_sleep());
        assert!(bell.ring(), "asleep: wake it");
        assert!(!bell.ring(), "one waker is enough");
        assert!(bell.woken());
        assert!(bell.try_sleep());
        assert!(!bell.woken(), "woken by something else");
    }
}
