//! The clocks and the random bytes of the data path: the system's, or those of a simulation.
//!
//! With the feature `simulation`, which only tests turn on, a thread may be given a time and random bytes of its own
//! (module `simulated`). Without it nothing here but the system is asked.

use std::io;
use std::time::{Duration, Instant, SystemTime};

/// Now, by the monotonic clock.
#[inline]
#[must_use]
pub fn now() -> Instant {
    #[cfg(feature = "simulation")]
    if let Some(now) = simulated::now() {
        return now;
    }
    Instant::now()
}

/// The time since then, by the monotonic clock.
#[inline]
#[must_use]
pub fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

/// Now, by the clock of dates.
#[must_use]
pub fn system_now() -> SystemTime {
    #[cfg(feature = "simulation")]
    if let Some(now) = simulated::system_now() {
        return now;
    }
    SystemTime::now()
}

/// To be called before a thread waits for another one: in a simulation, the others go on within this call.
#[inline]
pub fn before_wait() {
    #[cfg(feature = "simulation")]
    simulated::wait();
}

/// Random bytes that nobody can foresee.
///
/// # Errors
/// The system has none.
pub fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    #[cfg(feature = "simulation")]
    if let Some(bytes) = simulated::random() {
        return Ok(bytes);
    }
    let mut bytes = [0; BYTES];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Err(rustix::io::Errno::INTR) => 0,
            outcome => outcome?,
        };
    }
    Ok(bytes)
}

/// A thread's own time and random bytes, which follow from a seed.
#[cfg(feature = "simulation")]
pub mod simulated {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::sync::LazyLock;
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    /// How much later it is with each look at a clock, in ns: so that a loop which waits for a time to pass ends.
    const LOOK_NS: u64 = 100;
    /// The date at the time 0, in s since 1970: 2026-01-01.
    const EPOCH_S: u64 = 1_767_225_600;

    /// Every thread's time 0.
    static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

    thread_local! {
        static NOW_NS: Cell<Option<u64>> = const { Cell::new(None) };
        static RANDOM: Cell<u64> = const { Cell::new(0) };
        static DRAWS: Cell<u64> = const { Cell::new(0) };
        static OTHERS: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
    }

    /// This thread's time is simulated for as long as this is there.
    #[derive(Debug)]
    pub struct Simulated(());

    impl Simulated {
        /// Begins at the time 0, with the random bytes that follow from `seed`.
        #[must_use]
        pub fn begin(seed: u64) -> Simulated {
            NOW_NS.set(Some(0));
            RANDOM.set(seed);
            Simulated(())
        }
    }

    impl Drop for Simulated {
        fn drop(&mut self) {
            NOW_NS.set(None);
            drop(OTHERS.take());
        }
    }

    /// Whether this thread's time is simulated.
    #[must_use]
    pub fn is_active() -> bool {
        NOW_NS.get().is_some()
    }

    /// Sets the time, in ns.
    pub fn set_now_ns(now_ns: u64) {
        NOW_NS.set(Some(now_ns));
    }

    /// The time, in ns; 0 on a thread whose time is not simulated.
    #[must_use]
    pub fn now_ns() -> u64 {
        NOW_NS.get().unwrap_or(0)
    }

    /// Has `others` called wherever this thread would wait for other threads.
    pub fn on_wait(others: impl Fn() + 'static) {
        OTHERS.set(Some(Rc::new(others)));
    }

    /// How often random bytes were asked for on this thread: of a daemon, once for each handshake.
    #[must_use]
    pub fn draws() -> u64 {
        DRAWS.get()
    }

    /// A look at the clock.
    pub(crate) fn look_ns() -> Option<u64> {
        let now_ns = NOW_NS.get()? + LOOK_NS;
        NOW_NS.set(Some(now_ns));
        Some(now_ns)
    }

    /// Sleeps; whether the time is simulated.
    pub(crate) fn nap(time: Duration) -> bool {
        let Some(now_ns) = NOW_NS.get() else { return false };
        NOW_NS.set(Some(now_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))));
        wait();
        true
    }

    pub(super) fn now() -> Option<Instant> {
        look_ns().map(|now_ns| *ZERO + Duration::from_nanos(now_ns))
    }

    pub(super) fn system_now() -> Option<SystemTime> {
        look_ns().map(|now_ns| UNIX_EPOCH + Duration::from_secs(EPOCH_S) + Duration::from_nanos(now_ns))
    }

    pub(super) fn wait() {
        let others = OTHERS.with_borrow(Clone::clone);
        others.iter().for_each(|others| others());
    }

    /// Bytes of splitmix64.
    pub(super) fn random<const BYTES: usize>() -> Option<[u8; BYTES]> {
        NOW_NS.get()?;
        DRAWS.set(DRAWS.get() + 1);
        let mut bytes = [0; BYTES];
        for chunk in bytes.chunks_mut(8) {
            let state = RANDOM.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
            RANDOM.set(state);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let word = (mixed ^ (mixed >> 31)).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Some(bytes)
    }
}

#[cfg(all(test, feature = "simulation"))]
mod tests {
    use super::simulated::{Simulated, set_now_ns};
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn simulated_time_passes_only_as_it_is_set_and_by_looks() {
        let run = |seed| {
            let _simulated = Simulated::begin(seed);
            let start = now();
            set_now_ns(5_000_000_000);
            let passed = elapsed(start);
            let waited = Rc::new(Cell::new(0));
            let counted = Rc::clone(&waited);
            simulated::on_wait(move || counted.set(counted.get() + 1));
            crate::nap(Duration::from_millis(1));
            before_wait();
            (passed, elapsed(start) - passed, waited.get(), random::<16>().unwrap())
        };
        let (passed, napped, waited, _) = run(7);
        assert!(passed.as_nanos().abs_diff(5_000_000_000) < 1000, "{passed:?}");
        assert!(napped >= Duration::from_millis(1) && napped < Duration::from_millis(2), "{napped:?}");
        assert_eq!((waited, run(7)), (2, run(7)));
        assert_ne!(run(7).3, run(8).3);
        assert_eq!(simulated::now_ns(), 0, "it is over");
    }
}
