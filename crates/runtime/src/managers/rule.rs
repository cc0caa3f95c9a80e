//! A handler's overload rule: values that its parameters have while its context nears its limit. They are set like any
//! other values, but are not part of the wanted specification: a restarted daemon begins without them.

use crate::graph::change::NewValues;
use crate::managers::Managers;
use crate::managers::change::parameters_text;
use crate::managers::deployed::{Deployed, Entry, program};
use crate::managers::request::ControlRequest;
use crate::managers::rule_costs::{AGAIN_S, RuleCosts, dearest};
use crate::managers::spec::HandlerSpec;
use crossdock_control::balance::RuleSecond;
use crossdock_control::load::{Cost, Load};
use crossdock_engine::Natives;
use std::collections::BTreeMap;

/// Checks whether a handler's rule can be applied, for the formats that its streams have now.
///
/// # Errors
/// There is no such parameter, a value is none that it takes, or it cannot change while the handler runs.
pub(crate) fn check(spec: &HandlerSpec, entries: &[Entry], natives: &Natives) -> Result<(), String> {
    if spec.overload_parameters.is_empty() {
        return Ok(());
    }
    let refused = |why: String| format!("`overload_parameters`: {why}");
    let parameters = spec.degraded_parameters();
    let mut program = program(spec)?;
    program.parameters.clone_from(&parameters);
    program.check(natives).map_err(|error| refused(error.to_string()))?;
    for of_entry in entries.iter().filter_map(|entry| entry.parameters.as_ref()) {
        of_entry.prepare(&parameters).map_err(|error| refused(error.to_string()))?;
    }
    Ok(())
}

/// Values for all entries that take them; those of the others stay.
fn values(there: &Deployed, parameters: &BTreeMap<String, String>) -> Vec<NewValues> {
    let prepared = |entry: &Entry| {
        let prepared = entry.parameters.as_ref()?.prepare(parameters).ok()?;
        Some((entry.place(&there.reads), prepared))
    };
    there.entries.iter().filter_map(prepared).collect()
}

/// A handler's rule as balancing sees it, with the handler's load in the last second.
pub(crate) fn second(there: &Deployed, load: Load, rate_msgs_per_s: u64) -> Option<RuleSecond> {
    if there.spec.overload_parameters.is_empty() {
        return None;
    }
    let costs = there.rule_costs.as_ref()?;
    let [degraded, whole] = [&costs.degraded, &costs.whole].map(|costs| dearest(costs).load(rate_msgs_per_s));
    let (now, otherwise) = if there.is_degraded { (degraded, whole) } else { (whole, degraded) };
    // Measuring on a sample gives the ratio of the two costs; the last second gives the present load.
    let scaled = |load: u64, now: u64, otherwise: u64| match now {
        0 => otherwise,
        now => u64::try_from(u128::from(load) * u128::from(otherwise) / u128::from(now)).unwrap_or(u64::MAX),
    };
    let otherwise = Load {
        time_ns_per_s: scaled(load.time_ns_per_s, now.time_ns_per_s, otherwise.time_ns_per_s),
        buffers: load.buffers,
        bytes_per_s: scaled(load.bytes_per_s, now.bytes_per_s, otherwise.bytes_per_s),
    };
    Some(RuleSecond { is_applied: there.is_degraded, otherwise })
}

impl Managers {
    /// Measures the costs of handlers with their rules, where they have not been measured yet.
    pub(crate) fn measure_rules(&mut self) {
        let now_s = crossdock_device::elapsed(self.started).as_secs();
        let is_due = |there: &&Deployed| {
            let holds = |costs: &RuleCosts| there.is_degraded || costs.holds(there.entries.len(), now_s);
            !there.spec.overload_parameters.is_empty() && !there.rule_costs.as_ref().is_some_and(holds)
        };
        let due: Vec<String> = self.handlers.values().filter(is_due).map(|there| there.spec.name.clone()).collect();
        for name in due {
            let is_it = |request: &ControlRequest| matches!(request, ControlRequest::MeasureRule(of) if *of == name);
            if !self.measuring.has(is_it) {
                self.answer(ControlRequest::MeasureRule(name));
            }
        }
    }

    /// Measures the costs of a handler with its rule and without it, unless some [are
    /// missing](crate::managers::measure::CostModel::is_missing).
    pub(crate) fn measure_rule(&mut self, name: &str) {
        // It may have gone while it was measured.
        let Some(there) = self.handlers.get(name) else { return };
        let names = there.reads.iter().map(|(stream, _)| stream.clone()).collect();
        let streams = self.known_streams(&names);
        // Else the context has stopped, and the managers stop next.
        let (Ok(streams), Some(there)) = (streams, self.handlers.get_mut(name)) else { return };
        let degraded = HandlerSpec { parameters: there.spec.degraded_parameters(), ..there.spec.clone() };
        let mut measure = |spec: &HandlerSpec| self.compiler.measure_again(spec, &there.entries, &streams);
        let measured = measure(&degraded).and_then(|degraded| Ok((measure(&there.spec)?, degraded)));
        if self.compiler.costs.is_missing() {
            return;
        }
        let refused = measured.as_ref().err().cloned();
        // A rule that cannot be measured counts as saving nothing.
        let of_entries = || there.entries.iter().map(|entry| entry.cost).collect::<Vec<Cost>>();
        let (whole, degraded) = measured.unwrap_or_else(|_| (of_entries(), of_entries()));
        let mut costs = RuleCosts { whole, degraded, again_s: None };
        let now_s = crossdock_device::elapsed(self.started).as_secs();
        costs.again_s = (!costs.saves() && refused.is_none()).then_some(now_s + AGAIN_S);
        there.rule_costs = Some(costs);
        if let Some(why) = refused {
            self.note("failed", name, format!("its `overload_parameters` are not used: {why}"));
        }
    }

    /// Applies a handler's rule from now on, or no longer.
    pub(crate) fn degrade(&mut self, name: &str, applies: bool, why: &str) {
        let Some(there) = self.there(name) else { return };
        there.is_degraded = applies;
        let text = parameters_text(&there.spec.overload_parameters);
        self.hold_to_rule(name);
        // Sampling comes after it.
        self.set_policy(name);
        match applies {
            true => self.note("degraded", name, format!("its `overload_parameters` apply, {text}: {why}")),
            false => self.note("restored", name, format!("its parameters have their own values again: {why}")),
        }
    }

    /// Gives a handler's parameters the values that they have by now: instances that came since it was degraded have
    /// their own.
    fn hold_to_rule(&mut self, name: &str) {
        let Some(there) = self.there(name) else { return };
        there.is_degraded &= !there.spec.overload_parameters.is_empty();
        let parameters =
            if there.is_degraded { there.spec.degraded_parameters() } else { there.spec.parameters.clone() };
        let (node, values) = (there.node, values(there, &parameters));
        // If the order cannot be given, that is an event.
        let _ = self.order(|overlay| overlay.set_parameters(node, values));
    }

    /// The same after a change of a handler that was degraded before it; of others nothing is to be done.
    pub(crate) fn hold_if_degraded(&mut self, name: &str) {
        if self.handlers.get(name).is_some_and(|there| there.is_degraded) {
            self.hold_to_rule(name);
        }
    }
}
