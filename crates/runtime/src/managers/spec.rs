//! Specifications of handlers: the `[[handler]]` sections of a configuration, and the bodies of requests.

use crossdock_control::load::Load;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The specification of a handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HandlerSpec {
    /// Its name, which no other handler has.
    pub name: String,
    /// Its query; absent for a built-in handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// The name of the built-in handler; absent for a query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
    /// The streams that it reads. A query's FROM names its input stream, so this may be empty for a query.
    #[serde(alias = "on", skip_serializing_if = "Vec::is_empty")]
    pub input_streams: Vec<String>,
    /// The derived stream that it produces; the handler's name when absent.
    #[serde(alias = "makes", skip_serializing_if = "Option::is_none")]
    pub output_stream: Option<String>,
    /// Values of its parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// The context where it is to run; where it fits best when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The most records a second that its streams bring; the highest rate of the last minute when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_msgs_per_s: Option<u64>,
    /// Time that is kept for it whether it uses it or not, in ns a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_ns_per_s: Option<u64>,
    /// Buffers that are kept for it whether it uses them or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_buffers: Option<u64>,
    /// Bandwidth that is kept for what it makes, in bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_bytes_per_s: Option<u64>,
    /// Rate, in records a second at its beginning, that the service path that ends here must sustain. On each handler
    /// of the path, the measured load for the records that reach it at that rate is reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_path_msgs_per_s: Option<u64>,
    /// How many batches it may take at a time where several handlers have something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// What happens when its input queue is full.
    pub when_full: WhenFull,
    /// Parameter values that apply while its core is overloaded, before any record is left out. The values in `parameters` apply again when the core has room.
    #[serde(alias = "degrade", skip_serializing_if = "BTreeMap::is_empty")]
    pub overload_parameters: BTreeMap<String, String>,
    /// The handler may be sampled while runnable batches wait too long for its core: at least one record in
    /// `max_sampling` is processed. 1 or absent: all records are processed.
    #[serde(alias = "may_sample", skip_serializing_if = "Option::is_none")]
    pub max_sampling: Option<u32>,
    /// The processor time that it may take for a record, in ns; ten times what it was measured to take when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_ns: Option<u64>,
    /// How long it may work on a g-core without going on to its next record, in ms, before it is given up with its
    /// batch, and how long it may work on the sample that it is measured on; the platform's value when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_after_ms: Option<u64>,
    /// What happens when it goes over its budget again and again.
    pub over_budget: OverBudget,
    /// What happens when it panics or does not return.
    pub on_fault: OnFault,
}

/// What happens to records for a handler whose input queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// Publishers of the stream wait: nothing is lost.
    #[default]
    Block,
    /// The records are dropped and counted; publishers do not wait.
    Drop,
}

/// What happens to a handler that goes over its budget again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OverBudget {
    /// It moves to a g-core, if it is on a c-core and one has room; else it stays and is counted, on a c-core with no
    /// more time than its budget allows.
    #[default]
    Move,
    /// It is stopped.
    Stop,
}

/// What happens to a handler that panics or does not return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnFault {
    /// A new instance, with new state, goes on behind the batch; three faults in a minute stop it.
    #[default]
    Restart,
    /// It is stopped.
    Stop,
}

impl HandlerSpec {
    /// Checks that its figures are within their bounds.
    ///
    /// # Errors
    /// The figure that is not, and its bounds.
    pub fn check(&self) -> Result<(), String> {
        let bounds = [
            ("weight", self.weight.map(u64::from), 1000),
            ("max_sampling", self.max_sampling.map(u64::from), 1 << 20),
            ("budget_ns", self.budget_ns, 60_000_000_000),
            ("stuck_after_ms", self.stuck_after_ms, 86_400_000),
            ("peak_msgs_per_s", self.peak_msgs_per_s, 1_000_000_000_000),
            ("reserve_buffers", self.reserve_buffers, 1 << 32),
            ("reserve_bytes_per_s", self.reserve_bytes_per_s, 1_000_000_000_000),
            ("reserve_path_msgs_per_s", self.reserve_path_msgs_per_s, 1_000_000_000_000),
        ];
        for (name, value, most) in bounds {
            if value.is_some_and(|value| value < 1 || value > most) {
                return Err(format!("its {name} is {}: the range is 1 to {most}", value.unwrap_or(0)));
            }
        }
        match self.reserve_ns_per_s {
            Some(ns) if ns > 1_000_000_000 => Err(format!("it reserves {ns} ns/s: a core has 1000000000")),
            _ => Ok(()),
        }
    }

    /// Its own reservation, by its specification.
    pub(crate) fn reserve(&self) -> Load {
        Load {
            time_ns_per_s: self.reserve_ns_per_s.unwrap_or(0),
            buffers: self.reserve_buffers.unwrap_or(0),
            bytes_per_s: self.reserve_bytes_per_s.unwrap_or(0),
        }
    }

    /// The values of its parameters while its overload rule is applied.
    pub(crate) fn degraded_parameters(&self) -> BTreeMap<String, String> {
        let mut parameters = self.parameters.clone();
        parameters.extend(self.overload_parameters.clone());
        parameters
    }

    /// The derived stream that it produces.
    #[must_use]
    pub fn derived(&self) -> &str {
        self.output_stream.as_deref().unwrap_or(&self.name)
    }
}
