//! Specifications of handlers: the `[[handler]]` sections of a configuration, and the bodies of requests.

use crate::managers::state_spec::StateSpec;
use crossdock_control::load::Load;
use crossdock_engine::QueryPart;
use crossdock_transport::control::RowErrors;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Between a handler's name and that of a context, in the name of a replica.
const AT: char = '@';

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
    /// Set for the state of a stream, which keeps the last record by key: in place of a query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateSpec>,
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
    /// Whether it runs at every I/O context, where each replica works on the records that are published there. Only a handler
    /// that keeps no state can.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replicas: bool,
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
    /// The policy when its input queue is full.
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
    /// The policy when it goes over its budget again and again.
    pub over_budget: OverBudget,
    /// The policy when it panics or does not return.
    pub on_fault: OnFault,
    /// The policy of its query for a record that it cannot compute: a division by zero, an overflow, a CAST that cannot
    /// be done.
    pub on_row_error: OnRowError,
    /// Set for a subscription's query with state: the views that it reads streams through, by stream. Its clauses for a slow subscriber
    /// are none of the handler's. It is part of no request, and not written down.
    #[serde(skip)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub subscription_views: Option<BTreeMap<String, String>>,
    /// Set for a part of a subscription's query with state, where the query was cut. It is part of no request, and not written down.
    #[serde(skip)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub part: Option<QueryPart>,
}

/// The policy of a query for a record that it cannot compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnRowError {
    /// The record is dropped and counted.
    #[default]
    Skip,
    /// The expression is null; a condition that is null does not hold.
    Null,
}

impl From<RowErrors> for OnRowError {
    fn from(row_errors: RowErrors) -> OnRowError {
        match row_errors {
            RowErrors::Skip => OnRowError::Skip,
            RowErrors::Null => OnRowError::Null,
        }
    }
}

/// The policy for records for a handler whose input queue is full.
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

/// The policy for a handler that goes over its budget again and again.
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

/// The policy for a handler that panics or does not return.
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
    /// Checks that its name can be one, that its figures are within their bounds, and that its place is no contradiction.
    ///
    /// # Errors
    /// The impossible value, and its bounds.
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
        if self.name.is_empty() || self.name.len() > 255 || self.name.chars().any(|c| c.is_control() || c == AT) {
            return Err(format!("a handler's name has 1 to 255 bytes, no control characters and no `{AT}`"));
        }
        self.check_state()?;
        if self.replicas && self.place.is_some() {
            return Err("it has a replica at each I/O context, and a place: give it one of the two".to_owned());
        }
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
        self.output_stream.as_deref().unwrap_or(self.asked_name())
    }

    /// The name under which it was asked for: of a replica the name of its handler.
    pub(crate) fn asked_name(&self) -> &str {
        if self.replicas { self.name.split(AT).next().unwrap_or_default() } else { &self.name }
    }

    /// The specification that was asked for: of a replica its handler.
    pub(crate) fn asked(&self) -> HandlerSpec {
        let place = self.place.clone().filter(|_| !self.replicas);
        HandlerSpec { name: self.asked_name().to_owned(), place, ..self.clone() }
    }

    /// The name of a handler's replica at a context.
    pub(crate) fn replica_name(handler: &str, context: &str) -> String {
        format!("{handler}{AT}{context}")
    }

    /// The running handlers of it: itself, or a replica at each of these contexts.
    pub(crate) fn at_contexts<'a>(&self, contexts: impl Iterator<Item = &'a str>) -> Vec<HandlerSpec> {
        let replica = |context: &str| {
            let (name, place) = (HandlerSpec::replica_name(&self.name, context), Some(context.to_owned()));
            HandlerSpec { name, place, ..self.clone() }
        };
        if self.replicas { contexts.map(replica).collect() } else { vec![self.clone()] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_named_after_its_handler_and_its_context_and_what_was_asked_for_comes_back() {
        let single = HandlerSpec { name: "clean".into(), place: Some("g-core-0".into()), ..HandlerSpec::default() };
        assert_eq!(single.at_contexts(["c-core-0"].into_iter()), vec![single.clone()]);
        assert_eq!((single.asked(), single.derived()), (single.clone(), "clean"));
        let asked = HandlerSpec { replicas: true, place: None, ..single };
        let replicas = asked.at_contexts(["c-core-0", "c-core-1"].into_iter());
        let names = replicas.iter().map(|replica| (&*replica.name, replica.place.as_deref(), replica.derived()));
        let wanted = [("clean@c-core-0", Some("c-core-0"), "clean"), ("clean@c-core-1", Some("c-core-1"), "clean")];
        assert!(names.eq(wanted), "{replicas:?}");
        assert!(replicas.iter().all(|replica| replica.asked() == asked));
    }

    #[test]
    fn a_name_has_no_sign_of_a_replica_and_replicas_have_no_place() {
        let spec = |name: &str| HandlerSpec { name: name.into(), ..HandlerSpec::default() };
        for name in ["", "clean@c-core-0", "a\nb", &"long".repeat(64)] {
            assert!(spec(name).check().is_err_and(|why| why.contains("no `@`")), "{name}");
        }
        assert_eq!(spec("clean").check(), Ok(()));
        let both = HandlerSpec { replicas: true, place: Some("c-core-0".into()), ..spec("clean") };
        assert!(both.check().is_err_and(|why| why.contains("give it one of the two")));
    }
}
