//! The trace of a session says what its counters say, and changes nothing.

use crate::datagrams::DatagramPlan;
use crate::delivery::any_world;
use crate::host::{Host, HostPlan};
use crate::traffic::{SinkPlan, SourcePlan};
use crate::world::World;
use crate::{MS, SECOND};
use crossdock_sim::{Link, Rng, check};
use crossdock_transport::PacketKind;
use crossdock_transport::trace::{LossReason, SenderState, SenderTimer, SessionObserver, TraceEvent};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The events of a session, counted. Each is compared with those before it.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Seen>>);

#[derive(Clone, Default)]
struct Seen {
    last_ns: u64,
    /// Packets by kind.
    sent: [u64; 16],
    received: [u64; 16],
    sent_bytes: u64,
    received_bytes: u64,
    resent: u64,
    lost: u64,
    timeouts: u64,
    /// The number of the next packet of the session's sequence.
    next_seq: u64,
    /// Those of its packets that are to be sent again, and those that are acknowledged.
    waiting: BTreeSet<u64>,
    acked: BTreeSet<u64>,
    /// The congestion window, each time that it has changed.
    windows: Vec<Option<u64>>,
    state: Option<SenderState>,
}

fn is_in_sequence(kind: PacketKind) -> bool {
    matches!(kind, PacketKind::Data | PacketKind::Control | PacketKind::Message)
}

impl Seen {
    fn note(&mut self, event: TraceEvent) {
        match event {
            TraceEvent::Sent { packets, again } => {
                self.sent[packets.kind as usize] += if again { 0 } else { u64::from(packets.packets) };
                self.resent += if again { u64::from(packets.packets) } else { 0 };
                for (number, bytes) in packets.each() {
                    self.sent_bytes += bytes;
                    if again {
                        assert!(self.waiting.remove(&number), "packet {number} was to be sent again");
                    } else if is_in_sequence(packets.kind) {
                        assert_eq!(number, self.next_seq);
                        self.next_seq += 1;
                    }
                }
            }
            TraceEvent::Received { packets, .. } => {
                self.received[packets.kind as usize] += u64::from(packets.packets);
                self.received_bytes += packets.each().map(|(_, bytes)| bytes).sum::<u64>();
            }
            TraceEvent::Acked(packets) => {
                for number in packets.numbers() {
                    assert!(number < self.next_seq && self.acked.insert(number), "packet {number} is acknowledged");
                    self.waiting.remove(&number);
                }
            }
            TraceEvent::Lost { packets, reason } => {
                for number in packets.numbers() {
                    let was_acked = self.acked.remove(&number);
                    assert_eq!(was_acked, reason == LossReason::NotTaken, "packet {number}: {reason:?}");
                    assert!(self.waiting.insert(number), "packet {number} waits already");
                    self.lost += u64::from(reason.is_loss());
                }
            }
            TraceEvent::TimedOut(timer) => self.timeouts += u64::from(timer == SenderTimer::Probe),
            TraceEvent::State(state) => {
                if self.windows.last() != Some(&state.window_bytes) {
                    self.windows.push(state.window_bytes);
                }
                self.state = Some(state);
            }
            TraceEvent::DatagramsLost { packets } => assert!(packets > 0),
        }
    }
}

impl SessionObserver for Log {
    fn event(&mut self, now_ns: u64, event: TraceEvent) {
        let mut seen = self.0.lock().unwrap();
        assert!(now_ns >= seen.last_ns, "{event:?} at {now_ns} ns, after {} ns", seen.last_ns);
        seen.last_ns = now_ns;
        seen.note(event);
    }
}

/// Has both hosts log what their sessions do.
fn observe(world: &mut World) -> [Log; 2] {
    let logs = [Log::default(), Log::default()];
    (world.client.log, world.server.log) = (Some(logs[0].clone()), Some(logs[1].clone()));
    logs
}

/// Compares a host's log with the counters of its session, whose packets are all acknowledged.
fn compare(log: &Log, host: &Host, report: &str) -> Seen {
    let (seen, peer) = (log.0.lock().unwrap().clone(), host.peer());
    let (sender, counters) = (&peer.session.sender, &host.counters);
    let stats = sender.stats();
    let in_sequence = |counts: &[u64; 16]| {
        [PacketKind::Data, PacketKind::Control, PacketKind::Message]
            .map(|kind| counts[kind as usize])
            .iter()
            .sum::<u64>()
    };
    let sent = in_sequence(&seen.sent);
    let received = in_sequence(&seen.received);
    assert_eq!((sent, seen.resent, seen.lost), (stats.packets, stats.resent, stats.lost), "{report}");
    assert_eq!((seen.timeouts, received), (stats.timeouts, counters.packets_arrived), "{report}");
    let of_kind = |kind: PacketKind| seen.sent[kind as usize];
    let shorts = (of_kind(PacketKind::Ack), of_kind(PacketKind::Ping));
    assert_eq!(shorts, (counters.acks_sent, counters.pings_sent), "{report}");
    assert_eq!(seen.sent_bytes, counters.bytes_sent, "{report}");
    assert_eq!(of_kind(PacketKind::Probe), sender.mtu_stats().probes, "{report}");
    assert_eq!(of_kind(PacketKind::Datagram), sender.datagram_stats().sent, "{report}");
    assert!(seen.waiting.is_empty(), "{report}");
    assert_eq!(seen.acked.len() as u64, seen.next_seq, "{report}");
    let state = seen.state.unwrap();
    assert_eq!((state.smoothed_rtt_ns, state.shortest_rtt_ns), (sender.rtt_ns(), sender.shortest_rtt_ns()), "{report}");
    assert_eq!((state.window_bytes, state.flight_bytes), (sender.congestion_window_bytes(), 0), "{report}");
    assert_eq!(
        (state.packet_bytes, state.marked_packets),
        (sender.packet_bytes(), sender.marked_packets()),
        "{report}"
    );
    assert_eq!(state.probe_due_ns, None, "{report}");
    seen
}

/// A client that sends records, control messages and datagrams over a lossy path.
fn lossy_world(seed: u64) -> World {
    let mut rng = Rng::with_seed(seed);
    let delay_ns = rng.u64(100_000..40 * MS);
    let link = Link {
        jitter_ns: rng.u64(..=delay_ns / 10),
        loss: rng.f64() * 0.2,
        duplication: rng.f64() * 0.05,
        ..Link::new(delay_ns)
    };
    let source = SourcePlan { control: 0.02, long: (0.01, 10), ..SourcePlan::bulk(5000) };
    let datagrams = DatagramPlan { count: 50, at_once: 1, interval_ns: 2 * MS };
    let client = HostPlan { datagrams, device_full: 0.05, ..HostPlan::new(source, SinkPlan::default()) };
    let server = HostPlan::new(SourcePlan::bulk(100), SinkPlan::default());
    World::new(seed, client, server, link.clone(), link)
}

#[test]
fn the_trace_of_a_lossy_session_says_what_the_counters_say() {
    check("the_trace_of_a_lossy_session_says_what_the_counters_say", 30, |seed| {
        let mut world = lossy_world(seed);
        let logs = observe(&mut world);
        world.finish(600 * SECOND);
        world.settle();
        let report = world.report();
        let [client, server] = [compare(&logs[0], &world.client, &report), compare(&logs[1], &world.server, &report)];
        assert!(client.windows.len() > 1, "{report}");
        assert!(client.received_bytes > 0 && server.received_bytes > client.received_bytes, "{report}");
    });
}

#[test]
fn the_trace_of_any_session_says_what_the_counters_say() {
    check("the_trace_of_any_session_says_what_the_counters_say", 200, |seed| {
        let mut world = any_world(seed);
        let logs = observe(&mut world);
        world.finish(1_000_000 * SECOND);
        world.settle();
        let report = world.report();
        compare(&logs[0], &world.client, &report);
        compare(&logs[1], &world.server, &report);
    });
}

#[test]
fn an_observer_changes_nothing() {
    check("an_observer_changes_nothing", 5, |seed| {
        let [mut observed, mut alone] = [lossy_world(seed), lossy_world(seed)];
        observe(&mut observed);
        for world in [&mut observed, &mut alone] {
            world.finish(600 * SECOND);
            world.settle();
        }
        assert_eq!(observed.report(), alone.report());
    });
}
