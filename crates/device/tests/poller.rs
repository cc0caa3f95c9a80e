//! The one place to sleep: readiness, the doorbell, and time.

#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_device::{Device, Interest, MemoryDevice, MemoryOptions, Poller, Sent};
use crossdock_mailbox::{Pool, PoolConfig, ring};
use std::io::IoSlice;
use std::time::{Duration, Instant};

const LONG: Option<Duration> = Some(Duration::from_secs(30));

#[test]
fn nothing_ready_ends_with_the_time() {
    let mut poller = Poller::new().unwrap();
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    for time in [Duration::from_nanos(1), Duration::from_micros(100)] {
        let start = Instant::now();
        assert!(poller.wait(Some(time)).unwrap().is_empty());
        assert!(start.elapsed() >= time);
    }
}

#[test]
fn readiness_is_a_state() {
    let (mut a, mut b) = MemoryDevice::pair(MemoryOptions::default()).unwrap();
    let mut poller = Poller::new().unwrap();
    poller.add(b.as_fd().unwrap(), 5).unwrap();
    assert_eq!(a.send(b.local_addr(), &[IoSlice::new(b"x")], 1).unwrap(), Sent::Done);
    for _ in 0..2 {
        assert_eq!(poller.wait(LONG).unwrap(), [5], "as long as it is not taken");
    }
    let mut pool = Pool::new(PoolConfig { classes: vec![(64, 1)] }).unwrap();
    assert_eq!(b.receive(&mut pool, &mut Vec::new(), 8).unwrap(), 1);
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    poller.watch(b.as_fd().unwrap(), 6, Interest::ReadWrite).unwrap();
    assert_eq!(poller.wait(LONG).unwrap(), [6], "an eventfd can be written");
    poller.remove(b.as_fd().unwrap()).unwrap();
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    assert!(poller.remove(b.as_fd().unwrap()).is_err());
}

#[test]
fn a_descriptor_watched_by_its_edges_is_reported_once_a_write() {
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let ring = || rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
    let mut poller = Poller::new().unwrap();
    poller.add_edge(&bell, 7).unwrap();
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    for _ in 0..3 {
        ring();
        ring();
        assert_eq!(poller.wait(LONG).unwrap(), [7], "though it was never read");
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    }
    // Another descriptor of the same file keeps it open.
    let other = bell.try_clone().unwrap();
    poller.remove(&bell).unwrap();
    drop(bell);
    rustix::io::write(&other, &1u64.to_ne_bytes()).unwrap();
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
}

#[test]
fn the_doorbells_key_is_its_own() {
    let (a, _b) = MemoryDevice::pair(MemoryOptions::default()).unwrap();
    let mut poller = Poller::new().unwrap();
    assert_eq!(poller.add(a.as_fd().unwrap(), Poller::DOORBELL).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn a_ring_before_the_sleep_is_not_slept_over() {
    let mut poller = Poller::new().unwrap();
    let doorbell = poller.doorbell();
    doorbell.ring();
    doorbell.clone().ring();
    assert_eq!(poller.wait(LONG).unwrap(), [Poller::DOORBELL], "two rings are one answer");
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    doorbell.ring();
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty(), "a look leaves it to the sleep that follows");
    assert_eq!(poller.wait(LONG).unwrap(), [Poller::DOORBELL], "which does not begin");
    assert!(poller.wait(Some(Duration::from_millis(1))).unwrap().is_empty(), "it is answered once");
}

#[test]
fn many_ready_descriptors_are_all_reported() {
    let mut poller = Poller::new().unwrap();
    let devices: Vec<_> = (0..100).map(|_| MemoryDevice::pair(MemoryOptions::default()).unwrap()).collect();
    for (key, (device, _)) in devices.iter().enumerate() {
        poller.add(device.as_fd().unwrap(), key as u64).unwrap();
        poller.watch(device.as_fd().unwrap(), key as u64, Interest::Write).unwrap();
    }
    let mut seen = std::collections::HashSet::new();
    while seen.len() < devices.len() {
        seen.extend(poller.wait(LONG).unwrap().iter().copied());
    }
}

/// The protocol that contexts use: push, ring; wait, drain. Nothing may be slept over.
#[test]
fn no_work_is_slept_over() {
    const ITEMS: u64 = 20_000;
    let mut poller = Poller::new().unwrap();
    let (mut producer, mut consumer) = ring::ring::<u64>(8);
    let doorbell = poller.doorbell();
    let put = std::thread::spawn(move || {
        for item in 0..ITEMS {
            let mut item = item;
            while let Err(back) = producer.push(item) {
                item = back;
                std::thread::yield_now();
            }
            doorbell.ring();
        }
    });
    let mut expected = 0;
    while expected < ITEMS {
        while let Some(item) = consumer.pop() {
            assert_eq!(item, expected);
            expected += 1;
        }
        if expected < ITEMS {
            // It may return early, for a ring that was answered before; never for want of one.
            let start = Instant::now();
            poller.wait(LONG).unwrap();
            assert!(start.elapsed() < LONG.unwrap(), "slept over item {expected}");
        }
    }
    put.join().unwrap();
}

#[test]
fn a_copy_is_watched_until_it_is_dropped_on_any_thread_also_after_its_original() {
    let bell = rustix::event::eventfd(1, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let mut poller = Poller::new().unwrap();
    let copy = poller.add_copy(&bell, 7).unwrap();
    let other = bell.try_clone().unwrap();
    drop(bell);
    assert_eq!(poller.wait(LONG).unwrap(), [7]);
    std::thread::scope(|scope| scope.spawn(|| drop(copy)).join().unwrap());
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    assert_eq!(poller.add_copy(&other, Poller::DOORBELL).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}
