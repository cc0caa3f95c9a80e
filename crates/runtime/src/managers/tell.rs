//! What is told of handlers and contexts.

use crate::config::ContextKind;
use crate::info::{HandlerContextInfo, HandlerInfo, HandlerInputInfo, LoadInfo};
use crate::managers::Managers;
use crate::managers::deployed::{Deployed, Entry, Status};
use crate::platform::ContextIndex;
use crossdock_control::admission::Class;
use crossdock_control::load::Load;

/// A load as it is told.
pub(crate) fn load_info(load: Load) -> LoadInfo {
    LoadInfo { time_ns_per_s: load.time_ns_per_s, buffers: load.buffers, bytes_per_s: load.bytes_per_s }
}

impl Managers {
    pub(crate) fn handler_infos(&self) -> Vec<HandlerInfo> {
        self.handlers.iter().map(|(name, handler)| self.handler_info(name, handler)).collect()
    }

    fn handler_info(&self, name: &str, handler: &Deployed) -> HandlerInfo {
        let spec = &handler.spec;
        let placed = self.overlay.stage(handler.stage);
        let rates = self.monitor.handler(name);
        let (status, why) = match &handler.status {
            Status::Running => ("running", None),
            Status::Waiting(why) => ("waiting", Some(why.clone())),
            Status::Failed(why) => ("failed", Some(why.clone())),
        };
        let mut info = HandlerInfo {
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
            predicted: load_info(handler.need.load),
            reserved: Some(handler.need.reserve).filter(|reserve| *reserve != Load::default()).map(load_info),
            rate_msgs_per_s: rates.msgs_in_per_s,
            ns_per_record: rates.ns_per_record,
            queue_bound: u64::from(self.config.queue_batches),
            sampled: handler.one_in,
            degraded: if handler.is_degraded { spec.degrade.clone() } else { Default::default() },
            changes: handler.changes,
            ..HandlerInfo::default()
        };
        if let Some(placed) = placed {
            let gauges = &placed.gauges;
            info.measured = LoadInfo {
                time_ns_per_s: rates.busy_ns_per_s,
                buffers: gauges.queued.get(),
                bytes_per_s: rates.bytes_out_per_s,
            };
            (info.records_in, info.records_out) = (gauges.records_in.get(), gauges.records_out.get());
            (info.bytes_in, info.bytes_out) = (gauges.bytes_in.get(), gauges.bytes_out.get());
            (info.row_errors, info.dropped) = (gauges.row_errors.get(), gauges.losses());
            info.p99_ns_per_record = gauges.quantile_ns(0.99);
            (info.overruns, info.faults) = (gauges.overruns.get(), gauges.faults.get());
            info.queued = gauges.queued.get();
        }
        info
    }

    pub(crate) fn context_infos(&self) -> Vec<HandlerContextInfo> {
        let seats = self.watch.seats.iter().zip(&self.overlay.ports).enumerate();
        let contexts = self.contexts();
        seats
            .map(|(at, (seat, port))| {
                let rates = self.monitor.context(at);
                let headroom = contexts.headroom(at);
                let here = |handler: &&(&String, &Deployed)| {
                    self.overlay.stage(handler.1.stage).is_some_and(|stage| stage.at == ContextIndex(at as u8))
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
                    busy_share: rates.busy_ns_per_s as f64 / 1e9,
                    capacity_ns_per_s: contexts.list().get(at).map_or(0, |c| c.capacity.most.time_ns_per_s),
                    headroom_ns_per_s: headroom.time_ns_per_s,
                    headroom_buffers: headroom.buffers,
                    capacity_bytes_per_s: seat.bandwidth_bytes_per_s,
                    headroom_bytes_per_s: seat.bandwidth_bytes_per_s.map(|_| headroom.bytes_per_s),
                    queued: port.gauges.queued.get(),
                    buffers_in_use: port.gauges.buffers_in_use.get(),
                    buffers: seat.buffers,
                    rate_msgs_per_s: rates.msgs_in_per_s,
                    bytes_in_per_s: rates.bytes_in_per_s,
                    bytes_out_per_s: rates.bytes_out_per_s,
                    network_bytes_per_s: rates.network_bytes_per_s,
                    turns: port.gauges.turns.get(),
                    sleeps: port.gauges.sleeps.get(),
                    replaced: port.gauges.replaced.get(),
                }
            })
            .collect()
    }
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
