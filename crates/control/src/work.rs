//! The load of a handler where it runs, second by second: on probation at first, and then in place of its estimate.
//!
//! It has no clock: who calls it every second, with what was counted in that second, makes time pass.

use crate::load::{Cost, at_least};

/// A handler is on probation for this number of seconds in which it was measured at work.
pub const PROBATION_S: u32 = 2;
/// On probation it may take this many times what it was estimated at.
pub const PROBATION_TIMES: f64 = 2.0;
/// Less than this more, in ns per s, is no reason to do anything; nor is less than this for a batch, in ns: the context's own
/// work for it is only roughly known.
const MATTERS_NS_PER_S: f64 = 50e6;
const MATTERS_NS_PER_BATCH: f64 = 5000.0;
/// The share of the earlier counts that remains each second.
const KEPT: f64 = 0.75;

/// The work of a handler: counted in one second, or since it was deployed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worked {
    /// Batches that came.
    pub batches: f64,
    /// Messages in them.
    pub messages: f64,
    /// Bytes in them.
    pub bytes: f64,
    /// Messages that it made of them.
    pub messages_out: f64,
    /// Bytes that it made.
    pub bytes_out: f64,
    /// Of some of the batches: their messages, and the time that these took, in ns.
    pub measured_messages: f64,
    /// That time.
    pub measured_ns: f64,
}

impl Worked {
    /// The work since `before`.
    #[must_use]
    pub fn since(&self, before: &Worked) -> Worked {
        self.zip(before, |now, before| at_least(0.0, now - before))
    }

    fn zip(&self, other: &Worked, with: impl Fn(f64, f64) -> f64) -> Worked {
        Worked {
            batches: with(self.batches, other.batches),
            messages: with(self.messages, other.messages),
            bytes: with(self.bytes, other.bytes),
            messages_out: with(self.messages_out, other.messages_out),
            bytes_out: with(self.bytes_out, other.bytes_out),
            measured_messages: with(self.measured_messages, other.measured_messages),
            measured_ns: with(self.measured_ns, other.measured_ns),
        }
    }
}

/// The costs of a handler at work. A new handler, and a new version of one, begin without a past.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AtWork {
    /// Seconds in which it was measured.
    seconds: u32,
    /// The counts of the last seconds, the latest with most weight.
    sums: Worked,
    /// Messages in the last second.
    rate_msgs_per_s: f64,
}

impl AtWork {
    /// One more second has passed. Whether probation has ended with it.
    pub fn second(&mut self, worked: &Worked) -> bool {
        self.rate_msgs_per_s = worked.messages;
        if worked.measured_messages < 1.0 {
            return false;
        }
        self.sums = self.sums.zip(worked, |before, new| before * KEPT + new);
        self.seconds = self.seconds.saturating_add(1);
        self.seconds == PROBATION_S
    }

    /// Whether its estimate counts still.
    #[must_use]
    pub fn is_on_probation(&self) -> bool {
        self.seconds < PROBATION_S
    }

    /// The cost of a message, in ns, with what it takes to bring it, if that was measured.
    #[must_use]
    pub fn ns_per_message(&self) -> Option<f64> {
        (self.sums.measured_messages >= 1.0).then(|| self.sums.measured_ns / self.sums.measured_messages)
    }

    /// Whether it takes so much more than it was estimated at that others may come off short: more than [`PROBATION_TIMES`]
    /// as much, and enough at its rate to matter. `estimates` are those of its formats, with each one's part of the messages.
    #[must_use]
    pub fn is_far_over(&self, estimates: &[(Cost, f64)]) -> bool {
        let Some(ns) = self.ns_per_message().filter(|_| self.is_on_probation()) else { return false };
        let estimated_ns = mean_ns(estimates, self.messages_per_batch());
        let slack_ns = MATTERS_NS_PER_BATCH / self.messages_per_batch();
        ns > PROBATION_TIMES * estimated_ns + slack_ns && (ns - estimated_ns) * self.rate_msgs_per_s > MATTERS_NS_PER_S
    }

    /// The cost of each of its formats: the estimate with a margin while it is on probation, and then what it takes at work.
    /// Of several formats each keeps its part of that.
    #[must_use]
    pub fn costs(&self, estimates: &[(Cost, f64)]) -> Vec<Cost> {
        let Some(ns) = self.ns_per_message().filter(|_| !self.is_on_probation()) else {
            return estimates.iter().map(|(estimate, _)| estimate.with_margin()).collect();
        };
        let Worked { messages, bytes, messages_out, bytes_out, .. } = self.sums;
        let (messages, messages_per_batch) = (at_least(1.0, messages), self.messages_per_batch());
        let estimated_ns = mean_ns(estimates, messages_per_batch);
        let cost = |(estimate, _): &(Cost, f64)| Cost {
            messages_per_batch,
            messages_out_per_message: messages_out / messages,
            bytes_out_per_message: bytes_out / messages,
            bytes_in_per_message: bytes / messages,
            is_provisional: false,
            ..match estimated_ns > 0.0 {
                true => estimate.slower(ns / estimated_ns),
                false => Cost { ns_per_message: ns, tail_ns_per_message: ns, ..*estimate },
            }
        };
        estimates.iter().map(cost).collect()
    }

    fn messages_per_batch(&self) -> f64 {
        at_least(1.0, self.sums.messages / at_least(1.0, self.sums.batches))
    }
}

/// The estimate for a message, in batches of this length, over all formats; all count the same where no part is known.
fn mean_ns(estimates: &[(Cost, f64)], messages_per_batch: f64) -> f64 {
    let whole: f64 = estimates.iter().map(|(_, part)| part).sum();
    let part = |part: f64| if whole > 0.0 { part / whole } else { 1.0 / estimates.len() as f64 };
    let ns = |estimate: &Cost| Cost { messages_per_batch, ..*estimate }.ns_of_message();
    estimates.iter().map(|(estimate, of)| ns(estimate) * part(*of)).sum()
}
