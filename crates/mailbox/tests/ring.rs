//! Rings against a plain queue, and between threads.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_mailbox::ring::ring;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum RingOp {
    Push,
    Pop,
    PushBatch(usize),
    PopBatch(usize),
}

fn step() -> impl Strategy<Value = RingOp> {
    prop_oneof![
        Just(RingOp::Push),
        Just(RingOp::Pop),
        (0usize..12).prop_map(RingOp::PushBatch),
        (0usize..12).prop_map(RingOp::PopBatch),
    ]
}

fn cases() -> ProptestConfig {
    let usual = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if cfg!(miri) { ProptestConfig { cases: 4, ..usual } } else { usual }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_ring_is_a_bounded_queue(wanted in 0usize..9, steps in prop::collection::vec(step(), 0..80)) {
        let (mut producer, mut consumer) = ring::<Box<u32>>(wanted);
        let capacity = producer.capacity();
        prop_assert!(capacity >= wanted.max(1) && capacity.is_power_of_two() && capacity == consumer.capacity());
        let (mut model, mut next) = (VecDeque::new(), 0u32);
        for step in steps {
            match step {
                RingOp::Push => {
                    let fits = model.len() < capacity;
                    prop_assert_eq!(producer.push(Box::new(next)).is_ok(), fits);
                    if fits {
                        model.push_back(next);
                    }
                    next += 1;
                }
                RingOp::Pop => prop_assert_eq!(consumer.pop().map(|value| *value), model.pop_front()),
                RingOp::PushBatch(count) => {
                    let mut values: Vec<_> = (next..).take(count).map(Box::new).collect();
                    let took = producer.push_batch(&mut values);
                    prop_assert_eq!(took, count.min(capacity - model.len()));
                    prop_assert_eq!(values.first().map(|value| **value), (took < count).then(|| next + took as u32));
                    model.extend((next..).take(took));
                    next += count as u32;
                }
                RingOp::PopBatch(max) => {
                    let mut got = Vec::new();
                    prop_assert_eq!(consumer.pop_batch(&mut got, max), max.min(model.len()));
                    let expected: Vec<u32> = model.drain(..got.len()).collect();
                    prop_assert_eq!(got.iter().map(|value| **value).collect::<Vec<_>>(), expected);
                }
            }
            prop_assert_eq!(consumer.waiting(), model.len());
            prop_assert_eq!(producer.free(), capacity - model.len());
        }
    }
}

#[test]
fn everything_crosses_in_order() {
    let total: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let (mut producer, mut consumer) = ring::<u64>(64);
    let put = std::thread::spawn(move || {
        let (mut values, mut next) = (Vec::new(), 0);
        while next < total || !values.is_empty() {
            while values.len() < 10 && next < total {
                values.push(next);
                next += 1;
            }
            if producer.push_batch(&mut values) == 0 {
                std::thread::yield_now();
            }
        }
    });
    let (mut got, mut expected) = (Vec::new(), 0);
    while expected < total {
        if consumer.pop_batch(&mut got, 32) == 0 {
            std::thread::yield_now();
        }
        for value in got.drain(..) {
            assert_eq!(value, expected);
            expected += 1;
        }
    }
    put.join().unwrap();
    assert!(consumer.is_closed());
}

#[test]
fn each_side_learns_that_the_other_is_gone() {
    let (producer, consumer) = ring::<u8>(1);
    assert!(!producer.is_closed() && !consumer.is_closed());
    drop(consumer);
    assert!(producer.is_closed());
}
