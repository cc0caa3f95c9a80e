//! How a polled loop waits when nothing more is there: nap, spin or sleep, by what came lately.

/// An arrival of at least this many bytes says that traffic is heavy.
const HEAVY_BYTES: usize = 16 << 10;
/// For how long after such an arrival traffic counts as heavy, in ns.
const HEAVY_FOR_NS: u64 = 300_000;
/// A core that was given up in a spin and came back only after so long, in ns, was had by another thread meanwhile.
const HAD_NS: u64 = 5_000;
/// For how long no spin begins then, in ns: who spins delays those whose messages it waits for. Not long, as it may have been an
/// interrupt.
const CROWDED_FOR_NS: u64 = 2_000_000;

/// What a loop does when nothing more is there.
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
/// Spinning begins when a sleep turned out shorter than a spin may be, and ends when a spin was in vain: then a sleep
/// follows, and that it was long ends it. So messages at long intervals never cause a spin. Nor is there a spin on a core that
/// other threads need.
#[derive(Clone, Debug)]
pub struct Idler {
    spin_ns: u64,
    arrived_ns: u64,
    heavy_until_ns: u64,
    crowded_until_ns: u64,
    spins: bool,
}

impl Idler {
    /// A nap while traffic is heavy (30 µs was best of what was tried: most of a socket's buffer stays free meanwhile).
    pub const NAP: std::time::Duration = std::time::Duration::from_micros(30);

    /// Spins for at most `spin_ns` after an arrival; 0: never.
    #[must_use]
    pub fn new(spin_ns: u64) -> Idler {
        Idler { spin_ns, arrived_ns: 0, heavy_until_ns: 0, crowded_until_ns: 0, spins: false }
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

    /// What to do now that nothing more is there.
    #[inline]
    #[must_use]
    pub fn choose(&self, now_ns: u64) -> Idle {
        if self.is_heavy(now_ns) {
            Idle::Nap
        } else if self.spins && now_ns < self.arrived_ns.saturating_add(self.spin_ns) {
            Idle::Spin
        } else {
            Idle::Sleep
        }
    }

    /// Notes a sleep: when it began and ended, and whether an arrival ended it.
    pub fn slept(&mut self, from_ns: u64, to_ns: u64, by_arrival: bool) {
        let is_close = by_arrival && to_ns.saturating_sub(from_ns) < self.spin_ns;
        self.spins = is_close && to_ns >= self.crowded_until_ns;
    }

    /// Notes that a spin gave up the core, and when that had it back.
    #[inline]
    pub fn spun(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns.saturating_sub(from_ns) > HAD_NS {
            self.spins = false;
            self.crowded_until_ns = to_ns.saturating_add(CROWDED_FOR_NS);
        }
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
        // A sleep that a deadline ended says nothing about messages.
        idler.slept(900_000, 901_000, false);
        assert_eq!(idler.choose(901_000), Idle::Sleep);
    }

    #[test]
    fn a_core_that_others_need_is_left_to_them() {
        let mut idler = Idler::new(30_000);
        let spins_at = |idler: &mut Idler, ns: u64| {
            idler.slept(ns - 10_000, ns, true);
            idler.arrived(ns, 300);
            idler.choose(ns) == Idle::Spin
        };
        assert!(spins_at(&mut idler, 1_000_000));
        idler.spun(1_000_000, 1_000_500);
        assert_eq!(idler.choose(1_000_500), Idle::Spin, "nobody else was there");
        idler.spun(1_001_000, 1_015_000);
        assert_eq!(idler.choose(1_015_000), Idle::Sleep);
        assert!(!spins_at(&mut idler, 3_000_000));
        assert!(spins_at(&mut idler, 3_015_000), "it is tried again");
    }

    #[test]
    fn no_spin_where_none_is_wanted() {
        let mut idler = Idler::new(0);
        idler.slept(0, 0, true);
        idler.arrived(0, 1);
        assert_eq!(idler.choose(0), Idle::Sleep);
    }
}
