//! The report of `crossdock explain analyze`: the operators of a query that runs, with what each has done.

use serde::{Deserialize, Serialize};

/// The operators of a running subscription or handler, with their counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AnalyzeInfo {
    /// The subscription's number or the handler's name: `subscription 3`, `handler late`.
    pub of: String,
    /// Its query, or what the handler runs.
    pub sql: String,
    /// When this was read, in ns since 1970: with the `busy_ns` of two reports, a node's share of its context between them.
    pub at_ns: u64,
    /// The operators, the output first; each is followed by its inputs.
    pub operators: Vec<OperatorInfo>,
}

/// One operator, with its counts since the subscription or handler began. Operators without a context of their own run in the node of the
/// operator above them, whose time includes theirs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperatorInfo {
    /// Its distance from the output.
    pub depth: u32,
    /// Its kind and work: `filter dest = 'LAX'`.
    pub text: String,
    /// The context where it runs, of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The form in which the node runs, such as `kernel` or `interpreter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
    /// Records or rows that came to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_in: Option<u64>,
    /// Those that left it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_out: Option<u64>,
    /// Those that were lost there, by reason: `late`, `forgotten`, `row errors`, `conflated`, `queue_full` and others; only reasons that
    /// occurred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(String, u64)>,
    /// Rows, keys or groups in its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_rows: Option<u64>,
    /// Bytes of its state, or in a session's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<u64>,
    /// The bound on these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_bytes_bound: Option<u64>,
    /// Of a node: its processor time, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ns: Option<u64>,
    /// Of a node: this time by the record that came, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns_per_record: Option<f64>,
    /// Of a node: the share of one core that it took between two reports, 0 to 1; from the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

impl AnalyzeInfo {
    /// The same with each node's share of a core since an earlier report of it.
    #[must_use]
    pub fn since(mut self, before: &AnalyzeInfo) -> AnalyzeInfo {
        let elapsed_ns = self.at_ns.saturating_sub(before.at_ns);
        if elapsed_ns == 0 {
            return self;
        }
        for operator in &mut self.operators {
            let same = |known: &&OperatorInfo| (&known.text, known.depth) == (&operator.text, operator.depth);
            // A node that has come since worked in this time only.
            let earlier_ns = before.operators.iter().find(same).and_then(|known| known.busy_ns).unwrap_or(0);
            let took_ns = operator.busy_ns.map(|busy_ns| busy_ns.saturating_sub(earlier_ns));
            operator.share = took_ns.map(|took_ns| took_ns as f64 / elapsed_ns as f64);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_reports() {
        let report = |at_ns, busy: &[Option<u64>]| AnalyzeInfo {
            at_ns,
            operators: (0..)
                .zip(busy)
                .map(|(depth, busy_ns)| OperatorInfo { depth, busy_ns: *busy_ns, ..OperatorInfo::default() })
                .collect(),
            ..AnalyzeInfo::default()
        };
        let (before, after) = (report(1000, &[Some(10), None]), report(3000, &[Some(510), None, Some(100)]));
        let shares: Vec<Option<f64>> = after.clone().since(&before).operators.iter().map(|of| of.share).collect();
        assert_eq!(shares, [Some(0.25), None, Some(0.05)]);
        assert_eq!(after.clone().since(&after), after, "there was no time between them");
    }
}
