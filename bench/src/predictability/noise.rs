//! The machine's other work: threads that do what compilers do to a machine: allocate, hash, sort, and go through memory.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Bytes that each thread goes through: more than caches hold.
const MEMORY: usize = 32 << 20;
/// Names that are put into a table at a time.
const NAMES: u64 = 20_000;

/// Threads of other work.
pub(super) struct Noise {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Noise {
    pub(super) fn start(threads: usize) -> Noise {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |at| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || work(at, &stop))
        };
        let threads = (0..threads as u64).map(start).collect();
        Noise { stop, threads }
    }

    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn work(seed: u64, stop: &AtomicBool) -> u64 {
    let (mut memory, mut sum) = (vec![seed as u8; MEMORY], seed);
    while !stop.load(Ordering::Acquire) {
        let mut table = HashMap::new();
        for name in 0..NAMES {
            *table.entry(format!("name{}", (name * 7919 + sum) % NAMES)).or_insert(0u64) += name;
        }
        let mut sorted: Vec<(String, u64)> = table.into_iter().collect();
        sorted.sort_unstable();
        let (from, to) = memory.split_at_mut(MEMORY / 2);
        to.copy_from_slice(from);
        from.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(sum as u8));
        sum = black_box(sum.wrapping_add(sorted.len() as u64 + u64::from(to[sum as usize % to.len()])));
    }
    sum
}
