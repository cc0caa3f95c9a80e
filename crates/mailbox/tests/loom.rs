//! Every interleaving of the rings, of the reference counts, of the way home, and of the bell. Run by
//! `RUSTFLAGS='--cfg loom' cargo test -p crossdock-mailbox --release loom`, in a target directory of its own.
//!
//! Loom also watches the buffers' bytes and the rings' places for accesses that race, and the segment for never being
//! freed; so these tests say more than they assert.

#![cfg(loom)]
#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_mailbox::bell::Bell;
use crossdock_mailbox::{Batch, Buffer, Pool, PoolConfig, ring};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

fn pool(count: usize) -> Pool {
    Pool::new(PoolConfig { classes: vec![(64, count)] }).unwrap()
}

fn free(pool: &Pool) -> usize {
    pool.stats().classes[0].free
}

#[test]
fn loom_ring_keeps_order_and_loses_nothing() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::ring::<Box<u32>>(2);
        let put = thread::spawn(move || {
            for value in 0..3 {
                let mut value = Box::new(value);
                while let Err(back) = producer.push(value) {
                    value = back;
                    thread::yield_now();
                }
            }
        });
        for expected in 0..3 {
            let value = loop {
                match consumer.pop() {
                    Some(value) => break value,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(*value, expected);
        }
        put.join().unwrap();
        assert!(consumer.is_closed() && consumer.pop().is_none());
    });
}

#[test]
fn loom_ring_moves_batches() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::ring::<Box<u32>>(2);
        let put = thread::spawn(move || {
            let mut values: Vec<_> = (0..3).map(Box::new).collect();
            while !values.is_empty() {
                if producer.push_batch(&mut values) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut got = Vec::new();
        while got.len() < 3 {
            if consumer.pop_batch(&mut got, 2) == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(got.iter().map(|value| **value).collect::<Vec<_>>(), [0, 1, 2]);
        put.join().unwrap();
    });
}

#[test]
fn loom_ring_drops_what_nobody_took() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::ring::<Arc<()>>(2);
        let value = Arc::new(());
        let put = {
            let value = value.clone();
            thread::spawn(move || {
                let _full = producer.push(value.clone());
                let _full = producer.push(value);
            })
        };
        drop(consumer.pop());
        drop(consumer);
        put.join().unwrap();
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

#[test]
fn loom_closing_is_seen_after_the_last_value() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::ring::<u32>(2);
        let put = thread::spawn(move || producer.push(7).unwrap());
        let mut got = 0;
        loop {
            let closed = consumer.is_closed();
            if let Some(value) = consumer.pop() {
                got += value;
            } else if closed {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(got, 7);
        put.join().unwrap();
    });
}

/// Two references dropped on two threads: the buffer comes home once, and is written again only after both have read.
#[test]
fn loom_last_drop_sends_home_once() {
    loom::model(|| {
        let mut pool = pool(1);
        let mut buffer = pool.alloc(1).unwrap();
        buffer[0] = 7;
        let (one, two) = {
            let buffer = buffer.freeze();
            (buffer.clone(), buffer)
        };
        let reader = thread::spawn(move || assert_eq!(one[0], 7));
        assert_eq!(two[0], 7);
        drop(two);
        let mut again = pool.alloc(1);
        if let Some(buffer) = &mut again {
            buffer[0] = 8; // would race with the reader, had it not come home
        }
        reader.join().unwrap();
        drop(again);
        assert_eq!(free(&pool), 1);
    });
}

#[test]
fn loom_sole_reference_becomes_writable_only_after_others_read() {
    loom::model(|| {
        let mut pool = pool(1);
        let mut buffer = pool.alloc(1).unwrap();
        buffer[0] = 7;
        let mine = buffer.freeze();
        let other = mine.clone();
        let writer = thread::spawn(move || match mine.try_mut() {
            Ok(mut buffer) => buffer[0] = 8,
            Err(shared) => assert_eq!(shared[0], 7),
        });
        assert_eq!(other[0], 7);
        drop(other);
        writer.join().unwrap();
        assert_eq!(free(&pool), 1);
    });
}

/// Buffers come home from two threads at once while their owner allocates; cells of the return path are used again.
#[test]
fn loom_return_path_loses_nothing() {
    loom::model(|| {
        let mut pool = pool(2);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let mut buffer = pool.alloc(1).unwrap();
                thread::spawn(move || {
                    buffer[0] = 1;
                    drop(buffer);
                })
            })
            .collect();
        for _ in 0..3 {
            if let Some(mut buffer) = pool.alloc(1) {
                buffer[0] = 2;
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(free(&pool), 2);
    });
}

#[test]
fn loom_batches_go_home_together() {
    loom::model(|| {
        let mut pool = pool(3);
        let mut batch = Batch::new();
        for _ in 0..2 {
            batch.push_buffer(pool.alloc(1).unwrap().freeze()).unwrap();
        }
        let shared: Buffer = batch.buffers[0].clone();
        let other = thread::spawn(move || drop(batch));
        drop(shared);
        let held: Vec<_> = std::iter::from_fn(|| pool.alloc(1)).collect();
        other.join().unwrap();
        assert_eq!(free(&pool) + held.len(), 3);
    });
}

/// The pool goes while buffers are out: whoever is last frees the segment, once (loom finds a leak or a double free).
#[test]
fn loom_pool_may_go_before_its_buffers() {
    loom::model(|| {
        let mut pool = pool(2);
        let mut one = pool.alloc(1).unwrap();
        let two = pool.alloc(1).unwrap().freeze();
        let shared = two.clone();
        let threads = [
            thread::spawn(move || {
                one[0] = 1;
                drop(one);
            }),
            thread::spawn(move || drop(shared)),
        ];
        drop(pool);
        assert_eq!(two[0], 0);
        drop(two);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Whoever sleeps was not rung since it last looked, or is woken.
#[test]
fn loom_bell_loses_no_wake_up() {
    loom::model(|| {
        let bell = Arc::new(Bell::new());
        let (work, wake) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let ringer = {
            let (bell, work, wake) = (bell.clone(), work.clone(), wake.clone());
            thread::spawn(move || {
                work.store(true, Ordering::Relaxed);
                if bell.ring() {
                    wake.store(true, Ordering::Release);
                }
            })
        };
        while !work.load(Ordering::Relaxed) {
            if bell.try_sleep() {
                while !wake.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                assert!(bell.woken());
            }
            // Rung or woken: the work must be there to see.
            assert!(work.load(Ordering::Relaxed));
        }
        ringer.join().unwrap();
    });
}

/// A sleeper that something else woke learns that it was rung too, and sees the work.
#[test]
fn loom_bell_shows_a_side_that_was_woken_otherwise() {
    loom::model(|| {
        let bell = Arc::new(Bell::new());
        let work = Arc::new(AtomicBool::new(false));
        assert!(bell.try_sleep());
        let sleeper = {
            let (bell, work) = (bell.clone(), work.clone());
            thread::spawn(move || {
                if bell.woken() || !bell.try_sleep() {
                    assert!(work.load(Ordering::Relaxed));
                }
            })
        };
        work.store(true, Ordering::Relaxed);
        bell.ring();
        sleeper.join().unwrap();
    });
}

/// Two ringers and a sleeper: exactly one has to wake it.
#[test]
fn loom_bell_has_one_waker() {
    loom::model(|| {
        let bell = Arc::new(Bell::new());
        assert!(bell.try_sleep());
        let ringers: Vec<_> = (0..2)
            .map(|_| {
                let bell = bell.clone();
                thread::spawn(move || bell.ring())
            })
            .collect();
        let wakers = ringers.into_iter().map(|ringer| ringer.join().unwrap()).filter(|&woke| woke);
        assert_eq!(wakers.count(), 1);
        assert!(bell.woken());
    });
}
