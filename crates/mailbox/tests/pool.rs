//! Pools and buffers from outside: every buffer is accounted for, whoever drops it, wherever, and in whatever order.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_mailbox::{Batch, Buffer, BufferMut, Pool, PoolConfig, Slice, Span, ring};
use proptest::prelude::*;
use std::collections::HashSet;

const CLASSES: [(usize, usize); 3] = [(64, 6), (256, 4), (1024, 3)];

fn pool() -> Pool {
    Pool::new(PoolConfig { classes: CLASSES.to_vec() }).unwrap()
}

fn free(pool: &Pool) -> Vec<usize> {
    pool.stats().classes.iter().map(|class| class.free).collect()
}

fn all_free() -> Vec<usize> {
    CLASSES.iter().map(|&(_, count)| count).collect()
}

#[derive(Clone, Debug)]
enum PoolOp {
    Alloc { bytes: usize, fill: u8 },
    Clone(usize),
    Drop(usize),
    Recycle(usize),
    Rewrite { at: usize, fill: u8 },
    ReleaseBatch(Vec<usize>),
    Ask { bytes: usize, count: usize },
}

fn step() -> impl Strategy<Value = PoolOp> {
    prop_oneof![
        4 => (0usize..1300, any::<u8>()).prop_map(|(bytes, fill)| PoolOp::Alloc { bytes, fill }),
        2 => any::<usize>().prop_map(PoolOp::Clone),
        3 => any::<usize>().prop_map(PoolOp::Drop),
        1 => any::<usize>().prop_map(PoolOp::Recycle),
        2 => (any::<usize>(), any::<u8>()).prop_map(|(at, fill)| PoolOp::Rewrite { at, fill }),
        1 => prop::collection::vec(any::<usize>(), 0..6).prop_map(PoolOp::ReleaseBatch),
        1 => (0usize..1300, 0usize..8).prop_map(|(bytes, count)| PoolOp::Ask { bytes, count }),
    ]
}

/// The model of a reference: which of the allocations it belongs to, its class, and what fills it.
struct Held {
    buffer: Buffer,
    life: usize,
    class: usize,
}

/// The plain account that the pool is held to.
#[derive(Default)]
struct Model {
    held: Vec<Held>,
    fills: Vec<u8>,
}

impl Model {
    fn used(&self, class: usize) -> usize {
        self.held.iter().filter(|held| held.class == class).map(|held| held.life).collect::<HashSet<_>>().len()
    }

    fn remove(&mut self, at: usize) -> Option<Held> {
        (!self.held.is_empty()).then(|| self.held.swap_remove(at % self.held.len()))
    }

    fn check(&self, pool: &Pool) {
        for held in &self.held {
            assert!(held.buffer.iter().all(|&byte| byte == self.fills[held.life]), "nobody else wrote to {held:?}");
        }
        for (class, &(_, count)) in CLASSES.iter().enumerate() {
            assert_eq!(free(pool)[class], count - self.used(class), "class {class}");
        }
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of life {}", self.buffer, self.life)
    }
}

fn take(pool: &mut Pool, model: &mut Model, step: PoolOp) {
    match step {
        PoolOp::Alloc { bytes, fill } => {
            let fits = (0..3).find(|&class| CLASSES[class].0 >= bytes && model.used(class) < CLASSES[class].1);
            let got = pool.alloc(bytes);
            assert_eq!(got.as_ref().map(BufferMut::capacity), fits.map(|class| CLASSES[class].0));
            if let (Some(mut buffer), Some(class)) = (got, fits) {
                buffer.fill(fill);
                model.held.push(Held { buffer: buffer.freeze(), life: model.fills.len(), class });
                model.fills.push(fill);
            }
        }
        PoolOp::Clone(at) if !model.held.is_empty() => {
            let Held { buffer, life, class } = &model.held[at % model.held.len()];
            let copy = Held { buffer: buffer.clone(), life: *life, class: *class };
            assert!(copy.buffer.same(buffer));
            model.held.push(copy);
        }
        PoolOp::Clone(_) => {}
        PoolOp::Drop(at) => drop(model.remove(at)),
        PoolOp::Recycle(at) => {
            if let Some(held) = model.remove(at) {
                pool.recycle(held.buffer);
            }
        }
        PoolOp::Rewrite { at, fill } => {
            let Some(Held { buffer, life, class }) = model.remove(at) else { return };
            let sole = model.held.iter().all(|other| other.life != life);
            let buffer = match buffer.try_mut() {
                Ok(mut buffer) => {
                    assert!(sole, "a shared buffer cannot be written");
                    buffer.fill(fill);
                    model.fills[life] = fill;
                    buffer.freeze()
                }
                Err(buffer) => {
                    assert!(!sole, "the only reference can write");
                    buffer
                }
            };
            model.held.push(Held { buffer, life, class });
        }
        PoolOp::ReleaseBatch(which) => {
            let mut batch = Batch::new();
            batch.buffers.extend(which.into_iter().filter_map(|at| model.remove(at)).map(|held| held.buffer));
            batch.clear();
        }
        PoolOp::Ask { bytes, count } => {
            let expected =
                (0..3).any(|class| CLASSES[class].0 >= bytes && CLASSES[class].1 - model.used(class) >= count);
            assert_eq!(pool.has_free(bytes, count), expected);
        }
    }
}

fn cases() -> ProptestConfig {
    let usual = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if cfg!(miri) { ProptestConfig { cases: 4, ..usual } } else { usual }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_pool_keeps_its_account(steps in prop::collection::vec(step(), 0..120)) {
        let mut pool = pool();
        let mut model = Model::default();
        for step in steps {
            take(&mut pool, &mut model, step);
            model.check(&pool);
        }
        let outlives = model.held.pop();
        model.held.clear();
        model.held.extend(outlives);
        model.check(&pool);
        // The rest is read, cloned and dropped after the pool is gone.
        drop(pool);
        if let Some(Held { buffer, life, .. }) = model.held.pop() {
            let copy = buffer.clone();
            drop(buffer);
            prop_assert!(copy.iter().all(|&byte| byte == model.fills[life]));
        }
    }

    /// Several holders' buffers wander over threads that clone and drop them; at the end each pool has all of its own.
    #[test]
    fn buffers_come_home_from_everywhere(seed in any::<u64>(), rounds in 1usize..60, threads in 1usize..4) {
        let rounds = if cfg!(miri) { rounds.min(10) } else { rounds * 20 };
        let mut pools = [pool(), pool()];
        let mut outlets = Vec::new();
        let mut workers = Vec::new();
        for thread in 0..threads {
            let (producer, mut consumer) = ring::ring::<Buffer>(4);
            outlets.push(producer);
            workers.push(std::thread::spawn(move || {
                let mut random = seed ^ thread as u64;
                let (mut got, mut kept) = (Vec::new(), Batch::new());
                loop {
                    let closed = consumer.is_closed();
                    if consumer.pop_batch(&mut got, 3) == 0 && closed {
                        return;
                    }
                    for buffer in got.drain(..) {
                        let stamp = buffer[0];
                        assert!(buffer.iter().all(|&byte| byte == stamp));
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        match random >> 62 {
                            0 => drop(buffer),
                            1 => kept.buffers.push(buffer.clone()),
                            2 => kept.clear(),
                            _ => if let Ok(mut buffer) = buffer.try_mut() {
                                buffer.fill(stamp.wrapping_add(1));
                            },
                        }
                    }
                    std::thread::yield_now();
                }
            }));
        }
        for round in 0..rounds {
            let pool = &mut pools[round % 2];
            let Some(mut buffer) = pool.alloc(1 + (round * 37) % 1024) else { continue };
            buffer.fill(round as u8);
            let buffer = buffer.freeze();
            for outlet in &mut outlets {
                let _full_is_dropped = outlet.push(buffer.clone());
            }
        }
        drop(outlets);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        for pool in &pools {
            prop_assert_eq!(free(pool), all_free());
        }
    }
}

#[test]
fn a_pool_may_go_first() {
    let mut pool = pool();
    let mut held = Vec::new();
    while let Some(mut buffer) = pool.alloc(1) {
        let stamp = held.len() as u8;
        buffer.fill(stamp);
        held.push(buffer.freeze());
    }
    assert_eq!(held.len(), 13);
    drop(pool);
    let threads = held
        .into_iter()
        .enumerate()
        .map(|(stamp, buffer)| std::thread::spawn(move || assert!(buffer.iter().all(|&byte| byte as usize == stamp))));
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_pool_may_move_to_another_thread() {
    let mut pool = pool();
    let here = pool.alloc(1).unwrap();
    let mut pool = std::thread::spawn(move || {
        drop(pool.alloc(1));
        pool
    })
    .join()
    .unwrap();
    drop(here);
    assert_eq!(free(&pool), all_free());
    assert!(pool.alloc(1).is_some());
}

/// The warm buffers stay in use: after a burst that needed everything, a light load goes round few buffers.
#[test]
#[cfg_attr(miri, ignore = "2000 rounds are much for an interpreter")]
fn a_light_load_uses_few_buffers() {
    let mut pool = Pool::new(PoolConfig { classes: vec![(64, 1000)] }).unwrap();
    drop(std::iter::from_fn(|| pool.alloc(1)).collect::<Vec<_>>());
    let mut in_flight: std::collections::VecDeque<BufferMut> = (0..40).filter_map(|_| pool.alloc(1)).collect();
    let mut used = HashSet::new();
    for _ in 0..2000 {
        drop(in_flight.pop_front());
        let buffer = pool.alloc(1).unwrap();
        used.insert(buffer.id().index);
        in_flight.push_back(buffer);
    }
    assert!(used.len() <= 40 + 2 * 16, "{} buffers for 40 in flight", used.len());
    for _ in 0..100 {
        let buffer = pool.alloc(1).unwrap();
        let index = buffer.id().index;
        pool.recycle(buffer.freeze());
        assert_eq!(pool.alloc(1).unwrap().id().index, index, "the last to come home is the first to leave");
    }
}

#[test]
fn each_life_has_its_own_name() {
    let mut pool = Pool::new(PoolConfig { classes: vec![(64, 1)] }).unwrap();
    let first = pool.alloc(1).unwrap();
    let (first, id) = (first.freeze(), BufferMut::id);
    let name = first.id();
    assert_eq!(first.clone().id(), name);
    drop(first);
    let second = id(&pool.alloc(1).unwrap());
    assert_eq!(second.index, name.index);
    assert_ne!(second.generation, name.generation);
}

#[test]
fn exhaustion_is_counted_where_it_happens() {
    let mut pool = Pool::new(PoolConfig { classes: vec![(128, 1), (64, 1)] }).unwrap();
    let held = [pool.alloc(64).unwrap(), pool.alloc(64).unwrap()];
    assert_eq!(held.each_ref().map(BufferMut::capacity), [64, 128], "the small one first, then the next larger");
    assert!(pool.alloc(1).is_none());
    assert!(pool.alloc(129).is_none(), "larger than any class");
    let stats = pool.stats();
    let small = stats.classes[0];
    assert_eq!((small.bytes, small.allocated, small.exhausted, small.free), (64, 1, 2, 0));
    assert_eq!(stats.classes[1].in_use(), 1);
    assert_eq!(stats.failed, 2);
    drop(held);
    assert_eq!(pool.stats().classes[0].free, 1);
}

#[test]
fn configurations_that_cannot_be() {
    let huge = usize::MAX / 2;
    for (classes, expected) in [
        (vec![], "at least one buffer"),
        (vec![(64, 0)], "at least one buffer"),
        (vec![(0, 1)], "a buffer class of 0 bytes"),
        (vec![(2 << 30, 1)], "a buffer class of 2147483648 bytes"),
        (vec![(1 << 30, huge)], "less than all addresses"),
    ] {
        let error = Pool::new(PoolConfig { classes }).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(expected), "{error} should say {expected:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "86 MiB are much for an interpreter")]
fn the_default_pool_is_as_large_as_its_sum_says() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    assert_eq!(pool.memory_bytes(), 86 << 20);
    assert_eq!(pool.largest_bytes(), 64 << 10);
}

#[test]
fn a_batch_is_filled_read_and_used_again() {
    let mut pool = pool();
    let mut buffer = pool.alloc(64).unwrap();
    buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    let mut batch = Batch::new();
    let index = batch.push_buffer(buffer.freeze()).unwrap();
    let slice = batch.push_slice(Slice { buffer: index, start: 8, len: 24, records: 3 }).unwrap();
    batch.records.extend((0..3).map(|at| Span { slice, start: 8 + at * 8, len: 8 }));
    batch.select_all();
    (batch.stream, batch.format) = (7, 8);
    assert!(batch.is_whole() && batch.len() == 3 && batch.payload_bytes() == 24);
    assert_eq!(batch.record(1), [16, 17, 18, 19, 20, 21, 22, 23]);
    assert_eq!(batch.slice(0)[..2], [8, 9]);
    batch.selection.narrow(|at| at != 1);
    assert!(!batch.is_whole());
    assert_eq!(batch.selected().map(|record| record[0]).collect::<Vec<_>>(), [8, 24]);
    let mut copy = Batch::new();
    copy.clone_from(&batch);
    assert_eq!((copy.stream, copy.format), (7, 8));
    batch.clear();
    assert!(batch.is_empty() && batch.is_whole() && batch.stream == 0);
    assert_eq!(free(&pool), [5, 4, 3], "the copy still refers to it");
    assert_eq!(copy.selected().len(), 2);
    drop(copy);
    assert_eq!(free(&pool), all_free());
}

#[test]
#[cfg_attr(miri, ignore = "65,535 buffers are much for an interpreter")]
fn a_batch_refuses_what_lies_outside() {
    let mut pool = pool();
    let mut batch = Batch::new();
    assert!(batch.push_slice(Slice { buffer: 0, start: 0, len: 1, records: 0 }).is_err(), "no such buffer");
    batch.push_buffer(pool.alloc(64).unwrap().freeze()).unwrap();
    for (start, len, fits) in [(0, 64, true), (0, 65, false), (64, 0, true), (u32::MAX, u32::MAX, false)] {
        assert_eq!(batch.push_slice(Slice { buffer: 0, start, len, records: 1 }).is_ok(), fits, "{start} + {len}");
    }
    let buffer = batch.buffers[0].clone();
    while batch.buffers.len() < u16::MAX as usize {
        batch.push_buffer(buffer.clone()).unwrap();
    }
    assert!(batch.push_buffer(buffer).is_err(), "its index would not fit");
}
