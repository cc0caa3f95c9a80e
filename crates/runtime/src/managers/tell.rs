//! Reports on handlers and contexts.

use crate::config::ContextKind;
use crate::graph::ContextIndex;
use crate::graph::gauges::{ContextGauges, NodeGauges};
use crate::info::{HandlerContextInfo, HandlerInfo, HandlerInputInfo, LoadInfo};
use crate::managers::Managers;
use crate::managers::deployed::{Deployed, Entry, Status};
use crate::managers::monitor::Rates;
use crate::managers::view::View;
use crossdock_control::admission::Class;
use crossdock_control::figures::Time;
use crossdock_control::load::Load;
use std::sync::Arc;

/// A load as it is reported.
pub(crate) fn load_info(load: Load) -> LoadInfo {
    LoadInfo { time_ns_per_s: load.time_ns_per_s, buffers: load.buffers, bytes_per_s: load.bytes_per_s }
}

impl Managers {
    /// Publishes a snapshot of handlers and contexts for callers of the managers' handle.
    pub(super) fn publish_snapshot(&mut self) {
        self.viewed = self.events.last();
        let gauges = |handler: &Deployed| self.overlay.node(handler.node).map(|placed| Arc::clone(&placed.gauges));
        let handlers = self.handlers.iter().map(|(name, handler)| (self.handler_info(name, handler), gauges(handler)));
        let ports = self.overlay.ports.iter().map(|port| Arc::clone(&port.gauges));
        let wished = self.handlers.iter().filter(|(name, _)| !self.is_query(name));
        let view = View {
            handlers: handlers.collect(),
            contexts: self.context_infos().into_iter().zip(ports).collect(),
            specs: wished.map(|(_, handler)| handler.spec.clone()).collect(),
        };
        self.views.leave(Some(view));
    }

    fn handler_info(&self, name: &str, handler: &Deployed) -> HandlerInfo {
        let spec = &handler.spec;
        let placed = self.overlay.node(handler.node);
        let (status, why) = match &handler.status {
            Status::Running => ("running", handler.limit_ns_per_s.map(limited_text)),
            Status::Waiting(why) => ("waiting", Some(why.clone())),
            Status::Failed(why) => ("failed", Some(why.clone())),
        };
        HandlerInfo {
            name: name.to_owned(),
            version: handler.version,
            program: match (&spec.sql, &spec.native) {
                (Some(sql), _) => sql.clone(),
                (None, Some(native)) => format!("native {native}"),
                (None, None) => String::new(),
            },
            parameters: spec.parameters.clone(),
            reads: handler.reads.iter().map(|(stream, _)| stream.clone()).collect(),
            makes: spec.derived().to_owned(),
            status: status.to_owned(),
            why,
            context: placed.map(|placed| self.watch.name(placed.at).to_owned()),
            is_fixed: spec.place.is_some(),
            class: match handler.entries.is_empty() {
                true => String::new(),
                false => class_name(handler.need.class).to_owned(),
            },
            state: handler.entries.iter().find_map(|entry| entry.state.clone()),
            inputs: handler.entries.iter().map(input_info).collect(),
            predicted: load_info(handler.predicted),
            reserved: Some(handler.need.reserve).filter(|reserve| *reserve != Load::default()).map(load_info),
            queue_bound: u64::from(self.config.queue_batches),
            sampled: 1,
            limit_ns_per_s: handler.limit_ns_per_s,
            degraded: if handler.is_degraded { spec.overload_parameters.clone() } else { Default::default() },
            changes: handler.changes,
            ..HandlerInfo::default()
        }
    }

    fn context_infos(&self) -> Vec<HandlerContextInfo> {
        let seats = self.watch.seats.iter().enumerate();
        let contexts = self.contexts();
        seats
            .map(|(at, seat)| {
                let headroom = contexts.headroom(at);
                let here = |handler: &&(&String, &Deployed)| {
                    self.overlay.node(handler.1.node).is_some_and(|node| node.at == ContextIndex(at as u8))
                };
                let handlers: Vec<String> = self
                    .handlers
                    .iter()
                    .collect::<Vec<_>>()
                    .iter()
                    .filter(|h| here(h))
                    .map(|(name, _)| (*name).clone())
                    .collect();
                HandlerContextInfo {
                    name: seat.name.clone(),
                    kind: match seat.kind {
                        ContextKind::CCore => "c-core".to_owned(),
                        ContextKind::GCore => "g-core".to_owned(),
                    },
                    cpu: seat.cpu,
                    shares: self.watch.sharing(at),
                    queue_bound: u64::from(self.config.queue_batches) * handlers.len() as u64,
                    handlers,
                    capacity_ns_per_s: contexts.list().get(at).map_or(0, |c| c.capacity.most.time_ns_per_s),
                    headroom_ns_per_s: headroom.time_ns_per_s,
                    headroom_buffers: headroom.buffers,
                    capacity_bytes_per_s: seat.bandwidth_bytes_per_s,
                    headroom_bytes_per_s: seat.bandwidth_bytes_per_s.map(|_| headroom.bytes_per_s),
                    buffers: seat.buffers,
                    lost: self.lost_text(ContextIndex(at as u8)),
                    ..HandlerContextInfo::default()
                }
            })
            .collect()
    }
}

/// Reads off a handler's figures.
pub(super) fn read_handler(info: &mut HandlerInfo, gauges: Option<&NodeGauges>, rates: Rates) {
    (info.rate_msgs_per_s, info.ns_per_record) = (rates.msgs_in_per_s, rates.ns_per_record);
    let Some(gauges) = gauges else { return };
    info.measured = LoadInfo {
        time_ns_per_s: rates.busy_ns_per_s,
        buffers: gauges.queued.get(),
        bytes_per_s: rates.bytes_out_per_s,
    };
    (info.records_in, info.records_out) = (gauges.records_in.get(), gauges.records_out.get());
    (info.bytes_in, info.bytes_out) = (gauges.bytes_in.get(), gauges.bytes_out.get());
    (info.batches_in, info.busy_ns) = (gauges.batches_in.get(), gauges.busy_ns.get());
    info.batches_shed = gauges.thinned.get();
    (info.row_errors, info.dropped) = (gauges.row_errors.get(), gauges.losses());
    info.p99_ns_per_record = gauges.quantile_ns(0.99);
    (info.overruns, info.faults) = (gauges.overruns.get(), gauges.faults.get());
    info.queued = gauges.queued.get();
    info.sampled = gauges.one_in.get().max(1) as u32;
}

/// Reads off a context's figures.
pub(super) fn read_context(info: &mut HandlerContextInfo, gauges: &ContextGauges, rates: Rates) {
    info.busy_share = rates.busy_ns_per_s as f64 / 1e9;
    (info.queued, info.buffers_in_use) = (gauges.queued.get(), gauges.buffers_in_use.get());
    info.rate_msgs_per_s = rates.msgs_in_per_s;
    (info.bytes_in_per_s, info.bytes_out_per_s) = (rates.bytes_in_per_s, rates.bytes_out_per_s);
    info.network_bytes_per_s = rates.network_bytes_per_s;
    (info.busy_ns, info.handler_ns) = (gauges.busy_ns.get(), gauges.handler_ns.get());
    (info.batches_in, info.batches_late) = (gauges.batches.get(), gauges.late.get());
    info.records_in = gauges.records_in.get();
    (info.bytes_in, info.bytes_out) = (gauges.bytes_in.get(), gauges.bytes_out.get());
    info.network_bytes = gauges.network_bytes.get();
    (info.batch_latency, info.batch_wait) = (gauges.batch_latency.info(), gauges.batch_wait.info());
    (info.turns, info.sleeps, info.replaced) = (gauges.turns.get(), gauges.sleeps.get(), gauges.replaced.get());
}

fn limited_text(ns_per_s: u64) -> String {
    format!("it went over its budget: it gets {}", Time(ns_per_s))
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Communication => "communication",
        Class::Computation => "computation",
    }
}

fn input_info(entry: &Entry) -> HandlerInputInfo {
    HandlerInputInfo {
        stream: entry.stream.clone(),
        format: entry.input.id().to_string(),
        output: entry.output.as_ref().map(|format| format.id().to_string()),
        form: entry.form.as_ref().map(ToString::to_string).unwrap_or_default(),
        ns_per_record: entry.cost.ns_per_message,
        sample_records: entry.cost.sample_messages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::gauges::{Gauge, Loss};

    /// A gauge, and the field that reports it.
    type Cell<'g, T> = (&'g Gauge, fn(&T) -> u64);

    #[test]
    fn every_gauge_of_a_handler_is_reported_in_its_own_field() {
        let gauges = NodeGauges::default();
        let cells: [Cell<'_, HandlerInfo>; 11] = [
            (&gauges.records_in, |info| info.records_in),
            (&gauges.records_out, |info| info.records_out),
            (&gauges.batches_in, |info| info.batches_in),
            (&gauges.bytes_in, |info| info.bytes_in),
            (&gauges.bytes_out, |info| info.bytes_out),
            (&gauges.row_errors, |info| info.row_errors),
            (&gauges.busy_ns, |info| info.busy_ns),
            (&gauges.overruns, |info| info.overruns),
            (&gauges.faults, |info| info.faults),
            (&gauges.thinned, |info| info.batches_shed),
            (&gauges.queued, |info| info.queued),
        ];
        (1..).zip(cells).for_each(|(number, (cell, _))| cell.set(number));
        gauges.lose(Loss::Sampled, 77);
        let mut info = HandlerInfo::default();
        let rates = Rates { msgs_in_per_s: 101, busy_ns_per_s: 102, bytes_out_per_s: 103, ..Rates::default() };
        read_handler(&mut info, Some(&gauges), rates);
        (1..).zip(cells).for_each(|(number, (_, field))| assert_eq!(field(&info), number));
        assert_eq!((info.rate_msgs_per_s, info.dropped), (101, vec![("sampled".to_owned(), 77)]));
        assert_eq!(info.measured, LoadInfo { time_ns_per_s: 102, buffers: 11, bytes_per_s: 103 });
    }

    #[test]
    fn every_gauge_of_a_context_is_reported_in_its_own_field() {
        let gauges = ContextGauges::default();
        let cells: [Cell<'_, HandlerContextInfo>; 13] = [
            (&gauges.turns, |info| info.turns),
            (&gauges.sleeps, |info| info.sleeps),
            (&gauges.busy_ns, |info| info.busy_ns),
            (&gauges.handler_ns, |info| info.handler_ns),
            (&gauges.batches, |info| info.batches_in),
            (&gauges.late, |info| info.batches_late),
            (&gauges.records_in, |info| info.records_in),
            (&gauges.bytes_in, |info| info.bytes_in),
            (&gauges.bytes_out, |info| info.bytes_out),
            (&gauges.network_bytes, |info| info.network_bytes),
            (&gauges.queued, |info| info.queued),
            (&gauges.buffers_in_use, |info| info.buffers_in_use),
            (&gauges.replaced, |info| info.replaced),
        ];
        (1..).zip(cells).for_each(|(number, (cell, _))| cell.set(number));
        gauges.batch_latency.note(5000, 2);
        gauges.batch_wait.note(3000, 1);
        let mut info = HandlerContextInfo::default();
        let rates = Rates { bytes_in_per_s: 101, bytes_out_per_s: 102, network_bytes_per_s: 103, ..Rates::default() };
        read_context(&mut info, &gauges, rates);
        (1..).zip(cells).for_each(|(number, (_, field))| assert_eq!(field(&info), number));
        assert_eq!((info.bytes_in_per_s, info.bytes_out_per_s, info.network_bytes_per_s), (101, 102, 103));
        assert_eq!((info.batch_latency.sum_ns, info.batch_wait.sum_ns), (10_000, 3000));
    }
}
