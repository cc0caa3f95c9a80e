//! The costs of a handler with its overload rule and without it.

use crossdock_control::load::Cost;

/// The highest of some costs, by the message.
pub(crate) fn dearest(costs: &[Cost]) -> Cost {
    let dearest = costs.iter().max_by(|one, other| one.ns_per_message.total_cmp(&other.ns_per_message));
    dearest.copied().unwrap_or_default()
}

/// How long a rule that seemed to save nothing is not measured again, in s.
pub(crate) const AGAIN_S: u64 = 30;
/// The rate at which a rule's saving is computed, in messages a second.
const SOME_RATE: u64 = 1_000_000;

/// The costs of a handler's entries with its rule and without it, measured at the same time.
#[derive(Debug)]
pub(crate) struct RuleCosts {
    pub(crate) whole: Vec<Cost>,
    pub(crate) degraded: Vec<Cost>,
    /// When it is to be measured again, in s since the start, if the rule seemed to save nothing: other load may have
    /// disturbed the measurement.
    pub(crate) again_s: Option<u64>,
}

impl RuleCosts {
    /// Whether less is taken by the rule.
    pub(crate) fn saves(&self) -> bool {
        let [with, without] = [&self.degraded, &self.whole].map(|costs| dearest(costs).load(SOME_RATE).time_ns_per_s);
        with < without
    }

    /// Whether there is a cost for each of `entries` entries, and no newer measurement is due.
    pub(crate) fn holds(&self, entries: usize, now_s: u64) -> bool {
        self.degraded.len() == entries && self.again_s.is_none_or(|again_s| now_s < again_s)
    }
}
