//! The effect of a path on the datagrams that take it.

use fastrand::Rng;

/// The two bits of ECN in an IP header: capable of it, and marked.
pub(crate) const ECT_0: u8 = 0b10;
pub(crate) const CE: u8 = 0b11;

/// The treatment of ECN's bits by a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnPath {
    /// They stay.
    Kept,
    /// They are cleared.
    Cleared,
    /// Datagrams that have them are marked.
    Marked,
    /// Datagrams that have them are dropped.
    Dropped,
}

/// A path in one direction. Probabilities are per datagram, 0 to 1.
#[derive(Clone, Debug)]
pub struct Link {
    /// Time from one end to the other, in ns.
    pub delay_ns: u64,
    /// Up to so much more, evenly spread, without changing the order, in ns.
    pub jitter_ns: u64,
    /// Bandwidth in bytes a second; 0 for no bound.
    pub bytes_per_s: u64,
    /// Bytes that may wait for the bandwidth; what comes on top is dropped.
    pub queue_bytes: u64,
    /// The longest datagram that crosses it, in bytes; a longer one is dropped without a word. [`usize::MAX`] for no bound.
    pub mtu_bytes: usize,
    /// Bytes that wait for the bandwidth, from which on what comes is marked (CE) if it is capable of ECN.
    pub mark_bytes: u64,
    /// The treatment of ECN's bits otherwise.
    pub ecn: EcnPath,
    /// Probability that a datagram is lost.
    pub loss: f64,
    /// Probability that a datagram comes twice.
    pub duplication: f64,
    /// Probability that a datagram leaves the order and is late by up to [`Link::reordering_ns`].
    pub reordering: f64,
    /// How late at most, in ns.
    pub reordering_ns: u64,
    /// Probability that a datagram is spoilt.
    pub corruption: f64,
    /// How it is spoilt.
    pub corrupt: fn(&mut Rng, &mut Vec<u8>),
}

impl Link {
    /// A perfect path that takes `delay_ns`.
    #[must_use]
    pub fn new(delay_ns: u64) -> Link {
        Link {
            delay_ns,
            jitter_ns: 0,
            bytes_per_s: 0,
            queue_bytes: u64::MAX,
            mtu_bytes: usize::MAX,
            mark_bytes: u64::MAX,
            ecn: EcnPath::Kept,
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            reordering_ns: 0,
            corruption: 0.0,
            corrupt: flip_or_truncate,
        }
    }

    /// The same with a bandwidth, and a bound on what may wait for it.
    #[must_use]
    pub fn with_bandwidth(mut self, bytes_per_s: u64, queue_bytes: u64) -> Link {
        (self.bytes_per_s, self.queue_bytes) = (bytes_per_s, queue_bytes);
        self
    }

    /// The same for datagrams of up to `mtu_bytes` bytes.
    #[must_use]
    pub fn with_mtu(mut self, mtu_bytes: usize) -> Link {
        self.mtu_bytes = mtu_bytes;
        self
    }

    /// The same with a probability of loss.
    #[must_use]
    pub fn with_loss(mut self, loss: f64) -> Link {
        self.loss = loss;
        self
    }
}

/// Flips one to three bits anywhere, or cuts the datagram short.
pub fn flip_or_truncate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() || rng.u8(..4) == 0 {
        bytes.truncate(rng.usize(..bytes.len().max(1)));
        return;
    }
    for _ in 0..rng.u8(1..=3) {
        let at = rng.usize(..bytes.len());
        bytes[at] ^= 1 << rng.u8(..8);
    }
}

/// The counts of a link, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Given to the link.
    pub sent: u64,
    /// Bytes given to the link.
    pub sent_bytes: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Dropped because the queue was full.
    pub overflowed: u64,
    /// Dropped because they were longer than the link takes.
    pub too_long: u64,
    /// Dropped while the link was cut.
    pub cut: u64,
    /// Marked (CE).
    pub marked: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Taken out of the order.
    pub reordered: u64,
    /// Spoilt.
    pub corrupted: u64,
}

/// A link and where it stands.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) link: Link,
    pub(crate) stats: LinkStats,
    pub(crate) cut_until_ns: u64,
    /// When the bandwidth is free again.
    free_ns: u64,
    /// When the last datagram in order arrives: none overtakes it but by [`Link::reordering`].
    last_ns: u64,
}

impl Path {
    pub(crate) fn new(link: Link) -> Path {
        Path { link, stats: LinkStats::default(), cut_until_ns: 0, free_ns: 0, last_ns: 0 }
    }

    /// Takes a datagram; every copy that arrives is given to `arrive` with its time.
    pub(crate) fn carry(
        &mut self,
        rng: &mut Rng,
        now_ns: u64,
        (datagram, ecn): (Vec<u8>, u8),
        mut arrive: impl FnMut(u64, Vec<u8>, u8),
    ) {
        self.stats.sent += 1;
        self.stats.sent_bytes += datagram.len() as u64;
        if now_ns < self.cut_until_ns {
            self.stats.cut += 1;
            return;
        }
        if datagram.len() > self.link.mtu_bytes {
            self.stats.too_long += 1;
            return;
        }
        let waits = self.waiting(now_ns) >= u128::from(self.link.mark_bytes);
        let Some(leaves_ns) = self.queue(now_ns, datagram.len() as u64) else {
            self.stats.overflowed += 1;
            return;
        };
        let Some(ecn) = self.ecn(ecn, waits) else {
            self.stats.lost += 1;
            return;
        };
        if chance(rng, self.link.loss) {
            self.stats.lost += 1;
            return;
        }
        if chance(rng, self.link.duplication) {
            self.stats.duplicated += 1;
            let at = self.arrival(rng, leaves_ns);
            arrive(at, self.spoil(rng, datagram.clone()), ecn);
        }
        let at = self.arrival(rng, leaves_ns);
        arrive(at, self.spoil(rng, datagram), ecn);
    }

    /// ECN's bits at the end; none if the datagram is dropped for them.
    fn ecn(&mut self, ecn: u8, waits: bool) -> Option<u8> {
        if ecn != ECT_0 {
            return Some(ecn);
        }
        match self.link.ecn {
            EcnPath::Dropped => return None,
            EcnPath::Cleared => return Some(0),
            EcnPath::Kept if !waits => return Some(ecn),
            EcnPath::Kept | EcnPath::Marked => {}
        }
        self.stats.marked += 1;
        Some(CE)
    }

    /// Bytes that wait for the bandwidth.
    fn waiting(&self, now_ns: u64) -> u128 {
        u128::from(self.free_ns.saturating_sub(now_ns)) * u128::from(self.link.bytes_per_s) / 1_000_000_000
    }

    /// When the last byte leaves the queue, unless it is full.
    fn queue(&mut self, now_ns: u64, bytes: u64) -> Option<u64> {
        if self.link.bytes_per_s == 0 {
            return Some(now_ns);
        }
        let starts_ns = self.free_ns.max(now_ns);
        if self.waiting(now_ns) + u128::from(bytes) > u128::from(self.link.queue_bytes) {
            return None;
        }
        self.free_ns = starts_ns + bytes * 1_000_000_000 / self.link.bytes_per_s;
        Some(self.free_ns)
    }

    fn arrival(&mut self, rng: &mut Rng, leaves_ns: u64) -> u64 {
        let at = leaves_ns + self.link.delay_ns + up_to(rng, self.link.jitter_ns);
        if chance(rng, self.link.reordering) {
            self.stats.reordered += 1;
            return at + up_to(rng, self.link.reordering_ns);
        }
        self.last_ns = self.last_ns.max(at);
        self.last_ns
    }

    fn spoil(&mut self, rng: &mut Rng, mut datagram: Vec<u8>) -> Vec<u8> {
        if chance(rng, self.link.corruption) {
            self.stats.corrupted += 1;
            (self.link.corrupt)(rng, &mut datagram);
        }
        datagram
    }
}

fn chance(rng: &mut Rng, probability: f64) -> bool {
    probability > 0.0 && rng.f64() < probability
}

fn up_to(rng: &mut Rng, most: u64) -> u64 {
    if most == 0 { 0 } else { rng.u64(..=most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(link: Link, datagrams: usize, bytes: usize) -> (Vec<u64>, LinkStats) {
        let (mut path, mut rng) = (Path::new(link), Rng::with_seed(1));
        let mut times = Vec::new();
        for _ in 0..datagrams {
            path.carry(&mut rng, 1000, (vec![0; bytes], ECT_0), |at, _, _| times.push(at));
        }
        (times, path.stats)
    }

    #[test]
    fn bandwidth_spaces_datagrams_and_its_queue_is_bounded() {
        // 1,000 bytes at 1 MB/s take 1 ms; 2,500 bytes may wait.
        let (times, stats) = times(Link::new(5000).with_bandwidth(1_000_000, 2500), 4, 1000);
        assert_eq!(times, [1_006_000, 2_006_000]);
        assert_eq!((stats.sent, stats.overflowed), (4, 2));
    }

    #[test]
    fn a_queue_that_grows_marks_what_is_capable_of_it() {
        let link = Link { mark_bytes: 1500, ..Link::new(0).with_bandwidth(1_000_000, 10_000) };
        assert_eq!(times(link.clone(), 5, 1000).1.marked, 3);
        assert_eq!(times(Link { ecn: EcnPath::Cleared, ..link.clone() }, 5, 1000).1.marked, 0);
        assert_eq!(times(Link { ecn: EcnPath::Marked, ..link.clone() }, 5, 1000).1.marked, 5);
        assert_eq!(times(Link { ecn: EcnPath::Dropped, ..link }, 5, 1000).1.lost, 5);
    }

    #[test]
    fn a_datagram_that_is_longer_than_the_link_takes_is_dropped() {
        let link = Link::new(5000).with_mtu(1000);
        assert_eq!(times(link.clone(), 2, 1000).0.len(), 2);
        let (times, stats) = times(link, 2, 1001);
        assert_eq!((times.len(), stats.sent, stats.too_long), (0, 2, 2));
    }

    #[test]
    fn jitter_keeps_the_order_and_reordering_does_not() {
        let jitter = Link { jitter_ns: 10_000, ..Link::new(5000) };
        let (steady, _) = times(jitter.clone(), 500, 10);
        assert!(steady.is_sorted() && steady.first() != steady.last());
        let (mixed, stats) = times(Link { reordering: 0.5, reordering_ns: 50_000, ..jitter }, 500, 10);
        assert!(!mixed.is_sorted());
        assert!((200..300).contains(&stats.reordered), "{stats:?}");
        assert!(mixed.iter().all(|at| (6000..=66_000).contains(at)));
    }

    #[test]
    fn faults_come_as_often_as_asked() {
        let link = Link { loss: 0.1, duplication: 0.2, corruption: 0.3, ..Link::new(0) };
        let (times, stats) = times(link, 10_000, 10);
        assert!((900..1100).contains(&stats.lost), "{stats:?}");
        assert_eq!(times.len() as u64, stats.sent - stats.lost + stats.duplicated);
        assert!((1700..1900).contains(&stats.duplicated), "{stats:?}");
        let share = stats.corrupted as f64 / times.len() as f64;
        assert!((0.27..0.33).contains(&share), "{stats:?}");
    }

    #[test]
    fn spoilt_datagrams_differ() {
        let mut rng = Rng::with_seed(3);
        let mut same = 0;
        for len in 0..1000 {
            let before = vec![0x5a; len % 40];
            let mut after = before.clone();
            flip_or_truncate(&mut rng, &mut after);
            assert!(after.len() <= before.len());
            same += usize::from(after == before);
        }
        // Two flips may undo each other, and an empty datagram stays as it is.
        assert!(same < 100, "{same} of 1000 unchanged");
    }
}
