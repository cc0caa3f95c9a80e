//! The plan of a change, and the estimated cost of one that deploys handlers, without making it.

use super::{PlannedHandler, Prepared};
use crate::managers::Managers;
use crate::managers::request::ChangeRequest;
use crate::refusal::Stopped;
use crossdock_control::plan::{self as control, Action, Published, Refusal};
use std::collections::BTreeMap;

/// The handlers of a change as planned, and their plan.
pub(super) struct Planning {
    pub(super) handlers: BTreeMap<String, PlannedHandler>,
    pub(super) plan: Result<control::Plan, Vec<Refusal>>,
    /// The streams that publishers bring.
    published: BTreeMap<String, Published>,
}

/// The cost of new handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::managers) enum Estimate {
    /// Some of it is to be compiled or measured first.
    Unmeasured,
    /// It would be refused.
    Refused,
    /// They would be placed.
    Placed {
        /// The time that they take there, with what crosses to them from other contexts.
        time_ns_per_s: u64,
        /// Whether records of publishers cross to one of them.
        crosses: bool,
    },
}

impl Managers {
    /// The handlers of a change and its plan, or why there is none. Nothing if it was refused before, or some of it is missing.
    pub(super) fn plan_in(
        &mut self,
        change: &ChangeRequest,
        (discard_state, is_whole): (bool, bool),
        prepared: &mut Prepared,
    ) -> Option<Planning> {
        match self.want(change) {
            Ok(wanted) => prepared.wanted = wanted,
            Err(why) => {
                prepared.refuse(why);
                return None;
            }
        }
        let nodes = self.nodes(prepared, discard_state);
        let (scope, order) = self.concerned(&nodes, is_whole, prepared);
        let Ok(mut streams) = self.published(&order) else {
            prepared.refuse(Stopped::default().to_string());
            return None;
        };
        let current = self.current(&streams, &scope);
        let mut planned = BTreeMap::new();
        for (spec, reads) in order {
            self.lost_at_place(&spec).into_iter().for_each(|why| prepared.refuse(why));
            match self.planned(&spec, reads, &mut streams, discard_state) {
                Ok(handler) => drop(planned.insert(spec.name, handler)),
                Err(why) => prepared.refuse(format!("handler `{}`: {why}", spec.asked_name())),
            }
        }
        prepared.handlers_planned = planned.len() as u32;
        if !prepared.report.refusals.is_empty() || self.compiler.costs.is_missing() {
            return None;
        }
        self.reserve_paths_of(&mut planned, &scope);
        let wanted = planned.iter().map(|(name, handler)| (name.clone(), handler.wanted.clone())).collect();
        let plan = control::plan(&current, &wanted);
        Some(Planning { handlers: planned, plan, published: current.published })
    }

    /// The cost of a change that deploys handlers.
    pub(in crate::managers) fn estimate(&mut self, change: &ChangeRequest) -> Estimate {
        let mut prepared = Prepared::default();
        let mut planning = self.plan_in(change, (false, false), &mut prepared);
        if planning.as_ref().is_some_and(|planning| planning.plan.is_err()) {
            // Among all handlers one may be found that makes room.
            planning = self.plan_in(change, (false, true), &mut prepared);
        }
        if self.compiler.costs.is_missing() {
            return Estimate::Unmeasured;
        }
        let Some(Planning { plan: Ok(plan), published, .. }) = planning else { return Estimate::Refused };
        let new = plan.changes.iter().filter(|change| change.action == Action::Deploy);
        let (mut time_ns_per_s, mut crosses) = (0_u64, false);
        for after in new.filter_map(|change| change.after.as_ref()) {
            time_ns_per_s = time_ns_per_s.saturating_add(after.load.time_ns_per_s);
            let read = after.definition.reads.iter().filter_map(|stream| published.get(stream));
            crosses |= read.into_iter().any(|of| of.context != after.context && of.flow.messages_per_s > 0);
        }
        Estimate::Placed { time_ns_per_s, crosses }
    }
}
