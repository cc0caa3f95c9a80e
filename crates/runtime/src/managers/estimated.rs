//! The place and cost of a query with state that does not run, as the managers answer.

use crate::info::{ExplainInfo, ExplainInputInfo};

/// The step of an input that a reduction leaves ([`ExplainInputInfo::step`]).
pub(super) const REDUCED: &str = "reduced";

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

    /// A plan with its place and cost.
    pub(crate) fn explain(self, plan: ExplainInfo) -> ExplainInfo {
        let QueryEstimate { place, inputs, headroom_ns_per_s } = self;
        // Reduced records have come in before.
        let read = inputs.iter().filter(|input| input.step != REDUCED);
        let (rate_msgs_per_s, sample_records) =
            read.fold((0, 0), |(rate, sample), input| (rate + input.rate_msgs_per_s, sample + input.sample_records));
        let load = inputs.iter().map(|input| input.load_ns_per_s).sum::<Option<u64>>();
        let load_ns_per_s = load.filter(|_| !inputs.is_empty());
        ExplainInfo { place, rate_msgs_per_s, sample_records, load_ns_per_s, headroom_ns_per_s, inputs, ..plan }
    }
}
