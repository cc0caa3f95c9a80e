//! One suite for every device: what a caller may rely on, instantiated for each kind.

#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_device::{
    Device, Frame, MAX_SEGMENTS, MAX_SLICES, MAX_SUPER_BYTES, MemoryDevice, MemoryOptions, Poller, Sent, UdpDevice,
    UdpOptions,
};
use crossdock_mailbox::{Pool, PoolConfig};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use std::cell::RefCell;
use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

/// A pair of devices that reach each other, and their pools.
struct Pair {
    a: Box<dyn Device>,
    b: Box<dyn Device>,
    pool: Pool,
}

fn udp(addr: &str, options: &UdpOptions) -> Pair {
    let addr: SocketAddr = addr.parse().unwrap();
    let (a, b) = (UdpDevice::bind(addr, options.clone()).unwrap(), UdpDevice::bind(addr, options.clone()).unwrap());
    Pair { a: Box::new(a), b: Box::new(b), pool: Pool::new(PoolConfig::default()).unwrap() }
}

fn memory(options: MemoryOptions) -> Pair {
    let (a, b) = MemoryDevice::pair(options).unwrap();
    Pair { a: Box::new(a), b: Box::new(b), pool: Pool::new(PoolConfig::default()).unwrap() }
}

fn without_offload() -> UdpOptions {
    UdpOptions { offload: false, ..UdpOptions::default() }
}

/// Bytes that say their place and their message.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(31).wrapping_add(at.wrapping_mul(7)) >> (at & 3)) as u8).collect()
}

impl Pair {
    fn send(&mut self, bytes: &[u8], stride: usize) {
        let to = self.b.local_addr();
        assert_eq!(self.a.send(to, &[IoSlice::new(bytes)], stride).unwrap(), Sent::Done);
    }

    /// The frames that arrive at `b` until they are `packets` packets, waiting for each.
    fn arrivals(&mut self, packets: usize) -> Vec<Frame> {
        let mut poller = Poller::new().unwrap();
        poller.add(self.b.as_fd().unwrap(), 1).unwrap();
        let mut frames = Vec::new();
        while frames.iter().map(|frame: &Frame| frame.packets().len()).sum::<usize>() < packets {
            assert_eq!(poller.wait(Some(Duration::from_secs(10))).unwrap(), [1], "something should arrive");
            self.b.receive(&mut self.pool, &mut frames, 8).unwrap();
        }
        frames
    }

    fn packets(&mut self, packets: usize) -> Vec<Vec<u8>> {
        let frames = self.arrivals(packets);
        let from = self.a.local_addr();
        assert!(frames.iter().all(|frame| frame.from == from), "{frames:?} should be from {from}");
        frames.iter().flat_map(|frame| frame.packets().map(<[u8]>::to_vec)).collect()
    }
}

fn whole_packets_of_every_length(pair: &mut Pair) {
    let to = pair.b.local_addr();
    // Over IPv6 the loopback interface takes a little less, and nothing is fragmented.
    let longest = if to.is_ipv6() { pair.a.most_packet_bytes(to) } else { MAX_SUPER_BYTES };
    for len in [1, 2, 7, 8, 511, 512, 513, 1472, 8192, 16 << 10, (16 << 10) + 1, 40_000, longest] {
        let bytes = pattern(len, len);
        pair.send(&bytes, len);
        assert_eq!(pair.packets(1), [bytes], "a packet of {len} bytes");
    }
}

fn strides_are_right(pair: &mut Pair) {
    for (stride, packets, last) in
        [(8, 2, 1), (64, 64, 64), (100, 5, 99), (1216, 53, 700), (1472, 44, 1472), (8192, 7, 8192), (30_000, 2, 5)]
    {
        let bytes = pattern(stride, stride * (packets - 1) + last);
        pair.send(&bytes, stride);
        let expected: Vec<Vec<u8>> = bytes.chunks(stride).map(<[u8]>::to_vec).collect();
        assert_eq!(pair.packets(packets), expected, "{packets} packets of {stride}, the last {last}");
    }
}

fn slices_are_joined(pair: &mut Pair) {
    let bytes = pattern(3, 6000);
    let mut slices = Vec::new();
    let mut rest = &bytes[..];
    for len in [0, 1, 499, 1, 0, 1500, 2999, 1000].into_iter().cycle() {
        let (head, tail) = rest.split_at(rest.len().min(len));
        slices.push(IoSlice::new(head));
        rest = tail;
        if rest.is_empty() {
            break;
        }
    }
    let to = pair.b.local_addr();
    assert_eq!(pair.a.send(to, &slices, 1000).unwrap(), Sent::Done);
    let expected: Vec<Vec<u8>> = bytes.chunks(1000).map(<[u8]>::to_vec).collect();
    assert_eq!(pair.packets(6), expected);
    let each: Vec<IoSlice<'_>> = bytes[..MAX_SLICES].chunks(1).map(IoSlice::new).collect();
    assert_eq!(pair.a.send(to, &each, 100).unwrap(), Sent::Done);
    assert_eq!(pair.packets(6).concat(), bytes[..MAX_SLICES]);
}

fn order_is_kept(pair: &mut Pair) {
    let mut expected = Vec::new();
    for at in 0..40usize {
        let (stride, packets) = (200 + at * 8, 1 + at % 9);
        let bytes = pattern(at, stride * packets - at);
        pair.send(&bytes, stride);
        expected.extend(bytes.chunks(stride).map(<[u8]>::to_vec));
    }
    assert_eq!(pair.packets(expected.len()), expected);
}

fn nothing_there_is_zero(pair: &mut Pair) {
    let mut frames = Vec::new();
    assert_eq!(pair.b.receive(&mut pair.pool, &mut frames, 8).unwrap(), 0);
    pair.send(&[1; 100], 10);
    assert_eq!(pair.packets(10).len(), 10);
    assert_eq!(pair.b.receive(&mut pair.pool, &mut frames, 8).unwrap(), 0);
    assert_eq!(pair.b.receive(&mut pair.pool, &mut frames, 0).unwrap(), 0);
}

fn at_most_max_at_once(pair: &mut Pair) {
    for at in 0..20usize {
        pair.send(&pattern(at, 300), 300);
    }
    let mut poller = Poller::new().unwrap();
    poller.add(pair.b.as_fd().unwrap(), 1).unwrap();
    let (mut frames, mut total) = (Vec::new(), 0);
    while total < 20 {
        assert_eq!(poller.wait(Some(Duration::from_secs(10))).unwrap(), [1], "readable while something is there");
        let got = pair.b.receive(&mut pair.pool, &mut frames, 3).unwrap();
        assert!((1..=3).contains(&got));
        total += got;
        assert_eq!(frames.len(), total);
    }
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty(), "not readable once it is empty");
    for (at, frame) in frames.iter().enumerate() {
        assert_eq!(frame.buffer[..frame.len], pattern(at, 300));
    }
}

fn impossible_packets_are_refused(pair: &mut Pair) {
    let to = pair.b.local_addr();
    let bytes = vec![0; MAX_SUPER_BYTES + 1];
    let too_many_slices = vec![IoSlice::new(&[1]); MAX_SLICES + 1];
    let table: [(&[IoSlice<'_>], usize, &str); 6] = [
        (&[IoSlice::new(&bytes)], 8192, "65505 bytes: send at most 65504"),
        (&[IoSlice::new(&bytes[1..]), IoSlice::new(&bytes[..1])], 65_505, "65505 bytes: send at most 65504"),
        (&[IoSlice::new(&bytes[..MAX_SEGMENTS * 8 + 1])], 8, "65 packets: send at most 64"),
        (&[], 8, "0 bytes"),
        (&[IoSlice::new(&bytes[..8])], 0, "packets of 0"),
        (&too_many_slices, 1000, "513 slices"),
    ];
    for (slices, stride, expected) in table {
        let error = pair.a.send(to, slices, stride).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(expected), "{error} should say {expected:?}");
    }
    assert_eq!(pair.a.counters().supers_sent, 0);
    let mut frames = Vec::new();
    assert_eq!(pair.b.receive(&mut pair.pool, &mut frames, 8).unwrap(), 0, "nothing of it went out");
}

fn counters_add_up(pair: &mut Pair) {
    pair.send(&pattern(1, 1000), 300);
    pair.send(&pattern(2, 20_000), 20_000);
    assert_eq!(pair.packets(5).len(), 5);
    let (a, b) = (pair.a.counters(), pair.b.counters());
    assert_eq!((a.packets_sent, a.supers_sent, a.bytes_sent), (5, 2, 21_000));
    assert_eq!((b.packets_received, b.bytes_received), (5, 21_000));
    assert!((2..=5).contains(&b.supers_received));
    assert_eq!((b.dropped_no_buffer, b.dropped_truncated, b.errors, a.errors), (0, 0, 0, 0));
}

fn small_arrivals_take_small_buffers(pair: &mut Pair) {
    for (len, at_most) in [(100, 512), (2000, 2048), (9000, 16 << 10), (30_000, 64 << 10)] {
        pair.send(&pattern(len, len), len);
        let frames = pair.arrivals(1);
        assert!(frames[0].buffer.capacity() <= at_most, "{len} bytes in {}", frames[0].buffer.capacity());
    }
}

/// Any slices, cut to any stride, arrive as the same bytes in packets of that stride.
fn any_slices_at_any_stride(pair: &mut Pair) {
    let slices = prop::collection::vec(0usize..3000, 1..40);
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig { failure_persistence: None, ..ProptestConfig::default() },
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let strategy = (slices, 1usize..9000).prop_filter("a super-packet", |(slices, stride)| {
        let bytes: usize = slices.iter().sum();
        (1..=MAX_SUPER_BYTES).contains(&bytes) && bytes.div_ceil(*stride) <= MAX_SEGMENTS
    });
    let pair = RefCell::new(pair);
    let outcome = runner.run(&strategy, |(lens, stride)| {
        let mut pair = pair.borrow_mut();
        let bytes = pattern(stride, lens.iter().sum());
        let mut rest = &bytes[..];
        let slices = lens.iter().map(|&len| {
            let (head, tail) = rest.split_at(len);
            rest = tail;
            IoSlice::new(head)
        });
        let slices: Vec<_> = slices.collect();
        let to = pair.b.local_addr();
        prop_assert_eq!(pair.a.send(to, &slices, stride).unwrap(), Sent::Done);
        let expected: Vec<Vec<u8>> = bytes.chunks(stride).map(<[u8]>::to_vec).collect();
        prop_assert_eq!(pair.packets(expected.len()), expected);
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
}

/// With every large buffer in use, large arrivals are dropped and counted, and small ones still come.
fn without_buffers_small_packets_still_come(pair: &mut Pair) {
    pair.send(&[1; 100], 100);
    pair.arrivals(1); // whatever the device keeps posted, it has now
    let mut held = Vec::new();
    while let Some(buffer) = pair.pool.alloc(32 << 10) {
        held.push(buffer);
    }
    pair.send(&pattern(1, 40_000), 20_000);
    pair.send(&pattern(2, 200), 200);
    assert_eq!(pair.packets(1), [pattern(2, 200)]);
    assert_eq!(pair.b.counters().dropped_no_buffer, 2, "both packets of 20,000 bytes");
    drop(held);
    pair.send(&pattern(3, 40_000), 20_000);
    assert_eq!(pair.packets(2).concat(), pattern(3, 40_000), "and all is well again");
}

macro_rules! conformance {
    ($($name:ident: $make:expr;)*) => { $(
        mod $name {
            use super::*;
            conformance!(@each $make;
                whole_packets_of_every_length strides_are_right slices_are_joined order_is_kept nothing_there_is_zero
                at_most_max_at_once impossible_packets_are_refused counters_add_up small_arrivals_take_small_buffers
                any_slices_at_any_stride without_buffers_small_packets_still_come);
        }
    )* };
    (@each $make:expr; $($case:ident)*) => { $(
        #[test]
        fn $case() {
            super::$case(&mut $make);
        }
    )* };
}

conformance! {
    udp_v4: udp("127.0.0.1:0", &UdpOptions::default());
    udp_v4_without_offload: udp("127.0.0.1:0", &without_offload());
    udp_v6: udp("[::1]:0", &UdpOptions::default());
    udp_v6_without_offload: udp("[::1]:0", &without_offload());
    memory_joined: memory(MemoryOptions::default());
    memory_one_by_one: memory(MemoryOptions { joins: false, ..MemoryOptions::default() });
}

/// Two ends in memory, the queue bounded: full is full, nothing is taken, and room comes back.
#[test]
fn a_full_device_takes_nothing() {
    let mut pair = memory(MemoryOptions { queue_bytes: 3000, ..MemoryOptions::default() });
    let to = pair.b.local_addr();
    pair.send(&pattern(1, 2000), 2000);
    assert_eq!(pair.a.send(to, &[IoSlice::new(&pattern(2, 1500))], 500).unwrap(), Sent::Full);
    pair.send(&pattern(3, 1000), 1000);
    assert_eq!(pair.packets(2), [pattern(1, 2000), pattern(3, 1000)]);
    pair.send(&pattern(4, 1500), 500);
    assert_eq!(pair.packets(3).concat(), pattern(4, 1500));
    assert_eq!((pair.a.counters().full, pair.a.counters().supers_sent), (1, 3));
}

#[test]
fn an_end_in_memory_learns_that_the_other_is_gone() {
    let mut pair = memory(MemoryOptions::default());
    let to = pair.b.local_addr();
    drop(pair.b);
    assert_eq!(pair.a.send(to, &[IoSlice::new(b"x")], 1).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
