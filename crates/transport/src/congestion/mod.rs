//! How much may be on the way at once, and how fast it may leave, in bytes: what CUBIC allows ([`cubic`]), on paths long enough for
//! it spread over the round trip (RFC 9002, 7.7); or a rate that the configuration states.

mod cubic;
mod slow_start;

use crate::trace::CongestionPhase;
use cubic::Cubic;
use slow_start::{Growth, SlowStart};

/// The window at the start, in bytes: one super-packet.
const INITIAL_BYTES: u64 = 65_536;

/// Paths whose shortest round trip is at least this long are paced, in ns. Shorter ones are a machine or a rack, where a timer would
/// cost more than a burst does, and where a longer round trip shows a process that had to wait for its turn.
const PACED_RTT_NS: u64 = 2_000_000;
/// The burst that may leave at once on a paced path, as time at its rate, in ns: as coarse as timers are.
const BURST_NS: u64 = 1_000_000;
/// The same in packets, on a path so slow that it would be fewer: each burst costs a timer and an ack. RFC 9002 allows ten.
const BURST_PACKETS: u64 = 4;
/// How late a timer may come without loss of pace, in ns: what it is late by leaves at once as well, and a small queue must hold both.
const LATE_NS: u64 = BURST_NS / 2;

/// The controller that decides.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every session has the large one, and an ack should not follow a pointer"
)]
enum Control {
    /// The found rate of the path.
    Cubic(Cubic, SlowStart),
    /// A rate in bytes a second: the path is known to take it, whatever is lost.
    Rate(u64),
}

/// The congestion control of a sender. The number of its last transmission identifies a packet.
#[derive(Debug)]
pub(crate) struct Congestion {
    control: Control,
    /// The first transmission after the last decrease: what was sent before says nothing new.
    recovery_tx: u64,
    /// Packets that were lost with the last decrease and have not turned out to be late.
    lost_packets: u64,
    /// Whether nothing has been acknowledged that was sent after it.
    recovers: bool,
    /// Whether the window held something back since the last ack, or the pace while it was at least half full: one that is not
    /// used up does not grow.
    limited: bool,
    /// When the path is clear of what was sent, at the pace that holds, in ns.
    clear_ns: u64,
    /// Until when the pace holds something back, in ns.
    held_until_ns: Option<u64>,
}

/// The moment and the path, as far as they matter here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now_ns: u64,
    pub(crate) rtt_ns: u64,
    pub(crate) shortest_rtt_ns: u64,
    pub(crate) flight_bytes: u64,
}

impl Moment {
    /// Whether the path is long enough to be paced.
    fn is_paced(self) -> bool {
        self.shortest_rtt_ns >= PACED_RTT_NS
    }
}

/// The content of an ack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    /// The acknowledged bytes whose transmission came after the last decrease, in bytes.
    pub(crate) bytes: u64,
    /// The newest transmission that was acknowledged, and the number of the next.
    pub(crate) newest_tx: u64,
    pub(crate) next_tx: u64,
    /// A round-trip time without the ack's delay, in ns.
    pub(crate) sample_ns: Option<u64>,
}

impl Congestion {
    /// For packets of `packet_bytes`; at a rate in bytes a second, unless that is 0.
    pub(crate) fn new(packet_bytes: usize, bytes_per_s: u64) -> Congestion {
        let control = match bytes_per_s {
            0 => Control::Cubic(Cubic::new(INITIAL_BYTES, packet_bytes as u64), SlowStart::new()),
            rate => Control::Rate(rate),
        };
        Congestion {
            control,
            recovery_tx: 0,
            lost_packets: 0,
            recovers: false,
            limited: false,
            clear_ns: 0,
            held_until_ns: None,
        }
    }

    /// How many of `wanted` packets may leave now. A few that would fit are kept until an eighth of the window is free, so
    /// that a large window is not refilled packet by packet.
    pub(crate) fn admit(&mut self, wanted: u32, packet_bytes: u64, at: Moment) -> u32 {
        let packet_bytes = packet_bytes.max(1);
        let window_bytes = match &self.control {
            Control::Cubic(window, _) => window.bytes(),
            Control::Rate(_) => u64::MAX,
        };
        let fitting = window_bytes.saturating_sub(at.flight_bytes) / packet_bytes;
        let enough = (window_bytes / 8 / packet_bytes).clamp(1, wanted.max(1).into());
        let mut admitted = if fitting >= enough {
            wanted.min(u32::try_from(fitting).unwrap_or(u32::MAX))
        } else {
            u32::from(at.flight_bytes == 0).min(wanted)
        };
        self.limited |= admitted < wanted;
        if admitted > 0 && (at.is_paced() || matches!(self.control, Control::Rate(_))) {
            if at.now_ns < self.clear_ns {
                self.held_until_ns = Some(self.clear_ns);
                admitted = 0;
            }
            let (pace_bytes, in_ns) = self.pace(at.rtt_ns);
            let burst = pace_bytes.saturating_mul(BURST_NS) / in_ns / packet_bytes;
            admitted = admitted.min(u32::try_from(burst.max(BURST_PACKETS)).unwrap_or(u32::MAX));
            // Without the pace the window would be used up soon (RFC 9002, 7.8); one that is half empty may never be.
            self.limited |= admitted < wanted && at.flight_bytes >= window_bytes / 2;
        }
        admitted
    }

    /// The window in bytes; none where a rate is stated.
    pub(crate) fn window_bytes(&self) -> Option<u64> {
        match &self.control {
            Control::Cubic(window, _) => Some(window.bytes()),
            Control::Rate(_) => None,
        }
    }

    /// The phase of the window.
    pub(crate) fn phase(&self) -> CongestionPhase {
        match &self.control {
            Control::Rate(_) => CongestionPhase::StatedRate,
            Control::Cubic(..) if self.recovers => CongestionPhase::Recovery,
            Control::Cubic(window, _) if window.is_in_slow_start() => CongestionPhase::SlowStart,
            Control::Cubic(..) => CongestionPhase::Avoidance,
        }
    }

    /// Notes that `bytes` left.
    pub(crate) fn sent(&mut self, bytes: u64, at: Moment) {
        let (pace_bytes, in_ns) = self.pace(at.rtt_ns);
        let takes_ns = bytes.saturating_mul(in_ns) / pace_bytes.max(1);
        self.clear_ns = self.clear_ns.max(at.now_ns.saturating_sub(LATE_NS)).saturating_add(takes_ns);
    }

    /// The bytes that leave, and the time for them in ns: more than the window in a round trip, so that it is the window
    /// that holds back; but no more after a loss, so that the queue that overflowed drains.
    fn pace(&self, rtt_ns: u64) -> (u64, u64) {
        match &self.control {
            Control::Cubic(window, _) if window.is_in_slow_start() => (window.bytes() * 2, rtt_ns),
            Control::Cubic(window, _) if self.recovers => (window.bytes(), rtt_ns),
            Control::Cubic(window, _) => (window.bytes() * 5 / 4, rtt_ns),
            Control::Rate(bytes_per_s) => (*bytes_per_s, 1_000_000_000),
        }
    }

    /// Withdraws that the pace holds something; the next [`Congestion::admit`] says it anew.
    pub(crate) fn clear_hold(&mut self) {
        self.held_until_ns = None;
    }

    /// Until when the pace holds something back, in ns.
    pub(crate) fn held_until_ns(&self) -> Option<u64> {
        self.held_until_ns
    }

    /// First transmissions from this one on count as new for [`Congestion::acked`].
    pub(crate) fn recovery_tx(&self) -> u64 {
        self.recovery_tx
    }

    /// Something was acknowledged for the first time.
    pub(crate) fn acked(&mut self, acked: Acked, at: Moment) {
        let is_limited = std::mem::take(&mut self.limited);
        self.recovers &= acked.newest_tx < self.recovery_tx;
        let Control::Cubic(window, start) = &mut self.control else { return };
        let mut share = 1;
        if window.is_new() && at.is_paced() {
            match start.acked(acked.newest_tx, acked.next_tx, acked.sample_ns) {
                Growth::One(of) => share = of,
                Growth::Over => window.end_slow_start(),
            }
        }
        if is_limited {
            window.acked(acked.bytes / share, at.now_ns, at.rtt_ns);
        }
    }

    /// `packets` packets count as lost, the last of them sent as `newest_tx`; the next transmission will be `next_tx`.
    pub(crate) fn lost(&mut self, packets: u64, newest_tx: u64, next_tx: u64) {
        if newest_tx >= self.recovery_tx {
            (self.recovery_tx, self.recovers, self.lost_packets) = (next_tx, true, 0);
            if let Control::Cubic(window, _) = &mut self.control {
                window.lost();
            }
        }
        self.lost_packets += packets;
    }

    /// Packets were marked on their way, the newest of them sent as `newest_tx` or before; the next transmission will be `next_tx`. It is
    /// as good as a loss (RFC 9002, 7.1), but no packet of it turns out to be late.
    pub(crate) fn marked(&mut self, newest_tx: u64, next_tx: u64) {
        self.lost(0, newest_tx, next_tx);
    }

    /// `packets` packets that counted as lost were late. If all of them were, the path has lost nothing (RFC 9438, 4.9.2).
    pub(crate) fn late(&mut self, packets: u64) {
        if packets > 0 && self.lost_packets > 0 {
            self.lost_packets = self.lost_packets.saturating_sub(packets);
            if self.lost_packets == 0
                && let Control::Cubic(window, _) = &mut self.control
            {
                window.undo();
            }
        }
    }

    /// Packets were lost while nothing came through for several time-outs: persistent congestion (RFC 9002, 7.6). A
    /// packet sent before transmission `next_tx` says nothing new.
    pub(crate) fn collapsed(&mut self, next_tx: u64) {
        self.recovery_tx = next_tx;
        if let Control::Cubic(window, _) = &mut self.control {
            window.collapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cubic::{MAX_BYTES, MIN_BYTES};
    use super::*;

    fn found() -> Congestion {
        Congestion::new(1024, 0)
    }

    fn window_bytes(congestion: &Congestion) -> u64 {
        match &congestion.control {
            Control::Cubic(window, _) => window.bytes(),
            Control::Rate(_) => panic!("a rate has no window"),
        }
    }

    fn acked(bytes: u64) -> Acked {
        Acked { bytes, newest_tx: 0, next_tx: 1, sample_ns: None }
    }

    /// A short path, where nothing is paced.
    fn near(flight_bytes: u64) -> Moment {
        Moment { now_ns: 0, rtt_ns: 50_000, shortest_rtt_ns: 50_000, flight_bytes }
    }

    #[test]
    fn a_mark_shrinks_it_once_a_round_trip_and_is_not_withdrawn() {
        let mut congestion = found();
        let before = window_bytes(&congestion);
        congestion.marked(5, 10);
        let marked = window_bytes(&congestion);
        assert_eq!(marked, before * 7 / 10);
        congestion.marked(9, 12);
        congestion.late(5);
        assert_eq!(window_bytes(&congestion), marked);
        congestion.marked(10, 20);
        assert!(window_bytes(&congestion) < marked);
    }

    #[test]
    fn it_doubles_in_a_round_trip_until_a_loss() {
        let mut window = found();
        assert_eq!(window.admit(100, 1024, near(0)), 64);
        window.acked(acked(INITIAL_BYTES), near(0));
        assert_eq!(window.admit(200, 1024, near(0)), 128);
        window.lost(1, 99, 100);
        let left = 128 * 1024 * 7 / 10;
        assert_eq!(window_bytes(&window), left);
        // More of the same flight says nothing new.
        window.lost(1, 99, 150);
        assert_eq!(window_bytes(&window), left);
        window.admit(200, 1024, near(0));
        window.acked(acked(left), near(0));
        assert_eq!(window_bytes(&window), left + 1024 * 9 / 17);
        window.collapsed(160);
        assert_eq!(window.admit(200, 1024, near(0)), 16);
        // The rest of what was lost in the silence does not end the slow start that follows.
        window.lost(50, 159, 170);
        window.acked(acked(MIN_BYTES), near(0));
        assert_eq!(window_bytes(&window), 2 * MIN_BYTES);
    }

    #[test]
    fn a_decrease_is_withdrawn_when_all_that_was_lost_was_late() {
        let mut window = found();
        window.lost(2, 9, 20);
        window.lost(1, 12, 22);
        window.late(2);
        assert_eq!(window_bytes(&window), INITIAL_BYTES * 7 / 10);
        window.late(1);
        assert_eq!(window_bytes(&window), INITIAL_BYTES);
        window.lost(1, 22, 30);
        window.lost(1, 30, 40);
        window.late(1);
        assert_eq!(window_bytes(&window), INITIAL_BYTES * 7 / 10, "of two decreases, the last");
        window.late(1);
        assert_eq!(window_bytes(&window), INITIAL_BYTES * 7 / 10, "once");
    }

    #[test]
    fn it_does_not_grow_unless_it_is_used_up() {
        let mut window = found();
        assert_eq!(window.admit(10, 1024, near(0)), 10);
        window.acked(acked(10 * 1024), near(0));
        assert_eq!(window_bytes(&window), INITIAL_BYTES);
    }

    #[test]
    fn a_large_packet_leaves_alone_and_crumbs_wait() {
        let mut window = found();
        window.collapsed(0);
        assert_eq!(window.admit(3, 60_000, near(0)), 1);
        assert_eq!(window.admit(3, 60_000, near(60_000)), 0);
        assert_eq!(window.admit(20, 1024, near(MIN_BYTES - 1024)), 0);
        assert_eq!(window.admit(20, 1024, near(MIN_BYTES - 2048)), 2);
        assert_eq!(window.admit(1, 1024, near(MIN_BYTES - 1024)), 1);
    }

    /// Sends as much as is admitted in `for_ns`, with timers that come half a millisecond late: packets of 1 KiB, and bursts.
    fn send(congestion: &mut Congestion, for_ns: u64, rtt_ns: u64, most: u32) -> (u32, u32) {
        let (mut sent, mut now_ns, mut bursts) = (0, 0, 0);
        while now_ns < for_ns {
            congestion.clear_hold();
            let at = Moment { now_ns, rtt_ns, shortest_rtt_ns: rtt_ns, flight_bytes: 0 };
            match congestion.admit(64, 1024, at) {
                0 => now_ns = congestion.held_until_ns().unwrap() + 500_000,
                admitted => {
                    assert!(admitted <= most);
                    congestion.sent(u64::from(admitted) << 10, at);
                    (sent, bursts) = (sent + admitted, bursts + 1);
                }
            }
        }
        (sent, bursts)
    }

    #[test]
    fn a_long_path_is_paced() {
        let mut window = found();
        let Control::Cubic(cubic, _) = &mut window.control else { panic!() };
        *cubic = Cubic::new(800 << 10, 1024);
        cubic.end_slow_start();
        // A pace of 1,000 KiB a round trip of 20 ms, so 50 KiB a millisecond.
        let (sent, bursts) = send(&mut window, 10_000_000, 20_000_000, 50);
        assert!((500..=600).contains(&sent) && bursts <= 12, "{sent} packets in {bursts} bursts");
    }

    #[test]
    fn a_stated_rate_holds_on_any_path_whatever_is_lost() {
        for rtt_ns in [0, 50_000, 20_000_000] {
            let mut rate = Congestion::new(1024, 51_200_000);
            for round in 0..100 {
                rate.lost(1, round, round + 1);
                rate.collapsed(round);
                rate.acked(acked(1 << 20), near(0));
            }
            let (sent, bursts) = send(&mut rate, 10_000_000, rtt_ns, 50);
            assert!((500..=600).contains(&sent) && bursts <= 12, "{sent} packets in {bursts} bursts");
        }
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        for bytes_per_s in [0, 1, u64::MAX] {
            let mut window = Congestion::new(usize::MAX, bytes_per_s);
            let (now_ns, rtt_ns) = (u64::MAX - 1, u64::MAX);
            let at = Moment { now_ns, rtt_ns, shortest_rtt_ns: rtt_ns, flight_bytes: 0 };
            for _ in 0..10 {
                window.admit(64, 1 << 40, at);
                window.sent(1 << 50, at);
                window.acked(acked(1 << 40), at);
            }
            assert!(bytes_per_s > 0 || window_bytes(&window) == MAX_BYTES);
        }
    }
}
