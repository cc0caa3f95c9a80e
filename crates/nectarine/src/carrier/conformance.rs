//! The duties of every carrier, checked for each by the same tests. A [`Daemon`] is the carrier's other end, played by
//! hand: over a real socket, or a real attachment. Time is the tests' own, but for what a kernel or a thread takes.

use super::Carrier;
use super::memory::Memory;
use super::udp::Udp;
use crate::incoming::{Arrived, Heard};
use crate::outgoing::{Message, Outgoing};
use crossdock_device::{Idler, Poller};
use crossdock_mailbox::attach::{AttachAddr, AttachListener, AttachRequest};
use crossdock_mailbox::host::{Arrival, ClientKey, DomainSegments, HostConfig, HostInterface, Prepared};
use crossdock_mailbox::{DoorbellPage, HugePages};
use crossdock_transport::handshake::{Close, Hello, Welcome};
use crossdock_transport::receiver::Arriving;
use crossdock_transport::{
    Follows, HEADER_BYTES, Header, Joiner, Limits, Origin, PacketKind, Session, Traffic, TrafficClass,
};
use std::collections::VecDeque;
use std::io::Read;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A packet's header and payload.
pub(crate) type Packet = (Header, Vec<u8>);

/// The daemon's end of a carrier.
pub(crate) trait Daemon: Sized {
    /// A carrier whose session stands, and its other end.
    fn connect() -> (Box<dyn Carrier>, Self);
    /// Takes what has arrived: appends it to `taken`. The packets that it takes count as delivered.
    fn take(&mut self, now_ns: u64, taken: &mut Vec<Packet>);
    /// Sends a packet if it has credit or memory for it.
    fn send(&mut self, packet: &Packet) -> bool;
    /// Transmits what is due.
    fn transmit(&mut self, now_ns: u64);
    /// Ends the session.
    fn hang_up(&mut self);
    /// Whether the client has ended the session.
    fn is_left(&mut self) -> bool;
}

/// A daemon that speaks the session's protocol over UDP.
pub(crate) struct Remote {
    socket: UdpSocket,
    session: Session<Packet, Packet>,
    is_left: bool,
}

impl Remote {
    const WINDOW_BYTES: u32 = 64 * 4096;

    /// Asks whether the client is there.
    pub(crate) fn ask(&self) {
        self.socket.send(&Header::new(PacketKind::Ping, self.session.peer_session()).packet(b"").unwrap()).unwrap();
    }

    /// Takes what has arrived; whether an answer is among it.
    pub(crate) fn is_answered(&self) -> bool {
        let mut packet = [0; 4096];
        std::iter::from_fn(|| self.socket.recv(&mut packet).ok().map(|len| Header::read(&packet[..len]).unwrap().kind))
            .filter(|kind| *kind == PacketKind::Ack)
            .count()
            > 0
    }
}

impl Daemon for Remote {
    fn connect() -> (Box<dyn Carrier>, Remote) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut carrier = Udp::open(socket.local_addr().unwrap(), true, None, 0).unwrap();
        let mut heard = Vec::new();
        carrier.transmit(0, &mut heard);
        let mut packet = [0; 4096];
        let (len, from) = socket.recv_from(&mut packet).unwrap();
        let hello = Hello::decode(&packet[HEADER_BYTES..len]).unwrap();
        let Hello { nonce, session, packet_bytes, window_bytes, uses_mailboxes } = hello;
        assert!(uses_mailboxes);
        socket.connect(from).unwrap();
        socket.set_nonblocking(true).unwrap();
        let welcome = Welcome { nonce, session: 1, packet_bytes, window_bytes: Remote::WINDOW_BYTES };
        socket.send(&welcome.packet(session)).unwrap();
        eventually("the welcome arrives", || {
            carrier.receive(0, &mut Idler::new(0), &mut heard);
            matches!(heard[..], [Heard::Welcome])
        });
        let limits = Limits::new(Remote::WINDOW_BYTES, u64::MAX);
        let session = Session::new(session, packet_bytes, window_bytes, limits, 0);
        (Box::new(carrier), Remote { socket, session, is_left: false })
    }

    fn take(&mut self, now_ns: u64, taken: &mut Vec<Packet>) {
        let mut packet = vec![0; 1 << 16];
        while let Ok(len) = self.socket.recv(&mut packet) {
            let header = Header::read(&packet[..len]).unwrap();
            let payload = packet[HEADER_BYTES..len].to_vec();
            match header.kind {
                PacketKind::Data | PacketKind::Control | PacketKind::Message => {
                    let deliver = |packet, _| taken.push(packet);
                    let receiver = &mut self.session.receiver;
                    let run = Arriving {
                        traffic: header.kind.traffic(),
                        first_seq: header.seq,
                        packets: 1,
                        longest_bytes: len,
                        last_bytes: len,
                    };
                    receiver.arrive(run, (header, payload), now_ns, deliver);
                    receiver.consumed_to(u64::MAX);
                    receiver.control_consumed();
                }
                PacketKind::Datagram => {
                    if self.session.receiver.take_datagrams(header.seq, 1, now_ns) == 1 {
                        taken.push((header, payload));
                    }
                }
                PacketKind::Ack => self.session.on_ack(&payload, now_ns, drop).unwrap(),
                PacketKind::Ping => self.session.receiver.ack_soon(),
                PacketKind::Close => self.is_left = true,
                // Over loopback no packet is longer than the first ones.
                PacketKind::Hello
                | PacketKind::Welcome
                | PacketKind::Reset
                | PacketKind::Probe
                | PacketKind::Probed
                | PacketKind::Part => panic!("{header:?} in a session"),
            }
        }
    }

    fn send(&mut self, packet: &Packet) -> bool {
        let has_room = self.session.sender.backlog_units() < 16;
        if has_room {
            let bytes = (HEADER_BYTES + packet.1.len()) as u64;
            let class = match packet.0.kind.traffic() {
                Traffic::Data => TrafficClass::Data(Origin::Stream(0)),
                Traffic::Control => IN_PLACE,
            };
            self.session.sender.enqueue(packet.clone(), 1, bytes, class, false);
        }
        has_room
    }

    fn transmit(&mut self, now_ns: u64) {
        self.session.on_timer(now_ns);
        let session = self.session.peer_session();
        while let Some(next) = self.session.sender.poll() {
            let (header, payload) = next.payload;
            let header = Header { session, seq: next.first_seq, ..*header };
            self.socket.send(&header.packet(payload).unwrap()).unwrap();
            self.session.sender.transmitted(now_ns);
        }
        while let Some(short) = self.session.poll_short(now_ns) {
            self.socket.send(short.bytes()).unwrap();
        }
    }

    fn hang_up(&mut self) {
        let close = Close { again: true, reason: "over".to_owned() };
        self.socket.send(&close.packet(self.session.peer_session())).unwrap();
    }

    fn is_left(&mut self) -> bool {
        self.take(0, &mut Vec::new());
        self.is_left
    }
}

/// A daemon that shares memory.
pub(crate) struct Local {
    host: HostInterface,
    client: ClientKey,
}

impl Daemon for Local {
    fn connect() -> (Box<dyn Carrier>, Local) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let addr = AttachAddr::Abstract(format!("crossdock-conformance-{}-{count}", std::process::id()));
        let listener = AttachListener::bind(&addr, false).unwrap();
        let request = AttachRequest { uses_mailboxes: false };
        let attach =
            std::thread::spawn(move || Memory::attach(&[addr], None, request, Duration::from_secs(20)).unwrap());
        let mut asker = None;
        eventually("somebody attaches", || {
            asker = listener.accept().unwrap();
            asker.is_some()
        });
        let (peer, socket) = asker.unwrap();
        let mut said = None;
        eventually("it says what it will use", || {
            said = AttachRequest::receive(socket.as_fd()).unwrap();
            said.is_some()
        });
        assert_eq!(said, Some(request));
        let bell = Arc::new(DoorbellPage::new().unwrap());
        let domain = Arc::new(DomainSegments::new("here", 16 << 20, 16 << 20, HugePages::None).unwrap());
        let (prepared, reply) = Prepared::new(peer, socket, &domain, &bell).unwrap();
        let mut host = HostInterface::new(HostConfig::default(), bell).unwrap();
        let client = host.admit(prepared, 0).unwrap();
        reply.send(client).unwrap();
        host.end_turn();
        (Box::new(attach.join().unwrap()), Local { host, client })
    }

    fn take(&mut self, _: u64, taken: &mut Vec<Packet>) {
        while let Some(arrival) = self.host.poll() {
            let Arrival::Session { message, .. } = arrival else { panic!("{arrival:?}") };
            let mut packet = vec![0; message.len()];
            assert!(self.host.read(&message, 0, &mut packet));
            self.host.free(message);
            taken.push((Header::read(&packet).unwrap(), packet[HEADER_BYTES..].to_vec()));
        }
        self.host.end_turn();
    }

    fn send(&mut self, (header, payload): &Packet) -> bool {
        let packet = header.packet(payload).unwrap();
        let Ok(mut draft) = self.host.begin_send(self.client, packet.len()) else { return false };
        draft.copy_from_slice(&packet);
        self.host.send(self.client, draft.finish(packet.len()));
        true
    }

    fn transmit(&mut self, _: u64) {
        self.host.end_turn();
    }

    fn hang_up(&mut self) {
        assert!(self.host.detach(self.client));
    }

    fn is_left(&mut self) -> bool {
        let socket = self.host.watched(self.client).unwrap().socket.try_clone().unwrap();
        let mut socket = UnixStream::from(socket);
        socket.set_nonblocking(true).unwrap();
        socket.read(&mut [0; 64]).is_ok_and(|bytes| bytes == 0)
    }
}

/// Control that overtakes nothing.
const IN_PLACE: TrafficClass = TrafficClass::Exchange(Follows::Everything);

fn in_place(payload: &[u8]) -> Outgoing {
    Message::control(payload.to_vec(), IN_PLACE)
}

/// Looks until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within 20 s");
        std::thread::yield_now();
    }
}

/// A carrier and its other end.
struct Pair<D> {
    carrier: Box<dyn Carrier>,
    daemon: D,
    now_ns: u64,
    taken: Vec<Packet>,
    heard: Vec<Heard>,
}

impl<D: Daemon> Pair<D> {
    fn new() -> Pair<D> {
        let (carrier, daemon) = D::connect();
        Pair { carrier, daemon, now_ns: 0, taken: Vec::new(), heard: Vec::new() }
    }

    /// One turn of the client alone.
    fn turn(&mut self) {
        self.now_ns += 100_000;
        self.carrier.receive(self.now_ns, &mut Idler::new(0), &mut self.heard);
        self.carrier.on_timer(self.now_ns, &mut self.heard);
        self.carrier.transmit(self.now_ns, &mut self.heard);
    }

    /// One turn of both.
    fn turn_both(&mut self) {
        self.turn();
        self.daemon.take(self.now_ns, &mut self.taken);
        self.daemon.transmit(self.now_ns);
    }

    /// Fills a packet with the number, `count` times; `None` while there is no room for one.
    fn packet_of(&mut self, number: u64, count: usize) -> Option<Outgoing> {
        let mut packet = if self.carrier.has_room() { self.carrier.begin_packet() } else { None }?;
        (0..count).for_each(|_| assert!(packet.push(&number.to_le_bytes())));
        Some(Outgoing::Records { packet, stream: 7, format: 77 })
    }

    /// The packets that arrived at the client: kind, stream, format, and each packet's payload; it is consumed.
    fn arrived(&mut self) -> Vec<(PacketKind, u32, u64, Vec<u8>)> {
        let mut found = Vec::new();
        for heard in self.heard.drain(..) {
            let Heard::Packets(arrived) = heard else { panic!("{heard:?}") };
            let Header { kind, stream, format, .. } = arrived.header;
            found.extend(arrived.payloads().map(|payload| (kind, stream, format, payload.to_vec())));
            let Arrived { data_end, .. } = arrived;
            self.carrier.consumed_to(data_end);
            self.carrier.control_consumed();
        }
        found
    }
}

/// The numbers in payloads, in order.
fn numbers<'a>(payloads: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u64> {
    let words = payloads.into_iter().flat_map(|payload| payload.chunks_exact(8));
    words.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn everything_sent_is_taken_once_and_in_order<D: Daemon>() {
    const UNITS: u64 = 600;
    let mut pair = Pair::<D>::new();
    let mut waiting: VecDeque<u64> = (0..UNITS).collect();
    eventually("all is taken and acknowledged", || {
        while let Some(&number) = waiting.front() {
            let unit = match number % 3 {
                // Of many lengths: the longest takes several packets where packets are short.
                0 => match pair.packet_of(number, 1 + (number as usize * 7) % 1000) {
                    Some(unit) => unit,
                    None => break,
                },
                1 => in_place(&number.to_le_bytes()),
                _ => Message::mailbox(number as u16, number.to_le_bytes().to_vec()),
            };
            if pair.carrier.send(unit).is_err() {
                break;
            }
            waiting.pop_front();
        }
        pair.turn_both();
        waiting.is_empty() && pair.carrier.unacknowledged() == 0
    });
    pair.daemon.take(pair.now_ns, &mut pair.taken);
    let mut expected = Vec::new();
    for number in 0..UNITS {
        let count = if number % 3 == 0 { 1 + (number as usize * 7) % 1000 } else { 1 };
        expected.extend(std::iter::repeat_n(number, count));
    }
    assert_eq!(numbers(pair.taken.iter().map(|(_, payload)| payload)), expected);
    for (header, payload) in &pair.taken {
        let number = numbers([payload])[0];
        let kind = [PacketKind::Data, PacketKind::Control, PacketKind::Message][(number % 3) as usize];
        let (stream, format) = [(7, 77), (0, 0), (number as u32, 0)][(number % 3) as usize];
        assert_eq!((header.kind, header.stream, header.format), (kind, stream, format));
        assert_eq!(usize::from(header.records), if kind == PacketKind::Data { payload.len() / 8 } else { 0 });
    }
    assert!(pair.heard.is_empty(), "{:?}", pair.heard);
}

/// Joins what was taken.
fn joined(taken: &[Packet]) -> Vec<Packet> {
    let mut joiners = [Joiner::default(), Joiner::default()];
    let join = |(header, payload): &Packet| {
        let joiner = &mut joiners[usize::from(header.kind == PacketKind::Control)];
        let joined = joiner.take(header.piece, payload, 1 << 20).unwrap();
        joined.map(|joined| (*header, joined.to_vec()))
    };
    taken.iter().filter_map(join).collect()
}

fn messages_of_any_length_are_taken_whole_and_in_order<D: Daemon>() {
    const MESSAGES: u64 = 40;
    let mut pair = Pair::<D>::new();
    let message = |number: u64| number.to_le_bytes().repeat(1 + (number as usize * 3571) % 30_000);
    let mut waiting: VecDeque<Outgoing> = (0..MESSAGES)
        .map(|number| match number % 3 {
            0 => Message::record(message(number), 7, 77),
            1 => Message::control(message(number), IN_PLACE),
            _ => Message::mailbox(number as u16, message(number)),
        })
        .collect();
    eventually("all is taken and acknowledged", || {
        while let Some(unit) = waiting.pop_front() {
            if let Err(unit) = pair.carrier.send(unit) {
                waiting.push_front(unit);
                break;
            }
        }
        pair.turn_both();
        waiting.is_empty() && pair.carrier.unacknowledged() == 0
    });
    pair.daemon.take(pair.now_ns, &mut pair.taken);
    let taken = joined(&pair.taken);
    assert_eq!(taken.len() as u64, MESSAGES);
    for (number, (header, payload)) in (0..).zip(&taken) {
        let kind = [PacketKind::Data, PacketKind::Control, PacketKind::Message][(number % 3) as usize];
        assert_eq!((header.kind, payload), (kind, &message(number)));
    }
    assert!(pair.heard.is_empty(), "{:?}", pair.heard);
}

fn a_lost_session_leaves_a_record_whole_whose_pieces_were_taken<D: Daemon>() {
    let mut pair = Pair::<D>::new();
    let record = |number: u64| number.to_le_bytes().repeat(40_000);
    assert!(pair.carrier.send(Message::record(record(1), 7, 77)).is_ok());
    eventually("the first is taken", || {
        pair.turn_both();
        joined(&pair.taken).len() == 1 && pair.carrier.unacknowledged() == 0
    });
    let before = pair.taken.len();
    let second = pair.carrier.send(Message::record(record(2), 7, 77));
    let small = pair.packet_of(3, 1).map(|unit| pair.carrier.send(unit));
    eventually("a piece of the second is taken", || {
        pair.turn();
        pair.daemon.take(pair.now_ns, &mut pair.taken);
        pair.taken.len() > before
    });
    let was_taken = joined(&pair.taken).len() > 1;
    let unsent: Vec<Vec<u8>> = pair.carrier.lose().into_iter().map(|unsent| unsent.records).collect();
    // It is left over whole or not at all; what no carrier took stays with its link.
    let mut expected: Vec<Vec<u8>> = Vec::new();
    expected.extend((second.is_ok() && !unsent.is_empty() && unsent[0].len() > 8).then(|| record(2)));
    expected.extend(
        (small.is_some() && unsent.last().is_some_and(|last| last.len() == 8)).then(|| record(3)[..8].to_vec()),
    );
    assert_eq!(unsent, expected);
    assert!(was_taken || second.is_err() || unsent.first() == Some(&record(2)), "it is lost");
}

fn everything_that_the_daemon_sends_is_heard_once_and_in_order<D: Daemon>() {
    // Many more than it may send ahead of what is consumed.
    const PACKETS: u64 = 3000;
    let packet = |number: u64| {
        let kind = [PacketKind::Data, PacketKind::Control, PacketKind::Message][(number % 3) as usize];
        let header = Header { stream: number as u32, format: number * 5, ..Header::new(kind, 0) };
        (header, number.to_le_bytes().repeat(1 + (number % 100) as usize))
    };
    let mut pair = Pair::<D>::new();
    let (mut sent, mut found) = (0, Vec::new());
    eventually("all is heard", || {
        while sent < PACKETS && pair.daemon.send(&packet(sent)) {
            sent += 1;
        }
        pair.turn_both();
        found.extend(pair.arrived());
        found.len() as u64 >= PACKETS
    });
    for (number, found) in (0..PACKETS).zip(&found) {
        let (header, payload) = packet(number);
        assert_eq!(found, &(header.kind, header.stream, header.format, payload));
    }
    assert_eq!(found.len() as u64, PACKETS);
}

fn a_daemon_that_takes_nothing_bounds_what_is_sent<D: Daemon>() {
    let mut pair = Pair::<D>::new();
    let mut sent = 0;
    while let Some(unit) = pair.packet_of(sent, 1000) {
        assert!(pair.carrier.send(unit).is_ok(), "a carrier takes the packets that it began");
        pair.turn();
        sent += 1;
        assert!(sent < 10_000, "without a bound");
    }
    assert!(sent > 1);
    eventually("there is room again", || {
        pair.turn_both();
        pair.packet_of(sent, 1).is_some()
    });
    eventually("all is acknowledged", || {
        pair.turn_both();
        pair.carrier.unacknowledged() == 0
    });
    pair.daemon.take(pair.now_ns, &mut pair.taken);
    let expected: Vec<u64> = (0..sent).flat_map(|number| std::iter::repeat_n(number, 1000)).collect();
    assert_eq!(numbers(pair.taken.iter().map(|(_, payload)| payload)), expected);
}

fn a_lost_session_leaves_the_records_that_the_daemon_did_not_take<D: Daemon>() {
    let mut pair = Pair::<D>::new();
    let unit = pair.packet_of(1, 100).unwrap();
    assert!(pair.carrier.send(unit).is_ok());
    eventually("the first are taken", || {
        pair.turn_both();
        pair.taken.len() == 1 && pair.carrier.unacknowledged() == 0
    });
    for number in 2..5 {
        let unit = pair.packet_of(number, 1000).unwrap();
        assert!(pair.carrier.send(unit).is_ok());
        assert!(pair.carrier.send(in_place(b"not for another session")).is_ok());
        pair.turn();
    }
    let unsent = pair.carrier.lose();
    assert!(unsent.iter().all(|unsent| (unsent.stream, unsent.format, unsent.done) == (7, 77, 0)));
    let expected: Vec<u64> = (2..5).flat_map(|number| std::iter::repeat_n(number, 1000)).collect();
    assert_eq!(numbers(unsent.iter().map(|unsent| &unsent.records)), expected);
    assert!(pair.carrier.lose().is_empty(), "they are handed over once");
}

fn a_thread_that_sleeps_is_woken_by_what_arrives<D: Daemon>() {
    let mut pair = Pair::<D>::new();
    let mut poller = Poller::new().unwrap();
    for number in 0..10_u64 {
        // The packets that have arrived so far may wake nobody.
        pair.turn_both();
        pair.carrier.arm();
        pair.turn_both();
        poller.add(pair.carrier.descriptor().unwrap(), 3).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty(), "nothing is there");
        assert!(pair.daemon.send(&(Header::new(PacketKind::Message, 0), number.to_le_bytes().to_vec())));
        pair.daemon.transmit(pair.now_ns);
        assert_eq!(poller.wait(Some(Duration::from_secs(20))).unwrap(), [3]);
        poller.remove(pair.carrier.descriptor().unwrap()).unwrap();
        eventually("it is heard", || {
            pair.turn_both();
            pair.arrived() == [(PacketKind::Message, 0, 0, number.to_le_bytes().to_vec())]
        });
    }
}

fn the_end_is_heard_after_all_that_came_before_it<D: Daemon>() {
    let mut pair = Pair::<D>::new();
    for number in 0..5_u64 {
        assert!(pair.daemon.send(&(Header::new(PacketKind::Message, 0), number.to_le_bytes().to_vec())));
    }
    pair.daemon.transmit(pair.now_ns);
    pair.daemon.hang_up();
    eventually("the end is heard", || {
        pair.turn();
        matches!(pair.heard.last(), Some(Heard::Close(_)))
    });
    let Some(Heard::Close(close)) = pair.heard.pop() else { panic!() };
    assert!(!close.reason.is_empty());
    assert_eq!(numbers(pair.arrived().iter().map(|(_, _, _, payload)| payload)), [0, 1, 2, 3, 4]);
}

fn the_daemon_learns_that_its_client_is_done<D: Daemon>() {
    let mut pair = Pair::<D>::new();
    pair.turn_both();
    assert!(!pair.daemon.is_left());
    let Pair { mut carrier, mut daemon, .. } = pair;
    carrier.close();
    drop(carrier);
    eventually("it is notified", || daemon.is_left());
}

macro_rules! conforms {
    ($($check:ident),* $(,)?) => {
        mod udp {
            $(#[test] fn $check() { super::$check::<super::Remote>() })*
        }
        mod memory {
            $(#[test] fn $check() { super::$check::<super::Local>() })*
        }
    };
}

conforms!(
    everything_sent_is_taken_once_and_in_order,
    messages_of_any_length_are_taken_whole_and_in_order,
    a_lost_session_leaves_a_record_whole_whose_pieces_were_taken,
    everything_that_the_daemon_sends_is_heard_once_and_in_order,
    a_daemon_that_takes_nothing_bounds_what_is_sent,
    a_lost_session_leaves_the_records_that_the_daemon_did_not_take,
    a_thread_that_sleeps_is_woken_by_what_arrives,
    the_end_is_heard_after_all_that_came_before_it,
    the_daemon_learns_that_its_client_is_done,
);
