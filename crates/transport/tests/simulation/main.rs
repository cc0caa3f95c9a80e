//! Whole sessions in virtual time, over paths that lose, double, mix up, spoil and hold what they carry.
//!
//! Each test runs under many seeds; a failure prints the seed and the command that repeats it.

mod host;
mod probe;
mod traffic;
mod world;

use crossdock_sim::{Link, Rng, check};
use crossdock_transport::Limits;
use host::HostPlan;
use traffic::{SinkPlan, SourcePlan};
use world::World;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Spoils a datagram as it may get past UDP's checksum in the tests: so that the header shows it. (What flips deeper down is
/// for the checksum to find: packets have none of their own.)
fn spoil_header(rng: &mut Rng, bytes: &mut Vec<u8>) {
    match rng.u8(..4) {
        0 => bytes[0] ^= 1 << rng.u8(..8),
        1 => bytes[1] ^= 8 << rng.u8(..5),
        // A claim of 32 KiB and more, which no packet here has.
        2 => bytes[3] |= 0x80,
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

/// Any path with at most `loss`.
fn any_link(rng: &mut Rng, loss: f64) -> Link {
    let often = |rng: &mut Rng, most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
    let delay_ns = log_uniform(rng, 5_000, 100 * MS);
    let link = Link {
        jitter_ns: if rng.bool() { rng.u64(..=delay_ns) } else { 0 },
        loss: often(rng, loss),
        duplication: often(rng, 0.3),
        reordering: often(rng, 0.3),
        reordering_ns: rng.u64(..=4 * delay_ns),
        corruption: often(rng, 0.05),
        corrupt: spoil_header,
        ..Link::new(delay_ns)
    };
    if rng.bool() {
        let bytes_per_s = log_uniform(rng, 1 << 20, 1 << 30);
        let queue_bytes = log_uniform(rng, 32 << 10, 4 << 20);
        link.with_bandwidth(bytes_per_s, queue_bytes)
    } else {
        link
    }
}

fn any_host(rng: &mut Rng, messages: u64) -> HostPlan {
    HostPlan {
        packet_bytes: [128, 512, 1472, 8192][rng.usize(..4)],
        limits: Limits { window_packets: log_uniform(rng, 1, 2000) as u32, idle_timeout_ns: 60 * SECOND },
        turn_ns: log_uniform(rng, 1000, MS),
        device_full: if rng.u8(..4) == 0 { 0.2 } else { 0.0 },
        ..HostPlan::new(SourcePlan::any(rng, messages), SinkPlan::any(rng))
    }
}

#[test]
fn every_message_arrives_once_and_in_order_whatever_the_path_does() {
    check("every_message_arrives_once_and_in_order_whatever_the_path_does", 500, |seed| {
        let mut rng = Rng::with_seed(seed);
        let (up, down) = (any_link(&mut rng, 0.3), any_link(&mut rng, 0.3));
        let (most_up, most_down) = (rng.u64(..1500), rng.u64(..1500));
        let client = any_host(&mut rng, most_up);
        let server = any_host(&mut rng, most_down);
        let mut world = World::new(seed, client, server, up, down);
        world.finish(400 * SECOND);
        if std::env::var("SHOW").is_ok() {
            println!(
                "{seed:#x} {} {} \n{:?}\n{:?}\n{}",
                world.network.now_ns() / MS,
                world.network.steps(),
                world.client.plan,
                world.server.plan,
                world.report()
            );
        }
        for (host, peer) in [(&world.client, &world.server), (&world.server, &world.client)] {
            assert_eq!(host.counters.beyond, 0, "credit was exceeded: {}", world.report());
            let spoilt = world.network.stats(peer.address, host.address).corrupted;
            assert!(host.counters.refused_total() <= spoilt, "{}", world.report());
        }
    });
}
