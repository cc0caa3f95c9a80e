//! The place and cost of a query with state that does not run, as the managers answer.

use crate::info::{ExplainInfo, ExplainInputInfo, InputStep};
use crate::managers::request::SharedQuery;

/// A query with state, planned for the newest formats of its streams.
pub(crate) struct PlannedQuery {
    /// The formats, by id.
    pub(crate) formats: String,
    /// The plan, as lines for people.
    pub(crate) plan: String,
    /// The format of its rows.
    pub(crate) output: String,
    /// The query, as it would be deployed.
    pub(crate) query: SharedQuery,
}

/// A query's place and cost.
pub(crate) struct QueryEstimate {
    pub(super) place: String,
    pub(super) inputs: Vec<ExplainInputInfo>,
    pub(super) headroom_ns_per_s: Option<u64>,
}

impl QueryEstimate {
    /// One without a place, and why.
    pub(super) fn refused(why: &str) -> QueryEstimate {
        QueryEstimate { place: format!("it would be refused: {why}"), inputs: Vec::new(), headroom_ns_per_s: None }
    }

    /// The explanation of a query with this place and cost.
    pub(crate) fn explain(self, planned: PlannedQuery) -> ExplainInfo {
        let QueryEstimate { place, inputs, headroom_ns_per_s } = self;
        // Reduced records have come in before.
        let read = inputs.iter().filter(|input| input.step != InputStep::Reduced);
        let (rate_msgs_per_s, sample_records) =
            read.fold((0, 0), |(rate, sample), input| (rate + input.rate_msgs_per_s, sample + input.sample_records));
        let load = inputs.iter().map(|input| input.load_ns_per_s).sum::<Option<u64>>();
        let load_ns_per_s = load.filter(|_| !inputs.is_empty());
        let PlannedQuery { formats, plan, output, query } = planned;
        ExplainInfo {
            stream: query.streams.join(", "),
            format: formats,
            plan,
            place,
            sample_records,
            ns_per_record: None,
            selectivity: None,
            rate_msgs_per_s,
            load_ns_per_s,
            headroom_ns_per_s,
            output,
            is_stateful: true,
            inputs,
            paths: Vec::new(),
        }
    }
}
