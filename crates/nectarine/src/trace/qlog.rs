//! A trace as qlog has it: the header, and each event as a record (draft-ietf-quic-qlog-main-schema, JSON text sequences of RFC
//! 7464). The events have a schema of their own, since the protocol is not QUIC; names and fields are those of QUIC's events
//! (draft-ietf-quic-qlog-quic-events), as far as they mean the same.

use super::{SessionEvent, Started};
use crossdock_transport::PacketKind;
use crossdock_transport::ecn::{CE, ECT_0, EcnState};
use crossdock_transport::trace::{CongestionPhase, LossReason, PacketRun, SenderState, SenderTimer, TraceEvent};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::time::SystemTime;

/// The schema of the events; its last part is the namespace of their names.
const EVENT_SCHEMA: &str = "urn:crossdock:qlog:events:crossdock";

/// Writes the records of a trace.
pub(super) struct QlogWriter<W: Write> {
    to: BufWriter<W>,
    /// The last state of each open session, from which the next one differs.
    states: BTreeMap<u64, SenderState>,
}

/// The session and the time of events, in ns.
#[derive(Clone, Copy)]
struct Stamp {
    session: u64,
    now_ns: u64,
    ahead_ns: i64,
}

/// The record of an event.
#[derive(Serialize)]
struct EventRecord {
    time: f64,
    name: String,
    group_id: String,
    data: Value,
}

impl<W: Write> QlogWriter<W> {
    /// Writes the header of a trace that begins at `now`.
    ///
    /// # Errors
    /// The file's.
    pub(super) fn begin(to: W, title: &str, now: SystemTime) -> io::Result<QlogWriter<W>> {
        let mut writer = QlogWriter { to: BufWriter::new(to), states: BTreeMap::new() };
        let mut reference_time = json!({ "clock_type": "monotonic", "epoch": "unknown" });
        if let Ok(now) = jiff::Timestamp::try_from(now) {
            reference_time["wall_clock_time"] = now.to_string().into();
        }
        writer.record(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": title,
            "trace": {
                "vantage_point": { "type": "client" },
                "common_fields": {
                    "protocol_types": ["CROSSDOCK"],
                    "time_format": "relative_to_epoch",
                    "reference_time": reference_time,
                },
                "event_schemas": [EVENT_SCHEMA],
            },
        }))?;
        writer.flush()?;
        Ok(writer)
    }

    /// Has all that was written reach the file.
    ///
    /// # Errors
    /// The file's.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Writes an event of a session, at a time of its clock, which the trace's is ahead of, in ns.
    ///
    /// # Errors
    /// The file's.
    pub(super) fn write(
        &mut self,
        session: u64,
        (now_ns, ahead_ns): (u64, i64),
        event: SessionEvent,
    ) -> io::Result<()> {
        let at = Stamp { session, now_ns, ahead_ns };
        match event {
            SessionEvent::Started(started) => self.event(at, "connection_started", started_data(started)),
            SessionEvent::Closed { is_own, reason } => {
                self.states.remove(&session);
                let initiator = if is_own { "local" } else { "remote" };
                self.event(at, "connection_closed", json!({ "initiator": initiator, "reason": reason }))
            }
            SessionEvent::Key { is_own, phase, is_first } => {
                let key_type = if is_own { "client_secret" } else { "server_secret" };
                let trigger = match (is_first, is_own) {
                    (true, _) => "handshake",
                    (false, true) => "local_update",
                    (false, false) => "remote_update",
                };
                self.event(at, "key_updated", json!({ "key_type": key_type, "key_phase": phase, "trigger": trigger }))
            }
            SessionEvent::Transport(event) => self.transport(at, event),
        }
    }

    fn transport(&mut self, at: Stamp, event: TraceEvent) -> io::Result<()> {
        match event {
            TraceEvent::Sent { packets, again } => packets.each().try_for_each(|(number, bytes)| {
                let mut data = packet_data(packets, number, bytes);
                if again {
                    data["is_retransmission"] = true.into();
                }
                self.event(at, "packet_sent", data)
            }),
            TraceEvent::Received { packets, ecn } => packets.each().try_for_each(|(number, bytes)| {
                let mut data = packet_data(packets, number, bytes);
                data["ecn"] = ecn_name(ecn).into();
                self.event(at, "packet_received", data)
            }),
            TraceEvent::Acked(packets) => {
                let numbers: Vec<u64> = packets.numbers().collect();
                self.event(at, "packets_acked", json!({ "packet_numbers": numbers }))
            }
            TraceEvent::Lost { packets, reason } => packets.numbers().try_for_each(|number| {
                let (name, trigger) = loss_name(reason);
                self.event(at, name, json!({ "header": { "packet_number": number }, "trigger": trigger }))
            }),
            TraceEvent::DatagramsLost { packets } => self.event(at, "datagrams_lost", json!({ "packets": packets })),
            TraceEvent::TimedOut(timer) => {
                // It does not need to be reported as cancelled.
                if let Some(state) = self.states.get_mut(&at.session) {
                    *due_ns(state, timer) = None;
                }
                self.event(at, "timer_updated", json!({ "timer_type": timer_name(timer), "event_type": "expired" }))
            }
            TraceEvent::State(state) => self.state(at, state),
        }
    }

    /// Writes the differences between a session's state and the one before.
    fn state(&mut self, at: Stamp, mut state: SenderState) -> io::Result<()> {
        let mut before = self.states.insert(at.session, state);
        let metrics = changed_metrics(before.as_ref(), &state);
        if !metrics.is_empty() {
            self.event(at, "recovery_metrics_updated", metrics.into())?;
        }
        let old = before.map(|before| phase_name(before.phase));
        self.change(at, "congestion_state_updated", old, phase_name(state.phase))?;
        self.change(at, "mtu_updated", before.map(|before| before.packet_bytes), state.packet_bytes)?;
        self.change(
            at,
            "ecn_state_updated",
            before.map(|before| ecn_state_name(before.ecn)),
            ecn_state_name(state.ecn),
        )?;
        for timer in [SenderTimer::Probe, SenderTimer::Loss] {
            let old = before.as_mut().and_then(|before| *due_ns(before, timer));
            let due = *due_ns(&mut state, timer);
            let timer = timer_name(timer);
            let data = match due {
                _ if due == old => continue,
                Some(due) => {
                    let delta = ms(due.saturating_sub(at.now_ns));
                    json!({ "timer_type": timer, "event_type": "set", "delta": delta })
                }
                None => json!({ "timer_type": timer, "event_type": "cancelled" }),
            };
            self.event(at, "timer_updated", data)?;
        }
        Ok(())
    }

    /// Writes the change from one value to another, if there is one.
    fn change<T: PartialEq + Into<Value>>(&mut self, at: Stamp, name: &str, old: Option<T>, new: T) -> io::Result<()> {
        let mut data = Map::new();
        match old {
            Some(old) if old == new => return Ok(()),
            Some(old) => drop(data.insert("old".to_owned(), old.into())),
            None => {}
        }
        data.insert("new".to_owned(), new.into());
        self.event(at, name, data.into())
    }

    fn event(&mut self, at: Stamp, name: &str, data: Value) -> io::Result<()> {
        let time = ms(at.now_ns.saturating_add_signed(at.ahead_ns));
        let (name, group_id) = (format!("crossdock:{name}"), at.session.to_string());
        self.record(&EventRecord { time, name, group_id, data })
    }

    fn record(&mut self, record: &impl Serialize) -> io::Result<()> {
        self.to.write_all(b"\x1e")?;
        serde_json::to_writer(&mut self.to, record)?;
        self.to.write_all(b"\n")
    }
}

/// A time in ms, as qlog has it.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn started_data(started: Started) -> Value {
    let Started { local, remote, numbers, packet_bytes, windows_bytes } = started;
    json!({
        "local": endpoint(local),
        "remote": endpoint(remote),
        "local_session": numbers.0,
        "remote_session": numbers.1,
        "packet_size": packet_bytes,
        "local_window": windows_bytes.0,
        "remote_window": windows_bytes.1,
    })
}

fn endpoint(addr: SocketAddr) -> Value {
    match addr {
        SocketAddr::V4(addr) => json!({ "ip_v4": addr.ip().to_string(), "port_v4": addr.port() }),
        SocketAddr::V6(addr) => json!({ "ip_v6": addr.ip().to_string(), "port_v6": addr.port() }),
    }
}

/// One packet of a run.
fn packet_data(packets: PacketRun, number: u64, bytes: u64) -> Value {
    let (packet_type, frame_type) = kind_names(packets.kind);
    let mut header = json!({ "packet_type": packet_type });
    if is_numbered(packets.kind) {
        header["packet_number"] = number.into();
    }
    let mut data = json!({ "header": header, "raw": { "length": bytes } });
    if let (Some(stream), Some(frame_type)) = (packets.stream, frame_type) {
        data["frames"] = json!([{ "frame_type": frame_type, "stream_id": stream }]);
    }
    data
}

/// The names of a kind of packets, and of their content if it is of a stream.
fn kind_names(kind: PacketKind) -> (&'static str, Option<&'static str>) {
    match kind {
        PacketKind::Hello => ("hello", None),
        PacketKind::Welcome => ("welcome", None),
        PacketKind::Data => ("data", Some("stream")),
        PacketKind::Control => ("control", None),
        PacketKind::Ack => ("ack", None),
        PacketKind::Close => ("close", None),
        PacketKind::Ping => ("ping", None),
        PacketKind::Message => ("message", Some("mailbox")),
        PacketKind::Reset => ("reset", None),
        PacketKind::Datagram => ("datagram", Some("datagram")),
        PacketKind::Probe => ("probe", None),
        PacketKind::Probed => ("probed", None),
        PacketKind::Part => ("part", None),
    }
}

/// Whether packets of a kind have numbers: of the session's sequence, the datagrams', or the probes'.
fn is_numbered(kind: PacketKind) -> bool {
    use PacketKind::{Control, Data, Datagram, Message, Probe, Probed};
    matches!(kind, Data | Control | Message | Datagram | Probe | Probed)
}

/// The event of packets that are to be sent again, and its trigger.
fn loss_name(reason: LossReason) -> (&'static str, &'static str) {
    match reason {
        LossReason::Overtaken => ("packet_lost", "reordering_threshold"),
        LossReason::Delayed => ("packet_lost", "time_threshold"),
        LossReason::Unanswered => ("marked_for_retransmit", "pto_expired"),
        LossReason::NotTaken => ("marked_for_retransmit", "receiver_full"),
    }
}

fn phase_name(phase: CongestionPhase) -> &'static str {
    match phase {
        CongestionPhase::SlowStart => "slow_start",
        CongestionPhase::Avoidance => "congestion_avoidance",
        CongestionPhase::Recovery => "recovery",
        CongestionPhase::StatedRate => "stated_rate",
    }
}

fn ecn_state_name(state: EcnState) -> &'static str {
    match state {
        EcnState::Testing => "testing",
        EcnState::Capable => "capable",
        EcnState::Failed => "failed",
    }
}

fn ecn_name(bits: u8) -> &'static str {
    match bits {
        CE => "CE",
        ECT_0 => "ECT(0)",
        0 => "Not-ECT",
        _ => "ECT(1)",
    }
}

fn timer_name(timer: SenderTimer) -> &'static str {
    match timer {
        SenderTimer::Probe => "pto",
        SenderTimer::Loss => "loss_timeout",
    }
}

fn due_ns(state: &mut SenderState, timer: SenderTimer) -> &mut Option<u64> {
    match timer {
        SenderTimer::Probe => &mut state.probe_due_ns,
        SenderTimer::Loss => &mut state.loss_due_ns,
    }
}

/// The metrics that have changed, but round trips that are not known yet.
fn changed_metrics(before: Option<&SenderState>, state: &SenderState) -> Map<String, Value> {
    let metrics = |state: &SenderState| {
        let rtt = |ns: u64| (ns > 0).then(|| ms(ns).into());
        [
            ("min_rtt", rtt(state.shortest_rtt_ns)),
            ("smoothed_rtt", rtt(state.smoothed_rtt_ns)),
            ("latest_rtt", rtt(state.latest_rtt_ns)),
            ("rtt_variance", rtt(state.rtt_variation_ns)),
            ("pto_count", Some(Value::from(state.timeouts))),
            ("congestion_window", state.window_bytes.map(Value::from)),
            ("bytes_in_flight", Some(state.flight_bytes.into())),
            ("marked_packets", Some(state.marked_packets.into())),
        ]
    };
    let old = before.map(metrics);
    let is_new =
        |(index, (_, value)): &(usize, (&str, Option<Value>))| old.as_ref().is_none_or(|old| old[*index].1 != *value);
    let changed = metrics(state).into_iter().enumerate().filter(is_new);
    changed.filter_map(|(_, (name, value))| Some((name.to_owned(), value?))).collect()
}
