//! How a polled loop waits when nothing more is there: nap, spin or sleep, by what came lately.

/// An arrival of at least this many bytes says that traffic is heavy.
const HEAVY_BYTES: usize = 16 << 10;
/// For how long after such an arrival traffic counts as heavy, in ns.
const HEAVY_FOR_NS: u64 = 300_000;

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
/// follows, and that it was long ends it. So messages at long intervals never cause a spin.
#[derive(Clone, Debug)]
pub struct Idler {
    spin_ns: u64,
    arrived_ns: u64,
    heavy_until_ns: u64,
    spins: bool,
}

impl Idler {
    /// A nap while traffic is heavy (30 µs was best of what was tried: most of a socket's buffer stays free meanwhile).
    pub const NAP: std::time::Duration = std::time::Duration::from_micros(30);

    /// Spins for at most `spin_ns` after an arrival; 0: never.
    #[must_use]
    pub fn new(spin_ns: u64) -> Idler {
        Idler { spin_ns, arrived_ns: 0, heavy_until_ns: 0, spins: false }
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
        self.spins = by_arrival && to_ns.saturating_sub(from_ns) < self.spin_ns;
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
    fn no_spin_where_none_is_wanted() {
        let mut idler = Idler::new(0);
        idler.slept(0, 0, true);
        idler.arrived(0, 1);
        assert_eq!(idler.choose(0), Idle::Sleep);
    }
}
