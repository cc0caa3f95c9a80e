//! `[[handler]]`: what runs from the start.

use std::collections::BTreeMap;

use crossdock_runtime::settings::{name, perhaps_within};
use crossdock_runtime::{HandlerSpec, OnFault, OnRowError, OverBudget, WhenFull};
use serde::Deserialize;

use super::values::{in_words, scalars};
use crate::quantity::{Reserve, parse_budget, parse_peak, parse_reserve, parse_stuck_after};

/// `[[handler]]`: a [`HandlerSpec`], its quantities as people write them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandlerSection {
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    #[serde(default)]
    sql: Option<String>,
    #[serde(default)]
    native: Option<String>,
    #[serde(default)]
    input_streams: Vec<String>,
    #[serde(default)]
    output_stream: Option<String>,
    #[serde(default, deserialize_with = "scalars")]
    parameters: BTreeMap<String, String>,
    #[serde(default)]
    place: Option<String>,
    #[serde(default)]
    replicas: bool,
    #[serde(default, deserialize_with = "peak")]
    peak: Option<u64>,
    #[serde(default, deserialize_with = "reserve")]
    reserve: Reserve,
    #[serde(default, deserialize_with = "peak")]
    reserve_path_rate: Option<u64>,
    #[serde(default, deserialize_with = "perhaps_within::<_, u32, 1, 1000>")]
    weight: Option<u32>,
    #[serde(default)]
    when_full: WhenFull,
    #[serde(default, deserialize_with = "scalars")]
    overload_parameters: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "perhaps_within::<_, u32, 1, 1_000_000>")]
    max_sampling: Option<u32>,
    #[serde(default, deserialize_with = "budget")]
    budget: Option<u64>,
    #[serde(default, deserialize_with = "stuck_after")]
    stuck_after: Option<u64>,
    #[serde(default)]
    over_budget: OverBudget,
    #[serde(default)]
    on_fault: OnFault,
    #[serde(default)]
    on_row_error: OnRowError,
}

fn peak<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    in_words(deserializer, parse_peak).map(Some)
}

fn reserve<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Reserve, D::Error> {
    in_words(deserializer, parse_reserve)
}

fn budget<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    in_words(deserializer, parse_budget).map(Some)
}

fn stuck_after<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    in_words(deserializer, parse_stuck_after).map(Some)
}

impl HandlerSection {
    /// The specification of the handler.
    pub(crate) fn spec(&self) -> HandlerSpec {
        let HandlerSection { name, sql, native, input_streams, output_stream, parameters, place, .. } = self.clone();
        HandlerSpec {
            name,
            sql,
            native,
            state: None,
            part: None,
            input_streams,
            output_stream,
            parameters,
            place,
            replicas: self.replicas,
            peak_msgs_per_s: self.peak,
            reserve_ns_per_s: self.reserve.ns_per_s,
            reserve_buffers: self.reserve.buffers,
            reserve_bytes_per_s: self.reserve.bytes_per_s,
            reserve_path_msgs_per_s: self.reserve_path_rate,
            weight: self.weight,
            when_full: self.when_full,
            overload_parameters: self.overload_parameters.clone(),
            max_sampling: self.max_sampling,
            budget_ns: self.budget,
            stuck_after_ms: self.stuck_after,
            over_budget: self.over_budget,
            on_fault: self.on_fault,
            on_row_error: self.on_row_error,
            subscription_views: None,
        }
    }

    /// Values that do not go together, each key being right for itself.
    pub(super) fn contradiction(&self) -> Option<String> {
        let why = match (&self.sql, &self.native) {
            (Some(_), Some(_)) => "has both `sql` and `native`; keep one",
            (None, None) => "has neither `sql`, a query, nor `native`, the name of a built-in handler",
            (None, Some(_)) if self.input_streams.is_empty() => {
                "is native and reads no stream: name its input streams, such as input_streams = [\"A\"]"
            }
            _ if self.replicas && self.place.is_some() => {
                "has `replicas`, one at each I/O context, and a `place`; keep one"
            }
            _ => return None,
        };
        Some(format!("[[handler]] `{}` {why}", self.name))
    }
}
