//! Reports of a context: the rows of `crossdock streams|subscriptions|formats|contexts|clients|mailboxes`.
//!
//! All counters count from the context's start. The same structures are the JSON of the HTTP API.

mod platform;

pub use platform::{
    AppliedInfo, ChangeInfo, EventInfo, HandlerContextInfo, HandlerInfo, HandlerInputInfo, HistoryInfo, LoadInfo,
    MomentInfo, PlanInfo,
};

use serde::{Deserialize, Serialize};

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// Ids of the formats announced on it, newest last, as 16 hex digits.
    pub formats: Vec<String>,
    /// Publishers that have announced it and have not finished.
    pub publishers: u32,
    /// Subscriptions to it.
    pub subscriptions: u32,
    /// Records that came in.
    pub records_in: u64,
    /// Payload bytes that came in.
    pub bytes_in: u64,
    /// Records that came in without a subscription; they were dropped.
    pub records_unclaimed: u64,
    /// Records in packets whose payload is not what its format says; they were dropped.
    pub records_malformed: u64,
    /// How its format may change: `none`, `backward`, `forward` or `full`.
    #[serde(default)]
    pub policy: String,
    /// Publishers that are held back now because a subscriber's queue is full.
    pub blocked: u32,
    /// The handler that makes it; none where publishers do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
    /// Records a second at the most, over any 100 ms of the last minute.
    #[serde(default)]
    pub peak_msgs_per_s: u64,
}

/// One subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubscriptionInfo {
    /// Number in the daemon.
    pub id: u64,
    /// The stream it reads.
    pub stream: String,
    /// Its query.
    pub sql: String,
    /// The handler that runs its query, where the context with the device has no time for that.
    #[serde(default)]
    pub handler: Option<String>,
    /// The subscriber: its address, or `client 3 (pid 123 name)` where it is attached by shared memory.
    pub peer: String,
    /// What happens when its queue is full: `block`, `drop_oldest` or `disconnect`.
    pub overflow: String,
    /// Records that its handler saw.
    pub records_in: u64,
    /// Records that left for it.
    pub records_out: u64,
    /// Records whose expressions failed (overflow, division by zero); they were dropped.
    pub row_errors: u64,
    /// Records dropped by its overflow policy.
    pub dropped: u64,
    /// Bytes queued or unacknowledged now; for an attached client, queued or not yet given back.
    pub backlog_bytes: u64,
    /// The bound on that, in bytes; publishers' outstanding credit comes on top.
    pub queue_bytes: u64,
    /// The formats that it accepts, where it says so: their ids; `v3` for a version that the stream does not have yet.
    #[serde(default)]
    pub accept: Vec<String>,
    /// With these: what happens to records that nothing converts, `hold` or `drop`.
    #[serde(default)]
    pub unreadable: String,
    /// Records that wait for a conversion.
    #[serde(default)]
    pub held_records: u64,
    /// Their size, in bytes.
    #[serde(default)]
    pub held_bytes: u64,
}

/// The schema of a [`crossdock_transport::FormatName`], which lives where no schemas are.
#[cfg(feature = "openapi")]
#[derive(utoipa::ToSchema)]
#[schema(as = FormatName, rename_all = "snake_case")]
pub enum FormatNameSchema {
    /// By its id, 16 hexadecimal digits.
    Id(String),
    /// As a version of the stream, counted from 1. It may be one that is not there yet.
    Version(u32),
    /// By its canonical description.
    Description(String),
}

/// One conversion between two formats of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConversionInfo {
    /// The stream.
    pub stream: String,
    /// The id of the format that it reads.
    pub from: String,
    /// Which version of the stream that is, if it is one.
    pub from_version: Option<u32>,
    /// The id of the format that it makes.
    pub to: String,
    /// Which version of the stream that is, if it is one.
    pub to_version: Option<u32>,
    /// The conversion, as it was registered.
    pub conversion: String,
    /// Whether it stays when the session that registered it ends.
    pub kept: bool,
    /// `kept`, or whose it is: an address, or `client 3 (pid 123 name)`.
    pub owner: String,
    /// Whether it is used; otherwise another one between the same formats covers it.
    pub in_force: bool,
    /// Its estimated cost for a record, in ns.
    pub ns_per_record: f64,
}

/// One step of a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PathStep {
    /// The id of the format that it reads.
    pub from: String,
    /// The id of the format that it makes.
    pub to: String,
    /// Which version of the stream that is, if it is one.
    pub to_version: Option<u32>,
    /// Whether it is a registered conversion; otherwise it goes by the fields' names alone.
    pub registered: bool,
}

/// The path of a stream's format to one that subscribers accept; or that there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PathInfo {
    /// The stream.
    pub stream: String,
    /// The id of the format that comes.
    pub from: String,
    /// Which version of the stream that is, if it is one.
    pub from_version: Option<u32>,
    /// The id of the format that is accepted.
    pub to: String,
    /// Which version of the stream that is, if it is one.
    pub to_version: Option<u32>,
    /// Whether nothing leads there: records wait, or are dropped.
    pub is_missing: bool,
    /// The conversions on the way; none where the format is accepted as it is.
    pub steps: Vec<PathStep>,
    /// What runs, in order: the steps, made one where that was possible.
    pub parts: Vec<String>,
    /// Its estimated cost for a record, moved bytes included, in ns.
    pub ns_per_record: f64,
    /// What it costs a record, in ns, measured on the latest records; only in a plan, and where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_ns_per_record: Option<f64>,
    /// Records that this was measured on.
    #[serde(default)]
    pub sample_records: u64,
    /// Subscriptions that take it, or lack it.
    pub subscriptions: u32,
    /// Records that came in.
    pub records_in: u64,
    /// Records that went out.
    pub records_out: u64,
    /// Records that could not be converted, since a value has no place in the next format.
    pub refused: u64,
    /// Why the latest of them could not be, with the field, where a conversion by name says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Records that wait for it.
    pub waiting: u64,
}

/// One format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FormatInfo {
    /// Its id, 16 hex digits.
    pub id: String,
    /// Streams on which it was announced.
    pub streams: Vec<String>,
    /// Which version of each of these it is, counted from 1.
    #[serde(default)]
    pub versions: Vec<u32>,
    /// Its canonical description.
    pub description: String,
    /// Its fields: name and type.
    pub fields: Vec<FieldInfo>,
}

/// One field of a format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldInfo {
    /// Name.
    pub name: String,
    /// Type, as in a schema file.
    #[serde(rename = "type")]
    pub ty: String,
    /// Whether it may be null.
    pub nullable: bool,
}

/// One context: what its core did, by exit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ContextInfo {
    /// Address it receives on.
    pub address: String,
    /// Sessions that stand.
    pub sessions: u32,
    /// The bound on sessions.
    pub max_sessions: u32,
    /// Turns of the loop.
    pub turns: u64,
    /// Turns in which something came in.
    pub busy_turns: u64,
    /// Times it slept until something came.
    pub sleeps: u64,
    /// Super-packets and packets in.
    pub frames_in: u64,
    /// Packets in.
    pub packets_in: u64,
    /// Packets out, sent for the first time.
    pub packets_out: u64,
    /// Packets sent again.
    pub packets_resent: u64,
    /// Records in.
    pub records_in: u64,
    /// Records out, over all subscriptions.
    pub records_out: u64,
    /// Batches that left as the bytes that they came in.
    pub batches_whole: u64,
    /// Packets and records dropped, by reason, in name order; only reasons that occurred.
    pub dropped: Vec<(String, u64)>,
    /// Buffers in use now.
    pub buffers_in_use: u64,
    /// The bound on buffers.
    pub buffers: u64,
    /// Memory of the buffers, in bytes (touched only where used).
    pub buffer_bytes: u64,
    /// Clients that are attached by shared memory.
    pub clients: u32,
    /// The bound on them.
    pub max_clients: u32,
    /// Mailboxes that are there.
    pub mailboxes: u32,
    /// The bound on them.
    pub max_mailboxes: u32,
    /// Clients that were detached, by reason, in name order; only reasons that occurred.
    pub detached: Vec<(String, u64)>,
    /// Subscriptions that were refused because the core has no time for their queries.
    #[serde(default)]
    pub subscriptions_refused: u64,
    /// What the protection domains hold; the first is the core's own.
    pub domains: Vec<DomainInfo>,
}

/// One protection domain: what is in use of its two segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DomainInfo {
    /// Its name.
    pub name: String,
    /// Clients in it.
    pub clients: u32,
    /// Buffers in use of those that its clients write.
    pub shared_buffers: u32,
    /// Their bytes.
    pub shared_bytes: u64,
    /// Buffers in use of those that only the daemon writes: what comes from elsewhere.
    pub inbox_buffers: u32,
    /// Their bytes.
    pub inbox_bytes: u64,
}

/// One client that is attached by shared memory: a row of `crossdock clients`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClientInfo {
    /// Its number in the daemon.
    pub id: u32,
    /// Its process, as the system numbers it.
    pub pid: u32,
    /// The process' name when it attached.
    pub process: String,
    /// Its user's id.
    pub uid: u32,
    /// Its group's id.
    pub gid: u32,
    /// Its protection domain: the clients with which it shares message buffers.
    pub domain: String,
    /// How long it has been attached, in s.
    pub attached_s: u64,
    /// Sides of mailboxes that it has open.
    pub mailboxes: u32,
    /// Streams that it publishes.
    pub publishes: Vec<String>,
    /// Its subscriptions.
    pub subscriptions: u32,
    /// Messages that it put.
    pub messages_in: u64,
    /// Messages that were delivered to it.
    pub messages_out: u64,
    /// Bytes of buffers that it holds now.
    pub bytes_held: u64,
    /// The bound on them.
    pub quota_bytes: u64,
    /// Buffers that it holds now.
    pub buffers_held: u32,
    /// Times that it was left to wait for a buffer.
    pub waits: u64,
    /// Times that it slept and was woken.
    pub sleeps_woken: u64,
    /// Whether the segments that it shares lie in huge pages.
    pub huge_pages: bool,
}

/// One mailbox: a row of `crossdock mailboxes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MailboxInfo {
    /// Its network-wide address: `node/name`.
    pub address: String,
    /// Its name on this node.
    pub name: String,
    /// How its operations travel: `rings` or `signal_queue`.
    pub implementation: String,
    /// Its creator: `client 3 (pid 123 name)`, `session 192.0.2.1:40000` or `daemon`.
    pub owner: String,
    /// The task that takes each message in the context; readers do where it is absent.
    pub upcall: Option<String>,
    /// Writers that have it open.
    pub writers: u32,
    /// Readers that have it open.
    pub readers: u32,
    /// Messages that wait in it now.
    pub depth: u32,
    /// The bound on them, beyond which writers get no new buffers.
    pub bound_messages: u32,
    /// Bytes of the messages that wait in it now.
    pub bytes: u64,
    /// The bound on them.
    pub bound_bytes: u64,
    /// Messages put into it.
    pub puts: u64,
    /// Messages taken out of it.
    pub gets: u64,
    /// Times that a writer was left to wait because it was full.
    pub waits: u64,
    /// Messages dropped, by reason, in name order; only reasons that occurred.
    pub dropped: Vec<(String, u64)>,
}

/// What `crossdock explain` shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplainInfo {
    /// The stream.
    pub stream: String,
    /// The stream's format, by id, for which the query was planned.
    pub format: String,
    /// The plan, as lines for people.
    pub plan: String,
    /// Where the handler would run.
    pub place: String,
    /// Records of the stream that the estimate of its cost rests on (the latest that came in); zero when there were
    /// none.
    pub sample_records: u64,
    /// What one record costs in the handler, in ns, measured on the sample; absent without one.
    pub ns_per_record: Option<f64>,
    /// Share of the sample that passes, 0 to 1; absent without one.
    pub selectivity: Option<f64>,
    /// The most records a second that the stream brought in the last minute, which it has to keep up with.
    #[serde(default)]
    pub rate_msgs_per_s: u64,
    /// What it would take at that rate, in ns a second; absent without a sample.
    #[serde(default)]
    pub load_ns_per_s: Option<u64>,
    /// What the context has left for it, in ns a second; absent where queries are let in unmeasured.
    #[serde(default)]
    pub headroom_ns_per_s: Option<u64>,
    /// Description of the records that would come out.
    pub output: String,
    /// With accepted formats: how each format of the stream would come to one of them.
    #[serde(default)]
    pub paths: Vec<PathInfo>,
}
