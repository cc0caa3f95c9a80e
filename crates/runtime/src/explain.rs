//! Answers to the handle: the lists, and the cost of a query.

use crate::access::Access;
use crate::config::{ByName, ContextConfig};
use crate::estimate::estimate;
use crate::graph::Graph;
use crate::graph::slow::{Reducer, Slow};
use crate::handle::ExplainError;
use crate::host::Host;
use crate::info::{
    ClientInfo, ContextInfo, DomainInfo, ExplainInfo, FieldInfo, FormatInfo, SessionInfo, StreamInfo, SubscriptionInfo,
};
use crate::io::IoPlace;
use crate::ledger::Ledger;
use crate::morph::Accept;
use crate::morph::lists::Planned;
use crate::net::Net;
use crate::net::packets::Link;
use crate::net::peers::Peer;
use crate::streams::{Stream, Streams};
use crate::subscriptions::{Subscriptions, narrowed_to};
use crossdock_engine::{Handler, SelectHandler};
use crossdock_format::{Format, FormatId, ReadCost};
use crossdock_mailbox::host::{ClientStatus, DomainStatus};
use crossdock_query::{Program, QueryError, Select};
use crossdock_transport::FormatName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Streams {
    /// All streams, with what their subscriptions have.
    pub(crate) fn infos(&self, (net, host): (&Net, &Host), of: (&Subscriptions, &Graph)) -> Vec<StreamInfo> {
        self.keyed().map(|(key, stream)| stream.info_with(key, (net, host), of)).collect()
    }
}

impl Stream {
    fn info_with(
        &self,
        key: usize,
        (net, host): (&Net, &Host),
        (subscriptions, graph): (&Subscriptions, &Graph),
    ) -> StreamInfo {
        let (mut served, mut held_records) = (self.served(), 0);
        let mut backlog = net.no_backlog();
        for (at, subscription) in self.subscriptions().iter().filter_map(|at| Some((*at, subscriptions.get(*at)?))) {
            held_records += graph.held(at).0;
            served.add(subscription, graph.in_flight(at));
            backlog = backlog.max(net.backlog(subscription.peer(), host.interface()));
        }
        StreamInfo {
            blocked: if graph.is_blocked(key as u32) { self.publishers().len() as u32 } else { 0 },
            records_out: served.records_out.saturating_sub(served.records_unsent),
            records_queued: served.records_out,
            records_unsent: served.records_unsent,
            records_queried: served.records_in,
            row_errors: served.row_errors,
            records_offered: served.published,
            rows_made: served.rows_made,
            records_filtered: served.filtered,
            records_taken: served.taken,
            records_conflated: served.conflated,
            records_sampled: served.sampled,
            records_in_flight: served.in_flight,
            records_dropped: served.dropped,
            backlog_bytes: backlog.bytes,
            queue_bytes: backlog.bound,
            held_records,
            ..self.info(net.now_ns())
        }
    }
}

impl Net {
    /// Sessions over packets, of the context of this name.
    pub(crate) fn session_infos(&self, context: &str, streams: &Streams) -> Vec<SessionInfo> {
        let sessions = self.peers().filter_map(|(key, peer)| Some((key, peer, peer.link()?)));
        sessions.map(|(key, peer, link)| self.session_info(key, (peer, link), context, streams)).collect()
    }

    fn session_info(&self, key: usize, (peer, link): (&Peer, &Link), context: &str, streams: &Streams) -> SessionInfo {
        let (session, sender) = (&link.session, &link.session.sender);
        let (stats, datagrams) = (sender.stats(), session.receiver.datagrams());
        let all = stats.packets + stats.resent;
        SessionInfo {
            id: link.number,
            context: context.to_owned(),
            peer: link.addr.to_string(),
            security: if link.client.is_some() { "keys" } else { "none" }.to_owned(),
            key: link.client.map(|key| key.to_string()),
            route: self.route_of(link.addr),
            publishes: streams.published_by(peer),
            subscriptions: peer.subscriptions().len() as u32,
            packet_bytes: session.packet_bytes() as u64,
            mtu_probes: sender.mtu_stats().probes,
            black_holes: sender.mtu_stats().black_holes,
            ecn: sender.marks_ecn(),
            packets_marked: sender.marked_packets(),
            rtt_ns: sender.rtt_ns(),
            shortest_rtt_ns: sender.shortest_rtt_ns(),
            window_bytes: sender.congestion_window_bytes(),
            flight_bytes: sender.flight_bytes(),
            backlog_bytes: sender.backlog_bytes(),
            receive_window_bytes: session.window_bytes(),
            circuit_bytes: self.circuit_bytes(key),
            packets_out: stats.packets,
            packets_resent: stats.resent,
            loss: if all == 0 { 0.0 } else { stats.resent as f64 / all as f64 },
            timeouts: stats.timeouts,
            bytes_out: stats.bytes,
            bytes_in: link.bytes_in,
            datagrams_in: datagrams.arrived,
            datagrams_missing: datagrams.missing(),
        }
    }

    /// Attached clients, of the context of this name.
    pub(crate) fn client_infos(&self, context: &str, streams: &Streams, host: &Host) -> Vec<ClientInfo> {
        host.interface().clients().into_iter().map(|status| self.client_info(status, context, streams)).collect()
    }

    fn client_info(&self, status: ClientStatus, context: &str, streams: &Streams) -> ClientInfo {
        let key = self.of_client(status.key.number());
        let peer = key.and_then(|key| self.peer(key));
        let publishes = peer.map(|peer| streams.published_by(peer)).unwrap_or_default();
        ClientInfo {
            id: status.key.number(),
            context: context.to_owned(),
            pid: status.pid,
            process: status.process,
            uid: status.uid,
            gid: status.gid,
            domain: status.domain,
            attached_s: self.now_ns().saturating_sub(status.attached_ns) / 1_000_000_000,
            mailboxes: status.mailboxes,
            publishes,
            subscriptions: peer.map_or(0, |p| p.subscriptions().len() as u32),
            messages_in: status.messages_in,
            messages_out: status.messages_out,
            bytes_in: status.bytes_in,
            bytes_out: status.bytes_out,
            bytes_held: status.bytes_held,
            quota_used_bytes: status.quota_used_bytes,
            quota_bytes: status.quota_bytes,
            circuit_bytes: key.map_or(0, |key| self.circuit_bytes(key)),
            buffers_held: status.buffers_held,
            waits: status.waits,
            sleeps_woken: status.sleeps_woken,
            huge_pages: status.huge_pages,
        }
    }

    /// The counters and bounds of the context of this name.
    pub(crate) fn context_info(
        &self,
        (name, place, config): (&str, IoPlace, &ContextConfig),
        host: &Host,
        subscriptions_refused: u64,
    ) -> ContextInfo {
        let (buffers_in_use, buffers) = self.buffers();
        let device = self.device_counters();
        let counters = self.counters();
        let (mut clients, mut client_bytes_held) = (counters.gone, 0);
        let (mut client_quota_used_bytes, mut client_quota_bytes) = (0, 0);
        for client in host.interface().clients() {
            clients.add(&client);
            client_bytes_held += client.bytes_held;
            client_quota_used_bytes += client.quota_used_bytes;
            client_quota_bytes += client.quota_bytes;
        }
        // Only the home context has mailboxes.
        let max_mailboxes = if place.is_home() { host.interface().config().max_mailboxes } else { 0 };
        ContextInfo {
            name: name.to_owned(),
            address: self.local_addr().to_string(),
            sessions: self.sessions() as u32,
            max_sessions: config.max_sessions,
            turns: counters.turns,
            busy_turns: counters.busy_turns,
            sleeps: counters.sleeps,
            frames_in: device.supers_received,
            packets_in: device.packets_received,
            packets_out: counters.packets_out,
            packets_resent: counters.packets_resent,
            packets_routed: counters.packets_routed,
            datagrams_in: counters.datagrams_in,
            datagrams_missing: counters.datagrams_missing,
            network_bytes_in: device.bytes_received,
            network_bytes_out: device.bytes_sent,
            records_in: counters.records_in,
            messages_joined: counters.messages_joined.load(Ordering::Relaxed),
            records_out: counters.records_out.saturating_sub(counters.records_unsent),
            records_queued: counters.records_out,
            records_unsent: counters.records_unsent,
            batches_whole: counters.batches_whole,
            dropped: self.dropped(host),
            buffers_in_use,
            buffers,
            buffer_bytes: self.pool_bytes() as u64,
            clients: host.interface().attached(),
            max_clients: host.interface().config().max_clients,
            mailboxes: host.interface().mailbox_count(),
            max_mailboxes,
            detached: counters.detached(),
            subscriptions_refused,
            subscribe_time: counters.subscribe_time.info(),
            client_messages_in: clients.messages_in,
            client_messages_out: clients.messages_out,
            client_bytes_in: clients.bytes_in,
            client_bytes_out: clients.bytes_out,
            client_waits: clients.waits,
            client_bytes_held,
            client_quota_used_bytes,
            client_quota_bytes,
            domains: host.interface().domains().into_iter().map(domain_info).collect(),
        }
    }

    /// The frames, packets and messages that are lost here, by reason.
    fn dropped(&self, host: &Host) -> Vec<(String, u64)> {
        let mut dropped = self.counters().dropped();
        let device = self.device_counters();
        let host = host.interface().counters();
        for (name, count) in [
            ("sync_of_another_domain", host.foreign),
            ("error_unreported", host.unreported),
            ("device_no_buffer", device.dropped_no_buffer),
            ("device_truncated", device.dropped_truncated),
            ("device_empty", device.dropped_empty),
            ("kernel_socket_full", device.dropped_kernel),
        ] {
            if count > 0 {
                dropped.push((name.to_owned(), count));
            }
        }
        dropped.extend(host.losses.iter().map(|(reason, messages)| (format!("message_{}", reason.name()), messages)));
        dropped.sort();
        dropped
    }
}

impl Subscriptions {
    /// All subscriptions of the context of this name.
    pub(crate) fn infos(
        &self,
        context: &str,
        (net, host): (&Net, &Host),
        (graph, access): (&Graph, &Access),
    ) -> Vec<SubscriptionInfo> {
        // Where there are rules, the values in such an error are not for all that may read lists.
        let shown = |error: Option<&str>| error.filter(|_| access.rules().is_none()).map(str::to_owned);
        let with_backlog = self.iter().map(|(key, s)| {
            let accept = s.accept().map(Accept::describe).unwrap_or_default();
            (key, s, net.backlog(s.peer(), host.interface()), (accept, Ledger::of(s, graph.in_flight(key))))
        });
        let mut infos: Vec<SubscriptionInfo> = with_backlog
            .map(|(key, s, backlog, ((accept, unreadable), ledger))| SubscriptionInfo {
                id: s.id(),
                stream: s.streams().collect::<Vec<&str>>().join(", "),
                context: context.to_owned(),
                sql: s.asked().sql().to_owned(),
                handler: s.handler().map(str::to_owned),
                peer: net.peer(s.peer()).map(ToString::to_string).unwrap_or_default(),
                overflow: s.slow_policy().to_string(),
                max_rate: s.asked().max_rate().map(|rate| rate.to_string()).unwrap_or_default(),
                published: ledger.published,
                rows_made: ledger.rows_made,
                records_in: s.gauges().records_in.get(),
                records_out: ledger.delivered,
                filtered: ledger.filtered,
                taken: ledger.taken,
                conflated: ledger.conflated,
                sampled: ledger.sampled,
                in_flight: ledger.in_flight,
                row_errors: ledger.row_errors,
                dropped: ledger.dropped,
                dropped_by: ledger.losses.unreduced().by_words(),
                first_row_error: shown(s.first_row_error()),
                first_conversion_error: shown(s.gauges().first_conversion_error()),
                backlog_bytes: backlog.bytes,
                queue_bytes: backlog.bound,
                accept,
                unreadable,
                held_records: graph.held(key).0,
                held_bytes: graph.held(key).1,
            })
            .collect();
        infos.sort_by_key(|s| s.id);
        infos
    }
}

impl Streams {
    /// The names of the streams that a peer publishes.
    fn published_by(&self, peer: &Peer) -> Vec<String> {
        let name = |stream| self.get(stream).map(|stream| stream.name().to_owned());
        let mut names: Vec<String> = peer.publishing().iter().filter_map(|p| name(p.stream)).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The formats of all streams.
    pub(crate) fn format_infos(&self) -> Vec<FormatInfo> {
        let mut infos: Vec<FormatInfo> = Vec::new();
        for stream in self.iter() {
            for known in stream.formats() {
                let id = known.format.id().to_string();
                let at = infos.iter().position(|info| info.id == id).unwrap_or_else(|| {
                    infos.push(format_info(&known.format));
                    infos.len() - 1
                });
                infos[at].streams.push(stream.name().to_owned());
                infos[at].versions.extend(stream.version(known.format.id()));
            }
        }
        infos
    }

    /// The facts that a query is planned for and measured on, beside the core of the context of this name, which has this headroom if it admits queries by theirs.
    pub(crate) fn explain(
        &self,
        select: Select,
        accept: &[FormatName],
        (context, headroom_ns_per_s): (&str, Option<u64>),
        now_ns: u64,
    ) -> Result<Explained, ExplainError> {
        let found = self.find(select.stream()).filter(|key| self.get(*key).is_some_and(Stream::is_known));
        let Some(stream) = found.and_then(|key| self.get(key)) else {
            return Err(self.unknown_stream(&select).into());
        };
        let mut targets = Vec::new();
        for name in accept {
            let format = self.snapshot().format_known(stream.name(), name);
            targets.push(format.map_err(|refusal| ExplainError::Format(refusal.message))?);
        }
        let newest = stream.formats().last();
        let format = targets.first().or(newest.map(|known| &known.format)).cloned();
        let Some(format) = format else { return Err(self.unknown_stream(&select).into()) };
        let sample = newest.filter(|_| targets.is_empty()).map(|known| known.sample.records()).unwrap_or_default();
        Ok(Explained {
            context: context.to_owned(),
            stream: stream.name().to_owned(),
            select,
            format,
            targets,
            sample,
            records_per_batch: stream.records_per_batch(),
            rate_msgs_per_s: stream.peak_msgs_per_s(now_ns),
            headroom_ns_per_s,
        })
    }

    /// How the formats of a stream would come to accepted ones.
    pub(crate) fn explain_paths(
        &self,
        name: &str,
        by_name: ByName,
        targets: &[Format],
        reads: &BTreeMap<FormatId, Vec<bool>>,
    ) -> Vec<Planned> {
        // It may have gone since it was asked about.
        let Some(stream) = self.find(name).and_then(|key| self.get(key)) else { return Vec::new() };
        Planned::all(stream, targets, by_name, reads)
    }
}

fn domain_info(status: DomainStatus) -> DomainInfo {
    let ((shared_buffers, shared_bytes), (inbox_buffers, inbox_bytes)) = (status.shared, status.inbox);
    let DomainStatus { name, clients, .. } = status;
    DomainInfo { name, clients, shared_buffers, shared_bytes, inbox_buffers, inbox_bytes }
}

/// A query, what it is planned for, and what its cost can be measured with; all of it away from the core.
pub(crate) struct Explained {
    /// The name of the context that the query would run at.
    context: String,
    /// The stream's name.
    pub(crate) stream: String,
    select: Select,
    /// The format that it is planned for.
    pub(crate) format: Format,
    /// The formats that are accepted; any when empty.
    pub(crate) targets: Vec<Format>,
    sample: Arc<[u8]>,
    records_per_batch: f64,
    rate_msgs_per_s: u64,
    headroom_ns_per_s: Option<u64>,
}

impl Explained {
    /// Plans the query.
    ///
    /// # Errors
    /// It does not fit the format.
    pub(crate) fn plan(&self) -> Result<Program, QueryError> {
        let program = self.select.plan(&self.format)?;
        self.select.check_order(&self.format)?;
        Reducer::of(&self.select, &self.format).map(|_| program)
    }

    /// The plan with its cost, measured on this thread; of a query for accepted formats, on records as they come out of
    /// the paths to the one that it was planned for.
    pub(crate) fn measured(self, mut program: Program, paths: Vec<Planned>) -> ExplainInfo {
        let Explained {
            context,
            stream,
            select,
            format,
            mut sample,
            rate_msgs_per_s,
            headroom_ns_per_s,
            records_per_batch,
            ..
        } = self;
        let mut plan = program.explain().to_string();
        plan.push_str(&reading(&program));
        plan.push_str(&Slow::explain(&select));
        let mut info = ExplainInfo {
            stream,
            format: format.id().to_string(),
            plan,
            place: format!("{context}: built-in select handler"),
            sample_records: 0,
            ns_per_record: None,
            selectivity: None,
            rate_msgs_per_s,
            load_ns_per_s: None,
            headroom_ns_per_s,
            output: program.output.describe(),
            is_stateful: false,
            inputs: Vec::new(),
            paths: Vec::new(),
        };
        let whole = program.clone();
        for path in paths {
            let (path, made, records) = path.measured();
            if path.to == info.format && !records.is_empty() {
                // A chain to the format may make only what the query reads of it.
                let narrowed = if made == whole.input { Some(whole.clone()) } else { narrowed_to(&whole, &made) };
                if let Some(narrowed) = narrowed {
                    (sample, program) = (records, narrowed);
                }
            }
            info.paths.push(path);
        }
        let format = program.input.clone();
        let mut make = || -> Box<dyn Handler> { Box::new(SelectHandler::new(program.clone())) };
        if let Some(cost) = estimate(&mut make, &format, &sample, records_per_batch) {
            info.sample_records = cost.sample_messages;
            let ns = cost.ns_of_message();
            info.ns_per_record = Some(ns);
            info.load_ns_per_s = Some((ns * rate_msgs_per_s as f64) as u64);
            info.selectivity = Some(cost.messages_out_per_message);
        }
        info
    }
}

fn format_info(format: &Format) -> FormatInfo {
    let fields = format.fields().iter();
    FormatInfo {
        id: format.id().to_string(),
        streams: Vec::new(),
        versions: Vec::new(),
        description: format.describe(),
        fields: fields
            .map(|f| FieldInfo { name: f.name.clone(), ty: f.ty.to_string(), nullable: f.nullable })
            .collect(),
    }
}

/// The work to read the fields of a foreign layout in place, where it is more than a load.
fn reading(program: &Program) -> String {
    let fields = program.reads.iter().filter_map(|&index| program.input.fields().get(index));
    let costly = fields.filter(|field| field.read_cost() != ReadCost::Load);
    costly.map(|field| format!("         {}: {}\n", field.name, field.read_cost().describe())).collect()
}
