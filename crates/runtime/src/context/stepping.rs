//! A context whose turns a test takes, one by one.

use super::Context;
use crate::clock::TurnClock;

impl Context {
    /// One turn, `after_sleep` or right after the one before. In how many ns the context is due by itself: 0 while more is there to do.
    /// Nothing when it should stop.
    pub(crate) fn step(&mut self, turn_clock: &mut TurnClock, after_sleep: bool) -> Option<u64> {
        if after_sleep {
            self.net.note_slept(true);
        }
        let is_idle = self.serve_turn(turn_clock)?;
        let sleep_ns = if is_idle { self.sleep_ns() } else { 0 };
        self.graph.gauges().turns.add(1);
        if let Some(stream) = self.resumes_from.take() {
            self.resume_planning(stream);
        }
        Some(sleep_ns)
    }
}
