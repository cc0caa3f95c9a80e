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
            let now = worked(&there.gauges);
            let before = std::mem::replace(&mut there.worked, now);
            if there.work.second(&now.since(&before)) {
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
