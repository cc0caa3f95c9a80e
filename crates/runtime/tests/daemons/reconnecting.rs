//! A publisher whose sessions are lost again and again, with acknowledgements and records on their way: each record reaches the
//! subscriber once, whichever context the next session is at.

use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_nectarine::{Event, Publisher, Subscriber, Transport};
use crossdock_runtime::{ContextConfig, ContextHandle};
use crossdock_transport::handshake::Close;
use crossdock_transport::{Header, PacketKind};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a session is lost, and how many packets of records each of these brings to the daemon.
const LOST: u32 = 20;
const PACKETS: u64 = 8;
/// How often the relay looks whether the test is over.
const LOOK: Duration = Duration::from_millis(20);

fn socket(to: Option<SocketAddr>) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(LOOK)).unwrap();
    to.into_iter().for_each(|to| socket.connect(to).unwrap());
    socket
}

/// The next packet, and where it comes from; `None` once the test is over.
fn next(socket: &UdpSocket, over: &AtomicBool) -> Option<(Header, Vec<u8>, SocketAddr)> {
    let mut packet = vec![0; 65_536];
    while !over.load(Ordering::Relaxed) {
        match socket.recv_from(&mut packet) {
            Ok((len, from)) => return Some((Header::read(&packet[..len]).unwrap(), packet[..len].to_vec(), from)),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}"),
        }
    }
    None
}

/// The state that the relay's threads share.
struct Relay {
    /// Towards the publisher.
    front: UdpSocket,
    daemon: SocketAddr,
    over: AtomicBool,
    publisher: Mutex<Option<SocketAddr>>,
}

/// The path of one session to the daemon.
struct Path {
    relay: Arc<Relay>,
    up: UdpSocket,
    /// The publisher's number for its session.
    session: Mutex<u32>,
    /// Whether acks get lost on this path.
    is_deaf: AtomicBool,
}

impl Path {
    fn open(relay: &Arc<Relay>) -> (Arc<Path>, JoinHandle<()>) {
        let up = socket(Some(relay.daemon));
        let (session, is_deaf) = (Mutex::new(0), AtomicBool::new(false));
        let path = Arc::new(Path { relay: Arc::clone(relay), up, session, is_deaf });
        let back = Arc::clone(&path);
        (path, std::thread::spawn(move || back.pass_back()))
    }

    /// Passes on what the daemon sends, as long as the test goes on.
    fn pass_back(&self) {
        while let Some((header, packet, _)) = next(&self.up, &self.relay.over) {
            *self.session.lock().unwrap() = header.session;
            if header.kind == PacketKind::Ack && self.is_deaf.load(Ordering::Relaxed) {
                continue;
            }
            let to = self.relay.publisher.lock().unwrap().unwrap();
            self.relay.front.send_to(&packet, to).unwrap();
        }
    }

    /// Has the publisher lose the session.
    fn lose(&self) {
        let close = Close { again: true, reason: "a test".to_owned() }.packet(*self.session.lock().unwrap());
        let to = self.relay.publisher.lock().unwrap().unwrap();
        self.relay.front.send_to(&close, to).unwrap();
    }
}

/// Passes on what the publisher sends. Of each of the first sessions the daemon gets some packets of records; the acks of the
/// later ones are lost, and then the session is. The packets sent on top arrive when the next session has begun.
fn pass_on(relay: &Arc<Relay>) -> u32 {
    let (mut path, thread) = Path::open(relay);
    let mut threads = vec![thread];
    let (mut lost, mut late) = (0, 0);
    // Packets of records of the session that stands, without those that are sent again, and the number of the next one.
    let (mut packets, mut next_seq) = (0, 0);
    let mut held: Vec<(Arc<Path>, Vec<u8>)> = Vec::new();
    // The daemon's number for the session that is lost.
    let mut old = None;
    while let Some((header, packet, from)) = next(&relay.front, &relay.over) {
        *relay.publisher.lock().unwrap() = Some(from);
        if header.kind == PacketKind::Probe {
            // Of longer packets fewer would be on the way than a session is to lose.
            continue;
        }
        if header.kind == PacketKind::Data && old == Some(header.session) {
            let before: &(Arc<Path>, Vec<u8>) = held.first().unwrap();
            held.push((Arc::clone(&before.0), packet));
            continue;
        }
        if header.kind == PacketKind::Data {
            for (path, packet) in held.drain(..) {
                path.up.send(&packet).unwrap();
                late += 1;
            }
            let is_new = header.seq >= next_seq;
            packets += u64::from(is_new);
            next_seq = next_seq.max(header.seq + 1);
            if lost < LOST && packets == PACKETS / 2 {
                path.is_deaf.store(true, Ordering::Relaxed);
            }
            if lost < LOST && packets == PACKETS && is_new {
                (packets, next_seq) = (0, 0);
                (lost, old) = (lost + 1, Some(header.session));
                held.push((Arc::clone(&path), packet));
                path.lose();
                let (next, thread) = Path::open(relay);
                path = next;
                threads.push(thread);
                continue;
            }
        }
        path.up.send(&packet).unwrap();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(lost, LOST);
    late
}

/// Passes on what the publisher sends, from one address after the other, as where a translator of addresses has forgotten it: the
/// daemon does not know its session at the next one.
fn pass_on_from_new_addresses(relay: &Arc<Relay>) -> u32 {
    let (mut path, thread) = Path::open(relay);
    let (mut threads, mut moved, mut packets, mut old) = (vec![thread], 0, 0, None);
    while let Some((header, packet, from)) = next(&relay.front, &relay.over) {
        *relay.publisher.lock().unwrap() = Some(from);
        if header.kind == PacketKind::Probe {
            continue;
        }
        packets += u64::from(header.kind == PacketKind::Data && old != Some(header.session));
        if moved < LOST && packets == PACKETS {
            (packets, moved, old) = (0, moved + 1, Some(header.session));
            let (next, thread) = Path::open(relay);
            path = next;
            threads.push(thread);
        }
        path.up.send(&packet).unwrap();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    moved
}

/// Has a publisher's packets passed on, and sees that all its records arrive once; what the relay has counted, and the daemon's
/// count of drops by reason.
fn arrive_once(pass_on: fn(&Arc<Relay>) -> u32) -> (u32, Vec<(String, u64)>) {
    let format = Format::parse_schema("a u64").unwrap();
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.platform.contexts.extend(crate::contexts::further());
    let context = ContextHandle::start(config).unwrap();
    let daemon = context.local_addr();
    let (over, publisher) = (AtomicBool::new(false), Mutex::new(None));
    let relay = Arc::new(Relay { front: socket(None), daemon, over, publisher });
    let address = relay.front.local_addr().unwrap().to_string();
    let passing = std::thread::spawn({
        let relay = Arc::clone(&relay);
        move || pass_on(&relay)
    });

    let publisher = Publisher::builder(address).transport(Transport::Udp).stream("A").format(&format);
    let mut publisher = publisher.connect().unwrap();
    let subscriber = Subscriber::builder(daemon.to_string()).transport(Transport::Udp).sql("SELECT * FROM A");
    let mut subscriber = subscriber.connect().unwrap();
    let publishing = std::thread::spawn(move || {
        for number in 0..400_000u64 {
            let mut row = RecordBuilder::new(&format);
            row.set(0, Value::Uint(number)).unwrap();
            publisher.publish(row.finish().unwrap()).unwrap();
        }
        publisher.finish().unwrap();
    });
    let mut came: Vec<u64> = Vec::new();
    while came.len() < 400_000 {
        if let Some(Event::Records(batch)) = subscriber.next_event(Some(Duration::from_secs(60))).unwrap() {
            came.extend(batch.iter().map(|record| match record.get(0) {
                Value::Uint(number) => number,
                other => panic!("{other:?}"),
            }));
        }
    }
    publishing.join().unwrap();
    came.sort_unstable();
    let twice = came.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!((twice, came.first(), came.last()), (0, Some(&0), Some(&399_999)));
    relay.over.store(true, Ordering::Relaxed);
    let counted = passing.join().unwrap();
    let dropped = context.context().unwrap().dropped;
    context.stop().unwrap();
    (counted, dropped)
}

#[test]
fn records_of_a_publisher_that_comes_back_arrive_once() {
    let (late, dropped) = arrive_once(pass_on);
    assert!(late >= LOST, "{late} packets arrived after their session was lost");
    let superseded = dropped.iter().find(|(reason, _)| reason == "record_superseded");
    assert!(superseded.is_some(), "{dropped:?}");
}

#[test]
fn records_of_a_publisher_whose_address_changes_arrive_once() {
    let (moved, dropped) = arrive_once(pass_on_from_new_addresses);
    assert_eq!(moved, LOST);
    let unknown = dropped.iter().find(|(reason, _)| reason == "unknown_session");
    assert!(unknown.is_some_and(|(_, packets)| *packets >= u64::from(LOST)), "{dropped:?}");
}
