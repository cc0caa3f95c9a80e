//! Sessions over a source route: three nodes between the client and the server, which hand packets on as daemons do, without their seals.

use crate::host::{Host, HostPlan};
use crate::traffic::{SinkPlan, SourcePlan};
use crate::world::World;
use crate::{MS, SECOND};
use crossdock_sim::{Frame, Link, Network, Rng, check};
use crossdock_transport::route::{
    MAX_ROUTE_HEADER_BYTES, NodeId, RouteHeader, RouteStep, SourceRoute, behind_header, next_run, take_headers_off,
};
use std::net::SocketAddr;

const NODES: [&str; 3] = ["a", "b", "c"];
/// Bytes of the header.
const HEADER: usize = 32;

/// A node of the route. The first one also does the client's part, and the last one the server's.
struct Relay {
    address: SocketAddr,
    place: usize,
    before: SocketAddr,
    after: SocketAddr,
}

impl Relay {
    fn turn(&self, network: &mut Network) {
        while let Some(frame) = network.receive(self.address) {
            let is_client = self.place == 0 && frame.from == self.before;
            let is_server = self.place == NODES.len() - 1 && frame.from == self.after;
            if is_client || is_server { self.begin(network, &frame) } else { self.hand_on(network, frame) }
        }
    }

    /// Gives packets of an end of the route their header.
    fn begin(&self, network: &mut Network, frame: &Frame) {
        let header = RouteHeader { origin: 7, ..RouteHeader::of_client(route()) };
        let (header, to) = match self.place {
            0 => (RouteHeader { place: 1, ..header }, self.after),
            _ => (header.answer(), self.before),
        };
        let mut room = [0; MAX_ROUTE_HEADER_BYTES];
        let header: &[u8] = header.write(&mut room);
        assert_eq!(header.len(), HEADER);
        let routed: Vec<u8> = behind_header(header, &frame.bytes, frame.stride).flatten().copied().collect();
        network.send_super_with(self.address, to, (&routed, frame.stride + HEADER), frame.ecn);
    }

    fn hand_on(&self, network: &mut Network, frame: Frame) {
        let Frame { from, stride, mut bytes, ecn } = frame;
        let hop = if from == self.before { self.place - 1 } else { self.place + 1 };
        let mut at = 0;
        while let Some(run) = next_run(&bytes, stride, at) {
            let run = run.expect("the paths spoil nothing");
            at = run.end;
            let packets = &mut bytes[run.start..run.end];
            let step = run.header.step(NodeId::of_name(NODES[self.place]), Some(NodeId::of_name(NODES[hop])));
            let (len, stride, to) = match step.expect("it is for this node") {
                RouteStep::To(place) => {
                    packets.chunks_mut(stride).for_each(|packet| RouteHeader::redirect(packet, place, 7));
                    let to = if usize::from(place) > self.place { self.after } else { self.before };
                    (packets.len(), stride, to)
                }
                end => {
                    let to = if end == RouteStep::Arrived { self.after } else { self.before };
                    (take_headers_off(packets, stride, HEADER), stride - HEADER, to)
                }
            };
            network.send_super_with(self.address, to, (&packets[..len], stride), ecn);
        }
    }
}

fn route() -> SourceRoute {
    SourceRoute::new(&NODES.map(NodeId::of_name)).unwrap()
}

/// A client and a server with the route between them, whose two middle links these are.
fn world(seed: u64, client: HostPlan, server: HostPlan, links: [&Link; 2]) -> (World, Vec<Relay>) {
    let mut network = Network::new(seed);
    let nodes: Vec<SocketAddr> = (0..5).map(|_| network.node(8 << 20)).collect();
    let near = Link::new(1000);
    for (pair, link) in nodes.windows(2).zip([&near, links[0], links[1], &near]) {
        network.link(pair[0], pair[1], link.clone());
    }
    network.wake_at(nodes[0], 0);
    let mut rng = Rng::with_seed(!seed);
    let world = World {
        client: Host::client(nodes[0], nodes[1], client, rng.fork()),
        server: Host::server(nodes[4], server, rng.fork()),
        network,
    };
    let relay = |(place, hop): (usize, &[SocketAddr])| Relay { address: hop[1], place, before: hop[0], after: hop[2] };
    (world, nodes.windows(3).enumerate().map(relay).collect())
}

/// Runs until both sides have everything.
fn finish(world: &mut World, relays: &[Relay], limit_ns: u64) {
    while !world.is_finished() {
        let Some(node) = world.network.step_until(limit_ns) else { panic!("not finished: {}", world.report()) };
        match relays.iter().find(|relay| relay.address == node) {
            Some(relay) => relay.turn(&mut world.network),
            None if node == world.client.address => world.client.turn(&mut world.network),
            None => world.server.turn(&mut world.network),
        }
    }
}

fn any_link(rng: &mut Rng) -> Link {
    Link {
        jitter_ns: rng.u64(0..2 * MS),
        loss: rng.f64() * 0.1,
        duplication: rng.f64() * 0.05,
        reordering: rng.f64() * 0.05,
        reordering_ns: rng.u64(1..20 * MS),
        ..Link::new(rng.u64(1..10 * MS)).with_bandwidth(20_000_000, 1 << 20)
    }
}

#[test]
fn every_message_arrives_once_and_in_order_over_lossy_hops() {
    check("every_message_arrives_over_lossy_hops", 20, |seed| {
        let mut rng = Rng::with_seed(seed);
        let (one, other) = (any_link(&mut rng), any_link(&mut rng));
        let host = |messages| HostPlan::new(SourcePlan::bulk(messages), SinkPlan::default());
        let (mut world, relays) = world(seed, host(3000), host(1000), [&one, &other]);
        finish(&mut world, &relays, 600 * SECOND);
        for host in [&world.client, &world.server] {
            assert_eq!((host.counters.refused_total(), host.counters.senseless), (0, 0), "{}", world.report());
        }
    });
}

#[test]
fn the_packet_size_leaves_room_for_the_header_on_the_narrowest_hop() {
    check("the_packet_size_leaves_room_for_the_header", 5, |seed| {
        let link = |mtu_bytes| Link::new(10 * MS).with_bandwidth(20_000_000, 1 << 20).with_mtu(mtu_bytes);
        let host = |source| {
            let mut plan = HostPlan::new(source, SinkPlan::default());
            plan.limits.max_packet_bytes = 65_472;
            plan
        };
        // Records in full packets, for 12 seconds.
        let steady = SourcePlan {
            interval_ns: 100 * MS,
            unit_records: 200..=200,
            record_words: 20..=20,
            ..SourcePlan::bulk(12 * 10 * 200)
        };
        let (mut world, relays) = world(seed, host(steady), host(SourcePlan::nothing()), [&link(8972), &link(1400)]);
        finish(&mut world, &relays, 600 * SECOND);
        let found = world.client.peer().session.packet_bytes();
        assert!((1400 - 64..=1400 - HEADER).contains(&found), "{found}: {}", world.report());
    });
}
