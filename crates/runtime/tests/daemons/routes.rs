//! Source routes over three daemons: sessions with the third, answers by the reversed route, and whatever is refused on the way.

use crate::secure::{format, publish, receive};
use crossdock_nectarine::{Error, NodeRoute, Pinger, PrivateKey, PublicKey, Publisher, Subscriber};
use crossdock_runtime::access::{Identity, Rule, Rules};
use crossdock_runtime::{ContextConfig, ContextHandle, NodeAddress, PassedSockets, SecurityConfig};
use crossdock_transport::route::{
    Course, MAX_ROUTE_HEADER_BYTES, NodeId, RouteHeader, RouteRefusal, SourceRoute, behind_header,
};
use crossdock_transport::secure::{Authorized, Initiator, KEY_BYTES, OVERHEAD_BYTES, RANDOM_BYTES};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// The nodes; the first three are daemons, each with the key of its place and neighbours beside it.
const NODES: [&str; 3] = ["a", "b", "c"];
/// The client's key.
const CLIENT: u8 = 9;

fn private(first: u8) -> PrivateKey {
    PrivateKey::from_random([first; KEY_BYTES])
}

fn daemons_key(place: usize) -> PublicKey {
    private(1 + place as u8).public()
}

/// Three daemons in a line.
struct Line {
    sockets: Vec<UdpSocket>,
    contexts: Vec<ContextHandle>,
}

impl Line {
    /// Daemons with these rules; none has some where there are none.
    fn start(rules: [Option<Vec<Rule>>; 3]) -> Line {
        let sockets: Vec<UdpSocket> =
            NODES.iter().map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let mut line = Line { sockets, contexts: Vec::new() };
        for (place, rules) in rules.into_iter().enumerate() {
            let context = line.daemon(place, rules);
            line.contexts.push(context);
        }
        line
    }

    fn addr(&self, place: usize) -> SocketAddr {
        self.sockets[place].local_addr().unwrap()
    }

    fn daemon(&self, place: usize, rules: Option<Vec<Rule>>) -> ContextHandle {
        let node = |at: usize| {
            let (name, address) = (NODES[at].to_owned(), self.addr(at));
            NodeAddress { name, address, key: Some(daemons_key(at)) }
        };
        let named = |key: PublicKey, name: &str| Authorized { key, name: name.into() };
        let authorized = (0..3).map(|at| named(daemons_key(at), NODES[at]));
        let authorized = authorized.chain([named(private(CLIENT).public(), "client")]).collect();
        let key = Some(private(1 + place as u8));
        let mut config = ContextConfig {
            node: NODES[place].to_owned(),
            nodes: (0..3).filter(|at| *at != place).map(node).collect(),
            neighbours: (0..3usize).filter(|at| at.abs_diff(place) == 1).map(node).collect(),
            security: SecurityConfig { key, authorized: Arc::new(authorized), trusted: Vec::new() },
            access: rules.map(|rules| Arc::new(Rules::new(rules).unwrap())),
            ..ContextConfig::default()
        };
        config.platform.contexts.extend(crate::contexts::further());
        let passed = PassedSockets { udp: Some(self.sockets[place].try_clone().unwrap()), ..PassedSockets::default() };
        let context = ContextHandle::prepare(config, passed).unwrap();
        context.open().unwrap();
        context
    }

    fn publisher(&self, nodes: &[&str]) -> Result<Publisher, Error> {
        let (route, first) = (route(nodes), daemons_key(0));
        let builder = Publisher::builder(self.addr(0).to_string()).keys(private(CLIENT), first).route(route);
        builder.connect_timeout(Duration::from_secs(2)).stream("A").format(&format()).connect()
    }

    fn subscriber(&self, nodes: &[&str]) -> Result<Subscriber, Error> {
        let (route, first) = (route(nodes), daemons_key(0));
        let builder = Subscriber::builder(self.addr(0).to_string()).keys(private(CLIENT), first).route(route);
        builder.connect_timeout(PATIENCE).sql("SELECT * FROM A").connect()
    }

    fn dropped(&self, place: usize, reason: &str) -> u64 {
        let info = self.contexts[place].context().unwrap();
        info.dropped.iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
    }

    fn await_dropped(&self, place: usize, reason: &str, count: u64) {
        let until = Instant::now() + PATIENCE;
        while self.dropped(place, reason) < count {
            assert!(Instant::now() < until, "{reason}: {:?}", self.contexts[place].context().unwrap().dropped);
            std::thread::yield_now();
        }
    }

    /// Packets that a daemon has handed on.
    fn routed(&self, place: usize) -> u64 {
        self.contexts[place].context().unwrap().packets_routed
    }
}

fn route(nodes: &[&str]) -> NodeRoute {
    let last = nodes.last().and_then(|last| NODES.iter().position(|node| node == last));
    NodeRoute::new(nodes.iter().copied(), daemons_key(last.unwrap_or(0))).unwrap()
}

fn rule(identity: &str, change: impl FnOnce(&mut Rule)) -> Rule {
    let mut rule = Rule::new(Identity::Key(identity.into()));
    change(&mut rule);
    rule
}

fn may_route(identity: &str, node: &str) -> Rule {
    rule(identity, |rule| rule.route = vec![node.parse().unwrap()])
}

fn refusal<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Refused(why)) => why,
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn records_go_over_two_daemons_to_the_third_and_come_back_by_the_reversed_route() {
    let line = Line::start([const { None }; 3]);
    let mut publisher = line.publisher(&NODES).unwrap();
    let mut far = line.subscriber(&NODES).unwrap();
    let mut near = Subscriber::builder(line.addr(2).to_string())
        .keys(private(CLIENT), daemons_key(2))
        .transport(crossdock_nectarine::Transport::Udp)
        .sql("SELECT * FROM A")
        .connect()
        .unwrap();
    publish(&mut publisher, 0..20_000, "some text that makes a record longer");
    assert_eq!(receive(&mut far, 20_000), (0..20_000).collect::<Vec<_>>());
    assert_eq!(receive(&mut near, 20_000), (0..20_000).collect::<Vec<_>>());
    for len in [1200, 1400, 8192, 65_000, 65_400, 70_000, 1 << 20] {
        publish(&mut publisher, len..len + 1, &"x".repeat(len as usize));
        assert_eq!((receive(&mut far, 1), receive(&mut near, 1)), (vec![len], vec![len]));
    }
    let mut routes: Vec<Option<String>> =
        line.contexts[2].sessions().unwrap().into_iter().map(|session| session.route).collect();
    routes.sort();
    assert_eq!(routes, [None, Some("a,b,c".to_owned()), Some("a,b,c".to_owned())]);
    assert!(line.routed(0) > 100 && line.routed(1) > 100);
    assert_eq!(line.routed(2), 0, "its answers begin there");
    for place in 0..3 {
        let info = line.contexts[place].context().unwrap();
        assert!(place == 2 || info.sessions == 0, "the daemons between have no sessions");
        assert_eq!(info.dropped.iter().find(|(name, _)| name.starts_with("route_")), None, "{:?}", info.dropped);
    }
    publisher.finish().unwrap();
}

#[test]
fn a_route_may_be_shorter_and_pings_measure_it() {
    let line = Line::start([const { None }; 3]);
    for nodes in [&NODES[..2], &NODES] {
        let over = (Some((private(CLIENT), daemons_key(0))), Some(route(nodes)));
        let mut pinger = Pinger::connect_over(line.addr(0).to_string(), over, PATIENCE, None).unwrap();
        assert!(pinger.ping(PATIENCE).unwrap().is_some());
    }
}

#[test]
fn the_rules_of_the_last_daemon_hold_for_the_client() {
    let client = rule("client", |rule| rule.publish = vec!["A".parse().unwrap()]);
    let line = Line::start([None, None, Some(vec![client])]);
    line.publisher(&NODES).unwrap();
    let why = line.subscriber(&NODES).map(drop).unwrap_err().to_string();
    assert!(why.contains("key client may not read stream `A`"), "{why}");
    // Those that it does not know have no keys with it, whatever the route is.
    let line = Line::start([const { None }; 3]);
    line.contexts[2]
        .authorize(std::iter::once(Authorized { key: daemons_key(1), name: "b".into() }).collect())
        .unwrap();
    assert!(refusal(line.publisher(&NODES)).contains("has not authorised this client's key"));
    line.await_dropped(2, "handshake_unknown_key", 1);
}

#[test]
fn a_daemon_without_a_rule_for_the_hop_hands_nothing_on() {
    let line = Line::start([Some(vec![may_route("client", "b")]), Some(vec![may_route("a", "x*")]), None]);
    let why = refusal(line.publisher(&NODES));
    assert!(why.contains("node `b` does not let node `a` send to `c`") && why.contains("route = [\"c\"]"), "{why}");
    line.await_dropped(1, "route_forbidden", 1);
    assert_eq!(line.contexts[2].context().unwrap().packets_in, 0, "nothing came to the last one");
    let events = line.contexts[1].manager().events(0).unwrap();
    let event = events.iter().find(|event| event.kind == "access_refused").unwrap();
    assert!(event.text.contains("key a may not send packets to node `c`") && event.text.contains("a,b,c"), "{event:?}");
    // With the rules on the way, and none for anything else there.
    let rules = [Some(vec![may_route("client", "b")]), Some(vec![may_route("a", "c")]), None];
    let line = Line::start(rules);
    let mut publisher = line.publisher(&NODES).unwrap();
    let mut subscriber = line.subscriber(&NODES).unwrap();
    publish(&mut publisher, 0..100, "allowed");
    assert_eq!(receive(&mut subscriber, 100), (0..100).collect::<Vec<_>>());
    let line = Line::start([Some(vec![may_route("client", "x")]), None, None]);
    assert!(refusal(line.publisher(&NODES)).contains("`a` does not let this client send to `b`"));
    line.await_dropped(0, "route_forbidden", 1);
}

#[test]
fn a_node_that_is_no_neighbour_is_refused_by_name() {
    let line = Line::start([const { None }; 3]);
    assert!(refusal(line.publisher(&["a", "b", "x"])).contains("node `b` has no neighbour `x`"));
    assert!(refusal(line.publisher(&["a", "c"])).contains("node `a` has no neighbour `c`"));
    assert!(refusal(line.publisher(&["b", "c"])).contains("the daemon in place 1 of the route is not node `b`"));
    for (place, reason) in [(1, "route_unknown_hop"), (0, "route_unknown_hop"), (0, "route_misplaced")] {
        line.await_dropped(place, reason, 1);
    }
}

#[test]
fn a_daemon_that_was_started_again_is_a_hop_again() {
    let mut line = Line::start([const { None }; 3]);
    let mut publisher = line.publisher(&NODES).unwrap();
    let mut subscriber = line.subscriber(&NODES).unwrap();
    publish(&mut publisher, 0..1000, "before");
    assert_eq!(receive(&mut subscriber, 1000), (0..1000).collect::<Vec<_>>());
    line.contexts[1].stop().unwrap();
    line.contexts[1] = line.daemon(1, None);
    publish(&mut publisher, 1000..2000, "after");
    assert_eq!(receive(&mut subscriber, 1000), (1000..2000).collect::<Vec<_>>(), "the session stands");
    publisher.finish().unwrap();
}

/// A client that makes its packets by hand, with keys of the first daemon.
struct Raw {
    socket: UdpSocket,
    initiator: Initiator,
}

impl Raw {
    fn connect(line: &Line, place: usize, key: u8) -> Raw {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(line.addr(place)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut raw = Raw { socket, initiator: Initiator::new(private(key), daemons_key(place), true) };
        for random in [key, key + 100] {
            raw.initiator.begin(0, [random; RANDOM_BYTES]);
            let initial = raw.initiator.poll(0).unwrap().to_vec();
            raw.socket.send(&initial).unwrap();
            raw.receive();
        }
        assert!(raw.initiator.has_keys());
        raw
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut packet = vec![0; 2048];
        let len = self.socket.recv(&mut packet).unwrap();
        let heard = self.initiator.open_frame(&mut packet[..len], len, 0);
        packet.truncate(heard.len);
        packet
    }

    fn send(&mut self, header: &RouteHeader, payload: &[u8]) {
        let mut room = [0; MAX_ROUTE_HEADER_BYTES];
        let header: &[u8] = header.write(&mut room);
        let (mut out, len) = (vec![0; 2048], header.len() + payload.len());
        let routed = behind_header(header, payload, payload.len());
        let sealed = self.initiator.seal(routed, len, &mut out, 0).unwrap();
        assert_eq!(sealed.bytes, len + OVERHEAD_BYTES);
        self.socket.send(&out[..sealed.bytes]).unwrap();
    }
}

fn source(nodes: &[&str]) -> SourceRoute {
    SourceRoute::new(&nodes.iter().map(|node| NodeId::of_name(node)).collect::<Vec<_>>()).unwrap()
}

#[test]
fn loops_and_false_places_are_refused_and_never_handed_on() {
    let line = Line::start([const { None }; 3]);
    let mut client = Raw::connect(&line, 0, CLIENT);
    // A loop, as no builder makes it: the last node's id is that of the first.
    let mut looped = [0; MAX_ROUTE_HEADER_BYTES];
    let len = RouteHeader::of_client(source(&NODES)).write(&mut looped).len();
    looped.copy_within(8..16, 24);
    let header = RouteHeader::read(&looped[..len]).unwrap();
    client.send(&header, b"round and round");
    assert_eq!(RouteHeader::refusal_in(&client.receive()), Some((RouteRefusal::Loop, 0)));
    line.await_dropped(0, "route_loop", 1);
    // Packets that pretend to have come further, or to be answers.
    let forward = RouteHeader::of_client(source(&NODES));
    let ahead = RouteHeader { place: 1, route: source(&["b", "a", "c"]), ..forward };
    client.send(&ahead, b"forged");
    let answer = RouteHeader { course: Course::Backward, origin: 1, ..forward };
    client.send(&answer, b"forged");
    line.await_dropped(0, "route_misplaced", 2);
    assert_eq!(line.routed(0), 0);
    // A header that is none.
    let mut stranger = Raw::connect(&line, 1, CLIENT);
    let mut out = [0; 256];
    let sealed = stranger.initiator.seal(std::iter::once(&[0x80, 9, 9, 9, 9][..]), 5, &mut out, 0).unwrap();
    stranger.socket.send(&out[..sealed.bytes]).unwrap();
    line.await_dropped(1, "route_malformed", 1);
    // The daemon goes on.
    line.publisher(&NODES).unwrap();
}

#[test]
fn an_answer_for_a_client_that_is_not_there_goes_nowhere() {
    let line = Line::start([const { None }; 3]);
    // With the key of `b`, as if it came from there.
    let mut neighbour = Raw::connect(&line, 0, 2);
    let route = source(&NODES[..2]);
    for origin in [1000, 0xffff, u32::MAX] {
        neighbour.send(&RouteHeader { course: Course::Backward, place: 0, origin, route }, b"unasked");
    }
    line.await_dropped(0, "route_unreachable", 3);
    assert_eq!(line.routed(0), 0);
}
