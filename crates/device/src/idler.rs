//! How a polled loop waits when nothing more is there: nap, spin or sleep, by what came lately.

use std::time::Instant;

/// An arrival of at least this many bytes says that traffic is heavy.
const HEAVY_BYTES: usize = 16 << 10;
/// For how long after such an arrival traffic counts as heavy, in ns.
const HEAVY_FOR_NS: u64 = 300_000;
/// A yield that takes longer than this, in ns, gave the core to a thread with work of its own. A client that was waited for
/// takes less.
const LOST_NS: u64 = 300_000;
/// For how long the core counts as shared after such a yield, in ns: twice as long after each that follows with no shorter one
/// between, since each costs some ms.
const SHARED_FOR_NS: std::ops::RangeInclusive<u64> = 50_000_000..=3_200_000_000;

/// The action of a loop when nothing more is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Traffic is heavy: [`nap`](crate::nap()) for [`Idler::NAP`], so that the next turn finds several super-packets.
    Nap,
    /// Messages follow one another more closely than a sleep and a wake-up would take: yield the core and look again.
    Spin,
    /// Sleep in the poller.
    Sleep,
}

/// Chooses how to wait. Times are nanoseconds since any fixed moment.
///
/// Spinning begins when an arrival ends a sleep sooner after the one before than a spin may last, and ends when a spin was in
/// vain: then a sleep follows, and the arrival that ends it comes too late, however short that sleep is. So messages at longer
/// intervals never cause a spin.
///
/// On a core that other threads want too it sleeps instead: a thread that a message wakes goes on at once, but one that has
/// yielded waits until the others have had their time.
#[derive(Clone, Debug)]
pub struct Idler {
    spin_ns: u64,
    arrived_ns: u64,
    heavy_until_ns: u64,
    spins: bool,
    shared_until_ns: u64,
    shared_for_ns: u64,
}

impl Idler {
    /// A nap while traffic is heavy (30 µs was best of what was tried: most of a socket's buffer stays free meanwhile).
    pub const NAP: std::time::Duration = std::time::Duration::from_micros(30);

    /// Spins for at most `spin_ns` after an arrival; 0: never.
    #[must_use]
    pub fn new(spin_ns: u64) -> Idler {
        Idler { spin_ns, arrived_ns: 0, heavy_until_ns: 0, spins: false, shared_until_ns: 0, shared_for_ns: 0 }
    }

    /// Notes an arrival of `bytes` bytes.
    #[inline]
    pub fn arrived(&mut self, now_ns: u64, bytes: usize) {
        self.arrived_ns = now_ns;
        if bytes >= HEAVY_BYTES {
            self.heavy_until_ns = now_ns.saturating_add(HEAVY_FOR_NS);
        }
    }

    /// Whether traffic is heavy.
    #[inline]
    #[must_use]
    pub fn is_heavy(&self, now_ns: u64) -> bool {
        now_ns < self.heavy_until_ns
    }

    /// The action now that nothing more is there.
    #[inline]
    #[must_use]
    pub fn choose(&self, now_ns: u64) -> Idle {
        if self.is_heavy(now_ns) {
            Idle::Nap
        } else if self.spins && now_ns < self.arrived_ns.saturating_add(self.spin_ns) && now_ns >= self.shared_until_ns
        {
            Idle::Spin
        } else {
            Idle::Sleep
        }
    }

    /// Yields the core, as [`Idle::Spin`] asks, and notes how long that took.
    pub fn spin(&mut self, now_ns: u64) {
        let ns = Idler::yield_core();
        self.yielded(now_ns, ns);
    }

    /// Yields the core; how long that took, in ns, for [`Idler::yielded`].
    #[must_use]
    pub fn yield_core() -> u64 {
        let began = Instant::now();
        std::thread::yield_now();
        u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Notes a yield that began at `now_ns` and took `ns`.
    pub fn yielded(&mut self, now_ns: u64, ns: u64) {
        if ns <= LOST_NS {
            self.shared_for_ns = 0;
            return;
        }
        self.shared_for_ns = (2 * self.shared_for_ns).clamp(*SHARED_FOR_NS.start(), *SHARED_FOR_NS.end());
        self.shared_until_ns = now_ns.saturating_add(ns).saturating_add(self.shared_for_ns);
    }

    /// Notes a sleep: when it began and ended, and whether an arrival ended it.
    pub fn slept(&mut self, from_ns: u64, to_ns: u64, by_arrival: bool) {
        // A spin may have gone before it, which counts too.
        let since_ns = from_ns.min(self.arrived_ns);
        self.spins = by_arrival && to_ns.saturating_sub(since_ns) < self.spin_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_traffic_is_napped_over_and_close_messages_are_spun_for() {
        let mut idler = Idler::new(30_000);
        assert_eq!(idler.choose(0), Idle::Sleep);
        idler.arrived(1_000, 60_000);
        assert_eq!(idler.choose(300_999), Idle::Nap);
        assert_eq!(idler.choose(301_000), Idle::Sleep);
        // A message every 10 us: the first sleep shows it.
        idler.arrived(400_000, 300);
        assert_eq!(idler.choose(400_000), Idle::Sleep);
        idler.slept(400_000, 410_000, true);
        idler.arrived(410_000, 300);
        assert_eq!(idler.choose(439_999), Idle::Spin);
        // Nothing came while it spun, nor soon after: it sleeps from now on.
        assert_eq!(idler.choose(440_000), Idle::Sleep);
        idler.slept(440_000, 900_000, true);
        idler.arrived(900_000, 300);
        assert_eq!(idler.choose(900_000), Idle::Sleep);
        // A sleep that is short since a spin in vain has gone before it is none of messages that are close.
        idler.slept(900_000, 920_000, true);
        idler.arrived(920_000, 300);
        assert_eq!(idler.choose(949_999), Idle::Spin);
        assert_eq!(idler.choose(950_000), Idle::Sleep);
        idler.slept(950_000, 955_000, true);
        idler.arrived(955_000, 300);
        assert_eq!(idler.choose(955_000), Idle::Sleep);
        idler.slept(955_000, 990_000, true);
        idler.arrived(990_000, 300);
        assert_eq!(idler.choose(990_000), Idle::Sleep);
        // A sleep that a deadline ended says nothing about messages.
        idler.slept(990_000, 991_000, false);
        assert_eq!(idler.choose(991_000), Idle::Sleep);
    }

    #[test]
    fn a_core_that_others_want_is_yielded_more_and_more_seldom() {
        let mut idler = Idler::new(30_000);
        // As a loop that is woken by a message every 10 us.
        let choose = |idler: &mut Idler, now_ns: u64| {
            idler.arrived(now_ns - 10_000, 300);
            idler.slept(now_ns - 10_000, now_ns, true);
            idler.arrived(now_ns, 300);
            idler.choose(now_ns)
        };
        let mut now_ns = 10_000;
        for shared_ms in [50, 100, 200, 400, 800, 1600, 3200, 3200, 50] {
            assert_eq!(choose(&mut idler, now_ns), Idle::Spin);
            if shared_ms == 50 {
                // A client answered meanwhile: nothing else wants the core.
                idler.yielded(now_ns, LOST_NS);
                assert_eq!(choose(&mut idler, now_ns), Idle::Spin);
            }
            idler.yielded(now_ns, 4_000_000);
            now_ns += 4_000_000 + shared_ms * 1_000_000;
            assert_eq!(choose(&mut idler, now_ns - 1), Idle::Sleep);
        }
        idler.yielded(now_ns, 4_000_000);
        // Heavy traffic is napped over there too: a nap is a sleep.
        idler.arrived(now_ns, 60_000);
        assert_eq!(idler.choose(now_ns), Idle::Nap);
    }

    #[test]
    fn no_spin_where_none_is_wanted() {
        let mut idler = Idler::new(0);
        idler.slept(0, 0, true);
        idler.arrived(0, 1);
        assert_eq!(idler.choose(0), Idle::Sleep);
    }
}
