//! How much may be on the way at once, and how fast it may leave: slow start, then additive increase and multiplicative
//! decrease, in bytes; on paths long enough for it, spread over the round trip (RFC 9002, 7.7).

/// The window at the start, in bytes: one super-packet.
const INITIAL_BYTES: u64 = 65_536;
/// Its floor, and where it starts again after a time-out, in bytes.
const MIN_BYTES: u64 = 16_384;
/// Its ceiling, in bytes; the receiver's credit is the tighter bound everywhere but on long fat paths.
const MAX_BYTES: u64 = 64 << 20;
/// The growth in a round trip once it knows the path, in bytes: a few packets, so that a bottleneck with a small
/// queue loses few when it overflows.
const STEP_BYTES: u64 = 8192;
/// The rest of it after a loss, in tenths (RFC 9438, 4.6).
const LEFT_TENTHS: u64 = 7;

/// Round trips from here on are paced, in ns. Shorter ones are a machine or a rack, where a timer would cost more than a
/// burst does.
const PACED_RTT_NS: u64 = 2_000_000;
/// The burst that may leave at once on a paced path, as time at its rate, in ns: as coarse as timers are.
const BURST_NS: u64 = 1_000_000;

/// The congestion window of a sender. The number of its last transmission identifies a packet.
#[derive(Debug)]
pub(crate) struct Congestion {
    window_bytes: u64,
    threshold_bytes: u64,
    /// The acknowledged bytes towards the next byte of growth, times [`STEP_BYTES`].
    towards: u64,
    /// The first transmission after the last decrease: what was sent before says nothing new.
    recovery_tx: u64,
    /// Whether the window held something back since the last ack: one that is not used up does not grow.
    limited: bool,
    /// When the path is clear of what was sent, at the pace that the window gives, in ns.
    clear_ns: u64,
    /// Until when the pace holds something back, in ns.
    held_until_ns: Option<u64>,
}

/// The moment and the path, as far as they matter here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now_ns: u64,
    pub(crate) rtt_ns: u64,
    pub(crate) flight_bytes: u64,
}

impl Congestion {
    pub(crate) fn new() -> Congestion {
        Congestion {
            window_bytes: INITIAL_BYTES,
            threshold_bytes: MAX_BYTES,
            towards: 0,
            recovery_tx: 0,
            limited: false,
            clear_ns: 0,
            held_until_ns: None,
        }
    }

    /// How many of `wanted` packets may leave now. A few that would fit are kept until an eighth of the window is free, so
    /// that a large window is not refilled packet by packet.
    pub(crate) fn admit(&mut self, wanted: u32, packet_bytes: u64, at: Moment) -> u32 {
        let packet_bytes = packet_bytes.max(1);
        let fitting = self.window_bytes.saturating_sub(at.flight_bytes) / packet_bytes;
        let enough = (self.window_bytes / 8 / packet_bytes).clamp(1, wanted.max(1).into());
        let mut admitted = if fitting >= enough {
            wanted.min(u32::try_from(fitting).unwrap_or(u32::MAX))
        } else {
            u32::from(at.flight_bytes == 0).min(wanted)
        };
        if admitted > 0 && at.rtt_ns >= PACED_RTT_NS {
            if at.now_ns < self.clear_ns {
                self.held_until_ns = Some(self.clear_ns);
                admitted = 0;
            }
            let burst = self.pace_bytes().saturating_mul(BURST_NS) / at.rtt_ns / packet_bytes;
            admitted = admitted.min(u32::try_from(burst.max(1)).unwrap_or(u32::MAX));
        }
        self.limited |= admitted < wanted;
        admitted
    }

    /// Notes that `bytes` left.
    pub(crate) fn sent(&mut self, bytes: u64, at: Moment) {
        let takes_ns = bytes.saturating_mul(at.rtt_ns) / self.pace_bytes();
        self.clear_ns = self.clear_ns.max(at.now_ns.saturating_sub(BURST_NS)).saturating_add(takes_ns);
    }

    /// The bytes that leave in a round trip, in bytes: more than the window, so that it is the window that holds back.
    fn pace_bytes(&self) -> u64 {
        if self.window_bytes < self.threshold_bytes { self.window_bytes * 2 } else { self.window_bytes * 5 / 4 }
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

    /// Bytes were acknowledged whose transmission came after the last decrease.
    pub(crate) fn acked(&mut self, bytes: u64) {
        if !std::mem::take(&mut self.limited) {
            return;
        }
        if self.window_bytes < self.threshold_bytes {
            self.window_bytes += bytes;
        } else {
            self.towards += STEP_BYTES * bytes;
            self.window_bytes += self.towards / self.window_bytes;
            self.towards %= self.window_bytes;
        }
        self.window_bytes = self.window_bytes.min(MAX_BYTES);
    }

    /// Packets count as lost, the last of them sent as `newest_tx`; the next transmission will be `next_tx`.
    pub(crate) fn lost(&mut self, newest_tx: u64, next_tx: u64) {
        if newest_tx >= self.recovery_tx {
            self.recovery_tx = next_tx;
            self.window_bytes = (self.window_bytes * LEFT_TENTHS / 10).max(MIN_BYTES);
            self.threshold_bytes = self.window_bytes;
            self.towards = 0;
        }
    }

    /// Nothing came back in time.
    pub(crate) fn timed_out(&mut self, next_tx: u64) {
        self.recovery_tx = next_tx;
        self.threshold_bytes = (self.window_bytes / 2).max(MIN_BYTES);
        self.window_bytes = MIN_BYTES;
        self.towards = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short path, where nothing is paced.
    fn near(flight_bytes: u64) -> Moment {
        Moment { now_ns: 0, rtt_ns: 50_000, flight_bytes }
    }

    #[test]
    fn it_doubles_in_a_round_trip_then_takes_steps() {
        let mut window = Congestion::new();
        assert_eq!(window.admit(100, 1024, near(0)), 64);
        window.acked(INITIAL_BYTES);
        assert_eq!(window.admit(200, 1024, near(0)), 128);
        window.lost(99, 100);
        let left = 128 * 1024 * 7 / 10;
        assert_eq!(window.window_bytes, left);
        // More of the same flight says nothing new.
        window.lost(99, 150);
        assert_eq!(window.window_bytes, left);
        window.admit(200, 1024, near(0));
        window.acked(left);
        assert_eq!(window.window_bytes, left + STEP_BYTES);
        window.timed_out(200);
        assert_eq!(window.admit(200, 1024, near(0)), 16);
    }

    #[test]
    fn it_does_not_grow_unless_it_is_used_up() {
        let mut window = Congestion::new();
        assert_eq!(window.admit(10, 1024, near(0)), 10);
        window.acked(10 * 1024);
        assert_eq!(window.window_bytes, INITIAL_BYTES);
    }

    #[test]
    fn a_large_packet_leaves_alone_and_crumbs_wait() {
        let mut window = Congestion::new();
        window.timed_out(0);
        assert_eq!(window.admit(3, 60_000, near(0)), 1);
        assert_eq!(window.admit(3, 60_000, near(60_000)), 0);
        assert_eq!(window.admit(20, 1024, near(MIN_BYTES - 1024)), 0);
        assert_eq!(window.admit(20, 1024, near(MIN_BYTES - 2048)), 2);
        assert_eq!(window.admit(1, 1024, near(MIN_BYTES - 1024)), 1);
    }

    #[test]
    fn a_long_path_is_paced() {
        let mut window = Congestion::new();
        window.lost(0, 1);
        window.window_bytes = 800 << 10;
        let (mut sent, mut now_ns, mut bursts) = (0, 0, 0);
        // A pace of 1,000 KiB a round trip of 20 ms, so 50 KiB a millisecond; timers that come half a millisecond late.
        while now_ns < 10_000_000 {
            window.clear_hold();
            let at = Moment { now_ns, rtt_ns: 20_000_000, flight_bytes: 0 };
            match window.admit(64, 1024, at) {
                0 => now_ns = window.held_until_ns().unwrap() + 500_000,
                admitted => {
                    assert!(admitted <= 50);
                    window.sent(u64::from(admitted) << 10, at);
                    (sent, bursts) = (sent + admitted, bursts + 1);
                }
            }
        }
        assert!((500..=600).contains(&sent) && bursts <= 12, "{sent} packets in {bursts} bursts");
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let mut window = Congestion::new();
        let at = Moment { now_ns: u64::MAX - 1, rtt_ns: u64::MAX, flight_bytes: 0 };
        for _ in 0..10 {
            window.admit(64, 1 << 40, at);
            window.sent(1 << 50, at);
            window.acked(1 << 40);
        }
        assert_eq!(window.window_bytes, MAX_BYTES);
    }
}
