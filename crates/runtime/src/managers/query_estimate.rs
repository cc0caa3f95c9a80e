//! The place and cost that a query with state would have as a subscription's, for `explain`: it is planned and measured as when it is
//! deployed, on records of its streams, and nothing is changed.

use crate::info::{ExplainInputInfo, InputStep};
use crate::managers::Managers;
use crate::managers::change::{EstimatedHandler, EstimatedInput};
use crate::managers::estimated::QueryEstimate;
use crate::managers::queries::query_spec;
use crate::managers::request::{ControlRequest, SharedQuery, handler_of};
use crate::managers::waiting::Answered;
use crossdock_engine::QueryPart;
use std::collections::{BTreeMap, BTreeSet};

/// A subscription's number that none has.
const NO_SUBSCRIPTION: u64 = 0;

impl Managers {
    /// Answers with a query's place and cost.
    pub(super) fn answer_estimate(&mut self, query: Box<SharedQuery>, to: oneshot::Sender<QueryEstimate>) -> Answered {
        match self.estimate_query(&query) {
            None => return Answered::Unmeasured(ControlRequest::EstimateQuery { query, to }),
            Some(estimate) => drop(to.send(estimate)),
        }
        Answered::Now
    }

    /// The place and cost of a query; nothing if its handlers are to be measured before.
    fn estimate_query(&mut self, query: &SharedQuery) -> Option<QueryEstimate> {
        if let Some(name) = self.running(Some(query)) {
            let reductions = self.queries.get(&name).map(|placement| placement.reductions().to_vec());
            let names: Vec<String> = reductions.into_iter().flatten().chain([name.clone()]).collect();
            let handlers = self.estimates_at_work(&names);
            let say = |context: &str| format!("{context}: handler {name} runs it for other subscribers already");
            return Some(self.estimate_of(&query.streams, handlers, say));
        }
        if let Some(why) = self.refused_for_state(Some(query)) {
            return Some(QueryEstimate::refused(&why));
        }
        let spec = query_spec(&handler_of(NO_SUBSCRIPTION), &query.sql, &query.streams, Some(query));
        let cut = self.cut(Some(query), spec).ok()?;
        let new = match self.estimate_handlers(&cut.change())? {
            Ok(new) => new,
            Err(why) => return Some(QueryEstimate::refused(&why)),
        };
        let is_new = |name: &String| new.iter().any(|handler| handler.spec.name == *name);
        let there: Vec<String> = cut.reductions.iter().filter(|name| !is_new(name)).cloned().collect();
        let mut handlers = self.estimates_at_work(&there);
        handlers.extend(new);
        let say = |context: &str| format!("{context}: a handler of its own; subscribers with the same query share it");
        Some(self.estimate_of(&query.streams, handlers, say))
    }

    /// The estimates of handlers that are there.
    fn estimates_at_work(&mut self, names: &[String]) -> Vec<EstimatedHandler> {
        let there = names.iter().filter_map(|name| self.handlers.get(name));
        let reads: BTreeSet<String> = there.flat_map(|there| &there.reads).map(|(stream, _)| stream.clone()).collect();
        // The daemon may be about to stop.
        let streams = self.known_streams(&reads).unwrap_or_default();
        let estimate = |name: &String| {
            let there = self.handlers.get(name)?;
            let context = self.watch.name(self.overlay.placed(there.node)?.at).to_owned();
            let inputs = EstimatedInput::of(&there.entries, &streams);
            Some(EstimatedHandler { spec: there.spec.clone(), context, inputs })
        };
        names.iter().filter_map(estimate).collect()
    }

    /// The estimate of a query over these streams that runs as these handlers; each stream that is reduced is followed by what its
    /// reduction reads.
    fn estimate_of(
        &self,
        streams: &[String],
        mut handlers: Vec<EstimatedHandler>,
        say: impl Fn(&str) -> String,
    ) -> QueryEstimate {
        let is_state = |handler: &EstimatedHandler| !matches!(handler.spec.part, Some(QueryPart::Reduction { .. }));
        let Some(state) = handlers.iter().position(is_state).map(|at| handlers.remove(at)) else {
            return QueryEstimate::refused("its handler is gone");
        };
        let instead = match &state.spec.part {
            Some(QueryPart::Rest(instead)) => instead.clone(),
            _ => BTreeMap::new(),
        };
        let mut inputs = Vec::new();
        for stream in streams {
            let name = instead.get(stream);
            let step = if name.is_some() { InputStep::Reduced } else { InputStep::State };
            let read = state.inputs.iter().filter(|input| input.stream == *name.unwrap_or(stream));
            inputs.extend(read.map(|input| shown(stream, step, &state.context, input)));
            for reduction in handlers.iter().filter(|handler| Some(&handler.spec.name) == name) {
                let read = reduction.inputs.iter();
                inputs.extend(read.map(|input| shown(stream, InputStep::Reduction, &reduction.context, input)));
            }
        }
        let at = self.watch.find(&state.context).map(|at| usize::from(at.0));
        let headroom_ns_per_s = at.map(|at| self.contexts().headroom(at).time_ns_per_s);
        QueryEstimate { place: say(&state.context), inputs, headroom_ns_per_s }
    }
}

/// An input with its cost; without a sample none is known.
fn shown(stream: &str, step: InputStep, context: &str, input: &EstimatedInput) -> ExplainInputInfo {
    let EstimatedInput { stream: _, cost, rate_msgs_per_s, form } = input;
    let is_measured = cost.sample_messages > 0;
    ExplainInputInfo {
        stream: stream.to_owned(),
        step,
        context: context.to_owned(),
        form: form.clone(),
        rate_msgs_per_s: *rate_msgs_per_s,
        sample_records: cost.sample_messages,
        ns_per_record: is_measured.then(|| cost.ns_of_message()),
        load_ns_per_s: is_measured.then(|| cost.load(*rate_msgs_per_s).time_ns_per_s),
    }
}
