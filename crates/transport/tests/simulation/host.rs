//! A host of the simulation: a socket, sessions over it, and an application behind each. A small model of what a client
//! and the daemon do with this crate.

use crate::datagrams::{DatagramPlan, Datagrams};
use crate::trace::Log;
use crate::traffic::{Outgoing, Packets, Sink, SinkPlan, SourcePlan, TrafficSource, Unit};
use crossdock_sim::{Frame, Network, Rng};
use crossdock_transport::credit::{CONTROL_WINDOW_PACKETS, units};
use crossdock_transport::ecn::{ECT_0, NOT_ECT};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::{PayloadSpan, Run, walk};
use crossdock_transport::parts::{Parts, Put, Splitter};
use crossdock_transport::receiver::{Arrival, Arriving};
use crossdock_transport::session::ShortPacket;
use crossdock_transport::{Dialler, Header, Hello, Limits, PacketKind, Session, Welcome};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

/// How a host is set up.
#[derive(Clone, Debug)]
pub(crate) struct HostPlan {
    pub(crate) packet_bytes: u32,
    pub(crate) limits: Limits,
    /// How long a turn takes: meanwhile arrivals gather. In ns.
    pub(crate) turn_ns: u64,
    /// Probability that the device takes nothing more this turn.
    pub(crate) device_full: f64,
    /// Probability that there are no buffers for what was kept ahead of a hole that is filled.
    pub(crate) short: f64,
    pub(crate) source: SourcePlan,
    pub(crate) sink: SinkPlan,
    pub(crate) datagrams: DatagramPlan,
}

impl HostPlan {
    pub(crate) fn new(source: SourcePlan, sink: SinkPlan) -> HostPlan {
        HostPlan {
            packet_bytes: 1472,
            // Windows do not grow unless a test says otherwise.
            limits: Limits { max_window_bytes: 0, ..Limits::new(1024 * 1472, 10_000_000_000) },
            turn_ns: 10_000,
            device_full: 0.0,
            short: 0.0,
            source,
            sink,
            datagrams: DatagramPlan::default(),
        }
    }
}

/// The counts of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Bytes that are no packet, by reason.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Packets of sessions that do not exist, or from the wrong address.
    pub(crate) strays: u64,
    /// Hellos, welcomes and acks that do not parse or make sense.
    pub(crate) senseless: u64,
    pub(crate) sessions_made: u64,
    pub(crate) duplicates: u64,
    /// Packets refused because they were beyond the credit.
    pub(crate) beyond: u64,
    pub(crate) acks_sent: u64,
    pub(crate) pings_sent: u64,
    /// Bytes of the packets that its sessions have sent, but answers to probes.
    pub(crate) bytes_sent: u64,
    /// Data and control packets that arrived, with duplicates.
    pub(crate) packets_arrived: u64,
}

impl Counters {
    pub(crate) fn refused_total(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// One session and its application.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) session: Session<Outgoing, Packets>,
    pub(crate) source: TrafficSource,
    pub(crate) sink: Sink,
    pub(crate) datagrams: Datagrams,
    /// Packets that miss parts.
    parts: Parts<Vec<u8>>,
    splitter: Splitter,
    /// When it was found dead, in ns.
    pub(crate) dead_ns: Option<u64>,
    /// The other side's last word.
    pub(crate) closed: Option<String>,
    /// Its own window at most, in units.
    pub(crate) window: u64,
    /// The largest backlog there ever was, in bytes.
    pub(crate) most_backlog_bytes: u64,
    /// The largest packet size for which anything was packed, in bytes.
    pub(crate) most_packet_bytes: usize,
}

/// A host.
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) plan: HostPlan,
    pub(crate) peers: BTreeMap<u32, Peer>,
    pub(crate) counters: Counters,
    pub(crate) dialler: Option<(Dialler, SocketAddr, u32)>,
    /// Gets the events of its sessions.
    pub(crate) log: Option<Log>,
    accepts: bool,
    made: BTreeMap<(SocketAddr, u64), u32>,
    rng: Rng,
    spans: Vec<PayloadSpan>,
    runs: Vec<Run>,
}

impl Host {
    /// A host that accepts sessions.
    pub(crate) fn server(address: SocketAddr, plan: HostPlan, rng: Rng) -> Host {
        Host {
            address,
            plan,
            peers: BTreeMap::new(),
            counters: Counters::default(),
            dialler: None,
            log: None,
            accepts: true,
            made: BTreeMap::new(),
            rng,
            spans: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// A host that dials one.
    pub(crate) fn client(address: SocketAddr, to: SocketAddr, plan: HostPlan, rng: Rng) -> Host {
        let mut host = Host { accepts: false, ..Host::server(address, plan, rng) };
        host.dial(to, 0);
        host
    }

    /// Opens a session, beside those that it has.
    pub(crate) fn dial(&mut self, to: SocketAddr, now_ns: u64) {
        let hello = Hello {
            nonce: self.rng.u64(..),
            session: self.rng.u32(1..1000) + 1000 * self.peers.len() as u32,
            packet_bytes: self.plan.packet_bytes,
            window_bytes: self.plan.limits.window_bytes,
            uses_mailboxes: false,
        };
        self.dialler = Some((Dialler::new(hello, now_ns), to, hello.session));
    }

    /// The only session.
    pub(crate) fn peer(&self) -> &Peer {
        assert_eq!(self.peers.len(), 1, "sessions of {}", self.address);
        self.peers.values().next().unwrap()
    }

    /// Reads what came, lets the applications work, sends what is due, and asks for the next turn.
    pub(crate) fn turn(&mut self, network: &mut Network) {
        let now_ns = network.now_ns();
        while let Some(frame) = network.receive(self.address) {
            self.frame(network, frame, now_ns);
        }
        let mut wake_ns = u64::MAX;
        if let Some((dialler, to, _)) = &mut self.dialler {
            if let Some(hello) = dialler.poll(now_ns) {
                network.send(self.address, *to, &hello);
            }
            wake_ns = dialler.next_ns();
        }
        for peer in self.peers.values_mut() {
            if peer.dead_ns.is_none() && peer.closed.is_none() {
                let next_ns = peer.work(&self.plan, self.address, network, &mut self.rng, &mut self.counters);
                wake_ns = wake_ns.min(next_ns);
            }
        }
        network.pause(self.address, now_ns + self.plan.turn_ns);
        if wake_ns != u64::MAX {
            network.wake_at(self.address, wake_ns);
        }
    }

    fn frame(&mut self, network: &mut Network, frame: Frame, now_ns: u64) {
        let (mut spans, mut runs) = (std::mem::take(&mut self.spans), std::mem::take(&mut self.runs));
        let refused = &mut self.counters.refused;
        walk(&frame.bytes, frame.stride, &mut spans, &mut runs, |error| {
            let reason = format!("{error:?}");
            let reason = reason.split(['(', ' ']).next().unwrap().to_owned();
            *refused.entry(reason).or_default() += 1;
        });
        let (bytes, from, ecn) = (Rc::new(frame.bytes), frame.from, frame.ecn);
        for run in &runs {
            let packets = Packets {
                frame: bytes.clone(),
                spans: run.spans(&spans).to_vec(),
                header: run.header,
                longest_bytes: run.longest_bytes,
                last_bytes: run.last_bytes,
            };
            self.run(network, (from, ecn), packets, now_ns);
        }
        (self.spans, self.runs) = (spans, runs);
    }

    fn run(&mut self, network: &mut Network, (from, ecn): (SocketAddr, u8), packets: Packets, now_ns: u64) {
        match packets.header.kind {
            PacketKind::Hello if self.accepts => return self.hello(network, from, &packets, now_ns),
            PacketKind::Welcome => return self.welcome(from, &packets, now_ns),
            _ => {}
        }
        let peer = self.peers.get_mut(&packets.header.session);
        let Some(peer) = peer.filter(|p| p.address == from && p.dead_ns.is_none()) else {
            self.counters.strays += 1;
            return;
        };
        match packets.header.kind {
            PacketKind::Part => peer.session.heard(now_ns),
            _ => peer.session.arrived(packets.run(), ecn, now_ns),
        }
        let (counters, is_short) = (&mut self.counters, self.plan.short > 0.0 && self.rng.f64() < self.plan.short);
        let payload = &packets.frame[packets.spans[0].range()];
        match packets.header.kind {
            PacketKind::Data | PacketKind::Control | PacketKind::Message => {
                peer.session.receiver.note_ecn(ecn, packets.spans.len() as u32);
                peer.arrive(packets, is_short, now_ns, counters);
            }
            PacketKind::Datagram => {
                peer.session.receiver.note_ecn(ecn, packets.spans.len() as u32);
                peer.datagrams.take(&packets, &mut peer.session.receiver, now_ns);
            }
            PacketKind::Ack => {
                let refused = peer.session.on_ack(payload, now_ns, |_| {}).is_err();
                counters.senseless += u64::from(refused);
            }
            PacketKind::Close => peer.closed = Some(Close::decode(payload).reason),
            PacketKind::Ping => peer.session.receiver.ack_soon(),
            PacketKind::Probe => {
                let answer = peer.session.answer_probe(&packets.header);
                network.send(self.address, from, &answer);
            }
            PacketKind::Probed => peer.session.sender.probe_answered(packets.header.seq, now_ns),
            PacketKind::Part => {
                match peer.parts.put(&packets.header, payload, (ecn, now_ns), |bytes| Some(vec![0; bytes])) {
                    Put::Whole(bytes, len, ecn) => {
                        assert_eq!(bytes.len(), len);
                        self.frame(network, Frame { from, stride: len, bytes, ecn }, now_ns);
                    }
                    Put::Malformed => counters.senseless += 1,
                    Put::Partial | Put::Duplicate | Put::NoMemory => {}
                }
            }
            PacketKind::Hello | PacketKind::Welcome | PacketKind::Reset => counters.senseless += 1,
        }
    }

    fn hello(&mut self, network: &mut Network, from: SocketAddr, packets: &Packets, now_ns: u64) {
        let Ok(hello) = Hello::decode(&packets.frame[packets.spans[0].range()]) else {
            self.counters.senseless += 1;
            return;
        };
        let packet_bytes = hello.packet_bytes.min(self.plan.packet_bytes);
        let number = match self.made.get(&(from, hello.nonce)) {
            Some(&number) => number,
            None => {
                let number = self.peers.len() as u32 + 1;
                self.made.insert((from, hello.nonce), number);
                let theirs = (hello.session, packet_bytes, hello.window_bytes);
                self.add_peer(number, from, theirs, now_ns);
                number
            }
        };
        let welcome =
            Welcome { nonce: hello.nonce, session: number, packet_bytes, window_bytes: self.plan.limits.window_bytes };
        network.send(self.address, from, &welcome.packet(hello.session));
    }

    fn welcome(&mut self, from: SocketAddr, packets: &Packets, now_ns: u64) {
        let payload = &packets.frame[packets.spans[0].range()];
        let Some((dialler, _, number)) = self.dialler.as_ref().filter(|(_, to, _)| *to == from) else {
            self.counters.strays += 1;
            return;
        };
        let (answered, number) = (dialler.answered(&packets.header, payload), *number);
        let Some(welcome) = answered else {
            self.counters.senseless += 1;
            return;
        };
        self.dialler = None;
        let theirs = (welcome.session, welcome.packet_bytes, welcome.window_bytes);
        self.add_peer(number, from, theirs, now_ns);
    }

    fn add_peer(&mut self, number: u32, address: SocketAddr, (theirs, bytes, window): (u32, u32, u32), now_ns: u64) {
        self.counters.sessions_made += 1;
        let own = units(self.plan.limits.window_bytes, bytes);
        let most = units(self.plan.limits.max_window_bytes.max(self.plan.limits.window_bytes), bytes);
        let mut session = Session::new(theirs, bytes, window, self.plan.limits, now_ns);
        if let Some(log) = &self.log {
            session.observe(Box::new(log.clone()), now_ns);
        }
        let peer = Peer {
            address,
            session,
            source: TrafficSource::new(self.plan.source.clone(), self.rng.fork()),
            sink: Sink::new(self.plan.sink.clone(), bytes as usize, own),
            datagrams: Datagrams::new(self.plan.datagrams.clone()),
            parts: Parts::default(),
            splitter: Splitter::default(),
            dead_ns: None,
            closed: None,
            window: most.into(),
            most_backlog_bytes: 0,
            most_packet_bytes: 0,
        };
        self.peers.insert(number, peer);
    }
}

impl Peer {
    /// Everything sent has arrived, and everything to send was.
    pub(crate) fn is_done(&self) -> bool {
        self.source.is_done() && self.session.sender.is_idle()
    }

    fn arrive(&mut self, packets: Packets, is_short: bool, now_ns: u64, counters: &mut Counters) {
        let count = packets.spans.len() as u32;
        counters.packets_arrived += u64::from(count);
        let (header, sink) = (packets.header, &mut self.sink);
        let receiver = &mut self.session.receiver;
        let run = Arriving {
            traffic: header.kind.traffic(),
            first_seq: header.seq,
            packets: count,
            longest_bytes: packets.longest_bytes,
            last_bytes: packets.last_bytes,
        };
        let mut deliver = |packets, skip| sink.deliver(&packets, skip);
        let arrival = match is_short {
            true => receiver.arrive_alone(run, packets, now_ns, deliver),
            false => receiver.arrive(run, packets, now_ns, &mut deliver),
        };
        self.session.receiver.control_consumed();
        match arrival {
            Arrival::Duplicate => counters.duplicates += u64::from(count),
            Arrival::Beyond => counters.beyond += u64::from(count),
            Arrival::Delivered | Arrival::Held => {}
        }
        counters.beyond += self.session.receiver.take_refused();
        assert!(self.sink.waiting_units <= self.window, "more than the window waits");
        let most = self.window + u64::from(CONTROL_WINDOW_PACKETS);
        assert!(self.session.receiver.held() as u64 <= most, "more than the windows is held");
    }

    /// One turn of the session; returns when the next is due, in ns.
    fn work(
        &mut self,
        plan: &HostPlan,
        from: SocketAddr,
        network: &mut Network,
        rng: &mut Rng,
        counters: &mut Counters,
    ) -> u64 {
        let now_ns = network.now_ns();
        self.session.receiver.consumed_to(self.sink.consume(now_ns));
        self.session.grow_window(now_ns, u64::MAX);
        self.fill(now_ns);
        self.parts.expire(now_ns);
        if !self.session.on_timer(now_ns) {
            self.dead_ns = Some(now_ns);
            return u64::MAX;
        }
        let mut next_ns = u64::MAX;
        let peer_session = self.session.peer_session();
        self.datagrams.fill(&mut self.session, now_ns);
        let most_bytes = self.session.packet_bytes();
        let ecn = if self.session.sender.marks_ecn() { ECT_0 } else { NOT_ECT };
        while let Some(transmit) = self.session.sender.poll() {
            if rng.f64() < plan.device_full {
                next_ns = now_ns + 50_000;
                break;
            }
            let range = transmit.packets.clone();
            let (bytes, stride) = unit_bytes(transmit.payload, peer_session, transmit.first_seq, range);
            let mut send = |bytes: &[u8], stride: usize| {
                network.send_super_with(from, self.address, (bytes, stride), ecn);
                Ok::<_, ()>(true)
            };
            let sent = if bytes.len().min(stride) > most_bytes {
                self.splitter.split([&bytes[..]], stride, most_bytes, send)
            } else {
                send(&bytes, stride)
            };
            assert_eq!(sent, Ok(true));
            counters.bytes_sent += bytes.len() as u64;
            self.session.sender.transmitted(now_ns);
        }
        while let Some((header, bytes)) = self.session.poll_probe(now_ns) {
            let mut probe = header.to_vec();
            probe.resize(bytes, 0);
            counters.bytes_sent += bytes as u64;
            network.send(from, self.address, &probe);
        }
        while let Some(short) = self.session.poll_short(now_ns) {
            count(&short, counters);
            network.send(from, self.address, short.bytes());
        }
        let due_ns = self.session.deadline_ns();
        assert!(due_ns > now_ns, "something is still due after everything was polled");
        let is_full = !self.source.plan.drops && self.session.sender.backlog_bytes() >= self.source.plan.backlog_bytes;
        let source = self.source.next_ns().filter(|_| !is_full);
        let applications = [source, self.sink.next_ns(now_ns), self.datagrams.next_ns()];
        applications.into_iter().flatten().fold(next_ns.min(due_ns), u64::min)
    }

    /// Lets the source add what the backlog has room for.
    fn fill(&mut self, now_ns: u64) {
        let bound = self.source.plan.backlog_bytes;
        let packet_bytes = self.session.packet_bytes();
        self.most_packet_bytes = self.most_packet_bytes.max(packet_bytes);
        loop {
            let sender = &mut self.session.sender;
            if sender.backlog_bytes() >= bound && !self.source.plan.drops {
                break;
            }
            let units = self.source.units(now_ns, packet_bytes);
            if units.is_empty() {
                break;
            }
            for Unit { outgoing, lengths, class, droppable } in units {
                sender.enqueue_super(outgoing, lengths, class, droppable);
            }
            while sender.queued_bytes() > bound && self.source.plan.drops {
                match sender.drop_oldest() {
                    Some(Outgoing::Data { numbers, .. }) => self.source.dropped.extend(numbers),
                    Some(Outgoing::Message { number, .. }) => panic!("message {number} was dropped"),
                    Some(Outgoing::Datagrams(_)) => panic!("datagrams are in no queue of reliable records"),
                    None => break,
                }
            }
        }
        self.most_backlog_bytes = self.most_backlog_bytes.max(self.session.sender.backlog_bytes());
    }
}

/// The packets of a unit, and the distance from one to the next.
fn unit_bytes(
    unit: &mut Outgoing,
    peer_session: u32,
    first_seq: u64,
    packets: std::ops::Range<u32>,
) -> (Vec<u8>, usize) {
    match unit {
        Outgoing::Data { packed, stream, .. } => {
            let template = Header { stream: *stream, format: 77, ..Header::new(PacketKind::Data, peer_session) };
            packed.write_headers(packets.clone(), &template, first_seq);
            (packed.bytes(packets).to_vec(), packed.stride())
        }
        Outgoing::Datagrams(packed) => {
            let template = Header { stream: 5, format: 77, ..Header::new(PacketKind::Datagram, peer_session) };
            packed.write_headers(packets.clone(), &template, first_seq);
            (packed.bytes(packets).to_vec(), packed.stride())
        }
        Outgoing::Message { message, cut, from: first, template, .. } => {
            let template = Header { session: peer_session, ..*template };
            let mut bytes = Vec::new();
            for index in packets.start + *first..packets.end + *first {
                bytes.extend_from_slice(&cut.head(index, &template, first_seq.wrapping_sub(u64::from(*first))));
                bytes.extend_from_slice(&message[cut.range(index)]);
            }
            (bytes, cut.stride())
        }
    }
}

fn count(short: &ShortPacket, counters: &mut Counters) {
    counters.bytes_sent += short.bytes().len() as u64;
    match Header::read(short.bytes()).unwrap().kind {
        PacketKind::Ack => counters.acks_sent += 1,
        PacketKind::Ping => counters.pings_sent += 1,
        other => panic!("{other:?} is no short packet"),
    }
}
