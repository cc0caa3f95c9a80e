//! The properties of UDP alone: connected sockets, both families on one socket, refused offload, drops of every reason.

#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_device::{Device, Frame, MAX_SUPER_BYTES, Poller, Sent, UdpDevice, UdpOptions};
use crossdock_mailbox::{Pool, PoolConfig};
use std::io::{ErrorKind, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

fn bind(addr: &str, options: UdpOptions) -> UdpDevice {
    UdpDevice::bind(addr.parse().unwrap(), options).unwrap()
}

fn pool() -> Pool {
    Pool::new(PoolConfig::default()).unwrap()
}

fn send(device: &mut UdpDevice, to: SocketAddr, bytes: &[u8], stride: usize) {
    assert_eq!(device.send(to, &[IoSlice::new(bytes)], stride).unwrap(), Sent::Done);
}

fn wait(device: &UdpDevice) {
    let mut poller = Poller::new().unwrap();
    poller.add(device.as_fd().unwrap(), 1).unwrap();
    assert_eq!(poller.wait(Some(Duration::from_secs(10))).unwrap(), [1], "something should arrive");
}

fn one(device: &mut UdpDevice, pool: &mut Pool) -> Frame {
    wait(device);
    let mut frames = Vec::new();
    assert_eq!(device.receive(pool, &mut frames, 1).unwrap(), 1);
    frames.remove(0)
}

#[test]
fn a_connected_device_says_when_nobody_is_there() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // closed again at once
    let mut device = UdpDevice::connect(nobody, UdpOptions::default()).unwrap();
    assert_eq!(device.peer_addr(), Some(nobody));
    send(&mut device, nobody, b"hello", 5);
    wait(&device);
    let error = device.receive(&mut pool(), &mut Vec::new(), 8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    send(&mut device, nobody, b"hello", 5);
    wait(&device);
    let error = device.send(nobody, &[IoSlice::new(b"hello")], 5).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "whichever asks first gets it");
    assert_eq!(device.counters().errors, 2);
}

#[test]
fn a_connected_device_speaks_with_its_peer_only() {
    let (mut server, mut stranger) =
        (bind("127.0.0.1:0", UdpOptions::default()), bind("127.0.0.1:0", UdpOptions::default()));
    let mut client = UdpDevice::connect(server.local_addr(), UdpOptions::default()).unwrap();
    let mut pool = pool();
    send(&mut client, server.local_addr(), &[1; 3000], 1000);
    let frame = one(&mut server, &mut pool);
    assert_eq!(frame.from, client.local_addr());
    send(&mut stranger, client.local_addr(), b"me too", 6);
    send(&mut server, frame.from, b"welcome", 7);
    assert_eq!(one(&mut client, &mut pool).from, server.local_addr(), "the stranger is not heard");
    assert_eq!(client.receive(&mut pool, &mut Vec::new(), 8).unwrap(), 0);
    let error = client.send(stranger.local_addr(), &[IoSlice::new(b"x")], 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains(&format!("speaks with {} only", server.local_addr())), "{error}");
}

#[test]
fn one_socket_serves_both_families() {
    let mut server = bind("[::]:0", UdpOptions::default());
    let mut pool = pool();
    for (host, here) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1")] {
        let mut client = bind(host, UdpOptions::default());
        let to = SocketAddr::new(here.parse().unwrap(), server.local_addr().port());
        send(&mut client, to, &[7; 2000], 500);
        let frame = one(&mut server, &mut pool);
        assert_eq!(frame.from, client.local_addr(), "IPv4 addresses are reported as such");
        send(&mut server, frame.from, &[8; 2000], 500);
        let answer = one(&mut client, &mut pool);
        assert_eq!((answer.from, answer.packets().len()), (to, 4));
        assert_eq!(server.packet_bytes(frame.from), 8192);
    }
    let mut v4 = bind("127.0.0.1:0", UdpOptions::default());
    let error = v4.send("[::1]:9".parse().unwrap(), &[IoSlice::new(b"x")], 1).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("listen at [::]"), "{error}");
}

#[test]
fn an_address_in_use_is_named() {
    let device = bind("127.0.0.1:0", UdpOptions::default());
    let error = UdpDevice::bind(device.local_addr(), UdpOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&format!("cannot listen at {}", device.local_addr())), "{error}");
}

#[test]
fn offload_is_used_where_it_is_there_and_never_where_it_is_forbidden() {
    let (mut to, mut pool) = (bind("127.0.0.1:0", UdpOptions::default()), pool());
    let mut with = bind("127.0.0.1:0", UdpOptions::default());
    let mut without = bind("127.0.0.1:0", UdpOptions { offload: false, ..UdpOptions::default() });
    assert!(!without.info().cuts_in_kernel && !without.info().joins_in_kernel);
    send(&mut without, to.local_addr(), &[1; 20_000], 1000);
    assert_eq!((without.counters().supers_split, without.counters().send_calls), (1, 1));
    let mut got = 0;
    while got < 20 {
        got += one(&mut to, &mut pool).packets().len();
    }
    if with.info().cuts_in_kernel && to.info().joins_in_kernel {
        send(&mut with, to.local_addr(), &[1; 20_000], 1000);
        assert_eq!((with.counters().supers_split, with.counters().send_calls), (0, 1));
        assert_eq!(one(&mut to, &mut pool).packets().len(), 20, "it arrives in one piece");
    } else {
        println!("this kernel has no UDP offload: {:?}", with.info());
    }
}

#[test]
fn granted_features_of_the_kernel_are_reported() {
    let device =
        bind("127.0.0.1:0", UdpOptions { receive_buffer_bytes: 1, send_buffer_bytes: 1, ..Default::default() });
    let info = device.info();
    assert!(info.receive_buffer_bytes > 1 && info.send_buffer_bytes > 1, "the kernel has least sizes: {info:?}");
    assert!(bind("127.0.0.1:0", UdpOptions::default()).info().receive_buffer_bytes > info.receive_buffer_bytes);
}

#[test]
fn loopback_packets_are_as_long_as_wished() {
    for (wanted, expected) in [(0, 8), (1001, 1000), (8192, 8192), (65_000, 65_000), (1 << 20, MAX_SUPER_BYTES)] {
        let device = bind("127.0.0.1:0", UdpOptions { loopback_packet_bytes: wanted, ..UdpOptions::default() });
        assert_eq!(device.packet_bytes(device.local_addr()), expected);
    }
}

/// A pool whose largest buffer is smaller than what comes: counted and dropped, and the next one is well.
#[test]
fn arrivals_too_long_for_their_buffer_are_dropped() {
    let (mut from, mut to) = (bind("127.0.0.1:0", UdpOptions::default()), bind("127.0.0.1:0", UdpOptions::default()));
    let mut pool = Pool::new(PoolConfig { classes: vec![(1024, 20)] }).unwrap();
    send(&mut from, to.local_addr(), &[1; 1025], 1025);
    send(&mut from, to.local_addr(), &[2; 1024], 1024);
    let mut frames = Vec::new();
    while frames.is_empty() {
        wait(&to);
        to.receive(&mut pool, &mut frames, 8).unwrap();
    }
    assert_eq!(frames[0].buffer[..frames[0].len], [2; 1024]);
    assert_eq!(to.counters().dropped_truncated, 1);
}

#[test]
fn with_no_buffer_at_all_arrivals_are_dropped_and_counted() {
    let (mut from, mut to) = (bind("127.0.0.1:0", UdpOptions::default()), bind("127.0.0.1:0", UdpOptions::default()));
    let mut pool = Pool::new(PoolConfig { classes: vec![(1 << 16, 2)] }).unwrap();
    let held = [pool.alloc(1).unwrap(), pool.alloc(1).unwrap()];
    for _ in 0..3 {
        send(&mut from, to.local_addr(), &[1; 100], 100);
    }
    while to.counters().dropped_no_buffer < 3 {
        wait(&to);
        assert_eq!(to.receive(&mut pool, &mut Vec::new(), 8).unwrap(), 0);
    }
    drop(held);
    send(&mut from, to.local_addr(), &[1; 100], 100);
    assert_eq!(one(&mut to, &mut pool).len, 100);
}

#[test]
fn an_empty_datagram_is_counted_and_dropped() {
    for posted_buffers in [1, 8] {
        let mut to = bind("127.0.0.1:0", UdpOptions { posted_buffers, ..UdpOptions::default() });
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.send_to(&[], to.local_addr()).unwrap();
        from.send_to(&[9], to.local_addr()).unwrap();
        let mut pool = pool();
        wait(&to);
        let mut frames = Vec::new();
        while to.receive(&mut pool, &mut frames, 8).unwrap() == 0 {}
        assert_eq!((frames.len(), to.counters().dropped_empty), (1, 1));
    }
}

#[test]
fn drops_of_the_kernel_are_reported() {
    let (mut from, mut pool) = (bind("127.0.0.1:0", UdpOptions::default()), pool());
    let mut to = bind("127.0.0.1:0", UdpOptions { receive_buffer_bytes: 4096, ..UdpOptions::default() });
    for _ in 0..200 {
        send(&mut from, to.local_addr(), &[1; 1000], 1000);
    }
    // An arrival bears the count of the drops before it, so more are sent until the last one sent has come.
    let (mut sent, mut received, mut last) = (200u64, 0, 0);
    while last != sent {
        sent += 1;
        send(&mut from, to.local_addr(), &sent.to_le_bytes(), 8);
        wait(&to);
        let mut frames = Vec::new();
        while to.receive(&mut pool, &mut frames, 8).unwrap() > 0 {}
        received += frames.len() as u64;
        let marks = frames.iter().filter(|frame| frame.len == 8);
        last = marks.map(|frame| u64::from_le_bytes(frame.buffer[..8].try_into().unwrap())).max().unwrap_or(last);
    }
    assert!(received < sent, "200 KB do not fit 4 KiB");
    assert_eq!(to.counters().dropped_kernel + received, sent);
}

#[test]
fn a_bound_device_learns_which_peer_has_gone_and_still_speaks_with_the_others() {
    for (own, ip) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "::1"), ("::", "127.0.0.1")] {
        let at = SocketAddr::new(ip.parse().unwrap(), 0);
        let own = SocketAddr::new(own.parse().unwrap(), 0);
        let mut device = UdpDevice::bind(own, UdpOptions::default()).unwrap();
        // The bits of each packet come with its report.
        device.set_ecn(0b10);
        let gone = std::net::UdpSocket::bind(at).unwrap().local_addr().unwrap();
        let other = std::net::UdpSocket::bind(at).unwrap();
        assert_eq!(device.refused(), None);
        let packet = [IoSlice::new(b"anybody there?")];
        assert_eq!(device.send(gone, &packet, 14).unwrap(), Sent::Done);
        // Loopback answers within the call; the next ones meet the report and go through all the same.
        assert_eq!(device.send(other.local_addr().unwrap(), &packet, 14).unwrap(), Sent::Done);
        assert_eq!(other.recv(&mut [0; 20]).unwrap(), 14);
        assert_eq!(device.refused(), Some(gone));
        assert_eq!(device.refused(), None);
        assert_eq!(device.send(gone, &packet, 14).unwrap(), Sent::Done);
        let mut pool = Pool::new(PoolConfig::default()).unwrap();
        assert_eq!(device.receive(&mut pool, &mut Vec::new(), 8).unwrap(), 0);
        assert_eq!(device.refused(), Some(gone));
    }
}

#[test]
fn a_bound_socket_is_taken_over_with_what_waits_in_it() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let mut from = bind("127.0.0.1:0", UdpOptions::default());
    send(&mut from, to, b"early", 5);
    let mut device = UdpDevice::over(socket, UdpOptions::default()).unwrap();
    assert_eq!(device.local_addr(), to);
    assert_eq!(one(&mut device, &mut pool()).packets().next(), Some(&b"early"[..]));

    let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
    connected.connect(to).unwrap();
    let refused = UdpDevice::over(connected, UdpOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

/// Sends a packet that bears its sender's number, as one of `peers`.
fn speak(peers: &[UdpSocket], at: usize, to: SocketAddr) {
    assert_eq!(peers[at].send_to(&[at as u8], to).unwrap(), 1);
}

/// Which of the devices each of the next `count` packets comes to, by their sender's number.
fn heard(devices: &mut [UdpDevice], count: usize) -> Vec<(u8, usize)> {
    let (mut pool, mut heard) = (pool(), Vec::new());
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while heard.len() < count {
        assert!(std::time::Instant::now() < until, "{} of {count} packets came", heard.len());
        for (at, device) in devices.iter_mut().enumerate() {
            let mut frames = Vec::new();
            device.receive(&mut pool, &mut frames, 8).unwrap();
            heard.extend(frames.iter().flat_map(|frame| frame.buffer[..frame.len].iter().map(move |&from| (from, at))));
        }
    }
    heard
}

#[test]
fn devices_share_a_port_and_each_peers_packets_come_to_the_same_one() {
    for ip in ["127.0.0.1", "::1"] {
        let any = SocketAddr::new(ip.parse().unwrap(), 0);
        let mut devices = UdpDevice::bind_shared(any, 2, &UdpOptions::default()).unwrap();
        let to = devices[0].local_addr();
        assert!(to.port() != 0 && devices.iter().all(|device| device.local_addr() == to));
        let peers: Vec<UdpSocket> = (0..32).map(|_| UdpSocket::bind(any).unwrap()).collect();
        let mut homes = std::collections::HashMap::new();
        for _ in 0..10 {
            (0..peers.len()).for_each(|at| speak(&peers, at, to));
            for (from, at) in heard(&mut devices, peers.len()) {
                assert_eq!(*homes.entry(from).or_insert(at), at, "peer {from} came to both");
            }
        }
        // With 32 peers, that all come to one of two happens once in two thousand million times.
        assert!((0..2).all(|at| homes.values().any(|&home| home == at)), "{homes:?}");
        // Either answers from the address that both have.
        for device in &mut devices {
            send(device, peers[0].local_addr().unwrap(), b"!", 1);
            assert_eq!(peers[0].recv_from(&mut [0]).unwrap().1, to);
        }
    }
}

#[test]
fn a_port_is_shared_only_with_its_owner() {
    let any = "127.0.0.1:0".parse().unwrap();
    let taken = |addr, options: &UdpOptions| UdpDevice::bind_shared(addr, 2, options).unwrap_err().kind();
    let devices = UdpDevice::bind_shared(any, 2, &UdpOptions::default()).unwrap();
    // A second daemon that would share it as well, and one that would not.
    assert_eq!(taken(devices[0].local_addr(), &UdpOptions::default()), ErrorKind::AddrInUse);
    let error = UdpDevice::bind(devices[0].local_addr(), UdpOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with("cannot listen at 127.0.0.1:"), "{error}");
    let alone = bind("127.0.0.1:0", UdpOptions::default());
    let sharing = UdpOptions { share_port: true, ..UdpOptions::default() };
    assert_eq!(UdpDevice::bind(alone.local_addr(), sharing).unwrap_err().kind(), ErrorKind::AddrInUse);
}

#[test]
fn two_devices_over_one_socket_take_each_packet_once_and_count_each_drop_once() {
    let options = UdpOptions { receive_buffer_bytes: 4096, ..UdpOptions::default() };
    let first = UdpDevice::over(UdpSocket::bind("127.0.0.1:0").unwrap(), options).unwrap();
    let mut devices = [first.try_clone().unwrap(), first];
    let to = devices[0].local_addr();
    let peers = [UdpSocket::bind("127.0.0.1:0").unwrap()];
    speak(&peers, 0, to);
    assert_eq!(heard(&mut devices[1..], 1), [(0, 0)], "whichever looks has it");
    let mut pool = pool();
    // An arrival bears the count of the drops before it: both see them, in turn.
    let (mut sent, mut received) = (0, 0);
    for round in 0..20 {
        for _ in 0..100 {
            assert_eq!(peers[0].send_to(&[9; 1000], to).unwrap(), 1000);
        }
        // Loopback delivers within the call.
        let mut take = |at: usize| {
            let mut frames = Vec::new();
            while devices[at].receive(&mut pool, &mut frames, 8).unwrap() > 0 {}
            received += frames.len() as u64;
        };
        take(round % 2);
        for at in [0, 1] {
            peers[0].send_to(&[9], to).unwrap();
            take(at);
        }
        sent += 102;
    }
    let dropped: u64 = devices.iter().map(|device| device.counters().dropped_kernel).sum();
    assert!(dropped > 0 && received < sent);
    assert_eq!(dropped + received, sent);
    assert_eq!(devices[0].receive(&mut pool, &mut Vec::new(), 8).unwrap(), 0);
}

#[test]
fn a_socket_that_keeps_to_a_peer_hears_no_other_and_reports_that_it_is_gone() {
    for listens_at in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
        let mut here = bind(listens_at, UdpOptions::default());
        let there = if listens_at == "[::1]:0" { "[::1]:0" } else { "127.0.0.1:0" };
        let (mut peer, mut other) = (bind(there, UdpOptions::default()), bind(there, UdpOptions::default()));
        let addr = SocketAddr::new(peer.local_addr().ip(), here.local_addr().port());
        let mut pool = pool();
        here.keep_to(peer.local_addr());
        send(&mut other, addr, &[1; 100], 100);
        send(&mut peer, addr, &[2; 100], 100);
        let frame = one(&mut here, &mut pool);
        assert_eq!((frame.buffer[0], frame.from), (2, peer.local_addr()), "{listens_at}");
        send(&mut here, peer.local_addr(), &[3; 100], 100);
        assert_eq!(one(&mut peer, &mut pool).buffer[0], 3);
        let gone = peer.local_addr();
        drop(peer);
        send(&mut here, gone, &[4; 100], 100);
        let error = here.receive(&mut pool, &mut Vec::new(), 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{listens_at}");
    }
}

#[test]
fn the_bits_of_congestion_notification_come_as_they_were_sent() {
    for (here, there) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0"), ("[::]:0", "127.0.0.1:0")] {
        for offload in [true, false] {
            let options = UdpOptions { offload, ..UdpOptions::default() };
            let (mut from, mut to) = (bind(here, options.clone()), bind(there, options));
            let addr = to.local_addr();
            let mut pool = Pool::new(PoolConfig::default()).unwrap();
            let mut poller = Poller::new().unwrap();
            poller.add(to.as_fd().unwrap(), 1).unwrap();
            for (bits, count) in [0b10, 0, 0b11].into_iter().flat_map(|bits| [(bits, 3), (bits, 1)]) {
                from.set_ecn(bits);
                assert_eq!(from.ecn(), bits);
                assert_eq!(from.send(addr, &[IoSlice::new(&vec![7; count * 1000])], 1000).unwrap(), Sent::Done);
                let (mut frames, mut packets) = (Vec::new(), 0);
                while packets < count {
                    assert_eq!(poller.wait(Some(Duration::from_secs(10))).unwrap(), [1], "something should arrive");
                    frames.clear();
                    to.receive(&mut pool, &mut frames, 8).unwrap();
                    assert!(frames.iter().all(|frame| frame.ecn == bits), "{here} {offload}: {frames:?}");
                    packets += frames.iter().map(|frame| frame.packets().len()).sum::<usize>();
                }
            }
        }
    }
}
