//! The packets that a daemon sends in a turn, where nothing is wrong: their order and their number.

use super::model::Query;
use super::world::{MS, World, WorldPlan};
use crossdock_sim::Link;
use crossdock_transport::PacketKind;

/// The kinds of packets that a daemon with a publisher and a subscriber sends within a second, turn by turn.
fn turns(seed: u64, burst: (usize, u64)) -> Vec<Vec<PacketKind>> {
    let plan = WorldPlan {
        contexts: 1,
        is_secure: false,
        link: Link::new(20_000),
        // The packets are looked at after each turn of the context.
        rounds: 1,
        is_durable: false,
        is_routed: false,
        strays: 0,
    };
    let mut world = World::new(seed, plan);
    world.publish(0, burst);
    world.subscribe(0, Query::All, (1000, MS));
    let begun_ns = world.network.now_ns();
    world.run(begun_ns + 500 * MS, |_| false);
    let handed = world.model.publishers[0].handed;
    world.turns = Some(Vec::new());
    world.run(begun_ns + 1500 * MS, |_| false);
    assert!(world.model.publishers[0].handed > handed, "the publisher goes on: {}", world.report());
    world.turns.take().unwrap_or_default()
}

fn count(turns: &[Vec<PacketKind>], kind: PacketKind) -> usize {
    turns.iter().flatten().filter(|sent| **sent == kind).count()
}

#[test]
fn records_leave_before_the_packets_that_acknowledge_them() {
    let mut both = 0;
    for seed in 0..3 {
        for sent in turns(seed, (40, MS)) {
            let last_data = sent.iter().rposition(|kind| *kind == PacketKind::Data);
            let first_ack = sent.iter().position(|kind| *kind == PacketKind::Ack);
            if let (Some(last_data), Some(first_ack)) = (last_data, first_ack) {
                both += 1;
                assert!(last_data < first_ack, "seed {seed}: {sent:?}");
            }
        }
    }
    assert!(both >= 30, "in {both} turns records left, and acks");
}

#[test]
fn a_record_that_comes_alone_takes_one_packet_and_an_ack_at_most() {
    let sent = turns(1, (1, 5 * MS));
    let (data, acks) = (count(&sent, PacketKind::Data), count(&sent, PacketKind::Ack));
    assert!(data >= 50, "{data} packets of records");
    assert!(acks <= data, "{acks} acks for {data} packets of records");
    let all = sent.iter().flatten().count();
    assert!(all <= data + acks + 10, "{all} packets in all, {data} of them with records, {acks} of them acks");
}
