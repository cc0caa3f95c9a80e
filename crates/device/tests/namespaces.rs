//! Real interfaces: two network namespaces with a veth between them. Needs root and `ip`; says so and passes elsewhere.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test that fails may panic, and one that is skipped says so

use crossdock_device::{Device, Interest, MAX_SUPER_BYTES, Poller, Sent, UdpDevice, UdpOptions, is_too_long};
use crossdock_mailbox::{Pool, PoolConfig};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Two namespaces, `left` at 10.77.0.1 and fd77::1, `right` at .2; gone when dropped.
struct Wire {
    left: String,
    right: String,
}

fn ip(args: &str) -> Result<(), String> {
    run("ip", args)
}

fn run(program: &str, args: &str) -> Result<(), String> {
    let output = Command::new(program).args(args.split(' ')).output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {args}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

impl Wire {
    fn new(mtu: usize) -> Result<Wire, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("needs root".to_owned());
        }
        let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let wire = Wire { left: format!("crossdock-l{id}"), right: format!("crossdock-r{id}") };
        ip(&format!("netns add {}", wire.left))?;
        ip(&format!("netns add {}", wire.right))?;
        ip(&format!("-n {} link add va mtu {mtu} type veth peer name vb mtu {mtu} netns {}", wire.left, wire.right))?;
        for (space, link, host) in [(&wire.left, "va", 1), (&wire.right, "vb", 2)] {
            ip(&format!("-n {space} addr add 10.77.0.{host}/24 dev {link}"))?;
            ip(&format!("-n {space} addr add fd77::{host}/64 dev {link} nodad"))?;
            ip(&format!("-n {space} link set {link} up"))?;
            ip(&format!("-n {space} link set lo up"))?;
        }
        Ok(wire)
    }

    /// Runs `work` in a thread that lives in namespace `space`.
    fn within<T: Send>(space: &str, work: impl FnOnce() -> T + Send) -> T {
        let file = std::fs::File::open(format!("/run/netns/{space}")).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }

    /// A device in the right namespace.
    fn bind_right(&self, addr: &str, options: &UdpOptions) -> UdpDevice {
        Wire::within(&self.right, || bind(addr, options))
    }
}

fn bind(addr: &str, options: &UdpOptions) -> UdpDevice {
    UdpDevice::bind(addr.parse().unwrap(), options.clone()).unwrap()
}

impl Drop for Wire {
    fn drop(&mut self) {
        for space in [&self.left, &self.right] {
            let _never_made = ip(&format!("netns del {space}"));
        }
    }
}

/// Does `work` in the left namespace of a new wire, or prints why there is none.
fn on_a_wire(mtu: usize, work: impl FnOnce(&Wire) + Send) {
    match Wire::new(mtu) {
        Ok(wire) => Wire::within(&wire.left, || work(&wire)),
        Err(reason) => println!("skipped: {reason}"),
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect()
}

/// Sends one super-packet and compares what arrives; gives the arrivals' number.
fn cross(from: &mut UdpDevice, to: &mut UdpDevice, addr: SocketAddr, bytes: &[u8], stride: usize) -> usize {
    let mut pool = Pool::new(PoolConfig::default()).unwrap();
    let mut poller = Poller::new().unwrap();
    poller.add(to.as_fd().unwrap(), 1).unwrap();
    assert_eq!(from.send(addr, &[IoSlice::new(bytes)], stride).unwrap(), Sent::Done);
    let (mut frames, mut got) = (Vec::new(), Vec::new());
    while got.iter().map(Vec::len).sum::<usize>() < bytes.len() {
        assert_eq!(poller.wait(Some(Duration::from_secs(10))).unwrap(), [1], "something should arrive");
        frames.clear();
        to.receive(&mut pool, &mut frames, 8).unwrap();
        got.extend(frames.iter().flat_map(|frame| frame.packets().map(<[u8]>::to_vec)));
    }
    assert_eq!(got, bytes.chunks(stride).map(<[u8]>::to_vec).collect::<Vec<_>>());
    to.counters().supers_received as usize
}

fn cross_narrow(wire: &Wire, any: &str, target: &str, expected: usize, offload: bool) {
    let options = UdpOptions { offload, ..UdpOptions::default() };
    let (mut left, mut right) = (bind(any, &options), wire.bind_right(any, &options));
    let to = SocketAddr::new(target.parse().unwrap(), right.local_addr().port());
    let stride = left.packet_bytes(to);
    assert_eq!(stride, expected, "to {to}");
    cross(&mut left, &mut right, to, &pattern(stride * 44 - 300), stride);
    assert_eq!(left.counters().supers_split, u64::from(!offload));
    assert_eq!(right.counters().packets_received, 44);
    // A packet longer than the wire's MTU is refused, alone or among others: nothing is fragmented.
    for (len, stride) in [(MAX_SUPER_BYTES, MAX_SUPER_BYTES), (40_000, 8192)] {
        let refused = left.send(to, &[IoSlice::new(&pattern(len))], stride).unwrap_err();
        assert!(is_too_long(&refused), "{refused}");
    }
    let counters = left.counters();
    assert_eq!((counters.fallbacks, counters.errors), (0, 2), "a narrow path is no reason to give offload up");
    assert_eq!(counters.supers_split, if offload { 1 } else { 2 });
    assert_eq!(left.info().cuts_in_kernel, offload);
}

#[test]
fn super_packets_cross_a_narrow_wire_whole() {
    on_a_wire(1500, |wire| {
        for offload in [true, false] {
            cross_narrow(wire, "0.0.0.0:0", "10.77.0.2", 1472, offload);
            cross_narrow(wire, "[::]:0", "fd77::2", 1448, offload);
            cross_narrow(wire, "[::]:0", "10.77.0.2", 1472, offload);
        }
    });
}

#[test]
fn an_address_of_this_machine_is_as_good_as_loopback() {
    on_a_wire(1500, |_| {
        let left = bind("[::]:0", &UdpOptions::default());
        for own in ["10.77.0.1:9", "[fd77::1]:9"] {
            assert_eq!(left.packet_bytes(own.parse().unwrap()), 8192, "{own}");
        }
    });
}

#[test]
fn a_path_that_narrows_is_noticed() {
    on_a_wire(9000, |wire| {
        let (mut left, mut right) =
            (bind("0.0.0.0:0", &UdpOptions::default()), wire.bind_right("0.0.0.0:0", &UdpOptions::default()));
        let to = SocketAddr::new([10, 77, 0, 2].into(), right.local_addr().port());
        assert_eq!(left.packet_bytes(to), 8968);
        cross(&mut left, &mut right, to, &pattern(60_000), 8968);
        ip(&format!("-n {} link set va mtu 1500", wire.left)).unwrap();
        let refused = left.send(to, &[IoSlice::new(&pattern(60_000))], 8968).unwrap_err();
        assert!(is_too_long(&refused), "{refused}");
        assert_eq!(left.packet_bytes(to), 1472, "asked anew");
        cross(&mut left, &mut right, to, &pattern(60_000), 1472);
        assert_eq!((left.counters().fallbacks, left.counters().supers_split), (0, 1));
    });
}

/// A router says that its next link is narrower. The calls that come after the packet, which are about others, do not fail for that,
/// offload stays, and nothing is left to poll.
#[test]
fn a_report_of_a_narrow_link_spoils_no_later_call() {
    on_a_wire(1500, |wire| {
        ip(&format!("-n {} link add vc mtu 1300 type veth peer name vd mtu 1300", wire.right)).unwrap();
        ip(&format!("-n {} addr add 10.78.0.1/24 dev vc", wire.right)).unwrap();
        ip(&format!("-n {} link set vc up", wire.right)).unwrap();
        ip(&format!("-n {} link set vd up", wire.right)).unwrap();
        ip(&format!("-n {} route add 10.78.0.0/24 via 10.77.0.2", wire.left)).unwrap();
        Wire::within(&wire.right, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
        for offload in [true, false] {
            let options = UdpOptions { offload, ..UdpOptions::default() };
            let beyond: SocketAddr = "10.78.0.9:9".parse().unwrap();
            let mut right = wire.bind_right("0.0.0.0:0", &options);
            let near = SocketAddr::new([10, 77, 0, 2].into(), right.local_addr().port());
            let mut anyones = bind("0.0.0.0:0", &options);
            report_and_go_on(&mut anyones, beyond, |left| {
                cross(left, &mut right, near, &pattern(60_000), 1472);
            });
            report_and_go_on(&mut UdpDevice::connect(beyond, options).unwrap(), beyond, |left| {
                assert_eq!(left.send(beyond, &[IoSlice::new(&pattern(60_000))], 1200).unwrap(), Sent::Done);
            });
        }
    });
}

/// Sends a packet that is too long for a link behind the first, and goes on, with a packet or with a look for what has come.
fn report_and_go_on(left: &mut UdpDevice, beyond: SocketAddr, mut go_on: impl FnMut(&mut UdpDevice)) {
    let (mut poller, mut pool) = (Poller::new().unwrap(), Pool::new(PoolConfig::default()).unwrap());
    poller.add(left.as_fd().unwrap(), 1).unwrap();
    let cuts = left.info().cuts_in_kernel;
    for sends in [true, false] {
        assert_eq!(left.send(beyond, &[IoSlice::new(&pattern(1472))], 1472).unwrap(), Sent::Done);
        assert_eq!(poller.wait(Some(Duration::from_secs(10))).unwrap(), [1], "the router answers");
        if sends {
            go_on(left);
        } else {
            assert_eq!(left.receive(&mut pool, &mut Vec::new(), 8).unwrap(), 0);
        }
        assert_eq!(left.refused(), None, "nobody has gone");
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    }
    assert_eq!((left.info().cuts_in_kernel, left.counters().fallbacks, left.counters().errors), (cuts, 0, 0));
}

/// A slow interface and a small send buffer: the device says it is full, and later that it is writable again.
#[test]
fn a_slow_wire_fills_the_device() {
    on_a_wire(1500, |wire| {
        let shape = "qdisc add dev va root tbf rate 200mbit burst 16kb limit 10mb";
        if let Err(reason) = run("tc", &format!("-n {} {shape}", wire.left)) {
            println!("skipped: {reason}");
            return;
        }
        for offload in [true, false] {
            fill(wire, offload);
        }
    });
}

fn fill(wire: &Wire, offload: bool) {
    let options = UdpOptions { send_buffer_bytes: 100_000, offload, ..UdpOptions::default() };
    let (mut left, right) = (bind("0.0.0.0:0", &options), wire.bind_right("0.0.0.0:0", &options));
    let to = SocketAddr::new([10, 77, 0, 2].into(), right.local_addr().port());
    let bytes = pattern(1472 * 40);
    let mut poller = Poller::new().unwrap();
    poller.add(left.as_fd().unwrap(), 3).unwrap();
    poller.watch(left.as_fd().unwrap(), 3, Interest::Write).unwrap();
    let mut taken = 0u64;
    while left.counters().full < 3 {
        match left.send(to, &[IoSlice::new(&bytes)], 1472).unwrap() {
            Sent::Done => taken += 1,
            Sent::Full => assert_eq!(poller.wait(Some(Duration::from_secs(10))).unwrap(), [3], "it drains"),
        }
    }
    let counters = left.counters();
    assert_eq!((counters.supers_sent, counters.errors), (taken, 0));
    assert_eq!(counters.packets_sent + counters.dropped_partial, taken * 40, "every packet has its count");
    assert_eq!(counters.bytes_sent, counters.packets_sent * 1472);
}
