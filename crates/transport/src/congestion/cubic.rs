//! The window of CUBIC (RFC 9438), in bytes and whole numbers, so that it is the same on every machine.
//!
//! After a loss the window grows along a cubic function of time: fast at first, slowly near the size at which the loss came, then
//! faster again. On short paths, where the function would grow more slowly than Reno's line, the line holds (RFC 9438, 4.3).

/// The window's floor, and where it starts again after the path was silent, in bytes.
pub(crate) const MIN_BYTES: u64 = 16_384;
/// Its ceiling, in bytes; the receiver's credit is the tighter bound everywhere but on long fat paths.
pub(crate) const MAX_BYTES: u64 = 64 << 20;

/// The rest of the window after a loss (beta), in tenths.
const LEFT_TENTHS: u64 = 7;
/// The line's growth in a round trip until it has regained what the loss took (alpha), in segments: 3 (1 - beta) / (1 + beta).
const LINE: (u64, u64) = (9, 17);
/// Beyond this time from its middle the function is not followed: it would be far above the ceiling by then. In ms.
const FAR_MS: i64 = 1 << 17;

/// A number that grows by fractions of one.
#[derive(Clone, Copy, Debug, Default)]
struct Growing {
    bytes: u64,
    /// The fraction of the next byte: its numerator over the last divisor.
    rest: u64,
}

impl Growing {
    /// Adds `product / divisor`.
    fn add(&mut self, product: u64, divisor: u64) {
        let sum = product.saturating_add(self.rest);
        let divisor = divisor.max(1);
        self.bytes = self.bytes.saturating_add(sum / divisor);
        self.rest = sum % divisor;
    }
}

/// A stage of congestion avoidance: from a loss, or the end of slow start, to the next loss.
#[derive(Clone, Copy, Debug)]
struct Stage {
    /// Where the function is flat, in bytes (`W_max`).
    plateau_bytes: u64,
    /// When it gets there, in ms from the stage's start (`K`).
    plateau_ms: u64,
    /// The window before the loss that began it, in bytes.
    prior_bytes: u64,
    /// How long it has lasted, but for the time when the window was not used up (RFC 9438, 5.8), in ns.
    lasted_ns: u64,
    /// The growth of Reno (`W_est`).
    line: Growing,
}

/// The window.
#[derive(Debug)]
pub(crate) struct Cubic {
    window: Growing,
    /// Slow start ends here.
    threshold_bytes: u64,
    /// The share of a packet, in bytes.
    segment_bytes: u64,
    /// Where the last loss came, or somewhat lower if the window had shrunk since the one before (`W_max`), in bytes.
    plateau_bytes: u64,
    stage: Option<Stage>,
    acked_ns: u64,
    /// The window, the threshold, the plateau and the stage before the last decrease.
    before: Option<(u64, u64, u64, Option<Stage>)>,
}

impl Cubic {
    pub(crate) fn new(window_bytes: u64, segment_bytes: u64) -> Cubic {
        Cubic {
            window: Growing { bytes: window_bytes, rest: 0 },
            threshold_bytes: MAX_BYTES,
            segment_bytes: segment_bytes.clamp(1, 1 << 16),
            plateau_bytes: 0,
            stage: None,
            acked_ns: 0,
            before: None,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.window.bytes
    }

    pub(crate) fn is_in_slow_start(&self) -> bool {
        self.window.bytes < self.threshold_bytes
    }

    /// Whether the path has never shown how much it takes.
    pub(crate) fn is_new(&self) -> bool {
        self.threshold_bytes == MAX_BYTES
    }

    /// `bytes` were acknowledged while the window held something back.
    pub(crate) fn acked(&mut self, bytes: u64, now_ns: u64, rtt_ns: u64) {
        let since_ns = now_ns.saturating_sub(std::mem::replace(&mut self.acked_ns, now_ns));
        if self.is_in_slow_start() {
            self.window.bytes = (self.window.bytes + bytes).min(MAX_BYTES);
            return;
        }
        let window_bytes = self.window.bytes;
        let stage = self.stage.get_or_insert(Stage {
            plateau_bytes: window_bytes,
            plateau_ms: 0,
            prior_bytes: window_bytes,
            lasted_ns: 0,
            line: self.window,
        });
        // Between two acks lies a round trip at most, unless there was nothing to send.
        stage.lasted_ns += since_ns.min(rtt_ns);
        let (times, parts) = if stage.line.bytes < stage.prior_bytes { LINE } else { (1, 1) };
        stage.line.add(times * self.segment_bytes * bytes / parts, window_bytes);
        let line_bytes = stage.line.bytes;
        if stage.curve_bytes(stage.lasted_ns, self.segment_bytes) < line_bytes {
            self.window.bytes = window_bytes.max(line_bytes);
        } else {
            let target_bytes = stage.curve_bytes(stage.lasted_ns.saturating_add(rtt_ns), self.segment_bytes);
            let target_bytes = target_bytes.clamp(window_bytes, window_bytes * 3 / 2);
            self.window.add((target_bytes - window_bytes).saturating_mul(bytes), window_bytes);
        }
        self.window.bytes = self.window.bytes.min(MAX_BYTES);
    }

    /// Slow start grows by `bytes`, or ends here.
    pub(crate) fn end_slow_start(&mut self) {
        self.threshold_bytes = self.window.bytes;
    }

    /// Something was lost, for the first time in a round trip.
    pub(crate) fn lost(&mut self) {
        let prior_bytes = self.window.bytes;
        self.before = Some((prior_bytes, self.threshold_bytes, self.plateau_bytes, self.stage));
        // Another flow wants a share: less is regained than was lost (fast convergence, RFC 9438, 4.7).
        let has_shrunk = prior_bytes < self.plateau_bytes;
        self.plateau_bytes = if has_shrunk { prior_bytes * (10 + LEFT_TENTHS) / 20 } else { prior_bytes };
        let left_bytes = (prior_bytes * LEFT_TENTHS / 10).max(MIN_BYTES);
        self.window = Growing { bytes: left_bytes, rest: 0 };
        self.threshold_bytes = left_bytes;
        let lacks_bytes = self.plateau_bytes.saturating_sub(left_bytes);
        self.stage = Some(Stage {
            plateau_bytes: self.plateau_bytes.max(left_bytes),
            // The time in which 0.4 segments times its cube, in seconds, make up for what was lost.
            plateau_ms: cube_root(lacks_bytes * 2_500_000_000 / self.segment_bytes),
            prior_bytes,
            lasted_ns: 0,
            line: self.window,
        });
    }

    /// Nothing was lost, it was late.
    pub(crate) fn undo(&mut self) {
        if let Some((window_bytes, threshold_bytes, plateau_bytes, stage)) = self.before.take()
            && window_bytes > self.window.bytes
        {
            self.window = Growing { bytes: window_bytes, rest: 0 };
            (self.threshold_bytes, self.plateau_bytes, self.stage) = (threshold_bytes, plateau_bytes, stage);
        }
    }

    /// Nothing has come through for long: what is known of the path is the threshold alone.
    pub(crate) fn collapsed(&mut self) {
        self.window = Growing { bytes: MIN_BYTES, rest: 0 };
        (self.stage, self.before) = (None, None);
    }
}

impl Stage {
    /// The cubic function, in bytes: 0.4 segments times the cube of the time from its middle in seconds.
    fn curve_bytes(&self, at_ns: u64, segment_bytes: u64) -> u64 {
        let at_ms = i64::try_from(at_ns / 1_000_000).unwrap_or(i64::MAX);
        let from_ms = at_ms.saturating_sub(self.plateau_ms.cast_signed()).clamp(-FAR_MS, FAR_MS);
        let offset = from_ms.pow(3) / 1_000_000 * segment_bytes.cast_signed() / 2500;
        self.plateau_bytes.saturating_add_signed(offset)
    }
}

/// The integer part of the cube root.
fn cube_root(value: u64) -> u64 {
    let mut root = 0_u64;
    for bit in (0..21).rev() {
        let larger = root | 1 << bit;
        if larger.pow(3) <= value {
            root = larger;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SEGMENT_BYTES: u64 = 1000;

    /// A window of `segments` that slow start has left.
    fn at(segments: u64) -> Cubic {
        let mut cubic = Cubic::new(segments * SEGMENT_BYTES, SEGMENT_BYTES);
        cubic.end_slow_start();
        cubic
    }

    /// Whole windows are acknowledged for `for_ms`, in 16 acks a round trip of `rtt_ms`.
    fn pass(cubic: &mut Cubic, now_ms: &mut u64, for_ms: u64, rtt_ms: u64) {
        for _ in 0..for_ms / rtt_ms * 16 {
            *now_ms += rtt_ms;
            cubic.acked(cubic.bytes() / 16, *now_ms * MS / 16, rtt_ms * MS);
        }
    }

    #[test]
    fn cube_roots_are_exact() {
        for (value, root) in
            [(0, 0), (7, 1), (8, 2), (26, 2), (27, 3), (1_000_000_000, 1000), (167_772_160 << 30, 564_772)]
        {
            assert_eq!(cube_root(value), root, "of {value}");
        }
    }

    #[test]
    fn it_follows_the_cubic_function_after_a_loss() {
        // RFC 9438, 4.2: W_max = 3,400 segments, 2,380 are left, and K = cbrt(1,020 / 0.4) = 13.66 s.
        let mut cubic = at(3400);
        cubic.lost();
        assert_eq!(cubic.bytes(), 2380 * SEGMENT_BYTES);
        assert_eq!(cubic.stage.unwrap().plateau_ms, 13_661);
        let mut now_ms = 0;
        for (after_s, segments) in [(5, 3140), (10, 3380), (13, 3400), (18, 3433), (23, 3726)] {
            let passed_ms = now_ms / 16;
            pass(&mut cubic, &mut now_ms, after_s * 1000 - passed_ms, 50);
            let got = cubic.bytes() / SEGMENT_BYTES;
            // A target lies one round trip ahead, and is reached one later.
            assert!(got.abs_diff(segments) <= 8, "{got} after {after_s} s, not {segments}");
        }
    }

    #[test]
    fn on_a_short_path_it_grows_like_reno() {
        let mut cubic = at(100);
        cubic.lost();
        let (mut now_ms, before) = (0, cubic.bytes());
        pass(&mut cubic, &mut now_ms, 40, 1);
        let grown = (cubic.bytes() - before) / 40;
        assert!((500..=540).contains(&grown), "9/17 of a segment in a round trip: {grown}");
        pass(&mut cubic, &mut now_ms, 40, 1);
        let before = cubic.bytes();
        assert!(before >= 100 * SEGMENT_BYTES);
        pass(&mut cubic, &mut now_ms, 40, 1);
        let grown = (cubic.bytes() - before) / 40;
        assert!((900..=1010).contains(&grown), "a segment in a round trip: {grown}");
    }

    #[test]
    fn a_share_not_regained_before_the_next_loss_is_left_to_others() {
        let mut cubic = at(1000);
        cubic.lost();
        assert_eq!(cubic.plateau_bytes, 1000 * SEGMENT_BYTES);
        cubic.lost();
        assert_eq!(cubic.plateau_bytes, 700 * 85 * SEGMENT_BYTES / 100);
        assert_eq!(cubic.bytes(), 490 * SEGMENT_BYTES);
    }

    #[test]
    fn time_without_traffic_does_not_count() {
        let (mut busy, mut idle) = (at(1000), at(1000));
        let (mut busy_ms, mut idle_ms) = (0, 0);
        for (cubic, now_ms, pause_ms) in [(&mut busy, &mut busy_ms, 0), (&mut idle, &mut idle_ms, 600_000 * 16)] {
            cubic.lost();
            pass(cubic, now_ms, 1000, 50);
            *now_ms += pause_ms;
            pass(cubic, now_ms, 1000, 50);
        }
        assert!(idle.bytes().abs_diff(busy.bytes()) < 20 * SEGMENT_BYTES, "{} {}", idle.bytes(), busy.bytes());
    }

    #[test]
    fn after_a_collapse_slow_start_leads_back_to_what_a_loss_left() {
        let mut cubic = at(1000);
        cubic.lost();
        cubic.collapsed();
        assert_eq!(cubic.bytes(), MIN_BYTES);
        cubic.acked(MIN_BYTES, MS, MS);
        assert_eq!(cubic.bytes(), 2 * MIN_BYTES);
        while cubic.is_in_slow_start() {
            cubic.acked(SEGMENT_BYTES, 2 * MS, MS);
        }
        assert!(cubic.bytes().abs_diff(700 * SEGMENT_BYTES) <= SEGMENT_BYTES);
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let mut cubic = Cubic::new(MAX_BYTES, u64::MAX);
        for now_ns in [0, 1, u64::MAX / 2, u64::MAX] {
            cubic.acked(1 << 40, now_ns, u64::MAX);
            cubic.lost();
            cubic.acked(1 << 40, now_ns, u64::MAX);
            assert!((MIN_BYTES..=MAX_BYTES).contains(&cubic.bytes()));
        }
        (0..200).for_each(|_| cubic.lost());
        assert_eq!(cubic.bytes(), MIN_BYTES);
    }
}
