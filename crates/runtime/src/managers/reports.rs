//! Reports on handlers and contexts.

use crate::config::ContextKind;
use crate::graph::ContextIndex;
use crate::graph::gauges::ContextGauges;
use crate::info::{HandlerContextInfo, HandlerInfo, HandlerInputInfo, LoadInfo};
use crate::managers::Managers;
use crate::managers::deployed::{Deployed, Entry, Status};
use crate::managers::state_spec::state_text;
use crate::managers::view::{ShownHandler, View};
use crate::platform::overlay::EdgeCounts;
use crossdock_control::admission::Class;
use crossdock_control::figures::Time;
use crossdock_control::load::Load;
use crossdock_engine::QueryPart;
use std::sync::Arc;

/// A load as it is reported.
pub(crate) fn load_info(load: Load) -> LoadInfo {
    LoadInfo { time_ns_per_s: load.time_ns_per_s, buffers: load.buffers, bytes_per_s: load.bytes_per_s }
}

impl Managers {
    /// Publishes a snapshot of handlers and contexts for callers of the managers' handle.
    pub(super) fn publish_snapshot(&mut self) {
        self.viewed = self.events.last();
        self.unpublished.clear();
        let edges = EdgeCounts::default();
        let shown = self.handlers.iter().map(|(name, there)| (name.clone(), self.shown(name, there, &edges)));
        let view = View { handlers: shown.collect(), contexts: self.shown_contexts() };
        self.views.leave(Some(view));
    }

    /// Publishes what a change has changed. The events of others are published with the next tick.
    pub(super) fn publish_changed(&mut self) {
        let changed = std::mem::take(&mut self.unpublished);
        let edges = EdgeCounts::default();
        let shown = changed.into_iter().map(|name| {
            let shown = self.handlers.get(&name).map(|there| self.shown(&name, there, &edges));
            (name, shown)
        });
        self.views.update(shown.collect(), self.shown_contexts());
    }

    fn shown(&self, name: &str, there: &Deployed, edges: &EdgeCounts) -> Arc<ShownHandler> {
        let spec = (!self.is_query(name)).then(|| there.spec.asked());
        let info = self.handler_info(name, there, edges);
        let inputs = there.entries.iter().map(|entry| (entry.stream.clone(), entry.input.clone())).collect();
        let (gauges, operators) = (Arc::clone(&there.gauges), Arc::clone(&there.operators));
        Arc::new(ShownHandler { info, gauges, operators, inputs, spec })
    }

    fn shown_contexts(&self) -> Vec<(HandlerContextInfo, Arc<ContextGauges>)> {
        let ports = self.overlay.ports.iter().map(|port| Arc::clone(&port.gauges));
        self.context_infos().into_iter().zip(ports).collect()
    }

    fn handler_info(&self, name: &str, handler: &Deployed, edges: &EdgeCounts) -> HandlerInfo {
        let spec = &handler.spec;
        let placed = self.overlay.placed(handler.node);
        let (status, why) = match &handler.status {
            Status::Running => ("running", handler.limit_ns_per_s.map(limited_text)),
            Status::Waiting(why) => ("waiting", Some(why.clone())),
            Status::Failed(why) => ("failed", Some(why.clone())),
        };
        let mut info = HandlerInfo {
            name: name.to_owned(),
            replica_of: spec.replicas.then(|| spec.asked_name().to_owned()),
            version: handler.version,
            program: match (&spec.sql, &spec.native) {
                (Some(sql), _) if matches!(spec.part, Some(QueryPart::Reduction { .. })) => {
                    format!("the reduction for: {sql}")
                }
                (Some(sql), _) => sql.clone(),
                (None, Some(native)) => format!("native {native}"),
                (None, None) => state_text(spec),
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
            plan: handler.plan.clone(),
            inputs: handler.entries.iter().map(input_info).collect(),
            predicted: load_info(handler.predicted),
            reserved: Some(handler.need.reserve).filter(|reserve| *reserve != Load::default()).map(load_info),
            queue_bound: placed.map_or(0, |placed| self.overlay.queue_bound(placed, edges)),
            sampled: 1,
            state_bytes_bound: handler.max_state_bytes,
            state_policy: Some(crossdock_query::STATE_POLICY)
                .filter(|_| handler.max_state_bytes > 0)
                .unwrap_or_default()
                .to_owned(),
            limit_ns_per_s: handler.limit_ns_per_s,
            degraded: if handler.is_degraded { spec.overload_parameters.clone() } else { Default::default() },
            changes: handler.changes,
            ..HandlerInfo::default()
        };
        self.checkpoints.show(name, &mut info);
        info
    }

    /// The contexts; their handlers are [added](View::contexts) to a report.
    fn context_infos(&self) -> Vec<HandlerContextInfo> {
        let seats = self.watch.seats.iter().enumerate();
        let contexts = self.contexts();
        seats
            .map(|(at, seat)| {
                let headroom = contexts.headroom(at);
                HandlerContextInfo {
                    name: seat.name.clone(),
                    kind: match seat.kind {
                        ContextKind::CCore => "c-core".to_owned(),
                        ContextKind::GCore => "g-core".to_owned(),
                    },
                    cpu: seat.cpu,
                    shares: self.watch.sharing(seat),
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
        why: entry.why.clone(),
        form: entry.form.as_ref().map(ToString::to_string).unwrap_or_default(),
        ns_per_record: entry.cost.ns_per_message,
        sample_records: entry.cost.sample_messages,
    }
}
