//! Reports of the platform: handlers, contexts, changes, events, and the history of the last minutes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A load, or room for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadInfo {
    /// Time of a core, in ns a second.
    pub time_ns_per_s: u64,
    /// Buffers held.
    pub buffers: u64,
    /// Bytes a second that leave.
    pub bytes_per_s: u64,
}

/// One deployed handler: a row of `crossdock handlers`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HandlerInfo {
    /// Its name.
    pub name: String,
    /// Which version of it this is, counted from 1.
    pub version: u32,
    /// What it is made from: its SQL, or `native NAME`.
    pub program: String,
    /// Its parameters' values.
    pub parameters: BTreeMap<String, String>,
    /// The streams that it reads.
    pub reads: Vec<String>,
    /// The derived stream that it makes.
    pub makes: String,
    /// `running`; `waiting`, for a stream or its format; `failed`, stopped since it panicked, did not return or went
    /// over its budget.
    pub status: String,
    /// Why it is in this status, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The context where it runs; none while it waits for its first format.
    pub context: Option<String>,
    /// Whether its specification names the context.
    pub is_fixed: bool,
    /// `communication` or `computation`: what measuring it showed it to be centred on; empty before.
    pub class: String,
    /// What state it keeps between batches, if any: a name and version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Its entry for each format that it reads.
    pub inputs: Vec<HandlerInputInfo>,
    /// Its estimated load at the stream's peak rate, without a margin: what it was admitted with.
    pub predicted: LoadInfo,
    /// Its reservation, if any: its own, or that of the paths that it lies on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<LoadInfo>,
    /// Its load in the last second.
    pub measured: LoadInfo,
    /// Records that came in.
    pub records_in: u64,
    /// Records that it made.
    pub records_out: u64,
    /// Payload bytes that came in.
    pub bytes_in: u64,
    /// Payload bytes that it made.
    pub bytes_out: u64,
    /// Records dropped since an expression failed.
    pub row_errors: u64,
    /// Records dropped, by reason, in name order; only reasons that occurred.
    pub dropped: Vec<(String, u64)>,
    /// Records a second that came in, in the last second.
    pub rate_msgs_per_s: u64,
    /// Processor time for a record, in ns: the mean of those measured in the last second.
    pub ns_per_record: f64,
    /// Time for a record that 99 of 100 stay below, in ns, since it was deployed.
    pub p99_ns_per_record: u64,
    /// Batches that took more processor time than its budget.
    pub overruns: u64,
    /// Times that it panicked or did not return.
    pub faults: u64,
    /// Batches that wait for it now.
    pub queued: u64,
    /// The bound on them.
    pub queue_bound: u64,
    /// One record in `sampled` is let through now, since batches wait too long for its core; 1: all.
    pub sampled: u32,
    /// Values that some of its parameters have now in the place of their own, since its core is overloaded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub degraded: BTreeMap<String, String>,
    /// Times that it was replaced, re-parameterised or moved.
    pub changes: u64,
}

/// A handler's entry for one format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HandlerInputInfo {
    /// The stream.
    pub stream: String,
    /// The id of the format that it reads.
    pub format: String,
    /// The id of the format that it makes of it; none where it does not fit.
    pub output: Option<String>,
    /// The form in which it runs, such as `kernel`, `interpreter` or `native`.
    pub form: String,
    /// What it costs a record, in ns, measured on a sample before it was let in.
    pub ns_per_record: f64,
    /// Records of the sample; 0: none of the stream's own was there yet, and made-up ones were taken.
    pub sample_records: u64,
}

/// One execution context; the first has the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HandlerContextInfo {
    /// Its name: `c-core-1`, `g-core-0`.
    pub name: String,
    /// `c-core` or `g-core`.
    pub kind: String,
    /// The CPU that it is pinned to, if it is.
    pub cpu: Option<usize>,
    /// Names of contexts with which it shares a thread, itself included.
    pub shares: Vec<String>,
    /// Handlers there.
    pub handlers: Vec<String>,
    /// Share of the last second in which it worked, by processor time, 0 to 1.
    pub busy_share: f64,
    /// Time that it has, in ns a second.
    pub capacity_ns_per_s: u64,
    /// Time that is left for further handlers, in ns a second.
    pub headroom_ns_per_s: u64,
    /// Buffers that are left for further handlers.
    pub headroom_buffers: u64,
    /// What it may carry, in bytes a second, if that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes_per_s: Option<u64>,
    /// What is left of that for further handlers, in bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom_bytes_per_s: Option<u64>,
    /// Batches that wait in its input queues.
    pub queued: u64,
    /// The bound on them.
    pub queue_bound: u64,
    /// Buffers of its pool in use.
    pub buffers_in_use: u64,
    /// The bound on them.
    pub buffers: u64,
    /// Records that its handlers took, in the last second.
    pub rate_msgs_per_s: u64,
    /// Payload bytes that came in, in the last second.
    pub bytes_in_per_s: u64,
    /// Payload bytes that left, in the last second.
    pub bytes_out_per_s: u64,
    /// Bytes that its device received and sent, in the last second.
    pub network_bytes_per_s: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// Times that it slept until something came.
    pub sleeps: u64,
    /// Times that it was replaced since a handler did not return.
    pub replaced: u64,
    /// Why it does not answer, if it does not: nothing that needs it is changed meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// The figures of a context or handler for one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MomentInfo {
    /// When, in seconds since the daemon's start.
    pub at_s: u64,
    /// Share of the time in which it worked, 0 to 1.
    pub busy_share: f64,
    /// Records a second in.
    pub msgs_in_per_s: u64,
    /// Records a second out.
    pub msgs_out_per_s: u64,
    /// Bytes a second in.
    pub bytes_in_per_s: u64,
    /// Bytes a second out.
    pub bytes_out_per_s: u64,
    /// Batches that waited at its end.
    pub queued: u64,
    /// Buffers held at its end: those in use at a context, those that wait for a handler.
    pub buffers: u64,
    /// Time that was left for further handlers, in ns a second; of a handler, 0.
    pub headroom_ns_per_s: u64,
}

/// The last minutes of a context or a handler, oldest first, a second each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryInfo {
    /// Its name.
    pub name: String,
    /// `context` or `handler`.
    pub kind: String,
    /// One entry a second.
    pub moments: Vec<MomentInfo>,
}

/// One change of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangeInfo {
    /// `deploy`, `swap`, `set_parameters`, `rewire`, `move` or `remove`.
    pub change: String,
    /// The handler.
    pub handler: String,
    /// In words: from where to where, what becomes of the state, what it will take.
    pub what: String,
}

/// The changes that lead to a wanted state, or the reasons why it is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanInfo {
    /// In the order in which they would be applied; none where all is as wanted.
    pub changes: Vec<ChangeInfo>,
    /// Why it cannot be; nothing changes then, but where it `is_begun`.
    pub refusals: Vec<String>,
    /// Whether it was carried out in part all the same: what was done stands, or is finished when a context that did
    /// not answer does.
    #[serde(default)]
    pub is_begun: bool,
    /// Further notes: a stream that does not exist yet, a cost that was only estimated.
    pub notes: Vec<String>,
}

/// What was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AppliedInfo {
    /// What was done.
    pub plan: PlanInfo,
    /// From the request to the last context's having taken it, in us.
    pub took_us: u64,
}

/// Something that happened on the platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventInfo {
    /// Counted from 1 since the daemon's start.
    pub number: u64,
    /// When, in ms since 1970.
    pub at_ms: u64,
    /// What kind: `deployed`, `swapped`, `moved`, `removed`, `refused`, `over_budget`, `failed`, `replaced`,
    /// `degraded`, `restored`, `lost`, `returned` …
    pub kind: String,
    /// The handler that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// The context that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// What happened and why, in a sentence.
    pub text: String,
}
