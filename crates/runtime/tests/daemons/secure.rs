//! Secure sessions: known keys deliver, unknown ones get nothing, and whoever has none is refused and counted.

use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Error, Event, MailboxOptions, Node, PrivateKey, Publisher, Subscriber, Transport};
use crossdock_runtime::{ContextConfig, ContextHandle, NodeAddress, SecurityConfig};
use crossdock_transport::secure::{Authorized, AuthorizedKeys, Initiator, KEY_BYTES, RANDOM_BYTES};
use crossdock_transport::{HEADER_BYTES, Header, Hello, PacketKind, Welcome};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn private(first: u8) -> PrivateKey {
    PrivateKey::from_random([first; KEY_BYTES])
}

const DAEMON: u8 = 1;
const KNOWN: u8 = 2;
const STRANGER: u8 = 3;

fn authorized(keys: &[u8]) -> AuthorizedKeys {
    keys.iter().map(|first| Authorized { key: private(*first).public(), name: "a test".into() }).collect()
}

/// A daemon on this machine that trusts nobody without a key.
fn start() -> (ContextHandle, String) {
    start_with(DAEMON, Vec::new())
}

/// The same with that key, which knows other nodes.
fn start_with(key: u8, nodes: Vec<NodeAddress>) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.platform.contexts.extend(crate::contexts::further());
    let authorized = Arc::new(authorized(&[KNOWN]));
    config.security = SecurityConfig { key: Some(private(key)), authorized, trusted: Vec::new() };
    config.nodes = nodes;
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    (context, addr)
}

pub(super) fn format() -> Format {
    Format::natural([FieldSpec::new("n", FieldType::U64), FieldSpec::new("text", FieldType::String)]).unwrap()
}

fn publisher(addr: &str, key: u8) -> Result<Publisher, Error> {
    let builder = Publisher::builder(addr).transport(Transport::Udp).keys(private(key), private(DAEMON).public());
    builder.stream("A").format(&format()).connect()
}

fn subscriber(addr: &str, sql: &str) -> Subscriber {
    let builder = Subscriber::builder(addr).transport(Transport::Udp).keys(private(KNOWN), private(DAEMON).public());
    builder.sql(sql).connect().unwrap()
}

pub(super) fn publish(publisher: &mut Publisher, numbers: std::ops::Range<u64>, text: &str) {
    let mut row = RecordBuilder::new(&format());
    for number in numbers {
        row.set(0, Value::Uint(number)).unwrap();
        row.set(1, Value::Text(text.as_bytes())).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
    }
    publisher.flush().unwrap();
}

/// The next `count` numbers.
pub(super) fn receive(subscriber: &mut Subscriber, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        match subscriber.next_event(Some(PATIENCE)).unwrap() {
            Some(Event::Records(records)) => {
                numbers.extend(records.iter().map(|record| match record.get(0) {
                    Value::Uint(number) => number,
                    other => panic!("{other:?}"),
                }));
            }
            Some(_) => {}
            None => panic!("{} records of {count} within 20 s", numbers.len()),
        }
    }
    numbers
}

fn dropped(context: &ContextHandle, reason: &str) -> u64 {
    let info = context.context().unwrap();
    info.dropped.iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
}

fn await_dropped(context: &ContextHandle, reason: &str, count: u64) {
    let until = Instant::now() + PATIENCE;
    while dropped(context, reason) < count {
        assert!(Instant::now() < until, "{reason}: {:?}", context.context().unwrap().dropped);
        std::thread::yield_now();
    }
}

#[test]
fn clients_with_known_keys_publish_and_subscribe() {
    let (context, addr) = start();
    let mut publisher = publisher(&addr, KNOWN).unwrap();
    let mut all = subscriber(&addr, "SELECT * FROM A");
    let mut half = subscriber(&addr, "SELECT n, text FROM A WHERE n >= 10000");
    publish(&mut publisher, 0..20_000, "some text that makes a record longer");
    assert_eq!(receive(&mut all, 20_000), (0..20_000).collect::<Vec<_>>());
    assert_eq!(receive(&mut half, 10_000), (10_000..20_000).collect::<Vec<_>>());
    // Longer than a packet, and as long as one may just be.
    for len in [1400, 1500, 8192, 65_000, 65_400, 65_424, 65_440, 70_000, 1 << 20] {
        publish(&mut publisher, len..len + 1, &"x".repeat(len as usize));
        assert_eq!(
            (receive(&mut all, 1), receive(&mut half, usize::from(len >= 10_000))),
            (vec![len], { if len >= 10_000 { vec![len] } else { Vec::new() } })
        );
    }
    publisher.finish().unwrap();
    let info = context.context().unwrap();
    let refused = |name: &str| name.starts_with("envelope") || name.starts_with("handshake");
    assert_eq!(info.dropped.iter().find(|(name, _)| refused(name)), None);
}

#[test]
fn each_named_node_may_have_a_key_of_its_own() {
    let (_there, far) = start_with(9, Vec::new());
    let node = |name: &str, key: Option<u8>| {
        let (name, address) = (name.to_owned(), far.parse().unwrap());
        NodeAddress { name, address, key: key.map(|key| private(key).public()) }
    };
    let (_here, addr) = start_with(DAEMON, vec![node("there", Some(9)), node("unsaid", None), node("other", Some(8))]);
    let builder = Node::builder(&addr).transport(Transport::Udp).keys(private(KNOWN), private(DAEMON).public());
    let here = builder.connect_timeout(Duration::from_millis(700)).connect().unwrap();
    let there = here.named("there").unwrap();
    there.create_mailbox("m", MailboxOptions::default()).unwrap();
    there.writer("m").unwrap().put(b"x").unwrap();
    for name in ["unsaid", "other"] {
        let error = here.named(name).map(drop).unwrap_err();
        assert!(error.to_string().contains("is its public key the one given here"), "{name}: {error}");
    }
}

#[test]
fn mailboxes_are_reached_by_a_known_key() {
    let (_context, addr) = start();
    let builder = Node::builder(&addr).transport(Transport::Udp).keys(private(KNOWN), private(DAEMON).public());
    let node = builder.connect().unwrap();
    node.create_mailbox("a", MailboxOptions::default()).unwrap();
    let (mut writer, mut reader) = (node.writer("a").unwrap(), node.reader("a").unwrap());
    for number in 0..500u32 {
        writer.put(&number.to_le_bytes()).unwrap();
        let message = reader.begin_get_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(message.to_vec(), number.to_le_bytes());
        reader.end_get(message);
    }
}

#[test]
fn an_unknown_key_is_refused_and_counted_and_learns_only_that() {
    let (context, addr) = start();
    match publisher(&addr, STRANGER) {
        Err(Error::Refused(why)) => {
            let key = private(STRANGER).public().to_string();
            assert!(why.contains("has not authorised") && why.contains(&key), "{why}");
        }
        other => panic!("{:?}", other.err()),
    }
    await_dropped(&context, "handshake_unknown_key", 1);
    assert_eq!(context.context().unwrap().sessions, 0);
    // A daemon that does not have the key that the client expects gets nothing from it.
    let builder = Publisher::builder(&addr).transport(Transport::Udp).keys(private(KNOWN), private(99).public());
    let builder = builder.connect_timeout(Duration::from_millis(300)).stream("A").format(&format());
    match builder.connect() {
        Err(Error::NoDaemon { reason, .. }) => assert!(reason.contains("secure handshake"), "{reason}"),
        other => panic!("{:?}", other.err()),
    }
    await_dropped(&context, "handshake_invalid", 1);
    assert_eq!(context.context().unwrap().sessions, 0);
}

#[test]
fn a_client_without_keys_is_refused_and_counted() {
    let (context, addr) = start();
    let builder = Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format());
    match builder.connect() {
        Err(Error::Refused(why)) => assert!(why.contains("only in secure sessions"), "{why}"),
        other => panic!("{:?}", other.err()),
    }
    await_dropped(&context, "packet_unprotected", 1);
    // Not even a hello of another version learns the daemon's.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(&addr).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let hello = Hello { nonce: 1, session: 77, packet_bytes: 1472, window_bytes: 1 << 20, uses_mailboxes: false };
    let mut packet = hello.packet();
    packet[0] += 1;
    socket.send(&packet).unwrap();
    let mut answer = [0; 2000];
    let len = socket.recv(&mut answer).unwrap();
    assert_eq!((len, answer[0], answer[2]), (16, 0xc5, 2), "a refusal, of a packet in no envelope");
    assert_eq!(answer[3..len], [0; 13]);
    socket.send(&packet[..HEADER_BYTES]).unwrap();
    socket.send(&Header::new(PacketKind::Ping, 5).packet(b"").unwrap()).unwrap();
    await_dropped(&context, "packet_unprotected", 4);
    let names: Vec<String> = context.context().unwrap().dropped.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["packet_unprotected"], "nothing of it came to the header check");
}

#[test]
fn a_key_that_is_withdrawn_ends_its_sessions() {
    let (context, addr) = start();
    let mut publisher = publisher(&addr, KNOWN).unwrap();
    let mut subscriber = subscriber(&addr, "SELECT * FROM A");
    publish(&mut publisher, 0..1, "x");
    assert_eq!(receive(&mut subscriber, 1), [0]);
    assert_eq!(context.context().unwrap().sessions, 2);
    context.authorize(authorized(&[STRANGER])).unwrap();
    assert_eq!(context.context().unwrap().sessions, 0);
    assert!(self::publisher(&addr, STRANGER).is_ok());
    context.authorize(authorized(&[KNOWN])).unwrap();
    // Both come back by themselves.
    let until = Instant::now() + PATIENCE;
    while context.context().unwrap().sessions < 2 || context.subscriptions().unwrap().is_empty() {
        assert!(Instant::now() < until, "not back within 20 s");
        std::thread::yield_now();
    }
    publish(&mut publisher, 1..2, "y");
    assert_eq!(receive(&mut subscriber, 1), [1]);
}

#[test]
fn a_client_makes_new_keys_with_a_daemon_that_was_restarted() {
    let (context, addr) = start();
    let mut publisher = publisher(&addr, KNOWN).unwrap();
    publish(&mut publisher, 0..10, "before");
    context.stop().unwrap();
    drop(context);
    let authorized = Arc::new(authorized(&[KNOWN]));
    let security = SecurityConfig { key: Some(private(DAEMON)), authorized, trusted: Vec::new() };
    let mut config = ContextConfig { listen: addr.parse().unwrap(), security, ..ContextConfig::default() };
    config.platform.contexts.extend(crate::contexts::further());
    let context = ContextHandle::start(config).unwrap();
    publish(&mut publisher, 10..20, "after");
    assert_eq!(publisher.finish().unwrap().records, 20);
    assert!(context.context().unwrap().records_in >= 10);
}

#[test]
fn a_client_may_have_keys_also_where_it_needs_none() {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.platform.contexts.extend(crate::contexts::further());
    config.security.key = Some(private(DAEMON));
    config.security.authorized = Arc::new(authorized(&[KNOWN]));
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    let mut publisher = publisher(&addr, KNOWN).unwrap();
    let mut plain = Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM A").connect().unwrap();
    let mut secure = subscriber(&addr, "SELECT * FROM A");
    publish(&mut publisher, 0..1000, "both");
    assert_eq!(receive(&mut plain, 1000), receive(&mut secure, 1000));
}

#[test]
fn a_daemon_without_a_key_listens_beyond_this_machine_only_where_a_network_is_trusted() {
    let config = |change: fn(&mut SecurityConfig)| {
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut config = ContextConfig { listen, ..ContextConfig::default() };
        change(&mut config.security);
        config
    };
    let refused = ContextHandle::start(config(|_| {})).unwrap_err().to_string();
    for words in ["0.0.0.0:", "beyond this machine", "crossdock keygen", "[security]", "`trusted`"] {
        assert!(refused.contains(words), "{refused}");
    }
    ContextHandle::start(config(|security| security.key = Some(private(DAEMON)))).unwrap();
    ContextHandle::start(config(|security| security.trusted = vec!["10.0.0.0/8".parse().unwrap()])).unwrap();
}

/// A socket that speaks with the daemon by hand.
struct Raw(UdpSocket);

impl Raw {
    fn connect(addr: &str) -> Raw {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(addr).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Raw(socket)
    }

    fn receive(&self, initiator: &mut Initiator) -> Vec<u8> {
        let mut packet = vec![0; 2048];
        let len = self.0.recv(&mut packet).unwrap();
        let heard = initiator.open_frame(&mut packet[..len], len, 0);
        packet.truncate(heard.len);
        packet
    }

    /// Makes keys with the daemon.
    fn handshake(&self, key: u8) -> Initiator {
        let mut initiator = Initiator::new(private(key), private(DAEMON).public(), false);
        initiator.begin(0, [key; RANDOM_BYTES]);
        while !initiator.has_keys() {
            if let Some(packet) = initiator.poll(0) {
                self.0.send(packet).unwrap();
            }
            assert!(self.receive(&mut initiator).is_empty());
            if initiator.should_begin(0) {
                initiator.begin(0, [key + 1; RANDOM_BYTES]);
            }
        }
        initiator
    }

    fn send(&self, initiator: &mut Initiator, packet: &[u8]) {
        let mut out = [0; 2048];
        let sealed = initiator.seal(std::iter::once(packet), packet.len(), &mut out, 0).unwrap();
        self.0.send(&out[..sealed.bytes]).unwrap();
    }
}

fn hello(nonce: u64) -> Vec<u8> {
    Hello { nonce, session: 77, packet_bytes: 1400, window_bytes: 1 << 20, uses_mailboxes: false }.packet()
}

#[test]
fn a_session_is_its_keys_alone() {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.platform.contexts.extend(crate::contexts::further());
    config.security.key = Some(private(DAEMON));
    config.security.authorized = Arc::new(authorized(&[KNOWN, STRANGER]));
    let context = ContextHandle::start(config).unwrap();
    let raw = Raw::connect(&context.local_addr().to_string());
    let mut known = raw.handshake(KNOWN);
    raw.send(&mut known, &hello(1));
    let welcome = Welcome::decode(&raw.receive(&mut known)[HEADER_BYTES..]).unwrap();
    let ping = Header::new(PacketKind::Ping, welcome.session).packet(b"").unwrap();
    raw.send(&mut known, &ping);
    assert_eq!(Header::read(&raw.receive(&mut known)).unwrap().kind, PacketKind::Ack);
    // From the same address, in a network that is trusted, but in no envelope.
    raw.0.send(&ping).unwrap();
    await_dropped(&context, "unknown_session", 1);
    raw.0.send(&hello(2)).unwrap();
    await_dropped(&context, "packet_unprotected", 1);
    assert_eq!(context.context().unwrap().sessions, 1);
    // Another client that proves to be at this address now: the session ends before anything of it could be sealed for that one.
    let mut other = raw.handshake(STRANGER);
    assert_eq!(context.context().unwrap().sessions, 1, "not before it has its keys");
    raw.send(&mut other, &ping);
    await_dropped(&context, "unknown_session", 2);
    assert_eq!(context.context().unwrap().sessions, 0);
    raw.send(&mut known, &ping);
    await_dropped(&context, "envelope_unknown_keys", 1);
}

#[test]
fn a_known_client_with_a_stolen_address_speaks_for_itself_only() {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.security.key = Some(private(DAEMON));
    config.security.authorized = Arc::new(authorized(&[KNOWN, STRANGER]));
    config.security.trusted.clear();
    let context = ContextHandle::start(config).unwrap();
    let addr = context.local_addr().to_string();
    let (victim, thief) = (Raw::connect(&addr), Raw::connect(&addr));
    let (mut known, mut other) = (victim.handshake(KNOWN), thief.handshake(STRANGER));
    victim.send(&mut known, &hello(1));
    let welcome = Welcome::decode(&victim.receive(&mut known)[HEADER_BYTES..]).unwrap();
    thief.send(&mut other, b"not yet");
    await_dropped(&context, "packet_short", 1);
    // It claims to be at the victim's address: to begin a session there, or to ask in that one, whose number it knows.
    let ping = Header::new(PacketKind::Ping, welcome.session).packet(b"").unwrap();
    victim.send(&mut other, &hello(2));
    victim.send(&mut other, &ping);
    await_dropped(&context, "envelope_unknown_keys", 2);
    // It copies the victim's packets, first, to have the session move.
    thief.send(&mut known, &ping);
    await_dropped(&context, "envelope_unknown_keys", 3);
    victim.send(&mut known, &ping);
    while !matches!(Header::read(&victim.receive(&mut known)), Ok(header) if header.kind == PacketKind::Ack) {}
    assert_eq!(context.context().unwrap().sessions, 1);
}

#[test]
fn nobody_without_keys_begins_a_session_at_the_address_of_a_client_that_has_some() {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.security.key = Some(private(DAEMON));
    config.security.authorized = Arc::new(authorized(&[KNOWN]));
    let context = ContextHandle::start(config).unwrap();
    let raw = Raw::connect(&context.local_addr().to_string());
    let mut known = raw.handshake(KNOWN);
    raw.send(&mut known, b"no session yet");
    raw.0.send(&hello(1)).unwrap();
    await_dropped(&context, "packet_unprotected", 1);
    assert_eq!(context.context().unwrap().sessions, 0);
}

/// A path to the daemon whose end at the daemon's side may change, as with a client that goes into another network.
struct Detour {
    addr: SocketAddr,
    uses: Arc<AtomicUsize>,
    stops: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Detour {
    /// `forged` goes to the client before each packet of its is forwarded.
    fn to(daemon: SocketAddr, forged: &'static [u8]) -> Detour {
        let bind = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            socket
        };
        let (front, backs) = (Arc::new(bind()), [bind(), bind()].map(Arc::new));
        let (uses, stops, client) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default(), Arc::default());
        let addr = front.local_addr().unwrap();
        let mut threads = Vec::new();
        for (at, back) in backs.iter().enumerate() {
            let (back, front, stops) = (Arc::clone(back), Arc::clone(&front), Arc::clone(&stops));
            let uses = Arc::clone(&uses);
            let client: Arc<Mutex<Option<SocketAddr>>> = Arc::clone(&client);
            threads.push(std::thread::spawn(move || {
                let mut packet = vec![0; 65_536];
                while !stops.load(Ordering::Relaxed) {
                    let Ok(len) = back.recv(&mut packet) else { continue };
                    let client = *client.lock().unwrap();
                    // Whatever goes to the other address is lost.
                    if let Some(client) = client.filter(|_| uses.load(Ordering::Relaxed) == at) {
                        front.send_to(&packet[..len], client).unwrap();
                    }
                }
            }));
        }
        let (uses_now, stops_now) = (Arc::clone(&uses), Arc::clone(&stops));
        threads.push(std::thread::spawn(move || {
            let mut packet = vec![0; 65_536];
            while !stops_now.load(Ordering::Relaxed) {
                let Ok((len, from)) = front.recv_from(&mut packet) else { continue };
                *client.lock().unwrap() = Some(from);
                if !forged.is_empty() {
                    front.send_to(forged, from).unwrap();
                }
                backs[uses_now.load(Ordering::Relaxed)].send_to(&packet[..len], daemon).unwrap();
            }
        }));
        Detour { addr, uses, stops, threads }
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_client_whose_address_changes_comes_back_from_the_new_one() {
    let (context, addr) = start();
    let way = Detour::to(context.local_addr(), &[]);
    let mut publisher = publisher(&addr, KNOWN).unwrap();
    let mut subscriber = subscriber(&way.addr.to_string(), "SELECT * FROM A");
    publish(&mut publisher, 0..100, "before");
    assert_eq!(receive(&mut subscriber, 100), (0..100).collect::<Vec<_>>());
    way.uses.store(1, Ordering::Relaxed);
    let until = Instant::now() + PATIENCE;
    for number in 100.. {
        assert!(Instant::now() < until, "not back within 20 s");
        publish(&mut publisher, number..number + 1, "after");
        if let Some(Event::Records(_)) = subscriber.next_event(Some(Duration::from_millis(20))).unwrap() {
            break;
        }
    }
    assert_eq!(subscriber.reconnections(), 1);
    assert!(dropped(&context, "envelope_unknown_keys") > 0, "its old keys say nothing of the new address");
}

#[test]
fn a_forged_refusal_does_not_keep_a_client_from_its_daemon() {
    let config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    let context = ContextHandle::start(config).unwrap();
    let way = Detour::to(context.local_addr(), &[0xc5, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let builder = Publisher::builder(way.addr.to_string()).transport(Transport::Udp).stream("A").format(&format());
    publish(&mut builder.connect().unwrap(), 0..1, "a record");
}
