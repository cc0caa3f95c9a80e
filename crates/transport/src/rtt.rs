//! The round-trip estimate, and what follows from it: when a packet that others have overtaken counts as lost, and when a sender
//! that hears nothing probes the path (RFC 9002, 5 and 6).

use crate::receiver::MAX_ACK_DELAY_NS;

/// The shortest probe time-out: well above the delay of a delayed ack and a scheduler's hiccup.
pub(crate) const MIN_PTO_NS: u64 = 30_000_000;
/// The least that the variation counts for: on a steady path it goes to nothing, and the peer is a process that may have to
/// wait for its turn.
const MIN_MARGIN_NS: u64 = 8_000_000;
/// The longest.
pub(crate) const MAX_PTO_NS: u64 = 4_000_000_000;
/// How long a path that takes nothing is left alone between two probes at most, unless its round trip is longer: so soon is it
/// noticed that it is there again. In ns.
const PROBE_EVERY_NS: u64 = 500_000_000;
/// Before the first sample (RFC 9002 says 1 s; sessions here begin with a handshake that has already been answered).
const INITIAL_PTO_NS: u64 = 250_000_000;
/// No packet is late sooner than this, in ns: what timers and schedulers make of a short path (`kGranularity`).
const GRANULARITY_NS: u64 = 1_000_000;

/// How long the shortest round trip is remembered, in ns, at least; it is forgotten before twice that time. A path that has become
/// longer is known as such from then on (BBR, 4.1.1, has 10 s).
const SHORTEST_NS: u64 = 5_000_000_000;

/// The shortest round trip of the last while.
#[derive(Clone, Copy, Debug, Default)]
struct Shortest {
    /// Since when the second one holds, in ns.
    since_ns: u64,
    /// Of the time before, and of the time since, in ns.
    before_ns: u64,
    now_ns: u64,
}

impl Shortest {
    fn first(sample_ns: u64, at_ns: u64) -> Shortest {
        Shortest { since_ns: at_ns, before_ns: u64::MAX, now_ns: sample_ns }
    }

    fn sample(&mut self, sample_ns: u64, at_ns: u64) {
        match at_ns.saturating_sub(self.since_ns) / SHORTEST_NS {
            0 => self.now_ns = self.now_ns.min(sample_ns),
            1 => *self = Shortest { before_ns: self.now_ns, ..Shortest::first(sample_ns, at_ns) },
            _ => *self = Shortest::first(sample_ns, at_ns),
        }
    }

    fn ns(self) -> u64 {
        self.before_ns.min(self.now_ns)
    }
}

/// Smoothed round-trip time and its variation, in ns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rtt {
    latest_ns: u64,
    smoothed_ns: u64,
    variation_ns: u64,
    shortest: Shortest,
    sampled: bool,
}

impl Rtt {
    /// Takes a sample at `now_ns`; `ack_delay_ns` is the time for which the peer says that it delayed the ack.
    ///
    /// The delay cannot bring the estimate below the shortest round trip, from which no more than [`MAX_ACK_DELAY_NS`] is subtracted
    /// (RFC 9002, 5.3). A peer that overstates its delay makes the estimate short by that much, and a long path stays paced.
    pub(crate) fn sample(&mut self, measured_ns: u64, ack_delay_ns: u64, now_ns: u64) {
        let least_ns = measured_ns.saturating_sub(ack_delay_ns.min(MAX_ACK_DELAY_NS));
        if self.sampled {
            self.shortest.sample(least_ns, now_ns);
        } else {
            self.shortest = Shortest::first(least_ns, now_ns);
        }
        let net_ns = measured_ns.saturating_sub(ack_delay_ns).max(self.minimum_ns());
        self.latest_ns = net_ns;
        if !self.sampled {
            (self.smoothed_ns, self.variation_ns, self.sampled) = (measured_ns, measured_ns / 2, true);
            return;
        }
        self.variation_ns = (3 * (self.variation_ns / 4)).saturating_add(self.smoothed_ns.abs_diff(net_ns) / 4);
        self.smoothed_ns = (7 * (self.smoothed_ns / 8)).saturating_add(net_ns / 8);
    }

    /// The last round trip took `measured_ns` at least, so that a packet of the same age is not late.
    pub(crate) fn at_least(&mut self, measured_ns: u64, ack_delay_ns: u64) {
        self.latest_ns = self.latest_ns.max(measured_ns.saturating_sub(ack_delay_ns));
    }

    /// Whether there was a sample.
    pub(crate) fn is_known(&self) -> bool {
        self.sampled
    }

    /// The last sample without the delay of the ack, in ns.
    pub(crate) fn latest_ns(&self) -> u64 {
        self.latest_ns
    }

    /// The smoothed round-trip time in ns; zero before the first sample.
    pub(crate) fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// The variation of the round-trip time in ns; zero before the first sample.
    pub(crate) fn variation_ns(&self) -> u64 {
        self.variation_ns
    }

    /// The shortest round-trip time of the last five to ten seconds, without the delay of the ack, in ns; zero before the first sample.
    pub(crate) fn minimum_ns(&self) -> u64 {
        self.shortest.ns()
    }

    /// How long after its transmission a packet that a later one has overtaken counts as lost, in ns: nine eighths of a round trip
    /// where three packets are the threshold (RFC 9002, 6.1.2), and in proportion more, two at most, where it has grown.
    pub(crate) fn overtaken_ns(&self, reordering_packets: u64) -> u64 {
        if !self.sampled {
            return INITIAL_PTO_NS;
        }
        let round_trip_ns = self.smoothed_ns.max(self.latest_ns);
        let more_ns = (round_trip_ns / 24).saturating_mul(reordering_packets.min(24));
        round_trip_ns.saturating_add(more_ns).max(GRANULARITY_NS)
    }

    /// The probe time-out in ns after `backoff` doublings.
    pub(crate) fn pto_ns(&self, backoff: u32) -> u64 {
        let base_ns = if self.sampled {
            // RFC 9002, 6.2.1: the estimate is without the delay of the ack, the time-out must leave room for it.
            let margin_ns = self.variation_ns.saturating_mul(4).max(MIN_MARGIN_NS).saturating_add(MAX_ACK_DELAY_NS);
            self.smoothed_ns.saturating_add(margin_ns).max(MIN_PTO_NS)
        } else {
            INITIAL_PTO_NS
        };
        base_ns.saturating_mul(1 << backoff.min(10)).min(base_ns.max(PROBE_EVERY_NS)).min(MAX_PTO_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_and_the_time_out_backs_off() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.pto_ns(0), INITIAL_PTO_NS);
        for _ in 0..100 {
            rtt.sample(80_000_000, 10_000_000, 0);
        }
        assert!((69_000_000..=80_000_000).contains(&rtt.smoothed_ns()), "{}", rtt.smoothed_ns());
        assert_eq!(rtt.pto_ns(1), 2 * rtt.pto_ns(0));
        assert_eq!(rtt.pto_ns(60), PROBE_EVERY_NS);
        rtt.sample(3_000_000_000, 0, 0);
        assert_eq!(rtt.pto_ns(60), rtt.pto_ns(0));
    }

    #[test]
    fn an_overtaken_packet_counts_as_lost_after_nine_eighths_of_a_round_trip() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.overtaken_ns(3), INITIAL_PTO_NS);
        (0..100).for_each(|_| rtt.sample(80_000_000, 0, 0));
        assert!(rtt.overtaken_ns(3).abs_diff(90_000_000) < 100);
        assert!(rtt.overtaken_ns(24).abs_diff(160_000_000) < 100);
        assert_eq!(rtt.overtaken_ns(256), rtt.overtaken_ns(24));
        rtt.sample(160_000_000, 0, 0);
        assert!(rtt.overtaken_ns(3).abs_diff(180_000_000) < 100);
        let mut near = Rtt::default();
        near.sample(50_000, 0, 0);
        assert_eq!(near.overtaken_ns(3), GRANULARITY_NS);
    }

    #[test]
    fn a_steady_path_leaves_room_for_the_delay_of_an_ack() {
        let mut rtt = Rtt::default();
        for delay_ns in [0, MAX_ACK_DELAY_NS].repeat(100) {
            rtt.sample(60_000_000 + delay_ns, delay_ns, 0);
        }
        assert!(rtt.smoothed_ns().abs_diff(60_000_000) < 100);
        assert!(rtt.pto_ns(0) > 60_000_000 + 2 * MAX_ACK_DELAY_NS);
    }

    #[test]
    fn an_overstated_delay_shortens_the_estimate_by_the_allowed_delay_at_most() {
        const RTT_NS: u64 = 50_000_000;
        for first_delay_ns in [0, RTT_NS, u64::MAX] {
            let mut rtt = Rtt::default();
            rtt.sample(RTT_NS, first_delay_ns, 0);
            for delay_ns in [RTT_NS - 1, RTT_NS, u64::MAX].repeat(100) {
                rtt.sample(RTT_NS, delay_ns, 0);
            }
            let least_ns = RTT_NS - MAX_ACK_DELAY_NS;
            assert_eq!((rtt.minimum_ns(), rtt.latest_ns()), (least_ns, least_ns));
            assert!(rtt.smoothed_ns().abs_diff(least_ns) < 100, "{}", rtt.smoothed_ns());
        }
    }

    #[test]
    fn a_short_path_is_known_as_such_although_its_acks_are_delayed() {
        const RTT_NS: u64 = 50_000;
        let mut rtt = Rtt::default();
        (0..100).for_each(|_| rtt.sample(RTT_NS + MAX_ACK_DELAY_NS, MAX_ACK_DELAY_NS, 0));
        assert_eq!(rtt.minimum_ns(), RTT_NS);
        assert!(rtt.smoothed_ns().abs_diff(RTT_NS) < 100, "{}", rtt.smoothed_ns());
        // The ack that was sent first is lost, and the next one comes after a second; the path is as short as before.
        rtt.sample(RTT_NS - 1000 + 1_000_000_000, 1_000_000_000, 0);
        assert_eq!((rtt.minimum_ns(), rtt.latest_ns()), (RTT_NS, RTT_NS));
    }

    #[test]
    fn the_shortest_round_trip_is_forgotten_after_ten_seconds() {
        const MS: u64 = 1_000_000;
        let mut rtt = Rtt::default();
        rtt.sample(50_000, 0, 0);
        // A path that has become longer, and its samples.
        let mut longer = |from_ms: u64, to_ms: u64| {
            (from_ms..to_ms).step_by(40).for_each(|at_ms| rtt.sample(40 * MS, 0, at_ms * MS));
            rtt.minimum_ns()
        };
        assert_eq!(longer(40, 5000), 50_000);
        assert_eq!(longer(5000, 10_000), 50_000);
        assert_eq!(longer(10_000, 10_100), 40 * MS);
        // After a silence the first sample says what the path is like.
        rtt.sample(70_000_000, 0, 60_000 * MS);
        assert_eq!(rtt.minimum_ns(), 70 * MS);
        rtt.sample(50_000, 0, 60_001 * MS);
        assert_eq!(rtt.minimum_ns(), 50_000);
    }

    #[test]
    fn a_hostile_delay_does_not_overflow() {
        let mut rtt = Rtt::default();
        rtt.sample(u64::MAX, u64::MAX, 0);
        rtt.sample(1, u64::MAX, 0);
        rtt.sample(u64::MAX, 0, 0);
        assert!(rtt.pto_ns(5) <= MAX_PTO_NS);
    }
}
