//! Congestion marks: a queue that marks is not overflowed, and paths that spoil the bits cost nothing.

use crate::congestion::{PACKET_BYTES, flow, packets_per_s};
use crate::{MS, SECOND};
use crossdock_sim::{EcnPath, Link, check};

#[test]
fn a_queue_that_marks_is_not_overflowed() {
    check("a_queue_that_marks_is_not_overflowed", 5, |seed| {
        let line = Link::new(10 * MS).with_bandwidth(10_000_000, 1_000_000);
        let link = Link { mark_bytes: 150_000, ..line };
        let mut world = flow(seed, 16 << 20, 0, &link);
        let used = packets_per_s(&mut world, 2 * SECOND, 12 * SECOND) * PACKET_BYTES as f64 / 1e7;
        assert!(used >= 0.9, "{used} of the line: {}", world.report());
        let (sender, path) = (&world.client.peer().session.sender, world.links().0);
        assert_eq!((path.overflowed, sender.stats().resent), (0, 0), "{}", world.report());
        assert!(sender.marks_ecn() && sender.marked_packets() > 0, "{}", world.report());
        assert!(sender.marked_packets() <= path.marked, "{}", world.report());
    });
}

#[test]
fn a_path_that_spoils_the_bits_is_filled_without_them() {
    for ecn in [EcnPath::Cleared, EcnPath::Marked, EcnPath::Dropped] {
        check("a_path_that_spoils_the_bits_is_filled_without_them", 3, |seed| {
            let link = Link { ecn, ..Link::new(10 * MS).with_bandwidth(10_000_000, 1_000_000) };
            let mut world = flow(seed, 16 << 20, 0, &link);
            let used = packets_per_s(&mut world, 6 * SECOND, 12 * SECOND) * PACKET_BYTES as f64 / 1e7;
            assert!(used >= 0.9, "{used} of the line, {ecn:?}: {}", world.report());
            assert!(!world.client.peer().session.sender.marks_ecn(), "{ecn:?}");
        });
    }
}

#[test]
fn a_route_that_begins_to_drop_the_bits_is_filled_without_them() {
    check("a_route_that_begins_to_drop_the_bits_is_filled_without_them", 3, |seed| {
        let line = Link::new(10 * MS).with_bandwidth(10_000_000, 1_000_000);
        let mut world = flow(seed, 16 << 20, 0, &line);
        world.run(3 * SECOND, |_| false);
        assert!(world.client.peer().session.sender.marks_ecn(), "{}", world.report());
        world.network.link(world.client.address, world.server.address, Link { ecn: EcnPath::Dropped, ..line });
        let used = packets_per_s(&mut world, 8 * SECOND, 14 * SECOND) * PACKET_BYTES as f64 / 1e7;
        assert!(used >= 0.9, "{used} of the line: {}", world.report());
        assert!(!world.client.peer().session.sender.marks_ecn(), "{}", world.report());
    });
}
