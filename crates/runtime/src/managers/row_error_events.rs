//! The reports of the records that handlers could not compute.

use crate::graph::gauges::NodeGauges;
use crate::losses::{Losses, with_example};
use crossdock_engine::RowErrorCounts;

/// Seconds between two events of one handler, at least.
const INTERVAL_S: u32 = 10;

/// The row errors of a handler, as far as events have reported them.
#[derive(Debug, Default)]
pub(crate) struct RowErrorEvents {
    noted: RowErrorCounts,
    /// Seconds until there may be another event.
    wait_s: u32,
}

impl RowErrorEvents {
    /// Takes in the gauges at the end of a second. Returns the text of the event to report, if any; without values of records if it
    /// hides them.
    pub(crate) fn second(&mut self, gauges: &NodeGauges, hides_values: bool) -> Option<String> {
        self.wait_s = self.wait_s.saturating_sub(1);
        let now = gauges.row_errors_by();
        if self.wait_s > 0 || now == self.noted {
            return None;
        }
        let before = std::mem::replace(&mut self.noted, now);
        let new = Losses::of_row_errors(&std::array::from_fn(|at| now[at].saturating_sub(before[at])));
        if new.sum() == 0 {
            return None;
        }
        self.wait_s = INTERVAL_S;
        let first = gauges.first_row_error().filter(|_| !hides_values).unwrap_or_default();
        let reasons = new.by_cause().into_iter().map(|(cause, records)| {
            let why = with_example(cause, records, first, "").unwrap_or_else(|| cause.to_string());
            format!("{records} because {why}")
        });
        let records = if new.sum() == 1 { "record" } else { "records" };
        Some(format!("it lost {} {records}: {}", new.sum(), reasons.collect::<Vec<_>>().join("; ")))
    }
}
