//! The models of the reports' counters.

use super::checks::{Expected, Model, Modelled, Reports};
use super::model::{Outcome, Range};
use super::world::{Deployed, MAILBOX_BOUND, Stream, Subscribing, Totals, World};
use crossdock_nectarine::{DropCause, Overflow, Transport};
use crossdock_runtime::info::{
    ClientInfo, ContextInfo, ControlInfo, HandlerContextInfo, HandlerInfo, MailboxInfo, StreamInfo, SubscriptionInfo,
    TableInfo,
};
use std::collections::BTreeMap;

const TIME: &str = "time, and what follows from it, has no model here";
const BOUND: &str = "a bound; that nothing is above it is checked at all times";
/// Buffers that are always open, at most.
const OPEN: u64 = 64;
const HEADER_BYTES: u64 = crossdock_transport::HEADER_BYTES as u64;
const OF_FILE: &str = "the file of a table decides; handlers/tables changes one and looks";
const IDENTITY: &str = "it names something";

impl Subscribing {
    fn outcome(&self, world: &World) -> Outcome {
        self.query.outcome(&world.streams[&self.stream].rows[self.since..])
    }

    /// Records that the queue had no room for, before the query or after it.
    fn lost(&self) -> u64 {
        self.dropped.get(&DropCause::QueueFull).copied().unwrap_or_default()
    }

    /// A number of records; some may have been dropped.
    fn perhaps(&self, records: u64) -> Range {
        match self.overflow {
            Overflow::Block => records.into(),
            _ => Range::new(records.saturating_sub(self.lost()), records),
        }
    }

    /// The losses of the subscriber, as far as this is the model's.
    fn losses(&self, world: &World) -> BTreeMap<DropCause, Range> {
        let errors = self.outcome(world).errors.into_iter().map(|(cause, records)| (cause, self.perhaps(records)));
        let lost = (self.overflow != Overflow::Block).then(|| (DropCause::QueueFull, self.lost().into()));
        errors.chain(lost).collect()
    }

    /// Whether the subscriber has what it should have.
    pub(crate) fn complaint(&self, world: &World) -> Option<String> {
        let losses = self.losses(world);
        let is_known = self
            .dropped
            .iter()
            .all(|(cause, records)| losses.get(cause).is_some_and(|range| range.has(*records as f64)));
        let outcome = self.outcome(world);
        let passed = self.perhaps(outcome.passed);
        let accounted = self.received + self.dropped.values().sum::<u64>();
        let is_accounted = match (self.query.takes_all(), self.overflow) {
            (_, Overflow::Block) => self.lost() == 0,
            (true, _) => accounted == outcome.rows,
            (false, _) => accounted <= outcome.rows,
        };
        (!is_known || !is_accounted || !passed.has(self.received as f64)).then(|| {
            format!(
                "subscription {}: {} received, {:?} dropped, not {passed:?} and {losses:?}",
                self.id, self.received, self.dropped
            )
        })
    }
}

/// The subscription of a report.
fn subscriber<'w>(world: &'w World, info: &SubscriptionInfo) -> &'w Subscribing {
    world.subscribers.iter().find(|of| of.id == info.id).unwrap()
}

/// The counts of the subscriptions to a stream, those that have ended and those that are there.
fn totals(world: &World, reports: &Reports, name: &str) -> Totals {
    let there = reports.subscriptions.iter().filter(|info| info.stream == name);
    there.fold(world.streams[name].ended, |mut all, info| {
        all.add(Totals {
            queried: info.records_in.into(),
            out: info.records_out.into(),
            unsent: subscriber(world, info).query.unsent(info),
            row_errors: info.row_errors.into(),
            published: info.published.into(),
            filtered: info.filtered.into(),
            dropped: info.dropped.into(),
        });
        all
    })
}

impl Modelled for StreamInfo {
    const MODELS: &'static [(&'static str, Model<StreamInfo>)] = &[
        ("publishers", |world, _, info| {
            Expected::from(world.publishers.iter().filter(|of| of.stream == info.name).count() as u64)
        }),
        ("subscriptions", |world, _, info| {
            Expected::from(world.subscribers.iter().filter(|of| of.stream == info.name).count() as u64)
        }),
        ("records_in", |world, _, info| Expected::from(world.streams[&info.name].rows.len() as u64)),
        ("bytes_in", |world, _, info| Expected::from(world.streams[&info.name].bytes)),
        ("records_unclaimed", |world, _, info| Expected::from(world.streams[&info.name].unclaimed())),
        ("records_malformed", |_, _, _| Expected::from(0)),
        ("blocked", |_, _, _| Expected::from(0)),
        ("records_out", |world, reports, info| Expected::from(totals(world, reports, &info.name).out)),
        ("records_queued", |_, _, info| Expected::from(info.records_out + info.records_unsent)),
        ("records_unsent", |world, reports, info| Expected::from(totals(world, reports, &info.name).unsent)),
        ("records_queried", |world, reports, info| Expected::from(totals(world, reports, &info.name).queried)),
        ("row_errors", |world, reports, info| Expected::from(totals(world, reports, &info.name).row_errors)),
        ("records_offered", |world, reports, info| Expected::from(totals(world, reports, &info.name).published)),
        ("records_filtered", |world, reports, info| Expected::from(totals(world, reports, &info.name).filtered)),
        // None keeps state.
        ("rows_made", |_, _, _| Expected::from(0)),
        ("records_taken", |_, _, _| Expected::from(0)),
        ("records_conflated", |_, _, _| Expected::from(0)),
        ("records_sampled", |_, _, _| Expected::from(0)),
        ("records_in_flight", |_, _, _| Expected::from(0)),
        ("records_dropped", |world, reports, info| Expected::from(totals(world, reports, &info.name).dropped)),
        ("backlog_bytes", |_, _, _| Expected::from(0)),
        // The configured bound, or a share of the buffers.
        ("queue_bytes", |world, _, _| Expected::from(Range::new(1, world.queue_bytes))),
        ("held_records", |_, _, _| Expected::from(0)),
    ];
    const WITHOUT: &'static [(&'static str, &'static str)] = &[("peak_msgs_per_s", TIME)];

    fn name(&self) -> String {
        format!("stream {}", self.name)
    }
}

impl Modelled for SubscriptionInfo {
    const MODELS: &'static [(&'static str, Model<SubscriptionInfo>)] = &[
        ("records_in", |world, _, info| {
            let of = subscriber(world, info);
            Expected::from(of.perhaps(of.outcome(world).rows))
        }),
        ("published", |world, _, info| Expected::from(subscriber(world, info).outcome(world).rows)),
        ("records_out", |world, _, info| Expected::from(subscriber(world, info).received)),
        ("filtered", |world, _, info| {
            let of = subscriber(world, info);
            let outcome = of.outcome(world);
            Expected::from(of.perhaps(outcome.rows - outcome.passed - outcome.all_errors()))
        }),
        ("rows_made", |_, _, _| Expected::from(0)),
        ("taken", |_, _, _| Expected::from(0)),
        ("conflated", |_, _, _| Expected::from(0)),
        ("sampled", |_, _, _| Expected::from(0)),
        ("in_flight", |_, _, _| Expected::from(0)),
        ("row_errors", |world, _, info| {
            let of = subscriber(world, info);
            Expected::from(of.perhaps(of.outcome(world).all_errors()))
        }),
        ("dropped", |world, _, info| Expected::from(subscriber(world, info).lost())),
        ("dropped_by", |world, _, info| {
            let reported = subscriber(world, info).dropped.iter();
            Expected::ByReason(reported.map(|(cause, records)| (cause.word().to_owned(), (*records).into())).collect())
        }),
        ("backlog_bytes", |_, _, _| Expected::from(0)),
        // The configured bound, or a share of the buffers.
        ("queue_bytes", |world, _, _| Expected::from(Range::new(1, world.queue_bytes))),
        ("held_records", |_, _, _| Expected::from(0)),
        ("held_bytes", |_, _, _| Expected::from(0)),
    ];
    const WITHOUT: &'static [(&'static str, &'static str)] = &[("id", IDENTITY)];

    fn name(&self) -> String {
        format!("subscription {} `{}` {}", self.id, self.sql, self.overflow)
    }
}

/// The clients that are there, by how they are connected.
fn clients(world: &World, way: Transport) -> u64 {
    let publishers = world.publishers.iter().map(|of| of.way);
    let ways = publishers.chain(world.subscribers.iter().map(|of| of.way)).chain([world.post.way]);
    ways.filter(|of| *of == way).count() as u64
}

/// The sum of a counter over the streams.
fn over_streams(reports: &Reports, of: fn(&StreamInfo) -> u64) -> u64 {
    reports.streams.iter().map(of).sum()
}

impl Modelled for ContextInfo {
    const MODELS: &'static [(&'static str, Model<ContextInfo>)] = &[
        ("sessions", |world, _, _| Expected::from(clients(world, Transport::Udp))),
        ("clients", |world, _, _| Expected::from(clients(world, Transport::Shm))),
        ("busy_turns", |_, _, info| Expected::from(Range::new(1, info.turns))),
        ("sleeps", |_, _, info| Expected::from(Range::new(0, info.turns))),
        ("frames_in", |_, _, info| Expected::from(Range::new(0, info.packets_in))),
        ("packets_in", |world, _, _| Expected::from(Range::at_least(clients(world, Transport::Udp)))),
        ("packets_out", |world, _, _| Expected::from(Range::at_least(clients(world, Transport::Udp)))),
        ("network_bytes_in", |world, _, info| {
            Expected::from(Range::at_least(world.published(Transport::Udp) + info.packets_in * HEADER_BYTES))
        }),
        ("network_bytes_out", |_, _, info| Expected::from(Range::at_least(info.packets_out * HEADER_BYTES))),
        ("buffers_in_use", |_, reports, _| {
            Expected::from(Range::new(0, reports.contexts.iter().map(|of| of.buffers_in_use).sum()))
        }),
        ("records_in", |world, _, _| {
            Expected::from(world.gone_records + world.streams.values().map(|of| of.rows.len() as u64).sum::<u64>())
        }),
        // Long rows come in pieces. Each is joined once at most: where a query reads its name, or if its publisher is attached.
        ("messages_joined", |world, _, _| {
            let rows = world.streams.values().flat_map(|of| &of.rows);
            Expected::from(Range::new(0, world.gone_records + rows.filter(|row| row.is_long()).count() as u64))
        }),
        ("records_out", |world, reports, _| {
            Expected::from(world.gone_totals.out + over_streams(reports, |info| info.records_out).into())
        }),
        ("records_queued", |_, _, info| Expected::from(info.records_out + info.records_unsent)),
        ("records_unsent", |world, reports, _| {
            Expected::from(world.gone_totals.unsent + over_streams(reports, |info| info.records_unsent).into())
        }),
        ("batches_whole", |_, _, info| Expected::from(Range::new(0, info.records_queued))),
        ("dropped", |world, reports, info| {
            let mut wanted: BTreeMap<String, Range> = BTreeMap::new();
            // The network may do anything, and the clients make up for it.
            let network = info.dropped.iter().filter(|(reason, _)| !reason.starts_with("record_"));
            wanted.extend(network.map(|(reason, _)| (reason.clone(), Range::at_least(0))));
            let unclaimed = world.streams.values().map(Stream::unclaimed).sum::<Range>();
            wanted.insert("record_unclaimed".to_owned(), world.gone_unclaimed + unclaimed);
            let errors = over_streams(reports, |info| info.row_errors);
            wanted.insert("record_row_error".to_owned(), world.gone_totals.row_errors + errors.into());
            let dropped = over_streams(reports, |info| info.records_dropped);
            wanted.insert("record_queue_full".to_owned(), world.gone_totals.dropped + dropped.into());
            Expected::ByReason(wanted)
        }),
        ("mailboxes", |_, _, _| Expected::from(1)),
        ("detached", |world, _, info| {
            let reasons = info.detached.iter().map(|(reason, number)| (reason.clone(), Range::new(0, *number)));
            let all: u64 = info.detached.iter().map(|(_, number)| number).sum();
            match all == world.left {
                true => Expected::ByReason(reasons.collect()),
                false => Expected::from(world.left),
            }
        }),
        ("subscriptions_refused", |_, _, _| Expected::from(0)),
        ("subscribe_time", |world, _, _| Expected::from(world.subscriptions_made)),
        ("client_messages_in", |world, reports, _| {
            let there = reports.clients.iter().map(|client| client.messages_in).sum();
            Expected::from(if world.left == 0 { Range::from(there) } else { Range::at_least(there) })
        }),
        ("client_messages_out", |world, reports, _| {
            let there = reports.clients.iter().map(|client| client.messages_out).sum();
            Expected::from(if world.left == 0 { Range::from(there) } else { Range::at_least(there) })
        }),
        ("client_bytes_in", |world, reports, info| {
            let there = reports.clients.iter().map(|client| client.bytes_in).sum();
            let least = world.published(Transport::Shm) + info.client_messages_in;
            Expected::from(if world.left == 0 { Range::from(there) } else { Range::at_least(least.max(there)) })
        }),
        ("client_bytes_out", |world, reports, info| {
            let there = reports.clients.iter().map(|client| client.bytes_out).sum();
            let least = info.client_messages_out.max(there);
            Expected::from(if world.left == 0 { Range::from(there) } else { Range::at_least(least) })
        }),
        ("client_waits", |world, reports, _| {
            let there = reports.clients.iter().map(|client| client.waits).sum();
            Expected::from(if world.left == 0 { Range::from(there) } else { Range::at_least(there) })
        }),
        ("client_bytes_held", |_, reports, _| {
            Expected::from(reports.clients.iter().map(|client| client.bytes_held).sum::<u64>())
        }),
        ("client_quota_used_bytes", |_, reports, _| {
            Expected::from(reports.clients.iter().map(|client| client.quota_used_bytes).sum::<u64>())
        }),
        ("client_quota_bytes", |_, reports, _| {
            Expected::from(reports.clients.iter().map(|client| client.quota_bytes).sum::<u64>())
        }),
    ];
    const WITHOUT: &'static [(&'static str, &'static str)] = &[
        ("turns", TIME),
        ("packets_resent", "the network decides"),
        ("packets_routed", "it has no neighbours"),
        ("datagrams_in", "its publishers are reliable"),
        ("datagrams_missing", "its publishers are reliable"),
        ("max_sessions", BOUND),
        ("buffers", BOUND),
        ("buffer_bytes", BOUND),
        ("max_clients", BOUND),
        ("max_mailboxes", BOUND),
    ];

    fn name(&self) -> String {
        "I/O contexts".to_owned()
    }
}

impl Modelled for ClientInfo {
    const MODELS: &'static [(&'static str, Model<ClientInfo>)] = &[
        ("mailboxes", |world, _, info| {
            let is_post = world.post.way == Transport::Shm && info.publishes.is_empty() && info.subscriptions == 0;
            Expected::from(if is_post { 2 } else { 0 })
        }),
        ("subscriptions", |_, reports, info| {
            let name = format!("client {} ", info.id);
            let of = reports.subscriptions.iter().filter(|of| of.context == info.context && of.peer.starts_with(&name));
            Expected::from(of.count() as u64)
        }),
        ("messages_in", |_, _, _| Expected::from(Range::at_least(1))),
        ("messages_out", |_, _, _| Expected::from(Range::at_least(1))),
        ("bytes_in", |_, _, info| Expected::from(Range::at_least(info.messages_in))),
        ("bytes_out", |_, _, info| Expected::from(Range::at_least(info.messages_out))),
        ("bytes_held", |_, _, info| Expected::from(Range::at_least(info.quota_used_bytes))),
        ("quota_used_bytes", |_, _, info| Expected::from(Range::new(0, info.quota_bytes))),
        ("circuit_bytes", |_, _, _| Expected::from(0)),
        ("buffers_held", |_, _, info| Expected::from(Range::new(0, info.bytes_held))),
    ];
    const WITHOUT: &'static [(&'static str, &'static str)] = &[
        ("id", IDENTITY),
        ("pid", IDENTITY),
        ("uid", IDENTITY),
        ("gid", IDENTITY),
        ("attached_s", TIME),
        ("quota_bytes", BOUND),
        ("waits", TIME),
        ("sleeps_woken", TIME),
    ];

    fn name(&self) -> String {
        format!("client {} at {}", self.id, self.context)
    }
}

impl Modelled for MailboxInfo {
    const MODELS: &'static [(&'static str, Model<MailboxInfo>)] = &[
        ("writers", |_, _, _| Expected::from(1)),
        ("readers", |_, _, _| Expected::from(1)),
        ("depth", |world, _, info| Expected::from(world.post.puts - info.gets)),
        ("bound_messages", |_, _, _| Expected::from(u64::from(MAILBOX_BOUND))),
        ("bytes", |world, _, info| Expected::from(world.post.lengths[info.gets as usize..].iter().sum::<u64>())),
        ("puts", |world, _, _| Expected::from(world.post.puts)),
        ("gets", |world, _, _| {
            // A reader over packets is sent some ahead.
            let ahead = if world.post.way == Transport::Udp { world.post.puts } else { 0 };
            Expected::from(Range::new(world.post.gets, ahead))
        }),
        ("waits", |_, _, _| Expected::from(0)),
        ("dropped", |_, _, _| Expected::ByReason(BTreeMap::new())),
    ];
    const WITHOUT: &'static [(&'static str, &'static str)] = &[("bound_bytes", BOUND)];

    fn name(&self) -> String {
        format!("mailbox {}", self.name)
    }
}

impl Deployed {
    fn outcome(&self, world: &World) -> Outcome {
        self.query.outcome(&world.streams[&self.source].rows[self.since..])
    }

    fn bytes_out(&self, world: &World) -> u64 {
        let outcome = self.outcome(world);
        self.made_bytes.map_or(outcome.passed_bytes, |bytes| bytes * outcome.passed)
    }
}

fn handler<'w>(world: &'w World, info: &HandlerInfo) -> &'w Deployed {
    world.handlers.iter().find(|of| of.name == info.name).unwrap()
}

impl Modelled for HandlerInfo {
    const MODELS: &'static [(&'static str, Model<HandlerInfo>)] = &[
        ("version", |_, _, _| Expected::from(1)),
        ("records_in", |world, _, info| Expected::from(handler(world, info).outcome(world).rows)),
        ("records_out", |world, _, info| Expected::from(handler(world, info).outcome(world).passed)),
        ("bytes_in", |world, _, info| Expected::from(handler(world, info).outcome(world).bytes)),
        ("bytes_out", |world, _, info| Expected::from(handler(world, info).bytes_out(world))),
        ("batches_in", |_, _, info| Expected::from(Range::new(info.records_in.min(1), info.records_in))),
        ("filtered", |world, _, info| {
            let outcome = handler(world, info).outcome(world);
            Expected::from(outcome.rows - outcome.passed - outcome.all_errors())
        }),
        // All are plain queries.
        ("taken", |_, _, _| Expected::from(0)),
        ("late", |_, _, _| Expected::from(0)),
        ("forgotten", |_, _, _| Expected::from(0)),
        ("stage_errors", |_, _, _| Expected::from(0)),
        ("state_bytes", |_, _, _| Expected::from(0)),
        ("checkpoints", |_, _, _| Expected::from(0)),
        ("checkpoint_failures", |_, _, _| Expected::from(0)),
        ("checkpoint_bytes", |_, _, _| Expected::from(0)),
        ("checkpoint_at_ms", |_, _, _| Expected::from(0)),
        ("gap_records", |_, _, _| Expected::from(0)),
        ("row_errors", |world, _, info| Expected::from(handler(world, info).outcome(world).all_errors())),
        ("row_errors_by", |world, _, info| {
            let errors = handler(world, info).outcome(world).errors;
            Expected::ByReason(
                errors.iter().map(|(cause, records)| (cause.word().to_owned(), (*records).into())).collect(),
            )
        }),
        ("dropped", |_, _, _| Expected::ByReason(BTreeMap::new())),
        ("faults", |_, _, _| Expected::from(0)),
        ("queued", |_, _, _| Expected::from(0)),
        ("sampled", |_, _, _| Expected::from(1)),
        ("batches_shed", |_, _, _| Expected::from(0)),
        ("degraded", |_, _, _| Expected::from(0)),
        ("changes", |_, _, _| Expected::from(0)),
    ];
    const WITHOUT: &'static [(&'static str, &'static str)] = &[
        ("predicted", TIME),
        ("reserved", "nothing is reserved"),
        ("measured", TIME),
        ("limit_ns_per_s", TIME),
        ("busy_ns", TIME),
        ("rate_msgs_per_s", TIME),
        ("ns_per_record", TIME),
        ("p99_ns_per_record", TIME),
        ("overruns", TIME),
        ("queue_bound", BOUND),
        ("state_bytes_bound", BOUND),
    ];

    fn name(&self) -> String {
        format!("handler {}", self.name)
    }
}

/// The handlers at a context.
fn at<'r>(reports: &'r Reports, info: &'r HandlerContextInfo) -> impl Iterator<Item = &'r HandlerInfo> {
    reports.handlers.iter().filter(|handler| handler.context.as_deref() == Some(&*info.name))
}

impl Modelled for HandlerContextInfo {
    const MODELS: &'static [(&'static str, Model<HandlerContextInfo>)] = &[
        ("handlers", |world, _, info| {
            Expected::from(world.handlers.iter().filter(|of| of.place == info.name).count() as u64)
        }),
        ("queued", |_, _, _| Expected::from(0)),
        ("queue_bound", |_, reports, info| Expected::from(at(reports, info).map(|of| of.queue_bound).sum::<u64>())),
        ("batches_in", |world, reports, info| {
            Expected::from(
                world.gone(&info.name).batches_in + at(reports, info).map(|of| of.batches_in).sum::<u64>().into(),
            )
        }),
        ("records_in", |world, reports, info| {
            Expected::from(world.gone(&info.name).records_in + at(reports, info).map(|of| of.records_in).sum::<u64>())
        }),
        ("bytes_in", |world, reports, info| {
            Expected::from(world.gone(&info.name).bytes_in + at(reports, info).map(|of| of.bytes_in).sum::<u64>())
        }),
        ("bytes_out", |world, reports, info| {
            Expected::from(world.gone(&info.name).bytes_out + at(reports, info).map(|of| of.bytes_out).sum::<u64>())
        }),
        ("batch_latency", |_, _, info| Expected::from(Range::at_least(info.batches_in))),
        // A batch that one handler made for the next at the same context has waited in no queue.
        ("batch_wait", |_, _, info| Expected::from(Range::new(0, info.batches_in))),
        // I/O contexts also keep some to receive into.
        ("buffers_in_use", |_, reports, info| {
            let is_io = info.kind == "c-core" && info.name != "c-core-1";
            Expected::from(if is_io {
                Range::new(0, reports.context.buffers_in_use + OPEN)
            } else {
                Range::new(0, OPEN)
            })
        }),
        ("network_bytes", |_, reports, info| {
            let all = reports.context.network_bytes_in + reports.context.network_bytes_out;
            let others: u64 = reports.contexts.iter().map(|of| of.network_bytes).sum::<u64>() - info.network_bytes;
            Expected::from(all - others.min(all))
        }),
        ("sleeps", |_, _, info| Expected::from(Range::new(0, info.turns))),
        ("replaced", |_, _, _| Expected::from(0)),
        ("panics", |_, _, _| Expected::from(0)),
    ];
    const WITHOUT: &'static [(&'static str, &'static str)] = &[
        ("cpu", IDENTITY),
        ("busy_share", TIME),
        ("capacity_ns_per_s", BOUND),
        ("headroom_ns_per_s", TIME),
        ("headroom_buffers", TIME),
        ("capacity_bytes_per_s", BOUND),
        ("headroom_bytes_per_s", TIME),
        ("buffers", BOUND),
        ("rate_msgs_per_s", TIME),
        ("bytes_in_per_s", TIME),
        ("bytes_out_per_s", TIME),
        ("network_bytes_per_s", TIME),
        ("busy_ns", TIME),
        ("handler_ns", TIME),
        ("batches_delayed", TIME),
        ("turns", TIME),
    ];

    fn name(&self) -> String {
        format!("context {}", self.name)
    }
}

impl Modelled for ControlInfo {
    const MODELS: &'static [(&'static str, Model<ControlInfo>)] = &[
        ("change_time", |world, _, _| Expected::from(world.changes_made)),
        ("events", |world, _, _| {
            let events = world.context.manager().events(0).unwrap();
            let mut kinds: BTreeMap<String, Range> = BTreeMap::new();
            events.into_iter().for_each(|event| *kinds.entry(event.kind).or_default() += 1.into());
            Expected::ByReason(kinds)
        }),
        // There are no rules there; the tests of access count refusals.
        ("access_refused", |_, _, _| Expected::ByReason(BTreeMap::new())),
        // The control API is the binary's, whose tests count its handshakes.
        ("tls_failures", |_, _, _| Expected::from(0)),
        // The daemon is not `durable`; the tests of that count its checkpoints.
        ("cuts", |_, _, _| Expected::from(0)),
        ("cuts_put_off", |_, _, _| Expected::from(0)),
        ("cuts_failed", |_, _, _| Expected::from(0)),
    ];
    const WITHOUT: &'static [(&'static str, &'static str)] = &[("started_at_ms", TIME)];

    fn name(&self) -> String {
        "control".to_owned()
    }
}

impl Modelled for TableInfo {
    const MODELS: &'static [(&'static str, Model<TableInfo>)] = &[];
    const WITHOUT: &'static [(&'static str, &'static str)] = &[
        ("rows", OF_FILE),
        ("keys", OF_FILE),
        ("rows_without_key", OF_FILE),
        ("bytes", OF_FILE),
        ("loaded_at_ms", TIME),
        ("loads", OF_FILE),
        ("failures", OF_FILE),
    ];

    fn name(&self) -> String {
        format!("table {}", self.name)
    }
}
