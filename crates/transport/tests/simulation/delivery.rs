//! Every message arrives once and in order, whatever the path and the consumer do, within bounds of memory and time.

use crate::host::HostPlan;
use crate::traffic::{SinkPlan, SourcePlan, Unit};
use crate::world::World;
use crate::{MS, SECOND};
use crossdock_sim::{EcnPath, Link, Rng, check};
use crossdock_transport::credit::CONTROL_WINDOW_PACKETS;
use crossdock_transport::header::walk;
use crossdock_transport::{Follows, HEADER_BYTES, Limits, MAX_SUPER_BYTES, TrafficClass, VERSION};

/// Spoils a datagram as far as the header shows it. A bit that flips deeper down is for UDP's checksum to find: packets
/// have none of their own.
fn spoil_header(rng: &mut Rng, bytes: &mut Vec<u8>) {
    match rng.u8(..4) {
        0 => bytes[0] ^= 1 << rng.u8(..8),
        // An unknown kind: a flip lower down makes another kind that is known.
        1 => bytes[1] ^= 16 << rng.u8(..4),
        // A claim of 65,535 bytes, which no packet has.
        2 => bytes[2..4].fill(0xff),
        _ => {
            // Below the payload's end: behind it there may be nothing to miss.
            let payload = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
            bytes.truncate(rng.usize(..32 + payload));
        }
    }
}

/// A number between the two whose magnitude is evenly spread.
fn log_uniform(rng: &mut Rng, low: u64, high: u64) -> u64 {
    let (low, high) = ((low as f64).ln(), (high as f64).ln());
    (low + rng.f64() * (high - low)).exp() as u64
}

/// Any path.
fn any_link(rng: &mut Rng) -> Link {
    let often = |rng: &mut Rng, most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
    let delay_ns = log_uniform(rng, 5_000, 100 * MS);
    let link = Link {
        jitter_ns: if rng.bool() { rng.u64(..=delay_ns) } else { 0 },
        loss: often(rng, 0.3),
        duplication: often(rng, 0.3),
        reordering: often(rng, 0.3),
        reordering_ns: rng.u64(..=4 * delay_ns),
        corruption: often(rng, 0.05),
        corrupt: spoil_header,
        ..Link::new(delay_ns)
    };
    if rng.bool() {
        link.with_bandwidth(log_uniform(rng, 1 << 20, 1 << 30), log_uniform(rng, 32 << 10, 4 << 20))
    } else {
        link
    }
}

fn any_host(rng: &mut Rng) -> HostPlan {
    let messages = rng.u64(..1500);
    HostPlan {
        packet_bytes: [512, 1472, 8184][rng.usize(..3)],
        limits: Limits::new(log_uniform(rng, 1, 8 << 20) as u32, 60 * SECOND),
        turn_ns: log_uniform(rng, 1000, MS),
        device_full: if rng.u8(..4) == 0 { 0.2 } else { 0.0 },
        short: if rng.u8(..4) == 0 { 0.5 } else { 0.0 },
        ..HostPlan::new(SourcePlan::any(rng, messages), SinkPlan::any(rng))
    }
}

/// A world of anything, from a seed.
pub(crate) fn any_world(seed: u64) -> World {
    let mut rng = Rng::with_seed(seed);
    let (up, down) = (any_link(&mut rng), any_link(&mut rng));
    let (mut client, mut server) = (any_host(&mut rng), any_host(&mut rng));
    let (mut up, mut down) = (up, down);
    if rng.bool() {
        // The sizes are found: the paths may take less than what was agreed, and more.
        for plan in [&mut client, &mut server] {
            plan.limits.max_packet_bytes = [1472, 9000, 65_472][rng.usize(..3)];
        }
        for link in [&mut up, &mut down] {
            link.mtu_bytes = [1200, 1300, 1472, 4000, usize::MAX][rng.usize(..5)];
            link.ecn = [EcnPath::Kept, EcnPath::Cleared, EcnPath::Marked, EcnPath::Dropped][rng.usize(..4)];
            link.mark_bytes = [0, 10_000, 200_000][rng.usize(..3)];
        }
    }
    World::new(seed, client, server, up, down)
}

/// Longer than any run may take: even one packet at a time, each sent several times, each time after a time-out.
fn patience_ns(world: &World, links: [&Link; 2]) -> u64 {
    let plans = [&world.client.plan, &world.server.plan];
    let packets = plans.map(|plan| plan.source.packets()).into_iter().max().unwrap_or(0);
    let round_trip_ns: u64 = links.map(|link| link.delay_ns + link.jitter_ns + link.reordering_ns).iter().sum();
    20 * SECOND + packets * 4 * (round_trip_ns + 50 * MS)
}

/// Runs the world of `seed` to its end.
fn every_message_arrives(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let (up, down) = (any_link(&mut rng), any_link(&mut rng));
    let mut world = any_world(seed);
    world.finish(patience_ns(&world, [&up, &down]));
    world.settle();
    let (up, down) = world.links();
    for (host, path) in [(&world.client, down), (&world.server, up)] {
        assert_eq!(host.counters.beyond, 0, "credit was exceeded: {}", world.report());
        assert_eq!(host.counters.refused_total(), path.corrupted, "{}", world.report());
        assert_eq!(host.counters.senseless, 0, "{}", world.report());
        let peer = host.peer();
        assert!(peer.dead_ns.is_none() && peer.closed.is_none(), "{}", world.report());
        assert_eq!((peer.session.receiver.held(), peer.sink.waiting_units), (0, 0), "{}", world.report());
        assert_eq!(peer.session.sender.backlog_bytes(), 0, "{}", world.report());
        let other = if host.address == world.client.address { &world.server } else { &world.client };
        let taken = other.peer().session.receiver.delivered();
        assert_eq!(peer.session.sender.spent(), taken, "both sides count alike: {}", world.report());
        let bound = host.plan.source.most_backlog_bytes(peer.most_packet_bytes);
        assert!(peer.most_backlog_bytes <= bound, "{} bytes: {}", peer.most_backlog_bytes, world.report());
    }
}

#[test]
fn every_message_arrives_once_and_in_order() {
    check("every_message_arrives_once_and_in_order", 700, every_message_arrives);
}

#[test]
fn a_hello_that_is_spoiled_is_refused() {
    // In this world the flip of a bit in the kind of a hello once made a reset, which is a known kind.
    every_message_arrives(0x0031_9822_4a54_8f3d);
}

#[test]
fn a_spoiled_header_is_refused_whatever_its_kind() {
    check("a_spoiled_header_is_refused_whatever_its_kind", 2000, |seed| {
        let mut rng = Rng::with_seed(seed);
        let payload_bytes = rng.u16(..2000);
        let mut packet = vec![0; HEADER_BYTES + usize::from(payload_bytes)];
        (packet[0], packet[1]) = (VERSION, rng.u8(1..=9));
        packet[2..4].copy_from_slice(&payload_bytes.to_le_bytes());
        let refusals = |packet: &[u8]| {
            let mut refused = 0;
            walk(packet, 0, &mut Vec::new(), &mut Vec::new(), |_| refused += 1);
            refused
        };
        assert_eq!(refusals(&packet), 0);
        let whole = packet.clone();
        spoil_header(&mut rng, &mut packet);
        assert_eq!(refusals(&packet), 1, "{:?} of {:?}", &packet[..packet.len().min(4)], &whole[..4]);
    });
}

#[test]
fn the_same_seed_makes_the_same_run() {
    check("the_same_seed_makes_the_same_run", 10, |seed| {
        let run = || {
            let mut world = any_world(seed);
            world.run(3 * SECOND, World::is_finished);
            (world.network.fingerprint(), world.network.now_ns(), world.report())
        };
        assert_eq!(run(), run());
    });
}

#[test]
fn a_slow_consumer_holds_the_sender_within_its_window() {
    check("a_slow_consumer_holds_the_sender_within_its_window", 20, |seed| {
        let mut rng = Rng::with_seed(seed);
        let window = rng.u32(1..200);
        let loss = if rng.bool() { 0.02 } else { 0.0 };
        let source = SourcePlan { messages: 4000, ..SourcePlan::any(&mut rng, 4000) };
        let client = HostPlan::new(SourcePlan { interval_ns: 0, ..source }, SinkPlan::default());
        let slow = SinkPlan { packet_ns: MS, ..SinkPlan::default() };
        let mut server = HostPlan::new(SourcePlan::nothing(), slow);
        server.limits.window_bytes = window * 1472;
        let link = Link::new(rng.u64(50_000..5 * MS)).with_loss(loss);
        let mut world = World::new(seed, client, server, link.clone(), link);
        let mut done = false;
        while !done {
            let now_ns = world.network.now_ns();
            done = world.run(now_ns + 20 * MS, World::is_finished);
            // The host checks that no more than the window waits with the consumer; here, that no more is under way.
            if let (Some(client), Some(server)) =
                (world.client.peers.values().next(), world.server.peers.values().next())
            {
                let (control, waiting) = (server.sink.control_packets, server.sink.waiting_units);
                let taken = server.session.receiver.data_delivered() + control - waiting;
                let sent = client.session.sender.spent();
                let most = taken + u64::from(window + CONTROL_WINDOW_PACKETS);
                assert!(sent <= most, "{sent} units sent, {taken} taken");
            }
            assert!(now_ns < 100 * SECOND, "{}", world.report());
        }
        assert_eq!(world.server.counters.beyond, 0, "{}", world.report());
        let stats = world.client.peer().session.sender.stats();
        assert!(loss > 0.0 || stats.resent == 0, "{}", world.report());
    });
}

#[test]
fn a_consumer_that_stops_and_goes_on_gets_everything_even_if_the_new_credit_is_lost() {
    check("a_consumer_that_stops_and_goes_on_gets_everything_even_if_the_new_credit_is_lost", 50, |seed| {
        let mut rng = Rng::with_seed(seed);
        let resumes_ns = SECOND + rng.u64(..3 * SECOND);
        let stop = SinkPlan { stalls: vec![100 * MS..resumes_ns], ..SinkPlan::default() };
        let mut server = HostPlan::new(SourcePlan::nothing(), stop);
        server.limits.window_bytes = rng.u32(1..300) * 1472;
        let client = HostPlan::new(SourcePlan::bulk(20_000), SinkPlan::default());
        let link = Link::new(rng.u64(50_000..2 * MS)).with_bandwidth(10_000_000, 1 << 20);
        let mut world = World::new(seed, client, server, link.clone(), link);
        world.run(resumes_ns - MS, |_| false);
        assert!(world.client.peer().session.sender.is_starved(), "{}", world.report());
        let (client, server) = (world.client.address, world.server.address);
        world.network.cut_one_way(server, client, resumes_ns + 20 * MS);
        // Repaired by the first ping after the cut, 100 ms later at most; and the rest takes its time.
        let (messages, window) = (20_000, world.server.peer().window);
        let rounds = messages / 4 / window + 10;
        world.finish(resumes_ns + 150 * MS + rounds * 20 * MS + 3 * SECOND);
        assert!(world.client.counters.pings_sent > 0, "{}", world.report());
    });
}

#[test]
fn control_arrives_while_no_credit_is_given() {
    check("control_arrives_while_no_credit_is_given", 100, |seed| {
        let mut rng = Rng::with_seed(seed);
        let resumes_ns = 20 * SECOND;
        let stop = SinkPlan { stalls: vec![0..resumes_ns], ..SinkPlan::default() };
        let mut server = HostPlan::new(SourcePlan::nothing(), stop);
        server.limits.window_bytes = rng.u32(1..100) * 1472;
        let client = HostPlan::new(SourcePlan::bulk(20_000), SinkPlan::default());
        let faults = |rng: &mut Rng| Link {
            duplication: 0.1,
            reordering: 0.2,
            reordering_ns: MS,
            ..Link::new(rng.u64(50_000..2 * MS))
        };
        let (up, down) = (faults(&mut rng).with_loss(0.1), faults(&mut rng).with_loss(0.1));
        let mut world = World::new(seed, client, server, up, down);
        world.run(2 * SECOND, |_| false);
        let (mut free, mut a_request_waits) = (0, false);
        for _ in 0..rng.u64(1..400) {
            let address = world.client.address;
            let client = world.client.peers.values_mut().next().expect("connected");
            let class = client.source.any_control();
            let (packet_bytes, long) = (client.session.packet_bytes(), [0, 0, 5000][client.source.any_below(3)]);
            for unit in client.source.control(class, packet_bytes, long) {
                let Unit { outgoing, lengths, class, droppable } = unit;
                client.session.sender.enqueue_super(outgoing, lengths, class, droppable);
            }
            let is_free = match class {
                TrafficClass::Exchange(Follows::Nothing) => !a_request_waits,
                TrafficClass::Exchange(_) => false,
                class => class == TrafficClass::Notice(Follows::Nothing),
            };
            a_request_waits |= matches!(class, TrafficClass::Exchange(_)) && !is_free;
            if is_free {
                free += 1;
                let now_ns = world.network.now_ns();
                world.network.wake_at(address, now_ns);
                let arrived = world.run(now_ns + 5 * SECOND, |world| world.server.peer().sink.controls >= free);
                assert!(arrived, "control waits for credit: {}", world.report());
            }
            if world.network.now_ns() > resumes_ns / 2 {
                break;
            }
        }
        world.run(resumes_ns - MS, |_| false);
        let (sink, sender) = (&world.server.peer().sink, &world.client.peer().session.sender);
        let window = world.server.peer().window;
        assert_eq!(sender.stats().packets, window + sink.control_packets, "{}", world.report());
        assert_eq!(sink.waiting_units, window, "{}", world.report());
        // The sink checks that each message comes once, and in its place.
        world.finish(resumes_ns + 900 * SECOND);
        assert_eq!(world.server.counters.beyond, 0, "{}", world.report());
    });
}

#[test]
fn dropping_the_oldest_loses_exactly_what_it_says() {
    check("dropping_the_oldest_loses_exactly_what_it_says", 100, |seed| {
        let mut rng = Rng::with_seed(seed);
        let source = SourcePlan {
            drops: true,
            backlog_bytes: 50_000,
            interval_ns: rng.u64(1..400_000),
            // Messages in several units are not dropped.
            long: (0.0, 1),
            ..SourcePlan::any(&mut rng, 3000)
        };
        let slow = SinkPlan { packet_ns: rng.u64(..MS), gaps: true, ..SinkPlan::default() };
        let mut server = HostPlan::new(SourcePlan::nothing(), slow);
        server.limits.window_bytes = rng.u32(1..50) * 1472;
        let client = HostPlan::new(source, SinkPlan::default());
        let link = Link::new(rng.u64(50_000..5 * MS)).with_loss(rng.f64() * 0.1);
        let mut world = World::new(seed, client, server, link.clone(), link);
        world.finish(60 * SECOND);
        let (source, sink) = (&world.client.peer().source, &world.server.peer().sink);
        let missing: Vec<u64> = sink.missing.iter().copied().chain(sink.next..source.records()).collect();
        let mut dropped = source.dropped.clone();
        dropped.sort_unstable();
        assert_eq!(missing, dropped);
        let most = world.client.peer().most_backlog_bytes;
        // A sent record cannot be dropped any more: a window of it, and the queue with one unit on top.
        let window = world.server.peer().window * 1472;
        assert!(most <= 50_000 + window + 2 * MAX_SUPER_BYTES as u64, "{most} bytes");
    });
}
