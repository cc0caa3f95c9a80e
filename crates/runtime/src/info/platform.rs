//! Reports of the platform: handlers, contexts, changes, events, and the history of the last minutes.

use super::HistogramInfo;
use super::field::{Unit, counter, gauge, histogram, info, label, listed, reports};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The metric with a handler's place and status as labels.
const HANDLER_INFO: &str = "crossdock_handler_info";

/// A load, or the capacity for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadInfo {
    /// Core time, in ns per second.
    pub time_ns_per_s: u64,
    /// Buffers held.
    pub buffers: u64,
    /// Outgoing bytes per second.
    pub bytes_per_s: u64,
}

reports! {
    /// One deployed handler: a row of `crossdock handlers`.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct HandlerInfo {
        /// Its name.
        pub name: String = label("handler").title("handler"),
        /// Which version of it this is, counted from 1.
        pub version: u32 = info(HANDLER_INFO),
        /// Its program: its SQL, or `native NAME`.
        pub program: String,
        /// Its parameters' values.
        pub parameters: BTreeMap<String, String>,
        /// The streams that it reads.
        pub reads: Vec<String>,
        /// The derived stream that it produces.
        pub makes: String = info(HANDLER_INFO),
        /// `running`; `waiting`, for a stream or its format; `failed`, stopped because it panicked, did not return or
        /// exceeded its budget.
        pub status: String = info(HANDLER_INFO),
        /// The reason for this status, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub why: Option<String> = listed().title("reason"),
        /// The context where it runs; none while it waits for its first format.
        pub context: Option<String> = info(HANDLER_INFO).title("place"),
        /// Whether its specification names the context.
        pub is_fixed: bool = listed().title("fixed place"),
        /// `communication` or `computation`: the class that its measurement gave; empty before.
        pub class: String = info(HANDLER_INFO).title("class"),
        /// The handler that it is the replica of at its context, if it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub replica_of: Option<String> = listed().title("replica of"),
        /// The kind of state that it keeps between batches, if any: a name and version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub state: Option<String>,
        /// The plan of a query with joins or windows, as lines for people, once each of its streams has a format.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub plan: Option<String>,
        /// Its entry for each format that it reads.
        pub inputs: Vec<HandlerInputInfo>,
        /// Its estimated load at the stream's peak rate, without a margin, as of its admission.
        pub predicted: LoadInfo = gauge("crossdock_handler_predicted_load").unit(Unit::NsPerS).title("needs"),
        /// Its reservation, if any: its own, or that of its service paths.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reserved: Option<LoadInfo>,
        /// Its load in the last second.
        pub measured: LoadInfo = gauge("crossdock_handler_load").unit(Unit::NsPerS).title("takes"),
        /// The bound on its core time, after it exceeded its budget; absent if it is not limited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit_ns_per_s: Option<u64> = gauge("crossdock_handler_limit").unit(Unit::NsPerS).title("limited to"),
        /// Incoming records.
        pub records_in: u64 = counter("crossdock_handler_records_in"),
        /// Records that it produced.
        pub records_out: u64 = counter("crossdock_handler_records_out"),
        /// Bytes of the incoming records, without packets' headers.
        pub bytes_in: u64 = counter("crossdock_handler_in").unit(Unit::Bytes),
        /// Bytes of the records that it produced.
        pub bytes_out: u64 = counter("crossdock_handler_out").unit(Unit::Bytes),
        /// Incoming batches.
        #[serde(default)]
        pub batches_in: u64 = counter("crossdock_handler_batches_in"),
        /// Processor time that it used: measured, and estimated for batches that were not measured.
        #[serde(default)]
        pub busy_ns: u64 = counter("crossdock_handler_busy").unit(Unit::Ns).title("time used"),
        /// Records for which the condition of its query did not hold.
        #[serde(default)]
        pub filtered: u64 = counter("crossdock_handler_records_filtered").title("filtered"),
        /// Records that went into the state of a query with joins or windows, from which rows may come later.
        #[serde(default)]
        pub taken: u64 = counter("crossdock_handler_records_taken").title("taken into state"),
        /// Rows of such a query that came after the window or join that they belong to was closed, or had no time.
        #[serde(default)]
        pub late: u64 = counter("crossdock_handler_rows_late").title("late"),
        /// Keys and rows that its state had to forget for others, since it has a bound.
        #[serde(default)]
        pub forgotten: u64 = counter("crossdock_handler_state_forgotten").title("forgotten"),
        /// Rows between the stages of such a query that could not be computed further.
        #[serde(default)]
        pub stage_errors: u64 = counter("crossdock_handler_stage_errors").title("errors within"),
        /// The bytes that the state of such a query takes.
        #[serde(default)]
        pub state_bytes: u64 = gauge("crossdock_handler_state").unit(Unit::Bytes).bound("state_bytes_bound"),
        /// The bound on them.
        #[serde(default)]
        pub state_bytes_bound: u64 = gauge("crossdock_handler_state_bound").unit(Unit::Bytes),
        /// The policy of its state at that bound: `sheds the oldest`, which counts as forgotten. Empty without a bound.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub state_policy: String = listed().title("at its bound"),
        /// Checkpoints of its state that were written.
        #[serde(default)]
        pub checkpoints: u64 = counter("crossdock_handler_checkpoints"),
        /// Those that could not be written, or not be read at the start, or whose state was too large.
        #[serde(default)]
        pub checkpoint_failures: u64 = counter("crossdock_handler_checkpoint_failures").title("checkpoints failed"),
        /// The bytes of the last one on disk.
        #[serde(default)]
        pub checkpoint_bytes: u64 = gauge("crossdock_handler_checkpoint").unit(Unit::Bytes),
        /// When its state was copied.
        #[serde(default)]
        pub checkpoint_at_ms: u64 = gauge("crossdock_handler_checkpoint_at").unit(Unit::AtMs).title("checkpoint at"),
        /// Records that earlier daemons took, and that are not in the state with which it began: at least as many.
        #[serde(default)]
        pub gap_records: u64 = gauge("crossdock_handler_gap_records").title("missing in state"),
        /// Records dropped because an expression failed.
        pub row_errors: u64 = counter("crossdock_handler_row_errors"),
        /// The same by cause, in words: only causes that occurred.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub row_errors_by: Vec<(String, u64)> = listed().title("row errors"),
        /// The first record whose expressions failed, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub first_row_error: Option<String> = listed().title("first row error"),
        /// Records dropped, by reason, in name order; only reasons that occurred.
        pub dropped: Vec<(String, u64)> = counter("crossdock_handler_dropped").title("dropped"),
        /// Incoming records per second, in the last second.
        pub rate_msgs_per_s: u64 = listed().title("records/s"),
        /// Processor time per record: the mean of the batches measured in the last second.
        pub ns_per_record: f64 = gauge("crossdock_handler_record_time").unit(Unit::Ns).title("time per record"),
        /// The 99th percentile of the time per record, since it was deployed.
        pub p99_ns_per_record: u64 = gauge("crossdock_handler_record_time_p99").unit(Unit::Ns).title("p99 per record"),
        /// Batches that took more processor time than its budget.
        pub overruns: u64 = counter("crossdock_handler_overruns").title("budget overruns"),
        /// Times that it panicked or did not return.
        pub faults: u64 = counter("crossdock_handler_faults"),
        /// Batches in its input queues.
        pub queued: u64 = gauge("crossdock_handler_queued_batches").bound("queue_bound"),
        /// The bound on them.
        pub queue_bound: u64 = gauge("crossdock_handler_queued_batches_bound"),
        /// It processes one record in `sampled` now, because batches wait too long for its core; 1: all.
        pub sampled: u32 = gauge("crossdock_handler_one_record_in").title("one record in"),
        /// Batches that were sampled, because batches had waited too long for the context.
        #[serde(default)]
        pub batches_shed: u64 = counter("crossdock_handler_batches_shed"),
        /// Overload values that some of its parameters have now, because its core is overloaded.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub degraded: BTreeMap<String, String> = gauge("crossdock_handler_degraded").title("overload parameters"),
        /// Times that it was replaced, re-parameterised or moved.
        pub changes: u64 = counter("crossdock_handler_changes"),
    }
}

/// A handler's entry for one format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HandlerInputInfo {
    /// The stream.
    pub stream: String,
    /// The id of the format that it reads.
    pub format: String,
    /// The id of the format that it produces from it; none if the handler does not fit the format.
    pub output: Option<String>,
    /// Why it does not fit the format, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The form in which it runs, such as `kernel`, `interpreter` or `native`.
    pub form: String,
    /// Its cost per record, in ns, measured on a sample before its admission.
    pub ns_per_record: f64,
    /// Records of the sample; 0: none of this format had come, and made-up records were used.
    pub sample_records: u64,
}

reports! {
    /// One execution context; the first has the device.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct HandlerContextInfo {
        /// Its name: `c-core-1`, `g-core-0`.
        pub name: String = label("context").title("context"),
        /// `c-core` or `g-core`.
        pub kind: String = label("kind"),
        /// The CPU that it is pinned to, if it is.
        pub cpu: Option<usize>,
        /// Names of contexts with which it shares a thread, itself included.
        pub shares: Vec<String>,
        /// Handlers there.
        pub handlers: Vec<String> = gauge("crossdock_context_handlers"),
        /// Share of the last second in which it worked, by processor time, 0 to 1.
        pub busy_share: f64 = gauge("crossdock_context_busy").unit(Unit::Share).title("busy"),
        /// Time that it has.
        pub capacity_ns_per_s: u64 = gauge("crossdock_context_capacity").unit(Unit::NsPerS),
        /// Time that is left for further handlers.
        pub headroom_ns_per_s: u64 = gauge("crossdock_context_headroom").unit(Unit::NsPerS).title("headroom"),
        /// Buffers that are left for further handlers.
        pub headroom_buffers: u64,
        /// Bandwidth limit, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub capacity_bytes_per_s: Option<u64> = gauge("crossdock_context_bandwidth_capacity").unit(Unit::BytesPerS),
        /// Bandwidth left for further handlers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub headroom_bytes_per_s: Option<u64> = gauge("crossdock_context_bandwidth_headroom").unit(Unit::BytesPerS).bound("capacity_bytes_per_s").title("bandwidth left"),
        /// Batches in its input queues.
        pub queued: u64 = gauge("crossdock_context_queued_batches").bound("queue_bound"),
        /// The bound on them.
        pub queue_bound: u64 = gauge("crossdock_context_queued_batches_bound"),
        /// Its buffers in use: for what its handlers make, and at an I/O context also those that it receives into and sends from.
        pub buffers_in_use: u64 = gauge("crossdock_context_buffers").bound("buffers"),
        /// The bound on them.
        pub buffers: u64 = gauge("crossdock_context_buffers_bound"),
        /// Records that its handlers processed in the last second.
        pub rate_msgs_per_s: u64 = listed().title("records/s"),
        /// Bytes of incoming records in the last second.
        pub bytes_in_per_s: u64 = listed().unit(Unit::BytesPerS),
        /// Bytes of outgoing records in the last second.
        pub bytes_out_per_s: u64 = listed().unit(Unit::BytesPerS),
        /// Bytes of the packets that its device received and sent in the last second, headers included.
        pub network_bytes_per_s: u64 = listed().unit(Unit::BytesPerS),
        /// Busy processor time.
        #[serde(default)]
        pub busy_ns: u64 = counter("crossdock_context_busy").unit(Unit::Ns).title("busy time"),
        /// Processor time of its handlers.
        #[serde(default)]
        pub handler_ns: u64 = counter("crossdock_context_handler").unit(Unit::Ns).title("handler time"),
        /// Batches that its handlers processed.
        #[serde(default)]
        pub batches_in: u64 = counter("crossdock_context_batches_in"),
        /// Batches that had waited too long for it although they could be processed.
        #[serde(default)]
        pub batches_delayed: u64 = counter("crossdock_context_batches_delayed"),
        /// Records that its handlers processed.
        #[serde(default)]
        pub records_in: u64 = counter("crossdock_context_records_in"),
        /// Bytes of the records that its handlers processed, without packets' headers.
        #[serde(default)]
        pub bytes_in: u64 = counter("crossdock_context_in").unit(Unit::Bytes),
        /// Bytes of the records that its handlers produced.
        #[serde(default)]
        pub bytes_out: u64 = counter("crossdock_context_out").unit(Unit::Bytes),
        /// Bytes of the packets that its device received and sent, with Crossdock's headers, without those of UDP and IP.
        #[serde(default)]
        pub network_bytes: u64 = counter("crossdock_context_network").unit(Unit::Bytes),
        /// Time from the arrival of a batch at the context, or in the queue of a later handler there, until the
        /// handler has processed it, or until the end of the turn in which an I/O context passed it to subscriptions.
        #[serde(default)]
        pub batch_latency: HistogramInfo = histogram("crossdock_context_batch_latency"),
        /// Time that a batch waited in a queue before its handler ran, of those that did: what one handler made goes to the next at the
        /// same context without a queue.
        #[serde(default)]
        pub batch_wait: HistogramInfo = histogram("crossdock_context_batch_wait"),
        /// Turns of its loop.
        pub turns: u64 = counter("crossdock_context_turns"),
        /// Times that it slept until a batch or message arrived.
        pub sleeps: u64 = counter("crossdock_context_sleeps"),
        /// Times that its thread was replaced because a handler did not return.
        pub replaced: u64 = counter("crossdock_context_replaced"),
        /// Panics of its thread outside of handlers, which are mistakes of Crossdock's. Each takes what was in work, and the context
        /// goes on.
        #[serde(default)]
        pub panics: u64 = counter("crossdock_context_panics"),
        /// Why it does not answer, if it does not; no change that involves it is made meanwhile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub lost: Option<String>,
    }
}

/// The figures of a context or handler for one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MomentInfo {
    /// When, in seconds since the daemon's start.
    pub at_s: u64,
    /// Share of the time in which it worked, 0 to 1.
    pub busy_share: f64,
    /// Incoming records per second.
    pub msgs_in_per_s: u64,
    /// Outgoing records per second.
    pub msgs_out_per_s: u64,
    /// Incoming bytes per second.
    pub bytes_in_per_s: u64,
    /// Outgoing bytes per second.
    pub bytes_out_per_s: u64,
    /// Batches that waited at its end.
    pub queued: u64,
    /// Buffers held at its end: used at a context, or waiting for a handler.
    pub buffers: u64,
    /// Core time left for further handlers, in ns per second; 0 for a handler.
    pub headroom_ns_per_s: u64,
}

/// The last minutes of a context or a handler, one entry per second, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryInfo {
    /// Its name.
    pub name: String,
    /// `context` or `handler`.
    pub kind: String,
    /// One entry per second.
    pub moments: Vec<MomentInfo>,
}

reports! {
    /// Changes of the platform since the daemon's start.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ControlInfo {
        /// When the daemon started.
        pub started_at_ms: u64 = gauge("process_start_time").unit(Unit::AtMs).title("started at"),
        /// Time from the request for a change until every context had applied it.
        pub change_time: HistogramInfo = histogram("crossdock_change_request_to_effect").title("change time"),
        /// Events, by kind: deployments, moves, refusals and so on.
        pub events: Vec<(String, u64)> = counter("crossdock_events").by("kind"),
        /// Requests that the access rules refused, by what they were for.
        #[serde(default)]
        pub access_refused: Vec<(String, u64)> = counter("crossdock_access_refused").by("action"),
        /// TLS handshakes with the control API that began and failed, took too long or gave way to other connections.
        #[serde(default)]
        pub tls_failures: u64 = counter("crossdock_control_tls_failures").title("TLS failures"),
        /// Checkpoints of the whole graph that are on disk, of a daemon that is `durable`.
        #[serde(default)]
        pub cuts: u64 = counter("crossdock_cuts").title("whole checkpoints"),
        /// Those that were put off, since records were still on their way when the time for them was over.
        #[serde(default)]
        pub cuts_put_off: u64 = counter("crossdock_cuts_put_off").title("whole checkpoints put off"),
        /// Those that could not be written.
        #[serde(default)]
        pub cuts_failed: u64 = counter("crossdock_cuts_failed").title("whole checkpoints failed"),
    }
}

/// One change of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangeInfo {
    /// `deploy`, `swap`, `set_parameters`, `rewire`, `move` or `remove`.
    pub change: String,
    /// The handler.
    pub handler: String,
    /// As text: the contexts, what happens to the state, the predicted load.
    pub what: String,
}

/// The changes that lead to a wanted state, or the reasons why it is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanInfo {
    /// In the order in which they would be applied; none if everything is as requested.
    pub changes: Vec<ChangeInfo>,
    /// Why the request is refused; then nothing has changed, unless it `is_begun`.
    pub refusals: Vec<String>,
    /// Whether it was carried out in part: its completed steps stay, or it is completed when a context answers that
    /// did not.
    #[serde(default)]
    pub is_begun: bool,
    /// Further notes: a stream that does not exist yet, a cost that was only estimated.
    pub notes: Vec<String>,
}

/// The changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AppliedInfo {
    /// The plan.
    pub plan: PlanInfo,
    /// From the request to the last context's having taken it, in us.
    pub took_us: u64,
    /// How often the change waited for contexts: to learn what they know of the streams, to prepare and to take in new formats at the
    /// same time, to commit, and to end a stream that no handler makes any more.
    #[serde(default)]
    pub round_trips: u32,
    /// How many handlers were looked at to plan it: those that the change concerns.
    #[serde(default)]
    pub handlers_planned: u32,
}

/// Something that happened on the platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventInfo {
    /// Counted from 1 since the daemon's start.
    pub number: u64,
    /// When, in ms since 1970.
    pub at_ms: u64,
    /// The kind: `deployed`, `swapped`, `moved`, `removed`, `refused`, `over_budget`, `failed`, `replaced`,
    /// `panicked`, `degraded`, `restored`, `lost`, `returned`, `dropped` (records that did not reach a subscriber), `disconnected`,
    /// `access_refused`, `blocked` (a subscriber that takes nothing holds publishers back) …
    pub kind: String,
    /// The handler that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// The context that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The event and its reason, in a sentence.
    pub text: String,
}
