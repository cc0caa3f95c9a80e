//! The plan of a change, and the estimated cost of one that deploys handlers, without making it.

use super::{PlannedHandler, Prepared};
use crate::managers::Managers;
use crate::managers::deployed::{Entry, KnownStream, dearest};
use crate::managers::request::ChangeRequest;
use crate::managers::spec::HandlerSpec;
use crate::refusal::Stopped;
use crossdock_control::load::Cost;
use crossdock_control::plan::{self as control, Action, Published, Refusal};
use std::collections::BTreeMap;

/// The handlers of a change as planned, and their plan.
pub(super) struct Planning {
    pub(super) handlers: BTreeMap<String, PlannedHandler>,
    pub(super) plan: Result<control::Plan, Vec<Refusal>>,
    /// The streams that publishers bring.
    published: BTreeMap<String, Published>,
    /// All streams that they read and make.
    streams: BTreeMap<String, KnownStream>,
}

/// A handler that would be deployed, or that runs.
pub(in crate::managers) struct EstimatedHandler {
    pub(in crate::managers) spec: HandlerSpec,
    /// Its context.
    pub(in crate::managers) context: String,
    /// The streams that it reads.
    pub(in crate::managers) inputs: Vec<EstimatedInput>,
}

/// The estimate of a handler for a stream that it reads, in the format for which it is dearest.
pub(in crate::managers) struct EstimatedInput {
    pub(in crate::managers) stream: String,
    pub(in crate::managers) cost: Cost,
    /// The most records a second.
    pub(in crate::managers) rate_msgs_per_s: u64,
    /// How the parts of its program run.
    pub(in crate::managers) form: String,
}

impl EstimatedInput {
    /// Those of a handler with these entries.
    pub(in crate::managers) fn of<'a>(
        entries: impl IntoIterator<Item = &'a Entry>,
        streams: &BTreeMap<String, KnownStream>,
    ) -> Vec<EstimatedInput> {
        let dearest = dearest(entries.into_iter().map(|entry| (entry, &entry.cost)));
        let of_stream = |(stream, (entry, cost)): (&str, (&Entry, &Cost))| EstimatedInput {
            stream: stream.to_owned(),
            cost: *cost,
            rate_msgs_per_s: streams.get(stream).map_or(0, |known| known.peak_msgs_per_s),
            form: entry.form.as_ref().map(ToString::to_string).unwrap_or_default(),
        };
        dearest.into_iter().map(of_stream).collect()
    }
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
        Some(Planning { handlers: planned, plan, published: current.published, streams })
    }

    /// The cost of a change that deploys handlers.
    pub(in crate::managers) fn estimate(&mut self, change: &ChangeRequest) -> Estimate {
        let planning = self.plan_deployment(change, &mut Prepared::default());
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

    /// The handlers that a change would deploy, with their places and costs; nothing if some of it is to be measured before.
    ///
    /// # Errors
    /// Why it would be refused.
    pub(in crate::managers) fn estimate_handlers(
        &mut self,
        change: &ChangeRequest,
    ) -> Option<Result<Vec<EstimatedHandler>, String>> {
        let mut prepared = Prepared::default();
        let planning = self.plan_deployment(change, &mut prepared);
        if self.compiler.costs.is_missing() {
            return None;
        }
        let Some(Planning { handlers, plan, streams, .. }) = planning else {
            return Some(Err(prepared.report.refusals.join("; ")));
        };
        let of_change = |change: control::Change| {
            let after = change.after.filter(|_| change.action == Action::Deploy)?;
            let handler = handlers.get(&change.handler)?;
            let inputs = EstimatedInput::of(handler.compiled.iter().flat_map(|of| &of.entries), &streams);
            Some(EstimatedHandler { spec: handler.spec.clone(), context: after.context, inputs })
        };
        let refused =
            |refusals: Vec<Refusal>| refusals.iter().map(ToString::to_string).collect::<Vec<String>>().join("; ");
        Some(plan.map(|plan| plan.changes.into_iter().filter_map(of_change).collect()).map_err(refused))
    }

    /// The plan of a change that deploys handlers.
    fn plan_deployment(&mut self, change: &ChangeRequest, prepared: &mut Prepared) -> Option<Planning> {
        let planning = self.plan_in(change, (false, false), prepared);
        match planning.as_ref().is_some_and(|planning| planning.plan.is_err()) {
            // Among all handlers one may be found that makes room.
            true => self.plan_in(change, (false, true), prepared),
            false => planning,
        }
    }
}
