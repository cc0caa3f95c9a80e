//! `--trace`: the sessions of commands as qlog files, opened by a reader of the format (draft-ietf-quic-qlog-main-schema, JSON text
//! sequences of RFC 7464).

use crate::place::{FLIGHTS_CSV, Sandbox};
use crossdock_nectarine::Node;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The header of a file with one trace, its events left out (QlogFileSeq).
#[derive(Deserialize)]
struct QlogFileSeq {
    file_schema: String,
    serialization_format: String,
    title: String,
    trace: TraceSeq,
}

#[derive(Deserialize)]
struct TraceSeq {
    common_fields: CommonFields,
    vantage_point: VantagePoint,
    event_schemas: Vec<String>,
}

#[derive(Deserialize)]
struct CommonFields {
    protocol_types: Vec<String>,
    time_format: String,
    reference_time: ReferenceTime,
}

#[derive(Deserialize)]
struct ReferenceTime {
    clock_type: String,
    epoch: String,
    wall_clock_time: String,
}

#[derive(Deserialize)]
struct VantagePoint {
    #[serde(rename = "type")]
    kind: String,
}

/// An event, whose time is in ms.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QlogEvent {
    time: f64,
    name: String,
    group_id: String,
    pub(crate) data: Value,
}

/// The events of a trace.
pub(crate) struct QlogTrace(Vec<QlogEvent>);

impl QlogTrace {
    /// Opens the trace of a command, and checks its header and times.
    pub(crate) fn open(place: &Sandbox, file: &str, command: &str) -> QlogTrace {
        let bytes = std::fs::read(place.path(file)).unwrap();
        // Each text follows a separator, and a line's end shows that it is whole.
        let mut texts = bytes.split(|byte| *byte == 0x1e);
        assert_eq!(texts.next(), Some(&b""[..]), "the file begins with a separator");
        let mut texts = texts.map(|text| text.strip_suffix(b"\n").unwrap());
        let header: QlogFileSeq = serde_json::from_slice(texts.next().unwrap()).unwrap();
        assert_eq!(header.file_schema, "urn:ietf:params:qlog:file:sequential");
        assert_eq!(header.serialization_format, "application/qlog+json-seq");
        assert_eq!(
            (header.title, header.trace.vantage_point.kind.as_str()),
            (format!("crossdock {command}"), "client")
        );
        let CommonFields { protocol_types, time_format, reference_time } = header.trace.common_fields;
        assert_eq!((protocol_types, time_format.as_str()), (vec!["CROSSDOCK".to_owned()], "relative_to_epoch"));
        assert_eq!((reference_time.clock_type.as_str(), reference_time.epoch.as_str()), ("monotonic", "unknown"));
        assert!(reference_time.wall_clock_time.starts_with("20"), "{}", reference_time.wall_clock_time);
        let namespaces: Vec<&str> =
            header.trace.event_schemas.iter().filter_map(|schema| schema.rsplit(':').next()).collect();
        let events: Vec<QlogEvent> = texts.map(|text| serde_json::from_slice(text).unwrap()).collect();
        let mut times = BTreeMap::new();
        for event in &events {
            let namespace = event.name.split_once(':').unwrap().0;
            assert!(namespaces.contains(&namespace), "{} is of no schema in {namespaces:?}", event.name);
            let before = times.insert(&event.group_id, event.time).unwrap_or(0.0);
            assert!(event.time >= before, "{} at {} ms, after {before} ms", event.name, event.time);
        }
        QlogTrace(events)
    }

    /// The data of the events of this name.
    pub(crate) fn of(&self, name: &str) -> Vec<&Value> {
        let is_named = |event: &&QlogEvent| event.name.strip_prefix("crossdock:") == Some(name);
        self.0.iter().filter(is_named).map(|event| &event.data).collect()
    }

    /// The packets of this type that were sent or received, by the event's name.
    fn packets(&self, name: &str, packet_type: &str) -> Vec<&Value> {
        self.of(name).into_iter().filter(|data| data["header"]["packet_type"] == packet_type).collect()
    }
}

/// The numbers of packets.
fn numbers(packets: &[&Value]) -> Vec<u64> {
    packets.iter().map(|data| data["header"]["packet_number"].as_u64().unwrap()).collect()
}

#[test]
fn a_publisher_writes_a_trace_of_its_session() {
    let (place, _daemon) = Sandbox::with_daemon();
    // More than the daemon takes before its first ack.
    let (header, rows) = FLIGHTS_CSV.split_once('\n').unwrap();
    place.write("flights.csv", format!("{header}\n{}", rows.repeat(40_000)));
    let publish = ["publish", "A", "flights.csv", "--schema", "a.schema", "--trace", "p.sqlog", "--json"];
    let report = &place.run(publish).with_code(0).json()[0];
    assert!(report["bytes"].as_u64().unwrap() > 2 << 20, "{report}");
    let trace = QlogTrace::open(&place, "p.sqlog", "publish");
    let started = trace.of("connection_started");
    let address = format!("{}:{}", started[0]["remote"]["ip_v4"].as_str().unwrap(), started[0]["remote"]["port_v4"]);
    assert_eq!((started.len(), address.as_str()), (1, place.address()), "{}", started[0]);
    let closed = trace.of("connection_closed");
    assert_eq!((closed.len(), &closed[0]["initiator"]), (1, &"local".into()), "{}", closed[0]);
    let (hellos, welcomes) = (trace.packets("packet_sent", "hello"), trace.packets("packet_received", "welcome"));
    assert!(!hellos.is_empty() && !welcomes.is_empty());
    assert_eq!(trace.packets("packet_sent", "close").len(), 1);
    // Records and control share a sequence, and each number is sent first once. The last acks may come after the end.
    let is_again = |data: &&&Value| data["is_retransmission"] == true;
    let [data, control] = ["data", "control"].map(|kind| trace.packets("packet_sent", kind));
    let in_sequence: Vec<&Value> = data.iter().chain(&control).copied().collect();
    let resent = in_sequence.iter().filter(is_again).count();
    // Control that ends the session may be sent again after the report.
    assert!(report["resent_packets"].as_u64().unwrap() <= resent as u64, "{report}");
    let first: Vec<&Value> = in_sequence.iter().filter(|data| !is_again(data)).copied().collect();
    let mut sent = numbers(&first);
    sent.sort_unstable();
    assert_eq!(sent, (0..sent.len() as u64).collect::<Vec<_>>());
    let acked = trace.of("packets_acked").into_iter().flat_map(|data| data["packet_numbers"].as_array().unwrap());
    let acked: Vec<u64> = acked.map(|number| number.as_u64().unwrap()).collect();
    assert!(!acked.is_empty() && acked.iter().all(|number| sent.contains(number)), "{acked:?} of {sent:?}");
    assert_eq!(data[0]["frames"][0]["frame_type"], "stream", "{}", data[0]);
    assert!(data.iter().all(|data| data["raw"]["length"].as_u64().unwrap() > 32), "{}", data[0]);
    assert!(!trace.packets("packet_received", "ack").is_empty());
    let metrics = trace.of("recovery_metrics_updated");
    assert!(metrics.iter().any(|data| data["smoothed_rtt"].as_f64().is_some_and(|ms| ms > 0.0)), "{metrics:?}");
    assert!(metrics[0]["congestion_window"].as_u64().unwrap() > 0, "{}", metrics[0]);
    for name in ["congestion_state_updated", "mtu_updated", "ecn_state_updated", "timer_updated"] {
        assert!(!trace.of(name).is_empty(), "no {name}");
    }
}

#[test]
fn a_subscriber_writes_a_trace_of_its_session() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    let query = ["subscribe", "SELECT carrier FROM A", "--until-end", "--wait", "--trace", "s.sqlog"];
    let subscriber = place.spawn(query);
    place.wait_for_subscriptions(1);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0);
    assert_eq!(subscriber.end_by_itself().with_code(0).stdout.lines().count(), 4);
    let trace = QlogTrace::open(&place, "s.sqlog", "subscribe");
    let received = trace.packets("packet_received", "data");
    assert!(!received.is_empty() && received[0]["ecn"].is_string(), "{received:?}");
    assert_eq!(received[0]["frames"][0]["frame_type"], "stream", "{}", received[0]);
    assert!(!trace.packets("packet_sent", "ack").is_empty());
    assert_eq!(trace.of("connection_closed").len(), 1);
}

#[test]
fn pings_and_calls_write_traces_of_their_sessions() {
    let (place, _daemon) = Sandbox::with_configured_daemon("[node]\nname = \"here\"\n");
    place.run(["ping", "--count", "3", "--interval", "1ms", "--trace", "ping.sqlog"]).with_code(0);
    let trace = QlogTrace::open(&place, "ping.sqlog", "ping");
    assert!(trace.packets("packet_sent", "ping").len() >= 3);
    assert!(trace.packets("packet_received", "ack").len() >= 3);
    assert_eq!(trace.of("connection_closed").len(), 1);
    let node = Node::connect(place.address()).unwrap();
    let reverse = |request: &[u8], reply: &mut Vec<u8>| {
        reply.extend(request.iter().rev());
        Ok(())
    };
    let _service = node.serve("reverse", reverse).unwrap();
    let called = place.run(["call", "reverse", "desserts", "--trace", "call.sqlog"]).with_code(0);
    assert_eq!(called.stdout, "stressed\n");
    let trace = QlogTrace::open(&place, "call.sqlog", "call");
    let sent = trace.packets("packet_sent", "message");
    assert_eq!(sent[0]["frames"][0]["frame_type"], "mailbox", "{}", sent[0]);
    assert!(!trace.packets("packet_received", "message").is_empty());
    assert_eq!(trace.of("connection_started").len(), trace.of("connection_closed").len());
}

#[test]
fn without_a_trace_nothing_is_written_and_one_that_cannot_be_written_is_an_error() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    let files = || {
        let names = std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let before = files();
    let publish = ["publish", "A", "flights.csv", "--schema", "a.schema"];
    for way in ["udp", "auto"] {
        place.run([&publish[..], &["--transport", way]].concat()).with_code(0);
    }
    place.run(["ping", "--count", "1"]).with_code(0);
    let unwritten = ["cannot write the trace", "none/p.sqlog"];
    place.run([&publish[..], &["--trace", "none/p.sqlog"]].concat()).with_code(2).saying(&unwritten);
    place
        .run(["ping", "--trace", "/dev/full"])
        .with_code(2)
        .saying(&["cannot write the trace /dev/full: No space left"]);
    assert_eq!(files(), before);
    let by_memory = [&publish[..], &["--transport", "shm", "--trace", "p.sqlog"]].concat();
    place.run(by_memory).with_code(2).saying(&["a trace is of packets", "only shared memory"]);
}
