//! Reports of a context: the rows of `crossdock streams|subscriptions|formats|contexts|clients|mailboxes|tables`.
//!
//! All counters count from the daemon's start. The same structures are the JSON of the HTTP API, and their declarations are
//! what lists, `top` and metrics are made from ([`Described`]).

mod access;
mod analyze;
mod field;
mod platform;
pub(crate) mod sum;
mod table;

pub use access::{AccessCheckInfo, AccessRuleInfo};
pub use analyze::{AnalyzeInfo, OperatorInfo};
pub use field::{About, Described, Field, MetricKind, Unit, Value};
pub use platform::{
    AppliedInfo, ChangeInfo, ControlInfo, EventInfo, HandlerContextInfo, HandlerInfo, HandlerInputInfo, HistoryInfo,
    LoadInfo, MomentInfo, PlanInfo,
};
pub use table::TableInfo;

use field::{counter, gauge, histogram, label, listed, reports};
use serde::{Deserialize, Serialize};

reports! {
    /// One stream.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct StreamInfo {
        /// Its name.
        pub name: String = label("stream").title("stream"),
        /// Ids of the formats announced on it, newest last, as 16 hex digits.
        pub formats: Vec<String>,
        /// Publishers that have announced it and have not finished.
        pub publishers: u32 = gauge("crossdock_stream_publishers"),
        /// Subscriptions to it.
        pub subscriptions: u32 = gauge("crossdock_stream_subscriptions").title("subs"),
        /// Incoming records.
        pub records_in: u64 = counter("crossdock_stream_records_in").title("records"),
        /// Bytes of the incoming records, without packets' headers.
        pub bytes_in: u64 = counter("crossdock_stream_in").unit(Unit::Bytes).title("bytes"),
        /// Incoming records without a subscription; they were dropped.
        pub records_unclaimed: u64 = counter("crossdock_stream_records_unclaimed").title("unclaimed"),
        /// Records in packets whose payload does not match its format; they were dropped.
        pub records_malformed: u64 = counter("crossdock_stream_records_malformed").title("malformed"),
        /// How its format may change: `none`, `backward`, `forward`, `full`, or one of the last three with `_transitive` behind it.
        #[serde(default)]
        pub policy: String,
        /// Publishers that are held back now because a subscriber's queue is full.
        pub blocked: u32 = gauge("crossdock_stream_publishers_blocked"),
        /// The handler that produces it; none where publishers do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub made_by: Option<String> = listed().title("produced by"),
        /// The highest rate of records per second within 100 ms of the last minute.
        #[serde(default)]
        pub peak_msgs_per_s: u64 = gauge("crossdock_stream_peak_records_per_second").title("peak/s"),
        /// Records that were sent to its subscribers or wait in their queues, including subscriptions that have ended: those that joined
        /// a queue and were not dropped from it.
        #[serde(default)]
        pub records_out: u64 = listed().title("sent"),
        /// Records that joined the queues of its subscribers, including subscriptions that have ended.
        #[serde(default)]
        pub records_queued: u64 = counter("crossdock_stream_records_out").title("queued"),
        /// Those of them that a policy dropped from a queue again.
        #[serde(default)]
        pub records_unsent: u64 = counter("crossdock_stream_records_unsent").title("dropped unsent"),
        /// Records read by the queries of its subscriptions, including those that have ended.
        #[serde(default)]
        pub records_queried: u64 = counter("crossdock_subscription_records_in"),
        /// Records that its subscriptions dropped because an expression failed.
        #[serde(default)]
        pub row_errors: u64 = counter("crossdock_subscription_row_errors"),
        /// Records that came for its subscriptions, including those that have ended: each, and each row of state, is sent, filtered,
        /// taken into state, conflated, sampled, a row error, dropped or in flight.
        #[serde(default)]
        pub records_offered: u64 = counter("crossdock_subscription_records_offered").title("offered"),
        /// Rows that the state of a query gave for its subscriptions.
        #[serde(default)]
        pub rows_made: u64 = counter("crossdock_subscription_rows_made").title("rows of state"),
        /// Records that did not meet the condition of a subscription's query.
        #[serde(default)]
        pub records_filtered: u64 = counter("crossdock_subscription_records_filtered").title("filtered"),
        /// Records that the query of its subscriptions took into state.
        #[serde(default)]
        pub records_taken: u64 = counter("crossdock_subscription_records_taken").title("taken into state"),
        /// Records of slow subscribers in whose place a later one of the same key was sent.
        #[serde(default)]
        pub records_conflated: u64 = counter("crossdock_subscription_records_conflated").title("conflated"),
        /// Records of slow subscribers that a policy to sample left out.
        #[serde(default)]
        pub records_sampled: u64 = counter("crossdock_subscription_records_sampled").title("sampled"),
        /// Records that came for its subscriptions and have not joined a subscriber's queue.
        #[serde(default)]
        pub records_in_flight: u64 = gauge("crossdock_subscription_records_in_flight").title("in flight"),
        /// Records that its subscriptions lost: by their policies for slow subscribers, or because no query reads and no
        /// conversion converts them.
        #[serde(default)]
        pub records_dropped: u64 = counter("crossdock_subscription_dropped").title("dropped"),
        /// Bytes queued or unacknowledged for its subscriber with the largest backlog, packets' headers included.
        #[serde(default)]
        pub backlog_bytes: u64 = gauge("crossdock_subscription_backlog").unit(Unit::Bytes).bound("queue_bytes").title("backlog"),
        /// The bound on the backlog of that subscriber. The last batch that joined may exceed it: see the subscription's.
        #[serde(default)]
        pub queue_bytes: u64 = gauge("crossdock_subscription_backlog_bound").unit(Unit::Bytes),
        /// Records that wait for a conversion, for all of its subscriptions.
        #[serde(default)]
        pub held_records: u64 = gauge("crossdock_subscription_held_records"),
    }
}

reports! {
    /// One subscription.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SubscriptionInfo {
        /// Number in the daemon.
        pub id: u64,
        /// The stream it reads.
        pub stream: String,
        /// The I/O context that has the subscriber's session.
        #[serde(default)]
        pub context: String,
        /// Its query.
        pub sql: String = listed().title("query"),
        /// The handler that runs its query, if its I/O context has no time for it.
        #[serde(default)]
        pub handler: Option<String>,
        /// The subscriber: its address, or `client 3 (pid 123 name)` if it is attached by shared memory.
        pub peer: String,
        /// The policy while its queue is full: `block`, `drop_oldest` or `disconnect`; as its query says, also `conflate by (key)`,
        /// `sample n` or `keep where condition`.
        pub overflow: String,
        /// The most records that it gets, as its query says: `100 per second by key`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub max_rate: String,
        /// Records that came for it, of the streams that its query reads. Each, and each row of state, is sent, filtered, taken into
        /// state, conflated, sampled, a row error, dropped or in flight.
        #[serde(default)]
        pub published: u64,
        /// Rows that the state of its query gave for it.
        #[serde(default)]
        pub rows_made: u64 = listed().title("rows of state"),
        /// Records that its query read.
        pub records_in: u64 = listed().title("seen"),
        /// Records sent to it, or in its session's queue.
        pub records_out: u64 = listed().title("sent"),
        /// Records that did not meet its query's condition.
        #[serde(default)]
        pub filtered: u64,
        /// Records that its query took into state: joins, groups, windows.
        #[serde(default)]
        pub taken: u64 = listed().title("taken"),
        /// Records in whose place it got a later one of the same key, since it was slow.
        #[serde(default)]
        pub conflated: u64,
        /// Records that it did not get since it was slow and its policy is to sample.
        #[serde(default)]
        pub sampled: u64,
        /// Records that came for it and have not joined its session's queue, or that are on their way into the state of its query.
        #[serde(default)]
        pub in_flight: u64,
        /// Records whose expressions failed (overflow, division by zero); they were dropped.
        pub row_errors: u64,
        /// Records that did not reach it for another cause: its policy while it is slow, a format that nothing converts, and others.
        pub dropped: u64,
        /// Both by cause, in words: only causes that occurred.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub dropped_by: Vec<(String, u64)>,
        /// The first record whose expressions failed, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub first_row_error: Option<String>,
        /// The first record for which an expression of a conversion failed, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub first_conversion_error: Option<String>,
        /// Bytes queued or unacknowledged for its subscriber now, packets' headers included; for an attached client, queued or not yet
        /// returned.
        pub backlog_bytes: u64 = listed().unit(Unit::Bytes).bound("queue_bytes").title("backlog"),
        /// The bound on the backlog: the configured one, or an even share of the buffers. No records join a backlog that is over it, so
        /// the last batch may exceed it by up to 1 MiB, or by one long record. Control messages join it regardless. The
        /// records queued when the share fell may exceed the smaller share.
        pub queue_bytes: u64 = listed().unit(Unit::Bytes),
        /// The formats that it accepts, if it lists them: their ids; `v3` for a version that the stream does not have
        /// yet.
        #[serde(default)]
        pub accept: Vec<String>,
        /// With accepted formats: what happens to records that no conversion converts, `hold` or `drop`.
        #[serde(default)]
        pub unreadable: String,
        /// Records that wait for a conversion.
        #[serde(default)]
        pub held_records: u64,
        /// Their size.
        #[serde(default)]
        pub held_bytes: u64 = listed().unit(Unit::Bytes),
    }
}

/// The schema of a [`crossdock_transport::FormatName`], which lives where no schemas are.
#[cfg(feature = "openapi")]
#[derive(utoipa::ToSchema)]
#[schema(as = FormatName, rename_all = "snake_case")]
pub enum FormatNameSchema {
    /// By its id, 16 hexadecimal digits.
    Id(String),
    /// As a version of the stream, counted from 1. It may be a version that does not exist yet.
    Version(u32),
    /// By its canonical description.
    Description(String),
}

impl ConversionInfo {
    /// The owner of a conversion whose session has ended.
    pub(crate) const GONE: &str = "gone";
}

/// One step of a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PathStep {
    /// The id of the format that it reads.
    pub from: String,
    /// The id of the format that it produces.
    pub to: String,
    /// Which version of the stream that is, if it is one.
    pub to_version: Option<u32>,
    /// Whether it is a registered conversion; otherwise it converts by field names alone.
    pub registered: bool,
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

reports! {
    /// One conversion between two formats of a stream.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct ConversionInfo {
        /// The stream.
        pub stream: String,
        /// The id of the format that it reads.
        pub from: String,
        /// Which version of the stream that is, if it is one.
        pub from_version: Option<u32>,
        /// The id of the format that it produces.
        pub to: String,
        /// Which version of the stream that is, if it is one.
        pub to_version: Option<u32>,
        /// The conversion, as it was registered.
        pub conversion: String,
        /// Whether it stays when the session that registered it ends.
        pub kept: bool,
        /// `kept`, or its owner: an address, or `client 3 (pid 123 name)`.
        pub owner: String,
        /// Whether it is used; otherwise another one between the same formats takes precedence.
        pub in_force: bool,
        /// Its estimated cost for a record, in ns.
        pub ns_per_record: f64,
    }

    /// The path of a stream's format to a format that subscribers accept; or that it is missing.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct PathInfo {
        /// The stream.
        pub stream: String,
        /// The id of the incoming format.
        pub from: String,
        /// Which version of the stream that is, if it is one.
        pub from_version: Option<u32>,
        /// The id of the format that is accepted.
        pub to: String,
        /// Which version of the stream that is, if it is one.
        pub to_version: Option<u32>,
        /// Whether no conversion leads there: records wait, or are dropped.
        pub is_missing: bool,
        /// The conversions on the path; none if the format is accepted unchanged.
        pub steps: Vec<PathStep>,
        /// The running parts, in order: the steps, merged where possible.
        pub parts: Vec<String>,
        /// Its estimated cost for a record, moved bytes included, in ns.
        pub ns_per_record: f64,
        /// The measured cost per record, in ns, on the latest records; only in a plan, and if there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub measured_ns_per_record: Option<f64>,
        /// The number of records of this measurement.
        #[serde(default)]
        pub sample_records: u64,
        /// Subscriptions that use it, or wait for it.
        pub subscriptions: u32 = listed().title("subscribers"),
        /// Incoming records.
        pub records_in: u64 = listed().title("in"),
        /// Outgoing records.
        pub records_out: u64 = listed().title("out"),
        /// Records that could not be converted, because a value does not fit the next format.
        pub refused: u64,
        /// The reason for the latest of them, with the field, if a conversion by name reports it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub refusal: Option<String>,
        /// Records that wait for it.
        pub waiting: u64,
    }

    /// One format.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FormatInfo {
        /// Its id, 16 hex digits.
        pub id: String = listed().title("format"),
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

    /// One I/O context: its counters, by exit.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ContextInfo {
        /// Its name; of a sum over several, their names.
        #[serde(default)]
        pub name: String = label("context").title("I/O context"),
        /// Address it receives on.
        pub address: String,
        /// Open sessions.
        pub sessions: u32 = gauge("crossdock_sessions").bound("max_sessions"),
        /// The bound on sessions.
        pub max_sessions: u32 = gauge("crossdock_sessions_bound"),
        /// Turns of the context's loop.
        pub turns: u64 = counter("crossdock_io_turns").title("loop turns"),
        /// Turns in which a packet or message arrived.
        pub busy_turns: u64 = counter("crossdock_io_busy_turns"),
        /// Times that it slept until a packet or message arrived.
        pub sleeps: u64 = counter("crossdock_io_sleeps"),
        /// Super-packets and packets received from the network.
        pub frames_in: u64 = counter("crossdock_io_frames_in"),
        /// Packets received from the network.
        pub packets_in: u64 = counter("crossdock_io_packets_in"),
        /// Packets sent to the network for the first time.
        pub packets_out: u64 = counter("crossdock_io_packets_out"),
        /// Packets resent.
        pub packets_resent: u64 = counter("crossdock_io_packets_resent").title("packets resent"),
        /// Packets with source routes that were handed on.
        #[serde(default)]
        pub packets_routed: u64 = counter("crossdock_io_packets_routed").title("packets handed on"),
        /// Packets of datagrams that arrived, each counted once.
        #[serde(default)]
        pub datagrams_in: u64 = counter("crossdock_io_datagrams_in").title("datagrams"),
        /// Packets of datagrams that are missing between those that arrived: lost on the way, or late.
        #[serde(default)]
        pub datagrams_missing: u64 = gauge("crossdock_io_datagrams_missing").title("datagrams missing"),
        /// Bytes of received packets: of all kinds, with Crossdock's headers, without those of UDP and IP.
        #[serde(default)]
        pub network_bytes_in: u64 = counter("crossdock_io_network_in").unit(Unit::Bytes),
        /// Bytes of the packets that were sent, also again: likewise.
        #[serde(default)]
        pub network_bytes_out: u64 = counter("crossdock_io_network_out").unit(Unit::Bytes),
        /// Received records.
        pub records_in: u64 = counter("crossdock_io_records_in"),
        /// Records that came in pieces and were joined, since a node read them beyond their first piece or memory was short.
        #[serde(default)]
        pub messages_joined: u64 = counter("crossdock_io_messages_joined").title("messages joined"),
        /// Records that were sent or wait in a subscriber's queue: those that joined a queue and were not dropped from it.
        pub records_out: u64 = listed().title("records sent"),
        /// Records that joined the queues of subscribers.
        #[serde(default)]
        pub records_queued: u64 = counter("crossdock_io_records_out"),
        /// Those of them that a policy dropped from a queue again.
        #[serde(default)]
        pub records_unsent: u64 = counter("crossdock_io_records_unsent").title("records dropped unsent"),
        /// Batches that were sent as the bytes that were received.
        pub batches_whole: u64 = counter("crossdock_io_batches_whole").title("batches sent unchanged"),
        /// Packets and records dropped, by reason, in name order; only reasons that occurred.
        pub dropped: Vec<(String, u64)> = counter("crossdock_io_dropped"),
        /// Buffers in use now.
        pub buffers_in_use: u64 = gauge("crossdock_io_buffers").bound("buffers"),
        /// The bound on buffers.
        pub buffers: u64 = gauge("crossdock_io_buffers_bound"),
        /// Memory of the buffers, touched only where used.
        pub buffer_bytes: u64 = listed().unit(Unit::Bytes).title("buffer memory"),
        /// Clients attached by shared memory.
        pub clients: u32 = gauge("crossdock_clients").bound("max_clients").title("attached clients"),
        /// The bound on them.
        pub max_clients: u32 = gauge("crossdock_clients_bound"),
        /// Mailboxes.
        pub mailboxes: u32 = gauge("crossdock_mailboxes").bound("max_mailboxes"),
        /// The bound on them.
        pub max_mailboxes: u32 = gauge("crossdock_mailboxes_bound"),
        /// Clients that were detached, by reason, in name order; only reasons that occurred.
        pub detached: Vec<(String, u64)> = counter("crossdock_clients_detached"),
        /// Subscriptions that were refused because the core has no time for their queries.
        #[serde(default)]
        pub subscriptions_refused: u64 = counter("crossdock_io_subscriptions_refused"),
        /// Time from the request for a subscription until it was installed.
        #[serde(default)]
        pub subscribe_time: HistogramInfo = histogram("crossdock_subscription_request_to_effect").title("time to subscribe"),
        /// Messages that attached clients put, including clients that have gone.
        #[serde(default)]
        pub client_messages_in: u64 = counter("crossdock_client_messages_in"),
        /// Messages delivered to attached clients, including clients that have gone.
        #[serde(default)]
        pub client_messages_out: u64 = counter("crossdock_client_messages_out"),
        /// Bytes of the messages that attached clients put, including clients that have gone: packets with Crossdock's headers, and
        /// messages for mailboxes.
        #[serde(default)]
        pub client_bytes_in: u64 = counter("crossdock_client_in").unit(Unit::Bytes),
        /// Bytes of the messages delivered to attached clients: likewise.
        #[serde(default)]
        pub client_bytes_out: u64 = counter("crossdock_client_out").unit(Unit::Bytes),
        /// Times that attached clients had to wait for a buffer, including clients that have gone.
        #[serde(default)]
        pub client_waits: u64 = counter("crossdock_client_waits"),
        /// Bytes of buffers that attached clients hold now: to write in, and messages to read.
        #[serde(default)]
        pub client_bytes_held: u64 = gauge("crossdock_client_held").unit(Unit::Bytes),
        /// Those of them that count to the clients' quotas.
        #[serde(default)]
        pub client_quota_used_bytes: u64 =
            gauge("crossdock_client_quota_used").unit(Unit::Bytes).bound("client_quota_bytes"),
        /// The sum of all clients' quotas.
        #[serde(default)]
        pub client_quota_bytes: u64 = gauge("crossdock_client_quota_used_bound").unit(Unit::Bytes),
        /// Memory of the protection domains; the first is the daemon's own.
        pub domains: Vec<DomainInfo>,
    }
}

/// One protection domain: the used part of its two segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DomainInfo {
    /// Its name.
    pub name: String,
    /// Clients in it.
    pub clients: u32,
    /// Used buffers of the segment that its clients write.
    pub shared_buffers: u32,
    /// Their bytes.
    pub shared_bytes: u64,
    /// Used buffers of the inbox, which only the daemon writes: messages from other domains and the network.
    pub inbox_buffers: u32,
    /// Their bytes.
    pub inbox_bytes: u64,
}

reports! {
    /// One client that is attached by shared memory: a row of `crossdock clients`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ClientInfo {
        /// Its number at its I/O context.
        pub id: u32 = listed().title("client"),
        /// The I/O context that it is attached to.
        #[serde(default)]
        pub context: String,
        /// Its process id.
        pub pid: u32,
        /// The process' name when it attached.
        pub process: String,
        /// Its user's id.
        pub uid: u32,
        /// Its group's id.
        pub gid: u32,
        /// Its protection domain: the clients with which it shares message buffers.
        pub domain: String,
        /// How long it has been attached.
        pub attached_s: u64 = listed().unit(Unit::Seconds),
        /// Open sides of mailboxes.
        pub mailboxes: u32,
        /// Streams that it publishes.
        pub publishes: Vec<String>,
        /// Its subscriptions.
        pub subscriptions: u32,
        /// Messages that it put.
        pub messages_in: u64 = listed().title("put"),
        /// Messages delivered to it.
        pub messages_out: u64 = listed().title("got"),
        /// Bytes of the messages that it put: packets with Crossdock's headers, and messages for mailboxes.
        #[serde(default)]
        pub bytes_in: u64 = listed().unit(Unit::Bytes),
        /// Bytes of the messages delivered to it: likewise.
        #[serde(default)]
        pub bytes_out: u64 = listed().unit(Unit::Bytes),
        /// Bytes of buffers that it holds now: to write in, and messages to read.
        pub bytes_held: u64 = listed().unit(Unit::Bytes).title("held"),
        /// Those of them that count to its quota: to write in, and what it reads over the signal queue.
        #[serde(default)]
        pub quota_used_bytes: u64 = listed().unit(Unit::Bytes),
        /// Its quota.
        pub quota_bytes: u64 = listed().unit(Unit::Bytes),
        /// Bytes of the buffers that are reserved for what it publishes: its circuit; 0 if it has none.
        #[serde(default)]
        pub circuit_bytes: u64 = listed().unit(Unit::Bytes).title("circuit"),
        /// Buffers that it holds now.
        pub buffers_held: u32,
        /// Times that it had to wait for a buffer.
        pub waits: u64,
        /// Times that it slept and was woken.
        pub sleeps_woken: u64,
        /// Whether its shared segments are in huge pages.
        pub huge_pages: bool,
    }
}

reports! {
    /// One session over packets: a row of `crossdock sessions`.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct SessionInfo {
        /// Its number, which the peer's packets carry.
        pub id: u32 = listed().title("session"),
        /// The I/O context that has it.
        #[serde(default)]
        pub context: String,
        /// The peer's address.
        pub peer: String,
        /// Whether its packets are sealed: `keys`, or `none`.
        #[serde(default)]
        pub security: String = listed(),
        /// The peer's public key, by which it is known; absent without keys.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
        /// The nodes that its packets take, from the first that the peer sends to, to this one; absent without a source route.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub route: Option<String>,
        /// Streams that the peer publishes.
        pub publishes: Vec<String>,
        /// Its subscriptions.
        pub subscriptions: u32,
        /// Bytes of a packet at most, with Crossdock's header, as the path to the peer is found to take it now.
        pub packet_bytes: u64 = listed().unit(Unit::Bytes).title("packet"),
        /// Probes of longer packets sent.
        #[serde(default)]
        pub mtu_probes: u64,
        /// Times that packets of the size were lost until it was lowered.
        #[serde(default)]
        pub black_holes: u64,
        /// Whether packets leave as capable of congestion marks (ECN): the path carries the bits, as far as is known.
        #[serde(default)]
        pub ecn: bool,
        /// Packets that the network has marked on their way to the peer, because a queue grew.
        #[serde(default)]
        pub packets_marked: u64 = listed().title("marked"),
        /// Smoothed round-trip time; 0 before the first packet was acknowledged.
        pub rtt_ns: u64 = listed().unit(Unit::Ns).title("rtt"),
        /// Shortest round-trip time of the last five to ten seconds.
        pub shortest_rtt_ns: u64 = listed().unit(Unit::Ns).title("shortest rtt"),
        /// Bytes that may be on the way to the peer at once, as congestion control has it; absent where a rate is configured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub window_bytes: Option<u64> = listed().unit(Unit::Bytes).title("window"),
        /// Bytes on the way to the peer.
        pub flight_bytes: u64 = listed().unit(Unit::Bytes).title("on the way"),
        /// Bytes queued for the peer and on the way.
        pub backlog_bytes: u64 = listed().unit(Unit::Bytes).title("backlog"),
        /// Bytes of data that the peer may send ahead.
        pub receive_window_bytes: u64 = listed().unit(Unit::Bytes).title("credit"),
        /// Bytes of the buffers that are reserved for what the peer publishes: its circuit; 0 if it has none.
        #[serde(default)]
        pub circuit_bytes: u64 = listed().unit(Unit::Bytes).title("circuit"),
        /// Packets sent to the peer for the first time.
        pub packets_out: u64,
        /// Packets sent to it again: lost, or taken for lost.
        pub packets_resent: u64 = listed().title("resent"),
        /// Share of the sent packets that were sent again.
        pub loss: f64 = listed().unit(Unit::Share),
        /// Times that nothing was heard of what was sent for so long that the path was probed.
        pub timeouts: u64,
        /// Bytes of the packets that were sent, also again, with Crossdock's headers, but for acks and pings.
        pub bytes_out: u64 = listed().unit(Unit::Bytes).title("sent"),
        /// Bytes of the packets that came: likewise.
        pub bytes_in: u64 = listed().unit(Unit::Bytes).title("received"),
        /// Packets of datagrams that came, each counted once.
        pub datagrams_in: u64 = listed().title("datagrams"),
        /// Packets of datagrams that are missing between those that came.
        pub datagrams_missing: u64 = listed().title("missing"),
    }
}

reports! {
    /// One mailbox: a row of `crossdock mailboxes`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct MailboxInfo {
        /// Its network-wide address: `node/name`.
        pub address: String = label("mailbox").title("mailbox"),
        /// Its name on this node.
        pub name: String,
        /// How its operations travel: `rings` or `signal_queue`.
        pub implementation: String,
        /// Its creator: `client 3 (pid 123 name)`, `session 192.0.2.1:40000` or `daemon`; `deleted` for a deleted mailbox that lost
        /// messages.
        pub owner: String,
        /// The task that processes each message in the context; absent if readers read them.
        pub upcall: Option<String>,
        /// Writers that have it open.
        pub writers: u32 = gauge("crossdock_mailbox_writers"),
        /// Readers that have it open.
        pub readers: u32 = gauge("crossdock_mailbox_readers"),
        /// Whether messages pass from its writer to its reader without the daemon now: both are programs of one user on this machine,
        /// and nobody else has to do with it.
        pub direct: bool,
        /// Queued messages.
        pub depth: u32 = gauge("crossdock_mailbox_depth_messages").bound("bound_messages").title("messages"),
        /// The bound on queued messages, beyond which writers get no new buffers.
        pub bound_messages: u32 = gauge("crossdock_mailbox_depth_messages_bound"),
        /// Bytes of the queued messages.
        pub bytes: u64 = gauge("crossdock_mailbox_depth").unit(Unit::Bytes).bound("bound_bytes"),
        /// The bound on them.
        pub bound_bytes: u64 = gauge("crossdock_mailbox_depth_bound").unit(Unit::Bytes),
        /// Messages put into it.
        pub puts: u64 = counter("crossdock_mailbox_puts"),
        /// Messages taken out of it.
        pub gets: u64 = counter("crossdock_mailbox_gets"),
        /// Times that a writer had to wait because the mailbox was full.
        pub waits: u64 = counter("crossdock_mailbox_waits"),
        /// Messages dropped, by reason, in name order; only reasons that occurred.
        pub dropped: Vec<(String, u64)> = counter("crossdock_mailbox_dropped"),
    }
}

/// The plan that `crossdock explain` shows.
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
    /// Number of the stream's latest records on which the cost was measured; zero if there were none.
    pub sample_records: u64,
    /// The cost per record, in ns, measured on the sample; absent without a sample.
    pub ns_per_record: Option<f64>,
    /// Share of the sample that passes, 0 to 1; absent without a sample.
    pub selectivity: Option<f64>,
    /// The stream's peak rate in the last minute, in records per second.
    #[serde(default)]
    pub rate_msgs_per_s: u64,
    /// The core time that it would take at that rate, in ns per second; absent without a sample.
    #[serde(default)]
    pub load_ns_per_s: Option<u64>,
    /// The context's free core time, in ns per second; absent if queries are admitted unmeasured.
    #[serde(default)]
    pub headroom_ns_per_s: Option<u64>,
    /// The format of the output records.
    pub output: String,
    /// Whether the query keeps state, and runs as a handler.
    #[serde(default)]
    pub is_stateful: bool,
    /// Of such a query the cost for the records of each of its streams; the rate, sample and load of the whole are their sums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<ExplainInputInfo>,
    /// With accepted formats: the path from each format of the stream to one of them.
    #[serde(default)]
    pub paths: Vec<PathInfo>,
}

/// The cost of a query with state for the records of one of its streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplainInputInfo {
    /// The stream.
    pub stream: String,
    /// The step that takes them.
    pub step: InputStep,
    /// The context where that would run, or runs.
    pub context: String,
    /// How the conditions on them run and their columns are made: `kernel`, `interpreted` or `unchanged`.
    #[serde(default)]
    pub form: String,
    /// The peak rate of these records in the last minute, in records per second.
    pub rate_msgs_per_s: u64,
    /// Number of records on which the cost was measured; zero if there were none.
    pub sample_records: u64,
    /// The cost per record, in ns; absent without a sample.
    pub ns_per_record: Option<f64>,
    /// The core time that it takes at that rate, in ns per second; absent without a sample.
    pub load_ns_per_s: Option<u64>,
}

/// The step of a query with state that takes the records of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum InputStep {
    /// They go into the state.
    #[default]
    State,
    /// They go to a reduction, a handler in front of the state.
    Reduction,
    /// The records that a reduction leaves go into the state.
    Reduced,
}

/// A histogram of times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistogramInfo {
    /// The ranges, shortest times first.
    pub buckets: Vec<BucketInfo>,
    /// Observations above the last range.
    pub above: u64,
    /// The sum of all times, in ns.
    pub sum_ns: u64,
}

/// One range of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BucketInfo {
    /// Its longest time, in ns.
    pub up_to_ns: u64,
    /// Observations in it, without those of shorter ranges.
    pub count: u64,
}

impl HistogramInfo {
    /// How many observations there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.count).sum::<u64>() + self.above
    }

    /// The time that this part (0 to 1) of the observations do not exceed, in ns, to a range's end; none where there are no
    /// observations, or it is longer than the last range.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * part).ceil() as u64;
        let mut below = 0;
        let bucket = self.buckets.iter().find(|bucket| {
            below += bucket.count;
            below >= wanted
        });
        bucket.filter(|_| wanted > 0).map(|bucket| bucket.up_to_ns)
    }
}
