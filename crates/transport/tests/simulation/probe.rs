use crate::host::HostPlan;
use crate::traffic::{SinkPlan, SourcePlan};
use crate::world::World;
use crate::{MS, SECOND};
use crossdock_sim::Link;

fn one(name: &str, link: Link, source: SourcePlan, window: u32, seeds: u64) {
    let (mut util, mut resent, mut lost, mut packets, mut timeouts, mut acks, mut time, mut dup, mut over) =
        (0.0, 0, 0, 0, 0, 0, 0, 0, 0);
    for seed in 0..seeds {
        let client = HostPlan::new(source.clone(), SinkPlan::default());
        let mut server = HostPlan::new(SourcePlan::nothing(), SinkPlan::default());
        server.limits.window_packets = window;
        let mut world = World::new(seed, client, server, link.clone(), link.clone());
        if !world.run(600 * SECOND, World::is_finished) {
            println!("{name} NOT FINISHED {}", world.report());
            return;
        }
        let up = world.network.stats(world.client.address, world.server.address);
        let stats = world.client.peer().session.sender.stats();
        let ns = world.network.now_ns();
        time += ns;
        if link.bytes_per_s > 0 {
            util += world.server.peer().sink.bytes as f64 / (ns as f64 / 1e9) / link.bytes_per_s as f64;
        }
        resent += stats.resent;
        timeouts += stats.timeouts;
        packets += stats.packets;
        lost += up.lost + up.overflowed;
        over += up.overflowed;
        acks += world.server.counters.acks_sent;
        dup += world.server.counters.duplicates;
    }
    let s = seeds as f64;
    println!(
        "{name:40} time {:8.1} ms  util {:.3}  packets {:7} lost {:6} (overflow {:6}) resent {:6} dup {:6} timeouts {:4} acks {:6}",
        time as f64 / s / 1e6,
        util / s,
        packets / seeds,
        lost / seeds,
        over / seeds,
        resent / seeds,
        dup / seeds,
        timeouts / seeds,
        acks / seeds
    );
}

#[test]
fn probe() {
    let bulk = |n| SourcePlan::bulk(n);
    one("loopback bulk", Link::new(25_000), bulk(200_000), 1024, 2);
    for q in [16, 32, 64, 128, 256, 1024] {
        one(
            &format!("10MB/s 20ms rtt queue {q}K"),
            Link::new(10 * MS).with_bandwidth(10_000_000, q << 10),
            bulk(200_000),
            4096,
            2,
        );
    }
    for q in [64, 256, 1024, 4096] {
        one(
            &format!("100MB/s 50ms rtt queue {q}K"),
            Link::new(25 * MS).with_bandwidth(100_000_000, q << 10),
            bulk(1_000_000),
            16384,
            1,
        );
    }
    one(
        "1Gb/s lan 200us queue 256K",
        Link::new(100_000).with_bandwidth(125_000_000, 256 << 10),
        bulk(1_000_000),
        1024,
        1,
    );
    for loss in [0.001, 0.01, 0.05, 0.1, 0.3] {
        one(&format!("loss {loss} 1ms"), Link::new(MS / 2).with_loss(loss), bulk(100_000), 1024, 3);
        one(&format!("loss {loss} 20ms"), Link::new(10 * MS).with_loss(loss), bulk(100_000), 1024, 3);
    }
    one(
        "jitter 50% loss 0.01 20ms",
        Link { jitter_ns: 5 * MS, ..Link::new(10 * MS).with_loss(0.01) },
        bulk(100_000),
        1024,
        3,
    );
    one("jitter 50% no loss 20ms", Link { jitter_ns: 5 * MS, ..Link::new(10 * MS) }, bulk(100_000), 1024, 3);
    one(
        "reordering 5% by 2 ms",
        Link { reordering: 0.05, reordering_ns: 2 * MS, ..Link::new(10 * MS) },
        bulk(100_000),
        1024,
        3,
    );
    for d in [50_000, 5 * MS, 20 * MS, 45 * MS, 150 * MS] {
        let s = SourcePlan { unit_records: 1..=4, interval_ns: 7 * MS, ..bulk(4000) };
        one(&format!("trickle no loss delay {} us", d / 1000), Link::new(d), s.clone(), 1024, 1);
        one(&format!("trickle 5% loss delay {} us", d / 1000), Link::new(d).with_loss(0.05), s, 1024, 2);
        let s = SourcePlan { unit_records: 1..=1, backlog_bytes: 1, ..bulk(200) };
        one(&format!("stop-and-wait no loss delay {} us", d / 1000), Link::new(d), s.clone(), 1024, 1);
        one(&format!("stop-and-wait 10% loss delay {} us", d / 1000), Link::new(d).with_loss(0.1), s, 1024, 4);
    }
}
