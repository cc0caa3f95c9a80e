//! Cuts of subscriptions' queries with state: the reduction of a stream may run as a handler of its own, where the stream's records come, so
//! that fewer and smaller ones go to the context that keeps the state. Queries with an equal reduction share its handler.

use crate::config::QueryCuts;
use crate::managers::Managers;
use crate::managers::change::Estimate;
use crate::managers::deployed::{self, Status};
use crate::managers::request::{ChangeRequest, SharedQuery};
use crate::managers::spec::HandlerSpec;
use crossdock_engine::QueryPart;
use crossdock_format::Format;
use crossdock_query::PlanOperator;
use std::collections::BTreeMap;

/// A reduction: equal ones share a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReducedStream {
    stream: String,
    /// The format that it was planned for.
    format: Format,
    operators: Vec<PlanOperator>,
}

/// A query as its handlers: one that keeps the state, and those of reductions in front of it.
pub(super) struct CutQuery {
    pub(super) spec: HandlerSpec,
    /// Reductions that are not there yet.
    pub(super) new: Vec<(HandlerSpec, ReducedStream)>,
    /// The names of all that it reads.
    pub(super) reductions: Vec<String>,
}

impl CutQuery {
    /// A query in one piece.
    pub(super) fn whole(spec: HandlerSpec) -> CutQuery {
        CutQuery { spec, new: Vec::new(), reductions: Vec::new() }
    }

    /// The change that deploys it.
    pub(super) fn change(&self) -> ChangeRequest {
        let new = self.new.iter().map(|(spec, _)| spec);
        ChangeRequest::Parts(new.chain([&self.spec]).cloned().collect())
    }
}

/// Handlers are to be compiled or measured first.
pub(super) struct Unmeasured;

impl Managers {
    /// Cuts a query with state where that takes the least time, by the estimates of the time that its handlers take and of what crosses
    /// between contexts; or as is configured.
    ///
    /// # Errors
    /// Its handlers are to be measured before it is known.
    pub(super) fn cut(&mut self, query: Option<&SharedQuery>, spec: HandlerSpec) -> Result<CutQuery, Unmeasured> {
        let views = query.map(|shared| shared.views.is_empty());
        if self.config.query_cuts == QueryCuts::Never || views != Some(true) {
            // Without a view all fields of the reduction's format may be read.
            return Ok(CutQuery::whole(spec));
        }
        let cut = self.fully_cut(spec.clone());
        if cut.reductions.is_empty() || self.config.query_cuts == QueryCuts::Always {
            return Ok(cut);
        }
        let whole = CutQuery::whole(spec);
        let whole_ns = match self.estimate(&whole.change()) {
            Estimate::Unmeasured => return Err(Unmeasured),
            // The parts are not even measured.
            Estimate::Placed { crosses: false, .. } => return Ok(whole),
            Estimate::Placed { time_ns_per_s, .. } => time_ns_per_s,
            Estimate::Refused => u64::MAX,
        };
        match self.estimate(&cut.change()) {
            Estimate::Unmeasured => Err(Unmeasured),
            Estimate::Placed { time_ns_per_s, .. } if time_ns_per_s < whole_ns => Ok(cut),
            Estimate::Placed { .. } | Estimate::Refused => Ok(whole),
        }
    }

    /// The query with a reduction in front of each stream that can have one.
    fn fully_cut(&self, spec: HandlerSpec) -> CutQuery {
        let (whole, mut cut) = (spec.clone(), CutQuery::whole(spec));
        let Some(decided) = self.decided_for(&cut.spec) else { return cut };
        let (mut instead, mut read) = (BTreeMap::new(), decided.clone());
        for (number, (stream, format)) in (1..).zip(&decided) {
            let part = Some(QueryPart::Reduction { stream: stream.clone(), decided: decided.clone() });
            let name = format!("{}-input-{number}", cut.spec.name);
            let reduction = HandlerSpec { name, input_streams: vec![stream.clone()], part, ..cut.spec.clone() };
            let program = deployed::program(&reduction).and_then(|program| {
                program.plan_reduction(self.compiler.natives.tables(), format).map_err(|error| error.to_string())
            });
            let Ok(program) = program else { continue };
            let (stream, operators) = (stream.clone(), program.operators());
            let (reduced_format, reduced) =
                (program.output, ReducedStream { stream: stream.clone(), format: format.clone(), operators });
            if reduced.operators.len() < 2 || self.is_derived(&stream) {
                continue;
            }
            let name = match self.running_reduction(&reduced) {
                Some(name) => name,
                None if self.handlers.contains_key(&reduction.name) => continue,
                None => {
                    cut.new.push((reduction.clone(), reduced));
                    reduction.name
                }
            };
            if let Some(read) = read.get_mut(number - 1) {
                *read = (name.clone(), reduced_format);
            }
            instead.insert(stream, name.clone());
            cut.reductions.push(name);
        }
        if instead.is_empty() {
            return cut;
        }
        let inputs = cut.spec.input_streams.iter();
        cut.spec.input_streams = inputs.map(|name| instead.get(name).unwrap_or(name).clone()).collect();
        cut.spec.part = Some(QueryPart::Rest(instead));
        // Its text may name columns that its plan does without.
        let rest = deployed::program(&cut.spec).ok();
        let is_sound = rest.is_some_and(|rest| rest.plan_stateful(&read, self.compiler.natives.tables()).is_ok());
        if is_sound { cut } else { CutQuery::whole(whole) }
    }

    /// The newest format of each of its streams; `None` where one has none yet.
    fn decided_for(&self, spec: &HandlerSpec) -> Option<Vec<(String, Format)>> {
        let snapshot = self.catalog.snapshot().ok()?;
        let formats = snapshot.newest_formats(&spec.input_streams)?;
        Some(formats.into_iter().map(|(stream, format)| (stream.to_owned(), format.clone())).collect())
    }

    /// Whether a handler makes a stream: its records are where that is, as it makes them.
    fn is_derived(&self, stream: &str) -> bool {
        self.handlers.values().any(|there| there.spec.derived() == stream)
    }

    /// The handler of an equal reduction that works.
    fn running_reduction(&self, reduced: &ReducedStream) -> Option<String> {
        let works =
            |name: &String| self.handlers.get(name).is_some_and(|there| !matches!(there.status, Status::Failed(_)));
        let same = self.queries.iter().filter(|(_, placement)| placement.reduced.as_ref() == Some(reduced));
        same.map(|(name, _)| name).find(|name| works(name)).cloned()
    }
}
