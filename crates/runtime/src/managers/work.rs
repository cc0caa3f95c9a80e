//! The costs of handlers where they run, and all that follows from their costs: what they count with, how they are
//! predicted, and how they are served.

use crate::graph::NodeId;
use crate::graph::gauges::NodeGauges;
use crate::graph::node::SchedulingPolicy;
use crate::managers::Managers;
use crate::managers::deployed::{Deployed, Entry, dearest_ns, estimates, need_of};
use crate::managers::paths::{PathNode, reserves};
use crate::managers::rule_costs::RuleCosts;
use crate::managers::spec::{HandlerSpec, OnFault, WhenFull};
use crossdock_control::figures::{Rate, Time};
use crossdock_control::load::{Capacity, Contexts, CoreKind, Cost};
use crossdock_control::work::{PROBATION_TIMES, Worked};
use std::collections::BTreeSet;

/// A handler's budget for a record where its specification has none: `BUDGET_TIMES` times its cost, and at least
/// `LEAST_BUDGET_NS`.
const BUDGET_TIMES: f64 = 10.0;
const LEAST_BUDGET_NS: u64 = 1000;
/// A budget is set anew when it has changed by more than this part of it.
const CHANGED: f64 = 0.25;
/// A limit leaves a handler at least this part of its context's time.
const LEAST_PART: u64 = 20;

/// The counters of a node.
fn worked(gauges: &NodeGauges) -> Worked {
    Worked {
        batches: gauges.batches_in.get() as f64,
        messages: gauges.records_in.get() as f64,
        bytes: gauges.bytes_in.get() as f64,
        messages_out: gauges.records_out.get() as f64,
        bytes_out: gauges.bytes_out.get() as f64,
        measured_messages: gauges.timed_records.get() as f64,
        measured_ns: gauges.timed_ns.get() as f64,
    }
}

/// How a handler is served whose entries have these costs.
pub(crate) fn policy(
    spec: &HandlerSpec,
    (entries, costs): (&[Entry], &[Cost]),
    limit_ns_per_s: u64,
) -> SchedulingPolicy {
    let budget_ns = ((dearest_ns(entries, costs) * BUDGET_TIMES) as u64).max(LEAST_BUDGET_NS);
    SchedulingPolicy {
        weight: spec.weight.unwrap_or(1),
        budget_ns: spec.budget_ns.unwrap_or(budget_ns),
        stuck_after_ns: spec.stuck_after_ms.unwrap_or(0).saturating_mul(1_000_000),
        limit_ns_per_s,
        max_sampling: spec.max_sampling.unwrap_or(1).max(1),
        drops: spec.when_full == WhenFull::Drop,
        restarts: spec.on_fault == OnFault::Restart,
    }
}

impl Deployed {
    /// How it is to be served.
    pub(crate) fn policy(&self) -> SchedulingPolicy {
        let probation = if self.work.is_on_probation() { self.probation_ns_per_s } else { u64::MAX };
        let limit = self.limit_ns_per_s.map_or(probation, |limit| limit.min(probation));
        let mut policy = policy(&self.spec, (&self.entries, &self.costs), limit);
        // While it waits for one of its streams, the publishers of the others do not.
        policy.drops |= self.entries.is_empty() && self.reads.len() > 1 && self.keeps_state();
        // A rule by which it takes less comes before sampling.
        let saves = self.rule_costs.as_ref().is_none_or(RuleCosts::saves);
        if !self.spec.overload_parameters.is_empty() && !self.is_degraded && saves {
            policy.max_sampling = 1;
        }
        policy
    }

    /// It is another one from now on, as far as its costs are concerned: it is on probation.
    pub(crate) fn begin_probation(&mut self, probation_ns_per_s: u64) {
        self.work = Default::default();
        (self.probation_ns_per_s, self.limit_ns_per_s, self.is_far_over) = (probation_ns_per_s, None, false);
    }

    /// One more second has passed: what its node counted in it counts. Whether probation has ended with it.
    fn second(&mut self) -> bool {
        let now = worked(&self.gauges);
        let before = std::mem::replace(&mut self.worked, now);
        self.work.second(&now.since(&before))
    }

    /// The time that its budget allows it in all at a context of this capacity, in ns a second, where it is over that.
    pub(crate) fn budget_ns_per_s(&self, capacity: Capacity) -> u64 {
        let most_ns = if capacity.kind == CoreKind::CCore { capacity.slice_ns } else { u64::MAX };
        let budget = match self.is_far_over {
            true => (self.predicted.time_ns_per_s as f64 * PROBATION_TIMES) as u64,
            false => self.policy().budget_ns.min(most_ns).saturating_mul(self.need.rate_msgs_per_s),
        };
        budget.max(capacity.most.time_ns_per_s / LEAST_PART)
    }
}

/// The time that a handler may take on probation at a context: twice its estimate, or what is free there if that is more.
pub(crate) fn probation_ns_per_s(contexts: &Contexts, at: usize, estimate_ns_per_s: u64) -> u64 {
    let free = contexts.headroom(at).time_ns_per_s.max(contexts.list()[at].capacity.most.time_ns_per_s / LEAST_PART);
    free.max((estimate_ns_per_s as f64 * PROBATION_TIMES) as u64)
}

/// Whether one of two policies is to take the other's place.
fn differs(one: SchedulingPolicy, other: SchedulingPolicy) -> bool {
    let is_about = one.budget_ns.abs_diff(other.budget_ns) as f64 <= CHANGED * one.budget_ns as f64;
    let budget_ns = if is_about { other.budget_ns } else { one.budget_ns };
    SchedulingPolicy { budget_ns, ..one } != other
}

impl Managers {
    /// One more second has passed: what handlers took in it counts.
    pub(crate) fn note_work(&mut self) {
        let mut known = BTreeSet::new();
        for (name, there) in &mut self.handlers {
            if there.second() {
                known.insert(name.clone());
            }
        }
        self.recost();
        let mut texts = Vec::new();
        for (name, there) in self.handlers.iter().filter(|(name, _)| known.contains(*name)) {
            let (load, rate) = (Time(there.need.load.time_ns_per_s), Rate(there.need.rate_msgs_per_s));
            let text = format!(
                "at work it was measured to take {load} at {rate}; the estimate was {}",
                Time(there.predicted.time_ns_per_s)
            );
            texts.push((name.clone(), text));
        }
        texts.into_iter().for_each(|(name, text)| self.note("measured", &name, text));
    }

    /// Recomputes all that follows from handlers' costs and the rates of their streams: what they count with, their
    /// classes, reservations, budgets and limits. To be called where one of these may have changed.
    pub(crate) fn recost(&mut self) {
        let names: BTreeSet<String> =
            self.handlers.values().flat_map(|there| &there.reads).map(|(stream, _)| stream.clone()).collect();
        // Else the context has stopped, and the managers stop next.
        let Ok(streams) = self.known_streams(&names) else { return };
        for there in self.handlers.values_mut().filter(|there| !there.entries.is_empty()) {
            let estimates = estimates(&there.entries, &streams);
            there.costs = there.work.costs(&estimates);
            let need =
                |costs: &[Cost]| need_of(there.entries.iter().zip(costs), &there.spec, &streams, there.is_metered);
            let (predicted, now) =
                (need(&estimates.iter().map(|(cost, _)| *cost).collect::<Vec<_>>()), need(&there.costs));
            (there.predicted, there.need) = (predicted.load, now);
            // An estimate that was made on made-up records is none, and a budget that was given is meant.
            let has_estimate = !there.need.is_provisional && there.spec.budget_ns.is_none();
            there.is_far_over = has_estimate && there.work.is_far_over(&estimates);
        }
        let paths = reserves(&self.handlers.iter().map(|(name, there)| (name.as_str(), PathNode::of(there))).collect());
        for (name, there) in &mut self.handlers {
            there.need.reserve = there.spec.reserve().max(paths.get(name).copied().unwrap_or_default());
        }
        self.recount();
        let changed = |there: &Deployed| {
            let placed = self.overlay.placed(there.node)?;
            let is_there = self.watch.lost(placed.at).is_none();
            (is_there && differs(there.policy(), placed.policy)).then(|| (there.node, there.policy()))
        };
        let changed: Vec<(NodeId, SchedulingPolicy)> = self.handlers.values().filter_map(changed).collect();
        for (node, policy) in changed {
            self.overlay.set_policy(node, policy);
        }
    }

    /// Has a handler served as it is to be by now.
    pub(crate) fn set_policy(&mut self, name: &str) {
        if let Some((node, policy)) = self.there(name).map(|there| (there.node, there.policy())) {
            self.overlay.set_policy(node, policy);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crate::managers::deployed::{Compiled, KnownStream};
    use crossdock_control::admission::Need;
    use crossdock_control::load::{CPU_NS_PER_S, Context, Load};
    use crossdock_control::work::PROBATION_S;
    use crossdock_engine::Tables;
    use crossdock_format::Format;
    use std::sync::Arc;

    /// A handler that was estimated at 100 ns a record.
    fn deployed() -> Deployed {
        let format = Format::parse_schema("n i64").unwrap();
        let stream = KnownStream { name: "N".into(), ..KnownStream::default() };
        let cost = Cost { ns_per_message: 100.0, messages_per_batch: 100.0, ..Cost::default() };
        let (output, why) = (Some(format.clone()), None);
        let entry = Entry { output, why, cost, ..Entry::unfit(&stream, &format, String::new()) };
        let compiled = Compiled { entries: vec![entry], handlers: Vec::new(), is_metered: true, awaits: Vec::new() };
        let spec = HandlerSpec { name: "clean".into(), sql: Some("SELECT * FROM N".into()), ..HandlerSpec::default() };
        let (of_node, reads) = ((NodeId(0), Arc::default()), vec![("N".to_owned(), 1)]);
        Deployed::new(spec, of_node, 2, reads, (compiled, Need::of(&cost, 1000)), &Tables::default())
    }

    /// A second in which `records` came, and the time of `timed` of them was taken.
    fn work(there: &Deployed, records: u64, timed: u64) {
        there.gauges.batches_in.add(records / 100);
        there.gauges.records_in.add(records);
        if timed > 0 {
            there.gauges.time(timed, timed * 150);
        }
    }

    #[test]
    fn probation_limits_a_handler_for_as_long_as_it_lasts() {
        const LIMIT: u64 = 70_000_000;
        let mut there = deployed();
        there.begin_probation(LIMIT);
        let admitted = there.policy();
        assert_eq!(admitted.limit_ns_per_s, LIMIT);
        // Seconds without records, or in which no time was taken, are none of it.
        for records in [0, 1000, 0] {
            work(&there, records, 0);
            assert!(!there.second());
            assert_eq!(there.policy(), admitted);
        }
        for number in 1..=PROBATION_S {
            assert_eq!(there.policy().limit_ns_per_s, LIMIT, "in second {number}");
            work(&there, 1000, 100);
            assert_eq!(there.second(), number == PROBATION_S);
        }
        let proven = there.policy();
        assert_eq!(proven.limit_ns_per_s, u64::MAX);
        assert_eq!(proven, SchedulingPolicy { limit_ns_per_s: u64::MAX, ..admitted }, "nothing else has changed");
        assert!(differs(proven, admitted), "its context is to learn that");
        // It stays so, also in seconds in which nothing comes.
        for records in [1000, 0] {
            work(&there, records, records / 10);
            assert!(!there.second() && there.policy() == proven);
        }
    }

    #[test]
    fn a_new_version_is_on_probation_anew_and_the_stricter_of_two_limits_holds() {
        let mut there = deployed();
        there.begin_probation(70_000_000);
        let limit = |there: &Deployed| there.policy().limit_ns_per_s;
        for (over_budget, holds) in [(50_000_000, 50_000_000), (90_000_000, 70_000_000)] {
            there.limit_ns_per_s = Some(over_budget);
            assert_eq!(limit(&there), holds);
        }
        for _ in 0..PROBATION_S {
            work(&there, 1000, 100);
            there.second();
        }
        // The end of probation lifts its own limit, and no other.
        assert_eq!(limit(&there), 90_000_000);
        // A count from before is no part of the next probation.
        there.begin_probation(80_000_000);
        assert_eq!(limit(&there), 80_000_000);
        assert!(!there.second());
        for number in 1..=PROBATION_S {
            work(&there, 1000, 100);
            assert_eq!((limit(&there), there.second()), (80_000_000, number == PROBATION_S));
        }
        assert_eq!(limit(&there), u64::MAX);
    }

    #[test]
    fn on_probation_a_handler_may_take_twice_its_estimate_or_what_is_free() {
        let capacity = Capacity::of_cpu(CoreKind::CCore, None, 1 << 20);
        let context = Context { name: "c-core-0".into(), capacity, system: Load::default() };
        let mut contexts = Contexts::new(vec![context]).unwrap();
        let free = contexts.headroom(0).time_ns_per_s;
        assert!(free > CPU_NS_PER_S / 2, "{free}");
        assert_eq!(probation_ns_per_s(&contexts, 0, 1000), free);
        assert_eq!(probation_ns_per_s(&contexts, 0, free), 2 * free);
        // Where nothing is free it can still show what it takes.
        contexts.commit(0, Load { time_ns_per_s: CPU_NS_PER_S, ..Load::default() });
        assert_eq!(probation_ns_per_s(&contexts, 0, 1000), CPU_NS_PER_S / LEAST_PART);
        assert_eq!(probation_ns_per_s(&contexts, 0, CPU_NS_PER_S), 2 * CPU_NS_PER_S);
    }
}
