//! Reports on handlers and contexts.

use crate::config::ContextKind;
use crate::graph::ContextIndex;
use crate::info::{HandlerContextInfo, HandlerInfo, HandlerInputInfo, LoadInfo};
use crate::managers::Managers;
use crate::managers::deployed::{Deployed, Entry, Status};
use crate::managers::view::View;
use crate::platform::overlay::Placed;
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
        let handlers = self.handlers.iter();
        let handlers = handlers.map(|(name, handler)| (self.handler_info(name, handler), Arc::clone(&handler.gauges)));
        let ports = self.overlay.ports.iter().map(|port| Arc::clone(&port.gauges));
        let specs = self.specs().into_values().filter(|spec| !self.is_query(&spec.name));
        let view = View {
            handlers: handlers.collect(),
            contexts: self.context_infos().into_iter().zip(ports).collect(),
            specs: specs.collect(),
        };
        self.views.leave(Some(view));
    }

    fn handler_info(&self, name: &str, handler: &Deployed) -> HandlerInfo {
        let spec = &handler.spec;
        let placed = self.overlay.placed(handler.node);
        let (status, why) = match &handler.status {
            Status::Running => ("running", handler.limit_ns_per_s.map(limited_text)),
            Status::Waiting(why) => ("waiting", Some(why.clone())),
            Status::Failed(why) => ("failed", Some(why.clone())),
        };
        HandlerInfo {
            name: name.to_owned(),
            replica_of: spec.replicas.then(|| spec.asked_name().to_owned()),
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
            queue_bound: placed.map_or(0, |placed| self.overlay.queue_bound(placed)),
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
                let placed = self
                    .handlers
                    .iter()
                    .filter_map(|(name, handler)| self.overlay.placed(handler.node).map(|placed| (name, placed)));
                let here = placed.filter(|(_, placed)| placed.at == ContextIndex(at as u8));
                let (handlers, placed): (Vec<String>, Vec<&Placed>) =
                    here.map(|(name, placed)| (name.clone(), placed)).unzip();
                HandlerContextInfo {
                    name: seat.name.clone(),
                    kind: match seat.kind {
                        ContextKind::CCore => "c-core".to_owned(),
                        ContextKind::GCore => "g-core".to_owned(),
                    },
                    cpu: seat.cpu,
                    shares: self.watch.sharing(seat),
                    queue_bound: placed.iter().map(|placed| self.overlay.queue_bound(placed)).sum(),
                    handlers,
                    capacity_ns_per_s: contexts.list().get(at).map_or(0, |c| c.capacity.most.time_ns_per_s),
                    headroom_ns_per_s: headroom.time_ns_per_s,
                    headroom_buffers: headroom.buffers,
                    capacity_bytes_per_s: seat.bandwidth_bytes_per_s,
                    headroom_bytes_per_s: seat.bandwidth_bytes_per_s.map(|_| headroom.bytes_per_s),
                    buffers: seat.buffers + seat.network_buffers,
                    lost: self.lost_text(ContextIndex(at as u8)),
                    ..HandlerContextInfo::default()
                }
            })
            .collect()
    }
}

fn limited_text(ns_per_s: u64) -> String {
    format!("it exceeded its budget: it gets at most {}", Time(ns_per_s))
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
