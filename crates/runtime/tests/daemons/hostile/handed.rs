//! Packets that the kernel brings to another I/O context than that of their session, and sessions at several contexts that
//! announce a stream at once.

use super::raw::Raw;
use super::{announce, await_dropped, await_that, dropped, format};
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Event, Subscriber, Transport};
use crossdock_runtime::{ContextConfig, ContextHandle, ContextKind, ContextSpec};
use crossdock_transport::PacketKind;
use crossdock_transport::handshake::Close;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
/// The I/O contexts of these daemons, however many those of other tests have.
const CONTEXTS: usize = 3;

fn start() -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
    config.platform.contexts = vec![io; CONTEXTS - 1];
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    (context, addr)
}

/// The context that has a client's session.
fn context_of(context: &ContextHandle, raw: &Raw) -> String {
    let sessions = context.sessions().unwrap();
    sessions.into_iter().find(|session| session.id == raw.session).unwrap().context
}

/// The packets that the kernel has brought to each context.
fn packets_in(context: &ContextHandle) -> BTreeMap<String, u64> {
    context.io_contexts().unwrap().into_iter().map(|info| (info.name, info.packets_in)).collect()
}

/// Sends records with these numbers of a publisher, without waiting for anything.
fn send(raw: &mut Raw, (stream, format): (u32, &Format), publisher: u64, numbers: std::ops::Range<u64>) {
    let mut row = RecordBuilder::new(format);
    for number in numbers {
        row.clear();
        row.set(0, Value::Uint(publisher * 1000 + number)).unwrap();
        row.set(1, Value::Text(b"text")).unwrap();
        (2..format.fields().len()).for_each(|more| row.set(more, Value::Uint(0)).unwrap());
        raw.send(PacketKind::Data, stream, format.id().0, 1, row.finish().unwrap());
    }
}

/// Takes `count` records: their numbers by publisher, in the order in which they came.
fn take(subscriber: &mut Subscriber, count: usize) -> BTreeMap<u64, Vec<u64>> {
    let (mut taken, mut by_publisher) = (0, BTreeMap::<u64, Vec<u64>>::new());
    while taken < count {
        match subscriber.next_event(Some(PATIENCE)).unwrap().expect("a record within 20 s") {
            Event::Records(records) => records.iter().for_each(|record| match record.get(0) {
                Value::Uint(number) => {
                    by_publisher.entry(number / 1000).or_default().push(number % 1000);
                    taken += 1;
                }
                other => panic!("{other:?}"),
            }),
            Event::Dropped { records, reason, .. } => panic!("{records} were dropped: {reason}"),
            _ => {}
        }
    }
    by_publisher
}

/// Another socket at the daemon's port, which refuses the clients that the kernel brings to it. The kernel divides clients among the
/// sockets of a port by a hash and the number of sockets: once this one has gone, some of those that have sessions by then are
/// brought to another context than before.
struct Beside {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Beside {
    fn open(addr: SocketAddr) -> Beside {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        bind(&socket, &addr).unwrap();
        let (socket, is_over) = (UdpSocket::from(socket), Arc::new(AtomicBool::new(false)));
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let until = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let refusal = Close { again: false, reason: "another socket".to_owned() }.packet(77);
            let mut packet = [0; 2000];
            while !until.load(Ordering::Acquire) {
                if let Ok((_, from)) = socket.recv_from(&mut packet) {
                    socket.send_to(&refusal, from).unwrap();
                }
            }
        });
        Beside { is_over, thread }
    }

    fn close(self) {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().unwrap();
    }
}

/// The packets that the kernel has brought to each context, once all that these clients have sent are there. No others send any.
fn settled(context: &ContextHandle, clients: &[Raw]) -> BTreeMap<String, u64> {
    let sent: u64 = clients.iter().map(|raw| raw.packets).sum();
    await_that("all packets have come", || packets_in(context).values().sum::<u64>() == sent);
    packets_in(context)
}

#[test]
fn packets_that_the_kernel_brings_to_another_context_in_mid_session_are_handed_over() {
    const CLIENTS: usize = 48;
    let ((context, addr), format) = (start(), format());
    let beside = Beside::open(context.local_addr());
    let mut clients: Vec<Raw> = Vec::new();
    while clients.len() < CLIENTS {
        let mut raw = Raw::connect(&addr);
        if raw.greet_as(false).is_ok() {
            announce(&mut raw, 1, "A", &format);
            clients.push(raw);
        }
    }
    let mut subscriber = Subscriber::builder(&addr).transport(Transport::Shm).sql("SELECT * FROM A").connect().unwrap();
    let homes: Vec<String> = clients.iter().map(|raw| context_of(&context, raw)).collect();
    (0..).zip(&mut clients).for_each(|(number, raw)| send(raw, (1, &format), number, 0..4));
    // The packets before it may still be on their way where those behind it come to another context.
    beside.close();
    for (number, raw) in (0..).zip(&mut clients) {
        send(raw, (1, &format), number, 4..8);
        raw.confirm();
    }
    let mut moved = 0;
    for (at, home) in homes.iter().enumerate() {
        let before = settled(&context, &clients);
        clients[at].confirm();
        let after = settled(&context, &clients);
        let reached: Vec<&String> = after.keys().filter(|name| after[*name] > before[*name]).collect();
        assert_eq!(reached.len(), 1, "the kernel brings all packets of a client to one context");
        moved += usize::from(reached[0] != home);
        assert_eq!(context_of(&context, &clients[at]), *home, "its session stays where it is");
    }
    // About a third of them.
    assert!((1..CLIENTS).contains(&moved), "{moved} of {CLIENTS} clients are brought to another context than before");
    let all = take(&mut subscriber, CLIENTS * 8);
    assert!(all.values().all(|numbers| numbers.iter().copied().eq(0..8)) && all.len() == CLIENTS, "{all:?}");
    assert_eq!(context.streams().unwrap()[0].records_in, CLIENTS as u64 * 8);
    for reason in ["packet_not_handed_over", "packet_duplicate", "unknown_session"] {
        assert_eq!(dropped(&context, reason), 0, "{reason}");
    }
    // From another address they are not the session's, whichever context they come to: the client is to begin another.
    let mut stranger = Raw::connect(&addr);
    stranger.session = clients[0].session;
    stranger.send(PacketKind::Ping, 0, 0, 0, b"");
    assert_eq!(stranger.receive(|kind| kind == PacketKind::Reset).0.session, clients[0].session);
    await_dropped(&context, "unknown_session", 1);
    context.stop().unwrap();
}

#[test]
fn sessions_with_mailboxes_are_at_the_home_context_wherever_the_kernel_brings_them() {
    const CLIENTS: usize = 24;
    let ((context, addr), format) = (start(), format());
    let mut clients: Vec<Raw> = (0..CLIENTS).map(|_| Raw::connect(&addr)).collect();
    for raw in &mut clients {
        raw.greet().unwrap();
        announce(raw, 1, "A", &format);
        assert_eq!(context_of(&context, raw), "c-core-0");
    }
    let mut subscriber = Subscriber::builder(&addr).transport(Transport::Shm).sql("SELECT * FROM A").connect().unwrap();
    for (number, raw) in (0..).zip(&mut clients) {
        send(raw, (1, &format), number, 0..8);
        raw.confirm();
    }
    let all = take(&mut subscriber, CLIENTS * 8);
    assert!(all.values().all(|numbers| numbers.iter().copied().eq(0..8)) && all.len() == CLIENTS, "{all:?}");
    // About two thirds of their packets were handed over.
    let reached = settled(&context, &clients).into_values().filter(|packets| *packets > 0).count();
    assert!((2..=CONTEXTS).contains(&reached), "{reached}");
    assert_eq!(dropped(&context, "packet_not_handed_over"), 0);
    context.stop().unwrap();
}

/// As many clients at each context.
fn at_each_context(context: &ContextHandle, addr: &str, each: usize) -> Vec<Raw> {
    let (mut clients, mut counts) = (Vec::new(), BTreeMap::<String, usize>::new());
    for _ in 0..500 {
        let mut raw = Raw::connect(addr);
        raw.greet_as(false).unwrap();
        let count = counts.entry(context_of(context, &raw)).or_default();
        if *count < each {
            *count += 1;
            clients.push(raw);
        }
        if clients.len() == CONTEXTS * each {
            return clients;
        }
    }
    panic!("the kernel brings no clients to some contexts: {counts:?}");
}

/// Subscribers of a stream, at least one at each context.
fn subscribers(context: &ContextHandle, addr: &str, stream: &str) -> Vec<Subscriber> {
    let contexts = || {
        let all = context.subscriptions().unwrap().into_iter();
        all.filter(|one| one.stream == stream).map(|one| one.context).collect::<BTreeSet<String>>()
    };
    let mut subscribers = Vec::new();
    while contexts().len() < CONTEXTS {
        assert!(subscribers.len() < 100, "{:?}", contexts());
        let subscriber = Subscriber::builder(addr).transport(Transport::Udp).sql(format!("SELECT n FROM {stream}"));
        subscribers.push(subscriber.connect().unwrap());
    }
    subscribers
}

#[test]
fn sessions_at_several_contexts_that_announce_a_stream_at_once_announce_one() {
    let (context, addr) = start();
    let wider = [("n", FieldType::U64), ("text", FieldType::String), ("more", FieldType::U32)];
    let wider = Format::natural(wider.map(|(name, kind)| FieldSpec::new(name, kind))).unwrap();
    let formats = [format(), wider];
    let mut clients = at_each_context(&context, &addr, 4);
    let at_once = Barrier::new(clients.len());
    for round in 1..=5 {
        let name = format!("S{round}");
        std::thread::scope(|scope| {
            for (at, raw) in clients.iter_mut().enumerate() {
                let (at_once, name, format) = (&at_once, &name, &formats[at % 2]);
                scope.spawn(move || {
                    at_once.wait();
                    announce(raw, round, name, format);
                });
            }
        });
        let streams = context.streams().unwrap().into_iter().filter(|stream| stream.name == name).collect::<Vec<_>>();
        let [ref stream] = streams[..] else { panic!("one stream of a name: {streams:?}") };
        assert_eq!((stream.publishers as usize, stream.formats.len()), (clients.len(), 2), "{stream:?}");
        let mut subscribers = subscribers(&context, &addr, &name);
        std::thread::scope(|scope| {
            for ((at, raw), number) in clients.iter_mut().enumerate().zip(0..) {
                let (at_once, format) = (&at_once, &formats[at % 2]);
                scope.spawn(move || {
                    at_once.wait();
                    send(raw, (round, format), number, 0..8);
                    raw.confirm();
                });
            }
        });
        for subscriber in &mut subscribers {
            let all = take(subscriber, clients.len() * 8);
            let is_whole = |numbers: &Vec<u64>| numbers.iter().copied().eq(0..8);
            assert!(all.len() == clients.len() && all.values().all(is_whole), "{all:?}");
        }
        // The home context has the versions in the same order as the one that had both first.
        let known = context.formats().unwrap();
        for (id, version) in stream.formats.iter().zip(1..) {
            let known = known.iter().find(|info| info.id == *id).unwrap();
            let at = known.streams.iter().position(|stream| *stream == name).unwrap();
            assert_eq!(known.versions[at], version, "{known:?}");
        }
    }
    context.stop().unwrap();
}
