use super::*;
use crossdock_transport::PacketKind;
use crossdock_transport::ecn::{ECT_0, EcnState};
use crossdock_transport::trace::{CongestionPhase, LossReason, PacketRun, PacketSet, SenderState, SenderTimer};
use serde_json::{Value, json};
use std::sync::mpsc;

/// A file in memory, which is full at `most_bytes`.
#[derive(Clone)]
struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    most_bytes: usize,
}

impl Memory {
    fn new(most_bytes: usize) -> Memory {
        Memory { bytes: Arc::default(), most_bytes }
    }

    /// The records: each begins with a separator and ends with a line's end.
    fn records(&self) -> Vec<Value> {
        let bytes = self.bytes.lock().unwrap();
        let mut records = bytes.split(|byte| *byte == 0x1e);
        assert_eq!(records.next(), Some(&b""[..]));
        records.map(|record| serde_json::from_slice(record.strip_suffix(b"\n").unwrap()).unwrap()).collect()
    }
}

impl Write for Memory {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap();
        if bytes.len() + written.len() > self.most_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        bytes.extend_from_slice(written);
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const MS: u64 = 1_000_000;

const STATE: SenderState = SenderState {
    latest_rtt_ns: 0,
    smoothed_rtt_ns: 0,
    shortest_rtt_ns: 0,
    rtt_variation_ns: 0,
    window_bytes: Some(65_536),
    flight_bytes: 0,
    phase: CongestionPhase::SlowStart,
    timeouts: 0,
    probe_due_ns: None,
    loss_due_ns: None,
    packet_bytes: 1472,
    ecn: EcnState::Testing,
    marked_packets: 0,
};

/// The names and data of the events that these make, after the header.
fn events(note: impl FnOnce(&mut SessionTrace)) -> Vec<(String, Value)> {
    let file = Memory::new(usize::MAX);
    let trace = Trace::over(file.clone(), "a test", |error| panic!("{error}")).unwrap();
    let mut session = trace.session(0);
    note(&mut session);
    trace.finish();
    let named = |record: &Value| {
        assert_eq!(record["group_id"], "1");
        (record["name"].as_str().unwrap().strip_prefix("crossdock:").unwrap().to_owned(), record["data"].clone())
    };
    file.records()[1..].iter().map(named).collect()
}

#[test]
fn a_trace_has_a_header_and_times_of_its_own_clock() {
    let file = Memory::new(usize::MAX);
    let trace = Trace::over(file.clone(), "a test", |error| panic!("{error}")).unwrap();
    // The sessions' clocks began before the trace's, and after it.
    let sessions = [trace.session(5 * MS), trace.session(0)];
    for session in &sessions {
        session.note_sent(session.now_ns(), PacketKind::Hello, 0, 60);
    }
    trace.finish();
    sessions[0].note_sent(0, PacketKind::Hello, 0, 60);
    let records = file.records();
    let header = &records[0];
    assert_eq!(header["file_schema"], "urn:ietf:params:qlog:file:sequential");
    assert_eq!(header["serialization_format"], "application/qlog+json-seq");
    assert_eq!((&header["title"], &header["trace"]["vantage_point"]["type"]), (&json!("a test"), &json!("client")));
    let clock = &header["trace"]["common_fields"]["reference_time"];
    assert_eq!((&clock["clock_type"], &clock["epoch"]), (&json!("monotonic"), &json!("unknown")));
    assert!(clock["wall_clock_time"].as_str().unwrap().ends_with('Z'), "{clock}");
    let groups: Vec<&Value> = records[1..].iter().map(|record| &record["group_id"]).collect();
    assert_eq!(groups, ["1", "2"], "nothing after the end");
    let times: Vec<f64> = records[1..].iter().map(|record| record["time"].as_f64().unwrap()).collect();
    assert!(times.iter().all(|time| (0.0..600_000.0).contains(time)), "{times:?}");
}

#[test]
fn packets_are_written_one_by_one() {
    let run = PacketRun { packets: 2, each_bytes: 1472, ..PacketRun::one(PacketKind::Data, 7, 100) };
    let run = PacketRun { stream: Some(3), ..run };
    let found = events(|session| {
        session.event(0, TraceEvent::Sent { packets: run, again: false });
        session.event(0, TraceEvent::Sent { packets: PacketRun { packets: 1, ..run }, again: true });
        let ack = PacketRun::one(PacketKind::Ack, 0, 70);
        session.event(MS, TraceEvent::Received { packets: ack, ecn: ECT_0 });
        session.event(MS, TraceEvent::Acked(PacketSet { first_seq: 7, set: 0b11 }));
        let packets = PacketSet { first_seq: 7, set: 0b10 };
        for reason in [LossReason::Overtaken, LossReason::Delayed, LossReason::Unanswered, LossReason::NotTaken] {
            session.event(MS, TraceEvent::Lost { packets, reason });
        }
        session.event(MS, TraceEvent::DatagramsLost { packets: 4 });
    });
    let data = |number: u64, bytes: u64| {
        let header = json!({ "packet_type": "data", "packet_number": number });
        let frames = json!([{ "frame_type": "stream", "stream_id": 3 }]);
        json!({ "header": header, "raw": { "length": bytes }, "frames": frames })
    };
    let mut again = data(7, 100);
    again["is_retransmission"] = true.into();
    let lost = |trigger: &str| json!({ "header": { "packet_number": 8 }, "trigger": trigger });
    let wanted = [
        ("packet_sent", data(7, 1472)),
        ("packet_sent", data(8, 100)),
        ("packet_sent", again),
        ("packet_received", json!({ "header": { "packet_type": "ack" }, "raw": { "length": 70 }, "ecn": "ECT(0)" })),
        ("packets_acked", json!({ "packet_numbers": [7, 8] })),
        ("packet_lost", lost("reordering_threshold")),
        ("packet_lost", lost("time_threshold")),
        ("marked_for_retransmit", lost("pto_expired")),
        ("marked_for_retransmit", lost("receiver_full")),
        ("datagrams_lost", json!({ "packets": 4 })),
    ];
    assert_eq!(found, wanted.map(|(name, data)| (name.to_owned(), data)));
}

#[test]
fn of_the_state_what_has_changed_is_written() {
    let found = events(|session| {
        session.event(0, TraceEvent::State(STATE));
        let sent = SenderState { flight_bytes: 1472, probe_due_ns: Some(30 * MS), ..STATE };
        session.event(0, TraceEvent::State(sent));
        session.event(0, TraceEvent::State(sent));
        session.event(30 * MS, TraceEvent::TimedOut(SenderTimer::Probe));
        session.event(30 * MS, TraceEvent::State(SenderState { timeouts: 1, probe_due_ns: Some(90 * MS), ..sent }));
        let (phase, ecn, packet_bytes) = (CongestionPhase::Recovery, EcnState::Capable, 1200);
        let smoothed_rtt_ns = 2 * MS + 500_000;
        session.event(31 * MS, TraceEvent::State(SenderState { phase, ecn, packet_bytes, smoothed_rtt_ns, ..STATE }));
    });
    let first = json!({ "bytes_in_flight": 0, "congestion_window": 65_536, "marked_packets": 0, "pto_count": 0 });
    let pto = |event: &str| json!({ "timer_type": "pto", "event_type": event });
    let set = |ms: f64| json!({ "timer_type": "pto", "event_type": "set", "delta": ms });
    let wanted = [
        ("recovery_metrics_updated", first),
        ("congestion_state_updated", json!({ "new": "slow_start" })),
        ("mtu_updated", json!({ "new": 1472 })),
        ("ecn_state_updated", json!({ "new": "testing" })),
        ("recovery_metrics_updated", json!({ "bytes_in_flight": 1472 })),
        ("timer_updated", set(30.0)),
        ("timer_updated", pto("expired")),
        ("recovery_metrics_updated", json!({ "pto_count": 1 })),
        ("timer_updated", set(60.0)),
        ("recovery_metrics_updated", json!({ "bytes_in_flight": 0, "pto_count": 0, "smoothed_rtt": 2.5 })),
        ("congestion_state_updated", json!({ "old": "slow_start", "new": "recovery" })),
        ("mtu_updated", json!({ "old": 1472, "new": 1200 })),
        ("ecn_state_updated", json!({ "old": "testing", "new": "capable" })),
        ("timer_updated", pto("cancelled")),
    ];
    assert_eq!(found, wanted.map(|(name, data)| (name.to_owned(), data)));
}

#[test]
fn keys_are_written_when_they_change_and_an_end_once() {
    let found = events(|session| {
        let keys = KeyPhases { index: 9, sealing: 0, opening: 0 };
        session.note_keys(0, None);
        session.note_keys(0, Some(keys));
        session.note_keys(0, Some(keys));
        session.note_keys(0, Some(KeyPhases { sealing: 1, ..keys }));
        session.note_keys(0, Some(KeyPhases { opening: 1, sealing: 1, ..keys }));
        session.note_closed(0, false, "the daemon ends");
        session.note_closed(0, true, "done");
    });
    let key = |key_type: &str, key_phase: u8, trigger: &str| {
        ("key_updated", json!({ "key_type": key_type, "key_phase": key_phase, "trigger": trigger }))
    };
    let wanted = [
        key("client_secret", 0, "handshake"),
        key("server_secret", 0, "handshake"),
        key("client_secret", 1, "local_update"),
        key("server_secret", 1, "remote_update"),
        ("connection_closed", json!({ "initiator": "remote", "reason": "the daemon ends" })),
    ];
    assert_eq!(found, wanted.map(|(name, data)| (name.to_owned(), data)));
}

#[test]
fn a_full_disk_is_reported_once_and_holds_no_session_back() {
    let (failures, failed) = mpsc::channel();
    let file = Memory::new(100_000);
    let trace = Trace::over(file.clone(), "a test", move |error| failures.send(error.kind()).unwrap()).unwrap();
    let mut session = trace.session(0);
    for number in 0..3 * QUEUE_EVENTS as u64 {
        session.event(number, TraceEvent::sent(PacketKind::Data, number, 1472));
    }
    trace.finish();
    assert_eq!(failed.iter().collect::<Vec<_>>(), [io::ErrorKind::StorageFull]);
    assert!(file.bytes.lock().unwrap().len() <= 100_000);
    // Nothing can be written from the start.
    assert!(Trace::over(Memory::new(10), "a test", |error| panic!("{error}")).is_err());
}
